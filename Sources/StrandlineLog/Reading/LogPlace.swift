// Where an event was last seen: what an index that lives outside of the log keeps beside an LSN.
//
// A place is a hint and never the truth. A merge or a compaction moves events to other segments, and a place that was
// written down before leads to nothing then; the LSN, which never changes, is looked up instead. An event that is found at
// a place is believed only if its frame verifies, whose checksum names store, segment and offset, and has the LSN.

import StrandlineSystem

/// A place in a segment.
package struct LogPlace: Hashable, Sendable {
  package var segmentID: UInt64
  /// Where the event's frame begins.
  package var offset: UInt32
  /// How many bytes the frame has: what is read at once. 0 if it is not known, and a wrong number costs a second read.
  package var frameBytes: UInt32

  package init(segmentID: UInt64, offset: UInt32, frameBytes: UInt32 = 0) {
    self.segmentID = segmentID
    self.offset = offset
    self.frameBytes = frameBytes
  }
}

extension LogEvent {
  /// Where it was read.
  package var place: LogPlace {
    LogPlace(
      segmentID: segmentID, offset: offset, frameBytes: UInt32(LogFormat.frameBytes(bodyLength: body.count)))
  }
}
