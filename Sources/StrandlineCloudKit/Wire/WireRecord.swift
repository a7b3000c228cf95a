// A record in JSON: in a request, in a reply, as a tombstone, or as the refusal of one record.
//
// A record of a reply that cannot be read must not stop its page: what is wrong becomes the `defect` of that record, and
// its bytes are kept. Only where its end cannot be found, because brackets or quotes are wrong, the reply fails as a whole.
// A field whose value cannot be read is kept as it came and spoils no other, and so are keys that this version does not
// know, or of which it cannot read the value and does without.

package import Strandline
package import StrandlineJSON
private import StrandlineSystem

/// A zone's ID in JSON.
package struct WireZoneID: WireMessage, Hashable {
  package var zoneName: String?
  package var ownerRecordName: String?
  package var zoneType: String?

  package init(zoneName: String?, ownerRecordName: String? = nil, zoneType: String? = nil) {
    self.zoneName = zoneName
    self.ownerRecordName = ownerRecordName
    self.zoneType = zoneType
  }

  /// The zone's ID for a request.
  package init(_ zone: ZoneID) {
    self.init(zoneName: zone.name, ownerRecordName: zone.owner.isEmpty ? nil : zone.owner)
  }

  package static func == (left: WireZoneID, right: WireZoneID) -> Bool {
    left.zoneName.equalsUTF8(right.zoneName) && left.ownerRecordName.equalsUTF8(right.ownerRecordName)
      && left.zoneType.equalsUTF8(right.zoneType)
  }

  package func hash(into hasher: inout Hasher) {
    for text in [zoneName, ownerRecordName, zoneType] { hasher.combine(text.map { CloudName($0) }) }
  }

  package var name: String { zoneName ?? Names.defaultZone }

  /// The zone's ID in the model: in the private and the public database there are no other owners.
  package func zone(in scope: DatabaseScope) -> ZoneID {
    ZoneID(name, owner: scope == .shared ? ownerRecordName ?? "" : "", scope: scope)
  }

  private enum Key: Int, WireKey {
    case zoneName, ownerRecordName, zoneType
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(zoneName: nil)
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneName: zoneName = try json.optional()
      case .ownerRecordName: ownerRecordName = try json.optional()
      case .zoneType: zoneType = try json.optional()
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("ownerRecordName", ownerRecordName)
    json.member("zoneName", zoneName)
    json.member("zoneType", zoneType)
    json.endObject()
  }
}

/// A record, a tombstone or the refusal of one record.
package struct WireRecord: WireMessage {
  package var recordName: String?
  package var recordType: String?
  package var recordChangeTag: String?
  /// The fields that have a value. Nil: the key was absent.
  package var fields: [String: FieldValue]?
  /// The fields that are an explicit null.
  package var nulls: [String] = []
  /// What makes this record unreadable, with its path; nil if all of it can be read.
  package var defect: String?
  /// The bytes of a reply's record that has a defect; empty else.
  package var raw: [UInt8] = []
  package var parent: String?
  package var created: ServerTimestamp?
  package var modified: ServerTimestamp?
  package var deleted: Bool?
  package var zoneID: WireZoneID?
  package var error: WireError?
  /// Of a request: the fields that its answer is to show of this record.
  package var desiredKeys: [String]?
  /// Keys that this version does not know, with their values, as one object: each as it came; empty if there are none.
  package var unknown: [UInt8] = []

  package init(recordName: String?) { self.recordName = recordName }

  package init(recordName: String?, error: WireError) {
    self.recordName = recordName
    self.error = error
  }

  // MARK: Reading

  private enum Key: Int, WireKey {
    case recordName, recordType, recordChangeTag, fields, parent, created, modified, deleted, zoneID
    case serverErrorCode, extensionErrorCode, reason, retryAfter, uuid, redirectURL
    // Of an answer they hold nothing that this version needs.
    case pluginFields, desiredKeys
    static let names = JSONKeys(Key.self)

    /// Whether a record of a reply can be used without it.
    var isDispensable: Bool {
      switch self {
      case .parent, .created, .modified, .zoneID: true
      default: false
      }
    }
  }

  /// The most bytes that are kept of a record that cannot be read. One of CloudKit's has a few megabytes at most.
  private static let rawBytesMax = 8 << 20

  /// Reads a record of a reply. One that cannot be read has a `defect` and its bytes, with its name if that can be found.
  package init(_ json: inout JSONReader) throws(JSONError) {
    let begin = json.mark
    do throws(JSONError) { self = try WireRecord(strictly: &json, isRequest: false) } catch let first {
      let record: WireRecord
      do throws(JSONError) { record = try WireRecord(unreadable: &json, from: begin) } catch { throw first }
      self = record
      if record.error == nil {
        defect = first.words + (record.raw.isEmpty ? "; its bytes are too many to be kept" : "")
      } else {
        raw = []
      }
    }
  }

  /// Reads a record of a request. What is no JSON fails the request; a value that a record cannot have becomes the
  /// `defect` of this one.
  init(request json: inout JSONReader) throws(JSONError) {
    let begin = json.mark
    do throws(JSONError) { self = try WireRecord(strictly: &json, isRequest: true) } catch {
      guard error.kind == .value else { throw error }
      let record = try WireRecord(unreadable: &json, from: begin)
      guard record.recordName != nil else { throw error }
      self = WireRecord(recordName: record.recordName)
      defect = error.description
    }
  }

  private init(strictly json: inout JSONReader, isRequest: Bool) throws(JSONError) {
    self.init(recordName: nil)
    let begin = json.mark
    var isRefused = false
    try json.beginObject()
    while let place = try json.nextKey(in: Key.names) {
      let name = json.keyPlace
      guard let key = Key(rawValue: place) else {
        keep(name, try json.skipValue().range, json)
        continue
      }
      let value = json.mark
      do throws(JSONError) {
        switch key {
        case .recordName: recordName = try json.optional()
        case .recordType:
          recordType = try json.optional()
          if !isRequest { recordType = recordType.map(WireName.model) }
        case .recordChangeTag: recordChangeTag = try json.optional()
        case .fields: try readFields(&json, from: isRequest ? .client : .cloud)
        case .parent: parent = try json.skipNull() ? nil : try Self.parentName(&json)
        case .created: created = try json.skipNull() ? nil : try Self.touch(&json)
        case .modified: modified = try json.skipNull() ? nil : try Self.touch(&json)
        case .deleted: deleted = try json.optional()
        case .zoneID: zoneID = try json.optional()
        case .serverErrorCode, .extensionErrorCode: if try json.skipValue().kind != .null { isRefused = true }
        case .desiredKeys where isRequest: desiredKeys = try json.optional()
        case .reason, .retryAfter, .uuid, .redirectURL, .pluginFields, .desiredKeys: try json.skipValue()
        }
      } catch {
        guard !isRequest, error.kind == .value, key.isDispensable else { throw error.inside("\(key)") }
        json.move(to: value)
        keep(name, try json.skipValue().range, json)
      }
    }
    if !unknown.isEmpty { unknown.append(UInt8(ascii: "}")) }
    if isRefused { self = WireRecord(recordName: recordName, error: try WireError(again: begin, in: &json)) }
  }

  /// Keeps a key with its value, as both lie in the text.
  private mutating func keep(_ key: Range<Int>, _ value: Range<Int>, _ json: borrowing JSONReader) {
    unknown.append(unknown.isEmpty ? UInt8(ascii: "{") : UInt8(ascii: ","))
    unknown += json.bytes[key]
    unknown.append(UInt8(ascii: ":"))
    unknown += json.bytes[value]
  }

  private mutating func readFields(
    _ json: inout JSONReader, from sender: WireField.Sender
  ) throws(JSONError) {
    guard try !json.skipNull() else { return }
    func name(_ text: String) -> String { sender == .client ? text : WireName.model(text) }
    let read = try json.fields(named: name) { json throws(JSONError) in try WireField.read(&json, from: sender) }
    fields = read.values
    nulls = read.nulls
  }

  private static func parentName(_ json: inout JSONReader) throws(JSONError) -> String {
    enum Key: Int, WireKey {
      case recordName
      static let names = JSONKeys(Key.self)
    }
    var name: String?
    try json.object(Key.self) { _, json throws(JSONError) in name = try json.string() }
    guard let name else { throw json.missing("recordName") }
    return name
  }

  private static func touch(_ json: inout JSONReader) throws(JSONError) -> ServerTimestamp {
    enum Key: Int, WireKey {
      case timestamp, userRecordName, deviceID
      static let names = JSONKeys(Key.self)
    }
    var milliseconds: Int64?
    var user: String?
    var device: String?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .timestamp: milliseconds = try json.milliseconds(of: try json.skipValue(), from: .cloud)
      case .userRecordName: user = try json.optional()
      case .deviceID: device = try json.optional()
      }
    }
    guard let milliseconds else { throw json.missing("timestamp") }
    return ServerTimestamp(milliseconds: milliseconds, user: user ?? "", device: device ?? "")
  }

  /// The bytes of the value at `begin`, with the name or the refusal that can be found in it although a part cannot be
  /// read. The reader then stands behind the value.
  private init(unreadable json: inout JSONReader, from begin: JSONReader.Mark) throws(JSONError) {
    json.move(to: begin)
    let range = try json.skipStructure()
    let end = json.mark
    json.move(to: begin)
    defer { json.move(to: end) }
    self.init(recordName: nil)
    if range.count <= Self.rawBytesMax { raw = Array(json.bytes[range]) }
    guard json.bytes[range.lowerBound] == UInt8(ascii: "{") else { return }
    var code: String?
    try json.beginObject()
    while let key = try json.skipKey() {
      let value = json.mark
      do throws(JSONError) {
        switch String(decoding: json.bytes[key], as: UTF8.self) {
        case "\"recordName\"":
          let text = try json.string()
          recordName = recordName ?? text
        case "\"serverErrorCode\"", "\"extensionErrorCode\"":
          let text = try json.string()
          code = code ?? text
        default: _ = try json.skipStructure()
        }
      } catch {
        // The structure was found to be good.
        json.move(to: value)
        _ = try json.skipStructure()
      }
    }
    error = code.map { WireError(CloudError.Code(rawValue: $0)) }
  }

  // MARK: Writing

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    if let error {
      error.writeMembers(to: &json, recordName: recordName)
    } else {
      writeMembers(to: &json)
    }
    json.endObject()
  }

  private func writeMembers(to json: inout JSONWriter) {
    Self.write("created", created, to: &json)
    json.member("deleted", deleted)
    if let fields {
      json.key("fields")
      WireField.write(fields, nulls: nulls, to: &json)
    }
    Self.write("modified", modified, to: &json)
    if let parent {
      json.key("parent")
      json.beginObject()
      json.member("recordName", parent)
      json.endObject()
    }
    json.member("recordChangeTag", recordChangeTag)
    json.member("recordName", recordName)
    json.member("recordType", recordType.map(WireName.wire))
    json.member("zoneID", zoneID)
  }

  private static func write(_ key: String, _ touch: ServerTimestamp?, to json: inout JSONWriter) {
    guard let touch else { return }
    json.key(key)
    json.beginObject()
    json.member("deviceID", touch.device)
    json.key("timestamp")
    json.int64(touch.milliseconds)
    json.member("userRecordName", touch.user)
    json.endObject()
  }

  /// The undeleted record that this shows.
  package func serverRecord(name: String, in zone: ZoneID) -> ServerRecord {
    var values = fields ?? [:]
    for (field, value) in fields ?? [:] where value.namesZone { values[field] = value.relative(to: zone) }
    return ServerRecord(
      name: name, type: recordType ?? "", fields: values, parent: parent,
      system: SystemFields(changeTag: recordChangeTag, created: created, modified: modified, unknown: unknown))
  }
}
