// Typed records: what a Codable type stores comes back as it was, whatever its properties hold, and what cannot be
// stored or read is named.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineTesting
import Testing

/// Lists of every kind, all empty.
private struct EmptyLists: SyncRecord, Equatable {
  var id = "n"
  var strings: [String] = []
  var numbers: [Int] = []
  var doubles: [Double] = []
  var dates: [Date] = []
  var data: [Data] = []
  var references: [Reference] = []
  var locations: [Location] = []
  var colours: [Colour] = []
  var levels: Set<Level> = []
  var addresses: [Address] = []
  var optional: [String]? = []
  var bytes: [UInt8] = []
}

private enum Colour: String, Codable { case red, green }
private enum Level: Int, Codable { case low, high }

private struct Address: JSONField, Hashable {
  enum Floor: Codable, Hashable { case ground, numbered(Int), named(String) }
  var street: String
  var floor: Floor?
  var codes: Set<Int> = []
}

/// A property of every type that can be stored.
private struct Everything: SyncRecord, Equatable {
  var id: UUID
  var text = "moon\n\u{1F315}"
  var flag = true
  var int = Int.min
  var small: Int8 = -128
  var unsigned: UInt32 = .max
  var double = -1.5e300
  var float: Float = 0.1
  var date = Date(timeIntervalSince1970: 1_767_225_600.123)
  var data = Data([0, 255])
  var bytes: [UInt8] = [1]
  var uuid: UUID
  var url: URL
  var colour = Colour.green
  var level = Level.high
  var reference = Reference("shore", zone: ZoneID("Other"))
  var record = RecordID("shore", zone: ZoneID("Other"))
  var typed = TypedReference<Shore>(id: 7)
  var location = Location(latitude: 53.9, longitude: 8.5, timestamp: 5)
  var asset = Asset(fileChecksum: "abc", size: 3)
  var address = Address(street: "Deich", floor: .numbered(2), codes: [3, 1, 2])
  var value = FieldValue.encrypted("secret")
  var texts: [String] = ["b", "a"]
  var set: Set<String> = ["b", "a", "c"]
  var places: Set<RecordID> = [RecordID("b"), RecordID("a"), RecordID("a", zone: ZoneID("A"))]
  var dates: [Date] = [Date(timeIntervalSince1970: 0)]
  var uuids: [UUID]
  var colours: [Colour] = [.red, .red]
  var typedList: [TypedReference<Shore>] = [TypedReference(id: 1), TypedReference(id: 2)]
  var addresses: [Address] = [Address(street: "Kai"), Address(street: "Deich", floor: .named("top"))]
  var nothing: String?
  var noDate: Date?
  var noAddress: Address?
  var someDate: Date? = Date(timeIntervalSince1970: 1)
}

/// A record whose ID is a number, in a zone of its own.
private struct Shore: SyncRecord, Equatable {
  static let zone = ZoneID("Shores")
  var id: Int
}

private struct ShellID: RawRepresentable, Codable, RecordNameConvertible {
  var rawValue: UUID
}

private struct Shell: SyncRecord, Equatable {
  var id: ShellID
  var parent: Parent<Album>?
  var system: SystemFields?
  var note = ""
}

/// A record whose ID is computed of a field.
private struct Page: SyncRecord, Equatable {
  var slug: String
  var id: String { "page-" + slug }
}

private struct Album: SyncRecord {
  var id: UInt64
}

/// Types of one record, as the app's versions declare them.
private enum Memo {
  struct First: SyncRecord {
    static let recordType = "Memo"
    var id: String
    var title: String
  }
  struct Second: SyncRecord {
    static let recordType = "Memo"
    var id: String
    var title: String
    var stars: Int
  }
  struct Third: SyncRecord, Equatable {
    static let recordType = "Memo"
    static var prototype: Third? { Third(id: "", title: "untitled", stars: 3, body: "empty", tags: ["new"]) }
    var id: String
    var title: String
    var stars: Int
    var body: String?
    var tags: [String]
    var system: SystemFields?
  }
}

private func open() throws -> RecordStore {
  try RecordStore.openBlocking(at: "/store", environment: .simulated(disk: SimulatedDisk(), seed: 1))
}

private func error(_ body: () throws -> Void) -> StrandlineError? {
  do {
    try body()
    return nil
  } catch { return error as? StrandlineError }
}

extension RecordStore {
  /// The error with which a typed value is refused; nil if it is saved.
  fileprivate func refusal<Value: SyncRecord>(_ value: Value) -> StrandlineError? {
    error { try writeBlocking { tx in try tx.save(value) } }
  }
}

@Suite(.timeLimit(.minutes(30))) struct TypedRecordTests {
  // MARK: What is stored

  @Test func `an empty list keeps the kind of its elements`() throws {
    let store = try open()
    let lists = EmptyLists()
    try store.writeBlocking { tx in try tx.save(lists) }
    let fields = try #require(try store.record(lists.recordID)).fields
    #expect(fields["strings"] == .list(.strings, []))
    #expect(fields["numbers"] == .list(.int64s, []))
    #expect(fields["doubles"] == .list(.doubles, []))
    #expect(fields["dates"] == .list(.dates, []))
    #expect(fields["data"] == .list(.bytes, []))
    #expect(fields["references"] == .list(.references, []))
    #expect(fields["locations"] == .list(.locations, []))
    #expect(fields["colours"] == .list(.strings, []))
    #expect(fields["levels"] == .list(.int64s, []))
    #expect(fields["addresses"] == .list(.bytes, []))
    #expect(fields["optional"] == .list(.strings, []))
    #expect(fields["bytes"] == .bytes([]))
    #expect(try store.fetch(EmptyLists.self, id: "n") == lists)
    // The server does not say of what an empty list is.
    var record = try #require(try store.record(lists.recordID))
    for name in record.fields.keys { record[name] = .list(.unknown, []) }
    try store.writeBlocking { tx in try tx.save(record, isVerbatim: true, creating: false) }
    #expect(try store.fetch(EmptyLists.self, id: "n") == lists)
  }

  @Test func `a property of every type comes back as it was, and an unchanged save appends nothing`() throws {
    let store = try open()
    let id = try #require(UUID(uuidString: "6E1B0A4C-0000-4000-8000-000000000001"))
    let url = try #require(URL(string: "https://example.org/a?b=%20c#d"))
    let all = Everything(id: id, uuid: id, url: url, uuids: [id])
    try store.writeBlocking { tx in
      try tx.save(all)
      #expect(try tx.fetch(Everything.self, id: id) == all)
    }
    #expect(try store.fetch(Everything.self, id: id) == all)
    let record = try #require(try store.record(RecordID("6E1B0A4C-0000-4000-8000-000000000001")))
    #expect(record["id"] == nil)
    #expect(record["flag"] == 1)
    #expect(record["date"] == .date(milliseconds: 1_767_225_600_123))
    #expect(record["typed"] == .reference(Reference("7", zone: ZoneID("Shores"))))
    #expect(record["set"] == .list(.strings, ["a", "b", "c"]))
    let places = [Reference("a", zone: ZoneID("A")), Reference("a"), Reference("b")]
    #expect(record["places"] == .list(.references, places.map { .reference($0) }))
    #expect(
      record["address"] == .bytes(Array(#"{"codes":[1,2,3],"floor":{"numbered":{"_0":2}},"street":"Deich"}"#.utf8)))
    for name in ["nothing", "noDate", "noAddress"] { #expect(record[name] == nil) }
    let again = try store.writeBlocking { tx in try tx.save(try #require(try tx.fetch(Everything.self, id: id))) }
    #expect(again.lsns == nil)
  }

  @Test func `an ID is a text, a number, a UUID or a raw value of one of them`() throws {
    let store = try open()
    let shell = Shell(id: ShellID(rawValue: UUID()), note: "cowrie")
    try store.writeBlocking { tx in
      try tx.save(Shore(id: -5))
      try tx.save(shell)
    }
    #expect(try store.record(RecordID("-5", zone: ZoneID("Shores"))) != nil)
    #expect(try store.fetch(Shore.self, id: -5) == Shore(id: -5))
    #expect(try store.record(RecordID(shell.id.rawValue.uuidString))?["note"] == "cowrie")
    #expect(try store.fetch(Shell.self, id: shell.id) == shell)
    #expect(try store.writeBlocking { tx in try tx.delete(Shore.self, id: -5) }.lsns != nil)
    // Of two names for one number, one is another record's: a save of what was read of it would write elsewhere.
    try store.writeBlocking { tx in
      for name in ["05", "+5", "five"] {
        try tx.save(Record(type: "Shore", id: RecordID(name, zone: ZoneID("Shores"))))
      }
    }
    let shores = try store.fetch(Shore.self)
    #expect(shores.isEmpty)
    #expect(shores.unreadable.map(\.id.name) == ["+5", "05", "five"])
    #expect(shores.unreadable.allSatisfy { $0.error.code == .typeMismatch })
    try store.writeBlocking { tx in
      try tx.save(Page(slug: "tides"))
      try tx.save(Record(type: "Page", id: RecordID("elsewhere"), fields: ["slug": "moon"]))
    }
    let pages = try store.fetch(Page.self)
    #expect(pages.elementsEqual([Page(slug: "tides")]))
    #expect(pages.unreadable.first?.error.message.contains("another ID, 'page-moon'") == true)
    // A name that CloudKit would refuse is refused as that of any record.
    #expect(store.refusal(Memo.First(id: "_x", title: ""))?.code == .invalidName)
  }

  @Test func `a parent is the record's, and system fields are the server's`() async throws {
    let cloud = SimulatedCloud()
    let store = try await RecordStore.open(
      at: "/store", syncing: .simulated(cloud), environment: .simulated(disk: SimulatedDisk(), seed: 1))
    var shell = Shell(id: ShellID(rawValue: UUID()), parent: Parent(Album(id: .max)))
    try await store.write { [shell] tx in
      try tx.save(Album(id: .max))
      try tx.save(shell)
    }
    #expect(try store.record(shell.recordID)?.parent == "18446744073709551615")
    #expect(try store.record(shell.recordID)?.fields.keys.sorted() == ["note"])
    #expect(try store.fetch(Shell.self, id: shell.id) == shell)
    try await store.sync()
    let synced = try #require(try store.fetch(Shell.self, id: shell.id))
    #expect(synced.parent?.id == .max)
    #expect(synced.system?.changeTag != nil)
    #expect(synced.system?.created != nil)
    // Nil takes the parent away, and changes no metadata.
    shell = synced
    shell.parent = nil
    try await store.write { [shell] tx in try tx.save(shell) }
    #expect(try store.fetch(Shell.self, id: shell.id)?.parent == nil)
    #expect(try store.record(shell.recordID)?.system?.changeTag == synced.system?.changeTag)
    try await store.close()
  }

  // MARK: What a record lacks

  @Test func `158: one record that a type cannot read is reported beside the others`() throws {
    let store = try open()
    try store.writeBlocking { tx in
      try tx.save(Memo.First(id: "a", title: "old"))
      try tx.save(Memo.Second(id: "b", title: "new", stars: 3))
      try tx.save(Record(type: "Memo", id: RecordID("c"), fields: ["title": 5, "stars": 1]))
    }
    let memos = try store.fetch(Memo.Second.self)
    #expect(memos.map(\.id) == ["b"])
    #expect(memos.unreadable.map(\.id.name) == ["a", "c"])
    #expect(memos.unreadable.map(\.error.code) == [.missingField, .typeMismatch])
    #expect(memos.unreadable.first?.record?["title"] == "old")
    #expect("\(memos)" == "1 of type Memo, unreadable: Main/a, Main/c")
    #expect("\(TypedReference<Shore>(id: 7, action: .validate))" == "Shore Shores/7 (validate)")
    #expect("\(Parent(Album(id: 1)))" == "Album Main/1")
    #expect(memos.unreadable.first?.description.contains("the field 'stars' is missing") == true)
    #expect(memos.unreadable.last?.error.message.contains("'title': it holds INT64, not String") == true)
    let some = try store.fetch(Memo.Second.self, ids: ["c", "none", "b", "a", "b"])
    #expect(some.map(\.id) == ["b", "b"] && some.unreadable.map(\.id.name) == ["c", "a"])
    #expect(try store.records(["c", "none", "a"].map { RecordID($0) }).map(\.id.name) == ["c", "a"])
    #expect(try store.records([]).isEmpty)
    let view = try store.view()
    #expect(try view.fetch(Memo.Second.self, id: "b")?.stars == 3)
    #expect(try view.fetch(Memo.Second.self).unreadable.count == 2)
    let thrown = error { _ = try store.fetch(Memo.Second.self, id: "a") }
    #expect(thrown?.code == .missingField)
  }

  @Test func `156, 157: an absent field has the prototype's value, and one that was written as nil is nil`() throws {
    let store = try open()
    try store.writeBlocking { tx in
      try tx.save(Memo.First(id: "a", title: "old"))
      try tx.save(Memo.Third(id: "b", title: "new", stars: 1, body: nil, tags: []))
    }
    #expect(
      try store.fetch(Memo.Third.self, id: "a")
        == Memo.Third(id: "a", title: "old", stars: 3, body: "empty", tags: ["new"])
    )
    #expect(
      try store.fetch(Memo.Third.self, id: "b") == Memo.Third(id: "b", title: "new", stars: 1, body: nil, tags: []))
    #expect(try store.fetch(Memo.Third.self).count == 2)
    // Written as nil once: a second save of the same writes nothing.
    let again = try store.writeBlocking { tx in
      try tx.save(Memo.Third(id: "b", title: "new", stars: 1, body: nil, tags: []))
    }
    #expect(again.lsns == nil)
    // A nil for a record that has lacked the field so far is written, and stays.
    try store.writeBlocking { tx in
      var memo = try #require(try tx.fetch(Memo.Third.self, id: "a"))
      memo.body = nil
      try tx.save(memo)
      #expect(try tx.fetch(Memo.Third.self, id: "a")?.body == nil)
    }
    #expect(try store.fetch(Memo.Third.self, id: "a")?.body == nil)
    // A field that was cleared is not absent: where the property can be nil it is. One that cannot has the prototype's value, so
    // that a version of the app that can clear it hides no record from this one; without a prototype it is an error.
    try store.writeBlocking { tx in
      var record = try #require(try tx.record(RecordID("a")))
      record["stars"] = nil
      try tx.save(record)
    }
    #expect(try store.fetch(Memo.Third.self, id: "a")?.stars == 3)
    try store.writeBlocking { tx in
      var record = try #require(try tx.record(RecordID("a")))
      record["title"] = nil
      try tx.save(record)
    }
    let thrown = error { _ = try store.fetch(Memo.First.self, id: "a") }
    #expect(thrown?.code == .typeMismatch)
    #expect(thrown?.message.contains("'title': the field was cleared") == true)
  }

  @Test func `156, 157: another device tells nil from absent too`() async throws {
    let cloud = SimulatedCloud()
    let phone = try await RecordStore.open(
      at: "/phone", syncing: .simulated(cloud), environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let tablet = try await RecordStore.open(
      at: "/tablet", syncing: .simulated(cloud), environment: .simulated(disk: SimulatedDisk(), seed: 2))
    try await phone.write { tx in
      try tx.save(Memo.First(id: "a", title: "old"))
      try tx.save(Memo.Third(id: "b", title: "new", stars: 1, body: nil, tags: []))
    }
    try await phone.sync()
    try await tablet.sync()
    #expect(try tablet.fetch(Memo.Third.self, id: "a")?.body == "empty")
    let b = try #require(try tablet.fetch(Memo.Third.self, id: "b"))
    #expect(b.body == nil)
    #expect(b.tags == [])
    try await phone.sync()
    #expect(try phone.fetch(Memo.Third.self, id: "b")?.body == nil)
    try await phone.close()
    try await tablet.close()
  }

  @Test func `fields that the type does not know survive its saves`() throws {
    let store = try open()
    try store.writeBlocking { tx in try tx.save(Memo.Second(id: "a", title: "new", stars: 4)) }
    try store.writeBlocking { tx in try tx.save(Memo.First(id: "a", title: "renamed by an older version")) }
    let memo = try #require(try store.fetch(Memo.Second.self, id: "a"))
    #expect(memo.stars == 4)
    #expect(memo.title == "renamed by an older version")
  }

  // MARK: What is refused

  @Test func `a type's value does not become the record of another type`() throws {
    let store = try open()
    try store.writeBlocking { tx in try tx.save(Record(type: "Other", id: RecordID("a"), fields: ["title": "x"])) }
    let refusal = store.refusal(Memo.First(id: "a", title: "y"))
    #expect(refusal?.code == .typeMismatch)
    #expect(try store.record(RecordID("a"))?["title"] == "x")
    #expect(error { _ = try store.fetch(Memo.First.self, id: "a") }?.code == .typeMismatch)
  }

  private struct Generic<Property: Codable & Sendable>: SyncRecord {
    static var recordType: String { "Generic" }
    var id = "n"
    var property: Property
  }
  private struct Nested: Codable { var a = 1 }
  private struct Hollow: Codable {}
  private enum Payload: Codable { case none, one(Int) }

  @Test func `what no field can hold is refused by the property's name, empty or not`() throws {
    let store = try open()
    func expectRefused<Property: Codable & Sendable>(
      _ property: Property, _ words: String, _ location: SourceLocation = #_sourceLocation
    ) {
      let refusal = store.refusal(Generic(property: property))
      #expect(refusal?.code == .typeMismatch, sourceLocation: location)
      let message = refusal?.message ?? ""
      #expect(
        message.contains("property 'property'") && message.contains(words), "\(message)", sourceLocation: location)
    }
    expectRefused(Nested(), "a nested value")
    expectRefused(Hollow(), "a nested value")
    expectRefused(Payload.none, "a nested value")
    expectRefused([Nested()], "a nested value")
    expectRefused([Nested](), "a list of lists or of nested values")
    expectRefused([[1]], "a list of lists")
    expectRefused([[Int]](), "a list of lists")
    expectRefused([1, nil], "a list with nil in it")
    expectRefused(["a": 1], "a nested value")
    expectRefused([0.5: 2.5], "a dictionary")
    expectRefused([FieldValue.int64(1), "a"], "several kinds")
    expectRefused(UInt64.max, "64 signed bits")
    expectRefused([UInt64.max], "64 signed bits")
    expectRefused(Date.distantFuture.addingTimeInterval(1e20), "64 bits")
    #expect(store.refusal(Generic(property: Double.nan))?.code == .invalidValue)
    #expect(store.recordCount == 0)
  }

  private struct Bare: SyncRecord, Equatable {
    var id: String
  }
  private struct Wide: SyncRecord {
    struct Key: CodingKey {
      var stringValue: String
      var intValue: Int? { nil }
      init(stringValue: String) { self.stringValue = stringValue }
      init?(intValue: Int) { nil }
    }
    var id = "n"
    var count: Int
    init(count: Int) { self.count = count }
    init(from decoder: any Decoder) throws {
      count = try decoder.container(keyedBy: Key.self).allKeys.count { $0.stringValue != "id" }
    }
    func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: Key.self)
      for index in 0..<count { try container.encode(index, forKey: Key(stringValue: "field\(index)")) }
    }
  }

  @Test func `a type without fields is a record, one with 500 is too large`() throws {
    let store = try open()
    try store.writeBlocking { tx in try tx.save(Bare(id: "n")) }
    #expect(try store.fetch(Bare.self, id: "n") == Bare(id: "n"))
    #expect(try store.record(RecordID("n"))?.fields.isEmpty == true)
    try store.writeBlocking { tx in try tx.delete(Bare.self, id: "n") }
    let refusal = error { try store.writeBlocking { tx in try tx.create(Wide(count: 500)) } }
    #expect(refusal?.code == .tooLarge)
    #expect(refusal?.message.contains("500 fields") == true)
    try store.writeBlocking { tx in try tx.create(Wide(count: 256)) }
    #expect(try store.fetch(Wide.self, id: "n")?.count == 256)
  }

  /// A list of links, each in the one before it.
  private final class Link: JSONField {
    let next: Link?
    init(_ next: Link?) { self.next = next }
    static func chain(_ count: Int) -> Link {
      var first = Link(nil)
      for _ in 1..<count { first = Link(first) }
      return first
    }
  }
  /// Encodes and decodes itself as itself.
  private struct Endless: Codable {
    init() {}
    init(from decoder: any Decoder) throws { self = try decoder.singleValueContainer().decode(Endless.self) }
    func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(self)
    }
  }
  private struct EndlessList: Codable {
    init() {}
    init(from decoder: any Decoder) throws {
      var container = try decoder.unkeyedContainer()
      self = try container.decode(EndlessList.self)
    }
    func encode(to encoder: any Encoder) throws {
      var container = encoder.unkeyedContainer()
      try container.encode(self)
    }
  }

  @Test func `a recursive type ends in an error and not in an overflow of the stack`() throws {
    let store = try open()
    try store.writeBlocking { tx in try tx.save(Generic(property: Link.chain(60))) }
    #expect(try store.fetch(Generic<Link>.self, id: "n")?.property.next?.next != nil)
    let refusal = store.refusal(Generic(property: Link.chain(5_000)))
    #expect(refusal?.code == .typeMismatch)
    #expect(refusal?.message.contains("property 'property.next") == true, "\(refusal?.message ?? "")")
    #expect(refusal?.message.contains("64 levels") == true)
    for refusal in [
      store.refusal(Generic(property: Endless())), store.refusal(Generic(property: [Endless]())),
      store.refusal(Generic(property: [Endless()])), store.refusal(Generic(property: EndlessList())),
    ].enumerated() where refusal.offset != 1 {
      #expect(refusal.element?.code == .typeMismatch)
    }
    let id = RecordID("deep")
    func read<Property: Codable & Sendable>(_ value: FieldValue, as type: Property.Type) -> StrandlineError? {
      error {
        try store.writeBlocking { tx in
          try tx.delete(id)
          try tx.create(Record(type: "Generic", id: id, fields: ["property": value]))
        }
        _ = try store.fetch(Generic<Property>.self, id: "deep")
      }
    }
    let open = String(repeating: #"{"next":"#, count: 100_000)
    let deep = Array((open + "null" + String(repeating: "}", count: 100_000)).utf8)
    #expect(read(.bytes(deep), as: Link.self)?.message.contains("64 levels deep") == true)
    #expect(read(.bytes(Array("{\"next\":".utf8)), as: Link.self)?.code == .typeMismatch)
    #expect(read(.bytes([0xFF]), as: Link.self)?.code == .typeMismatch)
    #expect(read("text", as: Link.self)?.message.contains("it holds STRING") == true)
    #expect(read("text", as: Endless.self)?.code == .typeMismatch)
    #expect(read(.list(.strings, ["a"]), as: EndlessList.self)?.code == .typeMismatch)
    #expect(read(.bytes([]), as: [String].self)?.message.contains("it holds BYTES") == true)
  }

  @Test func `a reference or a name that the property cannot hold is named`() throws {
    let store = try open()
    func reading<Property: Codable & Sendable>(_ value: FieldValue, as type: Property.Type) throws -> String {
      try store.writeBlocking { tx in
        try tx.delete(RecordID("n"))
        try tx.create(Record(type: "Generic", id: RecordID("n"), fields: ["property": value]))
      }
      return error { _ = try store.fetch(Generic<Property>.self, id: "n") }?.message ?? ""
    }
    #expect(try reading(.reference(Reference("a", action: .validate)), as: RecordID.self).contains("validate"))
    #expect(try reading(.reference(Reference("7")), as: TypedReference<Shore>.self).contains("lies in 'Shores'"))
    #expect(
      try reading(.reference(Reference("x", zone: ZoneID("Shores"))), as: TypedReference<Shore>.self)
        .contains("is not that of a Int"))
    #expect(try reading("no", as: UUID.self).contains("'no' is not a UUID"))
    #expect(try reading(.int64(300), as: UInt8.self).contains("300 does not fit into UInt8"))
    #expect(store.refusal(Generic(property: Parent<Shore>(id: 1)))?.message.contains("zone 'Shores'") == true)
  }
}
