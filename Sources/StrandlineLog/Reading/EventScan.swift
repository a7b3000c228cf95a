// Many events in the order of the log, from any LSN on: for whoever keeps something of its own in step with the log, and
// for one record's history.
//
// A scan holds no lock while it reads, so appends, merges and compactions go on. It begins at the place that the table of
// the segment names for its first LSN, reads that segment's file in chunks, and looks for the next segment when it has
// come to the end. A segment that is replaced before its file was opened is looked for again; of one that is replaced
// afterwards the file that was opened is read to its end. What a compaction has removed is missing: the caller sees it by
// the LSNs.

import StrandlineSystem
import Synchronization

/// How far a scan has come.
struct EventScan {
  /// Everything up to here was handed out, or is not in the log.
  private(set) var last: UInt64
  /// The last LSN that is wanted.
  private let end: UInt64
  private var isStopped = false
  /// How often in a row a segment's file was gone.
  private var moves = 0
  private static let movesMax = 8

  var isOver: Bool { isStopped || last >= end }

  init(after lsn: UInt64, upTo end: UInt64) {
    last = lsn
    self.end = end
  }

  /// The segment that has the next LSN.
  struct Segment {
    let address: SegmentTable.Address
    let place: SegmentTable.Place
    /// The last LSN of its range.
    let lastLSN: UInt64

    /// Looks the LSN after `last` up; nil if no table has it.
    init?(after last: UInt64, in tables: [SegmentTable]) {
      guard !tables.isEmpty else { return nil }
      let table = tables[tables.index(of: last + 1)]
      guard table.lastLSN > last else { return nil }
      address = table.address
      place = table.place(of: max(last + 1, table.firstLSN))
      lastLSN = table.lastLSN
    }

    /// Where its first event that is wanted lies, at the earliest.
    var start: UInt32 {
      switch place {
      case .exact(let range), .near(let range): range.lowerBound
      // Before the first event that is left of the segment.
      case .gone, .unknown: UInt32(LogFormat.openingEnd)
      }
    }

    /// Whether its LSNs have no gaps.
    var isDense: Bool { if case .exact = place { true } else { false } }
  }

  /// Hands the events of a segment to `visit`, until that returns false or the segment ends.
  ///
  /// - Throws: `.damaged`, `.io`, or what `visit` throws.
  mutating func read(_ segment: Segment, _ files: SegmentFiles, _ visit: (LogEvent) throws -> Bool) throws {
    let address = segment.address
    var scanner = try files.scanner(of: address, from: segment.start)
    moves = 0
    while scanner.offset < UInt64(address.end) {
      switch try scanner.next() {
      case .stop(let fault):
        let next = last + 1
        throw LogError.damaged(
          address.path, at: scanner.offset..<UInt64(address.end),
          lsns: next...(segment.isDense ? next : max(next, segment.lastLSN)), fault.rawValue)
      case .frame(let header, let start, let offset):
        guard header.type == FrameType.event.rawValue, header.lsn > last else { continue }
        guard header.lsn <= end else {
          last = end
          return
        }
        let event = LogEvent(header, scanner.window, at: start, segmentID: address.identity.segmentID, offset: offset)
        let goesOn = try visit(event)
        last = header.lsn
        if !goesOn {
          isStopped = true
          return
        }
      }
    }
    last = max(last, min(segment.lastLSN, end))
  }

  /// The file of the segment was gone when it was to be opened.
  ///
  /// - Throws: `.io` after several times in a row.
  mutating func retry() throws(LogError) {
    moves += 1
    guard moves < Self.movesMax else {
      throw LogError(.io, "the events after LSN \(last) move faster than they can be read; try again")
    }
  }
}

extension Log {
  /// Hands the durable events after `lsn` to `visit`, in order, until that returns false. Safe beside appends, merges and
  /// compactions; events that a compaction removed are left out.
  ///
  /// - Throws: `.damaged`, `.io`, `.closed`, or what `visit` throws.
  /// - Complexity: O(bytes after `lsn`), and memory for one chunk of them.
  package func scan(after lsn: UInt64, upTo limit: UInt64 = .max, _ visit: (LogEvent) throws -> Bool) throws {
    var scan = EventScan(after: lsn, upTo: min(limit, durableLSN))
    while !scan.isOver {
      let last = scan.last
      let segment = try queue.withLock { state throws(LogError) in
        if case .closed = state.phase { throw CommitState.closed }
        return EventScan.Segment(after: last, in: state.tables)
      }
      guard let segment else { throw LogError(.io, "no segment has the events after LSN \(last); try again") }
      do {
        if case .unknown = segment.place {
          try loadIndex(segment.address)
        } else {
          try scan.read(segment, files, visit)
        }
      } catch let error as LogError where error.underlying?.isAbsent == true {
        try scan.retry()
      } catch let error as LogError {
        // A close ends the files that are being read.
        if case .closed = state { throw CommitState.closed }
        throw error
      }
    }
  }
}

extension LogReader {
  /// The same for a log that another process may be writing: of the events that `poll` has handed out.
  ///
  /// - Throws: `.damaged`, `.io`, or what `visit` throws.
  package func scan(after lsn: UInt64, upTo limit: UInt64 = .max, _ visit: (LogEvent) throws -> Bool) throws {
    var scan = EventScan(after: lsn, upTo: min(limit, lastLSN))
    while !scan.isOver {
      let last = scan.last
      guard let segment = served.withLock({ EventScan.Segment(after: last, in: $0.tables) }) else {
        throw LogError(.io, "the events after LSN \(last) lie in a segment that could not be read further; poll again")
      }
      do {
        if case .unknown = segment.place {
          try loadIndex(segment.address)
        } else {
          try scan.read(segment, files, visit)
        }
      } catch let error as LogError where error.underlying?.isAbsent == true {
        try scan.retry()
        try findAnew(last + 1)
      }
    }
  }
}
