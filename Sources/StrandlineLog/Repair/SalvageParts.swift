// Which files a damaged log consists of, in its order: as far as MANIFEST, the headers, the opening frames and the
// frames themselves say. What one of them cannot say any more, another often can.
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
  /// nil if it does not verify.
  var opening: OpeningBody?
  var entry: ManifestEntry?
  var size: UInt64 = 0
  var isMissing = false
  /// The first LSN in it, if anybody says.
  var firstLSN: UInt64? { opening?.firstLSN ?? entry.flatMap { $0.firstLSN > 0 ? $0.firstLSN : nil } }
}

/// All of them.
struct SalvageParts: Sendable {
  var parts: [SalvagePart] = []
  var damages: [SalvageDamage] = []
  var strays: [String] = []
  var storeUUID: [UInt8] = []
  var role = LogRole.store
  var control: Control?

  private struct Found {
    var id: UInt64
    var path: String
    var size: UInt64
    /// The header's page and the opening frame, as far as they are there.
    var bytes: [UInt8]
    var header: SegmentHeader?
    var error: LogError?
  }

  /// Looks at the directory. Reads first pages alone, unless a segment's identity has to be found out.
  ///
  /// - Throws: `.absent`, `.notAStore`, `.fromTheFuture`, `.io` (an unreadable byte is an error here, never a gap),
  ///   `.damaged` if nothing says what the files are.
  static func find(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(LogError) -> SalvageParts {
    var result = SalvageParts()
    let ids = try segmentIDs(fileSystem, directory)
    let manifest = try result.reading(directory.manifest, fileSystem) { () throws(LogError) in
      try Manifest.read(fileSystem, directory)
    }
    var control = try result.reading(directory.control, fileSystem) { () throws(LogError) in
      try Control.read(fileSystem, directory)
    }
    var found: [Found] = []
    for id in ids { found.append(try look(fileSystem, directory.segment(id), id)) }
    guard let (uuid, role) = owner(manifest, control, found) else {
      throw .damaged(
        directory.path, at: 0..<1, lsns: nil,
        "neither the list of segments nor the header of any segment verifies, so nothing in it can be told apart")
    }
    (result.storeUUID, result.role) = (uuid, role)
    if let other = control, other.storeUUID != uuid {
      result.damages.append(
        SalvageDamage(
          file: directory.control, bytes: 0..<(try size(fileSystem, directory.control)), words: "it is of another store"
        ))
      control = nil
    }
    result.control = control
    let files = Dictionary(uniqueKeysWithValues: found.map { ($0.id, $0) })
    let obsolete = Set(manifest?.obsolete ?? [])
    for entry in manifest?.entries ?? [] {
      guard let file = files[entry.segmentID] else {
        result.addMissing(directory.segment(entry.segmentID), entry)
        continue
      }
      if let part = try result.part(file, entry, fileSystem) { result.parts.append(part) }
    }
    let listed = Set(manifest?.entries.map(\.segmentID) ?? []).union(obsolete)
    var unlisted: [SalvagePart] = []
    for file in found where !listed.contains(file.id) {
      guard manifest == nil || file.header?.storeUUID == uuid else {
        result.strays.append(file.path)
        continue
      }
      if let part = try result.part(file, nil, fileSystem) { unlisted.append(part) }
    }
    result.place(unlisted, isListed: manifest != nil)
    return result
  }

  private static func segmentIDs(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(LogError) -> [UInt64]
  {
    let path = directory.path
    let names: [String]
    do {
      switch try fileSystem.kind(of: path) {
      case .absent: throw LogError(.absent, "there is no store at '\(path)'", file: path)
      case .directory: names = try fileSystem.list(path)
      case .file, .other:
        throw LogError(.notAStore, "'\(path)' is not a folder, and a store is one; give another path", file: path)
      }
    } catch let error as LogError {
      throw error
    } catch let error as SystemError {
      throw .system("cannot look at '\(path)'", error, file: path)
    } catch {
      preconditionFailure("a disk throws its own errors alone")
    }
    let ids = names.compactMap(SegmentName.segmentID(of:)).filter { 1..<LogFormat.numberMax ~= $0 }.sorted()
    guard !ids.isEmpty else {
      throw LogError(
        .notAStore, "'\(path)' has no segment (a file named by 16 hex digits and .seg): there is nothing to repair",
        file: path)
    }
    return ids
  }

  /// What `read` returns; nil, and the whole file a damage, if it does not verify.
  private mutating func reading<Value>(
    _ path: String, _ fileSystem: any FileSystem, _ read: () throws(LogError) -> Value
  ) throws(LogError) -> Value? {
    do throws(LogError) {
      return try read()
    } catch {
      guard error.code == .damaged else { throw error }
      let size = try Self.size(fileSystem, path)
      damages.append(
        SalvageDamage(file: path, bytes: 0..<size, words: size == 0 ? "it is missing or empty" : "it does not verify"))
      return nil
    }
  }

  private static func size(_ fileSystem: any FileSystem, _ path: String) throws(LogError) -> UInt64 {
    do {
      let file = try fileSystem.open(path, .read)
      defer { file.close() }
      return try file.size()
    } catch  where error.isAbsent {
      return 0
    } catch {
      throw .system("cannot read '\(path)'", error, file: path)
    }
  }

  private static func look(_ fileSystem: any FileSystem, _ path: String, _ id: UInt64) throws(LogError) -> Found {
    let file = try Recovery.openSegment(fileSystem, path)
    defer { file.close() }
    var found: Found
    do {
      found = Found(
        id: id, path: path, size: try file.size(),
        bytes: try file.read(at: 0, count: LogFormat.headerPageBytes + LogFormat.openingFrameBytes))
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    do throws(LogError) {
      found.header = try SegmentHeader.decode(found.bytes, file: path, named: id)
    } catch {
      guard error.code == .damaged || error.code == .foreignSegment else { throw error }
      found.error = error
    }
    return found
  }

  /// Whose log this is: MANIFEST's word, else that of most headers (and of CONTROL).
  private static func owner(
    _ manifest: Manifest?, _ control: Control?, _ found: [Found]
  ) -> (storeUUID: [UInt8], role: LogRole)? {
    if let manifest { return (manifest.storeUUID, manifest.role) }
    var votes: [[UInt8]: Int] = [:]
    for file in found { if let header = file.header { votes[header.storeUUID, default: 0] += 1 } }
    if let control, votes[control.storeUUID] != nil { votes[control.storeUUID, default: 0] += 1 }
    // Of two with as many the one that comes first.
    var most: SegmentHeader?
    for file in found {
      guard let header = file.header else { continue }
      if let known = most, votes[known.storeUUID, default: 0] >= votes[header.storeUUID, default: 0] { continue }
      most = header
    }
    return most.map { ($0.storeUUID, $0.role) }
  }

  private mutating func addMissing(_ path: String, _ entry: ManifestEntry) {
    // Made ahead and not used: nothing was in it as far as the list knows.
    guard entry.state == .used else { return }
    damages.append(SalvageDamage(file: path, bytes: 0..<0, words: "the file is missing"))
    parts.append(SalvagePart(segmentID: entry.segmentID, path: path, entry: entry, isMissing: true))
  }

  /// A segment's part of the log; nil if it was made ahead and is not in use, or is no segment of this log.
  private mutating func part(
    _ file: Found, _ entry: ManifestEntry?, _ fileSystem: any FileSystem
  ) throws(LogError) -> SalvagePart? {
    var part = SalvagePart(segmentID: file.id, path: file.path, entry: entry, size: file.size)
    if let header = file.header {
      guard header.storeUUID == storeUUID, entry.map({ $0.salt == header.salt }) ?? true else {
        damages.append(
          SalvageDamage(file: file.path, bytes: 0..<file.size, words: "it is another segment than the one meant"))
        return part
      }
      part.identity = header.identity
    } else {
      damages.append(
        SalvageDamage(
          file: file.path, bytes: 0..<min(file.size, UInt64(LogFormat.headerPageBytes)),
          words: file.error?.code == .foreignSegment ? "it lies under another segment's name" : "its header"))
      part.identity = try identity(of: file, entry, fileSystem)
      if part.identity == nil {
        if entry?.state == .prepared { return nil }
        damages[damages.count - 1].bytes = 0..<file.size
        damages[damages.count - 1].words += ", and nothing in it verifies without it"
        return part
      }
    }
    part.opening = part.identity.flatMap { Self.opening(file.bytes, $0) }
    if part.opening == nil, file.header?.isPrepared ?? (entry?.state == .prepared), let identity = part.identity {
      // Its opening frame goes into its first group. Unless something in it was promised, it is not in use.
      let segment = try Recovery.openSegment(fileSystem, file.path)
      defer { segment.close() }
      let resync = try Resync.scan(
        segment, file.path, identity: identity, from: UInt64(LogFormat.headerPageBytes), untilUnwritten: false)
      if resync.promise == nil { return nil }
    }
    return part
  }

  /// The identity under which a frame of the file verifies, whose header does not.
  private func identity(
    of file: Found, _ entry: ManifestEntry?, _ fileSystem: any FileSystem
  ) throws(LogError) -> SegmentIdentity? {
    var salts: [UInt32] = []
    if let entry { salts.append(entry.salt) }
    for at in [LogFormat.headerPageBytes + LogFormat.FrameField.tag, LogFormat.Header.salt]
    where at + 4 <= file.bytes.count {
      salts.append(file.bytes.u32(at: at))
    }
    let segment = try Recovery.openSegment(fileSystem, file.path)
    defer { segment.close() }
    for salt in salts where salt != 0 {
      let identity = SegmentIdentity(storeUUID: storeUUID, segmentID: file.id, salt: salt)
      let page = UInt64(LogFormat.headerPageBytes)
      let first = try SegmentScanner.firstFrame(
        of: segment, file.path, identity: identity, in: page..<max(page, file.size))
      if first != nil { return identity }
    }
    return nil
  }

  private static func opening(_ bytes: [UInt8], _ identity: SegmentIdentity) -> OpeningBody? {
    let start = LogFormat.headerPageBytes
    guard bytes.count == start + LogFormat.openingFrameBytes,
      case .success(let header) = FrameHeader.decode(bytes, at: start, offset: UInt32(start), identity: identity),
      header.type == FrameType.opening.rawValue, header.frameBytes == LogFormat.openingFrameBytes,
      header.bodyMatches(bytes, at: start),
      let opening = OpeningBody.decode(bytes, at: start + LogFormat.frameHeaderBytes, count: header.bodyLength),
      opening.predecessorLastLSN < LogFormat.numberMax, opening.firstLSN == opening.predecessorLastLSN + 1,
      opening.rangeLastLSN < LogFormat.numberMax
    else { return nil }
    return opening
  }

  /// Puts segments that no list names in their place.
  private mutating func place(_ unlisted: [SalvagePart], isListed: Bool) {
    // By their first LSN; of two that begin alike the rewritten one stands for the other, or the later for the earlier.
    func precedes(_ left: SalvagePart, _ right: SalvagePart) -> Bool {
      let (first, second) = (left.firstLSN ?? .max, right.firstLSN ?? .max)
      if first != second { return first < second }
      let (isLeft, isRight) = (left.opening?.kind == .rewritten, right.opening?.kind == .rewritten)
      if isLeft != isRight { return isLeft }
      return left.firstLSN == nil ? left.segmentID < right.segmentID : left.segmentID > right.segmentID
    }
    guard isListed else {
      // Without a list a segment that lost its opening frame too stands where its ID puts it: writers count up.
      for part in unlisted.filter({ $0.firstLSN != nil }).sorted(by: precedes) { parts.append(part) }
      for part in unlisted where part.firstLSN == nil {
        parts.insert(part, at: parts.firstIndex { $0.segmentID > part.segmentID } ?? parts.count)
      }
      return
    }
    var rest = unlisted.sorted(by: precedes)
    while let index = rest.firstIndex(where: continues) { parts.append(rest.remove(at: index)) }
    strays += rest.map(\.path)
  }

  private func continues(_ part: SalvagePart) -> Bool {
    guard let opening = part.opening, opening.kind == .live, let last = parts.last else { return false }
    if let before = last.opening, before.kind == .rewritten {
      return opening.predecessorLastLSN == before.rangeLastLSN && opening.chain == before.rangeChain
    }
    return opening.predecessorID == last.segmentID
  }
}
