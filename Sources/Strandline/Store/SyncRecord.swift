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
  ///
  /// - Throws: `StrandlineError` as `save(_:)` of a record; `.typeMismatch` if a property cannot be stored.
  public mutating func save<Value: SyncRecord>(_ value: Value, fileID: String = #fileID, line: Int = #line) throws {
    let record = try CallSite(fileID, line).run("saving record '\(value.recordID)'") { try merged(value) }
    try save(record, fileID: fileID, line: line)
  }

  /// Begins a new life under a typed value's name.
  ///
  /// - Throws: `StrandlineError` as `create(_:)` of a record; `.typeMismatch` if a property cannot be stored.
  public mutating func create<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws {
    let record = try CallSite(fileID, line).run("creating record '\(value.recordID)'") { try merged(value) }
    try create(record, fileID: fileID, line: line)
  }

  /// Deletes a typed value's record; false if it does not live.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> Bool { try delete(value.recordID, fileID: fileID, line: line) }

  /// Deletes a record by its type and name; false if it does not live.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(
    _ type: Value.Type, _ id: String, fileID: String = #fileID, line: Int = #line
  ) throws -> Bool {
    try delete(RecordID(id, zone: Value.zone), fileID: fileID, line: line)
  }

  /// A typed value as this transaction sees it; nil if it does not live.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; `.typeMismatch` if the record's fields do not fit the type.
  public func value<Value: SyncRecord>(
    _ type: Value.Type, _ id: String, fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    let id = RecordID(id, zone: Value.zone)
    return try CallSite(fileID, line).run("reading record '\(id)'") {
      try find(id).map { try RecordDecoder.decode(type, from: $0) }
    }
  }

  private func merged<Value: SyncRecord>(_ value: Value) throws -> Record {
    let id = value.recordID
    var record = try find(id) ?? Record(type: Value.recordType, id: id)
    for (field, content) in try RecordEncoder.encode(value) { record[field] = content }
    return record
  }
}

extension RecordStore {
  /// A typed value, as far as it is durable; nil if it does not live.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; `.typeMismatch` if the record's fields do not fit the type.
  public func value<Value: SyncRecord>(
    _ type: Value.Type, _ id: String, fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    let id = RecordID(id, zone: Value.zone)
    return try CallSite(fileID, line).run("reading record '\(id)'") {
      try record(id, fileID: fileID, line: line).map { try RecordDecoder.decode(type, from: $0) }
    }
  }

  /// All living values of a type, in the order of their names.
  ///
  /// - Throws: `StrandlineError` as `value(_:_:)`.
  public func values<Value: SyncRecord>(
    _ type: Value.Type, fileID: String = #fileID, line: Int = #line
  ) throws -> [Value] {
    var result: [Value] = []
    try forEachRecord(ofType: Value.recordType, in: Value.zone, fileID: fileID, line: line) {
      result.append(try RecordDecoder.decode(type, from: $0))
    }
    return result
  }
}
