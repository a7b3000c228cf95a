// Goal: a query's answer, its order and its pages do not depend on which indexes there are. Method: random histories with
// indexes that come and go, over values of all types in one field; every answer is compared with the one that reads all
// records. The plans are asserted too, so that a test is not green because no index was ever used.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

private struct Life {
  let seed: UInt64
  let random: SeededRandom
  let values: IndexedValues
  var disk = SimulatedDisk()
  var store: RecordStore
  var views: [StoreView] = []
  var alive: Set<RecordID> = []
  var steps: [String] = []
  var indexedCount = 0
  var narrowedCount = 0

  init(_ seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    values = IndexedValues(random: random)
    store = try openIndexed(disk, seed: seed)
  }

  var comment: String { "seed \(seed): \(steps.suffix(14).joined(separator: ", "))" }

  func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  func anyID() -> RecordID {
    RecordID("r\(below(40))", zone: [ZoneID.main, ZoneID("Other"), ZoneID("Ma")][below(10) / 4])
  }

  /// - Parameter kinds: below 20: nothing that closes the store, or looks at it.
  mutating func step(kinds: Int = 34) throws {
    switch below(kinds) {
    case 0..<12:
      steps.append("save")
      var records: [RecordID: Record] = [:]
      for _ in 0...below(4) {
        let id = anyID()
        // One type for each record: a second one under a name is refused.
        var record = Record(type: id.name.hasSuffix("7") ? "Other" : "Note", id: id)
        record["v"] = values.value()
        record["w"] = values.value()
        records[id] = record
      }
      let alive = alive
      try store.writeBlocking { tx in
        for (id, record) in records.sorted(by: { $0.key < $1.key }) {
          if alive.contains(id) { try tx.save(record) } else { try tx.create(record) }
        }
      }
      self.alive.formUnion(records.keys)
    case 12..<15:
      guard let id = alive.sorted().dropFirst(below(max(1, alive.count))).first else { return }
      steps.append("delete \(id)")
      try store.writeBlocking { try $0.delete(id) }
      alive.remove(id)
    case 15..<17:
      let index = values.index()
      steps.append("add \(index)")
      try store.addIndex(index)
    case 17:
      let index = values.index()
      steps.append("drop \(index)")
      try store.dropIndex(index)
    case 18:
      steps.append("flush")
      try store.index?.flush()
    case 19:
      steps.append("compact")
      try store.compactBlocking()
    case 20..<22:
      steps.append("reopen")
      views = []
      try store.closeBlocking()
      store = try openIndexed(disk, seed: random.next())
    case 22..<24:
      steps.append("crash")
      views = []
      disk = disk.imageAfterCrash(.none)
      store = try openIndexed(disk, seed: random.next())
    case 24:
      steps.append("view")
      if views.count > 2 { views.removeFirst() }
      views.append(try store.view())
    case 25, 26: try suspend()
    default:
      for _ in 0..<3 { try check(values.query()) }
    }
  }

  /// Suspends and resumes the store. Meanwhile another process may write, compact, add and drop indexes.
  private mutating func suspend() throws {
    steps.append("suspend")
    // They expire if the other process compacts the store.
    views = []
    let suspended = store
    try suspended.suspendBlocking()
    try check(values.query())
    if below(4) > 0 {
      steps.append("another process")
      store = try openIndexed(disk, seed: random.next())
      for _ in 0..<below(8) { try step(kinds: 20) }
      // Releasing it is a process that ends without closing the store.
      if below(3) > 0 { try store.closeBlocking() }
      store = suspended
      if below(2) == 0 {
        steps.append("refresh")
        try store.refresh()
        try check(values.query())
      }
    }
    steps.append("resume")
    try store.resumeBlocking()
    try check(values.query())
  }

  /// Every page of a query, by index and by reading all.
  mutating func check(_ query: RecordQuery) throws {
    let comment = "\(query), \(comment)"
    let view = try views.isEmpty || below(2) == 0 ? store.view() : views[below(views.count)]
    let plan = try view.explain(query)
    if plan.index != nil { indexedCount += 1 }
    if !plan.narrowingIndexes.isEmpty { narrowedCount += 1 }
    var cursor: QueryCursor?
    var (pages, count) = (0, 0)
    repeat {
      let scanned = try view.answer(query, after: cursor, usesIndexes: false)
      let indexed = try view.answer(query, after: cursor)
      #expect(indexed.records.map(\.id) == scanned.records.map(\.id), "page \(pages), \(comment)")
      #expect(indexed == scanned, "page \(pages), \(comment)")
      let narrowed = try view.answer(query, after: cursor, patience: below(3))
      #expect(narrowed == scanned, "page \(pages), several indexes, \(comment)")
      cursor = scanned.cursor
      pages += 1
      count += scanned.records.count
    } while cursor != nil
    #expect(try view.count(query) == count, "\(comment)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Declared indexes` {
  @Test(arguments: Campaign.seeds(1...24, every: 24))
  func `answer what reading all records answers`(seed: UInt64) throws {
    var life = try Life(seed)
    func declare() throws {
      for index in [RecordIndex("Note", "v"), RecordIndex("Note", "w", ascending: false)] {
        try life.store.addIndex(index)
      }
      try life.store.index?.flush(always: true)
    }
    try declare()
    for _ in 0..<160 { try life.step() }
    for _ in 0..<20 { try life.check(life.values.query()) }
    try declare()
    life.views = []
    for _ in 0..<40 {
      var query = life.values.query()
      query.filters = [life.values.filter("v"), life.values.filter("w"), life.values.filter("v")]
      try life.check(query)
    }
    #expect(life.indexedCount > 0 && life.narrowedCount > 0)
  }

  /// Two conditions that each have many records, and together few: as many reads of the log as the few.
  @Test func `serve several conditions of one query together`() throws {
    let injector = FaultInjector(SimulatedDisk())
    var options = indexTestOptions()
    options.indexes = [RecordIndex("Note", "v"), RecordIndex("Note", "w")]
    let store = try RecordStore.openBlocking(
      at: "/store", options: options, environment: StoreEnvironment(.simulated(injector, seed: 1)))
    for part in 0..<20 {
      try store.writeBlocking { tx in
        for number in part * 50..<part * 50 + 50 {
          let fields: [String: FieldValue] = ["v": .int64(Int64(number % 2)), "w": .int64(Int64(number / 10 % 50))]
          try tx.save(Record(type: "Note", id: RecordID("r\(number)"), fields: fields))
        }
      }
    }
    try store.index?.flush()
    #expect(try store.indexes().map(\.isReady) == [true, true])
    let filters = [RecordFilter("v", .equals, 1), RecordFilter("w", .equals, 7)]
    let query = RecordQuery("Note", where: filters)
    let plan = try store.explain(query)
    #expect(plan.index == RecordIndex("Note", "v") && plan.narrowingIndexes == [RecordIndex("Note", "w")])
    #expect(plan.description.hasSuffix("whose order is that of the answer; where that has many, Note(w) too"))
    func reading(_ patience: Int) throws -> (ids: [RecordID], reads: Int) {
      injector.resetCounts()
      let records = try store.view().answer(query, patience: patience).records
      return (records.map(\.id), injector.count(.read))
    }
    let (all, many) = try reading(.max)
    let (some, few) = try reading(0)
    #expect(all == some && some.count == 10)
    #expect(try store.view().count(query) == 10)
    #expect(few * 4 < many, "\(few) reads, and \(many) with one index")
    // What has changed since lies in memory, and has no row in the runs.
    try store.writeBlocking { tx in
      try tx.save(Record(type: "Note", id: RecordID("r1"), fields: ["v": 1, "w": 7]))
      try tx.save(Record(type: "Note", id: RecordID("r71"), fields: ["v": 1, "w": 8]))
    }
    let changed = try store.view().answer(query, patience: 0).records.map(\.id.name)
    #expect(changed.contains("r1") && !changed.contains("r71") && changed.count == 10)
    try store.closeBlocking()
  }

  @Test func `are chosen for what they serve, and explained`() throws {
    let store = try openIndexed(SimulatedDisk(), seed: 1)
    for number in 0..<40 {
      try store.writeBlocking { tx in
        try tx.save(
          Record(
            type: "Note", id: RecordID("r\(number)"),
            fields: ["v": .int64(Int64(number % 4)), "w": .list(.strings, [.string("t\(number % 5)")])]))
      }
    }
    func plan(
      _ filters: [RecordFilter] = [], _ sorts: [RecordSort] = [], limit: Int? = 3
    ) throws -> QueryPlan {
      try store.explain(RecordQuery("Note", where: filters, sortedBy: sorts, limit: limit))
    }
    let equality = RecordFilter("v", .equals, 2)
    var found = try plan([equality])
    #expect(found.index == nil && found.suggestion == RecordIndex("Note", "v") && found.isSorted)
    #expect(found.description == "reads all records of type 'Note'; an index Note(v) would spare that")
    #expect(try plan([], [RecordSort("w", ascending: false)]).suggestion == RecordIndex("Note", "w", ascending: false))
    #expect(try plan([RecordFilter("v", .notEquals, 2)]).suggestion == nil)
    try store.addIndex(RecordIndex("Note", "v"))
    try store.addIndex(RecordIndex("Note", "w"))
    try store.addIndex(RecordIndex("Note"))
    #expect(try store.indexes().map(\.isReady) == [true, true, true])
    found = try plan([equality])
    #expect(found.index == RecordIndex("Note", "v") && found.usesCondition && found.isSorted && found.suggestion == nil)
    found = try plan([equality], [RecordSort("w")])
    #expect(found.index == RecordIndex("Note", "v") && !found.isSorted)
    found = try plan([], [RecordSort("v")])
    #expect(found.description == "uses the index Note(v), whose order is that of the answer")
    #expect(try plan([RecordFilter("w", .listContains, "t1")]).index == RecordIndex("Note", "w"))
    #expect(try plan([RecordFilter("w", .listContains, "t1")]).isSorted)
    #expect(try plan([RecordFilter("v", .notEquals, 2)]).index == RecordIndex("Note"))
    #expect(try plan([], [RecordSort("x")]).index == RecordIndex("Note"))
    let hundred = (0..<100).map { RecordFilter("v", .lessThan, .int64(Int64(200 - $0))) } + [equality]
    found = try plan(hundred)
    #expect(found.index == RecordIndex("Note", "v"))
    let query = RecordQuery("Note", where: hundred)
    #expect(try store.view().answer(query) == store.view().answer(query, usesIndexes: false))
    #expect(try store.query(query).records.count == 10)
    try store.dropIndex(RecordIndex("Note", "v"))
    try store.dropIndex(RecordIndex("Note"))
    #expect(try plan([equality]).index == nil)
  }

  /// Three records point at `a`, and three at `b`, with an action each, and with lists of one.
  private static func withReferences(declaring indexes: [RecordIndex]?) throws -> RecordStore {
    let store = try openIndexed(SimulatedDisk(), seed: 1, declaring: indexes)
    try store.writeBlocking { tx in
      for (number, action) in Reference.Action.allCases.enumerated() {
        for target in ["a", "b"] {
          let reference = FieldValue.reference(Reference(target, action: action))
          let fields = ["v": reference, "w": .list(.references, [reference, .reference(Reference("c"))])]
          try tx.save(Record(type: "Note", id: RecordID("\(target)\(number)"), fields: fields))
        }
      }
      // Of the same name in another zone, and none at all.
      let foreign = FieldValue.reference(Reference("a", zone: ZoneID("Far")))
      try tx.save(
        Record(type: "Note", id: RecordID("foreign"), fields: ["v": foreign, "w": .list(.references, [foreign])]))
      try tx.save(Record(type: "Note", id: RecordID("none")))
    }
    return store
  }

  @Test(arguments: [nil, [RecordIndex("Note", "v"), RecordIndex("Note", "w", ascending: false)]], [false, true])
  func `find a reference whatever its action`(indexes: [RecordIndex]?, isFlushed: Bool) throws {
    let store = try Self.withReferences(declaring: indexes)
    if isFlushed { try store.index?.flush(always: true) }
    func names(_ filter: RecordFilter) throws -> [String] {
      let query = RecordQuery("Note", where: [filter], limit: 2)
      #expect(
        try (store.explain(query).index != nil) == (indexes != nil && !filter.comparator.rawValue.hasPrefix("NOT")))
      var (names, cursor): ([String], QueryCursor?) = ([], nil)
      repeat {
        let page = try store.query(query, after: cursor)
        names += page.records.map(\.id.name)
        cursor = page.cursor
      } while cursor != nil
      #expect(try store.view().count(query) == names.count)
      return names
    }
    let ofB = ["b0", "b1", "b2"]
    for action in Reference.Action.allCases {
      let b = FieldValue.reference(Reference("b", action: action))
      let nowhere = FieldValue.reference(Reference("nowhere", action: action))
      let c = FieldValue.reference(Reference("c", action: action))
      #expect(try names(RecordFilter("v", .equals, b)) == ofB)
      #expect(try names(RecordFilter("v", .isIn, anyOf: [nowhere, b])) == ofB)
      #expect(try names(RecordFilter("w", .listContains, b)) == ofB)
      #expect(try names(RecordFilter("w", .listContainsAny, anyOf: [b, nowhere])) == ofB)
      #expect(try names(RecordFilter("w", .listContainsAll, anyOf: [b, c])) == ofB)
      #expect(try names(RecordFilter("w", .listContainsAll, anyOf: [b, nowhere])) == [])
      let others = ["a0", "a1", "a2", "foreign", "none"]
      #expect(try names(RecordFilter("v", .notEquals, b)) == others)
      #expect(try names(RecordFilter("v", .notIn, anyOf: [b])) == others)
      #expect(try names(RecordFilter("w", .notListContains, b)) == others)
      #expect(try names(RecordFilter("v", .equals, nowhere)) == [])
    }
    try store.closeBlocking()
  }

  @Test func `are those that an app lists when it opens the store`() throws {
    let disk = SimulatedDisk()
    let first = try openIndexed(disk, seed: 1, declaring: [RecordIndex("Note", "v"), RecordIndex("Note", "w")])
    for number in 0..<20 {
      try first.writeBlocking {
        try $0.save(Record(type: "Note", id: RecordID("r\(number)"), fields: ["v": .int64(Int64(number))]))
      }
    }
    #expect(try first.indexes().map(\.isReady) == [true, true])
    try first.closeBlocking()
    let second = try openIndexed(disk, seed: 2, declaring: [RecordIndex("Note", "w"), RecordIndex("Note", "x")])
    #expect(try second.indexes().map(\.index.fields[0].field) == ["w", "x"])
    #expect(try second.indexes().map(\.isReady) == [true, true])
    try second.closeBlocking()
    let third = try openIndexed(disk, seed: 3)
    #expect(try third.indexes().count == 2)
    #expect(throws: StrandlineError.self) { try third.addIndex(RecordIndex("", "v")) }
    try third.closeBlocking()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 1))
    #expect(try reader.indexes().map(\.isReady) == [true, true])
    #expect(try reader.explain(RecordQuery("Note", sortedBy: [RecordSort("w")])).index == RecordIndex("Note", "w"))
    #expect(throws: StrandlineError.self) { try reader.addIndex(RecordIndex("Note", "v")) }
  }

  @Test func `encode values in the order of sorting`() {
    let values = IndexedValues(random: SeededRandom(seed: 1))
    for _ in 0..<20_000 {
      let (left, right) = (values.value(), values.value())
      let (one, other) = (IndexValue.sorted(left), IndexValue.sorted(right))
      let order = FieldValue.sortOrder(left, right)
      // Long beginnings that are the same say nothing.
      if one == other, one.last == IndexValue.cutEnd, one.count > IndexValue.textBytesMax { continue }
      let name = "\(String(describing: left)), \(String(describing: right))"
      #expect(one.precedes(other) == (order < 0) && other.precedes(one) == (order > 0), "\(name)")
      #expect(IndexValue.end(one + [1, 2, 3], from: 0, isInverted: false) == one.count, "\(name)")
    }
  }

  @Test(arguments: [true, false])
  func `are not taken from a file with a flag that is neither 0 nor 1`(isAscending: Bool) throws {
    let disk = SimulatedDisk()
    let index = RecordIndex("Note", "v", ascending: isAscending)
    let store = try openIndexed(disk, seed: 1)
    try store.addIndex(index)
    try store.closeBlocking()
    let path = "/store/runs/\(IndexDefinitions.fileName)"
    var bytes = try #require(disk.peek(path))
    let place = bytes.count - 5
    #expect(bytes[place] == (isAscending ? 1 : 0))
    for (value, expected) in [(isAscending ? 1 : 0, [index]), (2, []), (255, [])] as [(UInt8, [RecordIndex])] {
      bytes[place] = value
      let crc = CRC32C.checksum(bytes, 0..<place + 1)
      for byte in 0..<4 { bytes[place + 1 + byte] = UInt8(truncatingIfNeeded: crc >> (8 * UInt32(byte))) }
      disk.poke(path, bytes)
      let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 2))
      if expected.isEmpty {
        #expect(throws: StrandlineError.self) { try reader.indexes() }
      } else {
        #expect(try reader.indexes().map(\.index) == expected, "\(value)")
      }
      try reader.closeBlocking()
    }
  }

  @Test func `whose file is damaged are reported until they are declared again`() throws {
    let disk = SimulatedDisk()
    let index = RecordIndex("Note", "v")
    let store = try openIndexed(disk, seed: 1)
    try store.addIndex(index)
    try store.writeBlocking { tx in try tx.save(Record(type: "Note", id: RecordID("r"), fields: ["v": 1])) }
    try store.closeBlocking()
    disk.poke("/store/runs/INDEXES", [1, 2, 3])
    let environment = StoreEnvironment.simulated(disk: disk, seed: 2)
    func contradiction() throws -> String? {
      var projections = Projections()
      try LogReader.open(at: "/store", environment: environment.system).poll { event in
        try projections.apply(try event.decoded(), at: LSN(event.lsn), isDurable: true)
      }
      return try IndexComparison(at: "/store", environment: environment.system)?.contradiction(of: projections)
    }
    let words = "INDEXES' is damaged"
    #expect(try contradiction()?.contains(words) == true)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment)
    let error = #expect(throws: StrandlineError.self) { try reader.indexes() }
    #expect(error?.code == .damaged && error?.message.contains("declare them again") == true)
    try reader.closeBlocking()
    // Which were declared is not known, so an open changes nothing, and the next declaration replaces the file. A resumption
    // that finds it damaged reports it too.
    let again = try openIndexed(disk, seed: 3)
    #expect(try again.indexes().isEmpty && again.status().indexFailure?.contains(words) == true)
    try again.addIndex(index)
    #expect(try again.status().indexFailure == nil && contradiction() == nil)
    try again.suspendBlocking()
    disk.poke("/store/runs/INDEXES", [1, 2, 3])
    try again.resumeBlocking()
    #expect(try again.status().indexFailure?.contains(words) == true)
    try again.closeBlocking()
    try RecordStore.makeTablesAnew(at: "/store", environment: environment)
    #expect(try contradiction() == nil)
    // One that is opened with a list has them again.
    disk.poke("/store/runs/INDEXES", [1, 2, 3])
    var options = indexTestOptions()
    options.indexes = [index]
    let listed = try RecordStore.openBlocking(at: "/store", options: options, environment: environment)
    #expect(try listed.indexes().map(\.index) == [index] && listed.status().indexFailure == nil)
    try listed.closeBlocking()
  }

  @Test func `of an interrupted writer leave no file that is not finished`() throws {
    let disk = SimulatedDisk()
    try openIndexed(disk, seed: 1).closeBlocking()
    for number in 0..<2 {
      disk.poke("/store/runs/INDEXES.tmp", [1, 2, 3])
      let store = try openIndexed(disk, seed: 2)
      if number == 0 {
        try store.addIndex(RecordIndex("Note", "v"))
      } else {
        try store.writeBlocking { tx in try tx.save(Record(type: "Note", id: RecordID("r"), fields: ["v": 1])) }
        try #require(store.index).flush()
      }
      #expect(!disk.paths.contains("/store/runs/INDEXES.tmp"))
      #expect(try store.indexes().map(\.index) == [RecordIndex("Note", "v")])
      try store.closeBlocking()
    }
  }

  @Test(arguments: Campaign.seeds(1...12, every: 12))
  func `answer the same when runs or the definitions are damaged`(seed: UInt64) throws {
    var life = try Life(seed)
    for index in [RecordIndex("Note", "v"), RecordIndex("Note")] { try life.store.addIndex(index) }
    for step in 0..<160 {
      try life.step()
      guard step % 12 == 11 else { continue }
      let files = life.disk.paths.filter { $0.hasPrefix("/store/runs/") }
      guard let path = files.dropFirst(life.below(max(1, files.count))).first,
        var bytes = life.disk.peek(path), !bytes.isEmpty
      else { continue }
      for _ in 0...life.below(3) { bytes[life.below(bytes.count)] ^= 1 << UInt8(life.below(8)) }
      life.steps.append("damage \(path)")
      life.disk.poke(path, bytes)
      if life.below(2) == 0 {
        life.views = []
        life.disk = life.disk.imageAfterCrash(.none)
        life.store = try openIndexed(life.disk, seed: life.random.next())
      }
      life.views = []
      for _ in 0..<3 { try life.check(life.values.query()) }
    }
  }
}
