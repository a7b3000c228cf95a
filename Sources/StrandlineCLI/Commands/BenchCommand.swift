// `bench`: measures the store or the log on this machine, next to what they are compared with, on the same disk in the
// same run.
//
// The contenders alternate and the median of the rounds counts, because machines are shared and noisy: compare the ratios.
// `bench log`, `bench store`, `bench sync` and `bench wire` have files of their own; `bench FILE` is here. Its bare loop has
// no records: it writes as many bytes as the store's log did, in as many pieces, and syncs each piece.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineLogBench
import StrandlineSystem

extension Command {
  static let bench = Command(
    "bench", "Measure the store and the log on this machine.", operands: ["FILE|log|store|sync|wire"],
    details: [
      "With FILE (records in JSON Lines) it measures the store, next to a bare loop of the same writes. With the word store",
      "it measures the store next to SQLite with records of its own, and with the word log the log below the store, next to",
      "SQLite and to the bare loop; these alternate in rounds. SQLite is left out where it is not installed. With the word",
      "wire it measures how fast JSON becomes records and records become JSON, next to Foundation, how fast processes import,",
      "export and sync records with a server on this machine, and that server under the load of many connections. With the",
      "word sync it measures what the engine costs that syncs them.",
    ],
    options: [
      .json,
      Option("--rounds", "N", "How often each workload runs; the median counts. Default: 3; for log: 7."),
      Option("--singles", "N", "FILE: records in the workload with one record in each transaction. Default: 5,000."),
      Option("--records", "N", "store: records in a store; each row runs at twice as many too. Default: 1,000,000."),
      Option(
        "--real", "FILE",
        "store: records in JSON Lines for the rows of real records; else these are left out. wire: records for all rows."
      ),
      Option("--quick", "Small sizes, to test the benchmark; the figures mean nothing."),
      Option("--soak", "wire: disturb the server for ten minutes instead of 30 s."),
      Option("--only", "PREFIX", "log, store, sync, wire: only the rows whose names begin with PREFIX."),
      Option("--directory", "DIR", "Where to write; all files are removed at the end. Default: TMPDIR or /tmp."),
      Option(
        "--plot", "FILE.svg",
        "log: plot durable appends per second against the number of writers; store: plot how each row compares with SQLite."
      ),
      Option(
        "--resident", "STORE",
        "store: only open the STORE that a benchmark has made, read 1,000 records, print the resident memory. wire: only "
          + "upload the STORE to the server of --url, print the memory that it took."),
      Option("--url", "URL", "wire, with --resident: the URL that serve prints."),
    ],
    examples: [
      Example("With records in JSON Lines", "strandline bench records.jsonl"),
      Example("The same as JSON", "strandline bench --json records.jsonl"),
      Example("The store beside SQLite, at a tenth of the size", "strandline bench --records 100000 store"),
      Example("Only the log", "strandline bench log"),
      Example("Some rows of it, with a plot", "strandline bench --only log.group64 --plot writers.svg log"),
    ],
    run: { arguments, console in
      let rounds: Int? = try arguments.number("--rounds", in: 1...99)
      switch arguments.operands[0] {
      case "log":
        try check(arguments, takes: ["--only", "--plot"])
        try checkRows(arguments, console, logWorks)
        return try await benchLog(arguments, console, rounds: rounds ?? 7)
      case "store":
        try check(arguments, takes: ["--only", "--plot", "--records", "--real", "--resident"])
        try checkRows(arguments, console, StoreBench.works)
        return try await benchStore(arguments, console, rounds: rounds ?? 3)
      case "sync":
        try check(arguments, takes: ["--only"])
        try checkRows(arguments, console, SyncBench.works)
        return try await benchSync(arguments, console, rounds: rounds ?? 3)
      case "wire":
        try check(arguments, takes: ["--only", "--real", "--resident", "--soak", "--url"])
        try checkRows(arguments, console, WireBench.works + ServerBench.works)
        return try await benchWire(arguments, console, rounds: rounds ?? 7)
      default:
        try check(arguments, takes: ["--singles"])
        return try benchFile(arguments, console, rounds: rounds ?? 3)
      }
    })

  /// The rows of `bench log`, each of which is measured at two sizes. A test compares them with the output.
  private static let logWorks = [
    "log.durable.100", "log.durable.1k", "log.durable.100.async", "log.group64.100",
    "log.bulk400.100", "log.verify.200", "log.open.clean", "log.open.crash", "log.syncs", "log.syncs.reading",
  ]

  /// The operands with which an option means something.
  private static let optionUse: [(name: String, operands: String)] = [
    ("--only", "'bench log', 'bench store', 'bench sync' and 'bench wire'"),
    ("--plot", "'bench log' and 'bench store'"),
    ("--records", "'bench store'"), ("--real", "'bench store' and 'bench wire'"),
    ("--resident", "'bench store' and 'bench wire'"), ("--singles", "'bench FILE'"), ("--soak", "'bench wire'"),
    ("--url", "'bench wire'"),
  ]

  /// Refuses an option that would have no effect.
  private static func check(_ arguments: Arguments, takes: Set<String>) throws {
    for (name, operands) in optionUse where (arguments[name] != nil || arguments.has(name)) && !takes.contains(name) {
      throw UsageError(message: "\(name) can be used with \(operands) only")
    }
  }

  /// Checks what a run of minutes would otherwise find out at its end.
  private static func checkRows(_ arguments: Arguments, _ console: Console, _ works: [String]) throws {
    if let prefix = arguments["--only"], !works.contains(where: { "\($0).x2".hasPrefix(prefix) }) {
      throw UsageError(
        message: "--only '\(prefix)' begins the name of no row; the rows are \(works.joined(separator: ", ")), and "
          + "most of them with .x2 behind it")
    }
    guard let plot = arguments["--plot"] else { return }
    try checkParent(of: plot, console, purpose: "to write '\(plot)' in")
    if try console.fileSystem.kind(of: plot) == .directory {
      throw Failure(.cannotCreate, "cannot write '\(plot)': it is a directory", try: "the path of a file after --plot")
    }
  }

  private static func benchFile(_ arguments: Arguments, _ console: Console, rounds: Int) throws -> ExitCode {
    let singles = try arguments.number("--singles", in: 1...10_000_000) ?? 5_000
    let records = try Bench.records(arguments.operands[0], console)
    guard !records.isEmpty else { throw Failure(.dataDamaged, "'\(arguments.operands[0])' holds no records") }
    let work = try WorkDirectory(console, kept: nil, parent: arguments["--directory"])
    defer { try? work.close() }
    var bench = Bench(records: records, work: work, console: console, rounds: rounds)
    try bench.run(singles: min(singles, records.count), puts: arguments.has("--quick") ? 10 : 1_000)
    for row in bench.rows { try console.print(arguments.has("--json") ? row.json : row.text) }
    return .done
  }

  private static func benchStore(_ arguments: Arguments, _ console: Console, rounds: Int) async throws -> ExitCode {
    let records =
      try arguments.number("--records", in: 100...100_000_000) ?? (arguments.has("--quick") ? 1_000 : 1_000_000)
    if let path = arguments["--resident"] {
      try StoreBench.printResident(path, records: records, console)
      return .done
    }
    let real = try arguments["--real"].map { try Bench.records($0, console) } ?? []
    return try await benchmark(arguments, console, rounds: rounds) { bench, work in
      var works = StoreBench(bench, work, records: records, real: real)
      try await works.run()
      if let path = arguments["--plot"] {
        try RatioPlot(title: "Strandline beside SQLite", rows: works.bench.rows).save(at: path, console.fileSystem)
      }
      return works.bench.rows
    }
  }

  private static func benchWire(_ arguments: Arguments, _ console: Console, rounds: Int) async throws -> ExitCode {
    switch (arguments["--resident"], arguments["--url"]) {
    case (let path?, let url?):
      try await WireBench.printResident(path, url: url, console)
      return .done
    case (nil, nil): break
    default: throw UsageError(message: "bench wire takes --resident and --url together")
    }
    let real = try arguments["--real"].map { try Bench.records($0, console) } ?? []
    return try await benchmark(arguments, console, rounds: rounds) { bench, work in
      let isQuick = arguments.has("--quick")
      var works = WireBench(bench, work, real: real, isQuick: isQuick)
      try await works.run()
      var server = ServerBench(works.bench, work, real: real, isQuick: isQuick, isSoak: arguments.has("--soak"))
      try await server.run()
      return server.bench.rows
    }
  }

  private static func benchSync(_ arguments: Arguments, _ console: Console, rounds: Int) async throws -> ExitCode {
    try await benchmark(arguments, console, rounds: rounds, prefix: SyncBench.prefix) { bench, work in
      var works = SyncBench(bench, work, isQuick: arguments.has("--quick"))
      try await works.run()
      return works.bench.rows
    }
  }

  private static func benchLog(_ arguments: Arguments, _ console: Console, rounds: Int) async throws -> ExitCode {
    try await benchmark(arguments, console, rounds: rounds) { bench, _ in
      var works = LogBench(bench, plotPath: arguments["--plot"])
      try await works.run()
      return works.bench.rows
    }
  }

  /// Runs a benchmark in a directory that is removed also after a failure or an interrupt, and prints its rows.
  private static func benchmark(
    _ arguments: Arguments, _ console: Console, rounds: Int, prefix: String = "",
    _ body: (BenchRun, WorkDirectory) async throws -> [BenchRow]
  ) async throws -> ExitCode {
    let stop = Flag()
    // Before the directory, which kills its children at an interrupt: their failures then find the flag set.
    try console.onInterrupt { stop.set() }
    let work = try WorkDirectory(console, kept: nil, parent: arguments["--directory"])
    let rows: [BenchRow]
    do {
      let isQuick = arguments.has("--quick")
      let bench = BenchRun(
        rounds: isQuick ? min(rounds, 2) : rounds, isQuick: isQuick, prefix: arguments["--only"] ?? prefix,
        directory: work.path, environment: console.environment, stop: stop)
      rows = try await body(bench, work)
    } catch {
      try work.close()
      throw error
    }
    try work.close()
    if arguments.has("--json") {
      for row in rows { try console.print(row.json) }
      return .done
    }
    for line in BenchRow.table(rows) { try console.print(line) }
    let peer =
      SQLitePeer.version.map { "SQLite \($0), WAL, synchronous FULL" } ?? "SQLite is not installed on this machine"
    let load = Measures.loadAverage.map { "; load average \(BenchRow.figure($0))" } ?? ""
    try console.print("medians of the rounds; \(peer)\(load)")
    return .done
  }
}

/// One run of the benchmark.
private struct Bench {
  /// A figure, and that of the bare loop.
  struct Row {
    var work: String
    var unit: String
    var ours: Double
    var limit: Double?

    var text: String {
      let name = work + String(repeating: " ", count: max(1, 24 - work.count))
      let beside = limit.map { "  bare loop \(Self.figure($0)), ratio \(Self.figure(ours / $0))" } ?? ""
      return "\(name)\(Self.figure(ours)) \(unit)\(beside)"
    }

    var json: String {
      "{\"limit\":\(limit.map { Self.plain($0) } ?? "null"),\"ours\":\(Self.plain(ours)),\"unit\":\"\(unit)\",\"work\":\"\(work)\"}"
    }

    // A rate is not finite if the clock did not move meanwhile.
    private static func plain(_ number: Double) -> String {
      number.isFinite ? "\((number * 1000).rounded() / 1000)" : "null"
    }
    private static func figure(_ number: Double) -> String {
      guard number.isFinite else { return "-" }
      return number >= 100 ? Words.count(Int(number)) : plain(number)
    }
  }

  let records: [Record]
  let work: WorkDirectory
  let console: Console
  let rounds: Int
  var rows: [Row] = []
  private var number = 0

  init(records: [Record], work: WorkDirectory, console: Console, rounds: Int) {
    self.records = records
    self.work = work
    self.console = console
    self.rounds = rounds
  }

  /// Parses the input before the time is measured.
  static func records(_ path: String, _ console: Console) throws -> [Record] {
    var records: [Record] = []
    try LineReader.forEachRecord(of: path, console) { records.append($0) }
    return records
  }

  mutating func run(singles: Int, puts: Int) throws {
    // Of one record the half is one record.
    let half = Array(records.prefix((records.count + 1) / 2))
    try transactions("import.400", records, batch: 400)
    try transactions("import.400.half", half, batch: 400)
    try transactions("import.1", Array(records.prefix(singles)), batch: 1)
    try opening("open", records)
    try opening("open.half", half)
    try self.puts(count: puts)
  }

  /// A path that was not used before.
  private mutating func newPath() -> String {
    number += 1
    return work("bench-\(number)")
  }

  private func seconds(_ body: () throws -> Void) rethrows -> Double {
    let begin = console.environment.clock.monotonicNanoseconds()
    try body()
    return Double(console.environment.clock.monotonicNanoseconds() - begin) / 1e9
  }

  private static func median(_ numbers: [Double]) -> Double { numbers.sorted()[numbers.count / 2] }

  /// Measures durable transactions, one after the other, and the bare loop with as many bytes in as many pieces.
  private mutating func transactions(_ work: String, _ records: [Record], batch: Int) throws {
    var ours: [Double] = []
    var bare: [Double] = []
    for _ in 0..<rounds {
      let path = newPath()
      let store = try RecordStore.openBlocking(at: path, environment: StoreEnvironment(console.environment))
      ours.append(
        try seconds {
          var next = 0
          while next < records.count {
            let end = min(next + batch, records.count)
            try store.writeBlocking { tx in for record in records[next..<end] { try tx.save(record) } }
            next = end
          }
        })
      try store.closeBlocking()
      let bytes = try Int(LogVerifier.verify(at: path, environment: console.environment).bytes)
      bare.append(try bareLoop(bytes: bytes, pieces: (records.count + batch - 1) / batch))
    }
    rows.append(
      Row(
        work: work, unit: "records/s", ours: Double(records.count) / Self.median(ours),
        limit: Double(records.count) / Self.median(bare)))
  }

  /// Measures a write and a sync of each piece, at the end of a growing file.
  private mutating func bareLoop(bytes: Int, pieces: Int) throws -> Double {
    let path = newPath()
    let file = try console.fileSystem.open(path, .create)
    defer { file.close() }
    let piece = Array(repeating: UInt8(0x5A), count: max(1, bytes / pieces))
    return try seconds {
      for index in 0..<pieces {
        try file.write(piece, at: UInt64(index * piece.count))
        try file.sync(.durable)
      }
    }
  }

  /// Measures opening a store and reading one record.
  private mutating func opening(_ work: String, _ records: [Record]) throws {
    let path = newPath()
    let environment = StoreEnvironment(console.environment)
    let store = try RecordStore.openBlocking(at: path, environment: environment)
    var next = 0
    while next < records.count {
      let end = min(next + 400, records.count)
      try store.writeBlocking { tx in for record in records[next..<end] { try tx.save(record) } }
      next = end
    }
    try store.closeBlocking()
    var times: [Double] = []
    for _ in 0..<rounds {
      times.append(
        try seconds {
          let store = try RecordStore.openBlocking(at: path, environment: environment)
          _ = try store.record(records[0].id)
          try store.closeBlocking()
        })
    }
    rows.append(Row(work: work, unit: "ms", ours: Self.median(times) * 1000, limit: nil))
  }

  /// Measures opening a store, writing one record and closing it, `count` times; then opening a store with that history.
  private mutating func puts(count: Int) throws {
    let path = newPath()
    let environment = StoreEnvironment(console.environment)
    let spent = try seconds {
      for index in 0..<count {
        let store = try RecordStore.openBlocking(at: path, environment: environment)
        try store.writeBlocking { tx in
          try tx.save(Record(type: "Note", id: RecordID("put-\(index)"), fields: ["title": "x"]))
        }
        try store.closeBlocking()
      }
    }
    rows.append(Row(work: "put.\(count)", unit: "ms", ours: spent * 1000, limit: nil))
    var times: [Double] = []
    for _ in 0..<rounds {
      times.append(
        try seconds {
          try RecordStore.openBlocking(at: path, environment: environment).closeBlocking()
        })
    }
    rows.append(Row(work: "open.after\(count)puts", unit: "ms", ours: Self.median(times) * 1000, limit: nil))
  }
}
