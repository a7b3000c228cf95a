// The lock around the writer's state. It knows for which call of the app it is held: a call from that call's own closure
// would wait for itself, so it is refused, and the error names both.

import StrandlineSystem
import Synchronization

/// A call of the app that runs a closure under the lock.
struct WriterCall: Sendable {
  /// The function's name.
  let name: String
  let site: CallSite

  init(_ name: String, _ site: CallSite) { (self.name, self.site) = (name, site) }

  /// The refusal of a call from this one's closure, for which it would wait.
  ///
  /// - Parameters:
  ///   - name: the function that was called.
  ///   - advice: what to do instead.
  func refusing(_ name: String, _ advice: String) -> StrandlineError {
    StrandlineError(
      .misuse,
      "'\(name)' was called inside the closure of '\(self.name)' at \(site.fileID):\(site.line), and would wait for it; "
        + advice)
  }
}

/// The writer's state and its lock.
package struct WriterLock: ~Copyable, Sendable {
  private let state: OrderedMutex<StoreCore>
  /// The thread that runs a closure of the app under the lock; 0 if none does.
  private let thread = Atomic<UInt>(0)
  /// What that thread was called for.
  private let holder = OrderedMutex<WriterCall?>(nil)
  let inbox = InboxReading()
  /// Who holds the contents of files. It is asked inside the lock, and takes the lock to remove one.
  let contents: StoreContents

  init(_ core: consuming sending StoreCore) {
    contents = StoreContents(core.environment)
    state = OrderedMutex(.writer, core)
  }

  /// Runs `body`, which calls no code of the app.
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending StoreCore) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    try state.withLock(body)
  }

  /// Runs `body`, which calls a closure of the app.
  ///
  /// - Throws: `.misuse` if this thread runs such a closure already; what `body` throws.
  borrowing func withLock<Result>(
    for call: WriterCall, _ body: (inout sending StoreCore) throws -> sending Result
  ) throws -> sending Result {
    try requireFree(for: call.name, instead: "use its transaction")
    return try state.withLock { core in
      holder.withLock { $0 = call }
      thread.store(CurrentThread.id, ordering: .relaxed)
      defer { thread.store(0, ordering: .relaxed) }
      let held = LockPlace.setAside()
      defer { LockPlace.takeBack(held) }
      return try body(&core)
    }
  }

  /// Refuses a call that would wait for a closure of the app from within that closure.
  ///
  /// - Parameters:
  ///   - name: the function that was called.
  ///   - advice: what to do instead.
  borrowing func requireFree(for name: String, instead advice: String) throws(StrandlineError) {
    // Only the thread itself writes its own number here.
    guard thread.load(ordering: .relaxed) == CurrentThread.id, let holder = holder.withLock({ $0 }) else { return }
    throw holder.refusing(name, advice)
  }
}
