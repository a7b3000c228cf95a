// Suspending: a store gives its lock back for a while and stays an object that can be read.
//
// An iOS app that is put to sleep while it holds a lock on a shared file is ended by the system, and while it sleeps an
// extension may want to write. A suspended store is what `openReadOnly` gives: it reads the log through a LogReader,
// beside other writers. To resume is to open the log again: lock, recovery, a new tenure. What other writers appended is
// applied like what a reader follows; if the log was rewritten meanwhile, the projections are made anew, because what
// they know of older events may have been packed or removed.
//
// Order of a suspension: no new transaction; the queue is made durable; the index ends, and with it everything that writes
// runs; a reader stands where the log ends; the log is closed, which gives the lock back; reads go to the reader. A read
// that began before goes on with the reader too.
//
// Runs that are open stay readable, whatever other writers do with their files. But a resumed store must go on from the
// list that is on the disk: its next run would not fit to the others', nor its number. Of an event that other runs know,
// what memory has is as new or newer, so they take the place of this store's. The same is true of declared indexes: other
// writers may have declared, dropped and built some, and given numbers to their rows.

import Dispatch
import StrandlineLog
import StrandlineSystem
import Synchronization

/// What a suspended store remembers of its log.
struct Suspension: Sendable {
  let options: LogOptions
  let index: IndexOptions
  /// The indexes that it is to have when it is resumed; nil: those that are declared by then.
  let indexes: [RecordIndex]?
  /// The last event that was durable.
  let end: LogEnd
  /// The segments of the log when its lock was given back.
  let segmentIDs: Set<UInt64>
}

/// The runs that are listed on the disk when a log is opened again.
private struct DiskRuns: Sendable {
  private let environment: SystemEnvironment
  let cache: BlockCache
  /// That of the store that was suspended.
  private let storeUUID: [UInt8]
  private(set) var runs: RunSet?
  private(set) var declared = DeclaredIndexes()
  /// Why it is not known which indexes are declared.
  private(set) var definitionsFailure: StrandlineError?
  /// The log was compacted past the event with which it was suspended.
  private(set) var isLogCompacted = false

  init(_ environment: SystemEnvironment, _ cache: BlockCache, of storeUUID: [UInt8]) {
    self.environment = environment
    self.cache = cache
    self.storeUUID = storeUUID
  }

  /// Reads the list, under the log's lock.
  ///
  /// - Parameter end: the event with which the log was suspended.
  /// - Returns: the event behind which the log is to be read.
  mutating func begin(_ folder: any Folder, _ storeUUID: [UInt8], _ end: LogEnd, isRefused: Bool) -> LogEnd? {
    let files = IndexFiles(folder, environment, storeUUID: self.storeUUID, cache: cache)
    do { declared = try files.loadDefinitions() } catch { definitionsFailure = error }
    if isRefused {
      isLogCompacted = runs == nil
      runs = nil
      return nil
    }
    // Before the first event every log is the same.
    let end = end.lsn == 0 ? nil : end
    // Of whatever kind the failure is: all that the runs say stands in the log too.
    do {
      runs = try files.load(&declared.definitions)
      // It throws if they cannot hold all that they count.
      _ = try runs?.state()
    } catch {
      runs = nil
    }
    return runs?.end ?? end
  }
}

extension StrandlineError {
  static let suspended = StrandlineError(
    .suspended, "the store is suspended, so another process may be writing it; call 'resume()' and write then")
}

extension RecordStore {
  /// Gives the store's lock back, for example before an iOS app is put to sleep, and keeps the store readable.
  ///
  /// What is in flight ends first: closures of `write` that run, and writes that wait for their sync. A sync cycle, a
  /// compaction and the building of an index are given up, which loses nothing; they throw `.suspended`. When this returns,
  /// no thread of the store writes a file, and other processes can open it for writing. Until `resume()`:
  ///
  /// - `write`, `compact`, `addIndex`, `dropIndex`, `buildIndexes` and `SyncEngine.sync()` throw `.suspended`, and no
  ///   automatic cycle runs;
  /// - reads, views, queries and observations go on and show what was durable at the suspension; `refresh()` shows what
  ///   other processes wrote since;
  /// - `close()` closes the store.
  ///
  /// Suspending a suspended store, or one that was opened for reading only, does nothing. Calls from several tasks run one
  /// after the other.
  ///
  /// - Throws: `StrandlineError`: `.diskFull`, `.outcomeUnknown` or `.io` if a write in flight, the last sync or the end of
  ///   the log failed; what was acknowledged is safe, and the store is suspended and its lock given back all the same.
  ///   `.closed`.
  /// - Complexity: what `close()` costs.
  public func suspend(fileID: String = #fileID, line: Int = #line) async throws {
    let site = CallSite(fileID, line)
    try site.run("suspending the store at '\(path)'") { try requireOpen() }
    await driver.withLock { $0 }?.pause()
    try await onOwnThread { try self.suspendBlocking(fileID: fileID, line: line) }
  }

  /// Opens the store's log again after `suspend()`: takes the lock, reads what other processes wrote meanwhile, also to the
  /// store's inbox (``StoreInbox``), and tells the observers. The sync engine goes on. The next `write` begins a new tenure, as after an open.
  ///
  /// Indexes are those of `StoreOptions.indexes` and what was added since, if the store was opened with a list; otherwise
  /// those that are declared by then.
  ///
  /// Views that are held go on to show what they showed, unless the log was compacted or merged by another process: then
  /// they have expired, and throw `.outdated`. Resuming a store that is not suspended does nothing.
  ///
  /// - Throws: `StrandlineError` as `open(at:syncing:)`: `.storeHeld` if another process has the store open for writing
  ///   now, `.noSuchStore` if it is gone, `.damaged`, `.io`, `.closed`; `.storeReplaced` if an older copy, or another store, has
  ///   taken its place: nothing of that is changed. The store stays suspended and readable; try again.
  /// - Complexity: O(new events); O(bytes of the log) if another process has compacted or merged it.
  public func resume(fileID: String = #fileID, line: Int = #line) async throws {
    try await onOwnThread { try self.resumeBlocking(fileID: fileID, line: line) }
  }

  /// Whether the store is suspended, or about to be.
  public var isSuspended: Bool { isSuspending.load(ordering: .acquiring) }

  /// `suspend` on a plain thread, for a store without an engine.
  package func suspendBlocking(fileID: String = #fileID, line: Int = #line) throws {
    try requireNoClosure(of: "suspend", CallSite(fileID, line))
    try CallSite(fileID, line).run("suspending the store at '\(path)'") {
      try suspension.withLock { suspension in
        try requireOpen()
        guard case .writer(let log) = source else { return }
        isSuspending.store(true, ordering: .releasing)
        // Waits for the closure of `write` that runs; whatever was appended is in the log's queue then.
        core.withLock { $0.beginSuspension() }
        core.inbox.turn.withLock { _ in }
        core.contents.forgetStaged()
        let drained = Result { try log.waitUntilDurableBlocking(log.nextLSN - 1) }
        let index = index
        // The one that the store runs by itself ends soon now.
        compaction?.wait()
        // The index is a matter of the next open's time: what is lost without it, nothing.
        _ = try? index?.close(.suspended)
        // For reads that began before, and meet the close.
        log.leaveReads(to: LogReader(atEndOf: log))
        let closed = Result { try log.close() }
        // The close may have merged segments.
        let reader = LogReader(atEndOf: log)
        log.leaveReads(to: reader)
        suspension = Suspension(
          options: log.options, index: index?.options ?? IndexOptions(), indexes: index?.list,
          end: log.durableEnd, segmentIDs: log.segmentIDs)
        core.withLock { $0.suspend(readingFrom: .reader(reader), durable: LSN(log.durableLSN)) }
        read(from: .reader(reader))
        write(runsBy: nil)
        publish()
        // The first failure counts: a close repeats what the drain met.
        try drained.get()
        try closed.get()
      }
    }
  }

  /// `resume` on a plain thread.
  package func resumeBlocking(fileID: String = #fileID, line: Int = #line) throws {
    try requireNoClosure(of: "resume", CallSite(fileID, line))
    let isResumed = try CallSite(fileID, line).run("cannot resume the store at '\(path)'") {
      try suspension.withLock { suspension in
        try requireOpen()
        guard let suspended = suspension else { return false }
        var disk = DiskRuns(
          environment, BlockCache(bytesMax: suspended.index.cacheBytesMax), of: source.storeUUID)
        let log = try open(suspended, &disk)
        let copyMark: CopyMark?
        let index: StoreIndex
        do {
          if let failure = disk.definitionsFailure { throw failure }
          // Whatever is written looks first whether the folder is still this store's, as after an open.
          let files = IndexFiles(log.folder, environment, storeUUID: log.storeUUID, cache: disk.cache)
          try files.syncDefinitions()
          copyMark = try CopyMark(ownerBytes: log.ownerBytes, of: log.folder)
          try catchUp(with: log, since: suspended, wasCompacted: disk.isLogCompacted)
          index = try takeRuns(from: disk, files, suspended, log)
        } catch {
          // What stopped the resumption is the news; the lock is given back in any case.
          _ = Result { try log.close() }
          throw error
        }
        // If the log was rewritten, its LSNs may be those of other events.
        indexRows.removeAll()
        write(runsBy: index)
        core.withLock { core in
          core.resume(with: log)
          core.renameWriter(ofCopy: copyMark)
        }
        read(from: .writer(log))
        suspension = nil
        isSuspending.store(false, ordering: .releasing)
        index.opened(declaring: suspended.indexes, adding: core.withLock { $0.declared.schema }.childIndexes)
        publish()
        settledWaiters.resumeSettled(in: self)
        considerCompaction()
        core.contents.forgetStaged()
        clearUpContentsOfOpen()
        driver.withLock { $0 }?.resume()
        return true
      }
    }
    if isResumed { tryInbox() }
  }

  /// Opens the log again: behind the runs that are on the disk now, so that they are known to be of this log, or behind
  /// the event with which it was suspended. What follows is read once more by what catches up.
  private func open(_ suspended: Suspension, _ disk: inout DiskRuns) throws -> Log {
    let shared = OrderedMutex(.opening, disk)
    defer { disk = shared.withLock { $0 } }
    return try Log.open(
      at: path, role: .store, options: suspended.options, environment: environment, createIfAbsent: false,
      behind: { folder, uuid, isRefused in
        shared.withLock { $0.begin(folder, uuid, suspended.end, isRefused: isRefused) }
      },
      after: LogBefore(storeUUID: source.storeUUID, acknowledged: suspended.end), consumers: consumers
    ) { _ in }
  }

  /// Puts the runs that are on the disk under the projections, which have caught up with `log`, and makes the index that
  /// writes the next ones.
  private func takeRuns(
    from disk: DiskRuns, _ files: IndexFiles, _ suspended: Suspension, _ log: Log
  ) throws -> StoreIndex {
    let (own, applied) = projections.withLock { ($0.runs, $0.appliedLSN) }
    func index(_ runs: RunSet?, isListed: Bool) -> StoreIndex {
      let next = max(disk.runs?.list.nextRunNumber ?? 1, own?.list.nextRunNumber ?? 1)
      return StoreIndex(
        runs, nextRunNumber: next, isListed: isListed, declared: disk.declared, files: files,
        options: suspended.index, log: log, projections: projections)
    }
    // Memory has everything: a run of it takes the place of what is on the disk.
    guard let own else { return index(nil, isListed: false) }
    if let runs = disk.runs, own.end.lsn <= runs.end.lsn, runs.end.lsn <= applied.rawValue {
      projections.withLock { $0.replaceRuns(runs) }
      return index(runs, isListed: true)
    }
    // The files of these runs may be gone, and their numbers given to others.
    let made = index(own, isListed: false)
    _ = try made.rebuild(own)
    return made
  }

  /// Applies what other processes wrote before `log` was opened again.
  ///
  /// - Parameter wasCompacted: whether a compaction has passed the event with which the store was suspended.
  private func catchUp(with log: Log, since suspended: Suspension, wasCompacted: Bool) throws {
    let wasRewritten = wasCompacted || !suspended.segmentIDs.isSubset(of: log.segmentIDs)
    try core.withLock { _ in
      guard case .reader(let reader) = source else {
        preconditionFailure("a suspended store reads from a reader")
      }
      _ = try follow(reader, wasRewritten: wasRewritten)
      // On a full disk the end of the log could not be copied: the log serves it, and a reader beside it does not.
      while projections.appliedLSN < LSN(log.durableLSN) {
        let lsn = projections.appliedLSN.advanced(by: 1)
        let event = try log.read(lsn.rawValue).decoded()
        try projections.withLock { (state) throws(StrandlineError) in
          try state.apply(event, at: lsn, isDurable: false)
        }
      }
    }
  }

  /// Blocking work does not run on the cooperative pool.
  func onOwnThread(_ work: @escaping @Sendable () throws -> Void) async throws {
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      DispatchQueue.global(qos: .userInitiated).async { continuation.resume(with: Result { try work() }) }
    }
  }
}
