// Reads what verifies out of a damaged log, in its order: every LSN once, and whole transactions apart from parts.
//
// Below a segment's end, or below its furthest promise, everything that verifies counts, whatever lies between. Above
// the promise the rule is that of recovery: units without a gap, and what lies behind the first frame that does not
// verify was never acknowledged; its LSNs may have been given again since. Bytes behind a known end are void too,
// unless the segment that has their copies is lost. Nothing is changed, and no writer can come meanwhile.
// Rule: decision L13.

package import StrandlineSystem

/// A damaged log, for reading what is left of it.
package final class LogSalvage: Sendable {
  package let path: String
  package var role: LogRole { found.role }
  package var storeUUID: [UInt8] { found.storeUUID }
  package var folder: any Folder { directory.folder }
  let directory: StoreDirectory
  let environment: SystemEnvironment
  private let found: SalvageParts
  private let lock: (any FileLock)?

  /// Surveys the log at `path`, and holds its lock, so that no writer opens it, until this object is released.
  ///
  /// - Throws: `.absent`, `.notAStore`, `.held`, `.fromTheFuture`, `.damaged` if no file says whose log it is, `.io`: a
  ///   byte that cannot be read is an error and no gap, because it may be readable the next time.
  package init(at path: String, environment: SystemEnvironment) throws(LogError) {
    let directory = try StorePlace(path, environment.fileSystem).anyFolder()
    self.path = directory.path
    self.directory = directory
    self.environment = environment
    lock = try Self.keepWritersAway(directory)
    found = try SalvageParts.find(directory)
  }

  /// nil if there is no lock file (a copy of a store): no process can hold it then.
  private static func keepWritersAway(_ directory: StoreDirectory) throws(LogError) -> (any FileLock)? {
    let lock: (any FileLock)?
    do {
      guard try directory.folder.kind(of: LogFormat.lockName) == .file else { return nil }
      lock = try directory.folder.lock(LogFormat.lockName, exclusive: false)
    } catch  where error.isAbsent {
      return nil
    } catch {
      throw .system("cannot look whether '\(directory.path)' is being written", error, file: directory.lock)
    }
    guard let lock else {
      throw LogError(
        .held, "'\(directory.path)' is being written by another process; close it there", file: directory.lock)
    }
    return lock
  }

  deinit { lock?.unlock() }

  /// Hands out what verifies.
  ///
  /// - Parameter visit: a transaction's events, and whether members of it are missing.
  /// - Throws: `.fromTheFuture`, `.io`, or what `visit` throws.
  /// - Complexity: O(bytes of the log); memory for one transaction.
  package func read(_ visit: (_ events: [LogEvent], _ isPartial: Bool) throws -> Void) throws -> SalvageReport {
    var reading = SalvageReading(found, directory.folder)
    try reading.run(visit)
    var report = reading.report
    // Every byte verifies, and no open takes it: the files contradict each other. That is damage like any other.
    if !report.isDamaged, let refusal = refusal() {
      if refusal.code == .foreignSegment { throw refusal.notSalvaged }
      report.damages.append(
        SalvageDamage(file: refusal.file ?? path, bytes: 0..<0, words: refusal.message))
      report.isOpenEnded = true
    }
    // What no event depends on is damage all the same: a store that `verify` calls damaged can be made anew.
    if !report.isDamaged {
      for finding in try LogVerifier.verify(directory, environment).findings
      where finding.kind == .damage {
        report.damages.append(
          SalvageDamage(
            file: finding.file, bytes: finding.offset..<max(finding.offset, finding.end), words: finding.message))
      }
    }
    return report
  }

  /// What an ordinary reader says against the log.
  private func refusal() -> LogError? {
    do {
      try LogReader.open(directory, environment: environment).poll { _ in }
      return nil
    } catch {
      guard let error = error as? LogError, error.code != .io else { return nil }
      return error
    }
  }
}

/// One pass.
struct SalvageReading {
  private let found: SalvageParts
  private let folder: any Folder
  private(set) var report = SalvageReport()
  /// Every LSN up to here was handed out, is lost, or was left out by a compaction.
  private var position: UInt64 = 0
  /// Damages since the last event: what they took is known at the next LSN.
  private var pending: [Int] = []
  /// The members so far of the transaction that is being read.
  private var members: [LogEvent] = []
  private var isPartial = false
  /// The first LSN of the transaction whose part was handed out last.
  private var partialStart: UInt64?

  typealias Visit = ([LogEvent], Bool) throws -> Void

  init(_ found: SalvageParts, _ folder: any Folder) {
    self.found = found
    self.folder = folder
    report.damages = found.damages
    report.strays = found.strays
  }

  mutating func run(_ visit: Visit) throws {
    for (index, part) in found.parts.enumerated() {
      let next = index + 1 < found.parts.count ? found.parts[index + 1] : nil
      // Its predecessor's losses end where it begins.
      if let first = part.firstLSN { reach(first, isDense: true, orMissing: part.path) }
      guard let identity = part.identity else {
        addPending(damageIn: part.path)
        if let last = part.entry?.end?.lastLSN { reach(last + 1, isDense: true, orMissing: part.path) }
        continue
      }
      report.segments += 1
      try read(part, identity, before: next, visit)
    }
    if let bound = found.bound, bound.lsn > position {
      reach(bound.lsn + 1, isDense: true, orMissing: found.parts.last?.path ?? "")
    }
    // Behind the last thing that is known, nothing says what was there.
    if let last = found.parts.last, last.identity == nil, last.entry?.end == nil { report.isOpenEnded = true }
    // CONTROL of a sound log may name a segment that was merged away.
    let isTailGone = found.parts.allSatisfy { $0.segmentID < found.bound?.segmentID ?? 0 }
    if !pending.isEmpty || (isTailGone && report.isDamaged) { report.isOpenEnded = true }
    report.lastLSN = position
  }

  // MARK: One segment

  /// Where a segment ends, and with which LSN.
  private struct End {
    var offset: UInt64
    var lsn: UInt64?
    /// Units behind it may be the only copies that are left, or were never promised and never taken back.
    var goesOn: Bool
    var isKnown: Bool
  }

  private mutating func read(
    _ part: SalvagePart, _ identity: SegmentIdentity, before next: SalvagePart?, _ visit: Visit
  ) throws {
    let file = try SegmentFile.open(folder, part.segmentID)
    defer { file.close() }
    let size = try SegmentFile.size(of: file)
    let end = try self.end(of: part, file, identity, before: next)
    let begin = UInt64(LogFormat.headerPageBytes)
    var walk = Walk(path: part.path, segmentID: part.segmentID, chain: Chain(part.opening?.chain ?? 0))
    var scanner = SegmentScanner(file: file, identity: identity, from: begin, limit: min(size, end.offset))
    while scanner.offset < end.offset {
      switch try scanner.next() {
      case .frame(let header, let start, let offset):
        try accept(header, scanner.window, start, offset, &walk, visit)
      case .stop(let fault):
        let at = scanner.offset
        try handOut(visit, isPartial: true)
        let step = UInt64(LogFormat.frameAlignment)
        let frame = try SegmentScanner.firstFrame(
          of: file, identity: identity, in: at + step..<max(at + step, min(size, end.offset)))
        let behind = frame?.offset ?? end.offset
        pending.append(report.damages.count)
        report.damages.append(SalvageDamage(file: part.path, bytes: at..<behind, words: fault.rawValue))
        scanner.skip(to: behind)
      }
    }
    try handOut(visit, isPartial: true)
    // Where LSNs have gaps, only the seal says whether one is a loss.
    if part.isRewritten, walk.sealedChain == walk.chain.value { pending = [] }
    if let last = end.lsn { reach(last + 1, isDense: false, orMissing: part.path) }
    guard end.goesOn, size > end.offset else { return }
    try readBehind(end, size, file, identity, &walk, visit)
  }

  /// The end that a file names, else the furthest promise.
  private func end(
    of part: SalvagePart, _ file: any File, _ identity: SegmentIdentity, before next: SalvagePart?
  ) throws(LogError) -> End {
    let isSuccessorLost = next.map { $0.identity == nil } ?? false
    if part.isRewritten, let opening = part.opening {
      return End(
        offset: UInt64(opening.durableEnd), lsn: opening.rangeLastLSN, goesOn: false, isKnown: true)
    }
    if let opening = next?.opening, opening.predecessorID == part.segmentID {
      return End(
        offset: UInt64(opening.predecessorEnd), lsn: opening.predecessorLastLSN, goesOn: false, isKnown: true)
    }
    if let end = part.entry?.end {
      return End(offset: UInt64(end.offset), lsn: end.lastLSN, goesOn: isSuccessorLost, isKnown: true)
    }
    let page = UInt64(LogFormat.headerPageBytes)
    var end = End(
      offset: max(page, UInt64(part.opening?.durableEnd ?? 0)), lsn: nil, goesOn: true, isKnown: false)
    if let bound = found.bound, bound.segmentID == part.segmentID, UInt64(bound.end) >= end.offset {
      (end.offset, end.lsn) = (UInt64(bound.end), bound.lsn)
    }
    let promise = try Resync.scan(file, identity: identity, from: page).promise
    if let promise, UInt64(promise.offset) >= end.offset {
      (end.offset, end.lsn) = (UInt64(promise.offset), promise.lsn - 1)
    }
    return end
  }

  /// Whole units behind an end, up to the first byte that does not verify.
  private mutating func readBehind(
    _ end: End, _ size: UInt64, _ file: any File, _ identity: SegmentIdentity, _ walk: inout Walk, _ visit: Visit
  ) throws {
    let before = report.events
    var scanner = SegmentScanner(file: file, identity: identity, from: end.offset, limit: size)
    var settled = end.offset
    reading: while true {
      switch try scanner.next() {
      case .frame(let header, let start, let offset):
        // A hole here is no loss: nothing of it was acknowledged. Behind an index or a seal there are no events.
        if header.type == FrameType.event.rawValue, header.lsn != position + 1 || walk.isFinished { break reading }
        try accept(header, scanner.window, start, offset, &walk, visit)
        if members.isEmpty { settled = scanner.offset }
      case .stop:
        break reading
      }
    }
    if let first = members.first {
      position = first.lsn - 1
      members = []
      isPartial = false
    }
    let written = try Resync.scan(file, identity: identity, from: settled).writtenEnd
    report.bytesSetAside += written - min(written, settled)
    if end.isKnown { report.eventsBehindEnds += report.events - before }
  }

  // MARK: Frames

  /// What is known of the segment that is being read.
  private struct Walk {
    let path: String
    let segmentID: UInt64
    /// Over the events that were read.
    var chain: Chain
    /// What its seal says that it is over all of them.
    var sealedChain: UInt32?
    /// Its index or its seal was read.
    var isFinished = false
  }

  private mutating func accept(
    _ header: FrameHeader, _ bytes: [UInt8], _ start: Int, _ offset: UInt32, _ walk: inout Walk, _ visit: Visit
  ) throws {
    guard header.type < LogFormat.skippableTypes else { return }
    guard let type = FrameType(rawValue: header.type) else {
      throw LogError.fromTheFuture(walk.path, at: UInt64(offset), "a frame of type \(header.type)")
    }
    guard header.flags & ~(LogFormat.flagFirst | LogFormat.flagLast | LogFormat.flagSynced) == 0 else {
      throw LogError.fromTheFuture(walk.path, at: UInt64(offset), "a frame with the flags \(header.flags)")
    }
    let body = start + LogFormat.frameHeaderBytes
    // A frame of the log itself that is out of place says nothing; what is missing for it is told by the LSNs.
    let isInPlace = !header.isFirst && !header.isLast && header.schema == 0 && header.indexInTransaction == 0
    guard type == .event || isInPlace else { return }
    switch type {
    case .event: break
    case .opening: return
    case .index:
      guard IndexBody.decode(bytes, at: body, count: header.bodyLength) != nil else {
        throw LogError.fromTheFuture(walk.path, at: UInt64(offset), "an index of another form")
      }
      walk.isFinished = true
      return
    case .seal:
      guard let seal = SealBody.decode(bytes, at: body, count: header.bodyLength) else {
        throw LogError.fromTheFuture(walk.path, at: UInt64(offset), "a seal of another form")
      }
      walk.sealedChain = seal.contentChain
      walk.isFinished = true
      return
    }
    walk.chain.add(header)
    // Handed out already: a copy, or what a merge has left behind.
    guard header.lsn > position, header.lsn < LogFormat.numberMax else { return }
    // Between two members there is no damage, or the first of them would have been handed out at it.
    let isNext =
      members.last.map { header.indexInTransaction == $0.indexInTransaction + 1 && !header.isFirst }
      ?? (header.isFirst && header.indexInTransaction == 0)
    if !isNext {
      try handOut(visit, isPartial: true)
      isPartial = !header.isFirst
    }
    reach(header.lsn, isDense: false, orMissing: walk.path)
    position = header.lsn
    members.append(LogEvent(header, bytes, at: start, segmentID: walk.segmentID, offset: offset))
    if header.isLast { try handOut(visit, isPartial: isPartial) }
  }

  /// Hands out the transaction so far.
  private mutating func handOut(_ visit: Visit, isPartial: Bool) throws {
    guard let first = members.first else { return }
    let events = members
    members = []
    self.isPartial = false
    if isPartial {
      let start = first.lsn - min(first.lsn, UInt64(first.indexInTransaction))
      if start != partialStart { report.partialTransactions += 1 }
      partialStart = start
      report.partialEvents += UInt64(events.count)
    } else {
      report.transactions += 1
      report.events += UInt64(events.count)
    }
    try visit(events, isPartial)
  }

  // MARK: What is lost

  /// Every LSN below `lsn` should have been seen by now.
  ///
  /// - Parameters:
  ///   - isDense: a gap is a loss even where no damage was seen. Between frames that verify there is none but what a
  ///     compaction left.
  ///   - orMissing: the file that a gap without damage is noted for.
  private mutating func reach(_ lsn: UInt64, isDense: Bool, orMissing path: String) {
    defer {
      pending = []
      position = max(position, lsn - 1)
    }
    guard lsn > position + 1, isDense || !pending.isEmpty else { return }
    let range = position + 1...lsn - 1
    if let last = report.lost.last, last.upperBound + 1 == range.lowerBound {
      report.lost[report.lost.count - 1] = last.lowerBound...range.upperBound
    } else {
      report.lost.append(range)
    }
    if let first = pending.first {
      report.damages[first].lsns = range
    } else {
      report.damages.append(
        SalvageDamage(file: path, bytes: 0..<0, lsns: range, words: "events that precede or end it are missing"))
    }
  }

  /// A file that cannot be read at all takes part in what the next LSN bounds.
  private mutating func addPending(damageIn path: String) {
    if let index = report.damages.firstIndex(where: { $0.file == path }) { pending.append(index) }
  }
}
