// A copy of a log as it was at one LSN, made while this process or another one appends, merges and compacts.
//
// What is finished never changes: a segment that has an end is copied up to it. Of the last one the promised part is
// copied, because what lies behind a promise may be a group in flight; if no writer holds the store, all that an open would
// serve. A segment that vanishes was merged or compacted: the list is read again, and what of it is not there yet is
// copied. So what is copied at last is one list's segments: a whole log, whose last LSN the original had durable.
//
// No file is linked to the original: both would change or be damaged together. The copy is built beside its place, every
// frame of it is checked, it is synced and renamed: under its name stands a whole store or none (decisions L1, L16). It
// keeps the store's UUID and its events; bytes in MANIFEST, which the owner of the log chooses, say that it is a copy.

package import StrandlineSystem

/// What a backup copied.
package struct LogBackupReport: Hashable, Sendable {
  /// The last event that it has.
  package var lastLSN: UInt64 = 0
  package var segments = 0
  package var bytes: UInt64 = 0

  package init() {}
}

/// How far a backup is.
package struct LogBackupProgress: Hashable, Sendable {
  package var bytesCopied: UInt64
  /// As far as it is known: a writer goes on meanwhile.
  package var bytesTotal: UInt64

  package init(bytesCopied: UInt64, bytesTotal: UInt64) {
    self.bytesCopied = bytesCopied
    self.bytesTotal = bytesTotal
  }
}

/// Makes backups of logs.
package enum LogBackup {
  /// Copies the log at `path`. When this returns, the copy is on the medium, its parent's entry included; if it throws, or
  /// the process ends, nothing stands at `newPath` that did not stand there before.
  ///
  /// - Parameters:
  ///   - newPath: nothing, or an empty folder; not in a store.
  ///   - roundsMax: how often the list of segments is read because some of them have vanished.
  ///   - ownerBytes: what the copy has in MANIFEST, by its last LSN and what the original has there.
  ///   - progress: called after each piece of a file; what it throws ends the backup.
  ///   - complete: called with the folder of the copy when the log is in it, before it gets its name: what else the copy
  ///     is to have is written and synced here.
  /// - Throws: `LogError`: `.absent`, `.notAStore`, `.notEmptyDirectory`, `.wrongRole`, `.damaged`, `.changing` if the
  ///   segments vanish faster than they can be copied, `.full`, `.io`; or what `progress` and `complete` throw.
  /// - Complexity: O(bytes of the log), written once and read twice; memory for one piece.
  package static func make(
    of path: String, at newPath: String, role: LogRole, environment: SystemEnvironment, roundsMax: Int = 64,
    ownerBytes: (UInt64, [UInt8]) -> [UInt8], progress: (LogBackupProgress) throws -> Void = { _ in },
    complete: (_ source: any Folder, _ copy: any Folder) throws -> Void = { _, _ in }
  ) throws -> LogBackupReport {
    // Before anything is made: the store must be there.
    try make(
      of: try StorePlace(path, environment.fileSystem).log().folder, at: newPath, role: role, environment: environment,
      roundsMax: roundsMax, ownerBytes: ownerBytes, progress: progress, complete: complete)
  }

  /// The same of a folder that is open.
  ///
  /// - Parameter prepare: called with the folder of the copy before the log is copied.
  package static func make(
    of folder: any Folder, at newPath: String, role: LogRole, environment: SystemEnvironment, roundsMax: Int = 64,
    ownerBytes: (UInt64, [UInt8]) -> [UInt8], progress: (LogBackupProgress) throws -> Void = { _ in },
    prepare: (_ source: any Folder, _ copy: any Folder) throws -> Void = { _, _ in },
    complete: (_ source: any Folder, _ copy: any Folder) throws -> Void = { _, _ in }
  ) throws -> LogBackupReport {
    let fileSystem = environment.fileSystem
    let source = StoreDirectory(place: try StorePlace(folder.path, fileSystem), folder: folder)
    let target = try StorePlace(newPath, fileSystem)
    try LogRepair.checkPlace(target, beside: source.path, "a backup")
    if let failure = target.removeUnfinishedStores() { throw failure }
    // What was to become another store keeps no copy from being made: the next one tries again.
    _ = target.removeUnfinishedStores(ofAnyName: true)
    let building: UnfinishedStore
    do {
      building = try target.makeUnfinishedStore(environment.random)
    } catch {
      throw LogError.system("cannot write the backup '\(target.path)'", error, file: target.path)
    }
    let report: LogBackupReport
    do {
      let place = StoreDirectory(place: building.place, folder: building.folder)
      // Held until the copy is complete: another process that clears up beside the place leaves it alone.
      defer { building.lock.unlock() }
      try prepare(source.folder, place.folder)
      var copy = LogCopy(source: source, place: place, role: role, roundsMax: roundsMax)
      report = try copy.make(ownerBytes, progress)
      try complete(source.folder, place.folder)
      try place.folder.sync()
      try fileSystem.renameFolder(building.place.path, to: target.path)
    } catch {
      do {
        try building.place.removeTree()
      } catch {
        // The next backup to this place removes it, or the next open for writing there; the first failure counts.
      }
      guard var failure = error as? SystemError else { throw error }
      if failure.subject == building.place.path { failure.subject = target.path }
      throw LogError.system("cannot write the backup '\(target.path)'", failure, file: target.path)
    }
    do {
      try target.parent.sync()
    } catch {
      throw LogRepair.nameNotSynced(of: "the backup '\(target.path)'", error, file: target.path)
    }
    return report
  }

  fileprivate static func list(
    _ source: StoreDirectory, _ role: LogRole
  ) throws(LogError) -> SegmentList {
    try LogReader.again { () throws(LogError) -> SegmentList in
      // Believing nothing: what is copied is copied with its first page.
      try LogReader.list(source, role: role) { _ in 0 }
    }
  }

  /// Copies lists until one was copied whole.
  fileprivate static func rounds(_ source: StoreDirectory, max roundsMax: Int, _ round: () throws -> Void) throws {
    var last: LogError?
    var repeats = 0
    for _ in 0..<roundsMax {
      do { return try round() } catch let error as LogError where LogReader.mayBeTheMoment(error) {
        // What is wrong a third time in the same place is so, and not a moment between two writes.
        repeats = error.message == last?.message ? repeats + 1 : 1
        last = error
        if repeats == 3, error.underlying?.isAbsent != true { throw error }
      }
    }
    throw LogError(
      .changing,
      "the segments of '\(source.path)' were merged or compacted \(roundsMax) times while they were copied; nothing was "
        + "written; try again when the store is less busy" + (last.map { " (\($0.message))" } ?? ""), file: source.path)
  }
}

/// A copy in the making.
private struct LogCopy {
  let source: StoreDirectory
  let place: StoreDirectory
  let role: LogRole
  let roundsMax: Int
  /// What was copied and checked, by segment.
  private var entries: [UInt64: ManifestEntry] = [:]
  private var buffer: [UInt8] = []

  private static let pieceBytes = 1 << 20
  /// How often the end of the last segment is read again because its writer goes on meanwhile.
  private static let passesMax = 8

  init(source: StoreDirectory, place: StoreDirectory, role: LogRole, roundsMax: Int) {
    self.source = source
    self.place = place
    self.role = role
    self.roundsMax = roundsMax
  }

  /// Copies the log and writes the files that say what it is.
  mutating func make(
    _ ownerBytes: (UInt64, [UInt8]) -> [UInt8], _ progress: (LogBackupProgress) throws -> Void
  ) throws -> LogBackupReport {
    var manifest: Manifest?
    var copied: [ManifestEntry] = []
    try LogBackup.rounds(source, max: roundsMax) {
      let list = try LogBackup.list(source, role)
      copied = try copy(list, progress)
      manifest = list.manifest
    }
    guard var manifest, let last = copied.last, let end = last.end else {
      preconditionFailure("a list without segments is not read")
    }
    try removeOthers(than: Set(copied.map(\.segmentID)))
    manifest.entries = copied
    manifest.nextSegmentID = max(manifest.nextSegmentID, (copied.map(\.segmentID).max() ?? 0) + 1)
    manifest.ownerBytes = ownerBytes(end.lastLSN, manifest.ownerBytes)
    do throws(WriteFailure) { try manifest.replace(in: place.folder) } catch { throw error.cause }
    let (bytes, _) = ControlFile.new(
      Control(
        storeUUID: manifest.storeUUID,
        bound: LogBound(segmentID: last.segmentID, lsn: end.lastLSN, end: end.offset)))
    try write(bytes, to: LogFormat.controlName)
    try check(end)
    var report = LogBackupReport()
    report.lastLSN = end.lastLSN
    report.segments = copied.count
    report.bytes = copied.reduce(0) { $0 + UInt64($1.end?.offset ?? 0) }
    return report
  }

  /// Copies what is not copied yet of a list's segments.
  private mutating func copy(
    _ list: SegmentList, _ progress: (LogBackupProgress) throws -> Void
  ) throws -> [ManifestEntry] {
    var copied: [ManifestEntry] = []
    let total = list.segments.reduce(0) { $0 + UInt64($1.end?.offset ?? 0) }
    for segment in list.segments {
      guard let summary = segment.summary else {
        preconditionFailure("a list that believes nothing has read the first page of each segment")
      }
      let end = try segment.end ?? durableEnd(of: summary, list)
      let entry = ManifestEntry(
        segmentID: summary.segmentID, salt: summary.header.salt, firstLSN: summary.opening.firstLSN, end: end)
      let before = copied.reduce(0) { $0 + UInt64($1.end?.offset ?? 0) }
      if entries[entry.segmentID] != entry {
        // A last segment that has grown since the last round is copied anew.
        entries[entry.segmentID] = nil
        try copy(summary, to: end) { bytes in
          try progress(
            LogBackupProgress(
              bytesCopied: before + bytes, bytesTotal: max(total, before + UInt64(end.offset))))
        }
        entries[entry.segmentID] = entry
      }
      copied.append(entry)
    }
    try list.checkBound(reached: copied.last?.end?.lastLSN ?? 0)
    return copied
  }

  // MARK: One segment

  /// How far the last segment is copied.
  private func durableEnd(of summary: SegmentSummary, _ list: SegmentList) throws -> SegmentEnd {
    let file = try SegmentFile.open(source.folder, summary.segmentID)
    defer { file.close() }
    let bound = list.bound(of: summary.segmentID)
    var walk = SegmentWalk(summary, file: file, limit: try SegmentFile.size(of: file), bound: bound)
    walk.collectsEvents = false
    try Self.walkOn(&walk)
    var strikes = 0
    var passes = 0
    while true {
      passes += 1
      // Asked after reading: if no writer holds it now, the one that wrote what was read is gone.
      let isHeld = try source.isHeld()
      // A writer that is faster than all passes: what is promised was read and verified, however the rest looks.
      if isHeld, passes > Self.passesMax { return walk.promised.end }
      switch Self.judge(walk, untilUnwritten: isHeld) {
      case .success(let verdict):
        return (isHeld ? verdict.promised : verdict.unitEnd).end
      case .failure(let error):
        // Its writer may have gone on between the two reads: then the walk gets further now.
        let before = walk.unitEnd.offset
        walk = SegmentWalk(resuming: walk, file: file, limit: try SegmentFile.size(of: file), bound: bound)
        try Self.walkOn(&walk)
        strikes = walk.unitEnd.offset > before ? 0 : strikes + 1
        if strikes == 3 || !isHeld { throw error }
      }
    }
  }

  private static func walkOn(_ walk: inout SegmentWalk) throws(LogError) {
    while true { if case .stop = try walk.next() { return } }
  }

  private static func judge(_ walk: SegmentWalk, untilUnwritten: Bool) -> Result<TailVerdict, LogError> {
    do throws(LogError) {
      return .success(try TailVerdict.judge(walk, untilUnwritten: untilUnwritten))
    } catch {
      return .failure(error)
    }
  }

  /// Copies a segment up to `end`, and checks the copy. When this returns, its content is on the medium.
  private mutating func copy(
    _ summary: SegmentSummary, to end: SegmentEnd, _ progress: (UInt64) throws -> Void
  ) throws {
    let input = try SegmentFile.open(source.folder, summary.segmentID)
    defer { input.close() }
    let name = SegmentName.name(summary.segmentID)
    if try place.folder.kind(of: name) != .absent { try place.folder.unlink(name) }
    let output = try place.folder.open(name, .create)
    defer { output.close() }
    var offset: UInt64 = 0
    while offset < UInt64(end.offset) {
      let count = Int(min(UInt64(Self.pieceBytes), UInt64(end.offset) - offset))
      do {
        try input.read(at: offset, count: count, into: &buffer)
      } catch {
        throw LogError.system("cannot read segment '\(summary.path)'", error, file: summary.path)
      }
      // What is missing is found by the check.
      if buffer.isEmpty { break }
      try output.write(buffer, at: offset)
      offset += UInt64(buffer.count)
      try progress(offset)
    }
    try output.sync(.durable)
    do throws(LogError) {
      try Self.check(summary, output, end)
    } catch {
      // The fault is the original's, if it has it too.
      try Self.check(summary, input, end)
      throw LogError(
        .io, "'\(summary.path)' and its copy in '\(place.path)' differ, and the original is whole: \(error.message)",
        file: place.segment(summary.segmentID))
    }
  }

  /// Every frame of a segment up to its end, in the original or in its copy.
  private static func check(_ summary: SegmentSummary, _ file: any File, _ end: SegmentEnd) throws(LogError) {
    var walk = SegmentWalk(
      summary, file: file, limit: min(try SegmentFile.size(of: file), UInt64(end.offset)))
    walk.collectsEvents = false
    while true {
      if case .stop(let fault) = try walk.next() { return try walk.checkReached(end, fault) }
    }
  }

  // MARK: The rest

  /// Removes copies of segments that were merged or compacted since.
  private func removeOthers(than segmentIDs: Set<UInt64>) throws(SystemError) {
    for id in entries.keys where !segmentIDs.contains(id) { try place.folder.unlink(SegmentName.name(id)) }
  }

  private func write(_ bytes: [UInt8], to name: String) throws(SystemError) {
    let file = try place.folder.open(name, .create)
    defer { file.close() }
    try file.write(bytes, at: 0)
    try file.sync(.durable)
  }

  /// The copy as an open would find it: headers, order, and where the log ends.
  private func check(_ end: SegmentEnd) throws(LogError) {
    let list = try SegmentList.read(
      place, try place.files(), role: role, writing: false,
      known: KnownSegments()
    ) { _ in 0 }
    guard list.segments.last?.end == end else {
      throw LogError(
        .io, "the copy in '\(place.path)' ends elsewhere than what was copied; nothing was kept", file: place.path)
    }
  }
}
