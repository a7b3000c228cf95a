// How a log is opened for writing: it is found or made, locked, read, and what an interrupted writer left is cleared up.
//
// Nothing is changed before the whole log was found undamaged. What an open believes after a crash stands in
// Recovery.swift and Reading/TailRule.swift, what it does about a tail in TailRecovery.swift.

package import StrandlineSystem

extension Log {
  /// Opens the log at `path` for writing, creating it if nothing (or an empty folder) is there.
  ///
  /// Every event from `firstLSN` on is handed to `replay` once, in order, whole transactions only. When `open`
  /// returns, all of them are durable and `append` works. An open without an append changes no byte, but for what an
  /// interrupted writer left: temporary files and segments that the log has elsewhere are removed, segments with events
  /// that it does not have are moved to `quarantine/`, and a tail above the last promise is copied into a segment of its
  /// own.
  ///
  /// MANIFEST is believed about finished segments of which nothing is replayed: their files are there and have the bytes
  /// that are listed. Other damage in them is thrown by the read that meets it, and is then in `damage`.
  ///
  /// - Parameters:
  ///   - firstLSN: nil: nothing is replayed, and only the segments that were not finished are read.
  ///   - known: is asked, with the store's UUID, for the last event that the caller knows the outcome of; what follows it
  ///     is replayed, and `firstLSN` does not count. If this log does not have that event, has another one under its LSN, or
  ///     was compacted behind it, it is asked a second time, with true: the caller then forgets what it knew and what was
  ///     replayed so far, and everything is replayed.
  ///   - before: what the caller knows of the log from when it wrote it: a log that lacks that is an older copy or another store,
  ///     and is refused before anything of it is changed.
  ///   - consumers: those of the log before, if this opens it again.
  /// - Throws: `LogError`, or what `replay` threw; the lock is given back first. Damage changes nothing on disk. `.replaced` if the
  ///   log lacks what was acknowledged `before`.
  /// - Complexity: one listing and one look at the sizes of the finished segments, whose number it grows with; O(bytes)
  ///   of the segments that are replayed or were not finished.
  package static func open(
    at path: String, role: LogRole, options: LogOptions = .init(), environment: SystemEnvironment,
    createIfAbsent: Bool = true, from firstLSN: UInt64? = 1, behind known: KnownEnd? = nil,
    after before: LogBefore? = nil, consumers: LogConsumers = LogConsumers(),
    replay: (LogEvent) throws -> Void
  ) throws -> Log {
    let place = try StorePlace(path, environment.fileSystem)
    let opening = LogOpening(
      place: place, role: role, options: options, environment: environment, tenure: environment.random.next(),
      before: before, consumers: consumers)
    let unfinished = place.removeUnfinishedStores()
    let log = try open(opening, createIfAbsent, firstLSN, known, replay)
    // The store can be served without that: it is in the report of upkeep, and the next open tries again.
    if let unfinished { log.upkeep.failed(.freeing, unfinished, now: environment.clock.monotonicNanoseconds()) }
    return log
  }

  /// See `open`.
  package typealias KnownEnd = (_ folder: any Folder, _ storeUUID: [UInt8], _ isRefused: Bool) throws -> LogEnd?

  private static func open(
    _ opening: LogOpening, _ createIfAbsent: Bool, _ firstLSN: UInt64?, _ known: KnownEnd?,
    _ replay: (LogEvent) throws -> Void
  ) throws -> Log {
    let path = opening.place.path
    // Again if another process makes the store meanwhile, or moves it; each round one of them got further.
    for _ in 0..<8 {
      switch try opening.place.contents() {
      case .absent, .empty:
        guard createIfAbsent else { throw LogError.absent(path) }
        guard !opening.place.fileSystem.openStores.contains(path) else { throw StoreHold.isOpen(opening.place) }
        if let log = try opening.create() { return log }
      case .log(let directory, let files):
        // Refused before anything is touched, the lock file included.
        let seen = try LogReader.again { () throws(LogError) -> SegmentList in
          try SegmentList.read(
            directory, files, role: opening.role, writing: true, known: KnownSegments()
          ) { _ in known == nil ? firstLSN ?? .max : .max }
        }
        let lock = try directory.lockForWriting(
          opening.environment, waitMilliseconds: opening.options.lockWaitMilliseconds)
        do {
          let recovering = RecoveringLog(opening: opening, directory: directory, lock: lock)
          if let log = try recovering.recover(seen: seen, from: firstLSN, behind: known, replay: replay) { return log }
          lock.unlock()
        } catch {
          lock.unlock()
          throw error
        }
      }
    }
    throw LogError(.held, "'\(path)' is being made and removed by other processes again and again", file: path)
  }
}

/// What a writer knows of its log when it gives the lock back.
package struct LogBefore: Sendable {
  package var storeUUID: [UInt8]
  /// The last event that was acknowledged.
  package var acknowledged: LogEnd

  package init(storeUUID: [UInt8], acknowledged: LogEnd) {
    (self.storeUUID, self.acknowledged) = (storeUUID, acknowledged)
  }
}

/// One opening.
private struct LogOpening {
  let place: StorePlace
  let role: LogRole
  let options: LogOptions
  let environment: SystemEnvironment
  let tenure: UInt64
  let before: LogBefore?
  let consumers: LogConsumers

  /// Makes the store; nil if another process made one meanwhile.
  func create() throws(LogError) -> Log? {
    let begun = environment.clock.monotonicNanoseconds()
    let creation = StoreCreation(environment: environment, place: place, role: role, options: options)
    guard let created = try creation.create() else { return nil }
    do throws(LogError) {
      try created.keeper.hold.claim()
    } catch {
      created.live.close()
      created.keeper.hold.release()
      throw error
    }
    let live = created.live
    let writer = SegmentWriter(
      keeper: created.keeper, options: options, segmentID: 1,
      durable: LogPosition(lsn: 0, chain: 0, offset: live.end), live: live)
    var report = RecoveryReport()
    report.segments = 1
    report.frames = 1
    report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    return Log(
      tenure: tenure, writer: writer,
      tables: [SegmentTable(path: live.path, identity: live.identity, firstLSN: 1)], chain: 0, recovery: report,
      isNew: true, consumers: consumers)
  }

}

/// The opening of a store that is there, under its lock.
private struct RecoveringLog {
  let opening: LogOpening
  let directory: StoreDirectory
  let lock: any FileLock

  private var environment: SystemEnvironment { opening.environment }
  private var options: LogOptions { opening.options }

  /// Opens the log in the folder that was found.
  ///
  /// - Returns: nil if another folder is at the path by now.
  func recover(
    seen: SegmentList, from firstLSN: UInt64?, behind knownEnd: Log.KnownEnd?, replay: (LogEvent) throws -> Void
  ) throws -> Log? {
    let control = try openControl()
    do {
      guard try isAtItsPath() else {
        control.close()
        return nil
      }
      return try recover(control, seen: seen, from: firstLSN, behind: knownEnd, replay: replay)
    } catch {
      control.close()
      throw error
    }
  }

  /// Between the look at the folder and its lock another one may have taken its place, whose writer the lock does not
  /// keep away.
  private func isAtItsPath() throws(LogError) -> Bool {
    do throws(SystemError) {
      let here = try directory.place.open()
      // Without a lock at the path this one keeps no other writer away.
      guard let lockHere = try here.folder.identity(of: LogFormat.lockName) else { return false }
      if lockHere.isSame(as: try lock.identity()) { return true }
      // Drives that change numbers.
      return try directory.hasSameLists(here)
    } catch  where error.isAbsent || error.isNotDirectory {
      return false
    } catch {
      throw .system("cannot look at '\(directory.path)'", error, file: directory.path)
    }
  }

  private func recover(
    _ control: any File, seen: SegmentList, from firstLSN: UInt64?, behind knownEnd: Log.KnownEnd?,
    replay: (LogEvent) throws -> Void
  ) throws -> Log {
    // Again under the lock: the last writer may have gone on until now.
    let files = try directory.files()
    try settleNames(files)
    guard !directory.place.fileSystem.openStores.contains(directory.place.path) else {
      throw StoreHold.isOpen(directory.place)
    }
    // Before anything is read: it may take long, and another store's files may be put into the folder meanwhile.
    let slots = try ControlFile.read(control, directory.control)
    let hold = StoreHold(
      directory, storeUUID: slots.current.storeUUID, lock: lock, control: control, slots: slots,
      now: environment.clock.monotonicNanoseconds())
    do {
      return try recover(files, seen, hold, from: firstLSN, behind: knownEnd, replay: replay)
    } catch let error as LogError {
      // Files of two stores contradict each other, and that is no damage.
      try hold.check(now: environment.clock.monotonicNanoseconds())
      throw error
    }
  }

  private func recover(
    _ files: StoreDirectory.Files, _ seen: SegmentList, _ hold: StoreHold, from firstLSN: UInt64?,
    behind knownEnd: Log.KnownEnd?, replay: (LogEvent) throws -> Void
  ) throws -> Log {
    let begun = environment.clock.monotonicNanoseconds()
    let held = hold.changed(by: environment.clock)
    let acknowledged = try acknowledgedBefore(seen.manifest)
    let end = try knownEnd?(held.folder, seen.manifest.storeUUID, false)
    let wanted = knownEnd == nil ? firstLSN ?? .max : (end?.lsn ?? 0) + 1
    let believed = min(wanted, acknowledged.map { $0.lsn + 1 } ?? .max)
    let list = try SegmentList.read(
      directory, files, role: opening.role, writing: true, known: seen.known
    ) { _ in believed }
    var recovered: Recovery
    if let end {
      if let found = try Recovery.run(directory, list, behind: end, acknowledged: acknowledged, visit: replay) {
        recovered = found
      } else {
        _ = try knownEnd?(held.folder, list.manifest.storeUUID, true)
        return try recover(files, seen, hold, from: 1, behind: nil, replay: replay)
      }
    } else {
      recovered = try Recovery.run(
        directory, list, from: knownEnd == nil ? firstLSN : 1, acknowledged: acknowledged, visit: replay)
    }
    if recovered.lacksAcknowledged, let acknowledged {
      throw replaced(
        "an older copy was put over the files of the store at '\(directory.path)' while no one wrote it: it ends with event "
          + "\(recovered.end.lsn), and lacks event \(acknowledged.lsn), which was acknowledged")
    }
    try checkNumbers(list, recovered)
    recovered.report.adopted = list.adopted
    try clearUp(files.temporaries, &recovered, in: held)
    let keeper = DirectoryKeeper(environment: environment, hold: hold, manifest: manifest(list, files))
    var recovery = TailRecovery(keeper: keeper, options: options)
    try keeper.hold.claim()
    let writer: SegmentWriter
    let stalled: StalledRecovery?
    do {
      (writer, stalled) = try continued(&recovery, &recovered)
    } catch {
      keeper.hold.release()
      throw error
    }
    recovered.report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    let log = Log(
      tenure: opening.tenure, writer: writer, tables: recovered.tables, chain: recovered.end.chain,
      recovery: recovered.report, isNew: false, stalled: stalled, consumers: opening.consumers)
    log.leaveToUpkeep(recovered)
    return log
  }

  /// The event that this log must have; nil for none.
  private func acknowledgedBefore(_ manifest: Manifest) throws(LogError) -> LogEnd? {
    guard let before = opening.before else { return nil }
    guard manifest.storeUUID == before.storeUUID else {
      throw replaced("another store has taken the place of the one at '\(directory.path)' while no one wrote it")
    }
    // Before the first event every log is the same.
    return before.acknowledged.lsn == 0 ? nil : before.acknowledged
  }

  private func replaced(_ words: String) -> LogError {
    LogError(
      .replaced,
      "\(words); nothing of it was changed; put the files back that were there, or close this store and open what is there",
      file: directory.path, underlying: .stale("open", directory.path))
  }

  /// A writer that was killed between a rename and its sync left names that only memory has. What is served from now on
  /// must not depend on them; the store's own name counts while it has one segment.
  private func settleNames(_ files: StoreDirectory.Files) throws(LogError) {
    do {
      try directory.folder.sync()
      if files.segmentIDs.count == 1 { try directory.place.parent.sync() }
    } catch {
      throw .system("cannot open '\(directory.path)'", error, file: directory.path)
    }
  }

  /// What only a close writes must be writable now: else everything is appended, and then the close fails. It stays open.
  private func openControl() throws(LogError) -> any File {
    do {
      return try directory.folder.open(LogFormat.controlName, .readWrite)
    } catch {
      throw .system("cannot open '\(directory.path)' for writing", error, file: directory.control)
    }
  }

  /// No log gets near the limit by counting; going on there would write numbers that no reader takes.
  private func checkNumbers(_ list: SegmentList, _ recovered: Recovery) throws(LogError) {
    let limit = LogFormat.numberMax - 256
    guard list.manifest.nextSegmentID < limit, recovered.end.lsn < limit else {
      throw .damaged(
        directory.manifest, at: 0..<1, lsns: nil,
        "its next segment ID is \(list.manifest.nextSegmentID) and its last LSN \(recovered.end.lsn), which no writer "
          + "reaches by counting")
    }
  }

  /// Removes and moves what interrupted writers left, now that the log was found whole without it.
  ///
  /// - Parameter directory: the one that is held.
  private func clearUp(
    _ temporaries: [String], _ recovered: inout Recovery, in directory: StoreDirectory
  ) throws(LogError) {
    let list = recovered.list
    let leftovers = try Leftovers(
      list.unplaced, covering: list.segments.first?.firstLSN ?? 1, to: recovered.end.lsn, in: directory)
    recovered.report.removed = leftovers.redundant
    recovered.report.quarantined = leftovers.unknown
    do {
      for name in temporaries { try directory.folder.unlink(name) }
      try directory.clear(leftovers)
    } catch {
      throw .system("cannot clear up what an interrupted writer left in '\(directory.path)'", error)
    }
  }

  /// The list as this writer goes on with it.
  private func manifest(_ list: SegmentList, _ files: StoreDirectory.Files) -> Manifest {
    var manifest = list.manifest
    manifest.nextSegmentID = max(manifest.nextSegmentID, (files.segmentIDs.last ?? 0) + 1)
    // With those that no list names, and the ends that a successor says.
    manifest.entries = list.segments.map { segment in
      ManifestEntry(
        segmentID: segment.segmentID, salt: segment.identity.salt, firstLSN: segment.firstLSN, end: segment.end)
    }
    return manifest
  }

  /// The writer that continues the log. On a full disk the ballast is removed for it; if that is not enough, what is
  /// whole can be read, as a reader reads it, and nothing can be appended until its copy was made.
  private func continued(
    _ recovery: inout TailRecovery, _ recovered: inout Recovery
  ) throws(LogError) -> (SegmentWriter, StalledRecovery?) {
    let ballast = Ballast(directory: recovery.keeper.directory, bytes: options.ballastBytes)
    do throws(LogError) {
      do throws(LogError) {
        return (try recovery.writer(&recovered), nil)
      } catch {
        guard error.isFull, try release(ballast) else { throw error }
        recovery.isTight = true
        return (try recovery.writer(&recovered), nil)
      }
    } catch {
      guard error.isFull else { throw error }
      return (
        recovery.stalledWriter(recovered), StalledRecovery(recovery: recovery, recovered: recovered, cause: error)
      )
    }
  }

  private func release(_ ballast: Ballast) throws(LogError) -> Bool {
    do {
      return try ballast.release()
    } catch {
      throw .system("cannot give the space of '\(ballast.directory.ballast)' back", error)
    }
  }
}
