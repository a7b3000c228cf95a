// A frame is the unit of a segment: 32 bytes of header, a body, and zeros up to the next multiple of eight.
//
// This file alone knows the bytes of a frame's header. The header's checksum covers the length, so a length is
// believed only after it; it is seeded with the segment's identity and the frame's own offset, so a frame that
// lies anywhere but where it was written does not verify. The body's checksum depends on neither and travels
// with the body. Damage is a FrameFault and is never judged here: recovery decides what it means.
// Layout: Formats/log.md, "Frame".

import StrandlineSystem

/// What a frame is. Numbers that are not here are `other`.
package enum FrameType: UInt8, Hashable, Sendable {
  case event = 1
  case opening = 2
  case index = 3
  case seal = 4
}

/// Why bytes are not a frame.
package enum FrameFault: String, Hashable, Sendable {
  case unwritten = "nothing was written here"
  case cut = "the file ends inside a frame"
  case headCRC = "the checksum of a frame's header does not match"
  case length = "a frame claims more bytes than a frame may have"
  case bodyCRC = "the checksum of a frame's body does not match"
  case type = "a frame of type 0"
  case order = "a frame that does not continue what precedes it"
}

/// The header of a frame, decoded.
package struct FrameHeader: Hashable, Sendable {
  package var headCRC: UInt32
  package var bodyLength: Int
  package var lsn: UInt64
  package var type: UInt8
  package var flags: UInt8
  package var schema: UInt16
  package var indexInTransaction: UInt32
  package var tag: UInt32
  package var bodyCRC: UInt32

  package var frameBytes: Int { LogFormat.frameBytes(bodyLength: bodyLength) }
  package var isFirst: Bool { flags & LogFormat.flagFirst != 0 }
  package var isLast: Bool { flags & LogFormat.flagLast != 0 }
  /// Everything before this frame was on the medium before this frame was written.
  package var isSynced: Bool { flags & LogFormat.flagSynced != 0 }
}

/// What seeds the checksums of one segment's frames.
package struct SegmentIdentity: Hashable, Sendable {
  package let segmentID: UInt64
  package let salt: UInt32
  /// crc(store UUID || segment ID || salt)
  package let seed: UInt32

  package init(storeUUID: [UInt8], segmentID: UInt64, salt: UInt32) {
    precondition(storeUUID.count == 16)
    var writer = ByteWriter(capacity: 16 + 8 + 4)
    writer.raw(storeUUID)
    writer.u64(segmentID)
    writer.u32(salt)
    self.segmentID = segmentID
    self.salt = salt
    self.seed = CRC32C.checksum(writer.bytes)
  }

  /// crc(seed || offset || bytes 4...31 of the header at `start`).
  package func headCRC(_ bytes: [UInt8], headerAt start: Int, offset: UInt32) -> UInt32 {
    CRC32C.checksum(
      words: seed, offset, bytes, start + LogFormat.FrameField.bodyLength..<start + LogFormat.frameHeaderBytes)
  }
}

extension FrameHeader {
  /// The header at `start` of `bytes`, which lie at `offset` of the segment: verified, but for its body.
  ///
  /// - Precondition: 32 bytes are there.
  package static func decode(
    _ bytes: [UInt8], at start: Int, offset: UInt32, identity: SegmentIdentity
  ) -> Result<FrameHeader, FrameFaultError> {
    let headCRC = bytes.u32(at: start + LogFormat.FrameField.headCRC)
    let tag = bytes.u32(at: start + LogFormat.FrameField.tag)
    guard tag == identity.salt, headCRC == identity.headCRC(bytes, headerAt: start, offset: offset) else {
      let zeros = bytes.isZero(in: start..<start + LogFormat.frameHeaderBytes)
      return .failure(FrameFaultError(fault: zeros ? .unwritten : .headCRC))
    }
    let length = Int(bytes.u32(at: start + LogFormat.FrameField.bodyLength))
    guard length <= LogFormat.bodyBytesMax else { return .failure(FrameFaultError(fault: .length)) }
    let type = bytes[start + LogFormat.FrameField.type]
    guard type != 0 else { return .failure(FrameFaultError(fault: .type)) }
    return .success(
      FrameHeader(
        headCRC: headCRC, bodyLength: length, lsn: bytes.u64(at: start + LogFormat.FrameField.lsn), type: type,
        flags: bytes[start + LogFormat.FrameField.flags],
        schema: bytes.u16(at: start + LogFormat.FrameField.schema),
        indexInTransaction: bytes.u32(at: start + LogFormat.FrameField.indexInTransaction), tag: tag,
        bodyCRC: bytes.u32(at: start + LogFormat.FrameField.bodyCRC)))
  }

  /// Whether the body (and its padding) behind the header at `start` has the checksum that the header names.
  ///
  /// - Precondition: `frameBytes` bytes are there.
  package func bodyMatches(_ bytes: [UInt8], at start: Int) -> Bool {
    bodyCRC == CRC32C.checksum(bytes, start + LogFormat.frameHeaderBytes..<start + frameBytes)
  }
}

/// A fault as an error, for `Result`.
package struct FrameFaultError: Error, Hashable, Sendable {
  package var fault: FrameFault

  package init(fault: FrameFault) { self.fault = fault }
}

extension [UInt8] {
  /// Appends a frame that still lacks LSN, flags, tag and header checksum.
  mutating func append(unstampedFrame type: FrameType, schema: UInt16, index: UInt32, body: [UInt8]) {
    precondition(body.count <= LogFormat.bodyBytesMax)
    let start = count
    let end = start + LogFormat.frameBytes(bodyLength: body.count)
    append(zeros: LogFormat.frameHeaderBytes)
    append(contentsOf: body)
    append(zeros: end - count)
    patch(u32: UInt32(body.count), at: start + LogFormat.FrameField.bodyLength)
    // Type, flags (none yet) and schema stand side by side.
    patch(u32: UInt32(type.rawValue) | UInt32(schema) << 16, at: start + LogFormat.FrameField.type)
    patch(u32: index, at: start + LogFormat.FrameField.indexInTransaction)
    patch(
      u32: CRC32C.checksum(self, start + LogFormat.frameHeaderBytes..<end),
      at: start + LogFormat.FrameField.bodyCRC)
  }

  /// Appends a frame of the log itself, which will lie at `offset` of the segment.
  mutating func append(
    frame type: FrameType, flags: UInt8 = 0, lsn: UInt64, body: [UInt8], at offset: UInt32, identity: SegmentIdentity
  ) {
    let start = count
    append(unstampedFrame: type, schema: 0, index: 0, body: body)
    stampFrame(at: start, lsn: lsn, flags: flags, offset: offset, identity: identity)
  }

  /// Completes the frame at `start`, which will lie at `offset` of the segment.
  mutating func stampFrame(
    at start: Int, lsn: UInt64, flags: UInt8, offset: UInt32, identity: SegmentIdentity
  ) {
    patch(u64: lsn, at: start + LogFormat.FrameField.lsn)
    self[start + LogFormat.FrameField.flags] = flags
    patch(u32: identity.salt, at: start + LogFormat.FrameField.tag)
    patch(
      u32: identity.headCRC(self, headerAt: start, offset: offset), at: start + LogFormat.FrameField.headCRC)
  }
}
