// `serve` and `sync` over a loopback socket: the server in one task, the devices in another, disks in memory.

import StrandlineCLI
import StrandlineHost
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

  /// - Parameter files: what lies on its disk before.
  init(_ switches: String..., files: [String: String] = [:]) async throws {
    let (lines, feed) = AsyncStream<String>.makeStream()
    let machine = Machine(seed: 99) { feed.yield($0) }
    self.machine = machine
    for (path, text) in files { try machine.file(path, text) }
    task = Task {
      let screen = await machine.run(["serve"] + switches + ["/srv"], input: [])
      feed.finish()
      return screen
    }
    var iterator = lines.makeAsyncIterator()
    url = await iterator.next()?.split(separator: "\n").first.map(String.init) ?? "nothing"
  }

  func end() async -> Screen {
    machine.interrupt()
    return await task.value
  }
}

@Suite(.timeLimit(.minutes(30)))
struct NetworkVerbsTests {
  private func sync(_ machine: Machine, _ server: Serving, _ words: String...) async -> Screen {
    await machine.run(["sync", "--url", server.url, "--container", "iCloud.test"] + words + ["/A"], input: [])
  }

  @Test func `an address may be in capitals`() async throws {
    let server = try await Serving()
    let url = server.url.replacing("http://127.0.0.1", with: "HTTP://LOCALHOST")
    let machine = Machine(seed: 1)
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let screen = await machine.run(["sync", "--url", url, "--container", "iCloud.test", "/A"], input: [])
    #expect(screen.code == .done && screen.out.hasPrefix("1 uploaded; "), "\(screen)")
    _ = await server.end()
  }

  @Test func `two devices come to the same export, and the journal can be dumped and verified`() async throws {
    let server = try await Serving("--port-file", "/port")
    #expect(server.url.hasPrefix("http://127.0.0.1:"))
    let port = try server.machine.disk.open("/port", .read).read(at: 0, count: 10)
    #expect(server.url.hasSuffix(":" + String(decoding: port.dropLast(), as: UTF8.self)))
    let a = Machine(seed: 1)
    let b = Machine(seed: 2)
    _ = await a.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    let uploaded = await sync(a, server)
    #expect(uploaded.code == .done && uploaded.err == "")
    #expect(uploaded.out.hasPrefix("2 uploaded; ") && uploaded.out.hasSuffix(" requests, 0 unsent\n"))
    let fetched = await sync(b, server, "--json")
    try JSONPage.check(fetched.out, of: "sync")
    #expect(fetched.code == .done)
    #expect(fetched.out.contains(#""fetchedSaves":2"#) && fetched.out.contains(#""unsettled":0"#))
    #expect(await b.run("export", "/A").out == (await a.run("export", "/A").out))
    #expect(await b.run("get", "/A", "a").out.contains("server tag"))
    let ended = await server.end()
    #expect(ended.code == .done)
    let dump = await server.machine.run("log-dump", "/srv").out
    #expect(dump.contains("zoneCreated") && dump.contains("recordSaved    a "))
    #expect(await server.machine.run("verify", "/srv").code == .done)
    // A server's journal cannot be opened as a store.
    let refused = await server.machine.run("export", "/srv")
    #expect(refused.code == .noSuchStore)
    #expect(refused.err.contains("is a server's journal, not a store's log"))
  }

  @Test func `if a server asks for a long wait, sync exits with 75 and says when to try again`() async throws {
    let server = try await Serving("--throttle", "100:120")
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let screen = await sync(machine, server)
    #expect(screen.code == .tryLater)
    // Some of the wait may be over by the time the command ends.
    let seconds = screen.err.firstMatch(of: /try: the same command in (\d+) seconds; the store keeps what was not sent/)
    #expect(seconds.flatMap { Int($0.1) }.map { (1...120).contains($0) } == true, "\(screen)")
    #expect(await machine.run("status", "/A").out.contains("waiting "))
    _ = await server.end()
  }

  @Test func `a record that the server refuses is held, named, and released or discarded by its verb`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    #expect(await sync(a, server).code == .done)
    // The first value of a field fixes its type at the server.
    let wrong = #"{"recordType":"Note","recordName":"b","fields":{"title":7}}"# + "\n"
    let lines = wrong + note("c", "2")
    _ = await b.run("import", "/A", "-", input: lines)
    let screen = await sync(b, server)
    #expect(screen.code == .recoverable && screen.out.contains("1 held; "), "\(screen)")
    #expect(screen.err.contains("held: Main/b: BAD_REQUEST, "))
    #expect(screen.err.contains("strandline held /A release NAME"))
    let listed = await b.run("held", "/A")
    #expect(listed.code == .done && listed.out.hasPrefix("Main/b: BAD_REQUEST, "), "\(listed)")
    // The same values would be refused again, so that a release helps nothing.
    let suffix =
      "(refused 1 time since it was changed or released last; until it is saved with what the server takes (by the app, "
      + "or strandline put), or discarded)\n"
    #expect(listed.out.hasSuffix(suffix), "\(listed)")
    try JSONPage.check(await b.run("held", "--json", "/A").out, of: "held")
    #expect(await b.run("status", "/A").out.contains("strandline held /A"))

    #expect(await b.run("held", "/A", "release", "c").code == .noSuchStore)
    #expect(await b.run("held", "/A", "release", "b").code == .done)
    #expect(await b.run("held", "/A").out == "")
    #expect(await sync(b, server).code == .recoverable, "sent once more, and refused")
    #expect(await b.run("held", "/A", "retry").code == .done)
    #expect(await sync(b, server).code == .recoverable)
    #expect(await b.run("held", "/A", "discard", "b").code == .done)
    #expect(await sync(b, server).code == .done)
    #expect(await b.run("get", "/A", "b").code == .noSuchStore)
    let unknown: [[String]] = [["frobnicate"], ["release"], ["retry", "b"]]
    for words in unknown {
      let screen = await b.run(["held", "/A"] + words, input: [])
      #expect(screen.code == .usage, "\(words)")
    }
    _ = await server.end()
  }

  @Test func `sync names the edits that ended with their records`() async throws {
    let server = try await Serving()
    let (a, b) = (Machine(seed: 1), Machine(seed: 2))
    _ = await a.run("import", "/A", "-", input: note("a", "1") + note("b", "1"))
    _ = await sync(a, server)
    _ = await sync(b, server)
    _ = await a.run("delete", "/A", "a")
    _ = await sync(a, server)
    _ = await b.run("import", "/A", "-", input: note("a", "2"))
    let screen = await sync(b, server)
    #expect(screen.code == .done && screen.out.contains("1 checked with the server first"), "\(screen)")
    let words = "given up: an edit of 'Main/a': the record was deleted at the server; the edit is in its history\n"
    #expect(screen.err == words + "try: strandline why /A a\n", "\(screen)")
    #expect(await sync(b, server).err == "")
    _ = await server.end()
  }

  @Test func `an unreachable server is 69`() async throws {
    let server = try await Serving()
    _ = await server.end()
    let screen = await sync(Machine(), server)
    #expect(screen.code == .unreachable)
    #expect(screen.err.contains("cannot be reached"))
  }

  @Test func `a server that accepts and never answers is 69, in bounded time`() async throws {
    // Each request takes its time-out; the waits between requests take no time on this clock.
    let server = try ByteServer("", keepsOpen: true)
    let machine = Machine(requestTimeout: 0.2)
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let screen = await machine.run("sync", "--url", server.url, "--container", "iCloud.test", "/A")
    #expect(screen.code == .unreachable)
    #expect(screen.err.contains("\(server.url): timed out"))
    #expect(screen.err.contains("try: the same command in "))
    #expect(screen.out == "")
    #expect(await machine.run("status", "/A").out.contains("1"))
  }

  @Test func `sync refuses what no container can be, and asks for the API token before the network`() async {
    let machine = Machine()
    let wrong = await machine.run("sync", "/A", "--url", "http://127.0.0.1:1", "--container", "not a container")
    #expect(wrong.code == .usage && wrong.err.contains("not 'not a container'"))
    let apple = "https://api.apple-cloudkit.com"
    for url in [apple, apple + "/", apple + ":443"] {
      let bare = await machine.run("sync", "/A", "--url", url, "--container", "iCloud.test")
      #expect(bare.code == .usage && bare.err.contains("STRANDLINE_API_TOKEN"), "\(bare)")
    }
    #expect(await machine.run("status", "/A").code == .noSuchStore)
  }

  @Test func `sync counts in the singular and in the plural`() async throws {
    let server = try await Serving()
    let a = Machine(seed: 1)
    let b = Machine(seed: 2)
    _ = await a.run("import", "/A", "-", input: note("a", "1"))
    #expect(await sync(a, server).out.hasPrefix("1 uploaded; "))
    #expect(await sync(a, server).out.hasPrefix("nothing new; "))
    _ = await sync(b, server)
    _ = await a.run("delete", "/A", "a")
    _ = await sync(a, server)
    #expect(await sync(b, server).out.hasPrefix("1 deletion fetched; "))
    _ = await server.end()
  }

  @Test func `sync says that it has made a store, and only then`() async throws {
    let server = try await Serving()
    let machine = Machine()
    let note = "note: made a new store at '/A'\n"
    #expect(await sync(machine, server).err == note)
    #expect(await sync(machine, server).err == "")
    let lost = await machine.run("sync", "--url", server.url, "--container", "iCloud.test", "/no/such/A")
    #expect(lost.code == .cannotCreate)
    #expect(
      lost.err == "error: there is no directory '/no/such' to make the store in\ntry: mkdir -p /no/such\n", "\(lost)")
    _ = await server.end()
  }

  @Test func `a session file that cannot be read is named with the cause`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/token")
    let screen = await machine.run(
      "sync", "--url", "http://127.0.0.1:1", "--container", "c", "--session-token-file", "/token", "/A")
    #expect(screen.code == .inputOutput)
    #expect(screen.err.contains("cannot read the session file '/token': "), "\(screen.err)")
    #expect(screen.err.contains("is a directory"), "\(screen.err)")
  }

  @Test func `a locked journal, and a store in its place, have remedies of their own`() async throws {
    let server = try await Serving()
    let second = await server.machine.run("serve", "/srv")
    #expect(second.code == .tryLater)
    #expect(
      second.err.hasSuffix(
        "\ntry: another directory, or the same command when the other server has ended; log-dump and verify work "
          + "meanwhile\n"), "\(second.err)")
    _ = await server.end()
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let store = await machine.run("serve", "/A")
    #expect(store.code == .noSuchStore)
    #expect(
      store.err.hasSuffix(
        "\ntry: another directory; a server's journal and a device's store cannot be in the same one\n"),
      "\(store.err)")
  }

  @Test func `sync counts the unsettled mutations before it closes the store`() async throws {
    let server = try await Serving()
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    let screen = await sync(machine, server, "--pull-only")
    #expect(screen.code == .done)
    #expect(screen.out.hasSuffix(", 2 unsent\n"))
    #expect(screen.err == "")
    _ = await server.end()
  }

  @Test func `sync prints a note for a zone that does not exist`() async throws {
    let server = try await Serving()
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let screen = await sync(machine, server, "--zone", "Mian")
    #expect(screen.code == .done)
    #expect(
      screen.err.hasPrefix(
        "note: neither this store nor the server has a zone 'Mian'; the zones of this store are Main\n"), "\(screen)")
    let known = await sync(machine, server, "--zone", "Main")
    #expect(known.code == .done && known.err == "")
    _ = await server.end()
  }

  @Test func `a port file that cannot be written leaves nothing behind`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/taken")
    try machine.file("/taken/letter", "dear")
    let screen = await machine.run("serve", "--port-file", "/taken", "/srv")
    #expect(screen.code == .cannotCreate, "\(screen)")
    #expect(try machine.disk.kind(of: "/taken.tmp") == .absent)
  }

  @Test func `a server's text cannot control the terminal`() async throws {
    // Sets the window's title, sets a colour, overwrites the line, and reverses the direction of text.
    let words = #"\u001b]0;owned\u0007 \u001b[31mred\rgone \u009b2J \u202Eback"#
    let body = #"{"serverErrorCode":"ACCESS_DENIED","reason":"\#(words)"}"#
    let server = try ByteServer(
      "HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
    defer { withExtendedLifetime(server) {} }
    let machine = Machine()
    let screen = await machine.run("sync", "--url", server.url, "--container", "iCloud.test", "/A")
    #expect(screen.code != .done)
    #expect(screen.err.contains(#"\u{1b}]0;owned\u{7} \u{1b}[31mred\u{d}gone \u{9b}2J \u{202e}back"#), "\(screen.err)")
    #expect(isTame(screen.err) && isTame(screen.out))
  }

  @Test func `a sign-in that is missing is 77, and the token comes from the environment or a file`() async throws {
    let server = try await Serving("--require-session", "--session", "/token")
    let bytes = try server.machine.disk.open("/token", .read).read(at: 0, count: 10_000)
    let token = String(decoding: bytes.dropLast(), as: UTF8.self)
    let machine = Machine()
    let refused = await sync(machine, server)
    #expect(refused.code == .notPermitted)
    #expect(refused.err.contains("STRANDLINE_SESSION"))
    machine.set("STRANDLINE_SESSION", token)
    #expect(await sync(machine, server).code == .done)
    // The next token is stored beside the log, so the used token in the environment is ignored.
    #expect(await sync(machine, server).code == .done)
    machine.set("STRANDLINE_SESSION", nil)
    let last = await sync(machine, server)
    #expect(last.code == .done)
    #expect(!last.out.contains(token) && !last.err.contains(token))
    _ = await server.end()
  }

  @Test func `a port in use is an error, and no server keeps running`() async throws {
    let first = try await Serving()
    let port = first.url.split(separator: ":").last.map(String.init) ?? ""
    let second = await Machine().run("serve", "--port", port, "/srv")
    #expect(second.code == .inputOutput)
    #expect(second.err.contains("cannot listen on 127.0.0.1, port \(port): "))
    #expect(second.err.contains("the address is in use"))
    #expect(second.err.hasSuffix("\ntry: another port after --port, or no --port for any free one\n"), "\(second.err)")
    _ = await first.end()
  }

  @Test func `a server with API tokens refuses a device that has none of them`() async throws {
    let server = try await Serving("--api-token-file", "/tokens", files: ["/tokens": " first\n\nsecond \r\n"])
    let refused = await sync(Machine(), server)
    #expect(refused.code == .notPermitted && refused.err.contains("no auth method found"), "\(refused)")
    for token in ["first", "second"] {
      let machine = Machine()
      machine.set("STRANDLINE_API_TOKEN", token)
      #expect(await sync(machine, server).code == .done, "\(token)")
    }
    _ = await server.end()
    let machine = Machine()
    try machine.file("/pairs", "a b\n")
    try machine.file("/empty", "\n \n")
    for (words, code, message) in [
      (["--api-token-file", "/none"], ExitCode.noSuchStore, "cannot read the token file '/none': "),
      (["--api-token-file", "/pairs"], .dataDamaged, "must hold one token on each line"),
      (["--api-token-file", "/empty"], .dataDamaged, "must hold one token on each line"),
      (["--allow-host", "http://a"], .usage, "--allow-host takes a name without scheme and port, not 'http://a'"),
      (["--allow-host", "a", "--allow-host", "b:1"], .usage, "not 'b:1'"),
      (["--allow-origin", "a.example"], .usage, "--allow-origin takes scheme, host and port"),
      (["--allow-origin", "null"], .usage, "not 'null'"),
    ] {
      let screen = await machine.run(["serve"] + words + ["/srv"], input: [])
      #expect(screen.code == code && screen.err.contains(message), "\(words): \(screen)")
    }
  }
}
