// One segment, read as a history: whole transactions, and how far they are promised.
//
// A scanner knows single frames; this knows what may follow what. Events are dense, and a transaction's frames are a
// run from first to last. A frame with the flag `synced` promises everything before it. A frame that verifies and does
// not continue the history is a stop like one that does not verify; a frame of an unknown kind that verifies was
// written by a later version, and that is an error and never a tail. Rule: Formats/log.md, "Recovery".

import StrandlineSystem

/// A place between two units of a segment, and the history up to it.
struct LogPosition: Hashable, Sendable {
  /// The last LSN before it; 0 if there is none.
  var lsn: UInt64
  var chain: UInt32
  /// Where the last unit ends.
  var offset: UInt32

  /// The same as an end.
  var end: SegmentEnd { SegmentEnd(offset: offset, lastLSN: lsn, chain: chain) }
}

extension SegmentEnd {
  var position: LogPosition { LogPosition(lsn: lastLSN, chain: chain, offset: offset) }
}

/// An event of a log, and the chain up to it: what is made from a log and kept beside it names the last event that it has
/// by this, and so never goes on with another history (decision L6).
package struct LogEnd: Hashable, Sendable {
  /// 0 before the first event.
  package var lsn: UInt64
  package var chain: UInt32

  package init(lsn: UInt64, chain: UInt32) {
    self.lsn = lsn
    self.chain = chain
  }
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
    /// Another unit.
    case other
    /// The history ends at `scanner.offset`.
    case stop(FrameFault)
  }

  let summary: SegmentSummary
  /// What CONTROL promises of this segment, if that is ahead.
  private(set) var bound: LogBound?
  private(set) var scanner: SegmentScanner
  /// The end of the last complete unit: X of the recovery rule, when the walk has stopped.
  private(set) var unitEnd: LogPosition
  /// The last unit end that is promised by what was read so far: W, as far as it is at or below X.
  private(set) var promised: LogPosition
  /// The places of the transaction that was read last, or is being read.
  private(set) var places: [EventPlace] = []
  /// Its events, if they are collected.
  private(set) var transaction: [LogEvent] = []
  /// Whether the caller wants the events; else they are checked and not kept.
  var collectsEvents = true
  /// Frames that verified, up to `unitEnd`.
  private(set) var frames: UInt64 = 1
  /// The last frame of a finished segment.
  private(set) var seal: SealBody?
  /// The places that its index frame names, and where that lies.
  private(set) var index: (body: IndexBody, range: Range<UInt32>)?
  /// Where a frame's padding is not zero, if that was asked for (decision L19).
  private(set) var paddingFault: UInt32?
  var checksPadding = false
  /// A promise of the opening frame or of CONTROL that names no unit's end.
  private(set) var missedPromise: UInt32?
  private var isInside = false
  /// Frames behind `unitEnd`.
  private var unfinishedFrames: UInt64 = 0
  private var chain: Chain

  var path: String { summary.path }
  var opening: OpeningBody { summary.opening }

  /// A walk over `summary`'s file, from behind its opening frame.
  init(_ summary: SegmentSummary, file: any File, limit: UInt64, bound: LogBound? = nil) {
    let end = UInt32(LogFormat.openingEnd)
    self.summary = summary
    self.bound = bound
    unitEnd = LogPosition(lsn: summary.opening.predecessorLastLSN, chain: summary.opening.chain, offset: end)
    promised = unitEnd
    scanner = SegmentScanner(file: file, identity: summary.identity, from: UInt64(end), limit: limit)
    chain = Chain(summary.opening.chain)
    if let bound, bound.end < end || (bound.end == end && bound.lsn != unitEnd.lsn) { missedPromise = bound.end }
  }

  /// The same walk on a fresh look at the file and at CONTROL, from the last unit's end on.
  init(resuming walk: SegmentWalk, file: any File, limit: UInt64, bound: LogBound?) {
    self = walk
    // What was read of an incomplete transaction is read again.
    unfinishedFrames = 0
    chain = Chain(unitEnd.chain)
    transaction = []
    places = []
    isInside = false
    self.bound = bound.flatMap { $0.end > unitEnd.offset ? $0 : nil }
    scanner = SegmentScanner(file: file, identity: summary.identity, from: UInt64(unitEnd.offset), limit: limit)
  }

  /// Reads on to the end of the next unit.
  mutating func next() throws(LogError) -> Step {
    transaction.removeAll(keepingCapacity: true)
    places.removeAll(keepingCapacity: true)
    while true {
      let before = scanner.offset
      switch try scanner.next() {
      case .stop(let fault): return .stop(fault)
      case .frame(let header, let start, let offset):
        guard let step = try accept(header, at: start, offset: offset) else { continue }
        if case .stop = step { scanner.skip(to: before) }
        return step
      }
    }
  }

  /// Takes one frame that verified; nil in the middle of a transaction.
  private mutating func accept(_ header: FrameHeader, at start: Int, offset: UInt32) throws(LogError) -> Step? {
    if checksPadding, paddingFault == nil {
      let padding = start + LogFormat.frameHeaderBytes + header.bodyLength..<start + header.frameBytes
      if !scanner.window.isZero(in: padding) { paddingFault = offset }
    }
    // Behind a seal nothing follows; what is synced begins a group, and a rewritten segment has none.
    guard seal == nil, !header.isSynced || (!isInside && !summary.isRewritten) else { return .stop(.order) }
    if header.type >= LogFormat.skippableTypes {
      unfinishedFrames += 1
      guard !isInside else { return nil }
      return acceptUnit(header, at: offset)
    }
    guard let type = FrameType(rawValue: header.type) else {
      throw .fromTheFuture(path, at: UInt64(offset), "a frame of type \(header.type)")
    }
    guard header.flags & ~(LogFormat.flagFirst | LogFormat.flagLast | LogFormat.flagSynced) == 0 else {
      throw .fromTheFuture(path, at: UInt64(offset), "a frame with the flags \(header.flags)")
    }
    if type == .event { return acceptEvent(header, at: start, offset: offset) }
    guard !isInside, header.lsn == nextLSN, header.flags & (LogFormat.flagFirst | LogFormat.flagLast) == 0,
      header.schema == 0, header.indexInTransaction == 0
    else { return .stop(.order) }
    let body = start + LogFormat.frameHeaderBytes
    switch type {
    case .event, .opening:
      return .stop(.order)
    case .index:
      guard index == nil else { return .stop(.order) }
      guard let decoded = IndexBody.decode(scanner.window, at: body, count: header.bodyLength) else {
        throw .fromTheFuture(path, at: UInt64(offset), "an index of another form")
      }
      index = (decoded, offset..<offset + UInt32(header.frameBytes))
    case .seal:
      guard !header.isSynced else { return .stop(.order) }
      guard let decoded = SealBody.decode(scanner.window, at: body, count: header.bodyLength) else {
        throw .fromTheFuture(path, at: UInt64(offset), "a seal of another form")
      }
      try check(decoded, at: offset, end: offset + UInt32(header.frameBytes))
      seal = decoded
    }
    unfinishedFrames += 1
    return acceptUnit(header, at: offset)
  }

  /// Whether a rewritten segment, read up to its seal, has less than its writers appended: something was left out.
  var isCompacted: Bool {
    guard let seal, let end = summary.rewrittenEnd else { return false }
    return seal.contentChain != end.chain
  }

  /// The LSN that a frame carries that is no event.
  private var nextLSN: UInt64 { (summary.rewrittenEnd?.lastLSN ?? unitEnd.lsn) + 1 }

  private mutating func acceptEvent(_ header: FrameHeader, at start: Int, offset: UInt32) -> Step? {
    let number = isInside ? places.count : 0
    // Between index and seal, and behind them, there are no events.
    guard index == nil, isNext(header.lsn), Int(header.indexInTransaction) == number,
      header.isFirst == (number == 0)
    else { return .stop(.order) }
    places.append(EventPlace(lsn: header.lsn, offset: offset))
    if collectsEvents {
      transaction.append(
        LogEvent(header, scanner.window, at: start, segmentID: summary.segmentID, offset: offset))
    }
    if header.isSynced { promised = unitEnd }
    isInside = !header.isLast
    chain.add(header)
    unfinishedFrames += 1
    guard header.isLast else { return nil }
    end(unit: LogPosition(lsn: header.lsn, chain: chain.value, offset: offset + UInt32(header.frameBytes)))
    return .transaction
  }

  /// A unit that is a frame of its own and no event.
  private mutating func acceptUnit(_ header: FrameHeader, at offset: UInt32) -> Step {
    if header.isSynced { promised = unitEnd }
    var position = unitEnd
    position.offset = offset + UInt32(header.frameBytes)
    if seal != nil, let end = summary.rewrittenEnd { (position.lsn, position.chain) = (end.lastLSN, end.chain) }
    end(unit: position)
    return .other
  }

  /// Without gaps in what a writer appended; rising in what was copied out of it.
  private func isNext(_ lsn: UInt64) -> Bool {
    let last = isInside ? places.last?.lsn ?? unitEnd.lsn : unitEnd.lsn
    guard let end = summary.rewrittenEnd else { return lsn == last + 1 }
    return lsn > last && lsn <= end.lastLSN
  }

  private mutating func end(unit position: LogPosition) {
    let passed = unitEnd.offset + 1...position.offset
    unitEnd = position
    frames += unfinishedFrames
    unfinishedFrames = 0
    // Copied frames were synced before their segment had its name.
    if passed.contains(opening.durableEnd) {
      if position.offset == opening.durableEnd { promised = position } else { missedPromise = opening.durableEnd }
    }
    if let bound, passed.contains(bound.end) {
      let isMet = position.offset == bound.end && position.lsn == bound.lsn
      if isMet { promised = position } else { missedPromise = bound.end }
    }
  }

  /// Checks what is promised from outside the frames, after the walk has stopped at or behind all of it.
  ///
  /// - Throws: `.damaged`.
  func checkPromises() throws(LogError) {
    if let missedPromise {
      throw .damaged(
        path, at: UInt64(missedPromise)..<UInt64(missedPromise) + 1, lsns: nil,
        "it was promised up to byte \(missedPromise), where no unit ends as it was promised")
    }
  }

  /// A seal that verifies and says something else than what precedes it.
  private func check(_ seal: SealBody, at offset: UInt32, end: UInt32) throws(LogError) {
    guard seal.contentChain == chain.value, let index, index.range.lowerBound == seal.indexOffset,
      index.range.upperBound == offset
    else {
      throw .damaged(
        path, at: UInt64(offset)..<UInt64(end), lsns: nil,
        "its seal does not speak of the events and the index that precede it")
    }
  }

  /// Checks that a segment that has an end reaches it, after the walk has stopped with `fault`.
  ///
  /// - Throws: `.damaged`, `.foreignSegment`.
  func checkReached(_ end: SegmentEnd, _ fault: FrameFault) throws(LogError) {
    let whole = UInt64(end.offset)
    guard UInt64(unitEnd.offset) == whole else {
      let first = unitEnd.lsn + 1
      throw .damaged(
        path, at: UInt64(unitEnd.offset)..<max(whole, UInt64(unitEnd.offset) + 1),
        lsns: first <= end.lastLSN ? first...end.lastLSN : nil,
        "it was acknowledged up to byte \(whole), and at byte \(scanner.offset): \(fault.rawValue)")
    }
    try checkPromises()
    let required = max(opening.durableEnd, bound?.end ?? 0)
    guard required <= unitEnd.offset else {
      throw .damaged(
        path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(required), lsns: nil,
        "it was promised up to byte \(required), and it ends at byte \(unitEnd.offset)")
    }
    guard !summary.isRewritten || seal != nil else {
      throw .damaged(path, at: whole..<whole + 1, lsns: nil, "its seal is missing")
    }
    guard unitEnd.end == end else {
      throw LogError(
        .foreignSegment,
        "'\(path)' ends with LSN \(unitEnd.lsn), but the log goes on behind LSN \(end.lastLSN) "
          + "of another history; \(LogError.damageAdvice)", file: path, offset: whole,
        lsns: min(unitEnd.lsn, end.lastLSN)...max(unitEnd.lsn, end.lastLSN))
    }
  }
}
