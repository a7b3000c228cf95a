// `repair`: recovers what a damaged store still holds. Without `--apply` it prints a plan and writes nothing; with it,
// it writes a new store into a new directory. It never changes the damaged store.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog
import StrandlineSystem

extension Command {
  static let repair = Command(
    "repair", "Recover what a damaged store still holds into a new store.", operands: ["STORE"],
    details: [
      "Without --apply it prints a plan and writes nothing. With --apply it copies every event that still verifies to a",
      "new store and the damaged bytes to NEW/quarantine; it does not change STORE. The next sync fetches the lost",
      "records that the server has. If the disk cannot read a byte, repair fails: first copy the directory to another",
      "disk with a tool that continues after unreadable bytes, and repair the copy.",
      "Exit code 0: there is nothing to repair, or NEW was written; 1: a plan was printed; 65: nothing can be recovered.",
    ],
    options: [
      Option("--apply", "Write the new store."),
      Option("--into", "NEW", "The directory of the new store; it must be empty or not exist."),
      .json,
    ],
    examples: [
      Example("Show what can be recovered", "strandline repair STORE"),
      Example("Recover it", "strandline repair STORE --apply --into NEW"),
    ],
    run: { arguments, console in
      let target = arguments["--into"]
      guard arguments.has("--apply") == (target != nil) else {
        throw UsageError(message: target == nil ? "--apply needs --into NEW" : "--into needs --apply")
      }
      let path = arguments.operands[0]
      let repair = try StoreRepair(at: path, environment: StoreEnvironment(console.environment))
      let records = repair.plan.salvage.damages.map { repair.recordNamed(in: $0) }
      let screen = RepairScreen(path: path, target: target, plan: repair.plan, records: records)
      guard let target, repair.plan.isNeeded else {
        try screen.show(console, json: arguments.has("--json"), isWritten: false)
        return repair.plan.isNeeded ? .recoverable : .done
      }
      try checkParent(of: target, console, purpose: "to make the new store in")
      do {
        try repair.apply(into: target)
      } catch let error as StrandlineError where error.code == .notAStore {
        // The damaged store was read without an error, so this is about the directory of the new one.
        throw Failure(.cannotCreate, error.message, try: "the same command with another directory after --into")
      }
      try screen.show(console, json: arguments.has("--json"), isWritten: true)
      return .done
    })
}

/// The report of a repair: the plan, and after `--apply` the same report as the result.
struct RepairScreen {
  let path: String
  let target: String?
  let plan: StoreRepair.Plan
  /// For each damaged place the record that its bytes name.
  let records: [RecordID?]

  private var salvage: SalvageReport { plan.salvage }

  func show(_ console: Console, json: Bool, isWritten: Bool) throws {
    if json {
      for (damage, record) in zip(salvage.damages, records) { try console.write(line(damage, record)) }
      try console.write(summary(isWritten: isWritten).canonicalBytes + [UInt8(ascii: "\n")])
      return
    }
    for (damage, record) in zip(salvage.damages, records) {
      let region = damage.bytes.isEmpty ? "" : " to \(damage.bytes.upperBound)"
      let name = record.map { "; its bytes name record '\(printable($0.description))'" } ?? ""
      let lsns = damage.lsns.map { " (\(words($0))\(name))" } ?? ""
      try console.print(
        "\(printable(damage.file)):\(damage.bytes.lowerBound)\(region)  \(printable(damage.words))\(lsns)")
    }
    let rows = rows
    let width = rows.map(\.0.count).max() ?? 0
    for (name, words) in rows {
      try console.print(name + String(repeating: " ", count: width - name.count + 2) + words)
    }
    try console.print(verdict(isWritten: isWritten))
  }

  private func verdict(isWritten: Bool) -> String {
    let store = ShellWord.quote(path)
    if isWritten { return "written: \(target ?? ""); \(path) was not changed" }
    if !plan.isNeeded { return "nothing to repair; nothing was written" }
    return "nothing was written; to write the new store: strandline repair \(store) --apply --into NEW"
  }

  private func words(_ lsns: ClosedRange<UInt64>) -> String {
    lsns.lowerBound == lsns.upperBound ? "LSN \(lsns.lowerBound)" : "LSNs \(lsns.lowerBound) to \(lsns.upperBound)"
  }

  private var rows: [(String, String)] {
    var rows: [(String, String)] = [
      (
        "damaged",
        salvage.damages.isEmpty
          ? "nothing" : "\(Words.plural(salvage.damages.count, "place")), \(Words.bytes(salvage.bytesDamaged))"
      ),
      ("lost", lost),
      ("kept events", "\(Words.count(plan.eventsKept)) of \(Words.plural(salvage.segments, "segment"))"),
    ]
    if salvage.partialTransactions > 0 {
      rows.append(
        (
          "incomplete",
          "\(Words.plural(salvage.partialTransactions, "transaction")), of which \(Words.plural(salvage.partialEvents, "event")) "
            + "are left: their local saves and deletions are kept; the next sync fetches the server's part again"
        ))
    }
    if plan.eventsLeftBehind > 0 { rows.append(("left behind", Words.plural(plan.eventsLeftBehind, "event"))) }
    if plan.eventsUnreadable > 0 { rows.append(("unreadable", Words.plural(plan.eventsUnreadable, "event"))) }
    if salvage.eventsBehindEnds > 0 {
      rows.append(
        (
          "behind ends",
          "\(Words.plural(salvage.eventsBehindEnds, "event")) kept from behind the end of a segment, because the copies "
            + "in the next segment are lost"
        ))
    }
    rows.append(("records", Words.count(plan.records)))
    rows.append(
      ("unsent", plan.unsettled == 0 ? "0" : Words.plural(plan.unsettled, "record")))
    for zone in plan.zonesReset {
      rows.append(
        (
          "zone \(printable(zone.description))",
          "the next sync fetches it from the beginning and removes no record that the server does not send"
        ))
    }
    switch plan.beside.indexes {
    case .success(let indexes) where indexes.isEmpty: break
    case .success(let indexes):
      rows.append(
        ("indexes", "\(indexes.count), which the new store declares, and builds when it is opened for writing"))
    case .failure(let error): rows.append(("indexes", printable(error.message)))
    }
    if plan.beside.contents.count > 0 {
      let findings = plan.beside.contents.findings.count
      let lost = findings == 0 ? "" : ", of which \(findings) cannot be copied"
      rows.append(("contents", "\(Words.plural(plan.beside.contents.count, "content")) of assets\(lost)"))
    }
    for finding in plan.beside.contents.findings {
      rows.append(("content", "\(printable(finding.file)): \(printable(finding.words))"))
    }
    if plan.hasHoles, !plan.isBound {
      rows.append(
        ("account", "unknown: if it was synced, the next sync binds it to the account that it signs in with"))
    }
    for stray in salvage.strays {
      rows.append(("stray", "\(printable(stray)): not a segment of this store's log; it is not copied"))
    }
    if salvage.bytesDamaged > 0 { rows.append(("damaged bytes", "copied to \(target ?? "NEW")/quarantine")) }
    return rows
  }

  private var lost: String {
    var words = salvage.lost.prefix(8).map { lost in
      let named = zip(salvage.damages, records).first { $0.0.lsns == lost && lost.lowerBound == lost.upperBound }?.1
      return self.words(lost) + (named.map { ", whose bytes name record '\(printable($0.description))'" } ?? "")
    }
    if salvage.lost.count > words.count { words.append("\(salvage.lost.count - words.count) more ranges") }
    if salvage.isOpenEnded { words.append("any events after LSN \(salvage.lastLSN)") }
    return words.isEmpty ? "none" : words.joined(separator: ", ")
  }

  // MARK: JSON

  private func line(_ damage: SalvageDamage, _ record: RecordID?) -> [UInt8] {
    JSONValue.object([
      "finding": .string("damage"), "file": .string(damage.file),
      "offset": .integer(Int64(clamping: damage.bytes.lowerBound)),
      "end": .integer(Int64(clamping: damage.bytes.upperBound)),
      "firstLSN": damage.lsns.map { .integer(Int64(clamping: $0.lowerBound)) } ?? .null,
      "lastLSN": damage.lsns.map { .integer(Int64(clamping: $0.upperBound)) } ?? .null,
      "message": .string(damage.words), "recordName": record.map { .string($0.name) } ?? .null,
      "zoneName": record.map { .string($0.zone.name) } ?? .null,
    ]).canonicalBytes + [UInt8(ascii: "\n")]
  }

  private func summary(isWritten: Bool) -> JSONValue {
    .object([
      "result": .string(isWritten ? "written" : plan.isNeeded ? "plan" : "nothingToRepair"),
      "into": isWritten ? .string(target ?? "") : .null,
      "segments": .integer(Int64(salvage.segments)),
      "eventsKept": .integer(Int64(clamping: plan.eventsKept)),
      "eventsLeftBehind": .integer(Int64(clamping: plan.eventsLeftBehind)),
      "eventsUnreadable": .integer(Int64(clamping: plan.eventsUnreadable)),
      "eventsBehindEnds": .integer(Int64(clamping: salvage.eventsBehindEnds)),
      "incompleteTransactions": .integer(Int64(clamping: salvage.partialTransactions)),
      "lost": .array(
        salvage.lost.map {
          .array([.integer(Int64(clamping: $0.lowerBound)), .integer(Int64(clamping: $0.upperBound))])
        }),
      "isOpenEnded": .bool(salvage.isOpenEnded),
      "lastLSN": .integer(Int64(clamping: salvage.lastLSN)),
      "bytesDamaged": .integer(Int64(clamping: salvage.bytesDamaged)),
      "contents": .integer(Int64(plan.beside.contents.count)),
      "contentsLost": .array(plan.beside.contents.findings.map { .string($0.file) }),
      "zonesReset": .array(plan.zonesReset.map { .string($0.description) }),
      "records": .integer(Int64(plan.records)),
      "unsettled": .integer(Int64(plan.unsettled)),
      "indexes": (try? plan.beside.indexes.get()).map { .array($0.map { .string($0.description) }) } ?? .null,
      "isBound": .bool(plan.isBound), "strays": .array(salvage.strays.map { .string($0) }),
    ])
  }
}
