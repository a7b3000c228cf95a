// The groups of fields that several events share: where a record is, when and by whom it was touched, which lives it
// continues, what a version includes.

package import StrandlineSystem

extension ZoneID: FieldGroup {
  package static var tableName: String { "zone" }
  package static var bytesMin: Int { 3 }
  package init<Coder: FieldCoder>(_ zone: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let scope = try field("scope", .choice(DatabaseScope.self), zone?.scope)
    let owner = try field("owner", .text, zone?.owner)
    self.init(try field("name", .text, zone?.name), owner: owner, scope: scope)
  }
}

extension RecordID: FieldGroup {
  package static var tableName: String { "id" }
  package static var bytesMin: Int { 4 }
  package init<Coder: FieldCoder>(_ id: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let zone = try field("zone", .zone, id?.zone)
    self.init(try field("name", .text, id?.name), zone: zone)
  }
}

extension ServerTimestamp: FieldGroup {
  package static var tableName: String { "touch" }
  package static var bytesMin: Int { 3 }
  package init<Coder: FieldCoder>(_ touch: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      milliseconds: try field("milliseconds", .zigzag, touch?.milliseconds),
      user: try field("user", .text, touch?.user), device: try field("device", .text, touch?.device))
  }
}

extension Birth: FieldGroup {
  package static var tableName: String { "birth" }
  package static var bytesMin: Int { 16 }
  package init<Coder: FieldCoder>(_ birth: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(time: try field("time", .time, birth?.time), writer: try field("writer", .u64, birth?.writer))
  }
}

extension FieldStamp: FieldGroup {
  package static var tableName: String { "fieldStamp" }
  package static var bytesMin: Int { 16 }
  package init<Coder: FieldCoder>(_ stamp: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(time: try field("time", .time, stamp?.time), writer: try field("writer", .u64, stamp?.writer))
  }
}

/// The last mutation of one writer that a version includes, with the writer's name.
package struct SeenEntry: FieldGroup {
  package static let tableName = "seen"
  package static let bytesMin = 25
  package var writer: WriterID
  package var seen: Seen

  package init(writer: WriterID, seen: Seen) {
    self.writer = writer
    self.seen = seen
  }
  package init<Coder: FieldCoder>(_ entry: Self?, _ field: inout Coder) throws(Coder.Failure) {
    writer = try field("writer", .u64, entry?.writer)
    seen = Seen(
      lsn: try field("lsn", .lsn, entry?.seen.lsn), tenure: try field("tenure", .u64, entry?.seen.tenure),
      time: try field("time", .time, entry?.seen.time))
  }
}

/// A set of births. Written in ascending order; read as a set, whatever the order.
package struct BirthsType: FieldType {
  package var name: String { "birth*" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Set<Birth> {
    var births: Set<Birth> = []
    for _ in 0..<(try reader.count(minimumBytes: Birth.bytesMin)) { births.insert(try Birth(nil, &reader)) }
    return births
  }
  package func write(_ value: Set<Birth>, to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    if value.count == 1, let only = value.first {
      _ = Birth(only, &writer)
    } else {
      for birth in value.sorted() { _ = Birth(birth, &writer) }
    }
  }
  package func content(of value: Set<Birth>) -> FieldContent {
    .list(value.sorted().map { GroupType<Birth>().content(of: $0) })
  }
}

/// What a version includes of each writer. Written in ascending order of writers; of two entries of one writer the
/// later one counts.
package struct SeenType: FieldType {
  package var name: String { "seen*" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [WriterID: Seen] {
    var seen: [WriterID: Seen] = [:]
    for _ in 0..<(try reader.count(minimumBytes: SeenEntry.bytesMin)) {
      let entry = try SeenEntry(nil, &reader)
      seen[entry.writer] = entry.seen
    }
    return seen
  }
  package func write(_ value: [WriterID: Seen], to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    for entry in entries(value) { _ = SeenEntry(entry, &writer) }
  }
  package func content(of value: [WriterID: Seen]) -> FieldContent {
    .list(entries(value).map { GroupType<SeenEntry>().content(of: $0) })
  }

  private func entries(_ value: [WriterID: Seen]) -> [SeenEntry] {
    value.sorted { $0.key < $1.key }.map { SeenEntry(writer: $0.key, seen: $0.value) }
  }
}

/// LSNs in ascending order: the first as it is, each other as the difference from the one before.
package struct AscendingLSNsType: FieldType {
  package var name: String { "varint*" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [LSN] {
    var lsns: [LSN] = []
    var last: UInt64 = 0
    for _ in 0..<(try reader.count(minimumBytes: 1)) {
      let start = reader.offset
      let (next, overflow) = last.addingReportingOverflow(try reader.varint())
      if overflow { throw ByteReaderError(offset: start, what: "an LSN above 64 bits") }
      last = next
      lsns.append(LSN(last))
    }
    return lsns
  }
  package func write(_ value: [LSN], to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    var last: UInt64 = 0
    for lsn in value {
      writer.varint(lsn.rawValue &- last)
      last = lsn.rawValue
    }
  }
  package func content(of value: [LSN]) -> FieldContent { .list(value.map { .unsigned($0.rawValue) }) }
}

/// The content of a version: the rest of its event, held as bytes.
package struct ContentType: FieldType {
  package var name: String { "content" }
  package var bytesMin: Int { 0 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> EncodedContent {
    EncodedContent(rest: &reader)
  }
  package func write(_ value: EncodedContent, to writer: inout ByteWriter) { value.encode(into: &writer) }
  package func content(of value: EncodedContent) -> FieldContent { .version(value) }
}

extension FieldType where Self == BirthsType { package static var births: Self { Self() } }
extension FieldType where Self == SeenType { package static var seen: Self { Self() } }
extension FieldType where Self == AscendingLSNsType { package static var ascendingLSNs: Self { Self() } }
extension FieldType where Self == ContentType { package static var content: Self { Self() } }
