// A server's address, parsed without Foundation, whose network library a program that speaks `http:` only should not need.

import StrandlineSystem

/// Scheme, host and port. A key of the pool of connections.
package struct HTTPOrigin: Hashable, Sendable {
  /// "http" or "https".
  package let scheme: String
  /// In lowercase; an IPv6 address without its brackets.
  package let host: String
  /// The scheme's own port if the address names none.
  package let port: UInt16

  /// Parses "http://host", "https://host:port", "http://[::1]:port". Nil if the text is something else: it has a path, a
  /// user, a host that is empty or not ASCII, or a port outside 1...65535.
  package init?(_ text: String) {
    let lowercase = text.lowercased()
    let own: UInt16
    if lowercase.hasPrefix("http://") {
      scheme = "http"
      own = 80
    } else if lowercase.hasPrefix("https://") {
      scheme = "https"
      own = 443
    } else {
      return nil
    }
    let rest = lowercase.dropFirst(scheme.utf8.count + 3)
    let portText: Substring
    if rest.hasPrefix("[") {
      guard let end = rest.firstIndex(of: "]") else { return nil }
      host = String(rest[..<end].dropFirst())
      portText = rest[rest.index(after: end)...]
      guard host.contains(":"), host.utf8.allSatisfy(Self.isAddressByte) else { return nil }
    } else {
      let end = rest.firstIndex(of: ":") ?? rest.endIndex
      host = String(rest[..<end])
      portText = rest[end...]
      guard !host.isEmpty, host.utf8.allSatisfy(Self.isNameByte) else { return nil }
    }
    if portText.isEmpty {
      port = own
    } else {
      let digits = portText.dropFirst()
      guard portText.hasPrefix(":"), digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
        let number = UInt16(digits), number > 0
      else { return nil }
      port = number
    }
  }

  /// The value of the field `Host`.
  package var hostField: String {
    // The zone of a link-local address ("fe80::1%eth0") has a meaning on this machine only.
    let name = host.contains(":") ? "[\(host.prefix { $0 != "%" })]" : host
    return port == (scheme == "http" ? 80 : 443) ? name : "\(name):\(port)"
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x61...0x7A: true
    default: "-._~".utf8.contains(byte)
    }
  }

  private static func isAddressByte(_ byte: UInt8) -> Bool { isNameByte(byte) || byte == 0x3A || byte == 0x25 }
}

extension HTTPOrigin {
  /// The least time between two requests to a server over the network: a quarter of a second, so that the engine sends a long upload
  /// at no more than four requests a second; zero to a server on this machine.
  static func minimumInterval(to origin: String) -> Duration {
    guard let server = HTTPOrigin(origin) else { return .zero }
    let isHere = server.host == "localhost" || IPAddress(server.host)?.isLoopback == true
    return isHere ? .zero : .milliseconds(250)
  }
}
