// Goal: however short the sessions of a store are, it has a bounded number of sorted tables, and what is written for that
// stays in proportion. Method: many sessions on a simulated disk with small tables, and the schedule of a million rows. A
// session that ends at once has given up its work in the background: in these tests that is so in each of them, and not by luck.

import Dispatch
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30))) struct `The number of sorted tables` {
  private static func tables(_ disk: SimulatedDisk) -> Int { disk.paths.count { $0.hasSuffix(".run") } }

  /// As an app has it: work in the background is given up by a close that follows at once.
  private static func options() -> StoreOptions {
    var options = indexTestOptions()
    options.log.upkeep = .inBackground
    options.compaction.deadRatio = nil
    options.index.mergeWidth = 4
    return options
  }

  private static func open(_ disk: SimulatedDisk, seed: UInt64, _ options: StoreOptions) throws -> RecordStore {
    try RecordStore.openBlocking(
      at: "/store", options: options,
      environment: StoreEnvironment(
        SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: seed))))
  }

  /// Merges in the background wait until the store is being closed, which gives them up.
  private static func holdMerges(_ store: RecordStore) throws {
    let index = try #require(store.index)
    try #require(index.mergeQueue).async { while !index.isClosing.load(ordering: .acquiring) {} }
  }

  /// The close has merged what is due. Only of the first sessions this is sure: what a close leaves, the next open merges in the
  /// background, and may be faster than `holdMerges`; and of so few rows three tables are due.
  private static func expectMerged(_ disk: SimulatedDisk, after session: Int) {
    guard session < 6 else { return }
    #expect(Self.tables(disk) <= 2, "session \(session): the close has left what is due")
  }

  @Test func `is bounded after 300 short sessions`() throws {
    let disk = SimulatedDisk()
    var most = 0
    for session in 0..<300 {
      let store = try Self.open(disk, seed: UInt64(session), Self.options())
      try Self.holdMerges(store)
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID("r\(session)"), fields: ["v": 1])) }
      try store.closeBlocking()
      Self.expectMerged(disk, after: session)
      most = max(most, Self.tables(disk))
    }
    #expect(most <= 12)
    let store = try Self.open(disk, seed: 1_000, Self.options())
    #expect(store.recordCount == 300)
    try store.closeBlocking()
  }

  /// A compaction writes a table each time, and the close none: it has to merge all the same.
  @Test func `is bounded when a record is saved and the store compacted in each session`() throws {
    let disk = SimulatedDisk()
    var options = Self.options()
    options.index.closeCount = 1_000
    var most = 0
    for session in 0..<60 {
      let store = try Self.open(disk, seed: UInt64(session), options)
      try Self.holdMerges(store)
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID("r\(session)"), fields: ["v": 1])) }
      let before = disk.paths.filter { $0.hasSuffix(".run") }
      try store.compactBlocking()
      let written = disk.paths.filter { $0.hasSuffix(".run") && !before.contains($0) }
      #expect(!written.isEmpty, "session \(session): the compaction wrote no table, which proves nothing")
      try store.closeBlocking()
      Self.expectMerged(disk, after: session)
      most = max(most, Self.tables(disk))
    }
    #expect(most <= 12)
  }

  /// A session that is killed merges nothing when it ends.
  @Test func `becomes less when a store is opened that earlier sessions have left with many`() throws {
    let disk = SimulatedDisk()
    var options = Self.options()
    options.log.upkeep = .onDemand
    options.index.mergeWidth = 100
    for session in 0..<6 {
      let store = try Self.open(disk, seed: UInt64(session), options)
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID("r\(session)"), fields: ["v": 1])) }
      try store.closeBlocking()
    }
    #expect(Self.tables(disk) == 6)
    options.index.mergeWidth = 4
    let store = try Self.open(disk, seed: 6, options)
    #expect(Self.tables(disk) == 1)
    #expect(store.recordCount == 6)
    try store.closeBlocking()
  }

  /// No close comes to its help.
  @Test func `is bounded when a record is saved and the store compacted in turn, in one session`() throws {
    let disk = SimulatedDisk()
    var options = Self.options()
    options.log.upkeep = .onDemand
    let store = try Self.open(disk, seed: 1, options)
    var (most, written) = (0, 0)
    for number in 0..<60 {
      let before = disk.paths.filter { $0.hasSuffix(".run") }
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
      try store.compactBlocking()
      if disk.paths.filter({ $0.hasSuffix(".run") }) != before { written += 1 }
      most = max(most, Self.tables(disk))
    }
    #expect(most <= 12 && written == 60)
    try store.closeBlocking()
  }
}

// MARK: A million rows

@Suite struct `The rule by which tables are merged` {
  /// Writes rows, the same number at a time, and merges as the rule says.
  private func write(
    _ rows: Int, _ next: (SeededRandom) -> Int
  ) -> (most: Int, rewritten: Int) {
    let (tiers, random) = (RunTiers(flushCount: 16_384, width: 4), SeededRandom(seed: 1))
    var tables: [Int] = []
    var (left, most, rewritten) = (rows, 0, 0)
    while left > 0 {
      let count = min(left, next(random))
      left -= count
      tables.insert(count, at: 0)
      while case let due = tiers.due(tables), due > 0 {
        let merged = tables[..<due].reduce(0, +)
        tables.replaceSubrange(..<due, with: [merged])
        rewritten += merged
      }
      most = max(most, tables.count)
    }
    #expect(tables.reduce(0, +) == rows)
    return (most, rewritten)
  }

  @Test func `keeps a million rows in 12 tables, and writes each a few times`() {
    let rows = 1_000_000
    // A full memory; the least that a close writes; what sessions of any length leave.
    let full = write(rows) { _ in 16_384 }
    #expect(full.most <= 12 && full.rewritten <= 4 * rows)
    let short = write(rows) { _ in 1_000 }
    #expect(short.most <= 12 && short.rewritten <= 10 * rows)
    let mixed = write(rows) { random in 1 + Int(random.below(20_000)) }
    #expect(mixed.most <= 12 && mixed.rewritten <= 10 * rows)
    // One row at a time costs a flush of a full memory each time at most, and not more as the store grows.
    let (few, many) = (write(50_000) { _ in 1 }, write(100_000) { _ in 1 })
    #expect(few.most <= 12 && many.most <= 12 && many.rewritten <= 2 * few.rewritten + few.rewritten / 4)
  }

  @Test func `counts a table at the level of the largest before it`() {
    let tiers = RunTiers(flushCount: 16_384, width: 4)
    // Small indexes that were built after a large table.
    #expect(tiers.due([1_000_000, 5, 5]) == 0)
    #expect(tiers.due([1_000_000, 5, 5, 5]) == 4)
    #expect(tiers.due([1, 1_000_000, 5, 5, 5]) == 5)
    // What stays of any number of rows when everything was merged that is due.
    #expect(tiers.most(0) == 3 && tiers.most(1_000_000) == 12 && tiers.most(2_000_000) == 15)
    #expect(tiers.due([Int]()) == 0 && tiers.due([7]) == 0 && tiers.due([1, 1]) == 0 && tiers.due([1, 1, 1]) == 3)
  }

  @Test func `keeps few tables open while a long log is read`() throws {
    let disk = SimulatedDisk()
    let store = try openIndexed(disk, seed: 1, closing: 1 << 40)
    for number in 0..<800 {
      try store.writeBlocking { try $0.create(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": 1])) }
    }
    try store.closeBlocking()
    for path in disk.paths where path.hasPrefix("/store/runs/") { disk.pokeRemove(path) }
    let files = IndexFiles(try disk.folder("/store"), .simulated(disk, seed: 2), cache: BlockCache(bytesMax: 0))
    let made = try IndexOpening.folding(files, spillingAt: 8).opened.projections
    let tables = try #require(made.runs).runs.count
    #expect(tables > 1 && tables <= 12)
    #expect(disk.paths.count { $0.hasSuffix(".run") } == tables)
    #expect(made.records.count == 800 && made.brokenInvariant() == nil)
  }
}
