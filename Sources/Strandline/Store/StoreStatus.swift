// What a store owes, holds and waits for: everything that "can I see what happened" asks first. No field values.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A store's state: counts, zones, what is held and why.
public struct StoreStatus: Hashable, Sendable {
  /// A record that is set aside.
  public struct Held: Hashable, Sendable {
    /// Which.
    public var id: RecordID
    /// The server's code; or `DAMAGED`, `NEWER_SCHEMA` or `PARENT_MISSING`, as in `SyncStatus.HeldGroup.code`.
    public var code: String
    /// Why, in words: the server's, as it sent them, or the store's for a code of its own.
    public var reason: String
    /// How often it was tried.
    public var attempts: Int
    /// Whether a version of the server is set aside, which could not be read; else it is a change of this store.
    public var isDownload: Bool
    /// In how many milliseconds it is tried again by itself. A record that a reference forbids is tried again when the record
    /// that it refers to, or that refers to it, has changed at the server. Nil if only an edit, `releaseHolds` or `discardChanges` ends
    /// this. A version that could not be read is replaced by the next one that can.
    public var retryMilliseconds: Int64?
    /// The server's name for the request; empty if it gave none.
    public var requestUUID: String
  }
  /// A zone.
  public struct Zone: Hashable, Sendable {
    /// Which.
    public var id: ZoneID
    /// Living records in it.
    public var records: Int
    /// It has changes to fetch; those of a zone that is left out (`SyncConfiguration.zones`) are fetched when it is taken in.
    public var isDirty: Bool
    /// The server does not have it, or has less of it than it once confirmed; it stays readable here, and is not synced.
    public var isLost: Bool { lostReason != nil }
    /// Why it is gone; nil if it is not.
    public var lostReason: ZoneLoss?
    /// The same in words, such as the server's.
    public var lostWords: String
    /// It is being fetched from its beginning. Until that has ended, and the server has been asked for each record that the fetch did
    /// not show, what it has deleted may still stand here.
    public var ghostsPossible: Bool
    /// Records that the server has listed and that are still to be fetched (`FirstFetch.recentFirst`); those of one page count
    /// until the last of them is here.
    public var listed: Int
    /// It was fetched at least once to a token.
    public var hasToken: Bool
  }
  /// A view of the store that is held.
  public struct View: Hashable, Sendable {
    /// The newest event that it shows.
    public var lsn: LSN
    /// How long it has been held.
    public var milliseconds: Int64
    /// The bytes of the log's finished segments that no compaction looks at as long as it is held; 0 in a store that does not
    /// write.
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
  /// Whose a store is.
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
  /// The newest event at or below which nothing is owed to the server.
  public var checkpoint: LSN
  /// Living records.
  public var records: Int
  /// Records with changes that the server has not settled.
  public var unsettled: Int
  /// Milliseconds since the oldest of those changes was made, by this device's clock; a merge does not make it young. Nil if
  /// there is none, or if its event is damaged.
  public var oldestUnsettledMilliseconds: Int64?
  /// Names in the deletion index.
  public var deleted: Int
  /// Records of which the server has shown a version or a deletion that may be an old one: the next run looks each up.
  public var openBlocks: Int
  /// What is set aside.
  public var held: [Held]
  /// The zones that are known, in order.
  public var zones: [Zone]
  /// Milliseconds to wait before the server may be asked again; of several databases the longest wait.
  public var waitMilliseconds: Int64?
  /// Why.
  public var waitReason: String?
  /// The views that are held, the oldest first. Compaction leaves in place what the oldest shows.
  public var views: [View]
  /// The projections that are kept in step, the slowest first. Compaction leaves in place what the slowest has not applied.
  public var projections: [Projection]
  /// Changes that are kept in memory, for these views and because they are not durable yet.
  public var changesKept: Int
  /// Changes that lie in memory and in the log, and that the index on disk does not have yet.
  public var changesUnindexed: Int
  /// Why the index could not be written, merged or built when that was last tried; nil if nothing is wrong. Writing and
  /// merging are tried again, a declared index is built at the next open or when it is declared anew, and nothing is lost: the log has everything. Writes are refused when four times as many changes as usual lie in memory.
  public var indexFailure: String?
  /// Why the log could not be compacted when the store last tried to; nil if nothing is wrong. It is tried again with later
  /// writes and at the next open, and costs space until then.
  public var compactionFailure: String?
  /// Damage that reads and upkeep have met in the log since the store was opened, in the order in which they met it, 64
  /// places at most. Nothing looks for damage: `strandline verify` reads every byte. Reads of other events and all writes
  /// go on. Compaction leaves such a segment as it is, because its bytes are all that `strandline repair` has, which
  /// writes what can still be read into a new store.
  public var damage: [Damage]
  /// Whose this store is, since the first sync.
  public var account: Account?
  /// Bytes of the log's segments, as far as they are written: space that is reserved ahead, and the index, do not count. What a
  /// compaction would free of them is known when one has read all of it.
  public var logBytes: UInt64
}

extension RecordStore {
  /// The store's state, as far as it is durable.
  ///
  /// - Throws: `StrandlineError`: `.io` if the oldest unsettled mutation cannot be read; `.damaged` if it cannot be decoded
  ///   although its checksum is right; `.closed`.
  /// - Complexity: O(zones + what is held), and one read of the log.
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
        // The status names the damage instead of an age.
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

extension Held {
  /// What is left of it, in milliseconds: never more than it was said to last, whatever the wall clock shows.
  func remaining(wall: Int64) -> Int64 {
    min(durationMilliseconds, max(0, wallMilliseconds &+ durationMilliseconds &- wall))
  }
}

extension Pace {
  /// What is left of the wait, in milliseconds. A wall clock that was turned back cannot make it longer than it was
  /// said to be.
  package func remaining(wall: Int64) -> Int64 {
    min(durationMilliseconds, max(0, wallMilliseconds &+ durationMilliseconds &- wall))
  }
}
