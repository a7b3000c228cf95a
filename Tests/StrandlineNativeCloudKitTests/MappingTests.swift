// Goal: a value goes to the server and comes back as it was, and one that cannot is refused and not changed. Method: each row of the
// table both ways, through a record that is saved and fetched; generated records; what the web shows of them; and values as Apple's
// runtime answers with them, which a careless cast would take for others.

import CloudKit
import CoreLocation
import Foundation
import Strandline
import StrandlineCloudKit
@testable import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

/// Values that CloudKit's framework has a class for.
private let values: [String: FieldValue] = [
  "text": "Å e\u{301}\n\u{0}", "emptyText": "", "zero": 0, "one": 1, "least": .int64(.min), "greatest": .int64(.max),
  "three": .double(3), "truth": .double(1), "fraction": .double(-0.1), "tiny": .double(.leastNonzeroMagnitude),
  "time": .date(milliseconds: 1_767_225_600_123), "before": .date(milliseconds: -1), "epoch": .date(milliseconds: 0),
  "yearOne": .date(milliseconds: -62_135_769_600_000), "bytes": .bytes([0, 255, 1]), "noBytes": .bytes([]),
  "friend": .reference(Reference("x")), "owner": .reference(Reference("x", action: .deleteSelf)),
  "abroad": .reference(Reference("x", zone: ZoneID("Other"))),
  "place": .location(Location(latitude: 1.5, longitude: -2.5)),
  "fullPlace": .location(
    Location(
      latitude: -90, longitude: 180, horizontalAccuracy: 0, verticalAccuracy: 3, altitude: 0, speed: 0, course: 359.5,
      timestamp: 1_767_225_600_001)),
  "underground": .location(Location(latitude: 0, longitude: 0, altitude: -12.25)),
  "texts": .list(.strings, ["a", ""]), "numbers": .list(.int64s, [1, 0]),
  "reals": .list(.doubles, [.double(3), .double(1)]),
  "times": .list(.dates, [.date(milliseconds: 1), .date(milliseconds: -1)]),
  "blobs": .list(.bytes, [.bytes([1]), .bytes([])]),
  "friends": .list(.references, [.reference(Reference("x")), .reference(Reference("y", zone: ZoneID("Other")))]),
  "places": .list(.locations, [.location(Location(latitude: 1, longitude: 2))]),
]

/// The same where CloudKit encrypts them.
private let encrypted: [String: FieldValue] = Dictionary(
  uniqueKeysWithValues: values.filter { $0.value.references.isEmpty }.map { ("secret_" + $0.key, .encrypted($0.value)) }
)

@Suite(.timeLimit(.minutes(30)))
struct `Values through CloudKit's framework` {
  @Test func `come back as they were, encrypted ones too, and are the same by the web`() async throws {
    let scene = try await NativeScene()
    for name in ["x", "y"] { _ = try await scene.create(name, [:]) }
    let all = values.merging(encrypted) { first, _ in first }
    for (name, value) in all.sorted(by: { $0.key < $1.key }) {
      _ = try await scene.create("n-\(name)", [name: value])
      let here = try await scene.database.lookup(["n-\(name)"], in: scene.zone).saved("n-\(name)")
      #expect(here.fields == [name: value], "\(name)")
      // By the framework a place always has all its numbers, of which some say that they are none.
      if name.lowercased().contains("place") || name.contains("underground") { continue }
      #expect(try await scene.atServer("n-\(name)").fields == [name: value], "\(name)")
    }
    _ = try await scene.create("all", all.mapValues { .some($0) }, parent: "x")
    let found = try await scene.database.lookup(["all"], in: scene.zone).saved("all")
    #expect(found.fields == all && found.parent == "x")
    let page = try #require(
      try await scene.database.zoneChanges(of: [ZoneQuery(scene.zone, since: nil, limit: 200)])[scene.zone]
    ).get()
    let fed = page.changes.compactMap { change in if case .saved(let record) = change { record } else { nil } }
    #expect(fed.first { $0.name == "all" }?.fields == all)
  }

  @Test func `come back as they were in generated records`() async throws {
    let scene = try await NativeScene()
    let random = SeededRandom(seed: 11)
    for number in 0..<200 {
      var fields: [String: FieldValue] = [:]
      for field in 0..<8 where !random.next().isMultiple(of: 3) { fields["f\(field)"] = generated(field, random) }
      let name = "g\(number)"
      _ = try await scene.create(name, fields.mapValues { .some($0) })
      #expect(try await scene.database.lookup([name], in: scene.zone).saved(name).fields == fields, "\(number)")
    }
  }

  private func generated(_ kind: Int, _ random: SeededRandom) -> FieldValue {
    let bits = random.next()
    switch kind {
    case 0: return .int64(Int64(bitPattern: bits))
    case 1:
      let number = Double(bitPattern: bits)
      return .double(number.isFinite && number != 0 ? number : Double(bits % 10))
    case 2: return .date(milliseconds: Int64(bitPattern: bits) >> 14)
    case 3: return .bytes(random.bytes(Int(bits % 40)))
    case 4: return .string(String(decoding: random.bytes(Int(bits % 20)), as: UTF8.self))
    case 5: return .list(.doubles, (0...Int(bits % 4)).map { .double(Double($0)) })
    case 6: return .encrypted(.int64(Int64(bitPattern: bits)))
    default: return .list(.int64s, (0...Int(bits % 4)).map { .int64(Int64($0)) })
    }
  }

  @Test func `are told apart by what they were made of`() throws {
    let record = CKRecord(recordType: "Note")
    for (value, expected) in [
      (NSNumber(value: true), FieldValue.int64(1)), (NSNumber(value: false), 0), (NSNumber(value: 3.0), .double(3)),
      (NSNumber(value: 1.0), .double(1)), (NSNumber(value: Int8(-1)), -1), (NSNumber(value: UInt32.max), 4_294_967_295),
      (NSNumber(value: Float(0.5)), .double(0.5)), (NSNumber(value: -0.0), .double(0)),
    ] {
      #expect(NativeValues.value(value, in: .main) == expected, "\(value)")
      record["n"] = value
    }
    for kept in [NSNumber(value: Double.nan), NSNumber(value: Double.infinity), NSNumber(value: UInt64.max)] {
      #expect(NativeValues.isKept(NativeValues.value(kept, in: .main)), "\(kept)")
    }
    #expect(NativeValues.value(NSDate(timeIntervalSince1970: 1.0004), in: .main) == .date(milliseconds: 1000))
    #expect(NativeValues.value(NSDate(timeIntervalSince1970: 1.0006), in: .main) == .date(milliseconds: 1001))
    #expect(NativeValues.value(NSArray(), in: .main) == .list(.unknown, []))
    let mixed = NSArray(array: [NSNumber(value: 1), NSString(string: "a")])
    #expect(NativeValues.isKept(NativeValues.value(mixed, in: .main)))
    // A number that is whole and one that is not are no list either.
    let numbers = NSArray(array: [NSNumber(value: 1), NSNumber(value: 1.0)])
    #expect(NativeValues.isKept(NativeValues.value(numbers, in: .main)))
    #expect(NativeValues.isKept(NativeValues.value(NSObject(), in: .main)))
  }

  @Test func `that the framework has no class for refuse their record, and no other`() async throws {
    let scene = try await NativeScene()
    for (value, words) in [
      (FieldValue.reference(Reference("x", action: .validate)), "VALIDATE"), (.double(.nan), "finite"),
      (.location(Location(latitude: .infinity, longitude: 0)), "finite"),
      (.opaque(OpaqueValue(type: "NEW", json: [0x7B, 0x7D])), "NEW"), (.date(milliseconds: .max), "millisecond"),
      (.asset(Asset(fileChecksum: "c", size: 1)), "content"), (.list(.assets, []), "contents"),
      (.encrypted(.encrypted(1)), "encrypted"), (.list(.strings, [.date(milliseconds: .min)]), "millisecond"),
    ] {
      let results = try await scene.modify(
        CloudOperation(.create, name: "bad", type: "Note", fields: ["f": value]),
        CloudOperation(.create, name: "good", type: "Note", fields: ["title": "a"]))
      let error = try results.refusal("bad").error
      #expect(error.code == .badRequest && error.reason.contains(words) && error.reason.contains("'f'"), "\(error)")
      let saved = try results.saved("good")
      _ = try await scene.modify(
        CloudOperation(.delete, name: "good", changeTag: saved.system.changeTag, archive: saved.system.archive))
    }
    #expect(try await scene.database.lookup(["bad"], in: scene.zone).refusal("bad").error.code == .notFound)
  }

  @Test func `of contents are kept as they are at the server`() async throws {
    let scene = try await NativeScene()
    let asset = FieldValue.asset(Asset(fileChecksum: "c", size: 1))
    let made = try await scene.web.modify(
      [CloudOperation(.create, name: "n", type: "Note", fields: ["photo": asset, "title": "a", "old": "b"])],
      in: scene.zone, atomic: false
    ).saved("n")
    let there = try await scene.atServer("n").fields["photo"]
    let here = try await scene.database.lookup(["n"], in: scene.zone).saved("n")
    let kept = try #require(here.fields["photo"])
    #expect(NativeValues.isKept(kept))
    // A replacement names it, and cannot send it.
    let results = try await scene.modify(
      CloudOperation(
        .replace, name: "n", type: "Note", changeTag: made.system.changeTag,
        fields: ["photo": kept, "title": "c"]))
    #expect(try results.saved("n").system.changeTag != made.system.changeTag)
    let after = try await scene.atServer("n")
    #expect(after.fields["photo"] == there && after.fields["title"] == "c" && after.fields["old"] == nil)
  }

  @Test func `have the names that the model has for what is not ASCII`() async throws {
    let scene = try await NativeScene()
    let foreign = CKRecord(recordType: "Note", recordID: CKRecord.ID(recordName: "n"))
    foreign["Größe"] = NSNumber(value: 1)
    let read = ServerRecord(foreign, in: scene.zone, user: nil)
    #expect(read.fields == ["Gr%C3%B6%C3%9Fe": 1])
  }
}
