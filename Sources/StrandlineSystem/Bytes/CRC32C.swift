// The checksum of everything on disk, and its published test value.
//
// CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, init and xorout 0xFFFFFFFF; the check value of the
// nine bytes "123456789" is 0xE3069283 (RFC 3720, appendix B.4 gives more).

private import CStrandline

/// CRC-32C.
package enum CRC32C {
  /// The checksum of `bytes[range]`, continuing from `crc` (0 to begin).
  package static func checksum(_ bytes: [UInt8], _ range: Range<Int>, continuing crc: UInt32 = 0) -> UInt32 {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    return unsafe bytes.withUnsafeBytes { buffer in
      guard let base = buffer.baseAddress else { return crc }
      return unsafe strandline_crc32c(crc, base + range.lowerBound, range.count)
    }
  }

  /// The checksum of all of `bytes`.
  package static func checksum(_ bytes: [UInt8], continuing crc: UInt32 = 0) -> UInt32 {
    checksum(bytes, 0..<bytes.count, continuing: crc)
  }

  /// The checksum of two little-endian numbers and `bytes[range]` behind them.
  package static func checksum(words first: UInt32, _ second: UInt32, _ bytes: [UInt8], _ range: Range<Int>) -> UInt32 {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    return unsafe bytes.withUnsafeBytes { buffer in
      guard let base = buffer.baseAddress else { return checksum(words: first, second) }
      return unsafe strandline_crc32c_behind(first, second, base + range.lowerBound, range.count)
    }
  }

  /// The same checksum, always by table.
  ///
  /// For tests: they compare the two implementations.
  package static func checksumByTable(_ bytes: [UInt8]) -> UInt32 {
    unsafe bytes.withUnsafeBytes { buffer in
      guard let base = buffer.baseAddress else { return 0 }
      return unsafe strandline_crc32c_table(0, base, buffer.count)
    }
  }
}

extension CRC32C {
  /// The checksum of the first `count` bytes (0 to 24) of three little-endian numbers.
  package static func checksum(words first: UInt64, _ second: UInt64, _ third: UInt64, count: Int) -> UInt32 {
    precondition((0...24).contains(count))
    return unsafe withUnsafeBytes(of: (first.littleEndian, second.littleEndian, third.littleEndian)) { buffer in
      guard let base = buffer.baseAddress else { return 0 }
      return unsafe strandline_crc32c(0, base, count)
    }
  }

  /// The checksum of two little-endian numbers: eight bytes, without allocating an array for them.
  package static func checksum(words first: UInt32, _ second: UInt32) -> UInt32 {
    unsafe withUnsafeBytes(of: (first.littleEndian, second.littleEndian)) { buffer in
      guard let base = buffer.baseAddress else { return 0 }
      return unsafe strandline_crc32c(0, base, buffer.count)
    }
  }
}
