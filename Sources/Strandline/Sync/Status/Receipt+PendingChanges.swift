// What a transaction still has to send, and what its records wait for; and the end of the waits that only a person can end.
//
// A record may wait for another one, and that for a third. What ends the wait is at the end of that chain: a request that
// is still to come, a moment, or a person. Receipts are not to wait in silence for a person, so the chain of each is followed
// when a receipt begins to wait, and when a cycle has ended: what is then still pending was not sent for a reason.

import StrandlineSystem
import Synchronization

extension Receipt {
  /// What of the transaction is not at the server yet, a record after the other, and what each waits for as far as this
  /// store knows. Empty if nothing is pending. Without a request, also in a store without an engine.
  ///
  /// - Throws: `StrandlineError`: `.damaged` and `.io` if an event of the transaction cannot be read; `.closed`.
  /// - Complexity: O(records of the transaction), and of those that they wait for, a few reads of the log for
  ///   each. If it deletes and something is held, O(records that owe something) besides.
  public func pendingChanges(fileID: String = #fileID, line: Int = #line) throws -> [PendingChange] {
    guard let lsns else { return [] }
    return try CallSite(fileID, line).run("reading what events \(lsns) owe") {
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

  /// Why one of some mutations does not leave before a person does something; nil if all may.
  func obstacle(to open: OpenMutations) throws -> StrandlineError? {
    guard keepsBack else { return nil }
    var known = KnownObstacles(self, onlyLasting: true)
    return try obstacle(to: open, isRunOver: false, &known)
  }

  /// Whether anything is held, halted, lost or left out, so that records may wait for it.
  var keepsBack: Bool {
    let isKnown = projections.withLock { state in
      !state.sync.held.isEmpty || state.sync.zones.values.contains(where: \.isLost)
    }
    guard !isKnown, let engine = driver.withLock({ $0 }) as? SyncEngine else { return isKnown }
    return engine.watch.hasHalts || engine.leavesZonesOut
  }

  /// The same, with what is known already.
  ///
  /// - Parameter isRunOver: a cycle has just ended, so the app's rules for lost zones have done what they do, and what the
  ///   server refuses as a whole is not sent again by itself.
  fileprivate func obstacle(
    to open: OpenMutations, isRunOver: Bool, _ known: inout KnownObstacles
  ) throws -> StrandlineError? {
    // What was followed once led to no obstacle.
    var met: Set<RecordID> = []
    for (id, lsn) in open.mutations where try projections.owes(id, lsn) {
      if let obstacle = try obstacle(to: id, isRunOver: isRunOver, &known, &met) { return obstacle }
    }
    return nil
  }

  private func obstacle(
    to id: RecordID, isRunOver: Bool, _ known: inout KnownObstacles, _ met: inout Set<RecordID>
  ) throws -> StrandlineError? {
    var next = id
    // A circle goes in one request, and its records wait for nothing else.
    while met.insert(next).inserted, let change = try pendingChange(of: next, &known) {
      switch change.obstacle {
      case .target(let other), .referrer(let other), .together(let other): next = other
      case .held:
        guard let held = projections.held(next), let error = StrandlineError.held(held) else { return nil }
        return next == id ? error : StrandlineError.waits(id, for: error)
      case .zoneLost(let reason):
        guard let zone = projections.withLock({ $0.sync.zones[next.zone] }), zone.isLost,
          isRunOver || !(zone.isFollowed || ruledLosses.withLock { $0.contains(reason) })
        else { return nil }
        return StrandlineError.loss(of: next.zone, zone)
      case .zoneLeftOut:
        return StrandlineError.leftOut(next.zone, "\(next == id ? "" : "'\(id)' waits for ")'\(next)' is not sent")
      case .halted(let halt):
        guard isRunOver, halt.type != nil else { return nil }
        let error = StrandlineError(
          .serverRefused,
          "the server refuses every \(halt); they stay in the store, and the next 'now()' tries one of them, as the engine does by "
            + "itself, later and later"
        )
        return next == id ? error : StrandlineError.waits(id, for: error)
      case nil: return nil
      }
    }
    return nil
  }
}

extension StrandlineError {
  /// The same error, of a record that waits for the one that it is about.
  fileprivate static func waits(_ id: RecordID, for error: StrandlineError) -> StrandlineError {
    StrandlineError(error.code, "'\(id)' waits for another record: \(error.message)", underlying: error.underlying)
  }
}

extension SyncEngine {
  /// A cycle has ended: ends the waits of receipts that no further cycle ends.
  ///
  /// - Parameter failure: what the cycle ended with; nil if it came to its end.
  func endWaits(_ options: CycleOptions, _ failure: (any Error)? = nil) {
    switch (failure as? StrandlineError)?.code {
    case .needsSignIn?, .accountMismatch?, .fromTheFuture?:
      store.settledWaiters.end { _ in failure as? StrandlineError }
    // Waiting goes on when the store is resumed, and ends with the store.
    case .suspended?, .closed?, .outcomeUnknown?, .storeReplaced?: break
    case nil where failure != nil: break
    default:
      // Another cycle may have left it for the next one.
      guard options.direction != .pullOnly, options.zone == nil, store.keepsBack else { return }
      var known = KnownObstacles(store, onlyLasting: true)
      store.settledWaiters.end { open in
        do { return try store.obstacle(to: open, isRunOver: true, &known) } catch StrandlineError.Code.suspended {
          return nil
        }
      }
    }
  }
}
