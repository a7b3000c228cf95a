// Goal: sorted tables that say something else than the log, with right checksums, are not believed for long: a look-up that
// can notice does and answers what the log says, a compaction removes nothing by their word, an index number means the
// index that was declared under it, and `verify` finds the rest. Method: tables of a real store, crafted row by row.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

extension RecordStore {
  /// Appends what the engine would.
  fileprivate func append(_ events: [Event]) throws {
    guard case .writer(let log) = source else { throw CraftingFailed("the store is not open for writing") }
    let (lsns, place) = try transact { core in for event in events { try core.append(event) } }
    if lsns != nil { try log.waitUntilDurableBlocking(place.lsn.rawValue) }
  }
}

func note(_ name: String, _ title: String, _ body: String = "kept") -> Record {
  Record(type: "Note", id: RecordID(name), fields: ["title": .string(title), "body": .string(body)])
}

/// A closed store, and what it must say.
struct TruthfulStore {
  let disk = SimulatedDisk()
  /// What every name holds.
  private(set) var titles: [String: String] = [:]
  /// What is owed, by name.
  private(set) var owed: Set<String> = []
  static let index = RecordIndex("Note", "title")

  /// - Parameter isIndexed: whether it has a declared index.
  init(isIndexed: Bool = true) throws {
    let store = try openIndexed(disk, seed: 1, declaring: isIndexed ? [Self.index] : nil)
    for number in 0..<12 {
      let name = "r\(100 + number)"
      try store.writeBlocking { try $0.create(note(name, "old")) }
      try store.writeBlocking { try $0.save(note(name, "title \(number)")) }
      titles[name] = "title \(number)"
    }
    // The server has some of them, so that nothing is owed of those.
    for name in titles.keys.sorted().prefix(6) {
      let newest = try store.projections.entry(RecordID(name))?.pending?.newest ?? .zero
      try store.append([
        .settled(
          Settled(
            id: RecordID(name), lsn: newest, outcome: .saved, changeTag: "t-\(name)",
            created: ServerTimestamp(milliseconds: 5), modified: ServerTimestamp(milliseconds: 6)))
      ])
    }
    for name in ["r102", "r111"] {
      try store.writeBlocking { try $0.delete(RecordID(name)) }
      titles[name] = nil
    }
    if isIndexed { try store.buildIndexesBlocking() }
    try store.index?.flush(always: true)
    owed = Set(try store.pendingChanges(limit: 100).changes.map(\.id.name))
    try store.closeBlocking()
  }

  /// The same with other tables.
  func crafted(_ body: (inout CraftedTables) throws -> Void) throws -> SimulatedDisk {
    let copy = disk.clone()
    var tables = try CraftedTables(copy)
    try body(&tables)
    try tables.replace(on: copy)
    return copy
  }

  /// Whether a store answers what the log says.
  func check(_ store: RecordStore, _ comment: String) throws {
    for number in 0..<13 {
      let name = "r\(100 + number)"
      let record = try store.record(RecordID(name))
      #expect(record?["title"] == titles[name].map { .string($0) }, "\(name), \(comment)")
      #expect(record.map { $0["body"] == "kept" } ?? true, "\(name), \(comment)")
    }
    #expect(try store.recordIDs().map(\.name) == titles.keys.sorted(), "\(comment)")
    #expect(try store.status().records == titles.count, "\(comment)")
    #expect(
      Set(try store.pendingChanges(limit: 100).changes.map(\.id.name)) == owed, "\(comment)")
    for (name, title) in titles {
      let query = RecordQuery("Note", where: [RecordFilter("title", .equals, .string(title))])
      #expect(try store.query(query).records.map(\.id.name) == [name], "\(title), \(comment)")
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Sorted tables that lie` {
  @Test func `by naming another record's event give every record its own values`() throws {
    let made = try TruthfulStore()
    for (name, other) in [("r100", "r101"), ("r101", "r109"), ("r108", "r109"), ("r109", "r100")] {
      let disk = try made.crafted { tables in
        var entry = try tables.entry(RecordID(name))
        let others = try tables.entry(RecordID(other))
        entry.entry = others.entry
        entry.place = others.place
        try tables.set(RecordID(name), to: entry)
      }
      let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 4))
      #expect(try reader.record(RecordID(name))?["title"] == made.titles[name].map { .string($0) }, "\(name)")
      let store = try openIndexed(disk, seed: 5)
      #expect(try store.record(RecordID(name))?["title"] == made.titles[name].map { .string($0) }, "\(name)")
      try made.check(store, "\(name) names the event of \(other)")
      try store.closeBlocking()
      try made.check(try openIndexed(disk, seed: 6), "the next open, \(name)")
    }
  }

  @Test func `take no field of a record that is saved by what they say`() throws {
    let made = try TruthfulStore()
    for (name, other) in [("r100", "r101"), ("r108", "r109")] {
      let disk = try made.crafted { tables in try tables.set(RecordID(name), to: try tables.entry(RecordID(other))) }
      let store = try openIndexed(disk, seed: 5)
      try store.writeBlocking { tx in
        var record = try #require(try tx.record(RecordID(name)))
        #expect(record["title"] == made.titles[name].map { .string($0) })
        record["title"] = "by put"
        try tx.save(record)
      }
      let record = try #require(try store.record(RecordID(name)))
      #expect(record["title"] == "by put" && record["body"] == "kept")
      #expect(try store.record(RecordID(other))?["title"] == made.titles[other].map { .string($0) })
      try store.closeBlocking()
      let again = try openIndexed(disk, seed: 6)
      #expect(try again.record(RecordID(name))?["body"] == "kept")
      try again.closeBlocking()
    }
  }

  @Test func `that are noticed within a transaction are made again whole by the next open`() throws {
    let made = try TruthfulStore()
    let disk = try made.crafted { tables in
      try tables.set(RecordID("r109"), to: try tables.entry(RecordID("r108")))
      // What no look-up of this record tells.
      try tables.changeState { $0.recordCount -= 1 }
    }
    let store = try openIndexed(disk, seed: 5)
    try store.writeBlocking { tx in
      // In flight, and so not in what is made again.
      try tx.create(note("s1", "new"))
      var record = try #require(try tx.record(RecordID("r109")))
      #expect(record["title"] == "title 9")
      record["body"] = "changed"
      try tx.save(record)
    }
    // No list names runs as long as something of the lie may be in memory.
    #expect(disk.peek("/store/runs/RUNS") == nil)
    try store.index?.flush(always: true)
    #expect(disk.peek("/store/runs/RUNS") == nil)
    #expect(try store.record(RecordID("s1"))?["title"] == "new")
    // A close leaves no list, or one of runs that were made again meanwhile.
    try store.closeBlocking()
    #expect(try Self.comparison(disk) == nil)
    let again = try openIndexed(disk, seed: 6)
    #expect(again.recordCount == made.titles.count + 1)
    let record = try #require(try again.record(RecordID("r109")))
    #expect(record["title"] == "title 9" && record["body"] == "changed")
    #expect(try again.record(RecordID("r108"))?["title"] == "title 8")
    try again.index?.flush(always: true)
    try again.closeBlocking()
    #expect(disk.peek("/store/runs/RUNS") != nil)
    #expect(try Self.comparison(disk) == nil)
  }

  @Test func `by leaving out a row are noticed when all of them become one`() throws {
    let made = try TruthfulStore()
    let disk = try made.crafted { tables in tables.set(try Self.row("r100", tables), to: nil) }
    var options = indexTestOptions()
    options.index.mergeWidth = 2
    options.index.flushCount = 1 << 10
    let store = try RecordStore.openBlocking(
      at: "/store", options: options, environment: .simulated(disk: disk, seed: 5))
    #expect(try store.status().indexFailure?.contains("rows") == true)
    try made.check(store, "after the merge")
    try store.closeBlocking()
    #expect(try Self.comparison(disk) == nil)
  }

  @Test func `lose no record in a compaction`() throws {
    let made = try TruthfulStore()
    // One that the server has, so that nothing else than its row says that it is there; and one that is owed.
    for name in ["r100", "r108"] {
      let disk = try made.crafted { tables in
        tables.set(try #require(tables.key(of: RecordID(name))), to: nil)
      }
      let store = try openIndexed(disk, seed: 5)
      try store.compactBlocking()
      try made.check(store, "compacted without a row of \(name)")
      try store.closeBlocking()
      for path in disk.paths where path.hasPrefix("/store/runs/") { disk.pokeRemove(path) }
      try made.check(try openIndexed(disk, seed: 6), "without tables, \(name)")
    }
  }

  @Test func `under another index's number answer no query`() throws {
    let disk = SimulatedDisk()
    func open(_ index: RecordIndex) throws -> RecordStore {
      let store = try openIndexed(disk, seed: 1, declaring: [index])
      try store.buildIndexesBlocking()
      return store
    }
    let first = try open(RecordIndex("Note", "title"))
    for number in 0..<10 {
      try first.writeBlocking {
        try $0.create(
          Record(
            type: "Note", id: RecordID("r\(number)"), fields: ["title": .string("t\(number)"), "mark": .string("m")]))
      }
    }
    try first.closeBlocking()
    let old = disk.paths.filter { $0.hasPrefix("/store/runs/") && !$0.hasSuffix("INDEXES") }
      .map { ($0, disk.peek($0) ?? []) }
    // The folder is lost, and another index declared.
    for path in disk.paths where path.hasPrefix("/store/runs/") { disk.pokeRemove(path) }
    try open(RecordIndex("Note", "mark")).closeBlocking()
    // The tables come back, from a backup of files.
    for path in disk.paths where path.hasPrefix("/store/runs/") && !path.hasSuffix("INDEXES") { disk.pokeRemove(path) }
    for (path, bytes) in old { disk.poke(path, bytes) }
    let query = RecordQuery("Note", where: [RecordFilter("mark", .equals, "m")])
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 4))
    #expect(try reader.query(query).records.count == 10)
    let again = try open(RecordIndex("Note", "mark"))
    #expect(try again.query(query).records.count == 10)
    #expect(try again.view().count(query) == 10)
    try again.closeBlocking()
  }

  /// A lie, by what is wrong.
  struct Lie: CustomTestStringConvertible {
    let testDescription: String
    var isIndexed = true
    /// Whether a look-up notices it, so that no answer is wrong.
    var isNoticed = false
    /// Whether it is about an index alone, which a compaction does not look at.
    var isOfIndex = false
    let tell: @Sendable (inout CraftedTables) throws -> Void
  }

  static func row(_ name: String, _ tables: CraftedTables) throws -> [UInt8] {
    try #require(tables.key(of: RecordID(name)))
  }

  static let lies: [Lie] = [
    Lie(testDescription: "a record without a row") { tables in tables.set(try row("r100", tables), to: nil) },
    Lie(testDescription: "a record without a row, in one table", isIndexed: false, isNoticed: true) { tables in
      tables.merge()
      tables.set(try row("r108", tables), to: nil)
    },
    Lie(testDescription: "a record that never was", isIndexed: false, isNoticed: true) { tables in
      tables.merge()
      let other = try tables.entry(RecordID("r108"))
      tables.set(try row("r108", tables) + [0x78], to: other.row)
    },
    Lie(testDescription: "another record's event", isNoticed: true) { tables in
      try tables.set(RecordID("r109"), to: try tables.entry(RecordID("r108")))
    },
    Lie(testDescription: "an event that is none", isNoticed: true) { tables in
      var entry = try tables.entry(RecordID("r109"))
      entry.entry.pending = Pending(isDeletion: false, newest: LSN(1))
      entry.place = nil
      try tables.set(RecordID("r109"), to: entry)
    },
    Lie(testDescription: "a base that is another record's", isNoticed: true) { tables in
      var entry = try tables.entry(RecordID("r100"))
      entry.entry.base = try tables.entry(RecordID("r101")).entry.base
      try tables.set(RecordID("r100"), to: entry)
    },
    Lie(testDescription: "an older event of the record") { tables in
      var entry = try tables.entry(RecordID("r109"))
      let newest = try #require(entry.entry.pending).newest
      entry.entry.pending = Pending(isDeletion: false, newest: LSN(newest.rawValue - 1))
      entry.place = nil
      try tables.set(RecordID("r109"), to: entry)
    },
    Lie(testDescription: "too few records counted") { tables in try tables.changeState { $0.recordCount -= 1 } },
    Lie(testDescription: "too many records counted", isNoticed: true) { tables in
      try tables.changeState { $0.recordCount += 1_000 }
    },
    Lie(testDescription: "a deleted name without a row") { tables in
      tables.set(try #require(tables.keys(.deletions).first), to: nil)
    },
    Lie(testDescription: "nothing owed") { tables in
      try tables.changeState { state in
        state.newest = LSNSet()
        state.since = LSNSet()
      }
    },
    Lie(testDescription: "something else owed", isNoticed: true) { tables in
      try tables.changeState { $0.newest.insert(LSN(3)) }
    },
    Lie(testDescription: "a row of an index that is missing", isOfIndex: true) { tables in
      tables.set(try #require(tables.keys(.indexes).first), to: nil)
    },
  ]

  @Test(arguments: lies) func `are found by a comparison with the log, and made again`(_ lie: Lie) throws {
    let made = try TruthfulStore(isIndexed: lie.isIndexed)
    #expect(try Self.comparison(made.disk) == nil, "the store is sound before")
    let disk = try made.crafted(lie.tell)
    #expect(try Self.comparison(disk) != nil || lie.isNoticed, "the lie is not found")
    if lie.isNoticed {
      let store = try openIndexed(disk.clone(), seed: 5)
      try made.check(store, "the lie is noticed")
      try store.closeBlocking()
    }
    // Whatever it believes, a compaction takes nothing that the log has.
    let compacted = disk.clone()
    let store = try openIndexed(compacted, seed: 6)
    try store.compactBlocking()
    if !lie.isOfIndex { try made.check(store, "after a compaction") }
    try store.closeBlocking()
    try RecordStore.makeTablesAnew(
      at: "/store", options: indexTestOptions(), environment: .simulated(disk: disk, seed: 7))
    for disk in lie.isOfIndex ? [disk] : [disk, compacted] {
      #expect(try Self.comparison(disk) == nil)
      let again = try openIndexed(disk, seed: 8)
      #expect(again.projections.withLock { $0.runs != nil })
      try made.check(again, "made again")
      try again.closeBlocking()
    }
  }

  /// What `verify` says of the tables.
  private static func comparison(_ disk: SimulatedDisk) throws -> String? {
    let environment = SystemEnvironment.simulated(disk, seed: 9)
    guard let comparison = try IndexComparison(at: "/store", environment: environment) else { return nil }
    let files = IndexFiles(try environment.fileSystem.folder("/store"), environment, cache: BlockCache(bytesMax: 0))
    let folded = try IndexOpening.folding(files, spillingAt: nil, upTo: comparison.end).opened.projections
    return try comparison.contradiction(of: folded)
  }
}
