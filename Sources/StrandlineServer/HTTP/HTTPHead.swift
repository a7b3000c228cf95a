// Parses a request's header, by the rules that the client reads answers with (HTTPSyntax).
//
// Pure: no socket, no clock. Any bytes give a head or a refusal with its status.

package import StrandlineCloudKit

/// A request without its body.
package struct HTTPHead: Sendable {
  package var method: String
  package var path: String
  package var query: String
  /// The host and port that the request is for: those of an absolute target, else the field `Host`. Nil in a request of
  /// HTTP/1.0 that names none.
  package var authority: String?
  package var headers = HTTPHeaders()
  package var body = HTTPFraming.length(0)
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

  /// The refusal of a request with a defect.
  package init(_ defect: HTTPDefect) {
    switch defect {
    case .malformed(let words), .cut(let words): self.init(400, words)
    case .unsupported(let words): self.init(501, words)
    case .headerTooLarge(let bytesMax): self.init(431, "the header has more than \(bytesMax) bytes")
    case .bodyTooLarge(let bytesMax): self.init(413, "the body has more than \(bytesMax) bytes")
    }
  }
}

extension HTTPHead {
  /// Parses a head: `bytes` are everything up to the empty line, without it.
  package static func parse(_ bytes: ArraySlice<UInt8>) throws(HTTPRefusal) -> HTTPHead {
    var lines: [ArraySlice<UInt8>]
    do throws(HTTPDefect) { lines = try HTTPSyntax.lines(of: bytes) } catch { throw HTTPRefusal(error) }
    let requestLine = lines.removeFirst()
    let parts = requestLine.split(separator: 0x20, omittingEmptySubsequences: false)
    guard parts.count == 3, !parts[0].isEmpty, parts[0].allSatisfy(HTTPSyntax.isTokenByte) else {
      throw HTTPRefusal(400, "the request line is not 'METHOD target HTTP/1.1'")
    }
    let version = String(decoding: parts[2], as: UTF8.self)
    guard version == "HTTP/1.1" || version == "HTTP/1.0" else {
      guard version.hasPrefix("HTTP/") else { throw HTTPRefusal(400, "the request line names no HTTP version") }
      throw HTTPRefusal(505, "this server supports HTTP/1.1 and HTTP/1.0 only")
    }
    let method = String(decoding: parts[0], as: UTF8.self)
    let (authority, path, query) = try target(parts[1], method)
    var head = HTTPHead(method: method, path: path, query: query)
    do throws(HTTPDefect) { head.headers = try HTTPSyntax.fields(of: lines) } catch { throw HTTPRefusal(error) }
    head.authority = authority ?? head.headers["host"]
    try head.frame(isOld: version == "HTTP/1.0")
    return head
  }

  private static func target(
    _ bytes: ArraySlice<UInt8>, _ method: String
  ) throws(HTTPRefusal) -> (authority: String?, path: String, query: String) {
    guard bytes.allSatisfy({ (0x21...0x7E).contains($0) }) else {
      throw HTTPRefusal(400, "the target holds a byte that must be percent-encoded")
    }
    var text = String(decoding: bytes, as: UTF8.self)[...]
    // RFC 9112 (3.2.4): the server as a whole.
    if text == "*", method == "OPTIONS" { return (nil, "*", "") }
    // The absolute form is meant for proxies; RFC 9112 (3.2.2) requires servers to accept it too, and to take its host
    // instead of the one in `Host`.
    var authority: String?
    if text.prefix(7).lowercased() == "http://" {
      text = text.dropFirst(7)
      let end = text.firstIndex { $0 == "/" || $0 == "?" } ?? text.endIndex
      authority = String(text[..<end])
      text = text[end...]
      if !text.hasPrefix("/") { text = "/" + text }
    }
    guard text.hasPrefix("/") else { throw HTTPRefusal(400, "the target is not a path") }
    guard let mark = text.firstIndex(of: "?") else { return (authority, String(text), "") }
    return (authority, String(text[..<mark]), String(text[text.index(after: mark)...]))
  }

  /// Where the body ends, and whether another request may follow.
  private mutating func frame(isOld: Bool) throws(HTTPRefusal) {
    let hosts = headers.all("host").count
    guard hosts == 1 || (isOld && hosts == 0) else {
      throw HTTPRefusal(400, "the request must have exactly one Host header")
    }
    do throws(HTTPDefect) {
      body = try HTTPSyntax.framing(of: headers) ?? .length(0)
    } catch {
      throw HTTPRefusal(error)
    }
    // RFC 9112 (6.1): whoever passed this on may have taken the body for another.
    guard !isOld || headers["transfer-encoding"] == nil else {
      throw HTTPRefusal(400, "a request of HTTP/1.0 has no Transfer-Encoding")
    }
    keepsAlive = HTTPSyntax.keepsAlive(headers, isOld: isOld)
    if let expectation = headers["expect"] {
      guard expectation.lowercased() == "100-continue" else {
        throw HTTPRefusal(417, "the only supported expectation is '100-continue'")
      }
      expectsContinue = !isOld
    }
  }
}

/// The names of statuses.
package enum HTTPStatus {
  package static func words(_ status: Int) -> String {
    switch status {
    case 200: "OK"
    case 204: "No Content"
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
