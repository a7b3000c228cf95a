// Goal: a first launch knows when everything is here, and no later one waits for it. Method: a server with some pages of records; a
// new device whose requests fail, whose process ends, or whose zone is gone.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A wait for the first fetch` {
  /// A device that has sent seven records, and a new one that gets two a page.
  private func devices() async throws -> (old: Device, new: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (old, new) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<7 { try await old.put("n\(number)", ["title": "one"]) }
    try await old.exchange()
    let cloud = try await new.openRefusing()
    cloud.refuse { $0.pageMax = 2 }
    return (old, new, cloud)
  }

  private static func failure(of wait: () async throws -> Void) async -> StrandlineError.Code? {
    do { try await wait() } catch { return (error as? StrandlineError)?.code }
    return nil
  }

  @Test func `ends when all is here, and later ones ask for nothing`() async throws {
    let (old, new, cloud) = try await devices()
    let store = try await new.open()
    try await store.engine.fetched()
    #expect(store.recordCount == 7)
    let count = cloud.requestCount
    try await store.engine.fetched()
    try await new.close()
    let offline = try await new.openRefusing()
    offline.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "offline") } }
    try await new.open().engine.fetched()
    #expect(cloud.requestCount == count && offline.requestCount == 0)
    // What is new since then is no part of it.
    try await old.put("later", ["title": "two"])
    try await old.exchange()
    offline.refuse {
      $0.refusal = { request, _ in request == .zoneChanges ? CloudError(.networkError, reason: "x") : nil }
    }
    #expect(try await new.run() != nil)
    try await new.open().engine.fetched()
    #expect(try await new.open().recordCount == 7)
  }

  @Test func `goes on where a process has ended`() async throws {
    let (_, new, cloud) = try await devices()
    cloud.refuse { $0.beforePage = { number in if number >= 3 { throw CloudError(.networkError, reason: "away") } } }
    #expect(await Self.failure { try await new.open().engine.fetched() } == .unreachable)
    #expect(try await new.open().recordCount == 4)
    new.crash()
    let again = try await new.openRefusing()
    again.refuse { $0.pageMax = 2 }
    try await new.open().engine.fetched()
    #expect(try await new.open().recordCount == 7)
    #expect(again.script.withLock { $0.queries.count } == 2)
  }

  @Test func `throws what only a person ends`() async throws {
    let (_, new, cloud) = try await devices()
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.authenticationRequired, reason: "who?")] }
    #expect(await Self.failure { try await new.open().engine.fetched() } == .needsSignIn)
    try await new.open().engine.fetched()
    let store = try await new.open()
    let engine = try store.engine
    try await new.close()
    #expect(await Self.failure { try await engine.fetched() } == .closed)
  }

  @Test func `lasts as long as an automatic engine tries again, and no longer`() async throws {
    let (_, new, cloud) = try await devices()
    try await new.close()
    cloud.refuse { script in
      script.requests[.databaseChanges] = (0..<4).map { _ in CloudError(.networkError, reason: "away") }
      script.requests[.zoneChanges] = [CloudError(.zoneBusy, reason: "busy")]
    }
    let begun = new.clock.wallMilliseconds()
    let store = try await new.open(database: cloud) { $0.isAutomatic = true }
    try await store.engine.fetched()
    #expect(store.recordCount == 7)
    #expect(new.clock.wallMilliseconds() - begun > 1_000)
    try await new.close()
  }

  @Test func `ends with the suspension of its store between two tries, and a call after it goes on`() async throws {
    let (_, new, cloud) = try await devices()
    try await new.close()
    cloud.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "away") } }
    new.clock.autoAdvance = false
    let store = try await new.open(database: cloud) { $0.isAutomatic = true }
    let ended = Mutex(false)
    let waiting = Task {
      defer { ended.withLock { $0 = true } }
      try await store.engine.fetched()
    }
    for await status in try store.engine.statuses where status.failureCode == .unreachable { break }
    while new.clock.sleeperCount == 0 { await Task.yield() }
    try await store.suspend()
    for _ in 0..<100_000 where !ended.withLock({ $0 }) { await Task.yield() }
    waiting.cancel()
    #expect(await Self.failure { try await waiting.value } == .suspended)
    new.clock.autoAdvance = true
    cloud.refuse { $0.refusal = nil }
    try await store.resume()
    try await store.engine.fetched()
    #expect(store.recordCount == 7)
    try await new.close()
  }

  @Test func `throws the loss of a zone that is deleted before all of it is here`() async throws {
    let (_, new, cloud) = try await devices()
    cloud.refuse { script in
      script.beforePage = { [web = cloud.web] number in if number == 2 { try await web.deleteZone(.main) } }
    }
    let store = try await new.open()
    let engine = try store.engine
    #expect(await Self.failure { try await engine.fetched() } == .zoneLost)
    // As the log has it: also where the next call finds nothing new at the server, and after a relaunch.
    #expect(await Self.failure { try await engine.fetched() } == .zoneLost)
    try await new.close()
    let again = try await new.openRefusing()
    #expect(await Self.failure { try await new.open().engine.fetched() } == .zoneLost)
    #expect(again.requestCount == 0)
  }

  @Test func `of an engine that is not automatic is one cycle, and ends with its error`() async throws {
    let (_, new, cloud) = try await devices()
    cloud.refuse {
      $0.beforePage = { number in if number >= 2 { throw CloudError(.zoneBusy, reason: "later, please") } }
    }
    var failed: StrandlineError?
    do { try await new.open().engine.fetched() } catch { failed = error as? StrandlineError }
    #expect(failed?.code == .throttled && failed?.message.contains("later, please") == true, "\(failed as Any)")
    #expect(try await new.open().recordCount == 2)
    cloud.refuse { $0.beforePage = nil }
    try await new.open().engine.fetched()
    #expect(try await new.open().recordCount == 7)
  }

  @Test @MainActor func `has its progress beside it`() async throws {
    let (_, new, cloud) = try await devices()
    let store = try await new.open()
    let live = try store.engine.liveStatus()
    let (reached, go) = (AsyncStream<Void>.makeStream(), AsyncStream<Void>.makeStream())
    cloud.refuse { script in
      script.beforePage = { number in
        guard number == 3 else { return }
        reached.continuation.finish()
        for await _ in go.stream {}
      }
    }
    let ended = Mutex(false)
    let waiting = Task { [engine = try store.engine] in
      defer { ended.withLock { $0 = true } }
      try await engine.fetched()
    }
    for await _ in reached.stream {}
    // The third page is asked for, and a part of the records is here.
    for _ in 0..<100_000 where (live.value?.download.records ?? 0) == 0 { await Task.yield() }
    #expect((1...4).contains(live.value?.download.records ?? 0) && live.value?.download.zonesLeft == 1)
    #expect(!ended.withLock { $0 })
    go.continuation.finish()
    try await waiting.value
    #expect(try store.engine.status.download.records == 7 && store.engine.status.download.zonesLeft == 0)
  }

  @Test func `ends with its task`() async throws {
    let (_, new, cloud) = try await devices()
    try await new.close()
    cloud.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "away") } }
    let store = try await new.open(database: cloud) { $0.isAutomatic = true }
    let waiting = Task { try await store.engine.fetched() }
    for await status in try store.engine.statuses where status.failureCode == .unreachable { break }
    waiting.cancel()
    await #expect(throws: CancellationError.self) { try await waiting.value }
    try await new.close()
  }
}
