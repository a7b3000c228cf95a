// Goal: what this version does not know of a record survives it, byte for byte: fields of an unknown type, the server's own
// keys beside the fields, and a record that cannot be read at all. Method: a store syncs with a cloud that answers from a
// script and keeps what it was sent; the store is closed and opened between the answer and the upload.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct RoundTripTests {
  /// A value with spaces, escapes, numbers and keys that every decoder and encoder would write in another way.
  private static let odd = "{ \"b\" : 1.50 , \"a\":\"\\u00e9\\/\" ,\"c\":[ 1e2,-0,18446744073709551616 ] }"
  private static let unknown = "\"new\\u004bey\":\(odd),\"more\":null"
  private static let bad =
    #"{"recordName":"bad","recordType":"Note","recordChangeTag":"1", "fields":{"f":{"value":1},"f":{"value":2}}}"#
  /// Fields of three kinds that this version does not know.
  private static let fields = """
    "plain":{"value": \(odd),"type":"VECTOR"},"listed":{"type":"VECTOR_LIST","value":[\(odd)]},
    "secret":{"isEncrypted":true,"value":\(odd),"type":"VECTOR"},"title":{"value":"x"}
    """

  /// A cloud of one zone with one page: a record with what is not known, and one that cannot be read.
  private final class Cloud: Sendable {
    let requests = Mutex<[(path: String, body: String)]>([])

    var transport: ScriptedTransport {
      ScriptedTransport { [self] request, _ in
        let path = String(request.path.split(separator: "/").suffix(2).joined(separator: "/"))
        let body = String(decoding: request.body, as: UTF8.self)
        requests.withLock { $0.append((path, body)) }
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
          + #"{"recordName":"r","recordType":"Note","recordChangeTag":"1","parent":{"recordName":"p"},"#
          + RoundTripTests.unknown + ",\"fields\":{\(RoundTripTests.fields)}},\(RoundTripTests.bad)]}]}"
      case "records/lookup": return #"{"records":[\#(RoundTripTests.bad)]}"#
      case "records/modify":
        return #"{"records":[{"recordName":"r","recordType":"Note","recordChangeTag":"2"}]}"#
      default: throw CloudError(.badRequest, reason: path)
      }
    }

    func bodies(_ path: String) -> [String] { requests.withLock { $0.filter { $0.path == path }.map(\.body) } }
  }

  private func open(_ machine: SystemEnvironment, _ transport: ScriptedTransport) async throws -> RecordStore {
    var configuration = SyncConfiguration(WebServicesDatabase.over(transport))
    configuration.isAutomatic = false
    return try await RecordStore.open(
      at: "/store", syncing: configuration, environment: StoreEnvironment(machine))
  }

  @Test func `from an answer through a store to the next upload`() async throws {
    let machine = SystemEnvironment(
      fileSystem: SimulatedDisk(), clock: SimulatedClock(wallMilliseconds: now, autoAdvance: true),
      random: SeededRandom(seed: 1))
    let cloud = Cloud()
    let transport = cloud.transport
    var store = try await open(machine, transport)
    #expect(try await store.engine.cycle(CycleOptions()).fetchedSaves == 1)
    try await store.close()
    store = try await open(machine, transport)

    // What an app and a later version of this package find in the store.
    let id = RecordID("r", zone: notes)
    var record = try #require(try store.record(id))
    let odd = Array(Self.odd.utf8)
    #expect(
      record.fields == [
        "plain": .opaque(OpaqueValue(type: "VECTOR", json: odd)),
        "listed": .opaque(OpaqueValue(type: "VECTOR_LIST", json: Array("[\(Self.odd)]".utf8))),
        "secret": .encrypted(.opaque(OpaqueValue(type: "VECTOR", json: odd))), "title": "x",
      ])
    #expect(String(decoding: record.system?.unknown ?? [], as: UTF8.self) == "{\(Self.unknown)}")
    // The record that cannot be read is held as it came, and the token has moved past it.
    let held = store.projections.sync.unread[RecordID("bad", zone: notes)]
    #expect(String(decoding: held?.raw ?? [], as: UTF8.self) == Self.bad)

    // An edit sends the field that was edited, and leaves the others to the server.
    record["title"] = "y"
    try await store.write { try $0.save(record) }
    #expect(try await store.engine.cycle(CycleOptions()).uploaded == 1)
    let edit = try #require(cloud.bodies("records/modify").last)
    #expect(edit.contains(#""operationType":"update""#) && edit.contains(#""title":{"type":"STRING","value":"y"}"#))
    #expect(!edit.contains("VECTOR"))
    #expect(cloud.bodies("changes/zone").count { $0.contains(#""syncToken":"next""#) } > 0)

    // A record whose parent is removed is replaced whole: then they are sent, as they came.
    record.parent = nil
    try await store.write { try $0.save(record) }
    #expect(try await store.engine.cycle(CycleOptions()).uploaded == 1)
    let whole = try #require(cloud.bodies("records/modify").last)
    #expect(whole.contains(#""operationType":"replace""#), "\(whole)")
    #expect(whole.contains("\"plain\":{\"type\":\"VECTOR\",\"value\":\(Self.odd)}"))
    #expect(whole.contains("\"listed\":{\"type\":\"VECTOR_LIST\",\"value\":[\(Self.odd)]}"))
    #expect(whole.contains("\"secret\":{\"isEncrypted\":true,\"type\":\"VECTOR\",\"value\":\(Self.odd)}"))
    try await store.close()
  }
}
