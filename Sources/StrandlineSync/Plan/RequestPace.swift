// When the next request may leave.
//
// Each kind of request has its own backoff: a server that refuses every upload and answers every fetch gets uploads less and
// less often, whatever it answers to the fetches. A busy server, a network that is down and each wait that the server names
// delay all kinds.
//
// A wait that the server names (`retryAfter`) is kept in full, 48 hours at most, and logged, so it survives a relaunch. The
// engine's own wait doubles from a second to 29 minutes with random jitter (`SyncPace`), so that many devices do not return
// at the same moment.

package import StrandlineSystem

/// The kinds of requests, each with its own backoff.
package enum RequestKind: String, Hashable, Sendable, CaseIterable {
  case account
  case zoneList
  case query
  case page
  case lookup
  case upload
  /// The upload of a content.
  case content
  /// A lookup of records that the feed has listed without their fields.
  case listed

  /// Whether such a request brings what this device has to the server.
  package var sends: Bool { self == .upload || self == .content }
}

/// The waits between requests to one database.
package struct RequestPace: Sendable {
  static let retryAfterSecondsMax: Double = 48 * 3600
  /// The engine's own waits above this are logged.
  static let loggedMillisecondsMin: Int64 = 5_000

  /// How long the engine's own waits are, and the random source for their jitter.
  package struct Policy: Sendable {
    let pace: SyncPace
    let random: any RandomSource

    package init(_ pace: SyncPace, _ random: any RandomSource) { (self.pace, self.random) = (pace, random) }
  }

  /// A wait before the next request.
  package struct Wait: Sendable {
    /// The time that is left: more than 0. What is over is no wait.
    package var milliseconds: Int64
    /// The failure that caused it.
    package var error: CloudError
    /// What the engine was doing, in the words of an error message.
    package var doing: String
    /// Whether the server named it. A person can end only the engine's own.
    package var isServers: Bool
    /// Whether only a record, or a zone, waits: the next cycle asks for all the rest.
    package var isOfPart = false
  }

  private struct Until: Sendable {
    /// By the monotonic clock, which also counts while the device sleeps and cannot be set.
    var nanoseconds: UInt64
    var error: CloudError
    var doing: String
    var isServers: Bool

    init(_ milliseconds: Int64, _ now: Moment, _ error: CloudError, doing: String, isServers: Bool) {
      nanoseconds = now.after(milliseconds: milliseconds)
      (self.error, self.doing, self.isServers) = (error, doing, isServers)
    }

    /// The rest of it; nil if it is over.
    func rest(_ now: Moment) -> Wait? {
      guard nanoseconds > now.nanoseconds else { return nil }
      return Wait(milliseconds: now.milliseconds(until: nanoseconds), error: error, doing: doing, isServers: isServers)
    }
  }

  private let policy: Policy
  private let scope: DatabaseScope
  private var failures: [RequestKind: Int] = [:]
  private var lastFailure: CloudError?
  /// The engine's own waits, of one kind and of all.
  private var kinds: [RequestKind: Until] = [:]
  private var all: Until?
  /// The wait that the server named, which a person cannot end.
  private var servers: Until?
  /// The most operations that the server was found to take; 0 if it refused no request for their number.
  private(set) var operationsMax: Int

  /// - Parameter logged: the logged wait, which began before a relaunch.
  init(_ logged: Pace?, scope: DatabaseScope, _ policy: Policy, at now: Moment) {
    (self.policy, self.scope) = (policy, scope)
    operationsMax = Int(clamping: logged?.batchSize ?? 0)
    guard let logged, case let rest = logged.remaining(wall: now.wall), rest > 0 else { return }
    let error = CloudError(.throttled, reason: "still in a wait that began earlier: \(logged.reason)")
    let until = Until(rest, now, error, doing: "syncing", isServers: logged.isServers)
    if logged.isServers { servers = until } else { all = until }
  }

  /// The wait before the next request of a kind; nil if it may leave now.
  package func wait(for kind: RequestKind, at now: Moment) -> Wait? {
    // Fast path: this is called for each kind at each step, and mostly nothing waits.
    if servers == nil, all == nil, kinds.isEmpty { return nil }
    return [servers, all, kinds[kind]].compactMap { $0?.rest(now) }.max { $0.milliseconds < $1.milliseconds }
  }

  /// The longest wait that is not over, the server's before the engine's own; nil if there is none.
  package func longestWait(at now: Moment) -> Wait? {
    RequestKind.allCases.compactMap { wait(for: $0, at: now) }.max { left, right in
      left.isServers == right.isServers ? left.milliseconds < right.milliseconds : right.isServers
    }
  }

  /// How long the engine waits after a number of failures in a row of one zone's feed.
  func ownWait(failures: Int) -> Int64 { policy.pace.ownWait(failures: failures, policy.random) }

  /// The failures in a row of the kind of request that has failed most often, and the last error of any; nil if there is none.
  package var retry: (count: Int, error: CloudError)? {
    guard let count = failures.values.max(), let lastFailure else { return nil }
    return (count, lastFailure)
  }

  /// A cycle begins.
  ///
  /// - Parameter logged: the logged wait.
  /// - Returns: an event to log if the wall clock was set back since the wait began: the rest of the wait begins now. Otherwise each
  ///   relaunch before its end would wait for all of it again.
  func begin(_ logged: Pace?, at now: Moment) -> Pace? {
    guard var pace = logged, pace.durationMilliseconds > 0, pace.wallMilliseconds > now.wall else { return nil }
    let rest = longestWait(at: now)
    (pace.durationMilliseconds, pace.wallMilliseconds) = (rest?.milliseconds ?? 0, now.wall)
    pace.isServers = rest?.isServers ?? false
    return pace
  }

  /// A cycle has come to its end.
  ///
  /// - Parameter logged: the logged wait.
  /// - Returns: an event to log if the logged wait is the engine's own and is over early: a person has ended it, and the server has
  ///   answered since.
  func end(_ logged: Pace?, at now: Moment) -> Pace? {
    guard var pace = logged, !pace.isServers, pace.remaining(wall: now.wall) > 0, longestWait(at: now) == nil else {
      return nil
    }
    (pace.durationMilliseconds, pace.wallMilliseconds) = (0, now.wall)
    return pace
  }

  /// A request was answered.
  mutating func succeeded(_ kind: RequestKind) {
    guard !failures.isEmpty || !kinds.isEmpty else { return }
    failures[kind] = nil
    kinds[kind] = nil
  }

  /// A person wants a cycle now: the engine's own waits end, once. The next failure waits as long as it would have.
  mutating func endOwnWaits() { (kinds, all) = ([:], nil) }

  /// The server takes this number of operations in one request, as far as is known; `most`: what it begins with.
  ///
  /// - Returns: an event to log, so that the next process begins with this number; it repeats the current wait.
  mutating func learn(operationsMax: Int, of most: Int, at now: Moment) -> Pace? {
    guard operationsMax != (self.operationsMax == 0 ? most : self.operationsMax) else { return nil }
    self.operationsMax = operationsMax
    let own = (kinds.values + [all].compactMap(\.self)).compactMap { $0.rest(now) }
    let wait = servers?.rest(now) ?? own.max { $0.milliseconds < $1.milliseconds }
    return Pace(
      scope: scope, durationMilliseconds: wait?.milliseconds ?? 0, wallMilliseconds: now.wall,
      batchSize: UInt64(operationsMax), isServers: wait?.isServers ?? false,
      reason: wait.map { Self.reason($0.error) } ?? "the server takes \(operationsMax) operations in a request")
  }

  private static func reason(_ error: CloudError) -> String { "\(error.code.rawValue): \(error.reason)" }

  /// A request failed and may be sent again after a wait.
  ///
  /// - Parameter times: how often in a row its answers were defective, if the request itself was answered.
  /// - Returns: an event to log: a wait that the server named, or a long one of the engine's own.
  mutating func failed(
    _ kind: RequestKind, _ error: CloudError, doing: String, times: Int = 0, at now: Moment
  ) -> Pace? {
    failures[kind] = max((failures[kind] ?? 0) + 1, times)
    lastFailure = error
    // The engine waits for the longer one: the server may name none, or a very short one.
    let named = error.retryAfterMilliseconds ?? 0
    let own = policy.pace.ownWait(failures: failures[kind, default: 1], policy.random)
    let until = Until(own, now, error, doing: doing, isServers: false)
    // The content host is another server: what it says concerns contents alone.
    guard kind != .content else {
      kinds[kind] = Until(max(own, named), now, error, doing: doing, isServers: named > own)
      return nil
    }
    if named > 0 || error.holdsEveryKind { all = until } else { kinds[kind] = until }
    // Of two waits that the server names, the one that ends later counts.
    let before = servers?.rest(now)
    if named > before?.milliseconds ?? 0 { servers = Until(named, now, error, doing: doing, isServers: true) }
    guard named > 0 || own > Self.loggedMillisecondsMin else { return nil }
    let rest = servers?.rest(now)
    return Pace(
      scope: scope, durationMilliseconds: rest?.milliseconds ?? own, wallMilliseconds: now.wall,
      batchSize: UInt64(operationsMax), isServers: rest != nil, reason: Self.reason(rest?.error ?? error))
  }
}

extension CloudError {
  /// Whether this failure says that no request of any kind will succeed now.
  fileprivate var holdsEveryKind: Bool {
    switch code {
    case .throttled, .tryAgainLater, .serviceUnavailable, .networkError: true
    default: httpStatus == 503 || httpStatus == 429
    }
  }

  /// The wait that the server named, in milliseconds, within 0 and 48 hours; nil if it named none.
  var retryAfterMilliseconds: Int64? {
    guard let retryAfter else { return nil }
    guard retryAfter > 0 else { return 0 }
    return Int64(min(retryAfter, RequestPace.retryAfterSecondsMax) * 1000)
  }
}
