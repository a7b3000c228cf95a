// What an app waits for at its first launch: that everything is here. The log knows it, so that a relaunch goes on where the fetch was,
// and a later launch waits for nothing.

import StrandlineSystem

extension SyncEngine {
  /// Waits until this store has fetched each zone to its end once: for a new device, before it shows that there is nothing.
  ///
  /// A call after that returns at once and asks the server for nothing, also after a relaunch. What was fetched before a crash or a
  /// relaunch is not fetched again. `liveStatus()` has the progress meanwhile (`SyncStatus.download`).
  ///
  /// It begins a cycle at once. An automatic engine is waited for while it tries again by itself: while the server cannot be reached,
  /// is busy, or refuses a part. An engine that is not automatic makes this one cycle.
  ///
  /// - Throws: `StrandlineError`, as `sync()`, for what no later cycle of the engine ends by itself: `.needsSignIn`, `.accountMismatch`,
  ///   `.fromTheFuture`; `.zoneLost` if a zone was lost before it was here; `.suspended`; `.closed`; any error of an engine that is not
  ///   automatic. `CancellationError` at once if the task is cancelled.
  /// - Complexity: as `sync()`.
  public func fetched() async throws {
    try await CallSite.unnamed.run("waiting until the store at '\(store.path)' is fetched") {
      try store.requireOpen()
      if try hasFetched() { return }
      do { _ = try await cycle(CycleOptions(), isShared: true) } catch let error as StrandlineError {
        if try hasFetched() { return }
        guard endsByItself(error) else { throw error }
      }
      var signals = watch.signals().makeAsyncIterator()
      while try !hasFetched() {
        try store.requireWritable()
        // The watch knows it before the store does.
        if watch.isSuspended { throw StrandlineError.suspended }
        if let error = lastError, !endsByItself(error) { throw error }
        guard isAutomatic else {
          throw StrandlineError(.throttled, "not everything is fetched yet; call again, or let the engine be automatic")
        }
        guard await signals.next() != nil, !watch.isStopped else {
          try Task.checkCancellation()
          throw StrandlineError(.closed, "the store at '\(store.path)' is closed")
        }
      }
    }
  }

  private func endsByItself(_ error: StrandlineError) -> Bool { isAutomatic && (error.code.isTransient || failsInPart) }

  /// Whether each zone that the server has named was fetched to its end once.
  ///
  /// - Throws: `.zoneLost` for one that was lost before.
  private func hasFetched() throws(StrandlineError) -> Bool {
    let (scope, synced) = (database.address.scope, watch.synced)
    return try store.projections.withLock { (state) throws(StrandlineError) in
      let sync = state.sync
      guard sync.databaseTokens[scope] != nil else { return false }
      for (zone, known) in sync.zones where zone.scope == scope && synced.takes(zone, sync) {
        if known.isLost, !known.isErased, known.token == nil || known.isFirstFetch {
          // Lost between two pages, too: what is here is a part.
          throw StrandlineError.loss(of: zone, known)
        }
        guard !known.isLost, !known.hasGhosts else { continue }
        if sync.listed[zone] != nil || (known.isFirstFetch && (known.isFullFetch || known.isDirty)) { return false }
      }
      return true
    }
  }
}
