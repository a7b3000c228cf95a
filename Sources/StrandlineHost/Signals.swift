// SIGINT (Ctrl-C) and SIGTERM as a request to stop, clean up and exit with 0.
//
// The handler, in C, writes one byte to a pipe, which is async-signal-safe. A thread reads the pipe and calls the
// registered closures. The second signal of the same number ends the process, so that a user can stop a program that
// hangs while it cleans up.

internal import CStrandlineHost
package import StrandlineSystem
internal import Synchronization

/// Requests to stop.
package enum Signals {
  private struct State {
    var pipe: SystemPipe?
    var isCaught = false
    var handlers: [@Sendable () -> Void] = []
  }
  private static let state = Mutex(State())

  /// Registers a closure that runs at the first SIGINT or SIGTERM, on the thread that waits for signals. If one has
  /// arrived since the first registration, `body` runs at once on the caller's thread. Closures run in the order of
  /// their registration.
  package static func onInterrupt(_ body: @escaping @Sendable () -> Void) throws(SystemError) {
    let isLate = try state.withLock { (state) throws(SystemError) -> Bool in
      if state.isCaught { return true }
      state.handlers.append(body)
      if state.pipe != nil { return false }
      let pipe = try SystemPipe()
      try BlockingThread.start(name: "signals") { listen(pipe.reader) }
      // Never closed, because from now on the signal handler may write to it at any time.
      state.pipe = pipe
      let code = strandline_catch_interrupts(pipe.writer.number)
      guard code == 0 else { throw SystemError(call: "sigaction", subject: "SIGINT", errno: code) }
      return false
    }
    if isLate { body() }
  }

  private static func listen(_ reader: Descriptor) {
    while let bytes = try? SystemCall.readSome(reader.number, 16, subject: "signals"), !bytes.isEmpty {
      let handlers = state.withLock { state in
        state.isCaught = true
        defer { state.handlers = [] }
        return state.handlers
      }
      for handler in handlers { handler() }
    }
  }
}
