// `log-dump`: shows the events of a store's log or of a server's journal, also while another process writes it. Takes
// no lock.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog
import StrandlineSystem
import Synchronization

extension Command {
  static let logDump = Command(
    "log-dump", "Show the events of a store, or of a server's journal.", operands: ["STORE"],
    details: [
      "Columns: LSN, kind, record (or zone), detail. Field values are not shown; get shows them.",
      "The LSN (log sequence number) is an event's number: 1 for the first, one more for each that follows.",
    ],
    options: [
      Option("--from", "LSN", "Only events from this LSN on."),
      Option("--to", "LSN", "Only events up to this LSN, not included."),
      Option(
        "--kind", "KIND[,KIND]", "Only events of these kinds, such as saved,merged; unknown: kinds of newer versions."),
      Option("--record", "NAME", "Only events of this record."),
      Option("--zone", "ZONE", "Only events of this zone."),
      Option("--follow", short: "-f", "Wait for new events until Ctrl-C (exit code 0)."),
      .json,
      Option("--hex", "Also show the segment, the offset and the bytes of each event."),
    ],
    examples: [
      Example("The events of one record", "strandline log-dump --record n1 STORE"),
      Example("Watch a sync", "strandline log-dump --follow --kind sent,settled,merged STORE"),
    ],
    run: { try await LogDump($0, $1).run() })
}

/// One run of `log-dump`.
struct LogDump {
  private let path: String
  private let from: UInt64
  private let to: UInt64
  private let kinds: Set<String>
  private let record: String?
  private let zone: String?
  private let follows: Bool
  private let isJSON: Bool
  private let showsBytes: Bool
  private let console: Console

  /// How often `--follow` polls the log. A writer publishes at once what is durable.
  private static let pollMilliseconds: Int64 = 200

  init(_ arguments: Arguments, _ console: Console) throws {
    path = arguments.operands[0]
    from = try arguments.number("--from", in: 0...UInt64(Int64.max)) ?? 0
    to = try arguments.number("--to", in: 0...UInt64(Int64.max)) ?? .max
    guard from <= to else { throw UsageError(message: "--from \(from) is after --to \(to)") }
    kinds = Set(arguments["--kind"]?.split(separator: ",", omittingEmptySubsequences: false).map(String.init) ?? [])
    let known = [LogRole.store, .server, .inbox].flatMap(EventView.kindNames)
    for kind in kinds.sorted() where !known.contains(kind) {
      let suggestion = Suggestion.sentence(kind, among: known)
      throw UsageError(
        message: "unknown kind '\(kind)'\(suggestion.isEmpty ? "." : suggestion) The kinds of a store are "
          + "\(Self.list(.store)); those of a server's journal are \(Self.list(.server))")
    }
    record = arguments["--record"]
    zone = try arguments.zone()?.name
    follows = arguments.has("--follow")
    isJSON = arguments.has("--json")
    showsBytes = arguments.has("--hex")
    self.console = console
  }

  private static func list(_ role: LogRole) -> String { EventView.kindNames(of: role).joined(separator: ", ") }

  private static func words(_ role: LogRole) -> String {
    switch role {
    case .store: "a store"
    case .server: "a server's journal"
    case .inbox: "an inbox"
    }
  }

  /// Checks that a log of this role may have events of the kinds.
  private func checkKinds(_ role: LogRole) throws(UsageError) {
    let known = EventView.kindNames(of: role)
    guard let kind = kinds.sorted().first(where: { !known.contains($0) }) else { return }
    let here = Self.words(role)
    let there = [LogRole.store, .inbox, .server].first { EventView.kindNames(of: $0).contains(kind) }
    throw UsageError(
      message: "'\(kind)' is a kind of \(Self.words(there ?? .store)), and '\(path)' is \(here); its kinds are "
        + Self.list(role))
  }

  func run() async throws -> ExitCode {
    if !follows, let store = try console.reader?.store(), case .reader(let reader) = store.source {
      try checkKinds(reader.role)
      try showRange(reader)
      return .done
    }
    let reader = try LogReader.open(at: path, environment: console.environment)
    try checkKinds(reader.role)
    if !isJSON { try console.print(EventView.header) }
    try reader.poll { try show($0, reader.role) }
    guard follows else { return .done }
    let isInterrupted = Flag()
    try console.onInterrupt { isInterrupted.set() }
    // `to` may be 0, and `lastLSN` is at most Int64.max.
    while !isInterrupted.isSet, reader.lastLSN + 1 < to {
      try console.flush()
      try await console.environment.clock.sleep(milliseconds: Self.pollMilliseconds)
      try reader.poll { try show($0, reader.role) }
    }
    return .done
  }

  /// Shows events of a log that was read before: from where the first of them lies, and not from its beginning.
  private func showRange(_ reader: LogReader) throws {
    let (first, end) = (max(1, from), min(to, reader.lastLSN + 1))
    guard first < end else { return }
    try reader.forEachEvent(in: first...(end - 1)) { event in
      try show(event, reader.role)
      return true
    }
  }

  private func show(_ event: LogEvent, _ role: LogRole) throws {
    guard event.lsn >= from, event.lsn < to else { return }
    let view = EventView(event, role: role)
    if !kinds.isEmpty, !kinds.contains(view.kind), !(kinds.contains("unknown") && view.kind.hasPrefix("unknown-")) {
      return
    }
    if let record, !view.recordName.equalsUTF8(record) { return }
    if let zone, !view.isOf(zone: zone) { return }
    let segment = String(event.segmentID, radix: 16)
    if isJSON {
      var members = view.json
      if showsBytes {
        members["segment"] = .string(segment)
        members["offset"] = .integer(Int64(event.offset))
        members["hex"] = .string(HexText.of(event.body))
      }
      try console.write(JSONValue.object(members).canonicalBytes + [UInt8(ascii: "\n")])
    } else {
      try console.print(view.text)
      guard showsBytes else { return }
      try console.print(
        "  segment \(segment), offset \(event.offset), schema \(event.schema), "
          + Words.plural(event.body.count, "byte"))
      for line in HexText.lines(event.body) { try console.print(line) }
    }
  }
}
