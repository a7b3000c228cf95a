// The server's sockets: one thread that accepts, one for each connection, at most so many.

internal import StrandlineCloudKit
package import StrandlineSystem
internal import Synchronization

/// Listens, and serves each connection on a thread of its own.
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
  private let isLoopback: Bool
  private let state = Mutex(State())
  private let accepting = Mutex<BlockingThread?>(nil)

  package init(
    server: CloudServer, host: String, port: UInt16, limits: ServerLimits, timeouts: HTTPTimeouts = HTTPTimeouts()
  ) throws(SystemError) {
    listener = try Listener.bind(host: host, port: port)
    self.port = listener.port
    self.server = server
    self.limits = limits
    self.timeouts = timeouts
    isLoopback = host == "localhost" || host == "::1" || host.hasPrefix("127.")
    let thread = try BlockingThread.start(name: "strandline-http") { self.acceptAll() }
    accepting.withLock { $0 = thread }
  }

  /// Ends all connections and the listening. Safe from any thread, those of connections too.
  package func signalStop(_ failure: String? = nil) {
    let open: [Connection] = state.withLock { state in
      if state.failure == nil, !state.isStopped { state.failure = failure }
      state.isStopped = true
      return Array(state.open.values)
    }
    listener.close()
    for connection in open { connection.close() }
  }

  /// Blocks until every thread has ended; why the server stopped by itself, if it did. Not for threads of
  /// connections.
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
        // Out of descriptors, most likely: connections end and give theirs back. A busy loop would not help.
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
    // Accepted in the moment of the stop: it ends as all others do, and nothing is said of room.
    guard !isStopped else {
      connection.close()
      return
    }
    guard let id else {
      turnAway(connection)
      return
    }
    do throws(SystemError) {
      let thread = try BlockingThread.start(name: "strandline-conn") {
        var serving = HTTPConnection(
          connection, server: self.server, limits: self.limits, timeouts: self.timeouts, isLoopback: self.isLoopback,
          isStopped: { self.state.withLock { $0.isStopped } })
        serving.serve()
        self.state.withLock { state in
          state.open[id] = nil
          state.threads[id] = nil
        }
        // A journal that failed answers no more: the process is to end, and to be started again.
        if let failure = self.server.failure { self.signalStop(failure) }
      }
      // A thread that ended already took its entry away; it must not come back.
      state.withLock { if $0.open[id] != nil { $0.threads[id] = thread } }
    } catch {
      state.withLock { $0.open[id] = nil }
      turnAway(connection)
    }
  }

  /// Says that there is no room. Short, so that it fits into the socket's buffer and does not block accepting.
  private func turnAway(_ connection: Connection) {
    let body = "{\"serverErrorCode\":\"TRY_AGAIN_LATER\",\"reason\":\"too many connections\",\"retryAfter\":1}"
    let text =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
      + "Content-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n" + body
    do throws(SystemError) {
      try connection.send(Array(text.utf8), timeoutMilliseconds: 100)
      connection.shutdown()
    } catch {
      // The client is gone already, or does not read; either way it is closed now.
    }
    connection.close()
  }
}
