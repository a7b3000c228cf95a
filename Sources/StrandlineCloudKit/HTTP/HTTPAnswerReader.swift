// Reads one answer from pieces of any size. Pure: no socket, no clock, so that a test can cut and split an answer at every
// byte.

/// One answer, as far as it has come.
package struct HTTPAnswerReader: Sendable {
  /// The whole answer; nil as long as a part of it is missing.
  package private(set) var answer: HTTPResponse?
  /// Whether the next request may go over the same connection: the answer allows it, is whole and has its own end, and no
  /// byte followed it.
  package private(set) var keepsAlive = false
  /// Whether a byte has come.
  package private(set) var hasBegun = false

  /// How many bytes `takeBody` has taken out.
  package private(set) var takenBytes: Int64 = 0

  /// The bytes of the header that has not ended.
  private var head: [UInt8] = []
  private var searched = 0
  /// The bytes of the headers of interim answers, which count toward the limit.
  private var interimBytes = 0
  /// The answer as far as its last header says it; its status is 0 before.
  package private(set) var response = HTTPResponse(status: 0)
  /// nil before the header has ended.
  private var body: HTTPBodyReader?
  private let isHead: Bool
  private let headerBytesMax: Int
  private let bodyBytesMax: Int

  /// A reader of the answer to one request.
  ///
  /// - Parameters:
  ///   - method: the request's method. The answer to HEAD has no body.
  ///   - headerBytesMax: the most bytes of all headers, with those of interim answers, and of trailers.
  ///   - bodyBytesMax: the most bytes of the body.
  package init(method: String, headerBytesMax: Int, bodyBytesMax: Int) {
    isHead = method == "HEAD"
    self.headerBytesMax = headerBytesMax
    self.bodyBytesMax = bodyBytesMax
  }

  /// Reads the next bytes. Those that follow the answer are dropped, and `keepsAlive` is then false.
  package mutating func receive(_ bytes: [UInt8]) throws(HTTPDefect) {
    guard !bytes.isEmpty else { return }
    hasBegun = true
    guard answer == nil else {
      keepsAlive = false
      return
    }
    var rest = bytes[...]
    if body == nil {
      head.append(contentsOf: bytes)
      guard try readHeads() else { return }
      rest = head[...]
      head = []
    }
    // Removed while it changes, so that the body is not copied.
    guard var reader = body.take() else { return }
    let used = try reader.receive(rest)
    if used < rest.count { keepsAlive = false }
    if reader.isComplete { finish(reader) } else { body = reader }
  }

  /// Removes and returns the bytes of the body that arrived since the last call, for a caller that keeps no whole body.
  package mutating func takeBody() -> [UInt8] {
    var piece: [UInt8] = []
    if let whole = answer?.body {
      piece = whole
      answer?.body = []
    } else {
      piece = body?.take() ?? []
    }
    takenBytes += Int64(piece.count)
    return piece
  }

  /// The server has closed the connection.
  ///
  /// - Throws: `HTTPDefect.cut` if the answer is not whole.
  package mutating func end() throws(HTTPDefect) {
    keepsAlive = false
    guard answer == nil else { return }
    guard var reader = body else {
      throw .cut(
        hasBegun ? "the connection ended within the answer's header" : "the connection was lost before the answer")
    }
    try reader.end()
    finish(reader)
  }

  private mutating func finish(_ reader: HTTPBodyReader) {
    response.body = reader.body
    answer = response
  }

  /// Reads the headers in `head`, the interim ones and the last. Returns whether the last has ended; then `head` holds
  /// what follows it, and `body` is set.
  private mutating func readHeads() throws(HTTPDefect) -> Bool {
    while true {
      // At once, because a server of another protocol may wait for the client to go on.
      guard zip(head, "HTTP/1.".utf8).allSatisfy({ $0 == $1 }) else {
        throw .malformed("it does not begin with HTTP/1")
      }
      let end: Int?
      do throws(HTTPDefect) {
        end = try HTTPSyntax.endOfHead(in: head, from: searched, bytesMax: headerBytesMax - interimBytes)
      } catch {
        if case .headerTooLarge = error { throw .headerTooLarge(bytesMax: headerBytesMax) }
        throw error
      }
      guard let end else {
        searched = head.count
        return false
      }
      let isLast = try readHead(head[..<end])
      head.removeFirst(end + 4)
      searched = 0
      interimBytes += end + 4
      guard interimBytes <= headerBytesMax || isLast else { throw .headerTooLarge(bytesMax: headerBytesMax) }
      if isLast { return true }
    }
  }

  /// Reads one header. Returns false if it is that of an interim answer.
  private mutating func readHead(_ bytes: ArraySlice<UInt8>) throws(HTTPDefect) -> Bool {
    let lines = try HTTPSyntax.lines(of: bytes)
    let (status, isOld) = try Self.statusLine(lines[0])
    let headers = try HTTPSyntax.fields(of: lines.dropFirst())
    // 101 ends HTTP on the connection. The client never asks for it.
    guard status != 101 else { throw .malformed("it switches to another protocol") }
    if status < 200 { return false }
    if let coding = headers["content-encoding"], coding.lowercased() != "identity" {
      throw .unsupported("its body is compressed, which the request did not allow")
    }
    // Checked also where there is no body: two readers must not disagree.
    var framing = try HTTPSyntax.framing(of: headers) ?? .untilClose
    if isHead || status == 204 || status == 304 { framing = .length(0) }
    keepsAlive = framing != .untilClose && HTTPSyntax.keepsAlive(headers, isOld: isOld)
    response = HTTPResponse(status: status, headers: headers)
    body = try HTTPBodyReader(framing, bytesMax: bodyBytesMax, trailerBytesMax: headerBytesMax)
    return true
  }

  /// "HTTP/1.1 200 OK"; the words behind the status are ignored.
  private static func statusLine(_ line: ArraySlice<UInt8>) throws(HTTPDefect) -> (status: Int, isOld: Bool) {
    let parts = line.split(separator: 0x20, maxSplits: 2, omittingEmptySubsequences: false)
    let version = String(decoding: parts[0], as: UTF8.self)
    guard version == "HTTP/1.1" || version == "HTTP/1.0", parts.count >= 2, parts[1].count == 3,
      parts[1].allSatisfy({ (0x30...0x39).contains($0) }),
      let status = Int(String(decoding: parts[1], as: UTF8.self)), status >= 100
    else { throw .malformed("the status line is not 'HTTP/1.1 200 OK'") }
    return (status, version == "HTTP/1.0")
  }
}
