// The last bytes of a run: where its other parts lie, how many entries it has, and what their checksums are.
//
// Layout: Formats/runs.md, "Footer".

import StrandlineSystem

/// The footer of a run.
struct RunFooter {
  /// Of index, filter and properties.
  var tailCRC: UInt32
  /// Of the checksums of all blocks, in their order.
  var blocksCRC: UInt32
  var entryCount: UInt64
  var tombstoneCount: UInt64
  var blockCount: UInt32
  /// Where the blocks end.
  var indexOffset: UInt64
  var filterOffset: UInt64
  var propertiesOffset: UInt64

  /// The footer that lies at `offset` of the file, and its checksum.
  func encoded(at offset: UInt64, _ seed: RunSeed) -> (bytes: [UInt8], crc: UInt32) {
    var writer = ByteWriter(capacity: RunFormat.footerBytes)
    writer.u32(0)
    writer.u32(tailCRC)
    writer.u32(blocksCRC)
    writer.u64(entryCount)
    writer.u64(tombstoneCount)
    writer.u32(blockCount)
    writer.u64(indexOffset)
    writer.u64(filterOffset)
    writer.u64(propertiesOffset)
    let crc = seed.checksum(writer.bytes, 0..<writer.count, at: offset)
    writer.patch(u32: crc, at: RunFormat.FooterField.crc)
    return (writer.bytes, crc)
  }

  /// Decodes the footer that was read from `offset` of the file, and checks its numbers against the file's size.
  static func decode(
    _ bytes: [UInt8], at offset: UInt64, _ seed: RunSeed
  ) throws(RunFault) -> (footer: RunFooter, crc: UInt32) {
    typealias Field = RunFormat.FooterField
    let crc = bytes.u32(at: Field.crc)
    guard seed.checksum(bytes, 0..<bytes.count, at: offset) == crc else {
      throw RunFault(offset: offset, what: "the checksum of the footer does not match")
    }
    let footer = RunFooter(
      tailCRC: bytes.u32(at: Field.tailCRC), blocksCRC: bytes.u32(at: Field.blocksCRC),
      entryCount: bytes.u64(at: Field.entryCount), tombstoneCount: bytes.u64(at: Field.tombstoneCount),
      blockCount: bytes.u32(at: Field.blockCount), indexOffset: bytes.u64(at: Field.indexOffset),
      filterOffset: bytes.u64(at: Field.filterOffset), propertiesOffset: bytes.u64(at: Field.propertiesOffset))
    let line = UInt64(RunFormat.filterLineBytes)
    guard UInt64(RunFormat.runHeaderBytes) <= footer.indexOffset, footer.indexOffset <= footer.filterOffset,
      footer.filterOffset < footer.propertiesOffset, footer.propertiesOffset <= offset,
      UInt64(footer.blockCount) * UInt64(RunFormat.indexEntryBytes) <= footer.filterOffset - footer.indexOffset,
      (footer.propertiesOffset - footer.filterOffset) % line == 0,
      (footer.propertiesOffset - footer.filterOffset) / line <= UInt64(UInt32.max),
      offset - footer.propertiesOffset <= UInt64(RunFormat.propertiesBytesMax),
      footer.tombstoneCount <= footer.entryCount, UInt64(footer.blockCount) <= footer.entryCount,
      footer.entryCount <= footer.indexOffset / UInt64(RunFormat.entryBytesMin),
      (footer.blockCount == 0) == (footer.entryCount == 0)
    else { throw RunFault(offset: offset, what: "the numbers of the footer contradict each other") }
    return (footer, crc)
  }
}
