// The two who can wait for an LSN: a task, which gives its thread away meanwhile, and a plain thread. And how the one
// who writes for tasks waits for them in turn.

import Dispatch
import StrandlineSystem
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

/// How many transactions are queued, to be looked at without the lock.
///
/// Tasks that were told go on and often write again at once. Who writes for them waits that moment: else the first of
/// them to come back would be synced alone, and all others had to wait for two syncs instead of one. It is no timer:
/// the wait ends when as many are queued as were told, beside those that were queued before them (a latecomer of one
/// group would else make one of the next, for ever), when no more are coming, and at the latest after less than a
/// sync. It is not begun when the last such waits were in vain.
final class Arrivals: Sendable {
  /// How long nobody may come: at first, while sleeping threads wake up, and between two.
  private static let firstNanoseconds: UInt64 = 60_000
  private static let nextNanoseconds: UInt64 = 40_000
  /// For a clock that stands still.
  private static let looksMax = 20_000
  /// After so many waits in vain there is only one for so many groups.
  private static let patienceMax = 4
  private static let groupsBetween = 32

  private let count = Atomic<Int>(0)

  /// What only the one who leads in the background touches.
  struct Patience {
    var left = Arrivals.patienceMax
    var groups = 0
  }
  private let patience = Mutex(Patience())

  /// Says how many are queued. Under the lock of the queue.
  func publish(_ count: Int) { self.count.store(count, ordering: .releasing) }

  /// Waits until `expected` are queued, or no more are coming.
  func wait(for expected: Int, _ clock: any SystemClock) {
    guard expected > 0, mayWait() else { return }
    var seen = count.load(ordering: .acquiring)
    let before = seen
    var until = clock.monotonicNanoseconds() &+ Self.firstNanoseconds
    for _ in 0..<Self.looksMax {
      if seen >= expected { break }
      Processor.pause()
      let now = count.load(ordering: .acquiring)
      let time = clock.monotonicNanoseconds()
      if now != seen {
        seen = now
        until = time &+ Self.nextNanoseconds
      } else if time >= until {
        break
      }
    }
    let isInVain = seen == before && seen < expected
    patience.withLock { $0.left = isInVain ? max(0, $0.left - 1) : Self.patienceMax }
  }

  private func mayWait() -> Bool {
    patience.withLock { patience in
      patience.groups += 1
      if patience.left > 0 { return true }
      guard patience.groups >= Self.groupsBetween else { return false }
      patience.groups = 0
      return true
    }
  }
}
