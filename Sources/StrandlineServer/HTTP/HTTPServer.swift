// The server's sockets: one thread accepts connections, and each connection has a thread. ConnectionTable limits their
// number, and an HTTPService says what is answered.

internal import StrandlineCloudKit
package import StrandlineSystem

/// Listens, and serves each connection on its own thread.
package final class HTTPServer: Sendable {
  package let port: UInt16
  private let listener: Listener
  private let service: any HTTPService
  private let limits: ServerLimits
  private let timeouts: HTTPTimeouts
  private let access: HTTPAccess
  private let table: ConnectionTable
  private let accepting = OrderedMutex<BlockingThread?>(nil)

  /// The descriptors that are left for the journal and the rest of the process.
  private static let descriptorsKept = 64
  /// The stack of a connection's thread. Nothing that runs on it recurses by what a peer sends.
  private static let stackBytes = 1 << 20

  package init(
    service: any HTTPService, host: String, port: UInt16, access: HTTPAccess, limits: ServerLimits,
    timeouts: HTTPTimeouts
  ) throws(SystemError) {
    listener = try Listener.bind(host: host, port: port)
    self.port = listener.port
    self.service = service
    self.limits = limits
    self.timeouts = timeouts
    self.access = access
    table = ConnectionTable(
      connectionsMax: max(1, min(limits.connectionsMax, DescriptorLimit.current - Self.descriptorsKept)),
      bodiesBytesMax: limits.bodiesBytesMax)
    let thread = try BlockingThread.start(name: "strandline-http") { self.acceptAll() }
    accepting.withLock { $0 = thread }
  }

  /// Asks the server to stop and returns at once.
  ///
  /// - Parameter failure: why, if it stops by itself.
  package func signalStop(_ failure: String? = nil) {
    table.stop(failure)
    listener.close()
  }

  /// Blocks until every thread has ended. Returns why the server stopped by itself, nil if it was asked to. Must not be
  /// called on a connection's thread.
  package func waitUntilStopped() -> String? {
    accepting.withLock { $0 }?.join()
    for thread in table.threads { thread.join() }
    return table.failure
  }

  private func acceptAll() {
    while !table.isStopped {
      do throws(SystemError) {
        if let connection = try listener.accept() { serve(connection) }
      } catch {
        if table.isStopped { return }
        if error.isOutOfDescriptors, table.cutSilent() { continue }
        // Wait until connections have ended.
        service.clock.sleepBlocking(milliseconds: 50)
      }
    }
  }

  private func serve(_ connection: Connection) {
    switch table.admit(connection) {
    // Accepted while the server stopped: it is closed without an answer, as the others are.
    case .stopped: connection.close()
    case .full: refuse(connection)
    case .admitted(let id):
      do throws(SystemError) {
        let thread = try BlockingThread.start(name: "strandline-conn", stackBytes: Self.stackBytes) {
          self.run(connection, id)
        }
        table.keep(thread, of: id)
      } catch {
        table.remove(id)
        refuse(connection)
      }
    }
  }

  /// What a connection's thread runs.
  private func run(_ connection: Connection, _ id: UInt64) {
    var serving = HTTPConnection(
      connection, id, in: table, service: service, limits: limits, timeouts: timeouts, access: access)
    serving.serve()
    table.end(id)
    // If no request can be answered, as with a failed journal: stop, so that the process ends and is started again.
    if let failure = service.failure { signalStop(failure) }
  }

  /// Refuses a connection because all places are taken by connections that are being answered. The answer fits into the
  /// socket's buffer, so that accepting does not block.
  private func refuse(_ connection: Connection) {
    let body = "{\"serverErrorCode\":\"TRY_AGAIN_LATER\",\"reason\":\"too many connections\",\"retryAfter\":1}"
    let text =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
      + "Content-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n" + body
    do throws(SystemError) {
      try connection.send(Array(text.utf8), timeoutMilliseconds: 100)
      connection.shutdown()
    } catch {
      // The client has closed the connection or does not read.
    }
    connection.close()
  }
}
