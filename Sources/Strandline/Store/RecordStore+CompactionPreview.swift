// What a compaction would remove now, asked of a store that is open for reading. No byte is changed.
//
// It is the plan of a compaction itself (CompactionPlan.swift). The plan of a whole log is made by the state at its newest event,
// which a reader has. The plan of a beginning needs the state at its end: that is folded in memory, so only if it is short.

import StrandlineLog
import StrandlineSystem

/// What a compaction would remove from a log, or from its part that is older than the history that stays.
package struct CompactionPreview: Hashable, Sendable {
  /// The events that it would look at; 0 if nothing is old enough.
  package var eventsBefore: UInt64 = 0
  /// The events that would stay, those that others were packed into counted.
  package var eventsAfter: UInt64 = 0
  /// The bytes of the events that it would look at, without what a file has besides.
  package var bytesBefore: UInt64 = 0
  /// The bytes of those that would stay.
  package var bytesAfter: UInt64 = 0
}

extension RecordStore {
  /// The most events that are folded in memory.
  private static let foldedMax: UInt64 = 200_000

  /// What `compact(keeping:)` would remove now, if no view and no projection of the writing process kept anything.
  ///
  /// - Returns: nil if only a fold of more than 200,000 events could tell; and for a store that this process writes, which can
  ///   be compacted instead.
  /// - Throws: `StrandlineError`: `.damaged`, `.outdated` (another process has compacted the log meanwhile), `.io`, `.closed`.
  /// - Complexity: O(bytes of the log that may go), read three times, with a part of the history four times. Memory for some
  ///   bits of each event, and for what is folded.
  package func previewCompaction(keeping history: HistoryRetention) throws -> CompactionPreview? {
    try CallSite.unnamed.run("looking what a compaction of the store at '\(path)' would remove") {
      try requireOpen()
      guard case .reader(let reader) = source else { return nil }
      let newest = projections.withLock { $0 }
      var (limit, damage) = try lastEvent(before: history, source)
      if let damage { throw damage }
      // What was added since the look at the state is not asked about. Only whole segments are rewritten.
      if limit >= newest.appliedLSN.rawValue {
        limit = newest.appliedLSN.rawValue
      } else {
        limit = reader.segments.map(\.lsns.upperBound).last { $0 <= limit } ?? 0
      }
      guard limit > 0 else { return CompactionPreview() }
      func read(_ body: ([LogEvent]) throws -> Void) throws { try Self.read(reader, upTo: limit, body) }
      var state = newest
      if limit < newest.appliedLSN.rawValue {
        guard limit <= Self.foldedMax else { return nil }
        var fold = SpillingFold()
        try read { for found in $0 { try fold.apply(LogSurvivor(found)) } }
        fold.advance(to: LSN(limit))
        state = fold.projections
      }
      let plan: CompactionPlan
      do {
        plan = try CompactionPlan(state: state, proof: .rules, read: read, folding: Self.inMemory)
      } catch is RulesCannotTell {
        guard limit <= Self.foldedMax else { return nil }
        plan = try CompactionPlan(state: state, proof: .fold, read: read, folding: Self.inMemory)
      }
      return try Self.preview(plan, read)
    }
  }

  private static func preview(_ plan: CompactionPlan, _ read: CompactionPlan.Reading) throws -> CompactionPreview {
    var result = CompactionPreview()
    var survivors = Survivors(of: plan)
    try read { transaction in
      for found in transaction {
        result.eventsBefore += 1
        result.bytesBefore += UInt64(LogFormat.frameBytes(bodyLength: found.body.count))
      }
      for survivor in try survivors.of(transaction) {
        result.eventsAfter += 1
        result.bytesAfter += UInt64(LogFormat.frameBytes(bodyLength: survivor.body.count))
      }
    }
    return result
  }

  private static func inMemory(_ body: (inout SpillingFold) throws -> Void) throws {
    var fold = SpillingFold()
    try body(&fold)
  }

  /// Hands out the transactions of a log's beginning.
  private static func read(
    _ reader: LogReader, upTo limit: UInt64, _ body: ([LogEvent]) throws -> Void
  ) throws {
    var transaction: [LogEvent] = []
    try reader.forEachEvent(in: 1...limit) { event in
      if event.isFirst, !transaction.isEmpty {
        try body(transaction)
        transaction.removeAll(keepingCapacity: true)
      }
      transaction.append(event)
      return true
    }
    if !transaction.isEmpty { try body(transaction) }
  }
}
