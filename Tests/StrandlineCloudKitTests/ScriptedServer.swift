// A server that does what a test wrote for each connection, step by step, and keeps what arrived. It is the other side of
// the tests of the transport over sockets: it breaks connections at any byte.

import StrandlineCloudKit
import StrandlineSystem
import Synchronization

/// Listens on loopback; each connection has a thread.
final class ScriptedServer: Sendable {
  enum Step: Sendable {
    /// Reads until so many bytes of a request have come. They stay there for `readRequest`.
    case read(Int)
    /// Reads one whole request and keeps it.
    case readRequest
    case send([UInt8])
    /// Sends each byte by itself.
    case sendBytewise([UInt8])
    /// Reads requests and answers each, until the client closes the connection.
    case serve([UInt8])
    /// Reads and drops what comes until the client closes the connection.
    case waitForClose
    /// The last step: reads nothing more, and leaves the connection open until `stop`.
    case leaveOpen
    /// Ends the sending side only.
    case shutdown
  }

  private struct State {
    var accepts = 0
    var ended = 0
    var steps = 0
    var requests: [String] = []
    var open: [Connection] = []
  }
  private let state = Mutex(State())
  private let listener: Listener
  let host: String
  /// Longer than a busy machine delays a step; a client that hangs still fails the test.
  private static let patience: Int64 = 60_000

  /// - Parameter script: the steps of each connection, which come in the order 0, 1, 2. After the last step the server
  ///   closes the connection.
  init(host: String = "127.0.0.1", _ script: @escaping @Sendable (Int) -> [Step]) throws {
    self.host = host
    let listener = try Listener.bind(host: host, port: 0)
    self.listener = listener
    try BlockingThread.start(name: "scripted") { [weak self] in
      var number = 0
      while let connection = try? listener.accept() {
        guard let self else { return connection.close() }
        let steps = script(number)
        number += 1
        self.begin(connection, steps)
      }
    }
  }

  deinit { stop() }

  /// Closes the listener and all connections; the threads end.
  func stop() {
    listener.close()
    for connection in state.withLock({ $0.open }) { connection.close() }
  }

  var url: String { host.contains(":") ? "http://[\(host)]:\(listener.port)" : "http://\(host):\(listener.port)" }
  /// How many connections came.
  var accepts: Int { state.withLock { $0.accepts } }
  /// How many connections the server has closed.
  var ended: Int { state.withLock { $0.ended } }
  /// How many steps were done, of all connections.
  var steps: Int { state.withLock { $0.steps } }
  /// The whole requests that arrived, with their bodies.
  var requests: [String] { state.withLock { $0.requests } }

  private func begin(_ connection: Connection, _ steps: [Step]) {
    state.withLock {
      $0.accepts += 1
      $0.open.append(connection)
    }
    // A thread that cannot start closes the connection, and the test fails.
    _ = try? BlockingThread.start(name: "scripted-conn") { [self] in
      var buffer: [UInt8] = []
      // A step fails if the client has closed the connection: the others would fail too.
      do {
        for step in steps {
          try perform(step, connection, &buffer)
          state.withLock { $0.steps += 1 }
          if case .leaveOpen = step { return }
        }
      } catch {}
      connection.close()
      state.withLock { state in
        state.open.removeAll { $0 === connection }
        state.ended += 1
      }
    }
  }

  private func perform(_ step: Step, _ connection: Connection, _ buffer: inout [UInt8]) throws {
    switch step {
    case .read(let count):
      while buffer.count < count {
        let bytes = try connection.receive(max: count - buffer.count, timeoutMilliseconds: Self.patience)
        if bytes.isEmpty { throw SystemError.closed("recv", "client") }
        buffer += bytes
      }
    case .readRequest: try readRequest(connection, &buffer)
    case .send(let bytes): try connection.send(bytes, timeoutMilliseconds: Self.patience)
    case .sendBytewise(let bytes):
      for byte in bytes { try connection.send([byte], timeoutMilliseconds: Self.patience) }
    case .serve(let answer):
      while true {
        try readRequest(connection, &buffer)
        try connection.send(answer, timeoutMilliseconds: Self.patience)
      }
    case .waitForClose: while try !connection.receive(max: 64 << 10).isEmpty {}
    case .leaveOpen: break
    case .shutdown: connection.shutdown()
    }
  }

  private func readRequest(_ connection: Connection, _ buffer: inout [UInt8]) throws {
    var whole: Int?
    while whole.map({ buffer.count < $0 }) ?? true {
      if let end = try HTTPSyntax.endOfHead(in: buffer, from: 0, bytesMax: 1 << 20) {
        let headers = try HTTPSyntax.fields(of: HTTPSyntax.lines(of: buffer[..<end]).dropFirst())
        let framing = try HTTPSyntax.framing(of: headers) ?? .length(0)
        guard case .length(let length) = framing else { throw HTTPDefect.unsupported("the client sent a chunked body") }
        whole = end + 4 + length
        if buffer.count >= end + 4 + length { break }
      }
      let bytes = try connection.receive(max: 64 << 10, timeoutMilliseconds: Self.patience)
      if bytes.isEmpty { throw SystemError.closed("recv", "client") }
      buffer += bytes
    }
    let count = whole ?? 0
    let text = String(decoding: buffer[..<count], as: UTF8.self)
    state.withLock { $0.requests.append(text) }
    buffer.removeFirst(count)
  }
}
