// The table file: every entry comes back, no damaged byte is ever taken for an entry, and a name stands for a whole
// table or for none. The oracle is a dictionary.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

private let folder = "/tables"
private let name = "t"
private let path = "/tables/t"
private let uuid = [UInt8](0..<16)

private func header(entryBytes: Int = 32, payload: [UInt8] = [], fileID: UInt64 = 7, salt: UInt32 = 0x53414C54)
  -> TableHeader
{
  TableHeader(
    storeUUID: uuid, fileID: fileID, salt: salt, kind: 3, entryBytes: entryBytes, boundLSN: 41,
    boundChain: 0xC0FFEE, hashKey: [UInt8](100..<116), payload: payload, createdNanoseconds: 5)
}

private func emptyDisk() throws -> SimulatedDisk {
  let disk = SimulatedDisk()
  try disk.makeDirectory(folder)
  try disk.syncDirectory("/")
  return disk
}

@discardableResult
private func write(_ entries: [[UInt8]], _ header: TableHeader, on disk: any FileSystem) throws -> TableHeader {
  let writer = try TableWriter(in: folder, name: name, header: header, fileSystem: disk)
  for entry in entries { try writer.append(entry) }
  return try writer.finish()
}

/// Entries in order whose bytes all follow from the seed.
private func entries(_ count: Int, entryBytes: Int, _ random: any RandomSource, spread: Bool = true) -> [[UInt8]] {
  var keys: Set<TableKey> = []
  while keys.count < count {
    // Not spread: all in one corner, and in bunches there.
    let high = spread ? random.next() : 0x7777_0000_0000_0000 | (random.below(4) << (random.below(4) * 12))
    keys.insert(TableKey(high: high, low: random.next()))
  }
  return keys.sorted().map { $0.bytes + random.bytes(entryBytes - 16) }
}

private func scanned(_ table: TableReader) throws -> [[UInt8]] {
  var found: [[UInt8]] = []
  try table.scan { bytes, start in found.append(Array(bytes[start..<start + table.header.entryBytes])) }
  return found
}

/// A disk of one file that can be read and nothing else: quick enough for a hundred thousand variants.
private final class OneFile: FileSystem, File {
  let path: String
  let bytes: [UInt8]
  /// The byte that is read with `bits` changed.
  private let place = Atomic<Int>(0)
  private let bits = Atomic<UInt8>(0)

  init(_ bytes: [UInt8]) {
    path = "/tables/t"
    self.bytes = bytes
  }

  /// From now on this bit is read wrong, and no other.
  func flip(_ place: Int, _ bit: Int?) {
    self.place.store(place, ordering: .relaxed)
    bits.store(bit.map { 1 << UInt8($0) } ?? 0, ordering: .relaxed)
  }

  func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File { self }
  func size() throws(SystemError) -> UInt64 { UInt64(bytes.count) }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    guard offset < UInt64(bytes.count) else { return [] }
    let range = Int(offset)..<min(bytes.count, Int(offset) + count)
    var result = Array(bytes[range])
    let place = place.load(ordering: .relaxed)
    if range.contains(place) { result[place - range.lowerBound] ^= bits.load(ordering: .relaxed) }
    return result
  }
  func close() {}

  func kind(of path: String) throws(SystemError) -> PathKind { .file }
  func list(_ directory: String) throws(SystemError) -> [String] { throw .closed("opendir", directory) }
  func makeDirectory(_ path: String) throws(SystemError) { throw .closed("mkdir", path) }
  func rename(_ path: String, to newPath: String) throws(SystemError) { throw .closed("rename", path) }
  func unlink(_ path: String) throws(SystemError) { throw .closed("unlink", path) }
  func removeDirectory(_ path: String) throws(SystemError) { throw .closed("rmdir", path) }
  func syncDirectory(_ path: String) throws(SystemError) { throw .closed("fsync", path) }
  func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? { nil }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    throw .closed("pwrite", path)
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) { throw .closed("fallocate", path) }
  func truncate(to size: UInt64) throws(SystemError) { throw .closed("ftruncate", path) }
  func sync(_ strength: SyncStrength) throws(SystemError) { throw .closed("fsync", path) }
}

/// What a lookup, a scan and a verification make of a file that may be damaged.
private struct Verdict {
  var wrong: [String] = []
  var refused: LogError.Code?

  /// - Parameters:
  ///   - wanted: some entries that the table has.
  ///   - absent: a key that it has not.
  ///   - scans: all its entries, if a scan should be tried.
  init(
    _ disk: any FileSystem, wanted: [[UInt8]], absent: TableKey? = nil, scans: [[UInt8]]? = nil
  ) {
    func refuse(_ error: any Error) {
      guard let error = error as? LogError, [.damaged, .fromTheFuture].contains(error.code), error.file == path,
        error.offset != nil
      else {
        wrong.append("\(error)")
        return
      }
      refused = error.code
    }
    do {
      let table = try TableReader.open(at: path, cachedBlocks: 1, fileSystem: disk)
      for entry in wanted {
        do {
          if try table.lookup(TableKey(entry)) != entry { wrong.append("a lookup went wrong") }
        } catch { refuse(error) }
      }
      if let absent {
        do {
          if try table.lookup(absent) != nil { wrong.append("an entry that nobody wrote") }
        } catch { refuse(error) }
      }
      if let scans {
        do {
          if try scanned(table) != scans { wrong.append("a scan went wrong") }
        } catch { refuse(error) }
      }
      do {
        _ = try table.verify()
      } catch {
        refuse(error)
        return
      }
      if refused != nil { wrong.append("verify finds nothing where a lookup does") }
    } catch { refuse(error) }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A table file` {
  static let perBlock = TableFormat.entriesPerBlock(entryBytes: 100)

  @Test(
    arguments: [0, 1, perBlock - 1, perBlock, perBlock + 1, 16 * perBlock, 33 * perBlock + 5], [16, 32, 100, 1024])
  func `returns what was written`(count: Int, entryBytes: Int) throws {
    let random = SeededRandom(seed: UInt64(count * 2000 + entryBytes))
    let disk = try emptyDisk()
    let written = entries(count, entryBytes: entryBytes, random)
    let made = try write(written, header(entryBytes: entryBytes, payload: random.bytes(count % 257)), on: disk)
    #expect(disk.paths == [path])
    let table = try TableReader.open(at: path, storeUUID: uuid, kind: 3, fileSystem: disk)
    #expect(table.header == made)
    #expect(table.header.entryCount == UInt64(count))
    #expect(try disk.kind(of: path) == .file)
    #expect(UInt64(disk.peek(path)?.count ?? 0) == made.fileBytes)
    #expect(try scanned(table) == written)
    let verified = try table.verify()
    #expect(verified.entries == UInt64(count) && verified.blocks == made.blockCount)
    for entry in written.prefix(300) + written.suffix(300) { #expect(try table.lookup(TableKey(entry)) == entry) }
  }

  @Test(arguments: [1, 2, 3, 4, 5, 6] as [UInt64], [true, false])
  func `finds what a dictionary finds`(seed: UInt64, spread: Bool) throws {
    let random = SeededRandom(seed: seed)
    let disk = try emptyDisk()
    let count = Int(random.below(4000))
    let width = 16 + Int(random.below(80))
    let written = entries(count, entryBytes: width, random, spread: spread)
    let oracle = Dictionary(uniqueKeysWithValues: written.map { (TableKey($0), $0) })
    try write(written, header(entryBytes: width), on: disk)
    let table = try TableReader.open(at: path, cachedBlocks: 1 + Int(random.below(4)), fileSystem: disk)
    for _ in 0..<2000 {
      var key = TableKey(high: random.next(), low: random.next())
      if count > 0, random.below(4) > 0 {
        key = TableKey(written[Int(random.below(UInt64(count)))])
        // The nearest keys on both sides of one that is there are not, as a rule.
        key.low = key.low &+ random.below(3) &- 1
      }
      #expect(try table.lookup(key) == oracle[key], "\(random): \(key)")
    }
    for key in [TableKey(high: 0, low: 0), TableKey(high: .max, low: .max)] {
      #expect(try table.lookup(key) == oracle[key])
    }
  }

  @Test func `orders keys as their bytes are ordered`() {
    let random = SeededRandom(seed: 9)
    for _ in 0..<500 {
      var left = random.bytes(16)
      var right = random.bytes(16)
      let same = Int(random.below(17))
      left.replaceSubrange(0..<same, with: right[..<same])
      if random.below(8) == 0 { right = left }
      #expect((TableKey(left) < TableKey(right)) == left.lexicographicallyPrecedes(right))
      #expect((TableKey(left) == TableKey(right)) == (left == right))
      #expect(TableKey(left).bytes == left)
    }
  }

  // MARK: The writer

  @Test func `refuses keys that do not rise, and leaves nothing`() throws {
    let disk = try emptyDisk()
    let sorted = entries(600, entryBytes: 32, SeededRandom(seed: 3))
    for (first, second) in [(sorted[5], sorted[5]), (sorted[6], sorted[5])] {
      let writer = try TableWriter(in: folder, name: name, header: header(), fileSystem: disk)
      try writer.append(first)
      #expect(disk.paths == [path + ".tmp"])
      #expect(logError { try writer.append(second) }?.code == .rejected)
      #expect(disk.paths.isEmpty)
      #expect(logError { try writer.append(sorted[7]) }?.code == .closed)
      #expect(logError { _ = try writer.finish() }?.code == .closed)
      try writer.abandon()
    }
    // Equal keys on both sides of the end of a block, too.
    let writer = try TableWriter(in: folder, name: name, header: header(), fileSystem: disk)
    for entry in sorted.prefix(511) { try writer.append(entry) }
    #expect(writer.path == path && TableFormat.entriesPerBlock(entryBytes: 32) == 511)
    #expect(logError { try writer.append(sorted[510]) }?.code == .rejected)
    #expect(disk.paths.isEmpty)
  }

  @Test func `replaces what an earlier attempt left, and the table that has the name`() throws {
    let disk = try emptyDisk()
    disk.poke(path + ".tmp", [1, 2, 3])
    let old = entries(4, entryBytes: 32, SeededRandom(seed: 1))
    let new = entries(900, entryBytes: 32, SeededRandom(seed: 2))
    try write(old, header(), on: disk)
    let before = try TableReader.open(at: path, fileSystem: disk)
    try write(new, header(fileID: 8), on: disk)
    #expect(disk.paths == [path])
    #expect(try scanned(try TableReader.open(at: path, fileSystem: disk)) == new)
    // Who has the old one open keeps it.
    #expect(try scanned(before) == old)
    let writer = try TableWriter(in: folder, name: "u", header: header(), fileSystem: disk)
    try writer.abandon()
    #expect(disk.paths == [path])
  }

  @Test func `is whole or not there after a power cut at any call`() throws {
    let random = SeededRandom(seed: 21)
    let old = entries(3, entryBytes: 1024, random)
    // Two writes of blocks: seventeen blocks and a rest.
    let new = entries(15 * 17 + 1, entryBytes: 1024, random)
    var images = 0
    var named = (old: 0, new: 0, none: 0)
    for isReplacing in [false, true] {
      let disk = try emptyDisk()
      if isReplacing { try write(old, header(entryBytes: 1024), on: disk) }
      disk.keepsHistory = true
      try write(new, header(entryBytes: 1024, fileID: 8), on: disk)
      let states = disk.history + [disk.clone()]
      for (call, state) in states.enumerated() {
        let isDone = call == states.count - 1
        // A file has hundreds of sectors; every thirtieth single loss, and those of names and sizes, stand for all.
        let effects = state.unsyncedEffects()
        let losses = state.crashLosses().filter {
          guard case .allBut(let index) = $0, case .sector = effects[index].kind else { return true }
          return index % 30 == 0
        }
        let disks =
          [state.clone()] + losses.map { state.imageAfterCrash($0) }
          + (0..<10).map { _ in
            state.imageAfterCrash(using: random)
          }
        for image in disks {
          images += 1
          guard image.paths.contains(path) else {
            named.none += 1
            #expect(!isReplacing && !isDone, "before call \(call + 1)")
            continue
          }
          let table = try TableReader.open(at: path, fileSystem: image)
          let isNew = table.header.fileID == 8
          if isNew { named.new += 1 } else { named.old += 1 }
          #expect(isNew || (isReplacing && !isDone), "before call \(call + 1)")
          #expect(try scanned(table) == (isNew ? new : old), "before call \(call + 1)")
          _ = try table.verify()
        }
      }
    }
    #expect(images > 300 && named.old > 0 && named.new > 0 && named.none > 0, "\(images) \(named)")
  }

  @Test func `is not there when any call failed, or is whole`() throws {
    let written = entries(15 * 17 + 1, entryBytes: 1024, SeededRandom(seed: 22))
    let counting = FaultInjector(try emptyDisk())
    try write(written, header(entryBytes: 1024), on: counting)
    let calls = counting.totalCount
    #expect(calls >= 7)
    for ordinal in 1...calls {
      for moment in [DiskFault.Moment.before, .after, .afterBytes(700)] {
        let disk = try emptyDisk()
        disk.failedSyncLosesPages = true
        let faults = FaultInjector(disk)
        faults.plan(DiskFault([], ordinal: ordinal, moment: moment, error: .full("", "")))
        let error = logError { try write(written, header(entryBytes: 1024), on: faults) }
        let code = try #require(error?.code, "call \(ordinal)")
        #expect(error?.isFull == true)
        guard disk.paths.contains(path) else {
          #expect(code == .full, "call \(ordinal): \(code)")
          // Only a creation whose answer was lost leaves its temporary file.
          #expect(disk.paths.isEmpty || ordinal == 1, "call \(ordinal): \(disk.paths)")
          continue
        }
        #expect(code == .outcomeUnknown, "call \(ordinal): \(code)")
        _ = try TableReader.open(at: path, fileSystem: disk).verify()
        for loss in disk.crashLosses() {
          let image = disk.imageAfterCrash(loss)
          guard image.paths.contains(path) else { continue }
          #expect(try scanned(try TableReader.open(at: path, fileSystem: image)) == written)
        }
      }
    }
  }

  @Test func `leaves nothing on a full disk`() throws {
    let written = entries(40, entryBytes: 1024, SeededRandom(seed: 23))
    let size = Int(try write(written, header(entryBytes: 1024), on: try emptyDisk()).fileBytes)
    for capacity in stride(from: 0, to: size, by: 512) + [size - 1] {
      let disk = try emptyDisk()
      disk.capacity = capacity
      let error = logError { try write(written, header(entryBytes: 1024), on: disk) }
      #expect(error?.code == .full, "\(capacity)")
      #expect(disk.paths.isEmpty, "\(capacity)")
      disk.capacity = nil
      try write(written, header(entryBytes: 1024), on: disk)
      #expect(try scanned(try TableReader.open(at: path, fileSystem: disk)) == written)
    }
  }

  // MARK: Damage

  /// Two blocks; the second is not full.
  private static func small() throws -> (bytes: [UInt8], entries: [[UInt8]]) {
    let disk = try emptyDisk()
    let written = entries(17, entryBytes: 1024, SeededRandom(seed: 31))
    try write(written, header(entryBytes: 1024, payload: [1, 2, 3]), on: disk)
    return (try #require(disk.peek(path)), written)
  }

  @Test func `never returns wrong data for a changed bit of a block`() throws {
    let (bytes, written) = try Self.small()
    let first = TableFormat.headerPageBytes
    let absent = TableKey(high: TableKey(written[3]).high, low: TableKey(written[3]).low ^ 1)
    for (number, entry) in [written[3], written[16]].enumerated() {
      let start = first + number * TableFormat.blockBytes
      let disk = OneFile(bytes)
      // One reader for all: a block that does not verify is never kept.
      let table = try TableReader.open(at: path, fileSystem: disk)
      for place in start..<start + TableFormat.blockBytes {
        for bit in 0..<8 {
          disk.flip(place, bit)
          do {
            _ = try table.lookup(TableKey(entry))
            Issue.record("byte \(place), bit \(bit): nobody sees it")
            return
          } catch {
            guard error.code == .damaged, error.offset == UInt64(start), error.file == path else { throw error }
          }
        }
        guard place % 64 == 0 else { continue }
        let verdict = Verdict(disk, wanted: written, absent: absent, scans: written)
        #expect(verdict.wrong.isEmpty && verdict.refused == .damaged, "byte \(place)")
      }
      disk.flip(0, nil)
      #expect(try table.lookup(TableKey(entry)) == entry)
    }
  }

  @Test func `never returns wrong data for a changed bit of what is around the blocks`() throws {
    let (bytes, written) = try Self.small()
    let sound = Verdict(OneFile(bytes), wanted: written, scans: written)
    #expect(sound.wrong.isEmpty && sound.refused == nil)
    let footer = bytes.count - TableFormat.footerBytes
    for place in Array(0..<TableFormat.headerPageBytes) + Array(footer..<bytes.count) {
      // Behind the header the page is zero, and zeros are looked at by words: a bit of each byte is enough there.
      let isZeros = TableFormat.headerBytes..<TableFormat.headerPageBytes ~= place
      for bit in 0..<8 where !isZeros || bit == place % 8 {
        let disk = OneFile(bytes)
        disk.flip(place, bit)
        let verdict = Verdict(disk, wanted: [written[3], written[16]])
        guard verdict.wrong.isEmpty, verdict.refused != nil else {
          Issue.record("byte \(place), bit \(bit): \(verdict.wrong)")
          return
        }
      }
    }
  }

  @Test func `refuses every other length`() throws {
    let (bytes, written) = try Self.small()
    for length in bytes.indices {
      let error = logError { _ = try TableReader.open(at: path, fileSystem: OneFile(Array(bytes[..<length]))) }
      #expect(error?.code == .damaged && error?.offset == UInt64(length), "\(length): \(error?.message ?? "")")
    }
    for more in [1, 7, 16, 16384] {
      let longer = OneFile(bytes + [UInt8](repeating: 0, count: more))
      #expect(logError { _ = try TableReader.open(at: path, fileSystem: longer) }?.offset == UInt64(bytes.count))
    }
    // Shorter while it is open.
    let disk = SimulatedDisk()
    for length in stride(from: 0, to: bytes.count, by: 1000) {
      disk.poke(path, bytes)
      let table = try TableReader.open(at: path, fileSystem: disk)
      let file = try disk.open(path, .readWrite)
      try file.truncate(to: UInt64(length))
      #expect(logError { _ = try table.verify() }?.code == .damaged)
      for entry in written {
        do {
          #expect(try table.lookup(TableKey(entry)) == entry)
        } catch { #expect(error.code == .damaged) }
      }
    }
  }

  @Test func `takes nothing absurd for true, though its checksum is right`() throws {
    let (bytes, written) = try Self.small()
    typealias Field = TableFormat.Header
    let words: [UInt64] = [
      0, 1, 2, 15, 16, 17, 255, 256, 257, 1023, 1025, 4096, 16383, 16385, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 46,
      1 << 48, 1 << 62, 1 << 63, .max - 1, .max,
    ]
    var codes: Set<LogError.Code> = []
    var sound = 0
    let places =
      [Field.major, Field.minor] + Array(stride(from: Field.headerLength, to: Field.payload, by: 4))
      + [Field.payload, Field.payload + 3, Field.reserved - 8, Field.reserved, Field.crc - 8]
    for place in places {
      for word in words {
        for width in [2, 4, 8] where place + width <= Field.crc {
          var absurd = bytes
          for index in 0..<width { absurd[place + index] = UInt8(truncatingIfNeeded: word >> (8 * UInt64(index))) }
          absurd.patch(u32: CRC32C.checksum(absurd, 0..<Field.crc), at: Field.crc)
          // The footer's sum cannot know; what verify says of it is not the question here.
          let verdict = Verdict(OneFile(absurd), wanted: [written[3], written[16]])
          #expect(verdict.wrong.isEmpty, "\(word) in \(width) bytes at \(place): \(verdict.wrong)")
          if let code = verdict.refused { codes.insert(code) } else { sound += 1 }
        }
      }
    }
    #expect(codes == [.damaged, .fromTheFuture])
    #expect(sound > 0)
  }

  @Test func `holds blocks against the header, though their checksums are right`() throws {
    let (bytes, written) = try Self.small()
    let identity = header(entryBytes: 1024).identity
    let first = TableFormat.headerPageBytes
    func repaired(_ change: (inout [UInt8]) -> Void) -> [UInt8] {
      var result = bytes
      change(&result)
      var end = first
      for number in 0..<2 {
        result.patch(u32: identity.crc(result, blockAt: end, number: UInt32(number)), at: end)
        end += TableFormat.blockBytes
      }
      let crc = CRC32C.checksum(result, first..<end)
      result.patch(u32: CRC32C.checksum(result, 0..<first, continuing: crc), at: end)
      result.patch(u32: identity.footerCRC(result, at: end), at: end + TableFormat.Footer.crc)
      return result
    }
    #expect(repaired { _ in } == bytes)
    func refusal(_ change: (inout [UInt8]) -> Void) -> String {
      let table: TableReader
      do { table = try TableReader.open(at: path, fileSystem: OneFile(repaired(change))) } catch { return "open" }
      for entry in written { do { _ = try table.lookup(TableKey(entry)) } catch { continue } }
      return logError { _ = try table.verify() }?.message ?? "sound"
    }
    for count: UInt32 in [0, 14, 16, 1 << 31, .max] {
      #expect(refusal { $0.patch(u32: count, at: first + TableFormat.Block.entryCount) }.contains("entries where"))
    }
    #expect(refusal { $0.patch(u32: 1, at: first + TableFormat.Block.blockNumber) }.contains("another's number"))
    #expect(refusal { $0.patch(u32: 1, at: first + TableFormat.Block.reserved) }.contains("reserved"))
    #expect(refusal { $0[first + 16384 + 16 + 2 * 1024] = 1 }.contains("not zero"))
    #expect(refusal { $0[first - 1] = 1 }.contains("the rest of the header's page"))
    // Two entries change places.
    let order = refusal {
      for index in 0..<1024 { $0.swapAt(first + 16 + index, first + 16 + 5 * 1024 + index) }
    }
    #expect(order.contains("not in order"))
    // A key like the last of the block before.
    #expect(
      refusal { $0.replaceSubrange(first + 16384 + 16..<first + 16384 + 32, with: written[14][..<16]) }
        .contains("not in order"))
    // Two blocks change places, with the checksums that they were written with.
    var swapped = bytes
    for index in 0..<TableFormat.blockBytes { swapped.swapAt(first + index, first + TableFormat.blockBytes + index) }
    let verdict = Verdict(OneFile(swapped), wanted: written)
    #expect(verdict.wrong.isEmpty && verdict.refused == .damaged)
    // The total sum alone.
    var total = bytes
    let footer = total.count - TableFormat.footerBytes
    total[footer] ^= 1
    total.patch(u32: identity.footerCRC(total, at: footer), at: footer + TableFormat.Footer.crc)
    let message = logError { _ = try TableReader.open(at: path, fileSystem: OneFile(total)).verify() }?.message
    #expect(message?.contains("whole table") == true)
  }

  @Test func `says whose it is, and what is missing`() throws {
    let disk = SimulatedDisk()
    disk.poke(path, try Self.small().bytes)
    func code(_ body: () throws -> Void) -> LogError.Code? { logError(body)?.code }
    #expect(code { _ = try TableReader.open(at: path + "x", fileSystem: disk) } == .absent)
    #expect(code { _ = try TableReader.open(at: path, kind: 4, fileSystem: disk) } == .foreignSegment)
    #expect(
      code { _ = try TableReader.open(at: path, storeUUID: [UInt8](1..<17), fileSystem: disk) } == .foreignSegment)
    let faults = FaultInjector(disk)
    let table = try TableReader.open(at: path, storeUUID: uuid, kind: 3, fileSystem: faults)
    #expect(table.header.payload == [1, 2, 3])
    faults.plan(DiskFault([.read], isSticky: true, error: .device("", "")))
    #expect(code { _ = try table.lookup(TableKey(high: 0, low: 0)) } == .io)
    #expect(code { _ = try table.verify() } == .io)
    #expect(code { try table.scan { _, _ in } } == .io)
    #expect(code { _ = try TableReader.open(at: path, fileSystem: faults) } == .io)
  }

  // MARK: What it costs

  /// No read returns more than it is let, so the number of reads bounds the bytes.
  @Test func `reads one page to open, and a few blocks to look up`() throws {
    for (count, spread) in [(200, true), (30_000, true), (120_000, true), (30_000, false)] {
      let random = SeededRandom(seed: UInt64(count))
      let disk = try emptyDisk()
      let written = entries(count, entryBytes: 64, random, spread: spread)
      let made = try write(written, header(entryBytes: 64), on: disk)
      let faults = FaultInjector(disk)
      faults.shortReadBytes = TableFormat.headerPageBytes
      let table = try TableReader.open(at: path, cachedBlocks: 1, fileSystem: faults)
      #expect(faults.count(.read) == 1)
      faults.shortReadBytes = TableFormat.blockBytes
      let limit = 2 * (64 - made.blockCount.leadingZeroBitCount) + 4
      var total = 0
      for _ in 0..<300 {
        faults.resetCounts()
        let entry = written[Int(random.below(UInt64(count)))]
        #expect(try table.lookup(TableKey(entry)) == entry)
        #expect(faults.count(.read) <= limit, "\(made.blockCount) blocks")
        total += faults.count(.read)
      }
      if spread { #expect(total <= 300 * 5 / 2, "\(total) reads for 300 lookups in \(made.blockCount) blocks") }
    }
  }

  @Test func `keeps few blocks, and each of them once verified`() throws {
    let disk = try emptyDisk()
    let written = entries(15 * 8, entryBytes: 1024, SeededRandom(seed: 5))
    try write(written, header(entryBytes: 1024), on: disk)
    let faults = FaultInjector(disk)
    let roomy = try TableReader.open(at: path, cachedBlocks: 8, fileSystem: faults)
    for entry in written + written.reversed() { #expect(try roomy.lookup(TableKey(entry)) == entry) }
    #expect(faults.count(.read) == 1 + 8)
    let tight = try TableReader.open(at: path, cachedBlocks: 2, fileSystem: faults)
    for entry in written { #expect(try tight.lookup(TableKey(entry)) == entry) }
    // What is kept was sound when it was read; what comes back is looked at again.
    faults.resetCounts()
    var bytes = try #require(disk.peek(path))
    bytes[TableFormat.headerPageBytes + 100] ^= 1
    let file = try disk.open(path, .readWrite)
    try file.write(bytes, at: 0)
    #expect(try tight.lookup(TableKey(written[119])) == written[119])
    #expect(faults.count(.read) == 0)
    #expect(logError { _ = try tight.lookup(TableKey(written[0])) }?.offset == UInt64(TableFormat.headerPageBytes))
    #expect(try roomy.lookup(TableKey(written[0])) == written[0])
  }
}
