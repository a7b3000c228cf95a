// A faulty server on a real socket: it answers every request with the same bytes, or not at all.

internal import StrandlineSystem

/// A server that reads a request's head, sends bytes and closes.
package final class ByteServer: Sendable {
  private let listener: Listener
  /// The URL of the server.
  package var url: String { "http://127.0.0.1:\(listener.port)" }

  /// - Parameters:
  ///   - answer: The bytes that it sends for every request; none if it is empty.
  ///   - keepsOpen: Whether it keeps the connection open after the answer instead of closing it.
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
