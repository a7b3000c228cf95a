// Goal: whoever misspells a type or a field is told, and dates are taken as people write them. Method: the verbs, as a person
// calls them.

import StrandlineSystem
import Testing

@testable import StrandlineCLI

@Suite(.timeLimit(.minutes(30)))
struct TypesVerbTests {
  private func machine() async -> Machine {
    let machine = Machine()
    let lines = [
      #"{"recordType":"Item","recordName":"a","fields":{"title":"Low tide","when":{"value":1767225600000,"type":"TIMESTAMP"}}}"#,
      #"{"recordType":"Item","recordName":"b","fields":{"title":"Ebb","when":{"value":1769817600000,"type":"TIMESTAMP"}}}"#,
      #"{"recordType":"Note","recordName":"c","fields":{"text":"2026-01-01"}}"#,
    ]
    _ = await machine.run("import", "/A", "-", input: lines.map { $0 + "\n" }.joined())
    return machine
  }

  @Test func `types lists the types, with their fields if asked`() async throws {
    let machine = await machine()
    #expect(await machine.run("types", "/A").out == "Item 2\nNote 1\n")
    #expect(
      await machine.run("types", "/A", "--fields").out
        == "Item 2\n  title: STRING\n  when: TIMESTAMP\nNote 1\n  text: STRING\n")
    #expect(await machine.run("types", "/A", "--zone", "Other").out == "")
    let keys = try JSONPage.check(await machine.run("types", "--json", "--fields", "/A").out, of: "types")
    #expect(keys.contains("records"))
    #expect(await machine.run("types", "/none").code == .noSuchStore)
  }

  @Test func `a misspelt type or field is named in a note`() async {
    let machine = await machine()
    let type = await machine.run("query", "/A", "Itme")
    #expect(type.code == .done && type.out == "" && type.err.contains("did you mean 'Item'?"), "\(type.err)")
    let field = await machine.run("query", "/A", "Item", "--where", "titel = Ebb")
    #expect(field.err.contains("did you mean 'title'?"), "\(field.err)")
    let sort = await machine.run("query", "/A", "Item", "--where", "title = none", "--sort", "xyz")
    #expect(sort.err.contains("'xyz'") && sort.err.contains("there are 'title', 'when'"), "\(sort.err)")
    #expect(await machine.run("query", "/A", "Itme", "--count").err.contains("Item"))
    #expect(await machine.run("query", "/A", "Item", "--where", "title = none").err == "")
  }

  @Test func `an index of what is not there is told`() async {
    let machine = await machine()
    let added = await machine.run("index", "/A", "add", "Item", "nofield")
    #expect(added.code == .done && added.err.contains("'nofield'"), "\(added.err)")
    let dropped = await machine.run("index", "/A", "drop", "Item", "title")
    #expect(dropped.code == .noSuchStore && dropped.err.contains("no index"), "\(dropped.err)")
    #expect(await machine.run("index", "/A", "drop", "Item", "nofield").code == .done)
  }

  @Test func `a field of times is compared with a date as people write it`() async {
    let machine = await machine()
    func found(_ condition: String, _ type: String = "Item") async -> String {
      await machine.run("query", "/A", type, "--count", "--where", condition).out
    }
    #expect(await found("when > 2026-01-15") == "1\n")
    #expect(await found("when = 2026-01-01") == "1\n")
    #expect(await found("when >= 2026-01-31T00:00:00Z") == "1\n")
    #expect(await found("when < 2026-01-01T00:00:00.001Z") == "1\n")
    // A text stays one.
    #expect(await found("text = 2026-01-01", "Note") == "1\n")
    #expect(await found("when > 2026-13-45") == "0\n")
  }
}
