// Which record a packed deletion is of, in 16 bytes whatever the length of its name: SipHash-2-4 with 128 bits of
// output (Aumasson and Bernstein, 2012) over the bytes of the ID, under a key that follows from the store's UUID. That is
// random and never leaves the device, so another client cannot choose names with equal hashes; and what is made
// anew from the log finds the same key.

import StrandlineSystem

/// The hash of a record's ID under a store's key.
package struct KeyedHash: TwoWords, Hashable, Comparable {
  package var low: UInt64
  package var high: UInt64

  package static func < (left: KeyedHash, right: KeyedHash) -> Bool {
    (left.low, left.high) < (right.low, right.high)
  }

  package init(low: UInt64, high: UInt64) {
    self.low = low
    self.high = high
  }

  /// The hash of an ID.
  package init(of id: RecordID, key: HashKey) {
    var bytes = ByteWriter(capacity: 64)
    _ = RecordID(id, &bytes)
    self.init(of: bytes.bytes, key: key)
  }

  /// The hash of bytes.
  package init(of bytes: [UInt8], key: HashKey) {
    var state = SipState(key)
    var at = 0
    while at + 8 <= bytes.count {
      state.absorb(Self.word(bytes, at, 8))
      at += 8
    }
    state.absorb(Self.word(bytes, at, bytes.count - at) | UInt64(truncatingIfNeeded: bytes.count) << 56)
    (low, high) = state.finish()
  }

  private static func word(_ bytes: [UInt8], _ start: Int, _ count: Int) -> UInt64 {
    var word: UInt64 = 0
    for place in 0..<count { word |= UInt64(bytes[start + place]) << UInt64(8 * place) }
    return word
  }
}

/// The key of a store's hashes: 16 bytes.
package struct HashKey: TwoWords, Hashable {
  package var low: UInt64
  package var high: UInt64

  package init(low: UInt64, high: UInt64) {
    self.low = low
    self.high = high
  }

  /// The key of a store: the hash of its UUID under a key that is zero. A store that repair has made has events under
  /// another one too.
  package init(ofStore uuid: [UInt8]) {
    let hash = KeyedHash(of: uuid, key: HashKey(low: 0, high: 0))
    self.init(low: hash.low, high: hash.high)
  }
}

/// The four words of SipHash.
private struct SipState {
  private var (v0, v1, v2, v3): (UInt64, UInt64, UInt64, UInt64)

  init(_ key: HashKey) {
    v0 = key.low ^ 0x736F_6D65_7073_6575
    v1 = key.high ^ 0x646F_7261_6E64_6F6D ^ 0xEE
    v2 = key.low ^ 0x6C79_6765_6E65_7261
    v3 = key.high ^ 0x7465_6462_7974_6573
  }

  mutating func absorb(_ word: UInt64) {
    v3 ^= word
    for _ in 0..<2 { round() }
    v0 ^= word
  }

  mutating func finish() -> (UInt64, UInt64) {
    v2 ^= 0xEE
    for _ in 0..<4 { round() }
    let low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for _ in 0..<4 { round() }
    return (low, v0 ^ v1 ^ v2 ^ v3)
  }

  private mutating func round() {
    v0 &+= v1
    v1 = Self.rotated(v1, 13) ^ v0
    v0 = Self.rotated(v0, 32)
    v2 &+= v3
    v3 = Self.rotated(v3, 16) ^ v2
    v0 &+= v3
    v3 = Self.rotated(v3, 21) ^ v0
    v2 &+= v1
    v1 = Self.rotated(v1, 17) ^ v2
    v2 = Self.rotated(v2, 32)
  }

  private static func rotated(_ word: UInt64, _ bits: UInt64) -> UInt64 { word << bits | word >> (64 - bits) }
}
