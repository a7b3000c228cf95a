// Table files: opened, looked up in, scanned and verified; the answers must agree.
//
// An input holds the header without the rest of its page, and of each block what precedes its zeros.

import StrandlineLog
import StrandlineSystem

enum TableFuzzing {
  private static let path = "\(FuzzDisk.folder)/t"

  /// Flags, the header, blocks (each with a length before it), the footer.
  static func run(_ input: inout FuzzInput) {
    let flags = FuzzFlags(rawValue: input.byte())
    var bytes = input.padded(TableFormat.headerBytes)
    bytes.append(zeros: TableFormat.headerPageBytes - bytes.count)
    let blockCount = Int(input.byte() % 4)
    for _ in 0..<blockCount {
      let block = input.take(min(input.u16(), TableFormat.blockBytes))
      bytes += block
      bytes.append(zeros: TableFormat.blockBytes - block.count)
    }
    bytes += input.take(TableFormat.footerBytes)
    if flags.contains(.repaired) { repair(&bytes, blockCount, isConsistent: flags.contains(.consistent)) }
    compare(FuzzDisk([path: bytes]))
  }

  private static func repair(_ bytes: inout [UInt8], _ blockCount: Int, isConsistent: Bool) {
    typealias Field = TableFormat.Header
    let first = TableFormat.headerPageBytes
    let entryBytes = Int(bytes.u32(at: Field.entryBytes))
    if isConsistent {
      bytes.patch(u64: UInt64(blockCount), at: Field.blockCount)
      if blockCount > 0, TableFormat.entryBytes.contains(entryBytes) {
        // All blocks but the last are full; the last has as many entries as it says, or one.
        let whole = TableFormat.entriesPerBlock(entryBytes: entryBytes)
        for number in 0..<blockCount {
          let place = first + number * TableFormat.blockBytes + TableFormat.Block.entryCount
          let said = Int(bytes.u32(at: place))
          let count = number + 1 < blockCount ? whole : (1...whole).contains(said) ? said : 1
          bytes.patch(u32: UInt32(count), at: place)
          if number + 1 == blockCount { bytes.patch(u64: UInt64(number * whole + count), at: Field.entryCount) }
        }
      } else {
        bytes.patch(u64: 0, at: Field.entryCount)
      }
    }
    bytes.patch(u32: CRC32C.checksum(bytes, 0..<Field.crc), at: Field.crc)
    let identity = TableIdentity(
      storeUUID: Array(bytes[Field.storeUUID..<Field.storeUUID + 16]), fileID: bytes.u64(at: Field.fileID),
      salt: bytes.u32(at: Field.salt))
    var at = first
    for number in 0..<blockCount {
      if isConsistent { bytes.patch(u32: UInt32(number), at: at + TableFormat.Block.blockNumber) }
      bytes.patch(u32: identity.crc(bytes, blockAt: at, number: UInt32(number)), at: at + TableFormat.Block.crc)
      at += TableFormat.blockBytes
    }
    guard bytes.count == at + TableFormat.footerBytes else { return }
    let total = CRC32C.checksum(bytes, 0..<first, continuing: CRC32C.checksum(bytes, first..<at))
    bytes.patch(u32: total, at: at + TableFormat.Footer.totalCRC)
    bytes.patch(u32: identity.footerCRC(bytes, at: at), at: at + TableFormat.Footer.crc)
  }

  private static func compare(_ disk: FuzzDisk) {
    func ours(_ error: any Error) {
      guard let error = error as? LogError, [.damaged, .fromTheFuture].contains(error.code), error.file == path,
        error.offset != nil
      else { return require(false, "\(error)") }
    }
    let table: TableReader
    do { table = try TableReader.open(at: path, cachedBlocks: 2, fileSystem: disk) } catch { return ours(error) }
    let entryBytes = table.header.entryBytes
    var entries: [[UInt8]] = []
    var isScanned = false
    do {
      try table.scan { bytes, start in entries.append(Array(bytes[start..<start + entryBytes])) }
      isScanned = true
    } catch { ours(error) }
    require(!isScanned || UInt64(entries.count) == table.header.entryCount, "a scan of \(entries.count) entries")
    do {
      let verified = try table.verify()
      require(isScanned, "verify is content where a scan is not")
      require(verified.entries == UInt64(entries.count), "verify counts \(verified.entries)")
      require(table.header.encoded() == (try disk.open(path, .read).read(at: 0, count: 4096)), "another header")
    } catch { ours(error) }

    let chosen = entries.prefix(4) + entries.suffix(4) + (entries.isEmpty ? [] : [entries[entries.count / 2]])
    for entry in chosen {
      let key = TableKey(entry)
      do {
        let found = try table.lookup(key)
        require(found == entry || !isScanned, "a scan has the key \(key) and a lookup \(found == nil ? "not" : "else")")
      } catch { require(!isScanned, "a lookup fails where a scan is content: \(error)") }
      // The key behind it, which is there only if the scan has it.
      let next = TableKey(high: key.high, low: key.low &+ 1)
      do {
        guard try table.lookup(next) != nil, isScanned else { continue }
        require(entries.contains { TableKey($0) == next }, "a lookup finds what no scan has")
      } catch { ours(error) }
    }
    for key in [TableKey(high: 0, low: 0), TableKey(high: .max, low: .max)] {
      do { _ = try table.lookup(key) } catch { ours(error) }
    }
  }
}
