// What a type declares of its own records, by key paths: a typo is an error of the compiler, and a property that is no field one of
// `open`. It becomes the declarations by names of `StoreOptions`, of which the store knows alone.

import StrandlineSystem

/// Something that a `SyncRecord` declares of its records: an index, what its records hang below, how a field merges.
///
/// ```swift
/// struct Song: SyncRecord {
///   static var schema: [SchemaRule<Song>] {
///     [
///       .merge(\.tags, .union), .merge(\.plays, .counter),
///       .parent(\.album, whenDeleted: .delete),
///       .index(\.title),
///     ]
///   }
///   var id = RecordName.random()
///   var title: String
///   var plays = 0
///   var tags: Set<String> = []
///   var album: TypedReference<Album>
/// }
/// ```
///
/// `RecordStore.open(at:types:syncing:)` is told which types there are.
public struct SchemaRule<Value: SyncRecord>: Sendable, CustomStringConvertible {
  /// What the rule is about.
  public let description: String
  let add: @Sendable (inout TypeDeclarations) throws(StrandlineError) -> Void

  private init(
    _ description: String, _ add: @escaping @Sendable (inout TypeDeclarations) throws(StrandlineError) -> Void
  ) {
    (self.description, self.add) = (description, add)
  }

  /// What becomes of a property that was changed here and at the server. One without a rule keeps the change that was made last.
  public static func merge<Property>(
    _ property: any KeyPath<Value, Property> & Sendable, _ rule: FieldRule
  ) -> SchemaRule {
    SchemaRule("merge \(property)") { (declared) throws(StrandlineError) in
      try declared.set(\.fields[try field(property)], rule)
    }
  }

  /// An index on a property: see ``RecordIndex``.
  public static func index<Property>(
    _ property: any KeyPath<Value, Property> & Sendable, ascending: Bool = true
  ) -> SchemaRule {
    SchemaRule("index \(property)") { (declared) throws(StrandlineError) in
      try declared.add(RecordIndex(Value.recordType, try field(property), ascending: ascending))
    }
  }

  /// What the records hang below: a property that is a ``Parent``, a reference, or a text with the name of a record; and what becomes
  /// of a record whose parent was deleted.
  public static func parent<Property>(
    _ property: any KeyPath<Value, Property> & Sendable, whenDeleted rule: ChildRule = .keep
  ) -> SchemaRule {
    SchemaRule("parent \(property)") { (declared) throws(StrandlineError) in
      let field = Property.self is any ParentProperty.Type ? nil : try field(property)
      try declared.set(\.schema.parent, ParentSchema(field, whenDeleted: rule))
    }
  }

  /// In which version this app writes the records of the type.
  public static func version(_ version: SchemaVersion) -> SchemaRule {
    SchemaRule("version") { (declared) throws(StrandlineError) in try declared.set(\.schema.version, version) }
  }

  /// What becomes of a whole record that was changed here and at the server; `.join` without this rule.
  public static func record(_ rule: RecordRule) -> SchemaRule {
    SchemaRule("record") { (declared) throws(StrandlineError) in try declared.set(\.record, rule) }
  }

  /// What becomes of an edit of a record that was deleted on another device; `.deletionWins` without this rule.
  public static func deletion(_ rule: DeletionRule) -> SchemaRule {
    SchemaRule("deletion") { (declared) throws(StrandlineError) in try declared.set(\.deletion, rule) }
  }

  private static func field<Property>(
    _ property: any KeyPath<Value, Property> & Sendable
  ) throws(StrandlineError) -> String {
    guard let field = try PropertyFields.field(of: property, property), !field.isPart, !field.name.equalsUTF8("id")
    else {
      throw StrandlineError(
        .invalidValue,
        "it is no field of the record, but its name, its parent, its metadata, or computed; name a stored property")
    }
    return field.name
  }
}

/// A property that is the record's parent, or nil.
private protocol ParentProperty {}
extension Parent: ParentProperty {}
extension Optional: ParentProperty where Wrapped: ParentProperty {}

/// What a type has declared, by names.
struct TypeDeclarations {
  let recordType: String
  var fields: [String: FieldRule] = [:]
  var record: RecordRule?
  var deletion: DeletionRule?
  var schema = TypeSchema()
  var indexes: [RecordIndex] = []

  /// - Throws: `.invalidValue` for a rule about a property that is no field, or two about the same.
  init<Value: SyncRecord>(_ type: Value.Type) throws(StrandlineError) {
    recordType = Value.recordType
    for rule in Value.schema {
      do throws(StrandlineError) { try rule.add(&self) } catch {
        throw StrandlineError(error.code, "the schema of \(Value.self), '\(rule)': \(error.message)")
      }
    }
  }

  /// Sets what no rule has set before.
  mutating func set<Part>(_ part: WritableKeyPath<Self, Part?>, _ rule: Part) throws(StrandlineError) {
    guard self[keyPath: part] == nil else { throw Self.isTwice }
    self[keyPath: part] = rule
  }

  mutating func add(_ index: RecordIndex) throws(StrandlineError) {
    guard !indexes.contains(index) else { throw Self.isTwice }
    indexes.append(index)
  }

  private static var isTwice: StrandlineError {
    StrandlineError(.invalidValue, "another rule is about the same; leave out one of them")
  }

  /// The rules for conflicts; where there is none, the store's.
  func rules(_ standard: TypeRules) -> TypeRules {
    var rules = standard
    if let record { rules.record = record }
    if let deletion { rules.deletion = deletion }
    rules.fields.merge(fields) { $1 }
    return rules
  }
}

extension StoreOptions {
  /// The options with what the types declare of their records.
  ///
  /// - Throws: `.invalidValue` for a type that is declared twice, or a rule that a typo keeps from being found: of a record type that
  ///   none of the types has, or of a field that its type does not.
  func declaring(_ types: [any SyncRecord.Type]) throws(StrandlineError) -> StoreOptions {
    guard !types.isEmpty else { return self }
    var options = self
    var fields: [String: [String]?] = [:]
    for type in types {
      let declared = try TypeDeclarations(type)
      let name = declared.recordType
      guard fields.updateValue(PropertyFields.names(of: type), forKey: name) == nil else {
        throw StrandlineError(
          .invalidValue, "two of the types have the record type '\(name)': give one of them another name")
      }
      if !type.hasSchema { continue }
      guard !conflicts.names.contains(name), schema[name] == TypeSchema() else {
        throw StrandlineError(
          .invalidValue, "'\(name)' is declared by its type and by the options of the store: leave out one of them")
      }
      (options.conflicts[name], options.schema[name]) = (declared.rules(conflicts.standard), declared.schema)
      if !declared.indexes.isEmpty {
        options.indexes = (options.indexes ?? []) + declared.indexes.filter { options.indexes?.contains($0) != true }
      }
    }
    for use in options.uses {
      guard let known = fields[use.type] else {
        throw StrandlineError(
          .invalidValue,
          "the options have \(use.what) of record type '\(use.type)', and the types are \(Self.list(Array(fields.keys)))"
        )
      }
      guard let field = use.field, let known, !known.contains(field) else { continue }
      throw StrandlineError(
        .invalidValue,
        "the options have \(use.what) of field '\(field)' of '\(use.type)', whose fields are \(Self.list(known))")
    }
    return options
  }

  private static func list(_ names: [String]) -> String {
    names.sorted { $0.precedesByUTF8($1) }.map { "'\($0)'" }.joined(separator: ", ")
  }

  /// Which types and fields the options name.
  private var uses: [(what: String, type: String, field: String?)] {
    conflicts.names.flatMap { type in
      [("a rule for conflicts", type, nil)]
        + conflicts[type].fields.keys.map { ("a rule for conflicts", type, Optional($0)) }
    }
      + schema.names.map { ("a schema", $0, schema[$0].parent?.field) }
      + (indexes ?? []).map { ("an index", $0.recordType, $0.fields.first?.field) }
  }
}

extension SyncRecord {
  fileprivate static var hasSchema: Bool { !schema.isEmpty }
}
