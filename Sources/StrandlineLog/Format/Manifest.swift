// Which files are the log: the segments in their order, and the next free ID.
//
// The manifest is one file, replaced whole: written under a temporary name, synced, renamed, and the directory
// synced. The rename is the commit of every change of the set: a segment is listed before the first commit in it is
// acknowledged, and the output of a merge or compaction replaces its inputs in one step (decision L7). What it says of
// a segment must be true: a listed segment that is not there, or ends elsewhere, is damage (decision L22).
// Layout: Formats/log.md, "MANIFEST".

import StrandlineSystem

/// A segment as the manifest lists it.
package struct ManifestEntry: Hashable, Sendable {
  package var segmentID: UInt64
  package var salt: UInt32
  /// The LSN of its opening frame.
  package var firstLSN: UInt64
  /// Where it ends; nil while it may grow.
  package var end: SegmentEnd?

  package init(segmentID: UInt64, salt: UInt32, firstLSN: UInt64, end: SegmentEnd? = nil) {
    self.segmentID = segmentID
    self.salt = salt
    self.firstLSN = firstLSN
    self.end = end
  }

  /// The LSNs that it has, as far as the list knows.
  var lsns: ClosedRange<UInt64> { firstLSN...max(firstLSN, end?.lastLSN ?? firstLSN) }

  /// What no writer wrote.
  fileprivate var isConsistent: Bool {
    guard 1..<LogFormat.numberMax ~= firstLSN else { return false }
    guard let end else { return true }
    return Int(end.offset) >= LogFormat.openingEnd && firstLSN - 1..<LogFormat.numberMax ~= end.lastLSN
  }
}

/// Where a segment ends, and the history up to there.
package struct SegmentEnd: Hashable, Sendable {
  /// Behind its last frame.
  package var offset: UInt32
  /// The last LSN that it stands for.
  package var lastLSN: UInt64
  /// The chain at that LSN.
  package var chain: UInt32

  package init(offset: UInt32, lastLSN: UInt64, chain: UInt32) {
    self.offset = offset
    self.lastLSN = lastLSN
    self.chain = chain
  }
}

extension ManifestEntry {
  fileprivate func encode(into writer: inout ByteWriter) {
    writer.u64(segmentID)
    writer.u64(firstLSN)
    writer.u64(end?.lastLSN ?? 0)
    writer.u32(end?.offset ?? 0)
    writer.u32(end?.chain ?? 0)
    writer.u32(salt)
    writer.u32(0)
  }

  fileprivate static func decode(_ bytes: [UInt8], at start: Int, file: String) throws(LogError) -> ManifestEntry {
    typealias Field = LogFormat.ManifestEntryField
    guard bytes.u32(at: start + Field.reserved) == 0 else {
      throw .fromTheFuture(file, at: UInt64(start), "an entry has another form")
    }
    let end = SegmentEnd(
      offset: bytes.u32(at: start + Field.end), lastLSN: bytes.u64(at: start + Field.lastLSN),
      chain: bytes.u32(at: start + Field.chain))
    var entry = ManifestEntry(
      segmentID: bytes.u64(at: start + Field.segmentID), salt: bytes.u32(at: start + Field.salt),
      firstLSN: bytes.u64(at: start + Field.firstLSN))
    if end != SegmentEnd(offset: 0, lastLSN: 0, chain: 0) { entry.end = end }
    return entry
  }
}

/// The list of a log's files.
package struct Manifest: Hashable, Sendable {
  package var storeUUID: [UInt8]
  package var role: LogRole
  /// Larger than every ID that was ever given.
  package var nextSegmentID: UInt64
  /// In the order of the log.
  package var entries: [ManifestEntry] = []
  /// 256 bytes at most that the owner of the log keeps here; empty until it does.
  package var ownerBytes: [UInt8] = []
  package var readOnlyCompatibleBits: UInt64 = 0

  package init(storeUUID: [UInt8], role: LogRole, nextSegmentID: UInt64) {
    precondition(storeUUID.count == 16)
    self.storeUUID = storeUUID
    self.role = role
    self.nextSegmentID = nextSegmentID
  }

  package func encoded() -> [UInt8] {
    precondition(ownerBytes.count <= LogFormat.ownerBytesMax)
    var writer = ByteWriter(
      capacity: LogFormat.manifestHeaderBytes + entries.count * LogFormat.manifestEntryBytes + ownerBytes.count + 4)
    FileHeader(readOnlyCompatibleBits: readOnlyCompatibleBits, storeUUID: storeUUID).encode(.manifest, into: &writer)
    writer.raw(role.bytes)
    writer.u32(UInt32(entries.count))
    writer.u64(nextSegmentID)
    writer.u32(UInt32(ownerBytes.count))
    writer.zeros(LogFormat.ManifestHeader.crc - LogFormat.ManifestHeader.reserved)
    writer.u32(CRC32C.checksum(writer.bytes))
    for entry in entries { entry.encode(into: &writer) }
    writer.raw(ownerBytes)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  /// How many bytes a list has by its header.
  private static func wholeBytes(_ header: [UInt8]) -> Int {
    typealias Field = LogFormat.ManifestHeader
    return LogFormat.manifestHeaderBytes + Int(header.u32(at: Field.entryCount)) * LogFormat.manifestEntryBytes
      + Int(header.u32(at: Field.ownerBytes)) + 4
  }

  /// - Throws: `.damaged`, `.fromTheFuture`.
  package static func decode(_ bytes: [UInt8], file: String) throws(LogError) -> Manifest {
    typealias Field = LogFormat.ManifestHeader
    func damaged(_ what: String) -> LogError {
      .damaged(file, at: 0..<UInt64(max(bytes.count, 1)), lsns: nil, what)
    }
    let common = try FileHeader.decode(bytes, .manifest, file: file)
    guard bytes.isZero(in: Field.reserved..<Field.crc) else {
      throw .fromTheFuture(file, at: UInt64(Field.reserved), "bytes of its header that must be zero are not")
    }
    let role = try LogRole.decode(bytes, at: Field.role, file: file)
    // The header's checksum vouches for the counts; the file's size bounds them.
    let ownerCount = Int(bytes.u32(at: Field.ownerBytes))
    let whole = wholeBytes(bytes)
    guard ownerCount <= LogFormat.ownerBytesMax, bytes.count == whole else {
      throw damaged("the list of segments has \(bytes.count) bytes and should have \(whole)")
    }
    guard CRC32C.checksum(bytes, 0..<whole - 4) == bytes.u32(at: whole - 4) else {
      throw damaged("the checksum of the list does not match")
    }
    var manifest = Manifest(
      storeUUID: common.storeUUID, role: role, nextSegmentID: bytes.u64(at: Field.nextSegmentID))
    manifest.readOnlyCompatibleBits = common.readOnlyCompatibleBits
    var at = LogFormat.manifestHeaderBytes
    for _ in 0..<Int(bytes.u32(at: Field.entryCount)) {
      manifest.entries.append(try ManifestEntry.decode(bytes, at: at, file: file))
      at += LogFormat.manifestEntryBytes
    }
    manifest.ownerBytes = Array(bytes[at..<at + ownerCount])
    try manifest.check(damaged)
    return manifest
  }

  /// What no writer wrote, under checksums that match.
  private func check(_ damaged: (String) -> LogError) throws(LogError) {
    guard 1..<LogFormat.numberMax ~= nextSegmentID else { throw damaged("its next segment ID is \(nextSegmentID)") }
    var seen: Set<UInt64> = []
    for entry in entries {
      guard 1..<nextSegmentID ~= entry.segmentID, seen.insert(entry.segmentID).inserted, entry.isConsistent
      else { throw damaged("it contradicts itself about segment \(entry.segmentID)") }
    }
    guard !entries.isEmpty else { throw damaged("it lists no segment") }
  }

  /// Reads the manifest of a directory.
  ///
  /// - Throws: `.damaged` also if there is none: a store never was without.
  static func read(_ directory: StoreDirectory) throws(LogError) -> Manifest {
    let path = directory.manifest
    let headerBytes = LogFormat.manifestHeaderBytes
    var bytes: [UInt8]
    do {
      let file = try directory.folder.open(LogFormat.manifestName, .read)
      defer { file.close() }
      // Most lists are in it; of a longer one no more is read than its header, once that verifies, says.
      bytes = try file.read(at: 0, count: LogFormat.manifestReadBytes)
      if bytes.count == LogFormat.manifestReadBytes,
        CRC32C.checksum(bytes, 0..<headerBytes - 4) == bytes.u32(at: headerBytes - 4)
      {
        let whole = wholeBytes(bytes)
        if try file.size() == UInt64(whole) { bytes = try file.read(at: 0, count: whole) }
      }
    } catch  where error.isAbsent {
      throw .damaged(path, at: 0..<1, lsns: nil, "the list of segments is missing")
    } catch {
      throw .system("cannot read '\(path)'", error, file: path)
    }
    return try decode(bytes, file: path)
  }

  /// Replaces the manifest of a directory. When this returns, the new list is on the medium.
  ///
  /// - Throws: `.refused` if the old list still holds, `.unknown` if either may.
  func replace(in folder: any Folder) throws(WriteFailure) {
    let temporary = LogFormat.manifestName + LogFormat.temporarySuffix
    do {
      let file = try SegmentCreation.createFile(folder, temporary)
      defer { file.close() }
      try file.write(encoded(), at: 0)
      try file.sync(.durable)
    } catch {
      // The next attempt, or the next writer, removes what is left of it.
      throw .refused(error)
    }
    do {
      try folder.rename(temporary, to: LogFormat.manifestName)
      try folder.sync()
    } catch {
      throw .renaming(error)
    }
  }
}

// MARK: Changes

extension Manifest {
  /// A segment will not grow any more.
  mutating func finish(_ segmentID: UInt64, _ end: SegmentEnd) {
    guard let index = entries.firstIndex(where: { $0.segmentID == segmentID }) else { return }
    entries[index].end = end
  }

  /// One segment stands for others from now on.
  mutating func replace(_ segmentIDs: [UInt64], with output: ManifestEntry) {
    guard let index = entries.firstIndex(where: { $0.segmentID == segmentIDs.first }) else { return }
    entries.insert(output, at: index)
    entries.removeAll { segmentIDs.contains($0.segmentID) }
  }
}
