// The status of a store, for an app's screen and for support: pending and held changes, waits, zones, damage. No field values.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A store's status: counts, zones, and the held records with their reasons.
public struct StoreStatus: Hashable, Sendable {
  /// A held record.
  public struct Held: Hashable, Sendable {
    /// The record.
    public var id: RecordID
    /// The server's code; or `DAMAGED`, `NEWER_SCHEMA` or `PARENT_MISSING`, as in `SyncStatus.HeldGroup.code`.
    public var code: String
    /// The reason in the server's words, or in the store's for its own codes.
    public var reason: String
    /// How often it was tried.
    public var attempts: Int
    /// Whether it is a version of the server that could not be read; if not, a change of this store.
    public var isDownload: Bool
    /// The milliseconds until it is tried again by itself. Nil if only an edit, `releaseHolds` or `discardChanges` ends the hold. If a
    /// reference is the cause, it is also tried again when the other record changes at the server. A version that could not be read is
    /// replaced by the next one that can.
    public var retryMilliseconds: Int64?
    /// The server's name for the request; empty if it gave none.
    public var requestUUID: String
  }
  /// A zone.
  public struct Zone: Hashable, Sendable {
    /// The zone.
    public var id: ZoneID
    /// Living records in it.
    public var records: Int
    /// It has changes to fetch. If the app does not sync it (`SyncConfiguration.zones`), they are fetched when it does.
    public var isDirty: Bool
    /// The server does not have it, or has fewer records than it once confirmed. It stays readable here, and is not synced.
    public var isLost: Bool { lostReason != nil }
    /// Why it is lost; nil if it is not.
    public var lostReason: ZoneLoss?
    /// Why it is lost, in words.
    public var lostWords: String
    /// It is being fetched from its beginning, so it may show records that were deleted at the server, until the server has been asked
    /// for each record that the fetch did not show.
    public var ghostsPossible: Bool
    /// Records that the server has listed and that are still to be fetched (`FirstFetch.recentFirst`); those of one page count
    /// until all of them are here.
    public var listed: Int
    /// It was fetched at least once to a token.
    public var hasToken: Bool
  }
  /// An open view of the store.
  public struct View: Hashable, Sendable {
    /// The newest event that it shows.
    public var lsn: LSN
    /// How long it has been open.
    public var milliseconds: Int64
    /// The bytes of finished log segments that cannot be compacted while it is open; 0 in a store that does not write.
    public var bytes: UInt64
  }
  /// A projection that is kept in step.
  public struct Projection: Hashable, Sendable {
    /// Its name.
    public var name: String
    /// Everything up to this event was applied.
    public var lsn: LSN
    /// How many events are durable and not applied.
    public var lag: UInt64
  }
  /// A place in the log whose bytes do not verify.
  public struct Damage: Hashable, Sendable {
    /// The segment file, as a path.
    public var file: String
    /// The first byte that does not verify, counted from 0.
    public var offset: UInt64
    /// The events that cannot be read; nil if the damage leaves open which they are.
    public var lsns: ClosedRange<LSN>?
    /// What is wrong, and where.
    public var message: String
  }
  /// The account to which a store belongs.
  public struct Account: Hashable, Sendable {
    /// The container's identifier.
    public var container: String
    /// "development" or "production".
    public var environment: String
    /// The databases that were synced, in order.
    public var scopes: [DatabaseScope]
  }
  /// The newest durable event.
  public var durableLSN: LSN
  /// The newest event up to which nothing is pending.
  public var checkpoint: LSN
  /// Living records.
  public var records: Int
  /// Records with changes that the server has not settled.
  public var unsettled: Int
  /// Milliseconds since the oldest of those changes was made, by this device's clock; a merge does not reset it. Nil if there is none,
  /// or if its event is damaged.
  public var oldestUnsettledMilliseconds: Int64?
  /// Names in the deletion index.
  public var deleted: Int
  /// Records of which the server has shown a version or a deletion that may be an old one: the next cycle looks each up.
  public var openBlocks: Int
  /// The held records.
  public var held: [Held]
  /// The known zones, in order.
  public var zones: [Zone]
  /// Milliseconds to wait before the next request; with several databases the longest wait.
  public var waitMilliseconds: Int64?
  /// The reason of that wait.
  public var waitReason: String?
  /// The open views, the oldest first. Compaction keeps everything that the oldest shows.
  public var views: [View]
  /// The registered projections, the slowest first. Compaction keeps everything that the slowest has not applied.
  public var projections: [Projection]
  /// Old values in memory: for these views, and for changes that are not durable yet.
  public var changesKept: Int
  /// Changes in memory and in the log that the index on disk does not have yet.
  public var changesUnindexed: Int
  /// Why the index could not be written, merged or built at the last try; nil if nothing is wrong. Writing and merging are tried
  /// again; a declared index is built at the next open, or when it is declared again. Nothing is lost, as the log has everything.
  /// Writes are refused when four times as many changes as usual are in memory.
  public var indexFailure: String?
  /// Why the log could not be compacted at the last try; nil if nothing is wrong. It is tried again with later writes and at the next
  /// open, and the log takes more space until then.
  public var compactionFailure: String?
  /// Damage that reads and upkeep have found in the log since the store was opened, in that order, 64 places at most. Only
  /// `strandline verify` reads every byte to look for it. Reads of other events and all writes go on. Compaction leaves a damaged
  /// segment as it is for `strandline repair`, which writes everything readable into a new store.
  public var damage: [Damage]
  /// The account to which this store belongs, since the first sync.
  public var account: Account?
  /// The size of the log's segments in bytes, as far as they are written, without reserved space and the index. A compaction has to read
  /// all of it to know how much it can free.
  public var logBytes: UInt64
}

extension RecordStore {
  /// The store's status, as far as it is durable.
  ///
  /// - Throws: `StrandlineError`: `.io` if the oldest pending mutation cannot be read; `.damaged` if it cannot be decoded although
  ///   its checksum is right; `.closed`.
  /// - Complexity: O(zones + held records), and one read of the log.
  public func status(fileID: String = #fileID, line: Int = #line) throws -> StoreStatus {
    try CallSite(fileID, line).run("reading the status of the store at '\(path)'") {
      try requireOpen()
      return try makeStatus()
    }
  }

  private func makeStatus() throws -> StoreStatus {
    let durable = source.durableLSN
    let known = projections.withLock { state in
      (
        sync: state.sync(asOf: durable), living: state.living(asOf: durable), deleted: state.deletions.count,
        owed: state.owed(asOf: durable),
        views: Array(state.views.values), changesKept: state.undoCount,
        unindexed: state.unstoredCount
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
      held: (Array(sync.held.values) + Array(sync.unread.values)).sorted { $0.id < $1.id }.map {
        StoreStatus.Held($0, wall: now)
      }, zones: zones, waitMilliseconds: wait?.rest, waitReason: wait?.pace.reason,
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
      account: bounds.first.map {
        StoreStatus.Account(container: $0.container, environment: $0.environment, scopes: bounds.map(\.scope))
      }, logBytes: source.segmentBytes)
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

extension StoreStatus.Held {
  init(_ held: Held, wall: Int64) {
    self.init(
      id: held.id, code: held.code, reason: held.words, attempts: Int(clamping: held.attempts),
      isDownload: held.direction == .download,
      retryMilliseconds: held.durationMilliseconds > 0 ? held.remaining(wall: wall) : nil, requestUUID: held.requestUUID
    )
  }
}
