// When an engine makes its automatic runs: the rule, without the clock that it is kept by. The engine follows it in real
// time, the fleet of `simulate --fleet` for thousands of devices in simulated time.

package import StrandlineSystem

/// How an engine spreads its requests over time, so that many devices do not load their server at the same moment.
package struct SyncPace: Sendable {
  /// Waits are drawn at random from a range. If false, each is as long as its range allows.
  package var hasJitter = true
  /// Up to which the engine's own waits double while requests fail, in milliseconds.
  package var waitMillisecondsMax: Int64 = 29 * 60_000
  /// Between automatic runs if nothing is written, in milliseconds.
  package var pollMilliseconds: Int64 = 60_000
  /// The same while runs fail. A run before the end of a wait sends nothing.
  private static let failedPollMillisecondsMax: Int64 = 300_000
  /// Waits up to here are drawn from their second half.
  private static let shortMillisecondsMax: Int64 = 300_000

  /// From where waits are drawn; nil: from the store's random numbers. A fleet draws them apart from what logs draw on their
  /// own threads, so that its seed has one outcome.
  package var random: (any RandomSource)?

  package init() {}

  /// The wait after so many failures in a row of one kind of request.
  ///
  /// A short one is drawn between half and all of it. When requests have failed for hours, nearly all devices owe something,
  /// and their server must not get it in the few minutes after its return. So a long wait is drawn evenly from up to 7/4 of
  /// the greatest one and cut there: at any moment the rest of a device's wait is then spread over the whole greatest wait,
  /// with somewhat more devices early, when those that have returned do not ask much yet.
  func ownWait(failures: Int, _ random: any RandomSource) -> Int64 {
    let whole = min(waitMillisecondsMax, 1000 << min(max(failures - 1, 0), 16))
    guard hasJitter else { return whole }
    guard whole > Self.shortMillisecondsMax else { return Self.jittered(whole, random) }
    return max(Self.shortMillisecondsMax / 2, min(whole, Int64(random.below(UInt64(whole / 4 * 7) + 1))))
  }

  /// The time between automatic runs after so many that failed in a row.
  func poll(failures: Int64, _ random: any RandomSource) -> Int64 {
    let whole = failures == 0 ? pollMilliseconds : min(Self.failedPollMillisecondsMax, 1000 << min(failures, 9))
    return hasJitter ? Self.jittered(whole, random) : whole
  }

  /// When a device comes to what is due. To many of them the server may name one wait, and they must not return at one
  /// moment, so each comes up to a quarter later. The engine's own waits are drawn already.
  func late(_ due: NextDue, _ random: any RandomSource) -> Int64 {
    guard hasJitter, due.isServers else { return due.milliseconds }
    return due.milliseconds + Int64(random.below(UInt64(min(due.milliseconds, waitMillisecondsMax) / 4) + 1))
  }

  /// Between half and all of it.
  private static func jittered(_ milliseconds: Int64, _ random: any RandomSource) -> Int64 {
    milliseconds / 2 + Int64(random.below(UInt64(milliseconds / 2) + 1))
  }
}

/// When something is due that waits.
package struct NextDue: Sendable {
  package var milliseconds: Int64
  /// Whether the server named the wait.
  package var isServers: Bool
}

/// What follows a run of an engine that runs by itself.
package struct RunSchedule: Sendable {
  private let pace: SyncPace
  /// Runs that failed, in a row.
  private var failures: Int64 = 0
  /// From a write to the automatic run after it, so that writes in quick succession share requests.
  private static let debounceMilliseconds: Int64 = 500

  package init(_ pace: SyncPace) { self.pace = pace }

  /// A run has ended. Returns how long the engine waits for a signal before the next one.
  ///
  /// - Parameter due: when something is due that waits; nil if nothing does.
  package mutating func runEnded(hasFailed: Bool, due: NextDue?, _ random: any RandomSource) -> Int64 {
    failures = hasFailed ? failures + 1 : 0
    let poll = pace.poll(failures: failures, random)
    return due.map { min(poll, pace.late($0, random)) } ?? poll
  }

  /// How long the run still waits when there was a signal, or its time has come.
  package static func debounce(_ causes: Set<SyncCause>) -> Int64 { causes.isEmpty ? debounceMilliseconds : 0 }

  /// The options of the next run.
  package static func options(_ causes: Set<SyncCause>) -> CycleOptions {
    var options = CycleOptions()
    options.waitMillisecondsMax = 0
    options.mayEndEarly = true
    options.isUserInitiated = !causes.isDisjoint(with: [.foreground, .networkReturned])
    return options
  }
}
