// SHA-256 (FIPS 180-4) of what comes in pieces: the name of a file's content.
//
// Apple's systems have it in CryptoKit. Elsewhere the blocks are compressed in C, and this collects them and pads the last.

#if canImport(CryptoKit)
  private import CryptoKit
#else
  private import CStrandline
#endif

/// A SHA-256 that is being computed.
package struct SHA256Digest: Sendable {
  #if canImport(CryptoKit)
    private var hasher = SHA256()

    /// Of nothing yet.
    package init() {}

    /// Takes in the next bytes.
    package mutating func update(_ bytes: [UInt8]) { hasher.update(data: bytes) }

    /// The 32 bytes; the value goes on as it was.
    package func finish() -> [UInt8] { Array(hasher.finalize()) }
  #else
    private var state = Self.start
    /// The beginning of a block that is not whole.
    private var rest: [UInt8] = []
    private var byteCount: UInt64 = 0

    private static let start: [UInt32] = [
      0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
    ]
    private static let blockBytes = 64

    /// Of nothing yet.
    package init() {}

    /// Takes in the next bytes.
    package mutating func update(_ bytes: [UInt8]) {
      byteCount += UInt64(bytes.count)
      var first = 0
      if !rest.isEmpty {
        first = min(bytes.count, Self.blockBytes - rest.count)
        rest += bytes[..<first]
        guard rest.count == Self.blockBytes else { return }
        Self.compress(&state, rest, 0..<rest.count)
        rest.removeAll(keepingCapacity: true)
      }
      let whole = (bytes.count - first) / Self.blockBytes * Self.blockBytes
      Self.compress(&state, bytes, first..<first + whole)
      rest += bytes[(first + whole)...]
    }

    /// The 32 bytes; the value goes on as it was.
    package func finish() -> [UInt8] {
      var (state, end) = (state, rest + [0x80])
      while end.count % Self.blockBytes != Self.blockBytes - 8 { end.append(0) }
      let bits = byteCount &* 8
      for place in 0..<8 { end.append(UInt8(truncatingIfNeeded: bits >> UInt64(56 - 8 * place))) }
      Self.compress(&state, end, 0..<end.count)
      return state.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> UInt32(24 - 8 * $0)) } }
    }

    private static func compress(_ state: inout [UInt32], _ bytes: [UInt8], _ range: Range<Int>) {
      precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count && range.count % blockBytes == 0)
      if range.isEmpty { return }
      unsafe state.withUnsafeMutableBufferPointer { state in
        unsafe bytes.withUnsafeBytes { buffer in
          guard let state = state.baseAddress, let base = buffer.baseAddress else { return }
          unsafe strandline_sha256(state, base + range.lowerBound, range.count / blockBytes)
        }
      }
    }

    /// Takes whole blocks in without the CPU's instructions.
    ///
    /// For tests: they compare the two implementations.
    package static func byArithmetic(blocks: [UInt8]) -> [UInt32] {
      precondition(blocks.count % blockBytes == 0)
      var state = start
      unsafe state.withUnsafeMutableBufferPointer { state in
        unsafe blocks.withUnsafeBytes { buffer in
          guard let state = state.baseAddress, let base = buffer.baseAddress else { return }
          unsafe strandline_sha256_arithmetic(state, base, buffer.count / blockBytes)
        }
      }
      return state
    }

    /// The same with them, where the CPU has some.
    ///
    /// For tests: they compare the two implementations.
    package static func byInstruction(blocks: [UInt8]) -> [UInt32] {
      var state = start
      compress(&state, blocks, 0..<blocks.count)
      return state
    }
  #endif

  /// The SHA-256 of `bytes`.
  package static func of(_ bytes: [UInt8]) -> [UInt8] {
    var digest = SHA256Digest()
    digest.update(bytes)
    return digest.finish()
  }
}
