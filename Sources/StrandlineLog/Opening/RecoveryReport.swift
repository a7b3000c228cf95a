// What an open found: for a status line, and for the tests that hold it against what was written.

/// What recovery read, and what it did about a tail.
package struct RecoveryReport: Hashable, Sendable {
  package var segments = 0
  package var events: UInt64 = 0
  /// Frames of all types that verified.
  package var frames: UInt64 = 0
  package var bytesRead: UInt64 = 0
  /// 0 in a log without events.
  package var lastLSN: UInt64 = 0
  /// Bytes behind the last complete transaction that were written and never promised; space that was reserved
  /// and not yet written does not count.
  package var bytesSetAside: UInt64 = 0
  /// Events above the last promise that were complete and were copied into the successor.
  package var copiedEvents: UInt64 = 0
  /// Segments that were not on the list and continue the log.
  package var adopted: [UInt64] = []
  /// Segments that were on no list and whose events the log has elsewhere: what an interrupted writer left. Removed by a
  /// writer's open.
  package var removed: [UInt64] = []
  /// Segments of this store that were on no list, with events that the log does not have; moved to `quarantine/` by a
  /// writer's open.
  package var quarantined: [UInt64] = []
  /// The last writer was interrupted in the middle of a group: `bytesSetAside` is not 0.
  package var torn = false
  /// How long it took by the monotonic clock.
  package var nanoseconds: UInt64 = 0

  package init() {}
}
