// The time of a simulated world: one course of time for all devices and the server, and for each of them a clock on the
// wall that may be wrong.

internal import StrandlineSimulation
internal import StrandlineSystem
internal import Synchronization

/// The course of time. It advances when a step says so, and when an engine sleeps.
final class WorldTime: Sendable {
  private let nanoseconds = Atomic<UInt64>(1_000_000_000)
  /// A day in 2026.
  static let beginMilliseconds: Int64 = 1_780_000_000_000

  var now: UInt64 { nanoseconds.load(ordering: .sequentiallyConsistent) }
  /// Milliseconds since 1970, as a clock shows them that is right.
  var milliseconds: Int64 { Self.beginMilliseconds + Int64(now / 1_000_000) }

  func advance(milliseconds: Int64) {
    nanoseconds.add(UInt64(max(0, milliseconds)) &* 1_000_000, ordering: .sequentiallyConsistent)
  }
}

/// The clock of a server that may have two nodes, one of which is late.
final class WorldServerClock: SystemClock {
  private let time: WorldTime
  private let lagMilliseconds: Int64
  private let random: SeededRandom
  private let isBehind = Atomic<Bool>(false)

  /// - Parameter lagMilliseconds: how late the second node is; 0: there is one.
  init(_ time: WorldTime, lagMilliseconds: Int64, seed: UInt64) {
    self.time = time
    self.lagMilliseconds = lagMilliseconds
    random = SeededRandom(seed: seed)
  }

  /// The next request reaches one of the nodes. Returns whether it is another one than before.
  func nextRequest() -> Bool {
    // The server never gives two records one creation time, by which a client tells a record from one that was deleted and
    // created again.
    time.advance(milliseconds: lagMilliseconds > 0 ? 2 : 1)
    guard lagMilliseconds > 0 else { return false }
    let isNext = random.below(2) == 0
    return isBehind.exchange(isNext, ordering: .sequentiallyConsistent) != isNext
  }

  /// The nodes' times are even and odd, so that the two never give the same.
  func wallMilliseconds() -> Int64 {
    guard lagMilliseconds > 0 else { return time.milliseconds }
    return isBehind.load(ordering: .sequentiallyConsistent)
      ? (time.milliseconds - lagMilliseconds) | 1 : time.milliseconds & ~1
  }
  func monotonicNanoseconds() -> UInt64 { time.now }
  var isSimulated: Bool { true }
  func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    time.advance(milliseconds: milliseconds)
  }
  func sleepBlocking(milliseconds: Int64) { time.advance(milliseconds: milliseconds) }
}

/// A clock in the world. A sleep passes the time of the whole world and returns at once.
final class WorldClock: SystemClock {
  private let time: WorldTime
  private let offset: Atomic<Int64>
  /// It was turned, and the device has not heard the server's time since.
  private let isTurned = Atomic<Bool>(false)
  private let turns = Atomic<Int>(0)
  /// The process that could tell that it was turned has ended.
  private let isDoubtful = Atomic<Bool>(false)

  init(_ time: WorldTime, offMilliseconds: Int64 = 0) {
    self.time = time
    offset = Atomic(offMilliseconds)
  }

  /// How far the wall clock is ahead of the true time.
  var offMilliseconds: Int64 {
    get { offset.load(ordering: .sequentiallyConsistent) }
    set { offset.store(newValue, ordering: .sequentiallyConsistent) }
  }

  /// Turns the clock.
  func turn(toOffMilliseconds milliseconds: Int64) {
    offMilliseconds = milliseconds
    turns.add(1, ordering: .sequentiallyConsistent)
    isTurned.store(true, ordering: .sequentiallyConsistent)
  }

  /// How often it was turned.
  var turnCount: Int { turns.load(ordering: .sequentiallyConsistent) }

  /// Whether the device has not heard the server's time since the clock was turned.
  var isUnheard: Bool { isTurned.load(ordering: .sequentiallyConsistent) }

  /// The device has a disk of before the clock was turned: what it has heard of the server's time since is not on it.
  func forgetsTurn() { isTurned.store(true, ordering: .sequentiallyConsistent) }

  /// A process begins: of a clock that was turned before, it knows only how far it was off when the server was asked last.
  func beginsAnew() { if isTurned.load(ordering: .sequentiallyConsistent) { setDoubtful(true) } }

  /// The device has heard the server's time.
  func heardServer() {
    isTurned.store(false, ordering: .sequentiallyConsistent)
    setDoubtful(false)
  }

  private func setDoubtful(_ value: Bool) { isDoubtful.store(value, ordering: .sequentiallyConsistent) }

  /// How far the time that the device takes for the true one may be off: the greatest number if nothing can be said.
  var errorMilliseconds: Int64 { isDoubtful.load(ordering: .sequentiallyConsistent) ? .max : abs(offMilliseconds) }

  func wallMilliseconds() -> Int64 { time.milliseconds + offMilliseconds }
  func monotonicNanoseconds() -> UInt64 { time.now }
  var isSimulated: Bool { true }
  func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    time.advance(milliseconds: milliseconds)
  }
  func sleepBlocking(milliseconds: Int64) { time.advance(milliseconds: milliseconds) }
}
