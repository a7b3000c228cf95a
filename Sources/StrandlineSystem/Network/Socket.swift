// TCP sockets for the transport of `http:`, the local server and their tests: blocking calls with time limits.
//
// Every descriptor is non-blocking, and a call that must wait does so in poll(2). shutdown(2), which `close` calls, ends
// the wait on a connected socket at once. On Apple's systems it wakes no thread that waits on a listener, and a connection
// that is being made can be cancelled: such a wait lasts at most 100 ms at a time.

internal import CStrandline

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A socket that any thread may close.
private final class Socket: Sendable {
  let subject: String
  /// nil after `close`.
  private let descriptor: OrderedMutex<Descriptor?>

  init(_ descriptor: Descriptor, _ subject: String) {
    self.descriptor = OrderedMutex(.leaf, descriptor)
    self.subject = subject
  }

  /// The longest wait in poll(2) before the descriptor is checked again, where nothing ends the wait.
  static let shortWait: Int64 = 100
  /// The same for a connected socket. Hundreds of idle connections must not keep a processor busy.
  static let longWait: Int64 = 60_000

  func current(_ call: String) throws(SystemError) -> Descriptor {
    guard let descriptor = descriptor.withLock({ $0 }) else { throw .closed(call, subject) }
    return descriptor
  }

  /// Calls `attempt` until it returns a result, and waits for `events` between the calls. Returns nil when the time
  /// limit has passed.
  ///
  /// `attempt` returns nil if the system call would block.
  ///
  /// - Parameter pollMillisecondsMax: `shortWait` or `longWait`.
  func wait<Result>(
    _ call: String, _ events: Int32, _ timeoutMilliseconds: Int64?, pollMillisecondsMax: Int64 = longWait,
    _ attempt: (Int32) throws(SystemError) -> Result?
  ) throws(SystemError) -> Result? {
    let clock = RealClock()
    let start = clock.monotonicNanoseconds()
    while true {
      let descriptor = try current(call)
      let result = try withExtendedLifetime(descriptor) { () throws(SystemError) in try attempt(descriptor.number) }
      if let result { return result }
      var pollMilliseconds = pollMillisecondsMax
      if let timeoutMilliseconds {
        let passed = Int64(clamping: (clock.monotonicNanoseconds() - start) / 1_000_000)
        if passed >= timeoutMilliseconds { return nil }
        pollMilliseconds = min(pollMilliseconds, timeoutMilliseconds - passed)
      }
      withExtendedLifetime(descriptor) {
        var wanted = pollfd(fd: descriptor.number, events: Int16(events), revents: 0)
        // The result is not needed: the next attempt succeeds, would block or throws.
        unsafe _ = poll(&wanted, 1, Int32(pollMilliseconds))
      }
    }
  }

  /// Shuts down both directions at once. The descriptor is closed when the last call on it returns.
  func close() {
    guard let descriptor = descriptor.withLock({ $0.take() }) else { return }
    withExtendedLifetime(descriptor) { _ = shutdown(descriptor.number, Int32(SHUT_RDWR)) }
  }

  deinit { close() }

  /// Whether the call would block or was interrupted, so that the caller waits and tries again.
  static func mustWait(_ code: Int32) -> Bool { code == EAGAIN || code == EWOULDBLOCK || code == EINTR }
}

/// Creates a non-blocking, close-on-exec socket for a literal address and runs `body` with both.
private func withAddress<Result>(
  _ call: String, _ host: String, _ port: UInt16,
  _ body: (Descriptor, UnsafePointer<sockaddr>, socklen_t) throws(SystemError) -> Result
) throws(SystemError) -> Result {
  let subject = "\(host):\(port)"
  var hints = unsafe addrinfo()
  // Only literal addresses: a host name could resolve to another machine. HostName finds the addresses of a name.
  unsafe hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV
  #if canImport(Glibc)
    let stream = Int32(SOCK_STREAM.rawValue)
  #else
    let stream = SOCK_STREAM
  #endif
  unsafe hints.ai_socktype = stream
  var list: UnsafeMutablePointer<addrinfo>?
  let literal = host == "localhost" ? "127.0.0.1" : host
  guard unsafe getaddrinfo(literal, String(port), &hints, &list) == 0, let found = unsafe list else {
    throw SystemError(call: call, subject: subject, errno: EADDRNOTAVAIL)
  }
  defer { unsafe freeaddrinfo(found) }
  let number = unsafe socket(found.pointee.ai_family, stream, 0)
  guard number >= 0 else { throw SystemError(call: "socket", subject: subject, errno: errno) }
  let descriptor = Descriptor(number)
  _ = fcntl(number, F_SETFD, FD_CLOEXEC)
  _ = fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK)
  guard let address = unsafe found.pointee.ai_addr else {
    throw SystemError(call: call, subject: subject, errno: EADDRNOTAVAIL)
  }
  return unsafe try body(descriptor, address, found.pointee.ai_addrlen)
}

private func setOption(_ descriptor: Int32, _ level: Int32, _ option: Int32) {
  var on: Int32 = 1
  // A failure is ignored: no option set here is needed for correctness.
  unsafe _ = setsockopt(descriptor, level, option, &on, socklen_t(MemoryLayout<Int32>.size))
}

/// A socket that waits for connections.
package final class Listener: Sendable {
  /// The port that it listens on. If `bind` was called with 0, the port that the system chose.
  package let port: UInt16
  private let socket: Socket

  private init(_ descriptor: Descriptor, _ subject: String, port: UInt16) {
    self.socket = Socket(descriptor, subject)
    self.port = port
  }

  /// Listens on a literal address ("127.0.0.1", "::1", "0.0.0.0"; "localhost" means the first) and port.
  ///
  /// - Throws: EADDRINUSE, EADDRNOTAVAIL, EACCES.
  package static func bind(host: String, port: UInt16) throws(SystemError) -> Listener {
    unsafe try withAddress("bind", host, port) { (descriptor, address, length) throws(SystemError) in
      let subject = "\(host):\(port)"
      setOption(descriptor.number, SOL_SOCKET, SO_REUSEADDR)
      guard unsafe systemBind(descriptor.number, address, length) == 0 else {
        throw SystemError(call: "bind", subject: subject, errno: errno)
      }
      guard listen(descriptor.number, 1_024) == 0 else {
        throw SystemError(call: "listen", subject: subject, errno: errno)
      }
      return Listener(descriptor, subject, port: try boundPort(descriptor.number, subject))
    }
  }

  private static func boundPort(_ descriptor: Int32, _ subject: String) throws(SystemError) -> UInt16 {
    var storage = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let code = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe getsockname(descriptor, $0, &length)
      }
    }
    guard code == 0 else { throw SystemError(call: "getsockname", subject: subject, errno: errno) }
    // In both sockaddr_in and sockaddr_in6 the port follows two bytes of family, big-endian.
    return unsafe withUnsafeBytes(of: &storage) { unsafe UInt16($0[2]) << 8 | UInt16($0[3]) }
  }

  /// Waits for the next connection and returns it, or nil when the time limit has passed (nil for no limit).
  ///
  /// - Throws: EBADF within 100 ms after another thread has closed the listener.
  package func accept(timeoutMilliseconds: Int64? = nil) throws(SystemError) -> Connection? {
    try socket.wait("accept", Int32(POLLIN), timeoutMilliseconds, pollMillisecondsMax: Socket.shortWait) {
      (descriptor) throws(SystemError) in
      let number = strandline_accept(descriptor)
      if number >= 0 { return Connection(Descriptor(number), "a client of \(socket.subject)") }
      // ECONNABORTED means that the client has closed the connection already. EINVAL means that the listener was shut
      // down; the next attempt then finds that its descriptor is nil.
      if Socket.mustWait(-number) || -number == ECONNABORTED || -number == EINVAL { return nil }
      throw SystemError(call: "accept", subject: socket.subject, errno: -number)
    }
  }

  /// Stops listening; a blocked `accept` on another thread ends.
  package func close() { socket.close() }
}

/// A connected socket.
package final class Connection: Sendable {
  private let socket: Socket

  fileprivate init(_ descriptor: Descriptor, _ subject: String) {
    socket = Socket(descriptor, subject)
    setOption(descriptor.number, Int32(IPPROTO_TCP), TCP_NODELAY)
    #if canImport(Darwin)
      setOption(descriptor.number, SOL_SOCKET, SO_NOSIGPIPE)
    #endif
  }

  /// Connects to a literal address and port.
  ///
  /// - Parameter isCancelled: asked at least every 100 ms; if it returns true, the call ends.
  /// - Throws: ECONNREFUSED, ETIMEDOUT; EBADF if cancelled.
  package static func connect(
    host: String, port: UInt16, timeoutMilliseconds: Int64? = nil, isCancelled: () -> Bool = { false }
  ) throws(SystemError) -> Connection {
    unsafe try withAddress("connect", host, port) { (descriptor, address, length) throws(SystemError) in
      let subject = "\(host):\(port)"
      let connection = Connection(descriptor, subject)
      guard unsafe systemConnect(descriptor.number, address, length) != 0 else { return connection }
      guard errno == EINPROGRESS || errno == EINTR else {
        throw SystemError(call: "connect", subject: subject, errno: errno)
      }
      let isConnected: Bool? = try connection.socket.wait(
        "connect", Int32(POLLOUT), timeoutMilliseconds, pollMillisecondsMax: Socket.shortWait
      ) { (descriptor) throws(SystemError) in
        if isCancelled() { throw .closed("connect", subject) }
        var wanted = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        guard unsafe poll(&wanted, 1, 0) > 0 else { return nil }
        var code: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        unsafe _ = getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size)
        guard code == 0 else { throw SystemError(call: "connect", subject: subject, errno: code) }
        return true
      }
      guard isConnected != nil else { throw .timedOut("connect", subject) }
      return connection
    }
  }

  /// Waits for bytes and returns those that have arrived, at most `max`. Returns an empty array at the end of the stream.
  ///
  /// - Throws: ETIMEDOUT, ECONNRESET, EBADF after `close`.
  package func receive(max: Int, timeoutMilliseconds: Int64? = nil) throws(SystemError) -> [UInt8] {
    precondition(max > 0)
    let bytes = try socket.wait("recv", Int32(POLLIN), timeoutMilliseconds) {
      (descriptor) throws(SystemError) -> [UInt8]? in
      var failure: Int32 = 0
      let bytes = unsafe [UInt8](unsafeUninitializedCapacity: max) { buffer, count in
        let got = unsafe recv(descriptor, buffer.baseAddress, max, 0)
        if got >= 0 { count = got } else { failure = errno }
      }
      if failure == 0 { return bytes }
      if Socket.mustWait(failure) { return nil }
      throw SystemError(call: "recv", subject: socket.subject, errno: failure)
    }
    guard let bytes else { throw .timedOut("recv", socket.subject) }
    return bytes
  }

  /// Sends all of `bytes` within the time limit. If it throws, any part may have been sent.
  ///
  /// - Parameters:
  ///   - timeoutMilliseconds: for all bytes.
  ///   - stallMilliseconds: for the peer to take the next ones; nil if only the whole is limited.
  /// - Throws: ETIMEDOUT; EPIPE or ECONNRESET if the peer has closed the connection (without raising SIGPIPE); EBADF
  ///   after `close`.
  package func send(
    _ bytes: [UInt8], timeoutMilliseconds: Int64? = nil, stallMilliseconds: Int64? = nil
  ) throws(SystemError) {
    var done = 0
    var left = timeoutMilliseconds
    while true {
      let before = done
      let limit = left.map { min($0, stallMilliseconds ?? $0) } ?? stallMilliseconds
      let isSent = try socket.wait("send", Int32(POLLOUT), limit) { (descriptor) throws(SystemError) -> Bool? in
        while done < bytes.count {
          guard let count = try put(bytes, from: done, descriptor) else { return nil }
          done += count
        }
        return true
      }
      if isSent != nil { return }
      left = left.map { $0 - (limit ?? 0) }
      guard done > before, left.map({ $0 > 0 }) ?? true else { throw .timedOut("send", socket.subject) }
    }
  }

  /// Sends as much of `bytes` from `start` on as the system takes at once, and returns how many bytes that were. If it
  /// takes none, waits until it does, or until the peer has sent something or closed the connection: then returns 0.
  ///
  /// So a peer that refuses a message while it is sent is heard. If it throws, no byte has been sent.
  ///
  /// - Throws: what `send` throws.
  package func sendPart(
    _ bytes: [UInt8], from start: Int, timeoutMilliseconds: Int64? = nil
  ) throws(SystemError) -> Int {
    let sent = try socket.wait("send", Int32(POLLOUT) | Int32(POLLIN), timeoutMilliseconds) {
      (descriptor) throws(SystemError) -> Int? in
      if let count = try put(bytes, from: start, descriptor) { return count }
      return Self.isReadable(descriptor) ? 0 : nil
    }
    guard let sent else { throw .timedOut("send", socket.subject) }
    return sent
  }

  /// One call of send(2): the number of bytes that it took, or nil if it would block.
  private func put(_ bytes: [UInt8], from start: Int, _ descriptor: Int32) throws(SystemError) -> Int? {
    #if canImport(Darwin)
      let flags: Int32 = 0
    #else
      let flags = Int32(MSG_NOSIGNAL)
    #endif
    let (put, code) = unsafe bytes.withUnsafeBytes { buffer -> (Int, Int32) in
      guard let base = buffer.baseAddress else { return (0, EINVAL) }
      let put = unsafe systemSend(descriptor, base + start, bytes.count - start, flags)
      return (put, put < 0 ? errno : 0)
    }
    if put >= 0 { return put }
    if Socket.mustWait(code) { return nil }
    throw SystemError(call: "send", subject: socket.subject, errno: code)
  }

  private static func isReadable(_ descriptor: Int32) -> Bool {
    var wanted = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    // A failure counts as readable: the read that follows reports it.
    return unsafe poll(&wanted, 1, 0) != 0
  }

  /// Whether the connection is open and the peer has sent nothing that was not read, not even the end of the stream.
  package var isQuiet: Bool {
    guard let descriptor = try? socket.current("poll") else { return false }
    return withExtendedLifetime(descriptor) { !Self.isReadable(descriptor.number) }
  }

  /// Shuts down the direction to the peer, which then reads the end of the stream.
  package func shutdown() {
    guard let descriptor = try? socket.current("shutdown") else { return }
    withExtendedLifetime(descriptor) { _ = systemShutdown(descriptor.number, Int32(SHUT_WR)) }
  }

  /// Reads and drops what the peer still sends until the peer closes the connection. Returns whether it did within the
  /// time limit.
  ///
  /// Called after `shutdown`, because closing a socket that has unread bytes resets the connection, and the peer may
  /// then lose an answer that it has not read yet.
  package func waitUntilPeerCloses(timeoutMilliseconds: Int64) -> Bool {
    let clock = RealClock()
    let start = clock.monotonicNanoseconds()
    while true {
      let passed = Int64(clamping: (clock.monotonicNanoseconds() - start) / 1_000_000)
      guard passed <= timeoutMilliseconds else { return false }
      do {
        if try receive(max: 16 << 10, timeoutMilliseconds: timeoutMilliseconds - passed).isEmpty { return true }
      } catch {
        // Any other error, such as a reset, means that the connection has ended.
        return error.errno != ETIMEDOUT
      }
    }
  }

  /// Ends the connection; blocked calls on other threads end.
  package func close() { socket.close() }
}

// Outside of the types, because inside them these names mean their methods.
private func systemBind(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t) -> Int32 {
  unsafe bind(descriptor, address, length)
}
private func systemConnect(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t) -> Int32 {
  unsafe connect(descriptor, address, length)
}
private func systemSend(_ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, _ flags: Int32) -> Int {
  unsafe send(descriptor, buffer, count, flags)
}
private func systemShutdown(_ descriptor: Int32, _ how: Int32) -> Int32 { shutdown(descriptor, how) }
