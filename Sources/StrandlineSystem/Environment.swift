// What a test must be able to replace: the file system, the clocks and the random source.
//
// Library code reads every clock and draws every random number through these protocols. The real implementations are
// in SystemClock.swift and Randomness.swift, the simulated ones in StrandlineSimulation.

/// The clocks.
package protocol SystemClock: Sendable {
  /// Milliseconds since 1970 by the wall clock, which may jump and may be wrong by years.
  func wallMilliseconds() -> Int64
  /// Nanoseconds by a clock that never goes back, and goes on while the machine sleeps. Its zero is arbitrary, so only
  /// differences have a meaning.
  func monotonicNanoseconds() -> UInt64
  /// Suspends the calling task. Throws `CancellationError` if the task is cancelled meanwhile.
  func sleep(milliseconds: Int64) async throws
  /// Blocks the calling thread, which must not belong to Swift's concurrency pool.
  func sleepBlocking(milliseconds: Int64)
  /// Whether time passes only when it is told to. An environment with such a clock runs things in turns.
  var isSimulated: Bool { get }
}

extension SystemClock {
  package var isSimulated: Bool { false }
}

/// A source of random numbers.
package protocol RandomSource: Sendable {
  /// The next 64 random bits.
  func next() -> UInt64
}

extension RandomSource {
  /// The next `count` random bytes.
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

  /// A random number in `0 ..< bound` (bound > 0).
  package func below(_ bound: UInt64) -> UInt64 {
    // Lemire's method without its rejection step: the bias is at most bound / 2^64, which no caller can observe.
    next().multipliedFullWidth(by: bound).high
  }
}

/// Whether what could run at once does.
package enum Overlap: Sendable {
  /// At once; what blocks a thread has one of its own.
  case concurrent
  /// One after the other, by whoever waits for it: so a seed always gives the same history.
  case inTurns
}

/// The file system, clocks, random source and executor that a store or log uses.
package struct SystemEnvironment: Sendable {
  package var fileSystem: any FileSystem
  package var clock: any SystemClock
  package var random: any RandomSource
  /// Where the runs of a store's sync engine take place; nil for Swift's pool.
  package var taskExecutor: (any TaskExecutor)?
  /// Who writes groups that tasks wait for, and whether a request and the work beside it overlap.
  package var overlap: Overlap

  /// - Parameter overlap: nil: in turns where time is simulated.
  package init(
    fileSystem: any FileSystem, clock: any SystemClock, random: any RandomSource,
    taskExecutor: (any TaskExecutor)? = nil, overlap: Overlap? = nil
  ) {
    self.fileSystem = fileSystem
    self.clock = clock
    self.random = random
    self.taskExecutor = taskExecutor
    self.overlap = overlap ?? (clock.isSimulated ? .inTurns : .concurrent)
  }
}

extension Duration {
  /// In milliseconds, rounded towards zero; the greatest or the least number if it does not fit.
  package var wholeMilliseconds: Int64 {
    let (seconds, attoseconds) = components
    let (product, isLarge) = seconds.multipliedReportingOverflow(by: 1_000)
    let (sum, isLarger) = product.addingReportingOverflow(attoseconds / 1_000_000_000_000_000)
    if isLarge || isLarger { return seconds < 0 ? .min : .max }
    return sum
  }
}
