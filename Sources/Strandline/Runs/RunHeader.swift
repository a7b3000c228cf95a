// The headers of a run and of the list of runs, and the seed that binds every block to its file.
//
// The first 48 bytes have the layout of the log's files: magic, version, bits and the store's UUID stay where they are
// in every later version. Layout: Formats/runs.md, "Header".

import StrandlineSystem

/// The first 48 bytes of a header.
enum RunCommonHeader {
  static func encode(_ magic: [UInt8], headerBytes: Int, storeUUID: [UInt8], into writer: inout ByteWriter) {
    precondition(storeUUID.count == 16)
    writer.raw(magic)
    writer.u16(RunFormat.version)
    writer.u16(0)
    writer.u32(UInt32(headerBytes))
    writer.u64(0)
    writer.u64(0)
    writer.raw(storeUUID)
  }

  /// Checks a header whose checksum is its last word.
  ///
  /// - Parameter bytes: the beginning of the file; as much as there is, if it is shorter than its header.
  /// - Throws: `.damaged` if the bytes do not verify, `.fromTheFuture` if they do and are not for this version,
  ///   `.foreign` if the file is of another store.
  static func decode(
    _ bytes: [UInt8], _ magic: [UInt8], headerBytes: Int, storeUUID: [UInt8], file: String
  ) throws(RunError) {
    typealias Field = RunFormat.Header
    guard bytes.count >= headerBytes else {
      throw RunError(.damaged, file, at: UInt64(bytes.count), "it ends within its header of \(headerBytes) bytes")
    }
    guard Array(bytes[..<magic.count]) == magic else {
      throw RunError(.damaged, file, at: 0, "it does not begin with the magic bytes of its kind")
    }
    let crc = headerBytes - 4
    guard CRC32C.checksum(bytes, 0..<crc) == bytes.u32(at: crc) else {
      throw RunError(.damaged, file, at: 0, "the checksum of the header does not match")
    }
    // The bytes are as they were written. From here on an unexpected value was written on purpose.
    let version = bytes.u16(at: Field.version)
    guard version == RunFormat.version, bytes.u16(at: Field.reserved) == 0,
      bytes.u32(at: Field.headerLength) == UInt32(headerBytes)
    else { throw RunError(.fromTheFuture, file, at: UInt64(Field.version), "its format has version \(version)") }
    let unknown = bytes.u64(at: Field.incompatibleBits)
    guard unknown == 0 else {
      throw RunError(
        .fromTheFuture, file, at: UInt64(Field.incompatibleBits), "it uses the features 0x\(String(unknown, radix: 16))"
      )
    }
    guard Array(bytes[Field.storeUUID..<Field.storeUUID + 16]) == storeUUID else {
      throw RunError(.foreign, file, at: UInt64(Field.storeUUID), "it is of another store")
    }
  }
}

/// The header of a run.
struct RunHeader {
  var storeUUID: [UInt8]
  var runNumber: UInt64
  /// Random, so that bytes of an earlier file with the same number do not verify in this one.
  var salt: UInt32

  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: RunFormat.runHeaderBytes)
    RunCommonHeader.encode(
      RunFormat.runMagic, headerBytes: RunFormat.runHeaderBytes, storeUUID: storeUUID, into: &writer)
    writer.u64(runNumber)
    writer.u32(salt)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  static func decode(_ bytes: [UInt8], storeUUID: [UInt8], file: String) throws(RunError) -> RunHeader {
    typealias Field = RunFormat.Header
    try RunCommonHeader.decode(
      bytes, RunFormat.runMagic, headerBytes: RunFormat.runHeaderBytes, storeUUID: storeUUID, file: file)
    return RunHeader(
      storeUUID: storeUUID, runNumber: bytes.u64(at: Field.runNumber), salt: bytes.u32(at: Field.salt))
  }

  var seed: RunSeed {
    var writer = ByteWriter(capacity: 28)
    writer.raw(storeUUID)
    writer.u64(runNumber)
    writer.u32(salt)
    return RunSeed(value: CRC32C.checksum(writer.bytes))
  }
}

/// What every checksum behind the header begins with: it makes bytes of another store, run or place not verify.
struct RunSeed {
  var value: UInt32

  /// The checksum of `bytes[range]`, without its first four bytes, which lie at `offset` of the file.
  func checksum(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) -> UInt32 {
    let place = CRC32C.checksum(words: UInt64(value) | offset << 32, offset >> 32, 0, count: 12)
    return CRC32C.checksum(bytes, range.lowerBound + 4..<range.upperBound, continuing: place)
  }
}
