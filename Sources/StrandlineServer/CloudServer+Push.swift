// The endpoints of subscriptions and of tokens for pushes, and the courier, at which a client waits for a push.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// How long the courier keeps a client that has no push. Then it answers nothing, and the client asks again.
  static let courierMilliseconds: Int64 = 30_000
  static let courierPath = "/courier"

  // MARK: Subscriptions

  func listSubscriptions(in key: DatabaseKey) throws(ServerRefusal) -> SubscriptionsMessage {
    try checkHasSubscriptions(key)
    let known = pushTable.withLock { $0.subscriptions[key] ?? [:] }
    return SubscriptionsMessage(subscriptions: known.sorted { $0.key < $1.key }.map(\.value))
  }

  func lookupSubscriptions(_ asked: SubscriptionsMessage, in key: DatabaseKey) throws(ServerRefusal)
    -> SubscriptionsMessage
  {
    try checkHasSubscriptions(key)
    try checkCount(asked.subscriptions.count)
    let known = pushTable.withLock { $0.subscriptions[key] ?? [:] }
    return SubscriptionsMessage(
      subscriptions: asked.subscriptions.map { asked in
        known[CloudName(asked.subscriptionID ?? "")]
          ?? WireSubscription(
            subscriptionID: asked.subscriptionID, error: WireError(.notFound, "Subscription not found"))
      })
  }

  func modifySubscriptions(
    _ request: SubscriptionsModifyRequest, in key: DatabaseKey
  ) throws(ServerRefusal) -> SubscriptionsMessage {
    try checkHasSubscriptions(key)
    try checkCount(request.operations.count)
    return SubscriptionsMessage(subscriptions: request.operations.map { modify($0, in: key) })
  }

  private func modify(
    _ operation: SubscriptionsModifyRequest.Operation, in key: DatabaseKey
  ) -> WireSubscription {
    let asked = operation.subscription
    func refused(_ code: CloudError.Code, _ words: String) -> WireSubscription {
      WireSubscription(subscriptionID: asked.subscriptionID, error: WireError(code, words))
    }
    let id = asked.subscriptionID ?? ""
    switch operation.operationType {
    case "delete":
      guard pushTable.withLock({ $0.unsubscribe(id, in: key) }) else {
        return refused(.notFound, "Subscription not found")
      }
      return WireSubscription(subscriptionID: id)
    case "create", "update":
      guard !id.isEmpty, id.utf8.count <= 255 else {
        return refused(.badRequest, "a subscription's ID has 1 to 255 characters")
      }
      switch asked.subscriptionType {
      case "database": break
      case "zone":
        guard asked.zoneID?.name.isEmpty == false else {
          return refused(.badRequest, "a subscription to a zone names the zone")
        }
      case "query": return refused(.badRequest, "this server has no subscriptions to queries")
      default: return refused(.badRequest, "subscriptionType is 'database', 'zone' or 'query'")
      }
      return pushTable.withLock { table in
        let known = table.subscriptions[key] ?? [:]
        guard known[CloudName(id)] != nil || known.count < PushTable.subscriptionsMax else {
          return refused(.limitExceeded, "more than \(PushTable.subscriptionsMax) subscriptions")
        }
        let subscription = WireSubscription(
          subscriptionID: id, subscriptionType: asked.subscriptionType, zoneID: asked.zoneID)
        table.subscribe(subscription, id, in: key)
        return subscription
      }
    default: return refused(.badRequest, "operationType is 'create', 'update' or 'delete'")
    }
  }

  private func checkHasSubscriptions(_ key: DatabaseKey) throws(ServerRefusal) {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "this server has no subscriptions in the public database"))
    }
  }

  private func checkCount(_ count: Int) throws(ServerRefusal) {
    guard count <= limits.operationsMax else {
      throw ServerRefusal(
        400, WireError(.badRequest, "\(count) subscriptions in one request; the limit is \(limits.operationsMax)"))
    }
  }

  // MARK: Tokens

  /// Gives a client a mailbox, and the address at which it waits for pushes.
  func createToken(_ asked: PushTokenMessage, _ key: DatabaseKey, _ user: String, origin: String) -> PushTokenMessage {
    let new = RecordName.random(high: environment.random.next(), low: environment.random.next())
    let token = pushTable.withLock {
      $0.open(asked.clientId ?? "", of: PushTable.Recipient(key, user: user), newToken: new)
    }
    return PushTokenMessage(
      apnsEnvironment: asked.apnsEnvironment ?? key.environment, apnsToken: token, clientId: asked.clientId,
      webcourierURL: "\(origin)\(Self.courierPath)?token=\(token)")
  }

  /// Takes a token as the client's. Only those of this server have a mailbox.
  func registerToken(_ asked: PushTokenMessage) throws(ServerRefusal) -> PushTokenMessage {
    guard let token = asked.apnsToken, pushTable.withLock({ $0.box(of: token) }) != nil else {
      throw ServerRefusal(
        400, WireError(.badRequest, "this server pushes to the tokens that tokens/create has given, and to no others"))
    }
    return PushTokenMessage(apnsEnvironment: asked.apnsEnvironment, apnsToken: token, clientId: asked.clientId)
  }

  // MARK: The courier

  /// The mailbox of a request to the courier.
  func courierBox(_ token: String?) throws(ServerRefusal) -> PushBox {
    guard let token, let box = pushTable.withLock({ $0.box(of: token) }) else {
      throw ServerRefusal(404, WireError(.notFound, "no such courier; ask tokens/create for one"))
    }
    return box
  }

  /// Pushes that a zone has changed.
  func push(_ zone: String, in key: DatabaseKey) {
    for (box, push) in pushTable.withLock({ $0.pushes(of: zone, in: key) }) { box.put(push) }
  }

  /// Carries out a request that may change a zone, and pushes if it has.
  func pushing(
    _ zones: [String], in key: DatabaseKey, _ body: () throws(ServerRefusal) -> [UInt8]
  ) throws(ServerRefusal) -> [UInt8] {
    let before = newest(in: key)
    let answer = try body()
    if newest(in: key) > before { for zone in zones { push(zone, in: key) } }
    return answer
  }

  private func newest(in key: DatabaseKey) -> UInt64 { core.withLock { $0.state.lastLSN(in: key) } }
}
