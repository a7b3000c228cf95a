// Pushes over the web: a subscription to the database, a token, and the courier, at which a client waits for a push.
//
// The subscription and the token are ordinary requests in the lane of the session. The courier is another server, which knows
// nothing but the token: its requests stay outside of the lane, so that a wait of half a minute holds nothing up.

internal import Strandline
internal import StrandlineSystem
internal import Synchronization

/// Where a client waits for pushes.
struct PushCourier: Sendable, Hashable {
  var origin: String
  var path: String
  var query: String

  /// - Parameter url: "http" or "https", a host, a path and a query.
  init?(_ url: String) {
    guard let scheme = url.firstRange(of: "://"), url.hasPrefix("http") else { return nil }
    let rest = url[scheme.upperBound...]
    let end = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
    guard end > rest.startIndex else { return nil }
    origin = String(url[..<end])
    let parts = rest[end...].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    path = parts.first.map { $0.isEmpty ? "/" : String($0) } ?? "/"
    query = parts.count > 1 ? String(parts[1]) : ""
  }
}

extension WebServicesDatabase {
  /// The least time between two questions to a courier that had nothing.
  static let courierRestMilliseconds: Int64 = 1_000
  /// The least time between two that brought a push: of a burst, each asks for the rest of it.
  static let burstRestMilliseconds: Int64 = 250
  /// The ID of the subscription. It is the same on each device, so that a user has one.
  static let subscriptionID = "strandline-database"

  /// Waits for a push. The first call subscribes to the database, and asks for the courier's address.
  ///
  /// - Throws: `CloudError` of those two requests, and if the courier cannot be reached or refuses. The next call then asks for
  ///   another courier, and after a refusal subscribes again.
  package func awaitPush() async throws {
    guard address.scope != .public else {
      throw CloudError(.unsupported, reason: "the public database has no pushes")
    }
    let courier = try await knownCourier()
    while true {
      let wait = pushes.withLock { $0.milliseconds(at: environment.clock.monotonicNanoseconds()) }
      if wait > 0 { try await environment.clock.sleep(milliseconds: wait) }
      let begin = environment.clock.monotonicNanoseconds()
      let response: HTTPResponse
      do {
        response = try await transport.send(
          HTTPRequest(method: "GET", origin: courier.origin, path: courier.path, query: courier.query))
      } catch {
        pushes.withLock { $0.courier = nil }
        throw error
      }
      guard (200...299).contains(response.status) else {
        pushes.withLock { ($0.courier, $0.isSubscribed) = (nil, false) }
        throw WebServicesErrors(
          secrets: [courier.query], wallMilliseconds: environment.clock.wallMilliseconds()
        ).whole(response)
      }
      let isEmpty = response.body.isEmpty
      let rest = isEmpty ? Self.courierRestMilliseconds : Self.burstRestMilliseconds
      pushes.withLock { $0.restEnd = begin &+ UInt64(rest) &* 1_000_000 }
      if !isEmpty, isForThis(response.body) { return }
    }
  }

  /// Whether a push says something of this container. One that cannot be read says that something has changed, and not what.
  private func isForThis(_ body: [UInt8]) -> Bool {
    guard let push = try? WireJSON.decode(PushMessage.self, body), let container = push.body.container else {
      return true
    }
    return container.equalsUTF8(address.container)
  }

  private func knownCourier() async throws -> PushCourier {
    let known = pushes.withLock { $0 }
    if let courier = known.courier { return courier }
    if !known.isSubscribed { try await subscribe() }
    let asked = PushTokenMessage(apnsEnvironment: address.environment.rawValue)
    let answer = try await ask(PushTokenMessage.self, "POST", "tokens/create", asked)
    guard let url = answer.value.webcourierURL, let courier = PushCourier(url) else {
      throw answer.errors.unexpected(answer.response, "the answer to tokens/create has no address of a courier")
    }
    pushes.withLock { ($0.courier, $0.isSubscribed) = (courier, true) }
    return courier
  }

  /// Subscribes to the database. A subscription of the same content, made by another version or another app's code, is as good.
  private func subscribe() async throws {
    let subscription = WireSubscription(subscriptionID: Self.subscriptionID, subscriptionType: "database")
    let request = SubscriptionsModifyRequest(operations: [.init(operationType: "create", subscription: subscription)])
    let answer = try await ask(SubscriptionsMessage.self, "POST", scoped("subscriptions/modify"), request)
    guard let error = answer.value.subscriptions.lazy.compactMap(\.error).first else { return }
    let known = try await ask(SubscriptionsMessage.self, "GET", scoped("subscriptions/list"))
    if known.value.subscriptions.contains(where: { $0.subscriptionType == "database" && $0.error == nil }) { return }
    throw answer.errors.item(error, answer.response)
  }
}

/// What a client knows of its pushes.
struct PushListening: Sendable {
  /// Nil until it was asked for, and after it could not be reached or has refused.
  var courier: PushCourier?
  /// Whether this client has made sure of the subscription. It outlives a courier that cannot be reached.
  var isSubscribed = false
  /// When the courier may be asked again, by the monotonic clock.
  var restEnd: UInt64 = 0

  func milliseconds(at now: UInt64) -> Int64 { now >= restEnd ? 0 : Int64((restEnd - now + 999_999) / 1_000_000) }
}
