// Formats/runs.md against the code: offsets, sizes, magic, hash and checksum; its example against golden bytes; the golden
// runs against what the code makes today; and the decoder that was written from the page against the code's verdicts.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The page of sorted runs` {
  private static func page() throws -> Page { try Page("runs.md") }

  /// Names and places as the page has them, in order, without a gap up to `end`.
  private func check(_ heading: String, _ expected: [(String, Int)], end: Int, common: FieldLayout? = nil) throws {
    let table = try Self.page().table(heading, "offset", "bytes", "name")
    let layout = try FieldLayout(table, common: common)
    #expect(layout.places.map(\.name) == expected.map(\.0))
    #expect(layout.places.map(\.range.lowerBound) == expected.map(\.1))
    #expect(layout.places.map(\.range.upperBound) == expected.dropFirst().map(\.1) + [end])
  }

  @Test func `places fields where the code does`() throws {
    typealias Header = RunFormat.Header
    let common: [(String, Int)] = [
      ("magic", Header.magic), ("version", Header.version), ("reserved", Header.reserved),
      ("headerLength", Header.headerLength), ("incompatibleBits", Header.incompatibleBits),
      ("readOnlyCompatibleBits", Header.readOnlyCompatibleBits), ("storeUUID", Header.storeUUID),
    ]
    try check("Header", common, end: RunFormat.commonHeaderBytes)
    let layout = try FieldLayout(Self.page().table("Header", "offset", "bytes", "name"))
    try check(
      "Run header", common + [("runNumber", Header.runNumber), ("salt", Header.salt), ("crc", Header.crc)],
      end: RunFormat.runHeaderBytes, common: layout)
    typealias List = RunFormat.ListHeader
    try check(
      "List header",
      common + [
        ("nextRunNumber", List.nextRunNumber), ("runCount", List.runCount), ("bindingBytes", List.bindingBytes),
        ("crc", List.crc),
      ], end: RunFormat.listHeaderBytes, common: layout)
    typealias Block = RunFormat.BlockField
    try check(
      "Block", [("crc", Block.crc), ("length", Block.length), ("entryCount", Block.entryCount)],
      end: RunFormat.blockHeaderBytes)
    try check(
      "Index", [("offset", RunFormat.IndexField.offset), ("keyEnd", RunFormat.IndexField.keyEnd)],
      end: RunFormat.indexEntryBytes)
    typealias Footer = RunFormat.FooterField
    try check(
      "Footer",
      [
        ("crc", Footer.crc), ("tailCRC", Footer.tailCRC), ("blocksCRC", Footer.blocksCRC),
        ("entryCount", Footer.entryCount), ("tombstoneCount", Footer.tombstoneCount), ("blockCount", Footer.blockCount),
        ("indexOffset", Footer.indexOffset), ("filterOffset", Footer.filterOffset),
        ("propertiesOffset", Footer.propertiesOffset),
      ], end: RunFormat.footerBytes)
    typealias Entry = RunFormat.ListEntryField
    try check(
      "List entry",
      [
        ("runNumber", Entry.runNumber), ("fileBytes", Entry.fileBytes), ("footerCRC", Entry.footerCRC),
      ], end: RunFormat.listEntryBytes)
  }

  @Test func `says the constants that stand in its text`() throws {
    let text = try Self.page().sentences
    func spaced(_ bytes: [UInt8]) -> String { bytes.map { hex([$0]).uppercased() }.joined(separator: " ") }
    func digits(_ value: some BinaryInteger) -> String { "0x" + String(value, radix: 16).uppercased() }
    let block = RunFormat.blockBytesMax
    for words in [
      "**version \(RunFormat.version)**", "run \(spaced(RunFormat.runMagic)), list \(spaced(RunFormat.listMagic))",
      "**\(digits(CRC32C.checksum(Array("123456789".utf8))))**", "no bytes is **\(digits(XXH64.hash([])))**",
      "begin with the same \(RunFormat.commonHeaderBytes) bytes",
      "run \(RunFormat.runHeaderBytes), list \(RunFormat.listHeaderBytes)", "`\(RunFormat.listName)`",
      "`<16 hex digits>\(RunFormat.runSuffix)`",
      "`<16 hex digits>\(RunFormat.temporarySuffix)`, `\(RunFormat.listName)\(RunFormat.temporarySuffix)`",
      "A key has at most \(RunFormat.keyBytesMax) bytes, a value at most \(RunFormat.valueBytesMax) (2^26)",
      "above \(RunFormat.keyBytesMax) (shared, unshared) or \(RunFormat.valueBytesMax + 1) (value)",
      "one read of \(block / 1024) KiB at most", "A block has \(block) bytes at most",
      "or is below \(RunFormat.blockHeaderBytes)", "fewer than \(RunFormat.entryBytesMin) bytes for each",
      "for the entries 0, \(RunFormat.restartInterval), \(2 * RunFormat.restartInterval) and so on",
      "\(RunFormat.indexEntryBytes) bytes for each block, in order", "less than \(RunFormat.indexEntryBytes) bytes",
      "lines of \(RunFormat.filterLineBytes) bytes, \(RunFormat.filterBitsPerKey) bits for each key",
      "\(RunFormat.filterProbes) times: bit = bits >> 23", "* \(digits(RunFormat.filterFactor))",
      "The last \(RunFormat.footerBytes) bytes", "size - \(RunFormat.footerBytes)",
      "at most \(RunFormat.propertiesBytesMax) bytes of the owner", "above \(RunFormat.bindingBytesMax): *damage*",
      "indexOffset / \(RunFormat.entryBytesMin)", "\(RunFormat.listEntryBytes) bytes, in an order",
      "or below \(RunFormat.runHeaderBytes + RunFormat.footerBytes)",
    ] { #expect(text.contains(words), "runs.md does not say: \(words)") }
    #expect(RunFormat.restartBytes == 2 && text.contains("the restart points, a `u16` each"))
    #expect(RunFormat.numberMax == 1 << 62 && text.contains("stay below 2^62"))
    let types = try Self.page().table("Block", "type", "name", "meaning")
    #expect(try types.column("name") == ["shared", "unshared", "value", "key", "value"])
  }

  @Test func `shows bytes of its example, and recomputes what it says of them`() throws {
    let file = "0000000000000001.run"
    let golden = try Repository.bytes("\(RunVector.folder)/\(file)")
    var shown = 0
    for (offset, bytes) in try Self.page().hexRows("sorted-runs/\(file)") {
      guard offset + bytes.count <= golden.count else { throw PageError("the example is longer than its file") }
      #expect(Array(golden[offset..<offset + bytes.count]) == bytes, "at \(String(offset, radix: 16))")
      shown += bytes.count
    }
    #expect(shown == golden.count)
    let seed = CRC32C.checksum(golden, RunFormat.Header.storeUUID..<RunFormat.Header.crc)
    #expect(try Self.page().sentences.contains("The seed is `0x\(String(seed, radix: 16))`"))
  }
}

@Suite(.serialized, .timeLimit(.minutes(30)))
struct `Golden runs` {
  private static let isWriting = ProcessEnvironment.value(of: "STRANDLINE_WRITE_VECTORS") == "1"

  @Test func `are what the code makes today, and what it understands`() throws {
    let files = try RunVector.make()
    #expect(try RunVector.make() == files, "made twice, and not the same")
    let dump = { () throws -> String in
      let folder = RunFolder(try Repository.disk.folder(Repository.path(RunVector.folder)))
      return RunVector.dump(folder).map(\.line).joined(separator: "\n") + "\n"
    }
    if Self.isWriting {
      for (name, bytes) in files { try Repository.write(bytes, "\(RunVector.folder)/\(name)") }
      try Repository.write(Array(RunVector.about.utf8), "\(RunVector.folder)/about.txt")
      try Repository.write(Array(try dump().utf8), "\(RunVector.folder)/dump.jsonl")
    }
    #expect(try Repository.names(RunVector.folder) == (files.keys + ["about.txt", "dump.jsonl"]).sorted())
    for (name, bytes) in files { #expect(try Repository.bytes("\(RunVector.folder)/\(name)") == bytes, "\(name)") }
    #expect(try Repository.text("\(RunVector.folder)/about.txt") == RunVector.about)
    #expect(try Repository.text("\(RunVector.folder)/dump.jsonl") == dump())
    #expect(try dump().hasSuffix("\"verdict\":\"sound\"}\n"))
  }

  @Test func `are printed by the decoder as the code understands them`() throws {
    let text = try Decoder.output("runs.py", [hex(RunVector.storeUUID), Repository.path(RunVector.folder)])
    #expect(text == (try Repository.text("\(RunVector.folder)/dump.jsonl")))
  }
}

/// Folders of runs on the real disk, and the code's verdict on each, to be compared with the decoder's.
private struct JudgedRuns {
  private let folder: TemporaryFolder
  private var expected: [String] = []

  init() throws { folder = try TemporaryFolder() }

  mutating func add(_ name: String, _ files: [String: [UInt8]]) throws {
    let path = folder(name)
    try Repository.disk.makeDirectory(path)
    for (name, bytes) in files {
      let file = try Repository.disk.open("\(path)/\(name)", .create)
      defer { file.close() }
      try file.write(bytes, at: 0)
    }
    guard case .object(var members) = RunVector.verdict(RunFolder(try Repository.disk.folder(path))) else { return }
    members["folder"] = .text(name)
    expected.append(JSON.object(members).line)
  }

  /// Compares, and requires that each of `words` was a verdict, and "sound" several times.
  func compare(_ words: [String], soundMin: Int = 1) throws {
    let text = try Decoder.output("runs.py", ["--verdicts", hex(RunVector.storeUUID), folder.path])
    let found = text.split(separator: "\n").map(String.init)
    #expect(found.count == expected.count)
    let differences = zip(found.sorted(), expected.sorted()).filter { $0 != $1 }
    for (theirs, ours) in differences.prefix(3) {
      Issue.record("the page says \(theirs), the code \(ours); and \(differences.count) such differences in all")
    }
    #expect(found.count { $0.contains("\"verdict\":\"sound\"") } >= soundMin)
    for word in words { #expect(found.contains { $0.contains("\"verdict\":\"\(word)\"") }, "\(word) never came") }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A decoder written from the page of sorted runs` {
  @Test func `judges every cut and every changed byte as the code does`() throws {
    let files = try RunVector.files([RunVector.example, RunVector.small], properties: [1, 2])
    var judged = try JudgedRuns()
    try judged.add("undamaged", files)
    for (name, bytes) in files {
      for length in Campaign.places(bytes.indices, 0) {
        try judged.add("\(name)-cut-\(length)", files.merging([name: Array(bytes[..<length])]) { $1 })
      }
      for place in Campaign.places(bytes.indices, 3) {
        var changed = bytes
        changed[place] ^= UInt8(1 << (place % 8))
        try judged.add("\(name)-bit-\(place)", files.merging([name: changed]) { $1 })
      }
      try judged.add("\(name)-longer", files.merging([name: bytes + [0]]) { $1 })
      try judged.add("\(name)-missing", files.filter { $0.key != name })
    }
    try judged.add("mixed", files.merging(["0000000000000001.run": files["0000000000000002.run"] ?? []]) { $1 })
    // An older file under a listed name: it verifies, and is another one.
    let other = try RunVector.files([RunVector.example, RunVector.small], properties: [1, 3])
    try judged.add("other", files.merging(["0000000000000002.run": other["0000000000000002.run"] ?? []]) { $1 })
    try judged.compare(["damaged", "missing", "foreign", "absent"])
  }

  /// Bytes that no writer writes, under checksums that are right: in headers, blocks, index, filter and footer.
  @Test func `judges crafted bytes as the code does, which traps on none`() throws {
    let number = "0000000000000002.run"
    let files = try RunVector.files([RunVector.example, RunVector.small], properties: [1, 2])
    let (run, list) = (files[number] ?? [], files[RunFormat.listName] ?? [])
    let parts = CraftedRun(run, storeUUID: RunVector.storeUUID)
    var judged = try JudgedRuns()
    func add(_ name: String, _ run: [UInt8], crc: UInt32?) throws {
      var list = list
      if let crc {
        list.patch(u32: crc, at: RunFormat.listHeaderBytes + RunFormat.ListEntryField.footerCRC)
        list.patch(u32: CRC32C.checksum(list, 0..<list.count - 4), at: list.count - 4)
      }
      try judged.add(name, files.merging([number: run, RunFormat.listName: list]) { $1 })
    }
    // With a filter that knows every key too, so that a changed key can be told by its order alone.
    var open = run
    for place in parts.filter { open[place] = 0xFF }
    for (name, base, ranges) in [("run", run, parts.ranges), ("open", open, parts.blocks)] {
      for place in ranges.joined() {
        for value in [0, 1, 0x7F, 0x80, 0xFF, base[place] &+ 1, base[place] &- 1] as Set<UInt8> {
          var changed = base
          changed[place] = value
          let crc = parts.repair(&changed)
          try add("\(name)-\(place)-\(value)", changed, crc: crc)
        }
      }
    }
    for place in 0..<RunFormat.Header.crc {
      var changed = run
      changed[place] ^= 1
      changed.patch(u32: CRC32C.checksum(changed, 0..<RunFormat.Header.crc), at: RunFormat.Header.crc)
      try add("header-\(place)", changed, crc: nil)
    }
    for place in 0..<list.count - 4 where !(RunFormat.ListHeader.crc..<RunFormat.listHeaderBytes ~= place) {
      var changed = list
      changed[place] ^= 1
      changed.patch(u32: CRC32C.checksum(changed, 0..<RunFormat.ListHeader.crc), at: RunFormat.ListHeader.crc)
      changed.patch(u32: CRC32C.checksum(changed, 0..<changed.count - 4), at: changed.count - 4)
      try judged.add("list-\(place)", files.merging([RunFormat.listName: changed]) { $1 })
    }
    // Bytes of values, of the filter and of the properties may be anything.
    try judged.compare(["damaged", "foreign", "future"], soundMin: 200)
  }

  /// Several bytes at once, and every way of reading: an error, never a trap.
  @Test(arguments: Campaign.seeds(1...4, every: 2))
  func `has no part in look-ups, which trap on no crafted bytes either`(seed: UInt64) throws {
    let disk = SimulatedDisk()
    for (name, bytes) in try RunVector.make() { disk.poke("/runs/\(name)", bytes) }
    let folder = RunFolder(try disk.folder("/runs"))
    let list = try #require(try RunList.load(folder, storeUUID: RunVector.storeUUID))
    let random = SeededRandom(seed: seed)
    let entry = list.entries[Int(seed % 2)]
    let good = try #require(disk.peek(folder.run(entry.run.runNumber)))
    let parts = CraftedRun(good, storeUUID: RunVector.storeUUID)
    var keys = [[], [0xFF, 0xFF], [0x01]] + RunVector.example.map(\.key)
    for number in stride(from: 99, to: 301, by: 3) { keys.append(Array("note/\(number)".utf8)) }
    var refused = 0
    for _ in 0..<400 {
      var bytes = good
      for _ in 0...random.below(4) {
        let range = parts.ranges[Int(random.below(UInt64(parts.ranges.count)))]
        let place = range.lowerBound + Int(random.below(UInt64(range.count)))
        bytes[place] = [0, 1, 0x7F, 0x80, 0xFF, bytes[place] &+ 1, bytes[place] &- 1][Int(random.below(7))]
      }
      var identity = entry.run
      identity.footerCRC = parts.repair(&bytes)
      disk.poke(folder.run(identity.runNumber), bytes)
      do throws(RunError) {
        let run = try Run(folder, identity, storeUUID: RunVector.storeUUID, cache: BlockCache())
        for key in keys {
          do throws(RunError) {
            _ = try run.get(RunKey(key))
            var cursor = try run.cursor(from: key)
            for _ in 0..<3 where try cursor.advance() {}
          } catch { #expect(error.code == .damaged, "\(error)") }
        }
        try run.verify()
      } catch {
        #expect(error.code == .damaged, "\(random): \(error)")
        refused += 1
      }
    }
    #expect(refused > 100, "\(random): \(refused)")
  }
}
