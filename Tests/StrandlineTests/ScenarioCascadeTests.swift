// A deletion that the server carries on to records that refer to the deleted one: it takes no edit along that is not at
// the server yet. The names of the tests begin with the numbers of the scenarios.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct ScenarioCascadeTests {
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
    #expect(try await a.open().pendingChange(of: RecordID("target"))?.obstacle == .referrer(RecordID(name)))
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
    let (a, b, cloud) = try await chain(atomic: true)
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
    expectOneRequest(cloud, ["place", "target", "middle"])
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "new")
    try await expectAgreement(a, b)
  }

  /// Two records in an atomic zone, each deleted with the one that it refers to.
  private func twoPairs(r: String, q: String) async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["t1", "t2"] { try await a.write(name, ["title": "old"]) }
    for (name, target) in [("r", r), ("q", q)] {
      try await a.write(name, ["title": "old", "link": link(target, .deleteSelf)])
    }
    try await a.exchange()
    return (a, b, try await a.openRefusing(atomicZones: [.main]))
  }

  @Test func `90: two sets of which each deletes what the other leaves go together`() async throws {
    let (a, b, cloud) = try await twoPairs(r: "t2", q: "t1")
    for (name, target) in [("r", "t1"), ("q", "t2")] {
      try await a.open().write { tx in
        var record = try #require(try tx.record(RecordID(name)))
        (record["title"], record["link"]) = ("new", nil)
        try tx.save(record)
        try tx.delete(RecordID(target))
      }
    }
    #expect(try await a.run() == nil)
    expectOneRequest(cloud, ["t1", "t2", "r", "q"])
    #expect(try await a.owesNothing)
    try await b.exchange()
    for name in ["r", "q"] { #expect(try await b.value(name) == "new") }
    for name in ["t1", "t2"] { #expect(try await !b.lives(name)) }
    try await expectAgreement(a, b)
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
    let (a, b, cloud) = try await chain(atomic: true)
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
    expectOneRequest(cloud, ["first", "target", "second", "middle"])
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
    #expect(try await b.lives("child") == (action == .none))
    guard action == .none else { return }
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
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
    #expect(cloud.sent.last.map { Set($0) } == ["with", "target", "place", "middle"])
    #expect(cloud.areAtomic.last == true)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("middle") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: a record that waits is read again when the app writes it again`() async throws {
    let (a, b, cloud) = try await pair()
    for name in ["other", "with"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    let store = try await a.open()
    cloud.refuse { script in
      script.items["child"] = [CloudError(.throttled, reason: "later")]
      // While the first deletion is under way, before which it was read what "child" leaves: nothing.
      script.refusal = { request, operations in
        guard request == .modify, operations.map(\.name) == ["other"] else { return nil }
        _ = try? store.writeBlocking { tx in
          guard var child = try tx.record(RecordID("child")) else { return }
          (child["title"], child["link"]) = ("new", nil)
          try tx.save(child)
          try tx.delete(RecordID("target"))
        }
        return nil
      }
      // So that "child" still waits then.
      script.requests[.zoneChanges] = [CloudError(.internalError, reason: "no", httpStatus: 500)]
    }
    try await a.write("child", ["title": "newer"])
    try await a.write("with", ["title": "new"])
    try await a.erase("other")
    _ = try await a.run()
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.last == ["target"])
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: what a request without an answer may have linked is kept too`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["target", "middle", "other"] { try await a.write(name, ["title": "old"]) }
    try await a.write("child", ["title": "old", "link": link("middle", .deleteSelf)])
    try await a.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { ($0.items["child"], $0.isForever) = ([CloudError(.badRequest, reason: "no")], true) }
    try await leave("child", a)
    try await a.erase("other")
    #expect(try await a.run() == nil)
    // It is known now that nothing deletes "middle".
    #expect(cloud.sent.last == ["other"])
    let gateway = CloudError(.internalError, reason: "bad gateway", httpStatus: 502)
    cloud.refuse { script in
      script.lostAnswers = [gateway]
      script.refusal = { request, _ in request == .zoneChanges ? gateway : nil }
    }
    try await a.write("middle", ["link": link("target", .deleteSelf)])
    try await a.erase("target")
    // In one run, which waits: the next one reads everything anew.
    #expect(try await a.run() != nil)
    #expect(!cloud.sent.joined().contains("target"))
    cloud.refuse { ($0.refusal, $0.items, $0.isForever) = (nil, [:], false) }
    try await a.open().releaseHolds(of: [RecordID("child")])
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    #expect(try await !b.lives("target"))
    try await expectAgreement(a, b)
  }

  @Test func `90: a save that is not durable yet keeps what it leaves`() async throws {
    let (a, b, cloud) = try await pair()
    let store = try await a.open()
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    try await a.erase("target")
    let queued = Mutex<UInt64?>(nil)
    cloud.refuse { script in
      // Nothing follows that would make it durable before the deletion's turn.
      script.list = { number, page in
        guard number == 1 else { return page }
        let receipt = try? store.enqueue { tx in
          guard var child = try tx.record(RecordID("child")) else { return }
          (child["title"], child["link"]) = ("new", nil)
          try tx.save(child)
        }.receipt
        queued.withLock { $0 = receipt?.durableLSN.rawValue }
        return page
      }
    }
    // `run` compares with a replay of the log, which has only what is durable.
    _ = try? await a.sync()
    #expect(!cloud.sent.joined().contains("target"))
    guard case .writer(let log) = store.source, let lsn = queued.withLock({ $0 }) else {
      Issue.record("nothing was written")
      return
    }
    try await log.waitUntilDurable(lsn)
    #expect(try await a.run() == nil)
    #expect(cloud.sent == [["child"], ["target"]])
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }

  @Test func `90: two sets that wait for each other through two records go together`() async throws {
    let (a, b, cloud) = try await twoPairs(r: "t1", q: "t2")
    for (made, deleted) in [("p", "t1"), ("x", "t2")] {
      try await a.open().write { tx in
        try tx.create(Record(type: "Note", id: RecordID(made)))
        try tx.delete(RecordID(deleted))
      }
    }
    for (name, place) in [("r", "x"), ("q", "p")] {
      try await a.write(name, ["title": "new", "link": link(place, .deleteSelf)])
    }
    #expect(try await a.run() == nil)
    expectOneRequest(cloud, ["p", "x", "t1", "t2", "r", "q"])
    #expect(try await a.owesNothing)
    try await b.exchange()
    for name in ["r", "q"] { #expect(try await b.value(name) == "new") }
    try await expectAgreement(a, b)
  }

  /// Of the requests with any of these records, the first that the server took had all of them, and goes whole.
  private func expectOneRequest(_ cloud: RefusingCloud, _ names: Set<String>) {
    let requests = zip(cloud.sent, cloud.areAtomic).filter { !names.isDisjoint(with: $0.0) }
    #expect(requests.map { Set($0.0) } == [names])
    #expect(requests.map(\.1) == [true])
  }

  @Test func `90: a set waits for a write of one of its records that is not durable yet`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["one", "two"] { try await a.write(name, ["title": "old"]) }
    try await a.exchange()
    let cloud = try await a.openRefusing(atomicZones: [.main])
    let store = try await a.open()
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["two"] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 60)] }
    try await store.write { tx in
      for name in ["one", "two"] {
        var record = try #require(try tx.record(RecordID(name)))
        record["title"] = "new"
        try tx.save(record)
      }
    }
    #expect(try await a.run() == nil)
    a.clock.advance(milliseconds: 3_600_000)
    let queued = try store.enqueue { tx in
      var record = try #require(try tx.record(RecordID("one")))
      record["title"] = "newer"
      try tx.save(record)
    }
    // What is owed is read while it is written as well.
    _ = try store.pendingChanges()
    _ = try store.pendingChange(of: RecordID("one"))
    try await a.sync()
    if case .writer(let log) = store.source { try await log.waitUntilDurable(queued.place.lsn.rawValue) }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("one") == "newer")
    try await expectAgreement(a, b)
  }

  @Test func `90: a run for another zone forgets nothing of what keeps a record`() async throws {
    let (a, b, _) = try await pair()
    try await a.write("other", zone: ZoneID("Other"))
    #expect(try await a.run() == nil)
    try await leave("child", a)
    for zone in [ZoneID("Other"), .main] {
      if zone == .main { try await a.erase("target") }
      var options = CycleOptions()
      options.zone = zone
      _ = try await a.open().engine.cycle(options)
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.value("child") == "new")
    try await expectAgreement(a, b)
  }
}
