// A relay between a client and a server on loopback: it ends a connection behind any byte, and changes bits on the way.

import StrandlineSystem
import Synchronization

/// Passes bytes on, both ways.
final class Relay: Sendable {
  enum Way: Sendable { case toServer, toClient }

  /// What becomes of a connection.
  struct Fate: Sendable {
    /// It ends when so many bytes went this way.
    var end: (way: Way, bytes: Int)?
    /// Bits that change: the byte's place on this way, and which bits of it.
    var flips: [(way: Way, place: Int, bits: UInt8)] = []
  }

  private struct State {
    var accepts = 0
    var ended = 0
    var open: [Connection] = []
    var passed: [Int: (toServer: Int, toClient: Int)] = [:]
  }
  private let state = Mutex(State())
  private let listener: Listener
  private let target: UInt16
  private let fate: @Sendable (Int) -> Fate
  private static let patience: Int64 = 60_000

  /// - Parameter fate: that of each connection, which come in the order 0, 1, 2.
  init(to target: UInt16, _ fate: @escaping @Sendable (Int) -> Fate) throws {
    listener = try Listener.bind(host: "127.0.0.1", port: 0)
    self.target = target
    self.fate = fate
    try BlockingThread.start(name: "relay") { [weak self, listener] in
      while let client = try? listener.accept() {
        guard let self, let server = try? Connection.connect(host: "127.0.0.1", port: target) else {
          return client.close()
        }
        self.begin(client, server)
      }
    }
  }

  deinit { stop() }

  func stop() {
    listener.close()
    for connection in state.withLock({ $0.open }) { connection.close() }
  }

  var port: UInt16 { listener.port }
  var accepts: Int { state.withLock { $0.accepts } }

  /// How many connections have ended on the server's side, and were ended on the client's.
  var ended: Int { state.withLock { $0.ended } }

  /// How many bytes went each way on a connection.
  func passed(_ number: Int) -> (toServer: Int, toClient: Int) { state.withLock { $0.passed[number] ?? (0, 0) } }

  private func begin(_ client: Connection, _ server: Connection) {
    let number = state.withLock { state in
      defer { state.accepts += 1 }
      state.open += [client, server]
      return state.accepts
    }
    let fate = fate(number)
    // A thread that cannot start leaves the connection silent, and the test fails.
    for (way, from, to) in [(Way.toServer, client, server), (.toClient, server, client)] {
      _ = try? BlockingThread.start(name: "relay-pass") { [self] in
        pass(number, way, fate, from, to)
        from.close()
        to.close()
        state.withLock { state in
          state.open.removeAll { $0 === from || $0 === to }
          if way == .toClient { state.ended += 1 }
        }
      }
    }
  }

  private func pass(_ number: Int, _ way: Way, _ fate: Fate, _ from: Connection, _ to: Connection) {
    var place = 0
    let end = fate.end.flatMap { $0.way == way ? $0.bytes : nil } ?? .max
    // Either side may have closed its connection: then this one ends.
    while place < end, var bytes = try? from.receive(max: 16 << 10, timeoutMilliseconds: Self.patience), !bytes.isEmpty
    {
      for flip in fate.flips where flip.way == way && (place..<place + bytes.count).contains(flip.place) {
        bytes[flip.place - place] ^= flip.bits
      }
      bytes = Array(bytes.prefix(end - place))
      place += bytes.count
      let passed = place
      // Before they arrive, so that whoever got them can ask how many there were.
      state.withLock { state in
        var both = state.passed[number] ?? (0, 0)
        if way == .toServer { both.toServer = passed } else { both.toClient = passed }
        state.passed[number] = both
      }
      guard (try? to.send(bytes, timeoutMilliseconds: Self.patience)) != nil else { return }
    }
  }
}
