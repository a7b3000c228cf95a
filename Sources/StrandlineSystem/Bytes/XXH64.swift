// A fast hash of bytes whose values may be stored in files, because they are the same everywhere.
//
// xxHash's 64-bit hash (Collet, "xxHash fast digest algorithm", specification 0.1.1; https://xxhash.com). The hash of no
// bytes under seed 0 is 0xEF46DB3751D8E999. It is no protection against keys that an attacker chooses.

/// xxHash, 64 bits.
package enum XXH64 {
  private static let prime1: UInt64 = 0x9E37_79B1_85EB_CA87
  private static let prime2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
  private static let prime3: UInt64 = 0x1656_67B1_9E37_79F9
  private static let prime4: UInt64 = 0x85EB_CA77_C2B2_AE63
  private static let prime5: UInt64 = 0x27D4_EB2F_1656_67C5

  /// The hash of all of `bytes` under seed 0.
  package static func hash(_ bytes: [UInt8]) -> UInt64 {
    unsafe bytes.withUnsafeBytes { unsafe hash($0) }
  }

  /// The hash of `bytes[range]` under seed 0.
  package static func hash(_ bytes: [UInt8], _ range: Range<Int>) -> UInt64 {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    return unsafe bytes.withUnsafeBytes { unsafe hash(UnsafeRawBufferPointer(rebasing: $0[range])) }
  }

  private static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var at = 0
    var hash: UInt64
    if bytes.count >= 32 {
      var (a, b, c, d) = (prime1 &+ prime2, prime2, UInt64(0), 0 &- prime1)
      repeat {
        a = unsafe round(a, word(bytes, at))
        b = unsafe round(b, word(bytes, at + 8))
        c = unsafe round(c, word(bytes, at + 16))
        d = unsafe round(d, word(bytes, at + 24))
        at += 32
      } while at + 32 <= bytes.count
      hash = rotate(a, 1) &+ rotate(b, 7) &+ rotate(c, 12) &+ rotate(d, 18)
      for lane in [a, b, c, d] { hash = (hash ^ round(0, lane)) &* prime1 &+ prime4 }
    } else {
      hash = prime5
    }
    hash &+= UInt64(bytes.count)
    while at + 8 <= bytes.count {
      hash = unsafe rotate(hash ^ round(0, word(bytes, at)), 27) &* prime1 &+ prime4
      at += 8
    }
    if at + 4 <= bytes.count {
      let word = unsafe UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self))
      hash = rotate(hash ^ (UInt64(word) &* prime1), 23) &* prime2 &+ prime3
      at += 4
    }
    while at < bytes.count {
      hash = unsafe rotate(hash ^ (UInt64(bytes[at]) &* prime5), 11) &* prime1
      at += 1
    }
    hash = (hash ^ (hash >> 33)) &* prime2
    hash = (hash ^ (hash >> 29)) &* prime3
    return hash ^ (hash >> 32)
  }

  private static func word(_ bytes: UnsafeRawBufferPointer, _ at: Int) -> UInt64 {
    unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
  }

  private static func round(_ lane: UInt64, _ word: UInt64) -> UInt64 {
    rotate(lane &+ word &* prime2, 31) &* prime1
  }

  private static func rotate(_ value: UInt64, _ count: UInt64) -> UInt64 { (value << count) | (value >> (64 - count)) }
}
