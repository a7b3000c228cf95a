// Fuzzes whole logs of one or two segments: a reader and verify read them, and their results must agree.
//
// An input omits the zeros of a segment's header page, because the fuzzer would spend its time on them.

import StrandlineLog
import StrandlineSystem

enum LogFuzzing {
  /// Input: flags, the length of the first segment if there are two, the segments.
  static func run(_ input: inout FuzzInput) {
    let flags = FuzzFlags(rawValue: input.byte())
    var parts: [[UInt8]] = []
    if flags.contains(.two) { parts.append(input.take(input.u16())) }
    parts.append(input.rest())
    var files: [String: [UInt8]] = [:]
    var position = Position()
    var segments: [(id: UInt64, bytes: [UInt8])] = []
    for (index, part) in parts.enumerated() {
      var bytes = expanded(part)
      if flags.contains(.repaired) {
        repair(&bytes, consistentWith: flags.contains(.consistent) ? position : nil, &position)
      }
      var id = UInt64(index + 1)
      if flags.contains(.named), bytes.count >= LogFormat.headerBytes { id = bytes.u64(at: LogFormat.Header.segmentID) }
      if flags.contains(.reserved), index + 1 == parts.count { bytes.append(zeros: 8 << 10) }
      files["\(FuzzDisk.folder)/\(SegmentName.name(id))"] = bytes
      segments.append((id, bytes))
    }
    DirectoryFuzzing.add(to: &files, segments, lastLSN: flags.contains(.bounded) ? position.lsn : nil)
    if flags.contains(.lockable) { files["\(FuzzDisk.folder)/\(LogFormat.lockName)"] = [] }
    compare(FuzzDisk(files, isHeld: flags.contains(.held)), isHeld: flags.isSuperset(of: [.held, .lockable]))
  }

  /// The header, filled up with zeros to a page.
  private static func expanded(_ part: [UInt8]) -> [UInt8] {
    guard part.count > LogFormat.headerBytes else { return part }
    var bytes = Array(part[..<LogFormat.headerBytes])
    bytes.append(zeros: LogFormat.headerPageBytes - bytes.count)
    return bytes + part[LogFormat.headerBytes...]
  }

  // MARK: Comparing results

  private static func compare(_ disk: FuzzDisk, isHeld: Bool) {
    var events: [LogEvent] = []
    var reader: LogReader?
    var refusal: LogError?
    do {
      let opened = try LogReader.open(at: FuzzDisk.folder, environment: disk.environment)
      reader = opened
      try opened.poll { events.append($0) }
      try opened.frames { _ in }
    } catch {
      guard let error = error as? LogError else { return require(false, "\(error)") }
      refusal = error
    }
    if let reader {
      for event in events.prefix(20) + events.suffix(20) {
        do {
          let again = try reader.read(event.lsn)
          require(again == event, "LSN \(event.lsn) is not the same when it is read again")
        } catch {
          // A reader that has thrown at the next segment may not be able to read this event again.
          require(refusal != nil, "LSN \(event.lsn) was handed out and cannot be read: \(error)")
        }
      }
    }
    var last: UInt64 = 0
    for event in events {
      require(event.lsn > last, "LSN \(event.lsn) after LSN \(last)")
      last = event.lsn
    }

    let report: VerificationReport
    do {
      report = try LogVerifier.verify(at: FuzzDisk.folder, environment: disk.environment)
    } catch {
      require(refusal != nil, "verify throws \(error) where a reader is content")
      return
    }
    if let refusal {
      require(report.isDamaged, "a reader says \(refusal); verify says \(report)")
      return
    }
    // Padding that is not zero and wrong offsets in an index affect no event, so only verify checks them.
    let harmful = report.findings.filter { finding in
      finding.kind == .damage && !["not zero", "index names"].contains { finding.message.contains($0) }
    }
    require(harmful.isEmpty, "a reader is content; verify says \(harmful)")
    guard !isHeld else { return }
    require(report.events == UInt64(events.count), "\(events.count) events; verify counts \(report.events)")
    require(report.lastLSN == reader?.lastLSN ?? 0, "verify says LSN \(report.lastLSN)")
    let isTorn = report.findings.contains { $0.kind == .tornTail }
    require(isTorn == reader?.recovery.torn, "torn or not: \(report)")
  }

  // MARK: Repair

  /// The state of the log at the end of the previous segments.
  struct Position {
    var segmentID: UInt64 = 0
    var lsn: UInt64 = 0
    var end: UInt32 = 0
    /// The offset of the segment's index.
    var index: UInt32 = 0
    var chain = Chain()
  }

  /// Repairs the checksums of a segment; with a position also the values that follow from it and from the events.
  private static func repair(_ bytes: inout [UInt8], consistentWith before: Position?, _ position: inout Position) {
    typealias Field = LogFormat.Header
    guard bytes.count >= LogFormat.headerBytes else { return }
    bytes.patch(u32: CRC32C.checksum(bytes, 0..<Field.crc), at: Field.crc)
    position.segmentID = bytes.u64(at: Field.segmentID)
    let identity = SegmentIdentity(
      storeUUID: Array(bytes[Field.storeUUID..<Field.storeUUID + 16]), segmentID: position.segmentID,
      salt: bytes.u32(at: Field.salt))
    var at = LogFormat.headerPageBytes
    position.end = UInt32(LogFormat.openingEnd)
    while at + LogFormat.frameHeaderBytes <= bytes.count, at < LogFormat.headerPageBytes + (1 << 20) {
      if let before { adjust(&bytes, at, before, &position) }
      guard let frameBytes = repairFrame(&bytes, at: at, offset: UInt32(at), identity: identity) else { break }
      if case .success(let header) = FrameHeader.decode(bytes, at: at, offset: UInt32(at), identity: identity),
        header.type == FrameType.event.rawValue
      {
        position.chain.add(header)
      }
      at += frameBytes
    }
  }

  /// Repairs tag and checksums of the frame at `at`. Returns its length, or nil if it exceeds the bytes.
  static func repairFrame(_ bytes: inout [UInt8], at: Int, offset: UInt32, identity: SegmentIdentity) -> Int? {
    typealias Field = LogFormat.FrameField
    let length = Int(bytes.u32(at: at + Field.bodyLength))
    let frameBytes = LogFormat.frameBytes(bodyLength: length)
    let fits = frameBytes <= bytes.count - at
    if fits {
      let body = at + LogFormat.frameHeaderBytes..<at + frameBytes
      bytes.patch(u32: CRC32C.checksum(bytes, body), at: at + Field.bodyCRC)
    }
    bytes.patch(u32: identity.salt, at: at + Field.tag)
    bytes.patch(u32: identity.headCRC(bytes, headerAt: at, offset: offset), at: at + Field.headCRC)
    return fits ? frameBytes : nil
  }

  /// Repairs the values of a frame that follow from the frames before it.
  private static func adjust(
    _ bytes: inout [UInt8], _ at: Int, _ before: Position, _ position: inout Position
  ) {
    typealias Field = LogFormat.FrameField
    let length = Int(bytes.u32(at: at + Field.bodyLength))
    let end = at + LogFormat.frameBytes(bodyLength: length)
    guard end <= bytes.count else { return }
    let body = at + LogFormat.frameHeaderBytes
    bytes.patch(u64: position.lsn &+ 1, at: at + Field.lsn)
    switch FrameType(rawValue: bytes[at + Field.type]) {
    case .event:
      position.lsn &+= 1
      if bytes[at + Field.flags] & LogFormat.flagLast != 0 { position.end = UInt32(end) }
    case .opening:
      // A rewritten segment states its own end; in live ones the values follow from other segments.
      let kind = bytes[LogFormat.Header.kind]
      guard kind != SegmentKind.rewritten.rawValue, length == LogFormat.openingBodyBytes else { return }
      let opening = OpeningBody(
        firstLSN: before.lsn &+ 1, predecessorID: before.segmentID, predecessorEnd: before.end,
        chain: before.chain.value,
        durableEnd: UInt32(LogFormat.openingEnd))
      bytes.replaceSubrange(body..<body + length, with: opening.encoded())
    case .index:
      position.index = UInt32(at)
      position.end = UInt32(end)
    case .seal:
      guard length == LogFormat.sealBodyBytes else { return }
      let seal = SealBody(contentChain: position.chain.value, indexOffset: position.index)
      bytes.replaceSubrange(body..<body + length, with: seal.encoded())
      position.end = UInt32(end)
    case nil: break
    }
  }
}
