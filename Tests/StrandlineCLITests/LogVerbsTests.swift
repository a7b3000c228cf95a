// `log-dump`, `verify` and `compact`: whole screens, ranges, --follow, and the messages for a torn tail and for damage.

import Strandline
import StrandlineCLI
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct LogVerbsTests {
  private func machine() async -> Machine {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":5}}"#)
    _ = await machine.run("delete", "/A", "b")
    return machine
  }

  private func lsns(_ machine: Machine, _ words: String...) async -> [Int] {
    await machine.run(["log-dump"] + words + ["/A"], input: []).out.split(separator: "\n").dropFirst()
      .compactMap { $0.split(separator: " ").first.flatMap { Int($0) } }
  }

  @Test func `one line an event`() async throws {
    let screen = await machine().run("log-dump", "/A")
    #expect(screen.code == .done)
    let lines = screen.out.split(separator: "\n").map(String.init)
    #expect(lines.count == 8)
    #expect(lines[0] == "LSN      kind           record                   detail")
    #expect(lines[1].hasPrefix("1        opened         -                        writer "))
    #expect(
      lines[2].hasPrefix(
        "2        saved          a                        type Note, creation yes, wrote title, base 0, "
          + "time 2026-01-01T00:00:00Z, births "))
    #expect(lines[5].hasPrefix("5        saved          a                        type Note, wrote n, base 0, "))
    #expect(lines[7].hasPrefix("7        deleted        b                        base 0, time "))
  }

  @Test func `from is included and to is not; kinds and records are filters`() async {
    let machine = await machine()
    #expect(await lsns(machine, "--from", "2", "--to", "4") == [2, 3])
    #expect(await lsns(machine, "--from", "7") == [7])
    #expect(await lsns(machine, "--to", "0") == [])
    #expect(await lsns(machine, "--kind", "saved,deleted") == [2, 3, 5, 7])
    #expect(await lsns(machine, "--record", "b") == [3, 7])
    #expect(await lsns(machine, "--record", "b", "--kind", "deleted") == [7])
    #expect(await lsns(machine, "--kind", "unknown") == [])
  }

  @Test func `JSON has one object an event with sorted keys; hex adds place and bytes`() async {
    let machine = await machine()
    let line = await machine.run("log-dump", "--json", "--from", "7", "/A").out
    #expect(
      line.hasPrefix(
        #"{"detail":{"base":0,"time":"2026-01-01T00:00:00Z"},"kind":"deleted","lsn":7,"recordName":"b","zoneName":"Main"}"#
      ))
    let hex = await machine.run("log-dump", "--json", "--hex", "--from", "7", "/A").out
    #expect(hex.contains(#""hex":"04000100"#) && hex.contains(#""segment":"3""#))
    let text = await machine.run("log-dump", "--hex", "--from", "7", "/A").out
    #expect(text.contains("  segment 3, offset ") && text.contains("    000000  04 00 01 00"))
  }

  @Test func `a kind that the log cannot have is a mistake, and the error lists the kinds`() async throws {
    let machine = await machine()
    for (kind, words) in [
      ("frob", "unknown kind 'frob'. The kinds of a store are opened, "),
      ("savd", "unknown kind 'savd'; did you mean 'saved'? The kinds of a store are opened, "),
      ("", "unknown kind ''. The kinds of a store are opened, "),
      ("saved,", "unknown kind ''. The kinds of a store are opened, "),
      ("recordSaved", "'recordSaved' is a kind of a server's journal, and '/A' is a store; its kinds are opened, "),
    ] {
      let screen = await machine.run("log-dump", "--kind", kind, "/A")
      #expect(screen.code == .usage && screen.out == "" && screen.err.hasPrefix("error: \(words)"), "\(screen)")
    }
    try Log.open(at: "/srv", role: .server, environment: machine.environment) { _ in }.close()
    let journal = await machine.run("log-dump", "--kind", "saved", "/srv")
    #expect(
      journal.code == .usage
        && journal.err.hasPrefix("error: 'saved' is a kind of a store, and '/srv' is a server's journal; "),
      "\(journal)")
    #expect(await machine.run("log-dump", "--kind", "recordSaved,unknown", "/srv").code == .done)
  }

  @Test func `following ends with Ctrl-C and exit code 0`() async {
    let machine = await machine()
    machine.isImpatient.withLock { $0 = true }
    let screen = await machine.run("log-dump", "--follow", "--kind", "deleted", "/A")
    #expect(screen.code == .done)
    #expect(screen.out.split(separator: "\n").count == 2)
  }

  @Test func `following up to an LSN that has passed ends at once`() async {
    let machine = await machine()
    for to in ["0", "1", "8"] {
      let screen = await machine.run("log-dump", "--follow", "--to", to, "/A")
      #expect(screen.code == .done && screen.err == "", "--to \(to)")
    }
  }

  @Test func `following shows what another writer writes meanwhile, once`() async throws {
    let machine = await machine()
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    // `log-dump --follow` polls until it has shown event 9, the new record.
    async let following = machine.run("log-dump", "--follow", "--from", "8", "--to", "10", "/A")
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("late"))) }
    let screen = await following
    try store.closeBlocking()
    #expect(screen.code == .done)
    #expect(
      screen.out.split(separator: "\n").dropFirst().map { $0.prefix(16) } == ["8        opened ", "9        saved  "])
  }

  // MARK: verify

  @Test func `a sound store`() async {
    let screen = await machine().run("verify", "/A")
    #expect(screen.code == .done)
    #expect(screen.out.hasPrefix("sound; 3 segments, "))
    #expect(screen.out.contains(" 7 events, "))
    let json = await machine().run("verify", "--json", "/A")
    #expect(
      json.out.hasPrefix(#"{"bytes":"#) && json.out.contains(#""events":7"#) && json.out.contains(#""result":"sound""#))
  }

  @Test func `verify of sorted tables that lie exits with 1, and index rebuild makes them again`() async throws {
    let machine = await machine()
    var options = StoreOptions()
    options.index.closeCount = 1
    let store = try RecordStore.openBlocking(at: "/A", options: options, environment: machine.storeEnvironment)
    for name in ["x", "y"] {
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID(name), fields: ["n": 1])) }
    }
    try store.closeBlocking()
    #expect(await machine.run("verify", "/A").code == .done)

    // The same tables, without the row of a record.
    let folder = RunFolder(try machine.disk.folder("/A"), "runs")
    let uuid = Array(try #require(machine.disk.peek("/A/runs/RUNS"))[32..<48])
    var list = try #require(try RunList.load(folder, storeUUID: uuid))
    let run = try Run(folder, try #require(list.entries.first).run, storeUUID: uuid, cache: BlockCache())
    let writer = try RunWriter(
      folder, runNumber: list.nextRunNumber, storeUUID: uuid, keyCount: run.entryCount, properties: run.properties,
      random: SeededRandom(seed: 1))
    var cursor = try run.cursor()
    while try cursor.advance() {
      if RowKey.recordID(cursor.key) != RecordID("x") { try writer.append(cursor.key, cursor.value) }
    }
    list.entries[0] = RunList.Entry(try writer.finish())
    list.nextRunNumber += 1
    try list.replace(folder)

    let screen = await machine.run("verify", "/A")
    #expect(screen.code == .recoverable)
    #expect(screen.out.contains("runs  tables  "))
    #expect(screen.out.contains("the log is sound; its sorted tables disagree with it"))
    let json = await machine.run("verify", "--json", "/A")
    #expect(json.code == .recoverable && json.out.contains(#""result":"tablesDisagree""#))
    try JSONPage.check(json.out, of: "verify")
    #expect(await machine.run("index", "/A", "rebuild").code == .done)
    #expect(await machine.run("verify", "/A").code == .done)
    #expect(await machine.run("get", "/A", "x").code == .done)
    #expect(await machine.run("index", "/A", "rebuild", "Note").code == .usage)
  }

  /// The last segment's name.
  private func lastSegment(_ machine: Machine) throws -> String {
    "/A/" + (try #require(try machine.disk.list("/A").filter { $0.hasSuffix(".seg") }.max()))
  }

  @Test func `verify of a torn tail exits with 1; the next write sets the tail aside`() async throws {
    let machine = await machine()
    // A writer that is interrupted: neither a marker nor CONTROL names the end of its segment.
    do {
      let options = StoreOptions(
        log: LogOptions(publishesGroups: false, controlIntervalMilliseconds: nil, upkeep: .onDemand))
      let store = try RecordStore.openBlocking(
        at: "/A", options: options, environment: StoreEnvironment(machine.environment),
        createIfAbsent: false)
      let id = RecordID("c")
      try store.writeBlocking { _ = try $0.create(Record(type: "Note", id: id, fields: ["n": .int64(1)])) }
    }
    let path = try lastSegment(machine)
    let file = try machine.disk.open(path, .readWrite)
    let bytes = try file.read(at: 0, count: Int(try file.size()))
    try file.write([1, 2, 3, 4, 5], at: UInt64(try #require(bytes.lastNonZero(in: 0..<bytes.count)) / 8 * 8 + 8))
    file.close()
    let screen = await machine.run("verify", "/A")
    #expect(screen.code == .recoverable)
    let lines = screen.out.split(separator: "\n")
    try #require(lines.count == 2)
    #expect(lines[0].hasPrefix("\(path):"))
    #expect(lines[0].contains("  torn  "))
    let tail = "torn tail: the next open sets it aside; it holds no event that the log shows to be acknowledged; "
    #expect(lines[1].hasPrefix(tail))
    #expect(await machine.run("verify", "/A").code == .recoverable)
    #expect(await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":6}}"#).code == .done)
    #expect(await machine.run("verify", "/A").code == .done)
  }

  @Test func `an open that moves a segment to quarantine says so, and verify, status and compact list it`()
    async throws
  {
    let machine = await machine()
    // A copy of the store is written three times, the store itself once. Segment 6 of the copy continues its segment 5,
    // which the store does not have.
    let copy = machine.disk.clone()
    for number in 0..<3 {
      let environment = SystemEnvironment(
        fileSystem: copy, clock: StandingClock(), random: SeededRandom(seed: 70 + UInt64(number)))
      let store = try RecordStore.openBlocking(at: "/A", environment: StoreEnvironment(environment))
      try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("copy-\(number)"))) }
      try store.closeBlocking()
    }
    #expect(await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":6}}"#).err == "")
    let name = SegmentName.name(6)
    let bytes = try #require(copy.peek("/A/" + name))
    machine.disk.poke("/A/" + name, bytes)
    #expect(await machine.run("verify", "--json", "/A").out.contains(#""quarantine":[]"#))

    let put = await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":7}}"#)
    #expect(put.code == .done)
    #expect(put.err.hasPrefix("note: moved '/A/\(name)' to '/A/quarantine'; "), "\(put.err)")
    let line = "quarantine: '/A/quarantine/\(name)', \(bytes.count) bytes; no command reads it"
    for verb in ["verify", "status", "compact"] {
      let screen = await machine.run(verb, "/A")
      #expect(screen.code == .done && screen.err == "")
      #expect(screen.out.split(separator: "\n").contains { $0 == line }, "\(verb): \(screen.out)")
      let json = await machine.run(verb, "--json", "/A")
      #expect(json.out.contains(#""quarantine":[{"bytes":\#(bytes.count),"name":"\#(name)"}]"#), "\(json.out)")
    }
  }

  @Test func `verify finds an event whose checksum is right and whose fields are not`() async throws {
    let machine = Machine()
    let record = RecordID("n")
    let saved = Saved(
      id: record, type: "Note", births: [], base: .zero, time: HybridTime(milliseconds: 1), editCount: 1, tenure: 1,
      isCreation: true, content: EncodedContent(Version(type: "Note", fields: ["title": "x"]), dirty: [:]))
    let log = try Log.open(at: "/A", role: .store, environment: machine.environment) { _ in }
    var transaction = EventCodec.transaction([.opened(Opened(writer: 7, storeUUID: log.storeUUID, tenure: 1))])
    transaction.add(schema: EventCodec.schema, body: EventCodec.encode(.saved(saved)).dropLast(1) + [0xFF])
    try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
    try log.close()
    let screen = await machine.run("verify", "/A")
    #expect(screen.code == .dataDamaged)
    #expect(screen.out.contains("event 2  damage  ") && screen.out.contains("\ndamaged: 1 finding; "))
    let json = await machine.run("verify", "--json", "/A")
    #expect(json.out.contains(#""finding":"meaning""#) && json.out.contains(#""lsn":2"#))
  }

  @Test func `verify of an event of a later version says so, and calls nothing damaged`() async throws {
    // A kind that may not be skipped, and a schema that this version does not know.
    for (role, schema, body) in [
      (LogRole.store, EventCodec.schema, [99, 0, 1, 0, 5]), (.store, 9, [99, 0, 1, 1]),
      (.server, JournalEvent.schema, [99, 0, 1, 0, 5]), (.server, 9, [99, 0, 1, 1]),
    ] as [(LogRole, UInt16, [UInt8])] {
      let machine = Machine()
      let log = try Log.open(at: "/A", role: role, environment: machine.environment) { _ in }
      var transaction = LogTransaction()
      transaction.add(schema: schema, body: body)
      try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
      try log.close()
      for words in [["verify", "/A"], ["verify", "--json", "/A"]] {
        let screen = await machine.run(words, input: [])
        #expect(screen.code == .dataDamaged && screen.out == "", "\(role) \(schema): \(screen)")
        let says = ["which this version does not know", "an event of a newer version"]
        #expect(says.contains { screen.err.contains($0) }, "\(screen)")
      }
    }
  }

  @Test func `verify calls no journal sound that serve refuses`() async throws {
    let zone = JournalEvent.zoneCreated(
      life: 7, DatabaseKey(container: "c", environment: "development", scope: .private, user: "u"), name: "Notes")
    let cause = JournalCause(requestUUID: [UInt8](repeating: 1, count: 16), operation: 0, isCascade: false)
    for (event, isSound) in [
      (JournalEvent.recordDeleted(zone: 7, name: "a", cause), true),
      (.recordDeleted(zone: 8, name: "a", cause), false),
      (.zoneDeleted(life: 9), false),
    ] {
      let machine = Machine()
      let log = try Log.open(at: "/J", role: .server, environment: machine.environment) { _ in }
      var transaction = LogTransaction()
      for event in [.opened(tenure: 1), zone, event, event] {
        transaction.add(schema: JournalEvent.schema, body: event.encoded())
      }
      try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
      try log.close()
      func opens() -> StrandlineError? {
        do {
          try CloudServer(
            directory: "/J", environment: machine.environment, controlIntervalMilliseconds: nil
          ).close()
        } catch { return error as? StrandlineError }
        return nil
      }
      #expect(opens()?.code == (isSound ? nil : .damaged))
      let screen = await machine.run("verify", "/J")
      #expect(screen.code == (isSound ? .done : .dataDamaged), "\(screen)")
      // What follows the first one is not judged against tables that lack it.
      #expect(
        isSound || screen.out.contains("event 3  damage  ") && screen.out.contains("damaged: 1 finding; "), "\(screen)")
    }
  }

  @Test func `a mutation that was superseded by nothing is damage, for verify and for every reader`() async throws {
    let machine = Machine()
    let log = try Log.open(at: "/A", role: .store, environment: machine.environment) { _ in }
    let superseded = Superseded(id: RecordID("a"), type: "Note", time: HybridTime(milliseconds: 1))
    let transaction = EventCodec.transaction([
      .opened(Opened(writer: 7, storeUUID: log.storeUUID, tenure: 1)), .superseded(superseded),
    ])
    try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
    try log.close()
    for words in [["export", "/A"], ["get", "/A", "a"], ["put", "/A", #"{"recordName":"a","fields":{"n":5}}"#]] {
      let screen = await machine.run(words, input: [])
      #expect(screen.code == .dataDamaged && screen.err.contains("event 2 "), "\(words): \(screen)")
      #expect(screen.err.hasSuffix("try: strandline verify /A\n"), "\(words): \(screen)")
    }
    let verified = await machine.run("verify", "/A")
    #expect(verified.code == .dataDamaged)
    #expect(
      verified.out.contains("event 2 is its newest mutation, and says that a later one replaced it"), "\(verified)")
  }

  @Test func `a reader that has not seen the later mutation is told to read on`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let reader = try RecordStore.openReadOnlyBlocking(at: "/A", environment: machine.storeEnvironment)
    for number in 0..<30 {
      _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":\#(number)}}"#)
    }
    #expect(await machine.run("compact", "--history", "latest", "/A").code == .done)
    #expect(await machine.run("log-dump", "--kind", "superseded", "/A").out.contains("\n2        superseded     a "))
    let error = #expect(throws: StrandlineError.self) { try reader.record(RecordID("a")) }
    #expect(error?.code == .outdated)
    try reader.refresh()
    #expect(try reader.record(RecordID("a"))?["n"] == 29)
    #expect(await machine.run("verify", "/A").code == .done)
    try reader.closeBlocking()
  }

  @Test func `verify of damage exits with 65 and names file and offset; other verbs refer to verify`() async throws {
    let machine = await machine()
    let path = try #require(try machine.disk.list("/A").filter { $0.hasSuffix(".seg") }.min())
    let file = try machine.disk.open("/A/" + path, .readWrite)
    let byte = try file.read(at: 4_200, count: 1)
    try file.write([byte[0] ^ 0x40], at: 4_200)
    file.close()
    let screen = await machine.run("verify", "/A")
    #expect(screen.code == .dataDamaged)
    #expect(screen.out.contains("  damage  "))
    #expect(screen.out.contains("\ndamaged: 1 finding; "))
    let export = await machine.run("export", "/A")
    #expect(export.code == .dataDamaged)
    #expect(export.err.hasSuffix("try: strandline verify /A\n"))
    let json = await machine.run("verify", "--json", "/A")
    #expect(json.out.contains(#""finding":"damage""#) && json.out.contains(#""result":"damaged""#))
  }

  @Test func `a missing store is 66`() async {
    for verb in ["verify", "log-dump", "status", "export"] {
      #expect(await Machine().run(verb, "/nope").code == .noSuchStore)
    }
  }

  @Test func `compact prints what it removed, and changes the output of no other verb`() async throws {
    let machine = await machine()
    for number in 0..<30 {
      _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":\#(number)}}"#)
    }
    func said() async -> [Screen] {
      var screens: [Screen] = []
      for words in [["export", "/A"], ["get", "/A", "a"], ["status", "--json", "/A"], ["status", "/A"]] {
        var screen = await machine.run(words, input: [])
        // The bytes of the log alone are others.
        screen.out = screen.out.replacing(#/"logBytes":[0-9]+/#, with: "").replacing(#/log +[0-9][^\n]*/#, with: "")
        screens.append(screen)
      }
      return screens
    }
    let before = await said()
    #expect(before.allSatisfy { $0.code == .done })
    let screen = await machine.run("compact", "--history", "latest", "/A")
    #expect(screen.code == .done && screen.err == "")
    #expect(screen.out.contains(" kB to ") && screen.out.contains(" events kept, "), "\(screen.out)")
    #expect(await said() == before)
    #expect(await machine.run("verify", "/A").code == .done)
    let kinds = await machine.run("log-dump", "--kind", "superseded", "/A").out
    #expect(kinds.contains("2        superseded     a ") && kinds.contains("3        superseded     b "), "\(kinds)")
    #expect(kinds.split(separator: "\n").count == 3, "\(kinds)")
    let again = await machine.run("compact", "--json", "--history=latest", "/A").out
    #expect(again.hasPrefix(#"{"bytesAfter":"#) && again.contains(#""eventsDropped":0,"#), "\(again)")
    #expect(await machine.run("compact", "/absent").code == .noSuchStore)
  }
}
