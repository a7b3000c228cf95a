// `open`: shows a store in a browser, read only unless it is told otherwise. Takes no lock.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineSystem

extension Command {
  static let open = Command(
    "open", "Show a store in a browser.", operands: ["STORE"],
    details: [
      "Serves a page on 127.0.0.1, prints its address, and opens it in a browser if there is one and a terminal. The page",
      "shows records, the story of each of them, unsent changes with their obstacles, and the log, while an app writes",
      "the store. Ends at Ctrl-C (exit code 0), and when the page has been closed for a minute.",
      "A change that the page has begun goes on to its end, also when the page is closed; standard error says what came of it.",
      "The address holds a token: whoever on this machine has it can read the store until this command ends.",
    ],
    options: [
      Option("--port", "PORT", "The port. Default: 0, which means any free port."),
      Option(
        "--allow-changes",
        "Let the page do what held and zones do: release, discard, retry, resume and resync, each after a question."),
      Option("--no-browser", "Only print the address."),
    ],
    examples: [
      Example("Look at a store", "strandline open STORE"),
      Example(
        "From another machine, over ssh -L 8090:localhost:8090", "strandline open --no-browser --port 8090 STORE"),
    ],
    run: { arguments, console in
      let opened = try OpenPage(arguments, console)
      return try await onThread("open") { try opened.run() }
    })
}

/// One run of `open`.
private struct OpenPage: Sendable {
  private let page: StorePage
  private let port: UInt16
  private let showsBrowser: Bool
  private let console: Console

  private static let closedMillisecondsMax: Int64 = 60_000
  private static let lookMilliseconds: Int64 = 200
  private static let host = "127.0.0.1"

  init(_ arguments: Arguments, _ console: Console) throws {
    page = StorePage(
      arguments.operands[0], allowsChanges: arguments.has("--allow-changes"), console.environment,
      tell: { console.say($0) })
    port = try arguments.number("--port", in: UInt16.min...UInt16.max) ?? 0
    showsBrowser = !arguments.has("--no-browser") && console.isErrorTerminal
    self.console = console
    do { try page.check() } catch StrandlineError.Code.damaged {
      console.say("note: this store is damaged so that it cannot be read; the page shows where")
    }
  }

  func run() throws -> ExitCode {
    let access = PageAccess(console.environment.random)
    let service = PageService(page, access, console.environment)
    let server: HTTPServer
    do {
      server = try HTTPServer(
        service: service, host: Self.host, port: port, access: HTTPAccess(address: Self.host), limits: ServerLimits(),
        timeouts: HTTPTimeouts())
    } catch {
      throw Failure(
        .unreachable, "cannot listen on \(Self.host), port \(port): \(error)",
        try: "another port after --port, or no --port for any free one")
    }
    let isInterrupted = Flag()
    let begun = Result { try begin(access, "http://\(Self.host):\(server.port)", isInterrupted) }
    if case .success = begun {
      while !isInterrupted.isSet, service.closedMilliseconds ?? 0 < Self.closedMillisecondsMax {
        console.environment.clock.sleepBlocking(milliseconds: Self.lookMilliseconds)
      }
    }
    server.signalStop()
    if let failure = server.waitUntilStopped() { throw Failure(.inputOutput, "the page has ended: \(failure)") }
    try begun.get()
    return .done
  }

  private func begin(_ access: PageAccess, _ url: String, _ isInterrupted: Flag) throws {
    try console.onInterrupt { isInterrupted.set() }
    try console.print(access.address(at: url))
    try console.flush()
    console.say("showing '\(printable(page.verbs.path))'; press Ctrl-C to stop")
    if showsBrowser { Browser.open(access.launchAddress(at: url), console) }
  }
}

/// The browser of this machine.
enum Browser {
  #if os(macOS)
    static let program = "open"
  #else
    static let program = "xdg-open"
  #endif

  /// Asks the desktop to show an address; says nothing where there is none, because the address is printed.
  static func open(_ address: String, _ console: Console) {
    #if !os(macOS)
      guard console.variable("DISPLAY") != nil || console.variable("WAYLAND_DISPLAY") != nil else { return }
    #endif
    for folder in console.variable("PATH")?.split(separator: ":") ?? [] {
      // The first folder that has the program: it cannot be started in any other.
      guard let child = try? ChildProcess("\(folder)/\(program)", [address], output: .null, errorOutput: .null) else {
        continue
      }
      _ = try? BlockingThread.start(name: "browser") { _ = try? child.wait() }
      return
    }
    console.say("note: no browser could be started; open the address above")
  }
}
