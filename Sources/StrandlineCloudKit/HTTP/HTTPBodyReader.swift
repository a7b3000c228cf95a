// Reads the body of a request or an answer from pieces of any size: of a stated length, chunked, or until the connection
// ends. Pure: no socket, no clock. Every limit is checked before the bytes are kept, so that a peer cannot make the
// reader hold more than the limit.

/// The body of one message, as far as it has come.
package struct HTTPBodyReader: Sendable {
  /// What has come, without the coding.
  package private(set) var body: [UInt8] = []

  private enum Place {
    case content(left: Int)
    case contentUntilClose
    case chunkSize
    case chunk(left: Int)
    case chunkEnd
    case trailers
    case end
  }
  private var place: Place
  /// The part of a line that has come; empty outside of the lines of a chunked body.
  private var line: [UInt8] = []
  private var trailerBytes = 0
  /// How many bytes were taken out of the body.
  private var taken = 0
  private let bytesMax: Int
  private let trailerBytesMax: Int

  /// The most bytes for which there is room before they come.
  private static let statedBytesMax = 1 << 20
  /// The most bytes of one line of a chunked body.
  private static let lineBytesMax = 1024

  /// A reader at the beginning of a body.
  ///
  /// - Parameters:
  ///   - framing: where the body ends.
  ///   - bytesMax: the most bytes of the body.
  ///   - trailerBytesMax: the most bytes of all trailers. They are read and dropped.
  /// - Throws: `HTTPDefect.bodyTooLarge` if the stated length is above the limit.
  package init(_ framing: HTTPFraming, bytesMax: Int, trailerBytesMax: Int) throws(HTTPDefect) {
    self.bytesMax = bytesMax
    self.trailerBytesMax = trailerBytesMax
    switch framing {
    case .length(let length):
      guard length <= bytesMax else { throw .bodyTooLarge(bytesMax: bytesMax) }
      place = length == 0 ? .end : .content(left: length)
      // At most so much for a length that a peer states without sending it.
      body.reserveCapacity(min(length, Self.statedBytesMax))
    case .chunked: place = .chunkSize
    case .untilClose: place = .contentUntilClose
    }
  }

  /// Whether the body is whole.
  package var isComplete: Bool { if case .end = place { true } else { false } }

  /// Reads the next bytes and returns how many of them belong to the body; the others follow it.
  package mutating func receive(_ bytes: ArraySlice<UInt8>) throws(HTTPDefect) -> Int {
    var rest = bytes
    while !rest.isEmpty, !isComplete { try readPart(of: &rest) }
    return bytes.count - rest.count
  }

  /// Removes and returns the bytes that arrived since the last call, for a caller that keeps no whole body.
  package mutating func take() -> [UInt8] {
    defer { body.removeAll(keepingCapacity: true) }
    taken += body.count
    return body
  }

  /// The connection has ended.
  ///
  /// - Throws: `HTTPDefect.cut` if the body has not.
  package mutating func end() throws(HTTPDefect) {
    switch place {
    case .end: break
    case .contentUntilClose: place = .end
    case .content(let left):
      throw .cut("the connection ended after \(taken + body.count) of \(taken + body.count + left) bytes")
    case .chunkSize, .chunk, .chunkEnd, .trailers:
      throw .cut("the connection ended after \(taken + body.count) bytes of a chunked body, before its last chunk")
    }
  }

  /// Reads what of `rest` lies in one place, and removes it. `rest` must not be empty.
  private mutating func readPart(of rest: inout ArraySlice<UInt8>) throws(HTTPDefect) {
    switch place {
    case .content(let left):
      // A peer that sends this much is believed: an array that doubles would hold a large body one and a half times.
      if body.count >= Self.statedBytesMax { body.reserveCapacity(body.count + left) }
      let count = keep(left, of: &rest)
      place = count == left ? .end : .content(left: left - count)
    case .contentUntilClose:
      guard rest.count <= bytesMax - taken - body.count else { throw .bodyTooLarge(bytesMax: bytesMax) }
      _ = keep(rest.count, of: &rest)
    case .chunkSize:
      guard let line = try readLine(of: &rest) else { return }
      let size = try Self.chunkSize(line)
      guard size <= bytesMax - taken - body.count else { throw .bodyTooLarge(bytesMax: bytesMax) }
      place = size == 0 ? .trailers : .chunk(left: size)
    case .chunk(let left):
      let count = keep(left, of: &rest)
      place = count == left ? .chunkEnd : .chunk(left: left - count)
    case .chunkEnd:
      guard let byte = rest.popFirst(), byte == (line.isEmpty ? 0x0D : 0x0A) else {
        throw .malformed("a chunk of the body is longer than its size says")
      }
      if line.isEmpty {
        line = [byte]
      } else {
        line = []
        place = .chunkSize
      }
    case .trailers:
      guard let line = try readLine(of: &rest) else { return }
      if line.isEmpty {
        place = .end
        return
      }
      trailerBytes += line.count
      guard trailerBytes <= trailerBytesMax else { throw .headerTooLarge(bytesMax: trailerBytesMax) }
    case .end: break
    }
  }

  /// Moves at most `count` bytes to the body and returns how many there were.
  private mutating func keep(_ count: Int, of rest: inout ArraySlice<UInt8>) -> Int {
    let part = rest.prefix(count)
    body.append(contentsOf: part)
    rest = rest.dropFirst(part.count)
    return part.count
  }

  /// The line that ends in `rest`, without its end; nil if it does not end there.
  private mutating func readLine(of rest: inout ArraySlice<UInt8>) throws(HTTPDefect) -> [UInt8]? {
    let end = rest.firstIndex(of: 0x0A)
    let part = rest[..<(end ?? rest.endIndex)]
    guard line.count + part.count <= Self.lineBytesMax else {
      throw .malformed("a line of the chunked body has more than \(Self.lineBytesMax) bytes")
    }
    line.append(contentsOf: part)
    guard let end else {
      rest = []
      return nil
    }
    rest = rest[(end + 1)...]
    guard line.popLast() == 0x0D else { throw .malformed("a line of the chunked body ends without CR") }
    // A CR alone is the end of a line to some readers.
    guard line.allSatisfy({ ($0 >= 0x20 && $0 != 0x7F) || $0 == 0x09 }) else {
      throw .malformed("a line of the chunked body holds a control character")
    }
    defer { line = [] }
    return line
  }

  private static func chunkSize(_ line: [UInt8]) throws(HTTPDefect) -> Int {
    // Extensions, which follow a semicolon, are ignored. White space may stand before that, and nowhere else (RFC 9112,
    // 7.1.1).
    var digits = line.prefix { $0 != 0x3B }
    if digits.count < line.count {
      while digits.last == 0x20 || digits.last == 0x09 { digits.removeLast() }
    }
    guard let text = String(validating: digits, as: UTF8.self), (1...8).contains(text.utf8.count),
      text.utf8.allSatisfy(isHexDigit), let size = Int(text, radix: 16)
    else { throw .malformed("a chunk of the body has no size") }
    return size
  }

  private static func isHexDigit(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x46, 0x61...0x66: true
    default: false
    }
  }
}
