// `pending`: lists what is owed to the server, record by record, and what is in the way of each as far as the store knows
// without asking. Takes no lock.

import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let pending = Command(
    "pending", "List the records with unsent changes, and what is in their way.", operands: ["STORE"],
    details: [
      "Columns: LSN, change, record, age of the oldest change that the server lacks, what is in the way. In the order of",
      "the log, which is about that in which they are sent. why tells the story of one of them.",
    ],
    options: [
      Option("--zone", "ZONE", "Only records of this zone."),
      Option("--limit", "N", "At most so many records."),
      .json,
    ],
    examples: [
      Example("What is not at the server yet", "strandline pending STORE"),
      Example("How many are held", "strandline pending --json STORE | grep -c '\"waitsFor\":\"held\"'"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let zone = try arguments.zone()
      let limit = try arguments.number("--limit", in: 1...Int.max) ?? .max
      let isJSON = arguments.has("--json")
      let store = try readOnly(path, console)
      let wall = console.environment.clock.wallMilliseconds()
      var count = 0
      var next: LSN? = LSN(rawValue: 0)
      while let after = next, count < limit {
        let page = try store.pendingChanges(after: after, limit: 256)
        next = page.next
        for change in page.changes where (zone == nil || change.id.zone == zone) && count < limit {
          if isJSON {
            try console.write(change.json(wall: wall).canonicalBytes + [UInt8(ascii: "\n")])
          } else {
            if count == 0 { try console.print(PendingChange.header) }
            try console.print(change.line(wall: wall))
          }
          count += 1
        }
      }
      if count == 0, !isJSON { console.say("note: nothing is pending") }
      return .done
    })
}

extension PendingChange {
  fileprivate static let header = columns("LSN", "change", "record", "age", "in the way")

  private static func columns(_ texts: String...) -> String {
    zip(texts, [8, 8, 24, 8, 0]).map { text, width in
      text + String(repeating: " ", count: max(0, width - text.count))
    }.joined(separator: " ")
  }

  private func age(_ wall: Int64) -> Int64? { milliseconds.map { max(0, wall &- $0) } }

  fileprivate func line(wall: Int64) -> String {
    Self.columns(
      "\(lsn)", isDeletion ? "deletion" : "save", printable(id.description),
      age(wall).map { Words.duration(milliseconds: $0) } ?? "-", obstacle?.words ?? "-")
  }

  fileprivate func json(wall: Int64) -> JSONValue {
    var members: [String: JSONValue] = [
      "zoneName": .string(id.zone.name), "recordName": .string(id.name), "lsn": .integer(Int64(clamping: lsn.rawValue)),
      "since": .integer(Int64(clamping: since.rawValue)), "change": .string(isDeletion ? "deletion" : "save"),
      "ageMilliseconds": age(wall).map { .integer($0) } ?? .null,
      "changeTag": changeTag.map { .string($0) } ?? .null, "mayHaveArrived": .bool(mayHaveArrived),
    ]
    switch obstacle {
    case .held(let held):
      members["waitsFor"] = .string("held")
      members["code"] = .string(held.code.rawValue)
      members["retryMilliseconds"] = held.retryMilliseconds.map { .integer($0) } ?? .null
    case .target(let target):
      members["waitsFor"] = .string("target")
      members["target"] = .string(target.name)
    case .referrer(let referrer):
      members["waitsFor"] = .string("referrer")
      members["target"] = .string(referrer.name)
    case .together(let other):
      members["waitsFor"] = .string("together")
      members["target"] = .string(other.name)
    case .zoneLost, .zoneLeftOut: members["waitsFor"] = .string("zone")
    case .halted(let halt):
      members["waitsFor"] = .string("halted")
      members["code"] = .string(halt.code.rawValue)
    case nil: members["waitsFor"] = .null
    }
    return .object(members)
  }
}

extension PendingChange.Obstacle {
  /// What is in the way, in words for a person.
  var words: String {
    switch self {
    case .held(let held):
      let next = held.retryMilliseconds.map { ", tried again in \(Words.duration(milliseconds: $0))" } ?? ""
      return "held: \(printable(held.code.rawValue)), \(printable(held.reason))\(next)"
    case .target(let target): return "refers to '\(printable(target.name))', which the server does not have"
    case .referrer(let referrer): return "'\(printable(referrer.name))' refers to it at the server, and cannot be sent"
    case .together(let other):
      return "it was written together with '\(printable(other.name))', which cannot be sent"
    case .zoneLost(let reason): return reason.sentence
    case .zoneLeftOut: return "its zone is left out"
    case .halted(let halt):
      return "the server refuses all like it: \(printable(halt.code.rawValue)), \(printable(halt.reason))"
    }
  }
}
