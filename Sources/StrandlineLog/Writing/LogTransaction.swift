// What goes in and what comes out: a transaction of events to append, and an event as it was read.
//
// A transaction encodes its frames as its events are added, on the caller's thread: lengths, schemas, indexes
// and body checksums. Only what depends on the place (LSN, flags of the last frame, tag, header checksum) is
// stamped later, when the writer knows it (PendingGroup.swift). Layout: Formats/log.md, "Frame".

import StrandlineSystem

/// An event that is durable, and where it lies.
package struct LogEvent: Hashable, Sendable {
  package var lsn: UInt64
  /// A number of the owner's, kept beside the body.
  package var schema: UInt16
  package var body: [UInt8]
  /// 0 for the first event of its transaction.
  package var indexInTransaction: UInt32
  package var isFirst: Bool
  package var isLast: Bool
  /// Where it lies, for reports of damage; a copy in a successor has another place and the same LSN.
  package var segmentID: UInt64
  package var offset: UInt32

  package init(
    lsn: UInt64, schema: UInt16, body: [UInt8], indexInTransaction: UInt32, isFirst: Bool, isLast: Bool,
    segmentID: UInt64, offset: UInt32
  ) {
    self.lsn = lsn
    self.schema = schema
    self.body = body
    self.indexInTransaction = indexInTransaction
    self.isFirst = isFirst
    self.isLast = isLast
    self.segmentID = segmentID
    self.offset = offset
  }
}

extension LogEvent {
  /// The event whose verified frame begins at `start` of `bytes`.
  init(_ header: FrameHeader, _ bytes: [UInt8], at start: Int, segmentID: UInt64, offset: UInt32) {
    let body = start + LogFormat.frameHeaderBytes
    self.init(
      lsn: header.lsn, schema: header.schema, body: Array(bytes[body..<body + header.bodyLength]),
      indexInTransaction: header.indexInTransaction, isFirst: header.isFirst, isLast: header.isLast,
      segmentID: segmentID, offset: offset)
  }
}

/// Events that become durable together or not at all.
package struct LogTransaction: Sendable {
  /// The frames, still without LSN, flags, tag and header checksum.
  private(set) var frames: [UInt8] = []
  /// How many events it has.
  package private(set) var count = 0
  /// The bytes of its frames, padding included; what `LogOptions.transactionBytesMax` limits.
  package private(set) var frameBytes = 0

  /// A transaction without events. It must have one before it is appended.
  package init() {}

  package var isEmpty: Bool { count == 0 }

  /// Adds an event. A body above the limit of a frame is counted and not kept: `append` refuses the transaction.
  ///
  /// - Returns: `frameBytes` with it.
  /// - Complexity: O(`body.count`), amortized.
  @discardableResult
  package mutating func add(schema: UInt16, body: [UInt8]) -> Int {
    let bytes = LogFormat.frameBytes(bodyLength: body.count)
    let start = frames.count
    count += 1
    frameBytes += bytes
    guard frameBytes <= LogFormat.bodyBytesMax + LogFormat.frameHeaderBytes else {
      frames = []
      return frameBytes
    }
    frames.append(
      unstampedFrame: .event, schema: schema, index: UInt32(count - 1), body: body)
    assert(frames.count == start + bytes)
    return frameBytes
  }
}
