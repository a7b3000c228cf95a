// `sync`: runs one sync cycle with a server and prints what it did.

import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let sync = Command(
    "sync", "Sync a store with CloudKit or a local server, once or with --watch.", operands: ["STORE"],
    details: [
      "Fetches, sends, and fetches again after a conflict. If the server throttles requests, it waits at most 30 seconds",
      "in all; then it exits with 75 (69 if the server cannot be reached) and says when to try again. The session token",
      "changes with each answer, and its file is rewritten. Without --session-token-file it is kept in STORE.",
      "Exits with 0 if nothing is set aside, and with 1 if a record is held (see held) or a zone is lost that owes nothing",
      "(see zones); with 69 if the server cannot be reached, refuses a zone or a type whole, or a lost or erased zone has",
      "unsent changes; with 75 and 77 as help exit-codes says. What is left is said by cause, with the verb that helps.",
      "With --watch it stays, syncs by itself as an app does, and prints a line when its status changes: Synced, Uploading",
      "1,204 of 60,000. It holds the store's lock meanwhile. Ends at Ctrl-C (exit code 0).",
      "Unsent are the records with changes that the server has not yet accepted or refused.",
      "Environment variables: STRANDLINE_API_TOKEN, and STRANDLINE_SESSION with the token of a new sign-in.",
    ],
    options: [
      Option("--url", "URL", "The server: https://api.apple-cloudkit.com, or the URL that serve prints."),
      SyncTarget.container, SyncTarget.environment,
      Option("--zone", "ZONE", "Only this zone."),
      Option("--pull-only", "Fetch only; send nothing."),
      Option("--push-only", "Send only; fetch nothing."),
      Option(
        "--recent", "TYPE", "A new store gets the newest records of this type first. May be given several times."),
      Option(
        "--leave-out", "ZONE",
        "A zone that is not synced: nothing of it is fetched or sent. May be given several times."),
      Option("--watch", "Stay, and print each change of the status until Ctrl-C."),
      .json, SyncTarget.apiToken, SyncTarget.sessionToken,
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
  private let target: SyncTarget
  private let options: CycleOptions
  private let isJSON: Bool
  private let stays: Bool
  private let console: Console

  /// How many records are named one by one, held ones and those whose edits ended.
  static let namesShownMax = 10

  init(_ arguments: Arguments, _ console: Console) throws {
    target = try SyncTarget(arguments, "sync", url: "--url", console)
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
    self.options = options
    self.console = console
    isJSON = arguments.has("--json")
  }

  func run() async throws -> ExitCode {
    let storePath = target.storePath
    try Command.checkParent(of: storePath, console, purpose: "to make the store in")
    let isNew = Command.isNew(storePath, console)
    let session = SessionBox()
    let store = try await target.open(session, isAutomatic: stays)
    if isNew { Command.sayNew(storePath, console) }
    Command.sayRecovery(of: store, at: storePath, console)
    if stays { return try await watch(store) }
    let begin = try store.read { $0.position }
    let outcome: Result<SyncReport, any Error>
    do {
      let engine = try store.engine
      outcome = .success(try await target.signedIn(session) { try await engine.cycle(options) })
    } catch {
      outcome = .failure(error)
    }
    // Read before the store is closed, because the status reads unsettled events from the log.
    let status = Result { try store.status() }
    let waitsForLostZone = Result { try Self.waitsForLostZone(store) }
    let ended = outcome.flatMap { report in Result { try linesOfEndedEdits(in: store, since: begin, report) } }
    let shown = try store.engine.status
    let left =
      shown.linesOfHalts(in: storePath) + (options.direction == .pullOnly ? [] : shown.linesOfWhatIsLeft(in: storePath))
    do { try await store.close() } catch {
      // If both the sync and the close fail, the error of the sync is reported.
      if case .success = outcome { throw error }
    }
    if case .failure(let error) = outcome {
      for line in left { console.say(line) }
      // A zone that owes nothing is said to be lost with one exit code, by the run that finds it and by each one after it.
      if (error as? StrandlineError)?.code == .zoneLost, var failure = target.failure(error) as? Failure,
        try !waitsForLostZone.get()
      {
        failure.code = .recoverable
        throw failure
      }
    }
    let (report, found) = (try outcome.mapError(target.failure).get(), try status.get())
    warnAboutUnknownZone(found)
    try show(report, found)
    for line in try ended.mapError(target.failure).get() + left { console.say(line) }
    // A zone that was lost before stays so until a person decides, and no run is silent about it.
    let isLost = shown.halts.contains { options.zone == nil || options.zone == $0.zone }
    return found.held.isEmpty && !isLost ? .done : .recoverable
  }

  /// Whether a change is not sent because its zone is lost or erased.
  private static func waitsForLostZone(_ store: RecordStore) throws -> Bool {
    var last = LSN.zero
    while true {
      let page = try store.pendingChanges(after: last)
      let waits = page.changes.contains { change in
        if case .zoneLost? = change.obstacle { true } else { false }
      }
      guard !waits, let next = page.next else { return waits }
      last = next
    }
  }

  /// Lets the engine run by itself until Ctrl-C, and ends it in order.
  private func watch(_ store: RecordStore) async throws -> ExitCode {
    let outcome: Result<Void, any Error>
    do {
      outcome = .success(try await SyncFollower(isJSON: isJSON, console: console).follow(store.engine))
    } catch { outcome = .failure(error) }
    do { try await store.close() } catch { if case .success = outcome { throw error } }
    try outcome.get()
    return .done
  }

  /// Prints a note if `--zone` names a zone that does not exist. It is not an error, because any name may become a zone,
  /// but the name may be mistyped.
  private func warnAboutUnknownZone(_ status: StoreStatus) {
    guard let zone = options.zone, !status.zones.contains(where: { $0.id.name.equalsUTF8(zone.name) }) else { return }
    let owner = options.direction == .pushOnly ? "this store does not have" : "neither this store nor the server has"
    let names = status.zones.map { printable($0.id.name) }
    console.say(
      "note: \(owner) a zone '\(printable(zone.name))'"
        + (names.isEmpty ? "" : "; the zones of this store are \(names.joined(separator: ", "))"))
  }

  private func show(_ report: SyncReport, _ status: StoreStatus) throws {
    let counts: [(key: String, one: String, many: String, count: Int)] = [
      ("fetchedSaves", "fetched", "fetched", report.fetchedSaves),
      ("fetchedDeletes", "deletion fetched", "deletions fetched", report.fetchedDeletes),
      ("echoes", "", "", report.echoes),
      ("uploaded", "uploaded", "uploaded", report.uploaded),
      ("recognized", "found uploaded already", "found uploaded already", report.recognized),
      ("merged", "merged", "merged", report.merged),
      ("blocked", "checked with the server first", "checked with the server first", report.blocked),
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
    // That the server lists what was just sent is no news.
    let words = counts.filter { $0.count > 0 && !$0.one.isEmpty }.map { Words.plural($0.count, $0.one, $0.many) }
    try console.print(
      (words.isEmpty ? "nothing new" : words.joined(separator: ", "))
        + "; \(Words.plural(report.requests, "request")), \(Words.count(status.unsettled)) unsent")
    for held in status.held.prefix(Self.namesShownMax) { console.say("held: \(held.line)") }
    if status.held.count > Self.namesShownMax {
      let rest = Words.count(status.held.count - Self.namesShownMax)
      console.say("held: \(rest) more; try: strandline held \(ShellWord.quote(target.storePath))")
    }
  }
}
