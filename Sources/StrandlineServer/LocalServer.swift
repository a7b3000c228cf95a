// The local server that `strandline serve` runs: CloudServer over a journal in a directory, behind HTTP sockets.

package import StrandlineSystem
internal import Strandline
internal import StrandlineCloudKit

/// A local CloudKit that listens on a socket.
public final class LocalServer: Sendable {
  /// The server behind the sockets: faults, statistics, sign-in.
  public let cloud: CloudServer
  private let http: HTTPServer
  private let host: String
  private let isClosed = OrderedMutex(false)

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
  ///   - directory: of the journal, created if it is missing; nil keeps the journal in memory.
  ///   - host: a literal address; one other than loopback's opens the server to the network.
  ///   - port: 0 for a free one.
  ///   - allowedHosts: names under which clients reach it, besides those of loopback and literal addresses.
  ///   - allowedOrigins: origins ("http://localhost:3000") whose pages may send requests.
  ///   - apiTokens: the API tokens that are accepted; nil for any.
  ///   - onLine: called with lines for standard output (`dropped answer N`).
  ///   - service: makes what answers instead of the cloud, and asks it.
  /// - Throws: `StrandlineError`: `.io` if it cannot listen, `.damaged`, `.storeHeld` and others of the journal.
  package static func run(
    directory: String?, host: String = "127.0.0.1", port: Int = 0, allowedHosts: [String] = [],
    allowedOrigins: [String] = [], apiTokens: Set<String>? = nil, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), timeouts: HTTPTimeouts = HTTPTimeouts(), environment: SystemEnvironment,
    onLine: @escaping @Sendable (String) -> Void = { _ in },
    service: (CloudServer) -> any HTTPService = { $0 }
  ) throws -> LocalServer {
    guard let number = UInt16(exactly: port) else {
      throw StrandlineError(.invalidValue, "\(port) is not a port; give 0 to 65535")
    }
    let access = try access(address: host, allowedHosts, allowedOrigins)
    let cloud =
      if let directory {
        try CloudServer(
          directory: directory, faults: faults, limits: limits, environment: environment, onLine: onLine)
      } else {
        CloudServer(inMemory: environment, faults: faults, limits: limits, onLine: onLine)
      }
    cloud.setAPITokens(apiTokens)
    do {
      let http = try HTTPServer(
        service: service(cloud), host: host, port: number, access: access, limits: limits, timeouts: timeouts)
      let server = LocalServer(cloud: cloud, http: http, host: host)
      cloud.setContentOrigin(server.url)
      return server
    } catch {
      let cause = StrandlineError(.io, "cannot listen on \(host), port \(port)", underlying: error)
      do { try cloud.close() } catch {
        // Nothing was written to the journal, so a failed close loses nothing. The caller gets the first error.
      }
      throw cause
    }
  }

  private static func access(
    address: String, _ hosts: [String], _ origins: [String]
  ) throws(StrandlineError) -> HTTPAccess {
    for host in hosts where !HTTPAccess.isHostName(host) {
      throw StrandlineError(.invalidValue, "'\(host)' is not a host's name; give it without scheme and port")
    }
    var allowed: Set<HTTPOrigin> = []
    for text in origins {
      guard let origin = HTTPOrigin(text) else {
        throw StrandlineError(
          .invalidValue, "'\(text)' is not an origin; give scheme, host and port, as in http://localhost:3000")
      }
      allowed.insert(origin)
    }
    return HTTPAccess(address: address, hosts: hosts, origins: allowed)
  }

  /// Opens the journal and listens. When this returns, requests are answered.
  ///
  /// A request must name the server by an address or a name of loopback; one that listens on another address, by any
  /// literal address. Requests from a page of another origin are refused with 403, because a page in a browser can reach
  /// this machine too. The lists allow more.
  ///
  /// - Parameters:
  ///   - directory: of the journal, created if it is missing; nil keeps the journal in memory.
  ///   - host: a literal address; one other than loopback's opens the server to the network.
  ///   - port: 0 for a free one.
  ///   - allowedHosts: names under which clients reach it besides, without scheme and port.
  ///   - allowedOrigins: origins whose pages may send requests and read the answers: "http://localhost:3000".
  ///   - faults: the faults from the first request on.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.io` if it cannot listen; `.invalidValue` if `port` is not a port, or an entry of a list
  ///   no name or origin; for a journal in a directory `.damaged`, `.fromTheFuture`, `.storeHeld`, `.notAStore`, `.diskFull` and `.io`.
  public static func run(
    directory: String? = nil, host: String = "127.0.0.1", port: Int = 0, allowedHosts: [String] = [],
    allowedOrigins: [String] = [], faults: ServerFaults = ServerFaults(), fileID: String = #fileID, line: Int = #line
  ) throws -> LocalServer {
    try CallSite(fileID, line).run("starting the server") {
      try run(
        directory: directory, host: host, port: port, allowedHosts: allowedHosts, allowedOrigins: allowedOrigins,
        faults: faults, limits: ServerLimits(), environment: .real)
    }
  }

  /// Asks the server to stop and returns at once; `waitUntilStopped` returns when it has.
  public func stop() { http.signalStop() }

  /// Blocks the calling thread until the server has stopped, then closes the journal.
  ///
  /// - Throws: `StrandlineError`: `.outcomeUnknown` if the server stopped because its journal failed; what
  ///   `CloudServer.close()` throws.
  public func waitUntilStopped() throws {
    let failure = http.waitUntilStopped()
    let isFirst = isClosed.withLock { isClosed in
      defer { isClosed = true }
      return !isClosed
    }
    if let failure {
      throw StrandlineError(.outcomeUnknown, "the server stopped: \(failure); start it again")
    }
    if isFirst { try cloud.close() }
  }
}
