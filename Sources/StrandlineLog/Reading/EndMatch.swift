// Whether a log has an event that was known before it was read: the same LSN, and the same chain up to it. The chain is
// known at the end of each transaction that is read, and at the ends of all segments.
//
// And nothing behind it may have been compacted since: what stays of such events follows only from what stays before them.

/// The search for an event.
struct EndMatch {
  let known: LogEnd
  private var isFound = false
  /// The segment that it would be in was compacted, so that nothing tells whether the log had it.
  private var isHidden = false

  init(_ known: LogEnd) { self.known = known }

  /// Looks at the ends of the segments.
  mutating func look(at list: SegmentList) {
    for segment in list.segments {
      if let opening = segment.summary?.opening { look(opening.predecessorLastLSN, opening.chain) }
      if let end = segment.end { look(end.lastLSN, end.chain) }
    }
  }

  /// Looks at the end of a transaction.
  mutating func look(at position: LogPosition) { look(position.lsn, position.chain) }

  private mutating func look(_ lsn: UInt64, _ chain: UInt32) {
    if lsn == known.lsn, chain == known.chain { isFound = true }
  }

  /// Looks at a segment that was read to its end.
  func look(at walk: SegmentWalk) throws {
    if walk.isCompacted, walk.unitEnd.lsn > known.lsn { throw AnotherHistory() }
  }

  /// The same, where a compaction is no reason to refuse the log.
  mutating func note(_ walk: SegmentWalk) {
    if walk.isCompacted, walk.unitEnd.lsn > known.lsn { isHidden = true }
  }

  /// Whether a log that ends with `end` cannot be the one that had it. An event that ended a transaction does so for ever.
  func isContradicted(byEnd end: UInt64) -> Bool { end < known.lsn || !(isFound || isHidden) }

  /// Asked before an event behind it is handed out, and at the end.
  func check() throws {
    if !isFound { throw AnotherHistory() }
  }
}

/// The log does not have the event that a caller knows, has another one under its LSN, or was compacted behind it.
package struct AnotherHistory: Error {}
