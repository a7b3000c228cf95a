// Goal: what the store says of waits and of what it holds is so: a wait that a person has ended is over for every verb and after a
// relaunch, and a record that is held twice is one record.

import Strandline
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `What a store says of waits and holds` {
  @Test func `a wait that a person has ended is over, and no relaunch waits for it`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.requests[.databaseChanges] = [CloudError(.networkError, reason: "away")]
      script.isForever = true
    }
    for _ in 0..<8 { #expect(try await a.run(waitMillisecondsMax: 0) != nil) }
    #expect(try #require(await a.open().status().waitMilliseconds) > 5_000)
    cloud.refuse { ($0.requests, $0.isForever) = ([:], false) }
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(try await a.open().status().waitMilliseconds == nil)
    try await a.close()
    _ = try await a.openRefusing()
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
  }

  @Test func `a wait that the server has named is not over because it answers before`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    #expect(try await a.run() == nil)
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.throttled, reason: "busy", retryAfter: 3_600)] }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try #require(await a.open().status().waitMilliseconds) > 3_500_000)
  }

  @Test func `a record that cannot be read is one that is held, however often it is shown`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("n", ["title": "one"])
    try await b.run()
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(.badRequest, reason: "unreadable")) }
    #expect(try await a.run() == nil)
    #expect(try await a.open().engine.lastReport?.held == 1)
    let (status, shown) = (try await a.open().status(), try await a.open().engine.status)
    #expect(status.held.count == 1 && shown.held.map(\.count) == [1], "\(status.held)")
  }

  @Test func `a record whose change is refused, and whose version cannot be read, is one that is held`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await b.put("n", ["title": "two"])
    try await b.exchange()
    cloud.refuse { script in
      script.shown["n"] = .failed(name: "n", CloudError(.badRequest, reason: "unreadable"))
      script.items["n"] = [CloudError(.accessDenied, reason: "not you")]
      script.isForever = true
    }
    try await a.write("n", ["text": "mine"])
    _ = try await a.run()
    let (status, shown) = (try await a.open().status(), try await a.open().engine.status)
    // Both causes are named, of one record.
    #expect(status.held.map(\.code) == [.accessDenied, .badRequest] && Set(status.held.map(\.id)).count == 1)
    #expect(shown.held.map(\.count) == [1], "\(shown)")
  }
}
