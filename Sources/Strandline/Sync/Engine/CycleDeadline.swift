// When a cycle has to be over: the system gives an app in the background a limited number of seconds.

import StrandlineSystem

/// The deadlines of the callers that wait for a cycle of one engine, by the monotonic clock.
final class CycleDeadline: Sendable {
  private struct State {
    var next: UInt64 = 0
    var moments: [UInt64: UInt64] = [:]
  }
  private let state = OrderedMutex(State())

  /// The earliest deadline.
  var first: UInt64? { state.withLock { $0.moments.values.min() } }

  /// Sets a deadline; returns its number.
  func begin(_ nanoseconds: UInt64) -> UInt64 {
    state.withLock { state in
      state.next += 1
      state.moments[state.next] = nanoseconds
      return state.next
    }
  }

  func end(_ number: UInt64) { state.withLock { $0.moments[number] = nil } }
}
