// Where each event lies: four bytes an event, kept in memory.

import StrandlineSystem

/// The offsets of one segment's events.
struct SegmentTable: Sendable {
  let path: String
  let identity: SegmentIdentity
  let firstLSN: UInt64
  private var offsets: [UInt32] = []
  /// Where the last event ends, at the latest.
  private var end: UInt32

  var segmentID: UInt64 { identity.segmentID }

  init(path: String, identity: SegmentIdentity, firstLSN: UInt64) {
    self.path = path
    self.identity = identity
    self.firstLSN = firstLSN
    end = UInt32(LogFormat.headerPageBytes + LogFormat.openingFrameBytes)
  }

  init(_ summary: SegmentSummary) {
    self.init(path: summary.path, identity: summary.identity, firstLSN: summary.opening.firstLSN)
  }

  var nextLSN: UInt64 { firstLSN + UInt64(offsets.count) }

  /// Takes in the events of a group or transaction, which end at `end`.
  mutating func append(_ offsets: [UInt32], end: UInt32) {
    self.offsets.append(contentsOf: offsets)
    self.end = end
  }

  mutating func append(_ events: [LogEvent], end: UInt32) {
    for event in events { offsets.append(event.offset) }
    self.end = end
  }

  /// Forgets the events behind `position`: their copies in the successor count.
  mutating func cut(to position: LogPosition) {
    offsets.removeLast(Int(nextLSN - 1 - position.lsn))
    end = position.offset
  }

  /// No more will come: gives back what the array has in reserve.
  mutating func seal() { offsets = Array(offsets[...]) }

  /// Where the event lies, and a bound for its length: the next event's place, or the end.
  func place(of lsn: UInt64) -> Range<UInt32> {
    let index = Int(lsn - firstLSN)
    return offsets[index]..<(index + 1 < offsets.count ? offsets[index + 1] : end)
  }
}

extension [SegmentTable] {
  /// The table that has `lsn`. The caller has checked that one has.
  func index(of lsn: UInt64) -> Int {
    var low = 0
    var high = count
    while high - low > 1 {
      let middle = (low + high) / 2
      if self[middle].firstLSN <= lsn { low = middle } else { high = middle }
    }
    return low
  }
}
