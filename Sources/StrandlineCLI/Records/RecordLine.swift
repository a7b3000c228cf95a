// A record as one line of JSON, coming in: what `import` and `put` take. Going out: RecordLine+Writing.swift.
//
// A field's value is plain JSON (text, a whole number, another number, a list of them, true and false as 1 and 0,
// null to clear) or CloudKit's {"type", "value"}. What cannot be meant is refused with the name of the key; nothing
// is bent. The page for people: Formats/cli-json.md.

import Foundation
import Strandline
import StrandlineCloudKit

/// One line, decoded and not yet checked against any store.
struct RecordLine: Decodable {
  var recordType: String?
  var recordName: String
  var zoneName: String?
  /// nil if the line does not say; `.some(nil)` to have none.
  var parent: String??
  var fields: [String: LineField]

  private enum Key: String, CaseIterable { case recordType, recordName, zoneName, parent, fields }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: AnyKey.self)
    for key in container.allKeys where Key(rawValue: key.stringValue) == nil {
      throw BadLine(
        "the key '\(printable(String(key.stringValue.prefix(80))))' is not known; a line has "
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
    do {
      self = try JSONDecoder().decode(RecordLine.self, from: Data(json))
    } catch let error as DecodingError {
      // Corrupted data without a path is a text that is not JSON; what is wrong in a value has its key for a path.
      if case .dataCorrupted(let context) = error, context.codingPath.isEmpty {
        throw BadLine("not valid JSON: cut short, a quote or comma amiss, or an escape that is no character")
      }
      throw BadLine(error)
    }
    // The decoder takes one of two values and says nothing.
    if let key = RepeatedKey.first(in: json) {
      throw BadLine("the key '\(printable(String(key.prefix(80))))' stands there twice in one object")
    }
  }

  /// Whose record it is, where `zone` is meant unless the line says otherwise.
  func id(in zone: String) -> RecordID { RecordID(recordName, zone: ZoneID(zoneName ?? zone)) }

  /// The record as the line gives it whole: what it does not name is null.
  func record(in zone: String) throws -> Record {
    guard let recordType else { throw BadLine("the key 'recordType' is missing") }
    let id = id(in: zone)
    var record = Record(type: recordType, id: id, parent: parent ?? nil)
    for (name, field) in fields { record.fields[name] = field.value?.relative(to: id.zone) }
    return record
  }

  /// The record that comes of changing another one in what the line names.
  func changing(_ record: Record) throws -> Record {
    if let recordType, recordType != record.type {
      throw BadLine("the record is a '\(record.type)' and cannot become a '\(recordType)'")
    }
    var record = record
    if let parent { record.parent = parent }
    for (name, field) in fields { record.fields[name] = field.value?.relative(to: record.id.zone) }
    return record
  }
}

/// A line that is no record, in words.
struct BadLine: Error {
  var words: String
  init(_ words: String) { self.words = words }

  init(_ error: DecodingError) {
    switch error {
    case .dataCorrupted(let context): words = Self.words(context, context.debugDescription)
    case .typeMismatch(let type, let context):
      words = Self.words(context, "a value of another kind stands where \(Self.name(of: type)) is meant")
    case .valueNotFound(_, let context): words = Self.words(context, "null stands where a value is needed")
    case .keyNotFound(let key, let context): words = Self.words(context, "the key '\(key.stringValue)' is missing")
    @unknown default: words = "\(error)"
    }
  }

  private static func words(_ context: DecodingError.Context, _ what: String) -> String {
    let path = context.codingPath.map { $0.intValue.map { "[\($0)]" } ?? $0.stringValue }.joined(separator: ".")
    return (path.isEmpty ? "" : "\(printable(String(path.prefix(200)))): ") + what
  }

  private static func name(of type: any Any.Type) -> String {
    if type == String.self { return "text" }
    if type is any BinaryInteger.Type { return "a whole number" }
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
          debugDescription: "the key '\(printable(String(key.prefix(80))))' is not known; a value that is an object "
            + "has 'type' and 'value'")
      }
      guard keys.contains("value") else {
        throw DecodingError.dataCorruptedError(
          in: container, debugDescription: "a value that is an object has 'type' and 'value'; null clears a field")
      }
      value = try WireField(from: decoder).value
    }
  }

  /// Text, a number or a truth value; nil if it is none of them. The decoder says by a type mismatch what it is not.
  private static func plain(_ container: any SingleValueDecodingContainer) throws -> FieldValue? {
    do { return .string(try container.decode(String.self)) } catch DecodingError.typeMismatch {}
    do { return .int64(try container.decode(Bool.self) ? 1 : 0) } catch DecodingError.typeMismatch {}
    do { return .int64(try container.decode(Int64.self)) } catch DecodingError.typeMismatch {
      return nil
    } catch {
      // A number, and no Int64. Foundation says so by an error of its own that has no public name.
      return .double(try double(container))
    }
  }

  private static func double(_ container: any SingleValueDecodingContainer) throws -> Double {
    let number: Double
    do { number = try container.decode(Double.self) } catch {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "a number that no double can hold")
    }
    // A whole number that no Int64 holds: whether a rounded double would do, only the sender knows.
    guard number.rounded() != number || number.magnitude < 0x1p63 else {
      throw DecodingError.dataCorruptedError(
        in: container,
        debugDescription: "a whole number beyond 64 bits; "
          + "if a rounded one will do, say {\"type\": \"DOUBLE\", \"value\": …}")
    }
    return number == 0 ? 0 : number
  }

  /// A plain list of one kind; a whole number beside a broken one is a number. nil if it is no list.
  private static func list(_ decoder: any Decoder) throws -> FieldValue? {
    let container: any UnkeyedDecodingContainer
    do { container = try decoder.unkeyedContainer() } catch DecodingError.typeMismatch { return nil }
    var items = container
    var values: [FieldValue] = []
    while !items.isAtEnd {
      let path = items.codingPath
      guard let item = try items.decode(LineField.self).value else {
        throw DecodingError.dataCorrupted(DecodingError.Context(codingPath: path, debugDescription: "a null in a list"))
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
        debugDescription: "a plain list holds text only or numbers only; for other kinds say "
          + "{\"type\": \"…_LIST\", \"value\": […]}"))
  }
}
