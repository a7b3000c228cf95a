// Properties of a typed record that point at another typed record: its ID with its type, so that the compiler knows what
// is at the other end.

/// A pointer to a record of a Swift type: the property of a `SyncRecord`, stored as a `Reference`.
///
/// ```swift
/// struct Shell: SyncRecord {
///   var id = RecordName.random()
///   var beach: TypedReference<Beach>
///   var finder: TypedReference<Person>?
/// }
///
/// let beach = try store.fetch(Beach.self, id: shell.beach.id)
/// ```
public struct TypedReference<Target: SyncRecord>: Hashable, Sendable, Codable {
  /// The target's ID.
  public var id: Target.ID
  /// What happens to the pointing record when the target is deleted.
  public var action: Reference.Action

  /// Points at a value's record.
  public init(_ target: Target, action: Reference.Action = .none) { self.init(id: target.id, action: action) }

  /// Points at the record with an ID.
  public init(id: Target.ID, action: Reference.Action = .none) {
    self.id = id
    self.action = action
  }

  /// Equal if it names the same record, to the byte, with the same action.
  public static func == (left: TypedReference, right: TypedReference) -> Bool {
    CloudName(left.id.recordName) == CloudName(right.id.recordName) && left.action == right.action
  }

  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(CloudName(id.recordName))
    hasher.combine(action)
  }

  private enum Key: String, CodingKey { case recordName, action }

  /// Reads the target's name and the action.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    let name = try container.decode(String.self, forKey: .recordName)
    guard let id = Target.ID(recordName: name) else {
      throw DecodingError.dataCorruptedError(
        forKey: .recordName, in: container, debugDescription: "'\(name.prefix(80))' names no \(Target.recordType)")
    }
    self.init(id: id, action: try container.decode(Reference.Action.self, forKey: .action))
  }

  /// Writes the target's name and the action.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(id.recordName, forKey: .recordName)
    try container.encode(action, forKey: .action)
  }
}

extension TypedReference: CustomStringConvertible {
  /// The target's type and identity, and the action if there is one.
  public var description: String {
    "\(Target.recordType) \(Target.recordID(id))" + (action == .none ? "" : " (\(action))")
  }
}

/// The parent of a record, as a property of a `SyncRecord`: CloudKit shares a record with its children.
///
/// A type has one such property at most. It is not a field: it is the record's `parent`.
///
/// ```swift
/// struct Photo: SyncRecord {
///   var id: UUID
///   var album: Parent<Album>?
/// }
/// ```
public struct Parent<Target: SyncRecord>: Hashable, Sendable, Codable {
  /// The parent's ID.
  public var id: Target.ID

  /// Names a value's record as the parent.
  public init(_ target: Target) { self.init(id: target.id) }

  /// Names the record with an ID as the parent.
  public init(id: Target.ID) { self.id = id }

  /// Equal if it names the same record, to the byte.
  public static func == (left: Parent, right: Parent) -> Bool {
    CloudName(left.id.recordName) == CloudName(right.id.recordName)
  }

  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) { hasher.combine(CloudName(id.recordName)) }

  /// Reads the parent's name.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let name = try container.decode(String.self)
    guard let id = Target.ID(recordName: name) else {
      throw DecodingError.dataCorruptedError(
        in: container, debugDescription: "'\(name.prefix(80))' names no \(Target.recordType)")
    }
    self.init(id: id)
  }

  /// Writes the parent's name.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(id.recordName)
  }
}

extension Parent: CustomStringConvertible {
  /// The parent's type and identity.
  public var description: String { "\(Target.recordType) \(Target.recordID(id))" }
}
