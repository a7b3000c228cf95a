// A run whose bytes a test changes and whose checksums it makes right again, as Formats/runs.md says, and not with the
// code that writes runs.

import Strandline
import StrandlineSystem

/// The parts of a run, so that a test can change them and make their checksums right again.
struct CraftedRun {
  private let seed: UInt32
  let blocks: [Range<Int>]
  let filter: Range<Int>
  private let tail: Range<Int>
  private let footer: Range<Int>

  /// The parts that may be changed: blocks, the tail, the footer without its checksums.
  var ranges: [Range<Int>] { blocks + [tail, footer.lowerBound + 12..<footer.upperBound] }

  init(_ bytes: [UInt8], storeUUID: [UInt8]) {
    var writer = ByteWriter()
    writer.raw(Array(bytes[RunFormat.Header.storeUUID..<RunFormat.Header.crc]))
    seed = CRC32C.checksum(writer.bytes)
    footer = bytes.count - RunFormat.footerBytes..<bytes.count
    let indexOffset = Int(bytes.u64(at: footer.lowerBound + RunFormat.FooterField.indexOffset))
    tail = indexOffset..<footer.lowerBound
    filter =
      Int(
        bytes.u64(at: footer.lowerBound + RunFormat.FooterField.filterOffset))..<Int(
        bytes.u64(at: footer.lowerBound + RunFormat.FooterField.propertiesOffset))
    var blocks: [Range<Int>] = []
    var place = RunFormat.runHeaderBytes
    while place < indexOffset {
      let length = Int(bytes.u32(at: place + RunFormat.BlockField.length))
      blocks.append(place..<place + length)
      place += length
    }
    self.blocks = blocks
  }

  /// Makes all checksums right, and returns the footer's.
  func repair(_ bytes: inout [UInt8]) -> UInt32 {
    var crcs = ByteWriter()
    for block in blocks { crcs.u32(sign(&bytes, block)) }
    bytes.patch(u32: CRC32C.checksum(bytes, tail), at: footer.lowerBound + RunFormat.FooterField.tailCRC)
    bytes.patch(u32: CRC32C.checksum(crcs.bytes), at: footer.lowerBound + RunFormat.FooterField.blocksCRC)
    return sign(&bytes, footer)
  }

  private func sign(_ bytes: inout [UInt8], _ range: Range<Int>) -> UInt32 {
    var covered = ByteWriter()
    covered.u32(seed)
    covered.u64(UInt64(range.lowerBound))
    covered.raw(Array(bytes[range.lowerBound + 4..<range.upperBound]))
    let crc = CRC32C.checksum(covered.bytes)
    bytes.patch(u32: crc, at: range.lowerBound)
    return crc
  }
}
