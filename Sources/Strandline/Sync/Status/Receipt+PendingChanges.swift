// The pending changes of one transaction; and errors for receipts whose wait only a person can end.
//
// A record may wait for another one, and that for a third. At the end of that chain is a request that is still to come, a timer, or a
// person. A receipt must not wait in silence for a person. So `KnownObstacles` is asked for that end when a receipt begins to wait, and
// after each cycle: a change that is still pending then was not sent for a reason.

import StrandlineSystem
import Synchronization

extension Receipt {
  /// The records of the transaction with pending changes, and why each is not sent, as far as this store knows. Makes no request, and
  /// works in a store without an engine.
  ///
  /// - Throws: `StrandlineError`: `.damaged` and `.io` if an event of the transaction cannot be read; `.closed`.
  /// - Complexity: O(records of the transaction + records that those wait for), a few reads of the log for each. If it deletes and a
  ///   record is held, also O(records with pending changes).
  public func pendingChanges() throws -> [PendingChange] {
    guard let lsns else { return [] }
    return try CallSite.unnamed.run("reading the pending changes of events \(lsns)") {
      try store.requireOpen()
      return try store.pendingChanges(of: store.openMutations(of: lsns))
    }
  }
}

extension RecordStore {
  fileprivate func pendingChanges(of open: OpenMutations) throws -> [PendingChange] {
    var known = KnownObstacles(self)
    return try open.mutations.compactMap { id, lsn in
      try projections.owes(id, lsn) ? pendingChange(of: id, &known) : nil
    }
  }

  /// What is known of why some mutations are not sent yet, in words.
  func whatDelays(_ open: OpenMutations) throws -> String {
    let waiting = try pendingChanges(of: open).first { $0.obstacle != nil }
    if let waiting, let obstacle = waiting.obstacle { return "'\(waiting.id)' is not sent: \(obstacle)" }
    guard let engine = driver.withLock({ $0 }) as? SyncEngine else { return "the store has no sync engine" }
    if engine.watch.isSuspended { return "the store is suspended" }
    if let error = engine.lastError { return "the last sync failed: \(error.message)" }
    return engine.isAutomatic
      ? "the engine sends them by itself, and no answer has come yet"
      : "the engine does not sync by itself ('SyncConfiguration.isAutomatic' is false); call 'sync()'"
  }

  /// Why one of some mutations is not sent before a person acts; nil if all may be sent.
  func obstacle(to open: OpenMutations) throws -> StrandlineError? {
    guard keepsBack else { return nil }
    var known = KnownObstacles(self, onlyLasting: true)
    return try obstacle(to: open, isCycleOver: false, &known)
  }

  /// Whether any record is held, or any type or zone halted, lost or not synced, so that records may wait for it.
  var keepsBack: Bool {
    let isKnown = projections.withLock { state in
      !state.sync.held.isEmpty || state.sync.zones.values.contains(where: \.isLost)
    }
    guard !isKnown, let engine = driver.withLock({ $0 }) as? SyncEngine else { return isKnown }
    return engine.watch.hasHalts || engine.leavesZonesOut
  }

  /// Why one of some mutations is not sent before a person acts, with obstacles that are known already.
  ///
  /// - Parameter isCycleOver: a cycle has just ended. So the app's rules have been applied to lost zones, and halts count as lasting.
  fileprivate func obstacle(
    to open: OpenMutations, isCycleOver: Bool, _ known: inout KnownObstacles
  ) throws -> StrandlineError? {
    for (id, lsn) in open.mutations where try projections.owes(id, lsn) {
      if let (last, cause) = try known.cause(of: id),
        let error = error(of: last, cause, isCycleOver: isCycleOver, for: id)
      {
        return error
      }
    }
    return nil
  }

  /// The error for a record that waits for another one, or for a person itself; nil if the wait may end without one.
  private func error(
    of last: RecordID, _ cause: PendingChange.Obstacle, isCycleOver: Bool, for id: RecordID
  ) -> StrandlineError? {
    let error: StrandlineError?
    switch cause {
    case .held: error = projections.held(last).flatMap { StrandlineError.held($0) }
    case .zoneLost(let reason):
      guard let zone = projections.withLock({ $0.sync.zones[last.zone] }), zone.isLost,
        isCycleOver || !(zone.isFollowed || ruledLosses.withLock { $0.contains(reason) })
      else { return nil }
      return StrandlineError.loss(of: last.zone, zone)
    case .zoneLeftOut:
      return StrandlineError.leftOut(last.zone, "\(last == id ? "" : "'\(id)' waits for ")'\(last)' is not sent")
    case .halted(let halt):
      guard isCycleOver, halt.type != nil else { return nil }
      error = StrandlineError(
        .serverRefused,
        "the server refuses every \(halt); they stay in the store, and the next 'sync()' tries one of them, and so does the engine, "
          + "less and less often")
    // These are steps on the way to a cause.
    case .target, .referrer, .together: return nil
    }
    return last == id ? error : error.map { StrandlineError.waits(id, for: $0) }
  }
}

extension StrandlineError {
  /// The error for a record that waits for another one, which has `error`.
  fileprivate static func waits(_ id: RecordID, for error: StrandlineError) -> StrandlineError {
    var waits = error
    waits.message = "'\(id)' waits for another record: \(error.message)"
    return waits
  }
}

extension SyncEngine {
  /// A cycle has ended: throws from receipts whose wait no further cycle will end.
  ///
  /// - Parameter failure: the error of the cycle; nil if it succeeded.
  func endWaits(_ options: CycleOptions, _ failure: (any Error)? = nil) {
    switch (failure as? StrandlineError)?.code {
    case .needsSignIn?, .accountMismatch?, .fromTheFuture?:
      store.settledWaiters.end { _ in failure as? StrandlineError }
    // The wait goes on when the store is resumed, and ends with the store.
    case .suspended?, .closed?, .outcomeUnknown?, .storeReplaced?: break
    case nil where failure != nil: break
    default:
      // A cycle of one direction or zone leaves other changes to the next one.
      guard options.direction != .pullOnly, options.zone == nil, store.keepsBack else { return }
      var known = KnownObstacles(store, onlyLasting: true)
      store.settledWaiters.end { open in
        do { return try store.obstacle(to: open, isCycleOver: true, &known) } catch StrandlineError.Code.suspended {
          return nil
        }
      }
    }
  }
}
