// Goal: a session is never lost by a crash and its requests never overlap. Method: the local server with rotation
// switched on, on a simulated disk; and a transport that looks at the disk when a request goes out.

import Strandline
import StrandlineCloudKit
import StrandlineLogProofs
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

extension SystemEnvironment {
  static func on(_ disk: any FileSystem) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(wallMilliseconds: now, autoAdvance: false), random: SeededRandom(seed: 3))
  }
}

@Suite(.timeLimit(.minutes(30)))
struct SessionTests {
  private func server(strict: Bool = false) -> CloudServer {
    var faults = ServerFaults()
    faults.requireSession = true
    faults.strictRotation = strict
    return CloudServer(inMemory: .on(SimulatedDisk()), faults: faults)
  }

  @Test(arguments: [false, true])
  func `each answer brings the next token, and it is on the disk before it is sent`(_ strict: Bool) async throws {
    let server = server(strict: strict)
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    let inner = InProcessTransport(server)
    let transport = ScriptedTransport { request, _ in
      // What a crash at this moment would leave is the token that this request carries.
      let image = disk.imageAfterCrash(.none)
      let kept = image.peek("/session").map { String(decoding: $0, as: UTF8.self).trimmingSpaces() } ?? ""
      #expect(request.query == (kept.isEmpty ? "" : "ckWebAuthToken=" + PercentEncoding.encode(kept)))
      return try await inner.send(request)
    }
    let client = WebServicesDatabase.over(transport, session: session)
    let unsigned = try await refusal { _ = try await client.zones() }
    #expect(unsigned?.code == .authenticationRequired)
    #expect(unsigned?.redirectURL == "http://cloud.test/signin")
    #expect(!session.hasToken)
    try session.signIn(token: server.signIn(user: "_alice"))
    for _ in 0..<5 { _ = try await client.zones() }
    #expect(try await client.user() == "_alice")
    // A process that dies now and starts again goes on with the token that the disk holds.
    let again = try WebSession(path: "/session", environment: .on(disk.imageAfterCrash(.none)))
    let other = WebServicesDatabase.over(inner, session: again)
    #expect(try await other.user() == "_alice")
  }

  /// A store with a session beside two others that have their own.
  private func stores() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    for path in [FolderFate.path, FolderFate.otherPath, FolderFate.olderPath] {
      try disk.makeDirectory(path)
      disk.poke(path + "/file", Array(path.utf8))
      if path != FolderFate.path { disk.poke(path + "/session", Array("\(path.dropFirst())\n".utf8)) }
    }
    try disk.folder("/").sync()
    return disk
  }

  private func befall(_ fate: FolderFate, _ disk: SimulatedDisk, _ copy: [String: [UInt8]]) throws -> [String: [UInt8]]
  {
    _ = try fate.befall(disk, copy) { disk in
      try disk.makeDirectory(FolderFate.path)
      try WebSession(path: FolderFate.path + "/session", environment: .on(disk)).signIn(token: "second")
    }
    return disk.files(in: FolderFate.path)
  }

  @Test(arguments: FolderFate.allCases)
  func `a store that takes the place of the one beside the session does not get its token`(_ fate: FolderFate) throws {
    var call: Int? = nil
    while true {
      let disk = try stores()
      let session = try WebSession(path: FolderFate.path + "/session", environment: .on(disk))
      try session.signIn(token: "first")
      let copy = disk.files(in: FolderFate.path)
      let put = Mutex<Result<[String: [UInt8]], any Error>?>(nil)
      let meet: @Sendable () -> Void = {
        let result = Result { try befall(fate, disk, copy) }
        put.withLock { $0 = result }
      }
      if let call { disk.interrupt(beforeCall: disk.callCount + call, meet) } else { meet() }
      let outcome = Result { try session.signIn(token: "mine") }
      disk.endInterruption()
      guard let there = try put.withLock({ try $0?.get() }) else { break }
      let comment: Comment = "\(fate), call \(call ?? 0)"
      if case .failure(let error) = outcome { #expect(fate.isRemoved, "\(comment): \(error)") }
      for disk in [disk, disk.imageAfterCrash(using: SeededRandom(seed: UInt64(call ?? 0)))] {
        // In the same folder the session's file is the one of this path, for whoever signs in last.
        var found = disk.files(in: FolderFate.path)
        var expected = there
        if fate.isInFolder || fate.goesOn {
          for name in ["/session", "/session.tmp"] {
            found[name] = nil
            expected[name] = nil
          }
        }
        #expect(found == expected, comment)
        guard let kept = fate.keptPath, (try? outcome.get()) != nil else { continue }
        #expect(disk.peek(kept + "/session").map { String(decoding: $0, as: UTF8.self) } == "mine\n", comment)
      }
      call = (call ?? 0) + 1
    }
    #expect((call ?? 0) > 3)
  }

  @Test(arguments: FolderFate.allCases)
  func `the token of an answer is written into no other store`(_ fate: FolderFate) async throws {
    let server = server()
    let disk = try stores()
    let session = try WebSession(path: FolderFate.path + "/session", environment: .on(disk))
    let first = server.signIn(user: "_alice")
    try session.signIn(token: first)
    let copy = disk.files(in: FolderFate.path)
    let put = Mutex<[String: [UInt8]]>([:])
    let inner = InProcessTransport(server)
    let transport = ScriptedTransport { request, number in
      let answer = try await inner.send(request)
      guard number == 1 else { return answer }
      let there = try self.befall(fate, disk, copy)
      put.withLock { $0 = there }
      return answer
    }
    #expect(try await WebServicesDatabase.over(transport, session: session).user() == "_alice")
    for disk in [disk, disk.imageAfterCrash(using: SeededRandom(seed: 1))] {
      // Where its own token lies it goes on, in a copy of its own as well.
      if fate.goesOn || fate == .overwrittenBySameSession {
        let token = disk.peek(FolderFate.path + "/session").map { String(decoding: $0, as: UTF8.self) }
        #expect(token != first + "\n" && token?.isEmpty == false)
      } else {
        #expect(disk.files(in: FolderFate.path) == put.withLock { $0 }, "\(fate)")
      }
    }
  }

  @Test func `a token that was refused is read again where the session's file is now`() throws {
    let disk = SimulatedDisk()
    try disk.makeDirectory("/store")
    let session = try WebSession(path: "/store/session", environment: .on(disk))
    try session.signIn(token: "first")
    try disk.renameFolder("/store", to: "/moved")
    try disk.makeDirectory("/store")
    try WebSession(path: "/store/session", environment: .on(disk)).signIn(token: "second")
    session.markRefused()
    #expect(try session.tokenForRequest() == "second")
  }

  /// What another process does with the session's file while a request of this one is on its way.
  enum Meanwhile: CaseIterable, Sendable { case signsOut, signsIn, putsAnotherStoreThere }

  @Test(arguments: Meanwhile.allCases)
  func `the token of an answer is not written over what another process has done since`(_ what: Meanwhile)
    async throws
  {
    let server = server()
    let disk = SimulatedDisk()
    try disk.makeDirectory("/store")
    let session = try WebSession(path: "/store/session", environment: .on(disk))
    try session.signIn(token: server.signIn(user: "_alice"))
    let bobs = server.signIn(user: "_bob")
    let inner = InProcessTransport(server)
    let transport = ScriptedTransport { request, number in
      let answer = try await inner.send(request)
      guard number == 1 else { return answer }
      switch what {
      case .signsOut: try WebSession(path: "/store/session", environment: .on(disk)).signOut()
      case .signsIn: try WebSession(path: "/store/session", environment: .on(disk)).signIn(token: bobs)
      case .putsAnotherStoreThere: disk.poke("/store/session", Array((bobs + "\n").utf8))
      }
      return answer
    }
    let client = WebServicesDatabase.over(transport, session: session)
    #expect(try await client.user() == "_alice")
    let kept = disk.peek("/store/session").map { String(decoding: $0, as: UTF8.self).trimmingSpaces() }
    #expect(kept == (what == .signsOut ? nil : bobs))
    if what == .signsOut {
      #expect(!session.hasToken)
      #expect(try await refusal { _ = try await client.user() }?.code == .authenticationRequired)
    } else {
      #expect(try await client.user() == "_bob")
    }
  }

  @Test func `a token that another process has brought further is read again, and the request made once more`()
    async throws
  {
    let server = server(strict: true)
    let disk = SimulatedDisk()
    let first = try WebSession(path: "/session", environment: .on(disk))
    try first.signIn(token: server.signIn(user: "_alice"))
    let client = WebServicesDatabase.over(InProcessTransport(server), session: first)
    #expect(try await client.user() == "_alice")
    let second = try WebSession(path: "/session", environment: .on(disk))
    let other = WebServicesDatabase.over(InProcessTransport(server), session: second)
    for _ in 0..<3 { #expect(try await other.user() == "_alice") }
    #expect(try await client.user() == "_alice")
    #expect(try await other.user() == "_alice")
  }

  @Test func `a session that another process brings further before each request is not sent to a sign-in`()
    async throws
  {
    let server = server(strict: true)
    let disk = SimulatedDisk()
    let first = try WebSession(path: "/session", environment: .on(disk))
    try first.signIn(token: server.signIn(user: "_alice"))
    let second = try WebSession(path: "/session", environment: .on(disk))
    let inner = InProcessTransport(server)
    let other = WebServicesDatabase.over(inner, session: second)
    let races = Mutex(0)
    let transport = ScriptedTransport { request, _ in
      // The other process is faster, so often.
      let isFaster = races.withLock { races in
        defer { races -= 1 }
        return races > 0
      }
      if isFaster { #expect(try await other.user() == "_alice") }
      return try await inner.send(request)
    }
    let client = WebServicesDatabase.over(transport, session: first)
    #expect(try await client.user() == "_alice")
    races.withLock { $0 = 5 }
    #expect(try await client.user() == "_alice")
    #expect(transport.sent.count == 7)
    races.withLock { $0 = 100 }
    #expect(try await refusal { _ = try await client.user() }?.code == .authenticationRequired)
    races.withLock { $0 = 0 }
    #expect(try await client.user() == "_alice")
  }

  @Test func `a request without a token is made again if another process has signed in meanwhile`() async throws {
    let server = server(strict: true)
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    let inner = InProcessTransport(server)
    let transport = ScriptedTransport { request, number in
      let answer = try await inner.send(request)
      if number == 1 {
        try WebSession(path: "/session", environment: .on(disk)).signIn(token: server.signIn(user: "_alice"))
      }
      return answer
    }
    let client = WebServicesDatabase.over(transport, session: session)
    #expect(try await client.user() == "_alice")
  }

  @Test func `a token that is refused once, and wrongly, is taken seconds later, and at once for a person`()
    async throws
  {
    for isPersons in [false, true] {
      let clock = SimulatedClock(wallMilliseconds: now, autoAdvance: false)
      let environment = SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: 3))
      let session = try WebSession(path: "/session", environment: environment)
      let server = server()
      try session.signIn(token: server.signIn())
      let inner = InProcessTransport(server)
      let transport = ScriptedTransport { request, number in
        number == 1 ? HTTPResponse(status: 421) : try await inner.send(request)
      }
      let client = WebServicesDatabase(
        address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: session,
        baseURL: "http://cloud.test",
        transport: transport, environment: environment)
      for _ in 0..<2 {
        #expect(try await refusal { _ = try await client.zones() }?.code == .authenticationRequired)
        #expect(transport.sent.count == 1)
      }
      if isPersons { client.beginCycle(isUserInitiated: true) } else { clock.advance(milliseconds: 4_000) }
      #expect(try await refusal { _ = try await client.zones() } == nil)
      #expect(transport.sent.count == 2)
    }
  }

  @Test func `a token that is refused for good is sent less and less, at last once an hour, and another one at once`()
    async throws
  {
    let clock = SimulatedClock(wallMilliseconds: now, autoAdvance: false)
    let environment = SystemEnvironment(
      fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: 3))
    let session = try WebSession(path: "/session", environment: environment)
    try session.signIn(token: "dead")
    let sent = Mutex(0)
    let transport = ScriptedTransport { _, _ in
      sent.withLock { $0 += 1 }
      return HTTPResponse(
        status: 421,
        body: Array(
          #"{"serverErrorCode":"AUTHENTICATION_REQUIRED","reason":"no","redirectURL":"http://cloud.test/signin"}"#.utf8)
      )
    }
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: session,
      baseURL: "http://cloud.test",
      transport: transport, environment: environment)
    for _ in 0..<72 {
      let error = try await refusal { _ = try await client.zones() }
      #expect(error?.code == .authenticationRequired && error?.redirectURL == "http://cloud.test/signin")
      clock.advance(milliseconds: 300_000)
    }
    #expect(sent.withLock { $0 } == 15)
    // For a person, once; and whenever someone has signed in.
    for signsIn in [nil, "dead2", "dead2"] {
      let before = sent.withLock { $0 }
      if let signsIn { try session.signIn(token: signsIn) } else { client.beginCycle(isUserInitiated: true) }
      for _ in 0..<3 { _ = try await refusal { _ = try await client.zones() } }
      #expect(sent.withLock { $0 } == before + 1)
    }
  }

  @Test func `a lost answer does not lose the session, unless the server is strict`() async throws {
    for strict in [false, true] {
      let server = server(strict: strict)
      let session = try WebSession(path: "/session", environment: .on(SimulatedDisk()))
      try session.signIn(token: server.signIn())
      let inner = InProcessTransport(server)
      let transport = ScriptedTransport { request, number in
        let answer = try await inner.send(request)
        if number == 2 { throw CloudError(.networkError, reason: "cut") }
        return answer
      }
      let client = WebServicesDatabase.over(transport, session: session)
      _ = try await client.zones()
      #expect(try await refusal { _ = try await client.zones() }?.code == .networkError)
      let third = try await refusal { _ = try await client.zones() }
      #expect(third?.code == (strict ? .authenticationRequired : nil))
      // A new sign-in clears it.
      try session.signIn(token: server.signIn())
      _ = try await client.zones()
    }
  }

  @Test func `at every power cut the file holds a token that the server takes`() async throws {
    let whole = SimulatedDisk()
    func run(_ disk: SimulatedDisk, _ server: CloudServer) async throws {
      let session = try WebSession(path: "/session", environment: .on(disk))
      try session.signIn(token: server.signIn())
      let client = WebServicesDatabase.over(InProcessTransport(server), session: session)
      for _ in 0..<3 { _ = try await client.zones() }
    }
    try await run(whole, server())
    // create, write, sync, rename, sync of the folder
    let signedIn = 5
    #expect(whole.callCount > 3 * signedIn)
    for call in (signedIn + 1)...whole.callCount {
      // Trying a token uses it up, so each choice of losses gets a history of its own.
      var choice = 0
      while true {
        let disk = SimulatedDisk()
        disk.crashAtCall = call
        disk.isTearing = true
        let server = server()
        // After the cut the session file cannot be written, so every request fails before it is sent.
        do { try await run(disk, server) } catch let error as StrandlineError { #expect(error.code == .io) }
        let losses = disk.crashLosses()
        guard choice < losses.count else { break }
        let image = disk.imageAfterCrash(losses[choice])
        choice += 1
        let session = try WebSession(path: "/session", environment: .on(image))
        #expect(session.hasToken, "cut at call \(call), \(losses[choice - 1])")
        let client = WebServicesDatabase.over(InProcessTransport(server), session: session)
        let error = try await refusal { _ = try await client.zones() }
        #expect(error == nil, "cut at call \(call), \(losses[choice - 1])")
      }
    }
  }

  @Test func `the token that a too large answer brings is kept`() async throws {
    let server = server(strict: true)
    let session = try WebSession(path: "/session", environment: .on(SimulatedDisk()))
    try session.signIn(token: server.signIn())
    let inner = InProcessTransport(server)
    let transport = ScriptedTransport { request, number in
      let answer = try await inner.send(request)
      guard number == 2 else { return answer }
      throw AnswerTooLarge(
        head: HTTPResponse(status: answer.status, headers: answer.headers), description: "larger than 5 bytes")
    }
    let client = WebServicesDatabase.over(transport, session: session)
    _ = try await client.zones()
    let error = try await refusal { _ = try await client.zones() }
    #expect(error?.code == .answerTooLarge && error?.reason == "larger than 5 bytes")
    #expect(try await refusal { _ = try await client.zones() } == nil)
  }

  @Test func `a token that cannot be written is not sent, and not lost`() async throws {
    let server = server()
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    try session.signIn(token: server.signIn())
    let transport = ScriptedTransport { [inner = InProcessTransport(server)] in
      let answer = try await inner.send($0)
      _ = $1
      return answer
    }
    let client = WebServicesDatabase.over(transport, session: session)
    disk.capacity = disk.usedBytes
    _ = try await client.zones()
    let error = await #expect(throws: StrandlineError.self) { _ = try await client.zones() }
    #expect(error?.code == .diskFull)
    #expect(transport.sent.count == 1)
    disk.capacity = nil
    _ = try await client.zones()
  }

  @Test func `a token that another process wrote to the file is read after a refusal`() async throws {
    let server = server()
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    try session.signIn(token: "nonsense")
    let client = WebServicesDatabase.over(InProcessTransport(server), session: session)
    #expect(try await refusal { _ = try await client.zones() }?.code == .authenticationRequired)
    try WebSession(path: "/session", environment: .on(disk)).signIn(token: server.signIn())
    _ = try await client.zones()
    for garbage in ["two words", "\u{1}", "ü", String(repeating: "x", count: 20_000)] {
      disk.poke("/other", Array(garbage.utf8))
      #expect(throws: StrandlineError.self) { try WebSession(path: "/other", environment: .on(disk)) }
      #expect(throws: StrandlineError.self) { try session.signIn(token: garbage) }
    }
  }

  @Test func `the answer to a request of before a sign-in, or a sign-out, does not replace what that has left`()
    async throws
  {
    for signsOut in [false, true] {
      let server = server()
      let disk = SimulatedDisk()
      let session = try WebSession(path: "/session", environment: .on(disk))
      try session.signIn(token: server.signIn(user: "_alice"))
      let inner = InProcessTransport(server)
      let transport = ScriptedTransport { request, number in
        let answer = try await inner.send(request)
        if number == 1 {
          if signsOut { try session.signOut() } else { try session.signIn(token: server.signIn(user: "_bob")) }
        }
        return answer
      }
      let client = WebServicesDatabase.over(transport, session: session)
      #expect(try await client.user() == "_alice")
      guard !signsOut else {
        #expect(!session.hasToken && disk.paths.isEmpty)
        #expect(try await refusal { _ = try await client.user() }?.code == .authenticationRequired)
        continue
      }
      #expect(try await client.user() == "_bob")
    }
  }

  @Test func `an answer to one user's token says nothing of who has signed in meanwhile`() async throws {
    let server = server(strict: false)
    let session = try WebSession(path: "/session", environment: .on(SimulatedDisk()))
    try session.signIn(token: server.signIn(user: "_alice"))
    let (bob, inner) = (server.signIn(user: "_bob"), InProcessTransport(server))
    let isDue = Mutex(true)
    let transport = ScriptedTransport { request, _ in
      let answer = try await inner.send(request)
      let isNow = isDue.withLock { isDue in
        defer { isDue = false }
        return isDue
      }
      if isNow { try session.signIn(token: bob) }
      return answer
    }
    let restricted = WebServicesDatabase.over(transport, session: session).restricted(to: "_alice")
    await #expect { _ = try await restricted.zones() } throws: { ($0 as? StrandlineError)?.code == .accountMismatch }
    #expect(transport.sent.map(\.path.lastPart) == ["caller"])
  }

  /// Says another user's name each time.
  private struct ChangingUser: ForwardingDatabase {
    let base: any CloudDatabase
    let next: @Sendable () -> String
    func user() async throws -> String { next() }
  }

  @Test func `what went into another user's database is not sent`() async throws {
    let server = server(strict: false)
    let session = try WebSession(path: "/session", environment: .on(SimulatedDisk()))
    try session.signIn(token: server.signIn(user: "_bob"))
    let names = Mutex(["_alice", "_bob"])
    let database = ChangingUser(base: WebServicesDatabase.over(InProcessTransport(server), session: session)) {
      names.withLock { $0.removeFirst() }
    }
    await #expect {
      try await database.restricted(to: "_alice").createZone(ZoneID("Notes"))
    } throws: {
      ($0 as? StrandlineError)?.code == .accountMismatch
    }
    #expect(names.withLock { $0.isEmpty })
  }

  @Test(arguments: [false, true])
  func `a token from outside that is another user's is sent with nothing but the question whose it is`(
    _ isByFile: Bool
  ) async throws {
    let server = server(strict: true)
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    try session.signIn(token: server.signIn(user: "_alice"))
    let inner = InProcessTransport(server)
    let isRefusing = Mutex(false)
    let transport = ScriptedTransport { request, _ in
      let refuses = isRefusing.withLock { isRefusing in
        defer { isRefusing = false }
        return isRefusing
      }
      return refuses ? HTTPResponse(status: 421) : try await inner.send(request)
    }
    let client = WebServicesDatabase.over(transport, session: session)
    let restricted = client.restricted(to: "_alice")
    #expect(try await client.user() == "_alice")
    _ = try await restricted.zones()
    // By rotation it stays the same user's: nobody asks again.
    #expect(transport.sent.map(\.path.lastPart) == ["caller", "list"])
    let token = server.signIn(user: "_bob")
    if isByFile {
      try WebSession(path: "/session", environment: .on(disk)).signIn(token: token)
      isRefusing.withLock { $0 = true }
    } else {
      try session.signIn(token: token)
    }
    for database in [client, restricted] {
      let error = await #expect(throws: StrandlineError.self) {
        try await database.createZone(ZoneID("Hers"))
      }
      #expect(error?.code == .accountMismatch)
    }
    #expect(transport.sent.dropFirst(isByFile ? 3 : 2).map(\.path.lastPart) == ["caller"])
    // The one who was asked is of the new user from now on, and the other one is not.
    #expect(try await client.user() == "_bob")
    #expect(await #expect(throws: StrandlineError.self) { try await restricted.user() }?.code == .accountMismatch)
    _ = try await client.zones()
    #expect(await #expect(throws: StrandlineError.self) { try await restricted.zones() }?.code == .accountMismatch)
    // The user is back.
    try session.signIn(token: server.signIn(user: "_alice"))
    _ = try await restricted.zones()
    #expect(await #expect(throws: StrandlineError.self) { try await client.zones() }?.code == .accountMismatch)
  }

  @Test func `requests of one session never overlap, across databases`() async throws {
    let session = try WebSession(path: "/session", environment: .on(SimulatedDisk()))
    try session.signIn(token: "t")
    let inFlight = Mutex(0)
    let transport = ScriptedTransport { _, _ in
      #expect(
        inFlight.withLock {
          $0 += 1; return $0
        } == 1)
      for _ in 0..<5 { await Task.yield() }
      inFlight.withLock { $0 -= 1 }
      return HTTPResponse(status: 200, body: Array("{\"zones\":[]}".utf8))
    }
    let databases = [DatabaseScope.private, .shared].map {
      WebServicesDatabase.over(transport, scope: $0, session: session)
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for index in 0..<20 { group.addTask { _ = try await databases[index % 2].zones() } }
      try await group.waitForAll()
    }
    #expect(transport.sent.count == 20)
  }

  @Test func `a cancelled wait leaves the queue to others`() async throws {
    let queue = RequestQueue()
    let (gate, opener) = AsyncStream<Never>.makeStream()
    let (started, starting) = AsyncStream<Void>.makeStream()
    let holder = Task {
      try await queue.run {
        starting.finish()
        for await _ in gate {}
      }
    }
    for await _ in started {}
    let waiting = Task { try await queue.run { Issue.record("it ran") } }
    waiting.cancel()
    await #expect(throws: CancellationError.self) { try await waiting.value }
    opener.finish()
    try await holder.value
    #expect(try await queue.run { 5 } == 5)
  }
}

extension String {
  /// What follows the last slash.
  fileprivate var lastPart: String { split(separator: "/").last.map(String.init) ?? "" }
}
