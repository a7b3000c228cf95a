// What the app writes and when, and the power that is cut meanwhile: nothing that was acknowledged is lost, and nothing is
// applied twice. The names of the tests begin with the numbers of the scenarios.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Device {
  /// Opens the store without an engine, as an app does that has not begun to sync, and writes.
  fileprivate func withoutEngine(_ body: @Sendable (inout WriteTransaction) throws -> Void) async throws {
    try await close()
    let store = try await RecordStore.open(at: "/store", options: Device.options, environment: environment)
    try await store.write { tx in try body(&tx) }
    try await store.close()
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioWritingTests {
  @Test func `1: a record is at the server what it is here, created, changed and deleted`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for title in ["one", "two"] {
      try await a.put("n", ["title": .string(title)])
      try await exchange(a, b)
      #expect(try await a.value("n") == .string(title))
      try await expectAgreement(a, b)
    }
    try await a.remove("n")
    try await exchange(a, b)
    #expect(try await !a.lives("n"))
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `2: a write that returned outlasts a power cut, and is uploaded`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "kept"])
    a.crash()
    try await exchange(a, b)
    #expect(try await b.value("n") == "kept")
  }

  /// One cycle fetches a record and uploads another. Whatever call of it the power is cut in, the next one ends it.
  @Test func `6, 100, 101: power that is cut at any call of a cycle loses nothing and applies nothing twice`()
    async throws
  {
    var call = 0
    var isDone = false
    while !isDone {
      call += 1
      for loss in [CrashLoss.none, .all] {
        let fleet = try Fleet()
        let (a, b) = (fleet.device("a"), fleet.device("b"))
        try await exchange(a)
        try await b.put("theirs", ["title": "b"])
        try await b.exchange()
        try await a.put("mine", ["title": "a"])
        let token = try await a.open().status().zones.first?.hasToken
        a.disk.cutPower(atCall: a.disk.callCount + call)
        _ = try? await a.sync()
        isDone = !a.disk.isOff
        a.crash(loss)
        if try await !a.lives("theirs"), token != true {
          #expect(try await a.open().status().zones.first?.hasToken != true, "call \(call): a token without its page")
        }
        try await exchange(a, b, a)
        #expect(fleet.applications == 2, "call \(call), \(loss)")
        #expect(try await b.value("mine") == "a", "call \(call), \(loss)")
        #expect(try await a.value("theirs") == "b", "call \(call), \(loss)")
        try await expectAgreement(a, b)
      }
    }
    #expect(call > 4)
  }

  @Test func `8: an edit that is made while an earlier one is on its way is sent next, under the new tag`() async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    cloud.refuse { $0.beforeModify = { if $0 == 1 { try await a.write("n", ["title": "two"]) } } }
    #expect(try await a.run() == nil)
    let sent = cloud.script.withLock { $0.batches.joined().map { $0 } }
    #expect(sent.map(\.kind) == [.create, .update] && sent.last?.changeTag != nil)
    try await exchange(b)
    #expect(try await b.value("n") == "two")
    try await expectAgreement(a, b)
  }

  @Test func `9: a record that is deleted while its save is on its way stays deleted`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    cloud.refuse { $0.beforeModify = { if $0 == 1 { try await a.erase("n") } } }
    #expect(try await a.run() == nil)
    #expect(cloud.script.withLock { $0.batches.joined().map(\.kind) } == [.create, .delete])
    try await exchange(a, b)
    #expect(try await !a.lives("n"))
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `10: a record that is created again while its deletion is on its way lives`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "first life"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    cloud.forgetSent()
    try await a.erase("n")
    cloud.refuse { $0.beforeModify = { if $0 == 1 { try await a.create("n", ["title": "second life"]) } } }
    #expect(try await a.run() == nil)
    try await exchange(b, a)
    #expect(try await a.value("n") == "second life")
    #expect(try await b.value("n") == "second life")
    try await expectAgreement(a, b)
  }

  @Test func `13: many edits of a record are one upload of the last, and the log has them all`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for number in 0..<50 { try await a.write("n", ["title": .int64(Int64(number))]) }
    #expect(try await a.run() == nil)
    #expect(cloud.sent == [["n"]])
    let history = try await a.open().history(of: RecordID("n"), limit: 100)
    #expect(history.changes.count { $0.kind == .saved } == 50)
    try await b.exchange()
    #expect(try await b.value("n") == .int64(49))
  }

  /// Both fields have the same number in every transaction of the app; and what has left in one request never has two.
  @Test func `15: what is sent has the content of one version, however the app writes meanwhile`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    let writer = Task {
      for number in 0..<200 {
        let value = FieldValue.int64(Int64(number))
        try await a.write("n", ["title": value, "body": value])
      }
    }
    while try await a.value("n") != .int64(199) { try await a.sync() }
    try await writer.value
    #expect(try await a.run() == nil)
    for operation in cloud.script.withLock({ $0.batches.joined().map { $0 } }) {
      #expect(operation.fields["title"] == operation.fields["body"])
    }
    try await b.exchange()
    #expect(try await b.value("n") == .int64(199))
    try await expectAgreement(a, b)
  }

  @Test func `16, 116: what was written before there was an engine is uploaded once`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.withoutEngine { tx in
      for number in 0..<3 { try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["title": "before"])) }
    }
    try await a.exchange()
    try await a.withoutEngine { tx in
      var record = try #require(try tx.record(RecordID("n1")))
      record["title"] = "between"
      try tx.save(record)
    }
    try await exchange(a, b, a)
    #expect(fleet.applications == 4)
    #expect(try await b.value("n0") == "before")
    #expect(try await b.value("n1") == "between")
    try await expectAgreement(a, b)
  }

  @Test func `17: a record that was created, and deleted while there was no engine, is gone`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "one"])
    try await exchange(a, b)
    try await a.withoutEngine { tx in try tx.delete(RecordID("n")) }
    try await exchange(a, b)
    #expect(try await !a.lives("n"))
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `25: a clock that is set back does not make a later edit lose`() async throws {
    for isSynced in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      try await a.put("n", ["title": "one"])
      if isSynced { try await exchange(a, b) }
      a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - 86_400_000)
      try await a.put("n", ["title": "two"])
      try await exchange(a, b, a)
      #expect(try await a.value("n") == "two")
      #expect(try await b.value("n") == "two")
      try await expectAgreement(a, b)
    }
  }

  @Test func `25: a field whose time is of the future does not go on from it when the server's clock is known`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", clockSkewMilliseconds: 365 * 86_400_000), fleet.device("b"))
    func wait() { for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 120_000) } }
    try await b.put("other", ["title": "one"])
    try await b.exchange()
    try await a.put("n", ["title": "one"])
    // A page says what the server's clock shows.
    try await a.exchange(.pullOnly)
    try await a.put("n", ["title": "two"])
    wait()
    try await b.put("n", ["title": "three"])
    try await b.exchange()
    wait()
    try await exchange(a, b)
    #expect(try await b.value("n") == "three")
    try await expectAgreement(a, b)
  }

  @Test func `25: a later edit does not lose either where a disk of before has forgotten what was sent`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["body": "text"])
    try await a.put("n", ["title": "one"])
    let image = a.disk.clone()
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - 86_400_000 * 400)
    try await a.sync()
    try await a.close()
    a.restore(from: image)
    try await a.put("n", ["title": "two"])
    try await exchange(a, b, a)
    #expect(try await a.value("n") == "two")
    #expect(try await b.value("n") == "two")
    #expect(try await b.value("n", "body") == "text")
    try await expectAgreement(a, b)
  }
}
