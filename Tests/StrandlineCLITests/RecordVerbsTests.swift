// `put`, `get`, `delete` and `status`: whole screens for one record or a few.

import Strandline
import StrandlineCLI
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct RecordVerbsTests {
  @Test func `put changes what it names and nothing else`() async {
    let machine = Machine()
    let created = await machine.run(
      "put", "/A", #"{"recordType":"Note","recordName":"n1","fields":{"title":"Milk","n":3},"parent":"list"}"#)
    #expect(created == Screen(code: .done, out: "", err: ""))
    #expect(
      await machine.run("put", "/A", "-", input: #"{"recordName":"n1","fields":{"n":null,"x":[1]}}"#).code == .done)
    let screen = await machine.run("get", "/A", "n1")
    #expect(
      screen.out == """
        record  Main/n1
        type    Note
        parent  list
        title   "Milk"
        x       [1]

        """)
    #expect(await machine.run("put", "/A", #"{"recordName":"n1","parent":null}"#).code == .done)
    #expect(
      await machine.run("get", "--json", "/A", "n1").out
        == #"{"fields":{"title":"Milk","x":[1]},"recordName":"n1","recordType":"Note","zoneName":"Main"}"# + "\n")
  }

  @Test func `put keeps the type of a field, in a record that is there and in a new one`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"Item","recordName":"a","fields":{"opens":3,"rate":1.5}}"#)
    let old = await machine.run("put", "/A", #"{"recordName":"a","fields":{"opens":"three"}}"#)
    let new = await machine.run("put", "/A", #"{"recordType":"Item","recordName":"b","fields":{"opens":"three"}}"#)
    for (screen, name) in [(old, "a"), (new, "b")] {
      #expect(screen.code == .dataDamaged && screen.out == "")
      for word in ["'Main/\(name)'", "'Item'", "'opens'", "INT64", "STRING", "another name"] {
        #expect(screen.err.contains(word), "\(screen.err) lacks \(word)")
      }
    }
    #expect(await machine.run("export", "/A").out.contains(#""opens":3,"rate":{"type":"DOUBLE","value":1.5}"#))
    #expect(await machine.run("put", "/A", #"{"recordName":"a","fields":{"rate":2}}"#).code == .done)
    #expect(
      await machine.run("put", "/A", #"{"recordType":"Item","recordName":"c","fields":{"rate":4}}"#).code == .done)
    #expect(await machine.run("types", "/A", "--fields").out.hasSuffix("  rate: DOUBLE\n"))
  }

  @Test func `dates are taken and shown as people write them`() async {
    let machine = Machine()
    let first = #"{"recordType":"Item","recordName":"a","fields":{"when":{"type":"TIMESTAMP","value":"2026-01-31"}}}"#
    #expect(await machine.run("put", "/A", first).code == .done)
    #expect(await machine.run("get", "/A", "a").out.hasSuffix("when    2026-01-31T00:00:00Z\n"))
    let other = #"{"recordType":"Item","recordName":"b","fields":{"when":"2026-02-01T10:00:00.250Z"}}"#
    #expect(await machine.run("put", "/A", other).code == .done)
    #expect(await machine.run("get", "/A", "b").out.hasSuffix("when    2026-02-01T10:00:00.250Z\n"))
    #expect(await machine.run("put", "/A", #"{"recordName":"a","fields":{"when":"2026-03-01"}}"#).code == .done)
    #expect(
      await machine.run("get", "--json", "/A", "a").out.contains(#""when":{"type":"TIMESTAMP","value":1772323200000}"#))
    let list = #"{"recordName":"a","fields":{"days":{"type":"TIMESTAMP_LIST","value":[0,"1970-01-02"]}}}"#
    #expect(await machine.run("put", "/A", list).code == .done)
    #expect(await machine.run("get", "/A", "a").out.contains("days    [1970-01-01T00:00:00Z, 1970-01-02T00:00:00Z]\n"))
    let wrong = #"{"recordName":"a","fields":{"when":{"type":"TIMESTAMP","value":"soon"}}}"#
    #expect(await machine.run("put", "/A", wrong).code == .dataDamaged)
  }

  @Test func `a verb names the one that helps`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"Item","recordName":"a"}"#)
    #expect(await machine.run("get", "/A", "x").err.contains("try: strandline why /A x\n"))
    #expect(await machine.run("why", "/A", "x").err.contains("try: strandline types /A"))
  }

  @Test func `query finds the children of a record`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"List","recordName":"l"}"#)
    for name in ["a", "b"] {
      _ = await machine.run("put", "/A", #"{"recordType":"Item","recordName":"\#(name)","parent":"l"}"#)
    }
    _ = await machine.run("put", "/A", #"{"recordType":"Item","recordName":"c"}"#)
    #expect(await machine.run("query", "/A", "Item", "--where", "parent = l", "--count").out == "2\n")
    let none = await machine.run("query", "/A", "Item", "--where", "parent = m")
    #expect(none.out == "" && !none.err.contains("misspelt") && !none.err.contains("no field"), "\(none.err)")
  }

  @Test func `query and watch find a reference whatever its action`() async throws {
    let machine = Machine()
    func reference(_ name: String, _ action: String) -> String {
      #"{"type":"REFERENCE","value":{"recordName":"\#(name)","action":"\#(action)"}}"#
    }
    for (name, action) in [("a", "NONE"), ("b", "DELETE_SELF"), ("c", "VALIDATE")] {
      let fields = #"{"of":\#(reference("target", action))}"#
      #expect(
        await machine.run("put", "/A", #"{"recordType":"Item","recordName":"\#(name)","fields":\#(fields)}"#).code
          == .done)
    }
    for isIndexed in [false, true] {
      if isIndexed { #expect(await machine.run("index", "/A", "add", "Item", "of").code == .done) }
      for action in ["NONE", "DELETE_SELF", "VALIDATE"] {
        let condition = "of = " + reference("target", action)
        #expect(await machine.run("query", "/A", "Item", "--where", condition, "--count").out == "3\n", "\(isIndexed)")
      }
      let other = await machine.run("query", "/A", "Item", "--where", "of = " + reference("other", "NONE"), "--count")
      #expect(other.out == "0\n")
    }
  }

  @Test func `text in a record or a command line cannot control the terminal`() async throws {
    #expect(
      isTame("plain – ü\n") && !isTame("\u{1B}[2J") && !isTame("\u{9B}2J") && !isTame("\u{202E}") && !isTame("\r"))
    let machine = Machine()
    let steering = "\u{1B}]0;owned\u{7}\r\u{9B}2J\u{202E}"
    let escaped = #"\u001b]0;owned\u0007\r\u009b2J\u202e"#
    _ = await machine.run(
      "put", "/A", #"{"recordType":"Note","recordName":"n","fields":{"title":"\#(escaped)","list":["\#(escaped)"]}}"#)
    #expect(await machine.run("get", "/A", "n").out.contains("owned"))
    try machine.file("/bad", note("m", "fine") + #"{"recordType":"Note","recordName":"\#(escaped)"}"# + "\n")
    let lines: [[String]] = [
      ["get", "/A", "n"], ["get", "/A", steering], ["delete", "/A", steering], ["get", "/\(steering)", "n"],
      ["log-dump", "/A"], ["status", "/A"], ["import", "/A", "/bad"], ["import", "/A", "/\(steering)"],
      ["put", "/A", #"{"recordType":"Note","recordName":"n","fields":{"\#(escaped)":1}}"#],
      ["put", "/A", #"{"recordType":"Note","recordName":"n","\#(escaped)":1}"#],
      ["put", "/A", #"{"recordType":"\#(escaped)","recordName":"n"}"#],
      ["put", "/A", #"{"recordType":"Note","recordName":"\#(escaped)"}"#],
      ["put", "/A", #"{"recordType":"Note","recordName":"n","fields":{"x":{"\#(escaped)":1}}}"#],
      [steering], ["get", "--\(steering)"], ["help", steering], ["verify", "/\(steering)"],
      ["sync", "--url", steering, "--container", "c", "/A"],
      ["sync", "--url", "http://x", "--container", "c", "--environment", steering, "/A"],
    ]
    for words in lines {
      let screen = await machine.run(words, input: [])
      #expect(isTame(screen.out) && isTame(screen.err), "\(words)")
      #expect(
        (screen.out + screen.err).contains("owned") || ["status", "log-dump"].contains(words[0]), "\(words) \(screen)")
    }
  }

  @Test func `a put that fails leaves no store at a mistyped path`() async throws {
    let machine = Machine()
    for json in [
      #"{"recordName":"n1","fields":{"title":"x"}}"#, #"{"recordType":"Note","recordName":"_n"}"#,
      #"{"recordType":"Note","recordName":"n","fields":{"1":2}}"#,
    ] {
      #expect(await machine.run("put", "/typo", json).code == .dataDamaged)
      #expect(try machine.disk.kind(of: "/typo") == .absent)
    }
    #expect(await machine.run("put", "/new", #"{"recordType":"Note","recordName":"n"}"#).code == .done)
    #expect(await machine.run("get", "/new", "n").code == .done)
  }

  @Test(arguments: [
    (#"{"a":{"value":1.5,"type":"TIMESTAMP"}}"#, ", column 59: fields.a.value: a time that is not whole milliseconds"),
    (#"{"a":{"type":"INT64","value":"5"}}"#, ", column 74: fields.a.value: expected a number, found a string"),
    ("{\"a\":1,\n}", ", line 2, column 1: not valid JSON: expected a key in double quotes, found '}'"),
    (#"{"a":[1,]}"#, ", column 53: not valid JSON: expected a value, found ']'"),
  ])
  func `put refuses what only a lenient reader takes, and says where`(_ fields: String, _ words: String) async throws {
    let machine = Machine()
    let line = #"{"recordType":"N","recordName":"x","fields":\#(fields)}"#
    let screen = await machine.run("put", "/A", "-", input: line)
    #expect(screen.code == .dataDamaged)
    #expect(screen.err.hasPrefix("error: the record\(words)\n"), "\(screen.err)")
    #expect(try machine.disk.kind(of: "/A") == .absent)
  }

  @Test func `export prints a note for a zone that the store does not have`() async {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    #expect(
      await machine.run("export", "--zone", "Mian", "/A")
        == Screen(code: .done, out: "", err: "note: '/A' has no zone 'Mian'; its zones are Main\n"))
    #expect(await machine.run("export", "--zone", "Main", "/A").err == "")
    // A zone whose records were all deleted is still a zone.
    _ = await machine.run("delete", "/A", "a")
    #expect(await machine.run("export", "--zone", "Main", "/A") == Screen(code: .done, out: "", err: ""))
  }

  @Test func `put rejects invalid records`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"Note","recordName":"n1"}"#)
    for (json, words) in [
      (#"{"recordName":"new","fields":{}}"#, "record 'Main/new': the key 'recordType' is missing"),
      (
        #"{"recordName":"n1","recordType":"Other"}"#,
        "the record has the type 'Note', which cannot be changed to 'Other'"
      ),
      (#"{"fields":{}}"#, "the key 'recordName' is missing"), ("{", "not valid JSON"),
    ] {
      let screen = await machine.run("put", "/A", json)
      #expect(screen.code == .dataDamaged)
      #expect(screen.err.contains(words), "\(screen.err)")
      #expect(screen.err.hasSuffix("try: strandline help put\n"))
    }
  }

  @Test func `query finds by conditions, in order, page by page`() async throws {
    let machine = Machine()
    var lines = ""
    for (number, title) in ["low tide", "high tide", "moon", "Low water", ""].enumerated() {
      let tags = number % 2 == 0 ? #"["sea","n\#(number)"]"# : #"["sky"]"#
      lines +=
        #"{"recordType":"Note","recordName":"n\#(number)","fields":{"title":"\#(title)","n":\#(number),"tags":\#(tags)}}"#
      lines += "\n"
    }
    lines += #"{"recordType":"Other","recordName":"o","fields":{"title":"moon"}}"# + "\n"
    try machine.file("/lines", lines)
    #expect(await machine.run("import", "/A", "/lines").code == .done)
    func names(_ words: String...) async -> [String] {
      let screen = await machine.run(["query", "/A", "Note"] + words, input: [])
      #expect(screen.code == .done, "\(screen)")
      return screen.out.split(separator: "\n").compactMap { line in
        line.split(separator: #""recordName":""#).dropFirst().first.map { String($0.prefix(2)) }
      }
    }
    #expect(await names() == ["n0", "n1", "n2", "n3", "n4"])
    #expect(await names("--where", "title = moon") == ["n2"])
    #expect(await names("--where", #"title = "moon""#) == ["n2"])
    #expect(await names("--where", "title =") == ["n4"])
    #expect(await names("--where", "title begins_with low") == ["n0"])
    #expect(await names("--where", "n >= 1", "--where", "n < 3", "--sort", "n:desc") == ["n2", "n1"])
    #expect(await names("--where", #"n IN [0, 4]"#) == ["n0", "n4"])
    #expect(await names("--where", "tags LIST_CONTAINS sea", "--sort", "title") == ["n4", "n0", "n2"])
    #expect(await names("--zone", "Elsewhere") == [])
    #expect(await machine.run("query", "/A", "Note", "--count", "--where", "n != 2").out == "4\n")
    let first = await machine.run("query", "/A", "Note", "--limit", "2", "--sort", "title")
    let cursor = try #require(first.err.split(separator: " ").last.map { String($0.filter { !$0.isNewline }) })
    #expect(first.err.hasPrefix("note: more follow; go on with --after "))
    #expect(await names("--limit", "9", "--sort", "title", "--after", cursor) == ["n1", "n0", "n2"])
    for words in [
      ["--where", "title"], ["--where", ""], ["--where", "n ~ 2"], ["--where", "n IN 2"], ["--where", "n = [1]"],
      ["--sort", ":"], ["--sort", "n:up"], ["--limit", "0"], ["--after", "zz"], ["--after", String(cursor.dropLast())],
      ["--limit", "1", "--limit", "2"],
    ] {
      let screen = await machine.run(["query", "/A", "Note"] + words, input: [])
      #expect(screen.code == .usage && screen.out.isEmpty && !screen.err.isEmpty, "\(words): \(screen)")
    }
    #expect(await machine.run("query", "/A", "Note", "--after", cursor).code != .done)
    #expect(await machine.run("query", "/nothing", "Note").code == .noSuchStore)
  }

  @Test func `index lists, adds and drops, and query explains`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2") + note("c", "3"))
    #expect(await machine.run("index", "/A") == Screen(code: .done, out: "", err: ""))
    let query = ["query", "/A", "Note", "--sort", "title:desc", "--limit", "2"]
    let scanned = await machine.run(query, input: [])
    #expect(
      await machine.run(query + ["--explain"], input: []).out
        == "reads all records of type 'Note', and sorts those that it finds; "
        + "an index Note(title descending) would spare that\n")
    #expect(await machine.run("index", "/A", "add", "Note", "title:desc") == Screen(code: .done, out: "", err: ""))
    #expect(await machine.run("index", "/A", "list").out == "Note title:desc ready\n")
    let lines = await machine.run("index", "--json", "/A", "list").out
    #expect(lines == #"{"ascending":false,"field":"title","ready":true,"type":"Note"}"# + "\n")
    #expect(try JSONPage.check(lines, of: "index") == ["ascending", "field", "ready", "type"])
    #expect(
      await machine.run(query + ["--explain"], input: []).out
        == "uses the index Note(title descending), whose order is that of the answer\n")
    #expect(await machine.run(query, input: []) == scanned)
    #expect(await machine.run("index", "/A", "add", "Note").code == .done)
    #expect(await machine.run("index", "/A", "list").out == "Note title:desc ready\nNote ready\n")
    #expect(await machine.run("index", "/A", "drop", "Note", "title:desc").code == .done)
    #expect(await machine.run("index", "/A").out == "Note ready\n")
    for words in [["ad"], ["add"], ["drop"], ["list", "Note"], ["add", "Note", "title:up"]] {
      let screen = await machine.run(["index", "/A"] + words, input: [])
      #expect(screen.code == .usage && screen.out.isEmpty && !screen.err.isEmpty, "\(words): \(screen)")
    }
    #expect(await machine.run("index", "/nothing").code == .noSuchStore)
    #expect(await machine.run("index", "/nothing", "add", "Note", "title").code == .noSuchStore)
  }

  @Test func `a deleted record stays deleted until --recreate`() async {
    let machine = Machine()
    let json = #"{"recordType":"Note","recordName":"n1","fields":{}}"#
    _ = await machine.run("put", "/A", json)
    #expect(await machine.run("delete", "/A", "n1") == Screen(code: .done, out: "", err: ""))
    let refused = await machine.run("put", "/A", json)
    #expect(refused.code == .dataDamaged)
    #expect(refused.err.contains("was deleted here"))
    #expect(await machine.run("put", "--recreate", "/A", json).code == .done)
    #expect(await machine.run("get", "/A", "n1").code == .done)
  }

  @Test func `restore brings deleted records back, all or none`() async {
    let machine = Machine()
    for name in ["n1", "n2"] {
      let json = #"{"recordType":"Note","recordName":"\#(name)","fields":{"title":"\#(name)"}}"#
      #expect(await machine.run("put", "/A", json).code == .done)
    }
    let before = await machine.run("export", "/A").out
    _ = await machine.run("delete", "/A", "n1", "n2")
    #expect(await machine.run("why", "/A", "n1").out.contains("strandline"))
    for names in [["n1", "n2", "n3"], ["n1", "n1"]] {
      let refused = await machine.run(["restore", "/A"] + names, input: [])
      #expect(refused.code != .done && refused.out.isEmpty && !refused.err.isEmpty)
      #expect(await machine.run("export", "/A").out.isEmpty)
    }
    #expect(await machine.run("restore", "/A", "n1", "n2") == Screen(code: .done, out: "", err: ""))
    #expect(await machine.run("export", "/A").out == before)
    #expect(await machine.run("restore", "/A", "n1").code == .dataDamaged)
    #expect(await machine.run("restore", "/A", "n4").code == .noSuchStore)
    #expect(await machine.run("restore", "/nope", "n1").code == .noSuchStore)
  }

  @Test func `get of a missing record is 66 and names a command to find out more`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"Note","recordName":"n1"}"#)
    #expect(
      await machine.run("get", "/A", "n 2")
        == Screen(
          code: .noSuchStore, out: "",
          err: """
            error: '/A' has no record 'Main/n 2'
            try: strandline why /A 'n 2'

            """))
    #expect(
      await machine.run("get", "/nope", "n1")
        == Screen(
          code: .noSuchStore, out: "",
          err: """
            error: cannot read the store at '/nope': there is no store at '/nope'
            try: strandline import /nope FILE   (a store is created by the first write)

            """))
  }

  @Test func `delete is all or nothing, and names the records that do not exist`() async {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    let screen = await machine.run("delete", "/A", "a", "x", "b", "y")
    #expect(
      screen
        == Screen(
          code: .noSuchStore, out: "",
          err: "error: nothing was deleted: '/A' has no record 'Main/x', 'Main/y'\n"))
    #expect(await machine.run("export", "/A").out.split(separator: "\n").count == 2)
    #expect(await machine.run("delete", "/A", "a", "b", "a").code == .done)
    #expect(await machine.run("export", "/A").out == "")
    #expect(await machine.run("delete", "/nope", "a").code == .noSuchStore)
  }

  @Test func `status as text and as JSON, without field values`() async {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "secret") + note("b", "2") + note("c", "3"))
    _ = await machine.run("delete", "/A", "c")
    #expect(
      await machine.run("status", "/A").out.replacing(#/log  +[1-9][0-9,]* bytes/#, with: "log            N bytes")
        == """
        records        2
        deleted names  1
        unsent         3 records, the oldest 0 s old
        newest event   6
        log            N bytes
        account        none: never synced
        zone Main      2 records, first download with the next sync

        """)
    #expect(
      await machine.run("status", "--json", "/A").out.replacing(#/"logBytes":[1-9][0-9]*/#, with: #""logBytes":1"#)
        == #"{"account":null,"checkpoint":1,"contents":{"bytes":0,"count":0,"staged":0},"damage":[],"deleted":1,"durableLSN":6,"held":[],"inbox":null,"logBytes":1,"oldestUnsettledMilliseconds":0,"openBlocks":0,"quarantine":[],"records":2,"unsettled":3,"waitMilliseconds":null,"waitReason":null,"zones":[{"ghostsPossible":false,"hasToken":false,"isDirty":false,"listed":0,"lostReason":null,"lostWords":"","records":2,"zoneName":"Main"}]}"#
        + "\n")
  }

  @Test func `status, verify and log-dump show the inbox`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "6"))
    let inbox = try RecordStore.inbox(at: "/A", environment: StoreEnvironment(machine.environment))
    try inbox.write { tx in
      try tx.save(Record(type: "Note", id: RecordID("shared"), fields: ["t": "secret"]))
      try tx.save(Record(type: "Note", id: RecordID("gone")))
    }
    let waiting = await machine.run("status", "/A").out
    #expect(waiting.contains(#/\ninbox +1 transaction to take in, [0-9]+ bytes\n/#), "\(waiting)")
    let dump = await machine.run("log-dump", "/A/inbox").out
    #expect(dump.contains(#/1 +inboxChange +shared +operation save, type Note/#), "\(dump)")
    #expect(!dump.contains("secret"), "\(dump)")
    #expect(await machine.run("log-dump", "--kind", "saved", "/A/inbox").err.contains("'/A/inbox' is an inbox"))
    let sound = await machine.run("verify", "/A")
    #expect(sound.code == .done && sound.out.hasPrefix("inbox: sound; 1 segment, "), "\(sound)")
    // A name that the store has deleted when it takes the transaction in. `put` does that as any writer.
    let device = machine.disk.clone()
    for verb in [["put", "/A", #"{"recordType":"Note","recordName":"b"}"#], ["status", "--json", "/A"]] {
      let screen = await machine.run(verb, input: [])
      #expect(screen.code == .done)
      if verb[0] == "status" { #expect(screen.out.contains(#""inbox":{"bytes":0,"failure":null,"refusals":[],"#)) }
    }
    #expect(await machine.run("get", "/A", "shared").out.contains("secret"))
    #expect(await machine.run("log-dump", "--kind", "inboxRead", "/A").out.contains("position 2"))
    // Damage of the inbox alone is told, and the store's own line says that it is sound.
    for path in machine.disk.paths where path.hasPrefix("/A/inbox/") { machine.disk.pokeRemove(path) }
    for path in device.paths where path.hasPrefix("/A/inbox/") {
      var bytes = try #require(device.peek(path))
      if path.hasSuffix(".seg") { bytes[4_200] ^= 1 }
      machine.disk.poke(path, bytes)
    }
    let damaged = await machine.run("verify", "/A")
    #expect(damaged.code == .dataDamaged && damaged.out.hasPrefix("/A/inbox/"), "\(damaged)")
    #expect(damaged.out.contains("\ninbox: damaged: 1 finding; "), "\(damaged)")
    #expect(damaged.out.contains("\nsound; "), "\(damaged)")
    let status = await machine.run("status", "/A")
    #expect(status.code == .done && status.out.contains("\ninbox fails "), "\(status)")
  }

  @Test func `status names the damage that it met, and what to do`() async throws {
    let (machine, file, place) = try Machine.withDamageBelowTables()
    let query = await machine.run("query", "/A", "N")
    #expect(query.code == .dataDamaged && query.out.split(separator: "\n").count == 39)
    #expect(query.err.hasPrefix("error: reading record 'Main/r0': ") && query.err.contains("'\(file)' is damaged"))
    #expect(query.err.hasSuffix("strandline verify /A\n"), "\(query.err)")
    let screen = await machine.run("status", "/A")
    #expect(screen.code == .done)
    let lines = screen.out.split(separator: "\n").filter { $0.hasPrefix("damaged  ") || $0.hasPrefix("try  ") }
    #expect(lines.count == 2, "\(screen.out)")
    #expect(lines.first?.contains("  \(file):\(place.offset), event 2: ") == true, "\(lines)")
    #expect(lines.last?.hasSuffix("  strandline verify /A, then strandline repair /A") == true, "\(lines)")
    let json = await machine.run("status", "--json", "/A").out
    #expect(
      json.contains(#""damage":[{"file":"\#(file)","firstLSN":2,"lastLSN":2,"message":""#)
        && json.contains(#""offset":\#(place.offset)}]"#), "\(json)")
  }

  @Test func `history and why name the deletion that took a record along, and restore takes all back`() async throws {
    let machine = Machine()
    var options = StoreOptions()
    options.schema["Item"].parent = ParentSchema("list", whenDeleted: .delete)
    let store = try RecordStore.openBlocking(
      at: "/A", options: options, environment: StoreEnvironment(machine.environment))
    try store.writeBlocking { tx in
      try tx.save(Record(type: "List", id: RecordID("home")))
      try tx.save(Record(type: "Item", id: RecordID("milk"), fields: ["list": .reference(Reference("home"))]))
    }
    try store.writeBlocking { try $0.delete(RecordID("home")) }
    try store.closeBlocking()
    let history = await machine.run("history", "/A", "milk").out
    #expect(history.contains("with the deletion 4 of a record above it"), "\(history)")
    let json = await machine.run("history", "--json", "/A", "milk").out
    #expect(json.contains(#""cause":4"#), "\(json)")
    try JSONPage.check(json, of: "history")
    let story = await machine.run("why", "/A", "milk").out
    #expect(story.contains("with 'home', which was above it (event 4)"), "\(story)")
    #expect(await machine.run("log-dump", "/A").out.contains("cause 4"))
    #expect(await machine.run("restore", "/A", "home").code == .done)
    #expect(await machine.run("get", "/A", "milk").code == .done)
  }

  @Test func `the story of a record says what a compaction has taken, and is silent where it has taken nothing`()
    async throws
  {
    let machine = Machine()
    for number in 1...5 {
      _ = await machine.run("put", "/A", #"{"recordType":"N","recordName":"n","fields":{"t":\#(number)}}"#)
    }
    #expect(await !machine.run("why", "/A", "n").out.contains("compaction"))
    #expect(await machine.run("compact", "/A", "--history", "latest").code == .done)
    let story = await machine.run("why", "/A", "n").out
    #expect(story.contains("what a compaction has removed up to here is missing above"), "\(story)")
    let json = await machine.run("why", "--json", "/A", "n").out
    #expect(json.contains(#""kind":"compacted""#), "\(json)")
    try JSONPage.check(json, of: "why")
  }

  @Test func `the story of a default says so`() async throws {
    let machine = Machine()
    let store = try RecordStore.openBlocking(at: "/A", environment: StoreEnvironment(machine.environment))
    try store.writeBlocking { try $0.saveDefault(Record(type: "N", id: RecordID("n"), fields: ["t": 1])) }
    try store.closeBlocking()
    _ = await machine.run("put", "/A", #"{"recordName":"n","fields":{"t":2}}"#)
    let story = await machine.run("why", "/A", "n").out
    #expect(story.contains("begun here with a default as 'N'") && story.contains("changed here"), "\(story)")
    #expect(await machine.run("history", "/A", "n").code == .done)
    let other = Machine()
    #expect(await other.run("import", "/B", "-", input: machine.run("export", "/A").out).code == .done)
    #expect(await other.run("export", "/B").out == machine.run("export", "/A").out)
  }

  @Test func `a record name with control characters cannot control the terminal`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"N","recordName":"n","fields":{"t":"a\u001b[31mb"}}"#)
    let screen = await machine.run("get", "/A", "n")
    #expect(!screen.out.contains("\u{1B}"))
  }

  @Test func `a closed standard output is 74`() async {
    let machine = Machine()
    _ = await machine.run("put", "/A", #"{"recordType":"N","recordName":"n"}"#)
    machine.writesLeft.withLock { $0 = 0 }
    for words in [
      ["export", "/A"], ["get", "/A", "n"], ["status", "/A"], ["log-dump", "/A"], ["verify", "/A"], ["help"],
    ] {
      let screen = await machine.run(words, input: [])
      #expect(screen.code == .inputOutput)
      #expect(screen.err.hasPrefix("error: cannot write to standard output"))
    }
  }
}
