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
    var bytes: [UInt8] = []
    encode(into: &bytes)
    return bytes
  }

  /// The same, in the place of the bytes of an array.
  func encode(into bytes: inout [UInt8]) {
    var writer = ByteWriter()
    swap(&writer.bytes, &bytes)
    writer.bytes.removeAll(keepingCapacity: true)
    writer.bytes.reserveCapacity(LogFormat.controlSlotBytes)
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
    swap(&writer.bytes, &bytes)
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
  /// The bytes of each slot as they were found, or as this writer wrote them; nil if they could not be read after a write that failed.
  private var slots: [[UInt8]?]

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

  private static let wholeBytes = LogFormat.controlPageBytes * LogFormat.controlSlots

  /// The file of a new store: both slots.
  static func new(_ control: Control) -> (bytes: [UInt8], file: ControlFile) {
    let slot = control.encoded()
    let bytes = slot + [UInt8](repeating: 0, count: wholeBytes - slot.count)
    return (bytes, ControlFile(current: control, durability: .synced, bytes))
  }

  private init(current: Control, durability: Durability, _ bytes: [UInt8]) {
    self.current = current
    self.durability = durability
    slots = (0..<LogFormat.controlSlots).map { Self.slot($0, in: bytes) }
  }

  /// The bytes of a slot, as far as the file has them.
  private static func slot(_ number: Int, in bytes: [UInt8]) -> [UInt8] {
    let start = number * LogFormat.controlPageBytes
    return Array(bytes[min(start, bytes.count)..<min(start + LogFormat.controlSlotBytes, bytes.count)])
  }

  /// Reads it.
  ///
  /// - Throws: `.damaged` if no slot verifies, or the file is missing: a store never was without. `.fromTheFuture`,
  ///   `.io`.
  static func read(_ directory: StoreDirectory) throws(LogError) -> ControlFile {
    let path = directory.control
    let file: any File
    do throws(SystemError) {
      file = try directory.folder.open(LogFormat.controlName, .read)
    } catch {
      guard error.isAbsent else { throw .system("cannot read '\(path)'", error, file: path) }
      throw .damaged(path, at: 0..<UInt64(wholeBytes), lsns: nil, "the file that bounds the log is missing")
    }
    defer { file.close() }
    return try read(file, path)
  }

  /// Reads the file that is open.
  static func read(_ file: any File, _ path: String) throws(LogError) -> ControlFile {
    do {
      var found = try readOnce(file, path)
      // A writer may have been in the middle of a slot.
      for _ in 0..<2 where found.isTorn { found = try readOnce(file, path) }
      return found
    } catch let error as LogError {
      throw error
    } catch let error as SystemError {
      throw .system("cannot read '\(path)'", error, file: path)
    } catch {
      preconditionFailure("a disk throws its own errors alone")
    }
  }

  private static func readOnce(_ file: any File, _ path: String) throws -> ControlFile {
    let bytes = try file.read(at: 0, count: wholeBytes)
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
      throw LogError.damaged(path, at: 0..<UInt64(wholeBytes), lsns: nil, "neither of its two slots verifies")
    }
    var control = ControlFile(current: newest, durability: whole.count == 1 ? .synced : .unknown, bytes)
    // A store begins with slot 0 and zeros.
    control.isTorn = whole.count == 1 && (hasJunk || newest.sequence > 0)
    return control
  }

  /// Whether the file that is open has the bytes that were found in it or written into it last.
  func isIn(_ file: any File) throws(SystemError) -> Bool {
    let bytes = try file.read(at: 0, count: Self.wholeBytes)
    return slots.indices.allSatisfy { slots[$0] == nil || slots[$0] == Self.slot($0, in: bytes) }
  }

  /// Whether the slot that counts has the bytes that were found in it or written into it last. Every other store has
  /// others there, and so has every copy of this one that was made before they were written.
  func isCurrentIn(_ file: any File) throws(SystemError) -> Bool {
    guard let known = slots[current.slot] else { return true }
    return try Self.slot(current.slot, of: file) == known
  }

  private static func slot(_ number: Int, of file: any File) throws(SystemError) -> [UInt8] {
    try file.read(at: UInt64(number * LogFormat.controlPageBytes), count: LogFormat.controlSlotBytes)
  }

  /// Writes a new bound. When this returns true it is on the medium.
  ///
  /// - Returns: false if the file has other bytes by now; then they stay.
  mutating func write(_ bound: LogBound, to file: any File) throws(SystemError) -> Bool {
    try write(bound, to: file, isSynced: true)
  }

  /// Writes a new bound, and lets the system bring it to the medium when it likes.
  ///
  /// - Returns: false if the file has other bytes by now; then they stay.
  mutating func raise(_ bound: LogBound, to file: any File) throws(SystemError) -> Bool {
    try write(bound, to: file, isSynced: false)
  }

  private mutating func write(_ bound: LogBound, to file: any File, isSynced: Bool) throws(SystemError) -> Bool {
    if case .unknown = durability {
      guard try put(current, into: file) else { return false }
      try file.sync(.durable)
      durability = .synced
    }
    var next = current
    next.bound = bound
    if case .synced = durability { next.sequence += 1 }
    guard try put(next, into: file) else { return false }
    current = next
    durability = .raised
    guard isSynced else { return true }
    try file.sync(.durable)
    durability = .synced
    return true
  }

  /// Right before each write, because a write over a copy of this session's own could make both slots equal again.
  private mutating func put(_ control: Control, into file: any File) throws(SystemError) -> Bool {
    guard try isCurrentIn(file) else { return false }
    let slot = control.slot
    // The array is used again: a commit writes one.
    var bytes = slots[slot].take() ?? []
    control.encode(into: &bytes)
    do throws(SystemError) {
      try file.write(bytes, 0..<bytes.count, at: UInt64(slot * LogFormat.controlPageBytes))
    } catch {
      // It may have written a part.
      slots[slot] = try? Self.slot(slot, of: file)
      throw error
    }
    slots[slot] = bytes
    return true
  }
}

extension Control {
  /// Whether the same writer wrote it earlier, or an earlier one.
  func isBefore(_ other: Control) -> Bool {
    sequence < other.sequence || (sequence == other.sequence && other.bound.isAhead(of: bound))
  }

  /// Which of the two it is.
  fileprivate var slot: Int { Int(sequence % UInt64(LogFormat.controlSlots)) }
}
