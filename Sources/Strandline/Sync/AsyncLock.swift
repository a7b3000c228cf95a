// Two primitives that tasks wait on: a lock that is held across suspensions, and a signal with a time-out.

package import StrandlineSystem
import Synchronization

/// A first-come lock for tasks. Unlike a mutex it may be held across `await`.
package final class AsyncLock: Sendable {
  private struct State: Sendable {
    var isHeld = false
    var waiters: [CheckedContinuation<Void, Never>] = []
  }
  private let state = Mutex(State())

  package init() {}

  package func acquire() async {
    await withCheckedContinuation { continuation in
      let isMine = state.withLock { state in
        if state.isHeld {
          state.waiters.append(continuation)
          return false
        }
        state.isHeld = true
        return true
      }
      if isMine { continuation.resume() }
    }
  }

  package func release() {
    let next = state.withLock { state in
      if state.waiters.isEmpty {
        state.isHeld = false
        return nil as CheckedContinuation<Void, Never>?
      }
      return state.waiters.removeFirst()
    }
    next?.resume()
  }
}

/// A signal that is kept until a task waits for it. One task waits at a time.
package final class AsyncSignal: Sendable {
  private struct State: Sendable {
    var isSignalled = false
    var waiter: CheckedContinuation<Void, Never>?
  }
  private let state = Mutex(State())

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
