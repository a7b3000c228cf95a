// A block: the unit of a run that is read, checked and cached. It holds entries in the order of their keys.
//
// A key lacks the bytes that it has in common with the key before it, except at restart points: there it is whole, so
// that a look-up can search by halves among them. A look-up compares keys where they lie and builds none. Layout:
// Formats/runs.md, "Block".

import StrandlineSystem

/// A value where it lies in a block.
package struct RunValue: Sendable {
  /// More than the value: the block, or the part of the file, that it lies in.
  package let bytes: [UInt8]
  package let range: Range<Int>

  package var count: Int { range.count }

  /// The value alone.
  package func copied() -> [UInt8] { Array(bytes[range]) }
}

/// What a run says of a key.
package enum RunLookup: Sendable {
  /// The run says nothing of the key.
  case absent
  /// The key was removed: older runs do not count.
  case tombstone
  case value(RunValue)
}

// MARK: Writing

/// The block that a writer fills.
struct RunBlockBuilder {
  private var entries: [UInt8] = []
  /// Where entries with a whole key begin in `entries`.
  private var restarts: [UInt16] = []
  private(set) var entryCount = 0

  private static func varintBytes(_ value: Int) -> Int { max(1, (Int.bitWidth - value.leadingZeroBitCount + 6) / 7) }

  /// Whether the block stays within its size with this entry. An empty block takes any entry.
  func hasRoom(keyBytes: Int, sharedBytes: Int, valueBytes: Int?) -> Bool {
    guard entryCount > 0 else { return true }
    let isRestart = entryCount % RunFormat.restartInterval == 0
    let shared = isRestart ? 0 : sharedBytes
    let unshared = keyBytes - shared
    let lengthBytes =
      Self.varintBytes(shared) + Self.varintBytes(unshared) + Self.varintBytes(valueBytes.map { $0 + 1 } ?? 0)
    let entryBytes = lengthBytes + unshared + (valueBytes ?? 0)
    let restartBytes = (restarts.count + (isRestart ? 1 : 0)) * RunFormat.restartBytes
    return RunFormat.blockHeaderBytes + restartBytes + entries.count + entryBytes <= RunFormat.blockBytesMax
  }

  /// Appends an entry. Its key, a part of `bytes`, has `sharedBytes` bytes in common with the key before it.
  mutating func append(
    _ bytes: [UInt8], _ key: Range<Int>, sharedBytes: Int, _ value: [UInt8], _ range: Range<Int>?
  ) {
    var shared = sharedBytes
    if entryCount % RunFormat.restartInterval == 0 {
      restarts.append(UInt16(entries.count))
      shared = 0
    }
    append(varint: shared)
    append(varint: key.count - shared)
    append(varint: range.map { $0.count + 1 } ?? 0)
    entries.append(contentsOf: bytes[key.dropFirst(shared)])
    if let range { entries.append(contentsOf: value[range]) }
    entryCount += 1
  }

  private mutating func append(varint value: Int) {
    var rest = UInt(value)
    while rest >= 0x80 {
      entries.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    entries.append(UInt8(rest))
  }

  /// Appends the block to `file`, of which it will be the bytes from `offset` on, and begins an empty one.
  ///
  /// - Returns: the block's checksum.
  mutating func finish(into file: inout [UInt8], at offset: UInt64, _ seed: RunSeed) -> UInt32 {
    let length = RunFormat.blockHeaderBytes + restarts.count * RunFormat.restartBytes + entries.count
    var writer = ByteWriter(capacity: length)
    writer.u32(0)
    writer.u32(UInt32(length))
    writer.u16(UInt16(entryCount))
    for restart in restarts { writer.u16(restart) }
    writer.raw(entries)
    let crc = seed.checksum(writer.bytes, 0..<length, at: offset)
    writer.patch(u32: crc, at: RunFormat.BlockField.crc)
    file.append(contentsOf: writer.bytes)
    entries.removeAll(keepingCapacity: true)
    restarts.removeAll(keepingCapacity: true)
    entryCount = 0
    return crc
  }
}

// MARK: Reading

/// A block that has been checked: a part of a byte array.
struct RunBlock {
  let bytes: [UInt8]
  /// Where it begins in `bytes`, and in the file.
  let start: Int
  let offset: UInt64
  let entryCount: Int
  /// Where its entries lie in `bytes`.
  let entriesStart: Int
  let entriesEnd: Int

  /// An entry where it lies; places are those of `bytes`.
  struct Entry {
    /// How many bytes of the key before it begin its key.
    var shared: Int
    var keyStart: Int
    var keyEnd: Int
    /// Where the value ends, and the next entry begins.
    var end: Int
    var isTombstone: Bool
  }

  /// Checks the block that should lie at `bytes[range]`, read from `offset` of the file.
  static func check(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64, _ seed: RunSeed) throws(RunFault) {
    typealias Field = RunFormat.BlockField
    guard range.upperBound <= bytes.count, range.count >= RunFormat.blockHeaderBytes else {
      throw RunFault(offset: offset, what: "the file ends within a block")
    }
    guard bytes.u32(at: range.lowerBound + Field.length) == UInt32(truncatingIfNeeded: range.count),
      seed.checksum(bytes, range, at: offset) == bytes.u32(at: range.lowerBound + Field.crc)
    else { throw RunFault(offset: offset, what: "the checksum of a block does not match") }
    let block = RunBlock(bytes, range, at: offset)
    guard block.entryCount > 0,
      block.entriesEnd >= block.entriesStart + block.entryCount * RunFormat.entryBytesMin
    else { throw RunFault(offset: offset, what: "a block is too short for its \(block.entryCount) entries") }
  }

  /// The block at `bytes[range]`, which `check` has accepted.
  init(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) {
    self.bytes = bytes
    self.offset = offset
    start = range.lowerBound
    entryCount = Int(bytes.u16(at: start + RunFormat.BlockField.entryCount))
    let restartCount = (entryCount + RunFormat.restartInterval - 1) / RunFormat.restartInterval
    entriesStart = start + RunFormat.blockHeaderBytes + restartCount * RunFormat.restartBytes
    entriesEnd = range.upperBound
  }

  private var restartCount: Int { (entryCount + RunFormat.restartInterval - 1) / RunFormat.restartInterval }

  func fault(_ place: Int, _ what: String) -> RunFault {
    RunFault(offset: offset + UInt64(max(0, place - start)), what: what)
  }

  /// Where the entry of a restart point begins.
  func restart(_ number: Int) throws(RunFault) -> Int {
    let restart = start + RunFormat.blockHeaderBytes + number * RunFormat.restartBytes
    let place = entriesStart + Int(bytes.u16(at: restart))
    guard place < entriesEnd else { throw fault(restart, "a restart point lies behind the block's entries") }
    return place
  }

  /// Decodes the entry at `place`.
  @inline(__always)
  func entry(at place: Int) throws(RunFault) -> Entry {
    var at = place
    let shared: Int
    let unshared: Int
    let value: Int
    // Nearly every length fits into a byte.
    if at + 3 <= entriesEnd, bytes[at] | bytes[at + 1] | bytes[at + 2] < 0x80 {
      (shared, unshared, value) = (Int(bytes[at]), Int(bytes[at + 1]), Int(bytes[at + 2]))
      at += 3
    } else {
      shared = try varint(&at, atMost: RunFormat.keyBytesMax)
      unshared = try varint(&at, atMost: RunFormat.keyBytesMax)
      value = try varint(&at, atMost: RunFormat.valueBytesMax + 1)
    }
    let keyEnd = at + unshared
    let end = keyEnd + (value == 0 ? 0 : value - 1)
    guard end <= entriesEnd, shared + unshared <= RunFormat.keyBytesMax else {
      throw fault(place, "an entry is longer than its block, or its key than \(RunFormat.keyBytesMax) bytes")
    }
    return Entry(shared: shared, keyStart: at, keyEnd: keyEnd, end: end, isTombstone: value == 0)
  }

  @inline(never)
  private func varint(_ at: inout Int, atMost limit: Int) throws(RunFault) -> Int {
    let place = at
    var result = 0
    var shift = 0
    while at < entriesEnd, shift <= 28 {
      let byte = bytes[at]
      at += 1
      result |= Int(byte & 0x7F) << shift
      if byte & 0x80 == 0 {
        guard result <= limit, byte != 0 || shift == 0 else { break }
        return result
      }
      shift += 7
    }
    throw fault(place, "a length is cut short, padded or above \(limit)")
  }

  func value(of entry: Entry) -> RunValue { RunValue(bytes: bytes, range: entry.keyEnd..<entry.end) }

  /// The last restart point whose key does not sort behind `key`; 0 if there is none.
  private func restart(before key: [UInt8]) throws(RunFault) -> Int {
    let next = try (1..<max(1, restartCount)).partitioningIndex { (number) throws(RunFault) in
      let place = try restart(number)
      let entry = try entry(at: place)
      guard entry.shared == 0 else { throw fault(place, "the entry of a restart point lacks the beginning of its key") }
      return key.precedes(0..<key.count, bytes, entry.keyStart..<entry.keyEnd)
    }
    return next - 1
  }

  /// The restart point from which a cursor finds the first key that does not sort before `key`: its number among the
  /// entries, and where it begins.
  func seek(_ key: [UInt8]) throws(RunFault) -> (index: Int, place: Int) {
    let number = try restart(before: key)
    return (number * RunFormat.restartInterval, try restart(number))
  }

  /// The entry of a key; nil if the block has none.
  ///
  /// Compares without the keys before: let the search have passed an entry that sorts before `key` and has exactly
  /// `common` bytes in common with it. The next entry has `shared` bytes in common with that one, and no more.
  ///
  /// | shared | then the next entry |
  /// |---|---|
  /// | above common | differs from `key` as the one before does: it sorts before `key` too |
  /// | below common | has a larger byte where the one before has `key`'s: it sorts behind `key` |
  /// | common | is compared from there on |
  func find(_ key: [UInt8]) throws(RunFault) -> Entry? {
    let number = try restart(before: key)
    var place = try restart(number)
    var common = 0
    let left = min(RunFormat.restartInterval, entryCount - number * RunFormat.restartInterval)
    for _ in 0..<left {
      guard place < entriesEnd else { throw fault(place, "the block has fewer entries than its header says") }
      let entry = try entry(at: place)
      if entry.shared < common { return nil }
      if entry.shared == common {
        let rest = entry.keyStart..<entry.keyEnd
        let equal = key.commonPrefixCount(common..<key.count, bytes, rest)
        common += equal
        if equal == rest.count {
          if common == key.count { return entry }
        } else if common == key.count || key[common] < bytes[rest.lowerBound + equal] {
          return nil
        }
      }
      place = entry.end
    }
    return nil
  }
}
