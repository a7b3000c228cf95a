// The requests and replies of the endpoints that sync needs, as JSON. The client and the local server share these types,
// so a mistake here would be in both: tests run a client in another language against the server, and recorded replies of
// the live service against the client.

internal import Foundation

/// POST records/modify.
package struct ModifyRequest: Codable, Sendable {
  package struct Operation: Codable, Sendable {
    package var operationType: String
    package var record: WireRecord
    package init(operationType: String, record: WireRecord) {
      self.operationType = operationType
      self.record = record
    }
  }
  package var zoneID: WireZoneID?
  package var atomic: Bool?
  package var desiredKeys: [String]?
  package var operations: [Operation]
  package init(zoneID: WireZoneID?, atomic: Bool?, desiredKeys: [String]?, operations: [Operation]) {
    self.zoneID = zoneID
    self.atomic = atomic
    self.desiredKeys = desiredKeys
    self.operations = operations
  }
}

/// POST records/lookup.
package struct LookupRequest: Codable, Sendable {
  package struct Item: Codable, Sendable {
    package var recordName: String
    package var desiredKeys: [String]?
    package init(recordName: String, desiredKeys: [String]? = nil) {
      self.recordName = recordName
      self.desiredKeys = desiredKeys
    }
  }
  package var zoneID: WireZoneID?
  package var records: [Item]
  package var desiredKeys: [String]?
  package init(zoneID: WireZoneID?, records: [Item], desiredKeys: [String]? = nil) {
    self.zoneID = zoneID
    self.records = records
    self.desiredKeys = desiredKeys
  }

  enum CodingKeys: String, CodingKey { case zoneID, records, desiredKeys }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    zoneID = try container.decodeIfPresent(WireZoneID.self, forKey: .zoneID)
    desiredKeys = try container.decodeIfPresent([String].self, forKey: .desiredKeys)
    do {
      records = try container.decode([Item].self, forKey: .records)
    } catch DecodingError.typeMismatch {
      // The live service takes a single object too.
      records = [try container.decode(Item.self, forKey: .records)]
    }
  }
}

/// What records/modify and records/lookup answer.
package struct RecordsReply: Codable, Sendable {
  package var records: [WireRecord]
  package init(records: [WireRecord]) { self.records = records }
}

/// POST changes/zone.
package struct ZoneChangesRequest: Codable, Sendable {
  package struct Zone: Codable, Sendable {
    package var zoneID: WireZoneID
    package var syncToken: String?
    package var resultsLimit: Int?
    package var desiredKeys: [String]?
    package var desiredRecordTypes: [String]?
    package var reverse: Bool?
    package init(zoneID: WireZoneID, syncToken: String?, resultsLimit: Int?, desiredKeys: [String]? = nil) {
      self.zoneID = zoneID
      self.syncToken = syncToken
      self.resultsLimit = resultsLimit
      self.desiredKeys = desiredKeys
    }
  }
  package var zones: [Zone]
  package var resultsLimit: Int?
  package var desiredKeys: [String]?
  package var desiredRecordTypes: [String]?
  package init(zones: [Zone], resultsLimit: Int? = nil) {
    self.zones = zones
    self.resultsLimit = resultsLimit
  }
}

/// What changes/zone answers.
package struct ZoneChangesReply: Codable, Sendable {
  package struct Zone: Codable, Sendable {
    package var zoneID: WireZoneID?
    package var syncToken: String?
    package var moreComing: Bool?
    package var records: [WireRecord]?
    package var error: WireError?

    package init(
      zoneID: WireZoneID?, syncToken: String? = nil, moreComing: Bool? = nil, records: [WireRecord]? = nil,
      error: WireError? = nil
    ) {
      self.zoneID = zoneID
      self.syncToken = syncToken
      self.moreComing = moreComing
      self.records = records
      self.error = error
    }

    enum Keys: String, CodingKey {
      case zoneID, syncToken, moreComing, records, serverErrorCode, extensionErrorCode
    }

    package init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Keys.self)
      zoneID = try container.decodeIfPresent(WireZoneID.self, forKey: .zoneID)
      if container.contains(.serverErrorCode) || container.contains(.extensionErrorCode) {
        error = try WireError(from: decoder)
        return
      }
      syncToken = try container.decodeIfPresent(String.self, forKey: .syncToken)
      moreComing = try container.decodeIfPresent(Bool.self, forKey: .moreComing)
      records = try container.decodeIfPresent([WireRecord].self, forKey: .records)
    }

    package func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: Keys.self)
      try container.encodeIfPresent(zoneID, forKey: .zoneID)
      try error?.encode(to: encoder)
      try container.encodeIfPresent(syncToken, forKey: .syncToken)
      try container.encodeIfPresent(moreComing, forKey: .moreComing)
      try container.encodeIfPresent(records, forKey: .records)
    }
  }
  package var zones: [Zone]
  package init(zones: [Zone]) { self.zones = zones }
}

/// POST changes/database.
package struct DatabaseChangesRequest: Codable, Sendable {
  package var syncToken: String?
  package var resultsLimit: Int?
  package init(syncToken: String?, resultsLimit: Int?) {
    self.syncToken = syncToken
    self.resultsLimit = resultsLimit
  }
}

/// A zone as zones/list, zones/lookup, zones/modify and changes/database show it.
package struct WireZone: Codable, Sendable {
  package var zoneID: WireZoneID?
  package var syncToken: String?
  package var atomic: Bool?
  package var deleted: Bool?
  package var error: WireError?

  package init(
    zoneID: WireZoneID?, syncToken: String? = nil, atomic: Bool? = nil, deleted: Bool? = nil, error: WireError? = nil
  ) {
    self.zoneID = zoneID
    self.syncToken = syncToken
    self.atomic = atomic
    self.deleted = deleted
    self.error = error
  }

  enum Keys: String, CodingKey {
    case zoneID, syncToken, atomic, deleted, serverErrorCode, extensionErrorCode
  }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    zoneID = try container.decodeIfPresent(WireZoneID.self, forKey: .zoneID)
    if container.contains(.serverErrorCode) || container.contains(.extensionErrorCode) {
      error = try WireError(from: decoder)
      return
    }
    syncToken = try container.decodeIfPresent(String.self, forKey: .syncToken)
    atomic = try container.decodeIfPresent(Bool.self, forKey: .atomic)
    deleted = try container.decodeIfPresent(Bool.self, forKey: .deleted)
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encodeIfPresent(zoneID, forKey: .zoneID)
    try error?.encode(to: encoder)
    try container.encodeIfPresent(syncToken, forKey: .syncToken)
    try container.encodeIfPresent(atomic, forKey: .atomic)
    try container.encodeIfPresent(deleted, forKey: .deleted)
  }
}

/// What changes/database answers.
package struct DatabaseChangesReply: Codable, Sendable {
  package var zones: [WireZone]
  package var syncToken: String
  package var moreComing: Bool?
  package init(zones: [WireZone], syncToken: String, moreComing: Bool) {
    self.zones = zones
    self.syncToken = syncToken
    self.moreComing = moreComing
  }
}

/// POST zones/modify.
package struct ZonesModifyRequest: Codable, Sendable {
  package struct Operation: Codable, Sendable {
    package struct Zone: Codable, Sendable {
      package var zoneID: WireZoneID
      package init(zoneID: WireZoneID) { self.zoneID = zoneID }
    }
    package var operationType: String
    package var zone: Zone
    package init(operationType: String, zone: Zone) {
      self.operationType = operationType
      self.zone = zone
    }
  }
  package var operations: [Operation]
  package init(operations: [Operation]) { self.operations = operations }
}

/// POST zones/lookup: bare zone IDs.
package struct ZonesLookupRequest: Codable, Sendable {
  package var zones: [WireZoneID]
}

/// What zones/list, zones/lookup and zones/modify answer.
package struct ZonesReply: Codable, Sendable {
  package var zones: [WireZone]
  package init(zones: [WireZone]) { self.zones = zones }
}

/// What users/caller and users/current answer: a list of one, or bare.
package struct UserReply: Codable, Sendable {
  package struct User: Codable, Sendable {
    package var userRecordName: String
    package init(userRecordName: String) { self.userRecordName = userRecordName }
  }
  package var users: [User]?
  package var userRecordName: String?
  package init(users: [User]?, userRecordName: String? = nil) {
    self.users = users
    self.userRecordName = userRecordName
  }
}

/// Encodes and decodes the messages.
package enum WireJSON {
  package static func encode(_ value: some Encodable) throws -> [UInt8] {
    let encoder = JSONEncoder()
    // Sorted keys, so that equal messages have equal bytes and a simulated run can be repeated.
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return [UInt8](try encoder.encode(value))
  }

  package static func decode<Value: Decodable>(_ type: Value.Type, _ bytes: [UInt8]) throws -> Value {
    try JSONDecoder().decode(type, from: Data(bytes))
  }
}
