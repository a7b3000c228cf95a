// The progress line of a command: on standard error, only if that is a terminal, only after a second, and cleared when
// the command ends. The rate of what a command did is shown under the same condition, so that scripts see the same
// bytes in each run.

import StrandlineHost
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

  /// The time since the start and the rate: " in 6.2 s (10,268 records/s, 6.6 MB/s)". Empty if standard error is not a
  /// terminal. Without the rate if the clock has not moved.
  ///
  /// - Parameter bytes: The bytes that were read or written for the records.
  func rate(records: Int, bytes: UInt64) -> String {
    guard console.isErrorTerminal else { return "" }
    let nanoseconds = nanoseconds
    let text = " in " + Words.seconds(nanoseconds: nanoseconds)
    guard nanoseconds > 0 else { return text }
    let seconds = Double(nanoseconds) / 1e9
    let perSecond = Int((Double(records) / seconds).rounded())
    let tenths = Int((Double(bytes) / seconds / 1e5).rounded())
    return text + " (\(Words.plural(perSecond, "record"))/s, \(Words.count(tenths / 10)).\(tenths % 10) MB/s)"
  }
}
