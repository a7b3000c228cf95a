// `status`: shows what a store holds, what it has to send and what it waits for, without field values. Takes no lock.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog

extension Command {
  static let status = Command(
    "status", "Show what a store holds, has to send and waits for.", operands: ["STORE"],
    details: [
      "Unsent are the records with changes that the server has not yet accepted or refused; with --json they are \"unsettled\".",
      "Damage is named where this command has met it; `verify` reads every byte.",
    ],
    options: [Option("--limit", "N", "Name N held records at most; `held` lists all of them."), .json],
    examples: [
      Example("As text", "strandline status STORE"),
      Example("Check that everything is uploaded", "strandline status --json STORE | grep '\"unsettled\":0'"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      var status = try readOnly(path, console).status()
      let limit = try arguments.number("--limit", in: 0...Int.max) ?? .max
      let left = max(0, status.held.count - limit)
      status.held.removeLast(left)
      let quarantine = try QuarantinedFile.all(at: path, console.fileSystem)
      if arguments.has("--json") {
        try console.write(status.json(quarantine).canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        for line in text(status, path, more: left) { try console.print(line) }
        for line in quarantine.map({ $0.line(in: path) }) { try console.print(line) }
      }
      return .done
    })

  private static func text(_ status: StoreStatus, _ path: String, more: Int) -> [String] {
    var rows: [(String, String)] = [
      ("records", Words.count(status.records)),
      ("deleted names", Words.count(status.deleted)),
      ("unsent", unsent(status)),
      ("newest event", "\(status.durableLSN)"),
      ("log", Words.bytes(status.logBytes)),
      ("account", account(status)),
    ]
    if status.contents.count + status.contents.staged > 0 {
      let staged = status.contents.staged > 0 ? ", and \(status.contents.staged) staged" : ""
      let bytes = Words.bytes(UInt64(max(0, status.contents.bytes)))
      rows.append(("contents", "\(status.contents.count) of assets, \(bytes)\(staged)"))
    }
    if status.openBlocks > 0 {
      rows.append(("to check", Words.plural(status.openBlocks, "record") + " to look up at the server"))
    }
    if let wait = status.waitMilliseconds {
      rows.append(("waiting", "\(Words.duration(milliseconds: wait)): \(printable(status.waitReason ?? ""))"))
    }
    for zone in status.zones { rows.append(("zone \(printable(zone.id.description))", zone.words)) }
    for held in status.held { rows.append(("held", held.line)) }
    if more > 0 { rows.append(("held", "and \(Words.plural(more, status.held.isEmpty ? "record" : "other"))")) }
    if more > 0 || !status.held.isEmpty { rows.append(("try", "strandline held \(ShellWord.quote(path))")) }
    if let inbox = status.inbox { rows += lines(inbox) }
    for damage in status.damage {
      let place = "\(printable(damage.file)):\(damage.offset)"
      rows.append(("damaged", "\(place), \(events(damage.lsns)): \(printable(damage.message))"))
    }
    if !status.damage.isEmpty {
      let store = ShellWord.quote(path)
      rows.append(("try", "strandline verify \(store), then strandline repair \(store)"))
    }
    let width = rows.map(\.0.count).max() ?? 0
    return rows.map { $0 + String(repeating: " ", count: width - $0.count + 2) + $1 }
  }

  private static func lines(_ inbox: StoreStatus.Inbox) -> [(String, String)] {
    var rows = [
      (
        "inbox",
        inbox.transactions == 0
          ? "nothing to take in"
          : "\(Words.plural(inbox.transactions, "transaction")) to take in, \(Words.bytes(inbox.bytes))"
      )
    ]
    for refusal in inbox.refusals {
      let names = refusal.ids.map { printable($0.description) }.joined(separator: " ")
      rows.append(("refused", "event \(refusal.lsn), \(names): \(printable(refusal.message))"))
    }
    if let failure = inbox.failure { rows.append(("inbox fails", printable(failure))) }
    return rows
  }

  private static func events(_ lsns: ClosedRange<LSN>?) -> String {
    guard let lsns else { return "unknown events" }
    return lsns.lowerBound == lsns.upperBound
      ? "event \(lsns.lowerBound)" : "events \(lsns.lowerBound) to \(lsns.upperBound)"
  }

  private static func unsent(_ status: StoreStatus) -> String {
    if status.unsettled == 0 { return "0" }
    let age = status.oldestUnsettledMilliseconds.map { ", the oldest \(Words.duration(milliseconds: $0)) old" } ?? ""
    return "\(Words.plural(status.unsettled, "record"))\(age)"
  }

  private static func account(_ status: StoreStatus) -> String {
    guard let account = status.account else { return "none: never synced" }
    return "\(printable(account.container)), \(account.environment.rawValue), "
      + account.scopes.map { "\($0)" }.joined(separator: " and ")
  }
}

extension StoreStatus {
  /// The object that `status --json` prints.
  func json(_ quarantine: [QuarantinedFile]) -> JSONValue {
    func optional(_ number: Int64?) -> JSONValue { number.map { .integer($0) } ?? .null }
    return .object([
      "damage": .array(
        damage.map { damage in
          .object([
            "file": .string(damage.file), "offset": .integer(Int64(clamping: damage.offset)),
            "firstLSN": damage.lsns.map { .integer(Int64(clamping: $0.lowerBound.rawValue)) } ?? .null,
            "lastLSN": damage.lsns.map { .integer(Int64(clamping: $0.upperBound.rawValue)) } ?? .null,
            "message": .string(damage.message),
          ])
        }),
      "quarantine": .array(quarantine.map(\.json)),
      "records": .integer(Int64(records)),
      "deleted": .integer(Int64(deleted)),
      "unsettled": .integer(Int64(unsettled)),
      "oldestUnsettledMilliseconds": optional(oldestUnsettledMilliseconds),
      "durableLSN": .integer(Int64(clamping: durableLSN.rawValue)),
      "checkpoint": .integer(Int64(clamping: checkpoint.rawValue)),
      "logBytes": .integer(Int64(clamping: logBytes)),
      "contents": .object([
        "count": .integer(Int64(contents.count)), "bytes": .integer(contents.bytes),
        "staged": .integer(Int64(contents.staged)),
      ]),
      "openBlocks": .integer(Int64(openBlocks)),
      "waitMilliseconds": optional(waitMilliseconds),
      "waitReason": waitReason.map { .string($0) } ?? .null,
      "account": account.map {
        .object([
          "container": .string($0.container), "environment": .string($0.environment.rawValue),
          "scopes": .array($0.scopes.map { .string("\($0)") }),
        ])
      } ?? .null,
      "held": .array(held.map(\.json)),
      "inbox": inbox.map(\.json) ?? .null,
      "zones": .array(zones.map(\.json)),
    ])
  }
}

extension StoreStatus.Inbox {
  fileprivate var json: JSONValue {
    .object([
      "transactions": .integer(Int64(transactions)), "bytes": .integer(Int64(clamping: bytes)),
      "refusals": .array(
        refusals.map { refusal in
          .object([
            "lsn": .integer(Int64(clamping: refusal.lsn.rawValue)), "code": .string(refusal.code.rawValue),
            "message": .string(refusal.message), "records": .array(refusal.ids.map { .string($0.description) }),
          ])
        }),
      "failure": failure.map { .string($0) } ?? .null,
    ])
  }
}
