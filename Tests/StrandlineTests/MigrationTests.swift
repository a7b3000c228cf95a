// Migration: what `migrate` makes and removes is part of the value, so an edit stores it, and `migrateAll` stores it for all.
// Method: a rename, a split and a changed type, each read, edited, and read again; and batches that end early.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineTesting
import Synchronization
import Testing

/// Version 2 of an app, which calls `body` what version 1 called `note`.
private struct Renamed: SyncRecord, Equatable {
  static let recordType = "Item"
  static func migrate(_ record: inout Record) {
    if let note = record["note"] { (record["body"], record["note"]) = (note, nil) }
  }
  var id = "n"
  var version = RecordVersion()
  var body: String
  var stars: Int?
}

/// The same rename without a migration.
private struct Keyed: SyncRecord, Equatable {
  static let recordType = "Item"
  enum CodingKeys: String, CodingKey {
    case id, stars
    case body = "note"
  }
  var id = "n"
  var body: String
  var stars: Int?
}

/// One text that became two.
private struct Split: SyncRecord, Equatable {
  static let recordType = "Item"
  static func migrate(_ record: inout Record) {
    guard case .string(let name)? = record["name"] else { return }
    let parts = name.split(separator: " ", maxSplits: 1).map(String.init)
    record["first"] = .string(parts.first ?? "")
    record["last"] = .string(parts.count > 1 ? parts[1] : "")
    record["name"] = nil
  }
  var id = "n"
  var first: String
  var last: String
}

/// A number that was a text.
private struct Retyped: SyncRecord, Equatable {
  static let recordType = "Item"
  static func migrate(_ record: inout Record) {
    if case .string(let text)? = record["stars"] { record["stars"] = Int64(text).map { .int64($0) } }
  }
  var id = "n"
  var stars: Int?
  var body: String?
}

/// A counter that had another name.
private struct Counted: SyncRecord, Equatable {
  static let recordType = "Counted"
  static func migrate(_ record: inout Record) {
    if let count = record["count"] { (record["number"], record["count"]) = (count, nil) }
  }
  var id = "n"
  var number: Int
}

private func open(_ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) async throws -> RecordStore {
  try await RecordStore.open(at: "/store", environment: .simulated(disk: disk, seed: seed))
}

private func store(holding fields: [String: FieldValue]) async throws -> RecordStore {
  let store = try await open()
  try await store.write { try $0.save(Record(type: "Item", id: RecordID("n"), fields: fields)) }
  return store
}

private func notes(_ count: Int) -> [Record] {
  (0..<count).map { Record(type: "Item", id: RecordID("n\($0)"), fields: ["note": .string("\($0)")]) }
}

@Suite(.timeLimit(.minutes(30)))
struct MigrationTests {
  @Test func `a renamed field that was edited never shows the old value again`() async throws {
    for edit in 0..<4 {
      let store = try await store(holding: ["note": "old", "unknown": "kept"])
      var item = try #require(try store.fetch(Renamed.self, id: "n"))
      #expect(item == Renamed(body: "old"))
      let old = item
      item.body = "new"
      try await store.write { [item] tx in
        switch edit {
        case 0: try tx.update(Renamed.self, id: "n") { $0.body = "new" }
        case 1: try tx.save(item)
        case 2: try tx.save(item, from: old)
        default: try tx.save(Renamed(body: "new"))
        }
      }
      #expect(try store.fetch(Renamed.self, id: "n") == Renamed(body: "new"), "edit \(edit)")
      let stored = try #require(try store.record(RecordID("n")))
      #expect(stored.fields == ["body": "new", "unknown": "kept"], "edit \(edit)")
      // An edit of another field keeps the migrated one.
      try await store.update(Renamed.self, id: "n") { $0.stars = 3 }
      #expect(try store.fetch(Renamed.self, id: "n") == Renamed(body: "new", stars: 3))
    }
  }

  @Test func `an edit of another field stores what migration makes, and one that changes nothing does not`()
    async throws
  {
    let store = try await store(holding: ["note": "old"])
    #expect(try await store.update(Renamed.self, id: "n") { $0.body = "old" }.receipt.lsns == nil)
    #expect(try store.record(RecordID("n"))?.fields == ["note": "old"])
    try await store.update(Renamed.self, id: "n") { $0.stars = 1 }
    #expect(try store.record(RecordID("n"))?.fields == ["body": "old", "stars": 1])
  }

  @Test func `a value that was read before the rename was stored is saved from it`() async throws {
    let store = try await store(holding: ["note": "old"])
    var held = try #require(try store.fetch(Renamed.self, id: "n"))
    try await store.update(Renamed.self, id: "n") { $0.body = "by another" }
    held.stars = 5
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.fetch(Renamed.self, id: "n") == Renamed(body: "by another", stars: 5))
  }

  @Test func `a rename by coding keys needs no migration`() async throws {
    let store = try await store(holding: ["note": "old"])
    try await store.update(Keyed.self, id: "n") { $0.body = "new" }
    #expect(try store.record(RecordID("n"))?.fields == ["note": "new"])
    #expect(try store.fetch(Keyed.self, id: "n") == Keyed(body: "new"))
  }

  @Test func `a field that was split, and one whose type has changed, are edited`() async throws {
    let split = try await store(holding: ["name": "Ada King Lovelace"])
    #expect(try split.fetch(Split.self, id: "n") == Split(first: "Ada", last: "King Lovelace"))
    try await split.update(Split.self, id: "n") { $0.last = "Lovelace" }
    #expect(try split.fetch(Split.self, id: "n") == Split(first: "Ada", last: "Lovelace"))
    #expect(try split.record(RecordID("n"))?.fields == ["first": "Ada", "last": "Lovelace"])

    let typed = try await store(holding: ["stars": "3"])
    try await typed.update(Retyped.self, id: "n") { $0.body = "b" }
    #expect(try typed.record(RecordID("n"))?.fields == ["stars": 3, "body": "b"])
    try await typed.update(Retyped.self, id: "n") { $0.stars = nil }
    #expect(try typed.fetch(Retyped.self, id: "n") == Retyped(body: "b"))
  }

  @Test func `queries see the stored form, and the migrated one when all is migrated`() async throws {
    let store = try await open()
    try await store.write { tx in for note in notes(250) { try tx.save(note) } }
    try await store.write { try $0.save(Record(type: "Other", id: RecordID("x"), fields: ["note": "other"])) }
    let query = RecordQuery("Item", where: [RecordFilter("body", .equals, "7")])
    #expect(try store.query(query).records.isEmpty)
    var seen: [Int] = []
    let report = try await store.migrateAll(Renamed.self) { seen.append($0.migrated) }
    #expect(report.examined == 250 && report.migrated == 250 && report.failed.isEmpty && seen == [100, 200, 250])
    #expect(try store.query(query).records.map(\.id.name) == ["n7"])
    #expect(try store.record(RecordID("x"))?["note"] == "other")
    let end = store.durableLSN
    let again = try await store.migrateAll(Renamed.self)
    #expect(again.examined == 250 && again.migrated == 0 && store.durableLSN == end)
  }

  /// Two devices with one record of version 1, both with version 2 of the app. The second migrates and syncs first.
  @Test(arguments: [true, false])
  func `a migration undoes no edit that another device made before it`(migratesAll: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write {
      try $0.save(Record(type: "Item", id: RecordID("n"), fields: ["note": "x", "stars": 1]))
    }
    for device in [a, b] { try await device.exchange() }
    try await a.open().update(Renamed.self, id: "n") { $0.body = "edited" }
    b.clock.advance(milliseconds: 60_000)
    if migratesAll {
      #expect(try await b.open().migrateAll(Renamed.self).migrated == 1)
    } else {
      try await b.open().update(Renamed.self, id: "n") { $0.stars = 2 }
    }
    for device in [b, a, b] { try await device.exchange() }
    for device in [a, b] {
      let store = try await device.open()
      let record = try #require(try store.record(RecordID("n")))
      #expect(record["body"] == "edited" && record["note"] == nil, "\(record)")
      #expect(record["stars"] == .int64(migratesAll ? 1 : 2))
    }
  }

  @Test func `a count that two devices migrate is counted once`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var rules = ConflictRules()
    rules["Counted"].fields = ["number": .counter]
    for device in [a, b] { try await device.open(conflicts: rules) }
    try await a.open().write { try $0.save(Record(type: "Counted", id: RecordID("n"), fields: ["count": 5])) }
    for device in [a, b] { try await device.exchange() }
    for device in [a, b] { #expect(try await device.open().migrateAll(Counted.self).migrated == 1) }
    for device in [a, b, a] { try await device.exchange() }
    for device in [a, b] { #expect(try await device.open().record(RecordID("n"))?["number"] == 5) }
  }

  @Test func `what cannot be migrated is named, and the others are`() async throws {
    let store = try await open()
    try await store.write { tx in
      for note in notes(3) { try tx.save(note) }
      try tx.save(Record(type: "Item", id: RecordID("bad"), fields: ["note": 5]))
      try tx.save(Record(type: "Item", id: RecordID("empty")))
    }
    let report = try await store.migrateAll(Renamed.self)
    #expect(report.examined == 5 && report.migrated == 3)
    #expect(report.failed.map(\.id.name) == ["bad", "empty"])
    #expect(report.failed.map(\.error.code) == [.typeMismatch, .missingField])
    #expect(try store.record(RecordID("bad"))?.fields == ["note": 5])
    #expect("\(report)" == "3 records of 5 migrated, failed: Main/bad, Main/empty")
  }

  @Test func `a migration that a power cut or a cancellation ends is done by the next one`() async throws {
    let calm = try await filled()
    let begin = calm.disk.callCount
    try await calm.store.migrateAll(Renamed.self)
    let calls = begin + 1...calm.disk.callCount
    #expect(calls.count > 3)
    var partial = 0
    for call in calls {
      let (store, disk) = try await filled()
      disk.cutPower(atCall: call)
      _ = try? await store.migrateAll(Renamed.self)
      let again = try await open(disk.afterPowerCut(seed: UInt64(call)), seed: 2)
      let report = try await again.migrateAll(Renamed.self)
      if (1..<250).contains(report.migrated) { partial += 1 }
      #expect(report.examined == 250 && report.failed.isEmpty, "call \(call)")
      let values = try again.fetch(Renamed.self)
      #expect(Set(values.map { "\($0.id) \($0.body)" }) == Set((0..<250).map { "n\($0) \($0)" }), "call \(call)")
      #expect(try again.records(ofType: "Item").allSatisfy { $0["note"] == nil }, "call \(call)")
      try await again.close()
    }
    #expect(partial > 0)
    // Cancelled after the first batch.
    let (store, _) = try await filled()
    let box = Mutex<Task<Int, any Error>?>(nil)
    let (begun, signal) = AsyncStream<Void>.makeStream()
    let task = Task {
      for await _ in begun { break }
      var batches = 0
      do {
        try await store.migrateAll(Renamed.self) { _ in
          batches += 1
          box.withLock { $0?.cancel() }
        }
      } catch is CancellationError { return batches }
      return -1
    }
    box.withLock { $0 = task }
    signal.yield()
    #expect(try await task.value == 1)
    #expect(try await store.migrateAll(Renamed.self).migrated == 150)
  }

  private func filled() async throws -> (store: RecordStore, disk: SimulatedDisk) {
    let disk = SimulatedDisk()
    let store = try await open(disk)
    try await store.write { tx in for note in notes(250) { try tx.save(note) } }
    return (store, disk)
  }
}
