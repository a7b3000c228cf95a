// Deleted records that are brought back: what they hold, and that every device has them again.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A record that is restored` {
  private let id = RecordID("n")

  @Test func `holds what it held when it was deleted, on every device, and old pages do not end it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await a.put("n", ["title": "t", "body": "first"])
    try await exchange(a, b)
    try await b.put("n", ["body": "second"])
    try await exchange(b, a)
    try await b.remove("n")
    try await exchange(b, a)
    #expect(try await !a.lives("n"))
    let receipt = try await a.open().restore(id)
    #expect(receipt.lsns != nil)
    cloud.showAgain(.deleted(name: "n"))
    try await exchange(a, b, a)
    for device in [a, b] {
      #expect(try await device.value("n") == "t")
      #expect(try await device.value("n", "body") == "second")
    }
    try await expectAgreement(a, b)
  }

  @Test func `has the edit that another device's deletion has ended`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "t", "body": "b"])
    try await exchange(a, b)
    try await b.remove("n")
    try await b.exchange()
    try await a.put("n", ["title": "edited"])
    try await a.exchange()
    #expect(try await !a.lives("n"))
    try await a.open().restore(id)
    try await exchange(a, b)
    #expect(try await b.value("n") == "edited")
    #expect(try await b.value("n", "body") == "b")
    try await expectAgreement(a, b)
  }

  @Test func `has what won a conflict, and not the edit that lost`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    try await a.put("n", ["title": "older"])
    b.clock.advance(milliseconds: 60_000)
    try await b.put("n", ["title": "newer"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "newer")
    try await a.remove("n")
    try await a.open().restore(id)
    #expect(try await a.value("n") == "newer")
  }

  @Test func `has its last life, and no edit of one before`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "life 1"])
    try await exchange(a, b)
    try await b.remove("n")
    try await b.exchange()
    try await a.put("n", ["title": "life 1, edited"])
    try await a.exchange()
    try await b.create("n", ["title": "life 2"])
    try await exchange(b, a)
    try await b.remove("n")
    try await exchange(b, a)
    try await a.open().restore(id)
    #expect(try await a.value("n") == "life 2")
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `does not have what was given up`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    try await a.put("n", ["title": "given up"])
    try await a.open().discardChanges(of: [id])
    try await a.remove("n")
    try await a.open().restore(id)
    #expect(try await a.value("n") == "t")
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `must not live, and the log must have it`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.put("n", ["title": "t"])
    let store = try await a.open()
    func refusal(of id: RecordID) async -> StrandlineError.Code? {
      do {
        try await store.restore(id)
        return nil
      } catch { return (error as? StrandlineError)?.code }
    }
    #expect(await refusal(of: id) == .recordExists)
    #expect(await refusal(of: RecordID("other")) == .noSuchRecord)
    try await a.remove("n")
    try await a.exchange()
    _ = try await store.compact(keeping: .latest)
    #expect(await refusal(of: id) == .noSuchRecord)
    #expect(try await !a.lives("n"))
  }
}
