// What a closure of `write` can do: look, save, create, delete. All of it, or nothing, becomes one transaction.
//
// Two verbs, so that no deleted record comes back by accident: `save` edits what lives or creates what never was; on a deleted
// name it throws. Only `create` begins a new life.

import StrandlineSystem

/// A transaction that is being written. It sees everything that was written before it, durable or not.
public struct WriteTransaction: ~Copyable {
  private var core: StoreCore

  init(core: consuming StoreCore) { self.core = core }

  /// Gives the store's state back.
  consuming func finish() -> StoreCore { core }

  /// A record as this transaction sees it; nil if it does not live.
  ///
  /// - Throws: `StrandlineError`: `.damaged`, `.io`.
  public func record(_ id: RecordID, fileID: String = #fileID, line: Int = #line) throws -> Record? {
    try CallSite(fileID, line).run("reading record '\(id)'") { try find(id) }
  }

  /// The record as this transaction sees it.
  func find(_ id: RecordID) throws -> Record? {
    guard let loaded = try core.view(id) else { return nil }
    let base = try core.projections.entry(id)?.base
    let system = base.map {
      SystemFields(changeTag: $0.changeTag, modified: $0.modifiedMilliseconds.map { Touch(milliseconds: $0) })
    }
    return loaded.version.record(id, system: loaded.system ?? system)
  }

  /// Saves a record whole: its fields become exactly those given. A record that equals what is there changes nothing.
  ///
  /// - Throws: `StrandlineError.recordWasDeleted` for a name in the deletion index; `.invalidName`, `.invalidValue`,
  ///   `.tooLarge`, `.typeMismatch`; `.damaged` and `.io` if what the record holds now cannot be read. This call has
  ///   changed nothing then.
  public mutating func save(_ record: Record, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("saving record '\(record.id)'") { try put(record, creating: false) }
  }

  /// Begins a new life under a record's name.
  ///
  /// - Throws: `StrandlineError.recordExists` if the record lives; otherwise as `save`.
  public mutating func create(_ record: Record, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("creating record '\(record.id)'") { try put(record, creating: true) }
  }

  /// Deletes a record; false if it does not live.
  ///
  /// - Throws: `StrandlineError`: `.damaged` and `.io` if the record cannot be read.
  @discardableResult
  public mutating func delete(_ id: RecordID, fileID: String = #fileID, line: Int = #line) throws -> Bool {
    try CallSite(fileID, line).run("deleting record '\(id)'") { try remove(id) }
  }

  private mutating func remove(_ id: RecordID) throws -> Bool {
    guard let entry = try core.projections.entry(id), let view = entry.view else { return false }
    try core.append(
      .deleted(
        Deleted(
          id: id, births: try core.births(view), base: entry.base?.version ?? .none, time: core.tick(),
          tenure: core.tenure)))
    return true
  }

  private mutating func put(_ record: Record, creating: Bool) throws {
    let id = record.id
    let entry = try core.projections.entry(id)
    let current = try entry.flatMap { try core.view($0) }
    if creating, current != nil {
      throw StrandlineError(
        .recordExists, "record '\(id)' lives already; save it to change it, or delete it before creating it anew")
    }
    if current == nil, !creating, let deletion = try core.projections.deletion(id) {
      throw StrandlineError(
        .recordWasDeleted,
        "record '\(id)' was deleted \(deletion.isLocal ? "here" : "at the server") (event \(deletion.lsn)); "
          + "a save does not bring it back: create it to begin a new life under this name (--recreate)")
    }
    if let current, current.version.type != record.type {
      throw StrandlineError(
        .typeMismatch,
        "record '\(id)' is a '\(current.version.type)' and cannot become a '\(record.type)': "
          + "a record keeps its type for life; delete it and create it anew")
    }
    if entry == nil { try checkName(id) }
    if current == nil { try checkSchemaName(record.type, "record type", id) }

    var desired = record.fields
    if let parent = record.parent { desired[Version.parentField] = .reference(Reference(parent)) }
    if let current {
      try edit(id, desired, record.nulls, current, entry)
    } else {
      try begin(id, record.type, desired, record.nulls, entry)
    }
  }

  /// Begins a life: every field is new, those that are written as null too.
  private mutating func begin(
    _ id: RecordID, _ type: String, _ desired: [String: FieldValue], _ nulls: Set<String>, _ entry: RecordEntry?
  ) throws {
    var fields: [(name: String, value: FieldValue?)] = []
    fields.reserveCapacity(desired.count)
    for (name, value) in desired {
      try check(name, value, in: id)
      fields.append((name, value))
    }
    for name in nulls where desired[name] == nil {
      try check(name, nil, in: id)
      fields.append((name, nil))
    }
    fields.sort { $0.name.precedesByUTF8($1.name) }
    let seen = try entry.flatMap { try core.base(of: $0) }?.version.stamp.seen ?? [:]
    let time = core.tick()
    let content = EncodedContent(newLife: fields, stamp: FieldStamp(time: time, writer: core.writer), seen: seen)
    try checkSize(fields: fields.count, content, id)
    try core.append(
      .saved(
        Saved(
          id: id, type: type, births: [Birth(time: time, writer: core.writer)], base: entry?.base?.version ?? .none,
          time: time, editCount: 1, tenure: core.tenure, isCreation: true, content: content)))
  }

  /// Edits a living record: the fields that differ get a new stamp, and those that are null for the first time.
  private mutating func edit(
    _ id: RecordID, _ desired: [String: FieldValue], _ nulls: Set<String>, _ current: LoadedVersion,
    _ entry: RecordEntry?
  ) throws {
    var version = current.version
    var changed = Set(desired.keys).union(version.fields.keys).filter { desired[$0] != version.fields[$0] }
    for name in nulls where desired[name] == nil && version.stamp.fields[name] == nil { changed.insert(name) }
    if changed.isEmpty { return }
    let time = core.tick()
    var dirty = entry?.pending == nil ? [:] : current.dirty
    for name in changed {
      try check(name, desired[name], in: id)
      version.fields[name] = desired[name]
      version.stamp.fields[name] = FieldStamp(time: time, writer: core.writer)
      dirty[name] = LSN.none
    }
    let content = EncodedContent(version, dirty: dirty)
    try checkSize(fields: version.fields.count, content, id)
    try core.append(
      .saved(
        Saved(
          id: id, type: version.type, births: version.stamp.births, base: entry?.base?.version ?? .none, time: time,
          editCount: current.editCount + 1, tenure: core.tenure, isCreation: false, content: content)))
  }

  // MARK: What CloudKit would refuse

  private func checkName(_ id: RecordID) throws {
    if let defect = Names.defect(recordName: id.name) {
      throw StrandlineError(.invalidName, "'\(id.name.prefix(80))' cannot be a record's name: \(defect)")
    }
    if let defect = Names.defect(zoneName: id.zone.name) {
      throw StrandlineError(.invalidName, "'\(id.zone.name.prefix(80))' cannot be a zone's name here: \(defect)")
    }
  }

  private func checkSchemaName(_ name: String, _ what: String, _ id: RecordID) throws {
    if let defect = Names.defect(schemaName: name) {
      throw StrandlineError(.invalidName, "'\(name.prefix(80))' cannot be a \(what) (record '\(id)'): \(defect)")
    }
  }

  private func check(_ name: String, _ value: FieldValue?, in id: RecordID) throws {
    if name == Version.parentField {
      if case .reference(let parent)? = value, let defect = Names.defect(recordName: parent.name) {
        throw StrandlineError(.invalidName, "record '\(id)': '\(parent.name.prefix(80))' cannot be a parent: \(defect)")
      }
      return
    }
    guard let value else { return }
    try checkSchemaName(name, "field's name", id)
    if name == Names.stampField {
      throw StrandlineError(
        .invalidName, "record '\(id)': the field '\(name)' is the sync engine's own; choose another name")
    }
    if let defect = value.defect {
      throw StrandlineError(.invalidValue, "record '\(id)', field '\(name)': \(defect)")
    }
    for reference in value.references where reference.action != .none {
      if let zone = reference.zone, zone != id.zone {
        throw StrandlineError(
          .invalidValue,
          "record '\(id)', field '\(name)': a reference that deletes or validates cannot leave its zone "
            + "(it points to '\(zone)'); use one without an action")
      }
    }
  }

  private func checkSize(fields: Int, _ content: EncodedContent, _ id: RecordID) throws {
    guard fields <= Names.fieldsMax else {
      throw StrandlineError(.tooLarge, "record '\(id)' has \(fields) fields; CloudKit takes at most \(Names.fieldsMax)")
    }
    guard content.byteCount <= Names.recordBytesMax else {
      throw StrandlineError(
        .tooLarge,
        "record '\(id)' has \(content.byteCount) bytes; CloudKit takes at most \(Names.recordBytesMax) a record without "
          + "its assets; split it, or keep the large part in an asset")
    }
  }
}
