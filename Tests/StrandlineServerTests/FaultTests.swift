// Goal: each fault does what it says, as often as it says, and nothing when it is off. Method: the client over the
// in-process transport; and a large zone, to see that work grows with what is asked for.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct FaultTests {
  private func code(_ body: () async throws -> Void) async throws -> CloudError? {
    do {
      try await body()
      return nil
    } catch let error as CloudError {
      return error
    }
  }

  @Test func `throttling refuses so many requests and says when to come back`() async throws {
    var faults = ServerFaults()
    faults.throttle = .init(status: 503, retryAfter: 30, requests: 2)
    let server = CloudServer.still(faults: faults)
    let client = server.client()
    for _ in 0..<2 {
      let error = try await code { _ = try await client.zones() }
      #expect(error?.code == .tryAgainLater && error?.httpStatus == 503 && error?.retryAfter == 30)
    }
    _ = try await client.zones()
    faults.throttle = .init(status: 429)
    server.setFaults(faults)
    for _ in 0..<5 {
      let error = try await code { _ = try await client.zones() }
      #expect(error?.code == .throttled && error?.httpStatus == 429 && error?.retryAfter == nil)
    }
    server.setFaults(ServerFaults())
    _ = try await client.zones()
    #expect(server.statistics.requests["zones/list"] == 9)
  }

  @Test func `a dropped answer is applied, and the request hangs until it is cancelled`() async throws {
    let lines = Mutex<[String]>([])
    var faults = ServerFaults()
    faults.dropAnswer = 2
    let (dropped, drop) = AsyncStream<Void>.makeStream()
    let server = CloudServer(inMemory: .still(), faults: faults) { line in
      lines.withLock { $0.append(line) }
      drop.finish()
    }
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("a")
    let hanging = Task { try await client.note("b") }
    for await _ in dropped {}
    hanging.cancel()
    await #expect(throws: CancellationError.self) { _ = try await hanging.value }
    #expect(lines.withLock { $0 } == ["dropped answer 2"])
    #expect(try await client.lookup(["b"], in: notes)["b"]?.record != nil)
    try await client.note("c")
    #expect(server.statistics.droppedAnswers == 1)
    #expect(server.statistics.appliedOperations == 3)
  }

  @Test func `latency, quota, and CONFLICT instead of EXISTS`() async throws {
    var faults = ServerFaults()
    faults.latencyMilliseconds = 250
    faults.createConflictInsteadOfExists = true
    let clock = StillClock()
    var environment = SystemEnvironment.still()
    environment.clock = clock
    let server = CloudServer(inMemory: environment, faults: faults)
    let client = server.client()
    let before = clock.wallMilliseconds()
    try await client.createZone(notes)
    #expect(clock.wallMilliseconds() == before + 250)
    try await client.note("a")
    #expect(try await client.one(CloudOperation(.create, name: "a", type: "Note"))?.code == .conflict)
    faults.quotaExceeded = true
    server.setFaults(faults)
    #expect(try await code { try await client.note("b") }?.code == .quotaExceeded)
    #expect(try await client.everything().changes.map(\.mark) == ["a"])
    let pair = [CloudOperation(.forceDelete, name: "a"), CloudOperation(.create, name: "b", type: "Note")]
    #expect(try await code { _ = try await client.modify(pair, in: notes, atomic: false) }?.code == .quotaExceeded)
    #expect(try await client.one(CloudOperation(.forceDelete, name: "a"))?.code == nil)
    #expect(try await client.lookup(["a"], in: notes)["a"]?.record == nil, "a deletion needs no space")
  }

  @Test func `a clock that is ahead, and goes back, is in each answer and in each record`() async throws {
    var faults = ServerFaults()
    faults.clockAhead = .seconds(7_200)
    let environment = SystemEnvironment.still()
    let server = CloudServer(inMemory: environment, faults: faults)
    let client = server.client()
    try await client.createZone(notes)
    func modified(_ name: String) async throws -> Int64 {
      try await client.note(name)
      let record = try #require(try await client.lookup([name], in: notes)[name]?.record)
      return try #require(record.system.modified).milliseconds - environment.clock.wallMilliseconds()
    }
    func date() -> Int64? {
      let answer = server.answer(HTTPRequest(method: "GET", origin: "http://127.0.0.1", path: "/none"))
      guard case .respond(let response) = answer else { return nil }
      return response.headers["date"].flatMap { HTTPDate.milliseconds($0) }.map {
        $0 - environment.clock.wallMilliseconds()
      }
    }
    #expect(try await modified("a") == 7_200_000)
    #expect(try #require(date()) / 1_000 >= 7_199)
    faults.clockAhead = .seconds(-7_200)
    server.setFaults(faults)
    #expect(try await modified("b") == -7_200_000)
    #expect(try #require(date()) / 1_000 <= -7_199)
    server.setFaults(ServerFaults())
    #expect(try await modified("c") == 0)
    for extreme in [Duration.seconds(Int64.max), .seconds(Int64.min)] {
      faults.clockAhead = extreme
      server.setFaults(faults)
      try await client.note("d\(extreme > .zero)")
    }
  }

  @Test func `users, containers and environments have separate databases`() async throws {
    let server = CloudServer.still()
    func client(_ container: String, _ environment: CloudEnvironment, _ user: String) -> WebServicesDatabase {
      WebServicesDatabase(
        address: CloudAddress(container: container, environment: environment), apiToken: "", session: nil,
        baseURL: "http://127.0.0.1:1", transport: AsUser(user, server), environment: .still())
    }
    let all = [
      client("iCloud.a", .development, "_u"), client("iCloud.b", .development, "_u"),
      client("iCloud.a", .production, "_u"), client("iCloud.a", .development, "_v"),
    ]
    for (index, one) in all.enumerated() { try await one.createZone(ZoneID("Z\(index)")) }
    for (index, one) in all.enumerated() { #expect(try await one.zones() == [ZoneID("Z\(index)")]) }
    #expect(try await all[3].user() == "_v")
  }

  /// Adds a user's token to each request.
  private struct AsUser: Transport {
    let token: String
    let inner: InProcessTransport
    init(_ user: String, _ server: CloudServer) {
      token = server.signIn(user: user)
      inner = InProcessTransport(server)
    }
    func send(_ request: HTTPRequest) async throws -> HTTPResponse {
      var request = request
      request.query = "ckWebAuthToken=" + PercentEncoding.encode(token)
      return try await inner.send(request)
    }
  }

  @Test func `a large zone costs what is asked of it`() async throws {
    let folder = try TemporaryFolder()
    let disk = FaultInjector(POSIXFileSystem())
    let environment = SystemEnvironment(fileSystem: disk, clock: StillClock(), random: SeededRandom(seed: 7))
    let server = try CloudServer(
      directory: folder("server"), environment: environment, controlIntervalMilliseconds: nil)
    _ = try server.modifyZones(
      ZonesModifyRequest(operations: [.init(operationType: "create", zone: .init(zoneID: WireZoneID(notes)))]),
      in: database)
    func save(_ batch: Int) throws {
      var operations: [ModifyRequest.Operation] = []
      for index in 0..<200 {
        var record = WireRecord(recordName: "record-\(batch)-\(index)")
        record.recordType = "Note"
        record.fields = ["n": .int64(Int64(index))]
        operations.append(.init(operationType: "forceUpdate", record: record))
      }
      let message = ModifyRequest(zoneID: WireZoneID(notes), atomic: false, desiredKeys: [], operations: operations)
      #expect(try server.modify(message, in: database).records.allSatisfy { $0.error == nil })
    }
    func page(_ token: String?, _ limit: Int = 200) throws -> ZoneChangesReply.Zone {
      let asked = ZoneChangesRequest.Zone(zoneID: WireZoneID(notes), syncToken: token, resultsLimit: limit)
      return try #require(try server.zoneChanges(ZoneChangesRequest(zones: [asked]), in: database).zones.first)
    }
    /// How often the journal is read for a batch that is new, for one that replaces what is there, and for a page and a
    /// single record of the feed. That is the work: what is found without reading is a look into a table. A batch that is
    /// written costs two more: CONTROL's slot is compared before the group and before it is written.
    func reads(_ batch: Int) throws -> [Int] {
      let token = try page(nil, 1).syncToken
      return try [{ try save(batch) }, { try save(batch) }, { _ = try page(token) }, { _ = try page(token, 1) }].map {
        disk.resetCounts()
        try $0()
        return disk.count(.read)
      }
    }
    for batch in 0..<5 { try save(batch) }
    #expect(try reads(5) == [2, 202, 200, 1])
    for batch in 6..<100 { try save(batch) }
    #expect(try reads(100) == [2, 202, 200, 1])
    var token: String?
    var pages = 0
    var records = 0
    repeat {
      let next = try page(token)
      token = next.syncToken
      records += next.records?.count ?? 0
      pages += 1
      if next.moreComing != true { break }
    } while true
    #expect(records == 20_200)
    #expect(pages == 101)
    try server.close()
    withExtendedLifetime(folder) {}
  }
}
