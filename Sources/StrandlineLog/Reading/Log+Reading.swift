// One event by its LSN: an address from memory, one pread, two checksums.

import StrandlineSystem
import Synchronization

extension Log {
  /// Reads one durable event. Safe beside appends, and legal in a poisoned log.
  ///
  /// - Throws: `.notDurable`, `.noSuchLSN`, `.compacted`, `.io`, `.closed`; `.damaged`, `.missingSegment`,
  ///   `.foreignSegment` or `.fromTheFuture` if the bytes are not those that were written: then `damage` has it too.
  /// - Complexity: O(log segments) plus one read of the event's bytes.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    var absent: SegmentIdentity?
    // A segment that is merged meanwhile is found in its replacement at the next look.
    for _ in 0..<8 {
      let (place, table) = try place(of: lsn)
      do throws(LogError) {
        return try files.read(lsn, at: place, in: table)
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
}
