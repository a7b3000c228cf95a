// Opening frames, events, indexes and seals: each field with a wrong value, and frames where they do not belong.

private let beyond = UInt64(1) << 62

extension ConformanceCase {
  /// A change of the opening frame of a segment.
  private static func opening(
    _ name: String, _ demand: Demand, _ why: String, _ base: ConformanceBase = .finished, id: UInt64 = 2,
    _ change: @escaping @Sendable (inout FrameImage) throws -> Void,
    finish: @escaping @Sendable (inout [String: [UInt8]]) -> Void = { _ in }
  ) -> ConformanceCase {
    ConformanceCase("opening-\(name)", base, demand, why) {
      try $0.frame(id, 0, change)
      $0.finish = finish
    }
  }

  /// A change of the base `finished`, whose list does not say where segment 1 ends.
  private static func unlistedEnd(
    _ name: String, _ demand: Demand, _ why: String, _ change: @escaping @Sendable (inout StoreImage) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("opening-\(name)", .finished, demand, why) {
      for name in ["lastLSN", "end", "chain"] { try $0.entries[0].set(name, 0) }
      try change(&$0)
    }
  }

  static let openings: [ConformanceCase] = [
    opening("lsn-0", .damaged(segment2), "no LSN") { try $0.set("lsn", 0) },
    opening("lsn-off-by-one", .damaged(segment2), "another LSN than its entry's") { try $0.set("lsn", 4) },
    opening("lsn-beyond", .damaged(segment2), "an LSN of 2^62") { try $0.set("lsn", beyond) },
    opening("type-event", .future(segment2), "a segment that begins with an event") { try $0.set("type", 1) },
    opening("type-seal", .future(segment2), "a segment that begins with a seal") { try $0.set("type", 4) },
    opening("type-unknown", .future(segment2), "a type that version 1 does not know") { try $0.set("type", 9) },
    opening("type-skippable", .future(segment2), "a skippable frame in place of the opening one") {
      try $0.set("type", 200)
    },
    opening("type-0", .damaged(segment2), "a frame of type 0 does not verify") { try $0.set("type", 0) },
    opening("flag-first", .future(segment2), "an opening frame has no flags") { try $0.set("flags", 1) },
    opening("flag-synced", .future(segment2), "an opening frame has no flags") { try $0.set("flags", 4) },
    opening("flag-unknown", .future(segment2), "a flag that version 1 does not know") { try $0.set("flags", 8) },
    opening("schema", .future(segment2), "an opening frame has no schema") { try $0.set("schema", 1) },
    opening("index", .future(segment2), "an opening frame is in no transaction") {
      try $0.set("indexInTransaction", 1)
    },
    opening("longer", .future(segment2), "a longer body") { try $0.replace(body: $0.body + [0, 0, 0, 0, 0, 0, 0, 0]) },
    opening("shorter", .future(segment2), "a shorter body") { try $0.replace(body: Array($0.body.dropLast(8))) },
    opening("longer-damaged", .damaged(segment2), "a longer body, of which a bit is flipped") {
      try $0.replace(body: $0.body + [0, 0, 0, 0, 0, 0, 0, 0])
    } finish: {
      $0[segment2]?[4096 + 32 + 39] ^= 1
    },
    opening("shorter-damaged", .damaged(segment2), "a shorter body, of which a bit is flipped") {
      try $0.replace(body: Array($0.body.dropLast(8)))
    } finish: {
      $0[segment2]?[4096 + 32] ^= 1
    },
    opening("type-unknown-damaged", .damaged(segment2), "an unknown type, with a body of which a bit is flipped") {
      try $0.set("type", 9)
    } finish: {
      $0[segment2]?[4096 + 32] ^= 1
    },
    opening("length-beyond-file", .damaged(segment2), "a body that is longer than the file does not verify") {
      try $0.set("bodyLength", 1 << 20)
    },
    opening("length-beyond", .damaged(segment2), "a length above 2^26 does not verify") {
      try $0.set("bodyLength", (1 << 26) + 1)
    },
    opening("tag", .damaged(segment2), "a tag that is not the salt does not verify") { try $0.set("tag", 5) },
    opening("predecessor-0", .damaged(segment2), "no predecessor, and not the first LSN") {
      try $0.set("predecessorID", 0)
    },
    opening("predecessor-itself", .missing(segment2), "it continues itself") { try $0.set("predecessorID", 2) },
    opening("predecessor-later", .missing(segment2), "it continues a later one") { try $0.set("predecessorID", 3) },
    opening("predecessor-beyond", .damaged(segment2), "an ID of 2^62") { try $0.set("predecessorID", beyond) },
    opening("predecessor-of-first", .damaged(segment1), "a first segment that continues another, without an end", id: 1)
    {
      try $0.set("predecessorID", 7)
    },
    opening("predecessor-gone", .missing(segment1), "a first segment that continues another", id: 1) {
      try $0.set("predecessorID", 7)
      try $0.set("predecessorEnd", 4160)
    },
    opening("predecessor-earlier", .foreign(segment3), "it continues one that the segment before continues too", id: 3)
    {
      try $0.set("predecessorID", 1)
    },
    opening("end-off-by-eight", .damaged("MANIFEST"), "another end than the list says") {
      try $0.set("predecessorEnd", $0.get("predecessorEnd") - 8)
    },
    opening("end-0", .damaged(segment2), "a predecessor without an end") { try $0.set("predecessorEnd", 0) },
    opening("end-of-none", .damaged(segment1), "an end of no predecessor", id: 1) {
      try $0.set("predecessorEnd", 4160)
    },
    opening("chain", .damaged("MANIFEST"), "another chain than the list says") {
      try $0.set("chain", $0.get("chain") ^ 0x8000_0000)
    },
    opening("chain-of-none", .damaged(segment1), "a chain before the first event", id: 1) { try $0.set("chain", 1) },
    unlistedEnd("chain-unlisted-end", .foreign(segment1), "another history than its predecessor's") {
      try $0.frame(2, 0) { try $0.set("chain", $0.get("chain") ^ 1) }
    },
    unlistedEnd("end-unlisted-above", .damaged(segment1), "its predecessor does not reach the end that it names") {
      try $0.frame(2, 0) { try $0.set("predecessorEnd", $0.get("predecessorEnd") + 8) }
    },
    unlistedEnd("end-unlisted-below", .damaged(segment1), "CONTROL promised more of its predecessor") {
      let end = try $0.segment(1).end
      try $0.frame(2, 0) { try $0.set("predecessorEnd", $0.get("predecessorEnd") - 40) }
      try $0.slots[1]?.set("tailSegmentID", 1)
      try $0.slots[1]?.set("durableLSN", 2)
      try $0.slots[1]?.set("durableEnd", UInt64(end))
    },
    unlistedEnd("lsn-unlisted", .foreign(segment1), "its predecessor ends with another LSN") {
      try $0.frame(2, 0) { try $0.set("lsn", 4) }
      try $0.entries[1].set("firstLSN", 4)
    },
    opening("durable-end-0", .damaged(segment2), "live, and nothing of it was synced") { try $0.set("durableEnd", 0) },
    opening("durable-end-in-header", .damaged(segment2), "synced to before its own end") {
      try $0.set("durableEnd", 4152)
    },
    opening("durable-end-no-unit", .damaged(segment2), "synced to where no unit ends") {
      try $0.set("durableEnd", 4168)
    },
    opening("durable-end-odd", .damaged(segment2), "synced to where no unit ends") { try $0.set("durableEnd", 4161) },
    opening("durable-end-above", .damaged(segment2), "synced beyond the segment's end") {
      try $0.set("durableEnd", 0xFFFF_FFF8)
    },
    opening("durable-end-tail", .damaged(segment3), "synced beyond what is whole in the tail", id: 3) {
      try $0.set("durableEnd", 4248)
    },
    opening("durable-end-copies", .damaged(segment2), "synced beyond the copies", .copied) {
      try $0.set("durableEnd", $0.get("durableEnd") + 8)
    },
    opening("range-last-live", .damaged(segment2), "live, and with a range") { try $0.set("rangeLastLSN", 4) },
    opening("range-chain-live", .damaged(segment2), "live, and with the chain of a range") {
      try $0.set("rangeChain", 1)
    },
    opening("range-last-below", .damaged(segmentName(5)), "the range ends before it begins", .rewritten, id: 5) {
      try $0.set("lsn", 3)
      try $0.set("rangeLastLSN", 1)
    },
    opening("range-last-beyond", .damaged(segmentName(5)), "an LSN of 2^62", .rewritten, id: 5) {
      try $0.set("rangeLastLSN", beyond)
    },
    opening("range-last-off-by-one", .missing(segmentName(4)), "what follows begins above the range", .rewritten, id: 5)
    {
      try $0.set("rangeLastLSN", 5)
    },
    opening("range-chain", .foreign(segmentName(4)), "what follows continues another history", .rewritten, id: 5) {
      try $0.set("rangeChain", $0.get("rangeChain") ^ 2)
    },
    opening("durable-end-rewritten", .damaged("MANIFEST"), "another end than the list says", .rewritten, id: 5) {
      try $0.set("durableEnd", $0.get("durableEnd") - 40)
    },
    opening("after-rewritten-lsn", .damaged(segmentName(4)), "another LSN than its entry's", .rewritten, id: 4) {
      try $0.set("lsn", 8)
    },
    opening("after-rewritten-chain", .foreign(segmentName(4)), "another history than the range", .rewritten, id: 4) {
      try $0.set("chain", $0.get("chain") ^ 1)
    },
    opening(
      "after-rewritten-end", .damaged(segmentName(4)), "it names the rewritten segment, and another end", .rewritten,
      id: 4
    ) {
      try $0.set("predecessorID", 5)
    },
  ]

  /// A change of frame `index` of segment 2 of the base `finished`: event 3, event 4, index, seal.
  private static func frame(
    _ name: String, _ demand: Demand, _ why: String, _ index: Int, _ base: ConformanceBase = .finished,
    id: UInt64 = 2, _ change: @escaping @Sendable (inout FrameImage) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase(name, base, demand, why) { try $0.frame(id, index, change) }
  }

  static let events: [ConformanceCase] = [
    frame("event-lsn-0", .damaged(segment2), "no LSN", 1) { try $0.set("lsn", 0) },
    frame("event-lsn-twice", .damaged(segment2), "the LSN of the event before", 2) { try $0.set("lsn", 3) },
    frame("event-lsn-gap", .damaged(segment2), "an LSN is left out", 2) { try $0.set("lsn", 5) },
    frame("event-lsn-max", .damaged(segment2), "an LSN far away", 2) { try $0.set("lsn", .max) },
    frame("event-type-0", .damaged(segment2), "a frame of type 0 does not verify", 1) { try $0.set("type", 0) },
    frame("event-type-opening", .damaged(segment2), "a second opening frame", 1) { try $0.set("type", 2) },
    frame("event-type-index", .damaged(segment2), "an event as an index: its schema is not 0", 1) {
      try $0.set("type", 3)
    },
    frame("event-type-unknown", .future(segment2), "a type that version 1 does not know", 1) { try $0.set("type", 5) },
    frame("event-type-127", .future(segment2), "a type that version 1 does not know", 2) { try $0.set("type", 127) },
    frame("event-type-skippable", .damaged(segment2), "an event as a skippable frame: its LSN is missing", 1) {
      try $0.set("type", 128)
    },
    frame("event-flag-unknown", .future(segment2), "a flag that version 1 does not know", 1) {
      try $0.set("flags", 15)
    },
    frame("event-flag-top", .future(segment2), "a flag that version 1 does not know", 1) { try $0.set("flags", 0x83) },
    frame("event-not-first", .damaged(segment2), "a transaction without its first event", 1) { try $0.set("flags", 6) },
    frame("event-not-last", .damaged(segment2), "a transaction without its last event", 1) { try $0.set("flags", 5) },
    frame("event-index", .damaged(segment2), "the second event of a transaction that has no first", 1) {
      try $0.set("indexInTransaction", 1)
    },
    frame("event-first-twice", .damaged(segment1), "a second first event in a transaction", 2, id: 1) {
      try $0.set("flags", 3)
    },
    frame("event-index-twice", .damaged(segment1), "the index of the event before", 2, id: 1) {
      try $0.set("indexInTransaction", 0)
    },
    frame("event-synced-inside", .damaged(segment1), "a group that begins inside a transaction", 2, id: 1) {
      try $0.set("flags", 6)
    },
    frame("event-schema", .damaged(segment1), "another schema: its seal says another chain", 1, id: 1) {
      try $0.set("schema", 2)
    },
    frame("event-body", .foreign(segment1), "another body: the next segment continues another chain", 2, .copied, id: 1)
    {
      try $0.replace(body: Array("Event 2".utf8))
    },
    frame(
      "event-schema-unsealed", .foreign(segment1), "another schema: the next segment continues another chain", 1,
      .copied, id: 1
    ) {
      try $0.set("schema", 0)
    },
    frame("event-tag", .damaged(segment2), "a tag that is not the salt does not verify", 2) { try $0.set("tag", 0) },
    frame("event-length-beyond", .damaged(segment2), "a length above 2^26 does not verify", 2) {
      try $0.set("bodyLength", (1 << 26) + 1)
    },
    frame("event-length-max", .damaged(segment2), "a length above 2^26 does not verify", 2) {
      try $0.set("bodyLength", .max)
    },
    frame("event-length-beyond-file", .damaged(segment2), "a body that the file does not hold", 2) {
      try $0.set("bodyLength", 1 << 20)
    },
    frame("event-synced-rewritten", .damaged(segmentName(5)), "a promise in a rewritten segment", 1, .rewritten, id: 5)
    {
      try $0.set("flags", 5)
    },
    frame("event-lsn-above-range", .damaged(segmentName(5)), "an LSN above the range", 4, .rewritten, id: 5) {
      try $0.set("lsn", 7)
    },
    frame("event-lsn-falls", .damaged(segmentName(5)), "LSNs that do not rise", 2, .rewritten, id: 5) {
      try $0.set("lsn", 1)
    },
    ConformanceCase("event-dropped", .finished, .damaged(segment2), "an event is left out") {
      try $0.segment(2) { $0.frames.remove(at: 1) }
    },
    ConformanceCase("event-doubled", .finished, .damaged(segment2), "an event stands twice") {
      try $0.segment(2) { $0.frames.insert($0.frames[1], at: 1) }
    },
    ConformanceCase("events-exchanged", .finished, .damaged(segment2), "two events exchanged") {
      try $0.segment(2) { $0.frames.swapAt(1, 2) }
    },
    ConformanceCase("event-of-another-segment", .finished, .damaged(segment2), "an event with another segment's tag") {
      let stranger = try $0.segment(1).frames[1]
      try $0.segment(2) { $0.frames[1] = stranger }
    },
  ]

  static let trailers: [ConformanceCase] = [
    frame("index-lsn", .damaged(segment2), "another LSN than the next", 3) { try $0.set("lsn", 4) },
    frame("index-flag-last", .damaged(segment2), "an index is in no transaction", 3) { try $0.set("flags", 2) },
    frame("index-flag-unknown", .future(segment2), "a flag that version 1 does not know", 3) {
      try $0.set("flags", 16)
    },
    frame("index-schema", .damaged(segment2), "an index has no schema", 3) { try $0.set("schema", 1) },
    frame("index-in-transaction", .damaged(segment2), "an index is in no transaction", 3) {
      try $0.set("indexInTransaction", 1)
    },
    frame("index-half-entry", .future(segment2), "half an entry", 3) { try $0.replace(body: $0.body + [0, 0, 0, 0]) },
    frame("index-entries-fall", .future(segment2), "entries that do not rise", 3) {
      try $0.replace(body: $0.body + $0.body)
    },
    frame("index-wrong-place", .sound(6, events: 6).damagedForVerify(), "an entry that names no transaction's place", 3)
    {
      try $0.replace(body: [0, 0, 0, 0] + littleEndian(4168))
    },
    frame("index-wrong-lsn", .sound(6, events: 6).damagedForVerify(), "an entry that names another event", 3) {
      try $0.replace(body: [1, 0, 0, 0] + littleEndian(4160))
    },
    frame("index-synced-rewritten", .damaged(segmentName(5)), "a promise in a rewritten segment", 5, .rewritten, id: 5)
    {
      try $0.set("flags", 4)
    },
    frame(
      "index-lsn-rewritten", .damaged(segmentName(5)), "another LSN than the one behind the range", 5, .rewritten, id: 5
    ) {
      try $0.set("lsn", 6)
    },
    frame("seal-lsn", .damaged(segment2), "another LSN than the next", 4) { try $0.set("lsn", 6) },
    frame("seal-flag-synced", .damaged(segment2), "a group that begins with a seal", 4) { try $0.set("flags", 4) },
    frame("seal-schema", .damaged(segment2), "a seal has no schema", 4) { try $0.set("schema", 1) },
    frame("seal-chain", .damaged(segment2), "another chain than its events have", 4) {
      try $0.set("contentChain", $0.get("contentChain") ^ 1)
    },
    frame("seal-chain-rewritten", .damaged(segmentName(5)), "another chain than its events have", 6, .rewritten, id: 5)
    {
      try $0.set("contentChain", 0)
    },
    frame("seal-index-offset", .damaged(segment2), "the index begins elsewhere", 4) {
      try $0.set("indexOffset", $0.get("indexOffset") - 8)
    },
    frame("seal-index-offset-0", .damaged(segment2), "the index begins elsewhere", 4) { try $0.set("indexOffset", 0) },
    frame("seal-longer", .damaged(segment2), "a longer body, which does not end where the segment does", 4) {
      try $0.replace(body: $0.body + [0, 0, 0, 0])
    },
    frame("seal-shorter", .future(segment2), "a shorter body", 4) { try $0.replace(body: Array($0.body.dropLast(4))) },
    ConformanceCase("seal-without-index", .finished, .damaged(segment2), "a seal that no index precedes") {
      try $0.segment(2) { $0.frames.remove(at: 3) }
    },
    ConformanceCase("seal-behind-a-frame", .finished, .damaged(segment2), "a frame between the index and its seal") {
      let skippable = try FrameImage($0.layouts, 130, lsn: 0, body: [])
      try $0.segment(2) {
        $0.frames.insert(skippable, at: 4)
        try $0.set(salt: $0.header.get("salt"))
      }
    },
    ConformanceCase(
      "seal-missing-rewritten", .rewritten, .damaged(segmentName(5)), "a rewritten segment without its seal"
    ) {
      try $0.segment(5) {
        $0.frames.removeLast()
        let end = UInt64($0.end)
        try $0.frames[0].set("durableEnd", end)
      }
      let end = try $0.segment(5).end
      try $0.entries[0].set("end", UInt64(end))
    },
    ConformanceCase(
      "damage-before-far-lsn", .closed, .damaged(segment1), "behind an event out of order stands an LSN near 2^64"
    ) {
      try $0.frame(1, 2) { try $0.set("lsn", 99) }
      try $0.frame(1, 3) { try $0.set("lsn", .max - 1) }
    },
    ConformanceCase("seal-longer-tail", .closed, .future(segment1), "a longer body at the log's end") {
      $0.slots[1] = nil
      try $0.frame(1, 5) { try $0.replace(body: $0.body + [0, 0, 0, 0]) }
    },
    ConformanceCase(
      "seal-chain-tail", .closed, .damaged(segment1), "another chain than its events have, at the log's end"
    ) {
      try $0.frame(1, 5) { try $0.set("contentChain", 99) }
    },
  ]
}
