// Transactions that wait to be written together: a group is one write and one sync.
//
// Bodies and their checksums were encoded when the events were added, and the frames lie in one buffer from the moment
// of the append. When the group is written, every frame gets its LSN, its tag and the checksum of its header, in one
// pass over that buffer. Layout: Formats/log.md, "Frame".

import StrandlineSystem

/// A group in the making.
struct PendingGroup: Sendable {
  /// The frames, still without LSN, flags, tag and header checksum.
  private(set) var frames: [UInt8] = []
  /// How many events each transaction has.
  private(set) var transactions: [UInt32] = []
  private(set) var firstLSN: UInt64
  /// The LSN behind its last event.
  private(set) var endLSN: UInt64

  init(firstLSN: UInt64) {
    self.firstLSN = firstLSN
    endLSN = firstLSN
  }

  var isEmpty: Bool { transactions.isEmpty }
  var events: Int { Int(endLSN - firstLSN) }

  /// Takes in a transaction.
  ///
  /// - Complexity: O(its bytes); O(1) if the group is empty.
  mutating func append(_ transaction: borrowing LogTransaction) {
    if frames.isEmpty, frames.capacity < transaction.frames.count {
      frames = transaction.frames
    } else {
      frames.append(contentsOf: transaction.frames)
    }
    transactions.append(UInt32(transaction.count))
    endLSN += UInt64(transaction.count)
  }

  /// Empties it for the events from `firstLSN` on; its memory is used again, unless it is much.
  mutating func reset(firstLSN: UInt64) {
    let keeps = frames.capacity <= Self.keptBytesMax
    frames.removeAll(keepingCapacity: keeps)
    transactions.removeAll(keepingCapacity: keeps)
    self.firstLSN = firstLSN
    endLSN = firstLSN
  }

  private static let keptBytesMax = 4 << 20

  /// Where the frames of a group lie in its segment.
  struct Stamped {
    /// One for each event.
    var offsets: [UInt32] = []
    /// The history after the group.
    var position: LogPosition
  }

  /// Completes the frames for their place.
  ///
  /// - Parameters:
  ///   - start: where the first of them will lie in the segment. Everything before it is on the medium.
  ///   - index: is told where each event begins.
  /// - Complexity: O(events) checksums of a header.
  mutating func stamp(
    at start: UInt32, after: LogPosition, identity: SegmentIdentity, index places: inout IndexBuilder
  ) -> Stamped {
    var result = Stamped(position: after)
    result.offsets.reserveCapacity(events)
    var chain = Chain(after.chain)
    var at = 0
    var lsn = firstLSN
    var synced = LogFormat.flagSynced
    for count in transactions {
      for index in 0..<count {
        let flags = synced | (index == 0 ? LogFormat.flagFirst : 0) | (index == count - 1 ? LogFormat.flagLast : 0)
        synced = 0
        let offset = start + UInt32(at)
        frames.stampFrame(at: at, lsn: lsn, flags: flags, offset: offset, identity: identity)
        result.offsets.append(offset)
        places.add(lsn, at: offset)
        let length = Int(frames.u32(at: at + LogFormat.FrameField.bodyLength))
        chain.add(
          lsn: lsn, type: FrameType.event.rawValue, schema: frames.u16(at: at + LogFormat.FrameField.schema),
          bodyLength: length, bodyCRC: frames.u32(at: at + LogFormat.FrameField.bodyCRC))
        at += LogFormat.frameBytes(bodyLength: length)
        lsn += 1
      }
    }
    result.position = LogPosition(lsn: lsn - 1, chain: chain.value, offset: start + UInt32(at))
    return result
  }

  /// Puts the end of a segment behind the group.
  mutating func append(trailer: [UInt8]) { frames.append(contentsOf: trailer) }
}
