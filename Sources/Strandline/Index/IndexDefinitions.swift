// Which indexes a store has: a file of its own beside the list of runs. Runs may be discarded at any time, because the log
// has everything that they say; which indexes were declared the log does not know. Which of them are complete in a set of
// runs the list itself says, so that it is true of exactly these runs. Layout: Formats/index.md, "INDEXES".

import StrandlineSystem

/// The declared indexes of a store.
package struct IndexDefinitions: Hashable, Sendable {
  /// In the order in which they were declared. A number that is not 0 was given to the rows of the index.
  package var indexes: [StoredIndex] = []
  /// Above the numbers of all rows that were ever written.
  package var nextNumber: UInt32 = 1

  package static let fileName = "INDEXES"
  /// 89, "STX", and the four bytes that a transfer in text mode would change.
  package static let magic: [UInt8] = [0x89, 0x53, 0x54, 0x58, 0x0D, 0x0A, 0x1A, 0x0A]
  /// Magic to UUID as in a run, the next number, the count, the bytes that follow, the checksum of the header.
  package static let headerBytes = RunFormat.commonHeaderBytes + 4 + 4 + 4 + 4
  /// A larger file was not written by this code.
  package static let bytesMax = 1 << 20

  package func encoded(storeUUID: [UInt8]) -> [UInt8] {
    var body = ByteWriter()
    for stored in indexes {
      body.u32(stored.number)
      stored.index.encode(into: &body)
    }
    var writer = ByteWriter()
    RunCommonHeader.encode(Self.magic, headerBytes: Self.headerBytes, storeUUID: storeUUID, into: &writer)
    writer.u32(nextNumber)
    writer.u32(UInt32(indexes.count))
    writer.u32(UInt32(body.count))
    writer.u32(CRC32C.checksum(writer.bytes))
    writer.raw(body.bytes)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  package static func decode(_ bytes: [UInt8], storeUUID: [UInt8], file: String) throws(RunError) -> IndexDefinitions {
    try RunCommonHeader.decode(bytes, magic, headerBytes: headerBytes, storeUUID: storeUUID, file: file)
    let start = RunFormat.commonHeaderBytes
    let whole = headerBytes + Int(bytes.u32(at: start + 8)) + 4
    guard bytes.count == whole, CRC32C.checksum(bytes, 0..<whole - 4) == bytes.u32(at: whole - 4) else {
      throw RunError(.damaged, file, at: UInt64(headerBytes), "the checksum of the definitions does not match")
    }
    return try RunSet.decoding(file) { () throws(ByteReaderError) in
      var result = IndexDefinitions(indexes: [], nextNumber: bytes.u32(at: start))
      var reader = ByteReader(bytes, headerBytes..<whole - 4)
      for _ in 0..<bytes.u32(at: start + 4) {
        let number = try reader.u32()
        let type = try reader.string()
        var fields: [RecordSort] = []
        for _ in 0..<(try reader.count(minimumBytes: 2)) {
          fields.append(RecordSort(try reader.string(), ascending: try FlagType().read(from: &reader)))
        }
        guard fields.count <= 1, number < result.nextNumber else {
          throw ByteReaderError(offset: reader.offset, what: "an index that this version does not know")
        }
        result.indexes.append(StoredIndex(number: number, index: RecordIndex(type, fields: fields)))
      }
      guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes behind the end") }
      return result
    }
  }
}

/// What the file of the declared indexes says.
struct DeclaredIndexes: Sendable {
  var definitions = IndexDefinitions()
  /// Why the file says nothing, though it is there: then no index is declared until its next change, which replaces it.
  var damage: StrandlineError?
}

extension RecordIndex {
  fileprivate func encode(into writer: inout ByteWriter) {
    writer.string(recordType)
    writer.varint(UInt64(fields.count))
    for field in fields {
      writer.string(field.field)
      writer.u8(field.ascending ? 1 : 0)
    }
  }

  /// Tells one definition from another: the hash of its bytes in the file.
  package var digest: UInt64 {
    var writer = ByteWriter()
    encode(into: &writer)
    return XXH64.hash(writer.bytes)
  }
}

extension IndexFiles {
  private var definitionsFile: String { folder.file(IndexDefinitions.fileName) }
  private var definitionsPath: String { folder.path(of: definitionsFile) }

  /// The declared indexes. None if there is no such file, or if it is damaged: an index makes queries faster, and no answer
  /// depends on it.
  ///
  /// - Throws: `.io` if a call failed: the next change would replace declarations that were not read.
  func loadDefinitions() throws(StrandlineError) -> DeclaredIndexes {
    do { return DeclaredIndexes(definitions: try readDefinitions()) } catch let error as SystemError {
      if error.isAbsent { return DeclaredIndexes() }
      throw failure(RunError(error, file: definitionsPath))
    } catch {
      var damage = (error as? RunError).map(failure) ?? StrandlineError(.damaged, "\(error)", file: definitionsPath)
      damage.message += "; which indexes were declared is lost with it: declare them again"
      return DeclaredIndexes(damage: damage)
    }
  }

  private func readDefinitions() throws -> IndexDefinitions {
    let file = try storeFolder.open(definitionsFile, .read)
    defer { file.close() }
    let size = try file.size()
    guard size <= UInt64(IndexDefinitions.bytesMax) else {
      throw RunError(.damaged, definitionsPath, "it has \(size) bytes")
    }
    return try IndexDefinitions.decode(
      try file.read(at: 0, count: Int(size)), storeUUID: storeUUID, file: definitionsPath)
  }

  /// Makes durable what `loadDefinitions` has found: a change that threw because its last sync failed may have replaced the
  /// file, and a power cut would bring the former one back after this process has shown the new one.
  ///
  /// The folder's own name is durable already, because a log that is opened for writing syncs the store's directory.
  func syncDefinitions() throws(StrandlineError) {
    do throws(SystemError) {
      guard try storeFolder.kind(of: definitionsFile) == .file else { return }
      try folder.sync()
    } catch {
      throw failure(RunError(error, file: definitionsPath))
    }
  }

  /// Copies the declared indexes as they are, also in a form that this version does not know, into the folder of a copy of
  /// the store. It has no runs yet, so its first writer builds each index. When this returns, they are on the medium.
  func copyDefinitions(to copy: any Folder) throws {
    let bytes: [UInt8]
    do throws(SystemError) {
      let file = try storeFolder.open(definitionsFile, .read)
      defer { file.close() }
      let size = try file.size()
      // A larger file was not written by this code, and means nothing in the store either.
      guard size <= UInt64(IndexDefinitions.bytesMax) else { return }
      bytes = try file.read(at: 0, count: Int(size))
    } catch  where error.isAbsent {
      return
    } catch {
      throw failure(RunError(error, file: definitionsPath))
    }
    try IndexFiles(copy, environment, cache: cache).write(definitionBytes: bytes)
  }

  /// Replaces the declared indexes. When this returns, they are on the medium; if it throws, either may be.
  func write(_ definitions: IndexDefinitions) throws {
    try write(definitionBytes: definitions.encoded(storeUUID: storeUUID))
  }

  private func write(definitionBytes bytes: [UInt8]) throws {
    let temporary = definitionsFile + RunFormat.temporarySuffix
    do throws(RunError) {
      try makeFolder()
      do throws(SystemError) {
        let file = try folder.create(temporary)
        defer { file.close() }
        try file.write(bytes, at: 0)
        try file.sync(.durable)
        try folder.publish(temporary, as: definitionsFile)
        // Runs that are lost are made again, and what is declared is not: so the folder's own name is made durable too, though
        // an attempt that failed may have made the folder.
        try storeFolder.sync()
      } catch {
        throw RunError(error, file: definitionsPath)
      }
    } catch {
      throw failure(error)
    }
  }
}
