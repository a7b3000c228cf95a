// Goal: a wait that outlasts the process ends on time, whatever the user does to the clock and however often the app is relaunched;
// and a run that cannot even begin is not made again at once for a moment that is over.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct LoggedWaitTests {
  private let busy = CloudError(.throttled, reason: "busy", retryAfter: 3_600)

  @Test
  func `a wait that the server names ends on time, though the clock was turned back and the app is relaunched often`()
    async throws
  {
    let a = try Fleet().device("a")
    try await a.openRefusing().refuse { $0.requests[.databaseChanges] = [busy] }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - 86_400_000)
    for _ in 0..<3 {
      let cloud = try await a.openRefusing()
      #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
      #expect(cloud.count(.databaseChanges) == 0)
      a.clock.advance(milliseconds: 25 * 60_000)
    }
    _ = try await a.openRefusing()
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
  }

  @Test func `a wait that the server names does not end early because the clock was turned forward`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[.databaseChanges] = [busy] }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() + 86_400_000)
    a.clock.advance(milliseconds: 3_599_000)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    #expect(cloud.count(.databaseChanges) == 1)
    a.clock.advance(milliseconds: 1_000)
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
  }

  @Test func `a clock that is turned back during a wait, and put right, is not behind the server's`() async throws {
    let hours: Int64 = 3 * 3_600_000
    let a = try Fleet().device("a", clockSkewMilliseconds: -10_000)
    let cloud = try await a.openRefusing()
    try await a.write("n")
    #expect(try await a.run() == nil)
    cloud.refuse { $0.requests[.databaseChanges] = [busy] }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - hours)
    _ = try await a.openRefusing()
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() + hours)
    let store = try await a.open()
    try await store.close()
    _ = try await a.openRefusing()
    let server = try await a.open().core.withLock { $0.serverMilliseconds }
    #expect(abs(server - a.clock.wallMilliseconds()) <= 10_000)
  }

  @Test func `a run that ends before it has done anything is not made again at once for a moment that is over`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["p"] = [CloudError(.zoneBusy, reason: "later", retryAfter: 600)] }
    try await a.write("p")
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    a.clock.advance(milliseconds: 600_000)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    #expect(try #require(await a.open().engine.nextDue).milliseconds > 0)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - 86_400_000)
    a.clock.advance(milliseconds: 60_000)
    a.disk.failCall(a.disk.callCount + 1)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    #expect(try await a.open().engine.nextDue == nil)
    try? await a.close()
    _ = try await a.openRefusing()
    // After the relaunch the wait begins anew, once.
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    a.clock.advance(milliseconds: 600_000)
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(try await a.owesNothing)
  }
}
