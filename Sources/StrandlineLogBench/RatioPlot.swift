// A plot of a benchmark as SVG: a bar a row, as long as the row is faster than SQLite, on a logarithmic axis.

import StrandlineHost
package import StrandlineSystem

/// A plot of rows beside SQLite. Rows in which SQLite takes no part are left out.
package struct RatioPlot {
  private let title: String
  private let rows: [BenchRow]

  package init(title: String, rows: [BenchRow]) {
    self.title = title
    self.rows = rows.filter { $0.speedup != nil }
  }

  private static let (width, left, right) = (760.0, 210.0, 70.0)
  private static let (top, bottom, step) = (60.0, 56.0, 24.0)
  private static let (met, missed) = ("#0b6e8f", "#c1582b")

  /// The plot as an SVG document.
  private var svg: String {
    let ratios = rows.compactMap(\.speedup) + rows.compactMap(\.sqliteBar) + [1]
    let (least, most) = (ratios.min() ?? 1, ratios.max() ?? 1)
    // The axis has powers of ten on both sides of 1.
    let below = Plot.tens(from: 1, to: 1 / least)
    let axis = (least < 1 ? below.dropFirst().reversed().map { 1 / $0 } : []) + Plot.tens(from: 1, to: most)
    let height = Self.top + Double(rows.count) * Self.step + Self.bottom
    let floor = height - Self.bottom
    func x(_ ratio: Double) -> Double { Self.left + Plot.part(ratio, axis) * (Self.width - Self.left - Self.right) }
    var parts = [
      SVG.open(width: Self.width, height: height), SVG.text(title, Self.width / 2, 28, "middle", SVG.heading),
    ]
    for value in axis {
      parts.append(SVG.stroke(x(value), Self.top - 8, x(value), floor))
      let name = value < 1 ? "1/" + Words.count(Int((1 / value).rounded())) : Words.count(Int(value))
      parts.append(SVG.text(name, x(value), floor + 18, "middle"))
    }
    for (index, row) in rows.enumerated() {
      guard let ratio = row.speedup else { continue }
      let y = Self.top + Double(index) * Self.step
      let (from, to) = (min(x(1), x(ratio)), max(x(1), x(ratio)))
      let color = row.bars.allSatisfy(\.isMet) ? Self.met : Self.missed
      parts.append(SVG.text(row.work, Self.left - 10, y + 13, "end"))
      parts.append(SVG.box(from, y + 3, max(to - from, 1), 13, color))
      parts.append(SVG.text(BenchRow.figure(ratio) + " ×", Self.width - 8, y + 13, "end"))
      if let bar = row.sqliteBar { parts.append(SVG.stroke(x(bar), y, x(bar), y + 19, color: "#222", width: 2.5)) }
    }
    parts.append(
      SVG.text(
        "times as fast as SQLite; the black line is the bar beside SQLite, red misses a bar", Self.width / 2,
        floor + 42, "middle"))
    return (parts + ["</svg>"]).joined(separator: "\n") + "\n"
  }

  /// Writes the plot to `path` and atomically replaces a file of that name.
  package func save(at path: String, _ fileSystem: any FileSystem) throws {
    try SVG.save(svg, at: path, fileSystem)
  }
}
