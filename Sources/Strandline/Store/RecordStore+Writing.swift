// Writing: a closure becomes one transaction; the call returns when it is durable.

import StrandlineLog
import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Writes one transaction.
  ///
  /// The closure runs at once, where `write` is called (on an actor it may use what the actor has), alone among closures, and
  /// sees everything written before it. Within it, the transaction shows what the closure has changed; the store itself may be
  /// read too, and shows what is durable. What the closure saved, created and deleted becomes durable together or not at all;
  /// if it throws, nothing happened. Writers that wait together share one sync.
  ///
  /// The closure must not wait for anything. What would wait for the closure, such as another `write`, throws `.misuse` in it.
  /// A closure may write to another store; two stores whose closures write to each other, on two threads, wait for ever.
  ///
  /// - Returns: a receipt, after the sync: the transaction survives a crash and a power cut.
  /// - Throws: what the closure threw; `CancellationError` if the task was cancelled before (never after) it was queued;
  ///   `StrandlineError.diskFull` (nothing was written; works again when there is room), `.outcomeUnknown` (the sync
  ///   failed: reopen the store), `.tooLarge` (a transaction has at most 64 MiB: some 300,000 records of 100 bytes,
  ///   and of a zone that is uploaded atomically 200 records; nothing was written), `.suspended`, `.closed`, `.readOnly`.
  /// - Complexity: O(what is written), one sync shared with all writers that wait meanwhile.
  @discardableResult
  nonisolated(nonsending) public func write(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Void
  ) async throws -> Receipt {
    try await commit("write", fileID, line, body).receipt
  }

  /// Writes one transaction, and returns what the closure returns beside the receipt:
  ///
  /// ```swift
  /// let (visits, receipt) = try await store.write { tx in
  ///   let page = try tx.update(Page.self, id: "start") { $0.visits += 1 }
  ///   return page.visits
  /// }
  /// ```
  ///
  /// `.value` after the closure takes the value alone. A closure of one expression gives the receipt alone, unless the call is
  /// read as a pair or by `.value`. The value is returned after the sync, so it never speaks of a transaction that a crash undoes. In all else this is the `write` of a closure without a value.
  ///
  /// - Throws: what the closure threw; `CancellationError` and `StrandlineError` as the other `write`.
  @discardableResult
  @_disfavoredOverload
  nonisolated(nonsending) public func write<Value>(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Value
  ) async throws -> (value: Value, receipt: Receipt) {
    try await commit("write", fileID, line, body)
  }

  /// `write` on a plain thread, which does the sync itself if no other writer is doing one.
  ///
  /// - Throws: as `write`, but for `CancellationError`; `.misuse` inside a closure of `write`, which names both calls.
  @discardableResult
  package func writeBlocking(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Void
  ) throws -> Receipt {
    try commitBlocking("writeBlocking", fileID, line, body).receipt
  }

  /// `write` of a closure with a value, on a plain thread.
  ///
  /// - Throws: as `write`, but for `CancellationError`.
  @discardableResult
  @_disfavoredOverload
  package func writeBlocking<Value>(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> (value: Value, receipt: Receipt) {
    try commitBlocking("writeBlocking", fileID, line, body)
  }

  nonisolated(nonsending) func commit<Value>(
    _ name: String, _ fileID: String, _ line: Int, _ body: (inout WriteTransaction) throws -> Value
  ) async throws -> (value: Value, receipt: Receipt) {
    let site = CallSite(fileID, line)
    return try await site.run(writing) {
      try Task.checkCancellation()
      let queued = try enqueue(WriterCall(name, site), body)
      try await waitUntilDurable(queued.place)
      driver.withLock { $0 }?.localWriteEnded()
      return (queued.value, queued.receipt)
    }
  }

  func commitBlocking<Value>(
    _ name: String, _ fileID: String, _ line: Int, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> (value: Value, receipt: Receipt) {
    let site = CallSite(fileID, line)
    return try site.run(writing) {
      let queued = try enqueue(WriterCall(name, site), body)
      try waitUntilDurableBlocking(queued.place)
      driver.withLock { $0 }?.localWriteEnded()
      return (queued.value, queued.receipt)
    }
  }

  /// Runs a closure as `writeBlocking` does, and queues its transaction, which nothing can remove from the queue any more:
  /// it becomes durable with the next sync, no later than those that are queued after it. A caller that writes many may
  /// make the next one meanwhile.
  ///
  /// - Returns: what waits for it.
  package func queueBlocking(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Void
  ) throws -> QueuedWrite {
    let site = CallSite(fileID, line)
    return try site.run(writing) {
      let queued = try enqueue(WriterCall("queueBlocking", site), body)
      return QueuedWrite(receipt: queued.receipt, place: queued.place, store: self)
    }
  }

  /// A transaction that is queued.
  package struct QueuedWrite: Sendable {
    fileprivate let receipt: Receipt
    fileprivate let place: QueuePlace
    fileprivate let store: RecordStore

    /// Returns when it is durable.
    package func waitBlocking(fileID: String = #fileID, line: Int = #line) throws -> Receipt {
      try CallSite(fileID, line).run(store.writing) {
        try store.core.requireFree(for: "waitBlocking", instead: "call it when that has returned")
        try store.waitUntilDurableBlocking(place)
        store.driver.withLock { $0 }?.localWriteEnded()
        return receipt
      }
    }
  }

  /// Where a transaction is queued: what has to be known to learn what becomes of it. A log that has refused it, or the next one
  /// of a store that was suspended and resumed, gives its LSNs to other transactions.
  package struct QueuePlace: Sendable {
    fileprivate let log: Log?
    /// Everything that the transaction could see is durable with this one.
    package let lsn: LSN
    /// The log's `resumptions` when it was queued.
    fileprivate let resumptions: Int

    /// - Precondition: the caller holds the store's lock, and the log is resumed by no one else.
    fileprivate init(_ core: borrowing StoreCore) {
      log = core.log
      lsn = core.projections.appliedLSN
      resumptions = core.log?.resumptions ?? 0
    }
  }

  /// For tests: runs the closure as `write` does, and does not wait.
  package func enqueue<Value>(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> (value: Value, receipt: Receipt, place: QueuePlace) {
    try enqueue(WriterCall("enqueue", CallSite(fileID, line)), body)
  }

  /// Runs the closure under the lock and queues its transaction. The receipt holds when its `durableLSN` is durable. A
  /// transaction that changed nothing may still have looked at what is not durable yet, so its receipt waits for that.
  private func enqueue<Value>(
    _ call: WriterCall, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> (value: Value, receipt: Receipt, place: QueuePlace) {
    try requireOpen()
    // Before memory is made free, which may wait for what this thread holds.
    try core.requireFree(for: call.name, instead: "use its transaction")
    try index?.makeRoom()
    // Set in the lock and not returned from it: what a lock gives out has to be Sendable, and the caller's value need not.
    var value: Value?
    do {
      let (receipt, place) = try core.withLock(for: call) { core in
        let lsns = try core.transact { core in
          var transaction = WriteTransaction(core: core, of: self)
          do {
            value = try body(&transaction)
            try transaction.join()
          } catch {
            core = transaction.finish()
            throw error
          }
          core = transaction.finish()
        }.lsns
        let end = core.projections.appliedLSN
        let tenure = lsns == nil ? core.projections.sync.tenure(of: end) : nil
        let receipt = Receipt(
          lsns: lsns, durableLSN: end, position: LogPosition(tenure: tenure ?? core.tenure, lsn: end), store: self)
        return (receipt, QueuePlace(core))
      }
      guard let value else { preconditionFailure("a transaction was queued whose closure did not run") }
      return (value, receipt, place)
    } catch { throw translated(error) }
  }

  /// Runs a transaction of the engine under the lock.
  package func transact(
    _ body: (inout StoreCore) throws -> Void
  ) throws -> (lsns: ClosedRange<LSN>?, place: QueuePlace) {
    do {
      try core.requireFree(for: "commit", instead: "call it when that has returned")
      try index?.makeRoom()
      return try core.withLock { core in
        let lsns = try core.transact(body).lsns
        return (lsns, QueuePlace(core))
      }
    } catch { throw translated(error) }
  }

  /// A transaction of the engine: appended and durable when this returns.
  @discardableResult
  package func commit(_ body: (inout StoreCore) throws -> Void) async throws -> ClosedRange<LSN>? {
    let (lsns, place) = try transact(body)
    if lsns != nil {
      do { try await waitUntilDurable(place) } catch { throw translated(error) }
    }
    settledWaiters.resumeSettled(in: self)
    return lsns
  }

  /// The same on a plain thread.
  package func commitBlocking(_ body: (inout StoreCore) throws -> Void) throws {
    let (lsns, place) = try transact(body)
    guard lsns != nil else { return }
    do { try waitUntilDurableBlocking(place) } catch { throw translated(error) }
  }

  nonisolated(nonsending) private func waitUntilDurable(_ place: QueuePlace) async throws {
    do {
      try await place.log?.waitUntilDurable(place.lsn.rawValue, given: place.resumptions)
    } catch {
      undoRefused(by: place.log)
      throw error
    }
  }

  func waitUntilDurableBlocking(_ place: QueuePlace) throws {
    do {
      try place.log?.waitUntilDurableBlocking(place.lsn.rawValue, given: place.resumptions)
    } catch {
      undoRefused(by: place.log)
      throw error
    }
  }

  /// Takes back what a log has not taken, at once: until the next write the store would go on owing it.
  private func undoRefused(by log: Log?) {
    guard let log else { return }
    core.withLock { core in
      // A store that was suspended and resumed has another log. That this one takes nothing any more, its caller is told already.
      if core.log === log { try? core.reconcile(log) }
    }
  }

  /// One full flush before an event leaves the device: what a server is told must not be ahead of what a power cut
  /// leaves here. Costs nothing where every commit is flushed in full, which is the default.
  package func flushBeforeLeaving() async throws {
    guard case .writer(let log) = source else { return }
    do { try await log.flush() } catch {
      if log.readerAfterClose != nil { throw StrandlineError.suspended }
      throw translated(error)
    }
  }

  fileprivate var writing: String { "writing to the store at '\(path)'" }

  private func translated(_ error: any Error) -> any Error { StrandlineError.translating(error, writing) }
}
