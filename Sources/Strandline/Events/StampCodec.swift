// The stamp in bytes: what stands in `strandlineStamp` at the server, and the parts of it that events share.
//
// Layout: Formats/stamp.md. A stamp travels through other people's hands, so every field carries the checksum of
// the value that it speaks of: one that does not match was written by another tool since.

package import StrandlineSystem

/// A stamp as it arrived: not yet held against the values that arrived with it.
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
    writer.u8(version)
    encode(births: wire.births, into: &writer)
    let stamps = Set(wire.fields.values.map(\.0)).sorted()
    writer.varint(UInt64(stamps.count))
    for stamp in stamps {
      writer.u64(stamp.time.rawValue)
      writer.u64(stamp.writer)
    }
    let places = Dictionary(uniqueKeysWithValues: stamps.enumerated().map { ($1, $0) })
    writer.varint(UInt64(wire.fields.count))
    for (name, (stamp, checksum)) in wire.fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      writer.string(name)
      writer.varint(UInt64(places[stamp] ?? 0))
      writer.u32(checksum)
    }
    encode(seen: wire.seen, into: &writer)
    writer.raw(wire.unknown)
    return writer.bytes
  }

  /// Reads a stamp. What follows the parts that this version knows is kept as it is.
  package static func decode(_ bytes: [UInt8]) throws(ByteReaderError) -> WireStamp {
    var reader = ByteReader(bytes)
    let version = try reader.u8()
    guard version == Self.version else { throw ByteReaderError(offset: 0, what: "a stamp of version \(version)") }
    var wire = WireStamp(births: try decodeBirths(from: &reader))
    var stamps: [FieldStamp] = []
    for _ in 0..<(try reader.count(minimumBytes: 16)) {
      stamps.append(FieldStamp(time: HybridTime(rawValue: try reader.u64()), writer: try reader.u64()))
    }
    for _ in 0..<(try reader.count(minimumBytes: 6)) {
      let start = reader.offset
      let name = try reader.string()
      let place = try reader.varint()
      guard place < UInt64(stamps.count) else { throw ByteReaderError(offset: start, what: "a missing stamp") }
      wire.fields[name] = (stamps[Int(place)], try reader.u32())
    }
    wire.seen = try decodeSeen(from: &reader)
    wire.unknown = reader.rest()
    return wire
  }

  package static func encode(births: Set<Birth>, into writer: inout ByteWriter) {
    writer.varint(UInt64(births.count))
    for birth in births.sorted() {
      writer.u64(birth.time.rawValue)
      writer.u64(birth.writer)
    }
  }

  package static func decodeBirths(from reader: inout ByteReader) throws(ByteReaderError) -> Set<Birth> {
    var births: Set<Birth> = []
    for _ in 0..<(try reader.count(minimumBytes: 16)) {
      births.insert(Birth(time: HybridTime(rawValue: try reader.u64()), writer: try reader.u64()))
    }
    return births
  }

  static func encode(seen: [WriterID: Seen], into writer: inout ByteWriter) {
    writer.varint(UInt64(seen.count))
    for (id, seen) in seen.sorted(by: { $0.key < $1.key }) {
      writer.u64(id)
      writer.varint(seen.lsn.rawValue)
      writer.u64(seen.tenure)
      writer.u64(seen.time.rawValue)
    }
  }

  static func decodeSeen(from reader: inout ByteReader) throws(ByteReaderError) -> [WriterID: Seen] {
    var seen: [WriterID: Seen] = [:]
    for _ in 0..<(try reader.count(minimumBytes: 25)) {
      let id = try reader.u64()
      seen[id] = Seen(
        lsn: LSN(try reader.varint()), tenure: try reader.u64(), time: HybridTime(rawValue: try reader.u64()))
    }
    return seen
  }
}
