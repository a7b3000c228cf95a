// How records come to the server: batches, refusals of all and of some, and waits. The names of the tests begin with the
// numbers of the scenarios.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct ScenarioUploadTests {
  @Test func `27: 1,000 saves and 500 deletions go within the limit, each once`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    func transaction(_ body: @escaping @Sendable (inout WriteTransaction) throws -> Void) async throws {
      try await a.open().write { tx in try body(&tx) }
    }
    try await transaction { tx in
      for number in 0..<500 { try tx.save(Record(type: "Note", id: RecordID("old\(number)"))) }
    }
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    try await transaction { tx in
      for number in 0..<1000 { try tx.save(Record(type: "Note", id: RecordID("new\(number)"))) }
      for number in 0..<500 { try tx.delete(RecordID("old\(number)")) }
    }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.allSatisfy { $0.count <= 200 } && cloud.sent.count == 8)
    #expect(cloud.sent.joined().count == 1500 && Set(cloud.sent.joined()).count == 1500)
    #expect(try await a.owesNothing)
  }

  @Test func `29: a batch whose items are all refused as too many is halved at once`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      for number in 0..<100 { script.items["n\(number)"] = [CloudError(.limitExceeded, reason: "too many")] }
    }
    for number in 0..<100 { try await a.write("n\(number)") }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [100, 50, 50])
    #expect(a.clock.sleeps.isEmpty)
    #expect(try await a.owesNothing)
  }

  @Test func `32: a batch is cut by its bytes before it is sent`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let text = FieldValue.string(String(repeating: "x", count: 400_000))
    for number in 0..<12 { try await a.write("n\(number)", ["text": text]) }
    #expect(try await a.run() == nil)
    for batch in cloud.script.withLock({ $0.batches }) {
      #expect(batch.reduce(0) { $0 + UploadPlan.jsonBytes($1) } <= 2_000_000 && batch.count > 1)
    }
    #expect(try await a.owesNothing)
  }

  @Test func `37: an answer whose items have failed acknowledges none of them`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["n", "m"] {
      cloud.refuse { $0.items[name] = [CloudError(.accessDenied, reason: "no")] }
      try await a.write(name)
    }
    _ = try await a.run()
    #expect(cloud.sent == [["n", "m"]])
    #expect(try await a.unsettled == 2)
    #expect(try await a.open().status().held.count == 2)
  }

  @Test func `38: of five records three are saved, one waits for its time, and one is merged`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.put("n4", ["body": "theirs"])
    try await b.exchange()
    let cloud = try await a.openRefusing()
    try await a.exchange()
    // After the fetch of the cycle, so that the refusal is the first that is heard of it.
    for number in 0..<5 { try await a.write("n\(number)", ["title": "ours"]) }
    cloud.refuse { script in
      script.items["n3"] = [CloudError(.throttled, reason: "later", retryAfter: 3)]
      script.beforeModify = { number in
        guard number == 1 else { return }
        try await b.put("n4", ["body": "theirs again"])
        try await b.exchange()
      }
    }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.first?.count == 5 && Set(cloud.sent.dropFirst().joined()).isSubset(of: ["n3", "n4"]))
    #expect(a.clock.sleeps.reduce(0, +) >= 3_000)
    try await b.exchange()
    #expect(try await b.value("n4") == "ours")
    #expect(try await b.value("n4", "body") == "theirs again")
    try await expectAgreement(a, b)
  }

  @Test func `39: a network that is gone is tried again without end, and costs no hold`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "no route") } }
    try await a.write("n")
    for _ in 0..<20 { #expect(try await a.run()?.code == .unreachable) }
    #expect(try await a.open().status().held.isEmpty)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `41: a person may go early where the wait is the engine's own, and not where the server named it`()
    async throws
  {
    for named in [nil, 60.0] {
      let a = try Fleet().device("a")
      let cloud = try await a.openRefusing()
      cloud.refuse { $0.requests[.modify] = [CloudError(.serviceUnavailable, reason: "busy", retryAfter: named)] }
      try await a.write("n")
      #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
      var byItself = CycleOptions()
      (byItself.isUserInitiated, byItself.waitMillisecondsMax) = (false, 0)
      _ = try? await a.open().engine.cycle(byItself)
      #expect(cloud.count(.modify) == 1)
      let error = try await a.run(waitMillisecondsMax: 0)
      #expect(named == nil ? error == nil : error?.code == .throttled)
      #expect(cloud.count(.modify) == (named == nil ? 2 : 1))
    }
  }

  @Test func `43: a zone that is not there yet is made before its first records`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for number in 0..<3 { try await a.write("n\(number)", zone: ZoneID("New")) }
    #expect(try await a.run() == nil)
    #expect(cloud.count(.createZone) == 1 && cloud.sent.map(\.count) == [3])
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [CloudError.Code.accessDenied, .badRequest, .uniqueFieldError])
  func `48, 51: a record that the server refuses is held with its words until it is edited, and the others go`(
    _ code: CloudError.Code
  ) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(code, reason: "the server's words")] }
    for name in ["n", "m", "o"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    let held = try #require(try await a.open().status().held.first)
    #expect(held.id.name == "n" && held.code == code && held.reason == "the server's words")
    #expect(try await a.unsettled == 1)
    cloud.forgetSent()
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.count(.modify) == 0)
    try await a.write("n", ["title": "mended"])
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `49: a deletion without permission is held, and a person has the record back`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "kept"])
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "not yours")] }
    try await a.erase("n")
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.code) == [.accessDenied])
    try await a.open().discardChanges(of: [RecordID("n")])
    #expect(try await a.value("n") == "kept")
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `54: an upload ends although the app writes on, and the newest of each record arrives`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.open().write { tx in
      for number in 0..<1000 { try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["title": "old"])) }
    }
    cloud.refuse {
      $0.beforeModify = { number in
        guard number <= 10 else { return }
        try await a.write("n\(number * 37)", ["title": "newer"])
        try await a.write("late\(number)")
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    #expect(cloud.sent.count < 20)
    try await b.exchange()
    #expect(try await b.value("n370") == "newer")
    #expect(try await b.lives("late10"))
    try await expectAgreement(a, b)
  }

  @Test func `decision 18: a server that refuses each record of a type, together and alone, halts the type`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.exchange()
    for number in 0..<8 { try await a.write("n\(number)", ["title": "t"]) }
    try await a.write("other", type: "Other")
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, operations.contains(where: { $0.type == "Note" }) else { return nil }
        return CloudError(.badRequest, reason: "no type Note")
      }
    }
    let error = try await a.run()
    #expect(error?.code == .serverRefused && error?.message.contains("every 'Note'") == true)
    #expect(cloud.count(.modify) <= 2 * 4 + 2)
    let status = try await a.open().status()
    #expect(status.held.isEmpty && status.unsettled == 8, "no record is held for what is wrong with its type")
    #expect(try await a.open().engine.status.halts.map(\.type) == ["Note"])
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  /// What was synced, of which the app then takes the link of "child" to "target" away and deletes "target" and "gone".
  private func deleted(
    childType: String, _ zone: ZoneID = .main, _ refusal: @escaping @Sendable ([CloudOperation]) -> CloudError?
  ) async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["gone", "target"] { try await a.write(name, ["title": "old"], zone: zone) }
    try await a.write("child", ["title": "old", "link": link("target", .deleteSelf)], type: childType, zone: zone)
    for number in 0..<2 { try await a.write("child\(number)", ["title": "old"], type: childType, zone: zone) }
    try await a.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.refusal = { request, operations in request == .modify ? refusal(operations) : nil }
    }
    for number in 0..<2 { try await a.write("child\(number)", ["title": "new"], zone: zone) }
    try await a.open().write { tx in
      var child = try #require(try tx.record(RecordID("child", zone: zone)))
      (child["title"], child["link"]) = ("new", nil)
      try tx.save(child)
    }
    try await a.erase("target", zone: zone)
    try await a.erase("gone", zone: zone)
    return (a, b, cloud)
  }

  /// The deletion that takes nothing along has gone; the other one goes behind the save, when that is taken.
  private func expectDeletions(_ a: Device, _ b: Device, _ cloud: RefusingCloud, _ zone: ZoneID = .main) async throws {
    try await b.exchange()
    #expect(try await b.open().record(RecordID("gone", zone: zone)) == nil)
    #expect(try await b.open().record(RecordID("target", zone: zone)) != nil)
    #expect(try await a.unsettled == 4)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.open().record(RecordID("child", zone: zone))?["title"] == "new")
    #expect(try await b.open().record(RecordID("target", zone: zone)) == nil)
    try await expectAgreement(a, b)
  }

  @Test func `50, 137: of a request over quota the saves wait, and the deletions go that free it`() async throws {
    let (a, b, cloud) = try await deleted(childType: "Note") { operations in
      operations.contains { $0.kind != .delete } ? CloudError(.quotaExceeded, reason: "full") : nil
    }
    let error = try await a.run()
    #expect(error?.code == .serverRefused && error?.message.contains("full") == true)
    #expect(cloud.sent.map { $0.sorted() } == [["child", "child0", "child1"], ["gone"]])
    #expect(try await a.open().engine.status.halts.map(\.zone) == [.main])
    #expect(try await a.open().pendingChange(of: RecordID("child0"))?.obstacle != nil)
    try await expectDeletions(a, b, cloud)
  }

  @Test func `50: over quota one refusal stops the saves of every zone of that user`() async throws {
    let a = try Fleet().device("a")
    let zones = ["One", "Two", "Three"].map { ZoneID($0) }
    for zone in zones {
      for name in ["n", "gone"] { try await a.write(name, ["title": "old"], zone: zone) }
    }
    try await a.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.refusal = { request, operations in
        request == .modify && operations.contains { $0.kind != .delete } ? CloudError(.quotaExceeded) : nil
      }
    }
    for zone in zones {
      try await a.write("n", ["title": "new"], zone: zone)
      try await a.erase("gone", zone: zone)
    }
    #expect(try await a.run()?.code == .serverRefused)
    #expect(cloud.sent.filter { $0 == ["n"] }.count == 1)
    #expect(cloud.sent.filter { $0 == ["gone"] }.count == zones.count)
    let store = try await a.open()
    #expect(try Set(store.engine.status.halts.compactMap(\.zone)) == Set(zones))
    for zone in zones {
      #expect(try store.pendingChange(of: RecordID("n", zone: zone))?.obstacle != nil)
    }
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `50: a full storage is not tried again with each write, but after its wait, or for a person`()
    async throws
  {
    let a = try Fleet().device("a")
    for name in ["old", "older"] { try await a.write(name) }
    try await a.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.refusal = { request, operations in
        request == .modify && operations.contains { $0.kind != .delete } ? CloudError(.quotaExceeded) : nil
      }
    }
    /// Runs as the engine does by itself, and returns how many requests with saves it made.
    func tries(isUserInitiated: Bool = false) async throws -> Int {
      cloud.forgetSent()
      #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: isUserInitiated)?.code == .serverRefused)
      return cloud.script.withLock { $0.batches.count { $0.contains { $0.kind != .delete } } }
    }
    try await a.write("n0")
    #expect(try await tries() == 1)
    for number in 1..<5 {
      try await a.write("n\(number)")
      #expect(try await tries() == 0)
    }
    #expect(try await a.open().engine.status.halts.map(\.zone) == [.main])
    // Five minutes, then ten.
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 0)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    // What a deletion frees may be enough: that is tried after five minutes, and not after twenty.
    try await a.erase("old")
    #expect(try await tries() == 0)
    a.clock.advance(milliseconds: 200_000)
    try await a.erase("older")
    #expect(try await tries() == 0)
    a.clock.advance(milliseconds: 100_001)
    #expect(try await tries() == 1)
    #expect(try await tries() == 0)
    #expect(try await tries(isUserInitiated: true) == 1)
    // What the app takes back is owed no more, and no error.
    for number in 0..<5 { try await a.erase("n\(number)") }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    #expect(try await a.owesNothing)
    #expect(try await a.open().engine.status.halts.isEmpty)
    try await a.write("n")
    #expect(try await tries() == 0)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [RefusingCloud.Request.modify, .createZone])
  func `48, 49: a zone that may not be written to is not tried with each write, but fetched, and tried after a wait`(
    _ refused: RefusingCloud.Request
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.exchange()
    if refused == .modify {
      try await b.put("theirs", ["title": "first"])
      try await b.exchange()
      try await a.exchange()
    }
    cloud.refuse { script in
      script.refusal = { request, _ in request == refused ? CloudError(.accessDenied, reason: "read only") : nil }
    }
    /// Runs as the engine does by itself, and returns how many of the requests it made that are refused.
    func tries(isUserInitiated: Bool = false) async throws -> Int {
      let before = cloud.count(refused)
      let error = try await a.run(waitMillisecondsMax: 0, isUserInitiated: isUserInitiated)
      #expect(error?.code == .serverRefused && error?.message.contains("read only") == true)
      return cloud.count(refused) - before
    }
    try await a.write("n0")
    #expect(try await tries() == 1)
    for number in 1..<4 {
      try await a.write("n\(number)")
      #expect(try await tries() == 0)
    }
    #expect(try await a.open().engine.status.halts.map(\.zone) == [.main])
    if refused == .modify {
      // Deletions are not sent either; what others write is fetched.
      try await a.erase("n1")
      try await b.put("theirs", ["title": "second"])
      try await b.exchange()
      #expect(try await tries() == 0)
      #expect(try await a.open().record(RecordID("theirs"))?.fields["title"] == .string("second"))
    }
    // Five minutes, then ten.
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 0)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    #expect(try await tries(isUserInitiated: true) == 1)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: true) == nil)
    #expect(try await a.owesNothing)
    // The next refusal is the first one again.
    cloud.refuse { script in
      script.refusal = { request, _ in request == .modify ? CloudError(.accessDenied, reason: "read only") : nil }
    }
    try await a.write("later")
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)?.code == .serverRefused)
    a.clock.advance(milliseconds: 300_001)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `50: deletions that are refused over quota stop as well`() async throws {
    let (a, _, cloud) = try await deleted(childType: "Note") { _ in CloudError(.quotaExceeded, reason: "full") }
    #expect(try await a.run()?.code == .serverRefused)
    #expect(cloud.sent.map { $0.sorted() } == [["child", "child0", "child1"], ["gone"]])
    #expect(try await a.unsettled == 5)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `50: half of a batch that is over quota stops the other half`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.exchange()
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify else { return nil }
        return CloudError(operations.count > 2 ? .limitExceeded : .quotaExceeded)
      }
    }
    for number in 0..<4 { try await a.write("n\(number)") }
    #expect(try await a.run()?.code == .serverRefused)
    #expect(cloud.sent.map(\.count) == [4, 2])
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `50: of a set that is over quota not even the deletions go`() async throws {
    let a = try Fleet().device("a")
    for name in ["kept", "gone", "other"] { try await a.write(name, ["title": "old"]) }
    try await a.exchange()
    let cloud = try await a.openRefusing(atomicZones: [.main])
    cloud.refuse { script in
      script.refusal = { request, operations in
        request == .modify && operations.contains { $0.kind != .delete } ? CloudError(.quotaExceeded) : nil
      }
    }
    try await a.open().write { tx in
      var kept = try #require(try tx.record(RecordID("kept")))
      kept["title"] = "new"
      try tx.save(kept)
      try tx.delete(RecordID("gone"))
    }
    try await a.erase("other")
    #expect(try await a.run()?.code == .serverRefused)
    #expect(cloud.sent.map { Set($0) } == [["other"], ["kept", "gone"]])
    cloud.refuse { $0.refusal = nil }
    cloud.forgetSent()
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map { Set($0) } == [["kept", "gone"]])
    #expect(try await a.owesNothing)
  }

  /// Every code that one record may be refused with.
  private static let codes: [CloudError.Code] = [
    .accessDenied, .atomicError, .authenticationFailed, .authenticationRequired, .badRequest, .conflict, .exists,
    .internalError, .notFound, .quotaExceeded, .throttled, .tryAgainLater, .validatingReferenceError, .zoneNotFound,
    .uniqueFieldError, .zoneBusy, .limitExceeded, .serviceUnavailable, CloudError.Code(rawValue: "NEVER_HEARD_OF"),
  ]

  @Test(arguments: codes) func `90: a save that is refused keeps what it refers to at the server`(
    _ code: CloudError.Code
  ) async throws {
    let (a, b, cloud) = try await deleted(childType: "Kind") { _ in nil }
    cloud.refuse { script in
      for name in ["child", "child0", "child1"] { script.items[name] = [CloudError(code, reason: "no \(name)")] }
      script.isForever = true
    }
    for round in 0..<2 {
      _ = try await a.run()
      #expect(cloud.sent.joined().contains("gone"), "the run came to the deletions")
      try await b.exchange()
      #expect(try await b.open().record(RecordID("target")) != nil)
      #expect(try await b.open().record(RecordID("child")) != nil)
      // The server's version changes, and with it what is known of the record that waits.
      try await b.write("child", ["other": .int64(Int64(round))], type: "Kind")
      try await b.exchange()
    }
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    let store = try await a.open()
    try await store.releaseHolds(of: store.status().held.map(\.id))
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    #expect(try await b.open().record(RecordID("child"))?["title"] == "new")
    #expect(try await b.open().record(RecordID("target")) == nil)
    try await expectAgreement(a, b)
  }

  @Test func `decision 18: what is halted keeps what it refers to at the server`() async throws {
    let (a, b, cloud) = try await deleted(childType: "Kind") { operations in
      operations.contains { $0.type == "Kind" && $0.kind != .delete } ? CloudError(.badRequest, reason: "no Kind") : nil
    }
    #expect(try await a.run()?.message.contains("every 'Kind'") == true)
    try await expectDeletions(a, b, cloud)
  }

  @Test func `decision 18: of what is halted one is tried again by itself, later and later`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for number in 0..<4 { try await a.write("n\(number)", ["title": "t"]) }
    let refused = CloudError(.badRequest, reason: "no type Note")
    cloud.refuse { script in
      script.refusal = { request, _ in request == .modify ? refused : nil }
    }
    var automatic = CycleOptions()
    automatic.isUserInitiated = false
    func run() async throws -> StrandlineError.Code? {
      do { _ = try await a.open().engine.cycle(automatic) } catch let error as StrandlineError { return error.code }
      return nil
    }
    #expect(try await run() == .serverRefused)
    cloud.forgetSent()
    // Five minutes, then ten, up to a day.
    for tries in 1...14 {
      let wait = min(24 * 3_600_000, Int64(300_000) << Int64(tries - 1))
      a.clock.advance(milliseconds: wait - 1_000)
      #expect(try await run() == .serverRefused)
      #expect(cloud.count(.modify) == tries - 1)
      a.clock.advance(milliseconds: 1_001)
      #expect(try await run() == .serverRefused)
      #expect(cloud.count(.modify) == tries)
    }
    #expect(cloud.sent.allSatisfy { $0.count == 1 })
    cloud.refuse { $0.refusal = nil }
    a.clock.advance(milliseconds: 24 * 3_600_000 + 1)
    #expect(try await run() == nil)
    #expect(cloud.sent.suffix(2).map(\.count) == [1, 3])
    #expect(try await a.owesNothing)
  }

  @Test func `decision 18: where one record of a type is taken, the others that are refused alone are held`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for number in 0..<8 { try await a.write("n\(number)", ["title": "t"]) }
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, operations.map(\.name) != ["n0"] else { return nil }
        return CloudError(.badRequest, reason: "no")
      }
    }
    let error = try await a.run()
    #expect(error == nil, "\(cloud.sent)")
    #expect(try await a.open().status().held.map(\.id.name).sorted() == (1..<8).map { "n\($0)" })
    try await b.exchange()
    #expect(try await b.lives("n0"))
  }

  @Test func `thousands of deletions are sent, and what was written behind them`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let names = (0..<4_600).map { "n\($0)" }
    try await a.open().write { tx in for name in names { try tx.save(Record(type: "Note", id: RecordID(name))) } }
    // Without the harness's replay of the log at each event.
    try await a.sync()
    try await a.open().write { tx in for name in names { try tx.delete(RecordID(name)) } }
    try await a.write("behind")
    try await a.sync()
    #expect(try await a.owesNothing)
    try await b.sync()
    #expect(try await b.dump().count == 1)
  }
}
