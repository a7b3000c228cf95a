// Goal: a suspended store holds no lock and can be read; a resumed one is what an open gives, with everything that others
// wrote meanwhile. Method: two stores at one place take turns, on a simulated disk, against a model; each file call of a
// resumption fails once; threads write, compact, suspend and resume at once.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import StrandlineTestSupport
import Testing

private func environment(_ fileSystem: any FileSystem, seed: UInt64) -> StoreEnvironment {
  StoreEnvironment(
    SystemEnvironment(
      fileSystem: fileSystem, clock: SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true),
      random: SeededRandom(seed: seed)), isSimulated: true)
}

private func open(_ fileSystem: any FileSystem, seed: UInt64, segmentBytesMax: Int? = nil) throws -> RecordStore {
  var options = StoreOptions()
  if let segmentBytesMax { options.segmentBytesMax = segmentBytesMax }
  return try RecordStore.openBlocking(at: "/store", options: options, environment: environment(fileSystem, seed: seed))
}

private func id(_ name: String) -> RecordID { RecordID(name) }

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do {
    try body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

extension RecordStore {
  fileprivate func put(_ name: String, _ number: Int64) throws {
    try writeBlocking { tx in
      let record = Record(type: "T", id: id(name), fields: ["n": .int64(number)])
      if try tx.record(id(name)) == nil { try tx.create(record) } else { try tx.save(record) }
    }
  }

  fileprivate func number(_ name: String) throws -> FieldValue? { try record(id(name))?["n"] }

  fileprivate var tenures: [Tenure] { projections.sync.tenures }

  /// What the store shows, by name.
  fileprivate func shown() throws -> [String: FieldValue] {
    var shown: [String: FieldValue] = [:]
    try forEachRecord { shown[$0.id.name] = $0["n"] }
    return shown
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A suspended store` {
  @Test func `187: holds no lock, shows what was durable, and refuses to write`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    #expect(code { _ = try open(disk, seed: 2) } == .storeHeld)
    let (position, view) = (try store.writeBlocking { _ in }.position, try store.view())
    try store.suspendBlocking()
    #expect(store.isSuspended)
    let other = try open(disk, seed: 2)
    try other.put("a", 2)
    try other.put("b", 3)
    #expect(try store.number("a") == 1 && store.number("b") == nil && view.record(id("a"))?["n"] == 1)
    #expect(try store.status().records == 1 && store.recordIDs().count == 1)
    #expect(try store.receipt(at: position).position == position)
    #expect(code { try store.put("a", 9) } == .suspended)
    #expect(code { try store.compactBlocking() } == .suspended)
    // Once more changes nothing.
    try store.suspendBlocking()
    if case .writer(let log) = other.source { try log.raiseControl() }
    #expect(try store.refresh())
    #expect(try store.number("a") == 2 && store.number("b") == 3 && view.record(id("a"))?["n"] == 1)
    try other.closeBlocking()
    try store.closeBlocking()
    #expect(code { _ = try store.number("a") } == .closed)
    #expect(code { try store.resumeBlocking() } == .closed && code { try store.suspendBlocking() } == .closed)
  }

  @Test func `is resumed as by an open: lock, a new tenure, what others wrote, and its observers`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    try store.resumeBlocking()
    #expect(store.tenures.count == 1)
    var observed = store.observe(id("a")).makeAsyncIterator()
    #expect(try await observed.next()??["n"] == 1)
    try await store.suspend()
    let other = try open(disk, seed: 2)
    try other.put("a", 2)
    // Held by another writer, the store stays suspended and readable.
    await #expect(throws: StrandlineError.self) { try await store.resume() }
    #expect(code { try store.resumeBlocking() } == .storeHeld)
    #expect(try store.isSuspended && store.number("a") == 1)
    try other.closeBlocking()
    try await store.resume()
    #expect(!store.isSuspended)
    #expect(try await observed.next()??["n"] == 2)
    try await store.resume()
    // The tenure begins with its first transaction.
    #expect(store.tenures.count == 2)
    try store.put("a", 3)
    #expect(store.tenures.count == 3 && Set(store.tenures.map(\.tenure)).count == 3)
    #expect(Set(store.tenures.map(\.writer)).count == 1)
    #expect(try await observed.next()??["n"] == 3)
    #expect(code { _ = try open(disk, seed: 3) } == .storeHeld)
    try await store.close()
    #expect(try open(disk, seed: 4).number("a") == 3)
  }

  @Test func `whose log was compacted meanwhile is made anew, and its views have expired`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    for number in 0..<20 { try store.put("a", Int64(number)) }
    try store.put("b", 1)
    let view = try store.view()
    try store.suspendBlocking()
    let other = try open(disk, seed: 2)
    try other.put("a", 50)
    try other.writeBlocking { try $0.delete(id("b")) }
    try other.compactBlocking()
    try other.closeBlocking()
    // What the compaction removed cannot be shown any more, and what it moved is found.
    #expect(code { _ = try store.number("a") } == .outdated)
    try store.resumeBlocking()
    #expect(try store.shown() == ["a": 50])
    #expect(code { _ = try view.record(id("a")) } == .outdated)
    try store.put("a", 51)
    try store.compactBlocking()
    #expect(try store.shown() == ["a": 51])
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try store.closeBlocking()
  }

  /// What it shows cannot be read any more, which ends no observation.
  @Test func `is observed beside another process that compacts it`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    var record = store.observe(id("a")).makeAsyncIterator()
    var query = store.observe(RecordQuery("T")).makeAsyncIterator()
    var status = store.observeStatus().makeAsyncIterator()
    #expect(try await record.next()??["n"] == 1)
    #expect(try await query.next()?.records.map(\.id.name) == ["a"])
    #expect(try await status.next()?.records == 1)
    try store.suspendBlocking()
    let other = try open(disk, seed: 2)
    for number in 2..<30 { try other.put("a", Int64(number)) }
    try other.put("b", 1)
    try other.compactBlocking()
    try other.closeBlocking()
    #expect(code { _ = try store.number("a") } == .outdated)
    store.observers.tellAll()
    #expect(try await record.next()??["n"] == 29)
    #expect(try await query.next()?.records.map(\.id.name) == ["a", "b"])
    #expect(try await status.next()?.records == 2)
    try store.resumeBlocking()
    try store.put("a", 30)
    #expect(try await record.next()??["n"] == 30)
    #expect(try await query.next()?.records.first?["n"] == 30)
    try store.closeBlocking()
    #expect(try await record.next() == nil)
  }

  @Test func `keeps its views across, against its own compactions too`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    let before = try store.view()
    try store.suspendBlocking()
    let during = try store.view()
    try store.resumeBlocking()
    try store.put("a", 2)
    try store.put("a", 3)
    try store.compactBlocking()
    #expect(try before.record(id("a"))?["n"] == 1 && during.record(id("a"))?["n"] == 1)
    #expect(try store.number("a") == 3)
    try store.closeBlocking()
  }

  @Test func `that was opened for reading only has no lock to give back`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    try store.closeBlocking()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(disk, seed: 2))
    try reader.suspendBlocking()
    #expect(!reader.isSuspended)
    try reader.resumeBlocking()
    #expect(try reader.number("a") == 1)
    #expect(code { try reader.put("a", 2) } == .readOnly)
    try reader.closeBlocking()
  }

  @Test func `of which nothing is left, or another store, is not resumed`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.put("a", 1)
    try store.suspendBlocking()
    for path in disk.paths { disk.pokeRemove(path) }
    #expect(code { try store.resumeBlocking() } == .noSuchStore)
    let other = try open(disk, seed: 2)
    try other.put("b", 1)
    try other.closeBlocking()
    #expect(code { try store.resumeBlocking() } == .storeReplaced)
    // The lock of the other store was given back.
    try open(disk, seed: 3).closeBlocking()
    try store.closeBlocking()
  }

  @Test func `on a full disk says so, and has given its lock back`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let store = try open(faults, seed: 1)
    try store.put("a", 1)
    let queued = try store.enqueue { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 2])) }.receipt
    faults.plan(DiskFault([.write, .preallocate, .create], isSticky: true, error: .full("pwrite", "/store")))
    #expect(code { try store.suspendBlocking() } == .diskFull)
    #expect(try store.isSuspended && store.number("a") == 1 && store.durableLSN < queued.durableLSN)
    faults.clear()
    let other = try open(disk, seed: 2)
    #expect(try other.number("a") == 1)
    try other.closeBlocking()
    try store.resumeBlocking()
    #expect(try store.shown() == ["a": 1])
    try store.put("a", 3)
    #expect(try store.number("a") == 3)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try store.closeBlocking()
  }

  /// A resumption of which one file call fails says so, leaves the store suspended and readable, and gives the lock back.
  @Test func `stays suspended if any file call of a resumption fails`() throws {
    var ordinal = 1
    var failed = 0
    while true {
      let disk = SimulatedDisk()
      let faults = FaultInjector(disk)
      let store = try open(faults, seed: 1)
      try store.put("a", 1)
      try store.suspendBlocking()
      // Released without a close: the next open copies the end of the log.
      try open(disk, seed: 2).put("a", 2)
      faults.plan(DiskFault([], ordinal: ordinal, error: .device("", "")))
      let thrown = code { try store.resumeBlocking() }
      let struck = faults.struckCount
      faults.clear()
      if thrown != nil {
        failed += 1
        #expect(thrown == .io || thrown == .outcomeUnknown, "call \(ordinal)")
        #expect(try store.isSuspended && store.number("a") != nil, "call \(ordinal)")
        #expect(code { try store.put("a", 5) } == .suspended)
        try store.resumeBlocking()
      }
      #expect(try store.shown() == ["a": 2], "call \(ordinal)")
      try store.put("a", 3)
      #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
      try store.closeBlocking()
      if struck == 0 { break }
      ordinal += 1
    }
    #expect(failed > 10)
  }

  /// Each file call of a suspension fails once: it may say so, and has given the lock back in any case.
  @Test func `is suspended also if any file call of that fails`() throws {
    var ordinal = 1
    var failed = 0
    while true {
      let disk = SimulatedDisk()
      let faults = FaultInjector(disk)
      let store = try open(faults, seed: 1)
      try store.put("a", 1)
      let queued = try store.enqueue { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 2])) }.receipt
      faults.plan(DiskFault([], ordinal: ordinal, error: .device("", "")))
      let thrown = code { try store.suspendBlocking() }
      let struck = faults.struckCount
      faults.clear()
      if thrown != nil { failed += 1 }
      #expect([nil, .io, .outcomeUnknown].contains(thrown), "call \(ordinal)")
      // What was queued is durable if it says so, and what was acknowledged is there.
      let shown = try store.number("a")
      #expect(store.isSuspended && shown == (queued.durableLSN <= store.durableLSN ? 2 : 1), "call \(ordinal)")
      if thrown == nil { #expect(shown == 2, "call \(ordinal)") }
      let other = try open(disk, seed: 2)
      let kept = try other.number("a")
      #expect(kept == shown || (kept == 2 && thrown != nil), "call \(ordinal)")
      try other.put("b", 1)
      try other.closeBlocking()
      try store.resumeBlocking()
      #expect(try store.number("a") == kept && store.number("b") == 1, "call \(ordinal)")
      #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
      try store.put("a", 3)
      try store.closeBlocking()
      if struck == 0 { break }
      ordinal += 1
    }
    #expect(failed > 3)
  }

  /// The power is cut, or the process killed, at each call of a suspension, of another process beside it, and of the
  /// resumption.
  @Test func `loses nothing that was acknowledged, wherever the power is cut`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    for number in 1..<6 { try store.put("a", Int64(number)) }
    disk.keepsHistory = true
    /// How many calls there were when a value was acknowledged.
    var acknowledged: [(calls: Int, value: Int64)] = [(0, 5)]
    try store.suspendBlocking()
    let other = try open(disk, seed: 2)
    try other.put("a", 6)
    acknowledged.append((disk.history.count, 6))
    try other.compactBlocking()
    try other.closeBlocking()
    try store.resumeBlocking()
    try store.put("a", 7)
    acknowledged.append((disk.history.count, 7))
    let moments = disk.history + [disk.clone()]
    #expect(moments.count > 20)
    for (call, moment) in moments.enumerated() {
      let least = acknowledged.last { $0.calls <= call }?.value ?? 5
      let losses = moment.crashLosses()
      for loss in losses.count < 12 ? losses : losses.prefix(4) + losses.suffix(4) {
        let image = moment.imageAfterCrash(loss)
        let comment: Comment = "call \(call), \(loss)"
        let after = try open(image, seed: 3)
        guard case .int64(let value) = try after.number("a") else {
          Issue.record(comment)
          continue
        }
        #expect(value >= least && value <= 7, comment)
        // A suspended store of another process goes on from there.
        try after.suspendBlocking()
        try after.resumeBlocking()
        try after.put("a", 8)
        #expect(after.projections.withLock { $0.brokenInvariant() } == nil, comment)
        try after.closeBlocking()
      }
    }
    try store.closeBlocking()
  }

  /// As a sequence, what others wrote comes once and in order; what compaction has taken is said.
  @Test func `hands out the changes of other processes`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    var changes = store.observeChanges(since: .start).makeAsyncIterator()
    try store.put("a", 1)
    #expect(try await changes.next()?.id == id("a"))
    try store.suspendBlocking()
    let other = try open(disk, seed: 2)
    try other.put("b", 1)
    if case .writer(let log) = other.source { try log.raiseControl() }
    try store.refresh()
    #expect(try await changes.next()?.id == id("b"))
    try other.put("c", 1)
    try other.closeBlocking()
    try store.resumeBlocking()
    #expect(try await changes.next()?.id == id("c"))
    try store.put("d", 1)
    #expect(try await changes.next()?.id == id("d"))
    try store.suspendBlocking()
    let third = try open(disk, seed: 3)
    for number in 0..<20 { try third.put("a", Int64(number)) }
    try third.compactBlocking()
    try third.closeBlocking()
    try store.resumeBlocking()
    #expect(await outcome { try await changes.next() }.failure?.code == .positionExpired)
    #expect(try store.shown() == ["a": 19, "b": 1, "c": 1, "d": 1])
    try store.closeBlocking()
  }

  @Test func `waits for the closure that runs, and for its sync`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    let suspending = try BlockingThread.start(name: "suspending") {
      #expect(throws: Never.self) { try store.suspendBlocking() }
    }
    // The closure began before the suspension or is refused; one that runs is not interrupted.
    var written: Int64 = 0
    while true {
      do {
        try store.writeBlocking { tx in
          try tx.save(Record(type: "T", id: id("a"), fields: ["n": .int64(written + 1)]))
          // Lets the suspension begin under the closure.
          if written == 3 { while !store.isSuspended {} }
        }
        written += 1
      } catch StrandlineError.Code.suspended { break }
    }
    suspending.join()
    if written > 0 { #expect(try store.number("a") == .int64(written)) }
    try store.resumeBlocking()
    if written > 0 { #expect(try store.number("a") == .int64(written)) }
    try store.closeBlocking()
  }

  /// A compaction that is under way when a suspension begins is given up, and nothing is removed.
  @Test func `gives a compaction up`() throws {
    let disk = SimulatedDisk()
    let hook = ReadHook(base: disk)
    let store = try open(hook, seed: 1)
    for number in 0..<50 { try store.put("a", Int64(number)) }
    let run = Run()
    hook.run.withLock { body in
      body = {
        // Another thread: a suspension waits for the compaction that it interrupts.
        do {
          let thread = try BlockingThread.start(name: "suspending") {
            #expect(throws: Never.self) { try store.suspendBlocking() }
          }
          run.suspending.withLock { $0 = thread }
          while !store.isSuspended {}
        } catch { Issue.record(error) }
      }
    }
    #expect(code { try store.compactBlocking() } == .suspended)
    run.suspending.withLock { $0 }?.join()
    try store.resumeBlocking()
    #expect(try store.shown() == ["a": 49])
    #expect(try store.compactBlocking().eventsBefore > 50)
    #expect(try store.shown() == ["a": 49])
    try store.closeBlocking()
  }

  @Test func `does not sync, and its engine goes on afterwards`() async throws {
    let fleet = try Fleet()
    let device = fleet.device("a")
    let store = try await device.open()
    let receipt = try await store.write { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 1])) }
    try await store.suspend()
    let engine = try store.engine
    await #expect {
      try await engine.sync()
    } throws: { ($0 as? StrandlineError)?.code == .suspended }
    await #expect {
      try await engine.resumeZone(.main)
    } throws: { ($0 as? StrandlineError)?.code == .suspended }
    #expect(fleet.applications == 0 && engine.lastError == nil)
    try await store.resume()
    #expect(try await engine.sync().uploaded == 1)
    try await receipt.uploaded()
    try await device.close()
  }

  /// It ends when the change is settled, by this process or another one, and else with the store or its own task.
  @Test func `leaves a receipt waiting for the server`() async throws {
    let fleet = try Fleet()
    let device = fleet.device("a")
    let store = try await device.open()
    let run = Run()
    @Sendable func wait(_ receipt: Receipt) async -> Result<Void, any Error> {
      let result = await outcome { try await receipt.uploaded() }
      run.answers.add(1, ordering: .relaxed)
      return result
    }
    func write(_ number: Int64) async throws -> Receipt {
      try await store.write { try $0.save(Record(type: "T", id: id("a"), fields: ["n": .int64(number)])) }
    }

    var receipt = try await write(1)
    let before = Task { [receipt] in await wait(receipt) }
    try await store.suspend()
    let during = Task { [receipt] in await wait(receipt) }
    var configuration = SyncConfiguration(device.web())
    configuration.isAutomatic = false
    let other = try await RecordStore.open(
      at: "/store", syncing: configuration, options: Device.options, environment: device.environment)
    #expect(try await other.sync().uploaded == 1)
    try await other.close()
    // What another process has settled, this one knows when it has read it.
    #expect(run.answers.load(ordering: .relaxed) == 0)
    try await store.resume()
    for task in [before, during] { try await task.value.get() }
    #expect(try await receipt.outcome() == [id("a"): .saved])

    receipt = try await write(2)
    try await store.suspend()
    let own = Task { [receipt] in await wait(receipt) }
    try await store.resume()
    #expect(run.answers.load(ordering: .relaxed) == 2)
    #expect(try await store.sync().uploaded == 1)
    try await own.value.get()
    #expect(try await receipt.outcome() == [id("a"): .saved] && fleet.applications == 2)

    receipt = try await write(3)
    try await store.suspend()
    let (cancelled, closed) = (Task { [receipt] in await wait(receipt) }, Task { [receipt] in await wait(receipt) })
    cancelled.cancel()
    if case .failure(let error) = await cancelled.value { #expect(error is CancellationError) } else { Issue.record() }
    try await device.close()
    #expect(await closed.value.failure?.code == .closed)
  }

  /// The store is suspended while an answer is on its way: the cycle ends, and the next one finds out what the server has.
  @Test func `186: gives the cycle under way up, and loses nothing by it`() async throws {
    for answer in 1...8 {
      let fleet = try Fleet()
      let device = fleet.device("a")
      let store = try await device.open()
      try await store.write { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 1])) }
      let run = Run()
      let (suspended, whenSuspended) = AsyncStream.makeStream(of: Bool.self)
      device.whileAsking {
        guard run.answers.add(1, ordering: .relaxed).newValue == answer else { return }
        run.hasBegun.store(true, ordering: .releasing)
        Task {
          let result = await outcome { try await store.suspend() }
          whenSuspended.yield((try? result.get()) != nil)
          whenSuspended.finish()
        }
      }
      let result = await outcome { try await store.sync() }
      device.whileAsking(nil)
      guard run.hasBegun.load(ordering: .acquiring) else {
        whenSuspended.finish()
        #expect(answer > 3)
        try await device.close()
        break
      }
      for await isSuspended in suspended { #expect(isSuspended) }
      // The suspension may begin when the cycle has just ended.
      if case .failure(let error) = result {
        #expect((error as? StrandlineError)?.code == .suspended, "answer \(answer): \(error)")
      }
      try await store.resume()
      try await store.sync()
      let other = fleet.device("b")
      try await other.sync()
      #expect(try await other.open().number("a") == 1)
      #expect(try store.status().unsettled == 0 && fleet.applications == 1, "answer \(answer)")
      #expect(try await device.brokenInvariant() == nil)
      try await device.close()
      try await other.close()
    }
  }

  /// Two stores at one place take turns, at random, against a model.
  @Test(arguments: Campaign.seeds(1...10, every: 5))
  func `takes turns with another one`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.next() % count) }
    let disk = SimulatedDisk()
    let first = try open(disk, seed: seed, segmentBytesMax: 8_192)
    try first.suspendBlocking()
    let second = try open(disk, seed: seed &+ 100, segmentBytesMax: 8_192)
    try second.suspendBlocking()
    try first.resumeBlocking()
    let stores = [first, second]
    var (active, model) = (0, [String: FieldValue]())
    for step in 0..<150 {
      let comment: Comment = "seed \(seed), step \(step)"
      let name = "r\(below(9))"
      switch below(12) {
      case 0...5:
        try stores[active].put(name, Int64(step))
        model[name] = .int64(Int64(step))
      case 6, 7:
        try stores[active].writeBlocking { try $0.delete(id(name)) }
        model[name] = nil
      case 8: try stores[active].compactBlocking()
      case 9: _ = try stores[1 - active].refresh()
      default:
        #expect(code { try stores[1 - active].resumeBlocking() } == .storeHeld, comment)
        try stores[active].suspendBlocking()
        active = 1 - active
        try stores[active].resumeBlocking()
      }
      #expect(try stores[active].shown() == model, comment)
      #expect(stores[active].projections.withLock { $0.brokenInvariant() } == nil, comment)
    }
    for store in stores { try store.closeBlocking() }
    #expect(try open(disk, seed: seed).shown() == model)
  }

  /// Writers, a compactor, readers and callers of `suspend` and `resume` at once: what was acknowledged is there, what was
  /// refused is not, and nothing waits for ever.
  @Test(arguments: Campaign.seeds(1...4, every: 2))
  func `may be suspended and resumed by several callers at once`(seed: UInt64) async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: seed)
    let run = Run()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          var number: Int64 = 0
          while !run.isOver.load(ordering: .acquiring) {
            do {
              let next = number + 1
              try await store.write {
                try $0.save(Record(type: "T", id: id("w\(writer)"), fields: ["n": .int64(next)]))
              }
              number = next
            } catch StrandlineError.Code.suspended { await Task.yield() }
          }
          let last = number
          run.acknowledged.withLock { $0["w\(writer)"] = last }
        }
      }
      group.addTask {
        while !run.isOver.load(ordering: .acquiring) {
          do { try await store.compact() } catch StrandlineError.Code.suspended { await Task.yield() }
        }
      }
      group.addTask {
        while !run.isOver.load(ordering: .acquiring) {
          _ = try store.shown()
          _ = try store.status()
          await Task.yield()
        }
      }
      for caller in 0..<3 {
        group.addTask {
          let random = SeededRandom(seed: seed &* 31 &+ UInt64(caller))
          for _ in 0..<40 {
            if random.next() % 2 == 0 { try await store.suspend() } else { try await store.resume() }
          }
          if caller == 0 { run.isOver.store(true, ordering: .releasing) }
        }
      }
      try await group.waitForAll()
    }
    try await store.resume()
    let expected = run.acknowledged.withLock { $0 }.filter { $0.value > 0 }.mapValues { FieldValue.int64($0) }
    #expect(try store.shown() == expected)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try await store.close()
    #expect(try open(disk, seed: 99).shown() == expected)
  }
}

/// What the tasks of a run share.
private final class Run: Sendable {
  let isOver = Atomic(false)
  /// The last acknowledged number of each writer.
  let acknowledged = Mutex([String: Int64]())
  /// Answers of the server, counted.
  let answers = Atomic(0)
  let hasBegun = Atomic(false)
  let suspending = Mutex<BlockingThread?>(nil)
}

/// Runs something once, before the next read of a segment.
private final class ReadHook: ForwardingFileSystem {
  let base: any FileSystem
  let run: Mutex<(@Sendable () -> Void)?> = Mutex(nil)

  init(base: any FileSystem) { self.base = base }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    if name.hasSuffix(LogFormat.segmentSuffix), case .read = mode {
      let body = run.withLock { run in
        defer { run = nil }
        return run
      }
      body?()
    }
    return try folder.open(name, mode)
  }
}

/// What a call that waits comes to.
private func outcome<Value>(of body: () async throws -> Value) async -> Result<Value, any Error> {
  do { return .success(try await body()) } catch { return .failure(error) }
}

extension Result {
  fileprivate var failure: StrandlineError? {
    if case .failure(let error) = self { error as? StrandlineError } else { nil }
  }
}
