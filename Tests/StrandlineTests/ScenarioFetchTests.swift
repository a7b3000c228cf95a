// What comes from the server: pages, tokens, servers that went back, accounts that come and go. The names of the tests begin
// with the numbers of the scenarios.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct ScenarioFetchTests {
  @Test func `100: power that is cut at any call of a first fetch takes no change with it`() async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    for zone in ["One", "Other"] { try await b.write("n", ["title": "t"], zone: ZoneID(zone)) }
    try await b.exchange()
    var (call, isCut) = (0, true)
    while isCut {
      call += 1
      let a = fleet.device("a\(call)")
      try await a.open()
      a.disk.cutPower(atCall: a.disk.callCount + call)
      do { try await a.sync() } catch { #expect(a.disk.isOff) }
      a.disk.crashAtCall = nil
      isCut = a.disk.isOff
      a.crash()
      try await a.exchange()
      #expect(try await a.dump().count == 2, "cut at call \(call)")
    }
    #expect(call > 8)
  }

  @Test func `a list of changed zones that has several pages is read to its end in one run`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<5 { try await b.write("n", zone: ZoneID("Z\(number)")) }
    try await b.exchange()
    try await a.open(database: OneZoneAPage(base: a.web()))
    try await a.exchange()
    #expect(try await a.dump().count == 5)
  }

  @Test func `a page that is under way when a person has its zone fetched anew is not applied`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["n", "gone"] { try await b.put(name, ["title": "one"]) }
    let cloud = try await a.openRefusing()
    try await exchange(b, a)
    try await b.remove("gone")
    try await b.put("n", ["title": "two"])
    try await b.exchange()
    let store = try await a.open()
    let pages = Mutex(0)
    cloud.refuse { script in
      script.hidesDeletions = true
      script.beforePage = { _ in
        let isFirst = pages.withLock { pages in
          pages += 1
          return pages == 1
        }
        if isFirst { try await store.engine.resync(.main, from: .server) }
      }
    }
    try await a.exchange()
    #expect(try await a.value("n") == "two")
    #expect(try await !a.lives("gone"))
  }

  @Test func `103: a fetch that fails at the third page goes on there`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<9 { try await b.put("n\(number)", ["title": "t"]) }
    try await b.exchange()
    let cloud = try await a.openRefusing()
    let pages = Mutex(0)
    cloud.refuse { script in
      script.pageMax = 3
      script.refusal = { request, _ in
        guard request == .zoneChanges else { return nil }
        return pages.withLock { pages in
          pages += 1
          return pages == 3 ? CloudError(.accessDenied, reason: "not now") : nil
        }
      }
    }
    await #expect(throws: StrandlineError.self) { try await a.exchange() }
    #expect(try await a.dump().count == 6)
    let again = try await a.openRefusing()
    again.refuse { $0.pageMax = 3 }
    try await a.exchange()
    #expect(again.count(.zoneChanges) <= 2)
    try await expectAgreement(a, b)
  }

  @Test func `114: a first fetch that the end of its time and then of the power interrupts goes on at its page`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<15 { try await b.put("n\(number)", ["title": "t"]) }
    try await b.exchange()
    let clock = a.clock
    let slow: @Sendable (inout RefusingCloud.Script) -> Void = { script in
      script.pageMax = 3
      script.refusal = { _, _ in
        clock.advance(by: .seconds(2))
        return nil
      }
    }
    let first = try await a.openRefusing()
    first.refuse(slow)
    let report = try await a.open().sync(deadline: .seconds(8))
    let shown = report.fetchedSaves
    #expect(report.isUnfinished && shown == 3 * first.count(.zoneChanges) && (3..<15).contains(shown))
    let status = try await a.open().engine.status
    #expect(status.download.records == shown && status.download.zonesLeft == 1, "\(status.download)")
    a.crash()
    let second = RefusingCloud(a)
    second.refuse(slow)
    try await a.open(database: second)
    #expect(try await a.dump().count == shown, "the app has what had come")
    #expect(try await a.open().sync().fetchedSaves == 15 - shown)
    #expect(first.count(.zoneChanges) + second.count(.zoneChanges) == 5, "no page is asked for twice")
    try await expectAgreement(a, b)
  }

  @Test func `104: a held record that could not be read is asked for again when a person says so`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "t"])
    try await b.exchange()
    try await cloud.breakRecord("n")
    cloud.replaceNext(.failed(name: "n", cloud.defect(of: "n")))
    try await a.exchange()
    #expect(try await a.open().status().held.map(\.id.name) == ["n"])
    cloud.mendRecords()
    try await a.exchange()
    #expect(try await a.open().status().held.count == 1, "only a newer version or a person ends it")
    try await a.open().releaseHolds(of: [RecordID("n")])
    try await a.exchange()
    #expect(try await a.value("n") == "t")
    try await expectAgreement(a, b)
  }

  @Test func `115: a filled store that meets a filled cloud ends in the union of both`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for (device, name) in [(a, "a"), (b, "b")] {
      try await device.put("both", [name: "here"])
      try await device.put("only \(name)", ["title": "t"])
    }
    try await exchange(a, b, a, b)
    #expect(try await a.value("both", "a") == "here")
    #expect(try await a.value("both", "b") == "here")
    #expect(try await a.dump().count == 3)
    try await expectAgreement(a, b)
  }

  @Test func `118: a server that went back in time is noticed, also where nothing is owed, and nothing is lost`()
    async throws
  {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.put("n", ["title": "one"])
    try await a.put("m", ["title": "one"])
    try await a.exchange()
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await a.put("n", ["title": "two"])
    try await a.exchange()
    try await a.exchange()
    let old = try fleet.server(of: image)
    try await a.close()
    try await a.open(through: InProcessTransport(old))
    var error: StrandlineError?
    for _ in 0..<3 where error == nil {
      error = try await a.run()
    }
    #expect(error?.code == .zoneLost)
    #expect(try await a.value("n") == "two")
    #expect(try await a.value("m") == "one")
    #expect(try await a.open().status().zones.map(\.isLost) == [true])
    // What is written meanwhile is kept, and not sent.
    let applied = old.statistics.appliedOperations
    try await a.put("n", ["title": "three"])
    #expect(try await a.run()?.code == .zoneLost)
    #expect(try await a.value("n") == "three")
    #expect(old.statistics.appliedOperations == applied)
  }

  @Test func `118: after a server went back in time, what is here goes up by a resync, older versions there or not`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["edited", "edited here", "deleted here", "same"] {
      try await a.put(name, ["title": "one", "other": 1])
    }
    try await exchange(a, b)
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await b.put("edited", ["title": "two"])
    try await b.put("edited here", ["title": "two"])
    try await b.put("late", ["title": "two"])
    try await exchange(b, a)
    try await a.put("deleted here", ["title": "two"])
    try await a.put("same", ["title": "two"])
    try await exchange(a, b)
    let old = try fleet.server(of: image)
    for device in [a, b] {
      try await device.close()
      try await device.open(through: InProcessTransport(old))
    }
    try await a.put("edited here", ["title": "three"])
    try await a.remove("deleted here")
    for _ in 0..<3 { _ = try await a.run() }
    #expect(try await a.open().status().zones.map(\.isLost) == [true])
    try await a.open().engine.resync(.main, from: .here)
    for _ in 0..<3 { try await a.exchange() }
    #expect(try await a.open().status().zones.map(\.isLost) == [false])
    let titles = ["edited": "two", "edited here": "three", "late": "two", "same": "two", "deleted here": nil]
    for (name, title) in titles { #expect(try await a.value(name) == title.map { .string($0) }, "\(name)") }
    // A new device sees what the first one has.
    let c = fleet.device("c")
    try await c.open(through: InProcessTransport(old))
    try await c.exchange()
    try await expectAgreement(a, c)
    // The other one, which saw it all as well, has nothing to decide any more.
    try await b.exchange()
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `120: a server that knows nothing of a token is fetched anew, and nothing is lost`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<3 { try await a.put("n\(number)", ["title": "t"]) }
    try await exchange(a, b)
    try await b.put("n0", ["title": "theirs"])
    try await b.exchange()
    try await a.put("n1", ["title": "ours"])
    try await a.put("new", ["title": "ours"])
    var faults = ServerFaults()
    faults.expireTokens = true
    fleet.server.setFaults(faults)
    try await a.exchange()
    fleet.server.setFaults(ServerFaults())
    try await exchange(a, b)
    #expect(try await a.value("n0") == "theirs")
    #expect(try await b.value("n1") == "ours")
    #expect(try await b.lives("new"))
    try await expectAgreement(a, b)
  }

  @Test func `121: a cycle that only fetches leaves the queue, and status says so`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.put("theirs", ["title": "t"])
    try await b.exchange()
    let cloud = try await a.openRefusing()
    for number in 0..<3 {
      try await a.put("n\(number)", ["title": "t"])
      try await a.exchange(.pullOnly)
      #expect(try await a.open().engine.status.unsettled == number + 1)
    }
    #expect(try await a.lives("theirs"))
    #expect(cloud.sent.isEmpty)
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `20: a page for which the disk has no room moves no token, and is fetched when there is room`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("own", ["title": "t"])
    try await exchange(a, b)
    try await b.put("other", ["title": "t"])
    try await exchange(b, a)
    let known = try await a.open().projections.withLock { $0.sync.zones[.main]?.token }
    #expect(known != nil)
    // More than a store keeps in memory while it cannot write.
    let title = FieldValue.string(String(repeating: "x", count: 50_000))
    try await b.open().write { tx in
      for number in 0..<150 {
        try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["title": title]))
      }
    }
    try await b.sync()
    a.disk.capacity = a.disk.usedBytes + 100_000
    for round in 0..<3 {
      let error = await #expect(throws: StrandlineError.self) { try await a.sync() }
      #expect(error?.code == .diskFull)
      #expect(try await a.value("own") == "t")
      guard round > 0 else { continue }
      // What counts is what the disk has.
      a.crash()
      let token = try await a.open().projections.withLock { $0.sync.zones[.main]?.token }
      #expect(token == known)
      #expect(try await a.brokenInvariant() == nil)
    }
    _ = try? await a.sync()
    a.disk.capacity = nil
    // Writing the index is tried again after half a minute at most.
    a.clock.advance(milliseconds: 30_000)
    try await a.exchange()
    #expect(try await a.brokenInvariant() == nil)
    try await expectAgreement(a, b)
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioAccountTests {
  @Test(arguments: [CloudError.Code.authenticationRequired, .authenticationFailed])
  func `124, 125, 138: without an account writes are kept, status says why, and a sign-in uploads them`(
    _ code: CloudError.Code
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.refusal = { _, _ in CloudError(code, reason: "who is there?") } }
    for number in 0..<3 {
      try await a.write("n\(number)")
      #expect(try await a.run()?.code == .needsSignIn)
    }
    let status = try await a.open().engine.status
    #expect(status.unsettled == 3 && status.phase == .needsPerson && cloud.sent.isEmpty)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `126: what was edited and deleted while signed out goes when the same user is back`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for number in 0..<9 { try await a.write("n\(number)", ["title": "one"]) }
    #expect(try await a.run() == nil)
    try await b.exchange()
    cloud.refuse { $0.refusal = { _, _ in CloudError(.authenticationRequired, reason: "signed out") } }
    for number in 0..<5 { try await a.write("n\(number)", ["title": "two"]) }
    for number in 5..<8 { try await a.erase("n\(number)") }
    #expect(try await a.run()?.code == .needsSignIn)
    _ = try await a.openRefusing()
    #expect(try await a.run() == nil)
    try await b.exchange()
    #expect(try await b.dump().count == 6)
    #expect(try await b.value("n4") == "two")
    #expect(try await !b.lives("n5"))
    try await expectAgreement(a, b)
  }

  @Test func `131: a store of one container is refused to another, and nothing is sent`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.put("n", ["title": "t"])
    try await a.exchange()
    try await a.put("n", ["title": "secret"])
    try await a.close()
    let applied = fleet.applications
    for address in [
      CloudAddress(container: "iCloud.other", environment: .development),
      CloudAddress(container: "iCloud.test", environment: .production),
    ] {
      let other = WebServicesDatabase(
        address: address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
        transport: InProcessTransport(fleet.server), environment: a.environment.system)
      try await a.open(database: other)
      #expect(try await a.run()?.code == .accountMismatch)
      try await a.close()
    }
    #expect(fleet.applications == applied)
    try await a.exchange()
    #expect(try await a.unsettled == 0)
  }

  @Test func `136, 195: a zone that disappears is an error of its own, and stays frozen until a person decides`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let (first, second) = (ZoneID("A"), ZoneID("B"))
    for zone in [first, second] { try await a.write("n", ["title": "one"], zone: zone) }
    try await exchange(a, b)
    let key = fleet.database
    try fleet.server.deleteZone(first.name, in: key)
    try await a.write("n", ["title": "two"], zone: second)
    // The loss is said where nothing is owed too.
    #expect(try await a.run()?.code == .zoneLost)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.open().record(RecordID("n", zone: second))?["title"] == "two")
    // Neither a relaunch nor a word of the system ends what a person has to decide.
    try await b.close()
    try await b.write("m", zone: first)
    try await b.open().engine.wake(.foreground)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.open().status().zones.filter(\.isLost).map(\.id) == [first])
    #expect(try await b.unsettled == 1)
    try await b.open().engine.resync(first, from: .here)
    #expect(try await b.run() == nil)
    #expect(try await b.owesNothing)
  }
}

/// A cloud whose list of changed zones has one zone on each page.
private struct OneZoneAPage: ForwardingDatabase {
  let base: any CloudDatabase
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await base.databaseChanges(since: token, limit: 1)
  }
}
