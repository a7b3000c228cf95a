// Goal: each conflict can be shown and undone. Method: two devices edit one record, under each rule; what the log then tells
// is compared with what each side wrote, and the lost side is saved back.

import Strandline
import StrandlineSyncProofs
import Testing

private let id = RecordID("n")

extension Device {
  fileprivate func put(_ fields: [String: FieldValue]) async throws {
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }
}

/// Two devices that had the record in common and edited it; `a` has met the edit of `b`, which is at the server.
private func conflict(
  _ rules: TypeRules, ours: [String: FieldValue] = ["t": "ours"], theirs: [String: FieldValue] = ["t": "theirs"]
) async throws -> (a: Device, b: Device) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  var conflicts = ConflictRules()
  conflicts["Note"] = rules
  try await a.open(conflicts: conflicts)
  try await b.open(conflicts: conflicts)
  try await a.put(["t": "0", "u": "0"])
  try await exchange(a, b)
  try await a.put(ours)
  try await b.put(theirs)
  try await exchange(b, a, b)
  return (a, b)
}

@Suite(.timeLimit(.minutes(30))) struct `A record's conflicts` {
  @Test func `tell both sides, what they were made from, and what they became`() async throws {
    let (a, _) = try await conflict(TypeRules())
    let found = try #require(try await a.open().conflicts(of: id).first)
    #expect(found.rule == .join && found.reason == nil && found.milliseconds != nil)
    #expect(found.ancestor?.fields == ["t": "0", "u": "0"])
    #expect(found.local?.fields["t"] == "ours" && found.server?.fields["t"] == "theirs")
    let shown = try await a.open().record(id)
    #expect(found.result?.fields == shown?.fields)
    #expect("\(found)" == "conflict of Main/n at event \(found.position.lsn), by join")
    #expect(try await a.open().conflicts(of: id, after: found.position.lsn).isEmpty)
    #expect(try await a.open().conflicts(of: RecordID("other")).isEmpty)
    await #expect(throws: StrandlineError.self) { _ = try await a.open().conflicts(of: id, limit: 0) }
  }

  @Test func `are undone by saving what lost, and nothing that has changed since`() async throws {
    var rules = TypeRules()
    rules.record = .serverWins
    let (a, b) = try await conflict(rules)
    try await b.put(["u": "later"])
    try await exchange(b, a)
    try await keepMine(of: id, in: a.open())
    try await exchange(a, b)
    for device in [a, b] {
      let shown = try await device.open().record(id)
      #expect(shown?.fields == ["t": "ours", "u": "later"])
    }
  }

  @Test func `of an edit that the server's version beat name both`() async throws {
    var rules = TypeRules()
    rules.record = .serverWins
    let (a, _) = try await conflict(rules)
    let found = try #require(try await a.open().conflicts(of: id).first)
    #expect(found.rule == .serverWins && found.reason?.contains("by the rule serverWins") == true)
    #expect(found.local?.fields["t"] == "ours" && found.server?.fields["t"] == "theirs")
    #expect(found.result == found.server)
  }

  @Test func `of an edit that ended with its record keep the edit`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put(["t": "0"])
    try await exchange(a, b)
    try await a.put(["t": "ours"])
    try await b.remove("n")
    try await exchange(b, a)
    let found = try #require(try await a.open().conflicts(of: id).first)
    #expect(found.rule == .deletion && found.local?.fields == ["t": "ours"])
    #expect(found.server == nil && found.result == nil)
  }

  @Test func `are none where the sides changed different versions of nothing, and pages end where they are asked to`()
    async throws
  {
    let (a, b) = try await conflict(TypeRules(), ours: ["t": "same"], theirs: ["t": "same"])
    #expect(try await a.open().conflicts(of: id).isEmpty)
    for number in 0..<3 {
      try await a.put(["t": .string("a\(number)")])
      try await b.put(["t": .string("b\(number)")])
      try await exchange(b, a, b)
    }
    let store = try await a.open()
    let all = try store.conflicts(of: id)
    #expect(all.count == 3)
    var paged: [RecordConflict] = []
    while let next = try store.conflicts(of: id, after: paged.last?.position.lsn ?? .zero, limit: 1).first {
      paged.append(next)
    }
    #expect(paged == all)
    // What compaction has taken is missing, and nothing else.
    try await store.compact(keeping: .latest)
    #expect(try store.conflicts(of: id).count <= 3)
  }
}
