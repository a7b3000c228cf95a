// Records as Swift types: a Codable struct, a name for it, and the store does the rest.

/// A Swift type that is stored as a record.
///
/// ```swift
/// struct Note: SyncRecord {
///   var id = RecordName.random()
///   var title: String
///   var body: String?
/// }
/// ```
///
/// Properties become fields of the same name; `id` becomes the record's name. Strings, whole numbers, Booleans (as 0
/// and 1), floating-point numbers, `Date`, `Data`, `UUID`, `URL`, `Reference`, `Location`, `Asset`, raw-value enums,
/// arrays of one of these, and optionals of all of them can be stored; anything deeper cannot be in CloudKit.
public protocol SyncRecord: Codable, Identifiable, Sendable where ID == String {
  /// The record type in the schema; the Swift type's name by default.
  static var recordType: String { get }
  /// The zone; `Main` by default.
  static var zone: ZoneID { get }
  /// The record's name in the zone.
  var id: String { get }
}

extension SyncRecord {
  /// The Swift type's name.
  public static var recordType: String { String(describing: Self.self) }
  /// The zone `Main`.
  public static var zone: ZoneID { .main }
  /// The identity under which this value is stored.
  public var recordID: RecordID { RecordID(id, zone: Self.zone) }
}

extension WriteTransaction {
  /// Saves a typed value. Fields that the type does not know survive.
  public mutating func save<Value: SyncRecord>(_ value: Value) throws {
    try save(merged(value))
  }

  /// Begins a new life under a typed value's name.
  public mutating func create<Value: SyncRecord>(_ value: Value) throws {
    try create(merged(value))
  }

  /// Deletes a typed value's record; false if it does not live.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(_ value: Value) throws -> Bool { try delete(value.recordID) }

  /// Deletes a record by its type and name; false if it does not live.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(_ type: Value.Type, _ id: String) throws -> Bool {
    try delete(RecordID(id, zone: Value.zone))
  }

  /// A typed value as this transaction sees it; nil if it does not live.
  public func value<Value: SyncRecord>(_ type: Value.Type, _ id: String) throws -> Value? {
    try record(RecordID(id, zone: Value.zone)).map { try RecordDecoder.decode(type, from: $0) }
  }

  private func merged<Value: SyncRecord>(_ value: Value) throws -> Record {
    let id = value.recordID
    var record = try self.record(id) ?? Record(type: Value.recordType, id: id)
    for (field, content) in try RecordEncoder.encode(value) { record[field] = content }
    return record
  }
}

extension RecordStore {
  /// A typed value, as far as it is durable; nil if it does not live.
  public func value<Value: SyncRecord>(_ type: Value.Type, _ id: String) throws -> Value? {
    try record(RecordID(id, zone: Value.zone)).map { try RecordDecoder.decode(type, from: $0) }
  }

  /// All living values of a type, in the order of their names.
  public func values<Value: SyncRecord>(_ type: Value.Type) throws -> [Value] {
    var result: [Value] = []
    try forEachRecord(ofType: Value.recordType, in: Value.zone) {
      result.append(try RecordDecoder.decode(type, from: $0))
    }
    return result
  }
}
