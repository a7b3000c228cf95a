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

@Suite(.timeLimit(.minutes(30))) struct HybridClockTests {
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
    absurd.system.modified = ServerTimestamp(milliseconds: .max)
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

  @Test func `of two mutations of a writer the one with the greater LSN is the later, though its clock was set back`() {
    let before = Seen(lsn: LSN(9), tenure: 1, time: HybridTime(milliseconds: 11 * year))
    let after = Seen(lsn: LSN(10), tenure: 1, time: HybridTime(milliseconds: 10 * year))
    var version = Stamp(seen: [7: before])
    version.joinSeen([7: after])
    #expect(version.seen == [7: after])
    #expect(version.dominates(Stamp(seen: [7: before])))
    #expect(!Stamp(seen: [7: before]).dominates(version))
  }

  @Test func `the server's time goes on from what was heard of it, whatever is done to this device's clock`() {
    let sample = ServerTimeSample(milliseconds: 10 * year, nanoseconds: 5, isNow: true)
    #expect(sample.now(nanoseconds: 5 + UInt64(hour) * 1_000_000) == 10 * year + hour)
    #expect(sample.now(nanoseconds: 4) == 10 * year)
    // What this device's clock shows at a relaunch, and the server's time then, in a log that says: 10 years, at 11 years.
    for (wall, now, isNow) in [
      (11 * year + hour, 10 * year + hour, true), (10 * year + hour, 10 * year + hour, false),
      (9 * year, 10 * year, false),
    ] {
      let old = ServerTimeSample(logged: 10 * year, at: 11 * year, wall: wall, nanoseconds: 7)
      #expect(old.now(nanoseconds: 7) == now)
      #expect(old.isNow == isNow)
    }
    // And in one that says: 10 years, at 9 years.
    for (wall, now) in [(10 * year + hour, 10 * year + hour), (9 * year + 9 * hour, 10 * year + 9 * hour)] {
      let old = ServerTimeSample(logged: 10 * year, at: 9 * year, wall: wall, nanoseconds: 7)
      #expect(old.now(nanoseconds: 7) == now)
      #expect(old.isNow)
    }
  }
}
