// The first page of a table file: whose it is, how wide its entries are, up to where of the log it speaks.
//
// A table has its name only when all of it is durable (decision L1), so a named table whose header does not verify,
// or whose size is not the one that the header implies, is damage. Magic, version and checksum stay where they are in
// every later version, so that "from the future" can be told from "damaged".
// Layout: Formats/table.md, "Header".

import StrandlineSystem

/// What a table says of itself. The owner fills it in; the writer adds the count.
package struct TableHeader: Hashable, Sendable {
  package let storeUUID: [UInt8]
  /// The number that the owner names the file by.
  package let fileID: UInt64
  /// Random, never 0.
  package let salt: UInt32
  /// What the entries are; a number of the owner's.
  package var kind: UInt32
  /// The bytes of an entry, its 16 bytes of key counted.
  package let entryBytes: Int
  /// The last event that the entries know of, and the chain there.
  package var boundLSN: UInt64
  package var boundChain: UInt32
  /// The key of the hash that made the entries' keys. Kept for the owner; nothing here hashes.
  package var hashKey: [UInt8]
  /// At most 256 bytes of the owner's.
  package var payload: [UInt8]
  /// For people; nothing depends on it.
  package var createdNanoseconds: UInt64
  package var entryCount: UInt64 = 0
  /// Features that a reader need not know. A table is never changed, so reading is all that one can do with it.
  package var readOnlyCompatibleBits: UInt64 = 0
  package var compatibleBits: UInt64 = 0
  package var minor: UInt16 = TableFormat.minor
  /// Seeds the checksums.
  package let identity: TableIdentity

  package init(
    storeUUID: [UInt8], fileID: UInt64, salt: UInt32, kind: UInt32, entryBytes: Int, boundLSN: UInt64,
    boundChain: UInt32, hashKey: [UInt8], payload: [UInt8] = [], createdNanoseconds: UInt64
  ) {
    precondition(storeUUID.count == 16 && salt != 0 && hashKey.count == TableFormat.hashKeyBytes)
    precondition(TableFormat.entryBytes.contains(entryBytes) && payload.count <= TableFormat.payloadBytesMax)
    precondition(boundLSN < LogFormat.numberMax)
    self.storeUUID = storeUUID
    self.fileID = fileID
    self.salt = salt
    self.kind = kind
    self.entryBytes = entryBytes
    self.boundLSN = boundLSN
    self.boundChain = boundChain
    self.hashKey = hashKey
    self.payload = payload
    self.createdNanoseconds = createdNanoseconds
    identity = TableIdentity(storeUUID: storeUUID, fileID: fileID, salt: salt)
  }

  package var entriesPerBlock: Int { TableFormat.entriesPerBlock(entryBytes: entryBytes) }

  package var blockCount: UInt64 {
    let whole = UInt64(entriesPerBlock)
    return entryCount / whole + (entryCount % whole == 0 ? 0 : 1)
  }

  /// Every block is full, but for the last.
  package func entryCount(inBlock number: UInt32) -> Int {
    let before = UInt64(number) * UInt64(entriesPerBlock)
    guard before < entryCount else { return 0 }
    return Int(min(entryCount - before, UInt64(entriesPerBlock)))
  }

  package func offset(ofBlock number: UInt32) -> UInt64 {
    UInt64(TableFormat.headerPageBytes) + UInt64(number) * UInt64(TableFormat.blockBytes)
  }

  package var footerOffset: UInt64 {
    UInt64(TableFormat.headerPageBytes) + blockCount * UInt64(TableFormat.blockBytes)
  }

  /// The size of the whole file.
  package var fileBytes: UInt64 { footerOffset + UInt64(TableFormat.footerBytes) }

  /// The 4096 bytes.
  package func encoded() -> [UInt8] {
    typealias Field = TableFormat.Header
    precondition(blockCount <= TableFormat.blocksMax)
    var writer = ByteWriter(capacity: TableFormat.headerPageBytes)
    FileHeader(
      minor: minor, readOnlyCompatibleBits: readOnlyCompatibleBits, compatibleBits: compatibleBits,
      storeUUID: storeUUID
    ).encode(.table, into: &writer)
    writer.u64(fileID)
    writer.u32(salt)
    writer.u32(kind)
    writer.u32(UInt32(entryBytes))
    writer.u32(UInt32(TableFormat.blockBytes))
    writer.u64(entryCount)
    writer.u64(blockCount)
    writer.u64(boundLSN)
    writer.u32(boundChain)
    writer.u32(UInt32(payload.count))
    writer.raw(hashKey)
    writer.u64(createdNanoseconds)
    writer.raw(payload)
    writer.zeros(Field.crc - writer.count)
    writer.u32(CRC32C.checksum(writer.bytes))
    precondition(writer.count == TableFormat.headerBytes)
    writer.zeros(TableFormat.headerPageBytes - writer.count)
    return writer.bytes
  }

  /// The header in the first bytes of `file`.
  ///
  /// - Throws: `.damaged` if the bytes do not verify or say what no writer says, `.fromTheFuture`.
  package static func decode(_ bytes: [UInt8], file: String) throws(LogError) -> TableHeader {
    typealias Field = TableFormat.Header
    let whole = UInt64(TableFormat.headerBytes)
    let common = try FileHeader.decode(bytes, .table, file: file)
    guard bytes.isZero(in: Field.reserved..<Field.crc) else {
      throw .fromTheFuture(file, at: UInt64(Field.reserved), "bytes of its header that must be zero are not")
    }
    let salt = bytes.u32(at: Field.salt)
    let entryBytes = Int(bytes.u32(at: Field.entryBytes))
    let payload = Field.payload..<Field.payload + Int(bytes.u32(at: Field.payloadLength))
    let boundLSN = bytes.u64(at: Field.boundLSN)
    func require(_ holds: Bool, _ field: Int, _ what: String) throws(LogError) {
      guard holds else { throw .damaged(file, at: UInt64(field)..<whole, lsns: nil, what) }
    }
    try require(salt != 0, Field.salt, "its salt is 0")
    try require(TableFormat.entryBytes.contains(entryBytes), Field.entryBytes, "its entries have \(entryBytes) bytes")
    try require(
      bytes.u32(at: Field.blockBytes) == UInt32(TableFormat.blockBytes), Field.blockBytes,
      "its blocks have \(bytes.u32(at: Field.blockBytes)) bytes")
    try require(boundLSN < LogFormat.numberMax, Field.boundLSN, "no log has an LSN \(boundLSN)")
    try require(
      payload.upperBound <= Field.reserved && bytes.isZero(in: payload.upperBound..<Field.reserved),
      Field.payloadLength, "the length of its owner's payload is not that of its bytes")
    var header = TableHeader(
      storeUUID: common.storeUUID, fileID: bytes.u64(at: Field.fileID),
      salt: salt, kind: bytes.u32(at: Field.kind), entryBytes: entryBytes, boundLSN: boundLSN,
      boundChain: bytes.u32(at: Field.boundChain),
      hashKey: Array(bytes[Field.hashKey..<Field.hashKey + TableFormat.hashKeyBytes]),
      payload: Array(bytes[payload]), createdNanoseconds: bytes.u64(at: Field.createdNanoseconds))
    header.entryCount = bytes.u64(at: Field.entryCount)
    header.readOnlyCompatibleBits = common.readOnlyCompatibleBits
    header.compatibleBits = common.compatibleBits
    header.minor = common.minor
    try require(
      header.blockCount == bytes.u64(at: Field.blockCount) && header.blockCount <= TableFormat.blocksMax,
      Field.entryCount,
      "\(header.entryCount) entries of \(entryBytes) bytes do not fill \(bytes.u64(at: Field.blockCount)) blocks")
    return header
  }
}
