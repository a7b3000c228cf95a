// A Codable value to fields. One keyed level deep, because that is what a CloudKit record is.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Values to fields.
package enum RecordEncoder {
  /// The fields of a value; nil where an optional property is nil, so that a save can clear the field.
  package static func encode<Value: SyncRecord>(_ value: Value) throws -> [String: FieldValue?] {
    let encoder = FieldsEncoder()
    do { try value.encode(to: encoder) } catch let error as EncodingError {
      throw StrandlineError(
        .typeMismatch, "'\(Value.recordType)' record '\(value.id)' cannot be stored: \(error.explanation)")
    }
    var fields = encoder.fields
    fields["id"] = nil
    return fields
  }

  /// One property's value as a field's.
  static func fieldValue<Value: Encodable>(_ value: Value, at path: [any CodingKey]) throws -> FieldValue? {
    switch value {
    case let value as Date: return .date(milliseconds: try milliseconds(of: value, at: path))
    case let value as Data: return .bytes(Array(value))
    case let value as [UInt8]: return .bytes(value)
    case let value as UUID: return .string(value.uuidString)
    case let value as URL: return .string(value.absoluteString)
    case let value as Reference: return .reference(value)
    case let value as Location: return .location(value)
    case let value as Asset: return .asset(value)
    case let value as [Date]:
      return .list(.dates, try value.map { .date(milliseconds: try milliseconds(of: $0, at: path)) })
    case let value as [Data]: return .list(.bytes, value.map { .bytes(Array($0)) })
    case let value as [Reference]: return .list(.references, value.map { .reference($0) })
    case let value as [Location]: return .list(.locations, value.map { .location($0) })
    case let value as [Asset]: return .list(.assets, value.map { .asset($0) })
    case let value as [String]: return .list(.strings, value.map { .string($0) })
    case let value as [Double]: return .list(.doubles, value.map { .double($0) })
    default:
      let encoder = OneValueEncoder(codingPath: path)
      try value.encode(to: encoder)
      return encoder.value
    }
  }

  private static func milliseconds(of date: Date, at path: [any CodingKey]) throws -> Int64 {
    let exact = (date.timeIntervalSince1970 * 1000).rounded()
    guard let result = Int64(exactly: exact) else {
      throw EncodingError.invalidValue(
        date, .init(codingPath: path, debugDescription: "the date is beyond milliseconds in 64 bits"))
    }
    return result
  }

  static func int64<Number: BinaryInteger>(_ number: Number, at path: [any CodingKey]) throws -> FieldValue {
    guard let result = Int64(exactly: number) else {
      throw EncodingError.invalidValue(
        number, .init(codingPath: path, debugDescription: "\(number) does not fit into 64 signed bits"))
    }
    return .int64(result)
  }
}

extension EncodingError {
  var explanation: String {
    guard case .invalidValue(_, let context) = self else { return "\(self)" }
    let path = context.codingPath.map(\.stringValue).joined(separator: ".")
    return path.isEmpty ? context.debugDescription : "property '\(path)': \(context.debugDescription)"
  }
}

private func tooDeep(_ path: [any CodingKey], _ what: String) -> EncodingError {
  .invalidValue(
    what,
    .init(
      codingPath: path, debugDescription: "a CloudKit field cannot hold \(what); use a reference, or encode it to Data")
  )
}

/// The record itself.
private final class FieldsEncoder: Encoder {
  var fields: [String: FieldValue?] = [:]
  let codingPath: [any CodingKey] = []
  let userInfo: [CodingUserInfoKey: Any] = [:]

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    KeyedEncodingContainer(FieldsContainer<Key>(encoder: self))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    RefusingContainer(codingPath: codingPath, what: "a list in place of a record")
  }
  func singleValueContainer() -> any SingleValueEncodingContainer {
    RefusingContainer(codingPath: codingPath, what: "a single value in place of a record")
  }
}

private struct FieldsContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let encoder: FieldsEncoder
  var codingPath: [any CodingKey] { [] }

  func set(_ value: FieldValue?, _ key: Key) { encoder.fields.updateValue(value, forKey: key.stringValue) }

  mutating func encodeNil(forKey key: Key) { set(nil, key) }
  mutating func encode(_ value: Bool, forKey key: Key) throws { set(.int64(value ? 1 : 0), key) }
  mutating func encode(_ value: String, forKey key: Key) throws { set(.string(value), key) }
  mutating func encode(_ value: Double, forKey key: Key) throws { set(.double(value), key) }
  mutating func encode(_ value: Float, forKey key: Key) throws { set(.double(Double(value)), key) }
  mutating func encode(_ value: Int, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: Int8, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: Int16, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: Int32, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: Int64, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: UInt, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: UInt8, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: UInt16, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: UInt32, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode(_ value: UInt64, forKey key: Key) throws { set(try RecordEncoder.int64(value, at: [key]), key) }
  mutating func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
    set(try RecordEncoder.fieldValue(value, at: [key]), key)
  }
  // The next ones exist so that a nil is seen: the default ones pass over it.
  mutating func encodeIfPresent(_ value: Bool?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: String?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Double?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Float?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Int?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Int8?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Int16?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Int32?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: Int64?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: UInt?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: UInt8?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: UInt16?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: UInt32?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent(_ value: UInt64?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func encodeIfPresent<Value: Encodable>(_ value: Value?, forKey key: Key) throws {
    if let value { try encode(value, forKey: key) } else { encodeNil(forKey: key) }
  }
  mutating func nestedContainer<Nested: CodingKey>(
    keyedBy keyType: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> {
    KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: [key]))
  }
  mutating func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    RefusingContainer(codingPath: [key], what: "a list that the type encodes by hand")
  }
  mutating func superEncoder() -> any Encoder { OneValueEncoder(codingPath: []) }
  mutating func superEncoder(forKey key: Key) -> any Encoder { OneValueEncoder(codingPath: [key]) }
}

/// One property: a single value, or a list of single values.
private final class OneValueEncoder: Encoder {
  var value: FieldValue?
  let codingPath: [any CodingKey]
  let userInfo: [CodingUserInfoKey: Any] = [:]

  init(codingPath: [any CodingKey]) { self.codingPath = codingPath }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    KeyedEncodingContainer(RefusingKeyedContainer<Key>(codingPath: codingPath))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    value = .list(.unknown, [])
    return ListContainer(encoder: self)
  }
  func singleValueContainer() -> any SingleValueEncodingContainer { OneValueContainer(encoder: self) }

  func append(_ item: FieldValue?) throws {
    guard let item, let kind = item.itemKind, case .list(let before, let items)? = value else {
      throw tooDeep(codingPath, "a list of lists or of nothing")
    }
    guard items.isEmpty || before == kind else { throw tooDeep(codingPath, "a list of several kinds of values") }
    value = .list(kind, items + [item])
  }
}

private struct OneValueContainer: SingleValueEncodingContainer {
  let encoder: OneValueEncoder
  var codingPath: [any CodingKey] { encoder.codingPath }
  mutating func encodeNil() { encoder.value = nil }
  mutating func encode(_ value: Bool) throws { encoder.value = .int64(value ? 1 : 0) }
  mutating func encode(_ value: String) throws { encoder.value = .string(value) }
  mutating func encode(_ value: Double) throws { encoder.value = .double(value) }
  mutating func encode(_ value: Float) throws { encoder.value = .double(Double(value)) }
  mutating func encode(_ value: Int) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: Int8) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: Int16) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: Int32) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: Int64) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: UInt) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: UInt8) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: UInt16) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: UInt32) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode(_ value: UInt64) throws { encoder.value = try RecordEncoder.int64(value, at: codingPath) }
  mutating func encode<Value: Encodable>(_ value: Value) throws {
    encoder.value = try RecordEncoder.fieldValue(value, at: codingPath)
  }
}

private struct ListContainer: UnkeyedEncodingContainer {
  let encoder: OneValueEncoder
  var codingPath: [any CodingKey] { encoder.codingPath }
  var count = 0

  mutating func add(_ item: FieldValue?) throws {
    count += 1
    try encoder.append(item)
  }
  mutating func encodeNil() throws { try add(nil) }
  mutating func encode(_ value: Bool) throws { try add(.int64(value ? 1 : 0)) }
  mutating func encode(_ value: String) throws { try add(.string(value)) }
  mutating func encode(_ value: Double) throws { try add(.double(value)) }
  mutating func encode(_ value: Float) throws { try add(.double(Double(value))) }
  mutating func encode(_ value: Int) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: Int8) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: Int16) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: Int32) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: Int64) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: UInt) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: UInt8) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: UInt16) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: UInt32) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode(_ value: UInt64) throws { try add(try RecordEncoder.int64(value, at: codingPath)) }
  mutating func encode<Value: Encodable>(_ value: Value) throws {
    try add(RecordEncoder.fieldValue(value, at: codingPath))
  }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy keyType: Nested.Type) -> KeyedEncodingContainer<Nested> {
    KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: codingPath))
  }
  mutating func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
    RefusingContainer(codingPath: codingPath, what: "a list of lists")
  }
  mutating func superEncoder() -> any Encoder { OneValueEncoder(codingPath: codingPath) }
}

/// Containers cannot be refused when they are asked for; these refuse whatever is put into them.
private struct RefusingContainer: UnkeyedEncodingContainer, SingleValueEncodingContainer {
  let codingPath: [any CodingKey]
  let what: String
  var count: Int { 0 }
  mutating func encodeNil() throws { throw tooDeep(codingPath, what) }
  mutating func encode<Value: Encodable>(_ value: Value) throws { throw tooDeep(codingPath, what) }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy keyType: Nested.Type) -> KeyedEncodingContainer<Nested> {
    KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: codingPath))
  }
  mutating func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { self }
  mutating func superEncoder() -> any Encoder { OneValueEncoder(codingPath: codingPath) }
}

private struct RefusingKeyedContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let codingPath: [any CodingKey]
  mutating func encodeNil(forKey key: Key) throws { throw tooDeep(codingPath, "a nested value") }
  mutating func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
    throw tooDeep(codingPath, "a nested value")
  }
  mutating func nestedContainer<Nested: CodingKey>(
    keyedBy keyType: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> {
    KeyedEncodingContainer(RefusingKeyedContainer<Nested>(codingPath: codingPath))
  }
  mutating func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    RefusingContainer(codingPath: codingPath, what: "a nested value")
  }
  mutating func superEncoder() -> any Encoder { OneValueEncoder(codingPath: codingPath) }
  mutating func superEncoder(forKey key: Key) -> any Encoder { OneValueEncoder(codingPath: codingPath) }
}
