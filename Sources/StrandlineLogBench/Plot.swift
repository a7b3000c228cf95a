// A plot of a benchmark as SVG: lines over two logarithmic axes.

import StrandlineHost
import StrandlineSystem

/// A plot with logarithmic axes.
struct Plot {
  struct Line {
    var name: String
    var points: [(x: Double, y: Double)] = []
  }

  var title: String
  var horizontal: String
  var vertical: String
  var lines: [Line]

  private static let (width, height) = (760.0, 480.0)
  private static let (left, right, top, bottom) = (90.0, 30.0, 50.0, 70.0)
  private static let colors = ["#0b6e8f", "#c1582b", "#4a7c2c"]

  /// The plot as an SVG document.
  var svg: String {
    let points = lines.flatMap(\.points)
    let xs = Self.doublings(from: 1, to: points.map(\.x).max() ?? 1)
    let ys = Self.tens(from: points.map(\.y).min() ?? 1, to: points.map(\.y).max() ?? 1)
    func x(_ value: Double) -> Double {
      Self.left + Self.part(value, xs) * (Self.width - Self.left - Self.right)
    }
    func y(_ value: Double) -> Double {
      Self.height - Self.bottom - Self.part(value, ys) * (Self.height - Self.top - Self.bottom)
    }
    let (floor, wall) = (Self.height - Self.bottom, Self.width - Self.right)
    var parts = [
      SVG.open(width: Self.width, height: Self.height), SVG.text(title, Self.width / 2, 28, "middle", SVG.heading),
    ]
    for value in xs {
      parts.append(SVG.stroke(x(value), Self.top, x(value), floor))
      parts.append(SVG.text(Words.count(Int(value)), x(value), floor + 20, "middle"))
    }
    for value in ys {
      parts.append(SVG.stroke(Self.left, y(value), wall, y(value)))
      parts.append(SVG.text(Words.count(Int(value)), Self.left - 8, y(value) + 4, "end"))
    }
    parts.append(SVG.text(horizontal, (Self.left + wall) / 2, floor + 48, "middle"))
    let middle = (Self.top + floor) / 2
    parts.append(
      SVG.text(vertical, 20, middle, "middle", "transform=\"rotate(-90 20 \(SVG.short(middle)))\""))
    for (index, line) in lines.enumerated() {
      let color = Self.colors[index % Self.colors.count]
      let path = line.points.map { "\(SVG.short(x($0.x))),\(SVG.short(y($0.y)))" }.joined(separator: " ")
      parts.append("<polyline points=\"\(path)\" fill=\"none\" stroke=\"\(color)\" stroke-width=\"2.5\"/>")
      for point in line.points {
        parts.append(
          "<circle cx=\"\(SVG.short(x(point.x)))\" cy=\"\(SVG.short(y(point.y)))\" r=\"4\" fill=\"\(color)\">"
            + "<title>\(Words.count(Int(point.x))): \(Words.count(Int(point.y)))</title></circle>")
      }
      let row = Self.top + 18 + Double(index) * 20
      parts.append(SVG.box(Self.left + 12, row - 10, 12, 12, color))
      parts.append(SVG.text(line.name, Self.left + 30, row, "start"))
    }
    return (parts + ["</svg>"]).joined(separator: "\n") + "\n"
  }

  /// Writes the plot to `path` and atomically replaces a file of that name.
  func save(at path: String, _ fileSystem: any FileSystem) throws {
    try SVG.save(svg, at: path, fileSystem)
  }

  // MARK: Axes

  /// 1, 2, 4 … up to at least `most`.
  static func doublings(from least: Double, to most: Double) -> [Double] {
    var result = [least, least * 2]
    while let last = result.last, last < most { result.append(last * 2) }
    return result
  }

  /// The powers of ten that enclose a range.
  static func tens(from least: Double, to most: Double) -> [Double] {
    var first = 1.0
    while first * 10 <= least { first *= 10 }
    var result = [first, first * 10]
    while let last = result.last, last < most { result.append(last * 10) }
    return result
  }

  /// The position of a value between the ends of a logarithmic axis, from 0 to 1.
  static func part(_ value: Double, _ axis: [Double]) -> Double {
    guard let first = axis.first, let last = axis.last, value > first else { return 0 }
    return logarithm(value / first) / logarithm(last / first)
  }

  /// The binary logarithm of a number of at least 1, one binary digit at a time, because no math library is imported.
  private static func logarithm(_ value: Double) -> Double {
    var rest = Swift.max(1, value)
    var result = Double(rest.exponent)
    rest = rest.significand
    var step = 0.5
    for _ in 0..<24 {
      rest *= rest
      if rest >= 2 {
        result += step
        rest /= 2
      }
      step /= 2
    }
    return result
  }
}
