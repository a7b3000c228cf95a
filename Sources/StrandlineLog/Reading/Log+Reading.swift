// Events by their LSNs: one by an address from memory or by a place that the caller has kept, one pread and two checksums;
// or a run of them in order.

import StrandlineSystem
import Synchronization

extension Log: EventAddresses {
  /// Reads one durable event. Safe beside appends, and legal in a poisoned log.
  ///
  /// - Throws: `.notDurable`, `.noSuchLSN`, `.compacted`, `.io`, `.closed`; `.damaged`, `.missingSegment`,
  ///   `.foreignSegment` or `.fromTheFuture` if the bytes are not those that were written: then `damage` has it too.
  /// - Complexity: O(log segments) plus one read: of the event's bytes, or of at most 4 KiB and the event's bytes in a
  ///   segment that this log has neither written nor walked. The first such read of a segment reads its index too.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    try resolved(lsn) { (place, table) throws(LogError) in try files.read(lsn, at: place, in: table) }
  }

  /// Reads one durable event that was last seen at `hint`. If the event lies there, that is one read of its bytes (of
  /// 1 KiB, and perhaps a second one, if `hint` does not know its size), and nothing else of its segment is looked at.
  /// Else it is looked up by its LSN, in the segment that stands for the hint's one now.
  ///
  /// - Throws: as `read(_:)` does.
  package func read(_ lsn: UInt64, at hint: LogPlace) throws(LogError) -> LogEvent {
    try resolved(lsn) { (place, table) throws(LogError) in
      if hint.segmentID == table.identity.segmentID, let event = try files.read(lsn, at: hint, in: table) {
        return event
      }
      return try files.read(lsn, at: place, in: table)
    }
  }

  /// Where a durable event lies, if this log knows it without a read: of what it has written or walked, as far as
  /// `LogOptions.placeBytesMax` goes. A hint for `read(_:at:)`, which may lead to nothing after the next merge.
  ///
  /// - Complexity: O(log segments).
  package func place(of lsn: UInt64) -> LogPlace? {
    queue.withLock { state in
      guard lsn > 0, lsn <= state.durableLSN, !state.tables.isEmpty else { return nil }
      return state.tables[state.tables.index(of: lsn)].exactPlace(of: lsn)
    }
  }

  /// Hands durable events from `lsns` to `visit`, in order, until it returns false. What was compacted away is passed
  /// over; so is what is not durable when this begins. Safe beside appends, merges and compactions.
  ///
  /// - Throws: what `read(_:)` throws, or what `visit` throws.
  /// - Complexity: O(bytes of the events), read in large pieces; nothing is read of segments without events of `lsns`.
  package func forEachEvent(
    in lsns: ClosedRange<UInt64>, _ visit: (LogEvent) throws -> Bool
  ) throws {
    try handOut(lsns, upTo: durableLSN, visit)
  }

  func resolved<Result>(
    _ lsn: UInt64, _ body: (SegmentTable.Place, SegmentTable.Address) throws(LogError) -> Result
  ) throws(LogError) -> Result {
    var absent: SegmentIdentity?
    // A segment that is merged meanwhile is found in its replacement at the next look.
    for _ in 0..<8 {
      let (place, table) = try address(of: lsn)
      do throws(LogError) {
        return try body(place, table)
      } catch {
        guard error.underlying?.isAbsent == true else {
          files.damage.add(error, in: table.identity.segmentID)
          throw error
        }
        // A file goes only after its replacement is known here.
        guard absent == table.identity else {
          absent = table.identity
          continue
        }
        let missing = LogError.missing(table.path, lsns: table.lsns, "")
        files.damage.add(missing, in: table.identity.segmentID)
        throw missing
      }
    }
    throw LogError(.io, "LSN \(lsn) moves faster than it can be read; try again", lsns: lsn...lsn)
  }

  /// Damage that was met since the log was opened, by a read, a merge or a compaction, in the order in which it was met.
  /// Segments with damage are not merged and not compacted, nor are those behind them compacted. At most 64 places.
  package var damage: [LogDamage] { files.damage.all }

  /// The memory of the indexes that reads have loaded; `LogOptions.indexBytesMax` bounds it.
  package var indexBytes: Int { files.indexBytes }

  private func address(of lsn: UInt64) throws(LogError) -> (SegmentTable.Place, SegmentTable.Address) {
    try queue.withLock { state throws(LogError) -> (SegmentTable.Place, SegmentTable.Address) in
      if case .closed = state.phase { throw CommitState.closed }
      guard lsn > 0, lsn < state.nextLSN else {
        throw LogError(.noSuchLSN, "there is no LSN \(lsn); the next is \(state.nextLSN)", lsns: lsn...lsn)
      }
      guard lsn <= state.durableLSN else {
        throw LogError(.notDurable, "LSN \(lsn) is not durable yet", lsns: lsn...lsn)
      }
      let table = state.tables.index(of: lsn)
      return (state.tables[table].place(of: lsn), state.tables[table].address)
    }
  }
}
