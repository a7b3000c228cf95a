// A deletion that the server carries on to records that refer to the deleted one: it takes no edit along that is not at
// the server yet. The names of the tests begin with the numbers of the scenarios.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(10))) struct ScenarioCascadeTests {
  @Test func `90: a set with a deletion waits for the save that leaves what it deletes`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["target", "with"] { try await a.write(name, ["title": "old"]) }
    try await a.write("child", ["title": "old", "link": link("target", .deleteSelf)])
    try await a.exchange()
    let cloud = try await a.openRefusing(atomicZones: [.main])
    cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.zoneBusy, reason: "no")], true) }
    try await a.open().write { tx in
      var child = try #require(try tx.record(RecordID("child")))
      (child["title"], child["link"]) = ("new", nil)
      try tx.save(child)
    }
    try await a.open().write { tx in
      var with = try #require(try tx.record(RecordID("with")))
      with["title"] = "new"
      try tx.save(with)
      try tx.delete(RecordID("target"))
    }
    _ = try await a.run()
    #expect(Set(cloud.sent.joined()) == ["child"])
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.last.map { Set($0) } == ["with", "target"])
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: what makes room for another type does not take along what another record of its set leaves`()
    async throws
  {
    let (a, b, _) = try await chain(atomic: true)
    try await a.open().write { tx in
      var middle = try #require(try tx.record(RecordID("middle")))
      (middle["title"], middle["link"]) = ("new", nil)
      try tx.delete(RecordID("target"))
      try tx.create(Record(type: "Task", id: RecordID("target"), fields: ["title": "new"]))
      try tx.save(middle)
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    for name in ["middle", "target"] { #expect(try await b.value(name) == "new") }
    #expect(try await b.value("child") == "old")
    try await expectAgreement(a, b)
  }

  /// A record that refers to a second one.
  private func pair(
    _ action: Reference.Action = .deleteSelf, atomic: Bool = false
  ) async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.write("target", ["title": "old"])
    try await a.write("child", ["title": "old", "link": link("target", action)])
    try await a.exchange()
    return (a, b, try await a.openRefusing(atomicZones: atomic ? [.main] : []))
  }

  /// A record that refers to a second one, which may refer to a third: each is deleted with the one that it refers to.
  private func chain(atomic: Bool = false) async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.write("target", ["title": "old"])
    try await a.write("middle", ["title": "old", "link": link("target", .deleteSelf)])
    try await a.write("child", ["title": "old", "link": link("middle", .deleteSelf)])
    try await a.exchange()
    return (a, b, try await a.openRefusing(atomicZones: atomic ? [.main] : []))
  }

  private func leave(_ name: String, _ a: Device) async throws {
    try await a.open().write { tx in
      var record = try #require(try tx.record(RecordID(name)))
      (record["title"], record["link"]) = ("new", nil)
      try tx.save(record)
    }
  }

  /// While the save of a record is refused "target" stays, and says why; afterwards both go.
  private func expectKept(by name: String, _ a: Device, _ b: Device, _ cloud: RefusingCloud) async throws {
    _ = try await a.run()
    #expect(!cloud.sent.joined().contains("target"))
    #expect(try await a.open().pendingChange(of: RecordID("target"))?.obstacle != nil)
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value(name) == "new")
    // The server's cascade is heard of with the next fetch.
    #expect(try await a.run() == nil)
    try await expectAgreement(a, b)
  }

  @Test func `90: a save that is refused keeps what would take it along through another record`() async throws {
    let (a, b, cloud) = try await chain()
    cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.accessDenied, reason: "no")], true) }
    try await leave("child", a)
    try await a.erase("target")
    try await expectKept(by: "child", a, b, cloud)
    #expect(try await !b.lives("middle"))
  }

  @Test func `90: a record that the app edits again during the run is not deleted with what it has left`() async throws
  {
    let (a, b, cloud) = try await chain()
    try await leave("middle", a)
    try await a.erase("target")
    let store = try await a.open()
    cloud.refuse { script in
      script.list = { number, page in
        if number == 1 {
          // The write waits for no answer: it is durable when the page comes.
          _ = try? store.writeBlocking { tx in
            var record = try tx.record(RecordID("middle")) ?? Record(type: "Note", id: RecordID("middle"))
            record["title"] = "newer"
            try tx.save(record)
          }
        }
        return page
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "newer")
    #expect(try await !b.lives("target"))
    try await expectAgreement(a, b)
  }

  @Test func `90: a set that makes the new target and deletes the old one goes with the record that moves`()
    async throws
  {
    let (a, b, _) = try await chain(atomic: true)
    try await a.open().write { tx in
      try tx.create(Record(type: "Note", id: RecordID("place")))
      try tx.delete(RecordID("target"))
    }
    try await a.open().write { tx in
      var record = try #require(try tx.record(RecordID("middle")))
      (record["title"], record["link"]) = ("new", link("place", .deleteSelf))
      try tx.save(record)
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: two sets of which each deletes what the other leaves go together`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["t1", "t2"] { try await a.write(name, ["title": "old"]) }
    try await a.write("r", ["title": "old", "link": link("t2", .deleteSelf)])
    try await a.write("q", ["title": "old", "link": link("t1", .deleteSelf)])
    try await a.exchange()
    _ = try await a.openRefusing(atomicZones: [.main])
    for (name, target) in [("r", "t1"), ("q", "t2")] {
      try await a.open().write { tx in
        var record = try #require(try tx.record(RecordID(name)))
        (record["title"], record["link"]) = ("new", nil)
        try tx.save(record)
        try tx.delete(RecordID(target))
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    for name in ["r", "q"] { #expect(try await b.value(name) == "new") }
    for name in ["t1", "t2"] { #expect(try await !b.lives(name)) }
    try await expectAgreement(a, b)
  }

  @Test func `90: a new life of another type waits for the save that leaves the old one`() async throws {
    let (a, b, cloud) = try await chain()
    cloud.refuse { ($0.items["middle"], $0.isForever) = ([CloudError(.accessDenied, reason: "no")], true) }
    try await leave("middle", a)
    try await a.open().write { tx in
      try tx.delete(RecordID("target"))
      try tx.create(Record(type: "Other", id: RecordID("target")))
    }
    try await expectKept(by: "middle", a, b, cloud)
  }

  @Test func `90: what a save leaves is kept also by what hangs on it later`() async throws {
    for comesFromOther in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      for name in ["middle", "target", "other"] { try await a.write(name, ["title": "old"]) }
      try await a.write("child", ["title": "old", "link": link("middle", .deleteSelf)])
      try await a.exchange()
      try await b.exchange()
      let cloud = try await a.openRefusing()
      cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.badRequest, reason: "no")], true) }
      try await leave("child", a)
      try await a.erase("other")
      #expect(try await a.run() == nil)
      #expect(cloud.sent.last == ["other"])
      let linker = comesFromOther ? b : a
      try await linker.write("middle", ["link": link("target", .deleteSelf)])
      if comesFromOther { try await b.exchange() }
      #expect(try await a.run() == nil)
      try await a.erase("target")
      #expect(try await a.run() == nil)
      #expect(!cloud.sent.joined().contains("target"))
      #expect(try await a.open().pendingChange(of: RecordID("target"))?.obstacle != nil)
      // Nothing hangs on it any more.
      try await a.write("middle", ["link": link("place", .none)])
      #expect(try await a.run() == nil)
      #expect(cloud.sent.joined().contains("target"))
      try await a.open().releaseHolds(of: [RecordID("child")])
      cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
      #expect(try await a.run() == nil)
      #expect(try await a.owesNothing)
      try await b.exchange()
      #expect(try await b.value("child") == "new")
      try await expectAgreement(a, b)
    }
  }

  @Test func `90: a set goes with the record that leaves what it deletes, though that one waits for another`()
    async throws
  {
    let (a, b, _) = try await chain(atomic: true)
    try await a.open().write { tx in
      try tx.create(Record(type: "Note", id: RecordID("first")))
      try tx.delete(RecordID("target"))
    }
    try await a.open().write { tx in
      try tx.create(Record(type: "Note", id: RecordID("second"), fields: ["link": link("first")]))
    }
    try await a.open().write { tx in
      var record = try #require(try tx.record(RecordID("middle")))
      (record["title"], record["link"]) = ("new", link("second", .deleteSelf))
      try tx.save(record)
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "new")
    #expect(try await !b.lives("target"))
    try await expectAgreement(a, b)
  }

  /// What the save of a record does not change, or cannot take the record along, keeps nothing.
  @Test(arguments: [Reference.Action.none, .deleteSelf])
  func `50, 90: a save that is refused keeps only what would take it along by a reference that it takes away`(
    _ action: Reference.Action
  ) async throws {
    let (a, b, cloud) = try await pair(action)
    cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.quotaExceeded, reason: "full")], true) }
    if action == .none { try await leave("child", a) } else { try await a.write("child", ["title": "new"]) }
    try await a.erase("target")
    #expect(try await a.run() == nil)
    #expect(cloud.sent.joined().contains("target"))
    try await b.exchange()
    #expect(try await !b.lives("target"))
  }

  @Test func `90: what a request without an answer may have brought to the server is kept too`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["target", "place"] { try await a.write(name, ["title": "old"]) }
    try await a.exchange()
    let cloud = try await a.openRefusing()
    let gateway = CloudError(.internalError, reason: "bad gateway", httpStatus: 502)
    cloud.refuse { script in
      script.lostAnswers = [gateway]
      script.refusal = { request, _ in request == .zoneChanges ? gateway : nil }
    }
    try await a.write("child", ["title": "old", "link": link("target", .deleteSelf)])
    _ = try await a.run()
    #expect(cloud.sent == [["child"]])
    try await a.write("child", ["title": "new", "link": link("place", .deleteSelf)])
    try await a.erase("target")
    for _ in 0..<4 {
      a.clock.advance(milliseconds: 20_000)
      _ = try await a.run(waitMillisecondsMax: 0)
      #expect(!cloud.sent.joined().contains("target"))
    }
    cloud.refuse { $0.refusal = nil }
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: a record of another type is not drawn into a set that leaves its old life`() async throws {
    let (a, b, _) = try await pair(atomic: true)
    try await a.open().write { tx in
      var child = try #require(try tx.record(RecordID("child")))
      (child["title"], child["link"], child["other"]) = ("new", nil, link("target"))
      try tx.save(child)
      try tx.save(Record(type: "Note", id: RecordID("with")))
    }
    try await a.open().write { tx in
      try tx.delete(RecordID("target"))
      try tx.create(Record(type: "Task", id: RecordID("target"), fields: ["title": "new"]))
    }
    _ = try await a.run()
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    // The server refuses to delete what "child" refers to.
    try await a.write("child", ["other": link("with")])
    _ = try await a.run()
    a.clock.advance(milliseconds: 86_400_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: what makes room for another type leaves in no request with a save that leaves it`() async throws {
    let (a, b, cloud) = try await pair()
    cloud.refuse { $0.items["child"] = [CloudError(.throttled, reason: "later", retryAfter: 1)] }
    try await a.open().write { tx in
      var child = try #require(try tx.record(RecordID("child")))
      (child["title"], child["link"]) = ("new", link("target", .none))
      try tx.save(child)
    }
    try await a.open().write { tx in
      try tx.delete(RecordID("target"))
      try tx.create(Record(type: "Task", id: RecordID("target"), fields: ["title": "new", "cover": link("child")]))
    }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.allSatisfy { !Set(["child", "target"]).isSubset(of: $0) })
    #expect(try await a.owesNothing)
    try await b.exchange()
    for name in ["child", "target"] { #expect(try await b.value(name) == "new") }
    try await expectAgreement(a, b)
  }

  @Test func `90: a refused save that takes its change back keeps nothing any more`() async throws {
    let (a, b, cloud) = try await chain()
    cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.badRequest, reason: "no")], true) }
    try await leave("child", a)
    try await a.erase("target")
    #expect(try await a.run() == nil)
    #expect(!cloud.sent.joined().contains("target"))
    #expect(try await a.open().pendingChange(of: RecordID("target"))?.obstacle == .referrer(RecordID("child")))
    try await a.write("child", ["link": link("middle", .deleteSelf)])
    #expect(try await a.run() == nil)
    #expect(cloud.sent.joined().contains("target"))
    try await b.exchange()
    #expect(try await !b.lives("target"))
  }

  @Test func `90: a set is looked at again when the wait ends of what the record waits for that keeps it back`()
    async throws
  {
    let (a, b, cloud) = try await chain(atomic: true)
    let full = CloudError(.quotaExceeded, reason: "full", retryAfter: 60)
    cloud.refuse { script in
      for name in ["with", "place"] { script.items[name] = [full] }
    }
    try await a.write("with")
    try await a.write("place", ["link": link("with")])
    #expect(try await a.run() == nil)
    try await a.open().write { tx in
      var with = try #require(try tx.record(RecordID("with")))
      with["title"] = "new"
      try tx.save(with)
      try tx.delete(RecordID("target"))
    }
    try await a.open().write { tx in
      var middle = try #require(try tx.record(RecordID("middle")))
      (middle["title"], middle["link"]) = ("new", link("place", .deleteSelf))
      try tx.save(middle)
    }
    _ = try await a.run(waitMillisecondsMax: 0)
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "new")
    try await expectAgreement(a, b)
  }
}
