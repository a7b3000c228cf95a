// The addresses of a host's name, by the system's resolver.
//
// Apart from the sockets, which take literal addresses only: a caller that wants one machine must not reach another one
// by a name.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// Finds addresses.
package enum HostName {
  /// The addresses of a host for connections over TCP, IPv6 and IPv4, as literals and in the order in which the system
  /// advises to try them. Empty if the host is unknown.
  ///
  /// Blocks as long as the system's resolver does: often 10 s if no name server answers. A literal address needs none.
  ///
  /// - Throws: EAGAIN if the resolver failed for now; ENOMEM, and what the system says.
  package static func addresses(of host: String) throws(SystemError) -> [String] {
    var hints = unsafe addrinfo()
    #if canImport(Glibc)
      unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    #else
      unsafe hints.ai_socktype = SOCK_STREAM
    #endif
    var list: UnsafeMutablePointer<addrinfo>?
    let code = unsafe getaddrinfo(host, nil, &hints, &list)
    switch code {
    case 0: break
    case EAI_AGAIN: throw SystemError(call: "getaddrinfo", subject: host, errno: EAGAIN)
    case EAI_MEMORY: throw SystemError(call: "getaddrinfo", subject: host, errno: ENOMEM)
    case EAI_SYSTEM: throw SystemError(call: "getaddrinfo", subject: host, errno: errno)
    // EAI_NONAME, and names that are no names.
    default: return []
    }
    defer { if let found = unsafe list { unsafe freeaddrinfo(found) } }
    var addresses: [String] = []
    var next = unsafe list
    while let entry = unsafe next {
      if let address = unsafe literal(entry.pointee), !addresses.contains(address) { addresses.append(address) }
      unsafe next = entry.pointee.ai_next
    }
    return addresses
  }

  private static func literal(_ entry: addrinfo) -> String? {
    guard let address = unsafe entry.ai_addr else { return nil }
    // NI_MAXHOST of every system.
    var text = [CChar](repeating: 0, count: 1025)
    let code = unsafe getnameinfo(
      address, entry.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
    guard code == 0 else { return nil }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
