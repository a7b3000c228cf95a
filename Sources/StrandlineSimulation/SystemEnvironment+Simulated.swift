// The environment for tests of the log and of the layers above it.

package import StrandlineSystem

extension SystemEnvironment {
  /// The given file system, a clock whose sleeps advance it, and seeded random numbers.
  package static func simulated(_ fileSystem: any FileSystem, seed: UInt64) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: fileSystem, clock: SimulatedClock(autoAdvance: true), random: SeededRandom(seed: seed))
  }
}
