// Time that moves when told.
//
// A test that waits for real seconds is slow and flaky at once; here a sleep ends when the test says so,
// or, on a clock that advances by itself, at once with the time moved on.

// Public, because a public type's conformance is asked for it; its protocols are the package's all the same.
public import StrandlineSystem
internal import Synchronization

/// A wall clock and a monotonic one in the test's hand. They stand still but for what the test and sleepers do.
public final class SimulatedClock: SystemClock {
  private struct Sleeper {
    var id: UInt64
    var wakesAt: UInt64
    var continuation: CheckedContinuation<Void, any Error>
  }
  private struct State {
    var now: UInt64 = 1_000_000_000
    var wallOffset: Int64
    var autoAdvance: Bool
    var sleepers: [Sleeper] = []
    var nextID: UInt64 = 0
    /// Sleeps that were cancelled before they had begun to wait.
    var cancelled: Set<UInt64> = []
    var sleeps: [Int64] = []
  }
  private let state: Mutex<State>

  /// - Parameters:
  ///   - wallMilliseconds: what the wall clock shows first, in milliseconds since 1970 (by default a day in 2026).
  ///   - autoAdvance: a sleep, of a sync that waits to try again for instance, moves both clocks on and returns at once.
  ///     Otherwise it lasts until the test has advanced the clock: what a store that syncs by itself needs, because
  ///     without waits it would never rest.
  public init(wallMilliseconds: Int64 = 1_780_000_000_000, autoAdvance: Bool = true) {
    state = Mutex(State(wallOffset: wallMilliseconds - 1_000, autoAdvance: autoAdvance))
  }

  package func wallMilliseconds() -> Int64 {
    state.withLock { Int64($0.now / 1_000_000) + $0.wallOffset }
  }

  package func monotonicNanoseconds() -> UInt64 { state.withLock { $0.now } }

  package var autoAdvance: Bool {
    get { state.withLock { $0.autoAdvance } }
    set { state.withLock { $0.autoAdvance = newValue } }
  }

  /// Moves both clocks on, and wakes whose time has come.
  public func advance(by duration: Duration) { advance(milliseconds: duration.wholeMilliseconds) }

  /// Sets the wall clock forward, or back if the duration is negative, by years if need be, as a person or a dead battery
  /// does; the monotonic clock does not notice.
  public func turnWallClock(by duration: Duration) {
    state.withLock { $0.wallOffset += duration.wholeMilliseconds }
  }

  /// Sets the wall clock, by years if need be; the monotonic clock does not notice.
  package func setWall(milliseconds: Int64) {
    state.withLock { $0.wallOffset = milliseconds - Int64($0.now / 1_000_000) }
  }

  /// How many tasks are waiting. A test advances the clock once the sleeper that it means has come.
  package var sleeperCount: Int { state.withLock { $0.sleepers.count } }

  /// Every duration that somebody asked to sleep, in milliseconds, in order.
  package var sleeps: [Int64] { state.withLock { $0.sleeps } }

  /// Moves both clocks on and wakes whose time has come, in the order of their times.
  package func advance(milliseconds: Int64) { advance(nanoseconds: UInt64(max(0, milliseconds)) * 1_000_000) }

  package func advance(nanoseconds: UInt64) {
    let woken = state.withLock { state in
      state.now &+= nanoseconds
      let now = state.now
      let woken = state.sleepers.filter { $0.wakesAt <= now }
        .sorted { ($0.wakesAt, $0.id) < ($1.wakesAt, $1.id) }
      state.sleepers.removeAll { $0.wakesAt <= now }
      return woken
    }
    for sleeper in woken { sleeper.continuation.resume() }
  }

  package func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    let plan = state.withLock { state -> (id: UInt64, wakesAt: UInt64)? in
      state.sleeps.append(milliseconds)
      let duration = UInt64(max(0, milliseconds)) * 1_000_000
      if duration == 0 { return nil }
      if state.autoAdvance {
        state.now += duration
        return nil
      }
      state.nextID += 1
      return (state.nextID, state.now + duration)
    }
    guard let plan else {
      await Task.yield()
      return
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let outcome = state.withLock { state -> Result<Void, any Error>? in
          if state.cancelled.remove(plan.id) != nil { return .failure(CancellationError()) }
          if state.now >= plan.wakesAt { return .success(()) }
          state.sleepers.append(Sleeper(id: plan.id, wakesAt: plan.wakesAt, continuation: continuation))
          return nil
        }
        if let outcome { continuation.resume(with: outcome) }
      }
    } onCancel: {
      let sleeper = state.withLock { state -> Sleeper? in
        guard let index = state.sleepers.firstIndex(where: { $0.id == plan.id }) else {
          state.cancelled.insert(plan.id)
          return nil
        }
        return state.sleepers.remove(at: index)
      }
      sleeper?.continuation.resume(throwing: CancellationError())
    }
  }

  /// A thread cannot be parked without a real wait, so the time moves on instead.
  package func sleepBlocking(milliseconds: Int64) {
    state.withLock { $0.sleeps.append(milliseconds) }
    advance(milliseconds: milliseconds)
  }
}

extension Duration {
  /// Without the part below a millisecond.
  fileprivate var wholeMilliseconds: Int64 {
    components.seconds * 1_000 + components.attoseconds / 1_000_000_000_000_000
  }
}
