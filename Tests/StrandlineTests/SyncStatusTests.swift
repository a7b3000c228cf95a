// Goal: an engine can be watched. Each phase, each wait, each hold and each failure shows in its status and in one plain
// sentence; what is exported holds nothing of the user's. Method: the fleet's server behind a cloud that refuses what the test
// names, and followers that read while requests are under way.

import Foundation
import Observation
import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Device {
  fileprivate var status: SyncStatus { get async throws { try await open().engine.status } }
  fileprivate var sentence: String {
    get async throws { try await status.sentence(in: TimeZone(secondsFromGMT: 0) ?? .current) }
  }
}

/// What a follower has seen.
private final class Seen: Sendable {
  private let statuses = Mutex<[SyncStatus]>([])
  func add(_ status: SyncStatus) { statuses.withLock { $0.append(status) } }
  var all: [SyncStatus] { statuses.withLock { $0 } }
}

@Suite(.timeLimit(.minutes(30))) struct `The status of an engine` {
  @Test func `says after a relaunch that it has synced before`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    #expect(try await a.run() == nil)
    #expect(try await a.sentence == "Synced")
    try await a.close()
    try await a.open(database: cloud)
    #expect(try await a.sentence == "Not synced since the start")
    #expect(try await a.run() == nil)
    #expect(try await a.sentence == "Synced")
  }

  @MainActor @Test func `is kept up to date for a view, and ends with the store`() async throws {
    /// Waits until what `look` reads meets a condition, woken as a view is.
    func wait(until isMet: @MainActor () -> Bool) async {
      while true {
        let (changes, continuation) = AsyncStream.makeStream(of: Void.self)
        if withObservationTracking(isMet, onChange: { continuation.yield() }) { return }
        for await _ in changes { break }
      }
    }
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    let live = try await a.open().engine.liveStatus()
    await wait { live.value?.unsettled == 1 }
    #expect(live.value?.needsAttention == [])
    cloud.refuse { $0.items["n"] = [CloudError(.badRequest, reason: "no")] }
    _ = try await a.run()
    await wait { live.value?.needsAttention.map(\.count) == [1] }
    cloud.refuse { $0.items = [:] }
    try await a.open().releaseHolds(of: [RecordID("n")])
    _ = try await a.run()
    await wait { live.value?.unsettled == 0 && live.value?.needsAttention == [] }
    try await a.close()
    await wait { !live.isLive }
    #expect(live.error == nil)
  }

  @Test func `says what is owed, how far an upload is, and what was fetched`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    let store = try await a.open()
    #expect(try await a.sentence == "Not synced yet")
    for number in 0..<450 { try await a.write("n\(number)") }
    a.clock.advance(milliseconds: 5_000)
    var status = try await a.status
    #expect(status.unsettled == 450 && status.phase == .idle && status.upload == nil)
    #expect(try #require(status.oldestUnsettledMilliseconds) >= 5_000)
    #expect(try await a.sentence == "450 changes to upload")
    let seen = Seen()
    cloud.refuse { $0.beforeModify = { _ in seen.add(try await a.status) } }
    #expect(try await a.run() == nil)
    #expect(seen.all.map(\.phase) == [.uploading, .uploading, .uploading])
    #expect(seen.all.map { $0.upload?.done } == [0, 200, 400])
    #expect(seen.all.allSatisfy { $0.upload?.total == 450 })
    #expect(seen.all.map(\.inFlight) == [200, 200, 50])
    #expect(seen.all[1].sentence == "Uploading 200 of 450")
    status = try await a.status
    #expect(status.phase == .idle && status.unsettled == 0 && status.oldestUnsettledMilliseconds == nil)
    #expect(status.lastUploadMilliseconds != nil && status.lastFetchMilliseconds != nil && status.failureCode == nil)
    #expect(status.lastOperation?.failure == nil && status.account?.container == "iCloud.test")
    #expect(try await a.sentence == "Synced")
    // A poll that finds nothing changes no sentence; the first fetch of all does.
    let polls = Seen()
    cloud.refuse {
      $0.refusal = { request, _ in
        if request == .databaseChanges, let engine = try? store.engine { polls.add(engine.status) }
        return nil
      }
    }
    #expect(try await a.run() == nil)
    #expect(polls.all.map(\.phase) == [.fetching] && polls.all.map(\.sentence) == ["Synced"])
    try await b.run()
    #expect(try await b.status.download.records == 450)
    #expect(try await b.status.download.pages >= 1)
  }

  @Test func `names the moment that the server asked for, and the engine's own waits`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    cloud.refuse {
      $0.requests[.modify] = [CloudError(.throttled, reason: "slow down", retryAfter: 3_600, httpStatus: 503)]
    }
    #expect(try await a.run()?.code == .throttled)
    let status = try await a.status
    let wait = try #require(status.wait)
    #expect(status.phase == .waiting && wait.isServers && wait.code == .throttled && wait.reason == "slow down")
    #expect(wait.untilMilliseconds - status.milliseconds > 3_500_000)
    #expect(wait.end.timeIntervalSince(status.date) > 3_500)
    #expect(status.retry?.count == 1 && status.retry?.code == "THROTTLED")
    let sentence = try await a.sentence
    #expect(sentence.wholeMatch(of: #/Paused until \d\d:\d\d: the server asked for it/#) != nil, "\(sentence)")
    // Also before the first run of the next process.
    try await a.close()
    try await a.open(database: cloud)
    #expect(try await a.status.phase == .waiting)
    #expect(try await a.status.wait?.isServers == true)
    a.clock.advance(milliseconds: 3_700_000)
    #expect(try await a.status.wait == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.status.retry == nil)

    cloud.refuse {
      $0.requests[.databaseChanges] = [CloudError(.networkError, reason: "no route")]
      $0.isForever = true
    }
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    #expect(try await a.status.wait?.isServers == false)
    #expect(try await a.sentence.hasSuffix(": the server cannot be reached"))
    #expect(try await a.status.lastOperation?.failure == "NETWORK_ERROR")
    #expect(try await a.status.failureCode == .unreachable)
  }

  @Test func `says the time of day of a time zone, and large numbers with commas`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    let seen = Seen()
    cloud.refuse {
      $0.requests[.modify] = [CloudError(.throttled, reason: "slow down", retryAfter: 3_600, httpStatus: 503)]
      $0.beforeModify = { _ in seen.add(try await a.status) }
    }
    _ = try await a.run()
    var status = try await a.status
    status.wait?.untilMilliseconds = 50_520_000
    func sentence(secondsFromGMT: Int) -> String {
      status.sentence(in: TimeZone(secondsFromGMT: secondsFromGMT) ?? .current)
    }
    #expect(sentence(secondsFromGMT: 0) == "Paused until 14:02: the server asked for it")
    #expect(sentence(secondsFromGMT: 36_000).contains("00:02"))
    #expect(sentence(secondsFromGMT: -54_000).contains("23:02"))
    status = try #require(seen.all.first)
    status.upload?.done = 1_204
    status.upload?.total = 60_000
    #expect(status.sentence == "Uploading 1,204 of 60,000")
  }

  @Test func `counts what is held by cause, and says what needs a person`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["x", "y", "z"] { try await a.write(name) }
    try await a.write("child", ["of": link("z")])
    cloud.refuse { script in
      for name in ["x", "y"] { script.items[name] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 60)] }
      script.items["z"] = [CloudError(.badRequest, reason: "'z' is wrong")]
      script.items["child"] = script.items["z"]
    }
    _ = try await a.run()
    let status = try await a.status
    #expect(status.phase == .needsPerson)
    #expect(status.held.map(\.code) == [.badRequest, .quotaExceeded])
    #expect(status.held.map(\.count) == [2, 2])
    #expect(status.held[0].nextTryMilliseconds == nil && status.held[0].nextTry == nil)
    #expect(try #require(status.held[1].nextTryMilliseconds) - status.milliseconds <= 60_000)
    let records = try await a.open().heldRecords()
    #expect(records.map(\.id.name) == ["child", "x", "y", "z"])
    #expect(records.map { $0.retryDelay == nil } == [true, false, false, true])
    #expect(status.waits.hold == 4 && status.waits.total == 4)
    #expect(try await a.sentence == "4 records need attention: refused by the server, over quota")
    try await a.open().discardChanges(of: [RecordID("z"), RecordID("child")])
    #expect(try await a.sentence == "2 records need attention: over quota")
    a.clock.advance(milliseconds: 61_000)
    #expect(try await a.run() == nil)
    #expect(try await a.sentence == "Synced")
  }

  @Test func `counts waits by what they are for`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("parent")
    try await a.write("child", ["of": link("parent")])
    cloud.refuse {
      $0.items["parent"] = [CloudError(.badRequest, reason: "wrong")]
      $0.items["child"] = [CloudError(.validatingReferenceError, reason: "no parent")]
    }
    _ = try await a.run()
    let waits = try await a.status.waits
    #expect(waits.target == 1 && waits.hold == 1 && waits.total == 2)
    try await a.write("parent", ["title": "right"])
    #expect(try await a.run() == nil)
    #expect(try await a.status.waits == UploadWait.Counts())
  }

  @Test func `a cycle that is cancelled ends no failure, neither in the status nor in the last error`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.authenticationRequired, reason: "who?")] }
    #expect(try await a.run()?.code == .needsSignIn)
    let engine = try await a.open().engine
    let sync = Mutex<Task<Void, any Error>?>(nil)
    cloud.refuse { script in
      script.afterModify = {
        sync.withLock { $0?.cancel() }
        throw CloudError(.networkError, reason: "away")
      }
    }
    try await a.write("n")
    let task = Task {
      while sync.withLock({ $0 == nil }) { await Task.yield() }
      _ = try await a.sync()
    }
    sync.withLock { $0 = task }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await a.status.failureCode == .needsSignIn)
    #expect(engine.lastError?.code == .needsSignIn)
    cloud.refuse { $0.afterModify = nil }
    #expect(try await a.run() == nil)
    #expect(engine.lastError == nil)
  }

  @Test func `names a type that is refused as a whole, a lost zone, and a sign-in that is needed`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let cloud = try await a.openRefusing()
    for number in 0..<3 { try await a.write("n\(number)") }
    cloud.refuse { script in
      for number in 0..<3 { script.items["n\(number)"] = [CloudError(.accessDenied, reason: "not this type")] }
    }
    #expect(try await a.run()?.code == .serverRefused)
    #expect(try await a.status.halts.map(\.type) == ["Note"])
    // One of them is tried again by itself then.
    #expect(try await a.status.halts.map(\.nextTryMilliseconds) == [a.clock.wallMilliseconds() + 300_000])
    #expect(try await a.sentence == "The server refuses every 'Note': not permitted")
    #expect(try await a.run() == nil)
    #expect(try await a.status.halts.isEmpty)

    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.authenticationRequired, reason: "who?")] }
    #expect(try await a.run()?.code == .needsSignIn)
    #expect(try await a.status.phase == .needsPerson)
    #expect(try await a.sentence == "Sign in to go on syncing")

    let key = fleet.database
    try fleet.server.deleteZone(ZoneID.main.name, in: key)
    _ = try await a.run()
    #expect(try await a.status.halts.map(\.code) == [.zoneLost])
    #expect(try await a.sentence == "A zone needs attention: the server does not have it")
  }

  @Test func `says when what the server refuses whole is tried again`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    #expect(try await a.run() == nil)
    cloud.refuse { $0.requests[.modify] = [CloudError(.quotaExceeded, reason: "full")] }
    try await a.write("n")
    #expect(try await a.run()?.code == .serverRefused)
    let halt = try #require(try await a.status.halts.first)
    #expect(halt.type == nil && halt.code == .quotaExceeded)
    let rest = try #require(halt.nextTryMilliseconds) - a.clock.wallMilliseconds()
    #expect((299_000...300_000).contains(rest), "\(rest)")
    let sentence = try await a.sentence
    #expect(sentence.hasPrefix("The iCloud storage is full: ") && sentence.contains(" until "), "\(sentence)")
    #expect(try await a.status.diagnostics().contains("halt: a zone, QUOTA_EXCEEDED, next try in "))
    a.clock.advance(milliseconds: rest)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(try await a.status.halts.isEmpty)
  }

  @Test func `of a store that is suspended or closed says so`() async throws {
    let a = try Fleet().device("a")
    let engine = try await a.open().engine
    try await a.open().suspend()
    #expect(engine.status.phase == .paused && engine.status.sentence == "Paused: the store is suspended")
    try await a.open().resume()
    #expect(engine.status.phase == .idle)
    try await a.close()
    #expect(engine.status.phase == .stopped && engine.status.sentence == "Stopped: the store is closed")
  }

  @Test func `is followed to the close, and a slow reader skips to the newest`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let engine = try await a.open().engine
    var follower = engine.statuses.makeAsyncIterator()
    #expect(try await follower.next()?.unsettled == 0)
    // That anything is owed is said at once; what else is written, with the next step.
    for number in 0..<3 { try await a.write("n\(number)") }
    #expect(try await follower.next()?.unsettled == 3)
    try await a.run()
    // All that happened meanwhile is one.
    #expect(try await follower.next()?.sentence == "Synced")

    let seen = Seen()
    let task = Task {
      for await status in engine.statuses { seen.add(status) }
      return true
    }
    while seen.all.isEmpty { await Task.yield() }
    cloud.refuse { script in
      script.beforeModify = { _ in while seen.all.last?.phase != .uploading { await Task.yield() } }
    }
    try await a.write("m")
    try await a.run()
    while seen.all.last?.sentence != "Synced" { await Task.yield() }
    let cancelled = Task { for await _ in engine.statuses {} }
    cancelled.cancel()
    await cancelled.value
    try await a.close()
    #expect(await task.value)
    #expect(try await follower.next() == nil)
    var late = engine.statuses.makeAsyncIterator()
    #expect(try await late.next() == nil)
  }

  @Test func `201: is exported without anything of the user's`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let zone = ZoneID("SecretZone")
    for name in ["secret-x", "secret-y"] { try await a.write(name, ["title": "secret life"], zone: zone) }
    cloud.refuse { $0.items["secret-x"] = [CloudError(.badRequest, reason: "'secret-x' holds 'secret life'")] }
    _ = try await a.run()
    cloud.refuse {
      $0.requests[.databaseChanges] = [CloudError(.throttled, reason: "secret words", retryAfter: 900, httpStatus: 503)]
    }
    _ = try await a.run()
    let text = try await a.open().diagnostics()
    #expect(text.contains("held: 1 changes, BAD_REQUEST, until a person acts\n"))
    #expect(text.contains("the server's, THROTTLED\n") && text.contains("unsettled: 1\n"))
    #expect(!text.lowercased().contains("secret"))
  }

  @Test func `comes with a log, at the level that the app asks for`() async throws {
    for level in SyncLogLevel.allCases {
      let fleet = try Fleet()
      let a = fleet.device("a")
      let cloud = RefusingCloud(a)
      let lines = Mutex<[(level: SyncLogLevel, line: String)]>([])
      var configuration = SyncConfiguration(cloud)
      configuration.isAutomatic = false
      configuration.log = SyncLog(from: level) { level, line in lines.withLock { $0.append((level, line)) } }
      let store = try await RecordStore.open(at: "/log", syncing: configuration, environment: a.environment)
      try await store.write { tx in
        for name in ["x", "y"] { try tx.save(Record(type: "Note", id: RecordID(name))) }
      }
      cloud.refuse {
        $0.items["x"] = [CloudError(.badRequest, reason: "bad\nwords")]
        $0.requests[.lookup] = []
        $0.requests[.databaseChanges] = [CloudError(.serviceUnavailable, reason: "busy", httpStatus: 503)]
      }
      _ = try await store.sync()
      // Said once.
      _ = try await store.sync()
      cloud.refuse { $0.requests[.user] = [CloudError(.accessDenied, reason: "no")] }
      cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.accessDenied, reason: "no")] }
      await #expect(throws: StrandlineError.self) { try await store.sync() }
      try await store.close()
      let found = lines.withLock { $0 }
      #expect(found.allSatisfy { $0.level >= level && !$0.line.contains("\n") })
      func count(_ of: SyncLogLevel, _ text: String) -> Int { found.count { $0.level == of && $0.line.contains(text) } }
      #expect(count(.notice, "holds 'Main/x', until a person acts: BAD_REQUEST") == (level <= .notice ? 1 : 0))
      #expect(count(.info, "waits ") == (level <= .info ? 1 : 0))
      #expect(count(.info, "cycle ended: ") == (level <= .info ? 2 : 0))
      #expect(count(.debug, "request: upload") == (level == .debug ? 2 : 0), "the zone, and the batch")
      #expect(count(.error, "cycle failed: ") == 1)
    }
  }

  @Test func `of one database says nothing of another's records, and costs no request`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for _ in 0..<10 { _ = try await a.status }
    #expect(cloud.requestCount == 0)
  }
}
