// Subscriptions, tokens for pushes, and a push as the courier hands it over.

package import StrandlineJSON

/// A subscription, or the refusal in its place.
package struct WireSubscription: WireMessage, Hashable {
  package var subscriptionID: String?
  /// "database", "zone" or "query".
  package var subscriptionType: String?
  /// Of a subscription to a zone.
  package var zoneID: WireZoneID?
  package var error: WireError?

  package init(
    subscriptionID: String?, subscriptionType: String? = nil, zoneID: WireZoneID? = nil, error: WireError? = nil
  ) {
    self.subscriptionID = subscriptionID
    self.subscriptionType = subscriptionType
    self.zoneID = zoneID
    self.error = error
  }

  private enum Key: Int, WireKey {
    case subscriptionID, subscriptionType, zoneID, serverErrorCode, extensionErrorCode
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(subscriptionID: nil)
    let begin = json.mark
    var isRefused = false
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .subscriptionID: subscriptionID = try json.optional()
      case .subscriptionType: subscriptionType = try json.optional()
      case .zoneID: zoneID = try json.optional()
      case .serverErrorCode, .extensionErrorCode: if try json.skipValue().kind != .null { isRefused = true }
      }
    }
    if isRefused { error = try WireError(again: begin, in: &json) }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    error?.writeMembers(to: &json)
    json.member("subscriptionID", subscriptionID)
    json.member("subscriptionType", subscriptionType)
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// POST subscriptions/modify.
package struct SubscriptionsModifyRequest: WireMessage {
  package struct Operation: WireMessage {
    /// "create", "update" or "delete".
    package var operationType: String
    package var subscription: WireSubscription

    package init(operationType: String, subscription: WireSubscription) {
      self.operationType = operationType
      self.subscription = subscription
    }

    private enum Key: Int, WireKey {
      case operationType, subscription
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      var operationType: String?
      var subscription: WireSubscription?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .operationType: operationType = try json.string()
        case .subscription: subscription = try WireSubscription(&json)
        }
      }
      guard let operationType else { throw json.missing("operationType") }
      guard let subscription else { throw json.missing("subscription") }
      self.init(operationType: operationType, subscription: subscription)
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("operationType", operationType)
      json.member("subscription", subscription)
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

/// What subscriptions/lookup asks for, and what all endpoints of subscriptions answer.
package struct SubscriptionsMessage: WireMessage {
  package var subscriptions: [WireSubscription]
  package init(subscriptions: [WireSubscription]) { self.subscriptions = subscriptions }

  private enum Key: Int, WireKey {
    case subscriptions
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var subscriptions: [WireSubscription]?
    try json.object(Key.self) { _, json throws(JSONError) in subscriptions = try [WireSubscription](&json) }
    guard let subscriptions else { throw json.missing("subscriptions") }
    self.init(subscriptions: subscriptions)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("subscriptions", subscriptions)
    json.endObject()
  }
}

/// POST tokens/create and tokens/register, and their answers.
package struct PushTokenMessage: WireMessage {
  /// "development" or "production".
  package var apnsEnvironment: String?
  package var apnsToken: String?
  package var clientId: String?
  /// Where pushes are waited for.
  package var webcourierURL: String?

  package init(
    apnsEnvironment: String? = nil, apnsToken: String? = nil, clientId: String? = nil, webcourierURL: String? = nil
  ) {
    self.apnsEnvironment = apnsEnvironment
    self.apnsToken = apnsToken
    self.clientId = clientId
    self.webcourierURL = webcourierURL
  }

  private enum Key: Int, WireKey {
    case apnsEnvironment, apnsToken, clientId, webcourierURL
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init()
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .apnsEnvironment: apnsEnvironment = try json.optional()
      case .apnsToken: apnsToken = try json.optional()
      case .clientId: clientId = try json.optional()
      case .webcourierURL: webcourierURL = try json.optional()
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("apnsEnvironment", apnsEnvironment)
    json.member("apnsToken", apnsToken)
    json.member("clientId", clientId)
    json.member("webcourierURL", webcourierURL)
    json.endObject()
  }
}

/// A push. Of its three bodies (`fet` for a zone, `met` for a database, `qry` for a query) the container is what a client needs.
package struct PushMessage: WireMessage {
  /// The body of a push.
  package struct Body: WireMessage {
    package var container: String?
    package var notificationID: String?
    package var zoneName: String?
    package var subscriptionID: String?

    package init(container: String?, notificationID: String?, zoneName: String?, subscriptionID: String?) {
      self.container = container
      self.notificationID = notificationID
      self.zoneName = zoneName
      self.subscriptionID = subscriptionID
    }

    private enum Key: Int, WireKey {
      case cid, nid, fet, met, qry
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      self.init(container: nil, notificationID: nil, zoneName: nil, subscriptionID: nil)
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .cid: container = try json.optional()
        case .nid: notificationID = try json.optional()
        case .fet, .met, .qry:
          let cause: PushMessage.Cause? = try json.optional()
          (zoneName, subscriptionID) = (cause?.zoneName, cause?.subscriptionID)
        }
      }
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("cid", container)
      json.member("met", PushMessage.Cause(zoneName: zoneName, subscriptionID: subscriptionID))
      json.member("nid", notificationID)
      json.endObject()
    }
  }

  /// Which subscription, and which zone has changed.
  private struct Cause: WireMessage {
    var zoneName: String?
    var subscriptionID: String?

    init(zoneName: String?, subscriptionID: String?) {
      (self.zoneName, self.subscriptionID) = (zoneName, subscriptionID)
    }

    private enum Key: Int, WireKey {
      case zid, sid
      static let names = JSONKeys(Key.self)
    }

    init(_ json: inout JSONReader) throws(JSONError) {
      self.init(zoneName: nil, subscriptionID: nil)
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .zid: zoneName = try json.optional()
        case .sid: subscriptionID = try json.optional()
        }
      }
    }

    func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("sid", subscriptionID)
      json.member("zid", zoneName)
      json.endObject()
    }
  }

  package var body: Body
  package init(body: Body) { self.body = body }

  private enum Key: Int, WireKey {
    case ck
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var body: Body?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .ck: body = try Body(&json)
      }
    }
    guard let body else { throw json.missing("ck") }
    self.init(body: body)
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.key("aps")
    json.beginObject()
    json.endObject()
    json.member("ck", body)
    json.endObject()
  }
}
