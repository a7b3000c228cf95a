// What MANIFEST and segments begin with, once: who may read the file, and whose it is.
//
// The first 48 bytes are the same in both, and stay where they are in every later version, so that a file "from the
// future" can be told from a damaged one before anything else in it is believed. Layout: Formats/log.md, "Header".

import StrandlineSystem

/// The beginning of a file's header.
struct FileHeader {
  /// A kind of file, and what its header looks like.
  struct Kind {
    let magic: [UInt8]
    /// The whole header; its checksum is the last word.
    let headerBytes: Int
    /// For a sentence.
    let words: String

    static let segment = Kind(magic: LogFormat.magic, headerBytes: LogFormat.headerBytes, words: "segment")
    static let manifest = Kind(
      magic: LogFormat.manifestMagic, headerBytes: LogFormat.manifestHeaderBytes, words: "list of segments")
  }

  /// Features that a reader need not know, but a writer must.
  var readOnlyCompatibleBits: UInt64
  var storeUUID: [UInt8]

  /// Begins a header; the caller adds its own fields, zeros, and the checksum.
  func encode(_ kind: Kind, into writer: inout ByteWriter) {
    writer.raw(kind.magic)
    writer.u16(LogFormat.version)
    writer.u16(0)
    writer.u32(UInt32(kind.headerBytes))
    writer.u64(0)
    writer.u64(readOnlyCompatibleBits)
    writer.raw(storeUUID)
  }

  /// The beginning of the header in the first bytes of `file`, the whole of which is checked.
  ///
  /// - Throws: `.damaged` if the bytes do not verify, `.fromTheFuture` if they do and are not for this version.
  static func decode(_ bytes: [UInt8], _ kind: Kind, file: String) throws(LogError) -> FileHeader {
    typealias Field = LogFormat.Header
    let whole = UInt64(kind.headerBytes)
    guard bytes.count >= kind.headerBytes else {
      throw .damaged(
        file, at: UInt64(bytes.count)..<whole, lsns: nil,
        "the header of a \(kind.words) has \(whole) bytes and the file ends inside it")
    }
    guard Array(bytes[..<kind.magic.count]) == kind.magic else {
      throw .damaged(file, at: 0..<whole, lsns: nil, "it does not begin as a \(kind.words) does")
    }
    let crc = kind.headerBytes - 4
    guard CRC32C.checksum(bytes, 0..<crc) == bytes.u32(at: crc) else {
      throw .damaged(file, at: 0..<whole, lsns: nil, "the checksum of the header of a \(kind.words) does not match")
    }
    // The bytes are as they were written. From here on an unexpected value was written on purpose.
    let version = bytes.u16(at: Field.version)
    guard version == LogFormat.version, bytes.u16(at: Field.reserved) == 0,
      bytes.u32(at: Field.headerLength) == UInt32(kind.headerBytes)
    else { throw .fromTheFuture(file, at: UInt64(Field.version), "its format has version \(version)") }
    let unknown = bytes.u64(at: Field.incompatibleBits)
    guard unknown == 0 else {
      throw .fromTheFuture(
        file, at: UInt64(Field.incompatibleBits), "it uses the features 0x\(String(unknown, radix: 16))")
    }
    return FileHeader(
      readOnlyCompatibleBits: bytes.u64(at: Field.readOnlyCompatibleBits),
      storeUUID: Array(bytes[Field.storeUUID..<Field.storeUUID + 16]))
  }
}

extension LogRole {
  /// The role whose four bytes stand at `offset` of a header that verifies.
  static func decode(_ bytes: [UInt8], at offset: Int, file: String) throws(LogError) -> LogRole {
    let found = Array(bytes[offset..<offset + 4])
    guard let role = [LogRole.store, .server, .inbox].first(where: { $0.bytes == found }) else {
      throw .fromTheFuture(file, at: UInt64(offset), "this version does not know what kind of log it is")
    }
    return role
  }
}
