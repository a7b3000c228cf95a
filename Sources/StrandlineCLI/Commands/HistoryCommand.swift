// `history`: shows what the log still knows of one record, the oldest first. Takes no lock.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem

extension Command {
  static let history = Command(
    "history", "Show what happened to one record.", operands: ["STORE", "NAME"],
    details: [
      "Columns: LSN, kind, where it came from, time, detail; the oldest first. A record that was deleted has a history too.",
      "Compaction shortens it; standard error then says up to which LSN something may be missing.",
    ],
    options: [
      .zone,
      Option("--from", "LSN", "Only changes from this LSN on."),
      Option("--limit", "N", "At most so many changes."),
      .json,
    ],
    examples: [
      Example("The history of a record", "strandline history STORE n1"),
      Example("As JSON, with each value that it had", "strandline history --json STORE n1"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let id = try RecordID(arguments.operands[1], zone: arguments.zone() ?? .main)
      let from = try arguments.number("--from", in: 1...UInt64(Int64.max)) ?? 1
      let limit = try arguments.number("--limit", in: 1...Int.max)
      let store = try readOnly(path, console)
      var printer = HistoryPrinter(isJSON: arguments.has("--json"), console)
      var next: LSN? = LSN(rawValue: from - 1)
      var compacted = LSN.zero
      while let after = next, printer.count < limit ?? .max {
        let page = try store.history(of: id, after: after, limit: min(256, (limit ?? .max) - printer.count))
        for change in page.changes { try printer.show(change) }
        compacted = max(compacted, page.compactedLSN ?? .zero)
        next = page.next
      }
      guard printer.count > 0 || from > 1 else {
        throw Failure(
          .noSuchStore, "'\(path)' knows nothing of a record '\(printable(id.description))'",
          try: "strandline query \(ShellWord.quote(path)) TYPE   (lists the records of a type)")
      }
      if let next { console.say("note: more follow; go on with --from \(next.rawValue + 1)") }
      if compacted != .zero {
        console.say("note: compaction has removed events up to \(compacted); changes before that may be missing")
      }
      return .done
    })
}

/// Prints changes of a record.
private struct HistoryPrinter {
  private let isJSON: Bool
  private let console: Console
  private(set) var count = 0

  init(isJSON: Bool, _ console: Console) {
    self.isJSON = isJSON
    self.console = console
  }

  mutating func show(_ change: RecordChange) throws {
    if isJSON {
      try console.write(JSONValue.object(json(change)).canonicalBytes + [UInt8(ascii: "\n")])
    } else {
      if count == 0 { try console.print(Self.columns("LSN", "kind", "from", "time", "detail")) }
      let time = change.milliseconds.map(Command.time) ?? "-"
      try console.print(
        Self.columns(
          "\(change.position.lsn)", change.kind.rawValue, change.origin.rawValue, time, detail(change)))
    }
    count += 1
  }

  private func detail(_ change: RecordChange) -> String {
    var parts: [String] = []
    if let record = change.record {
      let names = record.fields.keys.sorted { $0.precedesByUTF8($1) }
      parts.append("type \(record.type), fields \(names.isEmpty ? "-" : names.joined(separator: " "))")
    }
    if let mutation = change.mutation { parts.append("of \(mutation)") }
    if let rule = change.rule { parts.append("by \(rule)") }
    if let base = change.base { parts.append("with \(base)") }
    if let ancestor = change.ancestor { parts.append("from \(ancestor)") }
    if let cause = change.cause { parts.append("with the deletion \(cause) of a record above it") }
    if !change.fields.isEmpty { parts.append(change.fields.map(Self.words).joined(separator: "; ")) }
    if let outcome = change.outcome { parts.append("\(outcome)") }
    if let reason = change.reason { parts.append(reason) }
    if change.isCompacted { parts.append("compacted") }
    return parts.isEmpty ? "-" : printable(parts.joined(separator: ", "))
  }

  private static func words(_ field: ConflictField) -> String {
    switch field.loser {
    case .none: "\(field.name): both by \(field.rule)"
    case .here: "\(field.name): lost here by \(field.rule)"
    case .there: "\(field.name): lost there by \(field.rule)"
    case .both: "\(field.name): lost here and there by \(field.rule)"
    }
  }

  private func json(_ change: RecordChange) -> [String: JSONValue] {
    var members: [String: JSONValue] = [
      "lsn": .integer(Int64(clamping: change.position.lsn.rawValue)), "position": .string(change.position.description),
      "kind": .string(change.kind.rawValue), "origin": .string(change.origin.rawValue),
      "isCompacted": .bool(change.isCompacted),
    ]
    if let time = change.milliseconds { members["milliseconds"] = .integer(time) }
    if let mutation = change.mutation { members["mutation"] = .integer(Int64(clamping: mutation.rawValue)) }
    if let rule = change.rule { members["rule"] = .string(rule.rawValue) }
    if let base = change.base { members["base"] = .integer(Int64(clamping: base.rawValue)) }
    if let ancestor = change.ancestor { members["ancestor"] = .integer(Int64(clamping: ancestor.rawValue)) }
    if let cause = change.cause { members["cause"] = .integer(Int64(clamping: cause.rawValue)) }
    if !change.fields.isEmpty {
      members["fields"] = .array(
        change.fields.map {
          .object(["name": .string($0.name), "rule": .string($0.rule.rawValue), "lost": .string($0.loser.rawValue)])
        })
    }
    if let outcome = change.outcome { members["outcome"] = .string("\(outcome)") }
    if let reason = change.reason { members["reason"] = .string(reason) }
    if let record = change.record { members["record"] = .raw(record.line(zone: true)) }
    return members
  }

  private static func columns(_ texts: String...) -> String {
    zip(texts, [8, 15, 7, 20, 0]).map { text, width in
      text + String(repeating: " ", count: max(0, width - text.count))
    }.joined(separator: " ")
  }
}
