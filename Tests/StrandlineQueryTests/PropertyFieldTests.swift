// Goal: the key path of a property finds the field that the property is, and of a property that is none it finds nothing. Method:
// a type with every kind of property, and types of which the answer must be an error or a hint.

import Foundation
import StrandlineTesting
import Testing

@testable import Strandline

private func name<Value: SyncRecord, Property>(_ path: any KeyPath<Value, Property> & Sendable) throws -> String? {
  try PropertyFields.field(of: path, path)?.name
}

private func absence<Property>(_ path: any KeyPath<Page, Property> & Sendable) throws -> String {
  try PropertyFields.field(of: path, path).map { "\($0.absence)" } ?? "no field"
}

/// An enum of which no value can be made up.
private enum Secret: String, Codable, Sendable { case first = "one", second = "two" }

private struct Closed: SyncRecord {
  var id = "c"
  var secret: Secret
  var title: String
}

private struct Named: SyncRecord {
  static var fields: [PartialKeyPath<Named>: String] { [\.secret: "secret", \.title: "title"] }
  var id = "n"
  var secret: Secret
  var title: String
}

private struct HalfOpen: SyncRecord {
  var id = 7
  var secret: Secret?
  var title: String
  var other: String
  var flag: Bool
  var flag2: Bool
}

private struct Trimmed: SyncRecord {
  var id = UUID()
  var title: String
  init(title: String) { self.title = title }
  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    id = try fields.decode(UUID.self, forKey: .id)
    title = try fields.decode(String.self, forKey: .title).trimmingCharacters(in: .whitespaces)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct PropertyFieldTests {
  @Test func `each stored property finds its field, also under a name of its own`() throws {
    let names = [
      try name(\Page.id), try name(\Page.title), try name(\Page.body), try name(\Page.stars), try name(\Page.small),
      try name(\Page.price), try name(\Page.rating), try name(\Page.isDone), try name(\Page.mood),
      try name(\Page.level),
      try name(\Page.kind), try name(\Page.made), try name(\Page.due), try name(\Page.key), try name(\Page.tags),
      try name(\Page.numbers), try name(\Page.folder), try name(\Page.place), try name(\Page.parent),
    ]
    #expect(
      names == [
        "id", "title", "body", "stars", "small", "price", "rating", "isDone", "mood", "level", "kind", "made", "due",
        "key", "tags", "numbers", "folder", "place", "parent",
      ])
  }

  @Test func `properties of one type that cannot be told by a value find their own fields`() throws {
    #expect(try name(\HalfOpen.title) == "title")
    #expect(try name(\HalfOpen.other) == "other")
    #expect(try name(\HalfOpen.flag) == "flag")
    #expect(try name(\HalfOpen.flag2) == "flag2")
    #expect(try name(\HalfOpen.id) == "id")
  }

  @Test func `a property that is computed or read in a way of its own is no field`() throws {
    #expect(try name(\Page.shout) == nil)
    #expect(try name(\Page.clamped) == nil)
    #expect(try name(\Trimmed.title) == nil)
    #expect(try name(\Trimmed.id) == "id")
    // Nothing is known of an enum of which no value can be made up: it is nil in each made-up value.
    #expect(try name(\HalfOpen.secret) == nil)
  }

  @Test func `the ID of any type is its record's name, also where the type is generic`() throws {
    func idName<Value: SyncRecord>(_: Value.Type) throws -> String? { try name(\Value.id) }
    #expect(try idName(Page.self) == "id")
    #expect(try idName(HalfOpen.self) == "id")
    // No made-up value is needed.
    #expect(try idName(Closed.self) == "id")
    func explained<Value: SyncRecord>(_ id: Value.ID, _: Value.Type, _ store: RecordStore) throws -> String
    where Value.ID: Codable & Sendable {
      "\(try store.explain(Value.self, where: .where(\.id, .equal, id)))"
    }
    let store = try openPages()
    #expect(try explained("p1", Page.self, store) == "reads 1 record by name")
    try store.closeBlocking()
  }

  @Test func `what a property has without its field is known`() throws {
    #expect(try absence(\.title) == "unreadable")
    #expect(try absence(\.body) == "none")
    #expect(try absence(\.stars) == "value")
  }

  @Test func `a type that refuses made-up values is told what to declare`() throws {
    let error = #expect(throws: StrandlineError.self) { try name(\Closed.title) }
    #expect(error?.code == .invalidValue)
    #expect(error?.message.contains("secret") == true, "\(error?.message ?? "")")
    #expect(error?.message.contains("static var fields") == true)
    #expect(error?.message.contains("CaseIterable") == true)
    #expect(try name(\Named.secret) == "secret")
    #expect(try name(\Named.title) == "title")
  }
}
