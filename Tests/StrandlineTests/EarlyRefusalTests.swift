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
