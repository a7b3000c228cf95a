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
    writer.raw(LogFormat.manifestMagic)
    writer.u16(LogFormat.major)
    writer.u16(LogFormat.minor)
    writer.u32(UInt32(LogFormat.manifestHeaderBytes))
    writer.u64(0)
    writer.u64(readOnlyCompatibleBits)
    writer.u64(compatibleBits)
    writer.raw(storeUUID)
    writer.raw(role.bytes)
    writer.u32(UInt32(entries.count))
    writer.u64(number)
    writer.u64(nextSegmentID)
    writer.u32(UInt32(obsolete.count))
    writer.u32(UInt32(ownerBlob.count))
    writer.zeros(LogFormat.manifestHeaderBytes - writer.count - 4)
    writer.u32(CRC32C.checksum(writer.bytes))
    for entry in entries {
      writer.u64(entry.segmentID)
      writer.u64(entry.firstLSN)
      writer.u64(entry.lastLSN)
      writer.u64(entry.events)
      writer.u32(entry.end)
      writer.u32(entry.chain)
      writer.u32(entry.salt)
      writer.u8(entry.state.rawValue)
      writer.zeros(19)
    }
    for id in obsolete { writer.u64(id) }
    writer.raw(ownerBlob)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  /// - Throws: `.damaged`, `.fromTheFuture`.
  package static func decode(_ bytes: [UInt8], file: String) throws(LogError) -> Manifest {
    let headerBytes = LogFormat.manifestHeaderBytes
    func damaged(_ what: String) -> LogError {
      .damaged(file, at: 0..<UInt64(max(bytes.count, 1)), lsns: nil, what)
    }
    guard bytes.count >= headerBytes + 4 else { throw damaged("the list of segments is cut") }
    guard Array(bytes[..<LogFormat.manifestMagic.count]) == LogFormat.manifestMagic else {
      throw damaged("it does not begin as a list of segments does")
    }
    guard CRC32C.checksum(bytes, 0..<headerBytes - 4) == bytes.u32(at: headerBytes - 4) else {
      throw damaged("the checksum of its header does not match")
    }
    let major = UInt16(bytes[8]) | UInt16(bytes[9]) << 8
    guard major == LogFormat.major, bytes.u32(at: 12) == UInt32(headerBytes) else {
      throw .fromTheFuture(file, at: 8, "its format has version \(major)")
    }
    guard bytes.u64(at: 16) == 0 else {
      throw .fromTheFuture(file, at: 16, "it uses the features 0x\(String(bytes.u64(at: 16), radix: 16))")
    }
    guard bytes.isZero(in: 88..<headerBytes - 4) else {
      throw .fromTheFuture(file, at: 88, "bytes of its header that must be zero are not")
    }
    let roleBytes = Array(bytes[56..<60])
    guard let role = [LogRole.store, .server].first(where: { $0.bytes == roleBytes }) else {
      throw .fromTheFuture(file, at: 56, "it is the log of something that this version does not know")
    }
    // The header's checksum vouches for the counts; the file's size bounds them.
    let entryCount = Int(bytes.u32(at: 60))
    let obsoleteCount = Int(bytes.u32(at: 80))
    let blobBytes = Int(bytes.u32(at: 84))
    let whole =
      headerBytes + entryCount * LogFormat.manifestEntryBytes + obsoleteCount * LogFormat.obsoleteEntryBytes
      + blobBytes + 4
    guard blobBytes <= LogFormat.ownerBlobBytesMax, bytes.count == whole else {
      throw damaged("the list of segments has \(bytes.count) bytes and should have \(whole)")
    }
    guard CRC32C.checksum(bytes, 0..<whole - 4) == bytes.u32(at: whole - 4) else {
      throw damaged("the checksum of the list does not match")
    }
    var manifest = Manifest(storeUUID: Array(bytes[40..<56]), role: role, nextSegmentID: bytes.u64(at: 72))
    manifest.number = bytes.u64(at: 64)
    manifest.readOnlyCompatibleBits = bytes.u64(at: 24)
    manifest.compatibleBits = bytes.u64(at: 32)
    var at = headerBytes
    for _ in 0..<entryCount {
      guard let state = ManifestEntry.State(rawValue: bytes[at + 44]),
        bytes.isZero(in: at + 45..<at + LogFormat.manifestEntryBytes)
      else { throw .fromTheFuture(file, at: UInt64(at), "an entry has another form") }
      manifest.entries.append(
        ManifestEntry(
          segmentID: bytes.u64(at: at), salt: bytes.u32(at: at + 40), state: state, firstLSN: bytes.u64(at: at + 8),
          lastLSN: bytes.u64(at: at + 16), events: bytes.u64(at: at + 24), end: bytes.u32(at: at + 32),
          chain: bytes.u32(at: at + 36)))
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
    let bytes: [UInt8]
    do {
      let file = try fileSystem.open(path, .read)
      defer { file.close() }
      bytes = try file.read(at: 0, count: Int(clamping: file.size()))
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
