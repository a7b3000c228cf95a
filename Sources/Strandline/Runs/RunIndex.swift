// The index of a run: where each block lies, and a key that separates it from the block before.
//
// It is read whole when the run is opened and stays in memory. A separator is the shortest beginning of a block's first
// key that sorts behind the last key of the block before, so random keys need a few bytes a block. Layout:
// Formats/runs.md, "Index".

import StrandlineSystem

/// Where the blocks of a run lie.
struct RunIndex: Sendable {
  /// Where each block begins in the file, and at last where the last one ends.
  private let offsets: [UInt64]
  /// Where each separator begins behind `keysStart`, and at last where the last one ends.
  private let keyEnds: [UInt32]
  /// The part of the file that the index was decoded from, shared with the filter; and where separators begin in it.
  private let bytes: [UInt8]
  private let keysStart: Int

  var blockCount: Int { offsets.count - 1 }

  /// Decodes the index at the beginning of `bytes`, which was read from the footer's `indexOffset` on.
  init(_ bytes: [UInt8], _ footer: RunFooter) throws(RunFault) {
    typealias Field = RunFormat.IndexField
    let count = Int(footer.blockCount)
    keysStart = count * RunFormat.indexEntryBytes
    let keysBytes = Int(footer.filterOffset - footer.indexOffset) - keysStart
    var offsets: [UInt64] = []
    var keyEnds: [UInt32] = [0]
    offsets.reserveCapacity(count + 1)
    keyEnds.reserveCapacity(count + 1)
    for entry in 0..<count {
      let place = entry * RunFormat.indexEntryBytes
      let offset = bytes.u64(at: place + Field.offset)
      let keyEnd = bytes.u32(at: place + Field.keyEnd)
      // The first separator is empty, so that each key has a block.
      let isNext =
        entry == 0
        ? offset == UInt64(RunFormat.runHeaderBytes) && keyEnd == 0
        : offset > offsets[entry - 1] && keyEnd > keyEnds[entry]
      guard isNext, offset < footer.indexOffset, Int(keyEnd) <= keysBytes else {
        throw RunFault(
          offset: footer.indexOffset + UInt64(place), what: "entry \(entry) of the index contradicts the one before")
      }
      offsets.append(offset)
      keyEnds.append(keyEnd)
    }
    guard Int(keyEnds[count]) == keysBytes, count > 0 || footer.indexOffset == UInt64(RunFormat.runHeaderBytes) else {
      throw RunFault(offset: footer.indexOffset, what: "the index does not have the size that the footer says")
    }
    offsets.append(footer.indexOffset)
    self.offsets = offsets
    self.keyEnds = keyEnds
    self.bytes = bytes
  }

  /// Where a block lies in the file.
  func range(of block: Int) -> Range<UInt64> { offsets[block]..<offsets[block + 1] }

  /// Where the separator of a block lies in `bytes`.
  private func separatorRange(_ block: Int) -> Range<Int> {
    keysStart + Int(keyEnds[block])..<keysStart + Int(keyEnds[block + 1])
  }

  /// The separator of a block, for a check of the whole run.
  func separator(of block: Int) -> [UInt8] { Array(bytes[separatorRange(block)]) }

  /// The one block that may have the key: the last whose separator does not sort behind it. Requires that there is one.
  func block(for key: [UInt8]) -> Int {
    // No key sorts before the first separator, which is empty.
    (1..<max(1, blockCount)).partitioningIndex { key.precedes(0..<key.count, bytes, separatorRange($0)) } - 1
  }
}
