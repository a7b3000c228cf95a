// The workloads of `bench store` that read an open store: records by their IDs, queries, lists, and an observer that waits
// for a write.

import Foundation
import Observation
import Strandline
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem

extension StoreBench {
  /// The records of one page.
  private static let page = 100

  /// Runs the workloads that read the corpus.
  mutating func measureReads(_ corpus: Corpus, _ size: Size) async throws {
    guard
      wants([
        "store.get", "store.query.indexed", "store.fetch.typed", "store.fetch.scan", "store.list", "store.list.prefix",
        "store.observe", "store.live",
      ])
    else { return }
    let store = try await onThread("bench") { [self] in try openStore(corpus.store) }
    let database = try corpus.sqlite.map { try SQLiteRecords(path: $0) }
    try await measureGets(store, database, size)
    try await measureQueries(store, database, size)
    try await measureFetches(store, size)
    try await measureScans(store, size)
    try await measureLists(store, database, size)
    // Last, because it writes.
    try await measureObservation(store, size)
    try await measureLive(store, size)
    database?.close()
    try close(store)
  }

  // MARK: By ID

  private mutating func measureGets(_ store: RecordStore, _ database: SQLiteRecords?, _ size: Size) async throws {
    let work = "store.get"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    // Twice the records are read twice as often.
    let reads = count(200_000, forEach: 5) * size.factor
    let random = SeededRandom(seed: 2)
    let numbers = (0..<reads).map { _ in Int(random.below(UInt64(size.records))) }
    let ids = numbers.map(data.id)
    let works = self
    var contenders: [any Contender] = [
      BlockingContender(
        clock: environment.clock,
        work: { count in
          for index in 0..<count {
            if index % 1_000 == 0 { try works.checkInterrupt() }
            try works.check(store.record(ids[index]), numbers[index])
          }
        })
    ]
    if let database {
      contenders.append(
        BlockingContender(
          clock: environment.clock,
          work: { count in
            for index in 0..<count {
              if index % 1_000 == 0 { try works.checkInterrupt() }
              try works.check(database.record(ids[index].name), numbers[index])
            }
          }))
    }
    let measured = try await race(contenders, sizes: [reads], rounds: bench.rounds)[0]
    var row = rate(work, size, measured, amount: Double(reads), hasPeer: database != nil)
    row.atLeast(300_000)
    row.atLeastSQLite(times: 2)
    add(row, work, size, figure: Self.median(measured[0].seconds))
  }

  // MARK: Queries and lists

  private mutating func measureQueries(_ store: RecordStore, _ database: SQLiteRecords?, _ size: Size) async throws {
    let work = "store.query.indexed"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let calls = 100
    let random = SeededRandom(seed: 3)
    // The lower half of the ranks, so that a page is full.
    let ranks = (0..<calls).map { _ in Int64(random.next() >> 2) }
    let works = self
    try store.addIndex(RecordIndex(BenchData.type, BenchData.rankField))
    try await store.buildIndexes()
    let page = min(Self.page, size.records / 4)
    var contenders: [any Contender] = [
      CallContender(clock: environment.clock, stop: stop) { number in
        let query = RecordQuery(
          BenchData.type,
          where: [RecordFilter(BenchData.rankField, .greaterThanOrEquals, .int64(ranks[number]))],
          sortedBy: [RecordSort(BenchData.rankField)], limit: Self.page)
        try works.checkPage(store.query(query).records.count, page)
      }
    ]
    if let database {
      contenders.append(
        CallContender(clock: environment.clock, stop: stop) { number in
          let found = try database.records(ofType: BenchData.type, fromRank: ranks[number], limit: Self.page)
          try works.checkPage(found.count, page)
        })
    }
    let measured = try await race(contenders, sizes: [calls], rounds: bench.rounds)[0]
    var row = time(work, size, measured, hasPeer: database != nil)
    row.atMostSQLite(times: 1)
    add(row, work, size, figure: row.ours)
  }

  /// The same page by a predicate, as values, beside the query and as many reads of values; without these rows beside the query with
  /// each record of its page decoded.
  private mutating func measureFetches(_ store: RecordStore, _ size: Size) async throws {
    let work = "store.fetch.typed"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let calls = 100
    let random = SeededRandom(seed: 3)
    let ranks = (0..<calls).map { _ in Int64(random.next() >> 2) }
    let works = self
    try store.addIndex(RecordIndex(BenchData.type, BenchData.rankField))
    try await store.buildIndexes()
    let page = min(Self.page, size.records / 4)
    let contenders: [any Contender] = [
      CallContender(clock: environment.clock, stop: stop) { number in
        let least = ranks[number]
        let found = try store.fetch(
          RankedNote.self, where: #Predicate { $0.rank >= least }, sortedBy: .ascending(\.rank), limit: Self.page)
        try works.checkPage(found.count, page)
      },
      CallContender(clock: environment.clock, stop: stop) { number in
        let query = RecordQuery(
          BenchData.type,
          where: [RecordFilter(BenchData.rankField, .greaterThanOrEquals, .int64(ranks[number]))],
          sortedBy: [RecordSort(BenchData.rankField)], limit: Self.page)
        try works.checkPage(store.query(query).records.map { try $0.value(as: RankedNote.self) }.count, page)
      },
    ]
    let measured = try await race(contenders, sizes: [calls], rounds: bench.rounds)[0]
    var row = time(work, size, measured, hasPeer: false)
    var (limit, what) = (time(work, size, [measured[1]], hasPeer: false).ours, "the query with decoding")
    if let query = milliseconds["store.query.indexed" + size.suffix],
      let load = milliseconds["store.codable.load" + size.suffix]
    {
      (limit, what) = (query + Double(page) * load, "store.query.indexed + \(page) store.codable.load")
    }
    row.limit = limit
    row.atMost(1.2, of: limit, what)
    add(row, work, size, figure: row.ours)
  }

  /// How many values a predicate finds that no index answers, beside a loop that reads the field that it names.
  private mutating func measureScans(_ store: RecordStore, _ size: Size) async throws {
    let work = "store.fetch.scan"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let works = self
    let digits = Array("0123456789abcdef").map(String.init)
    let contenders: [any Contender] = [
      CallContender(clock: environment.clock, stop: stop) { number in
        let digit = digits[number % digits.count]
        let found = try store.count(RankedNote.self, where: #Predicate { $0.text.starts(with: digit) })
        try works.checkPage(found, min(1, size.records / 4_000))
      },
      CallContender(clock: environment.clock, stop: stop) { number in
        let digit = digits[number % digits.count]
        var found = 0
        try store.forEachRecord(ofType: BenchData.type) { record in
          if case .string(let text)? = record[BenchData.textField], text.utf8.starts(with: digit.utf8) { found += 1 }
        }
        try works.checkPage(found, min(1, size.records / 4_000))
      },
    ]
    let measured = try await race(contenders, sizes: [digits.count], rounds: bench.rounds)[0]
    var row = time(work, size, measured, hasPeer: false)
    let loop = time(work, size, [measured[1]], hasPeer: false)
    row.limit = loop.ours
    row.atMost(1.2, of: loop.ours, "a loop over all records")
    add(row, work, size, figure: row.ours)
  }

  private func checkPage(_ found: Int, _ least: Int) throws {
    guard found >= least else {
      throw BenchFailure(description: "a page of the benchmark's own store has \(found) records, not \(least)")
    }
  }

  private mutating func measureLists(_ store: RecordStore, _ database: SQLiteRecords?, _ size: Size) async throws {
    let (work, prefixed) = ("store.list", "store.list.prefix")
    guard wants([work, prefixed]) else { return }
    try begin(work + size.suffix)
    let works = self
    let calls = 200
    // A sixteenth of all names begins with each digit.
    let digits = Array("0123456789abcdef").map(String.init)
    let page = min(Self.page, size.records / 64)
    let ofType = CallContender(clock: environment.clock, stop: stop) { _ in
      try works.checkPage(store.recordIDs(ofType: BenchData.type, limit: Self.page).count, page)
    }
    let ofPrefix = CallContender(clock: environment.clock, stop: stop) { number in
      let digit = digits[number % digits.count]
      let ids = try store.recordIDs(ofType: BenchData.type, in: .main, prefix: digit, limit: Self.page)
      try works.checkPage(ids.count, page)
    }
    func peer(_ bounds: @escaping @Sendable (Int) -> (String, String)) -> [any Contender] {
      guard let database else { return [] }
      return [
        CallContender(clock: environment.clock, stop: stop) { number in
          let (low, high) = bounds(number)
          let ids = try database.ids(ofType: BenchData.type, from: low, to: high, limit: Self.page)
          try works.checkPage(ids.count, page)
        }
      ]
    }
    for (work, contenders) in [
      (work, [ofType] + peer { _ in ("", "~") }),
      (prefixed, [ofPrefix] + peer { (digits[$0 % digits.count], digits[$0 % digits.count] + "~") }),
    ] as [(String, [any Contender])] where wants(work) {
      let measured = try await race(contenders, sizes: [calls], rounds: bench.rounds)[0]
      var row = time(work, size, measured, hasPeer: database != nil)
      row.atMost(1)
      add(row, work, size, figure: row.ours)
    }
  }

  // MARK: Observation

  private mutating func measureObservation(_ store: RecordStore, _ size: Size) async throws {
    let work = "store.observe"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let (row, writing) = try await observations(work, size) { [self] in try await observe(store, $0) }
    add(above(writing, "the write", row), work, size, figure: row.ours)
  }

  /// The same until the main actor has the value, beside an observer that has it.
  private mutating func measureLive(_ store: RecordStore, _ size: Size) async throws {
    let work = "store.live"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let (observing, _) = try await observations(work, size) { [self] in try await observe(store, $0) }
    let (row, _) = try await observations(work, size) { [self] in try await live(store, $0) }
    add(above(observing.ours, "store.observe", row), work, size, figure: row.ours)
  }

  private func above(_ limit: Double?, _ what: String, _ row: BenchRow) -> BenchRow {
    guard let limit else { return row }
    var row = row
    row.limit = limit
    row.bars.append(
      .init(text: "\(BenchRow.figure(row.ours - limit)) ms above \(what) (≤ 1)", isMet: row.ours - limit <= 1))
    return row
  }

  /// Writes in all rounds, and measures the time until the reader has each value.
  ///
  /// - Parameter observe: gets the number of writes, and returns the nanoseconds of each and those until it has arrived.
  /// - Returns: the row, and the milliseconds of a write.
  private func observations(
    _ work: String, _ size: Size, _ observe: (Int) async throws -> (write: [UInt64], whole: [UInt64])
  ) async throws -> (row: BenchRow, write: Double?) {
    let writes = count(500, forEach: 200) * size.factor
    var writing = Measurements()
    var observing = Measurements()
    for _ in 0..<bench.rounds {
      Measures.resetPeak()
      let (write, whole) = try await observe(writes)
      writing.latencies += write
      observing.latencies += whole
      observing.seconds.append(Double(whole.reduce(0, +)) / 1e9)
      observing.peakBytes = max(observing.peakBytes, Measures.peakBytes)
    }
    return (time(work, size, [observing], hasPeer: false), writing.quantile(0.5).map { $0 / 1_000 })
  }

  /// Changes a value and waits each time until the main actor has the change.
  ///
  /// - Returns: as `observe(_:_:)`.
  private func live(_ store: RecordStore, _ writes: Int) async throws -> (write: [UInt64], whole: [UInt64]) {
    let clock = environment.clock
    let first = Int64(clock.monotonicNanoseconds() >> 1)
    func save(_ rank: Int64) async throws {
      try await store.write { try $0.save(RankedNote(id: LiveRank.name, rank: rank, text: "")) }
    }
    try await save(first)
    let live = await LiveRank(of: store, clock)
    _ = try await live.reaches(first)
    var (write, whole): ([UInt64], [UInt64]) = ([], [])
    for rank in first + 1...first + Int64(writes) {
      try checkInterrupt()
      async let arrival = live.reaches(rank)
      let begin = clock.monotonicNanoseconds()
      try await save(rank)
      write.append(clock.monotonicNanoseconds() - begin)
      whole.append(try await arrival - begin)
    }
    return (write, whole)
  }

  /// Changes a record and waits each time until an observer of it has the change.
  ///
  /// - Returns: The nanoseconds of each write, and those until the observer has its value.
  private func observe(_ store: RecordStore, _ writes: Int) async throws -> (write: [UInt64], whole: [UInt64]) {
    let clock = environment.clock
    let id = RecordID("observed")
    let (arrivals, arrival) = AsyncStream.makeStream(of: (rank: Int64, time: UInt64).self)
    let observer = Task {
      defer { arrival.finish() }
      for try await record in store.observe(id) {
        guard case .int64(let rank)? = record?[BenchData.rankField] else {
          arrival.yield((rank: -1, time: 0))
          continue
        }
        arrival.yield((rank: rank, time: clock.monotonicNanoseconds()))
      }
    }
    defer { observer.cancel() }
    var iterator = arrivals.makeAsyncIterator()
    // The first value is there before the first write, so that the observer waits for each of them.
    _ = await iterator.next()
    var (write, whole): ([UInt64], [UInt64]) = ([], [])
    let first = Int64(clock.monotonicNanoseconds() >> 1)
    for rank in first..<first + Int64(writes) {
      try checkInterrupt()
      let begin = clock.monotonicNanoseconds()
      try await store.write { tx in
        try tx.save(Record(type: BenchData.type, id: id, fields: [BenchData.rankField: .int64(rank)]))
      }
      write.append(clock.monotonicNanoseconds() - begin)
      var arrived: UInt64?
      while let value = await iterator.next() {
        guard value.rank == rank else { continue }
        arrived = value.time
        break
      }
      guard let arrived else { throw BenchFailure(description: "an observer ended before it had the last value") }
      whole.append(arrived - begin)
    }
    return (write, whole)
  }

  // MARK: Real records

  mutating func measureRealReads() async throws {
    let work = "store.get.real"
    guard wants(work), !real.isEmpty else { return }
    for size in sizes {
      try begin(work + size.suffix)
      let name = "real-reads" + size.suffix
      let records = realRecords(size)
      let store = try await onThread("bench") { [self] in
        let store = try openStore(path(name))
        try save(records[...], into: store)
        return store
      }
      let database = try hasSQLite ? SQLiteRecords(path: path(name + ".sqlite")) : nil
      try database?.save(records.lazy.map(Self.row))
      let measured = try await race(
        realReaders(store, database, records), sizes: [records.count], rounds: bench.rounds)[0]
      var row = rate(work, size, measured, amount: Double(records.count), hasPeer: database != nil)
      row.atLeast(250_000)
      add(row, work, size, figure: Self.median(measured[0].seconds))
      database?.close()
      try close(store)
      try environment.fileSystem.removeTree(path(name))
    }
  }

  /// Reads each record in a random order, and one field of it.
  private func realReaders(
    _ store: RecordStore, _ database: SQLiteRecords?, _ records: [Record]
  ) -> [any Contender] {
    var random = ShuffleRandom(source: SeededRandom(seed: 4))
    let order = records.shuffled(using: &random).map { ($0.id, $0.fields.keys.min() ?? "") }
    let works = self
    let ours = BlockingContender(
      clock: environment.clock,
      work: { _ in
        for (index, (id, field)) in order.enumerated() {
          if index % 1_000 == 0 { try works.checkInterrupt() }
          guard let record = try store.record(id), field.isEmpty || record[field] != nil else {
            throw BenchFailure(description: "record '\(id)' is not what was saved")
          }
        }
      })
    guard let database else { return [ours] }
    let peer = BlockingContender(
      clock: environment.clock,
      work: { _ in
        for (index, (id, _)) in order.enumerated() {
          if index % 1_000 == 0 { try works.checkInterrupt() }
          guard try database.record(id.name) != nil else {
            throw BenchFailure(description: "SQLite's database has no record '\(id)'")
          }
        }
      })
    return [ours, peer]
  }

  /// The real records; for the larger size once more under other names.
  func realRecords(_ size: Size) -> [Record] {
    guard size.factor > 1 else { return real }
    return real
      + real.map { record in
        Record(
          type: record.type, id: RecordID("x2-" + record.id.name, zone: record.id.zone), fields: record.fields)
      }
  }

  /// A real record for SQLite: its line of JSON is the body.
  static func row(_ record: Record) -> SQLiteRecord {
    SQLiteRecord(id: record.id.name, type: record.type, rank: 0, body: record.line(zone: false))
  }

  /// Saves records in transactions.
  func save(_ records: ArraySlice<Record>, into store: RecordStore) throws {
    var rest = records
    while !rest.isEmpty {
      try checkInterrupt()
      try store.writeBlocking { tx in for record in rest.prefix(Self.batch) { try tx.save(record) } }
      rest = rest.dropFirst(Self.batch)
    }
  }
}

/// A value of a view.
@MainActor
private final class LiveRank {
  nonisolated static let name = "live"
  private let live: Live<RankedNote?>
  private let clock: any SystemClock

  init(of store: RecordStore, _ clock: any SystemClock) {
    (live, self.clock) = (store.live(RankedNote.self, id: Self.name), clock)
  }

  /// Waits until the value has a rank.
  ///
  /// - Returns: when it has it.
  func reaches(_ rank: Int64) async throws -> UInt64 {
    while live.value??.rank != rank {
      guard live.isLive else { throw BenchFailure(description: "a live value ended before it was the last") }
      await withCheckedContinuation { change in
        withObservationTracking {
          _ = (live.value, live.isLive)
        } onChange: {
          change.resume()
        }
      }
    }
    return clock.monotonicNanoseconds()
  }
}

/// A seeded random source in the form that the standard library shuffles with.
private struct ShuffleRandom: RandomNumberGenerator {
  let source: SeededRandom
  mutating func next() -> UInt64 { source.next() }
}
