// Work that blocks, on a thread that may; and a flag between threads.

import StrandlineSystem
import Synchronization

/// Runs what blocks for long on a thread that may.
package func onThread<Value: Sendable>(
  _ name: String, _ body: @escaping @Sendable () throws -> Value
) async throws -> Value {
  try await withCheckedThrowingContinuation { continuation in
    do {
      try BlockingThread.start(name: name) { continuation.resume(with: Result { try body() }) }
    } catch { continuation.resume(throwing: error) }
  }
}

/// A flag that one thread sets and another reads.
package final class Flag: Sendable {
  package init() {}
  private let value = Mutex(false)
  package var isSet: Bool { value.withLock { $0 } }
  package func set() { value.withLock { $0 = true } }
  /// Throws when it is set: for work that an interrupt ends.
  package func check() throws { if isSet { throw CancellationError() } }
}
