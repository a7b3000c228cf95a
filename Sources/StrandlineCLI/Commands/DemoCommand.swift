// `demo`: a server, two devices, a crash, a conflict and a deletion on one machine, with real processes. The numbers in
// its last line are counted in the stores and in the server's journal, not taken from the processes' output.

import Foundation
import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let demo = Command(
    "demo", "Sync two devices here through a crash, a conflict and a deletion.", operands: [],
    details: [
      "Starts a server and two devices as separate processes, kills one device during an upload, lets both edit and",
      "delete the same records, and counts what was lost, duplicated or resurrected. The exit code is 0 only if all",
      "three counts are 0. Takes less than a minute and needs neither a network nor an account.",
    ],
    options: [
      Option("--records", "FILE", "Records in JSON Lines. Default: packages, services or time zones of this machine."),
      Option("--keep", "DIR", "Work in DIR, a new or empty directory, and keep it."),
    ],
    examples: [
      Example("Run the demo", "strandline demo"),
      Example("Keep its stores for inspection", "strandline demo --keep /tmp/strand && ls /tmp/strand"),
    ],
    run: { arguments, console in
      try await onThread("demo") {
        let work = try WorkDirectory(console, kept: arguments["--keep"])
        let outcome = Result { try Demo(work, records: arguments["--records"]).run() }
        let closed = Result { try work.close() }
        let lines = try outcome.get()
        try closed.get()
        for line in lines { try console.print(line) }
        return .done
      }
    })
}

/// One run of the demo.
struct Demo {
  private let work: WorkDirectory
  private let console: Console
  private let recordsPath: String
  private let source: String
  private let a: String
  private let b: String
  private let serverPath: String

  private static let container = "iCloud.org.strandline.demo"
  private static let recordsMin = 5
  /// The most operations that CloudKit accepts in one request.
  private static let uploadBatch = 200

  init(_ work: WorkDirectory, records: String?) throws {
    self.work = work
    console = work.console
    a = work("A.strand")
    b = work("B.strand")
    serverPath = work("server.strand")
    if let records {
      recordsPath = records
      source = "the records of '\(records)'"
    } else {
      recordsPath = work("records.jsonl")
      source = try LocalRecords.save(at: recordsPath, work.console.fileSystem)
    }
  }

  private func say(_ line: String) throws {
    try console.print(line)
    try console.flush()
  }

  /// Runs all steps and returns the last lines of the output.
  func run() throws -> [String] {
    let given = try GivenRecords(recordsPath, console)
    guard given.records.count >= Self.recordsMin else {
      throw Failure(
        .dataDamaged,
        "the demo needs records with at least \(Self.recordsMin) different names, but \(source) have "
          + "\(given.records.count)", try: "a file with more records after --records, or no --records")
    }
    let drop = given.records.count > Self.uploadBatch ? 2 : 1
    let server = try work.startServer(serverPath, ["--drop-answer", String(drop), "--replay-page"])
    try say("server   listens on \(server.url) and writes its own journal")

    try importRecords(given)
    try killDuringUpload(server, drop: drop)
    let first = try sync(a, server)
    try expect(
      first["recognized", default: 0] > 0, "A did not recognize the records that the server had applied before the kill"
    )
    try say(
      "A        starts again: finds \(Words.plural(first["recognized", default: 0], "record")) that the server applied "
        + "before the kill and does not send them twice; uploads \(Words.count(first["uploaded", default: 0])) more")
    let fetched = try sync(b, server)
    try say("B        fetches \(Words.plural(fetched["fetchedSaves", default: 0], "record"))")
    try compare(given.records.count, "after A and B have synced")

    let scenario = Scenario(given)
    try editBoth(scenario)
    for device in [a, b, a, b] { try sync(device, server) }
    try checkConflict(scenario)
    try replay(scenario, server)
    for device in [b, a, b] { try sync(device, server) }
    let count = try compare(given.records.count - 2, "at the end")
    for device in [a, b] { try sync(device, server) }
    try compare(count, "after both have synced once more")
    try work.stop(server)
    return try verdict(given, scenario, count)
  }

  // MARK: Steps

  private func importRecords(_ given: GivenRecords) throws {
    let output = try work.succeed(["import", "--acks", a, recordsPath])
    let acks = output.split(separator: "\n").filter { $0.hasPrefix("ACK ") }
    let batches = (given.lineCount + ImportCommand.batchSizeDefault - 1) / ImportCommand.batchSizeDefault
    try expect(acks.count == batches, "import acknowledged \(acks.count) batches of \(batches)")
    try say(
      "A        imports \(source): \(Words.plural(acks.count, "batch", "batches")), each durable when acknowledged")
  }

  private func killDuringUpload(_ server: WorkDirectory.Server, drop: Int) throws {
    let (child, errorPath) = try work.spawn(syncArguments(a, server))
    // If the upload ends before the fault, the server never prints its line. The watcher then ends the server, so that
    // the read below returns.
    let isLineRead = Flag()
    let watcher = try BlockingThread.start(name: "watcher") {
      if (try? child.wait()) != nil, !isLineRead.isSet { server.child.kill(.terminate) }
    }
    let line = try server.child.output?.readLine()
    isLineRead.set()
    child.kill(.kill)
    let status = try work.finish(child)
    watcher.join()
    try expect(
      line == "dropped answer \(drop)",
      "the server should drop an answer, but it printed '\(line ?? "nothing")'; A: \(try work.removeText(errorPath))")
    try expect(status == .signalled(ChildSignal.kill.number), "A should be killed, but it ended with \(status)")
    let owed = try deviceStatus(a).unsettled
    try say(
      "A        is killed (SIGKILL) during its upload: the server has applied batch \(drop), A got no answer; "
        + "\(Words.plural(owed, "mutation")) of A \(owed == 1 ? "is" : "are") unsettled")
    try expect(owed > 0, "A had no unsettled mutations after the kill")
    try expect(!Verification(a, console.environment).isDamaged, "A is damaged after the kill")
  }

  private func editBoth(_ scenario: Scenario) throws {
    let (edited, deleted) = (scenario.edited, scenario.deleted)
    try put(a, edited, ["editedByA": scenario.byA, "remark": scenario.remarkA])
    try put(b, edited, ["editedByB": scenario.byB, "remark": scenario.remarkB])
    try say("A, B     offline: both edit '\(edited.name)', each a field of its own and both one common field")
    try work.succeed(["delete", "--zone", deleted.zone.name, a, deleted.name])
    try put(b, deleted, ["editedByB": scenario.byB])
    try say("A, B     still offline: A deletes '\(deleted.name)', which B edits")
  }

  private func checkConflict(_ scenario: Scenario) throws {
    let onA = try record(a, scenario.edited)
    let onB = try record(b, scenario.edited)
    try expect(onA != nil && onA?.fields == onB?.fields, "A and B do not agree on '\(scenario.edited.name)'")
    let remark = onA?.fields["remark"]
    try expect(
      onA?.fields["editedByA"] == .string(scenario.byA) && onA?.fields["editedByB"] == .string(scenario.byB)
        && (remark == .string(scenario.remarkA) || remark == .string(scenario.remarkB)),
      "an edit of '\(scenario.edited.name)' is lost")
    try say(
      "A, B     sync and agree on '\(scenario.edited.name)': it has both devices' fields, and the common field has the "
        + "later value (\(remark == .string(scenario.remarkB) ? "B's" : "A's"))")
    try expect(
      try record(a, scenario.deleted) == nil && record(b, scenario.deleted) == nil,
      "'\(scenario.deleted.name)' exists again")
    let outcomes = try DeviceReading(b, console.environment).outcomes[scenario.deleted, default: []]
    try expect(outcomes.contains(.deletedOnServer), "B's edit of '\(scenario.deleted.name)' has no outcome")
    try say("B        '\(scenario.deleted.name)' stays deleted; B's log has B's edit of it and the outcome")
  }

  /// Checks that a stale page brings nothing back: at the next change of the zone, the server sends an old page with the
  /// record to a device that has seen its deletion.
  private func replay(_ scenario: Scenario, _ server: WorkDirectory.Server) throws {
    let id = scenario.deletedLater
    try work.succeed(["delete", "--zone", id.zone.name, a, id.name])
    try sync(a, server)
    try sync(a, server)
    try put(b, scenario.edited, ["remark": scenario.remarkLater])
    try sync(b, server)
    try sync(a, server)
    let blocked = try DeviceReading(a, console.environment).blocked
    try expect(blocked.contains(id), "the server sent no stale page, or A did not block its version of '\(id.name)'")
    try expect(try record(a, id) == nil, "a stale page has restored '\(id.name)'")
    try say(
      "server   sends an old page that still has '\(id.name)': A, which has deleted it, blocks "
        + "\(Words.plural(blocked.count, "stale version")), and the server confirms the deletion")
  }

  // MARK: The end

  private func verdict(_ given: GivenRecords, _ scenario: Scenario, _ count: Int) throws -> [String] {
    for (name, device) in [("A", a), ("B", b)] {
      let verification = try Verification(device, console.environment)
      try expect(verification.code == .done, "\(name) does not verify")
      let dump = try work.succeed(["log-dump", "--record", scenario.edited.name, device])
      try say("\(name)        verify: \(verification.summary)")
      try say("         log-dump --record \(scenario.edited.name):")
      for line in dump.split(separator: "\n").dropFirst() { try say("           " + line.prefix(110)) }
    }
    try expect(try Verification(serverPath, console.environment).code == .done, "the server's journal does not verify")

    let readings = try [a, b].map { try DeviceReading($0, console.environment) }
    let journal = try JournalCounts(serverPath, console.environment)
    let lost =
      try [a, b].reduce(0) { try $0 + given.missing(in: $1, scenario, console) }
      + readings.reduce(0) { $0 + $1.openCount }
    let resurrected = readings.reduce(0) { $0 + $1.resurrected.count } + max(0, journal.living - count)
    let line =
      "demo: converged, \(count) records on both devices, \(lost) lost, \(journal.duplicated.count) duplicated, "
      + "\(resurrected) resurrected"
    guard lost == 0, journal.duplicated.isEmpty, resurrected == 0 else { throw Failure(.recoverable, line) }
    return [
      "",
      "What next: strandline demo --keep DIR keeps the stores; then",
      "  strandline log-dump DIR/A.strand          the events of A",
      "  strandline log-dump DIR/server.strand     the changes that the server applied",
      "  strandline crash-test --seconds 30        thousands of crashes instead of one",
      line,
    ]
  }

  /// Checks that the exports of both devices are equal byte for byte and have `count` lines, and that nothing is
  /// unsettled. Returns the number of records.
  @discardableResult
  private func compare(_ count: Int, _ when: String) throws -> Int {
    var exports: [[UInt8]] = []
    var lines = 0
    for device in [a, b] {
      var bytes: [UInt8] = []
      lines = 0
      try Command.export(device, zone: nil, console) {
        bytes += $0
        lines += $1
      }
      exports.append(bytes)
      let owed = try deviceStatus(device).unsettled
      try expect(owed == 0, "\(owed) mutations are unsettled \(when)")
    }
    try expect(exports[0] == exports[1], "the devices differ \(when)")
    try expect(lines == count, "the devices have \(lines) records \(when), not \(count)")
    try say("A, B     have the same \(Words.plural(lines, "record")), byte for byte, \(when); nothing is unsettled")
    return lines
  }

  // MARK: Helpers

  private func expect(_ condition: @autoclosure () throws -> Bool, _ words: @autoclosure () throws -> String) throws {
    guard try condition() else {
      throw Failure(.recoverable, "demo: \(try words())", try: "strandline demo --keep DIR")
    }
  }

  private func syncArguments(_ device: String, _ server: WorkDirectory.Server) -> [String] {
    ["sync", "--json", "--url", server.url, "--container", Self.container, device]
  }

  @discardableResult
  private func sync(_ device: String, _ server: WorkDirectory.Server) throws -> [String: Int] {
    let output = try work.succeed(syncArguments(device, server))
    return try JSONDecoder().decode([String: Int].self, from: Data(output.utf8))
  }

  private func put(_ device: String, _ id: RecordID, _ fields: [String: String]) throws {
    struct Line: Encodable {
      var recordName: String
      var zoneName: String
      var fields: [String: String]
    }
    let line = Line(recordName: id.name, zoneName: id.zone.name, fields: fields)
    try work.succeed(["put", device, String(decoding: JSONEncoder().encode(line), as: UTF8.self)])
  }

  private func record(_ device: String, _ id: RecordID) throws -> Record? {
    try Command.readOnly(device, console).record(id)
  }

  private func deviceStatus(_ device: String) throws -> StoreStatus { try Command.readOnly(device, console).status() }
}

/// The records that the two devices edit and delete, and the values that they write.
struct Scenario {
  let deleted: RecordID
  let deletedLater: RecordID
  let edited: RecordID
  let byA = "on A, offline"
  let byB = "on B, offline"
  let remarkA = "A was here"
  let remarkB = "B was here"
  let remarkLater = "B was here again"

  /// The first records: they are on the first page of changes, which the server replays.
  init(_ given: GivenRecords) {
    deleted = given.order[0]
    deletedLater = given.order[1]
    edited = given.order[2]
  }
}

/// The records of the input, read independently of any store: what the devices must hold at the end.
struct GivenRecords {
  private(set) var records: [RecordID: Record] = [:]
  /// The records' IDs in the order of their first lines.
  private(set) var order: [RecordID] = []
  private(set) var lineCount = 0

  init(_ path: String, _ console: Console) throws {
    try LineReader.forEachRecord(of: path, console) { record in
      if records.updateValue(record, forKey: record.id) == nil { order.append(record.id) }
      lineCount += 1
    }
  }

  /// How many of the records a device does not hold as it must at the end: they are absent or differ from the input.
  func missing(in device: String, _ scenario: Scenario, _ console: Console) throws -> Int {
    let store = try Command.readOnly(device, console)
    var count = 0
    for (id, given) in records where id != scenario.deleted && id != scenario.deletedLater {
      guard var found = try store.record(id) else {
        count += 1
        continue
      }
      if id == scenario.edited {
        for name in ["editedByA", "editedByB", "remark"] { found.fields[name] = given.fields[name] }
      }
      if found.line(zone: true) != given.line(zone: true) { count += 1 }
    }
    return count
  }
}
