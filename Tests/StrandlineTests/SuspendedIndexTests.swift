// Goal: a store that was suspended and resumed answers what the log says, whatever another writer has done meanwhile with
// the log and with the runs below the projections: written, merged, replaced, lost. Method: two stores with runs after a
// handful of changes take turns at one place on a simulated disk, in random histories, against a dictionary and against
// projections that were made from the log alone.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

/// A store with many small runs.
private func options(segmentBytes: Int) -> StoreOptions {
  var log = LogOptions()
  log.segmentBytesMax = segmentBytes
  log.controlIntervalMilliseconds = nil
  log.ballastBytes = 0
  log.upkeep = .onDemand
  var index = IndexOptions()
  index.flushCount = 8
  index.closeCount = 1
  index.mergeWidth = 3
  index.cacheBytesMax = 16 << 10
  return StoreOptions(log: log, index: index)
}

private struct Lives {
  let seed: UInt64
  let random: SeededRandom
  /// Large segments are not merged when a writer closes, so a resumed store has what it knew.
  let segmentBytes: Int
  let disk = SimulatedDisk()
  var store: RecordStore
  /// Another process, while the store is suspended.
  var other: RecordStore?
  var model: [RecordID: Int64] = [:]
  var held: (view: StoreView, model: [RecordID: Int64])?
  var steps: [String] = []
  var (resumed, replaced, runsMax) = (0, 0, 0)

  init(_ seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    segmentBytes = [8 << 10, 1 << 20][Int(seed % 2)]
    store = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: segmentBytes), environment: .simulated(disk: disk, seed: seed))
  }

  var comment: String { "seed \(seed): \(steps.suffix(16).joined(separator: ", "))" }

  func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  func anyID() -> RecordID { RecordID("r\(below(40))", zone: [ZoneID.main, ZoneID("Other")][below(4) / 3]) }

  /// Who writes now.
  var writer: RecordStore? { store.isSuspended ? other : store }

  mutating func note(_ step: String) { steps.append("\(store.isSuspended ? "other " : "")\(step)") }

  mutating func step() throws {
    guard let writer else { return try stepWithoutWriter() }
    switch below(26) {
    case 0..<10:
      var changes: [RecordID: Int64] = [:]
      for _ in 0...below(3) { changes[anyID()] = Int64(below(1000)) }
      note("save \(changes.count)")
      let known = model
      try writer.writeBlocking { tx in
        for (id, value) in changes.sorted(by: { $0.key < $1.key }) {
          let record = Record(type: "Note", id: id, fields: ["v": .int64(value)])
          if known[id] == nil { try tx.create(record) } else { try tx.save(record) }
        }
      }
      model.merge(changes) { $1 }
    case 10..<13:
      guard let id = model.keys.sorted().dropFirst(below(max(1, model.count))).first else { return }
      note("delete")
      try writer.writeBlocking { try $0.delete(id) }
      model[id] = nil
    case 13, 14:
      note("flush")
      try #require(writer.index).flush()
    case 15:
      guard below(2) == 0 else { return }
      note("compact")
      try writer.compactBlocking()
    case 16:
      note("fail")
      do {
        try writer.writeBlocking { tx in
          try tx.save(Record(type: "Note", id: RecordID("never"), fields: ["v": 1]))
          throw Failure()
        }
      } catch is Failure {}
    case 17..<21:
      if store.isSuspended {
        // Releasing it is a process that ends without closing the store.
        let closes = below(3) > 0
        note(closes ? "close" : "end")
        if closes { try writer.closeBlocking() }
        other = nil
      } else {
        if held == nil, below(2) == 0 { held = (try store.view(), model) }
        note("suspend")
        try store.suspendBlocking()
        #expect(store.index == nil)
      }
    case 21:
      guard store.isSuspended else { return }
      try refresh()
    default: try check()
    }
    runsMax = max(runsMax, writer.index?.runCount ?? 0)
  }

  struct Failure: Error {}

  private mutating func stepWithoutWriter() throws {
    switch below(8) {
    case 0..<2:
      steps.append("open other")
      other = try RecordStore.openBlocking(
        at: "/store", options: options(segmentBytes: segmentBytes),
        environment: .simulated(disk: disk, seed: random.next()))
    case 2: try refresh()
    case 3:
      let runs = disk.paths.filter { $0.hasPrefix("/store/runs/") }
      guard below(4) == 0, !runs.isEmpty else { return }
      steps.append("lose runs")
      for path in runs where below(2) == 0 { disk.pokeRemove(path) }
    default: try resume()
    }
  }

  private mutating func refresh() throws {
    steps.append("refresh")
    if case .writer(let log)? = other?.source { try log.raiseControl() }
    try store.refresh()
    try check(store)
  }

  private mutating func resume() throws {
    steps.append("resume")
    let before = store.projections.withLock { $0.runs }
    try store.resumeBlocking()
    resumed += 1
    let after = store.projections.withLock { $0.runs }
    if before !== after { replaced += 1 }
    try check(store)
    guard let (view, known) = held else { return }
    held = nil
    do {
      var ids: [RecordID] = []
      try view.forEachRecord { ids.append($0.id) }
      #expect(ids == known.keys.sorted(), "\(comment)")
      for id in known.keys { #expect(try view.record(id)?["v"] == known[id].map { .int64($0) }, "\(id), \(comment)") }
    } catch StrandlineError.Code.outdated {
      // The log was rewritten meanwhile.
    }
  }

  private func check() throws {
    guard let writer else { return }
    if case .writer(let log) = writer.source { try log.raiseControl() }
    try check(writer)
  }

  private func check(_ store: RecordStore) throws {
    let comment = "\(comment)"
    for _ in 0..<6 {
      let id = anyID()
      #expect(try store.record(id)?["v"] == model[id].map { .int64($0) }, "\(id), \(comment)")
    }
    #expect(try store.recordIDs() == model.keys.sorted(), "\(comment)")
    #expect(store.recordCount == model.count, "\(comment)")
    let files = IndexFiles(
      try disk.folder("/store"), .simulated(disk, seed: 2), cache: BlockCache(bytesMax: 0))
    let folded = try IndexOpening.folding(files, spillingAt: nil).opened.projections
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try folded.difference(from: state)
    }
    #expect(difference.ids.isEmpty, "\(difference.words), \(comment)")
    #expect(store.projections.withLock { $0.deletions.count } == folded.deletions.count, "\(comment)")
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil, "\(comment)")
  }

  mutating func end() throws {
    try other?.closeBlocking()
    other = nil
    if store.isSuspended { try resume() }
    try check()
    try store.closeBlocking()
    let again = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: segmentBytes), environment: .simulated(disk: disk, seed: 9))
    try check(again)
    try again.closeBlocking()
  }
}

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do {
    try body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

/// Runs something once, before the next run is created.
private final class RunHook: ForwardingFileSystem {
  let base: any FileSystem
  let run: Mutex<(@Sendable () -> Void)?> = Mutex(nil)

  init(base: any FileSystem) { self.base = base }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    if name.contains("runs/0"), case .create = mode {
      let body = run.withLock { run in
        defer { run = nil }
        return run
      }
      body?()
    }
    return try folder.open(name, mode)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A suspended store over sorted runs` {
  @Test(arguments: Campaign.seeds(1...24))
  func `answers what the log says when it is resumed`(seed: UInt64) throws {
    var lives = try Lives(seed)
    for _ in 0..<240 { try lives.step() }
    try lives.end()
    #expect(lives.resumed > 3 && lives.replaced > 0 && lives.runsMax > 2, "\(lives.resumed) \(lives.replaced)")
  }

  @Test func `goes on from the runs of another writer, beside a view of before`() throws {
    var lives = try Lives(1)
    func save(_ store: RecordStore, _ value: Int64, _ numbers: Range<Int>, _ model: inout [RecordID: Int64]) throws {
      for number in numbers {
        let id = RecordID("r\(number)")
        try store.writeBlocking { try $0.save(Record(type: "Note", id: id, fields: ["v": .int64(value)])) }
        model[id] = value
      }
    }
    let store = lives.store
    try save(store, 1, 0..<30, &lives.model)
    try #require(store.index).flush()
    try save(store, 2, 5..<8, &lives.model)
    let (view, shown) = (try store.view(), lives.model)
    let own = try #require(store.projections.withLock { $0.runs })
    try store.suspendBlocking()
    var other: RecordStore? = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: 1 << 20), environment: .simulated(disk: lives.disk, seed: 3))
    try save(#require(other), 3, 7..<40, &lives.model)
    try other?.writeBlocking { try $0.delete(RecordID("r2")) }
    lives.model[RecordID("r2")] = nil
    try other?.index?.flush()
    let listed = try #require(other?.projections.withLock { $0.runs })
    // Released without a close, which would merge segments: then the projections would be made anew.
    other = nil
    try store.resumeBlocking()
    let taken = try #require(store.projections.withLock { $0.runs })
    #expect(taken !== own && taken.end == listed.end && own.end.lsn < listed.end.lsn)
    for (id, value) in lives.model { #expect(try store.record(id)?["v"] == .int64(value), "\(id)") }
    #expect(try store.record(RecordID("r2")) == nil)
    for (id, value) in shown { #expect(try view.record(id)?["v"] == .int64(value), "\(id)") }
    // The next run has a number of its own, and the list names it with the others.
    try save(store, 4, 3..<7, &lives.model)
    try #require(store.index).flush()
    try store.closeBlocking()
    let again = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: lives.disk, seed: 4))
    #expect(try again.recordIDs() == lives.model.keys.sorted())
    for (id, value) in lives.model { #expect(try again.record(id)?["v"] == .int64(value), "\(id)") }
  }

  @Test func `makes its runs anew when they are gone`() throws {
    let disk = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: 8 << 10), environment: .simulated(disk: disk, seed: 1))
    for number in 0..<60 {
      try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
    }
    try #require(store.index).flush()
    try store.suspendBlocking()
    for path in disk.paths where path.hasPrefix("/store/runs/") { disk.pokeRemove(path) }
    #expect(try store.recordIDs().count == 60)
    try store.resumeBlocking()
    #expect(try store.recordIDs().count == 60 && store.record(RecordID("r3"))?["v"] == 1)
    try store.writeBlocking { try $0.delete(RecordID("r3")) }
    try #require(store.index).flush()
    try store.closeBlocking()
    let again = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 4))
    #expect(try again.recordIDs().count == 59 && again.record(RecordID("r3")) == nil)
  }

  /// The store is suspended when the run of a declared index is being written.
  @Test func `ends a build, and builds the index when it is resumed`() throws {
    let disk = SimulatedDisk()
    let hook = RunHook(base: disk)
    let random = SeededRandom(seed: 1)
    let environment = StoreEnvironment(
      SystemEnvironment(fileSystem: hook, clock: SimulatedClock(autoAdvance: true), random: random), isSimulated: true)
    let store = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: 8 << 10), environment: environment)
    for number in 0..<60 {
      let fields: [String: FieldValue] = ["v": .int64(Int64(number % 7))]
      try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: fields)) }
    }
    let index = try #require(store.index)
    try index.flush()
    let threads = Mutex<[BlockingThread]>([])
    hook.run.withLock { body in
      body = {
        do {
          let building = try BlockingThread.start(name: "building") {
            #expect(code { try store.buildIndexesBlocking() } == .suspended)
          }
          let suspending = try BlockingThread.start(name: "suspending") {
            #expect(throws: Never.self) { try store.suspendBlocking() }
          }
          threads.withLock { $0 = [building, suspending] }
          while !index.hasEnded {}
        } catch { Issue.record(error) }
      }
    }
    // In the background of an app; here on this thread.
    try store.addIndex(RecordIndex("Note", "v"))
    for thread in threads.withLock({ $0 }) { thread.join() }
    let query = RecordQuery("Note", where: [RecordFilter("v", .equals, 3)])
    func check(_ store: RecordStore, isReady: Bool) throws {
      let indexes = try store.indexes()
      #expect(indexes.map(\.index) == [RecordIndex("Note", "v")] && indexes.map(\.isReady) == [isReady])
      #expect(try (store.explain(query).index != nil) == isReady && store.query(query).records.count == 9)
    }
    #expect(store.isSuspended)
    try check(store, isReady: false)
    #expect(code { try store.addIndex(RecordIndex("Note", "w")) } == .suspended)
    #expect(code { try store.dropIndex(RecordIndex("Note", "v")) } == .suspended)
    #expect(code { try store.buildIndexesBlocking() } == .suspended)
    // The old index has ended: what still holds it writes nothing.
    #expect(code { try index.flush(always: true) } == .suspended)
    try check(
      RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 2)), isReady: false)
    try store.resumeBlocking()
    try check(store, isReady: true)
    try store.closeBlocking()
    try check(
      RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 3)), isReady: true)
  }

  @Test func `has the indexes of its list when it is resumed, or those that are declared by then`() throws {
    for list in [nil, [RecordIndex("Note", "v")]] as [[RecordIndex]?] {
      let disk = SimulatedDisk()
      let store = try openIndexed(disk, seed: 1, declaring: list)
      for number in 0..<20 {
        let fields: [String: FieldValue] = ["v": .int64(Int64(number % 3)), "w": .int64(Int64(number % 5))]
        try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: fields)) }
      }
      // Also one that was added later is of the list.
      try store.addIndex(RecordIndex("Note"))
      try store.suspendBlocking()
      let other = try openIndexed(disk, seed: 2, declaring: [RecordIndex("Note", "w")])
      try other.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("new"), fields: ["v": 1, "w": 1])) }
      try other.closeBlocking()
      try store.resumeBlocking()
      let expected = list.map { $0 + [RecordIndex("Note")] } ?? [RecordIndex("Note", "w")]
      #expect(try Set(store.indexes().map(\.index)) == Set(expected) && store.indexes().allSatisfy(\.isReady))
      for index in expected where index != RecordIndex("Note") {
        let query = RecordQuery("Note", where: [RecordFilter(index.fields[0].field, .equals, 1)])
        #expect(try store.explain(query).index == index && store.query(query).records.contains { $0.id.name == "new" })
      }
      try store.closeBlocking()
    }
  }

  @Test func `is backed up without them, and the copy answers the same`() throws {
    let disk = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: options(segmentBytes: 8 << 10), environment: .simulated(disk: disk, seed: 1))
    for number in 0..<60 {
      let id = RecordID("r\(number % 40)")
      try store.writeBlocking {
        try $0.save(Record(type: "Note", id: id, fields: ["v": .int64(Int64(number))]))
      }
    }
    try store.writeBlocking { try $0.delete(RecordID("r3")) }
    try store.compactBlocking()
    #expect(disk.paths.contains { $0.hasPrefix("/store/runs/") })
    for (place, isSuspended) in [("/copy", false), ("/second", true)] {
      if isSuspended { try store.suspendBlocking() }
      try store.backupBlocking(to: place)
      #expect(!disk.paths.contains { $0.hasPrefix("\(place)/runs") })
      let copy = try RecordStore.openBlocking(
        at: place, options: options(segmentBytes: 8 << 10), environment: .simulated(disk: disk, seed: 2))
      for round in 0..<2 {
        #expect(try copy.recordIDs() == store.recordIDs() && copy.recordCount == 39)
        for id in try store.recordIDs() { #expect(try copy.record(id)?["v"] == store.record(id)?["v"], "\(id)") }
        if round == 0 { try #require(copy.index).flush() }
      }
      #expect(disk.paths.contains { $0.hasPrefix("\(place)/runs/") })
      try copy.closeBlocking()
    }
    try store.closeBlocking()
  }
}
