// Where segments end, segments on no list, and files that are not as they should be.

extension ConformanceCase {
  private static func closes(_ image: inout StoreImage, _ id: UInt64) throws -> (end: UInt64, chain: UInt64) {
    let segment = try image.segment(id)
    guard let seal = segment.frames.last else { throw PageError("no frames") }
    return (UInt64(segment.end), try seal.get("contentChain"))
  }

  static let ends: [ConformanceCase] = [
    ConformanceCase(
      "end-of-last-listed", .closed, .sound(3, events: 3), "MANIFEST says where the last segment ends, too"
    ) {
      let (end, chain) = try closes(&$0, 1)
      try $0.entries[0].set("lastLSN", 3)
      try $0.entries[0].set("end", end)
      try $0.entries[0].set("chain", chain)
    },
    ConformanceCase(
      "end-of-last-listed-cut", .closed, .damaged(segment1),
      "MANIFEST says where the last segment ends, and its seal is gone"
    ) {
      let (end, chain) = try closes(&$0, 1)
      try $0.entries[0].set("lastLSN", 3)
      try $0.entries[0].set("end", end)
      try $0.entries[0].set("chain", chain)
      $0.slots[1] = nil
      try $0.segment(1) { $0.frames.removeLast() }
    },
    ConformanceCase(
      "end-of-last-listed-chain", .closed, .foreign(segment1),
      "MANIFEST says another chain of the last segment than it has"
    ) {
      let (end, chain) = try closes(&$0, 1)
      try $0.entries[0].set("lastLSN", 3)
      try $0.entries[0].set("end", end)
      try $0.entries[0].set("chain", chain ^ 1)
      $0.slots[1] = nil
    },
    ConformanceCase(
      "end-closed-garbage", .closed, .sound(3, events: 3), "bytes behind the seal that CONTROL names are void"
    ) {
      try $0.segment(1) { $0.rest = [1, 2, 3, 4, 5, 6, 7, 8] }
    },
    ConformanceCase(
      "end-closed-without-slot", .closed, .sound(3, events: 3),
      "the slot of the close is gone: the tail rule serves all"
    ) {
      $0.slots[1] = nil
    },
    ConformanceCase("end-closed-cut", .closed, .damaged(segment1), "cut in its seal, which CONTROL promises") {
      try $0.segment(1) { $0.frames.removeLast() }
    },
    ConformanceCase("end-behind-seal", .closed, .torn(3, events: 3), "an event behind the seal") {
      $0.slots[1] = nil
      let frame = try FrameImage($0.layouts, FrameNumber.event, lsn: 4, flags: 7, body: [9])
      try $0.segment(1) { try $0.append(frame) }
    },
    ConformanceCase("end-behind-seal-skippable", .closed, .torn(3, events: 3), "a skippable frame behind the seal") {
      $0.slots[1] = nil
      let frame = try FrameImage($0.layouts, 128, lsn: 0, body: [9])
      try $0.segment(1) { try $0.append(frame) }
    },
    ConformanceCase(
      "end-void-behind", .finished, .sound(6, events: 6), "bytes behind the end of a finished segment are void"
    ) {
      try $0.segment(1) { $0.rest = [UInt8](repeating: 0xCC, count: 64) }
    },
    ConformanceCase(
      "end-void-future", .finished, .sound(6, events: 6), "a frame of a later version behind the end is void"
    ) {
      let frame = try FrameImage($0.layouts, 77, lsn: 3, flags: 4, body: [])
      try $0.segment(2) { try $0.append(frame) }
    },
    ConformanceCase(
      "end-unlisted-in-list", .finished, .sound(6, events: 6), "MANIFEST was not told where the first two end"
    ) {
      for index in 0..<2 { for name in ["lastLSN", "end", "chain"] { try $0.entries[index].set(name, 0) } }
    },
    ConformanceCase("end-cut", .finished, .damaged(segment2), "a finished segment that is cut in its seal") {
      try $0.segment(2) { $0.frames.removeLast() }
    },
    ConformanceCase(
      "end-rewritten-cut", .rewritten, .damaged(segmentName(5)), "a rewritten segment that is cut in its seal"
    ) {
      $0.finish = { $0[segmentName(5)]?.removeLast(8) }
    },
    ConformanceCase(
      "end-rewritten-unsealed-list", .rewritten, .damaged("MANIFEST"), "a rewritten segment that may grow"
    ) {
      for name in ["lastLSN", "end", "chain"] { try $0.entries[0].set(name, 0) }
    },
    ConformanceCase(
      "end-rewritten-named", .rewritten, .sound(8, events: 6), "what follows names the rewritten segment itself"
    ) {
      let end = UInt64(try $0.segment(5).end)
      try $0.frame(4, 0) {
        try $0.set("predecessorID", 5)
        try $0.set("predecessorEnd", end)
      }
    },
  ]

  /// Adds a segment that is on no list to the base `finished`.
  private static func unlisted(
    _ name: String, _ demand: Demand, _ why: String, id: UInt64 = 9, kind: UInt64 = 0,
    after: UInt64 = 3, _ fill: @escaping @Sendable (inout SegmentBuilder) throws -> Void,
    change: @escaping @Sendable (inout SegmentImage) throws -> Void = { _ in }
  ) -> ConformanceCase {
    ConformanceCase("unlisted-\(name)", .finished, demand, why) { image in
      let before = try Self.before(image, after)
      var builder = try SegmentBuilder(image.layouts, id, kind: kind, after: before)
      try fill(&builder)
      var segment = builder.image
      try change(&segment)
      image.segments.append(segment)
    }
  }

  /// What continues segment `id`.
  private static func before(_ image: StoreImage, _ id: UInt64) throws -> SegmentBuilder.Before {
    guard id > 0 else { return .init() }
    let segment = try image.segment(id)
    guard id < 3 else {
      var third = try SegmentBuilder(image.layouts, 3, kind: 0, after: before(image, 2))
      try third.transaction(1)
      try third.transaction(1)
      return third.before
    }
    guard let seal = segment.frames.last else { throw PageError("no frames") }
    return SegmentBuilder.Before(
      id: id, end: segment.end, lsn: try seal.get("lsn") - 1,
      chain: UInt32(truncatingIfNeeded: try seal.get("contentChain")))
  }

  private static let ninth = segmentName(9)

  static let unlisted: [ConformanceCase] = [
    unlisted("adopted", .sound(7, events: 7), "it continues the log: its writer was interrupted before he listed it") {
      try $0.transaction(1)
    },
    unlisted("adopted-empty", .sound(6, events: 6), "it continues the log, without events") { _ in },
    unlisted("adopted-torn", .torn(7, events: 7), "it continues the log, and its end is half there") {
      try $0.transaction(1)
    } change: {
      $0.rest = [1, 1, 1]
    },
    unlisted("adopted-wrong-chain", .foreign(segment3), "it continues the log's last segment with another history") {
      try $0.transaction(1)
    } change: {
      try $0.frames[0].set("chain", 5)
    },
    unlisted(
      "leftover-copy", .sound(6, events: 6).leaving(ninth),
      "it continues a finished segment, and its LSNs are the log's", after: 2
    ) {
      try $0.transaction(1)
    },
    unlisted(
      "leftover-empty", .sound(6, events: 6).leaving(ninth), "it continues a finished segment, without events", after: 1
    ) { _ in },
    unlisted(
      "leftover-rewritten", .sound(6, events: 6).leaving(ninth), "the output of a compaction that was interrupted",
      kind: 1, after: 0
    ) {
      try $0.transaction(1, isSynced: false, lsns: [2])
      try $0.finishRewritten(4, chain: 0x1234)
    },
    unlisted(
      "quarantine-events", .sound(6, events: 6).quarantining(ninth), "events that the log does not have", after: 2
    ) {
      try $0.transaction(3)
    },
    unlisted(
      "quarantine-range", .sound(6, events: 6).quarantining(ninth), "a range that the log does not cover", kind: 1,
      after: 0
    ) {
      try $0.transaction(1, isSynced: false, lsns: [2])
      try $0.finishRewritten(7, chain: 0x1234)
    },
    unlisted(
      "quarantine-behind-hole", .sound(6, events: 6).quarantining(ninth), "events above the log's, behind a hole",
      after: 2
    ) {
      try $0.transaction(2)
    } change: { segment in
      var frame = segment.frames[2]
      try frame.set("lsn", 12)
      let place = segment.end
      try segment.leave(frame, at: place + 64)
    },
    unlisted("foreign-uuid", .foreign(ninth), "of another store") {
      try $0.transaction(1)
    } change: {
      try $0.header.set("storeUUID", byte: 0, 0xEE)
    },
    unlisted("foreign-role", .foreign(ninth), "of the other role") {
      try $0.transaction(1)
    } change: {
      try $0.header.set("role", bytes: Array("srvr".utf8))
    },
    unlisted("foreign-name", .foreign(ninth), "a segment under another one's name") {
      try $0.transaction(1)
    } change: {
      try $0.header.set("segmentID", 4)
    },
    unlisted("future", .future(ninth), "of a later version") {
      try $0.transaction(1)
    } change: {
      try $0.header.set("version", 3)
    },
    unlisted("future-kind", .future(ninth), "a kind that version 1 does not know", after: 2) {
      try $0.transaction(1)
    } change: {
      try $0.header.set("kind", 4)
    },
    unlisted("damaged-opening", .damaged(ninth), "live, and its opening frame does not verify") {
      try $0.transaction(1)
    } change: {
      try $0.frames[0].set("tag", 3)
    },
    unlisted("damaged-contradiction", .damaged(ninth), "an opening frame that contradicts itself") {
      try $0.transaction(1)
    } change: {
      try $0.frames[0].set("rangeChain", 3)
    },
    unlisted("damaged-salt", .damaged(ninth), "no writer gives the salt 0") {
      try $0.transaction(1)
    } change: {
      try $0.header.set("salt", 0)
    },
    ConformanceCase("unlisted-two", .finished, .sound(8, events: 8), "two that continue the log, one after the other") {
      image in
      var fourth = try SegmentBuilder(image.layouts, 4, kind: 0, after: before(image, 3))
      try fourth.transaction(1)
      try fourth.close()
      var fifth = try SegmentBuilder(image.layouts, 5, kind: 0, after: fourth.before)
      try fifth.transaction(1)
      image.segments += [fourth.image, fifth.image]
    },
    ConformanceCase(
      "unlisted-recovery", .killed, .sound(4, events: 4), "a recovery's copy, named and not listed: it ends the tail"
    ) { image in
      let first = try image.segment(1)
      var whole = try SegmentBuilder(image.layouts, 1, kind: 0, after: .init())
      try whole.transaction(2)
      try whole.transaction(1)
      var copy = try SegmentBuilder(image.layouts, 2, kind: 0, after: whole.before)
      try copy.transaction(1, isSynced: false)
      try copy.promiseCopies()
      guard first.offset(4) == whole.image.end else { throw PageError("the copy ends elsewhere") }
      image.segments.append(copy.image)
    },
  ]

  private static func file(
    _ name: String, _ demand: Demand, _ why: String, _ base: ConformanceBase = .finished,
    _ change: @escaping @Sendable (inout [String: [UInt8]]) -> Void
  ) -> ConformanceCase { ConformanceCase("file-\(name)", base, demand, why) { $0.finish = change } }

  static let files: [ConformanceCase] = [
    file("manifest-gone", .damaged("MANIFEST"), "no list of segments") { $0["MANIFEST"] = nil },
    file("manifest-empty", .damaged("MANIFEST"), "a list without bytes") { $0["MANIFEST"] = [] },
    file("manifest-cut", .damaged("MANIFEST"), "a list without its last byte") { $0["MANIFEST"]?.removeLast() },
    file("manifest-longer", .damaged("MANIFEST"), "a byte behind the list") { $0["MANIFEST"]?.append(0) },
    file("manifest-header-bit", .damaged("MANIFEST"), "a bit of the header") { $0["MANIFEST"]?[60] ^= 4 },
    file("manifest-entry-bit", .damaged("MANIFEST"), "a bit of an entry") { $0["MANIFEST"]?[140] ^= 4 },
    file("control-gone", .damaged("CONTROL"), "no bounds") { $0["CONTROL"] = nil },
    file("control-empty", .damaged("CONTROL"), "bounds without bytes") { $0["CONTROL"] = [] },
    file("control-zero", .damaged("CONTROL"), "neither slot verifies") {
      $0["CONTROL"] = [UInt8](repeating: 0, count: 8192)
    },
    file("control-one-slot", .sound(6, events: 6), "only slot 0 is there, and it verifies") {
      $0["CONTROL"]?.removeLast(4096)
    },
    file("control-cut", .sound(6, events: 6), "the last byte of slot 1 is gone: slot 0 counts") {
      $0["CONTROL"] = $0["CONTROL"].map { Array($0[..<4159]) }
    },
    file("control-shorter", .sound(6, events: 6), "both slots are there, and nothing behind the second") {
      $0["CONTROL"] = $0["CONTROL"].map { Array($0[..<4160]) }
    },
    file("control-between", .sound(6, events: 6), "a byte between the slots is not zero") { $0["CONTROL"]?[64] = 1 },
    file("control-longer", .sound(6, events: 6), "bytes behind the slots") { $0["CONTROL"]?.append(1) },
    file("control-exchanged", .damaged("CONTROL"), "each slot lies at the place of the other") {
      let bytes = $0["CONTROL"] ?? []
      $0["CONTROL"] = Array(bytes[4096...] + bytes[..<4096])
    },
    file("control-torn", .sound(6, events: 6), "a write of slot 1 tore: slot 0 counts") {
      for place in 4096 + 40..<4096 + 512 { $0["CONTROL"]?[place] = 0xFF }
    },
    file("first-gone", .missing(segment1), "the first segment") { $0[segment1] = nil },
    file("middle-gone", .missing(segment2), "a segment in the middle") { $0[segment2] = nil },
    file("last-gone", .missing(segment3), "the last segment") { $0[segment3] = nil },
    file("all-gone", .missing(segment1), "a list, and no segment") { files in
      for name in files.keys where name.hasSuffix(".seg") { files[name] = nil }
    },
    file("segment-empty", .damaged(segment2), "a segment without bytes") { $0[segment2] = [] },
    file("segment-header-cut", .damaged(segment3), "cut in its header") {
      $0[segment3] = $0[segment3].map { Array($0[..<127]) }
    },
    file("segment-page-cut", .damaged(segment3), "cut before its opening frame") {
      $0[segment3] = $0[segment3].map { Array($0[..<4096]) }
    },
    file("segment-opening-cut", .damaged(segment3), "cut in its opening frame") {
      $0[segment3] = $0[segment3].map { Array($0[..<4159]) }
    },
    file("segment-header-bit", .damaged(segment1), "a bit of the header") { $0[segment1]?[80] ^= 1 },
    file("segments-exchanged", .foreign(segment1), "two segments exchanged their names") { files in
      (files[segment1], files[segment2]) = (files[segment2], files[segment1])
    },
    file("name-capital", .foreign("000000000000000A.seg"), "a name with a capital digit") {
      $0["000000000000000A.seg"] = $0[segment1]
    },
    file("name-long", .foreign("00000000000000001.seg"), "a name of 17 digits") {
      $0["00000000000000001.seg"] = $0[segment1]
    },
    file("name-zero", .foreign(segmentName(0)), "the ID 0") { $0[segmentName(0)] = $0[segment1] },
    file("name-beyond", .foreign(segmentName(1 << 62)), "the ID 2^62") { $0[segmentName(1 << 62)] = $0[segment1] },
    file("name-words", .foreign("backup.seg"), "no ID at all") { $0["backup.seg"] = $0[segment1] },
    file("copy", .foreign(segmentName(7)), "a copy of a segment under another name") {
      $0[segmentName(7)] = $0[segment1]
    },
    file("others", .sound(6, events: 6), "names that are not the log's") { files in
      files["notes.txt"] = [1]
      files["session"] = [2]
      files["1.tmp"] = [3]
    },
    file("temporaries", .sound(6, events: 6), "unfinished files") { files in
      files["MANIFEST.tmp"] = [1]
      files["0000000000000004.tmp"] = [2]
    },
  ]
}
