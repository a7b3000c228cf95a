// Goal: whatever the server does to a connection, at any byte, the caller gets one answer or one clear error, and the
// server never gets a request twice or without its body. Method: a server on loopback that follows a script for each
// connection and keeps what arrived.

import Strandline
import StrandlineCloudKit
import StrandlineSystem
import Synchronization
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct SocketTransportTests {
  private static let body = "{\"operations\":[1]}"
  private static let answerText = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
  private static var answer: [UInt8] { Array(answerText.utf8) }

  private func makeRequest(_ server: ScriptedServer, path: String = "/p", body: [UInt8] = Array(body.utf8))
    -> HTTPRequest
  {
    HTTPRequest(
      origin: server.url, path: path, query: "ckAPIToken=secret", headers: ["Content-Type": "application/json"],
      body: body)
  }

  /// What the server must get for a request.
  private func text(_ request: HTTPRequest) throws -> String {
    let origin = try #require(HTTPOrigin(request.origin))
    return String(decoding: try #require(HTTPRequestWriter.bytes(of: request, to: origin)), as: UTF8.self)
  }

  private func makeTransport(
    _ change: (inout SocketLimits) -> Void = { _ in }, clock: any SystemClock = RealClock()
  ) -> SocketTransport {
    var limits = SocketLimits()
    change(&limits)
    return SocketTransport(limits, clock: clock)
  }

  /// The error of a request that must fail.
  private func failure(
    _ transport: SocketTransport, _ request: HTTPRequest, _ comment: String = "",
    _ location: SourceLocation = #_sourceLocation
  ) async throws -> CloudError? {
    let error = try await refusal {
      do {
        let answer = try await transport.send(request)
        Issue.record("answered: \(answer) \(comment)", sourceLocation: location)
      } catch let error as AnswerTooLarge {
        // The database makes a refusal of it, when it has read the header.
        throw CloudError(.networkError, reason: error.description)
      }
    }
    #expect(error?.code == .networkError, "\(comment)", sourceLocation: location)
    #expect(error?.reason.hasPrefix(request.origin + ": ") == true, "\(comment)", sourceLocation: location)
    #expect(error?.reason.contains("secret") == false, "\(comment)", sourceLocation: location)
    return error
  }

  // MARK: Broken connections

  @Test func `a new connection that breaks at any byte of the request is one error`() async throws {
    let count = try text(makeRequest(try ScriptedServer { _ in [] })).utf8.count
    for cut in 0..<count {
      let server = try ScriptedServer { _ in [.read(cut)] }
      defer { server.stop() }
      _ = try await failure(makeTransport(), makeRequest(server), "at \(cut)")
      #expect(server.accepts == 1 && server.requests.isEmpty, "at \(cut)")
    }
  }

  @Test func `a connection that breaks at any byte of the answer is one error`() async throws {
    for cut in 0..<Self.answer.count {
      let server = try ScriptedServer { _ in [.readRequest, .send(Array(Self.answer[..<cut]))] }
      defer { server.stop() }
      let request = makeRequest(server)
      _ = try await failure(makeTransport(), request, "at \(cut)")
      #expect(server.accepts == 1, "at \(cut)")
      #expect(try server.requests == [text(request)], "at \(cut)")
    }
  }

  @Test func `a kept connection that breaks at any byte costs one error, and no request is sent twice`() async throws {
    let length = try text(makeRequest(try ScriptedServer { _ in [] }, path: "/2")).utf8.count
    let cuts: [[ScriptedServer.Step]] =
      (1..<length).map { [.read($0)] }
      + (0..<Self.answer.count).map { [.readRequest, .send(Array(Self.answer[..<$0]))] }
    for (place, steps) in cuts.enumerated() {
      let server = try ScriptedServer { number in
        number == 0 ? [.readRequest, .send(Self.answer)] + steps : [.serve(Self.answer)]
      }
      defer { server.stop() }
      let transport = makeTransport()
      #expect(try await transport.send(makeRequest(server, path: "/1")).status == 200)
      _ = try await failure(transport, makeRequest(server, path: "/2"), "at \(place)")
      #expect(try await transport.send(makeRequest(server, path: "/3")).status == 200)
      var arrived = [try text(makeRequest(server, path: "/1"))]
      if place >= length - 1 { arrived.append(try text(makeRequest(server, path: "/2"))) }
      arrived.append(try text(makeRequest(server, path: "/3")))
      #expect(server.requests == arrived, "at \(place)")
      #expect(server.accepts == 2, "at \(place)")
    }
  }

  @Test func `a connection that the server closed while it was idle is not used`() async throws {
    let extras: [[ScriptedServer.Step]] = [
      [], [.shutdown, .waitForClose], [.send(Array("HTTP/1.1 408 Late\r\n\r\n".utf8)), .waitForClose],
    ]
    for extra in extras {
      let server = try ScriptedServer { number in
        number == 0 ? [.readRequest, .send(Self.answer)] + extra : [.serve(Self.answer)]
      }
      defer { server.stop() }
      let transport = makeTransport()
      #expect(try await transport.send(makeRequest(server, path: "/1")).status == 200)
      while extra.isEmpty ? server.ended < 1 : server.steps < 3 { await Task.yield() }
      #expect(try await transport.send(makeRequest(server, path: "/2")).status == 200)
      #expect(try server.requests == [text(makeRequest(server, path: "/1")), text(makeRequest(server, path: "/2"))])
      #expect(server.accepts == 2)
    }
  }

  // MARK: Answers

  @Test func `an answer may come byte by byte, in chunks, after interim answers, and until the connection ends`()
    async throws
  {
    let answers = [
      Self.answerText, "HTTP/1.1 100 Continue\r\n\r\n" + Self.answerText,
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a\r\n}\r\n0\r\nTrailer: x\r\n\r\n",
      "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
    ]
    for answer in answers {
      let server = try ScriptedServer { _ in [.readRequest, .sendBytewise(Array(answer.utf8))] }
      defer { server.stop() }
      let got = try await makeTransport().send(makeRequest(server))
      #expect(got.status == 200 && got.body == Array("{}".utf8), "\(answer)")
    }
  }

  @Test func `a bad answer is one error at once, though the server keeps the connection open`() async throws {
    for (text, words) in AnswerReaderTests.bad {
      let server = try ScriptedServer { _ in [.readRequest, .send(Array(text.utf8)), .waitForClose] }
      defer { server.stop() }
      let transport = makeTransport {
        $0.headerBytesMax = 1000
        $0.answerBytesMax = 1000
      }
      let error = try await failure(transport, makeRequest(server), text)
      #expect(error?.reason.contains(words) == true, "\(text): \(error?.reason ?? "")")
      #expect(server.requests.count == 1 && server.accepts == 1, "\(text)")
      // The client has closed the connection.
      while server.ended < 1 { await Task.yield() }
    }
  }

  @Test func `a header of 10 MB is refused at its limit`() async throws {
    let header = Array("HTTP/1.1 200 OK\r\nA: ".utf8) + [UInt8](repeating: 0x78, count: 10 << 20)
    let server = try ScriptedServer { _ in [.readRequest, .send(header)] }
    defer { server.stop() }
    let error = try await failure(makeTransport(), makeRequest(server))
    #expect(error?.reason.hasSuffix("the answer's header is larger than 65536 bytes") == true)
    #expect(server.requests.count == 1)
  }

  @Test func `an answer longer than its length is cut there, and its rest answers no other request`() async throws {
    let server = try ScriptedServer { number in
      number == 0 ? [.readRequest, .send(Self.answer + Self.answer), .waitForClose] : [.serve(Self.answer)]
    }
    defer { server.stop() }
    let transport = makeTransport()
    for _ in 0..<2 { #expect(try await transport.send(makeRequest(server)).body == Array("{}".utf8)) }
    #expect(server.accepts == 2 && server.requests.count == 2)
  }

  @Test func `a redirect is handed to the caller and not followed`() async throws {
    let other = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { other.stop() }
    for status in [301, 302, 303, 307, 308] {
      let text = "HTTP/1.1 \(status) X\r\nLocation: \(other.url)/\r\nContent-Length: 0\r\n\r\n"
      let server = try ScriptedServer { _ in [.serve(Array(text.utf8))] }
      defer { server.stop() }
      #expect(try await makeTransport().send(makeRequest(server)).status == status)
      #expect(server.requests.count == 1)
    }
    #expect(other.accepts == 0)
  }

  @Test func `a server that refuses a large request before it has read it is heard`() async throws {
    let refusal = "HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\n{}"
    let large = [UInt8](repeating: 0x20, count: 32 << 20)
    let server = try ScriptedServer { _ in [.read(100), .send(Array(refusal.utf8)), .leaveOpen] }
    defer { server.stop() }
    #expect(try await makeTransport().send(makeRequest(server, body: large)).status == 413)
    #expect(server.requests.isEmpty)
    // An interim answer is no refusal: the request goes on.
    let patient = try ScriptedServer { _ in
      [.read(100), .send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)), .serve(Self.answer)]
    }
    defer { patient.stop() }
    #expect(try await makeTransport().send(makeRequest(patient, body: large)).status == 200)
    #expect(try patient.requests.map(\.utf8.count) == [text(makeRequest(patient, body: large)).utf8.count])
  }

  // MARK: The pool

  @Test func `requests one after another share a connection`() async throws {
    let server = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { server.stop() }
    let transport = makeTransport()
    for number in 0..<50 { #expect(try await transport.send(makeRequest(server, path: "/\(number)")).status == 200) }
    #expect(server.accepts == 1)
    #expect(try server.requests == (0..<50).map { try text(makeRequest(server, path: "/\($0)")) })
  }

  @Test func `requests at the same time have connections of their own, of which four are kept`() async throws {
    let server = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { server.stop() }
    let transport = makeTransport()
    for _ in 0..<5 {
      try await withThrowingTaskGroup(of: Int.self) { group in
        for number in 0..<8 {
          let request = makeRequest(server, path: "/\(number)")
          group.addTask { try await transport.send(request).status }
        }
        for try await status in group { #expect(status == 200) }
      }
    }
    #expect(server.requests.count == 40)
    while server.accepts - server.ended > 4 { await Task.yield() }
  }

  @Test func `an answer that closes its connection, or is of HTTP 1.0, is the last on it`() async throws {
    for text in [
      "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
      let server = try ScriptedServer { _ in [.serve(Array(text.utf8))] }
      defer { server.stop() }
      let transport = makeTransport()
      for _ in 0..<3 { #expect(try await transport.send(makeRequest(server)).status == 200) }
      #expect(server.accepts == 3)
    }
  }

  @Test func `a connection that was idle for long is closed`() async throws {
    let server = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { server.stop() }
    let clock = SteppedClock()
    let transport = makeTransport(clock: clock)
    #expect(try await transport.send(makeRequest(server)).status == 200)
    clock.advance(seconds: 30)
    #expect(try await transport.send(makeRequest(server)).status == 200)
    #expect(server.accepts == 1)
    clock.advance(seconds: 31)
    #expect(try await transport.send(makeRequest(server)).status == 200)
    #expect(server.accepts == 2)
    while server.ended < 1 { await Task.yield() }
  }

  // MARK: Time and cancellation

  @Test func `each wait has its limit`() async throws {
    let cases: [(steps: [ScriptedServer.Step], change: @Sendable (inout SocketLimits) -> Void, words: String)] = [
      ([.readRequest, .waitForClose], { $0.answerMilliseconds = 20 }, "timed out: no answer within 20 ms"),
      (
        [.readRequest, .send(Array(Self.answer.dropLast())), .waitForClose], { $0.idleMilliseconds = 20 },
        "timed out: no byte of the rest of the answer within 20 ms"
      ),
      (
        [.readRequest, .send(Array(Self.answer.dropLast())), .waitForClose], { $0.totalMilliseconds = 300 },
        "timed out: no whole answer within 300 ms"
      ),
    ]
    for (steps, change, words) in cases {
      let server = try ScriptedServer { _ in steps }
      defer { server.stop() }
      let error = try await failure(makeTransport(change), makeRequest(server), words)
      #expect(error?.reason == "\(server.url): \(words)")
      while server.ended < 1 { await Task.yield() }
      #expect(server.accepts == 1)
    }
    let deaf = try ScriptedServer { _ in [.leaveOpen] }
    defer { deaf.stop() }
    let large = makeRequest(deaf, body: [UInt8](repeating: 0x20, count: 32 << 20))
    let error = try await failure(makeTransport { $0.idleMilliseconds = 20 }, large)
    #expect(error?.reason.hasSuffix("timed out: the server does not read the request within 20 ms") == true)
  }

  @Test func `the total time is measured by the clock`() async throws {
    let server = try ScriptedServer { _ in [.readRequest, .waitForClose] }
    defer { server.stop() }
    // Each look at the clock takes 75 s: at the begin, for the pool, the connection and the request; the fifth, for the
    // answer, comes when 300 s have passed.
    let error = try await failure(makeTransport(clock: SteppedClock(secondsPerLook: 75)), makeRequest(server))
    #expect(error?.reason.hasSuffix("timed out: no whole answer within 300000 ms") == true, "\(error?.reason ?? "")")
    // It connected, though the server's thread may accept later.
    while server.accepts < 1 { await Task.yield() }
  }

  #if os(Linux)
    @Test func `a server that takes no connection is given up after the connect time`() async throws {
      let listener = try Listener.bind(host: "127.0.0.1", port: 0)
      // Until its queue is full, this system accepts connections for the listener; then it drops their first packets.
      var queued: [Connection] = []
      while queued.count < 1_000 {
        do throws(SystemError) {
          queued.append(try Connection.connect(host: "127.0.0.1", port: listener.port, timeoutMilliseconds: 200))
        } catch {
          #expect(error.isTimeout)
          break
        }
      }
      // A system that accepts any number has no queue that this test could fill.
      guard queued.count < 1_000 else { return }
      let request = HTTPRequest(origin: "http://127.0.0.1:\(listener.port)", path: "/")
      let error = try await failure(makeTransport { $0.connectMilliseconds = 50 }, request)
      #expect(error?.reason.hasSuffix("timed out: no connection within 50 ms") == true, "\(error?.reason ?? "")")
      let waiting = Task { [transport = makeTransport()] in try await transport.send(request) }
      await Task.yield()
      waiting.cancel()
      await #expect(throws: CancellationError.self) { _ = try await waiting.value }
      listener.close()
      for connection in queued { connection.close() }
    }
  #endif

  @Test func `a cancelled request ends at once, and its connection with it`() async throws {
    let server = try ScriptedServer { _ in [.readRequest, .send(Array(Self.answer.dropLast())), .waitForClose] }
    defer { server.stop() }
    let transport = makeTransport()
    for round in 1...20 {
      let task = Task { [request = makeRequest(server)] in try await transport.send(request) }
      while server.requests.count < round { await Task.yield() }
      task.cancel()
      await #expect(throws: CancellationError.self) { _ = try await task.value }
      while server.ended < round { await Task.yield() }
      #expect(server.accepts == round)
    }
  }

  // MARK: Names and requests

  @Test func `a host's addresses are tried in order, IPv6 and IPv4`() async throws {
    let server = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { server.stop() }
    // Where the name has an IPv6 address too, nothing listens there, and the next is tried.
    let named = HTTPRequest(origin: server.url.replacing("127.0.0.1", with: "localhost"), path: "/")
    #expect(try await makeTransport().send(named).status == 200)
    #expect(server.requests.first?.contains("\r\nHost: localhost:") == true)
    let nowhere = HTTPRequest(origin: "http://..", path: "/")
    #expect(try await failure(makeTransport(), nowhere)?.reason.hasPrefix("http://..: cannot find the host") == true)
    // A machine without IPv6 cannot listen there.
    guard let six = try? ScriptedServer(host: "::1", { _ in [.serve(Self.answer)] }) else { return }
    defer { six.stop() }
    #expect(try await makeTransport().send(makeRequest(six)).status == 200)
    #expect(six.requests.first?.contains("\r\nHost: [::1]:") == true)
  }

  @Test func `a request that cannot be written is refused, and nothing is sent`() async throws {
    let server = try ScriptedServer { _ in [.serve(Self.answer)] }
    defer { server.stop() }
    for path in ["p", "/p q", "/p\r\nHost: x"] {
      let error = try await refusal { _ = try await makeTransport().send(makeRequest(server, path: path)) }
      #expect(error?.code == .badRequest, "\(path)")
    }
    #if canImport(Darwin)
      let secure = try await refusal { _ = try await makeTransport().send(HTTPRequest(origin: "https://h", path: "/")) }
      #expect(secure?.code == .networkError && secure?.reason.contains("http: only") == true)
    #endif
    #expect(server.accepts == 0)
  }
}

/// A clock that a test advances, and that may advance by itself at each look.
private final class SteppedClock: SystemClock {
  private let now = Mutex<UInt64>(1_000_000_000)
  private let perLook: UInt64

  init(secondsPerLook: UInt64 = 0) { perLook = secondsPerLook * 1_000_000_000 }

  func advance(seconds: UInt64) { now.withLock { $0 += seconds * 1_000_000_000 } }

  func wallMilliseconds() -> Int64 { 0 }
  func monotonicNanoseconds() -> UInt64 {
    now.withLock { now in
      now += perLook
      return now
    }
  }
  // No transport sleeps.
  func sleep(milliseconds: Int64) async throws {}
  func sleepBlocking(milliseconds: Int64) {}
}
