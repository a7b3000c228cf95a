// Goal: two limits that are not this store's: a key that this device does not have, and more references to one record than
// the server takes. Each costs what it is about and nothing else: no value is erased, and everything else goes on.

import Strandline
import StrandlineServer
import StrandlineSyncProofs
import Synchronization
import Testing

/// What a cloud says of a record whose encrypted fields it cannot decrypt here.
private let noKey: CloudError = {
  var error = CloudError(.unexpectedServerResponse, reason: "the key of the encrypted fields is not on this device")
  error.raw = Array(#"{"recordName":"n"}"#.utf8)
  return error
}()

@Suite(.timeLimit(.minutes(30))) struct `A key that is not on this device` {
  /// Two devices with a record that has an encrypted field; the second one has no key from now on.
  private func devices() async throws -> (fleet: Fleet, a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let secret: FieldValue = .encrypted("one")
    try await a.put("n", ["secret": secret, "title": "t"])
    try await a.put("other", ["title": "t"])
    try await exchange(a, b)
    let cloud = try await b.openRefusing()
    cloud.refuse { $0.shown["n"] = .failed(name: "n", noKey) }
    return (fleet, a, b, cloud)
  }

  @Test(arguments: [false, true])
  func `139: a record whose key is missing here stays as it was, and is asked for again`(
    _ expires: Bool
  ) async throws {
    let (_, a, b, cloud) = try await devices()
    let secret: FieldValue = .encrypted("two")
    try await a.put("n", ["secret": secret])
    try await a.put("other", ["title": "new"])
    try await a.exchange()
    if expires {
      cloud.refuse {
        $0.requests[.zoneChanges] = [CloudError(.changeTokenExpired, reason: "the sync token has expired")]
      }
    }
    try await b.exchange()
    #expect(try await b.value("n", "secret") == .encrypted("one"))
    #expect(try await b.value("other") == "new", "the others go on")
    let held = try await b.open().status().held
    #expect(held.map(\.id.name) == ["n"])
    #expect(held.first?.isDownload == true)
    #expect(held.first?.reason.contains("key of the encrypted fields") == true)
    #expect(try await b.open().engine.status.held.first?.isDownload == true)
    // The key is there: a person has it asked for again.
    cloud.refuse { $0.shown = [:] }
    try await b.open().releaseHolds(of: [RecordID("n")])
    try await b.exchange()
    #expect(try await b.value("n", "secret") == secret)
    try await expectAgreement(a, b)
  }

  @Test func `139: what is edited here without the key overwrites nothing, and is merged when the key is there`()
    async throws
  {
    let (_, a, b, cloud) = try await devices()
    let secret: FieldValue = .encrypted("two")
    try await a.put("n", ["secret": secret])
    try await a.exchange()
    try await b.put("n", ["title": "edited"])
    _ = try await b.run()
    // The server's version cannot be read here, so there is nothing to merge the edit with: it waits or is held.
    #expect(try await b.unsettled == 1)
    #expect(try await b.value("n") == "edited")
    #expect(try await b.value("n", "secret") == .encrypted("one"))
    try await a.exchange()
    #expect(try await a.value("n", "secret") == secret)
    #expect(try await a.value("n") == "t")
    cloud.refuse { $0.shown = [:] }
    let held = try await b.open().status().held.map(\.id)
    if !held.isEmpty { try await b.open().releaseHolds(of: held) }
    #expect(try await b.run() == nil)
    try await exchange(b, a)
    #expect(try await a.value("n") == "edited")
    #expect(try await b.value("n", "secret") == secret)
    try await expectAgreement(a, b)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A record to which more refer than the server takes` {
  @Test func `151: of more references to one record than the server takes, the others go`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.open().write { tx in
      for name in ["full", "free"] { try tx.save(Record(type: "List", id: RecordID(name))) }
      for index in 0..<755 {
        let fields = ["list": link("full", .deleteSelf)]
        try tx.save(Record(type: "Item", id: RecordID("i\(index)"), fields: fields))
      }
      for index in 0..<5 {
        let fields = ["list": link("free", .deleteSelf)]
        try tx.save(Record(type: "Item", id: RecordID("j\(index)"), fields: fields))
      }
    }
    #expect(try await a.run() == nil)
    let held = try await a.open().status().held
    #expect(held.map(\.id.name) == (750..<755).map { "i\($0)" })
    #expect(held.allSatisfy { $0.code == .badRequest && $0.reason.contains("750") && $0.retryMilliseconds == nil })
    #expect(try await a.unsettled == 5)
    #expect(cloud.sent.count <= 6)
    // One of them that is deleted makes room for one that is held.
    try await a.remove("i0")
    #expect(try await a.run() == nil)
    try await a.open().releaseHolds(of: [RecordID("i750")])
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.count == 4)
  }

  @Test func `151: a record that is full does not stop the references to other ones`() async throws {
    var limits = ServerLimits()
    limits.deleteSelfSourcesMax = 2
    let a = try Fleet(limits: limits).device("a")
    _ = try await a.openRefusing()
    for name in ["full", "free"] { try await a.write(name, type: "List") }
    for index in 0..<2 { try await a.write("i\(index)", ["list": link("full", .deleteSelf)], type: "Item") }
    #expect(try await a.run() == nil)
    // A request in which every record of a type is refused in the same words, and no run that a person asks for.
    for index in 2..<6 { try await a.write("i\(index)", ["list": link("full", .deleteSelf)], type: "Item") }
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.count == 4)
    #expect(try await a.open().engine.status.halts.isEmpty)
    try await a.write("j", ["list": link("free", .deleteSelf)], type: "Item")
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.count == 4)
    #expect(try await a.unsettled == 4)
  }
}
