// The log: events in order, durable. What it is, what it says of itself, how it goes on and ends. How it is opened stands
// in Opening/Log+Opening.swift, how an append becomes durable in Log+Committing.swift, how one event is read in
// Reading/Log+Reading.swift.
//
// Locks, in the order in which a thread takes them: `stalled`, `disk`, those of DirectoryKeeper, `queue`. The last three
// are free when a caller of a group is woken. Format and recovery rule: Formats/log.md.

import Dispatch
package import StrandlineSystem
import Synchronization

/// What a full disk kept an open from doing.
struct StalledRecovery {
  let recovery: TailRecovery
  var recovered: Recovery
  var cause: LogError
}

/// A write-ahead log in a directory, held by this writer. Safe to use from every thread and task.
///
/// A log that is released without `close()` gives its lock and its files back as soon as its own threads have ended what
/// they had begun; what a close would write is not written, and what was acknowledged is safe.
package final class Log: Sendable {
  package let path: String
  /// 16 bytes, drawn when the store was made.
  package let storeUUID: [UInt8]
  /// 64 random bits, drawn at this open.
  package let tenure: UInt64
  package let role: LogRole
  /// What this open found and did.
  package let recovery: RecoveryReport
  /// This open made the store.
  package let isNew: Bool

  package let options: LogOptions
  /// The most bytes of frames that `append` takes in one transaction.
  package var transactionBytesMax: Int { options.transactionBytesMax }
  let clock: any SystemClock
  /// Who writes the groups that tasks wait for.
  let overlap: Overlap
  let files: SegmentFiles
  /// Held by the thread that writes.
  let disk: OrderedMutex<SegmentWriter>
  /// Held for a moment.
  let queue: OrderedMutex<CommitState>
  /// How many transactions it has taken, to be read without the lock.
  let appended = Atomic<Int>(0)
  /// The end of the log could not be copied when it was opened, for want of space.
  private let stalled: OrderedMutex<StalledRecovery?>
  let keeper: DirectoryKeeper
  /// One piece of upkeep at a time, and how the last ones went.
  let upkeep = Upkeep()
  package let consumers: LogConsumers
  private let reader: OrderedMutex<LogReader?> = OrderedMutex(nil)
  private let durabilityObserver = OrderedMutex<DurabilityObserver?>(nil)
  let writerQueue = DispatchQueue(label: "strandline.log.writer", qos: .userInitiated)
  let watchQueue = DispatchQueue(label: "strandline.log.watch", qos: .utility)

  init(
    tenure: UInt64, writer: SegmentWriter, tables: [SegmentTable],
    chain: UInt32, recovery: RecoveryReport, isNew: Bool, stalled: StalledRecovery? = nil,
    consumers: LogConsumers = LogConsumers()
  ) {
    let manifest = writer.keeper.manifest
    path = writer.keeper.directory.path
    storeUUID = manifest.storeUUID
    role = manifest.role
    self.tenure = tenure
    options = writer.options
    keeper = writer.keeper
    clock = writer.keeper.environment.clock
    overlap = writer.keeper.environment.overlap
    self.recovery = recovery
    self.isNew = isNew
    self.consumers = consumers
    files = SegmentFiles(writer.keeper.directory.folder, indexBytesMax: options.indexBytesMax)
    var tables = tables
    tables.forgetPlaces(beyond: options.placeBytesMax)
    queue = OrderedMutex(
      .queue,
      CommitState(
        durable: LogEnd(lsn: tables.last?.lastLSN ?? writer.durable.lsn, chain: chain), tables: tables,
        rejecting: stalled?.cause))
    self.stalled = OrderedMutex(.stalled, stalled)
    disk = OrderedMutex(.disk, writer)
  }

  deinit {
    disk.withLock { $0.release() }
    files.close()
    keeper.hold.release()
  }

  // MARK: Looking

  /// The folder of the log, which stays the same one wherever it is moved.
  package var folder: any Folder { keeper.directory.folder }

  /// Looks whether the log is still the one at its path: before a larger step that its owner takes in its folder.
  ///
  /// - Throws: `.replaced`; then no further group is written: the thread that writes the next one tells its callers. One
  ///   that is being written may still become durable.
  package func checkPlace() throws(LogError) { try keeper.check() }

  /// The LSN that the next event will have.
  package var nextLSN: UInt64 { queue.withLock { $0.nextLSN } }

  /// Everything up to here is on the medium; 0 if nothing is.
  package var durableLSN: UInt64 { queue.withLock { $0.durableLSN } }

  /// The same, with the chain up to it.
  package var durableEnd: LogEnd { queue.withLock { LogEnd(lsn: $0.durableLSN, chain: $0.durableChain) } }

  package var state: LogState { queue.withLock { $0.phase } }

  /// How often `resume()` has taken appends again.
  package var resumptions: Int { queue.withLock { $0.resumptions } }

  /// Calls `body` after each group that became durable, on the thread that wrote it and after the callers that waited
  /// for it were woken. `body` must be short; it may look into the log.
  package func observeDurability(_ body: (@Sendable () -> Void)?) {
    durabilityObserver.withLock { $0 = body.map(DurabilityObserver.init) }
  }

  /// The segments that are part of the log, as MANIFEST lists them. Another list later says that some were rewritten.
  package var segmentIDs: Set<UInt64> {
    Set(keeper.manifest.entries.lazy.map(\.segmentID))
  }

  /// What the owner of the log keeps in MANIFEST.
  package var ownerBytes: [UInt8] { keeper.manifest.ownerBytes }

  /// Who reads events for callers that hold this log although it was closed; nil: they get `.closed`.
  package var readerAfterClose: LogReader? { reader.withLock { $0 } }

  /// Names that reader. Called before `close`, so that no read falls between the two.
  package func leaveReads(to reader: LogReader) {
    let before = self.reader.withLock { current in
      defer { current = reader }
      return current
    }
    // The last one that holds a reader closes its files: not under a lock.
    withExtendedLifetime(before) {}
  }

  func tellDurability() { durabilityObserver.withLock { $0 }?.body() }

  // MARK: Going on, and ending

  /// After a clean rejection: takes appends again. `nextLSN` is the one after `durableLSN`, so LSNs of the rejected
  /// transactions are given anew, and one who still asks for the old ones has to say so (`waitUntilDurable`). Does nothing in any
  /// other state. A log that was opened on a full disk first copies what its open could not; if there is still no
  /// room, it goes on rejecting.
  package func resume() {
    stalled.withLock { stalled in
      guard var pending = stalled else {
        queue.withLock { $0.resume() }
        return
      }
      disk.withLock { writer in
        guard case .rejecting = state else { return }
        do throws(LogError) {
          writer = try pending.recovery.writer(&pending.recovered)
          stalled = nil
          leaveToUpkeep(pending.recovered)
          queue.withLock { $0.resume(with: pending.recovered.tables) }
        } catch {
          pending.cause = error
          stalled = pending
        }
      }
    }
  }

  /// Until the end of the log is copied, MANIFEST lists the only place where it is, and nothing may change that list.
  ///
  /// - Throws: what kept the open from copying it.
  func checkCopied() throws(LogError) {
    if let cause = stalled.withLock({ $0?.cause }) { throw cause }
  }

  /// Space that a recovery has made free.
  func leaveToUpkeep(_ recovered: Recovery) {
    guard let finished = recovered.finished else { return }
    upkeep.add(finished)
    if options.upkeep == .inBackground { lookAfterFiles() }
  }

  /// Makes durable what is queued, seals the log, and gives the lock back. A second call does nothing; after it
  /// everything throws `.closed`.
  ///
  /// - Throws: `LogError` if something that was appended did not become durable, or the last sync failed; also if
  ///   merging small segments met a failing disk or damage, though what was acknowledged is safe then. The files and the
  ///   lock are given back all the same.
  package func close() throws {
    while queue.withLock({ $0.hasQueue }) { writeNextGroup() }
    upkeep.end()
    // In the order in which a compaction takes the two. None is left that holds the first.
    let failure = upkeep.rewriting.withLock { _ in disk.withLock { closeHeld(&$0) } }
    if let failure { throw failure }
  }

  /// - Precondition: the caller holds the locks of rewritings and of the live segment.
  private func closeHeld(_ writer: inout SegmentWriter) -> LogError? {
    let (phase, news) = queue.withLock { state in (state.phase, state.close()) }
    news.tell()
    defer {
      writer.release()
      files.close()
      keeper.hold.release()
    }
    switch phase {
    case .closed: return nil
    case .poisoned(let error): return error
    case .open, .rejecting:
      if writer.hasAppended {
        do throws(LogError) { try keeper.check() } catch { return error }
      }
      freeSpace(isClosing: true)
      do throws(WriteFailure) {
        try writer.finish()
      } catch {
        return error.error("cannot close '\(path)' cleanly; what was acknowledged is safe")
      }
      let mergeFailure = mergeAtClose(writer)
      makeBallastAtClose(writer)
      if case .rejecting(let error) = phase { return error }
      return mergeFailure
    }
  }
}

/// In a struct, because a closure that lies in a generic value alone is wrapped once more by each access to it: a call
/// after n groups went through n wrappers.
private struct DurabilityObserver: Sendable {
  var body: @Sendable () -> Void
}
