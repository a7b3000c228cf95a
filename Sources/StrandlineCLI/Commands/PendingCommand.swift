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
      Option("--limit", "N", "List N records at most."),
      Option("--after", "LSN", "Go on after the last line of an earlier list, which has this LSN."),
      Option("--count", "Print how many wait for what, and none of them; looks at each of them."),
      .json,
    ],
    examples: [
      Example("What is not at the server yet", "strandline pending STORE"),
      Example("How many wait for what", "strandline pending STORE --count"),
    ],
    run: { arguments, console in
      let list = try PendingList(arguments, console)
      return arguments.has("--count") ? try list.count() : try list.print()
    })
}

/// What `pending` lists.
private struct PendingList {
  private let store: RecordStore
  private let zone: ZoneID?
  private let limit: Int
  private let first: LSN
  private let isJSON: Bool
  private let console: Console

  init(_ arguments: Arguments, _ console: Console) throws {
    zone = try arguments.zone()
    limit = try arguments.number("--limit", in: 1...Int.max) ?? .max
    first = LSN(rawValue: try arguments.number("--after", in: 0...UInt64(Int64.max)) ?? 0)
    isJSON = arguments.has("--json")
    self.console = console
    store = try Command.readOnly(arguments.operands[0], console)
  }

  /// Reads page by page, until `body` wants no more.
  private func each(_ length: Int, _ body: (PendingChange) throws -> Bool) throws {
    var next: LSN? = first
    while let after = next {
      let page = try store.pendingChanges(after: after, limit: length)
      next = page.next
      for change in page.changes where zone == nil || change.id.zone == zone {
        guard try body(change) else { return }
      }
    }
  }

  func print() throws -> ExitCode {
    let wall = console.environment.clock.wallMilliseconds()
    var count = 0
    var last = first
    try each(min(limit, 256)) { change in
      guard count < limit else {
        console.say("note: more follow; go on with --after \(last)")
        return false
      }
      if isJSON {
        try console.write(change.json(wall: wall).canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        if count == 0 { try console.print(PendingChange.header) }
        try console.print(change.line(wall: wall))
      }
      (count, last) = (count + 1, change.lsn)
      return true
    }
    if count == 0, !isJSON { console.say("note: nothing is pending") }
    return .done
  }

  /// Looks up the obstacle of each record, as the list does.
  func count() throws -> ExitCode {
    var counts: [PendingChange.Obstacle.Kind?: Int] = [:]
    var left = limit
    try each(4_096) { change in
      guard left > 0 else { return false }
      left -= 1
      counts[change.obstacle?.kind, default: 0] += 1
      return true
    }
    for kind in [nil] + PendingChange.Obstacle.Kind.allCases {
      guard let count = counts[kind] else { continue }
      if isJSON {
        let waitsFor: JSONValue = kind.map { .string($0.rawValue) } ?? .null
        let line = JSONValue.object(["waitsFor": waitsFor, "count": .integer(Int64(count))])
        try console.write(line.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(kind?.words ?? "nothing in the way"): \(Words.plural(count, "record"))")
      }
    }
    if counts.isEmpty, !isJSON { console.say("note: nothing is pending") }
    return .done
  }
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
    members["waitsFor"] = (obstacle?.kind).map { .string($0.rawValue) } ?? .null
    switch obstacle {
    case .held(let held):
      members["code"] = .string(held.code.rawValue)
      members["retryMilliseconds"] = held.retryMilliseconds.map { .integer($0) } ?? .null
    case .target(let other), .referrer(let other), .together(let other): members["target"] = .string(other.name)
    case .halted(let halt): members["code"] = .string(halt.code.rawValue)
    case .zoneLost, .zoneLeftOut, nil: break
    }
    return .object(members)
  }
}

extension PendingChange.Obstacle {
  /// The obstacles, by the names that `waitsFor` has in JSON.
  fileprivate enum Kind: String, CaseIterable {
    case held, target, referrer, together, zone, halted

    var words: String {
      switch self {
      case .held: "set aside because the server refused it"
      case .target: "refers to what the server does not have"
      case .referrer: "waits for what refers to it"
      case .together: "was written together with what cannot be sent"
      case .zone: "its zone is not synced"
      case .halted: "the server refuses all like it"
      }
    }
  }

  fileprivate var kind: Kind {
    switch self {
    case .held: .held
    case .target: .target
    case .referrer: .referrer
    case .together: .together
    case .zoneLost, .zoneLeftOut: .zone
    case .halted: .halted
    }
  }

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
