// Reads every byte of a log and writes none: what is sound, what the next open would set aside, what is damaged.
//
// An open stops at the first damage; this goes on behind it, so that a report says how far the damage reaches.
// It checks what an open does not need: that the rest of the header page and the padding of frames is zero
// (decision L19). A copy of a directory without its lock file is as good as the directory.

import Dispatch
package import StrandlineSystem

/// Something that `verify` found.
package struct VerificationFinding: Hashable, Sendable {
  package enum Kind: String, Hashable, Sendable {
    /// Written and never promised; the next open sets it aside. Nothing is lost.
    case tornTail
    /// Acknowledged bytes (or bytes that hold the log together) that are not what was written.
    case damage
    /// A segment of this store that is on no list and does not continue the log; the next open for writing removes it if
    /// the log has its events, and moves it to `quarantine/` if not. Nothing is lost.
    case stray
  }
  package var kind: Kind
  package var code: LogError.Code
  package var file: String
  package var offset: UInt64
  package var end: UInt64
  package var lsns: ClosedRange<UInt64>?
  package var message: String
}

/// The result of a verification.
package struct VerificationReport: Hashable, Sendable {
  package var findings: [VerificationFinding] = []
  package var segments = 0
  /// Frames that verify.
  package var frames: UInt64 = 0
  package var events: UInt64 = 0
  /// Bytes read.
  package var bytes: UInt64 = 0
  package var lastLSN: UInt64 = 0
  /// A writer held the store meanwhile: its tail above the last promise was not judged.
  package var isHeldByWriter = false
  /// One of the two slots of CONTROL does not verify, as a power cut may leave it; the other one holds.
  package var isControlTorn = false
  /// What earlier opens have moved to `quarantine/`.
  package var quarantine: [QuarantinedFile] = []
  package var nanoseconds: UInt64 = 0

  package init() {}

  /// Takes in what was found of one more segment.
  fileprivate mutating func add(_ one: VerificationReport) {
    findings += one.findings
    frames += one.frames
    events += one.events
    bytes += one.bytes
    lastLSN = max(lastLSN, one.lastLSN)
    isHeldByWriter = isHeldByWriter || one.isHeldByWriter
  }

  package var isSound: Bool { findings.isEmpty }
  package var isDamaged: Bool { findings.contains { $0.kind == .damage } }
}

/// Checks a log without touching it.
package enum LogVerifier {
  private static let looksMax = 6

  /// Reads every byte of the log at `path`.
  ///
  /// - Throws: `LogError` if there is no log there or a read fails; what is wrong with the bytes is in the report.
  /// - Complexity: O(bytes), twice if something is found.
  package static func verify(at path: String, environment: SystemEnvironment) throws(LogError) -> VerificationReport {
    try verify(try StorePlace(path, environment.fileSystem).log(), environment)
  }

  /// The same of a folder that is open.
  static func verify(
    _ directory: StoreDirectory, _ environment: SystemEnvironment
  ) throws(LogError) -> VerificationReport {
    let begun = environment.clock.monotonicNanoseconds()
    // A store that is being written does not stand still, and its writer may be gone again before this looks whether
    // there is one: only what two passes in a row agree on is a finding.
    var earlier: [VerificationFinding]?
    var report = VerificationReport()
    for look in 1...looksMax {
      var verification = Verification(directory: directory, environment: environment)
      do throws(LogError) {
        try verification.run()
      } catch  where error.underlying?.isAbsent == true && look < looksMax {
        // A file that the list named was merged or compacted meanwhile.
        continue
      }
      report = verification.report
      if report.findings.isEmpty || report.findings == earlier { break }
      if let earlier, look == looksMax { report.findings.removeAll { !earlier.contains($0) } }
      earlier = verification.report.findings
    }
    report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    return report
  }
}

/// One pass over all files.
private struct Verification {
  let directory: StoreDirectory
  let environment: SystemEnvironment
  var report = VerificationReport()

  init(directory: StoreDirectory, environment: SystemEnvironment) {
    self.directory = directory
    self.environment = environment
  }

  mutating func run() throws(LogError) {
    let directory = directory
    let survey = try LogSurvey(directory, try directory.files())
    report.isControlTorn = survey.control?.isTorn ?? false
    report.quarantine = try directory.quarantined()
    report.segments = survey.segments.count
    for problem in survey.listProblems + survey.segmentProblems {
      guard problem.code != .fromTheFuture else { throw problem }
      add(problem, in: problem.file ?? directory.path)
    }
    let last = survey.segments.last?.segmentID
    let bound = survey.control?.current.bound
    try verify(
      survey.segments.compactMap { segment in
        guard let summary = segment.summary else { return nil }
        return Part(
          summary: summary, end: segment.end, bound: bound?.segmentID == segment.segmentID ? bound : nil,
          isLast: segment.segmentID == last)
      })
    if !report.isDamaged, let control = survey.control {
      do throws(LogError) {
        try control.checkBound(reached: report.lastLSN, path: directory.path)
      } catch {
        add(error, in: directory.control)
      }
    }
    try addStrays(survey)
  }

  /// Files that no list names.
  private mutating func addStrays(_ survey: LogSurvey) throws(LogError) {
    guard !survey.unplaced.isEmpty, !report.isDamaged else { return }
    // What a writer is making has a name before the list has it.
    guard try !directory.isHeld() else {
      report.isHeldByWriter = true
      return
    }
    let leftovers = try Leftovers(
      survey.unplaced, covering: survey.segments.first?.summary?.opening.firstLSN ?? 1, to: report.lastLSN,
      in: directory)
    for id in leftovers.redundant {
      addStray(
        directory.segment(id),
        "is on no list, and the log has its events: its writer was interrupted; the next open for writing removes it")
    }
    for id in leftovers.unknown {
      addStray(
        directory.segment(id),
        "is on no list and has events that the log does not have; the next open for writing moves it to "
          + "'\(directory.quarantine)'")
    }
  }

  private mutating func addStray(_ path: String, _ what: String) {
    report.findings.append(
      VerificationFinding(
        kind: .stray, code: .foreignSegment, file: path, offset: 0, end: 0, lsns: nil, message: "'\(path)' \(what)"))
  }

  private mutating func add(_ error: LogError, in path: String, end: UInt64? = nil) {
    report.findings.append(
      VerificationFinding(
        kind: .damage, code: error.code, file: error.file ?? path, offset: error.offset ?? 0,
        end: end ?? error.offset.map { $0 + 1 } ?? 0, lsns: error.lsns, message: error.finding))
  }

  /// One segment, and what is known of its end.
  private struct Part: Sendable {
    let summary: SegmentSummary
    let end: SegmentEnd?
    let bound: LogBound?
    let isLast: Bool
  }

  /// Segments do not depend on each other once their ends are known: a large log is read by all cores, each with one
  /// window of its own.
  private mutating func verify(_ parts: [Part]) throws(LogError) {
    let bytes = parts.reduce(0) { $0 + UInt64($1.end?.offset ?? 0) }
    guard bytes >= Self.parallelBytesMin else {
      for part in parts { try verify(part.summary, part.end, part.bound, isLast: part.isLast) }
      return
    }
    let (directory, environment) = (directory, environment)
    let results = OrderedMutex([Result<VerificationReport, LogError>?](repeating: nil, count: parts.count))
    DispatchQueue.concurrentPerform(iterations: parts.count) { index in
      var one = Verification(directory: directory, environment: environment)
      let part = parts[index]
      let result: Result<VerificationReport, LogError>
      do throws(LogError) {
        try one.verify(part.summary, part.end, part.bound, isLast: part.isLast)
        result = .success(one.report)
      } catch {
        result = .failure(error)
      }
      results.withLock { $0[index] = result }
    }
    for result in results.withLock({ $0 }) {
      if let one = try result?.get() { report.add(one) }
    }
  }

  /// Below this the threads cost more than they save.
  private static let parallelBytesMin: UInt64 = 32 << 20

  private mutating func verify(
    _ summary: SegmentSummary, _ sealed: SegmentEnd?, _ bound: LogBound?, isLast: Bool
  ) throws(LogError) {
    let file = try SegmentFile.open(directory.folder, summary.segmentID)
    defer { file.close() }
    let size = try SegmentFile.size(of: file)
    try checkHeaderPage(file, summary.path)
    var walk = SegmentWalk(
      summary, file: file, limit: sealed.map { min(size, UInt64($0.offset)) } ?? size, bound: bound)
    // Up to where the segment was looked at.
    var looked: UInt64?
    walk.checksPadding = true
    walk.collectsEvents = false
    var begins: [IndexBody.Entry] = []
    do {
      while true {
        let step = try walk.next()
        if case .transaction = step {
          report.events += UInt64(walk.places.count)
          for place in walk.places {
            begins.append(
              IndexBody.Entry(
                lsnDelta: UInt32(truncatingIfNeeded: place.lsn - summary.opening.firstLSN), offset: place.offset))
          }
        }
        guard case .stop(let fault) = step else { continue }
        if let sealed {
          try walk.checkReached(sealed, fault)
        } else {
          try judgeTail(walk, size, isLast: isLast)
        }
        break
      }
      checkIndex(walk, begins)
    } catch  where error.code == .io || error.code == .fromTheFuture {
      throw error
    } catch {
      let end = min(size, try acknowledgedEnd(walk, sealed))
      try addDamage(error, walk, summary, end: end)
      looked = max(end, walk.scanner.offset)
    }
    if let offset = walk.paddingFault {
      add(
        .damaged(
          summary.path, at: UInt64(offset)..<UInt64(offset) + 1, lsns: nil, "the padding of a frame is not zero"),
        in: summary.path)
    }
    report.frames += walk.frames
    report.bytes += looked ?? walk.scanner.bytesRead + UInt64(LogFormat.openingEnd)
    if isLast || sealed == nil { report.lastLSN = max(report.lastLSN, walk.unitEnd.lsn) }
  }

  /// Every place that the index names is one where an event begins.
  private mutating func checkIndex(_ walk: SegmentWalk, _ begins: [IndexBody.Entry]) {
    guard let index = walk.index else { return }
    var at = 0
    for entry in index.body.entries {
      while at < begins.count, begins[at].offset < entry.offset { at += 1 }
      guard at < begins.count, begins[at] == entry else {
        add(
          .damaged(
            walk.path, at: UInt64(index.range.lowerBound)..<UInt64(index.range.upperBound), lsns: nil,
            "its index names byte \(entry.offset), where no event begins as it says"), in: walk.path)
        return
      }
    }
  }

  /// Bytes 128 to 4095 are zero.
  private mutating func checkHeaderPage(_ file: any File, _ path: String) throws(LogError) {
    let page: [UInt8]
    do {
      page = try file.read(at: 0, count: LogFormat.headerPageBytes)
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    guard let last = page.lastNonZero(in: min(LogFormat.headerBytes, page.count)..<page.count) else { return }
    let offset = page.indices.first { $0 >= LogFormat.headerBytes && page[$0] != 0 } ?? last
    add(
      .damaged(
        path, at: UInt64(offset)..<UInt64(page.count), lsns: nil,
        "the rest of the header's page is not zero; no event depends on it"), in: path,
      end: UInt64(page.count))
  }

  private mutating func judgeTail(_ walk: SegmentWalk, _ size: UInt64, isLast: Bool) throws(LogError) {
    let isHeld = isLast ? try directory.isHeld() : false
    report.isHeldByWriter = report.isHeldByWriter || isHeld
    let verdict = try TailVerdict.judge(walk)
    report.bytes += verdict.bytesRead - walk.scanner.bytesRead
    guard verdict.bytesSetAside > 0, !isHeld else { return }
    let begin = UInt64(walk.unitEnd.offset)
    report.findings.append(
      VerificationFinding(
        kind: .tornTail, code: .rejected, file: walk.path, offset: begin, end: begin + verdict.bytesSetAside,
        lsns: nil,
        message: "'\(walk.path)' ends in \(verdict.bytesSetAside) bytes at byte \(begin) that were never "
          + "acknowledged: its writer was interrupted; the next open for writing sets them aside"))
  }

  /// Up to where the bytes of a segment were acknowledged.
  private func acknowledgedEnd(_ walk: SegmentWalk, _ sealed: SegmentEnd?) throws(LogError) -> UInt64 {
    if let sealed { return UInt64(sealed.offset) }
    let resync = try Resync.scan(walk.scanner.file, identity: walk.scanner.identity, from: walk.scanner.offset)
    return UInt64(max(walk.opening.durableEnd, walk.bound?.end ?? 0, resync.promise?.offset ?? 0))
  }

  /// A segment that is damaged everywhere is said to be so after this many places: to look for the next one is to read
  /// a chunk.
  private static let regionsMax = 1_000

  /// Reports a region that does not verify, and those behind it up to `end`.
  private mutating func addDamage(
    _ error: LogError, _ walk: SegmentWalk, _ summary: SegmentSummary, end: UInt64
  ) throws(LogError) {
    var begin = walk.scanner.offset
    var before = walk.unitEnd.lsn
    var error = error
    var regions = 0
    while true {
      let behind = begin + UInt64(LogFormat.frameAlignment)
      let next =
        regions == Self.regionsMax
        ? nil
        : try SegmentScanner.firstFrame(
          of: walk.scanner.file, identity: summary.identity, in: behind..<max(end, behind))
      guard let next else {
        if regions == Self.regionsMax {
          error = .damaged(
            summary.path, at: begin..<max(begin, end), lsns: nil,
            "there is more behind \(regions) damaged places, which is not looked at one by one; `repair` reads it all")
        }
        add(error, in: summary.path, end: max(begin, end))
        return
      }
      regions += 1
      // The first LSN behind the damage bounds what it took.
      if next.header.lsn > before, next.header.lsn - before > 1 { error.lsns = before + 1...next.header.lsn - 1 }
      error.offset = begin
      add(error, in: summary.path, end: next.offset)
      var scanner = SegmentScanner(
        file: walk.scanner.file, identity: summary.identity, from: next.offset, limit: end)
      while case .frame(let header, _, _) = try scanner.next() {
        report.frames += 1
        if header.type == FrameType.event.rawValue {
          report.events += 1
          before = header.lsn
        }
      }
      begin = scanner.offset
      guard begin < end else { return }
      error = .damaged(
        summary.path, at: begin..<end, lsns: before &+ 1...before &+ 1, FrameFault.headCRC.rawValue)
    }
  }
}
