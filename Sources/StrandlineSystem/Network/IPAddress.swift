// Tells a literal address from a name, by the system's own parser.
//
// A server that protects itself by addresses must not guess from a text's beginning: "127.0.0.1.example.com" is a name, and
// its owner decides where it leads.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A literal address of IPv4 or IPv6.
package struct IPAddress: Hashable, Sendable {
  /// 4 or 16 bytes, the most significant first.
  package let bytes: [UInt8]

  /// Parses "127.0.0.1" or "::1", without brackets, port or zone. Nil if the text is anything else, also if it is an
  /// address in a form that only some parsers know ("127.1", "0x7f.0.0.1", "127.0.0.01").
  package init?(_ text: String) {
    let family = text.utf8.contains(0x3A) ? AF_INET6 : AF_INET
    var bytes = [UInt8](repeating: 0, count: family == AF_INET6 ? 16 : 4)
    // inet_pton reads up to the first zero byte.
    guard !text.utf8.contains(0) else { return nil }
    let code = unsafe bytes.withUnsafeMutableBytes { buffer in unsafe inet_pton(family, text, buffer.baseAddress) }
    guard code == 1 else { return nil }
    self.bytes = bytes
  }

  /// Whether the address is one of this machine's own: 127.0.0.0/8, ::1, or the former in the form of IPv6.
  package var isLoopback: Bool {
    if bytes.count == 4 { return bytes[0] == 127 }
    let isMapped = bytes[..<10].allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
    return isMapped ? bytes[12] == 127 : bytes[..<15].allSatisfy { $0 == 0 } && bytes[15] == 1
  }
}
