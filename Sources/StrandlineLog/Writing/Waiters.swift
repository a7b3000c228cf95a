// The two that can wait for an LSN: a task, which gives its thread away meanwhile, and a plain thread.

import Dispatch
import StrandlineSystem

/// A task.
struct WaitingTask: CommitWaiter {
  let continuation: CheckedContinuation<CommitOutcome, Never>
  func tell(_ outcome: CommitOutcome) { continuation.resume(returning: outcome) }
}

/// A thread.
final class WaitingThread: CommitWaiter {
  private let outcome = OrderedMutex<CommitOutcome?>(nil)
  private let semaphore = DispatchSemaphore(value: 0)

  func tell(_ outcome: CommitOutcome) {
    self.outcome.withLock { $0 = outcome }
    semaphore.signal()
  }

  /// Blocks until told.
  func wait() -> CommitOutcome {
    while true {
      if let told = outcome.withLock({ $0 }) { return told }
      semaphore.wait()
    }
  }
}
