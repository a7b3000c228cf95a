// Encodes bytes: little-endian integers, LEB128 varints, length-prefixed bytes. ByteReader decodes them.

/// Builds a byte string.
package struct ByteWriter: Sendable {
  package var bytes: [UInt8] = []

  package init() {}
  package init(capacity: Int) { bytes.reserveCapacity(capacity) }

  package var count: Int { bytes.count }

  package mutating func u8(_ value: UInt8) { bytes.append(value) }

  package mutating func u16(_ value: UInt16) { fixed(value) }

  package mutating func u32(_ value: UInt32) { fixed(value) }

  package mutating func u64(_ value: UInt64) { fixed(value) }

  /// IEEE 754 binary64, as its 64 bits.
  package mutating func f64(_ value: Double) { u64(value.bitPattern) }

  private mutating func fixed<Value: FixedWidthInteger>(_ value: Value) {
    unsafe withUnsafeBytes(of: value.littleEndian) { unsafe bytes.append(contentsOf: $0) }
  }

  /// Unsigned LEB128: seven bits in each byte, the least significant first; the high bit is set if another byte
  /// follows. At most 10 bytes.
  package mutating func varint(_ value: UInt64) {
    // Most numbers are small.
    if value < 0x80 { return bytes.append(UInt8(truncatingIfNeeded: value)) }
    var rest = value
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    bytes.append(UInt8(truncatingIfNeeded: rest))
  }

  /// A signed number as a varint of its zigzag form (0, -1, 1, -2 … become 0, 1, 2, 3 …).
  package mutating func zigzag(_ value: Int64) {
    varint(UInt64(bitPattern: (value << 1) ^ (value >> 63)))
  }

  package mutating func raw(_ value: [UInt8]) { bytes.append(contentsOf: value) }

  package mutating func raw(_ value: ArraySlice<UInt8>) { bytes.append(contentsOf: value) }

  /// A varint of the length, then the bytes.
  package mutating func blob(_ value: [UInt8]) {
    varint(UInt64(value.count))
    bytes.append(contentsOf: value)
  }

  /// A varint of the length in bytes, then the UTF-8.
  package mutating func string(_ value: String) {
    varint(UInt64(value.utf8.count))
    text(value)
  }

  /// The UTF-8, without its length.
  package mutating func text(_ value: String) {
    let isCopied: Void? = unsafe value.utf8.withContiguousStorageIfAvailable { unsafe bytes.append(contentsOf: $0) }
    if isCopied == nil { bytes.append(contentsOf: value.utf8) }
  }

  package mutating func zeros(_ count: Int) {
    bytes.append(contentsOf: repeatElement(0, count: count))
  }

  /// Overwrites the four bytes at `offset`.
  package mutating func patch(u32 value: UInt32, at offset: Int) {
    bytes.patch(u32: value, at: offset)
  }
}

extension [UInt8] {
  /// Overwrites the four bytes at `offset`, little-endian. Requires that they are within bounds.
  package mutating func patch(u32 value: UInt32, at offset: Int) {
    precondition(offset >= 0 && offset + 4 <= count)
    unsafe withUnsafeMutableBytes {
      unsafe $0.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt32.self)
    }
  }

  /// Overwrites the eight bytes at `offset`, little-endian. Requires that they are within bounds.
  package mutating func patch(u64 value: UInt64, at offset: Int) {
    precondition(offset >= 0 && offset + 8 <= count)
    unsafe withUnsafeMutableBytes {
      unsafe $0.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt64.self)
    }
  }
}
