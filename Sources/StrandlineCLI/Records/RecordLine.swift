// Decodes a record from one line of JSON, as `import` and `put` accept it. RecordLine+Writing.swift encodes it.
//
// A field's value is plain JSON (a string, an integer, another number, a list of them, true and false as 1 and 0, null
// to clear the field) or CloudKit's {"type", "value"}. A value of any other form is refused with the name of its key
// and never converted. Formats/cli-json.md describes the lines.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineJSON

/// A decoded line, not yet checked against a store.
struct RecordLine: Decodable {
  var recordType: String?
  var recordName: String
  var zoneName: String?
  /// nil if the line has no key "parent"; `.some(nil)` if it is null.
  var parent: String??
  var fields: [String: LineField]

  private enum Key: String, CaseIterable { case recordType, recordName, zoneName, parent, fields }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: AnyKey.self)
    for key in container.allKeys where Key(rawValue: key.stringValue) == nil {
      throw BadLine(
        "unknown key '\(printable(String(key.stringValue.prefix(80))))'; the keys of a line are "
          + Key.allCases.map(\.rawValue).joined(separator: ", "))
    }
    func text(_ key: Key) throws -> String? {
      try container.decodeIfPresent(String.self, forKey: AnyKey(key.rawValue))
    }
    recordType = try text(.recordType)
    guard let name = try text(.recordName) else {
      throw BadLine("the key 'recordName' is missing")
    }
    recordName = name
    zoneName = try text(.zoneName)
    parent = container.contains(AnyKey(Key.parent.rawValue)) ? .some(try text(.parent)) : nil
    fields = try container.decodeIfPresent([String: LineField].self, forKey: AnyKey(Key.fields.rawValue)) ?? [:]
  }

  /// Decodes a line.
  ///
  /// - Throws: `BadLine`.
  init(json: [UInt8]) throws {
    // The decoder takes more than JSON (a comma behind the last item, UTF-16), and one of the values of a repeated key.
    do throws(JSONError) {
      var reader = try JSONReader(json, limits: Self.limits)
      try reader.skipValue()
      try reader.finish()
    } catch { throw BadLine(error) }
    do { self = try JSONDecoder().decode(RecordLine.self, from: Data(json)) } catch let error as DecodingError {
      throw BadLine(error)
    }
  }

  /// The depth is what JSONDecoder accepts.
  private static let limits = JSONLimits(bytesMax: LineReader.lineBytesMax, depthMax: 512)

  /// The record's ID. `zone` is the zone of a line that names none.
  func id(in zone: String) -> RecordID { RecordID(recordName, zone: ZoneID(zoneName ?? zone)) }

  /// The record with only the fields that the line names.
  func record(in zone: String) throws -> Record {
    guard let recordType else { throw BadLine("the key 'recordType' is missing") }
    let id = id(in: zone)
    var record = Record(type: recordType, id: id, parent: parent ?? nil)
    for (name, field) in fields { record.fields[name] = field.value?.relative(to: id.zone) }
    return record
  }

  /// A copy of `record` in which the fields that the line names are changed.
  func changing(_ record: Record) throws -> Record {
    if let recordType, recordType != record.type {
      throw BadLine("the record has the type '\(record.type)', which cannot be changed to '\(recordType)'")
    }
    var record = record
    if let parent { record.parent = parent }
    for (name, field) in fields { record.fields[name] = field.value?.relative(to: record.id.zone) }
    return record
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
    words = (error.kind == .repeatedKey ? "" : "not valid JSON: ") + printable(error.message)
  }

  init(_ error: DecodingError) {
    switch error {
    case .dataCorrupted(let context): words = Self.words(context, context.debugDescription)
    case .typeMismatch(let type, let context):
      words = Self.words(context, "expected \(Self.name(of: type)), found another kind of value")
    case .valueNotFound(_, let context): words = Self.words(context, "expected a value, found null")
    case .keyNotFound(let key, let context): words = Self.words(context, "the key '\(key.stringValue)' is missing")
    @unknown default: words = "\(error)"
    }
  }

  private static func words(_ context: DecodingError.Context, _ what: String) -> String {
    let path = context.codingPath.map { $0.intValue.map { "[\($0)]" } ?? $0.stringValue }.joined(separator: ".")
    return (path.isEmpty ? "" : "\(printable(String(path.prefix(200)))): ") + what
  }

  private static func name(of type: any Any.Type) -> String {
    if type == String.self { return "a string" }
    if type is any BinaryInteger.Type { return "an integer" }
    if type is any BinaryFloatingPoint.Type { return "a number" }
    if type is any JSONObject.Type { return "an object" }
    if type is any JSONList.Type { return "a list" }
    return "\(type)"
  }
}

/// The Swift types that a JSON object is decoded as.
private protocol JSONObject {}
extension Dictionary: JSONObject {}
/// The Swift types that a JSON list is decoded as.
private protocol JSONList {}
extension Array: JSONList {}

/// A field's value in a line; nil for null.
struct LineField: Decodable {
  var value: FieldValue?

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      value = nil
    } else if let plain = try Self.plain(container) {
      value = plain
    } else if let list = try Self.list(decoder) {
      value = list
    } else {
      let keys = try decoder.container(keyedBy: AnyKey.self).allKeys.map(\.stringValue)
      for key in keys where !["type", "value", "isEncrypted"].contains(key) {
        throw DecodingError.dataCorruptedError(
          in: container,
          debugDescription: "unknown key '\(printable(String(key.prefix(80))))'; an object as a value has the keys "
            + "'type' and 'value'")
      }
      guard keys.contains("value") else {
        throw DecodingError.dataCorruptedError(
          in: container,
          debugDescription: "an object as a value has the keys 'type' and 'value'; null clears a field")
      }
      value = try WireField(from: decoder).value
    }
  }

  /// Decodes a string, a number or a Boolean. Returns nil if the value is none of them: the decoder then throws a type
  /// mismatch.
  private static func plain(_ container: any SingleValueDecodingContainer) throws -> FieldValue? {
    do { return .string(try container.decode(String.self)) } catch DecodingError.typeMismatch {}
    do { return .int64(try container.decode(Bool.self) ? 1 : 0) } catch DecodingError.typeMismatch {}
    do { return .int64(try container.decode(Int64.self)) } catch DecodingError.typeMismatch {
      return nil
    } catch {
      // A number that is not an Int64. Foundation throws a private error type for it.
      return .double(try double(container))
    }
  }

  private static func double(_ container: any SingleValueDecodingContainer) throws -> Double {
    let number: Double
    do { number = try container.decode(Double.self) } catch {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "the number does not fit into a double")
    }
    // An integer that does not fit into an Int64. Only the sender knows whether a rounded double would do.
    guard number.rounded() != number || number.magnitude < 0x1p63 else {
      throw DecodingError.dataCorruptedError(
        in: container,
        debugDescription: "the integer does not fit into 64 bits; "
          + "to store it rounded, write {\"type\": \"DOUBLE\", \"value\": …}")
    }
    return number == 0 ? 0 : number
  }

  /// Decodes a plain list of values of one kind; a list of integers and other numbers is a list of doubles.
  private static func list(_ decoder: any Decoder) throws -> FieldValue? {
    let container: any UnkeyedDecodingContainer
    do { container = try decoder.unkeyedContainer() } catch DecodingError.typeMismatch { return nil }
    var items = container
    var values: [FieldValue] = []
    while !items.isAtEnd {
      let path = items.codingPath
      guard let item = try items.decode(LineField.self).value else {
        throw DecodingError.dataCorrupted(
          DecodingError.Context(codingPath: path, debugDescription: "a list cannot hold null"))
      }
      values.append(item)
    }
    let kinds = Set(values.map(\.itemKind))
    if kinds.isEmpty { return .list(.unknown, []) }
    if kinds == [.strings] { return .list(.strings, values) }
    if kinds == [.int64s] { return .list(.int64s, values) }
    if kinds.isSubset(of: [.int64s, .doubles]) {
      let numbers: [FieldValue] = values.map { value in
        if case .int64(let number) = value { .double(Double(number)) } else { value }
      }
      return .list(.doubles, numbers)
    }
    throw DecodingError.dataCorrupted(
      DecodingError.Context(
        codingPath: container.codingPath,
        debugDescription: "a plain list holds only strings or only numbers; for other types write "
          + "{\"type\": \"…_LIST\", \"value\": […]}"))
  }
}
