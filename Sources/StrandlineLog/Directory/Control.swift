// Lower bounds of a log, apart from it: two slots of a page each, overwritten by turns.
//
// A log cannot tell by itself that its end was cut away. CONTROL says, from another file, how far it must reach at
// least: it is written when a store is made, when its writer goes on in another segment, and when it is closed;
// never on the way of a commit. A slot that is torn by a power cut leaves the other one, with older bounds; two bad
// slots are damage. A slot that was read from memory may not be on the medium, so it is written again and synced
// before the other one is overwritten (decision L7); but only while that one is whole: if it is torn, its writer had
// made sure of the slot that counts, and to write that again could tear both. Layout: Formats/log.md, "CONTROL".

import StrandlineSystem

/// One slot.
package struct Control: Hashable, Sendable {
  package var storeUUID: [UInt8]
  /// The slot with the larger one counts.
  package var sequence: UInt64 = 0
  /// Writers that have written it. For people.
  package var opens: UInt64 = 0
  package var tailSegmentID: UInt64
  /// The log has at least this LSN.
  package var durableLSN: UInt64
  package var fullFlushLSN: UInt64
  /// The tail segment has at least this many bytes, which end a unit.
  package var durableEnd: UInt32
  /// Its writer closed it, and the tail segment ends at `durableEnd` with a seal.
  package var isClean: Bool
  /// When it was read, the other slot did not verify. Not a part of the bytes.
  package var isAlone = false
  /// And that was not because nobody had written it yet: a power cut tore it, or it was damaged since.
  package var isOtherTorn = false

  package init(
    storeUUID: [UInt8], tailSegmentID: UInt64, durableLSN: UInt64, fullFlushLSN: UInt64, durableEnd: UInt32,
    isClean: Bool
  ) {
    precondition(storeUUID.count == 16)
    self.storeUUID = storeUUID
    self.tailSegmentID = tailSegmentID
    self.durableLSN = durableLSN
    self.fullFlushLSN = fullFlushLSN
    self.durableEnd = durableEnd
    self.isClean = isClean
  }

  /// The bytes of a slot.
  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.controlSlotBytes)
    writer.raw(LogFormat.controlMagic)
    writer.u16(LogFormat.major)
    writer.u16(LogFormat.minor)
    writer.u32(0)
    writer.raw(storeUUID)
    writer.u64(sequence)
    writer.u64(opens)
    writer.u64(tailSegmentID)
    writer.u64(durableLSN)
    writer.u64(fullFlushLSN)
    writer.u32(durableEnd)
    writer.u8(isClean ? 1 : 0)
    writer.zeros(LogFormat.controlSlotBytes - writer.count - 4)
    writer.u32(CRC32C.checksum(writer.bytes))
    precondition(writer.count == LogFormat.controlSlotBytes)
    return writer.bytes
  }

  /// nil if the bytes do not verify.
  ///
  /// - Throws: `.fromTheFuture`.
  package static func decode(_ bytes: [UInt8], at start: Int, file: String) throws(LogError) -> Control? {
    typealias Field = LogFormat.ControlField
    let end = start + LogFormat.controlSlotBytes
    let crc = start + Field.crc
    guard end <= bytes.count, Array(bytes[start..<start + LogFormat.controlMagic.count]) == LogFormat.controlMagic,
      CRC32C.checksum(bytes, start..<crc) == bytes.u32(at: crc),
      bytes.u64(at: start + Field.sequence) < LogFormat.numberMax
    else { return nil }
    let major = UInt16(bytes[start + Field.major]) | UInt16(bytes[start + Field.major + 1]) << 8
    guard major == LogFormat.major, bytes.u32(at: start + Field.flags) == 0, bytes[start + Field.isClean] <= 1,
      bytes.isZero(in: start + Field.reserved..<crc)
    else { throw .fromTheFuture(file, at: UInt64(start), "a slot has another form (version \(major))") }
    let storeUUID = start + Field.storeUUID
    var control = Control(
      storeUUID: Array(bytes[storeUUID..<storeUUID + 16]), tailSegmentID: bytes.u64(at: start + Field.tailSegmentID),
      durableLSN: bytes.u64(at: start + Field.durableLSN), fullFlushLSN: bytes.u64(at: start + Field.fullFlushLSN),
      durableEnd: bytes.u32(at: start + Field.durableEnd), isClean: bytes[start + Field.isClean] == 1)
    control.sequence = bytes.u64(at: start + Field.sequence)
    control.opens = bytes.u64(at: start + Field.opens)
    return control
  }

  /// The slot that counts.
  ///
  /// - Throws: `.damaged` if no slot verifies, or the file is missing: a store never was without.
  static func read(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(LogError) -> Control {
    let path = directory.control
    let wholeBytes = LogFormat.controlSlotBytes * LogFormat.controlSlots
    let bytes: [UInt8]
    do {
      let file = try fileSystem.open(path, .read)
      defer { file.close() }
      bytes = try file.read(at: 0, count: wholeBytes)
    } catch  where error.isAbsent {
      throw .damaged(path, at: 0..<UInt64(wholeBytes), lsns: nil, "the file that bounds the log is missing")
    } catch {
      throw .system("cannot read '\(path)'", error, file: path)
    }
    var newest: Control?
    var whole = 0
    var torn = false
    for slot in 0..<LogFormat.controlSlots {
      let start = slot * LogFormat.controlSlotBytes
      guard let found = try decode(bytes, at: start, file: path) else {
        let end = min(start + LogFormat.controlSlotBytes, bytes.count)
        if end - start < LogFormat.controlSlotBytes || !bytes.isZero(in: start..<end) { torn = true }
        continue
      }
      whole += 1
      if found.sequence >= newest?.sequence ?? 0 { newest = found }
    }
    newest?.isAlone = whole == 1
    newest?.isOtherTorn = whole == 1 && torn
    guard let newest else {
      throw .damaged(path, at: 0..<UInt64(wholeBytes), lsns: nil, "neither of its two slots verifies")
    }
    return newest
  }
}

/// The file, for a writer.
struct ControlFile: Sendable {
  /// What was written or read last.
  private(set) var current: Control
  /// The slot of `current` is known to be on the medium.
  private var isDurable: Bool

  /// A file that was read.
  init(read control: Control) {
    current = control
    isDurable = control.isAlone
  }

  /// Both slots of a new store; to be written as one file.
  static func fresh(_ control: Control) -> (bytes: [UInt8], file: ControlFile) {
    var file = ControlFile(read: control)
    file.isDurable = true
    return (control.encoded() + [UInt8](repeating: 0, count: LogFormat.controlSlotBytes), file)
  }

  /// Writes new bounds. When this returns they are on the medium.
  mutating func write(
    _ fileSystem: any FileSystem, _ directory: StoreDirectory, _ change: (inout Control) -> Void
  ) throws(SystemError) {
    let file = try fileSystem.open(directory.control, .readWrite)
    defer { file.close() }
    if !isDurable {
      try Self.write(current, file)
      isDurable = true
    }
    var next = current
    change(&next)
    next.sequence += 1
    try Self.write(next, file)
    current = next
  }

  private static func write(_ control: Control, _ file: any File) throws(SystemError) {
    let slot = control.sequence % UInt64(LogFormat.controlSlots)
    try file.write(control.encoded(), at: slot * UInt64(LogFormat.controlSlotBytes))
    try file.sync(.durable)
  }
}
