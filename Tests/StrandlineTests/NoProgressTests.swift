// Goal: a fault of the engine that lets it go in a circle without a request is an error, and not a warm device.

import StrandlineSyncProofs
import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30))) struct `A cycle that goes in a circle` {
  /// A cycle that settles a thousand deletions of what was never sent, two hundred in a turn, and sends a save after them.
  @Test(arguments: [4, 100]) func `is ended, and nothing is lost`(_ turnsMax: Int) async throws {
    let a = try Fleet().device("a")
    let store = try await a.open()
    let names = (0..<1_000).map { "n\($0)" }
    try await store.write { tx in for name in names { try tx.save(Record(type: "Note", id: RecordID(name))) } }
    try await store.write { tx in for name in names { try tx.delete(RecordID(name)) } }
    var configuration = SyncConfiguration(a.web())
    configuration.isAutomatic = false
    var driver = CycleDriver(
      store: store, database: a.web(), watch: SyncWatch(store, SyncedDatabase(.private, .all), nil),
      RequestPace.Policy(configuration.pace, store.environment.random), SyncPolicies(configuration))
    driver.plan.idleTurnsMax = turnsMax
    do {
      try await driver.run(CycleOptions())
      #expect(turnsMax == 100)
    } catch let error as StrandlineError {
      #expect(turnsMax == 4 && error.code == .noProgress)
    }
    // The next cycle of the store's own engine brings the rest to its end.
    try await a.sync()
    #expect(try await a.open().status().unsettled == 0)
  }
}
