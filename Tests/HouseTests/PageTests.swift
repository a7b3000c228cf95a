// README, the documentation and the pages for contributors against the package: they name files, symbols, commands, exit
// codes and decisions that exist, and their examples are compiled.

import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The pages` {
  private func expectNone(_ findings: [String], _ location: SourceLocation = #_sourceLocation) {
    #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))", sourceLocation: location)
  }

  private static func paths() throws -> Set<String> {
    try Set(["Sources", "Tests", "Formats", ".ci", ".github"].flatMap(House.files))
  }

  @Test func `are there`() throws {
    let pages = Set(try House.pages().map(\.path))
    for name in ["CONTRIBUTING", "SECURITY", "CHANGELOG", "ISSUE_TEMPLATE/bug"] {
      #expect(pages.contains(".github/\(name).md"))
    }
    for name in [
      "GettingStarted", "Architecture", "Words", "WhatSurvives", "Syncing", "SyncFailures", "SyncSettings", "Testing",
      "CommandLine", "Decisions", "Scenarios",
    ] { #expect(pages.contains("\(House.documentation)/Articles/\(name).md")) }
  }

  @Test func `name files that exist`() throws {
    let paths = try Self.paths()
    expectNone(try House.pages().flatMap { Rules.missingFiles($0, paths: paths) })
    expectNone(try House.pages().flatMap { try Rules.brokenLinks($0, exists: House.exists) })
    let planted = SourceText(
      "README.md",
      "`Sources/A/A.swift`, `B.swift`, `.ci/run 1`, `Sources/A`, `Sources/A/B.swift`, `C.swift`\n```\n`D.swift`\n```\n")
    let findings = Rules.missingFiles(planted, paths: ["Sources/A/A.swift", "Tests/B.swift", ".ci/run"])
    #expect(findings == ["Sources/A/B.swift", "C.swift"].map { "README.md: names \($0), which is not there" })
  }

  @Test func `and the comments name files that exist`() throws {
    let names = Set(try Self.paths().compactMap { $0.split(separator: "/").last })
    // The package's own, and the form of a location in an error.
    let known = names.union(["Package.swift", "File.swift"])
    expectNone(try House.swift().flatMap { Rules.missingFilesInComments($0, names: known) })
    let planted = SourceText(
      "Sources/A/B.swift",
      "// See Sub/A+B.swift,\n  /// and gone (C.swift).\nlet a = 1  // A.swift\nlet b = \"// D.swift\"\n")
    #expect(
      Rules.missingFilesInComments(planted, names: ["A+B.swift"]) == [
        "Sources/A/B.swift:2: names C.swift, which is not there"
      ])
  }

  @Test func `name symbols that are declared`() throws {
    let declared = Rules.declaredNames(try House.swift())
    let articles = "\(House.documentation)/Articles"
    let pages = [".github/CONTRIBUTING.md", "\(articles)/Architecture.md", "\(articles)/Words.md"]
    for path in pages {
      let page = SourceText(path, try House.text(path))
      #expect(Rules.codeSpans(page.text).count > 20)
      expectNone(Rules.missingSymbols(page, declared: declared))
    }
    let planted = SourceText("a.md", "`Log.append` `Log.vanish` `Nothing` `MANIFEST` `log.append` ``Linked`` `A b`")
    #expect(Rules.missingSymbols(planted, declared: ["Log", "append"]).count == 2)
  }

  @Test func `follow functions that exist`() throws {
    let page = try Self.architecture()
    let sources = try House.swift().filter { $0.path.hasPrefix("Sources/") }
    let members = Rules.DeclaredMembers(sources)
    let words = "\(House.documentation)/Articles/Words.md"
    expectNone(Rules.missingMembers(page, members))
    expectNone(Rules.missingMembers(SourceText(words, try House.text(words)), members))
    expectNone(Rules.stepsWithoutFunction(page, members))
    let walks = Rules.walks(page.text)
    #expect(
      walks.map(\.heading) == [
        "The life of a save", "The life of a fetched page", "The life of an upload",
        "The life of an open after a crash",
      ])
    for walk in walks { #expect(walk.steps.count > 5, "\(walk.heading)") }
    let declared = Rules.DeclaredMembers([
      SourceText("Sources/A/A.swift", "final class Log: Sendable {\n  let queue = 1\n  func append() {}\n}\n"),
      SourceText("Sources/A/B.swift", "extension Plan {\n  mutating func next() {}\n}\nfunc loose() {}\n"),
    ])
    let planted = SourceText(
      "a.md",
      """
      ## The life of a save
      Before `Log.gone`.
      1. `Log.append` and
         `Plan.next`, with `Log.queue`.
      2. `Log.next`, which `Log.append` has replaced.
      3. Only `Log` and `Log.queue`.
      4. In `A.swift`.
      ## Threads
      1. `Log.gone`
      """)
    #expect(
      Rules.missingMembers(planted, declared)
        == ["Log.gone", "Log.next", "Log.gone"].map { "a.md: no type has \($0)" })
    #expect(Rules.stepsWithoutFunction(planted, declared) == ["a.md: The life of a save, 3: names no function"])
  }

  @Test func `draw the layers, the queues and the states as the code has them`() throws {
    let page = try Self.architecture()
    for layers in [Rules.modelLayers, Rules.syncLayers, Rules.storeLayers] {
      #expect(page.text.contains("| \(layers.joined(separator: ", ")): "))
    }
    let sources = try House.swift().filter { $0.path.hasPrefix("Sources/") }
    let queues = Rules.codeSpans(page.text).filter { $0.hasPrefix("strandline.") }.map(String.init)
    #expect(queues.sorted() == sources.flatMap(Rules.queueLabels).sorted())
    let lines = Set(page.text.split(separator: "\n").map(String.init))
    for name in ["ZoneSync", "RecordPlace"] {
      let source = try #require(sources.first { $0.path.hasSuffix("/\(name).swift") })
      let diagram = Rules.diagram(source)
      #expect(diagram.count > 3)
      expectNone(diagram.filter { !lines.contains($0) }.map { "\(page.path) lacks this line of \(source.path): \($0)" })
    }
    let planted = SourceText(
      "Sources/A/A.swift", "// a ▶ b\n// c\n\n// d ▶ e\nlet q = DispatchQueue(label: \"f.g\", qos: .utility)")
    #expect(Rules.diagram(planted) == ["a ▶ b"] && Rules.queueLabels(planted) == ["f.g"])
  }

  @Test func `has every lock of the library at its place`() throws {
    let targets =
      ["StrandlineSystem", "StrandlineJSON", "StrandlineLog", "StrandlineModel", "StrandlineSync"]
      + ["Strandline", "StrandlineCloudKit", "StrandlineServer"]
    let sources = try House.swift().filter {
      targets.contains($0.target) && $0.path.hasPrefix("Sources/") && !$0.path.hasSuffix("/OrderedMutex.swift")
    }
    expectNone(sources.flatMap(Rules.locksWithoutPlace))
    let locks = Dictionary(grouping: sources.flatMap(Rules.locks), by: \.place)
    let order = "Sources/StrandlineSystem/Concurrency/OrderedMutex.swift"
    let places = Rules.cases(SourceText(order, try House.text(order)))
    #expect(places.count > 10 && Set(places).isSuperset(of: locks.keys))
    #expect(
      Rules.lockTable(try Self.architecture().text) == places.map { place in (locks[place] ?? []).map(\.name).sorted() }
    )
    let planted = SourceText(
      "Sources/A/A.swift",
      """
      final class A {
        let a = OrderedMutex(.queue, 1)
        private let b: OrderedMutex<Int>
        struct B {
          let c = OrderedMutex<Int?>(nil)
        }
        init() {
          let d = OrderedMutex(2)
          b = OrderedMutex(
            .disk, 3)
          let e = Mutex(4)
        }
      }
      """)
    #expect(
      Rules.locks(planted) == [
        .init(name: "A.a", place: "queue"), .init(name: "A.b", place: "disk"), .init(name: "B.c", place: "value"),
      ])
    #expect(Rules.locksWithoutPlace(planted).count == 1)
    #expect(Rules.lockTable("| lock | guards |\n|---|---|\n| `A.a`, `B.b` | c |\n\n| d |") == [["A.a", "B.b"]])
  }

  private static func architecture() throws -> SourceText {
    let path = "\(House.documentation)/Articles/Architecture.md"
    return SourceText(path, try House.text(path))
  }

  @Test func `list every public type`() throws {
    let page = try House.text("\(House.documentation)/Strandline.md")
    expectNone(
      Rules.unlistedTypes(
        try House.swift().filter { ["StrandlineModel", "StrandlineSync", "Strandline"].contains($0.target) }, page: page
      ))
    let planted = SourceText(
      "Sources/A/A.swift", "public struct A { public enum B { case c } }\npublic final class D {}\nstruct E {}\n")
    #expect(Rules.unlistedTypes([planted], page: "- ``A``\n") == ["Sources/A/A.swift:2: D is in no topic"])
  }

  /// The sources whose parts are the examples of pages.
  private static let compiled = [
    "Tests/StrandlineTests/ReadmeExampleTests.swift", "Tests/StrandlineTests/DocumentationExamples.swift",
    "Tests/StrandlineTestingTests/AppTests.swift", "Tests/StrandlineTestingTests/NoteSearch.swift",
    "Tests/StrandlineTestingTests/TutorialTests.swift", "Tests/StrandlineAccountTests/AccountExamples.swift",
    "Tests/StrandlineNativeCloudKitTests/NativeConfigurationTests.swift",
  ]

  @Test func `show examples that are compiled`() throws {
    let compiled = try Self.compiled.map(House.text)
    var count = 0
    for page in try House.pages() {
      for example in Rules.examples(page.text) where !example.hasPrefix(".package(") {
        count += 1
        #expect(compiled.contains { $0.contains(example) }, "\(page.path):\n\(example)")
      }
    }
    #expect(count > 10)
    #expect(Rules.examples("a\n```swift\nlet a = 1\n```\nb\n```\nc\n```\n") == ["let a = 1\n"])
  }

  @Test func `show every method that an app calls in an example that is compiled`() throws {
    // What an app does in SwiftUI is compiled against a stand-in, and is on no page.
    let examples = try (Self.compiled + ["Tests/StrandlineUITests/UndoManagerTests.swift"]).map {
      SourceText($0, try House.text($0))
    }
    // A transport of an app's own implements or calls these.
    let containers: Set<Substring> = ["CloudDatabase", "ContentSource", "ContentSink"]
    expectNone(Rules.methodsWithoutExample(try House.swift(), examples: examples, containers: containers))
    let planted = SourceText(
      "Sources/Strandline/A.swift",
      """
      public struct A {
        public func shown() {}
        public mutating func hidden() {}
        func own() {}
        public func hash(into hasher: inout Hasher) {}
        public func find<Value>(
          _ type: Value.Type, id: Value.ID, of other: Int = 1, _ body: (Int, Int) -> Bool
        ) {}
        public func find(where conditions: Int...) {}
      }
      extension CloudDatabase { public func sent() {} }
      """)
    let example = SourceText(
      "Tests/A/B.swift",
      "let a = A().shown()  // hidden()\nlet hidden = a.hidden + find(b(id: 1), where: 2) { _, _ in c(id: 3) }\n")
    #expect(
      Rules.methodsWithoutExample([planted], examples: [example], containers: containers) == [
        "Sources/Strandline/A.swift:3: no example calls hidden",
        "Sources/Strandline/A.swift:6: no example calls find(id:)",
      ])
    let other = SourceText("Tests/A/B.swift", "shown()\nhidden {}\nfind(A.self, id: 1) { $0 < $1 }\n")
    expectNone(Rules.methodsWithoutExample([planted], examples: [other], containers: containers))
  }

  @Test func `say how long the tutorial's app is`() throws {
    let page = try House.text("\(House.documentation)/Articles/Tutorial.md")
    let app = Rules.examples(page).filter { !$0.contains("@Test") }
    let lines = app.reduce(0) { $0 + $1.split(separator: "\n", omittingEmptySubsequences: false).count - 1 }
    #expect(app.count == 4 && page.contains(" is \(lines) lines,"), "\(lines)")
  }

  @Test func `name every public declaration that no source of the package uses`() throws {
    expectNone(Rules.publicNamesWithoutUse(try House.swift(), pages: try House.pages()))
    let planted = SourceText(
      "Sources/Strandline/A.swift",
      """
      public struct A {
        public var used: Int { shown }
        public var shown: Int
        public var idle: Int
        var own: Int
      }
      public enum Kind {
        case first, second
      }
      """)
    let user = SourceText("Sources/StrandlineCLI/B.swift", "print(A.self.used, Kind.first)\n")
    #expect(
      Rules.publicNamesWithoutUse([planted, user], pages: [SourceText("a.md", "`A.shown`")]) == [
        "Sources/Strandline/A.swift:4: neither a source nor a page uses var idle",
        "Sources/Strandline/A.swift:8: neither a source nor a page uses case second",
      ])
  }

  @Test func `list every decision that is cited`() throws {
    let page = try House.text("\(House.documentation)/Articles/Decisions.md")
    let listed = Rules.listedDecisions(page).union(Rules.listedDecisions(try House.text("Formats/log.md")))
    var cited: Set<String> = []
    for source in try House.swift() {
      let numbers = Rules.citedDecisions(source)
      #expect(numbers.isSubset(of: listed), "\(source.path) cites \(numbers.subtracting(listed).sorted())")
      cited.formUnion(numbers)
    }
    #expect(cited.isSuperset(of: ["1", "9", "L9", "L11"]))
    let word = "decision"
    let planted = SourceText(
      "Tests/A/A.swift",
      "// (\(word)s L1,\n// L72, 7). See \(word) 8 of 9, \(word)s L3 and 4; a \(word) is none.\nfunc `L5: a`() {}\nfunc `6 a`() {}\n"
    )
    #expect(Rules.citedDecisions(planted) == ["L1", "L72", "7", "8", "L3", "4", "L5"])
    let named = SourceText("Tests/A/A.swift", "func `5: a`() {}\nfunc `\(word) 9: a`() {}\n")
    #expect(Rules.citedDecisions(named) == ["9"])
    #expect(Rules.listedDecisions("| number | x |\n|---|---|\n| 9 | y |\n| L10 | z |\n") == ["9", "L10"])
  }

  @Test func `map every scenario to its tests, and say why one has none`() throws {
    let page = try House.text("\(House.documentation)/Articles/Scenarios.md")
    let rows = Rules.scenarioRows(page)
    #expect(rows.count > 150)
    let sources = try House.swift().filter { !$0.path.hasPrefix("Tests/HouseTests/") }
    expectNone(Rules.scenarioFindings(rows, sources))
    let planted = SourceText(
      "Tests/A/B.swift",
      "func `1: a`() {}\nfunc `2, 3: b`() {}\nfunc `9: c`() {}\nfunc `case 4: d`() {}\nfunc `10 e`() {}\n")
    let table = Rules.scenarioRows(
      """
      | number | what | tests |
      |---|---|---|
      | 1 | x | `1: a` in `B.swift` |
      | 2 | x | `2, 3: b` in `B.swift`; `2: gone` in `B.swift` |
      | 3 | x | not built: later |
      | 5 | x | |
      | 4 | x | not built: `1: a` in `B.swift` |
      """)
    #expect(
      Rules.scenarioFindings(table, [planted]) == [
        "scenario 2: there is no `2: gone` in B.swift", "scenario 3: lacks `2, 3: b` in B.swift",
        "scenario 3: has a test, and says that it is not built", "scenario 5: neither a test nor why there is none",
        "scenario 4: stands behind 5", "scenario 4: names `1: a`, which does not begin with it",
        "scenario 9: has `9: c` in B.swift, and no row",
      ])
  }

  @Test func `name the verbs and the exit codes of the command`() throws {
    let page = try House.text("\(House.documentation)/Articles/CommandLine.md")
    #expect(Rules.verbs(page).subtracting(["help"]) == Rules.declaredVerbs(try House.swift()))
    let source = try House.text("Sources/StrandlineCLI/CommandLine/ExitCode.swift")
    let codes = source.split(separator: "\n").compactMap { line -> Substring? in
      let words = line.split(separator: " ")
      return words.count == 4 && words[0] == "case" && words[2] == "=" ? words[3] : nil
    }
    #expect(codes.count > 8)
    for code in codes { #expect(page.contains("\n| \(code) | "), "exit code \(code)") }
  }

  @Test func `speak of the project alone, and leave no markers`() throws {
    expectNone(try House.pages().flatMap(Rules.speaksOfTheProjectAlone))
    expectNone(try House.pages().flatMap(Rules.noLeftovers))
  }

  @Test func `ask for no session`() throws {
    let template = try House.text(".github/ISSUE_TEMPLATE/bug.md")
    #expect(template.contains("strandline verify --json"))
    #expect(template.contains("never the file `session`"))
  }
}
