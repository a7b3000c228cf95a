// The rules about pages: everything that README, the documentation and the pages for contributors name exists, and every
// decision that a test or a comment cites is on a page.

extension House {
  /// Strandline's documentation.
  static let documentation = "Sources/Strandline/Strandline.docc"

  /// The pages for those who use the package or work on it; those of Formats have tests of their own.
  static func pages() throws -> [SourceText] {
    let paths = try ["README.md"] + files(".github") + files(documentation)
    return try paths.filter { $0.hasSuffix(".md") }.map { SourceText($0, try text($0)) }
  }
}

extension Rules {
  // MARK: Files and symbols

  /// The text in single backticks outside of fences.
  static func codeSpans(_ page: String) -> [Substring] {
    var isFenced = false
    var result: [Substring] = []
    for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.drop(while: { $0 == " " }).hasPrefix("```") {
        isFenced.toggle()
      } else if !isFenced {
        // Links to symbols have two backticks; docc checks them.
        let parts = line.split(separator: "`", omittingEmptySubsequences: false)
        result += parts.enumerated().filter { $0.offset % 2 == 1 && !$0.element.isEmpty }.map(\.element)
      }
    }
    return result
  }

  /// Files that a page names in code and that do not exist: paths from the top level, and names of Swift files.
  static func missingFiles(_ page: SourceText, paths: Set<String>) -> [String] {
    let tops = ["Sources/", "Tests/", "Formats/", ".ci/", ".github/"]
    let names = Set(paths.compactMap { $0.split(separator: "/").last.map(String.init) })
    let folders = paths.reduce(into: Set<Substring>()) { folders, path in
      var parent = path[...]
      while let slash = parent.lastIndex(of: "/") {
        parent = parent[..<slash]
        folders.insert(parent)
      }
    }
    return codeSpans(page.text).compactMap { span in
      guard let word = span.split(separator: " ").first else { return nil }
      let exists =
        tops.contains { word.hasPrefix($0) }
        ? paths.contains(String(word)) || folders.contains(word.last == "/" ? word.dropLast() : word)
        : !word.hasSuffix(".swift") || names.contains(String(word))
      return exists ? nil : "\(page.path): names \(word), which is not there"
    }
  }

  /// Swift files that the comments of a source name and that do not exist.
  ///
  /// - Parameter names: names of files, without their folders.
  static func missingFilesInComments(_ source: SourceText, names: Set<Substring>) -> [String] {
    let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false)
    return lines.enumerated().flatMap { number, line -> [String] in
      let parts = line.split(separator: "//", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, parts[0].allSatisfy(\.isWhitespace) else { return [] }
      return parts[1].split { !$0.isLetter && !$0.isNumber && !"+/.".contains($0) }.compactMap { word in
        let name = word.split(separator: "/").last?.split(separator: ".") ?? []
        guard name.count == 2, name[1] == "swift", !names.contains("\(name[0]).swift") else { return nil }
        return "\(source.path):\(number + 1): names \(name[0]).swift, which is not there"
      }
    }
  }

  /// Types and members that a page names in code, as `Type` or `Type.member`, and that no source declares.
  ///
  /// - Parameter declared: names of declarations, targets and folders.
  static func missingSymbols(_ page: SourceText, declared: Set<String>) -> [String] {
    codeSpans(page.text).flatMap { span -> [String] in
      let parts = span.split(separator: ".", omittingEmptySubsequences: false)
      guard let first = parts.first?.first, first.isUppercase, parts.count <= 2, !span.hasSuffix(".swift"),
        span.dropFirst().contains(where: \.isLowercase),
        parts.allSatisfy({ !$0.isEmpty && $0.allSatisfy(\.isLetter) })
      else { return [] }
      return parts.filter { !declared.contains(String($0)) }
        .map { "\(page.path): names \(span), and nothing declares \($0)" }
    }
  }

  /// What `missingSymbols` compares with.
  static func declaredNames(_ sources: [SourceText]) -> Set<String> {
    var result: Set<String> = []
    for source in sources {
      result.formUnion(CodeStructure(source).declarations.map { String($0.name) })
      result.formUnion(source.path.split(separator: "/").dropLast().map(String.init))
    }
    return result
  }

  // MARK: Walks

  /// The walks of a page: the sections that follow one thing through the code, and their numbered steps.
  static func walks(_ page: String) -> [(heading: String, steps: [String])] {
    var walks: [(heading: String, steps: [String])] = []
    var isInWalk = false
    for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix("#") {
        isInWalk = line.hasPrefix("## The life of ")
        if isInWalk { walks.append((String(line.dropFirst(3)), [])) }
      } else if isInWalk {
        let number = line.prefix(while: \.isNumber)
        if !number.isEmpty, line.dropFirst(number.count).hasPrefix(". ") {
          walks[walks.count - 1].steps.append(String(line))
        } else if let last = walks[walks.count - 1].steps.indices.last, line.hasPrefix(" ") {
          walks[walks.count - 1].steps[last] += "\n\(line)"
        }
      }
    }
    return walks
  }

  /// Members that a page names in code, as `Type.member`, and that the type does not declare.
  static func missingMembers(_ page: SourceText, _ declared: DeclaredMembers) -> [String] {
    codeSpans(page.text).filter(isMember).map(String.init)
      .filter { !declared.functions.contains($0) && !declared.others.contains($0) }
      .map { "\(page.path): no type has \($0)" }
  }

  /// The steps of a page's walks that name neither a function, as `Type.function`, nor a file.
  static func stepsWithoutFunction(_ page: SourceText, _ declared: DeclaredMembers) -> [String] {
    walks(page.text).flatMap { heading, steps in
      steps.enumerated().compactMap { place, step in
        let isTold = codeSpans(step).contains { declared.functions.contains(String($0)) || $0.hasSuffix(".swift") }
        return isTold ? nil : "\(page.path): \(heading), \(place + 1): names no function"
      }
    }
  }

  /// Whether a name in code is that of a type's member, as `Log.append`.
  private static func isMember(_ span: Substring) -> Bool {
    let parts = span.split(separator: ".", omittingEmptySubsequences: false)
    return parts.count == 2 && !span.hasSuffix(".swift") && parts[0].first?.isUppercase == true
      && parts[1].first?.isLowercase == true && parts.allSatisfy { $0.allSatisfy(\.isLetter) }
  }

  /// What types declare, each as `Type.member`.
  struct DeclaredMembers {
    var functions: Set<String> = []
    var others: Set<String> = []

    init(_ sources: [SourceText]) {
      for source in sources {
        for declaration in CodeStructure(source).declarations {
          // The words of a type's header: its keyword, its name, and what it conforms to.
          guard let type = declaration.container.split(separator: " ").dropFirst().first else { continue }
          let name = "\(type).\(declaration.name)"
          if declaration.keyword == "func" { functions.insert(name) } else { others.insert(name) }
        }
      }
    }
  }

  /// The labels of the dispatch queues that a source makes.
  static func queueLabels(_ source: SourceText) -> [String] {
    source.text.split(separator: "DispatchQueue(label: \"", omittingEmptySubsequences: false).dropFirst().compactMap {
      $0.split(separator: "\"", maxSplits: 1).first.map(String.init)
    }
  }

  /// The lines of the diagram in the comment with which a source opens.
  static func diagram(_ source: SourceText) -> [String] {
    source.text.split(separator: "\n", omittingEmptySubsequences: false).prefix { $0.hasPrefix("//") }
      .filter { line in line.contains { "│▲▼◀▶".contains($0) } }.map { String($0.dropFirst(3)) }
  }

  /// Public types that a page of topics omits. Nested types are on the page of their outer type.
  static func unlistedTypes(_ sources: [SourceText], page: String) -> [String] {
    let listed = Set(page.split(separator: "\n"))
    let kinds: Set<Substring> = ["struct", "class", "enum", "protocol", "actor", "typealias"]
    return sources.flatMap { source in
      CodeStructure(source).declarations.filter { declaration in
        kinds.contains(declaration.keyword) && declaration.container.isEmpty
          && declaration.modifiers.contains("public") && !listed.contains("- ``\(declaration.name)``")
      }.map { "\(source.path):\($0.line): \($0.name) is in no topic" }
    }
  }

  // MARK: Examples

  /// The Swift blocks of a page.
  static func examples(_ page: String) -> [String] {
    page.split(separator: "```swift\n", omittingEmptySubsequences: false).dropFirst().compactMap { part in
      part.split(separator: "```", maxSplits: 1, omittingEmptySubsequences: false).first.map(String.init)
    }
  }

  // MARK: Decisions

  /// The numbers of the decisions that a source cites: in comments and tests' names as "decision" with a number, several
  /// separated by commas; those of the log at the beginning of a test's name too. A number alone there is a scenario's.
  static func citedDecisions(_ source: SourceText) -> Set<String> {
    var result: Set<String> = []
    for part in source.text.split(separator: "decision", omittingEmptySubsequences: false).dropFirst() {
      let list = part.drop { $0 == "s" }.prefix(200)
      guard list.first?.isWhitespace == true else { continue }
      var (expectsNumber, followsNumber) = (true, false)
      for word in list.split(whereSeparator: \.isWhitespace) where word != "//" && word != "///" {
        let number = word.prefix { $0.isLetter || $0.isNumber }
        let isCited = expectsNumber && isDecision(number)
        guard isCited || (followsNumber && word == "and") else { break }
        if isCited { result.insert(String(number)) }
        let rest = word.dropFirst(number.count)
        expectsNumber = !isCited || rest == ","
        followsNumber = isCited && rest.isEmpty
      }
    }
    for part in source.text.split(separator: "func `", omittingEmptySubsequences: false).dropFirst() {
      let number = part.prefix { $0.isLetter || $0.isNumber }
      if number.first == "L", isDecision(number), part.dropFirst(number.count).hasPrefix(": ") {
        result.insert(String(number))
      }
    }
    return result
  }

  /// Whether a word is the number of a decision: 9 or L9.
  private static func isDecision(_ word: Substring) -> Bool {
    let digits = word.first == "L" ? word.dropFirst() : word
    return !digits.isEmpty && digits.count < 3 && digits.allSatisfy { $0.isASCII && $0.isNumber }
  }

  /// The numbers of decisions in the first column of a page's tables.
  static func listedDecisions(_ page: String) -> Set<String> {
    Set(
      page.split(separator: "\n").compactMap { line in
        guard line.hasPrefix("| ") else { return nil }
        let word = line.dropFirst(2).prefix { $0 != " " }
        return isDecision(word) ? String(word) : nil
      })
  }
}
