// `demo`: the whole story on one machine, with real processes and a real kill, and every number in its last line
// counted from what they left behind.

import Foundation
import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let demo = Command(
    "demo", "The whole story on this machine: a crash, a conflict, a deletion.", operands: [],
    details: [
      "Starts a server and two devices as processes of their own, kills one in the middle of an upload, lets both",
      "edit and delete the same records, and counts what was lost, duplicated or resurrected. Exit code 0 only if",
      "that is nothing. Under a minute; needs no network and no account.",
    ],
    options: [
      Option("--records", "FILE", "JSON Lines to work on; without it, something that this machine has."),
      Option("--keep", "DIR", "Work in DIR, which is empty or new, and leave it."),
    ],
    examples: [
      Example("Watch it", "strandline demo"),
      Example("And look around afterwards", "strandline demo --keep /tmp/strand && ls /tmp/strand"),
    ],
    run: { arguments, console in
      try await onThread("demo") {
        let place = try Workplace(console, kept: arguments["--keep"])
        let outcome = Result { try Demo(place, records: arguments["--records"]).run() }
        let closed = Result { try place.close() }
        let lines = try outcome.get()
        try closed.get()
        for line in lines { try console.print(line) }
        return .done
      }
    })
}

/// One run of the demo.
struct Demo {
  private let place: Workplace
  private let console: Console
  private let recordsPath: String
  private let source: String
  private let a: String
  private let b: String
  private let serverPath: String

  private static let container = "iCloud.org.strandline.demo"
  private static let recordsMin = 5
  /// What CloudKit takes in one request.
  private static let uploadBatch = 200

  init(_ place: Workplace, records: String?) throws {
    self.place = place
    console = place.console
    a = place("A.strand")
    b = place("B.strand")
    serverPath = place("server.strand")
    if let records {
      recordsPath = records
      source = "the records of '\(records)'"
    } else {
      recordsPath = place("records.jsonl")
      source = try LocalRecords.save(at: recordsPath, place.console.fileSystem)
    }
  }

  private func say(_ line: String) throws {
    try console.print(line)
    try console.flush()
  }

  /// Runs it all; returns the lines to end with.
  func run() throws -> [String] {
    let given = try GivenRecords(recordsPath, console)
    guard given.records.count >= Self.recordsMin else {
      throw Failure(.recoverable, "the demo needs at least \(Self.recordsMin) records, and got \(given.records.count)")
    }
    let drop = given.records.count > Self.uploadBatch ? 2 : 1
    let server = try place.startServer(serverPath, ["--drop-answer", String(drop), "--replay-page"])
    try say("server   listens on \(server.url), and keeps its own journal")

    try importRecords(given)
    try killDuringUpload(server, drop: drop)
    let first = try sync(a, server)
    try expect(first["recognized", default: 0] > 0, "A did not recognize what had arrived before the kill")
    try say(
      "A        starts again: \(Words.count(first["recognized", default: 0])) had arrived before the kill and are "
        + "recognized, not sent twice; \(Words.count(first["uploaded", default: 0])) more uploaded")
    let fetched = try sync(b, server)
    try say("B        fetches \(Words.plural(fetched["fetchedSaves", default: 0], "record"))")
    try compare(given.records.count, "after A and B have synced")

    let story = Story(given)
    try editBoth(story)
    for device in [a, b, a, b] { try sync(device, server) }
    try tellConflict(story)
    try replay(story, server)
    for device in [b, a, b] { try sync(device, server) }
    let count = try compare(given.records.count - 2, "at the end")
    for device in [a, b] { try sync(device, server) }
    try compare(count, "after both have synced once more")
    try place.stop(server)
    return try verdict(given, story, count)
  }

  // MARK: Steps

  private func importRecords(_ given: GivenRecords) throws {
    let output = try place.succeed(["import", "--acks", a, recordsPath])
    let acks = output.split(separator: "\n").filter { $0.hasPrefix("ACK ") }
    let batches = (given.lineCount + ImportCommand.batchSizeDefault - 1) / ImportCommand.batchSizeDefault
    try expect(acks.count == batches, "import acknowledged \(acks.count) batches of \(batches)")
    try say(
      "A        imports \(source): \(Words.plural(acks.count, "batch", "batches")) acknowledged, each on the disk")
  }

  private func killDuringUpload(_ server: Workplace.Server, drop: Int) throws {
    let (child, errorPath) = try place.spawn(syncArguments(a, server))
    // If the upload ends by itself, the server has no reason ever to say its line: then it is ended too.
    let hasStruck = Flag()
    let watcher = try BlockingThread.start(name: "watcher") {
      if (try? child.wait()) != nil, !hasStruck.isSet { server.child.kill(.terminate) }
    }
    let line = try server.child.output?.readLine()
    hasStruck.set()
    child.kill(.kill)
    let status = try place.finish(child)
    watcher.join()
    try expect(
      line == "dropped answer \(drop)",
      "the server was to swallow an answer, and said '\(line ?? "nothing")'; A: \(try place.takeText(errorPath))")
    try expect(status == .signalled(ChildSignal.kill.number), "A was to be killed, and ended with \(status)")
    let owed = try deviceStatus(a).unsettled
    try say(
      "A        is killed (SIGKILL) in the middle of its upload: the server has applied batch \(drop), A has not heard;"
        + " \(Words.count(owed)) of A's mutations are unsettled")
    try expect(owed > 0, "A had nothing left to do after the kill")
    try expect(!Verification(a, console.environment).isDamaged, "A is damaged after the kill")
  }

  private func editBoth(_ story: Story) throws {
    let (edited, deleted) = (story.edited, story.deleted)
    try put(a, edited, ["editedByA": story.byA, "remark": story.remarkA])
    try put(b, edited, ["editedByB": story.byB, "remark": story.remarkB])
    try say("A, B     both offline: both edit '\(edited.name)', one field each, and one field both")
    try place.succeed(["delete", "--zone", deleted.zone.name, a, deleted.name])
    try put(b, deleted, ["editedByB": story.byB])
    try say("A, B     still offline: A deletes '\(deleted.name)', which B edits")
  }

  private func tellConflict(_ story: Story) throws {
    let onA = try record(a, story.edited)
    let onB = try record(b, story.edited)
    try expect(onA != nil && onA?.fields == onB?.fields, "A and B do not agree on '\(story.edited.name)'")
    let remark = onA?.fields["remark"]
    try expect(
      onA?.fields["editedByA"] == .string(story.byA) && onA?.fields["editedByB"] == .string(story.byB)
        && (remark == .string(story.remarkA) || remark == .string(story.remarkB)),
      "an edit of '\(story.edited.name)' is lost")
    try say(
      "A, B     sync, and agree on '\(story.edited.name)': both fields kept; of the one that both wrote, the later "
        + "(\(remark == .string(story.remarkB) ? "B's" : "A's")) stands on both")
    try expect(
      try record(a, story.deleted) == nil && record(b, story.deleted) == nil, "'\(story.deleted.name)' came back")
    let outcomes = try DeviceReading(b, console.environment).outcomes[story.deleted, default: []]
    try expect(outcomes.contains(.deletedOnServer), "B's edit of '\(story.deleted.name)' has no outcome")
    try say("B        '\(story.deleted.name)' stays deleted; B's edit of it is in B's log, with its outcome")
  }

  /// The server shows the old page to somebody who has seen the deletion, at the next change of the zone.
  private func replay(_ story: Story, _ server: Workplace.Server) throws {
    let id = story.deletedLater
    try place.succeed(["delete", "--zone", id.zone.name, a, id.name])
    try sync(a, server)
    try sync(a, server)
    try put(b, story.edited, ["remark": story.remarkLater])
    try sync(b, server)
    try sync(a, server)
    let blocked = try DeviceReading(a, console.environment).blocked
    try expect(blocked.contains(id), "the stale page did not come, or was not blocked")
    try expect(try record(a, id) == nil, "'\(id.name)' came back from a stale page")
    try say(
      "server   replays an old page, on which '\(id.name)' still lives: A, which has deleted it, blocks "
        + "\(Words.plural(blocked.count, "stale version")) and asks the server, which agrees")
  }

  // MARK: The end

  private func verdict(_ given: GivenRecords, _ story: Story, _ count: Int) throws -> [String] {
    for (name, device) in [("A", a), ("B", b)] {
      let verification = try Verification(device, console.environment)
      try expect(verification.code == .done, "\(name) does not verify")
      let dump = try place.succeed(["log-dump", "--record", story.edited.name, device])
      try say("\(name)        verify: \(verification.summary)")
      try say("         log-dump --record \(story.edited.name):")
      for line in dump.split(separator: "\n").dropFirst() { try say("           " + line.prefix(110)) }
    }
    try expect(try Verification(serverPath, console.environment).code == .done, "the server's journal does not verify")

    let readings = try [a, b].map { try DeviceReading($0, console.environment) }
    let journal = try JournalCounts(serverPath, console.environment)
    let lost =
      try [a, b].reduce(0) { try $0 + given.missing(in: $1, story, console) }
      + readings.reduce(0) { $0 + $1.openCount }
    let resurrected = readings.reduce(0) { $0 + $1.resurrected.count } + max(0, journal.living - count)
    let line =
      "demo: converged, \(count) records on both devices, \(lost) lost, \(journal.duplicated.count) duplicated, "
      + "\(resurrected) resurrected"
    guard lost == 0, journal.duplicated.isEmpty, resurrected == 0 else { throw Failure(.recoverable, line) }
    return [
      "",
      "What next: strandline demo --keep DIR leaves everything to look at; then",
      "  strandline log-dump DIR/A.strand          what happened on A",
      "  strandline log-dump DIR/server.strand     what the server applied",
      "  strandline crash-test --seconds 30        a thousand crashes instead of one",
      line,
    ]
  }

  /// The exports of both are equal byte for byte, have so many lines, and nothing is unsettled. Returns the number.
  @discardableResult
  private func compare(_ count: Int, _ when: String) throws -> Int {
    var exports: [[UInt8]] = []
    var lines = 0
    for device in [a, b] {
      var bytes: [UInt8] = []
      lines = 0
      try Command.export(device, zone: nil, console) {
        bytes += $0
        lines += 1
      }
      exports.append(bytes)
      let owed = try deviceStatus(device).unsettled
      try expect(owed == 0, "\(owed) mutations are unsettled \(when)")
    }
    try expect(exports[0] == exports[1], "the devices differ \(when)")
    try expect(lines == count, "there are \(lines) records \(when), not \(count)")
    try say("A, B     hold the same \(Words.plural(lines, "record")), byte for byte, \(when); nothing is unsettled")
    return lines
  }

  // MARK: Small parts

  private func expect(_ condition: @autoclosure () throws -> Bool, _ words: @autoclosure () throws -> String) throws {
    guard try condition() else {
      throw Failure(.recoverable, "demo: \(try words())", try: "strandline demo --keep DIR")
    }
  }

  private func syncArguments(_ device: String, _ server: Workplace.Server) -> [String] {
    ["sync", "--json", "--url", server.url, "--container", Self.container, device]
  }

  @discardableResult
  private func sync(_ device: String, _ server: Workplace.Server) throws -> [String: Int] {
    let output = try place.succeed(syncArguments(device, server))
    return try JSONDecoder().decode([String: Int].self, from: Data(output.utf8))
  }

  private func put(_ device: String, _ id: RecordID, _ fields: [String: String]) throws {
    struct Line: Encodable {
      var recordName: String
      var zoneName: String
      var fields: [String: String]
    }
    let line = Line(recordName: id.name, zoneName: id.zone.name, fields: fields)
    try place.succeed(["put", device, String(decoding: JSONEncoder().encode(line), as: UTF8.self)])
  }

  private func record(_ device: String, _ id: RecordID) throws -> Record? {
    try Command.readOnly(device, console).record(id)
  }

  private func deviceStatus(_ device: String) throws -> StoreStatus { try Command.readOnly(device, console).status() }
}

/// What the two devices do to which records.
struct Story {
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

/// The records of the input, read here a second time, apart from any store: what has to be there at the end.
struct GivenRecords {
  private(set) var records: [RecordID: Record] = [:]
  /// In the order of first mention.
  private(set) var order: [RecordID] = []
  private(set) var lineCount = 0

  init(_ path: String, _ console: Console) throws {
    var (lines, _) = try LineReader.opening(path, console)
    while let line = try lines.next() {
      guard case .bytes(let bytes) = line, !bytes.isEmpty else { continue }
      do {
        let record = try RecordLine(json: bytes).record(in: ZoneID.main.name)
        if records.updateValue(record, forKey: record.id) == nil { order.append(record.id) }
        lineCount += 1
      } catch let bad as BadLine {
        throw Failure(.dataDamaged, "'\(path)', line \(lines.number): \(bad.words)")
      }
    }
  }

  /// How many of the records are not in a device as they must be after the story: absent, or other than given.
  func missing(in device: String, _ story: Story, _ console: Console) throws -> Int {
    let store = try Command.readOnly(device, console)
    var count = 0
    for (id, given) in records where id != story.deleted && id != story.deletedLater {
      guard var found = try store.record(id) else {
        count += 1
        continue
      }
      if id == story.edited {
        for name in ["editedByA", "editedByB", "remark"] { found.fields[name] = given.fields[name] }
      }
      if found.line(zone: true) != given.line(zone: true) { count += 1 }
    }
    return count
  }
}
