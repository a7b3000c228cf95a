// `bench store`: measures the store next to SQLite with a comparable schema, all in one run.
//
// The records are made from a seed. Each workload runs at two sizes, to check that its time grows no faster than its
// size. Workloads that read share one store of each size, the corpus. StoreBench+Opening.swift, StoreBench+Reading.swift
// and StoreBench+Writing.swift have the workloads; the rounds and rows are those of the log's benchmark.

import Strandline
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem
import Synchronization

/// The benchmark of the store.
struct StoreBench: Benchmark {
  var bench: BenchRun
  let work: WorkDirectory
  /// The records of a store at the smaller size.
  let records: Int
  /// Real records; empty if none were given.
  let real: [Record]
  let data = Self.data
  /// The times at the smaller size, by the row's name.
  private var halves: [String: Double] = [:]
  /// The milliseconds of one operation in each row so far, by its whole name: rows that come later are compared with them.
  private(set) var milliseconds: [String: Double] = [:]
  private var progress: Progress
  private let opened = OpenStores()

  /// The records that every process of a run makes.
  static let data = BenchData(seed: 0x5EED)
  /// Records in each transaction.
  static let batch = 400

  /// The rows, each of which is measured at two sizes. A test compares them with the output.
  static let works =
    corpusWorks + [
      "store.get.real", "store.save400", "store.save400.real", "store.save1", "store.update", "store.edit.same",
      "store.codable.save", "store.codable.load", "store.compact", "store.compact.appends",
    ]

  /// The rows that need the corpus.
  private static let corpusWorks =
    processWorks + [
      "store.open.1m", "store.get", "store.query.indexed", "store.fetch.typed", "store.fetch.scan", "store.list",
      "store.list.prefix", "store.observe", "store.live",
    ]

  /// The rows for which processes are started.
  private static let processWorks =
    ["store.open.crash", "store.open.process", "store.open.process.start"] + memoryWorks
  private static let memoryWorks = ["store.rss.1m", "store.rss.1m.file"]
  private static let realWorks = ["store.get.real", "store.save400.real"]

  init(_ bench: BenchRun, _ work: WorkDirectory, records: Int, real: [Record]) {
    self.bench = bench
    self.work = work
    self.records = records
    self.real = real
    progress = Progress(work.console)
  }

  mutating func run() async throws {
    defer { progress.end() }
    do { try await measure() } catch {
      await opened.close()
      // An interrupt kills the children: what they then fail with is its consequence.
      try checkInterrupt()
      throw error
    }
  }

  private mutating func measure() async throws {
    sayWhatIsMissing()
    // Before the corpus, whose typed questions are compared with it.
    try await measureTyped()
    if wants(Self.corpusWorks) {
      for size in sizes { try await measureCorpus(size) }
    }
    try await measureRealReads()
    try await measureBulk()
    try await measureSingles()
    try await measureUpdates()
    try await measureEdits()
    for size in sizes { try await measureCompaction(size) }
  }

  /// Says what this machine or this command line leaves out.
  private func sayWhatIsMissing() {
    func say(_ why: String, _ rows: [String]) {
      let missing = rows.filter { wants($0) }
      if !missing.isEmpty { work.console.say("note: \(why): without \(missing.joined(separator: ", "))") }
    }
    if real.isEmpty { say("no --real FILE is given", Self.realWorks) }
    if !canStartProcesses {
      say("the benchmark is not on the real file system, where it could start processes", Self.processWorks)
    } else if Measures.resident == nil {
      say("this system does not tell anonymous memory from pages of files", Self.memoryWorks)
    }
    if !hasSQLite {
      work.console.say(
        "note: SQLite is not installed, or the benchmark is not on the real file system: it takes no part")
    } else if canStartProcesses, shell == nil, wants("store.open.process") {
      work.console.say("note: there is no sqlite3 in PATH: SQLite takes no part in store.open.process")
    }
  }

  // MARK: Sizes

  /// The size of a workload.
  struct Size {
    /// The end of the row's name.
    var suffix: String
    /// 1 or 2.
    var factor: Int
    /// The records of its store.
    var records: Int
  }

  var sizes: [Size] {
    [Size(suffix: "", factor: 1, records: records), Size(suffix: ".x2", factor: 2, records: 2 * records)]
  }

  /// The number of operations at the smaller size: at most `full`, and one for each `share` records of the store.
  func count(_ full: Int, forEach share: Int) -> Int { min(full, max(1, records / share)) }

  /// Whether a row is wanted, at either size.
  func wants(_ work: String) -> Bool { (work + ".x2").hasPrefix(bench.prefix) }

  func wants(_ works: [String]) -> Bool { works.contains { wants($0) } }

  /// Shows on a terminal what is measured now.
  mutating func begin(_ work: String) throws {
    try checkInterrupt()
    progress.update("measuring \(work)")
  }

  // MARK: Rows

  /// A row of a rate: the operations of each contender in a second. `measured` has our figures first, then those of
  /// SQLite if it takes part.
  func rate(
    _ work: String, _ size: Size, _ measured: [Measurements], amount: Double, hasPeer: Bool
  ) -> BenchRow {
    let rates = measured.map { Self.median($0.rates(amount)) }
    return BenchRow(
      work: work + size.suffix, unit: "1/s", ours: rates[0], sqlite: hasPeer ? rates[1] : nil,
      residentBytes: measured[0].peakBytes, max: measured[0].rates(amount).max(), p50: measured[0].quantile(0.5),
      p99: measured[0].quantile(0.99), rounds: measured[0].seconds.count)
  }

  /// A row of the time of one operation, in milliseconds: the median of single calls if they were timed, else that of
  /// the rounds.
  func time(_ work: String, _ size: Size, _ measured: [Measurements], hasPeer: Bool) -> BenchRow {
    func milliseconds(_ measured: Measurements) -> Double {
      measured.quantile(0.5).map { $0 / 1_000 } ?? Self.median(measured.seconds) * 1_000
    }
    return BenchRow(
      work: work + size.suffix, unit: "ms", ours: milliseconds(measured[0]),
      sqlite: hasPeer ? milliseconds(measured[1]) : nil, residentBytes: measured[0].peakBytes,
      max: (measured[0].latencies.max().map { Double($0) / 1e9 } ?? measured[0].seconds.max()).map { $0 * 1_000 },
      p50: measured[0].quantile(0.5), p99: measured[0].quantile(0.99), rounds: measured[0].seconds.count)
  }

  /// Adds a row. At the larger size it gets the bar that `figure`, a time or a size, is at most `bound` times that of
  /// the smaller one.
  mutating func add(_ row: BenchRow, _ work: String, _ size: Size, figure: Double, growth bound: Double = 2.2) {
    var row = row
    milliseconds[row.work] = row.unit == "1/s" ? 1_000 / max(row.ours, 1e-9) : row.ours
    if size.factor == 1 {
      halves[work] = figure
    } else if let half = halves[work] {
      row.grows(figure / max(half, 1e-9), atMost: bound)
    }
    add(row)
  }

  // MARK: Stores

  /// Opens a store of this benchmark for writing, and creates it if it is missing. The caller closes it by `close(_:)`;
  /// after a failure it is closed in any case.
  func openStore(_ path: String) throws -> RecordStore {
    let store = try RecordStore.openBlocking(at: path, environment: StoreEnvironment(environment))
    opened.add(store)
    return store
  }

  func close(_ store: RecordStore) throws {
    opened.remove(store)
    try store.closeBlocking()
  }

  /// Saves the records with these numbers, in transactions.
  func fill(_ store: RecordStore, _ numbers: Range<Int>, version: Int = 0) throws {
    for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: Self.batch) {
      try checkInterrupt()
      try store.writeBlocking { tx in
        for number in start..<min(start + Self.batch, numbers.upperBound) {
          try tx.save(data.record(number, version: version))
        }
      }
    }
  }

  /// Whether the benchmark may start processes that open its stores.
  var canStartProcesses: Bool { environment.fileSystem is POSIXFileSystem }

  /// The path of SQLite's shell; nil if there is none in PATH.
  var shell: String? {
    let folders = work.console.variable("PATH")?.split(separator: ":") ?? []
    return folders.map { "\($0)/sqlite3" }.first { (try? environment.fileSystem.kind(of: $0)) == .file }
  }
}

/// The stores that are open. A store that is released and not closed may still prepare a file, in a directory that is about
/// to be removed.
private final class OpenStores: Sendable {
  private let stores = Mutex<[ObjectIdentifier: RecordStore]>([:])

  func add(_ store: RecordStore) { stores.withLock { $0[ObjectIdentifier(store)] = store } }
  func remove(_ store: RecordStore) { stores.withLock { $0[ObjectIdentifier(store)] = nil } }

  /// Closes all of them after a failure, which is the one that is reported.
  func close() async {
    for store in stores.withLock({ Array($0.values) }) { try? await store.close() }
  }
}

/// Times each call of one implementation, until there are enough of them or a second has passed: a call may take long.
struct CallContender: Contender {
  let clock: any SystemClock
  let stop: Flag
  /// One call; gets its number.
  let call: @Sendable (_ number: Int) throws -> Void

  private static let nanosecondsMax: UInt64 = 1_000_000_000

  func round(_ count: Int) async throws -> Sample {
    try await onThread("bench") {
      var latencies: [UInt64] = []
      let begin = clock.monotonicNanoseconds()
      var end = begin
      for number in 0..<count where end - begin < Self.nanosecondsMax {
        try stop.check()
        let start = end
        try call(number)
        end = clock.monotonicNanoseconds()
        latencies.append(end - start)
      }
      return Sample(nanoseconds: (end - begin) / UInt64(max(1, latencies.count)), latencies: latencies)
    }
  }

  func end() throws {}
}

/// An implementation that measures its rounds itself.
struct TimedContender: Contender {
  /// Returns the nanoseconds of a round.
  let measure: @Sendable (_ count: Int) throws -> UInt64

  func round(_ count: Int) async throws -> Sample {
    try await onThread("bench") { Sample(nanoseconds: try measure(count)) }
  }

  func end() throws {}
}
