// Formats/log.md against the code: offsets, sizes, types, magic, checksum; and its example against golden bytes.

import StrandlineLog
import StrandlineSystem
import Testing

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
        "firstLSN", "predecessorID", "predecessorLastLSN", "predecessorEnd", "chain", "durableEnd", "reserved", "opens",
      ], count: LogFormat.openingBodyBytes)
    #expect(OpeningBody.decode(bytes, at: 0, count: bytes.count) == nil, "the reserved bytes must be zero")
    try fill(&bytes, openings, "reserved", with: 0)
    let opening = try #require(OpeningBody.decode(bytes, at: 0, count: bytes.count))
    #expect(opening.firstLSN == 0x0101_0101_0101_0101)
    #expect(opening.predecessorID == 0x0202_0202_0202_0202)
    #expect(opening.predecessorLastLSN == 0x0303_0303_0303_0303)
    #expect(opening.predecessorEnd == 0x0404_0404)
    #expect(opening.chain == 0x0505_0505)
    #expect(opening.durableEnd == 0x0606_0606)
    #expect(opening.opens == 0x0808_0808_0808_0808)
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
    let magic = LogFormat.magic.map { hex([$0]).uppercased() }.joined(separator: " ")
    let polynomial = "0x1EDC6F41"
    // The polynomial that is stated must be the one of the code: the check value is computed with it, bit by bit.
    #expect(castagnoli(Array("123456789".utf8), polynomial: 0x1EDC_6F41) == CRC32C.checksum(Array("123456789".utf8)))
    for words in [
      magic, polynomial, "**0x\(String(CRC32C.checksum(Array("123456789".utf8)), radix: 16).uppercased())**",
      "(major \(LogFormat.major), minor \(LogFormat.minor))", "\(LogFormat.headerBytes) bytes, synced",
      "0..<\(LogFormat.Header.crc)", "(\(LogFormat.headerPageBytes) bytes, so",
      "\(LogFormat.frameHeaderBytes) bytes of header, the body, zeros up to the next multiple of "
        + "\(LogFormat.frameAlignment)",
      "\(LogFormat.openingBodyBytes) bytes, so the frame has \(LogFormat.openingFrameBytes) and ends at "
        + "\(LogFormat.headerPageBytes + LogFormat.openingFrameBytes)",
      "A body of \(LogFormat.markerBodyBytes) bytes, a frame of \(LogFormat.markerFrameBytes)",
      "(\(LogFormat.chainStepBytes) bytes)", "Types from \(LogFormat.skippableTypes) on",
      "`\(String(decoding: LogRole.store.bytes, as: UTF8.self))`: a store's log",
      "`\(String(decoding: LogRole.server.bytes, as: UTF8.self))`: the local server's journal",
      "\(SyncStrength.ordered.rawValue) ordered, \(SyncStrength.durable.rawValue) durable",
      "`\(LogFormat.lockName)`", "`<16 hex digits>\(LogFormat.segmentSuffix)`",
      "`<16 hex digits>\(LogFormat.temporarySuffix)`", "`<store>\(LogFormat.initInfix)<16 random hex digits>`",
      "(\(LogOptions().segmentBytesMax >> 20) MiB by default",
      "(\(LogOptions().preallocationFirstStepBytes >> 20) MiB at first",
    ] { #expect(text.contains(words), "log.md does not say: \(words)") }
    #expect(LogOptions().idleMarkerMilliseconds == 200 && text.contains("(200 ms after the last acknowledgement"))
    #expect((LogFormat.flagFirst, LogFormat.flagLast) == (1, 2))
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

  @Test func `shows every byte of its example`() throws {
    let golden = try Repository.bytes("Formats/vectors/three-events/0000000000000001.seg")
    let rows = try Self.page().hexRows("three-events/0000000000000001.seg")
    var next = 0
    for (offset, bytes) in rows {
      if next == LogFormat.headerBytes {
        #expect(offset == LogFormat.headerPageBytes)
        #expect(golden[next..<offset].allSatisfy { $0 == 0 })
        next = offset
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
    #expect(text.contains("`\(digits(CRC32C.checksum(golden, 4128..<4176)))`"))
  }
}
