// Checks README.md against the package: its commands exist, its example is the one that is compiled, its links resolve.

import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The README` {
  private static func page() throws -> SourceText { SourceText("README.md", try House.text("README.md")) }

  @Test func `begins with two debug builds, and then the release build`() throws {
    let commands = Rules.fenced(try Self.page().text).filter { $0.hasPrefix("swift ") || $0.hasPrefix("strandline ") }
    #expect(
      commands.prefix(3) == ["swift run strandline demo", "swift test", "swift build -c release --product strandline"])
    let products = try House.text("Package.swift")
    #expect(products.contains(".executable(name: \"strandline\""))
  }

  /// Whether the directory with the declarations of the verbs exists.
  private static func hasCommands() throws -> Bool { try House.exists("Sources/StrandlineCLI/Commands") }

  @Test(.enabled("the command's verbs are declared in Sources/StrandlineCLI/Commands") { try hasCommands() })
  func `names every verb of the command, and no other`() throws {
    let declared = Rules.declaredVerbs(try House.swift())
    #expect(declared.count > 5)
    #expect(Rules.verbs(try Self.page().text).subtracting(["help"]) == declared)
  }

  @Test func `finds the verbs that a page mentions`() {
    let page = """
      The strandline of a beach, and `strandline verify STORE`; `swift run -c release strandline demo --keep X`.
      ```
      $ strandline log-dump STORE
      strandline-demo
      ```
      """
    #expect(Rules.verbs(page) == ["verify", "demo", "log-dump"])
    let source = SourceText(
      "Sources/StrandlineCLI/Commands/A.swift",
      "static let a = Command(\n    \"log-dump\", \"Show\")\nlet b = Command(c)")
    #expect(Rules.declaredVerbs([source]) == ["log-dump"])
  }

  @Test(arguments: [
    ("Tests/StrandlineTests/ReadmeExampleTests.swift", "import StrandlineCloudKit"),
    ("Tests/StrandlineTestingTests/AppTests.swift", "afterPowerCut"),
  ])
  func `shows the examples that are compiled`(path: String, line: String) throws {
    let source = try House.text(path)
    let marked = source.split(separator: "// README begins\n").last?.split(separator: "\n// README ends").first
    let example = try #require(marked)
    #expect(example.contains(line))
    #expect(try Self.page().text.contains("```swift\n\(example)\n```\n"))
  }

  @Test func `shows a picture before the commands, and what to write in twelve lines`() throws {
    let text = try Self.page().text
    let begins = try #require(text.split(separator: "## Try it").first)
    #expect(begins.split(separator: "```").count == 3 && begins.contains("RecordStore"))
    let example = try #require(Rules.examples(text).first)
    let code = example.split(separator: "\n").filter { !$0.hasPrefix("import ") && $0 != "}" }
    #expect(code.count <= 12 && code.count > 8, "\(code.count)")
  }

  @Test func `has links that resolve, as the pages of the formats do`() throws {
    let pages = try House.everything().filter { $0.path.hasSuffix(".md") }
    #expect(pages.count > 5)
    for page in pages { #expect(try Rules.brokenLinks(page, exists: House.exists) == []) }
    let planted = SourceText("Formats/a.md", "[x](log.md) [y](nowhere.md#there) [z](https://example.org)")
    #expect(Rules.brokenLinks(planted) { $0 == "Formats/log.md" }.count == 1)
  }

  @Test func `has its sections, and a length that can be read at once`() throws {
    let text = try Self.page().text
    let headings = text.split(separator: "\n").filter { $0.hasPrefix("## ") }.map { $0.dropFirst(3) }
    #expect(
      headings == [
        "Try it", "Use it", "What it promises, and what it does not", "Read more", "Test with it", "How it works",
        "The bytes", "How it is tested", "Numbers", "The command line",
      ])
    #expect((150...200).contains(text.split(separator: "\n", omittingEmptySubsequences: false).count))
  }
}
