// Fuzzes MANIFEST, the list of a log's segments, and CONTROL with its bounds.

import StrandlineLog
import StrandlineSystem

enum DirectoryFuzzing {
  /// Input: flags, and the bytes of a MANIFEST. One that is decoded must be encoded to the same bytes.
  static func runManifest(_ input: inout FuzzInput) {
    let flags = FuzzFlags(rawValue: input.byte())
    var bytes = input.rest()
    let header = LogFormat.manifestHeaderBytes
    if flags.contains(.repaired), bytes.count >= header + 4 {
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<header - 4), at: header - 4)
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<bytes.count - 4), at: bytes.count - 4)
    }
    do {
      let manifest = try Manifest.decode(bytes, file: "MANIFEST")
      require(manifest.encoded() == bytes, "a list is not written as it was read")
    } catch {
      require(error.code == .damaged || error.code == .fromTheFuture, "\(error)")
    }
  }

  /// Input: flags, and the first bytes of a slot of CONTROL.
  static func runControl(_ input: inout FuzzInput) {
    let flags = FuzzFlags(rawValue: input.byte())
    var bytes = Array(input.rest().prefix(LogFormat.controlSlotBytes))
    bytes.append(zeros: LogFormat.controlSlotBytes - bytes.count)
    let end = LogFormat.controlSlotBytes - 4
    if flags.contains(.repaired) { bytes.patch(u32: CRC32C.checksum(bytes, 0..<end), at: end) }
    do {
      guard let control = try Control.decode(bytes, at: 0, file: "CONTROL") else { return }
      require(control.encoded() == bytes, "a slot is not written as it was read")
    } catch {
      require(error.code == .damaged || error.code == .fromTheFuture, "\(error)")
    }
  }

  /// A MANIFEST and CONTROL that match the segments, so that a log is refused only because of its segments.
  static func add(
    to files: inout [String: [UInt8]], _ segments: [(id: UInt64, bytes: [UInt8])], lastLSN: UInt64?
  ) {
    guard let first = segments.first?.bytes, first.count >= LogFormat.headerBytes else { return }
    typealias Field = LogFormat.Header
    let storeUUID = Array(first[Field.storeUUID..<Field.storeUUID + 16])
    let role: LogRole = Array(first[Field.role..<Field.role + 4]) == LogRole.server.bytes ? .server : .store
    let ids = segments.map(\.id)
    guard Set(ids).count == ids.count, ids.allSatisfy({ 1..<LogFormat.numberMax - 1 ~= $0 }) else { return }
    var manifest = Manifest(storeUUID: storeUUID, role: role, nextSegmentID: (ids.max() ?? 0) + 1)
    for (id, bytes) in segments where bytes.count >= LogFormat.headerBytes {
      manifest.entries.append(entry(id, bytes))
    }
    var bound = LogBound(segmentID: 0, lsn: 0, end: 0)
    if let lastLSN, let last = segments.last {
      bound = LogBound(segmentID: last.id, lsn: lastLSN, end: UInt32(last.bytes.count))
    }
    let control = Control(storeUUID: storeUUID, bound: bound)
    files["\(FuzzDisk.folder)/\(LogFormat.manifestName)"] = manifest.encoded()
    files["\(FuzzDisk.folder)/\(LogFormat.controlName)"] = control.encoded()
  }

  /// The entry of a segment with the values of its opening frame.
  private static func entry(_ id: UInt64, _ bytes: [UInt8]) -> ManifestEntry {
    let salt = bytes.u32(at: LogFormat.Header.salt)
    guard bytes.count >= LogFormat.openingEnd else { return ManifestEntry(segmentID: id, salt: salt, firstLSN: 1) }
    let lsn = min(bytes.u64(at: LogFormat.headerPageBytes + LogFormat.FrameField.lsn), LogFormat.numberMax - 1)
    let body = LogFormat.headerPageBytes + LogFormat.frameHeaderBytes
    guard bytes[LogFormat.Header.kind] == SegmentKind.rewritten.rawValue,
      let opening = OpeningBody.decode(bytes, at: body, count: LogFormat.openingBodyBytes, lsn: lsn)
    else { return ManifestEntry(segmentID: id, salt: salt, firstLSN: lsn) }
    return ManifestEntry(
      segmentID: id, salt: salt, firstLSN: lsn,
      end: SegmentEnd(offset: opening.durableEnd, lastLSN: opening.rangeLastLSN, chain: opening.rangeChain))
  }
}
