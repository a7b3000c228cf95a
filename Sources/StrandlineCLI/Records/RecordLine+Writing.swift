// Encodes a record as one line of JSON, as `export` and `get --json` print it. Each value has one form and keys are
// sorted, so that the exports of equal stores are equal byte for byte.

import Foundation
import Strandline
import StrandlineCloudKit

extension Record {
  /// The line without its line end. `zone` says whether the line names the record's zone.
  func line(zone isNamed: Bool) -> [UInt8] { lineObject(zone: isNamed).canonicalBytes }

  /// The line as a value.
  func lineObject(zone isNamed: Bool) -> JSONValue {
    var members: [String: JSONValue] = [
      "recordType": .string(type), "recordName": .string(id.name),
      "fields": .object(fields.mapValues(\.lineJSON)),
    ]
    if isNamed { members["zoneName"] = .string(id.zone.name) }
    if let parent { members["parent"] = .string(parent) }
    return .object(members)
  }
}

extension FieldValue {
  /// Plain JSON for strings, integers and non-empty lists of them; for all other values an object with the type.
  var lineJSON: JSONValue {
    switch self {
    case .string(let text): .string(text)
    case .int64(let number): .integer(number)
    case .list(.strings, let items) where !items.isEmpty, .list(.int64s, let items) where !items.isEmpty:
      .array(items.map(\.bareJSON))
    case .encrypted(let inner):
      .object(["isEncrypted": .bool(true), "type": .string(WireField.typeName(inner)), "value": inner.bareJSON])
    default: .object(["type": .string(WireField.typeName(self)), "value": bareJSON])
    }
  }

  /// The value in an object that has the type.
  private var bareJSON: JSONValue {
    switch self {
    case .string(let text): .string(text)
    case .int64(let number): .integer(number)
    case .double(let number): .number(number)
    case .date(let milliseconds): .integer(milliseconds)
    case .bytes(let bytes): .string(Data(bytes).base64EncodedString())
    case .reference(let reference): reference.json
    case .location(let location): location.json
    case .asset(let asset): asset.json
    case .list(_, let items): .array(items.map(\.bareJSON))
    case .encrypted(let inner): inner.bareJSON
    case .opaque(let value): value.parsed
    }
  }
}

extension OpaqueValue {
  /// The value; null if the log holds text that is no JSON, which no version of this package writes.
  fileprivate var parsed: JSONValue {
    do { return try WireJSON.decode(JSONValue.self, json) } catch { return .null }
  }
}

extension Reference {
  fileprivate var json: JSONValue {
    let word =
      switch action {
      case .none: "NONE"
      case .deleteSelf: "DELETE_SELF"
      case .validate: "VALIDATE"
      }
    var members: [String: JSONValue] = ["recordName": .string(name), "action": .string(word)]
    if let zone {
      var zoneMembers: [String: JSONValue] = ["zoneName": .string(zone.name)]
      if !zone.owner.isEmpty { zoneMembers["ownerRecordName"] = .string(zone.owner) }
      members["zoneID"] = .object(zoneMembers)
    }
    return .object(members)
  }
}

extension Location {
  fileprivate var json: JSONValue {
    var members: [String: JSONValue] = ["latitude": .number(latitude), "longitude": .number(longitude)]
    let optional = [
      "horizontalAccuracy": horizontalAccuracy, "verticalAccuracy": verticalAccuracy, "altitude": altitude,
      "speed": speed, "course": course,
    ]
    for case (let name, let number?) in optional { members[name] = .number(number) }
    if let timestamp { members["timestamp"] = .integer(timestamp) }
    return .object(members)
  }
}

extension Asset {
  fileprivate var json: JSONValue {
    var members: [String: JSONValue] = ["size": .integer(size)]
    let optional = [
      "fileChecksum": server?.fileChecksum, "referenceChecksum": server?.referenceChecksum,
      "wrappingKey": server?.wrappingKey, "receipt": server?.receipt, "downloadURL": server?.downloadURL,
    ]
    for case (let name, let text?) in optional { members[name] = .string(text) }
    return .object(members)
  }
}
