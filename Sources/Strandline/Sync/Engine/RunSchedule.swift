// When an engine makes its automatic runs: the rule, without the clock that it is kept by. The engine follows it in real
// time, the fleet of `simulate --fleet` for thousands of devices in simulated time.

package import StrandlineSystem

/// How an engine spreads its requests over time, so that many devices do not load their server at the same moment.
///
/// A wait that the server names is kept in full whatever stands here, 48 hours at most.
public struct SyncPace: Hashable, Sendable {
  /// From a write of the app to the automatic run after it, so that writes in quick succession share requests. Half a second
  /// by default; 0: at once.
  public var debounce: Duration = .milliseconds(500)

  /// Over which the devices of an app spread what a moment that they share makes them do: from the network's return to the
  /// automatic run after it each waits between nothing and all of this, drawn at random. A push is waited for up to a quarter of
  /// it. A second by default; 0, or a debounce of 0: at once. The app's foreground is one person's, and waits for nothing.
  public var spread: Duration = .seconds(1)

  /// Between automatic runs if nothing is written: each is drawn between half and all of it. A minute by default, a second at
  /// least.
  public var poll: Duration = .seconds(60)

  /// Up to which the engine's own waits double, from a second on, while requests fail; a second at least.
  ///
  /// 29 minutes by default: after ten minutes without a server a device waits up to five minutes, and only after an hour up
  /// to 29. By then nearly all devices of an app owe something, and with five minutes for all of them the tries alone are more
  /// than what they ask of the server on a usual day. A person, the app's foreground and the network's return end such a wait.
  public var longestWait: Duration = .seconds(29 * 60)

  /// Waits of five minutes at most: for an app with few devices, or a server that has room for all of them at once.
  public static let prompt: SyncPace = {
    var pace = SyncPace()
    pace.longestWait = .seconds(300)
    return pace
  }()

  /// On a device that is short of power, or whose network is metered, what the app has not asked for is this much rarer.
  static let constrainedFactor: Int64 = 10
  /// While runs fail they come at least so often. A run before the end of a wait sends nothing.
  private static let failedPollMillisecondsMax: Int64 = 300_000
  /// Waits up to here are drawn from their second half.
  private static let shortMillisecondsMax: Int64 = 300_000

  /// Waits are drawn at random from a range. If false, each is as long as its range allows: to see what the fleet is without.
  package var hasJitter = true

  /// The pace of `debounce`, `poll` and `longestWait`.
  public init() {}

  private var waitMillisecondsMax: Int64 { max(1_000, longestWait.wholeMilliseconds) }

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
  func poll(failures: Int64, isConstrained: Bool, _ random: any RandomSource) -> Int64 {
    let usual = max(1_000, poll.wholeMilliseconds)
    let (rare, isOver) = usual.multipliedReportingOverflow(by: isConstrained ? Self.constrainedFactor : 1)
    let whole = failures == 0 ? (isOver ? .max : rare) : min(Self.failedPollMillisecondsMax, 1000 << min(failures, 9))
    return hasJitter ? Self.jittered(whole, random) : whole
  }

  /// When a device comes to what is due. To many of them the server may name one wait, and they must not return at one
  /// moment, so each comes up to a quarter later. The engine's own waits are drawn already.
  func late(_ due: NextDue, _ random: any RandomSource) -> Int64 {
    guard hasJitter, due.isServers else { return due.milliseconds }
    return due.milliseconds + Int64(random.below(UInt64(min(due.milliseconds, waitMillisecondsMax) / 4) + 1))
  }

  /// How long the run waits that some causes have asked for.
  func spread(over causes: Set<SyncCause>, _ random: any RandomSource) -> Int64 {
    guard hasJitter, !causes.contains(.foreground), debounce > .zero else { return 0 }
    let whole = max(0, spread.wholeMilliseconds) / (causes.contains(.networkReturned) ? 1 : 4)
    return whole == 0 ? 0 : Int64(random.below(UInt64(whole) &+ 1))
  }

  /// Between half and all of it.
  private static func jittered(_ milliseconds: Int64, _ random: any RandomSource) -> Int64 {
    milliseconds / 2 + Int64(random.below(UInt64(milliseconds / 2) + 1))
  }
}

/// What follows a run of an engine that runs by itself.
package struct RunSchedule: Sendable {
  private let pace: SyncPace
  /// Runs that failed, in a row.
  private var failures: Int64 = 0

  package init(_ pace: SyncPace) { self.pace = pace }

  /// A run has ended. Returns how long the engine waits for a signal before the next one.
  ///
  /// - Parameters:
  ///   - due: when something is due that waits; nil if nothing does.
  ///   - isConstrained: the device is short of power, or its network is metered.
  package mutating func runEnded(
    hasFailed: Bool, due: NextDue?, isConstrained: Bool = false, _ random: any RandomSource
  ) -> Int64 {
    failures = hasFailed ? failures + 1 : 0
    let poll = pace.poll(failures: failures, isConstrained: isConstrained, random)
    return due.map { min(poll, pace.late($0, random)) } ?? poll
  }

  /// How long the run still waits when there was a signal, or its time has come.
  package func debounce(
    _ causes: Set<SyncCause>, isConstrained: Bool = false, _ random: any RandomSource
  ) -> Int64 {
    guard causes.isEmpty else { return pace.spread(over: causes, random) }
    let usual = max(0, pace.debounce.wholeMilliseconds)
    let (rare, isOver) = usual.multipliedReportingOverflow(by: isConstrained ? SyncPace.constrainedFactor : 1)
    return isOver ? .max : rare
  }

  /// The options of the next run.
  package static func options(_ causes: Set<SyncCause>) -> CycleOptions {
    var options = CycleOptions()
    options.waitMillisecondsMax = 0
    options.mayEndEarly = true
    options.isUserInitiated = !causes.isDisjoint(with: [.foreground, .networkReturned])
    return options
  }
}
