// A Codable value to fields: one keyed level, because that is what a CloudKit record is.
//
// The static type of a property decides what it becomes; see FieldStorable.swift. What a record cannot hold is refused
// when it is asked for and not where it is missed: a container that nothing is put into would lose a value silently.

import StrandlineSystem

/// What a value becomes.
package struct EncodedRecord {
  let zone: ZoneID
  /// In the order in which they were encoded, no name twice. Nil where a property is nil, so that a save can clear the field.
  private(set) var fields: [NewField] = []
  /// The parent's name, or that there is none; nil if the type has no such property.
  var parent: String??
  /// The version that the value was read from, or that it was read from none; nil if the type has no such property.
  var version: HeldVersion??

  init(zone: ZoneID) { self.zone = zone }

  /// Sets a field; the last value of one counts. The ID is the record's name and not a field.
  mutating func set(_ name: String, _ value: FieldValue?) {
    if name != "id" { fields.set(name, value) }
  }

  /// The fields by their names, the parent among them.
  var byName: [String: FieldValue?] {
    var result = Dictionary(fields.map { ($0.name, $0.value) }) { _, last in last }
    if case .some(let parent) = parent {
      result[Version.parentField] = .some(parent.map { .reference(Reference($0)) })
    }
    return result
  }

  /// Few types have more properties.
  mutating func reserve() { fields.reserveCapacity(16) }
}

/// Values to fields.
package enum RecordEncoder {
  /// How many single values and lists may lie in each other: generic types and optionals, and a type that encodes itself.
  static let depthMax = 64

  /// The fields of a value.
  package static func encode<Value: SyncRecord>(_ value: Value) throws -> EncodedRecord {
    let encoder = FieldsEncoder(zone: Value.zone)
    do {
      try value.encode(to: encoder)
      return try encoder.finish()
    } catch let error as EncodingError {
      throw StrandlineError(
        .typeMismatch, "'\(Value.recordType)' record '\(value.id.recordName)' cannot be stored: \(error.explanation)")
    }
  }

  /// One property's value as a field's.
  static func fieldValue<Value: Encodable>(
    _ value: Value, at path: [any CodingKey], in zone: ZoneID, depth: Int = 1, isItem: Bool = false
  ) throws -> FieldValue? {
    if let common = common(value) { return common }
    if let storable = value as? any FieldStorable {
      do { return try storable.fieldValue(in: zone) } catch let defect as FieldDefect {
        throw EncodingError.invalidValue(value, .init(codingPath: path, debugDescription: defect.words))
      }
    }
    if value is any JSONField { return .bytes(try json(value, at: path)) }
    guard depth <= depthMax else {
      throw EncodingError.invalidValue(
        value, .init(codingPath: path, debugDescription: "the value is nested more than \(depthMax) levels deep"))
    }
    let encoder = OneValueEncoder(codingPath: path, zone: zone, depth: depth, isItem: isItem)
    try value.encode(to: encoder)
    return try encoder.finish(value)
  }

  /// The values of the most common types, without the search for a conformance. The types are compared and not the
  /// values: a cast of an empty list succeeds to a list of any type.
  fileprivate static func common<Value>(_ value: Value) -> FieldValue? {
    if Value.self == String.self, let text = value as? String { return .string(text) }
    if Value.self == Int.self, let number = value as? Int { return .int64(Int64(number)) }
    if Value.self == Double.self, let number = value as? Double { return .double(number) }
    if Value.self == [String].self, let items = value as? [String] { return .list(.strings, items.map { .string($0) }) }
    if Value.self == [Int].self, let items = value as? [Int] { return .list(.int64s, items.map { .int64(Int64($0)) }) }
    if Value.self == [Double].self, let items = value as? [Double] {
      return .list(.doubles, items.map { .double($0) })
    }
    return nil
  }

  private static func json<Value: Encodable>(_ value: Value, at path: [any CodingKey]) throws -> [UInt8] {
    do { return try SortedJSON.encode(value) } catch let error as EncodingError {
      guard case .invalidValue(let part, let context) = error else { throw error }
      throw EncodingError.invalidValue(
        part, .init(codingPath: path + context.codingPath, debugDescription: context.debugDescription))
    }
  }

  static func int64<Number: BinaryInteger>(_ number: Number, at path: [any CodingKey]) throws -> FieldValue {
    guard let result = Int64(exactly: number) else {
      throw EncodingError.invalidValue(
        number, .init(codingPath: path, debugDescription: "\(number) does not fit into 64 signed bits"))
    }
    return .int64(result)
  }
}

private func tooDeep(_ path: [any CodingKey], _ what: String) -> EncodingError {
  .invalidValue(
    what,
    .init(
      codingPath: path,
      debugDescription: "a CloudKit field cannot hold \(what); use a reference, or declare the type as a JSONField"))
}

/// The record itself.
private final class FieldsEncoder: Encoder {
  var record: EncodedRecord
  /// Values that are encoded in parts, after their containers were handed out.
  private var open: [(name: String, encoder: OneValueEncoder)] = []
  /// What was asked for and cannot be stored.
  var refusal: EncodingError?
  let codingPath: [any CodingKey] = []
  let userInfo: [CodingUserInfoKey: Any] = [:]

  init(zone: ZoneID) {
    record = EncodedRecord(zone: zone)
    record.reserve()
  }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    KeyedEncodingContainer(FieldsContainer<Key>(encoder: self))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    refusal = tooDeep([], "a list in place of a record")
    return RefusingContainer(codingPath: codingPath, what: "a list in place of a record")
  }
  func singleValueContainer() -> any SingleValueEncodingContainer {
    refusal = tooDeep([], "a single value in place of a record")
    return RefusingContainer(codingPath: codingPath, what: "a single value in place of a record")
  }

  func encoder(for key: any CodingKey) -> OneValueEncoder {
    let encoder = OneValueEncoder(codingPath: [key], zone: record.zone, depth: 1, isItem: false)
    open.append((key.stringValue, encoder))
    return encoder
  }

  func finish() throws -> EncodedRecord {
    if let refusal { throw refusal }
    for (name, encoder) in open { record.set(name, try encoder.finish([FieldValue]())) }
    return record
  }
}

private struct FieldsContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let encoder: FieldsEncoder
  var codingPath: [any CodingKey] { [] }

  func set(_ value: FieldValue?, _ key: Key) { encoder.record.set(key.stringValue, value) }

  private func setInteger<Number: BinaryInteger>(_ value: Number, _ key: Key) throws {
    // An ID is a name, which holds any number.
    if key.stringValue == "id" { return }
    set(try RecordEncoder.int64(value, at: [key]), key)
  }

  func encodeNil(forKey key: Key) { set(nil, key) }
  func encode(_ value: Bool, forKey key: Key) throws { set(.int64(value ? 1 : 0), key) }
  func encode(_ value: String, forKey key: Key) throws { set(.string(value), key) }
  func encode(_ value: Double, forKey key: Key) throws { set(.double(value), key) }
  func encode(_ value: Float, forKey key: Key) throws { set(.double(Double(value)), key) }
  func encode(_ value: Int, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: Int8, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: Int16, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: Int32, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: Int64, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: UInt, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: UInt8, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: UInt16, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: UInt32, forKey key: Key) throws { try setInteger(value, key) }
  func encode(_ value: UInt64, forKey key: Key) throws { try setInteger(value, key) }
  func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
    // Any type of ID, also one that is no field's value.
    if key.stringValue == "id" { return }
    if let common = RecordEncoder.common(value) { return set(common, key) }
    if let part = value as? any RecordPart { return try write(part, key) }
    set(try RecordEncoder.fieldValue(value, at: [key], in: encoder.record.zone), key)
  }
  private func write<Part: RecordPart>(_ part: Part?, _ key: Key) throws {
    do { try Part.write(part, to: &encoder.record) } catch let defect as FieldDefect {
      throw EncodingError.invalidValue(Part.self, .init(codingPath: [key], debugDescription: defect.words))
    }
  }
  // The next ones exist so that a nil is seen: the default ones pass over it.
  func encodeIfPresent(_ value: Bool?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: String?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Double?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Float?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Int?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Int8?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Int16?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Int32?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: Int64?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: UInt?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: UInt8?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: UInt16?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: UInt32?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent(_ value: UInt64?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  func encodeIfPresent<Value: Encodable>(_ value: Value?, forKey key: Key) throws {
    if let value { return try encode(value, forKey: key) }
    guard let part = Value.self as? any RecordPart.Type else { return encodeNil(forKey: key) }
    func writeNil<Part: RecordPart>(_ type: Part.Type) throws { try write(Part?.none, key) }
    try writeNil(part)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy keyType: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> {
    encoder.refusal = tooDeep([key], "a nested value")
    return KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: [key]))
  }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    encoder.encoder(for: key).unkeyedContainer()
  }
  // The fields of a superclass are fields of the same record.
  func superEncoder() -> any Encoder { encoder }
  func superEncoder(forKey key: Key) -> any Encoder { encoder.encoder(for: key) }
}

/// One property: a single value, or a list of single values.
private final class OneValueEncoder: Encoder {
  private enum State {
    case untouched
    case one(FieldValue?)
    case list([FieldValue])
    case refused(EncodingError)
  }
  private var state = State.untouched
  let codingPath: [any CodingKey]
  let zone: ZoneID
  let depth: Int
  /// Whether the value stands in a list, and so cannot be a list itself.
  let isItem: Bool
  let userInfo: [CodingUserInfoKey: Any] = [:]

  init(codingPath: [any CodingKey], zone: ZoneID, depth: Int, isItem: Bool) {
    self.codingPath = codingPath
    self.zone = zone
    self.depth = depth
    self.isItem = isItem
  }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    refuse("a nested value")
    return KeyedEncodingContainer(RefusingKeyedContainer<Key>(codingPath: codingPath))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    guard !isItem else {
      refuse("a list of lists")
      return RefusingContainer(codingPath: codingPath, what: "a list of lists")
    }
    if case .list = state {} else { state = .list([]) }
    return ListContainer(encoder: self)
  }
  func singleValueContainer() -> any SingleValueEncodingContainer { OneValueContainer(encoder: self) }

  func set(_ value: FieldValue?) { state = .one(value) }

  func refuse(_ what: String) { state = .refused(tooDeep(codingPath, what)) }

  func append(_ item: FieldValue?) throws {
    guard let item else { throw tooDeep(codingPath, "a list with nil in it") }
    guard let kind = item.itemKind, case .list(var items) = state else {
      throw tooDeep(codingPath, "a list of lists or of encrypted values")
    }
    guard items.first.map({ $0.itemKind == kind }) ?? true else {
      throw tooDeep(codingPath, "a list of several kinds of values")
    }
    state = .untouched
    items.append(item)
    state = .list(items)
  }

  var count: Int { if case .list(let items) = state { items.count } else { 0 } }

  private func kind(ofEmpty list: Any.Type) throws -> FieldValue.ListKind {
    switch ListKindProbe.elements(of: list) {
    case .kind(let kind): return kind
    case .unknown: return .unknown
    case .impossible: throw tooDeep(codingPath, "a list of lists or of nested values")
    }
  }

  /// The field's value.
  ///
  /// - Parameter value: what was encoded; the type decides the kind of a list that is empty.
  func finish<Value>(_ value: Value) throws -> FieldValue? {
    switch state {
    case .untouched: throw tooDeep(codingPath, "a \(Value.self), which encodes no value")
    case .refused(let error): throw error
    case .one(let result): return result
    case .list(let items):
      if value is any UnorderedPairs { throw tooDeep(codingPath, "a dictionary") }
      guard let kind = items.first?.itemKind else { return .list(try kind(ofEmpty: Value.self), []) }
      return .list(kind, value is any UnorderedElements ? try items.sortedAsSet() : items)
    }
  }
}

extension [FieldValue] {
  /// The elements of a set in an order that is the same in every process: equal sets are equal lists.
  fileprivate func sortedAsSet() throws -> [FieldValue] {
    switch first {
    case .string, .int64, .date, .double, .bytes, nil:
      return sorted { left, right in
        switch (left, right) {
        case (.string(let left), .string(let right)): left.precedesByUTF8(right)
        case (.int64(let left), .int64(let right)), (.date(let left), .date(let right)): left < right
        case (.double(let left), .double(let right)): left < right
        case (.bytes(let left), .bytes(let right)): left.lexicographicallyPrecedes(right)
        default: false
        }
      }
    default:
      return try map { (key: try SortedJSON.encode($0), value: $0) }
        .sorted { $0.key.lexicographicallyPrecedes($1.key) }.map(\.value)
    }
  }
}

private struct OneValueContainer: SingleValueEncodingContainer {
  let encoder: OneValueEncoder
  var codingPath: [any CodingKey] { encoder.codingPath }

  func encodeNil() { encoder.set(nil) }
  func encode(_ value: Bool) throws { encoder.set(.int64(value ? 1 : 0)) }
  func encode(_ value: String) throws { encoder.set(.string(value)) }
  func encode(_ value: Double) throws { encoder.set(.double(value)) }
  func encode(_ value: Float) throws { encoder.set(.double(Double(value))) }
  func encode(_ value: Int) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int8) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int16) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int32) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int64) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt8) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt16) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt32) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt64) throws { encoder.set(try RecordEncoder.int64(value, at: codingPath)) }
  func encode<Value: Encodable>(_ value: Value) throws {
    encoder.set(
      try RecordEncoder.fieldValue(
        value, at: codingPath, in: encoder.zone, depth: encoder.depth + 1, isItem: encoder.isItem))
  }
}

private struct ListContainer: UnkeyedEncodingContainer {
  let encoder: OneValueEncoder
  var codingPath: [any CodingKey] { encoder.codingPath }
  var count: Int { encoder.count }

  func encodeNil() throws { try encoder.append(nil) }
  func encode(_ value: Bool) throws { try encoder.append(.int64(value ? 1 : 0)) }
  func encode(_ value: String) throws { try encoder.append(.string(value)) }
  func encode(_ value: Double) throws { try encoder.append(.double(value)) }
  func encode(_ value: Float) throws { try encoder.append(.double(Double(value))) }
  func encode(_ value: Int) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int8) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int16) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int32) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: Int64) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt8) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt16) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt32) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode(_ value: UInt64) throws { try encoder.append(RecordEncoder.int64(value, at: codingPath)) }
  func encode<Value: Encodable>(_ value: Value) throws {
    try encoder.append(
      RecordEncoder.fieldValue(value, at: codingPath, in: encoder.zone, depth: encoder.depth + 1, isItem: true))
  }
  func nestedContainer<Nested: CodingKey>(keyedBy keyType: Nested.Type) -> KeyedEncodingContainer<Nested> {
    encoder.container(keyedBy: keyType)
  }
  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { refuse() }
  func superEncoder() -> any Encoder { RefusingEncoder(container: refuse()) }
  private func refuse() -> RefusingContainer {
    encoder.refuse("a list of lists")
    return RefusingContainer(codingPath: codingPath, what: "a list of lists")
  }
}

/// Containers cannot be refused when they are asked for; these refuse whatever is put into them.
private struct RefusingContainer: UnkeyedEncodingContainer, SingleValueEncodingContainer {
  let codingPath: [any CodingKey]
  let what: String
  var count: Int { 0 }
  func encodeNil() throws { throw tooDeep(codingPath, what) }
  func encode<Value: Encodable>(_ value: Value) throws { throw tooDeep(codingPath, what) }
  func nestedContainer<Nested: CodingKey>(keyedBy keyType: Nested.Type) -> KeyedEncodingContainer<Nested> {
    KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: codingPath))
  }
  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { self }
  func superEncoder() -> any Encoder { RefusingEncoder(container: self) }
}

private struct RefusingKeyedContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let codingPath: [any CodingKey]
  private var refusing: RefusingContainer { RefusingContainer(codingPath: codingPath, what: "a nested value") }

  init(codingPath: [any CodingKey]) { self.codingPath = codingPath }

  func encodeNil(forKey key: Key) throws { try refusing.encodeNil() }
  func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws { try refusing.encode(value) }
  func nestedContainer<Nested: CodingKey>(
    keyedBy keyType: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> { refusing.nestedContainer(keyedBy: keyType) }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer { refusing }
  func superEncoder() -> any Encoder { refusing.superEncoder() }
  func superEncoder(forKey key: Key) -> any Encoder { refusing.superEncoder() }
}

private struct RefusingEncoder: Encoder {
  let container: RefusingContainer
  var codingPath: [any CodingKey] { container.codingPath }
  var userInfo: [CodingUserInfoKey: Any] { [:] }
  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    container.nestedContainer(keyedBy: type)
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer { container }
  func singleValueContainer() -> any SingleValueEncodingContainer { container }
}
