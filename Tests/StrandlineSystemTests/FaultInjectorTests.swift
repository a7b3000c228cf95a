// The fault injector and the simulated clock: faults hit the planned calls, and time advances when a test says so.

import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct FaultInjectorTests {
  private let base = SimulatedDisk()

  @Test func `the named call fails once and no other`() throws {
    let disk = FaultInjector(base)
    let file = try disk.open("/a", .create)
    disk.plan(DiskFault([.write], pathSuffix: "/a", ordinal: 2, error: .full("", "")))
    try file.write([1], at: 0)
    #expect(throws: SystemError.full("pwrite", "/a")) { try file.write([2], at: 0) }
    try file.write([3], at: 0)
    #expect(base.peek("/a") == [3])
    #expect(disk.count(.write) == 3)
    #expect(disk.struckCount == 1)
  }

  @Test func `a sticky fault stays until it is cleared`() throws {
    let disk = FaultInjector(base)
    let file = try disk.open("/a", .create)
    disk.plan(DiskFault([.preallocate, .write], isSticky: true, error: .full("", "")))
    #expect(throws: SystemError.self) { try file.write([2], at: 0) }
    #expect(throws: SystemError.self) { try file.preallocate(at: 0, length: 5) }
    disk.clear()
    try file.write([3], at: 0)
  }

  @Test func `a write stops after some bytes, a rename after all of it`() throws {
    let disk = FaultInjector(base)
    let file = try disk.open("/a", .create)
    disk.plan(DiskFault([.write], moment: .afterBytes(2), error: .device("", "")))
    disk.plan(DiskFault([.rename], pathSuffix: "/b", moment: .after, error: .device("", "")))
    #expect(throws: SystemError.device("pwrite", "/a")) { try file.write([1, 2, 3], at: 0) }
    #expect(throws: SystemError.device("rename", "/b")) { try disk.rename("/a", to: "/b") }
    #expect(base.peek("/b") == [1, 2])
  }

  @Test func `an interrupted sync drops pages where the disk does that`() throws {
    base.failedSyncLosesPages = true
    let disk = FaultInjector(base)
    let file = try disk.open("/a", .create)
    try disk.syncDirectory("/")
    try file.write([1], at: 0)
    disk.plan(DiskFault([.sync], error: .interrupted("", "")))
    #expect(throws: SystemError.interrupted("fdatasync", "/a")) { try file.sync(.durable) }
    try file.sync(.durable)
    #expect(base.imageAfterCrash(.all).peek("/a") == [0])
    #expect(disk.count(.sync) == 2)
    #expect(disk.count(.syncDirectory) == 1)
  }

  @Test func `a sleep ends when the clock has reached its end`() async throws {
    let clock = SimulatedClock(autoAdvance: false)
    let wall = clock.wallMilliseconds()
    let sleeper = Task { try await clock.sleep(milliseconds: 1_000) }
    while clock.sleeperCount == 0 { await Task.yield() }
    clock.advance(milliseconds: 999)
    #expect(clock.sleeperCount == 1)
    clock.advance(milliseconds: 1)
    try await sleeper.value
    #expect(clock.wallMilliseconds() == wall + 1_000)
    let cancelled = Task { try await clock.sleep(milliseconds: 1_000) }
    while clock.sleeperCount == 0 { await Task.yield() }
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    #expect(clock.sleeperCount == 0)
  }

  @Test func `a clock may advance by itself, and its wall clock jump`() async throws {
    let clock = SimulatedClock(autoAdvance: true)
    let before = clock.monotonicNanoseconds()
    try await clock.sleep(milliseconds: 86_400_000)
    clock.setWall(milliseconds: 0)
    #expect(clock.monotonicNanoseconds() == before + 86_400_000_000_000)
    #expect(clock.wallMilliseconds() == 0)
    #expect(clock.sleeps == [86_400_000])
  }
}
