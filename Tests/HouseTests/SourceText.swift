// The package's own files, and Swift code without comments and strings, so that a sentence about a rule in a comment does
// not break the rule.

import StrandlineHost
import StrandlineSystem

/// A file of the package.
struct SourceText: Sendable {
  /// The path relative to the package's directory.
  var path: String
  var text: String
  /// The text without comments and string literals, and with names in backticks as underscores. Line numbers do not change.
  let code: String
  /// The lines of the code, split once for all rules.
  let codeLines: [Substring]

  init(_ path: String, _ text: String) {
    self.path = path
    self.text = text
    code = path.hasSuffix(".swift") ? SourceText.code(text) : text
    codeLines = code.split(separator: "\n", omittingEmptySubsequences: false)
  }

  /// The module or test target that it belongs to; empty at the top.
  var target: String {
    let parts = path.split(separator: "/")
    return parts.count > 2 && (parts[0] == "Sources" || parts[0] == "Tests") ? String(parts[1]) : ""
  }

  /// The violations of a rule, in the form "file:line: what".
  func findings(_ what: String, where isBroken: (Substring) -> Bool) -> [String] {
    codeLines.enumerated().filter { isBroken($0.element) }.map { "\(path):\($0.offset + 1): \(what)" }
  }

  /// Removes comments, strings and backticked names from Swift. The code in a string's interpolations stays.
  static func code(_ text: String) -> String {
    var reader = CodeReader(text)
    reader.readCode(isInterpolated: false)
    return String(decoding: reader.out, as: UTF8.self)
  }
}

/// Reads Swift source and keeps the code.
private struct CodeReader {
  private let bytes: [UInt8]
  private var at = 0
  private(set) var out: [UInt8] = []

  init(_ text: String) {
    bytes = Array(text.utf8)
    out.reserveCapacity(bytes.count)
  }

  private func byte(_ place: Int) -> UInt8 { place < bytes.count ? bytes[place] : 0 }

  private func starts(_ word: StaticString) -> Bool {
    for (offset, character) in word.description.utf8.enumerated() where byte(at + offset) != character { return false }
    return true
  }

  /// Reads to the end of the text, or over the parenthesis that ends an interpolation.
  mutating func readCode(isInterpolated: Bool) {
    var depth = 0
    while at < bytes.count {
      switch bytes[at] {
      case UInt8(ascii: "/") where byte(at + 1) == UInt8(ascii: "/"):
        while at < bytes.count, bytes[at] != UInt8(ascii: "\n") { at += 1 }
      case UInt8(ascii: "/") where byte(at + 1) == UInt8(ascii: "*"): skipComment()
      case UInt8(ascii: "`"):
        at += 1
        while at < bytes.count, bytes[at] != UInt8(ascii: "`") { at += 1 }
        at += 1
        out.append(UInt8(ascii: "_"))
      case UInt8(ascii: "\""): skipString(hashes: 0)
      case UInt8(ascii: "#"):
        var hashes = 1
        while byte(at + hashes) == UInt8(ascii: "#") { hashes += 1 }
        if byte(at + hashes) == UInt8(ascii: "\"") {
          at += hashes
          skipString(hashes: hashes)
        } else {
          out.append(contentsOf: bytes[at..<at + hashes])
          at += hashes
        }
      case let other:
        if other == UInt8(ascii: "(") { depth += 1 }
        if other == UInt8(ascii: ")") {
          if isInterpolated, depth == 0 {
            at += 1
            return
          }
          depth -= 1
        }
        out.append(other)
        at += 1
      }
    }
  }

  /// Comments nest.
  private mutating func skipComment() {
    var depth = 0
    repeat {
      if starts("/*") {
        depth += 1
        at += 2
      } else if starts("*/") {
        depth -= 1
        at += 2
      } else {
        if bytes[at] == UInt8(ascii: "\n") { out.append(bytes[at]) }
        at += 1
      }
    } while depth > 0 && at < bytes.count
  }

  /// Skips a string literal that begins at the current position. Keeps its line ends and its interpolations.
  private mutating func skipString(hashes: Int) {
    let quotes = starts("\"\"\"") ? 3 : 1
    at += quotes
    func isFollowed(from place: Int) -> Bool {
      (0..<hashes).allSatisfy { byte(place + $0) == UInt8(ascii: "#") }
    }
    while at < bytes.count {
      switch bytes[at] {
      case UInt8(ascii: "\\") where isFollowed(from: at + 1):
        at += 1 + hashes
        if byte(at) == UInt8(ascii: "(") {
          at += 1
          out.append(contentsOf: " (".utf8)
          readCode(isInterpolated: true)
          out.append(contentsOf: ") ".utf8)
        } else {
          // An escaped line end is kept, so that line numbers do not change.
          if byte(at) != UInt8(ascii: "\n") { at += 1 }
        }
      case UInt8(ascii: "\"")
      where (quotes == 1 || starts("\"\"\"")) && isFollowed(from: at + quotes):
        at += quotes + hashes
        return
      case UInt8(ascii: "\n"):
        out.append(bytes[at])
        at += 1
        // A single-line string ends at the end of the line at the latest.
        if quotes == 1 { return }
      default: at += 1
      }
    }
  }
}

extension UInt8 {
  /// A letter, a digit or an underscore; every byte of a character beyond ASCII counts as a letter.
  var isPartOfWord: Bool {
    switch self {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), 0x80...: true
    default: false
    }
  }
}

/// A declaration at the top of a Swift file, and the attributes before it.
struct TopLevelDeclaration {
  /// From the end of the declaration before to the first brace that opens a body.
  var head: Substring
  /// The braces and all between them.
  var body: Substring

  /// Whether it is a test or contains one.
  var hasTest: Bool { head.contains("@Test") || body.contains("@Test") }

  /// The name of a type or of what an extension extends; nil for a function, and for a name in backticks.
  var name: Substring? {
    let words = head.words
    let kinds: Set<Substring> = ["struct", "class", "enum", "actor", "extension"]
    guard let place = words.lastIndex(where: { kinds.contains($0) }) else { return nil }
    return words[(place + 1)...].first
  }

  /// The declarations of a file that have a body. A brace in parentheses is a closure in an attribute or a default value.
  static func all(in source: SourceText) -> [TopLevelDeclaration] {
    var result: [TopLevelDeclaration] = []
    let code = source.code[...]
    var (head, body) = (code.startIndex, code.startIndex)
    var (braces, parentheses) = (0, 0)
    for place in code.utf8.indices {
      switch (code.utf8[place], braces) {
      case (UInt8(ascii: "("), 0): parentheses += 1
      case (UInt8(ascii: ")"), 0): parentheses -= 1
      case (UInt8(ascii: "{"), _) where parentheses == 0:
        if braces == 0 { body = place }
        braces += 1
      case (UInt8(ascii: "}"), _) where parentheses == 0:
        braces -= 1
        if braces == 0 {
          let end = code.utf8.index(after: place)
          result.append(TopLevelDeclaration(head: code[head..<body], body: code[body..<end]))
          head = end
        }
      default: break
      }
    }
    return result
  }
}

extension Substring {
  /// Its words: runs of letters, digits and underscores.
  var words: [Substring] { utf8.split { !$0.isPartOfWord }.map { Substring($0) } }
}

/// The package's directory.
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

  /// Every file below a directory, sorted, except those whose names begin with a dot.
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

  /// Every text file: sources of all languages, pages, the manifest. Golden files are not text.
  static func everything() throws -> [SourceText] { try read.get() }

  /// Read once, because every rule uses the same text.
  private static let read = Result<[SourceText], any Error> {
    let kinds = [".swift", ".md", ".c", ".h", ".py", ".txt", ".jsonl", ".ksy"]
    let paths = try files("Sources") + files("Tests") + files("Formats") + ["Package.swift", "README.md"]
    return try paths.filter { path in kinds.contains { path.hasSuffix($0) } }.map { SourceText($0, try text($0)) }
  }

  static func swift() throws -> [SourceText] {
    try everything().filter { $0.path.hasSuffix(".swift") && $0.path != "Package.swift" }
  }
}
