// The workloads of `bench store` that open: after a clean close, after a kill, as a whole process; and the memory that an
// open store takes.

import Strandline
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem
import Synchronization

extension StoreBench {
  /// A store of records and a database of the same ones, both closed.
  struct Corpus {
    var store: String
    /// nil if SQLite takes no part.
    var sqlite: String?
  }

  /// Makes the corpus of a size, runs the workloads that read it, and removes it.
  mutating func measureCorpus(_ size: Size) async throws {
    try begin("the corpus of \(Words.count(size.records)) records")
    let corpus = Corpus(
      store: path("corpus" + size.suffix), sqlite: hasSQLite ? path("corpus\(size.suffix).sqlite") : nil)
    let works = self
    try await onThread("bench") { try works.make(corpus, size) }
    try await measureOpen(corpus, size)
    if canStartProcesses {
      try await measureProcess(corpus, size)
      try await measureMemory(corpus, size)
      try await measureCrash(corpus, size)
    }
    try await measureReads(corpus, size)
    try environment.fileSystem.removeTree(corpus.store)
    if let sqlite = corpus.sqlite { try removeDatabase(sqlite) }
  }

  private func make(_ corpus: Corpus, _ size: Size) throws {
    let store = try openStore(corpus.store)
    try fill(store, 0..<size.records)
    try close(store)
    guard let path = corpus.sqlite else { return }
    let database = try SQLiteRecords(path: path)
    // In the order of the names, which fills SQLite's pages best.
    let numbers = data.sorted(size.records)
    let many = 10_000
    for start in stride(from: 0, to: numbers.count, by: many) {
      try checkInterrupt()
      try database.save(numbers[start..<min(start + many, numbers.count)].lazy.map { data.row($0) })
    }
    try database.indexRanks()
    database.close()
  }

  private func removeDatabase(_ path: String) throws {
    for suffix in ["", "-wal", "-shm"] { try environment.fileSystem.removeTree(path + suffix) }
  }

  // MARK: In process

  private mutating func measureOpen(_ corpus: Corpus, _ size: Size) async throws {
    let work = "store.open.1m"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let measured = try await race(
      openers(corpus, isChanged: false), sizes: [1], rounds: bench.rounds)[0]
    var row = time(work, size, measured, hasPeer: corpus.sqlite != nil)
    if size.factor == 1 { row.atMost(10) }
    add(row, work, size, figure: Self.median(measured[0].seconds), growth: 1.3)
  }

  /// Opens the store, and then the database, and reads one record.
  ///
  /// - Parameter isChanged: Whether opening changes the files, so that each round needs a copy of its own.
  private func openers(_ corpus: Corpus, isChanged: Bool) -> [any Contender] {
    let opened = Mutex<RecordStore?>(nil)
    let (works, fileSystem) = (self, environment.fileSystem)
    let copy = isChanged ? corpus.store + "-copy" : corpus.store
    let ours = BlockingContender(
      clock: environment.clock,
      prepare: { if isChanged { try fileSystem.copyTree(corpus.store, to: copy) } },
      work: { _ in
        let store = try works.openStore(copy)
        try works.check(store.record(works.data.id(0)), 0)
        opened.withLock { $0 = store }
      },
      finish: {
        let store = opened.withLock { store in
          defer { store = nil }
          return store
        }
        if let store { try works.close(store) }
        if isChanged { try fileSystem.removeTree(copy) }
      })
    guard let path = corpus.sqlite else { return [ours] }
    let connection = Mutex<SQLiteRecords?>(nil)
    let copied = isChanged ? path + "-copy" : path
    let peer = BlockingContender(
      clock: environment.clock,
      prepare: { if isChanged { try works.copyDatabase(path, to: copied) } },
      work: { _ in
        let database = try SQLiteRecords(path: copied)
        try works.check(database.record(works.data.name(0)), 0)
        connection.withLock { $0 = database }
      },
      finish: {
        connection.withLock { database in
          database?.close()
          database = nil
        }
        if isChanged { try works.removeDatabase(copied) }
      })
    return [ours, peer]
  }

  /// Copies a database with its write-ahead log.
  private func copyDatabase(_ path: String, to newPath: String) throws {
    for suffix in ["", "-wal"] where try environment.fileSystem.kind(of: path + suffix) != .absent {
      try environment.fileSystem.copyTree(path + suffix, to: newPath + suffix)
    }
  }

  /// Throws unless this is the record with the number.
  func check(_ record: Record?, _ number: Int) throws {
    guard let record, record[BenchData.rankField] == .int64(data.rank(number)) else {
      throw BenchFailure(description: "record \(number) of the benchmark's own store is not what was saved")
    }
  }

  /// Throws unless this is the row with the number.
  func check(_ row: SQLiteRecord?, _ number: Int) throws {
    guard let row, row.rank == data.rank(number) else {
      throw BenchFailure(description: "record \(number) of SQLite's database is not what was saved")
    }
  }

  // MARK: After a kill

  private mutating func measureCrash(_ corpus: Corpus, _ size: Size) async throws {
    let work = "store.open.crash"
    guard wants(work) else { return }
    try begin(work + size.suffix)
    let crashed = Corpus(
      store: path("crashed" + size.suffix), sqlite: corpus.sqlite.map { _ in path("crashed\(size.suffix).sqlite") })
    let works = self
    try await onThread("bench") {
      try works.environment.fileSystem.copyTree(corpus.store, to: crashed.store)
      try works.importAndKill(crashed.store, size)
      if let source = corpus.sqlite, let copy = crashed.sqlite { try works.writeAndCopy(source, to: copy, size) }
    }
    let measured = try await race(openers(crashed, isChanged: true), sizes: [1], rounds: bench.rounds)[0]
    var row = time(work, size, measured, hasPeer: crashed.sqlite != nil)
    if size.factor == 1 { row.atMost(60) }
    add(row, work, size, figure: Self.median(measured[0].seconds))
    try environment.fileSystem.removeTree(crashed.store)
    if let sqlite = crashed.sqlite { try removeDatabase(sqlite) }
  }

  /// How many records the import saves before the kill: a tenth of the store.
  private func extra(_ size: Size) -> Int { max(1, size.records / 10) }

  /// Imports further records by a child process and kills it in the middle: it never sees the end of its input.
  private func importAndKill(_ store: String, _ size: Size) throws {
    let batch = min(Self.batch, extra(size))
    let (child, errorPath) = try work.spawn(["import", "--acks", "--batch", "\(batch)", store, "-"], input: .pipe)
    let data = data
    let feeder = try BlockingThread.start(name: "import") {
      var number = size.records
      // Ends when the child is killed: then its end of the pipe is closed.
      while true {
        let lines = (number..<number + 100).flatMap { data.record($0).line(zone: false) + [UInt8(ascii: "\n")] }
        do { try child.write(lines) } catch { return }
        number += 100
      }
    }
    var acknowledged = 0
    while acknowledged < extra(size), try child.output?.readLine()?.hasPrefix("ACK ") == true { acknowledged += batch }
    child.kill(.kill)
    let status = try work.finish(child)
    feeder.join()
    let words = try work.removeText(errorPath)
    try checkInterrupt()
    guard status == .signalled(ChildSignal.kill.number), acknowledged >= extra(size) else {
      throw BenchFailure(description: "the import that was to be killed ended with \(status): \(words)")
    }
  }

  /// Saves further records in a database and copies its files while it is open: what a kill leaves, because the pages
  /// that a process has written outlive it.
  private func writeAndCopy(_ source: String, to copy: String, _ size: Size) throws {
    let original = copy + "-open"
    try copyDatabase(source, to: original)
    let database = try SQLiteRecords(path: original)
    let numbers = size.records..<size.records + extra(size)
    for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: Self.batch) {
      try checkInterrupt()
      try database.save((start..<min(start + Self.batch, numbers.upperBound)).lazy.map { data.row($0) })
    }
    try copyDatabase(original, to: copy)
    database.close()
    try removeDatabase(original)
  }

  // MARK: Processes

  private mutating func measureProcess(_ corpus: Corpus, _ size: Size) async throws {
    let (work, start) = ("store.open.process", "store.open.process.start")
    guard wants([work, start]) else { return }
    try begin(work + size.suffix)
    let name = data.name(0)
    let works = self
    let rounds = max(bench.rounds, 1)
    func contender(_ executable: String?, _ arguments: [String], _ word: String) -> any Contender {
      let clock = environment.clock
      return TimedContender { _ in
        let begin = clock.monotonicNanoseconds()
        let finished = try works.work.run(arguments, executable: executable)
        let nanoseconds = clock.monotonicNanoseconds() - begin
        guard finished.status == .exited(0), finished.output.contains(word) else {
          throw BenchFailure(
            description: "\(executable ?? "strandline") \(arguments[0]): \(finished.status): \(finished.error)")
        }
        return nanoseconds
      }
    }
    let peer = corpus.sqlite.flatMap { path in shell.map { ($0, path) } }
    let query = "SELECT id, type, rank, body FROM records WHERE id = '\(name)'"
    for (work, ours, theirs, word) in [
      (work, ["get", corpus.store, name], [peer?.1 ?? "", query], name), (start, ["--version"], ["--version"], ""),
    ] {
      var contenders = [contender(nil, ours, word)]
      if let peer { contenders.append(contender(peer.0, theirs, word)) }
      let measured = try await race(contenders, sizes: [1], rounds: rounds)[0]
      var row = time(work, size, measured, hasPeer: peer != nil)
      if work != start { row.atMostSQLite(times: 3) }
      add(row, work, size, figure: Self.median(measured[0].seconds))
    }
  }

  // MARK: Memory

  /// The random reads after which the memory of a process is read.
  static let residentReads = 1_000

  private mutating func measureMemory(_ corpus: Corpus, _ size: Size) async throws {
    let (work, pages) = ("store.rss.1m", "store.rss.1m.file")
    guard wants([work, pages]), Measures.resident != nil else { return }
    try begin(work + size.suffix)
    var (anonymous, file): ([Double], [Double]) = ([], [])
    let works = self
    for _ in 0..<min(bench.rounds, 3) {
      try checkInterrupt()
      let output = try await onThread("bench") {
        try works.work.succeed(
          ["bench", "store", "--resident", corpus.store, "--records", "\(size.records)"])
      }
      let numbers = output.split(separator: "\n").compactMap { $0.split(separator: " ").last.flatMap { Double($0) } }
      guard numbers.count == 2 else { throw BenchFailure(description: "a child printed '\(output)'") }
      anonymous.append(numbers[0])
      file.append(numbers[1])
    }
    for (work, figures) in [(work, anonymous), (pages, file)] {
      let median = Self.median(figures)
      var row = BenchRow(
        work: work + size.suffix, unit: "B", ours: median, residentBytes: Int(median), max: figures.max(),
        rounds: figures.count)
      if work != pages, size.factor == 1 { row.atMost(64_000_000) }
      add(row, work, size, figure: median)
    }
  }

  /// Opens a store of `records` records, reads some at random, and prints the memory that is resident then. Runs in a
  /// process of its own, because the memory of one that has made the store tells nothing.
  static func printResident(_ path: String, records: Int, _ console: Console) throws {
    let store = try RecordStore.openBlocking(
      at: path, environment: StoreEnvironment(console.environment), createIfAbsent: false)
    let random = SeededRandom(seed: 1)
    for _ in 0..<residentReads {
      let id = data.id(Int(random.below(UInt64(records))))
      guard try store.record(id) != nil else {
        throw Failure(
          .dataDamaged, "'\(path)' has no record '\(id)'", try: "a store of this benchmark, and its number of records")
      }
    }
    guard let resident = Measures.resident else {
      throw Failure(.recoverable, "this system does not tell anonymous memory from pages of files")
    }
    try console.print("anonymous \(resident.anonymous)")
    try console.print("file \(resident.file)")
    try store.closeBlocking()
  }
}
