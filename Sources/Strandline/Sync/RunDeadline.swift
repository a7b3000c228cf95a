// When a run has to be over, because the system gives an app in the background so many seconds and no more.

import StrandlineSystem
import Synchronization

/// The deadlines of the callers that wait for a run of one engine, by the monotonic clock.
final class RunDeadline: Sendable {
  private struct State {
    var next: UInt64 = 0
    var moments: [UInt64: UInt64] = [:]
  }
  private let state = Mutex(State())

  /// The earliest one.
  var first: UInt64? { state.withLock { $0.moments.values.min() } }

  /// Sets one; returns its number.
  func begin(_ nanoseconds: UInt64) -> UInt64 {
    state.withLock { state in
      state.next += 1
      state.moments[state.next] = nanoseconds
      return state.next
    }
  }

  func end(_ number: UInt64) { state.withLock { $0.moments[number] = nil } }
}

extension SyncMachine {
  /// A request is expected to take a second before one was made, and as long as the longest one since.
  static let requestNanosecondsMin: UInt64 = 1_000_000_000

  /// A request that begins now might not be answered before the deadline.
  var isOutOfTime: Bool {
    guard options.mayEndEarly, let end = deadline.first else { return false }
    let departure = max(store.environment.clock.monotonicNanoseconds(), nextDeparture)
    let (moment, overflow) = departure.addingReportingOverflow(longestRequest)
    return overflow || moment > end
  }

  /// Whether the run ends here though something is left to do.
  func endsEarly() throws -> Bool {
    guard isOutOfTime else { return false }
    return try isReviewDue || RequestKind.allCases.contains { try isDue($0) }
  }

  /// Whether a wait would last beyond the deadline.
  func isBeyondDeadline(_ milliseconds: Int64) -> Bool {
    guard options.mayEndEarly, let end = deadline.first else { return false }
    return moment(in: milliseconds) > end
  }
}
