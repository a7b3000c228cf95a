// What a closure of `write` can do: look, save, create, delete. All of it, or nothing, becomes one transaction.
//
// Two verbs, so that no deleted record comes back by accident: `save` edits what lives or creates what never was; on a deleted
// name it throws. Only `create` begins a new life.

import StrandlineSystem

extension StoreCore {
  /// Runs a closure of the engine's as a closure of `write`, as part of the open transaction.
  mutating func write(_ body: (inout WriteTransaction) throws -> Void) throws {
    var transaction = WriteTransaction(core: self, of: nil)
    do { try body(&transaction) } catch {
      self = transaction.finish()
      throw error
    }
    self = transaction.finish()
  }
}

/// A transaction that is being written. It sees everything that was written before it, durable or not.
public struct WriteTransaction: ~Copyable {
  var core: StoreCore
  /// Whose store this is, as far as it was known when the transaction began.
  let account: Account
  /// What it has changed in zones in which it is uploaded together.
  private var changed: [ZoneID: Set<RecordID>] = [:]
  /// Finds the children of what it deletes, since the first deletion.
  var finder: ChildFinder?
  /// Answers questions about what is durable already; nil in a transaction of the engine.
  let store: RecordStore?

  init(core: consuming StoreCore, of store: RecordStore?) {
    account = core.account
    self.core = core
    self.store = store
  }

  /// Gives the store's state back.
  consuming func finish() -> StoreCore { core }

  /// A record as this transaction sees it; nil if it does not live.
  ///
  /// - Throws: `StrandlineError`: `.damaged`, `.io`.
  public func record(_ id: RecordID) throws -> Record? {
    try CallSite.unnamed.run("reading record '\(id)'") { try find(id) }
  }

  /// The record as this transaction sees it.
  func find(_ id: RecordID) throws -> Record? { try findPlaced(id)?.record }

  /// The same, and the event that holds it.
  func findPlaced(_ id: RecordID) throws -> (record: Record, lsn: LSN)? {
    let id = account.canonical(id)
    guard let (entry, shown) = try core.shown(id), let lsn = entry.view else { return nil }
    let system = entry.base.map {
      SystemFields(changeTag: $0.changeTag, modified: $0.modifiedMilliseconds.map { ServerTimestamp(milliseconds: $0) })
    }
    return (shown.record(id, system: shown.system ?? system), lsn)
  }

  /// Refuses an edit of a record that does not live.
  func requireLiving(_ id: RecordID) throws -> (record: Record, lsn: LSN) {
    if let found = try findPlaced(id) { return found }
    if let deletion = try core.projections.look(account.canonical(id)).deletion { throw Self.wasDeleted(id, deletion) }
    throw StrandlineError(.noSuchRecord, "there is no record '\(id)' to edit; create it, if it is to be")
  }

  private static func wasDeleted(_ id: RecordID, _ deletion: DeletionEntry) -> StrandlineError {
    StrandlineError(
      .recordWasDeleted,
      "record '\(id)' was deleted \(deletion.isLocal ? "here" : "at the server") (event \(deletion.lsn)); "
        + "a save does not bring it back; call tx.create(value) to make it again")
  }

  /// How a record was deleted of which no life is left, as this transaction sees it; nil if one is.
  func ended(_ name: String, in zone: ZoneID) throws -> DeletionEntry? {
    let known = try core.projections.look(RecordID(name, zone: zone))
    return known.entry == nil ? known.deletion : nil
  }

  /// Saves a record whole: its fields become exactly those given. A record that equals what is there changes nothing.
  ///
  /// - Throws: `StrandlineError.recordWasDeleted` for a name in the deletion index; `.typeMismatch` if the record lives and
  ///   is of another type, or if the server has it with a value of another type in a field: it keeps both for ever;
  ///   `.foreignZone` and `.foreignScope` for a zone or database that this store does not sync; `.invalidName`,
  ///   `.invalidValue`; `.damaged` and `.io` if what the record holds now cannot be read. This call has changed nothing then. `.tooLarge` also if the transaction exceeds 64 MiB: then nothing of it can be written.
  public mutating func save(_ record: Record, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("saving record '\(record.id)'") { try put(record, creating: false) }
  }

  /// Begins a new life under a record's name.
  ///
  /// - Throws: `StrandlineError.recordExists` if the record lives; otherwise as `save`.
  public mutating func create(_ record: Record, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("creating record '\(record.id)'") { try put(record, creating: true) }
  }

  /// `save` or `create`; with `isVerbatim` of names and values that no app could give: a server has given them, and may have
  /// them back.
  package mutating func save(
    _ record: Record, isVerbatim: Bool, creating: Bool, fileID: String = #fileID, line: Int = #line
  ) throws {
    try CallSite(fileID, line).run("\(creating ? "creating" : "saving") record '\(record.id)'") {
      try put(record, creating: creating, checksNames: !isVerbatim)
    }
  }

  /// Saves what a record begins with, such as the settings and categories of a new installation, if there is none under its
  /// name.
  ///
  /// Each device of a user saves the same defaults at its first launch, often before it has fetched anything. So a default gives
  /// way: it does nothing if the record lives here or its name was deleted, and where the server turns out to have a record under
  /// the name, that record stays as it is, field by field, and the default is settled as `MutationOutcome.merged`, without a
  /// conflict. Of the defaults of two devices the one that reaches the server first stays. Where the server says that the name
  /// was deleted, the default ends as `MutationOutcome.cancelled`; to a new device it does not always say it, and then a device
  /// that knows deletes the default again.
  ///
  /// What is written into the record later, by any device, is later than the default. The first edit of it counts as the
  /// creation of the user's record: a deletion that has not seen the edit does not end it. A default that is deleted before
  /// it was sent is deleted at the server too, if another device's is there.
  ///
  /// ```swift
  /// try await store.write { try $0.saveDefault(Settings(id: "settings", theme: "light")) }
  /// ```
  ///
  /// - Returns: whether it was saved.
  /// - Throws: `StrandlineError` as `save(_:)`, but for `.recordWasDeleted`; this call has changed nothing then.
  @discardableResult
  public mutating func saveDefault(_ record: Record, fileID: String = #fileID, line: Int = #line) throws -> Bool {
    try CallSite(fileID, line).run("saving the default record '\(record.id)'") {
      guard try isFree(record.id, for: record.type) else { return false }
      try put(record, creating: false, asDefault: true)
      return true
    }
  }

  /// Whether neither a record nor a deletion is known under a name.
  ///
  /// - Throws: `.misuse` in a transaction of another process: what it writes is a change of the user's.
  func isFree(_ id: RecordID, for type: String) throws -> Bool {
    if core.isNotingForInbox {
      throw StrandlineError(
        .misuse, "a default is saved by the process that has the store open, and not through its inbox")
    }
    let (known, current) = try core.look(account.canonical(id))
    if let current { try requireType(type, of: id, current.version.type) }
    return known.entry == nil && known.deletion == nil
  }

  /// Begins a new life with what a record of the log held. Its names may be such that no app could give: the server has given
  /// them.
  mutating func createAgain(_ record: Record) throws { try put(record, creating: true, checksNames: false) }

  /// Deletes a record, and applies to the records below it the rules that `StoreOptions.schema` declares: it deletes them,
  /// and those below them; takes their parent away; or moves them.
  ///
  /// `RecordStore.restore(_:)` brings back the record with all that this call has deleted.
  ///
  /// - Returns: the records that this call has deleted, this one first and each before its children; empty if it does not live.
  /// - Throws: `StrandlineError`: `.foreignZone` if the configuration leaves its zone out; `.damaged` and `.io` if a record cannot be read; this call has changed nothing then.
  ///   `.tooLarge` as `save`: the records below it do not fit into one transaction with it.
  /// - Complexity: O(records that are changed); where a type declares a rule for deleted parents also O(changes that the store's
  ///   index does not have yet), once a transaction. While the index of such a type is being built, O(records of the type).
  @discardableResult
  public mutating func delete(_ id: RecordID, fileID: String = #fileID, line: Int = #line) throws -> [RecordID] {
    try CallSite(fileID, line).run("deleting record '\(id)'") { try removeTree(id) }
  }

  /// Whether it has more bytes than a log takes in one transaction: nothing of it can be written.
  package private(set) var isTooLarge = false

  /// Appends an event. What is too large is refused here and not only at its end, so that a closure without an end does
  /// not use up the memory.
  private mutating func append(_ event: Event, known: KnownRecord) throws {
    try checkIsNotTooLarge()
    try core.append(event, known: known)
    if let id = event.recordID { noteChange(of: id) }
    try noteSize()
  }

  private func checkIsNotTooLarge() throws { if isTooLarge { throw tooLarge() } }

  /// Notes after an event whether the transaction has become too large.
  private mutating func noteSize() throws {
    isTooLarge = core.isTransactionTooLarge
    try checkIsNotTooLarge()
  }

  private func tooLarge() -> StrandlineError {
    StrandlineError(
      .tooLarge,
      "the transaction has more than \(core.transactionBytesMax) bytes, the most that becomes durable together; nothing of "
        + "it was written; write it in several transactions")
  }

  private mutating func noteChange(of id: RecordID) {
    if core.declared.atomicZones.contains(id.zone) { changed[id.zone, default: []].insert(id) }
  }

  /// Checks that what was written of a zone fits into the request in which it has to go to the server.
  func checkFits(in zone: ZoneID) throws {
    guard let count = changed[zone]?.count, count > Names.operationsMax else { return }
    throw StrandlineError(
      .tooLarge,
      "the transaction changes \(count) records of zone '\(zone)', which is uploaded atomically; a request "
        + "holds \(Names.operationsMax); write them in several transactions")
  }

  /// A deletion later in the transaction finds the record below what it was put below.
  private mutating func noteParent(of id: RecordID, _ type: String, _ value: (String) -> FieldValue?) {
    guard finder != nil, let parent = core.declared.schema.childRule(of: type),
      let name = parent.parentName(value(parent.storedField), of: id)
    else { return }
    finder?.note(id, below: name)
  }

  /// Has what was written go to the server together, where the app wants that: with each other, and with what is owed of the
  /// sets that its records are in already.
  ///
  /// - Throws: `.tooLarge` if no request could hold it.
  mutating func join() throws {
    for (zone, changed) in changed.sorted(by: { $0.key < $1.key }) where changed.count > 1 {
      try checkFits(in: zone)
      let new = RecordSet(zone: zone, number: core.transactionStart)
      // No more than this is taken out of the state: what holds on to all of it has the next event copy it.
      var (set, members) = core.projections.withLock { state in
        let known = Set(changed.compactMap { state.sync.sets[$0] })
        let members = known.reduce(into: changed) { $0.formUnion(state.sync.members[$1, default: []]) }
        return (known.min { $0.number < $1.number } ?? new, members)
      }
      // No request could hold them all. What is written last stays together.
      if members.count > Names.operationsMax { (set, members) = (new, changed) }
      for id in members.sorted() where core.projections.set(of: id) != set {
        try core.append(.joined(Joined(id: id, set: set.number)))
      }
    }
    try noteSize()
  }

  /// Deletes a record and nothing else.
  ///
  /// - Parameter cause: the deletion that takes it along.
  /// - Returns: the event; nil if the record does not live.
  @discardableResult
  mutating func remove(_ id: RecordID, cause: LSN = .zero) throws -> LSN? {
    let id = account.canonical(id)
    let known = try core.projections.look(id)
    guard let entry = known.entry, let view = entry.view else { return nil }
    try checkIsTakenIn(id)
    try append(
      .deleted(
        Deleted(
          id: id, births: try core.births(view, of: id), base: entry.base?.version ?? .zero, time: core.tick(),
          tenure: core.tenure, cause: cause)), known: known)
    return core.projections.appliedLSN
  }

  /// - Parameter migrated: the fields that a migration alone has changed.
  mutating func put(
    _ record: Record, creating: Bool, checksSize: Bool = true, checksNames: Bool = true, asDefault: Bool = false,
    migrated: Set<String> = []
  ) throws {
    let id = account.canonical(record.id)
    let (known, current) = try look(id, record.type, creating: creating, checksNames: checksNames)
    guard let current else {
      var fields: [NewField] = []
      fields.reserveCapacity(record.fields.count + record.nulls.count + 1)
      for (name, value) in record.fields { fields.append(NewField(name: name, value: value)) }
      for name in record.nulls where record.fields[name] == nil { fields.append(NewField(name: name, value: nil)) }
      return try begin(
        id, record.type, fields, parent: record.parent, known, creating: creating, checksNames: checksNames,
        asDefault: asDefault)
    }
    var desired = record.fields
    for (name, value) in record.fields where value.namesZone { desired[name] = try local(value, name, of: id) }
    if let parent = record.parent { desired[Version.parentField] = .reference(Reference(parent)) }
    try edit(
      id, desired, record.nulls, current, known, checksSize: checksSize, checksNames: checksNames, migrated: migrated)
  }

  /// The same for a record that does not live, by its fields: no name twice.
  mutating func putNew(
    _ id: RecordID, _ type: String, _ fields: [NewField], parent: String?, creating: Bool, asDefault: Bool = false
  ) throws {
    let id = account.canonical(id)
    let (known, current) = try look(id, type, creating: creating)
    precondition(current == nil, "record '\(id)' lives")
    try begin(id, type, fields, parent: parent, known, creating: creating, asDefault: asDefault)
  }

  /// Looks a record up that is to be saved, and refuses what cannot be saved under its name.
  private func look(
    _ id: RecordID, _ type: String, creating: Bool, checksNames: Bool = true
  ) throws -> (known: KnownRecord, current: LoadedVersion?) {
    let (known, current) = try core.look(id)
    if creating, current != nil {
      throw StrandlineError(
        .recordExists, "record '\(id)' lives already; save it to change it, or delete it before creating it again")
    }
    if current == nil, !creating, let deletion = known.deletion { throw Self.wasDeleted(id, deletion) }
    if let current { try requireType(type, of: id, current.version.type) }
    if current == nil, let entry = known.entry, entry.type != type, let pending = entry.pending, pending.isDeletion,
      entry.base != nil || core.projections.attempted(pending) != nil
    {
      throw StrandlineError(
        .typeMismatch,
        "record '\(id)' had the type '\(entry.type)', and the server may still have it: a record keeps its type for life; one "
          + "of type '\(type)' can be created under this name when a sync has brought the deletion to the server")
    }
    if known.entry == nil, checksNames { try checkName(id) }
    if current == nil, checksNames { try Self.refuse(type, "record type", id, Names.defect(newType: type)) }
    try check(id.zone, of: id)
    return (known, current)
  }

  /// Refuses to save a record as one of another type.
  private func requireType(_ type: String, of id: RecordID, _ current: String) throws {
    guard current != type else { return }
    throw StrandlineError(
      .typeMismatch,
      "record '\(id)' has the type '\(current)', which cannot become '\(type)': "
        + "a record keeps its type for life; delete it and create it again")
  }

  /// A value in the spelling in which a record of this store has it.
  private func local(_ value: FieldValue, _ name: String, of id: RecordID) throws -> FieldValue {
    for reference in value.references { if let zone = reference.zone { try check(zone, of: id, in: name) } }
    return value.relative(to: id.zone)
  }

  /// Begins a life: every field is new, those that are written as null too.
  private mutating func begin(
    _ id: RecordID, _ type: String, _ given: [NewField], parent: String?, _ known: KnownRecord, creating: Bool,
    checksNames: Bool = true, asDefault: Bool = false
  ) throws {
    var fields = given
    for place in fields.indices {
      if let value = fields[place].value, value.namesZone {
        fields[place].value = try local(value, fields[place].name, of: id)
      }
    }
    if let parent {
      fields.removeAll { $0.name == Version.parentField }
      fields.append(NewField(name: Version.parentField, value: .reference(Reference(parent))))
    }
    if let declared = core.declared.schema[type].version,
      let raised = declared.raised(fields.first { $0.name == declared.field }.flatMap { $0.value })
    {
      fields.removeAll { $0.name == declared.field }
      fields.append(NewField(name: declared.field, value: raised))
    }
    for field in fields {
      try Self.check(field.name, field.value, in: id, checksNames: checksNames)
      try checkContents(of: field.value, in: field.name, of: id)
    }
    try checkParents(of: id, type, nil) { name in fields.first { $0.name == name }.flatMap { $0.value } }
    let count = fields.count
    let seen = try known.entry.flatMap { try core.base(of: id, $0) }?.version.stamp.seen ?? [:]
    var time = core.tick()
    // A clock that was set back may show the time at which a life began that is over.
    while known.deletion?.births.contains(Birth(time: time, writer: core.writer)) == true { time = core.tick() }
    let birth = asDefault ? .ofDefaults : core.inboxBirth(after: known.deletion)
    let life = NewLife(
      id: id, type: type, time: time, writer: core.writer, tenure: core.tenure, birth: birth,
      stamp: asDefault ? .ofDefaults : core.inboxWrite.map { FieldStamp(time: $0.time, writer: core.writer) },
      base: known.entry?.base?.version ?? .zero, seen: seen, fields: fields)
    try checkIsNotTooLarge()
    try core.append(life, known: known) { contentBytes in
      try Self.checkSize(fields: count, contentBytes, id)
    }
    noteChange(of: id)
    noteParent(of: id, type) { name in fields.first { $0.name == name }.flatMap { $0.value } }
    try noteSize()
    core.noteForInbox(creating ? .create : .save, id, type, Set(birth.map { [$0] } ?? [])) {
      fields.map { InboxChange.Field(name: $0.name, before: nil, after: $0.value) }
    }
  }

  /// Edits a living record: the fields that differ get a new stamp, and those that are null for the first time.
  private mutating func edit(
    _ id: RecordID, _ given: [String: FieldValue], _ nulls: Set<String>, _ current: LoadedVersion,
    _ known: KnownRecord, checksSize: Bool, checksNames: Bool, migrated: Set<String>
  ) throws {
    let entry = known.entry
    var version = current.version
    var desired = given
    let declared = core.declared.schema[version.type].version
    if let declared {
      desired[declared.field] = declared.kept(given[declared.field], version.fields[declared.field])
    }
    var changed: [String] = []
    for (name, value) in desired where version.fields[name] != value { changed.append(name) }
    for name in version.fields.keys where desired[name] == nil { changed.append(name) }
    for name in nulls where desired[name] == nil && version.stamp.fields[name] == nil { changed.append(name) }
    if changed.isEmpty { return }
    if let declared, let raised = declared.raised(desired[declared.field]) {
      desired[declared.field] = raised
      if !changed.contains(declared.field) { changed.append(declared.field) }
    }
    let time = core.tick()
    let migrationStamp = version.stamp.ofMigration(changing: migrated)
    // With the first edit of a default begins the user's record: who deleted the default has not deleted this.
    if version.stamp.isOfUneditedDefault, !migrated.isSuperset(of: changed) {
      version.stamp.births.insert(Birth(time: time, writer: core.writer))
    }
    // What this store wrote under an earlier writer ID is part of the version, and its own name will not say so.
    if let lsn = entry?.pending?.newest, let own = current.own, let author = core.projections.sync.author(of: lsn),
      author != core.writer
    {
      version.stamp.joinSeen([author: Seen(lsn: lsn, tenure: own.tenure, time: own.time)])
    }
    var dirty = entry?.pending == nil ? [:] : current.dirty
    for name in changed {
      try Self.check(name, desired[name], in: id, checksNames: checksNames)
      if entry?.base != nil, checksNames { try Self.checkType(of: name, desired[name], version, id) }
      try checkContents(of: desired[name], in: name, of: id)
      version.fields[name] = desired[name]
      version.stamp.fields[name] =
        if migrated.contains(name), let migrationStamp {
          migrationStamp
        } else {
          FieldStamp(time: core.inboxTime(time, after: version.stamp.fields[name]), writer: core.writer)
        }
      dirty[name] = LSN.zero
    }
    try checkParents(of: id, version.type, changed) { version.fields[$0] }
    let content = EncodedContent(version, dirty: dirty)
    if checksSize { try Self.checkSize(fields: version.fields.count, content.byteCount, id) }
    try append(
      .saved(
        Saved(
          id: id, type: version.type, births: version.stamp.births, base: entry?.base?.version ?? .zero, time: time,
          editCount: current.editCount + 1, tenure: core.tenure, isCreation: false, content: content)), known: known)
    noteParent(of: id, version.type) { version.fields[$0] }
    core.noteForInbox(.edit, id, version.type, version.stamp.births) {
      changed.map {
        InboxChange.Field(name: $0, before: .some(current.version.fields[$0]), after: version.fields[$0])
      }
    }
  }

  /// Saves a living record in some fields of which a rule of its type keeps what the store has, and tells it as a sync does: what
  /// was to be saved is a mutation of its own, a `conflicted` names its fields that lost, and what the rules have left of it
  /// follows, or that it is not owed.
  ///
  /// - Parameters:
  ///   - wanted: the record as it was to be.
  ///   - fields: those that lose, in the order of their names.
  ///   - rule: the rule of its type.
  ///   - migrated: the fields that a migration alone has changed.
  mutating func put(
    _ wanted: Record, refusing fields: [Conflicted.Field], rule: String, migrated: Set<String> = []
  ) throws {
    let id = account.canonical(wanted.id)
    let before = try core.look(id)
    let start = core.projections.appliedLSN
    try put(wanted, creating: false, migrated: migrated)
    let lost = core.projections.appliedLSN
    // What the type reads another way is stored like this already.
    guard lost > start else { return }
    let after = try core.look(id)
    guard let entry = before.known.entry, let old = before.current, let new = after.current,
      after.known.entry?.pending?.newest == lost, let server = entry.pending?.newest ?? entry.base?.version
    else { throw StrandlineError(lyingIndex: "record '\(id)' was saved in event \(lost), and is not what that wrote") }
    try append(
      .conflicted(
        Conflicted(
          id: id, local: lost, server: server, ancestor: .zero,
          wallMilliseconds: core.environment.clock.wallMilliseconds(), rule: rule,
          words: "it was made from an older state of the record", fields: fields)), known: after.known)
    var written = Set(new.dirty.lazy.filter { $0.value == lost }.map(\.key))
    written.subtract(fields.lazy.map(\.name))
    // A save of which nothing is taken raises no version number.
    if let declared = core.declared.schema[wanted.type].version?.field, written == [declared] { written = [] }
    let known = try core.projections.look(id)
    if entry.pending == nil, written.isEmpty {
      return try append(.settled(Settled(id: id, lsn: lost, outcome: .lost)), known: known)
    }
    let kept = Set(new.version.names).union(old.version.names).subtracting(written)
    var dirty = entry.pending == nil ? [:] : old.dirty
    for name in written { dirty[name] = LSN.zero }
    let left = new.version.taking(kept, from: old.version)
    try append(
      .saved(
        Saved(
          id: id, type: new.version.type, births: new.version.stamp.births, base: entry.base?.version ?? .zero,
          time: core.tick(), editCount: new.editCount + 1, tenure: core.tenure, isCreation: false,
          content: EncodedContent(left, dirty: dirty))), known: known)
    noteParent(of: id, left.type) { left.fields[$0] }
  }

  // MARK: What no sync of this store would send

  /// Refuses the zone of a record in another database, or of another user, or that is left out.
  private func check(_ zone: ZoneID, of id: RecordID) throws {
    try checkIsTakenIn(id)
    guard account.takes(zone.scope) else {
      let scopes = account.scopes.map { "\($0)" }.joined(separator: " and ")
      throw StrandlineError(
        .foreignScope,
        "record '\(id)' is of the \(zone.scope) database, and "
          + (scopes.isEmpty
            ? "a store that never synced takes records of the private one alone"
            : "this store syncs the \(scopes) one, so it would never be sent")
          + "; save it in a store that syncs the \(zone.scope) database")
    }
    guard zone.scope == .shared else { return try checkOwner(zone, "record '\(id)'") }
    guard !zone.owner.isEmpty else {
      throw StrandlineError(
        .foreignZone,
        "record '\(id)' is of the shared database, whose zones are other users', and its zone names no owner: "
          + "name the one that the zone has at the server")
    }
  }

  /// Refuses a zone that is left out.
  private func checkIsTakenIn(_ id: RecordID) throws {
    if core.leavesOut(id.zone) { throw StrandlineError.leftOut(id.zone, "record '\(id)' would never be sent") }
  }

  /// Refuses a reference to a zone of another user. Its database is that of the record.
  private func check(_ zone: ZoneID, of id: RecordID, in field: String) throws {
    guard id.zone.scope != .shared else { return }
    try checkOwner(account.canonical(zone), "record '\(id)', field '\(field)'")
  }

  private func checkOwner(_ zone: ZoneID, _ what: @autoclosure () -> String) throws {
    guard !zone.owner.isEmpty else { return }
    let what = what()
    throw StrandlineError(
      .foreignZone,
      !account.isUserKnown
        ? "\(what): zone '\(zone.name)' names the owner '\(zone.owner)', and this store learns who its user is with its "
          + "first sync; leave the owner empty for a zone of its user"
        : "\(what): zone '\(zone.name)' belongs to '\(zone.owner)', who is not this store's user; "
          + "leave the owner empty for a zone of its user")
  }

  // MARK: What CloudKit would refuse

  /// Refuses a record that CloudKit would refuse, but for what depends on the account and on the record that has its name.
  static func check(_ record: Record) throws {
    for (name, value) in record.fields { try check(name, value, in: record.id) }
    if let parent = record.parent { try check(Version.parentField, .reference(Reference(parent)), in: record.id) }
    try checkSize(
      fields: record.fields.count, EncodedContent(Version(type: record.type, fields: record.fields)).byteCount,
      record.id)
  }

  private func checkName(_ id: RecordID) throws {
    if let defect = Names.defect(recordName: id.name) {
      throw StrandlineError(.invalidName, "'\(id.name.prefix(80))' cannot be a record's name: \(defect)")
    }
    if let defect = Names.defect(zoneName: id.zone.name) {
      throw StrandlineError(.invalidName, "'\(id.zone.name.prefix(80))' cannot be a zone's name here: \(defect)")
    }
  }

  private static func refuse(_ name: String, _ what: String, _ id: RecordID, _ defect: String?) throws {
    guard let defect else { return }
    throw StrandlineError(.invalidName, "'\(name.prefix(80))' cannot be a \(what) (record '\(id)'): \(defect)")
  }

  private static func check(
    _ name: String, _ value: FieldValue?, in id: RecordID, checksNames: Bool = true
  ) throws {
    if name.utf8.first == UInt8(ascii: "_"), name == Version.parentField {
      if checksNames, case .reference(let parent)? = value, let defect = Names.defect(recordName: parent.name) {
        throw StrandlineError(.invalidName, "record '\(id)': '\(parent.name.prefix(80))' cannot be a parent: \(defect)")
      }
      return
    }
    guard let value else { return }
    if checksNames { try refuse(name, "field's name", id, Names.defect(newField: name)) }
    if name.utf8.count == Names.stampField.utf8.count, name == Names.stampField {
      throw StrandlineError(
        .invalidName, "record '\(id)': the field '\(name)' is the sync engine's own; choose another name")
    }
    if let defect = value.defect(isKept: !checksNames) {
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

  /// Refuses a value of another type than a field has in a record of the server's: that keeps the type of a field, and would refuse
  /// the record for ever.
  private static func checkType(of name: String, _ value: FieldValue?, _ version: Version, _ id: RecordID) throws {
    guard let value, let old = version.fields[name], !old.isOfSameType(as: value) else { return }
    throw StrandlineError(
      .typeMismatch,
      "record '\(id)' of type '\(version.type)': field '\(name)' holds a value of type \(old.typeName) and would get one of "
        + "type \(value.typeName), and the server, which has the record, keeps the type of a field for ever; give the new "
        + "values a field of another name")
  }

  private static func checkSize(fields: Int, _ contentBytes: Int, _ id: RecordID) throws {
    guard fields <= Names.fieldsMax else {
      throw StrandlineError(.tooLarge, "record '\(id)' has \(fields) fields; CloudKit takes at most \(Names.fieldsMax)")
    }
    guard contentBytes <= Names.recordBytesMax else {
      throw StrandlineError(
        .tooLarge,
        "record '\(id)' has \(contentBytes) bytes; CloudKit takes at most \(Names.recordBytesMax); split it into "
          + "several records")
    }
  }
}
