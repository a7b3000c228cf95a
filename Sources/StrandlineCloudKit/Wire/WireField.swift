// A field's value in JSON: {"value": …, "type": "STRING"}.
//
// The type is read first and the value by it, so that a value is decoded once. A request may leave the type out; then
// it is inferred from the value. A value that CloudKit has not (a boolean, a number out of range, text that is not
// base64) is refused with the reason, and never converted.

internal import Foundation
package import Strandline

/// A field on the wire; nil is an explicit null.
package struct WireField: Codable, Sendable {
  package var value: FieldValue?

  package init(_ value: FieldValue?) { self.value = value }

  enum Keys: String, CodingKey {
    case value, type, isEncrypted
  }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    guard container.contains(.value), try !container.decodeNil(forKey: .value) else {
      value = nil
      return
    }
    let isEncrypted = try container.decodeIfPresent(Bool.self, forKey: .isEncrypted) ?? false
    let decoded: FieldValue
    if let type = try container.decodeIfPresent(String.self, forKey: .type) {
      decoded = try WireField.decode(type, container)
    } else {
      decoded = try WireField.infer(container)
    }
    if case .encrypted = decoded {
      value = decoded
    } else {
      value = isEncrypted ? .encrypted(decoded) : decoded
    }
  }

  private static func decode(_ type: String, _ container: KeyedDecodingContainer<Keys>) throws -> FieldValue {
    switch type {
    case "STRING": return .string(try container.decode(String.self, forKey: .value))
    case "INT64": return .int64(try container.decode(WireInt64.self, forKey: .value).value)
    case "DOUBLE": return .double(try container.decode(WireDouble.self, forKey: .value).value)
    case "TIMESTAMP": return .date(milliseconds: try container.decode(WireMilliseconds.self, forKey: .value).value)
    case "BYTES": return .bytes(try container.decode(WireBytes.self, forKey: .value).value)
    case "ENCRYPTED_BYTES": return .encrypted(.bytes(try container.decode(WireBytes.self, forKey: .value).value))
    case "REFERENCE": return .reference(try container.decode(WireReference.self, forKey: .value).value)
    case "LOCATION": return .location(try container.decode(WireLocation.self, forKey: .value).value)
    case "ASSETID", "ASSET": return .asset(try container.decode(WireAsset.self, forKey: .value).value)
    case "STRING_LIST": return .list(.strings, try container.decode([String].self, forKey: .value).map { .string($0) })
    case "INT64_LIST":
      return .list(.int64s, try container.decode([WireInt64].self, forKey: .value).map { .int64($0.value) })
    case "DOUBLE_LIST":
      return .list(.doubles, try container.decode([WireDouble].self, forKey: .value).map { .double($0.value) })
    case "TIMESTAMP_LIST":
      let items = try container.decode([WireMilliseconds].self, forKey: .value)
      return .list(.dates, items.map { .date(milliseconds: $0.value) })
    case "BYTES_LIST":
      return .list(.bytes, try container.decode([WireBytes].self, forKey: .value).map { .bytes($0.value) })
    case "REFERENCE_LIST":
      return .list(.references, try container.decode([WireReference].self, forKey: .value).map { .reference($0.value) })
    case "LOCATION_LIST":
      return .list(.locations, try container.decode([WireLocation].self, forKey: .value).map { .location($0.value) })
    case "ASSETID_LIST", "ASSET_LIST":
      return .list(.assets, try container.decode([WireAsset].self, forKey: .value).map { .asset($0.value) })
    case "UNKNOWN_LIST":
      let items = try container.nestedUnkeyedContainer(forKey: .value)
      guard items.isAtEnd else { throw wireDefect("a list of unknown kind that is not empty", at: items.codingPath) }
      return .list(.unknown, [])
    default:
      // Kept as it came. A server and a command refuse it from whom it may not come.
      return .opaque(
        OpaqueValue(type: type, json: try container.decode(JSONValue.self, forKey: .value).canonicalBytes))
    }
  }

  /// Reads a value without a type, by its kind of JSON. A whole number is an INT64: a sender that means a DOUBLE or a
  /// TIMESTAMP must give the type.
  private static func infer(_ container: KeyedDecodingContainer<Keys>) throws -> FieldValue {
    let shape = try container.decode(JSONValue.self, forKey: .value)
    switch shape {
    case .array(let items):
      guard let first = items.first else { return .list(.unknown, []) }
      return try decode(try typeName(first, container) + "_LIST", container)
    case let one: return try decode(try typeName(one, container), container)
    }
  }

  private static func typeName(_ value: JSONValue, _ container: KeyedDecodingContainer<Keys>) throws -> String {
    switch value {
    case .string: return "STRING"
    case .integer: return "INT64"
    case .number: return "DOUBLE"
    case .object(let members):
      if members["recordName"] != nil { return "REFERENCE" }
      if members["latitude"] != nil { return "LOCATION" }
      if members["fileChecksum"] != nil { return "ASSETID" }
      throw wireDefect("an object of no known kind", at: container.codingPath)
    case .bool: throw wireDefect("a boolean; CloudKit has none, use 0 or 1", at: container.codingPath)
    case .null, .array: throw wireDefect("a list of lists or nulls", at: container.codingPath)
    }
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    guard let value else {
      try container.encodeNil(forKey: .value)
      return
    }
    if case .encrypted(let inner) = value {
      try container.encode(true, forKey: .isEncrypted)
      try WireField.encode(inner, &container)
    } else {
      try WireField.encode(value, &container)
    }
  }

  private static func encode(_ value: FieldValue, _ container: inout KeyedEncodingContainer<Keys>) throws {
    try container.encode(typeName(value), forKey: .type)
    switch value {
    case .string(let text): try container.encode(text, forKey: .value)
    case .int64(let number): try container.encode(number, forKey: .value)
    case .double(let number): try container.encode(number, forKey: .value)
    case .date(let milliseconds): try container.encode(milliseconds, forKey: .value)
    case .bytes(let bytes): try container.encode(WireBytes(value: bytes), forKey: .value)
    case .reference(let reference): try container.encode(WireReference(value: reference), forKey: .value)
    case .location(let place): try container.encode(WireLocation(value: place), forKey: .value)
    case .asset(let asset): try container.encode(WireAsset(value: asset), forKey: .value)
    case .list(_, let items):
      var list = container.nestedUnkeyedContainer(forKey: .value)
      for item in items {
        switch item {
        case .string(let text): try list.encode(text)
        case .int64(let number): try list.encode(number)
        case .double(let number): try list.encode(number)
        case .date(let milliseconds): try list.encode(milliseconds)
        case .bytes(let bytes): try list.encode(WireBytes(value: bytes))
        case .reference(let reference): try list.encode(WireReference(value: reference))
        case .location(let place): try list.encode(WireLocation(value: place))
        case .asset(let asset): try list.encode(WireAsset(value: asset))
        case .list, .encrypted, .opaque: throw wireDefect("a list in a list", at: list.codingPath)
        }
      }
    case .encrypted: throw wireDefect("an encrypted value in an encrypted value", at: container.codingPath)
    case .opaque(let value):
      try container.encode(try WireJSON.decode(JSONValue.self, value.json), forKey: .value)
    }
  }

  package static func typeName(_ value: FieldValue) -> String {
    switch value {
    case .string: "STRING"
    case .int64: "INT64"
    case .double: "DOUBLE"
    case .date: "TIMESTAMP"
    case .bytes: "BYTES"
    case .reference: "REFERENCE"
    case .location: "LOCATION"
    case .asset: "ASSETID"
    case .list(let kind, _):
      switch kind {
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
    case .encrypted(let inner): typeName(inner)
    case .opaque(let value): value.type
    }
  }
}

/// A decoding error that says what is wrong with a value and at which path.
func wireDefect(_ what: String, at path: [any CodingKey]) -> any Error {
  DecodingError.dataCorrupted(DecodingError.Context(codingPath: path, debugDescription: what))
}

/// A whole number; a string of digits too (`numbersAsStrings`).
struct WireInt64: Decodable {
  var value: Int64
  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    do {
      value = try container.decode(Int64.self)
    } catch DecodingError.typeMismatch(let type, let context) {
      let text: String
      do { text = try container.decode(String.self) } catch DecodingError.typeMismatch {
        throw DecodingError.typeMismatch(type, context)
      }
      guard let number = Int64(text) else {
        throw wireDefect("text that is not a whole number", at: decoder.codingPath)
      }
      value = number
    } catch {
      // For a number that is no Int64, Foundation throws an error of its own and not a DecodingError.
      throw wireDefect("a number that is not a whole number of 64 bits", at: decoder.codingPath)
    }
  }
}

/// A finite number; −0 becomes 0, as everywhere in the model.
struct WireDouble: Decodable {
  var value: Double
  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let number = try container.decode(Double.self)
    guard number.isFinite else { throw wireDefect("a number that is not finite", at: decoder.codingPath) }
    value = number == 0 ? 0 : number
  }
}

/// Whole milliseconds; a fraction, which some senders write, is rounded.
struct WireMilliseconds: Decodable {
  var value: Int64
  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    do {
      value = try container.decode(Int64.self)
    } catch {
      // For a number that is no Int64, Foundation throws an error of its own and not a DecodingError.
      guard let whole = Int64(exactly: try container.decode(Double.self).rounded()) else {
        throw wireDefect("a time beyond 64 bits of milliseconds", at: decoder.codingPath)
      }
      value = whole
    }
  }
}

/// Bytes as base64.
struct WireBytes: Codable {
  var value: [UInt8]
  init(value: [UInt8]) { self.value = value }
  init(from decoder: any Decoder) throws {
    let text = try decoder.singleValueContainer().decode(String.self)
    guard let data = Data(base64Encoded: text) else {
      throw wireDefect("text that is not base64", at: decoder.codingPath)
    }
    value = [UInt8](data)
  }
  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(Data(value).base64EncodedString())
  }
}

/// A reference. Its zone is made relative to the record's afterwards, where the record's is known.
struct WireReference: Codable {
  var value: Reference
  init(value: Reference) { self.value = value }

  enum Keys: String, CodingKey { case recordName, action, zoneID }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    let action: Reference.Action =
      switch try container.decodeIfPresent(String.self, forKey: .action) {
      case nil, "NONE": .none
      case "DELETE_SELF": .deleteSelf
      case "VALIDATE": .validate
      case .some(let other):
        throw wireDefect("a reference with the unknown action '\(other.prefix(40))'", at: container.codingPath)
      }
    let zone = try container.decodeIfPresent(WireZoneID.self, forKey: .zoneID)
    value = Reference(
      try container.decode(String.self, forKey: .recordName),
      zone: zone.map { ZoneID($0.name, owner: $0.ownerRecordName ?? "") }, action: action)
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(value.name, forKey: .recordName)
    let action =
      switch value.action {
      case .none: "NONE"
      case .deleteSelf: "DELETE_SELF"
      case .validate: "VALIDATE"
      }
    try container.encode(action, forKey: .action)
    if let zone = value.zone { try container.encode(WireZoneID(zone), forKey: .zoneID) }
  }
}

/// A geographic location.
struct WireLocation: Codable {
  var value: Location
  init(value: Location) { self.value = value }

  enum Keys: String, CodingKey {
    case latitude, longitude, horizontalAccuracy, verticalAccuracy, altitude, speed, course, timestamp
  }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    func number(_ key: Keys) throws -> Double? { try container.decodeIfPresent(WireDouble.self, forKey: key)?.value }
    value = Location(
      latitude: try container.decode(WireDouble.self, forKey: .latitude).value,
      longitude: try container.decode(WireDouble.self, forKey: .longitude).value,
      horizontalAccuracy: try number(.horizontalAccuracy), verticalAccuracy: try number(.verticalAccuracy),
      altitude: try number(.altitude), speed: try number(.speed), course: try number(.course),
      timestamp: try container.decodeIfPresent(WireMilliseconds.self, forKey: .timestamp)?.value)
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(value.latitude, forKey: .latitude)
    try container.encode(value.longitude, forKey: .longitude)
    try container.encodeIfPresent(value.horizontalAccuracy, forKey: .horizontalAccuracy)
    try container.encodeIfPresent(value.verticalAccuracy, forKey: .verticalAccuracy)
    try container.encodeIfPresent(value.altitude, forKey: .altitude)
    try container.encodeIfPresent(value.speed, forKey: .speed)
    try container.encodeIfPresent(value.course, forKey: .course)
    try container.encodeIfPresent(value.timestamp, forKey: .timestamp)
  }
}

/// An asset: a file at the server. What a device alone knows of it does not travel.
struct WireAsset: Codable {
  var value: Asset
  init(value: Asset) { self.value = value }

  enum Keys: String, CodingKey { case fileChecksum, size, referenceChecksum, wrappingKey, receipt, downloadURL }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    func text(_ key: Keys) throws -> String? { try container.decodeIfPresent(String.self, forKey: key) }
    value = Asset(
      fileChecksum: try container.decode(String.self, forKey: .fileChecksum),
      size: try container.decode(WireInt64.self, forKey: .size).value,
      referenceChecksum: try text(.referenceChecksum), wrappingKey: try text(.wrappingKey),
      receipt: try text(.receipt), downloadURL: try text(.downloadURL))
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    let file = value.server
    try container.encodeIfPresent(file?.fileChecksum, forKey: .fileChecksum)
    try container.encode(value.size, forKey: .size)
    try container.encodeIfPresent(file?.referenceChecksum, forKey: .referenceChecksum)
    try container.encodeIfPresent(file?.wrappingKey, forKey: .wrappingKey)
    try container.encodeIfPresent(file?.receipt, forKey: .receipt)
    try container.encodeIfPresent(file?.downloadURL, forKey: .downloadURL)
  }
}
