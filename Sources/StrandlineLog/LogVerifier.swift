// Reads every byte of a log and writes none: what is sound, what the next open would set aside, what is damaged.
//
// An open stops at the first damage; this goes on behind it, so that a report says how far the damage reaches.
// It checks what an open does not need: that the rest of the header page and the padding of frames is zero
// (decision L19). A copy of a directory without its lock file is as good as the directory.

package import StrandlineSystem

/// Something that `verify` found.
package struct VerificationFinding: Hashable, Sendable {
  package enum Kind: String, Hashable, Sendable {
    /// Written and never promised; the next open sets it aside. Nothing is lost.
    case tornTail
    /// Acknowledged bytes (or bytes that hold the log together) that are not what was written.
    case damage
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
  package var nanoseconds: UInt64 = 0

  package init() {}

  package var isSound: Bool { findings.isEmpty }
  package var isDamaged: Bool { findings.contains { $0.kind == .damage } }
}

/// Checks a log without touching it.
package enum LogVerifier {
  /// Reads every byte of the log at `path`.
  ///
  /// - Throws: `LogError` if there is no log there or a read fails; what is wrong with the bytes is in the report.
  /// - Complexity: O(bytes).
  package static func verify(at path: String, environment: SystemEnvironment) throws(LogError) -> VerificationReport {
    let directory = StoreDirectory(path)
    let begun = environment.clock.monotonicNanoseconds()
    var verification = Verification(directory: directory, environment: environment)
    // A store that is being written does not stand still: only what two looks agree on is a finding.
    var earlier: [VerificationFinding]?
    for _ in 0..<3 {
      verification = Verification(directory: directory, environment: environment)
      try verification.run()
      let findings = verification.report.findings
      if !verification.report.isHeldByWriter || findings.isEmpty || findings == earlier { break }
      earlier = findings
    }
    verification.report.nanoseconds = environment.clock.monotonicNanoseconds() &- begun
    return verification.report
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
    let fileSystem = environment.fileSystem
    guard case .segments(let ids, _) = try directory.contents(fileSystem) else {
      throw LogError(.absent, "there is no store at '\(directory.path)'", file: directory.path)
    }
    report.segments = ids.count
    var summaries: [SegmentSummary?] = []
    for id in ids {
      let path = directory.segment(id)
      do {
        let summary = try SegmentSummary.read(fileSystem, path, id)
        // Neighbours that could not be read cannot be held against each other.
        let known = summaries.compactMap { $0 }
        if known.count == summaries.count {
          try SegmentList.check(summary, after: known.last, first: known.first, role: nil, writing: false)
        }
        summaries.append(summary)
      } catch  where error.code == .io || error.code == .fromTheFuture {
        throw error
      } catch {
        add(error, in: path)
        if summaries.last.map({ $0?.path == path }) != true { summaries.append(nil) }
      }
    }
    for (index, summary) in summaries.enumerated() {
      guard let summary else { continue }
      let successor = index + 1 < summaries.count ? summaries[index + 1] : nil
      // The successor says where this one ends; without a readable one, its own promises do.
      let opening = successor?.opening.predecessorID == summary.segmentID ? successor?.opening : nil
      try verify(summary, opening, isLast: index == summaries.count - 1)
    }
  }

  private mutating func add(_ error: LogError, in path: String, end: UInt64? = nil) {
    report.findings.append(
      VerificationFinding(
        kind: .damage, code: error.code, file: error.file ?? path, offset: error.offset ?? 0,
        end: end ?? error.offset.map { $0 + 1 } ?? 0, lsns: error.lsns, message: error.message))
  }

  private mutating func verify(
    _ summary: SegmentSummary, _ successor: OpeningBody?, isLast: Bool
  ) throws(LogError) {
    let file = try Recovery.openSegment(environment.fileSystem, summary.path)
    defer { file.close() }
    let size = try Recovery.sizeOf(file)
    try checkHeaderPage(file, summary.path)
    var walk = SegmentWalk(
      summary, file: file, limit: successor.map { min(size, UInt64($0.predecessorEnd)) } ?? size)
    walk.checksPadding = true
    walk.collectsEvents = false
    do {
      while true {
        let step = try walk.next()
        if case .transaction = step { report.events += UInt64(walk.transactionCount) }
        guard case .stop(let fault) = step else { continue }
        if let successor {
          try Recovery.checkSealed(walk, fault, successor)
        } else {
          try judgeTail(walk, size, isLast: isLast)
        }
        break
      }
    } catch  where error.code == .io || error.code == .fromTheFuture {
      throw error
    } catch {
      try addDamage(error, walk, summary, end: min(size, try acknowledgedEnd(walk, successor)))
    }
    if let offset = walk.paddingFault {
      add(
        .damaged(
          summary.path, at: UInt64(offset)..<UInt64(offset) + 1, lsns: nil, "the padding of a frame is not zero"),
        in: summary.path)
    }
    report.frames += walk.frames
    report.bytes += walk.scanner.bytesRead + UInt64(LogFormat.headerPageBytes)
    if isLast || successor == nil { report.lastLSN = max(report.lastLSN, walk.unitEnd.lsn) }
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
    let isHeld = isLast ? try directory.isHeld(environment.fileSystem) : false
    report.isHeldByWriter = report.isHeldByWriter || isHeld
    let verdict = try TailVerdict.judge(walk)
    report.bytes += verdict.bytesRead - walk.scanner.bytesRead
    guard verdict.bytesSetAside > 0, !isHeld else { return }
    let begin = UInt64(walk.settledEnd)
    report.findings.append(
      VerificationFinding(
        kind: .tornTail, code: .rejected, file: walk.path, offset: begin, end: begin + verdict.bytesSetAside,
        lsns: nil,
        message: "'\(walk.path)' ends in \(verdict.bytesSetAside) bytes at byte \(begin) that were never "
          + "acknowledged: its writer was interrupted; the next open for writing sets them aside"))
  }

  /// Up to where the bytes of a segment were acknowledged.
  private func acknowledgedEnd(_ walk: SegmentWalk, _ successor: OpeningBody?) throws(LogError) -> UInt64 {
    if let successor { return UInt64(successor.predecessorEnd) }
    let resync = try Resync.scan(
      walk.scanner.file, walk.path, identity: walk.scanner.identity, from: walk.scanner.offset)
    return UInt64(max(walk.openingEnd, resync.promise?.durableEnd ?? 0))
  }

  /// Reports a region that does not verify, and those behind it up to `end`.
  private mutating func addDamage(
    _ error: LogError, _ walk: SegmentWalk, _ summary: SegmentSummary, end: UInt64
  ) throws(LogError) {
    var begin = walk.scanner.offset
    var before = walk.unitEnd.lsn
    var error = error
    while true {
      guard let next = try nextFrame(walk.scanner.file, summary, after: begin, end: end) else {
        add(error, in: summary.path, end: max(begin, end))
        return
      }
      // The first LSN behind the damage bounds what it took.
      if next.lsn > before + 1 { error.lsns = before + 1...next.lsn - 1 }
      error.offset = begin
      add(error, in: summary.path, end: next.offset)
      var scanner = SegmentScanner(
        file: walk.scanner.file, path: summary.path, identity: summary.identity, from: next.offset, limit: end)
      while case .frame(let header, _, _) = try scanner.next() {
        report.frames += 1
        if header.type == FrameType.event.rawValue {
          report.events += 1
          before = header.lsn
        }
      }
      report.bytes += scanner.bytesRead
      begin = scanner.offset
      guard begin < end else { return }
      error = .damaged(
        summary.path, at: begin..<end, lsns: before + 1...before + 1, FrameFault.headCRC.rawValue)
    }
  }

  /// The next frame header that verifies behind `begin`.
  private func nextFrame(
    _ file: any File, _ summary: SegmentSummary, after begin: UInt64, end: UInt64
  ) throws(LogError) -> (offset: UInt64, lsn: UInt64)? {
    var offset = begin + UInt64(LogFormat.frameAlignment)
    let headerBytes = LogFormat.frameHeaderBytes
    while offset + UInt64(headerBytes) <= end {
      let chunk: [UInt8]
      do {
        chunk = try file.read(at: offset, count: Int(min(UInt64(LogFormat.readChunkBytes), end - offset)))
      } catch {
        throw .system("cannot read segment '\(summary.path)'", error, file: summary.path)
      }
      var at = 0
      while at + headerBytes <= chunk.count {
        if chunk.u32(at: at + LogFormat.FrameField.tag) == summary.identity.salt,
          case .success(let header) = FrameHeader.decode(
            chunk, at: at, offset: UInt32(offset) + UInt32(at), identity: summary.identity)
        {
          return (offset + UInt64(at), header.lsn)
        }
        at += LogFormat.frameAlignment
      }
      guard at > 0 else { return nil }
      offset += UInt64(at)
    }
    return nil
  }
}
