// The least time from one request to the next, which a database names: a long sync is no burst, and one request waits for nothing.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

/// A database that wants a quarter of a second between requests, and notes when uploads and pages come.
private final class PacedCloud: ForwardingDatabase {
  let base: any CloudDatabase
  let clock: SimulatedClock
  let times = Mutex<[UInt64]>([])
  let pages = Atomic(0)
  var minimumInterval: Duration { .milliseconds(250) }

  init(_ base: any CloudDatabase, _ clock: SimulatedClock) { (self.base, self.clock) = (base, clock) }

  private func note() { times.withLock { $0.append(clock.monotonicNanoseconds()) } }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    note()
    return try await base.modify(operations, in: zone, atomic: atomic)
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    note()
    pages.add(1, ordering: .relaxed)
    return try await base.zoneChanges(of: queries)
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    note()
    return try await base.databaseChanges(since: token, limit: limit)
  }
}

@Suite(.timeLimit(.minutes(30))) struct RequestIntervalTests {
  @Test func `requests of a sync follow each other no faster than the database wants`() async throws {
    let a = try Fleet().device("a")
    let cloud = PacedCloud(a.web(), a.clock)
    try await a.open(database: cloud) { $0.batch.operations = 1 }
    for number in 0..<5 { try await a.write("n\(number)") }
    let begin = a.clock.monotonicNanoseconds()
    let report = try await a.sync()
    let times = cloud.times.withLock { $0 }
    #expect(report.uploaded == 5)
    #expect(times.count >= 6)
    #expect(zip(times, times.dropFirst()).allSatisfy { $1 - $0 >= 250_000_000 })
    // No wait is longer than it has to be, and none counts as one that a failure or the server has made.
    #expect((a.clock.monotonicNanoseconds() - begin) / 1_000_000 == 250 * UInt64(report.requests - 1))
    #expect(report.waitedMilliseconds == 0)
    // A request that comes later waits for nothing.
    a.clock.advance(milliseconds: 250)
    let later = a.clock.monotonicNanoseconds()
    let requests = try await a.sync().requests
    #expect((a.clock.monotonicNanoseconds() - later) / 1_000_000 == 250 * UInt64(requests - 1))
  }

  @Test func `a sync with a deadline counts the time to the next request`() async throws {
    let a = try Fleet().device("a")
    try await a.open(database: PacedCloud(a.web(), a.clock)) { $0.batch.operations = 1 }
    for number in 0..<20 { try await a.write("n\(number)") }
    let begin = a.clock.monotonicNanoseconds()
    let report = try await a.open().sync(deadline: .seconds(2))
    #expect(report.isUnfinished)
    // The last request is taken to last a second.
    #expect((a.clock.monotonicNanoseconds() - begin) / 1_000_000 <= 1_000)
  }

  @Test func `an erasure that the app takes back during the rest before its request is not sent`() async throws {
    let a = try Fleet().device("a")
    let cloud = PacedCloud(a.web(), a.clock)
    try await a.open(database: cloud)
    try await a.write("n")
    _ = try await a.sync()
    let engine = try await a.open().engine
    try await engine.eraseZone(.main)
    let pages = cloud.pages.load(ordering: .relaxed)
    a.clock.autoAdvance = false
    let sync = Task { try await engine.sync() }
    // The page by which the zone is told from another one under its name is the last request before the erasure.
    while cloud.pages.load(ordering: .relaxed) == pages {
      if a.clock.sleeperCount > 0 { a.clock.advance(milliseconds: 250) }
      await Task.yield()
    }
    while a.clock.sleeperCount == 0 { await Task.yield() }
    try await engine.resumeZone(.main)
    a.clock.autoAdvance = true
    a.clock.advance(milliseconds: 250)
    _ = try await sync.value
    #expect(try await a.web().zones().contains(.main))
    #expect(try await a.open().status().zones.allSatisfy { $0.lostReason == nil })
    #expect(try await a.lives("n"))
  }

  @Test(arguments: [
    ("https://api.apple-cloudkit.com", 250), ("http://example.org:8080", 250), ("http://127.0.0.1:8080", 0),
    ("http://localhost", 0), ("http://[::1]:80", 0), ("no address", 0),
  ])
  func `the network's transports want a quarter of a second, and nothing on this machine`(
    _ origin: String, _ milliseconds: Int
  ) {
    let transports: [any Transport] = [NetworkTransport(), SocketTransport()]
    for transport in transports {
      #expect(transport.minimumInterval(to: origin) == .milliseconds(milliseconds))
      #expect("\(transport)".hasPrefix("transport over sockets"))
    }
    let database = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), baseURL: origin)
    #expect(database.minimumInterval == .milliseconds(milliseconds))
  }
}
