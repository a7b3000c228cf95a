// One request at a time, and not before its time: every question to the cloud passes here.
//
// The server's `retryAfter` is a floor, honoured in full (48 hours at most), across a relaunch too, because the wait is
// an event. Without one, the wait doubles from a second to five minutes, each drawn between half and all of it, so that
// many devices do not come back together.

import StrandlineSystem
import Synchronization

/// What an engine remembers of a wait while it runs: when it ends by a clock that nobody can turn back.
final class PaceMemory: Sendable {
  private struct Seen: Sendable {
    var pace: Pace
    var endNanoseconds: UInt64
  }
  private let seen: Mutex<Seen?> = Mutex(nil)

  /// Milliseconds left of a wait.
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

/// The way to the cloud, for one cycle.
struct Lane {
  static let retryAfterSecondsMax: Double = 48 * 3600
  static let backoffSecondsMax: Double = 300
  /// Own waits above this are worth an event.
  static let loggedMillisecondsMin: Int64 = 5_000

  let store: RecordStore
  let options: CycleOptions
  private let memory: PaceMemory
  var report = SyncReport()
  private var failures = 0

  init(store: RecordStore, options: CycleOptions, memory: PaceMemory) {
    self.store = store
    self.options = options
    self.memory = memory
  }

  /// Asks until there is an answer, waiting as the server or our own backoff says.
  ///
  /// Only for questions: what may have been applied must not be asked again without looking.
  mutating func ask<Answer: Sendable>(_ what: String, _ question: () async throws -> Answer) async throws -> Answer {
    while true {
      do { return try await once(question) } catch let error as CloudError {
        guard ErrorPolicy.request(error) == .retry else { throw error }
        try await wait(after: error, what)
      }
    }
  }

  /// Asks once, when the time has come.
  mutating func once<Answer: Sendable>(_ question: () async throws -> Answer) async throws -> Answer {
    try await waitUntilAllowed()
    try Task.checkCancellation()
    report.requests += 1
    let begin = store.environment.clock.monotonicNanoseconds()
    do {
      let answer = try await question()
      failures = 0
      return answer
    } catch {
      // A request that hung until its time-out was a wait like any other.
      report.waitedMilliseconds += Int64((store.environment.clock.monotonicNanoseconds() &- begin) / 1_000_000)
      throw error
    }
  }

  /// Waits before the next question because the last one failed, or gives up if that is longer than asked for.
  mutating func wait(after error: CloudError, _ what: String) async throws {
    failures += 1
    let wall = store.environment.clock.wallMilliseconds()
    // What the server names is a floor. Nothing, no time or next to none is no word: then our own backoff counts.
    let named = error.retryAfterMilliseconds ?? 0
    let whole = min(Self.backoffSecondsMax, Double(1 << min(failures - 1, 16))) * 1000
    let own = Int64(whole / 2) + Int64(store.environment.random.below(UInt64(whole / 2) + 1))
    let isServers = named >= own
    let milliseconds = max(named, own)
    if isServers || milliseconds > Self.loggedMillisecondsMin {
      let pace = Pace(
        durationMilliseconds: milliseconds, wallMilliseconds: wall, isServers: isServers,
        reason: "\(error.code.rawValue): \(error.reason)")
      try await store.commit { $0.append(.pace(pace)) }
    }
    try await sleep(milliseconds, error, what, isServers: isServers)
  }

  /// Waits for the end of a wait that was said earlier, perhaps before a relaunch.
  private mutating func waitUntilAllowed() async throws {
    guard let pace = store.core.withLock({ $0.projections.sync.pace }) else { return }
    if !pace.isServers, options.isUserInitiated { return }
    let rest = memory.remaining(of: pace, store.environment.clock)
    guard rest > 0 else { return }
    let error = CloudError(.throttled, reason: "still waiting, as said earlier: \(pace.reason)")
    try await sleep(rest, error, "syncing", isServers: pace.isServers)
  }

  private mutating func sleep(
    _ milliseconds: Int64, _ error: CloudError, _ what: String, isServers: Bool
  ) async throws {
    if let limit = options.waitMillisecondsMax, report.waitedMilliseconds + milliseconds > limit {
      throw error.asStrandlineError(what, wait: Double(milliseconds) / 1000, isServers: isServers)
    }
    report.waitedMilliseconds += milliseconds
    try await store.environment.clock.sleep(milliseconds: milliseconds)
  }
}

extension CloudError {
  /// What the server asked for, in milliseconds: not below zero, not above 48 hours, whatever number it said.
  var retryAfterMilliseconds: Int64? {
    guard let retryAfter else { return nil }
    guard retryAfter > 0 else { return 0 }
    return Int64(min(retryAfter, Lane.retryAfterSecondsMax) * 1000)
  }
}
