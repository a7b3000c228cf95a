// The progress of `import` and `export`: shown on a terminal only, a few times a second, with a rate at the end.

import Foundation
import StrandlineCLI
import StrandlineSystem
import Synchronization
import Testing

/// A clock that moves only when a test moves it. Sleeps return at once.
private final class SteppedClock: SystemClock {
  private let now = Mutex<UInt64>(0)
  func wallMilliseconds() -> Int64 { 1_767_225_600_000 }
  func monotonicNanoseconds() -> UInt64 { now.withLock { $0 } }
  func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    await Task.yield()
  }
  func sleepBlocking(milliseconds: Int64) {}
  func advance(milliseconds: UInt64) { now.withLock { $0 += milliseconds * 1_000_000 } }
}

@Suite(.timeLimit(.minutes(30)))
struct ProgressTests {
  /// Lines of 100 bytes, and a machine that reads them one by one and takes a tenth of a second to acknowledge one.
  private static let lines = (0..<30).map { number in
    let line = note("n\(number)", "")
    let title = String(repeating: "x", count: 100 - line.utf8.count)
    return note("n\(number)", title)
  }.joined()

  private static func machine(isErrorTerminal: Bool) -> Machine {
    let clock = SteppedClock()
    return Machine(
      clock: clock, isErrorTerminal: isErrorTerminal, pace: InputPace(bytesMax: 100),
      onOutput: { text in if text.hasPrefix("ACK ") { clock.advance(milliseconds: 100) } })
  }

  /// The texts that each replaced the one before on the terminal's line, and what stays when the line is cleared.
  private static func parts(_ err: String) -> [String] {
    err.components(separatedBy: "\r\u{1B}[K").filter { !$0.isEmpty }
  }

  @Test func `import shows what it has saved five times a second from the second second on, and a rate`() async {
    let machine = Self.machine(isErrorTerminal: true)
    let screen = await machine.run("import", "--acks", "--batch", "1", "/A", "-", input: Self.lines)
    #expect(screen.code == .done && screen.out.split(separator: "\n").count == 30)
    let parts = Self.parts(screen.err)
    let shown = stride(from: 10, through: 30, by: 2).map { "importing: \($0) records" }
    #expect(parts == shown + ["30 records imported in 3.0 s (10 records/s, 0.0 MB/s)\n"])
  }

  @Test func `import of a file shows the share that was read`() async throws {
    let clock = SteppedClock()
    let machine = Machine(clock: clock, isErrorTerminal: true, onOutput: { _ in clock.advance(milliseconds: 600) })
    try machine.file("/notes", Self.lines)
    let screen = await machine.run("import", "--acks", "--batch", "10", "/A", "/notes")
    #expect(screen.out.split(separator: "\n").count == 3)
    let parts = Self.parts(screen.err)
    #expect(
      parts == [
        "importing: 20 records, 100 %", "importing: 30 records, 100 %",
        "30 records imported in 1.8 s (17 records/s, 0.0 MB/s)\n",
      ])
  }

  @Test func `nothing but the end is said where standard error is not a terminal`() async {
    let machine = Self.machine(isErrorTerminal: false)
    let imported = await machine.run("import", "--batch", "1", "/A", "-", input: Self.lines)
    #expect(imported == Screen(code: .done, out: "", err: "30 records imported\n"))
    #expect(await machine.run("export", "/A").err == "")
  }

  @Test func `export says on a terminal what it has printed, and prints the same bytes`() async {
    let plain = Machine()
    _ = await plain.run("import", "/A", "-", input: Self.lines)
    let machine = Self.machine(isErrorTerminal: true)
    _ = await machine.run("import", "/A", "-", input: Self.lines)
    let screen = await machine.run("export", "/A")
    #expect(screen.out == (await plain.run("export", "/A").out))
    #expect(screen.err == "30 records exported in 0.0 s\n")
  }

  @Test func `a rate counts megabytes`() async {
    let clock = SteppedClock()
    let machine = Machine(
      clock: clock, isErrorTerminal: true, pace: InputPace(onRead: { clock.advance(milliseconds: 250) }))
    let text = String(repeating: "x", count: 50_000)
    let screen = await machine.run(
      "import", "/A", "-", input: (0..<40).map { note("n\($0)", text) }.joined())
    // 2 MB in pieces of 256 KiB, and the end of the input.
    #expect(Self.parts(screen.err).last == "40 records imported in 2.3 s (18 records/s, 0.9 MB/s)\n")
  }
}
