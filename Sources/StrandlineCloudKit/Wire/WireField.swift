// A field's value in JSON: {"value": …, "type": "STRING"}, with its keys in any order.
//
// The value is passed over, which checks it and finds its end, and is read when the type is known: text, numbers and bytes
// from where they were found, lists and objects by going back to them. A sender may leave the type out; then it is inferred
// from the value. A value that CloudKit has not (a boolean, a number out of range, text that is not base64) is refused with
// the reason, and never converted.
//
// How strictly that is done depends on who sends (`Sender`). What the live service sends loosely is accepted from it: whole
// numbers as text, times with a fraction. What of it cannot be read as its type says is kept as it came, as a value of a
// type that this version does not know is: an edit of another field must neither lose it nor wait for it.

package import Strandline
package import StrandlineJSON

/// The types as the wire spells them.
private enum WireType: Int, CaseIterable {
  case string, int64, double, timestamp, bytes, encryptedBytes, reference, location, asset, assetID
  case strings, int64s, doubles, timestamps, byteLists, references, locations, assets, assetIDs, unknownList

  static let names = JSONKeys([
    "STRING", "INT64", "DOUBLE", "TIMESTAMP", "BYTES", "ENCRYPTED_BYTES", "REFERENCE", "LOCATION", "ASSET", "ASSETID",
    "STRING_LIST", "INT64_LIST", "DOUBLE_LIST", "TIMESTAMP_LIST", "BYTES_LIST", "REFERENCE_LIST", "LOCATION_LIST",
    "ASSET_LIST", "ASSETID_LIST", "UNKNOWN_LIST",
  ])

  /// A list of such values; nil for a type without lists.
  var list: WireType? {
    switch self {
    case .string: .strings
    case .int64: .int64s
    case .double: .doubles
    case .reference: .references
    case .location: .locations
    case .assetID: .assetIDs
    default: nil
    }
  }
}

/// Reads and writes the values of fields.
package enum WireField {
  /// Who sends fields.
  package enum Sender: Sendable {
    /// A cloud: its values are taken, and those that cannot be read are kept.
    case cloud
    /// A client of a server: its values are refused if they cannot be read.
    case client
    /// A person or a program that hands lines to a command: it is held to the letter.
    case command
  }

  private enum Key: Int, WireKey {
    case value, type, isEncrypted
    static let names = JSONKeys(Key.self)
  }

  // MARK: Reading

  /// Reads a field; nil is an explicit null.
  package static func read(_ json: inout JSONReader, from sender: Sender) throws(JSONError) -> FieldValue? {
    var value: JSONToken?
    var type: JSONToken?
    var isEncrypted = false
    if sender == .cloud, try json.skipNull() { return nil }
    try json.beginObject()
    while let place = try json.nextKey(in: Key.names) {
      switch Key(rawValue: place) {
      case .value: value = try json.skipValue()
      case .type: type = try json.skipValue()
      case .isEncrypted:
        do throws(JSONError) { isEncrypted = try json.optional() ?? false } catch { throw error.inside("isEncrypted") }
      case nil:
        let key = (json.key, json.keyPlace.lowerBound)
        try json.skipValue()
        guard sender == .command else { continue }
        throw json.error(
          "unknown key '\(key.0.prefix(80))'; an object as a value has the keys 'type' and 'value'", at: key.1)
      }
    }
    guard let value else {
      guard sender == .command else { return nil }
      throw json.errorAtEnd("an object as a value has the keys 'type' and 'value'; null clears a field")
    }
    if value.kind == .null { return nil }
    let end = json.mark
    let decoded: FieldValue
    do throws(JSONError) {
      if let type, type.kind != .null {
        decoded = try read(value, of: type, &json, sender)
      } else {
        do throws(JSONError) { decoded = try infer(value, &json, sender) } catch { throw error.inside("value") }
      }
    } catch {
      guard sender == .cloud, error.kind == .value else { throw error }
      json.move(to: end)
      decoded = .opaque(try kept(value, of: type, &json))
    }
    if case .encrypted = decoded { return decoded }
    return isEncrypted ? .encrypted(decoded) : decoded
  }

  private static func read(
    _ value: JSONToken, of type: JSONToken, _ json: inout JSONReader, _ sender: Sender
  ) throws(JSONError) -> FieldValue {
    let place: Int
    do throws(JSONError) { place = try json.place(of: type, in: WireType.names) } catch { throw error.inside("type") }
    guard let known = WireType(rawValue: place) else {
      // A server and a command refuse it from whom it may not come.
      return .opaque(try kept(value, of: type, &json))
    }
    do throws(JSONError) { return try read(value, known, &json, sender) } catch { throw error.inside("value") }
  }

  /// A value as it came; the type is empty if there was none.
  private static func kept(
    _ value: JSONToken, of type: JSONToken?, _ json: inout JSONReader
  ) throws(JSONError) -> OpaqueValue {
    let name = type?.kind == .string ? try type.map { (type) throws(JSONError) in try json.string(of: type) } : nil
    return OpaqueValue(type: name ?? "", json: Array(json.bytes[value.range]))
  }

  private static func read(
    _ value: JSONToken, _ type: WireType, _ json: inout JSONReader, _ sender: Sender
  ) throws(JSONError) -> FieldValue {
    switch type {
    case .string: return .string(try json.string(of: value))
    case .int64: return .int64(try json.int64(of: value, from: sender))
    case .double: return .double(try json.double(of: value))
    case .timestamp: return .date(milliseconds: try json.milliseconds(of: value, from: sender))
    case .bytes: return .bytes(try json.base64(of: value))
    case .encryptedBytes: return .encrypted(.bytes(try json.base64(of: value)))
    case .reference, .location, .asset, .assetID:
      let end = json.goBack(to: value)
      defer { json.move(to: end) }
      return try object(type, &json, sender)
    case .strings: return try list(.strings, value, .string, &json, sender)
    case .int64s: return try list(.int64s, value, .int64, &json, sender)
    case .doubles: return try list(.doubles, value, .double, &json, sender)
    case .timestamps: return try list(.dates, value, .timestamp, &json, sender)
    case .byteLists: return try list(.bytes, value, .bytes, &json, sender)
    case .references: return try list(.references, value, .reference, &json, sender)
    case .locations: return try list(.locations, value, .location, &json, sender)
    case .assets, .assetIDs: return try list(.assets, value, .asset, &json, sender)
    case .unknownList: return try list(.unknown, value, nil, &json, sender)
    }
  }

  private static func object(
    _ type: WireType, _ json: inout JSONReader, _ sender: Sender
  ) throws(JSONError) -> FieldValue {
    switch type {
    case .reference: .reference(try reference(&json))
    case .location: .location(try location(&json, sender))
    default: .asset(try asset(&json, sender))
    }
  }

  /// Reads a list whose items are of a type; without one it must be empty.
  private static func list(
    _ kind: FieldValue.ListKind, _ value: JSONToken, _ type: WireType?, _ json: inout JSONReader, _ sender: Sender
  ) throws(JSONError) -> FieldValue {
    let end = json.goBack(to: value)
    defer { json.move(to: end) }
    var items: [FieldValue] = []
    try json.beginArray()
    while try json.nextItem() {
      do throws(JSONError) {
        guard let type else {
          throw json.error("a list of unknown kind that is not empty", at: value.range.lowerBound)
        }
        switch type {
        case .string: items.append(.string(try json.string()))
        case .reference, .location, .asset: items.append(try object(type, &json, sender))
        default: items.append(try read(try json.skipValue(), type, &json, sender))
        }
      } catch { throw error.inside(item: items.count) }
    }
    return .list(kind, items)
  }

  /// Reads a number that may be null.
  static func number(_ json: inout JSONReader) throws(JSONError) -> Double? {
    let token = try json.skipValue()
    return token.kind == .null ? nil : try json.double(of: token)
  }

  /// Reads a location that may be null, bare or as the value of a field: CloudKit's reference shows none, and its own
  /// JavaScript sends the location as its caller gave it.
  static func place(_ json: inout JSONReader) throws(JSONError) -> Location? {
    let token = try json.skipValue()
    if token.kind == .null { return nil }
    let end = json.goBack(to: token)
    defer { json.move(to: end) }
    let begin = json.mark
    var isField = false
    try json.beginObject()
    while let key = try json.nextKey() {
      if key.utf8.elementsEqual("value".utf8) { isField = true }
      try json.skipValue()
    }
    json.move(to: begin)
    guard isField else { return try location(&json, .client) }
    guard case .location(let place)? = try read(&json, from: .client) else {
      throw json.error("a value that is no LOCATION", at: token.range.lowerBound)
    }
    return place
  }

  // MARK: Values without a type

  /// Reads a value without a type, by its kind of JSON. A whole number is an INT64: a sender that means a DOUBLE or a
  /// TIMESTAMP must give the type.
  private static func infer(
    _ value: JSONToken, _ json: inout JSONReader, _ sender: Sender
  ) throws(JSONError) -> FieldValue {
    guard value.kind == .array else { return try read(value, try inferredType(of: value, &json), &json, sender) }
    let end = json.goBack(to: value)
    try json.beginArray()
    let first: JSONToken? = try json.nextItem() ? try json.skipValue() : nil
    let item: WireType? = if let first { try inferredType(of: first, &json) } else { nil }
    json.move(to: end)
    return try read(value, item?.list ?? .unknownList, &json, sender)
  }

  private static func inferredType(of value: JSONToken, _ json: inout JSONReader) throws(JSONError) -> WireType {
    let place = value.range.lowerBound
    switch value.kind {
    case .string: return .string
    case .number:
      if case .int64 = try json.number(of: value) { return .int64 }
      return .double
    case .bool: throw json.error("a boolean; CloudKit has none, use 0 or 1", at: place)
    case .null, .array: throw json.error("a list of lists or nulls", at: place)
    case .object:
      let end = json.goBack(to: value)
      defer { json.move(to: end) }
      var type: WireType?
      try json.beginObject()
      while let key = try json.nextKey() {
        switch key {
        case "recordName": type = .reference
        case "latitude": type = type ?? .location
        case "fileChecksum", "contentHash": type = type ?? .assetID
        default: break
        }
        try json.skipValue()
      }
      guard let type else { throw json.error("an object of no known kind", at: place) }
      return type
    }
  }

  // MARK: Objects

  /// A reference. Its zone is made relative to the record's afterwards, where the record's is known.
  private static func reference(_ json: inout JSONReader) throws(JSONError) -> Reference {
    enum Key: Int, WireKey {
      case recordName, action, zoneID
      static let names = JSONKeys(Key.self)
    }
    var name: String?
    var action = Reference.Action.none
    var zone: WireZoneID?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .recordName: name = try json.string()
      case .action: action = try Self.action(&json)
      case .zoneID: zone = try json.optional()
      }
    }
    guard let name else { throw json.missing("recordName") }
    return Reference(name, zone: zone.map { ZoneID($0.name, owner: $0.ownerRecordName ?? "") }, action: action)
  }

  private static func action(_ json: inout JSONReader) throws(JSONError) -> Reference.Action {
    let token = try json.skipValue()
    if token.kind == .null { return .none }
    switch try json.string(of: token) {
    case "NONE": return .none
    case "DELETE_SELF": return .deleteSelf
    case "VALIDATE": return .validate
    case let other:
      throw json.error("a reference with the unknown action '\(other.prefix(40))'", at: token.range.lowerBound)
    }
  }

  private static func location(_ json: inout JSONReader, _ sender: Sender) throws(JSONError) -> Location {
    enum Key: Int, WireKey {
      case latitude, longitude, horizontalAccuracy, verticalAccuracy, altitude, speed, course, timestamp
      static let names = JSONKeys(Key.self)
    }
    var latitude: Double?
    var longitude: Double?
    var place = Location(latitude: 0, longitude: 0)
    try json.object(Key.self) { key, json throws(JSONError) in
      let value = try json.skipValue()
      if value.kind == .null { return }
      switch key {
      case .latitude: latitude = try json.double(of: value)
      case .longitude: longitude = try json.double(of: value)
      case .horizontalAccuracy: place.horizontalAccuracy = try json.double(of: value)
      case .verticalAccuracy: place.verticalAccuracy = try json.double(of: value)
      case .altitude: place.altitude = try json.double(of: value)
      case .speed: place.speed = try json.double(of: value)
      case .course: place.course = try json.double(of: value)
      case .timestamp: place.timestamp = try json.milliseconds(of: value, from: sender)
      }
    }
    guard let latitude else { throw json.missing("latitude") }
    guard let longitude else { throw json.missing("longitude") }
    place.latitude = latitude
    place.longitude = longitude
    return place
  }

  /// An asset: a file at the server, as the server itself names it.
  static func asset(_ json: inout JSONReader) throws(JSONError) -> Asset { try asset(&json, .cloud) }

  /// An asset: a file at the server.
  private static func asset(_ json: inout JSONReader, _ sender: Sender) throws(JSONError) -> Asset {
    enum Key: Int, WireKey {
      case fileChecksum, size, referenceChecksum, wrappingKey, receipt, downloadURL, contentHash
      static let names = JSONKeys(Key.self)
    }
    var file = Asset.ServerFile()
    var size: Int64?
    var hash: String?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .fileChecksum: file.fileChecksum = try json.string()
      case .size: size = try json.int64(of: try json.skipValue(), from: sender)
      case .referenceChecksum: file.referenceChecksum = try json.optional()
      case .wrappingKey: file.wrappingKey = try json.optional()
      case .receipt: file.receipt = try json.optional()
      case .downloadURL: file.downloadURL = try json.optional()
      case .contentHash: hash = try json.optional()
      }
    }
    // What is on a device alone, a line of a command names by its hash; a cloud knows nothing of it.
    if sender == .command, file == Asset.ServerFile(), let size, let hash, let hash = ContentHash(hexadecimal: hash) {
      return Asset(contentHash: hash, size: size)
    }
    guard file.fileChecksum != nil else { throw json.missing("fileChecksum") }
    guard let size else { throw json.missing("size") }
    return Asset(server: file, size: size)
  }
}

extension JSONReader {
  /// Reads an object of fields; `read` reads one, nil for a null.
  ///
  /// - Parameter name: the model's name of a field. Without it two names that Unicode calls equivalent are refused.
  package mutating func fields(
    named name: (String) -> String = { $0 }, _ read: (inout JSONReader) throws(JSONError) -> FieldValue?
  ) throws(JSONError) -> (values: [String: FieldValue], nulls: [String]) {
    var values: [String: FieldValue] = [:]
    var nulls: [String] = []
    try beginObject()
    while let key = try nextKey() {
      let (name, place) = (name(key), keyPlace.lowerBound)
      do throws(JSONError) {
        guard let value = try read(&self) else {
          nulls.append(name)
          continue
        }
        guard values.updateValue(value, forKey: name) == nil else {
          throw error("two fields whose names are one text in two spellings", at: place)
        }
      } catch { throw error.inside(name) }
    }
    return (values, nulls)
  }

  /// A whole number; a text of its digits too (`numbersAsStrings`), unless the sender is held to the letter.
  fileprivate mutating func int64(of token: JSONToken, from sender: WireField.Sender) throws(JSONError) -> Int64 {
    if token.kind == .string, sender != .command {
      guard let number = Int64(try string(of: token)) else {
        throw error("text that is not a whole number", at: token.range.lowerBound)
      }
      return number
    }
    guard case .int64(let whole) = try number(of: token) else {
      throw error("a number that is not a whole number of 64 bits", at: token.range.lowerBound)
    }
    return whole
  }

  /// A number; −0 becomes 0, as everywhere in the model.
  fileprivate mutating func double(of token: JSONToken) throws(JSONError) -> Double {
    switch try number(of: token) {
    case .int64(let number): Double(number)
    case .double(let number): number == 0 ? 0 : number
    }
  }

  /// Whole milliseconds; a fraction, which some senders write, is rounded, unless the sender is held to the letter. A person may
  /// write a date.
  mutating func milliseconds(of token: JSONToken, from sender: WireField.Sender) throws(JSONError) -> Int64 {
    if sender == .command, token.kind == .string {
      let text = try string(of: token)
      guard let time = ISODate.milliseconds(text) else {
        throw error("'\(text.prefix(80))', which is no time such as 2026-01-31T18:00:00Z", at: token.range.lowerBound)
      }
      return time
    }
    switch try number(of: token) {
    case .int64(let number): return number
    case .double(let number):
      guard sender != .command else { throw error("a time that is not whole milliseconds", at: token.range.lowerBound) }
      guard let whole = Int64(exactly: number.rounded()) else {
        throw error("a time beyond 64 bits of milliseconds", at: token.range.lowerBound)
      }
      return whole
    }
  }
}
