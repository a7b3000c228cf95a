// `bench log`: the log's figures, beside SQLite and beside a bare loop of the same writes, all in one run.
//
// Whoever is compared takes turns, round by round, in an order that rotates, so that a machine that is busy for a
// while is busy for everybody; of the rounds the median counts. Every work is done at two sizes, to see that time
// grows no faster than the work. The works stand in LogBench+Works.swift and LogBench+Reading.swift, who takes part in
// Contenders.swift.

package import StrandlineHost
import StrandlineLog
package import StrandlineSystem

/// What the command line says.
package struct LogBenchOptions: Sendable {
  var rounds: Int
  /// Sizes that show that it works, and no figures worth quoting.
  var isQuick: Bool
  /// Only rows whose names begin so.
  var prefix: String
  var plotPath: String?

  package init(rounds: Int, isQuick: Bool, prefix: String, plotPath: String?) {
    self.rounds = rounds
    self.isQuick = isQuick
    self.prefix = prefix
    self.plotPath = plotPath
  }
}

/// The log under benchmark did not do what it was asked.
package struct LogBenchFailure: Error, CustomStringConvertible {
  package var description: String
}

/// One run of the benchmark.
package struct LogBench {
  let options: LogBenchOptions
  private let folder: String
  let environment: SystemEnvironment
  package private(set) var rows: [LogBenchRow] = []
  /// Set by an interrupt; looked at before every write, because a round may be long.
  let stop: Flag

  /// - Parameter folder: where it writes; what it leaves there goes with the folder.
  package init(_ options: LogBenchOptions, in folder: String, environment: SystemEnvironment, stop: Flag) {
    self.options = options
    self.folder = folder
    self.environment = environment
    self.stop = stop
  }

  /// The path of a name in the folder.
  func place(_ name: String) -> String { folder + "/" + name }

  /// SQLite can take part: it writes to the real disk, whatever disk the log is on.
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
    // Small sizes meet or miss nothing; counts are the same at every size.
    if options.isQuick, row.unit != "count" { row.bars = [] }
    rows.append(row)
  }

  func checkInterrupt() throws { try stop.check() }

  // MARK: Racing

  /// What one contender did in all rounds of one size.
  struct Record {
    var seconds: [Double] = []
    var latencies: [UInt64] = []
    var peakBytes = 0

    /// Work done in a second.
    func rates(_ amount: Double) -> [Double] { seconds.map { amount / max($0, 1e-6) } }
  }

  /// Lets all contenders do every one of the `sizes`, so many rounds, by turns.
  ///
  /// - Returns: by size, then by contender.
  func race(_ contenders: [any Contender], sizes: [Int], rounds: Int) async throws -> [[Record]] {
    var records = sizes.map { _ in contenders.map { _ in Record() } }
    for round in 0..<rounds {
      for turn in contenders.indices {
        let index = (turn + round) % contenders.count
        for (place, size) in sizes.enumerated() {
          try checkInterrupt()
          Measures.resetPeak()
          let sample = try await contenders[index].round(size)
          records[place][index].seconds.append(Double(sample.nanoseconds) / 1e9)
          records[place][index].latencies += sample.latencies
          records[place][index].peakBytes = max(records[place][index].peakBytes, Measures.peakBytes)
        }
      }
    }
    for contender in contenders { try contender.end() }
    return records
  }

  static func median(_ numbers: [Double]) -> Double {
    numbers.isEmpty ? 0 : numbers.sorted()[numbers.count / 2]
  }

  /// A number of calls so that the shorter of two sizes is a fair share of a second.
  func count(_ full: Int, quick: Int) -> Int { options.isQuick ? quick : full }
}

/// A figure, those beside it, and what was asked of it.
package struct LogBenchRow {
  var work: String
  var unit: String
  var ours: Double
  var sqlite: Double?
  var limit: Double?
  var residentBytes: Int
  /// The largest of the rounds.
  var max: Double?
  /// Of single calls, in microseconds.
  var p50: Double?
  var p99: Double?
  var rounds: Int
  var bars: [Bar] = []

  /// Something that the figure must hold.
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

  /// The time against that of half the work.
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

  /// The rows as a table for people.
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
