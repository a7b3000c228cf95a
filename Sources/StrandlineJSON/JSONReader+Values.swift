// The values that are no lists and no objects: read where the reader stands, or from a token that it has passed over.

private import StrandlineSystem

extension JSONReader {
  /// The kind of the value at which the reader stands, by its first byte.
  package mutating func kind() throws(JSONError) -> JSONKind {
    skipSpace()
    guard let kind = kindOfCurrent else { throw unexpected("a value") }
    return kind
  }

  var kindOfCurrent: JSONKind? {
    switch current {
    case UInt8(ascii: "\""): .string
    case UInt8(ascii: "{"): .object
    case UInt8(ascii: "["): .array
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): .number
    case UInt8(ascii: "t"), UInt8(ascii: "f"): .bool
    case UInt8(ascii: "n"): .null
    default: nil
    }
  }

  // MARK: Words

  /// Passes over `null` if it is the next value.
  ///
  /// - Returns: whether it was.
  package mutating func skipNull() throws(JSONError) -> Bool {
    skipSpace()
    guard current == UInt8(ascii: "n") else { return false }
    try null()
    return true
  }

  mutating func null() throws(JSONError) {
    guard takeWord(0x6C6C_756E) else { throw badWord(at) }
  }

  /// Reads true or false.
  package mutating func bool() throws(JSONError) -> Bool {
    skipSpace()
    if takeWord(0x6575_7274) { return true }
    guard kindOfCurrent == .bool else { throw mismatch(.bool) }
    let begin = at
    guard takeWord(0x736C_6166), current == UInt8(ascii: "e") else { throw badWord(begin) }
    at += 1
    return false
  }

  @inline(never)
  private mutating func badWord(_ place: Int) -> JSONError {
    error(.structure, place, "a word that is none of null, true and false")
  }

  /// Passes over the four letters (`true`, `null`, the first of `false`) that make this little-endian number, if they are
  /// next.
  private mutating func takeWord(_ letters: UInt32) -> Bool {
    guard at + 4 <= end, bytes.u32(at: at) == letters else { return false }
    at += 4
    return true
  }

  // MARK: Strings

  /// Reads a string.
  package mutating func string() throws(JSONError) -> String {
    let token = try stringToken()
    return text(token)
  }

  /// The text of a string that has been passed over.
  ///
  /// - Throws: a `.value` if the token is no string.
  package mutating func string(of token: JSONToken) throws(JSONError) -> String {
    guard token.kind == .string else { throw mismatch(.string, token) }
    return text(token)
  }

  private func text(_ token: JSONToken) -> String {
    token.hasEscapes ? bytes.unescapedText(in: token.characters) : bytes.text(in: token.characters)
  }

  /// The place in `names` of a string that has been passed over; -1 if it is none of them.
  ///
  /// - Throws: a `.value` if the token is no string.
  package mutating func place(of token: JSONToken, in names: JSONKeys) throws(JSONError) -> Int {
    guard token.kind == .string else { throw mismatch(.string, token) }
    if token.hasEscapes {
      let text = bytes.unescapedBytes(in: token.characters)
      return names.place(of: KeyWords(text, 0..<text.count), in: text, 0)
    }
    return names.place(of: KeyWords(bytes, token.characters), in: bytes, token.characters.lowerBound)
  }

  /// Reads a string of base64, with padding, as the bytes that it encodes.
  package mutating func base64() throws(JSONError) -> [UInt8] {
    let token = try stringToken()
    return try base64(of: token)
  }

  /// The bytes that a string of base64, which has been passed over, encodes.
  package mutating func base64(of token: JSONToken) throws(JSONError) -> [UInt8] {
    guard token.kind == .string else { throw mismatch(.string, token) }
    let decoded: [UInt8]?
    if token.hasEscapes {
      // Some write each '/' with a backslash.
      let text = bytes.unescapedBytes(in: token.characters)
      decoded = text.base64Decoded(in: 0..<text.count)
    } else {
      decoded = bytes.base64Decoded(in: token.characters)
    }
    guard let decoded else { throw error(.value, token.range.lowerBound, "expected base64, found another string") }
    return decoded
  }

  private mutating func stringToken() throws(JSONError) -> JSONToken {
    skipSpace()
    guard current == UInt8(ascii: "\"") else { throw mismatch(.string) }
    return try scanString()
  }

  /// Passes over the string at whose opening quote the reader stands.
  mutating func scanString() throws(JSONError) -> JSONToken {
    let begin = at
    let text = bytes.scanQuoted(from: begin + 1, to: end)
    guard text.isClosed else { throw defect(of: text, begin) }
    if !text.isASCII, let place = bytes.firstNotUTF8(in: begin + 1..<text.end) {
      throw error(.text, place, "a string whose bytes are not UTF-8")
    }
    at = text.end + 1
    return JSONToken(kind: .string, range: begin..<at, hasEscapes: text.hasEscapes)
  }

  @inline(never)
  private mutating func defect(of text: QuotedText, _ begin: Int) -> JSONError {
    switch text.ending {
    case .quote, .cut: return error(.structure, begin, "a string without its closing quote")
    case .control:
      let byte = String(bytes[text.end], radix: 16, uppercase: true)
      let code = String(repeating: "0", count: 4 - byte.count) + byte
      return error(.text, text.end, "the control character U+\(code) in a string, which must be written as an escape")
    case .escape: return error(.text, text.end, "a backslash that begins no escape of JSON")
    case .surrogate: return error(.text, text.end, "an escape of half a surrogate pair, without the other half")
    }
  }

  // MARK: Numbers

  /// Reads a number that is whole, however it is written (`3`, `3.0` and `0.3e1` are 3), and that fits 64 bits.
  package mutating func int64() throws(JSONError) -> Int64 {
    let (begin, number) = try numberAndPlace()
    guard let value = number.int64 else { throw notWhole(begin, "a whole number of 64 bits") }
    return value
  }

  /// Reads a number that is whole, not below 0, and that fits 64 bits.
  package mutating func uint64() throws(JSONError) -> UInt64 {
    let (begin, number) = try numberAndPlace()
    guard let value = number.uint64 else { throw notWhole(begin, "a whole number of 64 bits that is not below 0") }
    return value
  }

  /// Reads a number as the nearest double.
  ///
  /// - Throws: also if it is beyond the greatest double. What is nearer to 0 than the least is 0.
  package mutating func double() throws(JSONError) -> Double {
    let (begin, number) = try numberAndPlace()
    return try double(number, begin..<at)
  }

  /// A number that has been passed over, as a whole number if it is one of 64 bits, however it is written, and else as the
  /// nearest double.
  package mutating func number(of token: JSONToken) throws(JSONError) -> JSONNumber {
    guard token.kind == .number else { throw mismatch(.number, token) }
    var place = token.range.lowerBound
    let number = try decimal(&place)
    if let value = number.int64 { return .int64(value) }
    return .double(try double(number, token.range))
  }

  /// Passes over a number.
  mutating func scanNumber() throws(JSONError) -> DecimalNumber {
    var place = at
    let number = try decimal(&place)
    at = place
    return number
  }

  private mutating func numberAndPlace() throws(JSONError) -> (begin: Int, number: DecimalNumber) {
    skipSpace()
    guard kindOfCurrent == .number else { throw mismatch(.number) }
    return (at, try scanNumber())
  }

  private mutating func decimal(_ place: inout Int) throws(JSONError) -> DecimalNumber {
    do throws(DecimalNumber.Defect) { return try DecimalNumber(bytes, &place, end) } catch {
      switch error {
      case .noDigit(let place): throw self.error(.number, place, "a number without a digit where there must be one")
      case .leadingZero(let place): throw self.error(.number, place, "a number with a 0 before other digits")
      }
    }
  }

  private mutating func double(_ number: DecimalNumber, _ range: Range<Int>) throws(JSONError) -> Double {
    if let exact = number.exactDouble { return exact }
    guard let value = Double(bytes.text(in: range)), value.isFinite else {
      throw error(.value, range.lowerBound, "a number beyond the greatest double: \(excerpt(range))")
    }
    return value
  }

  @inline(never)
  private mutating func notWhole(_ begin: Int, _ expected: String) -> JSONError {
    error(.value, begin, "expected \(expected), found \(excerpt(begin..<at))")
  }

  /// The beginning of a number.
  private func excerpt(_ range: Range<Int>) -> String {
    range.count <= 40 ? bytes.text(in: range) : bytes.text(in: range.prefix(40)) + "…"
  }
}

/// A number of JSON.
package enum JSONNumber: Hashable, Sendable {
  case int64(Int64)
  case double(Double)
}
