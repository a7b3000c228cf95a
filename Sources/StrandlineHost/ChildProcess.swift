// A child process, for tests that kill the real binary and for the command's own crash test.
//
// Children are started by posix_spawn, because between fork and exec only async-signal-safe C functions may be called.
// A child inherits its three standard streams and nothing else, because every descriptor of this package is
// close-on-exec.

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

  /// Decodes the status that wait4(2) stores; its macros are not imported into Swift.
  fileprivate init(packed: Int32) {
    let signal = packed & 0x7F
    self = signal == 0 ? .exited((packed >> 8) & 0xFF) : .signalled(signal)
  }
}

/// What a child has used of the machine. Its memory is not told: the system counts that of the process that started it
/// too.
package struct ChildUsage: Hashable, Sendable {
  /// How often it gave its processor back to wait, or the system took it away.
  package var contextSwitches: Int
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

/// A process that this one has started. Releasing the object neither ends nor reaps the child.
package final class ChildProcess: Sendable {
  package let processID: Int32
  private let executable: String
  /// The child's standard output, if that is a pipe.
  package let output: PipeReader?
  package let errorOutput: PipeReader?
  private let input: Mutex<Descriptor?>
  private let status = Mutex<ExitStatus?>(nil)
  private let ended = Mutex<ChildUsage?>(nil)

  /// Starts a child.
  ///
  /// - Parameters:
  ///   - executable: The path of the program; PATH is not searched.
  ///   - arguments: The arguments without the program's name.
  ///   - environment: Entries of the form "NAME=value"; nil for the environment of this process.
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
      // dup2 clears close-on-exec. For an inherited stream both numbers are equal; POSIX requires posix_spawn to clear
      // close-on-exec in this case too.
      unsafe posix_spawn_file_actions_adddup2(&actions, stream.number, Int32(number))
    }
    // The child starts with default signal handling, whatever this process ignores or handles.
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
    // This process closes the child's ends of the pipes when these values are released, so that a reader sees the end
    // of the stream when the child has ended.
    withExtendedLifetime((standardInput, standardOutput, standardError)) {}
    processID = child
    self.input = Mutex(standardInput.ours)
    self.output = standardOutput.ours.map { PipeReader($0, "output of \(executable)") }
    self.errorOutput = standardError.ours.map { PipeReader($0, "error output of \(executable)") }
  }

  /// Runs `body` with the strings as a C argument vector, terminated by nil.
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

  /// Closes the child's standard input.
  ///
  /// For tests: the command itself gives its children files as input.
  package func closeInput() { input.withLock { $0 = nil } }

  // MARK: End

  /// Sends a signal. Does nothing if the child has ended and was reaped.
  package func kill(_ signal: ChildSignal) {
    // While this thread holds the lock no other thread can reap the child, so the system cannot have given its process
    // ID to another process.
    status.withLock { status in
      if status == nil { _ = systemKill(processID, signal.number) }
    }
  }

  /// Blocks until the child has ended and returns how. May be called repeatedly and from several threads.
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

  /// What the child has used; nil before it was reaped.
  package var usage: ChildUsage? { ended.withLock { $0 } }

  /// Reaps the child if it has ended. Returns how it ended, or nil if it still runs.
  package func waitNoHang() throws(SystemError) -> ExitStatus? {
    try status.withLock { (status) throws(SystemError) -> ExitStatus? in
      if let status { return status }
      var packed: Int32 = 0
      var used = rusage()
      while true {
        let result = unsafe wait4(processID, &packed, WNOHANG, &used)
        if result == 0 { return nil }
        if result == processID { break }
        let code = errno
        if code != EINTR { throw SystemError(call: "wait4", subject: executable, errno: code) }
      }
      let how = ExitStatus(packed: packed)
      status = how
      ended.withLock { $0 = ChildUsage(contextSwitches: Int(used.ru_nvcsw + used.ru_nivcsw)) }
      return how
    }
  }
}

/// One standard stream of a child: the end that the child gets, and for a pipe the end that this process keeps.
private struct ChildStream {
  /// Keeps `number` open until the child has been started; nil if the child inherits the stream.
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

/// The end of a pipe to read from. One thread reads at a time; other callers wait for it.
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

  /// Waits for the next line and returns it without its line end, or nil at the end of the stream.
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

  /// Reads to the end of the stream and returns the bytes.
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

// Outside of the type, because inside it this name means its method.
private func systemKill(_ process: Int32, _ signal: Int32) -> Int32 { kill(process, signal) }
