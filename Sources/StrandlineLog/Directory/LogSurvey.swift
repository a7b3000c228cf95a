// What the files of a log's directory are and say of each other: facts and problems, without a verdict.
//
// A survey reads MANIFEST, CONTROL and the first page of segments, puts the segments in the order of the log, and
// holds against each other what the files say. It goes on behind a problem, so three policies stand on it: an open
// throws the first problem (`SegmentList`), `verify` reports them all and reads on (LogVerifier.swift), and a salvage
// takes what is left (Repair/SalvageParts.swift). Every event that is missing, foreign or exchanged as a whole file is
// found here, before a frame behind the first is read.
//
// An open that hands out no event of a finished segment believes MANIFEST about it: the file is there and has the bytes
// that are listed. So an open costs nearly the same with 6 and with 600 segments. The first read through such a segment
// checks it (Reading/SegmentFiles.swift). Rules: Formats/log.md, "Recovery".

import StrandlineSystem

/// The facts and problems of a directory.
struct LogSurvey {
  /// A segment that has a place in the log.
  struct Segment: Sendable {
    let segmentID: UInt64
    let path: String
    /// nil for one that is on no list and continues the log.
    var entry: ManifestEntry?
    /// nil if the file is missing.
    var facts: SegmentFacts?
    /// nil if it is believed, or if it cannot be read as a segment of this log; a problem says why.
    var summary: SegmentSummary?
    /// Its entry in MANIFEST stands for its first page, which was not read.
    var isBelieved = false
    /// Where it ends; nil for the last one while no file says it.
    var end: SegmentEnd?

    /// Whether `next` stands behind it, as far as it can be read.
    func isContinued(by next: SegmentSummary) -> Bool {
      summary.map { next.continues($0) } ?? (next.opening.predecessorID == segmentID)
    }
  }

  let directory: StoreDirectory
  /// nil if it does not verify.
  private(set) var manifest: Manifest?
  /// nil if it does not verify.
  private(set) var control: ControlFile?
  /// In the order of the log; without MANIFEST in the order of their IDs.
  private(set) var segments: [Segment] = []
  /// On no list, of this store, and without a place in the log as far as their first page says.
  private(set) var unplaced: [SegmentFacts] = []
  /// On no list, and part of the log all the same: their writer was interrupted before it listed them.
  private(set) var adopted: [UInt64] = []
  /// What is wrong with MANIFEST, CONTROL and names.
  private(set) var listProblems: [LogError] = []
  /// What is wrong with segments, in the order in which they were looked at.
  private(set) var segmentProblems: [LogError] = []
  /// Segments with features that a writer must know and this version does not.
  private(set) var readOnlySegments: [String] = []
  /// The IDs of all files that are named like segments.
  let present: Set<UInt64>
  /// What another look need not read again.
  private(set) var known = KnownSegments()

  /// Looks at the directory.
  ///
  /// - Parameters:
  ///   - files: what the directory has.
  ///   - known: what was read before; it does not change.
  ///   - limit: MANIFEST is believed about finished segments that end below this LSN, but for the last listed one.
  /// - Throws: `.io`: a byte that cannot be read is no fact, because it may be readable the next time.
  /// - Complexity: O(segments) reads of a page; of segments that are believed one look at the sizes of all.
  init(
    _ directory: StoreDirectory, _ files: StoreDirectory.Files,
    known: KnownSegments = KnownSegments(), believing limit: (Manifest) -> UInt64 = { _ in 0 }
  ) throws(LogError) {
    self.directory = directory
    present = Set(files.segmentIDs)
    for name in files.misnamed { listProblems.append(.misnamedSegment(directory.folder.path(of: name))) }
    // CONTROL first: its bound was true before the manifest that is read then.
    control = try noting(\.listProblems) { () throws(LogError) in try ControlFile.read(directory) }
    manifest = try noting(\.listProblems) { () throws(LogError) in try Manifest.read(directory) }
    if let manifest, let control, manifest.storeUUID != control.current.storeUUID {
      listProblems.append(
        .foreign(directory.control, at: 16, "it is of another store than '\(directory.manifest)'"))
    }
    let believed = Self.believed(manifest, below: manifest.map(limit) ?? 0)
    let sizes = try sizes(of: believed.filter { present.contains($0) && !known.sized.contains($0) })
    for entry in manifest?.entries ?? [] {
      var segment = Segment(segmentID: entry.segmentID, path: directory.segment(entry.segmentID), entry: entry)
      if !present.contains(entry.segmentID) {
        segmentProblems.append(missing(entry))
        segments.append(segment)
        continue
      }
      if let found = known.summaries[entry.segmentID], found.header.salt == entry.salt {
        segment.summary = found
      } else if believed.contains(entry.segmentID), let end = entry.end {
        segment.isBelieved = true
        if known.sized.contains(entry.segmentID) || isWhole(sizes[entry.segmentID], entry, end) {
          self.known.sized.insert(entry.segmentID)
        }
      } else {
        segment.facts = try SegmentFacts.read(directory.folder, entry.segmentID)
        check(&segment, entry)
      }
      append(segment)
    }
    let listed = Set(manifest?.entries.map(\.segmentID) ?? [])
    var unlisted: [Segment] = []
    for id in files.segmentIDs where !listed.contains(id) {
      var segment = Segment(segmentID: id, path: directory.segment(id))
      let found = try SegmentFacts.read(directory.folder, id)
      segment.facts = found
      segment.summary = found.summary
      if let problem = problem(ofUnlisted: found) { segmentProblems.append(problem) }
      if manifest == nil { append(segment) } else { unlisted.append(segment) }
    }
    let before = segments.count
    unplaced = chainOn(unlisted).compactMap(\.facts)
    adopted = segments[before...].map(\.segmentID)
    try findEnds()
    for segment in segments { self.known.summaries[segment.segmentID] = segment.summary }
  }

  // MARK: What is believed

  /// The segments about which the list alone is believed. Not the last one, after which the log goes on, and none
  /// behind one that has no end on the list: between them only their first pages say what follows what.
  private static func believed(_ manifest: Manifest?, below limit: UInt64) -> Set<UInt64> {
    guard let manifest else { return [] }
    var result: Set<UInt64> = []
    var isPreviousFinished = true
    for entry in manifest.entries.dropLast() {
      if let end = entry.end, isPreviousFinished, entry.firstLSN < limit, end.lastLSN < limit {
        result.insert(entry.segmentID)
      }
      isPreviousFinished = entry.end != nil
    }
    return result
  }

  /// The sizes of segments; none of one that vanished meanwhile.
  private func sizes(
    of segmentIDs: Set<UInt64>
  ) throws(LogError) -> [UInt64: UInt64] {
    guard !segmentIDs.isEmpty else { return [:] }
    let ids = segmentIDs.sorted()
    let sizes: [UInt64?]
    do {
      sizes = try directory.folder.sizes(of: ids.map(SegmentName.name))
    } catch {
      throw .system("cannot look at the segments of '\(directory.path)'", error, file: directory.path)
    }
    var result: [UInt64: UInt64] = [:]
    for (id, size) in zip(ids, sizes) { result[id] = size }
    return result
  }

  /// Whether a file has the bytes that the list says, and CONTROL no more; a problem says what is wrong.
  private mutating func isWhole(_ size: UInt64?, _ entry: ManifestEntry, _ end: SegmentEnd) -> Bool {
    let path = directory.segment(entry.segmentID)
    guard let size else {
      segmentProblems.append(missing(entry))
      return false
    }
    guard size >= UInt64(end.offset) else {
      segmentProblems.append(
        .damaged(
          path, at: size..<UInt64(end.offset), lsns: entry.lsns,
          "it has \(size) bytes, and '\(directory.manifest)' lists it with \(end.offset)"))
      return false
    }
    if let bound = control?.current.bound, bound.segmentID == entry.segmentID, bound.end > end.offset {
      segmentProblems.append(
        .damaged(
          path, at: UInt64(end.offset)..<UInt64(bound.end), lsns: nil,
          "it was promised up to byte \(bound.end), and it ends at byte \(end.offset)"))
      return false
    }
    return true
  }

  /// What `read` returns; nil, and a problem, if the bytes do not verify.
  private mutating func noting<Value>(
    _ problems: WritableKeyPath<LogSurvey, [LogError]>, _ read: () throws(LogError) -> Value
  ) throws(LogError) -> Value? {
    do throws(LogError) {
      return try read()
    } catch {
      guard error.code != .io else { throw error }
      self[keyPath: problems].append(error)
      return nil
    }
  }

  // MARK: One segment

  /// Whether a listed file is the one that was listed; gives the segment its summary if it is.
  private mutating func check(_ segment: inout Segment, _ entry: ManifestEntry) {
    guard let facts = segment.facts else { return }
    // First whose file it is: the frames of another store or segment do not verify under this one's identity.
    if let header = facts.header {
      if let problem = foreign(header, facts.path) {
        segmentProblems.append(problem)
        return
      }
      guard header.salt == entry.salt else {
        segmentProblems.append(
          .foreign(
            facts.path, at: UInt64(LogFormat.Header.salt),
            "it is another segment than the one that '\(directory.manifest)' lists"))
        return
      }
      if header.readOnlyCompatibleBits != 0 { readOnlySegments.append(facts.path) }
    }
    if let problem = facts.problem {
      segmentProblems.append(problem)
      return
    }
    guard let summary = facts.summary else { return }
    guard summary.opening.firstLSN == entry.firstLSN else {
      segmentProblems.append(
        .damaged(
          facts.path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(LogFormat.openingEnd), lsns: entry.lsns,
          "it begins with LSN \(summary.opening.firstLSN), and '\(directory.manifest)' lists it with LSN "
            + "\(entry.firstLSN)"))
      return
    }
    segment.summary = summary
  }

  private func foreign(_ header: SegmentHeader, _ path: String) -> LogError? {
    guard let manifest else { return nil }
    if header.role != manifest.role {
      return .foreign(
        path, at: UInt64(LogFormat.Header.role), "it is of \(header.role.words), not of \(manifest.role.words)")
    }
    if header.storeUUID != manifest.storeUUID {
      return .foreign(
        path, at: UInt64(LogFormat.Header.storeUUID), "it is of another store than its list of segments")
    }
    return nil
  }

  private func problem(ofUnlisted facts: SegmentFacts) -> LogError? {
    facts.header.flatMap { foreign($0, facts.path) } ?? facts.problem
  }

  private func missing(_ entry: ManifestEntry) -> LogError {
    let path = directory.segment(entry.segmentID)
    // A segment that was listed while it grew ends at the latest before the next one begins.
    let next = manifest?.entries.first { $0.firstLSN > entry.firstLSN }
    let last = max(entry.end?.lastLSN ?? 0, (next?.firstLSN ?? 1) - 1, entry.firstLSN)
    return .missing(path, lsns: entry.firstLSN...last, ": its events begin with LSN \(entry.firstLSN)")
  }

  // MARK: Their order

  /// Takes a segment behind those that are there, and says if it does not continue them.
  private mutating func append(_ segment: Segment) {
    defer { segments.append(segment) }
    if segment.isBelieved {
      checkListed(segment)
      return
    }
    guard let summary = segment.summary else { return }
    do throws(LogError) {
      if let last = segments.last, last.isBelieved, let end = last.entry?.end {
        try summary.check(afterListed: last.segmentID, end)
      } else if segments.isEmpty || segments.last?.summary != nil {
        // Neighbours that could not be read cannot be held against each other.
        try summary.check(after: segments.last?.summary)
      }
    } catch {
      segmentProblems.append(error)
    }
  }

  /// Whether the entry of a segment that is believed stands behind that of its predecessor.
  private mutating func checkListed(_ segment: Segment) {
    guard let entry = segment.entry else { return }
    let previous = segments.last?.entry
    guard (previous.map { $0.end?.lastLSN } ?? 0) != entry.firstLSN - 1 else { return }
    let before = previous.map { "segment \($0.segmentID), which ends with LSN \($0.end?.lastLSN ?? 0)" } ?? "nothing"
    segmentProblems.append(
      .damaged(
        directory.manifest, at: 0..<1, lsns: nil,
        "it lists segment \(entry.segmentID) with LSN \(entry.firstLSN) behind \(before)"))
  }

  /// Takes those of `candidates` that continue the log, in the order in which they do; returns the others.
  private mutating func chainOn(_ candidates: [Segment]) -> [Segment] {
    var rest = candidates
    while let last = segments.last,
      let index = rest.firstIndex(where: { $0.summary.map { last.isContinued(by: $0) } ?? false })
    {
      segments.append(rest.remove(at: index))
    }
    return rest
  }

  // MARK: Where a segment ends

  /// The one place that says where a segment ends. A rewritten one says it itself; else its successor says it; else
  /// MANIFEST does; else CONTROL does, if a seal stands there. All that say something must say the same. The last
  /// segment has no end while none of them does: then it is judged by TailRule.swift.
  private mutating func findEnds() throws(LogError) {
    for index in segments.indices {
      let segment = segments[index]
      guard let summary = segment.summary else {
        segments[index].end = segment.entry?.end
        if segment.isBelieved, let end = segments[index].end, index + 1 < segments.count,
          let next = segments[index + 1].summary, next.opening.predecessorID == segment.segmentID,
          next.predecessorEnd != end
        {
          segmentProblems.append(.contradiction(directory.manifest, segment.path, end, next.predecessorEnd))
        }
        continue
      }
      let next = index + 1 < segments.count ? segments[index + 1].summary : nil
      let successor = next.flatMap { $0.opening.predecessorID == segment.segmentID ? $0.predecessorEnd : nil }
      let listed = segment.entry?.end
      segments[index].end = summary.rewrittenEnd ?? successor ?? listed
      if let successor, let next, let end = segments[index].end, successor != end {
        segmentProblems.append(.contradiction(next.path, segment.path, successor, end))
      }
      if let listed, let end = segments[index].end, listed != end {
        segmentProblems.append(.contradiction(directory.manifest, segment.path, listed, end))
      }
      if summary.isRewritten, let entry = segment.entry, entry.end == nil {
        segmentProblems.append(
          .damaged(
            directory.manifest, at: 0..<1, lsns: nil, "it lists '\(segment.path)', which is complete, as growing"))
      }
    }
    guard let last = segments.last, last.end == nil, let summary = last.summary, let bound = control?.current.bound,
      bound.segmentID == last.segmentID
    else { return }
    let file = try SegmentFile.open(directory.folder, last.segmentID)
    defer { file.close() }
    guard let (seal, lsn) = try SegmentTrailer.seal(file, identity: summary.identity, end: bound.end),
      lsn == bound.lsn
    else { return }
    segments[segments.count - 1].end = SegmentEnd(offset: bound.end, lastLSN: lsn, chain: seal.contentChain)
  }
}

/// What a look at a directory has read, so that another look need not read it again: none of it changes.
struct KnownSegments: Sendable {
  var summaries: [UInt64: SegmentSummary] = [:]
  /// Segments that have the bytes with which MANIFEST lists them.
  var sized: Set<UInt64> = []
}

extension SegmentSummary {
  /// Whether it continues the log behind a segment of which only the list was read. Whether that one is rewritten is
  /// not known, so it counts as the next one by the LSN and the chain, which hold for both.
  ///
  /// - Throws: `.missingSegment`, `.foreignSegment`.
  func check(afterListed segmentID: UInt64, _ end: SegmentEnd) throws(LogError) {
    guard opening.predecessorLastLSN != end.lastLSN || opening.chain != end.chain else { return }
    guard opening.predecessorLastLSN > end.lastLSN else {
      throw .foreign(
        path, at: UInt64(LogFormat.headerPageBytes),
        "it continues LSN \(opening.predecessorLastLSN), but segment \(segmentID) before it ends with LSN "
          + "\(end.lastLSN): the files are not of one history")
    }
    throw LogError(
      .missingSegment,
      "'\(path)' continues LSN \(opening.predecessorLastLSN), but segment \(segmentID) before it ends with LSN "
        + "\(end.lastLSN); \(LogError.damageAdvice)", file: path, offset: UInt64(LogFormat.headerPageBytes),
      lsns: end.lastLSN + 1...opening.predecessorLastLSN)
  }

  /// Whether it continues the log behind `previous`.
  ///
  /// - Throws: `.missingSegment`, `.foreignSegment`.
  func check(after previous: SegmentSummary?) throws(LogError) {
    if let previous, continues(previous) { return }
    if previous == nil, opening.predecessorID == 0 { return }
    let offset = UInt64(LogFormat.headerPageBytes)
    let isMissing: Bool
    if let end = previous?.rewrittenEnd {
      isMissing = opening.predecessorLastLSN > end.lastLSN
    } else {
      isMissing = opening.predecessorID > previous?.segmentID ?? 0
    }
    guard isMissing else {
      throw .foreign(
        path, at: offset,
        "it continues segment \(opening.predecessorID), but segment \(previous?.segmentID ?? 0) stands before it: the "
          + "files are not of one history")
    }
    let lower = previous?.opening.firstLSN ?? 1
    throw LogError(
      .missingSegment,
      "'\(path)' continues segment \(opening.predecessorID), which is missing: "
        + "its events end with LSN \(opening.predecessorLastLSN); \(LogError.damageAdvice)", file: path,
      offset: offset, lsns: lower...max(lower, opening.predecessorLastLSN))
  }
}
