// What the plan knows of the log, as the store of the engine has it.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A store's facts, at one moment.
struct StoreFacts: SyncFacts {
  let store: RecordStore
  let now: Moment

  init(_ store: RecordStore) { (self.store, now) = (store, Moment(store.environment.clock)) }

  var projections: SharedProjections { store.projections }
  var durableLSN: LSN { store.durableLSN }
  var schema: Schema { store.core.withLock { $0.schema } }

  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent? { try store.source.readIfKept(lsn.rawValue) }

  func event(at lsn: LSN) throws(StrandlineError) -> Event { try store.source.event(at: lsn) }

  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event {
    try store.core.withLock { (core) throws(StrandlineError) in try core.event(at: lsn) }
  }
}

extension RecordStore {
  /// Whether a save gives a record that the server has another type, so that the old one is deleted first.
  ///
  /// For the simulated worlds.
  package func replacesType(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> Bool {
    try StoreFacts(self).replacesType(id, entry, pending)
  }
}
