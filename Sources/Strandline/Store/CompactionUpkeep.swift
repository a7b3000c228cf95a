// The compaction that a store runs by itself: when it is considered, how much of the time it may use the disk, and that it
// ends when the store is closed or suspended.

import Dispatch
import StrandlineSystem
import Synchronization

/// The upkeep of a store that is open for writing.
package final class CompactionUpkeep: Sendable {
  let policy: CompactionPolicy
  private let clock: any SystemClock
  private let queue = DispatchQueue(label: "strandline.compaction", qos: .utility)
  private let state = Mutex(State())

  private struct State: Sendable {
    var isQueued = false
    /// It is not considered again before this event.
    var notBefore: LSN = .zero
    var failure: StrandlineError?
  }

  init(_ policy: CompactionPolicy, _ clock: any SystemClock) {
    self.policy = policy
    self.clock = clock
  }

  /// Why the last compaction in the background failed; nil if it did not.
  var failure: StrandlineError? { state.withLock { $0.failure } }

  /// Runs `work` in the background, behind what runs there.
  func enqueue(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

  /// Runs `work` in the background, unless it runs already, or was considered a moment ago.
  ///
  /// - Parameters:
  ///   - durable: the newest event; `work` is not run again before `eventsMin` more.
  ///   - work: throws what the status is to say; `CompactionInterrupted`, `.suspended` or `.closed` if nothing is wrong.
  func consider(at durable: LSN, _ work: @escaping @Sendable () throws -> Void) {
    let begins = state.withLock { state in
      guard !state.isQueued, durable >= state.notBefore else { return false }
      state.isQueued = true
      state.notBefore = durable.advanced(by: Int(policy.eventsMin))
      return true
    }
    guard begins else { return }
    queue.async { [self] in
      var failure: StrandlineError?
      do {
        try work()
      } catch is CompactionInterrupted {
        // Later writes, or the next open, consider it again.
      } catch let error as StrandlineError where error.code == .suspended || error.code == .closed {
        // So does the store when it is resumed.
      } catch {
        let error = StrandlineError.translating(error, "compacting the store in the background")
        failure = error as? StrandlineError ?? StrandlineError(.io, "\(error)", underlying: error)
      }
      state.withLock { state in
        state.isQueued = false
        state.failure = failure
      }
    }
  }

  /// What the steps of one compaction in the background ask: `check` throws when it is to end.
  func pace(_ check: @escaping @Sendable () throws -> Void) -> () throws -> Void {
    let share = min(1, max(0.01, policy.diskShare))
    let begun = Mutex(clock.monotonicNanoseconds())
    return { [clock] in
      try check()
      let busy = clock.monotonicNanoseconds() &- begun.withLock { $0 }
      // 20 ms of work, and then a pause that is as long as its share wants.
      guard share < 1, busy >= 20_000_000 else { return }
      var rest = Int64(Double(busy) / 1_000_000 * (1 / share - 1))
      while rest > 0 {
        // A close waits for no more than this.
        clock.sleepBlocking(milliseconds: min(rest, 50))
        rest -= 50
        try check()
      }
      begun.withLock { $0 = clock.monotonicNanoseconds() }
    }
  }

  /// Waits until what runs has ended.
  package func wait() { queue.sync {} }
}

/// A read waits: a compaction in the background ends, and nothing has changed.
struct CompactionInterrupted: Error {}
