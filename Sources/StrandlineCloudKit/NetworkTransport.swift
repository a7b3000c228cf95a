// The transport of the network: sockets of our own for `http:`, URLSession for `https:`, whose TLS we do not write.

internal import Strandline
internal import StrandlineSystem

/// Sends requests over the network: to `http:` addresses as ``SocketTransport`` does, to `https:` addresses as
/// ``URLSessionTransport`` does. It is what a database uses if it is given no other transport.
///
/// An app that must reach its server in another way, through a proxy of its own or with certificates of its own, brings a
/// type that conforms to ``Transport``.
package final class NetworkTransport: Transport, CustomStringConvertible {
  private let sockets: SocketTransport
  private let makeSecure: @Sendable () -> URLSessionTransport
  /// Made for the first request to an `https:` address, because a session costs threads and memory.
  private let secure = OrderedMutex<URLSessionTransport?>(nil)

  /// A transport with its own connections.
  ///
  /// - Parameters:
  ///   - timeout: seconds without a byte after which a request fails; a connection must be made in 10 s, or in this time
  ///     if it is shorter.
  ///   - totalTimeout: seconds that a request and its answer may take.
  ///   - answerBytesMax: the largest body that is accepted.
  package init(timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20) {
    sockets = SocketTransport(
      connectTimeout: min(10, timeout), answerTimeout: timeout, idleTimeout: timeout, totalTimeout: totalTimeout,
      answerBytesMax: answerBytesMax)
    makeSecure = {
      URLSessionTransport(timeout: timeout, totalTimeout: totalTimeout, answerBytesMax: answerBytesMax)
    }
  }

  /// A quarter of a second, and zero to a server on this machine.
  package func minimumInterval(to origin: String) -> Duration { HTTPOrigin.minimumInterval(to: origin) }

  /// What it is; requests in flight hold credentials.
  package var description: String { "transport over sockets, and over URLSession for https" }

  /// Sends a request and returns the whole answer; see `Transport.send(_:)`.
  ///
  /// - Throws: also `CloudError(.badRequest)`, as `SocketTransport.send(_:)` does.
  package func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    guard let server = HTTPOrigin(request.origin) else {
      throw CloudError(
        .networkError, reason: "'\(request.origin)' is not a server's address; give http://host:port or https://host")
    }
    guard server.scheme == "https" else { return try await sockets.send(request) }
    let transport = secure.withLock { made in
      let transport = made ?? makeSecure()
      made = transport
      return transport
    }
    return try await transport.send(request)
  }
}
