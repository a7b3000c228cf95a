// Sends requests over sockets of our own: to `http:` addresses plain, to `https:` addresses under the system's OpenSSL where the
// system brings no TLS for Swift.
//
// FoundationNetworking on Linux sends a POST a second time, without its body, when a kept-alive connection dies before the
// answer, occupies a core while a server works on a large body, hangs at a 401 that asks for a password, and ends the process if
// a connection ends within a header. Here a request is written once. It is written again only if no byte of it was written, which
// is the one case in which the server cannot have seen it. Each request has a thread that blocks in poll(2); Exchange.swift decides
// what its caller is told.

package import Strandline
package import StrandlineSystem

/// Sends requests over connections of its own that it keeps open for the next request.
///
/// To an `http:` address nothing is encrypted: it is for servers on this machine and in a network that is trusted. To an `https:`
/// address TLS 1.2 or later is spoken, and the server's certificate must be for the address's host and of an authority that is
/// trusted; on Apple's systems such an address is refused, because URLSession is for it there. It follows no redirect (the
/// caller gets the 3xx answer, so no token travels to another host), uses no proxy, speaks no HTTP/2, and asks for no compression.
///
/// A request is sent at most once: if its connection breaks after a byte of it was written, the call throws. Up to 4 idle
/// connections to each server are kept, for 30 s each.
package final class SocketTransport: Transport, CustomStringConvertible {
  private let limits: SocketLimits
  private let pool = ConnectionPool()
  private let trust: ServerTrust
  private let clock: any SystemClock

  /// A transport with its own connections. The clock decides when the total time has passed; the system measures the waits.
  package init(
    _ limits: SocketLimits = SocketLimits(), trust: ServerTrust = ServerTrust(),
    clock: any SystemClock = SystemEnvironment.real.clock
  ) {
    self.limits = limits
    self.trust = trust
    self.clock = clock
  }

  /// A quarter of a second, and zero to a server on this machine.
  package func minimumInterval(to origin: String) -> Duration { HTTPOrigin.minimumInterval(to: origin) }

  /// What it is; requests in flight hold credentials.
  package var description: String { "transport over sockets" }

  /// Sends a request and returns the whole answer; see `Transport.send(_:)`.
  ///
  /// - Throws: also `CloudError(.badRequest)` if the request cannot be written as HTTP/1.1: a path without "/" at its
  ///   beginning, a control character in a header, or a field that the transport writes itself (`Host`, `Content-Length`,
  ///   `Connection`).
  package func send(_ request: HTTPRequest) async throws -> HTTPResponse { try await send(request, Content()) }

  /// Sends a request with a content, of which at most a piece is in memory.
  package func send(_ request: HTTPRequest, body: ContentSource) async throws -> HTTPResponse {
    try await send(request, Content(source: body))
  }

  /// Fetches a content, of which at most a piece is in memory.
  package func send(_ request: HTTPRequest, into sink: ContentSink) async throws -> HTTPResponse {
    try await send(request, Content(sink: sink))
  }

  /// A content that goes with a request or comes with its answer.
  fileprivate struct Content: Sendable {
    var source: ContentSource?
    var sink: ContentSink?
  }

  private func send(_ request: HTTPRequest, _ content: Content) async throws -> HTTPResponse {
    guard let server = HTTPOrigin(request.origin) else {
      throw CloudError(
        .networkError, reason: "'\(request.origin)' is not a server's address; give http://host:port or https://host")
    }
    guard ServerTrust.schemes.contains(server.scheme) else {
      throw CloudError(.networkError, reason: "\(request.origin): the transport over sockets carries http: only")
    }
    guard let message = HTTPRequestWriter.bytes(of: request, to: server, more: content.source?.size ?? 0) else {
      throw CloudError(
        .badRequest, reason: "\(request.origin): the request's method, path or header cannot be written as HTTP/1.1")
    }
    let call = SocketCall(
      message, content, method: request.method, origin: request.origin, server: server, limits: limits,
      shared: SocketCall.Shared(pool: pool, trust: trust, clock: clock))
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        call.update { $0.wait(continuation) }
      }
    } onCancel: {
      // May run before the caller waits, or concurrently.
      call.update { $0.cancel() }
    }
  }
}

/// How long a request may take, and how large its answer may be.
package struct SocketLimits: Sendable {
  /// For each address of the host, until it is connected; and then for TLS's handshake. The name's resolution comes before, and
  /// takes as long as the system's resolver allows.
  package var connectMilliseconds: Int64 = 10_000
  /// From the end of the request to the first byte of the answer: the time that the server works.
  package var answerMilliseconds: Int64 = 60_000
  /// Between two bytes of the answer, and while the server takes no byte of the request.
  package var idleMilliseconds: Int64 = 60_000
  /// For the request and its answer together.
  package var totalMilliseconds: Int64 = 300_000
  package var headerBytesMax = 64 << 10
  package var answerBytesMax = 64 << 20
  package init() {}

  /// Seconds as milliseconds: from 0, which also NaN and negative numbers become, to 30 years.
  static func milliseconds(_ seconds: Double) -> Int64 { seconds > 0 ? Int64(min(seconds * 1_000, 1e12)) : 0 }
}

/// One request: the state that its caller, the task that cancels it and its thread share.
private final class SocketCall: Sendable {
  typealias Caller = CheckedContinuation<HTTPResponse, any Error>

  /// The request, but for the content that follows it.
  private let message: [UInt8]
  private let content: SocketTransport.Content
  private let method: String
  private let server: HTTPOrigin
  private let limits: SocketLimits
  private let shared: Shared
  private let exchange: OrderedMutex<Exchange<Caller>>

  /// What the requests of one transport have in common.
  struct Shared: Sendable {
    var pool: ConnectionPool
    var trust: ServerTrust
    var clock: any SystemClock
  }

  private struct Link {
    var connection: Channel?
    var isCancelled = false
  }
  private let link = OrderedMutex(Link())

  init(
    _ message: [UInt8], _ content: SocketTransport.Content, method: String, origin: String, server: HTTPOrigin,
    limits: SocketLimits, shared: Shared
  ) {
    self.message = message
    self.content = content
    self.method = method
    self.server = server
    self.limits = limits
    self.shared = shared
    exchange = OrderedMutex(Exchange(origin: origin, answerBytesMax: limits.answerBytesMax))
  }

  /// Gives an input to the exchange and carries out the actions, outside of its lock.
  func update(_ input: (inout Exchange<Caller>) -> [Exchange<Caller>.Action]) {
    for action in exchange.withLock({ input(&$0) }) {
      switch action {
      case .start: start()
      case .resume(let caller, let outcome): caller.resume(with: outcome)
      case .cancel: cancel()
      }
    }
  }

  private func start() {
    do throws(SystemError) {
      try BlockingThread.start(name: "strandline-send") { self.run() }
    } catch {
      update { $0.complete(.failed("cannot start a thread for the request: \(error)")) }
    }
  }

  /// Closes the connection: the thread that waits on it ends.
  private func cancel() {
    let connection = link.withLock { link in
      link.isCancelled = true
      return link.connection.take()
    }
    connection?.close()
  }

  private var isCancelled: Bool { link.withLock { $0.isCancelled } }

  // MARK: The thread

  /// Why the thread ends without an answer, in words that hold no token.
  private struct Failure: Error {
    var problem: Exchange<Caller>.Problem
    init(words: String) { problem = .failed(words) }
    init(_ problem: Exchange<Caller>.Problem) { self.problem = problem }
  }

  private func run() {
    let deadline = shared.clock.monotonicNanoseconds() &+ UInt64(limits.totalMilliseconds) * 1_000_000
    do throws(Failure) {
      let answer = try carry(by: deadline)
      update { $0.complete(with: answer) }
    } catch {
      // What the connection still carries belongs to no other request.
      cancel()
      update { $0.complete(error.problem) }
    }
  }

  private func carry(by deadline: UInt64) throws(Failure) -> HTTPResponse {
    while let connection = shared.pool.take(to: server, nowNanoseconds: shared.clock.monotonicNanoseconds()) {
      // nil if the server closed it before a byte of the request was written.
      if let answer = try converse(over: connection, by: deadline) { return answer }
    }
    let connection = try connect(by: deadline)
    guard let answer = try converse(over: connection, by: deadline) else {
      throw Failure(words: "the connection was lost before the request was sent")
    }
    return answer
  }

  private func connect(by deadline: UInt64) throws(Failure) -> Channel {
    let addresses: [String]
    do throws(SystemError) {
      addresses = try HostName.addresses(of: server.host)
    } catch {
      throw Failure(words: "cannot find the host: \(SystemError.words(for: error.errno))")
    }
    guard !addresses.isEmpty else { throw Failure(words: "cannot find the host") }
    var failure = Failure(words: "cannot find the host")
    for address in addresses {
      let wait = try Wait(limits.connectMilliseconds, "no connection", self, deadline)
      let connection: Connection
      do throws(SystemError) {
        connection = try Connection.connect(
          host: address, port: server.port, timeoutMilliseconds: wait.milliseconds, isCancelled: { self.isCancelled })
      } catch {
        if isCancelled { throw Failure(words: "cancelled") }
        if error.isTimeout {
          failure = wait.timeOut
        } else if error.isConnectionRefused {
          failure = Failure(words: "cannot connect; is the server running?")
        } else {
          failure = Failure(words: "cannot connect: \(SystemError.words(for: error.errno))")
        }
        continue
      }
      return try secured(connection, by: deadline)
    }
    throw failure
  }

  /// The connection, with TLS on it if the address asks for that.
  private func secured(_ connection: Connection, by deadline: UInt64) throws(Failure) -> Channel {
    let wait = try Wait(limits.connectMilliseconds, "no TLS session", self, deadline)
    let channel: Channel
    do throws(ChannelFailure) {
      channel = try shared.trust.channel(over: connection, to: server)
    } catch {
      connection.close()
      throw wait.failure(error)
    }
    try hold(channel)
    do throws(ChannelFailure) {
      try channel.shakeHands(timeoutMilliseconds: wait.milliseconds)
      return channel
    } catch {
      if case .cut = error { throw Failure(words: "the connection ended within TLS's handshake") }
      throw wait.failure(error)
    }
  }

  /// Lets a cancellation close the connection.
  private func hold(_ connection: Channel) throws(Failure) {
    let isCancelled = link.withLock { link in
      link.connection = connection
      return link.isCancelled
    }
    guard !isCancelled else {
      connection.close()
      throw Failure(words: "cancelled")
    }
  }

  /// Sends the request and reads its answer. Afterwards the connection is in the pool or closed. Returns nil if the server
  /// has closed the connection and no byte of the request was written.
  private func converse(over connection: Channel, by deadline: UInt64) throws(Failure) -> HTTPResponse? {
    try hold(connection)
    var reader = HTTPAnswerReader(
      method: method, headerBytesMax: limits.headerBytesMax,
      bodyBytesMax: max(limits.answerBytesMax, Int(clamping: content.sink?.size ?? 0)))
    let sent = try send(over: connection, into: &reader, by: deadline)
    if sent == 0, !reader.hasBegun {
      connection.close()
      return nil
    }
    while reader.answer == nil { try receive(from: connection, into: &reader, by: deadline) }
    // If a cancellation has taken the connection it is about to close it, and no other request may get it.
    let isMine = link.withLock { $0.connection.take() } != nil
    if isMine, sent == messageBytes, reader.keepsAlive {
      shared.pool.put(connection, to: server, nowNanoseconds: shared.clock.monotonicNanoseconds())
    } else {
      connection.close()
    }
    return reader.answer
  }

  /// The bytes of the request with its content.
  private var messageBytes: Int { message.count + Int(clamping: content.source?.size ?? 0) }

  private static let pieceBytes = 256 << 10

  /// The next bytes of the content.
  private func piece(at offset: Int) throws(Failure) -> [UInt8] {
    do {
      return try content.source?.piece(at: Int64(offset), count: Self.pieceBytes) ?? []
    } catch {
      throw Failure(.ofContent(error))
    }
  }

  /// Hands on the bytes of a content that have arrived. The body of a refusal stays with its answer, and may be larger than the content.
  private func handOn(_ reader: inout HTTPAnswerReader) throws(Failure) {
    guard let sink = content.sink, reader.response.status == 200 else { return }
    let piece = reader.takeBody()
    guard !piece.isEmpty else { return }
    guard reader.takenBytes <= sink.size else { throw Failure(.tooLarge(reader.response)) }
    do { try sink.write(piece) } catch { throw Failure(.ofContent(error)) }
  }

  /// Sends the request and returns how many bytes of it were written. These are fewer than all if the server closed the
  /// connection or answered before it had read them all.
  private func send(
    over connection: Channel, into reader: inout HTTPAnswerReader, by deadline: UInt64
  ) throws(Failure) -> Int {
    var sent = 0
    // The piece that is being sent, and its offset in the whole request.
    var (window, start) = (message, 0)
    while sent < messageBytes, reader.answer == nil {
      if sent == start + window.count { (window, start) = (try piece(at: sent - message.count), sent) }
      let wait = try Wait(limits.idleMilliseconds, "the server does not read the request", self, deadline)
      let part: Int
      do throws(ChannelFailure) {
        part = try connection.sendPart(window, from: sent - start, timeoutMilliseconds: wait.milliseconds)
      } catch {
        // An answer that came before may lie in the system's buffer: the caller reads it, or the end.
        if case .system(let error) = error, error.isDisconnected { return sent }
        throw wait.failure(error)
      }
      sent += part
      if part == 0 { try receive(from: connection, into: &reader, by: deadline) }
    }
    return sent
  }

  /// Reads the next bytes of the answer, or its end.
  private func receive(
    from connection: Channel, into reader: inout HTTPAnswerReader, by deadline: UInt64
  ) throws(Failure) {
    let wait =
      reader.hasBegun
      ? try Wait(limits.idleMilliseconds, "no byte of the rest of the answer", self, deadline)
      : try Wait(limits.answerMilliseconds, "no answer", self, deadline)
    var bytes: [UInt8] = []
    var isCut = false
    do throws(ChannelFailure) {
      bytes = try connection.receive(max: 64 << 10, timeoutMilliseconds: wait.milliseconds)
    } catch {
      guard case .cut = error else { throw wait.failure(error) }
      isCut = true
    }
    do throws(HTTPDefect) {
      if bytes.isEmpty { try reader.end() } else { try reader.receive(bytes) }
    } catch {
      if case .bodyTooLarge = error { throw Failure(.tooLarge(reader.response)) }
      throw Failure(words: Self.words(error))
    }
    try handOn(&reader)
    // Only the end says that such an answer is whole, and anybody on the way can end a connection.
    if isCut { throw wait.failure(.cut) }
  }

  private static func words(_ defect: HTTPDefect) -> String {
    switch defect {
    case .malformed(let words), .unsupported(let words): "the answer is not HTTP that this client accepts: \(words)"
    case .headerTooLarge(let bytesMax): "the answer's header is larger than \(bytesMax) bytes"
    case .bodyTooLarge(let bytesMax): "the answer is larger than \(bytesMax) bytes"
    case .cut(let words): words
    }
  }

  /// How long one wait may take: its own time, or what is left of the whole.
  private struct Wait {
    let milliseconds: Int64
    private let what: String
    private let limit: Int64

    init(_ own: Int64, _ what: String, _ call: SocketCall, _ deadline: UInt64) throws(Failure) {
      let now = call.shared.clock.monotonicNanoseconds()
      let total = call.limits.totalMilliseconds
      guard now < deadline else { throw Failure(words: "timed out: no whole answer within \(total) ms") }
      let left = Int64(clamping: (deadline - now + 999_999) / 1_000_000)
      milliseconds = min(own, left)
      self.what = own <= left ? what : "no whole answer"
      limit = own <= left ? own : total
    }

    /// The wait has ended without a result.
    var timeOut: Failure { Failure(words: "timed out: \(what) within \(limit) ms") }

    func failure(_ failure: ChannelFailure) -> Failure {
      switch failure {
      case .system(let error) where error.isTimeout: timeOut
      case .system(let error) where error.isDisconnected:
        Failure(words: "the connection was lost before the whole answer came")
      case .system(let error): Failure(words: "the connection failed: \(SystemError.words(for: error.errno))")
      case .secure(let words): Failure(words: words)
      case .noSecureConnection(let words): Failure(.noSecureConnection(words))
      case .cut:
        Failure(words: "the connection ended without the end that TLS knows, so the answer may be cut")
      }
    }
  }
}
