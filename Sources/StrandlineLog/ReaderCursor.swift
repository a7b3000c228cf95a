// Where a reader stands, and how it goes on: one look at the directory, segment by segment.
//
// In a segment with a successor everything up to the end that the successor names is durable. In the last one a
// marker makes durable what precedes it; what follows the last marker is kept back until it is known whether a
// writer holds the store. A successor may seal its predecessor before a place that was already read: its copies
// carry the same LSNs, and only those above the last one handed out are handed out.

import StrandlineSystem
import Synchronization

struct ReaderCursor {
  let directory: StoreDirectory
  let environment: SystemEnvironment
  let role: LogRole
  /// The first segment, for the store's identity.
  private var first: SegmentSummary?
  /// The segment that is being read.
  private var current: SegmentSummary?
  private var walk: SegmentWalk?
  /// Transactions that were read and are not promised yet.
  private var heldBack: [LogEvent] = []
  /// Counted over the segments before the current one.
  private var finished = RecoveryReport()

  init(directory: StoreDirectory, environment: SystemEnvironment, role: LogRole) {
    self.directory = directory
    self.environment = environment
    self.role = role
  }

  typealias Visit = (LogEvent) throws -> Void

  /// Everything new. What looks wrong is looked at again as long as that shows something new, and twice more; a
  /// writer that is faster than all looks leaves the rest to the next poll.
  mutating func poll(_ served: borrowing Mutex<LogReader.Served>, _ visit: Visit) throws {
    var strikes = 0
    var furthest: (UInt64, UInt32) = (0, 0)
    for _ in 0..<16 {
      do {
        return try look(served, visit)
      } catch {
        let place = (current?.segmentID ?? 0, walk?.unitEnd.offset ?? 0)
        reread(served)
        guard let error = error as? LogError, LogReader.mayBeTheMoment(error) else { throw error }
        strikes = place > furthest ? 0 : strikes + 1
        if place > furthest { furthest = place }
        if strikes == 2 { throw error }
      }
    }
  }

  /// Forgets what was read of the current segment; what was handed out stays handed out.
  private mutating func reread(_ served: borrowing Mutex<LogReader.Served>) {
    walk = nil
    heldBack = []
    guard let current else { return }
    served.withLock { served in
      if let last = served.tables.last, last.segmentID == current.segmentID {
        served.tables[served.tables.count - 1] = SegmentTable(current)
      }
    }
  }

  private mutating func look(_ served: borrowing Mutex<LogReader.Served>, _ visit: Visit) throws {
    let fileSystem = environment.fileSystem
    guard case .segments(let ids, _) = try directory.contents(fileSystem) else {
      throw LogError(.missingSegment, "the segments of '\(directory.path)' are gone", file: directory.path)
    }
    var following: [SegmentSummary] = []
    for id in ids where id > current?.segmentID ?? 0 {
      let summary = try SegmentSummary.read(fileSystem, directory.segment(id), id)
      try SegmentList.check(
        summary, after: following.last ?? current, first: first ?? following.first, role: role, writing: false)
      following.append(summary)
    }
    if current == nil, !following.isEmpty { begin(following.removeFirst(), served) }
    for next in following {
      try finishCurrent(next.opening, served, visit)
      begin(next, served)
    }
    try readTail(served, visit)
  }

  private mutating func begin(_ summary: SegmentSummary, _ served: borrowing Mutex<LogReader.Served>) {
    if first == nil { first = summary }
    current = summary
    walk = nil
    heldBack = []
    served.withLock { served in
      if !served.tables.isEmpty { served.tables[served.tables.count - 1].seal() }
      served.tables.append(SegmentTable(summary))
    }
  }

  /// Opens the current segment and goes on where the walk stood.
  private func resume(limit: UInt64?) throws(LogError) -> SegmentWalk {
    guard let current else { preconditionFailure("a look begins with a segment") }
    let file = try Recovery.openSegment(environment.fileSystem, current.path)
    let size = try Recovery.sizeOf(file)
    let limit = limit.map { min($0, size) } ?? size
    if let walk { return SegmentWalk(resuming: walk, file: file, limit: limit) }
    return SegmentWalk(current, file: file, limit: limit)
  }

  /// Reads the rest of a segment that has a successor.
  private mutating func finishCurrent(
    _ successor: OpeningBody, _ served: borrowing Mutex<LogReader.Served>, _ visit: Visit
  ) throws {
    let end = successor.predecessorEnd
    if let walk, walk.unitEnd.offset > end {
      // Read further than the successor lets it count: it has copies of what is above.
      guard let current, current.opening.predecessorLastLSN...walk.unitEnd.lsn ~= successor.predecessorLastLSN else {
        try Recovery.checkSealed(walk, .order, successor)
        return
      }
      heldBack = []
      served.withLock { served in
        served.tables[served.tables.count - 1].cut(
          to: LogPosition(lsn: successor.predecessorLastLSN, chain: successor.chain, offset: end))
      }
      count(walk)
      return
    }
    var walk = try resume(limit: UInt64(end))
    defer { walk.scanner.file.close() }
    while true {
      let step = try walk.next()
      if case .stop(let fault) = step {
        try Recovery.checkSealed(walk, fault, successor)
        break
      }
      if case .transaction = step { keepBack(walk, served) }
    }
    try handOut(served, visit)
    count(walk)
  }

  /// Reads the last segment as far as it goes, and serves what may be served.
  private mutating func readTail(_ served: borrowing Mutex<LogReader.Served>, _ visit: Visit) throws {
    var walk = try resume(limit: nil)
    defer { walk.scanner.file.close() }
    reading: while true {
      switch try walk.next() {
      case .transaction: keepBack(walk, served)
      case .marker:
        self.walk = walk
        try handOut(served, visit)
      case .other: break
      case .stop: break reading
      }
    }
    self.walk = walk
    // Asked after reading: if nobody holds it now, whoever wrote what was read is gone.
    let isHeld = try directory.isHeld(environment.fileSystem)
    let verdict = try TailVerdict.judge(walk, untilUnwritten: isHeld)
    if !isHeld || verdict.promised.lsn == walk.unitEnd.lsn { try handOut(served, visit) }
    let report = report(walk, isHeld ? nil : verdict)
    served.withLock { served in
      served.report = report
      served.report.lastLSN = served.lastLSN
    }
  }

  private mutating func keepBack(_ walk: SegmentWalk, _ served: borrowing Mutex<LogReader.Served>) {
    heldBack.append(contentsOf: walk.transaction)
    served.withLock { served in
      served.tables[served.tables.count - 1].append(walk.transaction, end: walk.unitEnd.offset)
    }
  }

  /// Hands out what was held back.
  private mutating func handOut(_ served: borrowing Mutex<LogReader.Served>, _ visit: Visit) throws {
    let last = served.withLock { $0.lastLSN }
    for event in heldBack where event.lsn > last {
      try visit(event)
      if event.isLast { served.withLock { $0.lastLSN = event.lsn } }
    }
    heldBack = []
  }

  private mutating func count(_ walk: SegmentWalk) {
    finished.segments += 1
    finished.frames += walk.frames
    finished.bytesRead += walk.scanner.bytesRead
  }

  private func report(_ walk: SegmentWalk, _ verdict: TailVerdict?) -> RecoveryReport {
    var report = finished
    report.segments += 1
    report.frames += walk.frames
    report.bytesRead += verdict?.bytesRead ?? walk.scanner.bytesRead
    report.events = walk.unitEnd.lsn
    report.tenure = current?.header.tenure ?? 0
    if let verdict {
      report.copiedEvents = verdict.unitEnd.lsn - verdict.promised.lsn
      report.bytesSetAside = verdict.bytesSetAside
      report.torn = verdict.bytesSetAside > 0
    }
    return report
  }
}
