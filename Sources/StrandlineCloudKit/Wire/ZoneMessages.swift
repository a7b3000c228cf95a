// The requests and replies of the endpoints for zones, and a zone as all of them show it.

package import StrandlineJSON

/// A zone as zones/list, zones/lookup, zones/modify and changes/database show it.
package struct WireZone: WireMessage {
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

  private enum Key: Int, WireKey {
    case zoneID, syncToken, atomic, deleted, serverErrorCode, extensionErrorCode
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
      case .atomic: atomic = try json.optional()
      case .deleted: deleted = try json.optional()
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
      json.member("atomic", atomic)
      json.member("deleted", deleted)
      json.member("syncToken", syncToken)
    }
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// POST zones/modify.
package struct ZonesModifyRequest: WireMessage {
  package struct Operation: WireMessage {
    package struct Zone: WireMessage {
      package var zoneID: WireZoneID
      package init(zoneID: WireZoneID) { self.zoneID = zoneID }

      private enum Key: Int, WireKey {
        case zoneID
        static let names = JSONKeys(Key.self)
      }

      package init(_ json: inout JSONReader) throws(JSONError) {
        var zoneID: WireZoneID?
        try json.object(Key.self) { _, json throws(JSONError) in zoneID = try WireZoneID(&json) }
        guard let zoneID else { throw json.missing("zoneID") }
        self.init(zoneID: zoneID)
      }

      package func write(into json: inout JSONWriter) {
        json.beginObject()
        json.member("zoneID", zoneID)
        json.endObject()
      }
    }
    package var operationType: String
    package var zone: Zone

    package init(operationType: String, zone: Zone) {
      self.operationType = operationType
      self.zone = zone
    }

    private enum Key: Int, WireKey {
      case operationType, zone
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      var operationType: String?
      var zone: Zone?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .operationType: operationType = try json.string()
        case .zone: zone = try Zone(&json)
        }
      }
      guard let operationType else { throw json.missing("operationType") }
      guard let zone else { throw json.missing("zone") }
      self.init(operationType: operationType, zone: zone)
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("operationType", operationType)
      json.member("zone", zone)
      json.endObject()
    }
  }
  package var operations: [Operation]
  package init(operations: [Operation]) { self.operations = operations }

  private enum Key: Int, WireKey {
    case operations
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var operations: [Operation]?
    try json.object(Key.self) { _, json throws(JSONError) in operations = try [Operation](&json) }
    guard let operations else { throw json.missing("operations") }
    self.init(operations: operations)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("operations", operations)
    json.endObject()
  }
}

/// POST zones/lookup: bare zone IDs.
package struct ZonesLookupRequest: WireMessage {
  package var zones: [WireZoneID]

  private enum Key: Int, WireKey {
    case zones
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var zones: [WireZoneID]?
    try json.object(Key.self) { _, json throws(JSONError) in zones = try [WireZoneID](&json) }
    guard let zones else { throw json.missing("zones") }
    self.zones = zones
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("zones", zones)
    json.endObject()
  }
}

/// What zones/list, zones/lookup and zones/modify answer.
package struct ZonesReply: WireMessage {
  package var zones: [WireZone]
  package init(zones: [WireZone]) { self.zones = zones }

  private enum Key: Int, WireKey {
    case zones
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var zones: [WireZone]?
    try json.object(Key.self) { _, json throws(JSONError) in zones = try [WireZone](&json) }
    guard let zones else { throw json.missing("zones") }
    self.init(zones: zones)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("zones", zones)
    json.endObject()
  }
}
