// How the values of fields are written: to the wire, and in the lines of a command, which differ in the spelling of
// numbers alone.

package import Strandline
package import StrandlineJSON
private import StrandlineSystem

extension WireField {
  /// How numbers that may have a fraction are written.
  package enum NumberForm: Sendable {
    /// Without a fraction if they are whole.
    case wire
    /// In the same way, and an INT64 as text: what a request asks for with `numbersAsStrings`.
    case wireNumbersAsStrings
    /// With a fraction or an exponent, so that a line says that they are no INT64.
    case line
  }

  /// Writes fields in the order of their names.
  package static func write(_ fields: [String: FieldValue], nulls: [String], to json: inout JSONWriter) {
    var sorted: [(name: String, value: FieldValue?)] = fields.map { ($0.key, $0.value) }
    for name in nulls where fields[name] == nil { sorted.append((name, nil)) }
    sorted.sort { $0.name.precedesByUTF8($1.name) }
    json.beginObject()
    for field in sorted {
      json.key(WireName.wire(field.name))
      write(field.value, to: &json, .wire)
    }
    json.endObject()
  }

  /// Writes a field as an object with its type.
  package static func write(_ value: FieldValue?, to json: inout JSONWriter, _ form: NumberForm) {
    json.beginObject()
    if let value {
      writeMembers(of: value, to: &json, form)
    } else {
      json.key("value")
      json.null()
    }
    json.endObject()
  }

  /// Writes the members of such an object.
  package static func writeMembers(of value: FieldValue, to json: inout JSONWriter, _ form: NumberForm) {
    var inner = value
    if case .encrypted(let encrypted) = value {
      inner = encrypted
      json.key("isEncrypted")
      json.bool(true)
    }
    // A value that came without a type and could not be read has none.
    let type = typeName(inner)
    if !type.isEmpty {
      json.key("type")
      json.string(type)
    }
    json.key("value")
    writeBare(inner, to: &json, form)
  }

  /// Writes a value without its type.
  ///
  /// What JSON cannot say becomes null, such as a number that is not finite: who sends fields refuses them before.
  package static func writeBare(_ value: FieldValue, to json: inout JSONWriter, _ form: NumberForm) {
    switch value {
    case .string(let text): json.string(text)
    case .int64(let number):
      if form == .wireNumbersAsStrings { json.string(String(number)) } else { json.int64(number) }
    case .double(let number): write(number, to: &json, form)
    case .date(let milliseconds): json.int64(milliseconds)
    case .bytes(let bytes): json.base64(bytes)
    case .reference(let reference): write(reference, to: &json)
    case .location(let place): write(place, to: &json, form)
    case .asset(let asset): write(asset, to: &json)
    case .list(_, let items):
      json.beginArray()
      for item in items { writeBare(item, to: &json, form) }
      json.endArray()
    case .encrypted(let inner): writeBare(inner, to: &json, form)
    case .opaque(let value): write(value, to: &json, form)
    }
  }

  private static func write(_ number: Double, to json: inout JSONWriter, _ form: NumberForm) {
    do throws(NonFiniteNumber) {
      switch form {
      case .wire, .wireNumbersAsStrings: try json.number(number)
      case .line: try json.double(number)
      }
    } catch { json.null() }
  }

  /// Writes a value of an unknown type as it came. Only a line has no line ends in it: these may stand between its parts.
  private static func write(_ value: OpaqueValue, to json: inout JSONWriter, _ form: NumberForm) {
    guard isJSON(value) else { return json.null() }
    let isLineEnd: (UInt8) -> Bool = { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }
    if form == .line, value.json.contains(where: isLineEnd) {
      json.raw(value.json.map { isLineEnd($0) ? UInt8(ascii: " ") : $0 })
    } else {
      json.raw(value.json)
    }
  }

  /// Whether a value of an unknown type can be sent. No version of this package stores what is no JSON.
  static func isJSON(_ value: OpaqueValue) -> Bool {
    do throws(JSONError) {
      var reader = try JSONReader(value.json, limits: JSONLimits(bytesMax: .max, depthMax: WireJSON.depthMax))
      try reader.skipValue()
      try reader.finish()
      return true
    } catch { return false }
  }

  private static func write(_ reference: Reference, to json: inout JSONWriter) {
    json.beginObject()
    json.key("action")
    switch reference.action {
    case .none: json.string("NONE")
    case .deleteSelf: json.string("DELETE_SELF")
    case .validate: json.string("VALIDATE")
    }
    json.member("recordName", reference.name)
    json.member("zoneID", reference.zone.map { WireZoneID($0) })
    json.endObject()
  }

  private static func write(
    _ place: Location, to json: inout JSONWriter, _ form: NumberForm
  ) {
    json.beginObject()
    for (key, number) in [
      ("altitude", place.altitude), ("course", place.course), ("horizontalAccuracy", place.horizontalAccuracy),
      ("latitude", place.latitude), ("longitude", place.longitude), ("speed", place.speed),
    ] {
      guard let number else { continue }
      json.key(key)
      write(number, to: &json, form)
    }
    if let timestamp = place.timestamp {
      json.key("timestamp")
      json.int64(timestamp)
    }
    if let accuracy = place.verticalAccuracy {
      json.key("verticalAccuracy")
      write(accuracy, to: &json, form)
    }
    json.endObject()
  }

  /// Writes an asset. What a device alone knows of it does not travel; only a line of a command has an asset that is nowhere else.
  static func write(_ asset: Asset, to json: inout JSONWriter) {
    let file = asset.server
    json.beginObject()
    if file == nil { json.member("contentHash", asset.contentHash?.hexadecimal) }
    json.member("downloadURL", file?.downloadURL)
    json.member("fileChecksum", file?.fileChecksum)
    json.member("receipt", file?.receipt)
    json.member("referenceChecksum", file?.referenceChecksum)
    json.key("size")
    json.int64(asset.size)
    json.member("wrappingKey", file?.wrappingKey)
    json.endObject()
  }

  /// The name of a value's type.
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
