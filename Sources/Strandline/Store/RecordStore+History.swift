// What the log still knows: of one record, and of all records since a position. Both read the log in its order, a page
// at a time, and take no lock of the writer's.
//
// Compaction removes events and leaves their numbers, so a reader sees by a gap that something is missing. In a record's
// history that is said beside the page. After a position it is an error: an app that keeps something in step would miss a
// deletion, of which compaction leaves the hash of the name alone.

import StrandlineLog
import StrandlineSystem

/// A page of a record's history.
public struct RecordHistory: Hashable, Sendable {
  /// The changes, the oldest first.
  public var changes: [RecordChange]
  /// What `history(of:after:)` takes for the next page; nil if this is the last.
  public var next: LSN?
  /// Up to this event compaction has removed what nothing needs any more, so that changes of the record may be missing
  /// before it. Nil if the log has every event that the page was made from.
  public var compactedLSN: LSN?
}

/// A page of the changes after a position.
public struct ChangePage: Hashable, Sendable {
  /// The changes, in the order of the log.
  public var changes: [RecordChange]
  /// Where the page ends: the position for the next one. An app keeps it beside what it made of the changes.
  public var position: LogPosition
  /// Whether more was durable when the page was read.
  public var hasMore: Bool
}

extension RecordStore {
  /// What the log still knows of a record, the oldest first: what the app did, what the server said, and what became of
  /// it. Of a name that was deleted too.
  ///
  /// The history is that of the log, and compaction shortens it: it keeps what a record holds now, what is owed to the
  /// server, and that a name was deleted.
  ///
  /// A page has the changes after the event `lsn`, which is `RecordHistory.next` of the page before, and at most `limit` of
  /// them.
  ///
  /// - Throws: `StrandlineError`: `.invalidValue` for a limit below 1; `.damaged` if the log cannot be read further,
  ///   `.fromTheFuture`, `.io`, `.closed`.
  /// - Complexity: O(bytes of the log after `lsn`); memory for the page.
  public func history(
    of id: RecordID, after lsn: LSN = .zero, limit: Int = 1_000
  ) throws -> RecordHistory {
    try CallSite.unnamed.run("reading the history of record '\(id)'") {
      try requireOpen()
      try check(limit: limit)
      let id = canonical(id)
      let (durable, sync, deletion) = try projections.withLock { (state) throws(StrandlineError) in
        let durable = min(source.durableLSN, state.appliedLSN)
        return (durable, state.sync, try state.deletion(id, asOf: durable))
      }
      var reading = HistoryReading(of: id, after: lsn, limit: limit, sync, deletion)
      try source.scan(after: lsn, upTo: durable) { try reading.take($0) }
      return reading.page(upTo: durable)
    }
  }

  /// The changes of records after a position, a page of them, in the order of the log.
  ///
  /// An app that keeps something of its own in step begins with a view, keeps `StoreView.position` beside what it made of
  /// the records, and goes on with the changes since then. When the position has expired, it begins with a view again.
  ///
  /// The position may be that of a page, a view, a receipt or a change, also from before a relaunch; `.start` is the place
  /// before the first event. A page ends with the transaction in which it has `limit` changes, or 4 MiB of them, so it may
  /// have as many more as one transaction has.
  ///
  /// - Throws: `StrandlineError`: `.positionExpired` if compaction has removed events after the position;
  ///   `.noSuchRecord` if the position is not of this log: the store was restored from a backup, or is another one;
  ///   `.invalidValue` for a limit below 1; `.damaged`, `.fromTheFuture` and `.io` if the next transaction cannot be
  ///   read; `.closed`.
  /// - Complexity: O(bytes of the page).
  public func changes(
    since position: LogPosition, limit: Int = 1_000
  ) throws -> ChangePage {
    try CallSite.unnamed.run("reading the changes since event \(position.lsn)") {
      try requireOpen()
      try check(limit: limit)
      // A store that is open for reading reads an event before it knows whose it is.
      let (durable, sync) = projections.withLock { (min(source.durableLSN, $0.appliedLSN), $0.sync) }
      try check(position, in: sync, upTo: durable)
      var reading = ChangeReading(since: position, limit: limit, sync)
      do {
        try source.scan(after: position.lsn, upTo: durable) { try reading.take($0) }
        try reading.checkReached(durable)
      } catch  where reading.hasTransaction && !(.positionExpired ~= error) {
        // What precedes damage is handed out; the next page begins at it.
      }
      return reading.page(upTo: durable)
    }
  }

  /// Checks the limit of a page.
  func check(limit: Int) throws(StrandlineError) {
    guard limit < 1 else { return }
    throw StrandlineError(.invalidValue, "the limit of a page is \(limit); it must be at least 1")
  }

  /// Checks that a position is of this log.
  ///
  /// - Throws: `.noSuchRecord`.
  func check(_ position: LogPosition, in sync: SyncState, upTo durable: LSN) throws(StrandlineError) {
    // Every log has the place before the first event.
    if position.lsn == .zero || sync.owns(position.lsn, tenure: position.tenure, upTo: durable) { return }
    throw StrandlineError(
      .noSuchRecord,
      "position \(position.lsn) was not given by the log at '\(path)': "
        + "the store was restored from a backup, or is another one")
  }
}

extension EventSource {
  /// Hands the durable events after `lsn` to `visit`, in order, until that returns false. What compaction removed is left
  /// out.
  func scan(after lsn: LSN, upTo limit: LSN, _ visit: (LogEvent) throws -> Bool) throws {
    guard lsn < limit else { return }
    switch self {
    case .writer(let log): try Self.scan(lsn.rawValue + 1...limit.rawValue, log, visit)
    case .reader(let reader): try reader.forEachEvent(in: lsn.rawValue + 1...limit.rawValue, visit)
    }
  }

  /// A scan that began before a suspension goes on where the suspended store reads.
  private static func scan(
    _ lsns: ClosedRange<UInt64>, _ log: Log, _ visit: (LogEvent) throws -> Bool
  ) throws {
    var next = lsns.lowerBound
    var isVisiting = false
    do {
      try log.forEachEvent(in: lsns) { found in
        next = found.lsn + 1
        isVisiting = true
        let goesOn = try visit(found)
        isVisiting = false
        return goesOn
      }
    } catch {
      guard !isVisiting, let reader = log.readerAfterClose else { throw error }
      guard next <= lsns.upperBound else { return }
      try reader.forEachEvent(in: next...lsns.upperBound, visit)
    }
  }
}

/// The reading of one page of a record's history.
private struct HistoryReading {
  private let id: RecordID
  /// The identity as events of one record hold it, behind the header.
  private let key: [UInt8]
  private let limit: Int
  private let first: LSN
  private let positions: PositionFinder
  /// The deletion that the store knows of the name, until the event that says so was met or its place was passed.
  private var deletion: DeletionEntry?
  private var changes: [RecordChange] = []
  private var compacted: LSN = .zero
  private var last: LSN
  private var isFull = false

  init(of id: RecordID, after lsn: LSN, limit: Int, _ sync: SyncState, _ deletion: DeletionEntry?) {
    self.id = id
    var writer = ByteWriter()
    _ = RecordID(id, &writer)
    key = writer.bytes
    self.limit = limit
    first = lsn
    last = lsn
    positions = PositionFinder(sync)
    self.deletion = deletion.flatMap { $0.lsn > lsn ? $0 : nil }
  }

  /// Takes in an event; false when the page is full.
  mutating func take(_ found: LogEvent) throws(StrandlineError) -> Bool {
    let lsn = LSN(found.lsn)
    let kind = EventCodec.kind(ofBody: found.body)
    let isOurs = isOfRecord(found.body)
    // Compaction packs a deletion into an event with its number or a later one.
    if let deletion, lsn > deletion.lsn || (lsn == deletion.lsn && !isOurs) { addPackedDeletion(deletion) }
    if !isFull {
      if lsn.rawValue > last.rawValue + 1 { compacted = LSN(lsn.rawValue - 1) }
      if let kind, kind.isPacked { compacted = lsn }
      if isOurs { try add(found.decoded(), at: lsn) }
      if !isFull { last = lsn }
    }
    return !isFull
  }

  private mutating func add(_ event: Event, at lsn: LSN) throws(StrandlineError) {
    if lsn == deletion?.lsn { deletion = nil }
    if let change = try RecordChange(event, at: positions.position(of: lsn)) {
      add(change)
    }
  }

  private mutating func addPackedDeletion(_ known: DeletionEntry) {
    deletion = nil
    compacted = max(compacted, known.lsn)
    let position = positions.position(of: known.lsn)
    add(
      known.isLocal
        ? RecordChange(packed: .deleted, of: id, at: position, by: .local)
        : RecordChange(packed: .fetchedDeletion, of: id, at: position, by: .server))
  }

  /// A page that is full ends with this change, also in the middle of a pack.
  private mutating func add(_ change: RecordChange) {
    changes.append(change)
    last = max(last, change.position.lsn)
    isFull = changes.count >= limit
  }

  /// Whether an event is of the record, and of it alone.
  private func isOfRecord(_ body: [UInt8]) -> Bool {
    let start = PayloadHeader.bytes
    guard let kind = EventCodec.kind(ofBody: body), kind.isOfOneRecord, body.count >= start + key.count else {
      return false
    }
    return body[start..<start + key.count].elementsEqual(key)
  }

  /// The page, when all of it was read.
  mutating func page(upTo durable: LSN) -> RecordHistory {
    // The newest events have left the log.
    if !isFull, last < durable { compacted = durable }
    return RecordHistory(
      changes: changes, next: isFull && last < durable ? last : nil, compactedLSN: compacted == .zero ? nil : compacted)
  }
}

extension EventKind {
  /// Whether an event of this kind begins with the record that it is of.
  var isOfOneRecord: Bool {
    switch self {
    case .saved, .deleted, .settled, .merged, .fetchedSave, .fetchedDelete, .blocked, .held, .released, .discarded,
      .superseded, .refused, .conflicted:
      true
    default: false
    }
  }
}

/// Events in a row after a position, none of which may be missing.
struct EventRun {
  private let start: LogPosition
  /// The last event that was taken in.
  private(set) var last: LSN

  init(since position: LogPosition) {
    start = position
    last = position.lsn
  }

  /// Takes in an event.
  ///
  /// - Throws: `.positionExpired` if compaction has removed events before it, or packed others into it.
  mutating func take(_ lsn: LSN, _ kind: EventKind?) throws(StrandlineError) {
    guard lsn.rawValue == last.rawValue + 1, kind?.isPacked != true else {
      throw expired(upTo: LSN(max(lsn.rawValue - 1, last.rawValue + 1)))
    }
    last = lsn
  }

  /// - Throws: `.positionExpired` if the events up to `end`, which is durable, are not there.
  func checkReached(_ end: LSN) throws(StrandlineError) { if last < end { throw expired(upTo: end) } }

  private func expired(upTo end: LSN) -> StrandlineError {
    StrandlineError(
      .positionExpired,
      "events after \(last) were removed by a compaction, so not all that changed since position \(start) can be told; "
        + "begin with a view of the store, and go on after its position", lsns: LSN(last.rawValue + 1)...end)
  }
}

/// The reading of one page of changes.
private struct ChangeReading {
  private static let bytesMax = 4 << 20
  private let start: LogPosition
  private let limit: Int
  private let positions: PositionFinder
  private var run: EventRun
  private var changes: [RecordChange] = []
  private var bytes = 0
  /// Up to the end of the last whole transaction.
  private var whole: (changes: Int, position: LogPosition)

  private var isFull: Bool { changes.count >= limit || bytes >= Self.bytesMax }

  init(since position: LogPosition, limit: Int, _ sync: SyncState) {
    start = position
    self.limit = limit
    positions = PositionFinder(sync)
    run = EventRun(since: position)
    whole = (0, position)
  }

  /// Takes in an event; false when the page is full.
  mutating func take(_ found: LogEvent) throws(StrandlineError) -> Bool {
    let lsn = LSN(found.lsn)
    try run.take(lsn, EventCodec.kind(ofBody: found.body))
    if let change = try RecordChange(found.decoded(), at: positions.position(of: lsn)) {
      changes.append(change)
      bytes += found.body.count
    }
    guard found.isLast else { return true }
    whole = (changes.count, positions.position(of: lsn))
    return !isFull
  }

  /// - Throws: `.positionExpired` if events are missing up to `durable`.
  func checkReached(_ durable: LSN) throws(StrandlineError) { if !isFull { try run.checkReached(durable) } }

  var hasTransaction: Bool { whole.position != start }

  /// The page, up to the end of the last whole transaction.
  mutating func page(upTo durable: LSN) -> ChangePage {
    changes.removeLast(changes.count - whole.changes)
    return ChangePage(changes: changes, position: whole.position, hasMore: whole.position.lsn < durable)
  }
}
