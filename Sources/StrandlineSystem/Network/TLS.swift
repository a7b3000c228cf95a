// TLS by the system's OpenSSL, on systems that bring no TLS of their own for Swift. The library is loaded when the first session
// needs it, so that a program that makes none neither has nor pays for it.
//
// OpenSSL works on memory here and never sees a socket: SecureConnection moves the bytes. So time limits, cancellation and SIGPIPE
// are those of our own sockets.

#if !canImport(Darwin)
  internal import CStrandline

  #if canImport(Glibc)
    internal import Glibc
  #elseif canImport(Musl)
    internal import Musl
  #endif

  /// Why there is no secure connection, or no longer.
  package enum TLSError: Error, Hashable, Sendable {
    /// This machine cannot: it has no library, or the authorities cannot be read.
    case unavailable(String)
    /// The server's certificate is not accepted, for this reason.
    case untrusted(String)
    /// The peer does not speak TLS as this machine does, or bytes were damaged.
    case failed(String)
    /// The connection ended and TLS had not ended it: what had come by then may be cut.
    case cut
    case system(SystemError)
  }

  /// What the sessions of one trust have in common.
  package final class TLSContext: Sendable {
    fileprivate let handle: Int

    /// The libraries of OpenSSL 3 and of 1.1, whose interface is the same for what is used here.
    package static let systemLibraries = ["libssl.so.3", "libssl.so.1.1"]
    private static let loaded = OrderedMutex<[String: Int]>([:])
    private static let wordsMax = 256

    /// Loads the library, unless it is loaded.
    ///
    /// - Parameters:
    ///   - authorities: the path of a PEM file with the authorities whose certificates are accepted. Nil for those that the system
    ///     trusts, or SSL_CERT_FILE and SSL_CERT_DIR name.
    ///   - libraries: the names of the libraries to try, in order.
    /// - Throws: `TLSError.unavailable`, which names the libraries or the file.
    package init(
      authorities: String? = nil, libraries: [String] = TLSContext.systemLibraries
    ) throws(TLSError) {
      let library = try Self.load(libraries)
      let place = authorities.map { "the authorities in '\($0)'" } ?? "the system's authorities"
      if let authorities {
        // OpenSSL does not say why a file cannot be read.
        do throws(SystemError) { _ = Descriptor(try SystemCall.open(authorities, O_RDONLY)) } catch {
          throw .unavailable("\(place) cannot be used: \(SystemError.words(for: error.errno))")
        }
      }
      var words = [CChar](repeating: 0, count: Self.wordsMax)
      handle = unsafe strandline_tls_context(library, authorities, &words, words.count)
      guard handle != 0 else { throw .unavailable("\(place) cannot be used: \(Self.text(words))") }
    }

    // It runs for an object too whose initializer throws.
    deinit { if handle != 0 { strandline_tls_context_free(handle) } }

    private static func load(_ names: [String]) throws(TLSError) -> Int {
      var problems: [String] = []
      for name in names {
        if let known = loaded.withLock({ $0[name] }) { return known }
        var words = [CChar](repeating: 0, count: wordsMax)
        let library = unsafe strandline_tls_load(name, &words, words.count)
        if library != 0 {
          loaded.withLock { $0[name] = library }
          return library
        }
        problems.append(text(words))
      }
      throw .unavailable(
        "no OpenSSL was found, whose library is \(names.joined(separator: " or ")); install it, or use http: "
          + "(\(problems.joined(separator: "; ")))")
    }

    private static func text(_ words: [CChar]) -> String {
      String(decoding: words.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
  }

  /// One session: bytes in, bytes out. It waits for nothing.
  struct TLSSession: ~Copyable {
    private let handle: Int
    /// Why it failed; then it is not used any more.
    private var error: TLSError?
    /// Encrypted bytes that the socket has not taken yet.
    private(set) var outgoing: [UInt8] = []

    /// The most bytes of a TLS record.
    static let recordBytesMax = 16 << 10

    /// A session with a server.
    ///
    /// - Parameter host: a name, or a literal address without brackets.
    init(_ context: TLSContext, host: String) throws(TLSError) {
      // The zone of a link-local address has a meaning on this machine only, and a dot at the end of a name only for resolvers.
      let address = String(host.prefix { $0 != "%" })
      if IPAddress(address) != nil {
        handle = unsafe strandline_tls_session(context.handle, nil, address)
      } else {
        handle = unsafe strandline_tls_session(
          context.handle, host.hasSuffix(".") ? String(host.dropLast()) : host, nil)
      }
      guard handle != 0 else { throw .failed("no session can be made with '\(host)'") }
    }

    deinit { if handle != 0 { strandline_tls_session_free(handle) } }

    /// What a step led to.
    enum Step: Hashable {
      case done
      /// More bytes of the peer are needed.
      case waits
      /// The peer has ended the session.
      case ended
    }

    /// Takes bytes that came from the peer.
    mutating func feed(_ bytes: [UInt8]) throws(TLSError) {
      let isTaken = unsafe bytes.withUnsafeBytes { unsafe strandline_tls_feed(handle, $0.baseAddress, $0.count) }
      guard isTaken == 1 else { throw .failed("there is no memory for what the server sent") }
    }

    /// Goes on with the handshake.
    mutating func shakeHands() throws(TLSError) -> Step {
      try check()
      return try step(strandline_tls_handshake(handle))
    }

    /// The bytes that can be decrypted, at most so many, and what comes after them. If it fails behind some bytes, the next call
    /// throws.
    mutating func read(max: Int) throws(TLSError) -> (bytes: [UInt8], next: Step) {
      try check()
      var result = 0
      let bytes = unsafe [UInt8](unsafeUninitializedCapacity: max) { buffer, count in
        while count < max {
          result = unsafe strandline_tls_read(handle, buffer.baseAddress.map { unsafe $0 + count }, max - count)
          if result <= 0 { return }
          count += result
        }
      }
      do throws(TLSError) { return (bytes, try step(result)) } catch {
        if bytes.isEmpty { throw error }
        return (bytes, .done)
      }
    }

    /// Encrypts the next bytes, at most a record, and returns how many.
    mutating func write(_ bytes: [UInt8], from start: Int) throws(TLSError) -> Int {
      try check()
      let count = min(bytes.count - start, Self.recordBytesMax)
      let result = unsafe bytes.withUnsafeBytes { buffer in
        unsafe strandline_tls_write(handle, buffer.baseAddress.map { unsafe $0 + start }, count)
      }
      guard try step(result) == .done else { throw .failed("the server began a new handshake") }
      return result
    }

    /// Encrypts the end of the session.
    mutating func end() {
      guard error == nil else { return }
      strandline_tls_shutdown(handle)
      drain()
    }

    /// The socket has taken so many bytes.
    mutating func sent(_ count: Int) { outgoing.removeFirst(count) }

    private func check() throws(TLSError) { if let error { throw error } }

    private mutating func step(_ result: Int) throws(TLSError) -> Step {
      drain()
      switch result {
      case 1...: return .done
      case Int(STRANDLINE_TLS_WAITS): return .waits
      case Int(STRANDLINE_TLS_ENDED): return .ended
      default: break
      }
      var isUntrusted: Int32 = 0
      let words = unsafe strandline_tls_problem(handle, &isUntrusted).map { unsafe String(cString: $0) } ?? ""
      let error = isUntrusted != 0 ? TLSError.untrusted(words) : .failed(words)
      self.error = error
      throw error
    }

    /// Takes what the session has to send.
    private mutating func drain() {
      while true {
        let piece = unsafe [UInt8](unsafeUninitializedCapacity: 2 * Self.recordBytesMax) { buffer, count in
          count = unsafe strandline_tls_drain(handle, buffer.baseAddress, buffer.count)
        }
        if piece.isEmpty { return }
        if outgoing.isEmpty { outgoing = piece } else { outgoing += piece }
      }
    }
  }
#endif
