// Goal: a request costs the server what it brings and changes, not what it refers to times what else refers to that: nobody
// waits for minutes because one client has made records with thousands of references. Method: such records in memory; a
// test ends within a minute, which the cost of before exceeded by far.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct CostTests {
  private static func references(_ count: Int, _ action: Reference.Action = .deleteSelf) -> FieldValue {
    .list(.references, (0..<count).map { .reference(Reference("target \($0)", action: action)) })
  }

  @Test(.timeLimit(.minutes(30))) func `records with thousands of references to the same cost little`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    for number in 0..<8 {
      let fields: [String: FieldValue?] = ["to": Self.references(12_000), "title": "t"]
      #expect(try await client.note("n\(number)", fields) != nil)
    }
    for number in 0..<8 {
      let update = CloudOperation(.forceUpdate, name: "n\(number)", type: "Note", fields: ["title": "again"])
      #expect(try await client.one(update)?.record != nil)
    }
    // As many fields with one reference each.
    var fields: [String: FieldValue?] = [:]
    for number in 0..<12_000 { fields["f\(number)"] = .reference(Reference("n\(number % 8)", action: .deleteSelf)) }
    #expect(try await client.note("wide", fields) != nil)
    #expect(
      try await client.one(CloudOperation(.forceUpdate, name: "wide", type: "Note", fields: fields))?.record != nil)
    #expect(try await client.one(CloudOperation(.forceDelete, name: "n0"))?.isDeleted == true)
    #expect(try server.record("wide", zone: "Notes", in: database) == nil)
    #expect(try server.record("n1", zone: "Notes", in: database) != nil)
  }

  @Test func `the references of one request have a limit, and a client sends fewer records at a time`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    func operations(_ count: Int) -> [CloudOperation] {
      (0..<count).map { CloudOperation(.create, name: "n\($0)", type: "Note", fields: ["to": Self.references(12_000)]) }
    }
    let refusal = await #expect(throws: CloudError.self) {
      try await client.modify(operations(2), in: notes, atomic: true)
    }
    #expect(refusal?.code == .limitExceeded)
    #expect(refusal?.reason.contains("20000 references with DELETE_SELF or VALIDATE") == true, "\(refusal as Any)")
    #expect(try server.records(zone: "Notes", in: database)?.isEmpty == true)
    #expect(try await client.modify(operations(1), in: notes, atomic: true)["n0"]?.record != nil)
    // References that bind nothing are not counted.
    let free = (0..<2).map {
      CloudOperation(.create, name: "free \($0)", type: "Note", fields: ["to": Self.references(12_000, .none)])
    }
    #expect(try await client.modify(free, in: notes, atomic: true)["free 1"]?.record != nil)
  }

  @Test func `a reference that leaves its target makes room for another, in the same request too`() async throws {
    var limits = ServerLimits()
    limits.deleteSelfSourcesMax = 2
    let client = CloudServer.still(limits: limits).client()
    try await client.createZone(notes)
    try await client.note("target")
    func save(_ name: String, _ action: Reference.Action?) -> CloudOperation {
      let reference = action.map { FieldValue.reference(Reference("target", action: $0)) }
      return CloudOperation(.forceUpdate, name: name, type: "Note", fields: ["to": reference])
    }
    func taken(_ operations: [CloudOperation]) async throws -> [Bool] {
      let results = try await client.modify(operations, in: notes, atomic: false)
      return operations.map { results[$0.name]?.error == nil }
    }
    #expect(try await taken([save("a", .deleteSelf), save("b", .deleteSelf)]) == [true, true])
    #expect(try await taken([save("c", .deleteSelf)]) == [false])
    // Those that refer to it already are not counted twice.
    #expect(try await taken([save("a", .deleteSelf), save("b", .deleteSelf)]) == [true, true])
    #expect(try await taken([save("a", nil), save("c", .deleteSelf)]) == [true, true])
    #expect(try await taken([save("b", .validate), save("d", .deleteSelf)]) == [true, true])
    #expect(try await taken([save("a", .deleteSelf)]) == [false])
    #expect(try await taken([CloudOperation(.forceDelete, name: "c"), save("a", .deleteSelf)]) == [true, true])
    #expect(try await taken([save("c", .deleteSelf)]) == [false])
    // The validating one keeps the target; without it the others go along.
    #expect(try await taken([CloudOperation(.forceDelete, name: "target")]) == [false])
    #expect(try await taken([save("b", nil), CloudOperation(.forceDelete, name: "target")]) == [true, true])
    let rest = try await client.lookup(["a", "b", "c", "d"], in: notes)
    #expect(["a", "b", "c", "d"].map { rest[$0]?.record != nil } == [false, true, false, false])
  }
}
