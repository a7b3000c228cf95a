// Runs the tasks of a test one job at a time, in an order that a seed says and only when it is told, so that a test goes through
// the orders in which tasks may come.

/// For tests: an executor whose jobs wait until they are told to run.
package final class SteppingExecutor: TaskExecutor {
  private let ready = OrderedMutex<[UnownedJob]>([])
  private let random: SeededRandom

  package init(_ random: SeededRandom) { self.random = random }

  package func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    ready.withLock { $0.append(job) }
  }

  /// Runs one of the jobs that are ready, on the caller's thread.
  package func step() {
    let job: UnownedJob? = ready.withLock { jobs in
      jobs.isEmpty ? nil : jobs.remove(at: Int(random.below(UInt64(jobs.count))))
    }
    if let job { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
  }
}
