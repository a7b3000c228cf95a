// A set of LSNs as a bitmap: a million in a row take 125 kB, and the least of them is found without a search.

package import StrandlineSystem

/// A set of LSNs.
package struct LSNSet: Sendable, Equatable {
  /// 4,096 LSNs, by their distance from the first.
  private struct Chunk: Sendable, Equatable {
    var number: UInt64
    var count = 0
    var words: [UInt64] = Array(repeating: 0, count: 64)
  }
  /// In order of number; none is empty.
  private var chunks: [Chunk] = []
  package private(set) var count = 0

  package init() {}

  package var isEmpty: Bool { count == 0 }

  /// The least.
  package var first: LSN? {
    guard let chunk = chunks.first, let word = chunk.words.firstIndex(where: { $0 != 0 }) else { return nil }
    return Self.lsn(chunk.number, word, chunk.words[word].trailingZeroBitCount)
  }

  package func contains(_ lsn: LSN) -> Bool {
    let (number, word, bit) = Self.place(lsn)
    guard let index = index(of: number) else { return false }
    return chunks[index].words[word] & bit != 0
  }

  /// Returns whether it was not there. O(1) for the greatest, else O(chunks).
  @discardableResult
  package mutating func insert(_ lsn: LSN) -> Bool {
    let (number, word, bit) = Self.place(lsn)
    let index = lowerBound(number)
    if index == chunks.count || chunks[index].number != number { chunks.insert(Chunk(number: number), at: index) }
    guard chunks[index].words[word] & bit == 0 else { return false }
    chunks[index].words[word] |= bit
    chunks[index].count += 1
    count += 1
    return true
  }

  /// Returns whether it was there.
  @discardableResult
  package mutating func remove(_ lsn: LSN) -> Bool {
    let (number, word, bit) = Self.place(lsn)
    guard let index = index(of: number), chunks[index].words[word] & bit != 0 else { return false }
    chunks[index].words[word] &= ~bit
    chunks[index].count -= 1
    count -= 1
    if chunks[index].count == 0 { chunks.remove(at: index) }
    return true
  }

  /// All, ascending.
  package func all() -> [LSN] { first(count, after: .zero, upTo: LSN(rawValue: .max)) }

  /// The least `count` of those above `lsn` and not above `end`, ascending. O(chunks) for the first, then O(1) each.
  package func first(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] {
    var result: [LSN] = []
    result.reserveCapacity(min(count, self.count))
    var index = lowerBound(lsn.rawValue >> 12)
    while index < chunks.count, result.count < count {
      let chunk = chunks[index]
      index += 1
      for (word, bits) in chunk.words.enumerated() where bits != 0 {
        var rest = bits
        while rest != 0, result.count < count {
          let found = Self.lsn(chunk.number, word, rest.trailingZeroBitCount)
          rest &= rest &- 1
          if found <= lsn { continue }
          if found > end { return result }
          result.append(found)
        }
      }
    }
    return result
  }

  // MARK: Bytes

  /// Appends the set as `init(from:)` reads it: see `LSNSetType`.
  package func encode(into writer: inout ByteWriter) {
    writer.varint(UInt64(chunks.count))
    var last: UInt64 = 0
    for chunk in chunks {
      writer.varint(chunk.number - last)
      last = chunk.number
      var mask: UInt64 = 0
      for (place, word) in chunk.words.enumerated() where word != 0 { mask |= 1 << UInt64(place) }
      writer.u64(mask)
      for word in chunk.words where word != 0 { writer.u64(word) }
    }
  }

  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    var last: UInt64 = 0
    for place in 0..<(try reader.count(minimumBytes: 17)) {
      let start = reader.offset
      let step = try reader.varint()
      let (number, overflows) = last.addingReportingOverflow(step)
      let mask = try reader.u64()
      guard !overflows, number < 1 << 52, place == 0 || step > 0, mask != 0 else {
        throw ByteReaderError(offset: start, what: "a chunk of LSNs that no set has")
      }
      last = number
      var chunk = Chunk(number: number)
      for word in 0..<64 where mask >> UInt64(word) & 1 == 1 {
        let bits = try reader.u64()
        guard bits != 0 else { throw ByteReaderError(offset: start, what: "a word of LSNs without one") }
        chunk.words[word] = bits
        chunk.count += bits.nonzeroBitCount
      }
      chunks.append(chunk)
      count += chunk.count
    }
  }

  // MARK: Places

  private static func place(_ lsn: LSN) -> (chunk: UInt64, word: Int, bit: UInt64) {
    (lsn.rawValue >> 12, Int(lsn.rawValue >> 6 & 63), 1 << (lsn.rawValue & 63))
  }

  private static func lsn(_ chunk: UInt64, _ word: Int, _ bit: Int) -> LSN {
    LSN(chunk << 12 | UInt64(word) << 6 | UInt64(bit))
  }

  private func index(of number: UInt64) -> Int? {
    let index = lowerBound(number)
    return index < chunks.count && chunks[index].number == number ? index : nil
  }

  /// The index of the first chunk that is not before `number`.
  private func lowerBound(_ number: UInt64) -> Int {
    if let last = chunks.last {
      if last.number < number { return chunks.count }
      if last.number == number { return chunks.count - 1 }
    }
    return chunks.partitioningIndex { $0.number >= number }
  }
}
