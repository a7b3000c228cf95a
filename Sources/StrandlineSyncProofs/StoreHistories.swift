// Random histories of one store: writes, deletions, new lives of deleted names, outcomes that the server would send,
// queries page by page, views that are held, flushes and merges of its runs, compactions, damaged runs, failing calls,
// power cuts, another process that reads; against a dictionary.
//
// Each step has numbers of its own, so that a history of which steps are left out means the same: one that fails is made
// as short as it still fails.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// One random history of a store.
package struct StoreHistory {
  /// A history that went wrong, as short as it was made.
  package struct Failure: Error, CustomStringConvertible {
    package var seed: UInt64
    /// The steps that are needed, by their places in the history of the seed.
    package var steps: [Int]
    package var what: String
    package var trace: [String]

    package var description: String {
      "seed \(seed), \(steps.count) steps: \(what)\n  " + trace.joined(separator: "\n  ")
    }
  }

  /// How often each case occurred. A campaign in which one of them never occurs does not test it.
  package struct Tally: Hashable, Sendable {
    package var histories = 0
    package var steps = 0
    package var writes = 0
    package var comparisons = 0
    package var powerCuts = 0
    package var failures = 0
    package var compactions = 0
    package var damages = 0
    package var settled = 0
    package var pages = 0
    package var viewReads = 0
    package var runsMax = 0

    package init() {}

    package mutating func add(_ other: Tally) {
      histories += other.histories
      steps += other.steps
      writes += other.writes
      comparisons += other.comparisons
      powerCuts += other.powerCuts
      failures += other.failures
      compactions += other.compactions
      damages += other.damages
      settled += other.settled
      pages += other.pages
      viewReads += other.viewReads
      runsMax = max(runsMax, other.runsMax)
    }
  }

  private enum Operation: CaseIterable {
    case save, delete, undone, settle, flush, compact, reopen, crash, cutLater, failLater, damage, takeView, readView
    case query, openReader, refresh, compare

    /// How often it comes, of a hundred.
    var weight: Int {
      switch self {
      case .save: 26
      case .delete: 12
      case .settle: 10
      case .flush, .cutLater: 6
      case .query, .readView, .refresh: 5
      case .compact, .reopen, .takeView, .compare: 4
      case .crash, .failLater, .openReader: 3
      case .undone, .damage: 2
      }
    }

    private static let all = allCases.flatMap { Array(repeating: $0, count: $0.weight) }

    static func drawn(_ random: SeededRandom) -> Operation { all[Int(random.below(UInt64(all.count)))] }
  }

  private struct Step {
    var place: Int
    var operation: Operation
    /// Of the numbers that the step draws.
    var seed: UInt64
  }

  /// Runs the history of a seed, or some of its steps.
  ///
  /// - Throws: `Failure`, after the history was made as short as it fails.
  package static func run(seed: UInt64, only places: [Int]? = nil) throws -> Tally {
    let random = SeededRandom(seed: seed)
    var steps: [Step] = []
    for place in 0..<(20 + Int(random.below(21))) {
      steps.append(Step(place: place, operation: Operation.drawn(random), seed: random.next()))
    }
    if let places { steps = steps.filter { places.contains($0.place) } }
    do { return try run(steps, seed) } catch let failure as Failure {
      throw places == nil ? shortest(steps, seed, failure) : failure
    }
  }

  /// Leaves out what is not needed for the failure, first many steps at once.
  private static func shortest(_ steps: [Step], _ seed: UInt64, _ failure: Failure) -> Failure {
    var (steps, failure) = (steps.filter { failure.steps.contains($0.place) }, failure)
    var size = steps.count / 2
    while size > 0 {
      var start = 0
      while start < steps.count {
        var fewer = steps
        fewer.removeSubrange(start..<min(start + size, steps.count))
        do {
          _ = try run(fewer, seed)
          start += size
        } catch let other as Failure {
          (steps, failure) = (fewer, other)
        } catch {
          start += size
        }
      }
      size /= 2
    }
    return failure
  }

  private static func run(_ steps: [Step], _ seed: UInt64) throws -> Tally {
    var history = StoreHistory(seed: seed)
    func failed(_ what: String) -> Failure {
      Failure(seed: seed, steps: history.done, what: what, trace: history.trace)
    }
    do {
      try history.open()
      for step in steps { try history.take(step) }
      try history.end()
    } catch let wrong as Wrong { throw failed(wrong.what) } catch { throw failed("threw \(error)") }
    history.tally.histories = 1
    return history.tally
  }

  // MARK: The store and its model

  /// What the store said and should not.
  private struct Wrong: Error { var what: String }

  private struct Value: Hashable {
    var type: String
    var number: Int64
  }

  private typealias Model = [RecordID: Value]

  private let seed: UInt64
  private var random: SeededRandom
  private var disk = SimulatedDisk()
  private let clock = SimulatedClock()
  private var store: RecordStore?
  private var reader: RecordStore?
  private var model: Model = [:]
  /// What there is if a write took effect although it threw.
  private var other: Model?
  /// The number of the call that will fail, or during which the power is cut.
  private var armedCall: Int?
  private var isArmed: Bool { armedCall != nil }
  /// A failure was met. Until it is opened again the store may refuse what it cannot be sure of.
  private var hasStruck: Bool { armedCall.map { disk.callCount >= $0 } ?? false }
  private var views: [(view: StoreView, model: Model)] = []
  private var done: [Int] = []
  private var trace: [String] = []
  private var tally = Tally()

  private init(seed: UInt64) {
    self.seed = seed
    random = SeededRandom(seed: seed)
  }

  private static let path = "/store"

  private static let options: StoreOptions = {
    var log = LogOptions()
    log.segmentBytesMax = 8 << 10
    var index = IndexOptions()
    index.flushCount = 5
    index.closeCount = 4
    index.mergeWidth = 2
    index.cacheBytesMax = 16 << 10
    return StoreOptions(log: log, index: index)
  }()

  private var environment: StoreEnvironment {
    let start = disk.nextStart()
    let random = SeededRandom(seed: seed ^ (start &* 0xD1B5_4A32_D192_ED03))
    return StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: clock, random: random), isSimulated: true)
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(max(1, bound)))) }

  private func anyID() -> RecordID {
    RecordID("r\(below(14))", zone: [.main, ZoneID("Other"), ZoneID("Ma")][below(6) / 2])
  }

  private func demand(_ holds: Bool, _ what: @autoclosure () -> String) throws {
    if !holds { throw Wrong(what: what()) }
  }

  private mutating func open() throws {
    views = []
    do {
      store = try RecordStore.openBlocking(at: Self.path, options: Self.options, environment: environment)
    } catch  where isArmed {
      note("the open failed: \(error)")
      if disk.isOff { cutPower() }
      store = try RecordStore.openBlocking(at: Self.path, options: Self.options, environment: environment)
    }
    if hasStruck { armedCall = nil }
    try settleModel()
  }

  private mutating func note(_ words: String) { trace.append(words) }

  /// After a write that threw, the store has all of it or nothing.
  private mutating func settleModel() throws {
    guard let other, let store else { return }
    let found = try Self.contents(store)
    if found == other { model = other }
    self.other = nil
    try demand(found == model, "after a write that threw: \(Self.difference(found, model))")
  }

  private static func contents(_ store: RecordStore) throws -> Model {
    var found: Model = [:]
    try store.forEachRecord { found[$0.id] = value($0) }
    return found
  }

  private static func value(_ record: Record) -> Value? {
    guard case .int64(let number)? = record["v"] else { return nil }
    return Value(type: record.type, number: number)
  }

  private static func difference(_ found: Model, _ expected: Model) -> String {
    let ids = Set(found.keys).union(expected.keys).filter { found[$0] != expected[$0] }.sorted()
    return ids.prefix(3).map { id in
      "'\(id)' is \(found[id].map { "\($0.number)" } ?? "nothing"), not \(expected[id].map { "\($0.number)" } ?? "nothing")"
    }.joined(separator: ", ")
  }

  /// Cuts the power, and finds what the medium has.
  private mutating func cutPower() {
    tally.powerCuts += 1
    reader = nil
    views = []
    store = nil
    disk = disk.imageAfterCrash(using: SeededRandom(seed: random.next()))
    armedCall = nil
  }

  // MARK: Steps

  private mutating func take(_ step: Step) throws {
    random = SeededRandom(seed: step.seed)
    done.append(step.place)
    tally.steps += 1
    // What failed is tried again.
    clock.advance(milliseconds: 60_000)
    trace.append("\(step.place) \(step.operation)")
    do { try take(step.operation) } catch let wrong as Wrong { throw wrong } catch {
      guard isArmed else { throw error }
      tally.failures += 1
      note("failed: \(error)")
      try recover()
    }
    if disk.isOff {
      // The failure was in work that reports none.
      try recover()
    }
    tally.runsMax = max(tally.runsMax, store?.index?.runCount ?? 0)
  }

  /// Chooses a call to fail; nil if one is chosen already.
  private mutating func arm() -> Int? {
    guard !isArmed || hasStruck else { return nil }
    armedCall = disk.callCount + 1 + below(40)
    return armedCall
  }

  /// Opens the store again if it was cut off or refuses to go on.
  private mutating func recover() throws {
    if disk.isOff {
      cutPower()
      return try open()
    }
    if let store, case .writer(let log) = store.source {
      switch log.state {
      case .open, .rejecting:
        // What failed is undone; else a close would report it again.
        try store.core.withLock { try $0.reconcile(log) }
        return try settleModel()
      case .poisoned, .closed: break
      }
      // It says again that the outcome is unknown.
      try? store.closeBlocking()
    }
    store = nil
    try open()
  }

  private mutating func take(_ operation: Operation) throws {
    guard let store, case .writer(let log) = store.source else { throw Wrong(what: "there is no store") }
    switch operation {
    case .save: try save(store)
    case .delete: try delete(store)
    case .undone: try writeInVain(store)
    case .settle: try settle(store, log)
    case .flush: try store.index?.flush()
    case .compact:
      try store.compactBlocking()
      tally.compactions += 1
    case .reopen:
      views = []
      try store.closeBlocking()
      self.store = nil
      try open()
    case .crash:
      cutPower()
      try open()
    case .cutLater:
      if let call = arm() { disk.cutPower(atCall: call) }
    case .failLater:
      if let call = arm() { disk.failCall(call) }
    case .damage: try damage()
    case .takeView:
      if views.count > 2 { views.removeFirst() }
      views.append((try store.view(), model))
    case .readView: try readView()
    case .query: try query(store)
    case .openReader:
      try log.raiseControl()
      reader = try RecordStore.openReadOnly(at: Self.path, environment: environment)
      try readOther()
    case .refresh:
      try log.raiseControl()
      try reader?.refresh()
      try readOther()
    case .compare: try compare(store, log)
    }
  }

  private mutating func write(
    _ store: RecordStore, _ changed: Model, _ body: (inout WriteTransaction) throws -> Void
  ) throws {
    other = changed
    try store.writeBlocking(body)
    other = nil
    model = changed
    tally.writes += 1
  }

  private mutating func save(_ store: RecordStore) throws {
    var changes: Model = [:]
    for _ in 0...below(4) {
      let id = anyID()
      changes[id] = Value(type: model[id]?.type ?? ["Note", "Task"][below(2)], number: Int64(below(50)))
    }
    let known = model
    try write(store, model.merging(changes) { $1 }) { tx in
      for (id, value) in changes.sorted(by: { $0.key < $1.key }) {
        let record = Record(type: value.type, id: id, fields: ["v": .int64(value.number)])
        if known[id] == nil { try tx.create(record) } else { try tx.save(record) }
      }
    }
  }

  private mutating func delete(_ store: RecordStore) throws {
    let ids = model.keys.sorted()
    guard !ids.isEmpty else { return }
    let start = below(ids.count)
    let gone = ids[start..<min(ids.count, start + 1 + below(3))]
    try write(store, model.filter { !gone.contains($0.key) }) { tx in for id in gone { try tx.delete(id) } }
  }

  private struct Undone: Error {}

  private func writeInVain(_ store: RecordStore) throws {
    let id = anyID()
    do {
      try store.writeBlocking { tx in
        try tx.delete(id)
        try tx.create(Record(type: "Note", id: id, fields: ["v": 99]))
        try store.index?.flush()
        throw Undone()
      }
    } catch is Undone {}
  }

  /// The server has taken, or refused, what some records are owed.
  private mutating func settle(_ store: RecordStore, _ log: Log) throws {
    var events: [Event] = []
    for _ in 0..<6 {
      let id = anyID()
      guard let pending = try store.projections.entry(id)?.pending,
        !events.contains(where: { $0.recordID == id })
      else { continue }
      // A mutation that nothing says the server has is not left out by a compaction.
      if below(3) == 0 {
        events.append(.sent(Sent(batch: random.next(), zone: id.zone, lsns: [pending.newest])))
        continue
      }
      events.append(
        .settled(
          Settled(
            id: id, lsn: pending.newest, outcome: pending.isDeletion ? .deleted : .saved,
            changeTag: pending.isDeletion ? nil : "tag\(pending.newest)")))
    }
    guard !events.isEmpty else { return }
    let upTo = try store.transact { core in for event in events { try core.append(event) } }.upTo
    try log.waitUntilDurableBlocking(upTo.rawValue)
    tally.settled += events.count
  }

  private mutating func damage() throws {
    let runs = disk.paths.filter { $0.hasPrefix("\(Self.path)/\(StoreIndex.folderName)/") }
    guard !runs.isEmpty else { return }
    let path = runs[below(runs.count)]
    guard var bytes = disk.peek(path), !bytes.isEmpty else { return }
    bytes[below(bytes.count)] ^= 1 << UInt8(below(8))
    disk.poke(path, bytes)
    tally.damages += 1
    note("damage \(path)")
  }

  private mutating func readView() throws {
    guard !views.isEmpty else { return }
    let (view, model) = views[below(views.count)]
    tally.viewReads += 1
    var found: Model = [:]
    try view.forEachRecord { found[$0.id] = Self.value($0) }
    try demand(found == model, "the view of event \(view.lsn): \(Self.difference(found, model))")
    let id = anyID()
    try demand(try view.record(id).flatMap { Self.value($0) } == model[id], "the view of event \(view.lsn): '\(id)'")
    let count = try view.count()
    try demand(count == model.count, "the view of event \(view.lsn) counts \(count), not \(model.count)")
  }

  private mutating func query(_ store: RecordStore) throws {
    let (type, zone) = (["Note", "Task"][below(2)], [nil, ZoneID.main][below(2)])
    let (least, isSorted) = (Int64(below(40)), below(2) == 0)
    var query = RecordQuery(
      type, in: zone, where: [RecordFilter("v", .greaterThanOrEquals, .int64(least))],
      sortedBy: isSorted ? [RecordSort("v")] : [])
    query.limit = 1 + below(5)
    var found: [RecordID] = []
    var cursor: QueryCursor?
    repeat {
      let page = try store.read { try $0.query(query, after: cursor) }
      found += page.records.map(\.id)
      cursor = page.cursor
      tally.pages += 1
    } while cursor != nil && found.count < 100
    let expected = model.filter { id, value in
      value.type == type && value.number >= least && (zone == nil || id.zone == zone)
    }.sorted { left, right in
      isSorted && left.value.number != right.value.number
        ? left.value.number < right.value.number : left.key < right.key
    }.map(\.key)
    try demand(found == expected, "a query found \(found), not \(expected)")
  }

  private mutating func readOther() throws {
    guard let reader else { return }
    let found = try Self.contents(reader)
    try demand(found == model, "a reader: \(Self.difference(found, model))")
    try demand(reader.recordCount == model.count, "a reader counts \(reader.recordCount)")
  }

  private mutating func compare(_ store: RecordStore, _ log: Log) throws {
    tally.comparisons += 1
    let found = try Self.contents(store)
    try demand(found == model, Self.difference(found, model))
    let ids = try store.recordIDs()
    try demand(ids == model.keys.sorted(), "it lists \(ids)")
    try demand(store.recordCount == model.count, "it counts \(store.recordCount), not \(model.count)")
    for _ in 0..<3 {
      let id = anyID()
      let value = try store.record(id).flatMap { Self.value($0) }
      try demand(value == model[id], "'\(id)' is \(value.map { "\($0.number)" } ?? "nothing")")
    }
    if let broken = store.projections.withLock({ $0.brokenInvariant() }) { throw Wrong(what: broken) }
    // And all else that it knows, without what failed, is what the log alone says.
    try store.core.withLock { try $0.reconcile(log) }
    try log.raiseControl()
    let files = IndexFiles(Self.path, environment.system, cacheBytesMax: 0)
    let folded = try IndexOpening.folding(files, spillingAt: nil).opened.projections
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try folded.difference(from: state)
    }
    try demand(
      difference.ids.isEmpty && difference.hashes.isEmpty, "the log says something else: \(difference.words)")
  }

  /// Without a failure in the way, everything is there.
  private mutating func end() throws {
    if isArmed { cutPower() }
    if store == nil || disk.isOff { try open() }
    for _ in 0..<2 {
      guard let store, case .writer(let log) = store.source else { throw Wrong(what: "there is no store") }
      try compare(store, log)
      while !views.isEmpty {
        try readView()
        views.removeLast()
      }
      try store.closeBlocking()
      self.store = nil
      try open()
    }
    try store?.closeBlocking()
  }
}
