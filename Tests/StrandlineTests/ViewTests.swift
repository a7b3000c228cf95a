// Views, queries and observation: what a reader sees while others write.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

private func open(
  _ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1, log: LogOptions = LogOptions()
) throws -> RecordStore {
  try RecordStore.openBlocking(
    at: "/store", options: StoreOptions(log: log), environment: .simulated(disk: disk, seed: seed))
}

private func id(_ name: String) -> RecordID { RecordID(name) }

extension RecordStore {
  fileprivate func put(_ name: String, _ fields: [String: FieldValue], type: String = "T") throws {
    try writeBlocking { try $0.save(Record(type: type, id: id(name), fields: fields)) }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A view of a store` {
  @Test func `shows one moment, whatever is written afterwards, and copies nothing`() throws {
    let store = try open()
    for number in 0..<100 { try store.put("r\(number)", ["n": .int64(Int64(number))]) }
    let view = try store.view()
    #expect(try store.status().changesKept == 0)
    for round in 0..<10_000 {
      try store.writeBlocking { tx in
        let name = id("r\(round % 150)")
        if round % 7 == 0 { try tx.delete(name) } else { try tx.putAnew(name, ["n": .int64(-1)]) }
      }
    }
    // What is kept for the view is what changed, once a change.
    #expect(try store.status().changesKept < 40_000)
    #expect(try view.count() == 100 && view.count(ofType: "T") == 100 && view.count(ofType: "other") == 0)
    for number in 0..<100 { #expect(try view.record(id("r\(number)"))?["n"] == .int64(Int64(number))) }
    #expect(try view.record(id("r120")) == nil)
    var seen: [String] = []
    try view.forEachRecord { seen.append($0.id.name) }
    #expect(seen == (0..<100).map { "r\($0)" }.sorted())
    let status = try store.status()
    #expect(status.views.map(\.lsn) == [view.lsn])
    try store.closeBlocking()
  }

  @Test func `holds what it shows against a compaction, and lets go of it`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    try store.put("a", ["n": 1])
    try store.put("gone", ["n": 1])
    func read() throws -> FieldValue? {
      try store.read { view in
        try store.put("a", ["n": 2])
        try store.writeBlocking { try $0.delete(id("gone")) }
        for number in 0..<50 { try store.put("b", ["n": .int64(Int64(number))]) }
        try store.compactBlocking()
        // The status says what it keeps: the segment that the compaction has finished, and could not look at.
        let kept = try store.status().views.first?.bytes ?? 0
        #expect(kept > 4096 && kept < 64 << 10, "\(kept) bytes")
        #expect(try view.record(id("gone"))?["n"] == 1)
        return try view.record(id("a"))?["n"]
      }
    }
    #expect(try read() == 1)
    #expect(try store.status().views.isEmpty && store.status().changesKept == 0)
    #expect(try store.compactBlocking().eventsAfter < 10)
    #expect(try store.record(id("a"))?["n"] == 2)
    try store.closeBlocking()
  }

  /// Views taken, held and let go at random, beside writes, failed transactions, compactions and reopenings, against
  /// copies of what the store held.
  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `agrees with a copy of the store`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.next() % count) }
    let disk = SimulatedDisk()
    var store = try open(disk, seed: seed)
    var model: [String: FieldValue] = [:]
    var views: [(view: StoreView, model: [String: FieldValue])] = []
    for step in 0..<200 {
      let comment: Comment = "seed \(seed), step \(step)"
      let name = "r\(below(12))"
      switch below(20) {
      case 0...7:
        try store.writeBlocking { try $0.putAnew(id(name), ["n": .int64(Int64(step))]) }
        model[name] = .int64(Int64(step))
      case 8...10:
        try store.writeBlocking { try $0.delete(id(name)) }
        model[name] = nil
      case 11:
        #expect(throws: CancellationError.self, comment) {
          try store.writeBlocking { tx in
            try tx.putAnew(id(name), ["n": -1])
            throw CancellationError()
          }
        }
      case 12...14: if views.count < 4 { views.append((try store.view(), model)) }
      case 15, 16: if !views.isEmpty { views.remove(at: below(UInt64(views.count))) }
      case 17: try store.compactBlocking()
      case 18 where views.isEmpty:
        try store.closeBlocking()
        store = try open(disk, seed: seed &+ UInt64(step))
      default:
        try store.writeBlocking { tx in
          for other in 0..<3 { try tx.putAnew(id("r\(other)"), ["n": .int64(Int64(step))]) }
        }
        for other in 0..<3 { model["r\(other)"] = .int64(Int64(step)) }
      }
      for (view, model) in views + [(try store.view(), model)] {
        var shown: [String: FieldValue] = [:]
        try view.forEachRecord { shown[$0.id.name] = $0["n"] }
        #expect(shown == model, comment)
        #expect(try view.count() == model.count, comment)
        #expect(try view.record(id(name))?["n"] == model[name], comment)
      }
      #expect(store.projections.withLock { $0.brokenInvariant() } == nil, comment)
    }
    try store.closeBlocking()
  }
}

extension WriteTransaction {
  /// Saves a record, beginning a new life where it was deleted.
  fileprivate mutating func putAnew(_ id: RecordID, _ fields: [String: FieldValue]) throws {
    let record = Record(type: "T", id: id, fields: fields)
    if try self.record(id) == nil { try create(record) } else { try save(record) }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A query` {
  /// What a query means, in as few lines as possible.
  private func model(_ query: RecordQuery, _ records: [Record]) -> [Record] {
    records.filter { record in
      record.type == query.recordType && query.filters.allSatisfy { $0.matches(record[$0.field]) }
    }.sorted { left, right in
      for sort in query.sorts {
        let order = FieldValue.sortOrder(left[sort.field], right[sort.field])
        if order != 0 { return sort.ascending ? order < 0 : order > 0 }
      }
      return left.id < right.id
    }
  }

  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `finds page by page what its words say, also while others write`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.next() % count) }
    func value() -> FieldValue? {
      switch below(8) {
      case 0: nil
      case 1: .string(["", "a", "ab", "b", "é"][below(5)])
      case 2: .double(Double(below(5)) / 2)
      case 3: .list(.strings, [.string("a"), .string("b\(below(3))")])
      case 4: .list(.int64s, (0..<below(4)).map { .int64(Int64($0)) })
      case 5: .date(milliseconds: Int64(below(4)))
      default: .int64(Int64(below(6)))
      }
    }
    let store = try open(seed: seed)
    func write() throws {
      try store.writeBlocking { tx in
        for _ in 0..<20 {
          let record = id("r\(below(60))")
          if below(6) == 0 {
            try tx.delete(record)
          } else {
            var fields: [String: FieldValue] = [:]
            for field in ["x", "y"] { fields[field] = value() }
            try tx.putAnew(record, fields)
          }
        }
      }
    }
    for _ in 0..<5 { try write() }
    for step in 0..<20 {
      let comment: Comment = "seed \(seed), step \(step)"
      let filters = (0..<below(3)).map { _ in
        let comparator = RecordFilter.Comparator.allCases[below(UInt64(RecordFilter.Comparator.allCases.count))]
        var other = value()
        if case .list = other { other = nil }
        return RecordFilter(["x", "y"][below(2)], comparator, other ?? "a")
      }
      let sorts = (0..<below(3)).map { _ in RecordSort(["x", "y"][below(2)], ascending: below(2) == 0) }
      var query = RecordQuery("T", where: filters, sortedBy: sorts)
      let view = try store.view()
      var all: [Record] = []
      try view.forEachRecord { all.append($0) }
      let expected = model(query, all)
      #expect(try view.query(query).records == expected, comment)
      #expect(try view.count(query) == expected.count, comment)
      query.limit = 1 + below(7)
      var found: [Record] = []
      var cursor: QueryCursor?
      repeat {
        let page = try view.query(query, after: cursor)
        #expect(page.records.count <= query.limit ?? 0, comment)
        found += page.records
        cursor = try page.cursor.map { try QueryCursor(text: $0.text) }
        if below(3) == 0 { try write() }
        if below(30) == 0 { try store.compactBlocking() }
      } while cursor != nil
      #expect(found == expected, comment)
    }
    try store.closeBlocking()
  }

  @Test func `refuses what cannot be asked, and cursors that are not its own`() throws {
    let store = try open()
    for number in 0..<5 { try store.put("r\(number)", ["n": .int64(Int64(number))]) }
    var query = RecordQuery("T", sortedBy: [RecordSort("n")], limit: 2)
    let cursor = try #require(try store.query(query).cursor)
    func code(_ body: () throws -> Void) -> StrandlineError.Code? {
      do { try body() } catch { return (error as? StrandlineError)?.code }
      return nil
    }
    #expect(code { _ = try store.query(RecordQuery("T", limit: 0)) } == .invalidValue)
    let several = RecordFilter("n", .equals, anyOf: [1, 2])
    #expect(code { _ = try store.query(RecordQuery("T", where: [several])) } == .invalidValue)
    let list = RecordFilter("n", .listContains, .list(.int64s, []))
    #expect(code { _ = try store.query(RecordQuery("T", where: [list])) } == .invalidValue)
    #expect(code { _ = try store.query(RecordQuery("T", sortedBy: [RecordSort("m")]), after: cursor) } == .invalidValue)
    let other = try RecordStore.openBlocking(at: "/other", environment: .simulated(disk: SimulatedDisk(), seed: 9))
    #expect(code { _ = try other.query(query, after: cursor) } == .invalidValue)
    // Another limit is the same query.
    query.limit = 9
    query.desiredKeys = []
    let rest = try store.query(query, after: cursor)
    #expect(rest.records.map(\.id.name) == ["r2", "r3", "r4"] && rest.cursor == nil)
    #expect(rest.records.map(\.fields) == [[:], [:], [:]])
    let text = cursor.text
    #expect(try QueryCursor(text: text) == cursor)
    for place in text.indices {
      var mangled = text
      mangled.replaceSubrange(place...place, with: text[place] == "0" ? "1" : "0")
      #expect(code { _ = try QueryCursor(text: mangled) } == .invalidValue)
      #expect(code { _ = try QueryCursor(text: String(text[..<place])) } == .invalidValue)
    }
    for nonsense in ["", "zz", "é", "00", String(repeating: "f", count: 999)] {
      #expect(code { _ = try QueryCursor(text: nonsense) } == .invalidValue)
    }
    try store.closeBlocking()
    try other.closeBlocking()
  }

  @Test func `with a hundred conditions, or one on a field of mixed types, is answered`() throws {
    let store = try open()
    let values: [FieldValue?] = ["1", 1, 1.0, .date(milliseconds: 1), .bytes([1]), nil, .list(.int64s, [1])]
    for (number, value) in values.enumerated() { try store.put("r\(number)", value.map { ["v": $0] } ?? [:]) }
    let many = (0..<100).map { RecordFilter("v", .notEquals, .int64(Int64($0 + 5))) }
    #expect(try store.query(RecordQuery("T", where: many)).records.count == 7)
    #expect(
      try store.query(RecordQuery("T", where: [RecordFilter("v", .lessThan, 2)])).records.map(\.id.name) == ["r1"])
    let sorted = try store.query(RecordQuery("T", sortedBy: [RecordSort("v")])).records.map(\.id.name)
    #expect(sorted == ["r5", "r0", "r1", "r2", "r3", "r4", "r6"])
    try store.closeBlocking()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `An observer` {
  @Test func `gets the value now, and each later one at last`() async throws {
    let store = try open()
    try store.put("a", ["n": 0])
    var values = store.observe(id("a")).makeAsyncIterator()
    #expect(try await values.next()??["n"] == 0)
    try store.put("b", ["n": 5])
    try store.put("a", ["n": 1])
    #expect(try await values.next()??["n"] == 1)
    // Those that were not asked for are one.
    for number in 2...9 { try store.put("a", ["n": .int64(Int64(number))]) }
    #expect(try await values.next()??["n"] == 9)
    try store.writeBlocking { try $0.delete(id("a")) }
    #expect(try await values.next() == .some(nil))
    try await store.close()
    #expect(try await values.next() == nil)
    #expect(try await values.next() == nil)
  }

  @Test func `of a query, and of the status, sees what concerns it`() async throws {
    let store = try open()
    var query = store.observe(RecordQuery("T", where: [RecordFilter("n", .greaterThan, 3)])).makeAsyncIterator()
    var status = store.observeStatus().makeAsyncIterator()
    #expect(try await query.next()?.records.isEmpty == true)
    #expect(try await status.next()?.records == 0)
    try store.put("other", ["n": 9], type: "U")
    #expect(try await status.next()?.records == 1)
    try store.put("a", ["n": 1])
    try store.put("b", ["n": 4])
    #expect(try await query.next()?.records.map(\.id.name) == ["b"])
    try store.put("a", ["n": 5])
    #expect(try await query.next()?.records.map(\.id.name) == ["a", "b"])
    #expect(try await status.next()?.records == 3)
    try await store.close()
  }

  @Test func `may write, and is ended by its cancellation alone`() async throws {
    let store = try open()
    let seen = Task {
      var last: Int64 = 0
      for try await record in store.observe(id("a")) {
        guard case .int64(let number)? = record?["n"] else { continue }
        last = number
        if number == 20 { break }
        try await store.write { try $0.save(Record(type: "T", id: id("a"), fields: ["n": .int64(number + 1)])) }
      }
      return last
    }
    try await store.write { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 1])) }
    #expect(try await seen.value == 20)
    let waiting = Task {
      var count = 0
      for try await _ in store.observe(id("never")) { count += 1 }
      return count
    }
    waiting.cancel()
    #expect(try await waiting.value <= 1)
    try await store.close()
  }

  /// Whatever the order of writes and of looking, the last value is seen.
  @Test(arguments: Campaign.seeds(1...10, every: 5))
  func `never keeps a value that is not the last`(seed: UInt64) async throws {
    let store = try open(seed: seed)
    let observers = (0..<4).map { number in
      Task {
        var count = 0
        for try await record in store.observe(id("r\(number % 2)")) {
          count += 1
          if record?["n"] == 200 { return count }
        }
        return -1
      }
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<2 {
        group.addTask {
          for round in 1...200 {
            try await store.write {
              try $0.save(Record(type: "T", id: id("r\(number)"), fields: ["n": .int64(Int64(round))]))
            }
          }
        }
      }
      try await group.waitForAll()
    }
    for observer in observers { #expect(try await observer.value > 0) }
    try await store.close()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A store that another process writes` {
  @Test func `shows the whole transactions before what cannot be read, and goes on behind them later`() async throws {
    let disk = SimulatedDisk()
    var options = LogOptions()
    options.segmentBytesMax = 8 << 10
    let store = try open(disk, seed: 1, log: options)
    // Each transaction fills a segment.
    let text = FieldValue.string(String(repeating: "x", count: 2_000))
    func write(_ number: Int64) throws -> LSN {
      let receipt = try store.writeBlocking { tx in
        for name in ["a", "b"] { try tx.putAnew(id(name), ["n": .int64(number), "t": text]) }
      }
      return try #require(receipt.lsns).upperBound
    }
    _ = try write(1)
    try store.raisePromise()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 77))
    func shown() throws -> [FieldValue?] { try reader.records([id("a"), id("b")]).map { $0["n"] } }
    var observed = reader.observe(id("b")).makeAsyncIterator()
    #expect(try await observed.next()??["n"] == 1)
    let view = try reader.view()
    let (second, third, last) = (try write(2), try write(3), try write(4))
    try store.raisePromise()
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let place = try #require(log.place(of: third.rawValue))
    let file = "/store/\(SegmentName.name(place.segmentID))"
    let bytes = try #require(disk.peek(file))
    var damaged = bytes
    damaged[Int(place.offset) + 40] ^= 1
    disk.poke(file, damaged)
    for _ in 0..<2 {
      #expect { try reader.refresh() } throws: { ($0 as? StrandlineError)?.code == .damaged }
      try #require(try shown() == [2, 2] && reader.durableLSN == second)
    }
    #expect(try await observed.next()??["n"] == 2)
    disk.poke(file, bytes)
    #expect(try reader.refresh() && shown() == [4, 4] && reader.durableLSN == last)
    #expect(try await observed.next()??["n"] == 4)
    #expect(try view.record(id("a"))?["n"] == 1 && !reader.refresh())
    try await reader.close()
    try store.closeBlocking()
  }

  /// A reader that looks now and then, beside writes and compactions, against a reader that was just opened.
  @Test(arguments: Campaign.seeds(1...8, every: 4))
  func `is followed, through compactions too`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.next() % count) }
    let disk = SimulatedDisk()
    let store = try open(disk, seed: seed)
    let environment = StoreEnvironment.simulated(disk: disk, seed: 77)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment)
    var observed = reader.observe(RecordQuery("T")).makeAsyncIterator()
    _ = try await observed.next()
    var expired = 0
    for step in 0..<120 {
      let comment: Comment = "seed \(seed), step \(step)"
      let view = try reader.view()
      let shown = try view.query(RecordQuery("T")).records
      for _ in 0...below(4) {
        let name = id("r\(below(9))")
        try store.writeBlocking { tx in
          if below(3) == 0 { try tx.delete(name) } else { try tx.putAnew(name, ["n": .int64(Int64(step))]) }
        }
      }
      if below(5) == 0 { try store.compactBlocking() }
      try store.raisePromise()
      let fresh = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment)
      let (now, last) = (try fresh.query(RecordQuery("T")).records, fresh.durableLSN)
      if below(2) == 0 {
        _ = try reader.refresh()
        #expect(try reader.query(RecordQuery("T")).records == now && reader.durableLSN == last, comment)
        #expect(reader.projections.withLock { $0.brokenInvariant() } == nil, comment)
        #expect(try !reader.refresh(), comment)
        if now != shown { #expect(try await observed.next()?.records == now, comment) }
      }
      do { #expect(try view.query(RecordQuery("T")).records == shown, comment) } catch let error as StrandlineError {
        #expect(error.code == .outdated, comment)
        expired += 1
      }
    }
    #expect(expired > 0)
    try await reader.close()
    try store.closeBlocking()
  }
}

extension RecordStore {
  /// Says in the log how far it is durable, as a writer does a fifth of a second after each write.
  fileprivate func raisePromise() throws {
    if case .writer(let log) = source { try log.raiseControl() }
  }
}
