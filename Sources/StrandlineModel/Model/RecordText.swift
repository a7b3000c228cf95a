// Field values and records as Codable, and as one line of JSON.
//
// Each value says its type, as CloudKit Web Services do, so that a time stays a time and an empty list keeps its kind in
// any coder. The line of `export` is another form, for people and other tools: it omits the type where it can.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

import StrandlineSystem

extension FieldValue {
  /// CloudKit's name of the value's type.
  package var typeName: String {
    switch self {
    case .string: "STRING"
    case .int64: "INT64"
    case .double: "DOUBLE"
    case .date: "TIMESTAMP"
    case .bytes: "BYTES"
    case .reference: "REFERENCE"
    case .location: "LOCATION"
    case .asset: "ASSETID"
    case .list(let kind, _): kind.typeName
    case .encrypted(let inner): "encrypted \(inner.typeName)"
    case .opaque(let value): value.type
    }
  }
}

extension FieldValue.ListKind {
  fileprivate var typeName: String {
    switch self {
    case .strings: "STRING_LIST"
    case .int64s: "INT64_LIST"
    case .doubles: "DOUBLE_LIST"
    case .dates: "TIMESTAMP_LIST"
    case .bytes: "BYTES_LIST"
    case .references: "REFERENCE_LIST"
    case .locations: "LOCATION_LIST"
    case .assets: "ASSETID_LIST"
    case .unknown: "UNKNOWN_LIST"
    }
  }
}

private enum ValueKey: String, CodingKey {
  case type, value, isEncrypted
  /// In place of `value` for a type that this version does not know.
  case json
}

extension FieldValue: Codable {
  /// Reads the type and the value.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: ValueKey.self)
    let value = try Self.read(container)
    let isEncrypted = try container.decodeIfPresent(Bool.self, forKey: .isEncrypted) ?? false
    self = isEncrypted ? .encrypted(value) : value
    if let defect = defect(isKept: true) {
      throw DecodingError.dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: defect))
    }
  }

  private static func read(_ container: KeyedDecodingContainer<ValueKey>) throws -> FieldValue {
    func one<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
      try container.decode(type, forKey: .value)
    }
    let type = try container.decode(String.self, forKey: .type)
    if let json = try container.decodeIfPresent(String.self, forKey: .json) {
      return .opaque(OpaqueValue(type: type, json: Array(json.utf8)))
    }
    switch type {
    case "STRING": return .string(try one())
    case "INT64": return .int64(try one())
    case "DOUBLE": return .double(try one())
    case "TIMESTAMP": return .date(milliseconds: try one())
    case "BYTES": return .bytes(Array(try one(Data.self)))
    case "REFERENCE": return .reference(try one())
    case "LOCATION": return .location(try one())
    case "ASSETID": return .asset(try one())
    case "STRING_LIST": return .list(.strings, try one([String].self).map { .string($0) })
    case "INT64_LIST": return .list(.int64s, try one([Int64].self).map { .int64($0) })
    case "DOUBLE_LIST": return .list(.doubles, try one([Double].self).map { .double($0) })
    case "TIMESTAMP_LIST": return .list(.dates, try one([Int64].self).map { .date(milliseconds: $0) })
    case "BYTES_LIST": return .list(.bytes, try one([Data].self).map { .bytes(Array($0)) })
    case "REFERENCE_LIST": return .list(.references, try one([Reference].self).map { .reference($0) })
    case "LOCATION_LIST": return .list(.locations, try one([Location].self).map { .location($0) })
    case "ASSETID_LIST": return .list(.assets, try one([Asset].self).map { .asset($0) })
    case "UNKNOWN_LIST":
      guard try container.nestedUnkeyedContainer(forKey: .value).isAtEnd else {
        throw DecodingError.dataCorruptedError(
          forKey: .value, in: container, debugDescription: "a list of unknown kind that is not empty")
      }
      return .list(.unknown, [])
    default:
      throw DecodingError.dataCorruptedError(
        forKey: .type, in: container, debugDescription: "'\(type.prefix(40))' is not a type of CloudKit's")
    }
  }

  /// Writes the type and the value.
  ///
  /// - Throws: `EncodingError` for a value that no record can hold, such as a number that is not finite.
  public func encode(to encoder: any Encoder) throws {
    if let defect = defect(isKept: true) {
      throw EncodingError.invalidValue(self, .init(codingPath: encoder.codingPath, debugDescription: defect))
    }
    var container = encoder.container(keyedBy: ValueKey.self)
    if case .encrypted(let inner) = self {
      try container.encode(true, forKey: .isEncrypted)
      try inner.encodeParts(into: &container)
    } else {
      try encodeParts(into: &container)
    }
  }

  private func encodeParts(into container: inout KeyedEncodingContainer<ValueKey>) throws {
    try container.encode(typeName, forKey: .type)
    if case .opaque(let value) = self {
      return try container.encode(String(decoding: value.json, as: UTF8.self), forKey: .json)
    }
    guard case .list(_, let items) = self else {
      return try encodeBare { try container.encode($0, forKey: .value) }
    }
    var list = container.nestedUnkeyedContainer(forKey: .value)
    for item in items { try item.encodeBare { try list.encode($0) } }
  }

  /// Hands the value without its type to `encode`.
  private func encodeBare(_ encode: (any Encodable) throws -> Void) throws {
    switch self {
    case .string(let text): try encode(text)
    case .int64(let number), .date(let number): try encode(number)
    case .double(let number): try encode(number)
    case .bytes(let bytes): try encode(Data(bytes))
    case .reference(let reference): try encode(reference)
    case .location(let location): try encode(location)
    case .asset(let asset): try encode(asset)
    case .list, .encrypted, .opaque:
      // Its list has a defect, which `encode(to:)` has refused.
      throw EncodingError.invalidValue(
        self, .init(codingPath: [], debugDescription: "a list that holds no single values"))
    }
  }

  /// The value as one line of JSON: `{"type":"INT64","value":7}`.
  ///
  /// - Throws: `StrandlineError.invalidValue` for a value that no record can hold, such as a number that is not finite.
  public func text() throws -> String {
    try TextForm.text(of: self, "the field's value")
  }

  /// Reads a value as `text` writes it.
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    self = try TextForm.value(of: text, "a field's value")
  }
}

extension Record: Codable {
  private enum Key: String, CodingKey { case id, type, parent, fields, nulls, system }

  /// Reads all parts of a record.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    self.init(
      type: try container.decode(String.self, forKey: .type), id: try container.decode(RecordID.self, forKey: .id),
      fields: try container.decode([String: FieldValue].self, forKey: .fields),
      parent: try container.decodeIfPresent(String.self, forKey: .parent),
      system: try container.decodeIfPresent(SystemFields.self, forKey: .system))
    nulls = try container.decodeIfPresent(Set<String>.self, forKey: .nulls) ?? []
  }

  /// Writes all parts of the record, the server's metadata too.
  ///
  /// - Throws: `EncodingError` if a field has a value that no record can hold.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(id, forKey: .id)
    try container.encode(type, forKey: .type)
    try container.encodeIfPresent(parent, forKey: .parent)
    try container.encode(fields, forKey: .fields)
    if !nulls.isEmpty { try container.encode(nulls, forKey: .nulls) }
    try container.encodeIfPresent(system, forKey: .system)
  }

  /// The record as one line of JSON, with the server's metadata. Equal records have equal texts.
  ///
  /// ```swift
  /// let copy = try Record(text: record.text())
  /// ```
  ///
  /// - Throws: `StrandlineError.invalidValue` if a field has a value that no record can hold.
  public func text() throws -> String {
    try TextForm.text(of: self, "record '\(id)'")
  }

  /// Reads a record as `text` writes it. Nothing is stored.
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    self = try TextForm.value(of: text, "a record")
  }
}

/// Values as a line of JSON, with public errors.
private enum TextForm {
  static func text<Value: Encodable>(
    of value: Value, _ what: String
  ) throws -> String {
    do { return String(decoding: try SortedJSON.encode(value), as: UTF8.self) } catch let error as EncodingError {
      throw StrandlineError(
        .invalidValue, "\(what) has no text: \(error.explanation)")
    }
  }

  static func value<Value: Decodable>(
    of text: String, _ what: String
  ) throws -> Value {
    do { return try SortedJSON.decode(Value.self, from: Array(text.utf8)) } catch {
      let reason = (error as? DecodingError)?.explanation ?? "\(error)"
      throw StrandlineError(
        .invalidValue, "'\(text.prefix(80))' is not \(what): \(reason)")
    }
  }
}
