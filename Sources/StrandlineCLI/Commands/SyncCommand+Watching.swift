// `sync --watch`: stays, lets the engine run by itself, and prints its status sentence whenever that changes. And what `sync`
// says at its end about what is left, by cause, with the verb that helps.

import Foundation
import Strandline
import StrandlineHost
import StrandlineSystem

/// Follows an engine until Ctrl-C.
struct SyncFollower {
  let isJSON: Bool
  let console: Console

  /// Prints each new sentence. Returns when the engine stops, or at Ctrl-C.
  func follow(_ engine: SyncEngine) async throws {
    let following = Task { try await show(engine.statuses) }
    do { try console.onInterrupt { following.cancel() } } catch {
      following.cancel()
      throw error
    }
    try await following.value
  }

  private func show(_ statuses: some AsyncSequence<SyncStatus, Never>) async throws {
    var last = ""
    for await status in statuses {
      let sentence = status.sentence
      guard sentence != last else { continue }
      last = sentence
      if isJSON {
        try console.write(status.json.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(Command.localTime(status.milliseconds))  \(printable(sentence))")
      }
      try console.flush()
    }
  }
}

extension SyncStatus {
  /// The object that `sync --watch --json` prints.
  fileprivate var json: JSONValue {
    func optional(_ number: Int64?) -> JSONValue { number.map { .integer($0) } ?? .null }
    return .object([
      "milliseconds": .integer(milliseconds), "sentence": .string(sentence), "phase": .string(phase.rawValue),
      "unsettled": .integer(Int64(unsettled)), "held": .integer(Int64(held.reduce(0) { $0 + $1.count })),
      "oldestUnsettledMilliseconds": optional(oldestUnsettledMilliseconds),
      "done": upload.map { .integer(Int64($0.done)) } ?? .null,
      "total": upload.map { .integer(Int64($0.total)) } ?? .null,
      "fetched": download.listing.map { .integer(Int64($0.done)) } ?? .null,
      "listed": download.listing.map { .integer(Int64($0.total)) } ?? .null,
      "waitUntilMilliseconds": optional(wait?.untilMilliseconds),
      "waitCode": wait.map { .string($0.code.rawValue) } ?? .null,
      "failureCode": failureCode.map { .string($0.rawValue) } ?? .null,
    ])
  }

  /// Zones that are lost, and what the server refuses whole: a line each, with the verb that helps.
  func linesOfHalts(in path: String) -> [String] {
    let store = ShellWord.quote(path)
    return halts.map { halt in
      let what = halt.type.map { "every '\($0)' of zone '\(halt.zone)'" } ?? "zone '\(halt.zone)'"
      let verb =
        halt.lostReason.map { $0.remedy(store, halt.zone) } ?? "the same command later; each one asks the server again"
      return "left: \(printable(what)), \(printable(halt.code.rawValue)): \(printable(halt.reason))\ntry: \(verb)"
    }
  }

  /// What is owed: a line for each cause, with the verb that helps.
  func linesOfWhatIsLeft(in path: String) -> [String] {
    let store = ShellWord.quote(path)
    var lines = leftOut.map { zone in
      "left: zone '\(printable("\(zone)"))' is left out, and has changes that are not sent; they go without --leave-out"
    }
    for group in held where !group.isDownload {
      let what = "left: \(Words.plural(group.count, "record")), \(printable(group.code.rawValue))"
      if let next = group.nextTryMilliseconds {
        let rest = Words.duration(milliseconds: next &- milliseconds)
        lines.append("\(what); tried again in \(rest), or now: strandline held \(store) retry")
      } else {
        lines.append(
          "\(what); try: strandline held \(store) release NAME (sends it again), or strandline held \(store) discard NAME"
        )
      }
    }
    let others = unsettled - held.filter { !$0.isDownload }.reduce(0) { $0 + $1.count }
    if others > 0 { lines.append("left: \(Words.plural(others, "record")) to send; try: strandline pending \(store)") }
    return lines
  }
}

extension SyncCommand {
  /// The edits that ended in a sync because of what the server has, or lost a field in a conflict, by name: a count of them
  /// would leave the user to search.
  func linesOfEndedEdits(
    in store: RecordStore, since begin: LogPosition, _ report: SyncReport
  ) throws -> [String] {
    guard report.blocked + report.merged > 0 else { return [] }
    var lines: [String] = []
    var (position, count, isEnd) = (begin, 0, false)
    while !isEnd {
      let page = try store.changes(since: position)
      for change in page.changes {
        guard let (what, why) = change.endOfEdit else { continue }
        count += 1
        if count <= Self.namesShownMax {
          let zone = change.id.zone == .main ? "" : " --zone \(ShellWord.quote(change.id.zone.name))"
          let name = ShellWord.quote(change.id.name)
          lines.append(
            "given up: \(what) of '\(printable("\(change.id)"))': \(printable(why))\n"
              + "try: strandline why \(ShellWord.quote(store.path)) \(name)\(zone)")
        }
      }
      (position, isEnd) = (page.position, !page.hasMore)
    }
    if count > Self.namesShownMax { lines.append("given up: \(Words.plural(count - Self.namesShownMax, "more edit"))") }
    return lines
  }
}

extension RecordChange {
  /// Which edit, or which fields of one, will never be at the server although its user did not give it up, and why; nil if the
  /// change says nothing like it.
  fileprivate var endOfEdit: (what: String, why: String)? {
    switch (kind, outcome) {
    case (.settled, .deletedOnServer):
      return ("an edit", "the record was deleted at the server; the edit is in its history")
    case (.settled, .rejected(let code, let reason)): return ("an edit", "\(code): \(reason)")
    // The end of the whole edit is told by its outcome.
    case (.conflicted, _) where rule != .deletion && rule != .type:
      let lost = fields.filter(\.loser.isHere)
      guard !lost.isEmpty else { return nil }
      let rules = Set(lost.map(\.rule.rawValue)).sorted().map { "'\($0)'" }.joined(separator: ", ")
      return (
        "an edit of \(lost.map { "'\($0.name)'" }.joined(separator: ", "))",
        "another one has won by the rule \(rules); the edit is in its history"
      )
    default: return nil
    }
  }
}
