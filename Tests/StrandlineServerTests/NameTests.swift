// Goal: the server tells names apart by their bytes: of records, zones and targets, in one request and one by one, in its
// tables, its feed, its queries and its journal. Method: pairs of names that Unicode calls equal.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

private let pairs = NamePair.all.map { ($0.one, $0.other) }

extension [String] {
  fileprivate var bytes: [[UInt8]] { map { [UInt8]($0.utf8) } }
}

@Suite(.timeLimit(.minutes(30)))
struct NameTests {
  @Test(arguments: [true, false])
  func `creates of two names go together and one by one`(areTogether: Bool) async throws {
    for (one, other) in pairs {
      let client = CloudServer.still().client()
      try await client.createZone(notes)
      let operations = [one, other].map { CloudOperation(.create, name: $0, type: "Note", fields: ["title": "t"]) }
      if areTogether {
        let results = try await client.modify(operations, in: notes, atomic: true)
        #expect(results.count == 2 && results.values.allSatisfy { $0.record != nil }, "\(results)")
      } else {
        for operation in operations { #expect(try await client.one(operation)?.record != nil) }
      }
      #expect(try await client.everything().changes.map(\.name).bytes == [one, other].bytes)
      let found = try await client.lookup([one, other], in: notes)
      #expect(found.count == 2 && found.values.allSatisfy { $0.record != nil })
      #expect(Array((found[CloudName(other)]?.record?.name ?? "").utf8) == Array(other.utf8))
      let newest = try await client.newestRecords(ofType: "Note", in: notes, limit: 10, after: nil)
      #expect(newest.records.count == 2)
      #expect(try await client.one(CloudOperation(.forceDelete, name: one))?.isDeleted == true)
      #expect(try await client.everything().changes.map(\.mark).bytes == [other, "-" + one].bytes)
    }
  }

  @Test func `zones of two names are two`() async throws {
    for (one, other) in pairs {
      let client = CloudServer.still().client()
      for name in [one, other] { try await client.createZone(ZoneID(name)) }
      let names = [one, other].sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
      #expect(try await client.zones().map(\.name).bytes == names.bytes)
      for name in [one, other] {
        let zone = ZoneID(name)
        _ = try await client.one(CloudOperation(.create, name: "r", type: "Note", fields: ["title": "t"]), in: zone)
        #expect(try await client.everything(in: zone).changes.count == 1)
      }
      #expect(try await client.databaseChanges(since: nil, limit: 10).zones.count == 2)
      try await client.deleteZone(ZoneID(one))
      #expect(try await client.zones().map(\.name).bytes == [other].bytes)
      #expect(try await client.databaseChanges(since: nil, limit: 10).zones.map(\.loss) == [nil, .deleted])
    }
  }

  @Test func `a reference binds the record of its bytes`() async throws {
    for (one, other) in pairs {
      let client = CloudServer.still().client()
      try await client.createZone(notes)
      for name in [one, other] { try await client.note(name) }
      try await client.note("child", ["to": .reference(Reference(one, action: .deleteSelf))])
      #expect(try await client.one(CloudOperation(.forceDelete, name: other))?.isDeleted == true)
      #expect(try await client.lookup(["child"], in: notes)["child"]?.record != nil)
      #expect(try await client.one(CloudOperation(.forceDelete, name: one))?.isDeleted == true)
      #expect(try await client.lookup(["child"], in: notes)["child"]?.record == nil)
    }
  }

  @Test func `a journal that is read again has both`() async throws {
    for (one, other) in pairs {
      let disk = SimulatedDisk()
      func open() throws -> CloudServer {
        try CloudServer(
          directory: "/cloud",
          environment: SystemEnvironment(fileSystem: disk, clock: StillClock(), random: SeededRandom(seed: 7)),
          controlIntervalMilliseconds: nil)
      }
      let server = try open()
      for name in [one, other] {
        try await server.client().createZone(ZoneID(name))
        for record in [one, other] {
          _ = try await server.client().one(
            CloudOperation(.create, name: record, type: "Note", fields: ["title": "t"]), in: ZoneID(name))
        }
      }
      try server.close()
      let again = try open()
      for name in [one, other] {
        #expect(try await again.client().everything(in: ZoneID(name)).changes.map(\.name).bytes == [one, other].bytes)
        #expect(try again.record(other, zone: name, in: database)?.name.utf8.elementsEqual(other.utf8) == true)
      }
    }
  }
}
