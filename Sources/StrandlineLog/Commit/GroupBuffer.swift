// The bytes of one sync group: what stands before it (a marker that promises the group before it, or the opening
// frame of a segment that was made ahead), the transactions, and the segment's index and seal if it is its last.
//
// Bodies and their checksums were encoded when the events were added; here every frame gets its LSN, its tag and
// the checksum of its header, in one pass over the buffer that is written as one.

import StrandlineSystem

/// A transaction in the queue, with the LSNs that it was given.
struct QueuedTransaction: Sendable {
  let transaction: LogTransaction
  let firstLSN: UInt64
  var lastLSN: UInt64 { firstLSN + UInt64(transaction.count) - 1 }
}

/// A group, encoded for its place.
struct GroupBuffer {
  var bytes: [UInt8] = []
  /// Where each event lies in the segment.
  var offsets: [UInt32] = []
  /// The history after the group.
  private(set) var position: LogPosition
  /// Where it begins in the segment.
  private let start: UInt32

  init(
    _ group: [QueuedTransaction], frameBytes: Int, prefix: [UInt8], at start: UInt32, after: LogPosition,
    identity: SegmentIdentity
  ) {
    position = after
    self.start = start
    bytes.reserveCapacity(prefix.count + frameBytes)
    offsets.reserveCapacity(group.reduce(0) { $0 + $1.transaction.count })
    bytes.append(contentsOf: prefix)
    var chain = Chain(after.chain)
    for queued in group {
      var at = bytes.count
      bytes.append(contentsOf: queued.transaction.frames)
      let count = queued.transaction.count
      for index in 0..<count {
        let flags =
          (index == 0 ? LogFormat.flagFirst : 0) | (index == count - 1 ? LogFormat.flagLast : 0)
        let lsn = queued.firstLSN + UInt64(index)
        let offset = start + UInt32(at)
        bytes.stampFrame(at: at, lsn: lsn, flags: flags, offset: offset, identity: identity)
        offsets.append(offset)
        let length = Int(bytes.u32(at: at + LogFormat.FrameField.bodyLength))
        let schema = UInt16(truncatingIfNeeded: bytes.u32(at: at + LogFormat.FrameField.type) >> 16)
        chain.add(
          lsn: lsn, type: FrameType.event.rawValue, schema: schema, bodyLength: length,
          bodyCRC: bytes.u32(at: at + LogFormat.FrameField.bodyCRC))
        at += LogFormat.frameBytes(bodyLength: length)
      }
      position.lsn = queued.lastLSN
    }
    position.chain = chain.value
    position.offset = start + UInt32(bytes.count)
  }

  /// Appends what ends the segment; returns where that ends.
  mutating func append(sealOf live: LiveSegment) -> UInt32 {
    bytes.append(
      contentsOf: SealFrame.encoded(
        live.index.index, at: position.offset, firstLSN: live.firstLSN, lastLSN: position.lsn, events: live.events,
        chain: position.chain, identity: live.identity))
    position.offset = start + UInt32(bytes.count)
    return position.offset
  }
}

extension [UInt8] {
  /// Appends a marker that will lie at `offset` of its segment.
  mutating func append(marker: MarkerBody, lsn: UInt64, at offset: UInt32, identity: SegmentIdentity) {
    let start = count
    append(unstampedFrame: .marker, schema: 0, index: 0, body: marker.encoded())
    stampFrame(at: start, lsn: lsn, flags: 0, offset: offset, identity: identity)
  }
}
