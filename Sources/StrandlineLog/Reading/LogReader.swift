// Reading a log that another process may be writing: no lock is kept and no byte is changed (decision L10).
//
// If no writer holds the store, everything complete is served, up to X of the recovery rule: its writer is gone, and
// the next one will find the same. If a writer holds it, only what it has promised is served, up to W: what lies
// behind that may be a group in flight. Whether it is held is asked after reading, so that what was read was
// written before the answer. A live file is not read at one instant, so nothing is called damage, or missing,
// before a second pass has seen the same. How one pass goes stands in ReaderCursor.swift.

package import StrandlineSystem

/// One frame, for dumps.
package struct FrameView: Hashable, Sendable {
  package var segmentID: UInt64
  package var offset: UInt32
  package var header: FrameHeader
  package var body: [UInt8]
  package var lsn: UInt64 { header.lsn }
  /// nil for types that this version does not know.
  package var type: FrameType? { FrameType(rawValue: header.type) }
  /// Header, body and padding.
  package var frameBytes: Int { header.frameBytes }
  /// The fields of an opening frame.
  package var opening: OpeningBody? {
    type == .opening ? OpeningBody.decode(body, at: 0, count: body.count, lsn: header.lsn) : nil
  }
}

/// A view of a log that another process may be writing. Safe to use from every thread; polls wait for each other.
package final class LogReader: Sendable, EventAddresses {
  package let path: String
  package let storeUUID: [UInt8]
  package let role: LogRole

  let directory: StoreDirectory
  let environment: SystemEnvironment
  let files: SegmentFiles
  /// Held for the length of a poll.
  private let cursor: OrderedMutex<ReaderCursor>
  /// Held for a moment.
  private let served = OrderedMutex(Served())

  /// What has been handed out, and where it lies.
  struct Served {
    var lastLSN: UInt64 = 0
    var tables: [SegmentTable] = []
    var report = RecoveryReport()
  }

  private init(
    _ directory: StoreDirectory, _ environment: SystemEnvironment, storeUUID: [UInt8], role: LogRole, lastLSN: UInt64,
    behind known: LogEnd?
  ) {
    path = directory.path
    self.storeUUID = storeUUID
    self.role = role
    self.directory = directory
    self.environment = environment
    files = SegmentFiles(directory.folder, indexBytesMax: LogOptions().indexBytesMax)
    cursor = OrderedMutex(
      .polling,
      ReaderCursor(directory: directory, environment: environment, role: role, storeUUID: storeUUID, known: known))
    served.withLock { $0.lastLSN = lastLSN }
  }

  /// A reader that stands where `log` ends, for the time after its close: everything durable counts as handed out, and is
  /// read from where the log has it. No file is read here.
  package convenience init(atEndOf log: Log) {
    let (lsn, tables) = log.queue.withLock { ($0.durableLSN, $0.tables) }
    self.init(
      log.keeper.directory, log.keeper.environment, storeUUID: log.storeUUID, role: log.role, lastLSN: lsn, behind: nil)
    served.withLock { $0.tables = tables }
  }

  /// The folder of the log, which stays the same one wherever it is moved.
  package var folder: any Folder { directory.folder }

  deinit { files.close() }

  /// Looks at the log at `path`. Only headers are read here; events come with `poll`. MANIFEST is believed about finished
  /// segments that have nothing behind that event: no byte of them is read before a `read` asks for one.
  ///
  /// - Parameter known: is asked, with the log's UUID, for the last event that the caller knows the outcome of: events up
  ///   to there count as handed out. The first `poll` throws `AnotherHistory` if the log does not have it, or was compacted behind it.
  /// - Throws: `.absent` if there is no log, `.wrongRole`, `.fromTheFuture`, `.damaged`, `.missingSegment`,
  ///   `.foreignSegment`, `.io`.
  package static func open(
    at path: String, role: LogRole? = nil, environment: SystemEnvironment,
    behind known: (_ storeUUID: [UInt8]) -> LogEnd? = { _ in nil }
  ) throws(LogError) -> LogReader {
    try open(
      try StorePlace(path, environment.fileSystem).log(), role: role, environment: environment, behind: known)
  }

  /// The same in a folder that a log or reader has open.
  package static func open(
    in folder: any Folder, role: LogRole? = nil, environment: SystemEnvironment,
    behind known: (_ storeUUID: [UInt8]) -> LogEnd? = { _ in nil }
  ) throws(LogError) -> LogReader {
    let place = try StorePlace(folder.path, environment.fileSystem)
    return try open(
      StoreDirectory(place: place, folder: folder), role: role, environment: environment, behind: known)
  }

  /// The folder of the log at `path`.
  ///
  /// - Throws: `.absent`, `.notAStore`, `.notEmptyDirectory`, `.io`.
  package static func folder(of path: String, environment: SystemEnvironment) throws(LogError) -> any Folder {
    try StorePlace(path, environment.fileSystem).log().folder
  }

  static func open(
    _ directory: StoreDirectory, role: LogRole? = nil, environment: SystemEnvironment,
    behind known: (_ storeUUID: [UInt8]) -> LogEnd? = { _ in nil }
  ) throws(LogError) -> LogReader {
    var end: LogEnd?
    let list = try again { () throws(LogError) -> SegmentList in
      try Self.list(directory, role: role) { manifest in
        end = known(manifest.storeUUID)
        return (end?.lsn ?? 0) + 1
      }
    }
    return LogReader(
      directory, environment, storeUUID: list.manifest.storeUUID, role: list.manifest.role, lastLSN: end?.lsn ?? 0,
      behind: end)
  }

  /// The segments as a reader sees them.
  ///
  /// - Parameter limit: as of `SegmentList.read`.
  static func list(
    _ directory: StoreDirectory, role: LogRole?, known: KnownSegments = KnownSegments(),
    believing limit: (Manifest) -> UInt64
  ) throws(LogError) -> SegmentList {
    try SegmentList.read(
      directory, try directory.files(), role: role, writing: false,
      known: known, believing: limit)
  }

  /// A directory that is being written is not seen at one instant: what seems wrong is read again.
  static func again<Result>(_ look: () throws(LogError) -> Result) throws(LogError) -> Result {
    for _ in 0..<2 {
      do {
        return try look()
      } catch  where mayBeTheMoment(error) {
        continue
      }
    }
    return try look()
  }

  /// Whether the error may be gone at a second look: files come, go and grow meanwhile.
  static func mayBeTheMoment(_ error: LogError) -> Bool {
    switch error.code {
    case .damaged, .missingSegment, .foreignSegment: true
    case .io: error.underlying?.isAbsent == true
    default: false
    }
  }

  /// Hands every event that is new since the last call to `visit`: in order, each once, whole transactions only.
  ///
  /// If `visit` throws, the transaction counts as not handed out and comes again with the next call. `read` may be
  /// called from within, unless segments are merged meanwhile; `poll` may not.
  ///
  /// - Throws: `LogError`, or what `visit` throws; `.replaced` if another folder, or none, is at the path by now, or
  ///   another store's files are in this one.
  /// - Complexity: O(segments) names and sizes, O(new bytes), and the unwritten rest of the last segment when no writer holds the store.
  package func poll(_ visit: (LogEvent) throws -> Void) throws {
    try directory.checkForReading()
    try Self.$polled.withValue(ObjectIdentifier(self)) {
      try cursor.withLock { cursor in
        try cursor.poll(served, visit)
      }
    }
  }

  /// Reads one event that `poll` has handed out, or that counts as handed out.
  ///
  /// - Throws: `.noSuchLSN`, `.compacted`, `.io`; `.damaged`, `.missingSegment`, `.foreignSegment` or `.fromTheFuture` if
  ///   the bytes are not those that were written: then `damage` has it too.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    try resolved(lsn) { (place, table) throws(LogError) in try files.read(lsn, at: place, in: table) }
  }

  /// Reads one event that `poll` has handed out and that was last seen at `hint`, as `Log.read(_:at:)` does.
  package func read(_ lsn: UInt64, at hint: LogPlace) throws(LogError) -> LogEvent {
    try resolved(lsn) { (place, table) throws(LogError) in
      if hint.segmentID == table.identity.segmentID, let event = try files.read(lsn, at: hint, in: table) {
        return event
      }
      return try files.read(lsn, at: place, in: table)
    }
  }

  /// The bytes of the segments of which `poll` has handed out events, as far as they were written then. O(segments).
  package var segmentBytes: UInt64 { served.withLock { $0.tables.reduce(0) { $0 + UInt64($1.end) } } }

  /// The segments of which `poll` has handed out events, each with its LSNs and its bytes as far as they were written then.
  package var segments: [(id: UInt64, lsns: ClosedRange<UInt64>, bytes: UInt64)] {
    served.withLock { served in
      served.tables.map {
        (id: $0.identity.segmentID, lsns: $0.firstLSN...max($0.firstLSN, $0.lastLSN), bytes: UInt64($0.end))
      }
    }
  }

  /// Hands events that `poll` has handed out to `visit` once more, as `Log.forEachEvent` does.
  package func forEachEvent(in lsns: ClosedRange<UInt64>, _ visit: (LogEvent) throws -> Bool) throws {
    try handOut(lsns, upTo: lastLSN, visit)
  }

  func resolved<Result>(
    _ lsn: UInt64, _ body: (SegmentTable.Place, SegmentTable.Address) throws(LogError) -> Result
  ) throws(LogError) -> Result {
    for attempt in 0..<8 {
      let found = try served.withLock {
        served throws(LogError) -> (SegmentTable.Place, SegmentTable.Address)? in
        guard lsn > 0, lsn <= served.lastLSN, !served.tables.isEmpty else {
          throw LogError(.noSuchLSN, "no LSN \(lsn) was read; the last is \(served.lastLSN)", lsns: lsn...lsn)
        }
        let table = served.tables[served.tables.index(of: lsn)]
        // A poll that failed has forgotten where the events of that segment lie.
        guard table.firstLSN <= lsn, lsn <= table.lastLSN else {
          if attempt == 0 { return nil }
          throw LogError(.noSuchLSN, "LSN \(lsn) lies in a segment that could not be read further; poll again")
        }
        return (table.place(of: lsn), table.address)
      }
      guard let (place, table) = found else {
        try relocate(lsn)
        continue
      }
      do throws(LogError) {
        return try body(place, table)
      } catch {
        guard error.underlying?.isAbsent == true else {
          files.damage.add(error, in: table.identity.segmentID)
          throw error
        }
        // Merged or compacted since the last poll: its replacement has it, or no segment has.
        try relocate(lsn)
      }
    }
    throw LogError(.io, "LSN \(lsn) moves faster than it can be read; try again", lsns: lsn...lsn)
  }

  /// Events up to here may have been removed, or put into others, as of the last `poll` of a reader that began with the
  /// first event; 0 if none was.
  package var rewrittenLSN: UInt64 { cursor.withLock { $0.rewrittenLSN } }

  /// Damage that reads have met, in the order in which they met it; at most 64 places.
  package var damage: [LogDamage] { files.damage.all }

  /// Finds out anew where the events lie, for a read of `lsn`. Waits for a poll of another thread.
  private func relocate(_ lsn: UInt64) throws(LogError) {
    guard Self.polled != ObjectIdentifier(self) else {
      throw LogError(
        .io, "LSN \(lsn) moved while a poll is under way; read it again when that has returned", lsns: lsn...lsn)
    }
    try cursor.withLock { cursor throws(LogError) in try cursor.relocate(served) }
  }

  /// The reader whose poll has called this code: a read in it must not wait for that poll.
  @TaskLocal private static var polled: ObjectIdentifier?

  /// What a writer's open would have found at the last `poll`; empty before the first.
  package var recovery: RecoveryReport { served.withLock { $0.report } }

  /// The last LSN that `poll` has handed out.
  package var lastLSN: UInt64 { served.withLock { $0.lastLSN } }

  /// Whether a writer holds the store now.
  package var isHeldByWriter: Bool {
    get throws(LogError) { try directory.isHeld() }
  }

  /// Every frame that verifies, segment by segment, in order of place: up to the sealed end, in the last segment
  /// up to the first that does not verify.
  ///
  /// - Throws: `LogError`, or what `visit` throws.
  package func frames(visit: (FrameView) throws -> Void) throws {
    let list = try Self.again { () throws(LogError) -> SegmentList in
      try Self.list(directory, role: role) { _ in 1 }
    }
    for segment in list.segments {
      // None begins below LSN 1, so none is believed.
      guard let summary = segment.summary else { continue }
      let end = segment.end
      let file = try SegmentFile.open(directory.folder, summary.segmentID)
      defer { file.close() }
      let size = try SegmentFile.size(of: file)
      var scanner = SegmentScanner(
        file: file, identity: summary.identity, from: UInt64(LogFormat.headerPageBytes),
        limit: end.map { min(size, UInt64($0.offset)) } ?? size)
      while case .frame(let header, let start, let offset) = try scanner.next() {
        let body = start + LogFormat.frameHeaderBytes
        try visit(
          FrameView(
            segmentID: summary.segmentID, offset: offset, header: header,
            body: Array(scanner.window[body..<body + header.bodyLength])))
      }
    }
  }
}
