// `compact`: removes the events that no record, upload or deletion needs any more.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog

extension Command {
  static let compact = Command(
    "compact", "Remove the events that are no longer needed from a store's log.", operands: ["STORE"],
    details: [
      "Records, unsent changes and the names of deleted records are the same afterwards, and the remaining events keep",
      "their LSNs. If it is interrupted, nothing is removed. While it runs, the disk holds the remaining events twice.",
      "Events of the last 30 days stay, as they do when an app's store compacts itself, unless --history says otherwise.",
    ],
    options: [
      .json,
      Option("--history", "DAYS", "Keep the events of so many days; latest: keep none for their age. Default: 30."),
      Option(
        "--dry-run",
        "Only say what it would remove, beside an app that writes the store; views and projections may keep some."),
      Option("--prove", "Replay what would stay, beside the rules that judge it, before anything is removed. Slower."),
    ],
    examples: [
      Example("Compact a store", "strandline compact STORE"),
      Example("Keep no more than what records and the server need", "strandline compact --history latest STORE"),
      Example("What it would remove", "strandline compact --dry-run STORE"),
      Example("The sizes before and after, as JSON", "strandline compact --json STORE"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let history = try arguments.history()
      if arguments.has("--dry-run") {
        guard !arguments.has("--prove") else { throw UsageError(message: "--dry-run takes no --prove") }
        return try preview(path, history, isJSON: arguments.has("--json"), console)
      }
      return try withStore(path, console, create: false) { store in
        let report = try store.compactBlocking(
          keeping: history, proof: arguments.has("--prove") ? .both : .standard)
        let quarantine = try QuarantinedFile.all(at: path, console.fileSystem)
        if arguments.has("--json") {
          try console.write(report.json(quarantine).canonicalBytes + [UInt8(ascii: "\n")])
        } else {
          try console.print(report.text)
          for line in quarantine.map({ $0.line(in: path) }) { try console.print(line) }
        }
        return .done
      }
    })
}

extension Command {
  private static func preview(
    _ path: String, _ history: HistoryRetention, isJSON: Bool, _ console: Console
  ) throws -> ExitCode {
    guard let preview = try readOnly(path, console).previewCompaction(keeping: history) else {
      throw Failure(
        .usage, "a part of so long a log is only judged by a compaction itself", try: "--history latest")
    }
    if isJSON {
      try console.write(preview.json.canonicalBytes + [UInt8(ascii: "\n")])
    } else {
      try console.print(preview.text)
    }
    return .done
  }
}

extension CompactionPreview {
  fileprivate var text: String {
    if eventsBefore == 0 {
      return "Nothing would go: every event is younger than the history that stays (--history says how much)."
    }
    return "\(Words.bytes(bytesBefore)) would become \(Words.bytes(bytesAfter)); "
      + "\(Words.count(Int(clamping: eventsAfter))) of \(Words.plural(Int(clamping: eventsBefore), "event")) would stay, "
      + "\(Words.count(Int(clamping: eventsBefore - eventsAfter))) would go"
  }

  /// The object that `compact --dry-run --json` prints.
  fileprivate var json: JSONValue {
    .object([
      "bytesBefore": .integer(Int64(clamping: bytesBefore)), "bytesAfter": .integer(Int64(clamping: bytesAfter)),
      "eventsKept": .integer(Int64(clamping: eventsAfter)),
      "eventsDropped": .integer(Int64(clamping: eventsBefore - eventsAfter)),
    ])
  }
}

extension Arguments {
  fileprivate func history() throws -> HistoryRetention {
    guard let text = self["--history"] else { return .recent }
    if text == "latest" { return .latest }
    guard let days = Int32(text), days >= 0 else {
      throw UsageError(message: "--history takes a number of days, or latest, not '\(text)'")
    }
    return .since(.seconds(Int64(days) * 86_400))
  }
}

extension StoreCompaction {
  fileprivate var text: String {
    if segmentsBefore == 0 {
      return "Nothing was removed: every event is younger than the history that stays (--history says how much)."
    }
    return "\(Words.bytes(bytesBefore)) to \(Words.bytes(bytesAfter)); "
      + "\(Words.count(Int(clamping: eventsAfter))) of \(Words.plural(Int(clamping: eventsBefore), "event")) kept, "
      + "\(Words.count(Int(clamping: eventsBefore - eventsAfter))) dropped; "
      + "\(Words.plural(segmentsBefore, "segment")) to \(Words.count(segmentsAfter))"
  }

  /// The object that `compact --json` prints.
  fileprivate func json(_ quarantine: [QuarantinedFile]) -> JSONValue {
    .object([
      "quarantine": .array(quarantine.map(\.json)),
      "bytesBefore": .integer(Int64(clamping: bytesBefore)), "bytesAfter": .integer(Int64(clamping: bytesAfter)),
      "eventsKept": .integer(Int64(clamping: eventsAfter)),
      "eventsDropped": .integer(Int64(clamping: eventsBefore - eventsAfter)),
      "segmentsBefore": .integer(Int64(segmentsBefore)), "segmentsAfter": .integer(Int64(segmentsAfter)),
    ])
  }
}
