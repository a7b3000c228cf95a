// Pushes over the web: what the server says of subscriptions, what a client asks of the courier and how often, and an engine that
// learns of another device's edit by a push. All on a clock that only the test moves, but for one test over sockets.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

/// A line to the server on which pushes are lost, doubled or late, and which counts what is asked.
private final class PushLine: Transport {
  enum Fate: Sendable { case arrives, lost, doubled, late }
  struct State: Sendable {
    /// What becomes of the next pushes; of those behind them, that they arrive.
    var fates: [Fate] = []
    var again: HTTPResponse?
    var polls = 0
    var requests: [String] = []
  }
  private let inner: InProcessTransport
  private let clock: SimulatedClock
  let state = Mutex(State())

  init(_ server: CloudServer, _ clock: SimulatedClock) { (inner, self.clock) = (InProcessTransport(server), clock) }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    guard request.path == "/courier" else {
      state.withLock { $0.requests.append(request.path.split(separator: "/").suffix(2).joined(separator: "/")) }
      return try await inner.send(request)
    }
    let again = state.withLock { state in
      state.polls += 1
      defer { state.again = nil }
      return state.again
    }
    if let again { return again }
    let answer = try await inner.send(request)
    if answer.body.isEmpty { return answer }
    switch state.withLock({ $0.fates.isEmpty ? .arrives : $0.fates.removeFirst() }) {
    case .arrives: break
    case .lost: throw CloudError(.networkError, reason: "the connection broke")
    case .doubled: state.withLock { $0.again = answer }
    case .late: try await clock.sleep(milliseconds: 7_000)
    }
    return answer
  }

  func count(_ endpoint: String) -> Int { state.withLock { state in state.requests.count { $0 == endpoint } } }
}

@Suite(.timeLimit(.minutes(30))) struct PushTests {
  private let clock = SimulatedClock(wallMilliseconds: now, autoAdvance: false)

  private func server() -> CloudServer {
    CloudServer(
      inMemory: SystemEnvironment(fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: 4)))
  }

  private func client(_ transport: any Transport) -> WebServicesDatabase {
    WebServicesDatabase.over(transport, clock: clock)
  }

  /// Moves the clock until something holds.
  private func advance(
    atMost seconds: Int, step: Int64 = 20, until isSo: () throws -> Bool
  ) async throws -> Bool {
    for _ in 0..<(Int64(seconds) * 1_000 / step) {
      for _ in 0..<400 {
        if try isSo() { return true }
        await Task.yield()
      }
      clock.advance(milliseconds: step)
    }
    return try isSo()
  }

  private func save(_ name: String, _ database: WebServicesDatabase) async throws {
    try await database.createZone(.main)
    _ = try await database.modify([CloudOperation(.create, name: name, type: "Note")], in: .main, atomic: false)
  }

  // MARK: The server

  @Test func `a subscription is made once, listed, looked up and deleted`() async throws {
    let transport = InProcessTransport(server())
    func ask(_ endpoint: String, _ body: String, _ method: String = "POST", of scope: String = "private") async throws
      -> (Int, String)
    {
      let answer = try await transport.send(
        HTTPRequest(
          method: method, origin: "http://cloud.test",
          path: "/database/1/iCloud.test/development/\(scope)/subscriptions/\(endpoint)", body: Array(body.utf8)))
      return (answer.status, String(decoding: answer.body, as: UTF8.self))
    }
    func create(_ subscription: String) async throws -> String {
      try await ask("modify", #"{"operations":[{"operationType":"create","subscription":\#(subscription)}]}"#).1
    }
    let all = #"{"subscriptionID":"s","subscriptionType":"database"}"#
    for _ in 0..<2 { #expect(try await create(all) == #"{"subscriptions":[\#(all)]}"#) }
    let zone = #"{"subscriptionID":"z","subscriptionType":"zone","zoneID":{"zoneName":"Docs"}}"#
    _ = try await create(zone)
    for wrong in [
      #"{"subscriptionID":"q","subscriptionType":"query"}"#, #"{"subscriptionID":"z2","subscriptionType":"zone"}"#,
      #"{"subscriptionType":"database"}"#, #"{"subscriptionID":"x","subscriptionType":"other"}"#,
    ] { #expect(try await create(wrong).contains("BAD_REQUEST"), "\(wrong)") }
    #expect(try await ask("list", "", "GET").1 == #"{"subscriptions":[\#(all),\#(zone)]}"#)
    let found = try await ask("lookup", #"{"subscriptions":[{"subscriptionID":"s"},{"subscriptionID":"none"}]}"#).1
    #expect(found.contains(all) && found.contains("NOT_FOUND"))
    for isThere in [true, false] {
      let answer = try await ask(
        "modify", #"{"operations":[{"operationType":"delete","subscription":{"subscriptionID":"z"}}]}"#
      ).1
      #expect(answer.contains("NOT_FOUND") == !isThere)
    }
    #expect(try await ask("list", "", "GET").1 == #"{"subscriptions":[\#(all)]}"#)
    #expect(try await ask("list", "", "GET", of: "public").0 == 400)
  }

  @Test func `a push goes to the clients of its user, for its zone, and to no others`() async throws {
    let server = server()
    let transport = InProcessTransport(server)
    func token(_ user: String, _ id: String) async throws -> String {
      let session = try WebSession(path: "/\(id)", environment: .on(SimulatedDisk()))
      try session.signIn(token: server.signIn(user: user))
      let client = WebServicesDatabase.over(transport, session: session, clock: clock)
      _ = try await client.user()
      let answer = try await transport.send(
        HTTPRequest(
          origin: "http://cloud.test", path: "/device/1/iCloud.test/development/tokens/create",
          query: "ckWebAuthToken=" + PercentEncoding.encode(server.signIn(user: user)),
          body: Array(#"{"apnsEnvironment":"development","clientId":"\#(id)"}"#.utf8)))
      let message = try WireJSON.decode(PushTokenMessage.self, answer.body)
      #expect(message.webcourierURL == "http://cloud.test/courier?token=\(message.apnsToken ?? "")")
      return message.apnsToken ?? ""
    }
    let (a, b, other) = (try await token("_a", "1"), try await token("_a", "2"), try await token("_b", "1"))
    #expect(try await token("_a", "1") == a && a != b)
    func write(_ zone: String, _ user: String) async throws {
      for (endpoint, body) in [
        (
          "subscriptions/modify",
          #"{"operations":[{"operationType":"create","subscription":{"subscriptionID":"s","subscriptionType":"zone","zoneID":{"zoneName":"Docs"}}}]}"#
        ),
        ("zones/modify", #"{"operations":[{"operationType":"create","zone":{"zoneID":{"zoneName":"\#(zone)"}}}]}"#),
      ] {
        let answer = try await transport.send(
          HTTPRequest(
            origin: "http://cloud.test", path: "/database/1/iCloud.test/development/private/" + endpoint,
            query: "ckWebAuthToken=" + PercentEncoding.encode(server.signIn(user: user)), body: Array(body.utf8)))
        #expect(answer.status == 200)
      }
    }
    func waiting(_ token: String) async throws -> Int {
      var count = 0
      while true {
        let isAnswered = Atomic(false)
        async let answer: HTTPResponse = {
          defer { isAnswered.store(true, ordering: .relaxed) }
          return try await transport.send(
            HTTPRequest(method: "GET", origin: "http://cloud.test", path: "/courier", query: "token=" + token))
        }()
        while !isAnswered.load(ordering: .relaxed), clock.sleeperCount == 0 { await Task.yield() }
        clock.advance(milliseconds: 30_000)
        guard try await !answer.body.isEmpty else { return count }
        count += 1
      }
    }
    try await write("Docs", "_a")
    try await write("Else", "_a")
    // What changed nothing is no push.
    try await write("Docs", "_a")
    #expect(try await waiting(a) == 1)
    #expect(try await waiting(b) == 1)
    #expect(try await waiting(other) == 0)
    let unknown = try await transport.send(
      HTTPRequest(method: "GET", origin: "http://cloud.test", path: "/courier", query: "token=x"))
    #expect(unknown.status == 404)
  }

  // MARK: The client

  @Test func `a client subscribes once, and asks an empty courier at most once a second`() async throws {
    let line = PushLine(server(), clock)
    // A courier that has nothing, and says so at once.
    let transport = ScriptedTransport { request, _ in
      request.path == "/courier" ? HTTPResponse(status: 200) : try await line.send(request)
    }
    let client = client(transport)
    let listening = Task { try await client.awaitPush() }
    _ = try await advance(atMost: 10) { false }
    listening.cancel()
    await #expect(throws: (any Error).self) { try await listening.value }
    let polls = transport.sent.count { $0.path == "/courier" }
    #expect((9...11).contains(polls), "\(polls)")
    #expect(line.count("subscriptions/modify") == 1 && line.count("tokens/create") == 1)
  }

  @Test func `a courier that is gone is asked for again, and a twin of the subscription is no error`() async throws {
    let line = PushLine(server(), clock)
    let gone = Mutex(true)
    let transport = ScriptedTransport { request, _ in
      if request.path == "/courier", gone.withLock({ $0 }) { return HTTPResponse(status: 404) }
      if request.path.hasSuffix("subscriptions/modify") {
        return HTTPResponse(
          status: 200,
          body: Array(
            #"{"subscriptions":[{"subscriptionID":"x","serverErrorCode":"INTERNAL_ERROR","reason":"could not find subscription we just created"}]}"#
              .utf8))
      }
      if request.path.hasSuffix("subscriptions/list") {
        return HTTPResponse(
          status: 200, body: Array(#"{"subscriptions":[{"subscriptionID":"y","subscriptionType":"database"}]}"#.utf8))
      }
      return try await line.send(request)
    }
    let client = client(transport)
    for _ in 0..<2 {
      await #expect(throws: CloudError.self) { try await client.awaitPush() }
    }
    #expect(line.count("tokens/create") == 2)
    gone.withLock { $0 = false }
    let listening = Task { try await client.awaitPush() }
    #expect(try await advance(atMost: 5) { line.state.withLock { $0.polls } > 0 })
    listening.cancel()
    _ = await listening.result
    #expect(line.count("tokens/create") == 3)
  }

  @Test func `the three bodies of a push are read, and the address of a courier`() throws {
    for body in [
      #""fet":{"zid":"Docs","zoid":"_ab","sid":"s1"}"#, #""met":{"dbs":1,"sid":"s1","zid":"Docs","zoid":"_ab"},"ce":2"#,
      #""qry":{"rid":"n-1","fo":1,"dbs":0,"sid":"s1","zid":"Docs","zoid":"_ab","af":{}}"#,
    ] {
      let text = #"{"aps":{"content-available":1},"ck":{"nid":"n","cid":"iCloud.x",\#(body)}}"#
      let push = try WireJSON.decode(PushMessage.self, Array(text.utf8)).body
      #expect(push.container == "iCloud.x" && push.notificationID == "n")
      #expect(push.zoneName == "Docs" && push.subscriptionID == "s1")
      // The system hands the same over as a dictionary.
      let object = try JSONSerialization.jsonObject(with: Data(text.utf8))
      let dictionary = try #require(object as? [AnyHashable: Any])
      #expect(RemoteNotification(dictionary)?.container == "iCloud.x")
    }
    for other in [["aps": ["alert": "Hello"]], ["ck": "text"], ["ck": ["nid": "n"]], [:]] as [[AnyHashable: Any]] {
      #expect(RemoteNotification(other) == nil)
    }
  }

  // MARK: The engine

  private func store(_ line: PushLine, _ disk: SimulatedDisk, seed: UInt64, poll: Duration) async throws -> RecordStore
  {
    var configuration = SyncConfiguration(client(line))
    configuration.listensForPushes = true
    configuration.pace.poll = poll
    return try await RecordStore.open(
      at: "/store", syncing: configuration,
      environment: StoreEnvironment(
        SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: seed)), isSimulated: true))
  }

  @Test func `an edit arrives on another device by a push, without a poll`() async throws {
    let server = server()
    let (lineA, lineB) = (PushLine(server, clock), PushLine(server, clock))
    let a = try await store(lineA, SimulatedDisk(), seed: 1, poll: .seconds(3_600))
    let b = try await store(lineB, SimulatedDisk(), seed: 2, poll: .seconds(3_600))
    #expect(
      try await advance(atMost: 60) { lineB.state.withLock { $0.polls } > 0 && lineA.state.withLock { $0.polls } > 0 })
    for number in 0..<5 {
      let asked = lineB.count("changes/database")
      try await a.write { tx in try tx.save(Record(type: "Note", id: RecordID("n\(number)"))) }
      #expect(try await advance(atMost: 60) { try b.record(RecordID("n\(number)")) != nil })
      #expect(lineB.count("changes/database") > asked)
    }
    // A push asks for the list once or twice: what came while it was asked begins one more fetch.
    #expect(lineB.count("changes/database") <= 2 * 6)
    // A notification that the system hands over does the same; one of another container nothing.
    let asked = lineB.count("changes/database")
    #expect(b.syncEngine?.handle(remoteNotification: ["ck": ["cid": "iCloud.other"]]) == false)
    #expect(b.syncEngine?.handle(remoteNotification: ["ck": ["cid": "iCloud.test"]]) == true)
    #expect(try await advance(atMost: 60) { lineB.count("changes/database") == asked + 1 })
    try await a.close()
    try await b.close()
  }

  @Test func `pushes that are lost, late or doubled lose nothing and make no storm`() async throws {
    let server = server()
    let (lineA, lineB) = (PushLine(server, clock), PushLine(server, clock))
    let random = SeededRandom(seed: 11)
    lineB.state.withLock { state in
      state.fates = (0..<60).map { _ in [.arrives, .lost, .doubled, .late][Int(random.below(4))] }
    }
    let a = try await store(lineA, SimulatedDisk(), seed: 1, poll: .seconds(60))
    let b = try await store(lineB, SimulatedDisk(), seed: 2, poll: .seconds(60))
    let begin = clock.monotonicNanoseconds()
    for number in 0..<20 {
      try await a.write { tx in try tx.save(Record(type: "Note", id: RecordID("n\(number)"))) }
      _ = try await advance(atMost: 2, step: 250) { false }
    }
    #expect(
      try await advance(atMost: 180, step: 250) { try (0..<20).allSatisfy { try b.record(RecordID("n\($0)")) != nil } })
    let seconds = Int((clock.monotonicNanoseconds() - begin) / 1_000_000_000)
    #expect(lineB.state.withLock { $0.polls } <= 4 * seconds + 4)
    // Each upload of A causes a push, each push at most two cycles if it is doubled, and polls come besides.
    #expect(lineB.count("changes/database") <= 2 * 22 + 2 * seconds / 30 + 4)
    // A courier that cannot be reached is replaced. The subscription stays.
    #expect(lineB.count("tokens/create") > 1)
    #expect(lineB.count("subscriptions/modify") == 1)
    try await a.close()
    try await b.close()
  }

  @Test func `a courier over sockets hands a push over as soon as it is there`() async throws {
    let local = try LocalServer.run()
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), baseURL: local.url,
      transport: NetworkTransport())
    try await client.createZone(.main)
    let listening = Task { try await client.awaitPush() }
    let other = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), baseURL: local.url,
      transport: NetworkTransport())
    // A push of before the mailbox was there goes nowhere, so it is caused until one arrives.
    let isOver = Atomic(false)
    let writing = Task {
      var number = 0
      while !isOver.load(ordering: .relaxed) {
        _ = try await other.modify(
          [CloudOperation(.create, name: "n\(number)", type: "Note")], in: .main, atomic: false)
        number += 1
      }
    }
    try await listening.value
    isOver.store(true, ordering: .relaxed)
    try await writing.value
    local.stop()
    try local.waitUntilStopped()
  }
}
