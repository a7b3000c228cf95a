// Everything that a test must be able to turn: the disk, the clocks, the dice.
//
// Library code reads no clock and draws no random number but through these. The real ones stand in
// SystemClock.swift and Randomness.swift; the simulated ones in StrandlineSimulation.

/// The clocks.
package protocol SystemClock: Sendable {
  /// Milliseconds since 1970 by the wall clock, which may jump and may be wrong by years.
  func wallMilliseconds() -> Int64
  /// Nanoseconds by a clock that never goes back; its zero means nothing.
  func monotonicNanoseconds() -> UInt64
  /// Suspends a task. Throws `CancellationError` if the task is cancelled meanwhile.
  func sleep(milliseconds: Int64) async throws
  /// Blocks a plain thread.
  func sleepBlocking(milliseconds: Int64)
}

/// The dice.
package protocol RandomSource: Sendable {
  /// The next 64 random bits.
  func next() -> UInt64
}

extension RandomSource {
  /// Random bytes.
  package func bytes(_ count: Int) -> [UInt8] {
    var result: [UInt8] = []
    result.reserveCapacity(count)
    while result.count < count {
      var word = next()
      for _ in 0..<min(8, count - result.count) {
        result.append(UInt8(truncatingIfNeeded: word))
        word >>= 8
      }
    }
    return result
  }

  /// A number in `0 ..< bound` (bound > 0).
  package func below(_ bound: UInt64) -> UInt64 {
    // Lemire's multiplication; the bias of 2^-64 · bound is of no account here.
    next().multipliedFullWidth(by: bound).high
  }
}

/// What a store or log stands on.
package struct SystemEnvironment: Sendable {
  package var fileSystem: any FileSystem
  package var clock: any SystemClock
  package var random: any RandomSource

  package init(fileSystem: any FileSystem, clock: any SystemClock, random: any RandomSource) {
    self.fileSystem = fileSystem
    self.clock = clock
    self.random = random
  }
}
