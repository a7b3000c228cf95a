// The headers of segments and of MANIFEST, its entries, and the slots of CONTROL: each field with a wrong value.

private let beyond = UInt64(1) << 62

extension ConformanceCase {
  /// A change of the header of segment 1 of the base `closed`.
  private static func header(
    _ name: String, _ demand: Demand, _ why: String, _ base: ConformanceBase = .closed, id: UInt64 = 1,
    _ change: @escaping @Sendable (inout Fields) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("segment-\(name)", base, demand, why) { try $0.segment(id) { try change(&$0.header) } }
  }

  static let headers: [ConformanceCase] = [
    header("magic", .damaged(segment1), "begins as MANIFEST does") {
      try $0.set("magic", bytes: [0x89, 0x53, 0x54, 0x4D, 0x0D, 0x0A, 0x1A, 0x0A])
    },
    header("version-2", .future(segment1), "a later version") { try $0.set("version", 2) },
    header("version-0", .future(segment1), "a version that was never released") { try $0.set("version", 0) },
    header("reserved", .future(segment1), "a reserved byte is not zero") { try $0.set("reserved", 1) },
    header("header-length-0", .future(segment1), "another length of the header") { try $0.set("headerLength", 0) },
    header("header-length-136", .future(segment1), "another length of the header") { try $0.set("headerLength", 136) },
    header("incompatible-bit", .future(segment1), "a feature that a reader must know") {
      try $0.set("incompatibleBits", 1)
    },
    header("incompatible-top-bit", .future(segment1), "a feature that a reader must know") {
      try $0.set("incompatibleBits", 1 << 63)
    },
    header("read-only-bit", .sound(3, events: 3).readOnly(), "a feature that a writer must know") {
      try $0.set("readOnlyCompatibleBits", 1)
    },
    header("uuid", .foreign(segment1), "of another store") { try $0.set("storeUUID", byte: 15, 0xEE) },
    header("id-0", .foreign(segment1), "another ID than the name's") { try $0.set("segmentID", 0) },
    header("id-off-by-one", .foreign(segment1), "another ID than the name's") { try $0.set("segmentID", 2) },
    header("id-max", .foreign(segment1), "another ID than the name's") { try $0.set("segmentID", .max) },
    header("salt-0", .damaged(segment1), "no writer gives the salt 0") { try $0.set("salt", 0) },
    header("role-journal", .foreign(segment1), "a journal's segment in a store's log") {
      try $0.set("role", bytes: Array("srvr".utf8))
    },
    header("role-unknown", .future(segment1), "a role that version 1 does not know") {
      try $0.set("role", bytes: Array("tabl".utf8))
    },
    header("role-0", .future(segment1), "a role that version 1 does not know") { try $0.set("role", 0) },
    header("kind-2", .future(segment1), "a kind that version 1 does not know") { try $0.set("kind", 2) },
    header("kind-255", .future(segment1), "a kind that version 1 does not know") { try $0.set("kind", 255) },
    header("kind-rewritten", .damaged("MANIFEST"), "a rewritten segment whose entry says that it may grow") {
      try $0.set("kind", 1)
    },
    header("reserved-first", .future(segment1), "a reserved byte is not zero") { try $0.set("reserved2", byte: 0, 1) },
    header("reserved-last", .future(segment1), "a reserved byte is not zero") {
      try $0.set("reserved2", byte: 50, 0x80)
    },
    header("compacted", .sound(8, events: 6), "compacted by the state as of its end", .rewritten, id: 5) {
      try $0.set("compactedLSN", 6)
    },
    header("compacted-later", .sound(8, events: 6), "compacted by a later state", .rewritten, id: 5) {
      try $0.set("compactedLSN", (1 << 62) - 1)
    },
    header("compacted-beyond", .damaged(segmentName(5)), "an LSN of 2^62", .rewritten, id: 5) {
      try $0.set("compactedLSN", 1 << 62)
    },
    header("compacted-beyond-live", .future(segment1), "not rewritten, and compacted, by an LSN of 2^62") {
      try $0.set("compactedLSN", 1 << 62)
    },
    ConformanceCase(
      "segment-uuid-alone", .finished, .foreign(segment2),
      "of another store, over frames of this one, which do not verify"
    ) {
      try $0.headerAlone(2) { try $0.set("storeUUID", byte: 15, 0xEE) }
    },
    ConformanceCase(
      "segment-salt-alone", .finished, .foreign(segment2), "another salt than its entry's, over the frames of that one"
    ) {
      try $0.headerAlone(2) { try $0.set("salt", 5) }
    },
    ConformanceCase(
      "segment-role-alone", .finished, .foreign(segment2), "a journal's segment, whose first frame is damaged too"
    ) {
      try $0.frame(2, 0) { try $0.set("tag", 5) }
      try $0.segment(2) { try $0.header.set("role", bytes: Array("srvr".utf8)) }
    },
    ConformanceCase(
      "segment-unlisted-uuid-alone", .finished, .foreign(segment3),
      "on no list, of another store, over frames of this one"
    ) {
      try $0.list { $0.removeLast() }
      try $0.headerAlone(3) { try $0.set("storeUUID", byte: 15, 0xEE) }
    },
    header("compacted-live", .future(segment1), "not rewritten, and compacted") { try $0.set("compactedLSN", 1) },
    header("middle-version", .future(segment2), "a later version, in the middle of the log", .finished, id: 2) {
      try $0.set("version", 9)
    },
    header("middle-uuid", .foreign(segment2), "of another store, in the middle of the log", .finished, id: 2) {
      try $0.set("storeUUID", byte: 0, 0xEE)
    },
    header("rewritten-as-live", .damaged(segmentName(5)), "live, with the range of a rewritten one", .rewritten, id: 5)
    {
      try $0.set("kind", 0)
    },
  ]

  /// A change of MANIFEST's header.
  private static func list(
    _ name: String, _ demand: Demand, _ why: String, _ change: @escaping @Sendable (inout StoreImage) throws -> Void
  ) -> ConformanceCase { ConformanceCase("manifest-\(name)", .finished, demand, why, change) }

  static let lists: [ConformanceCase] = [
    list("magic", .damaged("MANIFEST"), "begins as a segment does") {
      try $0.manifest.set("magic", bytes: [0x89, 0x53, 0x54, 0x52, 0x0D, 0x0A, 0x1A, 0x0A])
    },
    list("version-2", .future("MANIFEST"), "a later version") { try $0.manifest.set("version", 2) },
    list("version-0", .future("MANIFEST"), "a version that was never released") { try $0.manifest.set("version", 0) },
    list("reserved", .future("MANIFEST"), "a reserved byte is not zero") { try $0.manifest.set("reserved", 0x100) },
    list("header-length", .future("MANIFEST"), "another length of the header") {
      try $0.manifest.set("headerLength", 127)
    },
    list("incompatible-bit", .future("MANIFEST"), "a feature that a reader must know") {
      try $0.manifest.set("incompatibleBits", 1 << 17)
    },
    list("read-only-bit", .sound(6, events: 6).readOnly(), "a feature that a writer must know") {
      try $0.manifest.set("readOnlyCompatibleBits", 2)
    },
    list("uuid", .foreign("CONTROL"), "another store than CONTROL's") {
      try $0.manifest.set("storeUUID", byte: 3, 0xEE)
    },
    list("role-journal", Demand(verdict: .wrongRole, file: "MANIFEST"), "a journal where a store is asked for") {
      try $0.manifest.set("role", bytes: Array("srvr".utf8))
    },
    list("role-unknown", .future("MANIFEST"), "a role that version 1 does not know") { try $0.manifest.set("role", 1) },
    list("count-0", .damaged("MANIFEST"), "more bytes than the count allows") { try $0.manifest.set("entryCount", 0) },
    list("count-2", .damaged("MANIFEST"), "more bytes than the count allows") { try $0.manifest.set("entryCount", 2) },
    list("count-4", .damaged("MANIFEST"), "fewer bytes than the count asks for") {
      try $0.manifest.set("entryCount", 4)
    },
    list("count-max", .damaged("MANIFEST"), "fewer bytes than the count asks for") {
      try $0.manifest.set("entryCount", .max)
    },
    list("next-id-0", .damaged("MANIFEST"), "the next ID is no ID") { try $0.manifest.set("nextSegmentID", 0) },
    list("next-id-3", .damaged("MANIFEST"), "a listed ID is not below the next one") {
      try $0.manifest.set("nextSegmentID", 3)
    },
    list("next-id-beyond", .damaged("MANIFEST"), "the next ID is 2^62") {
      try $0.manifest.set("nextSegmentID", beyond)
    },
    list("owner-257", .damaged("MANIFEST"), "more of the owner's bytes than there may be") {
      $0.owner = [UInt8](repeating: 7, count: 257)
      try $0.manifest.set("ownerBytes", 257)
    },
    list("owner-too-few", .damaged("MANIFEST"), "the owner's bytes are not there") {
      try $0.manifest.set("ownerBytes", 8)
    },
    list("reserved-first", .future("MANIFEST"), "a reserved byte is not zero") {
      try $0.manifest.set("reserved2", byte: 0, 1)
    },
    list("reserved-last", .future("MANIFEST"), "a reserved byte is not zero") {
      try $0.manifest.set("reserved2", byte: 55, 1)
    },
    list("no-entries", .damaged("MANIFEST"), "no entry") { try $0.list { $0 = [] } },
    list("order", .missing(segment3), "two entries exchanged: what stands second continues a later one") {
      try $0.list { $0.swapAt(1, 2) }
    },
  ]

  /// A change of one entry of the base `finished`.
  private static func entry(
    _ name: String, _ demand: Demand, _ why: String, _ index: Int,
    _ change: @escaping @Sendable (inout Fields) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("entry-\(name)", .finished, demand, why) { try change(&$0.entries[index]) }
  }

  static let entries: [ConformanceCase] = [
    entry("id-0", .damaged("MANIFEST"), "no ID", 0) { try $0.set("segmentID", 0) },
    entry("id-twice", .damaged("MANIFEST"), "an ID that stands twice", 1) { try $0.set("segmentID", 1) },
    entry("id-next", .damaged("MANIFEST"), "an ID that was not given yet", 2) { try $0.set("segmentID", 4) },
    entry("id-max", .damaged("MANIFEST"), "an ID that was not given yet", 2) { try $0.set("segmentID", .max) },
    entry("first-lsn-2", .damaged(segment1), "another first LSN than the opening frame's", 0) {
      try $0.set("firstLSN", 2)
    },
    entry("first-lsn-off-by-one", .damaged(segment3), "another first LSN than the opening frame's", 2) {
      try $0.set("firstLSN", 6)
    },
    entry("first-lsn-beyond", .damaged("MANIFEST"), "an LSN of 2^62", 2) { try $0.set("firstLSN", beyond) },
    entry("first-lsn-0", .damaged("MANIFEST"), "no LSN", 2) { try $0.set("firstLSN", 0) },
    entry("last-lsn-off-by-one", .damaged("MANIFEST"), "another last LSN than the next segment says", 1) {
      try $0.set("lastLSN", 5)
    },
    entry("last-lsn-below-first", .damaged("MANIFEST"), "it ends before it begins", 1) { try $0.set("lastLSN", 1) },
    entry("last-lsn-beyond", .damaged("MANIFEST"), "an LSN of 2^62", 1) { try $0.set("lastLSN", beyond) },
    entry("last-lsn-without-end", .damaged("MANIFEST"), "a last LSN, and no end", 2) { try $0.set("lastLSN", 6) },
    entry("chain-without-end", .damaged("MANIFEST"), "a chain, and no end", 2) { try $0.set("chain", 1) },
    entry("end-off-by-eight", .damaged("MANIFEST"), "another end than the next segment says", 1) {
      try $0.set("end", $0.get("end") + 8)
    },
    entry("end-odd", .damaged("MANIFEST"), "another end than the next segment says", 0) {
      try $0.set("end", $0.get("end") - 1)
    },
    entry("end-in-header", .damaged("MANIFEST"), "an end before the first group", 0) { try $0.set("end", 4152) },
    entry("end-0", .damaged("MANIFEST"), "no end, but a last LSN", 0) { try $0.set("end", 0) },
    entry("end-of-tail", .damaged(segment3), "an end that the last segment does not reach", 2) {
      try $0.set("end", 4256)
      try $0.set("lastLSN", 6)
    },
    entry("chain", .damaged("MANIFEST"), "another chain than the next segment says", 0) {
      try $0.set("chain", $0.get("chain") ^ 1)
    },
    entry("chain-0", .damaged("MANIFEST"), "another chain than the next segment says", 1) { try $0.set("chain", 0) },
    entry("salt", .foreign(segment2), "another file is meant", 1) { try $0.set("salt", 77) },
    entry("salt-0", .foreign(segment2), "another file is meant", 1) { try $0.set("salt", 0) },
    entry("reserved", .future("MANIFEST"), "a reserved byte is not zero", 2) { try $0.set("reserved", 1 << 31) },
  ]

  /// A change of the slot that counts, in the base `finished`: sequence 3, segment 2, LSN 4.
  private static func bound(
    _ name: String, _ demand: Demand, _ why: String, slot: Int = 1,
    _ change: @escaping @Sendable (inout Fields) throws -> Void
  ) -> ConformanceCase {
    ConformanceCase("control-\(name)", .finished, demand, why) { image in
      guard var fields = image.slots[slot] else { throw PageError("no such slot") }
      try change(&fields)
      image.slots[slot] = fields
    }
  }

  static let bounds: [ConformanceCase] = [
    bound("magic", .sound(6, events: 6), "a slot that does not verify; the other one counts") {
      try $0.set("magic", byte: 0, 0)
    },
    bound("version", .future("CONTROL"), "a later version") { try $0.set("version", 2) },
    bound("version-older-slot", .future("CONTROL"), "a later version in the slot that does not count", slot: 0) {
      try $0.set("version", 2)
    },
    bound("reserved", .future("CONTROL"), "a reserved byte is not zero") { try $0.set("reserved", 1) },
    bound("incompatible-bit", .future("CONTROL"), "a feature that a reader must know") {
      try $0.set("incompatibleBits", 4)
    },
    bound("uuid", .foreign("CONTROL"), "of another store") { try $0.set("storeUUID", byte: 0, 0xEE) },
    bound("uuid-older-slot", .sound(6, events: 6), "of another store, in the slot that does not count", slot: 0) {
      try $0.set("storeUUID", byte: 0, 0xEE)
    },
    bound("sequence-of-the-other", .sound(6, events: 6), "a sequence of the other slot: it does not verify") {
      try $0.set("sequence", 4)
    },
    bound("sequence-beyond", .sound(6, events: 6), "a sequence of 2^62 + 1: it does not verify") {
      try $0.set("sequence", beyond + 1)
    },
    bound("sequence-lower", .sound(6, events: 6), "a sequence below the other slot's: that one counts") {
      try $0.set("sequence", 1)
    },
    bound("sequence-far", .sound(6, events: 6), "a sequence far above the other slot's") {
      try $0.set("sequence", 1_000_001)
    },
    bound("lsn-beyond", .sound(6, events: 6), "an LSN of 2^62: it does not verify") {
      try $0.set("durableLSN", beyond)
    },
    bound("lsn-above-log", .missing(segment3), "durable beyond the end of the log") {
      try $0.set("tailSegmentID", 9)
      try $0.set("durableLSN", 7)
    },
    bound("lsn-off-by-one", .damaged(segment2), "no unit ends there with this LSN") { try $0.set("durableLSN", 3) },
    bound("end-off-by-eight", .damaged(segment2), "no unit ends there") {
      try $0.set("durableEnd", $0.get("durableEnd") - 8)
    },
    bound("end-odd", .damaged(segment2), "no unit ends there") { try $0.set("durableEnd", $0.get("durableEnd") - 3) },
    bound("end-above", .damaged(segment2), "durable above the end of the segment") {
      try $0.set("durableEnd", $0.get("durableEnd") + 8)
    },
    bound("end-0", .damaged(segment2), "no unit ends there") { try $0.set("durableEnd", 0) },
    bound("end-max", .damaged(segment2), "durable above the end of the segment") { try $0.set("durableEnd", .max) },
    bound("tail-gone", .sound(6, events: 6), "the segment it speaks of was merged away; its LSN still counts") {
      try $0.set("tailSegmentID", 9)
    },
    bound("tail-0", .sound(6, events: 6), "it speaks of no segment; its LSN still counts") {
      try $0.set("tailSegmentID", 0)
    },
  ]
}
