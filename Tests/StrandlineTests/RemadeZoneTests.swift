// Goal: a zone of which nothing is left waits for a person, whatever its size, and one that was only named is forgotten.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A zone of which nothing is left` {
  /// The zone is deleted and made again before the second device asks again, and has another record.
  private func remade(_ count: Int) async throws -> (Fleet, Device, RefusingCloud) {
    let (fleet, _, b, cloud) = try await devicesWithNotes(count)
    try await b.put("n0", ["title": "edited"])
    try await b.put("mine", ["title": "new"])
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    let other = fleet.device("other")
    try await other.put("other", ["title": "other"])
    try await other.exchange()
    return (fleet, b, cloud)
  }

  @Test(arguments: [1, 99, 101, 250], ResyncSource.allCases)
  func `132: is lost, whatever its size, and a person decides`(_ count: Int, _ source: ResyncSource) async throws {
    let (fleet, b, cloud) = try await remade(count)
    let error = try await b.run()
    #expect(error?.code == .zoneLost)
    #expect(error?.message.contains("emptied, or deleted and created again") == true, "\(error?.message ?? "-")")
    #expect(try await b.mainZone().lostReason == .deleted)
    #expect(try await b.livingNames() == noteNames(count).union(["mine", "other"]))
    #expect(try await b.value("n0") == "edited")
    #expect(try await b.open().status().unsettled == 2)
    #expect(cloud.sent.isEmpty)
    let obstacles = try await b.open().pendingChanges().changes.map(\.obstacle)
    #expect(obstacles.allSatisfy { if case .zoneLost? = $0 { true } else { false } } && obstacles.count == 2)
    // Asked again, it is the same.
    try await b.open().engine.resumeZone(.main)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.livingNames().count == count + 2)

    try await b.open().engine.resync(.main, from: source)
    try await b.exchange()
    try await b.exchange()
    let late = fleet.device("late")
    try await late.exchange()
    try await expectAgreement(b, late)
    #expect(try await b.livingNames() == (source == .here ? noteNames(count) : []).union(["mine", "other"]))
    if source == .here { #expect(try await b.value("n0") == "edited") }
  }

  @Test(arguments: [1, 99, 101]) func `because a device emptied it is followed, if the feed says so`(
    _ count: Int
  ) async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(count)
    try await a.open().write { tx in for index in 0..<count { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    try await b.exchange()
    #expect(try await b.livingNames() == [])
    try await expectAgreement(a, b)
  }

  @Test(arguments: [1, 99, 101]) func `is lost if the server has forgotten the deletions and the token`(
    _ count: Int
  ) async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(count)
    try await a.open().write { tx in for index in 0..<count { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
    }
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.mainZone().lostReason == .deleted)
    #expect(try await b.livingNames().count == count)
  }

  /// - Parameter milliseconds: how much later the node that makes the zone says that it is; its clock may be before that of the other.
  @Test(arguments: [false, true], [1, -240_000])
  func `is not known by what this device has uploaded to it since`(
    _ hasToken: Bool, _ milliseconds: Int64
  ) async throws {
    let (fleet, b): (Fleet, Device)
    if hasToken {
      let made = try await devicesWithNotes(3)
      (fleet, b) = (made.fleet, made.b)
    } else {
      fleet = try Fleet()
      b = fleet.device("b")
      for name in noteNames(3).sorted() { try await b.put(name, ["title": "t"]) }
      try await b.exchange()
      #expect(try await b.open().projections.withLock { $0.sync.zones[.main]?.token } == nil)
    }
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.setWall(milliseconds: fleet.serverClock.wallMilliseconds() + milliseconds)
    try await b.web().createZone(.main)
    try await b.put("mine", ["title": "new"])
    try await b.exchange(.pushOnly)
    #expect(try await b.unsettled == 0)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.livingNames() == noteNames(3).union(["mine"]))
  }

  @Test(arguments: [0, 29, 30]) func `is followed without a question where the app wants that, and says so`(
    _ most: Int
  ) async throws {
    let (fleet, _, b, _) = try await devicesWithNotes(30)
    try await b.close()
    try await b.open(database: RefusingCloud(b)) { $0.zoneLosses.remadeFollowedMax = most }
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    guard most == 30 else {
      #expect(try await b.run()?.code == .zoneLost)
      #expect(try await b.livingNames() == noteNames(30))
      return
    }
    let report = try await b.exchange()
    #expect(report.lossesDecided.map(\.rule) == [.removeHere] && report.lossesDecided.map(\.zone) == [.main])
    #expect(try await b.livingNames() == [])
    #expect(try await b.owesNothing)
  }

  @Test func `is not followed where something is unsent`() async throws {
    let (fleet, _, b, _) = try await devicesWithNotes(3)
    try await b.close()
    try await b.open(database: RefusingCloud(b)) { $0.zoneLosses.remadeFollowedMax = 100 }
    try await b.put("n1", ["title": "edited"])
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.value("n1") == "edited")
    #expect(try await b.livingNames() == noteNames(3))
  }

  @Test(arguments: [false, true]) func `is emptied here with its unsent edits if a person lets the server's side stand`(
    _ isFull: Bool
  ) async throws {
    let (fleet, _, b, cloud) = try await devicesWithNotes(101)
    try await b.open().write { tx in
      for name in noteNames(101).sorted() {
        try tx.save(Record(type: "Note", id: RecordID(name), fields: ["title": "edited"]))
      }
    }
    if isFull {
      cloud.refuse { script in
        script.refusal = { request, _ in request == .modify ? CloudError(.quotaExceeded, reason: "full") : nil }
      }
      #expect(try await b.run() != nil)
    }
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    #expect(try await b.run()?.code == .zoneLost)
    try await b.open().engine.resync(.main, from: .server)
    // The storage is still full: nothing is sent by which the server could say it again.
    try await b.exchange()
    #expect(try await b.livingNames() == [])
    #expect(try await b.owesNothing)
    #expect(try await b.mainZone().lostReason == nil)
    for name in noteNames(101) {
      let told = try await b.open().conflicts(of: RecordID(name))
      #expect(told.count == 1, "what became of the edit of '\(name)' is told once")
    }
    cloud.refuse { $0.refusal = nil }
    try await b.create("n0", ["title": "new"])
    let late = fleet.device("late")
    try await exchange(b, late)
    try await expectAgreement(b, late)
  }

  @Test func `is no question if the feed showed the deletion of all that is absent`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["n", "old"] { try await a.put(name, ["title": "one"]) }
    for _ in 0..<2 { try await a.exchange() }
    // Newer than the token, so a tombstone of it is looked up.
    try await a.put("n", ["title": "two"])
    try await a.exchange(.pushOnly)
    try await a.remove("old")
    // A copy of the device, which knows the life that the first one begins.
    b.restore(from: a.disk.clone())
    try await a.exchange()
    fleet.serverClock.advance(milliseconds: 1)
    try await a.create("old", ["title": "again"])
    try await a.remove("n")
    try await a.exchange()
    let cloud = try await b.openRefusing()
    // The page shows another record in the place of a known one, so no tombstone says that it is the same zone.
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    #expect(try await b.run() == nil)
    #expect(try await b.livingNames() == ["old"])
    try await expectAgreement(a, b)
  }

  @Test(arguments: [false, true]) func `has no token any more if it is deleted while it is resynced`(
    _ crashes: Bool
  ) async throws {
    let (fleet, _, b, cloud) = try await devicesWithNotes(9)
    try await b.open().engine.resync(.main, from: .server)
    cloud.refuse { script in
      script.pageMax = 3
      script.refusal = { request, _ in request == .lookup ? CloudError(.networkError, reason: "away") : nil }
      script.hidden = ["n1"]
    }
    #expect(try await b.run(waitMillisecondsMax: 0) != nil)
    let begun = try await b.mainZone()
    #expect(begun.hasToken && begun.ghostsPossible)
    try fleet.server.deleteZone("Main", in: fleet.database)
    if crashes { b.crash() } else { try await b.close() }
    try await b.open(database: b.web())
    try await b.exchange()
    let ended = try await b.mainZone()
    #expect(ended.lostReason == .erased && !ended.hasToken && !ended.ghostsPossible)
    #expect(try await b.livingNames().isEmpty)
    // A zone of that name that another device makes is fetched from its beginning when a person wants it.
    let other = fleet.device("other")
    try await other.put("other", ["title": "other"])
    try await other.exchange()
    try await b.open().engine.resumeZone(.main)
    try await b.exchange()
    try await expectAgreement(b, other)
  }

  @Test func `is the same one if the server took its token`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(1)
    try await a.remove("n0")
    try await a.exchange()
    cloud.refuse { $0.hidesDeletions = true }
    try await b.put("n0", ["title": "edited"])
    // The save is not found, the feed says nothing, and the whole feed neither.
    try await b.exchange()
    #expect(try await b.livingNames() == [])
    #expect(try await b.owesNothing)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A zone that was only named` {
  @Test(arguments: [false, true]) func `is forgotten when the server does not have it, and made when it is written to`(
    _ compacts: Bool
  ) async throws {
    let (fleet, _, b, cloud) = try await devicesWithNotes(1)
    let old = ZoneID("Old")
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: old))
        return page
      }
    }
    try await b.exchange()
    #expect(try await b.open().status().zones.map(\.id) == [.main])
    #expect(try await b.owesNothing)
    if compacts { try await b.open().compact() }
    cloud.refuse { $0.list = nil }
    b.crash()
    try await b.open()
    try await b.write("late", ["title": "t"], zone: old)
    try await b.exchange()
    #expect(try await b.owesNothing)
    #expect(try fleet.server.records(zone: "Old", in: fleet.database).map { Array($0.keys) } == ["late"])
  }

  @Test func `is lost if something is owed to it`() async throws {
    let (_, _, b, cloud) = try await devicesWithNotes(1)
    let old = ZoneID("Old")
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: old))
        return page
      }
    }
    try await b.write("late", ["title": "t"], zone: old)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.unsettled == 1)
  }
}
