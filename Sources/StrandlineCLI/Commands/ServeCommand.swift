// `serve`: runs a local server that speaks CloudKit Web Services, with faults for tests.
//
// Standard output is for the process that started it: the URL, then a line for each answer that a fault has dropped
// (`dropped answer N`); before them, where no terminal is on standard error and no file is named for it, the address of the page
// (`page URL`). If standard output cannot be written, the server stops.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineSystem
import Synchronization

extension Command {
  static let serve = Command(
    "serve", "Run a local server that speaks CloudKit Web Services.", operands: ["DIRECTORY"],
    details: [
      "Keeps its journal in DIRECTORY, listens on 127.0.0.1 only, prints its URL, and stops at Ctrl-C or SIGTERM.",
      "Requests under another host's name, and from pages of a browser, are refused unless they are allowed. If its",
      "journal cannot be written, it stops with exit code 74. The faults are for tests.",
      "It also prints the address of a page for a browser: databases, requests as they come, and switches for the faults.",
      "The address holds a token, so it is said on standard error in a terminal, else in a second line: 'page ADDRESS'.",
      "Where both are kept as a log, name a file for it: --page-file.",
    ],
    options: [
      Option("--port", "PORT", "The port. Default: 0, which means any free port."),
      Option("--port-file", "FILE", "Write the port to this file when the server accepts requests."),
      Option(
        "--page-file", "FILE",
        "Write the address of the page to this file, which only its owner can read, and print it nowhere."),
      Option(
        "--allow-host", "NAME",
        "A name under which clients reach the server, besides those of loopback; may be given several times.",
        repeats: true),
      Option(
        "--allow-origin", "ORIGIN",
        "An origin (http://localhost:3000) whose pages in a browser may send requests; may be given several times.",
        repeats: true),
      Option(
        "--api-token-file", "FILE",
        "A file with API tokens, one on each line; requests without one of them are refused with 401."),
      Option("--latency", "MS", "Wait before each answer."),
      Option(
        "--throttle", "N[:SECONDS]",
        "Refuse the first N requests with 503 (TRY_AGAIN_LATER) and this retry-after, at most 86400. Default: 1 second."
      ),
      Option("--drop-answer", "N", "Apply the N-th upload, print 'dropped answer N' and close without an answer."),
      Option("--expired-tokens", "Refuse the change tokens of earlier runs as expired."),
      Option("--replay-page", "After a deletion, send the first page of changes once more as it was."),
      Option(
        "--clock", "SECONDS",
        "Let the server's clock be so many seconds ahead; behind, if it is negative. At most ten years."),
      Option("--quota-exceeded", "Refuse every request that saves records with QUOTA_EXCEEDED."),
      Option("--no-schema", "Take any type of value for a field. Else its first value fixes it, as at CloudKit."),
      Option("--require-session", "Require a sign-in; each answer carries the next session token."),
      Option("--strict-rotation", "With --require-session: each token is valid for one request."),
      Option("--session", "FILE", "With --require-session: write the token of a new sign-in to this file."),
    ],
    examples: [
      Example("A server on port 8080", "strandline serve --port 8080 ~/server.strand"),
      Example("A server that throttles", "strandline serve --throttle 3:2 ~/server.strand"),
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
  private let pageFile: String?
  private let sessionFile: String?
  private let allowedHosts: [String]
  private let allowedOrigins: [String]
  private let apiTokens: Set<String>?
  private let faults: ServerFaults
  private let limits: ServerLimits
  private let console: Console

  /// The descriptors besides those of connections.
  private static let descriptorsKept = 256
  private static let tokenFileBytesMax = 1 << 20
  private static let daySeconds: Double = 86_400
  private static let dayMilliseconds: Int64 = 86_400_000
  private static let clockSecondsMax: Int64 = 10 * 366 * 86_400

  init(_ arguments: Arguments, _ console: Console) throws {
    directory = arguments.operands[0]
    port = Int(try arguments.number("--port", in: UInt16.min...UInt16.max) ?? 0)
    portFile = arguments["--port-file"]
    pageFile = arguments["--page-file"]
    sessionFile = arguments["--session"]
    allowedHosts = arguments.all("--allow-host")
    allowedOrigins = arguments.all("--allow-origin")
    try Self.checkAccess(allowedHosts, allowedOrigins)
    apiTokens = try arguments["--api-token-file"].map { try Self.tokens(in: $0, console) }
    faults = try Self.faults(arguments)
    if sessionFile != nil, !faults.requireSession { throw UsageError(message: Self.needsSession) }
    var limits = ServerLimits()
    limits.fixesFieldTypes = !arguments.has("--no-schema")
    self.limits = limits
    self.console = console
  }

  private static let needsSession = "--strict-rotation and --session need --require-session"

  /// The faults that the options ask for.
  static func faults(_ arguments: Arguments) throws(UsageError) -> ServerFaults {
    var faults = ServerFaults()
    faults.latencyMilliseconds = try arguments.number("--latency", in: 0...dayMilliseconds) ?? 0
    faults.throttle = try arguments["--throttle"].map { text throws(UsageError) in try throttle(text) }
    faults.dropAnswer = try arguments.number("--drop-answer", in: 1...Int.max)
    faults.clockAheadMilliseconds =
      1_000 * (try arguments.number("--clock", in: -clockSecondsMax...clockSecondsMax) ?? 0)
    faults.expireTokens = arguments.has("--expired-tokens")
    faults.replayPage = arguments.has("--replay-page")
    faults.quotaExceeded = arguments.has("--quota-exceeded")
    faults.requireSession = arguments.has("--require-session")
    faults.strictRotation = arguments.has("--strict-rotation")
    if faults.strictRotation, !faults.requireSession { throw UsageError(message: needsSession) }
    return faults
  }

  private static func checkAccess(_ hosts: [String], _ origins: [String]) throws(UsageError) {
    if let host = hosts.first(where: { !HTTPAccess.isHostName($0) }) {
      throw UsageError(message: "--allow-host takes a name without scheme and port, not '\(host)'")
    }
    if let origin = origins.first(where: { HTTPOrigin($0) == nil }) {
      throw UsageError(
        message: "--allow-origin takes scheme, host and port, as in http://localhost:3000, not '\(origin)'")
    }
  }

  /// The tokens in a file: one on each line, with spaces around it dropped. Empty lines are skipped.
  private static func tokens(in path: String, _ console: Console) throws -> Set<String> {
    let text: String
    do {
      let file = try console.fileSystem.open(path, .read)
      defer { file.close() }
      text = String(decoding: try file.read(at: 0, count: tokenFileBytesMax + 1), as: UTF8.self)
    } catch {
      throw Failure(Failure.code(of: error), "cannot read the token file '\(path)': \(error)")
    }
    let lines = text.split(whereSeparator: \.isNewline).map { $0.split(whereSeparator: \.isWhitespace) }
    let tokens = lines.filter { !$0.isEmpty }
    guard text.utf8.count <= tokenFileBytesMax, !tokens.isEmpty, tokens.allSatisfy({ $0.count == 1 }) else {
      throw Failure(.dataDamaged, "the token file '\(path)' must hold one token on each line and nothing else")
    }
    return Set(tokens.joined().map(String.init))
  }

  private static func throttle(_ text: String) throws(UsageError) -> ServerFaults.Throttle {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, let requests = Int(parts[0]), requests > 0,
      let seconds = parts.count == 2 ? Double(parts[1]) : 1, (0...Self.daySeconds).contains(seconds)
    else {
      throw UsageError(
        message: "--throttle takes N or N:SECONDS, with N from 1 and SECONDS from 0 to 86400, not '\(text)'")
    }
    return ServerFaults.Throttle(status: 503, retryAfter: seconds, requests: requests)
  }

  func run() throws -> ExitCode {
    // The server may print a line before `running` is set. If the line cannot be written, the server is stopped.
    let running = Mutex<LocalServer?>(nil)
    let isOutputClosed = Flag()
    try Command.checkParent(of: directory, console, purpose: "to make the server's journal in")
    let access = PageAccess(console.environment.random)
    let server = try listen(access) { [console] line in
      do {
        try console.print(line)
        try console.flush()
      } catch {
        isOutputClosed.set()
        running.withLock { $0 }?.stop()
      }
    }
    running.withLock { $0 = server }
    let begun = Result { try begin(server, access) }
    if case .failure = begun { server.stop() }
    let ended = Result { try server.waitUntilStopped() }
    try begun.get()
    try ended.get()
    if isOutputClosed.isSet { throw Failure(.inputOutput, "cannot write to standard output; the server has stopped") }
    return .done
  }

  private func listen(_ access: PageAccess, _ onLine: @escaping @Sendable (String) -> Void) throws -> LocalServer {
    // Some systems give a process 256 descriptors.
    DescriptorLimit.raise(to: ServerLimits().connectionsMax + Self.descriptorsKept)
    // An answer of some megabytes is made by one of hundreds of threads, none of which needs to keep its memory.
    FreedMemory.goesBack()
    do {
      return try LocalServer.run(
        directory: directory, port: port, allowedHosts: allowedHosts, allowedOrigins: allowedOrigins,
        apiTokens: apiTokens, faults: faults, limits: limits, environment: console.environment, onLine: onLine
      ) { cloud in
        ServerPage(
          cloud, directory: directory, needsAPIToken: apiTokens != nil, access, console.environment)
      }
    } catch let error as StrandlineError where ["bind", "listen"].contains((error.underlying as? SystemError)?.call) {
      var failure = Failure(error, store: directory)
      failure.remedy = "another port after --port, or no --port for any free one"
      throw failure
    }
  }

  private func begin(_ server: LocalServer, _ access: PageAccess) throws {
    try console.onInterrupt { server.stop() }
    if let sessionFile { try write(server.cloud.signIn(), to: sessionFile, .createPrivate) }
    if let portFile { try write(String(server.port), to: portFile, .create) }
    let page = access.address(at: server.url)
    if let pageFile { try write(page, to: pageFile, .createPrivate) }
    try console.print(server.url)
    // Standard error may be kept as a log: the token is not for that.
    if pageFile == nil {
      if console.isErrorTerminal { console.say("a page of it: \(page)") } else { try console.print("page \(page)") }
    }
    try console.flush()
    console.say("serving '\(directory)'; press Ctrl-C to stop")
  }

  /// Writes a file atomically: a reader sees either no file or the whole file.
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
        // Removing the temporary file may fail too; then the first error is reported.
        try? fileSystem.unlink(temporary)
        throw error
      }
    } catch {
      let isForbidden = (error as? SystemError)?.isForbidden == true
      throw Failure(isForbidden ? .notPermitted : .cannotCreate, "cannot write '\(path)': \(error)")
    }
  }
}
