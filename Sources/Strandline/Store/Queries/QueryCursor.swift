// Where a page of a query ended: the sort values and the ID of its last record. The next page is what comes after them, so
// a cursor stays valid whatever is written, deleted or compacted meanwhile, and a record that does not change is in exactly
// one page.

import StrandlineSystem

/// The place after a page of a query's answer. It may leave the process as text, and is valid for the same query of the same
/// store at any later time.
public struct QueryCursor: Hashable, Sendable {
  package var storeUUID: [UInt8]
  /// CRC-32C of the query without its limit and fields.
  package var query: UInt32
  package var values: [FieldValue?]
  package var id: RecordID

  private static let version: UInt8 = 1
  private static let digits = Array("0123456789abcdef".utf8)

  /// The cursor as text, in hexadecimal digits.
  public var text: String {
    var writer = ByteWriter()
    writer.u8(Self.version)
    writer.raw(storeUUID)
    writer.u32(query)
    _ = RecordID(id, &writer)
    writer.varint(UInt64(values.count))
    for value in values { FieldCodec.encode(value, into: &writer) }
    writer.u32(CRC32C.checksum(writer.bytes))
    var text: [UInt8] = []
    for byte in writer.bytes { text += [Self.digits[Int(byte >> 4)], Self.digits[Int(byte & 15)]] }
    return String(decoding: text, as: UTF8.self)
  }

  /// Reads a cursor's text.
  ///
  /// - Throws: `StrandlineError.invalidValue` if it is no cursor's text, or not as it was written.
  public init(text: String) throws {
    self = try CallSite.unnamed.run("reading a query's cursor") {
      guard let bytes = Self.bytes(text), let cursor = try? Self(decoding: bytes) else {
        throw StrandlineError(
          .invalidValue, "'\(text.prefix(80))' is not the cursor of a query; begin the query anew without one")
      }
      return cursor
    }
  }

  package init(storeUUID: [UInt8], query: UInt32, values: [FieldValue?], id: RecordID) {
    self.storeUUID = storeUUID
    self.query = query
    self.values = values
    self.id = id
  }

  private static func bytes(_ text: String) -> [UInt8]? {
    let digits = text.utf8.map { digit in Self.digits.firstIndex(of: digit) ?? -1 }
    guard digits.count % 2 == 0, !digits.contains(-1) else { return nil }
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
  }

  private init(decoding bytes: [UInt8]) throws(ByteReaderError) {
    guard bytes.count > 4, bytes.u32(at: bytes.count - 4) == CRC32C.checksum(bytes, 0..<bytes.count - 4) else {
      throw ByteReaderError(offset: 0, what: "a wrong checksum")
    }
    var reader = ByteReader(bytes, 0..<bytes.count - 4)
    guard try reader.u8() == Self.version else { throw ByteReaderError(offset: 0, what: "an unknown version") }
    storeUUID = try reader.raw(16)
    query = try reader.u32()
    id = try RecordID(nil, &reader)
    values = []
    for _ in 0..<(try reader.count(minimumBytes: 1)) { values.append(try FieldCodec.decode(from: &reader)) }
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes behind the end") }
  }
}
