// What is promised and what is there: the tail, and what lies after it.

extension ConformanceCase {
  /// A change of segment 1 of the base `killed`: two events of a transaction, event 3 and event 4, of which nothing
  /// promises the last; CONTROL promises the transaction.
  private static func tail(
    _ name: String, _ demand: Demand, _ why: String,
    _ change: @escaping @Sendable (inout SegmentImage, LogLayouts) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("tail-\(name)", .killed, demand, why) { image in
      let layouts = image.layouts
      try image.segment(1) { try change(&$0, layouts) }
    }
  }

  /// A change of the bytes of one file.
  private static func bytes(
    _ name: String, _ base: ConformanceBase, _ file: String, _ demand: Demand, _ why: String,
    _ change: @escaping @Sendable (inout [UInt8]) -> Void
  ) -> ConformanceCase {
    ConformanceCase(name, base, demand, why) {
      $0.finish = { files in
        guard var bytes = files[file] else { throw PageError("no file '\(file)'") }
        change(&bytes)
        files[file] = bytes
      }
    }
  }

  static let promises: [ConformanceCase] = tails + behind

  private static let tails: [ConformanceCase] = [
    tail("cut-in-window", .sound(2, events: 2), "cut at CONTROL's bound: not told from what was never acknowledged") {
      segment, _ in
      segment.frames.removeLast(2)
    },
    tail("cut-below-control", .damaged(segment1), "cut below CONTROL's bound") { segment, _ in
      segment.frames.removeLast(3)
    },
    tail("cut-to-opening", .damaged(segment1), "cut to its opening frame") { segment, _ in
      segment.frames.removeLast(4)
    },
    tail("last-frame-gone", .sound(3, events: 3), "the last group is gone, and nothing promised it") { segment, _ in
      segment.frames.removeLast()
    },
    tail("flag-without-body", .torn(3, events: 3), "the last group is half there; its header promises what precedes it")
    { segment, layouts in
      let frame = segment.frames.removeLast()
      segment.rest = Array(try frame.encoded(at: UInt32(segment.end), seed: segment.seed).dropLast(4))
    },
    tail("hole-below-flag", .damaged(segment1), "event 3 is zero, and the header of event 4 promises it") {
      segment, _ in
      let frame = segment.frames.removeLast()
      let place = segment.end
      segment.frames.removeLast()
      try segment.leave(frame, at: place)
    },
    tail("without-flags", .sound(4, events: 4), "groups without the flag: less is promised") { segment, _ in
      try segment.frames[3].set("flags", 3)
      try segment.frames[4].set("flags", 3)
    },
    tail("transaction-open", .torn(3, events: 3), "the last transaction has no last event") { segment, _ in
      try segment.frames[4].set("flags", 5)
    },
    tail("lsn-gap", .damaged(segment1), "the last event does not continue, and its flag promises another LSN before it")
    {
      segment, _ in
      try segment.frames[4].set("lsn", 9)
    },
    tail("lsn-gap-unpromised", .torn(3, events: 3), "the last event does not continue, and promises nothing") {
      segment, _ in
      try segment.frames[4].set("lsn", 9)
      try segment.frames[4].set("flags", 3)
    },
    tail("lsn-gap-promised", .damaged(segment1), "event 3 does not continue, and event 4 promises it") { segment, _ in
      try segment.frames[3].set("lsn", 9)
    },
    tail("synced-inside", .damaged(segment1), "a promise that lies inside a transaction") { segment, layouts in
      try segment.frames[4].set("flags", 5)
      let next = try FrameImage(layouts, FrameNumber.event, lsn: 5, flags: 6, body: [1])
      try segment.append(next)
      try segment.frames[5].set("indexInTransaction", 1)
    },
    tail("future-type", .future(segment1), "a frame of a later version at the end of the log") { segment, layouts in
      try segment.append(FrameImage(layouts, 60, lsn: 5, body: []))
    },
    tail("future-flag", .future(segment1), "a flag of a later version at the end of the log") { segment, _ in
      try segment.frames[4].set("flags", 0x27)
    },
    tail("second-opening", .torn(4, events: 4), "an opening frame that opens nothing is a stop") { segment, layouts in
      try segment.append(FrameImage(layouts, FrameNumber.opening, lsn: 5, body: segment.frames[0].body))
    },
    tail("garbage", .torn(4, events: 4), "bytes that no frame explains, behind the last one") { segment, _ in
      segment.rest = Array(repeating: 0xA5, count: 24)
    },
    tail("zeros", .sound(4, events: 4), "space that was reserved and not written") { segment, _ in
      segment.rest = Array(repeating: 0, count: 1000)
    },
    tail("seal-alone", .torn(4, events: 4), "an index that a power cut tore before its seal") { segment, layouts in
      try segment.append(
        FrameImage(layouts, FrameNumber.index, lsn: 5, flags: 4, body: [0, 0, 0, 0] + littleEndian(4160)))
      segment.rest = [1, 2, 3, 4]
    },
    tail("index-alone", .sound(4, events: 4), "an index without a seal") { segment, layouts in
      try segment.append(
        FrameImage(layouts, FrameNumber.index, lsn: 5, flags: 4, body: [0, 0, 0, 0] + littleEndian(4160)))
    },
  ]

  /// A frame that lies behind the end, with a gap before it.
  private static func left(
    _ name: String, _ demand: Demand, _ why: String, by gap: Int = 64,
    _ change: @escaping @Sendable (inout FrameImage) throws -> Void
  ) -> ConformanceCase {
    tail("behind-\(name)", demand, why) { segment, layouts in
      var frame = try FrameImage(layouts, FrameNumber.event, lsn: 9, flags: 7, body: Array("event 9".utf8))
      try change(&frame)
      try segment.leave(frame, at: segment.end + gap)
    }
  }

  private static let behind: [ConformanceCase] = [
    left("flag", .damaged(segment1), "a flag behind a gap promises what is not there") { _ in },
    left("no-flag", .torn(4, events: 4), "a frame without the flag promises nothing") { try $0.set("flags", 3) },
    left("odd", .torn(4, events: 4), "a frame verifies only at multiples of 8", by: 60) { _ in },
    left("type-0", .torn(4, events: 4), "a header of type 0 does not verify") { try $0.set("type", 0) },
    left("length-beyond", .torn(4, events: 4), "a header with a length above 2^26 does not verify") {
      try $0.set("bodyLength", (1 << 26) + 1)
    },
    left("length-beyond-file", .damaged(segment1), "the header alone promises, whatever its body") {
      try $0.set("bodyLength", 1 << 25)
    },
    left("future-type", .damaged(segment1).refusedByRepair(), "a promise of a type that version 1 does not know") {
      try $0.set("type", 99)
    },
    left("lsn-0", .torn(4, events: 4), "a flag without an LSN promises nothing") { try $0.set("lsn", 0) },
    left("lsn-beyond", .torn(4, events: 4), "a flag with an LSN of 2^62 promises nothing") {
      try $0.set("lsn", 1 << 62)
    },
    left("skippable", .damaged(segment1), "a promise of a skippable type") { try $0.set("type", 222) },
    tail("behind-other-salt", .torn(4, events: 4), "a frame of another segment does not verify") { segment, layouts in
      var other = segment
      try other.set(salt: 1)
      let frame = try FrameImage(layouts, FrameNumber.event, lsn: 5, flags: 7, body: [])
      try other.leave(frame, at: segment.end + 8)
      segment.rest = other.rest
    },
    tail("behind-moved", .torn(4, events: 4), "a frame at another offset does not verify") { segment, layouts in
      var other = segment
      let frame = try FrameImage(layouts, FrameNumber.event, lsn: 5, flags: 7, body: [])
      try other.leave(frame, at: segment.end + 8)
      segment.rest = Array(repeating: 0, count: 8) + other.rest
    },
    ConformanceCase(
      "tail-control-inside-transaction", .killed, .damaged(segment1), "CONTROL's end lies inside a transaction"
    ) {
      let end = try $0.segment(1).offset(2)
      try $0.slots[1]?.set("durableEnd", UInt64(end))
    },
    ConformanceCase("tail-control-lsn", .killed, .damaged(segment1), "another LSN ends at CONTROL's end") {
      try $0.slots[1]?.set("durableLSN", 3)
    },
    ConformanceCase("tail-control-above", .killed, .damaged(segment1), "CONTROL promises more than is whole") {
      let end = try $0.segment(1).end
      try $0.slots[1]?.set("durableEnd", UInt64(end) + 40)
      try $0.slots[1]?.set("durableLSN", 5)
    },
    ConformanceCase("tail-control-at-end", .killed, .sound(4, events: 4), "CONTROL was raised after the last group") {
      let end = try $0.segment(1).end
      try $0.slots[1]?.set("durableEnd", UInt64(end))
      try $0.slots[1]?.set("durableLSN", 4)
    },
    ConformanceCase("tail-control-cut", .killed, .damaged(segment1), "CONTROL was raised after a group that is gone") {
      let end = try $0.segment(1).end
      try $0.slots[1]?.set("durableEnd", UInt64(end))
      try $0.slots[1]?.set("durableLSN", 4)
      try $0.segment(1) { $0.frames.removeLast() }
    },
    bytes("live-blank", .finished, segment3, .damaged(segment3), "a listed segment that is zero behind its header") {
      bytes in
      for place in 4096..<bytes.count { bytes[place] = 0 }
    },
  ]
}
