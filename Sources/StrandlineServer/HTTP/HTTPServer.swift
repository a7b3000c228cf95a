// The server's sockets: one thread accepts connections, and each connection has a thread; their number is limited.

internal import StrandlineCloudKit
package import StrandlineSystem
internal import Synchronization

/// Listens, and serves each connection on its own thread.
package final class HTTPServer: Sendable {
  package let port: UInt16

  private struct State {
    var isStopped = false
    var nextID: UInt64 = 0
    var open: [UInt64: Connection] = [:]
    var threads: [UInt64: BlockingThread] = [:]
    var failure: String?
  }
  private let listener: Listener
  private let server: CloudServer
  private let limits: ServerLimits
  private let timeouts: HTTPTimeouts
  private let access: HTTPAccess
  private let state = Mutex(State())
  private let accepting = Mutex<BlockingThread?>(nil)

  package init(
    server: CloudServer, host: String, port: UInt16, access: HTTPAccess, limits: ServerLimits, timeouts: HTTPTimeouts
  ) throws(SystemError) {
    listener = try Listener.bind(host: host, port: port)
    self.port = listener.port
    self.server = server
    self.limits = limits
    self.timeouts = timeouts
    self.access = access
    let thread = try BlockingThread.start(name: "strandline-http") { self.acceptAll() }
    accepting.withLock { $0 = thread }
  }

  /// Closes the listener and all connections, and returns at once. May be called on any thread.
  package func signalStop(_ failure: String? = nil) {
    let open: [Connection] = state.withLock { state in
      if state.failure == nil, !state.isStopped { state.failure = failure }
      state.isStopped = true
      return Array(state.open.values)
    }
    listener.close()
    for connection in open { connection.close() }
  }

  /// Blocks until every thread has ended. Returns why the server stopped by itself, nil if it was asked to. Must not be
  /// called on a connection's thread.
  package func waitUntilStopped() -> String? {
    accepting.withLock { $0 }?.join()
    for thread in state.withLock({ Array($0.threads.values) }) { thread.join() }
    return state.withLock { $0.failure }
  }

  private func acceptAll() {
    while !state.withLock({ $0.isStopped }) {
      do throws(SystemError) {
        if let connection = try listener.accept() { serve(connection) }
      } catch {
        if state.withLock({ $0.isStopped }) { return }
        // Most likely there is no free descriptor: wait until connections have ended.
        server.environment.clock.sleepBlocking(milliseconds: 50)
      }
    }
  }

  private func serve(_ connection: Connection) {
    let (id, isStopped): (UInt64?, Bool) = state.withLock { state in
      guard !state.isStopped, state.open.count < limits.connectionsMax else { return (nil, state.isStopped) }
      state.nextID += 1
      state.open[state.nextID] = connection
      return (state.nextID, false)
    }
    // Accepted while the server stopped: it is closed without an answer, as the others are.
    guard !isStopped else {
      connection.close()
      return
    }
    guard let id else {
      refuse(connection)
      return
    }
    do throws(SystemError) {
      let thread = try BlockingThread.start(name: "strandline-conn") {
        var serving = HTTPConnection(
          connection, server: self.server, limits: self.limits, timeouts: self.timeouts, access: self.access,
          isStopped: { self.state.withLock { $0.isStopped } })
        serving.serve()
        self.state.withLock { state in
          state.open[id] = nil
          state.threads[id] = nil
        }
        // With a failed journal no request can be answered: stop, so that the process ends and is started again.
        if let failure = self.server.failure { self.signalStop(failure) }
      }
      // A thread that has ended already removed its entry; do not add it again.
      state.withLock { if $0.open[id] != nil { $0.threads[id] = thread } }
    } catch {
      state.withLock { $0.open[id] = nil }
      refuse(connection)
    }
  }

  /// Refuses a connection above the limit. The answer fits into the socket's buffer, so that accepting does not block.
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
