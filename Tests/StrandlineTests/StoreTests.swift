// The store without sync: what is durable after a write, what a reader sees, what is refused, and failures of the disk.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private struct Memo: SyncRecord, Equatable {
  var id: String
  var title: String
  var body: String?
  var tags: [String] = []
  var isDone = false
  var score: Double?
}

/// A store on a simulated disk.
private struct Bench {
  let disk: SimulatedDisk
  let faults: FaultInjector
  let environment: StoreEnvironment

  init(disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) {
    self.disk = disk
    faults = FaultInjector(disk)
    environment = StoreEnvironment(
      SystemEnvironment(
        fileSystem: faults, clock: SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true),
        random: SeededRandom(seed: seed)))
  }

  func open() throws -> RecordStore {
    try RecordStore.openBlocking(at: "/store", options: Device.options, environment: environment)
  }

  func readOnly() throws -> RecordStore { try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment) }
}

private func record(_ name: String, _ fields: [String: FieldValue] = ["title": "x"], type: String = "Note") -> Record {
  Record(type: type, id: RecordID(name), fields: fields)
}

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do {
    try body()
    return nil
  } catch { return (error as? StrandlineError)?.code }
}

@Suite(.timeLimit(.minutes(30))) struct StoreTests {
  @Test func `a write that returned survives any loss of what was not synced`() throws {
    let bench = Bench()
    let store = try bench.open()
    for index in 0..<5 { try store.writeBlocking { tx in try tx.save(record("n-\(index)")) } }
    for loss in bench.disk.crashLosses() {
      let after = Bench(disk: bench.disk.imageAfterCrash(loss))
      #expect(try after.open().recordCount == 5)
    }
  }

  @Test func `5: a closure that throws leaves nothing behind`() throws {
    struct Stop: Error {}
    let store = try Bench().open()
    try store.writeBlocking { tx in try tx.save(record("kept")) }
    let before = store.durableLSN
    #expect(throws: Stop.self) {
      try store.writeBlocking { tx in
        try tx.save(record("gone"))
        try tx.delete(RecordID("kept"))
        throw Stop()
      }
    }
    #expect(store.durableLSN == before)
    #expect(try store.record(RecordID("gone")) == nil)
    #expect(try store.record(RecordID("kept")) != nil)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try store.writeBlocking { tx in try tx.save(record("gone", ["title": "now"])) }
    #expect(try store.record(RecordID("gone"))?["title"] == "now")
  }

  @Test func `a closure sees what was written before it in the same transaction`() throws {
    let store = try Bench().open()
    try store.writeBlocking { tx in
      try tx.save(record("n", ["count": 1]))
      #expect(try tx.record(RecordID("n"))?["count"] == 1)
      try tx.save(record("n", ["count": 2]))
      #expect(try tx.record(RecordID("n"))?["count"] == 2)
      try tx.delete(RecordID("n"))
      #expect(try tx.record(RecordID("n")) == nil)
      #expect(throws: StrandlineError.self) { try tx.save(record("n")) }
      try tx.create(record("n", ["count": 3]))
    }
    #expect(try store.record(RecordID("n"))?["count"] == 3)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
  }

  @Test func `L11: a closure sees the one before it although neither is durable yet`() async throws {
    let store = try Bench().open()
    try store.writeBlocking { tx in try tx.save(record("n", ["count": 0])) }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<64 {
        group.addTask {
          try await store.write { tx in
            var counter = try #require(try tx.record(RecordID("n")))
            guard case .int64(let count)? = counter["count"] else { return }
            counter["count"] = .int64(count + 1)
            try tx.save(counter)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try store.record(RecordID("n"))?["count"] == 64)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
  }

  @Test func `readers do not see what is not durable`() throws {
    let bench = Bench()
    let store = try bench.open()
    try store.writeBlocking { tx in try tx.save(record("n", ["title": "old"])) }
    let lsns = try store.enqueue { tx in
      try tx.save(record("n", ["title": "new"]))
      try tx.save(record("m"))
    }.receipt.lsns
    #expect(try store.record(RecordID("n"))?["title"] == "old")
    #expect(try store.record(RecordID("m")) == nil)
    #expect(try store.recordIDs() == [RecordID("n")])
    guard case .writer(let log) = store.source, let lsns else {
      Issue.record("no log")
      return
    }
    try log.waitUntilDurableBlocking(lsns.upperBound.rawValue)
    #expect(try store.record(RecordID("n"))?["title"] == "new")
    #expect(try store.recordIDs() == [RecordID("m"), RecordID("n")])
  }

  @Test func `20: a full disk refuses cleanly, and writes resume when there is room`() throws {
    let disk = SimulatedDisk(capacity: 1 << 21)
    let bench = Bench(disk: disk)
    let store = try bench.open()
    let large = String(repeating: "x", count: 100_000)
    var written = 0
    var refusal: StrandlineError.Code?
    while refusal == nil, written < 100 {
      refusal = code { try store.writeBlocking { tx in try tx.save(record("n-\(written)", ["text": .string(large)])) } }
      if refusal == nil { written += 1 }
    }
    #expect(refusal == .diskFull)
    #expect(written * 100_000 > (1 << 21) * 4 / 5, "a whole step of reserved space does not fit; what is needed does")
    #expect(store.recordCount == written)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    disk.capacity = 1 << 24
    try store.writeBlocking { tx in try tx.save(record("after", ["title": "room again"])) }
    #expect(store.recordCount == written + 1)
    try store.closeBlocking()
    #expect(try Bench(disk: disk).open().recordCount == written + 1)
  }

  @Test(arguments: [true, false])
  func `a write that was refused is owed by nobody, and the record is at once what it was`(_ blocks: Bool) async throws
  {
    let disk = SimulatedDisk(capacity: 1 << 21)
    let store = try Bench(disk: disk).open()
    try store.writeBlocking { tx in try tx.save(record("n", ["title": "old"])) }
    disk.capacity = disk.usedBytes
    let large = String(repeating: "x", count: 900_000)
    func edit(_ tx: inout WriteTransaction) throws {
      try tx.save(record("n", ["title": .string(large)]))
      try tx.save(record("m", ["title": .string(large)]))
    }
    let refusal = await #expect(throws: StrandlineError.self) {
      if blocks {
        try store.writeBlocking { tx in try edit(&tx) }
      } else {
        try await store.write { tx in try edit(&tx) }
      }
    }
    #expect(refusal?.code == .diskFull)
    #expect(store.projections.owed.map(\.rawValue) == [2])
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    #expect(try store.record(RecordID("n"))?["title"] == "old")
    #expect(try store.record(RecordID("m")) == nil)
    #expect(try store.pendingChanges().changes.map(\.id) == [RecordID("n")])
    disk.capacity = nil
    try store.writeBlocking { tx in try tx.save(record("m", ["title": "room again"])) }
    #expect(try store.recordIDs() == [RecordID("m"), RecordID("n")])
  }

  @Test func `a write that was refused fails, though another one has its place in the log before its caller looks`()
    throws
  {
    let disk = SimulatedDisk(capacity: 1 << 21)
    let store = try Bench(disk: disk).open()
    let large = String(repeating: "x", count: 900_000)
    try store.writeBlocking { tx in try tx.save(record("before", ["title": "safe"])) }
    disk.capacity = disk.usedBytes
    let writes = try ["a", "b", "c"].map { name in
      try store.queueBlocking { tx in
        for number in 1...2 { try tx.save(record("\(name)\(number)", ["title": .string(large)])) }
      }
    }
    #expect(#expect(throws: StrandlineError.self) { _ = try writes[0].waitBlocking() }?.code == .diskFull)
    // Nothing has their places.
    #expect(#expect(throws: StrandlineError.self) { _ = try writes[1].waitBlocking() }?.code == .diskFull)
    disk.capacity = nil
    try store.writeBlocking { tx in
      for number in 1...6 { try tx.save(record("x\(number)", ["title": "later"])) }
    }
    // Others have.
    #expect(#expect(throws: StrandlineError.self) { _ = try writes[2].waitBlocking() }?.code == .diskFull)
    #expect(try store.recordIDs() == ["before", "x1", "x2", "x3", "x4", "x5", "x6"].map { RecordID($0) })
  }

  @Test func `21: after a failed sync the write throws, later writes are refused, and reads succeed`() throws {
    let bench = Bench()
    let store = try bench.open()
    try store.writeBlocking { tx in try tx.save(record("n", ["title": "old"])) }
    bench.faults.plan(DiskFault([.sync], error: .device("", "")))
    #expect(code { try store.writeBlocking { tx in try tx.save(record("n", ["title": "new"])) } } == .outcomeUnknown)
    #expect(code { try store.writeBlocking { tx in try tx.save(record("m")) } } == .outcomeUnknown)
    #expect(try store.record(RecordID("n"))?["title"] == "old")
    #expect(try store.record(RecordID("m")) == nil)
    try? store.closeBlocking()
    bench.faults.clear()
    let again = try bench.open()
    let title = try again.record(RecordID("n"))?["title"]
    #expect(title == "old" || title == "new", "an unknown outcome is one of the two")
  }

  @Test func `160: names, types and values that CloudKit would refuse are refused at the write`() throws {
    let store = try Bench().open()
    let long = String(repeating: "n", count: 256)
    func refused(_ record: Record) -> StrandlineError.Code? {
      code { try store.writeBlocking { tx in try tx.save(record) } }
    }
    #expect(refused(record(long)) == .invalidName)
    #expect(refused(record("_hidden")) == .invalidName)
    #expect(refused(record("naïve")) == .invalidName)
    #expect(refused(record("")) == .invalidName)
    #expect(refused(record("line\nbreak")) == .invalidName)
    #expect(refused(Record(type: "Note", id: RecordID("n", zone: ZoneID("_defaultZone")))) == .invalidName)
    #expect(refused(record("n", type: "1st")) == .invalidName)
    #expect(refused(record("n", ["strandlineStamp": .bytes([1])])) == .invalidName)
    #expect(refused(record("n", ["a-b": 1])) == .invalidName)
    #expect(refused(record("n", ["x": .double(.nan)])) == .invalidValue)
    #expect(refused(record("n", ["x": .list(.strings, ["a", 1])])) == .invalidValue)
    #expect(
      refused(record("n", ["x": .reference(Reference("t", zone: ZoneID("Other"), action: .deleteSelf))]))
        == .invalidValue)
    #expect(refused(record("n", ["x": .string(String(repeating: "x", count: 1_000_001))])) == .tooLarge)
    #expect(refused(record(String(repeating: "n", count: 255), ["x": .double(-0.0)])) == nil)
    #expect(store.recordCount == 1)
  }

  @Test func `an unchanged save appends nothing`() throws {
    let store = try Bench().open()
    let first = try store.writeBlocking { tx in try tx.save(record("n", ["a": 1, "b": "x"])) }
    #expect(first.lsns != nil)
    let second = try store.writeBlocking { tx in try tx.save(record("n", ["b": "x", "a": 1])) }
    #expect(second.lsns == nil)
    #expect(second.durableLSN == first.lsns?.upperBound)
  }

  @Test func `typed values come back as they were, and fields that the type does not know survive`() throws {
    let store = try Bench().open()
    var note = Memo(id: "n", title: "Hi", body: "text", tags: ["a", "b"], isDone: true, score: 1.5)
    try store.writeBlocking { tx in try tx.save(note) }
    #expect(try store.fetch(Memo.self, id: "n") == note)
    try store.writeBlocking { tx in
      var untyped = try #require(try tx.record(note.recordID))
      untyped["newerField"] = "kept"
      try tx.save(untyped)
    }
    note.body = nil
    note.score = nil
    try store.writeBlocking { tx in try tx.save(note) }
    #expect(try store.fetch(Memo.self, id: "n") == note)
    #expect(try store.record(note.recordID)?["newerField"] == "kept")
    #expect(try store.record(note.recordID)?["body"] == nil)
    #expect(try store.fetch(Memo.self).elementsEqual([note]))
    try store.writeBlocking { tx in try tx.delete(Memo.self, id: "n") }
    #expect(try store.fetch(Memo.self, id: "n") == nil)
  }

  @Test func `decision 9: a save does not bring a deleted record back, a creation does`() throws {
    let store = try Bench().open()
    try store.writeBlocking { tx in try tx.save(record("n")) }
    try store.writeBlocking { tx in try tx.delete(RecordID("n")) }
    #expect(code { try store.writeBlocking { tx in try tx.save(record("n")) } } == .recordWasDeleted)
    try store.writeBlocking { tx in try tx.create(record("n", ["title": "anew"])) }
    #expect(code { try store.writeBlocking { tx in try tx.create(record("n")) } } == .recordExists)
    #expect(try store.record(RecordID("n"))?["title"] == "anew")
  }

  @Test func `188: a second writer is refused, a reader is not`() throws {
    let bench = Bench()
    let store = try bench.open()
    try store.writeBlocking { tx in try tx.save(record("n")) }
    #expect(code { _ = try bench.open() } == .storeHeld)
    guard case .writer(let log) = store.source else { return }
    try log.raiseControl()
    let reader = try bench.readOnly()
    #expect(try reader.record(RecordID("n"))?["title"] == "x")
    #expect(code { try reader.writeBlocking { tx in try tx.save(record("m")) } } == .readOnly)
    try store.closeBlocking()
    #expect(code { try store.writeBlocking { tx in try tx.save(record("m")) } } == .closed)
    #expect(try bench.open().recordCount == 1)
  }

  @Test func `a receipt of a store without an engine does not hang`() async throws {
    let store = try Bench().open()
    let receipt = try store.writeBlocking { tx in try tx.save(record("n")) }
    await #expect(throws: StrandlineError.self) { try await receipt.uploaded() }
  }

  @Test func `4: after a crash at any call the store holds whole transactions`() throws {
    // Every call of a run of three transactions: what is there afterwards is a prefix of whole transactions.
    let probe = Bench()
    probe.disk.keepsHistory = true
    let store = try probe.open()
    for batch in 0..<8 {
      try store.writeBlocking { tx in for index in 0..<4 { try tx.save(record("b\(batch)-\(index)")) } }
    }
    var images = 0
    for moment in probe.disk.history {
      for loss in moment.crashLosses() {
        let image = moment.imageAfterCrash(loss)
        guard image.paths.contains(where: { $0.hasSuffix(".seg") && $0.hasPrefix("/store/") }) else { continue }
        let after = try Bench(disk: image, seed: 2).open()
        #expect(after.recordCount % 4 == 0)
        #expect(after.projections.withLock { $0.brokenInvariant() } == nil)
        images += 1
      }
    }
    print("store: \(images) disks after a crash")
    #expect(images > 20)
  }
}
