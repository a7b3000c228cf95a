// The local server as `strandline serve` runs it: a journal in a directory, sockets in front, and one way to stop.

package import StrandlineSystem
internal import Strandline
internal import Synchronization

/// A server that listens.
public final class LocalServer: Sendable {
  /// CloudKit's semantics behind the sockets: faults, statistics, sign-in.
  public let cloud: CloudServer
  private let http: HTTPServer
  private let host: String
  private let isClosed = Mutex(false)

  private init(cloud: CloudServer, http: HTTPServer, host: String) {
    self.cloud = cloud
    self.http = http
    self.host = host
  }

  /// The port that it listens on.
  public var port: Int { Int(http.port) }

  /// The base URL for a client.
  public var url: String { "http://\(host.contains(":") ? "[\(host)]" : host):\(port)" }

  /// Opens the journal and listens. When this returns, requests are answered.
  ///
  /// - Parameters:
  ///   - directory: of the journal, made if it is missing; nil keeps everything in memory only.
  ///   - host: a literal address; another than loopback's opens the server to the network.
  ///   - port: 0 for any that is free.
  ///   - onLine: lines for standard output (`dropped answer N`).
  /// - Throws: `StrandlineError`: `.io`, `.damaged`, `.storeHeld` and others of the journal, or why it cannot listen.
  package static func run(
    directory: String?, host: String = "127.0.0.1", port: Int = 0, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), timeouts: HTTPTimeouts = HTTPTimeouts(), environment: SystemEnvironment,
    onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) throws -> LocalServer {
    guard let number = UInt16(exactly: port) else {
      throw StrandlineError(.invalidValue, "\(port) is no port; ports are 0 to 65535")
    }
    let cloud =
      if let directory {
        try CloudServer(
          directory: directory, faults: faults, limits: limits, environment: environment, onLine: onLine)
      } else {
        CloudServer(inMemory: environment, faults: faults, limits: limits, onLine: onLine)
      }
    do {
      let http = try HTTPServer(server: cloud, host: host, port: number, limits: limits, timeouts: timeouts)
      return LocalServer(cloud: cloud, http: http, host: host)
    } catch {
      let cause = StrandlineError(.io, "cannot listen on \(host), port \(port)", underlying: error)
      do { try cloud.close() } catch {
        // The journal has taken nothing yet, so a failing close loses nothing; that it cannot listen is the cause.
      }
      throw cause
    }
  }

  /// Opens the journal and listens, on this machine's disk and clock. See the other form for the parameters.
  ///
  /// - Throws: `StrandlineError`: `.io` if it cannot listen, `.invalidValue` if `port` is no port; for a journal in a
  ///   directory `.damaged`, `.fromTheFuture`, `.storeHeld`, `.notAStore`, `.diskFull` and `.io`.
  public static func run(
    directory: String? = nil, host: String = "127.0.0.1", port: Int = 0, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), fileID: String = #fileID, line: Int = #line
  ) throws -> LocalServer {
    try CallSite(fileID, line).run("starting the server") {
      try run(directory: directory, host: host, port: port, faults: faults, limits: limits, environment: .real)
    }
  }

  /// Asks the server to stop and returns at once; `waitUntilStopped` tells when it has.
  public func stop() { http.signalStop() }

  /// Blocks a plain thread until the server has stopped, and gives the journal back.
  ///
  /// - Throws: `StrandlineError`: `.outcomeUnknown` if it stopped by itself, because its journal failed; as
  ///   `CloudServer.close()`.
  public func waitUntilStopped(fileID: String = #fileID, line: Int = #line) throws {
    let failure = http.waitUntilStopped()
    let isFirst = isClosed.withLock { isClosed in
      defer { isClosed = true }
      return !isClosed
    }
    if let failure {
      throw StrandlineError(
        .outcomeUnknown, "the server stopped: \(failure); start it again", location: "\(fileID):\(line)")
    }
    if isFirst { try cloud.close(fileID: fileID, line: line) }
  }
}
