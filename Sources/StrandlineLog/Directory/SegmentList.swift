// The segments of an undamaged log: what an open, for writing or for reading, makes of a survey.
//
// It throws the first problem of the survey. After that everything is there: MANIFEST, CONTROL, each segment's header
// and opening frame, and where each but the last ends.

import StrandlineSystem

/// The segments of a directory, in the order of the log.
struct SegmentList {
  let manifest: Manifest
  let control: ControlFile
  let summaries: [SegmentSummary]
  /// Where each ends; nil for the last one while no file says it.
  let ends: [SegmentEnd?]
  /// Listed, prepared and not in use.
  let unopened: [UInt64]
  /// On no list, of this store, and not continuing the log.
  let unplaced: [SegmentFacts]
  /// On no list, and part of the log all the same.
  let adopted: [UInt64]

  /// Surveys a directory and takes no problem.
  ///
  /// - Parameters:
  ///   - role: refuse a log of another one; nil: any.
  ///   - writing: refuse what a reader of this version may read and a writer may not write beside.
  ///   - untilUnwritten: whether the first chunk of zeros proves that a prepared segment is not in use.
  ///   - known: summaries that were read before; what they say does not change.
  /// - Throws: `.damaged`, `.fromTheFuture`, `.foreignSegment`, `.missingSegment`, `.wrongRole`, `.io`.
  static func read(
    _ fileSystem: any FileSystem, _ directory: StoreDirectory, _ files: StoreDirectory.Files, role: LogRole?,
    writing: Bool, untilUnwritten: Bool, known: [UInt64: SegmentSummary] = [:]
  ) throws(LogError) -> SegmentList {
    let survey = try LogSurvey(fileSystem, directory, files, known: known, untilUnwritten: untilUnwritten)
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
    let summaries = survey.segments.compactMap(\.summary)
    if writing {
      let refusing = survey.readOnlySegments.first
      if let path = refusing ?? summaries.first(where: { $0.header.readOnlyCompatibleBits != 0 })?.path {
        throw .readOnly(path)
      }
    }
    return SegmentList(
      manifest: manifest, control: control, summaries: summaries, ends: survey.segments.map(\.end),
      unopened: survey.unopened, unplaced: survey.unplaced, adopted: survey.adopted)
  }

  /// What another look at the directory need not read again.
  var known: [UInt64: SegmentSummary] { Dictionary(uniqueKeysWithValues: summaries.map { ($0.segmentID, $0) }) }

  /// What CONTROL promises of a segment.
  func bound(of segmentID: UInt64) -> LogBound? {
    let bound = control.current.bound
    return bound.segmentID == segmentID ? bound : nil
  }

  /// Checks that the whole log, which ends with `lsn`, reaches what CONTROL promises: its end may have been removed.
  ///
  /// - Throws: `.missingSegment`.
  func checkBound(reached lsn: UInt64) throws(LogError) {
    guard let last = summaries.last else { return }
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
