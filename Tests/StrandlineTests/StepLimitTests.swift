// Goal: a fault of the engine that lets it go in a circle without a request is an error, and not a warm device.

import StrandlineSyncProofs
import StrandlineSystem
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30))) struct `The limit of steps` {
  @Test func `counts those without a request only`() throws {
    var limit = StepLimit(stepsMax: 10)
    func steps(_ count: Int, requests: Int) throws {
      for _ in 0..<count { try limit.count(requests: requests, in: "/s") }
    }
    try steps(10, requests: 1)
    try steps(10, requests: 2)
    let error = #expect(throws: StrandlineError.self) { try steps(1, requests: 2) }
    #expect(error?.code == .noProgress && error?.message.contains("'/s'") == true)
  }

  /// A run that settles a thousand deletions of what was never sent, two hundred in a step, and sends a save after them.
  @Test(arguments: [3, 100]) func `ends a run that makes more of them, and loses nothing`(_ stepsMax: Int) async throws
  {
    let a = try Fleet().device("a")
    let store = try await a.open()
    let names = (0..<1_000).map { "n\($0)" }
    try await store.write { tx in for name in names { try tx.save(Record(type: "Note", id: RecordID(name))) } }
    try await store.write { tx in for name in names { try tx.delete(RecordID(name)) } }
    var configuration = SyncConfiguration(a.web())
    configuration.isAutomatic = false
    var machine = SyncMachine(
      store: store, database: a.web(), watch: SyncWatch(store, .private, nil),
      RequestPace.Policy(configuration.pace, store.environment.random), SyncPolicies(configuration))
    machine.stepsMax = stepsMax
    do {
      try await machine.run(CycleOptions())
      #expect(stepsMax == 100)
    } catch let error as StrandlineError {
      #expect(stepsMax == 3 && error.code == .noProgress)
    }
    // The next run of the store's own engine brings the rest to its end.
    try await a.sync()
    #expect(try await a.open().status().unsettled == 0)
  }
}
