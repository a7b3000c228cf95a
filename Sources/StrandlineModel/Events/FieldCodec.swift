// The value of a field in bytes, in canonical form: equal values have equal bytes on every platform.
//
// A record's stamp has a checksum of these bytes for each field, so every device must make the same.
// Layout: Formats/events.md, "Values".

package import StrandlineSystem

/// The tags of values in bytes.
package enum ValueTag: UInt8, CaseIterable, Sendable {
  case null = 0
  case string = 1
  case int64 = 2
  case double = 3
  case date = 4
  case bytes = 5
  case reference = 6
  case location = 7
  case asset = 8
  case list = 9
  case encrypted = 10
  case opaque = 11
}

/// Values to canonical bytes and back.
package enum FieldCodec {
  /// The checksum that a stamp carries for a value: of its bytes, but of an asset without what differs from one device, or
  /// from one answer of the server, to the next.
  package static func checksum(_ value: FieldValue?) -> UInt32 {
    var writer = ByteWriter()
    encode(value?.lasting, into: &writer)
    return CRC32C.checksum(writer.bytes)
  }

  /// Appends a value; nil is a value.
  package static func encode(_ value: FieldValue?, into writer: inout ByteWriter) {
    guard let value else { return writer.u8(ValueTag.null.rawValue) }
    writer.u8(tag(of: value).rawValue)
    encodeUntagged(value, into: &writer)
  }

  /// Reads a value that `encode` wrote.
  package static func decode(from reader: inout ByteReader) throws(ByteReaderError) -> FieldValue? {
    let start = reader.offset
    guard let tag = ValueTag(rawValue: try reader.u8()) else {
      throw ByteReaderError(offset: start, what: "an unknown kind of value")
    }
    return try decodeUntagged(tag, from: &reader, allowEncrypted: true)
  }

  /// Passes over a value, and throws where `decode` would.
  package static func skip(from reader: inout ByteReader) throws(ByteReaderError) {
    let start = reader.offset
    guard let tag = ValueTag(rawValue: try reader.u8()) else {
      throw ByteReaderError(offset: start, what: "an unknown kind of value")
    }
    switch tag {
    case .null: break
    case .string: try reader.skipString()
    case .int64, .date: _ = try reader.varint()
    case .double: try reader.skip(8)
    case .bytes: try reader.skipBlob()
    case .opaque:
      try reader.skipString()
      try reader.skipBlob()
    // The others are rare, and have more rules.
    case .reference, .location, .asset, .list, .encrypted:
      if tag == .list, try skipTexts(from: &reader) { break }
      _ = try decodeUntagged(tag, from: &reader, allowEncrypted: true)
    }
  }

  /// Passes over a list if it is one of texts.
  private static func skipTexts(from reader: inout ByteReader) throws(ByteReaderError) -> Bool {
    guard !reader.isAtEnd, reader.bytes[reader.offset] == FieldValue.ListKind.strings.rawValue else { return false }
    try reader.skip(1)
    for _ in 0..<(try reader.count(minimumBytes: 1)) { try reader.skipString() }
    return true
  }

  private static func tag(of value: FieldValue) -> ValueTag {
    switch value {
    case .string: .string
    case .int64: .int64
    case .double: .double
    case .date: .date
    case .bytes: .bytes
    case .reference: .reference
    case .location: .location
    case .asset: .asset
    case .list: .list
    case .encrypted: .encrypted
    case .opaque: .opaque
    }
  }

  /// The tag of a list's items; an unknown list is empty.
  private static func tag(of kind: FieldValue.ListKind) -> ValueTag? {
    switch kind {
    case .strings: .string
    case .int64s: .int64
    case .doubles: .double
    case .dates: .date
    case .bytes: .bytes
    case .references: .reference
    case .locations: .location
    case .assets: .asset
    case .unknown: nil
    }
  }

  private static func encodeUntagged(_ value: FieldValue, into writer: inout ByteWriter) {
    switch value {
    case .string(let text): writer.string(text)
    case .int64(let number): writer.zigzag(number)
    case .double(let number): writer.f64(canonical(number))
    case .date(let milliseconds): writer.zigzag(milliseconds)
    case .bytes(let bytes): writer.blob(bytes)
    case .reference(let reference):
      writer.u8(reference.action.rawValue | (reference.zone == nil ? 0 : 0x80))
      if let zone = reference.zone { _ = ZoneID(zone, &writer) }
      writer.string(reference.name)
    case .location(let place): encode(place, into: &writer)
    case .asset(let asset): encode(asset, into: &writer)
    case .list(let kind, let items):
      writer.u8(kind.rawValue)
      writer.varint(UInt64(items.count))
      for item in items { encodeUntagged(item, into: &writer) }
    case .encrypted(let inner): encode(inner, into: &writer)
    case .opaque(let value):
      writer.string(value.type)
      writer.blob(value.json)
    }
  }

  private static func decodeUntagged(
    _ tag: ValueTag, from reader: inout ByteReader, allowEncrypted: Bool
  ) throws(ByteReaderError) -> FieldValue? {
    let start = reader.offset
    switch tag {
    case .null: return nil
    case .string: return .string(try reader.string())
    case .int64: return .int64(try reader.zigzag())
    case .double: return .double(canonical(try reader.f64()))
    case .date: return .date(milliseconds: try reader.zigzag())
    case .bytes: return .bytes(try reader.blob())
    case .reference:
      let flags = try reader.u8()
      guard let action = Reference.Action(rawValue: flags & 0x7F) else {
        throw ByteReaderError(offset: start, what: "an unknown reference action")
      }
      let zone = flags & 0x80 == 0 ? nil : try ZoneID(nil, &reader)
      return .reference(Reference(try reader.string(), zone: zone, action: action))
    case .location: return .location(try decodeLocation(from: &reader))
    case .asset: return .asset(try decodeAsset(from: &reader))
    case .list:
      guard let kind = FieldValue.ListKind(rawValue: try reader.u8()) else {
        throw ByteReaderError(offset: start, what: "an unknown kind of list")
      }
      let count = try reader.count(minimumBytes: 1)
      guard let itemTag = Self.tag(of: kind) else {
        guard count == 0 else { throw ByteReaderError(offset: start, what: "items in a list of unknown kind") }
        return .list(.unknown, [])
      }
      var items: [FieldValue] = []
      for _ in 0..<count {
        if let item = try decodeUntagged(itemTag, from: &reader, allowEncrypted: false) { items.append(item) }
      }
      return .list(kind, items)
    case .encrypted:
      guard allowEncrypted, let innerTag = ValueTag(rawValue: try reader.u8()), innerTag != .null,
        let inner = try decodeUntagged(innerTag, from: &reader, allowEncrypted: false)
      else { throw ByteReaderError(offset: start, what: "an encrypted value of no or unknown kind") }
      return .encrypted(inner)
    case .opaque: return .opaque(OpaqueValue(type: try reader.string(), json: try reader.blob()))
    }
  }

  /// −0 becomes 0, and every NaN the same one, so that equal values have equal bytes. An app cannot save a NaN, but a
  /// server can hold one.
  private static func canonical(_ number: Double) -> Double {
    if number == 0 { return 0 }
    return number.isNaN ? .nan : number
  }

  private static func encode(_ place: Location, into writer: inout ByteWriter) {
    let optional = [
      place.horizontalAccuracy, place.verticalAccuracy, place.altitude, place.speed, place.course,
    ]
    var flags: UInt8 = place.timestamp == nil ? 0 : 0x20
    for (bit, number) in optional.enumerated() where number != nil { flags |= 1 << UInt8(bit) }
    writer.u8(flags)
    writer.f64(canonical(place.latitude))
    writer.f64(canonical(place.longitude))
    for number in optional { if let number { writer.f64(canonical(number)) } }
    if let timestamp = place.timestamp { writer.zigzag(timestamp) }
  }

  private static func decodeLocation(from reader: inout ByteReader) throws(ByteReaderError) -> Location {
    let start = reader.offset
    let flags = try reader.u8()
    guard flags & 0xC0 == 0 else { throw ByteReaderError(offset: start, what: "unknown parts of a location") }
    var place = Location(latitude: canonical(try reader.f64()), longitude: canonical(try reader.f64()))
    if flags & 0x01 != 0 { place.horizontalAccuracy = canonical(try reader.f64()) }
    if flags & 0x02 != 0 { place.verticalAccuracy = canonical(try reader.f64()) }
    if flags & 0x04 != 0 { place.altitude = canonical(try reader.f64()) }
    if flags & 0x08 != 0 { place.speed = canonical(try reader.f64()) }
    if flags & 0x10 != 0 { place.course = canonical(try reader.f64()) }
    if flags & 0x20 != 0 { place.timestamp = try reader.zigzag() }
    return place
  }

  private static func encode(_ asset: Asset, into writer: inout ByteWriter) {
    let file = asset.server
    let texts = [file?.fileChecksum, file?.referenceChecksum, file?.wrappingKey, file?.receipt, file?.downloadURL]
    var flags: UInt8 = (asset.contentHash == nil ? 0 : 0x01) | (file == nil ? 0 : 0x02)
    for (bit, text) in texts.enumerated() where text != nil { flags |= 0x04 << UInt8(bit) }
    writer.u8(flags)
    writer.zigzag(asset.size)
    if let hash = asset.contentHash { writer.raw(hash.bytes) }
    for text in texts { if let text { writer.string(text) } }
  }

  private static func decodeAsset(from reader: inout ByteReader) throws(ByteReaderError) -> Asset {
    let start = reader.offset
    let flags = try reader.u8()
    guard flags & 0x80 == 0, flags & 0x02 != 0 || flags == 0x01 else {
      throw ByteReaderError(offset: start, what: "unknown parts of an asset, or a content that is nowhere")
    }
    let size = try reader.zigzag()
    let hash = flags & 0x01 == 0 ? nil : ContentHash(try reader.raw(ContentHash.byteCount))
    guard flags & 0x02 != 0 else {
      guard let hash else { throw ByteReaderError(offset: start, what: "a content that is nowhere") }
      return Asset(contentHash: hash, size: size)
    }
    var file = Asset.ServerFile()
    if flags & 0x04 != 0 { file.fileChecksum = try reader.string() }
    if flags & 0x08 != 0 { file.referenceChecksum = try reader.string() }
    if flags & 0x10 != 0 { file.wrappingKey = try reader.string() }
    if flags & 0x20 != 0 { file.receipt = try reader.string() }
    if flags & 0x40 != 0 { file.downloadURL = try reader.string() }
    return Asset(server: file, size: size, contentHash: hash)
  }
}

extension FieldValue {
  /// The value without what is not the same on every device.
  package var lasting: FieldValue {
    switch self {
    case .asset(let asset): .asset(asset.lasting)
    case .list(.assets, let items): .list(.assets, items.map(\.lasting))
    case .encrypted(let inner): .encrypted(inner.lasting)
    default: self
    }
  }
}

extension Asset {
  /// The file by the server's checksum; by its hash, if the server's checksum is not known.
  fileprivate var lasting: Asset {
    if let checksum = server?.fileChecksum { return Asset(fileChecksum: checksum, size: size) }
    return contentHash.map { Asset(contentHash: $0, size: size) } ?? self
  }
}
