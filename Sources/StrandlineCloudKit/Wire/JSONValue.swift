// Any JSON value, with one canonical form of bytes: for the parts of a reply that this version does not know and keeps.

private import StrandlineJSON
private import StrandlineSystem

/// A JSON value.
package enum JSONValue: Hashable, Sendable, Codable {
  case null
  case bool(Bool)
  case integer(Int64)
  case number(Double)
  case string(String)
  case array([JSONValue])
  case object([String: JSONValue])

  /// The deepest nesting that is read. CloudKit's replies nest less, and decoding this fits a thread's smallest stack.
  private static let depthMax = 64

  package init(from decoder: any Decoder) throws {
    guard decoder.codingPath.count <= Self.depthMax else {
      throw wireDefect("JSON nested more than \(Self.depthMax) levels deep", at: [])
    }
    // Decoder does not say the kind of a value, so each kind is tried until there is no type mismatch. Only unknown keys
    // and fields without a type come here.
    let value = try decoder.singleValueContainer()
    if value.decodeNil() {
      self = .null
      return
    }
    do {
      let container = try decoder.container(keyedBy: AnyKey.self)
      var object: [String: JSONValue] = [:]
      for key in container.allKeys { object[key.stringValue] = try container.decode(JSONValue.self, forKey: key) }
      self = .object(object)
      return
    } catch DecodingError.typeMismatch {}
    do {
      var container = try decoder.unkeyedContainer()
      var array: [JSONValue] = []
      while !container.isAtEnd { array.append(try container.decode(JSONValue.self)) }
      self = .array(array)
      return
    } catch DecodingError.typeMismatch {}
    do {
      self = .string(try value.decode(String.self))
      return
    } catch DecodingError.typeMismatch {}
    do {
      self = .bool(try value.decode(Bool.self))
      return
    } catch DecodingError.typeMismatch {}
    do {
      self = .integer(try value.decode(Int64.self))
    } catch {
      // For a number that is no Int64, Foundation throws an error of its own and not a DecodingError.
      self = .number(try value.decode(Double.self))
    }
  }

  package func encode(to encoder: any Encoder) throws {
    switch self {
    case .object(let members):
      var container = encoder.container(keyedBy: AnyKey.self)
      for (name, member) in members { try container.encode(member, forKey: AnyKey(name)) }
    case .array(let items):
      var container = encoder.unkeyedContainer()
      for item in items { try container.encode(item) }
    case .null, .bool, .integer, .number, .string:
      var container = encoder.singleValueContainer()
      switch self {
      case .bool(let value): try container.encode(value)
      case .integer(let value): try container.encode(value)
      case .number(let value): try container.encode(value)
      case .string(let value): try container.encode(value)
      case .null, .array, .object: try container.encodeNil()
      }
    }
  }

  /// The value as JSON with keys sorted by UTF-8, no spaces, and the least escaping.
  package var canonicalBytes: [UInt8] {
    var writer = JSONWriter(controls: .hexadecimal)
    write(with: &writer)
    return writer.finish()
  }

  private func write(with writer: inout JSONWriter) {
    switch self {
    case .null: writer.null()
    case .bool(let value): writer.bool(value)
    case .integer(let value): writer.int64(value)
    case .number(let value):
      // JSON has no other numbers.
      do { try writer.double(value) } catch { writer.null() }
    case .string(let value): writer.string(value)
    case .array(let items):
      writer.beginArray()
      for item in items { item.write(with: &writer) }
      writer.endArray()
    case .object(let members):
      writer.beginObject()
      for (key, value) in members.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        writer.key(key)
        value.write(with: &writer)
      }
      writer.endObject()
    }
  }
}

/// A key of any name.
package struct AnyKey: CodingKey, Hashable, Sendable {
  package let stringValue: String
  package init(stringValue: String) { self.stringValue = stringValue }
  package init(_ stringValue: String) { self.stringValue = stringValue }
  package var intValue: Int? { nil }
  package init?(intValue: Int) { nil }
}
