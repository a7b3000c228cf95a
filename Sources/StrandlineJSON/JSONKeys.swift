// The keys that a decoder knows, found without a string for each key that is read.

private import StrandlineSystem

/// The names of keys, in a hash table with open addressing. A key is known by its place in them.
package struct JSONKeys: Sendable {
  private let names: [[UInt8]]
  private let words: [KeyWords]
  /// The place of a name, or -1. There are at least four times as many slots as names, a power of two.
  private let slots: [Int16]
  private let shift: UInt64

  /// The names of the cases of an enumeration, each at the place that is its raw value.
  ///
  ///     enum Key: Int, CaseIterable {
  ///       case recordName, fields
  ///       static let names = JSONKeys(Key.self)
  ///     }
  package init<Key: CaseIterable & RawRepresentable<Int>>(_ type: Key.Type) {
    precondition(type.allCases.enumerated().allSatisfy { $0.offset == $0.element.rawValue })
    self.init(type.allCases.map { "\($0)" })
  }

  /// Names in the order of their places.
  package init(_ texts: [String]) {
    names = texts.map { Array($0.utf8) }
    words = names.map { KeyWords($0, 0..<$0.count) }
    precondition(texts.count < 1 << 12 && Set(texts).count == texts.count)
    var bits = 3
    while 1 << bits < 4 * texts.count { bits += 1 }
    shift = UInt64(64 - bits)
    var slots = [Int16](repeating: -1, count: 1 << bits)
    for (index, word) in words.enumerated() {
      var slot = Int(word.mixed >> shift)
      while slots[slot] >= 0 { slot = (slot + 1) & (slots.count - 1) }
      slots[slot] = Int16(index)
    }
    self.slots = slots
  }

  /// The place of a name; -1 if it is none of these.
  func place(of key: KeyWords, in bytes: [UInt8], _ start: Int) -> Int {
    var slot = Int(key.mixed >> shift)
    while true {
      let place = Int(slots[slot])
      if place < 0 { return -1 }
      if words[place] == key, key.sayAll || bytes.equals(start..<start + key.count, names[place], 0..<key.count) {
        return place
      }
      slot = (slot + 1) & (slots.count - 1)
    }
  }
}

/// The length of a key with its first and its last eight bytes, which are all that most keys have.
struct KeyWords: Equatable, Sendable {
  let first: UInt64
  let last: UInt64
  let count: Int

  init(_ bytes: [UInt8], _ range: Range<Int>) {
    count = range.count
    if count >= 8 {
      first = bytes.u64(at: range.lowerBound)
      last = bytes.u64(at: range.upperBound - 8)
      return
    }
    last = 0
    if range.lowerBound + 8 <= bytes.count {
      first = bytes.u64(at: range.lowerBound) & (1 << UInt64(8 * count) &- 1)
    } else {
      var word: UInt64 = 0
      for place in range.reversed() { word = word << 8 | UInt64(bytes[place]) }
      first = word
    }
  }

  /// Whether keys with equal words are equal.
  @inline(__always) var sayAll: Bool { count <= 16 }

  /// A hash, whose upper bits depend on all others.
  @inline(__always) var mixed: UInt64 {
    let product = (first ^ (last << 23 | last >> 41) ^ UInt64(truncatingIfNeeded: count)) &* 0x9E37_79B9_7F4A_7C15
    return (product ^ (product >> 32)) &* 0x9E37_79B9_7F4A_7C15
  }
}

extension [UInt8] {
  /// Whether two ranges of one length have the same bytes.
  func equals(_ range: Range<Int>, _ other: [UInt8], _ otherRange: Range<Int>) -> Bool {
    commonPrefixCount(range, other, otherRange) == range.count
  }
}
