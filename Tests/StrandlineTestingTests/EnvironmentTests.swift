// The parts of a simulated device, tested from within the package: its random numbers and its clock.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30)))
struct EnvironmentTests {
  private func draws(_ environment: StoreEnvironment) -> [UInt64] {
    (0..<4).map { _ in environment.system.random.next() }
  }

  @Test func `a device draws other numbers at each start, and the same in each run`() {
    func life() -> [[UInt64]] {
      let disk = SimulatedDisk()
      let first = draws(.simulated(disk: disk, seed: 1))
      let second = draws(.simulated(disk: disk, seed: 1))
      let found = disk.afterPowerCut(seed: 2)
      return [
        first, second, draws(.simulated(disk: found, seed: 1)), draws(.simulated(disk: SimulatedDisk(), seed: 2)),
      ]
    }
    // With equal random numbers, a writer could not tell another writer's frames from its own.
    #expect(Set(life()).count == 4)
    #expect(life() == life())
  }

  @Test func `a clock is moved by whole durations, and its wall by itself`() {
    let clock = SimulatedClock(wallMilliseconds: 5_000)
    let start = clock.monotonicNanoseconds()
    clock.advance(by: .milliseconds(1_500))
    #expect(clock.wallMilliseconds() == 6_500)
    clock.turnWallClock(by: .seconds(-7))
    #expect(clock.wallMilliseconds() == -500)
    #expect(clock.monotonicNanoseconds() - start == 1_500_000_000)
  }
}
