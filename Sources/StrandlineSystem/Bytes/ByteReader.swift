// Decodes bytes: a cursor that checks bounds. Every read may throw and none can trap, and each length is compared
// with the bytes that are left before it is used.

/// A read past the end, or bytes that no encoder writes. `offset` counts from the start of the array.
package struct ByteReaderError: Error, Hashable, Sendable, CustomStringConvertible {
  package var offset: Int
  package var what: String
  package init(offset: Int, what: String) {
    self.offset = offset
    self.what = what
  }
  package var description: String { "\(what) at byte \(offset)" }
}

/// A cursor over part of a byte array.
package struct ByteReader: Sendable {
  package let bytes: [UInt8]
  package private(set) var offset: Int
  package let end: Int

  package init(_ bytes: [UInt8]) { self.init(bytes, 0..<bytes.count) }

  package init(_ bytes: [UInt8], _ range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    self.bytes = bytes
    self.offset = range.lowerBound
    self.end = range.upperBound
  }

  package var remaining: Int { end - offset }
  package var isAtEnd: Bool { offset == end }

  private mutating func advance(_ count: Int, _ what: @autoclosure () -> String) throws(ByteReaderError) -> Int {
    guard count >= 0, count <= remaining else { throw ByteReaderError(offset: offset, what: "cut short in \(what())") }
    let start = offset
    offset += count
    return start
  }

  package mutating func u8() throws(ByteReaderError) -> UInt8 {
    guard offset < end else { throw ByteReaderError(offset: offset, what: "cut short in a byte") }
    defer { offset += 1 }
    return bytes[offset]
  }
  package mutating func u16() throws(ByteReaderError) -> UInt16 {
    let at = try advance(2, "a 16-bit number")
    return UInt16(bytes[at]) | UInt16(bytes[at + 1]) << 8
  }
  package mutating func u32() throws(ByteReaderError) -> UInt32 { bytes.u32(at: try advance(4, "a 32-bit number")) }
  package mutating func u64() throws(ByteReaderError) -> UInt64 { bytes.u64(at: try advance(8, "a 64-bit number")) }
  package mutating func f64() throws(ByteReaderError) -> Double { Double(bitPattern: try u64()) }

  /// Unsigned LEB128 in its shortest form; a longer form is refused, so that equal values have equal bytes.
  package mutating func varint() throws(ByteReaderError) -> UInt64 {
    // Nearly every length and most numbers fit into a byte.
    if offset < end, bytes[offset] < 0x80 {
      defer { offset += 1 }
      return UInt64(bytes[offset])
    }
    return try longVarint()
  }

  @inline(never)
  private mutating func longVarint() throws(ByteReaderError) -> UInt64 {
    let start = offset
    var result: UInt64 = 0
    var shift: UInt64 = 0
    while true {
      let byte = try u8()
      let bits = UInt64(byte & 0x7F)
      guard shift < 63 || (shift == 63 && bits <= 1) else {
        throw ByteReaderError(offset: start, what: "a varint above 64 bits")
      }
      result |= bits << shift
      if byte & 0x80 == 0 {
        guard byte != 0 || shift == 0 else { throw ByteReaderError(offset: start, what: "a padded varint") }
        return result
      }
      shift += 7
    }
  }

  package mutating func zigzag() throws(ByteReaderError) -> Int64 {
    let value = try varint()
    return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }

  package mutating func raw(_ count: Int) throws(ByteReaderError) -> [UInt8] {
    let at = try advance(count, "\(count) bytes")
    return Array(bytes[at..<at + count])
  }

  /// Moves the cursor to the end.
  package mutating func skipToEnd() { offset = end }

  /// Reads all bytes that are left.
  package mutating func rest() -> [UInt8] {
    defer { offset = end }
    return Array(bytes[offset..<end])
  }

  package mutating func blob() throws(ByteReaderError) -> [UInt8] {
    try raw(try length("bytes"))
  }

  /// Reads a string and throws if its bytes are not valid UTF-8.
  package mutating func string() throws(ByteReaderError) -> String {
    bytes.text(in: try skipString())
  }

  // MARK: Passing over

  /// Passes over so many bytes.
  package mutating func skip(_ count: Int) throws(ByteReaderError) { _ = try advance(count, "\(count) bytes") }

  /// Passes over a string, which must be valid UTF-8.
  ///
  /// - Returns: where its bytes lie.
  @discardableResult
  package mutating func skipString() throws(ByteReaderError) -> Range<Int> {
    let at = try advance(try length("text"), "text")
    guard bytes.isUTF8(in: at..<offset) else { throw ByteReaderError(offset: at, what: "text that is not UTF-8") }
    return at..<offset
  }

  /// Passes over a string, which must be valid UTF-8.
  ///
  /// - Returns: whether it has the bytes of `text`.
  package mutating func skipString(equalTo text: String) throws(ByteReaderError) -> Bool {
    let at = try advance(try length("text"), "text")
    // What has the bytes of a text is UTF-8.
    if bytes.order(at..<offset, of: text) == 0 { return true }
    guard bytes.isUTF8(in: at..<offset) else { throw ByteReaderError(offset: at, what: "text that is not UTF-8") }
    return false
  }

  /// Passes over bytes that `blob` would read.
  ///
  /// - Returns: where they lie.
  @discardableResult
  package mutating func skipBlob() throws(ByteReaderError) -> Range<Int> {
    let at = try advance(try length("bytes"), "bytes")
    return at..<offset
  }

  /// Reads a count of items and throws if so many items, of at least `minimumBytes` each, cannot fit into the bytes
  /// that are left. So the caller may reserve memory for the count.
  package mutating func count(minimumBytes: Int) throws(ByteReaderError) -> Int {
    let start = offset
    let value = try varint()
    guard value <= UInt64(remaining / max(1, minimumBytes)) else {
      throw ByteReaderError(offset: start, what: "a count of \(value) for which \(remaining) bytes are too few")
    }
    return Int(value)
  }

  private mutating func length(_ what: String) throws(ByteReaderError) -> Int {
    let start = offset
    let value = try varint()
    guard value <= UInt64(remaining) else {
      throw ByteReaderError(offset: start, what: "a length of \(value) for \(what) where \(remaining) bytes are left")
    }
    return Int(value)
  }
}

extension [UInt8] {
  /// Decodes the two bytes at `offset`, little-endian. Requires that they are within bounds.
  @inlinable
  package func u16(at offset: Int) -> UInt16 {
    precondition(offset >= 0 && offset + 2 <= count)
    return unsafe withUnsafeBytes {
      unsafe UInt16(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
    }
  }

  /// Decodes the four bytes at `offset`, little-endian. Requires that they are within bounds.
  @inlinable
  package func u32(at offset: Int) -> UInt32 {
    precondition(offset >= 0 && offset + 4 <= count)
    return unsafe withUnsafeBytes {
      unsafe UInt32(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }
  }

  /// Decodes the eight bytes at `offset`, little-endian. Requires that they are within bounds.
  @inlinable
  package func u64(at offset: Int) -> UInt64 {
    precondition(offset >= 0 && offset + 8 <= count)
    return unsafe withUnsafeBytes {
      unsafe UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
  }
}
