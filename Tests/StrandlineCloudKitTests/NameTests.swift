// Goal: fields and types of a foreign server whose names are not ASCII survive a store, each by itself, and go back as they
// came, while no app can write one. Method: a store syncs with a cloud that answers from a script and keeps what it was sent;
// the store is closed and opened between the answer and the upload. And random names there and back.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct NameTests {
  /// Names that Unicode calls equal, one that it calls equal to an ASCII name, and one with the sign of an escape.
  private static let fields = [
    (name: "caf\u{E9}", value: "one"), (name: "cafe\u{301}", value: "two"), (name: "\u{212A}ey", value: "three"),
    (name: "Key", value: "four"), (name: "a%41", value: "five"),
  ]
  private static let type = "\u{212A}ind"

  private static func json(_ fields: [(name: String, value: String)]) -> String {
    fields.map { #""\#($0.name)":{"type":"STRING","value":"\#($0.value)"}"# }.joined(separator: ",")
  }

  /// A cloud of one zone with two records: one of an odd type with odd fields, and one of the type that it resembles.
  private final class Cloud: Sendable {
    let sent = Mutex<[String]>([])

    var transport: ScriptedTransport {
      ScriptedTransport { [self] request, _ in
        let path = String(request.path.split(separator: "/").suffix(2).joined(separator: "/"))
        let body = String(decoding: request.body, as: UTF8.self)
        if path == "records/modify" { sent.withLock { $0.append(body) } }
        return HTTPResponse(status: 200, headers: [:], body: Array(try answer(path, body).utf8))
      }
    }

    private func answer(_ path: String, _ body: String) throws -> String {
      switch path {
      case "users/caller": return #"{"users":[{"userRecordName":"_u"}]}"#
      case "changes/database":
        return #"{"zones":[{"zoneID":{"zoneName":"Notes"}}],"syncToken":"d","moreComing":false}"#
      case "changes/zone":
        let page = #"{"zones":[{"zoneID":{"zoneName":"Notes"},"syncToken":"next","moreComing":false,"records":["#
        if body.contains(#""syncToken":"next""#) { return page + "]}]}" }
        return page
          + #"{"recordName":"r","recordType":"\#(NameTests.type)","recordChangeTag":"1","parent":{"recordName":"p"},"#
          + "\"fields\":{\(NameTests.json(NameTests.fields))}},"
          + #"{"recordName":"s","recordType":"Kind","recordChangeTag":"1","fields":{}}]}]}"#
      case "records/modify":
        return #"{"records":[{"recordName":"r","recordType":"\#(NameTests.type)","recordChangeTag":"2"}]}"#
      default: throw CloudError(.badRequest, reason: path)
      }
    }
  }

  @Test func `of fields and types that are not ASCII go back as they came`() async throws {
    let machine = SystemEnvironment(
      fileSystem: SimulatedDisk(), clock: SimulatedClock(wallMilliseconds: now, autoAdvance: true),
      random: SeededRandom(seed: 1))
    let cloud = Cloud()
    func open() async throws -> RecordStore {
      var configuration = SyncConfiguration(WebServicesDatabase.over(cloud.transport))
      configuration.isAutomatic = false
      return try await RecordStore.open(
        at: "/store", syncing: configuration, environment: StoreEnvironment(machine))
    }
    var store = try await open()
    #expect(try await store.engine.cycle(CycleOptions()).fetchedSaves == 2)
    try await store.close()
    store = try await open()
    var record = try #require(try store.record(RecordID("r", zone: notes)))
    #expect(record.fields.count == Self.fields.count)
    #expect(Set(record.fields.values) == Set(Self.fields.map { .string($0.value) }))
    #expect(record["Key"] == "four" && record["caf%C3%A9"] == "one" && record["cafe%CC%81"] == "two")
    #expect(record.fields.keys.allSatisfy { $0.utf8.allSatisfy { $0 < 0x80 } })
    #expect(record.type == "%E2%84%AAind")
    #expect(try store.recordIDs(ofType: "Kind") == [RecordID("s", zone: notes)])

    // An app can edit the others, and make none of these.
    record["Key"] = "edited"
    try await store.write { try $0.save(record) }
    #expect(try await store.engine.cycle(CycleOptions()).uploaded == 1)
    let edit = try #require(cloud.sent.withLock { $0.last })
    #expect(edit.contains(#""operationType":"update""#) && edit.contains("\"recordType\":\"\(Self.type)\""), "\(edit)")
    for name in ["caf\u{E9}", "caf%C3%A8"] {
      var wrong = record
      wrong[name] = "new"
      let error = await #expect(throws: StrandlineError.self) { try await store.write { try $0.save(wrong) } }
      #expect(error?.code == .invalidName)
    }
    let made = Record(type: "%E2%84%AAind", id: RecordID("made", zone: notes))
    await #expect(throws: StrandlineError.self) { try await store.write { try $0.save(made) } }

    // A record whose parent is removed is replaced whole.
    record.parent = nil
    try await store.write { try $0.save(record) }
    #expect(try await store.engine.cycle(CycleOptions()).uploaded == 1)
    let whole = try #require(cloud.sent.withLock { $0.last })
    #expect(whole.contains(#""operationType":"replace""#), "\(whole)")
    for (name, value) in Self.fields {
      let part = #""\#(name)":{"type":"STRING","value":"\#(value == "four" ? "edited" : value)"}"#
      #expect(Self.contains(whole, part), "\(part)")
    }

    // What was deleted comes back with them.
    try await store.write { [id = record.id] in try $0.delete(id) }
    try await store.restore(record.id)
    let restored = try #require(try store.record(record.id))
    #expect(restored.fields == record.fields && restored.type == record.type)
    try await store.close()
  }

  /// Whether one text contains another, to the byte.
  private static func contains(_ text: String, _ part: String) -> Bool {
    let (bytes, wanted) = (Array(text.utf8), Array(part.utf8))
    return bytes.indices.contains { bytes[$0...].starts(with: wanted) }
  }

  @Test func `are ASCII in the model, different if they were, and the same again on the wire`() {
    let random = SeededRandom(seed: 5)
    let letters = ["a", "%", "4", "1", "\u{E9}", "e\u{301}", "\u{212A}", "K", "\u{1F41A}", "_", "%C3%A9", ""]
    var seen: [String: [UInt8]] = [:]
    for _ in 0..<2_000 {
      let name = (0..<random.below(5)).map { _ in letters[Int(random.below(UInt64(letters.count)))] }.joined()
      let kept = WireName.model(name)
      #expect(kept.utf8.allSatisfy { $0 < 0x80 })
      #expect(Array(WireName.wire(kept).utf8) == Array(name.utf8))
      if let other = seen.updateValue(Array(name.utf8), forKey: kept) { #expect(other == Array(name.utf8)) }
    }
    for name in ["title", "a_b1", "", "strandlineStamp", "%", "%4", "%zz", "%FF", "%41", "%c3%a9", "%+A", "%C3%A9%41"] {
      #expect(WireName.wire(name) == name)
    }
  }
}
