// The real clocks.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The clocks of this machine.
package struct RealClock: SystemClock {
  package init() {}

  package func wallMilliseconds() -> Int64 {
    let now = Self.now(CLOCK_REALTIME)
    // Wraps instead of trapping if the system returns a time that does not fit.
    return Int64(now.tv_sec) &* 1_000 &+ Int64(now.tv_nsec) / 1_000_000
  }

  package func monotonicNanoseconds() -> UInt64 {
    // Linux stops CLOCK_MONOTONIC while the machine sleeps (clock_gettime(2)); Darwin does not.
    #if canImport(Darwin)
      let now = Self.now(CLOCK_MONOTONIC)
    #else
      let now = Self.now(CLOCK_BOOTTIME)
    #endif
    return UInt64(clamping: now.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: now.tv_nsec)
  }

  private static func now(_ clock: clockid_t) -> timespec {
    // clock_gettime fails only for an unknown clock, and every system has these two.
    var result = timespec()
    unsafe _ = clock_gettime(clock, &result)
    return result
  }

  package func sleep(milliseconds: Int64) async throws {
    try await Task.sleep(for: .milliseconds(max(0, milliseconds)))
  }

  package func sleepBlocking(milliseconds: Int64) {
    guard milliseconds > 0 else { return }
    var rest = timespec(
      tv_sec: Int(clamping: milliseconds / 1_000), tv_nsec: Int(milliseconds % 1_000) * 1_000_000)
    // A signal ends nanosleep early, which then stores the remaining time in `rest`.
    while true {
      let wanted = rest
      if unsafe withUnsafePointer(to: wanted, { unsafe nanosleep($0, &rest) }) == 0 || errno != EINTR { return }
    }
  }
}

extension SystemEnvironment {
  /// The real file system, clocks and random source of this machine.
  package static let real = SystemEnvironment(
    fileSystem: ProtectedFileSystem.real, clock: RealClock(), random: SystemRandom())
}
