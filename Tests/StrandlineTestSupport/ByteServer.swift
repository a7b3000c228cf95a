// A server on a real socket that does wrong: it answers every request with the same bytes, or never.

internal import StrandlineSystem

/// A server that reads a request's head, sends bytes and closes.
package final class ByteServer: Sendable {
  private let listener: Listener
  /// Where it listens, for a client.
  package var url: String { "http://127.0.0.1:\(listener.port)" }

  /// - Parameters:
  ///   - answer: what every request gets; nothing, if it is empty.
  ///   - keepsOpen: says no more, and does not close either.
  package init(_ answer: String, keepsOpen: Bool = false) throws {
    let listener = try Listener.bind(host: "127.0.0.1", port: 0)
    self.listener = listener
    try BlockingThread.start(name: "bytes") {
      var held: [Connection] = []
      do {
        while let connection = try listener.accept() {
          _ = try connection.receive(max: 65536, timeoutMilliseconds: 5000)
          if !answer.isEmpty { try connection.send(Array(answer.utf8), timeoutMilliseconds: 5000) }
          if keepsOpen {
            held.append(connection)
          } else {
            connection.shutdown()
            _ = connection.waitUntilPeerCloses(timeoutMilliseconds: 2000)
            connection.close()
          }
        }
      } catch {
        for connection in held { connection.close() }
      }
    }
  }

  deinit { listener.close() }
}
