// `bench`: measures the store on this machine, next to a bare loop of the same writes on the same disk in the same run.
//
// The two alternate and the median of the rounds counts, because machines are shared and noisy: compare the ratios. The
// bare loop has no records: it writes as many bytes as the store's log did, in as many pieces, and syncs each piece.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineLogBench
import StrandlineSystem

extension Command {
  static let bench = Command(
    "bench", "Measure the store against a bare loop of writes and syncs.", operands: ["FILE|log"],
    details: [
      "With FILE (records in JSON Lines) it measures the store. With the word log it measures the log below the store,",
      "next to SQLite, if that is installed, and to a bare loop of the same writes; these alternate in many short rounds.",
    ],
    options: [
      .json,
      Option("--rounds", "N", "How often each workload runs; the median counts. Default: 3; for log: 7."),
      Option("--singles", "N", "Records in the workload with one record in each transaction. Default: 5,000."),
      Option("--quick", "Small sizes, to test the benchmark; the figures mean nothing."),
      Option("--only", "PREFIX", "log: only the rows whose names begin with PREFIX."),
      Option("--directory", "DIR", "Where to write; all files are removed at the end. Default: TMPDIR or /tmp."),
      Option("--plot", "FILE.svg", "log: plot durable appends per second against the number of writers."),
    ],
    examples: [
      Example("With records in JSON Lines", "strandline bench records.jsonl"),
      Example("The same as JSON", "strandline bench --json records.jsonl"),
      Example("Only the log", "strandline bench log"),
      Example("Some rows of it, with a plot", "strandline bench --only log.group64 --plot writers.svg log"),
    ],
    run: { arguments, console in
      let rounds: Int? = try arguments.number("--rounds", in: 1...99)
      if arguments.operands[0] == "log" {
        try checkLogOptions(arguments, console)
        return try await benchLog(arguments, console, rounds: rounds ?? 7)
      }
      for name in ["--only", "--plot"] where arguments[name] != nil {
        throw UsageError(message: "\(name) can be used with 'bench log' only")
      }
      let singles = try arguments.number("--singles", in: 1...10_000_000) ?? 5_000
      let records = try Bench.records(arguments.operands[0], console)
      guard !records.isEmpty else { throw Failure(.dataDamaged, "'\(arguments.operands[0])' holds no records") }
      let work = try WorkDirectory(console, kept: nil, parent: arguments["--directory"])
      defer { try? work.close() }
      var bench = Bench(records: records, work: work, console: console, rounds: rounds ?? 3)
      try bench.run(singles: min(singles, records.count), puts: arguments.has("--quick") ? 10 : 1_000)
      for row in bench.rows { try console.print(arguments.has("--json") ? row.json : row.text) }
      return .done
    })

  /// The rows of `bench log`, each of which is measured at two sizes. A test compares them with the output.
  private static let logWorks = [
    "log.durable.100", "log.durable.1k", "log.durable.100.async", "log.group64.100",
    "log.bulk400.100", "log.verify.200", "log.open.clean", "log.open.crash", "log.syncs", "log.syncs.reading",
  ]

  /// Checks what a run of minutes would otherwise find out at its end.
  private static func checkLogOptions(_ arguments: Arguments, _ console: Console) throws {
    if let prefix = arguments["--only"], !logWorks.contains(where: { "\($0).x2".hasPrefix(prefix) }) {
      throw UsageError(
        message: "--only '\(prefix)' begins the name of no row; the rows are \(logWorks.joined(separator: ", ")), and "
          + "each of them with .x2 behind it")
    }
    guard let plot = arguments["--plot"] else { return }
    try checkParent(of: plot, console, purpose: "to write '\(plot)' in")
    if try console.fileSystem.kind(of: plot) == .directory {
      throw Failure(.cannotCreate, "cannot write '\(plot)': it is a directory", try: "the path of a file after --plot")
    }
  }

  private static func benchLog(_ arguments: Arguments, _ console: Console, rounds: Int) async throws -> ExitCode {
    let options = LogBenchOptions(
      rounds: arguments.has("--quick") ? min(rounds, 2) : rounds, isQuick: arguments.has("--quick"),
      prefix: arguments["--only"] ?? "", plotPath: arguments["--plot"])
    let work = try WorkDirectory(console, kept: nil, parent: arguments["--directory"])
    let rows: [LogBenchRow]
    do {
      let stop = Flag()
      try console.onInterrupt { stop.set() }
      var bench = LogBench(options, in: work.path, environment: console.environment, stop: stop)
      try await bench.run()
      rows = bench.rows
    } catch {
      try work.close()
      throw error
    }
    try work.close()
    if arguments.has("--json") {
      for row in rows { try console.print(row.json) }
      return .done
    }
    for line in LogBenchRow.table(rows) { try console.print(line) }
    let peer =
      SQLitePeer.version.map { "SQLite \($0), WAL, synchronous FULL" } ?? "SQLite is not installed on this machine"
    let load = Measures.loadAverage.map { "; load average \(LogBenchRow.figure($0))" } ?? ""
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
