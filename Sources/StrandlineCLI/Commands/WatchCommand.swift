// `watch`: prints the records that meet conditions, and then each change of them, while another process writes the store.
// Takes no lock.
//
// It looks at the store five times a second, as often as a writer says how far it is durable. Which records have changed
// it learns from the log; of each record that it has printed it keeps the identity and a hash of the line, so that a
// change which a reader cannot see (an upload, a save of what is there already) prints nothing.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem

extension Command {
  static let watch = Command(
    "watch", "Print records, and then each change of them.", operands: ["STORE"],
    details: [
      "Prints JSON lines: one for each record that is there, a line that says so, then one for each change, while an app",
      "or another command writes the store. Ends at Ctrl-C (exit code 0), and when its output is closed (74).",
      "Conditions are those of query.",
    ],
    options: [
      Option("--type", "TYPE", "Only records of this type."),
      Option("--zone", "ZONE", "Only the records of this zone."),
      Option("--where", "CONDITION", "Only records that meet it; may be given several times.", repeats: true),
    ],
    examples: [
      Example("Every record", "strandline watch STORE"),
      Example("Open tasks, as they come and go", "strandline watch --type Task --where 'done = 0' STORE"),
    ],
    run: { arguments, console in
      var watch = try Watch(arguments, console)
      let watching = Task { try await watch.run() }
      do {
        try console.onInterrupt { watching.cancel() }
      } catch {
        watching.cancel()
        throw error
      }
      do { try await watching.value } catch is CancellationError {}
      return .done
    })
}

/// One run of `watch`.
private struct Watch: Sendable {
  private static let pollMilliseconds: Int64 = 200
  private static let pageLimit = 1_000

  private let type: String?
  private let zone: ZoneID?
  private let filters: [RecordFilter]
  private let console: Console
  private let store: RecordStore
  /// What was printed of each record that meets the conditions, as a hash of its line.
  private var shown: [RecordID: Int] = [:]
  private var position = LogPosition.start

  init(_ arguments: Arguments, _ console: Console) throws {
    type = arguments["--type"]
    zone = try arguments.zone()
    filters = try arguments.all("--where").map(Command.condition)
    self.console = console
    store = try Command.readOnly(arguments.operands[0], console)
  }

  mutating func run() async throws {
    try compare(with: store.view(), as: "there")
    try print(["change": .string("ready")], at: position.lsn)
    while true {
      try console.flush()
      try await console.environment.clock.sleep(milliseconds: Self.pollMilliseconds)
      guard console.isOutputOpen else {
        throw Failure(.inputOutput, "nothing reads the standard output any more")
      }
      if try store.refresh() { try follow() }
    }
  }

  /// Prints what has changed up to the newest event.
  private mutating func follow() throws {
    let view = try store.view()
    do {
      var page: ChangePage
      repeat {
        page = try store.changes(since: position, limit: Self.pageLimit)
        var seen: Set<RecordID> = []
        for change in page.changes where seen.insert(change.id).inserted {
          try show(change.id, view.record(change.id), as: "saved", view.lsn)
        }
        position = page.position
      } while page.hasMore
    } catch StrandlineError.Code.positionExpired {
      try compare(with: view, as: "saved")
    }
  }

  /// Prints how what the view shows differs from what was printed: at the beginning, and when a compaction has removed
  /// the events that would say it.
  private mutating func compare(with view: StoreView, as change: String) throws {
    var gone = Set(shown.keys)
    try view.forEachRecord(ofType: type, in: zone) { record in
      gone.remove(record.id)
      try show(record.id, record, as: change, view.lsn)
    }
    for id in gone.sorted() { try show(id, nil, as: change, view.lsn) }
    position = view.position
  }

  private mutating func show(_ id: RecordID, _ record: Record?, as change: String, _ lsn: LSN) throws {
    guard let record, isWanted(record) else {
      guard shown.removeValue(forKey: id) != nil else { return }
      let members: [String: JSONValue] = [
        "change": .string("removed"), "recordName": .string(id.name), "zoneName": .string(id.zone.name),
      ]
      return try print(members, at: lsn)
    }
    let line = record.line(zone: true)
    guard shown.updateValue(line.hashValue, forKey: id) != line.hashValue else { return }
    try print(["change": .string(change), "record": .raw(line)], at: lsn)
  }

  private func isWanted(_ record: Record) -> Bool {
    (type == nil || record.type == type) && (zone == nil || record.id.zone == zone)
      && filters.allSatisfy { $0.matches(record[$0.field]) }
  }

  private func print(_ members: [String: JSONValue], at lsn: LSN) throws {
    var members = members
    members["lsn"] = .integer(Int64(clamping: lsn.rawValue))
    try console.write(JSONValue.object(members).canonicalBytes + [UInt8(ascii: "\n")])
  }
}
