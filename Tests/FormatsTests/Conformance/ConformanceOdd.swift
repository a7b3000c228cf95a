// What no writer of today writes, or only in a rare hour, and what is legal all the same.

private let beyond = UInt64(1) << 62

extension ConformanceCase {
  private static func inserting(
    _ name: String, _ demand: Demand, _ why: String, _ index: Int,
    _ frame: @escaping @Sendable (LogLayouts) throws -> FrameImage
  ) -> ConformanceCase {
    ConformanceCase("odd-\(name)", .killed, demand, why) { image in
      let frame = try frame(image.layouts)
      try image.slots[1]?.set("durableLSN", 0)
      try image.slots[1]?.set("durableEnd", 4160)
      try image.segment(1) {
        $0.frames.insert(frame, at: index)
        try $0.set(salt: $0.header.get("salt"))
      }
    }
  }

  /// A store of one live segment, made anew.
  private static func made(
    _ name: String, _ demand: Demand, _ why: String, _ fill: @escaping @Sendable (inout SegmentBuilder) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("odd-\(name)", .closed, demand, why) { image in
      var segment = try SegmentBuilder(image.layouts, 1, kind: 0, after: .init())
      try fill(&segment)
      image.segments = [segment.image]
      image.slots[1] = nil
    }
  }

  static let odd: [ConformanceCase] = [
    inserting("skippable-between", .sound(4, events: 4), "a skippable frame between two transactions", 3) {
      try FrameImage($0, 128, lsn: 0, body: [])
    },
    inserting("skippable-inside", .sound(4, events: 4), "a skippable frame inside a transaction", 2) {
      try FrameImage($0, 255, lsn: 0, body: [1, 2, 3])
    },
    inserting("skippable-first", .sound(4, events: 4), "a skippable frame behind the opening frame", 1) {
      try FrameImage($0, 200, lsn: 99, flags: 0xF8, body: [UInt8](repeating: 7, count: 100))
    },
    inserting("skippable-flags", .sound(4, events: 4), "a skippable frame with the flags of an event", 3) {
      try FrameImage($0, 200, lsn: .max, flags: 3, body: [1])
    },
    inserting("skippable-synced", .sound(4, events: 4), "a skippable frame that begins a group", 3) {
      try FrameImage($0, 129, lsn: 3, flags: 4, body: [])
    },
    inserting("skippable-last", .sound(4, events: 4), "a skippable frame at the end", 5) {
      try FrameImage($0, 160, lsn: 3, body: [1])
    },
    inserting(
      "index-inside", .damaged(segment1), "events behind an index do not continue, and the last one promises them", 3
    ) {
      try FrameImage($0, FrameNumber.index, lsn: 3, body: [0, 0, 0, 0] + littleEndian(4160))
    },
    inserting("index-before-last", .torn(3, events: 3), "an event behind an index does not continue", 4) {
      try FrameImage($0, FrameNumber.index, lsn: 4, body: [0, 0, 0, 0] + littleEndian(4160))
    },
    inserting("skippable-synced-inside", .damaged(segment1), "a promise that lies inside a transaction", 2) {
      try FrameImage($0, 140, lsn: 0, flags: 4, body: [])
    },
    made("empty", .sound(0, events: 0), "a segment without events") { _ in },
    made("empty-closed", .sound(0, events: 0), "a closed segment without events") { try $0.close() },
    made("one-event", .sound(1, events: 1), "one event") { try $0.transaction(1) },
    made("no-flag-at-all", .sound(5, events: 5), "no group promises anything") {
      for _ in 0..<5 { try $0.transaction(1, isSynced: false) }
    },
    made("long-transaction", .sound(60, events: 60), "a transaction of sixty events") { try $0.transaction(60) },
    made("many-groups", .sound(40, events: 40), "forty groups") { for _ in 0..<40 { try $0.transaction(1) } },
    made("index-empty", .sound(2, events: 2), "an index without entries: events are found by walking") {
      try $0.transaction(2)
      let next = $0.lsn + 1
      let place = UInt32($0.image.end)
      try $0.add(FrameNumber.index, lsn: next, flags: 4)
      try $0.add(FrameNumber.seal, lsn: next, body: littleEndian($0.chain) + littleEndian(place))
    },
    ConformanceCase("odd-body-empty", .killed, .sound(4, events: 4), "an event without a body") {
      try $0.frame(1, 4) { try $0.replace(body: []) }
    },
    ConformanceCase("odd-body-aligned", .killed, .sound(4, events: 4), "a body that needs no padding") {
      try $0.frame(1, 4) { try $0.replace(body: [UInt8](repeating: 3, count: 16)) }
    },
    ConformanceCase(
      "odd-body-like-a-frame", .killed, .sound(4, events: 4), "a body that looks like a frame with the flag"
    ) {
      let frame = try FrameImage($0.layouts, FrameNumber.event, lsn: 9, flags: 7, body: [])
      try $0.segment(1) {
        var copy = $0
        try copy.leave(frame, at: copy.end + 8)
        try $0.frames[4].replace(body: Array(copy.rest.suffix(32)))
      }
    },
    ConformanceCase("odd-body-long", .killed, .sound(4, events: 4), "a body of 3000 bytes") {
      try $0.frame(1, 4) { try $0.replace(body: [UInt8](repeating: 0x61, count: 3000)) }
    },
    ConformanceCase("odd-schema-max", .killed, .sound(4, events: 4), "a schema that the log does not look at") {
      try $0.frame(1, 4) { try $0.set("schema", 65535) }
    },
    ConformanceCase("odd-padding", .killed, .sound(4, events: 4).damagedForVerify(), "padding that is not zero") {
      try $0.segment(1) { $0.frames[4].padding = 1 }
    },
    ConformanceCase(
      "odd-header-page", .killed, .sound(4, events: 4).damagedForVerify(), "a byte behind the header that is not zero"
    ) {
      try $0.segment(1) { $0.pageBytes = [128: 1] }
    },
    ConformanceCase(
      "odd-header-page-last", .finished, .sound(6, events: 6).damagedForVerify(),
      "a byte behind the header that is not zero"
    ) {
      try $0.segment(2) { $0.pageBytes = [4095: 0x80] }
    },
    ConformanceCase("odd-next-id-far", .finished, .sound(6, events: 6), "many IDs were given and are gone") {
      try $0.manifest.set("nextSegmentID", beyond - 1000)
    },
    ConformanceCase("odd-owner", .finished, .sound(6, events: 6), "all of the owner's bytes") {
      $0.owner = (0..<256).map { UInt8($0) }
      try $0.manifest.set("ownerBytes", 256)
    },
    ConformanceCase("odd-owner-one", .finished, .sound(6, events: 6), "one of the owner's bytes") {
      $0.owner = [0xFF]
      try $0.manifest.set("ownerBytes", 1)
    },
    ConformanceCase("odd-control-old", .finished, .sound(6, events: 6), "CONTROL is older than two segments") {
      try $0.slots[1]?.set("tailSegmentID", 1)
      try $0.slots[1]?.set("durableLSN", 0)
      try $0.slots[1]?.set("durableEnd", 4160)
    },
    ConformanceCase("odd-control-equal", .finished, .sound(6, events: 6), "both slots say the same") {
      let slot = $0.slots[1]
      $0.slots[0] = slot
      try $0.slots[0]?.set("sequence", 4)
    },
    ConformanceCase("odd-ids-fall", .rewritten, .sound(8, events: 6), "the order of the log is not that of the IDs") {
      _ in
    },
    ConformanceCase(
      "odd-large-lsns", .rewritten, .sound(1 << 61, events: 3),
      "LSNs near the largest, behind a range of nearly as many"
    ) { image in
      let last = (UInt64(1) << 61) - 1
      var output = try SegmentBuilder(image.layouts, 5, kind: 1, after: .init())
      try output.transaction(2, isSynced: false, lsns: [1, last])
      try output.finishRewritten(last, chain: 0xABCD)
      var tail = try SegmentBuilder(image.layouts, 4, kind: 0, after: .init(id: 3, end: 4200, lsn: last, chain: 0xABCD))
      try tail.transaction(1)
      image.segments = [output.image, tail.image]
      try image.entries[0].set("lastLSN", last)
      try image.entries[0].set("end", UInt64(output.image.end))
      try image.entries[0].set("chain", 0xABCD)
      try image.entries[1].set("firstLSN", last + 1)
      image.slots = [nil, image.slots[1]]
      try image.slots[1]?.set("durableLSN", last + 1)
      try image.slots[1]?.set("durableEnd", UInt64(tail.image.end))
    },
    ConformanceCase(
      "odd-rewritten-empty", .rewritten, .sound(8, events: 2), "a compaction that left nothing of its range"
    ) { image in
      var output = try SegmentBuilder(image.layouts, 5, kind: 1, after: .init())
      let chain = try image.frame(4).get("chain")
      try output.finishRewritten(6, chain: UInt32(chain))
      image.segments[0] = output.image
      try image.entries[0].set("end", UInt64(output.image.end))
    },
    ConformanceCase("odd-rewritten-last", .rewritten, .sound(6, events: 4), "a rewritten segment is the whole log") {
      image in
      image.segments.removeLast()
      try image.list { $0.removeLast() }
      image.slots[1] = nil
    },
    ConformanceCase("odd-empty-between", .finished, .sound(6, events: 6), "a segment without events between two others")
    { image in
      let second = try image.segment(2)
      let seal = second.frames[4]
      var empty = try SegmentBuilder(
        image.layouts, 4, kind: 0,
        after: .init(id: 2, end: second.end, lsn: 4, chain: UInt32(seal.get("contentChain"))))
      try empty.close()
      try image.frame(3, 0) {
        try $0.set("predecessorID", 4)
        try $0.set("predecessorEnd", UInt64(empty.image.end))
      }
      image.segments.append(empty.image)
      var entry = Fields(image.layouts.entry)
      try entry.set("segmentID", 4)
      try entry.set("salt", empty.salt)
      try entry.set("firstLSN", 5)
      try image.list { $0.insert(entry, at: 2) }
      try image.manifest.set("nextSegmentID", 5)
    },
    ConformanceCase("odd-salt-max", .killed, .sound(4, events: 4), "the largest salt") {
      try $0.segment(1) { try $0.set(salt: 0xFFFF_FFFF) }
      try $0.entries[0].set("salt", 0xFFFF_FFFF)
    },
    ConformanceCase(
      "odd-copied-flag", .copied, .sound(3, events: 3), "a copy that kept its flag: what precedes it was on the medium"
    ) {
      try $0.frame(2, 1) { try $0.set("flags", 7) }
    },
    ConformanceCase("odd-control-above-copies", .copied, .sound(3, events: 3), "CONTROL names the copies") {
      let end = try $0.segment(2).end
      try $0.slots[0]?.set("tailSegmentID", 2)
      try $0.slots[0]?.set("durableLSN", 3)
      try $0.slots[0]?.set("durableEnd", UInt64(end))
    },
  ]
}

extension StoreImage {
  /// The opening frame of a segment.
  fileprivate func frame(_ id: UInt64) throws -> FrameImage { try segment(id).frames[0] }
}
