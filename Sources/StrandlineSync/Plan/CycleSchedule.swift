// When an engine makes its automatic cycles, as a rule without a clock: the engine follows it in real time, and `simulate --fleet` for
// thousands of devices in simulated time.

package import StrandlineSystem

/// Why an engine should ask the server now.
public enum SyncCause: Hashable, Sendable {
  /// A push has arrived: the server has changes.
  case push
  /// The network is back. The same waits end as with `foreground`. Many devices may notice it at the same moment, so each waits a
  /// little first (`SyncPace.spread`).
  case networkReturned
  /// The app came to the foreground. The engine's own waits end, those of held records too, and halted types, zones and saves to full
  /// storage are tried again. Waits that the server named are kept.
  case foreground
}

/// How an engine spreads its requests over time, so that many devices do not load their server at the same moment.
///
/// A wait that the server names is always kept in full, 48 hours at most.
package struct SyncPace: Hashable, Sendable {
  /// The time from a write of the app to the automatic cycle after it, so that writes in quick succession share requests. Half a
  /// second by default; 0: at once.
  package var debounce: Duration = .milliseconds(500)

  /// The longest random delay before the cycle after an event that many devices see at the same moment: all of it after the
  /// network's return, a quarter of it after a push. A second by default; 0, or a debounce of 0: at once. When the app
  /// comes to the foreground there is no delay.
  package var spread: Duration = .seconds(1)

  /// The time between automatic cycles if nothing is written; each is random, between half and all of it. A minute by default, a
  /// second at least.
  package var poll: Duration = .seconds(60)

  /// The longest of the engine's own waits, which double from one second while requests fail; a second at least.
  ///
  /// 29 minutes by default: after ten minutes without a server a device waits up to five minutes, and only after an hour up
  /// to 29. By then nearly all devices have pending changes, and if each tried every five minutes, the tries alone would be more
  /// than the load of a usual day. A person, the app's foreground and the network's return end such a wait.
  package var longestWait: Duration = .seconds(29 * 60)

  /// For tests: waits of five minutes at most, as for a server that can take all devices at once.
  package static let prompt: SyncPace = {
    var pace = SyncPace()
    pace.longestWait = .seconds(300)
    return pace
  }()

  /// How much rarer automatic cycles are on a device that is short of power, or whose network is metered.
  static let constrainedFactor: Int64 = 10
  /// The longest time between cycles that fail. A cycle before the end of a wait sends nothing.
  private static let failedPollMillisecondsMax: Int64 = 300_000
  /// Waits up to here get jitter in their second half.
  private static let shortMillisecondsMax: Int64 = 300_000

  /// Whether waits are random. If not, each is as long as its range allows: to measure a fleet without jitter.
  package var hasJitter = true

  /// The default pace.
  package init() {}

  private var waitMillisecondsMax: Int64 { max(1_000, longestWait.wholeMilliseconds) }

  /// The wait after a number of failures in a row of one kind of request.
  ///
  /// A short one is random, between half and all of its length. After hours of failures nearly all devices have pending changes,
  /// and the server must not get them all in the minutes after its return. So a long wait is uniform up to 7/4 of the longest one,
  /// and cut at the longest: the rest of the devices' waits is then spread over all of it, with somewhat more devices early.
  func ownWait(failures: Int, _ random: any RandomSource) -> Int64 {
    let whole = min(waitMillisecondsMax, 1000 << min(max(failures - 1, 0), 16))
    guard hasJitter else { return whole }
    guard whole > Self.shortMillisecondsMax else { return Self.jittered(whole, random) }
    return max(Self.shortMillisecondsMax / 2, min(whole, Int64(random.below(UInt64(whole / 4 * 7) + 1))))
  }

  /// The time between automatic cycles after a number of failed ones in a row.
  func poll(failures: Int64, isConstrained: Bool, _ random: any RandomSource) -> Int64 {
    let usual = max(1_000, poll.wholeMilliseconds)
    let (rare, isOver) = usual.multipliedReportingOverflow(by: isConstrained ? Self.constrainedFactor : 1)
    let whole = failures == 0 ? (isOver ? .max : rare) : min(Self.failedPollMillisecondsMax, 1000 << min(failures, 9))
    return hasJitter ? Self.jittered(whole, random) : whole
  }

  /// When a device's cycle begins after a wait. The server may name the same wait to many devices, so each comes up to a quarter
  /// later. The engine's own waits are random already.
  func late(_ due: NextDue, _ random: any RandomSource) -> Int64 {
    guard hasJitter, due.isServers else { return due.milliseconds }
    return due.milliseconds + Int64(random.below(UInt64(min(due.milliseconds, waitMillisecondsMax) / 4) + 1))
  }

  /// The random delay before a cycle with these causes.
  func spread(over causes: Set<SyncCause>, _ random: any RandomSource) -> Int64 {
    guard hasJitter, !causes.contains(.foreground), debounce > .zero else { return 0 }
    let whole = max(0, spread.wholeMilliseconds) / (causes.contains(.networkReturned) ? 1 : 4)
    return whole == 0 ? 0 : Int64(random.below(UInt64(whole) &+ 1))
  }

  /// A random length between half and all of it.
  private static func jittered(_ milliseconds: Int64, _ random: any RandomSource) -> Int64 {
    milliseconds / 2 + Int64(random.below(UInt64(milliseconds / 2) + 1))
  }
}

/// When the next cycle of an automatic engine begins.
package struct CycleSchedule: Sendable {
  private let pace: SyncPace
  /// Cycles in a row that failed.
  private var failures: Int64 = 0

  package init(_ pace: SyncPace) { self.pace = pace }

  /// A cycle has ended. Returns how long the engine waits for a signal before the next one.
  ///
  /// - Parameters:
  ///   - due: the end of the first timed wait; nil if there is none.
  ///   - isConstrained: the device is short of power, or its network is metered.
  package mutating func cycleEnded(
    hasFailed: Bool, due: NextDue?, isConstrained: Bool = false, _ random: any RandomSource
  ) -> Int64 {
    failures = hasFailed ? failures + 1 : 0
    let poll = pace.poll(failures: failures, isConstrained: isConstrained, random)
    return due.map { min(poll, pace.late($0, random)) } ?? poll
  }

  /// The delay before the next cycle, after a signal or at the end of the wait.
  package func debounce(
    _ causes: Set<SyncCause>, isConstrained: Bool = false, _ random: any RandomSource
  ) -> Int64 {
    guard causes.isEmpty else { return pace.spread(over: causes, random) }
    let usual = max(0, pace.debounce.wholeMilliseconds)
    let (rare, isOver) = usual.multipliedReportingOverflow(by: isConstrained ? SyncPace.constrainedFactor : 1)
    return isOver ? .max : rare
  }

  /// The options of the next cycle.
  package static func options(_ causes: Set<SyncCause>) -> CycleOptions {
    var options = CycleOptions()
    options.waitMillisecondsMax = 0
    options.mayEndEarly = true
    options.isUserInitiated = !causes.isDisjoint(with: [.foreground, .networkReturned])
    return options
  }
}
