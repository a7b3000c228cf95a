// Goal: two names are one if their bytes are one, and two if they are not, whatever Unicode calls equal: of records, zones
// and owners, in memory, in sorted tables, in references, on the way to the server and at the server. Method: pairs of names
// that are canonically equivalent, which a foreign tool has made at the server, through every path that keeps a name.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import Testing

extension Device {
  /// What a foreign tool makes at the server.
  fileprivate func makeForeign(
    _ names: [String], in zone: ZoneID = .main, fields: [String: FieldValue?] = [:]
  ) async throws {
    let web = web()
    try await web.createZone(zone)
    for name in names {
      let fields = fields.merging(["title": .string("of " + name)]) { $1 }
      let made = try await web.modify(
        [CloudOperation(.create, name: name, type: "Note", fields: fields)], in: zone, atomic: false)
      guard case .record? = made[CloudName(name)] else {
        throw CloudError(.badRequest, reason: "the server did not create '\(name)'")
      }
    }
  }

  fileprivate func deleteForeign(_ name: String, in zone: ZoneID = .main) async throws {
    _ = try await web().modify([CloudOperation(.forceDelete, name: name)], in: zone, atomic: false)
  }

  /// Expects that exactly these records live, each under its own bytes, in a list and by themselves.
  fileprivate func expect(
    _ names: [String], gone: [String] = [], in zone: ZoneID = .main, _ when: String,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    let store = try await open()
    let listed = try store.recordIDs(ofType: "Note", in: zone).map { Array($0.name.utf8) }
    let sorted = names.map { Array($0.utf8) }.sorted { $0.lexicographicallyPrecedes($1) }
    #expect(listed == sorted, "\(when)", sourceLocation: sourceLocation)
    for name in names {
      let found = try store.record(RecordID(name, zone: zone))
      #expect(found.map { Array($0.id.name.utf8) } == Array(name.utf8), "\(when)", sourceLocation: sourceLocation)
      #expect(found?["title"] == .string("of " + name), "\(when)", sourceLocation: sourceLocation)
    }
    for name in gone {
      #expect(try store.record(RecordID(name, zone: zone)) == nil, "\(when)", sourceLocation: sourceLocation)
    }
    try await verify()
  }

  fileprivate func flush() async throws { try await open().index?.flush() }
}

@Suite(.timeLimit(.minutes(30))) struct NameTests {
  @Test(arguments: NamePair.all)
  func `identities are equal if their bytes are`(_ pair: NamePair) {
    #expect(pair.one == pair.other, "the test needs names that Unicode calls equal")
    func expectTwo<Value: Hashable>(_ one: Value, _ other: Value, _ again: Value) {
      #expect(one != other && one == again && one.hashValue == again.hashValue)
      #expect(Set([one, other, again]).count == 2)
    }
    // Not the same memory, and too long to lie within a string's own words.
    func copy(_ text: String) -> String { String(decoding: Array(text.utf8), as: UTF8.self) }
    for suffix in ["", String(repeating: "x", count: 40)] {
      let (one, other, again) = (pair.one + suffix, pair.other + suffix, copy(pair.one + suffix))
      expectTwo(CloudName(one), CloudName(other), CloudName(again))
      expectTwo(RecordID(one), RecordID(other), RecordID(again))
      expectTwo(
        RecordID("r", zone: ZoneID(one)), RecordID("r", zone: ZoneID(other)), RecordID("r", zone: ZoneID(again)))
      expectTwo(ZoneID(one), ZoneID(other), ZoneID(again))
      expectTwo(
        ZoneID("z", owner: one, scope: .shared), ZoneID("z", owner: other, scope: .shared),
        ZoneID("z", owner: again, scope: .shared))
      expectTwo(Reference(one), Reference(other), Reference(again))
      expectTwo(
        FieldValue.reference(Reference(one)), .reference(Reference(other)), .reference(Reference(again)))
      expectTwo(ChangeToken(rawValue: one), ChangeToken(rawValue: other), ChangeToken(rawValue: again))
      expectTwo(SystemFields(changeTag: one), SystemFields(changeTag: other), SystemFields(changeTag: again))
      let id = RecordID("r")
      expectTwo(
        Record(type: "Note", id: id, parent: one), Record(type: "Note", id: id, parent: other),
        Record(type: "Note", id: id, parent: again))
      #expect((RecordID(one) < RecordID(other)) == one.utf8.lexicographicallyPrecedes(other.utf8))
      #expect((CloudName(one) < CloudName(other)) == one.utf8.lexicographicallyPrecedes(other.utf8))
    }
  }

  @Test(arguments: NamePair.all)
  func `two records of a page stay two`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    try await a.makeForeign([pair.one, pair.other])
    try await a.exchange()
    try await a.expect([pair.one, pair.other], "in memory")
    try await a.flush()
    try await a.expect([pair.one, pair.other], "in a table")
    try await a.close()
    try await a.expect([pair.one, pair.other], "opened")
    #expect(try await a.compact().broken == nil)
    try await a.expect([pair.one, pair.other], "compacted")
    try await a.deleteForeign(pair.one)
    try await a.exchange()
    try await a.expect([pair.other], gone: [pair.one], "one is deleted at the server")
    try await a.flush()
    try await a.expect([pair.other], gone: [pair.one], "its deletion is in a table")
    #expect(try await a.compact().broken == nil)
    try await a.close()
    try await a.expect([pair.other], gone: [pair.one], "compacted and opened")
  }

  @Test(arguments: NamePair.all)
  func `one that is in a table does not take the other with it`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    try await a.makeForeign([pair.one])
    try await a.exchange()
    try await a.flush()
    try await a.makeForeign([pair.other])
    try await a.exchange()
    try await a.expect([pair.one, pair.other], "one in a table, one in memory")
    try await a.remove(pair.one)
    try await a.expect([pair.other], gone: [pair.one], "one is deleted here")
    try await a.exchange()
    try await a.close()
    try await a.expect([pair.other], gone: [pair.one], "sent and opened")
    guard case .record? = try await a.web().lookup([pair.other], in: .main)[CloudName(pair.other)] else {
      Issue.record("the server lost the other one")
      return
    }
  }

  @Test(arguments: NamePair.all)
  func `an edit of one goes out under its name`(_ pair: NamePair) async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let cloud = try await a.openRefusing()
    try await a.makeForeign([pair.one, pair.other])
    try await a.exchange()
    try await a.put(pair.one, ["text": "edited"])
    try await a.put(pair.other, ["text": "edited too"])
    try await a.exchange()
    let sent = cloud.sent.joined().map { Array($0.utf8) }
    #expect(sent == [Array(pair.one.utf8), Array(pair.other.utf8)])
    #expect(try await a.open().status().unsettled == 0)
    let b = fleet.device("b")
    try await b.exchange()
    #expect(try await b.value(pair.one, "text") == "edited")
    #expect(try await b.value(pair.other, "text") == "edited too")
    #expect(try await b.dump() == a.dump())
  }

  @Test(arguments: NamePair.all)
  func `two zones are both fetched`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    let (one, other) = (ZoneID(pair.one), ZoneID(pair.other))
    try await a.makeForeign(["r"], in: one)
    try await a.makeForeign(["r", "s"], in: other)
    try await a.exchange()
    try await a.expect(["r"], in: one, "fetched")
    try await a.expect(["r", "s"], in: other, "fetched")
    try await a.web().deleteZone(one)
    await #expect(throws: (any Error).self) { try await a.exchange() }
    try await a.close()
    try await a.expect(["r", "s"], in: other, "the one is lost")
  }

  @Test(arguments: NamePair.all)
  func `a reference from one to the other is a change, and is sent`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    try await a.makeForeign([pair.one, pair.other])
    try await a.makeForeign(["r"], fields: ["to": .reference(Reference(pair.one))])
    try await a.exchange()
    try await a.put("r", ["to": .reference(Reference(pair.other))])
    #expect(try await a.open().status().unsettled == 1)
    try await a.exchange()
    guard case .record(let server)? = try await a.web().lookup(["r"], in: .main)["r"] else {
      Issue.record("the server does not have it")
      return
    }
    guard case .reference(let reference)? = server.fields["to"] else {
      Issue.record("it refers to nothing")
      return
    }
    #expect(Array(reference.name.utf8) == Array(pair.other.utf8))
  }

  @Test(arguments: NamePair.all)
  func `a comparison with the server counts both`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    try await a.makeForeign([pair.one, pair.other])
    try await a.exchange()
    let found = try await a.open().engine.verify(.main)
    #expect(found.isEqual && found.records == 2 && found.equal == 2, "\(found)")
  }

  @Test(arguments: NamePair.all)
  func `what hangs on one does not wait for the other`(_ pair: NamePair) async throws {
    let a = try Fleet().device("a")
    try await a.makeForeign([pair.one, pair.other])
    try await a.exchange()
    // The one is deleted while a record that would go with the other one is saved.
    try await a.put("child", ["owner": .reference(Reference(pair.other, action: .deleteSelf))], type: "Child")
    try await a.remove(pair.one)
    try await a.exchange()
    try await a.expect([pair.other], gone: [pair.one], "the one is deleted")
    #expect(try await a.lives("child"))
    #expect(try await a.open().status().unsettled == 0)
  }
}
