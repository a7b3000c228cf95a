// A record in JSON: in a request, in a reply, as a tombstone, or as the refusal of one record.
//
// A record that cannot be read must not fail its page: a bad field becomes the `defect` of that record. Keys that this
// version does not know are kept as canonical JSON.

internal import Foundation
package import Strandline

/// A zone's ID in JSON.
package struct WireZoneID: Codable, Hashable, Sendable {
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

  package var name: String { zoneName ?? Names.defaultZone }

  /// The zone's ID in the model: in the private and the public database there are no other owners.
  package func zone(in scope: DatabaseScope) -> ZoneID {
    ZoneID(name, owner: scope == .shared ? ownerRecordName ?? "" : "", scope: scope)
  }
}

/// A refusal in JSON, of a request or of one item.
package struct WireError: Codable, Hashable, Sendable {
  package var serverErrorCode: String
  package var reason: String?
  package var retryAfter: Double?
  package var uuid: String?
  package var redirectURL: String?

  package init(
    _ code: CloudError.Code, _ reason: String? = nil, retryAfter: Double? = nil, uuid: String? = nil,
    redirectURL: String? = nil
  ) {
    serverErrorCode = code.rawValue
    self.reason = reason
    self.retryAfter = retryAfter
    self.uuid = uuid
    self.redirectURL = redirectURL
  }

  enum Keys: String, CodingKey {
    case serverErrorCode, extensionErrorCode, reason, retryAfter, uuid, redirectURL
  }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    // CloudKit JS treats either key as the mark of an error.
    serverErrorCode =
      try container.decodeIfPresent(String.self, forKey: .serverErrorCode)
      ?? container.decode(String.self, forKey: .extensionErrorCode)
    reason = try WireError.lenient(container, .reason)
    uuid = try WireError.lenient(container, .uuid)
    redirectURL = try WireError.lenient(container, .redirectURL)
    retryAfter = try WireError.seconds(container)
  }

  /// The text under a key; nil if it is of another type, so that the code of the refusal is read all the same.
  private static func lenient(_ container: KeyedDecodingContainer<Keys>, _ key: Keys) throws -> String? {
    do { return try container.decodeIfPresent(String.self, forKey: key) } catch DecodingError.typeMismatch {
      return nil
    }
  }

  /// A number of seconds, or a string of one; nil for anything else, and for a number beyond a Double.
  private static func seconds(_ container: KeyedDecodingContainer<Keys>) throws -> Double? {
    do {
      return try container.decodeIfPresent(Double.self, forKey: .retryAfter)
    } catch {
      // A type mismatch, or a number beyond a Double, for which Foundation throws an error of its own.
      return try lenient(container, .retryAfter).flatMap(Double.init)
    }
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(serverErrorCode, forKey: .serverErrorCode)
    try container.encodeIfPresent(reason, forKey: .reason)
    try container.encodeIfPresent(retryAfter, forKey: .retryAfter)
    try container.encodeIfPresent(uuid, forKey: .uuid)
    try container.encodeIfPresent(redirectURL, forKey: .redirectURL)
  }
}

/// A record, a tombstone or the refusal of one record.
package struct WireRecord: Codable, Sendable {
  package var recordName: String?
  package var recordType: String?
  package var recordChangeTag: String?
  /// Nil: the key was absent. A nil value is an explicit null.
  package var fields: [String: FieldValue?]?
  /// What a part of this record has that cannot be read; nil if all of it can.
  package var defect: String?
  package var parent: String?
  package var created: Touch?
  package var modified: Touch?
  package var deleted: Bool?
  package var zoneID: WireZoneID?
  package var error: WireError?
  /// Keys that this version does not know, as canonical JSON of one object; empty if there are none.
  package var unknown: [UInt8] = []

  package init(recordName: String?) { self.recordName = recordName }

  package init(recordName: String?, error: WireError) {
    self.recordName = recordName
    self.error = error
  }

  /// The keys that this version knows. `pluginFields` and `desiredKeys` hold nothing that it needs.
  private static let known: Set<String> = [
    "recordName", "recordType", "recordChangeTag", "fields", "parent", "created", "modified", "deleted", "zoneID",
    "serverErrorCode", "extensionErrorCode", "reason", "retryAfter", "uuid", "redirectURL", "pluginFields",
    "desiredKeys",
  ]

  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: AnyKey.self)
    recordName = try container.decodeIfPresent(String.self, forKey: AnyKey("recordName"))
    if container.contains(AnyKey("serverErrorCode")) || container.contains(AnyKey("extensionErrorCode")) {
      error = try WireError(from: decoder)
      return
    }
    do {
      recordType = try container.decodeIfPresent(String.self, forKey: AnyKey("recordType"))
      recordChangeTag = try container.decodeIfPresent(String.self, forKey: AnyKey("recordChangeTag"))
      deleted = try container.decodeIfPresent(Bool.self, forKey: AnyKey("deleted"))
      zoneID = try container.decodeIfPresent(WireZoneID.self, forKey: AnyKey("zoneID"))
      parent = try container.decodeIfPresent(WireParent.self, forKey: AnyKey("parent"))?.recordName
      created = try container.decodeIfPresent(WireTouch.self, forKey: AnyKey("created"))?.touch
      modified = try container.decodeIfPresent(WireTouch.self, forKey: AnyKey("modified"))?.touch
      var rest: [String: JSONValue] = [:]
      for key in container.allKeys where !WireRecord.known.contains(key.stringValue) {
        rest[key.stringValue] = try container.decode(JSONValue.self, forKey: key)
      }
      if !rest.isEmpty { unknown = JSONValue.object(rest).canonicalBytes }
      let fieldsKey = AnyKey("fields")
      if container.contains(fieldsKey), try !container.decodeNil(forKey: fieldsKey) {
        let nested = try container.nestedContainer(keyedBy: AnyKey.self, forKey: fieldsKey)
        var decoded: [String: FieldValue?] = [:]
        for key in nested.allKeys {
          decoded.updateValue(try nested.decode(WireField.self, forKey: key).value, forKey: key.stringValue)
        }
        fields = decoded
      }
    } catch let error as DecodingError {
      defect = error.words
    } catch {
      // Foundation's own error for a number that does not fit its type; it has no path.
      defect = "a number out of range"
    }
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: AnyKey.self)
    try container.encodeIfPresent(recordName, forKey: AnyKey("recordName"))
    if let error {
      try error.encode(to: encoder)
      return
    }
    try container.encodeIfPresent(recordType, forKey: AnyKey("recordType"))
    try container.encodeIfPresent(recordChangeTag, forKey: AnyKey("recordChangeTag"))
    try container.encodeIfPresent(parent.map { WireParent(recordName: $0) }, forKey: AnyKey("parent"))
    try container.encodeIfPresent(created.map(WireTouch.init), forKey: AnyKey("created"))
    try container.encodeIfPresent(modified.map(WireTouch.init), forKey: AnyKey("modified"))
    try container.encodeIfPresent(deleted, forKey: AnyKey("deleted"))
    try container.encodeIfPresent(zoneID, forKey: AnyKey("zoneID"))
    if let fields {
      var nested = container.nestedContainer(keyedBy: AnyKey.self, forKey: AnyKey("fields"))
      for (name, value) in fields { try nested.encode(WireField(value), forKey: AnyKey(name)) }
    }
  }

  /// The undeleted record that this shows.
  package func serverRecord(name: String, in zone: ZoneID) -> ServerRecord {
    var values: [String: FieldValue] = [:]
    for (field, value) in fields ?? [:] {
      if let value { values[field] = value.relative(to: zone) }
    }
    return ServerRecord(
      name: name, type: recordType ?? "", fields: values, parent: parent,
      system: SystemFields(changeTag: recordChangeTag, created: created, modified: modified, unknown: unknown))
  }
}

private struct WireParent: Codable { var recordName: String }

private struct WireTouch: Codable {
  var touch: Touch
  init(_ touch: Touch) { self.touch = touch }

  enum Keys: String, CodingKey { case timestamp, userRecordName, deviceID }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    touch = Touch(
      milliseconds: try container.decode(WireMilliseconds.self, forKey: .timestamp).value,
      user: try container.decodeIfPresent(String.self, forKey: .userRecordName) ?? "",
      device: try container.decodeIfPresent(String.self, forKey: .deviceID) ?? "")
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(touch.milliseconds, forKey: .timestamp)
    try container.encode(touch.user, forKey: .userRecordName)
    try container.encode(touch.device, forKey: .deviceID)
  }
}

extension DecodingError {
  /// What is wrong and where, in one line, without the data.
  package var words: String {
    func place(_ path: [any CodingKey]) -> String {
      let place = path.map { key in key.intValue.map { "[\($0)]" } ?? "." + key.stringValue }.joined()
      return place.isEmpty ? "" : " at \(place.prefix(120))"
    }
    switch self {
    case .typeMismatch(let type, let context): return "a value that is not a \(type)\(place(context.codingPath))"
    case .valueNotFound(let type, let context): return "null instead of a \(type)\(place(context.codingPath))"
    case .keyNotFound(let key, let context): return "no key '\(key.stringValue)'\(place(context.codingPath))"
    case .dataCorrupted(let context):
      let what = context.codingPath.isEmpty ? "JSON that cannot be read" : context.debugDescription.prefix(120) + ""
      return "\(what)\(place(context.codingPath))"
    @unknown default: return "JSON of another shape"
    }
  }
}
