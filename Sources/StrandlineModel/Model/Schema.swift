// What an app declares of its record types, beside the rules by which conflicts end: what a record hangs below, and in which
// version of its type it was written.
//
// Nothing has to be declared. A type without a declaration is shown as it comes.

import StrandlineSystem

/// What an app declares of its record types.
///
/// All devices of an app should declare the same.
public struct Schema: Hashable, Sendable {
  private var types: [String: TypeSchema] = [:]

  /// Declares nothing.
  public init() {}

  /// What is declared of a record type.
  public subscript(type: String) -> TypeSchema {
    get { types[type] ?? TypeSchema() }
    set { types[type] = newValue == TypeSchema() ? nil : newValue }
  }

  /// The types that are declared, in the order of their UTF-8.
  package var names: [String] { types.keys.sorted { $0.precedesByUTF8($1) } }

  /// What in it cannot be; nil if nothing.
  package var defect: String? {
    for name in names {
      if let field = types[name]?.version?.field, let defect = Names.defect(schemaName: field) {
        return "the schema of '\(name)': '\(field)' cannot be the field of a version: \(defect)"
      }
      guard let parent = types[name]?.parent else { continue }
      if let field = parent.field, let defect = Names.defect(schemaName: field) {
        return "the schema of '\(name)': '\(field)' cannot be the field of a parent: \(defect)"
      }
      if case .move(let target) = parent.whenDeleted, let defect = Names.defect(recordName: target) {
        return "the schema of '\(name)': '\(target)' cannot be a record's name: \(defect)"
      }
    }
    return nil
  }

  /// Whether a deletion may have to find children.
  package var hasChildRules: Bool { types.values.contains { $0.parent.map { $0.whenDeleted != .keep } ?? false } }

  /// The types whose records do not stay as they are when their parent is deleted.
  package var childRules: [(type: String, parent: ParentSchema)] {
    names.compactMap { name in
      guard let parent = types[name]?.parent, parent.whenDeleted != .keep else { return nil }
      return (name, parent)
    }
  }
}

/// What an app declares of the records of one type.
public struct TypeSchema: Hashable, Sendable {
  /// What its records hang below; nil if they hang below nothing.
  public var parent: ParentSchema?
  /// In which version this app writes its records; nil if the type has no versions.
  public var version: SchemaVersion?

  /// Declares nothing.
  public init() {}
}

/// In which version an app writes the records of a type, and what it does with later ones.
///
/// The version stands in a field of the record, which the store keeps: a save that changes a record raises it to the app's
/// version, and nothing lowers it, whatever is saved or merged.
public struct SchemaVersion: Hashable, Sendable {
  /// The version that this app writes.
  public var number: Int64
  /// The field that holds it, an INT64.
  public var field: String
  /// What becomes of a record that a later version of the app wrote.
  public var whenNewer: NewerVersionRule

  /// This app writes that version.
  public init(_ number: Int64, field: String = "schemaVersion", whenNewer: NewerVersionRule = .preserve) {
    self.number = number
    self.field = field
    self.whenNewer = whenNewer
  }
}

/// What becomes of a record at the server that a later version of the app wrote.
public enum NewerVersionRule: String, Hashable, Sendable {
  /// It is applied as any other. What this version does not know of it is kept through every edit.
  case preserve
  /// Nothing is fetched and sent any more: a sync throws `.fromTheFuture` until the app is a later one.
  case haltForUpgrade
  /// It is not applied, and the store shows what it had. The version is kept, and applied when an app that knows it opens the
  /// store. `RecordStore.heldRecords()` has it with the code `.newerSchema`; a change of this store to the record is held too.
  case reject
}

/// That the records of a type hang below others of their zone.
///
/// A record that the server lists before its parent waits for it: it appears in the transaction in which the parent does, at
/// the latest with the last page of the zone's changes. Until then the store shows it as it was before. A record with
/// changes that the server has not settled never waits.
public struct ParentSchema: Hashable, Sendable {
  /// The field that names the parent: a reference, or a text that is the name of a record. Nil for the record's `parent`.
  public var field: String?
  /// What becomes of a record whose parent was deleted, here or on another device.
  public var whenDeleted: ChildRule

  /// The parent is the record's `parent`, or what a field names.
  public init(_ field: String? = nil, whenDeleted: ChildRule = .keep) {
    self.field = field
    self.whenDeleted = whenDeleted
  }
}

/// What becomes of a record whose parent is deleted.
///
/// `WriteTransaction.delete(_:)` does it in the same transaction, to the children and to what hangs below those that it deletes. Of
/// a deletion at the server, every device that learns of it does it as a change of its own, before it uploads anything: so the
/// server keeps no record below one that is gone.
public enum ChildRule: Hashable, Sendable {
  /// It stays as it is.
  case keep
  /// It is deleted too.
  case delete
  /// It hangs below nothing: the field becomes nil.
  case setNil
  /// It hangs below the record of this name, in its own zone; below nothing if that was deleted too.
  case move(to: String)
}

extension SchemaVersion {
  /// The version that a field's value names; 0 if it names none.
  package static func number(_ value: FieldValue?) -> Int64 {
    if case .int64(let number)? = value { number } else { 0 }
  }

  /// Which of two values stays where a record is saved.
  package func kept(_ new: FieldValue?, _ old: FieldValue?) -> FieldValue? {
    Self.number(new) < Self.number(old) ? old : new
  }

  /// What the value becomes with a change of the record; nil if it stays.
  package func raised(_ value: FieldValue?) -> FieldValue? { Self.number(value) < number ? .int64(number) : nil }
}

extension ParentSchema {
  /// The parent's name by the value of the field that names it; nil if that names no other record of the zone.
  package func parentName(_ value: FieldValue?, of id: RecordID) -> String? {
    let name: String
    switch value {
    case .reference(let reference)? where reference.zone == nil || reference.zone == id.zone: name = reference.name
    case .string(let text)?: name = text
    default: return nil
    }
    return name.isEmpty || name.equalsUTF8(id.name) ? nil : name
  }

  /// The parent's name in a record.
  package func parentName(_ record: Record) -> String? {
    guard let field else { return parentName(record.parent.map { .reference(Reference($0)) }, of: record.id) }
    return parentName(record[field], of: record.id)
  }

  /// Puts a record below another one, or below none. The field keeps its kind.
  package func put(_ record: inout Record, below name: String?) {
    guard let field else {
      record.parent = name
      return
    }
    guard let name else { return record[field] = nil }
    if case .reference(let reference)? = record[field] {
      record[field] = .reference(Reference(name, action: reference.action))
    } else {
      record[field] = .string(name)
    }
  }
}

extension Schema: CustomStringConvertible {
  /// The types that are declared.
  public var description: String { names.isEmpty ? "no type is declared" : "declares \(names.joined(separator: ", "))" }
}

extension TypeSchema: CustomStringConvertible {
  /// What is declared.
  public var description: String {
    let known = [parent.map { "\($0)" }, version.map { "\($0)" }].compactMap { $0 }
    return known.isEmpty ? "nothing is declared" : known.joined(separator: "; ")
  }
}

extension SchemaVersion: CustomStringConvertible {
  /// The number, its field, and the rule.
  public var description: String { "version \(number) in \(field), later ones: \(whenNewer.rawValue)" }
}

extension ParentSchema: CustomStringConvertible {
  /// The field, and the rule.
  public var description: String { "parent: \(field ?? "the record's"), when it is deleted: \(whenDeleted)" }
}

extension ChildRule: CustomStringConvertible {
  /// The rule's name.
  public var description: String {
    switch self {
    case .keep: "keep"
    case .delete: "delete"
    case .setNil: "setNil"
    case .move(let name): "move to '\(name)'"
    }
  }
}
