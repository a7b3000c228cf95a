// The segments of an undamaged log: what an open, for writing or for reading, makes of a survey.
//
// It throws the first problem of the survey. After that everything is there: MANIFEST, CONTROL, each segment's header
// and opening frame or the list's word for them, and where each but the last ends.

import StrandlineSystem

/// A segment of an undamaged log.
struct LogSegment: Sendable {
  let path: String
  let identity: SegmentIdentity
  /// The first LSN of its range.
  let firstLSN: UInt64
  /// What its first page says; nil if MANIFEST is believed about it.
  let summary: SegmentSummary?
  /// Where it ends; nil for the last one while no file says it.
  let end: SegmentEnd?

  var segmentID: UInt64 { identity.segmentID }

  /// - Returns: nil for one that could not be read.
  init?(_ segment: LogSurvey.Segment, of manifest: Manifest) {
    path = segment.path
    summary = segment.summary
    end = segment.end
    if let summary = segment.summary {
      identity = summary.identity
      firstLSN = summary.opening.firstLSN
    } else if segment.isBelieved, let entry = segment.entry {
      identity = SegmentIdentity(storeUUID: manifest.storeUUID, segmentID: entry.segmentID, salt: entry.salt)
      firstLSN = entry.firstLSN
    } else {
      return nil
    }
  }
}

/// The segments of a directory, in the order of the log.
struct SegmentList {
  let manifest: Manifest
  let control: ControlFile
  let segments: [LogSegment]
  /// On no list, of this store, and not continuing the log.
  let unplaced: [SegmentFacts]
  /// On no list, and part of the log all the same.
  let adopted: [UInt64]
  /// What another look at the directory need not read again.
  let known: KnownSegments

  /// Surveys a directory and takes no problem.
  ///
  /// - Parameters:
  ///   - role: refuse a log of another one; nil: any.
  ///   - writing: refuse what a reader of this version may read and a writer may not write beside.
  ///   - known: what was read before; it does not change.
  ///   - limit: MANIFEST is believed about finished segments that end below this LSN; is asked when MANIFEST was read.
  /// - Throws: `.damaged`, `.fromTheFuture`, `.foreignSegment`, `.missingSegment`, `.wrongRole`, `.io`.
  static func read(
    _ directory: StoreDirectory, _ files: StoreDirectory.Files, role: LogRole?,
    writing: Bool, known: KnownSegments, believing limit: (Manifest) -> UInt64
  ) throws(LogError) -> SegmentList {
    let survey = try LogSurvey(directory, files, known: known, believing: limit)
    if let problem = survey.listProblems.first { throw problem }
    guard let manifest = survey.manifest, let control = survey.control else {
      preconditionFailure("a survey without a problem has both lists")
    }
    if writing, manifest.readOnlyCompatibleBits != 0 { throw .readOnly(directory.manifest) }
    if let role, manifest.role != role {
      throw LogError(
        .wrongRole, "'\(directory.path)' is \(manifest.role.words), not \(role.words)", file: directory.manifest)
    }
    if let problem = survey.segmentProblems.first { throw problem }
    let segments = survey.segments.compactMap { LogSegment($0, of: manifest) }
    if writing {
      let refusing = survey.readOnlySegments.first
      if let path = refusing ?? segments.first(where: { $0.summary?.header.readOnlyCompatibleBits ?? 0 != 0 })?.path {
        throw .readOnly(path)
      }
    }
    return SegmentList(
      manifest: manifest, control: control, segments: segments, unplaced: survey.unplaced, adopted: survey.adopted,
      known: survey.known)
  }

  /// What CONTROL promises of a segment.
  func bound(of segmentID: UInt64) -> LogBound? {
    let bound = control.current.bound
    return bound.segmentID == segmentID ? bound : nil
  }

  /// Checks that the whole log, which ends with `lsn`, reaches what CONTROL promises: its end may have been removed.
  ///
  /// - Throws: `.missingSegment`.
  func checkBound(reached lsn: UInt64) throws(LogError) {
    guard let last = segments.last else { return }
    try control.checkBound(reached: lsn, path: last.path)
  }
}

extension ControlFile {
  /// - Throws: `.missingSegment` if the log in `path` ends below what is promised.
  func checkBound(reached lsn: UInt64, path: String) throws(LogError) {
    guard current.bound.lsn > lsn else { return }
    throw LogError(
      .missingSegment,
      "the log in '\(path)' ends with LSN \(lsn), but LSN \(current.bound.lsn) was durable; \(LogError.damageAdvice)",
      file: path, lsns: lsn + 1...current.bound.lsn)
  }
}
