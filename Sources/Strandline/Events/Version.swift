// A version of a record whole: type, fields, stamp. What `saved`, `merged` and `fetchedSave` carry, what a merge
// joins, and what travels to the server.
//
// In an event the type and the births stand in the head and the rest in a tail that is decoded only when somebody
// wants the values: rebuilding the projections reads heads alone.

package import StrandlineSystem

/// A version of a record.
package struct Version: Hashable, Sendable {
  package var type: String
  /// Fields that have a value; `___parent` is one, as a reference.
  package var fields: [String: FieldValue]
  package var stamp: Stamp

  package init(type: String, fields: [String: FieldValue] = [:], stamp: Stamp = Stamp()) {
    self.type = type
    self.fields = fields
    self.stamp = stamp
  }

  /// The parent is merged, stamped and sent like a field, under CloudKit's own name for it. It cannot clash:
  /// names of fields begin with a letter.
  package static let parentField = "___parent"

  package var parent: String? {
    get {
      guard case .reference(let reference)? = fields[Self.parentField] else { return nil }
      return reference.name
    }
    set { fields[Self.parentField] = newValue.map { .reference(Reference($0)) } }
  }

  /// What the app sees of it.
  package func record(_ id: RecordID, system: SystemFields?) -> Record {
    var visible = fields
    visible[Self.parentField] = nil
    return Record(type: type, id: id, fields: visible, parent: parent, system: system)
  }

  /// All names that this version says something of, in the order of their UTF-8.
  package var names: [String] {
    Set(fields.keys).union(stamp.fields.keys).sorted { $0.precedesByUTF8($1) }
  }
}

/// The tail of an event: fields, their stamps, what was seen, and which fields are dirty. Held as bytes until
/// somebody asks.
package struct EncodedContent: Sendable {
  private let bytes: [UInt8]
  private let range: Range<Int>

  /// Takes the rest of a payload.
  init(rest reader: inout ByteReader) {
    bytes = reader.bytes
    range = reader.offset..<reader.end
    reader.skipToEnd()
  }

  package init(_ version: Version, dirty: [String: LSN] = [:]) {
    var writer = ByteWriter(capacity: 512)
    let names = version.names
    // Most fields of a version were stamped together: each distinct stamp is written once.
    let stamps = Set(version.stamp.fields.values).sorted()
    writer.varint(UInt64(stamps.count))
    for stamp in stamps {
      writer.u64(stamp.time.rawValue)
      writer.u64(stamp.writer)
    }
    let places = Dictionary(uniqueKeysWithValues: stamps.enumerated().map { ($1, $0) })
    writer.varint(UInt64(names.count))
    for name in names {
      writer.string(name)
      let place = version.stamp.fields[name].flatMap { places[$0] }
      writer.varint(place.map { UInt64($0) + 1 } ?? 0)
      FieldCodec.encode(version.fields[name], into: &writer)
    }
    StampCodec.encode(seen: version.stamp.seen, into: &writer)
    writer.blob(version.stamp.unknown)
    let dirtyNames = names.enumerated().filter { dirty[$0.element] != nil }
    writer.varint(UInt64(dirtyNames.count))
    for (place, name) in dirtyNames {
      writer.varint(UInt64(place))
      writer.varint(dirty[name]?.rawValue ?? 0)
    }
    bytes = writer.bytes
    range = 0..<writer.count
  }

  /// A new life's content: every field has the one stamp and is dirty. The same bytes as the general way makes, without
  /// its dictionaries: importing is mostly this.
  package init(newLife fields: [(name: String, value: FieldValue)], stamp: FieldStamp, seen: [WriterID: Seen]) {
    var writer = ByteWriter(capacity: 1024)
    writer.varint(fields.isEmpty ? 0 : 1)
    if !fields.isEmpty {
      writer.u64(stamp.time.rawValue)
      writer.u64(stamp.writer)
    }
    writer.varint(UInt64(fields.count))
    for (name, value) in fields {
      writer.string(name)
      writer.varint(1)
      FieldCodec.encode(value, into: &writer)
    }
    StampCodec.encode(seen: seen, into: &writer)
    writer.blob([])
    writer.varint(UInt64(fields.count))
    for place in fields.indices {
      writer.varint(UInt64(place))
      writer.varint(0)
    }
    bytes = writer.bytes
    range = 0..<writer.count
  }

  /// The size in bytes.
  package var byteCount: Int { range.count }

  package func encode(into writer: inout ByteWriter) { writer.raw(bytes[range]) }

  /// The version and its dirty map, in which `this` stands for the event's own LSN.
  package func decoded(
    type: String, births: Set<Birth>, this: LSN
  ) throws(ByteReaderError) -> (version: Version, dirty: [String: LSN]) {
    var reader = ByteReader(bytes, range)
    var stamps: [FieldStamp] = []
    for _ in 0..<(try reader.count(minimumBytes: 16)) {
      stamps.append(FieldStamp(time: HybridTime(rawValue: try reader.u64()), writer: try reader.u64()))
    }
    var version = Version(type: type)
    version.stamp.births = births
    var names: [String] = []
    let count = try reader.count(minimumBytes: 3)
    names.reserveCapacity(count)
    version.fields.reserveCapacity(count)
    version.stamp.fields.reserveCapacity(count)
    for _ in 0..<count {
      let start = reader.offset
      let name = try reader.string()
      if let previous = names.last, !previous.precedesByUTF8(name) {
        throw ByteReaderError(offset: start, what: "fields out of order")
      }
      names.append(name)
      let place = try reader.varint()
      if place > 0 {
        guard place <= UInt64(stamps.count) else { throw ByteReaderError(offset: start, what: "a missing stamp") }
        version.stamp.fields[name] = stamps[Int(place) - 1]
      }
      version.fields[name] = try FieldCodec.decode(from: &reader)
    }
    version.stamp.seen = try StampCodec.decodeSeen(from: &reader)
    version.stamp.unknown = try reader.blob()
    var dirty: [String: LSN] = [:]
    for _ in 0..<(try reader.count(minimumBytes: 2)) {
      let start = reader.offset
      let place = try reader.varint()
      guard place < UInt64(names.count) else { throw ByteReaderError(offset: start, what: "a missing dirty field") }
      let lsn = LSN(try reader.varint())
      dirty[names[Int(place)]] = lsn == .none ? this : lsn
    }
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the end") }
    return (version, dirty)
  }
}
