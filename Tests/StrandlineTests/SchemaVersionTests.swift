// Versions of an app beside each other, where the app declares them.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

private func schema(_ number: Int64, _ rule: NewerVersionRule = .preserve) -> Schema {
  var schema = Schema()
  schema["Note"].version = SchemaVersion(number, whenNewer: rule)
  return schema
}

/// Version 1 had the stars as a text.
private struct Rated: SyncRecord {
  static func migrate(_ record: inout Record) {
    if case .string(let text)? = record["stars"] { record["stars"] = Int64(text).map { .int64($0) } }
  }
  var id: String
  var title: String
  var stars: Int?
}

@Suite(.timeLimit(.minutes(30))) struct SchemaVersionTests {
  @Test(arguments: [NewerVersionRule.preserve, .haltForUpgrade, .reject])
  func `162: a record of a later version of the app is kept, ends the sync, or waits for the update`(
    _ rule: NewerVersionRule
  ) async throws {
    let fleet = try Fleet()
    let (old, new) = (fleet.device("old"), fleet.device("new"))
    try await old.open(schema: schema(1, rule))
    try await new.open(schema: schema(2))
    try await old.put("n", ["title": "one"])
    try await exchange(old, new)
    try await new.put("n", ["color": "red"])
    try await new.put("m", ["title": "m"], type: "Other")
    try await new.exchange()
    try await old.put("mine", ["title": "t"])
    let error = await { () -> (any Error)? in
      do { _ = try await old.exchange() } catch { return error }
      return nil
    }()
    switch rule {
    case .preserve:
      #expect(error == nil)
      try await old.put("n", ["title": "two"])
      #expect(try await old.value("n", "schemaVersion") == 2)
    case .haltForUpgrade:
      #expect((error as? StrandlineError)?.code == .fromTheFuture)
      #expect(try await old.value("n", "color") == nil)
      #expect(try await old.open().status().unsettled == 1)
      let status = try await old.open().engine.status
      #expect(status.phase == .needsPerson)
      #expect(status.sentence.hasPrefix("Update this app"))
    case .reject:
      #expect(error == nil)
      #expect(try await old.value("n", "color") == nil)
      #expect(try await old.lives("m"))
      #expect(try await old.open().status().held.map(\.code) == [.newerSchema])
      // Not before the update. What is written here is held beside it, and costs two requests.
      try await old.put("n", ["title": "two"])
      try await old.exchange()
      try await old.close()
      try await old.open(schema: schema(1, rule))
      try await old.exchange()
      #expect(try await old.value("n", "color") == nil)
      let held = try await old.open().status().held
      #expect(held.map(\.code) == [.newerSchema, .newerSchema])
      #expect(held.count(where: \.isDownload) == 1)
    }
    try await old.close()
    try await old.open(schema: schema(2, rule))
    try await exchange(old, new, old)
    #expect(try await old.value("n", "color") == "red")
    #expect(try await old.value("n", "title") == (rule == .haltForUpgrade ? "one" : "two"))
    #expect(try await old.open().status().held.isEmpty)
    try await expectAgreement(old, new)
  }

  @Test func `a save raises the version with what it changes, and nothing lowers it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(schema: schema(2))
    try await a.put("n", ["title": "one"])
    #expect(try await a.value("n", "schemaVersion") == 2)
    try await exchange(a, b)
    try await a.close()
    try await a.open(schema: schema(3))
    let end = try await a.open().durableLSN
    try await a.put("n", ["title": "one"])
    #expect(try await a.open().durableLSN == end)
    try await a.put("n", ["title": "two", "schemaVersion": nil])
    #expect(try await a.value("n", "schemaVersion") == 3)
    // Another device writes a lower one, later.
    b.clock.advance(milliseconds: 60_000)
    try await b.put("n", ["schemaVersion": 1])
    for device in [b, a, b] { try await device.exchange() }
    #expect(try await a.value("n", "schemaVersion") == 3)
    try await expectAgreement(a, b)
  }

  @Test func `156: what an earlier version of the app wrote is brought up to date when it is read`() async throws {
    let a = try Fleet().device("a")
    try await a.put("n", ["title": "one", "stars": "3"], type: "Rated")
    let store = try await a.open()
    #expect(try store.fetch(Rated.self, id: "n")?.stars == 3)
    #expect(try store.fetch(Rated.self).map(\.stars) == [3])
    #expect(try await a.value("n", "stars") == "3")
    try await store.write { tx in
      guard var note = try tx.fetch(Rated.self, id: "n") else { return }
      note.title = "two"
      try tx.save(note)
    }
    #expect(try await a.value("n", "stars") == 3)
  }
}
