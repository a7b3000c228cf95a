// Ctrl-C and SIGTERM as a polite request: stop, clean up, exit 0.
//
// The handler, in C, does the one thing that a handler may: it writes a byte to a pipe. A thread reads the
// pipe and calls what was registered. The second signal of a kind ends the process as ever, so that a
// program that hangs while it cleans up can still be stopped.

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

  /// Calls `body`, on a thread of its own, at the first SIGINT or SIGTERM; at once if there has been one since
  /// the first registration. Handlers run in the order of their registration.
  package static func onInterrupt(_ body: @escaping @Sendable () -> Void) throws(SystemError) {
    let isLate = try state.withLock { (state) throws(SystemError) -> Bool in
      if state.isCaught { return true }
      state.handlers.append(body)
      if state.pipe != nil { return false }
      let pipe = try SystemPipe()
      try BlockingThread.start(name: "signals") { listen(pipe.reader) }
      // Kept for good: the handler may run at any time from now on.
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
