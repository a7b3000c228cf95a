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
/// Properties become fields of the same name; `id` becomes the record's name. The type of a property decides what it
/// becomes:
///
/// | property | field |
/// | --- | --- |
/// | `String`, `UUID`, `URL`, an enum with a raw `String` | STRING |
/// | integers, `Bool` as 0 and 1, an enum with a raw integer | INT64 |
/// | `Double`, `Float` | DOUBLE |
/// | `Date`, rounded to milliseconds | TIMESTAMP |
/// | `Data`, `[UInt8]` | BYTES |
/// | ``TypedReference``, `Reference`, `RecordID` | REFERENCE |
/// | `Location`, `Asset` | LOCATION, ASSETID |
/// | a ``JSONField``: a struct or an enum of the app's own | BYTES, as JSON |
/// | an array or a set of one of these | a list, empty or not; the elements of a set are sorted |
/// | `FieldValue` | what it is |
/// | an optional of one of these | the same; nil is null |
/// | ``Parent`` | none: the record's parent |
/// | `SystemFields?` | none: the server's metadata, when the record was read; a save leaves it as it is |
/// | ``RecordVersion`` | none: what the record was when it was read, so that a save changes what was changed since |
///
/// Anything else cannot be in a CloudKit field: a save throws `.typeMismatch` and names the property.
///
/// A record may lack a field: an older version of the app, or another app, wrote it. Then an optional property is nil, and
/// a read throws `.missingField` for any other property, unless the type has a ``prototype``.
public protocol SyncRecord: Codable, Identifiable, Sendable where ID: RecordNameConvertible {
  /// The record type in the schema; the Swift type's name by default.
  static var recordType: String { get }
  /// The zone; `Main` by default.
  static var zone: ZoneID { get }
  /// A value whose properties stand in for fields that a record lacks; none by default.
  ///
  /// ```swift
  /// struct Note: SyncRecord {
  ///   static var prototype: Note? { Note(title: "", stars: 3) }
  ///   var id = RecordName.random()
  ///   var title: String
  ///   var stars: Int  // added in version 2 of the app; a note of version 1 has three
  /// }
  /// ```
  ///
  /// A field that a save of this type wrote as nil is nil, and not absent; of a property that is not optional, a null too has the
  /// prototype's value. A list is empty then: another device's empty list may arrive as a null. Of a record that another tool
  /// wrote, no field is known to be null: an absent one has the prototype's value. That of a `.counter` is 0, which a sync takes
  /// an absent one for.
  static var prototype: Self? { get }
  /// Brings a record into the form that this type reads, for typed reads alone: queries, indexes, observers and exports see what
  /// is stored. Nothing by default.
  ///
  /// It gets a copy of the record before each read and each edit of a value, and must depend on nothing else. What it makes, and
  /// what it removes, is stored with the next save or update that changes the value; `RecordStore.migrateAll` stores it for all
  /// records at once. It counts as made right after the state that it is made from, so that no edit of another device loses to it,
  /// and that two devices which migrate one state have made one change. A field that has only another name needs no migration: name
  /// it in `CodingKeys`, and older versions of the app go on reading it. A field whose rule is `.counter` is better left as it is:
  /// two devices that migrate different states of it both add to it.
  ///
  /// A field keeps its type at CloudKit for ever, so a save that gives it another one is refused with `.typeMismatch` where the
  /// server has the record. A property of another type gets a field of its own:
  ///
  /// ```swift
  /// struct Note: SyncRecord {
  ///   static func migrate(_ record: inout Record) {
  ///     // Version 1 of the app had stars as a text.
  ///     guard record["starCount"] == nil, case .string(let text)? = record["stars"] else { return }
  ///     record["starCount"] = Int64(text).map { .int64($0) }
  ///   }
  ///   enum CodingKeys: String, CodingKey {
  ///     case id
  ///     case stars = "starCount"
  ///   }
  ///   var id = RecordName.random()
  ///   var stars: Int?
  /// }
  /// ```
  static func migrate(_ record: inout Record)
  /// The fields that properties are, for conditions and orders by key paths; none by default, because the type is asked: its
  /// `init(from:)` decodes made-up values, and the key path says which of them it gives.
  ///
  /// Name those that cannot be found out in that way, because `init(from:)` refuses the made-up values:
  ///
  /// ```swift
  /// struct Note: SyncRecord {
  ///   static var fields: [PartialKeyPath<Note>: String] { [\.mood: "mood"] }
  ///   var id = RecordName.random()
  ///   var mood: Mood  // an enum with texts that is not CaseIterable
  /// }
  /// ```
  ///
  /// A property that is named here must be read of its field as it is.
  static var fields: [PartialKeyPath<Self>: String] { get }
  /// Indexes, what the records hang below, how fields merge: see ``SchemaRule``. Nothing by default.
  ///
  /// The store knows it if the type is among the `types` with which it is opened. All devices of an app should declare the same.
  static var schema: [SchemaRule<Self>] { get }
  /// The record's name in the zone, or what stands for it.
  var id: ID { get }
}

extension SyncRecord {
  /// None: the type is asked.
  public static var fields: [PartialKeyPath<Self>: String] { [:] }
  /// Nothing: every field keeps the change that was made last.
  public static var schema: [SchemaRule<Self>] { [] }
  /// Changes nothing.
  public static func migrate(_ record: inout Record) {}
  /// The Swift type's name.
  public static var recordType: String { String(describing: Self.self) }
  /// The zone `Main`.
  public static var zone: ZoneID { .main }
  /// No prototype: a field that is absent is an error, unless its property is optional.
  public static var prototype: Self? { nil }
  /// The identity under which this value is stored.
  public var recordID: RecordID { Self.recordID(id) }
  /// The identity under which the value with an ID is stored.
  public static func recordID(_ id: ID) -> RecordID { RecordID(id.recordName, zone: zone) }
}

extension RecordStore {
  /// A typed value, as far as it is durable; nil if it does not live.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; `.typeMismatch` if the record's fields do not fit the type, `.missingField` if it
  ///   lacks one.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID
  ) throws -> Value? {
    let id = Value.recordID(id)
    return try CallSite.unnamed.run("reading record '\(id)'") {
      try record(id).map { try $0.value(as: type) }
    }
  }

  /// Those of the values that live, in the order of `ids`, all as of one moment, and the records that the type cannot read.
  /// One that does not live is left out.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`. A record whose fields do not fit the type, or which alone cannot be read,
  ///   is in `unreadable`.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, ids: [Value.ID]
  ) throws -> TypedValues<Value> {
    try view().fetch(type, ids: ids)
  }
}

extension Record {
  /// The record as a typed value, in the form that the type's `migrate` gives it.
  ///
  /// - Throws: `StrandlineError`: `.typeMismatch` if its fields do not fit the type, `.missingField` if it lacks one.
  public func value<Value: SyncRecord>(
    as type: Value.Type
  ) throws -> Value {
    try CallSite.unnamed.run("reading record '\(id)'") {
      try RecordDecoder.decode(type, from: self, PrototypeFields(type))
    }
  }
}

extension StoreView {
  /// A typed value as the view shows it; nil if it did not live.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; `.typeMismatch` if the record's fields do not fit the type,
  ///   `.missingField` if it lacks one.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID
  ) throws -> Value? {
    let id = Value.recordID(id)
    return try CallSite.unnamed.run("reading record '\(id)'") {
      try record(id).map { try $0.value(as: type) }
    }
  }

  /// Those of the values that lived, in the order of `ids`, and the records that the type cannot read. One that did not live
  /// is left out.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`. A record whose fields do not fit the type, or which alone cannot be read,
  ///   is in `unreadable`.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, ids: [Value.ID]
  ) throws -> TypedValues<Value> {
    try CallSite.unnamed.run("reading \(ids.count) records") {
      try TypedValues { body, report in
        try forEachRecord(ids.map { Value.recordID($0) }, body, unreadable: report)
      }
    }
  }
}

/// The values of a type: a collection of those that could be read, and the records that could not.
public struct TypedValues<Value: SyncRecord>: RandomAccessCollection, Sendable {
  private var readable: [Value] = []
  /// The records of this type that cannot be read, each with the reason. They stay as they are.
  public private(set) var unreadable: [UnreadableRecord] = []
  /// Where the next page of a `fetch` with a limit begins; nil if this is the last, and for values that were not fetched.
  public private(set) var cursor: QueryCursor?

  /// The first place.
  public var startIndex: Int { readable.startIndex }
  /// The place after the last.
  public var endIndex: Int { readable.endIndex }
  /// The value at a place.
  public subscript(place: Int) -> Value { readable[place] }

  /// Decodes the records that `forEachRecord` hands over, beside those that it cannot read.
  fileprivate init(
    _ forEachRecord: (
      _ body: (Record) throws -> Void, _ unreadable: (UnreadableRecord) throws -> Void
    ) throws -> Void
  ) throws {
    let prototype = PrototypeFields(Value.self)
    try forEachRecord {
      add($0, prototype)
    } _: {
      unreadable.append($0)
    }
  }

  /// A collection without values, for a view that has no answer yet.
  package init() {}

  /// Values to which those of a page are added.
  init(unreadable: [UnreadableRecord], cursor: QueryCursor?) { (self.unreadable, self.cursor) = (unreadable, cursor) }

  /// Decodes a record.
  mutating func add(_ record: Record, _ prototype: PrototypeFields) {
    do throws(StrandlineError) {
      readable.append(try RecordDecoder.decode(Value.self, from: record, prototype))
    } catch {
      unreadable.append(UnreadableRecord(id: record.id, record: record, error: error))
    }
  }

  /// Names the caller's line in the errors.
  mutating func locate(_ location: String) {
    for place in unreadable.indices { unreadable[place].error.location = location }
  }
}

extension TypedValues: CustomStringConvertible {
  /// How many values there are, and which records cannot be read.
  public var description: String {
    let names = unreadable.map { "\($0.id)" }.joined(separator: ", ")
    return "\(count) of type \(Value.recordType)" + (names.isEmpty ? "" : ", unreadable: \(names)")
  }
}

/// A record that cannot be read, while others can.
public struct UnreadableRecord: Sendable {
  /// Its identity.
  public let id: RecordID
  /// The record with the fields that it has, if a Swift type alone cannot read it; nil if its bytes cannot be read.
  public let record: Record?
  /// Why: `.typeMismatch` or `.missingField`, with the name of the field; `.damaged` or `.fromTheFuture`, with the place
  /// and the event.
  public internal(set) var error: StrandlineError
}

extension UnreadableRecord: Hashable {
  /// Two are equal if they are of one record and say the same.
  public static func == (left: Self, right: Self) -> Bool {
    left.id == right.id && left.record == right.record && left.error.code == right.error.code
      && left.error.message == right.error.message
  }

  /// Hashes what makes two of them equal.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(id)
    hasher.combine(error.code)
    hasher.combine(error.message)
  }
}

extension UnreadableRecord: CustomStringConvertible {
  /// The error, which names the record.
  public var description: String { error.description }
}
