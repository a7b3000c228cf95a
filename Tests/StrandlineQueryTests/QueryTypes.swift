// A type with every kind of property that a condition can name, and a store with small tables for it.

import Foundation
import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineTesting

enum Mood: String, Codable, CaseIterable, Sendable { case calm, wild, none }
enum Level: Int, Codable, Sendable { case low = 1, high = 7 }
/// Reads each text that it does not know as `other`.
enum Kind: String, Codable, CaseIterable, Sendable {
  case note, list, other
  init(from decoder: any Decoder) throws {
    self = Kind(rawValue: try decoder.singleValueContainer().decode(String.self)) ?? .other
  }
}
struct Place: JSONField, Equatable {
  var city: String
  var floor: Int?
}

struct Folder: SyncRecord, Hashable {
  var id = "f"
  var name = ""
}

struct Page: SyncRecord, Equatable {
  var id: String
  var title: String
  var body: String?
  var stars: Int
  var small: UInt8?
  var price: Double
  var rating: Float?
  var isDone: Bool
  var mood: Mood
  var level: Level
  var kind: Kind
  var made: Date
  var due: Date?
  var key: UUID?
  var tags: [String]
  var numbers: Set<Int>
  var folder: TypedReference<Folder>?
  var place: Place?
  var parent: Parent<Folder>?
  /// Read of its field in a way of its own.
  var clamped: Int

  var shout: String { title.uppercased() }
  var lengths: [String: Int] { ["title": title.utf8.count] }

  enum CodingKeys: String, CodingKey {
    case id, title, body, stars, small, price, rating, isDone, mood, level, kind, made, due, key, tags, numbers, folder
    case place, parent
    case clamped = "limit"
  }

  init(_ id: String, _ random: (Int) -> Int) {
    func text() -> String {
      ["", "a", "ab", "b", "L", "Lo", "é", "e\u{301}", "Z", "\u{10FFFF}", "\u{FF5E}"][random(11)]
    }
    func maybe<Value>(_ value: @autoclosure () -> Value) -> Value? { random(3) == 0 ? nil : value() }
    self.id = id
    title = text()
    body = maybe(text())
    stars = [-1, 0, 1, 2, 3, 4, .max][random(7)]
    small = maybe([0, 1, 200][random(3)])
    price = [-0.5, 0, 0.5, 1, 2.5, 1e300][random(6)]
    rating = maybe([0, 0.25, 1][random(3)])
    isDone = random(2) == 0
    mood = Mood.allCases[random(3)]
    level = random(2) == 0 ? .low : .high
    kind = Kind.allCases[random(3)]
    made = Date(timeIntervalSince1970: Double(random(4)))
    due = maybe(Date(timeIntervalSince1970: Double(random(3)) + 0.001))
    key = maybe(Self.keys[random(2)])
    tags = (0..<random(3)).map { _ in text() }
    numbers = Set((0..<random(3)).map { _ in random(4) })
    folder = maybe(TypedReference(id: "f\(random(2))", action: Reference.Action.allCases[random(3)]))
    place = maybe(Place(city: text(), floor: maybe(random(3))))
    parent = maybe(Parent(id: "f\(random(2))"))
    clamped = random(5)
  }

  static let keys = [
    UUID(uuidString: "8D1A6E0C-52B8-4C93-9B0E-3C2F5D7A9E41"), UUID(uuidString: "1B7F0A52-0E64-4D0B-A7C5-6F3E9D2C8B10"),
  ].compactMap { $0 }

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    id = try fields.decode(String.self, forKey: .id)
    title = try fields.decode(String.self, forKey: .title)
    body = try fields.decodeIfPresent(String.self, forKey: .body)
    // A record of an older version of the app has none.
    stars = try fields.decodeIfPresent(Int.self, forKey: .stars) ?? 3
    small = try fields.decodeIfPresent(UInt8.self, forKey: .small)
    price = try fields.decode(Double.self, forKey: .price)
    rating = try fields.decodeIfPresent(Float.self, forKey: .rating)
    isDone = try fields.decode(Bool.self, forKey: .isDone)
    mood = try fields.decode(Mood.self, forKey: .mood)
    level = try fields.decode(Level.self, forKey: .level)
    kind = try fields.decode(Kind.self, forKey: .kind)
    made = try fields.decode(Date.self, forKey: .made)
    due = try fields.decodeIfPresent(Date.self, forKey: .due)
    key = try fields.decodeIfPresent(UUID.self, forKey: .key)
    tags = try fields.decode([String].self, forKey: .tags)
    numbers = try fields.decode(Set<Int>.self, forKey: .numbers)
    folder = try fields.decodeIfPresent(TypedReference<Folder>.self, forKey: .folder)
    place = try fields.decodeIfPresent(Place.self, forKey: .place)
    parent = try fields.decodeIfPresent(Parent<Folder>.self, forKey: .parent)
    clamped = min(3, try fields.decode(Int.self, forKey: .clamped))
  }
}

extension RecordID {
  init(page name: String) { self.init(name, zone: Page.zone) }
}

/// Small segments and tables, so that a few pages fill several.
func pageOptions(indexes: [RecordIndex] = [], parent: ParentSchema? = nil) -> StoreOptions {
  var log = LogOptions()
  log.segmentBytesMax = 32 << 10
  log.controlIntervalMilliseconds = nil
  log.ballastBytes = 0
  log.upkeep = .onDemand
  var index = IndexOptions()
  index.flushCount = 16
  index.mergeWidth = 3
  var options = StoreOptions(log: log, index: index)
  options.indexes = indexes
  options.schema["Page"].parent = parent
  return options
}

func openPages(
  _ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1, indexes: [RecordIndex] = [], parent: ParentSchema? = nil
) throws -> RecordStore {
  try RecordStore.openBlocking(
    at: "/store", options: pageOptions(indexes: indexes, parent: parent),
    environment: .simulated(disk: disk, seed: seed))
}

/// Every index that a condition of these tests could use.
let allIndexes: [RecordIndex] = [
  "title", "body", "stars", "small", "price", "rating", "isDone", "mood", "level", "kind", "made", "due", "key", "tags",
  "numbers", "folder", "limit",
].map { RecordIndex("Page", $0) }

/// As other tools may store what the type reads as the same value: any number for true, whole numbers without a fraction, more digits
/// than a Float has.
func storeOtherwise(_ record: inout Record, _ random: (Int) -> Int) {
  if record["isDone"] == .int64(1) { record["isDone"] = .int64([-1, 2, .min, .max][random(4)]) }
  if case .double(let price)? = record["price"], let whole = Int64(exactly: price) { record["price"] = .int64(whole) }
  if case .double(let rating)? = record["rating"] { record["rating"] = .double(rating + 1e-12) }
}
