// Looking up in a table that is never read whole: opening reads one page, a lookup a few blocks.
//
// Keys are hashes, so an entry lies about where its key stands between 0 and 2^128. A lookup guesses by that a few
// times, and from then on takes the middle every other time, so that keys that are not spread evenly cost twice a
// binary search and never more. Hence there is no index in the file: it would have to be read too, and checked.
// Blocks that were read and verified are kept, a few; one that comes back is verified again.

package import StrandlineSystem
import Synchronization

/// What a whole table was found to be.
package struct TableVerification: Hashable, Sendable {
  package var entries: UInt64 = 0
  package var blocks: UInt64 = 0
  /// Bytes read.
  package var bytes: UInt64 = 0
}

/// An open table. Safe to use from every thread.
package final class TableReader: Sendable {
  package let path: String
  package let header: TableHeader
  private let file: any File
  private let cacheMax: Int
  /// Blocks that verify, least recently used first.
  private let cache = Mutex<[(number: UInt32, block: TableBlock)]>([])

  private init(path: String, header: TableHeader, file: any File, cacheMax: Int) {
    self.path = path
    self.header = header
    self.file = file
    self.cacheMax = cacheMax
  }

  deinit { file.close() }

  /// Opens the table at `path`: its header is read and its size looked at.
  ///
  /// - Parameters:
  ///   - storeUUID: the store that it must be of; nil for any.
  ///   - kind: what its entries must be; nil for anything.
  ///   - cachedBlocks: how many blocks of 16 KiB may be kept in memory.
  /// - Throws: `.absent`, `.damaged`, `.fromTheFuture`, `.foreignSegment` if it is of another store or kind, `.io`.
  /// - Complexity: O(1).
  package static func open(
    at path: String, storeUUID: [UInt8]? = nil, kind: UInt32? = nil, cachedBlocks: Int = 16,
    fileSystem: any FileSystem
  ) throws(LogError) -> TableReader {
    let file: any File
    do {
      file = try fileSystem.open(path, .read)
    } catch  where error.isAbsent {
      throw LogError(.absent, "there is no table '\(path)'", file: path, underlying: error)
    } catch {
      throw .system("cannot open table '\(path)'", error, file: path)
    }
    do throws(LogError) {
      let header = try readHeader(file, path).header
      if let storeUUID, storeUUID != header.storeUUID {
        throw foreign(path, TableFormat.Header.storeUUID, "is of another store")
      }
      if let kind, kind != header.kind {
        throw foreign(path, TableFormat.Header.kind, "is of kind \(header.kind) where kind \(kind) belongs")
      }
      return TableReader(path: path, header: header, file: file, cacheMax: max(1, cachedBlocks))
    } catch {
      file.close()
      throw error
    }
  }

  private static func foreign(_ path: String, _ offset: Int, _ what: String) -> LogError {
    LogError(
      .foreignSegment, "table '\(path)' \(what); \(LogError.innocentCauses)", file: path, offset: UInt64(offset))
  }

  private static func readHeader(
    _ file: any File, _ path: String
  ) throws(LogError) -> (header: TableHeader, page: [UInt8]) {
    let page: [UInt8]
    let size: UInt64
    do {
      page = try file.read(at: 0, count: TableFormat.headerPageBytes)
      size = try file.size()
    } catch {
      throw .system("cannot read table '\(path)'", error, file: path)
    }
    let header = try TableHeader.decode(page, file: path)
    guard size == header.fileBytes else {
      throw .damaged(
        path, at: min(size, header.fileBytes)..<max(size, header.fileBytes), lsns: nil,
        "the table has \(size) bytes and its header says \(header.fileBytes)")
    }
    return (header, page)
  }

  /// The entry with this key, its key included; nil if the table has none.
  ///
  /// - Throws: `.damaged` if a block on the way does not verify, `.io`.
  /// - Complexity: about two blocks of I/O for keys that are spread evenly, O(log blocks) for any.
  package func lookup(_ key: TableKey) throws(LogError) -> [UInt8]? {
    // The blocks that may have it, and the keys that are known to lie at or outside their ends.
    var low: UInt64 = 0
    var high = header.blockCount
    var lowKey: UInt64 = 0
    var highKey = UInt64.max
    var probes = 0
    while low < high {
      let isGuess = probes < Self.guesses || probes % 2 == 1
      probes += 1
      let number = isGuess ? Self.guess(key.high, lowKey, highKey, low, high) : low + (high - low) / 2
      let block = try block(UInt32(number))
      if key < block.key(0) {
        high = number
        highKey = block.key(0).high
      } else if key > block.key(block.count - 1) {
        low = number + 1
        lowKey = block.key(block.count - 1).high
      } else {
        return block.entry(key)
      }
    }
    return nil
  }

  /// How many probes of a lookup trust that keys are spread evenly before it doubts.
  private static let guesses = 4

  /// The block of `low..<high` where `key` would lie if keys were spread evenly.
  private static func guess(
    _ key: UInt64, _ lowKey: UInt64, _ highKey: UInt64, _ low: UInt64, _ high: UInt64
  ) -> UInt64 {
    guard lowKey <= key, key <= highKey, lowKey < highKey else { return low + (high - low) / 2 }
    let share = Double(key - lowKey) / Double(highKey - lowKey)
    return min(high - 1, low + UInt64(share * Double(high - low)))
  }

  /// All entries, in the order of their keys. `visit` gets bytes and where in them the entry begins.
  ///
  /// A block is verified before its entries are handed out; what was handed out before an error is as it was written.
  ///
  /// - Throws: `.damaged`, `.io`, or what `visit` throws.
  /// - Complexity: O(entries); memory for a quarter of a MiB.
  package func scan(_ visit: (_ bytes: [UInt8], _ start: Int) throws -> Void) throws {
    var last: TableKey?
    var crc: UInt32 = 0
    try eachBlock(total: &crc) { block, offset in
      try check(block, after: &last, offset)
      for index in 0..<block.count { try visit(block.bytes, block.start(index)) }
    }
  }

  /// Reads every byte, and checks what lookups do not need: the order of all keys, zeros, the total checksum.
  ///
  /// - Throws: `.damaged` with the first place that is not as it was written, `.fromTheFuture`, `.io`.
  /// - Complexity: O(bytes).
  package func verify() throws -> TableVerification {
    let (again, page) = try Self.readHeader(file, path)
    guard again == header else {
      throw damaged(0, UInt64(TableFormat.headerBytes), "the header is another than when it was opened")
    }
    if let last = page.lastNonZero(in: TableFormat.headerBytes..<page.count) {
      throw damaged(UInt64(last), UInt64(page.count), "the rest of the header's page is not zero")
    }
    var last: TableKey?
    var crc: UInt32 = 0
    var result = TableVerification()
    try eachBlock(total: &crc) { block, offset in
      try check(block, after: &last, offset)
      guard block.bytes.isZero(in: block.rest) else {
        throw damaged(offset, offset + UInt64(TableFormat.blockBytes), "bytes behind a block's entries are not zero")
      }
      result.entries += UInt64(block.count)
      result.blocks += 1
    }
    let footer = try read(header.footerOffset, TableFormat.footerBytes)
    typealias Field = TableFormat.Footer
    guard footer.u32(at: Field.crc) == header.identity.footerCRC(footer, at: 0),
      footer.isZero(in: Field.reserved..<Field.crc)
    else { throw damaged(header.footerOffset, header.fileBytes, "the checksum of the table's footer does not match") }
    guard footer.u32(at: Field.totalCRC) == CRC32C.checksum(page, continuing: crc) else {
      throw damaged(0, header.footerOffset, "the checksum of the whole table does not match")
    }
    result.bytes = header.fileBytes
    return result
  }

  // MARK: Blocks

  /// The keys of a block rise, from those of the block before on.
  private func check(_ block: TableBlock, after last: inout TableKey?, _ offset: UInt64) throws(LogError) {
    for index in 0..<block.count {
      let key = block.key(index)
      if let last, key <= last {
        throw damaged(offset, offset + UInt64(TableFormat.blockBytes), "the keys of a block are not in order")
      }
      last = key
    }
  }

  /// Every block in order, verified, past the cache.
  private func eachBlock(
    total: inout UInt32, _ body: (_ block: TableBlock, _ offset: UInt64) throws -> Void
  ) throws {
    var number: UInt64 = 0
    while number < header.blockCount {
      let count = Int(min(UInt64(TableFormat.blocksAtOnce), header.blockCount - number))
      let bytes = try read(header.offset(ofBlock: UInt32(number)), count * TableFormat.blockBytes)
      total = CRC32C.checksum(bytes, continuing: total)
      for index in 0..<count {
        let place = UInt32(number) + UInt32(index)
        try body(
          try decode(bytes, at: index * TableFormat.blockBytes, place), header.offset(ofBlock: place))
      }
      number += UInt64(count)
    }
  }

  /// A block that verifies: from the cache, or read.
  private func block(_ number: UInt32) throws(LogError) -> TableBlock {
    let kept = cache.withLock { blocks -> TableBlock? in
      guard let index = blocks.firstIndex(where: { $0.number == number }) else { return nil }
      let found = blocks.remove(at: index)
      blocks.append(found)
      return found.block
    }
    if let kept { return kept }
    let block = try decode(try read(header.offset(ofBlock: number), TableFormat.blockBytes), at: 0, number)
    cache.withLock { blocks in
      // Another thread may have read it meanwhile.
      if blocks.contains(where: { $0.number == number }) { return }
      if blocks.count == cacheMax { blocks.removeFirst() }
      blocks.append((number, block))
    }
    return block
  }

  private func decode(_ bytes: [UInt8], at start: Int, _ number: UInt32) throws(LogError) -> TableBlock {
    do {
      return try TableBlock(bytes, at: start, number: number, of: header)
    } catch {
      let offset = header.offset(ofBlock: number)
      throw damaged(offset, offset + UInt64(TableFormat.blockBytes), error.words)
    }
  }

  /// Exactly `count` bytes, which the file had when it was opened.
  private func read(_ offset: UInt64, _ count: Int) throws(LogError) -> [UInt8] {
    let bytes: [UInt8]
    do {
      bytes = try file.read(at: offset, count: count)
    } catch {
      throw .system("cannot read table '\(path)'", error, file: path)
    }
    guard bytes.count == count else {
      throw damaged(offset + UInt64(bytes.count), offset + UInt64(count), "the file has become shorter")
    }
    return bytes
  }

  private func damaged(_ begin: UInt64, _ end: UInt64, _ what: String) -> LogError {
    .damaged(path, at: begin..<end, lsns: nil, what)
  }
}
