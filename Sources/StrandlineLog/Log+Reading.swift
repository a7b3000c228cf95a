// One event by its LSN: an address from memory, one pread, two checksums.

import StrandlineSystem
import Synchronization

extension Log {
  /// Reads one durable event. Safe beside appends, and legal in a poisoned log.
  ///
  /// - Throws: `.notDurable`, `.noSuchLSN`, `.damaged` if the bytes do not verify any more, `.io`, `.closed`.
  /// - Complexity: O(log segments) plus one read of the event's bytes.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    let (place, identity, path) = try commit.withLock {
      state throws(LogError) -> (Range<UInt32>, SegmentIdentity, String) in
      if case .closed = state.phase { throw CommitState.closed }
      guard lsn > 0, lsn < state.nextLSN else {
        throw LogError(.noSuchLSN, "there is no LSN \(lsn); the next is \(state.nextLSN)", lsns: lsn...lsn)
      }
      guard lsn <= state.durableLSN else {
        throw LogError(.notDurable, "LSN \(lsn) is not durable yet", lsns: lsn...lsn)
      }
      let table = state.tables.index(of: lsn)
      return (state.tables[table].place(of: lsn), state.tables[table].identity, state.tables[table].path)
    }
    return try files.read(lsn, at: place, identity: identity, path: path)
  }
}
