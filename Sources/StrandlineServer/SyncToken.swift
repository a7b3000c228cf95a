// The server's tokens: a place in a history, and which history. Opaque to clients, checked here.
//
// 49 bytes in base64: kind, the journal's UUID, the zone's life, the tenure and the LSN, the generation (tests
// let older ones expire), a checksum over all that. A token that was cut or bent is told from one that was never
// ours, because the real service tells them apart too.

internal import Foundation
internal import Strandline
internal import StrandlineSystem

/// A place in a zone's or database's history.
struct SyncToken: Hashable, Sendable {
  enum Kind: UInt8 {
    case zone = 0xA1
    case database = 0xA2
  }
  var kind: Kind
  var storeUUID: [UInt8]
  /// The zone's life; 0 in a database's token.
  var life: UInt64
  var tenure: UInt64
  var lsn: UInt64
  /// Tokens of an older generation than the server's have expired.
  var generation: UInt32

  private static let bytes = 1 + 16 + 8 + 8 + 8 + 4 + 4

  var text: String {
    var writer = ByteWriter()
    writer.u8(kind.rawValue)
    writer.raw(storeUUID)
    writer.u64(life)
    writer.u64(tenure)
    writer.u64(lsn)
    writer.u32(generation)
    writer.u32(CRC32C.checksum(writer.bytes))
    return Data(writer.bytes).base64EncodedString()
  }

  /// What the service says of tokens that it cannot read.
  static let unknownType = WireReason("Unknown sync continuation type")
  static let invalidFormat = WireReason("Invalid continuation format")
  /// The words of the native error 21/2026; what the web says of an expired token nobody has seen.
  static let expired = WireReason("client knowledge differs from server knowledge")

  static func parse(_ text: String) throws(WireReason) -> SyncToken {
    // A cut token is no whole base64 any more; its first four characters still say whose it was.
    guard let first = Data(base64Encoded: String(text.prefix(4)))?.first, let kind = Kind(rawValue: first) else {
      throw unknownType
    }
    guard let whole = Data(base64Encoded: text), whole.count == bytes else { throw invalidFormat }
    let raw = [UInt8](whole)
    guard raw.u32(at: bytes - 4) == CRC32C.checksum(raw, 0..<bytes - 4) else { throw invalidFormat }
    return SyncToken(
      kind: kind, storeUUID: Array(raw[1..<17]), life: raw.u64(at: 17), tenure: raw.u64(at: 25), lsn: raw.u64(at: 33),
      generation: raw.u32(at: 41))
  }
}

/// Why something was refused, in the server's words.
struct WireReason: Error, Hashable, Sendable {
  var words: String
  init(_ words: String) { self.words = words }
}
