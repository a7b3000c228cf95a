// The elements of the plots as SVG, and saving one.

import StrandlineHost
package import StrandlineSystem

/// Elements of a document, as text.
package enum SVG {
  /// The attributes of a title.
  package static let heading = "font-size=\"17\" font-weight=\"bold\""

  /// The beginning of a document, with a white background.
  package static func open(width: Double, height: Double) -> String {
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(short(width)) \(short(height))\" "
      + "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
      + "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
  }

  package static func short(_ number: Double) -> String {
    let tenths = Int((number * 10).rounded())
    return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(abs(tenths % 10))"
  }

  package static func stroke(
    _ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double, color: String = "#ddd", width: Double = 1
  ) -> String {
    "<line x1=\"\(short(x1))\" y1=\"\(short(y1))\" x2=\"\(short(x2))\" y2=\"\(short(y2))\" stroke=\"\(color)\" "
      + "stroke-width=\"\(short(width))\"/>"
  }

  package static func box(_ x: Double, _ y: Double, _ width: Double, _ height: Double, _ color: String) -> String {
    "<rect x=\"\(short(x))\" y=\"\(short(y))\" width=\"\(short(width))\" height=\"\(short(height))\" "
      + "fill=\"\(color)\"/>"
  }

  package static func text(_ text: String, _ x: Double, _ y: Double, _ anchor: String, _ more: String = "") -> String {
    let space = more.isEmpty ? "" : " " + more
    return "<text x=\"\(short(x))\" y=\"\(short(y))\" text-anchor=\"\(anchor)\"\(space)>\(text)</text>"
  }

  /// Writes a document to `path` and atomically replaces a file of that name.
  package static func save(_ document: String, at path: String, _ fileSystem: any FileSystem) throws {
    let temporary = path + ".tmp"
    if try fileSystem.kind(of: temporary) != .absent { try fileSystem.unlink(temporary) }
    let file = try fileSystem.open(temporary, .create)
    defer { file.close() }
    try file.write(Array(document.utf8), at: 0)
    try file.sync(.durable)
    try fileSystem.rename(temporary, to: path)
  }
}
