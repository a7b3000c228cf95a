// What the pages of `open` and `serve` do besides keeping others out: they change a store only when they may, tell of new events,
// end when nobody looks, and watch a server without a trace.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import StrandlineCLI

@Suite(.serialized, .timeLimit(.minutes(30)))
struct `A page` {
  /// A machine with a store whose record `b` the server has refused, and what its commands print.
  private func withHeldRecord() async throws -> (Machine, AsyncStream<String>) {
    let (serving, printed) = Machine.withLines(seed: 9)
    let server = try await PageServing(["serve", "/srv"], on: serving, printed)
    let (machine, lines) = Machine.withLines()
    let other = Machine(seed: 2)
    for (device, line) in [
      (other, note("a", "1")), (machine, #"{"recordType":"Note","recordName":"b","fields":{"title":7}}"# + "\n"),
    ] {
      _ = await device.run("import", "/A", "-", input: line)
      _ = await device.run("sync", "--url", "http://\(server.own)", "--container", "iCloud.test", "/A")
    }
    _ = await server.end()
    #expect(await machine.run("held", "/A").out.hasPrefix("Main/b: "))
    return (machine, lines)
  }

  @Test func `changes nothing unless it was allowed to`() async throws {
    let (machine, lines) = try await withHeldRecord()
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    #expect(try await page.verb("held", ["--limit", "5"]).body.contains(#""recordName":"b""#))
    let refused = try await page.change("held", ["release", "b"])
    #expect(refused.status == 403 && refused.body.contains("strandline open --allow-changes lets it change something"))
    #expect(await page.end().code == .done)
    #expect(await machine.run("held", "/A").out.hasPrefix("Main/b: "))
  }

  @Test func `releases and discards held records, and never while another process writes`() async throws {
    let (machine, lines) = try await withHeldRecord()
    let page = try await PageServing(["open", "--allow-changes", "/A"], on: machine, lines)
    for words in [["erase", "Main"], ["resume"], ["resume", "Main", "more"]] {
      #expect(try await page.change("zones", words).status == 400, "\(words)")
    }
    for command in Command.all where !PageVerb.changing.contains(where: { $0.name == command.name }) {
      #expect(try await page.change(command.name, ["b"]).status == 404, "\(command.name)")
    }
    let writer = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    let busy = try await page.change("held", ["release", "b"])
    #expect(
      busy.status == 200 && busy.body.contains(#""code":75"#)
        && busy.body.contains("try: the same command when the other process has ended"), "\(busy.body)")
    try writer.closeBlocking()
    let done = try await page.change("held", ["release", "b"])
    #expect(done.body.contains(#""code":0"#) && done.body.contains("strandline held /A release b"), "\(done.body)")
    #expect(try await page.verb("held", ["--count"]).body.contains(#""lines":[]"#))
    #expect(try await page.change("held", ["discard", "b"]).body.contains(#""code":0"#))
    #expect(try await page.verb("pending", ["--limit", "5"]).body.contains(#""lines":[]"#))
    #expect(try await page.change("zones", ["resync-from-here", "Main"]).body.contains(#""code":0"#))
    let said = await page.end().err
    #expect(said.contains("note: the page has done: strandline held /A release b\n"), "\(said)")
    #expect(
      said.contains("note: the page asked, and it was not done: strandline held /A release b; error: cannot open"),
      "\(said)")
  }

  @Test func `ends what it has begun, and says so, also for a browser that is gone`() async throws {
    let (machine, lines) = try await withHeldRecord()
    let page = try await PageServing(["open", "--allow-changes", "/A"], on: machine, lines)
    let cookie = try await page.cookie()
    let fields = [cookie, page.ownOrigin, try await page.changeToken(cookie)]
    let gone = try page.connect("POST", "/api/run", fields, body: "verb=held&w=release&w=b")
    gone.close()
    while try await !page.verb("held", ["--count"]).body.contains(#""lines":[]"#) {}
    let screen = await page.end()
    #expect(screen.code == .done && screen.err.contains("note: the page has done: strandline held /A release b\n"))
    #expect(await machine.run("held", "/A").out == "")
  }

  @Test func `tells of new events while an app writes`() async throws {
    let (machine, lines) = Machine.withLines()
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    let stream = try page.connect("GET", "/api/events", [try await page.cookie()])
    var heard = ""
    func hear(_ part: String) async throws {
      while !heard.contains(part) {
        let piece = try await onThread("browser") { try stream.receive(max: 1 << 16, timeoutMilliseconds: 60_000) }
        guard !piece.isEmpty else { return }
        heard += String(decoding: piece, as: UTF8.self)
      }
    }
    try await hear("event: moment\ndata: {\"isWritten\":true,\"lsn\":")
    let receipt = try store.writeBlocking {
      try $0.save(Record(type: "Note", id: RecordID("c"), fields: ["title": "3"]))
    }
    try await hear("\"lsn\":\(store.durableLSN)}")
    #expect(heard.contains("\"lsn\":\(store.durableLSN)}"), "\(receipt)")
    #expect(try await page.verb("get", ["c"]).body.contains(#""title":"3""#))
    try store.closeBlocking()
    try await hear("\"isWritten\":false")
    #expect(heard.contains("\"isWritten\":false"))
    stream.close()
    _ = await page.end()
  }

  @Test func `ends when it has been closed for a minute, and not before`() async throws {
    let clock = PushedClock()
    let (machine, lines) = Machine.withLines(clock: clock)
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    /// Lets time pass, a second after the other, as long as the command answers. Returns the seconds.
    func answers(atMost seconds: Int) async -> Int {
      var passed = 0
      while passed < seconds, (try? await page.ask("GET", "/nothing").status) == 404 {
        clock.push(seconds: 1)
        passed += 1
      }
      return passed
    }
    func stream() async throws -> Connection {
      let stream = try page.connect("GET", "/api/events", [try await page.cookie()])
      _ = try await onThread("browser") { try stream.receive(max: 1 << 10, timeoutMilliseconds: 60_000) }
      return stream
    }
    #expect(await answers(atMost: 200) == 200, "it waits for as long as it takes to open the page")
    let first = try await stream()
    #expect(await answers(atMost: 200) == 200, "the page is open")
    first.close()
    #expect(await answers(atMost: 50) == 50)
    let second = try await stream()
    #expect(await answers(atMost: 100) == 100, "the page came back in time")
    second.close()
    // The command may notice late that a connection was closed, or that a minute is over.
    let last = await answers(atMost: 600)
    #expect((60..<300).contains(last), "closed for \(last) s")
    #expect(await page.ended().code == .done)
  }

  /// A machine with a store and a terminal, and what its commands print.
  private func withTerminal(_ variables: [String: String]) async -> (Machine, AsyncStream<String>) {
    let (lines, feed) = AsyncStream<String>.makeStream()
    let machine = Machine(isErrorTerminal: true, onOutput: { feed.yield($0) }, onError: { feed.yield($0) })
    for (name, value) in variables { machine.set(name, value) }
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    return (machine, lines)
  }

  @Test func `is opened in the browser of its machine, under an address that works once`() async throws {
    let folder = try TemporaryFolder()
    // What opens a browser writes the address into a pipe.
    let script = #"#!/bin/sh\nprintf "%%s" "$*" > "${0%%/*}/address"\n"#
    let made = try ChildProcess(
      "/bin/sh",
      [
        "-c", #"mkfifo "$0/address" && printf "$2" > "$0/$1" && chmod 700 "$0/$1""#, folder.path, Browser.program,
        script,
      ])
    #expect(try made.wait() == .exited(0))
    let (machine, lines) = await withTerminal(["DISPLAY": ":0", "PATH": "/none:\(folder.path)"])
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    let reader = try ChildProcess("/bin/cat", [folder("address")], output: .pipe)
    let bytes = try await onThread("browser") { try reader.output?.readAll() ?? [] }
    _ = try reader.wait()
    let address = String(decoding: bytes, as: UTF8.self)
    let query = try #require(address.wholeMatch(of: /http:\/\/127\.0\.0\.1:\d+(\/\?t=[0-9a-f]{32})/), "\(address)").1
    #expect(address.hasPrefix("http://\(page.own)/") && !address.contains(page.token))
    let opened = try await page.ask("GET", String(query))
    #expect(opened.status == 303 && opened.field("Location") == "/")
    let cookie = try #require(opened.field("Set-Cookie")?.split(separator: ";").first)
    #expect(try await page.ask("GET", "/api/session", ["Cookie: \(cookie)"]).status == 200)
    #expect(try await page.ask("GET", String(query)).status == 401, "every user of the machine has seen it")
    #expect(try await page.ask("GET", "/?t=\(page.token)").status == 303, "the printed one stays good")
    let screen = await page.end()
    #expect(screen.code == .done && !screen.err.contains("no browser"))
  }

  @Test func `is only printed where there is no desktop, no terminal, or no leave to open one`() async throws {
    let said = "note: no browser could be started; open the address above\n"
    let desktop = ["DISPLAY": ":0", "PATH": "/none"]
    #if os(macOS)
      let others: [([String: String], [String])] = [(desktop, ["--no-browser"])]
    #else
      let others: [([String: String], [String])] = [(desktop, ["--no-browser"]), (["PATH": "/none"], [])]
    #endif
    for (variables, words) in [(desktop, [])] + others {
      let (machine, lines) = await withTerminal(variables)
      let screen = await (try PageServing(["open"] + words + ["/A"], on: machine, lines)).end()
      #expect(screen.out.contains("/?t=") && screen.err.contains("press Ctrl-C to stop"))
      #expect(screen.err.contains(said) == (words.isEmpty && variables["DISPLAY"] != nil), "\(variables) \(words)")
    }
    let (machine, lines) = Machine.withLines()
    for (name, value) in desktop { machine.set(name, value) }
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    #expect(await (try PageServing(["open", "/A"], on: machine, lines)).end().err.contains(said) == false)
  }

  @Test func `says at once that there is no store, or no free port`() async throws {
    let (machine, lines) = Machine.withLines()
    #expect(await machine.run("open", "/none").code == .noSuchStore)
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    let taken = await Machine.beside(machine).run("open", "--port", "\(page.port)", "/A")
    #expect(taken.code == .unreachable && taken.err.contains("another port after --port"), "\(taken)")
    _ = await page.end()
  }

  @Test func `of a server leaves the contents of assets to the server`() async throws {
    let (machine, lines) = Machine.withLines()
    let server = try await PageServing(["serve", "/srv"], on: machine, lines)
    let base = "/database/1/iCloud.test/development/private"
    #expect(try await server.ask("POST", base + "/zones/modify", body: Self.newZone).status == 200)
    let field = #"{"recordName":"a","recordType":"Note","fieldName":"photo"}"#
    let address = try await server.ask(
      "POST", base + "/assets/upload", body: #"{"zoneID":{"zoneName":"Main"},"tokens":[\#(field)]}"#)
    let path = try #require(address.body.firstMatch(of: /"url":"http:\/\/[^\/"]+(\/content\/[^"]+)"/), "\(address)").1
    let taken = try await server.ask("POST", String(path), body: "a picture")
    #expect(taken.status == 200 && taken.body.contains(#""receipt""#), "\(taken)")
    _ = await server.end()
  }

  @Test func `of a server shows requests without their tokens, and looks without a trace`() async throws {
    let (machine, lines) = Machine.withLines()
    let server = try await PageServing(["serve", "--throttle", "100:2", "/srv"], on: machine, lines)
    let cookie = try await server.cookie()
    let base = "/database/1/iCloud.test/development/private"
    let tokens = "?ckAPIToken=SECRET1&ckWebAuthToken=SECRET2"
    #expect(try await server.ask("POST", base + "/zones/modify" + tokens, body: Self.newZone).status == 503)
    let post = [cookie, server.ownOrigin, try await server.changeToken(cookie)]
    #expect(try await server.ask("POST", "/api/faults", post, body: "").body.contains(#""throttle":null"#))
    #expect(try await server.ask("POST", base + "/zones/modify" + tokens, body: Self.newZone).status == 200)
    #expect(try await server.ask("POST", base + "/records/modify", body: Self.newNote).status == 200)
    let signedIn = try await server.ask("GET", "/signin")
    let session = try #require(signedIn.body.firstMatch(of: /"ckWebAuthToken":"([^"]+)"/)).1
    for path in ["/api/requests", "/api/request?number=1", "/api/request?number=2", "/api/request?number=4"] {
      let answer = try await server.ask("GET", path, [cookie])
      #expect(answer.status == 200, "\(path)")
      for secret in ["SECRET", String(session)] { #expect(!answer.body.contains(secret), "\(path)") }
    }
    #expect(try await server.ask("GET", "/api/request?number=3", [cookie]).body.contains("Low tide"))
    // The faults are the app's, and the page's looks are no requests.
    let faults = "w=--throttle&w=5%3A9&w=--require-session"
    #expect(try await server.ask("POST", "/api/faults", post, body: faults).status == 200)
    let databases = try await server.ask("GET", "/api/databases", [cookie]).body
    #expect(databases.contains(#""types":{"Note":1}"#), "\(databases)")
    let user = try #require(databases.firstMatch(of: /"user":"([^"]+)"/)).1
    func look(_ endpoint: String, _ body: String) async throws -> PageServing.Answer {
      let key = "container=iCloud.test&environment=development&scope=private&user=\(user)"
      return try await server.ask("POST", "/api/cloud?\(key)&endpoint=\(endpoint)", post, body: body)
    }
    let found = try await look("records/query", #"{"zoneID":{"zoneName":"Main"},"query":{"recordType":"Note"}}"#)
    #expect(found.status == 200 && found.body.contains("Low tide"), "\(found.body)")
    #expect(try await look("records/modify", Self.newNote).status == 404, "a page only reads")
    #expect(try await look("zones/modify", Self.newZone).status == 404)
    #expect(try await !server.ask("GET", "/api/requests", [cookie]).body.contains(#""number":5"#))
    #expect(try await server.ask("GET", base + "/zones/list").status == 503)
    #expect(try await server.ask("POST", "/api/faults", post, body: "w=--throttle&w=none").status == 400)
    #expect(try await server.ask("POST", "/api/faults", [cookie, server.ownOrigin], body: "").status == 403)
    #expect(await server.end().code == .done)
  }

  @Test func `of a server keeps no token that a body brings or takes`() async throws {
    let (machine, lines) = Machine.withLines()
    let server = try await PageServing(["serve", "/srv"], on: machine, lines)
    let cookie = try await server.cookie()
    let base = "/device/1/iCloud.test/development/tokens"
    let signedIn = try await server.ask("POST", "/signin?user=SECRET0")
    let created = try await server.ask("POST", base + "/create", body: #"{"clientId":"SECRET1"}"#)
    let token = try #require(created.body.firstMatch(of: /"apnsToken":"([^"]+)"/), "\(created)").1
    let session = try #require(signedIn.body.firstMatch(of: /"ckWebAuthToken":"([^"]+)"/), "\(signedIn)").1
    #expect(created.body.contains("/courier?token=\(token)"))
    let registered = #"{"apnsEnvironment":"development","apnsToken":"\#(token)"}"#
    #expect(try await server.ask("POST", base + "/register", body: registered).status == 200)
    // Refused, mistyped, or sent to where no token belongs: whoever sent it has the token all the same.
    for path in [base + "/register/", base + "/Register?token=\(token)", "/device/1/x/y/tok%65ns/register", "/courier"]
    {
      #expect(try await server.ask("POST", path, body: registered).status >= 400, "\(path)")
    }
    #expect(try await server.ask("GET", "/courier?token=SECRET2").status == 404)
    let waiting = try server.connect("GET", "/courier?token=\(token)")
    defer { waiting.close() }
    let listed = { try await server.ask("GET", "/api/requests", [cookie]).body }
    while try await !listed().contains(#""isStream":true"#) {}
    let list = try await listed()
    let count = list.matches(of: /"number":/).count
    #expect(count == 9 && list.matches(of: /"isSecret":true/).count == count, "\(list)")
    var shown = [list, try await server.ask("GET", "/api/session", [cookie]).body]
    for number in 1...count {
      shown.append(try await server.ask("GET", "/api/request?number=\(number)", [cookie]).body)
    }
    shown.append(try await server.verb("log-dump", ["--from", "1"]).body)
    for answer in shown {
      for secret in ["SECRET", String(token), String(session)] { #expect(!answer.contains(secret), "\(answer)") }
    }
    #expect(
      shown.filter { $0.contains(#""received":"""#) && $0.contains(#""sent":"""#) }.count == count)
    // One in which nothing is left out is found by the same look.
    let plain = "/database/1/iCloud.test/development/private/records/lookup"
    _ = try await server.ask("POST", plain, body: #"{"SECRET":1}"#)
    #expect(try await server.ask("GET", "/api/request?number=\(count + 1)", [cookie]).body.contains("SECRET"))
    _ = await server.end()
  }

  @Test func `of a server shows what is left of a fault, and switches one without another`() async throws {
    let (machine, lines) = Machine.withLines()
    let server = try await PageServing(
      ["serve", "--throttle", "2:9", "--expired-tokens", "--clock", "-3600", "/srv"], on: machine, lines)
    let cookie = try await server.cookie()
    let base = "/database/1/iCloud.test/development/private"
    let post = [cookie, server.ownOrigin, try await server.changeToken(cookie)]
    func faults() async throws -> String { try await server.ask("GET", "/api/faults", [cookie]).body }
    #expect(try await faults().contains(#""throttle":"2:9""#))
    #expect(try await server.ask("POST", base + "/zones/modify", body: Self.newZone).status == 503)
    #expect(try await faults().contains(#""throttle":"1:9""#))
    #expect(try await server.ask("POST", base + "/zones/modify", body: Self.newZone).status == 503)
    #expect(try await faults().contains(#""throttle":null"#))
    #expect(try await server.ask("POST", base + "/zones/modify", body: Self.newZone).status == 200)
    let note = try await server.ask("POST", base + "/records/modify", body: Self.newNote)
    let modified = try #require(note.body.firstMatch(of: /"modified":\{[^}]*"timestamp":(\d+)/)).1
    let ago = machine.environment.clock.wallMilliseconds() - (Int64(modified) ?? 0)
    #expect((3_600_000..<7_200_000).contains(ago), "\(note.body)")
    // A token that was given out since: no other switch lets it expire, that of the tokens does.
    let changes = #"{"zones":[{"zoneID":{"zoneName":"Main"}TOKEN}]}"#
    func fetch(_ token: String) async throws -> String {
      try await server.ask("POST", base + "/changes/zone", body: changes.replacing("TOKEN", with: token)).body
    }
    let token = try #require(try await fetch("").firstMatch(of: /"syncToken":"([^"]+)"/)).1
    let since = #","syncToken":"\#(token)""#
    let other = "w=--expired-tokens&w=--clock&w=3600&w=--drop-answer&w=3"
    #expect(
      try await server.ask("POST", "/api/faults", post, body: other).body.contains(#""clock":3600,"drop-answer":3"#))
    let still = try await fetch(since)
    #expect(!still.contains("serverErrorCode") && still.contains("syncToken"), "\(still)")
    #expect(try await server.ask("POST", "/api/faults", post, body: "").body.contains(#""clock":0"#))
    #expect(try await server.ask("POST", "/api/faults", post, body: "w=--expired-tokens").status == 200)
    #expect(try await fetch(since).contains("serverErrorCode"))
    _ = await server.end()
  }

  @Test func `of a server lists what its connection refuses, and looks at nothing that was refused`() async throws {
    let (machine, lines) = Machine.withLines()
    let server = try await PageServing(["serve", "/srv"], on: machine, lines)
    let cookie = try await server.cookie()
    let path = "/database/1/iCloud.test/development/private/zones/list"
    #expect(try await server.ask("POST", path, ["Origin: http://evil.example"], body: "{}").status == 403)
    #expect(try await server.ask("POST", path, [], host: "evil.example", body: "{}").status == 403)
    #expect(try await server.ask("GE T", path).status == 400)
    let listed = try await server.ask("GET", "/api/requests", [cookie]).body
    #expect(listed.matches(of: /"status":403/).count == 2 && listed.contains(#""status":400"#), "\(listed)")
    // The page's own paths are not those of apps.
    #expect(try await server.ask("GET", "/api/session", ["Origin: http://evil.example"]).status == 403)
    #expect(try await server.ask("GET", "/api/requests", [cookie]).body == listed)
    let screen = await server.end()
    #expect(!screen.err.contains(server.token), "standard error may be kept as a log")
    #expect(screen.out.contains("page http://") && screen.out.contains(server.token))
    #expect(await machine.run("serve", "--help").out.contains("the address of a page for a browser"))
  }

  @Test func `in a terminal says the address of its page there alone`() async throws {
    let (lines, feed) = AsyncStream<String>.makeStream()
    let machine = Machine(
      seed: 5, clock: StandingClock(), isErrorTerminal: true, onOutput: { feed.yield($0) }, onError: { feed.yield($0) })
    let server = try await PageServing(["serve", "/srv"], on: machine, lines)
    let screen = await server.end()
    #expect(screen.err.contains(server.token) && !screen.out.contains(server.token))
  }

  @Test func `of a server is named in a file alone, where what it prints is kept`() async throws {
    for isErrorTerminal in [false, true] {
      let (lines, feed) = AsyncStream<String>.makeStream()
      let machine = Machine(
        clock: StandingClock(), isErrorTerminal: isErrorTerminal, onOutput: { feed.yield($0) },
        onError: { feed.yield($0) })
      async let screen = machine.run(["serve", "--page-file", "/page", "/srv"], input: [])
      for await line in lines where line.contains("press Ctrl-C to stop") { break }
      let address = String(decoding: try machine.disk.open("/page", .read).read(at: 0, count: 200), as: UTF8.self)
      let token = try #require(address.wholeMatch(of: /http:\/\/127\.0\.0\.1:\d+\/\?t=([0-9a-f]{32})\n/), "\(address)")
        .1
      machine.interrupt()
      let ended = await screen
      #expect(ended.code == .done && ended.out.hasPrefix("http://127.0.0.1:"))
      #expect(!(ended.out + ended.err).contains(token) && !ended.out.contains("page"))
    }
  }

  @Test func `counts a stream that was never begun no longer`() throws {
    let access = PageAccess(Machine().environment.random)
    let service = PageService(
      StorePage("/A", allowsChanges: false, Machine().environment), access, Machine().environment)
    let host = ["Host": "127.0.0.1:1"] as HTTPHeaders
    func ask(_ path: String, _ query: String, _ headers: HTTPHeaders) -> HTTPAnswer {
      service.serve(
        HTTPRequest(method: "GET", origin: "http://127.0.0.1:1", path: path, query: query, headers: headers))
    }
    let query = String(access.address(at: "").drop { $0 != "?" }.dropFirst())
    guard case .respond(let signedIn) = ask("/", query, host) else { return }
    let cookie = signedIn.headers["set-cookie"]?.split(separator: ";").first.map(String.init) ?? ""
    for _ in 0..<100 {
      guard case .stream = ask("/api/events", "", ["Host": "127.0.0.1:1", "Cookie": cookie]) else {
        Issue.record("the places of streams are used up")
        return
      }
    }
    #expect(service.closedMilliseconds != nil)
    // A page that is not seen leaves its stream, and says that it is there.
    _ = ask("/api/session", "rest=", ["Host": "127.0.0.1:1", "Cookie": cookie])
    #expect(service.closedMilliseconds == nil)
    _ = ask("/api/events", "", ["Host": "127.0.0.1:1", "Cookie": cookie])
    #expect(service.closedMilliseconds != nil, "it came back, and was closed")
  }

  @Test func `reads names and stores that begin as options do`() async throws {
    let (machine, lines) = Machine.withLines()
    _ = await machine.run("import", "--", "-s", "-", input: note("-n", "1"))
    let page = try await PageServing(["open", "--", "-s"], on: machine, lines)
    let answer = try await page.verb("get", ["--zone", "Main", "--", "-n"])
    #expect(
      answer.body.contains(#""title":"1""#) && answer.body.contains("strandline get ./-s --zone Main -- -n"),
      "\(answer.body)")
    #expect(try await page.verb("get", ["-n"]).status == 400)
    _ = await page.end()
  }

  @Test func `says that an answer is too large, and cuts it at a line`() async throws {
    let (machine, lines) = Machine.withLines()
    let text = String(repeating: "x", count: 900_000)
    _ = await machine.run("import", "/A", "-", input: (0..<24).map { note("n\($0)", text) }.joined())
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    let whole = try page.connect("GET", "/api/run?verb=query&w=Note&w=--limit&w=200", [try await page.cookie()])
    let end = try await onThread("browser") {
      // Only its end: the rest is large.
      var end: [UInt8] = []
      while case let piece = try whole.receive(max: 1 << 20, timeoutMilliseconds: 60_000), !piece.isEmpty {
        end = (end + piece).suffix(200)
      }
      return String(decoding: end, as: UTF8.self)
    }
    whole.close()
    let said = #""notes":["error: the answer is larger than a page can show","try: the same command in a terminal"]}"#
    #expect(end.hasSuffix(#""zoneName":"Main"}],"# + said), "\(end)")
    #expect(try await page.verb("query", ["Note", "--limit", "1"]).body.contains(#""isCut":false"#))
    _ = await page.end()
  }

  private static let newZone = #"{"operations":[{"operationType":"create","zone":{"zoneID":{"zoneName":"Main"}}}]}"#
  private static let newNote =
    #"{"zoneID":{"zoneName":"Main"},"operations":[{"operationType":"create","record":{"recordType":"Note","#
    + #""recordName":"n","fields":{"title":{"value":"Low tide"}}}}]}"#

  @Test func `is told by the verbs in lines that their page describes`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    let queried = await machine.run("query", "--json", "--limit", "1", "/A", "Note")
    #expect(queried.out.hasPrefix(#"{"fields":{"title":"1"}"#) && queried.out.contains(#""unreadable":[]"#))
    let keys = try JSONPage.check(queried.out, of: "query")
    #expect(keys.isSuperset(of: ["cursor", "unreadable"]))
    let got = await machine.run("get", "--json", "--stamps", "/A", "a")
    #expect(got.out.contains(#"{"stamps":{"title":{"milliseconds":1767225600000,"writer":""#), "\(got)")
    #expect(await machine.run("get", "--stamps", "/A", "a").out.contains("title  2026-01-01T00:00:00Z by writer "))
    #expect(await machine.run("log-dump", "--zone", "Main", "/A").out.contains("saved"))
    #expect(await !machine.run("log-dump", "--zone", "Other", "/A").out.contains("saved"))
    let broken = try await Machine.withDamageBelowTables().machine.run("query", "--json", "/A", "N")
    #expect(broken.code == .dataDamaged && broken.out.contains(#""recordName":"r0","zoneName":"Main"}]}"#), "\(broken)")
  }
}
