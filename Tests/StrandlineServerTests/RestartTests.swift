// Goal: what the server answered survives a power cut, what a cut takes away is refused as expired, and a journal
// that fails gives another error than one that is full. Method: a server on a simulated disk, crashed at every call of a
// history with the choices of loss that the disk offers; each image is opened and asked.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineLogProofs
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct RestartTests {
  static func environment(_ disk: any FileSystem, seed: UInt64 = 1) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(autoAdvance: true), random: SeededRandom(seed: seed))
  }

  static func open(
    _ disk: any FileSystem, seed: UInt64 = 1, limits: ServerLimits = ServerLimits()
  ) throws -> CloudServer {
    try CloudServer(
      directory: "/server", limits: limits, environment: environment(disk, seed: seed),
      controlIntervalMilliseconds: nil)
  }

  static func save(_ name: String, _ value: Int64, tag: String? = nil) -> ModifyRequest {
    var record = WireRecord(recordName: name)
    record.recordType = "Note"
    record.fields = ["value": .int64(value)]
    return ModifyRequest(
      zoneID: WireZoneID(notes), atomic: true, desiredKeys: nil,
      operations: [.init(operationType: "forceUpdate", record: record)])
  }

  static func delete(_ name: String) -> ModifyRequest {
    ModifyRequest(
      zoneID: WireZoneID(notes), atomic: true, desiredKeys: nil,
      operations: [.init(operationType: "forceDelete", record: WireRecord(recordName: name))])
  }

  static let makeZone = ZonesModifyRequest(operations: [
    .init(operationType: "create", zone: .init(zoneID: WireZoneID(notes)))
  ])

  /// Servers on one disk, of which the folder of one meets a fate.
  private struct Journals {
    let disk = SimulatedDisk()
    let clock = SimulatedClock()

    static func open(_ disk: any FileSystem, _ clock: SimulatedClock, _ path: String, seed: UInt64) throws
      -> CloudServer
    {
      try CloudServer(
        directory: path, limits: ServerLimits(),
        environment: SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: seed)),
        controlIntervalMilliseconds: nil)
    }

    /// One server of another journal, one of an older copy, and the one that was closed last.
    init() async throws {
      for (path, names) in [(FolderFate.otherPath, ["other"]), (FolderFate.path, ["own"])] {
        let server = try Self.open(disk, clock, path, seed: path == FolderFate.path ? 1 : 2)
        try await server.client().createZone(notes)
        for name in names { try await server.client().note(name) }
        try server.close()
      }
      disk.put(disk.files(in: FolderFate.path), over: FolderFate.olderPath)
      let server = try Self.open(disk, clock, FolderFate.path, seed: 3)
      try await server.client().note("acknowledged")
      try server.close()
      try disk.folder("/").sync()
    }
  }

  /// - Parameter call: nil: before a request, else before this call of the request that changes the disk.
  private func attempt(
    _ fate: FolderFate, on made: SimulatedDisk, beforeCall call: Int?
  ) async throws -> (marks: [String], failure: String?) {
    let (disk, clock) = (made.clone(), SimulatedClock())
    let comment: Comment = "\(fate), call \(call ?? 0)"
    let server = try Journals.open(disk, clock, FolderFate.path, seed: 4)
    try await server.client().note("before")
    let copy = disk.files(in: FolderFate.path)
    try await server.client().note("now")
    let there = Mutex<Result<[String: [UInt8]], any Error>?>(nil)
    let befall: @Sendable () -> Void = {
      let result = Result {
        _ = try fate.befall(disk, copy) { try Journals.open($0, clock, FolderFate.path, seed: 5).close() }
        clock.advance(milliseconds: 200)
        return disk.files(in: FolderFate.path)
      }
      there.withLock { $0 = result }
    }
    if let call { disk.interrupt(beforeCall: disk.callCount + call, befall) } else { befall() }
    var hasAnswered = false
    do {
      try await server.client().note("late")
      hasAnswered = true
    } catch is CloudError {}
    // The next one knows in any case.
    clock.advance(milliseconds: 200)
    do {
      try await server.client().note("later")
      #expect(fate.goesOn, "\(comment): a request was answered")
    } catch let error as CloudError {
      #expect(!fate.goesOn, "\(comment): \(error)")
    }
    let put = try #require(try there.withLock { try $0?.get() }, comment)
    let failure = server.failure
    let image = disk.imageAfterCrash(using: SeededRandom(seed: UInt64(call ?? 0)))
    _ = Result { try server.close() }
    var marks: [String] = []
    for disk in [disk, image] {
      // What the second writer has not synced may go with the power.
      if !fate.goesOn, fate != .secondWriter || disk !== image {
        let changes = fate.changes(in: disk.files(in: FolderFate.path), of: put)
        #expect(changes.isEmpty, "\(comment): \(changes)")
      }
      guard let kept = fate.keptPath else { continue }
      let moved = try Journals.open(OtherProcess(disk.clone()), SimulatedClock(), kept, seed: 6)
      marks = try await moved.client().everything().changes.map(\.mark).sorted()
      #expect(Set(marks).isSuperset(of: ["acknowledged", "before", "now", "own"]), "\(comment): \(marks)")
      if hasAnswered { #expect(marks.contains("late"), "\(comment): \(marks)") }
      try moved.close()
    }
    return (marks, failure)
  }

  @Test(arguments: FolderFate.allCases)
  func `a journal whose folder is moved, removed or replaced is written on nowhere, and the server says so`(
    _ fate: FolderFate
  ) async throws {
    let made = try await Journals().disk
    let (marks, failure) = try await attempt(fate, on: made, beforeCall: nil)
    #expect((failure == nil) == fate.goesOn, "\(failure ?? "it goes on")")
    if fate == .replacedByAnother {
      #expect(failure?.contains("moved away from '/store'") == true, "\(failure ?? "it goes on")")
      #expect(marks == ["acknowledged", "before", "now", "own"])
    }
    // Of the calls of one request, those that a writer could have noticed it before.
    let meter = CallMeter(made.clone())
    let server = try Journals.open(meter, SimulatedClock(), FolderFate.path, seed: 4)
    for name in ["before", "now"] { try await server.client().note(name) }
    let first = meter.disk.callCount
    try await server.client().note("late")
    let calls = meter.disk.callCount - first
    #expect(calls > 1)
    for call in 1...calls where !fate.isBlind(before: meter.calls[first + call]) {
      _ = try await attempt(fate, on: made, beforeCall: call)
    }
  }

  @Test func `after a restart everything is there and tokens go on`() async throws {
    let disk = SimulatedDisk()
    let first = try Self.open(disk)
    let client = first.client()
    try await client.createZone(notes)
    try await client.note("a")
    let token = try await client.everything().token
    let databaseToken = try await client.databaseChanges(since: nil, limit: 10).token
    try await client.note("b")
    _ = try await client.one(CloudOperation(.forceDelete, name: "a"))
    try first.close()
    #expect(first.failure == "the server is closed")
    let second = try Self.open(disk, seed: 2)
    let again = second.client()
    #expect(try await again.everything(since: token).changes.map(\.mark) == ["b", "-a"])
    #expect(try await again.databaseChanges(since: databaseToken, limit: 10).zones.count == 1)
    try await again.note("c")
    #expect(try await again.everything(since: token).changes.map(\.mark) == ["b", "-a", "c"])
    try second.close()
    let third = try Self.open(disk, seed: 3)
    #expect(try await third.client().everything(since: token).changes.map(\.mark) == ["b", "-a", "c"])
    var opened = 0
    try third.forEachEvent { _, event in if case .opened = event { opened += 1 } }
    #expect(opened == 2)
  }

  /// The history that power cuts interrupt; each answer is recorded when it was given.
  private static func history(_ disk: SimulatedDisk) -> (answered: [Int64], deleted: Bool, token: String?) {
    var answered: [Int64] = []
    var isDeleted = false
    var token: String?
    do {
      let server = try open(disk)
      _ = try server.modifyZones(makeZone, in: database)
      for value in 1...6 as ClosedRange<Int64> {
        let reply = try server.modify(save("n\(value)", value), in: database)
        if reply.records.first?.recordChangeTag != nil { answered.append(value) }
        let page = try server.zoneChanges(
          ZoneChangesRequest(zones: [.init(zoneID: WireZoneID(notes), syncToken: nil, resultsLimit: nil)]),
          in: database)
        token = page.zones.first?.syncToken
      }
      _ = try server.modify(delete("n1"), in: database)
      isDeleted = true
    } catch {
      // The power was cut; what was answered before must be there.
    }
    return (answered, isDeleted, token)
  }

  @Test func `at every power cut nothing that was answered is lost`() throws {
    let whole = SimulatedDisk()
    _ = Self.history(whole)
    let calls = whole.callCount
    #expect(calls > 10)
    var images = 0
    for call in 1...calls {
      let disk = SimulatedDisk()
      disk.crashAtCall = call
      disk.isTearing = true
      let before = Self.history(disk)
      for loss in disk.crashLosses() {
        let image = disk.imageAfterCrash(loss)
        images += 1
        let server: CloudServer
        do {
          server = try Self.open(image, seed: 99)
        } catch {
          Issue.record("cut at call \(call), \(loss): \(error)")
          continue
        }
        let records = try server.records(zone: "Notes", in: database) ?? [:]
        for value in before.answered where !(value == 1 && records["n1"] == nil) {
          #expect(records["n\(value)"]?.fields["value"] == .int64(value), "cut at call \(call), \(loss)")
        }
        if before.deleted { #expect(records["n1"] == nil, "cut at call \(call), \(loss)") }
        if before.answered.count > 1, !before.deleted, records["n1"] == nil {
          // The deletion was in flight: it may be there, whole.
          #expect(before.answered.count == 6, "cut at call \(call), \(loss)")
        }
        guard let token = before.token else { continue }
        // A token that was given out names durable events, so it is good in every image.
        let page = try server.zoneChanges(
          ZoneChangesRequest(zones: [.init(zoneID: WireZoneID(notes), syncToken: token, resultsLimit: nil)]),
          in: database)
        #expect(page.zones.first?.error == nil, "cut at call \(call), \(loss)")
        _ = try server.modify(Self.save("after", 1), in: database)
      }
    }
    print("\(calls) calls, \(images) images")
  }

  @Test func `tokens of a tail that is gone are expired`() throws {
    let disk = SimulatedDisk()
    let server = try Self.open(disk)
    _ = try server.modifyZones(Self.makeZone, in: database)
    func page(_ server: CloudServer, _ token: String?) throws -> ZoneChangesReply.Zone? {
      try server.zoneChanges(
        ZoneChangesRequest(zones: [.init(zoneID: WireZoneID(notes), syncToken: token, resultsLimit: nil)]),
        in: database
      ).zones.first
    }
    _ = try server.modify(Self.save("a", 1), in: database)
    let early = try page(server, nil)?.syncToken
    // A backup is taken here, and restored after more was answered.
    let backup = disk.clone()
    for value in 2...5 as ClosedRange<Int64> { _ = try server.modify(Self.save("a", value), in: database) }
    let late = try page(server, nil)?.syncToken
    let restored = try Self.open(backup.imageAfterCrash(.all), seed: 5)
    #expect(try page(restored, early)?.error == nil)
    let refused = WireError(.badRequest, "client knowledge differs from server knowledge")
    #expect(try page(restored, late)?.error == refused)
    // The same LSNs, written again under another tenure, do not make it valid.
    for value in 2...9 as ClosedRange<Int64> { _ = try restored.modify(Self.save("a", value), in: database) }
    #expect(try page(restored, late)?.error == refused)
    #expect(try page(restored, early)?.records?.count == 1)
  }

  @Test func `a full disk refuses cleanly and works again when there is room`() throws {
    let disk = SimulatedDisk()
    let server = try Self.open(disk)
    _ = try server.modifyZones(Self.makeZone, in: database)
    _ = try server.modify(Self.save("a", 1), in: database)
    disk.capacity = disk.usedBytes
    var record = WireRecord(recordName: "big")
    record.recordType = "Note"
    let big = [UInt8](repeating: 7, count: 900_000)
    record.fields = ["bytes": .bytes(big)]
    let message = ModifyRequest(
      zoneID: WireZoneID(notes), atomic: true, desiredKeys: nil,
      operations: [.init(operationType: "create", record: record)])
    var refusal: ServerRefusal?
    for number in 0..<4 where refusal == nil {
      var next = message
      next.operations[0].record.recordName = "big\(number)"
      do { _ = try server.modify(next, in: database) } catch { refusal = error }
    }
    #expect(refusal?.status == 503)
    #expect(refusal?.error.serverErrorCode == "TRY_AGAIN_LATER")
    #expect(server.failure == nil)
    #expect(try server.records(zone: "Notes", in: database)?["a"] != nil)
    disk.capacity = nil
    _ = try server.modify(message, in: database)
    #expect(try server.record("big", zone: "Notes", in: database)?.fields["bytes"] == .bytes(big))
  }

  @Test func `a journal whose sync fails takes nothing more, and the sockets end with an error`() throws {
    let folder = try TemporaryFolder()
    let disk = FaultInjector(POSIXFileSystem())
    let environment = SystemEnvironment(fileSystem: disk, clock: RealClock(), random: SystemRandom())
    let server = try LocalServer.run(directory: folder("journal"), environment: environment)
    _ = try server.cloud.modifyZones(Self.makeZone, in: database)
    disk.plan(DiskFault([.sync], isSticky: true, error: SystemError.device("fdatasync", "journal")))
    let connection = try Connection.connect(host: "127.0.0.1", port: UInt16(server.port), timeoutMilliseconds: 60_000)
    let body = """
      {"zoneID":{"zoneName":"Notes"},"operations":[{"operationType":"create","record":{"recordName":"a","recordType":"Note"}}]}
      """
    let path = "/database/1/iCloud.test/development/private/records/modify"
    let head = "POST \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
    try connection.send(Array((head + body).utf8))
    let answer = String(decoding: try connection.receive(max: 9999, timeoutMilliseconds: 60_000), as: UTF8.self)
    #expect(answer.hasPrefix("HTTP/1.1 503 "))
    connection.close()
    let error = #expect(throws: StrandlineError.self) { try server.waitUntilStopped() }
    #expect(error?.code == .outcomeUnknown)
    disk.clear()
  }

  @Test func `the journal's events read back as they were written`() throws {
    let cause = JournalCause(requestUUID: [UInt8](0..<16), operation: 3, isCascade: true)
    let events: [JournalEvent] = [
      .opened(tenure: 7), .zoneCreated(life: 9, database, name: "Z"), .zoneDeleted(life: 9),
      .recordDeleted(zone: 9, name: "n", cause),
      .recordSaved(
        JournalRecord(
          zone: 9, name: "n", type: "Note", parent: "p", tag: "t",
          created: ServerTimestamp(milliseconds: -1, user: "u"),
          modified: ServerTimestamp(milliseconds: 5), cause: cause, fields: ["a": 1, "b": .list(.strings, ["x"])])),
    ]
    #expect(Set(events.map(\.kind)).count == JournalEventKind.allCases.count)
    for event in events {
      let bytes = event.encoded()
      #expect(try JournalEvent.decode(bytes) == event)
      for length in 0..<bytes.count {
        #expect(throws: JournalEventError.self) { try JournalEvent.decode(Array(bytes.prefix(length))) }
      }
      #expect(throws: JournalEventError.self) { try JournalEvent.decode(bytes + [0]) }
    }
    #expect(try JournalEvent.decode([99, 0, 1, 1, 5]) == nil)
    #expect(throws: JournalEventError.self) { try JournalEvent.decode([99, 0, 1, 0, 5]) }
  }

  @Test func `a journal that lacks an event is damaged, also before one that may be skipped`() throws {
    func event(_ lsn: UInt64, _ body: [UInt8]) -> LogEvent {
      LogEvent(
        lsn: lsn, schema: JournalEvent.schema, body: body, indexInTransaction: 0, isFirst: true, isLast: true,
        segmentID: 1, offset: 4_160)
    }
    for body in [JournalEvent.opened(tenure: 7).encoded(), [99, 0, 1, 1, 5]] {
      var check = JournalCheck()
      try check.apply(event(1, body))
      try check.apply(event(2, body))
      let error = #expect(throws: JournalEventError.self) { try check.apply(event(4, body)) }
      #expect(error?.isFromNewerVersion == false)
    }
  }

  @Test func `the example in the format's page is what is written`() throws {
    let path = #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/Formats/journal.md"
    let file = try POSIXFileSystem().open(path, .read)
    defer { file.close() }
    let page = String(decoding: try file.read(at: 0, count: 1 << 20), as: UTF8.self)
    let example = page.split(separator: "```").dropFirst().first ?? ""
    // Each line has bytes in hex, two spaces, and a description.
    let bytes = example.split(separator: "\n").flatMap { line in
      line.replacing("  ", with: "|").prefix { $0 != "|" }.split(separator: " ").compactMap { UInt8($0, radix: 16) }
    }
    let cause = JournalCause(requestUUID: [UInt8](0..<16), operation: 3, isCascade: true)
    #expect(bytes == JournalEvent.recordDeleted(zone: 9, name: "n", cause).encoded())
    for kind in JournalEventKind.allCases { #expect(page.contains("| \(kind.rawValue) | \(kind) |")) }
  }
}
