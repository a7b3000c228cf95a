// `sync`: one cycle with a server, then it says what happened. A secret is read from a file or the environment,
// never from an argument, where every user of the machine could read it.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem
import Synchronization

extension Command {
  static let sync = Command(
    "sync", "Sync a store with CloudKit or a local server, once.", operands: ["STORE"],
    details: [
      "Pulls, pushes, and pulls again if anything conflicted. Waits at most 30 seconds in all for a server that asks",
      "for it; then exits with 75 (or 69, if the server cannot be reached) and says when to come back. The session's",
      "token changes with each answer; its file is rewritten. Without --session-token-file it is kept in STORE.",
      "In the environment: STRANDLINE_API_TOKEN, and STRANDLINE_SESSION, the token of a fresh sign-in.",
    ],
    options: [
      Option("--url", "URL", "The server: https://api.apple-cloudkit.com, or what serve prints."),
      Option("--container", "ID", "The container, such as iCloud.com.example.notes."),
      Option("--environment", "NAME", "development (if it is not said) or production."),
      Option("--zone", "ZONE", "Only this zone."),
      Option("--pull-only", "Fetch, and send nothing."),
      Option("--push-only", "Send, and fetch nothing."),
      .json,
      Option("--api-token-file", "FILE", "A file that holds the container's API token."),
      Option("--session-token-file", "FILE", "A file that holds the session's token, and will hold its successors."),
    ],
    examples: [
      Example(
        "With a local server", "strandline sync --url http://127.0.0.1:8080 --container iCloud.example STORE")
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
  private let apiToken: String
  private let sessionPath: String?
  private let console: Console

  private static let tokenBytesMax = 16 << 10

  init(_ arguments: Arguments, _ console: Console) throws {
    guard let url = arguments["--url"] else { throw UsageError(message: "sync needs --url URL") }
    guard let container = arguments["--container"] else { throw UsageError(message: "sync needs --container ID") }
    guard Self.isAddress(url) else {
      throw UsageError(message: "--url takes http:// or https://, a host and perhaps a port, not '\(printable(url))'")
    }
    let environment = arguments["--environment"] ?? "development"
    guard ["development", "production"].contains(environment) else {
      throw UsageError(message: "--environment is development or production, not '\(environment)'")
    }
    var options = CycleOptions()
    switch (arguments.has("--pull-only"), arguments.has("--push-only")) {
    case (true, true): throw UsageError(message: "--pull-only and --push-only leave nothing to do")
    case (true, false): options.direction = .pullOnly
    case (false, true): options.direction = .pushOnly
    case (false, false): break
    }
    options.zone = arguments["--zone"].map { ZoneID($0) }
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

  private static func isAddress(_ text: String) -> Bool {
    guard let parts = URLComponents(string: text), ["http", "https"].contains(parts.scheme ?? ""),
      let host = parts.host, !host.isEmpty
    else { return false }
    return parts.port.map { (1...65535).contains($0) } ?? true
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
      throw Failure(.dataDamaged, "the token file '\(path)' does not hold one token and nothing else")
    }
    return String(word)
  }

  func run() async throws -> ExitCode {
    let session = SessionBox()
    var configuration = SyncConfiguration {
      [address, apiToken, url, sessionPath, timeout = console.requestTimeout] storePath, environment in
      let opened = try WebSession(path: sessionPath ?? storePath + "/session", environment: environment.system)
      session.set(opened)
      return WebServicesDatabase(
        address: address, apiToken: apiToken, session: opened, baseURL: url,
        transport: URLSessionTransport(timeout: timeout, totalTimeout: 6 * timeout), environment: environment.system)
    }
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: storePath, syncing: configuration, environment: StoreEnvironment(console.environment))
    let outcome: Result<SyncReport, any Error>
    do {
      outcome = .success(try await cycle(store.sync, session))
    } catch {
      outcome = .failure(error)
    }
    // Read before the store is closed: what is still owed is looked up in the log.
    let status = Result { try store.status() }
    do { try await store.close() } catch {
      // A sync that failed says more than a close that failed after it.
      if case .success = outcome { throw error }
    }
    let (report, found) = (try outcome.mapError(failure).get(), try status.get())
    noteUnknownZone(found)
    try show(report, found)
    return .done
  }

  /// One cycle. The token of a fresh sign-in is used when there is no session yet, or the server refuses the one
  /// that is kept: a token that was used once has a successor, which is the one kept.
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

  /// A zone's name is free, so a mistyped one is a new zone that has nothing in it: no error, and worth a word.
  private func noteUnknownZone(_ status: StoreStatus) {
    guard let zone = options.zone, !status.zones.contains(where: { $0.id.name == zone.name }) else { return }
    let whose = options.direction == .pushOnly ? "this store does not have" : "neither this store nor the server has"
    let names = status.zones.map { printable($0.id.name) }
    console.say(
      "note: \(whose) a zone '\(printable(zone.name))'"
        + (names.isEmpty ? "" : "; there is \(names.joined(separator: ", "))"))
  }

  private func failure(_ error: any Error) -> any Error {
    guard let error = error as? StrandlineError else { return error }
    var failure = Failure(error, store: storePath)
    if error.code == .throttled || error.code == .unreachable {
      let wait = error.retryAfter.map { "in \(Int($0.rounded(.up))) seconds" } ?? "in a minute"
      failure.remedy = "the same again \(wait); nothing is lost meanwhile"
    }
    return failure
  }

  private func show(_ report: SyncReport, _ status: StoreStatus) throws {
    let counts: [(key: String, words: String, count: Int)] = [
      ("fetchedSaves", "fetched", report.fetchedSaves),
      ("fetchedDeletes", "deletions fetched", report.fetchedDeletes),
      ("echoes", "own writes seen again", report.echoes),
      ("uploaded", "uploaded", report.uploaded),
      ("recognized", "found uploaded already", report.recognized),
      ("merged", "merged", report.merged),
      ("blocked", "blocked", report.blocked),
      ("held", "held", report.held),
    ]
    if isJSON {
      var members = Dictionary(uniqueKeysWithValues: counts.map { ($0.key, JSONValue.integer(Int64($0.count))) })
      members["requests"] = .integer(Int64(report.requests))
      members["waitedMilliseconds"] = .integer(report.waitedMilliseconds)
      members["unsettled"] = .integer(Int64(status.unsettled))
      try console.write(JSONValue.object(members).canonicalBytes + [UInt8(ascii: "\n")])
      return
    }
    let words = counts.filter { $0.count > 0 }.map { "\(Words.count($0.count)) \($0.words)" }
    try console.print(
      (words.isEmpty ? "nothing new" : words.joined(separator: ", "))
        + "; \(Words.plural(report.requests, "request")), \(Words.count(status.unsettled)) unsettled")
    for held in status.held {
      console.say("held: \(printable(held.id.description)): \(held.code), \(printable(held.reason))")
    }
    if status.unsettled > 0, options.direction != .pullOnly {
      console.say("try: strandline status \(printable(storePath))")
    }
  }
}

/// Hands the session from where the database is made to where it is signed in.
private final class SessionBox: Sendable {
  private let session = Mutex<WebSession?>(nil)
  func set(_ opened: WebSession) { session.withLock { $0 = opened } }
  func get() -> WebSession? { session.withLock { $0 } }
}
