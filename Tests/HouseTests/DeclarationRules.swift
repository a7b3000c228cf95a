// The rules about declarations: a limit for the length of functions, and no unused declarations.

extension Rules {
  /// The most lines of a function, from its keyword to its closing brace. TigerBeetle has the same limit.
  static let functionLinesMax = 70

  /// Functions, accessors, and closures outside of functions, that are too long.
  ///
  /// - Parameter exceptions: "path: declaration" of functions that are still too long. An exception that is not needed is a finding too.
  static func functionsAreShort(_ sources: [SourceText], exceptions: Set<String> = []) -> [String] {
    var unneeded = exceptions
    var findings: [String] = []
    for source in sources {
      for block in CodeStructure(source).blocks
      where block.kind == .code && block.isOutermost && block.lines > functionLinesMax {
        let name = block.header.split(separator: " ").prefix(2).joined(separator: " ")
        if unneeded.remove("\(source.path): \(name)") != nil { continue }
        findings.append("\(source.path):\(block.firstLine): \(name) has \(block.lines) lines")
      }
    }
    return findings + unneeded.sorted().map { "an unneeded exception: \($0)" }
  }

  /// Targets whose callers are tests.
  private static let testedWith: Set<String> = [
    "StrandlineSimulation", "StrandlineTesting", "StrandlineLogProofs", "StrandlineSyncProofs",
  ]

  /// Declarations that the standard library and Foundation call by name, and no source of ours.
  private static let calledFromOutside: Set<Substring> = [
    "description", "debugDescription", "hash", "next", "makeIterator", "encode", "errorDescription",
    "callAsFunction", "superEncoder", "superDecoder", "userInfo", "urlSession",
  ]

  /// An enumeration with one of these raw types is decoded from bytes, so no source need name its cases.
  private static let rawTypes: Set<Substring> = ["UInt8", "UInt16", "UInt32", "Int32", "Character", "String"]

  /// The beginning of the comment of a declaration that only tests use. The reason follows it.
  static let testOnlyComment = "/// For tests:"

  /// Declarations that are not public and that no source names outside of their declaration. Matches by name: of two
  /// declarations with one name, the use of one counts for both.
  ///
  /// - Parameter exceptions: "path: name" of declarations that are allowed for now. An exception that is not needed is a finding too.
  static func everythingIsUsed(_ sources: [SourceText], exceptions: Set<String> = []) -> [String] {
    var unneeded = exceptions
    var inTests: Set<Substring> = []
    var inSources: [Substring: Int] = [:]
    var files: [(source: SourceText, structure: CodeStructure, words: [Substring: Int])] = []
    for source in sources {
      let words = source.code[...].words
      guard source.path.hasPrefix("Sources/") else {
        inTests.formUnion(words)
        continue
      }
      let counts = Dictionary(words.lazy.map { ($0, 1) }, uniquingKeysWith: +)
      inSources.merge(counts, uniquingKeysWith: +)
      files.append((source, CodeStructure(source), counts))
    }
    let declared = Dictionary(
      files.lazy.flatMap { $0.structure.declarations.lazy.map { ($0.name, 1) } }, uniquingKeysWith: +)
    var findings: [String] = []
    for (source, structure, words) in files {
      let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false)
      for declaration in structure.declarations {
        let name = declaration.name
        let isUsed: Bool
        if !Set(declaration.modifiers).isDisjoint(with: ["private", "fileprivate"]) {
          isUsed = words[name, default: 0] > structure.declarations.count { $0.name == name }
        } else {
          isUsed = inSources[name, default: 0] > declared[name, default: 0]
        }
        if isUsed || isCalledFromOutside(declaration) { continue }
        let isTested = inTests.contains(name)
        if isTested, testedWith.contains(source.target) || isDoor(declaration, lines) { continue }
        if exceptions.contains("\(source.path): \(name)") {
          unneeded.remove("\(source.path): \(name)")
          continue
        }
        let user = isTested ? "only tests use" : "nothing uses"
        findings.append("\(source.path):\(declaration.line): \(user) \(declaration.keyword) \(name)")
      }
    }
    return findings + unneeded.sorted().map { "an unneeded exception: \($0)" }
  }

  private static func isCalledFromOutside(_ declaration: Declaration) -> Bool {
    if !Set(declaration.modifiers).isDisjoint(with: ["public", "override", "main"]) { return true }
    if declaration.keyword == "case", !rawTypes.isDisjoint(with: declaration.container[...].words) { return true }
    return calledFromOutside.contains(declaration.name)
  }

  /// Whether the comment above a declaration says that it is for tests.
  private static func isDoor(_ declaration: Declaration, _ lines: [Substring]) -> Bool {
    var line = declaration.line - 2
    while line >= 0, lines.indices.contains(line) {
      let text = lines[line].drop { $0 == " " }
      if text.hasPrefix(testOnlyComment) { return true }
      guard text.hasPrefix("///") || text.hasPrefix("@") else { return false }
      line -= 1
    }
    return false
  }
}
