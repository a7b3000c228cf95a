// JSON with sorted keys: for values that an app declares as JSON, and for the text forms of records and field values.
//
// Equal values give equal bytes, on every system and in every process: a save of an unchanged value changes nothing, and
// two devices that store one value agree on its checksum. Foundation's encoder does not promise this (the order of a
// set's elements, of sorted keys on older systems), and it has no limit for the depth, so a list of a million links would
// overflow the stack. Its decoder stays, because it knows how an app's types decode themselves; what it is given is strict
// JSON.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

private import StrandlineJSON
import StrandlineSystem

/// Encodes and decodes JSON.
package enum SortedJSON {
  /// The deepest nesting of values. Encoding and decoding it fits a thread's smallest stack.
  static let depthMax = 64

  /// A value as JSON: keys sorted by UTF-8, no spaces, the least escaping. `Data` is base64, a `Date` its seconds since
  /// 2001, a `URL` its text, as Foundation's decoder reads them without options.
  ///
  /// - Throws: `EncodingError` for a number that is not finite, a value nested too deeply, and a value that encodes
  ///   nothing.
  package static func encode<Value: Encodable>(_ value: Value) throws -> [UInt8] {
    let slot = JSONSlot()
    try slot.encode(value, at: [], depth: 1)
    return slot.bytes
  }

  /// A value from JSON.
  ///
  /// - Throws: `DecodingError`, or what the type's own decoding throws.
  package static func decode<Value: Decodable>(_ type: Value.Type, from bytes: [UInt8]) throws -> Value {
    do {
      var reader = try JSONReader(bytes, limits: JSONLimits(bytesMax: .max, depthMax: depthMax))
      try reader.skipValue()
      try reader.finish()
    } catch {
      let words = error.kind == .limit ? "the JSON is nested more than \(depthMax) levels deep" : error.description
      throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: words, underlyingError: error))
    }
    return try JSONDecoder().decode(type, from: Data(bytes))
  }
}

/// Collections whose elements have no order: they are sorted before they are stored.
package protocol UnorderedElements {}
extension Set: UnorderedElements {}

/// Collections of pairs without an order. With keys other than text they encode themselves as a list of keys and values.
package protocol UnorderedPairs {}
extension Dictionary: UnorderedPairs {}

/// The place of one JSON value, filled by the containers that refer to it.
private final class JSONSlot {
  enum Content {
    case missing
    case null
    case bool(Bool)
    /// A number as JSON.
    case number(String)
    case string(String)
    case list([JSONSlot])
    case object([String: JSONSlot])
  }
  var content = Content.missing

  func encode<Value: Encodable>(_ value: Value, at path: [any CodingKey], depth: Int) throws {
    guard depth <= SortedJSON.depthMax else {
      throw EncodingError.invalidValue(
        value,
        .init(
          codingPath: Array(path.prefix(3)),
          debugDescription: "the value is nested more than \(SortedJSON.depthMax) levels deep"))
    }
    switch value {
    case let value as String: content = .string(value)
    case let value as Bool: content = .bool(value)
    case let value as any BinaryInteger: content = .number("\(value)")
    case let value as Double: content = try Self.number(value, value.isFinite, at: path)
    case let value as Float: content = try Self.number(value, value.isFinite, at: path)
    case let value as Decimal: content = try Self.number(value, value.isFinite, at: path)
    case let value as Data: content = .string(value.base64EncodedString())
    case let value as URL: content = .string(value.absoluteString)
    default:
      try value.encode(to: JSONValueEncoder(slot: self, codingPath: path, depth: depth))
      if case .missing = content {
        throw EncodingError.invalidValue(
          value, .init(codingPath: path, debugDescription: "\(Value.self) encodes no value"))
      }
      sort(value)
    }
  }

  /// Sorts what has no order of its own by its JSON.
  private func sort<Value>(_ value: Value) {
    guard case .list(let items) = content else { return }
    let width = value is any UnorderedElements ? 1 : value is any UnorderedPairs ? 2 : 0
    guard width > 0 else { return }
    let texts = items.map(\.bytes)
    let starts = stride(from: 0, to: texts.count, by: width).sorted { texts[$0].lexicographicallyPrecedes(texts[$1]) }
    content = .list(starts.flatMap { items[$0..<min($0 + width, items.count)] })
  }

  private static func number<Number: Encodable>(
    _ number: Number, _ isFinite: Bool, at path: [any CodingKey]
  ) throws -> Content {
    guard isFinite else {
      throw EncodingError.invalidValue(
        number, .init(codingPath: path, debugDescription: "\(number) is not a finite number"))
    }
    return .number("\(number)")
  }

  /// The value as JSON.
  var bytes: [UInt8] {
    var writer = JSONWriter(controls: .hexadecimal)
    write(with: &writer)
    return writer.finish()
  }

  private func write(with writer: inout JSONWriter) {
    switch content {
    case .missing, .null: writer.null()
    case .bool(let value): writer.bool(value)
    case .number(let text): writer.raw(Array(text.utf8))
    case .string(let text): writer.string(text)
    case .list(let items):
      writer.beginArray()
      for item in items { item.write(with: &writer) }
      writer.endArray()
    case .object(let members):
      writer.beginObject()
      for member in members.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        writer.key(member.key)
        member.value.write(with: &writer)
      }
      writer.endObject()
    }
  }

  /// Makes this an object, unless it is one.
  func beginObject() {
    if case .object = content { return }
    content = .object([:])
  }

  /// Makes this a list, unless it is one.
  func beginList() {
    if case .list = content { return }
    content = .list([])
  }

  func member(_ key: String) -> JSONSlot {
    let slot = JSONSlot()
    if case .object(var members) = content {
      content = .missing
      members[key] = slot
      content = .object(members)
    }
    return slot
  }

  func item() -> JSONSlot {
    let slot = JSONSlot()
    if case .list(var items) = content {
      content = .missing
      items.append(slot)
      content = .list(items)
    }
    return slot
  }

  var itemCount: Int { if case .list(let items) = content { items.count } else { 0 } }

  func encodeNull() { content = .null }
}

/// Encodes one value into its slot.
private struct JSONValueEncoder: Encoder, SingleValueEncodingContainer {
  let slot: JSONSlot
  let codingPath: [any CodingKey]
  let depth: Int
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    slot.beginObject()
    return KeyedEncodingContainer(JSONObjectContainer<Key>(slot: slot, codingPath: codingPath, depth: depth))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    slot.beginList()
    return JSONListContainer(slot: slot, codingPath: codingPath, depth: depth)
  }
  func singleValueContainer() -> any SingleValueEncodingContainer { self }
  func encodeNil() { slot.encodeNull() }
  func encode<Value: Encodable>(_ value: Value) throws { try slot.encode(value, at: codingPath, depth: depth + 1) }
}

private struct JSONObjectContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let slot: JSONSlot
  let codingPath: [any CodingKey]
  let depth: Int

  private func encoder(_ key: any CodingKey) -> JSONValueEncoder {
    JSONValueEncoder(slot: slot.member(key.stringValue), codingPath: codingPath + [key], depth: depth + 1)
  }
  func encodeNil(forKey key: Key) { encoder(key).encodeNil() }
  func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
    try slot.member(key.stringValue).encode(value, at: codingPath + [key], depth: depth + 1)
  }
  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> { encoder(key).container(keyedBy: type) }
  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer { encoder(key).unkeyedContainer() }
  func superEncoder() -> any Encoder { encoder(SuperKey()) }
  func superEncoder(forKey key: Key) -> any Encoder { encoder(key) }
}

private struct JSONListContainer: UnkeyedEncodingContainer {
  let slot: JSONSlot
  let codingPath: [any CodingKey]
  let depth: Int
  var count: Int { slot.itemCount }

  private func encoder() -> JSONValueEncoder {
    JSONValueEncoder(slot: slot.item(), codingPath: codingPath, depth: depth + 1)
  }
  func encodeNil() { encoder().encodeNil() }
  func encode<Value: Encodable>(_ value: Value) throws {
    try slot.item().encode(value, at: codingPath, depth: depth + 1)
  }
  func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedEncodingContainer<Nested> {
    encoder().container(keyedBy: type)
  }
  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { encoder().unkeyedContainer() }
  func superEncoder() -> any Encoder { encoder() }
}

/// The key under which Foundation's decoder looks for a superclass.
private struct SuperKey: CodingKey {
  var stringValue: String { "super" }
  var intValue: Int? { nil }
  init() {}
  init?(stringValue: String) { nil }
  init?(intValue: Int) { nil }
}

extension DecodingError {
  /// Where and what, for people.
  package var explanation: String { explanation(at: "") }

  /// The same; `place` is what the coding path is a path in, such as "field ".
  package func explanation(at place: String) -> String {
    let context: Context
    let what: String
    switch self {
    case .typeMismatch(_, let inner), .valueNotFound(_, let inner), .dataCorrupted(let inner):
      (context, what) = (inner, inner.debugDescription)
    case .keyNotFound(let key, let inner): (context, what) = (inner, "the key '\(key.stringValue)' is missing")
    @unknown default: return "\(self)"
    }
    let path = context.codingPath.map { $0.intValue.map { "[\($0)]" } ?? $0.stringValue }.joined(separator: ".")
    return path.isEmpty ? what : "\(place)'\(path)': \(what)"
  }
}

extension EncodingError {
  /// Where and what, for people.
  package var explanation: String {
    guard case .invalidValue(_, let context) = self else { return "\(self)" }
    let path = context.codingPath.map(\.stringValue).joined(separator: ".")
    return path.isEmpty ? context.debugDescription : "property '\(path)': \(context.debugDescription)"
  }
}
