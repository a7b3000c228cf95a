// What the addresses of the content host and the receipts of uploads say: opaque to clients. They hold what they permit, and until when,
// with a checksum. That detects garbage and a changed part; a server for development needs no protection against forgery.

internal import Strandline
internal import StrandlineSystem

/// The permission to upload a content, to name one in a record, or to download one.
struct ContentTicket: Sendable {
  enum Kind: UInt8, Sendable {
    case upload = 1
    case receipt = 2
    case download = 3
  }
  var kind: Kind
  /// In milliseconds since 1970.
  var end: Int64
  /// The record and field; empty of a receipt that any record may use, and of a download.
  var record = ""
  var field = ""
  /// The content; nil of an upload.
  var content: ServerContent?
  /// Addresses of an older generation than the server's have expired.
  var generation: UInt32 = 0

  /// How long an address counts, and a receipt.
  static let milliseconds: Int64 = 15 * 60 * 1_000

  func text(_ storeUUID: [UInt8]) -> String {
    var writer = ByteWriter()
    writer.u8(kind.rawValue)
    writer.zigzag(end)
    writer.u32(generation)
    writer.string(record)
    writer.string(field)
    writer.u8(content == nil ? 0 : 1)
    if let content {
      writer.raw(content.hash.bytes)
      writer.zigzag(content.size)
    }
    writer.u32(CRC32C.checksum(storeUUID + writer.bytes))
    return String(
      decoding: writer.bytes.flatMap { [Self.digits[Int($0 >> 4)], Self.digits[Int($0 & 15)]] }, as: UTF8.self)
  }

  private static let digits = Array("0123456789abcdef".utf8)

  /// nil for any other text.
  init?(_ text: some StringProtocol, _ storeUUID: [UInt8]) {
    let nibbles = text.utf8.map { digit in Self.digits.firstIndex(of: digit) }
    guard nibbles.count.isMultiple(of: 2), nibbles.allSatisfy({ $0 != nil }) else { return nil }
    let values = nibbles.map { UInt8(truncatingIfNeeded: $0 ?? 0) }
    let bytes = stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    var reader = ByteReader(bytes)
    do throws(ByteReaderError) {
      guard let kind = Kind(rawValue: try reader.u8()) else { return nil }
      self.init(kind: kind, end: try reader.zigzag())
      generation = try reader.u32()
      record = try reader.string()
      field = try reader.string()
      if try reader.u8() == 1 {
        guard let hash = ContentHash(try reader.raw(32)) else { return nil }
        content = ServerContent(hash: hash, size: try reader.zigzag())
      }
      let end = reader.offset
      guard try reader.u32() == CRC32C.checksum(storeUUID + bytes[..<end]), reader.isAtEnd else { return nil }
    } catch {
      return nil
    }
  }

  init(
    kind: Kind, end: Int64, record: String = "", field: String = "", content: ServerContent? = nil,
    generation: UInt32 = 0
  ) {
    self.kind = kind
    self.end = end
    self.record = record
    self.field = field
    self.content = content
    self.generation = generation
  }
}

/// Where the contents of an answer's records are fetched.
struct ContentLinks: Sendable {
  /// The content host: scheme, host and port.
  var origin: String
  var storeUUID: [UInt8]
  var contents: ServerContents
  var end: Int64
  var generation: UInt32

  /// The value with an address in each asset of which the server has the content. Others stay as they are.
  func added(to value: FieldValue) -> FieldValue {
    switch value {
    case .asset(let asset):
      guard let checksum = asset.server?.fileChecksum, let content = contents.find(checksum) else { return value }
      let ticket = ContentTicket(kind: .download, end: end, content: content, generation: generation)
      var file = contents.file(content)
      file.downloadURL = "\(origin)/content/\(ticket.text(storeUUID))/${f}"
      return .asset(Asset(server: file, size: content.size))
    case .list(.assets, let items): return .list(.assets, items.map { added(to: $0) })
    default: return value
    }
  }
}
