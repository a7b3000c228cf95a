// What to believe after a crash (decision L2).
//
// A segment with a successor ends where that one says, a rewritten one where it says itself; what lies behind that is
// void and is not looked at. Such segments are read only for the events that somebody wants handed out. The last
// segment is judged by TailRule.swift, unless its writer closed it: then CONTROL and its seal agree on its end. A
// segment that was made ahead and whose first group nobody promised is an extension of the tail before it: what is
// whole in it is served, and copied. Nothing is changed here.

import StrandlineSystem

/// What was read.
struct Recovery {
  /// The addresses of every event, one table a segment.
  var tables: [SegmentTable] = []
  var list: SegmentList
  /// The last segment that counts: what a successor continues.
  var last: SegmentSummary
  /// The end of what is promised, in `last`.
  var promised: LogPosition
  /// The end of what is whole.
  var end: LogPosition
  /// Where the events between the two lie, if there are any.
  var unpromised: Unpromised?
  var fullFlushLSN: UInt64
  /// A segment that has got a successor by this open, and where it ends.
  var finished: (segmentID: UInt64, end: UInt64)?
  var report = RecoveryReport()

  /// Units above the promise: to be copied before they are relied on.
  struct Unpromised {
    var segment: SegmentSummary
    /// From here on, up to `to`.
    var from: UInt32
    var to: UInt32
  }

  /// Reads what is not finished, and hands out events.
  ///
  /// - Parameter first: the first LSN that `visit` is handed; nil for none.
  /// - Throws: `LogError`, or what `visit` throws.
  static func run(
    _ fileSystem: any FileSystem, _ list: SegmentList, from first: UInt64?, visit: (LogEvent) throws -> Void
  ) throws -> Recovery {
    var tables: [SegmentTable] = []
    var report = RecoveryReport()
    var fullFlushLSN = list.control.fullFlushLSN
    report.segments = list.summaries.count
    for (index, summary) in list.summaries.enumerated() {
      let sealed = list.sealedEnd(index)
      let isLast = index == list.summaries.count - 1
      let wanted = first.map { sealed == nil || $0 <= sealed?.lastLSN ?? 0 } ?? false
      if let sealed, !wanted {
        tables.append(SegmentTable(unread: summary, end: sealed))
        guard isLast else { continue }
        return try finished(list, tables, at: sealed, fullFlushLSN, report)
      }
      let file = try openSegment(fileSystem, summary.path)
      defer { file.close() }
      let size = try sizeOf(file)
      if isLast, !wanted, let closed = try closedEnd(list, summary, file, size) {
        tables.append(SegmentTable(unread: summary, end: closed))
        return try finished(list, tables, at: closed, fullFlushLSN, report)
      }
      var walk = SegmentWalk(
        summary, file: file, limit: sealed.map { min(size, UInt64($0.offset)) } ?? size,
        bound: list.bound(of: summary))
      walk.collectsEvents = wanted
      var table = SegmentTable(summary)
      walking: while true {
        switch try walk.next() {
        case .transaction:
          if let first { for event in walk.transaction where event.lsn >= first { try visit(event) } }
          table.append(walk.places, end: walk.unitEnd.offset)
        case .marker, .other:
          continue
        case .stop(let fault):
          if let sealed { try checkSealed(walk, fault, sealed) }
          break walking
        }
      }
      report.frames += walk.frames
      fullFlushLSN = max(fullFlushLSN, walk.fullFlushLSN)
      if let sealed {
        table.finish(sealed)
        tables.append(table)
        report.bytesRead += walk.scanner.bytesRead
        guard isLast else { continue }
        return try finished(list, tables, at: sealed, fullFlushLSN, report)
      }
      table.seal()
      tables.append(table)
      return try tail(list, tables, walk, fullFlushLSN, report)
    }
    preconditionFailure("a log without segments is not read")
  }

  /// The log ends with a segment whose end is known.
  private static func finished(
    _ list: SegmentList, _ tables: [SegmentTable], at end: SegmentEnd, _ fullFlushLSN: UInt64, _ report: RecoveryReport
  ) throws(LogError) -> Recovery {
    try list.checkBound(reached: end.lastLSN)
    let last = list.summaries[list.summaries.count - 1]
    let position = LogPosition(lsn: end.lastLSN, chain: end.chain, offset: end.offset)
    var report = report
    report.lastLSN = end.lastLSN
    report.tenure = last.header.tenure
    return Recovery(
      tables: tables, list: list, last: last, promised: position, end: position, fullFlushLSN: fullFlushLSN,
      report: report)
  }

  /// The end of a segment that its writer closed: CONTROL says where, and there stands a seal that says the same.
  private static func closedEnd(
    _ list: SegmentList, _ summary: SegmentSummary, _ file: any File, _ size: UInt64
  ) throws(LogError) -> SegmentEnd? {
    let control = list.control
    guard control.isClean, control.tailSegmentID == summary.segmentID, size == UInt64(control.durableEnd),
      let seal = try SealFrame.read(file, summary.path, identity: summary.identity, end: control.durableEnd),
      seal.lastLSN == control.durableLSN, seal.firstLSN == summary.opening.firstLSN
    else { return nil }
    return SegmentEnd(offset: seal.end, lastLSN: seal.lastLSN, chain: seal.contentChain)
  }

  private static func tail(
    _ list: SegmentList, _ tables: [SegmentTable], _ walk: SegmentWalk, _ fullFlushLSN: UInt64,
    _ before: RecoveryReport
  ) throws(LogError) -> Recovery {
    let tail = try TailVerdict.judge(walk)
    try list.checkBound(reached: tail.unitEnd.lsn)
    let summaries = list.summaries
    let summary = summaries[summaries.count - 1]
    var report = before
    report.bytesRead += tail.bytesRead
    report.lastLSN = tail.unitEnd.lsn
    report.bytesSetAside = tail.bytesSetAside
    report.torn = tail.bytesSetAside > 0
    report.tenure = summary.header.tenure
    var recovery = Recovery(
      tables: tables, list: list, last: summary, promised: tail.promised, end: tail.unitEnd,
      fullFlushLSN: fullFlushLSN, report: report)
    if tail.unitEnd.lsn > tail.promised.lsn {
      recovery.unpromised = Unpromised(
        segment: summary, from: tail.promised.offset, to: tail.unitEnd.offset)
    }
    // Made ahead, and nothing in it promised: its own opening frame may be in memory only.
    if summary.header.isPrepared, tail.promised.lsn == summary.opening.predecessorLastLSN, summaries.count > 1,
      let end = list.sealedEnd(summaries.count - 2)
    {
      recovery.last = summaries[summaries.count - 2]
      recovery.promised = LogPosition(lsn: end.lastLSN, chain: end.chain, offset: end.offset)
      recovery.isLastUnused = true
    }
    return recovery
  }

  /// The last segment of the list was made ahead, and no promise stands in it: a successor takes its place.
  var isLastUnused = false

  /// A segment that has an end must reach it.
  static func checkSealed(_ walk: SegmentWalk, _ fault: FrameFault, _ sealed: SegmentEnd) throws(LogError) {
    let end = walk.unitEnd
    let whole = UInt64(sealed.offset)
    guard UInt64(end.offset) == whole else {
      let first = end.lsn + 1
      throw .damaged(
        walk.path, at: UInt64(end.offset)..<max(whole, UInt64(end.offset) + 1),
        lsns: first <= sealed.lastLSN ? first...sealed.lastLSN : nil,
        "it was acknowledged up to byte \(whole), and at byte \(walk.scanner.offset): \(fault.rawValue)")
    }
    let required = max(walk.openingEnd, walk.bound?.end ?? 0)
    guard required <= end.offset else {
      throw .damaged(
        walk.path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(required), lsns: nil,
        "it was promised up to byte \(required), and it ends at byte \(end.offset)")
    }
    guard walk.opening.kind == .live || walk.seal != nil else {
      throw .damaged(walk.path, at: whole..<whole + 1, lsns: nil, "its seal is missing")
    }
    guard end.lsn == sealed.lastLSN, end.chain == sealed.chain else {
      throw LogError(
        .foreignSegment,
        "'\(walk.path)' ends with LSN \(end.lsn), but its successor continues LSN \(sealed.lastLSN) "
          + "of another history; \(LogError.innocentCauses)", file: walk.path, offset: whole,
        lsns: min(end.lsn, sealed.lastLSN)...max(end.lsn, sealed.lastLSN))
    }
  }

  static func openSegment(_ fileSystem: any FileSystem, _ path: String) throws(LogError) -> any File {
    do {
      return try fileSystem.open(path, .read)
    } catch {
      throw .system("cannot open segment '\(path)'", error, file: path)
    }
  }

  static func sizeOf(_ file: any File) throws(LogError) -> UInt64 {
    do {
      return try file.size()
    } catch {
      throw .system("cannot read segment '\(file.path)'", error, file: file.path)
    }
  }
}
