// The messages for a failing disk and an unreachable server: the first cause, with the user's own paths, once, and an
// exit code that is not 0. Method: each call that changes the disk fails in turn, first alone and then with all calls
// that follow it.

import Strandline
import StrandlineCLI
import StrandlineHost
import StrandlineLog
import StrandlineSystem
import StrandlineSimulation
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ErrorLinesTests {
  /// Runs a command line once for each of its calls that change the disk, and makes this call fail.
  ///
  /// - Parameter untilEnd: Whether all later calls fail too, including those of the clean-up.
  private func sweep(
    _ words: [String?], untilEnd: Bool = false, on prepared: () async throws -> Machine,
    _ check: (Int, Machine, Screen) async throws -> Void
  ) async throws {
    let whole = try await prepared()
    let first = whole.disk.callCount
    _ = await whole.run(words, input: [])
    let calls = whole.disk.callCount - first
    #expect(calls > 0)
    for call in 1...max(1, calls) {
      let machine = try await prepared()
      let base = machine.disk.callCount
      for number in call...(untilEnd ? calls + 40 : call) { machine.disk.failCall(base + number) }
      try await check(call, machine, await machine.run(words, input: []))
    }
  }

  @Test func `a repair that cannot write names the new store and the first cause, whatever fails later`() async throws {
    let words = ["repair", "/A", "--apply", "--into", "/N"]
    var lines: [Int: String] = [:]
    try await sweep(words, on: { try await Machine.withDamagedNote().machine }) { call, _, screen in
      #expect([.inputOutput, .cannotCreate].contains(screen.code), "call \(call): \(screen.err)")
      #expect(screen.err.contains("cannot repair '/A' into '/N': "), "call \(call): \(screen.err)")
      #expect(!screen.err.contains("reading '"), "call \(call): \(screen.err)")
      lines[call] = Self.cause(screen.err)
    }
    try await sweep(words, untilEnd: true, on: { try await Machine.withDamagedNote().machine }) { call, _, screen in
      #expect(screen.err.contains("cannot repair '/A' into '/N': "), "call \(call): \(screen.err)")
      guard let line = lines[call], line.contains("cannot make a store") else { return }
      #expect(Self.cause(screen.err) == line, "call \(call)")
    }
  }

  @Test func `a store that cannot be made is named as the user named it, with the first cause`() async throws {
    let words = ["put", "/A", note("a", "1")]
    let fresh = { Machine() }
    var lines: [Int: String] = [:]
    try await sweep(words, on: fresh) { call, _, screen in
      if call == 1 {
        #expect(screen.err.contains("cannot make a store at '/A': simulated fault '/A': "), "\(screen.err)")
        #expect(!screen.err.contains(".init-"))
      }
      lines[call] = Self.cause(screen.err)
    }
    try await sweep(words, untilEnd: true, on: fresh) { call, _, screen in
      guard let line = lines[call], line.contains("cannot make a store") else { return }
      #expect(screen.code != .done && Self.cause(screen.err) == line, "call \(call): \(screen.err)")
    }
  }

  /// The first line of a screen without the parts that differ between runs: the random part of the temporary directory's
  /// name, and offsets, before which there may be an idle marker.
  private static func cause(_ err: String) -> String {
    String(err.prefix { $0 != "\n" }).replacing(/\.init-[0-9a-f]+/, with: "").replacing(/@\d+/, with: "")
  }

  @Test func `a disk that fails in the merge at close is an exit code and a line`() async throws {
    func segments(_ machine: Machine) -> Int { machine.disk.paths.count { $0.hasSuffix(LogFormat.segmentSuffix) } }
    // A writer merges small segments when it closes, if there are enough of them.
    let probe = Machine()
    var puts = 0
    var before = 0
    repeat {
      before = segments(probe)
      puts += 1
      _ = await probe.run("put", "/A", note("n-\(puts)", "1"))
    } while segments(probe) > before && puts < 20
    #expect(puts > 2 && segments(probe) < before)
    let last = puts
    let prepared = {
      let machine = Machine()
      for index in 1..<last { _ = await machine.run("put", "/A", note("n-\(index)", "1")) }
      return machine
    }
    var reported = 0
    try await sweep(["put", "/A", note("n-\(last)", "1")], on: prepared) { call, machine, screen in
      // Counts listed segments: inputs that could not be removed after the merge stay until the next writer removes them.
      let isMerged = try LogVerifier.verify(at: "/A", environment: machine.environment).segments < last
      #expect(screen.code != .done || isMerged, "call \(call) failed, nothing was merged, and the exit code is 0")
      if screen.err.contains("merging its segments failed") {
        reported += 1
        #expect(screen.code == .inputOutput)
        #expect(screen.err.contains("what was acknowledged is safe"))
        // The acknowledged record is there, and the next writer merges.
        #expect(await machine.run("get", "/A", "n-\(last)").code == .done)
        #expect(await machine.run("put", "/A", note("later", "1")).code == .done)
        #expect(segments(machine) < last)
      }
      #expect(await machine.run("verify", "/A").code != .dataDamaged, "call \(call)")
    }
    #expect(reported > 0)
  }

  @Test func `a file that is missing inside a store is 74, and not a directory that cannot be made`() async throws {
    // A link without a target, which the simulated disk does not have.
    let folder = try TemporaryFolder()
    let errors = Mutex("")
    let console = Console(
      environment: .real, variables: { _ in nil }, output: { _ in },
      error: { bytes in errors.withLock { $0 += String(decoding: bytes, as: UTF8.self) } }, input: { _ in [] },
      interrupts: { _ in })
    #expect(await Tool.run(given: ["put", folder("A"), note("a", "1")], console) == .done)
    let link = try ChildProcess("/bin/ln", ["-s", "nowhere", folder("A") + "/" + SegmentName.name(9)])
    #expect(try link.wait() == .exited(0))
    for verb in ["verify", "status", "repair"] {
      let code = await Tool.run(given: [verb, folder("A")], console)
      #expect(code == .inputOutput, "\(verb): \(errors.withLock { $0 })")
    }
  }

  @Test func `for an unreachable server one line says when to try again`() async {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let screen = await machine.run("sync", "--url", "http://127.0.0.1:1", "--container", "iCloud.test", "/A")
    #expect(screen.code == .unreachable)
    #expect(screen.err.contains("try: the same command in a minute; the store keeps what was not sent"))
    #expect(!screen.err.contains("come back") && screen.err.matches(of: /in a minute/).count == 1, "\(screen.err)")
  }
}
