// Reads a run: an immutable file of keys in their order, each with a value or a tombstone.
//
// An open reads header, footer, index and filter; these stay in memory. Blocks are read when they are first needed,
// checked, and kept in a cache that all runs of a store share. The file stays open and is never mapped: a file that is
// cut, or that the device cannot read, gives an error and not a signal. A removed file can still be read. Layout:
// Formats/runs.md.

import StrandlineSystem

/// A run that is open. Safe to call from any thread.
package final class Run: Sendable {
  package let identity: RunIdentity
  package let path: String
  /// The bytes that the writer's caller keeps in the run.
  package let properties: [UInt8]
  let footer: RunFooter
  let index: RunIndex
  let seed: RunSeed
  let file: any File
  private let cache: BlockCache
  /// The run's number in the cache.
  private let owner: UInt64
  /// Index, filter and properties as they lie in the file.
  private let tail: [UInt8]
  private let filter: Range<Int>

  /// Opens a run that the list names. Reads its header, its footer and what lies between blocks and footer: three reads.
  ///
  /// - Throws: `.missing`; `.damaged`, `.foreign` or `.fromTheFuture` if the file is not the one that was written;
  ///   `.system`.
  /// - Complexity: O(blocks); 1.25 bytes of memory a key, and about 40 a block.
  package init(
    _ folder: RunFolder, _ identity: RunIdentity, storeUUID: [UInt8], cache: BlockCache
  ) throws(RunError) {
    path = folder.run(identity.runNumber)
    self.identity = identity
    self.cache = cache
    owner = cache.newOwner()
    file = try Self.open(folder, identity.runNumber)
    do throws(RunError) {
      (seed, footer) = try Self.footer(file, identity, storeUUID)
      tail = try Self.tail(file, footer, end: identity.fileBytes - UInt64(RunFormat.footerBytes))
      index = try Self.index(path, tail, footer)
    } catch {
      file.close()
      throw error
    }
    filter = Int(footer.filterOffset - footer.indexOffset)..<Int(footer.propertiesOffset - footer.indexOffset)
    properties = Array(tail[filter.upperBound...])
  }

  deinit {
    cache.removeAll(of: owner)
    file.close()
  }

  /// How many keys there are, tombstones among them.
  package var entryCount: Int { Int(footer.entryCount) }
  package var tombstoneCount: Int { Int(footer.tombstoneCount) }
  package var blockCount: Int { index.blockCount }

  // MARK: Opening

  private static func open(_ folder: RunFolder, _ number: UInt64) throws(RunError) -> any File {
    do {
      return try folder.open(number)
    } catch  where error.isAbsent {
      throw RunError(.missing, folder.run(number), "the list of runs names it")
    } catch {
      throw RunError(error, file: folder.run(number))
    }
  }

  /// Reads a range of the file. No length is used before a checksum or the file's size vouches for it.
  private static func read(_ file: any File, _ range: Range<UInt64>) throws(RunError) -> [UInt8] {
    let bytes: [UInt8]
    do { bytes = try file.read(at: range.lowerBound, count: range.count) } catch {
      throw RunError(error, file: file.path)
    }
    guard bytes.count == range.count else {
      throw RunError(.damaged, file.path, at: range.lowerBound + UInt64(bytes.count), "the file ends there")
    }
    return bytes
  }

  /// The footer, after the size and the header have been checked against what the list says.
  private static func footer(
    _ file: any File, _ identity: RunIdentity, _ storeUUID: [UInt8]
  ) throws(RunError) -> (RunSeed, RunFooter) {
    let path = file.path
    let size: UInt64
    do { size = try file.size() } catch { throw RunError(error, file: path) }
    guard size == identity.fileBytes, size >= UInt64(RunFormat.runHeaderBytes + RunFormat.footerBytes) else {
      throw RunError(.damaged, path, at: size, "it has \(size) bytes and the list says \(identity.fileBytes)")
    }
    let header = try RunHeader.decode(
      read(file, 0..<UInt64(RunFormat.runHeaderBytes)), storeUUID: storeUUID, file: path)
    guard header.runNumber == identity.runNumber else {
      throw RunError(.foreign, path, at: UInt64(RunFormat.Header.runNumber), "it is run \(header.runNumber)")
    }
    let offset = size - UInt64(RunFormat.footerBytes)
    let bytes = try read(file, offset..<size)
    let (footer, crc) = try RunFault.naming(path) { () throws(RunFault) in
      try RunFooter.decode(bytes, at: offset, header.seed)
    }
    guard crc == identity.footerCRC else {
      throw RunError(.foreign, path, at: offset, "its footer is not the one that the list names")
    }
    return (header.seed, footer)
  }

  private static func tail(_ file: any File, _ footer: RunFooter, end: UInt64) throws(RunError) -> [UInt8] {
    let bytes = try read(file, footer.indexOffset..<end)
    guard CRC32C.checksum(bytes) == footer.tailCRC else {
      throw RunError(
        .damaged, file.path, at: footer.indexOffset, "the checksum of index, filter and properties does not match")
    }
    return bytes
  }

  private static func index(_ path: String, _ tail: [UInt8], _ footer: RunFooter) throws(RunError) -> RunIndex {
    try RunFault.naming(path) { () throws(RunFault) in try RunIndex(tail, footer) }
  }

  // MARK: Looking up

  /// What the run says of a key. Reads and checks at most one block, and only if the filter and the cache do not spare
  /// it.
  ///
  /// - Throws: `.damaged` if the block does not verify, `.system`.
  /// - Complexity: O(log entries) comparisons; no allocation if the block is cached.
  package func get(_ key: RunKey) throws(RunError) -> RunLookup {
    guard mayContain(key), index.blockCount > 0 else { return .absent }
    let block = try block(index.block(for: key.bytes))
    do throws(RunFault) {
      guard let entry = try block.find(key.bytes) else { return .absent }
      return entry.isTombstone ? .tombstone : .value(block.value(of: entry))
    } catch {
      throw error.error(path)
    }
  }

  /// Whether the filter says that the run may have the key. A run without the key says so of about one key in a hundred.
  package func mayContain(_ key: RunKey) -> Bool { RunFilter.mayContain(key.hash, tail, filter) }

  /// A block from the cache, or from the file.
  func block(_ number: Int) throws(RunError) -> RunBlock {
    let key = BlockCache.Key(owner: owner, block: number)
    let range = index.range(of: number)
    if let bytes = cache.block(key) { return RunBlock(bytes, 0..<bytes.count, at: range.lowerBound) }
    let bytes = try Self.read(file, range)
    try RunFault.naming(path) { () throws(RunFault) in
      try RunBlock.check(bytes, 0..<bytes.count, at: range.lowerBound, seed)
    }
    cache.insert(bytes, key)
    return RunBlock(bytes, 0..<bytes.count, at: range.lowerBound)
  }

  /// The entries from the first key that does not sort before `key`, in order, through the cache.
  package func cursor(from key: [UInt8] = []) throws(RunError) -> RunCursor { try RunCursor(self, from: key) }
}
