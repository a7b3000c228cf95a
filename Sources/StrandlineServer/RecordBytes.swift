// A saved record in the bytes of its event, where its fields lie canonical: answers are written from them, and the next
// version of the record is made of them, without a dictionary of values between.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem

/// The kind of a field's value as a schema fixes it: its type, and whether it is encrypted.
///
/// A byte: the value's tag, of a list 0x20 and its kind, with 0x40 if it is encrypted.
struct FieldKind: Hashable, Sendable {
  let rawValue: UInt8

  private static let list: UInt8 = 0x20
  private static let encrypted: UInt8 = 0x40

  /// The kind of the value whose bytes begin at a place. They were checked.
  init(_ bytes: [UInt8], at place: Int) {
    switch ValueTag(rawValue: bytes[place]) {
    case .list: rawValue = Self.list | bytes[place + 1]
    case .encrypted: rawValue = Self.encrypted | FieldKind(bytes, at: place + 1).rawValue
    default: rawValue = bytes[place]
    }
  }

  /// An empty list of a kind that its sender did not know. It is valid where any list is.
  static let unknownList = list | FieldValue.ListKind.unknown.rawValue

  /// Whether a field of this kind takes a value of another.
  func takes(_ other: FieldKind) -> Bool {
    self == other || (other.rawValue == Self.unknownList && rawValue & Self.list != 0)
  }

  /// Whether CloudKit could have an index of such a field: not of assets and not of what it cannot read.
  var isQueryable: Bool {
    let plain = rawValue & ~Self.list
    return rawValue & Self.encrypted == 0
      && plain != (rawValue & Self.list != 0 ? FieldValue.ListKind.assets.rawValue : ValueTag.asset.rawValue)
  }

  var isLocation: Bool { rawValue == ValueTag.location.rawValue }

  /// Whether a value of this kind fixes that of its field.
  var fixesField: Bool { rawValue != Self.unknownList }

  /// As the wire spells it.
  var words: String {
    let isEncrypted = rawValue & Self.encrypted != 0
    let plain = rawValue & ~(Self.encrypted | Self.list)
    let name: String
    if rawValue & Self.list != 0 {
      name = FieldValue.ListKind(rawValue: plain).map { WireField.typeName(.list($0, [])) } ?? "LIST"
    } else {
      name =
        switch ValueTag(rawValue: plain) {
        case .string: "STRING"
        case .int64: "INT64"
        case .double: "DOUBLE"
        case .date: "TIMESTAMP"
        case .bytes: "BYTES"
        case .reference: "REFERENCE"
        case .location: "LOCATION"
        case .asset: "ASSETID"
        case .null, .list, .encrypted, .opaque, nil: "UNKNOWN"
        }
    }
    return isEncrypted ? "ENCRYPTED_\(name)" : name
  }
}

/// The body of a `recordSaved`, checked once: where its parts lie.
struct RecordBytes: Sendable {
  /// Where a field lies.
  struct Field: Sendable {
    /// Of both, with the name's length before it.
    let all: Range<Int>
    let name: Range<Int>
    /// Not null.
    let value: Range<Int>
  }

  let body: [UInt8]
  let zone: UInt64
  let name: Range<Int>
  let type: Range<Int>
  let parent: Range<Int>?
  let tag: Range<Int>
  let created: Range<Int>
  let modified: Range<Int>
  /// In ascending order of their names' UTF-8, each name once.
  let fields: [Field]

  /// Reads the layout that Formats/journal.md gives for `recordSaved`.
  init(_ body: [UInt8]) throws(ByteReaderError) {
    var reader = ByteReader(body)
    let header = try PayloadHeader(nil, &reader)
    guard header.kind == JournalEventKind.recordSaved.rawValue, header.version == JournalEvent.version else {
      throw ByteReaderError(offset: 0, what: "an event that is no saved record")
    }
    self.body = body
    zone = try reader.u64()
    name = try reader.skipString()
    type = try reader.skipString()
    let flag = reader.offset
    switch try reader.u8() {
    case 0: parent = nil
    case 1: parent = try reader.skipString()
    default: throw ByteReaderError(offset: flag, what: "a flag that is neither 0 nor 1")
    }
    tag = try reader.skipString()
    created = try Self.skipTouch(&reader)
    modified = try Self.skipTouch(&reader)
    _ = try JournalCause(nil, &reader)
    let count = try reader.count(minimumBytes: 2)
    var fields: [Field] = []
    fields.reserveCapacity(count)
    var isAscending = true
    for _ in 0..<count {
      let begin = reader.offset
      let name = try reader.skipString()
      let start = reader.offset
      try FieldCodec.skip(from: &reader)
      guard body[start] != ValueTag.null.rawValue else {
        throw ByteReaderError(offset: start, what: "a field of the value null")
      }
      if let last = fields.last, !body.precedes(last.name, body, name) { isAscending = false }
      fields.append(Field(all: begin..<reader.offset, name: name, value: start..<reader.offset))
    }
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the event") }
    self.fields = isAscending ? fields : Self.sorted(fields, body)
  }

  private static func skipTouch(_ reader: inout ByteReader) throws(ByteReaderError) -> Range<Int> {
    let start = reader.offset
    _ = try reader.varint()
    try reader.skipString()
    try reader.skipString()
    return start..<reader.offset
  }

  /// The fields in order; of two of one name the later one, which counts. No writer needs this.
  private static func sorted(_ fields: [Field], _ body: [UInt8]) -> [Field] {
    var result: [Field] = []
    for field in fields.enumerated().sorted(by: { left, right in
      if body.precedes(left.element.name, body, right.element.name) { return true }
      if body.precedes(right.element.name, body, left.element.name) { return false }
      return left.offset < right.offset
    }).map(\.element) {
      if let last = result.last, !body.precedes(last.name, body, field.name) { result.removeLast() }
      result.append(field)
    }
    return result
  }

  func text(_ range: Range<Int>) -> String { body.text(in: range) }

  /// When a touch was.
  func milliseconds(_ touch: Range<Int>) throws(ByteReaderError) -> Int64 {
    var reader = ByteReader(body, touch)
    return try reader.zigzag()
  }

  /// Who made a touch.
  func user(_ touch: Range<Int>) throws(ByteReaderError) -> String {
    var reader = ByteReader(body, touch)
    _ = try reader.zigzag()
    return try reader.string()
  }

  /// - Complexity: O(log n) in the fields.
  func field(named name: String) -> Field? {
    let place = fields.partitioningIndex { body.order($0.name, of: name) >= 0 }
    return place < fields.count && body.order(fields[place].name, of: name) == 0 ? fields[place] : nil
  }

  /// A field's value.
  func value(_ field: Field) throws(ByteReaderError) -> FieldValue? {
    var reader = ByteReader(body, field.value)
    return try FieldCodec.decode(from: &reader)
  }

  /// The references of a field; most fields have none, and are not decoded.
  func references(_ field: Field) throws(ByteReaderError) -> [Reference] {
    let start = field.value.lowerBound
    switch ValueTag(rawValue: body[start]) {
    case .reference: break
    case .list where body[start + 1] == FieldValue.ListKind.references.rawValue: break
    default: return []
    }
    return try value(field)?.references ?? []
  }

  /// The references with DELETE_SELF or VALIDATE, in the order of the fields' names, so that a refusal names the same field
  /// each time.
  func links() throws(ByteReaderError) -> [RecordLink] {
    var links: [RecordLink] = []
    for field in fields { RecordLink.append(try references(field), of: text(field.name), to: &links) }
    return links
  }
}

extension RecordLink {
  /// Adds those references of a field that bind records of one zone.
  static func append(_ references: [Reference], of field: @autoclosure () -> String, to links: inout [RecordLink]) {
    for reference in references where reference.action != .none && reference.zone == nil {
      links.append(RecordLink(field: field(), target: CloudName(reference.name), action: reference.action))
    }
  }
}

/// The fields that a request wants to see.
struct DesiredFields: Sendable {
  /// In ascending order; nil: all.
  private let names: [String]?

  static let all = DesiredFields(nil)

  init(_ names: [String]?) { self.names = names?.sorted { $0.precedesByUTF8($1) } }

  var areAll: Bool { names == nil }
  /// Whether it is known that a record shows none.
  var isEmpty: Bool { names?.isEmpty == true }

  func contains(_ name: Range<Int>, in bytes: [UInt8]) -> Bool {
    guard let names else { return true }
    let place = names.partitioningIndex { bytes.order(name, of: $0) <= 0 }
    return place < names.count && bytes.order(name, of: names[place]) == 0
  }
}

/// What is the same for all records of one zone in an answer.
struct AnswerForm: Sendable {
  /// The zone's ID, as JSON.
  let zoneID: [UInt8]
  private let own: ZoneID
  /// Where contents are fetched.
  private let links: ContentLinks

  init(_ zoneID: WireZoneID, own: ZoneID, links: ContentLinks) {
    self.zoneID = WireJSON.encode(zoneID)
    self.own = own
    self.links = links
  }

  /// The most bytes that JSON makes of so many bytes of events: a reference takes three of them, and in JSON the zone's ID too.
  func jsonBytesMax(of bytes: Int) -> Int {
    let (product, isTooMuch) = bytes.multipliedReportingOverflow(by: max(16, (zoneID.count + 64) / 3 + 1))
    return isTooMuch ? .max : product
  }

  /// Writes a record from its event's bytes.
  func write(
    _ record: RecordBytes, desired: DesiredFields, numbersAsStrings: Bool, to json: inout JSONWriter
  ) throws(ByteReaderError) {
    json.beginObject()
    try write("created", touch: record.created, of: record, to: &json)
    json.key("deleted")
    json.bool(false)
    json.key("fields")
    json.beginObject()
    for field in record.fields where desired.contains(field.name, in: record.body) {
      json.key(utf8: record.body, field.name)
      try write(field, of: record, numbersAsStrings, to: &json)
    }
    json.endObject()
    try write("modified", touch: record.modified, of: record, to: &json)
    if let parent = record.parent {
      json.key("parent")
      json.beginObject()
      write("recordName", parent, of: record, to: &json)
      json.endObject()
    }
    // The live service shows them in each record. Nothing is known that would be in them.
    json.key("pluginFields")
    json.beginObject()
    json.endObject()
    write("recordChangeTag", record.tag, of: record, to: &json)
    write("recordName", record.name, of: record, to: &json)
    write("recordType", record.type, of: record, to: &json)
    json.key("zoneID")
    json.raw(zoneID)
    json.endObject()
  }

  /// Writes a deleted record, as a feed shows it.
  func writeTombstone(_ name: String, to json: inout JSONWriter) {
    json.beginObject()
    json.key("deleted")
    json.bool(true)
    json.key("recordName")
    json.string(name)
    json.key("zoneID")
    json.raw(zoneID)
    json.endObject()
  }

  private func write(_ key: String, _ text: Range<Int>, of record: RecordBytes, to json: inout JSONWriter) {
    json.key(key)
    json.string(utf8: record.body, text)
  }

  private func write(
    _ key: String, touch: Range<Int>, of record: RecordBytes, to json: inout JSONWriter
  ) throws(ByteReaderError) {
    var reader = ByteReader(record.body, touch)
    let milliseconds = try reader.zigzag()
    let user = try reader.skipString()
    let device = try reader.skipString()
    json.key(key)
    json.beginObject()
    write("deviceID", device, of: record, to: &json)
    json.key("timestamp")
    json.int64(milliseconds)
    write("userRecordName", user, of: record, to: &json)
    json.endObject()
  }

  private func write(
    _ field: RecordBytes.Field, of record: RecordBytes, _ numbersAsStrings: Bool, to json: inout JSONWriter
  ) throws(ByteReaderError) {
    var reader = ByteReader(record.body, field.value)
    json.beginObject()
    switch ValueTag(rawValue: try reader.u8()) {
    case .string:
      Self.writeType("STRING", to: &json)
      json.string(utf8: record.body, try reader.skipString())
    case .int64:
      Self.writeType("INT64", to: &json)
      let number = try reader.zigzag()
      if numbersAsStrings { json.string(String(number)) } else { json.int64(number) }
    case .date:
      Self.writeType("TIMESTAMP", to: &json)
      json.int64(try reader.zigzag())
    case .bytes:
      Self.writeType("BYTES", to: &json)
      json.base64(record.body, try reader.skipBlob())
    case .encrypted where ValueTag(rawValue: record.body[reader.offset]) == .bytes:
      // As Apple's own containers show encrypted bytes. Encrypted values of other types have their type and a flag.
      try reader.skip(1)
      Self.writeType("ENCRYPTED_BYTES", to: &json)
      json.base64(record.body, try reader.skipBlob())
    default:
      // The others are rarer, and have more rules.
      guard let value = try record.value(field) else {
        throw ByteReaderError(offset: field.value.lowerBound, what: "a field of the value null")
      }
      WireField.writeMembers(
        of: links.added(to: value.namingZones(own)), to: &json, numbersAsStrings ? .wireNumbersAsStrings : .wire)
    }
    json.endObject()
  }

  private static func writeType(_ name: String, to json: inout JSONWriter) {
    json.key("type")
    json.string(name)
    json.key("value")
  }
}

extension FieldValue {
  /// The value with the zone in every reference, as the service shows it.
  fileprivate func namingZones(_ own: ZoneID) -> FieldValue {
    switch self {
    case .reference(var reference):
      var zone = reference.zone ?? own
      if zone.owner.isEmpty { zone.owner = own.owner }
      reference.zone = zone
      return .reference(reference)
    case .list(.references, let items): return .list(.references, items.map { $0.namingZones(own) })
    default: return self
    }
  }
}
