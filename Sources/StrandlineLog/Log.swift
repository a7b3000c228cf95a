// The log: events in order, durable. Opening, closing, and what it is. How an append becomes durable stands in
// Commit/Log+Committing.swift, what an open believes in Recovery/, how one event is read in Log+Reading.swift.
//
// Format and recovery rule: Formats/log.md.

import Dispatch
package import StrandlineSystem
import Synchronization

/// What a log can do at the moment.
package enum LogState: Sendable {
  case open
  /// A group was refused before a byte of it was written. Nothing more is taken until `resume()`.
  case rejecting(LogError)
  /// A write or sync failed. Nothing more is taken until the log is opened again.
  case poisoned(LogError)
  case closed
}

/// What a full disk kept an open from doing.
struct StalledRecovery {
  let recovery: TailRecovery
  var recovered: Recovery
  var cause: LogError
}

/// A write-ahead log in a directory, held by this writer. Safe to use from every thread and task.
///
/// A log that is let go without `close()` gives its lock and its files back as soon as its own threads have ended what
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

  let options: LogOptions
  let clock: any SystemClock
  let files: SegmentFiles
  private let lock: any FileLock
  /// Held by whoever writes. Taken before `commit`, never after.
  let disk: Mutex<SegmentWriter>
  /// Held for a moment.
  let commit: Mutex<CommitState>
  /// The end of the log could not be copied when it was opened, for want of space. Taken before `disk`.
  private let stalled: Mutex<StalledRecovery?>
  let keeper: DirectoryKeeper
  let preparation: SegmentPreparation
  /// One piece of upkeep at a time, and how the last ones went.
  let upkeep = Upkeep()
  let consumers = LogConsumers()
  let writerQueue = DispatchQueue(label: "strandline.log.writer", qos: .userInitiated)
  let idleQueue = DispatchQueue(label: "strandline.log.idle", qos: .utility)

  private init(
    _ directory: StoreDirectory, lock: any FileLock, writer: SegmentWriter, tables: [SegmentTable],
    recovery: RecoveryReport, isNew: Bool, stalled: StalledRecovery? = nil
  ) {
    path = directory.path
    storeUUID = writer.storeUUID
    tenure = writer.tenure
    role = writer.role
    options = writer.options
    keeper = writer.keeper
    preparation = writer.preparation
    clock = writer.keeper.environment.clock
    self.recovery = recovery
    self.isNew = isNew
    self.lock = lock
    files = SegmentFiles(writer.keeper.environment.fileSystem)
    commit = Mutex(
      CommitState(durableLSN: tables.last?.lastLSN ?? writer.durable.lsn, tables: tables, rejecting: stalled?.cause))
    self.stalled = Mutex(stalled)
    disk = Mutex(writer)
  }

  deinit {
    preparation.release()
    disk.withLock { $0.release() }
    files.close()
    lock.unlock()
  }

  // MARK: Opening

  /// Opens the log at `path` for writing, creating it if nothing (or an empty folder) is there.
  ///
  /// Every event from `firstLSN` on is handed to `replay` once, in order, whole transactions only. When `open`
  /// returns, all of them are durable and `append` works. An open without an append changes no byte, but for
  /// temporary files of an interrupted writer, which are removed, files without a place in the log, which are moved
  /// to `quarantine/`, and a tail above the last promise, which is copied into a segment of its own.
  ///
  /// - Parameter firstLSN: nil: nothing is replayed, and only the segments that were not finished are read.
  /// - Throws: `LogError`, or what `replay` threw; the lock is given back first. Damage changes nothing on disk.
  /// - Complexity: O(segments), and O(bytes) of those that are replayed or were not finished.
  package static func open(
    at path: String, role: LogRole, options: LogOptions = .init(), environment: SystemEnvironment,
    createIfAbsent: Bool = true, from firstLSN: UInt64? = 1, replay: (LogEvent) throws -> Void
  ) throws -> Log {
    let directory = StoreDirectory(path)
    let tenure = environment.random.next()
    // Again if somebody else makes the store meanwhile; each round somebody got further.
    for _ in 0..<8 {
      switch try directory.contents(environment.fileSystem) {
      case .absent, .empty:
        guard createIfAbsent else {
          throw LogError(.absent, "there is no store at '\(path)'", file: path)
        }
        if let log = try create(directory, role, options, environment, tenure) { return log }
      case .segments(let ids, _):
        // Refused before anything is touched, the lock file included.
        let seen = try LogReader.again { () throws(LogError) -> SegmentList in
          try SegmentList.read(
            environment.fileSystem, directory, ids, role: role, writing: true, isThorough: false)
        }
        let lock = try directory.lockForWriting(environment, waitMilliseconds: options.lockWaitMilliseconds)
        do {
          return try recover(
            directory, lock, role, options, environment, tenure, seen: seen, from: firstLSN, replay: replay)
        } catch {
          lock.unlock()
          throw error
        }
      }
    }
    throw LogError(.held, "'\(path)' is being made and removed by others again and again", file: path)
  }

  private static func create(
    _ directory: StoreDirectory, _ role: LogRole, _ options: LogOptions, _ environment: SystemEnvironment,
    _ tenure: UInt64
  ) throws(LogError) -> Log? {
    let begun = environment.clock.monotonicNanoseconds()
    let creation = StoreCreation(
      environment: environment, directory: directory, role: role, tenure: tenure, options: options)
    guard let created = try creation.create() else { return nil }
    let live = created.live
    let writer = SegmentWriter(
      keeper: created.keeper,
      preparation: SegmentPreparation(keeper: created.keeper, options: options, tenure: tenure), options: options,
      storeUUID: created.storeUUID, tenure: tenure, role: role, segmentID: 1,
      durable: LogPosition(lsn: 0, chain: 0, offset: live.end), live: live, opens: 1, fullFlushLSN: 0)
    var report = RecoveryReport()
    report.segments = 1
    report.frames = 1
    report.tenure = tenure
    report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    return Log(
      directory, lock: created.lock, writer: writer,
      tables: [SegmentTable(path: live.path, identity: live.identity, firstLSN: 1)], recovery: report, isNew: true)
  }

  private static func recover(
    _ directory: StoreDirectory, _ lock: any FileLock, _ role: LogRole, _ options: LogOptions,
    _ environment: SystemEnvironment, _ tenure: UInt64, seen: SegmentList, from firstLSN: UInt64?,
    replay: (LogEvent) throws -> Void
  ) throws -> Log {
    let fileSystem = environment.fileSystem
    let begun = environment.clock.monotonicNanoseconds()
    // Again under the lock: the last writer may have gone on until now.
    guard case .segments(let ids, let temporaries) = try directory.contents(fileSystem) else {
      throw LogError(.missingSegment, "the segments of '\(directory.path)' vanished while it was opened")
    }
    // A writer that was killed between a rename and its sync left names that only memory has. What is served
    // from now on must not depend on them; the store's own name counts while it has one segment.
    do {
      try fileSystem.syncDirectory(directory.path)
      if ids.count == 1 { try fileSystem.syncDirectory(directory.parent) }
    } catch {
      throw LogError.system("cannot open '\(directory.path)'", error, file: directory.path)
    }
    // What only a close writes must be writable now: else everything is appended, and then the close fails.
    do {
      try fileSystem.open(directory.control, .readWrite).close()
    } catch {
      throw LogError.system("cannot open '\(directory.path)' for writing", error, file: directory.control)
    }
    let list = try SegmentList.read(
      fileSystem, directory, ids, role: role, writing: true, known: seen.known)
    var recovered = try Recovery.run(fileSystem, list, from: firstLSN, visit: replay)
    recovered.report.tenure = tenure
    recovered.report.adopted = list.adopted
    recovered.report.quarantined = list.strays
    do {
      for name in temporaries { try fileSystem.unlink(directory.file(name)) }
      try directory.quarantine(list.strays, fileSystem)
    } catch {
      throw LogError.system("cannot clear up what an interrupted writer left", error)
    }
    let keeper = keeper(environment, directory, list, recovered, present: ids)
    var recovery = TailRecovery(
      keeper: keeper, preparation: SegmentPreparation(keeper: keeper, options: options, tenure: tenure),
      options: options, tenure: tenure)
    let ballast = Ballast(fileSystem: fileSystem, directory: directory, bytes: options.ballastBytes)
    let writer: SegmentWriter
    var stalled: StalledRecovery?
    do throws(LogError) {
      do throws(LogError) {
        writer = try recovery.writer(&recovered)
      } catch {
        guard error.isFull, try release(ballast) else { throw error }
        recovery.isTight = true
        writer = try recovery.writer(&recovered)
      }
    } catch {
      // What is whole can be read, as a reader reads it; nothing can be appended until its copy was made.
      guard error.isFull else { throw error }
      stalled = StalledRecovery(recovery: recovery, recovered: recovered, cause: error)
      writer = recovery.stalledWriter(recovered)
    }
    recovered.report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    let log = Log(
      directory, lock: lock, writer: writer, tables: recovered.tables, recovery: recovered.report, isNew: false,
      stalled: stalled)
    log.leaveToUpkeep(recovered)
    return log
  }

  /// Space that a recovery has made free.
  private func leaveToUpkeep(_ recovered: Recovery) {
    guard let finished = recovered.finished else { return }
    upkeep.add(finished)
    if options.upkeep == .inBackground { lookAfterFiles() }
  }

  private static func release(_ ballast: Ballast) throws(LogError) -> Bool {
    do {
      return try ballast.release()
    } catch {
      throw .system("cannot give the space of '\(ballast.directory.ballast)' back", error)
    }
  }

  /// The list as this writer goes on with it.
  private static func keeper(
    _ environment: SystemEnvironment, _ directory: StoreDirectory, _ list: SegmentList, _ recovered: Recovery,
    present: [UInt64]
  ) -> DirectoryKeeper {
    var manifest = list.manifest
    manifest.nextSegmentID = max(manifest.nextSegmentID, (present.last ?? 0) + 1)
    var unused = list.unopened
    if recovered.isLastUnused, let last = list.summaries.last { unused.append(last.segmentID) }
    // In the order in which they were read: a segment that was made ahead may be in use by now.
    let entries = Dictionary(uniqueKeysWithValues: manifest.entries.map { ($0.segmentID, $0) })
    manifest.entries = list.summaries.enumerated().map { index, summary in
      var entry =
        entries[summary.segmentID]
        ?? ManifestEntry(
          segmentID: summary.segmentID, salt: summary.header.salt, state: .used, firstLSN: summary.opening.firstLSN)
      entry.state = .used
      entry.firstLSN = summary.opening.firstLSN
      if let end = list.sealedEnd(index) {
        (entry.lastLSN, entry.end, entry.chain) = (end.lastLSN, end.offset, end.chain)
      }
      return entry
    }
    manifest.entries += list.unopened.compactMap { entries[$0] }
    return DirectoryKeeper(
      environment: environment, directory: directory, manifest: manifest, control: ControlFile(read: list.control),
      unused: unused)
  }

  // MARK: Looking

  /// The LSN that the next event will have.
  package var nextLSN: UInt64 { commit.withLock { $0.nextLSN } }

  /// Everything up to here is on the medium; 0 if nothing is.
  package var durableLSN: UInt64 { commit.withLock { $0.durableLSN } }

  package var state: LogState {
    commit.withLock { state in
      switch state.phase {
      case .open: .open
      case .rejecting(let error): .rejecting(error)
      case .poisoned(let error): .poisoned(error)
      case .closed: .closed
      }
    }
  }

  // MARK: Going on, and ending

  /// After a clean rejection: takes appends again. `nextLSN` is the one after `durableLSN`, so LSNs of the rejected
  /// transactions are given anew: call it when nobody will ask for the old ones any more. Does nothing in any
  /// other state. A log that was opened on a full disk first copies what its open could not; if there is still no
  /// room, it goes on rejecting.
  package func resume() {
    stalled.withLock { stalled in
      guard var pending = stalled else {
        commit.withLock { $0.resume() }
        return
      }
      disk.withLock { writer in
        guard case .rejecting = state else { return }
        do throws(LogError) {
          writer = try pending.recovery.writer(&pending.recovered)
          stalled = nil
          leaveToUpkeep(pending.recovered)
          commit.withLock { $0.resume(with: pending.recovered.tables) }
        } catch {
          pending.cause = error
          stalled = pending
        }
      }
    }
  }

  /// Makes durable what is queued, promises it, and gives the lock back. A second call does nothing; after it
  /// everything throws `.closed`.
  ///
  /// - Throws: `LogError` if something that was appended did not become durable, or the last sync failed; also if
  ///   merging small segments met a failing disk or damage, though what was acknowledged is safe then. The files and the
  ///   lock are given back all the same.
  package func close() throws {
    while commit.withLock({ $0.hasQueue }) { leadGroup() }
    upkeep.end()
    let failure = disk.withLock { writer -> LogError? in
      let phase = commit.withLock { state in
        let phase = state.phase
        state.close().tell()
        return phase
      }
      defer {
        preparation.release()
        writer.release()
        files.close()
        lock.unlock()
      }
      switch phase {
      case .closed: return nil
      case .poisoned(let error): return error
      case .open, .rejecting:
        freeSpace(isClosing: true)
        do throws(SystemError) {
          try writer.finish()
          try endPreparation()
        } catch {
          return .system("cannot close '\(path)' cleanly; what was acknowledged is safe", error)
        }
        let mergeFailure = mergeAtClose(writer)
        makeBallastAtClose(writer)
        if case .rejecting(let error) = phase { return error }
        return mergeFailure
      }
    }
    if let failure { throw failure }
  }
}
