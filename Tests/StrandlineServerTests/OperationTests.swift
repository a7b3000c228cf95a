// Goal: every kind of operation on every state of a record is answered as CloudKit does. Method: this package's client
// over the in-process transport, so that JSON is tested too; one row for each case.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct OperationTests {
  enum State: CaseIterable { case missing, living, deleted }
  enum Tag: CaseIterable { case none, current, stale }

  /// What each operation must answer: nil is success.
  static func expected(_ kind: CloudOperation.Kind, _ state: State, _ tag: Tag) -> CloudError.Code? {
    switch kind {
    case .create: state == .living ? .exists : nil
    case .forceUpdate, .forceReplace, .forceDelete: nil
    case .update, .replace, .delete:
      tag == .none ? .badRequest : state != .living ? .notFound : tag == .stale ? .conflict : nil
    }
  }

  @Test(arguments: CloudOperation.Kind.allCases, State.allCases)
  func `each operation meets each state with each tag`(_ kind: CloudOperation.Kind, _ state: State) async throws {
    for tag in Tag.allCases {
      let server = CloudServer.still()
      let client = server.client()
      try await client.createZone(notes)
      var current: String?
      if state != .missing {
        current = try await client.note("n", ["title": "old", "body": "kept"])
        if state == .deleted { _ = try await client.one(CloudOperation(.forceDelete, name: "n")) }
      }
      let sent: String? = tag == .none ? nil : tag == .current ? current ?? "1e" : "stale"
      let operation = CloudOperation(
        kind, name: "n", type: kind == .delete || kind == .forceDelete ? "" : "Note", changeTag: sent,
        fields: kind == .delete || kind == .forceDelete ? [:] : ["title": "new"])
      let result = try #require(try await client.one(operation))
      let expected = Self.expected(kind, state, tag)
      #expect(result.code == expected, "\(kind) on \(state) with \(tag): \(result)")
      let after = try server.record("n", zone: "Notes", in: database)
      let before: [String: FieldValue]? = state == .living ? ["title": "old", "body": "kept"] : nil
      if expected != nil {
        #expect(after?.fields == before)
        continue
      }
      switch kind {
      case .delete, .forceDelete:
        #expect(result.isDeleted)
        #expect(after == nil)
      case .update, .forceUpdate:
        #expect(after?.fields == (state == .living ? ["title": "new", "body": "kept"] : ["title": "new"]))
      case .create, .replace, .forceReplace: #expect(after?.fields == ["title": "new"])
      }
      if let after {
        #expect(result.record?.system.changeTag == after.tag)
        #expect(result.record?.fields == [:], "desiredKeys [] brings system fields only")
        #expect(after.tag != current)
      }
    }
  }

  @Test func `an explicit null clears a field, and null fields are absent in answers`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    let tag = try await client.note("n", ["title": "t", "body": "b"])
    let update = CloudOperation(.update, name: "n", type: "Note", changeTag: tag, fields: ["body": nil])
    #expect(try await client.one(update)?.record != nil)
    #expect(try await client.lookup(["n"], in: notes)["n"]?.record?.fields == ["title": "t"])
  }

  @Test func `an atomic batch with a failing operation changes nothing and names it`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("taken")
    let operations = [
      CloudOperation(.create, name: "a", type: "Note"), CloudOperation(.create, name: "taken", type: "Note"),
      CloudOperation(.create, name: "b", type: "Note"),
    ]
    let atomic = try await client.modify(operations, in: notes, atomic: true)
    #expect(atomic["taken"]?.code == .exists)
    #expect(atomic["a"]?.code == .atomicError)
    #expect(atomic["b"]?.code == .atomicError)
    #expect(try server.records(zone: "Notes", in: database)?.keys.sorted() == ["taken"])
    let loose = try await client.modify(operations, in: notes, atomic: false)
    #expect(loose["taken"]?.code == .exists)
    #expect(loose["a"]?.record != nil)
    #expect(try server.records(zone: "Notes", in: database)?.keys.sorted() == ["a", "b", "taken"])
    #expect(server.statistics.appliedOperations == 3)
    #expect(server.statistics.requests["records/modify"] == 3)
  }

  @Test func `the default zone exists, is not atomic, and has no feed`() async throws {
    let client = CloudServer.still().client()
    let zone = ZoneID("_defaultZone")
    let results = try await client.modify(
      [CloudOperation(.create, name: "a", type: "Note"), CloudOperation(.update, name: "b", changeTag: "x")], in: zone,
      atomic: true)
    #expect(results["a"]?.record != nil)
    #expect(results["b"]?.code == .notFound)
    #expect(try await client.lookup(["a"], in: zone)["a"]?.record?.type == "Note")
    let refusal = await #expect(throws: CloudError.self) {
      try await client.zoneChanges(in: zone, since: nil, limit: 10)
    }
    #expect(refusal?.code == .badRequest)
    #expect(refusal?.reason == "AppDefaultZone does not support getChanges call")
    #expect(try await client.zones() == [])
    #expect(try await client.databaseChanges(since: nil, limit: 10).zones == [])
  }

  @Test func `limits are kept`() async throws {
    var limits = ServerLimits()
    limits.recordBytesMax = 100
    limits.deleteSelfSourcesMax = 2
    let client = CloudServer.still(limits: limits).client()
    try await client.createZone(notes)
    #expect(
      try await client.one(
        CloudOperation(.create, name: "n", type: "Note", fields: ["t": .string(String(repeating: "x", count: 101))]))?
        .code == .badRequest)
    #expect(
      try await client.one(CloudOperation(.create, name: String(repeating: "n", count: 256), type: "Note"))?.code
        == .badRequest)
    #expect(try await client.one(CloudOperation(.create, name: "n", type: "9Note"))?.code == .badRequest)
    try await client.note("target")
    for (name, isTaken) in [("a", true), ("b", true), ("c", false)] {
      let result = try await client.one(
        CloudOperation(
          .create, name: name, type: "Note", fields: ["to": .reference(Reference("target", action: .deleteSelf))]))
      #expect((result?.record != nil) == isTaken)
    }
    let many = (0...200).map { CloudOperation(.forceDelete, name: "\($0)") }
    await #expect(throws: CloudError.self) { try await client.modify(many, in: notes, atomic: false) }
    await #expect(throws: CloudError.self) { try await client.createZone(ZoneID("_mine")) }
  }

  @Test func `deleting a target deletes those that refer to it with DELETE_SELF, in a chain`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("a")
    try await client.note("b", ["to": .reference(Reference("a", action: .deleteSelf))])
    try await client.note("c", ["all": .list(.references, [.reference(Reference("b", action: .deleteSelf))])])
    try await client.note("d", ["to": .reference(Reference("a"))])
    let token = try await client.everything().token
    #expect(try await client.one(CloudOperation(.forceDelete, name: "a"))?.isDeleted == true)
    let after = try await client.everything(since: token)
    #expect(after.changes.map(\.mark) == ["-a", "-b", "-c"])
    var changes = 0
    try server.forEachEvent { _, event in
      switch event {
      case .recordSaved, .recordDeleted: changes += 1
      default: break
      }
    }
    #expect(changes == 4 + 3)
    #expect(server.statistics.appliedOperations == 5)
  }

  @Test func `a validating reference needs its target and keeps it alive`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    let toA: [String: FieldValue?] = ["to": .reference(Reference("a", action: .validate))]
    #expect(
      try await client.one(CloudOperation(.create, name: "b", type: "Note", fields: toA))?.code
        == .validatingReferenceError)
    // In one request the order does not matter, and a cycle of references is valid.
    let circle = try await client.modify(
      [
        CloudOperation(.create, name: "b", type: "Note", fields: toA),
        CloudOperation(
          .create, name: "a", type: "Note", fields: ["to": .reference(Reference("b", action: .validate))]),
      ], in: notes, atomic: true)
    #expect(circle.values.allSatisfy { $0.record != nil })
    let refused = try await client.one(CloudOperation(.forceDelete, name: "a"))
    #expect(refused?.code == .validatingReferenceError)
    #expect(refused?.error?.reason.hasPrefix("Field=to, recordID=b, ") == true)
    let both = try await client.modify(
      [CloudOperation(.forceDelete, name: "a"), CloudOperation(.forceDelete, name: "b")], in: notes, atomic: false)
    #expect(both.values.allSatisfy { $0.isDeleted })
  }

  @Test(arguments: [true, false])
  func `what a refused deletion would take along is still there, and says so`(atomic: Bool) async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    try await client.note("list")
    let below: [String: FieldValue?] = ["to": .reference(Reference("list", action: .deleteSelf))]
    try await client.note("item", below.compactMapValues { $0 })
    let needs: [String: FieldValue?] = ["to": .reference(Reference("list", action: .validate))]
    try await client.note("keeper", needs.compactMapValues { $0 })
    var tags: [String: String] = [:]
    for case .saved(let record) in try await client.everything().changes { tags[record.name] = record.system.changeTag }
    let both = ["list", "item"].map { CloudOperation(.delete, name: $0, changeTag: tags[$0]) }
    let refused = try await client.modify(both, in: notes, atomic: atomic)
    #expect(refused["list"]?.code == .validatingReferenceError)
    #expect(atomic ? refused["item"]?.code == .atomicError : refused["item"]?.isDeleted == true)
    #expect(try await client.everything().changes.contains { $0.mark == "item" } == atomic)
    // Of a record that was changed since, too.
    _ = try await client.one(CloudOperation(.forceUpdate, name: "item", type: "Note", fields: ["n": 1]))
    if atomic {
      let stale = try await client.modify(both, in: notes, atomic: true)
      #expect(stale["list"]?.code == .validatingReferenceError && stale["item"]?.code == .conflict)
      tags["item"] = try await client.lookup(["item"], in: notes)["item"]?.record?.system.changeTag
    }
    // Without the keeper, one deletion takes the other record along, and both are answered.
    _ = try await client.one(CloudOperation(.forceDelete, name: "keeper"))
    guard atomic else { return }
    let now = ["list", "item"].map { CloudOperation(.delete, name: $0, changeTag: tags[$0]) }
    let deleted = try await client.modify(now, in: notes, atomic: atomic)
    #expect(deleted.values.allSatisfy { $0.isDeleted } && deleted.count == 2)
  }

  @Test func `a removed operation does not fail the valid ones`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    let results = try await client.modify(
      [
        CloudOperation(.create, name: "good", type: "Note"),
        CloudOperation(
          .create, name: "bad", type: "Note", fields: ["to": .reference(Reference("nowhere", action: .validate))]),
        CloudOperation(
          .create, name: "worse", type: "Note", fields: ["to": .reference(Reference("bad", action: .validate))]),
      ], in: notes, atomic: false)
    #expect(results["good"]?.record != nil)
    #expect(results["bad"]?.code == .validatingReferenceError)
    #expect(results["worse"]?.code == .validatingReferenceError)
  }

  @Test func `every kind of value comes back as it was sent`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    let fields: [String: FieldValue] = [
      "s": "ü \u{1F30A} \0\u{7F}\\\"/", "i": .int64(.min), "j": .int64(.max), "d": 0.1, "whole": .double(3),
      "big": .double(1e300), "t": .date(milliseconds: -62_135_769_600_000), "b": .bytes([0, 255, 10]),
      "r": .reference(Reference("x", action: .none)),
      "far": .reference(Reference("x", zone: ZoneID("Other"), action: .none)),
      "l": .location(Location(latitude: 1.5, longitude: -2, altitude: 3, timestamp: 5)),
      "a": .asset(Asset(fileChecksum: "AQ==", size: 5, wrappingKey: "w")),
      "ls": .list(.strings, ["a", ""]), "li": .list(.int64s, [1, -1]), "ld": .list(.doubles, [1.0, 2.5]),
      "lt": .list(.dates, [.date(milliseconds: 0)]), "lb": .list(.bytes, [.bytes([])]),
      "enc": .encrypted("secret"),
      "lr": .list(.references, [.reference(Reference("y", action: .deleteSelf))]),
    ]
    try await client.note("n", fields)
    #expect(try await client.lookup(["n"], in: notes)["n"]?.record?.fields == fields)
    guard case .saved(let record)? = try await client.everything().changes.first else {
      Issue.record("no change")
      return
    }
    #expect(record.fields == fields)
  }

  /// The status and the body of an answer to records/modify.
  private func answer(_ body: [UInt8]) throws -> (status: Int, body: String) {
    let server = CloudServer.still()
    let path = "/database/1/iCloud.test/development/private/records/modify"
    guard case .respond(let response) = server.answer(HTTPRequest(origin: "http://127.0.0.1:1", path: path, body: body))
    else { return (0, "") }
    return (response.status, String(decoding: response.body, as: UTF8.self))
  }

  @Test(arguments: [
    ("", "line 1, column 2: the key 'operations' is missing"),
    ("[]", "line 1, column 1: expected an object, found a list"),
    ("{\n \"operations\":[}", "line 2, column 16: operations[0]: expected an object, found '}'"),
    ("{\"operations\":[],\"operations\":[]}", "line 1, column 18: the key 'operations' occurs twice in one object"),
    ("{\"operations\":[],}", "line 1, column 18: expected a key in double quotes, found '}'"),
    ("{\"operations\":[],\"atomic\":1}", "line 1, column 27: atomic: expected true or false, found a number"),
    (
      "{\"operations\":[{\"operationType\":\"create\",\"record\":{\"recordName\":\"\\ud800\"}}]}",
      "line 1, column 66: operations[0].record.recordName: an escape of half a surrogate pair"
    ),
  ])
  func `a body that is no request is refused with the place`(_ body: String, _ words: String) throws {
    let (status, text) = try answer(Array(body.utf8))
    #expect(status == 400)
    #expect(text.contains("\"serverErrorCode\":\"BAD_REQUEST\"") && text.contains(words), "\(text)")
  }

  @Test func `a value that no record can have refuses its record, with the place`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    let body = #"""
      {"zoneID":{"zoneName":"Notes"},"atomic":false,"operations":[
      {"operationType":"create","record":{"recordName":"a","recordType":"Note","fields":{"f":{"value":true}}}},
      {"operationType":"create","record":{"recordName":"b","recordType":"Note","fields":{"f":{"value":1}}}}]}
      """#
    let path = "/database/1/iCloud.test/development/private/records/modify"
    guard
      case .respond(let response) = server.answer(
        HTTPRequest(origin: "http://127.0.0.1:1", path: path, body: Array(body.utf8)))
    else {
      Issue.record("no answer")
      return
    }
    let text = String(decoding: response.body, as: UTF8.self)
    #expect(response.status == 200)
    #expect(text.contains("Invalid value, line 2, column 97: fields.f.value: a boolean"), "\(text)")
    #expect(try server.record("b", zone: "Notes", in: database)?.fields == ["f": 1])
    #expect(try server.record("a", zone: "Notes", in: database) == nil)
  }
}
