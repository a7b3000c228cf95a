// Goal: adding and dropping an index on a full store survives a power cut, a failed call and a full disk at every call: the
// index is there and complete, or it is not there, and every query says the same. Method: one life of a store on a simulated
// disk; each image of it is opened and asked.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private let indexes = [RecordIndex("Note", "v"), RecordIndex("Note", "v", ascending: false)]

private let queries = [
  RecordQuery("Note", sortedBy: [RecordSort("v")], limit: 5),
  RecordQuery("Note", sortedBy: [RecordSort("v", ascending: false)], limit: 5),
  RecordQuery("Note", where: [RecordFilter("v", .equals, 1)]),
  RecordQuery("Note", where: [RecordFilter("v", .greaterThan, 0)], sortedBy: [RecordSort("v")]),
]

/// A store with records of all values, written, and flushed but for the last.
private func prepare(_ disk: SimulatedDisk) throws -> RecordStore {
  let store = try openIndexed(disk, seed: 1)
  let values = IndexedValues(random: SeededRandom(seed: 1))
  for number in 0..<30 {
    try store.writeBlocking { tx in
      var record = Record(type: "Note", id: RecordID("r\(number)"))
      record["v"] = values.value()
      try tx.save(record)
    }
  }
  return store
}

/// Adds, writes beside, drops, adds again.
private func live(_ store: RecordStore, deleting name: String = "r20") throws {
  try store.addIndex(indexes[0])
  for number in 0..<12 {
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
  }
  try store.dropIndex(indexes[0])
  try store.addIndex(indexes[1])
  try store.addIndex(indexes[0])
  try store.writeBlocking { try $0.delete(RecordID(name)) }
  try store.index?.flush()
}

private func check(_ store: RecordStore, _ what: String) throws {
  let view = try store.view()
  for query in queries {
    let indexed = try view.answer(query)
    #expect(try indexed == view.answer(query, usesIndexes: false), "\(what), \(query)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `An index that is added or dropped` {
  @Test func `is whole or absent after a power cut at any call`() throws {
    let disk = SimulatedDisk()
    let store = try prepare(disk)
    disk.keepsHistory = true
    try live(store)
    let history = disk.history + [disk.clone()]
    #expect(history.count > 60)
    var images = 0
    var ready: Set<Int> = []
    for (call, moment) in history.enumerated() where Campaign.takes(call) {
      for seed in 1...2 as ClosedRange<UInt64> {
        images += 1
        let image = moment.imageAfterCrash(using: SeededRandom(seed: seed &+ UInt64(call) << 8))
        let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: image, seed: 1))
        ready.insert(try reader.indexes().count(where: \.isReady))
        try check(reader, "call \(call), seed \(seed), reading")
        let store = try openIndexed(image, seed: 2)
        try check(store, "call \(call), seed \(seed)")
        // What was declared is built by the open.
        #expect(try store.indexes().allSatisfy(\.isReady), "call \(call), seed \(seed)")
        if call % (Campaign.isWhole ? 4 : 8) == 0 {
          try live(store, deleting: "r21")
          try check(store, "call \(call), seed \(seed), later")
        }
        try store.closeBlocking()
      }
    }
    print("an index that is added or dropped: \(images) power cuts")
    #expect(images > (Campaign.isWhole ? 120 : 30) && ready == [0, 1, 2], "\(images) images, \(ready)")
  }

  @Test func `is whole or absent after a failed call or on a full disk`() throws {
    let disk = SimulatedDisk()
    let store = try prepare(disk)
    try store.closeBlocking()
    let whole = disk.clone()
    let calls = try { () throws -> Range<Int> in
      let disk = whole.clone()
      let store = try openIndexed(disk, seed: 3)
      let first = disk.callCount
      try live(store)
      return first..<disk.callCount
    }()
    var failures = 0
    for call in calls where Campaign.takes(call) {
      let disk = whole.clone()
      let store = try openIndexed(disk, seed: 3)
      disk.failCall(call + 1 - calls.lowerBound + disk.callCount)
      do { try live(store) } catch { failures += 1 }
      do { try check(store, "failed call \(call)") } catch { failures += 1 }
      let after = disk.imageAfterCrash(.none)
      let again = try openIndexed(after, seed: 4)
      try check(again, "after failed call \(call)")
      #expect(try again.indexes().allSatisfy(\.isReady), "after failed call \(call)")
      try again.closeBlocking()
    }
    print("an index that is added or dropped: \(failures) failures of \(calls.count) calls")
    #expect(failures > (Campaign.isWhole ? 20 : 5))
    let full = whole.clone()
    let opened = try openIndexed(full, seed: 3)
    full.capacity = full.usedBytes
    #expect(throws: StrandlineError.self) { try opened.addIndex(indexes[0]) }
    try check(opened, "full")
    full.capacity = nil
    try opened.addIndex(indexes[0])
    #expect(try opened.indexes().allSatisfy(\.isReady))
    try check(opened, "no longer full")
  }

  /// A call that fails may have replaced the file, and the directory's sync alone may be missing.
  @Test func `is what the next call that succeeds says, also after a failed one`() throws {
    let disk = SimulatedDisk()
    let store = try prepare(disk)
    try store.addIndex(indexes[1])
    try store.closeBlocking()
    let whole = disk.clone()
    func fails(_ disk: SimulatedDisk, _ call: Int, _ change: (RecordStore) throws -> Void) throws -> RecordStore? {
      let store = try openIndexed(disk, seed: 3)
      disk.failCall(disk.callCount + call)
      do { try change(store) } catch { return store }
      return nil
    }
    func expectOne(_ disk: SimulatedDisk, _ store: RecordStore, _ what: String) throws {
      #expect(try store.indexes().map(\.index) == [indexes[1]], "\(what)")
      for seed in 1...8 as ClosedRange<UInt64> {
        let again = try openIndexed(disk.imageAfterCrash(using: SeededRandom(seed: seed)), seed: 4)
        #expect(try again.indexes().map(\.index) == [indexes[1]], "\(what), seed \(seed)")
        try check(again, "\(what), seed \(seed)")
      }
    }
    var failures = (adding: 0, dropping: 0)
    for call in 1...8 {
      var disk = whole.clone()
      if let store = try fails(disk, call, { try $0.addIndex(indexes[0]) }) {
        // This store does not know the index, and the file may have it.
        try store.dropIndex(indexes[0])
        try expectOne(disk, store, "dropped after adding it failed in call \(call)")
        failures.adding += 1
      }
      disk = whole.clone()
      if let store = try fails(disk, call, { try $0.dropIndex(indexes[1]) }) {
        try store.addIndex(indexes[1])
        try expectOne(disk, store, "added after dropping it failed in call \(call)")
        failures.dropping += 1
      }
    }
    #expect(failures.adding > 3 && failures.dropping > 3)
  }

  @Test(arguments: [false, true])
  func `is what a store shows after a failed call and a restart, also after a power cut`(suspends: Bool) throws {
    let disk = SimulatedDisk()
    let store = try prepare(disk)
    try store.addIndex(indexes[1])
    try store.closeBlocking()
    let whole = disk.clone()
    var failures = 0
    for (adds, call) in [true, false].flatMap({ adds in (1...8).map { (adds, $0) } }) {
      let disk = whole.clone()
      let injector = FaultInjector(disk)
      let system = SystemEnvironment(fileSystem: injector, clock: SimulatedClock(), random: SeededRandom(seed: 2))
      func open() throws -> RecordStore {
        try RecordStore.openBlocking(
          at: "/store", options: indexTestOptions(), environment: StoreEnvironment(system, isSimulated: true))
      }
      var store = try open()
      disk.failCall(disk.callCount + call)
      do {
        if adds { try store.addIndex(indexes[0]) } else { try store.dropIndex(indexes[1]) }
        continue
      } catch { failures += 1 }
      // What would make the change durable by itself: no rows of an index can be written.
      injector.plan(DiskFault([.create], pathSuffix: ".tmp", isSticky: true, error: .device("", "")))
      if suspends {
        try store.suspendBlocking()
        try store.resumeBlocking()
      } else {
        _ = try? store.closeBlocking()
        store = try open()
      }
      let shown = try store.indexes().map(\.index)
      for seed in 1...8 as ClosedRange<UInt64> {
        let image = disk.imageAfterCrash(using: SeededRandom(seed: seed))
        let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: image, seed: 1))
        #expect(try reader.indexes().map(\.index) == shown, "\(adds ? "added" : "dropped"), call \(call), seed \(seed)")
      }
    }
    #expect(failures > 6)
  }

  @Test func `says what the system said when its rows cannot be written`() throws {
    let disk = SimulatedDisk()
    let injector = FaultInjector(disk)
    let system = SystemEnvironment(fileSystem: injector, clock: SimulatedClock(), random: SeededRandom(seed: 2))
    try prepare(disk).closeBlocking()
    let store = try RecordStore.openBlocking(
      at: "/store", options: indexTestOptions(), environment: StoreEnvironment(system, isSimulated: true))
    // What upkeep could not build a caller may build, and is told why that fails.
    injector.plan(DiskFault([.create], pathSuffix: ".tmp", ordinal: 2, isSticky: true, error: .device("", "")))
    try store.addIndex(indexes[0])
    #expect(try store.indexes().map(\.isReady) == [false])
    for call in [DiskCall.create, .write, .sync, .rename] {
      injector.clear()
      injector.plan(DiskFault([call], pathSuffix: "", isSticky: true, error: .device("", "")))
      #expect("\(call)") { try store.buildIndexesBlocking() } throws: { ($0 as? StrandlineError)?.code == .io }
      injector.clear()
      // The declaration of the build's number is written before its rows.
      injector.plan(DiskFault([call], ordinal: 2, isSticky: true, error: .device("", "")))
      #expect("\(call)") { try store.buildIndexesBlocking() } throws: { ($0 as? StrandlineError)?.code == .io }
    }
    injector.clear()
    try store.buildIndexesBlocking()
    #expect(try store.indexes().map(\.isReady) == [true])
    try check(store, "built at last")
    try store.closeBlocking()
  }

  @Test(arguments: [DiskCall.open, .size, .read])
  func `is not forgotten when the file that names it cannot be read once`(call: DiskCall) throws {
    let disk = SimulatedDisk()
    let store = try prepare(disk)
    try store.addIndex(indexes[0])
    try store.closeBlocking()
    let injector = FaultInjector(disk)
    let system = SystemEnvironment(fileSystem: injector, clock: SimulatedClock(), random: SeededRandom(seed: 2))
    let environment = StoreEnvironment(system, isSimulated: true)
    func open() throws -> RecordStore {
      try RecordStore.openBlocking(at: "/store", options: indexTestOptions(), environment: environment)
    }
    func failOnce() { injector.plan(DiskFault([call], pathSuffix: "/INDEXES", error: .device("", ""))) }
    failOnce()
    #expect { _ = try open() } throws: { ($0 as? StrandlineError)?.code == .io }
    #expect(injector.struckCount == 1)
    let again = try open()
    #expect(try again.indexes().map(\.index) == [indexes[0]])
    try again.addIndex(indexes[1])
    #expect(try again.indexes().map(\.index) == indexes)
    try again.closeBlocking()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment)
    failOnce()
    #expect { _ = try reader.indexes() } throws: { ($0 as? StrandlineError)?.code == .io }
    #expect(try reader.indexes().map(\.index) == indexes)
    try reader.closeBlocking()
  }
}
