// Fields to a Codable value: the mirror of RecordEncoder.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Fields to values.
package enum RecordDecoder {
  package static func decode<Value: SyncRecord>(_ type: Value.Type, from record: Record) throws -> Value {
    guard record.type == Value.recordType else {
      throw StrandlineError(
        .typeMismatch, "record '\(record.id)' is a '\(record.type)', not a '\(Value.recordType)'")
    }
    do {
      var fields = record.fields
      fields["id"] = .string(record.id.name)
      return try Value(from: FieldsDecoder(fields: fields))
    } catch let error as DecodingError {
      throw StrandlineError(
        .typeMismatch, "record '\(record.id)' cannot be read as '\(Value.recordType)': \(error.explanation)")
    }
  }

  static func value<Value: Decodable>(_ type: Value.Type, _ field: FieldValue, at path: [any CodingKey]) throws -> Value
  {
    let found: Any? =
      switch (field, type) {
      case (.date(let milliseconds), is Date.Type): date(milliseconds)
      case (.bytes(let bytes), is Data.Type): Data(bytes)
      case (.bytes(let bytes), is [UInt8].Type): bytes
      case (.string(let text), is UUID.Type): UUID(uuidString: text)
      case (.string(let text), is URL.Type): URL(string: text)
      case (.reference(let value), is Reference.Type): value
      case (.location(let value), is Location.Type): value
      case (.asset(let value), is Asset.Type): value
      case (.list(_, let items), is [Date].Type):
        all(items) { if case .date(let value) = $0 { date(value) } else { nil } }
      case (.list(_, let items), is [Data].Type):
        all(items) { if case .bytes(let value) = $0 { Data(value) } else { nil } }
      case (.list(_, let items), is [Reference].Type):
        all(items) { if case .reference(let value) = $0 { value } else { nil } }
      case (.list(_, let items), is [Location].Type):
        all(items) { if case .location(let value) = $0 { value } else { nil } }
      case (.list(_, let items), is [Asset].Type): all(items) { if case .asset(let value) = $0 { value } else { nil } }
      default: nil
      }
    if let found = found as? Value { return found }
    return try Value(from: OneValueDecoder(field: field, codingPath: path))
  }

  private static func date(_ milliseconds: Int64) -> Date { Date(timeIntervalSince1970: Double(milliseconds) / 1000) }

  private static func all<Item>(_ items: [FieldValue], _ one: (FieldValue) -> Item?) -> [Item]? {
    let found = items.compactMap(one)
    return found.count == items.count ? found : nil
  }
}

extension DecodingError {
  var explanation: String {
    let context: Context
    switch self {
    case .typeMismatch(_, let inner), .valueNotFound(_, let inner), .dataCorrupted(let inner): context = inner
    case .keyNotFound(let key, _): return "the field '\(key.stringValue)' is missing; make the property optional"
    @unknown default: return "\(self)"
    }
    let path = context.codingPath.map(\.stringValue).joined(separator: ".")
    return path.isEmpty ? context.debugDescription : "field '\(path)': \(context.debugDescription)"
  }
}

private func mismatch(_ type: Any.Type, _ field: FieldValue?, _ path: [any CodingKey]) -> DecodingError {
  var what = field.map { String(String(describing: $0).prefix { $0 != "(" }) } ?? "nothing"
  if case .opaque(let value)? = field {
    what = "a value of the type '\(value.type.prefix(40))', which this version does not know"
  }
  return .typeMismatch(type, .init(codingPath: path, debugDescription: "it holds \(what), not \(type)"))
}

private struct FieldsDecoder: Decoder {
  let fields: [String: FieldValue]
  let codingPath: [any CodingKey] = []
  let userInfo: [CodingUserInfoKey: Any] = [:]

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(FieldsReadingContainer<Key>(fields: fields))
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer { throw mismatch([FieldValue].self, nil, []) }
  func singleValueContainer() throws -> any SingleValueDecodingContainer { throw mismatch(FieldValue.self, nil, []) }
}

private struct FieldsReadingContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let fields: [String: FieldValue]
  var codingPath: [any CodingKey] { [] }
  var allKeys: [Key] { fields.keys.compactMap { Key(stringValue: $0) } }

  func contains(_ key: Key) -> Bool { fields[key.stringValue] != nil }
  func decodeNil(forKey key: Key) -> Bool { fields[key.stringValue] == nil }

  private func one(_ key: Key) throws -> OneValueDecoder {
    guard let field = fields[key.stringValue] else {
      throw DecodingError.keyNotFound(key, .init(codingPath: [key], debugDescription: "the field is missing"))
    }
    return OneValueDecoder(field: field, codingPath: [key])
  }
  func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try one(key).decode(type) }
  func decode(_ type: String.Type, forKey key: Key) throws -> String { try one(key).decode(type) }
  func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try one(key).decode(type) }
  func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try one(key).decode(type) }
  func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try one(key).decode(type) }
  func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try one(key).decode(type) }
  func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try one(key).decode(type) }
  func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try one(key).decode(type) }
  func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try one(key).decode(type) }
  func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try one(key).decode(type) }
  func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try one(key).decode(type) }
  func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try one(key).decode(type) }
  func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try one(key).decode(type) }
  func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try one(key).decode(type) }
  func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
    let one = try one(key)
    return try RecordDecoder.value(type, one.field, at: one.codingPath)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> {
    throw mismatch(Nested.self, fields[key.stringValue], [key])
  }
  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try one(key).unkeyedContainer()
  }
  func superDecoder() throws -> any Decoder { throw mismatch((any Decoder).self, nil, []) }
  func superDecoder(forKey key: Key) throws -> any Decoder { try one(key) }
}

/// One field: a single value, or a list of single values.
private struct OneValueDecoder: Decoder, SingleValueDecodingContainer {
  let field: FieldValue
  let codingPath: [any CodingKey]
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
    throw mismatch(Key.self, field, codingPath)
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    guard case .list(_, let items) = field else { throw mismatch([FieldValue].self, field, codingPath) }
    return ListReadingContainer(items: items, codingPath: codingPath)
  }
  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  func decodeNil() -> Bool { false }
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
    try RecordDecoder.value(type, field, at: codingPath)
  }

  private func integer<Number: FixedWidthInteger>(_ type: Number.Type) throws -> Number {
    guard case .int64(let wide) = field, let number = Number(exactly: wide) else {
      throw mismatch(type, field, codingPath)
    }
    return number
  }
}

private struct ListReadingContainer: UnkeyedDecodingContainer {
  let items: [FieldValue]
  let codingPath: [any CodingKey]
  var currentIndex = 0
  var count: Int? { items.count }
  var isAtEnd: Bool { currentIndex == items.count }

  init(items: [FieldValue], codingPath: [any CodingKey]) {
    self.items = items
    self.codingPath = codingPath
  }

  mutating func decodeNil() -> Bool { false }
  mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    guard currentIndex < items.count else {
      throw DecodingError.valueNotFound(type, .init(codingPath: codingPath, debugDescription: "the list ends here"))
    }
    let value = try RecordDecoder.value(type, items[currentIndex], at: codingPath)
    currentIndex += 1
    return value
  }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws -> KeyedDecodingContainer<Nested> {
    throw mismatch(Nested.self, nil, codingPath)
  }
  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    throw mismatch([FieldValue].self, nil, codingPath)
  }
  mutating func superDecoder() throws -> any Decoder { throw mismatch((any Decoder).self, nil, codingPath) }
}
