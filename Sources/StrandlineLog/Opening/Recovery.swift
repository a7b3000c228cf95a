// What an open reads, and what it believes after a crash (decision L2).
//
// A segment that has an end is read only for the events that the caller wants handed out, or not even opened, if
// MANIFEST lists the end; what lies after its end is void and is not looked at. A last segment without an end is judged by
// TailRule.swift. Nothing is changed here.

import StrandlineSystem

/// What was read.
struct Recovery {
  /// The addresses of every event, one table a segment.
  var tables: [SegmentTable] = []
  let list: SegmentList
  /// The last segment that counts: what a successor continues.
  let last: LogSegment
  /// The end of what is promised, in `last`.
  let promised: LogPosition
  /// The end of what is whole.
  var end: LogPosition
  /// Where the events between the two lie, if there are any: to be copied before they are relied on.
  var unpromised: (segment: SegmentSummary, range: Range<UInt32>)?
  /// A segment that has got a successor by this open, and where it ends.
  var finished: (segmentID: UInt64, end: UInt64)?
  var report: RecoveryReport
  /// The log ends before the event that was acknowledged, or has another one under its LSN.
  var lacksAcknowledged = false

  /// Reads what has no end yet, and hands out events.
  ///
  /// - Parameters:
  ///   - first: the first LSN that `visit` is handed; nil for none.
  ///   - acknowledged: an event that is looked for.
  /// - Throws: `LogError`, or what `visit` throws.
  static func run(
    _ directory: StoreDirectory, _ list: SegmentList, from first: UInt64?, acknowledged: LogEnd?,
    visit: (LogEvent) throws -> Void
  ) throws -> Recovery {
    try run(Reading(directory: directory, list: list, first: first, acknowledged: acknowledged), visit)
  }

  private static func run(_ reading: consuming Reading, _ visit: (LogEvent) throws -> Void) throws -> Recovery {
    let list = reading.list
    reading.report.segments = list.segments.count
    for segment in list.segments {
      if let end = segment.end {
        try reading.readFinished(segment, end, visit)
      } else {
        return try reading.readTail(segment, visit)
      }
    }
    return try reading.finished()
  }

  /// The same behind an event.
  ///
  /// - Returns: nil if the log does not have the event, has another one under its LSN, or was compacted behind it: what was
  ///   handed out counts for nothing then.
  static func run(
    _ directory: StoreDirectory, _ list: SegmentList, behind known: LogEnd, acknowledged: LogEnd?,
    visit: (LogEvent) throws -> Void
  ) throws -> Recovery? {
    do {
      return try run(
        Reading(directory: directory, list: list, first: known.lsn + 1, behind: known, acknowledged: acknowledged),
        visit)
    } catch is AnotherHistory {
      return nil
    }
  }

  /// The reading of one segment after the other.
  private struct Reading {
    let directory: StoreDirectory
    let list: SegmentList
    let first: UInt64?
    /// The event behind which `first` is; nil if the caller knows none.
    var match: EndMatch?
    /// The event that the caller has acknowledged; nil if it does not say.
    var acknowledged: EndMatch?
    var tables: [SegmentTable] = []
    var report = RecoveryReport()

    init(
      directory: StoreDirectory, list: SegmentList, first: UInt64?, behind known: LogEnd? = nil, acknowledged: LogEnd?
    ) {
      (self.directory, self.list, self.first) = (directory, list, first)
      (match, self.acknowledged) = (known.map { EndMatch($0) }, acknowledged.map { EndMatch($0) })
      match?.look(at: list)
      self.acknowledged?.look(at: list)
    }

    /// The first LSN of which it is read where it lies.
    private var readsFrom: UInt64? {
      let behind = acknowledged.map { $0.known.lsn + 1 }
      return [first, behind].compactMap(\.self).min()
    }

    private func lacksAcknowledged(_ end: UInt64) -> Bool {
      acknowledged?.isContradicted(byEnd: end) ?? false
    }

    /// Reads a segment that has an end, if events in it are wanted.
    mutating func readFinished(
      _ segment: LogSegment, _ end: SegmentEnd, _ visit: (LogEvent) throws -> Void
    ) throws {
      // What is replayed is not believed, so it has a summary.
      guard let readsFrom, readsFrom <= end.lastLSN, let summary = segment.summary else {
        tables.append(SegmentTable(unread: segment, end: end))
        return
      }
      let file = try SegmentFile.open(directory.folder, summary.segmentID)
      defer { file.close() }
      var walk = SegmentWalk(
        summary, file: file, limit: min(try SegmentFile.size(of: file), UInt64(end.offset)),
        bound: list.bound(of: summary.segmentID))
      var table = SegmentTable(summary)
      let fault = try read(&walk, into: &table, visit)
      try walk.checkReached(end, fault)
      try match?.look(at: walk)
      acknowledged?.note(walk)
      table.finish(end)
      tables.append(table)
      report.bytesRead += walk.scanner.bytesRead
    }

    /// Walks to the first frame that does not continue.
    private mutating func read(
      _ walk: inout SegmentWalk, into table: inout SegmentTable, _ visit: (LogEvent) throws -> Void
    ) throws -> FrameFault {
      walk.collectsEvents = first != nil
      while true {
        switch try walk.next() {
        case .transaction:
          match?.look(at: walk.unitEnd)
          acknowledged?.look(at: walk.unitEnd)
          if let first {
            for event in walk.transaction where event.lsn >= first {
              try match?.check()
              try visit(event)
            }
          }
          table.append(walk.places, end: walk.unitEnd.offset)
        case .other:
          continue
        case .stop(let fault):
          report.frames += walk.frames
          return fault
        }
      }
    }

    /// The log ends with a segment whose end is known.
    func finished() throws -> Recovery {
      try match?.check()
      guard let last = list.segments.last, let end = last.end else {
        preconditionFailure("a log without segments is not read")
      }
      try list.checkBound(reached: end.lastLSN)
      var report = report
      report.lastLSN = end.lastLSN
      var recovery = Recovery(
        tables: tables, list: list, last: last, promised: end.position, end: end.position, report: report)
      recovery.lacksAcknowledged = lacksAcknowledged(end.lastLSN)
      return recovery
    }

    mutating func readTail(_ segment: LogSegment, _ visit: (LogEvent) throws -> Void) throws -> Recovery {
      guard let summary = segment.summary else { preconditionFailure("a segment without an end is not believed") }
      let file = try SegmentFile.open(directory.folder, summary.segmentID)
      defer { file.close() }
      var walk = SegmentWalk(
        summary, file: file, limit: try SegmentFile.size(of: file), bound: list.bound(of: summary.segmentID))
      var table = SegmentTable(summary)
      _ = try read(&walk, into: &table, visit)
      table.seal()
      try match?.check()
      let tail = try TailVerdict.judge(walk)
      try list.checkBound(reached: tail.unitEnd.lsn)
      report.bytesRead += tail.bytesRead
      report.lastLSN = tail.unitEnd.lsn
      report.bytesSetAside = tail.bytesSetAside
      report.torn = tail.bytesSetAside > 0
      var recovery = Recovery(
        tables: tables + [table], list: list, last: segment, promised: tail.promised, end: tail.unitEnd,
        report: report)
      recovery.lacksAcknowledged = lacksAcknowledged(tail.unitEnd.lsn)
      if tail.unitEnd.lsn > tail.promised.lsn {
        recovery.unpromised = (summary, tail.promised.offset..<tail.unitEnd.offset)
      }
      return recovery
    }
  }
}
