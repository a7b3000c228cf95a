// The rows that the store's tables have for records and deleted names. Layout: Formats/index.md, "Tables".
//
// They lie here, beside the events, because the compiler specializes a description for a coder only in the module of both: lists and
// look-ups decode little else, and took twice as long where it did not.

package import StrandlineLog
package import StrandlineSystem

extension Base: FieldGroup {
  package static var tableName: String { "base" }
  package static var bytesMin: Int { 5 }
  package init<Coder: FieldCoder>(_ base: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      version: try field("version", .lsn, base?.version), content: try field("content", .lsn, base?.content),
      changeTag: try field("changeTag", .text, base?.changeTag),
      createdMilliseconds: try field("created", .optional(.zigzag), base?.createdMilliseconds),
      modifiedMilliseconds: try field("modified", .optional(.zigzag), base?.modifiedMilliseconds))
  }
}

extension Pending: FieldGroup {
  package static var tableName: String { "pending" }
  package static var bytesMin: Int { 5 }
  package init<Coder: FieldCoder>(_ pending: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      isDeletion: try field("isDeletion", .flag, pending?.isDeletion),
      newest: try field("newest", .lsn, pending?.newest), first: try field("first", .lsn, pending?.first),
      attempts: try field("attempts", .list(.group(Attempt.self)), pending?.attempts),
      since: try field("since", .lsn, pending?.since))
    try field.require(since <= first && first <= newest, "a first mutation after the newest, or owed since a later one")
  }
}

extension Pending.Attempt: FieldGroup {
  package static var tableName: String { "attempt" }
  package static var bytesMin: Int { 2 }
  package init<Coder: FieldCoder>(_ attempt: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(lsn: try field("lsn", .lsn, attempt?.lsn), next: try field("next", .lsn, attempt?.next))
  }
}

/// A record's row: its entry, and where the event that it shows lay when the row was written.
package struct PlacedEntry: FieldDescribed, Hashable, Sendable {
  package var entry: RecordEntry
  /// A hint, by which a read need not look the event up.
  package var place: LogPlace?

  package init(_ entry: RecordEntry, at place: LogPlace? = nil) {
    self.entry = entry
    self.place = place
  }
  package init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    entry = RecordEntry(
      type: try field("type", .text, row?.entry.type),
      base: try field("base", .optional(.group(Base.self)), row?.entry.base),
      pending: try field("pending", .optional(.group(Pending.self)), row?.entry.pending))
    place = try field("place", .optional(.group(LogPlace.self)), row?.place)
  }
}

extension LogPlace: FieldGroup {
  package static var tableName: String { "place" }
  package static var bytesMin: Int { 3 }
  package init<Coder: FieldCoder>(_ place: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let segmentID = try field("segment", .varint, place?.segmentID)
    let offset = try field("offset", .varint, place.map { UInt64($0.offset) })
    let bytes = try field("bytes", .varint, place.map { UInt64($0.frameBytes) })
    try field.require(offset <= UInt32.max && bytes <= UInt32.max, "a place outside of a segment")
    self.init(
      segmentID: segmentID, offset: UInt32(truncatingIfNeeded: offset), frameBytes: UInt32(truncatingIfNeeded: bytes))
  }
}

extension DeletionEntry: FieldDescribed {
  package init<Coder: FieldCoder>(_ entry: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      births: try field("births", .births, entry?.births),
      createdMilliseconds: try field("created", .optional(.zigzag), entry?.createdMilliseconds),
      changeTag: try field("changeTag", .optional(.text), entry?.changeTag),
      lsn: try field("lsn", .lsn, entry?.lsn),
      provisional: try field("provisional", .optional(.births), entry?.provisional),
      isLocal: try field("isLocal", .flag, entry?.isLocal))
  }
}

extension FieldDescribed {
  /// The bytes of a row.
  package var row: [UInt8] { written() }

  /// Reads a row, to its end.
  package init(row bytes: [UInt8], _ range: Range<Int>) throws(ByteReaderError) { self = try Self.read(bytes, range) }

  fileprivate func written() -> [UInt8] {
    var writer = ByteWriter(capacity: 64)
    _ = Self(self, &writer)
    return writer.bytes
  }

  fileprivate static func read(_ bytes: [UInt8], _ range: Range<Int>) throws(ByteReaderError) -> Self {
    var reader = ByteReader(bytes, range)
    let row = try Self(nil, &reader)
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the row") }
    return row
  }
}

// The same of one type each, so that other modules call what is specialized here.

extension PlacedEntry {
  package var row: [UInt8] { written() }
  package func encode(into writer: inout ByteWriter) { _ = Self(self, &writer) }
  package init(row bytes: [UInt8], _ range: Range<Int>) throws(ByteReaderError) { self = try Self.read(bytes, range) }
}

extension DeletionEntry {
  package var row: [UInt8] { written() }
  package func encode(into writer: inout ByteWriter) { _ = Self(self, &writer) }
  package init(row bytes: [UInt8], _ range: Range<Int>) throws(ByteReaderError) { self = try Self.read(bytes, range) }
}
