// The filter of a run: says of most keys that are not in the run that they are not, so that a look-up of a new key reads
// no block.
//
// A blocked Bloom filter (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): all bits of
// a key lie in one line of 64 bytes, so that a look-up touches one cache line. With 10 bits a key it takes about one
// key in a hundred for one of the run's. Layout and hash: Formats/runs.md, "Filter".

import StrandlineSystem

/// A key with its hash, computed once for all runs in which it is looked up.
package struct RunKey: Sendable {
  package let bytes: [UInt8]
  let hash: UInt64

  package init(_ bytes: [UInt8]) {
    self.bytes = bytes
    hash = XXH64.hash(bytes)
  }
}

/// The bits of a filter while a writer sets them, and how a reader tests them.
struct RunFilter {
  private(set) var bytes: [UInt8]
  private let lineCount: Int

  /// - Parameter keyCount: for how many keys it is laid out. More keys make it answer "perhaps" more often.
  init(keyCount: Int) {
    let bits = max(0, keyCount) * RunFormat.filterBitsPerKey
    let lineBits = RunFormat.filterLineBytes * 8
    lineCount = max(1, (bits + lineBits - 1) / lineBits)
    bytes = [UInt8](repeating: 0, count: lineCount * RunFormat.filterLineBytes)
  }

  mutating func insert(_ hash: UInt64) {
    let line = Self.line(hash, lineCount) * RunFormat.filterLineBytes
    var bits = UInt32(truncatingIfNeeded: hash)
    for _ in 0..<RunFormat.filterProbes {
      let bit = Int(bits >> 23)
      bytes[line + bit / 8] |= 1 << UInt8(bit % 8)
      bits &*= RunFormat.filterFactor
    }
  }

  /// Whether the key with this hash may be in the run whose filter is `bytes[range]`.
  static func mayContain(_ hash: UInt64, _ bytes: [UInt8], _ range: Range<Int>) -> Bool {
    let line = range.lowerBound + line(hash, range.count / RunFormat.filterLineBytes) * RunFormat.filterLineBytes
    var bits = UInt32(truncatingIfNeeded: hash)
    for _ in 0..<RunFormat.filterProbes {
      let bit = Int(bits >> 23)
      if bytes[line + bit / 8] & (1 << UInt8(bit % 8)) == 0 { return false }
      bits &*= RunFormat.filterFactor
    }
    return true
  }

  /// The upper half of the hash, scaled to the number of lines.
  private static func line(_ hash: UInt64, _ lineCount: Int) -> Int { Int(((hash >> 32) * UInt64(lineCount)) >> 32) }
}
