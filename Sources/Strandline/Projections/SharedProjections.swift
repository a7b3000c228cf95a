// The projections of an open store. Its writer changes them, one transaction after the other, and its readers look into
// them at any time: also while a closure of `write` runs, and inside it. So they have a lock of their own, which is held
// for one event or one look-up and never while user code, the log or the network is waited for.

internal import StrandlineSystem

/// Projections that a writer and its readers share.
package final class SharedProjections: Sendable {
  private let state: OrderedMutex<Projections>
  /// Makes the runs of the projections anew when one of them has failed.
  private let rebuild = OrderedMutex<Rebuild?>(nil)

  private struct Rebuild: Sendable {
    var body: @Sendable (RunSet) throws(StrandlineError) -> Void
  }

  package init(_ projections: Projections) { state = OrderedMutex(.projections, projections) }

  /// What to do when a run has failed; set once, before the first look.
  package func onFailure(_ body: @escaping @Sendable (RunSet) throws(StrandlineError) -> Void) {
    rebuild.withLock { $0 = Rebuild(body: body) }
  }

  /// Looks into them. `body` must be short, and must not call the store. If a run fails, the runs are made anew, which
  /// takes long, and `body` is called again: it must not have changed anything when it throws.
  package func withLock<Result: Sendable>(
    _ body: (inout Projections) throws(StrandlineError) -> Result
  ) throws(StrandlineError) -> Result {
    try rebuilding { () throws(StrandlineError) in try withLockOnce(body) }
  }

  /// The same, but that nothing is made anew.
  package func withLockOnce<Result: Sendable>(
    _ body: (inout Projections) throws(StrandlineError) -> Result
  ) throws(StrandlineError) -> Result {
    try state.withLock { (state) throws(StrandlineError) in try body(&state) }
  }

  /// Calls `body`, and again after the runs were made anew if one of them fails meanwhile.
  package func rebuilding<Result>(_ body: () throws(StrandlineError) -> Result) throws(StrandlineError) -> Result {
    for _ in 0..<2 {
      do { return try body() } catch {
        guard error.isOfIndex else { throw error }
        try discardIndex(error)
      }
    }
    return try body()
  }

  /// Makes all runs again if one of them has failed, or if what was read shows that they say what the log does not.
  package func discardIndex(_ error: StrandlineError) throws(StrandlineError) {
    if error.isOfLyingIndex { withLock { $0.runs }?.lied(error.message) }
    try rebuildIfFailed()
  }

  /// Checks that a record has a pending mutation if the outbox says that it is pending: the two lie in different rows. If it
  /// has not, all runs are made again.
  func checkOwed(_ lsn: LSN, by id: RecordID) throws(StrandlineError) {
    try withLock { (state) throws(StrandlineError) in
      guard state.outbox.newest.contains(lsn), try state.entry(id)?.pending?.newest != lsn else { return }
      throw StrandlineError(
        lyingIndex: "event \(lsn) is pending, and record '\(id)' has no such mutation", lsns: lsn...lsn)
    }
  }

  /// Checks that the outbox does not say that an event is pending that is no mutation of a record. If it does, all runs are
  /// made again.
  func checkIsNotOwed(_ lsn: LSN) throws(StrandlineError) {
    try withLock { (state) throws(StrandlineError) in
      guard state.outbox.newest.contains(lsn) else { return }
      throw StrandlineError(lyingIndex: "event \(lsn) is pending and is not a record's", lsns: lsn...lsn)
    }
  }

  /// Makes the runs anew if one of them has failed.
  package func rebuildIfFailed() throws(StrandlineError) {
    guard let runs = withLock({ $0.runs }), runs.hasFailed, let rebuild = rebuild.withLock({ $0 }) else { return }
    try rebuild.body(runs)
  }

  /// A record's entry as of `lsn`. The runs are asked without the lock.
  ///
  /// - Parameter check: refuses to look, such as for a view that has expired.
  package func entry(
    _ id: RecordID, asOf lsn: LSN, check: (Projections) throws(StrandlineError) -> Void = { _ in }
  ) throws(StrandlineError) -> PlacedEntry? {
    try rebuilding { () throws(StrandlineError) in
      let found = try withLockOnce { (state) throws(StrandlineError) in
        try check(state)
        return state.lookup(id, asOf: lsn)
      }
      return switch found {
      case .known(let entry): entry.map { PlacedEntry($0) }
      case .stored(let runs): try runs.entry(id)
      }
    }
  }

  /// The same of several records, all as of one moment.
  package func entries(
    _ ids: [RecordID], asOf lsn: LSN, check: (Projections) throws(StrandlineError) -> Void = { _ in }
  ) throws(StrandlineError) -> [PlacedEntry?] {
    try rebuilding { () throws(StrandlineError) in
      let found = try withLockOnce { (state) throws(StrandlineError) in
        try check(state)
        return ids.map { state.lookup($0, asOf: lsn) }
      }
      var entries: [PlacedEntry?] = []
      entries.reserveCapacity(ids.count)
      for (id, lookup) in zip(ids, found) {
        switch lookup {
        case .known(let entry): entries.append(entry.map { PlacedEntry($0) })
        case .stored(let runs): entries.append(try runs.entry(id))
        }
      }
      return entries
    }
  }

  /// How many changes no run has.
  package var unstoredCount: Int { withLock { $0.unstoredCount } }

  /// The same, where nothing is thrown.
  package func withLock<Result: Sendable>(_ body: (inout Projections) -> Result) -> Result {
    state.withLock { body(&$0) }
  }

  /// Others take their place, made from the log anew. Views that are held have expired then.
  package func replace(with projections: Projections) {
    withLock { state in
      let (countsChanges, nextView) = (state.countsChanges, state.nextView)
      state = projections
      state.countsChanges = countsChanges
      // One that has expired does not become another.
      state.nextView = nextView
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
  package func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord {
    try withLock { (state) throws(StrandlineError) in try state.look(id) }
  }
  /// Whether a record owes the server the content of the mutation `lsn`.
  package func owes(_ id: RecordID, _ lsn: LSN) throws(StrandlineError) -> Bool {
    guard let pending = try entry(id)?.pending else { return false }
    return pending.since <= lsn && lsn <= pending.newest
  }
  /// The newest unsettled mutation of each record that has one, ascending.
  package var owed: [LSN] { withLock { $0.outbox.newest.all() } }
  /// The newest mutation of a record that a request may have carried and whose outcome is not known.
  package func attempted(_ pending: Pending?) -> LSN? { withLock { $0.outbox.attempted(pending) } }

  /// Whether a request may have carried the mutation, whose outcome is not known.
  package func wasAttempted(_ lsn: LSN) -> Bool { withLock { $0.outbox.attempted.contains(lsn) } }
}
