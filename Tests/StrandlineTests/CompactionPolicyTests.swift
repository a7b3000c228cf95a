// Goal: a compaction leaves the history that was asked for, and a store that compacts itself stays small. Method: histories
// with times, folded up to every event that must have stayed and compared with what the whole log folds to there; a store
// that edits one record for ever; and one whose compaction fails, is interrupted, or waits for others.

import Strandline
import StrandlineLog
import StrandlineHost
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private let day: Int64 = 86_400_000
private func id(_ number: Int) -> RecordID { RecordID("r\(number)") }

/// The events of a store's log, by LSN.
private func events(_ store: RecordStore) throws -> [LogEvent] {
  guard case .writer(let log) = store.source, log.durableLSN > 0 else { return [] }
  var found: [LogEvent] = []
  try log.forEachEvent(in: 1...log.durableLSN) { event in
    found.append(event)
    return true
  }
  return found
}

private func folded(_ events: [LogEvent], upTo limit: UInt64) throws -> Projections {
  var projections = Projections()
  for event in events where event.lsn <= limit {
    try projections.apply(event.decoded(), at: LSN(event.lsn), isDurable: true)
  }
  return projections
}

@Suite(.timeLimit(.minutes(30))) struct CompactionPolicyTests {
  /// A store in small segments; the disk, the clock and the store live together.
  private struct Scene {
    let disk = SimulatedDisk()
    let clock = SimulatedClock()

    func open(_ change: (inout StoreOptions) -> Void = { _ in }, seed: UInt64 = 1) throws -> RecordStore {
      var options = Device.options
      options.segmentBytesMax = 8 << 10
      change(&options)
      return try RecordStore.openBlocking(
        at: "/s", options: options, environment: .simulated(disk: disk, clock: clock, seed: seed))
    }

    /// A store that compacts itself, and keeps no history.
    func openCompacting(
      _ change: (inout StoreOptions) -> Void = { _ in }, on fileSystem: (any FileSystem)? = nil, seed: UInt64 = 1
    ) throws -> RecordStore {
      var options = Device.options
      options.segmentBytesMax = 8 << 10
      options.log.upkeep = .inBackground
      options.compaction.history = .latest
      options.compaction.eventsMin = 50
      change(&options)
      return try RecordStore.openBlocking(
        at: "/s", options: options,
        environment: StoreEnvironment(
          SystemEnvironment(fileSystem: fileSystem ?? disk, clock: clock, random: SeededRandom(seed: seed))))
    }
  }

  private func put(_ store: RecordStore, _ id: RecordID, _ value: Int64) throws {
    try store.writeBlocking { tx in
      let record = Record(type: "Note", id: id, fields: ["v": .int64(value), "w": .string("some words")])
      do { try tx.save(record) } catch let error as StrandlineError where error.code == .recordWasDeleted {
        try tx.create(record)
      }
    }
  }

  @Test func `that a held view keeps from much says so, and does the rest`() throws {
    let scene = Scene()
    let store = try scene.open { $0.log.consumerHoldBytesMax = 16 << 10 }
    func write(_ count: Int) throws {
      for number in 0..<count {
        try store.writeBlocking { tx in
          let text = FieldValue.string(String(repeating: "x", count: 600))
          try tx.save(Record(type: "T", id: id(number % 3), fields: ["t": text, "n": .int64(Int64(number))]))
        }
      }
    }
    func bytes() throws -> UInt64 { try store.compactBlocking().bytesBefore }
    try write(60)
    var view: StoreView? = try store.view()
    let shown = try #require(view).records([id(0), id(1)])
    try write(90)
    let files = scene.disk.paths.count
    do {
      _ = try bytes()
      Issue.record("the compaction did not wait for the view")
    } catch let error as StrandlineError {
      #expect(error.code == .eventsHeld && !error.code.isTransient)
      #expect(error.message.contains("the consumer 'a view of the store' has read up to LSN "), "\(error)")
      #expect(error.message.hasSuffix("; what is older was compacted"), "\(error)")
      #expect(error.lsns?.lowerBound == view?.lsn)
    }
    #expect(scene.disk.paths.count < files)
    #expect(try view?.records([id(0), id(1)]) == shown)
    view = nil
    #expect(try bytes() > 32 << 10 && store.recordCount == 3)
    try store.closeBlocking()
  }

  @Test func `what is younger than asked for stays, with the records as they were`() throws {
    var removed = 0
    var ranges = 0
    for seed in Campaign.seeds(1...24, every: 4) {
      let random = SeededRandom(seed: seed)
      func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
      let scene = Scene()
      let store = try scene.open(seed: seed)
      for step in 0..<300 {
        if below(4) == 0 { scene.clock.turnWallClock(by: .milliseconds(Int64(below(Int(2 * day))))) }
        // The user sets the clock back by years, and forth.
        if below(100) == 0 { scene.clock.turnWallClock(by: .seconds(-86_400 * 3_650)) }
        if below(100) == 1 { scene.clock.turnWallClock(by: .seconds(86_400 * 3_650)) }
        if below(6) == 0 {
          _ = try store.writeBlocking { _ = try $0.delete(id(below(12))) }
        } else {
          try put(store, id(below(12)), Int64(step))
        }
      }
      guard case .writer(let log) = store.source else { continue }
      try log.finishSegment()
      let whole = try events(store)
      let days = Int64(below(40))
      let oldest = scene.clock.wallMilliseconds() - days * day
      let report = try store.compactBlocking(keeping: .since(.milliseconds(days * day)))
      removed += Int(report.eventsBefore - report.eventsAfter)
      let left = try events(store)
      // From the first event on that is young enough, everything is there.
      let first = try whole.first { (try $0.timeMilliseconds()).map { $0 >= oldest } ?? false }?.lsn
      guard let first else { continue }
      ranges += 1
      #expect(left.filter { $0.lsn >= first }.map(\.lsn) == whole.filter { $0.lsn >= first }.map(\.lsn), "seed \(seed)")
      for lsn in stride(from: first, through: log.durableLSN, by: 7) {
        let difference = try folded(left, upTo: lsn).difference(from: folded(whole, upTo: lsn))
        #expect(difference.isEmpty, "seed \(seed), event \(lsn): \(difference.words)")
      }
      // Nothing of it hinders the next one.
      try store.compactBlocking(keeping: .latest)
      let difference = try folded(events(store), upTo: .max).difference(from: folded(whole, upTo: .max))
      #expect(difference.isEmpty, "seed \(seed): \(difference.words)")
      try store.closeBlocking()
    }
    let least = Campaign.isWhole ? (500, 12) : (100, 2)
    #expect(removed > least.0 && ranges > least.1, "\(removed) events removed, \(ranges) histories with a younger part")
  }

  @Test func `all keeps all, the default 30 days, and latest nothing that no record needs`() async throws {
    let scene = Scene()
    let store = try scene.open()
    for edit in 0..<400 {
      if edit == 200 { scene.clock.turnWallClock(by: .seconds(86_400 * 31)) }
      try put(store, id(0), Int64(edit))
    }
    let count = try events(store).count
    #expect(try await store.compact(keeping: .all).eventsBefore == 0)
    #expect(try events(store).count == count)
    try await store.compact()
    let left = try events(store)
    #expect(left.count < count - 50 && left.count >= 201, "\(left.count) of \(count)")
    #expect(try store.history(of: id(0), limit: 1_000).changes.count >= 200)
    try await store.compact(keeping: .latest)
    #expect(try events(store).count < 10)
    try store.closeBlocking()
  }

  @Test func `an app that edits one record for ever stays small without asking`() throws {
    let scene = Scene()
    let store = try scene.openCompacting()
    guard case .writer(let log) = store.source else { return }
    var most: UInt64 = 0
    for edit in 0..<3_000 {
      try put(store, id(0), Int64(edit))
      guard edit % 50 == 49 else { continue }
      store.compaction?.wait()
      // Two segments are not worth it, one more is in use, and another one filled meanwhile.
      most = max(most, log.finishedBytes)
    }
    #expect(most > 8 << 10 && most <= 4 * 8 << 10, "\(most) bytes")
    #expect(try store.record(id(0))?["v"] == .int64(2_999))
    #expect(try store.status().compactionFailure == nil)
    try store.closeBlocking()
    let again = try scene.open(seed: 2)
    #expect(try again.record(id(0))?["v"] == .int64(2_999))
    try again.closeBlocking()
  }

  @Test func `a store of which nothing can go is looked at ever more rarely`() throws {
    let scene = Scene()
    let store = try scene.openCompacting()
    var considered: Set<LSN> = []
    for number in 0..<2_000 {
      try put(store, id(number), 1)
      store.compaction?.wait()
      considered.insert(store.projections.withLock { $0.consideredLSN })
    }
    // With the two segments full, at half as much again each time.
    #expect(considered.count > 4 && considered.count < 16, "\(considered.sorted())")
    #expect(try events(store).count == 2_001)
    // It is known after the next open.
    let last = store.projections.withLock { $0.consideredLSN }
    try store.closeBlocking()
    let again = try scene.open(seed: 2)
    #expect(again.projections.withLock { $0.consideredLSN } == last)
    try again.closeBlocking()
  }

  @Test func `a compaction in the background that fails is named by the status, and tried again`() throws {
    let scene = Scene()
    let faults = FaultInjector(scene.disk)
    let store = try scene.openCompacting(on: faults)
    for edit in 0..<120 { try put(store, id(0), Int64(edit)) }
    store.compaction?.wait()
    guard case .writer(let log) = store.source else { return }
    // No run can be made: neither for the comparison nor for what lies in memory. It is tried again after 50 events.
    var failures: [String] = []
    faults.plan(
      DiskFault([.rename], pathSuffix: ".run", isSticky: true, error: SystemError(call: "", subject: "", errno: 28)))
    for edit in 0..<400 {
      try put(store, id(0), Int64(edit))
      store.compaction?.wait()
      if let failure = try store.status().compactionFailure { failures.append(failure) }
    }
    faults.clear()
    #expect(failures.count > 100 && failures.allSatisfy { $0.contains("no space left") }, "\(failures.first ?? "")")
    for edit in 0..<200 {
      try put(store, id(0), Int64(edit))
      store.compaction?.wait()
    }
    #expect(try store.status().compactionFailure == nil)
    #expect(log.finishedBytes <= 4 * 8 << 10)
    try store.closeBlocking()
  }

  @Test func `a close ends a compaction in the background, and nothing is lost`() throws {
    for seed in 1...20 as ClosedRange<UInt64> {
      let scene = Scene()
      let store = try scene.openCompacting { $0.compaction.diskShare = 0.01 }
      for edit in 0..<Int(200 + seed) { try put(store, id(edit % 3), Int64(edit)) }
      try store.closeBlocking()
      let again = try scene.open(seed: seed)
      #expect(try again.record(id(Int(199 + seed) % 3))?["v"] == .int64(Int64(199 + seed)))
      let difference = try again.projections.withLock { (state) throws(StrandlineError) in state }
        .difference(from: folded(events(again), upTo: .max))
      #expect(difference.isEmpty, "\(difference.words)")
      try again.closeBlocking()
    }
  }

  @Test func `what a view needs stays, and a fold of many records spills into runs that are gone afterwards`() throws {
    let scene = Scene()
    let store = try scene.open()
    for number in 0..<300 { try put(store, id(number), 1) }
    do {
      let view = try store.view()
      for number in 0..<300 { try put(store, id(number), 2) }
      _ = try store.writeBlocking { tx in for number in 0..<300 where number % 3 == 0 { _ = try tx.delete(id(number)) }
      }
      // The view holds the end of the log: what is before it is judged by a state that is folded.
      let report = try store.compactBlocking()
      #expect(report.recordsKeptWhole == 0)
      for number in 0..<300 { #expect(try view.record(id(number))?["v"] == .int64(1)) }
    }
    try store.compactBlocking()
    for number in 0..<300 { #expect(try store.record(id(number))?["v"] == (number % 3 == 0 ? nil : .int64(2))) }
    let listed = store.projections.withLock { $0.runs?.list.runNumbers ?? [] }
    let files = try scene.disk.list("/s/runs").filter { $0 != "RUNS" }
    #expect(files.count == listed.count, "\(files) for \(listed)")
    try store.closeBlocking()
  }
}
