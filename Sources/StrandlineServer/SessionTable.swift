// The sessions of CloudKit Web Services: each request carries a token, and its answer brings the next one.
//
// A token holds its user, its session and its number, with a checksum. The checksum detects garbage; it is no protection
// against forged tokens, which a server for development does not need. Because the token holds all of this, a server
// that was restarted accepts the first token of a session that it sees.

internal import Foundation
internal import StrandlineSystem

/// The sessions and the number of the newest token of each.
struct SessionTable: Sendable {
  private struct Session: Sendable {
    /// The number of the newest token given out.
    var newest: UInt64
    /// Whether the newest was used: then no older token is valid.
    var isNewestUsed: Bool
  }
  private struct Token {
    var user: String
    var session: UInt64
    var number: UInt64
  }
  private var sessions: [UInt64: Session] = [:]

  mutating func signIn(user: String, storeUUID: [UInt8], random: any RandomSource) -> String {
    let session = random.next()
    sessions[session] = Session(newest: 1, isNewestUsed: false)
    return Self.text(Token(user: user, session: session, number: 1), storeUUID)
  }

  /// The user that a token names, without using the token.
  func user(of text: String, storeUUID: [UInt8]) -> String? { Self.parse(text, storeUUID)?.user }

  /// Uses a token. Returns its user and the token for the next request; nil if it is not a token or no longer valid.
  mutating func use(_ text: String, isStrict: Bool, storeUUID: [UInt8]) -> (user: String, next: String)? {
    guard var token = Self.parse(text, storeUUID) else { return nil }
    var session = sessions[token.session] ?? Session(newest: token.number, isNewestUsed: false)
    if token.number == session.newest {
      session = Session(newest: token.number &+ 1, isNewestUsed: false)
    } else if token.number &+ 1 == session.newest, !session.isNewestUsed, !isStrict {
      // The answer with the newest token was lost; the newest is given out again.
    } else {
      return nil
    }
    sessions[token.session] = session
    token.number = session.newest
    return (token.user, Self.text(token, storeUUID))
  }

  private static func text(_ token: Token, _ storeUUID: [UInt8]) -> String {
    var writer = ByteWriter()
    writer.string(token.user)
    writer.u64(token.session)
    writer.varint(token.number)
    writer.u32(CRC32C.checksum(storeUUID + writer.bytes))
    // Bytes whose base64 has "+" and "/", and a length that gives "=": characters that must be escaped in a query.
    writer.raw([0xFB, 0xEF, 0xFF])
    while writer.count % 3 != 1 { writer.u8(0xFF) }
    return "1__" + Data(writer.bytes).base64EncodedString()
  }

  private static func parse(_ text: String, _ storeUUID: [UInt8]) -> Token? {
    guard text.hasPrefix("1__"), let data = Data(base64Encoded: String(text.dropFirst(3))) else { return nil }
    let bytes = [UInt8](data)
    var reader = ByteReader(bytes)
    do throws(ByteReaderError) {
      let token = Token(user: try reader.string(), session: try reader.u64(), number: try reader.varint())
      let end = reader.offset
      return try reader.u32() == CRC32C.checksum(storeUUID + bytes[..<end]) ? token : nil
    } catch {
      return nil
    }
  }
}
