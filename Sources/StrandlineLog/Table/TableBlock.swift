// A block of a table: 16 bytes of header, entries, zeros. This file alone knows its bytes.
//
// The checksum is seeded with the file's identity and the block's own number, so a block that lies anywhere but where
// it was written does not verify. It covers the whole block: the count and the zeros are believed after it, and held
// against what the file's header says all the same.
// Layout: Formats/table.md, "Block".

import StrandlineSystem

/// The first 16 bytes of an entry. Keys are ordered as their bytes are.
package struct TableKey: Hashable, Comparable, Sendable {
  /// The first eight bytes, the first of them highest.
  package var high: UInt64
  package var low: UInt64

  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// The key that begins at `start`.
  ///
  /// - Precondition: 16 bytes are there.
  package init(_ bytes: [UInt8], at start: Int = 0) {
    high = bytes.u64(at: start).byteSwapped
    low = bytes.u64(at: start + 8).byteSwapped
  }

  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: TableFormat.keyBytes)
    writer.u64(high.byteSwapped)
    writer.u64(low.byteSwapped)
    return writer.bytes
  }

  package static func < (left: TableKey, right: TableKey) -> Bool {
    left.high != right.high ? left.high < right.high : left.low < right.low
  }
}

/// What seeds the checksums of one table's blocks and footer.
package struct TableIdentity: Hashable, Sendable {
  /// crc(store UUID || file ID || salt)
  package let seed: UInt32

  package init(storeUUID: [UInt8], fileID: UInt64, salt: UInt32) {
    precondition(storeUUID.count == 16)
    var writer = ByteWriter(capacity: 16 + 8 + 4)
    writer.raw(storeUUID)
    writer.u64(fileID)
    writer.u32(salt)
    seed = CRC32C.checksum(writer.bytes)
  }

  /// crc(seed || number || bytes 4..<16384 of the block at `start`).
  package func crc(_ bytes: [UInt8], blockAt start: Int, number: UInt32) -> UInt32 {
    CRC32C.checksum(
      bytes, start + TableFormat.Block.blockNumber..<start + TableFormat.blockBytes,
      continuing: CRC32C.checksum(words: seed, number))
  }

  /// crc(seed || total CRC || bytes 4..<12 of the footer at `start`).
  package func footerCRC(_ bytes: [UInt8], at start: Int) -> UInt32 {
    CRC32C.checksum(
      bytes, start + TableFormat.Footer.reserved..<start + TableFormat.Footer.crc,
      continuing: CRC32C.checksum(words: seed, bytes.u32(at: start + TableFormat.Footer.totalCRC)))
  }
}

/// Where the entries of one block lie in the bytes that were read.
struct TableBlock: Sendable {
  let bytes: [UInt8]
  let firstEntry: Int
  let entryBytes: Int
  let count: Int

  /// Why bytes are not the block that belongs there.
  enum Fault: Error {
    case checksum
    /// It verifies and does not fit the file's header.
    case shape(String)

    var words: String {
      switch self {
      case .checksum: "the checksum of a block does not match"
      case .shape(let what): what
      }
    }
  }

  /// Block `number` of the table, which begins at `start` of `bytes`.
  ///
  /// - Precondition: 16 KiB are there.
  init(_ bytes: [UInt8], at start: Int, number: UInt32, of header: TableHeader) throws(Fault) {
    typealias Field = TableFormat.Block
    guard bytes.u32(at: start + Field.crc) == header.identity.crc(bytes, blockAt: start, number: number)
    else { throw .checksum }
    guard bytes.u32(at: start + Field.blockNumber) == number else { throw .shape("a block has another's number") }
    let count = Int(bytes.u32(at: start + Field.entryCount))
    guard count == header.entryCount(inBlock: number) else {
      throw .shape("a block has \(count) entries where its file's header leaves \(header.entryCount(inBlock: number))")
    }
    guard bytes.u32(at: start + Field.reserved) == 0 else { throw .shape("a block's reserved bytes are not zero") }
    self.bytes = bytes
    self.firstEntry = start + TableFormat.blockHeaderBytes
    self.entryBytes = header.entryBytes
    self.count = count
  }

  func start(_ index: Int) -> Int { firstEntry + index * entryBytes }
  func key(_ index: Int) -> TableKey { TableKey(bytes, at: start(index)) }

  /// The bytes behind the last entry.
  var rest: Range<Int> { start(count)..<firstEntry - TableFormat.blockHeaderBytes + TableFormat.blockBytes }

  /// The entry with this key.
  func entry(_ wanted: TableKey) -> [UInt8]? {
    var low = 0
    var high = count
    while low < high {
      let middle = (low + high) / 2
      let key = key(middle)
      if key == wanted { return Array(bytes[start(middle)..<start(middle) + entryBytes]) }
      if key < wanted { low = middle + 1 } else { high = middle }
    }
    return nil
  }
}
