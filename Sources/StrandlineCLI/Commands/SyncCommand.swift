// `sync`: runs one sync cycle with a server and prints what it did. Tokens are read from a file or the environment and
// never from an argument, because every user of the machine can read the arguments of a process.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem
import Synchronization

extension Command {
  static let sync = Command(
    "sync", "Sync a store with CloudKit or a local server, once or with --watch.", operands: ["STORE"],
    details: [
      "Fetches, sends, and fetches again after a conflict. If the server throttles requests, it waits at most 30 seconds",
      "in all; then it exits with 75 (69 if the server cannot be reached) and says when to try again. The session token",
      "changes with each answer, and its file is rewritten. Without --session-token-file it is kept in STORE.",
      "Exits with 0 if nothing is set aside, and with 1 if the server refused a record, which is then held: see held. What",
      "is left is said by cause, with the verb that helps.",
      "With --watch it stays, syncs by itself as an app does, and prints a line when its status changes: Synced, Uploading",
      "1,204 of 60,000. It holds the store's lock meanwhile. Ends at Ctrl-C (exit code 0).",
      "Unsettled are the mutations (saves and deletions) that the server has not yet accepted or refused.",
      "Environment variables: STRANDLINE_API_TOKEN, and STRANDLINE_SESSION with the token of a new sign-in.",
    ],
    options: [
      Option("--url", "URL", "The server: https://api.apple-cloudkit.com, or the URL that serve prints."),
      Option("--container", "ID", "The container, such as iCloud.com.example.notes."),
      Option("--environment", "NAME", "development or production. Default: development."),
      Option("--zone", "ZONE", "Only this zone."),
      Option("--pull-only", "Fetch only; send nothing."),
      Option("--push-only", "Send only; fetch nothing."),
      Option("--watch", "Stay, and print each change of the status until Ctrl-C."),
      .json,
      Option("--api-token-file", "FILE", "A file that holds the container's API token."),
      Option("--session-token-file", "FILE", "A file with the session token; each new token is written to it."),
    ],
    examples: [
      Example(
        "With a local server", "strandline sync --url http://127.0.0.1:8080 --container iCloud.example STORE"),
      Example(
        "Stay, and say what happens",
        "strandline sync --watch --url http://127.0.0.1:8080 --container iCloud.example STORE"),
    ],
    run: { try await SyncCommand($0, $1).run() })
}

/// One run of `sync`.
struct SyncCommand {
  private let storePath: String
  private let url: String
  private let address: CloudAddress
  private let options: CycleOptions
  private let isJSON: Bool
  private let stays: Bool
  private let apiToken: String
  private let sessionPath: String?
  private let console: Console

  private static let tokenBytesMax = 16 << 10
  /// How many records are named one by one, held ones and those whose edits ended.
  static let namesShownMax = 10

  init(_ arguments: Arguments, _ console: Console) throws {
    guard let url = arguments["--url"] else { throw UsageError(message: "sync needs --url URL") }
    guard let container = arguments["--container"] else { throw UsageError(message: "sync needs --container ID") }
    if let defect = Self.defect(url: url) {
      throw UsageError(message: "--url takes http:// or https://, a host and optionally a port, \(defect)")
    }
    let environment = arguments["--environment"] ?? "development"
    guard ["development", "production"].contains(environment) else {
      throw UsageError(message: "--environment takes development or production, not '\(environment)'")
    }
    var options = CycleOptions()
    switch (arguments.has("--pull-only"), arguments.has("--push-only")) {
    case (true, true): throw UsageError(message: "--pull-only and --push-only cannot be used together")
    case (true, false): options.direction = .pullOnly
    case (false, true): options.direction = .pushOnly
    case (false, false): break
    }
    options.zone = try arguments.zone()
    stays = arguments.has("--watch")
    if stays, options.zone != nil || options.direction != .both {
      throw UsageError(message: "--watch syncs everything; it takes neither --zone nor --pull-only nor --push-only")
    }
    self.url = url
    self.options = options
    self.console = console
    storePath = arguments.operands[0]
    address = CloudAddress(container: container, environment: environment)
    isJSON = arguments.has("--json")
    sessionPath = arguments["--session-token-file"]
    apiToken =
      try arguments["--api-token-file"].map { try Self.token(in: $0, console) }
      ?? console.variable("STRANDLINE_API_TOKEN") ?? ""
  }

  /// What is wrong with a server's URL, if anything.
  ///
  /// The URL is part of errors that the store keeps in its log, so it must not hold a password, and a refused one is not
  /// repeated: the user's terminal may be recorded.
  private static func defect(url text: String) -> String? {
    if text.contains("@") { return "and no user name or password; tokens are read from files or the environment" }
    guard let parts = URLComponents(string: text), ["http", "https"].contains(parts.scheme ?? ""),
      let host = parts.host, !host.isEmpty, parts.port.map({ (1...65535).contains($0) }) ?? true
    else { return "not '\(printable(text))'" }
    // A lone slash at the end means the same as none.
    guard ["", "/"].contains(parts.path), parts.query == nil, parts.fragment == nil else {
      return "and neither a path nor a query, not '\(printable(text))'"
    }
    return nil
  }

  private static func token(in path: String, _ console: Console) throws -> String {
    let file: any File
    do { file = try console.fileSystem.open(path, .read) } catch {
      throw Failure(Failure.code(of: error), "cannot read the token file '\(path)': \(error)")
    }
    defer { file.close() }
    let text = String(decoding: try file.read(at: 0, count: tokenBytesMax + 1), as: UTF8.self)
    let token = text.split(whereSeparator: \.isWhitespace)
    guard token.count == 1, let word = token.first, word.utf8.count <= tokenBytesMax else {
      throw Failure(.dataDamaged, "the token file '\(path)' must hold one token and nothing else")
    }
    return String(word)
  }

  func run() async throws -> ExitCode {
    let session = SessionBox()
    let fresh = console.variable("STRANDLINE_SESSION")
    var configuration = SyncConfiguration {
      [address, apiToken, url, sessionPath, timeout = console.requestTimeout, stays] storePath, environment in
      let opened = try WebSession(path: sessionPath ?? storePath + "/session", environment: environment.system)
      if stays, let fresh, !opened.hasToken { try opened.signIn(token: fresh) }
      session.set(opened)
      return WebServicesDatabase(
        address: address, apiToken: apiToken, session: opened, baseURL: url,
        transport: NetworkTransport(timeout: timeout, totalTimeout: 6 * timeout), environment: environment.system)
    }
    configuration.isAutomatic = stays
    try Command.checkParent(of: storePath, console, purpose: "to make the store in")
    let isNew = Command.isNew(storePath, console)
    let store = try await RecordStore.open(
      at: storePath, syncing: configuration, environment: StoreEnvironment(console.environment))
    if isNew { Command.sayNew(storePath, console) }
    Command.sayRecovery(of: store, at: storePath, console)
    if stays { return try await watch(store) }
    let begin = try store.read { $0.position }
    let outcome: Result<SyncReport, any Error>
    do {
      outcome = .success(try await cycle(store.sync, session))
    } catch {
      outcome = .failure(error)
    }
    // Read before the store is closed, because the status reads unsettled events from the log.
    let status = Result { try store.status() }
    let ended = outcome.flatMap { report in Result { try linesOfEndedEdits(in: store, since: begin, report) } }
    let left = options.direction == .pullOnly ? [] : try store.sync.status.linesOfWhatIsLeft(in: storePath)
    do { try await store.close() } catch {
      // If both the sync and the close fail, the error of the sync is reported.
      if case .success = outcome { throw error }
    }
    if case .failure = outcome { for line in left { console.say(line) } }
    let (report, found) = (try outcome.mapError(failure).get(), try status.get())
    warnAboutUnknownZone(found)
    try show(report, found)
    for line in try ended.mapError(failure).get() + left { console.say(line) }
    return found.held.isEmpty ? .done : .recoverable
  }

  /// Lets the engine run by itself until Ctrl-C, and ends it in order.
  private func watch(_ store: RecordStore) async throws -> ExitCode {
    let outcome: Result<Void, any Error>
    do {
      outcome = .success(try await SyncFollower(isJSON: isJSON, console: console).follow(store.sync))
    } catch { outcome = .failure(error) }
    do { try await store.close() } catch { if case .success = outcome { throw error } }
    try outcome.get()
    return .done
  }

  /// Runs one cycle. The token of a new sign-in (STRANDLINE_SESSION) is used only if there is no session yet or the
  /// server refuses the stored token: each request replaces the token, so the stored one is newer than the variable's.
  private func cycle(_ engine: SyncEngine, _ session: SessionBox) async throws -> SyncReport {
    let fresh = console.variable("STRANDLINE_SESSION")
    if let fresh, let session = session.get(), !session.hasToken {
      try session.signIn(token: fresh)
      return try await engine.cycle(options)
    }
    do {
      return try await engine.cycle(options)
    } catch let error as StrandlineError where error.code == .needsSignIn {
      guard let fresh, let session = session.get() else { throw error }
      try session.signIn(token: fresh)
      return try await engine.cycle(options)
    }
  }

  /// Prints a note if `--zone` names a zone that does not exist. It is not an error, because any name may become a zone,
  /// but the name may be mistyped.
  private func warnAboutUnknownZone(_ status: StoreStatus) {
    guard let zone = options.zone, !status.zones.contains(where: { $0.id.name == zone.name }) else { return }
    let owner = options.direction == .pushOnly ? "this store does not have" : "neither this store nor the server has"
    let names = status.zones.map { printable($0.id.name) }
    console.say(
      "note: \(owner) a zone '\(printable(zone.name))'"
        + (names.isEmpty ? "" : "; the zones of this store are \(names.joined(separator: ", "))"))
  }

  private func failure(_ error: any Error) -> any Error {
    guard let error = error as? StrandlineError else { return error }
    var failure = Failure(error, store: storePath)
    if error.code == .throttled || error.code == .unreachable {
      let wait = error.retryAfter.map { "in \(Int($0.rounded(.up))) seconds" } ?? "in a minute"
      failure.remedy = "the same command \(wait); the store keeps what was not sent"
    }
    return failure
  }

  private func show(_ report: SyncReport, _ status: StoreStatus) throws {
    let counts: [(key: String, one: String, many: String, count: Int)] = [
      ("fetchedSaves", "fetched", "fetched", report.fetchedSaves),
      ("fetchedDeletes", "deletion fetched", "deletions fetched", report.fetchedDeletes),
      (
        "echoes", "own write came back from the server", "own writes came back from the server", report.echoes
      ),
      ("uploaded", "uploaded", "uploaded", report.uploaded),
      ("recognized", "found uploaded already", "found uploaded already", report.recognized),
      ("merged", "merged", "merged", report.merged),
      ("blocked", "blocked", "blocked", report.blocked),
      ("held", "held", "held", report.held),
    ]
    if isJSON {
      var members = Dictionary(uniqueKeysWithValues: counts.map { ($0.key, JSONValue.integer(Int64($0.count))) })
      members["requests"] = .integer(Int64(report.requests))
      members["waitedMilliseconds"] = .integer(report.waitedMilliseconds)
      members["unsettled"] = .integer(Int64(status.unsettled))
      try console.write(JSONValue.object(members).canonicalBytes + [UInt8(ascii: "\n")])
      return
    }
    let words = counts.filter { $0.count > 0 }.map { Words.plural($0.count, $0.one, $0.many) }
    try console.print(
      (words.isEmpty ? "nothing new" : words.joined(separator: ", "))
        + "; \(Words.plural(report.requests, "request")), \(Words.count(status.unsettled)) unsettled")
    for held in status.held.prefix(Self.namesShownMax) { console.say("held: \(held.line)") }
    if status.held.count > Self.namesShownMax {
      let rest = Words.count(status.held.count - Self.namesShownMax)
      console.say("held: \(rest) more; try: strandline held \(ShellWord.quote(storePath))")
    }
  }
}

/// Passes the session from the closure that makes the database to the code that signs in.
private final class SessionBox: Sendable {
  private let session = Mutex<WebSession?>(nil)
  func set(_ opened: WebSession) { session.withLock { $0 = opened } }
  func get() -> WebSession? { session.withLock { $0 } }
}
