// Goal: an edit wins because it was made later, also where the clock of a device was wrong by years and was put right.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private let hour: Int64 = 3_600_000
private let year: Int64 = 365 * 86_400_000

/// An hour goes by for the server and the devices.
private func passHour(_ fleet: Fleet, _ devices: Device...) {
  for clock in [fleet.serverClock] + devices.map(\.clock) { clock.advance(milliseconds: hour) }
}

extension Device {
  /// A new process.
  fileprivate func relaunch() async throws {
    try await close()
    try await open()
  }
}

@Suite(.timeLimit(.minutes(10))) struct HybridClockTests {
  // After a relaunch a clock that was slow by less than a day counts as slow until the server has answered.
  @Test(arguments: [
    (year, false), (-year, false), (hour, false), (-hour, false), (year, true), (-year, true), (hour, true),
  ])
  func `a clock that was put right is right at once`(_ skew: Int64, _ relaunches: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", clockSkewMilliseconds: skew), fleet.device("b"))
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    a.clock.setWall(milliseconds: b.clock.wallMilliseconds())
    if relaunches { try await a.relaunch() }
    passHour(fleet, a, b)
    try await a.put("n", ["title": "earlier"])
    passHour(fleet, a, b)
    try await b.put("n", ["title": "later"])
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "later")
    try await expectAgreement(a, b)
    // And the other way round.
    passHour(fleet, a, b)
    try await b.put("n", ["title": "earlier again"])
    passHour(fleet, a, b)
    try await a.put("n", ["title": "later again"])
    try await exchange(a, b, a)
    #expect(try await b.value("n") == "later again")
    try await expectAgreement(a, b)
  }

  @Test(arguments: [year, -year], [false, true])
  func `a clock that stays wrong counts by what the server said`(_ skew: Int64, _ relaunches: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", clockSkewMilliseconds: skew), fleet.device("b"))
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    if relaunches { try await a.relaunch() }
    passHour(fleet, a, b)
    try await a.put("n", ["title": "earlier"])
    passHour(fleet, a, b)
    try await b.put("n", ["title": "later"])
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "later")
    try await expectAgreement(a, b)
  }

  @Test func `an edit that was saved by a clock of the future does not win for long`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() + year)
    try await a.put("n", ["title": "from the future"])
    a.clock.setWall(milliseconds: b.clock.wallMilliseconds())
    passHour(fleet, a, b)
    try await b.put("n", ["title": "later"])
    try await exchange(b, a)
    passHour(fleet, a, b)
    try await a.put("other", ["title": "x"])
    try await b.put("n", ["title": "later still"])
    try await exchange(a, b, a)
    #expect(try await a.value("n") == "later still")
    try await expectAgreement(a, b)
  }

  @Test func `a server that names a time beyond every clock does no lasting harm`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "t"])
    try await b.put("m", ["title": "t"])
    try await exchange(b, a)
    var absurd = try await cloud.current("m")
    absurd.system.changeTag = "absurd"
    absurd.system.modified = Touch(milliseconds: .max)
    absurd.fields["strandlineStamp"] = nil
    absurd.fields["title"] = "absurd"
    cloud.showAgain(.saved(absurd))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a)
    #expect(try await a.value("m") == "absurd")
    passHour(fleet, a, b)
    try await a.put("n", ["title": "earlier"])
    let times = try await a.open().core.withLock { core in [core.tick(), core.tick()] }
    #expect(times[0] < times[1])
    #expect(times[1].milliseconds < a.clock.wallMilliseconds() + hour)
    passHour(fleet, a, b)
    try await b.put("n", ["title": "later"])
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "later")
    #expect(try await b.value("n") == "later")
  }

  @Test func `the server's time follows from a sample and this device's clocks`() {
    let sample = ServerTimeSample(milliseconds: 10 * year, wall: 11 * year, nanoseconds: 0, isNow: true)
    let ticked = UInt64(hour) * 1_000_000
    #expect(sample.now(wall: 11 * year + hour, nanoseconds: ticked) == 10 * year + hour)
    #expect(sample.now(wall: 10 * year + hour, nanoseconds: ticked) == 10 * year + hour, "set back")
    #expect(sample.now(wall: 11 * year + 9 * hour, nanoseconds: ticked) == 10 * year + 9 * hour, "asleep")
    let old = ServerTimeSample(milliseconds: 10 * year, wall: 11 * year, nanoseconds: nil, isNow: true)
    #expect(old.now(wall: 10 * year + hour, nanoseconds: 5) == 10 * year + hour, "set back, then launched")
    #expect(old.now(wall: 9 * year, nanoseconds: 5) == 10 * year, "set back too far")
    let behind = ServerTimeSample(milliseconds: 10 * year, wall: 9 * year, nanoseconds: 0, isNow: true)
    #expect(behind.now(wall: 10 * year + hour, nanoseconds: ticked) == 10 * year + hour, "put right")
    #expect(behind.now(wall: 9 * year + 9 * hour, nanoseconds: ticked) == 10 * year + 9 * hour, "asleep")
  }
}
