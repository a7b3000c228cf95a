// One disk after a crash, held against what was issued: the judge that all crash tests of the log share.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// How a disk after a crash is judged. A reader and `verify` look first and change nothing; then one opens, the power
/// goes, and another opens: both must return the same, and what was appended in between must hold.
struct CrashChecker {
  var strength = SyncStrength.durable
  var options: LogOptions

  /// Judges `image`. With `isBusy` the first writer appends, the second closes cleanly, and a third opens.
  ///
  /// - Throws: `LogProblem`.
  func check(_ image: SimulatedDisk, _ bounds: LogBounds, seed: UInt64, isBusy: Bool) throws {
    do {
      let seen = try look(image, bounds, seed: seed)
      let opened = try reopen(image, bounds, seed: seed, isBusy: isBusy)
      guard seen.map({ $0 == opened }) ?? (opened == 0) else {
        throw LogProblem("a reader found \(seen ?? 0) events, and an open \(opened)")
      }
    } catch let error as LogError {
      throw LogProblem("a false alarm: \(error)")
    }
  }

  /// A reader and `verify` see what a writer would. Returns how many events that is; nil if there is no store yet.
  private func look(_ image: SimulatedDisk, _ bounds: LogBounds, seed: UInt64) throws -> Int? {
    guard try image.kind(of: LogHistories.path) == .directory else { return nil }
    let calls = image.callCount
    let environment = SystemEnvironment.simulated(image, seed: seed)
    var seen: [LogEvent] = []
    try LogReader.open(at: LogHistories.path, environment: environment).poll { seen.append($0) }
    let reach = try bounds.check(seen, by: "a reader")
    let report = try LogVerifier.verify(at: LogHistories.path, environment: environment)
    guard !report.isDamaged, report.lastLSN >= seen.last?.lsn ?? 0, report.lastLSN <= UInt64(reach) else {
      throw LogProblem("a reader found LSN \(reach), and verify says \(report)")
    }
    guard image.callCount == calls else { throw LogProblem("looking changed the disk") }
    return seen.count
  }

  /// Opens, cuts the power, opens again. Returns how many events the first open returned.
  private func reopen(_ disk: SimulatedDisk, _ bounds: LogBounds, seed: UInt64, isBusy: Bool) throws -> Int {
    func scene(_ disk: SimulatedDisk, _ number: UInt64, _ bounds: LogBounds) -> LogScene {
      LogScene(disk: disk, seed: seed &+ number, strength: strength, after: bounds, options: options)
    }
    let first = scene(disk, 1, bounds)
    try first.open()
    let opened = first.replayed.count
    if isBusy { try first.perform(.small) }
    first.letGo()
    // What was returned or acknowledged once is there from now on, although nothing was closed.
    let afterFirst = first.bounds(beforeCall: .max)
    let second = scene(disk.imageAfterCrash(.none), 2, afterFirst.afterPowerCut)
    try second.open()
    try requireSame(second, afterFirst, opened + (isBusy ? 1 : 0))
    guard isBusy else { return opened }
    try second.perform(.small)
    try second.perform(.close)
    second.letGo()
    let afterSecond = second.bounds(beforeCall: .max)
    let third = scene(second.disk.imageAfterCrash(.none), 3, afterSecond.afterPowerCut)
    try third.open()
    try requireSame(third, afterSecond, opened + 2)
    return opened
  }

  private func requireSame(_ scene: LogScene, _ bounds: LogBounds, _ count: Int) throws {
    guard strength == .durable, scene.replayed.count != count else { return }
    throw LogProblem("an open returned \(scene.replayed.count) events, the one before it left \(count)")
  }
}
