// What the first page and the first frame of a segment say, and what the files of a directory say of each other.
//
// The header was synced before the file had its name, so it must verify; so must the opening frame, unless the segment
// was made ahead: then it came with the first group, and without it nobody has used the segment yet. Every earlier
// segment is described by its successor's opening frame: who it is, where it ends, with which event. From these alone
// a missing, foreign or exchanged file is found before a single event is read.

import StrandlineSystem

/// A segment's header and opening frame.
package struct SegmentSummary: Sendable {
  package let path: String
  package let header: SegmentHeader
  package let opening: OpeningBody
  package let identity: SegmentIdentity
  package var segmentID: UInt64 { header.segmentID }

  /// Reads and checks them.
  ///
  /// - Parameter untilUnwritten: whether the first chunk of zeros proves that a segment that was made ahead is not
  ///   in use; for a reader that comes by often.
  /// - Returns: nil for a segment that was made ahead and is not in use.
  static func read(
    _ fileSystem: any FileSystem, _ path: String, _ segmentID: UInt64, untilUnwritten: Bool
  ) throws(LogError) -> SegmentSummary? {
    let start = LogFormat.headerPageBytes
    let count = start + LogFormat.openingFrameBytes
    let file = try Recovery.openSegment(fileSystem, path)
    defer { file.close() }
    let bytes: [UInt8]
    do {
      bytes = try file.read(at: 0, count: count)
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    let header = try SegmentHeader.decode(bytes, file: path, named: segmentID)
    do {
      return try opened(bytes, header, path)
    } catch  where header.isPrepared && error.code == .damaged {
      // Its opening frame goes into its first group. Without one that verifies it is unused, unless something in it
      // was promised: then the frame was there.
      let resync = try Resync.scan(
        file, path, identity: header.identity, from: UInt64(start), untilUnwritten: untilUnwritten)
      guard resync.promise == nil else { throw error }
      return nil
    }
  }

  private static func opened(
    _ bytes: [UInt8], _ header: SegmentHeader, _ path: String
  ) throws(LogError) -> SegmentSummary {
    let start = LogFormat.headerPageBytes
    let count = start + LogFormat.openingFrameBytes
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
      opening.firstLSN == opening.predecessorLastLSN + 1, opening.predecessorID < LogFormat.numberMax,
      opening.predecessorID != 0
        || (opening.predecessorLastLSN == 0 && opening.predecessorEnd == 0 && opening.chain == 0)
    else { throw damaged("its opening frame contradicts itself") }
    switch opening.kind {
    case .live:
      guard opening.rangeLastLSN == 0, opening.rangeChain == 0,
        header.isPrepared ? opening.durableEnd == 0 : Int(opening.durableEnd) >= count
      else { throw damaged("its opening frame contradicts itself") }
    case .rewritten:
      guard opening.rangeLastLSN >= opening.predecessorLastLSN, opening.rangeLastLSN < LogFormat.numberMax,
        !header.isPrepared, Int(opening.durableEnd) >= count
      else { throw damaged("its opening frame contradicts itself") }
    }
    return SegmentSummary(path: path, header: header, opening: opening, identity: identity)
  }

  /// What ends it, if it was written as a whole or has a successor.
  func sealedEnd(before next: SegmentSummary?) -> SegmentEnd? {
    switch opening.kind {
    case .rewritten:
      return SegmentEnd(offset: opening.durableEnd, lastLSN: opening.rangeLastLSN, chain: opening.rangeChain)
    case .live:
      guard let next else { return nil }
      return SegmentEnd(
        offset: next.opening.predecessorEnd, lastLSN: next.opening.predecessorLastLSN, chain: next.opening.chain)
    }
  }
}

/// Where a segment ends, said by somebody who knew.
struct SegmentEnd: Hashable, Sendable {
  var offset: UInt32
  var lastLSN: UInt64
  var chain: UInt32
}

/// The segments of a directory, in the order of the log, and what else lies there.
struct SegmentList {
  var manifest: Manifest
  var control: Control
  var summaries: [SegmentSummary] = []
  /// Listed, made ahead and not in use.
  var unopened: [UInt64] = []
  /// Not listed, of this store, and without a place in its history.
  var strays: [UInt64] = []
  /// Not listed, and part of the log all the same.
  var adopted: [UInt64] = []

  /// Reads MANIFEST, CONTROL and the first page of every segment, and holds them against each other.
  ///
  /// - Parameters:
  ///   - segmentIDs: what the directory has.
  ///   - isThorough: look through all of a segment that was made ahead; nil: when writing.
  ///   - known: summaries that were read before; what they say does not change.
  ///   - writing: refuse what a reader of this version may read and a writer may not write beside.
  /// - Throws: `.damaged`, `.fromTheFuture`, `.foreignSegment`, `.missingSegment`, `.wrongRole`, `.io`.
  static func read(
    _ fileSystem: any FileSystem, _ directory: StoreDirectory, _ segmentIDs: [UInt64], role: LogRole?, writing: Bool,
    isThorough: Bool? = nil, known: [UInt64: SegmentSummary] = [:]
  ) throws(LogError) -> SegmentList {
    let untilUnwritten = !(isThorough ?? writing)
    // CONTROL first: its bounds were true before the manifest that is read then.
    let control = try Control.read(fileSystem, directory)
    let manifest = try Manifest.read(fileSystem, directory)
    try checkOwner(manifest, control, directory, role: role, writing: writing)
    var list = SegmentList(manifest: manifest, control: control)
    let present = Set(segmentIDs)
    var opened: [SegmentSummary] = []
    for entry in manifest.entries {
      guard present.contains(entry.segmentID) else { throw missing(entry, manifest, directory) }
      let found = known[entry.segmentID]
      let summary =
        if let found, found.header.salt == entry.salt { found } else {
          try SegmentSummary.read(
            fileSystem, directory.segment(entry.segmentID), entry.segmentID, untilUnwritten: untilUnwritten)
        }
      guard let summary else {
        // Unused; but not if the list or CONTROL knows of events in it.
        guard entry.end == 0, control.tailSegmentID != entry.segmentID else {
          throw .damaged(
            directory.segment(entry.segmentID),
            at: UInt64(LogFormat.headerPageBytes)..<UInt64(LogFormat.headerPageBytes + LogFormat.openingFrameBytes),
            lsns: entry.firstLSN...max(entry.firstLSN, entry.lastLSN), "its opening frame does not verify")
        }
        list.unopened.append(entry.segmentID)
        continue
      }
      try list.checkListed(summary, entry, writing: writing)
      switch entry.state {
      case .used: try list.append(summary)
      case .prepared: opened.append(summary)
      }
    }
    for summary in list.chainOn(opened) {
      try Self.check(summary, after: list.summaries.last)
      throw .damaged(
        summary.path, at: 0..<1, lsns: nil, "it does not continue the segments that are listed before it")
    }
    let listed = Set(manifest.entries.map(\.segmentID)).union(manifest.obsolete)
    var unlisted: [SegmentSummary] = []
    for id in segmentIDs where !listed.contains(id) {
      let path = directory.segment(id)
      guard let summary = try SegmentSummary.read(fileSystem, path, id, untilUnwritten: untilUnwritten) else {
        list.strays.append(id)
        continue
      }
      try list.checkIdentity(summary)
      unlisted.append(summary)
    }
    let before = list.summaries.count
    list.strays += list.chainOn(unlisted).map(\.segmentID)
    list.adopted = list.summaries[before...].map(\.segmentID)
    guard !list.summaries.isEmpty else {
      throw nothingOpened(directory)
    }
    return list
  }

  /// A store's first segment is never made ahead: without one in use something is gone.
  static func nothingOpened(_ directory: StoreDirectory) -> LogError {
    .damaged(directory.manifest, at: 0..<1, lsns: nil, "none of the segments that it lists has been opened")
  }

  private mutating func append(_ summary: SegmentSummary) throws(LogError) {
    try Self.check(summary, after: summaries.last)
    summaries.append(summary)
  }

  /// Takes those of `candidates` that continue the log, in the order in which they do; returns the others.
  private mutating func chainOn(_ candidates: [SegmentSummary]) -> [SegmentSummary] {
    var rest = candidates
    while let index = rest.firstIndex(where: { Self.continues($0, summaries.last) }) {
      summaries.append(rest.remove(at: index))
    }
    return rest
  }

  private static func continues(_ summary: SegmentSummary, _ last: SegmentSummary?) -> Bool {
    guard let last else { return false }
    if last.opening.kind == .rewritten {
      return summary.opening.predecessorLastLSN == last.opening.rangeLastLSN
        && summary.opening.chain == last.opening.rangeChain
    }
    return summary.opening.predecessorID == last.segmentID
  }

  private static func missing(_ entry: ManifestEntry, _ manifest: Manifest, _ directory: StoreDirectory) -> LogError {
    let path = directory.segment(entry.segmentID)
    // A segment that was listed while it grew ends at the latest before the next one begins.
    let next = manifest.entries.first { $0.firstLSN > entry.firstLSN }
    let last = max(entry.lastLSN, (next?.firstLSN ?? 1) - 1, entry.firstLSN)
    let lsns = entry.state == .used ? entry.firstLSN...last : nil
    return LogError(
      .missingSegment,
      "'\(path)' is missing\(lsns.map { ": its events begin with LSN \($0.lowerBound)" } ?? ""); "
        + LogError.innocentCauses, file: path, lsns: lsns)
  }

  private static func checkOwner(
    _ manifest: Manifest, _ control: Control, _ directory: StoreDirectory, role: LogRole?, writing: Bool
  ) throws(LogError) {
    if writing, manifest.readOnlyCompatibleBits != 0 {
      throw .fromTheFuture(
        directory.manifest, at: UInt64(LogFormat.Header.readOnlyCompatibleBits),
        "this version may read it, but not write to it")
    }
    if let role, manifest.role != role {
      throw LogError(
        .wrongRole, "'\(directory.path)' is \(manifest.role.words), not \(role.words)", file: directory.manifest)
    }
    guard control.storeUUID == manifest.storeUUID else {
      throw LogError(
        .foreignSegment,
        "'\(directory.control)' is of another store than '\(directory.manifest)'; \(LogError.innocentCauses)",
        file: directory.control, offset: 16)
    }
  }

  /// Whether a listed file is the one that was listed.
  private func checkListed(_ summary: SegmentSummary, _ entry: ManifestEntry, writing: Bool) throws(LogError) {
    try checkIdentity(summary)
    let path = summary.path
    if writing, summary.header.readOnlyCompatibleBits != 0 {
      throw .fromTheFuture(
        path, at: UInt64(LogFormat.Header.readOnlyCompatibleBits), "this version may read it, but not write to it")
    }
    guard summary.header.salt == entry.salt,
      entry.state == .prepared || summary.opening.firstLSN == entry.firstLSN
    else {
      throw LogError(
        .foreignSegment,
        "'\(path)' is another segment than the one that the list of segments means; \(LogError.innocentCauses)",
        file: path, offset: UInt64(LogFormat.Header.salt))
    }
  }

  private func checkIdentity(_ summary: SegmentSummary) throws(LogError) {
    let path = summary.path
    guard summary.header.role == manifest.role else {
      throw LogError(
        .wrongRole, "'\(path)' is \(summary.header.role.words), not \(manifest.role.words)", file: path,
        offset: UInt64(LogFormat.Header.role))
    }
    guard summary.header.storeUUID == manifest.storeUUID else {
      throw LogError(
        .foreignSegment, "'\(path)' is of another store than its list of segments; \(LogError.innocentCauses)",
        file: path, offset: UInt64(LogFormat.Header.storeUUID))
    }
  }

  /// Whether `summary` continues the log behind `previous`.
  static func check(_ summary: SegmentSummary, after previous: SegmentSummary?) throws(LogError) {
    let opening = summary.opening
    let path = summary.path
    let offset = UInt64(LogFormat.headerPageBytes)
    if let previous, continues(summary, previous) { return }
    if previous == nil, opening.predecessorID == 0 { return }
    let isMissing: Bool
    if let previous, previous.opening.kind == .rewritten {
      isMissing = opening.predecessorLastLSN > previous.opening.rangeLastLSN
    } else {
      isMissing = opening.predecessorID > previous?.segmentID ?? 0
    }
    guard isMissing else {
      throw LogError(
        .foreignSegment,
        "'\(path)' continues segment \(opening.predecessorID), but segment \(previous?.segmentID ?? 0) stands "
          + "before it: the files are not of one history; \(LogError.innocentCauses)", file: path, offset: offset)
    }
    let lower = previous?.opening.firstLSN ?? 1
    throw LogError(
      .missingSegment,
      "'\(path)' continues segment \(opening.predecessorID), which is missing: "
        + "its events end with LSN \(opening.predecessorLastLSN); \(LogError.innocentCauses)", file: path,
      offset: offset, lsns: lower...max(lower, opening.predecessorLastLSN))
  }

  /// What another look at the directory need not read again.
  var known: [UInt64: SegmentSummary] { Dictionary(uniqueKeysWithValues: summaries.map { ($0.segmentID, $0) }) }

  /// Where the segment at `index` ends: as its successor says, or it itself; nil for a tail.
  func sealedEnd(_ index: Int) -> SegmentEnd? {
    summaries[index].sealedEnd(before: index + 1 < summaries.count ? summaries[index + 1] : nil)
  }

  /// What CONTROL promises of a segment.
  func bound(of summary: SegmentSummary) -> SegmentBound? {
    guard control.tailSegmentID == summary.segmentID else { return nil }
    return SegmentBound(end: control.durableEnd, lsn: control.durableLSN)
  }

  /// CONTROL's bound holds for the whole log too: its end may have been removed.
  func checkBound(reached lsn: UInt64) throws(LogError) {
    guard control.durableLSN > lsn, let last = summaries.last else { return }
    throw LogError(
      .missingSegment,
      "the log in '\(last.path)' ends with LSN \(lsn), but LSN \(control.durableLSN) was durable; "
        + LogError.innocentCauses, file: last.path, lsns: lsn + 1...control.durableLSN)
  }
}
