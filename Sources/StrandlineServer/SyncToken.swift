// The server's change tokens: an LSN, and the journal, zone and tenure that it belongs to. Opaque to clients.
//
// 49 bytes in base64: kind, the journal's UUID, the zone's life, the tenure, the LSN, the generation (tests let older
// generations expire), and a checksum. A truncated or altered token gets another error than one that is not of this
// format, as at the live service.

internal import Foundation
internal import Strandline
internal import StrandlineSystem

/// A place in the changes of a zone or database, or in the answer to a query.
struct SyncToken: Hashable, Sendable {
  enum Kind: UInt8 {
    case zone = 0xA1
    case database = 0xA2
    /// A place in the answer to a query: the version that was shown last.
    case query = 0xA3
    /// The next change of a zone to be shown to a reader that goes back in time; 0 at the end.
    case reverse = 0xA4
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

  /// The live service's reasons for tokens that it cannot read.
  static let unknownType = WireReason("Unknown sync continuation type")
  static let invalidFormat = WireReason("Invalid continuation format")
  /// The reason of the native error 21/2026. What the live service answers on the web for an expired token is not known.
  static let expired = WireReason("client knowledge differs from server knowledge")

  static func parse(_ text: String) throws(WireReason) -> SyncToken {
    // A truncated token may not be valid base64; its first four characters still decode to its kind.
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

/// Why a token was refused: the `reason` of the answer.
struct WireReason: Error, Hashable, Sendable {
  var words: String
  init(_ words: String) { self.words = words }
}
