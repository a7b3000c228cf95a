// The order of strings in every file and on every device, and the identity of names: by their UTF-8 bytes. Swift's own `<`
// and `==` compare canonical forms: strings with different bytes may be equal to them.

#if canImport(Glibc)
  private import Glibc
#elseif canImport(Musl)
  private import Musl
#elseif canImport(Darwin)
  private import Darwin
#endif

extension String {
  /// Whether this string sorts before `other` by UTF-8 bytes.
  package func precedesByUTF8(_ other: String) -> Bool {
    let fast: Bool?? = unsafe utf8.withContiguousStorageIfAvailable { mine in
      unsafe other.utf8.withContiguousStorageIfAvailable { theirs in
        let common = min(mine.count, theirs.count)
        guard common > 0, let left = mine.baseAddress, let right = theirs.baseAddress else {
          return mine.count < theirs.count
        }
        let order = unsafe memcmp(left, right, common)
        return order == 0 ? mine.count < theirs.count : order < 0
      }
    }
    if let fast, let fast { return fast }
    // A string bridged from Objective-C may have no contiguous UTF-8.
    return utf8.lexicographicallyPrecedes(other.utf8)
  }

  /// Whether this string has the UTF-8 of `other`. As fast as `==` for ASCII.
  @inlinable package func equalsUTF8(_ other: String) -> Bool {
    // Strings of the same words are one: a short one is in them, and two long ones have one memory.
    if MemoryLayout<String>.size == MemoryLayout<(UInt64, UInt64)>.size,
      unsafe unsafeBitCast(self, to: (UInt64, UInt64).self) == unsafeBitCast(other, to: (UInt64, UInt64).self)
    {
      return true
    }
    guard self == other else { return false }
    let count = utf8.count
    guard count == other.utf8.count else { return false }
    // ASCII, which has as many bytes as UTF-16 units, is equivalent to nothing else of its length.
    return count == utf16.count || utf8.elementsEqual(other.utf8)
  }

  /// Hashes the UTF-8, and that it ends.
  @inlinable package func hashUTF8(into hasher: inout Hasher) {
    let isDone: Void? = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      unsafe hasher.combine(bytes: UnsafeRawBufferPointer(bytes))
    }
    // A string bridged from Objective-C may have no contiguous UTF-8, and has the hash of one that has.
    if isDone == nil { unsafe Array(utf8).withUnsafeBytes { unsafe hasher.combine(bytes: $0) } }
    hasher.combine(UInt8(0xFF))
  }

  /// The first eight bytes of the UTF-8, the first one the most significant, with zeros behind a shorter text. Of two texts
  /// whose numbers differ, the one with the lesser number sorts first.
  package var utf8Prefix: UInt64 {
    let fast: UInt64? = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      var prefix: UInt64 = 0
      for place in 0..<min(8, bytes.count) { prefix |= UInt64(unsafe bytes[place]) << UInt64(56 - 8 * place) }
      return prefix
    }
    if let fast { return fast }
    var (prefix, shift): (UInt64, UInt64) = (0, 56)
    for byte in utf8.prefix(8) {
      prefix |= UInt64(byte) << shift
      shift &-= 8
    }
    return prefix
  }

  /// Whether every byte of the UTF-8 is in a set.
  package func consists(of set: ASCIISet) -> Bool {
    let fast: Bool? = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      for place in bytes.indices where unsafe !set.contains(bytes[place]) { return false }
      return true
    }
    return fast ?? utf8.allSatisfy { set.contains($0) }
  }
}

extension Optional<String> {
  /// Whether both have the same UTF-8, or neither is a text.
  package func equalsUTF8(_ other: String?) -> Bool {
    switch (self, other) {
    case (let left?, let right?): left.equalsUTF8(right)
    case (nil, nil): true
    default: false
    }
  }
}

/// A set of ASCII characters: a bit each.
package struct ASCIISet: Sendable {
  private var low: UInt64 = 0
  private var high: UInt64 = 0

  /// The characters in these ranges, which are below 128.
  package init(_ ranges: ClosedRange<UInt8>...) {
    for range in ranges {
      for byte in range {
        precondition(byte < 128)
        if byte < 64 { low |= 1 << UInt64(byte) } else { high |= 1 << UInt64(byte - 64) }
      }
    }
  }

  package func contains(_ byte: UInt8) -> Bool {
    byte < 128 && (byte < 64 ? low : high) >> UInt64(byte & 63) & 1 == 1
  }
}
