// When the next request may leave.
//
// Waits count per kind of request: a server that refuses every upload while it answers every fetch is asked for uploads
// less and less often, and an answered fetch changes nothing about that. A server that is busy, a network that is away and
// every wait that the server names hold all kinds.
//
// A wait that the server names (`retryAfter`) is a lower bound and kept in full, 48 hours at most. It is an event of the
// log, so it survives a relaunch. Otherwise the wait doubles from a second to 29 minutes, and each is drawn from a range
// (`SyncPace`), so that many devices do not return at the same moment.

import StrandlineSystem

/// The kinds of requests, each of which has waits of its own.
package enum RequestKind: String, Hashable, Sendable, CaseIterable {
  case account
  case zoneList
  case query
  case page
  case lookup
  case upload
  /// A lookup of what was listed.
  case listed
}

/// The waits between requests to one database.
struct RequestPace: Sendable {
  static let retryAfterSecondsMax: Double = 48 * 3600
  /// The engine's own waits above this become an event.
  static let loggedMillisecondsMin: Int64 = 5_000

  /// How long the engine's own waits are, and what they are drawn from.
  struct Policy: Sendable {
    let pace: SyncPace
    let random: any RandomSource

    init(_ pace: SyncPace, _ random: any RandomSource) { (self.pace, self.random) = (pace, random) }
  }

  /// A wait before the next request.
  struct Wait: Sendable {
    /// What is left of it.
    var milliseconds: Int64
    /// Why.
    var error: CloudError
    /// What was being done, as an error says it.
    var doing: String
    /// Whether the server named it. The engine's own can be ended early by a person.
    var isServers: Bool
  }

  private struct Until: Sendable {
    /// By the monotonic clock, which runs on while the device sleeps, and which no one can turn.
    var nanoseconds: UInt64
    var error: CloudError
    var doing: String
    var isServers: Bool

    init(_ milliseconds: Int64, _ clock: any SystemClock, _ error: CloudError, doing: String, isServers: Bool) {
      nanoseconds = clock.monotonicNanoseconds() &+ UInt64(milliseconds) &* 1_000_000
      (self.error, self.doing, self.isServers) = (error, doing, isServers)
    }

    /// What is left of it; nil if nothing is.
    func rest(_ now: UInt64) -> Wait? {
      guard nanoseconds > now else { return nil }
      let rest = Int64((nanoseconds - now + 999_999) / 1_000_000)
      return Wait(milliseconds: rest, error: error, doing: doing, isServers: isServers)
    }
  }

  private let store: RecordStore
  private let policy: Policy
  private let scope: DatabaseScope
  private var failures: [RequestKind: Int] = [:]
  private var lastFailure: CloudError?
  /// The engine's own waits, of one kind and of all.
  private var kinds: [RequestKind: Until] = [:]
  private var all: Until?
  /// The wait that the server named. A person cannot end it.
  private var servers: Until?
  /// Whether the wait that the log had at first was taken.
  private var hasTakenLogged = false
  /// The most operations that the server was found to take; 0 if it refused none for their number.
  private(set) var operationsMax: Int

  init(store: RecordStore, scope: DatabaseScope, _ policy: Policy) {
    self.policy = policy
    self.store = store
    self.scope = scope
    operationsMax = store.projections.withLock { Int(clamping: $0.sync.paces[scope]?.batchSize ?? 0) }
  }

  /// The wait before the next request of a kind; nil if it may leave now.
  mutating func wait(for kind: RequestKind) -> Wait? {
    takeFromLog()
    // Mostly nothing waits, and it is asked for each kind at each step.
    if servers == nil, all == nil, kinds.isEmpty { return nil }
    let now = store.environment.clock.monotonicNanoseconds()
    return [servers, all, kinds[kind]].compactMap { $0?.rest(now) }.max { $0.milliseconds < $1.milliseconds }
  }

  /// The longest wait that is not over, the server's before the engine's own; nil if there is none.
  mutating func longestWait() -> Wait? {
    RequestKind.allCases.compactMap { wait(for: $0) }.max { left, right in
      left.isServers == right.isServers ? left.milliseconds < right.milliseconds : right.isServers
    }
  }

  /// The failures in a row of the kind of request that has failed most often, and the last error of any; nil if there is none.
  var retry: (count: Int, error: CloudError)? {
    guard let count = failures.values.max(), let lastFailure else { return nil }
    return (count, lastFailure)
  }

  /// A wait that began before a relaunch.
  private mutating func takeFromLog() {
    guard !hasTakenLogged else { return }
    hasTakenLogged = true
    let scope = scope
    guard let pace = store.projections.withLock({ $0.sync.paces[scope] }) else { return }
    let clock = store.environment.clock
    let rest = pace.remaining(wall: clock.wallMilliseconds())
    guard rest > 0 else { return }
    let error = CloudError(.throttled, reason: "still in a wait that began earlier: \(pace.reason)")
    let until = Until(rest, clock, error, doing: "syncing", isServers: pace.isServers)
    if pace.isServers { servers = until } else { all = until }
  }

  /// A run begins. Where the wall clock was turned back since a wait began, the log learns that its rest begins now: else a process
  /// that is relaunched before the end would have it begin anew, each time.
  mutating func begin() async throws {
    let (scope, wall) = (scope, store.environment.clock.wallMilliseconds())
    guard var pace = store.projections.withLock({ $0.sync.paces[scope] }), pace.durationMilliseconds > 0,
      pace.wallMilliseconds > wall
    else { return }
    let rest = longestWait()
    (pace.durationMilliseconds, pace.wallMilliseconds) = (rest?.milliseconds ?? 0, wall)
    pace.isServers = rest?.isServers ?? false
    let begun = pace
    try await store.commit { try $0.append(.pace(begun)) }
  }

  /// A request was answered.
  mutating func succeeded(_ kind: RequestKind) {
    guard !failures.isEmpty || !kinds.isEmpty else { return }
    failures[kind] = nil
    kinds[kind] = nil
  }

  /// A person wants it now: the engine's own waits end, once. The next failure waits as long as it would have.
  mutating func endOwnWaits() {
    takeFromLog()
    (kinds, all) = ([:], nil)
  }

  /// The server takes so many operations in one request, as far as is known. Durable when this returns, so that the next process
  /// begins with it; a wait that is under way goes on.
  mutating func learn(operationsMax: Int) async throws {
    guard operationsMax != (self.operationsMax == 0 ? UploadPlan.operationsMax : self.operationsMax) else { return }
    takeFromLog()
    self.operationsMax = operationsMax
    let clock = store.environment.clock
    let (now, wall) = (clock.monotonicNanoseconds(), clock.wallMilliseconds())
    let own = (kinds.values + [all].compactMap(\.self)).compactMap { $0.rest(now) }
    let wait = servers?.rest(now) ?? own.max { $0.milliseconds < $1.milliseconds }
    let pace = Pace(
      scope: scope, durationMilliseconds: wait?.milliseconds ?? 0, wallMilliseconds: wall,
      batchSize: UInt64(operationsMax), isServers: wait?.isServers ?? false,
      reason: wait.map { Self.reason($0.error) } ?? "the server takes \(operationsMax) operations in a request")
    try await store.commit { try $0.append(.pace(pace)) }
  }

  private static func reason(_ error: CloudError) -> String { "\(error.code.rawValue): \(error.reason)" }

  /// A request failed and may be sent again after a wait. A wait that the server named, and a long one of the engine's own,
  /// is durable when this returns.
  ///
  /// - Parameter times: how often in a row it has failed, where the request itself was answered.
  mutating func failed(_ kind: RequestKind, _ error: CloudError, doing: String, times: Int = 0) async throws {
    takeFromLog()
    failures[kind] = max((failures[kind] ?? 0) + 1, times)
    lastFailure = error
    let clock = store.environment.clock
    let wall = clock.wallMilliseconds()
    // Both count: a server that names no wait, or a very short one, is not asked again at once.
    let named = error.retryAfterMilliseconds ?? 0
    let own = policy.pace.ownWait(failures: failures[kind, default: 1], policy.random)
    let until = Until(own, clock, error, doing: doing, isServers: false)
    if named > 0 || error.holdsEveryKind { all = until } else { kinds[kind] = until }
    if named > 0 { servers = Until(named, clock, error, doing: doing, isServers: true) }
    guard named > 0 || own > Self.loggedMillisecondsMin else { return }
    let pace = Pace(
      scope: scope, durationMilliseconds: named > 0 ? named : own, wallMilliseconds: wall,
      batchSize: UInt64(operationsMax), isServers: named > 0, reason: Self.reason(error))
    try await store.commit { try $0.append(.pace(pace)) }
  }
}

extension CloudError {
  /// Whether a request that failed with this says that no request will succeed now.
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
