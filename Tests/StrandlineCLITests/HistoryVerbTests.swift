// `history`: whole screens, pages, and a record that was deleted, compacted, or never there.

import Strandline
import StrandlineCLI
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The verb history` {
  private func machine() async -> Machine {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    for number in 0..<3 {
      _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"n":\#(number)}}"#)
    }
    _ = await machine.run("delete", "/A", "b")
    return machine
  }

  @Test func `prints a line a change, the oldest first`() async throws {
    let machine = await machine()
    let screen = await machine.run("history", "/A", "a")
    #expect(screen.code == .done && screen.err == "" && isTame(screen.out))
    let lines = screen.out.split(separator: "\n").map(String.init)
    #expect(lines.count == 5)
    #expect(lines[0] == "LSN      kind            from    time                 detail")
    #expect(lines[1] == "2        saved           local   2026-01-01T00:00:00Z type Note, fields title")
    #expect(lines[4].hasSuffix("type Note, fields n title"))
    let deleted = await machine.run("history", "/A", "b").out.split(separator: "\n").map(String.init)
    #expect(deleted.count == 3 && deleted[2].contains(" deleted         local   2026-01-01T00:00:00Z -"))
  }

  @Test func `goes on where a limit has ended it`() async throws {
    let machine = await machine()
    let first = await machine.run("history", "--limit", "3", "/A", "a")
    let from = try #require(first.err.split(separator: " ").last?.dropLast())
    #expect(first.err.hasPrefix("note: more follow; go on with --from ") && first.out.split(separator: "\n").count == 4)
    let rest = await machine.run("history", "--from", String(from), "/A", "a")
    #expect(rest.err == "" && rest.out.split(separator: "\n").count == 2)
    #expect(await machine.run("history", "--from", "1000", "/A", "a") == Screen(code: .done, out: "", err: ""))
  }

  @Test func `prints JSON with the keys of the page, and what compaction has left`() async throws {
    let machine = await machine()
    let keys = try JSONPage.check(await machine.run("history", "--json", "/A", "a").out, of: "history")
    #expect(keys == ["isCompacted", "kind", "lsn", "milliseconds", "origin", "position", "record"])
    _ = await machine.run("compact", "--history", "latest", "/A")
    let left = await machine.run("history", "--json", "/A", "a")
    #expect(left.code == .done && left.out.contains(#""isCompacted":true"#))
    #expect(left.err.hasPrefix("note: compaction has removed events up to "))
    #expect(await machine.run("history", "/A", "b").out.contains(" deleted "))
  }

  @Test func `of a record that the store does not know ends with 66`() async {
    let machine = await machine()
    let screen = await machine.run("history", "/A", "never")
    #expect(screen.code == .noSuchStore && screen.err.hasPrefix("error: '/A' knows nothing of a record 'Main/never'"))
    #expect(await machine.run("history", "--zone", "Other", "/A", "a").code == .noSuchStore)
    #expect(await machine.run("history", "/none", "a").code == .noSuchStore)
    #expect(await machine.run("history", "--limit", "0", "/A", "a").code == .usage)
  }
}
