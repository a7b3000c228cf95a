// The parser, and the help screens of all verbs: forms of options, and wrong usage with its remedy.

import StrandlineCLI
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ArgumentsTests {
  private func parse(_ verb: String, _ words: String...) throws -> Arguments {
    try Arguments(words, for: #require(Command.named(verb)))
  }

  @Test func `options and operands come in any order, with a space or an equals sign`() throws {
    for words in [
      ["--batch", "7", "--acks", "S", "-"], ["--batch=7", "S", "--acks", "-"], ["S", "-", "--acks", "--batch=7"],
    ] {
      let arguments = try Arguments(words, for: #require(Command.named("import")))
      #expect(arguments["--batch"] == "7")
      #expect(arguments.has("--acks"))
      #expect(arguments.operands == ["S", "-"])
    }
  }

  @Test func `two dashes end the options`() throws {
    let arguments = try parse("delete", "S", "--", "--zone", "-x")
    #expect(arguments.operands == ["S", "--zone", "-x"])
    #expect(arguments["--zone"] == nil)
  }

  @Test func `an equals sign in a value belongs to the value, and a value may be empty`() throws {
    #expect(try parse("export", "--zone=a=b", "S")["--zone"] == "a=b")
    #expect(try parse("export", "--zone=", "S")["--zone"] == "")
  }

  @Test(arguments: [
    (["import", "--akcs", "S", "F"], "unknown option '--akcs' for import; did you mean '--acks'?"),
    (["import", "--xyzzy", "S", "F"], "unknown option '--xyzzy' for import"),
    (["import", "--batch"], "--batch needs a value: --batch N"),
    (["import", "--acks=1", "S", "F"], "--acks takes no value"),
    (["import", "--batch=1", "--batch=2", "S", "F"], "--batch is given twice"),
    (["import", "--batch=0", "S", "F"], "--batch takes a whole number from 1 to 100000, not '0'"),
    (["import", "S"], "import needs FILE|-"),
    (["get", "S", "n", "m"], "get does not take 'm'"),
    (["exprot", "S"], "unknown verb 'exprot'; did you mean 'export'?"),
    (["frobnicate"], "unknown verb 'frobnicate'"),
    (["--verbose"], "unknown option '--verbose'"),
    (["help", "verifi"], "no help on 'verifi'; did you mean 'verify'?"),
    (["log-dump", "--from", "9", "--to", "8", "S"], "--from 9 is after --to 8"),
    (["status", "--json", "--json", "S"], "--json is given twice"),
    (["log-dump", "-f", "--follow", "S"], "--follow is given twice"),
    (["import", "", "f"], "the path STORE is empty"),
    (["import", "S", ""], "the path FILE|- is empty"),
    (["serve", ""], "the path DIRECTORY is empty"),
    (["repair", "--apply", "--into=", "S"], "the path after --into is empty"),
    (["sync", "S"], "sync needs --url URL"),
    (
      ["sync", "--url", "http://127.0.0.1:80", "--container", "c", "--recent", "", "S"],
      "--recent takes the name of a record type, not ''"
    ),
    (
      ["sync", "--url", "http://127.0.0.1:80", "--container", "c", "--leave-out", "", "S"],
      "--leave-out takes the name of a zone, not ''"
    ),
    (
      ["sync", "--url", "notaurl", "--container", "c", "S"],
      "--url takes http:// or https://, a host and optionally a port, not 'notaurl'"
    ),
    (
      ["sync", "--url", "http://127.0.0.1:99999", "--container", "c", "S"],
      "--url takes http:// or https://, a host and optionally a port, not 'http://127.0.0.1:99999'"
    ),
    (
      ["sync", "--url", "http://127.0.0.1:80/database", "--container", "c", "S"],
      "--url takes http:// or https://, a host and optionally a port, and neither a path nor a query, not "
        + "'http://127.0.0.1:80/database'"
    ),
    (
      ["sync", "--url", "http://127.0.0.1?a=b", "--container", "c", "S"],
      "--url takes http:// or https://, a host and optionally a port, and neither a path nor a query, not "
        + "'http://127.0.0.1?a=b'"
    ),
    (
      ["sync", "--url", "http://user:secret@127.0.0.1", "--container", "c", "S"],
      "--url takes http:// or https://, a host and optionally a port, and no user name or password; tokens are read "
        + "from files or the environment"
    ),
    (
      ["serve", "--throttle", "x", "D"],
      "--throttle takes N or N:SECONDS, with N from 1 and SECONDS from 0 to 86400, not 'x'"
    ),
    (
      ["serve", "--throttle", "1:1e9", "D"],
      "--throttle takes N or N:SECONDS, with N from 1 and SECONDS from 0 to 86400, not '1:1e9'"
    ),
    (
      ["serve", "--clock", "400000000", "D"],
      "--clock takes a whole number from -316224000 to 316224000, not '400000000'"
    ),
    (["serve", "--port", "70000", "D"], "--port takes a whole number from 0 to 65535, not '70000'"),
    (["crash-test", "--seed", "abc"], "--seed takes a number, decimal or 0x…, not 'abc'"),
    (["simulate", "--faults", "rain"], "--faults takes 'all', 'none' or names with commas between them, not 'rain'"),
    (["simulate", "--steps", "1"], "--steps needs --seed, and no --runs but 1"),
    (["crash-test", "--seconds", "0"], "--seconds takes a whole number from 1 to 604800, not '0'"),
    (
      ["crash-test", "--level", "1"],
      "--level needs --seed, --operation and --call, as a failure of crash-test prints them"
    ),
    (
      ["crash-test", "--level", "1", "--operation", "16", "--call", "3"],
      "--level needs --seed, --operation and --call, as a failure of crash-test prints them"
    ),
    (["crash-test", "--call", "3"], "--operation, --call and --image need --level"),
    (
      ["crash-test", "--real", "--rot", "3"],
      "--exhaustive, --ordered, --level, --rot and --folder can be used with the simulated disk only"
    ),
  ])
  func `a mistake is named and answered with 64`(words: [String], message: String) async {
    let screen = await Machine().run(words, input: [])
    let verb = Command.named(words[0]).map { " \($0.name)" } ?? ""
    #expect(screen == Screen(code: .usage, out: "", err: "error: \(message)\ntry: strandline help\(verb)\n"))
  }

  @Test(arguments: [
    ["import", "S", "-"], ["export", "S"], ["get", "S", "n"], ["put", "S", "{}"], ["delete", "S", "n"],
    ["sync", "--url", "http://127.0.0.1", "--container", "c", "S"],
  ])
  func `a name that cannot be a zone's is a mistake in the option`(words: [String]) async {
    for (name, defect) in [
      ("é", "it holds a character that is not printable ASCII"), ("", "it is empty"),
      ("_x", "it begins with '_', which CloudKit reserves for the system"),
    ] {
      let screen = await Machine().run(words + ["--zone", name], input: Array(note("n", "1").utf8))
      #expect(
        screen
          == Screen(
            code: .usage, out: "",
            err: "error: --zone '\(name)' cannot be a zone's name here: \(defect)\ntry: strandline help \(words[0])\n"))
    }
  }

  @Test func `distances are Levenshtein's`() {
    #expect(Suggestion.distance("kitten", "sitting") == 3)
    #expect(Suggestion.distance("", "abc") == 3)
    #expect(Suggestion.distance("same", "same") == 0)
    #expect(Suggestion.sentence("xy", among: ["get", "put"]) == "")
  }
}

@Suite(.timeLimit(.minutes(30)))
struct HelpTests {
  @Test func `without arguments the command shows the list of verbs and exits with 0`() async {
    let screen = await Machine().run()
    #expect(screen.code == .done)
    #expect(screen.err == "")
    #expect(
      screen.out == """
        OVERVIEW: An event-sourced sync engine for records: local store, CloudKit client and server, crash tests.

        USAGE: strandline VERB [options] STORE …

        VERBS:
          demo                    Sync two devices here through a crash, a conflict and a deletion.
          import                  Save records from JSON Lines.
          export                  Print records as JSON Lines.
          open                    Show a store in a browser.
          get                     Show one record.
          query                   Find records of a type.
          types                   List the types of a store's records.
          index                   List, add or drop indexes, or make them again.
          history                 Show what happened to one record.
          why                     Tell one record's story, and why it stands as it does.
          watch                   Print records, and then each change of them.
          put                     Change or create one record.
          delete                  Delete records.
          restore                 Bring deleted records back as they were.
          sync                    Sync a store with CloudKit or a local server, once or with --watch.
          status                  Show what a store holds, has to send and waits for.
          pending                 List the records with unsent changes, and what is in their way.
          held                    Show what is set aside because the server refused it, and end that.
          zones                   List the zones of a store, or have one synced anew.
          log-dump                Show the events of a store, or of a server's journal.
          verify                  Check every byte of a store or journal, or compare it with a server.
          repair                  Recover what a damaged store still holds into a new store.
          compact                 Remove the events that are no longer needed from a store's log.
          backup                  Copy a store to a new directory, while an app writes it.
          serve                   Run a local server that speaks CloudKit Web Services.
          bench                   Measure the store and the log on this machine.
          crash-test              Cut the power or kill processes; check that nothing acknowledged is lost.
          simulate                Run random worlds of devices and a cloud; check every promise.
          help [VERB]             Show this screen, or the help of a verb.
          help exit-codes         Show the exit codes and their meanings.
          --version               Show the version.

        EXAMPLES:
          # Two devices, a server, a crash and a conflict, in under a minute
          $ strandline demo
          # The contents of a store and its events
          $ strandline status STORE && strandline log-dump STORE

        """)
    for words in [["--help"], ["-h"], ["help"]] {
      let same = await Machine().run(words, input: [])
      #expect(same == screen)
    }
  }

  @Test func `the version is one line`() async {
    // The standard library would replace the invalid bytes, and the result would be another path.
    let invalid = await Machine().run(["put", nil, "{}"], input: [])
    #expect(
      invalid.code == .usage && invalid.out.isEmpty && invalid.err.contains("argument 2 is not valid UTF-8"))
    #expect(await Machine().run("--version") == Screen(code: .done, out: "strandline 1\n", err: ""))
  }

  @Test func `a verb's screen`() async {
    let screen = await Machine().run("delete", "--help")
    #expect(
      screen
        == Screen(
          code: .done,
          out: """
            OVERVIEW: Delete records.

            Deletes them in one transaction. If one of them does not exist, none is deleted.
            Prints nothing when they are deleted.

            USAGE: strandline delete [options] STORE NAME…

            OPTIONS:
              --zone ZONE             The zone of the records; default: Main.
              -h, --help              Show this screen.

            EXAMPLES:
              # Two notes
              $ strandline delete STORE n1 n2

            """, err: ""))
    #expect(await Machine().run("help", "delete") == screen)
  }

  @Test func `the exit codes are those of sysexits`() async {
    let screen = await Machine().run("help", "exit-codes")
    let codes = screen.out.split(separator: "\n").compactMap { $0.split(separator: " ").first.flatMap { Int($0) } }
    #expect(codes == [0, 1, 64, 65, 66, 69, 70, 73, 74, 75, 77])
  }

  @Test(arguments: Command.all.map(\.name))
  func `every verb has a screen with examples of itself, no wider than a hundred and twenty`(verb: String) async throws
  {
    let screen = await Machine().run("help", verb)
    #expect(screen.code == .done)
    let lines = screen.out.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.contains { $0.hasPrefix("  $ strandline \(verb)") || $0.contains("strandline \(verb) ") })
    #expect(lines.allSatisfy { $0.count <= 120 })
    // The parser accepts every example, except those with shell syntax.
    let command = try #require(Command.named(verb))
    for line in lines where line.hasPrefix("  $ strandline \(verb)") && !line.contains("|") && !line.contains("'") {
      let words = line.split(separator: " ").dropFirst(3).prefix { $0 != ">" && $0 != "&&" }.map(String.init)
      #expect(throws: Never.self) { try Arguments(words, for: command) }
    }
  }
}
