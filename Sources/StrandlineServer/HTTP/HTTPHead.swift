// Parses a request's header as strictly as RFC 9112 allows: if a proxy and the server disagree about where a message
// ends, they see different requests (request smuggling).
//
// Pure: no socket, no clock. Any bytes give a head or a refusal with its status.

package import StrandlineCloudKit

/// A request without its body.
package struct HTTPHead: Sendable {
  package enum Body: Hashable, Sendable {
    case length(Int)
    case chunked
  }
  package var method: String
  package var path: String
  package var query: String
  package var headers = HTTPHeaders()
  package var body = Body.length(0)
  package var keepsAlive = true
  package var expectsContinue = false
}

/// A refusal of a request that is not valid HTTP, or not for this server. The connection ends after it.
package struct HTTPRefusal: Error, Hashable, Sendable {
  package var status: Int
  package var words: String
  package init(_ status: Int, _ words: String) {
    self.status = status
    self.words = words
  }
}

extension HTTPHead {
  /// Parses a head: `bytes` are everything up to the empty line, without it.
  package static func parse(_ bytes: ArraySlice<UInt8>) throws(HTTPRefusal) -> HTTPHead {
    var lines = try split(bytes)
    let requestLine = lines.removeFirst()
    let parts = requestLine.split(separator: 0x20, omittingEmptySubsequences: false)
    guard parts.count == 3, !parts[0].isEmpty, parts[0].allSatisfy(isTokenByte) else {
      throw HTTPRefusal(400, "the request line is not 'METHOD target HTTP/1.1'")
    }
    let version = String(decoding: parts[2], as: UTF8.self)
    guard version == "HTTP/1.1" || version == "HTTP/1.0" else {
      guard version.hasPrefix("HTTP/") else { throw HTTPRefusal(400, "the request line names no HTTP version") }
      throw HTTPRefusal(505, "this server supports HTTP/1.1 and HTTP/1.0 only")
    }
    let (path, query) = try target(parts[1])
    var head = HTTPHead(method: String(decoding: parts[0], as: UTF8.self), path: path, query: query)
    for line in lines {
      guard let colon = line.firstIndex(of: 0x3A), colon > line.startIndex,
        line[..<colon].allSatisfy(isTokenByte),
        let value = String(validating: line[(colon + 1)...], as: UTF8.self)
      else { throw HTTPRefusal(400, "a header line is not 'Name: value'") }
      head.headers.append(String(decoding: line[..<colon], as: UTF8.self), value.trimmingSpaces())
    }
    try head.frame(isOld: version == "HTTP/1.0")
    return head
  }

  private static func split(_ bytes: ArraySlice<UInt8>) throws(HTTPRefusal) -> [ArraySlice<UInt8>] {
    var lines: [ArraySlice<UInt8>] = []
    var start = bytes.startIndex
    var index = bytes.startIndex
    while index < bytes.endIndex {
      let byte = bytes[index]
      if byte == 0x0D, index + 1 < bytes.endIndex, bytes[index + 1] == 0x0A {
        lines.append(bytes[start..<index])
        index += 2
        start = index
        continue
      }
      guard byte >= 0x20 || byte == 0x09, byte != 0x7F else {
        throw HTTPRefusal(400, "the header holds a control character")
      }
      index += 1
    }
    lines.append(bytes[start...])
    return lines
  }

  private static func target(_ bytes: ArraySlice<UInt8>) throws(HTTPRefusal) -> (path: String, query: String) {
    guard bytes.allSatisfy({ (0x21...0x7E).contains($0) }) else {
      throw HTTPRefusal(400, "the target holds a byte that must be percent-encoded")
    }
    var text = String(decoding: bytes, as: UTF8.self)[...]
    // The absolute form is meant for proxies; RFC 9112 (3.2.2) requires servers to accept it too.
    if text.hasPrefix("http://") {
      text = text.dropFirst(7)
      text = text.firstIndex(of: "/").map { text[$0...] } ?? "/"
    }
    guard text.hasPrefix("/") else { throw HTTPRefusal(400, "the target is not a path") }
    guard let mark = text.firstIndex(of: "?") else { return (String(text), "") }
    return (String(text[..<mark]), String(text[text.index(after: mark)...]))
  }

  /// Where the body ends, and whether another request may follow.
  private mutating func frame(isOld: Bool) throws(HTTPRefusal) {
    guard isOld || headers.all("host").count == 1 else {
      throw HTTPRefusal(400, "the request must have exactly one Host header")
    }
    let lengths = Set(headers.all("content-length"))
    let codings = headers.all("transfer-encoding")
    if !codings.isEmpty {
      guard lengths.isEmpty else { throw HTTPRefusal(400, "Content-Length and Transfer-Encoding together") }
      guard codings.count == 1, codings[0].lowercased() == "chunked" else {
        throw HTTPRefusal(501, "the only supported transfer coding is 'chunked'")
      }
      body = .chunked
    } else if let length = lengths.first {
      guard lengths.count == 1, !length.isEmpty, length.utf8.count <= 18,
        length.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let count = Int(length)
      else { throw HTTPRefusal(400, "Content-Length is not one number") }
      body = .length(count)
    }
    let connection = headers.all("connection").joined(separator: ",").lowercased()
    let options = connection.split(separator: ",").map { String($0).trimmingSpaces() }
    keepsAlive = isOld ? options.contains("keep-alive") : !options.contains("close")
    if let expectation = headers["expect"] {
      guard expectation.lowercased() == "100-continue" else {
        throw HTTPRefusal(417, "the only supported expectation is '100-continue'")
      }
      expectsContinue = !isOld
    }
  }

  /// RFC 9110, 5.6.2: the bytes of a method or a header's name.
  private static func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
    default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }
  }
}

/// The names of statuses.
package enum HTTPStatus {
  package static func words(_ status: Int) -> String {
    switch status {
    case 200: "OK"
    case 400: "Bad Request"
    case 401: "Unauthorized"
    case 403: "Forbidden"
    case 404: "Not Found"
    case 405: "Method Not Allowed"
    case 408: "Request Timeout"
    case 409: "Conflict"
    case 413: "Content Too Large"
    case 417: "Expectation Failed"
    case 421: "Misdirected Request"
    case 429: "Too Many Requests"
    case 431: "Request Header Fields Too Large"
    case 500: "Internal Server Error"
    case 501: "Not Implemented"
    case 503: "Service Unavailable"
    case 505: "HTTP Version Not Supported"
    default: "Status \(status)"
    }
  }
}
