// Goal: a backup is the store as it was after one event, whatever its writer does meanwhile, or is not there; and it lives
// beside the original without losing or doubling anything. Method: a writer that goes on at every file call of the backup,
// against what the store showed after each event; a power cut and each failure at every call; both copies on the simulated
// cloud.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

private func environment(_ fileSystem: any FileSystem, seed: UInt64) -> StoreEnvironment {
  StoreEnvironment(
    SystemEnvironment(
      fileSystem: fileSystem, clock: SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true),
      random: SeededRandom(seed: seed)), isSimulated: true)
}

private func open(
  _ fileSystem: any FileSystem, _ path: String = "/store", seed: UInt64, upkeep: LogOptions.UpkeepSchedule = .onDemand
) throws -> RecordStore {
  var log = LogOptions()
  log.segmentBytesMax = 8_192
  log.upkeep = upkeep
  return try RecordStore.openBlocking(
    at: path, options: StoreOptions(log: log), environment: environment(fileSystem, seed: seed))
}

private func id(_ name: String) -> RecordID { RecordID(name) }

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do {
    try body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

private func record(_ name: String, _ number: Int) -> Record {
  Record(type: "T", id: id(name), fields: ["n": .int64(Int64(number)), "pad": .bytes(Array(repeating: 7, count: 300))])
}

extension RecordStore {
  /// What the store shows, by name.
  fileprivate func shown() throws -> [String: FieldValue] {
    var shown: [String: FieldValue] = [:]
    try forEachRecord { shown[$0.id.name] = $0["n"] }
    return shown
  }

  fileprivate var log: Log? { if case .writer(let log) = source { log } else { nil } }
}

/// A store whose state after each transaction is kept.
private final class Original: Sendable {
  let store: RecordStore
  private let random: SeededRandom
  private let states: Mutex<[LSN: [String: FieldValue]]>
  private let steps = Atomic(0)
  /// The newest event that a caller knows to be durable.
  private let acknowledged = Atomic<UInt64>(0)

  init(_ disk: any FileSystem, seed: UInt64) throws {
    store = try open(disk, seed: seed)
    random = SeededRandom(seed: seed)
    states = Mutex([.zero: [:]])
  }

  private func below(_ count: UInt64) -> Int { Int(random.next() % count) }

  /// One transaction, or a piece of upkeep.
  func step() throws {
    let step = steps.add(1, ordering: .relaxed).newValue
    switch below(12) {
    case 0: try store.compactBlocking()
    case 1: try store.log?.finishSegment()
    case 2: try store.log?.mergeSegments()
    case 3: try store.log?.maintain()
    case 4: try store.log?.raiseControl()
    default:
      let name = "r\(below(9))"
      try states.withLock { states in
        var state = try store.shown()
        let delete = below(4) == 0
        try store.writeBlocking { tx in
          if delete {
            try tx.delete(id(name))
          } else if try tx.record(id(name)) == nil {
            try tx.create(record(name, step))
          } else {
            try tx.save(record(name, step))
          }
        }
        state[name] = delete ? nil : .int64(Int64(step))
        states[store.durableLSN] = state
      }
      acknowledged.store(store.durableLSN.rawValue, ordering: .releasing)
    }
  }

  var last: LSN { LSN(acknowledged.load(ordering: .acquiring)) }
  func state(after lsn: LSN) -> [String: FieldValue]? { states.withLock { $0[lsn] } }
}

/// Runs something before file calls of one caller.
private final class CallHook: ForwardingFileSystem {
  let base: any FileSystem
  let run: @Sendable () -> Void

  init(base: any FileSystem, _ run: @escaping @Sendable () -> Void) {
    self.base = base
    self.run = run
  }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    run()
    return CallHookFile(base: try folder.open(name, mode), run)
  }
  func list(_ name: String, in folder: any Folder) throws(SystemError) -> [String] {
    run()
    return try folder.list(name)
  }
  func lock(_ name: String, exclusive: Bool, in folder: any Folder) throws(SystemError) -> (any FileLock)? {
    run()
    return try folder.lock(name, exclusive: exclusive)
  }
}

private final class CallHookFile: ForwardingFile {
  let base: any File
  let run: @Sendable () -> Void

  init(base: any File, _ run: @escaping @Sendable () -> Void) {
    self.base = base
    self.run = run
  }

  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    run()
    return try base.read(at: offset, count: count)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A backup` {
  private func backUp(
    _ fileSystem: any FileSystem, to target: String = "/copy", seed: UInt64 = 50
  ) throws -> StoreBackup {
    try RecordStore.backupBlocking(at: "/store", to: target, environment: environment(fileSystem, seed: seed))
  }

  /// The copy must be sound in every byte, and show what the store showed after the event that it ends with.
  private func check(
    _ disk: SimulatedDisk, _ lsn: LSN, _ expected: [String: FieldValue]?, _ comment: Comment,
    at path: String = "/copy", indexes: [RecordIndex] = []
  ) throws {
    let verification = try LogVerifier.verify(at: path, environment: environment(disk, seed: 60).system)
    #expect(verification.findings.isEmpty, comment)
    let reader = try RecordStore.openReadOnlyBlocking(at: path, environment: environment(disk, seed: 61))
    #expect(try reader.durableLSN == lsn && reader.shown() == expected, comment)
    #expect(reader.projections.withLock { $0.brokenInvariant() } == nil, comment)
    let copy = try open(disk, path, seed: 62)
    #expect(try copy.shown() == expected && copy.durableLSN == lsn, comment)
    #expect(try reader.indexes().map(\.index) == indexes && copy.indexes().map(\.index) == indexes, comment)
    #expect(try copy.indexes().allSatisfy(\.isReady), comment)
    try copy.writeBlocking { try $0.create(record("new", 1)) }
    try copy.closeBlocking()
  }

  @Test func `is a store of its own, with everything that was acknowledged`() throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 1)
    for _ in 0..<200 { try original.step() }
    let before = original.last
    let backup = try original.store.backupBlocking(to: "/copy")
    #expect(backup.lsn == before && backup.segments > 0 && backup.bytes > 0)
    for path in disk.paths where path.hasPrefix("/copy/") {
      #expect(["LOCK", "MANIFEST", "CONTROL"].contains { path.hasSuffix("/\($0)") } || path.hasSuffix(".seg"))
    }
    try original.step()
    try check(disk, backup.lsn, original.state(after: before), "")
    // The original goes on, also after the copy was changed.
    for _ in 0..<50 { try original.step() }
    #expect(try original.store.shown() == original.state(after: original.last))
    try original.store.closeBlocking()
  }

  @Test func `of an empty store, of a copy, of a suspended and of a closed one`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    #expect(try store.backupBlocking(to: "/empty").lsn == .zero)
    try check(disk, .zero, [:], "empty", at: "/empty")
    try store.writeBlocking { try $0.save(record("a", 1)) }
    try store.suspendBlocking()
    let one = try store.backupBlocking(to: "/one")
    #expect(one.lsn == store.durableLSN)
    let two = try RecordStore.backupBlocking(at: "/one", to: "/two", environment: environment(disk, seed: 4))
    #expect(two.lsn == one.lsn)
    try check(disk, two.lsn, ["a": 1], "two", at: "/two")
    try check(disk, one.lsn, ["a": 1], "one", at: "/one")
    try store.closeBlocking()
    #expect(code { try store.backupBlocking(to: "/three") } == .closed)
    #expect(try backUp(disk, to: "/four").lsn == one.lsn)
  }

  /// The writer goes on at each file call of the backup: appends, finishes, merges and compacts segments, and gives space back.
  @Test(arguments: Campaign.seeds(1...16, every: 4))
  func `shows one moment, whatever its writer does at each of its calls`(seed: UInt64) throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: seed)
    for _ in 0..<60 { try original.step() }
    let random = SeededRandom(seed: seed ^ 0xBACC)
    // So often that no segment stays for long, or only now and then.
    let rate: UInt64 = [1, 3, 10, 40][Int(seed % 4)]
    let hook = Hook(original, random, rate)
    let before = original.last
    try original.store.log?.raiseControl()
    let backup = try backUp(CallHook(base: disk) { hook.run() })
    if let failed = hook.failure { throw failed }
    let comment: Comment = "seed \(seed), LSN \(backup.lsn)"
    #expect(backup.lsn >= before && backup.lsn <= original.last, comment)
    try check(disk, backup.lsn, original.state(after: backup.lsn), comment)
    try original.store.closeBlocking()
  }

  @Test func `gives up if no segment stays for as long as its copy takes`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    try store.writeBlocking { try $0.save(record("a", 0)) }
    let number = Shared()
    let hook = CallHook(base: disk) {
      do {
        let next = number.count.add(1, ordering: .relaxed).newValue
        try store.writeBlocking { try $0.save(record("a", next)) }
        try store.compactBlocking()
      } catch { Issue.record(error) }
    }
    do {
      _ = try LogBackup.make(
        of: "/store", at: "/copy", role: .store, environment: environment(hook, seed: 2).system, roundsMax: 3,
        ownerBytes: { _, bytes in bytes })
      Issue.record("copied segments that had vanished")
    } catch let error as LogError {
      #expect(error.code == .changing && StrandlineError(error, "").code == .outdated, "\(error)")
    }
    #expect(!disk.directoryPaths.contains { $0.hasPrefix("/copy") })
    try store.closeBlocking()
  }

  /// The power is cut at each call of the backup that changes the disk.
  @Test func `is whole or not there, wherever the power is cut`() throws {
    let made = SimulatedDisk()
    let original = try Original(made, seed: 3)
    for _ in 0..<40 { try original.step() }
    let indexes = [RecordIndex("T", "n")]
    try original.store.addIndex(indexes[0])
    try original.store.log?.raiseControl()
    let expected = original.state(after: original.last)
    // Everything of the original is on the medium.
    let start = made.imageAfterCrash(.all)
    let begin = start.clone()
    begin.keepsHistory = true
    let backup = try backUp(begin)
    let moments = begin.history + [begin]
    #expect(moments.count > 15)
    var whole = 0
    for (number, moment) in moments.enumerated() {
      // Of the files' sectors some.
      let losses = moment.crashLosses()
      for loss in losses.count < 12 ? losses : losses.prefix(4) + losses.suffix(4) {
        let comment: Comment = "call \(number), \(loss)"
        let disk = moment.imageAfterCrash(loss)
        if disk.directoryPaths.contains("/copy") {
          whole += 1
          try check(disk, backup.lsn, expected, comment, indexes: indexes)
        } else {
          // The next one, to the same place or another one, finds nothing in its way, and clears up.
          let path = number % 2 == 0 ? "/copy" : "/second"
          let again = try backUp(disk, to: path, seed: 70)
          #expect(again.lsn == backup.lsn, comment)
          #expect(!disk.directoryPaths.contains { $0.contains(".init-") }, comment)
          try check(disk, again.lsn, expected, comment, at: path, indexes: indexes)
        }
        let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(disk, seed: 71))
        #expect(try reader.shown() == expected, comment)
      }
    }
    #expect(whole > 0)
    // When it has returned, no power cut takes it away.
    #expect(begin.imageAfterCrash(.none).directoryPaths.contains("/copy"))
    try original.store.closeBlocking()
  }

  @Test func `leaves nothing behind if any file call fails`() throws {
    let made = SimulatedDisk()
    let original = try Original(made, seed: 4)
    for _ in 0..<60 { try original.step() }
    try original.store.addIndex(RecordIndex("T", "n"))
    try original.store.closeBlocking()
    let expected = original.state(after: original.last)
    for (error, calls) in [
      (SystemError.device("", ""), Set<DiskCall>()),
      (.full("", ""), [.create, .write, .sync, .syncDirectory, .makeDirectory, .rename]),
    ] {
      var ordinal = 0
      var isStruck = true
      while isStruck {
        ordinal += 1
        let disk = made.clone()
        let faults = FaultInjector(disk)
        faults.plan(DiskFault(calls, ordinal: ordinal, error: error))
        let comment: Comment = "\(error), call \(ordinal)"
        let thrown = code { _ = try backUp(faults) }
        isStruck = faults.struckCount > 0
        if let thrown {
          // One that failed in its last call, the sync of the name's folder, is complete and says so.
          let isComplete = disk.directoryPaths.contains("/copy")
          #expect(thrown == (error.isFull && !isComplete ? .diskFull : .io), comment)
          if !isComplete { #expect(!disk.directoryPaths.contains { $0.contains(".init-") }, comment) }
          // After a full disk the advice is to free space, and to do the same again.
          if thrown == .diskFull { _ = try backUp(disk) }
        } else if disk.directoryPaths.contains("/copy") {
          let copy = try open(disk, "/copy", seed: 9)
          #expect(try copy.shown() == expected && copy.indexes().map(\.isReady) == [true], comment)
        }
      }
      #expect(ordinal > 10)
    }
  }

  @Test func `declares the indexes of its original, and its first writer builds them`() throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 9)
    for _ in 0..<40 { try original.step() }
    for (index, isSuspended) in [(RecordIndex("T", "n"), false), (RecordIndex("T"), true)] {
      try original.store.addIndex(index)
      if isSuspended { try original.store.suspendBlocking() }
      let copy = isSuspended ? "/second" : "/first"
      try original.store.backupBlocking(to: copy)
      let reader = try RecordStore.openReadOnlyBlocking(at: copy, environment: environment(disk, seed: 10))
      #expect(try reader.indexes().map(\.index) == original.store.indexes().map(\.index))
      #expect(try reader.indexes().allSatisfy { !$0.isReady })
      let query = RecordQuery("T", where: [RecordFilter("n", .greaterThan, 10)], sortedBy: [RecordSort("n")])
      let expected = try original.store.query(query).records
      #expect(try reader.query(query).records == expected && reader.explain(query).index == nil)
      let writer = try open(disk, copy, seed: 11)
      #expect(try writer.indexes().allSatisfy(\.isReady) && writer.explain(query).index == RecordIndex("T", "n"))
      #expect(try writer.query(query).records == expected)
      try writer.closeBlocking()
    }
    try original.store.closeBlocking()
  }

  @Test func `on a disk that is too small ends with a full disk and gives the room back`() throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 5)
    for _ in 0..<200 { try original.step() }
    disk.capacity = disk.usedBytes + 10_000
    let used = disk.usedBytes
    #expect(code { try original.store.backupBlocking(to: "/copy") } == .diskFull)
    #expect(disk.usedBytes == used && !disk.directoryPaths.contains { $0.hasPrefix("/copy") })
    disk.capacity = nil
    try original.step()
    #expect(try original.store.shown() == original.state(after: original.last))
    try original.store.closeBlocking()
  }

  @Test func `does not copy damage, and says where it is`() throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 6)
    for _ in 0..<60 { try original.step() }
    try original.store.closeBlocking()
    let path = try #require(disk.paths.first { $0.hasSuffix(".seg") && disk.peek($0)?.count ?? 0 > 6_000 })
    var bytes = try #require(disk.peek(path))
    bytes[5_000] ^= 0x10
    disk.poke(path, bytes)
    do {
      _ = try backUp(disk)
      Issue.record("damage was copied")
    } catch let error as StrandlineError {
      #expect(error.code == .damaged && error.file == path, "\(error)")
    }
    #expect(!disk.directoryPaths.contains { $0.hasPrefix("/copy") })
  }

  @Test func `takes only a place that is free`() throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 7)
    for _ in 0..<10 { try original.step() }
    try disk.makeDirectory("/free")
    try original.store.backupBlocking(to: "/free")
    disk.poke("/file", [1])
    for taken in ["/free", "/store", "/store/inside", "/free/inside", "/file"] {
      #expect(code { try original.store.backupBlocking(to: taken) } == .notAStore, "\(taken)")
    }
    #expect(code { try original.store.backupBlocking(to: "/none/copy") } == .io)
    #expect(
      code { _ = try RecordStore.backupBlocking(at: "/none", to: "/n", environment: environment(disk, seed: 1)) }
        == .noSuchStore)
    try original.store.closeBlocking()
  }

  @Test func `ends with the task that asked for it`() async throws {
    let disk = SimulatedDisk()
    let original = try Original(disk, seed: 8)
    for _ in 0..<10 { try original.step() }
    let store = original.store
    let task = Task {
      // Begins cancelled.
      for await _ in AsyncStream<Never>.makeStream().stream {}
      return try await store.backup(to: "/copy")
    }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(!disk.directoryPaths.contains { $0.hasPrefix("/copy") })
    #expect(try await store.backup(to: "/copy").lsn == original.last)
    #expect(
      try await RecordStore.backup(at: "/copy", to: "/again", environment: environment(disk, seed: 2)).lsn
        == original.last)
    try await store.close()
  }

  /// Real files, and a writer that appends and compacts on threads of its own.
  @Test func `of a real store that is written and compacted meanwhile`() async throws {
    let folder = try TemporaryFolder()
    var options = StoreOptions()
    options.segmentBytesMax = 32_768
    let store = try await RecordStore.open(at: folder("store"), options: options)
    let isOver = Shared()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<2 {
        group.addTask {
          var number = 0
          while !isOver.value.load(ordering: .acquiring) {
            number += 1
            // Both records of a transaction are there or none, and equal.
            let record = [record("w\(writer)", number), record("v\(writer)", number)]
            try await store.write { tx in for record in record { try tx.save(record) } }
          }
        }
      }
      group.addTask {
        while !isOver.value.load(ordering: .acquiring) { try await store.compact() }
      }
      group.addTask {
        defer { isOver.value.store(true, ordering: .releasing) }
        var last: LSN = .zero
        for number in 0..<12 {
          let before = store.durableLSN
          let path = folder("copy\(number)")
          // As another process would, every other time.
          let backup =
            number % 2 == 0
            ? try await store.backup(to: path) : try await RecordStore.backup(at: folder("store"), to: path)
          #expect(backup.lsn >= (number % 2 == 0 ? before : last))
          last = backup.lsn
          let copy = try await RecordStore.open(at: path)
          let shown = try copy.shown()
          #expect(copy.durableLSN == backup.lsn && shown["w0"] == shown["v0"] && shown["w1"] == shown["v1"])
          try await copy.write { try $0.save(record("mine", number)) }
          try await copy.close()
        }
      }
      try await group.waitForAll()
    }
    try await store.close()
  }
}

private final class Shared: Sendable {
  let value = Atomic(false)
  let count = Atomic(0)
}

/// Lets the original go on at some of the calls.
private final class Hook: Sendable {
  private let original: Original
  private let random: SeededRandom
  private let rate: UInt64
  private let state = Mutex<(any Error)?>(nil)
  private let steps = Atomic(0)

  init(_ original: Original, _ random: SeededRandom, _ rate: UInt64) {
    self.original = original
    self.random = random
    self.rate = rate
  }

  var failure: (any Error)? { state.withLock { $0 } }

  func run() {
    // In the end the writer rests: what it costs grows with its log.
    guard random.next() % rate == 0, steps.load(ordering: .relaxed) < 60 else { return }
    for _ in 0...random.next() % 3 {
      steps.add(1, ordering: .relaxed)
      do { try original.step() } catch { state.withLock { $0 = error } }
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A backup beside its original` {
  /// The copy's files as a disk of another device.
  private func disk(of device: Device, copy path: String) -> SimulatedDisk {
    let disk = SimulatedDisk()
    for file in device.disk.paths where file.hasPrefix(path + "/") {
      disk.poke("/store" + file.dropFirst(path.count), device.disk.peek(file) ?? [])
    }
    return disk
  }

  @Test func `197: writes under a new name from its first event on, once`() async throws {
    let fleet = try Fleet()
    let device = fleet.device("a")
    let store = try await device.open()
    try await store.write { try $0.save(record("a", 1)) }
    let name = store.projections.sync.writer
    let backup = try await store.backup(to: "/copy")
    let disk = disk(of: device, copy: "/copy")
    var names: [WriterID?] = []
    for seed in 1...3 as ClosedRange<UInt64> {
      // Opened and closed without a transaction, nothing is decided.
      try open(disk, seed: seed &+ 10).closeBlocking()
      let copy = try open(disk, seed: seed)
      try copy.compactBlocking()
      try copy.suspendBlocking()
      try copy.resumeBlocking()
      try copy.writeBlocking { try $0.save(record("a", Int(seed) + 1)) }
      names.append(copy.projections.sync.writer)
      let first = copy.projections.sync.tenures.first { $0.first > backup.lsn }
      #expect(first?.writer == names.first && first?.first == backup.lsn.advanced(by: 1))
      try copy.closeBlocking()
    }
    #expect(Set(names).count == 1 && names.first != name)
    // The original keeps its name.
    try await store.write { try $0.save(record("a", 2)) }
    #expect(store.projections.sync.writer == name)
    try await device.close()
    #expect(try await device.open().projections.sync.writer == name)
    try await device.close()
  }

  /// Edits of one field at the same millisecond, in both: with one writer name they would have the same stamp and
  /// different values, and no device could tell which of them holds.
  @Test func `ends in agreement with it after edits at the same moment`() async throws {
    let fleet = try Fleet()
    let device = fleet.device("a")
    let store = try await device.open()
    try await store.write { try $0.save(record("a", 1)) }
    try await device.sync()
    try await store.backup(to: "/copy")
    let other = fleet.device("b")
    other.restore(from: disk(of: device, copy: "/copy"))
    let copy = try await other.open()
    let now = max(device.clock.wallMilliseconds(), other.clock.wallMilliseconds()) + 1_000
    for (clock, store, number) in [(device.clock, store, 2), (other.clock, copy, 3)] {
      clock.setWall(milliseconds: now)
      try await store.write { try $0.save(record("a", number)) }
    }
    for _ in 0..<3 { for device in [other, device] { try await device.sync() } }
    let (left, right) = (try await device.dump(), try await other.dump())
    #expect(left == right)
    #expect(try store.record(id("a"))?["n"] == copy.record(id("a"))?["n"])
    #expect(try store.status().unsettled == 0 && copy.status().unsettled == 0)
    try await device.close()
    try await other.close()
  }

  /// A creation is on its way when the backup is made; the copy deletes the record before it has seen the answer.
  @Test func `takes an unsent creation for one that may have been sent`() async throws {
    let fleet = try Fleet()
    let device = fleet.device("a")
    let store = try await device.open()
    try await store.write { try $0.save(record("a", 1)) }
    try await store.backup(to: "/copy")
    try await device.sync()
    let other = fleet.device("b")
    other.restore(from: disk(of: device, copy: "/copy"))
    let copy = try await other.open()
    try await copy.write { try $0.delete(id("a")) }
    // Without a fetch before it, which would tell.
    try await other.sync(.pushOnly)
    for _ in 0..<3 { for device in [other, device] { try await device.sync() } }
    let (left, right) = (try await device.dump(), try await other.dump())
    #expect(left.isEmpty && right.isEmpty)
    #expect(try copy.status().unsettled == 0)
    try await device.close()
    try await other.close()
  }

  /// Both go on, lose power, sync and compact at random; the backup is made in the middle of it, also during a cycle.
  @Test(arguments: Campaign.seeds(1...12, every: 4))
  func `196, 197: loses nothing and doubles nothing`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.next() % count) }
    let fleet = try Fleet(seed: seed)
    let device = fleet.device("a", segmentBytesMax: 8_192)
    let other = fleet.device("b", clockSkewMilliseconds: Int64(below(3)) * 1_000, segmentBytesMax: 8_192)
    /// Records that one device alone writes, with their last values; nil: deleted.
    var own: [String: Int?] = [:]
    func write(_ device: Device, _ step: Int) async throws {
      let store = try await device.open()
      // Before the backup both are one device, so the names of "b" begin with it.
      let isShared = below(3) == 0
      let name = isShared ? "s\(below(4))" : "\(device.name)\(below(6))"
      let delete = below(5) == 0
      try await store.write { tx in
        if delete {
          try tx.delete(id(name))
        } else if try tx.record(id(name)) == nil {
          try tx.create(record(name, step))
        } else {
          try tx.save(record(name, step))
        }
      }
      if !isShared { own[name] = .some(delete ? nil : step) }
    }
    for step in 0..<30 {
      try await write(device, step)
      if below(6) == 0 { try await device.sync(below(3) == 0 ? .pushOnly : .both) }
      if below(15) == 0 { _ = try await device.compact() }
    }
    // The backup: between two cycles, or during one.
    let store = try await device.open()
    let backups = Backups()
    if below(2) == 0 {
      let answer = below(4) + 1
      device.whileAsking {
        guard backups.answers.add(1, ordering: .relaxed).newValue == answer else { return }
        do { _ = try store.backupBlocking(to: "/copy") } catch { Issue.record(error) }
      }
      try await device.sync()
      device.whileAsking(nil)
    }
    if !device.disk.directoryPaths.contains("/copy") { try await store.backup(to: "/copy") }
    other.restore(from: disk(of: device, copy: "/copy"))
    for step in 30..<110 {
      let one = below(2) == 0 ? device : other
      switch below(12) {
      case 0...6: try await write(one, step)
      case 7, 8: try await one.sync(below(4) == 0 ? .pushOnly : .both)
      case 9: one.crash(.all)
      case 10: if below(3) == 0 { _ = try await one.compact() }
      default:
        try await one.open().suspend()
        try await one.open().resume()
      }
    }
    for _ in 0..<4 { for one in [other, device] { try await one.sync() } }
    let (left, right) = (try await device.dump(), try await other.dump())
    #expect(left == right, "seed \(seed)")
    for one in [device, other] {
      let store = try await one.open()
      #expect(try store.status().unsettled == 0 && store.status().held.isEmpty, "seed \(seed), \(one.name)")
      for (name, step) in own {
        #expect(
          try store.record(id(name))?["n"] == step.map { .int64(Int64($0)) }, "seed \(seed), \(one.name), \(name)")
      }
      #expect(try await one.brokenInvariant() == nil, "seed \(seed), \(one.name)")
      try await one.close()
    }
  }
}

private final class Backups: Sendable { let answers = Atomic(0) }
