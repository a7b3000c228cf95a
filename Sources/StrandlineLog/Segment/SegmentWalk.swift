// One segment, read as a history: whole transactions, and how far they are promised.
//
// A scanner knows single frames; this knows what may follow what. Events are dense, a transaction's frames are
// a run from first to last, and a marker promises exactly the unit that ended before it. A frame that verifies
// and does not continue the history is a stop like one that does not verify; a frame of an unknown kind that
// verifies was written by a later version, and that is an error and never a tail.
// Rule: Formats/log.md, "Recovery".

import StrandlineSystem

/// A place between two units of a segment, and the history up to it.
struct LogPosition: Hashable, Sendable {
  /// The last LSN before it; 0 if there is none.
  var lsn: UInt64
  var chain: UInt32
  /// Where the last unit ends.
  var offset: UInt32
}

/// A walk from a segment's opening frame on.
struct SegmentWalk {
  enum Step {
    /// A whole transaction: its events are in `transaction`.
    case transaction
    case marker(MarkerBody)
    /// A frame that is neither.
    case other
    /// The history ends at `scanner.offset`.
    case stop(FrameFault)
  }

  let segmentID: UInt64
  let path: String
  /// The end of the copied frames, which the opening frame promises.
  let openingEnd: UInt32
  private(set) var scanner: SegmentScanner
  /// The end of the last complete unit: X of the recovery rule, when the walk has stopped.
  private(set) var unitEnd: LogPosition
  /// The last unit end that is promised by what was read so far: W, as far as it is at or below X.
  private(set) var promised: LogPosition
  /// The end of the last frame that is a unit's last or a marker.
  private(set) var settledEnd: UInt32
  /// The events of the transaction that was read last, or is being read; empty if they are not collected.
  private(set) var transaction: [LogEvent] = []
  /// How many those are.
  private(set) var transactionCount = 0
  /// Whoever only counts and checks needs no copies of bodies.
  var collectsEvents = true
  private(set) var frames: UInt64 = 0
  private(set) var events: UInt64 = 0
  private(set) var fullFlushLSN: UInt64 = 0
  /// Where a frame's padding is not zero, if that was asked for (decision L19).
  private(set) var paddingFault: UInt32?
  var checksPadding = false
  private var isInside = false
  /// Frames behind `settledEnd`.
  private var unsettledFrames: UInt32 = 0
  private var chain: Chain
  private var framesSinceMarker: UInt32

  /// A walk over `summary`'s file, from behind its opening frame.
  init(_ summary: SegmentSummary, file: any File, limit: UInt64) {
    let end = UInt32(LogFormat.headerPageBytes + LogFormat.openingFrameBytes)
    let opening = summary.opening
    let start = LogPosition(lsn: opening.predecessorLastLSN, chain: opening.chain, offset: end)
    segmentID = summary.segmentID
    path = summary.path
    openingEnd = opening.durableEnd
    scanner = SegmentScanner(
      file: file, path: summary.path, identity: summary.identity, from: UInt64(end), limit: limit)
    unitEnd = start
    promised = start
    settledEnd = end
    chain = Chain(opening.chain)
    frames = 1
    framesSinceMarker = 1
  }

  /// The same walk on a fresh look at the file, from the last unit boundary (or marker) on.
  init(resuming walk: SegmentWalk, file: any File, limit: UInt64) {
    self = walk
    // What was read of an incomplete transaction is read again.
    framesSinceMarker -= unsettledFrames
    frames -= UInt64(unsettledFrames)
    unsettledFrames = 0
    chain = Chain(unitEnd.chain)
    transaction = []
    transactionCount = 0
    isInside = false
    scanner = SegmentScanner(
      file: file, path: path, identity: walk.scanner.identity, from: UInt64(settledEnd), limit: limit)
  }

  /// Reads on to the end of the next transaction, marker or other unit.
  mutating func next() throws(LogError) -> Step {
    if !isInside {
      transactionCount = 0
      if !transaction.isEmpty { transaction.removeAll(keepingCapacity: true) }
    }
    while true {
      let before = scanner.offset
      switch try scanner.next() {
      case .stop(let fault): return .stop(fault)
      case .frame(let header, let start, let offset):
        guard let step = try take(header, at: start, offset: offset) else { continue }
        if case .stop = step { scanner.skip(to: before) }
        return step
      }
    }
  }

  /// One frame that verified; nil in the middle of a transaction.
  private mutating func take(_ header: FrameHeader, at start: Int, offset: UInt32) throws(LogError) -> Step? {
    let end = offset + UInt32(header.frameBytes)
    if checksPadding, paddingFault == nil {
      let padding = start + LogFormat.frameHeaderBytes + header.bodyLength..<start + header.frameBytes
      if !scanner.window.isZero(in: padding) { paddingFault = offset }
    }
    if header.type >= LogFormat.skippableTypes {
      count()
      if !isInside { settle(end) }
      return .other
    }
    guard let type = FrameType(rawValue: header.type) else {
      throw .fromTheFuture(path, at: UInt64(offset), "a frame of type \(header.type)")
    }
    guard header.flags & ~(LogFormat.flagFirst | LogFormat.flagLast) == 0 else {
      throw .fromTheFuture(path, at: UInt64(offset), "a frame with the flags \(header.flags)")
    }
    switch type {
    case .event:
      return takeEvent(header, at: start, offset: offset)
    case .opening:
      return .stop(.order)
    case .marker, .index, .seal:
      guard !isInside, header.lsn == unitEnd.lsn + 1 else { return .stop(.order) }
    }
    guard type == .marker else {
      count()
      unitEnd.offset = end
      settle(end)
      return .other
    }
    guard
      let marker = MarkerBody.decode(
        scanner.window, at: start + LogFormat.frameHeaderBytes, count: header.bodyLength)
    else { throw .fromTheFuture(path, at: UInt64(offset), "a marker of another form") }
    try check(marker, at: offset)
    promised = unitEnd
    fullFlushLSN = marker.fullFlushLSN
    count()
    framesSinceMarker = 0
    settle(end)
    return .marker(marker)
  }

  private mutating func takeEvent(_ header: FrameHeader, at start: Int, offset: UInt32) -> Step? {
    let index = isInside ? transactionCount : 0
    guard header.lsn == unitEnd.lsn + UInt64(index) + 1, Int(header.indexInTransaction) == index,
      header.isFirst == (index == 0)
    else { return .stop(.order) }
    if collectsEvents {
      let body = start + LogFormat.frameHeaderBytes
      transaction.append(
        LogEvent(
          lsn: header.lsn, schema: header.schema, body: Array(scanner.window[body..<body + header.bodyLength]),
          indexInTransaction: header.indexInTransaction, isFirst: header.isFirst, isLast: header.isLast,
          segmentID: segmentID, offset: offset))
    }
    transactionCount += 1
    isInside = !header.isLast
    chain.add(header)
    count()
    guard header.isLast else { return nil }
    events += UInt64(transactionCount)
    let end = offset + UInt32(header.frameBytes)
    unitEnd = LogPosition(lsn: header.lsn, chain: chain.value, offset: end)
    settle(end)
    return .transaction
  }

  private mutating func settle(_ end: UInt32) {
    settledEnd = end
    unsettledFrames = 0
    // The copied frames of a successor were synced before it had its name.
    if end == openingEnd, end == unitEnd.offset { promised = unitEnd }
  }

  private mutating func count() {
    frames += 1
    framesSinceMarker += 1
    unsettledFrames += 1
  }

  /// A marker that verifies and says something else than what precedes it: bytes that were exchanged for others.
  private func check(_ marker: MarkerBody, at offset: UInt32) throws(LogError) {
    guard marker.durableEnd == unitEnd.offset, marker.durableLSN == unitEnd.lsn, marker.chain == unitEnd.chain,
      marker.framesSincePrevious == framesSinceMarker
    else {
      throw .damaged(
        path, at: UInt64(offset)..<UInt64(offset) + UInt64(LogFormat.markerFrameBytes), lsns: nil,
        "a marker promises LSN \(marker.durableLSN) up to byte \(marker.durableEnd), but LSN \(unitEnd.lsn) "
          + "ends before it at byte \(unitEnd.offset)")
    }
  }
}
