// Deletions, and lives that begin again under a deleted name, with old pages among them. The names of the tests begin with
// the numbers of the scenarios.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

/// A fleet whose devices have the same rule for notes, and all hold the note `n`.
private func devices(_ count: Int, _ rule: DeletionRule = .deletionWins) async throws -> (Fleet, [Device]) {
  let fleet = try Fleet()
  var conflicts = ConflictRules()
  conflicts["Note"].deletion = rule
  let devices = (0..<count).map { fleet.device("d\($0)") }
  for device in devices { try await device.open(conflicts: conflicts) }
  try await devices[0].put("n", ["title": "t", "body": "b"])
  for device in devices { try await device.exchange() }
  return (fleet, devices)
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioDeletionTests {
  @Test func `an old tombstone does not settle the deletion of a later life`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "life 1"])
    try await exchange(b, a)
    try await b.remove("n")
    try await b.exchange()
    try await b.create("n", ["title": "life 2"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "life 2")
    try await a.remove("n")
    cloud.showAgain(.deleted(name: "n"))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a, b)
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `an old tombstone does not end a creation whose answer was lost`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web(through: InProcessTransport(fleet.server, waitsForDroppedAnswers: false)))
    try await a.open(database: cloud)
    try await a.put("n", ["title": "life 1"])
    try await a.exchange()
    try await a.remove("n")
    try await exchange(a, b, a)
    try await a.create("n", ["title": "life 2"])
    var faults = ServerFaults()
    faults.dropAnswer = 1
    fleet.server.setFaults(faults)
    _ = try? await a.sync(.pushOnly, waitMillisecondsMax: 0)
    fleet.server.setFaults(ServerFaults())
    a.clock.advance(milliseconds: 600_000)
    cloud.showAgain(.deleted(name: "n"))
    try await exchange(a, b, a)
    #expect(try await a.value("n") == "life 2")
    #expect(try await b.value("n") == "life 2")
    try await expectAgreement(a, b)
  }

  @Test func `an old page does not undo an edit of a life that replaced another`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await a.put("n", ["title": "life 1"])
    try await exchange(a, b)
    try await b.put("n", ["title": "life 1, edited"])
    try await b.exchange()
    // A has not seen the edit, and replaces the record.
    try await a.remove("n")
    try await a.create("n", ["title": "life 2, old"])
    try await exchange(a, b)
    let old = try await cloud.current("n")
    try await a.put("n", ["title": "life 2, new"])
    // The second time A's own edit comes back.
    try await exchange(a, a)
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "life 2, new")
    try await expectAgreement(a, b)
  }

  @Test func `80: a record that was deleted on one device is gone on the other`() async throws {
    let (_, d) = try await devices(2)
    try await d[0].remove("n")
    try await exchange(d[0], d[1])
    #expect(try await !d[1].lives("n"))
    try await expectAgreement(d[0], d[1])
  }

  @Test(arguments: [DeletionRule.deletionWins, .editRevives], [true, false])
  func `45, 81, 82: a deletion that was synced meets an edit, fetched first or sent first`(
    _ rule: DeletionRule, _ fetchesFirst: Bool
  ) async throws {
    let (_, d) = try await devices(3, rule)
    try await d[0].remove("n")
    try await d[0].exchange()
    try await d[1].put("n", ["title": "edited"])
    if !fetchesFirst { try await d[1].exchange(.pushOnly) }
    try await exchange(d[1], d[0], d[2], d[1])
    try await expectAgreement(d[0], d[1], d[2])
    let history = try await d[1].open().history(of: RecordID("n")).changes
    switch rule {
    case .deletionWins:
      #expect(try await !d[0].lives("n"))
      #expect(history.contains { $0.kind == .settled && $0.outcome == .deletedOnServer })
      #expect(history.contains { $0.kind == .saved && $0.record?["title"] == "edited" })
    case .editRevives:
      #expect(try await d[0].value("n") == "edited")
      #expect(try await d[2].value("n", "body") == "b")
      #expect(history.filter { $0.rule == .revive }.count == 1)
    }
  }

  @Test(arguments: [DeletionRule.deletionWins, .editRevives], [true, false])
  func `83: an edit that was synced meets a deletion, in either order`(_ rule: DeletionRule, _ editFirst: Bool)
    async throws
  {
    let (_, d) = try await devices(2, rule)
    try await d[0].put("n", ["title": "edited"])
    try await d[1].remove("n")
    for place in editFirst ? [0, 1, 0, 1] : [1, 0, 1, 0] { try await d[place].exchange() }
    #expect(try await d[0].value("n") == (rule == .deletionWins ? nil : "edited"))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `46, 83: two edits revive a record once`() async throws {
    let (_, d) = try await devices(3, .editRevives)
    try await d[0].remove("n")
    try await d[0].exchange()
    try await d[1].put("n", ["title": "edited"])
    try await d[2].put("n", ["body": "edited"])
    try await exchange(d[1], d[2], d[0], d[1], d[2])
    #expect(try await d[0].value("n", "title") == "edited")
    #expect(try await d[0].value("n", "body") == "edited")
    try await expectAgreement(d[0], d[1], d[2])
  }

  @Test func `84: a save that is fetched does not show a record whose deletion is not sent yet`() async throws {
    let (_, d) = try await devices(2)
    try await d[0].put("n", ["title": "edited"])
    try await d[0].exchange()
    try await d[1].remove("n")
    try await d[1].exchange(.pullOnly)
    #expect(try await !d[1].lives("n"))
    try await exchange(d[1], d[0])
    #expect(try await !d[0].lives("n"))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `85: an old page with a save of a deleted record does not bring it back`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    let old = try await cloud.current("n")
    try await a.remove("n")
    try await exchange(a, b)
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a, b)
    #expect(try await !a.lives("n"))
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `86: an edit that comes back after ninety days does not bring a deleted record back`() async throws {
    let (fleet, d) = try await devices(2)
    try await d[1].put("n", ["title": "edited"])
    try await d[0].remove("n")
    try await d[0].exchange()
    for clock in [fleet.serverClock, d[0].clock, d[1].clock] { clock.advance(milliseconds: 90 * 86_400_000) }
    _ = try await d[0].compact()
    try await exchange(d[0], d[1], d[0])
    #expect(try await !d[0].lives("n"))
    try await expectAgreement(d[0], d[1])
  }

  @Test(arguments: [true, false])
  func `87: a record that was created again lives everywhere`(_ isCreatedElsewhere: Bool) async throws {
    let (_, d) = try await devices(3)
    try await d[0].remove("n")
    try await exchange(d[0], d[1])
    let creator = isCreatedElsewhere ? d[1] : d[0]
    try await creator.create("n", ["title": "second life"])
    try await exchange(creator, d[2], d[0], d[1])
    for device in d { #expect(try await device.value("n") == "second life") }
    try await expectAgreement(d[0], d[1], d[2])
  }

  @Test func `47, 88: two devices delete a record`() async throws {
    let (fleet, d) = try await devices(2)
    try await d[0].remove("n")
    try await d[1].remove("n")
    try await exchange(d[0], d[1], d[0])
    #expect(fleet.server.statistics.appliedOperations == 2, "a save and a deletion")
    try await expectAgreement(d[0], d[1])
  }

  /// A record that hangs below another by a reference of a kind.
  private func child(_ name: String, of parent: String, _ action: Reference.Action = .deleteSelf) -> Record {
    Record(type: "Child", id: RecordID(name), fields: ["of": .reference(Reference(parent, action: action))])
  }

  @Test func `90: children are deleted before their parents`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { tx in
      for parent in 0..<3 {
        try tx.save(Record(type: "Note", id: RecordID("p\(parent)"), fields: ["title": "p"]))
        for number in 0..<5 { try tx.save(child("c\(parent)-\(number)", of: "p\(parent)", .validate)) }
      }
    }
    try await exchange(a, b)
    try await a.open().write { tx in
      for parent in 0..<3 {
        try tx.delete(RecordID("p\(parent)"))
        for number in 0..<5 { try tx.delete(RecordID("c\(parent)-\(number)")) }
      }
    }
    let report = try await a.exchange()
    #expect(report.uploaded == 18)
    #expect(report.held == 0)
    try await b.exchange()
    #expect(try await b.dump().isEmpty)
    try await expectAgreement(a, b)
  }

  @Test(arguments: [false, true])
  func `91: deletions of parents and children come in any order`(_ parentFirst: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.open().write { tx in
      try tx.save(Record(type: "Note", id: RecordID("p"), fields: ["title": "p"]))
      for number in 0..<3 { try tx.save(child("c\(number)", of: "p")) }
    }
    try await exchange(b, a)
    let children = (0..<3).map { ZoneChange.deleted(name: "c\($0)") }
    for change in parentFirst ? [.deleted(name: "p")] + children : children + [.deleted(name: "p")] {
      cloud.showAgain(change)
    }
    try await b.remove("p")
    try await exchange(b, a, b)
    #expect(try await a.dump().isEmpty)
    try await expectAgreement(a, b)
  }

  @Test func `92: a deletion that comes late does not end the life that began since`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "first life"])
    try await exchange(b, a)
    try await b.remove("n")
    try await exchange(b, a)
    try await b.create("n", ["title": "second life"])
    try await exchange(b, a)
    cloud.showAgain(.deleted(name: "n"))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "second life")
    try await expectAgreement(a, b)
  }

  @Test func `95: a record under another name is the old one deleted and a new one saved`() async throws {
    let (_, d) = try await devices(2)
    try await d[0].open().write { tx in
      guard let old = try tx.record(RecordID("n")) else { return }
      try tx.delete(old.id)
      try tx.save(Record(type: old.type, id: RecordID("renamed"), fields: old.fields))
    }
    try await exchange(d[0], d[1])
    #expect(try await !d[1].lives("n"))
    #expect(try await d[1].value("renamed") == "t")
    #expect(try await d[1].dump().count == 1)
    try await expectAgreement(d[0], d[1])
  }

  @Test func `96: a deletion that is not acknowledged outlasts a compaction and a crash`() async throws {
    let (_, d) = try await devices(2)
    try await d[1].put("n", ["title": "edited"])
    try await d[0].remove("n")
    _ = try await d[0].compact()
    d[0].crash()
    try await d[1].exchange()
    try await d[0].exchange(.pullOnly)
    #expect(try await !d[0].lives("n"))
    try await exchange(d[0], d[1])
    #expect(try await !d[1].lives("n"))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `97: a compacted deletion still stops an old page`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", segmentBytesMax: 64 << 10), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    let old = try await cloud.current("n")
    try await b.remove("n")
    try await exchange(b, a)
    _ = try await a.compact()
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a)
    #expect(try await !a.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `99: a record of a type that the app does not know is removed`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "x"], type: "OfAnotherVersion")
    try await exchange(a, b)
    #expect(try await b.lives("n"))
    try await a.remove("n")
    try await exchange(a, b)
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `a life that the deleting device had not seen lives on beside the new one`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    // Two devices begin a life each under one name, and the server has both in one record.
    try await a.put("n", ["title": "of a"])
    try await b.put("n", ["body": "of b"])
    try await a.exchange()
    // This one has seen the first life only when it deletes it and begins a third.
    try await a.remove("n")
    try await a.create("n", ["count": 3])
    try await b.exchange()
    try await exchange(a, b, a)
    try await expectAgreement(a, b)
    #expect(try await a.value("n", "body") == "of b", "an acknowledged write that was not deleted")
    #expect(try await a.value("n", "count") == 3)
  }
  @Test func `an edit does not bring back a life that another device has left out of the record`() async throws {
    let fleet = try Fleet()
    let (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
    // The server's record has two lives, and a deletes the first, the one that it has seen. The second lives on.
    try await a.put("n", ["title": "of a"])
    try await c.put("n", ["body": "of c"])
    try await exchange(a, c, b)
    try await a.remove("n")
    try await a.exchange()
    #expect(try await a.value("n", "body") == "of c")
    // Only a knows that the first life has ended. When it merges an edit, it leaves that life out.
    try await a.put("n", ["title": "edited by a"])
    try await c.put("n", ["body": "edited by c"])
    try await exchange(c, a, c)
    // This device had both lives when it edited the record, and has not sent the edit when the second life is deleted too.
    try await b.put("n", ["count": 3])
    try await b.exchange(.pullOnly)
    try await c.remove("n")
    try await exchange(c, b, a, c)
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b, c)
  }
}
