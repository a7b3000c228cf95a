// The errors of a reader: their lines and columns, which only an error needs, and their words.

extension JSONReader {
  /// An error about a value that was read and that the caller does not take.
  package mutating func error(_ message: String, at place: Int) -> JSONError { error(.value, place, message) }

  /// The error of an object that lacks a key. The caller has just read it to its end.
  package mutating func missing(_ key: String) -> JSONError {
    errorAtEnd("the key '\(key)' is missing")
  }

  /// An error of a list or an object that the caller has just read to its end.
  package mutating func errorAtEnd(_ message: String) -> JSONError { error(.value, max(start, at - 1), message) }

  /// An error at a place in `bytes`, with its line and column.
  @inline(never)
  mutating func error(_ kind: JSONError.Kind, _ place: Int, _ message: String) -> JSONError {
    if place < counted.place { counted = (start, 1, 1) }
    for byte in bytes[counted.place..<place] {
      if byte == UInt8(ascii: "\n") {
        counted.line += 1
        counted.column = 1
      } else if byte & 0xC0 != 0x80 {
        // Bytes that go on a character of UTF-8 are no columns.
        counted.column += 1
      }
    }
    counted.place = place
    return JSONError(
      kind: kind, offset: place - start, line: counted.line, column: counted.column, message: message)
  }

  /// The error of a place where the text does not go on as JSON.
  @inline(never)
  mutating func unexpected(_ expected: String) -> JSONError {
    error(.structure, at, "expected \(expected), found \(found)")
  }

  /// The error of a value of another kind than the one that the caller expects.
  @inline(never)
  mutating func mismatch(_ expected: JSONKind) -> JSONError {
    guard let kind = kindOfCurrent else { return unexpected(expected.words) }
    return error(.value, at, "expected \(expected.words), found \(kind.words)")
  }

  /// The error of a token of another kind.
  @inline(never)
  mutating func mismatch(_ expected: JSONKind, _ token: JSONToken) -> JSONError {
    error(.value, token.range.lowerBound, "expected \(expected.words), found \(token.kind.words)")
  }

  /// What is at the place, for people.
  private var found: String {
    guard at < end else { return "the end of the text" }
    let byte = bytes[at]
    if at == start, bytes[at..<min(at + 3, end)].elementsEqual([0xEF, 0xBB, 0xBF]) { return "a byte order mark" }
    if (0x21...0x7E).contains(byte) { return "'\(Character(Unicode.Scalar(byte)))'" }
    return "the byte \(byte < 16 ? "0" : "")\(String(byte, radix: 16, uppercase: true)) (hexadecimal)"
  }
}
