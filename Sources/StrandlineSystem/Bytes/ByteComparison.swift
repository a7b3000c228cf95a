// Compares parts of byte arrays in place, a word at a time, because sorted files compare keys where they lie.

extension [UInt8] {
  /// How many bytes `self[range]` and `other[otherRange]` have in common at their beginnings.
  package func commonPrefixCount(_ range: Range<Int>, _ other: [UInt8], _ otherRange: Range<Int>) -> Int {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    precondition(otherRange.lowerBound >= 0 && otherRange.upperBound <= other.count)
    let common = Swift.min(range.count, otherRange.count)
    return unsafe withUnsafeBytes { mine in
      unsafe other.withUnsafeBytes { theirs in
        let (left, right) = (range.lowerBound, otherRange.lowerBound)
        var at = 0
        while at + 8 <= common {
          let left = unsafe mine.loadUnaligned(fromByteOffset: left + at, as: UInt64.self)
          let right = unsafe theirs.loadUnaligned(fromByteOffset: right + at, as: UInt64.self)
          if left != right { return at + (left ^ right).littleEndian.trailingZeroBitCount / 8 }
          at += 8
        }
        while at < common, unsafe mine[left + at] == theirs[right + at] { at += 1 }
        return at
      }
    }
  }

  /// Whether `self[range]` sorts before `other[otherRange]`: bytes compare as unsigned numbers, and a beginning of other
  /// bytes sorts before them.
  package func precedes(_ range: Range<Int>, _ other: [UInt8], _ otherRange: Range<Int>) -> Bool {
    let common = commonPrefixCount(range, other, otherRange)
    if common == otherRange.count { return false }
    return common == range.count || self[range.lowerBound + common] < other[otherRange.lowerBound + common]
  }

  /// Whether all of these bytes sort before all of `other`.
  package func precedes(_ other: [UInt8]) -> Bool { precedes(0..<count, other, 0..<other.count) }
}
