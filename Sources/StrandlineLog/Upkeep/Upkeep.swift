// The state of what a log does for itself beside commits: what is to be done, what failed, and when it is tried again.
// None of it is needed for an append to be durable, and all of it can fail without one being lost.

import Dispatch
import StrandlineSystem

/// The pieces of upkeep. Each fails, waits and succeeds for itself: a merge that finds damage keeps no space from being
/// given back.
enum UpkeepKind: Sendable {
  case freeing, ballast, raising, merging, compacting
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
  /// Held by the thread that rewrites segments.
  let rewriting = OrderedMutex(.rewriting, ())
  private let state = OrderedMutex(State())

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
  }

  private struct Failure: Sendable {
    var error: LogError
    var count = 1
    /// By the monotonic clock: it is not tried before.
    var notBefore: UInt64
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

  /// Whether the caller is to queue a round: none is queued, and none has failed in the last second.
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

  /// Its last failure, if it failed last.
  func failure(of kind: UpkeepKind) -> LogError? {
    state.withLock { state in state.failing.first { $0.kind == kind }?.failure.error }
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
