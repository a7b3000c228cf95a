// A clock that stands still until a test or a sleep advances it.
//
// A test that waits for real seconds is slow, and fails on a busy machine. Here a sleep ends when the test advances the
// clock; if `autoAdvance` is set, it advances the clock itself and returns at once.

// Imported publicly because a public type conforms to one of its protocols, which are visible in the package only.
public import StrandlineSystem
internal import Synchronization

/// A wall clock and a monotonic clock for tests. Only the test's calls and, with `autoAdvance`, sleeps advance them.
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
    /// The IDs of sleeps whose task was cancelled before they began to wait.
    var cancelled: Set<UInt64> = []
    var sleeps: [Int64] = []
  }
  private let state: Mutex<State>

  /// - Parameters:
  ///   - wallMilliseconds: The first time of the wall clock in milliseconds since 1970 (by default a day in 2026).
  ///   - autoAdvance: If true, a sleep (for instance of a sync that waits before it tries again) advances both clocks
  ///     and returns at once. If false, it lasts until the test has advanced the clock. A store that syncs by itself
  ///     needs false, because with sleeps that return at once it would sync without a pause.
  public init(wallMilliseconds: Int64 = 1_780_000_000_000, autoAdvance: Bool = true) {
    state = Mutex(State(wallOffset: wallMilliseconds - 1_000, autoAdvance: autoAdvance))
  }

  package func wallMilliseconds() -> Int64 {
    state.withLock { Int64($0.now / 1_000_000) + $0.wallOffset }
  }

  package var isSimulated: Bool { true }
  package func monotonicNanoseconds() -> UInt64 { state.withLock { $0.now } }

  package var autoAdvance: Bool {
    get { state.withLock { $0.autoAdvance } }
    set { state.withLock { $0.autoAdvance = newValue } }
  }

  /// Advances both clocks and ends the sleeps that are then over.
  public func advance(by duration: Duration) { advance(milliseconds: duration.wholeMilliseconds) }

  /// Sets the wall clock forward, or back if the duration is negative, as a user or an empty battery does. The monotonic
  /// clock does not change.
  public func turnWallClock(by duration: Duration) {
    state.withLock { $0.wallOffset += duration.wholeMilliseconds }
  }

  /// Sets the wall clock. The monotonic clock does not change.
  package func setWall(milliseconds: Int64) {
    state.withLock { $0.wallOffset = milliseconds - Int64($0.now / 1_000_000) }
  }

  /// How many tasks sleep. A test waits for the task that it wants to wake before it advances the clock.
  public var sleeperCount: Int { state.withLock { $0.sleepers.count } }

  /// The durations of all sleeps so far, in milliseconds, in the order of the calls.
  package var sleeps: [Int64] { state.withLock { $0.sleeps } }

  /// Advances both clocks and ends the sleeps that are then over, in the order of their ends.
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

  /// Advances the clocks and returns at once, also without `autoAdvance`, because blocking a thread would take real
  /// time.
  package func sleepBlocking(milliseconds: Int64) {
    state.withLock { $0.sleeps.append(milliseconds) }
    advance(milliseconds: milliseconds)
  }
}
