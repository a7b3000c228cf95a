// Two or three devices and a server: what one device writes, the others read; what was deleted stays deleted; uploads
// whose answer was lost are recognized. The invariants are checked after every step.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

private func note(_ name: String, _ fields: [String: FieldValue]) -> Record {
  Record(type: "Note", id: RecordID(name), fields: fields)
}

extension Device {
  fileprivate func save(_ name: String, _ fields: [String: FieldValue]) async throws {
    try await open().write { tx in
      var record = try tx.record(RecordID(name)) ?? note(name, [:])
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
    try await check()
  }

  fileprivate func delete(_ name: String) async throws {
    try await open().write { tx in try tx.delete(RecordID(name)) }
    try await check()
  }

  fileprivate func read(_ name: String, _ field: String = "title") async throws -> FieldValue? {
    try await open().record(RecordID(name))?[field]
  }

  fileprivate func check() async throws {
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }

  @discardableResult
  fileprivate func cycle(_ direction: CycleOptions.Direction = .both) async throws -> SyncReport {
    let report = try await sync(direction)
    try await check()
    return report
  }
}

@Suite(.timeLimit(.minutes(30))) struct SyncTests {
  @Test func `what one device writes, another reads`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save("n-1", ["title": "Hi", "count": 3])
    let report = try await a.cycle()
    #expect(report.uploaded == 1)
    #expect(report.requests == 4, "users/caller, changes/database, zones/modify, records/modify")
    try await b.cycle()
    #expect(try await b.read("n-1") == "Hi")
    #expect(try await a.dump() == b.dump())
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test func `55, 111: own writes come back and change nothing`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    for index in 0..<5 { try await a.save("n-\(index)", ["title": "x"]) }
    try await a.cycle()
    let report = try await a.cycle()
    #expect(report.echoes == 5)
    #expect(report.fetchedSaves == 0)
    let quiet = try await a.cycle()
    #expect(quiet.requests == 1, "changes/database alone: who is signed in is asked once")
  }

  @Test func `edits of different fields both survive, in either order`() async throws {
    for firstIsA in [true, false] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      try await a.save("n", ["title": "t", "body": "b"])
      try await a.cycle()
      try await b.cycle()
      try await a.save("n", ["title": "A"])
      try await b.save("n", ["body": "B"])
      for device in firstIsA ? [a, b, a] : [b, a, b] { try await device.cycle() }
      #expect(try await a.read("n", "title") == "A")
      #expect(try await a.read("n", "body") == "B")
      #expect(try await a.dump() == b.dump())
      #expect(try await a.open().status().unsettled == 0)
      #expect(try await b.open().status().unsettled == 0)
    }
  }

  @Test func `conflicts whose versions are too large for one answer are looked up in parts`() async throws {
    var limits = ServerLimits()
    limits.answerBytesMax = 2_500
    let fleet = try Fleet(limits: limits)
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let long = FieldValue.string(String(repeating: "x", count: 1_000))
    for index in 0..<9 { try await a.save("n-\(index)", ["title": long]) }
    try await a.cycle()
    for index in 0..<9 { try await b.save("n-\(index)", ["body": "b"]) }
    try await b.cycle(.pushOnly)
    for device in [b, a, b] { try await device.cycle() }
    #expect(fleet.server.statistics.requests["records/lookup"] ?? 0 > 4)
    #expect(try await a.dump() == b.dump())
    #expect(try await a.open().status().unsettled == 0)
    #expect(try await b.open().status().unsettled == 0)
  }

  @Test func `edits of the same field end in one winner, whatever the order`() async throws {
    var ends: Set<FieldValue?> = []
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
      let fleet = try Fleet()
      let devices = [fleet.device("a"), fleet.device("b"), fleet.device("c")]
      try await devices[0].save("n", ["title": "t"])
      for device in devices { try await device.cycle() }
      for (place, device) in devices.enumerated() {
        device.clock.advance(milliseconds: Int64(10_000 * (place + 1)))
        try await device.save("n", ["title": .string("from \(place)")])
      }
      for _ in 0..<2 { for place in order { try await devices[place].cycle() } }
      let dumps = try await [devices[0].dump(), devices[1].dump(), devices[2].dump()]
      #expect(dumps[0] == dumps[1] && dumps[1] == dumps[2])
      ends.insert(try await devices[0].read("n"))
    }
    #expect(ends == ["from 2"])
  }

  @Test func `a deletion wins over an edit made elsewhere, in either order`() async throws {
    for firstIsA in [true, false] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      try await a.save("n", ["title": "t"])
      try await a.cycle()
      try await b.cycle()
      try await a.delete("n")
      try await b.save("n", ["title": "edited"])
      for device in firstIsA ? [a, b, a, b] : [b, a, b, a] { try await device.cycle() }
      #expect(try await a.open().record(RecordID("n")) == nil)
      #expect(try await b.open().record(RecordID("n")) == nil)
      #expect(try await a.open().status().unsettled == 0)
      #expect(try await b.open().status().unsettled == 0)
      await #expect(throws: StrandlineError.self) { try await b.save("n", ["title": "again"]) }
    }
  }

  @Test func `7: a batch that was applied and whose answer was lost is settled`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for index in 0..<3 { try await a.save("n-\(index)", ["title": "x"]) }
    var faults = ServerFaults()
    faults.dropAnswer = 1
    fleet.server.setFaults(faults)
    let store = try await a.open()
    let lost = Task { try await store.sync() }
    while fleet.server.statistics.droppedAnswers == 0 { await Task.yield() }
    lost.cancel()
    _ = await lost.result
    fleet.server.setFaults(ServerFaults())
    try await a.close()
    let report = try await a.cycle()
    #expect(report.recognized == 3)
    #expect(report.uploaded == 0)
    #expect(report.merged == 0)
    #expect(fleet.server.statistics.appliedOperations == 3)
    try await b.cycle()
    #expect(try await a.dump() == b.dump())
  }

  @Test func `11: a record created and deleted before it was sent sends nothing`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.save("n", ["title": "x"])
    try await a.delete("n")
    try await a.cycle()
    #expect(fleet.server.statistics.appliedOperations == 0)
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test func `12: a record created again after its deletion exists on every device`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save("n", ["title": "first"])
    try await a.cycle()
    try await b.cycle()
    try await a.delete("n")
    try await a.cycle()
    try await a.open().write { tx in try tx.create(note("n", ["title": "second"])) }
    try await a.cycle()
    try await b.cycle()
    #expect(try await b.read("n") == "second")
    // The same with the deletion and the creation before one sync.
    try await b.open().write { tx in
      try tx.delete(RecordID("n"))
      try tx.create(note("n", ["body": "third"]))
    }
    try await b.cycle()
    try await a.cycle()
    #expect(try await a.read("n", "body") == "third")
    #expect(try await a.read("n") == nil)
    #expect(try await a.dump() == b.dump())
    #expect(try await a.open().status().unsettled == 0)
    #expect(try await b.open().status().unsettled == 0)
  }

  @Test func `a stale page brings nothing back`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save("dead", ["title": "x"])
    try await a.save("edited", ["title": "old"])
    try await a.cycle()
    var faults = ServerFaults()
    faults.replayPage = true
    fleet.server.setFaults(faults)
    try await b.cycle()
    try await a.delete("dead")
    try await a.save("edited", ["title": "new"])
    try await a.cycle()
    var blocked = 0
    for round in 0..<3 {
      // Another record must change, or the devices do not fetch the zone again.
      try await a.save("other-\(round)", ["title": "x"])
      blocked += try await b.cycle().blocked
      blocked += try await a.cycle().blocked
    }
    try await b.cycle()
    #expect(blocked == 2, "the dead record, and the older version of the edited one")
    #expect(fleet.server.statistics.replayedPages == 1)
    #expect(try await a.open().record(RecordID("dead")) == nil)
    #expect(try await b.open().record(RecordID("dead")) == nil)
    #expect(try await a.read("edited") == "new")
    #expect(try await b.read("edited") == "new")
    #expect(try await a.dump() == b.dump())
    #expect(try await b.open().status().openBlocks == 0)
    #expect(try await a.open().status().openBlocks == 0)
  }

  @Test func `26: an edit by a clock ten years ahead does not win over later edits`() async throws {
    let decade: Int64 = 10 * 365 * 86_400_000
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", clockSkewMilliseconds: decade), fleet.device("b", clockSkewMilliseconds: -decade))
    try await a.save("n", ["title": "from the future"])
    try await a.cycle()
    try await b.cycle()
    #expect(try await b.read("n") == "from the future")
    try await b.save("n", ["title": "later, from the past"])
    try await b.cycle()
    try await a.cycle()
    #expect(try await a.read("n") == "later, from the past")
    #expect(try await a.dump() == b.dump())
  }

  @Test func `40: retryAfter holds across a relaunch`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.save("n", ["title": "x"])
    var faults = ServerFaults()
    faults.throttle = .init(status: 503, retryAfter: 100, requests: nil)
    fleet.server.setFaults(faults)
    await #expect(throws: StrandlineError.self) { try await a.sync() }
    fleet.server.setFaults(ServerFaults())
    let before = fleet.server.statistics.requests
    try await a.close()
    do {
      try await a.sync()
      Issue.record("the wait was not obeyed")
    } catch let error as StrandlineError {
      #expect(error.code == .throttled)
      #expect((error.retryAfter ?? 0) > 90)
    }
    #expect(fleet.server.statistics.requests == before)
    // A clock that was turned back by years cannot make the wait longer than it was said to be.
    a.clock.setWall(milliseconds: 0)
    #expect(try await a.open().status().waitMilliseconds ?? 0 <= 100_000)
    a.clock.setWall(milliseconds: fleet.serverClock.wallMilliseconds())
    a.clock.advance(milliseconds: 101_000)
    try await a.cycle()
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test func `after a retryAfter of 0 the engine waits its own backoff`() async throws {
    for named in [0, -1, 0.001, -1e300] {
      let fleet = try Fleet()
      let a = fleet.device("a")
      try await a.save("n", ["title": "x"])
      var faults = ServerFaults()
      faults.throttle = .init(status: 503, retryAfter: named, requests: nil)
      fleet.server.setFaults(faults)
      do {
        try await a.sync()
        Issue.record("the server never answered")
      } catch let error as StrandlineError { #expect(error.code == .throttled) }
      #expect(fleet.server.statistics.requests.values.reduce(0, +) < 10, "retryAfter \(named)")
      #expect(try await a.open().durableLSN.rawValue < 20)
    }
  }

  @Test func `a receipt can be awaited to its outcome`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let store = try await a.open()
    let receipt = try await store.write { tx in try tx.save(note("n", ["title": "x"])) }
    async let uploaded: Void = receipt.uploaded()
    try await a.cycle()
    try await uploaded
    #expect(try await receipt.outcome() == [RecordID("n"): .saved])
  }
}
