// The transport of the network: sockets of our own. On Apple's systems URLSession carries `https:`, because TLS and the keychain
// are the system's there.

package import Strandline
internal import StrandlineSystem

/// Sends requests over the network, as ``SocketTransport`` does. On Apple's systems requests to `https:` addresses go as
/// `URLSessionTransport` sends them. It is what a database uses if it is given no other transport.
///
/// An app that must reach its server in another way, through a proxy of its own, brings a type that conforms to ``Transport``.
package final class NetworkTransport: Transport, CustomStringConvertible {
  private let sockets: SocketTransport
  #if canImport(Darwin)
    private let makeSecure: @Sendable () -> URLSessionTransport
    /// Made for the first request to an `https:` address, because a session costs threads and memory.
    private let secure = OrderedMutex<URLSessionTransport?>(nil)
  #endif

  /// Makes the one for contents.
  private let makeForContents: @Sendable () -> NetworkTransport

  #if canImport(Darwin)
    /// A transport with its own connections.
    ///
    /// - Parameters:
    ///   - timeout: seconds without a byte after which a request fails; a connection must be made in 10 s, or in this time
    ///     if it is shorter.
    ///   - totalTimeout: seconds that a request and its answer may take.
    ///   - answerBytesMax: the largest body that is accepted.
    package init(timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20) {
      sockets = SocketTransport(
        Self.limits(timeout, totalTimeout, answerBytesMax))
      makeForContents = {
        NetworkTransport(timeout: timeout, totalTimeout: Self.contentTotalTimeout, answerBytesMax: answerBytesMax)
      }
      makeSecure = {
        URLSessionTransport(timeout: timeout, totalTimeout: totalTimeout, answerBytesMax: answerBytesMax)
      }
    }

    /// What it is; requests in flight hold credentials.
    package var description: String { "transport over sockets, and over URLSession for https" }
  #else
    /// A transport with its own connections.
    ///
    /// - Parameters:
    ///   - timeout: seconds without a byte after which a request fails; a connection must be made in 10 s, or in this time
    ///     if it is shorter, and so must TLS's session over it.
    ///   - totalTimeout: seconds that a request and its answer may take.
    ///   - answerBytesMax: the largest body that is accepted.
    ///   - authorities: the path of a PEM file with the authorities whose certificates are accepted; nil for those that the system
    ///     trusts.
    package init(
      timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20, authorities: String? = nil
    ) {
      sockets = SocketTransport(
        Self.limits(timeout, totalTimeout, answerBytesMax), trust: ServerTrust(authorities: authorities))
      makeForContents = {
        NetworkTransport(
          timeout: timeout, totalTimeout: Self.contentTotalTimeout, answerBytesMax: answerBytesMax,
          authorities: authorities)
      }
    }

    /// What it is; requests in flight hold credentials.
    package var description: String { "transport over sockets" }
  #endif

  /// Seconds that a content may take: 50 MB at 15 KB/s. One that makes no progress ends long before.
  private static let contentTotalTimeout: Double = 3_600

  /// A transport with other connections, and with more time for each request.
  package var forContents: any Transport { makeForContents() }

  private static func limits(_ timeout: Double, _ totalTimeout: Double, _ answerBytesMax: Int) -> SocketLimits {
    var limits = SocketLimits()
    limits.connectMilliseconds = SocketLimits.milliseconds(min(10, timeout))
    limits.answerMilliseconds = SocketLimits.milliseconds(timeout)
    limits.idleMilliseconds = SocketLimits.milliseconds(timeout)
    limits.totalMilliseconds = SocketLimits.milliseconds(totalTimeout)
    limits.answerBytesMax = answerBytesMax
    return limits
  }

  /// A quarter of a second, and zero to a server on this machine.
  package func minimumInterval(to origin: String) -> Duration { HTTPOrigin.minimumInterval(to: origin) }

  /// Sends a request and returns the whole answer; see `Transport.send(_:)`.
  ///
  /// - Throws: also `CloudError(.badRequest)`, as `SocketTransport.send(_:)` does.
  package func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    try await carrier(of: request).send(request)
  }

  /// Sends a request with a content. On Apple's systems one to an `https:` address is in memory as a whole meanwhile.
  package func send(_ request: HTTPRequest, body: ContentSource) async throws -> HTTPResponse {
    try await carrier(of: request).send(request, body: body)
  }

  /// Fetches a content. On Apple's systems one from an `https:` address is in memory as a whole meanwhile.
  package func send(_ request: HTTPRequest, into sink: ContentSink) async throws -> HTTPResponse {
    try await carrier(of: request).send(request, into: sink)
  }

  private func carrier(of request: HTTPRequest) -> any Transport {
    #if canImport(Darwin)
      if HTTPOrigin(request.origin)?.scheme == "https" {
        return secure.withLock { made in
          let transport = made ?? makeSecure()
          made = transport
          return transport
        }
      }
    #endif
    return sockets
  }
}
