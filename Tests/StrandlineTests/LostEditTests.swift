// Goal: no edit loses a conflict in silence. Method: two devices edit one record under each rule, one of them loses; what the
// receipt, the history and `conflicts(of:)` then say is compared with what became of each field.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

private let id = RecordID("n")

extension Device {
  /// Edits the note, and returns the receipt.
  fileprivate func edit(_ fields: [String: FieldValue?]) async throws -> Receipt {
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  fileprivate var conflicts: [RecordConflict] { get async throws { try await open().conflicts(of: id) } }

  /// How many events tell of a conflict.
  fileprivate var told: Int {
    get async throws { try await open().history(of: id).changes.count { $0.kind == .conflicted } }
  }
}

/// Two devices that have the note in common; `b` edits it, then `a` by a later clock.
private func devices(_ rules: TypeRules = TypeRules(), holding fields: [String: FieldValue?]) async throws -> (
  a: Device, b: Device
) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  var conflicts = ConflictRules()
  conflicts["Note"] = rules
  for device in [a, b] { try await device.open(conflicts: conflicts) }
  try await a.put("n", fields)
  try await exchange(a, b)
  a.clock.advance(milliseconds: 10_000)
  return (a, b)
}

extension ConflictField {
  fileprivate static func of(_ name: String, _ rule: RecordConflict.Rule, _ loser: Loser) -> Self {
    Self(name: name, rule: rule, loser: loser)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A lost edit` {
  @Test func `of the only field is told, and not said to be at the server`() async throws {
    let (a, b) = try await devices(holding: ["title": "0"])
    let lost = try await b.edit(["title": "B"])
    let won = try await a.edit(["title": "A"])
    try await exchange(a, b, a)
    for device in [a, b] { #expect(try await device.value("n") == "A") }
    #expect(try await won.outcome() == [id: .saved])
    #expect(try await lost.outcome() == [id: .lost])
    await #expect(throws: StrandlineError.self) { try await lost.uploaded() }
    let conflict = try #require(try await b.conflicts.first)
    #expect(conflict.rule == .join && conflict.fields == [.of("title", .join, .here)])
    #expect(conflict.local?["title"] == "B" && conflict.server?["title"] == "A" && conflict.result?["title"] == "A")
    #expect(conflict.ancestor?["title"] == "0" && conflict.milliseconds != nil)
    // The receipt and the history say the same after a relaunch.
    try await b.close()
    let again = try await b.open().receipt(at: lost.position)
    #expect(try await again.outcome() == [id: .lost])
    let settled = try await b.open().history(of: id).changes.last { $0.kind == .settled }
    #expect(settled?.outcome == .lost)
    #expect(try await a.conflicts.isEmpty, "the server had it when nobody had met it")
    // To take the lost side is to save it.
    try await b.put("n", ["title": "B"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "B")
  }

  @Test func `of one field of two is told, and the other one is at the server`() async throws {
    let (a, b) = try await devices(holding: ["title": "0", "body": "0"])
    let receipt = try await b.edit(["title": "B", "body": "B"])
    try await a.put("n", ["title": "A"])
    try await exchange(a, b, a)
    #expect(try await a.value("n") == "A")
    #expect(try await a.value("n", "body") == "B")
    #expect(try await receipt.outcome() == [id: .partlyLost(fields: ["title"])])
    try await receipt.uploaded()
    #expect(try await b.conflicts.map(\.fields) == [[.of("title", .join, .here)]])
    #expect(try await b.conflicts.first?.result?["body"] == "B")
  }

  @Test func `of two in a row has an outcome of its own`() async throws {
    let (a, b) = try await devices(holding: ["title": "0", "body": "0"])
    let lost = try await b.edit(["title": "B"])
    let kept = try await b.edit(["body": "B"])
    try await a.put("n", ["title": "A"])
    try await exchange(a, b, a)
    #expect(try await lost.outcome() == [id: .lost])
    #expect(try await kept.outcome() == [id: .merged])
  }

  @Test func `of the other device is told by the one that met it`() async throws {
    let (a, b) = try await devices(holding: ["title": "0"])
    let theirs = try await b.edit(["title": "B"])
    try await a.put("n", ["title": "A"])
    try await exchange(b, a, b)
    #expect(try await b.value("n") == "A")
    #expect(try await a.conflicts.map(\.fields) == [[.of("title", .join, .there)]])
    #expect(try await theirs.outcome() == [id: .saved], "the server had it")
    #expect(try await b.conflicts.isEmpty)
    let history = try await b.open().history(of: id).changes
    #expect(history.contains { $0.kind == .fetched && $0.record?["title"] == "A" })
  }

  @Test func `is told by the rule that decided`() async throws {
    func met(
      _ rules: TypeRules, from: [String: FieldValue?], ours: [String: FieldValue?], theirs: [String: FieldValue?]
    ) async throws -> RecordConflict? {
      let (a, b) = try await devices(rules, holding: from)
      try await b.put("n", ours)
      try await a.put("n", theirs)
      try await exchange(a, b, a)
      try await expectAgreement(a, b)
      #expect(try await b.conflicts.count == 1)
      return try await b.conflicts.first
    }
    var rules = TypeRules()
    rules.fields = ["count": .counter, "best": .greatest, "tags": .union, "mine": .clientWins, "theirs": .serverWins]
    let fields = try await met(
      rules, from: ["count": 1, "best": 1, "tags": .list(.strings, ["x"]), "mine": 0, "theirs": 0],
      ours: ["count": 2, "best": 9, "tags": .list(.strings, ["x", "y"]), "mine": 1, "theirs": 1],
      theirs: ["count": 2, "best": 5, "tags": .list(.strings, ["x", "z"]), "mine": 2, "theirs": 2])
    #expect(
      fields?.fields == [
        .of("best", .greatest, .there), .of("count", .counter, .none), .of("mine", .clientWins, .there),
        .of("tags", .union, .none), .of("theirs", .serverWins, .here),
      ])
    #expect(fields?.result?["count"] == 3)

    rules = TypeRules()
    rules.record = .clientWins
    #expect(
      try await met(rules, from: ["title": "0"], ours: ["title": "B"], theirs: ["title": "A"])?.fields == [
        .of("title", .clientWins, .there)
      ])
    rules.record = .serverWins
    let server = try await met(
      rules, from: ["title": "0", "body": "0"], ours: ["title": "B", "body": "B"], theirs: ["title": "A"])
    #expect(server?.fields == [.of("body", .serverWins, .here), .of("title", .serverWins, .here)])
    #expect(server?.reason?.contains("serverWins") == true)
    rules.record = .resolver { conflict in
      var record = conflict.server
      record["title"] = "both"
      return record
    }
    let resolved = try await met(
      rules, from: ["title": "0", "body": "0"], ours: ["title": "B", "body": "B"], theirs: ["title": "A"])
    #expect(resolved?.fields == [.of("body", .resolver, .here), .of("title", .resolver, .both)])
    rules.record = .resolver { _ in throw CloudError(.notFound) }
    let failed = try await met(rules, from: ["title": "0"], ours: ["title": "B"], theirs: ["title": "A"])
    #expect(failed?.rule == .join && failed?.fields == [.of("title", .join, .here)])
    #expect(failed?.reason?.contains("the resolver failed") == true)
  }

  @Test func `to a deletion is told, and so is an edit that a deletion of here has ended`() async throws {
    let (a, b) = try await devices(holding: ["title": "0"])
    let lost = try await b.edit(["title": "B"])
    try await a.remove("n")
    try await exchange(a, b)
    #expect(try await lost.outcome() == [id: .deletedOnServer])
    let conflict = try #require(try await b.conflicts.first)
    #expect(conflict.rule == .deletion && conflict.fields == [.of("title", .deletion, .here)])
    #expect(conflict.local?["title"] == "B" && conflict.server == nil && conflict.result == nil)

    let other = try await devices(holding: ["title": "0"])
    try await other.b.put("n", ["title": "B"])
    try await other.a.remove("n")
    try await exchange(other.b, other.a, other.b)
    #expect(try await other.b.lives("n") == false)
    let ended = try #require(try await other.a.conflicts.first)
    #expect(ended.rule == .deletion && ended.fields == [.of("title", .deletion, .there)])
    #expect(ended.server?["title"] == "B" && ended.result == nil)
  }

  @Test func `is a deletion where edits revive`() async throws {
    var rules = TypeRules()
    rules.deletion = .editRevives
    let (a, b) = try await devices(rules, holding: ["title": "0"])
    try await b.put("n", ["title": "B"])
    try await a.remove("n")
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "B")
    let conflict = try #require(try await a.conflicts.first)
    #expect(conflict.rule == .revive && conflict.fields.isEmpty && conflict.reason?.contains("win") == true)
  }

  @Test func `is not one of here whose answer was lost, when the record is deleted here`() async throws {
    var rules = ConflictRules()
    rules["Note"].deletion = .editRevives
    let fleet = try Fleet()
    let b = fleet.device("b")
    let cloud = RefusingCloud(b)
    try await b.open(database: cloud, conflicts: rules)
    try await b.put("n", ["title": "0"])
    try await b.exchange()
    try await b.put("n", ["title": "B"])
    cloud.refuse { $0.lostAnswers = [CloudError(.tryAgainLater, reason: "busy")] }
    _ = try? await b.sync(.pushOnly, waitMillisecondsMax: 0)
    try await b.remove("n")
    try await b.exchange()
    #expect(try await !b.lives("n"))
    #expect(try await b.told == 0)
    #expect(cloud.sent.count >= 3, "the edit was sent, and then the deletion")
  }

  @Test func `is not told of a field that the app has saved since`() async throws {
    let (a, b) = try await devices(holding: ["title": "0", "body": "0"])
    try await b.put("n", ["body": "B"])
    let receipt = try await b.edit(["title": "B"])
    try await a.put("n", ["title": "A"])
    try await a.exchange()
    try await b.exchange(.pullOnly)
    let later = try await b.edit(["title": "C"])
    try await b.exchange()
    #expect(try await later.outcome() == [id: .saved])
    guard case .superseded? = try await receipt.outcome()[id] else {
      Issue.record("\(try await receipt.outcome())")
      return
    }
  }

  @Test func `of which compaction has taken the content is of no field that it may not have written`() async throws {
    let (a, b) = try await devices(holding: ["title": "0", "body": "0"])
    let receipt = try await b.edit(["body": "1"])
    try await b.put("n", ["title": "B"])
    try await a.put("n", ["title": "A"])
    try await exchange(a, b)
    #expect(try await receipt.outcome() == [id: .merged])
    try await a.put("n", ["title": "later"])
    try await exchange(a, b)
    #expect(try await b.compact(keeping: .latest).broken == nil)
    let outcome = try await b.open().receipt(at: receipt.position).outcome()[id]
    #expect(outcome == nil || outcome == .merged)
  }

  @Test func `of a record that the server has under another type is told`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "A"], type: "Task")
    try await b.put("n", ["title": "B"])
    try await exchange(a, b)
    let conflict = try #require(try await b.conflicts.first)
    #expect(conflict.rule == .type && conflict.fields == [.of("title", .type, .here)])
    #expect(conflict.local?.type == "Note" && conflict.server?.type == "Task")
  }

  @Test func `is not told where nothing was lost`() async throws {
    let (a, b) = try await devices(holding: ["title": "0", "body": "0"])
    // Equal edits, edits of different fields, and an edit whose answer was lost.
    for device in [a, b] { try await device.put("n", ["title": "same"]) }
    try await exchange(a, b, a)
    try await a.put("n", ["title": "A"])
    try await b.put("n", ["body": "B"])
    try await exchange(a, b, a)
    for device in [a, b] { #expect(try await device.told == 0) }
    try await expectAgreement(a, b)
  }

  @Test(arguments: [true, false]) func `is told after a compaction`(_ keepsHistory: Bool) async throws {
    let (a, b) = try await devices(holding: ["title": "0"])
    try await b.put("n", ["title": "B"])
    try await a.put("n", ["title": "A"])
    try await exchange(a, b)
    // Later versions take the place of those that the conflict names.
    for number in 0..<20 {
      try await a.put("n", ["title": .string("\(number)")])
      try await exchange(a, b)
    }
    let before = try #require(try await b.conflicts.first)
    let history: HistoryRetention = keepsHistory ? .since(.milliseconds(30 * 86_400_000)) : .latest
    #expect(try await b.compact(keeping: history).broken == nil)
    let after = try #require(try await b.conflicts.first)
    #expect(after.rule == .join && after.fields == [.of("title", .join, .here)])
    #expect(after.position == before.position && after.milliseconds == before.milliseconds)
    if keepsHistory { #expect(after == before) } else { #expect(after.local == nil && after.server == nil) }
  }
}
