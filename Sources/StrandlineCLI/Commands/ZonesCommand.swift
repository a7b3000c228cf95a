// `zones`: lists the zones of a store, and ends what keeps one from being synced.

import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  /// What can be done with a zone, by the verb's word.
  private static let zoneVerbs: [(name: String, run: @Sendable (RecordStore, ZoneID, Arguments) async throws -> Void)] =
    [
      ("resume", resume),
      ("resync-from-server", { store, zone, _ in try await store.resync(zone, from: .server) }),
      ("resync-from-here", { store, zone, _ in try await store.resync(zone, from: .here) }),
      ("erase", erase),
    ]

  static let zones = Command(
    "zones", "List the zones of a store, or have one synced anew.", operands: ["STORE", "VERB", "ZONE"],
    operandsMin: 1,
    details: [
      "Without a verb: lists the zones, how many records live in each, and whether it can be synced.",
      "A zone that the server does not have, or has less of than before, or of which nothing is left, because it was emptied,",
      "or deleted and made again, is lost: its records stay readable here, and nothing of it is synced until the next sync is",
      "told what to do:",
      "  resume              fetch it from its beginning; if that shows the same once more, it is lost again",
      "  resync-from-server  the same, and remove the records that the server does not have",
      "  resync-from-here    the same, and upload those records again; a zone that is gone is created",
      "The last two are for a zone that is not lost, too. And of one's own accord:",
      "  erase --yes         the next sync deletes the zone at the server, for every device; here its records stay readable",
      "It is refused while changes of the zone are not sent, unless --discard-unsent gives them up. Until that sync, resume",
      "takes it back; afterwards resync-from-here makes the zone anew, and resync-from-server removes its records here.",
    ],
    options: [
      .json,
      Option("--yes", "Confirms erase."),
      Option("--discard-unsent", "With erase: give up what the server lacks of the zone."),
    ],
    examples: [
      Example("The zones", "strandline zones STORE"),
      Example("Ask for a lost zone again", "strandline zones STORE resume Main"),
      Example("End a zone, here and at the next sync for all devices", "strandline zones STORE erase Drafts --yes"),
      Example("Upload again what the server lost", "strandline zones STORE resync-from-here Main"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      guard arguments.operands.count > 1 else { return try listZones(path, arguments.has("--json"), console) }
      let word = arguments.operands[1]
      guard let verb = zoneVerbs.first(where: { $0.name == word }) else {
        let names = zoneVerbs.map(\.name).joined(separator: ", ")
        throw UsageError(message: "zones takes \(names), not '\(printable(word))'")
      }
      guard word == "erase" || !(arguments.has("--yes") || arguments.has("--discard-unsent")) else {
        throw UsageError(message: "--yes and --discard-unsent go with erase")
      }
      guard arguments.operands.count == 3 else { throw UsageError(message: "zones \(word) needs the name of a zone") }
      let store = try await RecordStore.open(at: path, environment: StoreEnvironment(console.environment))
      let outcome: Result<Void, any Error>
      do { outcome = .success(try await verb.run(store, ZoneID(arguments.operands[2]), arguments)) } catch {
        outcome = .failure(error)
      }
      do { try await store.close() } catch { if case .success = outcome { throw error } }
      try outcome.get()
      return .done
    })

  @Sendable private static func erase(_ store: RecordStore, _ zone: ZoneID, _ arguments: Arguments) async throws {
    guard arguments.has("--yes") else {
      throw UsageError(
        message:
          "zones erase deletes the zone '\(printable(zone.name))' at the server, for every device; it needs --yes")
    }
    do {
      _ = try await store.eraseZone(zone, discardingUnsent: arguments.has("--discard-unsent"))
    } catch StrandlineError.Code.notUploaded {
      throw Failure(
        .recoverable, "changes of the zone '\(printable(zone.name))' are not at the server; nothing was erased",
        try: "sync first, or the same command with --discard-unsent")
    }
  }

  @Sendable private static func resume(_ store: RecordStore, _ zone: ZoneID, _ arguments: Arguments) async throws {
    guard try await !store.resumeZone(zone) else { return }
    throw Failure(
      .noSuchStore, "the zone '\(printable(zone.description))' is not lost; nothing has changed",
      try: "strandline zones \(ShellWord.quote(store.path))")
  }

  private static func listZones(_ path: String, _ isJSON: Bool, _ console: Console) throws -> ExitCode {
    let zones = try readOnly(path, console).status().zones
    for zone in zones {
      if isJSON {
        try console.write(zone.json.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(printable(zone.id.description)): \(zone.words)")
      }
    }
    if !isJSON, let lost = zones.first(where: { $0.isLost && $0.lostReason != .erased && $0.lostReason != .erasing }),
      let reason = lost.lostReason
    {
      console.say("try: \(reason.remedy(ShellWord.quote(path), lost.id))")
    }
    return .done
  }
}

extension ZoneLoss {
  /// What it does to a record of the zone.
  var sentence: String { "its zone is not synced: \(words) (\(self))" }

  /// The verbs of `zones` that end it, the one that loses nothing here first. What a server that has less than before shows once
  /// more would have the zone lost again, and so would a server that does not have the zone.
  ///
  /// - Parameter path: the store's, as a word of a shell.
  func remedy(_ path: String, _ zone: ZoneID) -> String {
    let command = { (verb: String) in "strandline zones \(path) \(verb) \(ShellWord.quote(zone.name))" }
    let sides =
      "\(command("resync-from-here")) (uploads these records), or \(command("resync-from-server")) (removes here what the "
      + "server does not have)"
    return switch self {
    case .wentBack, .missingRecords, .erased: sides
    case .deleted, .purged, .encryptedDataReset, .notFound:
      "\(command("resume")) (asks the server once more), or, if the zone is lost again, \(sides)"
    case .erasing: "\(command("resume")) (takes the erasure back)"
    }
  }
}

extension StoreStatus.Zone {
  /// The object that `status` and `zones` print.
  var json: JSONValue {
    .object([
      "zoneName": .string(id.name), "records": .integer(Int64(records)), "isDirty": .bool(isDirty),
      "lostReason": lostReason.map { .string("\($0)") } ?? .null, "lostWords": .string(lostWords),
      "ghostsPossible": .bool(ghostsPossible), "hasToken": .bool(hasToken),
      "listed": .integer(Int64(listed)),
    ])
  }

  /// The same in words for a person.
  var words: String {
    var words = [Words.plural(records, "record")]
    if lostReason == .erasing {
      words.append("to be deleted at the server by the next sync")
    } else if lostReason == .erased {
      words.append("erased (\(printable(lostWords))); kept here, not synced")
    } else if let lostReason {
      words.append("lost (\(lostReason)): \(printable(lostWords)); kept here, not synced")
    }
    if listed > 0 { words.append("\(Words.plural(listed, "record")) still to fetch") }
    if isDirty { words.append("has changes to fetch") }
    if !hasToken, lostReason == nil, listed == 0 { words.append("first download with the next sync") }
    if ghostsPossible { words.append("may hold records that the server has deleted: not all were asked for yet") }
    return words.joined(separator: ", ")
  }
}
