// The runs of an engine: one at a time. Callers that ask for the same one while it has not begun share its result.
//
// A caller that is cancelled leaves at once; a run without callers is given up. A run has a task of its
// own, so that a suspension or a close can end it.

import Synchronization

/// Runs that are asked for, under way or queued.
final class SyncRuns: Sendable {
  /// One run and its callers.
  private final class Run: Sendable {
    let options: CycleOptions
    /// Whether later callers may join it before it begins.
    let isShared: Bool
    init(_ options: CycleOptions, isShared: Bool) {
      self.options = options
      self.isShared = isShared
    }
  }

  private struct Caller {
    let run: Run
    let continuation: CheckedContinuation<SyncReport, any Error>
  }

  private struct State {
    var queued: [Run] = []
    var current: Run?
    var currentTask: Task<Void, Never>?
    var callers: [UInt64: Caller] = [:]
    /// Callers that were cancelled before they began to wait.
    var cancelled: Set<UInt64> = []
    var nextCaller: UInt64 = 0
    /// Why no run begins; nil: they do.
    var refusal: StrandlineError?
  }

  private let state = Mutex(State())
  private let executor: (any TaskExecutor)?
  private let body: @Sendable (CycleOptions) async throws -> SyncReport

  /// - Parameters:
  ///   - executor: where the runs' tasks run; nil for Swift's pool.
  ///   - body: makes a run.
  init(on executor: (any TaskExecutor)?, _ body: @escaping @Sendable (CycleOptions) async throws -> SyncReport) {
    self.executor = executor
    self.body = body
  }

  /// How many callers wait.
  ///
  /// For tests: they go on when all have asked.
  var callerCount: Int { state.withLock { $0.callers.count } }

  /// Makes a run, after those that were asked for before.
  ///
  /// - Parameter isShared: joins a run that was asked for in the same way and has not begun.
  func run(_ options: CycleOptions, isShared: Bool) async throws -> SyncReport {
    let number = state.withLock { state in
      state.nextCaller += 1
      return state.nextCaller
    }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let refusal: (any Error)? = state.withLock { state in
          if let refusal = state.refusal { return refusal }
          if state.cancelled.remove(number) != nil { return CancellationError() }
          let known = isShared ? state.queued.first { $0.isShared } : nil
          let run = known ?? Run(options, isShared: isShared)
          if known == nil { state.queued.append(run) }
          state.callers[number] = Caller(run: run, continuation: continuation)
          if state.current == nil { begin(&state) }
          return nil
        }
        if let refusal { continuation.resume(throwing: refusal) }
      }
    } onCancel: {
      leave(number)
    }
  }

  /// A caller does not wait any more.
  private func leave(_ number: UInt64) {
    let (caller, task) = state.withLock { state -> (Caller?, Task<Void, Never>?) in
      guard let caller = state.callers.removeValue(forKey: number) else {
        state.cancelled.insert(number)
        return (nil, nil)
      }
      if state.callers.values.contains(where: { $0.run === caller.run }) { return (caller, nil) }
      state.queued.removeAll { $0 === caller.run }
      return (caller, state.current === caller.run ? state.currentTask : nil)
    }
    task?.cancel()
    caller?.continuation.resume(throwing: CancellationError())
  }

  /// Begins the next run, if there is one.
  private func begin(_ state: inout State) {
    (state.current, state.currentTask) = (nil, nil)
    guard !state.queued.isEmpty else { return }
    let run = state.queued.removeFirst()
    state.current = run
    state.currentTask = Task(executorPreference: executor) { [body] in
      let result: Result<SyncReport, any Error>
      do { result = .success(try await body(run.options)) } catch { result = .failure(error) }
      self.ended(run, result)
    }
  }

  /// A run has ended: its callers get the result, and the next one begins.
  private func ended(_ run: Run, _ result: Result<SyncReport, any Error>) {
    let callers = state.withLock { state in
      let numbers = state.callers.filter { $0.value.run === run }.keys
      let callers = numbers.compactMap { state.callers.removeValue(forKey: $0) }
      begin(&state)
      return callers
    }
    for caller in callers { caller.continuation.resume(with: result) }
  }

  /// Ends the run under way and those that are queued, whose callers get `error`, and begins none until `resume`. When this
  /// returns, no run is under way.
  func stop(_ error: StrandlineError) async {
    let (callers, task) = state.withLock { state in
      state.refusal = error
      state.queued = []
      defer { state.callers = [:] }
      return (Array(state.callers.values), state.currentTask)
    }
    task?.cancel()
    for caller in callers { caller.continuation.resume(throwing: error) }
    await task?.value
  }

  /// Begins runs again.
  func resume() { state.withLock { $0.refusal = nil } }
}
