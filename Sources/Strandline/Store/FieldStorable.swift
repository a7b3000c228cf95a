// Which Swift types are one field's value by themselves, and which properties are parts of a record other than fields.
// The encoder and the decoder ask a property's static type, and never its value: a cast of any empty list to one of bytes
// succeeds.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

import StrandlineSystem

/// A `Codable` type whose values are stored as JSON, in a field of bytes.
///
/// CloudKit has no nested values, so an app declares which types it wants to store in this way: structs and enums of more
/// than one value. The server cannot look into them, and a conflict is decided for the value as a whole. Keys are sorted,
/// so equal values are equal bytes. A value is nested at most 64 levels deep. Keys that a newer version of the app has
/// added do not survive a save by an older one. In the JSON, `Data` is base64, a `URL` its text, and a `Date` its seconds
/// since 2001, not rounded: what Foundation's `JSONDecoder` reads without options.
///
/// ```swift
/// struct Address: JSONField {
///   var street: String
///   var floor: Int?
/// }
/// ```
public protocol JSONField: Codable, Sendable {}

/// Why a value cannot be stored or read; the encoder and the decoder add the property.
struct FieldDefect: Error {
  let words: String
  init(_ words: String) { self.words = words }
}

/// A type whose values are each one field's value.
package protocol FieldStorable {
  /// The kind of a list of such values; nil if the type does not decide it.
  static var listKind: FieldValue.ListKind? { get }
  /// The field's value in a record of a zone.
  func fieldValue(in zone: ZoneID) throws -> FieldValue
  /// The value of a field; nil if it holds another kind of value.
  init?(fieldValue: FieldValue, in zone: ZoneID) throws
}

extension Date: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .dates }
  package func fieldValue(in zone: ZoneID) throws -> FieldValue {
    guard let milliseconds = Int64(exactly: (timeIntervalSince1970 * 1000).rounded()) else {
      throw FieldDefect("the date is beyond milliseconds in 64 bits")
    }
    return .date(milliseconds: milliseconds)
  }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    guard case .date(let milliseconds) = fieldValue else { return nil }
    self.init(milliseconds: milliseconds)
  }
}

extension Data: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .bytes }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .bytes(Array(self)) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    guard case .bytes(let bytes) = fieldValue else { return nil }
    self.init(bytes)
  }
}

extension Array: FieldStorable where Element == UInt8 {
  package static var listKind: FieldValue.ListKind? { .bytes }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .bytes(self) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    switch fieldValue {
    case .bytes(let bytes): self = bytes
    case .list(.unknown, _): self = []
    default: return nil
    }
  }
}

extension UUID: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .strings }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .string(uuidString) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) throws {
    guard case .string(let text) = fieldValue else { return nil }
    guard let value = UUID(uuidString: text) else { throw FieldDefect("'\(text.prefix(80))' is not a UUID") }
    self = value
  }
}

extension URL: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .strings }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .string(absoluteString) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) throws {
    guard case .string(let text) = fieldValue else { return nil }
    guard let value = URL(string: text) else { throw FieldDefect("'\(text.prefix(80))' is not a URL") }
    self = value
  }
}

extension Reference: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .references }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .reference(self) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    guard case .reference(let value) = fieldValue else { return nil }
    self = value
  }
}

extension Location: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .locations }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .location(self) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    guard case .location(let value) = fieldValue else { return nil }
    self = value
  }
}

extension Asset: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .assets }
  package func fieldValue(in zone: ZoneID) -> FieldValue { .asset(self) }
  package init?(fieldValue: FieldValue, in zone: ZoneID) {
    guard case .asset(let value) = fieldValue else { return nil }
    self = value
  }
}

extension FieldValue: FieldStorable {
  package static var listKind: ListKind? { nil }
  package func fieldValue(in zone: ZoneID) -> FieldValue { self }
  package init?(fieldValue: FieldValue, in zone: ZoneID) { self = fieldValue }
}

extension RecordID: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .references }
  package func fieldValue(in zone: ZoneID) -> FieldValue {
    .reference(Reference(name, zone: self.zone == zone ? nil : self.zone))
  }
  package init?(fieldValue: FieldValue, in zone: ZoneID) throws {
    guard case .reference(let value) = fieldValue else { return nil }
    guard value.action == .none else {
      throw FieldDefect(
        "the reference has the action \(value.action), which a RecordID cannot hold; declare a Reference")
    }
    self.init(value.name, zone: value.zone ?? zone)
  }
}

extension TypedReference: FieldStorable {
  package static var listKind: FieldValue.ListKind? { .references }
  package func fieldValue(in zone: ZoneID) -> FieldValue {
    .reference(Reference(id.recordName, zone: Target.zone == zone ? nil : Target.zone, action: action))
  }
  package init?(fieldValue: FieldValue, in zone: ZoneID) throws {
    guard case .reference(let value) = fieldValue else { return nil }
    guard value.zone ?? zone == Target.zone else {
      throw FieldDefect(
        "it refers to zone '\(value.zone ?? zone)', and each \(Target.recordType) lies in '\(Target.zone)'")
    }
    self.init(id: try Target.id(named: value.name), action: value.action)
  }
}

extension SyncRecord {
  /// The ID with a record's name.
  static func id(named name: String) throws -> ID {
    guard let id = ID(recordName: name) else {
      throw FieldDefect("the name '\(name.prefix(80))' is not that of a \(ID.self)")
    }
    guard id.recordName.utf8.elementsEqual(name.utf8) else {
      let rule = ID.self == UUID.self ? "record names of UUIDs are in capital letters" : "a \(ID.self) has one spelling"
      throw FieldDefect("\(rule): '\(id.recordName)', and not '\(name.prefix(80))'")
    }
    return id
  }
}

/// A property that is a part of the record other than a field.
protocol RecordPart {
  /// Writes the part, or that there is none.
  static func write(_ part: Self?, to record: inout EncodedRecord) throws
  /// Reads the part; nil if the record has none.
  static func read(from fields: RecordFields) throws -> Self?
  /// The name under which indexes have it; nil: none has it.
  static var indexed: String? { get }
}

extension RecordPart {
  static var indexed: String? { nil }
}

extension Parent: RecordPart {
  static func write(_ part: Parent?, to record: inout EncodedRecord) throws {
    guard Target.zone == record.zone else {
      throw FieldDefect("the parent would lie in zone '\(Target.zone)', and the record lies in '\(record.zone)'")
    }
    if case .some = record.parent { throw FieldDefect("a record has one parent, and this is the second one") }
    record.parent = .some(part?.id.recordName)
  }
  static func read(from fields: RecordFields) throws -> Parent? {
    try fields.record.parent.map { Parent(id: try Target.id(named: $0)) }
  }
  static var indexed: String? { Version.parentField }
}

extension SystemFields: RecordPart {
  /// The server's metadata is the server's: a save leaves it as it is.
  static func write(_ part: SystemFields?, to record: inout EncodedRecord) {}
  static func read(from fields: RecordFields) -> SystemFields? { fields.record.system }
}
