// The types of `id` that a typed record can have: each has one text, which is the record's name.

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// A type of `SyncRecord.id`: a value with one text, which becomes the record's name.
///
/// `String`, the integers and `UUID` conform. A type with a raw value of one of these needs the words only:
///
/// ```swift
/// struct ShellID: RawRepresentable, Codable, RecordNameConvertible {
///   var rawValue: UUID
/// }
/// ```
public protocol RecordNameConvertible: Hashable, Sendable {
  /// The record's name: printable ASCII, 1 to 255 characters, not beginning with "_". A save refuses any other.
  var recordName: String { get }
  /// The value with this name; nil if no value has it.
  ///
  /// Two names never give one value: a record whose name is not its value's `recordName` cannot be read as the type.
  init?(recordName: String)
}

extension String: RecordNameConvertible {
  /// The text itself.
  public var recordName: String { self }
  /// Every text is a name's.
  public init?(recordName: String) { self = recordName }
}

extension RecordNameConvertible where Self: FixedWidthInteger {
  /// The number in decimal.
  public var recordName: String { String(self) }
  /// The number with this decimal form.
  public init?(recordName: String) { self.init(recordName, radix: 10) }
}

extension Int: RecordNameConvertible {}
extension Int8: RecordNameConvertible {}
extension Int16: RecordNameConvertible {}
extension Int32: RecordNameConvertible {}
extension Int64: RecordNameConvertible {}
extension UInt: RecordNameConvertible {}
extension UInt8: RecordNameConvertible {}
extension UInt16: RecordNameConvertible {}
extension UInt32: RecordNameConvertible {}
extension UInt64: RecordNameConvertible {}

extension UUID: RecordNameConvertible {
  /// The UUID in capitals, as CloudKit prints its own.
  public var recordName: String { uuidString }
  /// The UUID with this text.
  public init?(recordName: String) { self.init(uuidString: recordName) }
}

extension RecordNameConvertible where Self: RawRepresentable, RawValue: RecordNameConvertible {
  /// The raw value's name.
  public var recordName: String { rawValue.recordName }
  /// The value whose raw value has this name.
  public init?(recordName: String) {
    guard let raw = RawValue(recordName: recordName) else { return nil }
    self.init(rawValue: raw)
  }
}
