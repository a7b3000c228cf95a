// One append, from the call to durable bytes: Log+Committing, CommitState, SegmentWriter, GroupBuffer, Frame.
//
// Two locks: a short one around the queue (`commit`), and a long one around the disk (`disk`), which whoever leads
// holds during its write and sync. Order: disk before commit, never the reverse. Tasks never lead: a job on the
// log's own queue does it for them, because a sync blocks its thread for milliseconds. Plain threads lead
// themselves, and then nothing else runs, which keeps simulated runs repeatable.

import Dispatch
import StrandlineSystem
import Synchronization

extension Log {
  /// Puts a transaction into the queue and gives its events their LSNs, in the order of calls.
  ///
  /// Nothing is durable when it returns, and nothing need be on disk: `waitUntilDurable` is the receipt. An append
  /// for which nobody waits is written by the next group, by the idle thread, or by `close`. The bodies were
  /// encoded before; what is done here is short.
  ///
  /// - Throws: `.transactionTooLarge`, `.rejected` (until `resume()`), `.poisoned`, `.closed`; the transaction was
  ///   then not taken and no LSN was used.
  /// - Precondition: the transaction has an event.
  package func append(_ transaction: LogTransaction) throws(LogError) -> ClosedRange<UInt64> {
    let limit = options.transactionBytesMax
    let watches = options.idleMarkerMilliseconds != nil
    let (lsns, beginsWatch) = try commit.withLock { state throws(LogError) in
      let lsns = try state.enqueue(transaction, bytesMax: limit)
      let begins = watches && !state.isWatched
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
  /// - Throws: `LogError`: `.rejected` (nothing is on disk), `.outcomeUnknown`, `.noSuchLSN`, `.closed`.
  package func waitUntilDurable(_ lsn: UInt64) async throws {
    let outcome = await withCheckedContinuation { continuation in
      let (known, begins) = commit.withLock { state -> (CommitOutcome?, Bool) in
        if let known = state.outcome(of: lsn) { return (known, false) }
        state.wait(for: lsn, WaitingTask(continuation: continuation))
        let begins = !state.isLed
        state.isLed = true
        return (nil, begins)
      }
      if let known { continuation.resume(returning: known) }
      if begins { leadInBackground() }
    }
    if case .failed(let error) = outcome { throw error }
  }

  /// The same for a plain thread, which writes and syncs itself when nobody else is at it. Not for tasks: it
  /// blocks.
  package func waitUntilDurableBlocking(_ lsn: UInt64) throws {
    while true {
      let (known, thread) = commit.withLock { state -> (CommitOutcome?, WaitingThread?) in
        if let known = state.outcome(of: lsn) { return (known, nil) }
        if state.isLed {
          let thread = WaitingThread()
          state.wait(for: lsn, thread)
          return (nil, thread)
        }
        state.isLed = true
        return (nil, nil)
      }
      if let outcome = known ?? thread?.wait() {
        if case .failed(let error) = outcome { throw error }
        return
      }
      // Leading, at once or promoted while waiting; the group need not reach `lsn`, then the loop goes on.
      leadGroup()
      handOver()
    }
  }

  /// Makes everything that is durable so in the full sense: what leaves the device must not be ahead of what a power
  /// cut leaves (decision L9). Costs no sync where groups are synced with `.durable`.
  ///
  /// - Throws: `.outcomeUnknown`, which poisons the log; `.poisoned`, `.rejected`, `.closed`.
  package func flushBlocking() throws(LogError) {
    try commit.withLock { state throws(LogError) in try state.checkWritable() }
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

  /// The same for a task: the sync runs on another thread, and not behind the groups of the writer's own.
  package func flush() async throws {
    guard options.strength != .durable else { return }
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      DispatchQueue.global(qos: .userInitiated).async {
        continuation.resume(with: Result { try self.flushBlocking() })
      }
    }
  }

  /// Makes one group durable, or fails everything that is queued. Does nothing if nothing is.
  ///
  /// - Returns: how many transactions will be queued if all who were told come back with another.
  @discardableResult
  func leadGroup() -> Int {
    // Told without a lock: whoever goes on writes again, and finds both free.
    guard let news = writeGroup() else { return 0 }
    news.tell()
    return news.queued + news.waiters.count
  }

  private func writeGroup() -> CommitNews? {
    disk.withLock { writer in
      guard let first = commit.withLock({ $0.firstFrameBytes }) else { return nil }
      do throws(WriteFailure) {
        if writer.room(forFirst: first) == 0 {
          let rotation = try writer.rotate()
          commit.withLock { $0.rotated(rotation.table) }
          upkeep.add(rotation.predecessor)
        }
        let room = writer.room(forFirst: first)
        let options = options
        let (group, frameBytes) = commit.withLock { $0.takeGroup(room: room, options) }
        let (offsets, end) = try writer.write(group, frameBytes: frameBytes)
        let durable = writer.durable
        let now = options.idleMarkerMilliseconds == nil ? 0 : clock.monotonicNanoseconds()
        defer { if options.upkeep == .inBackground, writer.wantsPreparation || upkeep.hasWork { lookAfterFiles() } }
        return commit.withLock { $0.becameDurable(durable.lsn, offsets: offsets, end: end, now: now) }
      } catch {
        return commit.withLock { state in
          switch error {
          case .refused(let cause): state.reject(cause)
          case .unknown(let cause): state.poison(cause)
          }
        }
      }
    }
  }

  /// A thread has led as long as it needed to; whoever else waits must not be left alone.
  private func handOver() {
    let (thread, background) = commit.withLock { state -> ((any CommitWaiter)?, Bool) in
      guard state.hasQueue, state.hasWaiters else {
        state.isLed = false
        return (nil, false)
      }
      if let thread = state.promoteThread() { return (thread, false) }
      return (nil, true)
    }
    thread?.lead()
    if background { leadInBackground() }
  }

  /// Leads on the log's own thread until nothing is queued.
  private func leadInBackground() {
    writerQueue.async {
      let arrivals = self.commit.withLock { $0.arrivals }
      repeat {
        arrivals.wait(for: self.leadGroup(), self.clock)
      } while self.commit.withLock { state in
        if !state.hasQueue { state.isLed = false }
        return state.isLed
      }
    }
  }

  // MARK: The idle marker

  /// Watches until nothing has happened for a while, then writes what nobody waited for and promises what is
  /// durable. One watch at a time; it ends when it has promised.
  private func startWatching() {
    guard let milliseconds = options.idleMarkerMilliseconds else { return }
    idleQueue.async {
      var (groups, since) = (UInt64.max, self.clock.monotonicNanoseconds())
      while true {
        // The promise is due so long after the last group; what was slept before it does not count.
        let waited = Int64(clamping: (self.clock.monotonicNanoseconds() &- since) / 1_000_000)
        self.clock.sleepBlocking(milliseconds: max(1, milliseconds - waited))
        switch self.commit.withLock({ $0.watch(since: groups) }) {
        case .over: return
        case .quiet:
          // A failure poisons the log, and the next append says so.
          self.promise()
          return
        case .lead:
          self.leadGroup()
          self.handOver()
        case .busy: break
        }
        (groups, since) = self.commit.withLock { ($0.groups, $0.lastGroupNanoseconds) }
      }
    }
  }

  /// Writes a marker that promises what is durable to recovery and to readers of other processes, unless the last
  /// one does. Not synced: it is never needed, only useful.
  ///
  /// - Throws: `.rejected`, `.poisoned`, `.closed`; `.outcomeUnknown` if the write failed, which poisons the log.
  package func promiseNow() throws(LogError) {
    try commit.withLock { state throws(LogError) in try state.checkWritable() }
    promise()
    try commit.withLock { state throws(LogError) in
      if case .poisoned(let error) = state.phase { throw error }
    }
  }

  private func promise() {
    disk.withLock { writer in
      guard case .open = commit.withLock({ $0.phase }) else { return }
      do throws(SystemError) {
        try writer.promise()
      } catch {
        commit.withLock { $0.poison(error) }.tell()
      }
    }
  }
}
