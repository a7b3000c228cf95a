// Who may ask a page: the browser that was given the address with its token, and only the page itself in it.
//
// The token is exchanged for a cookie at the first request, so that no later address has it. A cookie does not know ports, and
// a page of another program on this machine counts as the same site: so a browser's word on which page sent a request must be
// this origin, and what changes something needs a second secret too, which only this page can read.
//
// HTTPAccess has refused requests under foreign hosts and from foreign origins before this is asked.

import StrandlineCloudKit
import StrandlineSystem
import Synchronization

/// The secrets of one page, drawn when it is opened and kept nowhere.
final class PageAccess: Sendable {
  /// In the address that the command prints.
  private let token: String
  /// In the address with which the command itself starts a browser; nil once it was used. Every user of the machine sees it in
  /// the list of processes.
  private let launchToken: Mutex<String?>
  /// What the token is exchanged for.
  private let cookie: String
  /// What the page sends with a request that changes something.
  let changeToken: String

  init(_ random: any RandomSource) {
    token = Self.secret(random)
    launchToken = Mutex(Self.secret(random))
    cookie = Self.secret(random)
    changeToken = Self.secret(random)
  }

  /// 128 random bits.
  private static func secret(_ random: any RandomSource) -> String { HexText.of(random.bytes(16)) }

  /// The address that opens the page of a server at `url`.
  func address(at url: String) -> String { "\(url)/?t=\(token)" }

  /// The same, once.
  func launchAddress(at url: String) -> String { "\(url)/?t=\(launchToken.withLock { $0 } ?? token)" }

  // MARK: Questions

  /// Whether an address has the right token; nil if it has none.
  func isAddressed(_ query: PageQuery) -> Bool? {
    guard let given = query["t"] else { return nil }
    let isLaunch = launchToken.withLock { launch in
      guard let known = launch, Self.areEqual(given, known) else { return false }
      launch = nil
      return true
    }
    return isLaunch || Self.areEqual(given, token)
  }

  /// Whether the request comes from a browser that has exchanged the token.
  func isSignedIn(_ request: HTTPRequest) -> Bool {
    let name = Self.cookieName(request)
    let values = request.headers.all("cookie").flatMap { $0.split(separator: ";") }.compactMap { pair in
      let parts = pair.split(separator: "=", maxSplits: 1)
      return parts.count == 2 && parts[0].drop { $0 == " " } == name ? String(parts[1]) : nil
    }
    return values.contains { Self.areEqual($0, cookie) }
  }

  /// Why a request is refused because of the page that sent it; nil if it is not.
  func foreignness(of request: HTTPRequest) -> String? {
    let origins = request.headers.all("origin")
    guard origins.allSatisfy({ HTTPOrigin($0) == HTTPOrigin(request.origin) }) else {
      return "only the page of this address may ask here"
    }
    let site = request.headers["sec-fetch-site"]?.lowercased() ?? "none"
    // A link on another page of this machine may lead here; nothing else may come from there.
    let mayFollow = request.path == "/" && request.headers["sec-fetch-mode"]?.lowercased() == "navigate"
    guard site == "none" || site == "same-origin" || (site == "same-site" && mayFollow) else {
      return "a page of another address sent this request"
    }
    return nil
  }

  /// Whether a request that changes something was sent by the page's own script.
  func isOfPage(_ request: HTTPRequest) -> Bool {
    request.headers["origin"] != nil
      && request.headers["x-strandline-token"].map { Self.areEqual($0, changeToken) } == true
  }

  // MARK: Answers

  /// The field that gives the cookie to the browser.
  func setCookie(for request: HTTPRequest) -> String {
    "\(Self.cookieName(request))=\(cookie); Path=/; HttpOnly; SameSite=Strict"
  }

  /// Browsers keep the cookies of all ports of a host together, so that each port has a name of its own.
  private static func cookieName(_ request: HTTPRequest) -> String {
    "strandline-\(HTTPOrigin(request.origin)?.port ?? 0)"
  }

  /// What every answer says to the browser: take script, style and data from here alone, and be shown in no frame.
  static let headers: HTTPHeaders = [
    "Content-Security-Policy":
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
      + "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
  ]

  /// Compares secrets in a time that depends on their lengths alone.
  static func areEqual(_ left: String, _ right: String) -> Bool {
    let (left, right) = (Array(left.utf8), Array(right.utf8))
    guard left.count == right.count else { return false }
    return zip(left, right).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
  }
}

/// The parameters of a request, of its address or of a form in its body.
struct PageQuery: Sendable {
  private var pairs: [(name: String, value: String)] = []

  /// A parameter that is not percent-encoded UTF-8 is left out.
  init(_ text: String) {
    // A form writes a space as "+", and "+" as "%2B".
    for pair in text.replacing("+", with: "%20").split(separator: "&") {
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, let name = PercentEncoding.decode(parts[0]), let value = PercentEncoding.decode(parts[1])
      else { continue }
      pairs.append((name, value))
    }
  }

  subscript(name: String) -> String? { pairs.first { $0.name == name }?.value }

  func all(_ name: String) -> [String] { pairs.filter { $0.name == name }.map(\.value) }
}
