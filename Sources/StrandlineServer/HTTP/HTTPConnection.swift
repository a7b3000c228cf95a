// Serves one client's connection: reads requests and sends answers, one after the other, on a thread that may block.
//
// Every wait has a time-out: for the first byte of a request, for its header, for its body, and for a client that does
// not read its answer. Memory is bounded by the limits on header and body. After a refusal that leaves bytes unread the
// connection ends; it is first drained for a moment, so that the client can read the refusal.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem

/// The time-outs of a connection, in milliseconds.
package struct HTTPTimeouts: Sendable {
  /// Between requests.
  package var idle: Int64 = 60_000
  /// From the first byte of a request to the end of its header.
  package var header: Int64 = 10_000
  /// From the end of the header to the end of the body.
  package var body: Int64 = 60_000
  /// For the client to read its answer.
  package var send: Int64 = 60_000
  /// For the client to read the next bytes of its answer.
  package var stall: Int64 = 10_000
  /// For the client to close the connection after the last answer.
  package var linger: Int64 = 1_000
  package init() {}
}

/// Serves one connection.
struct HTTPConnection {
  let connection: Connection
  private let id: UInt64
  private let table: ConnectionTable
  let service: any HTTPService
  let limits: ServerLimits
  let timeouts: HTTPTimeouts
  let access: HTTPAccess
  private var buffer: [UInt8] = []
  /// Bodies and answers up to this size do not count toward the limit of all of them.
  private static let smallBodyBytes = 64 << 10
  /// The allowed origin of the page that has sent the current request; nil if it comes from none.
  private var origin: String?
  /// The current request, once it is read.
  private var target: (method: String, path: String)?
  private let clock: any SystemClock

  init(
    _ connection: Connection, _ id: UInt64, in table: ConnectionTable, service: any HTTPService, limits: ServerLimits,
    timeouts: HTTPTimeouts, access: HTTPAccess
  ) {
    self.id = id
    self.table = table
    self.connection = connection
    self.service = service
    self.limits = limits
    self.timeouts = timeouts
    self.access = access
    clock = service.clock
  }

  /// Answers requests until the client has closed the connection, asks to close it, or must be refused.
  mutating func serve() {
    defer { connection.close() }
    // Until the server stops, too: it closes the connection, and begins no answer.
    while true {
      do throws(HTTPRefusal) {
        guard try serveOne() else { return }
      } catch {
        refuse(error)
        return
      }
    }
  }

  /// Answers one request. Returns false if there is none, or if none may follow.
  private mutating func serveOne() throws(HTTPRefusal) -> Bool {
    (origin, target) = (nil, nil)
    guard let head = try readHead() else { return false }
    target = (head.method, head.path)
    // Before the body, so that a foreign page cannot even make the server read one.
    try access.checkHost(of: head)
    origin = try access.checkOrigin(of: head)
    if let sink = service.sink(for: request(head, [])) { return try serve(head, into: sink) }
    if case .length(let length) = head.body, length > limits.bodyBytesMax {
      throw HTTPRefusal(413, "the body has \(length) bytes; the limit is \(limits.bodyBytesMax)")
    }
    if head.expectsContinue, head.body != .length(0) {
      guard send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return false }
    }
    let body = try readBody(head)
    // If the connection was cut meanwhile, the request has no effect: its client gets no answer.
    guard table.beginAnswer(id) else { return false }
    defer { table.endAnswer(id) }
    if let answer = access.preflight(head, from: origin) { return finish(answer, to: head) }
    switch answer(head, body) {
    case .respond(var response):
      access.permit(origin, in: &response.headers)
      return finish(response, to: head)
    case .hang:
      while !table.isStopped, !connection.waitUntilPeerCloses(timeoutMilliseconds: 500) {}
      return false
    case .stream(var headers, let length, let body):
      // Who waits for news may be cut for a new connection, as a silent one is; who gets a content may not.
      if length == nil { table.endAnswer(id) }
      access.permit(origin, in: &headers)
      stream(HTTPResponse(status: 200, headers: headers), length, body)
      return false
    }
  }

  /// Answers a request whose body goes on as it comes.
  private mutating func serve(_ head: HTTPHead, into sink: IncomingContent) throws(HTTPRefusal) -> Bool {
    if head.expectsContinue, head.body != .length(0) {
      guard send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return false }
    }
    do throws(HTTPRefusal) { try readBody(head, into: sink) } catch {
      sink.abandon()
      throw error
    }
    guard table.beginAnswer(id) else {
      sink.abandon()
      return false
    }
    defer { table.endAnswer(id) }
    waitForLatency(of: request(head, []))
    var response = sink.answer()
    access.permit(origin, in: &response.headers)
    return finish(response, to: head)
  }

  private func request(_ head: HTTPHead, _ body: consuming [UInt8]) -> HTTPRequest {
    HTTPRequest(
      method: head.method, origin: "http://" + (head.authority ?? "127.0.0.1"), path: head.path,
      query: head.query, headers: head.headers, body: body)
  }

  private func answer(_ head: HTTPHead, _ body: consuming [UInt8]) -> HTTPAnswer {
    let request = request(head, body)
    waitForLatency(of: request)
    return service.serve(request)
  }

  private func waitForLatency(of request: HTTPRequest) {
    // In steps, so that a stop does not wait for a long latency.
    var latency = service.delayMilliseconds(of: request)
    while latency > 0, !table.isStopped {
      clock.sleepBlocking(milliseconds: min(latency, 100))
      latency -= 100
    }
  }

  /// Sends an answer of which the end of the connection is the end.
  private func stream(_ response: HTTPResponse, _ length: Int?, _ body: (HTTPStream) -> Void) {
    guard send(Self.head(of: response, length: length, keepsAlive: false)) else { return }
    body(
      HTTPStream(
        send: { [self] bytes in send(bytes) },
        pause: { [self] milliseconds in
          // In steps, so that a stop does not wait for a long pause.
          var left = milliseconds
          while !table.isStopped {
            if connection.waitUntilPeerCloses(timeoutMilliseconds: min(left, 100)) { return false }
            left -= 100
            if left <= 0 { return !table.isStopped }
          }
          return false
        }))
  }

  /// Sends an answer. Returns whether another request may follow.
  private func finish(_ response: HTTPResponse, to head: HTTPHead) -> Bool {
    let body = head.method == "HEAD" ? [] : response.body
    var first = Self.head(of: response, length: response.body.count, keepsAlive: head.keepsAlive)
    // A small body goes with its head, in one packet; a large one is not copied for that.
    let isSmall = body.count <= Self.smallBodyBytes
    if isSmall {
      first += body
    } else {
      // What it takes, which is up to twice what it has: it grew while it was written.
      table.beginSending(body.capacity, for: id)
    }
    guard send(first), isSmall || send(body) else { return false }
    // If the journal has failed the server stops, so the connection ends.
    let staysOpen = head.keepsAlive && service.failure == nil
    if !staysOpen { shutDown() }
    return staysOpen
  }

  // MARK: Reading

  /// The next request's head; nil if the client sends none. Afterwards `buffer` begins with the body.
  private mutating func readHead() throws(HTTPRefusal) -> HTTPHead? {
    // The time for a header begins with its first byte, also if that is skipped.
    var deadline: UInt64?
    var searched = 0
    var hasBegun = !buffer.isEmpty
    while true {
      // Some clients send an empty line after a body; RFC 9112 (2.2) says to skip it.
      if searched == 0, buffer.first == 0x0D {
        var skipped = 0
        while buffer[skipped...].starts(with: [0x0D, 0x0A]) { skipped += 2 }
        buffer.removeFirst(skipped)
      }
      if let end = try endOfHead(from: searched) {
        let head = try HTTPHead.parse(buffer[..<end])
        consume(end + 4)
        return head
      }
      // A CR alone may be the beginning of an empty line.
      searched = buffer.count == 1 ? 0 : buffer.count
      if deadline == nil, hasBegun {
        deadline = clock.monotonicNanoseconds() &+ UInt64(timeouts.header) * 1_000_000
      }
      let chunk: [UInt8]
      do throws(SystemError) {
        chunk = try connection.receive(
          max: 16 << 10, timeoutMilliseconds: remainingMilliseconds(until: deadline) ?? timeouts.idle)
      } catch {
        // An idle client gets no answer; one that sent a part of a request gets a refusal.
        guard !buffer.isEmpty, error.isTimeout else { return nil }
        throw HTTPRefusal(408, "the header did not arrive within \(timeouts.header) ms")
      }
      guard !chunk.isEmpty else { return nil }
      append(chunk)
      hasBegun = true
    }
  }

  private func endOfHead(from start: Int) throws(HTTPRefusal) -> Int? {
    do throws(HTTPDefect) {
      return try HTTPSyntax.endOfHead(in: buffer, from: start, bytesMax: limits.headerBytesMax)
    } catch {
      throw HTTPRefusal(error)
    }
  }

  private func remainingMilliseconds(until deadline: UInt64?) -> Int64? {
    guard let deadline else { return nil }
    let now = clock.monotonicNanoseconds()
    return now >= deadline ? 0 : Int64(clamping: (deadline - now) / 1_000_000)
  }

  private mutating func readBody(_ head: HTTPHead) throws(HTTPRefusal) -> [UInt8] {
    let deadline = clock.monotonicNanoseconds() &+ UInt64(timeouts.body) * 1_000_000
    var reader: HTTPBodyReader
    do throws(HTTPDefect) {
      reader = try HTTPBodyReader(head.body, bytesMax: limits.bodyBytesMax, trailerBytesMax: limits.headerBytesMax)
    } catch {
      throw HTTPRefusal(error)
    }
    while true {
      let used: Int
      do throws(HTTPDefect) { used = try reader.receive(buffer[...]) } catch { throw HTTPRefusal(error) }
      consume(used)
      if reader.body.count > Self.smallBodyBytes { table.hold(reader.body.count, for: id) }
      if reader.isComplete { return reader.body }
      try fillBuffer(until: deadline)
    }
  }

  /// Hands the body to `sink` as it comes. The time for it begins again with each piece.
  private mutating func readBody(_ head: HTTPHead, into sink: IncomingContent) throws(HTTPRefusal) {
    var reader: HTTPBodyReader
    do throws(HTTPDefect) {
      reader = try HTTPBodyReader(head.body, bytesMax: .max, trailerBytesMax: limits.headerBytesMax)
    } catch {
      throw HTTPRefusal(error)
    }
    while true {
      let used: Int
      do throws(HTTPDefect) { used = try reader.receive(buffer[...]) } catch { throw HTTPRefusal(error) }
      consume(used)
      let piece = reader.take()
      if !piece.isEmpty { sink.write(piece) }
      if reader.isComplete { return }
      try fillBuffer(until: clock.monotonicNanoseconds() &+ UInt64(timeouts.body) * 1_000_000)
    }
  }

  private mutating func fillBuffer(until deadline: UInt64) throws(HTTPRefusal) {
    let chunk: [UInt8]
    do throws(SystemError) {
      chunk = try connection.receive(max: 64 << 10, timeoutMilliseconds: remainingMilliseconds(until: deadline))
    } catch {
      throw error.isTimeout
        ? HTTPRefusal(408, "the body did not arrive within \(timeouts.body) ms")
        : HTTPRefusal(400, "the connection broke within a body")
    }
    guard !chunk.isEmpty else { throw HTTPRefusal(400, "the connection ended within a body") }
    append(chunk)
  }

  /// Removes bytes that were read. An idle connection keeps no memory.
  private mutating func consume(_ count: Int) {
    if count == buffer.count { buffer = [] } else { buffer.removeFirst(count) }
  }

  private mutating func append(_ chunk: [UInt8]) {
    // Mostly a request comes in one piece: then it is not copied.
    if buffer.isEmpty { buffer = chunk } else { buffer += chunk }
  }

  // MARK: Writing

  private func refuse(_ refusal: HTTPRefusal) {
    let code: CloudError.Code =
      switch refusal.status {
      case 403: .accessDenied
      case 413: .limitExceeded
      default: .badRequest
      }
    var response = HTTPResponse(
      status: refusal.status, headers: ["Content-Type": "application/json; charset=UTF-8"],
      body: WireJSON.encode(WireError(code, refusal.words)))
    access.permit(origin, in: &response.headers)
    service.wasRefused(RefusedRequest(target: target, status: response.status, response: response.body))
    if send(Self.head(of: response, length: response.body.count, keepsAlive: false) + response.body) { shutDown() }
  }

  /// Ends the sending side and waits for the client to close its own, so that it reads what was sent.
  private func shutDown() {
    connection.shutdown()
    _ = connection.waitUntilPeerCloses(timeoutMilliseconds: timeouts.linger)
  }

  /// Sends bytes. Returns false if the client has closed the connection or does not read.
  private func send(_ bytes: [UInt8]) -> Bool {
    do throws(SystemError) {
      try connection.send(bytes, timeoutMilliseconds: timeouts.send, stallMilliseconds: timeouts.stall)
      return true
    } catch {
      return false
    }
  }

  /// An answer without its body.
  ///
  /// - Parameter length: of the body; nil if the end of the connection ends it.
  private static func head(of response: HTTPResponse, length: Int?, keepsAlive: Bool) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(512)
    bytes += "HTTP/1.1 ".utf8
    bytes += String(response.status).utf8
    bytes += " ".utf8
    bytes += HTTPStatus.words(response.status).utf8
    for field in response.headers.fields {
      bytes += "\r\n".utf8
      bytes += field.name.utf8
      bytes += ": ".utf8
      bytes += field.value.utf8
    }
    // RFC 9110 (8.6): 204 has no length.
    if let length, response.status != 204 {
      bytes += "\r\nContent-Length: ".utf8
      bytes += String(length).utf8
    }
    bytes += (keepsAlive ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n").utf8
    return bytes
  }
}
