// One request at a time for one credential: the web session's token changes with each answer, so a second
// request in flight would carry a token that is no longer valid.
//
// A lock that suspends instead of blocking; tasks get it in the order in which they asked. A task that is cancelled
// while it waits leaves the queue.

internal import StrandlineSystem

/// Runs asynchronous bodies one at a time.
package final class RequestQueue: Sendable {
  private struct State {
    var isHeld = false
    var nextTicket: UInt64 = 0
    var waiting: [(ticket: UInt64, continuation: CheckedContinuation<Void, any Error>)] = []
    /// Tickets whose cancellation arrived before their wait began.
    var cancelled: Set<UInt64> = []
  }
  private let state = OrderedMutex(State())

  package init() {}

  /// Runs `body` when no other body of this queue runs.
  package func run<Result: Sendable>(_ body: @Sendable () async throws -> Result) async throws -> Result {
    try await enter()
    defer { leave() }
    return try await body()
  }

  private func enter() async throws {
    try Task.checkCancellation()
    let ticket: UInt64? = state.withLock { state in
      guard state.isHeld else {
        state.isHeld = true
        return nil
      }
      state.nextTicket += 1
      return state.nextTicket
    }
    guard let ticket else { return }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let outcome: Bool? = state.withLock { state in
          if state.cancelled.remove(ticket) != nil { return false }
          guard state.isHeld else {
            // The holder left after this task had drawn its ticket.
            state.isHeld = true
            return true
          }
          state.waiting.append((ticket, continuation))
          return nil
        }
        switch outcome {
        case true: continuation.resume()
        case false: continuation.resume(throwing: CancellationError())
        case nil: break
        }
      }
    } onCancel: {
      let waiting: CheckedContinuation<Void, any Error>? = state.withLock { state in
        guard let index = state.waiting.firstIndex(where: { $0.ticket == ticket }) else {
          state.cancelled.insert(ticket)
          return nil
        }
        return state.waiting.remove(at: index).continuation
      }
      waiting?.resume(throwing: CancellationError())
    }
    // A cancellation that came after this task was resumed left its ticket in `cancelled`.
    state.withLock { _ = $0.cancelled.remove(ticket) }
  }

  private func leave() {
    let next: CheckedContinuation<Void, any Error>? = state.withLock { state in
      guard !state.waiting.isEmpty else {
        state.isHeld = false
        return nil
      }
      return state.waiting.removeFirst().continuation
    }
    next?.resume()
  }
}
