// Which requests a server on a developer's machine answers: those under a name of its own, and from no foreign page.
//
// A page in a browser can send requests to any address that the browser's machine can reach. Two rules keep such a page
// from reading or changing data. The host that a request names must be an address or a name that only this machine gives
// itself: a page that has bound its own name to this address (DNS rebinding) is told apart by that name. And a request that
// a page of another origin has sent is refused before it does anything, unless that origin is allowed.
//
// A POST of `text/plain` without `Origin` is accepted, as CloudKit accepts it. Browsers name the origin in every POST, so
// such a request comes from a program, and a program on this machine needs no browser to reach the server.
//
// Pure: no socket, no clock.

package import StrandlineCloudKit
internal import StrandlineSystem

/// The hosts and the origins that a server answers.
package struct HTTPAccess: Sendable {
  /// Whether only names of loopback are answered, because the server listens there.
  private let isLoopback: Bool
  private let hosts: Set<String>
  private let origins: Set<HTTPOrigin>

  /// - Parameters:
  ///   - address: the literal address that the server listens on.
  ///   - hosts: further names under which clients reach it. Names that are no host's are never matched.
  ///   - origins: the origins whose pages may send requests.
  package init(address: String, hosts: [String] = [], origins: Set<HTTPOrigin> = []) {
    isLoopback = address == "localhost" || IPAddress(address)?.isLoopback == true
    self.hosts = Set(hosts.map { $0.lowercased() })
    self.origins = origins
  }

  /// A name that `hosts` may have: of a host, without scheme and port.
  package static func isHostName(_ text: String) -> Bool { HTTPOrigin("http://" + text)?.host == text.lowercased() }

  // MARK: Hosts

  /// Checks the host that a request names. A request of HTTP/1.0 may name none; no browser sends such a request.
  ///
  /// Any port is accepted: a tunnel or a container changes it, and it says nothing about who sent the request.
  package func checkHost(of head: HTTPHead) throws(HTTPRefusal) {
    guard let text = head.authority else { return }
    guard let authority = HTTPOrigin("http://" + text) else {
      throw HTTPRefusal(400, "the host is not 'name', 'name:port' or an address")
    }
    guard isOwn(authority.host) else {
      throw HTTPRefusal(
        403,
        isLoopback
          ? "this server answers under names of loopback only; --allow-host adds a name"
          : "this server answers under addresses and names of loopback only; --allow-host adds a name")
    }
  }

  private func isOwn(_ host: String) -> Bool {
    if host == "localhost" || host.hasSuffix(".localhost") || hosts.contains(host) { return true }
    // A page cannot be bound to a literal address that is not its own.
    guard let address = IPAddress(host) else { return false }
    return isLoopback ? address.isLoopback : true
  }

  // MARK: Origins

  /// Checks that no page of a foreign origin has sent the request. Returns the value of `Origin` if the request comes from
  /// an origin that is allowed, which must then be told in the answer; nil if it comes from no page, or from one of this
  /// server.
  package func checkOrigin(of head: HTTPHead) throws(HTTPRefusal) -> String? {
    let values = head.headers.all("origin")
    guard values.count <= 1 else { throw HTTPRefusal(400, "the request has more than one Origin") }
    guard let value = values.first else {
      // A link or an image of a foreign page: a GET, which browsers send without `Origin`.
      guard head.headers["sec-fetch-site"]?.lowercased() != "cross-site" else {
        throw HTTPRefusal(403, "a page of another site sent this request; --allow-origin allows an origin")
      }
      return nil
    }
    // "null" is the origin of a file and of a sandboxed frame: of anyone.
    guard let origin = HTTPOrigin(value) else { throw foreign }
    if origins.contains(origin) { return value }
    if let authority = head.authority, HTTPOrigin("http://" + authority) == origin { return nil }
    throw foreign
  }

  private var foreign: HTTPRefusal {
    HTTPRefusal(403, "this server does not answer pages of this origin; --allow-origin allows it")
  }

  /// Adds to an answer what lets a page of an allowed origin read it.
  package func permit(_ origin: String?, in headers: inout HTTPHeaders) {
    guard !origins.isEmpty else { return }
    // Also without an origin: a cache must not show one page the answer for another.
    headers.append("Vary", "Origin")
    guard let origin else { return }
    headers.append("Access-Control-Allow-Origin", origin)
    headers.append(
      "Access-Control-Expose-Headers",
      "X-Apple-Request-UUID, X-Apple-CloudKit-Version, X-Apple-CloudKit-Web-Auth-Token, Retry-After")
  }

  /// The answer to a browser that asks before it sends a page's request (a preflight); nil if the request is another one.
  ///
  /// - Parameter origin: what `checkOrigin` returned.
  package func preflight(_ head: HTTPHead, from origin: String?) -> HTTPResponse? {
    guard head.method == "OPTIONS", let origin, head.headers["access-control-request-method"] != nil else {
      return nil
    }
    var answer = HTTPResponse(status: 204)
    permit(origin, in: &answer.headers)
    answer.headers.append("Access-Control-Allow-Methods", "GET, HEAD, POST")
    answer.headers.append("Access-Control-Allow-Headers", "Content-Type, *")
    answer.headers.append("Access-Control-Max-Age", "600")
    if head.headers["access-control-request-private-network"]?.lowercased() == "true" {
      answer.headers.append("Access-Control-Allow-Private-Network", "true")
    }
    return answer
  }
}
