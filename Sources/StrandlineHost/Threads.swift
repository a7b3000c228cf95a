// Runs blocking work on a thread of its own, and a flag that threads share.

import StrandlineSystem
import Synchronization

/// Runs `body`, which may block, on a new thread, and suspends the caller until it returns.
package func onThread<Value: Sendable>(
  _ name: String, _ body: @escaping @Sendable () throws -> Value
) async throws -> Value {
  try await withCheckedThrowingContinuation { continuation in
    do {
      try BlockingThread.start(name: name) { continuation.resume(with: Result { try body() }) }
    } catch { continuation.resume(throwing: error) }
  }
}

/// A flag that one thread sets and other threads read.
package final class Flag: Sendable {
  package init() {}
  private let value = Mutex(false)
  package var isSet: Bool { value.withLock { $0 } }
  package func set() { value.withLock { $0 = true } }
  /// Throws `CancellationError` if the flag is set. Long work calls this so that an interrupt ends it.
  package func check() throws { if isSet { throw CancellationError() } }
}
