// `pending`, `why`, `zones` and `sync --watch`: what is owed and why, told by commands, beside a server on loopback.

import Strandline
import StrandlineCLI
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

/// A server that runs as a command until Ctrl-C.
private final class Serving: Sendable {
  let machine: Machine
  let url: String
  private let task: Task<Screen, Never>

  /// - Parameter words: options of `serve`.
  init(_ words: String...) async throws {
    let (lines, feed) = AsyncStream<String>.makeStream()
    let machine = Machine(seed: 99) { feed.yield($0) }
    self.machine = machine
    task = Task {
      let screen = await machine.run(["serve", "/srv"] + words, input: [])
      feed.finish()
      return screen
    }
    var iterator = lines.makeAsyncIterator()
    url = await iterator.next()?.split(separator: "\n").first.map(String.init) ?? "nothing"
  }

  func end() async {
    machine.interrupt()
    _ = await task.value
  }
}

/// What helps with zone 'Main' of the store '/A', which the server does not have.
private let lostRemedy =
  "try: strandline zones /A resume Main (asks the server once more), or, if the zone is lost again, "
  + sidesRemedy
/// The same where there is nothing to ask.
private let sidesRemedy =
  "strandline zones /A resync-from-here Main (uploads these records), or "
  + "strandline zones /A resync-from-server Main (removes here what the server does not have)"

extension Machine {
  fileprivate func sync(_ server: Serving, _ words: String...) async -> Screen {
    await run(["sync", "--url", server.url, "--container", "iCloud.test"] + words + ["/A"], input: [])
  }

  fileprivate func lines(_ words: String...) async -> [String] {
    await run(words, input: []).out.split(separator: "\n").map(String.init)
  }
}

/// A note whose title the server refuses, because the field holds text there.
private let wrong = #"{"recordType":"Note","recordName":"b","fields":{"title":7}}"# + "\n"

@Suite(.timeLimit(.minutes(30)))
struct `The verb pending` {
  @Test func `lists what is owed in the order of the log, and what is in the way`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    #expect(await a.sync(server).code == .done)
    #expect(await a.run("pending", "/A") == Screen(code: .done, out: "", err: "note: nothing is pending\n"))
    _ = await b.run("import", "/A", "-", input: wrong + note("c", "2"))
    #expect(await b.sync(server).code == .recoverable)
    let child = #"{"recordType":"Note","recordName":"child","parent":"gone","fields":{"title":"x"}}"# + "\n"
    _ = await b.run("import", "/A", "-", input: child + note("d", "3"))
    _ = await b.run("delete", "/A", "c")
    let screen = await b.run("pending", "/A")
    #expect(screen.code == .done && isTame(screen.out))
    let lines = screen.out.split(separator: "\n").map(String.init)
    #expect(lines.count == 5, "\(screen)")
    #expect(lines[0] == "LSN      change   record                   age      in the way")
    #expect(lines[1].contains(" save     Main/b ") && lines[1].contains("held: BAD_REQUEST, "))
    #expect(lines[2].contains(" Main/child ") && lines[2].hasSuffix("refers to 'gone', which the server does not have"))
    #expect(lines[3].contains(" Main/d ") && lines[3].hasSuffix(" 0 s      -"))
    #expect(lines[4].contains(" deletion Main/c "))
    let json = await b.run("pending", "--json", "/A").out
    let keys = try JSONPage.check(json, of: "pending")
    #expect(keys.isSuperset(of: ["lsn", "since", "waitsFor", "code", "target", "changeTag"]))
    #expect(json.contains(#""waitsFor":"held""#) && json.contains(#""target":"gone""#))
    #expect(await b.lines("pending", "--limit", "2", "/A").count == 3)
    #expect(await b.lines("pending", "--zone", "Other", "/A").isEmpty)
    #expect(await b.run("pending", "/none").code == .noSuchStore)
    let counts = await b.run("pending", "--count", "/A")
    #expect(
      counts.out == """
        nothing in the way: 2 records
        set aside because the server refused it: 1 record
        refers to what the server does not have: 1 record

        """, "\(counts)")
    let counted = await b.run("pending", "--count", "--json", "/A").out
    #expect(counted.hasPrefix(#"{"count":2,"waitsFor":null}"# + "\n"), "\(counted)")
    #expect(try JSONPage.check(counted, of: "pending") == ["count", "waitsFor"])
    #expect(await a.run("pending", "--count", "/A").err == "note: nothing is pending\n")
    await server.end()
  }

  @Test func `reads a page at a time`() async throws {
    let machine = Machine()
    let many = (0..<600).map { note("n\($0)", "x") }.joined()
    _ = await machine.run("import", "/A", "-", input: many)
    #expect(await machine.lines("pending", "/A").count == 601)
    #expect(await machine.lines("pending", "--limit", "300", "/A").count == 301)
    #expect(await machine.run("pending", "--count", "/A").out == "nothing in the way: 600 records\n")
    #expect(await machine.run("pending", "--count", "--limit", "7", "/A").out == "nothing in the way: 7 records\n")
    // Page after page they are all of them, each once.
    let whole = await machine.run("pending", "--json", "/A").out
    var (paged, after) = ("", "0")
    for _ in 0..<3 {
      let page = await machine.run("pending", "--json", "--limit", "250", "--after", after, "/A")
      paged += page.out
      after = String(page.out.matches(of: /"lsn":(\d+)/).last?.1 ?? "")
      #expect(page.err == (paged == whole ? "" : "note: more follow; go on with --after \(after)\n"), "\(page.err)")
    }
    #expect(paged == whole)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb held` {
  @Test(arguments: [
    RecordID("a"), RecordID("a/b %", zone: ZoneID("Side")),
    RecordID("a", zone: ZoneID("Main", owner: "_other", scope: .shared)),
  ])
  func `finds its place again, in each database`(_ id: RecordID) {
    for isDownload in [false, true] {
      let place = HeldPlace(id, isDownload: isDownload)
      #expect(HeldPlace(text: place.text) == place, "\(place.text)")
    }
  }

  @Test func `counts by code, and lists page by page`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    #expect(await a.sync(server).code == .done)
    let refused = (0..<7).map { #"{"recordType":"Note","recordName":"w \#($0)","fields":{"title":7}}"# + "\n" }
    _ = await b.run("import", "/A", "-", input: refused.joined() + (0..<7).map { note("c\($0)", "2") }.joined())
    #expect(await b.sync(server).code == .recoverable)
    await server.end()
    #expect(await b.run("held", "--count", "/A").out == "BAD_REQUEST: 7 records\n")
    let counted = await b.run("held", "--count", "--json", "/A").out
    #expect(counted == #"{"code":"BAD_REQUEST","count":7}"# + "\n")
    try JSONPage.check(counted, of: "held")
    let whole = await b.run("held", "--json", "/A").out
    #expect(whole.split(separator: "\n").count == 7, "without a limit no line follows")
    var paged = ""
    var words: [String] = []
    for _ in 0..<3 {
      let page = await b.run(["held", "--json", "--code", "BAD_REQUEST", "--limit", "3", "/A"] + words, input: [])
      try JSONPage.check(page.out, of: "held")
      var lines = page.out.split(separator: "\n").map(String.init)
      let end = lines.popLast() ?? ""
      paged += lines.map { $0 + "\n" }.joined()
      if lines.count < 3 { #expect(end == #"{"cursor":null}"# && page.err.isEmpty, "\(page)") }
      let cursor = end.firstMatch(of: /"cursor":"(.+)"/).map { String($0.1) }
      words = cursor.map { ["--after", $0] } ?? []
      if let cursor { #expect(page.err == "note: more follow; go on with --after '\(cursor)'\n") }
    }
    #expect(paged == whole, "each is on one page")
    // A place stays, also when its record is held no more.
    _ = await b.run("held", "/A", "discard", "w 2")
    let behind = await b.run("held", "--json", "--after", "upload/Main/w 2", "/A").out
    #expect(behind.contains("w 3") && behind.split(separator: "\n").count == 4, "\(behind)")
    #expect(await b.run("held", "--code", "NONE", "/A").out == "")
    for wrong in ["x", "upload/Main", "upload/Main/w%202", "side/Main/a"] {
      #expect(await b.run("held", "--after", wrong, "/A").code == .usage, "\(wrong)")
    }
    for option in [["--limit", "1"], ["--code", "X"], ["--count"], ["--after", "upload/Main/a"]] {
      let screen = await b.run(["held", "/A", "retry"] + option, input: [])
      #expect(screen.code == .usage && screen.err.contains("is for the list"), "\(screen)")
    }
    #expect(await b.run("status", "--json", "--limit", "0", "/A").out.contains(#""held":[]"#))
    let status = await b.run("status", "--limit", "2", "/A").out
    #expect(status.contains("and 4 others\n") && status.contains("strandline held /A"), "\(status)")
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `What the server refuses as a whole` {
  @Test func `for want of storage is said by sync, status, pending, held and why`() async throws {
    let server = try await Serving("--quota-exceeded")
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    let sync = await machine.sync(server)
    #expect(sync.code == .unreachable && sync.err.contains("QUOTA_EXCEEDED"), "\(sync)")
    await server.end()
    let (status, pending) = (await machine.run("status", "/A"), await machine.run("pending", "/A"))
    #expect(status.out.contains("QUOTA_EXCEEDED"), "\(status)")
    #expect(pending.out.split(separator: "\n").filter { $0.contains("held: QUOTA_EXCEEDED") }.count == 2, "\(pending)")
    let held = await machine.run("held", "/A")
    #expect(held.out.split(separator: "\n").filter { $0.contains("QUOTA_EXCEEDED") }.count == 2, "\(held)")
    for name in ["a", "b"] {
      let story = await machine.lines("why", "/A", name)
      #expect(story.contains { $0.contains(" was set aside: QUOTA_EXCEEDED, ") }, "\(story)")
      #expect(story.contains { $0.hasPrefix("now: ") && $0.contains("(QUOTA_EXCEEDED, ") }, "\(story)")
    }
    for verb in ["status", "pending", "held"] {
      let json = await machine.run(verb, "--json", "/A").out
      #expect(json.contains("QUOTA_EXCEEDED"), "\(verb): \(json)")
    }
    #expect(await machine.run("why", "--json", "/A", "a").out.contains("QUOTA_EXCEEDED"))
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb why` {
  @Test func `tells the story of a record that was refused, released and given up`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    _ = await a.sync(server)
    _ = await b.run("import", "/A", "-", input: wrong + note("c", "2"))
    var story = await b.lines("why", "/A", "b")
    #expect(story.count == 3)
    #expect(story[0].contains("created here as 'Note' by this store (writer ") && story[0].hasSuffix("): title"))
    #expect(story[1].hasPrefix("now: its change of event 2 is not sent yet"))
    #expect(story[2] == "try: strandline sync --url URL --container ID /A")
    _ = await b.sync(server)
    story = await b.lines("why", "/A", "b")
    #expect(story.contains { $0.hasSuffix("event 2 was sent to the server, with 1 other record") }, "\(story)")
    #expect(
      story.contains {
        $0.contains("event 2 was set aside: BAD_REQUEST, ") && $0.hasSuffix("; it waits for a person")
      })
    #expect(story[story.count - 2].hasPrefix("now: its change of event 2 is set aside (BAD_REQUEST, "))
    #expect(
      story.last
        == "try: a save with what the server takes (by the app, or strandline put /A), or strandline held /A discard b")
    _ = await b.run("held", "/A", "release", "b")
    _ = await b.run("held", "/A", "discard", "b")
    story = await b.lines("why", "/A", "b")
    #expect(story.contains { $0.hasSuffix("released: it is sent again with the next sync") })
    #expect(story.contains { $0.hasSuffix("its changes up to event 2 were given up here") })
    #expect(story.last == "now: this store has nothing under the name")
    let json = await b.run("why", "--json", "/A", "b").out
    let keys = try JSONPage.check(json, of: "why")
    #expect(keys == ["lsn", "kind", "milliseconds", "words", "state", "try"])
    #expect(await b.run("why", "/A", "never").code == .noSuchStore)
    await server.end()
  }

  @Test func `says who lost a field to whom, and why, also when a compaction has taken both sides`() async throws {
    let server = try await Serving()
    let clock = SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true)
    let (a, b) = (Machine(seed: 1, clock: clock), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    _ = await a.sync(server)
    _ = await b.sync(server)
    _ = await b.run("import", "/A", "-", input: note("a", "b's"))
    clock.advance(milliseconds: 10_000)
    _ = await a.run("import", "/A", "-", input: note("a", "a's"))
    _ = await a.sync(server)
    let screen = await b.sync(server)
    #expect(screen.err.contains("given up: an edit of 'title' of 'Main/a': another one has won by the rule 'join'"))
    let history = await b.lines("history", "/A", "a")
    #expect(history.contains { $0.contains(" conflicted ") && $0.contains("title: lost here by join") }, "\(history)")
    #expect(history.contains { $0.contains(" settled ") && $0.hasSuffix(", lost") }, "\(history)")
    let json = await b.run("history", "--json", "/A", "a").out
    #expect(try JSONPage.check(json, of: "history").contains("fields"))
    #expect(json.contains(#""fields":[{"lost":"here","name":"title","rule":"join"}]"#))
    let dump = await b.lines("log-dump", "/A")
    #expect(dump.contains { $0.contains(" conflicted ") && $0.contains("fields title=join:here") }, "\(dump)")
    var story = await b.lines("why", "/A", "a")
    #expect(
      story.contains {
        $0.contains("met the server's version of event ") && $0.contains("; of 'title' the server's of writer ")
          && $0.hasSuffix(" won, and the one of here is lost, because it was written later")
      }, "\(story)")
    #expect(story.contains { $0.hasSuffix(" has lost: nothing of it is at the server") })
    for number in 0..<20 {
      _ = await a.run("import", "/A", "-", input: note("a", "\(number)"))
      _ = await a.sync(server)
      _ = await b.sync(server)
    }
    _ = await b.run("compact", "/A", "--history", "latest")
    story = await b.lines("why", "/A", "a")
    #expect(
      story.contains {
        $0.contains("; of 'title' the server's won, and the one of here is lost, because it was written later")
      }, "\(story)")
    await server.end()
  }

  @Test func `tells of a merge by its rule, of versions by their writers, and of deletions`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("n", "1"))
    _ = await a.sync(server)
    _ = await b.sync(server)
    _ = await a.run("put", "/A", #"{"recordName":"n","fields":{"x":1}}"#)
    _ = await a.sync(server)
    _ = await b.run("put", "/A", #"{"recordName":"n","fields":{"y":2}}"#)
    #expect(await b.sync(server).code == .done)
    var story = await b.lines("why", "/A", "n")
    #expect(
      story.contains { $0.contains("the server's feed brought version '") && $0.contains("is by writer ") }, "\(story)")
    let merge = "were merged by the rule 'join', both made from event "
    #expect(story.contains { $0.contains(merge) && $0.hasSuffix("to be sent: y") })
    let history = await b.run("history", "--json", "/A", "n").out
    let keys = try JSONPage.check(history, of: "history")
    #expect(keys.isSuperset(of: ["rule", "base", "ancestor"]) && history.contains(#""rule":"join""#))
    #expect(story.contains { $0.contains("the server has event ") && $0.contains(", as version '") })
    #expect(story.last?.hasPrefix("now: nothing is owed: the server has it, as version '") == true)
    _ = await b.run("delete", "/A", "n")
    #expect(await b.lines("why", "/A", "n").contains { $0.hasPrefix("now: its deletion of event ") })
    _ = await b.sync(server)
    story = await b.lines("why", "/A", "n")
    #expect(story.contains { $0.contains("the server has deleted the record, as event ") })
    let ending = ["now: it is deleted, and the server agrees", "try: strandline restore /A n"]
    #expect(Array(story.suffix(2)) == ending)
    _ = await a.sync(server)
    let deletion = "the server's feed said that the record was deleted"
    #expect(await a.lines("why", "/A", "n").contains { $0.hasSuffix(deletion) })
    _ = await b.run("compact", "--history", "latest", "/A")
    #expect(await b.lines("why", "/A", "n").suffix(2) == ending[...])
    await server.end()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb zones` {
  @Test func `a zone that was lost in an earlier run is named by every later one, though nothing is owed`() async throws
  {
    let machine = Machine()
    let put = await machine.run("put", "/A", #"{"recordType":"Note","recordName":"a","fields":{"title":"1"}}"#)
    #expect(put.code == .done, "\(put)")
    let server = try await Serving()
    #expect(await machine.sync(server).code == .done)
    // Another device ends the zone.
    let other = ["sync", "--url", server.url, "--container", "iCloud.test", "/B"]
    #expect(await machine.run(other, input: []).code == .done)
    #expect(await machine.run("zones", "/B", "erase", "Main", "--yes").code == .done)
    #expect(await machine.run(other, input: []).code == .done)
    for again in [await machine.sync(server), await machine.sync(server), await machine.sync(server, "--pull-only")] {
      #expect(again.code == .recoverable, "\(again)")
      #expect(again.err.contains("left: zone 'Main', zoneLost: "), "\(again)")
      #expect(again.err.contains("try: strandline zones /A resume Main"), "\(again)")
    }
    #expect(await machine.sync(server, "--zone", "Other").code == .done)
    await server.end()
  }

  @Test func `a zone that is left out is neither sent nor fetched, and what it owes is named`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    for zone in ["Main", "Data"] {
      _ = await b.run("put", "/A", #"{"recordType":"Note","recordName":"a","zoneName":"\#(zone)"}"#)
    }
    #expect(await b.sync(server).code == .done)
    _ = await a.run("put", "/A", #"{"recordType":"Note","recordName":"mine","zoneName":"Data"}"#)
    let left = await a.sync(server, "--leave-out", "Data")
    #expect(left.code == .done, "\(left)")
    #expect(left.err.contains("left: zone 'Data' is left out, and has changes that are not sent"), "\(left)")
    #expect(await a.run("get", "/A", "a").code == .done)
    #expect(await a.run("get", "/A", "--zone", "Data", "a").code != .done)
    #expect(await a.sync(server).code == .done)
    #expect(await a.run("get", "/A", "--zone", "Data", "a").code == .done)
    await server.end()
  }

  @Test func `names the verbs that end an erasure, before it is carried out and after`() async throws {
    let machine = Machine()
    let server = try await Serving()
    _ = await machine.run("put", "/A", #"{"recordType":"Note","recordName":"a","fields":{"title":"1"}}"#)
    #expect(await machine.sync(server).code == .done)
    // What was uploaded is compared, though the zone was never fetched.
    let compared = await machine.run(
      ["verify", "--against", server.url, "--container", "iCloud.test", "/A"], input: [])
    #expect(compared.code == .done && compared.out.contains("Main: "), "\(compared)")
    #expect(await machine.run("zones", "/A", "erase", "Main", "--yes").code == .done)
    let asked = await machine.lines("why", "/A", "a")
    #expect(asked.last == "try: strandline zones /A resume Main (takes the erasure back)", "\(asked)")
    #expect(await machine.sync(server).code == .done)
    _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"title":"2"}}"#)
    let late = await machine.sync(server)
    #expect(late.code == .unreachable && late.err.contains("'resync' creates it again"), "\(late)")
    let story = await machine.lines("why", "/A", "a")
    #expect(story.last == "try: " + sidesRemedy, "\(story)")
    #expect(await machine.run("zones", "/A", "resync-from-here", "Main").code == .done)
    #expect(await machine.sync(server).code == .done)
    await server.end()
  }

  @Test func `lists zones, and has a lost one synced again`() async throws {
    let machine = Machine()
    let other = #"{"recordType":"Note","recordName":"o","zoneName":"Other","fields":{"title":"x"}}"# + "\n"
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + other)
    #expect(
      await machine.run("zones", "/A")
        == Screen(
          code: .done,
          out: "Main: 1 record, first download with the next sync\n"
            + "Other: 1 record, first download with the next sync\n",
          err: ""))
    try JSONPage.check(await machine.run("zones", "--json", "/A").out, of: "zones")
    let needless = await machine.run("zones", "/A", "resume", "Main")
    #expect(needless.code == .noSuchStore && needless.err.contains("try: strandline zones /A\n"), "\(needless)")
    #expect(await machine.run("zones", "/A", "resume").code == .usage)
    let unknown = await machine.run("zones", "/A", "frobnicate", "Main")
    #expect(
      unknown.code == .usage
        && unknown.err.contains("zones takes resume, resync-from-server, resync-from-here, erase, not 'frobnicate'"))
    #expect(await machine.run("zones", "/none").code == .noSuchStore)
    // The server, to which nothing of the first one is known, does not have the zone any more.
    let first = try await Serving()
    #expect(await machine.sync(first).code == .done)
    await first.end()
    _ = await machine.run("put", "/A", #"{"recordName":"a","fields":{"title":"2"}}"#)
    let second = try await Serving()
    let lost = await machine.sync(second)
    #expect(lost.code == .unreachable, "\(lost)")
    #expect(lost.err.contains("strandline zones /A resume Main"), "\(lost)")
    let listed = await machine.run("zones", "/A")
    #expect(listed.out.contains("Main: 1 record, lost (") && listed.err == lostRemedy + "\n")
    let story = await machine.lines("why", "/A", "a")
    #expect(story.contains { $0.contains("its zone was lost: ") }, "\(story)")
    #expect(story.last == lostRemedy)
    #expect(await machine.run("zones", "/A", "resume", "Main") == Screen(code: .done, out: "", err: ""))
    #expect(await machine.run("zones", "/A").out.contains("Main: 1 record, has changes to fetch"))
    #expect(await machine.run("zones", "/A", "resync-from-here", "Nowhere").code == .noSuchStore)
    #expect(await machine.run("zones", "/A", "resync-from-here", "Main").code == .done)
    #expect(await machine.sync(second).code == .done)
    #expect(await machine.run("status", "--json", "/A").out.contains(#""unsettled":0"#))
    let zones = await machine.run("zones", "/A").out
    #expect(
      zones.contains("Main: 1 record") && zones.contains("Other: 1 record") && !zones.contains("lost"), "\(zones)")
    await second.end()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb verify, against a server,` {
  @Test func `202: says that both are equal, with one digest on every device, and writes nothing`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    let against = ["verify", "--against", server.url, "--container", "iCloud.test"]
    #expect(await a.run(against + ["/A"], input: []).code == .noSuchStore)
    _ = await a.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    #expect(await a.run(against + ["/A"], input: []).code == .noSuchStore)
    for machine in [a, b, a] { #expect(await machine.sync(server).code == .done) }
    let before = await a.run("log-dump", "/A").out
    let screen = await a.run(against + ["/A"], input: [])
    #expect(screen.code == .done && screen.out.hasPrefix("Main: equal, 2 records at the server, digest "), "\(screen)")
    #expect(await a.run("log-dump", "/A").out == before)
    #expect(await b.run(against + ["/A"], input: []).out == screen.out)
    let json = await a.run(against + ["--json", "--zone", "Main", "/A"], input: [])
    #expect(json.code == .done && json.out.contains(#""isEqual":true"#), "\(json)")
    try JSONPage.check(json.out, of: "verify --against")
    #expect(await a.run(against + ["--zone", "Nowhere", "/A"], input: []).code == .noSuchStore)
    #expect(await a.run("verify", "--zone", "Main", "/A").code == .usage)
    #expect(await a.run("verify", "--against", "nowhere", "--container", "c", "/A").code == .usage)
    #expect(await a.run("verify", "/A").code == .done)
    await server.end()
    #expect(await a.run(against + ["/A"], input: []).code == .unreachable)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb zones, erasing,` {
  @Test func `asks for yes, keeps what is not sent, and has the next sync delete the zone`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    let unknown = await a.run("zones", "/A", "erase", "Main", "--yes")
    #expect(unknown.code == .noSuchStore && unknown.err.contains("try: strandline zones /A "), "\(unknown)")
    _ = await a.sync(server)
    _ = await b.sync(server)
    #expect(await a.run("zones", "/A", "erase", "Main").code == .usage)
    #expect(await a.run("zones", "/A", "resume", "Main", "--yes").code == .usage)
    _ = await a.run("put", "/A", #"{"recordName":"a","fields":{"title":"2"}}"#)
    let refused = await a.run("zones", "/A", "erase", "Main", "--yes")
    #expect(refused.code == .recoverable && refused.err.contains("--discard-unsent"), "\(refused)")
    #expect(await !a.run("zones", "/A").out.contains("erase"))
    #expect(await a.run("zones", "/A", "erase", "Main", "--yes", "--discard-unsent").code == .done)
    #expect(await a.run("zones", "/A").out.contains("Main: 1 record, to be deleted at the server by the next sync"))
    let synced = await a.sync(server)
    #expect(synced.code == .done && synced.err == "", "\(synced)")
    let listed = await a.run("zones", "/A")
    #expect(listed.out.contains("erased (the app has erased it); kept here, not synced") && listed.err == "")
    try JSONPage.check(await a.run("zones", "--json", "/A").out, of: "zones")
    #expect(await a.lines("why", "/A", "a").contains { $0.contains("its zone was ended: the app has erased it") })
    // The other device finds it gone, and decides for itself.
    _ = await b.sync(server)
    #expect(await b.run("zones", "/A").out.contains("Main: 1 record, lost (deleted)"))
    let story = await b.lines("why", "/A", "a")
    #expect(
      story.suffix(2) == [
        "now: nothing is owed, and nothing comes, because its zone is not synced: the server does not have it (deleted)",
        lostRemedy,
      ])
    #expect(await b.run("zones", "/A", "resync-from-server", "Main").code == .done)
    #expect(await b.sync(server).code == .done)
    #expect(await b.run("zones", "/A").out.contains("Main: 0 records, erased ("))
    await server.end()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb sync, watching,` {
  /// What a command has printed so far.
  private final class Output: Sendable {
    private let text = Mutex("")
    func append(_ more: String) { text.withLock { $0 += more } }
    var lines: [String] { text.withLock { $0.split(separator: "\n").map(String.init) } }
    func wait(for words: String) async { while !lines.contains(where: { $0.contains(words) }) { await Task.yield() } }
  }

  @Test(arguments: [false, true])
  func `prints the status when it changes, and ends in order at Ctrl-C`(_ isJSON: Bool) async throws {
    let server = try await Serving()
    let output = Output()
    let machine = Machine { output.append($0) }
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let switches = isJSON ? ["--json"] : []
    let words = ["sync", "--watch", "--url", server.url, "--container", "iCloud.test"] + switches + ["/A"]
    async let watching = machine.run(words, input: [])
    await output.wait(for: "Synced")
    // The lock is held: another writer has to wait.
    #expect(await Machine(seed: 3).run("status", "/A").code == .noSuchStore)
    #expect(await machine.run("held", "/A", "retry").code == .tryLater)
    machine.interrupt()
    let screen = await watching
    #expect(screen.code == .done && screen.err == "", "\(screen)")
    let lines = output.lines
    // Which states are seen on the way depends on the machine: a slow reader skips some.
    #expect(lines.last?.contains("Synced") == true, "\(lines)")
    if isJSON {
      let keys = try JSONPage.check(lines.filter { $0.hasPrefix("{") }.joined(separator: "\n"), of: "sync --watch")
      #expect(keys.isSuperset(of: ["sentence", "phase", "done", "total"]))
    }
    // The store was closed, and everything is at the server.
    #expect(await machine.run("status", "--json", "/A").out.contains(#""unsettled":0"#))
    await server.end()
  }

  @Test func `says what it asks for while the server holds its answer back`() async throws {
    let server = try ByteServer("", keepsOpen: true)
    let output = Output()
    let machine = Machine { output.append($0) }
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    async let watching = machine.run("sync", "--watch", "--url", server.url, "--container", "iCloud.test", "/A")
    await output.wait(for: "Looking for changes")
    #expect(!output.lines.contains { $0.contains("Synced") }, "\(output.lines)")
    machine.interrupt()
    #expect(await watching.code == .done)
    #expect(await machine.run("status", "--json", "/A").out.contains(#""unsettled":1"#))
  }

  @Test func `says that the server cannot be reached, and refuses what it cannot do`() async throws {
    let server = try await Serving()
    await server.end()
    let output = Output()
    let machine = Machine { output.append($0) }
    async let watching = machine.run("sync", "--watch", "--url", server.url, "--container", "iCloud.test", "/A")
    await output.wait(for: "the server cannot be reached")
    machine.interrupt()
    #expect(await watching.code == .done)
    for words in [["--zone", "Z"], ["--pull-only"], ["--push-only"]] {
      let line = ["sync", "--watch", "--url", "http://127.0.0.1:1", "--container", "c"] + words + ["/A"]
      #expect(await machine.run(line, input: []).code == .usage)
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `What a sync leaves` {
  @Test func `is said by cause, with the verb that helps`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    _ = await a.sync(server)
    let many = (0..<2).map { #"{"recordType":"Note","recordName":"b\#($0)","fields":{"title":7}}"# + "\n" }.joined()
    _ = await b.run("import", "/A", "-", input: many + note("c", "2"))
    let screen = await b.sync(server)
    #expect(screen.code == .recoverable)
    #expect(screen.err.contains("left: 2 records, BAD_REQUEST; try: strandline held /A release NAME"), "\(screen)")
    #expect(await a.sync(server).err == "")
    await server.end()
  }

  @Test func `tells of a record that is listed and not here, and of what it is then set aside for`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("n", "1"))
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    let item = Listed.Item(name: "far", changeTag: "t1", modifiedMilliseconds: 1)
    try store.commitBlocking { try $0.append(.listed(Listed(zone: .main, items: [item]))) }
    try store.closeBlocking()
    var story = await machine.lines("why", "/A", "far")
    #expect(story.count == 3, "\(story)")
    #expect(
      story[0].hasSuffix(
        "the server's list of its zone names version 't1', which is fetched with the others of the list"))
    #expect(story[1] == "now: the server has it, and it is not here yet")
    #expect(await machine.lines("why", "/A", "n").contains { $0.contains("created here") })
    _ = await machine.run("put", "/A", #"{"recordType":"Note","recordName":"far","fields":{"title":"mine"}}"#)
    #expect(await machine.lines("why", "/A", "far").contains { $0.hasPrefix("now: its change of event ") })
    _ = await machine.run("delete", "/A", "far")
    story = await machine.lines("why", "/A", "far")
    #expect(story.contains { $0.hasPrefix("now: its deletion of event ") }, "\(story)")
  }

  @Test func `says that a version of the server's is not applied yet`() async throws {
    let server = try await Serving()
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("n", "1"))
    #expect(await machine.sync(server).code == .done)
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    try store.commitBlocking {
      try $0.append(
        .blocked(
          Blocked(id: RecordID("n"), subject: .version, births: [], consequence: .lookup, words: "an older version")))
    }
    try store.closeBlocking()
    var last = await machine.lines("why", "/A", "n").first { $0.hasPrefix("now: ") }
    #expect(last == "now: what the server said last is not applied yet, and it is asked again: an older version")
    #expect(await machine.sync(server).code == .done)
    last = await machine.lines("why", "/A", "n").first { $0.hasPrefix("now: ") }
    #expect(last?.hasPrefix("now: nothing is owed: the server has it") == true)
    await server.end()
  }
  @Test func `uploading a zone again does not say that its records were deleted`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1") + note("b", "1"))
    for machine in [a, b] { _ = await machine.sync(server) }
    #expect(await b.run("zones", "/A", "erase", "Main", "--yes").code == .done)
    _ = await b.sync(server)
    _ = await a.run("put", "/A", #"{"recordName":"a","fields":{"title":"2"}}"#)
    _ = await a.sync(server)
    #expect(await a.run("zones", "/A", "resync-from-here", "Main").code == .done)
    #expect(await a.sync(server).code == .done)
    for name in ["a", "b"] {
      let story = await a.lines("why", "/A", name)
      #expect(!story.contains { $0.contains("record was deleted") || $0.contains("event 0") }, "\(story)")
      #expect(story.last?.hasPrefix("now: nothing is owed: the server has it") == true, "\(story)")
    }
    let edited = await a.lines("why", "/A", "a")
    let words = "begins a new life of the record, because this store's records are uploaded again; to be sent: "
    #expect(edited.contains { $0.contains(words) }, "\(edited)")
    await server.end()
  }
}
