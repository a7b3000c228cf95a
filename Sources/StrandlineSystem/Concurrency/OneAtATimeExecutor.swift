// Runs the tasks of a simulation one at a time, in the order in which they became ready.
//
// In Swift's pool each task that becomes ready wakes a thread, which costs as much as a step of a simulation, and which of
// two tasks goes first is left to the threads.

internal import Dispatch

/// An executor whose jobs run one after the other, on a thread of the pool as long as there are any.
package final class OneAtATimeExecutor: TaskExecutor {
  private struct State {
    var ready: [UnownedJob] = []
    var isRunning = false
  }
  private let state = OrderedMutex(State())

  package init() {}

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let begins = state.withLock { state in
      state.ready.append(job)
      defer { state.isRunning = true }
      return !state.isRunning
    }
    if begins { DispatchQueue.global().async { self.run() } }
  }

  private func run() {
    var jobs: [UnownedJob] = []
    repeat {
      for job in jobs { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
      jobs.removeAll(keepingCapacity: true)
      state.withLock { state in
        swap(&state.ready, &jobs)
        state.isRunning = !jobs.isEmpty
      }
    } while !jobs.isEmpty
  }
}
