// What to believe after a crash: every segment read in order, once (decision L2).
//
// Earlier segments must verify without a gap up to exactly the end that their successor names; what lies behind
// that is void and is not looked at. The last segment is judged by TailRule.swift. Nothing is changed here.

import StrandlineSystem

/// What was read.
struct Recovery {
  /// The addresses of every event, one table a segment.
  var tables: [SegmentTable] = []
  /// The last segment.
  var last: SegmentSummary
  var tail: TailVerdict
  var fullFlushLSN: UInt64
  var report = RecoveryReport()

  /// Reads everything, and hands each event of a whole transaction to `visit`.
  ///
  /// - Throws: `LogError`, or what `visit` throws.
  static func run(
    _ fileSystem: any FileSystem, _ list: SegmentList, visit: (LogEvent) throws -> Void
  ) throws -> Recovery {
    var tables: [SegmentTable] = []
    var report = RecoveryReport()
    var fullFlushLSN: UInt64 = 0
    for (index, summary) in list.summaries.enumerated() {
      let sealed = list.sealedEnd(index)
      let file = try openSegment(fileSystem, summary.path)
      defer { file.close() }
      let size = try sizeOf(file)
      let limit = sealed.map { min(size, UInt64($0.predecessorEnd)) } ?? size
      var walk = SegmentWalk(summary, file: file, limit: limit)
      var table = SegmentTable(summary)
      walking: while true {
        switch try walk.next() {
        case .transaction:
          for event in walk.transaction { try visit(event) }
          table.append(walk.transaction, end: walk.unitEnd.offset)
        case .marker, .other:
          continue
        case .stop(let fault):
          if let sealed { try checkSealed(walk, fault, sealed) }
          break walking
        }
      }
      table.seal()
      tables.append(table)
      report.segments += 1
      report.events += walk.events
      report.frames += walk.frames
      fullFlushLSN = max(fullFlushLSN, walk.fullFlushLSN)
      guard sealed == nil else {
        report.bytesRead += walk.scanner.bytesRead
        continue
      }
      let tail = try TailVerdict.judge(walk)
      report.bytesRead += tail.bytesRead
      report.lastLSN = tail.unitEnd.lsn
      report.bytesSetAside = tail.bytesSetAside
      report.torn = tail.bytesSetAside > 0
      report.tenure = summary.header.tenure
      // Events of a transaction that never became whole were counted as they were read.
      report.events = tail.unitEnd.lsn
      return Recovery(tables: tables, last: summary, tail: tail, fullFlushLSN: fullFlushLSN, report: report)
    }
    preconditionFailure("a log without segments is not read")
  }

  /// A segment that has a successor must end as that one says.
  static func checkSealed(_ walk: SegmentWalk, _ fault: FrameFault, _ successor: OpeningBody) throws(LogError) {
    let end = walk.unitEnd
    let whole = UInt64(successor.predecessorEnd)
    guard UInt64(end.offset) == whole else {
      let first = end.lsn + 1
      throw .damaged(
        walk.path, at: UInt64(end.offset)..<max(whole, UInt64(end.offset) + 1),
        lsns: first...max(first, successor.predecessorLastLSN),
        "it was acknowledged up to byte \(whole), and at byte \(walk.scanner.offset): \(fault.rawValue)")
    }
    guard walk.openingEnd <= end.offset else {
      throw .damaged(
        walk.path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(walk.openingEnd), lsns: nil,
        "its opening frame promises up to byte \(walk.openingEnd), and it ends at byte \(end.offset)")
    }
    guard end.lsn == successor.predecessorLastLSN, end.chain == successor.chain else {
      throw LogError(
        .foreignSegment,
        "'\(walk.path)' ends with LSN \(end.lsn), but its successor continues LSN \(successor.predecessorLastLSN) "
          + "of another history; \(LogError.innocentCauses)", file: walk.path, offset: whole,
        lsns: min(end.lsn, successor.predecessorLastLSN)...max(end.lsn, successor.predecessorLastLSN))
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
