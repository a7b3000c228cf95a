// The package's own text: its files, and Swift with comments and strings taken out, so that a rule about code is not
// broken by a sentence about the rule.

import StrandlineSystem

/// A file of the package.
struct SourceText: Sendable {
  /// From the package's folder on.
  var path: String
  var text: String
  /// The text without comments, string literals and names in backticks; lines stay where they are.
  var code: String

  init(_ path: String, _ text: String) {
    self.path = path
    self.text = text
    code = path.hasSuffix(".swift") ? SourceText.code(text) : text
  }

  /// The module or test target that it belongs to; empty at the top.
  var target: String {
    let parts = path.split(separator: "/")
    return parts.count > 2 && (parts[0] == "Sources" || parts[0] == "Tests") ? String(parts[1]) : ""
  }

  var codeLines: [Substring] { code.split(separator: "\n", omittingEmptySubsequences: false) }

  /// Places at which a rule is broken, as "file:line: what".
  func findings(_ what: String, where isBroken: (Substring) -> Bool) -> [String] {
    codeLines.enumerated().filter { isBroken($0.element) }.map { "\(path):\($0.offset + 1): \(what)" }
  }

  /// Takes comments, strings and backticked names out of Swift.
  static func code(_ text: String) -> String {
    var out: [UInt8] = []
    let bytes = Array(text.utf8)
    var at = 0
    func starts(_ word: String, _ place: Int) -> Bool { bytes[place...].starts(with: word.utf8) }
    /// Passes over everything up to and with `end`, keeping the line ends.
    func skip(from start: Int, to end: String, escapes: Bool) -> Int {
      let end = Array(end.utf8)
      var place = start
      while place < bytes.count {
        if escapes, bytes[place] == UInt8(ascii: "\\") {
          place += 2
          continue
        }
        if bytes[place] == end[0], bytes[place...].starts(with: end) { return place + end.count }
        if bytes[place] == UInt8(ascii: "\n") {
          out.append(bytes[place])
          // A string of one line ends with it, whatever it holds.
          if end.count == 1 { return place + 1 }
        }
        place += 1
      }
      return place
    }
    let openings = Set("/#\"`".utf8)
    while at < bytes.count {
      if !openings.contains(bytes[at]) {
        out.append(bytes[at])
        at += 1
      } else if starts("//", at) {
        while at < bytes.count, bytes[at] != UInt8(ascii: "\n") { at += 1 }
      } else if starts("/*", at) {
        at = skip(from: at + 2, to: "*/", escapes: false)
      } else if starts("#\"\"\"", at) {
        at = skip(from: at + 4, to: "\"\"\"#", escapes: false)
      } else if starts("#\"", at) {
        at = skip(from: at + 2, to: "\"#", escapes: false)
      } else if starts("\"\"\"", at) {
        at = skip(from: at + 3, to: "\"\"\"", escapes: true)
      } else if starts("\"", at) {
        at = skip(from: at + 1, to: "\"", escapes: true)
      } else if starts("`", at) {
        at = skip(from: at + 1, to: "`", escapes: false)
      } else {
        out.append(bytes[at])
        at += 1
      }
    }
    return String(decoding: out, as: UTF8.self)
  }
}

extension Substring {
  /// Its words: runs of letters, digits and underscores.
  var words: [Substring] { split { !($0.isLetter || $0.isNumber || $0 == "_") } }
}

/// The package's folder.
enum House {
  static let disk = POSIXFileSystem()
  static let root = String(
    #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/"))

  static func text(_ path: String) throws -> String {
    let file = try disk.open("\(root)/\(path)", .read)
    defer { file.close() }
    return String(decoding: try file.read(at: 0, count: Int(try file.size())), as: UTF8.self)
  }

  static func exists(_ path: String) throws -> Bool { try disk.kind(of: "\(root)/\(path)") != .absent }

  /// Every file below a folder, sorted; dotfiles aside.
  static func files(_ folder: String) throws -> [String] {
    var result: [String] = []
    for name in try disk.list("\(root)/\(folder)").sorted() where !name.hasPrefix(".") && name != "__pycache__" {
      let path = "\(folder)/\(name)"
      switch try disk.kind(of: "\(root)/\(path)") {
      case .directory: result += try files(path)
      default: result.append(path)
      }
    }
    return result
  }

  /// Every file that people read: sources of all languages, pages, the manifest. Golden bytes are none.
  static func everything() throws -> [SourceText] { try read.get() }

  /// Read once: every rule looks at the same text.
  private static let read = Result<[SourceText], any Error> {
    let kinds = [".swift", ".md", ".c", ".h", ".py", ".txt", ".jsonl", ".ksy"]
    let paths = try files("Sources") + files("Tests") + files("Formats") + ["Package.swift", "README.md"]
    return try paths.filter { path in kinds.contains { path.hasSuffix($0) } }.map { SourceText($0, try text($0)) }
  }

  static func swift() throws -> [SourceText] {
    try everything().filter { $0.path.hasSuffix(".swift") && $0.path != "Package.swift" }
  }
}
