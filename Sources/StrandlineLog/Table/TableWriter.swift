// How a table comes into being: entry by entry under a temporary name, synced, and only then with its own (decision
// L1).
//
// The header, which has the count, is written last and lies first; nobody reads the file before it has its name. So a
// name stands for a whole table, or for none. Memory is a quarter of a MiB, whatever the table's size.

package import StrandlineSystem

/// Writes one table. Not for two threads at once; a writer that threw is finished.
package final class TableWriter {
  /// Where the table will stand.
  package let path: String
  private let directory: String
  private let temporary: String
  private let fileSystem: any FileSystem
  private var header: TableHeader
  private let file: any File
  /// Blocks that are not written yet, the last of them still growing.
  private var buffer: [UInt8] = []
  private var writtenBytes = UInt64(TableFormat.headerPageBytes)
  /// Of the blocks that were written.
  private var totalCRC: UInt32 = 0
  private var lastKey: TableKey?
  private var isFinished = false

  /// Begins `<name>.tmp` in `directory`; what an earlier attempt left there is removed.
  ///
  /// - Throws: `.full`, `.io`.
  package init(
    in directory: String, name: String, header: TableHeader, fileSystem: any FileSystem
  ) throws(LogError) {
    path = "\(directory)/\(name)"
    temporary = path + LogFormat.temporarySuffix
    self.directory = directory
    self.fileSystem = fileSystem
    self.header = header
    self.header.entryCount = 0
    do {
      file = try Self.create(temporary, fileSystem)
    } catch {
      throw .system("cannot make '\(temporary)'", error, file: temporary)
    }
    buffer.reserveCapacity(TableFormat.blocksAtOnce * TableFormat.blockBytes)
  }

  deinit { file.close() }

  private static func create(_ path: String, _ fileSystem: any FileSystem) throws(SystemError) -> any File {
    do {
      return try fileSystem.open(path, .create)
    } catch  where error.isTaken {
      try fileSystem.unlink(path)
      return try fileSystem.open(path, .create)
    }
  }

  /// Adds an entry, whose key is above those of all before it.
  ///
  /// - Throws: `.rejected` for a key that is not, `.full`, `.io`. Then nothing has a name and the writer is finished.
  /// - Precondition: the entry has the table's width.
  package func append(_ entry: [UInt8]) throws(LogError) {
    precondition(entry.count == header.entryBytes)
    try requireOpen()
    let key = TableKey(entry)
    if let lastKey, key <= lastKey {
      throw abandon(
        LogError(
          .rejected,
          "the entries of '\(path)' do not come in the order of their keys: entry \(header.entryCount) is not above the "
            + "one before it; nothing was made", file: path))
    }
    let index = Int(header.entryCount % UInt64(header.entriesPerBlock))
    if index == 0 {
      if buffer.count == TableFormat.blocksAtOnce * TableFormat.blockBytes { try flush() }
      guard header.entryCount / UInt64(header.entriesPerBlock) < TableFormat.blocksMax else {
        throw abandon(LogError(.rejected, "'\(path)' would have more blocks than a table may have", file: path))
      }
      buffer.append(zeros: TableFormat.blockHeaderBytes)
    }
    buffer.append(contentsOf: entry)
    header.entryCount += 1
    lastKey = key
    if index + 1 == header.entriesPerBlock { seal(count: index + 1) }
  }

  /// Writes what is left and the header, syncs, and gives the file its name, in the place of a file that has it.
  ///
  /// When this returns, the table and its name are on the medium.
  ///
  /// - Throws: `.full`, `.io`: nothing has the name that had it not before. `.outcomeUnknown`: the name may stand for
  ///   the new table or for what it stood for before.
  @discardableResult
  package func finish() throws(LogError) -> TableHeader {
    try requireOpen()
    let index = Int(header.entryCount % UInt64(header.entriesPerBlock))
    if index > 0 { seal(count: index) }
    try flush()
    let page = header.encoded()
    var footer = [UInt8](repeating: 0, count: TableFormat.footerBytes)
    footer.patch(u32: CRC32C.checksum(page, continuing: totalCRC), at: TableFormat.Footer.totalCRC)
    footer.patch(u32: header.identity.footerCRC(footer, at: 0), at: TableFormat.Footer.crc)
    precondition(writtenBytes == header.footerOffset)
    do {
      try file.write(footer, at: writtenBytes)
      try file.write(page, at: 0)
      try file.sync(.durable)
    } catch {
      throw abandon(.system("cannot write table '\(path)'", error, file: temporary))
    }
    isFinished = true
    file.close()
    do {
      try fileSystem.rename(temporary, to: path)
    } catch let failure {
      // A temporary name that can be removed was not renamed; if it cannot, nobody knows.
      do { try fileSystem.unlink(temporary) } catch { throw unknown(failure) }
      throw .system("cannot name table '\(path)'", failure, file: path)
    }
    do { try fileSystem.syncDirectory(directory) } catch { throw unknown(error) }
    return header
  }

  /// Gives up: the temporary file is removed. Harmless after `finish`.
  ///
  /// - Throws: `.io` if it cannot be removed.
  package func abandon() throws(LogError) {
    guard !isFinished else { return }
    isFinished = true
    file.close()
    do { try fileSystem.unlink(temporary) } catch { throw .system("cannot remove '\(temporary)'", error) }
  }

  private func requireOpen() throws(LogError) {
    guard !isFinished else { throw LogError(.closed, "'\(path)' was finished or given up", file: path) }
  }

  /// Gives up for `error`; says so if something is left.
  private func abandon(_ error: LogError) -> LogError {
    var error = error
    do { try abandon() } catch let second {
      error.message += "; and '\(temporary)', which may be removed, is left (\(second.message))"
    }
    return error
  }

  private func unknown(_ error: SystemError) -> LogError {
    LogError(
      .outcomeUnknown,
      "table '\(path)' is whole, and whether its name is on the medium is not known; look again after the next start",
      file: path, underlying: error)
  }

  /// Completes the growing block: its header, the zeros behind its entries.
  private func seal(count: Int) {
    let start = (buffer.count - 1) / TableFormat.blockBytes * TableFormat.blockBytes
    buffer.append(zeros: start + TableFormat.blockBytes - buffer.count)
    let number = UInt32(header.blockCount - 1)
    buffer.patch(u32: number, at: start + TableFormat.Block.blockNumber)
    buffer.patch(u32: UInt32(count), at: start + TableFormat.Block.entryCount)
    buffer.patch(
      u32: header.identity.crc(buffer, blockAt: start, number: number), at: start + TableFormat.Block.crc)
  }

  private func flush() throws(LogError) {
    guard !buffer.isEmpty else { return }
    do {
      try file.write(buffer, at: writtenBytes)
    } catch {
      throw abandon(.system("cannot write table '\(path)'", error, file: temporary))
    }
    totalCRC = CRC32C.checksum(buffer, continuing: totalCRC)
    writtenBytes += UInt64(buffer.count)
    buffer.removeAll(keepingCapacity: true)
  }
}
