// The stamp in bytes: what stands in `strandlineStamp` at the server, and the parts of it that events share.
//
// Layout: Formats/stamp.md. Other tools can write the record's fields without the stamp, so the stamp has a checksum of
// each value: where it does not match, another tool wrote the field since.

package import StrandlineSystem

/// A stamp as it arrived: not yet compared with the values that arrived with it.
package struct WireStamp: Hashable, Sendable {
  package var births: Set<Birth> = []
  package var fields: [String: (FieldStamp, UInt32)] = [:]
  package var seen: [WriterID: Seen] = [:]
  package var unknown: [UInt8] = []

  package static func == (left: WireStamp, right: WireStamp) -> Bool {
    StampCodec.encode(left) == StampCodec.encode(right)
  }
  package func hash(into hasher: inout Hasher) { hasher.combine(StampCodec.encode(self)) }
}

/// Stamps to bytes and back.
package enum StampCodec {
  package static let version: UInt8 = 1

  /// The stamp of a version, with the checksums of its values, as it goes to the server.
  package static func encode(_ version: Version) -> [UInt8] {
    var wire = WireStamp(births: version.stamp.births, seen: version.stamp.seen, unknown: version.stamp.unknown)
    for (name, stamp) in version.stamp.fields {
      wire.fields[name] = (stamp, FieldCodec.checksum(version.fields[name]))
    }
    return encode(wire)
  }

  package static func encode(_ wire: WireStamp) -> [UInt8] {
    var writer = ByteWriter(capacity: 64 + wire.fields.count * 24)
    _ = StampLayout(layout(wire), &writer)
    return writer.bytes
  }

  /// Reads a stamp. What follows the parts that this version knows is kept as it is.
  package static func decode(_ bytes: [UInt8]) throws(ByteReaderError) -> WireStamp {
    var reader = ByteReader(bytes)
    let layout = try StampLayout(nil, &reader)
    var wire = WireStamp(births: layout.births, seen: layout.seen, unknown: layout.unknown)
    for field in layout.fields { wire.fields[field.name] = (layout.stamps[Int(field.stampPlace)], field.checksum) }
    return wire
  }

  /// The fields of a stamp's layout, for the tables of Formats.
  package static func listedFields(_ wire: WireStamp) -> [ListedField] { layout(wire).listedFields }

  private static func layout(_ wire: WireStamp) -> StampLayout {
    let stamps = Set(wire.fields.values.map(\.0)).sorted()
    let places = Dictionary(uniqueKeysWithValues: stamps.enumerated().map { ($1, UInt64($0)) })
    let fields = wire.fields.sorted { $0.key.precedesByUTF8($1.key) }
    return StampLayout(
      version: version, births: wire.births, stamps: stamps,
      fields: fields.map { StampedField(name: $0.key, stampPlace: places[$0.value.0] ?? 0, checksum: $0.value.1) },
      seen: wire.seen, unknown: wire.unknown)
  }
}

/// The bytes of a stamp.
private struct StampLayout: FieldDescribed {
  package var version: UInt8
  package var births: Set<Birth>
  var stamps: [FieldStamp]
  var fields: [StampedField]
  var seen: [WriterID: Seen]
  var unknown: [UInt8]

  init(
    version: UInt8, births: Set<Birth>, stamps: [FieldStamp], fields: [StampedField], seen: [WriterID: Seen],
    unknown: [UInt8]
  ) {
    self.version = version
    self.births = births
    self.stamps = stamps
    self.fields = fields
    self.seen = seen
    self.unknown = unknown
  }
  init<Coder: FieldCoder>(_ stamp: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let version = try field("version", .u8, stamp?.version)
    try field.require(version == StampCodec.version, "a stamp of another version")
    self.version = version
    births = try field("births", .births, stamp?.births)
    let stamps = try field("stamps", .list(.group(FieldStamp.self)), stamp?.stamps)
    let fields = try field("fields", .list(.group(StampedField.self)), stamp?.fields)
    try field.require(fields.allSatisfy { $0.stampPlace < UInt64(stamps.count) }, "a missing stamp")
    (self.stamps, self.fields) = (stamps, fields)
    seen = try field("seen", .seen, stamp?.seen)
    unknown = try field("unknown", .rest, stamp?.unknown)
  }
}

/// A field in a stamp.
private struct StampedField: FieldGroup {
  static let tableName = "stampedField"
  static let bytesMin = 6
  var name: String
  /// The place of its stamp, counted from 0.
  var stampPlace: UInt64
  var checksum: UInt32

  init(name: String, stampPlace: UInt64, checksum: UInt32) {
    self.name = name
    self.stampPlace = stampPlace
    self.checksum = checksum
  }
  init<Coder: FieldCoder>(_ one: Self?, _ field: inout Coder) throws(Coder.Failure) {
    name = try field("name", .text, one?.name)
    stampPlace = try field("stampPlace", .varint, one?.stampPlace)
    checksum = try field("checksum", .u32, one?.checksum)
  }
}
