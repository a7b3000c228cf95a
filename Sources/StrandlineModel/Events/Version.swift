// A version of a record: type, fields, stamp. `saved`, `merged` and `fetchedSave` hold one, a merge joins two, a request
// sends one.
//
// In an event the type and the births stand before the content, and the content is decoded only when a caller asks for
// the values: rebuilding the projections does not decode it.

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

  /// The same with the values and stamps that some fields have in another version.
  package func taking(_ names: some Sequence<String>, from other: Version) -> Version {
    var result = self
    for name in names {
      result.fields[name] = other.fields[name]
      result.stamp.fields[name] = other.stamp.fields[name]
    }
    return result
  }

  /// What the app sees of it.
  package func record(_ id: RecordID, system: SystemFields?) -> Record {
    var record = Record(type: type, id: id, values: fields, system: system)
    for name in stamp.fields.keys where fields[name] == nil && name != Self.parentField { record.nulls.insert(name) }
    return record
  }

  /// The names of all fields with a value or a stamp, in the order of their UTF-8.
  package var names: [String] {
    var names = Array(stamp.fields.keys)
    for name in fields.keys where stamp.fields[name] == nil { names.append(name) }
    names.sort { $0.precedesByUTF8($1) }
    return names
  }
}

extension Record {
  /// What the app sees of a version's fields, among which is the parent.
  package init(type: String, id: RecordID, values: [String: FieldValue], system: SystemFields?) {
    var fields = values
    var parent: String?
    if case .reference(let reference)? = fields.removeValue(forKey: Version.parentField) { parent = reference.name }
    self.init(type: type, id: id, fields: fields, parent: parent, system: system)
  }
}

/// The content of a version: fields, their stamps, what was seen, and which fields are dirty. Held as bytes until a
/// caller asks for the values.
package struct EncodedContent: Sendable {
  private let bytes: [UInt8]
  private let range: Range<Int>

  /// Takes the rest of a payload.
  init(rest reader: inout ByteReader) {
    bytes = reader.bytes
    range = reader.offset..<reader.end
    reader.skipToEnd()
  }

  private init(_ layout: ContentLayout, capacity: Int) {
    var writer = ByteWriter(capacity: capacity)
    _ = ContentLayout(layout, &writer)
    bytes = writer.bytes
    range = 0..<writer.count
  }

  package init(_ version: Version, dirty: [String: LSN] = [:]) {
    let names = version.names
    // Most fields of a version were stamped together: each distinct stamp is written once.
    var stamps: [FieldStamp] = []
    for stamp in version.stamp.fields.values.sorted() where stamp != stamps.last { stamps.append(stamp) }
    let fields = names.map { name in
      ContentField(
        name: name, stampPlace: version.stamp.fields[name].map { Self.place(of: $0, in: stamps) } ?? 0,
        value: version.fields[name])
    }
    var dirtyFields: [DirtyField] = []
    for (place, name) in names.enumerated() {
      if let lsn = dirty[name] { dirtyFields.append(DirtyField(fieldPlace: UInt64(place), lsn: lsn)) }
    }
    self.init(
      ContentLayout(
        stamps: stamps, fields: fields, seen: version.stamp.seen, unknownStampParts: version.stamp.unknown,
        dirty: dirtyFields),
      capacity: 512)
  }

  /// The place of one of `stamps`, which ascend, counted from 1.
  private static func place(of stamp: FieldStamp, in stamps: [FieldStamp]) -> UInt64 {
    UInt64(stamps.partitioningIndex { $0 >= stamp }) + 1
  }

  /// The size in bytes.
  package var byteCount: Int { range.count }

  /// Reads it from its beginning.
  var reader: ByteReader { ByteReader(bytes, range) }

  package func encode(into writer: inout ByteWriter) { writer.raw(bytes[range]) }

  private func layout() throws(ByteReaderError) -> ContentLayout {
    var reader = ByteReader(bytes, range)
    let layout = try ContentLayout(nil, &reader)
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the end") }
    return layout
  }

  /// The fields of its layout, for the tables of Formats.
  package func listedFields() throws(ByteReaderError) -> [ListedField] { try layout().listedFields }

  /// The fields for a caller that asks for no stamp. Checked, and not yet decoded.
  func fields() throws(ByteReaderError) -> EncodedFields {
    var reader = ByteReader(bytes, range)
    return try EncodedFields(content: &reader)
  }

  /// The version and its dirty map, in which `this` stands for the event's own LSN.
  package func decoded(
    type: String, births: Set<Birth>, this: LSN
  ) throws(ByteReaderError) -> (version: Version, dirty: [String: LSN]) {
    let layout = try layout()
    var version = Version(type: type)
    version.stamp.births = births
    version.stamp.seen = layout.seen
    version.stamp.unknown = layout.unknownStampParts
    version.fields.reserveCapacity(layout.fields.count)
    version.stamp.fields.reserveCapacity(layout.fields.count)
    for field in layout.fields {
      if field.stampPlace > 0 { version.stamp.fields[field.name] = layout.stamps[Int(field.stampPlace) - 1] }
      version.fields[field.name] = field.value
    }
    var dirty: [String: LSN] = [:]
    for entry in layout.dirty {
      dirty[layout.fields[Int(entry.fieldPlace)].name] = entry.lsn == .zero ? this : entry.lsn
    }
    return (version, dirty)
  }
}

/// The bytes of a version's content.
private struct ContentLayout: FieldDescribed {
  var stamps: [FieldStamp]
  var fields: [ContentField]
  var seen: [WriterID: Seen]
  var unknownStampParts: [UInt8]
  var dirty: [DirtyField]

  init(
    stamps: [FieldStamp], fields: [ContentField], seen: [WriterID: Seen], unknownStampParts: [UInt8],
    dirty: [DirtyField]
  ) {
    self.stamps = stamps
    self.fields = fields
    self.seen = seen
    self.unknownStampParts = unknownStampParts
    self.dirty = dirty
  }
  init<Coder: FieldCoder>(_ content: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let stamps = try field("stamps", .list(.group(FieldStamp.self)), content?.stamps)
    let fields = try field("fields", .list(.group(ContentField.self)), content?.fields)
    try field.require(
      zip(fields, fields.dropFirst()).allSatisfy { $0.name.precedesByUTF8($1.name) }, "fields out of order")
    try field.require(fields.allSatisfy { $0.stampPlace <= UInt64(stamps.count) }, "a missing stamp")
    seen = try field("seen", .seen, content?.seen)
    unknownStampParts = try field("unknownStampParts", .bytes, content?.unknownStampParts)
    let dirty = try field("dirty", .list(.group(DirtyField.self)), content?.dirty)
    try field.require(dirty.allSatisfy { $0.fieldPlace < UInt64(fields.count) }, "a missing dirty field")
    (self.stamps, self.fields, self.dirty) = (stamps, fields, dirty)
  }
}

/// A field in a version's content.
struct ContentField: FieldGroup {
  static let tableName = "field"
  static let bytesMin = 3
  var name: String
  /// The place of its stamp, counted from 1; 0 for none.
  var stampPlace: UInt64
  var value: FieldValue?

  init(name: String, stampPlace: UInt64, value: FieldValue?) {
    self.name = name
    self.stampPlace = stampPlace
    self.value = value
  }
  init<Coder: FieldCoder>(_ one: Self?, _ field: inout Coder) throws(Coder.Failure) {
    name = try field("name", .text, one?.name)
    stampPlace = try field("stampPlace", .varint, one?.stampPlace)
    value = try field("value", .value, one?.value)
  }
}

/// An entry of the dirty map.
struct DirtyField: FieldGroup {
  static let tableName = "dirty"
  static let bytesMin = 2
  var fieldPlace: UInt64
  /// The event that wrote the field last; none stands for the event that holds this.
  var lsn: LSN

  init(fieldPlace: UInt64, lsn: LSN) {
    self.fieldPlace = fieldPlace
    self.lsn = lsn
  }
  init<Coder: FieldCoder>(_ dirty: Self?, _ field: inout Coder) throws(Coder.Failure) {
    fieldPlace = try field("fieldPlace", .varint, dirty?.fieldPlace)
    lsn = try field("lsn", .lsn, dirty?.lsn)
  }
}
