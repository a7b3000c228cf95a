// Goal: what the server would refuse record by record is refused at the write, with type, field and remedy. Method: each kind once,
// and what looks like it and is right.

import Foundation
import Strandline
import StrandlineSimulation
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

  private func store(_ fields: [String: FieldValue]) async throws -> RecordStore {
    let store = try await RecordStore.open(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { try $0.save(Record(type: "Book", id: RecordID("b"), fields: fields)) }
    return store
  }

  @Test func `a field that would change its type is refused, and nothing is written`() async throws {
    let place = Location(latitude: 1, longitude: 2)
    let values: [FieldValue] = [
      "text", 1, 1.5, .date(milliseconds: 1), .bytes([1]), .reference(Reference("x")), .location(place),
      .list(.strings, ["a"]), .list(.int64s, [1]), .encrypted("text"), .encrypted(1),
    ]
    for old in values {
      for new in values where new != old {
        let store = try await store(["opens": old, "title": "t"])
        let error = await #expect(throws: StrandlineError.self) {
          try await store.write { tx in
            var book = try #require(try tx.record(RecordID("b")))
            (book["opens"], book["title"]) = (new, "u")
            try tx.save(book)
          }
        }
        #expect(error?.code == .typeMismatch)
        for word in ["'Book'", "'opens'", old.typeName, new.typeName, "another name"] {
          #expect(error?.message.contains(word) == true, "\(error?.message ?? "") lacks \(word)")
        }
        #expect(error?.location?.contains("EarlyRefusalTests.swift:") == true)
        #expect(try store.record(RecordID("b"))?.fields == ["opens": old, "title": "t"])
      }
    }
  }

  @Test func `a field keeps its type with another value, with none, and with an empty list`() async throws {
    let store = try await store(["opens": 1, "tags": .list(.strings, ["a"]), "note": "n"])
    try await store.write { tx in
      var book = try #require(try tx.record(RecordID("b")))
      (book["opens"], book["tags"], book["note"], book["new"]) = (2, .list(.unknown, []), nil, 1.5)
      try tx.save(book)
      book["tags"] = .list(.strings, [])
      try tx.save(book)
    }
    let fields = try store.record(RecordID("b"))?.fields
    #expect(fields == ["opens": 2, "tags": .list(.strings, []), "new": 1.5])
  }

  /// A later version of an app, which calls what was a text a number.
  private struct Book: SyncRecord {
    var id = "b"
    var opens = 0
    var note: String?
  }

  /// The same, which says how the one becomes the other.
  private struct Migrated: SyncRecord {
    static let recordType = "Book"
    static func migrate(_ record: inout Record) {
      if case .string(let text)? = record["opens"] { record["opens"] = Int64(text).map { .int64($0) } }
    }
    var id = "b"
    var opens = 0
    var note: String?
  }

  @Test func `a typed save over another type is refused, and what the type's migration makes is not`() async throws {
    let store = try await store(["opens": "7"])
    let error = await #expect(throws: StrandlineError.self) { try await store.write { try $0.save(Book(opens: 8)) } }
    #expect(error?.code == .typeMismatch && error?.message.contains("'opens'") == true)
    #expect(try store.record(RecordID("b"))?["opens"] == "7")
    let receipt = try await store.update(Migrated.self, id: "b") { $0.note = "n" }.receipt
    #expect(try store.record(RecordID("b"))?.fields == ["opens": 7, "note": "n"])
    // An undo puts back what was there.
    #expect(try await store.undo(receipt).kept.isEmpty)
    #expect(try store.record(RecordID("b"))?.fields == ["opens": "7"])
    let migrated = try await self.store(["opens": "7"])
    try await migrated.write { try $0.save(Migrated(opens: 9)) }
    #expect(try migrated.record(RecordID("b"))?["opens"] == 9)
    let all = try await self.store(["opens": "7"])
    #expect(try await all.migrateAll(Migrated.self).migrated == 1)
    #expect(try all.record(RecordID("b"))?["opens"] == 7)
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

  @Test func `a date that is not finite is refused`() throws {
    for seconds in [Double.nan, .infinity, -.infinity, 1e300] {
      let error = try refusal("Note", ["due": .date(Date(timeIntervalSince1970: seconds))])
      #expect(error?.code == .invalidValue && error?.message.contains("'due'") == true, "\(seconds)")
    }
    #expect(try refusal("Note", ["due": .date(.distantFuture)]) == nil)
  }
}
