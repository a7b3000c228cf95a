// Subscriptions, and the mailboxes from which clients take pushes. They live as long as the server: a client whose mailbox is gone
// asks for another one and subscribes again, and until then it finds changes by polling.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem

/// The pushes of one client that it has not taken yet.
package final class PushBox: Sendable {
  /// The most that wait. A push says that something has changed, so that of many the last ones are enough.
  private static let pushesMax = 100

  private let pushes: OrderedMutex<[[UInt8]]> = OrderedMutex([])
  private let news = AsyncSignal()

  init() {}

  func put(_ push: [UInt8]) {
    pushes.withLock { pushes in
      if pushes.count == Self.pushesMax { pushes.removeFirst() }
      pushes.append(push)
    }
    news.signal()
  }

  /// The oldest push; nil if none waits.
  func take() -> [UInt8]? { pushes.withLock { $0.isEmpty ? nil : $0.removeFirst() } }

  /// The next push, or nothing after a time.
  ///
  /// - Throws: `CancellationError` if the task is cancelled.
  func next(within milliseconds: Int64, _ clock: any SystemClock) async throws -> [UInt8] {
    let end = clock.monotonicNanoseconds() &+ UInt64(max(0, milliseconds)) &* 1_000_000
    while true {
      if let push = take() { return push }
      let now = clock.monotonicNanoseconds()
      guard now < end else { return [] }
      await withTaskCancellationHandler {
        await news.wait(atMost: Int64((end - now + 999_999) / 1_000_000), clock: clock)
      } onCancel: {
        news.signal()
      }
      try Task.checkCancellation()
    }
  }
}

/// The subscriptions of all databases, and the mailboxes of all clients.
struct PushTable: Sendable {
  /// Who gets pushes into a mailbox: a user of a container and environment.
  struct Recipient: Hashable, Sendable {
    var container: CloudName
    var environment: CloudName
    var user: CloudName

    init(_ key: DatabaseKey, user: String) {
      (container, environment) = (CloudName(key.container), CloudName(key.environment))
      self.user = CloudName(user)
    }
  }

  private struct Client: Sendable {
    var token: CloudName
    var clientID: CloudName
    var recipient: Recipient
    var box: PushBox
  }

  /// The most clients. One more takes the place of the one that came first.
  private static let clientsMax = 1_000
  /// The most subscriptions of a database.
  static let subscriptionsMax = 1_000

  private(set) var subscriptions: [DatabaseKey: [CloudName: WireSubscription]] = [:]
  private var clients: [Client] = []
  private var number: UInt64 = 0

  /// Gives a client a mailbox. One with the same identifier keeps its own.
  ///
  /// - Returns: the name of the mailbox.
  mutating func open(_ clientID: String, of recipient: Recipient, newToken: String) -> String {
    let clientID = CloudName(clientID)
    if !clientID.text.isEmpty,
      let known = clients.first(where: { $0.clientID == clientID && $0.recipient == recipient })
    {
      return known.token.text
    }
    if clients.count == Self.clientsMax { clients.removeFirst() }
    clients.append(Client(token: CloudName(newToken), clientID: clientID, recipient: recipient, box: PushBox()))
    return newToken
  }

  func box(of token: String) -> PushBox? { clients.first { $0.token == CloudName(token) }?.box }

  mutating func subscribe(_ subscription: WireSubscription, _ id: String, in key: DatabaseKey) {
    subscriptions[key, default: [:]][CloudName(id)] = subscription
  }

  /// - Returns: whether it was there.
  mutating func unsubscribe(_ id: String, in key: DatabaseKey) -> Bool {
    subscriptions[key]?.removeValue(forKey: CloudName(id)) != nil
  }

  /// The pushes that a change of a zone causes, each with where it goes.
  mutating func pushes(of zone: String, in key: DatabaseKey) -> [(box: PushBox, push: [UInt8])] {
    let recipient = Recipient(key, user: key.user)
    let boxes = clients.filter { $0.recipient == recipient }.map(\.box)
    guard !boxes.isEmpty else { return [] }
    var pushes: [(PushBox, [UInt8])] = []
    for subscription in (subscriptions[key] ?? [:]).sorted(by: { $0.key < $1.key }).map(\.value) {
      if subscription.subscriptionType == "zone", !(subscription.zoneID?.name).equalsUTF8(zone) { continue }
      number += 1
      let push = WireJSON.encode(
        PushMessage(
          body: .init(
            container: key.container, notificationID: String(number), zoneName: zone,
            subscriptionID: subscription.subscriptionID)))
      pushes += boxes.map { ($0, push) }
    }
    return pushes
  }
}
