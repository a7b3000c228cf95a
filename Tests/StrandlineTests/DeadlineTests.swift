// Goal: a run with a deadline is over by then, and what it has not done is done by the next one. Method: every request takes
// two seconds of the device's clock.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// A device with unsent records, whose requests last two seconds.
private func device(_ count: Int) async throws -> (fleet: Fleet, a: Device, cloud: RefusingCloud) {
  let fleet = try Fleet()
  let a = fleet.device("a")
  try await a.open().write { tx in
    for index in 0..<count { try tx.save(Record(type: "Note", id: RecordID("n\(index)"))) }
  }
  let cloud = try await a.openRefusing()
  let clock = a.clock
  cloud.refuse { script in
    script.refusal = { _, _ in
      clock.advance(by: .seconds(2))
      return nil
    }
  }
  return (fleet, a, cloud)
}

@Suite(.timeLimit(.minutes(30))) struct DeadlineTests {
  @Test func `a run is over before its deadline, says that something is left, and a crash loses nothing of it`()
    async throws
  {
    let (fleet, a, cloud) = try await device(900)
    let begin = a.clock.monotonicNanoseconds()
    let report = try await a.open().sync(deadline: .seconds(11))
    #expect(report.isUnfinished && report.uploaded > 0)
    #expect(a.clock.monotonicNanoseconds() - begin <= 11_000_000_000)
    #expect(try await a.unsettled == 900 - report.uploaded)
    #expect(cloud.requestCount == 5, "as many as there is time for")
    try await a.verify()
    a.crash()
    #expect(try await a.unsettled == 900 - report.uploaded)
    let rest = try await a.open().sync(deadline: .seconds(3_600))
    #expect(!rest.isUnfinished && rest.uploaded == 900 - report.uploaded)
    let b = fleet.device("b")
    try await exchange(b, a)
    try await expectAgreement(a, b)
  }

  @Test func `without time nothing is asked, and without work nothing is left`() async throws {
    let (_, a, cloud) = try await device(1)
    let none = try await a.open().sync(deadline: .zero)
    #expect(none.isUnfinished && none.requests == 0 && cloud.requestCount == 0)
    let all = try await a.open().sync(deadline: .seconds(60))
    #expect(!all.isUnfinished && all.uploaded == 1)
    #expect(try await a.owesNothing)
    #expect(try await !a.open().sync().isUnfinished, "a deadline that is over is no other run's")
  }

  @Test func `a wait beyond the deadline is the server's word, and no silence`() async throws {
    let (_, a, cloud) = try await device(1)
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.throttled, reason: "busy", retryAfter: 20)] }
    let begin = a.clock.monotonicNanoseconds()
    let error = await #expect(throws: StrandlineError.self) { try await a.open().sync(deadline: .seconds(15)) }
    #expect(error?.code == .throttled)
    #expect(a.clock.monotonicNanoseconds() - begin < 15_000_000_000)
  }

  @Test func `a run of the engine's own ends at the deadline too`() async throws {
    let (_, a, cloud) = try await device(900)
    let engine = try await a.open().engine
    let caller = Mutex<Task<SyncReport, any Error>?>(nil)
    cloud.refuse { script in
      script.beforeModify = { number in
        guard number == 1 else { return }
        let task = Task { try await engine.sync(deadline: .seconds(3)) }
        caller.withLock { $0 = task }
        while engine.callerCount < 2 { await Task.yield() }
      }
    }
    var options = CycleOptions()
    options.mayEndEarly = true
    let report = try await engine.cycle(options)
    #expect(report.isUnfinished && cloud.sent.count == 1)
    let task = try #require(caller.withLock { $0 })
    let second = try await task.value
    #expect(second.isUnfinished && second.requests == 0)
    #expect(try await !engine.sync().isUnfinished)
    #expect(try await a.owesNothing)
  }
}
