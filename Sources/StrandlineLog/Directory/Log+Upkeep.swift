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
  private let state = Mutex(State())

  private struct State: Sendable {
    var report = UpkeepReport()
    /// Predecessors whose reserved space can be given back.
    var finished: [(segmentID: UInt64, end: UInt64)] = []
    var isQueued = false
    var isOver = false
    /// By the monotonic clock: nothing is tried before.
    var notBefore: UInt64 = 0
  }

  static let backoffFirstMilliseconds: UInt64 = 1_000
  static let backoffLastMilliseconds: UInt64 = 300_000

  var report: UpkeepReport { state.withLock { $0.report } }

  func add(_ finished: (segmentID: UInt64, end: UInt64)) { state.withLock { $0.finished.append(finished) } }

  func takeFinished() -> [(segmentID: UInt64, end: UInt64)] {
    state.withLock { state in
      defer { state.finished = [] }
      return state.finished
    }
  }

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

  var isOver: Bool { state.withLock { $0.isOver } }

  /// Begins nothing any more, and waits for what was begun.
  func end() {
    state.withLock { $0.isOver = true }
    queue.sync {}
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
      do {
        try self.prepareSegment()
        try self.mergeSegments()
      } catch {
        // Kept in the report by whoever failed.
      }
    }
  }

  /// Makes the next segment, so that going on in it costs a commit nothing; does nothing if one is ready. Also gives
  /// reserved space of finished segments back, and raises the bounds in CONTROL.
  ///
  /// - Throws: `.io` or `.full`; the log goes on without.
  package func prepareSegment() throws(LogError) {
    do throws(LogError) {
      try giveSpaceBack()
      do throws(WriteFailure) {
        try preparation.make()
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

  /// Segments that are finished have no use for what is reserved behind their end.
  private func giveSpaceBack() throws(LogError) {
    let finished = upkeep.takeFinished()
    guard !finished.isEmpty else { return }
    do {
      for segment in finished {
        do {
          try SegmentWriter.truncate(
            keeper.environment.fileSystem, keeper.directory.segment(segment.segmentID), to: segment.end)
        } catch  where error.isAbsent {
          // Merged meanwhile.
          continue
        }
      }
      let bounds = commit.withLock { $0.bounds }
      // Barriers alone bound nothing: a suffix may be missing after a power cut.
      guard options.strength == .durable, let bounds else { return }
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

  /// Makes everything that is durable so in the full sense: what leaves the device must not be ahead of what a power
  /// cut leaves (decision L9). Costs nothing where groups are synced with `.durable`.
  ///
  /// - Throws: `.outcomeUnknown`, which poisons the log; `.poisoned`, `.rejected`, `.closed`.
  package func flush() throws(LogError) {
    try commit.withLock { state throws(LogError) in try state.checkWritable() }
    guard options.strength != .durable else { return }
    disk.withLock { writer in
      do throws(SystemError) {
        try writer.flush()
      } catch {
        commit.withLock { $0.poison(error) }.tell()
      }
    }
    try commit.withLock { state throws(LogError) in
      if case .poisoned(let error) = state.phase { throw error }
    }
  }
}
