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

/// An event, and where it lies.
struct EventPlace: Hashable, Sendable {
  var lsn: UInt64
  var offset: UInt32
}

/// A walk from a segment's opening frame on.
struct SegmentWalk {
  enum Step {
    /// A whole transaction: its places are in `places`, its events in `transaction` if they are collected.
    case transaction
    case marker(MarkerBody)
    /// A frame that is neither.
    case other
    /// The history ends at `scanner.offset`.
    case stop(FrameFault)
  }

  let segmentID: UInt64
  let path: String
  let opening: OpeningBody
  /// The end of what the opening frame promises; 0 if it promises nothing.
  var openingEnd: UInt32 { opening.durableEnd }
  /// What CONTROL promises of this segment.
  let bound: SegmentBound?
  private(set) var scanner: SegmentScanner
  /// The end of the last complete unit: X of the recovery rule, when the walk has stopped.
  private(set) var unitEnd: LogPosition
  /// The last unit end that is promised by what was read so far: W, as far as it is at or below X.
  private(set) var promised: LogPosition
  /// The end of the last frame that is a unit's last or a marker.
  private(set) var settledEnd: UInt32
  /// The places of the transaction that was read last, or is being read.
  private(set) var places: [EventPlace] = []
  /// Its events, if they are collected.
  private(set) var transaction: [LogEvent] = []
  /// Whether somebody wants the events; else they are checked and not kept.
  var collectsEvents = true
  private(set) var frames: UInt64 = 0
  private(set) var events: UInt64 = 0
  private(set) var fullFlushLSN: UInt64 = 0
  /// The last frame of a segment that was brought to its end.
  private(set) var seal: SealBody?
  /// The places that its index frame names, and where that begins.
  private(set) var index: (body: IndexBody, offset: UInt32, end: UInt32)?
  /// Where a frame's padding is not zero, if that was asked for (decision L19).
  private(set) var paddingFault: UInt32?
  var checksPadding = false
  private var isInside = false
  /// Frames behind `settledEnd`.
  private var unsettledFrames: UInt32 = 0
  private var chain: Chain
  private var framesSinceMarker: UInt32

  /// A walk over `summary`'s file, from behind its opening frame.
  init(_ summary: SegmentSummary, file: any File, limit: UInt64, bound: SegmentBound? = nil) {
    let end = UInt32(LogFormat.headerPageBytes + LogFormat.openingFrameBytes)
    opening = summary.opening
    self.bound = bound
    let start = LogPosition(lsn: opening.predecessorLastLSN, chain: opening.chain, offset: end)
    segmentID = summary.segmentID
    path = summary.path
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
    places = []
    isInside = false
    scanner = SegmentScanner(
      file: file, path: path, identity: walk.scanner.identity, from: UInt64(settledEnd), limit: limit)
  }

  /// Reads on to the end of the next transaction, marker or other unit.
  mutating func next() throws(LogError) -> Step {
    if !isInside {
      transaction.removeAll(keepingCapacity: true)
      places.removeAll(keepingCapacity: true)
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
    // Behind the seal there is at most the promise of its own group.
    guard seal == nil || (type == .marker && opening.kind == .live) else { return .stop(.order) }
    switch type {
    case .event:
      return takeEvent(header, at: start, offset: offset)
    case .opening:
      return .stop(.order)
    case .marker, .index, .seal:
      guard !isInside, header.lsn == nextLSN(type) else { return .stop(.order) }
    }
    let body = start + LogFormat.frameHeaderBytes
    switch type {
    case .index:
      guard let decoded = IndexBody.decode(scanner.window, at: body, count: header.bodyLength) else {
        throw .fromTheFuture(path, at: UInt64(offset), "an index of another form")
      }
      index = (decoded, offset, end)
      count()
      unitEnd.offset = end
      settle(end)
      return .other
    case .seal:
      guard let decoded = SealBody.decode(scanner.window, at: body, count: header.bodyLength) else {
        throw .fromTheFuture(path, at: UInt64(offset), "a seal of another form")
      }
      try check(decoded, at: offset, end: end)
      seal = decoded
      count()
      unitEnd.offset = end
      if opening.kind == .rewritten {
        unitEnd = LogPosition(lsn: decoded.lastLSN, chain: opening.rangeChain, offset: end)
      }
      settle(end)
      return .other
    case .event, .opening, .marker:
      break
    }
    guard let marker = MarkerBody.decode(scanner.window, at: body, count: header.bodyLength) else {
      throw .fromTheFuture(path, at: UInt64(offset), "a marker of another form")
    }
    guard opening.kind == .live else { return .stop(.order) }
    try check(marker, at: offset)
    promised = unitEnd
    fullFlushLSN = marker.fullFlushLSN
    count()
    framesSinceMarker = 0
    settle(end)
    return .marker(marker)
  }

  /// Frames that are no events carry the LSN that the next event has.
  private func nextLSN(_ type: FrameType) -> UInt64 {
    opening.kind == .rewritten ? opening.rangeLastLSN + 1 : unitEnd.lsn + 1
  }

  private mutating func takeEvent(_ header: FrameHeader, at start: Int, offset: UInt32) -> Step? {
    let index = isInside ? places.count : 0
    guard isNext(header.lsn), Int(header.indexInTransaction) == index, header.isFirst == (index == 0) else {
      return .stop(.order)
    }
    places.append(EventPlace(lsn: header.lsn, offset: offset))
    if collectsEvents {
      transaction.append(LogEvent(header, scanner.window, at: start, segmentID: segmentID, offset: offset))
    }
    isInside = !header.isLast
    chain.add(header)
    count()
    guard header.isLast else { return nil }
    events += UInt64(places.count)
    let end = offset + UInt32(header.frameBytes)
    unitEnd = LogPosition(lsn: header.lsn, chain: chain.value, offset: end)
    settle(end)
    return .transaction
  }

  /// Without gaps in what a writer appended; rising in what was copied out of it.
  private func isNext(_ lsn: UInt64) -> Bool {
    let last = isInside ? places.last?.lsn ?? unitEnd.lsn : unitEnd.lsn
    switch opening.kind {
    case .live: return lsn == last + 1
    case .rewritten: return lsn > last && lsn <= opening.rangeLastLSN
    }
  }

  private mutating func settle(_ end: UInt32) {
    settledEnd = end
    unsettledFrames = 0
    // The copied frames of a successor were synced before it had its name.
    if end == openingEnd, end == unitEnd.offset { promised = unitEnd }
    if let bound, end == bound.end, end == unitEnd.offset, unitEnd.lsn == bound.lsn { promised = unitEnd }
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

  /// A seal that verifies and says something else than what precedes it.
  private func check(_ seal: SealBody, at offset: UInt32, end: UInt32) throws(LogError) {
    let lastLSN = opening.kind == .rewritten ? opening.rangeLastLSN : unitEnd.lsn
    guard seal.firstLSN == opening.firstLSN, seal.lastLSN == lastLSN, seal.events == events,
      seal.contentChain == chain.value, seal.end == end, let index, index.offset == seal.indexOffset,
      index.end == offset
    else {
      throw .damaged(
        path, at: UInt64(offset)..<UInt64(end), lsns: nil,
        "its seal says that \(seal.events) events up to LSN \(seal.lastLSN) precede it, and \(events) up to LSN "
          + "\(lastLSN) do")
    }
  }
}

/// A promise that stands outside the segment.
struct SegmentBound: Hashable, Sendable {
  var end: UInt32
  var lsn: UInt64
}
