// SHA-256 against NIST's vectors, in pieces of every length, and the two implementations against each other.

import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct SHA256Tests {
  private func hex(_ bytes: [UInt8]) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }

  @Test func `SHA-256 gives the values of NIST`() {
    // FIPS 180-4 examples and the vectors of the Cryptographic Algorithm Validation Program.
    for (text, hash) in [
      ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
      ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
      (
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
      ),
      (
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
      ),
      (String(repeating: "a", count: 1_000_000), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ] { #expect(hex(SHA256Digest.of(Array(text.utf8))) == hash, "\(text.prefix(40))") }
    #expect(
      hex(SHA256Digest.of([0xd3])) == "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1", "CAVP, 8 bits"
    )
  }

  @Test func `SHA-256 of pieces is that of the whole, and goes on after an answer`() {
    let random = SeededRandom(seed: 0x5A)
    let bytes = random.bytes(1_000)
    for count in 0..<260 {
      let whole = SHA256Digest.of(Array(bytes[..<count]))
      var digest = SHA256Digest()
      var place = 0
      while place < count {
        let end = min(count, place + Int(random.below(90)))
        digest.update(Array(bytes[place..<end]))
        if random.below(3) == 0 { #expect(digest.finish() == SHA256Digest.of(Array(bytes[..<end]))) }
        place = end
      }
      #expect(digest.finish() == whole, "\(count)")
    }
  }

  #if !canImport(CryptoKit)
    @Test func `SHA-256 by instruction is that by arithmetic`() {
      let random = SeededRandom(seed: 0x5B)
      for blocks in [0, 1, 2, 3, 7, 64, 1_000] {
        let bytes = random.bytes(64 * blocks)
        #expect(SHA256Digest.byInstruction(blocks: bytes) == SHA256Digest.byArithmetic(blocks: bytes), "\(blocks)")
      }
    }
  #endif
}
