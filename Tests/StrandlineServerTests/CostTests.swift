// Goal: a request costs the server what it brings and changes, not what it refers to times what else refers to that: nobody
// waits for minutes because one client has made records with thousands of references. Method: such records in memory; the
// server counts the references that it looks at, and a test compares that with what its request has.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct CostTests {
  private static func references(_ count: Int, _ action: Reference.Action = .deleteSelf) -> FieldValue {
    .list(.references, (0..<count).map { .reference(Reference("target \($0)", action: action)) })
  }

  @Test func `a request looks at the references that it has, and not at those of others to the same`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    let own = 400
    var before = 0
    /// Looks at no more references than so many times those of one record.
    func cost(_ times: Int, _ words: String, _ body: () async throws -> CloudResult?) async throws {
      #expect(try await body()?.error == nil, "\(words)")
      let looked = server.lookedReferences - before
      before += looked
      #expect(looked > 0 && looked <= times * own, "\(words): \(looked) of \(own)")
    }
    for number in 0..<20 {
      let fields: [String: FieldValue?] = ["to": Self.references(own), "title": "t"]
      try await cost(1, "create n\(number)") {
        try await client.one(CloudOperation(.create, name: "n\(number)", type: "Note", fields: fields))
      }
    }
    for number in 0..<20 {
      // The old ones and the new ones.
      try await cost(2, "update n\(number)") {
        try await client.one(
          CloudOperation(.forceUpdate, name: "n\(number)", type: "Note", fields: ["title": "again"]))
      }
    }
    // As many fields with one reference each.
    var fields: [String: FieldValue?] = [:]
    for number in 0..<own { fields["f\(number)"] = .reference(Reference("n\(number % 8)", action: .deleteSelf)) }
    let wide = CloudOperation(.forceUpdate, name: "wide", type: "Note", fields: fields)
    try await cost(1, "create wide") { try await client.one(wide) }
    try await cost(2, "update wide") { try await client.one(wide) }
    // Its own, and those of the one that goes along.
    try await cost(3, "delete n0") { try await client.one(CloudOperation(.forceDelete, name: "n0")) }
    #expect(try server.record("wide", zone: "Notes", in: database) == nil)
    #expect(try server.record("n1", zone: "Notes", in: database) != nil)
  }

  @Test func `a deletion that a thousand records forbid looks at each of them once`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("target")
    for page in 0..<5 {
      let operations = (0..<200).map { number in
        let name = "s\(page * 200 + number + 1_000)"
        let reference = FieldValue.reference(Reference("target", action: .validate))
        return CloudOperation(.create, name: name, type: "Note", fields: ["to": reference])
      }
      _ = try await client.modify(operations, in: notes, atomic: true)
    }
    let before = server.lookedReferences
    let refusal = try await client.one(CloudOperation(.forceDelete, name: "target"))
    #expect(refusal?.code == .validatingReferenceError)
    #expect(refusal?.error?.reason.contains("recordID=s1000,") == true, "\(refusal as Any)")
    #expect(server.lookedReferences - before <= 2_001)
  }

  @Test func `refusals that follow from each other are looked for only so far`() async throws {
    var limits = ServerLimits()
    limits.modifyRepeatsMax = 2_000
    let client = CloudServer.still(limits: limits).client()
    try await client.createZone(notes)
    /// Each is valid if the next is, and the last is not.
    func chain(_ count: Int) -> [CloudOperation] {
      (0..<count).map { number in
        let next = FieldValue.reference(Reference("n\(number + 1)", action: .validate))
        return CloudOperation(.create, name: "n\(number)", type: "Note", fields: ["to": next])
      }
    }
    let short = try await client.modify(chain(20), in: notes, atomic: false)
    #expect(short.count == 20 && short.values.allSatisfy { $0.code == .validatingReferenceError })
    let refusal = await #expect(throws: CloudError.self) {
      try await client.modify(chain(200), in: notes, atomic: false)
    }
    #expect(refusal?.code == .limitExceeded && refusal?.reason.contains("follow from others") == true)
    #expect(try await client.everything().changes.isEmpty)
    // Two hundred in a chain have 20,100 references over all rounds, far below what the server takes.
    let whole = CloudServer.still().client()
    try await whole.createZone(notes)
    let long = try await whole.modify(chain(200), in: notes, atomic: false)
    #expect(long.values.allSatisfy { $0.code == .validatingReferenceError })
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
