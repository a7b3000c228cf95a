// `held`: shows what the server refused and is set aside, and ends such holds.

package import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let held = Command(
    "held", "Show what is set aside because the server refused it, and end that.",
    operands: ["STORE", "release|discard|retry", "NAME…"], operandsMin: 1, operandsMax: .some(nil),
    details: [
      "Without a verb: lists the held records, each with the server's code and words, and when it is tried again. If more",
      "follow than --limit allows, standard error says how to go on, and with --json a last line does.",
      "release NAME… has the next sync send these once more; retry does that for every held record.",
      "discard NAME… gives up what is not settled of these: they show the server's version again, and a record that the",
      "server never had is gone. The history keeps what was given up until a compaction.",
    ],
    options: [
      .zone, Option("--code", "CODE", "Only those with this code, such as BAD_REQUEST."),
      Option("--limit", "N", "List N records at most."),
      Option("--after", "CURSOR", "Go on where an earlier list ended."),
      Option("--count", "Print how many there are of each code, and none of them."), .json,
    ],
    examples: [
      Example("What is held", "strandline held STORE"),
      Example("Send it again with the next sync", "strandline held STORE release n1"),
      Example("Give the change up", "strandline held STORE discard n1"),
      Example("How many of each code", "strandline held STORE --count"),
      Example("The first hundred of one code", "strandline held STORE --code BAD_REQUEST --limit 100"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let zone = try arguments.zone()
      guard arguments.operands.count > 1 else { return try HeldList(arguments).print(console) }
      let ofList = Set(["--code", "--limit", "--after"]).intersection(arguments.values.keys)
        .union(arguments.flags.intersection(["--count"]))
      if let option = ofList.sorted().first { throw UsageError(message: "\(option) is for the list, without a verb") }
      let (verb, names) = (arguments.operands[1], Array(arguments.operands.dropFirst(2)))
      guard ["release", "discard", "retry"].contains(verb) else {
        throw UsageError(message: "held takes release, discard or retry, not '\(printable(verb))'")
      }
      guard names.isEmpty == (verb == "retry") else {
        throw UsageError(
          message: verb == "retry" ? "held retry takes no names" : "held \(verb) needs the names of records")
      }
      let store = try await RecordStore.open(at: path, environment: StoreEnvironment(console.environment))
      let outcome: Result<Void, any Error>
      do {
        let ids =
          names.isEmpty
          ? try store.status().held.map(\.id).filter { zone == nil || $0.zone == zone }
          : names.map { RecordID($0, zone: zone ?? .main) }
        if verb == "discard" { try await store.discardChanges(of: ids) } else { try await store.releaseHolds(of: ids) }
        outcome = .success(())
      } catch { outcome = .failure(error) }
      do { try await store.close() } catch { if case .success = outcome { throw error } }
      try outcome.get()
      return .done
    })
}

/// What `held` lists.
private struct HeldList {
  private let path: String
  private let zone: ZoneID?
  private let code: CloudError.Code?
  private let limit: Int?
  private let after: HeldPlace?
  private let counts: Bool
  private let isJSON: Bool

  init(_ arguments: Arguments) throws(UsageError) {
    path = arguments.operands[0]
    zone = try arguments.zone()
    code = arguments["--code"].map { CloudError.Code(rawValue: $0) }
    limit = try arguments.number("--limit", in: 1...Int.max)
    after = try arguments["--after"].map { text throws(UsageError) in
      guard let place = HeldPlace(text: text) else {
        throw UsageError(
          message: "'\(text.prefix(80))' after --after is not a cursor; copy it whole, or leave it out")
      }
      return place
    }
    (counts, isJSON) = (arguments.has("--count"), arguments.has("--json"))
  }

  func print(_ console: Console) throws -> ExitCode {
    var held = try Command.readOnly(path, console).heldRecords()
      .filter { (zone == nil || $0.id.zone == zone) && (code == nil || $0.code == code) }
    if counts {
      try count(held, console)
      return .done
    }
    // Of one record a change and a version of the server may be held: in this order.
    held.sort { HeldPlace($0) < HeldPlace($1) }
    if let after { held.removeAll { HeldPlace($0) <= after } }
    let page = held.prefix(limit ?? .max)
    for one in page {
      if isJSON { try write(one.json, console) } else { try console.print(one.line) }
    }
    let next = page.count < held.count ? page.last.map { HeldPlace($0).text } : nil
    if let next { console.say("note: more follow; go on with --after \(ShellWord.quote(next))") }
    if isJSON, limit != nil { try write(.object(["cursor": next.map { .string($0) } ?? .null]), console) }
    return .done
  }

  private func count(_ held: [HeldRecord], _ console: Console) throws {
    let codes = Dictionary(grouping: held, by: \.code).map { (code: $0.rawValue, count: $1.count) }
    for (code, count) in codes.sorted(by: { ($1.count, $0.code) < ($0.count, $1.code) }) {
      if isJSON {
        try write(.object(["code": .string(code), "count": .integer(Int64(count))]), console)
      } else {
        try console.print("\(printable(code)): \(Words.plural(count, "record"))")
      }
    }
  }

  private func write(_ value: JSONValue, _ console: Console) throws {
    try console.write(value.canonicalBytes + [UInt8(ascii: "\n")])
  }
}

/// A place in the list: of a record, and of its change or of its version at the server. It stays valid when the record is released.
package struct HeldPlace: Comparable {
  package var id: RecordID
  package var isDownload: Bool

  init(_ held: HeldRecord) { self.init(held.id, isDownload: held.isDownload) }
  package init(_ id: RecordID, isDownload: Bool) { (self.id, self.isDownload) = (id, isDownload) }

  /// Nil if it is not as `text` writes it.
  package init?(text: String) {
    guard let slash = text.firstIndex(of: "/"), let id = try? RecordID(text: String(text[slash...].dropFirst())) else {
      return nil
    }
    self.init(id, isDownload: text[..<slash] == "download")
    guard self.text.equalsUTF8(text) else { return nil }
  }

  package var text: String { "\(isDownload ? "download" : "upload")/\(id)" }

  package static func < (left: Self, right: Self) -> Bool {
    left.id == right.id ? !left.isDownload && right.isDownload : left.id < right.id
  }
}

extension HeldRecord {
  /// The members that `status` and `held` print.
  var json: JSONValue {
    .object([
      "zoneName": .string(id.zone.name), "recordName": .string(id.name), "code": .string(code.rawValue),
      "reason": .string(reason), "attempts": .integer(Int64(attempts)),
      "direction": .string(isDownload ? "download" : "upload"),
      "retryMilliseconds": retryMilliseconds.map { .integer($0) } ?? .null,
      "requestUUID": .string(requestUUID),
    ])
  }

  /// One line for a person.
  var line: String {
    let next =
      code == .parentMissing
      ? "until its zone is fetched to its end"
      : isDownload
        ? "until the server shows a version that can be read"
        : retryMilliseconds.map {
          $0 > 0 ? "tried again in \(Words.duration(milliseconds: $0))" : "tried again with the next sync"
        }
          ?? (code == .badRequest
            // The server refuses the same values each time.
            ? "until it is saved with what the server takes (by the app, or strandline put), or discarded"
            : "until it is edited, released or discarded")
    return "\(printable(id.description)): \(printable(code.rawValue)), \(printable(reason)) "
      + "(refused \(Words.plural(attempts, "time")) since it was changed or released last; \(next))"
  }
}
