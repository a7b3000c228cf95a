// Formats/log.md against the code: offsets, sizes, types, magic, checksum; and its example against golden bytes.

import StrandlineLog
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The page of the log` {
  private static func page() throws -> Page { try Page("log.md") }

  /// Places and names as a page's table has them, in order, without a gap up to `end`.
  private func check(_ table: Page.Table, _ expected: [(String, Int)], end: Int) throws {
    let offsets = try table.column("offset").map(number)
    let sizes = try table.column("bytes").map(number)
    let names = try table.column("name")
    #expect(names == expected.map(\.0))
    #expect(offsets == expected.map(\.1))
    for (index, offset) in offsets.enumerated() {
      #expect(offset + sizes[index] == (index + 1 < offsets.count ? offsets[index + 1] : end), "\(names[index])")
    }
  }

  @Test func `places the fields of a header where the code does`() throws {
    typealias Field = LogFormat.Header
    try check(
      try Self.page().table("Segment header", "offset", "bytes", "name"),
      [
        ("magic", Field.magic), ("major", Field.major), ("minor", Field.minor), ("headerLength", Field.headerLength),
        ("incompatibleBits", Field.incompatibleBits), ("readOnlyCompatibleBits", Field.readOnlyCompatibleBits),
        ("compatibleBits", Field.compatibleBits), ("storeUUID", Field.storeUUID), ("segmentID", Field.segmentID),
        ("tenure", Field.tenure), ("salt", Field.salt), ("role", Field.role),
        ("createdNanoseconds", Field.createdNanoseconds), ("prepared", Field.prepared), ("reserved", Field.reserved),
        ("crc", Field.crc),
      ], end: LogFormat.headerBytes)
  }

  @Test func `places the fields of a frame where the code does`() throws {
    typealias Field = LogFormat.FrameField
    try check(
      try Self.page().table("Frame", "offset", "bytes", "name"),
      [
        ("headCRC", Field.headCRC), ("bodyLength", Field.bodyLength), ("lsn", Field.lsn), ("type", Field.type),
        ("flags", Field.flags), ("schema", Field.schema), ("indexInTransaction", Field.indexInTransaction),
        ("tag", Field.tag), ("bodyCRC", Field.bodyCRC),
      ], end: LogFormat.frameHeaderBytes)
    let meaning = try Self.page().table("Frame", "offset", "bytes", "name").column("meaning")
    #expect(meaning[1].contains(String(LogFormat.bodyBytesMax)))
  }

  /// Bodies have no table of offsets in the code: each field is filled at the page's place and read by the code.
  @Test func `places the fields of openings and markers where the code reads them`() throws {
    let openings = try Self.page().table("Opening", "offset", "bytes", "name")
    var bytes = try filled(
      openings,
      [
        "firstLSN", "predecessorID", "predecessorLastLSN", "predecessorEnd", "chain", "durableEnd", "kind", "opens",
        "rangeLastLSN", "rangeChain", "reserved",
      ], count: LogFormat.openingBodyBytes)
    try fill(&bytes, openings, "kind", with: 0)
    #expect(OpeningBody.decode(bytes, at: 0, count: bytes.count) == nil, "the reserved bytes must be zero")
    try fill(&bytes, openings, "reserved", with: 0)
    bytes[try number(openings.column("offset")[6])] = 2
    #expect(OpeningBody.decode(bytes, at: 0, count: bytes.count) == nil, "no such kind")
    bytes[try number(openings.column("offset")[6])] = 1
    let opening = try #require(OpeningBody.decode(bytes, at: 0, count: bytes.count))
    #expect(opening.firstLSN == 0x0101_0101_0101_0101)
    #expect(opening.predecessorID == 0x0202_0202_0202_0202)
    #expect(opening.predecessorLastLSN == 0x0303_0303_0303_0303)
    #expect(opening.predecessorEnd == 0x0404_0404)
    #expect(opening.chain == 0x0505_0505)
    #expect(opening.durableEnd == 0x0606_0606)
    #expect(opening.kind == .rewritten)
    #expect(opening.opens == 0x0808_0808_0808_0808)
    #expect(opening.rangeLastLSN == 0x0909_0909_0909_0909)
    #expect(opening.rangeChain == 0x0A0A_0A0A)
    #expect(opening.encoded() == bytes)

    let markers = try Self.page().table("Marker", "offset", "bytes", "name")
    bytes = try filled(
      markers, ["durableLSN", "durableEnd", "framesSincePrevious", "chain", "strength", "fullFlushLSN"],
      count: LogFormat.markerBodyBytes)
    #expect(MarkerBody.decode(bytes, at: 0, count: bytes.count) == nil, "no such strength")
    try fill(&bytes, markers, "strength", with: 0)
    bytes[try number(markers.column("offset")[4])] = 2
    let marker = try #require(MarkerBody.decode(bytes, at: 0, count: bytes.count))
    #expect(marker.durableLSN == 0x0101_0101_0101_0101)
    #expect(marker.durableEnd == 0x0202_0202)
    #expect(marker.framesSincePrevious == 0x0303_0303)
    #expect(marker.chain == 0x0404_0404)
    #expect(marker.strength == .durable)
    #expect(marker.fullFlushLSN == 0x0606_0606_0606_0606)
    #expect(marker.encoded() == bytes)
  }

  @Test func `places the fields of indexes and seals where the code reads them`() throws {
    let indexes = try Self.page().table("Index", "offset", "bytes", "name")
    var bytes = try filled(indexes, ["lsnDelta", "offset"], count: LogFormat.indexEntryBytes)
    let entry = try #require(IndexBody.decode(bytes, at: 0, count: bytes.count)?.entries.first)
    #expect(entry == IndexBody.Entry(lsnDelta: 0x0101_0101, offset: 0x0202_0202))
    let seals = try Self.page().table("Seal", "offset", "bytes", "name")
    bytes = try filled(
      seals, ["firstLSN", "lastLSN", "events", "contentChain", "indexOffset", "end", "reserved"],
      count: LogFormat.sealBodyBytes)
    #expect(SealBody.decode(bytes, at: 0, count: bytes.count) == nil, "the reserved bytes must be zero")
    try fill(&bytes, seals, "reserved", with: 0)
    let seal = try #require(SealBody.decode(bytes, at: 0, count: bytes.count))
    #expect(
      seal
        == SealBody(
          firstLSN: 0x0101_0101_0101_0101, lastLSN: 0x0202_0202_0202_0202, events: 0x0303_0303_0303_0303,
          contentChain: 0x0404_0404, indexOffset: 0x0505_0505, end: 0x0606_0606))
    #expect(seal.encoded() == bytes)
  }

  /// What stands at a field's place as the page has it.
  private func field(_ name: String, _ table: Page.Table, _ bytes: [UInt8], from start: Int = 0) throws -> UInt64 {
    let index = try #require(try table.column("name").firstIndex(of: name))
    let offset = try start + number(table.column("offset")[index])
    let count = try number(table.column("bytes")[index])
    return bytes[offset..<offset + count].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// The fields of a table follow each other without a gap, up to `end`.
  private func checkGaps(_ table: Page.Table, end: Int) throws {
    let offsets = try table.column("offset").map(number)
    let sizes = try table.column("bytes").map(number)
    #expect(zip(offsets, sizes).map(+) == Array(offsets.dropFirst()) + [end], "below \(table.heading)")
  }

  @Test func `places the fields of MANIFEST and CONTROL where the code writes them`() throws {
    let page = try Self.page()
    let header = try page.table("MANIFEST", "offset", "bytes", "name")
    let entries = try page.table("Entry", "offset", "bytes", "name")
    try checkGaps(header, end: LogFormat.manifestHeaderBytes)
    try checkGaps(entries, end: LogFormat.manifestEntryBytes)
    var manifest = Manifest(storeUUID: (1...16).map { UInt8($0) }, role: .server, nextSegmentID: 0x1_0000_0007)
    manifest.number = 0x2_0000_0008
    manifest.readOnlyCompatibleBits = 0x3_0000_0009
    manifest.compatibleBits = 0x4_0000_000A
    manifest.entries = [
      ManifestEntry(segmentID: 1, salt: 2, state: .used, firstLSN: 3),
      ManifestEntry(
        segmentID: 0x1_0000_0002, salt: 0x0505_0505, state: .prepared, firstLSN: 0x6_0000_000B,
        lastLSN: 0x7_0000_000C, events: 0x8_0000_000D, end: 0x0E0E_0E0E, chain: 0x0F0F_0F0F),
    ]
    manifest.obsolete = [5, 6, 0x1_0000_0006]
    manifest.ownerBlob = [9, 9, 9, 9]
    var bytes = manifest.encoded()
    for (name, value) in [
      ("major", UInt64(LogFormat.major)), ("minor", UInt64(LogFormat.minor)), ("headerLength", 128),
      ("incompatibleBits", 0), ("readOnlyCompatibleBits", 0x3_0000_0009), ("compatibleBits", 0x4_0000_000A),
      ("entryCount", 2), ("number", 0x2_0000_0008), ("nextSegmentID", 0x1_0000_0007), ("obsoleteCount", 3),
      ("ownerBytes", 4), ("role", 0x7276_7273), ("crc", UInt64(CRC32C.checksum(bytes, 0..<124))),
    ] { #expect(try field(name, header, bytes) == value, "\(name)") }
    let second = LogFormat.manifestHeaderBytes + LogFormat.manifestEntryBytes
    for (name, value) in [
      ("segmentID", 0x1_0000_0002), ("firstLSN", 0x6_0000_000B), ("lastLSN", 0x7_0000_000C), ("events", 0x8_0000_000D),
      ("end", 0x0E0E_0E0E), ("chain", 0x0F0F_0F0F), ("salt", 0x0505_0505), ("state", 1),
    ] as [(String, UInt64)] { #expect(try field(name, entries, bytes, from: second) == value, "\(name)") }
    #expect(bytes.count == second + LogFormat.manifestEntryBytes + 3 * LogFormat.obsoleteEntryBytes + 4 + 4)

    let slot = try page.table("CONTROL", "offset", "bytes", "name")
    try checkGaps(slot, end: LogFormat.controlSlotBytes)
    var control = Control(
      storeUUID: (1...16).map { UInt8($0) }, tailSegmentID: 0x1_0000_0001, durableLSN: 0x2_0000_0002,
      fullFlushLSN: 0x3_0000_0003, durableEnd: 0x0404_0404, isClean: true)
    control.sequence = 0x5_0000_0005
    control.opens = 0x6_0000_0006
    bytes = control.encoded()
    for (name, value) in [
      ("major", UInt64(LogFormat.major)), ("minor", UInt64(LogFormat.minor)), ("incompatibleBits", 0),
      ("sequence", 0x5_0000_0005), ("opens", 0x6_0000_0006), ("tailSegmentID", 0x1_0000_0001),
      ("durableLSN", 0x2_0000_0002), ("fullFlushLSN", 0x3_0000_0003), ("durableEnd", 0x0404_0404), ("isClean", 1),
      ("crc", UInt64(CRC32C.checksum(bytes, 0..<4092))),
    ] { #expect(try field(name, slot, bytes) == value, "\(name)") }
  }

  /// A body in which the n-th field of a table has the byte n in all its places.
  private func filled(_ table: Page.Table, _ names: [String], count: Int) throws -> [UInt8] {
    #expect(try table.column("name") == names)
    var bytes = [UInt8](repeating: 0xFF, count: count)
    for (index, name) in names.enumerated() { try fill(&bytes, table, name, with: UInt8(index + 1)) }
    #expect(!bytes.contains(0xFF), "a gap in the table below \(table.heading)")
    return bytes
  }

  private func fill(_ bytes: inout [UInt8], _ table: Page.Table, _ name: String, with byte: UInt8) throws {
    let index = try #require(try table.column("name").firstIndex(of: name))
    let offset = try number(table.column("offset")[index])
    for place in offset..<offset + (try number(table.column("bytes")[index])) { bytes[place] = byte }
  }

  @Test func `numbers the types of frames as the code does`() throws {
    let table = try Self.page().table("Frame", "type", "name", "meaning")
    let types = try table.column("type").map(number)
    let names = try table.column("name")
    #expect(types.count == 5)
    for (type, name) in zip(types, names) {
      let code = try #require(FrameType(rawValue: UInt8(type)))
      #expect("\(code)" == name)
    }
    #expect(FrameType(rawValue: 6) == nil)
  }

  @Test func `says the constants that stand in its text`() throws {
    let text = try Self.page().sentences
    func spaced(_ bytes: [UInt8]) -> String { bytes.map { hex([$0]).uppercased() }.joined(separator: " ") }
    let polynomial = "0x1EDC6F41"
    // The polynomial that is stated must be the one of the code: the check value is computed with it, bit by bit.
    #expect(castagnoli(Array("123456789".utf8), polynomial: 0x1EDC_6F41) == CRC32C.checksum(Array("123456789".utf8)))
    for words in [
      spaced(LogFormat.magic), spaced(LogFormat.manifestMagic), spaced(LogFormat.controlMagic), polynomial,
      "**0x\(String(CRC32C.checksum(Array("123456789".utf8)), radix: 16).uppercased())**",
      "(major \(LogFormat.major), minor \(LogFormat.minor))", "\(LogFormat.headerBytes) bytes, synced",
      "0..<\(LogFormat.Header.crc)", "(\(LogFormat.headerPageBytes) bytes, so",
      "\(LogFormat.frameHeaderBytes) bytes of header, the body, zeros up to the next multiple of "
        + "\(LogFormat.frameAlignment)",
      "\(LogFormat.openingBodyBytes) bytes, so the frame has \(LogFormat.openingFrameBytes) and ends at "
        + "\(LogFormat.headerPageBytes + LogFormat.openingFrameBytes)",
      "A body of \(LogFormat.markerBodyBytes) bytes, a frame of \(LogFormat.markerFrameBytes)",
      "A body of \(LogFormat.sealBodyBytes) bytes, a frame of \(LogFormat.sealFrameBytes)",
      "One entry of \(LogFormat.indexEntryBytes) bytes", "begins \(LogFormat.indexStepBytes) bytes or more behind",
      "\(LogFormat.controlSlots * LogFormat.controlSlotBytes) bytes: two slots of \(LogFormat.controlSlotBytes)",
      "at most \(LogFormat.ownerBlobBytesMax)", "\(LogFormat.manifestHeaderBytes) bytes of header, the entries",
      "`\(LogFormat.manifestName)`", "`\(LogFormat.controlName)`", "`\(LogFormat.ballastName)`",
      "`\(LogFormat.quarantineName)`", "(\(LogOptions().ballastBytes >> 20) MiB by default)",
      "(\(LogFormat.chainStepBytes) bytes)", "Types from \(LogFormat.skippableTypes) on",
      "`\(String(decoding: LogRole.store.bytes, as: UTF8.self))`: a store's log",
      "`\(String(decoding: LogRole.server.bytes, as: UTF8.self))`: the local server's journal",
      "\(SyncStrength.ordered.rawValue) ordered, \(SyncStrength.durable.rawValue) durable",
      "`\(LogFormat.lockName)`", "`<16 hex digits>\(LogFormat.segmentSuffix)`",
      "`<16 hex digits>\(LogFormat.temporarySuffix)`", "`<store>\(LogFormat.initInfix)<16 random hex digits>`",
      "(\(LogOptions().segmentBytesMax >> 20) MiB by default",
      "(\(LogOptions().preallocationFirstStepBytes >> 20) MiB at first",
    ] { #expect(text.contains(words), "log.md does not say: \(words)") }
    #expect(
      LogOptions().controlIntervalMilliseconds == 200 && text.contains("quiet moment: 200 ms after the last acknowledgement")
    )
    #expect((LogFormat.flagFirst, LogFormat.flagLast) == (1, 2))
    #expect(LogFormat.numberMax == 1 << 62 && text.contains("stay below 2^62"))
  }

  /// CRC-32C from its definition: unreflected polynomial, bits reflected in and out.
  private func castagnoli(_ bytes: [UInt8], polynomial: UInt32) -> UInt32 {
    var crc: UInt32 = 0xFFFF_FFFF
    for byte in bytes {
      for bit in 0..<8 {
        let isSet = (UInt32(byte >> UInt8(bit)) & 1) ^ (crc >> 31) == 1
        crc = (crc << 1) ^ (isSet ? polynomial : 0)
      }
    }
    var reflected: UInt32 = 0
    for bit in 0..<32 where crc >> UInt32(bit) & 1 == 1 { reflected |= 1 << UInt32(31 - bit) }
    return reflected ^ 0xFFFF_FFFF
  }

  @Test(arguments: ["0000000000000001.seg", "MANIFEST", "CONTROL"])
  func `shows every byte of its example`(name: String) throws {
    let golden = try Repository.bytes("Formats/vectors/three-events/\(name)")
    let rows = try Self.page().hexRows("three-events/\(name)")
    #expect(rows.count > 10)
    // What is not shown: the rest of a header's page, and most of a slot. It is zero.
    let hidden: [Range<Int>] =
      switch name {
      case "MANIFEST": []
      case "CONTROL": [77..<4092, 4096 + 77..<8188]
      default: [LogFormat.headerBytes..<LogFormat.headerPageBytes]
      }
    var next = 0
    for (offset, bytes) in rows {
      if let range = hidden.first(where: { $0.lowerBound == next }) {
        #expect(golden[range].allSatisfy { $0 == 0 })
        next = range.upperBound
      }
      #expect(offset == next, "the example has a gap")
      guard offset + bytes.count <= golden.count else { throw PageError("the example is longer than its file") }
      #expect(Array(golden[offset..<offset + bytes.count]) == bytes, "at \(String(offset, radix: 16))")
      next = offset + bytes.count
    }
    #expect(next == golden.count)
  }

  @Test func `recomputes what its example says of checksums`() throws {
    let golden = try Repository.bytes("Formats/vectors/three-events/0000000000000001.seg")
    let header = try SegmentHeader.decode(golden, file: "example", named: 1)
    let text = try Self.page().sentences
    func digits(_ value: UInt32) -> String {
      let text = String(value, radix: 16)
      return "0x" + String(repeating: "0", count: 8 - text.count) + text
    }
    #expect(text.contains("= `\(digits(header.identity.seed))`"))
    var covered = ByteWriter()
    covered.u32(header.identity.seed)
    covered.u32(4096)
    covered.raw(Array(golden[4100..<4128]))
    let joined = text.filter { $0 != " " }
    #expect(joined.contains(hex(covered.bytes)))
    #expect(text.contains("that is `\(digits(CRC32C.checksum(covered.bytes)))`"))
    #expect(CRC32C.checksum(covered.bytes) == golden.u32(at: 4096))
    #expect(text.contains("`\(digits(CRC32C.checksum(golden, 4128..<4192)))`"))
  }
}
