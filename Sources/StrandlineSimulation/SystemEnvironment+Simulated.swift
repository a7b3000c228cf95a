// An environment for the tests of the log and of what stands on it.

package import StrandlineSystem

extension SystemEnvironment {
  /// A simulated disk, a clock that moves on by itself, and dice that repeat.
  package static func simulated(_ fileSystem: any FileSystem, seed: UInt64) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: fileSystem, clock: SimulatedClock(autoAdvance: true), random: SeededRandom(seed: seed))
  }
}
