// The set as one text: small enough to be looked at, and expanded by a rule of two sentences (Formats/README.md).

import StrandlineSystem

/// The text of the set: how it is written, and how it is read.
enum ConformanceText {
  static let path = "Formats/vectors/conformance/cases.txt"

  private static let head = [
    "# Stores with right checksums and one statement that is wrong or odd, and what Formats/log.md demands of each.",
    "# A base begins without files, a case with those of its base; then each line `file NAME` changes one:",
    "# `OFFSET HEX` puts bytes at an offset (a file that is not there begins empty, a gap is zeros), `length N` cuts it or",
    "# lengthens it with zeros, `gone` removes it.",
    "",
  ]

  /// The whole text, made from the page and the table of cases.
  static func make() throws -> String {
    let layouts = try LogLayouts()
    var lines = head
    var bases: [ConformanceBase: [String: [UInt8]]] = [:]
    for base in ConformanceBase.allCases {
      let files = try base.make(layouts).encoded()
      bases[base] = files
      lines += ["base \(base)", "why \(base.about)"] + base.demand.lines
      if base == .journal { lines.append("role srvr") }
      lines += changes(from: [:], to: files) + [""]
    }
    for one in ConformanceCase.all {
      var image = try one.base.make(layouts)
      try one.change(&image)
      lines += ["case \(one.name) from \(one.base)", "why \(one.why)"] + one.demand.lines
      lines += changes(from: bases[one.base] ?? [:], to: try image.encoded()) + [""]
    }
    return lines.joined(separator: "\n")
  }

  private static func changes(from old: [String: [UInt8]], to new: [String: [UInt8]]) -> [String] {
    var lines: [String] = []
    for name in Set(old.keys).union(new.keys).sorted() {
      guard let bytes = new[name] else {
        lines.append("file \(name) gone")
        continue
      }
      lines += changes(of: name, from: old[name], to: bytes)
    }
    return lines
  }

  /// Runs of bytes that differ; runs with less than eight equal bytes between them are one.
  private static func changes(of name: String, from old: [UInt8]?, to new: [UInt8]) -> [String] {
    var lines: [String] = []
    let before = old ?? []
    if old == nil || before.count != new.count { lines.append("file \(name) length \(new.count)") }
    var run: Range<Int>?
    func finish() {
      if let run { lines.append("file \(name) \(run.lowerBound) \(hex(new[run]))") }
    }
    for place in new.indices where new[place] != (place < before.count ? before[place] : 0) {
      if let last = run, place - last.upperBound < 8 {
        run = last.lowerBound..<place + 1
      } else {
        finish()
        run = place..<place + 1
      }
    }
    finish()
    return lines
  }

  /// A store of the set, as it was read from the text.
  struct Store {
    var name: String
    var files: [String: [UInt8]]
    var role = "stor"
    /// The lines that say what is demanded.
    var demand: [String] = []
  }

  /// The stores of a text, in its order.
  static func read(_ text: String) throws -> [Store] {
    var stores: [Store] = []
    for line in text.split(separator: "\n") where !line.hasPrefix("#") {
      let words = line.split(separator: " ").map(String.init)
      switch words[0] {
      case "base":
        stores.append(Store(name: words[1], files: [:]))
      case "case":
        guard let base = stores.first(where: { $0.name == words[3] }) else { throw PageError("no base \(words[3])") }
        stores.append(Store(name: words[1], files: base.files, role: base.role))
      case "why":
        continue
      case "role":
        stores[stores.count - 1].role = words[1]
      case "file":
        try change(&stores[stores.count - 1].files, Array(words.dropFirst()))
      default:
        stores[stores.count - 1].demand.append(String(line))
      }
    }
    return stores
  }

  private static func change(_ files: inout [String: [UInt8]], _ words: [String]) throws {
    let name = words[0]
    if words[1] == "gone" {
      files[name] = nil
      return
    }
    var bytes = files[name] ?? []
    func lengthen(to count: Int) {
      if bytes.count < count { bytes += [UInt8](repeating: 0, count: count - bytes.count) }
    }
    if words[1] == "length" {
      let count = try number(words[2])
      lengthen(to: count)
      bytes.removeLast(bytes.count - count)
    } else {
      let place = try number(words[1])
      let digits = Array(words[2])
      let new = stride(from: 0, to: digits.count, by: 2).compactMap { UInt8(String(digits[$0...$0 + 1]), radix: 16) }
      lengthen(to: place + new.count)
      bytes.replaceSubrange(place..<place + new.count, with: new)
    }
    files[name] = bytes
  }
}
