// How far a log reaches at least, said apart from it: two slots, a page apart.
//
// A log cannot tell by itself that its end was cut away: what promises a group lies behind it and is cut with it.
// CONTROL says from another file how far the log must reach (decision L21). It is written and synced when a store is
// made, when a writer has left a segment behind, and when it closes the log; between these it is *raised*, without a
// sync, while appends go on.
//
// One slot holds what was synced last. Every later write, synced or not, goes to the other one, so that a power cut
// tears at most that; two bad slots are damage. A slot that was read may be in memory and not on the medium, so it is
// written again and synced before the other one is overwritten (decision L7); not if the other one is torn, because
// then its writer had made sure of the slot that counts, and to write that again could tear both.
//
// A slot lies within one sector. When it had several, a raise that tore was completed by a later raise that tore as well,
// because most sectors of both were the same zeros: the slot said again what had been true before a writer in between
// ended that segment earlier.
// Layout: Formats/log.md, "CONTROL".

import StrandlineSystem

/// What a slot says.
package struct Control: Hashable, Sendable {
  package var storeUUID: [UInt8]
  /// The slot with the larger one counts.
  package var sequence: UInt64 = 0
  package var bound: LogBound

  package init(storeUUID: [UInt8], bound: LogBound) {
    precondition(storeUUID.count == 16)
    self.storeUUID = storeUUID
    self.bound = bound
  }

  /// The bytes of a slot.
  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.controlSlotBytes)
    writer.raw(LogFormat.controlMagic)
    writer.u16(LogFormat.version)
    writer.u16(0)
    writer.u32(0)
    writer.raw(storeUUID)
    writer.u64(sequence)
    writer.u64(bound.segmentID)
    writer.u64(bound.lsn)
    writer.u32(bound.end)
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
      CRC32C.checksum(bytes, start..<crc) == bytes.u32(at: crc)
    else { return nil }
    let version = bytes.u16(at: start + Field.version)
    guard version == LogFormat.version, bytes.u16(at: start + Field.reserved) == 0,
      bytes.u32(at: start + Field.incompatibleBits) == 0
    else { throw .fromTheFuture(file, at: UInt64(start), "a slot has another form (version \(version))") }
    let bound = LogBound(
      segmentID: bytes.u64(at: start + Field.tailSegmentID), lsn: bytes.u64(at: start + Field.durableLSN),
      end: bytes.u32(at: start + Field.durableEnd))
    let sequence = bytes.u64(at: start + Field.sequence)
    guard sequence < LogFormat.numberMax, bound.lsn < LogFormat.numberMax else { return nil }
    let storeUUID = start + Field.storeUUID
    var control = Control(storeUUID: Array(bytes[storeUUID..<storeUUID + 16]), bound: bound)
    control.sequence = sequence
    return control
  }
}

/// A lower bound of a log.
package struct LogBound: Hashable, Sendable {
  /// The segment that held the end of the log.
  package var segmentID: UInt64
  /// The log has at least this LSN.
  package var lsn: UInt64
  /// In that segment a unit ends here, with `lsn`.
  package var end: UInt32

  package init(segmentID: UInt64, lsn: UInt64, end: UInt32) {
    self.segmentID = segmentID
    self.lsn = lsn
    self.end = end
  }
}

/// The file, as it was read or written last.
struct ControlFile: Sendable {
  /// What the slot that counts says.
  private(set) var current: Control
  private var durability: Durability
  /// The other slot does not verify, and not because no writer has written it yet.
  private(set) var isTorn = false

  /// The last write was not synced.
  var isRaised: Bool { if case .raised = durability { true } else { false } }

  /// What is known of the slot of `current`.
  private enum Durability: Sendable {
    /// It is on the medium: the next write goes to the other slot.
    case synced
    /// It was written without a sync, and the other slot is on the medium: the next write goes to the same slot.
    case raised
    /// It was read, perhaps from memory: it is written again and synced before the other slot is touched.
    case unknown
  }

  /// The file of a new store: both slots.
  static func new(_ control: Control) -> (bytes: [UInt8], file: ControlFile) {
    let file = ControlFile(current: control, durability: .synced)
    let slot = control.encoded()
    let unwritten = [UInt8](repeating: 0, count: LogFormat.controlSlots * LogFormat.controlPageBytes - slot.count)
    return (slot + unwritten, file)
  }

  private init(current: Control, durability: Durability) {
    self.current = current
    self.durability = durability
  }

  /// Reads it.
  ///
  /// - Throws: `.damaged` if no slot verifies, or the file is missing: a store never was without. `.fromTheFuture`,
  ///   `.io`.
  static func read(_ fileSystem: any FileSystem, _ directory: StoreDirectory) throws(LogError) -> ControlFile {
    let path = directory.control
    let wholeBytes = LogFormat.controlPageBytes * LogFormat.controlSlots
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
    var whole: [Control] = []
    var hasJunk = false
    for slot in 0..<LogFormat.controlSlots {
      let start = slot * LogFormat.controlPageBytes
      if let found = try Control.decode(bytes, at: start, file: path), found.slot == slot {
        whole.append(found)
      } else {
        let end = min(start + LogFormat.controlSlotBytes, bytes.count)
        hasJunk = hasJunk || end - start < LogFormat.controlSlotBytes || !bytes.isZero(in: start..<end)
      }
    }
    guard let newest = whole.max(by: { $0.sequence < $1.sequence }) else {
      throw .damaged(path, at: 0..<UInt64(wholeBytes), lsns: nil, "neither of its two slots verifies")
    }
    var file = ControlFile(current: newest, durability: whole.count == 1 ? .synced : .unknown)
    // A store begins with slot 0 and zeros.
    file.isTorn = whole.count == 1 && (hasJunk || newest.sequence > 0)
    return file
  }

  /// Writes a new bound. When this returns it is on the medium.
  mutating func write(
    _ bound: LogBound, _ fileSystem: any FileSystem, _ directory: StoreDirectory
  ) throws(SystemError) {
    try write(bound, fileSystem, directory, isSynced: true)
  }

  /// Writes a new bound, and lets the system bring it to the medium when it likes.
  mutating func raise(
    _ bound: LogBound, _ fileSystem: any FileSystem, _ directory: StoreDirectory
  ) throws(SystemError) {
    try write(bound, fileSystem, directory, isSynced: false)
  }

  private mutating func write(
    _ bound: LogBound, _ fileSystem: any FileSystem, _ directory: StoreDirectory, isSynced: Bool
  ) throws(SystemError) {
    let file = try fileSystem.open(directory.control, .readWrite)
    defer { file.close() }
    if case .unknown = durability {
      try Self.write(current, file)
      try file.sync(.durable)
      durability = .synced
    }
    var next = current
    next.bound = bound
    if case .synced = durability { next.sequence += 1 }
    try Self.write(next, file)
    current = next
    durability = .raised
    guard isSynced else { return }
    try file.sync(.durable)
    durability = .synced
  }

  private static func write(_ control: Control, _ file: any File) throws(SystemError) {
    try file.write(control.encoded(), at: UInt64(control.slot * LogFormat.controlPageBytes))
  }
}

extension Control {
  /// Which of the two it is.
  fileprivate var slot: Int { Int(sequence % UInt64(LogFormat.controlSlots)) }
}
