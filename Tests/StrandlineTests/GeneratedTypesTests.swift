// Goal: for any type of properties, what a save accepts comes back as it was, and what it refuses is what no field can
// hold. Method: types are composed at random of plain types, optionals, lists, sets and generic wrappers, and records of
// four such properties are saved with random values, empty ones among them. Each type says itself what it must become. The key
// path of a property finds its own field, or says that it finds none.

import Foundation
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

@testable import Strandline

/// What a property of a type must become.
enum SampleForm: Equatable {
  case one(FieldValue.ListKind)
  case list(FieldValue.ListKind)
  indirect case nullable(SampleForm)
  case refused
}

/// A type of which the test makes properties.
protocol Sample: Codable, Hashable, Sendable {
  static var form: SampleForm { get }
  /// What the value must become: that of its type, but for a list with nil in it.
  var form: SampleForm { get }
  /// Whether a value may be nil. An optional of such a type has two nils, which Codable does not tell apart.
  static var isOptional: Bool { get }
  var isNil: Bool { get }
  static func make(_ random: SeededRandom) -> Self
}

extension Sample {
  var form: SampleForm { Self.form }
  static var isOptional: Bool { false }
  var isNil: Bool { false }
}

extension SeededRandom {
  fileprivate func below(_ count: Int) -> Int { Int(next() % UInt64(count)) }
}

extension String: Sample {
  static var form: SampleForm { .one(.strings) }
  static func make(_ random: SeededRandom) -> String { ["", "a", "\u{1F41A}", "e\u{301}", "\n\"\\"][random.below(5)] }
}
extension Bool: Sample {
  static var form: SampleForm { .one(.int64s) }
  static func make(_ random: SeededRandom) -> Bool { random.below(2) == 0 }
}
extension Sample where Self: FixedWidthInteger {
  static var form: SampleForm { .one(.int64s) }
  static func make(_ random: SeededRandom) -> Self {
    Self(clamping: [0, 1, Int64(clamping: Self.max), Int64(clamping: Self.min), 42][random.below(5)])
  }
}
extension Int: Sample {}
extension Int8: Sample {}
extension UInt8: Sample {}
extension UInt16: Sample {}
extension Int32: Sample {}
extension UInt64: Sample {}
extension Double: Sample {
  static var form: SampleForm { .one(.doubles) }
  static func make(_ random: SeededRandom) -> Double { [0, 0.1, -1e300, .leastNonzeroMagnitude][random.below(4)] }
}
extension Float: Sample {
  static var form: SampleForm { .one(.doubles) }
  static func make(_ random: SeededRandom) -> Float { [0, 0.1, -1e30][random.below(3)] }
}
extension Date: Sample {
  static var form: SampleForm { .one(.dates) }
  static func make(_ random: SeededRandom) -> Date {
    Date(timeIntervalSince1970: Double(Int64(random.next() >> 22) - (1 << 41)) / 1000)
  }
}
extension Data: Sample {
  static var form: SampleForm { .one(.bytes) }
  static func make(_ random: SeededRandom) -> Data { Data((0..<random.below(3)).map { _ in UInt8(random.below(256)) }) }
}
extension UUID: Sample {
  static var form: SampleForm { .one(.strings) }
  static func make(_ random: SeededRandom) -> UUID {
    UUID(uuid: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, UInt8(random.below(256))))
  }
}
extension RecordID: Sample {
  static var form: SampleForm { .one(.references) }
  static func make(_ random: SeededRandom) -> RecordID {
    RecordID("r\(random.below(9))", zone: random.below(2) == 0 ? .main : ZoneID("Other"))
  }
}
extension Location: Sample {
  static var form: SampleForm { .one(.locations) }
  static func make(_ random: SeededRandom) -> Location { Location(latitude: 1, longitude: Double(random.below(9))) }
}
extension Reference: Sample {
  static var form: SampleForm { .one(.references) }
  static func make(_ random: SeededRandom) -> Reference { Reference("r\(random.below(9))", action: .deleteSelf) }
}
struct SampleTarget: SyncRecord {
  var id: Int
}
extension TypedReference<SampleTarget>: Sample {
  static var form: SampleForm { .one(.references) }
  static func make(_ random: SeededRandom) -> Self { TypedReference(id: random.below(9)) }
}
private enum Hue: String, Sample, CaseIterable {
  case red, green
  static var form: SampleForm { .one(.strings) }
  static func make(_ random: SeededRandom) -> Hue { allCases[random.below(2)] }
}
private enum Size: Int8, Sample, CaseIterable {
  case small, large
  static var form: SampleForm { .one(.int64s) }
  static func make(_ random: SeededRandom) -> Size { allCases[random.below(2)] }
}
/// A nested value that is declared.
private enum Shape: Sample, JSONField {
  case point
  case circle(radius: Double)
  indirect case both(Shape, Shape?)
  static var form: SampleForm { .one(.bytes) }
  static func make(_ random: SeededRandom) -> Shape {
    switch random.below(3) {
    case 0: .point
    case 1: .circle(radius: .make(random))
    default: .both(make(random), random.below(2) == 0 ? nil : make(random))
    }
  }
}
/// A nested value that is not.
private struct Undeclared: Sample {
  var a = 1
  static var form: SampleForm { .refused }
  static func make(_ random: SeededRandom) -> Undeclared { Undeclared() }
}

extension Optional: Sample where Wrapped: Sample {
  static var form: SampleForm { Wrapped.form == .refused ? .refused : .nullable(Wrapped.form) }
  var form: SampleForm {
    guard let self else { return .nullable(Wrapped.form) }
    return self.form == .refused ? .refused : .nullable(self.form)
  }
  static var isOptional: Bool { true }
  var isNil: Bool { self == nil }
  static func make(_ random: SeededRandom) -> Wrapped? { random.below(3) == 0 ? nil : Wrapped.make(random) }
}

/// The form of a list of these elements.
private func listForm<Element: Sample>(_ items: some Collection<Element>) -> SampleForm {
  if Element.self == UInt8.self, items is [UInt8] { return .one(.bytes) }
  if items.contains(where: \.isNil) { return .refused }
  switch Element.form {
  case .one(let kind), .nullable(.one(let kind)): return .list(kind)
  default: return .refused
  }
}

extension Array: Sample where Element: Sample {
  static var form: SampleForm { listForm([] as [Element]) }
  var form: SampleForm { listForm(self) }
  static func make(_ random: SeededRandom) -> [Element] { (0..<random.below(4)).map { _ in Element.make(random) } }
}
extension Set: Sample where Element: Sample {
  static var form: SampleForm { listForm([] as Set<Element>) }
  var form: SampleForm { listForm(self) }
  static func make(_ random: SeededRandom) -> Set<Element> { Set([Element].make(random)) }
}

/// A generic type that encodes itself as what is in it.
private struct Box<Content: Sample>: Sample {
  var content: Content
  init(_ content: Content) { self.content = content }
  init(from decoder: any Decoder) throws { content = try decoder.singleValueContainer().decode(Content.self) }
  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(content)
  }
  static var form: SampleForm { Content.form }
  var form: SampleForm { content.form }
  static var isOptional: Bool { Content.isOptional }
  var isNil: Bool { content.isNil }
  static func make(_ random: SeededRandom) -> Box { Box(.make(random)) }
}

/// Makes types.
private struct TypeSource {
  static let plain: [any Sample.Type] = [
    String.self, Bool.self, Int.self, Int8.self, UInt8.self, UInt16.self, Int32.self, UInt64.self, Double.self,
    Float.self, Date.self, Data.self, UUID.self, RecordID.self, Location.self, Reference.self, Hue.self, Size.self,
    TypedReference<SampleTarget>.self, Shape.self, Undeclared.self,
  ]
  let random: SeededRandom

  func type(_ depth: Int = 0) -> any Sample.Type {
    func list<T: Sample>(_: T.Type) -> any Sample.Type { [T].self }
    func set<T: Sample>(_: T.Type) -> any Sample.Type { Set<T>.self }
    func box<T: Sample>(_: T.Type) -> any Sample.Type { Box<T>.self }
    func optional<T: Sample>(_: T.Type) -> any Sample.Type { T?.self }
    guard depth < 4, random.below(3) > 0 else { return Self.plain[random.below(Self.plain.count)] }
    let inner = type(depth + 1)
    switch random.below(5) {
    case 0, 1: return list(inner)
    case 2: return set(inner)
    case 3: return box(inner)
    default: return inner.isOptional ? inner : optional(inner)
    }
  }
}

private struct Quartet<A: Sample, B: Sample, C: Sample, D: Sample>: SyncRecord, Equatable {
  static var recordType: String { "Quartet" }
  static var prototype: Self? { Self(id: -1, SeededRandom(seed: 7)) }
  var id: Int
  var a: A
  var b: B
  var c: C?
  var d: D

  init(id: Int, _ random: SeededRandom) {
    self.id = id
    (a, b, d) = (.make(random), .make(random), .make(random))
    let some = C.make(random)
    c = some.isNil || random.below(3) == 0 ? nil : some
  }

  var forms: [(name: String, form: SampleForm)] { [("a", a.form), ("b", b.form), ("c", c.form), ("d", d.form)] }
}

@Suite(.timeLimit(.minutes(30))) struct GeneratedTypesTests {
  /// Whether a field holds what its property's form says.
  private static func fits(_ value: FieldValue?, _ form: SampleForm) -> Bool {
    switch (form, value) {
    case (.nullable, nil): true
    case (.nullable(let inner), let value?): fits(value, inner)
    case (.one(let kind), let value?): value.itemKind == kind
    case (.list(let kind), .list(let found, _)?): kind == found
    default: false
    }
  }

  /// Whether the key path of a property finds its field, and so the value. It never finds another one.
  private static func finds<Value: SyncRecord, Property: Sample>(
    _ path: any KeyPath<Value, Property> & Sendable, _ name: String, of value: Value, _ isNamed: Predicate<Value>,
    in store: RecordStore
  ) throws -> Bool {
    let property = value[keyPath: path]
    do {
      let found = try PropertyFields.field(of: path, path)?.name
      #expect(found == name || found == nil, "\(Value.self).\(name) is \(found ?? "")")
      #expect(try store.count(Value.self, where: isNamed, .where(path, .equal, property)) == 1, "\(name) of \(value)")
      #expect(
        try store.count(Value.self, where: isNamed, .where(path, .notEqual, property)) == 0, "\(name) of \(value)")
      return found == name
    } catch let error as StrandlineError where error.code == .invalidValue {
      #expect(error.message.contains("static var fields"), "\(error)")
      return false
    }
  }

  private static func check<A: Sample, B: Sample, C: Sample, D: Sample>(
    _ type: Quartet<A, B, C, D>.Type, id: Int, _ random: SeededRandom, in store: RecordStore,
    _ pathsFound: inout Int
  ) throws -> Bool {
    let value = Quartet<A, B, C, D>(id: id, random)
    let words = "\(type), \(value)"
    let refused = value.forms.contains { $0.form == .refused }
    do {
      try store.writeBlocking { tx in
        try tx.save(value)
        #expect(try tx.fetch(type, id: id) == value, "\(words)")
      }
    } catch StrandlineError.Code.typeMismatch {
      #expect(refused, "\(words)")
      #expect(try store.fetch(type, id: id) == nil, "\(words)")
      return false
    }
    #expect(!refused, "\(words) is saved")
    #expect(try store.fetch(type, id: id) == value, "\(words)")
    let record = try #require(try store.record(value.recordID))
    for (name, form) in value.forms {
      #expect(fits(record[name], form), "\(name) of \(words) is \(String(describing: record[name])), not \(form)")
    }
    // A set is written in one order, whatever the order of its elements in this process.
    let again = try store.writeBlocking { tx in try tx.save(try #require(try tx.fetch(type, id: id))) }
    #expect(again.lsns == nil, "\(words) changes by a second save")
    try checkLacking(value, record, random, in: store)
    // A question reads the prototype, so that it must be one that can be stored.
    if Quartet<A, B, C, D>.prototype?.forms.contains(where: { $0.form == .refused }) == true { return true }
    // All these types are one for the store, so that each question is about this record.
    let isNamed: Predicate<Quartet<A, B, C, D>> = .where(\.id, .equal, id)
    let found = [
      try finds(\.a, "a", of: value, isNamed, in: store), try finds(\.b, "b", of: value, isNamed, in: store),
      try finds(\.c, "c", of: value, isNamed, in: store), try finds(\.d, "d", of: value, isNamed, in: store),
    ]
    pathsFound += found.count { $0 }
    return true
  }

  /// Reads a record that lacks some of the fields: their properties have the prototype's values.
  private static func checkLacking<A: Sample, B: Sample, C: Sample, D: Sample>(
    _ value: Quartet<A, B, C, D>, _ record: Record, _ random: SeededRandom, in store: RecordStore
  ) throws {
    typealias Value = Quartet<A, B, C, D>
    let prototype = try #require(Value.prototype)
    if prototype.forms.contains(where: { $0.form == .refused }) { return }
    let id = value.id + 1_000_000
    var expected = value
    expected.id = id
    var fields = record.fields
    for name in ["a", "b", "c", "d"] where random.below(2) == 0 { fields[name] = nil }
    if fields["a"] == nil { expected.a = prototype.a }
    if fields["b"] == nil { expected.b = prototype.b }
    if fields["c"] == nil { expected.c = prototype.c }
    if fields["d"] == nil { expected.d = prototype.d }
    try store.writeBlocking { [fields] tx in
      try tx.save(Record(type: "Quartet", id: Value.recordID(id), fields: fields))
    }
    #expect(try store.fetch(Value.self, id: id) == expected, "\(Value.self), \(fields)")
    // A save makes it whole: what was nil is nil from now on.
    try store.writeBlocking { tx in try tx.save(expected) }
    #expect(try store.fetch(Value.self, id: id) == expected, "\(Value.self) after a save")
  }

  @Test func `what a save accepts comes back, and what it refuses no field can hold`() throws {
    let seed = ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap { UInt64($0) } ?? 1
    print("generated types: STRANDLINE_SEED=\(seed)")
    let random = SeededRandom(seed: seed)
    let source = TypeSource(random: random)
    let store = try RecordStore.openBlocking(at: "/store", environment: .simulated(disk: SimulatedDisk(), seed: seed))
    var accepted = 0
    var refused = 0
    var paths = 0
    for id in 0..<2_000 {
      func run<A: Sample, B: Sample, C: Sample, D: Sample>(
        _: A.Type, _: B.Type, _: C.Type, _: D.Type
      ) throws -> Bool { try Self.check(Quartet<A, B, C, D>.self, id: id, random, in: store, &paths) }
      let types = (0..<4).map { _ in source.type() }
      if try run(types[0], types[1], types[2], types[3]) { accepted += 1 } else { refused += 1 }
    }
    print(
      "generated types: \(accepted) accepted, \(refused) refused; \(paths) key paths found their fields"
    )
    #expect(accepted > 100 && refused > 100 && paths > accepted)
    try store.closeBlocking()
  }
}
