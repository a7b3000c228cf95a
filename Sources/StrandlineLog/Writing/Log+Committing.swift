// One append, from the call to durable bytes: Log+Committing, CommitState, SegmentWriter, PendingGroup, Frame.
//
// Two locks: a short one around the queue (`queue`), and a long one around the disk (`disk`), which the thread that
// leads holds during its write and sync. Order: disk before queue, never the reverse. For a task the log's own writer thread
// leads, because a sync blocks its thread for milliseconds. A plain thread leads itself when no other does, and so does a task
// where things run in turns (`Overlap`).

import Dispatch
import StrandlineSystem
import Synchronization

extension Log {
  /// Puts a transaction into the queue and gives its events their LSNs, in the order of calls.
  ///
  /// Nothing is durable when it returns, and nothing need be on disk: `waitUntilDurable` is the receipt. An append
  /// for which no caller waits is written with the next group, by the watch (200 ms later), or by `close`. The bodies
  /// were encoded before; what is done here is short.
  ///
  /// - Throws: `.transactionTooLarge`, `.rejected` (until `resume()`), `.poisoned`, `.closed`; the transaction was
  ///   then not taken and no LSN was used.
  /// - Precondition: the transaction has an event.
  package func append(_ transaction: LogTransaction) throws(LogError) -> ClosedRange<UInt64> {
    let (lsns, beginsWatch) = try queue.withLock { state throws(LogError) in
      let lsns = try state.enqueue(transaction, options)
      appended.add(1, ordering: .relaxed)
      let begins = options.controlIntervalMilliseconds != nil && !state.isWatched
      if begins { state.isWatched = true }
      return (lsns, begins)
    }
    if beginsWatch { startWatching() }
    return lsns
  }

  /// Returns when everything up to `lsn` is durable as the options' strength says.
  ///
  /// A task that is cancelled meanwhile still waits: what it asked for happens or fails regardless, and only the
  /// outcome says which. Look at cancellation before `append`.
  ///
  /// - Parameter given: the log's `resumptions` when `lsn` was given: after a resumption it may be another transaction's. Nil where
  ///   no one resumes the log before all callers have heard of the rejection.
  /// - Throws: `LogError`: `.rejected` (nothing is on disk), `.outcomeUnknown`, `.noSuchLSN`, `.closed`.
  package func waitUntilDurable(_ lsn: UInt64, given: Int? = nil) async throws {
    let outcome = await withCheckedContinuation { continuation in
      let (known, begins) = queue.withLock { state -> (CommitOutcome?, Bool) in
        if let known = state.outcome(of: lsn, given: given) { return (known, false) }
        state.wait(for: lsn, WaitingTask(continuation: continuation))
        let begins = !state.isLed
        if begins { state.isLed = true }
        return (nil, begins)
      }
      if let known { continuation.resume(returning: known) }
      if begins { beginLeading() }
    }
    // A task that has led did not wait for anything: others have their turn before it writes again.
    if overlap == .inTurns { await Task.yield() }
    if case .failed(let error) = outcome { throw error }
  }

  /// The same for a plain thread, which writes and syncs itself when no other thread does. Not for tasks: it blocks.
  package func waitUntilDurableBlocking(_ lsn: UInt64, given: Int? = nil) throws {
    while true {
      let (known, waiting) = queue.withLock { state -> (CommitOutcome?, WaitingThread?) in
        if let known = state.outcome(of: lsn, given: given) { return (known, nil) }
        guard state.isLed else {
          state.isLed = true
          return (nil, nil)
        }
        let waiting = WaitingThread()
        state.wait(for: lsn, waiting)
        return (nil, waiting)
      }
      if let outcome = known ?? waiting?.wait() {
        if case .failed(let error) = outcome { throw error }
        return
      }
      // This thread leads. The group need not reach `lsn`: then the loop goes on.
      writeNextGroup()
      stopLeading()
    }
  }

  /// Makes one group durable, or fails everything that is queued. Does nothing if nothing is.
  ///
  /// - Returns: how many callers it has woken.
  @discardableResult
  func writeNextGroup() -> Int {
    let news = disk.withLock { writer -> CommitNews? in
      guard var group = queue.withLock({ $0.removeFirstGroup() }) else { return nil }
      do throws(WriteFailure) {
        do throws(LogError) {
          try keeper.hold.checkIfDue(now: clock.monotonicNanoseconds())
        } catch {
          throw .replaced(error)
        }
        // One that this writer has filled is worth a round of upkeep; what its open has left waits for that round.
        let leavesFull = writer.needsSegment && writer.live != nil
        if writer.needsSegment {
          let rotation = try writer.rotate()
          queue.withLock { $0.rotated(rotation, placeBytesMax: options.placeBytesMax) }
          upkeep.add(rotation.predecessor)
        }
        let (offsets, end) = try writer.write(&group)
        let (chain, flushed) = (writer.durable.chain, writer.flushed)
        let isPublished = options.publishesGroups ? try publish(flushed) : false
        defer { if leavesFull, options.upkeep == .inBackground { lookAfterFiles() } }
        return queue.withLock { state in
          let news = state.becameDurable(&group, offsets: offsets, end: end, chain: chain, flushed: flushed)
          if isPublished { state.raised(to: flushed) }
          return news
        }
      } catch {
        return fail(error)
      }
    }
    // Where no thread of its own does upkeep, it is done before a caller goes on, so that what a caller does next never
    // runs beside it.
    let tellsFirst = options.upkeep == .onDemand
    if tellsFirst, news != nil { tellDurability() }
    // Callers are woken without a lock: one that writes again at once finds both free.
    news?.tell()
    if !tellsFirst, news != nil { tellDurability() }
    return news?.waiters.count ?? 0
  }

  /// Takes nothing more after a write that failed. The caller holds the disk.
  ///
  /// - Returns: the callers to tell.
  func fail(_ failure: WriteFailure) -> CommitNews {
    let failure = keeper.named(failure)
    let replacement = keeper.replacement()
    return queue.withLock { state in
      switch failure {
      case .refused(let cause): state.reject(cause)
      case .unknown(let cause): state.poison(cause, replacement)
      case .replaced(let error): state.poison(error)
      }
    }
  }

  /// A thread has led as long as it needed to. Another leader serves the callers that wait meanwhile.
  func stopLeading() {
    let isWanted = queue.withLock { state in
      state.isLed = state.hasQueue && state.hasWaiters
      return state.isLed
    }
    // Not in turns either: the thread returns to its caller, who may be what the others wait for.
    if isWanted { writerQueue.async { self.lead() } }
  }

  /// Has groups written until nothing is queued.
  private func beginLeading() {
    switch overlap {
    case .concurrent: writerQueue.async { self.lead() }
    // The disk is simulated too, so that a sync blocks no thread.
    case .inTurns: lead()
    }
  }

  /// Writes groups until nothing is queued.
  private func lead() {
    while true {
      let woken = writeNextGroup()
      if overlap == .concurrent { awaitCallers(woken) }
      let goesOn = queue.withLock { state in
        state.isLed = state.hasQueue
        return state.isLed
      }
      guard goesOn else { return }
    }
  }

  /// Callers that were woken together often write again at once. The next group is written when as many have appended, or when none
  /// has for a moment. Else the first of them would be synced alone, and all others would wait for two syncs instead of one:
  /// 64 writers append a quarter less (`log.group64.100`).
  private func awaitCallers(_ woken: Int) {
    var seen = appended.load(ordering: .relaxed)
    let enough = seen &+ woken
    var until = clock.monotonicNanoseconds() &+ Self.patienceNanoseconds
    // Also by turns: a clock may have stopped, and where all cores are busy a turn takes as long as others work.
    var turns = 0
    while seen < enough, turns < Self.patienceTurnsMax {
      let (now, count) = (clock.monotonicNanoseconds(), appended.load(ordering: .relaxed))
      if count != seen {
        (seen, until, turns) = (count, now &+ Self.patienceNanoseconds, 0)
      } else if now >= until {
        return
      }
      turns += 1
      CurrentThread.yield()
    }
  }

  /// About a tenth of a sync of the fastest disks.
  private static let patienceNanoseconds: UInt64 = 20_000
  /// More than fit into that time where a core is free.
  private static let patienceTurnsMax = 100

  // MARK: Flushing

  /// Whether each group is synced in full, so that a flush has nothing to do.
  package var syncsInFull: Bool { options.strength == .durable }

  /// Makes everything that is durable so in the full sense: what leaves the device must not be ahead of what a power
  /// cut leaves (decision L9). Costs no sync where groups are synced with `.durable`.
  ///
  /// - Throws: `.outcomeUnknown`, which poisons the log; `.poisoned`, `.rejected`, `.closed`.
  package func flushBlocking() throws(LogError) {
    try queue.withLock { state throws(LogError) in try state.checkWritable() }
    let beginsWatch = disk.withLock { writer in
      do throws(WriteFailure) {
        do throws(LogError) {
          try keeper.hold.checkIfDue(now: clock.monotonicNanoseconds())
        } catch {
          throw .replaced(error)
        }
        do throws(SystemError) { try writer.flush() } catch { throw .unknown(error) }
        let flushed = writer.flushed
        let isPublished = options.publishesGroups ? try publish(flushed) : false
        return queue.withLock { state in
          if isPublished { state.raised(to: flushed) }
          return state.becameFlushed(flushed)
        } && options.controlIntervalMilliseconds != nil
      } catch {
        fail(error).tell()
        return false
      }
    }
    if beginsWatch { startWatching() }
    try queue.withLock { state throws(LogError) in
      if case .poisoned(let error) = state.phase { throw error }
    }
  }

  /// The same for a task: the sync runs on another thread, and not behind the groups of the writer's own.
  package func flush() async throws {
    guard !syncsInFull else {
      try queue.withLock { state throws(LogError) in try state.checkWritable() }
      return
    }
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      DispatchQueue.global(qos: .userInitiated).async {
        continuation.resume(with: Result { try self.flushBlocking() })
      }
    }
  }
}
