// The rules about locks: each lock of the library has a place in the one order, and the page on the architecture names each of them
// at its place.

extension Rules {
  /// A lock that a type holds.
  struct HeldLock: Equatable {
    /// The type and the property, with a dot between them.
    var name: String
    /// The case of `LockPlace`.
    var place: String
  }

  /// The locks that the types of a source hold. What stands in a function is no part of the order that lasts.
  static func locks(_ source: SourceText) -> [HeldLock] {
    source.codeLines.indices.compactMap { number in
      let line = source.codeLines[number]
      guard line.contains("OrderedMutex"), let property = name(after: "let", in: line),
        let owner = owner(of: number, in: source.codeLines)
      else { return nil }
      return HeldLock(name: "\(owner).\(property)", place: place(of: property, in: source.codeLines) ?? "value")
    }
  }

  /// Locks without a place.
  static func locksWithoutPlace(_ source: SourceText) -> [String] {
    source.findings("a lock without a place in the order; OrderedMutex has one") { $0.words.contains("Mutex") }
  }

  /// The cases of an enumeration, one a line, in their order.
  static func cases(_ source: SourceText) -> [String] {
    source.codeLines.compactMap { line in
      let words = line.words
      return words.count == 2 && words[0] == "case" && !line.contains(":") ? String(words[1]) : nil
    }
  }

  /// What the rows of a table name in their first column, of the table whose heading is "lock".
  static func lockTable(_ page: String) -> [[String]] {
    let lines = page.split(separator: "\n", omittingEmptySubsequences: false)
    guard let heading = lines.firstIndex(where: { $0.hasPrefix("| lock ") }) else { return [] }
    return lines[(heading + 2)...].prefix { $0.hasPrefix("|") }.map { row in
      codeSpans(String(row.split(separator: "|").first ?? "")).map(String.init)
    }
  }

  private static func name(after word: Substring, in line: Substring) -> String? {
    let words = line.words
    guard let place = words.firstIndex(of: word), place + 1 < words.count else { return nil }
    return String(words[place + 1])
  }

  /// The type in whose body a line stands; nil in a function.
  private static func owner(of number: Int, in lines: [Substring]) -> String? {
    func depth(_ line: Substring) -> Int { line.prefix { $0 == " " }.count }
    var limit = depth(lines[number])
    for line in lines[..<number].reversed() where !line.allSatisfy(\.isWhitespace) && !line.hasPrefix("#") {
      guard depth(line) < limit else { continue }
      limit = depth(line)
      for kind in ["class", "struct", "enum", "actor", "extension"] as [Substring] {
        if let name = name(after: kind, in: line) { return name }
      }
      // A condition of the compiler is no body.
      if !line.drop(while: { $0 == " " }).hasPrefix("#") { return nil }
    }
    return nil
  }

  /// The place that a lock gets where it is made.
  private static func place(of property: String, in lines: [Substring]) -> String? {
    for (number, line) in lines.enumerated() {
      guard let start = line.firstRange(of: "OrderedMutex")?.upperBound, line.contains("= OrderedMutex"),
        line.words.contains(Substring(property))
      else { continue }
      let rest = line[start...].drop { $0 != "(" }.dropFirst()
      let argument = rest.isEmpty && number + 1 < lines.count ? lines[number + 1].drop { $0 == " " } : rest
      guard argument.first == "." else { return nil }
      return argument.words.first.map(String.init)
    }
    return nil
  }
}
