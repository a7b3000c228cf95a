// What a log does for itself beside commits: reserved space given back, the ballast made, small segments merged. A failure
// is kept to be looked at, and tried again later.

import Dispatch
import StrandlineSystem
import Synchronization

extension Log {
  /// How the upkeep goes: what failed last, and how often.
  package var upkeepReport: UpkeepReport {
    var report = upkeep.report
    if let failure = keeper.hold.lookFailure {
      report.failure = report.failure ?? .system("cannot look whether the store is still at '\(path)'", failure)
      report.failures += 1
    }
    return report
  }

  /// Queues a round of upkeep, unless one is queued or the last one failed a moment ago.
  func lookAfterFiles() {
    guard upkeep.begins(now: clock.monotonicNanoseconds()) else { return }
    upkeep.queue.async { [weak self] in
      guard let self else { return }
      defer { self.upkeep.roundEnded() }
      self.attempt(.freeing) {
        try self.upkeep.enter()
        defer { self.upkeep.leave() }
        self.freeSpace(isClosing: false)
      }
      self.attempt(.ballast) {
        // Its space is needed for the copy first.
        try self.checkCopied()
        try self.upkeep.enter()
        defer { self.upkeep.leave() }
        try self.makeBallast()
      }
      self.attempt(.merging) { try self.mergeSegments() }
    }
  }

  /// Each piece for itself: one that fails says so in the report, and hinders no other.
  private func attempt(_ kind: UpkeepKind, _ work: () throws -> Void) {
    guard upkeep.isDue(kind, now: clock.monotonicNanoseconds()) else { return }
    do { try work() } catch { return }
  }

  /// Waits until the round of upkeep that is queued, if one is, has ended. Blocks; for tests and benchmarks.
  package func waitForUpkeep() { upkeep.queue.sync {} }

  /// Gives back what finished segments do not need, raises the bound in CONTROL, and makes the ballast if it is not there.
  ///
  /// - Throws: `.io` or `.full`, if the ballast cannot be made; the log goes on without.
  package func maintain() throws(LogError) {
    try checkCopied()
    try upkeep.enter()
    defer { upkeep.leave() }
    // Fails for itself: the ballast does not depend on it.
    freeSpace(isClosing: false)
    try keeper.check()
    try makeBallast()
  }

  /// Sets space aside again that an open on a full disk has used up.
  private func makeBallast() throws(LogError) {
    do throws(SystemError) {
      try Ballast(directory: keeper.directory, bytes: options.ballastBytes).make()
      upkeep.succeeded(.ballast)
    } catch {
      let failure = LogError.system("cannot set space aside in '\(path)'", error)
      upkeep.failed(.ballast, failure, now: clock.monotonicNanoseconds())
      throw failure
    }
  }

  /// A writer that came for a moment does so too, if it has appended. If that fails, the next one tries again.
  func makeBallastAtClose(_ writer: borrowing SegmentWriter) {
    guard writer.hasAppended else { return }
    do throws(LogError) { try makeBallast() } catch { return }
  }

  static func failure(_ doing: String, _ error: WriteFailure) -> LogError {
    error.error(doing)
  }

  /// Gives back what an open or a rotation left to be given back, and nothing else. What fails is in the report: it
  /// costs space alone.
  func freeSpace(isClosing: Bool) {
    do throws(LogError) {
      // Files are opened and removed by name here.
      try keeper.check()
      // A close says in CONTROL how far the log reaches when it has ended it.
      if try giveSpaceBack(), !isClosing { try writeBound() }
      upkeep.succeeded(.freeing)
    } catch {
      upkeep.failed(.freeing, error, now: clock.monotonicNanoseconds())
    }
  }

  /// Segments that are finished have no use for what is reserved behind their end, and those that no list names for
  /// anything.
  ///
  /// - Returns: whether there was one that is finished.
  private func giveSpaceBack() throws(LogError) -> Bool {
    if let failure = keeper.removeDropped() { throw .system("cannot remove old segments of '\(path)'", failure) }
    var hasFinished = false
    while let segment = upkeep.takeFinished() {
      hasFinished = true
      do {
        try keeper.truncate(segment.segmentID, to: segment.end)
      } catch  where error.isAbsent {
        // Merged meanwhile.
        continue
      } catch {
        // Tried again with the next round.
        upkeep.add(segment)
        throw .system("cannot give space of '\(path)' back", error)
      }
    }
    return hasFinished
  }

  /// Says in CONTROL how far the log is durable now, and syncs it: once for each segment that a writer has left.
  private func writeBound() throws(LogError) {
    guard let bound = queue.withLock({ $0.bound }) else { return }
    do throws(WriteFailure) {
      try keeper.hold.write(bound)
    } catch {
      throw error.error("cannot write the bound in '\(keeper.directory.control)'")
    }
    queue.withLock { $0.raised(to: bound) }
  }
}
