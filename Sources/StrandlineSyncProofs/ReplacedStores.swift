// What becomes of an open store whose folder is moved, removed or replaced: before each call that changes the disk, of each
// operation, once; with every fate that the log's campaign has (ReplacedFolders.swift).
//
// Nothing of another store that is at the path afterwards changes, what was acknowledged is whole where the folder was moved
// to, the next write throws, and a reader in another process shows what it showed and says what it found.

import Strandline
package import StrandlineLogProofs
import StrandlineLog
package import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// What a store does meanwhile.
package enum StoreOperation: String, CaseIterable, Sendable {
  case write, flush, merge, compact, buildIndex, backup, stage, copyContents, readInbox, suspend, resume, close

  /// Whether it opens files that were finished before.
  fileprivate var opensFiles: Bool {
    switch self {
    case .merge, .compact, .buildIndex, .backup, .copyContents, .readInbox, .resume: true
    case .write, .flush, .stage, .suspend, .close: false
    }
  }
}

/// The campaign.
package struct ReplacedStores {
  private static let path = FolderFate.path
  /// The name under which another store was made, and one by a second writer.
  private static let othersName = "other"
  private static let secondName = "second"
  /// A file whose content an operation stages, and where a store's contents are copied to.
  private static let contentsPath = "/contents"
  private static let content = [UInt8](repeating: 7, count: 3000)
  private static let contentFile = "/assets/" + (ContentHash(SHA256Digest.of(content))?.hexadecimal ?? "")
  private static let copiedPath = "/copied"

  private let base: SimulatedDisk
  /// How many cases were tried, and how many disks after a power cut.
  package private(set) var cases = 0
  package private(set) var powerCuts = 0
  /// What a test changes on the disk of each case before that is judged: the campaign must find it.
  package var meddle: @Sendable (SimulatedDisk) -> Void = { _ in }

  package init() throws {
    base = SimulatedDisk()
    try Self.make(base, Self.path, ["a", "b"], seed: 1)
    try Self.leave("left before", for: Self.path, base, seed: 4)
    base.put(base.files(in: Self.path), over: FolderFate.olderPath)
    try Self.make(base, Self.path, ["c", "d"], seed: 2)
    try Self.make(base, FolderFate.otherPath, [Self.othersName], seed: 3)
    try Self.leave("left for another", for: FolderFate.otherPath, base, seed: 5)
    for path in [Self.contentsPath, Self.contentsPath + "/assets"] { try base.makeDirectory(path) }
    base.put([Self.contentFile: Self.content], over: Self.contentsPath)
    for path in [Self.contentsPath + "/assets", Self.contentsPath, "/"] { try base.folder(path).sync() }
  }

  private static func make(_ disk: SimulatedDisk, _ path: String, _ names: [String], seed: UInt64) throws {
    let store = try open(disk, path, seed: seed)
    for name in names { try put(name, 0, in: store) }
    try store.closeBlocking()
  }

  /// Another process leaves a record in the inbox of the store.
  private static func leave(_ name: String, for path: String, _ disk: any FileSystem, seed: UInt64) throws {
    try RecordStore.inbox(at: path, environment: environment(disk, seed: seed)).write {
      try $0.save(Record(type: "T", id: RecordID(name), fields: ["n": .int64(0)]))
    }
  }

  /// Three flushes make a merge.
  private static let options: StoreOptions = {
    var log = LogOptions()
    log.segmentBytesMax = 2 << 10
    log.lockWaitMilliseconds = 0
    log.mergeWidth = 3
    var index = IndexOptions()
    index.closeCount = 5
    index.mergeWidth = 4
    return StoreOptions(log: log, index: index)
  }()

  private static func environment(
    _ disk: any FileSystem, seed: UInt64, clock: SimulatedClock = SimulatedClock()
  ) -> StoreEnvironment {
    StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: seed)), isSimulated: true)
  }

  private static func open(
    _ disk: any FileSystem, _ path: String, seed: UInt64, clock: SimulatedClock = SimulatedClock()
  ) throws -> RecordStore {
    try RecordStore.openBlocking(
      at: path, options: options, environment: environment(disk, seed: seed, clock: clock))
  }

  private static func put(_ name: String, _ value: Int64, _ asset: Asset? = nil, in store: RecordStore) throws {
    var fields: [String: FieldValue] = ["n": .int64(value)]
    if let asset { fields["file"] = .asset(asset) }
    let record = Record(type: "T", id: RecordID(name), fields: fields)
    try store.writeBlocking { try $0.save(record) }
  }

  private static func records(_ store: RecordStore) throws -> [String: Int64] {
    var result: [String: Int64] = [:]
    try store.forEachRecord { record in
      guard case .int64(let value)? = record["n"] else { return }
      result[record.id.name] = value
    }
    return result
  }

  // MARK: One case

  /// A store that is open for writing, and a reader of it in another process.
  private final class Writer: Sendable {
    private static let rewritten = "a"
    let disk: SimulatedDisk
    let clock = SimulatedClock()
    let store: RecordStore
    let reader: RecordStore
    private struct Told {
      var acknowledged: [String: Int64]
      /// The greatest value that a write of the name was begun with.
      var begun: [String: Int64]
      var count = 0
    }
    private let told = Mutex(Told(acknowledged: initial, begun: initial))
    /// The files in the middle of this session.
    private let copied = Mutex<[String: [UInt8]]>([:])
    /// How many calls the disk had had when a resumption had returned.
    private let resumed = Mutex<Int?>(nil)
    private static let initial: [String: Int64] = ["a": 0, "b": 0, "left before": 0, "c": 0, "d": 0]

    var acknowledged: [String: Int64] { told.withLock { $0.acknowledged } }
    var begun: [String: Int64] { told.withLock { $0.begun } }
    var count: Int { told.withLock { $0.count } }
    var copy: [String: [UInt8]] { copied.withLock { $0 } }
    var resumedAt: Int? { resumed.withLock { $0 } }

    init(_ disk: SimulatedDisk, through fileSystem: (any FileSystem)? = nil) throws {
      self.disk = disk
      store = try ReplacedStores.open(fileSystem ?? disk, path, seed: 11, clock: clock)
      reader = try RecordStore.openReadOnlyBlocking(
        at: path, environment: ReplacedStores.environment(OtherProcess(disk), seed: 12))
    }

    func put(_ name: String, _ value: Int64 = 1, asset: Asset? = nil) throws {
      told.withLock { $0.begun[name] = value }
      try ReplacedStores.put(name, value, asset, in: store)
      told.withLock { told in
        told.acknowledged[name] = value
        told.count += 1
      }
    }

    /// What the operation needs before it.
    func prepare(_ operation: StoreOperation) throws {
      try put("e")
      copied.withLock { $0 = disk.files(in: path) }
      try put(Self.rewritten, 1)
      switch operation {
      case .write, .flush, .backup, .stage, .suspend, .buildIndex: break
      case .copyContents: try stage()
      case .readInbox: try leave()
      case .close: for number in 0..<3 { try put("e\(number)") }
      case .merge: try flush()
      case .compact: for value in 2..<12 { try put(Self.rewritten, Int64(value)) }
      case .resume: try store.suspendBlocking()
      }
      _ = try reader.refresh()
    }

    /// What another process leaves is durable in the inbox, and is the store's wherever the folder is.
    private func leave() throws {
      let name = "left"
      told.withLock { $0.begun[name] = 0 }
      try ReplacedStores.leave(name, for: path, OtherProcess(disk), seed: 13)
      told.withLock { $0.acknowledged[name] = 0 }
    }

    private func stage() throws {
      let staged = try store.stageContents(of: contentsPath)
      try put("s", 1, asset: staged[0].asset)
    }

    private func flush() throws {
      guard let index = store.index else { throw LogProblem("the store has no index") }
      try index.flush(always: true)
    }

    func run(_ operation: StoreOperation) throws {
      switch operation {
      case .write: for number in 0..<3 { try put("w\(number)") }
      case .flush:
        try put("f")
        try flush()
      case .merge:
        try put("m")
        try flush()
      case .compact: _ = try store.compactBlocking()
      case .buildIndex:
        try store.addIndex(RecordIndex("T", "n"))
        try store.buildIndexesBlocking()
      case .backup: _ = try store.backupBlocking(to: "/backup")
      case .stage: try stage()
      case .copyContents: _ = try store.copyContents(to: "/copy")
      case .readInbox: _ = try store.refresh()
      case .suspend: try store.suspendBlocking()
      case .resume:
        try store.resumeBlocking()
        resumed.withLock { $0 = disk.callCount }
        try put("r")
      case .close: try store.closeBlocking()
      }
    }
  }

  /// Runs the cases that are chosen, and ends at the first one that fails.
  ///
  /// - Parameter choose: which of them, by their number; all by default.
  /// - Throws: `FolderFailure`.
  package mutating func run(choose: (Int) -> Bool = { _ in true }) throws {
    var number = 0
    for operation in StoreOperation.allCases {
      let calls = try calls(of: operation)
      for one in FolderCase.all(.store, operation.rawValue, calls: calls.count) {
        defer { number += 1 }
        if choose(number) { try run(operation, calls, one) }
      }
    }
  }

  /// Runs one case.
  ///
  /// - Throws: `FolderFailure`; `LogProblem` if there is no such case.
  package mutating func replay(_ one: FolderCase) throws {
    guard one.campaign == .store, let operation = StoreOperation(rawValue: one.operation) else {
      throw LogProblem("there is no case \(one)")
    }
    let calls = try calls(of: operation)
    guard one.call <= calls.count else {
      throw LogProblem("there is no case \(one): \(operation) makes \(calls.count) calls")
    }
    try run(operation, calls, one)
  }

  private struct Calls {
    var first: Int
    var count: Int
    var metered: [Int: MeteredCall]
  }

  private func calls(of operation: StoreOperation) throws -> Calls {
    let meter = CallMeter(base.clone())
    let writer = try Writer(meter.disk, through: meter)
    try writer.prepare(operation)
    let tables = Self.tables(meter.disk)
    let first = meter.disk.callCount + 1
    try writer.run(operation)
    let count = meter.disk.callCount + 1 - first
    // An operation that does not what it is called proves nothing.
    let after = Self.tables(meter.disk)
    let does =
      switch operation {
      case .flush, .buildIndex: after.count > tables.count
      case .merge: after.count == 1
      case .close, .compact: after != tables
      case .copyContents: meter.disk.files(in: "/copy")[Self.contentFile] == Self.content
      case .write, .backup, .stage, .readInbox, .suspend, .resume: true
      }
    guard count > 0, does else { throw LogProblem("\(operation) did not do its work: \(tables) to \(after)") }
    return Calls(first: first, count: count, metered: meter.calls)
  }

  private static func tables(_ disk: SimulatedDisk) -> [String] {
    disk.paths.filter { $0.hasPrefix(path + "/") && $0.hasSuffix(".run") }
  }

  private mutating func run(_ operation: StoreOperation, _ calls: Calls, _ one: FolderCase) throws {
    let call = calls.first + one.call - 1
    if one.fate.isBlind(before: calls.metered[call]) { return }
    cases += 1
    do { try attempt(operation, one, call) } catch { throw FolderFailure(one, "\(error)") }
  }

  private mutating func attempt(_ operation: StoreOperation, _ one: FolderCase, _ call: Int) throws {
    let fate = one.fate
    let disk = base.clone()
    let writer = try Writer(disk)
    try writer.prepare(operation)
    let shown = try Self.records(writer.reader)
    let second = Mutex<Result<RecordStore?, any Error>>(.success(nil))
    let (clock, copy) = (writer.clock, writer.copy)
    let countBefore = Mutex(0)
    disk.interrupt(beforeCall: call) {
      countBefore.withLock { $0 = writer.count }
      let result = Result { try fate.befall(disk, copy, second: Self.second) }
      second.withLock { $0 = result }
      if one.isLookDue { clock.advance(milliseconds: Int64(StoreLook.milliseconds)) }
    }
    let outcome = Self.error { try writer.run(operation) }
    let other = try second.withLock { try $0.get() }
    if let outcome { try demandReplaced(outcome, fate, operation) }
    // A resumption has looked at what is there before its first write, and holds nothing yet: it takes what is put there between
    // the two for what another process left.
    let isResuming = operation == .resume && writer.resumedAt.map { call <= $0 } ?? true
    let mayGoOn = isResuming && (fate == .replacedByOlder || fate.isInPlace)
    try cutPower(disk, writer, one, 0, takesOver: mayGoOn)
    meddle(disk)
    let found = fate.goesOn ? [:] : disk.files(in: Self.path)
    if fate != .secondWriter, !fate.goesOn, !mayGoOn {
      let put = fate == .overwrittenBySameSession ? copy : fate.sourcePath.map { base.files(in: $0) } ?? [:]
      let changes = fate.changes(in: found, of: put)
      try demand(changes.isEmpty, "what is at the path was changed: \(changes.joined(separator: ", "))")
    }
    if fate.isInPlace, !mayGoOn {
      let later = writer.count - countBefore.withLock { $0 }
      try demand(later == 0, "\(later) writes were acknowledged after it")
    }
    try read(writer.reader, shown, fate, disk)
    try goOn(writer, operation, fate, hasResumed: outcome == nil)
    if !fate.goesOn, !mayGoOn {
      try demand(disk.files(in: Self.path) == found, "what is at the path was changed later")
    }
    if let kept = fate.keptPath { try judge(disk, kept, writer) }
    try cutPower(disk, writer, one, 1, takesOver: mayGoOn)
    if let other {
      try Self.put("last", 1, in: other)
      try other.closeBlocking()
      try judge(disk, Self.path, [Self.secondName: 1, "last": 1])
    }
  }

  /// Whatever the operation came to, the next write knows.
  private func goOn(_ writer: Writer, _ operation: StoreOperation, _ fate: FolderFate, hasResumed: Bool) throws {
    writer.clock.advance(milliseconds: Int64(StoreLook.milliseconds))
    switch operation {
    case .close: return
    case .suspend:
      // It has no lock any more, and writes nothing.
      if let error = Self.error({ try writer.store.closeBlocking() }) { try demandReplaced(error, fate, operation) }
      return
    case .resume where !fate.goesOn:
      if let error = Self.error({ try writer.store.closeBlocking() }) { try demandReplaced(error, fate, operation) }
      return
    case .write, .flush, .merge, .compact, .buildIndex, .backup, .stage, .copyContents, .readInbox, .resume: break
    }
    if let error = Self.error({ try writer.put("late") }) {
      try demandReplaced(error, fate, operation)
    } else {
      try demand(fate.goesOn, "a write was taken")
    }
    if let error = Self.error({ try writer.store.closeBlocking() }) {
      try demandReplaced(error, fate, operation)
    } else {
      try demand(fate.goesOn, "a close said nothing")
    }
  }

  /// A reader changes nothing, goes on to show what it showed, and says what it found.
  private func read(
    _ reader: RecordStore, _ shown: [String: Int64], _ fate: FolderFate, _ disk: SimulatedDisk
  ) throws {
    let calls = disk.callCount
    let error = Self.error { _ = try reader.refresh() }
    if let error {
      let code = (error as? StrandlineError)?.code
      // Files that have other bytes now may be read as anything.
      let isSaid = code == .storeReplaced || (fate.isInPlace && code != nil)
      try demand(!fate.goesOn && isSaid, "a reader threw \(error)")
    } else {
      try demand(fate.goesOn || fate.isInPlace, "a reader did not say that its store was replaced")
    }
    if fate == .emptiedAndFilled {
      // Its files have no name any more: a read of them may fail, and never finds the other store's records.
      do {
        let now = try Self.records(reader)
        try demand(now == shown, "a reader shows \(now) in a folder that was emptied and filled")
      } catch let error as StrandlineError {
        try demand([.damaged, .io, .storeReplaced].contains(error.code), "a reader's records threw \(error)")
      }
    }
    if !fate.isInFolder {
      let now = try Self.records(reader)
      for (name, value) in shown {
        try demand(now[name].map { $0 >= value } ?? false, "a reader shows '\(name)' no more")
      }
    }
    try demand(disk.callCount == calls, "a reader changed the disk")
  }

  /// Judges what a power cut leaves at this moment, in a part of the cases. Of files of two stores in one folder nothing is said.
  ///
  /// - Parameter takesOver: whether the writer may have taken what is at the path for its own.
  private mutating func cutPower(
    _ disk: SimulatedDisk, _ writer: Writer, _ one: FolderCase, _ moment: UInt64, takesOver: Bool
  ) throws {
    let others = takesOver ? nil : Self.others(one.fate)
    guard one.hasPowerCut, one.fate.keptPath != nil || others != nil else { return }
    powerCuts += 1
    let image = disk.imageAfterCrash(using: SeededRandom(seed: one.seed &+ moment))
    if let kept = one.fate.keptPath { try judge(image, kept, writer) }
    if let others { try judge(image, Self.path, others) }
  }

  /// What was acknowledged in another store that is whole at the path afterwards; nil if there is none.
  private static func others(_ fate: FolderFate) -> [String: Int64]? {
    switch fate {
    case .replacedByAnother, .removedAndReplaced, .emptiedAndFilled: [othersName: 0, "left for another": 0]
    case .replacedByOlder: ["a": 0, "b": 0, "left before": 0]
    case .secondWriter: [secondName: 1]
    case .moved, .removed, .remounted, .overwrittenByOlder, .overwrittenByAnother, .overwrittenBySameSession: nil
    }
  }

  private func judge(_ disk: SimulatedDisk, _ path: String, _ writer: Writer) throws {
    try judge(disk, path, writer.acknowledged, begun: writer.begun)
  }

  /// Everything that was acknowledged is there, and nothing that was not written.
  private func judge(
    _ disk: SimulatedDisk, _ path: String, _ acknowledged: [String: Int64], begun: [String: Int64]? = nil
  ) throws {
    let begun = begun ?? acknowledged
    let copy = disk.clone()
    let store = try Self.open(OtherProcess(copy), path, seed: 21)
    let found = try Self.records(store)
    let namesContent = try store.record(RecordID("s"))?["file"] != nil
    if namesContent { _ = try store.copyContents(to: Self.copiedPath) }
    try store.closeBlocking()
    try demand(
      !namesContent || copy.files(in: Self.copiedPath)[Self.contentFile] == Self.content,
      "the content that 's' of '\(path)' names is not there")
    for (name, value) in acknowledged {
      guard let there = found[name] else { throw LogProblem("'\(name)' of '\(path)', which was acknowledged, is gone") }
      try demand(there >= value, "'\(name)' of '\(path)' has \(there), and \(value) was acknowledged")
    }
    for (name, value) in found {
      try demand(begun[name].map { value <= $0 } ?? false, "'\(name)' of '\(path)' has \(value), which nobody wrote")
    }
  }

  private static func second(_ fileSystem: any FileSystem) throws -> RecordStore {
    let store = try open(fileSystem, path, seed: 31)
    try put(secondName, 1, in: store)
    return store
  }

  private func demand(_ condition: Bool, _ words: @autoclosure () -> String) throws {
    guard condition else { throw LogProblem(words()) }
  }

  private func demandReplaced(_ error: any Error, _ fate: FolderFate, _ operation: StoreOperation) throws {
    guard !fate.goesOn, let error = error as? StrandlineError else { throw error }
    let isUnknown = error.code == .outcomeUnknown && (fate.isInPlace || fate.isRemoved)
    let isAbsent = fate.isRemoved && (error.underlying as? SystemError)?.isAbsent == true
    // What opens files again refuses those that are of two stores.
    let isRefused = operation.opensFiles && fate.isInPlace && error.code == .damaged
    guard error.code == .storeReplaced || isUnknown || isAbsent || isRefused else { throw error }
  }

  private static func error(_ body: () throws -> Void) -> (any Error)? {
    do { try body() } catch { return error }
    return nil
  }
}
