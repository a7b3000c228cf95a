// The operating system's random source, and one that repeats its numbers from a seed.

/// Random numbers from the operating system.
package struct SystemRandom: RandomSource {
  package init() {}

  package func next() -> UInt64 {
    var generator = SystemRandomNumberGenerator()
    return generator.next()
  }
}

/// Random numbers that are computed from a seed: the same seed yields the same numbers on every machine.
///
/// xoshiro256** (Blackman and Vigna), with its state filled by splitmix64 as its authors recommend. Its description
/// shows the seed, so that a failing test says how to repeat it.
package final class SeededRandom: RandomSource, CustomStringConvertible {
  package let seed: UInt64
  private let state: OrderedMutex<Xoshiro>

  package init(seed: UInt64) {
    self.seed = seed
    self.state = OrderedMutex(.leaf, Xoshiro(seed: seed))
  }

  package func next() -> UInt64 { state.withLock { $0.next() } }

  package var description: String { "seed 0x" + String(seed, radix: 16) }

  private struct Xoshiro {
    var a: UInt64
    var b: UInt64
    var c: UInt64
    var d: UInt64

    init(seed: UInt64) {
      var mixer = seed
      func splitmix() -> UInt64 {
        mixer &+= 0x9E37_79B9_7F4A_7C15
        var z = mixer
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
      }
      (a, b, c, d) = (splitmix(), splitmix(), splitmix(), splitmix())
    }

    mutating func next() -> UInt64 {
      func rotate(_ value: UInt64, _ by: UInt64) -> UInt64 { (value << by) | (value >> (64 - by)) }
      let result = rotate(b &* 5, 7) &* 9
      let shifted = b << 17
      c ^= a
      d ^= b
      b ^= c
      a ^= d
      c ^= shifted
      d = rotate(d, 45)
      return result
    }
  }
}
