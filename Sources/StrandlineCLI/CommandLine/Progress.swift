// The progress line of a command: on standard error, only if that is a terminal, only after a second, and cleared when
// the command ends.

import StrandlineSystem

/// Progress of one command.
struct Progress {
  private let console: Console
  private let start: UInt64
  private var last: UInt64
  private var isShown = false

  private static let quietNanoseconds: UInt64 = 1_000_000_000
  private static let stepNanoseconds: UInt64 = 200_000_000

  init(_ console: Console) {
    self.console = console
    start = console.environment.clock.monotonicNanoseconds()
    last = start
  }

  /// Shows `text`, at most five times a second.
  mutating func update(_ text: @autoclosure () -> String) {
    guard console.isErrorTerminal else { return }
    let now = console.environment.clock.monotonicNanoseconds()
    guard now - start >= Self.quietNanoseconds, !isShown || now - last >= Self.stepNanoseconds else { return }
    last = now
    isShown = true
    console.sayRaw("\r\u{1B}[K" + text())
  }

  /// Clears the line.
  mutating func end() {
    if isShown { console.sayRaw("\r\u{1B}[K") }
    isShown = false
  }

  /// The time since the start.
  var nanoseconds: UInt64 { console.environment.clock.monotonicNanoseconds() - start }
}
