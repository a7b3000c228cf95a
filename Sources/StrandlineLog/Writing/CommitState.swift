// The queue's half of a commit: which LSNs were given, which groups wait, which callers wait for which LSN. A value without disk and
// without clock.
//
// Group commit: the thread that leads takes the first group, makes it durable with one sync, and wakes all callers that
// wait for it. Meanwhile the queue grows to the next group. There is no timer: a lone transaction is not held back, and many share
// a sync because they arrive while one is in flight.
//
// LSNs are given in the order of calls. They are final once durable, and also once a byte of them may be on disk;
// only after a rejection, when nothing of them is anywhere, are they given again.

import StrandlineSystem
import Synchronization

/// What becomes of an LSN that a caller waits for.
enum CommitOutcome: Sendable {
  case durable
  case failed(LogError)
}

/// What a log can do at the moment.
package enum LogState: Sendable {
  case open
  /// A group was refused before a byte of it was written. Nothing more is taken until `resume()`.
  case rejecting(LogError)
  /// A write or sync failed. Nothing more is taken until the log is opened again.
  case poisoned(LogError)
  case closed
}

struct CommitState: ~Copyable {
  private(set) var phase = LogState.open
  private(set) var nextLSN: UInt64
  private(set) var durableLSN: UInt64
  /// The chain up to it.
  private(set) var durableChain: UInt32
  /// What ended the log before it was closed: what became of an LSN that was never durable.
  private var lastFailure: LogError?
  /// What was found instead of the store: nothing of what is appended from then on is written.
  private var replacement: LogError?
  /// How often appends were taken again after a rejection, each time from the LSN after the durable one on.
  private(set) var resumptions = 0
  /// One for each row of resumptions that found the same LSN durable; the LSNs above it were given again.
  private var takenBack: [TakenBack] = []
  /// The addresses of everything that is durable.
  var tables: [SegmentTable]
  /// A thread is writing, or is about to: no other needs to begin.
  var isLed = false
  /// The watch is running (Log+Watching.swift).
  var isWatched = false
  /// The end of what a full sync has covered, for CONTROL; nil if this writer has added nothing to it.
  private var flushed: LogBound?
  /// The last LSN that the watch has put into CONTROL.
  private var raisedLSN: UInt64 = 0

  /// Each but the last is as large as a group may be.
  private var queue: [PendingGroup] = []
  /// The memory of the last group, to be used again.
  private var spare: PendingGroup?
  private var waiters: [Waiter] = []
  /// The highest LSN that a caller waits for.
  private var lastAwaited: UInt64 = 0

  init(durable: LogEnd, tables: [SegmentTable], rejecting: LogError? = nil) {
    durableLSN = durable.lsn
    durableChain = durable.chain
    nextLSN = durableLSN + 1
    self.tables = tables
    if let rejecting { phase = .rejecting(rejecting) }
  }

  var isOpen: Bool { if case .open = phase { true } else { false } }
  var hasQueue: Bool { !queue.isEmpty }
  var hasWaiters: Bool { !waiters.isEmpty }

  // MARK: In

  /// Gives a transaction its LSNs and its place in the queue.
  mutating func enqueue(_ transaction: LogTransaction, _ options: LogOptions) throws(LogError) -> ClosedRange<UInt64> {
    try checkWritable()
    precondition(!transaction.isEmpty, "a transaction has at least one event")
    guard transaction.frameBytes <= options.transactionBytesMax else {
      throw LogError(
        .transactionTooLarge,
        "a transaction of \(transaction.frameBytes) bytes is above the limit of \(options.transactionBytesMax); "
          + "nothing was written; make it smaller")
    }
    let first = nextLSN
    let last = queue.count - 1
    if last >= 0, queue[last].frames.count + transaction.frameBytes <= options.groupBytesMax {
      queue[last].append(transaction)
    } else {
      var group = spare.take() ?? PendingGroup(firstLSN: first)
      group.reset(firstLSN: first)
      group.append(transaction)
      queue.append(group)
    }
    nextLSN += UInt64(transaction.count)
    return first...nextLSN - 1
  }

  func checkWritable() throws(LogError) {
    switch phase {
    case .open: return
    case .rejecting(let error): throw error
    case .poisoned(let error):
      if let replacement { throw replacement }
      throw LogError(
        .poisoned, "the log takes no more, because an earlier write failed; open it again (\(error))",
        file: error.file, lsns: error.lsns, underlying: error.underlying)
    case .closed: throw Self.closed
    }
  }

  static let closed = LogError(.closed, "the log was closed")

  /// What is known of `lsn`; nil if it is still on its way.
  ///
  /// - Parameter given: the `resumptions` when it was given; nil: it was not given again since.
  func outcome(of lsn: UInt64, given: Int? = nil) -> CommitOutcome? {
    if let given, given < resumptions, let next = takenBack.first(where: { $0.resumptions > given }), lsn > next.durable
    {
      return .failed(next.error)
    }
    if lsn <= durableLSN { return .durable }
    switch phase {
    case .closed: return .failed(lastFailure ?? Self.closed)
    case .rejecting(let error), .poisoned(let error): return .failed(error)
    case .open: break
    }
    guard lsn < nextLSN else {
      return .failed(LogError(.noSuchLSN, "LSN \(lsn) was not given; the next is \(nextLSN)", lsns: lsn...lsn))
    }
    return nil
  }

  mutating func wait(for lsn: UInt64, _ waiter: any CommitWaiter) {
    waiters.append(Waiter(lsn: lsn, waiter: waiter))
    lastAwaited = max(lastAwaited, lsn)
  }

  // MARK: Leading

  /// Takes the next group off the queue; nil if there is none.
  mutating func removeFirstGroup() -> PendingGroup? {
    queue.isEmpty ? nil : queue.removeFirst()
  }

  /// A group is on the medium.
  ///
  /// - Returns: the callers to wake.
  mutating func becameDurable(
    _ group: inout PendingGroup, offsets: [UInt32], end: UInt32, chain: UInt32, flushed: LogBound
  ) -> CommitNews {
    durableLSN = group.endLSN - 1
    durableChain = chain
    tables[tables.count - 1].append(offsets, end: end)
    self.flushed = flushed
    if spare == nil {
      group.reset(firstLSN: 0)
      var emptied = PendingGroup(firstLSN: 0)
      swap(&emptied, &group)
      spare = emptied
    }
    var ready: [Waiter] = []
    if lastAwaited <= durableLSN {
      // No caller waits for more: the array changes hands, and the next one is as large.
      ready.reserveCapacity(min(waiters.count, 1024))
      swap(&ready, &waiters)
    } else {
      var rest: [Waiter] = []
      for waiter in waiters {
        if waiter.lsn <= durableLSN { ready.append(waiter) } else { rest.append(waiter) }
      }
      waiters = rest
    }
    return CommitNews(waiters: ready, outcome: .durable)
  }

  /// A full sync has covered everything up to `bound`.
  ///
  /// - Returns: whether to begin the watch, which raises CONTROL to it.
  mutating func becameFlushed(_ bound: LogBound) -> Bool {
    flushed = bound
    guard !isWatched, boundToRaise() != nil else { return false }
    isWatched = true
    return true
  }

  /// What CONTROL may promise; nil if this writer has added nothing to it, or after a failure, when nothing is written any
  /// more.
  var bound: LogBound? {
    switch phase {
    case .open, .rejecting: flushed
    case .poisoned, .closed: nil
    }
  }

  /// The same; nil also if CONTROL covers it.
  func boundToRaise() -> LogBound? {
    guard let bound, bound.lsn > raisedLSN else { return nil }
    return bound
  }

  /// CONTROL covers everything up to `bound`.
  mutating func raised(to bound: LogBound) {
    raisedLSN = max(raisedLSN, bound.lsn)
  }

  /// The log goes on in another segment.
  ///
  /// - Parameter placeBytesMax: the memory for exact places in finished segments.
  mutating func rotated(_ rotation: SegmentWriter.Rotation, placeBytesMax: Int) {
    if !tables.isEmpty { tables[tables.count - 1].seal(at: UInt32(rotation.predecessor.end)) }
    tables.append(rotation.table)
    tables.forgetPlaces(beyond: placeBytesMax)
  }

  /// Some segments' events lie in another one from now on.
  mutating func replace(_ segmentIDs: Set<UInt64>, with table: SegmentTable) {
    guard let index = tables.firstIndex(where: { segmentIDs.contains($0.segmentID) }) else { return }
    // Places that no caller had asked for are not kept now either: the output's index has them.
    let areExact = tables.allSatisfy { !segmentIDs.contains($0.segmentID) || $0.isExact }
    tables[index] = areExact ? table : table.unread
    tables.removeAll { segmentIDs.contains($0.segmentID) }
  }

  // MARK: Failures

  /// Nothing of what was taken or is queued is on disk. All callers that wait get the error, and no append is taken until `resume`.
  mutating func reject(_ cause: SystemError) -> CommitNews {
    let lsns = durableLSN + 1...max(durableLSN + 1, nextLSN - 1)
    let error = LogError(
      .rejected,
      "LSNs \(lsns.lowerBound) to \(lsns.upperBound) were not written, and nothing of them is on disk (\(cause)); "
        + "the log goes on where it was as soon as the cause is gone", file: cause.subject, lsns: lsns,
      underlying: cause)
    phase = .rejecting(error)
    return failAll(error)
  }

  /// What was taken may be on disk or not. Nothing is written any more.
  ///
  /// - Parameter replacement: what was found instead of the store.
  mutating func poison(_ cause: SystemError, _ replacement: LogError?) -> CommitNews {
    let lsns = nextLSN > durableLSN + 1 ? durableLSN + 1...nextLSN - 1 : nil
    let what = lsns.map { "of LSNs \($0.lowerBound) to \($0.upperBound)" } ?? "at the end of a segment"
    self.replacement = replacement
    let place = replacement.map { ": \($0.message)" } ?? ""
    let error = LogError(
      .outcomeUnknown,
      "the write \(what) failed (\(cause)); whether it is on the medium is known only after the log was opened "
        + "again, because a failed sync cannot be repeated\(place)", file: cause.subject, lsns: lsns, underlying: cause)
    phase = .poisoned(error)
    return failAll(error)
  }

  /// The store is not at its path any more. Nothing of what was taken was written, and nothing is written any more.
  mutating func poison(_ error: LogError) -> CommitNews {
    switch phase {
    case .open, .rejecting:
      replacement = error
      var error = error
      if nextLSN > durableLSN + 1 {
        error.lsns = durableLSN + 1...nextLSN - 1
        error.message = "LSNs \(durableLSN + 1) to \(nextLSN - 1) were not written: \(error.message)"
      }
      phase = .poisoned(error)
      return failAll(error)
    case .poisoned, .closed: return CommitNews(waiters: [], outcome: .durable)
    }
  }

  private mutating func failAll(_ error: LogError) -> CommitNews {
    queue = []
    defer {
      waiters = []
      lastAwaited = 0
    }
    return CommitNews(waiters: waiters, outcome: .failed(error))
  }

  /// Takes appends again after a rejection.
  ///
  /// - Parameter tables: where the events lie now, if the end of the log was copied.
  mutating func resume(with tables: [SegmentTable]? = nil) {
    guard case .rejecting(let error) = phase else { return }
    if let tables { self.tables = tables }
    phase = .open
    resumptions += 1
    if let last = takenBack.last, last.durable == durableLSN {
      takenBack[takenBack.count - 1].resumptions = resumptions
    } else {
      takenBack.append(TakenBack(resumptions: resumptions, durable: durableLSN, error: error))
    }
    nextLSN = durableLSN + 1
  }

  mutating func close() -> CommitNews {
    switch phase {
    case .rejecting(let error), .poisoned(let error): lastFailure = error
    case .open, .closed: break
    }
    phase = .closed
    return failAll(Self.closed)
  }
}

/// What a log has taken back when it took appends again.
private struct TakenBack {
  /// How many resumptions there were after the last one of the row.
  var resumptions: Int
  /// The last LSN that was kept.
  let durable: UInt64
  /// Why the first of the row had to be.
  let error: LogError
}

/// A caller that waits for an LSN. It is resumed exactly once.
protocol CommitWaiter: Sendable {
  func tell(_ outcome: CommitOutcome)
}

/// A waiting caller, and the LSN that it waits for.
struct Waiter: Sendable {
  let lsn: UInt64
  let waiter: any CommitWaiter
}

/// Callers to wake with an outcome, once the locks are free.
struct CommitNews: Sendable {
  var waiters: [Waiter]
  var outcome: CommitOutcome

  func tell() { for waiter in waiters { waiter.waiter.tell(outcome) } }
}
