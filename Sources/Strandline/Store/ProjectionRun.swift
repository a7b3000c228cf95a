// How a projection is brought from its position to the newest durable event.
//
// 1. It is registered with the log before its position is asked for, so that compaction waits from then on.
// 2. The events after the position say which records have changed, until enough have come together. What those records
//    are now, a view says. So a record that was written a thousand times is applied once, and applying a batch twice is
//    the same as once.
// 3. The batch's position is that of its last event. Its records may be newer: then the events between that position and
//    the view still follow, and bring them again, with whatever else has changed. With the batch that reaches its view the
//    projection equals the store at that moment.
// 4. The batch is applied, position and records in one transaction of the projection's database; then compaction may go
//    on behind it. No view is held meanwhile.
//
// A projection without a position is made anew: it gets every record, and then what has changed since that began.
//
// A full sync of the log precedes each batch: what a projection has stored is never ahead of what a power cut leaves.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A projection at work.
struct ProjectionRun {
  private static let recordsMax = 1_000
  private static let bytesMax = 4 << 20

  private let store: RecordStore
  private let projection: any Projection
  private let rebuilding: Bool
  private let registration: ProjectionRegistration
  /// What the projection has stored; nil if it is to be made anew.
  private var position: LogPosition?
  /// Whether the projection equals the store as it was at the position. That of a former run does if it is the newest.
  private var isConsistent = true

  init(_ store: RecordStore, _ projection: any Projection, rebuilding: Bool) async throws {
    self.store = store
    self.projection = projection
    self.rebuilding = rebuilding
    registration = store.registeredProjections.register(projection.name, store.consumers)
    position = try await projection.appliedPosition()
    guard let position else { return }
    try store.check(position, in: store.projections.sync, upTo: store.source.durableLSN)
    registration.advance(to: position.lsn)
  }

  /// Applies everything up to an event that is durable.
  ///
  /// - Returns: the position that was reached.
  @discardableResult
  mutating func catchUp(to target: LSN) async throws -> LogPosition {
    while true {
      try Task.checkCancellation()
      if let position, isConsistent, position.lsn >= target { return position }
      do {
        if let position { try await apply(nextBatch(after: position)) } else { try await rebuild() }
      } catch let error as StrandlineError where error.code == .positionExpired && rebuilding && position != nil {
        position = nil
      } catch let error as StrandlineError where error.code == .outdated {
        // The process that writes the store has compacted it meanwhile.
        try store.refresh()
      } catch let error as StrandlineError where error.code == .suspended {
        // Its log was closed before the batch was applied. A suspended store is followed.
        await Task.yield()
      }
    }
  }

  private func nextBatch(after start: LogPosition) throws -> ProjectionBatch {
    let view = try store.view()
    var changed = ChangedRecords(since: start, recordsMax: Self.recordsMax, bytesMax: Self.bytesMax)
    try store.source.scan(after: start.lsn, upTo: view.lsn) { try changed.take($0) }
    try changed.checkReached(view.lsn)
    let end = PositionFinder(store.projections.sync).position(of: changed.last)
    var batch = ProjectionBatch(position: end, isConsistent: end.lsn == view.lsn)
    for id in changed.ids {
      if let record = try view.record(id) { batch.saved.append(record) } else { batch.deleted.append(id) }
    }
    return batch
  }

  /// Gives the projection every record that lives now. It has no position until the last of them: if this process ends
  /// before, it is made anew from the beginning.
  private mutating func rebuild() async throws {
    let start = try store.read { $0.position }
    registration.advance(to: start.lsn)
    var batch = ProjectionBatch(beginsAnew: true, position: nil)
    var last: RecordID?
    repeat {
      try Task.checkCancellation()
      // Of records that were written since the beginning, those before `last` come with what has changed after `start`.
      try store.read { view in
        batch.saved = try view.records(after: last, limit: Self.recordsMax)
        batch.position = batch.saved.count < Self.recordsMax ? start : nil
        batch.isConsistent = batch.position != nil && view.lsn == start.lsn
      }
      last = batch.saved.last?.id
      try await apply(batch)
      batch.beginsAnew = false
    } while batch.position == nil
  }

  private mutating func apply(_ batch: ProjectionBatch) async throws {
    // Where each group is synced in full, nothing is asked of the log, which may take no more writes.
    if case .writer(let log) = store.source, !log.syncsInFull { try await store.flushBeforeLeaving() }
    try await projection.apply(batch)
    position = batch.position
    isConsistent = batch.isConsistent
    if let position { registration.advance(to: position.lsn) }
  }
}

extension StoreView {
  /// The living records after one, in the order of zone and name, at most `limit` of them.
  fileprivate func records(after id: RecordID?, limit: Int) throws -> [Record] {
    try store.requireOpen()
    var range = EntryScan.Range(zone: nil)
    range.after = id
    var result: [Record] = []
    try forEachLiving(ofType: nil, in: range) { id, entry in
      if let record = try store.load(id, entry, asOf: lsn) { result.append(record) }
      return result.count < limit
    }
    return result
  }
}

/// The records that some events in a row are of.
private struct ChangedRecords {
  private let recordsMax: Int
  private let bytesMax: Int
  private var run: EventRun
  private var seen: Set<RecordID> = []
  /// Each once, in the order of their first events.
  private(set) var ids: [RecordID] = []
  private var bytes = 0

  /// The last event that was taken in.
  var last: LSN { run.last }
  private var isFull: Bool { ids.count >= recordsMax || bytes >= bytesMax }

  init(since position: LogPosition, recordsMax: Int, bytesMax: Int) {
    run = EventRun(since: position)
    self.recordsMax = recordsMax
    self.bytesMax = bytesMax
  }

  /// Takes in an event; false when it is the last of the batch.
  mutating func take(_ found: LogEvent) throws(StrandlineError) -> Bool {
    let kind = EventCodec.kind(ofBody: found.body)
    try run.take(LSN(found.lsn), kind)
    guard kind?.mayChangeRecord == true, let id = try found.decoded().recordID else { return true }
    if seen.insert(id).inserted { ids.append(id) }
    bytes += found.body.count
    return !isFull
  }

  /// - Throws: `.positionExpired` if events are missing up to `end`.
  func checkReached(_ end: LSN) throws(StrandlineError) { if !isFull { try run.checkReached(end) } }
}

extension EventKind {
  /// Whether the app may see another record after an event of this kind than before it.
  fileprivate var mayChangeRecord: Bool {
    switch self {
    case .saved, .deleted, .merged, .fetchedSave, .fetchedDelete, .settled, .discarded: true
    default: false
    }
  }
}

/// The projections that are kept in step now, for status; the log knows them as consumers.
package final class RegisteredProjections: Sendable {
  private struct State: Sendable {
    var entries: [UInt64: @Sendable () -> (name: String, lsn: LSN)?] = [:]
    var next: UInt64 = 0
  }
  private let state = OrderedMutex(State())

  package init() {}

  /// Registers a projection of which it is not known yet what it has applied: compaction removes nothing.
  func register(_ name: String, _ consumers: LogConsumers) -> ProjectionRegistration {
    let number = state.withLock { state in
      state.next += 1
      return state.next
    }
    let consumer = consumers.register("the projection '\(name)'", after: 0)
    let registration = ProjectionRegistration(name, consumer) { [weak self] in
      self?.state.withLock { $0.entries[number] = nil }
    }
    state.withLock { state in
      state.entries[number] = { [weak registration] in registration.map { ($0.name, $0.lsn) } }
    }
    return registration
  }

  /// Those that are registered, the slowest first.
  var all: [(name: String, lsn: LSN)] {
    state.withLock { Array($0.entries.values) }.compactMap { $0() }.sorted { ($0.lsn, $0.name) < ($1.lsn, $1.name) }
  }
}

/// A projection that is kept in step. Releasing it ends its claim on the log.
final class ProjectionRegistration: Sendable {
  let name: String
  private let consumer: LogConsumer
  private let position = Atomic<UInt64>(0)
  private let onEnd: @Sendable () -> Void

  init(_ name: String, _ consumer: LogConsumer, onEnd: @escaping @Sendable () -> Void) {
    self.name = name
    self.consumer = consumer
    self.onEnd = onEnd
  }

  deinit { onEnd() }

  /// Everything up to here was applied.
  var lsn: LSN { LSN(position.load(ordering: .acquiring)) }

  func advance(to lsn: LSN) {
    position.max(lsn.rawValue, ordering: .releasing)
    consumer.advance(to: lsn.rawValue)
  }
}
