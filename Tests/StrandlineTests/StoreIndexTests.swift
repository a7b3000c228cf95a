// Goal: what a store answers does not depend on what of it lies in runs: flushed, merged, reopened, crashed, compacted, or
// with runs that are damaged or gone, it is what the log says. Method: random histories on a simulated disk with runs after
// a handful of changes, against a dictionary and against projections that were made from the log alone. A slice: the whole
// campaign, with failing calls, indexes and observers, runs in release through `strandline crash-test --store`.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private func open(_ disk: SimulatedDisk, seed: UInt64, closing: UInt64 = 1) throws -> RecordStore {
  try openIndexed(disk, seed: seed, closing: closing)
}

extension SimulatedDisk {
  fileprivate var runs: [String] { paths.filter { $0.hasPrefix("/store/runs/") } }
}

/// A store, and what it must say.
private struct Life {
  let seed: UInt64
  let random: SeededRandom
  var disk = SimulatedDisk()
  var store: RecordStore
  var model: [RecordID: Int64] = [:]
  var steps: [String] = []
  /// Whether a test has damaged its runs.
  var isDamaged = false
  /// The most runs at one time.
  var runsMax = 0

  init(_ seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    store = try open(disk, seed: seed)
  }

  var comment: String { "seed \(seed): \(steps.suffix(12).joined(separator: ", "))" }

  func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  func anyID() -> RecordID {
    RecordID("r\(below(40))", zone: [ZoneID.main, ZoneID("Other"), ZoneID("Ma")][below(10) / 4])
  }

  mutating func step() throws {
    switch below(24) {
    case 0..<10:
      var changes: [RecordID: Int64] = [:]
      for _ in 0...below(3) { changes[anyID()] = Int64(below(1000)) }
      steps.append("save \(changes.count)")
      let known = model
      try store.writeBlocking { tx in
        for (id, value) in changes.sorted(by: { $0.key < $1.key }) {
          let record = Record(type: "Note", id: id, fields: ["v": .int64(value)])
          if known[id] == nil { try tx.create(record) } else { try tx.save(record) }
        }
      }
      model.merge(changes) { $1 }
    case 10..<14:
      guard let id = model.keys.sorted().dropFirst(below(max(1, model.count))).first else { return }
      steps.append("delete \(id)")
      try store.writeBlocking { try $0.delete(id) }
      model[id] = nil
    case 14:
      steps.append("flush")
      try store.index?.flush()
    case 15:
      steps.append("compact")
      try store.compactBlocking()
    case 16..<18:
      steps.append("reopen")
      try store.closeBlocking()
      let hasRuns = disk.runs.contains { $0.hasSuffix("/RUNS") }
      store = try open(disk, seed: random.next())
      let believes = store.projections.withLock { $0.runs != nil }
      #expect(believes == hasRuns || isDamaged, "the runs of a clean close are believed, \(comment)")
    case 18..<20:
      steps.append("crash")
      disk = disk.imageAfterCrash(.none)
      store = try open(disk, seed: random.next())
    case 20:
      steps.append("fail")
      try store.writeBlocking { tx in
        try tx.save(Record(type: "Note", id: RecordID("never"), fields: ["v": 1]))
        throw Failure()
      }
    default: try check()
    }
    runsMax = max(runsMax, store.index?.runCount ?? 0)
  }

  struct Failure: Error {}

  func check() throws {
    let comment = "\(comment)"
    // Readers see what is promised, which may be less than what is durable.
    if case .writer(let log) = store.source { try log.raiseControl() }
    for _ in 0..<4 {
      let id = anyID()
      #expect(try store.record(id)?["v"] == model[id].map { .int64($0) }, "\(id), \(comment)")
    }
    #expect(try store.recordIDs() == model.keys.sorted(), "\(comment)")
    #expect(try store.recordIDs(in: .main) == model.keys.filter { $0.zone == .main }.sorted(), "\(comment)")
    try checkPages()
    #expect(store.recordCount == model.count, "\(comment)")
    let id = anyID()
    #expect(try store.status().records == model.count, "\(comment)")
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 1))
    #expect(try reader.record(id)?["v"] == model[id].map { .int64($0) }, "\(id), \(comment)")
    #expect(try reader.recordIDs() == model.keys.sorted(), "\(comment)")
    try compareWithLog()
  }

  /// Names with a prefix, page by page, of one zone and of all.
  private func checkPages() throws {
    for zone in [ZoneID("Other"), nil] {
      let prefix = "r\(below(5))"
      var found: [RecordID] = []
      let size = below(4) + 1
      while true {
        let page = try store.recordIDs(in: zone, prefix: prefix, after: found.last, limit: size)
        found += page
        if page.count < size { break }
      }
      let expected = model.keys.filter { (zone == nil || $0.zone == zone) && $0.name.hasPrefix(prefix) }
      #expect(found == expected.sorted(), "\(prefix) of \(zone?.name ?? "all zones"), \(comment)")
    }
  }

  /// The projections against those that the log alone gives.
  func compareWithLog() throws {
    let files = IndexFiles(
      try disk.folder("/store"), .simulated(disk, seed: 2), cache: BlockCache(bytesMax: 0))
    let folded = try IndexOpening.folding(files, spillingAt: nil).opened.projections
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try folded.difference(from: state)
    }
    // The greatest time may be that of an event that was undone.
    #expect(difference.ids.isEmpty, "\(difference.words), \(comment)")
    #expect(store.projections.withLock { $0.deletions.count } == folded.deletions.count, "\(comment)")
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil, "\(comment)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A store over sorted runs` {
  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `answers what the log says`(seed: UInt64) throws {
    var life = try Life(seed)
    for _ in 0..<160 {
      do { try life.step() } catch is Life.Failure {}
    }
    try life.check()
    #expect(life.runsMax > 2)
    try life.store.closeBlocking()
    #expect(life.disk.runs.count > 1)
  }

  @Test(arguments: Campaign.seeds(1...6, every: 2))
  func `answers the same when runs are damaged, missing or another store's`(seed: UInt64) throws {
    var life = try Life(seed)
    var damaged = 0
    life.isDamaged = true
    for step in 0..<160 {
      do { try life.step() } catch is Life.Failure {}
      guard step % 10 == 9, let path = life.disk.runs.dropFirst(life.below(max(1, life.disk.runs.count))).first else {
        continue
      }
      var bytes = try #require(life.disk.peek(path))
      if bytes.isEmpty { continue }
      switch life.below(4) {
      case 0: bytes.removeLast(life.below(bytes.count) + 1)
      case 1: bytes = []
      default: for _ in 0...life.below(3) { bytes[life.below(bytes.count)] ^= 1 << UInt8(life.below(8)) }
      }
      life.steps.append("damage \(path)")
      life.disk.poke(path, bytes)
      damaged += 1
      if life.below(3) == 0 {
        // Without a close, which would write a run.
        life.disk = life.disk.imageAfterCrash(.none)
        life.store = try open(life.disk, seed: life.random.next())
      }
      try life.check()
    }
    #expect(damaged > 5)
  }

  @Test func `says in its status that runs could not be merged, until they are`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    func put(_ round: Int) throws {
      try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(round)"), fields: ["v": 1])) }
      try store.index?.flush()
    }
    for round in 0..<2 { try put(round) }
    #expect(try store.status().indexFailure == nil && store.index?.runCount == 1)
    let path = try #require(disk.runs.first { $0.hasSuffix(".run") })
    var bytes = try #require(disk.peek(path))
    bytes[RunFormat.runHeaderBytes + 20] ^= 1
    disk.poke(path, bytes)
    try put(2)
    #expect(try store.status().indexFailure?.contains("damaged") == true)
    // The read that meets the block has the runs made anew; the next merge finds nothing wrong.
    for round in 0..<12 { try put(round + 3) }
    for round in 0..<15 { #expect(try store.record(RecordID("r\(round)"))?["v"] == 1) }
    for round in 0..<6 { try put(round + 20) }
    #expect(try store.status().indexFailure == nil)
    try store.closeBlocking()
  }

  @Test func `reads nothing of the log that the runs know`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    for number in 0..<400 {
      try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
    }
    try store.closeBlocking()
    var handedOut = 0
    let cache = BlockCache(bytesMax: 1 << 20)
    var opening = IndexOpening(.simulated(disk, seed: 2), cache, ignoringRuns: false, spillingAt: nil)
    let folder = try disk.folder("/store")
    let reader = try LogReader.open(in: folder, role: .store, environment: .simulated(disk, seed: 2)) { uuid in
      opening.begin(folder, uuid, isRefused: false)
    }
    try reader.poll { _ in handedOut += 1 }
    #expect(handedOut == 0 && opening.projections.records.count == 400)
    let again = try open(disk, seed: 3)
    #expect(again.projections.unstoredCount == 0 && again.recordCount == 400)
    #expect(try again.record(RecordID("r399"))?["v"] == 1)
    try again.closeBlocking()
  }

  @Test func `of another log are not believed`() throws {
    // Two histories of one store: the copy goes on by itself, then gets the runs of the other.
    let disk = SimulatedDisk()
    let first = try open(disk, seed: 1)
    for number in 0..<30 {
      try first.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
    }
    try first.closeBlocking()
    let copy = disk.clone()
    // In another order, so that an event of the one history is another record's in the other.
    for (disk, numbers) in [(disk, Array(0..<30)), (copy, (0..<30).reversed())] {
      let store = try open(disk, seed: 4)
      for number in numbers {
        try store.writeBlocking {
          try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": .int64(Int64(100 + number))]))
        }
      }
      try store.closeBlocking()
    }
    for path in copy.runs { copy.pokeRemove(path) }
    for path in disk.runs { copy.poke(path, try #require(disk.peek(path))) }
    for store in [
      try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: copy, seed: 5)),
      try open(copy, seed: 6),
    ] {
      for number in 0..<30 {
        #expect(try store.record(RecordID("r\(number)"))?["v"] == .int64(Int64(100 + number)))
      }
      try store.closeBlocking()
    }
  }
}
