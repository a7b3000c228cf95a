// The keys that were read of the objects that are open, because JSON with a key twice says two things: some readers take
// the first value and others the last.
//
// A small object's keys are compared with each other, which costs less than a hash. From `linearMax` on they are in a hash
// table, whose hash is seeded: an object of 100,000 keys that collide on purpose costs no more than another.

private import StrandlineSystem

/// A stack of keys, those of the innermost object on top.
struct ReadKeys: Sendable {
  private struct ReadKey: Sendable {
    let words: KeyWords
    let start: Int32
    /// Whether `start` counts in `unescaped`.
    let isUnescaped: Bool
  }

  /// Where the keys of one object begin.
  struct Mark: Sendable {
    fileprivate var keys: Int
    fileprivate var unescaped: Int
    fileprivate var hasTable = false
    /// A bit for each hash of a key, of 64: a key whose bit is not set is new.
    fileprivate var seen: UInt64 = 0
  }

  /// The keys, and behind `count` room for more.
  private var keys: [ReadKey] = []
  private var count = 0
  /// The texts of keys that had escapes.
  private var unescaped: [UInt8] = []
  /// The tables of the open objects that have more than `linearMax` keys, the innermost last.
  private var tables: [Table] = []

  private static let linearMax = 16

  private struct Table: Sendable {
    /// Places in `keys`, or -1.
    var slots: [Int32]
    var count: Int
  }

  init() { keys.reserveCapacity(32) }

  /// The mark of an object that begins.
  var mark: Mark { Mark(keys: count, unescaped: unescaped.count) }

  /// Drops the keys of the innermost object.
  mutating func drop(to mark: Mark) {
    count = mark.keys
    if unescaped.count > mark.unescaped { unescaped.removeLast(unescaped.count - mark.unescaped) }
    if mark.hasTable { tables.removeLast() }
  }

  /// Adds a key of the innermost object.
  ///
  /// - Returns: false if the object has it already.
  mutating func insert(_ words: KeyWords, _ start: Int, in bytes: [UInt8], _ mark: inout Mark) -> Bool {
    insert(ReadKey(words: words, start: Int32(start), isUnescaped: false), bytes, &mark)
  }

  /// Adds a key that was written with escapes.
  mutating func insert(unescaped text: [UInt8], in bytes: [UInt8], _ mark: inout Mark) -> Bool {
    let start = unescaped.count
    unescaped += text
    let words = KeyWords(unescaped, start..<start + text.count)
    return insert(ReadKey(words: words, start: Int32(start), isUnescaped: true), bytes, &mark)
  }

  private mutating func insert(_ key: ReadKey, _ bytes: [UInt8], _ mark: inout Mark) -> Bool {
    guard count - mark.keys < Self.linearMax else { return insertIntoTable(key, bytes, &mark) }
    let bit: UInt64 = 1 << (key.words.mixed >> 58)
    if mark.seen & bit != 0 {
      for other in keys[mark.keys..<count] where other.words == key.words {
        if key.words.sayAll || sameBytes(other, key, bytes) { return false }
      }
    }
    mark.seen |= bit
    push(key)
    return true
  }

  private mutating func push(_ key: ReadKey) {
    if count < keys.count { keys[count] = key } else { keys.append(key) }
    count += 1
  }

  private func sameBytes(_ left: ReadKey, _ right: ReadKey, _ bytes: [UInt8]) -> Bool {
    (left.isUnescaped ? unescaped : bytes).equals(
      range(left), right.isUnescaped ? unescaped : bytes, range(right))
  }

  private func range(_ key: ReadKey) -> Range<Int> { Int(key.start)..<Int(key.start) + key.words.count }

  @inline(never)
  private mutating func insertIntoTable(_ key: ReadKey, _ bytes: [UInt8], _ mark: inout Mark) -> Bool {
    if !mark.hasTable {
      mark.hasTable = true
      tables.append(Table(slots: [], count: 0))
      fill(4 * Self.linearMax, bytes, mark)
    }
    let last = tables.count - 1
    if 2 * tables[last].count >= tables[last].slots.count { fill(4 * tables[last].count, bytes, mark) }
    push(key)
    if place(count - 1, bytes) { return true }
    count -= 1
    return false
  }

  /// Makes the innermost table anew with so many slots, a power of two, and all keys of its object.
  private mutating func fill(_ slots: Int, _ bytes: [UInt8], _ mark: Mark) {
    tables[tables.count - 1] = Table(slots: [Int32](repeating: -1, count: slots), count: 0)
    for place in mark.keys..<count { _ = self.place(place, bytes) }
  }

  /// Puts the key at a place into the innermost table. Returns false if an equal one is there.
  private mutating func place(_ place: Int, _ bytes: [UInt8]) -> Bool {
    let key = keys[place]
    let last = tables.count - 1
    var slot = (key.isUnescaped ? unescaped : bytes).seededHash(in: range(key))
    while true {
      slot &= tables[last].slots.count - 1
      let other = Int(tables[last].slots[slot])
      if other < 0 { break }
      if keys[other].words == key.words, key.words.sayAll || sameBytes(keys[other], key, bytes) { return false }
      slot += 1
    }
    tables[last].slots[slot] = Int32(place)
    tables[last].count += 1
    return true
  }
}
