// The queue's half of a commit: who has which LSN, who waits, who leads. A value without disk and without clock.
//
// Group commit: whoever leads takes everything that is queued (up to the limits), makes it durable with one sync,
// and tells all who wait. Meanwhile the queue grows to the next group. There is no timer: a lone transaction is
// not held back, and many share a sync because they arrive while one is in flight, or together right after one
// (Arrivals, in Waiters.swift).
//
// LSNs are given in the order of calls. They are final once durable, and also once a byte of them may be on disk;
// only after a rejection, when nothing of them is anywhere, do they go back.

import StrandlineSystem

/// What becomes of an LSN that somebody waits for.
enum CommitOutcome: Sendable {
  case durable
  case failed(LogError)
}

struct CommitState: ~Copyable {
  enum Phase {
    case open
    case rejecting(LogError)
    case poisoned(LogError)
    case closed
  }

  private(set) var phase = Phase.open
  private(set) var nextLSN: UInt64
  private(set) var durableLSN: UInt64
  /// The addresses of everything that is durable.
  var tables: [SegmentTable]
  /// Somebody is writing, or is about to: nobody else needs to begin.
  var isLed = false
  /// Counts groups, so that the idle thread sees whether something happened.
  private(set) var groups: UInt64 = 0
  /// When the last of them became durable; kept only for a log that is watched.
  private(set) var lastGroupNanoseconds: UInt64 = 0
  /// The idle thread is watching.
  var isWatched = false

  private var queue: [QueuedTransaction] = []
  private var head = 0
  private var waiters: [Waiter] = []
  /// The highest LSN that somebody waits for.
  private var lastAwaited: UInt64 = 0
  /// How much is queued, for who must not take the lock to see it.
  let arrivals = Arrivals()

  init(durableLSN: UInt64, tables: [SegmentTable], rejecting: LogError? = nil) {
    self.durableLSN = durableLSN
    nextLSN = durableLSN + 1
    self.tables = tables
    if let rejecting { phase = .rejecting(rejecting) }
  }

  /// The end of what is durable, in the segment that holds it; nil if that has no event of this writer.
  private(set) var bounds: (segmentID: UInt64, lsn: UInt64, end: UInt32)?

  var hasQueue: Bool { head < queue.count }
  var hasWaiters: Bool { !waiters.isEmpty }
  /// The first transaction's bytes of frames; nil if nothing is queued.
  var firstFrameBytes: Int? { hasQueue ? queue[head].transaction.frameBytes : nil }

  // MARK: In

  /// Gives a transaction its LSNs and its place in the queue.
  mutating func enqueue(_ transaction: LogTransaction, bytesMax: Int) throws(LogError) -> ClosedRange<UInt64> {
    try checkWritable()
    precondition(!transaction.isEmpty, "a transaction has at least one event")
    guard transaction.frameBytes <= bytesMax else {
      throw LogError(
        .transactionTooLarge,
        "a transaction of \(transaction.frameBytes) bytes is above the limit of \(bytesMax); "
          + "nothing was written; make it smaller")
    }
    let queued = QueuedTransaction(transaction: transaction, firstLSN: nextLSN)
    queue.append(queued)
    arrivals.publish(queue.count - head)
    nextLSN = queued.lastLSN + 1
    return queued.firstLSN...queued.lastLSN
  }

  func checkWritable() throws(LogError) {
    switch phase {
    case .open: return
    case .rejecting(let error): throw error
    case .poisoned(let error):
      throw LogError(
        .poisoned, "the log takes no more, because an earlier write failed; open it again (\(error))",
        file: error.file, lsns: error.lsns, underlying: error.underlying)
    case .closed: throw Self.closed
    }
  }

  static let closed = LogError(.closed, "the log was closed")

  /// What is known of `lsn`; nil if it is still on its way.
  func outcome(of lsn: UInt64) -> CommitOutcome? {
    if lsn <= durableLSN { return .durable }
    if case .closed = phase { return .failed(Self.closed) }
    switch phase {
    case .rejecting(let error), .poisoned(let error): return .failed(error)
    case .open, .closed: break
    }
    guard lsn < nextLSN else {
      return .failed(LogError(.noSuchLSN, "LSN \(lsn) was not given; the next is \(nextLSN)", lsns: lsn...lsn))
    }
    return nil
  }

  mutating func wait(for lsn: UInt64, _ party: any CommitWaiter) {
    waiters.append(Waiter(lsn: lsn, party: party))
    lastAwaited = max(lastAwaited, lsn)
  }

  // MARK: Leading

  /// Takes the next group off the queue.
  ///
  /// - Parameter room: what the segment has left; the first transaction fits.
  mutating func takeGroup(room: Int, _ options: LogOptions) -> (group: [QueuedTransaction], frameBytes: Int) {
    let limit = min(room, options.groupBytesMax)
    var bytes = 0
    var end = head
    while end < queue.count, end - head < options.groupTransactionsMax {
      let next = queue[end].transaction.frameBytes
      guard end == head || bytes + next <= limit else { break }
      bytes += next
      end += 1
    }
    defer { arrivals.publish(queue.count - head) }
    if head == 0, end == queue.count {
      // Everything, as nearly always: the array changes hands, and the next one is as large.
      var rest: [QueuedTransaction] = []
      rest.reserveCapacity(min(end, 1024))
      swap(&rest, &queue)
      return (rest, bytes)
    }
    let group = Array(queue[head..<end])
    head = end
    // What is gone is given back at the latest when it is half of the array, so a group costs what it holds.
    if head > queue.count / 2 {
      queue.removeFirst(head)
      head = 0
    }
    return (group, bytes)
  }

  /// A group is on the medium.
  ///
  /// - Returns: who is to be told.
  mutating func becameDurable(_ lastLSN: UInt64, offsets: [UInt32], end: UInt32, now: UInt64) -> CommitNews {
    durableLSN = lastLSN
    groups += 1
    lastGroupNanoseconds = now
    tables[tables.count - 1].append(offsets, end: end)
    bounds = (tables[tables.count - 1].segmentID, lastLSN, end)
    var told: [Waiter] = []
    if lastAwaited <= lastLSN {
      // Nobody waits for more: the array changes hands, and the next one is as large.
      told.reserveCapacity(min(waiters.count, 1024))
      swap(&told, &waiters)
    } else {
      var rest: [Waiter] = []
      for waiter in waiters {
        if waiter.lsn <= lastLSN { told.append(waiter) } else { rest.append(waiter) }
      }
      waiters = rest
    }
    return CommitNews(waiters: told, outcome: .durable, queued: queue.count - head)
  }

  /// The log goes on in another segment.
  mutating func rotated(_ table: SegmentTable) {
    if !tables.isEmpty { tables[tables.count - 1].seal() }
    tables.append(table)
  }

  /// Some segments' events lie in another one from now on.
  mutating func replace(_ segmentIDs: Set<UInt64>, with table: SegmentTable) {
    guard let index = tables.firstIndex(where: { segmentIDs.contains($0.segmentID) }) else { return }
    // Places that nobody had asked for are not kept now either: the output's index has them.
    let areExact = tables.allSatisfy { !segmentIDs.contains($0.segmentID) || $0.isExact }
    tables[index] = areExact ? table : table.unread
    tables.removeAll { segmentIDs.contains($0.segmentID) }
  }

  /// Nothing of what was taken or is queued is on disk. Everybody is told, and nothing is taken until `resume`.
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
  mutating func poison(_ cause: SystemError) -> CommitNews {
    let lsns = nextLSN > durableLSN + 1 ? durableLSN + 1...nextLSN - 1 : nil
    let what = lsns.map { "of LSNs \($0.lowerBound) to \($0.upperBound)" } ?? "of a promise"
    let error = LogError(
      .outcomeUnknown,
      "the write \(what) failed (\(cause)); whether they are on the medium is known only after the log was opened "
        + "again, because a failed sync cannot be repeated", file: cause.subject, lsns: lsns, underlying: cause)
    phase = .poisoned(error)
    return failAll(error)
  }

  private mutating func failAll(_ error: LogError) -> CommitNews {
    queue = []
    head = 0
    arrivals.publish(0)
    defer {
      waiters = []
      lastAwaited = 0
    }
    return CommitNews(waiters: waiters, outcome: .failed(error))
  }

  /// The same after the end of the log was copied: its events lie elsewhere now.
  mutating func resume(with tables: [SegmentTable]) {
    self.tables = tables
    resume()
  }

  mutating func resume() {
    guard case .rejecting = phase else { return }
    phase = .open
    nextLSN = durableLSN + 1
  }

  mutating func close() -> CommitNews {
    phase = .closed
    return failAll(Self.closed)
  }

  /// What the idle thread does after a nap.
  enum Watch {
    /// The log takes no more.
    case over
    /// Nothing has happened: promise, and stop watching.
    case quiet
    /// Something is queued and nobody waits for it: lead.
    case lead
    case busy
  }

  /// - Parameter groups: how many groups there were before the nap.
  mutating func watch(since groups: UInt64) -> Watch {
    guard case .open = phase else {
      isWatched = false
      return .over
    }
    if isLed { return .busy }
    if hasQueue {
      isLed = true
      return .lead
    }
    guard groups == self.groups else { return .busy }
    isWatched = false
    return .quiet
  }

  /// A thread that waits and could do the work itself; it stops waiting.
  mutating func promoteThread() -> (any CommitWaiter)? {
    guard let index = waiters.firstIndex(where: { $0.party.canLead }) else { return nil }
    return waiters.remove(at: index).party
  }
}

/// Somebody who waits for an LSN. Told exactly once.
protocol CommitWaiter: Sendable {
  /// A plain thread, which may do the work itself.
  var canLead: Bool { get }
  func tell(_ outcome: CommitOutcome)
  /// Instead of an outcome: lead.
  func lead()
}

/// Somebody, and what for.
struct Waiter: Sendable {
  let lsn: UInt64
  let party: any CommitWaiter
}

/// Whom to tell what, once the locks are free.
struct CommitNews: Sendable {
  var waiters: [Waiter]
  var outcome: CommitOutcome
  /// Transactions that were queued by then.
  var queued = 0

  func tell() { for waiter in waiters { waiter.party.tell(outcome) } }
}
