// Sends the requests of a cycle one at a time, each after the wait that the server or the engine's backoff imposed.
//
// A wait that the server names (`retryAfter`) is a lower bound and kept in full, 48 hours at most. It is an event of the
// log, so it survives a relaunch. Otherwise the wait doubles from a second to five minutes, and each is drawn between
// half and all of it, so that many devices do not return at the same moment.

import StrandlineSystem
import Synchronization

/// The end of the current wait on the monotonic clock, which a user cannot turn back. Lives as long as the engine.
final class PaceMemory: Sendable {
  private struct Seen: Sendable {
    var pace: Pace
    var endNanoseconds: UInt64
  }
  private let seen: Mutex<Seen?> = Mutex(nil)

  /// The milliseconds that are left of a wait.
  func remaining(of pace: Pace, _ clock: any SystemClock) -> Int64 {
    let now = clock.monotonicNanoseconds()
    let byWall = pace.remaining(wall: clock.wallMilliseconds())
    return seen.withLock { seen in
      if seen?.pace != pace { seen = Seen(pace: pace, endNanoseconds: now &+ UInt64(byWall) &* 1_000_000) }
      let end = seen?.endNanoseconds ?? now
      return min(byWall, end > now ? Int64((end - now) / 1_000_000) : 0)
    }
  }
}

/// Sends the requests of one cycle.
struct RequestPacer {
  static let retryAfterSecondsMax: Double = 48 * 3600
  static let backoffSecondsMax: Double = 300
  /// The engine's own waits above this become an event.
  static let loggedMillisecondsMin: Int64 = 5_000

  let store: RecordStore
  /// The database: each has waits of its own.
  let scope: DatabaseScope
  let options: CycleOptions
  private let memory: PaceMemory
  var report = SyncReport()
  private var failures = 0

  init(store: RecordStore, scope: DatabaseScope, options: CycleOptions, memory: PaceMemory) {
    self.store = store
    self.scope = scope
    self.options = options
    self.memory = memory
  }

  /// Sends a request until it is answered, with waits between the tries.
  ///
  /// Only for requests that change nothing, or that may be applied twice. An upload that may have been applied must not
  /// be sent again before the server was asked what it holds.
  ///
  /// - Parameter doing: what the request does, as an error says it: "creating zone 'Notes'".
  mutating func send<Answer: Sendable>(
    _ doing: String, _ request: () async throws -> Answer
  ) async throws -> Answer {
    while true {
      do { return try await sendOnce(request) } catch let error as CloudError {
        guard ErrorPolicy.request(error) == .retry else { throw error }
        try await wait(after: error, doing: doing)
      }
    }
  }

  /// Sends a request once, after the current wait.
  mutating func sendOnce<Answer: Sendable>(_ request: () async throws -> Answer) async throws -> Answer {
    try await waitUntilAllowed()
    try Task.checkCancellation()
    report.requests += 1
    let begin = store.environment.clock.monotonicNanoseconds()
    do {
      let answer = try await request()
      failures = 0
      return answer
    } catch {
      // A request that ran into its time-out counts as waiting.
      report.waitedMilliseconds += Int64((store.environment.clock.monotonicNanoseconds() &- begin) / 1_000_000)
      throw error
    }
  }

  /// Waits because a request failed; throws `error` if the cycle may not wait that long.
  mutating func wait(after error: CloudError, doing: String) async throws {
    failures += 1
    let wall = store.environment.clock.wallMilliseconds()
    // The longer of both waits counts: a server that names none, or a very short one, is not asked again at once.
    let named = error.retryAfterMilliseconds ?? 0
    let whole = min(Self.backoffSecondsMax, Double(1 << min(failures - 1, 16))) * 1000
    let own = Int64(whole / 2) + Int64(store.environment.random.below(UInt64(whole / 2) + 1))
    let isServers = named >= own
    let milliseconds = max(named, own)
    if isServers || milliseconds > Self.loggedMillisecondsMin {
      let pace = Pace(
        scope: scope, durationMilliseconds: milliseconds, wallMilliseconds: wall, isServers: isServers,
        reason: "\(error.code.rawValue): \(error.reason)")
      try await store.commit { try $0.append(.pace(pace)) }
    }
    try await sleep(milliseconds, after: error, doing: doing, isServers: isServers)
  }

  /// Waits for the rest of a wait that began earlier, perhaps before a relaunch.
  private mutating func waitUntilAllowed() async throws {
    guard let pace = store.projections.sync.paces[scope] else { return }
    if !pace.isServers, options.isUserInitiated { return }
    let rest = memory.remaining(of: pace, store.environment.clock)
    guard rest > 0 else { return }
    let error = CloudError(.throttled, reason: "still in a wait that began earlier: \(pace.reason)")
    try await sleep(rest, after: error, doing: "syncing", isServers: pace.isServers)
  }

  private mutating func sleep(
    _ milliseconds: Int64, after error: CloudError, doing: String, isServers: Bool
  ) async throws {
    if let limit = options.waitMillisecondsMax, report.waitedMilliseconds + milliseconds > limit {
      throw error.asStrandlineError(doing, wait: Double(milliseconds) / 1000, isServers: isServers)
    }
    report.waitedMilliseconds += milliseconds
    try await store.environment.clock.sleep(milliseconds: milliseconds)
  }
}

extension CloudError {
  /// The wait that the server named, in milliseconds, within 0 and 48 hours; nil if it named none.
  var retryAfterMilliseconds: Int64? {
    guard let retryAfter else { return nil }
    guard retryAfter > 0 else { return 0 }
    return Int64(min(retryAfter, RequestPacer.retryAfterSecondsMax) * 1000)
  }
}
