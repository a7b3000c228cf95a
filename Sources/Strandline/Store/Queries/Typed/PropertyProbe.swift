// Which field a property is. Swift tells no name of a key path, so the type is asked: its `init(from:)` decodes made-up values,
// once with each field changed and once without it, and the key path says in which of the values the property changed.
//
// A property that is computed, or that `init(from:)` makes of its field in a way of its own, is no field: a condition on it is
// evaluated on the whole value.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

import StrandlineSystem

/// A field that a property of a `SyncRecord` is.
struct PropertyField: Sendable {
  /// What the property has where the record has no such field, or a null.
  enum Absence: Sendable {
    /// The record cannot be read.
    case unreadable
    /// The property is nil.
    case none
    /// A value of the type's own.
    case value
  }

  /// The field's name; `id` is the record's name.
  var name: String
  var absence: Absence
  /// That of the type's records.
  var zone: ZoneID
  /// It is a part of the record other than a field: its parent, what the server says of it.
  var isPart: Bool
  /// The name under which indexes have it; nil where none has, or where none has the value of a record without the field.
  var indexed: String?

  var isName: Bool { name == "id" }

  init<Property>(_ name: String, _ absence: Absence, in zone: ZoneID, _ type: Property.Type) {
    (self.name, self.absence, self.zone) = (name, absence, zone)
    let part = ((type as? any OptionalProperty.Type)?.wrapped ?? type) as? any RecordPart.Type
    isPart = part != nil
    if name == "id" { return }
    if case .value = absence { return }
    indexed = if let part { part.indexed } else { name }
  }
}

/// What is known of the properties of all types that were asked for.
enum PropertyFields {
  private struct Property: Hashable, Sendable {
    let path: any AnyKeyPath & Sendable
    static func == (left: Self, right: Self) -> Bool { left.path as AnyKeyPath == right.path as AnyKeyPath }
    func hash(into hasher: inout Hasher) { hasher.combine(path as AnyKeyPath) }
  }
  private static let known = OrderedMutex<[Property: PropertyField?]>([:])

  /// The field that a property is; nil if it is none.
  ///
  /// - Throws: `StrandlineError.invalidValue` if the type decodes no made-up values and does not name its fields.
  ///
  /// - Parameter property: the same path, which Swift knows to be sendable.
  static func field<Value: SyncRecord, Output>(
    of path: KeyPath<Value, Output>, _ property: any AnyKeyPath & Sendable
  ) throws(StrandlineError) -> PropertyField? {
    let property = Property(path: property)
    if let field = known.withLock({ $0[property] }) { return field }
    let field = try PropertyProbe<Value>().field(of: path)
    known.withLock { $0[property] = .some(field) }
    return field
  }
}

extension PropertyFields {
  /// The fields that a type reads; nil if it does not decode made-up values.
  static func names<Value: SyncRecord>(of type: Value.Type) -> [String]? {
    guard let read = try? PropertyProbe<Value>().names() else { return nil }
    return read + Value.fields.values
  }
}

/// Made-up values of one type.
private struct PropertyProbe<Value: SyncRecord> {
  func field<Output>(of path: KeyPath<Value, Output>) throws(StrandlineError) -> PropertyField? {
    if let name = Value.fields[path] {
      return PropertyField(name, Self.isOptional(Output.self) ? .none : .unreadable, in: Value.zone, Output.self)
    }
    // As a function that is generic over types names it; a type's own path of its ID is another one.
    if path == \Value.id { return PropertyField("id", .unreadable, in: Value.zone, Output.self) }
    // A computed property lies nowhere.
    guard MemoryLayout<Value>.offset(of: path) != nil else { return nil }
    let first = try make(.all)
    for key in first.run.keys {
      guard let changed = try? make(.changed(key)), let old = first.run.handed[key], let new = changed.run.handed[key],
        Self.isEqual(old, first.value[keyPath: path]), Self.isEqual(new, changed.value[keyPath: path]),
        !Self.isEqual(old, new)
      else { continue }
      return PropertyField(key, absence(of: key, path), in: Value.zone, Output.self)
    }
    return nil
  }

  /// The fields that the type asks for.
  func names() throws(StrandlineError) -> [String] {
    let run = try make(.all).run
    return run.keys.filter { $0 != "id" && !(run.handed[$0] is any RecordPart) }
  }

  private func absence<Output>(of key: String, _ path: KeyPath<Value, Output>) -> PropertyField.Absence {
    guard let value = try? make(.absent(key)).value[keyPath: path] else { return .unreadable }
    return Self.isNil(value) ? .none : .value
  }

  private func make(_ variant: ProbeRun.Variant) throws(StrandlineError) -> (value: Value, run: ProbeRun) {
    let run = ProbeRun(variant, Value.zone)
    run.id = ProbeValues.name(Value.ID.self, isSecond: variant == .changed("id"))
    do { return (try Value(from: ProbeRecordDecoder(run: run)), run) } catch {
      throw StrandlineError(
        .invalidValue,
        "which fields the properties of \(Value.self) are cannot be found out, because its init(from:) does not take made-up "
          + "values" + (run.refused.map { " (property '\($0.key)' of type \($0.type))" } ?? "")
          + ": \((error as? DecodingError)?.explanation ?? "\(error)"). Name them in the type: "
          + "static var fields: [PartialKeyPath<\(Value.self)>: String] { [\\.title: \"title\"] }; or let an enum of the app's be "
          + "CaseIterable")
    }
  }

  private static func isEqual(_ left: Any, _ right: Any) -> Bool {
    func compare<One: Equatable>(_ left: One) -> Bool { (right as? One).map { $0 == left } ?? false }
    guard let left = left as? any Equatable else { return false }
    return compare(left)
  }

  private static func isOptional(_ type: Any.Type) -> Bool { type is any OptionalProperty.Type }
  private static func isNil(_ value: Any) -> Bool {
    func isNil(_ value: some OptionalProperty) -> Bool { value.value == nil }
    return (value as? any OptionalProperty).map { isNil($0) } ?? false
  }
}

/// Optionals, whatever they wrap.
protocol OptionalProperty {
  associatedtype Wrapped
  var value: Wrapped? { get }
  init(wrapping value: Wrapped?)
}

extension OptionalProperty {
  fileprivate static var wrapped: Any.Type { Wrapped.self }
}

extension Optional: OptionalProperty {
  var value: Wrapped? { self }
  init(wrapping value: Wrapped?) { self = value }
}

/// One decoding of a made-up value.
private final class ProbeRun {
  enum Variant: Equatable {
    /// Each field has its first value.
    case all
    /// One has its second.
    case changed(String)
    /// One is missing.
    case absent(String)
  }

  let variant: Variant
  let zone: ZoneID
  var id: (any RecordNameConvertible)?
  /// The fields that were asked for, in this order.
  private(set) var keys: [String] = []
  /// What the type got for each.
  private(set) var handed: [String: Any] = [:]
  /// A field of whose type no value could be made.
  private(set) var refused: (key: String, type: Any.Type)?

  init(_ variant: Variant, _ zone: ZoneID) { (self.variant, self.zone) = (variant, zone) }

  func isAbsent(_ key: String) -> Bool { variant == .absent(key) }

  /// A value for a field.
  func value<Property: Decodable>(_ type: Property.Type, _ key: any CodingKey) throws -> Property {
    let name = key.stringValue
    if isAbsent(name) {
      throw DecodingError.keyNotFound(key, .init(codingPath: [], debugDescription: "the field is missing"))
    }
    do {
      let value =
        if name == "id", let id = id as? Property { id } else {
          try ProbeValues.value(type, isSecond: variant == .changed(name), in: zone, depth: 1)
        }
      if handed.updateValue(value, forKey: name) == nil { keys.append(name) }
      return value
    } catch {
      refused = refused ?? (name, type)
      throw error
    }
  }
}

/// Made-up values: two of each type, as unlike as they can be and such as no app makes of another one.
private enum ProbeValues {
  static let depthMax = 16

  static func value<Property: Decodable>(
    _ type: Property.Type, isSecond: Bool, in zone: ZoneID, depth: Int
  ) throws -> Property {
    guard depth <= depthMax else {
      throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "\(type) is nested too deep"))
    }
    if let simple = simple(type, isSecond) as? Property { return simple }
    if let cases = type as? any CaseIterable.Type, let one = one(of: cases, isSecond) as? Property { return one }
    if let maker = type as? any ProbeMaking.Type, let made = maker.made(isSecond) as? Property { return made }
    if let storable = type as? any FieldStorable.Type {
      for field in fields(isSecond) {
        if let made = try? storable.init(fieldValue: field, in: zone) as? Property { return made }
      }
    }
    if let raw = type as? any (RawRepresentable & Decodable).Type, let made = raw.numbered(isSecond) as? Property {
      return made
    }
    return try Property(from: ProbeDecoder(isSecond: isSecond, zone: zone, depth: depth + 1))
  }

  static func number<Number: FixedWidthInteger>(_ type: Number.Type, _ isSecond: Bool) -> Number { isSecond ? 97 : 101 }

  static func text(_ isSecond: Bool) -> String { isSecond ? " zZ\u{301} 2\t" : " Zz\u{301} 1\t" }

  private static func simple(_ type: Any.Type, _ isSecond: Bool) -> Any? {
    switch type {
    case is String.Type: text(isSecond)
    case is Bool.Type: isSecond
    case is Double.Type: isSecond ? -1234.75 : 0.015625
    case is Float.Type: isSecond ? Float(-1234.75) : Float(0.015625)
    case is UUID.Type: UUID(uuidString: uuid(isSecond))
    case is URL.Type: URL(string: isSecond ? "strand:two" : "strand:one")
    default: integer(type, isSecond)
    }
  }

  private static func integer(_ type: Any.Type, _ isSecond: Bool) -> Any? {
    func make<Number: FixedWidthInteger>(_ type: Number.Type) -> Any { number(type, isSecond) }
    return (type as? any FixedWidthInteger.Type).map { make($0) }
  }

  private static func uuid(_ isSecond: Bool) -> String {
    isSecond ? "8D1A6E0C-52B8-4C93-9B0E-3C2F5D7A9E41" : "1B7F0A52-0E64-4D0B-A7C5-6F3E9D2C8B10"
  }

  /// The name of a record whose ID is of a type; nil if none fits.
  static func name<ID: RecordNameConvertible>(_ type: ID.Type, isSecond: Bool) -> ID? {
    for name in [isSecond ? "probe-2" : "probe-1", uuid(isSecond), isSecond ? "97" : "101"] {
      if let id = ID(recordName: name), id.recordName == name { return id }
    }
    return nil
  }

  private static func fields(_ isSecond: Bool) -> [FieldValue] {
    let place = isSecond ? 1.5 : -2.25
    return [
      .date(milliseconds: isSecond ? -86_400_001 : 1_700_000_000_123), .bytes(isSecond ? [0, 255, 2] : [1, 254]),
      .string(text(isSecond)), .reference(Reference(isSecond ? "probe-2" : "probe-1")),
      .location(Location(latitude: place, longitude: -place)),
      .asset(Asset(fileChecksum: isSecond ? "two" : "one", size: isSecond ? 2 : 1)),
    ]
  }

  private static func one<Cases: CaseIterable>(of type: Cases.Type, _ isSecond: Bool) -> Any? {
    let cases = Array(type.allCases.prefix(2))
    return isSecond ? cases.last : cases.first
  }
}

extension RawRepresentable {
  /// The first or the second value whose raw value is a small number.
  fileprivate static func numbered(_ isSecond: Bool) -> Any? {
    func find<Number: FixedWidthInteger>(_ type: Number.Type) -> Any? {
      let found = (0...100).lazy.compactMap { Number(exactly: $0) }.compactMap { number in
        (number as? RawValue).flatMap { Self(rawValue: $0) }
      }.prefix(2)
      return isSecond ? Array(found).last : found.first
    }
    return (RawValue.self as? any FixedWidthInteger.Type).flatMap { find($0) }
  }
}

/// A type of which a value can be made up that points at a record.
private protocol ProbeMaking {
  static func made(_ isSecond: Bool) -> Any?
}

extension TypedReference: ProbeMaking {
  fileprivate static func made(_ isSecond: Bool) -> Any? {
    ProbeValues.name(Target.ID.self, isSecond: isSecond).map { TypedReference(id: $0) }
  }
}

extension Parent: ProbeMaking {
  fileprivate static func made(_ isSecond: Bool) -> Any? {
    ProbeValues.name(Target.ID.self, isSecond: isSecond).map { Parent(id: $0) }
  }
}

extension SystemFields: ProbeMaking {
  fileprivate static func made(_ isSecond: Bool) -> Any? { SystemFields(changeTag: isSecond ? "two" : "one") }
}

extension RecordVersion: ProbeMaking {
  fileprivate static func made(_ isSecond: Bool) -> Any? { RecordVersion() }
}

// MARK: The decoders

private struct ProbeRecordDecoder: Decoder {
  let run: ProbeRun
  var codingPath: [any CodingKey] { [] }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(ProbeProperties<Key>(run: run))
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer { throw ProbeShape.error }
  func singleValueContainer() throws -> any SingleValueDecodingContainer { throw ProbeShape.error }
}

private enum ProbeShape {
  static var error: DecodingError {
    .dataCorrupted(
      .init(codingPath: [], debugDescription: "the type reads something else than properties by their keys"))
  }
}

private struct ProbeProperties<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let run: ProbeRun
  var codingPath: [any CodingKey] { [] }
  var allKeys: [Key] { [] }

  func contains(_ key: Key) -> Bool { !run.isAbsent(key.stringValue) }
  func decodeNil(forKey key: Key) -> Bool { run.isAbsent(key.stringValue) }
  func decode<Property: Decodable>(_ type: Property.Type, forKey key: Key) throws -> Property {
    try run.value(type, key)
  }
  func decodeIfPresent<Property: Decodable>(_ type: Property.Type, forKey key: Key) throws -> Property? {
    if run.isAbsent(key.stringValue) { return nil }
    // An optional of which no value can be made up is nil.
    return try? run.value(type, key)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> { throw ProbeShape.error }
  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer { throw ProbeShape.error }
  func superDecoder() -> any Decoder { ProbeRecordDecoder(run: run) }
  func superDecoder(forKey key: Key) throws -> any Decoder { ProbeRecordDecoder(run: run) }
}

/// A value inside a field: of a type of the app's own, which may be a single value, a list or, as JSON, anything.
private struct ProbeDecoder: Decoder, SingleValueDecodingContainer {
  let isSecond: Bool
  let zone: ZoneID
  let depth: Int
  var codingPath: [any CodingKey] { [] }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(ProbeKeys<Key>(decoder: self))
  }
  func unkeyedContainer() -> any UnkeyedDecodingContainer { ProbeItems(decoder: self) }
  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  func decodeNil() -> Bool { false }
  func decode<Part: Decodable>(_ type: Part.Type) throws -> Part {
    try ProbeValues.value(type, isSecond: isSecond, in: zone, depth: depth + 1)
  }
}

private struct ProbeKeys<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let decoder: ProbeDecoder
  var codingPath: [any CodingKey] { [] }
  var allKeys: [Key] { [] }

  func contains(_ key: Key) -> Bool { true }
  func decodeNil(forKey key: Key) -> Bool { false }
  func decode<Part: Decodable>(_ type: Part.Type, forKey key: Key) throws -> Part { try decoder.decode(type) }
  func decodeIfPresent<Part: Decodable>(_ type: Part.Type, forKey key: Key) throws -> Part? {
    try? decoder.decode(type)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) -> KeyedDecodingContainer<Nested> { decoder.container(keyedBy: type) }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedDecodingContainer { decoder.unkeyedContainer() }
  func superDecoder() -> any Decoder { decoder }
  func superDecoder(forKey key: Key) -> any Decoder { decoder }
}

/// A list of one item.
private struct ProbeItems: UnkeyedDecodingContainer {
  let decoder: ProbeDecoder
  var currentIndex = 0
  var codingPath: [any CodingKey] { [] }
  var count: Int? { 1 }
  var isAtEnd: Bool { currentIndex > 0 }

  init(decoder: ProbeDecoder) { self.decoder = decoder }

  mutating func decodeNil() -> Bool { false }
  mutating func decode<Part: Decodable>(_ type: Part.Type) throws -> Part {
    guard !isAtEnd else { throw ProbeShape.error }
    currentIndex += 1
    return try decoder.decode(type)
  }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedDecodingContainer<Nested> {
    currentIndex += 1
    return decoder.container(keyedBy: type)
  }
  mutating func nestedUnkeyedContainer() -> any UnkeyedDecodingContainer {
    currentIndex += 1
    return decoder.unkeyedContainer()
  }
  mutating func superDecoder() -> any Decoder {
    currentIndex += 1
    return decoder
  }
}
