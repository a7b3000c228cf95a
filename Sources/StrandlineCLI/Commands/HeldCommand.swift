// `held`: shows what the server refused and is set aside, and ends such holds.

import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let held = Command(
    "held", "Show what is set aside because the server refused it, and end that.",
    operands: ["STORE", "release|discard|retry", "NAME…"], operandsMin: 1, operandsMax: .some(nil),
    details: [
      "Without a verb: lists the held records, each with the server's code and words, and when it is tried again.",
      "release NAME… has the next sync send these once more; retry does that for every held record.",
      "discard NAME… gives up what is not settled of these: they show the server's version again, and a record that the",
      "server never had is gone. The history keeps what was given up until a compaction.",
    ],
    options: [.zone, .json],
    examples: [
      Example("What is held", "strandline held STORE"),
      Example("Send it again with the next sync", "strandline held STORE release n1"),
      Example("Give the change up", "strandline held STORE discard n1"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let zone = try arguments.zone()
      guard arguments.operands.count > 1 else { return try listHeld(path, zone, arguments.has("--json"), console) }
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

  private static func listHeld(
    _ path: String, _ zone: ZoneID?, _ isJSON: Bool, _ console: Console
  ) throws -> ExitCode {
    let held = try readOnly(path, console).status().held.filter { zone == nil || $0.id.zone == zone }
    if isJSON {
      for one in held { try console.write(one.json.canonicalBytes + [UInt8(ascii: "\n")]) }
    } else {
      for one in held { try console.print(one.line) }
    }
    return .done
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
          ?? "until it is edited, released or discarded"
    return "\(printable(id.description)): \(printable(code.rawValue)), \(printable(reason)) "
      + "(refused \(Words.plural(attempts, "time")) since it was changed or released last; \(next))"
  }
}
