// Goal: what the server would refuse record by record is refused at the write, with type, field and remedy. Method: each kind once,
// and what looks like it and is right.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineTestSupport
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30)))
struct EarlyRefusalTests {
  private func refusal(_ type: String, _ fields: [String: FieldValue]) throws -> StrandlineError? {
    let store = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    var refused: StrandlineError?
    do { try store.writeBlocking { try $0.save(Record(type: type, id: RecordID("r"), fields: fields)) } } catch {
      refused = error as? StrandlineError
    }
    #expect(try (refused == nil) == (store.record(RecordID("r")) != nil))
    try store.closeBlocking()
    return refused
  }

  @Test(arguments: [
    "creationDate", "creatorUserRecordID", "etag", "lastModifiedUserRecordID", "modificationDate", "modifiedByDevice",
    "recordChangeTag", "recordID", "recordType",
  ])
  func `a field with a name that CloudKit keeps is refused`(name: String) throws {
    let error = try refusal("Note", [name: 1])
    #expect(error?.code == .invalidName)
    #expect(error?.message.contains("'\(name)'") == true && error?.message.contains("choose another") == true)
    #expect(try refusal("Note", [name + "s": 1, "x" + name: 2]) == nil)
  }

  @Test func `a type that CloudKit keeps is refused`() throws {
    for type in ["Users", "User"] { #expect(try refusal(type, ["a": 1])?.code == .invalidName) }
    #expect(try refusal("UserNote", ["recordIDs": 1]) == nil)
  }

  @Test func `an encrypted reference or asset is refused`() throws {
    let reference = FieldValue.reference(Reference("x"))
    for value in [reference, .list(.references, [reference]), .asset(Asset(fileChecksum: "c", size: 1))] {
      let error = try refusal("Note", ["secret": .encrypted(value)])
      #expect(error?.code == .invalidValue && error?.message.contains("'secret'") == true)
    }
    #expect(try refusal("Note", ["secret": .encrypted(.list(.strings, ["a"]))]) == nil)
  }

  private static let ofEachType: [FieldValue] = [
    "text", 1, 1.5, .date(milliseconds: 1), .bytes([1]), .reference(Reference("b0")),
    .location(Location(latitude: 1, longitude: 2)), .list(.strings, ["a"]), .list(.int64s, [1]), .encrypted("text"),
    .encrypted(1),
  ]

  @Test func `a field of a record that the server has keeps its type, and nothing is written`() async throws {
    let device = try Fleet().device("a")
    let store = try await device.open()
    let values = Self.ofEachType
    for (number, value) in values.enumerated() {
      let book = Record(type: "Book", id: RecordID("b\(number)"), fields: ["opens\(number)": value, "title": "t"])
      try await store.write { try $0.save(book) }
    }
    try await device.exchange()
    for (number, old) in values.enumerated() {
      for new in values where new != old {
        let id = RecordID("b\(number)")
        let before = try #require(try store.record(id))
        var book = before
        (book["opens\(number)"], book["title"]) = (new, "u")
        let wanted = book
        let error = await #expect(throws: StrandlineError.self) {
          try await store.write { try $0.save(wanted) }
        }
        #expect(error?.code == .typeMismatch, "\(old) to \(new)")
        for word in ["'Book'", "'opens\(number)'", old.typeName, new.typeName, "another name"] {
          #expect(error?.message.contains(word) == true, "\(error?.message ?? "") lacks \(word)")
        }
        #expect(error?.location?.contains("EarlyRefusalTests.swift:") == true)
        #expect(try store.record(id) == before)
      }
    }
    // Another value of the type, none, an empty list of which nothing says what is in it, and a new field.
    var book = try #require(try store.record(RecordID("b7")))
    (book["opens7"], book["title"], book["new"]) = (.list(.unknown, []), nil, 1.5)
    try await store.write { [book] in try $0.save(book) }
    try await device.exchange()
    #expect(try store.pendingChanges(limit: 1).changes.isEmpty)
  }

  @Test func `a field may change its type as long as no server has the record`() async throws {
    let store = try await RecordStore.open(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    for value in Self.ofEachType + Self.ofEachType.reversed() {
      try await store.write { try $0.save(Record(type: "Book", id: RecordID("b"), fields: ["opens": value])) }
      #expect(try store.record(RecordID("b"))?["opens"] == value)
    }
  }

  /// A later version of an app, which calls what was a text a number, and says how.
  private struct Book: SyncRecord {
    static func migrate(_ record: inout Record) {
      if case .string(let text)? = record["opens"] { record["opens"] = Int64(text).map { .int64($0) } }
    }
    var id = "b"
    var opens = 0
    var note: String?
  }

  @Test func `a migration that gives a field of the server's another type is refused with the first edit`() async throws
  {
    let device = try Fleet().device("a")
    let store = try await device.open()
    try await store.write { try $0.save(Record(type: "Book", id: RecordID("b"), fields: ["opens": "7"])) }
    // Nobody else has it yet.
    try await store.update(Book.self, id: "b") { $0.note = "n" }
    #expect(try store.record(RecordID("b"))?.fields == ["opens": 7, "note": "n"])
    try await store.write { try $0.save(Record(type: "Book", id: RecordID("b"), fields: ["opens": "7"])) }
    try await device.exchange()
    let error = await #expect(throws: StrandlineError.self) {
      try await store.update(Book.self, id: "b") { $0.note = "n" }
    }
    #expect(error?.code == .typeMismatch && error?.message.contains("'opens'") == true)
    let report = try await store.migrateAll(Book.self)
    #expect(report.migrated == 0 && report.failed.map(\.id) == [RecordID("b")])
    #expect(try store.record(RecordID("b"))?.fields == ["opens": "7"])
  }

  private enum Mood: String, Codable { case calm, stormy }

  private struct Weather: SyncRecord {
    var id: UUID
    var mood: Mood
  }

  @Test func `what a type cannot read is said in the app's words`() throws {
    func why(_ name: String, _ mood: FieldValue) -> String? {
      let record = Record(type: "Weather", id: RecordID(name), fields: ["mood": mood])
      do {
        _ = try record.value(as: Weather.self)
        return nil
      } catch { return (error as? StrandlineError)?.message }
    }
    let name = "90B3B7C8-0000-4000-8000-000000000001"
    #expect(why(name, "calm") == nil)
    let later = try #require(why(name, "foggy"))
    for word in ["'mood'", "foggy", "Mood has no case", "later version of the app"] {
      #expect(later.contains(word), "\(later)")
    }
    let small = try #require(why(name.lowercased(), "calm"))
    #expect(small.contains("record names of UUIDs are in capital letters: '\(name)'"), "\(small)")
  }

  @Test func `a save of a deleted name says which call makes it again`() throws {
    let store = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let record = Record(type: "Note", id: RecordID("n"))
    try store.writeBlocking { try $0.save(record) }
    try store.writeBlocking { try $0.delete(RecordID("n")) }
    let error = #expect(throws: StrandlineError.self) { try store.writeBlocking { try $0.save(record) } }
    #expect(error?.code == .recordWasDeleted)
    #expect(error?.message.contains("call tx.create(value) to make it again") == true, "\(error?.message ?? "")")
    try store.writeBlocking { try $0.create(record) }
    try store.closeBlocking()
  }

  @Test func `a date that is not finite is refused`() throws {
    for seconds in [Double.nan, .infinity, -.infinity, 1e300] {
      let error = try refusal("Note", ["due": .date(Date(timeIntervalSince1970: seconds))])
      #expect(error?.code == .invalidValue && error?.message.contains("'due'") == true, "\(seconds)")
    }
    #expect(try refusal("Note", ["due": .date(.distantFuture)]) == nil)
  }
}
