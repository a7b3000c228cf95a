// A child process: for tests that kill the real binary, and for the command's own crash test.
//
// posix_spawn, and no fork in Swift: between fork and exec only a few C calls are safe. The child gets
// its three streams and nothing else, since every descriptor of this package is closed on exec.

package import StrandlineSystem
internal import Synchronization

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
  internal import MachO
#endif

/// Where a child's standard input comes from.
package enum ChildInput: Sendable {
  case null
  case inherit
  case file(String)
  case pipe
}

/// Where a child's output goes.
package enum ChildOutput: Sendable {
  case null
  case inherit
  /// A file, created or emptied.
  case file(String)
  case pipe
}

/// How a process ended.
package enum ExitStatus: Hashable, Sendable, CustomStringConvertible {
  case exited(Int32)
  case signalled(Int32)

  package var description: String {
    switch self {
    case .exited(let code): "exit code \(code)"
    case .signalled(let number): "signal \(number)"
    }
  }

  /// As waitpid(2) packs it; its macros do not reach Swift.
  fileprivate init(packed: Int32) {
    let signal = packed & 0x7F
    self = signal == 0 ? .exited((packed >> 8) & 0xFF) : .signalled(signal)
  }
}

/// A signal to a child.
package enum ChildSignal: Sendable {
  case kill
  case terminate
  case interrupt
  case stop
  case resume

  package var number: Int32 {
    switch self {
    case .kill: SIGKILL
    case .terminate: SIGTERM
    case .interrupt: SIGINT
    case .stop: SIGSTOP
    case .resume: SIGCONT
    }
  }
}

/// A process that this one has started. Dropping it neither ends nor reaps the child.
package final class ChildProcess: Sendable {
  package let processID: Int32
  private let executable: String
  /// What the child prints, where a pipe was asked for.
  package let output: PipeReader?
  package let errorOutput: PipeReader?
  private let input: Mutex<Descriptor?>
  private let status = Mutex<ExitStatus?>(nil)

  /// Starts a child.
  ///
  /// - Parameters:
  ///   - executable: its path; no search in PATH.
  ///   - arguments: without the program's name.
  ///   - environment: "NAME=value" each; nil for this process's own.
  /// - Throws: ENOENT, EACCES, EAGAIN.
  package init(
    _ executable: String, _ arguments: [String], environment: [String]? = nil, input: ChildInput = .null,
    output: ChildOutput = .inherit, errorOutput: ChildOutput = .inherit
  ) throws(SystemError) {
    self.executable = executable
    let standardInput = try ChildStream(input)
    let standardOutput = try ChildStream(output, fallback: 1)
    let standardError = try ChildStream(errorOutput, fallback: 2)

    #if canImport(Darwin)
      var actions: posix_spawn_file_actions_t?
      var attributes: posix_spawnattr_t?
    #else
      var actions = unsafe posix_spawn_file_actions_t()
      var attributes = posix_spawnattr_t()
    #endif
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe _ = posix_spawn_file_actions_destroy(&actions) }
    unsafe posix_spawnattr_init(&attributes)
    defer { unsafe _ = posix_spawnattr_destroy(&attributes) }

    for (number, stream) in [standardInput, standardOutput, standardError].enumerated() {
      // dup2 clears close-on-exec; onto itself (inherit) it does too, by POSIX's special rule for spawn.
      unsafe posix_spawn_file_actions_adddup2(&actions, stream.number, Int32(number))
    }
    // What this process ignores or handles, the child must not begin with.
    var defaults = sigset_t()
    var none = sigset_t()
    unsafe sigemptyset(&defaults)
    unsafe sigemptyset(&none)
    for number in [SIGPIPE, SIGINT, SIGTERM] { unsafe sigaddset(&defaults, number) }
    unsafe posix_spawnattr_setsigdefault(&attributes, &defaults)
    unsafe posix_spawnattr_setsigmask(&attributes, &none)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF) | Int16(POSIX_SPAWN_SETSIGMASK))

    var child: pid_t = 0
    let code = unsafe Self.withStrings([executable] + arguments) { argv in
      unsafe Self.withStrings(environment ?? ProcessEnvironment.all) { envp in
        unsafe posix_spawn(&child, executable, &actions, &attributes, argv, envp)
      }
    }
    guard code == 0 else { throw SystemError(call: "posix_spawn", subject: executable, errno: code) }
    // The child's ends close with these streams, so that the end of a pipe is seen when the child is gone.
    withExtendedLifetime((standardInput, standardOutput, standardError)) {}
    processID = child
    self.input = Mutex(standardInput.ours)
    self.output = standardOutput.ours.map { PipeReader($0, "output of \(executable)") }
    self.errorOutput = standardError.ours.map { PipeReader($0, "error output of \(executable)") }
  }

  /// An argument vector as C wants it, ended by nil.
  private static func withStrings(
    _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Int32
  ) -> Int32 {
    var pointers = unsafe strings.map { unsafe strdup($0) }
    unsafe pointers.append(nil)
    defer { unsafe pointers.forEach { unsafe free($0) } }
    return unsafe body(pointers)
  }

  // MARK: Input

  /// Writes to the child's standard input, if that is a pipe.
  package func write(_ bytes: [UInt8]) throws(SystemError) {
    guard let descriptor = input.withLock({ $0 }) else { throw .closed("write", "input of \(executable)") }
    try withExtendedLifetime(descriptor) { () throws(SystemError) in
      try SystemCall.writeAll(descriptor.number, bytes, subject: "input of \(executable)")
    }
  }

  /// Ends the child's standard input.
  ///
  /// For tests: the command feeds its children from files.
  package func closeInput() { input.withLock { $0 = nil } }

  // MARK: End

  /// Sends a signal; nothing happens if the child is known to have ended.
  package func kill(_ signal: ChildSignal) {
    // Under the lock no other thread can reap the child, so the number is still the child's own.
    status.withLock { status in
      if status == nil { _ = systemKill(processID, signal.number) }
    }
  }

  /// Blocks until the child has ended. May be called again and from several threads.
  @discardableResult
  package func wait() throws(SystemError) -> ExitStatus {
    while true {
      if let known = try waitNoHang() { return known }
      // Waits without reaping, and hence without the lock that `kill` needs.
      var information = unsafe siginfo_t()
      while unsafe waitid(P_PID, id_t(processID), &information, WEXITED | WNOWAIT) != 0 {
        let code = errno
        if code == ECHILD { break }
        if code != EINTR { throw SystemError(call: "waitid", subject: executable, errno: code) }
      }
    }
  }

  /// How the child ended, nil if it has not.
  package func waitNoHang() throws(SystemError) -> ExitStatus? {
    try status.withLock { (status) throws(SystemError) -> ExitStatus? in
      if let status { return status }
      var packed: Int32 = 0
      while true {
        let result = unsafe waitpid(processID, &packed, WNOHANG)
        if result == 0 { return nil }
        if result == processID { break }
        let code = errno
        if code != EINTR { throw SystemError(call: "waitpid", subject: executable, errno: code) }
      }
      let ended = ExitStatus(packed: packed)
      status = ended
      return ended
    }
  }
}

/// One stream of a child: the end that it gets, and the end that stays here.
private struct ChildStream {
  /// Keeps `number` open until the child has been started; nil if it is one of this process's own streams.
  let theirs: Descriptor?
  let ours: Descriptor?
  let number: Int32

  private init(theirs: Descriptor, ours: Descriptor? = nil) {
    self.theirs = theirs
    self.ours = ours
    self.number = theirs.number
  }

  private init(inherited number: Int32) {
    self.theirs = nil
    self.ours = nil
    self.number = number
  }

  init(_ input: ChildInput) throws(SystemError) {
    switch input {
    case .inherit: self.init(inherited: 0)
    case .null: self.init(theirs: Descriptor(try SystemCall.open("/dev/null", O_RDONLY)))
    case .file(let path): self.init(theirs: Descriptor(try SystemCall.open(path, O_RDONLY)))
    case .pipe:
      let pipe = try SystemPipe()
      self.init(theirs: pipe.reader, ours: pipe.writer)
    }
  }

  init(_ output: ChildOutput, fallback: Int32) throws(SystemError) {
    switch output {
    case .inherit: self.init(inherited: fallback)
    case .null: self.init(theirs: Descriptor(try SystemCall.open("/dev/null", O_WRONLY)))
    case .file(let path):
      self.init(theirs: Descriptor(try SystemCall.open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o644)))
    case .pipe:
      let pipe = try SystemPipe()
      self.init(theirs: pipe.writer, ours: pipe.reader)
    }
  }
}

/// The reading end of a pipe. One thread at a time reads; others wait.
package final class PipeReader: Sendable {
  private struct State {
    var descriptor: Descriptor
    var buffer: [UInt8] = []
    var isAtEnd = false
  }
  private let state: Mutex<State>
  private let subject: String

  init(_ descriptor: Descriptor, _ subject: String) {
    self.state = Mutex(State(descriptor: descriptor))
    self.subject = subject
  }

  /// The next line without its end; nil after the last. Blocks until there is one.
  package func readLine() throws(SystemError) -> String? {
    try state.withLock { (state) throws(SystemError) -> String? in
      var searched = 0
      while true {
        if let end = state.buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
          let line = String(decoding: state.buffer[..<end], as: UTF8.self)
          state.buffer.removeSubrange(...end)
          return line
        }
        searched = state.buffer.count
        if state.isAtEnd {
          guard !state.buffer.isEmpty else { return nil }
          defer { state.buffer = [] }
          return String(decoding: state.buffer, as: UTF8.self)
        }
        try fill(&state)
      }
    }
  }

  /// All that is left, to the end of the stream.
  package func readAll() throws(SystemError) -> [UInt8] {
    try state.withLock { (state) throws(SystemError) -> [UInt8] in
      while !state.isAtEnd { try fill(&state) }
      defer { state.buffer = [] }
      return state.buffer
    }
  }

  private func fill(_ state: inout State) throws(SystemError) {
    let bytes = try SystemCall.readSome(state.descriptor.number, 64 << 10, subject: subject)
    if bytes.isEmpty { state.isAtEnd = true } else { state.buffer.append(contentsOf: bytes) }
  }
}

/// The path of the program that this process runs.
package func currentExecutablePath() throws(SystemError) -> String {
  #if canImport(Darwin)
    var size: UInt32 = 0
    unsafe _ = _NSGetExecutablePath(nil, &size)
    var buffer = [CChar](repeating: 0, count: Int(size) + 1)
    guard unsafe _NSGetExecutablePath(&buffer, &size) == 0 else {
      throw .invalid("_NSGetExecutablePath", "")
    }
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  #else
    var buffer = [CChar](repeating: 0, count: 4_096)
    let count = unsafe readlink("/proc/self/exe", &buffer, buffer.count)
    guard count >= 0 else { throw SystemError(call: "readlink", subject: "/proc/self/exe", errno: errno) }
    return String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  #endif
}

// Outside of the type, whose method hides this name.
private func systemKill(_ process: Int32, _ signal: Int32) -> Int32 { kill(process, signal) }
