// Writes a run: entries in the order of their keys, block after block, then the index, the filter and the footer.
//
// Memory holds one block, one chunk of blocks that were not written yet, the index and the filter. The file is made as
// RunFolder says: under a temporary name, synced, renamed, the directory synced. A writer that fails, or that is let go
// before `finish`, removes its file if it can; else the folder's next `removeLeftovers` does. Layout: Formats/runs.md.

package import StrandlineSystem

/// Which file a run is: what the list of runs says of it.
package struct RunIdentity: Hashable, Sendable {
  package var runNumber: UInt64
  package var fileBytes: UInt64
  /// The checksum of the footer, which covers the checksums of all other parts.
  package var footerCRC: UInt32

  package init(runNumber: UInt64, fileBytes: UInt64, footerCRC: UInt32) {
    self.runNumber = runNumber
    self.fileBytes = fileBytes
    self.footerCRC = footerCRC
  }
}

/// A run that is being written, by one thread.
package final class RunWriter {
  package let runNumber: UInt64
  package private(set) var entryCount: UInt64 = 0
  package private(set) var tombstoneCount: UInt64 = 0

  private let folder: RunFolder
  private let temporary: String
  private let properties: [UInt8]
  private let seed: RunSeed
  /// nil after `finish` and after a failure.
  private var file: (any File)?
  /// Why the writer takes no more.
  private var failure: RunError?

  private var block = RunBlockBuilder()
  private var lastKey: [UInt8] = []
  /// Bytes that belong at `writtenBytes` of the file.
  private var pending: [UInt8] = []
  private var writtenBytes: UInt64 = 0

  private var index = ByteWriter()
  private var indexKeys: [UInt8] = []
  private var blockCount: UInt32 = 0
  private var blocksCRC: UInt32 = 0
  private var filter: RunFilter

  /// Creates the file under its temporary name.
  ///
  /// - Parameters:
  ///   - runNumber: one that no run of the folder has, above 0 and below `RunFormat.numberMax`.
  ///   - keyCount: how many entries there will be at most. The filter is made for so many.
  ///   - properties: at most `RunFormat.propertiesBytesMax` bytes that the caller keeps in the run.
  /// - Throws: `.system`.
  package init(
    _ folder: RunFolder, runNumber: UInt64, storeUUID: [UInt8], keyCount: Int, properties: [UInt8] = [],
    random: any RandomSource
  ) throws(RunError) {
    precondition(1..<RunFormat.numberMax ~= runNumber && storeUUID.count == 16)
    precondition(properties.count <= RunFormat.propertiesBytesMax)
    self.folder = folder
    self.runNumber = runNumber
    self.properties = properties
    temporary = folder.temporaryRunFile(runNumber)
    filter = RunFilter(keyCount: keyCount)
    let header = RunHeader(
      storeUUID: storeUUID, runNumber: runNumber, salt: UInt32(truncatingIfNeeded: random.next()))
    seed = header.seed
    pending = header.encoded()
    do {
      file = try folder.create(temporary)
    } catch {
      throw RunError(error, file: folder.path(of: temporary))
    }
  }

  /// Where the next byte goes.
  private var end: UInt64 { writtenBytes + UInt64(pending.count) }

  /// Appends a value, or a tombstone if `value` is nil.
  ///
  /// - Parameter key: sorts behind the last one, byte by byte; at most `RunFormat.keyBytesMax` bytes.
  /// - Throws: `.system`; the writer then takes no more.
  package func append(_ key: [UInt8], _ value: [UInt8]?) throws(RunError) {
    try append(key, 0..<key.count, value ?? [], value.map { 0..<$0.count })
  }

  /// Appends an entry of another run; nil is a tombstone.
  package func append(_ key: [UInt8], _ value: RunValue?) throws(RunError) {
    try append(key, 0..<key.count, value?.bytes ?? [], value?.range)
  }

  /// Appends an entry whose key and value are parts of `bytes`.
  func append(_ bytes: [UInt8], key: Range<Int>, value: Range<Int>?) throws(RunError) {
    try append(bytes, key, bytes, value)
  }

  private func append(
    _ bytes: [UInt8], _ key: Range<Int>, _ value: [UInt8], _ range: Range<Int>?
  ) throws(RunError) {
    if let failure { throw failure }
    precondition(file != nil, "the run is finished")
    precondition(key.count <= RunFormat.keyBytesMax && (range?.count ?? 0) <= RunFormat.valueBytesMax)
    let common = lastKey.commonPrefixCount(0..<lastKey.count, bytes, key)
    precondition(
      entryCount == 0
        || (common < key.count && (common == lastKey.count || lastKey[common] < bytes[key.lowerBound + common])),
      "the keys of a run must rise")
    if !block.hasRoom(keyBytes: key.count, sharedBytes: common, valueBytes: range?.count) { try finishBlock() }
    if block.entryCount == 0 {
      // The shortest beginning of the key that sorts behind the last key of the block before.
      try addToIndex(entryCount == 0 ? [] : bytes[key.prefix(common + 1)])
    }
    block.append(bytes, key, sharedBytes: common, value, range)
    filter.insert(XXH64.hash(bytes, key))
    entryCount += 1
    if range == nil { tombstoneCount += 1 }
    lastKey.removeLast(lastKey.count - common)
    lastKey.append(contentsOf: bytes[key.dropFirst(common)])
  }

  private func addToIndex(_ separator: ArraySlice<UInt8>) throws(RunError) {
    indexKeys.append(contentsOf: separator)
    guard let keyEnd = UInt32(exactly: indexKeys.count), blockCount < .max else {
      throw fail(.tooLarge("pwrite", folder.path(of: temporary)))
    }
    index.u64(end)
    index.u32(keyEnd)
    blockCount += 1
  }

  private func finishBlock() throws(RunError) {
    guard block.entryCount > 0 else { return }
    var crc = ByteWriter(capacity: 4)
    crc.u32(block.finish(into: &pending, at: end, seed))
    blocksCRC = CRC32C.checksum(crc.bytes, continuing: blocksCRC)
    if pending.count >= RunFormat.chunkBytes { try writePending() }
  }

  private func writePending() throws(RunError) {
    guard let file else { return }
    do throws(SystemError) {
      try file.write(pending, at: writtenBytes)
    } catch {
      throw fail(error)
    }
    writtenBytes += UInt64(pending.count)
    pending.removeAll(keepingCapacity: true)
  }

  /// Completes the file and gives it its name. When this returns, the file, its content and its name are on the medium;
  /// the run counts when a list names it.
  ///
  /// - Throws: `.system`. There may then be a file of the run's name, which no list may name.
  package func finish() throws(RunError) -> RunIdentity {
    if let failure { throw failure }
    precondition(file != nil, "the run is finished")
    try finishBlock()
    let indexOffset = end
    let filterOffset = indexOffset + UInt64(index.count + indexKeys.count)
    let propertiesOffset = filterOffset + UInt64(filter.bytes.count)
    var tailCRC: UInt32 = 0
    for part in [index.bytes, indexKeys, filter.bytes, properties] {
      tailCRC = CRC32C.checksum(part, continuing: tailCRC)
      pending.append(contentsOf: part)
    }
    let footer = RunFooter(
      tailCRC: tailCRC, blocksCRC: blocksCRC, entryCount: entryCount, tombstoneCount: tombstoneCount,
      blockCount: blockCount, indexOffset: indexOffset, filterOffset: filterOffset, propertiesOffset: propertiesOffset)
    let (bytes, crc) = footer.encoded(at: end, seed)
    pending.append(contentsOf: bytes)
    let identity = RunIdentity(runNumber: runNumber, fileBytes: end, footerCRC: crc)
    try writePending()
    do throws(SystemError) {
      try file?.sync(.durable)
      try folder.publish(temporary, asRun: runNumber)
    } catch {
      throw fail(error)
    }
    file?.close()
    file = nil
    return identity
  }

  /// Ends the writer, and gives the space back.
  private func fail(_ error: SystemError) -> RunError {
    let failure = RunError(error, file: folder.path(of: temporary))
    self.failure = failure
    abandon()
    return failure
  }

  private func abandon() {
    guard let file else { return }
    file.close()
    self.file = nil
    // If this fails too, `removeLeftovers` removes the file; the first failure is the one to report.
    do { try folder.store.unlink(temporary) } catch { return }
  }

  deinit { abandon() }
}
