// References, versions of an app beside each other, encrypted values, and when an engine runs. The names of the tests begin
// with the numbers of the scenarios.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// An older and a newer version of an app's type.
private struct Letter: SyncRecord {
  var id: String
  var title: String
}
private struct ColoredLetter: SyncRecord, Equatable {
  static var recordType: String { "Letter" }
  var id: String
  var title: String
  var color: String?
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioReferenceTests {
  @Test func `143: 500 children and then their parent arrive, in requests within the limit`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.open().write { tx in
      for number in 0..<500 {
        try tx.save(Record(type: "Child", id: RecordID("c\(number)"), fields: ["of": link("parent", .none)]))
      }
      try tx.save(Record(type: "Parent", id: RecordID("parent"), fields: [:]))
    }
    try await b.exchange()
    let cloud = try await a.openRefusing()
    try await a.exchange()
    #expect(cloud.count(.zoneChanges) == 3 && cloud.count(.lookup) == 0)
    #expect(try await a.dump().count == 501)
    try await expectAgreement(a, b)
  }

  @Test func `144: parents go before their children, across batches too`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.open().write { tx in
      for number in 0..<250 {
        try tx.save(Record(type: "Note", id: RecordID("child\(number)"), fields: ["of": link("parent")]))
      }
      try tx.save(Record(type: "Note", id: RecordID("parent"), fields: ["of": link("grandparent")]))
      try tx.save(Record(type: "Note", id: RecordID("grandparent")))
    }
    #expect(try await a.run() == nil)
    let sent = cloud.sent.joined().map { $0 }
    let parent = try #require(sent.firstIndex(of: "parent"))
    let grandparent = try #require(sent.firstIndex(of: "grandparent"))
    #expect(grandparent < parent && sent.indices.allSatisfy { !sent[$0].hasPrefix("child") || $0 > parent })
    #expect(cloud.sent.count == 2)
    #expect(try await a.owesNothing)
  }

  /// The reference says that the child goes with the parent.
  @Test func `147: a parent is deleted here while another device adds a child: both are gone`() async throws {
    for isDeletedFirst in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      try await a.put("parent", ["title": "t"])
      try await exchange(a, b)
      try await a.remove("parent")
      try await b.write("child", ["of": link("parent", .deleteSelf)])
      if isDeletedFirst { try await a.exchange() }
      for _ in 0..<2 {
        _ = try await b.run()
        _ = try await a.run()
      }
      #expect(try await !a.lives("parent"))
      #expect(try await !b.lives("parent"))
      #expect(try await a.dump() == b.dump())
      // The server took the child where the parent was gone already: a reference of this kind does not ask for its target.
      #expect(try await b.lives("child") == isDeletedFirst)
    }
  }

  @Test func `148: a record that was put below another one on two devices has one place, the later`() async throws {
    for isFirst in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      for name in ["x", "y", "z"] { try await a.put(name, ["title": "t"]) }
      try await a.write("n", parent: "x")
      try await exchange(a, b)
      try await a.write("n", parent: "y")
      // Less than a minute, as the clock of the server stands meanwhile.
      b.clock.advance(milliseconds: 45_000)
      try await b.write("n", parent: "z")
      for device in isFirst ? [a, b, a] : [b, a, b] { try await device.exchange() }
      #expect(try await a.open().record(RecordID("n"))?.parent == "z")
      try await expectAgreement(a, b)
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioSchemaTests {
  @Test func `153: a field of a newer version survives an edit by an older one, here and at the server`() async throws {
    let fleet = try Fleet()
    let (new, old, late) = (fleet.device("new"), fleet.device("old"), fleet.device("late"))
    try await new.open().write { tx in try tx.save(ColoredLetter(id: "n", title: "one", color: "red")) }
    try await exchange(new, old)
    try await old.open().write { tx in try tx.save(Letter(id: "n", title: "two")) }
    try await exchange(old, new, late)
    for device in [new, old, late] {
      #expect(
        try await device.open().fetch(ColoredLetter.self, id: "n") == ColoredLetter(id: "n", title: "two", color: "red")
      )
    }
  }

  @Test func `154, 155: a record of an unknown type, and a field, are read when the app knows them, without a fetch`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { tx in
      try tx.save(Record(type: "Letter", id: RecordID("n"), fields: ["title": "one", "color": "red"]))
    }
    try await exchange(a, b)
    #expect(try await b.open().record(RecordID("n"))?.type == "Letter")
    let requests = fleet.server.statistics.requests
    try await b.close()
    #expect(try await b.open().fetch(Letter.self, id: "n")?.title == "one")
    #expect(try await b.open().fetch(ColoredLetter.self, id: "n")?.color == "red")
    #expect(fleet.server.statistics.requests == requests)
  }

  @Test func `159: a record that another tool wrote, without a stamp, is accepted, edited and merged`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "ours"])
    try await exchange(a, b)
    let tool = a.web()
    func write(_ name: String, _ fields: [String: FieldValue?]) async throws {
      let results = try await tool.modify(
        [CloudOperation(.forceUpdate, name: name, type: "Note", fields: fields)], in: .main, atomic: false)
      guard case .record? = results[name] else {
        Issue.record("\(results)")
        return
      }
    }
    try await write("outside", ["title": "theirs"])
    try await write("n", ["body": "theirs"])
    try await a.put("n", ["title": "ours again"])
    try await exchange(a, b, a)
    #expect(try await b.value("outside") == "theirs")
    #expect(try await b.value("n") == "ours again")
    #expect(try await b.value("n", "body") == "theirs")
    try await a.put("outside", ["body": "ours"])
    try await exchange(a, b)
    #expect(try await b.value("outside") == "theirs")
    #expect(try await b.value("outside", "body") == "ours")
    try await expectAgreement(a, b)
  }

  @Test func `159: what another tool left as it was is no change of it, though the stamp is gone`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "ours", "body": "ours"])
    try await exchange(a, b)
    try await a.put("n", ["title": "ours again"])
    fleet.serverClock.advance(milliseconds: 60_000)
    let fields: [String: FieldValue?] = ["body": "theirs", Names.stampField: nil]
    let results = try await a.web().modify(
      [CloudOperation(.forceUpdate, name: "n", type: "Note", fields: fields)], in: .main, atomic: false)
    guard case .record? = results["n"] else {
      Issue.record("\(results)")
      return
    }
    try await exchange(a, b)
    #expect(try await b.value("n") == "ours again")
    #expect(try await b.value("n", "body") == "theirs")
    try await expectAgreement(a, b)
  }

  @Test func `173: an encrypted field stays encrypted through edits and merges, and nil clears it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let secrets: [FieldValue] = [.encrypted("one"), .encrypted("two")]
    try await a.put("n", ["secret": secrets[0], "title": "t"])
    try await exchange(a, b)
    #expect(try await b.value("n", "secret") == secrets[0])
    try await a.put("n", ["title": "ours"])
    try await b.put("n", ["secret": secrets[1]])
    try await exchange(a, b, a)
    #expect(try await a.value("n", "secret") == secrets[1])
    #expect(try await b.value("n") == "ours")
    try await a.put("n", ["body": "ours"])
    try await b.put("n", ["secret": FieldValue?.none])
    try await exchange(b, a, b)
    #expect(try await a.value("n", "secret") == nil)
    #expect(try await a.value("n", "body") == "ours")
    try await expectAgreement(a, b)
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioScheduleTests {
  /// An engine that runs by itself, on a clock that stands until the test advances it.
  private func automatic(
    _ device: Device, _ cloud: RefusingCloud, hasJitter: Bool = false
  ) async throws -> RecordStore {
    device.clock.autoAdvance = false
    var configuration = SyncConfiguration(cloud)
    configuration.isAutomatic = true
    configuration.pace.hasJitter = hasJitter
    return try await RecordStore.open(
      at: "/store", syncing: configuration, options: Device.options, environment: device.environment)
  }

  /// Lets the engine go on, and the clock where the engine waits, until something holds.
  private func run(_ clock: SimulatedClock?, until holds: () throws -> Bool) async throws {
    while try !holds() {
      if let clock, clock.sleeperCount > 0 { clock.advance(milliseconds: 1_000) }
      await Task.yield()
    }
  }

  @Test func `189: without any push the engine asks by itself`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let store = try await automatic(a, RefusingCloud(a))
    try await run(a.clock) { try store.engine.status.lastFetchMilliseconds != nil }
    try await b.put("n", ["title": "t"])
    try await b.exchange()
    let begin = a.clock.monotonicNanoseconds()
    try await run(a.clock) { try store.record(RecordID("n")) != nil }
    #expect(a.clock.monotonicNanoseconds() - begin <= 120_000_000_000)
    try await store.close()
  }

  @Test func `40: an engine that runs by itself comes when the wait that the server named is over`() async throws {
    let a = try Fleet().device("a")
    let cloud = RefusingCloud(a)
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.throttled, reason: "busy", retryAfter: 40)] }
    let store = try await automatic(a, cloud)
    try await run(a.clock) { cloud.count(.databaseChanges) == 1 }
    let begin = a.clock.monotonicNanoseconds()
    try await run(a.clock) { cloud.count(.databaseChanges) == 2 }
    // By its own pace it would come after 2, 6, 14, 30 and 62 seconds.
    #expect((39...42).contains((a.clock.monotonicNanoseconds() - begin) / 1_000_000_000))
    try await store.close()
  }

  @Test func `190: when the network is back the upload begins without a write`() async throws {
    let a = try Fleet().device("a")
    let cloud = RefusingCloud(a)
    cloud.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "no route") } }
    let store = try await automatic(a, cloud)
    try await store.write { tx in try tx.save(Record(type: "Note", id: RecordID("n"))) }
    // So long that the engine's own waits are minutes.
    let begin = a.clock.monotonicNanoseconds()
    try await run(a.clock) { a.clock.monotonicNanoseconds() - begin > 1_800_000_000_000 }
    cloud.refuse { $0.refusal = nil }
    let back = a.clock.monotonicNanoseconds()
    try store.engine.wake(.networkReturned)
    try await run(a.clock) { try store.status().unsettled == 0 }
    #expect(a.clock.monotonicNanoseconds() - back <= 2_000_000_000)
    try await store.close()
  }

  @Test func `190: devices that hear of the network's return at one moment do not ask the server at one moment`()
    async throws
  {
    var waits: Set<UInt64> = []
    for seed: UInt64 in 1...2 {
      let a = try Fleet(seed: seed).device("a")
      let cloud = RefusingCloud(a)
      let store = try await automatic(a, cloud, hasJitter: true)
      try await run(a.clock) { try store.engine.status.phase == .idle && a.clock.sleeperCount > 0 }
      let asked = Mutex<UInt64?>(nil)
      cloud.refuse { [clock = a.clock] script in
        script.refusal = { _, _ in
          asked.withLock { $0 = $0 ?? clock.monotonicNanoseconds() }
          return nil
        }
      }
      let back = a.clock.monotonicNanoseconds()
      try store.engine.wake(.networkReturned)
      while asked.withLock({ $0 }) == nil {
        if a.clock.sleeperCount > 0 { a.clock.advance(milliseconds: 1) }
        await Task.yield()
      }
      let wait = try #require(asked.withLock { $0 }) - back
      #expect(wait <= 1_100_000_000)
      waits.insert(wait)
      try await store.close()
    }
    #expect(waits.count == 2)
  }

  @Test func `190: who opens the app does not wait for what is spread over many devices`() async throws {
    let a = try Fleet(seed: 1).device("a")
    let cloud = RefusingCloud(a)
    let store = try await automatic(a, cloud, hasJitter: true)
    try await run(a.clock) { try store.engine.status.phase == .idle && a.clock.sleeperCount > 0 }
    let (asked, polls) = (cloud.count(.databaseChanges), a.clock.sleeps.count)
    try store.engine.wake(.networkReturned)
    // It waits a part of a second now, and not for the next poll.
    try await run(nil) { a.clock.sleeps.count > polls && a.clock.sleeperCount == 1 }
    let wait = try #require(a.clock.sleeps.last)
    #expect((1...1_000).contains(wait))
    #expect(cloud.count(.databaseChanges) == asked)
    try store.engine.wake(.foreground)
    try await run(nil) { cloud.count(.databaseChanges) > asked }
    try await store.close()
  }

  @Test func `192: a sync may be asked for while a status is handled`() async throws {
    let a = try Fleet().device("a")
    try await a.open()
    let engine = try await a.open().engine
    let follower = Task { () -> Int? in
      for await status in engine.statuses where status.unsettled > 0 { return try await engine.sync().uploaded }
      return nil
    }
    try await a.write("n")
    #expect(try await follower.value == 1)
    #expect(try await a.unsettled == 0)
  }
}
