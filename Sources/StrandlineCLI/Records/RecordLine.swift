// Decodes a record from one line of JSON, as `import` and `put` accept it. RecordLine+Writing.swift encodes it.
//
// A field's value is plain JSON (a string, an integer, another number, a list of them, true and false as 1 and 0, null
// to clear the field) or CloudKit's {"type", "value"}. A value of any other form is refused with the name of its key
// and never converted. Formats/cli-json.md describes the lines.

import Strandline
import StrandlineCloudKit
import StrandlineJSON

/// A decoded line, not yet checked against a store.
struct RecordLine {
  var recordType: String?
  var recordName: String
  var zoneName: String?
  /// nil if the line has no key "parent"; `.some(nil)` if it is null.
  var parent: String??
  /// The fields that have a value.
  var fields: [String: FieldValue] = [:]
  /// The fields that are to be cleared.
  var nulls: [String] = []
  /// Whether names and values are a server's, which an app could not write: `export` says it of such a record.
  var isVerbatim = false

  private enum Key: Int, CaseIterable {
    case recordType, recordName, zoneName, parent, fields, verbatim
    static let names = JSONKeys(Key.self)
  }

  /// Decodes a line.
  init(json bytes: [UInt8]) throws(BadLine) {
    var decoder = LineDecoder()
    self = try decoder.line(bytes, 0..<bytes.count)
  }

  fileprivate init(_ json: inout JSONReader) throws(JSONError) {
    var name: String?
    var unread: (fields: JSONToken, reason: JSONError)?
    recordName = ""
    try json.beginObject()
    while let place = try json.nextKey(in: Key.names) {
      guard let key = Key(rawValue: place) else {
        throw json.error(
          "unknown key '\(json.key.prefix(80))'; the keys of a line are "
            + Key.allCases.map { "\($0)" }.joined(separator: ", "), at: json.keyPlace.lowerBound)
      }
      do throws(JSONError) {
        switch key {
        case .recordType: recordType = try json.skipNull() ? nil : try json.string()
        case .recordName: name = try json.skipNull() ? nil : try json.string()
        case .zoneName: zoneName = try json.skipNull() ? nil : try json.string()
        case .verbatim: isVerbatim = try json.bool()
        case .parent: parent = .some(try json.skipNull() ? nil : try json.string())
        case .fields:
          guard try !json.skipNull() else { continue }
          let begin = json.mark
          do throws(JSONError) {
            (fields, nulls) = try json.fields { json throws(JSONError) in try LineValue.read(&json) }
          } catch {
            // Whether the values are a server's may be said after them.
            guard error.kind == .value else { throw error }
            json.move(to: begin)
            unread = (try json.skipValue(), error.inside("fields"))
          }
        }
      } catch { throw error.inside("\(key)") }
    }
    if let unread {
      guard isVerbatim else { throw unread.reason }
      let end = json.goBack(to: unread.fields)
      do throws(JSONError) {
        (fields, nulls) = try json.fields { json throws(JSONError) in try LineValue.read(&json, from: .cloud) }
      } catch { throw error.inside("fields") }
      json.move(to: end)
    }
    guard let name else { throw json.missing("recordName") }
    recordName = name
  }

  /// The record's ID. `zone` is the zone of a line that names none.
  func id(in zone: String) -> RecordID { RecordID(recordName, zone: ZoneID(zoneName ?? zone)) }

  /// The record with only the fields that the line names.
  func record(in zone: String) throws(BadLine) -> Record {
    guard let recordType else { throw BadLine("the key 'recordType' is missing") }
    let id = id(in: zone)
    return Record(type: recordType, id: id, fields: relativeFields(to: id.zone), parent: parent ?? nil)
  }

  /// A copy of `record` in which the fields that the line names are changed.
  func changing(_ record: Record) throws(BadLine) -> Record {
    if let recordType, recordType != record.type {
      throw BadLine("the record has the type '\(record.type)', which cannot be changed to '\(recordType)'")
    }
    var record = record
    if let parent { record.parent = parent }
    for (name, value) in relativeFields(to: record.id.zone) {
      record.fields[name] = record.fields[name].flatMap { value.written(like: $0) } ?? value
    }
    for name in nulls { record.fields[name] = nil }
    return record
  }

  private func relativeFields(to zone: ZoneID) -> [String: FieldValue] {
    var result = fields
    for (name, value) in fields where value.namesZone { result[name] = value.relative(to: zone) }
    return result
  }
}

extension FieldValue {
  /// A value that a person wrote shortly, as one of the type that another value has: a date as a text, and a number without its
  /// fraction. Nil if it is none.
  func written(like other: FieldValue) -> FieldValue? {
    switch (self, other) {
    case (.string(let text), .date): ISODate.milliseconds(text).map { .date(milliseconds: $0) }
    case (.int64(let number), .double): Double(exactly: number).map { .double($0) }
    default: isOfSameType(as: other) ? self : nil
    }
  }
}

/// Decodes lines one after the other, with the same memory.
struct LineDecoder {
  private var json = JSONReader(
    limits: JSONLimits(bytesMax: LineReader.lineBytesMax, depthMax: WireJSON.depthMax))

  /// The line in `bytes[range]`.
  mutating func line(_ bytes: [UInt8], _ range: Range<Int>) throws(BadLine) -> RecordLine {
    do throws(JSONError) {
      try json.restart(bytes, range)
      let line = try RecordLine(&json)
      try json.finish()
      return line
    } catch {
      // A line that is no JSON is called so, wherever a value before the place was of a wrong kind too.
      throw BadLine(error.kind == .value ? fault(in: range) ?? error : error)
    }
  }

  private mutating func fault(in range: Range<Int>) -> JSONError? {
    do throws(JSONError) {
      try json.restart(in: range)
      try json.skipValue()
      try json.finish()
      return nil
    } catch { return error }
  }
}

/// The reason why a line is not a record.
struct BadLine: Error {
  var words: String
  /// Where in the line, to be put behind its number: ", column 7"; empty if that is not known.
  var place = ""

  init(_ words: String) { self.words = words }

  init(_ error: JSONError) {
    // `put` takes a record of several lines.
    place = error.line == 1 ? ", column \(error.column)" : ", line \(error.line), column \(error.column)"
    switch error.kind {
    case .value: words = printable(error.words)
    case .repeatedKey: words = printable(error.message)
    default: words = "not valid JSON: " + printable(error.message)
    }
  }
}

/// Decodes a field's value in a line.
enum LineValue {
  /// Decodes a text of one value; nil is null.
  static func decode(_ text: String) throws(JSONError) -> FieldValue? {
    let bytes = Array(text.utf8)
    var json = try JSONReader(bytes, limits: JSONLimits(bytesMax: bytes.count, depthMax: WireJSON.depthMax))
    let value = try read(&json)
    try json.finish()
    return value
  }

  /// Reads a value; nil is null, which clears the field.
  static func read(
    _ json: inout JSONReader, from sender: WireField.Sender = .command
  ) throws(JSONError) -> FieldValue? {
    switch try json.kind() {
    case .null:
      try json.skipValue()
      return nil
    case .object: return try WireField.read(&json, from: sender)
    case .array: return try list(&json)
    case .string, .number, .bool: return try plain(&json)
    }
  }

  /// Reads a string, a number or a Boolean.
  private static func plain(_ json: inout JSONReader) throws(JSONError) -> FieldValue {
    switch try json.kind() {
    case .string: return .string(try json.string())
    case .bool: return .int64(try json.bool() ? 1 : 0)
    default:
      let token = try json.skipValue()
      switch try json.number(of: token) {
      case .int64(let number): return .int64(number)
      case .double(let number):
        // An integer that does not fit into an Int64. Only the sender knows whether a rounded double would do.
        guard number.rounded() != number || number.magnitude < 0x1p63 else {
          throw json.error(
            "the integer does not fit into 64 bits; to store it rounded, write {\"type\": \"DOUBLE\", \"value\": …}",
            at: token.range.lowerBound)
        }
        return .double(number == 0 ? 0 : number)
      }
    }
  }

  /// Reads a plain list of values of one kind; a list of integers and other numbers is a list of doubles.
  private static func list(_ json: inout JSONReader) throws(JSONError) -> FieldValue {
    let place = json.place
    var values: [FieldValue] = []
    var kinds: Set<FieldValue.ListKind> = []
    try json.beginArray()
    while try json.nextItem() {
      switch try json.kind() {
      case .null: throw json.error("a list cannot hold null", at: json.place)
      case .object, .array: throw mixed(&json, place)
      case .string, .number, .bool:
        let value = try plain(&json)
        if let kind = value.itemKind { kinds.insert(kind) }
        values.append(value)
      }
    }
    if kinds.isEmpty { return .list(.unknown, []) }
    if kinds == [.strings] { return .list(.strings, values) }
    if kinds == [.int64s] { return .list(.int64s, values) }
    guard kinds.isSubset(of: [.int64s, .doubles]) else { throw mixed(&json, place) }
    let numbers: [FieldValue] = values.map { value in
      if case .int64(let number) = value { .double(Double(number)) } else { value }
    }
    return .list(.doubles, numbers)
  }

  private static func mixed(_ json: inout JSONReader, _ place: Int) -> JSONError {
    json.error(
      "a plain list holds only strings or only numbers; for other types write "
        + "{\"type\": \"…_LIST\", \"value\": […]}", at: place)
  }
}
