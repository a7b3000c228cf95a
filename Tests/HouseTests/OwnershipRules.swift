// The rules about who changes what: a stored property is changed in at most two files, so that a reader finds where its own type changes it;
// and no layer reaches a higher one through a protocol that one type conforms to.

/// Finds the stored properties of types at the top of a file, and the lines that change them by their bare names.
private struct PropertyChanges {
  /// The files that declare or change "Type.property".
  private(set) var files: [String: Set<String>] = [:]
  private var properties: [Substring: Set<Substring>] = [:]

  init(_ sources: [SourceText]) {
    for source in sources {
      Self.forEachMember(source) { type, line in
        if let name = Self.declared(line) { properties[type, default: []].insert(name) }
      }
    }
    for source in sources {
      Self.forEachMember(source) { type, line in
        guard let names = properties[type] else { return }
        for name in Self.changed(line) where names.contains(name) {
          files["\(type).\(name)", default: []].insert(source.path)
        }
      }
    }
  }

  /// The lines within types and extensions at the top of a file.
  private static func forEachMember(_ source: SourceText, _ body: (Substring, Substring) -> Void) {
    var type: Substring?
    for line in source.codeLines {
      if let first = line.first, first != " " {
        let words = line.words
        let kinds: Set<Substring> = ["struct", "class", "actor", "extension", "enum"]
        if let at = words.firstIndex(where: kinds.contains), at + 1 < words.count { type = words[at + 1] }
        if first == "}" { type = nil }
      } else if let type {
        body(type, line)
      }
    }
  }

  /// The stored variable that a line of a type's body declares.
  private static func declared(_ line: Substring) -> Substring? {
    guard line.hasPrefix("  "), !line.hasPrefix("   ") else { return nil }
    let words = line.words
    guard let at = words.firstIndex(of: "var"), at + 1 < words.count, !words[..<at].contains("static") else {
      return nil
    }
    // A body without a value before it computes.
    if let brace = line.firstIndex(of: "{"), !line[..<brace].contains("=") { return nil }
    return words[at + 1]
  }

  /// Verbs of the standard library that change a collection.
  private static let verbs: Set<Substring> = [
    "append", "insert", "remove", "removeAll", "removeFirst", "removeLast", "removeSubrange", "removeValue", "popFirst",
    "popLast", "formUnion", "formIntersection", "subtract", "merge", "sort", "swapAt", "updateValue", "toggle",
  ]

  /// The names that a line changes: by an assignment, also of a part, or by a verb of a collection. A verb of a type of the
  /// package is that type's own change.
  private static func changed(_ line: Substring) -> [Substring] {
    var names: [Substring] = []
    let text = line.utf8
    var at = text.startIndex
    var before: UInt8 = UInt8(ascii: " ")
    while at < text.endIndex {
      guard text[at].isPartOfWord else {
        before = text[at]
        at = text.index(after: at)
        continue
      }
      let start = at
      while at < text.endIndex, text[at].isPartOfWord { at = text.index(after: at) }
      let name = line[start..<at]
      if name == "self" || before == UInt8(ascii: ".") && !line[..<start].hasSuffix("self.") { continue }
      if ["var", "let", "func", "case"].contains(line[..<start].words.last ?? "") { continue }
      if isChanged(line[at...].utf8) { names.append(name) }
    }
    return names
  }

  /// Whether what follows a name changes what it names.
  private static func isChanged(_ rest: Substring.UTF8View) -> Bool {
    var at = rest.startIndex
    var last: Substring?
    func next() -> UInt8 { at < rest.endIndex ? rest[at] : 0 }
    func advance() { at = rest.index(after: at) }
    while true {
      switch next() {
      case UInt8(ascii: "["):
        var depth = 0
        repeat {
          if next() == UInt8(ascii: "[") { depth += 1 }
          if next() == UInt8(ascii: "]") { depth -= 1 }
          advance()
        } while depth > 0 && at < rest.endIndex
      case UInt8(ascii: "?"), UInt8(ascii: "!"): advance()
      case UInt8(ascii: "."):
        advance()
        let start = at
        while next().isPartOfWord { advance() }
        last = Substring(rest[start..<at])
      case UInt8(ascii: "("): return last.map(verbs.contains) ?? false
      default:
        let operators = Substring(rest[at...]).drop { $0 == " " }
        if operators.hasPrefix("= ") || operators == "=" { return true }
        return ["+= ", "-= ", "|= "].contains { operators.hasPrefix($0) }
      }
    }
  }
}

extension Rules {
  /// Stored properties that are changed in more than two files.
  ///
  /// - Parameter exceptions: "Type.property" with the reason. One that is not needed is a finding too.
  static func isChangedInFewFiles(_ sources: [SourceText], exceptions: [String: String] = [:]) -> [String] {
    var unneeded = exceptions
    var findings: [String] = []
    for (property, files) in PropertyChanges(sources).files.sorted(by: { $0.key < $1.key }) where files.count > 2 {
      if unneeded.removeValue(forKey: property) != nil { continue }
      findings.append("\(property) is changed in \(files.sorted().joined(separator: ", "))")
    }
    return findings + unneeded.keys.sorted().map { "an unneeded exception: \($0)" }
  }

  /// Protocols that apps do not see and that fewer than two types conform to: a name for a type of a higher layer.
  ///
  /// - Parameter exceptions: protocols with the reason. One that is not needed is a finding too.
  static func protocolsHaveTypes(_ sources: [SourceText], exceptions: [String: String] = [:]) -> [String] {
    var places: [Substring: String] = [:]
    var types: [Substring: Set<String>] = [:]
    let kinds: Set<Substring> = ["struct", "class", "actor", "enum", "extension", "protocol"]
    for source in sources where source.path.hasPrefix("Sources/") {
      for (number, line) in source.codeLines.enumerated() {
        let words = line.words
        guard let at = words.firstIndex(where: kinds.contains), at + 1 < words.count else { continue }
        if words[at] == "protocol", !words[..<at].contains("public"), line.first != " " {
          places[words[at + 1]] = "\(source.path):\(number + 1)"
        }
        guard let colon = line.firstIndex(of: ":") else { continue }
        // What a type conforms to may go on in the next line.
        let next = number + 1 < source.codeLines.count && !line.contains("{") ? source.codeLines[number + 1] : ""
        for name in line[colon...].words + next.words { types[name, default: []].insert(String(words[at + 1])) }
      }
    }
    var unneeded = exceptions
    var findings: [String] = []
    for (name, place) in places.sorted(by: { $0.key < $1.key }) where (types[name] ?? []).count < 2 {
      if unneeded.removeValue(forKey: String(name)) != nil { continue }
      findings.append("\(place): \(types[name]?.first ?? "nothing") alone conforms to \(name)")
    }
    return findings + unneeded.keys.sorted().map { "an unneeded exception: \($0)" }
  }
}
