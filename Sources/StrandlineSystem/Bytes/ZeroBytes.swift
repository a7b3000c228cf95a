// Finds and appends zero bytes, a word or a block at a time, because recovery searches whole unwritten files with it.

extension [UInt8] {
  /// The index of the last byte in `range` that is not zero; nil if all are.
  package func lastNonZero(in range: Range<Int>) -> Int? {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { bytes -> Int? in
      var end = range.upperBound
      while end - range.lowerBound >= 8, unsafe bytes.loadUnaligned(fromByteOffset: end - 8, as: UInt64.self) == 0 {
        end -= 8
      }
      while end > range.lowerBound {
        end -= 1
        if unsafe bytes[end] != 0 { return end }
      }
      return nil
    }
  }

  /// Whether all bytes in `range` are zero.
  package func isZero(in range: Range<Int>) -> Bool { lastNonZero(in: range) == nil }

  private static let zeros = [UInt8](repeating: 0, count: 4096)

  /// Appends `count` zero bytes.
  package mutating func append(zeros count: Int) {
    var rest = count
    while rest > Self.zeros.count {
      append(contentsOf: Self.zeros)
      rest -= Self.zeros.count
    }
    unsafe Self.zeros.withUnsafeBytes { unsafe append(contentsOf: UnsafeRawBufferPointer(rebasing: $0[..<rest])) }
  }
}
