// What the store keeps in sorted runs: the rows of its tables, and the keys that they stand under. Layout:
// Formats/index.md.
//
// A key begins with the number of its table. Records, and deleted names, stand in the order of zone and name, so that a list
// is a range of keys.

package import StrandlineLog
package import StrandlineSystem

/// The tables in a run, by the first byte of their keys.
package enum RunTable: UInt8, CaseIterable {
  /// One row: all that is not kept for single records.
  case state = 0
  /// A row for each record that has an entry.
  case records = 1
  /// A row for each deleted name.
  case deletions = 2
  /// The rows of declared indexes; see IndexRow.swift.
  case indexes = 3

  /// The least key of the table.
  var key: [UInt8] { [rawValue] }
}

/// Keys of rows.
package enum RowKey {
  static let state = RunTable.state.key

  /// What the keys of all records of a zone, or of all its deleted names, begin with.
  static func zone(_ zone: ZoneID, table: RunTable = .records) -> [UInt8] {
    var key: [UInt8] = []
    key.reserveCapacity(40 + zone.name.utf8.count + zone.owner.utf8.count)
    key.append(table.rawValue)
    key.append(zone.scope.rawValue)
    append(zone.owner, to: &key)
    append(zone.name, to: &key)
    return key
  }

  static func record(_ id: RecordID, table: RunTable = .records) -> [UInt8] {
    var key = zone(id.zone, table: table)
    key.append(utf8: id.name)
    return key
  }

  /// The record that a key is of; nil if it is of none.
  package static func recordID(_ key: [UInt8], table: RunTable = .records) -> RecordID? {
    guard key.count > 2, key[0] == table.rawValue, let scope = DatabaseScope(rawValue: key[1]) else {
      return nil
    }
    var place = 2
    guard let owner = text(key, &place), let zone = text(key, &place), key.isUTF8(in: place..<key.count) else {
      return nil
    }
    return RecordID(key.text(in: place..<key.count), zone: ZoneID(zone, owner: owner, scope: scope))
  }

  // Text inside a key ends with 00 01, and a zero byte in it is 00 FF: so keys sort as the texts do.

  private static func append(_ text: String, to key: inout [UInt8]) {
    if text.hasZeroByte {
      for byte in text.utf8 {
        key.append(byte)
        if byte == 0 { key.append(0xFF) }
      }
    } else {
      key.append(utf8: text)
    }
    key.append(0)
    key.append(1)
  }

  private static func text(_ key: [UInt8], _ place: inout Int) -> String? {
    var bytes: [UInt8] = []
    while let zero = key[place...].firstIndex(of: 0), zero + 1 < key.count {
      let part = place..<zero
      place = zero + 2
      switch key[zero + 1] {
      case 1:
        if bytes.isEmpty { return key.isUTF8(in: part) ? key.text(in: part) : nil }
        bytes.append(contentsOf: key[part])
        return bytes.isUTF8(in: bytes.indices) ? bytes.text(in: bytes.indices) : nil
      case 0xFF: bytes.append(contentsOf: key[part] + [0])
      default: return nil
      }
    }
    return nil
  }
}

// MARK: Values

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
  package var row: [UInt8] {
    var writer = ByteWriter(capacity: 64)
    _ = Self(self, &writer)
    return writer.bytes
  }

  /// Reads a row, to its end.
  package init(row bytes: [UInt8], _ range: Range<Int>) throws(ByteReaderError) {
    var reader = ByteReader(bytes, range)
    self = try Self(nil, &reader)
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the row") }
  }
}
