// `bench log`: measures the log next to SQLite and to a bare loop of the same writes, all in one run.
//
// The contenders alternate, round by round, in an order that rotates, so that other load on the machine affects all of
// them alike; the median of the rounds counts. Each workload runs at two sizes, to check that its time grows no faster
// than its size. LogBench+Works.swift and LogBench+Reading.swift have the workloads, Contenders.swift the contenders.

package import StrandlineHost
import StrandlineLog
package import StrandlineSystem

/// The options of the command line.
package struct LogBenchOptions: Sendable {
  var rounds: Int
  /// Whether to use small sizes that test the benchmark; the figures then mean nothing.
  var isQuick: Bool
  /// Only the rows whose names begin with this.
  var prefix: String
  var plotPath: String?

  package init(rounds: Int, isQuick: Bool, prefix: String, plotPath: String?) {
    self.rounds = rounds
    self.isQuick = isQuick
    self.prefix = prefix
    self.plotPath = plotPath
  }
}

/// The log under benchmark gave a wrong result.
package struct LogBenchFailure: Error, CustomStringConvertible {
  package var description: String
}

/// One run of the benchmark.
package struct LogBench {
  let options: LogBenchOptions
  private let directory: String
  let environment: SystemEnvironment
  package private(set) var rows: [LogBenchRow] = []
  /// Set by an interrupt. Checked before every write, because a round may be long.
  let stop: Flag

  /// - Parameter directory: Where the benchmark writes. It leaves files there, which the caller removes.
  package init(_ options: LogBenchOptions, in directory: String, environment: SystemEnvironment, stop: Flag) {
    self.options = options
    self.directory = directory
    self.environment = environment
    self.stop = stop
  }

  /// The path of a name in the directory.
  func path(_ name: String) -> String { directory + "/" + name }

  /// Whether SQLite can be compared: it is installed, and the log is on the real file system as it is.
  var hasSQLite: Bool { environment.fileSystem is POSIXFileSystem && SQLitePeer.version != nil }

  package mutating func run() async throws {
    try await measureWrites()
    try await measureGroups()
    try await measureBulk()
    try await measureReading()
    try await countSyncs()
    if let path = options.plotPath { try await plot(to: path) }
  }

  func wants(_ work: String) -> Bool { work.hasPrefix(options.prefix) || options.prefix.hasPrefix(work) }

  mutating func add(_ row: LogBenchRow) {
    guard row.work.hasPrefix(options.prefix) else { return }
    var row = row
    // At small sizes the bars of times and rates mean nothing; counts do not depend on the size.
    if options.isQuick, row.unit != "count" { row.bars = [] }
    rows.append(row)
  }

  func checkInterrupt() throws { try stop.check() }

  // MARK: Comparing

  /// The measurements of one contender in all rounds of one size.
  struct Record {
    var seconds: [Double] = []
    var latencies: [UInt64] = []
    var peakBytes = 0

    /// The rate of each round: `amount` of work per second.
    func rates(_ amount: Double) -> [Double] { seconds.map { amount / max($0, 1e-6) } }
  }

  /// Runs `rounds` rounds of each of the `sizes` with each contender; the contenders alternate.
  ///
  /// - Returns: The measurements by size, then by contender.
  func race(_ contenders: [any Contender], sizes: [Int], rounds: Int) async throws -> [[Record]] {
    var records = sizes.map { _ in contenders.map { _ in Record() } }
    for round in 0..<rounds {
      for turn in contenders.indices {
        let index = (turn + round) % contenders.count
        for (sizeIndex, size) in sizes.enumerated() {
          try checkInterrupt()
          Measures.resetPeak()
          let sample = try await contenders[index].round(size)
          records[sizeIndex][index].seconds.append(Double(sample.nanoseconds) / 1e9)
          records[sizeIndex][index].latencies += sample.latencies
          records[sizeIndex][index].peakBytes = max(records[sizeIndex][index].peakBytes, Measures.peakBytes)
        }
      }
    }
    for contender in contenders { try contender.end() }
    return records
  }

  static func median(_ numbers: [Double]) -> Double {
    numbers.isEmpty ? 0 : numbers.sorted()[numbers.count / 2]
  }

  /// The number of operations: `full`, or `quick` if the sizes are small.
  func count(_ full: Int, quick: Int) -> Int { options.isQuick ? quick : full }
}

/// A row: our figure, those of SQLite and of the bare loop, and the bars that ours must meet.
package struct LogBenchRow {
  var work: String
  var unit: String
  var ours: Double
  var sqlite: Double?
  var limit: Double?
  var residentBytes: Int
  /// The largest figure of all rounds.
  var max: Double?
  /// The median and the 99th percentile of single calls in microseconds.
  var p50: Double?
  var p99: Double?
  var rounds: Int
  var bars: [Bar] = []

  /// A bound for the figure.
  struct Bar {
    var text: String
    var isMet: Bool
  }

  mutating func atLeast(_ bound: Double, of other: Double?, _ name: String) {
    guard let other, other > 0 else { return }
    bars.append(
      Bar(text: "\(Self.figure(ours / other)) × \(name) (≥ \(Self.figure(bound)))", isMet: ours / other >= bound))
  }

  mutating func atLeast(_ bound: Double) {
    bars.append(Bar(text: "≥ \(Self.figure(bound))", isMet: ours >= bound))
  }

  mutating func atMost(_ bound: Double) {
    bars.append(Bar(text: "≤ \(Self.figure(bound))", isMet: ours <= bound))
  }

  /// Adds the bar that the time is at most 2.2 times that of half the work.
  mutating func grows(_ ratio: Double) {
    bars.append(Bar(text: "\(Self.figure(ratio)) × the time of half (≤ 2.2)", isMet: ratio <= 2.2))
  }

  package var json: String {
    var pairs: [(String, String)] = [
      ("limit", Self.plain(limit)), ("ours", Self.plain(ours)), ("rounds", "\(rounds)"),
      ("rss_bytes", "\(residentBytes)"),
      ("sqlite", Self.plain(sqlite)), ("unit", "\"\(unit)\""), ("work", "\"\(work)\""),
    ]
    if let max { pairs.append(("max", Self.plain(max))) }
    if let p50 { pairs.append(("p50", Self.plain(p50))) }
    if let p99 { pairs.append(("p99", Self.plain(p99))) }
    if !bars.isEmpty { pairs.append(("bar", bars.allSatisfy(\.isMet) ? "\"met\"" : "\"missed\"")) }
    return "{" + pairs.sorted { $0.0 < $1.0 }.map { "\"\($0.0)\":\($0.1)" }.joined(separator: ",") + "}"
  }

  static func plain(_ number: Double?) -> String {
    guard let number, number.isFinite, abs(number) < 1e15 else { return "null" }
    let rounded = (number * 1000).rounded() / 1000
    return rounded == rounded.rounded() ? "\(Int64(rounded))" : "\(rounded)"
  }

  package static func figure(_ number: Double?) -> String {
    guard let number, number.isFinite, abs(number) < 1e15 else { return "–" }
    return number >= 100 ? Words.count(Int(number.rounded())) : "\((number * 100).rounded() / 100)"
  }

  /// The rows as a text table.
  package static func table(_ rows: [LogBenchRow]) -> [String] {
    let heads = ["work", "unit", "ours", "max", "SQLite", "limit", "p50 µs", "p99 µs", "memory", ""]
    let cells = rows.map { row in
      [
        row.work, row.unit, figure(row.ours), figure(row.max), figure(row.sqlite), figure(row.limit), figure(row.p50),
        figure(row.p99), Words.bytes(UInt64(row.residentBytes)),
        row.bars.map { ($0.isMet ? "ok " : "MISSED ") + $0.text }.joined(separator: "; "),
      ]
    }
    let widths = heads.indices.map { column in ([heads] + cells).map { $0[column].count }.max() ?? 0 }
    return ([heads] + cells).map { line in
      line.enumerated().map { column, cell in
        let space = String(repeating: " ", count: widths[column] - cell.count)
        if column == heads.count - 1 { return cell }
        return column < 2 ? cell + space : space + cell
      }.joined(separator: "  ")
    }
  }
}
