// Answers the plan's questions (Plan/SyncFacts.swift) from the engine's store.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A store's facts, at one moment.
struct StoreFacts: SyncFacts {
  private let store: RecordStore
  let now: Moment

  init(_ store: RecordStore) { (self.store, now) = (store, Moment(store.environment.clock)) }

  private var projections: SharedProjections { store.projections }

  var appliedLSN: LSN { projections.appliedLSN }
  var durableLSN: LSN { store.durableLSN }
  var schema: Schema { store.core.withLock { $0.declared.schema } }
  var hasAttempts: Bool { projections.withLock { !$0.outbox.attempted.isEmpty } }

  func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value { projections.learned(read) }
  func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? { try projections.entry(id) }
  func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord { try projections.look(id) }
  func attempted(_ pending: Pending?) -> LSN? { projections.attempted(pending) }
  func wasAttempted(_ lsn: LSN) -> Bool { projections.wasAttempted(lsn) }
  func pending(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] { projections.owed(count, after: lsn, upTo: end) }
  func knowsNothing(of zone: ZoneID) -> Bool { projections.knowsNothing(of: zone) }
  func hasPending(in zone: ZoneID) throws(StrandlineError) -> Bool { try projections.hasPending(in: zone) }
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID> {
    projections.withLock { $0.zonesLeftOut(by: synced) }
  }

  func change(at lsn: LSN) throws(StrandlineError) -> PendingFact {
    do throws(StrandlineError) {
      // A newer change or an outcome may have followed, and then a compaction.
      guard let found = try readIfKept(lsn), let id = try found.decoded().recordID else {
        try projections.checkIsNotOwed(lsn)
        return .replaced
      }
      try projections.checkOwed(lsn, by: id)
      return .change(id, found)
    } catch {
      if error.isOfLyingIndex {
        // The index is wrong. The next cycle finds the pending changes in the log.
        try projections.discardIndex(error)
        throw error
      }
      guard error.isOfOneRecord, let id = try projections.owner(of: lsn) else { throw error }
      return .damaged(id, error)
    }
  }

  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent? { try store.source.readIfKept(lsn.rawValue) }

  func event(at lsn: LSN) throws(StrandlineError) -> Event { try store.source.event(at: lsn) }

  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event {
    try store.core.withLock { (core) throws(StrandlineError) in try core.event(at: lsn) }
  }
}

extension SharedProjections: FoldFacts {
  package func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value { withLock { read($0.sync) } }

  package func knowsNothing(of zone: ZoneID) -> Bool { withLock { $0.knowsNothing(of: zone) } }

  /// Whether a record of a zone has a pending change.
  ///
  /// - Complexity: O(records of the zone up to the first such one).
  func hasPending(in zone: ZoneID) throws(StrandlineError) -> Bool { try pendingCount(in: zone, max: 1) > 0 }

  /// How many records of a zone have pending changes: `max` if there are more.
  ///
  /// - Complexity: O(records of the zone up to the last one that is counted); no event is read.
  func pendingCount(in zone: ZoneID, max: Int = .max) throws(StrandlineError) -> Int {
    try rebuilding { () throws(StrandlineError) in
      let memory = withLock { $0.outbox.count > 0 ? $0.scanMemory(asOf: $0.appliedLSN) : nil }
      guard let memory else { return 0 }
      var scan = try EntryScan(memory, EntryScan.Range(zone: zone))
      var count = 0
      while count < max, let (_, found) = try scan.next() {
        if found.entry.pending != nil { count += 1 }
      }
      return count
    }
  }

  /// The records of a record's upload set, itself among them; none if it is sent by itself.
  package func together(with id: RecordID) -> [RecordID] { set(of: id).map { members(of: $0) } ?? [] }

  /// The record whose newest pending change is the event at `lsn`; nil if there is none.
  ///
  /// - Complexity: O(records): called only for a damaged event.
  fileprivate func owner(of lsn: LSN) throws(StrandlineError) -> RecordID? {
    try rebuilding { () throws(StrandlineError) in
      let memory = withLock { $0.scanMemory(asOf: $0.appliedLSN) }
      var scan = try EntryScan(memory, EntryScan.Range(zone: nil))
      while let (id, found) = try scan.next() {
        if found.entry.pending?.newest == lsn { return id }
      }
      return nil
    }
  }

  /// The newest pending changes of records, ascending: the first `count` of those above `lsn` and not above `end`.
  func owed(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] {
    withLock { $0.outbox.newest.first(count, after: lsn, upTo: end) }
  }
}

extension Projections {
  /// Whether a zone has no token, no living record, and no unreadable version. It may still have a pending deletion.
  func knowsNothing(of zone: ZoneID) -> Bool {
    sync.zones[zone]?.token == nil && records.living[zone]?.total ?? 0 == 0
      && !sync.unread.keys.contains { $0.zone == zone }
  }
}
