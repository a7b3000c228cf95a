// Compaction as an app sees it: the log becomes as large as what it says, and what it keeps of the past.
//
// Writes, reads and syncs go on meanwhile. What they may still need was alive when the plan was made, or is newer than
// everything that the plan is about.

import Dispatch
import StrandlineLog
import StrandlineSystem
import Synchronization

/// What a compaction did, with the part of the log that is older than the history that stays.
public struct StoreCompaction: Hashable, Sendable {
  /// Its size in bytes, without what is reserved ahead; 0 if nothing is old enough.
  public var bytesBefore: UInt64 = 0
  /// The same, afterwards.
  public var bytesAfter: UInt64 = 0
  /// Events that it had.
  package var eventsBefore: UInt64 = 0
  /// Events that stayed, those that others were packed into counted.
  package var eventsAfter: UInt64 = 0
  /// Files that they lay in.
  package var segmentsBefore = 0
  /// Files that they lie in.
  package var segmentsAfter = 0
  /// Records of which all events stayed, because nothing could be left out safely.
  package var recordsKeptWhole = 0
}

extension RecordStore {
  /// Removes from the log what nothing needs any more: superseded values, settled mutations, answers that have been
  /// taken in; of what is older than the history that stays. What every record holds, what is owed to the server, what
  /// must stay deleted, and where syncing stands is the same afterwards; event numbers stay.
  ///
  /// When this returns, what was removed is gone from the medium; if it throws, or the power goes, nothing was removed.
  /// Reads, writes and syncs go on meanwhile; a store that another process has open for reading may have to be opened
  /// again there. What became of a write whose events were removed can no longer be asked. A view that is held, and a
  /// projection that has not applied them, keep the events that they need.
  ///
  /// What goes is judged by the index, each row of it by the events that it names, and each record's last event by its row.
  /// Where the two contradict each other, the log alone says what goes, and the index is made again first. Of a hundred rows
  /// that are missing and not counted one may be passed over: `strandline verify` finds it, and `strandline compact --prove`.
  ///
  /// A store compacts itself, as its options say; this does it now. Of the past stays what `history` says, or
  /// `StoreOptions.history` if that is nil.
  ///
  /// - Throws: `StrandlineError`: `.readOnly`, `.diskFull` (until it ends, what stays is on the disk twice),
  ///   `.damaged` (what stands before the damage was compacted), `.eventsHeld` (so was what is older than a view or a
  ///   projection that holds much), `.io`, `.closed`, `.suspended` (also if the store is
  ///   suspended meanwhile; nothing was removed then).
  /// - Complexity: O(bytes of the log that may go), read four times and what stays written once; with a part of the
  ///   history read once more. Memory for what the index keeps in memory, three times.
  @discardableResult
  public func compact(keeping history: HistoryRetention? = nil) async throws -> StoreCompaction {
    // Reading a whole log blocks its thread for long, so it does not run on the cooperative pool.
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global(qos: .utility).async {
        continuation.resume(
          with: Result {
            try self.compactBlocking(keeping: history ?? self.policy.history)
          })
      }
    }
  }

  /// The same on a plain thread.
  ///
  /// - Parameter proof: who judges what goes.
  @discardableResult
  package func compactBlocking(
    keeping history: HistoryRetention = .latest, proof: CompactionProof = .standard
  ) throws -> StoreCompaction {
    try requireNoClosure(of: "compact", CallSite.unnamed)
    return try CallSite.unnamed.run("compacting the store at '\(path)'") {
      try compactRebuilding(history, proof, worthIf: nil) { try self.requireWritable() } ?? StoreCompaction()
    }
  }

  private var policy: CompactionPolicy { compaction?.policy ?? CompactionPolicy() }

  /// Considers a compaction in the background, if enough was written since it was considered last.
  package func considerCompaction() {
    guard let compaction, let ratio = compaction.policy.deadRatio, case .writer(let log) = source else { return }
    let durable = source.durableLSN
    let isDue = projections.withLock { state in
      durable.rawValue >= state.consideredLSN.rawValue + compaction.policy.eventsBetween(state.records.count)
    }
    guard isDue else { return }
    compaction.consider(at: durable) { [weak self] in
      guard let self, log.finishedBytes >= 2 * UInt64(log.segmentBytesMax) else { return }
      let step = compaction.pace {
        try self.requireWritable()
        // A read that waits for the index has precedence.
        if self.index?.isRebuildWanted == true { throw CompactionInterrupted() }
      }
      try self.compactRebuilding(compaction.policy.history, .standard, worthIf: ratio, step: step)
      self.projections.withLock { $0.considered(durable) }
    }
  }

  /// - Parameters:
  ///   - ratio: so large a part must be dead; otherwise nothing is changed and nil is returned.
  ///   - step: called again and again; what it throws ends the compaction.
  @discardableResult
  private func compactRebuilding(
    _ history: HistoryRetention, _ proof: CompactionProof, worthIf ratio: Double?, step: () throws -> Void
  ) throws -> StoreCompaction? {
    var interruption: (any Error)?
    do {
      return try projections.rebuilding { () throws(StrandlineError) in
        do { return try compactOnce(history, proof, worthIf: ratio, step) } catch {
          guard let known = StrandlineError.translating(error, "compacting the store at '\(path)'") as? StrandlineError
          else {
            interruption = error
            throw StrandlineError(.io, "\(error)")
          }
          guard known.code == .closed else { throw known }
          // If it was not the store that was closed, it was its log, by a suspension.
          try requireOpen()
          throw StrandlineError.suspended
        }
      }
    } catch {
      throw interruption ?? error
    }
  }

  private func compactOnce(
    _ history: HistoryRetention, _ proof: CompactionProof, worthIf ratio: Double?, _ step: () throws -> Void
  ) throws -> StoreCompaction? {
    try requireWritable()
    // The index first: if a suspension and a resumption fall between the two, it has ended, and flushes nothing.
    let index = index
    guard case .writer(let log) = source else {
      if index != nil { throw StrandlineError.suspended }
      throw StrandlineError(.readOnly, "the store at '\(path)' was opened for reading only")
    }
    guard let index else { throw StrandlineError.suspended }
    // A group that failed is undone here, so that it does not stand in the way.
    try core.withLock { try $0.reconcile(log) }
    var result: StoreCompaction? = StoreCompaction()
    try index.whileCompacting {
      // What may go for its age lies further back: the state there is folded, and the segment in use goes on, unless the
      // caller waits.
      if history == .latest { projections.withLock { $0.beginJudgement(after: LSN(log.durableLSN)) } }
      defer { projections.withLock { $0.endJudgement() } }
      if history == .latest || ratio == nil { try log.finishSegment() }
      let (limit, damage) = try lastEvent(before: history, source, step)
      guard limit > 0 else {
        if let damage { throw damage }
        return
      }
      result = try compact(log, upTo: limit, index, proof, worthIf: ratio, step)
      if let damage { throw damage }
    }
    // Under the writer's lock, so not while all runs may have to wait for this: a closure of `write` may have asked for them.
    if result != nil { clearUpContents() }
    return result
  }

  private func compact(
    _ log: Log, upTo limit: UInt64, _ index: StoreIndex, _ proof: CompactionProof, worthIf ratio: Double?,
    _ step: () throws -> Void
  ) throws -> StoreCompaction? {
    var survivors: Survivors?
    var recordsKeptWhole = 0
    var stays: (lsns: LSNSet, limit: LSN) = (LSNSet(), .zero)
    let report = try log.compact(
      upTo: limit,
      prepare: { finished in
        survivors = nil
        try judging(finished, index, proof, step) { plan in
          if let ratio, plan.bytesLeftOut < UInt64(log.segmentBytesMax) || plan.ratioLeftOut < ratio { return }
          // Judged by the state at the segments' end: read behind an older state, what stays would bring back what was
          // deleted. So the index is beyond it before anything is left out; and has what was just learned.
          try index.flush(always: true)
          survivors = Survivors(of: plan)
          stays = (plan.names.whole, LSN(finished.lastLSN))
          recordsKeptWhole = plan.recordsKeptWhole
        }
        return survivors != nil
      }
    ) { transaction in
      try step()
      return try survivors?.of(transaction) ?? transaction.map(LogSurvivor.init)
    }
    if survivors == nil, ratio != nil { return nil }
    try forgetContents(upTo: stays.limit) { stays.lsns.contains($0) }
    return StoreCompaction(
      bytesBefore: report.bytesBefore, bytesAfter: report.bytesAfter, eventsBefore: report.eventsRead,
      eventsAfter: report.eventsKept, segmentsBefore: report.segmentsRead,
      segmentsAfter: report.segmentsWritten + report.segmentsKept, recordsKeptWhole: recordsKeptWhole)
  }

  /// The last event that may go for its age; 0 if none may. Damage ends what can be judged.
  func lastEvent(
    before history: HistoryRetention, _ log: EventSource, _ step: () throws -> Void = {}
  ) throws -> (lsn: UInt64, damage: (any Error)?) {
    let durable = log.durableLSN.rawValue
    let oldest: Int64
    switch history {
    case .all: return (0, nil)
    case .latest: return (durable, nil)
    case .since(let duration): oldest = environment.clock.wallMilliseconds() &- duration.wholeMilliseconds
    }
    guard durable > 0 else { return (0, nil) }
    var last: UInt64 = 0
    do {
      try log.forEachEvent(in: 1...durable) { found in
        if found.isFirst { try step() }
        guard try found.timeMilliseconds().map({ $0 < oldest }) ?? true else { return false }
        last = found.lsn
        return true
      }
    } catch let error as LogError where error.code == .damaged {
      return (last, error)
    }
    return (last, nil)
  }

  /// Makes the plan for the beginning of the log, by the state at its end.
  private func judging(
    _ finished: FinishedEvents, _ index: StoreIndex, _ proof: CompactionProof, _ step: () throws -> Void,
    _ body: (CompactionPlan) throws -> Void
  ) throws {
    let limit = LSN(finished.lastLSN)
    func read(_ body: ([LogEvent]) throws -> Void) throws {
      try finished.forEachTransaction { transaction in
        try step()
        try body(transaction)
      }
    }
    func plan(_ state: Projections, _ proof: CompactionProof) throws -> CompactionPlan {
      try CompactionPlan(state: state, proof: proof, read: read, folding: { try index.withFold($0) })
    }
    let known = projections.withLock { $0.judged(asOf: limit) }
    // From here on the writer's changes are its own again: the judgement may take long.
    projections.withLock { $0.endJudgement() }
    // What goes cannot be made again. So the plan is made by what the log alone says, and rows that contradict it are believed no
    // more.
    try index.withFold { fold in
      try read { transaction in for found in transaction { try fold.apply(LogSurvivor(found)) } }
      fold.advance(to: limit)
      if let known { try compare(&fold, known) }
      let made: CompactionPlan
      do { made = try plan(fold.projections, proof) } catch is RulesCannotTell {
        made = try plan(fold.projections, .fold)
      }
      try body(made)
    }
  }

  /// Compares what the log says with what the store knows of the same moment.
  ///
  /// - Throws: an error of the index if they differ: its runs are made again, and the compaction begins again.
  private func compare(_ fold: inout SpillingFold, _ state: Projections) throws {
    // It has seen the times of transactions that were given up, too.
    fold.learn(state.sync.latest)
    guard let words = try state.contradiction(of: fold.projections) else { return }
    guard let runs = state.runs else {
      throw StrandlineError(
        .damaged,
        "the log was not compacted: it says something else than the store knows (\(words)); nothing was changed; please "
          + "report this")
    }
    runs.lied(words)
    throw StrandlineError(lyingIndex: "the index is not what the log says: \(words)")
  }
}
