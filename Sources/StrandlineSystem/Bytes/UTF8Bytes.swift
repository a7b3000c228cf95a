// Text where it lies in a byte array: whether it is UTF-8, how it sorts against a string, the string itself. A reader of
// records compares and passes over many texts of which its caller needs few as strings.

#if canImport(Glibc)
  private import Glibc
#elseif canImport(Musl)
  private import Musl
#elseif canImport(Darwin)
  private import Darwin
#endif

extension [UInt8] {
  /// Whether `self[range]` is UTF-8 by the Unicode Standard, table 3-7: without overlong forms and surrogates.
  package func isUTF8(in range: Range<Int>) -> Bool { firstNotUTF8(in: range) == nil }

  /// Where the first bytes of `self[range]` are that are no character of UTF-8; nil if it is UTF-8.
  package func firstNotUTF8(in range: Range<Int>) -> Int? {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { bytes -> Int? in
      var at = range.lowerBound
      while at < range.upperBound {
        // Most text is ASCII, which needs one look at eight bytes.
        if at + 8 <= range.upperBound,
          unsafe bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self) & 0x8080_8080_8080_8080 == 0
        {
          at += 8
          continue
        }
        let first = unsafe bytes[at]
        if first < 0x80 {
          at += 1
          continue
        }
        guard let (length, second) = Self.form(first), at + length <= range.upperBound,
          unsafe second.contains(bytes[at + 1])
        else { return at }
        for place in at + 2..<Swift.max(at + 2, at + length) {
          guard unsafe bytes[place] & 0xC0 == 0x80 else { return at }
        }
        at += length
      }
      return nil
    }
  }

  /// How many bytes a character has that begins with this one, above 7F, and what the second may be; nil if none begins
  /// with it.
  private static func form(_ first: UInt8) -> (length: Int, second: ClosedRange<UInt8>)? {
    switch first {
    case 0xC2...0xDF: (2, 0x80...0xBF)
    case 0xE0: (3, 0xA0...0xBF)
    case 0xED: (3, 0x80...0x9F)
    case 0xE1...0xEF: (3, 0x80...0xBF)
    case 0xF0: (4, 0x90...0xBF)
    case 0xF1...0xF3: (4, 0x80...0xBF)
    case 0xF4: (4, 0x80...0x8F)
    default: nil
    }
  }

  /// Where in `self[range]` a byte stands first; nil if it is not there.
  package func firstPlace(of byte: UInt8, in range: Range<Int>) -> Int? {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { bytes in
      guard !range.isEmpty, let base = bytes.baseAddress,
        let found = unsafe memchr(base + range.lowerBound, Int32(byte), range.count)
      else { return nil }
      return unsafe UnsafeRawPointer(found) - base
    }
  }

  /// The text in `self[range]`; what is not UTF-8 in it becomes U+FFFD.
  package func text(in range: Range<Int>) -> String {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { unsafe String(decoding: $0[range], as: UTF8.self) }
  }

  /// A hash of `self[range]` that is another one in each process, so that keys that an attacker chooses do not collide.
  package func seededHash(in range: Range<Int>) -> Int {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    var hasher = Hasher()
    unsafe withUnsafeBytes { unsafe hasher.combine(bytes: UnsafeRawBufferPointer(rebasing: $0[range])) }
    return hasher.finalize()
  }

  /// Below 0 if `self[range]` sorts before the UTF-8 of `text`, 0 if they are equal, above 0 otherwise.
  package func order(_ range: Range<Int>, of text: String) -> Int {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    let found: Int? = unsafe text.utf8.withContiguousStorageIfAvailable { theirs in
      unsafe withUnsafeBytes { mine in
        let common = Swift.min(range.count, theirs.count)
        guard common > 0, let left = mine.baseAddress, let right = theirs.baseAddress else {
          return range.count - theirs.count
        }
        let order = unsafe memcmp(left + range.lowerBound, right, common)
        return order == 0 ? range.count - theirs.count : Int(order)
      }
    }
    if let found { return found }
    // A string bridged from Objective-C may have no contiguous UTF-8.
    if self[range].elementsEqual(text.utf8) { return 0 }
    return self[range].lexicographicallyPrecedes(text.utf8) ? -1 : 1
  }

  /// Appends the UTF-8 of `text`.
  package mutating func append(utf8 text: String) {
    let isDone: Void? = unsafe text.utf8.withContiguousStorageIfAvailable { unsafe append(contentsOf: $0) }
    if isDone == nil { append(contentsOf: text.utf8) }
  }
}

extension String {
  /// Whether its UTF-8 has a zero byte.
  package var hasZeroByte: Bool {
    let found: Bool? = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      guard let base = bytes.baseAddress else { return false }
      return unsafe memchr(base, 0, bytes.count) != nil
    }
    return found ?? utf8.contains(0)
  }
}
