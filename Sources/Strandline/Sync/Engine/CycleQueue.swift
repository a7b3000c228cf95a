// The queue of an engine's cycles, which run one at a time. Callers of `sync()` share a cycle that has not begun, and its result.
//
// A cancelled caller returns at once; a cycle without callers is cancelled. Each cycle has its own task, so that a suspension or a
// close can end it.

import StrandlineSystem

/// The cycle under way and those that are queued.
final class CycleQueue: Sendable {
  /// One cycle.
  private final class Cycle: Sendable {
    let options: CycleOptions
    /// Whether later callers may join it before it begins.
    let isShared: Bool
    init(_ options: CycleOptions, isShared: Bool) {
      self.options = options
      self.isShared = isShared
    }
  }

  private struct Caller {
    let cycle: Cycle
    let continuation: CheckedContinuation<SyncReport, any Error>
  }

  private struct State {
    var queued: [Cycle] = []
    var current: Cycle?
    var currentTask: Task<Void, Never>?
    var callers: [UInt64: Caller] = [:]
    /// Callers that were cancelled before they began to wait.
    var cancelled: Set<UInt64> = []
    var nextCaller: UInt64 = 0
    /// Why no cycle begins; nil if they do.
    var refusal: StrandlineError?
  }

  private let state = OrderedMutex(.cycles, State())
  private let executor: (any TaskExecutor)?
  private let body: @Sendable (CycleOptions) async throws -> SyncReport

  /// - Parameters:
  ///   - executor: where the cycles' tasks run; nil for Swift's pool.
  ///   - body: makes a cycle.
  init(on executor: (any TaskExecutor)?, _ body: @escaping @Sendable (CycleOptions) async throws -> SyncReport) {
    self.executor = executor
    self.body = body
  }

  /// How many callers wait. For tests, which continue when all have called.
  var callerCount: Int { state.withLock { $0.callers.count } }

  /// Makes a cycle, after those in the queue.
  ///
  /// - Parameter isShared: joins a shared cycle that has not begun, if there is one.
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
          let cycle = known ?? Cycle(options, isShared: isShared)
          if known == nil { state.queued.append(cycle) }
          state.callers[number] = Caller(cycle: cycle, continuation: continuation)
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
      if state.callers.values.contains(where: { $0.cycle === caller.cycle }) { return (caller, nil) }
      state.queued.removeAll { $0 === caller.cycle }
      return (caller, state.current === caller.cycle ? state.currentTask : nil)
    }
    task?.cancel()
    caller?.continuation.resume(throwing: CancellationError())
  }

  /// Begins the next cycle, if there is one.
  private func begin(_ state: inout State) {
    (state.current, state.currentTask) = (nil, nil)
    guard !state.queued.isEmpty else { return }
    let cycle = state.queued.removeFirst()
    state.current = cycle
    state.currentTask = Task(executorPreference: executor) { [body] in
      let result: Result<SyncReport, any Error>
      do { result = .success(try await body(cycle.options)) } catch { result = .failure(error) }
      self.ended(cycle, result)
    }
  }

  /// A cycle has ended: its callers get the result, and the next one begins.
  private func ended(_ cycle: Cycle, _ result: Result<SyncReport, any Error>) {
    let callers = state.withLock { state in
      let numbers = state.callers.filter { $0.value.cycle === cycle }.keys
      let callers = numbers.compactMap { state.callers.removeValue(forKey: $0) }
      begin(&state)
      return callers
    }
    for caller in callers { caller.continuation.resume(with: result) }
  }

  /// Ends the cycle under way and those in the queue, whose callers get `error`, and begins none until `resume`. When this returns,
  /// no cycle is under way.
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

  /// Begins cycles again.
  func resume() { state.withLock { $0.refusal = nil } }
}
