// Goal: an outcome follows the content. A receipt ends when the server has what the transaction wrote, whatever carried it
// there, or says what became of it; it never waits in silence for what only a person can end. Method: histories through the
// engine, with merges before the upload, refusals, deletions elsewhere and relaunches.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

private let id = RecordID("n")

/// What a call throws.
private func thrown(_ body: () async throws -> Void) async -> StrandlineError? {
  do { try await body() } catch { return error as? StrandlineError }
  return nil
}

extension Device {
  /// Saves a field of the record, and returns the receipt.
  fileprivate func put(_ fields: [String: FieldValue], _ id: RecordID = id) async throws -> Receipt {
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  /// Begins to wait, and goes on when the wait has begun.
  fileprivate func waiting(for receipt: Receipt) async throws -> Task<StrandlineError?, Never> {
    let store = try await open()
    let before = store.settledWaiters.count
    let task = Task { await thrown { try await receipt.uploaded() } }
    while store.settledWaiters.count == before { await Task.yield() }
    return task
  }

  /// Two devices that have the record, and an edit of each; this one's edit is merged and not sent.
  fileprivate func mergeBeforeUpload(_ other: Device) async throws -> Receipt {
    _ = try await put(["a": "0", "b": "0"])
    try await run()
    try await other.run()
    let receipt = try await put(["a": "ours"])
    _ = try await other.put(["b": "theirs"])
    try await other.run()
    try await sync(.pullOnly)
    return receipt
  }

  /// The age of the oldest unsettled change, in milliseconds.
  fileprivate var age: Int64? { get async throws { try await open().status().oldestUnsettledMilliseconds } }
}

@Suite(.timeLimit(.minutes(30))) struct `A receipt` {
  @Test func `decision 45: of an edit that was merged before it left ends when the merge is at the server`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let receipt = try await a.mergeBeforeUpload(b)
    let store = try await a.open()
    let lsns = try #require(receipt.lsns)
    #expect(try store.status().unsettled == 1)
    #expect(try store.outcomes(of: lsns).isEmpty, "the server does not have it yet")
    let waiting = try await a.waiting(for: receipt)
    try await a.sync(.pullOnly)
    #expect(store.settledWaiters.count == 1)
    #expect(try await a.run() == nil)
    #expect(await waiting.value == nil)
    #expect(try await receipt.outcome() == [id: .merged])
    try await b.run()
    #expect(try await b.open().record(id)?.fields == ["a": "ours", "b": "theirs"])
  }

  @Test func `follows its content through two merges, a later edit and a relaunch`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let receipt = try await a.mergeBeforeUpload(b)
    _ = try await b.put(["b": "theirs again"])
    try await b.run()
    try await a.sync(.pullOnly)
    let later = try await a.put(["c": "later"])
    try await a.close()
    let again = try await a.open().receipt(at: receipt.position)
    #expect(try await a.open().outcomes(of: #require(again.lsns)).isEmpty)
    let waiting = try await a.waiting(for: again)
    #expect(try await a.run() == nil)
    #expect(await waiting.value == nil)
    let lsn = try #require(later.lsns?.upperBound)
    #expect(try await again.outcome() == [id: .superseded(by: lsn)])
    #expect(try await a.open().receipt(at: later.position).outcome() == [id: .saved])
  }

  @Test func `throws when a change is held until a person ends that, also when it was held before`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let receipt = try await a.put(["a": "wrong"])
    let waiting = try await a.waiting(for: receipt)
    cloud.refuse { $0.items["n"] = [CloudError(.badRequest, reason: "a wrong value")] }
    _ = try await a.run()
    let error = try #require(await waiting.value)
    #expect(error.code == .notUploaded)
    #expect(error.message.contains("BAD_REQUEST: a wrong value") && error.message.contains("releaseHolds"))
    #expect((error.underlying as? CloudError)?.code == .badRequest)
    #expect(await thrown { _ = try await receipt.outcome() }?.code == .notUploaded)
    // Released, it may leave, and so it is waited for.
    try await a.open().releaseHolds(of: [id])
    let next = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    #expect(await next.value == nil)
    #expect(try await receipt.outcome() == [id: .saved])
  }

  @Test func `waits for a hold that ends by itself`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let receipt = try await a.put(["a": "x"])
    cloud.refuse { $0.items["n"] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 60)] }
    let waiting = try await a.waiting(for: receipt)
    _ = try await a.run()
    #expect(try await a.open().status().held.count == 1)
    #expect(try await a.open().settledWaiters.count == 1)
    a.clock.advance(milliseconds: 61_000)
    #expect(try await a.run() == nil)
    #expect(await waiting.value == nil)
  }

  @Test func `of a merged edit that is given up says so`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let receipt = try await a.mergeBeforeUpload(b)
    let waiting = try await a.waiting(for: receipt)
    try await a.open().discardChanges(of: [id])
    let error = try #require(await waiting.value)
    #expect(error.code == .notUploaded && error.message.contains("it was given up"))
    #expect(try await receipt.outcome() == [id: .discarded])
    #expect(try await a.open().record(id)?["a"] == "0")
  }

  @Test func `of an edit of a record that was deleted elsewhere says so`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let receipt = try await a.mergeBeforeUpload(b)
    try await b.erase("n")
    try await b.run()
    _ = try await a.run()
    #expect(try await receipt.outcome() == [id: .deletedOnServer])
    let error = try #require(await thrown { try await receipt.uploaded() })
    #expect(error.code == .notUploaded && error.message.contains("deleted at the server"))
  }

  @Test func `of an edit that a later rejected one carries is rejected`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.open().write { try $0.save(Record(type: "Task", id: id, fields: ["t": 1])) }
    try await b.run()
    let first = try await a.put(["a": "1"])
    _ = try await a.put(["b": "1"])
    _ = try await a.run()
    guard case .rejected(let code, _)? = try await first.outcome()[id] else {
      Issue.record("\(try await first.outcome())")
      return
    }
    #expect(code == .typeMismatch)
    #expect(await thrown { try await first.uploaded() }?.code == .notUploaded)
  }

  @Test func `in a zone that is gone at the server says so`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    _ = try await a.put(["a": "1"])
    try await a.run()
    let key = fleet.database
    try fleet.server.deleteZone(ZoneID.main.name, in: key)
    let receipt = try await a.put(["a": "2"])
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run()?.code == .zoneLost)
    let error = await waiting.value
    #expect(error?.code == .zoneLost, "\(String(describing: error))")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The age of what is owed` {
  @Test func `is that of the oldest content, which a merge does not make young`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    _ = try await a.put(["a": "0", "b": "0"])
    try await a.run()
    try await b.run()
    _ = try await a.put(["a": "ours"])
    a.clock.advance(milliseconds: 3 * 3_600_000)
    b.clock.advance(milliseconds: 3 * 3_600_000)
    _ = try await b.put(["b": "theirs"])
    try await b.run()
    try await a.sync(.pullOnly)
    let age = try #require(await a.age)
    // By the server's time, which its answers name in whole seconds.
    #expect(age > 3 * 3_600_000 - 1_000)
    // As long as it takes, and through a relaunch, a compaction and another merge.
    try await a.close()
    #expect(try #require(await a.age) >= age)
    try await a.open().compact()
    #expect(try #require(await a.age) >= age)
    _ = try await b.put(["b": "again"])
    try await b.run()
    try await a.sync(.pullOnly)
    try await a.open().compact()
    try await a.close()
    #expect(try #require(await a.age) >= age)
    #expect(try await a.brokenInvariant() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.age == nil)
  }
}
