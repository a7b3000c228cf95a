// The two who can wait for an LSN: a task, which gives its thread away meanwhile, and a plain thread.

import Dispatch
import Synchronization

/// A task.
struct WaitingTask: CommitWaiter {
  let continuation: CheckedContinuation<CommitOutcome, Never>
  var canLead: Bool { false }
  func tell(_ outcome: CommitOutcome) { continuation.resume(returning: outcome) }
  func lead() { preconditionFailure("a task is never asked to lead: a sync would block a thread of the pool") }
}

/// A thread.
final class WaitingThread: CommitWaiter {
  private let news = Mutex<CommitOutcome?>(nil)
  private let semaphore = DispatchSemaphore(value: 0)

  var canLead: Bool { true }

  func tell(_ outcome: CommitOutcome) {
    news.withLock { $0 = outcome }
    semaphore.signal()
  }

  func lead() { semaphore.signal() }

  /// Blocks until told; nil means: lead.
  func wait() -> CommitOutcome? {
    semaphore.wait()
    return news.withLock { $0 }
  }
}
