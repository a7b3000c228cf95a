// The counters of `demo` and `crash-test`: each test writes a log in which a record was lost, duplicated or resurrected
// and checks that the counters find it. A proof whose oracle cannot fail proves nothing.

import Strandline
import StrandlineCLI
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ProofTests {
  private let machine = Machine()
  private let writer: WriterID = 7
  private let id = RecordID("n")
  private let birth = Birth(time: HybridTime(milliseconds: 1_000), writer: 7)

  // MARK: The server's journal

  private func saved(_ lsn: UInt64) -> JournalEvent {
    var version = Version(type: "Note")
    version.stamp.births = [birth]
    version.stamp.seen[writer] = Seen(lsn: LSN(lsn), tenure: 1, time: HybridTime(milliseconds: 1_000 + Int64(lsn)))
    return .recordSaved(
      JournalRecord(
        zone: 1, name: "n", type: "Note", parent: nil, tag: "t\(lsn)", created: ServerTimestamp(milliseconds: 1),
        modified: ServerTimestamp(milliseconds: 2),
        cause: JournalCause(requestUUID: Array(repeating: 0, count: 16), operation: 0, isCascade: false),
        fields: [Names.stampField: .bytes(StampCodec.encode(version))]))
  }

  private var deleted: JournalEvent {
    .recordDeleted(
      zone: 1, name: "n",
      JournalCause(requestUUID: Array(repeating: 0, count: 16), operation: 0, isCascade: false))
  }

  private func counts(_ events: [JournalEvent]) throws -> JournalCounts {
    let log = try Log.open(at: "/srv", role: .server, environment: machine.environment) { _ in }
    var transaction = LogTransaction()
    for event in events { transaction.add(schema: JournalEvent.schema, body: event.encoded()) }
    try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
    try log.close()
    return try JournalCounts("/srv", machine.environment)
  }

  @Test func `mutations that follow each other are no duplicates`() throws {
    let counts = try counts([saved(1), saved(2), deleted, saved(3)])
    #expect(counts.applied == 4)
    #expect(counts.duplicated.isEmpty)
    #expect(counts.living == 1)
  }

  @Test func `the same mutation twice is a duplicate, also across a deletion, and so is a deletion of nothing`() throws
  {
    #expect(
      try counts([saved(1), saved(1), saved(2), deleted, saved(2), deleted, deleted]).duplicated.map(\.lsn) == [
        2, 5, 7,
      ])
  }

  // MARK: A device's log

  private func save() -> Event {
    var version = Version(type: "Note", fields: ["title": .string("x")])
    version.stamp.births = [birth]
    return .saved(
      Saved(
        id: id, type: version.type, births: version.stamp.births, base: .zero, time: HybridTime(milliseconds: 1_000),
        editCount: 1, tenure: 1, isCreation: true, content: EncodedContent(version, dirty: ["title": .zero])))
  }

  private func fetched() -> Event {
    var version = Version(type: "Note", fields: ["title": .string("x")])
    version.stamp.births = [birth]
    return .fetchedSave(
      FetchedSave(id: id, version: version, system: SystemFields(changeTag: "t"), source: .feed, isStamped: true))
  }

  private func reading(_ events: [Event]) throws -> DeviceReading {
    let log = try Log.open(at: "/A", role: .store, environment: machine.environment) { _ in }
    try log.waitUntilDurableBlocking(log.append(EventCodec.transaction(events)).upperBound)
    try log.close()
    return try DeviceReading("/A", machine.environment)
  }

  @Test func `a mutation without an outcome is open, one with an outcome is not`() throws {
    let reading = try reading([save(), save(), .settled(Settled(id: id, lsn: LSN(1), outcome: .saved, changeTag: "t"))])
    #expect(reading.mutations == 2)
    #expect(reading.openCount == 1)
    #expect(reading.outcomes[id] == [.saved])
    #expect(reading.resurrected.isEmpty)
  }

  @Test func `a record with a deleted birth that exists again is resurrected`() throws {
    let reading = try reading([
      fetched(), .fetchedDelete(FetchedDelete(id: id, births: [birth], reason: .feed)), fetched(),
    ])
    #expect(reading.resurrected == [id])
  }

  // MARK: The simulated campaign

  @Test func `one history by its letters, and one by its seed`() async {
    let word = await machine.run("crash-test", "--seed", "0x5", "--history", "st")
    #expect(word.code == .done)
    #expect(word.out.hasPrefix("seed 5\ncrash-test: nothing lost in 1 histories, "))
    let drawn = await machine.run("crash-test", "--seed", "5", "--history", "random")
    #expect(drawn.code == .done)
    #expect(await machine.run("crash-test", "--seed", "5", "--history", "random") == drawn)
    let wrong = await machine.run("crash-test", "--history", "xyz")
    #expect(wrong.code == .usage)
    #expect(await machine.run("crash-test", "--seed", "5", "--history", "legal").code == .done)
    #expect(await machine.run("crash-test", "--seed", "5", "--history", "random:9:2", "--ordered").code == .done)
  }

  @Test func `one case of a replaced folder, by its words`() async {
    for one in ["log/append/moved/3/due", "store/flush/replacedByAnother/2/early"] {
      let screen = await machine.run("crash-test", "--seed", "1", "--folder", one)
      #expect(screen.code == .done, "\(screen.err)")
      #expect(screen.out.hasSuffix("nothing foreign changed, in \(one)\n"))
    }
    for none in [
      "log/append/moved/3", "log/append/eaten/3/due", "log/append/moved/0/due", "store/fly/moved/1/due",
      "store/flush/moved/9999/due",
    ] {
      #expect(await machine.run("crash-test", "--folder", none).code == .usage, "\(none)")
    }
  }

  @Test func `the commands that the pages show repeat one crash`() async throws {
    let start = "$ swift run -c release strandline crash-test "
    let lines = try Page.text(".github/CONTRIBUTING.md").split(separator: "\n").filter { $0.hasPrefix(start) }
    #expect(lines.count == 2)
    // The other one runs for a minute.
    let replays = lines.filter { $0.contains("--level") }
    #expect(!replays.isEmpty)
    let readme = try Page.text("README.md").matches(of: /strandline crash-test ([^`]*--level[^`]*)`/)
    #expect(readme.count == 1)
    for line in replays.map({ String($0.dropFirst(start.count)) }) + readme.map({ String($0.output.1) }) {
      let words = line.split(separator: " ").map(String.init)
      let screen = await machine.run(["crash-test"] + words, input: [])
      #expect(screen.code == .done, "\(line): \(screen.err)")
    }
  }

  @Test func `records that cannot be used are named before anything is made`() async throws {
    machine.set("TMPDIR", "/work")
    try machine.disk.makeDirectory("/work")
    try machine.file("/bad", note("a", "1") + "{\n")
    try machine.file("/empty", "\n")
    try machine.file("/few", (0..<9).map { note("n", "\($0)") }.joined())
    for (words, code, message) in [
      (["crash-test", "--real", "--records", "/none"], ExitCode.noSuchStore, "there is no file '/none'"),
      (["crash-test", "--real", "--records", "/bad"], .dataDamaged, "'/bad', line 2, column 2: not valid JSON"),
      (["crash-test", "--real", "--records", "/empty"], .dataDamaged, "'/empty' holds no records"),
      (
        ["demo", "--records", "/few"], .dataDamaged,
        "at least 5 different names, but the records of '/few' have 1\ntry: "
      ), (["demo", "--records", "/bad"], .dataDamaged, "'/bad', line 2, column 2: not valid JSON"),
    ] {
      let screen = await machine.run(words, input: [])
      #expect(screen.code == code && screen.err.contains(message), "\(words): \(screen)")
      #expect(!screen.err.contains("left in") && !screen.err.contains("repeat it"), "\(words): \(screen)")
      #expect(try machine.disk.list("/work") == [], "\(words)")
    }
  }

  @Test func `a working directory that cannot be made is 73`() async throws {
    #expect(await machine.run("demo", "--keep", "/no/such").code == .cannotCreate)
    try machine.disk.makeDirectory("/full")
    try machine.file("/full/letter", "dear")
    #expect(await machine.run("demo", "--keep", "/full").code == .cannotCreate)
  }

  @Test func `one crash of the long run by its numbers, and one damage`() async {
    let point = await machine.run(
      "crash-test", "--seed", "5", "--level", "1", "--operation", "9", "--call", "1", "--image", "2")
    #expect(point.code == .done)
    #expect(point.out.hasSuffix("nothing lost at --level 1 --operation 9 --call 1 --image 2\n"))
    let none = await machine.run("crash-test", "--seed", "5", "--level", "1", "--operation", "9", "--call", "99")
    #expect(none.code == .usage)
    let rot = await machine.run("crash-test", "--seed", "5", "--rot", "3")
    #expect(rot.code == .done && rot.out.contains("1 damages: "))
    #expect(await machine.run("crash-test", "--seed", "5", "--rot", "999999999").code == .usage)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct SimulateTests {
  @Test func `a world is told step by step, and its seed repeats it`() async throws {
    let words = ["simulate", "--seed", "7", "--devices", "2", "--faults", "power,app"]
    let told = await Machine().run(words, input: [])
    #expect(told.code == .done && told.err == "")
    let lines = told.out.split(separator: "\n")
    #expect(lines[0] == "seed 7" && lines.count > 50)
    #expect(lines.last?.hasPrefix("simulate: in 1 world, ") == true)
    #expect(lines.last?.contains(" device-days, every promise was kept; ") == true)
    let again = await Machine().run(words, input: [])
    // The last line has the time that it took.
    #expect(again.out.split(separator: "\n").dropLast() == lines.dropLast())
  }

  @Test func `a trace has the requests of each world, in the order of the seeds`() async throws {
    func trace(_ words: String..., at path: String = "/trace") async throws -> (screen: Screen, lines: [String]) {
      let machine = Machine()
      let screen = await machine.run(["simulate"] + words + ["--trace", path], input: [])
      #expect(machine.disk.peek("/trace.tmp") == nil)
      let text = machine.disk.peek(path).map { String(decoding: $0, as: UTF8.self) } ?? ""
      #expect(text.hasSuffix("\n"))
      return (screen, text.split(separator: "\n").map(String.init))
    }
    let (screen, lines) = try await trace("--seed", "7", "--runs", "3")
    #expect(screen.code == .done && screen.err == "")
    let heads = lines.filter { $0.hasPrefix("world ") }
    #expect(
      heads == [
        "world 7: 5 devices, faults all", "world 8: 2 devices, faults all", "world 9: 3 devices, faults all",
      ])
    #expect(lines.contains { $0.wholeMatch(of: /\d+ d\d modify .+: .+ -> .+/) != nil })
    #expect(lines.contains { $0.wholeMatch(of: /rest d\d changed zones from a token, limit \d+ -> .+/) != nil })
    #expect(lines.filter { $0.wholeMatch(of: /end the server has \d+ records, digest [0-9a-f]{16}/) != nil }.count == 3)
    #expect(try await trace("--seed", "7", "--runs", "3").lines == lines)
    // One world alone is the same lines.
    let alone = try await trace("--seed", "8").lines
    let start = try #require(lines.firstIndex(of: heads[1]))
    #expect(Array(lines[start..<(start + alone.count)]) == alone)
  }

  @Test func `a trace that cannot be written is an error`() async {
    let screen = await Machine().run("simulate", "--seed", "7", "--runs", "3", "--trace", "/nowhere/trace")
    #expect(screen.code == .noSuchStore || screen.code == .cannotCreate, "\(screen)")
    #expect(screen.err.contains("/nowhere"), "\(screen.err)")
  }

  @Test func `one line of JSON says how often each case occurred`() async throws {
    let screen = await Machine().run("simulate", "--seed", "7", "--runs", "2", "--faults", "none", "--json")
    #expect(screen.code == .done && screen.err == "")
    let keys = try JSONPage.check(screen.out, of: "simulate")
    #expect(keys.count == 11)
    #expect(screen.out.contains("\"worlds\":2") && screen.out.contains("\"broken\":null"))
    #expect(screen.out.contains("\"history\":[]"))
  }
}
