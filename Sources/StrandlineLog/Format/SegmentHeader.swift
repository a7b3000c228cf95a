// The first 128 bytes of a segment: which file of which store this is, and who may read it.
//
// A header is synced before its file gets its name, and no append touches its page again; so a named file whose
// header does not verify is damage, never a new file (decision L1).
// Layout: Formats/log.md, "Segment header".

import StrandlineSystem

/// How a segment came to have its frames.
package enum SegmentKind: UInt8, Hashable, Sendable {
  /// Header and opening frame were synced before the file had its name, and a writer's events follow without gaps between
  /// their LSNs.
  case live = 0
  /// Its events were copied out of older segments, of which some events may have been left out; all of it was synced
  /// before the file had its name.
  case rewritten = 1
}

/// The header of a segment.
package struct SegmentHeader: Hashable, Sendable {
  package var storeUUID: [UInt8]
  package var segmentID: UInt64
  /// Random, never 0; the tag of every frame.
  package var salt: UInt32
  package var role: LogRole
  package var kind: SegmentKind
  /// Compaction has left out, or put into others, what it did not need to give the log's state as of this event, the
  /// newest that it judged by; of a repaired segment its last. 0: every event of the segment is as it was written.
  package var compactedLSN: UInt64 = 0
  /// Features that a reader need not know, but a writer must.
  package var readOnlyCompatibleBits: UInt64 = 0

  package var identity: SegmentIdentity {
    SegmentIdentity(storeUUID: storeUUID, segmentID: segmentID, salt: salt)
  }

  package init(storeUUID: [UInt8], segmentID: UInt64, salt: UInt32, role: LogRole, kind: SegmentKind) {
    precondition(storeUUID.count == 16 && salt != 0)
    self.storeUUID = storeUUID
    self.segmentID = segmentID
    self.salt = salt
    self.role = role
    self.kind = kind
  }

  /// The 128 bytes.
  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.headerBytes)
    FileHeader(readOnlyCompatibleBits: readOnlyCompatibleBits, storeUUID: storeUUID).encode(.segment, into: &writer)
    writer.u64(segmentID)
    writer.u32(salt)
    writer.raw(role.bytes)
    writer.u8(kind.rawValue)
    writer.zeros(LogFormat.Header.compactedLSN - LogFormat.Header.reservedEnd)
    writer.u64(compactedLSN)
    writer.u32(CRC32C.checksum(writer.bytes))
    precondition(writer.count == LogFormat.headerBytes)
    return writer.bytes
  }

  /// The header, and zeros up to the end of its page.
  func encodedPage() -> [UInt8] {
    var page = encoded()
    page.append(zeros: LogFormat.headerPageBytes - page.count)
    return page
  }

  /// The header in the first bytes of `file`, which is named after `segmentID`.
  ///
  /// - Throws: `.damaged` if the bytes do not verify, `.fromTheFuture`, `.foreignSegment` if the file lies under
  ///   the name of another segment.
  package static func decode(_ bytes: [UInt8], file: String, named segmentID: UInt64) throws(LogError)
    -> SegmentHeader
  {
    typealias Field = LogFormat.Header
    let whole = UInt64(LogFormat.headerBytes)
    let common = try FileHeader.decode(bytes, .segment, file: file)
    let compactedLSN = bytes.u64(at: Field.compactedLSN)
    guard let kind = SegmentKind(rawValue: bytes[Field.kind]),
      bytes.isZero(in: Field.reservedEnd..<Field.compactedLSN), kind == .rewritten || compactedLSN == 0
    else {
      throw .fromTheFuture(file, at: UInt64(Field.kind), "bytes of its header have values unknown here")
    }
    let role = try LogRole.decode(bytes, at: Field.role, file: file)
    let salt = bytes.u32(at: Field.salt)
    guard salt != 0 else { throw .damaged(file, at: UInt64(Field.salt)..<whole, lsns: nil, "its salt is 0") }
    guard compactedLSN < LogFormat.numberMax else {
      throw .damaged(
        file, at: UInt64(Field.compactedLSN)..<whole, lsns: nil, "it was compacted as of event \(compactedLSN)")
    }
    var header = SegmentHeader(
      storeUUID: common.storeUUID, segmentID: bytes.u64(at: Field.segmentID), salt: salt, role: role, kind: kind)
    header.readOnlyCompatibleBits = common.readOnlyCompatibleBits
    header.compactedLSN = compactedLSN
    guard header.segmentID == segmentID else {
      throw LogError(
        .foreignSegment,
        "'\(file)' holds segment \(header.segmentID) under the name of segment \(segmentID); "
          + "\(LogError.damageAdvice)", file: file, offset: UInt64(Field.segmentID))
    }
    return header
  }
}

extension SegmentHeader {
  /// A header for a segment that is about to be made.
  static func new(
    _ environment: SystemEnvironment, storeUUID: [UInt8], segmentID: UInt64, role: LogRole, kind: SegmentKind
  ) -> SegmentHeader {
    var salt: UInt32 = 0
    while salt == 0 { salt = UInt32(truncatingIfNeeded: environment.random.next()) }
    return SegmentHeader(storeUUID: storeUUID, segmentID: segmentID, salt: salt, role: role, kind: kind)
  }
}

/// The names of segments: 16 hex digits, so that they sort in the order of the log.
package enum SegmentName {
  package static func name(_ segmentID: UInt64) -> String { hex(segmentID) + LogFormat.segmentSuffix }

  /// The name of a file in `quarantine/`.
  static func quarantined(_ name: String) -> String { "\(LogFormat.quarantineName)/\(name)" }

  package static func temporaryName(_ segmentID: UInt64) -> String { hex(segmentID) + LogFormat.temporarySuffix }

  /// The ID in a name of exactly the form that `name` gives; nil for every other name.
  package static func segmentID(of name: String) -> UInt64? {
    guard name.hasSuffix(LogFormat.segmentSuffix) else { return nil }
    let digits = name.utf8.dropLast(LogFormat.segmentSuffix.utf8.count)
    guard digits.count == 16, digits.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) })
    else { return nil }
    return UInt64(String(decoding: digits, as: UTF8.self), radix: 16)
  }

  package static func hex(_ value: UInt64) -> String {
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}
