// Base64 by RFC 4648, section 4, from bytes to bytes: the values of fields that are no text travel so in JSON.

extension [UInt8] {
  private static let base64Digits = [UInt8]("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

  /// The value of each byte as a digit; 255 for a byte that is none.
  private static let base64Values: [UInt8] = {
    var values = [UInt8](repeating: 255, count: 256)
    for (value, digit) in base64Digits.enumerated() { values[Int(digit)] = UInt8(value) }
    return values
  }()

  /// Appends the base64 of `bytes[range]`, with its padding.
  package mutating func append(base64 bytes: [UInt8], _ range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    let start = count
    append(contentsOf: repeatElement(UInt8(ascii: "="), count: (range.count + 2) / 3 * 4))
    unsafe withUnsafeMutableBytes { target in
      unsafe bytes.withUnsafeBytes { source in
        unsafe Self.base64Digits.withUnsafeBytes { digits in
          var (at, place) = (range.lowerBound, start)
          while at + 3 <= range.upperBound {
            let bits = unsafe UInt32(source[at]) << 16 | UInt32(source[at + 1]) << 8 | UInt32(source[at + 2])
            unsafe target[place] = digits[Int(bits >> 18)]
            unsafe target[place + 1] = digits[Int(bits >> 12 & 63)]
            unsafe target[place + 2] = digits[Int(bits >> 6 & 63)]
            unsafe target[place + 3] = digits[Int(bits & 63)]
            at += 3
            place += 4
          }
          let rest = range.upperBound - at
          guard rest > 0 else { return }
          let bits = unsafe UInt32(source[at]) << 16 | (rest == 2 ? UInt32(source[at + 1]) << 8 : 0)
          unsafe target[place] = digits[Int(bits >> 18)]
          unsafe target[place + 1] = digits[Int(bits >> 12 & 63)]
          if rest == 2 { unsafe target[place + 2] = digits[Int(bits >> 6 & 63)] }
        }
      }
    }
  }

  /// The bytes whose base64 `self[range]` is; nil if it is the base64 of none: without its padding, with another
  /// character, or with bits behind the last byte that are not zero.
  package func base64Decoded(in range: Range<Int>) -> [UInt8]? {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    guard range.count % 4 == 0 else { return nil }
    if range.isEmpty { return [] }
    let padding = self[range].suffix(2).reversed().prefix { $0 == UInt8(ascii: "=") }.count
    var wrong: UInt32 = 0
    let decoded = unsafe withUnsafeBytes { source in
      unsafe Self.base64Values.withUnsafeBytes { values in
        unsafe [UInt8](unsafeUninitializedCapacity: range.count / 4 * 3) { target, count in
          var at = range.lowerBound
          func value(_ place: Int) -> UInt32 {
            let value = unsafe UInt32(values[Int(source[place])])
            wrong |= value & 0x80
            return value
          }
          while at + 4 < range.upperBound || (at < range.upperBound && padding == 0) {
            let bits = value(at) << 18 | value(at + 1) << 12 | value(at + 2) << 6 | value(at + 3)
            unsafe target[count] = UInt8(truncatingIfNeeded: bits >> 16)
            unsafe target[count + 1] = UInt8(truncatingIfNeeded: bits >> 8)
            unsafe target[count + 2] = UInt8(truncatingIfNeeded: bits)
            at += 4
            count += 3
          }
          guard padding > 0 else { return }
          let bits = value(at) << 18 | value(at + 1) << 12 | (padding == 1 ? value(at + 2) << 6 : 0)
          unsafe target[count] = UInt8(truncatingIfNeeded: bits >> 16)
          count += 1
          if padding == 1 {
            unsafe target[count] = UInt8(truncatingIfNeeded: bits >> 8)
            count += 1
          }
          wrong |= bits & (padding == 1 ? 0xFF : 0xFFFF)
        }
      }
    }
    return wrong == 0 ? decoded : nil
  }
}
