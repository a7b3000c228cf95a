// What an app's tests open a store on: a simulated disk, a simulated clock, and random numbers that follow from a seed.
//
// Disk and clock are in StrandlineSimulation, where the log's own tests and proofs get them without a store; they are
// exported here, so that an app imports StrandlineTesting alone, and its documentation shows them.

public import Strandline
@_exported public import StrandlineSimulation
internal import StrandlineSystem

extension StoreEnvironment {
  /// A device that exists in memory only: the same calls with the same seed do the same.
  ///
  /// A store on it reserves no space ahead, so the next write meets a full disk at once. Make one for each time that the device is started: on the disk itself at first, on what `afterPowerCut` gave later.
  ///
  /// - Parameters:
  ///   - disk: where the store lies.
  ///   - clock: by default one that shows a day in 2026 and lets nobody wait.
  ///   - seed: for what a store draws at random. Another one for each device: two that draw the same would take each
  ///     other for a copy of themselves. The same one after a power cut is fine, since a disk that was used before
  ///     makes other dice of it.
  public static func simulated(
    disk: SimulatedDisk, clock: SimulatedClock = SimulatedClock(), seed: UInt64
  ) -> StoreEnvironment {
    let start = disk.nextStart()
    // A log tells its writers apart by what they drew: no two starts of a device may draw the same.
    let random = SeededRandom(seed: seed ^ (start &* 0xD1B5_4A32_D192_ED03))
    return StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: clock, random: random), isSimulated: true)
  }
}
