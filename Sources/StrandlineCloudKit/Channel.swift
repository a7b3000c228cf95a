// A connection to a server, as a request needs it: plain, or under TLS where the system brings none for Swift. One type, so that
// the transport and its pool need not know which.

internal import StrandlineSystem

/// Why a channel failed.
enum ChannelFailure: Error {
  case system(SystemError)
  /// TLS failed, in words that hold no token.
  case secure(String)
  /// There is no secure connection, and time alone does not change it.
  case noSecureConnection(String)
  /// The connection ended and TLS had not ended it.
  case cut
}

/// A connected server.
enum Channel: Sendable {
  case plain(Connection)
  #if !canImport(Darwin)
    case secure(SecureConnection)
  #endif

  /// Makes the TLS session, if there is to be one. Nothing can be sent before.
  ///
  /// - Parameter timeoutMilliseconds: for all of it.
  func shakeHands(timeoutMilliseconds: Int64) throws(ChannelFailure) {
    #if !canImport(Darwin)
      guard case .secure(let connection) = self else { return }
      do throws(TLSError) { try connection.shakeHands(timeoutMilliseconds: timeoutMilliseconds) } catch {
        throw ChannelFailure(error)
      }
    #endif
  }

  /// As `Connection.receive`.
  func receive(max: Int, timeoutMilliseconds: Int64) throws(ChannelFailure) -> [UInt8] {
    switch self {
    case .plain(let connection):
      do throws(SystemError) {
        return try connection.receive(max: max, timeoutMilliseconds: timeoutMilliseconds)
      } catch {
        throw .system(error)
      }
    #if !canImport(Darwin)
      case .secure(let connection):
        do throws(TLSError) {
          return try connection.receive(max: max, timeoutMilliseconds: timeoutMilliseconds)
        } catch {
          throw ChannelFailure(error)
        }
    #endif
    }
  }

  /// As `Connection.sendPart`.
  func sendPart(_ bytes: [UInt8], from start: Int, timeoutMilliseconds: Int64) throws(ChannelFailure) -> Int {
    switch self {
    case .plain(let connection):
      do throws(SystemError) {
        return try connection.sendPart(bytes, from: start, timeoutMilliseconds: timeoutMilliseconds)
      } catch {
        throw .system(error)
      }
    #if !canImport(Darwin)
      case .secure(let connection):
        do throws(TLSError) {
          return try connection.sendPart(bytes, from: start, timeoutMilliseconds: timeoutMilliseconds)
        } catch {
          throw ChannelFailure(error)
        }
    #endif
    }
  }

  /// Whether it is open and nothing came that no request asked for.
  var isQuiet: Bool {
    switch self {
    case .plain(let connection): connection.isQuiet
    #if !canImport(Darwin)
      case .secure(let connection): connection.isQuiet
    #endif
    }
  }

  /// Ends it; blocked calls on other threads end.
  func close() {
    switch self {
    case .plain(let connection): connection.close()
    #if !canImport(Darwin)
      case .secure(let connection): connection.close()
    #endif
    }
  }
}

#if canImport(Darwin)
  /// `https:` goes over URLSession here, which knows the keychain.
  package struct ServerTrust: Sendable {
    package init() {}
    /// The schemes that the transport over sockets carries.
    static let schemes = ["http"]
    func channel(over connection: Connection, to server: HTTPOrigin) throws(ChannelFailure) -> Channel {
      .plain(connection)
    }
  }
#else
  extension ChannelFailure {
    init(_ error: TLSError) {
      self =
        switch error {
        case .system(let error): .system(error)
        case .cut: .cut
        case .failed(let words): .secure("the TLS connection failed: \(words)")
        case .untrusted(let words): .noSecureConnection("the server's certificate is not accepted: \(words)")
        case .unavailable(let words): .noSecureConnection(words)
        }
    }
  }

  /// Whose certificates a transport accepts. OpenSSL is loaded by the first request to an `https:` address.
  package final class ServerTrust: Sendable {
    /// The schemes that the transport over sockets carries.
    static let schemes = ["http", "https"]
    private let authorities: String?
    private let context = OrderedMutex<TLSContext?>(.trust, nil)

    /// - Parameter authorities: the path of a PEM file; nil for those that the system trusts.
    package init(authorities: String? = nil) { self.authorities = authorities }

    /// The connection as the address asks for it, before its first byte.
    func channel(over connection: Connection, to server: HTTPOrigin) throws(ChannelFailure) -> Channel {
      guard server.scheme == "https" else { return .plain(connection) }
      do throws(TLSError) {
        return .secure(try SecureConnection(connection, made(), host: server.host))
      } catch {
        throw ChannelFailure(error)
      }
    }

    private func made() throws(TLSError) -> TLSContext {
      try context.withLock { (context) throws(TLSError) in
        if let context { return context }
        let made = try TLSContext(authorities: authorities)
        context = made
        return made
      }
    }
  }
#endif
