// The environment with which an app's tests open a store: a simulated disk, a simulated clock and seeded random numbers.
//
// The disk and the clock are declared in StrandlineSimulation, which the log's own tests and proofs use without a
// store. They are exported here, so that an app imports StrandlineTesting alone and its documentation shows them.

public import Strandline
@_exported public import StrandlineSimulation
internal import StrandlineSystem

extension StoreEnvironment {
  /// Makes the environment of a device that exists in memory only. With the same seed, the same calls have the same
  /// results.
  ///
  /// A store in it reserves no space in advance, so the next write to a full disk fails at once. Make a new environment
  /// each time that the simulated device starts: with the disk itself first, after a power cut with the disk that
  /// `afterPowerCut` returned.
  ///
  /// - Parameters:
  ///   - disk: The disk that holds the store.
  ///   - clock: The device's clock; by default it shows a day in 2026, and every sleep returns at once.
  ///   - seed: The seed of the store's random numbers. Pass another one for each device: of two stores with equal random
  ///     numbers, each would find that it is a copy of the other. The same seed may be used again after a power cut,
  ///     because the number of starts of the disk goes into the random numbers.
  public static func simulated(
    disk: SimulatedDisk, clock: SimulatedClock = SimulatedClock(), seed: UInt64
  ) -> StoreEnvironment {
    let start = disk.nextStart()
    // A log tells its writers apart by their random numbers, so each start of a device needs different ones.
    let random = SeededRandom(seed: seed ^ (start &* 0xD1B5_4A32_D192_ED03))
    return StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: clock, random: random), isSimulated: true)
  }
}
