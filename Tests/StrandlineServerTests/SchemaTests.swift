// Goal: a field of a record type keeps the type of its first value, as at CloudKit, unless the server is told otherwise.
// Method: this package's client over the in-process transport, and a server that is opened again.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import Testing

@Suite(.timeLimit(.minutes(30)))
struct SchemaTests {
  private static func client(_ change: (inout ServerLimits) -> Void = { _ in }) async throws -> WebServicesDatabase {
    var limits = ServerLimits()
    change(&limits)
    let client = CloudServer.still(limits: limits).client()
    try await client.createZone(notes)
    return client
  }

  @Test func `a value of another type than the field's first is refused, with both types`() async throws {
    let client = try await Self.client()
    let tag = try await client.note("a", ["x": 1, "list": .list(.strings, ["s"])])
    let other = try await client.one(CloudOperation(.create, name: "b", type: "Note", fields: ["x": "text"]))
    #expect(other?.code == .badRequest)
    #expect(other?.error?.reason.hasPrefix("Invalid value, x type STRING.") == true)
    #expect(other?.error?.reason.contains("of type INT64 in records of the type Note") == true)
    // The record's own field neither.
    let same = try await client.one(
      CloudOperation(.update, name: "a", type: "Note", changeTag: tag, fields: ["x": 0.5]))
    #expect(same?.code == .badRequest)
    for (index, value) in ([.encrypted(1), .list(.int64s, [1]), .date(milliseconds: 1)] as [FieldValue]).enumerated() {
      let result = try await client.one(CloudOperation(.create, name: "\(index)", type: "Note", fields: ["x": value]))
      #expect(result?.code == .badRequest, "\(value)")
    }
    // Null, an empty list of unknown kind, the same type, and another record type are accepted.
    #expect(try await client.note("c", ["x": 7, "list": .list(.unknown, [])]) != nil)
    #expect(try await client.one(CloudOperation(.create, name: "d", type: "Note", fields: ["x": nil]))?.record != nil)
    #expect(try await client.one(CloudOperation(.create, name: "e", type: "Other", fields: ["x": "t"]))?.record != nil)
    let list = try await client.one(
      CloudOperation(.create, name: "f", type: "Note", fields: ["list": .list(.int64s, [1])]))
    #expect(list?.code == .badRequest)
  }

  @Test func `the first operation of a request fixes the type, and one that is refused does not`() async throws {
    let client = try await Self.client()
    let both = [
      CloudOperation(.create, name: "a", type: "Note", fields: ["x": 1]),
      CloudOperation(.create, name: "b", type: "Note", fields: ["x": "text"]),
    ]
    let atomic = try await client.modify(both, in: notes, atomic: true)
    #expect(atomic["a"]?.code == .atomicError && atomic["b"]?.code == .badRequest)
    let loose = try await client.modify(both.reversed(), in: notes, atomic: false)
    #expect(loose["b"]?.record != nil && loose["a"]?.code == .badRequest)
  }

  @Test func `an empty list is refused as a field's first value, and taken in place of a later one`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    func save(_ kind: CloudOperation.Kind, _ value: FieldValue) async throws -> CloudError? {
      try await client.one(CloudOperation(kind, name: "n", type: "Note", fields: ["tags": value, "t": "t"]))?.error
    }
    for none in [FieldValue.list(.strings, []), .list(.unknown, []), .encrypted(.list(.strings, []))] {
      let refused = try await save(.create, none)
      #expect(refused?.code == .badRequest)
      #expect(refused?.reason.contains("cannot use an empty list to initialize a new field") == true)
    }
    #expect(try await save(.create, .list(.strings, ["a"])) == nil)
    #expect(try await save(.forceUpdate, .list(.strings, [])) == nil)
    #expect(try await save(.forceUpdate, .list(.unknown, [])) == nil)
  }

  @Test func `the databases of a container share the types, its environments do not`() async throws {
    let server = CloudServer.still()
    func database(_ environment: CloudEnvironment, _ scope: DatabaseScope) -> WebServicesDatabase {
      WebServicesDatabase(
        address: CloudAddress(container: "iCloud.test", environment: environment, scope: scope), apiToken: "",
        session: nil, baseURL: "http://127.0.0.1:1", transport: InProcessTransport(server), environment: .still())
    }
    let zone = ZoneID("_defaultZone")
    let text = CloudOperation(.create, name: "t", type: "Note", fields: ["x": "text"])
    let first = database(.development, .private)
    _ = try await first.modify(
      [CloudOperation(.create, name: "a", type: "Note", fields: ["x": 1])], in: zone, atomic: false)
    let open = ZoneID("_defaultZone", scope: .public)
    #expect(
      try await database(.development, .public).modify([text], in: open, atomic: false)["t"]?.code == .badRequest)
    #expect(try await database(.production, .private).modify([text], in: zone, atomic: false)["t"]?.record != nil)
  }

  @Test func `a server that is opened again knows the types`() async throws {
    let disk = SimulatedDisk()
    let first = try RestartTests.open(disk)
    try await first.client().createZone(notes)
    try await first.client().note("a", ["x": 1])
    try first.close()
    let second = try RestartTests.open(disk, seed: 2)
    let result = try await second.client().one(
      CloudOperation(.create, name: "b", type: "Note", fields: ["x": "text"]))
    #expect(result?.code == .badRequest)
    try second.close()
  }

  @Test func `a server without a schema takes every type`() async throws {
    let client = try await Self.client { $0.fixesFieldTypes = false }
    try await client.note("a", ["x": 1])
    #expect(try await client.note("b", ["x": "text"]) != nil)
  }
}
