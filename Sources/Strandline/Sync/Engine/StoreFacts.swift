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
