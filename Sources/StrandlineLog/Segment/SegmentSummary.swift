// What the first page and the first frame of a segment say, and what the files of a directory say of each other.
//
// Both were synced before the file had its name, so both must verify. Every earlier segment is described by its
// successor's opening frame: who it is, where it ends, with which event. From these alone a missing, foreign or
// exchanged file is found before a single event is read.

import StrandlineSystem

/// A segment's header and opening frame.
package struct SegmentSummary: Sendable {
  package let path: String
  package let header: SegmentHeader
  package let opening: OpeningBody
  package let identity: SegmentIdentity
  package var segmentID: UInt64 { header.segmentID }

  /// Reads and checks them.
  static func read(
    _ fileSystem: any FileSystem, _ path: String, _ segmentID: UInt64
  ) throws(LogError) -> SegmentSummary {
    let start = LogFormat.headerPageBytes
    let count = start + LogFormat.openingFrameBytes
    let bytes: [UInt8]
    do {
      bytes = try fileSystem.open(path, .read).read(at: 0, count: count)
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    let header = try SegmentHeader.decode(bytes, file: path, named: segmentID)
    let identity = header.identity
    func damaged(_ what: String) -> LogError {
      .damaged(path, at: UInt64(start)..<UInt64(count), lsns: nil, what)
    }
    guard bytes.count == count else { throw damaged("the file ends inside its opening frame") }
    let frame: FrameHeader
    switch FrameHeader.decode(bytes, at: start, offset: UInt32(start), identity: identity) {
    case .failure(let error): throw damaged("its opening frame: \(error.fault.rawValue)")
    case .success(let decoded): frame = decoded
    }
    guard frame.type == FrameType.opening.rawValue, frame.flags == 0, frame.frameBytes == LogFormat.openingFrameBytes
    else { throw .fromTheFuture(path, at: UInt64(start), "it does not begin with an opening frame of this version") }
    guard frame.bodyMatches(bytes, at: start) else {
      throw damaged("its opening frame: \(FrameFault.bodyCRC.rawValue)")
    }
    guard
      let opening = OpeningBody.decode(
        bytes, at: start + LogFormat.frameHeaderBytes, count: frame.bodyLength)
    else { throw .fromTheFuture(path, at: UInt64(start), "its opening frame has another form") }
    guard opening.firstLSN == frame.lsn, opening.predecessorLastLSN < LogFormat.numberMax,
      opening.firstLSN == opening.predecessorLastLSN + 1,
      Int(opening.durableEnd) >= count, opening.predecessorID < segmentID,
      opening.predecessorID != 0
        || (opening.predecessorLastLSN == 0 && opening.predecessorEnd == 0 && opening.chain == 0)
    else { throw damaged("its opening frame contradicts itself") }
    return SegmentSummary(path: path, header: header, opening: opening, identity: identity)
  }
}

/// The segments of a directory, in the order of the log.
struct SegmentList {
  let summaries: [SegmentSummary]

  /// Reads the first page of every segment and holds them against each other.
  ///
  /// - Parameter writing: refuse what a reader of this version may read and a writer may not write beside.
  /// - Throws: `.damaged`, `.fromTheFuture`, `.foreignSegment`, `.missingSegment`, `.wrongRole`, `.io`.
  static func read(
    _ fileSystem: any FileSystem, _ directory: StoreDirectory, _ segmentIDs: [UInt64], role: LogRole?, writing: Bool
  ) throws(LogError) -> SegmentList {
    var summaries: [SegmentSummary] = []
    for segmentID in segmentIDs {
      let summary = try SegmentSummary.read(fileSystem, directory.segment(segmentID), segmentID)
      try check(summary, after: summaries.last, first: summaries.first, role: role, writing: writing)
      summaries.append(summary)
    }
    return SegmentList(summaries: summaries)
  }

  static func check(
    _ summary: SegmentSummary, after previous: SegmentSummary?, first: SegmentSummary?, role: LogRole?,
    writing: Bool
  ) throws(LogError) {
    let path = summary.path
    if writing, summary.header.readOnlyCompatibleBits != 0 {
      throw .fromTheFuture(
        path, at: UInt64(LogFormat.Header.readOnlyCompatibleBits), "this version may read it, but not write to it")
    }
    if let role, summary.header.role != role {
      throw LogError(
        .wrongRole, "'\(path)' is \(summary.header.role.words), not \(role.words)", file: path,
        offset: UInt64(LogFormat.Header.role))
    }
    if let first, first.header.storeUUID != summary.header.storeUUID {
      throw LogError(
        .foreignSegment,
        "'\(path)' is of another store than '\(first.path)'; \(LogError.innocentCauses)", file: path,
        offset: UInt64(LogFormat.Header.storeUUID))
    }
    let opening = summary.opening
    let before = previous?.segmentID ?? 0
    if opening.predecessorID > before {
      let lower = (previous?.opening.firstLSN ?? 1)
      throw LogError(
        .missingSegment,
        "'\(path)' continues segment \(opening.predecessorID), which is missing: "
          + "its events end with LSN \(opening.predecessorLastLSN); \(LogError.innocentCauses)", file: path,
        offset: UInt64(LogFormat.headerPageBytes),
        lsns: lower...max(lower, opening.predecessorLastLSN))
    }
    if opening.predecessorID < before {
      throw LogError(
        .foreignSegment,
        "'\(path)' continues segment \(opening.predecessorID), but segment \(before) stands between them: "
          + "the files are not of one history; \(LogError.innocentCauses)", file: path,
        offset: UInt64(LogFormat.headerPageBytes))
    }
  }

  /// Where the segment at `index` ends: as its successor says; nil for the last one.
  func sealedEnd(_ index: Int) -> OpeningBody? {
    index + 1 < summaries.count ? summaries[index + 1].opening : nil
  }
}
