// One client's connection: requests in, answers out, one after the other, on a thread of its own that may block.
//
// Every wait has an end: for the first byte of a request, for its header, for its body, for a client that does
// not read its answer. Nothing is held beyond the limits on header and body. After a refusal that leaves unread
// bytes behind the connection ends, and is drained for a moment, so that the client can read why.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem

/// How long a connection waits, in milliseconds.
package struct HTTPTimeouts: Sendable {
  /// Between requests.
  package var idle: Int64 = 60_000
  /// From the first byte of a request to the end of its header.
  package var header: Int64 = 10_000
  /// From the end of the header to the end of the body.
  package var body: Int64 = 60_000
  /// For the client to take its answer.
  package var send: Int64 = 60_000
  /// For the client to hang up after a refusal.
  package var linger: Int64 = 1_000
  package init() {}
}

/// Serves one connection.
struct HTTPConnection {
  let connection: Connection
  let server: CloudServer
  let limits: ServerLimits
  let timeouts: HTTPTimeouts
  /// Whether a `Host` that is not this machine is refused: a page in a browser could otherwise be led here under
  /// another name.
  let isLoopback: Bool
  let isStopped: @Sendable () -> Bool
  private var buffer: [UInt8] = []
  private let clock: any SystemClock

  init(
    _ connection: Connection, server: CloudServer, limits: ServerLimits, timeouts: HTTPTimeouts, isLoopback: Bool,
    isStopped: @escaping @Sendable () -> Bool
  ) {
    self.connection = connection
    self.server = server
    self.limits = limits
    self.timeouts = timeouts
    self.isLoopback = isLoopback
    self.isStopped = isStopped
    clock = server.environment.clock
  }

  /// Answers requests until the client is gone, asks for the end, or must be refused.
  mutating func serve() {
    defer { connection.close() }
    while !isStopped() {
      do throws(HTTPRefusal) {
        guard try serveOne() else { return }
      } catch {
        refuse(error)
        return
      }
    }
  }

  /// Answers one request; false if there is none, or none may follow.
  private mutating func serveOne() throws(HTTPRefusal) -> Bool {
    guard let head = try readHead() else { return false }
    if isLoopback, let host = head.headers["host"], !Self.isThisMachine(host) {
      throw HTTPRefusal(403, "this server answers on loopback names only")
    }
    if case .length(let length) = head.body, length > limits.bodyBytesMax {
      throw HTTPRefusal(413, "a body of \(length) bytes; the limit is \(limits.bodyBytesMax)")
    }
    if head.expectsContinue, head.body != .length(0) {
      guard send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return false }
    }
    let body = try readBody(head)
    let request = HTTPRequest(
      method: head.method, origin: "http://" + (head.headers["host"] ?? "127.0.0.1"), path: head.path,
      query: head.query, headers: head.headers, body: body)
    // In pieces, so that a stop does not wait for a long latency.
    var latency = server.latencyMilliseconds
    while latency > 0, !isStopped() {
      clock.sleepBlocking(milliseconds: min(latency, 100))
      latency -= 100
    }
    switch server.answer(request) {
    case .respond(let response):
      guard send(Self.bytes(of: response, keepsAlive: head.keepsAlive, isHead: head.method == "HEAD")) else {
        return false
      }
      // A journal that failed ends the server; nobody is to wait for it on a connection.
      let goesOn = head.keepsAlive && server.failure == nil
      if !goesOn { hangUp() }
      return goesOn
    case .hang:
      while !isStopped(), !connection.waitUntilPeerCloses(timeoutMilliseconds: 500) {}
      return false
    }
  }

  // MARK: in

  /// The next request's head; nil if the client has none. The byte after the empty line is the first in `buffer`.
  private mutating func readHead() throws(HTTPRefusal) -> HTTPHead? {
    // Some clients send an empty line after a body; RFC 9112 (2.2) says to pass over it.
    var deadline: UInt64?
    var searched = 0
    while true {
      while searched == 0, buffer.starts(with: [0x0D, 0x0A]) { buffer.removeFirst(2) }
      if let end = Self.endOfHead(buffer, from: max(0, searched - 3)) {
        guard end <= limits.headerBytesMax else { throw tooLargeHead() }
        let head = try HTTPHead.parse(buffer[..<end])
        buffer.removeFirst(end + 4)
        return head
      }
      guard buffer.count <= limits.headerBytesMax else { throw tooLargeHead() }
      searched = buffer.count
      if deadline == nil, !buffer.isEmpty {
        deadline = clock.monotonicNanoseconds() &+ UInt64(timeouts.header) * 1_000_000
      }
      let chunk: [UInt8]
      do throws(SystemError) {
        chunk = try connection.receive(max: 16 << 10, timeoutMilliseconds: rest(deadline) ?? timeouts.idle)
      } catch {
        // Nobody is there to be told, unless half a request came.
        guard !buffer.isEmpty, error.isTimeout else { return nil }
        throw HTTPRefusal(408, "the header did not come in time")
      }
      guard !chunk.isEmpty else { return nil }
      buffer += chunk
    }
  }

  private func tooLargeHead() -> HTTPRefusal {
    HTTPRefusal(431, "a header of more than \(limits.headerBytesMax) bytes")
  }

  private static func endOfHead(_ bytes: [UInt8], from start: Int) -> Int? {
    var index = start
    while index + 3 < bytes.count {
      if bytes[index] == 0x0D, bytes[index + 1] == 0x0A, bytes[index + 2] == 0x0D, bytes[index + 3] == 0x0A {
        return index
      }
      index += 1
    }
    return nil
  }

  private func rest(_ deadline: UInt64?) -> Int64? {
    guard let deadline else { return nil }
    let now = clock.monotonicNanoseconds()
    return now >= deadline ? 0 : Int64(clamping: (deadline - now) / 1_000_000)
  }

  private mutating func readBody(_ head: HTTPHead) throws(HTTPRefusal) -> [UInt8] {
    let deadline = clock.monotonicNanoseconds() &+ UInt64(timeouts.body) * 1_000_000
    switch head.body {
    case .length(let length): return try take(length, deadline)
    case .chunked:
      var body: [UInt8] = []
      while true {
        let line = try takeLine(deadline)
        let digits = line.prefix { $0 != 0x3B }
        guard let text = String(validating: digits, as: UTF8.self)?.trimmingSpaces(), (1...8).contains(text.utf8.count),
          text.utf8.allSatisfy(Self.isHexDigit), let size = Int(text, radix: 16)
        else { throw HTTPRefusal(400, "a chunk without a size") }
        guard body.count + size <= limits.bodyBytesMax else {
          throw HTTPRefusal(413, "a body above the limit of \(limits.bodyBytesMax) bytes")
        }
        if size == 0 { break }
        body += try take(size, deadline)
        guard try take(2, deadline) == [0x0D, 0x0A] else { throw HTTPRefusal(400, "a chunk longer than its size") }
      }
      // Trailers mean nothing here; they may not be endless.
      var trailerBytes = 0
      while true {
        let line = try takeLine(deadline)
        if line.isEmpty { return body }
        trailerBytes += line.count
        guard trailerBytes <= limits.headerBytesMax else { throw tooLargeHead() }
      }
    }
  }

  private static func isHexDigit(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x46, 0x61...0x66: true
    default: false
    }
  }

  /// The next `count` bytes of the body.
  private mutating func take(_ count: Int, _ deadline: UInt64) throws(HTTPRefusal) -> [UInt8] {
    while buffer.count < count { try fill(deadline) }
    let taken = Array(buffer[..<count])
    buffer.removeFirst(count)
    return taken
  }

  /// The next line of a chunked body, without its end.
  private mutating func takeLine(_ deadline: UInt64) throws(HTTPRefusal) -> [UInt8] {
    while true {
      if let end = buffer.firstIndex(of: 0x0A) {
        guard end > 0, buffer[end - 1] == 0x0D else { throw HTTPRefusal(400, "a line that ends without CR") }
        let line = Array(buffer[..<(end - 1)])
        buffer.removeFirst(end + 1)
        return line
      }
      guard buffer.count <= 1024 else { throw HTTPRefusal(400, "a chunk's line without an end") }
      try fill(deadline)
    }
  }

  private mutating func fill(_ deadline: UInt64) throws(HTTPRefusal) {
    let chunk: [UInt8]
    do throws(SystemError) {
      chunk = try connection.receive(max: 64 << 10, timeoutMilliseconds: rest(deadline))
    } catch {
      throw error.isTimeout
        ? HTTPRefusal(408, "the body did not come in time") : HTTPRefusal(400, "the connection broke within a body")
    }
    guard !chunk.isEmpty else { throw HTTPRefusal(400, "the connection ended within a body") }
    buffer += chunk
  }

  // MARK: out

  private func refuse(_ refusal: HTTPRefusal) {
    let error = WireError(refusal.status == 413 ? .limitExceeded : .badRequest, refusal.words)
    var response = HTTPResponse(status: refusal.status, headers: ["Content-Type": "application/json; charset=UTF-8"])
    do { response.body = try WireJSON.encode(error) } catch { response.body = [] }
    if send(Self.bytes(of: response, keepsAlive: false, isHead: false)) { hangUp() }
  }

  /// Ends the answer and lets the client end the connection, so that it reads what was sent.
  private func hangUp() {
    connection.shutdown()
    _ = connection.waitUntilPeerCloses(timeoutMilliseconds: timeouts.linger)
  }

  /// False if the client is gone: there is nobody to tell.
  private func send(_ bytes: [UInt8]) -> Bool {
    do throws(SystemError) {
      try connection.send(bytes, timeoutMilliseconds: timeouts.send)
      return true
    } catch {
      return false
    }
  }

  private static func bytes(of response: HTTPResponse, keepsAlive: Bool, isHead: Bool) -> [UInt8] {
    var text = "HTTP/1.1 \(response.status) \(HTTPStatus.words(response.status))\r\n"
    for field in response.headers.fields { text += "\(field.name): \(field.value)\r\n" }
    text += "Content-Length: \(response.body.count)\r\n"
    text += keepsAlive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n"
    return Array(text.utf8) + (isHead ? [] : response.body)
  }

  private static func isThisMachine(_ host: String) -> Bool {
    var name = host.lowercased()[...]
    if name.hasPrefix("[") {
      name = name.prefix { $0 != "]" }.dropFirst()
      return name == "::1"
    }
    name = name.prefix { $0 != ":" }
    return name == "localhost" || name.hasPrefix("127.") || name.hasSuffix(".localhost")
  }
}
