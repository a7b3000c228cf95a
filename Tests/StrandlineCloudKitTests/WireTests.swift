// Goal: what is written to the wire is read back equal; one bad record of a page is held with its bytes while the others
// are read; and no bytes can trap. Method: random records, each kind of badness planted in a page of 200, and messages
// with random damage.

import Strandline
import StrandlineCloudKit
import StrandlineJSON
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct WireTests {
  // MARK: One bad record

  private func good(_ number: Int) -> String {
    #"{"recordName":"r\#(number)","recordType":"Note","recordChangeTag":"1","fields":{"f":{"value":"x"}}}"#
  }

  /// A page of 200 records, the 100th of which is `bad`.
  private func page(with bad: [UInt8]) async throws -> ZonePage {
    var body = Array(#"{"zones":[{"zoneID":{"zoneName":"Notes"},"records":["#.utf8)
    for number in 0..<200 {
      if number > 0 { body.append(UInt8(ascii: ",")) }
      body += number == 100 ? bad : Array(good(number).utf8)
    }
    body += Array(#"],"syncToken":"next","moreComing":true}]}"#.utf8)
    let answer = body
    let transport = ScriptedTransport { _, _ in HTTPResponse(status: 200, headers: [:], body: answer) }
    return try await WebServicesDatabase.over(transport).zoneChanges(in: notes, since: nil, limit: 200)
  }

  private static func record(_ rest: String) -> [UInt8] {
    Array(#"{"recordName":"bad","recordType":"Note","recordChangeTag":"1",\#(rest)}"#.utf8)
  }

  /// Bytes of a record whose structure is good, and the words for what is wrong.
  private static let bad: [(bytes: [UInt8], words: String)] = [
    (record(#""fields":{"f":{"value":"\ud800","type":"STRING"}}"#), "fields.f: an escape of half a surrogate pair"),
    (record(#""fields":{"f":{"value":"\x"}}"#), "fields.f: a backslash that begins no escape"),
    (record("\"fields\":{\"f\":{\"value\":\"\u{1}\"}}"), "the control character U+0001"),
    (
      Array(#"{"recordName":"bad","fields":{"f":{"value":""#.utf8) + [0xFF] + Array(#""}}}"#.utf8),
      "fields.f: a string whose bytes are not UTF-8"
    ),
    (
      Array(#"{"fields":{""#.utf8) + [0xC3, 0x28] + Array(#"":{"value":1}},"recordName":"bad"}"#.utf8),
      "fields: a string whose bytes are not UTF-8"
    ),
    (record(#""fields":{"f":{"value":01}}"#), "fields.f: a number with a 0 before other digits"),
    (record(#""fields":{"f":{"value":1.}}"#), "fields.f: a number without a digit"),
    (record(#""fields":{"f":{"value":1},"f":{"value":2}}"#), "fields: the key 'f' occurs twice"),
    (record(#""recordType":"Other""#), "the key 'recordType' occurs twice"),
    (record(#""fields":{"f":{"value":1,"value":1}}"#), "fields.f: the key 'value' occurs twice"),
    (record(#""fields":[]"#), "fields: expected an object, found a list"),
    (record(#""deleted":1"#), "deleted: expected true or false, found a number"),
    // What is no JSON, so that it could not be sent back.
    (record(#""fields":{"f":{"value":NaN,"type":"DOUBLE"}}"#), "fields.f"),
    (record(#""fields":{"f":{"value":[1,-Infinity]},"g":{"value":undefined}}"#), "fields.f"),
    (record(#""x":tru"#), ""),
    (Array(#"{"recordType":5,"x":[{"y":"}]"}],"recordName":"bad"}"#.utf8), "recordType: expected a string"),
  ]

  @Test func `a request that is written from operations has the bytes of its message`() throws {
    let operations = [
      CloudOperation(.create, name: "a", type: "Note", fields: ["z": .int64(1), "b": .string("x")], parent: "p"),
      CloudOperation(.update, name: "b", type: "Note", changeTag: "1", fields: ["gone": nil, "d": .double(0.5)]),
      CloudOperation(.forceDelete, name: "c"),
    ]
    let bytes = WireJSON.encode(operations, in: ZoneID("Notes"), atomic: true)
    let message = try WireJSON.decode(ModifyRequest.self, bytes)
    #expect(WireJSON.encode(message) == bytes)
    #expect(message.operations.map(\.operationType) == ["create", "update", "forceDelete"])
    let records = message.operations.map(\.record)
    #expect(records.map(\.recordName) == ["a", "b", "c"] && records.map(\.recordType) == ["Note", "Note", nil])
    #expect(records.map(\.recordChangeTag) == [nil, "1", nil] && records.map(\.parent) == ["p", nil, nil])
    #expect(records.map(\.fields) == [["z": .int64(1), "b": .string("x")], ["d": .double(0.5)], nil])
    #expect(records.map(\.nulls) == [[], ["gone"], []])
  }

  @Test(arguments: bad.indices)
  func `a bad record is held with its bytes, the other 199 are read, and the token moves`(_ index: Int) async throws {
    let (bytes, words) = Self.bad[index]
    let page = try await page(with: bytes)
    #expect(page.token.rawValue == "next" && page.moreComing)
    #expect(page.changes.count == 200)
    var saved = 0
    for change in page.changes {
      switch change {
      case .saved(let record):
        #expect(record.fields == ["f": "x"])
        saved += 1
      case .deleted(let name): Issue.record("\(name) is deleted")
      case .failed(let name, let error):
        #expect(name == "bad")
        #expect(error.code == .unexpectedServerResponse)
        #expect(error.reason.contains(words), "\(error.reason)")
        #expect(error.raw == bytes)
      }
    }
    #expect(saved == 199)
  }

  @Test func `a refusal in the place of a record is one, whatever stands beside it`() async throws {
    let refused = #"{"fields":{"f":5},"recordName":"bad","reason":{},"serverErrorCode":"NOT_FOUND","uuid":7}"#
    guard case .failed("bad", let error) = try await page(with: Array(refused.utf8)).changes[100] else {
      Issue.record("it is no refusal")
      return
    }
    #expect(error.code == .notFound && error.raw.isEmpty)
  }

  @Test(arguments: [
    #"{"recordName":"bad","x":[}"#, #"{"recordName":"bad" "x":1}"#, #"{"recordName":"bad","x":"#, "",
    #"{"recordName":"bad","x":"# + String(repeating: "[", count: 600) + String(repeating: "]", count: 600) + "}",
  ])
  func `a record whose end cannot be found fails its page`(_ bad: String) async throws {
    let error = try await refusal { _ = try await page(with: Array(bad.utf8)) }
    #expect(error?.code == .unexpectedServerResponse)
    #expect(error?.reason.contains("changes/zone cannot be read: line 1, column ") == true, "\(bad)")
  }

  private static let unnamed = [
    "null", "5", "NaN", #""bad""#, "[]", "{}", #"{"recordName":"\ud800"}"#, #"{"recordName":5,"fields":{}}"#,
    #"{"recordName":"","fields":{}}"#, #"{"serverErrorCode":"INTERNAL_ERROR"}"#,
  ]

  @Test(arguments: unnamed)
  func `an entry that names no record is counted, and the other 199 are read`(_ entry: String) async throws {
    let page = try await page(with: Array(entry.utf8))
    #expect(page.token.rawValue == "next" && page.changes.count == 199 && page.unnamed == 1)
  }

  @Test(arguments: unnamed)
  func `an entry that names no record harms no other result of an upload or a lookup`(_ entry: String) async throws {
    let body = #"{"records":[\#(entry),{"recordName":"a","recordType":"Note","recordChangeTag":"1","fields":{}}]}"#
    let client = WebServicesDatabase.over(ScriptedTransport(body))
    let saves = ["a", "b"].map { CloudOperation(.create, name: $0, type: "Note") }
    for results in [
      try await client.modify(saves, in: notes, atomic: false), try await client.lookup(["a", "b"], in: notes),
    ] {
      #expect(results["a"]?.record?.system.changeTag == "1")
      #expect(results["b"]?.error?.code == .unexpectedServerResponse)
    }
  }

  @Test func `a result that is no JSON harms no other of an upload`() async throws {
    let client = WebServicesDatabase.over(
      ScriptedTransport(
        #"{"records":[{"recordName":"b","recordType":"Note","recordChangeTag":"1","fields":{"f":{"value":NaN}}},"#
          + #"{"recordName":"a","recordType":"Note","recordChangeTag":"1","fields":{}}]}"#))
    let saves = ["a", "b"].map { CloudOperation(.create, name: $0, type: "Note") }
    let results = try await client.modify(saves, in: notes, atomic: false)
    #expect(results["a"]?.record?.system.changeTag == "1")
    #expect(results["b"]?.error?.code == .unexpectedServerResponse && results["b"]?.error?.raw.isEmpty == false)
  }

  // MARK: Values that cannot be read

  /// A value with its type, as it came; the type under which it is kept.
  private static let unreadable: [(field: String, type: String, value: String)] = [
    (#"{"value":"1.5","type":"DOUBLE"}"#, "DOUBLE", #""1.5""#),
    (#"{"value":1e400,"type":"DOUBLE"}"#, "DOUBLE", "1e400"),
    (#"{"type":"INT64","value":1.5}"#, "INT64", "1.5"), (#"{"type":"INT64","value":"five"}"#, "INT64", #""five""#),
    (#"{"type":"INT64","value":99999999999999999999}"#, "INT64", "99999999999999999999"),
    (#"{"value":5,"type":"STRING"}"#, "STRING", "5"),
    (#"{"value":"2026-01-01","type":"TIMESTAMP"}"#, "TIMESTAMP", #""2026-01-01""#),
    (#"{"value":1e300,"type":"TIMESTAMP"}"#, "TIMESTAMP", "1e300"),
    (#"{"value":"-_8","type":"BYTES"}"#, "BYTES", #""-_8""#),
    (#"{"value":"*","type":"ENCRYPTED_BYTES"}"#, "ENCRYPTED_BYTES", #""*""#),
    (#"{"value":[1],"type":"UNKNOWN_LIST"}"#, "UNKNOWN_LIST", "[1]"),
    (#"{"value":["a", null],"type":"STRING_LIST"}"#, "STRING_LIST", #"["a", null]"#),
    (#"{"value":"a","type":"STRING_LIST"}"#, "STRING_LIST", #""a""#),
    (#"{"value":{"size":3},"type":"ASSETID"}"#, "ASSETID", #"{"size":3}"#),
    (#"{"value":{"fileChecksum":"c"},"type":"ASSETID"}"#, "ASSETID", #"{"fileChecksum":"c"}"#),
    (#"{"value":{"latitude":1},"type":"LOCATION"}"#, "LOCATION", #"{"latitude":1}"#),
    (
      #"{"value":{"recordName":"x","action":"EXPLODE"},"type":"REFERENCE"}"#, "REFERENCE",
      #"{"recordName":"x","action":"EXPLODE"}"#
    ),
    (#"{"value":{"action":"NONE"},"type":"REFERENCE"}"#, "REFERENCE", #"{"action":"NONE"}"#),
    (#"{"value":true}"#, "", "true"), (#"{"value":["a",1]}"#, "", #"["a",1]"#), (#"{"value":{}}"#, "", "{}"),
    (#"{"value":[[1]]}"#, "", "[[1]]"),
  ]

  @Test(arguments: unreadable.indices)
  func `a value that cannot be read is kept as it came, and goes back so`(_ index: Int) async throws {
    let (field, type, value) = Self.unreadable[index]
    let page = try await page(with: Self.record(#""fields":{"f":\#(field),"g":{"value":"x"}}"#))
    guard case .saved(let record) = page.changes[100] else {
      Issue.record("\(page.changes[100])")
      return
    }
    let kept = FieldValue.opaque(OpaqueValue(type: type, json: Array(value.utf8)))
    #expect(record.name == "bad" && record.fields == ["f": kept, "g": "x"])
    let save = CloudOperation(.update, name: "bad", type: "Note", changeTag: "1", fields: ["f": kept])
    let answer = #"{"records":[{"recordName":"bad","recordType":"Note","recordChangeTag":"2"}]}"#
    let transport = ScriptedTransport(answer)
    let results = try await WebServicesDatabase.over(transport).modify([save], in: notes, atomic: false)
    #expect(results["bad"]?.record != nil)
    let sent = String(decoding: transport.sent[0].body, as: UTF8.self)
    let typed = type.isEmpty ? "" : #""type":"\#(type)","#
    #expect(sent.contains(#""f":{\#(typed)"value":\#(value)}"#), "\(sent)")
    // A server takes it from nobody who has not got it from one, and a command from nobody, but for a date as people write it.
    for sender in [WireField.Sender.client, .command] where sender != .command || value != #""2026-01-01""# {
      #expect(throws: JSONError.self, "\(field)") {
        var json = try JSONReader(Array(field.utf8), limits: JSONLimits(bytesMax: 1_000, depthMax: 10))
        _ = try WireField.read(&json, from: sender)
      }
    }
  }

  @Test func `a null in the place of a field is one, from a cloud alone`() async throws {
    let page = try await page(with: Self.record(#""fields":{"f":null,"g":{"value":"x"}}"#))
    guard case .saved(let record) = page.changes[100] else {
      Issue.record("\(page.changes[100])")
      return
    }
    #expect(record.name == "bad" && record.fields == ["g": "x"])
    for sender in [WireField.Sender.client, .command] {
      #expect(throws: JSONError.self) {
        var json = try JSONReader(Array("null".utf8), limits: JSONLimits(bytesMax: 1_000, depthMax: 10))
        _ = try WireField.read(&json, from: sender)
      }
    }
  }

  @Test func `an encrypted value that cannot be read stays encrypted`() async throws {
    let page = try await page(
      with: Self.record(#""fields":{"f":{"isEncrypted":true,"value":"x","type":"INT64"}}"#))
    guard case .saved(let record) = page.changes[100] else { return }
    #expect(record.fields["f"] == .encrypted(.opaque(OpaqueValue(type: "INT64", json: Array(#""x""#.utf8)))))
  }

  @Test(arguments: [
    #""created":{"timestamp":"soon"}"#, #""created":5"#, #""created":{}"#, #""modified":{"timestamp":1e300}"#,
    #""modified":{"timestamp":1,"userRecordName":5}"#, #""modified":"now""#, #""parent":{}"#, #""parent":"p""#,
    #""parent":{"recordName":5}"#, #""zoneID":"Notes""#, #""zoneID":{"zoneName":5}"#,
  ])
  func `a part that a record can do without is kept as a key of a later version is`(_ part: String) async throws {
    let page = try await page(with: Self.record(#"\#(part),"fields":{"g":{"value":"x"}}"#))
    guard case .saved(let record) = page.changes[100] else {
      Issue.record("\(page.changes[100])")
      return
    }
    #expect(record.fields == ["g": "x"] && record.parent == nil)
    #expect(String(decoding: record.system.unknown, as: UTF8.self) == "{\(part)}")
  }

  // MARK: Fields

  @Test func `a field's keys may come in any order`() throws {
    for field in [
      #"{"value":["a"],"type":"STRING_LIST","isEncrypted":true}"#,
      #"{"isEncrypted":true,"type":"STRING_LIST","value":["a"]}"#,
      #"{"type":"STRING_LIST","more":{"value":[1]},"value":["a"],"isEncrypted":true}"#,
    ] {
      let record = try WireJSON.decode(
        WireRecord.self, Array(#"{"recordName":"n","fields":{"f":\#(field),"g":{"value":1}}}"#.utf8))
      #expect(record.defect == nil)
      #expect(record.fields == ["f": .encrypted(.list(.strings, ["a"])), "g": 1])
    }
  }

  /// What the live service sends although its own types forbid it, and what it means; where it lies, if a command is given
  /// it.
  private static let loose: [(field: String, value: FieldValue?, column: Int)] = [
    (#"{"value":"-9223372036854775808","type":"INT64"}"#, .int64(.min), 10),
    (#"{"value":["1",2],"type":"INT64_LIST"}"#, .list(.int64s, [1, 2]), 11),
    (#"{"value":1767225600000.4,"type":"TIMESTAMP"}"#, .date(milliseconds: 1_767_225_600_000), 10),
    (#"{"type":"TIMESTAMP_LIST","value":[0.6]}"#, .list(.dates, [.date(milliseconds: 1)]), 35),
    (
      #"{"value":{"latitude":1,"longitude":2,"timestamp":5.4}}"#,
      .location(Location(latitude: 1, longitude: 2, timestamp: 5)), 50
    ),
    (#"{"value":{"fileChecksum":"c","size":"4"}}"#, .asset(Asset(fileChecksum: "c", size: 4)), 37),
    (#"{"type":"STRING"}"#, nil, 17),
    (#"{"more":{},"value":1,"type":"INT64"}"#, 1, 2),
  ]

  @Test(arguments: loose.indices)
  func `what the live service sends loosely is taken from it, and from no command`(_ index: Int) throws {
    let (field, value, column) = Self.loose[index]
    func read(_ sender: WireField.Sender) throws(JSONError) -> FieldValue? {
      var json = try JSONReader(Array(field.utf8), limits: JSONLimits(bytesMax: 1_000, depthMax: 10))
      let value = try WireField.read(&json, from: sender)
      try json.finish()
      return value
    }
    #expect(try read(.cloud) == value)
    #expect(try read(.client) == value)
    let error = #expect(throws: JSONError.self) { try read(.command) }
    #expect(error?.kind == .value && error?.column == column, "\(error as Any)")
  }

  @Test func `what is not known is kept byte for byte`() throws {
    let value = "{ \"b\" : 1.50 , \"a\":\"\\u00e9\\/\" ,\"c\":[ 1e2,-0 ] }"
    let text = """
      {"recordName":"n", "new\\u004bey" : \(value), "fields":{"f":{"value": \(value),"type":"VECTOR"}},"more":null}
      """
    let record = try WireJSON.decode(WireRecord.self, Array(text.utf8))
    #expect(record.defect == nil)
    #expect(record.fields?["f"] == .opaque(OpaqueValue(type: "VECTOR", json: Array(value.utf8))))
    #expect(String(decoding: record.unknown, as: UTF8.self) == "{\"new\\u004bey\":\(value),\"more\":null}")
    let again = String(decoding: WireJSON.encode(record), as: UTF8.self)
    #expect(again == "{\"fields\":{\"f\":{\"type\":\"VECTOR\",\"value\":\(value)}},\"recordName\":\"n\"}")
  }

  @Test func `a request has the same bytes as before`() {
    var record = WireRecord(recordName: "n/\"\n")
    record.fields = [
      "d": 3.0, "e": 1e21, "f": -0.5, "g": .double(9_007_199_254_740_992), "h": .double(.leastNonzeroMagnitude),
      "i": .double(-0.0), "t": "\u{1}\t\u{7F}é/",
      "l": .location(Location(latitude: 1, longitude: 2.5, altitude: 3, timestamp: 4)), "b": .bytes([1, 2]),
      "r": .reference(Reference("x", zone: ZoneID("Z", owner: "o"), action: .validate)),
      "a": .asset(Asset(fileChecksum: "c", size: 4, receipt: "r")), "s": .encrypted(.list(.dates, [])),
    ]
    record.nulls = ["gone"]
    record.created = ServerTimestamp(milliseconds: 5, user: "u", device: "d")
    #expect(
      String(decoding: WireJSON.encode(record), as: UTF8.self)
        == #"{"created":{"deviceID":"d","timestamp":5,"userRecordName":"u"},"fields":{"#
        + #""a":{"type":"ASSETID","value":{"fileChecksum":"c","receipt":"r","size":4}},"#
        + #""b":{"type":"BYTES","value":"AQI="},"d":{"type":"DOUBLE","value":3},"e":{"type":"DOUBLE","value":1e+21},"#
        + #""f":{"type":"DOUBLE","value":-0.5},"g":{"type":"DOUBLE","value":9007199254740992},"gone":{"value":null},"#
        + #""h":{"type":"DOUBLE","value":5e-324},"i":{"type":"DOUBLE","value":-0},"#
        + #""l":{"type":"LOCATION","value":{"altitude":3,"latitude":1,"longitude":2.5,"timestamp":4}},"#
        + #""r":{"type":"REFERENCE","value":{"action":"VALIDATE","recordName":"x","#
        + #""zoneID":{"ownerRecordName":"o","zoneName":"Z"}}},"#
        + #""s":{"isEncrypted":true,"type":"TIMESTAMP_LIST","value":[]},"t":{"type":"STRING","value":"\u0001\t"#
        + "\u{7F}" + #"é/"}},"recordName":"n/\"\n"}"#)
  }

  // MARK: Random records

  @Test func `a random record is read back equal`() throws {
    let random = SeededRandom(seed: 0x57_49_52_45)
    for round in 0..<2_000 {
      let record = RandomRecord(random).record()
      let bytes = WireJSON.encode(record)
      #expect(WireJSON.encode(record) == bytes)
      let read = try WireJSON.decode(WireRecord.self, bytes)
      #expect(read.defect == nil, "round \(round): \(String(decoding: bytes, as: UTF8.self))")
      #expect(read.fields == record.fields, "round \(round)")
      #expect(read.nulls.sorted() == record.nulls.sorted())
      #expect(read.recordName == record.recordName && read.recordType == record.recordType)
      #expect(read.created == record.created && read.parent == record.parent && read.deleted == record.deleted)
      #expect(WireJSON.encode(read) == bytes)
    }
  }

  @Test func `damaged messages are read or refused, and never trap`() {
    let random = SeededRandom(seed: 0x44_41_4D)
    let pieces = ["\"", "{", "}", "[", "]", ",", ":", "null", "\\", "1e999", "-", "\u{0}", "\"recordName\":1"].map {
      Array($0.utf8)
    }
    var read = 0
    let count = Campaign.isWhole ? 3_000 : 1_000
    for _ in 0..<count {
      let records = (0..<3).map { _ in RandomRecord(random).record() }
      var bytes = WireJSON.encode(
        ZoneChangesReply(zones: [.init(zoneID: WireZoneID(zoneName: "Z"), syncToken: "t", records: records)]))
      for _ in 0...random.below(3) {
        let place = Int(random.below(UInt64(bytes.count)))
        switch random.below(4) {
        case 0: bytes[place] = UInt8(truncatingIfNeeded: random.next())
        case 1: bytes.removeSubrange(place..<min(bytes.count, place + 1 + Int(random.below(8))))
        case 2: bytes.insert(contentsOf: pieces[Int(random.below(UInt64(pieces.count)))], at: place)
        default: bytes = random.below(8) == 0 ? Array(bytes[..<place]) : bytes
        }
        if bytes.isEmpty { break }
      }
      func attempt(_ type: (some WireMessage).Type) {
        do throws(JSONError) {
          let message = try WireJSON.decode(type, bytes)
          _ = WireJSON.encode(message)
          read += 1
        } catch { #expect(error.offset <= bytes.count && error.line > 0 && error.column > 0) }
      }
      attempt(ZoneChangesReply.self)
      attempt(RecordsReply.self)
      attempt(WireRecord.self)
      attempt(ModifyRequest.self)
      attempt(RecordsLookupRequest.self)
      attempt(QueryRequest.self)
      attempt(QueryReply.self)
      attempt(DatabaseChangesReply.self)
      attempt(ZonesReply.self)
      attempt(WireError.self)
      attempt(UserReply.self)
    }
    print("damaged messages: \(count), read in \(read) ways")
    #expect(read > count)
  }
}

/// Makes records at random, of every type of value.
private struct RandomRecord {
  private let random: SeededRandom

  init(_ random: SeededRandom) { self.random = random }

  private func below(_ bound: UInt64) -> Int { Int(random.below(bound)) }

  func record() -> WireRecord {
    var record = WireRecord(recordName: text())
    if below(8) == 0 {
      record.deleted = true
      return record
    }
    // As a reader names them.
    record.recordType = WireName.model(text())
    record.recordChangeTag = text()
    var fields: [String: FieldValue] = [:]
    for number in 0..<below(12) {
      if below(6) == 0 {
        record.nulls.append("n\(number)")
      } else {
        fields[WireName.model("f\(number)\(text())")] = value()
      }
    }
    record.fields = fields
    if below(3) == 0 { record.parent = text() }
    if below(3) == 0 { record.created = ServerTimestamp(milliseconds: int64(), user: text(), device: text()) }
    return record
  }

  private func value() -> FieldValue {
    switch below(20) {
    case 0: .encrypted(one(Self.kinds[below(8)]))
    case 1: .opaque(OpaqueValue(type: "NEW\(text())", json: Array(#"{ "a":[1.50,"\u00e9"] }"#.utf8)))
    case 2: .list(.unknown, [])
    case 3...8:
      {
        let kind = Self.kinds[below(8)]
        return .list(kind, (0..<below(5)).map { _ in one(kind) })
      }()
    default: one(Self.kinds[below(8)])
    }
  }

  private static let kinds: [FieldValue.ListKind] = [
    .strings, .int64s, .doubles, .dates, .bytes, .references, .locations, .assets,
  ]

  private func one(_ kind: FieldValue.ListKind) -> FieldValue {
    switch kind {
    case .strings, .unknown: .string(text())
    case .int64s: .int64(int64())
    case .doubles: .double(double())
    case .dates: .date(milliseconds: int64())
    case .bytes: .bytes(random.bytes(below(20)))
    case .references:
      .reference(
        Reference(text(), zone: below(2) == 0 ? nil : ZoneID(text()), action: Reference.Action.allCases[below(3)]))
    case .locations:
      .location(
        Location(
          latitude: double(), longitude: double(), altitude: below(2) == 0 ? nil : double(),
          timestamp: below(2) == 0 ? nil : int64()))
    case .assets:
      .asset(Asset(fileChecksum: text(), size: int64(), downloadURL: below(2) == 0 ? nil : text()))
    }
  }

  private func int64() -> Int64 {
    switch below(4) {
    case 0: [.min, .max, 0, -1, 1 << 53][below(5)]
    case 1: Int64(below(1000)) - 500
    default: Int64(bitPattern: random.next()) >> Int64(below(64))
    }
  }

  /// A finite number, never −0.
  private func double() -> Double {
    let number =
      switch below(3) {
      case 0: Double(below(1000)) / 8
      case 1: Double(int64())
      default: Double(bitPattern: random.next())
      }
    return number.isFinite && number != 0 ? number : 0.5
  }

  private func text() -> String {
    let letters: [Unicode.Scalar] = ["a", "Z", "0", "\"", "\\", "/", "\n", "\u{1}", "\u{7F}", "é", "𝄞", " ", "{", ","]
    var view = String.UnicodeScalarView()
    for _ in 0..<below(12) { view.append(letters[below(UInt64(letters.count))]) }
    return String(view)
  }
}
