// The requests and replies of endpoints that the engine does not use, and other clients do: those that Apple calls
// deprecated, and the users of a container.

package import StrandlineJSON

/// POST records/changes: what changes/zone asks of one zone.
package struct RecordChangesRequest: WireMessage {
  package var zone: ZoneChangesRequest.Zone

  private enum Key: Int, WireKey {
    case zoneID
    static let names = JSONKeys(Key.self)
  }

  /// Without a zone the default one is meant, which has no changes.
  package init(_ json: inout JSONReader) throws(JSONError) {
    let begin = json.mark
    var isNamed = false
    try json.object(Key.self) { _, json throws(JSONError) in isNamed = try json.skipValue().kind != .null }
    guard isNamed else {
      zone = ZoneChangesRequest.Zone(zoneID: WireZoneID(zoneName: nil), syncToken: nil, resultsLimit: nil)
      return
    }
    json.move(to: begin)
    zone = try ZoneChangesRequest.Zone(&json)
  }

  package func write(into json: inout JSONWriter) { zone.write(into: &json) }
}

/// POST zones/changes. The live service names its token `metaSyncToken`, Apple's reference `syncToken`.
package struct ZonesChangesRequest: WireMessage {
  package var metaSyncToken: String?
  package var resultsLimit: Int?

  private enum Key: Int, WireKey {
    case metaSyncToken, syncToken, resultsLimit
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var other: String?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .metaSyncToken: metaSyncToken = try json.optional()
      case .syncToken: other = try json.optional()
      case .resultsLimit: resultsLimit = try json.optional()
      }
    }
    metaSyncToken = metaSyncToken ?? other
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("metaSyncToken", metaSyncToken)
    json.member("resultsLimit", resultsLimit)
    json.endObject()
  }
}

/// POST users/discover and users/lookup/…: who is asked for.
package struct UsersRequest: WireMessage {
  /// A person, by one of three names.
  package struct User: WireMessage {
    package var userRecordName: String?
    package var emailAddress: String?
    package var phoneNumber: String?

    private enum Key: Int, WireKey {
      case userRecordName, emailAddress, phoneNumber
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .userRecordName: userRecordName = try json.optional()
        case .emailAddress: emailAddress = try json.optional()
        case .phoneNumber: phoneNumber = try json.optional()
        }
      }
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("emailAddress", emailAddress)
      json.member("phoneNumber", phoneNumber)
      json.member("userRecordName", userRecordName)
      json.endObject()
    }
  }
  package var users: [User] = []

  private enum Key: Int, WireKey {
    case lookupInfos, users
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .lookupInfos, .users: users += try json.optional() ?? []
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("lookupInfos", users)
    json.endObject()
  }
}
