// The engine's task sleeps on this between cycles: a signal with a time-out.

package import StrandlineSystem

/// A signal, which stays set until a task waits for it. One task waits at a time.
package final class AsyncSignal: Sendable {
  private struct State: Sendable {
    var isSignalled = false
    /// The time of the present wait is over, and its task does not wait yet, or any more.
    var isTimedOut = false
    var waiter: CheckedContinuation<Void, Never>?
  }
  private let state = OrderedMutex(State())

  package init() {}

  package func signal() { wake { $0.isSignalled = true } }

  /// - Parameter note: is done if no task waits.
  private func wake(orElse note: (inout State) -> Void) {
    let waiter = state.withLock { state in
      defer { state.waiter = nil }
      if state.waiter == nil { note(&state) }
      return state.waiter
    }
    waiter?.resume()
  }

  /// Returns at the signal, or after `milliseconds`.
  package func wait(atMost milliseconds: Int64, clock: any SystemClock) async {
    let timer = Task {
      // Cancelled: the signal came first.
      do { try await clock.sleep(milliseconds: milliseconds) } catch { return }
      wake { $0.isTimedOut = true }
    }
    await withCheckedContinuation { continuation in
      let isDone = state.withLock { state in
        if state.isSignalled || state.isTimedOut { return true }
        state.waiter = continuation
        return false
      }
      if isDone { continuation.resume() }
    }
    timer.cancel()
    await timer.value
    // A signal that came with the end of the time is not met again by the next wait; nor is that end.
    state.withLock { ($0.isSignalled, $0.isTimedOut) = (false, false) }
  }
}
