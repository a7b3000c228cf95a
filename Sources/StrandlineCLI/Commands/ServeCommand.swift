// `serve`: a cloud of one's own on this machine, with faults on request.
//
// Standard output is for whoever started it: the URL, then a line for each fault that struck (`dropped answer N`).
// If nobody reads it any more, the server ends.

import Strandline
import StrandlineHost
import StrandlineServer
import StrandlineSystem
import Synchronization

extension Command {
  static let serve = Command(
    "serve", "Run a local server that speaks CloudKit Web Services.", operands: ["DIRECTORY"],
    details: [
      "Keeps its journal in DIRECTORY, listens on 127.0.0.1 only, prints its URL, and ends with Ctrl-C or SIGTERM.",
      "Exit code 74 if its journal cannot be written any more. The faults are for tests.",
    ],
    options: [
      Option("--port", "PORT", "The port; 0, or not said, for any that is free."),
      Option("--port-file", "FILE", "Write the port to this file once the server answers."),
      Option("--latency", "MS", "Wait before each answer."),
      Option("--throttle", "N[:SECONDS]", "Refuse the first N requests with THROTTLED; come back after SECONDS (1)."),
      Option("--drop-answer", "N", "Apply the N-th upload and never answer it; prints 'dropped answer N'."),
      Option("--expired-tokens", "Refuse the change tokens that were given out before this start."),
      Option("--replay-page", "After a deletion, show the records once more as they were first."),
      Option("--quota-exceeded", "Refuse every write: the user's storage is full."),
      Option("--require-session", "Ask for a sign-in; each answer brings the next token."),
      Option("--strict-rotation", "With --require-session: a token dies with the request that carried it."),
      Option("--session", "FILE", "With --require-session: write a token, as of a fresh sign-in, to this file."),
    ],
    examples: [
      Example("A server on port 8080", "strandline serve --port 8080 ~/server.strand"),
      Example("One that asks to wait", "strandline serve --throttle 3:2 ~/server.strand"),
    ],
    run: { arguments, console in
      let serve = try ServeCommand(arguments, console)
      return try await onThread("serve") { try serve.run() }
    })
}

/// One run of `serve`.
struct ServeCommand: Sendable {
  private let directory: String
  private let port: Int
  private let portFile: String?
  private let sessionFile: String?
  private let faults: ServerFaults
  private let console: Console

  private static let dayMilliseconds: Int64 = 86_400_000

  init(_ arguments: Arguments, _ console: Console) throws {
    directory = arguments.operands[0]
    port = Int(try arguments.number("--port", in: UInt16.min...UInt16.max) ?? 0)
    portFile = arguments["--port-file"]
    sessionFile = arguments["--session"]
    var faults = ServerFaults()
    faults.latencyMilliseconds = try arguments.number("--latency", in: 0...Self.dayMilliseconds) ?? 0
    faults.throttle = try arguments["--throttle"].map { text in try Self.throttle(text) }
    faults.dropAnswer = try arguments.number("--drop-answer", in: 1...Int.max)
    faults.expireTokens = arguments.has("--expired-tokens")
    faults.replayPage = arguments.has("--replay-page")
    faults.quotaExceeded = arguments.has("--quota-exceeded")
    faults.requireSession = arguments.has("--require-session")
    faults.strictRotation = arguments.has("--strict-rotation")
    if faults.strictRotation || sessionFile != nil, !faults.requireSession {
      throw UsageError(message: "--strict-rotation and --session mean nothing without --require-session")
    }
    self.faults = faults
    self.console = console
  }

  private static func throttle(_ text: String) throws(UsageError) -> ServerFaults.Throttle {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, let requests = Int(parts[0]), requests > 0,
      let seconds = parts.count == 2 ? Double(parts[1]) : 1, seconds >= 0, seconds.isFinite
    else { throw UsageError(message: "--throttle takes N or N:SECONDS, not '\(text)'") }
    return ServerFaults.Throttle(status: 503, retryAfter: seconds, requests: requests)
  }

  func run() throws -> ExitCode {
    // The server may say something before it is known here; whoever cannot be told makes it stop.
    let running = Mutex<LocalServer?>(nil)
    let unheard = Flag()
    let server = try LocalServer.run(
      directory: directory, port: port, faults: faults, environment: console.environment,
      onLine: { [console] line in
        do {
          try console.print(line)
          try console.flush()
        } catch {
          unheard.set()
          running.withLock { $0 }?.stop()
        }
      })
    running.withLock { $0 = server }
    let begun = Result { try begin(server) }
    if case .failure = begun { server.stop() }
    let ended = Result { try server.waitUntilStopped() }
    try begun.get()
    try ended.get()
    if unheard.isSet { throw Failure(.inputOutput, "nobody reads standard output any more") }
    return .done
  }

  private func begin(_ server: LocalServer) throws {
    try console.onInterrupt { server.stop() }
    if let sessionFile { try write(server.cloud.signIn(), to: sessionFile, .createPrivate) }
    if let portFile { try write(String(server.port), to: portFile, .create) }
    try console.print(server.url)
    try console.flush()
    console.say("serving '\(directory)'; Ctrl-C ends it")
  }

  /// A reader of the file sees nothing of it or all of it.
  private func write(_ text: String, to path: String, _ mode: OpenMode) throws {
    let fileSystem = console.fileSystem
    let temporary = path + ".tmp"
    do {
      if try fileSystem.kind(of: temporary) != .absent { try fileSystem.unlink(temporary) }
      let file = try fileSystem.open(temporary, mode)
      defer { file.close() }
      do {
        try file.write(Array((text + "\n").utf8), at: 0)
        try fileSystem.rename(temporary, to: path)
      } catch {
        // Ours alone, and of no use to anybody; if it cannot be removed, the first error says more.
        try? fileSystem.unlink(temporary)
        throw error
      }
    } catch {
      throw Failure(.cannotCreate, "cannot write '\(path)': \(error)")
    }
  }
}
