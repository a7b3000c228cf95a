// Compaction as an app sees it: the log becomes as large as what it says.
//
// Writes, reads and syncs go on meanwhile. What they may still need was alive when the plan was made, or is newer than
// everything that the plan is about.

import Dispatch
import StrandlineLog
import StrandlineSystem
import Synchronization

/// What a compaction did.
public struct StoreCompaction: Hashable, Sendable {
  /// The log's size in bytes, without what is reserved ahead.
  public var bytesBefore: UInt64 = 0
  /// The same, afterwards.
  public var bytesAfter: UInt64 = 0
  /// Events that it had.
  public var eventsBefore: UInt64 = 0
  /// Events that stayed, those that others were packed into counted.
  public var eventsAfter: UInt64 = 0
  /// Files that they lay in.
  public var segmentsBefore = 0
  /// Files that they lie in.
  public var segmentsAfter = 0
  /// Records of which all events stayed, because nothing could be left out safely.
  package var recordsKeptWhole = 0
}

extension RecordStore {
  /// Removes from the log what nothing needs any more: superseded values, settled mutations, answers that have been
  /// taken in. What every record holds, what is owed to the server, what must stay deleted, and where syncing stands is
  /// the same afterwards; event numbers stay.
  ///
  /// When this returns, what was removed is gone from the medium; if it throws, or the power goes, nothing was removed.
  /// Reads, writes and syncs go on meanwhile; a store that another process has open for reading may have to be opened
  /// again there. What became of a write whose events were removed can no longer be asked.
  ///
  /// - Throws: `StrandlineError`: `.readOnly`, `.diskFull` (until it ends, what stays is on the disk twice),
  ///   `.damaged`, `.io`, `.closed`, `.suspended` (also if the store is suspended meanwhile; nothing was removed then).
  /// - Complexity: O(bytes of the log), read five times and what stays written once; memory for the record table and
  ///   the deletion index twice.
  @discardableResult
  public func compact(fileID: String = #fileID, line: Int = #line) async throws -> StoreCompaction {
    // Reading a whole log blocks its thread for long, so it does not run on the cooperative pool.
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global(qos: .utility).async {
        continuation.resume(with: Result { try self.compactBlocking(fileID: fileID, line: line) })
      }
    }
  }

  /// The same on a plain thread.
  @discardableResult
  package func compactBlocking(fileID: String = #fileID, line: Int = #line) throws -> StoreCompaction {
    try CallSite(fileID, line).run("compacting the store at '\(path)'") {
      try projections.rebuilding { () throws(StrandlineError) in
        do { return try compactOnce() } catch {
          let error = StrandlineError.translating(error, "compacting the store at '\(path)'")
          let known = error as? StrandlineError ?? StrandlineError(.io, "\(error)", underlying: error)
          guard known.code == .closed else { throw known }
          // If it was not the store that was closed, it was its log, by a suspension.
          try requireOpen()
          throw StrandlineError.suspended
        }
      }
    }
  }

  private func compactOnce() throws -> StoreCompaction {
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
    var plan: CompactionPlan?
    var report = CompactionReport()
    try index.whileCompacting {
      try log.finishSegment()
      report = try log.compact(prepare: { finished in
        let made = try self.plan(finished)
        projections.withLock { state in
          state.learn(aboutToBePacked: made)
        }
        // Judged by the state at the segments' end: read behind an older state, what stays would bring back what was
        // deleted. So the index is beyond it before anything is left out; and has what was just learned.
        try index.flush(always: true)
        plan = made
      }) { transaction in
        // A suspension does not wait for the rest of the log.
        try requireWritable()
        guard let plan else { return transaction.map(LogSurvivor.init) }
        return try transaction.compactMap { try plan.survivor(of: $0) }
      }
    }
    return StoreCompaction(
      bytesBefore: report.bytesBefore, bytesAfter: report.bytesAfter, eventsBefore: report.eventsRead,
      eventsAfter: report.eventsKept, segmentsBefore: report.segmentsRead,
      segmentsAfter: report.segmentsWritten + report.segmentsKept, recordsKeptWhole: plan?.recordsKeptWhole ?? 0)
  }

  /// The mutations up to `limit` that a later one may stand for at `limit`, and whose content is needed all the same:
  /// the server has been asked to take them since, or is about to be.
  ///
  /// Whatever else is pointed at now or later was a base or a newest mutation at `limit`, or is newer.
  private func needed(upTo limit: LSN) throws(StrandlineError) -> Set<LSN> {
    let (memory, attempted) = projections.withLock { state in
      (state.scanMemory(asOf: state.appliedLSN), state.outbox.attempted.all(upTo: limit))
    }
    var needed = projections.sending.union(attempted)
    var scan = try EntryScan(memory, EntryScan.Range())
    while let (_, entry) = try scan.next() {
      if let base = entry.base, base.version > limit, base.content <= limit { needed.insert(base.content) }
    }
    return needed
  }

  private func plan(_ finished: FinishedEvents) throws -> CompactionPlan {
    let limit = LSN(finished.lastLSN)
    let needed = try needed(upTo: limit)
    return try CompactionPlan(newKey: HashKey(ofStore: source.storeUUID), needed: needed) { body in
      try finished.forEachTransaction { transaction in
        try requireWritable()
        for found in transaction { try body(EventSource.decode(found), LSN(found.lsn)) }
      }
    }
  }
}

extension CompactionPlan {
  /// What stays of an event as the log has it; nil if nothing does.
  fileprivate func survivor(of found: LogEvent) throws -> LogSurvivor? {
    let (event, isSame) = survivor(try EventSource.decode(found), at: LSN(found.lsn))
    guard let event else { return nil }
    if isSame { return LogSurvivor(found) }
    return LogSurvivor(lsn: found.lsn, schema: EventCodec.schema, body: EventCodec.encode(event))
  }
}
