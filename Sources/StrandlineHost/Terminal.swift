// The standard streams: whether one is a terminal, its width, whether to use colour; and reading and writing them.
//
// Output goes through write(2), which throws at once. The C library's buffer would delay the error of a full disk or a
// closed pipe until exit, when the command can no longer report it.

internal import CStrandlineHost
package import StrandlineSystem

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// One of the three streams that every process has.
package enum StandardStream: Int32, Sendable {
  case input = 0
  case output = 1
  case error = 2

  var name: String {
    switch self {
    case .input: "standard input"
    case .output: "standard output"
    case .error: "standard error"
    }
  }
}

/// Properties of the terminal.
package enum Terminal {
  /// Whether the stream is a terminal rather than a file or a pipe.
  package static func isTerminal(_ stream: StandardStream) -> Bool { isatty(stream.rawValue) == 1 }

  /// The width in columns of a stream's terminal: as the terminal driver reports it, else `COLUMNS`, else nil.
  package static func width(_ stream: StandardStream = .output) -> Int? {
    var size = winsize()
    if unsafe ioctl(stream.rawValue, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return Int(size.ws_col) }
    guard let columns = ProcessEnvironment.value(of: "COLUMNS"), let width = Int(columns), width > 0 else {
      return nil
    }
    return width
  }

  /// Whether to use colour on this stream: it is a terminal, `TERM` is not "dumb", and `NO_COLOR` is empty or not set
  /// (no-color.org).
  package static func mayColor(_ stream: StandardStream = .output) -> Bool {
    guard isTerminal(stream) else { return false }
    if let refusal = ProcessEnvironment.value(of: "NO_COLOR"), !refusal.isEmpty { return false }
    return ProcessEnvironment.value(of: "TERM") != "dumb"
  }
}

/// Writes to standard output and standard error.
package enum StandardStreams {
  /// Writes all of `bytes`.
  ///
  /// - Throws: EPIPE if the pipe's reader has closed it (without `ignoreBrokenPipes()` SIGPIPE ends the process
  ///   instead); ENOSPC for a file on a full disk.
  package static func write(_ bytes: [UInt8], to stream: StandardStream) throws(SystemError) {
    try SystemCall.writeAll(stream.rawValue, bytes, subject: stream.name)
  }

  /// Writes text as UTF-8.
  package static func write(_ text: String, to stream: StandardStream) throws(SystemError) {
    try write(Array(text.utf8), to: stream)
  }

  /// Whether what is written to the stream can still be read: false when the reader of a pipe has closed it, or a terminal
  /// is gone.
  package static func hasReader(_ stream: StandardStream) -> Bool {
    var state = pollfd(fd: stream.rawValue, events: 0, revents: 0)
    guard unsafe poll(&state, 1, 0) > 0 else { return true }
    return Int32(state.revents) & (Int32(POLLERR) | Int32(POLLHUP) | Int32(POLLNVAL)) == 0
  }

  /// Opens /dev/null on each of the descriptors 0, 1 and 2 that the process was started without.
  ///
  /// The system gives the lowest free number to the next file that is opened. Without this call that file may be one of
  /// a store or of the dispatch library, and the next message would be written into it. So this must be the first call
  /// of the process. The descriptors are opened against their direction, as the C library does it for privileged
  /// programs: a write to a closed standard output must fail (EBADF), because data that is dropped silently is lost.
  package static func openClosed() {
    for stream in [StandardStream.input, .output, .error] {
      // If /dev/null cannot be opened, the descriptor stays closed: there is nowhere to report it.
      guard fcntl(stream.rawValue, F_GETFD) == -1, errno == EBADF else { continue }
      _ = unsafe open("/dev/null", stream == .input ? O_WRONLY : O_RDONLY)
    }
  }

  /// Ignores SIGPIPE, so that a write to a pipe without a reader throws EPIPE instead of ending the process.
  package static func ignoreBrokenPipes() { _ = signal(SIGPIPE, SIG_IGN) }
}

/// Reads standard input.
package enum StandardInput {
  /// Waits for bytes and returns those that have arrived, at most `max`. Returns an empty array at the end of the input.
  package static func read(max: Int) throws(SystemError) -> [UInt8] {
    try SystemCall.readSome(StandardStream.input.rawValue, max, subject: StandardStream.input.name)
  }
}

extension ProcessEnvironment {
  /// All variables, in the form "NAME=value".
  package static var all: [String] {
    guard let list = unsafe strandline_environment() else { return [] }
    var result: [String] = []
    var index = 0
    while let entry = unsafe list[index] {
      unsafe result.append(String(cString: entry))
      index += 1
    }
    return result
  }
}

extension SystemCall {
  /// Writes all of `bytes`, also to a pipe or terminal in non-blocking mode.
  static func writeAll(_ descriptor: Int32, _ bytes: [UInt8], subject: String) throws(SystemError) {
    let failure: Int32 = unsafe bytes.withUnsafeBytes { buffer in
      guard let base = buffer.baseAddress else { return 0 }
      var done = 0
      while done < bytes.count {
        let put = unsafe write(descriptor, base + done, bytes.count - done)
        if put >= 0 {
          done += put
          continue
        }
        let code = errno
        if code == EAGAIN || code == EWOULDBLOCK {
          // Another process that shares the stream has made it non-blocking.
          waitFor(descriptor, POLLOUT)
        } else if code != EINTR {
          return code
        }
      }
      return 0
    }
    guard failure == 0 else { throw SystemError(call: "write", subject: subject, errno: failure) }
  }

  /// Waits for bytes and returns those that have arrived, at most `max`. Returns an empty array at the end of the stream.
  static func readSome(_ descriptor: Int32, _ max: Int, subject: String) throws(SystemError) -> [UInt8] {
    precondition(max > 0)
    var failure: Int32 = 0
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: max) { buffer, count in
      guard let base = buffer.baseAddress else { return }
      while true {
        let got = unsafe read(descriptor, base, max)
        if got >= 0 {
          count = got
          return
        }
        let code = errno
        if code == EAGAIN || code == EWOULDBLOCK {
          waitFor(descriptor, POLLIN)
        } else if code != EINTR {
          failure = code
          return
        }
      }
    }
    guard failure == 0 else { throw SystemError(call: "read", subject: subject, errno: failure) }
    return bytes
  }

  private static func waitFor(_ descriptor: Int32, _ events: some BinaryInteger) {
    var wanted = pollfd(fd: descriptor, events: Int16(events), revents: 0)
    unsafe _ = poll(&wanted, 1, -1)
  }
}
