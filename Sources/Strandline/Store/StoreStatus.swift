// The state of a store in counts: pending and held changes, waits, zones, damage. The command shows it, and support gets it as
// text; an app shows `SyncStatus`. No field values.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A record that is set aside: a change that the server refused, or a version of the server that cannot be read.
public struct HeldRecord: Hashable, Sendable {
  /// The record that is set aside.
  public var id: RecordID
  /// The server's code; or `.damaged`, `.newerSchema` or `.parentMissing`, as in `SyncStatus.HeldGroup.code`.
  public var code: CloudError.Code
  /// The reason in the server's words, or in the store's for its own codes.
  public var reason: String
  /// How often it was tried.
  public var attempts: Int
  /// Whether it is a version of the server that could not be read; if not, a change of this store.
  public var isDownload: Bool
  /// `retryDelay` in milliseconds.
  package var retryMilliseconds: Int64?
  /// The server's name for the request; empty if it gave none.
  public var requestUUID: String

  /// How long it is until it is tried again by itself. Nil if only an edit, `releaseHolds` or `discardChanges` ends the hold. If a
  /// reference is the cause, it is also tried again when the other record changes at the server. A version that could not be read is
  /// replaced by the next one that can.
  public var retryDelay: Duration? { retryMilliseconds.map { .milliseconds($0) } }
}

/// The account to which a store belongs.
public struct SyncedAccount: Hashable, Sendable {
  /// The container's identifier.
  public var container: String
  /// The environment in which the records are.
  public var environment: CloudEnvironment
  /// The databases that were synced, in order.
  public var scopes: [DatabaseScope]

  /// Nil if nothing was ever synced.
  init?(_ bounds: [Bound]) {
    guard let first = bounds.first, let environment = CloudEnvironment(rawValue: first.environment) else { return nil }
    (container, self.environment, scopes) = (first.container, environment, bounds.map(\.scope))
  }
}

/// A store's state: counts, zones, and the held records with their reasons.
package struct StoreStatus: Hashable, Sendable {
  /// A zone.
  package struct Zone: Hashable, Sendable {
    /// The zone.
    package var id: ZoneID
    /// Living records in it.
    package var records: Int
    /// It has changes to fetch. If the app does not sync it (`SyncConfiguration.zones`), they are fetched when it does.
    package var isDirty: Bool
    /// The server does not have it, or has fewer records than it once confirmed. It stays readable here, and is not synced.
    package var isLost: Bool { lostReason != nil }
    /// Why it is lost; nil if it is not.
    package var lostReason: ZoneLoss?
    /// Why it is lost, in words.
    package var lostWords: String
    /// It is being fetched from its beginning, so it may show records that were deleted at the server, until the server has been asked
    /// for each record that the fetch did not show.
    package var ghostsPossible: Bool
    /// Records that the server has listed and that are still to be fetched (`FirstFetch.recentFirst`); those of one page count
    /// until all of them are here.
    package var listed: Int
    /// It was fetched at least once to a token.
    package var hasToken: Bool
  }
  /// An open view of the store.
  package struct View: Hashable, Sendable {
    /// The newest event that it shows.
    package var lsn: LSN
    /// How long it has been open.
    package var milliseconds: Int64
    /// The bytes of finished log segments that cannot be compacted while it is open; 0 in a store that does not write.
    package var bytes: UInt64
  }
  /// A projection that is kept in step.
  package struct Projection: Hashable, Sendable {
    /// The name under which the app registered it.
    package var name: String
    /// Everything up to this event was applied.
    package var lsn: LSN
    /// How many events are durable and not applied.
    package var lag: UInt64
  }
  /// A place in the log whose bytes do not verify.
  package struct Damage: Hashable, Sendable {
    /// The segment file, as a path.
    package var file: String
    /// The first byte that does not verify, counted from 0.
    package var offset: UInt64
    /// The events that cannot be read; nil if the damage leaves open which they are.
    package var lsns: ClosedRange<LSN>?
    /// What is wrong, and where.
    package var message: String
  }
  /// What other processes leave for the store (`StoreInbox`).
  package struct Inbox: Hashable, Sendable {
    /// A transaction that the store could not take in. `RecordStore.inboxRefusals` has what it was to write.
    package struct Refusal: Hashable, Sendable {
      /// The event that keeps it.
      package var lsn: LSN
      /// The records that the refused transaction was to change.
      package var ids: [RecordID]
      /// The error's code.
      package var code: StrandlineError.Code
      /// Why, in words.
      package var message: String
    }
    /// Transactions that the store has not taken in yet.
    package var transactions: Int
    /// How many bytes these transactions have in the inbox.
    package var bytes: UInt64
    /// Transactions about which the app has to decide, the oldest first.
    package var refusals: [Refusal]
    /// Why the inbox could not be read at the last try; nil if nothing is wrong. It is tried again by `refresh()` and at the next open;
    /// until then what it holds stays there.
    package var failure: String?
  }
  /// The contents of assets.
  package struct Contents: Hashable, Sendable {
    /// Those that events name.
    package var count: Int
    /// How many bytes the contents have together.
    package var bytes: Int64
    /// Those that were staged and that no event names yet.
    package var staged: Int
    /// Why they could not be cleared up at the last try; nil if nothing is wrong. The next open and the next compaction try again.
    package var failure: String?

    package init(count: Int, bytes: Int64, staged: Int, failure: String? = nil) {
      self.count = count
      self.bytes = bytes
      self.staged = staged
      self.failure = failure
    }
  }
  /// The newest durable event.
  package var durableLSN: LSN
  /// The newest event up to which nothing is pending.
  package var checkpoint: LSN
  /// Living records.
  package var records: Int
  /// Records with changes that the server has not settled.
  package var unsettled: Int
  /// Milliseconds since the oldest of those changes was made, by this device's clock; a merge does not reset it. Nil if there is none,
  /// or if its event is damaged.
  package var oldestUnsettledMilliseconds: Int64?
  /// Names in the deletion index.
  package var deleted: Int
  /// Records of which the server has shown a version or a deletion that may be an old one: the next cycle looks each up.
  package var openBlocks: Int
  /// The held records.
  package var held: [HeldRecord]
  /// The known zones, in order.
  package var zones: [Zone]
  /// Milliseconds to wait before the next request; with several databases the longest wait.
  package var waitMilliseconds: Int64?
  /// The reason of that wait.
  package var waitReason: String?
  /// The open views, the oldest first. Compaction keeps everything that the oldest shows.
  package var views: [View]
  /// The registered projections, the slowest first. Compaction keeps everything that the slowest has not applied.
  package var projections: [Projection]
  /// Old values in memory: for these views, and for changes that are not durable yet.
  package var changesKept: Int
  /// Changes in memory and in the log that the index on disk does not have yet.
  package var changesUnindexed: Int
  /// Why the index could not be written, merged or built at the last try; nil if nothing is wrong. Writing and merging are tried
  /// again; a declared index is built at the next open, or when it is declared again. Nothing is lost, as the log has everything.
  /// Writes are refused when four times as many changes as usual are in memory.
  package var indexFailure: String?
  /// Why the log could not be compacted at the last try; nil if nothing is wrong. It is tried again with later writes and at the next
  /// open, and the log takes more space until then.
  package var compactionFailure: String?
  /// Damage that reads and upkeep have found in the log since the store was opened, in that order, 64 places at most. Only
  /// `strandline verify` reads every byte to look for it. Reads of other events and all writes go on. Compaction leaves a damaged
  /// segment as it is for `strandline repair`, which writes everything readable into a new store.
  package var damage: [Damage]
  /// The account to which this store belongs, since the first sync.
  package var account: SyncedAccount?
  /// What other processes have left for the store; nil if none ever has.
  package var inbox: Inbox?
  /// The size of the log's segments in bytes, as far as they are written, without reserved space and the index. A compaction has to read
  /// all of it to know how much it can free.
  package var logBytes: UInt64
  /// The contents of assets.
  package var contents: Contents
}

extension RecordStore {
  /// The store's status, as far as it is durable.
  ///
  /// - Throws: `StrandlineError`: `.io` if the oldest pending mutation cannot be read; `.damaged` if it cannot be decoded although
  ///   its checksum is right; `.closed`.
  /// - Complexity: O(zones + held records), and one read of the log.
  package func status() throws -> StoreStatus {
    try CallSite.unnamed.run("reading the status of the store at '\(path)'") {
      try requireOpen()
      return try makeStatus()
    }
  }

  /// The records that are set aside, in order: changes that the server refused, and versions of the server that cannot be
  /// read. A record may be both.
  ///
  /// - Throws: `StrandlineError.closed`.
  /// - Complexity: O(held records).
  public func heldRecords() throws -> [HeldRecord] {
    try requireOpen()
    let durable = source.durableLSN
    return Self.held(projections.withLock { $0.sync(asOf: durable) }, wall: environment.clock.wallMilliseconds())
  }

  private static func held(_ sync: SyncState, wall: Int64) -> [HeldRecord] {
    (Array(sync.held.values) + Array(sync.unread.values)).sorted { $0.id < $1.id }.map { HeldRecord($0, wall: wall) }
  }

  private func makeStatus() throws -> StoreStatus {
    let durable = source.durableLSN
    let known = projections.withLock { state in
      (
        sync: state.sync(asOf: durable), living: state.living(asOf: durable), deleted: state.deletions.count,
        owed: state.owed(asOf: durable),
        views: Array(state.views.values), changesKept: state.undoCount,
        unindexed: state.unstoredCount, contents: state.contents
      )
    }
    let (sync, living) = (known.sync, known.living)
    let now = environment.clock.wallMilliseconds()
    var oldest: Int64?
    if let first = known.owed.oldest {
      do {
        if let time = try mutationTime(first) { oldest = max(0, now - time.milliseconds) }
      } catch let error as StrandlineError where source.damage.contains(where: { $0.file == error.file }) {
        // The status shows the damage instead of an age.
      }
    }
    let zones = Set(living.keys).union(sync.zones.keys).sorted().map { id in
      let state = sync.zones[id] ?? ZoneState()
      return StoreStatus.Zone(
        id: id, records: living[id]?.total ?? 0, isDirty: state.isDirty, lostReason: state.lostReason,
        lostWords: state.lostWords, ghostsPossible: state.hasGhosts, listed: sync.listed[id]?.count ?? 0,
        hasToken: state.token != nil)
    }
    let waits = sync.paces.values.map { (rest: $0.remaining(wall: now), pace: $0) }.filter { $0.rest > 0 }
    let wait = waits.max { ($0.rest, $0.pace.scope) < ($1.rest, $1.pace.scope) }
    let bounds = sync.bounds.values.sorted { $0.scope < $1.scope }
    return StoreStatus(
      durableLSN: durable, checkpoint: known.owed.oldest.map { LSN($0.rawValue - 1) } ?? durable,
      records: living.values.reduce(0) { $0 + $1.total }, unsettled: known.owed.count,
      oldestUnsettledMilliseconds: oldest,
      deleted: known.deleted, openBlocks: sync.openBlocks.count,
      held: Self.held(sync, wall: now), zones: zones, waitMilliseconds: wait?.rest, waitReason: wait?.pace.reason,
      views: known.views.sorted { $0.shown < $1.shown }.map { view in
        let held = environment.clock.monotonicNanoseconds() &- view.takenNanoseconds
        return StoreStatus.View(
          lsn: view.shown, milliseconds: Int64(clamping: held / 1_000_000),
          bytes: source.finishedBytes(after: min(view.lsn, view.shown)))
      },
      projections: registeredProjections.all.map { name, lsn in
        StoreStatus.Projection(name: name, lsn: lsn, lag: durable > lsn ? durable.rawValue - lsn.rawValue : 0)
      }, changesKept: known.changesKept, changesUnindexed: known.unindexed,
      indexFailure: index?.lastError?.message, compactionFailure: compaction?.failure?.message,
      damage: source.damage.map { found in
        StoreStatus.Damage(
          file: found.file, offset: found.offset, lsns: found.lsns.map { LSN($0.lowerBound)...LSN($0.upperBound) },
          message: found.message)
      },
      account: SyncedAccount(bounds), inbox: try inboxStatus(sync), logBytes: source.segmentBytes,
      contents: StoreStatus.Contents(
        count: known.contents.count, bytes: known.contents.byteCount,
        staged: try stagedContents { known.contents.contains($0) }, failure: contents.failure.withLock { $0 }))
  }

  /// When a mutation was made; nil if compaction has removed it.
  func mutationTime(_ lsn: LSN) throws -> HybridTime? {
    switch try source.eventIfKept(at: lsn) {
    case .saved(let event): event.time
    case .superseded(let event): event.time
    case .deleted(let event): event.time
    case .merged(let event): event.time
    default: nil
    }
  }
}

extension HeldRecord {
  init(_ held: Held, wall: Int64) {
    self.init(
      id: held.id, code: CloudError.Code(rawValue: held.code), reason: held.words,
      attempts: Int(clamping: held.attempts),
      isDownload: held.direction == .download,
      retryMilliseconds: held.durationMilliseconds > 0 ? held.remaining(wall: wall) : nil, requestUUID: held.requestUUID
    )
  }
}
