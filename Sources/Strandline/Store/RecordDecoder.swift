// Fields to a Codable value: the mirror of RecordEncoder.
//
// A property whose field is absent and was never written gets its value from the type's prototype. A field that was
// written as null is null, and a property that cannot be nil gets the prototype's value for it too: an undo writes a null where
// there was no field. Which of the two it is, the field's stamp says: see `Record.nulls`.

import StrandlineSystem

/// Fields to values.
package enum RecordDecoder {
  /// A value of a record. `prototype` is shared by the records of one call, because it is encoded once.
  static func decode<Value: SyncRecord>(
    _ type: Value.Type, from record: Record, _ prototype: PrototypeFields
  ) throws(StrandlineError) -> Value { try decodeHolding(type, from: record, prototype).value }

  /// The same, and the version that the value holds; nil if the type has no property for it.
  static func decodeHolding<Value: SyncRecord>(
    _ type: Value.Type, from read: Record, _ prototype: PrototypeFields
  ) throws(StrandlineError) -> (value: Value, version: HeldVersion?) {
    var record = read
    guard record.type == Value.recordType else {
      throw StrandlineError(
        .typeMismatch, "record '\(record.id)' has the type '\(record.type)', not '\(Value.recordType)'")
    }
    Value.migrate(&record)
    do {
      let id = try Value.id(named: record.id.name)
      let fields = RecordFields(record, read: record.isUnchanged(since: read) ? nil : read, id, prototype)
      let value = try Value(from: FieldsDecoder(fields: fields))
      guard value.id == id else {
        throw FieldDefect("the value that it gives has another ID, '\(value.id.recordName)'")
      }
      return (value, fields.heldVersion)
    } catch {
      throw unreadable(record, as: type, error)
    }
  }

  /// What makes a record unreadable as a value.
  static func unreadable<Value: SyncRecord>(
    _ record: Record, as type: Value.Type, _ error: any Error
  ) -> StrandlineError {
    func because(_ code: StrandlineError.Code, _ why: String, _ cause: (any Error)? = nil) -> StrandlineError {
      StrandlineError(
        code, "record '\(record.id)' cannot be read as '\(Value.recordType)': \(why)", underlying: cause)
    }
    switch error {
    case DecodingError.keyNotFound(let key, _):
      return because(
        .missingField,
        "the field '\(key.stringValue)' is missing, and the type has no prototype with a value for it; make the property "
          + "optional, or declare the static property 'prototype'")
    case let error as DecodingError: return because(.typeMismatch, error.explanation(at: "field "))
    case let error as FieldDefect: return because(.typeMismatch, error.words)
    case let error as StrandlineError: return error
    // The type's own decoding threw an error of its own.
    default: return because(.typeMismatch, "\(error)", error)
    }
  }

  /// One property of a record, without the others.
  static func property<Value: Decodable>(
    _ type: Value.Type, _ key: PropertyKey, of fields: RecordFields
  ) throws -> Value { try FieldsReadingContainer<PropertyKey>(fields: fields).decode(type, forKey: key) }

  /// The same; nil where the record has a null, or no such field.
  static func optionalProperty<Value: Decodable>(
    _ type: Value.Type, _ key: PropertyKey, of fields: RecordFields
  ) throws -> Value? { try FieldsReadingContainer<PropertyKey>(fields: fields).decodeIfPresent(type, forKey: key) }

  /// One field's value as a property's.
  static func value<Value: Decodable>(
    _ type: Value.Type, _ field: FieldValue, at path: [any CodingKey], in zone: ZoneID, depth: Int = 1
  ) throws -> Value {
    if case .list(_, let items) = field, let list = Self.list(type, items) { return list }
    if let storable = type as? any FieldStorable.Type {
      do {
        guard let value = try storable.init(fieldValue: field, in: zone) as? Value else {
          throw mismatch(type, field, path)
        }
        return value
      } catch let defect as FieldDefect {
        throw DecodingError.dataCorrupted(.init(codingPath: path, debugDescription: defect.words))
      }
    }
    if type is any JSONField.Type { return try json(type, field, at: path) }
    guard depth <= RecordEncoder.depthMax else {
      throw DecodingError.dataCorrupted(
        .init(codingPath: path, debugDescription: "\(type) reads more than \(depth - 1) values out of each other"))
    }
    do {
      return try Value(from: OneValueDecoder(field: field, codingPath: path, zone: zone, depth: depth))
    } catch DecodingError.dataCorrupted(let context)
      where type is any RawRepresentable.Type && context.codingPath.count == path.count
    {
      throw DecodingError.dataCorrupted(
        .init(
          codingPath: path,
          debugDescription:
            "\(type) has no case for the value \(field); a later version of the app may have written it, and the "
            + "record stays as it is"))
    }
  }

  /// The empty list of a type; nil if it is none, or bytes, which are one value.
  fileprivate static func emptyList<Value: Decodable>(
    _ type: Value.Type, at path: [any CodingKey], in zone: ZoneID
  ) -> Value? {
    guard type != [UInt8].self else { return nil }
    // A type that is no list says so.
    do { return try value(type, .list(.unknown, []), at: path, in: zone) } catch { return nil }
  }

  /// Whether a type is one of the most usual lists, of values without rules of their own.
  fileprivate static func isPlainList<Value>(_ type: Value.Type) -> Bool {
    type == [String].self || type == [Int].self || type == [Double].self
  }

  /// A plain list of items of exactly its type; nil for every other list.
  fileprivate static func list<Value>(_ type: Value.Type, _ items: [FieldValue]) -> Value? {
    func all<Item>(_ item: (FieldValue) -> Item?) -> Value? {
      var all: [Item] = []
      all.reserveCapacity(items.count)
      for one in items {
        guard let value = item(one) else { return nil }
        all.append(value)
      }
      return all as? Value
    }
    if type == [String].self { return all { if case .string(let text) = $0 { text } else { nil } } }
    if type == [Int].self { return all { if case .int64(let number) = $0 { Int(exactly: number) } else { nil } } }
    if type == [Double].self { return all { if case .double(let number) = $0 { number } else { nil } } }
    return nil
  }

  private static func json<Value: Decodable>(
    _ type: Value.Type, _ field: FieldValue, at path: [any CodingKey]
  ) throws -> Value {
    guard case .bytes(let bytes) = field else { throw mismatch(type, field, path) }
    do { return try SortedJSON.decode(type, from: bytes) } catch {
      // Also a missing key: it is missing in the JSON and not in the record.
      let words = (error as? DecodingError)?.explanation ?? "\(error)"
      throw DecodingError.dataCorrupted(
        .init(codingPath: path, debugDescription: "its JSON is not a \(type): \(words)", underlyingError: error))
    }
  }
}

/// The fields of a type's prototype, encoded when the first record lacks a field.
final class PrototypeFields {
  private var fields: [String: FieldValue?]?
  private let encode: () throws -> [String: FieldValue?]

  init<Value: SyncRecord>(_ type: Value.Type) {
    encode = {
      guard let prototype = Value.prototype else { return [:] }
      let fields = try RecordEncoder.encode(prototype).fields
      return Dictionary(fields.map { ($0.name, $0.value) }) { _, last in last }
    }
  }

  /// The prototype's value of a field, perhaps nil; `.none` if the prototype has no such field, or there is none.
  subscript(name: String) -> FieldValue?? {
    get throws {
      if let fields { return fields[name] }
      let made = try encode()
      fields = made
      return made[name]
    }
  }
}

private func mismatch(_ type: Any.Type, _ field: FieldValue?, _ path: [any CodingKey]) -> DecodingError {
  guard let field else {
    return .valueNotFound(
      type, .init(codingPath: path, debugDescription: "the field was cleared, and the property is not optional"))
  }
  var what = field.typeName
  if case .opaque = field { what = "a value of the type '\(what.prefix(40))', which this version does not know" }
  return .typeMismatch(type, .init(codingPath: path, debugDescription: "it holds \(what), not \(type)"))
}

/// A record, as the properties of a type see it. A class: containers and decoders refer to it and are copied often.
final class RecordFields {
  let record: Record
  /// What was read, where migration has changed it.
  private let read: Record?
  let id: any RecordNameConvertible
  let prototype: PrototypeFields
  /// Made when the type asks for it.
  private(set) var heldVersion: HeldVersion?

  init(_ record: Record, read: Record?, _ id: any RecordNameConvertible, _ prototype: PrototypeFields) {
    self.record = record
    self.read = read
    self.id = id
    self.prototype = prototype
  }

  /// The version that the value was read from.
  func version() -> RecordVersion {
    let held = heldVersion ?? HeldVersion(read ?? record)
    heldVersion = held
    return RecordVersion(held: held)
  }

  /// The value for a property that cannot be nil; nil for a null of which the prototype has no value.
  ///
  /// - Throws: `DecodingError.keyNotFound` if the field is absent and has no default.
  func value(_ key: some CodingKey) throws -> FieldValue? {
    guard let value = try find(key) else {
      throw DecodingError.keyNotFound(key, .init(codingPath: [], debugDescription: "the field is missing"))
    }
    return try value ?? standIn(key)
  }

  /// The prototype's value for a null.
  fileprivate func standIn(_ key: some CodingKey) throws -> FieldValue? { try prototype[key.stringValue] ?? nil }

  /// The value for a property, perhaps null; `.none` if the field is absent and has no default.
  func find(_ key: some CodingKey) throws -> FieldValue?? {
    let name = key.stringValue
    if name == "id" { return .some(.string(record.id.name)) }
    if let value = record.find(name) { return .some(value) }
    return try prototype[name]
  }

  /// The value of a field that is there; nil for every other property, which `find` knows.
  func plain(_ name: String) -> FieldValue? { name == "id" ? nil : record[name] }

  func text(_ name: String) -> String? {
    if case .string(let text)? = plain(name) { text } else { nil }
  }
  func number(_ name: String) -> Double? {
    if case .double(let number)? = plain(name) { number } else { nil }
  }
  func integer<Number: FixedWidthInteger>(_ name: String) -> Number? {
    if case .int64(let wide)? = plain(name) { Number(exactly: wide) } else { nil }
  }

  fileprivate func decoder(_ key: some CodingKey, _ field: FieldValue?) -> OneValueDecoder {
    OneValueDecoder(
      field: field, codingPath: [key], zone: record.id.zone, depth: 1, isName: key.stringValue == "id")
  }
}

private struct FieldsDecoder: Decoder {
  let fields: RecordFields
  let codingPath: [any CodingKey] = []
  let userInfo: [CodingUserInfoKey: Any] = [:]

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(FieldsReadingContainer<Key>(fields: fields))
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer { throw wrongShape("a list") }
  func singleValueContainer() throws -> any SingleValueDecodingContainer { throw wrongShape("a single value") }

  private func wrongShape(_ what: String) -> DecodingError {
    .dataCorrupted(.init(codingPath: [], debugDescription: "the type reads \(what) in place of a record"))
  }
}

private struct FieldsReadingContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let fields: RecordFields
  var codingPath: [any CodingKey] { [] }
  var allKeys: [Key] { (["id"] + fields.record.fields.keys).compactMap { Key(stringValue: $0) } }

  func contains(_ key: Key) -> Bool {
    // `decodeNil`, which is asked next, throws what is wrong with the prototype.
    do { return try fields.find(key) != nil } catch { return true }
  }
  func decodeNil(forKey key: Key) throws -> Bool {
    if case .some(.some) = try fields.find(key) { return false }
    return true
  }

  private func one(_ key: Key) throws -> OneValueDecoder { fields.decoder(key, try fields.value(key)) }

  private func present(_ key: Key) throws -> OneValueDecoder? {
    if case .some(.some(let field)) = try fields.find(key) { fields.decoder(key, field) } else { nil }
  }

  // A field that holds what the property wants is taken at once, by code that knows the type. Everything else goes the
  // general way, through a decoder of its own, which knows what else may be read, and what to say.

  func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool {
    let number: Int64? = fields.integer(key.stringValue)
    if let number { return number != 0 }
    return try one(key).decode(type)
  }
  func decode(_ type: String.Type, forKey key: Key) throws -> String {
    try fields.text(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Double.Type, forKey key: Key) throws -> Double {
    try fields.number(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try one(key).decode(type) }
  func decode(_ type: Int.Type, forKey key: Key) throws -> Int {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 {
    try fields.integer(key.stringValue) ?? one(key).decode(type)
  }
  func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
    if key.stringValue == "id", let id = fields.id as? Value { return id }
    if RecordDecoder.isPlainList(type), case .some(.some(.list(_, let items))) = try fields.find(key),
      let list = RecordDecoder.list(type, items)
    {
      return list
    }
    if let part = type as? any RecordPart.Type {
      guard let value = try part.read(from: fields) as? Value else { throw mismatch(type, nil, [key]) }
      return value
    }
    let found = try fields.find(key)
    if let field = found ?? nil {
      return try RecordDecoder.value(type, field, at: [key], in: fields.record.id.zone)
    }
    // Some types read a null: Optional itself, and generic types and property wrappers around one.
    do { return try Value(from: fields.decoder(key, nil)) } catch let error as DecodingError {
      // Another device's empty list did not travel: CloudKit takes none as a field's first value.
      if found != nil, let list = RecordDecoder.emptyList(type, at: [key], in: fields.record.id.zone) { return list }
      if let field = try fields.standIn(key) {
        return try RecordDecoder.value(type, field, at: [key], in: fields.record.id.zone)
      }
      if found != nil { throw error }
      throw DecodingError.keyNotFound(key, .init(codingPath: [], debugDescription: "the field is missing"))
    }
  }
  func decodeIfPresent(_ type: Bool.Type, forKey key: Key) throws -> Bool? { try present(key)?.decode(type) }
  func decodeIfPresent(_ type: String.Type, forKey key: Key) throws -> String? {
    try fields.text(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Double.Type, forKey key: Key) throws -> Double? {
    try fields.number(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Float.Type, forKey key: Key) throws -> Float? { try present(key)?.decode(type) }
  func decodeIfPresent(_ type: Int.Type, forKey key: Key) throws -> Int? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Int8.Type, forKey key: Key) throws -> Int8? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Int16.Type, forKey key: Key) throws -> Int16? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Int32.Type, forKey key: Key) throws -> Int32? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: Int64.Type, forKey key: Key) throws -> Int64? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: UInt.Type, forKey key: Key) throws -> UInt? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: UInt8.Type, forKey key: Key) throws -> UInt8? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: UInt16.Type, forKey key: Key) throws -> UInt16? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: UInt32.Type, forKey key: Key) throws -> UInt32? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent(_ type: UInt64.Type, forKey key: Key) throws -> UInt64? {
    try fields.integer(key.stringValue) ?? present(key)?.decode(type)
  }
  func decodeIfPresent<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value? {
    if let part = type as? any RecordPart.Type { return try part.read(from: fields) as? Value }
    guard case .some(.some(let field)) = try fields.find(key) else { return nil }
    if key.stringValue == "id", let id = fields.id as? Value { return id }
    return try RecordDecoder.value(type, field, at: [key], in: fields.record.id.zone)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> { try one(key).container(keyedBy: type) }
  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try one(key).unkeyedContainer()
  }
  func superDecoder() -> any Decoder { FieldsDecoder(fields: fields) }
  func superDecoder(forKey key: Key) throws -> any Decoder { try one(key) }
}

/// One field: a single value, a list of single values, or null.
private struct OneValueDecoder: Decoder, SingleValueDecodingContainer {
  let field: FieldValue?
  let codingPath: [any CodingKey]
  let zone: ZoneID
  let depth: Int
  /// Whether the field is the record's name, of which an ID that is a number is read.
  var isName = false
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
    guard let field else { throw mismatch(Key.self, nil, codingPath) }
    throw DecodingError.typeMismatch(
      Key.self,
      .init(
        codingPath: codingPath,
        debugDescription: "it holds \(field.typeName), and the property a nested value; declare its type as a JSONField"
      ))
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    guard case .list(_, let items) = field else { throw mismatch([FieldValue].self, field, codingPath) }
    return ListReadingContainer(items: items, codingPath: codingPath, zone: zone, depth: depth)
  }
  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  func decodeNil() -> Bool { field == nil }
  func decode(_ type: Bool.Type) throws -> Bool { try integer(Int64.self) != 0 }
  func decode(_ type: String.Type) throws -> String {
    guard case .string(let text) = field else { throw mismatch(type, field, codingPath) }
    return text
  }
  func decode(_ type: Double.Type) throws -> Double {
    switch field {
    case .double(let number): return number
    case .int64(let number): return Double(number)
    default: throw mismatch(type, field, codingPath)
    }
  }
  func decode(_ type: Float.Type) throws -> Float { Float(try decode(Double.self)) }
  func decode(_ type: Int.Type) throws -> Int { try integer(type) }
  func decode(_ type: Int8.Type) throws -> Int8 { try integer(type) }
  func decode(_ type: Int16.Type) throws -> Int16 { try integer(type) }
  func decode(_ type: Int32.Type) throws -> Int32 { try integer(type) }
  func decode(_ type: Int64.Type) throws -> Int64 { try integer(type) }
  func decode(_ type: UInt.Type) throws -> UInt { try integer(type) }
  func decode(_ type: UInt8.Type) throws -> UInt8 { try integer(type) }
  func decode(_ type: UInt16.Type) throws -> UInt16 { try integer(type) }
  func decode(_ type: UInt32.Type) throws -> UInt32 { try integer(type) }
  func decode(_ type: UInt64.Type) throws -> UInt64 { try integer(type) }
  func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    if let field { return try RecordDecoder.value(type, field, at: codingPath, in: zone, depth: depth + 1) }
    guard depth <= RecordEncoder.depthMax else { throw mismatch(type, nil, codingPath) }
    return try Value(from: OneValueDecoder(field: nil, codingPath: codingPath, zone: zone, depth: depth + 1))
  }

  private func integer<Number: FixedWidthInteger>(_ type: Number.Type) throws -> Number {
    if isName, case .string(let text)? = field, let number = Number(text, radix: 10) { return number }
    guard case .int64(let wide) = field else { throw mismatch(type, field, codingPath) }
    guard let number = Number(exactly: wide) else {
      throw DecodingError.typeMismatch(
        type, .init(codingPath: codingPath, debugDescription: "\(wide) does not fit into \(type)"))
    }
    return number
  }
}

private struct ListReadingContainer: UnkeyedDecodingContainer {
  let items: [FieldValue]
  let codingPath: [any CodingKey]
  let zone: ZoneID
  let depth: Int
  var currentIndex = 0
  var count: Int? { items.count }
  var isAtEnd: Bool { currentIndex == items.count }

  init(items: [FieldValue], codingPath: [any CodingKey], zone: ZoneID, depth: Int) {
    self.items = items
    self.codingPath = codingPath
    self.zone = zone
    self.depth = depth
  }

  mutating func decodeNil() -> Bool { false }
  mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    guard currentIndex < items.count else {
      throw DecodingError.valueNotFound(type, .init(codingPath: codingPath, debugDescription: "the list ends here"))
    }
    let value = try RecordDecoder.value(type, items[currentIndex], at: codingPath, in: zone, depth: depth + 1)
    currentIndex += 1
    return value
  }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws -> KeyedDecodingContainer<Nested> {
    throw mismatch(Nested.self, .list(.unknown, items), codingPath)
  }
  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    throw mismatch([FieldValue].self, .list(.unknown, items), codingPath)
  }
  mutating func superDecoder() throws -> any Decoder {
    throw mismatch((any Decoder).self, .list(.unknown, items), codingPath)
  }
}
