// Where a reader stands, and how it goes on: one pass over the directory, segment by segment.
//
// In a segment that has an end everything up to it is durable; if all of that was handed out, it is not opened. In the last one a promise makes durable what precedes it;
// what follows the last promise is kept back until it is known whether a writer holds the store. A successor may end its
// predecessor before a place that was already read: its copies carry the same LSNs, and only those above the last one
// handed out are handed out. If they are no copies, what was handed out was in memory only, and the reader says so.

import StrandlineSystem

struct ReaderCursor {
  let directory: StoreDirectory
  let environment: SystemEnvironment
  let role: LogRole
  let storeUUID: [UInt8]
  /// What was read of segments, by their IDs.
  private var known = KnownSegments()
  /// The segment that is being read.
  private var current: LogSegment?
  private var walk: SegmentWalk?
  /// It was begun behind events that were handed out, and not because the one before it was read to its end.
  private var isResumed = false
  /// Transactions that were read and are not promised yet.
  private var heldBack: [LogEvent] = []
  /// The last event that was handed out of a segment that ends before it, until the copy of it was met.
  private var uncopied: (position: LogPosition, path: String)?
  /// The event behind which the first poll begins, until that has found it.
  private var match: EndMatch?
  /// Counted over the segments before the current one.
  private var finished = RecoveryReport()

  init(
    directory: StoreDirectory, environment: SystemEnvironment, role: LogRole, storeUUID: [UInt8], known end: LogEnd?
  ) {
    self.directory = directory
    self.environment = environment
    self.role = role
    self.storeUUID = storeUUID
    match = end.map { EndMatch($0) }
  }

  /// The end of the newest segment that was rewritten.
  var rewrittenLSN: UInt64 {
    known.summaries.values.lazy.compactMap { $0.rewrittenEnd?.lastLSN }.max() ?? 0
  }

  typealias Visit = (LogEvent) throws -> Void

  /// Everything new. What seems wrong is read again as long as that gets further, and twice more; a writer that is
  /// faster than all passes leaves the rest to the next poll.
  mutating func poll(_ served: borrowing OrderedMutex<LogReader.Served>, _ visit: Visit) throws {
    var strikes = 0
    var furthest: (UInt64, UInt32) = (0, 0)
    for _ in 0..<16 {
      do {
        try readOnce(served, visit)
        try match?.check()
        match = nil
        return
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
  private mutating func reread(_ served: borrowing OrderedMutex<LogReader.Served>) {
    walk = nil
    heldBack = []
    guard let current else { return }
    served.withLock { served in
      if let last = served.tables.last, last.segmentID == current.segmentID {
        served.tables[served.tables.count - 1] =
          current.summary.map { SegmentTable($0) }
          ?? SegmentTable(path: current.path, identity: current.identity, firstLSN: current.firstLSN)
      }
    }
  }

  private mutating func readOnce(_ served: borrowing OrderedMutex<LogReader.Served>, _ visit: Visit) throws {
    let (list, index) = try locate(served)
    for next in index..<list.segments.count {
      if next > index { begin(list, next, served) }
      if let end = list.segments[next].end {
        try finishCurrent(end, list, served, visit)
      } else {
        try readTail(list, served, visit)
      }
    }
    if let end = list.segments.last?.end {
      try list.checkBound(reached: end.lastLSN)
      setReport(served)
    }
  }

  /// Reads the list of segments, and where in it the next event is. Segments come at the end, and at any place one
  /// may stand for several that were merged: then its events up to the last that was handed out are passed over.
  private mutating func locate(
    _ served: borrowing OrderedMutex<LogReader.Served>
  ) throws(LogError) -> (list: SegmentList, index: Int) {
    let last = served.withLock { $0.lastLSN }
    // From the current segment on all are read: one may end before what was handed out of it, and the next has copies.
    let limit = min(last, current.map { $0.firstLSN - 1 } ?? last) + 1
    let list = try list(believing: limit)
    known = list.known
    match?.look(at: list)
    if let current, let index = list.segments.firstIndex(where: { $0.segmentID == current.segmentID }) {
      refresh(list, upTo: index, served)
      return (list, index)
    }
    // The one that the last event is in, so that none is passed over, not even one without events.
    let index = list.segments.lastIndex { $0.firstLSN <= last } ?? 0
    begin(list, index, served)
    isResumed = last > 0
    return (list, index)
  }

  /// The segments of this store. The files of another one may be in the same folder by now, and nothing of them is handed out.
  ///
  /// - Throws: `.replaced` if they are there.
  private func list(believing limit: UInt64) throws(LogError) -> SegmentList {
    let list: SegmentList
    do throws(LogError) {
      list = try LogReader.list(directory, role: role, known: known) { _ in limit }
    } catch let failure {
      // Files of two stores do not fit together either.
      let found: [UInt8]
      do throws(LogError) { found = try Manifest.read(directory).storeUUID } catch { throw failure }
      throw found == storeUUID ? failure : directory.replacedForReading
    }
    guard list.manifest.storeUUID == storeUUID else { throw directory.replacedForReading }
    return list
  }

  /// Finds the places of what was handed out anew, after segments were replaced. Nothing is handed out.
  mutating func relocate(_ served: borrowing OrderedMutex<LogReader.Served>) throws(LogError) {
    let (list, index) = try locate(served)
    guard walk == nil else { return }
    let last = served.withLock { $0.lastLSN }
    let end = list.segments[index].end
    if let end, passes(end, served) { return }
    var walk = try resume(limit: end.map { UInt64($0.offset) }, list)
    defer { walk.scanner.file.close() }
    reading: while walk.unitEnd.lsn < last {
      switch try walk.next() {
      case .transaction:
        // What was handed out last may be gone from the log; what follows it is handed out at the next poll.
        if walk.unitEnd.lsn > last { heldBack.append(contentsOf: walk.transaction) }
        served.withLock { $0.tables[$0.tables.count - 1].append(walk.places, end: walk.unitEnd.offset) }
      case .other: continue
      case .stop(let fault):
        guard let end else { break reading }
        try walk.checkReached(end, fault)
        break reading
      }
    }
    // Its newest events may have left the log; the segment's range still has their numbers.
    if let end, walk.unitEnd.offset == end.offset { served.withLock { $0.tables[$0.tables.count - 1].finish(end) } }
    self.walk = walk
  }

  private mutating func begin(_ list: SegmentList, _ index: Int, _ served: borrowing OrderedMutex<LogReader.Served>) {
    let segment = list.segments[index]
    current = segment
    isResumed = false
    walk = nil
    heldBack = []
    refresh(list, upTo: index, served)
    let table = SegmentTable(path: segment.path, identity: segment.identity, firstLSN: segment.firstLSN)
    served.withLock { served in
      // A reader that took over where a log had its events begins to walk the last segment itself.
      if served.tables.last?.segmentID == segment.segmentID { served.tables.removeLast() }
      served.tables.append(segment.summary.map { SegmentTable($0) } ?? table)
      served.tables.forgetPlaces(beyond: LogOptions().placeBytesMax)
    }
  }

  /// Whether the current segment, of which nothing was read, has an end and nothing above the last event that was handed
  /// out: then it is not read, and its index says where its events lie.
  private func passes(_ end: SegmentEnd, _ served: borrowing OrderedMutex<LogReader.Served>) -> Bool {
    guard isResumed, walk == nil, uncopied == nil, let current else { return false }
    return served.withLock { served in
      guard end.lastLSN <= served.lastLSN else { return false }
      served.tables[served.tables.count - 1] = SegmentTable(unread: current, end: end)
      return true
    }
  }

  /// Makes the tables those of the segments before `index`, and of that at `index` if it has one.
  private func refresh(_ list: SegmentList, upTo index: Int, _ served: borrowing OrderedMutex<LogReader.Served>) {
    served.withLock { served in
      var tables: [SegmentTable] = []
      var old = served.tables[...]
      for (at, segment) in list.segments[...index].enumerated() {
        while let first = old.first, first.segmentID != segment.segmentID,
          !list.segments.contains(where: { $0.segmentID == first.segmentID })
        {
          old.removeFirst()
        }
        if let first = old.first, first.segmentID == segment.segmentID {
          tables.append(first)
          old.removeFirst()
        } else if at < index, let end = segment.end {
          tables.append(SegmentTable(unread: segment, end: end))
        }
      }
      served.tables = tables
    }
  }

  /// Opens the current segment and goes on where the walk stood.
  private func resume(limit: UInt64?, _ list: SegmentList) throws(LogError) -> SegmentWalk {
    guard let current, let summary = current.summary ?? walk?.summary else {
      preconditionFailure("a segment that is read has a summary")
    }
    let file = try SegmentFile.open(directory.folder, current.segmentID)
    let size = try SegmentFile.size(of: file)
    let limit = limit.map { min($0, size) } ?? size
    let bound = list.bound(of: current.segmentID)
    if let walk { return SegmentWalk(resuming: walk, file: file, limit: limit, bound: bound) }
    return SegmentWalk(summary, file: file, limit: limit, bound: bound)
  }

  /// Reads the rest of a segment whose end is known.
  private mutating func finishCurrent(
    _ end: SegmentEnd, _ list: SegmentList, _ served: borrowing OrderedMutex<LogReader.Served>, _ visit: Visit
  ) throws {
    if passes(end, served) { return }
    if let walk, walk.unitEnd.offset > end.offset {
      // Read further than the successor lets it count: it has copies of what is above.
      guard walk.opening.predecessorLastLSN...walk.unitEnd.lsn ~= end.lastLSN else {
        return try walk.checkReached(end, .order)
      }
      heldBack = []
      if served.withLock({ $0.lastLSN > end.lastLSN }) { uncopied = (walk.unitEnd, walk.path) }
      served.withLock { $0.tables[$0.tables.count - 1].cut(to: end.position) }
      count(walk)
      return
    }
    // A segment whose end was reached at the last pass, and which has had no successor since.
    if let walk, walk.unitEnd.offset == end.offset, walk.seal != nil, heldBack.isEmpty { return }
    var walk = try resume(limit: UInt64(end.offset), list)
    defer { walk.scanner.file.close() }
    while true {
      let step = try walk.next()
      if case .stop(let fault) = step {
        try walk.checkReached(end, fault)
        break
      }
      if case .transaction = step { try keepBack(walk, served) }
    }
    try match?.look(at: walk)
    try handOut(upTo: end.lastLSN, served, visit)
    served.withLock { served in
      served.tables[served.tables.count - 1].finish(end)
      served.lastLSN = max(served.lastLSN, end.lastLSN)
    }
    if list.segments.last?.segmentID == current?.segmentID { self.walk = walk }
    count(walk)
  }

  /// Reads the last segment as far as it goes, and serves what may be served.
  private mutating func readTail(
    _ list: SegmentList, _ served: borrowing OrderedMutex<LogReader.Served>, _ visit: Visit
  ) throws {
    var walk = try resume(limit: nil, list)
    defer { walk.scanner.file.close() }
    var promised = promisedLSN(walk, list)
    reading: while true {
      switch try walk.next() {
      case .transaction: try keepBack(walk, served)
      case .other: break
      case .stop: break reading
      }
      // Handed out as soon as it is promised, so that what is kept back is one group.
      if promisedLSN(walk, list) > promised {
        promised = promisedLSN(walk, list)
        self.walk = walk
        try handOut(upTo: promised, served, visit)
      }
    }
    self.walk = walk
    // Asked after reading: if no writer holds it now, the one that wrote what was read is gone.
    let isHeld = try directory.isHeld()
    let verdict = try TailVerdict.judge(walk, untilUnwritten: isHeld)
    try list.checkBound(reached: walk.unitEnd.lsn)
    try handOut(upTo: isHeld ? max(promised, verdict.promised.lsn) : walk.unitEnd.lsn, served, visit)
    let report = report(walk, isHeld ? nil : verdict)
    served.withLock { served in
      served.report = report
      served.report.lastLSN = served.lastLSN
    }
  }

  /// What of the last segment may be served although a writer holds it: what a frame in it promises, or CONTROL.
  private func promisedLSN(_ walk: SegmentWalk, _ list: SegmentList) -> UInt64 {
    let bound = list.bound(of: walk.summary.segmentID)?.lsn ?? 0
    return bound <= walk.unitEnd.lsn ? max(bound, walk.promised.lsn) : walk.promised.lsn
  }

  /// The report of a log whose last segment is finished.
  private func setReport(_ served: borrowing OrderedMutex<LogReader.Served>) {
    served.withLock { served in
      served.report = finished
      served.report.events = served.lastLSN
      served.report.lastLSN = served.lastLSN
    }
  }

  private mutating func keepBack(
    _ walk: SegmentWalk, _ served: borrowing OrderedMutex<LogReader.Served>
  ) throws(LogError) {
    try checkCopy(walk)
    match?.look(at: walk.unitEnd)
    heldBack.append(contentsOf: walk.transaction)
    served.withLock { served in
      served.tables[served.tables.count - 1].append(walk.places, end: walk.unitEnd.offset)
    }
  }

  /// Compares what was handed out of a segment that ends before it with its copy. A writer whose sync fails leaves in
  /// memory what is not on the medium; if it is gone from there too, the next writer gives the LSNs to other events.
  private mutating func checkCopy(_ walk: SegmentWalk) throws(LogError) {
    guard let (position, path) = uncopied, walk.unitEnd.lsn >= position.lsn else { return }
    guard walk.summary.isRewritten || (walk.unitEnd.lsn == position.lsn && walk.unitEnd.chain == position.chain) else {
      throw LogError(
        .foreignSegment,
        "LSN \(position.lsn) was read from '\(path)', whose writer could not sync it, and the log has another event "
          + "there now; open the reader again", file: path, lsns: position.lsn...position.lsn)
    }
    uncopied = nil
  }

  /// Hands out what was held back, up to an LSN.
  private mutating func handOut(
    upTo limit: UInt64, _ served: borrowing OrderedMutex<LogReader.Served>, _ visit: Visit
  ) throws {
    let last = served.withLock { $0.lastLSN }
    let ready = heldBack.prefix { $0.lsn <= limit }
    for event in ready where event.lsn > last {
      try match?.check()
      try visit(event)
      if event.isLast { served.withLock { $0.lastLSN = event.lsn } }
    }
    heldBack.removeFirst(ready.count)
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
    if let verdict {
      report.copiedEvents = verdict.unitEnd.lsn - verdict.promised.lsn
      report.bytesSetAside = verdict.bytesSetAside
      report.torn = verdict.bytesSetAside > 0
    }
    return report
  }
}
