// Random histories of one store: writes, deletions, new lives of deleted names, outcomes and pages that the server would
// send, queries page by page, indexes that are declared, built beside writes and dropped, observers, views that are held,
// flushes and merges of its runs, compactions, damaged runs, failing reads and writes, power cuts, another process that
// follows; against a dictionary.
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
    /// Records and deletions of fetched pages.
    package var fetched = 0
    /// Indexes that were declared or dropped, and writes that were made while one was being built.
    package var indexChanges = 0
    package var writesBesideBuilds = 0
    /// Records that were deleted with the one above them.
    package var cascaded = 0
    /// Pages that were answered by an index, each compared with a scan's.
    package var indexedPages = 0
    /// Values that observers were handed after a change.
    package var observed = 0
    package var failedReads = 0
    /// Looks of a reader in another process at what was new.
    package var refreshes = 0
    /// Mistakes in what a compaction would leave that both judges have refused.
    package var mistakesRefused = 0
    /// Right plans that the rules could not judge.
    package var rowsNotJudged = 0

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
      fetched += other.fetched
      indexChanges += other.indexChanges
      writesBesideBuilds += other.writesBesideBuilds
      cascaded += other.cascaded
      indexedPages += other.indexedPages
      observed += other.observed
      failedReads += other.failedReads
      refreshes += other.refreshes
      mistakesRefused += other.mistakesRefused
      rowsNotJudged += other.rowsNotJudged
      runsMax = max(runsMax, other.runsMax)
    }
  }

  private enum Operation: CaseIterable {
    case save, delete, undone, settle, flush, compact, reopen, crash, cutLater, failLater, damage, takeView, readView
    case query, openReader, refresh, compare, fetch, addIndex, dropIndex, observe, look, failRead

    /// How often it comes, beside the others.
    var weight: Int {
      switch self {
      case .save: 26
      case .delete: 12
      case .settle: 10
      case .look: 10
      case .query, .fetch: 8
      case .flush, .cutLater, .addIndex, .observe: 6
      case .readView, .refresh: 5
      case .compact, .reopen, .takeView, .compare, .failRead: 4
      case .crash, .failLater, .openReader: 3
      case .undone, .damage, .dropIndex: 2
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
  package static func run(seed: UInt64, only places: [Int]? = nil) async throws -> Tally {
    let random = SeededRandom(seed: seed)
    var steps: [Step] = []
    for place in 0..<(20 + Int(random.below(21))) {
      steps.append(Step(place: place, operation: Operation.drawn(random), seed: random.next()))
    }
    if let places { steps = steps.filter { places.contains($0.place) } }
    do { return try await run(steps, seed) } catch let failure as Failure {
      throw places == nil ? await shortest(steps, seed, failure) : failure
    }
  }

  /// Leaves out what is not needed for the failure, first many steps at once.
  private static func shortest(_ steps: [Step], _ seed: UInt64, _ failure: Failure) async -> Failure {
    var (steps, failure) = (steps.filter { failure.steps.contains($0.place) }, failure)
    var size = steps.count / 2
    while size > 0 {
      var start = 0
      while start < steps.count {
        var fewer = steps
        fewer.removeSubrange(start..<min(start + size, steps.count))
        do {
          _ = try await run(fewer, seed)
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

  private static func run(_ steps: [Step], _ seed: UInt64) async throws -> Tally {
    var history = StoreHistory(seed: seed)
    do {
      try history.open()
      for step in steps { try await history.take(step) }
      try await history.end()
    } catch {
      throw Failure(
        seed: seed, steps: history.done, what: (error as? Wrong)?.what ?? "threw \(error)", trace: history.trace)
    }
    history.tally.histories = 1
    return history.tally
  }

  // MARK: The store and its model

  /// What the store said and should not.
  private struct Wrong: Error { var what: String }

  private struct Value: Hashable {
    var type: String
    var number: Int64
    /// The number of the tags that it has.
    var tag: Int
    /// The name of the record of its zone that it is below, if it is a task: it is deleted with that one.
    var parent: String?

    func record(_ id: RecordID) -> Record { Record(type: type, id: id, fields: fields) }

    var fields: [String: FieldValue] {
      var fields: [String: FieldValue] = [
        "v": .int64(number), "w": .list(.strings, Value.tags(tag).map { .string($0) }),
      ]
      fields[StoreHistory.parentField] = parent.map { .reference(Reference($0)) }
      return fields
    }

    /// Two that the next number has too, so that lists overlap.
    static func tags(_ tag: Int) -> [String] { ["t\(tag)", "t\(tag + 1)"] }

    func has(_ other: String) -> Bool { Value.tags(tag).contains(other) }
  }

  private typealias Model = [RecordID: Value]

  private let seed: UInt64
  private var random: SeededRandom
  private var disk = SimulatedDisk()
  private var files: StoreHistoryFiles
  private let clock = SimulatedClock()
  private var store: RecordStore?
  private var reader: RecordStore?
  private var model: Model = [:]
  /// What there is if a write took effect although it threw.
  private var other: Model?
  /// The number of the call that will fail, or during which the power is cut.
  private var armedCall: Int?
  /// A read will fail, once.
  private var isReadArmed = false
  private var struckBefore = 0
  private var hasReadStruck: Bool { isReadArmed && files.faults.struckCount > struckBefore }
  private var isArmed: Bool { armedCall != nil || hasReadStruck }
  /// A failure was met. Until it is opened again the store may refuse what it cannot be sure of.
  private var hasStruck: Bool { armedCall.map { disk.callCount >= $0 } ?? false }
  private var views: [(view: StoreView, model: Model)] = []
  /// The indexes that are declared; nil if a failure left it open, or the file that names them was damaged.
  private var declared: Set<RecordIndex>? = []
  /// Everything that was declared is built: no failure was met since the store was opened.
  private var areIndexesReady = true
  /// A run or the file of the declared indexes was damaged since the store was opened.
  private var hasDamage = false
  /// The file of the declared indexes was damaged since the store was opened; a change of them replaces it.
  private var hasDamagedDefinitions = false
  private var watches: [Watch] = []
  /// What the reader has to show: it may be behind.
  private var readerModel: Model?
  /// When the server created what it has under a name.
  private var created: [RecordID: Int64] = [:]
  private var done: [Int] = []
  private var trace: [String] = []
  private var tally = Tally()

  private init(seed: UInt64) {
    self.seed = seed
    random = SeededRandom(seed: seed)
    files = StoreHistoryFiles(disk)
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
    var options = StoreOptions(log: log, index: index)
    options.schema["Task"].parent = ParentSchema(parentField, whenDeleted: .delete)
    return options
  }()

  fileprivate static let parentField = "below"
  /// The index that the store keeps by itself.
  private static let ownIndex = RecordIndex("Task", parentField)

  private var environment: StoreEnvironment {
    let start = disk.nextStart()
    let random = SeededRandom(seed: seed ^ (start &* 0xD1B5_4A32_D192_ED03))
    return StoreEnvironment(
      SystemEnvironment(fileSystem: files, clock: clock, random: random), isSimulated: true)
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
    watches.removeAll { !$0.isReaders }
    areIndexesReady = true
    do {
      store = try RecordStore.openBlocking(at: Self.path, options: Self.options, environment: environment)
    } catch  where isArmed {
      note("the open failed: \(error)")
      try checkFailure(error)
      if disk.isOff { cutPower() }
      endFailedRead()
      store = try RecordStore.openBlocking(at: Self.path, options: Self.options, environment: environment)
    }
    if isArmed, armedCall == nil || hasStruck { areIndexesReady = false }
    if hasStruck { armedCall = nil }
    endFailedRead()
    try settleModel()
    try checkIndexes()
  }

  /// The indexes of a store that was opened are those that were declared, built.
  private mutating func checkIndexes() throws {
    guard let store else { return }
    let found = try store.indexes()
    if let declared {
      try demand(Self.declared(found) == declared, "opened, it has the indexes \(found), not \(declared)")
    }
    declared = Self.declared(found)
    hasDamagedDefinitions = false
    // The first events of a store begin the build.
    guard areIndexesReady, !hasDamage, store.durableLSN > LSN(0) else { return }
    try demand(found.allSatisfy(\.isReady), "opened, it has the indexes \(found)")
  }

  /// Those that a step has declared.
  private static func declared(_ found: [RecordIndexStatus]) -> Set<RecordIndex> {
    Set(found.map(\.index)).subtracting([ownIndex])
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
    value(record.type, record["v"], record["w"], record[parentField])
  }

  private static func value(
    _ type: String, _ number: FieldValue?, _ tags: FieldValue?, _ parent: FieldValue?
  ) -> Value? {
    guard case .int64(let number)? = number, case .list(_, let items)? = tags, case .string(let tag)? = items.first,
      let tag = Int(tag.dropFirst())
    else { return nil }
    let above: String? = if case .reference(let reference)? = parent { reference.name } else { nil }
    return Value(type: type, number: number, tag: tag, parent: above)
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
    watches = []
    store = nil
    disk = disk.imageAfterCrash(using: SeededRandom(seed: random.next()))
    files = StoreHistoryFiles(disk)
    armedCall = nil
    isReadArmed = false
  }

  /// A call that failed leaves the store as an error that says so: never as damage, never as an answer.
  private func checkFailure(_ error: any Error) throws {
    let code = (error as? StrandlineError)?.code ?? (error as? LogError).map { StrandlineError($0, "").code }
    try demand(code == .io || code == .outcomeUnknown, "a call that failed was told as \(error)")
  }

  /// Closes the store. What upkeep could not do since it was opened, the close says.
  private func close(_ store: RecordStore) throws {
    do { try store.closeBlocking() } catch  where !areIndexesReady && armedCall == nil { try checkFailure(error) }
  }

  /// A read has failed, and all that follow succeed.
  private mutating func endFailedRead() {
    guard hasReadStruck else { return }
    tally.failedReads += 1
    isReadArmed = false
    // What was done in the background, and failed, is done at the next open.
    areIndexesReady = false
  }

  // MARK: Steps

  private mutating func take(_ step: Step) async throws {
    random = SeededRandom(seed: step.seed)
    done.append(step.place)
    tally.steps += 1
    // What failed is tried again.
    clock.advance(milliseconds: 60_000)
    trace.append("\(step.place) \(step.operation)")
    do { try await take(step.operation) } catch let wrong as Wrong { throw wrong } catch {
      guard isArmed else { throw error }
      tally.failures += 1
      note("failed: \(error)")
      try checkFailure(error)
      endFailedRead()
      // One that has not happened yet would meet what finds out what is there.
      files.faults.clear()
      isReadArmed = false
      areIndexesReady = false
      try recover()
    }
    if disk.isOff {
      // The failure was in work that reports none.
      try recover()
    }
    if hasStruck { areIndexesReady = false }
    endFailedRead()
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
        do {
          try store.core.withLock { try $0.reconcile(log) }
          return try settleModel()
        } catch  where disk.isOff {
          // A cut that was planned for later has met these reads.
          cutPower()
          return try open()
        }
      case .poisoned, .closed: break
      }
      // It says again that the outcome is unknown.
      try? store.closeBlocking()
    }
    store = nil
    try open()
  }

  private mutating func take(_ operation: Operation) async throws {
    guard let store, case .writer(let log) = store.source else { throw Wrong(what: "there is no store") }
    switch operation {
    case .save: try save(store)
    case .delete: try delete(store)
    case .undone: try writeInVain(store)
    case .settle: try settle(store, log)
    case .flush: try store.index?.flush()
    case .compact:
      try plantMistakes(log)
      try store.compactBlocking(proof: below(2) == 0 ? .rules : .both)
      tally.compactions += 1
    case .reopen:
      views = []
      try close(store)
      self.store = nil
      for place in watches.indices where !watches[place].isReaders {
        let found = try await watches[place].next()
        try demand(found == nil, "an observer of a closed store got \(found ?? [])")
      }
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
    case .query: try query(store, model)
    case .openReader:
      try log.raiseControl()
      watches.removeAll(where: \.isReaders)
      reader = nil
      reader = try RecordStore.openReadOnlyBlocking(at: Self.path, environment: environment)
      readerModel = model
      try readOther()
    case .refresh: try refresh(log)
    case .compare: try compare(store, log)
    case .fetch: try fetch(store)
    case .addIndex: try addIndex(store)
    case .dropIndex: try dropIndex(store)
    case .observe: try await observe(store)
    case .look: try await look()
    case .failRead:
      guard !isReadArmed else { return }
      struckBefore = files.faults.struckCount
      files.faults.clear()
      files.faults.plan(
        DiskFault([.open, .kind, .list, .sizes, .size, .read], ordinal: 1 + below(25), error: .device("", "")))
      isReadArmed = true
    }
  }

  /// Both judges of a compaction refuse the same mistakes: an event is missing of what would stay.
  private mutating func plantMistakes(_ log: Log) throws {
    guard log.durableLSN > 0 else { return }
    var found: [LogEvent] = []
    try log.forEachEvent(in: 1...log.durableLSN) {
      found.append($0)
      return true
    }
    let judged = CompactionTrial(found)
    let right = try judged.fold(found)
    let plan = try judged.plan(right, .both)
    if try judged.rulesCannotTell(right) { tally.rowsNotJudged += 1 }
    var survivors = Survivors(of: plan)
    var left = try survivors.of(found)
    guard !left.isEmpty else { return }
    let lost = left.remove(at: below(left.count))
    let (byRules, byFold) = (try judged.refuse(left, plan, .rules), try judged.refuse(left, plan, .fold))
    try demand(
      byRules == byFold, "without event \(lost.lsn), the rules \(byRules ? "refuse" : "take") what the fold does not")
    if byFold { tally.mistakesRefused += 1 }
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
    let changes = try anyChanges(store)
    let body = saving(changes)
    try write(store, model.merging(changes) { $1 }, body)
  }

  private func anyChanges(_ store: RecordStore) throws -> Model {
    var changes: Model = [:]
    for _ in 0...below(4) {
      let id = anyID()
      var value = anyValue(try type(of: id, store))
      // Each change by itself must make no circle, in whatever order they are written.
      if let parent = value.parent, isAbove(id, parent, changes) { value.parent = nil }
      changes[id] = value
    }
    return changes
  }

  /// Whether a record is the one of a name, or may be above it while some changes are written.
  private func isAbove(_ id: RecordID, _ name: String, _ changes: Model) -> Bool {
    var met: Set<RecordID> = []
    var open = [RecordID(name, zone: id.zone)]
    while let next = open.popLast() {
      if next == id { return true }
      guard met.insert(next).inserted else { continue }
      for parent in [model[next]?.parent, changes[next]?.parent] {
        if let parent { open.append(RecordID(parent, zone: id.zone)) }
      }
    }
    return false
  }

  /// What there is without some records, and without what is below these.
  private func without(_ gone: some Sequence<RecordID>) -> Model {
    var left = model
    var open = Array(gone)
    while let id = open.popLast() {
      guard left.removeValue(forKey: id) != nil else { continue }
      open += left.filter { $0.key.zone == id.zone && $0.value.parent.equalsUTF8(id.name) }.map(\.key)
    }
    return left
  }

  /// The type that a record has, or that its name keeps until its deletion is at the server; nil: it may get any.
  private func type(of id: RecordID, _ store: RecordStore) throws -> String? {
    if let known = model[id]?.type { return known }
    guard let entry = try store.projections.entry(id), let pending = entry.pending, pending.isDeletion else {
      return nil
    }
    return entry.base != nil || store.projections.attempted(pending) != nil ? entry.type : nil
  }

  private func anyValue(_ type: String?) -> Value {
    let (type, number, tag) = (type ?? ["Note", "Task"][below(2)], Int64(below(50)), below(6))
    return Value(
      type: type, number: number, tag: tag, parent: type == "Task" && below(3) > 0 ? "r\(below(14))" : nil)
  }

  private func saving(_ changes: Model) -> @Sendable (inout WriteTransaction) throws -> Void {
    let known = Set(model.keys)
    return { tx in
      for (id, value) in changes.sorted(by: { $0.key < $1.key }) {
        if known.contains(id) { try tx.save(value.record(id)) } else { try tx.create(value.record(id)) }
      }
    }
  }

  private mutating func delete(_ store: RecordStore) throws {
    let ids = model.keys.sorted()
    guard !ids.isEmpty else { return }
    let start = below(ids.count)
    let gone = ids[start..<min(ids.count, start + 1 + below(3))]
    let left = without(gone)
    let cascaded = model.count - left.count - gone.count
    try write(store, left) { tx in for id in gone { try tx.delete(id) } }
    tally.cascaded += cascaded
  }

  private struct Undone: Error {}

  private func writeInVain(_ store: RecordStore) throws {
    let id = anyID()
    let type = try type(of: id, store) ?? "Note"
    do {
      try store.writeBlocking { tx in
        try tx.delete(id)
        try tx.create(Value(type: type, number: 99, tag: 9, parent: nil).record(id))
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
      if pending.isDeletion {
        created[id] = nil
        events.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deleted)))
        continue
      }
      let now = clock.wallMilliseconds()
      let first = created[id] ?? now
      created[id] = first
      events.append(
        .settled(
          Settled(
            id: id, lsn: pending.newest, outcome: .saved, changeTag: "tag\(pending.newest)",
            created: ServerTimestamp(milliseconds: first), modified: ServerTimestamp(milliseconds: now))))
    }
    guard !events.isEmpty else { return }
    let place = try store.transact { core in for event in events { try core.append(event) } }.place
    try log.waitUntilDurableBlocking(place.lsn.rawValue)
    tally.settled += events.count
  }

  /// A page of the server's changes of one zone, with versions that other devices and tools have written, and tombstones.
  private mutating func fetch(_ store: RecordStore) throws {
    let zone = anyID().zone
    let source: ServerChange.Source = below(4) == 0 ? .fullFetch : .delta
    let now = clock.wallMilliseconds()
    var changes: [RecordID: ServerRecord?] = [:]
    for _ in 0...below(5) {
      let id = RecordID("r\(below(14))", zone: zone)
      if below(3) == 0 {
        created[id] = nil
        changes[id] = .some(nil)
        continue
      }
      // Another type under a known name comes only with another life of it, or from a tool that does what it likes.
      let value = anyValue(below(8) == 0 ? nil : model[id]?.type)
      let first = created[id] ?? now
      created[id] = first
      changes[id] = ServerRecord(
        name: id.name, type: value.type, fields: value.fields,
        system: SystemFields(
          changeTag: "s\(random.next())", created: ServerTimestamp(milliseconds: first),
          modified: ServerTimestamp(milliseconds: now)))
    }
    let token = ChangeToken(rawValue: "token\(random.next())")
    func apply(_ core: inout StoreCore) throws {
      var intake = Intake(source)
      for (id, version) in changes.sorted(by: { $0.key < $1.key }) {
        if let version {
          try intake.apply(version: version, of: id, to: &core)
        } else {
          try intake.apply(deletionOf: id, to: &core)
        }
      }
      try core.append(.tokenAdvanced(TokenAdvanced(zone: zone, asked: nil, token: token)))
    }
    // What becomes of each record is the engine's affair: it is asked in a transaction that is undone, and then it must
    // hold in every way of reading.
    var changed = model
    do {
      _ = try store.transact { core in
        try apply(&core)
        for id in changes.keys {
          let shown = try core.view(id)?.version
          changed[id] = shown.flatMap {
            Self.value($0.type, $0.fields["v"], $0.fields["w"], $0.fields[Self.parentField])
          }
        }
        throw Undone()
      }
    } catch is Undone {}
    other = changed
    try store.commitBlocking { try apply(&$0) }
    other = nil
    model = changed
    tally.fetched += changes.count
  }

  // MARK: Indexes

  private static let indexes = [
    RecordIndex("Note", "v"), RecordIndex("Note", "v", ascending: false), RecordIndex("Note", "w"),
    RecordIndex("Task", "v"), RecordIndex("Task"),
  ]

  /// What became of a write beside a build.
  private enum Beside: Sendable {
    case notMade, made
    case failed(any Error)
  }

  private mutating func addIndex(_ store: RecordStore) throws {
    let index = Self.indexes[below(Self.indexes.count)]
    let (known, before) = (declared, try store.indexes())
    // Until it is known: a failure leaves both possible at the next open.
    declared = nil
    let beside = Mutex(Beside.notMade)
    var changed = model
    // A build that has to be begun anew waits for the one that it would be part of.
    if below(2) == 0, before.allSatisfy(\.isReady), areIndexesReady, !hasDamage, !isReadArmed {
      try store.index?.flush(always: true)
      let changes = try anyChanges(store)
      let body = saving(changes)
      let flushes = below(2) == 0
      changed.merge(changes) { $1 }
      // A merge that failed, of which the flush says nothing, would have the next run be another flush's.
      let isQuiet = !disk.isOff && !hasStruck
      if isQuiet {
        files.beforeNextRun {
          do {
            try store.writeBlocking(body)
            beside.withLock { $0 = .made }
          } catch { beside.withLock { $0 = .failed(error) } }
          // A flush that fails leaves memory as it was, and is tried again.
          if flushes { _ = try? store.index?.flush() }
        }
      }
    }
    defer { files.forgetMoment() }
    let added = Result { try store.addIndex(index) }
    switch beside.withLock({ $0 }) {
    case .notMade: break
    case .made:
      model = changed
      tally.writesBesideBuilds += 1
    case .failed(let error):
      other = changed
      throw error
    }
    try added.get()
    try checkDeclared(store, known.map { $0.union([index]) })
    tally.indexChanges += 1
  }

  private mutating func dropIndex(_ store: RecordStore) throws {
    let index = Self.indexes[below(Self.indexes.count)]
    let known = declared
    declared = nil
    try store.dropIndex(index)
    try checkDeclared(store, known.map { $0.subtracting([index]) })
    tally.indexChanges += 1
  }

  private mutating func checkDeclared(_ store: RecordStore, _ expected: Set<RecordIndex>?) throws {
    let found = Self.declared(try store.indexes())
    if let expected { try demand(found == expected, "it has the indexes \(found), not \(expected)") }
    declared = hasDamagedDefinitions ? nil : found
  }

  private mutating func damage() throws {
    let runs = disk.paths.filter { $0.hasPrefix("\(Self.path)/\(StoreIndex.folderName)/") }
    guard !runs.isEmpty else { return }
    let path = runs[below(runs.count)]
    guard var bytes = disk.peek(path), !bytes.isEmpty else { return }
    switch below(4) {
    case 0: bytes.removeLast(1 + below(bytes.count))
    default: bytes[below(bytes.count)] ^= 1 << UInt8(below(8))
    }
    disk.poke(path, bytes)
    // A file of declared indexes that cannot be read declares none.
    if !path.hasSuffix(".run") { (declared, hasDamagedDefinitions) = (nil, true) }
    hasDamage = true
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

  // MARK: Queries and observers

  /// A record as the model knows it.
  private struct Row: Hashable {
    var id: RecordID
    var value: Value?
  }

  /// A query, and what the model answers.
  private struct Question {
    var query: RecordQuery
    var matches: @Sendable (Value) -> Bool

    func rows(_ model: Model) -> [Row] {
      let sort = query.sorts.first
      return model.filter { id, value in
        value.type == query.recordType && (query.zone == nil || id.zone == query.zone) && matches(value)
      }.sorted { left, right in
        guard let sort, left.value.number != right.value.number else { return left.key < right.key }
        return (left.value.number < right.value.number) == sort.ascending
      }.map { Row(id: $0.key, value: $0.value) }
    }

    /// Whether an index spares reading all records.
    func isServed(by index: RecordIndex) -> Bool {
      guard index.recordType == query.recordType else { return false }
      guard let field = index.fields.first else { return true }
      return query.sorts.first == field || query.filters.contains { $0.field == field.field }
    }
  }

  private func anyQuestion() -> Question {
    let (type, zone) = (["Note", "Task"][below(2)], [nil, ZoneID.main][below(2)])
    var question: Question
    switch below(4) {
    case 0:
      let least = Int64(below(40))
      question = Question(query: RecordQuery(type, where: [RecordFilter("v", .greaterThanOrEquals, .int64(least))])) {
        $0.number >= least
      }
    case 1:
      let (one, other) = (Int64(below(50)), Int64(below(50)))
      question = Question(
        query: RecordQuery(type, where: [RecordFilter("v", .isIn, anyOf: [.int64(one), .int64(other)])])
      ) { $0.number == one || $0.number == other }
    case 2:
      let tag = "t\(below(7))"
      question = Question(query: RecordQuery(type, where: [RecordFilter("w", .listContains, .string(tag))])) {
        $0.has(tag)
      }
    default: question = Question(query: RecordQuery(type)) { _ in true }
    }
    question.query.zone = zone
    if below(3) > 0 { question.query.sorts = [RecordSort("v", ascending: below(2) == 0)] }
    question.query.limit = 1 + below(5)
    return question
  }

  /// The indexes that a store says are declared. A reader does not know it where their file was damaged.
  private func declaredIndexes(of store: RecordStore) throws -> [RecordIndexStatus] {
    do { return try store.indexes() } catch let error as StrandlineError
      where reader === store && tally.damages > 0 && error.code == .damaged
    {
      return []
    }
  }

  private static func rows(_ records: [Record]) -> [Row] { records.map { Row(id: $0.id, value: value($0)) } }

  /// Asks a query page by page; what an index answers is what a scan does.
  private mutating func query(_ store: RecordStore, _ model: Model) throws {
    let question = anyQuestion()
    let query = question.query
    var found: [Row] = []
    var cursor: QueryCursor?
    repeat {
      let view = try store.view()
      let indexes = try declaredIndexes(of: store)
      let plan = try view.explain(query)
      let page = try view.query(query, after: cursor)
      if let index = plan.index {
        // It may be waiting to be built anew, after a flush that could not make its rows and then failed: the runs of before
        // have all of them. A reader may know an index for longer than it is declared, too.
        let isDeclared = indexes.contains { $0.index == index }
        try demand(reader === store || isDeclared, "\(query) is explained by \(plan), of \(indexes)")
        let scanned = try view.answer(query, after: cursor, usesIndexes: false)
        try demand(page == scanned, "\(query) found \(page.records) by \(plan), and \(scanned.records) without")
        tally.indexedPages += 1
      } else {
        let usable = indexes.filter { $0.isReady && question.isServed(by: $0.index) }
        try demand(reader === store || usable.isEmpty, "\(query) is explained by \(plan), beside \(usable)")
      }
      found += Self.rows(page.records)
      cursor = page.cursor
      tally.pages += 1
    } while cursor != nil && found.count < 100
    let expected = question.rows(model)
    try demand(found == expected, "\(query) found \(found), not \(expected)")
  }

  /// An observer, and what it was handed last.
  private struct Watch {
    enum Subject {
      case record(RecordID, StoreObservation<Record?>.AsyncIterator)
      case query(Question, StoreObservation<QueryPage>.AsyncIterator)
    }
    var subject: Subject
    /// It observes the store of the other process.
    var isReaders: Bool
    var last: [Row] = []
    /// How often it had been told to look when it was handed that.
    var toldBefore: UInt64 = 0

    init(_ store: RecordStore, _ id: RecordID, isReaders: Bool) {
      subject = .record(id, store.observe(id).makeAsyncIterator())
      self.isReaders = isReaders
    }

    init(_ store: RecordStore, _ question: Question, isReaders: Bool) {
      subject = .query(question, store.observe(question.query).makeAsyncIterator())
      self.isReaders = isReaders
    }

    var name: String {
      switch subject {
      case .record(let id, _): "'\(id)'"
      case .query(let question, _): "\(question.query)"
      }
    }

    var toldCount: UInt64 {
      switch subject {
      case .record(_, let iterator): iterator.toldCount
      case .query(_, let iterator): iterator.toldCount
      }
    }

    func rows(_ model: Model) -> [Row] {
      switch subject {
      case .record(let id, _): model[id].map { [Row(id: id, value: $0)] } ?? []
      case .query(let question, _): Array(question.rows(model).prefix(question.query.limit ?? .max))
      }
    }

    /// The next value; nil at the end.
    mutating func next() async throws -> [Row]? {
      toldBefore = toldCount
      var rows: [Row]?
      switch subject {
      case .record(let id, var iterator):
        let record = try await iterator.next()
        rows = record.map { record in record.map { StoreHistory.rows([$0]) } ?? [] }
        subject = .record(id, iterator)
      case .query(let question, var iterator):
        rows = try await iterator.next().map { StoreHistory.rows($0.records) }
        subject = .query(question, iterator)
      }
      if let rows { last = rows }
      return rows
    }
  }

  private mutating func observe(_ store: RecordStore) async throws {
    if watches.count > 3 { watches.removeFirst() }
    let isReaders = reader != nil && readerModel != nil && below(3) == 0
    let observed = isReaders ? reader ?? store : store
    var watch: Watch
    if below(2) == 0 {
      watch = Watch(observed, anyID(), isReaders: isReaders)
    } else {
      watch = Watch(observed, anyQuestion(), isReaders: isReaders)
    }
    let (found, expected) = (try await watch.next(), watch.rows(isReaders ? readerModel ?? [:] : model))
    try demand(found == expected, "an observer of \(watch.name) first got \(found ?? []), not \(expected)")
    watches.append(watch)
  }

  /// Each observer whose value has changed was told so, and what it is handed next is the newest.
  private mutating func look() async throws {
    let all = watches
    watches = []
    for var watch in all {
      let shown = watch.isReaders ? readerModel : model
      let expected = shown.map { watch.rows($0) } ?? watch.last
      if expected != watch.last {
        try demand(
          watch.toldCount > watch.toldBefore,
          "an observer of \(watch.name) was not told that \(watch.last) had become \(expected)")
        // One that throws has ended.
        let found = try await watch.next()
        try demand(found == expected, "an observer of \(watch.name) got \(found ?? []), not \(expected)")
        tally.observed += 1
      }
      watches.append(watch)
    }
  }

  // MARK: Another process

  private mutating func refresh(_ log: Log) throws {
    guard let reader else { return }
    // A view of before stays what it was, or says that it is not there any more.
    let view = try reader.view()
    let shown = readerModel
    try log.raiseControl()
    do { try reader.refresh() } catch {
      // It shows the whole transactions that it could read; observers are told of them by the next one that succeeds.
      readerModel = nil
      throw error
    }
    readerModel = model
    tally.refreshes += 1
    try readOther()
    do {
      var found: Model = [:]
      try view.forEachRecord { found[$0.id] = Self.value($0) }
      if let shown {
        try demand(found == shown, "a reader's view of event \(view.lsn): \(Self.difference(found, shown))")
      }
    } catch let error as StrandlineError where error.code == .outdated {}
  }

  private mutating func readOther() throws {
    guard let reader, let readerModel else { return }
    let found = try Self.contents(reader)
    try demand(found == readerModel, "a reader: \(Self.difference(found, readerModel))")
    try demand(reader.recordCount == readerModel.count, "a reader counts \(reader.recordCount)")
    try query(reader, readerModel)
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
    let indexFiles = IndexFiles(log.folder, environment.system, cache: BlockCache(bytesMax: 0))
    let folded = try IndexOpening.folding(indexFiles, spillingAt: nil).opened.projections
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try folded.difference(from: state)
    }
    try demand(
      difference.ids.isEmpty, "the log says something else: \(difference.words)")
  }

  /// Without a failure in the way, everything is there.
  private mutating func end() async throws {
    if armedCall != nil { cutPower() }
    isReadArmed = false
    files.faults.clear()
    // Upkeep that failed is due again.
    clock.advance(milliseconds: 60_000)
    try await look()
    if store == nil || disk.isOff { try open() }
    for _ in 0..<2 {
      guard let store, case .writer(let log) = store.source else { throw Wrong(what: "there is no store") }
      try compare(store, log)
      for _ in 0..<2 { try query(store, model) }
      while !views.isEmpty {
        try readView()
        views.removeLast()
      }
      try close(store)
      self.store = nil
      try open()
    }
    if let store { try close(store) }
  }
}

/// The judges of a compaction, asked about events and rows that are handed to them.
private struct CompactionTrial {
  let found: [LogEvent]

  init(_ found: [LogEvent]) { self.found = found }

  func fold(_ events: [LogEvent]) throws -> Projections {
    var fold = SpillingFold()
    for event in events { try fold.apply(LogSurvivor(event)) }
    if let last = found.last { fold.advance(to: LSN(last.lsn)) }
    return fold.projections
  }

  func plan(_ state: Projections, _ proof: CompactionProof) throws -> CompactionPlan {
    try CompactionPlan(
      state: state, proof: proof, read: { body in for event in found { try body([event]) } }, folding: Self.folding)
  }

  /// Whether the rules cannot tell that the plan by what the events say is right.
  func rulesCannotTell(_ state: Projections) throws -> Bool {
    do { _ = try plan(state, .rules) } catch is RulesCannotTell { return true }
    return false
  }

  /// Whether a judge refuses what stays.
  func refuse(_ survivors: [LogSurvivor], _ plan: CompactionPlan, _ proof: CompactionProof) throws -> Bool {
    do {
      return try !plan.judge(proof, { for one in survivors { try $0(one) } }, Self.folding).difference.isEmpty
    } catch is RulesCannotTell {
      return true
    }
  }

  private static func folding(_ body: (inout SpillingFold) throws -> Void) throws {
    var fold = SpillingFold()
    try body(&fold)
  }
}
