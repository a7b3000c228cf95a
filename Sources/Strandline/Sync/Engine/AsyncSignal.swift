// The engine's task sleeps on this between cycles: a signal with a time-out.

package import StrandlineSystem

/// A signal, which stays set until a task waits for it. One task waits at a time.
package final class AsyncSignal: Sendable {
  private struct State: Sendable {
    var isSignalled = false
    var waiter: CheckedContinuation<Void, Never>?
  }
  private let state = OrderedMutex(State())

  package init() {}

  package func signal() {
    let waiter = state.withLock { state in
      guard let waiter = state.waiter else {
        state.isSignalled = true
        return nil as CheckedContinuation<Void, Never>?
      }
      state.waiter = nil
      return waiter
    }
    waiter?.resume()
  }

  /// Returns at the signal, or after `milliseconds`.
  package func wait(atMost milliseconds: Int64, clock: any SystemClock) async {
    let timer = Task {
      // Cancelled: the signal came first.
      do { try await clock.sleep(milliseconds: milliseconds) } catch { return }
      signal()
    }
    await withCheckedContinuation { continuation in
      let isDone = state.withLock { state in
        if state.isSignalled {
          state.isSignalled = false
          return true
        }
        state.waiter = continuation
        return false
      }
      if isDone { continuation.resume() }
    }
    timer.cancel()
    await timer.value
  }
}
