// Formats/log.md against the code: offsets, sizes, types, magic, checksum; and its example against golden bytes.

import StrandlineLog
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The page of the log` {
  private static func page() throws -> Page { try Page("log.md") }

  /// Names and places as the page has them, in order, without a gap up to `end`.
  private func check(_ layout: FieldLayout, _ expected: [(String, Int)], end: Int) {
    #expect(layout.places.map(\.name) == expected.map(\.0))
    #expect(layout.places.map(\.range.lowerBound) == expected.map(\.1))
    #expect(layout.places.map(\.range.upperBound) == expected.dropFirst().map(\.1) + [end])
  }

  private static let common: [(String, Int)] = [
    ("magic", LogFormat.Header.magic), ("version", LogFormat.Header.version), ("reserved", LogFormat.Header.reserved),
    ("headerLength", LogFormat.Header.headerLength), ("incompatibleBits", LogFormat.Header.incompatibleBits),
    ("readOnlyCompatibleBits", LogFormat.Header.readOnlyCompatibleBits), ("storeUUID", LogFormat.Header.storeUUID),
  ]

  @Test func `places the fields of headers where the code does`() throws {
    let layouts = try LogLayouts()
    typealias Segment = LogFormat.Header
    check(
      layouts.segment,
      Self.common + [
        ("segmentID", Segment.segmentID), ("salt", Segment.salt), ("role", Segment.role), ("kind", Segment.kind),
        ("reserved2", Segment.reservedEnd), ("compactedLSN", Segment.compactedLSN), ("crc", Segment.crc),
      ], end: LogFormat.headerBytes)
    typealias List = LogFormat.ManifestHeader
    check(
      layouts.manifest,
      Self.common + [
        ("role", List.role), ("entryCount", List.entryCount), ("nextSegmentID", List.nextSegmentID),
        ("ownerBytes", List.ownerBytes), ("reserved2", List.reserved), ("crc", List.crc),
      ], end: LogFormat.manifestHeaderBytes)
    typealias Entry = LogFormat.ManifestEntryField
    check(
      layouts.entry,
      [
        ("segmentID", Entry.segmentID), ("firstLSN", Entry.firstLSN), ("lastLSN", Entry.lastLSN), ("end", Entry.end),
        ("chain", Entry.chain), ("salt", Entry.salt), ("reserved", Entry.reserved),
      ], end: LogFormat.manifestEntryBytes)
    typealias Slot = LogFormat.ControlField
    check(
      layouts.slot,
      [
        ("magic", Slot.magic), ("version", Slot.version), ("reserved", Slot.reserved),
        ("incompatibleBits", Slot.incompatibleBits), ("storeUUID", Slot.storeUUID), ("sequence", Slot.sequence),
        ("tailSegmentID", Slot.tailSegmentID), ("durableLSN", Slot.durableLSN), ("durableEnd", Slot.durableEnd),
        ("crc", Slot.crc),
      ], end: LogFormat.controlSlotBytes)
  }

  @Test func `places the fields of a frame where the code does`() throws {
    typealias Field = LogFormat.FrameField
    check(
      try LogLayouts().frame,
      [
        ("headCRC", Field.headCRC), ("bodyLength", Field.bodyLength), ("lsn", Field.lsn), ("type", Field.type),
        ("flags", Field.flags), ("schema", Field.schema), ("indexInTransaction", Field.indexInTransaction),
        ("tag", Field.tag), ("bodyCRC", Field.bodyCRC),
      ], end: LogFormat.frameHeaderBytes)
    let meaning = try Self.page().table("Frame", "offset", "bytes", "name").column("meaning")
    #expect(meaning[1].contains(String(LogFormat.bodyBytesMax)))
    #expect(meaning[4].contains("\(LogFormat.flagFirst): first event of its transaction; \(LogFormat.flagLast): last"))
    #expect(meaning[4].contains("\(LogFormat.flagSynced): synced"))
  }

  /// Bodies have no table of offsets in the code: each field is filled at the page's place and read by the code.
  @Test func `places the fields of bodies where the code reads them`() throws {
    let openings = try Self.page().table("Opening", "offset", "bytes", "name")
    var bytes = try filled(
      openings, ["predecessorID", "rangeLastLSN", "predecessorEnd", "chain", "durableEnd", "rangeChain"],
      count: LogFormat.openingBodyBytes)
    let opening = try #require(OpeningBody.decode(bytes, at: 0, count: bytes.count, lsn: 7))
    #expect(
      opening
        == OpeningBody(
          firstLSN: 7, predecessorID: 0x0101_0101_0101_0101, predecessorEnd: 0x0303_0303, chain: 0x0404_0404,
          durableEnd: 0x0505_0505, rangeLastLSN: 0x0202_0202_0202_0202, rangeChain: 0x0606_0606))
    #expect(opening.encoded() == bytes)
    let indexes = try Self.page().table("Index", "offset", "bytes", "name")
    bytes = try filled(indexes, ["lsnDelta", "offset"], count: LogFormat.indexEntryBytes)
    let entry = try #require(IndexBody.decode(bytes, at: 0, count: bytes.count)?.entries.first)
    #expect(entry == IndexBody.Entry(lsnDelta: 0x0101_0101, offset: 0x0202_0202))
    let seals = try Self.page().table("Seal", "offset", "bytes", "name")
    bytes = try filled(seals, ["contentChain", "indexOffset"], count: LogFormat.sealBodyBytes)
    let seal = try #require(SealBody.decode(bytes, at: 0, count: bytes.count))
    #expect(seal == SealBody(contentChain: 0x0101_0101, indexOffset: 0x0202_0202))
    #expect(seal.encoded() == bytes)
  }

  /// What the code writes, read at the page's places.
  @Test func `finds in what the code writes what it says`() throws {
    let layouts = try LogLayouts()
    func check(_ layout: FieldLayout, _ bytes: ArraySlice<UInt8>, _ expected: [(String, UInt64)]) throws {
      for (name, value) in expected {
        let place = try layout.range(name)
        let found = bytes.dropFirst(place.lowerBound).prefix(place.count).reversed().reduce(UInt64(0)) {
          $0 << 8 | UInt64($1)
        }
        #expect(found == value, "\(name)")
      }
    }
    var manifest = Manifest(storeUUID: (1...16).map { UInt8($0) }, role: .server, nextSegmentID: 0x1_0000_0007)
    manifest.readOnlyCompatibleBits = 0x3_0000_0009
    manifest.entries = [
      ManifestEntry(
        segmentID: 0x1_0000_0002, salt: 0x0505_0505, firstLSN: 0x6_0000_000B,
        end: SegmentEnd(offset: 0x0E0E_0E0E, lastLSN: 0x7_0000_000C, chain: 0x0F0F_0F0F)),
      ManifestEntry(segmentID: 1, salt: 2, firstLSN: 0),
    ]
    manifest.ownerBytes = [9, 9, 9, 9]
    var bytes = manifest.encoded()
    try check(
      layouts.manifest, bytes[...],
      [
        ("version", UInt64(LogFormat.version)), ("headerLength", UInt64(LogFormat.manifestHeaderBytes)),
        ("incompatibleBits", 0), ("readOnlyCompatibleBits", 0x3_0000_0009), ("entryCount", 2),
        ("nextSegmentID", 0x1_0000_0007), ("ownerBytes", 4), ("role", 0x7276_7273),
        ("crc", UInt64(CRC32C.checksum(bytes, 0..<124))),
      ])
    try check(
      layouts.entry, bytes[LogFormat.manifestHeaderBytes...],
      [
        ("segmentID", 0x1_0000_0002), ("firstLSN", 0x6_0000_000B), ("lastLSN", 0x7_0000_000C), ("end", 0x0E0E_0E0E),
        ("chain", 0x0F0F_0F0F), ("salt", 0x0505_0505), ("reserved", 0),
      ])
    #expect(bytes.count == LogFormat.manifestHeaderBytes + 2 * LogFormat.manifestEntryBytes + 4 + 4)
    var control = Control(
      storeUUID: (1...16).map { UInt8($0) },
      bound: LogBound(segmentID: 0x1_0000_0001, lsn: 0x2_0000_0002, end: 0x0404_0404))
    control.sequence = 0x5_0000_0005
    bytes = control.encoded()
    try check(
      layouts.slot, bytes[...],
      [
        ("version", UInt64(LogFormat.version)), ("incompatibleBits", 0), ("sequence", 0x5_0000_0005),
        ("tailSegmentID", 0x1_0000_0001), ("durableLSN", 0x2_0000_0002), ("durableEnd", 0x0404_0404),
        ("crc", UInt64(CRC32C.checksum(bytes, 0..<60))),
      ])
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
    #expect(types.count == 4)
    for (type, name) in zip(types, names) {
      let code = try #require(FrameType(rawValue: UInt8(type)))
      #expect("\(code)" == name)
    }
    #expect(FrameType(rawValue: 5) == nil)
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
      "**version \(LogFormat.version)**", "begin with the same \(LogFormat.commonHeaderBytes) bytes",
      "\(LogFormat.headerBytes) bytes, synced", "Zeros follow up to \(LogFormat.headerPageBytes)",
      "\(LogFormat.frameHeaderBytes) bytes of header, the body, zeros up to the next multiple of "
        + "\(LogFormat.frameAlignment)",
      "\(LogFormat.openingBodyBytes) bytes, so the frame has \(LogFormat.openingFrameBytes) and ends at "
        + "\(LogFormat.openingEnd)",
      "A body of \(LogFormat.sealBodyBytes) bytes, a frame of \(LogFormat.sealFrameBytes)",
      "One entry of \(LogFormat.indexEntryBytes) bytes", "begins \(LogFormat.indexStepBytes) bytes or more behind",
      "\(LogFormat.controlSlots * LogFormat.controlPageBytes) bytes: two slots of \(LogFormat.controlSlotBytes), at 0 and at "
        + "\(LogFormat.controlPageBytes)",
      "above \(LogFormat.ownerBytesMax): *damage*", "\(LogFormat.manifestEntryBytes) bytes. Entries",
      "`\(LogFormat.manifestName)`", "`\(LogFormat.controlName)`", "`\(LogFormat.ballastName)`",
      "`\(LogFormat.quarantineName)`", "(\(LogOptions().ballastBytes >> 20) MiB by default)",
      "(\(LogFormat.chainStepBytes) bytes)", "Types from \(LogFormat.skippableTypes) on",
      "`\(String(decoding: LogRole.store.bytes, as: UTF8.self))`: a store's log",
      "`\(String(decoding: LogRole.server.bytes, as: UTF8.self))`: the local server's journal",
      "`\(String(decoding: LogRole.inbox.bytes, as: UTF8.self))`: a store's inbox",
      "`\(LogFormat.lockName)`", "`<16 hex digits>\(LogFormat.segmentSuffix)`",
      "`<16 hex digits>\(LogFormat.temporarySuffix)`", "`<store>\(LogFormat.initInfix)<16 random hex digits>`",
    ] { #expect(text.contains(words), "log.md does not say: \(words)") }
    let writer = try Page("log-writer.md").sentences
    for words in [
      "(\(LogOptions().segmentBytesMax >> 20) MiB by default",
      "(\(LogOptions().preallocationFirstStepBytes >> 20) MiB at first",
      "at most \(LogOptions().transactionBytesMax >> 20) MiB of frames",
      "wait \(LogOptions().lockWaitMilliseconds) ms at most",
      "\(LogOptions().controlIntervalMilliseconds ?? 0) ms after the first acknowledged transaction",
      "if its last look is \(StoreLook.milliseconds) ms ago",
    ] { #expect(writer.contains(words), "log-writer.md does not say: \(words)") }
    #expect((LogFormat.flagFirst, LogFormat.flagLast, LogFormat.flagSynced) == (1, 2, 4))
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

  @Test func `shows bytes of its example`() throws {
    let golden = try Repository.bytes("Formats/vectors/three-events/0000000000000001.seg")
    let blocks = try Self.page().blocks.filter { $0.info == "hex three-events/0000000000000001.seg" }
    #expect(blocks.count == 2)
    var shown = 0
    for block in blocks {
      for (offset, bytes) in Page.hexRows(block) {
        guard offset + bytes.count <= golden.count else { throw PageError("the example is longer than its file") }
        #expect(Array(golden[offset..<offset + bytes.count]) == bytes, "at \(String(offset, radix: 16))")
        shown += bytes.count
      }
    }
    // A header, an opening frame, and an event.
    #expect(shown > LogFormat.headerBytes + LogFormat.openingFrameBytes + LogFormat.frameHeaderBytes)
    #expect(golden[LogFormat.headerBytes..<LogFormat.headerPageBytes].allSatisfy { $0 == 0 })
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
    covered.u32(UInt32(LogFormat.headerPageBytes))
    covered.raw(Array(golden[4100..<4128]))
    let joined = text.filter { $0 != " " }
    #expect(joined.contains(hex(covered.bytes)))
    #expect(text.contains("that is `\(digits(CRC32C.checksum(covered.bytes)))`"))
    #expect(CRC32C.checksum(covered.bytes) == golden.u32(at: 4096))
    #expect(text.contains("`\(digits(CRC32C.checksum(golden, 4128..<4160)))`"))
  }
}
