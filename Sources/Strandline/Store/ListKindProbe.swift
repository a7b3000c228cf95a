// The kind of a list that is empty. Its type knows: what it would read of a decoder is what it stores.

/// Finds what a type would read, without a value of it.
enum ListKindProbe {
  /// What is known of the elements of a list.
  enum Elements {
    /// They are of this kind.
    case kind(FieldValue.ListKind)
    /// They are lists or nested values, which no list can hold.
    case impossible
    /// They say nothing of themselves.
    case unknown
  }

  /// The elements of a list of this type.
  static func elements(of type: Any.Type) -> Elements {
    guard let list = type as? any Decodable.Type else { return .unknown }
    let finding = Finding()
    // The decoder answers no question and throws at the first one that tells the kind. What the type throws then, or that
    // it makes a value of nothing, says no more.
    do { _ = try list.init(from: ProbeDecoder(finding: finding, isItem: false, depth: 1)) } catch {}
    return finding.elements ?? .unknown
  }
}

/// What was found.
private final class Finding {
  /// Set with the first element: a type that goes on after an error comes to an end.
  private(set) var elements: ListKindProbe.Elements?

  func complete(_ found: ListKindProbe.Elements) -> any Error {
    if elements == nil { elements = found }
    return Complete()
  }
}

private struct Complete: Error {}

private struct ProbeDecoder: Decoder, SingleValueDecodingContainer {
  let finding: Finding
  /// Whether an element of the list is read.
  let isItem: Bool
  let depth: Int
  var codingPath: [any CodingKey] { [] }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
    throw finding.complete(isItem ? .impossible : .unknown)
  }
  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    if isItem { throw finding.complete(.impossible) }
    return ProbeList(finding: finding, depth: depth)
  }
  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  func decodeNil() -> Bool { false }
  private func found(_ kind: FieldValue.ListKind) -> any Error { finding.complete(isItem ? .kind(kind) : .unknown) }
  func decode(_ type: Bool.Type) throws -> Bool { throw found(.int64s) }
  func decode(_ type: String.Type) throws -> String { throw found(.strings) }
  func decode(_ type: Double.Type) throws -> Double { throw found(.doubles) }
  func decode(_ type: Float.Type) throws -> Float { throw found(.doubles) }
  func decode(_ type: Int.Type) throws -> Int { throw found(.int64s) }
  func decode(_ type: Int8.Type) throws -> Int8 { throw found(.int64s) }
  func decode(_ type: Int16.Type) throws -> Int16 { throw found(.int64s) }
  func decode(_ type: Int32.Type) throws -> Int32 { throw found(.int64s) }
  func decode(_ type: Int64.Type) throws -> Int64 { throw found(.int64s) }
  func decode(_ type: UInt.Type) throws -> UInt { throw found(.int64s) }
  func decode(_ type: UInt8.Type) throws -> UInt8 { throw found(.int64s) }
  func decode(_ type: UInt16.Type) throws -> UInt16 { throw found(.int64s) }
  func decode(_ type: UInt32.Type) throws -> UInt32 { throw found(.int64s) }
  func decode(_ type: UInt64.Type) throws -> UInt64 { throw found(.int64s) }
  func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    guard finding.elements == nil, depth <= RecordEncoder.depthMax else { throw finding.complete(.unknown) }
    if isItem {
      if let storable = type as? any FieldStorable.Type {
        throw finding.complete(storable.listKind.map { .kind($0) } ?? .unknown)
      }
      if type is any JSONField.Type { throw finding.complete(.kind(.bytes)) }
    }
    return try Value(from: ProbeDecoder(finding: finding, isItem: isItem, depth: depth + 1))
  }
}

private struct ProbeList: UnkeyedDecodingContainer {
  let finding: Finding
  let depth: Int
  var codingPath: [any CodingKey] { [] }
  var count: Int? { nil }
  var isAtEnd: Bool { finding.elements != nil }
  var currentIndex: Int { 0 }

  mutating func decodeNil() -> Bool { false }
  mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    let value = try ProbeDecoder(finding: finding, isItem: true, depth: depth + 1).decode(type)
    // An element that was made of nothing.
    _ = finding.complete(.unknown)
    return value
  }
  mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws -> KeyedDecodingContainer<Nested> {
    throw finding.complete(.impossible)
  }
  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { throw finding.complete(.impossible) }
  mutating func superDecoder() throws -> any Decoder { throw finding.complete(.unknown) }
}
