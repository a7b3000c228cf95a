// The keys that the command prints are those that Formats/cli-json.md promises: no fewer, no others.

import Foundation
import StrandlineCLI
import Testing

/// The keys of each verb, as the page lists them.
enum JSONPage {
  /// The words in backticks of a section: the keys, among others.
  private static func words(of verb: String) throws -> Set<String> {
    let sections = try Page.text("Formats/cli-json.md").components(separatedBy: "\n## ")
    // A verb that prints nothing but JSON has no option for it.
    let found = sections.first { $0.hasPrefix("`\(verb) --json`") || $0.hasPrefix("`\(verb)`") }
    let section = try #require(found, "no section for \(verb)")
    return Set(section.matches(of: /`([A-Za-z][A-Za-z0-9_]*)`/).map { String($0.output.1) })
  }

  /// Checks that each key of the lines stands on the page.
  ///
  /// - Returns: the keys.
  @discardableResult
  static func check(_ output: String, of verb: String, sourceLocation: SourceLocation = #_sourceLocation) throws
    -> Set<String>
  {
    let promised = try words(of: verb)
    var keys: Set<String> = []
    for line in output.split(separator: "\n") {
      let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
      keys.formUnion(try #require(object, sourceLocation: sourceLocation).keys)
    }
    #expect(!keys.isEmpty, sourceLocation: sourceLocation)
    #expect(keys.subtracting(promised) == [], "of \(verb), not on the page", sourceLocation: sourceLocation)
    return keys
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The lines of JSON` {
  @Test func `have the keys of the page`() async throws {
    let (machine, _) = try await Machine.withDamagedNote()
    let findings = await machine.run("verify", "--json", "/A")
    #expect(findings.code == .recoverable || findings.code == .dataDamaged)
    let verified = try JSONPage.check(findings.out, of: "verify")
    #expect(verified.isSuperset(of: ["finding", "code", "firstLSN", "result", "quarantine"]))
    let plan = try JSONPage.check(await machine.run("repair", "--json", "/A").out, of: "repair")
    #expect(plan.contains("firstLSN"))
    let repaired = await machine.run("repair", "/A", "--json", "--apply", "--into", "/B")
    try JSONPage.check(repaired.out, of: "repair")
    for (words, keys) in [
      (["status", "--json", "/B"], ["records", "unsettled", "zones", "held", "quarantine"]),
      (["log-dump", "--json", "--hex", "/B"], ["lsn", "kind", "detail", "segment", "offset", "hex"]),
      (["compact", "--dry-run", "--history", "latest", "--json", "/B"], ["bytesBefore", "eventsDropped"]),
      (["compact", "--json", "/B"], ["bytesBefore", "segmentsAfter", "quarantine"]),
    ] {
      let found = try JSONPage.check(await machine.run(words, input: []).out, of: words[0])
      #expect(found.isSuperset(of: keys), "\(words)")
    }
  }
}
