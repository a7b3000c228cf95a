// Which files are the log: the segments in their order, the next free ID, and what may be removed.
//
// The manifest is one file, replaced whole: written under a temporary name, synced, renamed, and the directory
// synced. The rename is the commit of every change of the set: a segment is listed before the first commit in it is
// acknowledged, and the output of a merge or compaction replaces its inputs in one step. Files of the log that are
// not listed are nobody's, unless they continue the chain (decision L7). Layout: Formats/log.md, "MANIFEST".

import StrandlineSystem

/// A segment as the manifest lists it.
package struct ManifestEntry: Hashable, Sendable {
  /// What the file was when the manifest was written.
  package enum State: UInt8, Hashable, Sendable {
    /// Part of the log.
    case used = 0
    /// Made ahead: part of the log once its opening frame is there.
    case prepared = 1
  }

  package var segmentID: UInt64
  package var salt: UInt32
  package var state: State
  /// 0 while it is prepared.
  package var firstLSN: UInt64
  /// The end of its range; 0 while it may grow.
  package var lastLSN: UInt64
  /// How many events are in it, as far as known; for reports.
  package var events: UInt64
  /// Where it ends; 0 while it may grow.
  package var end: UInt32
  package var chain: UInt32

  package init(
    segmentID: UInt64, salt: UInt32, state: State, firstLSN: UInt64, lastLSN: UInt64 = 0, events: UInt64 = 0,
    end: UInt32 = 0, chain: UInt32 = 0
  ) {
    self.segmentID = segmentID
    self.salt = salt
    self.state = state
    self.firstLSN = firstLSN
    self.lastLSN = lastLSN
    self.events = events
    self.end = end
    self.chain = chain
  }
}

extension ManifestEntry {
  fileprivate func encode(into writer: inout ByteWriter) {
    let start = writer.count
    writer.u64(segmentID)
    writer.u64(firstLSN)
    writer.u64(lastLSN)
    writer.u64(events)
    writer.u32(end)
    writer.u32(chain)
    writer.u32(salt)
    writer.u8(state.rawValue)
    writer.zeros(start + LogFormat.manifestEntryBytes - writer.count)
  }

  fileprivate static func decode(_ bytes: [UInt8], at start: Int, file: String) throws(LogError) -> ManifestEntry {
    typealias Field = LogFormat.ManifestEntryField
    guard let state = State(rawValue: bytes[start + Field.state]),
      bytes.isZero(in: start + Field.reserved..<start + LogFormat.manifestEntryBytes)
    else { throw .fromTheFuture(file, at: UInt64(start), "an entry has another form") }
    return ManifestEntry(
      segmentID: bytes.u64(at: start + Field.segmentID), salt: bytes.u32(at: start + Field.salt), state: state,
      firstLSN: bytes.u64(at: start + Field.firstLSN), lastLSN: bytes.u64(at: start + Field.lastLSN),
      events: bytes.u64(at: start + Field.events), end: bytes.u32(at: start + Field.end),
      chain: bytes.u32(at: start + Field.chain))
  }
}

/// The list of a log's files.
package struct Manifest: Hashable, Sendable {
  package var storeUUID: [UInt8]
  package var role: LogRole
  /// Counts the manifests of this store.
  package var number: UInt64 = 0
  /// Larger than every ID that was ever given.
  package var nextSegmentID: UInt64
  /// In the order of the log; those that are prepared at the end.
  package var entries: [ManifestEntry] = []
  /// Segments that were part of the log and are none any more: their files may be removed.
  package var obsolete: [UInt64] = []
  /// 256 bytes at most that the owner of the log keeps here; empty until it does.
  package var ownerBlob: [UInt8] = []
  package var readOnlyCompatibleBits: UInt64 = 0
  package var compatibleBits: UInt64 = 0

  package init(storeUUID: [UInt8], role: LogRole, nextSegmentID: UInt64) {
    precondition(storeUUID.count == 16)
    self.storeUUID = storeUUID
    self.role = role
    self.nextSegmentID = nextSegmentID
  }

  package func encoded() -> [UInt8] {
    precondition(ownerBlob.count <= LogFormat.ownerBlobBytesMax)
    var writer = ByteWriter(
      capacity: LogFormat.manifestHeaderBytes + entries.count * LogFormat.manifestEntryBytes + ownerBlob.count
        + obsolete.count * LogFormat.obsoleteEntryBytes + 4)
    FileHeader(
      minor: LogFormat.minor, readOnlyCompatibleBits: readOnlyCompatibleBits, compatibleBits: compatibleBits,
      storeUUID: storeUUID
    ).encode(.manifest, into: &writer)
    writer.raw(role.bytes)
    writer.u32(UInt32(entries.count))
    writer.u64(number)
    writer.u64(nextSegmentID)
    writer.u32(UInt32(obsolete.count))
    writer.u32(UInt32(ownerBlob.count))
    writer.zeros(LogFormat.manifestHeaderBytes - writer.count - 4)
    writer.u32(CRC32C.checksum(writer.bytes))
    for entry in entries { entry.encode(into: &writer) }
    for id in obsolete { writer.u64(id) }
    writer.raw(ownerBlob)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  /// How many bytes a list has by its header.
  private static func wholeBytes(_ header: [UInt8]) -> Int {
    typealias Field = LogFormat.ManifestHeader
    return LogFormat.manifestHeaderBytes + Int(header.u32(at: Field.entryCount)) * LogFormat.manifestEntryBytes
      + Int(header.u32(at: Field.obsoleteCount)) * LogFormat.obsoleteEntryBytes
      + Int(header.u32(at: Field.ownerBlobLength)) + 4
  }

  /// - Throws: `.damaged`, `.fromTheFuture`.
  package static func decode(_ bytes: [UInt8], file: String) throws(LogError) -> Manifest {
    typealias Field = LogFormat.ManifestHeader
    let headerBytes = LogFormat.manifestHeaderBytes
    func damaged(_ what: String) -> LogError {
      .damaged(file, at: 0..<UInt64(max(bytes.count, 1)), lsns: nil, what)
    }
    let common = try FileHeader.decode(bytes, .manifest, file: file)
    guard bytes.isZero(in: Field.reserved..<Field.crc) else {
      throw .fromTheFuture(file, at: UInt64(Field.reserved), "bytes of its header that must be zero are not")
    }
    let role = try LogRole.decode(bytes, at: Field.role, file: file)
    // The header's checksum vouches for the counts; the file's size bounds them.
    let entryCount = Int(bytes.u32(at: Field.entryCount))
    let obsoleteCount = Int(bytes.u32(at: Field.obsoleteCount))
    let blobBytes = Int(bytes.u32(at: Field.ownerBlobLength))
    let whole = wholeBytes(bytes)
    guard blobBytes <= LogFormat.ownerBlobBytesMax, bytes.count == whole else {
      throw damaged("the list of segments has \(bytes.count) bytes and should have \(whole)")
    }
    guard CRC32C.checksum(bytes, 0..<whole - 4) == bytes.u32(at: whole - 4) else {
      throw damaged("the checksum of the list does not match")
    }
    var manifest = Manifest(
      storeUUID: common.storeUUID, role: role, nextSegmentID: bytes.u64(at: Field.nextSegmentID))
    manifest.number = bytes.u64(at: Field.number)
    manifest.readOnlyCompatibleBits = common.readOnlyCompatibleBits
    manifest.compatibleBits = common.compatibleBits
    var at = headerBytes
    for _ in 0..<entryCount {
      manifest.entries.append(try ManifestEntry.decode(bytes, at: at, file: file))
      at += LogFormat.manifestEntryBytes
    }
    for _ in 0..<obsoleteCount {
      manifest.obsolete.append(bytes.u64(at: at))
      at += LogFormat.obsoleteEntryBytes
    }
    manifest.ownerBlob = Array(bytes[at..<at + blobBytes])
    try manifest.check(damaged)
    return manifest
  }

  /// What no writer wrote, under checksums that match.
  private func check(_ damaged: (String) -> LogError) throws(LogError) {
    guard number < LogFormat.numberMax else { throw damaged("it is number \(number) of its store") }
    guard 1..<LogFormat.numberMax ~= nextSegmentID else { throw damaged("its next segment ID is \(nextSegmentID)") }
    var seen: Set<UInt64> = []
    for entry in entries {
      guard 1..<nextSegmentID ~= entry.segmentID, seen.insert(entry.segmentID).inserted,
        entry.firstLSN < LogFormat.numberMax, entry.lastLSN < LogFormat.numberMax
      else { throw damaged("it contradicts itself about segment \(entry.segmentID)") }
    }
    guard obsolete.allSatisfy({ 1..<nextSegmentID ~= $0 && !seen.contains($0) }) else {
      throw damaged("it lists a segment both as part of the log and as removed")
    }
    guard entries.contains(where: { $0.state == .used }) else { throw damaged("it lists no segment") }
  }

  /// Reads the manifest of a directory.
  ///
  /// - Throws: `.damaged` also if there is none: a store never was without.
  static func read(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(LogError) -> Manifest {
    let path = directory.manifest
    let headerBytes = LogFormat.manifestHeaderBytes
    var bytes: [UInt8]
    do {
      let file = try fileSystem.open(path, .read)
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
  func write(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(WriteFailure) {
    let temporary = directory.manifest + LogFormat.temporarySuffix
    do {
      let file = try SegmentCreation.createFile(fileSystem, temporary)
      defer { file.close() }
      try file.write(encoded(), at: 0)
      try file.sync(.durable)
    } catch {
      // The next attempt, or the next writer, removes what is left of it.
      throw .refused(error)
    }
    do {
      try fileSystem.rename(temporary, to: directory.manifest)
      try fileSystem.syncDirectory(directory.path)
    } catch {
      throw .unknown(error)
    }
  }
}
