// What a log does for itself beside commits: the next segment made ahead, reserved space given back, small segments
// merged. None of it is needed for an append to be durable, all of it can fail without one being lost, and a failure
// is kept to be looked at and tried again later.

import Dispatch
import StrandlineSystem
import Synchronization

/// How the upkeep of a log goes.
package struct UpkeepReport: Sendable {
  /// The last failure that no success has followed.
  package var failure: LogError?
  /// How many failures there were in a row.
  package var failures = 0
  package var segmentsMerged = 0
  package var compactions = 0

  package init() {}
}

/// The state of a log's upkeep.
final class Upkeep: Sendable {
  let queue = DispatchQueue(label: "strandline.log.upkeep", qos: .utility)
  /// Work that changes files beside commits, under way.
  private let underWay = DispatchGroup()
  /// Held by whoever rewrites segments.
  let rewriting = Mutex(())
  private let state = Mutex(State())

  private struct State: Sendable {
    var report = UpkeepReport()
    /// Predecessors whose reserved space can be given back.
    var finished: [(segmentID: UInt64, end: UInt64)] = []
    var isQueued = false
    var isOver = false
    /// By the monotonic clock: nothing is tried before.
    var notBefore: UInt64 = 0
    var compaction: Compaction?
  }

  /// A compaction that was asked for and has not succeeded yet.
  struct Compaction: Sendable {
    let limit: UInt64
    let survivors: @Sendable ([LogEvent]) throws -> [LogSurvivor]
  }

  /// Whether there is something to do that no commit asks for.
  var hasWork: Bool { work.load(ordering: .relaxed) }
  private let work = Atomic(false)

  func ask(for compaction: Compaction) {
    state.withLock { $0.compaction = compaction }
    work.store(true, ordering: .relaxed)
  }

  var compaction: Compaction? { state.withLock { $0.compaction } }

  func compactionIsDone() {
    state.withLock { $0.compaction = nil }
    work.store(false, ordering: .relaxed)
  }

  static let backoffFirstMilliseconds: UInt64 = 1_000
  static let backoffLastMilliseconds: UInt64 = 300_000

  var report: UpkeepReport { state.withLock { $0.report } }

  func add(_ finished: (segmentID: UInt64, end: UInt64)) { state.withLock { $0.finished.append(finished) } }

  func takeFinished() -> (segmentID: UInt64, end: UInt64)? { state.withLock { $0.finished.popLast() } }

  /// Whether the caller is to queue a round: nobody has, and the last failure is long enough ago.
  func begins(now: UInt64) -> Bool {
    state.withLock { state in
      guard !state.isQueued, !state.isOver, now >= state.notBefore else { return false }
      state.isQueued = true
      return true
    }
  }

  func succeeded(_ change: (inout UpkeepReport) -> Void = { _ in }) {
    state.withLock { state in
      state.report.failure = nil
      state.report.failures = 0
      state.notBefore = 0
      change(&state.report)
    }
  }

  /// The next attempt waits: a second, then twice as long each time, five minutes at most.
  func failed(_ error: LogError, now: UInt64) {
    state.withLock { state in
      state.report.failure = error
      state.report.failures += 1
      let doubled = Self.backoffFirstMilliseconds << UInt64(min(state.report.failures - 1, 20))
      state.notBefore = now &+ min(doubled, Self.backoffLastMilliseconds) * 1_000_000
    }
  }

  func roundEnded() { state.withLock { $0.isQueued = false } }

  /// Begins a piece of work that changes files; `leave` ends it.
  ///
  /// - Throws: `.closed` when the log is being closed: no file is changed after its lock is given back.
  func enter() throws(LogError) {
    let isOver = state.withLock { state in
      if !state.isOver { underWay.enter() }
      return state.isOver
    }
    if isOver { throw CommitState.closed }
  }

  func leave() { underWay.leave() }

  /// Begins nothing any more, and waits for what was begun.
  func end() {
    state.withLock { $0.isOver = true }
    underWay.wait()
  }
}

extension Log {
  /// How the upkeep goes: what failed last, and how often.
  package var upkeepReport: UpkeepReport { upkeep.report }

  /// Queues a round of upkeep, unless one is queued or the last one failed a moment ago.
  func lookAfterFiles() {
    guard upkeep.begins(now: clock.monotonicNanoseconds()) else { return }
    upkeep.queue.async { [weak self] in
      guard let self else { return }
      defer { self.upkeep.roundEnded() }
      self.attempt {
        try self.upkeep.enter()
        defer { self.upkeep.leave() }
        self.freeSpace()
      }
      self.attempt { if self.isInWant { try self.prepareSegment() } }
      self.attempt { try self.mergeSegments() }
      self.attempt {
        guard let asked = self.upkeep.compaction else { return }
        try self.compact(upTo: asked.limit, survivors: asked.survivors)
        self.upkeep.compactionIsDone()
      }
    }
  }

  /// Each piece for itself: what fails is in the report by whoever failed, and hinders nothing else.
  private func attempt(_ work: () throws -> Void) {
    do { try work() } catch { return }
  }

  /// Asks for a compaction in the background. If it fails, the failure is in `upkeepReport`, and it is tried again
  /// with later commits: after a second at first, then after twice as long each time, five minutes at most. A later
  /// call takes the place of an earlier one that has not run. A log with upkeep on demand runs nothing by itself.
  package func compactInBackground(
    upTo limit: UInt64 = .max, survivors: @escaping @Sendable ([LogEvent]) throws -> [LogSurvivor]
  ) {
    upkeep.ask(for: Upkeep.Compaction(limit: limit, survivors: survivors))
    if options.upkeep == .inBackground { lookAfterFiles() }
  }

  /// Whether the live segment is half full and no other is ready.
  private var isInWant: Bool { disk.withLock { $0.wantsPreparation } }

  /// Waits until the round of upkeep that is queued, if one is, has ended. Blocks; for tests and benchmarks.
  package func waitForUpkeep() { upkeep.queue.sync {} }

  /// Makes the next segment, so that going on in it costs a commit nothing; does nothing if one is ready. Also gives
  /// back what finished segments do not need, and raises the bounds in CONTROL.
  ///
  /// - Throws: `.io` or `.full`; the log goes on without.
  package func prepareSegment() throws(LogError) {
    try upkeep.enter()
    defer { upkeep.leave() }
    do throws(LogError) {
      try giveSpaceBack()
      try raiseBounds()
      do throws(SystemError) {
        try Ballast(
          fileSystem: keeper.environment.fileSystem, directory: keeper.directory, bytes: options.ballastBytes
        ).make()
      } catch {
        throw LogError.system("cannot set space aside in '\(path)'", error)
      }
      do throws(WriteFailure) {
        try preparation.make(softBytes: disk.withLock { $0.nextSoftBytes })
      } catch {
        throw Self.failure("cannot make the next segment of '\(path)' ahead", error)
      }
      upkeep.succeeded()
    } catch {
      upkeep.failed(error, now: clock.monotonicNanoseconds())
      throw error
    }
  }

  static func failure(_ doing: String, _ error: WriteFailure) -> LogError {
    switch error {
    case .refused(let cause), .unknown(let cause): .system(doing, cause, file: cause.subject)
    }
  }

  /// Gives back what an open or a rotation left to be given back, and nothing else. What fails is in the report: it
  /// costs space alone.
  func freeSpace() {
    do throws(LogError) {
      try giveSpaceBack()
    } catch {
      upkeep.failed(error, now: clock.monotonicNanoseconds())
    }
  }

  /// Segments that are finished have no use for what is reserved behind their end, and obsolete ones for nothing.
  private func giveSpaceBack() throws(LogError) {
    keeper.removeObsolete()
    while let segment = upkeep.takeFinished() {
      do {
        try SegmentWriter.truncate(
          keeper.environment.fileSystem, keeper.directory.segment(segment.segmentID), to: segment.end)
      } catch  where error.isAbsent {
        // Merged meanwhile.
        continue
      } catch {
        // Tried again with the next round.
        upkeep.add(segment)
        throw .system("cannot give space of '\(path)' back", error)
      }
    }
  }

  /// Says in CONTROL how far the log is durable now.
  private func raiseBounds() throws(LogError) {
    // Barriers alone bound nothing: a suffix may be missing after a power cut.
    guard options.strength == .durable, let bounds = commit.withLock({ $0.bounds }) else { return }
    do {
      try keeper.bound { control in
        guard bounds.lsn >= control.durableLSN else { return }
        control.tailSegmentID = bounds.segmentID
        control.durableLSN = bounds.lsn
        control.fullFlushLSN = bounds.lsn
        control.durableEnd = bounds.end
        control.isClean = false
      }
    } catch {
      throw .system("cannot look after the files of '\(path)'", error)
    }
  }

  /// At the end of a clean use: nothing is left that was made ahead and not used.
  func endPreparation() throws(SystemError) {
    do throws(WriteFailure) {
      try preparation.end()
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause): throw cause
      }
    }
  }
}
