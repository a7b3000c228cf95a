// A record: a type, named fields, and, kept apart, the server's metadata.

import StrandlineSystem

/// A creation or change of a record at the server: its user and its time.
public struct ServerTimestamp: Hashable, Sendable, Codable {
  /// Milliseconds since 1970 by the server's clock: `date` to the millisecond.
  package var milliseconds: Int64
  /// The user's record name.
  public var user: String
  /// The server's name for the device.
  public var device: String

  /// A time of the server, with its user and device.
  package init(milliseconds: Int64, user: String = "", device: String = "") {
    self.milliseconds = milliseconds
    self.user = user
    self.device = device
  }
}

/// The server's metadata of a record. Nil where the server did not send it.
public struct SystemFields: Hashable, Sendable, Codable {
  /// The server's version of the record: opaque, compared for equality only.
  public var changeTag: String?
  /// When it was created, by whom.
  public var created: ServerTimestamp?
  /// When it was last changed, by whom.
  public var modified: ServerTimestamp?
  /// Top-level keys of the server's JSON that this version does not know, kept byte for byte.
  public var unknown: [UInt8]
  /// What the transport keeps with this version, opaque, and gets back when the record is sent: natively a `CKRecord`'s
  /// archived system fields. Empty on the web.
  public var archive: [UInt8]

  /// Makes the metadata.
  public init(
    changeTag: String? = nil, created: ServerTimestamp? = nil, modified: ServerTimestamp? = nil, unknown: [UInt8] = [],
    archive: [UInt8] = []
  ) {
    self.changeTag = changeTag
    self.created = created
    self.modified = modified
    self.unknown = unknown
    self.archive = archive
  }

  /// Equal to the byte, the tag too.
  public static func == (left: SystemFields, right: SystemFields) -> Bool {
    left.changeTag.equalsUTF8(right.changeTag) && left.created == right.created && left.modified == right.modified
      && left.unknown == right.unknown && left.archive == right.archive
  }

  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(changeTag.map { CloudName($0) })
    hasher.combine(created)
    hasher.combine(modified)
    hasher.combine(unknown)
    hasher.combine(archive)
  }
}

/// A record: a value; changing it changes nothing until it is saved in a `write`.
public struct Record: Hashable, Sendable {
  /// The identity.
  public let id: RecordID
  /// The type's name, as in the CloudKit schema.
  public var type: String
  /// The name of this record's parent, a record of the same zone; CloudKit shares a record with its children.
  public var parent: String?
  /// The fields that have a value. A field that is missing here is null.
  ///
  /// Those of a record that was read are decoded when they are first asked for here, all of them; the subscript decodes the
  /// one that it is asked for.
  public var fields: [String: FieldValue] {
    get { undecoded?.values ?? knownFields }
    _modify {
      decode()
      yield &knownFields
    }
  }
  private var knownFields: [String: FieldValue]
  /// The fields of a record that was read, until they are changed; then `knownFields` and `knownNulls` are empty.
  private var undecoded: (any UndecodedFields)?
  /// The server's metadata of the record; nil before it was first uploaded or fetched.
  public internal(set) var system: SystemFields? {
    get { systemBox?.fields }
    set { systemBox = newValue.map { SystemBox($0) } }
  }
  private var systemBox: SystemBox?
  /// Fields that were written as null, while any other field without a value was never written. A typed read tells them
  /// apart: null is nil, and absent is the prototype's value. A name that has a value in `fields` has no meaning here.
  ///
  /// Two records are equal although these differ: the server does not tell them apart either.
  package var nulls: Set<String> {
    get { undecoded?.nulls ?? knownNulls }
    _modify {
      decode()
      yield &knownNulls
    }
  }
  private var knownNulls: Set<String> = []

  /// A record that is not stored yet.
  public init(type: String, id: RecordID, fields: [String: FieldValue] = [:], parent: String? = nil) {
    self.id = id
    self.type = type
    self.knownFields = fields
    self.parent = parent
  }

  /// A record that was read.
  init(type: String, id: RecordID, undecoded: any UndecodedFields, system: SystemFields?) {
    self.id = id
    self.type = type
    self.parent = undecoded.parent
    self.knownFields = [:]
    self.undecoded = undecoded
    self.systemBox = system.map { SystemBox($0) }
  }

  /// Hands the fields that have a value to `body`, in the order of the UTF-8 of their names, without decoding them.
  ///
  /// - Returns: false for a record that was not read from a store, or was changed since: then `fields` has them.
  package func forEachFieldInPlace(_ body: (FieldInPlace) -> Void) -> Bool {
    guard let undecoded else { return false }
    undecoded.forEachInPlace(body)
    return true
  }

  /// About how many bytes of memory the fields of a record take that was read from a store; 0 for another one.
  package var undecodedByteCount: Int { undecoded?.byteCount ?? 0 }

  private mutating func decode() {
    guard let undecoded else { return }
    (knownFields, knownNulls) = (undecoded.values, undecoded.nulls)
    self.undecoded = nil
  }

  /// Whether neither a field nor the parent was changed since `other`, a copy of this record as it was read.
  package func isUnchanged(since other: Record) -> Bool {
    guard let undecoded, undecoded === other.undecoded else { return self == other }
    return parent.equalsUTF8(other.parent)
  }

  /// The lives that the version continues from which the record was read; nil if it was not read from a store.
  package var births: Set<Birth>? { undecoded?.births }

  /// A field's value, nil within for one that was written as null; nil for one that was never written.
  package func find(_ field: String) -> FieldValue?? {
    if let undecoded { return undecoded.find(field) }
    if let value = knownFields[field] { return .some(value) }
    return knownNulls.contains(field) ? .some(nil) : nil
  }

  package init(type: String, id: RecordID, fields: [String: FieldValue], parent: String?, system: SystemFields?) {
    self.init(type: type, id: id, fields: fields, parent: parent)
    self.system = system
  }

  /// Equal in all that can be read of them.
  public static func == (left: Record, right: Record) -> Bool {
    left.id == right.id && left.type == right.type && left.parent.equalsUTF8(right.parent)
      && left.fields == right.fields && left.system == right.system
  }

  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(id)
    hasher.combine(type)
    hasher.combine(parent.map { CloudName($0) })
    hasher.combine(fields)
    hasher.combine(system)
  }

  /// A field's value; nil for null. Setting nil clears the field.
  public subscript(field: String) -> FieldValue? {
    get {
      if let undecoded { return undecoded.find(field) ?? nil }
      return knownFields[field]
    }
    set { fields[field] = newValue }
  }
}

/// Metadata apart from its record: half of the words that a copy of the record would copy, and most records have none.
private final class SystemBox: Sendable {
  let fields: SystemFields

  init(_ fields: SystemFields) { self.fields = fields }
}

/// The fields of a record in a form from which they are decoded when a caller asks for them.
protocol UndecodedFields: AnyObject, Sendable {
  var parent: String? { get }
  /// The fields that have a value, without the parent.
  var values: [String: FieldValue] { get }
  /// Those that were written as null.
  var nulls: Set<String> { get }
  /// One of them: nil within for one that was written as null, nil for one that was never written.
  func find(_ field: String) -> FieldValue??
  /// Hands those that have a value to `body`, in the order of the UTF-8 of their names.
  func forEachInPlace(_ body: (FieldInPlace) -> Void)
  /// About how many bytes of memory they take.
  var byteCount: Int { get }
  /// The lives that the version with these fields continues; nil if they are in no event.
  var births: Set<Birth>? { get }
}

/// A field of a record that was read, in the bytes of the event that holds it.
package struct FieldInPlace {
  package let bytes: [UInt8]
  /// Where its name is, in UTF-8.
  package let name: Range<Int>
  package let value: ValueInPlace
}

/// A value: where it lies, if it is text. The others are decoded, which costs no memory for most of them.
package enum ValueInPlace {
  /// A string: where it is, in UTF-8.
  case text(Range<Int>)
  /// A list of strings.
  case texts([Range<Int>])
  case other(FieldValue)
}
