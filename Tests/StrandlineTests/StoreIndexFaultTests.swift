// Goal: whatever fails or is cut off while runs are written, merged, made anew or read at an open, the store answers what
// its log says, in the same process and in the next one, and leaves no file behind for long. Method: the same few jobs,
// with a failure, a power cut or another process at every call of the file system.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import StrandlineTestSupport
import Testing

/// A store with many small runs.
private func tiny(flushing: Int = 8, closing: UInt64 = 1 << 40) -> StoreOptions {
  var log = LogOptions()
  log.segmentBytesMax = 8 << 10
  log.controlIntervalMilliseconds = nil
  log.ballastBytes = 0
  log.upkeep = .onDemand
  var index = IndexOptions()
  index.flushCount = flushing
  index.closeCount = closing
  index.mergeWidth = 3
  index.cacheBytesMax = 16 << 10
  return StoreOptions(log: log, index: index)
}

private func environment(
  _ fileSystem: any FileSystem, seed: UInt64, clock: SimulatedClock = SimulatedClock()
) -> StoreEnvironment {
  StoreEnvironment(
    SystemEnvironment(fileSystem: fileSystem, clock: clock, random: SeededRandom(seed: seed)), isSimulated: true)
}

extension RecordStore {
  fileprivate var log: Log {
    get throws {
      guard case .writer(let log) = source else { throw StrandlineError(.readOnly, "the store has no log to write") }
      return log
    }
  }

  fileprivate func flushIndex() throws { try #require(index).flush() }

  /// Saves records that there were not.
  fileprivate func create(_ numbers: Range<Int>) throws {
    try writeBlocking { tx in for number in numbers { try tx.create(note(number)) } }
  }

  /// Appends what the engine would.
  fileprivate func append(_ events: [Event]) throws {
    let (lsns, place) = try transact { core in for event in events { try core.append(event) } }
    if lsns != nil { try log.waitUntilDurableBlocking(place.lsn.rawValue) }
  }
}

/// Its name is so long that a run of many has several blocks.
private func note(_ number: Int, _ value: Int64 = 1) -> Record {
  let name = "r\(1000 + number)" + String(repeating: "x", count: 60)
  return Record(type: "Note", id: RecordID(name), fields: ["v": .int64(value)])
}

/// A disk with a store that is closed, how it is opened, and what is done with it.
private struct Job: Sendable, CustomTestStringConvertible {
  var name: String
  var options = tiny()
  /// Makes the disk; its power may be cut afterwards.
  var prepare: @Sendable (SimulatedDisk) throws -> Void
  /// Done with the store that was opened on the disk.
  var body: @Sendable (RecordStore) throws -> Void
  /// Whether the open is part of the job.
  var includesOpen = false

  var testDescription: String { name }

  func disk() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    try prepare(disk)
    return disk.imageAfterCrash(.none)
  }

  func open(_ fileSystem: any FileSystem, seed: UInt64) throws -> RecordStore {
    try RecordStore.openBlocking(at: "/store", options: options, environment: environment(fileSystem, seed: seed))
  }

  /// A store with `runs` runs, and some changes that no run has.
  private static func prepare(runs: Int) -> @Sendable (SimulatedDisk) throws -> Void {
    { disk in
      let store = try RecordStore.openBlocking(
        at: "/store", options: tiny(flushing: 1000), environment: environment(disk, seed: 1))
      for run in 0..<runs {
        try store.create(run * 10..<run * 10 + 10)
        try store.writeBlocking { tx in try tx.delete(note(run * 10 + 3).id) }
        try store.flushIndex()
      }
      try store.create(100..<104)
      try store.writeBlocking { tx in
        try tx.save(note(1, 2))
        try tx.delete(note(2).id)
      }
    }
  }

  private static func prepareMany(listed: Bool) -> @Sendable (SimulatedDisk) throws -> Void {
    { disk in
      let store = try RecordStore.openBlocking(
        at: "/store", options: tiny(flushing: 10_000), environment: environment(disk, seed: 1))
      for part in 0..<15 { try store.create(part * 10..<part * 10 + 10) }
      if listed { try store.flushIndex() }
      try store.create(300..<303)
    }
  }

  @Sendable private static func readMany(_ store: RecordStore) throws {
    for number in stride(from: 0, to: 150, by: 7) {
      let value = try store.record(note(number).id)?["v"]
      #expect(value == 1)
    }
  }

  static let all = [
    Job(name: "a flush", options: tiny(flushing: 100), prepare: prepare(runs: 1)) {
      try $0.flushIndex()
    },
    Job(name: "a merge", options: tiny(flushing: 100), prepare: prepare(runs: 2)) {
      try $0.flushIndex()
    },
    Job(
      name: "runs made anew", options: tiny(flushing: 60),
      prepare: { disk in
        try prepareMany(listed: true)(disk)
        let path = try #require(disk.paths.first { $0.hasSuffix(".run") })
        var bytes = try #require(disk.peek(path))
        // In a block in the middle.
        bytes[bytes.count / 2] ^= 4
        disk.poke(path, bytes)
      },
      body: readMany),
    Job(
      name: "an open that writes runs", options: tiny(flushing: 12),
      prepare: prepareMany(listed: false), body: { _ in }, includesOpen: true),
    Job(name: "a close", options: tiny(flushing: 100, closing: 1), prepare: prepare(runs: 2)) {
      try $0.closeBlocking()
    },
  ]

  /// What every record has to be, by the log alone.
  func expected(_ disk: SimulatedDisk) throws -> [RecordID: FieldValue] {
    let files = IndexFiles(
      try disk.clone().folder("/store"), .simulated(disk, seed: 2), cache: BlockCache(bytesMax: 0))
    let (opened, reader) = try IndexOpening.folding(files, spillingAt: nil)
    var result: [RecordID: FieldValue] = [:]
    for (id, entry) in try opened.projections.allEntries() {
      guard let view = entry.view, let version = try LoadedVersion(EventSource.reader(reader).event(at: view), at: view)
      else { continue }
      result[id] = version.version.fields["v"]
    }
    return result
  }

  /// That a store answers what it has to.
  func check(_ store: RecordStore, _ expected: [RecordID: FieldValue], _ comment: String) throws {
    #expect(try store.recordIDs() == expected.keys.sorted(), "\(comment)")
    #expect(store.recordCount == expected.count, "\(comment)")
    var found: [RecordID: FieldValue] = [:]
    try store.forEachRecord { found[$0.id] = $0["v"] }
    #expect(found == expected, "\(comment)")
    for id in expected.keys.sorted().prefix(5) { #expect(try store.record(id)?["v"] == expected[id], "\(comment)") }
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil, "\(comment)")
  }

  /// That writes go on, and that after the next flush the folder has the files of the list and no others.
  func goOn(_ store: RecordStore, _ disk: SimulatedDisk, _ expected: [RecordID: FieldValue], _ comment: String) throws {
    try store.writeBlocking { tx in try tx.create(note(900)) }
    try store.flushIndex()
    var expected = expected
    expected[note(900).id] = 1
    try check(store, expected, comment)
    let folder = RunFolder(try disk.folder("/store"), "runs")
    let list = try #require(try RunList.load(folder, storeUUID: try store.log.storeUUID))
    let named = list.runNumbers.map { folder.run($0) } + ["/store/runs/RUNS"]
    #expect(disk.paths.filter { $0.hasPrefix("/store/runs/") } == named.sorted(), "\(comment)")
    try store.writeBlocking { tx in try tx.delete(note(900).id) }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Runs of a store` {
  @Test(arguments: Job.all, [SystemError.device("", ""), .full("", "")])
  fileprivate func `may fail at every call`(_ job: Job, _ error: SystemError) throws {
    let image = try job.disk()
    let expected = try job.expected(image)
    var struck = 0
    // That a call has taken effect although it failed does not depend on why.
    for moment in error.isFull ? [DiskFault.Moment.before] : [.before, .after] {
      for ordinal in 1... where Campaign.takes(ordinal, job.name.utf8.count + (error.isFull ? 1 : 0), every: 12) {
        let disk = image.clone()
        let injector = FaultInjector(disk)
        let fault = DiskFault([], ordinal: ordinal, moment: moment, error: error)
        let comment = "\(job.name), call \(ordinal) fails \(moment)"
        var store: RecordStore?
        if job.includesOpen { injector.plan(fault) }
        do { store = try job.open(injector, seed: 3) } catch { #expect(job.includesOpen, "\(comment): \(error)") }
        if let store {
          if !job.includesOpen { injector.plan(fault) }
          do { try job.body(store) } catch let error as StrandlineError {
            #expect([.io, .diskFull, .outcomeUnknown].contains(error.code), "\(comment): \(error)")
          }
        }
        let hasStruck = injector.struckCount > 0
        injector.clear()
        if let store, case .open = try store.log.state {
          try job.check(store, expected, comment)
          try job.goOn(store, disk, expected, comment)
        }
        // The process ends without a close, or the store is closed; its log may be poisoned.
        if ordinal % 2 == 0 { try? store?.closeBlocking() }
        let next = ordinal % 2 == 0 ? disk.clone() : disk.imageAfterCrash(.none)
        let again = try job.open(next, seed: 4)
        try job.check(again, expected, "\(comment), reopened")
        try job.goOn(again, next, expected, "\(comment), reopened")
        try again.closeBlocking()
        guard hasStruck else { break }
        struck += 1
      }
    }
    #expect(struck > (Campaign.isWhole ? 15 : 0), "\(job.name)")
  }

  @Test(arguments: Job.all) fileprivate func `may be cut off at every call`(_ job: Job) throws {
    let image = try job.disk()
    let expected = try job.expected(image)
    let disk = image.clone()
    if job.includesOpen { disk.keepsHistory = true }
    let store = try job.open(disk, seed: 3)
    disk.keepsHistory = true
    try job.body(store)
    let history = disk.history + [disk.clone()]
    #expect(history.count > 10)
    for (call, moment) in history.enumerated() where Campaign.takes(call, job.name.utf8.count) {
      // Killed: everything that was written is there. Or the power is cut.
      let images =
        [moment.imageAfterCrash(.all), moment.imageAfterCrash(.none)]
        + [moment.imageAfterCrash(using: SeededRandom(seed: UInt64(call)))]
      for (number, image) in images.enumerated() {
        let comment = "\(job.name), before call \(call + 1), image \(number)"
        let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(image, seed: 5))
        try job.check(reader, expected, comment)
        try reader.closeBlocking()
        let again = try job.open(image, seed: 4)
        try job.check(again, expected, comment)
        try job.goOn(again, image, expected, comment)
        try again.closeBlocking()
      }
    }
  }

  @Test(arguments: Job.all.prefix(2)) fileprivate func `may be opened by a reader at every call`(_ job: Job) throws {
    let image = try job.disk()
    let expected = try job.expected(image)
    var calls = 0
    for call in 1... {
      let disk = image.clone()
      let store = try job.open(disk, seed: 3)
      try store.log.raiseControl()
      let hooked = HookedFileSystem(disk, atCall: call) { try job.body(store) }
      let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(hooked, seed: 5))
      let comment = "\(job.name) while a reader makes call \(call)"
      if hooked.isOver { calls += 1 } else { try job.body(store) }
      try job.check(reader, expected, comment)
      try store.writeBlocking { tx in try tx.create(note(901)) }
      try store.flushIndex()
      try reader.refresh()
      var later = expected
      later[note(901).id] = 1
      try job.check(reader, later, comment)
      try reader.closeBlocking()
      try store.closeBlocking()
      guard hooked.isOver else { break }
    }
    #expect(calls > 20)
  }

  @Test(arguments: [SystemError.device("", ""), .full("", "")])
  func `that cannot be written refuse a write only when memory has four times too much`(_ error: SystemError) throws {
    let (disk, clock) = (SimulatedDisk(), SimulatedClock())
    let injector = FaultInjector(disk)
    var options = tiny()
    options.log.segmentBytesMax = 1 << 20
    let store = try RecordStore.openBlocking(
      at: "/store", options: options, environment: environment(injector, seed: 1, clock: clock))
    try store.create(0..<1)
    injector.plan(DiskFault([.create], pathSuffix: ".tmp", isSticky: true, error: error))
    for number in 1..<32 {
      try store.create(number..<number + 1)
      #expect(store.projections.unstoredCount == number + 1)
      #expect((store.index?.failure != nil) == (number >= 7), "\(number)")
      clock.advance(milliseconds: 1_000)
    }
    for _ in 0..<3 {
      #expect { try store.create(32..<33) } throws: {
        ($0 as? StrandlineError)?.code == (error.isFull ? .diskFull : .io)
      }
    }
    #expect(try store.recordIDs().count == 32)
    injector.clear()
    clock.advance(milliseconds: 60_000)
    try store.create(32..<33)
    #expect(store.projections.unstoredCount == 1 && store.index?.failure == nil)
    #expect(try store.recordIDs().count == 33)
    #expect(!disk.paths.contains { $0.hasSuffix(".tmp") })
    try store.closeBlocking()
  }

  // MARK: Runs that are not this store's

  /// A change of a header whose checksum is made right again.
  private func forged(_ bytes: [UInt8], at offset: Int, headerBytes: Int) -> [UInt8] {
    var bytes = bytes
    bytes[offset] ^= 2
    var writer = ByteWriter()
    writer.u32(CRC32C.checksum(bytes, 0..<headerBytes - 4))
    bytes.replaceSubrange(headerBytes - 4..<headerBytes, with: writer.bytes)
    // The list ends with a checksum of all.
    if headerBytes == RunFormat.listHeaderBytes {
      writer = ByteWriter()
      writer.u32(CRC32C.checksum(bytes, 0..<bytes.count - 4))
      bytes.replaceSubrange(bytes.count - 4..<bytes.count, with: writer.bytes)
    }
    return bytes
  }

  @Test func `of another store, or of a later version, are not believed`() throws {
    let job = Job.all[0]
    let image = try job.disk()
    let expected = try job.expected(image)
    let other = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: tiny(closing: 1), environment: environment(other, seed: 77))
    try store.create(0..<40)
    try store.closeBlocking()
    var disks: [(String, SimulatedDisk)] = []
    func add(_ name: String, _ change: (SimulatedDisk) throws -> Void) rethrows {
      let disk = image.clone()
      try change(disk)
      disks.append((name, disk))
    }
    let runs = image.paths.filter { $0.hasPrefix("/store/runs/") }
    try add("another store's") { disk in
      for path in runs { disk.pokeRemove(path) }
      for path in other.paths where path.hasPrefix("/store/runs/") { disk.poke(path, try #require(other.peek(path))) }
    }
    add("no list") { $0.pokeRemove("/store/runs/RUNS") }
    add("no folder") { disk in for path in runs { disk.pokeRemove(path) } }
    for path in runs {
      let headerBytes = path.hasSuffix(".run") ? RunFormat.runHeaderBytes : RunFormat.listHeaderBytes
      for offset in [RunFormat.Header.version, RunFormat.Header.incompatibleBits] {
        try add("\(path), byte \(offset)") { disk in
          disk.poke(path, forged(try #require(image.peek(path)), at: offset, headerBytes: headerBytes))
        }
      }
    }
    for (name, disk) in disks {
      let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(disk, seed: 5))
      try job.check(reader, expected, name)
      try reader.closeBlocking()
      let store = try job.open(disk, seed: 4)
      #expect(store.index?.runCount == 0, "\(name)")
      try job.check(store, expected, name)
      try job.goOn(store, disk, expected, name)
      try store.closeBlocking()
    }
  }

  /// A record that the server has is deleted, the deletion is settled, and the log is compacted: nothing in it says any
  /// more that there was a deletion behind the first flush.
  private func compacted(_ disk: SimulatedDisk) throws -> (older: [String: [UInt8]], store: RecordStore) {
    let store = try RecordStore.openBlocking(
      at: "/store", options: tiny(flushing: 1000), environment: environment(disk, seed: 1))
    try store.create(0..<20)
    for number in 0..<20 {
      let id = note(number).id
      guard let newest = try store.projections.entry(id)?.pending?.newest else { continue }
      try store.append([.settled(Settled(id: id, lsn: newest, outcome: .saved, changeTag: "tag\(number)"))])
    }
    try store.log.finishSegment()
    try store.flushIndex()
    var older: [String: [UInt8]] = [:]
    for path in disk.paths where path.hasPrefix("/store/runs/") { older[path] = disk.peek(path) }
    try store.writeBlocking { tx in for number in 5..<15 { try tx.delete(note(number).id) } }
    for number in 5..<15 {
      let id = note(number).id
      guard let newest = try store.projections.entry(id)?.pending?.newest else { continue }
      try store.append([.settled(Settled(id: id, lsn: newest, outcome: .deleted))])
    }
    try store.compactBlocking()
    return (older, store)
  }

  @Test func `know at least what a compaction was decided by`() throws {
    let disk = SimulatedDisk()
    let (_, store) = try compacted(disk)
    #expect(try store.recordIDs().count == 10)
    try store.writeBlocking { tx in try tx.save(note(0, 5)) }
    try store.log.raiseControl()
    let next = disk.imageAfterCrash(.none)
    for store in [
      try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(next, seed: 5)),
      try RecordStore.openBlocking(at: "/store", options: tiny(), environment: environment(next, seed: 6)),
    ] {
      // They are believed, and only what was written since is read from the log.
      #expect(store.projections.withLock { $0.runs?.list.entries.count } == 1)
      #expect(store.projections.unstoredCount == 1)
      #expect(try store.recordIDs().count == 10)
      #expect(try store.record(note(7).id) == nil && store.record(note(0).id)?["v"] == 5)
      try store.closeBlocking()
    }
  }

  @Test func `from before a compaction are not believed when they are copied back`() throws {
    let disk = SimulatedDisk()
    let (older, store) = try compacted(disk)
    try store.log.raiseControl()
    let next = disk.imageAfterCrash(.none)
    for path in next.paths where path.hasPrefix("/store/runs/") { next.pokeRemove(path) }
    for (path, bytes) in older { next.poke(path, bytes) }
    let job = Job.all[0]
    let expected = try job.expected(next)
    #expect(expected.count == 10)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(next, seed: 5))
    try job.check(reader, expected, "a reader")
    let again = try job.open(next, seed: 6)
    try job.check(again, expected, "a writer")
    try job.goOn(again, next, expected, "a writer")
    try again.closeBlocking()
  }

  @Test func `from an older moment of the same log are gone on from`() throws {
    let disk = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: tiny(flushing: 1000), environment: environment(disk, seed: 1))
    try store.create(0..<20)
    try store.flushIndex()
    var older: [String: [UInt8]] = [:]
    for path in disk.paths where path.hasPrefix("/store/runs/") { older[path] = disk.peek(path) }
    try store.writeBlocking { tx in for number in 5..<15 { try tx.delete(note(number).id) } }
    try store.flushIndex()
    try store.log.raiseControl()
    let next = disk.imageAfterCrash(.none)
    for (path, bytes) in older { next.poke(path, bytes) }
    let job = Job.all[0]
    let expected = try job.expected(next)
    #expect(expected.count == 10)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(next, seed: 5))
    try job.check(reader, expected, "a reader")
    let again = try job.open(next, seed: 6)
    #expect(again.index?.runCount == 1 && again.projections.unstoredCount > 0)
    try job.check(again, expected, "a writer")
    try job.goOn(again, next, expected, "a writer")
    try again.closeBlocking()
  }

  // MARK: What goes on while runs come and go

  @Test func `stay readable for a view and a list that were begun before they were merged`() throws {
    let disk = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: tiny(flushing: 40), environment: environment(disk, seed: 1))
    // Values so long that a run has many blocks.
    func fill(_ value: Int64) throws {
      try store.writeBlocking { tx in
        for number in 0..<60 {
          let name = "r\(1000 + number)" + String(repeating: "x", count: 150)
          try tx.save(Record(type: "Note", id: RecordID(name), fields: ["v": .int64(value)]))
        }
      }
    }
    try fill(1)
    let view = try store.view()
    var seen = 0
    try view.forEachRecord { record in
      seen += 1
      #expect(record["v"] == 1)
      // The runs that the list was begun with are merged away below it.
      if seen == 5 {
        for value in 2...12 {
          try fill(Int64(value))
          try store.flushIndex()
        }
      }
    }
    #expect(seen == 60)
    seen = 0
    try view.forEachRecord { record in
      seen += 1
      #expect(record["v"] == 1)
    }
    #expect(seen == 60)
    try store.forEachRecord { #expect($0["v"] == 12) }
    try store.closeBlocking()
  }

  @Test func `have nothing of a transaction that is undone while they are written`() throws {
    let disk = SimulatedDisk()
    let store = try RecordStore.openBlocking(
      at: "/store", options: tiny(flushing: 1000), environment: environment(disk, seed: 1))
    try store.create(0..<10)
    struct Undone: Error {}
    do {
      try store.writeBlocking { tx in
        try tx.save(note(1, 9))
        try tx.delete(note(2).id)
        try tx.create(note(50))
        // What was appended and is not durable must be in no run.
        try store.flushIndex()
        throw Undone()
      }
    } catch is Undone {}
    let job = Job.all[0]
    var expected: [RecordID: FieldValue] = [:]
    for number in 0..<10 { expected[note(number).id] = 1 }
    try job.check(store, expected, "undone")
    try store.log.raiseControl()
    let next = disk.imageAfterCrash(.none)
    let again = try job.open(next, seed: 4)
    #expect(again.index?.runCount == 1)
    try job.check(again, expected, "reopened")
    try again.closeBlocking()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A close that cannot write the sorted tables` {
  /// A full disk will have room again, and the next open makes the tables: that is no failure of the close.
  @Test(arguments: [SystemError.device("", ""), .full("", "")])
  func `says so of a disk that fails, and gives the store back`(fault: SystemError) throws {
    let expected: StrandlineError.Code? = fault.isFull ? nil : .io
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let options = tiny(flushing: 1000, closing: 1)
    let store = try RecordStore.openBlocking(
      at: "/store", options: options, environment: environment(faults, seed: 1))
    try store.create(0..<4)
    // The folder of the runs.
    faults.plan(DiskFault([.makeDirectory], error: fault))
    var thrown: StrandlineError?
    do { try store.closeBlocking() } catch { thrown = error as? StrandlineError }
    #expect(faults.struckCount == 1 && thrown?.code == expected)
    if let thrown {
      #expect(thrown.message.contains("'/store' is closed and what was acknowledged is safe"), "\(thrown.message)")
    }
    try store.closeBlocking()
    let again = try RecordStore.openBlocking(at: "/store", options: options, environment: environment(disk, seed: 2))
    #expect(again.recordCount == 4)
    try again.closeBlocking()
    #expect(
      try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment(disk, seed: 3)).recordCount == 4)
    #expect(disk.paths.contains { $0.hasPrefix("/store/runs/") })
  }
}

/// A file system that does something once, before a call of a number.
private final class HookedFileSystem: ForwardingFileSystem {
  let base: any FileSystem
  private let disk: SimulatedDisk
  private let state: Mutex<(left: Int, isOver: Bool)>
  private let body: @Sendable () throws -> Void

  init(_ disk: SimulatedDisk, atCall call: Int, _ body: @escaping @Sendable () throws -> Void) {
    base = disk
    self.disk = disk
    state = Mutex((call, false))
    self.body = body
  }

  /// Whether it was done.
  var isOver: Bool { state.withLock { $0.isOver } }

  fileprivate func count() {
    let isDue = state.withLock { state in
      state.left -= 1
      if state.left == 0 { state.isOver = true }
      return state.left == 0
    }
    guard isDue else { return }
    do { try LockPlace.asAnotherThread(body) } catch { Issue.record("the writer met \(error)") }
  }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    count()
    return HookedFile(self, try folder.open(name, mode))
  }
  func kind(of name: String, in folder: any Folder) throws(SystemError) -> PathKind {
    count()
    return try folder.kind(of: name)
  }
  func list(_ name: String, in folder: any Folder) throws(SystemError) -> [String] {
    count()
    return try folder.list(name)
  }
}

private final class HookedFile: ForwardingFile {
  private let hooked: HookedFileSystem
  let base: any File

  init(_ hooked: HookedFileSystem, _ base: any File) {
    self.hooked = hooked
    self.base = base
  }

  func size() throws(SystemError) -> UInt64 {
    hooked.count()
    return try base.size()
  }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    hooked.count()
    return try base.read(at: offset, count: count)
  }
}
