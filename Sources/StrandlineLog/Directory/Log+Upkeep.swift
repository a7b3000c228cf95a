// What a log does for itself beside commits: the next segment made ahead, reserved space given back, small segments
// merged. None of it is needed for an append to be durable, all of it can fail without one being lost, and a failure
// is kept to be looked at and tried again later.

import Dispatch
import StrandlineSystem
import Synchronization

/// The pieces of upkeep. Each fails, waits and succeeds for itself: a merge that finds damage holds up no segment that
/// is made ahead.
enum UpkeepKind: Sendable {
  case freeing, preparing, merging, compacting
}

/// How the upkeep of a log goes.
package struct UpkeepReport: Sendable {
  /// The last failure that no success of its kind has followed.
  package var failure: LogError?
  /// How many such failures there were in a row.
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
    /// What fails at present, in the order of its last failure.
    var failing: [(kind: UpkeepKind, failure: Failure)] = []
    /// By the monotonic clock: no round begins before.
    var roundNotBefore: UInt64 = 0
    var compaction: Compaction?
    var compactionsAsked: UInt64 = 0
  }

  private struct Failure: Sendable {
    var error: LogError
    var count = 1
    /// By the monotonic clock: it is not tried before.
    var notBefore: UInt64
  }

  /// A compaction that was asked for and has not succeeded yet.
  struct Compaction: Sendable {
    var number: UInt64 = 0
    let limit: UInt64
    let survivors: @Sendable ([LogEvent]) throws -> [LogSurvivor]
  }

  /// Whether there is something to do that no commit asks for.
  var hasWork: Bool { work.load(ordering: .relaxed) }
  private let work = Atomic(false)

  func ask(for compaction: Compaction) {
    state.withLock { state in
      state.compactionsAsked += 1
      state.compaction = compaction
      state.compaction?.number = state.compactionsAsked
      work.store(true, ordering: .relaxed)
    }
  }

  var compaction: Compaction? { state.withLock { $0.compaction } }

  /// It was done; another one, that was asked for meanwhile, was not.
  func isDone(_ compaction: Compaction) {
    state.withLock { state in
      guard state.compaction?.number == compaction.number else { return }
      state.compaction = nil
      work.store(false, ordering: .relaxed)
    }
  }

  static let backoffFirstMilliseconds: UInt64 = 1_000
  static let backoffLastMilliseconds: UInt64 = 300_000

  var report: UpkeepReport {
    state.withLock { state in
      var report = state.report
      report.failure = state.failing.last?.failure.error
      report.failures = state.failing.reduce(0) { $0 + $1.failure.count }
      return report
    }
  }

  func add(_ finished: (segmentID: UInt64, end: UInt64)) { state.withLock { $0.finished.append(finished) } }

  /// In their order, so that one that fails and is added again stands behind the others.
  func takeFinished() -> (segmentID: UInt64, end: UInt64)? {
    state.withLock { $0.finished.isEmpty ? nil : $0.finished.removeFirst() }
  }

  /// Whether the caller is to queue a round: nobody has, and no round has failed in the last second.
  func begins(now: UInt64) -> Bool {
    state.withLock { state in
      guard !state.isQueued, !state.isOver, now >= state.roundNotBefore else { return false }
      state.isQueued = true
      return true
    }
  }

  /// Whether its last failure, if it failed last, is long enough ago.
  func isDue(_ kind: UpkeepKind, now: UInt64) -> Bool {
    state.withLock { state in state.failing.first { $0.kind == kind }.map { now >= $0.failure.notBefore } ?? true }
  }

  func succeeded(_ kind: UpkeepKind, _ change: (inout UpkeepReport) -> Void = { _ in }) {
    state.withLock { state in
      state.failing.removeAll { $0.kind == kind }
      change(&state.report)
    }
  }

  /// The next attempt waits: a second, then twice as long each time, five minutes at most.
  func failed(_ kind: UpkeepKind, _ error: LogError, now: UInt64) {
    state.withLock { state in
      var failure = Failure(error: error, notBefore: 0)
      if let before = state.failing.first(where: { $0.kind == kind })?.failure { failure.count += before.count }
      let doubled = Self.backoffFirstMilliseconds << UInt64(min(failure.count - 1, 20))
      failure.notBefore = now &+ min(doubled, Self.backoffLastMilliseconds) * 1_000_000
      state.failing.removeAll { $0.kind == kind }
      state.failing.append((kind, failure))
      state.roundNotBefore = now &+ Self.backoffFirstMilliseconds * 1_000_000
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
      self.attempt(.freeing) {
        try self.upkeep.enter()
        defer { self.upkeep.leave() }
        self.freeSpace(isClosing: false)
      }
      self.attempt(.preparing) { if self.isInWant { try self.prepareSegment() } }
      self.attempt(.merging) { try self.mergeSegments() }
      self.attempt(.compacting) {
        while let asked = self.upkeep.compaction {
          try self.compact(upTo: asked.limit, survivors: asked.survivors)
          self.upkeep.isDone(asked)
        }
      }
    }
  }

  /// Each piece for itself: what fails is in the report by whoever failed, and hinders nothing else.
  private func attempt(_ kind: UpkeepKind, _ work: () throws -> Void) {
    guard upkeep.isDue(kind, now: clock.monotonicNanoseconds()) else { return }
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
      // Fails for itself: the next segment does not depend on it.
      freeSpace(isClosing: false)
      try makeBallast()
      do throws(WriteFailure) {
        try preparation.make(softBytes: disk.withLock { $0.nextSoftBytes })
      } catch {
        throw Self.failure("cannot make the next segment of '\(path)' ahead", error)
      }
      upkeep.succeeded(.preparing)
    } catch {
      upkeep.failed(.preparing, error, now: clock.monotonicNanoseconds())
      throw error
    }
  }

  /// Sets space aside again that an open on a full disk has used up.
  private func makeBallast() throws(LogError) {
    do throws(SystemError) {
      try Ballast(
        fileSystem: keeper.environment.fileSystem, directory: keeper.directory, bytes: options.ballastBytes
      ).make()
    } catch {
      throw .system("cannot set space aside in '\(path)'", error)
    }
  }

  /// A writer that came for a moment does so too, if it has appended. If that fails, the next one tries again.
  func makeBallastAtClose(_ writer: borrowing SegmentWriter) {
    guard writer.hasAppended else { return }
    do throws(LogError) {
      try makeBallast()
      upkeep.succeeded(.preparing)
    } catch {
      upkeep.failed(.preparing, error, now: clock.monotonicNanoseconds())
    }
  }

  static func failure(_ doing: String, _ error: WriteFailure) -> LogError {
    switch error {
    case .refused(let cause), .unknown(let cause): .system(doing, cause, file: cause.subject)
    }
  }

  /// Gives back what an open or a rotation left to be given back, and nothing else. What fails is in the report: it
  /// costs space alone.
  func freeSpace(isClosing: Bool) {
    do throws(LogError) {
      // A close says in CONTROL how far the log reaches when it has ended it.
      if try giveSpaceBack(), !isClosing { try raiseBounds() }
      upkeep.succeeded(.freeing)
    } catch {
      upkeep.failed(.freeing, error, now: clock.monotonicNanoseconds())
    }
  }

  /// Segments that are finished have no use for what is reserved behind their end, and obsolete ones for nothing.
  ///
  /// - Returns: whether there was one that is finished.
  private func giveSpaceBack() throws(LogError) -> Bool {
    keeper.removeObsolete()
    var hasFinished = false
    while let segment = upkeep.takeFinished() {
      hasFinished = true
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
    return hasFinished
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
