// What a salvage makes of a survey: which files a damaged log consists of, in its order, as far as MANIFEST, the headers,
// the opening frames and the frames themselves say. What one of them cannot say any more, another often can.
//
// A frame verifies only under its segment's identity: store, ID and salt. All three stand in the header and in
// MANIFEST, the ID in the file's name, the salt in the tag of every frame; so a header that is lost need not take its
// segment with it.

import StrandlineSystem

/// A segment of a damaged log.
struct SalvagePart: Sendable {
  let segmentID: UInt64
  let path: String
  /// nil if the file is missing, or nothing in it can be told to be this store's.
  var identity: SegmentIdentity?
  var kind: SegmentKind?
  /// nil if it does not verify.
  var opening: OpeningBody?
  var entry: ManifestEntry?
  var size: UInt64 = 0
  /// The first LSN in it, if a file says it.
  var firstLSN: UInt64? { opening?.firstLSN ?? entry?.firstLSN }
  var isRewritten: Bool { kind == .rewritten }
}

/// All of them.
struct SalvageParts: Sendable {
  var parts: [SalvagePart] = []
  var damages: [SalvageDamage] = []
  var strays: [String] = []
  var storeUUID: [UInt8] = []
  var role = LogRole.store
  var bound: LogBound?

  /// Looks at the directory. Reads first pages alone, unless a segment's identity has to be found out.
  ///
  /// - Throws: `.absent`, `.notAStore`, `.fromTheFuture`, `.foreignSegment` (which of the files are this log's is for a
  ///   person to say), `.io` (an unreadable byte is an error here, never a gap), `.damaged` if nothing says what the files
  ///   are.
  static func find(_ directory: StoreDirectory) throws(LogError) -> SalvageParts {
    let survey = try LogSurvey(directory, try files(directory))
    let problems = survey.listProblems + survey.segmentProblems
    if let future = problems.first(where: { $0.code == .fromTheFuture }) { throw future }
    if let first = problems.first, first.code == .foreignSegment { throw first.notSalvaged }
    let facts = survey.segments.compactMap(\.facts)
    let control = survey.control?.current
    guard let (uuid, role) = owner(survey.manifest, control, facts) else {
      throw .damaged(
        directory.path, at: 0..<1, lsns: nil,
        "neither the list of segments nor the header of any segment verifies, so nothing in it can be told apart")
    }
    var result = SalvageParts(storeUUID: uuid, role: role)
    for (name, isWhole) in [
      (LogFormat.manifestName, survey.manifest != nil), (LogFormat.controlName, control?.storeUUID == uuid),
    ] where !isWhole {
      let path = directory.folder.path(of: name)
      let isForeign = name == LogFormat.controlName && control != nil
      let size = try size(of: name, directory.folder)
      result.damages.append(
        SalvageDamage(
          file: path, bytes: 0..<size,
          words: isForeign ? "it is of another store" : size == 0 ? "it is missing or empty" : "it does not verify"))
    }
    if let control, control.storeUUID == uuid { result.bound = control.bound }
    var unlisted: [SalvagePart] = []
    for segment in survey.segments {
      let part = try result.part(segment, directory.folder)
      if survey.manifest == nil { unlisted.append(part) } else { result.parts.append(part) }
    }
    result.placeByLSN(unlisted)
    result.strays = survey.unplaced.map(\.path)
    return result
  }

  private static func files(_ directory: StoreDirectory) throws(LogError) -> StoreDirectory.Files {
    let path = directory.path
    var found: StoreDirectory.Files?
    do throws(LogError) {
      found = try directory.filesIfAny()
    } catch {
      guard error.code == .notEmptyDirectory || error.code == .notAStore else { throw error }
    }
    guard let files = found else {
      throw LogError(
        .notAStore, "'\(path)' has neither a list of segments nor a segment: there is nothing to repair", file: path)
    }
    return files
  }

  private static func size(of name: String, _ folder: any Folder) throws(LogError) -> UInt64 {
    do {
      let file = try folder.open(name, .read)
      defer { file.close() }
      return try file.size()
    } catch  where error.isAbsent {
      return 0
    } catch {
      throw .system("cannot read '\(folder.path(of: name))'", error, file: folder.path(of: name))
    }
  }

  /// Whose log this is: MANIFEST says it, else most headers (and CONTROL) do.
  private static func owner(
    _ manifest: Manifest?, _ control: Control?, _ files: [SegmentFacts]
  ) -> (storeUUID: [UInt8], role: LogRole)? {
    if let manifest { return (manifest.storeUUID, manifest.role) }
    var votes: [[UInt8]: Int] = [:]
    for file in files { if let header = file.header { votes[header.storeUUID, default: 0] += 1 } }
    if let control, votes[control.storeUUID] != nil { votes[control.storeUUID, default: 0] += 1 }
    // Of two with as many the one that comes first.
    var most: SegmentHeader?
    for file in files {
      guard let header = file.header else { continue }
      if let known = most, votes[known.storeUUID, default: 0] >= votes[header.storeUUID, default: 0] { continue }
      most = header
    }
    return most.map { ($0.storeUUID, $0.role) }
  }

  /// A segment's part of the log.
  private mutating func part(
    _ segment: LogSurvey.Segment, _ folder: any Folder
  ) throws(LogError) -> SalvagePart {
    var part = SalvagePart(segmentID: segment.segmentID, path: segment.path, entry: segment.entry)
    guard let facts = segment.facts else {
      damages.append(SalvageDamage(file: segment.path, bytes: 0..<0, words: "the file is missing"))
      return part
    }
    part.size = facts.size
    if let header = facts.header {
      guard header.storeUUID == storeUUID, header.role == role, segment.entry.map({ $0.salt == header.salt }) ?? true
      else {
        damages.append(
          SalvageDamage(file: facts.path, bytes: 0..<facts.size, words: "it is another segment than the one meant"))
        return part
      }
      part.identity = header.identity
      part.kind = header.kind
    } else {
      damages.append(
        SalvageDamage(
          file: facts.path, bytes: 0..<min(facts.size, UInt64(LogFormat.headerPageBytes)),
          words: "its header"))
      part.identity = try identity(of: facts, segment.entry, folder)
      if part.identity == nil {
        damages[damages.count - 1].bytes = 0..<facts.size
        damages[damages.count - 1].words += ", and nothing in it verifies without it"
        return part
      }
    }
    if let opening = facts.opening {
      part.opening = opening
    } else if let identity = part.identity,
      case .success(let opening) = SegmentFacts.decodeOpening(
        facts.firstBytes, identity), opening.firstLSN < LogFormat.numberMax, opening.rangeLastLSN < LogFormat.numberMax,
      opening.firstLSN > 0
    {
      part.opening = opening
      // Without its header: a rewritten segment is the one that says a range.
      if part.kind == nil, opening.rangeLastLSN > 0 { part.kind = .rewritten }
    }
    return part
  }

  /// The identity under which a frame of the file verifies, whose header does not.
  private func identity(
    of facts: SegmentFacts, _ entry: ManifestEntry?, _ folder: any Folder
  ) throws(LogError) -> SegmentIdentity? {
    var salts: [UInt32] = []
    if let entry { salts.append(entry.salt) }
    for at in [LogFormat.headerPageBytes + LogFormat.FrameField.tag, LogFormat.Header.salt]
    where at + 4 <= facts.firstBytes.count {
      salts.append(facts.firstBytes.u32(at: at))
    }
    let segment = try SegmentFile.open(folder, facts.segmentID)
    defer { segment.close() }
    for salt in salts where salt != 0 {
      let identity = SegmentIdentity(storeUUID: storeUUID, segmentID: facts.segmentID, salt: salt)
      let page = UInt64(LogFormat.headerPageBytes)
      let first = try SegmentScanner.firstFrame(of: segment, identity: identity, in: page..<max(page, facts.size))
      if first != nil { return identity }
    }
    return nil
  }

  /// Puts segments in their place without a list.
  private mutating func placeByLSN(_ unlisted: [SalvagePart]) {
    // By their first LSN; of two that begin alike the rewritten one stands for the other, or the later for the earlier.
    func precedes(_ left: SalvagePart, _ right: SalvagePart) -> Bool {
      let (first, second) = (left.firstLSN ?? .max, right.firstLSN ?? .max)
      if first != second { return first < second }
      if left.isRewritten != right.isRewritten { return left.isRewritten }
      return left.firstLSN == nil ? left.segmentID < right.segmentID : left.segmentID > right.segmentID
    }
    // A segment that lost its opening frame too stands where its ID puts it: writers count up.
    for part in unlisted.filter({ $0.firstLSN != nil }).sorted(by: precedes) { parts.append(part) }
    for part in unlisted where part.firstLSN == nil {
      parts.insert(part, at: parts.firstIndex { $0.segmentID > part.segmentID } ?? parts.count)
    }
  }
}
