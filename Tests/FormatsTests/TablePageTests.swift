// Formats/table.md against the code: places, sizes, the words in its text; and its example, a golden table that the code
// makes today, that the page shows byte for byte, and that a decoder in another language reads the same.

import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct `The page of the table` {
  private static let folder = "Formats/vectors/table"
  private static let file = "example.table"
  private static let about =
    "The worked example of table.md: three entries of 32 bytes in one block.\n"
    + "Everything random has a value that a person can recognise.\n"

  private static func page() throws -> Page { try Page("table.md") }

  private static func make() throws -> [UInt8] {
    let disk = SimulatedDisk()
    try disk.makeDirectory("/golden")
    let header = TableHeader(
      storeUUID: [UInt8](0..<16), fileID: 7, salt: 0x5341_4C54, kind: 1, entryBytes: 32, boundLSN: 3,
      boundChain: 0x25E2_C60B, hashKey: [UInt8](0xA0...0xAF), payload: Array("owner".utf8),
      createdNanoseconds: 1_780_000_000_000_000_000)
    let writer = try TableWriter(in: "/golden", name: file, header: header, fileSystem: disk)
    for number: UInt8 in [0x11, 0x77, 0xEE] {
      try writer.append([UInt8](repeating: number, count: 16) + [UInt8](repeating: number & 0x0F, count: 16))
    }
    try writer.finish()
    return try #require(disk.peek("/golden/\(file)"))
  }

  private static func dump(_ path: String, on disk: any FileSystem) throws -> [String] {
    let table = try TableReader.open(at: path, fileSystem: disk)
    let header = table.header
    var lines = [
      JSON.object([
        "table": .text("\(TableFormat.major).\(header.minor)"), "storeUUID": .hexed(header.storeUUID),
        "fileID": .uint(header.fileID), "salt": .uint(UInt64(header.salt)), "kind": .uint(UInt64(header.kind)),
        "entryBytes": .count(header.entryBytes), "entryCount": .uint(header.entryCount),
        "blockCount": .uint(header.blockCount), "boundLSN": .uint(header.boundLSN),
        "boundChain": .uint(UInt64(header.boundChain)), "hashKey": .hexed(header.hashKey),
        "payload": .hexed(header.payload), "createdNanoseconds": .uint(header.createdNanoseconds),
      ]).line
    ]
    try table.scan { bytes, start in
      lines.append(
        JSON.object([
          "key": .hexed(bytes[start..<start + TableFormat.keyBytes]),
          "value": .hexed(bytes[start + TableFormat.keyBytes..<start + header.entryBytes]),
        ]).line)
    }
    lines.append(JSON.object(["verdict": .text("sound"), "entries": .uint(try table.verify().entries)]).line)
    return lines
  }

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

  @Test func `places every field where the code does`() throws {
    typealias Field = TableFormat.Header
    try check(
      try Self.page().table("Header", "offset", "bytes", "name"),
      [
        ("magic", Field.magic), ("major", Field.major), ("minor", Field.minor), ("headerLength", Field.headerLength),
        ("incompatibleBits", Field.incompatibleBits), ("readOnlyCompatibleBits", Field.readOnlyCompatibleBits),
        ("compatibleBits", Field.compatibleBits), ("storeUUID", Field.storeUUID), ("fileID", Field.fileID),
        ("salt", Field.salt), ("kind", Field.kind), ("entryBytes", Field.entryBytes),
        ("blockBytes", Field.blockBytes), ("entryCount", Field.entryCount), ("blockCount", Field.blockCount),
        ("boundLSN", Field.boundLSN), ("boundChain", Field.boundChain), ("payloadLength", Field.payloadLength),
        ("hashKey", Field.hashKey), ("createdNanoseconds", Field.createdNanoseconds), ("payload", Field.payload),
        ("reserved", Field.reserved), ("crc", Field.crc),
      ], end: TableFormat.headerBytes)
    #expect(Field.payload + TableFormat.payloadBytesMax == Field.reserved)
    try check(
      try Self.page().table("Block", "offset", "bytes", "name"),
      [
        ("crc", TableFormat.Block.crc), ("blockNumber", TableFormat.Block.blockNumber),
        ("entryCount", TableFormat.Block.entryCount), ("reserved", TableFormat.Block.reserved),
      ], end: TableFormat.blockHeaderBytes)
    try check(
      try Self.page().table("Footer", "offset", "bytes", "name"),
      [
        ("totalCRC", TableFormat.Footer.totalCRC), ("reserved", TableFormat.Footer.reserved),
        ("crc", TableFormat.Footer.crc),
      ], end: TableFormat.footerBytes)
  }

  @Test func `says the constants that stand in its text`() throws {
    let text = try Self.page().sentences
    let magic = TableFormat.magic.map { hex([$0]).uppercased() }.joined(separator: " ")
    for words in [
      magic, "(major \(TableFormat.major), minor \(TableFormat.minor))", "\(TableFormat.headerBytes) bytes in a page",
      "page of \(TableFormat.headerPageBytes)",
      "\(TableFormat.entryBytes.lowerBound) to \(TableFormat.entryBytes.upperBound)",
      "\(TableFormat.blockBytes) bytes", "at most \(TableFormat.payloadBytesMax)",
      "bytes 4..<\(TableFormat.blockBytes)",
      "(\(TableFormat.blockBytes) - \(TableFormat.blockHeaderBytes)) / entryBytes",
      "\(TableFormat.headerPageBytes) + blockCount · \(TableFormat.blockBytes) + \(TableFormat.footerBytes)",
      "0..<\(TableFormat.Header.crc)", "`<name>\(LogFormat.temporarySuffix)`", "at most \(TableFormat.blocksMax)",
    ] { #expect(text.contains(words), "table.md does not say: \(words)") }
  }

  @Test func `has the golden table that the code makes today`() throws {
    let bytes = try Self.make()
    if ProcessEnvironment.value(of: "STRANDLINE_WRITE_VECTORS") == "1" {
      try Repository.write(bytes, "\(Self.folder)/\(Self.file)")
      try Repository.write(Array(Self.about.utf8), "\(Self.folder)/about.txt")
      let lines = try Self.dump(Repository.path("\(Self.folder)/\(Self.file)"), on: Repository.disk)
      try Repository.write(Array((lines.joined(separator: "\n") + "\n").utf8), "\(Self.folder)/dump.jsonl")
    }
    #expect(try Repository.names(Self.folder) == ["about.txt", "dump.jsonl", Self.file])
    #expect(try Repository.bytes("\(Self.folder)/\(Self.file)") == bytes)
    #expect(try Repository.text("\(Self.folder)/about.txt") == Self.about)
    let lines = try Self.dump(Repository.path("\(Self.folder)/\(Self.file)"), on: Repository.disk)
    #expect(try Repository.text("\(Self.folder)/dump.jsonl").split(separator: "\n").map(String.init) == lines)
  }

  @Test func `shows every byte of its example that is not zero`() throws {
    let golden = try Repository.bytes("\(Self.folder)/\(Self.file)")
    var next = 0
    for (offset, bytes) in try Self.page().hexRows("table/\(Self.file)") {
      #expect(offset >= next && golden[next..<offset].allSatisfy { $0 == 0 }, "before \(String(offset, radix: 16))")
      guard offset + bytes.count <= golden.count else { throw PageError("the example is longer than its file") }
      #expect(Array(golden[offset..<offset + bytes.count]) == bytes, "at \(String(offset, radix: 16))")
      next = offset + bytes.count
    }
    #expect(next == golden.count)
    let text = try Self.page().sentences
    let header = try TableHeader.decode(golden, file: "example")
    let digits = String(header.identity.seed, radix: 16)
    #expect(text.contains("= `0x\(String(repeating: "0", count: 8 - digits.count) + digits)`"))
    #expect(header.encoded() == Array(golden[..<TableFormat.headerPageBytes]))
  }

  @Test func `is enough for a decoder in another language`() throws {
    let python = try Repository.python()
    let folder = try TemporaryFolder()
    let golden = try Repository.bytes("\(Self.folder)/\(Self.file)")
    func decoded(_ bytes: [UInt8], _ name: String) throws -> String {
      let file = try Repository.disk.open(folder(name), .create)
      defer { file.close() }
      try file.write(bytes, at: 0)
      let child = try ChildProcess(
        python, ["-B", Repository.path("Tests/FormatsTests/decoder.py"), "--table", folder(name)], input: .null,
        output: .pipe)
      let text = String(decoding: try #require(child.output).readAll(), as: UTF8.self)
      #expect(try child.wait() == .exited(0))
      return text
    }
    #expect(try decoded(golden, "golden") == (try Repository.text("\(Self.folder)/dump.jsonl")))
    // One place in each part of the file, and one byte less.
    for place in [4, 60, 300, 511, 1000, 4100, 4112, 4500, 20480, 20495] {
      var changed = golden
      changed[place] ^= 0x10
      #expect(try decoded(changed, "changed-\(place)") == "{\"verdict\":\"damaged\"}\n", "\(place)")
    }
    #expect(try decoded(Array(golden.dropLast()), "cut") == "{\"verdict\":\"damaged\"}\n")
  }
}
