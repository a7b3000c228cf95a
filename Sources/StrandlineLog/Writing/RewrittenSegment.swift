// A segment whose events are copied, in the making: for a merge, a compaction, a repair.
//
// It is written as a whole, so nothing in it is promised by a later frame: its opening frame says where it ends, and its
// seal which events it has. Events keep their LSNs; some of the range may be missing.

import StrandlineSystem

/// The bytes of a rewritten segment.
struct RewrittenSegment {
  var header: SegmentHeader
  /// Without `durableEnd` until it is finished.
  var opening: OpeningBody
  private(set) var bytes: [UInt8]
  /// LSN and offset of every event.
  private(set) var places: [IndexBody.Entry] = []
  private var index: IndexBuilder
  private var chain: Chain

  /// - Parameter opening: how it continues what precedes it.
  init(_ header: SegmentHeader, _ opening: OpeningBody) {
    self.header = header
    self.opening = opening
    index = IndexBuilder(firstLSN: opening.firstLSN)
    chain = Chain(opening.chain)
    bytes = header.encodedPage()
    // The opening frame comes last: it says where the file ends.
    bytes.append(zeros: LogFormat.openingFrameBytes)
  }

  var events: UInt64 { UInt64(places.count) }
  /// The chain over the events as they are in it.
  var contentChain: UInt32 { chain.value }
  /// The events have no gaps between their LSNs.
  var isDense: Bool { opening.rangeLastLSN + 1 - opening.firstLSN == events }

  /// Adds what stays of a transaction.
  ///
  /// - Precondition: LSNs rise, and are in the range; bodies are no longer than a frame's may be.
  mutating func add(_ survivors: [LogSurvivor]) {
    for (number, survivor) in survivors.enumerated() {
      let start = bytes.count
      let flags =
        (number == 0 ? LogFormat.flagFirst : 0) | (number == survivors.count - 1 ? LogFormat.flagLast : 0)
      bytes.append(unstampedFrame: .event, schema: survivor.schema, index: UInt32(number), body: survivor.body)
      bytes.stampFrame(
        at: start, lsn: survivor.lsn, flags: flags, offset: UInt32(start), identity: header.identity)
      chain.add(
        lsn: survivor.lsn, type: FrameType.event.rawValue, schema: survivor.schema, bodyLength: survivor.body.count,
        bodyCRC: bytes.u32(at: start + LogFormat.FrameField.bodyCRC))
      places.append(
        IndexBody.Entry(
          lsnDelta: UInt32(truncatingIfNeeded: survivor.lsn - opening.firstLSN), offset: UInt32(start)))
      index.add(survivor.lsn, at: UInt32(start))
    }
  }

  /// Adds index, seal and opening frame. Its range, the chain at the range's end, and the event as of which it was
  /// compacted, are known by now.
  mutating func finish() {
    bytes.append(
      contentsOf: SegmentTrailer.encoded(
        index.index, at: UInt32(bytes.count), lastLSN: opening.rangeLastLSN, chain: chain.value, isSynced: false,
        identity: header.identity))
    opening.durableEnd = UInt32(bytes.count)
    bytes.replaceSubrange(0..<LogFormat.headerBytes, with: header.encoded())
    bytes.replaceSubrange(
      LogFormat.headerPageBytes..<LogFormat.openingEnd, with: opening.encodedFrame(header.identity))
  }

  /// As the list of segments names it, once it is finished.
  var entry: ManifestEntry {
    ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: opening.firstLSN, end: end)
  }

  var end: SegmentEnd {
    SegmentEnd(offset: opening.durableEnd, lastLSN: opening.rangeLastLSN, chain: opening.rangeChain)
  }
}
