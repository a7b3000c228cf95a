// The projections of an open store. Its writer changes them, one transaction after the other, and its readers look into
// them at any time: also while a closure of `write` runs, and inside it. So they have a lock of their own, which is held
// for one event or one look-up and never while user code, the log or the network is waited for.

internal import Synchronization

/// Projections that a writer and its readers share.
package final class SharedProjections: Sendable {
  private let state: Mutex<Projections>

  package init(_ projections: Projections) { state = Mutex(projections) }

  /// Looks into them. `body` must be short, and must not call the store.
  package func withLock<Result: Sendable>(
    _ body: (inout Projections) throws(StrandlineError) -> Result
  ) throws(StrandlineError) -> Result {
    try state.withLock { (state) throws(StrandlineError) in try body(&state) }
  }

  /// The same, where nothing is thrown.
  package func withLock<Result: Sendable>(_ body: (inout Projections) -> Result) -> Result {
    state.withLock { body(&$0) }
  }

  /// Others take their place, made from the log anew. Views that are held have expired then.
  package func replace(with projections: Projections) {
    withLock { state in
      let countsChanges = state.countsChanges
      state = projections
      state.countsChanges = countsChanges
    }
  }

  // What the writer asks: with everything that was applied, durable or not.

  package var appliedLSN: LSN { withLock { $0.appliedLSN } }
  package var sync: SyncState { withLock { $0.sync } }
  package func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    try withLock { (state) throws(StrandlineError) in try state.entry(id) }
  }
  package func deletion(_ id: RecordID) throws(StrandlineError) -> DeletionEntry? {
    try withLock { (state) throws(StrandlineError) in try state.deletion(id) }
  }
  /// Whether a version with these births is of deleted lives only.
  package func isDead(_ id: RecordID, births: Set<Birth>) throws(StrandlineError) -> Bool {
    try deletion(id)?.isDead(births) ?? false
  }
  /// Whether any mutation in the range is unsettled.
  package func owes(_ lsns: ClosedRange<LSN>) -> Bool {
    withLock { $0.outbox.unsettled.first(from: lsns.lowerBound).map { $0 <= lsns.upperBound } ?? false }
  }
  /// The unsettled mutations, oldest first.
  package var unsettled: [LSN] { withLock { $0.outbox.unsettled.all() } }
  /// A record's unsettled mutations, ascending.
  package func mutations(of id: RecordID, _ pending: Pending?) -> [LSN] {
    withLock { $0.outbox.mutations(of: id, pending) }
  }
  /// The newest mutation of a record that a request may have carried and whose outcome is not known.
  package func attempted(of id: RecordID, _ pending: Pending?) -> LSN? {
    withLock { $0.outbox.attempted(of: id, pending) }
  }
}
