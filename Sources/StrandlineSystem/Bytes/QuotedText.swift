// Text in quotes as JSON writes it (RFC 8259, section 7), where it lies in a byte array: where it ends, what it says, and
// how a text is written so. It stands here because it works on eight bytes at a time, which is unsafe code.

/// What `scanQuoted` has found.
package struct QuotedText: Sendable {
  package enum Ending: UInt8, Sendable {
    /// The closing quote.
    case quote
    /// The bytes end without one.
    case cut
    /// A byte below 20 (hexadecimal), which must be escaped.
    case control
    /// A backslash that begins no escape.
    case escape
    /// An escape of one half of a surrogate pair without the other half.
    case surrogate
  }

  package var ending: Ending
  /// Where that is.
  package var end: Int
  package var isASCII: Bool
  package var hasEscapes: Bool

  /// Whether it ends with its quote.
  @inlinable
  package var isClosed: Bool { if case .quote = ending { true } else { false } }

  private static let ones: UInt64 = 0x0101_0101_0101_0101
  fileprivate static let highs: UInt64 = 0x8080_8080_8080_8080

  /// The high bit of each byte of `word` that is a quote, a backslash or below 20, if it is the first such byte; bits above
  /// the lowest one that is set mean nothing (Warren, "Hacker's Delight", 6-1).
  @inline(__always)
  fileprivate static func stops(_ word: UInt64) -> UInt64 {
    let quote = word ^ (ones &* 0x22)
    let backslash = word ^ (ones &* 0x5C)
    return
      ((quote &- ones) & ~quote | (backslash &- ones) & ~backslash | (word &- ones &* 0x20) & ~word) & highs
  }

  fileprivate static func isStop(_ byte: UInt8) -> Bool { byte == 0x22 || byte == 0x5C || byte < 0x20 }
}

extension [UInt8] {
  /// Finds the end of a text in quotes, and checks its escapes. What is not ASCII is not checked.
  ///
  /// - Parameters:
  ///   - start: the place behind the opening quote.
  ///   - limit: where the bytes end.
  /// - Complexity: O(n), eight bytes at a time where there are no escapes.
  package func scanQuoted(from start: Int, to limit: Int) -> QuotedText {
    precondition(start >= 0 && start <= limit && limit <= count)
    return unsafe withUnsafeBytes { bytes in
      var at = start
      var seen: UInt64 = 0
      var hasEscapes = false
      func found(_ ending: QuotedText.Ending) -> QuotedText {
        QuotedText(ending: ending, end: at, isASCII: seen & QuotedText.highs == 0, hasEscapes: hasEscapes)
      }
      while true {
        var isStopped = false
        while at + 8 <= limit {
          let word = unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
          let stops = QuotedText.stops(word)
          if stops != 0 {
            let before = stops.trailingZeroBitCount & 0x38
            seen |= word & (1 << UInt64(before) &- 1)
            at += before >> 3
            isStopped = true
            break
          }
          seen |= word
          at += 8
        }
        if !isStopped {
          while at < limit, unsafe !QuotedText.isStop(bytes[at]) {
            unsafe seen |= UInt64(bytes[at])
            at += 1
          }
          if at == limit { return found(.cut) }
        }
        let byte = unsafe bytes[at]
        if byte == 0x22 { return found(.quote) }
        if byte != 0x5C { return found(.control) }
        hasEscapes = true
        switch unsafe Self.escape(bytes, at, limit) {
        case .characters(let length): at += length
        case .bad(let ending): return found(ending)
        }
      }
    }
  }

  private enum Escape {
    case characters(Int)
    case bad(QuotedText.Ending)
  }

  /// Checks the escape at `at`, where there is a backslash.
  private static func escape(_ bytes: UnsafeRawBufferPointer, _ at: Int, _ limit: Int) -> Escape {
    guard at + 1 < limit else { return .bad(.escape) }
    switch unsafe bytes[at + 1] {
    case 0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74: return .characters(2)
    case 0x75: break
    default: return .bad(.escape)
    }
    guard let unit = unsafe unit(bytes, at, limit) else { return .bad(.escape) }
    if unit & 0xF800 != 0xD800 { return .characters(6) }
    // The two halves of a pair follow each other, the one that begins with D800 to DBFF first.
    guard unit < 0xDC00, at + 7 < limit, unsafe bytes[at + 6] == 0x5C, unsafe bytes[at + 7] == 0x75 else {
      return .bad(.surrogate)
    }
    guard let second = unsafe self.unit(bytes, at + 6, limit) else { return .bad(.surrogate) }
    return second & 0xFC00 == 0xDC00 ? .characters(12) : .bad(.surrogate)
  }

  /// The number in the six bytes of an escape `\u00e9`; nil if they have not four hexadecimal digits.
  private static func unit(_ bytes: UnsafeRawBufferPointer, _ at: Int, _ limit: Int) -> UInt32? {
    guard at + 6 <= limit else { return nil }
    var unit: UInt32 = 0
    for place in at + 2..<at + 6 {
      let digit: UInt8
      switch unsafe bytes[place] {
      case let byte where byte &- 0x30 < 10: digit = byte &- 0x30
      case let byte where (byte | 0x20) &- 0x61 < 6: digit = (byte | 0x20) &- 0x57
      default: return nil
      }
      unit = unit << 4 | UInt32(digit)
    }
    return unit
  }

  // MARK: What a text says

  /// The text in `self[range]`, whose escapes `scanQuoted` has checked.
  package func unescapedText(in range: Range<Int>) -> String {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { bytes in
      unsafe String(unsafeUninitializedCapacity: range.count) { text in
        unsafe Self.unescape(UnsafeRawBufferPointer(rebasing: bytes[range]), into: text)
      }
    }
  }

  /// The UTF-8 of that text.
  package func unescapedBytes(in range: Range<Int>) -> [UInt8] {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    return unsafe withUnsafeBytes { bytes in
      unsafe [UInt8](unsafeUninitializedCapacity: range.count) { text, count in
        count = unsafe Self.unescape(UnsafeRawBufferPointer(rebasing: bytes[range]), into: text)
      }
    }
  }

  /// Writes what `source` says to `text`, which has room for as many bytes: no escape is shorter than its character.
  private static func unescape(_ source: UnsafeRawBufferPointer, into text: UnsafeMutableBufferPointer<UInt8>) -> Int {
    precondition(text.count >= source.count)
    let target = UnsafeMutableRawBufferPointer(text)
    var (at, end) = (0, 0)
    while at < source.count {
      // Whole words are copied, with bytes behind the place of the next escape: `end` is at most `at`, so they fit, and
      // what follows overwrites them.
      if at + 8 <= source.count {
        let word = unsafe UInt64(littleEndian: source.loadUnaligned(fromByteOffset: at, as: UInt64.self))
        unsafe target.storeBytes(of: word.littleEndian, toByteOffset: end, as: UInt64.self)
        let stops = QuotedText.stops(word)
        let before = stops == 0 ? 8 : stops.trailingZeroBitCount >> 3
        at += before
        end += before
        if stops == 0 { continue }
      }
      let byte = unsafe source[at]
      if byte != 0x5C {
        unsafe target[end] = byte
        at += 1
        end += 1
        continue
      }
      let escaped = at + 1 < source.count ? unsafe source[at + 1] : 0x5C
      if escaped == 0x75, var scalar = unsafe unit(source, at, source.count) {
        at += 6
        if scalar & 0xFC00 == 0xD800, let second = unsafe unit(source, at, source.count) {
          scalar = 0x10000 + (scalar & 0x3FF) << 10 + second & 0x3FF
          at += 6
        }
        unsafe appendUTF8(of: scalar, to: target, &end)
        continue
      }
      unsafe target[end] = character(of: escaped)
      at += 2
      end += 1
    }
    return end
  }

  /// The character of an escape of two bytes.
  private static func character(of escaped: UInt8) -> UInt8 {
    switch escaped {
    case 0x62: 0x08
    case 0x66: 0x0C
    case 0x6E: 0x0A
    case 0x72: 0x0D
    case 0x74: 0x09
    default: escaped
    }
  }

  private static func appendUTF8(of scalar: UInt32, to target: UnsafeMutableRawBufferPointer, _ end: inout Int) {
    func put(_ bits: UInt32) {
      unsafe target[end] = UInt8(truncatingIfNeeded: bits)
      end += 1
    }
    switch scalar {
    case ..<0x80: put(scalar)
    case ..<0x800:
      put(0xC0 | scalar >> 6)
      put(0x80 | scalar & 0x3F)
    case ..<0x10000:
      put(0xE0 | scalar >> 12)
      put(0x80 | scalar >> 6 & 0x3F)
      put(0x80 | scalar & 0x3F)
    default:
      put(0xF0 | scalar >> 18)
      put(0x80 | scalar >> 12 & 0x3F)
      put(0x80 | scalar >> 6 & 0x3F)
      put(0x80 | scalar & 0x3F)
    }
  }

  // MARK: Writing

  /// Appends `text` between quotes, with escapes for what needs them: quotes, backslashes and the characters below 20
  /// (hexadecimal).
  ///
  /// - Parameter hasShortEscapes: whether the characters that have one get an escape of two bytes, such as `\n`. Else all
  ///   have the form `\u000a`.
  package mutating func append(quoted text: String, hasShortEscapes: Bool) {
    let isDone: Void? = unsafe text.utf8.withContiguousStorageIfAvailable {
      unsafe append(quoted: UnsafeRawBufferPointer($0), hasShortEscapes)
    }
    // A string bridged from Objective-C may have no contiguous UTF-8.
    if isDone == nil {
      let bytes = [UInt8](text.utf8)
      append(quoted: bytes, 0..<bytes.count, hasShortEscapes: hasShortEscapes)
    }
  }

  /// Appends the UTF-8 in `bytes[range]` in the same way.
  package mutating func append(quoted bytes: [UInt8], _ range: Range<Int>, hasShortEscapes: Bool) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    unsafe bytes.withUnsafeBytes {
      unsafe append(quoted: UnsafeRawBufferPointer(rebasing: $0[range]), hasShortEscapes)
    }
  }

  private mutating func append(quoted bytes: UnsafeRawBufferPointer, _ hasShortEscapes: Bool) {
    append(0x22)
    var (start, at) = (0, 0)
    while true {
      while at + 8 <= bytes.count {
        let word = unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
        let stops = QuotedText.stops(word)
        if stops != 0 {
          at += stops.trailingZeroBitCount >> 3
          break
        }
        at += 8
      }
      while at < bytes.count, unsafe !QuotedText.isStop(bytes[at]) { at += 1 }
      if at > start { unsafe append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[start..<at])) }
      guard at < bytes.count else { break }
      unsafe append(escapeOf: bytes[at], hasShortEscapes)
      at += 1
      start = at
    }
    append(0x22)
  }

  private mutating func append(escapeOf byte: UInt8, _ hasShortEscapes: Bool) {
    append(0x5C)
    switch byte {
    case 0x22, 0x5C: return append(byte)
    case 0x08 where hasShortEscapes: return append(0x62)
    case 0x0C where hasShortEscapes: return append(0x66)
    case 0x0A where hasShortEscapes: return append(0x6E)
    case 0x0D where hasShortEscapes: return append(0x72)
    case 0x09 where hasShortEscapes: return append(0x74)
    default:
      append(0x75)
      append(0x30)
      append(0x30)
      append(0x30 + byte >> 4)
      append(byte & 15 < 10 ? 0x30 + byte & 15 : 0x57 + byte & 15)
    }
  }
}
