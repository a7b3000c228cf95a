// What is promised and what is there: the tail, ends, and segments that are prepared.

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

  static let promises: [ConformanceCase] = tails + behind + preparedTails

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
  ]

  /// Spoils the opening frame of segment 2.
  private static func spoilOpening(_ image: inout StoreImage) throws {
    try image.frame(2, 0) { try $0.set("tag", 1) }
  }

  private static let preparedTails: [ConformanceCase] = [
    ConformanceCase(
      "prepared-one-group", .prepared, .sound(3, events: 3),
      "one group, which nothing promises: copied with its opening frame"
    ) {
      try $0.segment(2) { $0.frames.removeLast() }
    },
    ConformanceCase("prepared-opening-only", .prepared, .sound(2, events: 2), "an opening frame and nothing behind it")
    {
      try $0.segment(2) { $0.frames.removeLast(2) }
    },
    ConformanceCase(
      "prepared-opening-torn", .prepared, .sound(2, events: 2), "the first group tore in its opening frame: not opened"
    ) {
      try $0.segment(2) { $0.frames.removeLast() }
      try spoilOpening(&$0)
    },
    ConformanceCase("prepared-opening-lost", .prepared, .damaged(segment2), "no opening frame, and a flag behind it") {
      try spoilOpening(&$0)
    },
    ConformanceCase(
      "prepared-opening-lost-control", .prepared, .damaged(segment2),
      "no opening frame, and CONTROL speaks of the segment"
    ) {
      try $0.segment(2) { $0.frames.removeLast() }
      try spoilOpening(&$0)
      try $0.slots[1]?.set("tailSegmentID", 2)
      try $0.slots[1]?.set("durableEnd", 4200)
      try $0.slots[1]?.set("durableLSN", 2)
    },
    ConformanceCase(
      "prepared-opening-lost-list", .prepared, .damaged(segment2),
      "no opening frame, and MANIFEST says that it is in use"
    ) {
      try $0.segment(2) { $0.frames.removeLast() }
      try spoilOpening(&$0)
      try $0.entries[1].set("firstLSN", 3)
    },
    ConformanceCase(
      "prepared-listed", .prepared, .sound(4, events: 4), "prepared, and MANIFEST knows that it is in use"
    ) {
      try $0.entries[1].set("firstLSN", 3)
    },
    ConformanceCase(
      "prepared-listed-blank", .unused, .damaged(segment2), "MANIFEST says that it is in use, and it is zero"
    ) {
      try $0.entries[1].set("firstLSN", 3)
    },
    ConformanceCase("prepared-listed-one-group", .prepared, .sound(3, events: 3), "MANIFEST promises the opening frame")
    {
      try $0.entries[1].set("firstLSN", 3)
      try $0.segment(2) { $0.frames.removeLast() }
    },
    ConformanceCase(
      "prepared-listed-opening-only", .prepared, .damaged(segment2),
      "MANIFEST says that it is in use, and its first event is gone"
    ) {
      try $0.entries[1].set("firstLSN", 3)
      try $0.segment(2) { $0.frames.removeLast(2) }
    },
    ConformanceCase(
      "prepared-blank-control", .unused, .damaged(segment2), "CONTROL speaks of a segment that is not in use"
    ) {
      try $0.slots[1]?.set("tailSegmentID", 2)
    },
    ConformanceCase(
      "prepared-synced-first", .prepared, .sound(4, events: 4), "the flag on the first event promises the opening frame"
    ) {
      try $0.frame(2, 1) { try $0.set("flags", 7) }
    },
    bytes("prepared-header-only", .unused, segment2, .sound(2, events: 2), "a prepared file of 128 bytes") {
      $0.removeLast($0.count - 128)
    },
    bytes("prepared-garbage", .unused, segment2, .sound(2, events: 2), "bytes of a group that tore") { bytes in
      for place in 4100..<4160 { bytes[place] = 0x5A }
    },
    bytes("live-blank", .finished, segment3, .damaged(segment3), "a listed segment that is zero behind its header") {
      bytes in
      for place in 4096..<bytes.count { bytes[place] = 0 }
    },
  ]
}
