// Typed values in a transaction: read, saved, edited, deleted.
//
// There are two kinds of saves. A value that says nothing of what it was is written whole. One that does is an edit: what was
// changed in it is applied to what the store has by now. An update is an edit whose value was read in the same moment.

import StrandlineSystem

extension WriteTransaction {
  /// Saves a typed value: all its fields, over whatever the record holds by now, unless the value has a ``RecordVersion``.
  ///
  /// A value that was read a while ago, without a version, overwrites what another screen or another device has changed
  /// since. Edit with `update` therefore, give the type a version, or say `save(_:from:)`; a plain save is for new values.
  ///
  /// A value with a version changes those fields that were changed in it since it was read, and leaves all others as they are
  /// now. A field that was changed in the store too becomes what `ConflictRules` say, and where they say nothing the value
  /// that is saved, which is the later write; a resolver is not asked. `serverWins` speaks of what the server has: over what
  /// this store has written and not sent yet, the save is the later write. What a rule does not take is an edit that has lost a
  /// conflict: what this returns does not have it, `RecordStore.conflicts(of:)` has both sides, and the receipt's outcome says
  /// which fields lost.
  ///
  /// To save a value more than once, write `save(&value)`, which gives the value its new version. If the value stays the one
  /// that was saved, the next save of it has the old version, and the store can tell only by its fields whether it was made
  /// from what was read or from what was saved: it takes the state that differs in the fewest fields, and of equals the last.
  /// Two histories force that: a counter that was read once, and raised and saved twice, has to count two, so the second save is
  /// from the first; and a list's copy of the value, saved after the detail view has saved its own, must not undo the other's
  /// title, so it is from what was read.
  /// Where one value goes on, that is wrong if a field is put back to what it was and another one is changed in the same step:
  /// the field that was put back may stay as it was saved. Where two copies go on, it is wrong if both were changed alike: if
  /// each raises a counter from 1 to 2, one is lost.
  ///
  /// Fields that the type does not know survive. What `SyncRecord.migrate` makes and removes is stored too.
  ///
  /// - Returns: the value as the transaction has it now, with its new version. Without a version it is the value that was given.
  /// - Throws: `StrandlineError` as `save(_:)` of a record; `.typeMismatch` if a property cannot be stored. For a value with a
  ///   version also as `fetch(_:id:)`; `.recordWasDeleted` if the record was deleted since, also if it was created again, which is
  ///   another life (not where the type's edits win over deletions: `DeletionRule.editRevives`); `.noSuchRecord` if this store
  ///   has no such record, and `create` makes one; `.misuse` if the version is that of a transaction that failed. A value that
  ///   was given another ID than the one that was read is saved as one without a version.
  @discardableResult
  public mutating func save<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> Value {
    try CallSite(fileID, line).run("saving record '\(value.recordID)'") { try save(value, mayGoOn: true) }
  }

  /// Saves a typed value, and makes it the value as the transaction has it now, with its new version:
  ///
  /// ```swift
  /// try await store.write { try $0.save(&note) }
  /// ```
  ///
  /// The next save of it changes what was changed in it since this one, and of a copy from before what was changed in the copy:
  /// nothing has to be told by the fields. If the transaction fails, the next save changes what this one should have changed
  /// too. All else is as in a save of a value that stays as it is.
  ///
  /// - Throws: as that; then the value is as it was.
  public mutating func save<Value: SyncRecord>(
    _ value: inout Value, fileID: String = #fileID, line: Int = #line
  ) throws {
    let given = value
    value = try CallSite(fileID, line).run("saving record '\(given.recordID)'") { try save(given, mayGoOn: false) }
  }

  /// Saves the fields in which a typed value differs from an older one, for a type without a ``RecordVersion``; all else is as in a save of
  /// a value with one.
  ///
  /// The `old` of the next save is the `value` of this one, or both are what this returned: a counter that was raised from 5 to
  /// 6 and saved, and is raised to 7, is saved from 6. From 5 it would count two more.
  ///
  /// - Parameters:
  ///   - value: the value to save.
  ///   - old: the value that it was made from, as it was read or saved last.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Returns: the value as the transaction has it now.
  /// - Throws: `StrandlineError` as `save(_:)` of a value with a version; `.misuse` if the values have different IDs. That the
  ///   record was deleted and created again is known only of a type with a version.
  @discardableResult
  public mutating func save<Value: SyncRecord>(
    _ value: Value, from old: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> Value {
    try CallSite(fileID, line).run("saving record '\(value.recordID)'") {
      try requireSameID(value, old.recordID, "save")
      let (encoded, before) = try (RecordEncoder.encode(value), encode(old))
      let found = try requireLiving(value.recordID)
      let rules = core.declared.conflicts[Value.recordType]
      let held = before.version ?? nil
      if let held { try requireSameLife(found.record, held, rules) }
      return try edit(
        value, encoded.byName, from: before.byName, found, rules, held, mayGoOn: true, PrototypeFields(Value.self))
    }
  }

  /// Edits a typed value: reads it as this transaction sees it, has the closure change it, and writes the fields that the
  /// closure changed.
  ///
  /// ```swift
  /// try await store.write { try $0.update(Note.self, id: id) { $0.title = "High tide" } }
  /// ```
  ///
  /// An optional property that becomes nil writes a null. If the closure changes nothing, nothing is written. What
  /// `SyncRecord.migrate` makes and removes is stored with what was changed.
  ///
  /// - Returns: the value as the transaction has it now.
  /// - Throws: what the closure throws; then this call has changed nothing. `StrandlineError`: `.recordWasDeleted` and
  ///   `.noSuchRecord` if the record does not live, because an edit must not be lost in silence; `.misuse` if the closure
  ///   gives the value another ID; as `fetch(_:id:)` and `save(_:)`.
  @discardableResult
  public mutating func update<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID, fileID: String = #fileID, line: Int = #line,
    _ body: (inout Value) throws -> Void
  ) throws -> Value {
    let recordID = Value.recordID(id)
    return try CallSite(fileID, line).run("updating record '\(recordID)'") {
      let found = try requireLiving(recordID)
      let prototype = PrototypeFields(type)
      var value = try RecordDecoder.decode(type, from: found.record, prototype)
      let before = try RecordEncoder.encode(value).byName
      try body(&value)
      try requireSameID(value, recordID, "update")
      return try edit(
        value, RecordEncoder.encode(value).byName, from: before, found, nil, nil, mayGoOn: false, prototype)
    }
  }

  /// Begins a new life under a typed value's name, with all its fields.
  ///
  /// - Returns: the value, with its new version if the type has one.
  /// - Throws: `StrandlineError` as `create(_:)` of a record; `.typeMismatch` if a property cannot be stored.
  @discardableResult
  public mutating func create<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> Value {
    try CallSite(fileID, line).run("creating record '\(value.recordID)'") {
      try put(value, encode(value), creating: true)
    }
  }

  /// Saves a typed value as what a record begins with, if there is none under its name. All else is as in `saveDefault(_:)` of a
  /// record: the default never takes the place of what a user has saved, on any device, whenever the devices sync.
  ///
  /// A property that is nil is left out.
  ///
  /// - Returns: whether it was saved.
  /// - Throws: `StrandlineError` as `saveDefault(_:)` of a record; `.typeMismatch` if a property cannot be stored.
  @discardableResult
  public mutating func saveDefault<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> Bool {
    let id = value.recordID
    return try CallSite(fileID, line).run("saving the default record '\(id)'") {
      guard try isFree(id, for: Value.recordType) else { return false }
      let encoded = try RecordEncoder.encode(value)
      // Only a type with a prototype reads an absent field and a null as two things.
      let fields = Value.prototype == nil ? encoded.fields.filter { $0.value != nil } : encoded.fields
      try putNew(
        id, Value.recordType, fields, parent: encoded.parent ?? nil, creating: false, asDefault: true)
      return true
    }
  }

  /// Deletes a typed value's record, and applies to the records below it the rules that their types declare.
  ///
  /// - Returns: the records that were deleted, as `delete(_:)` of a record.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(
    _ value: Value, fileID: String = #fileID, line: Int = #line
  ) throws -> [RecordID] { try delete(value.recordID, fileID: fileID, line: line) }

  /// Deletes a record by its type and name, and applies to the records below it the rules that their types declare.
  ///
  /// - Returns: the records that were deleted, as `delete(_:)` of a record.
  @discardableResult
  public mutating func delete<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID, fileID: String = #fileID, line: Int = #line
  ) throws -> [RecordID] {
    try delete(Value.recordID(id), fileID: fileID, line: line)
  }

  /// A typed value as this transaction sees it; nil if it does not live.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; `.typeMismatch` if the record's fields do not fit the type, `.missingField` if it
  ///   lacks one.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID, fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    let id = Value.recordID(id)
    return try CallSite(fileID, line).run("reading record '\(id)'") {
      guard let found = try findPlaced(id) else { return nil }
      let (value, held) = try RecordDecoder.decodeHolding(type, from: found.record, PrototypeFields(type))
      if let held { core.versions.note(held, HeldVersion.readNumber, at: found.lsn) }
      return value
    }
  }

  // MARK: How

  /// A value's fields and version.
  private func encode<Value: SyncRecord>(_ value: Value) throws -> EncodedRecord {
    var encoded = try RecordEncoder.encode(value)
    // It was given another ID: it is a new one.
    if let held = encoded.version ?? nil, held.id != account.canonical(value.recordID) { encoded.version = .some(nil) }
    return encoded
  }

  /// Saves a value: what was changed in it, or all of one that was not read.
  ///
  /// - Parameter mayGoOn: whether the app may go on with this value, and not with the one that this returns.
  private mutating func save<Value: SyncRecord>(_ value: Value, mayGoOn: Bool) throws -> Value {
    let encoded = try encode(value)
    guard case .some(.some(let held)) = encoded.version else { return try put(value, encoded, creating: false) }
    let prototype = PrototypeFields(Value.self)
    let states = try held.states(of: Value.self, prototype)
    // A transaction that failed had made it: it is new.
    if states.isEmpty, try find(value.recordID) == nil { return try put(value, encoded, creating: false) }
    let found = try requireLiving(value.recordID)
    let rules = core.declared.conflicts[Value.recordType]
    try requireSameLife(found.record, held, rules)
    let fields = encoded.byName
    guard let origin = HeldVersion.origin(of: fields, in: states) else {
      throw StrandlineError(
        .misuse,
        "record '\(value.recordID)': the value was read in a transaction that failed, so what was changed in it is not "
          + "known; read it again")
    }
    return try edit(value, fields, from: origin, found, rules, held, mayGoOn: mayGoOn, prototype)
  }

  /// Writes all fields of a value.
  private mutating func put<Value: SyncRecord>(
    _ value: Value, _ encoded: EncodedRecord, creating: Bool
  ) throws -> Value {
    let id = value.recordID
    // Only a type with a prototype reads an absent field and a null as two things.
    let keepsNulls = encoded.fields.contains { $0.value == nil } && Value.prototype != nil
    if let current = try find(id) {
      try put(merge(encoded, keepsNulls: keepsNulls, into: current, Value.self), creating: creating)
    } else {
      try putNew(
        id, Value.recordType, keepsNulls ? encoded.fields : encoded.fields.filter { $0.value != nil },
        parent: encoded.parent ?? nil, creating: creating)
    }
    if encoded.version == nil { return value }
    let step = HeldVersion.Step(start: core.transactionStart, origin: nil)
    return try shown(asStored: id, Value.self, PrototypeFields(Value.self), [step])
  }

  /// The record that lives, with a value's fields in it.
  private func merge<Value: SyncRecord>(
    _ encoded: EncodedRecord, keepsNulls: Bool, into record: Record, _ type: Value.Type
  ) throws -> Record {
    try requireType(Value.recordType, record)
    var record = record
    Value.migrate(&record)
    for field in encoded.fields { record[field.name] = field.value }
    if keepsNulls { record.nulls.formUnion(encoded.fields.lazy.filter { $0.value == nil }.map(\.name)) }
    if case .some(let parent) = encoded.parent { record.parent = parent }
    return record
  }

  /// Writes those fields of a value that differ from what they were.
  ///
  /// - Parameters:
  ///   - fields: those of the value.
  ///   - origin: what they were.
  ///   - found: the record that lives.
  ///   - rules: what becomes of a field that has changed in the store too; nil: what the value has.
  ///   - held: the version that the value was read from.
  ///   - mayGoOn: whether the next save may be of this value, with the same version.
  private mutating func edit<Value: SyncRecord>(
    _ value: Value, _ fields: [String: FieldValue?], from origin: [String: FieldValue?],
    _ found: (record: Record, lsn: LSN), _ rules: TypeRules?, _ held: HeldVersion?, mayGoOn: Bool,
    _ prototype: PrototypeFields
  ) throws -> Value {
    let id = found.record.id
    try requireType(Value.recordType, found.record)
    var current: [String: FieldValue?] = [:]
    var owed: Set<String> = []
    let asks = rules?.asksForCurrent == true
    if asks || held != nil {
      current = try RecordEncoder.encode(RecordDecoder.decode(Value.self, from: found.record, prototype)).byName
    }
    if asks {
      let (known, version) = try core.look(id)
      if known.entry?.pending != nil, let version { owed = Set(version.dirty.keys) }
    }
    let steps = try held?.steps(over: current, at: core.transactionStart, Value.self, prototype) ?? []
    var merged = found.record
    Value.migrate(&merged)
    let migration = merged
    let merge = EditMerge(
      value: fields, origin: origin, current: current, owed: owed, rules: rules,
      keepsNulls: fields.contains { $0.value == nil } && Value.prototype != nil)
    let outcome = merge.apply(to: &merged)
    guard outcome.isChanged else { return try shown(asStored: id, Value.self, prototype, steps) }
    // Before anything is written: what cannot be read must not come of it.
    let (made, version) = try RecordDecoder.decodeHolding(Value.self, from: merged, prototype)
    if outcome.refused.isEmpty {
      try put(merged, creating: false, migrated: migration.names(changedSince: found.record, keptIn: merged))
    } else {
      merge.put(outcome.refused.lazy.map(\.name), into: &merged)
      let noted = core.inboxWrite?.changes?.count
      try put(
        merged, refusing: outcome.refused, rule: merge.recordRule,
        migrated: migration.names(changedSince: found.record, keptIn: merged))
      if core.inboxWrite?.changes?.count != noted { core.noteForInbox(madeFrom: origin, in: outcome.refused) }
    }
    if mayGoOn, let held { core.versions.note(held, held.saved(fields), at: core.projections.appliedLSN) }
    // Without a version it is what was just written, unless the store raises a field or spells a reference in its own way.
    if version == nil, outcome.refused.isEmpty, core.declared.schema[Value.recordType].version == nil,
      !merged.fields.values.contains(where: \.namesZone)
    {
      return made
    }
    return try shown(asStored: id, Value.self, prototype, steps)
  }

  /// A value of a record that was just saved, or found unchanged.
  ///
  /// - Parameter steps: the transactions that edited the value.
  private func shown<Value: SyncRecord>(
    asStored id: RecordID, _ type: Value.Type, _ prototype: PrototypeFields, _ steps: [HeldVersion.Step]
  ) throws -> Value {
    let (record, lsn) = try requireLiving(id)
    let (value, held) = try RecordDecoder.decodeHolding(type, from: record, prototype)
    if let held, core.versions.note(held, HeldVersion.readNumber, at: lsn) { held.note(steps) }
    return value
  }

  private func requireType(_ type: String, _ record: Record) throws {
    guard record.type == type else {
      throw StrandlineError(
        .typeMismatch,
        "record '\(record.id)' has the type '\(record.type)', which cannot become '\(type)': a record keeps its type for life; "
          + "delete it, and create it again")
    }
  }

  private func requireSameID<Value: SyncRecord>(_ value: Value, _ id: RecordID, _ call: String) throws {
    guard value.recordID == id else {
      throw StrandlineError(
        .misuse,
        "'\(call)' was given a value of record '\(value.recordID)' for one of record '\(id)': a record keeps its name; save "
          + "the value under its new ID, and delete the old one")
    }
  }

  /// Refuses a value of a life that is over, unless the type's edits win over deletions: then the record may live on under
  /// another life.
  private func requireSameLife(_ record: Record, _ held: HeldVersion, _ rules: TypeRules) throws {
    if rules.deletion == .editRevives { return }
    guard let births = held.births, let now = record.births, births.isDisjoint(with: now) else { return }
    throw StrandlineError(
      .recordWasDeleted,
      "record '\(record.id)' was deleted since the value was read, and created again: it is another life under the same "
        + "name; read it again")
  }

  // MARK: Migration

  /// Writes back what migration makes of a record.
  ///
  /// - Returns: whether it makes anything of it.
  mutating func migrate<Value: SyncRecord>(_ id: RecordID, _ type: Value.Type) throws -> Bool {
    guard let record = try find(id), let migrated = try record.migrated(to: type) else { return false }
    try put(migrated, creating: false, migrated: migrated.names(changedSince: record, keptIn: migrated))
    return true
  }
}

extension Record {
  /// The fields in which this record, made by a migration, differs from one before it, and which are the same in what is saved.
  fileprivate func names(changedSince before: Record, keptIn saved: Record) -> Set<String> {
    var names = Set(fields.keys).union(before.fields.keys).filter { name in
      fields[name] != before.fields[name] && fields[name] == saved.fields[name]
    }
    if !parent.equalsUTF8(before.parent), parent.equalsUTF8(saved.parent) { names.insert(Version.parentField) }
    return names
  }

  /// What migration makes of it; nil if it leaves it as it is.
  ///
  /// - Throws: `.typeMismatch` or `.missingField` if the type cannot read the record even so.
  func migrated<Value: SyncRecord>(to type: Value.Type) throws -> Record? {
    _ = try RecordDecoder.decode(type, from: self, PrototypeFields(type))
    var migrated = self
    Value.migrate(&migrated)
    return migrated.isUnchanged(since: self) ? nil : migrated
  }
}
