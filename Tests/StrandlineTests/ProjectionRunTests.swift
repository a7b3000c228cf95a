// Goal: a projection equals its store after each batch that says so, whatever was written, compacted, failed and reopened
// meanwhile; compaction waits for it, status names it, and one that is too old is made anew or refused. Method: a
// projection in memory that can be told to fail or to wait, against the store's own records.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import StrandlineTestSupport
import Testing

private func open(_ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) throws -> RecordStore {
  try RecordStore.openBlocking(at: "/store", environment: .simulated(disk: disk, seed: seed))
}

extension RecordStore {
  fileprivate func put(_ name: String, _ number: Int) throws {
    try writeBlocking { tx in
      let record = Record(type: "T", id: RecordID(name), fields: ["n": .int64(Int64(number))])
      if try tx.record(record.id) == nil { try tx.create(record) } else { try tx.save(record) }
    }
  }

  fileprivate func all() throws -> [RecordID: Record] {
    var result: [RecordID: Record] = [:]
    try forEachRecord { result[$0.id] = $0 }
    return result
  }
}

/// A database in memory.
private final class Memory: Projection {
  struct Failure: Error {}
  struct State: Sendable {
    var records: [RecordID: Record] = [:]
    var position: LogPosition?
    var batches: [ProjectionBatch] = []
    /// How many batches are still applied; nil for all.
    var batchesLeft: Int?
  }
  let name = "memory"
  let state = Mutex(State())
  /// Called before a batch is applied.
  private let onBatch: @Sendable (ProjectionBatch) async throws -> Void

  init(_ onBatch: @escaping @Sendable (ProjectionBatch) async throws -> Void = { _ in }) { self.onBatch = onBatch }

  func appliedPosition() -> LogPosition? { state.withLock { $0.position } }

  func apply(_ batch: ProjectionBatch) async throws {
    try await onBatch(batch)
    try state.withLock { state in
      if let left = state.batchesLeft {
        guard left > 0 else { throw Failure() }
        state.batchesLeft = left - 1
      }
      if batch.beginsAnew { state.records = [:] }
      for record in batch.saved { state.records[record.id] = record }
      for id in batch.deleted { state.records[id] = nil }
      state.position = batch.position
      state.batches.append(batch)
    }
  }

  var records: [RecordID: Record] { state.withLock { $0.records } }
  var batches: [ProjectionBatch] { state.withLock { $0.batches } }
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do { try await body() } catch { return (error as? StrandlineError)?.code }
  return nil
}

@Suite(.timeLimit(.minutes(30)))
struct `A projection` {
  /// Devices that edit the same records and sync, so that records change by merges, refusals and tombstones too.
  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `102: equals the store, through syncs, failures, compactions and relaunches`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.below(count)) }
    let fleet = try Fleet(seed: seed)
    let devices = [fleet.device("a", segmentBytesMax: 20_000), fleet.device("b")]
    let memory = Memory()
    for step in 0..<80 {
      let comment: Comment = "seed \(seed), step \(step)"
      let device = devices[below(2)]
      try await device.open().write { tx in
        for place in 0...below(3) {
          let id = RecordID("r\(below(6))")
          if below(5) == 0 {
            try tx.delete(id)
          } else {
            let record = Record(type: "T", id: id, fields: ["n": .int64(Int64(step)), "m": .int64(Int64(place))])
            if try tx.record(id) == nil { try tx.create(record) } else { try tx.save(record) }
          }
        }
      }
      if below(3) == 0 { try await device.sync() }
      if below(8) == 0 { try await devices[0].close() }
      let store = try await devices[0].open()
      if below(10) == 0 { try await store.compact(keeping: .latest) }
      if below(2) == 0 {
        memory.state.withLock { $0.batchesLeft = below(4) == 0 ? 0 : nil }
        do {
          let position = try await store.bringUpToDate(memory)
          #expect(try memory.records == store.all() && position == store.read { $0.position }, comment)
          #expect(memory.appliedPosition() == position, comment)
        } catch is Memory.Failure {}
      }
    }
    #expect(memory.batches.contains { $0.beginsAnew } && memory.batches.contains { !$0.beginsAnew })
    for device in devices { try await device.close() }
  }

  @Test func `that fell behind gets each record once, in batches, and is consistent with the last`() async throws {
    let store = try open()
    let memory = Memory()
    try store.put("first", 0)
    try await store.bringUpToDate(memory)
    for round in 0..<3 {
      try store.writeBlocking { tx in
        for number in 0..<2_500 {
          try tx.save(Record(type: "T", id: RecordID("r\(number)"), fields: ["n": .int64(Int64(round))]))
        }
      }
    }
    try store.writeBlocking { try $0.delete(RecordID("first")) }
    try await store.bringUpToDate(memory)
    let batches = memory.batches.dropFirst()
    // The newest value each time, so the later rounds bring nothing that is not there already.
    #expect(batches.allSatisfy { $0.saved.count + $0.deleted.count <= 1_000 && !$0.beginsAnew })
    #expect(batches.flatMap(\.saved).allSatisfy { $0["n"] == 2 })
    #expect(batches.filter(\.isConsistent).count == 1 && batches.last?.isConsistent == true)
    #expect(try memory.records == store.all())
    // A rebuild that is interrupted begins again.
    let other = Memory()
    other.state.withLock { $0.batchesLeft = 2 }
    await #expect(throws: Memory.Failure.self) { try await store.bringUpToDate(other) }
    #expect(other.appliedPosition() == nil && other.records.count == 2_000)
    other.state.withLock { $0.batchesLeft = nil }
    try store.writeBlocking { try $0.delete(RecordID("r7")) }
    try await store.bringUpToDate(other)
    #expect(try other.batches[2].beginsAnew && other.records == store.all())
    try store.closeBlocking()
  }

  @Test func `is waited for by compaction and named by status`() async throws {
    let store = try open()
    for round in 0..<10 { try store.put("a", round) }
    let (reached, atBatch) = AsyncStream<Void>.makeStream()
    let (gate, gateKeeper) = AsyncStream<Void>.makeStream()
    let memory = Memory { batch in
      guard !batch.beginsAnew else { return }
      atBatch.yield()
      for await _ in gate { break }
    }
    let projecting = Task { try await store.project(into: memory) }
    while memory.batches.isEmpty { await Task.yield() }
    let applied = try #require(memory.appliedPosition()).lsn
    for round in 10..<40 { try store.put("a", round) }
    for await _ in reached { break }
    let status = try store.status()
    #expect(status.projections.map(\.name) == ["memory"] && status.projections.map(\.lsn) == [applied])
    #expect(status.projections[0].lag == store.durableLSN.rawValue - applied.rawValue)
    #expect("\(status.projections[0])" == "memory: \(status.projections[0].lag) events behind")
    #expect(status.views.isEmpty)
    // What it has not applied stays: the next batches are read from it.
    try store.compactBlocking()
    let since = LogPosition(tenure: memory.appliedPosition()?.tenure ?? 0, lsn: applied)
    #expect(try store.changes(since: since).changes.count == 30)
    gateKeeper.finish()
    while memory.appliedPosition()?.lsn != store.durableLSN { await Task.yield() }
    #expect(try memory.records == store.all())
    #expect(try store.status().projections.map(\.lag) == [0])
    #expect(try store.compactBlocking().eventsAfter < 40)
    try await store.close()
    try await projecting.value
    // It is let go of with its end.
    let again = try open()
    #expect(try again.status().projections.isEmpty)
    try again.closeBlocking()
  }

  @Test func `163: whose position has expired is made anew, or refused`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    let memory = Memory()
    try store.put("gone", 1)
    try await store.bringUpToDate(memory)
    try store.writeBlocking { try $0.delete(RecordID("gone")) }
    for round in 0..<20 { try store.put("a", round) }
    try store.compactBlocking()
    let before = memory.records
    #expect(await code { try await store.bringUpToDate(memory, rebuilding: false) } == .positionExpired)
    #expect(await code { try await store.project(into: memory, rebuilding: false) } == .positionExpired)
    #expect(memory.records == before && memory.batches.count == 1)
    try await store.bringUpToDate(memory)
    #expect(try memory.batches.last?.beginsAnew == true && memory.records == store.all())

    // Of another store, or of a time that a backup does not know, it is refused, and nothing is removed.
    let backup = disk.clone()
    try store.put("late", 1)
    try await store.bringUpToDate(memory)
    let restored = try open(backup, seed: 5)
    let full = memory.records
    #expect(await code { try await restored.bringUpToDate(memory) } == .noSuchRecord)
    #expect(await code { try await restored.project(into: memory) } == .noSuchRecord)
    #expect(memory.records == full)
    #expect(try restored.status().projections.isEmpty)
    try restored.closeBlocking()
    try store.closeBlocking()
  }

  @Test func `goes on through suspensions, and its claim on the log outlasts them`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    let isHeld = Atomic(false)
    let memory = Memory { _ in while isHeld.load(ordering: .acquiring) { await Task.yield() } }
    // Not the records alone: the position of a batch that is still on its way would move under the hold.
    func reached() async throws {
      while try memory.records != store.all() || memory.appliedPosition()?.lsn != store.durableLSN {
        await Task.yield()
      }
    }
    try store.put("a", 0)
    let following = Task { try await store.project(into: memory) }
    try await reached()
    for round in 1..<5 {
      try await store.suspend()
      #expect(try store.status().projections.map(\.name) == ["memory"])
      let other = try open(disk, seed: UInt64(round + 10))
      try other.put("b", round)
      if round == 3 { try other.compactBlocking() }
      try other.closeBlocking()
      if round % 2 == 0 {
        try store.refresh()
        try await reached()
      }
      try await store.resume()
      try await reached()
      #expect(memory.records[RecordID("b")]?["n"] == .int64(Int64(round)))
      // Registered before the suspensions, and known to the log that was opened after them.
      isHeld.store(true, ordering: .releasing)
      let applied = try #require(memory.appliedPosition())
      // Each a new value: a save that changes nothing is no event.
      for number in 1...20 { try store.put("a", round * 100 + number) }
      try store.compactBlocking()
      #expect(try store.changes(since: applied).changes.count == 20)
      isHeld.store(false, ordering: .releasing)
      try await reached()
    }
    try await store.close()
    try await following.value
  }

  @Test func `ends with its cancellation, with its own error, and after a close`() async throws {
    let store = try open()
    try store.put("a", 1)
    let memory = Memory()
    let following = Task { try await store.project(into: memory) }
    while memory.batches.isEmpty { await Task.yield() }
    following.cancel()
    await #expect(throws: CancellationError.self) { try await following.value }
    memory.state.withLock { $0.batchesLeft = 0 }
    try store.put("a", 2)
    await #expect(throws: Memory.Failure.self) { try await store.project(into: memory) }
    try await store.close()
    #expect(await code { try await store.project(into: memory) } == .closed)
    #expect(await code { try await store.bringUpToDate(memory) } == .closed)
  }

  @Test func `may be of a store that another process writes`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    for round in 0..<5 { try store.put("r\(round)", round) }
    func promise() throws { if case .writer(let log) = store.source { try log.raiseControl() } }
    try promise()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 77))
    let memory = Memory()
    try await reader.bringUpToDate(memory)
    #expect(memory.records.count == 5)
    for round in 0..<30 {
      try store.put("r\(round % 7)", 100 + round)
      if round % 4 == 0 { try store.compactBlocking() }
      try promise()
      if round % 3 == 0 { try reader.refresh() }
      try await reader.bringUpToDate(memory)
      #expect(try memory.records == reader.all(), "round \(round)")
    }
    try await reader.close()
    try store.closeBlocking()
  }

  @Test func `goes on where the store takes no more writes`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    let memory = Memory()
    for round in 0..<5 { try store.put("a", round) }
    for call in 1...4 { disk.failCall(disk.callCount + call) }
    #expect(throws: StrandlineError.self) { try store.put("b", 1) }
    try await store.bringUpToDate(memory)
    #expect(try memory.records == store.all() && memory.records.count == 1)
    #expect(throws: StrandlineError.self) { try store.closeBlocking() }
  }
}
