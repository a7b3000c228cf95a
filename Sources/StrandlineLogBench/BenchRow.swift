// One row of a benchmark: the figures of the contenders, the bars that ours must meet, and both as text and as JSON.

import StrandlineHost

/// A row: our figure, those of SQLite and of the bare loop, and the bars that ours must meet.
package struct BenchRow: Sendable {
  package var work: String
  package var unit: String
  package var ours: Double
  package var sqlite: Double?
  package var limit: Double?
  package var residentBytes: Int
  /// The largest figure of all rounds.
  package var max: Double?
  /// The median and the 99th percentile of single calls in microseconds.
  package var p50: Double?
  package var p99: Double?
  package var rounds: Int
  package var bars: [Bar] = []
  /// The bar that is relative to SQLite, as a ratio of speeds; nil if there is none.
  var sqliteBar: Double?

  package init(
    work: String, unit: String, ours: Double, sqlite: Double? = nil, limit: Double? = nil, residentBytes: Int,
    max: Double? = nil, p50: Double? = nil, p99: Double? = nil, rounds: Int
  ) {
    self.work = work
    self.unit = unit
    self.ours = ours
    self.sqlite = sqlite
    self.limit = limit
    self.residentBytes = residentBytes
    self.max = max
    self.p50 = p50
    self.p99 = p99
    self.rounds = rounds
  }

  /// A bound for the figure.
  package struct Bar: Sendable {
    package var text: String
    package var isMet: Bool

    package init(text: String, isMet: Bool) {
      self.text = text
      self.isMet = isMet
    }
  }

  package mutating func atLeast(_ bound: Double, of other: Double?, _ name: String) {
    guard let other, other > 0 else { return }
    bars.append(
      Bar(text: "\(Self.figure(ours / other)) × \(name) (≥ \(Self.figure(bound)))", isMet: ours / other >= bound))
  }

  package mutating func atLeast(_ bound: Double) {
    bars.append(Bar(text: "≥ \(Self.figure(bound))", isMet: ours >= bound))
  }

  package mutating func atMost(_ bound: Double) {
    bars.append(Bar(text: "≤ \(Self.figure(bound))", isMet: ours <= bound))
  }

  /// Adds the bar that a time is at most `bound` times another one.
  package mutating func atMost(_ bound: Double, of other: Double, _ name: String) {
    guard other > 0 else { return }
    bars.append(
      Bar(text: "\(Self.figure(ours / other)) × \(name) (≤ \(Self.figure(bound)))", isMet: ours / other <= bound))
  }

  /// Adds the bar that a rate is at least `bound` times SQLite's.
  package mutating func atLeastSQLite(times bound: Double) {
    sqliteBar = bound
    atLeast(bound, of: sqlite, "SQLite")
  }

  /// Adds the bar that a time is at most `bound` times SQLite's.
  package mutating func atMostSQLite(times bound: Double) {
    sqliteBar = 1 / bound
    guard let sqlite, sqlite > 0 else { return }
    bars.append(
      Bar(
        text: "\(Self.figure(ours / sqlite)) × SQLite (≤ \(Self.figure(bound)))", isMet: ours / sqlite <= bound))
  }

  /// Adds the bar that the time (in a row of bytes: the figure) is at most `bound` times that of half the work.
  package mutating func grows(_ ratio: Double, atMost bound: Double = 2.2) {
    let what = unit == "B" ? "that" : "the time"
    bars.append(
      Bar(text: "\(Self.figure(ratio)) × \(what) of half (≤ \(Self.figure(bound)))", isMet: ratio <= bound))
  }

  /// How many times as fast as SQLite this is; nil if SQLite takes no part.
  var speedup: Double? {
    guard let sqlite, sqlite > 0, ours > 0 else { return nil }
    return unit == "ms" ? sqlite / ours : ours / sqlite
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
  package static func table(_ rows: [BenchRow]) -> [String] {
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
