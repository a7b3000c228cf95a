// The workloads of `bench store` that write: many records in a transaction, one in each, one record again and again, typed
// values; and a compaction beside a writer.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineLogBench
import StrandlineSystem
import Synchronization

extension StoreBench {
  // MARK: Many in a transaction

  /// The records that are made at a time, before the time is measured.
  private static let slab = 100_000

  mutating func measureBulk() async throws {
    // A round at the larger size fills a store of twice the records, and SQLite takes minutes for it.
    let rounds = min(bench.rounds, 3)
    if wants("store.save400") {
      try await measureBulk("store.save400", sizes.map(\.records), rounds: rounds, atLeast: 500_000, timesSQLite: 10) {
        [data] in $0.map { data.record($0) }
      }
    }
    if wants("store.save400.real"), !real.isEmpty {
      let records = realRecords(sizes[1])
      try await measureBulk(
        "store.save400.real", [real.count, records.count], rounds: rounds, atLeast: 200_000, timesSQLite: nil
      ) { Array(records[$0]) }
    }
  }

  /// Measures saving so many records into an empty store.
  ///
  /// - Parameter make: Makes the records with these numbers; not measured.
  private mutating func measureBulk(
    _ work: String, _ counts: [Int], rounds: Int, atLeast bound: Double, timesSQLite: Double?,
    make: @escaping @Sendable (Range<Int>) -> [Record]
  ) async throws {
    try begin(work)
    let measured = try await race(bulkWriters(work, make), sizes: counts, rounds: rounds)
    for (size, (count, measured)) in zip(sizes, zip(counts, measured)) {
      var row = rate(work, size, measured, amount: Double(count), hasPeer: hasSQLite)
      row.atLeast(bound)
      if let timesSQLite { row.atLeastSQLite(times: timesSQLite) }
      add(row, work, size, figure: Self.median(measured[0].seconds))
    }
  }

  /// Each saves records into an empty store and removes it.
  private func bulkWriters(
    _ work: String, _ make: @escaping @Sendable (Range<Int>) -> [Record]
  ) -> [any Contender] {
    let works = self
    let path = path(work)
    let ours = TimedContender { count in
      let store = try works.openStore(path)
      let nanoseconds = try works.time(of: count) { numbers in
        let records = make(numbers)
        return { try works.save(records[...], into: store) }
      }
      try works.close(store)
      try works.environment.fileSystem.removeTree(path)
      return nanoseconds
    }
    guard hasSQLite else { return [ours] }
    let peer = TimedContender { count in
      let database = try SQLiteRecords(path: path + ".sqlite")
      let nanoseconds = try works.time(of: count) { numbers in
        let rows = make(numbers).map(works.row)
        return {
          for start in stride(from: 0, to: rows.count, by: Self.batch) {
            try works.checkInterrupt()
            try database.save(rows[start..<min(start + Self.batch, rows.count)])
          }
        }
      }
      database.close()
      for suffix in ["", "-wal", "-shm"] { try works.environment.fileSystem.removeTree(path + ".sqlite" + suffix) }
      return nanoseconds
    }
    return [ours, peer]
  }

  /// A record for SQLite: one of the generated records as its text and its rank, any other as its line of JSON.
  private func row(_ record: Record) -> SQLiteRecord {
    guard case .int64(let rank)? = record[BenchData.rankField],
      case .string(let text)? = record[BenchData.textField]
    else { return Self.row(record) }
    return SQLiteRecord(id: record.id.name, type: record.type, rank: rank, body: Array(text.utf8))
  }

  /// The nanoseconds of saving `count` records, part by part.
  ///
  /// - Parameter prepare: Makes the records of a part and returns what saves them, which alone is measured.
  private func time(of count: Int, _ prepare: (Range<Int>) -> () throws -> Void) throws -> UInt64 {
    var nanoseconds: UInt64 = 0
    for start in stride(from: 0, to: count, by: Self.slab) {
      try checkInterrupt()
      let save = prepare(start..<min(start + Self.slab, count))
      let begin = environment.clock.monotonicNanoseconds()
      try save()
      nanoseconds += environment.clock.monotonicNanoseconds() - begin
    }
    return nanoseconds
  }

  // MARK: One in a transaction

  mutating func measureSingles() async throws {
    let work = "store.save1"
    guard wants(work) else { return }
    try begin(work)
    let counts = sizes.map { count(1_000, forEach: 100) * $0.factor }
    let works = self
    let store = try openStore(path(work))
    let database = try hasSQLite ? SQLiteRecords(path: path(work + ".sqlite")) : nil
    let log = try Log.open(at: path(work + ".log"), role: .store, environment: environment) { _ in }
    let body = SeededRandom(seed: 5).bytes(BenchData.bytes)
    let (ours, theirs) = (Counter(), Counter())
    var contenders: [any Contender] = [
      BlockingContender(
        clock: environment.clock,
        work: { count in
          for _ in 0..<count {
            try works.checkInterrupt()
            let record = works.data.record(ours.next())
            try store.writeBlocking { try $0.save(record) }
          }
        }, close: { try works.close(store) })
    ]
    if let database {
      contenders.append(
        BlockingContender(
          clock: environment.clock,
          work: { count in
            for _ in 0..<count {
              try works.checkInterrupt()
              try database.save(CollectionOfOne(works.data.row(theirs.next())))
            }
          }, close: { database.close() }))
    }
    contenders.append(
      BlockingContender(
        clock: environment.clock,
        work: { count in
          for _ in 0..<count {
            try works.checkInterrupt()
            var transaction = LogTransaction()
            transaction.add(schema: 0, body: body)
            try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
          }
        }, close: { try log.close() }))
    let measured = try await race(contenders, sizes: counts, rounds: bench.rounds)
    for (size, (count, measured)) in zip(sizes, zip(counts, measured)) {
      var row = rate(work, size, measured, amount: Double(count), hasPeer: database != nil)
      row.limit = measured.last.map { Self.median($0.rates(Double(count))) }
      row.atLeast(0.9, of: row.limit, "log.durable.100")
      add(row, work, size, figure: Self.median(measured[0].seconds))
    }
  }

  /// Measures updates of one typed value, each in a transaction of its own.
  mutating func measureUpdates() async throws {
    let work = "store.update"
    guard wants(work) else { return }
    try begin(work)
    let counts = sizes.map { count(1_000, forEach: 100) * $0.factor }
    let (works, note) = (self, BenchNote(0, data))
    let store = try await onThread("bench") {
      let store = try works.openStore(works.path(work))
      try store.writeBlocking { try $0.save(note) }
      return store
    }
    let log = try Log.open(at: path(work + ".log"), role: .store, environment: environment) { _ in }
    let body = SeededRandom(seed: 5).bytes(BenchData.bytes)
    let numbers = Counter()
    let contenders: [any Contender] = [
      BlockingContender(
        clock: environment.clock,
        work: { count in
          for _ in 0..<count {
            try works.checkInterrupt()
            let number = Int64(numbers.next())
            try store.updateBlocking(BenchNote.self, id: note.id) { $0.changed = number }
          }
        }, close: { try works.close(store) }),
      BlockingContender(
        clock: environment.clock,
        work: { count in
          for _ in 0..<count {
            try works.checkInterrupt()
            var transaction = LogTransaction()
            transaction.add(schema: 0, body: body)
            try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
          }
        }, close: { try log.close() }),
    ]
    let measured = try await race(contenders, sizes: counts, rounds: bench.rounds)
    for (size, (count, measured)) in zip(sizes, zip(counts, measured)) {
      var row = rate(work, size, measured, amount: Double(count), hasPeer: false)
      row.limit = measured.last.map { Self.median($0.rates(Double(count))) }
      add(row, work, size, figure: Self.median(measured[0].seconds))
    }
  }

  // MARK: One record

  mutating func measureEdits() async throws {
    let work = "store.edit.same"
    guard wants(work) else { return }
    try begin(work)
    let counts = sizes.map { count(80_000, forEach: 1) * $0.factor }
    let works = self
    let data = data
    // The last contender saves as many distinct records; the others one record with as many ranks.
    @Sendable func edit(_ number: Int) -> Record {
      var record = data.record(0)
      record[BenchData.rankField] = .int64(data.rank(number))
      return record
    }
    let same = bulkWriters(work) { $0.map(edit) }
    let distinct = bulkWriters(work + ".distinct") { $0.map { data.record($0) } }
    let measured = try await race(same + distinct.prefix(1), sizes: counts, rounds: min(bench.rounds, 3))
    for (size, (count, measured)) in zip(sizes, zip(counts, measured)) {
      var row = rate(work, size, measured, amount: Double(count), hasPeer: works.hasSQLite)
      row.limit = measured.last.map { Self.median($0.rates(Double(count))) }
      row.atLeast(0.5, of: row.limit, "distinct records")
      add(row, work, size, figure: Self.median(measured[0].seconds))
    }
  }

  // MARK: Typed values

  /// What ends a transaction of the typed values: nothing of it is written, so that the log takes no part.
  private struct Abandoned: Error {}

  mutating func measureTyped() async throws {
    let (saving, loading) = ("store.codable.save", "store.codable.load")
    guard wants([saving, loading]) else { return }
    try begin(saving)
    let counts = sizes.map { count(100_000, forEach: 5) * $0.factor }
    let store = try openStore(path(saving))
    let (works, data) = (self, data)
    let clock = environment.clock
    func contender(_ isLoading: Bool) -> any Contender {
      TimedContender { count in
        var nanoseconds: UInt64 = 0
        for start in stride(from: 0, to: count, by: 1_000) {
          try works.checkInterrupt()
          let values = (start..<min(start + 1_000, count)).map { BenchNote($0, data) }
          do {
            try store.writeBlocking { tx in
              var begin = clock.monotonicNanoseconds()
              for value in values { try tx.save(value) }
              if isLoading {
                begin = clock.monotonicNanoseconds()
                for value in values {
                  guard try tx.fetch(BenchNote.self, id: value.id)?.made == value.made else {
                    throw BenchFailure(description: "the value '\(value.id)' is not what was saved")
                  }
                }
              }
              nanoseconds += clock.monotonicNanoseconds() - begin
              throw Abandoned()
            }
          } catch is Abandoned {}
        }
        return nanoseconds
      }
    }
    for (work, isLoading) in [(saving, false), (loading, true)] where wants(work) {
      let measured = try await race([contender(isLoading)], sizes: counts, rounds: bench.rounds)
      for (size, (count, measured)) in zip(sizes, zip(counts, measured)) {
        var row = rate(work, size, measured, amount: Double(count), hasPeer: false)
        row.atLeast(200_000)
        add(row, work, size, figure: Self.median(measured[0].seconds))
      }
    }
    try close(store)
  }

  // MARK: Compaction

  /// Measures the compaction of a store in which every record was saved twice, and a writer beside it.
  mutating func measureCompaction(_ size: Size) async throws {
    let (work, appending) = ("store.compact", "store.compact.appends")
    guard wants([work, appending]) else { return }
    try begin(work + size.suffix)
    let works = self
    let (dead, copy) = (path("dead" + size.suffix), path("dead\(size.suffix)-copy"))
    try await onThread("bench") {
      let store = try works.openStore(dead)
      try works.fill(store, 0..<size.records)
      try works.fill(store, 0..<size.records, version: 1)
      try works.close(store)
    }
    var compacting = Measurements()
    var (rates, before, during): ([Double], [Double], [Double]) = ([], [], [])
    for _ in 0..<min(bench.rounds, 3) {
      try checkInterrupt()
      try environment.fileSystem.copyTree(dead, to: copy)
      Measures.resetPeak()
      let round = try await onThread("bench") { try works.compact(copy, size) }
      compacting.seconds.append(round.seconds)
      compacting.peakBytes = max(compacting.peakBytes, Measures.peakBytes)
      rates.append(round.megabytes / round.seconds)
      before.append(round.before)
      during.append(round.during)
      try environment.fileSystem.removeTree(copy)
    }
    try environment.fileSystem.removeTree(dead)
    var row = BenchRow(
      work: work + size.suffix, unit: "MB/s", ours: Self.median(rates), residentBytes: compacting.peakBytes,
      max: rates.max(), rounds: rates.count)
    row.atLeast(200)
    add(row, work, size, figure: Self.median(compacting.seconds))
    row = BenchRow(
      work: appending + size.suffix, unit: "1/s", ours: Self.median(during), limit: Self.median(before),
      residentBytes: compacting.peakBytes, max: during.max(), rounds: during.count)
    row.atLeast(0.5, of: row.limit, "alone")
    add(row)
  }

  private struct Compaction {
    var seconds: Double
    var megabytes: Double
    /// Records a second that a writer saves alone, and beside the compaction.
    var before: Double
    var during: Double
  }

  private func compact(_ path: String, _ size: Size) throws -> Compaction {
    let store = try openStore(path)
    let clock = environment.clock
    // The writer changes one record again and again, so that what it writes does not change what there is to compact.
    let record = data.record(0)
    let ranks = Counter()
    @Sendable func append() throws {
      var record = record
      record[BenchData.rankField] = .int64(Int64(ranks.next()))
      try store.writeBlocking { try $0.save(record) }
    }
    let alone = count(2_000, forEach: 100)
    var begin = clock.monotonicNanoseconds()
    for _ in 0..<alone {
      try checkInterrupt()
      try append()
    }
    let before = Double(alone) / Self.seconds(clock.monotonicNanoseconds() - begin)
    let isOver = Flag()
    let appended = Mutex<Result<Int, any Error>>(.success(0))
    begin = clock.monotonicNanoseconds()
    let writer = try BlockingThread.start(name: "appends") {
      let outcome = Result {
        var count = 0
        repeat {
          try append()
          count += 1
        } while !isOver.isSet
        return count
      }
      appended.withLock { $0 = outcome }
    }
    let compacted = Result { try store.compactBlocking() }
    let seconds = Self.seconds(clock.monotonicNanoseconds() - begin)
    isOver.set()
    writer.join()
    let whole = Self.seconds(clock.monotonicNanoseconds() - begin)
    let during = Double(try appended.withLock { try $0.get() }) / whole
    let report = try compacted.get()
    guard report.bytesAfter < report.bytesBefore else {
      throw BenchFailure(description: "a store that is half dead was not made smaller")
    }
    guard try store.record(record.id)?[BenchData.rankField] == .int64(Int64(ranks.next()) - 1) else {
      throw BenchFailure(description: "a record is not what was saved last beside a compaction")
    }
    try close(store)
    return Compaction(
      seconds: seconds, megabytes: Double(report.bytesBefore) / 1e6, before: before, during: during)
  }

  /// At least a microsecond, so that no rate is infinite with a clock that stands still.
  private static func seconds(_ nanoseconds: UInt64) -> Double { max(Double(nanoseconds) / 1e9, 1e-6) }
}

/// Counts up from 0.
private final class Counter: Sendable {
  private let value = Mutex(0)

  func next() -> Int {
    value.withLock { value in
      defer { value += 1 }
      return value
    }
  }
}
