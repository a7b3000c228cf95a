// The requests and replies of the endpoints that sync needs. The client and the local server share these types, so a
// mistake here would be in both: tests run a client in another language against the server, and recorded replies of the
// live service against the client.

package import StrandlineJSON

/// POST records/modify.
package struct ModifyRequest: WireMessage {
  package struct Operation: WireMessage {
    package var operationType: String
    package var record: WireRecord
    /// For this operation, over those of the request.
    package var desiredKeys: [String]?
    package var numbersAsStrings: Bool?

    package init(operationType: String, record: WireRecord) {
      self.operationType = operationType
      self.record = record
    }

    private enum Key: Int, WireKey {
      case operationType, record, desiredKeys, numbersAsStrings
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      var operationType: String?
      var record: WireRecord?
      var desiredKeys: [String]?
      var numbersAsStrings: Bool?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .operationType: operationType = try json.string()
        case .record: record = try WireRecord(request: &json)
        case .desiredKeys: desiredKeys = try json.optional()
        case .numbersAsStrings: numbersAsStrings = try json.optional()
        }
      }
      guard let operationType else { throw json.missing("operationType") }
      guard let record else { throw json.missing("record") }
      self.init(operationType: operationType, record: record)
      self.desiredKeys = desiredKeys
      self.numbersAsStrings = numbersAsStrings
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("desiredKeys", desiredKeys)
      json.member("numbersAsStrings", numbersAsStrings)
      json.member("operationType", operationType)
      json.member("record", record)
      json.endObject()
    }
  }
  package var zoneID: WireZoneID?
  package var atomic: Bool?
  package var desiredKeys: [String]?
  /// Whether the answer shows an INT64 as text.
  package var numbersAsStrings: Bool?
  package var operations: [Operation]

  package init(zoneID: WireZoneID?, atomic: Bool?, desiredKeys: [String]?, operations: [Operation]) {
    self.zoneID = zoneID
    self.atomic = atomic
    self.desiredKeys = desiredKeys
    self.operations = operations
  }

  private enum Key: Int, WireKey {
    case zoneID, atomic, desiredKeys, numbersAsStrings, operations
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    try self.init(&json) { json throws(JSONError) in try [Operation](&json) }
  }

  /// - Parameter readOperations: reads the list of operations.
  fileprivate init(
    _ json: inout JSONReader, _ readOperations: (inout JSONReader) throws(JSONError) -> [Operation]
  ) throws(JSONError) {
    self.init(zoneID: nil, atomic: nil, desiredKeys: nil, operations: [])
    var operations: [Operation]?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneID: zoneID = try json.optional()
      case .atomic: atomic = try json.optional()
      case .desiredKeys: desiredKeys = try json.optional()
      case .numbersAsStrings: numbersAsStrings = try json.optional()
      case .operations: operations = try readOperations(&json)
      }
    }
    guard let operations else { throw json.missing("operations") }
    self.operations = operations
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("atomic", atomic)
    json.member("desiredKeys", desiredKeys)
    json.member("numbersAsStrings", numbersAsStrings)
    json.member("operations", operations)
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// Reads a `ModifyRequest` operation by operation: the values of a record take many times the bytes of their text, and a
/// request may have two hundred records.
package struct ModifyReader {
  /// All but the operations, which may stand before the rest.
  package let request: ModifyRequest
  private var json: JSONReader
  private let operations: JSONToken
  private var count = 0
  private var hasBegun = false

  /// Reads the request, and passes over its operations.
  package init(_ bytes: [UInt8], bytesMax: Int) throws(JSONError) {
    json = try JSONReader(bytes, limits: JSONLimits(bytesMax: bytesMax, depthMax: WireJSON.depthMax))
    var operations: JSONToken?
    request = try ModifyRequest(&json) { json throws(JSONError) in
      let begin = json.mark
      do throws(JSONError) { operations = try json.skipValue() } catch {
        // The same defect, with the operation and the key that have it.
        json.move(to: begin)
        try json.beginArray()
        var count = 0
        while try Self.next(&json, &count) != nil {}
        throw error
      }
      return []
    }
    try json.finish()
    guard let operations else { throw json.missing("operations") }
    self.operations = operations
  }

  /// The next operation; nil after the last.
  package mutating func next() throws(JSONError) -> ModifyRequest.Operation? {
    do throws(JSONError) {
      if !hasBegun {
        hasBegun = true
        _ = json.goBack(to: operations)
        try json.beginArray()
      }
      return try Self.next(&json, &count)
    } catch { throw error.inside("operations") }
  }

  private static func next(
    _ json: inout JSONReader, _ count: inout Int
  ) throws(JSONError) -> ModifyRequest.Operation? {
    guard try json.nextItem() else { return nil }
    guard count < WireJSON.itemsMax else { throw json.tooManyItems }
    do throws(JSONError) {
      let operation = try ModifyRequest.Operation(&json)
      count += 1
      return operation
    } catch { throw error.inside(item: count) }
  }
}

/// POST records/lookup.
package struct RecordsLookupRequest: WireMessage {
  package struct Item: WireMessage {
    package var recordName: String
    package var desiredKeys: [String]?

    package init(recordName: String, desiredKeys: [String]? = nil) {
      self.recordName = recordName
      self.desiredKeys = desiredKeys
    }

    private enum Key: Int, WireKey {
      case recordName, desiredKeys
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      var recordName: String?
      var desiredKeys: [String]?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .recordName: recordName = try json.string()
        case .desiredKeys: desiredKeys = try json.optional()
        }
      }
      guard let recordName else { throw json.missing("recordName") }
      self.init(recordName: recordName, desiredKeys: desiredKeys)
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("desiredKeys", desiredKeys)
      json.member("recordName", recordName)
      json.endObject()
    }
  }
  package var zoneID: WireZoneID?
  package var records: [Item]
  package var desiredKeys: [String]?
  package var numbersAsStrings: Bool?

  package init(zoneID: WireZoneID?, records: [Item], desiredKeys: [String]? = nil) {
    self.zoneID = zoneID
    self.records = records
    self.desiredKeys = desiredKeys
  }

  private enum Key: Int, WireKey {
    case zoneID, records, desiredKeys, numbersAsStrings
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(zoneID: nil, records: [])
    var records: [Item]?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneID: zoneID = try json.optional()
      // The live service takes a single object too.
      case .records: records = try json.kind() == .object ? [try Item(&json)] : try [Item](&json)
      case .desiredKeys: desiredKeys = try json.optional()
      case .numbersAsStrings: numbersAsStrings = try json.optional()
      }
    }
    guard let records else { throw json.missing("records") }
    self.records = records
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("desiredKeys", desiredKeys)
    json.member("numbersAsStrings", numbersAsStrings)
    json.member("records", records)
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// What records/modify and records/lookup answer.
package struct RecordsReply: WireMessage {
  package var records: [WireRecord]
  /// Only if the request asked for it (`getCurrentSyncToken`).
  package var syncToken: String?
  package init(records: [WireRecord]) { self.records = records }

  private enum Key: Int, WireKey {
    case records, syncToken
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var records: [WireRecord]?
    var syncToken: String?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .records: records = try [WireRecord](&json)
      case .syncToken: syncToken = try json.optional()
      }
    }
    guard let records else { throw json.missing("records") }
    self.init(records: records)
    self.syncToken = syncToken
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("records", records)
    json.member("syncToken", syncToken)
    json.endObject()
  }
}

/// POST changes/zone.
package struct ZoneChangesRequest: WireMessage {
  package struct Zone: WireMessage {
    package var zoneID: WireZoneID
    package var syncToken: String?
    package var resultsLimit: Int?
    package var desiredKeys: [String]?
    package var desiredRecordTypes: [String]?
    package var reverse: Bool?
    package var numbersAsStrings: Bool?

    package init(zoneID: WireZoneID, syncToken: String?, resultsLimit: Int?, desiredKeys: [String]? = nil) {
      self.zoneID = zoneID
      self.syncToken = syncToken
      self.resultsLimit = resultsLimit
      self.desiredKeys = desiredKeys
    }

    private enum Key: Int, WireKey {
      case zoneID, syncToken, resultsLimit, desiredKeys, desiredRecordTypes, reverse
      // Apple's page of this endpoint spells it without the first "s", its JavaScript with it.
      case numbersAsStrings, numberAsStrings
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      self.init(zoneID: WireZoneID(zoneName: nil), syncToken: nil, resultsLimit: nil)
      var zoneID: WireZoneID?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .zoneID: zoneID = try WireZoneID(&json)
        case .syncToken: syncToken = try json.optional()
        case .resultsLimit: resultsLimit = try json.optional()
        case .desiredKeys: desiredKeys = try json.optional()
        case .desiredRecordTypes: desiredRecordTypes = try json.optional()
        case .reverse: reverse = try json.optional()
        case .numbersAsStrings, .numberAsStrings: numbersAsStrings = try json.optional()
        }
      }
      guard let zoneID else { throw json.missing("zoneID") }
      self.zoneID = zoneID
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("desiredKeys", desiredKeys)
      json.member("desiredRecordTypes", desiredRecordTypes)
      json.member("numbersAsStrings", numbersAsStrings)
      json.member("resultsLimit", resultsLimit)
      json.member("reverse", reverse)
      json.member("syncToken", syncToken)
      json.member("zoneID", zoneID)
      json.endObject()
    }
  }
  package var zones: [Zone]
  package var resultsLimit: Int?
  package var desiredKeys: [String]?
  package var desiredRecordTypes: [String]?
  package var numbersAsStrings: Bool?
  package var reverse: Bool?

  package init(zones: [Zone], resultsLimit: Int? = nil) {
    self.zones = zones
    self.resultsLimit = resultsLimit
  }

  private enum Key: Int, WireKey {
    case zones, resultsLimit, desiredKeys, desiredRecordTypes, numbersAsStrings, numberAsStrings, reverse
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(zones: [])
    var zones: [Zone]?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zones: zones = try [Zone](&json)
      case .resultsLimit: resultsLimit = try json.optional()
      case .desiredKeys: desiredKeys = try json.optional()
      case .desiredRecordTypes: desiredRecordTypes = try json.optional()
      case .numbersAsStrings, .numberAsStrings: numbersAsStrings = try json.optional()
      case .reverse: reverse = try json.optional()
      }
    }
    guard let zones else { throw json.missing("zones") }
    self.zones = zones
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("desiredKeys", desiredKeys)
    json.member("desiredRecordTypes", desiredRecordTypes)
    json.member("numbersAsStrings", numbersAsStrings)
    json.member("resultsLimit", resultsLimit)
    json.member("reverse", reverse)
    json.member("zones", zones)
    json.endObject()
  }
}

/// What changes/zone answers.
package struct ZoneChangesReply: WireMessage {
  package struct Zone: WireMessage {
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

    private enum Key: Int, WireKey {
      case zoneID, syncToken, moreComing, records, serverErrorCode, extensionErrorCode
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      self.init(zoneID: nil)
      let begin = json.mark
      var isRefused = false
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .zoneID: zoneID = try json.optional()
        case .syncToken: syncToken = try json.optional()
        case .moreComing: moreComing = try json.optional()
        case .records: records = try json.optional()
        case .serverErrorCode, .extensionErrorCode: if try json.skipValue().kind != .null { isRefused = true }
        }
      }
      if isRefused { self = Self(zoneID: zoneID, error: try WireError(again: begin, in: &json)) }
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      if let error {
        error.writeMembers(to: &json)
      } else {
        json.member("moreComing", moreComing)
        json.member("records", records)
        json.member("syncToken", syncToken)
      }
      json.member("zoneID", zoneID)
      json.endObject()
    }
  }
  package var zones: [Zone]
  package init(zones: [Zone]) { self.zones = zones }

  private enum Key: Int, WireKey {
    case zones
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var zones: [Zone]?
    try json.object(Key.self) { _, json throws(JSONError) in zones = try [Zone](&json) }
    guard let zones else { throw json.missing("zones") }
    self.init(zones: zones)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("zones", zones)
    json.endObject()
  }
}

/// POST changes/database.
package struct DatabaseChangesRequest: WireMessage {
  package var syncToken: String?
  package var resultsLimit: Int?

  package init(syncToken: String?, resultsLimit: Int?) {
    self.syncToken = syncToken
    self.resultsLimit = resultsLimit
  }

  private enum Key: Int, WireKey {
    case syncToken, resultsLimit
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(syncToken: nil, resultsLimit: nil)
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .syncToken: syncToken = try json.optional()
      case .resultsLimit: resultsLimit = try json.optional()
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("resultsLimit", resultsLimit)
    json.member("syncToken", syncToken)
    json.endObject()
  }
}

/// What changes/database answers.
package struct DatabaseChangesReply: WireMessage {
  package var zones: [WireZone]
  package var syncToken: String
  package var moreComing: Bool?

  package init(zones: [WireZone], syncToken: String, moreComing: Bool?) {
    self.zones = zones
    self.syncToken = syncToken
    self.moreComing = moreComing
  }

  private enum Key: Int, WireKey {
    case zones, syncToken, moreComing
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var zones: [WireZone]?
    var syncToken: String?
    var moreComing: Bool?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zones: zones = try [WireZone](&json)
      case .syncToken: syncToken = try json.string()
      case .moreComing: moreComing = try json.optional()
      }
    }
    guard let zones else { throw json.missing("zones") }
    guard let syncToken else { throw json.missing("syncToken") }
    self.init(zones: zones, syncToken: syncToken, moreComing: moreComing)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("moreComing", moreComing)
    json.member("syncToken", syncToken)
    json.member("zones", zones)
    json.endObject()
  }
}

/// What users/caller and users/current answer: a list of one, or bare.
package struct UserReply: WireMessage {
  package struct User: WireMessage {
    package var userRecordName: String
    package init(userRecordName: String) { self.userRecordName = userRecordName }

    private enum Key: Int, WireKey {
      case userRecordName
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      var name: String?
      try json.object(Key.self) { _, json throws(JSONError) in name = try json.string() }
      guard let name else { throw json.missing("userRecordName") }
      self.init(userRecordName: name)
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("userRecordName", userRecordName)
      json.endObject()
    }
  }
  package var users: [User]?
  package var userRecordName: String?

  package init(users: [User]?, userRecordName: String? = nil) {
    self.users = users
    self.userRecordName = userRecordName
  }

  private enum Key: Int, WireKey {
    case users, userRecordName
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(users: nil)
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .users: users = try json.optional()
      case .userRecordName: userRecordName = try json.optional()
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("userRecordName", userRecordName)
    json.member("users", users)
    json.endObject()
  }
}
