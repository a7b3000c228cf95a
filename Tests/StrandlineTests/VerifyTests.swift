// Goal: a comparison with the server finds whatever differs, mends what needs no person, and leaves a healthy store as it
// was, byte for byte.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// Two devices with the same records; the second one's cloud can hide and refuse.
private func devices(_ count: Int) async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  try await a.open().write { tx in
    for index in 0..<count {
      try tx.save(Record(type: "Note", id: RecordID("n\(index)"), fields: ["title": .string("t\(index)")]))
    }
  }
  try await exchange(a, b, a)
  return (a, b, try await b.openRefusing())
}

extension Device {
  fileprivate func compared() async throws -> ZoneVerification {
    let found = try await open().engine.verify(.main)
    try await verify()
    return found
  }

  fileprivate var lastLSN: LSN { get async throws { try await open().durableLSN } }
}

@Suite(.timeLimit(.minutes(30))) struct VerifyTests {
  @Test func `a zone that the server has no page of is compared later, and no other one waits`() async throws {
    let (a, b, cloud) = try await devices(3)
    try await b.exchange()
    cloud.refuse { $0.zones[.main] = CloudError(.zoneBusy, reason: "later", retryAfter: 600) }
    var options = CycleOptions()
    options.waitMillisecondsMax = 0
    let store = try await b.open()
    let error = await #expect(throws: StrandlineError.self) { try await store.engine.verification(of: .main, options) }
    #expect(error?.code == .throttled && error?.retryAfter == 600, "\(String(describing: error))")
    try await a.write("n", zone: ZoneID("Work"))
    try await a.run()
    #expect(try await b.run() == nil)
    #expect(try await b.open().record(RecordID("n", zone: ZoneID("Work"))) != nil)
    cloud.refuse { $0.zones = [:] }
    let before = b.clock.monotonicNanoseconds()
    options.waitMillisecondsMax = 600_000
    #expect(try await store.engine.verification(of: .main, options).isEqual)
    #expect(b.clock.monotonicNanoseconds() - before >= 590_000_000_000, "what the server names is kept")
  }

  @Test func `202: a healthy pair has equal digests, and nothing is written`() async throws {
    let (a, b, cloud) = try await devices(7)
    try await b.exchange()
    cloud.refuse { $0.pageMax = 2 }
    cloud.forgetSent()
    let before = try await b.lastLSN
    let found = try await b.compared()
    #expect(found.isEqual && found.records == 7 && found.equal == 7 && found.mended == [] && found.unsent == 0)
    #expect(found.digestHere == found.digestThere && found.digestHere != 0)
    #expect(try await b.lastLSN == before)
    #expect(cloud.sent.isEmpty && cloud.count(.lookup) == 0)
    #expect(cloud.count(.zoneChanges) == 4, "one list of the zone")
    let there = try await a.compared()
    #expect(there.digestHere == found.digestHere, "devices that hold the same show the same")
  }

  @Test func `202: what is not sent is no difference`() async throws {
    let (_, b, cloud) = try await devices(3)
    try await b.put("n0", ["title": "edited"])
    try await b.put("mine", ["title": "new"])
    try await b.remove("n1")
    let before = try await b.lastLSN
    let found = try await b.compared()
    #expect(found.isEqual && found.records == 3 && found.unsent == 3)
    #expect(try await b.lastLSN == before)
    #expect(cloud.sent.isEmpty)
  }

  @Test func `203: what is missing here is fetched, what is missing there is removed, and what is older is replaced`()
    async throws
  {
    let (a, b, cloud) = try await devices(6)
    try await a.put("new", ["title": "new"])
    try await a.put("n1", ["title": "edited"])
    try await a.remove("n2")
    try await a.exchange()
    cloud.refuse { script in
      script.hidden = ["new", "n1"]
      script.hidesDeletions = true
    }
    try await b.exchange()
    cloud.refuse { $0.hidden = [] }
    // The feed is past them: no sync finds them.
    try await b.exchange()
    #expect(try await b.dump() != a.dump())
    let found = try await b.compared()
    #expect(found.isEqual && found.mended == ["n1", "n2", "new"], "\(found)")
    #expect(found.digestHere == found.digestThere)
    #expect(cloud.sent.isEmpty, "nothing is sent")
    try await expectAgreement(a, b)
    let before = try await b.lastLSN
    #expect(try await b.compared().mended == [])
    #expect(try await b.lastLSN == before)
  }

  @Test func `203: a change that is not sent outlives what is missing there, and is named`() async throws {
    let (a, b, cloud) = try await devices(4)
    try await a.remove("n2")
    try await a.exchange()
    try await b.put("n2", ["title": "edited here"])
    cloud.refuse { $0.hidesDeletions = true }
    let found = try await b.compared()
    #expect(!found.isEqual && found.missingThere == ["n2"] && found.unsent == 1, "\(found)")
    #expect(try await b.value("n2") == "edited here")
  }

  @Test func `203: what the list leaves out and the server has stays`() async throws {
    let (_, b, cloud) = try await devices(6)
    cloud.refuse { $0.hidden = ["n1", "n4"] }
    let found = try await b.compared()
    #expect(found.missingThere == ["n1", "n4"] && found.mended == [], "\(found)")
    #expect(try await b.dump().count == 6)
    #expect(cloud.count(.lookup) == 1)
    cloud.refuse { $0.hidden = Set((0..<6).map { "n\($0)" }) }
    #expect(try await b.compared().missingThere.count == 6)
    #expect(try await b.dump().count == 6)
    #expect(try await b.open().status().zones.allSatisfy { !$0.isLost })
  }

  @Test func `203: the last record of a zone goes if the server takes the zone's token`() async throws {
    let (a, b, cloud) = try await devices(1)
    try await b.exchange()
    try await a.remove("n0")
    try await a.exchange()
    cloud.refuse { $0.hidesDeletions = true }
    let found = try await b.compared()
    #expect(found.isEqual && found.mended == ["n0"], "\(found)")
    #expect(try await b.dump().isEmpty)
  }

  @Test func `203: another content under one tag is named, and nothing is made up`() async throws {
    let (_, b, cloud) = try await devices(3)
    try await b.exchange()
    var record = try await LateCloud(cloud.web).current("n1")
    record.fields["title"] = "rotten"
    let shown = ZoneChange.saved(record)
    cloud.refuse { $0.shown["n1"] = shown }
    let found = try await b.compared()
    #expect(!found.isEqual && found.different == ["n1"] && found.mended == [] && found.equal == 2)
    #expect(found.digestHere != found.digestThere)
    #expect(try await b.value("n1") == "t1")
  }

  @Test func `203: a server that lists much less removes nothing, and a person decides`() async throws {
    let (a, b, cloud) = try await devices(150)
    try await a.open().write { tx in for index in 0..<130 { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    cloud.refuse { $0.hidesDeletions = true }
    let found = try await b.compared()
    #expect(!found.isEqual && found.missingThere.count == 130 && found.records == 20)
    #expect(try await b.dump().count == 150)
    #expect(try await b.open().status().zones.first?.lostReason == .missingRecords)
    let error = await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(error?.code == .zoneLost)
  }

  @Test func `what another device changes during the comparison is no difference`() async throws {
    let (a, b, cloud) = try await devices(9)
    try await b.exchange()
    cloud.forgetSent()
    cloud.refuse { script in
      script.pageMax = 3
      script.beforePage = { number in
        guard number == 2 else { return }
        try await a.put("n0", ["title": "edited"])
        try await a.put("n8", ["title": "edited"])
        try await a.put("new", ["title": "new"])
        try await a.remove("n7")
        try await a.remove("n1")
        try await a.exchange()
      }
    }
    let found = try await b.compared()
    #expect(found.isEqual && found.mended == [], "\(found)")
    #expect(found.digestHere == found.digestThere)
    try await expectAgreement(a, b)
  }

  @Test func `errors of the server end it, and what was never synced or is lost is refused`() async throws {
    let (_, b, cloud) = try await devices(2)
    let never = await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(ZoneID("Never")) }
    #expect(never?.code == .noSuchZone)
    cloud.forgetSent()
    cloud.refuse { $0.requests[.zoneChanges] = [CloudError(.accessDenied, reason: "no")] }
    let refused = await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(refused?.message.contains("ACCESS_DENIED") == true)
    try await cloud.web.deleteZone(.main)
    let lost = await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(lost?.code == .zoneLost)
  }
}
