// The rules about the table of scenarios: it and the names of the tests say the same.

extension Rules {
  /// A test of scenarios: its name, which begins with their numbers, and its file's name.
  struct ScenarioTest: Hashable {
    var name: String
    var file: String
  }

  /// A row of the table: a number, the tests that it names, and why there is none.
  struct ScenarioRow {
    var number: Int
    var tests: [ScenarioTest]
    var reason: String?
  }

  /// The numbers with which a test's name begins: 56 and 57 of "56, 57: both survive".
  static func scenarioNumbers(_ name: some StringProtocol) -> [Int] {
    guard let colon = name.firstIndex(of: ":") else { return [] }
    let parts = name[..<colon].split(separator: ", ", omittingEmptySubsequences: false)
    let numbers = parts.compactMap { part in part.allSatisfy(\.isNumber) ? Int(part) : nil }
    return numbers.count == parts.count ? numbers : []
  }

  /// The rows of the page's tables.
  static func scenarioRows(_ page: String) -> [ScenarioRow] {
    page.split(separator: "\n").compactMap { line in
      let cells = line.split(separator: "|", omittingEmptySubsequences: false).map(trimmed)
      guard cells.count == 5, let number = Int(cells[1]) else { return nil }
      let spans = cells[3].split(separator: "`", omittingEmptySubsequences: false).enumerated()
        .filter { $0.offset % 2 == 1 }.map { String($0.element) }
      let tests = stride(from: 0, to: spans.count - 1, by: 2)
        .map { ScenarioTest(name: spans[$0], file: spans[$0 + 1]) }
      let words = "not built: "
      let reason = cells[3].hasPrefix(words) ? String(cells[3].dropFirst(words.count)) : nil
      return ScenarioRow(number: number, tests: tests, reason: reason)
    }
  }

  private static func trimmed(_ cell: Substring) -> Substring {
    let start = cell.drop { $0 == " " }
    return start.lastIndex { $0 != " " }.map { start[...$0] } ?? ""
  }

  /// What the table says and the sources do not, and the other way round.
  static func scenarioFindings(_ rows: [ScenarioRow], _ sources: [SourceText]) -> [String] {
    var declared: [Int: [ScenarioTest]] = [:]
    for source in sources {
      let file = String(source.path.split(separator: "/").last ?? "")
      for part in source.text.split(separator: "func `", omittingEmptySubsequences: false).dropFirst() {
        let name = part.prefix { $0 != "`" }
        for number in scenarioNumbers(name) {
          declared[number, default: []].append(ScenarioTest(name: String(name), file: file))
        }
      }
    }
    var findings: [String] = []
    var last = 0
    // The sections of the page are in the order of the numbers, and so are the rows.
    for row in rows {
      func find(_ words: String) { findings.append("scenario \(row.number): \(words)") }
      if row.number <= last { find("stands behind \(last)") }
      last = row.number
      let tests = declared.removeValue(forKey: row.number) ?? []
      for test in row.tests where !tests.contains(test) {
        if scenarioNumbers(test.name).contains(row.number) {
          find("there is no `\(test.name)` in \(test.file)")
        } else {
          find("names `\(test.name)`, which does not begin with it")
        }
      }
      for test in tests where !row.tests.contains(test) { find("lacks `\(test.name)` in \(test.file)") }
      if row.reason != nil, !tests.isEmpty { find("has a test, and says that it is not built") }
      if row.reason?.isEmpty ?? row.tests.isEmpty { find("neither a test nor why there is none") }
    }
    for (number, tests) in declared.sorted(by: { $0.key < $1.key }) {
      for test in tests { findings.append("scenario \(number): has `\(test.name)` in \(test.file), and no row") }
    }
    return findings
  }
}
