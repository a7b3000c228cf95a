// `why`: tells one record's story from the log, a sentence an event, and ends with how it stands and which verb helps. Takes no
// lock, and asks no server.

import Foundation
import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineSystem

extension Command {
  static let why = Command(
    "why", "Tell one record's story, and why it stands as it does.", operands: ["STORE", "NAME"],
    details: [
      "A sentence an event, the oldest first: what was written and by whom, sent, refused, merged, set aside, fetched and",
      "deleted, with the LSN and the local time. The last sentence says how the record stands now, and which verb helps.",
      "Compaction shortens the story. history prints the changes with their values.",
    ],
    options: [.zone, .json],
    examples: [Example("Why a note is not on the other device", "strandline why STORE n1")],
    run: { arguments, console in
      let path = arguments.operands[0]
      let id = try RecordID(arguments.operands[1], zone: arguments.zone() ?? .main)
      let store = try readOnly(path, console)
      var story = Story(of: id, store)
      let printer = StoryPrinter(isJSON: arguments.has("--json"), console)
      var compacted = LSN.zero
      var next: UInt64 = 1
      try LogReader.open(at: path, environment: console.environment).poll { found in
        if found.lsn > next { compacted = LSN(found.lsn - 1) }
        if EventCodec.kind(found.body)?.isPacked == true { compacted = LSN(found.lsn) }
        next = found.lsn + 1
        if let sentence = try story.take(found.decoded(), at: LSN(found.lsn)) { try printer.show(sentence) }
      }
      let ending = try Ending(of: id, listed: story.listed, in: store, at: path)
      guard let ending, !story.isEmpty || ending.isKnown else {
        throw Failure(
          .noSuchStore, "'\(path)' knows nothing of a record '\(printable(id.description))'",
          try: "strandline types \(ShellWord.quote(path)), and strandline query \(ShellWord.quote(path)) TYPE")
      }
      if compacted != .zero {
        let words =
          "what a compaction has removed up to here is missing above, also where a sentence names its number"
        try printer.show(Sentence(lsn: compacted, kind: "compacted", words: words))
      }
      try printer.show(ending)
      return .done
    })

  /// Formats a time of this device's time zone with whole seconds.
  static func localTime(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1_000).formatted(Date.ISO8601FormatStyle(timeZone: .current))
  }
}

/// What one event says of a record.
private struct Sentence {
  var lsn: LSN
  var kind: String
  /// When, if the event says it.
  var milliseconds: Int64?
  var words: String
}

/// The story of one record, an event after the other. Holds the mutations that are not settled, and nothing else.
private struct Story {
  private let id: RecordID
  private let store: RecordStore
  private let tenures: [Tenure]
  /// The mutations that a `sent` may name.
  private var owed: Set<LSN> = []
  private(set) var isEmpty = true
  /// The last event that names the record among those that are still to be fetched.
  private(set) var listed: LSN?

  init(of id: RecordID, _ store: RecordStore) {
    (self.id, self.store, tenures) = (id, store, store.projections.sync.tenures)
  }

  /// Takes in an event; nil if it says nothing of the record.
  mutating func take(_ event: Event, at lsn: LSN) throws -> Sentence? {
    guard let found = try words(event, at: lsn) else { return nil }
    if event.recordID == id || listed == lsn {
      isEmpty = false
    } else if isEmpty {
      // What befell the zone before there was anything of the record.
      return nil
    }
    return Sentence(lsn: lsn, kind: event.kindName, milliseconds: found.milliseconds, words: found.words)
  }

  private mutating func words(_ event: Event, at lsn: LSN) throws -> (words: String, milliseconds: Int64?)? {
    switch event {
    case .sent(let sent) where sent.zone == id.zone:
      guard let mutation = sent.lsns.first(where: { owed.contains($0) }) else { return nil }
      let others = sent.lsns.count - 1
      let company = others == 0 ? "alone" : "with \(Words.plural(others, "other record"))"
      return ("event \(mutation) was sent to the server, \(company)", nil)
    case .listed(let page) where page.zone == id.zone:
      guard let item = page.items.first(where: { $0.name.equalsUTF8(id.name) }) else { return nil }
      listed = lsn
      return (
        "the server's list of its zone names version '\(item.changeTag)', which is fetched with the others of the list",
        nil
      )
    case .zoneChanged(let changed) where changed.zone == id.zone:
      switch changed.change {
      case .lost where changed.reason == .erasing: return ("its zone is to be deleted at the server", nil)
      case .lost where changed.reason == .erased: return ("its zone was ended: \(changed.words)", nil)
      case .lost: return ("its zone was lost: \(changed.words); nothing of it is synced", nil)
      case .reset: return ("its zone is fetched again from its beginning: \(changed.words)", nil)
      default: return nil
      }
    default:
      guard event.recordID == id else { return nil }
      return try ownWords(event, at: lsn)
    }
  }

  private mutating func ownWords(_ event: Event, at lsn: LSN) throws -> (words: String, milliseconds: Int64?)? {
    switch event {
    case .saved(let saved):
      owed.insert(lsn)
      let fields = try LoadedVersion(event, at: lsn).map { Self.list($0.dirty.filter { $0.value == lsn }.keys) } ?? "-"
      let what =
        !saved.isCreation
        ? "changed here"
        : (saved.births == [.ofDefaults] ? "begun here with a default" : "created here") + " as '\(saved.type)'"
      return ("\(what) by \(author(of: lsn)): \(fields)", saved.time.milliseconds)
    case .superseded(let saved):
      owed.insert(lsn)
      return ("changed here; a compaction has taken the content", saved.time.milliseconds)
    case .deleted(let deleted):
      owed.insert(lsn)
      return ("deleted here by \(author(of: lsn))\(try company(deleted.cause))", deleted.time.milliseconds)
    case .merged(let merged):
      owed = [lsn]
      return (try words(merged, event, at: lsn), merged.time.milliseconds)
    case .conflicted(let conflicted): return (try words(conflicted), conflicted.wallMilliseconds)
    case .refused(let refused): return ("the server refused event \(refused.lsn); nothing of it was applied", nil)
    case .settled(let settled):
      owed = owed.filter { $0 > settled.lsn }
      return (words(settled), settled.modified?.milliseconds)
    case .fetchedSave(let fetched):
      listed = nil
      return (try words(fetched, event, at: lsn), fetched.modified?.milliseconds)
    case .fetchedDelete(let fetched): return (Self.words(fetched.reason), nil)
    case .blocked(let blocked): return (words(blocked), nil)
    case .held(let held): return (words(held), held.wallMilliseconds)
    case .joined(let joined):
      return ("it goes to the server in one request with what was written together with it (set \(joined.set))", nil)
    // What was held of the server's has ended by itself.
    case .released(let released) where released.lsn == .zero: return ("it is not set aside any more", nil)
    case .released: return ("released: it is sent again with the next sync", nil)
    case .discarded(let discarded):
      owed = owed.filter { $0 > discarded.lsn }
      return ("its changes up to event \(discarded.lsn) were given up here", nil)
    default: return nil
    }
  }

  /// With which deletion a record was deleted, if not by itself.
  private func company(_ cause: LSN) throws -> String {
    guard cause != .zero else { return "" }
    let above = try store.source.eventIfKept(at: cause)?.recordID.map { "'\($0.name)'" } ?? "a record"
    return " with \(above), which was above it (event \(cause))"
  }

  private func author(of lsn: LSN) -> String {
    guard let tenure = tenures.last(where: { $0.first <= lsn }) else { return "this store" }
    return "this store (writer \(String(tenure.writer, radix: 16)))"
  }

  private func words(_ merged: Merged, _ event: Event, at lsn: LSN) throws -> String {
    let fields = try LoadedVersion(event, at: lsn).map { Self.list($0.dirty.keys) } ?? "-"
    var words =
      merged.rule == Merged.reviveRule && merged.base == .zero
      ? "event \(merged.local) of here begins a new life of the record"
      : "event \(merged.local) of here and the server's version of event \(merged.base) were merged by the rule "
        + "'\(merged.rule)'"
    if merged.ancestor != .zero { words += ", both made from event \(merged.ancestor)" }
    if !merged.words.isEmpty { words += ", because \(merged.words)" }
    return words + "; to be sent: \(fields)"
  }

  private static func author(_ stamp: FieldStamp) -> String {
    if stamp == .ofDefaults { return " of a default" }
    return stamp.writer == 0 ? " of a tool or a migration" : " of writer \(String(stamp.writer, radix: 16))"
  }

  /// Whose value won, field by field, and why.
  private func words(_ conflicted: Conflicted) throws -> String {
    let server = try version(at: conflicted.server)
    let (what, theirs): (String, String) =
      switch try store.source.eventIfKept(at: conflicted.server) {
      case .saved, .merged, .superseded: ("what was saved here", "what was here")
      case .fetchedDelete(let fetched) where fetched.reason == .sweep:
        ("the absence of the record at the server", "the server's")
      case nil where conflicted.rule == Conflicted.deletionRule, .fetchedDelete:
        ("a deletion at the server", "the server's")
      default: ("the server's version", "the server's")
      }
    var words = "event \(conflicted.local) of here met \(what) of event \(conflicted.server)"
    if conflicted.fields.isEmpty { words += ": the other side's won, by the rule '\(conflicted.rule)'" }
    for field in conflicted.fields {
      let name = field.name == Version.parentField ? "its parent" : "'\(field.name)'"
      let stamp = server?.stamp.fields[field.name]
      let author = stamp.map { Self.author($0) } ?? ""
      let end =
        switch field.loser {
        case .here: "\(theirs)\(author) won, and the one of here is lost"
        case .there: "the one of here won, and \(theirs)\(author) is lost"
        case .both: "neither side's won"
        case .none: "both were put together"
        }
      let why = field.rule == Merged.joinRule ? "because it was written later" : "by the rule '\(field.rule)'"
      words += "; of \(name) \(end), \(why)"
    }
    return conflicted.words.isEmpty ? words : words + " (\(conflicted.words))"
  }

  /// The version in an event, or in the mutation that it acknowledged; nil if compaction has removed it, or if it has none.
  private func version(at lsn: LSN) throws -> Version? {
    guard let event = try store.source.eventIfKept(at: lsn) else { return nil }
    return try LoadedVersion(event, at: lsn)?.version
  }

  private func words(_ settled: Settled) -> String {
    let mutation = "event \(settled.lsn)"
    let reason = [settled.code, settled.words].filter { !$0.isEmpty }.joined(separator: ": ")
    let why = reason.isEmpty ? "" : ", because \(reason)"
    switch settled.outcome {
    case .saved: return "the server has \(mutation)\(settled.changeTag.map { ", as version '\($0)'" } ?? "")"
    case .deleted: return "the server has deleted the record, as \(mutation) asked"
    case .merged: return "\(mutation), as far as the rules kept it, is part of what the server has"
    case .lost: return "\(mutation) has lost: nothing of it is at the server"
    case .superseded: return "\(mutation) is not owed any more: something else took its place"
    case .cancelled: return "\(mutation) needs no sending: the server has nothing of it, and shall have nothing"
    case .deletedOnServer: return "\(mutation) ends with the record, which the server does not have any more"
    case .rejected: return "\(mutation) will never be sent\(why)"
    case .discarded: return "\(mutation) was given up\(why)"
    }
  }

  private func words(_ fetched: FetchedSave, _ event: Event, at lsn: LSN) throws -> String {
    let source =
      switch fetched.source {
      case .feed: "the server's feed brought"
      case .lookup: "a look-up brought"
      case .query: "a query brought"
      }
    var words = "\(source) version '\(fetched.changeTag)'"
    if let modified = fetched.modified {
      words += " by user '\(modified.user)'" + (modified.device.isEmpty ? "" : " on '\(modified.device)'")
    }
    let last = try LoadedVersion(event, at: lsn)?.version.stamp.fields.max { $0.value < $1.value }
    if fetched.isStamped, last?.value == .ofDefaults {
      words += "; it is a default, in which nobody has written anything"
    } else if fetched.isStamped, let last {
      let isOurs = tenures.contains { $0.writer == last.value.writer }
      let writer = isOurs ? "this store" : "writer \(String(last.value.writer, radix: 16))"
      words += "; the newest change in it, of '\(last.key)', is by \(writer)"
    }
    return words
  }

  private static func words(_ reason: FetchedDelete.Reason) -> String {
    switch reason {
    case .feed: "the server's feed said that the record was deleted"
    case .sweep: "the record was not there any more when the zone had been fetched as a whole"
    case .zone: "the record went with its zone"
    case .fullFetch: "a fetch from the beginning has shown that the server does not have the record any more"
    }
  }

  private func words(_ blocked: Blocked) -> String {
    let subject =
      switch blocked.subject {
      case .version:
        blocked.changeTag.isEmpty ? "a version of the server" : "version '\(blocked.changeTag)' of the server"
      case .mutation: "event \(blocked.lsn)"
      case .deletion: blocked.lsn == .zero ? "a deletion at the server" : "the absence of the record at the server"
      }
    switch blocked.consequence {
    case .none: return "the question about it is answered: \(blocked.words)"
    case .lookup: return "\(subject) was not applied: \(blocked.words); the server is asked what it has"
    case .deleteAgain: return "\(subject) was not applied: \(blocked.words); it is deleted there again"
    }
  }

  private func words(_ held: Held) -> String {
    let what = held.direction == .upload ? "event \(held.lsn)" : "a version of the server"
    let next =
      held.isShelved
      ? "it is shown when that comes, at the latest when its zone is fetched to its end"
      : held.durationMilliseconds > 0
        ? "it is tried again after \(Words.duration(milliseconds: held.durationMilliseconds))" : "it waits for a person"
    return "\(what) was set aside: \(held.code), \(held.words); \(next)"
  }

  private static func list(_ names: some Sequence<String>) -> String {
    let names = names.map { $0 == Version.parentField ? "its parent" : $0 }.sorted { $0.precedesByUTF8($1) }
    return names.isEmpty ? "no field" : names.joined(separator: ", ")
  }
}

/// How a record stands, and which verb helps.
private struct Ending {
  var state: String
  var words: String
  var remedy: String?
  /// The store knows the name, even if the log says nothing of it any more.
  var isKnown = true

  /// - Parameter listed: the last event that names the record among those that are still to be fetched.
  /// - Returns: nil if the store knows nothing of the name.
  init?(of id: RecordID, listed: LSN?, in store: RecordStore, at path: String) throws {
    let (path, name) = (ShellWord.quote(path), ShellWord.quote(id.name))
    let zone = id.zone == .main ? "" : " --zone \(ShellWord.quote(id.zone.name))"
    let sync = "strandline sync --url URL --container ID \(path)"
    let known = try store.projections.look(id)
    if let pending = try store.pendingChange(of: id) {
      let what = "\(pending.isDeletion ? "its deletion" : "its change") of event \(pending.lsn)"
      switch pending.obstacle {
      case .zoneLost(let reason)?:
        (state, words) = ("zoneLost", "\(what) is not sent, because \(reason.sentence)")
        remedy = reason.remedy(path, id.zone)
      case .held(let held)?:
        let next =
          held.retryMilliseconds.map { "it is tried again in \(Words.duration(milliseconds: $0))" }
          ?? "only an edit or a person ends that"
        (state, words) = ("held", "\(what) is set aside (\(held.code), \(held.reason)); \(next)")
        remedy = Self.remedy(held, pending, path, name + zone)
      case .target(let target)?:
        (state, words) = (
          "waits",
          "\(what) may have to wait for '\(target.name)', to which it refers and which the server does not have"
        )
        remedy = "strandline why \(path) \(ShellWord.quote(target.name))\(zone)"
      case .referrer(let referrer)?:
        (state, words) = (
          "waits",
          "\(what) waits for '\(referrer.name)', which refers to it at the server and whose change cannot be sent"
        )
        remedy = "strandline why \(path) \(ShellWord.quote(referrer.name))\(zone)"
      case .together(let other)?:
        (state, words) = (
          "waits", "\(what) goes to the server in one request with '\(other.name)', and that one cannot be sent"
        )
        remedy = "strandline why \(path) \(ShellWord.quote(other.name))\(zone)"
      case .halted?, .zoneLeftOut?:
        (state, words, remedy) = ("waits", "\(what) is not sent: \(pending.obstacle?.words ?? "")", sync)
      case nil:
        let sent = pending.mayHaveArrived ? "was sent, and the answer is not known" : "is not sent yet"
        (state, words, remedy) = ("pending", "\(what) \(sent)", sync)
      }
    } else if let zoneState = store.projections.withLock({ $0.sync.zones[id.zone] }), let reason = zoneState.lostReason,
      known.entry != nil || listed != nil || store.projections.withLock({ $0.sync.unread[id] }) != nil
    {
      (state, words) = ("zoneLost", "nothing is owed, and nothing comes, because \(reason.sentence)")
      remedy = reason.remedy(path, id.zone)
    } else if let held = store.projections.withLock({ $0.sync.unread[id] }) {
      (state, words) =
        held.isShelved
        ? ("shelved", "a version of the server is not shown yet: \(held.words)")
        : held.isOfNewerSchema
          ? ("shelved", "a version of the server is not shown: \(held.words)")
          : ("unreadable", "the server's version could not be read (\(held.code), \(held.words))")
      remedy = sync
    } else if let block = store.projections.withLock({ $0.sync.openBlocks[id] }), block.consequence != .none {
      (state, words) = ("asked", "what the server said last is not applied yet, and it is asked again: \(block.words)")
      remedy = sync
    } else if let base = known.entry?.base {
      (state, words) = ("synced", "nothing is owed: the server has it, as version '\(base.changeTag)'")
    } else if let listed, store.projections.sync.listed[id.zone]?.events[listed] != nil,
      known.deletion.map({ $0.lsn < listed || $0.isLocal }) ?? true
    {
      (state, words) = ("listed", "the server has it, and it is not here yet")
      remedy = sync
    } else if known.deletion != nil {
      (state, words) = ("deleted", "it is deleted, and the server agrees")
      remedy = "strandline restore \(path) \(name)\(zone)"
    } else {
      (state, words, isKnown) = ("unknown", "this store has nothing under the name", false)
    }
  }

  /// The verb that ends a hold. The server refuses wrong values each time, so a save of other values is named for those.
  private static func remedy(_ held: HeldRecord, _ pending: PendingChange, _ path: String, _ name: String) -> String {
    let retry =
      held.code == .badRequest && !pending.isDeletion
      ? "a save with what the server takes (by the app, or strandline put \(path))"
      : "strandline held \(path) release \(name)"
    return "\(retry), or strandline held \(path) discard \(name)"
  }
}

/// Prints sentences.
private struct StoryPrinter {
  private let isJSON: Bool
  private let console: Console

  init(isJSON: Bool, _ console: Console) { (self.isJSON, self.console) = (isJSON, console) }

  func show(_ sentence: Sentence) throws {
    guard isJSON else {
      let time = sentence.milliseconds.map(Command.localTime) ?? "-"
      return try console.print(Self.pad("\(sentence.lsn)", 8) + Self.pad(time, 26) + printable(sentence.words))
    }
    try write([
      "lsn": .integer(Int64(clamping: sentence.lsn.rawValue)), "kind": .string(sentence.kind),
      "milliseconds": sentence.milliseconds.map { .integer($0) } ?? .null, "words": .string(sentence.words),
    ])
  }

  func show(_ ending: Ending) throws {
    guard isJSON else {
      try console.print("now: \(printable(ending.words))")
      if let remedy = ending.remedy { try console.print("try: \(printable(remedy))") }
      return
    }
    try write([
      "state": .string(ending.state), "words": .string(ending.words), "try": ending.remedy.map { .string($0) } ?? .null,
    ])
  }

  private func write(_ members: [String: JSONValue]) throws {
    try console.write(JSONValue.object(members).canonicalBytes + [UInt8(ascii: "\n")])
  }

  private static func pad(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(1, width - text.count))
  }
}
