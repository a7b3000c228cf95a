// The working directory of `demo`, `bench` and `crash-test` and the child processes that they start. The directory is
// removed and the children are killed when the command ends, also after an error or an interrupt.

import StrandlineHost
import StrandlineSystem
import Synchronization

/// A working directory and the child processes that work in it.
final class WorkDirectory: Sendable {
  /// How a child ended, and what it printed.
  struct Finished {
    var status: ExitStatus
    var output: String
    var error: String
  }

  let path: String
  let console: Console
  private let isKept: Mutex<Bool>
  private let executable: String
  private let childEnvironment: [String]
  private let state = Mutex(State())

  private struct State {
    var children: [ChildProcess] = []
    var count = 0
    var isInterrupted = false
  }

  /// Makes the directory: `kept`, which is not removed at the end, or a new one in `parent` (by default TMPDIR or /tmp).
  init(_ console: Console, kept: String?, parent: String? = nil) throws {
    self.console = console
    isKept = Mutex(kept != nil)
    executable = try currentExecutablePath()
    let parent = parent ?? console.variable("TMPDIR") ?? "/tmp"
    path = kept ?? parent + "/strandline-" + String(console.environment.random.next(), radix: 16)
    // Children get neither proxy settings, because they only connect to this machine, nor the user's tokens.
    childEnvironment = ProcessEnvironment.all.filter { entry in
      let name = entry.prefix { $0 != "=" }.lowercased()
      return !name.hasSuffix("_proxy") && !name.hasPrefix("strandline_")
    }
    do {
      if try console.fileSystem.kind(of: path) != .directory { try console.fileSystem.makeDirectory(path) }
      guard try console.fileSystem.list(path).isEmpty else {
        throw Failure(.cannotCreate, "'\(path)' is not empty", try: "another directory for --keep")
      }
    } catch let error as SystemError {
      throw Failure(
        error.isForbidden ? .notPermitted : .cannotCreate, "cannot make the directory '\(path)': \(error)")
    }
    try console.onInterrupt { [weak self] in self?.interrupt() }
  }

  /// The path of a name in the directory.
  func callAsFunction(_ name: String) -> String { path + "/" + name }

  /// Keeps the directory after `close`, so that a failure can be examined.
  func keep() { isKept.withLock { $0 = true } }

  // MARK: Children

  /// Starts `strandline`, or another program, with these arguments. Its standard error goes to a file, whose path is
  /// returned too.
  func spawn(
    _ arguments: [String], executable other: String? = nil, input: ChildInput = .null, output: ChildOutput = .pipe
  ) throws -> (child: ChildProcess, errorPath: String) {
    let number = try state.withLock { state throws(Failure) -> Int in
      if state.isInterrupted { throw Failure(.tryLater, "interrupted") }
      state.count += 1
      return state.count
    }
    let errorPath = self("child-\(number).err")
    let child = try ChildProcess(
      other ?? executable, arguments, environment: childEnvironment, input: input, output: output,
      errorOutput: .file(errorPath))
    let isLate = state.withLock { state in
      state.children.append(child)
      return state.isInterrupted
    }
    if isLate { child.kill(.kill) }
    return (child, errorPath)
  }

  /// Runs `strandline`, or another program, to its end.
  func run(_ arguments: [String], executable other: String? = nil) throws -> Finished {
    let (child, errorPath) = try spawn(arguments, executable: other)
    let output = try child.output?.readAll() ?? []
    let status = try finish(child)
    return Finished(
      status: status, output: String(decoding: output, as: UTF8.self), error: try removeText(errorPath))
  }

  /// Runs `strandline` to its end, and throws unless it exits with 0. Returns its output.
  @discardableResult
  func succeed(_ arguments: [String]) throws -> String {
    let finished = try run(arguments)
    guard finished.status == .exited(0) else {
      throw Failure(
        .recoverable,
        "strandline \(arguments.map { ShellWord.quote($0) }.joined(separator: " ")): \(finished.status): "
          + finished.error.split(separator: "\n").joined(separator: "; "))
    }
    return finished.output
  }

  /// Waits until a child has ended and returns how.
  @discardableResult
  func finish(_ child: ChildProcess) throws -> ExitStatus {
    let status = try child.wait()
    state.withLock { state in state.children.removeAll { $0 === child } }
    return status
  }

  /// Reads a file's text and removes the file.
  func removeText(_ path: String) throws -> String {
    let file = try console.fileSystem.open(path, .read)
    defer { file.close() }
    let text = String(decoding: try file.read(at: 0, count: 64 << 10), as: UTF8.self)
    try console.fileSystem.unlink(path)
    return text
  }

  private func interrupt() {
    let children = state.withLock { state in
      state.isInterrupted = true
      return state.children
    }
    for child in children { child.kill(.kill) }
  }

  /// Kills and reaps the children that still run, and removes the directory unless it is kept.
  func close() throws {
    let left = state.withLock { $0.children }
    for child in left {
      child.kill(.kill)
      try finish(child)
    }
    if !isKept.withLock({ $0 }) { try console.fileSystem.removeTree(path) }
  }

  // MARK: Server

  /// A child that runs `serve`.
  struct Server {
    let child: ChildProcess
    let url: String
    let errorPath: String
    var port: String { url.split(separator: ":").last.map(String.init) ?? "" }
  }

  /// Starts a server on a directory. When this returns, the server accepts requests.
  func startServer(_ directory: String, port: String = "0", _ switches: [String] = []) throws -> Server {
    let (child, errorPath) = try spawn(["serve", "--port", port] + switches + [directory])
    // The second line is the address of its page: standard error is no terminal here.
    guard let url = try child.output?.readLine(), url.hasPrefix("http://"),
      try child.output?.readLine()?.hasPrefix("page ") == true
    else {
      try finish(child)
      throw Failure(.recoverable, "the server did not start: \(try removeText(errorPath))")
    }
    return Server(child: child, url: url, errorPath: errorPath)
  }

  /// Sends SIGTERM to a server and waits until it has ended. Throws unless it exits with 0.
  func stop(_ server: Server) throws {
    server.child.kill(.terminate)
    let status = try finish(server.child)
    guard status == .exited(0) else {
      throw Failure(.recoverable, "the server ended with \(status): \(try removeText(server.errorPath))")
    }
  }
}
