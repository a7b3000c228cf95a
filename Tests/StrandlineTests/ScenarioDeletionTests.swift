// Deletions, and lives that begin again under a deleted name, with old pages among them. The names of the tests begin with
// the numbers of the scenarios.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(10))) struct ScenarioDeletionTests {
  @Test func `an old tombstone does not settle the deletion of a later life`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "life 1"])
    try await exchange(b, a)
    try await b.remove("n")
    try await b.exchange()
    try await b.create("n", ["title": "life 2"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "life 2")
    try await a.remove("n")
    cloud.showAgain(.deleted(name: "n"))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a, b)
    #expect(try await !b.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `an old tombstone does not end a creation whose answer was lost`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web(through: InProcessTransport(fleet.server, waitsForDroppedAnswers: false)))
    try await a.open(database: cloud)
    try await a.put("n", ["title": "life 1"])
    try await a.exchange()
    try await a.remove("n")
    try await exchange(a, b, a)
    try await a.create("n", ["title": "life 2"])
    var faults = ServerFaults()
    faults.dropAnswer = 1
    fleet.server.setFaults(faults)
    _ = try? await a.sync(.pushOnly, waitMillisecondsMax: 0)
    fleet.server.setFaults(ServerFaults())
    a.clock.advance(milliseconds: 600_000)
    cloud.showAgain(.deleted(name: "n"))
    try await exchange(a, b, a)
    #expect(try await a.value("n") == "life 2")
    #expect(try await b.value("n") == "life 2")
    try await expectAgreement(a, b)
  }

  @Test func `an old page does not undo an edit of a life that replaced another`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await a.put("n", ["title": "life 1"])
    try await exchange(a, b)
    try await b.put("n", ["title": "life 1, edited"])
    try await b.exchange()
    // A has not seen the edit, and replaces the record.
    try await a.remove("n")
    try await a.create("n", ["title": "life 2, old"])
    try await exchange(a, b)
    let old = try await cloud.current("n")
    try await a.put("n", ["title": "life 2, new"])
    // The second time A's own edit comes back.
    try await exchange(a, a)
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a, b)
    #expect(try await a.value("n") == "life 2, new")
    try await expectAgreement(a, b)
  }
}
