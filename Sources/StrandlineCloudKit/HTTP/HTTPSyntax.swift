// What a request and an answer of HTTP/1.1 have in common (RFC 9112): lines, fields, and what says where a body ends.
//
// The client and the server read with these rules, as strictly as the standard allows: two readers that disagree about
// where a message ends see different messages (request smuggling). Pure: no socket, no clock.

/// Why bytes are no message of HTTP/1.1 that a reader accepts. The words hold no byte of the message.
package enum HTTPDefect: Error, Hashable, Sendable {
  /// The bytes break a rule of the format.
  case malformed(String)
  /// The message is valid and uses a coding that the reader does not know.
  case unsupported(String)
  /// The header, or the trailers of a body, are above the reader's limit.
  case headerTooLarge(bytesMax: Int)
  /// The body is above the reader's limit.
  case bodyTooLarge(bytesMax: Int)
  /// The connection ended before the message did.
  case cut(String)
}

/// What says where a body ends.
package enum HTTPFraming: Hashable, Sendable {
  /// After so many bytes.
  case length(Int)
  /// With the last chunk and its trailers.
  case chunked
  /// With the connection. Only an answer may have such a body.
  case untilClose
}

/// The rules.
package enum HTTPSyntax {
  /// The offset of the empty line that ends a header, or nil if it has not come. The header's bytes are those before it,
  /// and the body begins 4 bytes behind it.
  ///
  /// - Parameters:
  ///   - bytes: what has come.
  ///   - start: the number of bytes that earlier calls have searched.
  ///   - bytesMax: the most bytes of a header.
  /// - Throws: `HTTPDefect.malformed` if a line ends without CR, because such a header has no end that every reader sees;
  ///   `.headerTooLarge`.
  package static func endOfHead(in bytes: [UInt8], from start: Int, bytesMax: Int) throws(HTTPDefect) -> Int? {
    var index = start
    while index < bytes.count {
      if bytes[index] == 0x0A {
        guard index > 0, bytes[index - 1] == 0x0D else { throw .malformed("a line of the header ends without CR") }
        if index >= 3, bytes[index - 2] == 0x0A {
          guard index - 3 <= bytesMax else { throw .headerTooLarge(bytesMax: bytesMax) }
          return index - 3
        }
      }
      index += 1
    }
    guard bytes.count <= bytesMax + 3 else { throw .headerTooLarge(bytesMax: bytesMax) }
    return nil
  }

  /// The lines of a header, without their ends.
  package static func lines(of head: ArraySlice<UInt8>) throws(HTTPDefect) -> [ArraySlice<UInt8>] {
    var lines: [ArraySlice<UInt8>] = []
    var start = head.startIndex
    var index = head.startIndex
    while index < head.endIndex {
      let byte = head[index]
      if byte == 0x0D, index + 1 < head.endIndex, head[index + 1] == 0x0A {
        lines.append(head[start..<index])
        index += 2
        start = index
        continue
      }
      guard byte >= 0x20 || byte == 0x09, byte != 0x7F else { throw .malformed("the header holds a control character") }
      index += 1
    }
    lines.append(head[start...])
    return lines
  }

  /// The fields of a header's lines behind the first.
  package static func fields(of lines: some Sequence<ArraySlice<UInt8>>) throws(HTTPDefect) -> HTTPHeaders {
    var headers = HTTPHeaders()
    for line in lines {
      guard let colon = line.firstIndex(of: 0x3A), colon > line.startIndex, line[..<colon].allSatisfy(isTokenByte),
        let value = String(validating: line[(colon + 1)...], as: UTF8.self)
      else { throw .malformed("a header line is not 'Name: value'") }
      headers.append(String(decoding: line[..<colon], as: UTF8.self), value.trimmingSpaces())
    }
    return headers
  }

  /// What a header says about the end of its body; nil if it says nothing.
  package static func framing(of headers: HTTPHeaders) throws(HTTPDefect) -> HTTPFraming? {
    let lengths = Set(headers.all("content-length"))
    let codings = headers.all("transfer-encoding")
    if !codings.isEmpty {
      guard lengths.isEmpty else { throw .malformed("Content-Length and Transfer-Encoding together") }
      guard codings.count == 1, codings[0].lowercased() == "chunked" else {
        throw .unsupported("the only supported transfer coding is 'chunked'")
      }
      return .chunked
    }
    guard let length = lengths.first else { return nil }
    guard lengths.count == 1, !length.isEmpty, length.utf8.count <= 18,
      length.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let count = Int(length)
    else { throw .malformed("Content-Length is not one number") }
    return .length(count)
  }

  /// Whether another message may follow on the connection.
  ///
  /// - Parameter isOld: whether the message is of HTTP/1.0.
  package static func keepsAlive(_ headers: HTTPHeaders, isOld: Bool) -> Bool {
    let options = headers.all("connection").joined(separator: ",").lowercased()
      .split(separator: ",").map { String($0).trimmingSpaces() }
    return isOld ? options.contains("keep-alive") && !options.contains("close") : !options.contains("close")
  }

  /// RFC 9110, 5.6.2: the bytes of a method or a field's name.
  package static func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
    default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }
  }
}
