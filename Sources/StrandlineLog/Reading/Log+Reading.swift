// One event by its LSN: an address from memory, one pread, two checksums.

import StrandlineSystem
import Synchronization

extension Log {
  /// Reads one durable event. Safe beside appends, and legal in a poisoned log.
  ///
  /// - Throws: `.notDurable`, `.noSuchLSN`, `.damaged` if the bytes do not verify any more, `.io`, `.closed`.
  /// - Complexity: O(log segments) plus one read of the event's bytes.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    // A segment that is merged meanwhile is found in its replacement at the next look.
    for _ in 0..<8 {
      let (place, table) = try place(of: lsn)
      do throws(LogError) {
        if case .unknown = place {
          try loadIndex(table)
          continue
        }
        return try files.read(lsn, at: place, identity: table.identity, path: table.path)
      } catch  where error.underlying?.isAbsent == true {
        continue
      }
    }
    throw LogError(.io, "LSN \(lsn) moves faster than it can be read; try again", lsns: lsn...lsn)
  }

  private func place(of lsn: UInt64) throws(LogError) -> (SegmentTable.Place, SegmentTable.Address) {
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

  /// Loads the index of a segment that was finished before this log was opened.
  func loadIndex(_ table: SegmentTable.Address) throws(LogError) {
    let index = try files.index(of: table)
    queue.withLock { state in
      guard let at = state.tables.firstIndex(where: { $0.segmentID == table.identity.segmentID }) else { return }
      state.tables[at].load(index)
    }
  }
}
