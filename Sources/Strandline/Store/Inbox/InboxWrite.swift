// A transaction of another process: how it is noted in that process, and how the store takes it in.
//
// The other process does its transaction in memory, over the store as it reads it, and notes what became of each record: the
// fields that it changed, with what they were. The store merges that with what the records are by then, as it merges an edit of
// a typed value: three ways, field by field, by the rules of the type. Where a rule goes by time, the time is that at which the
// other process wrote.

import StrandlineSystem

/// What a transaction is of another process.
struct InboxWrite: Sendable {
  /// When the other process wrote.
  var time: HybridTime
  /// The life that it begins; nil: where it begins one, it is named by the time.
  var birth: Birth?
  /// What it has changed so far; nil where it is taken in.
  var changes: [InboxChange]?
}

extension StoreCore {
  /// The birth of a life that another process begins; nil if this store begins it.
  func inboxBirth(after deletion: DeletionEntry?) -> Birth? {
    guard let inboxWrite else { return nil }
    var birth = inboxWrite.birth ?? Birth(time: inboxWrite.time, writer: writer)
    while deletion?.births.contains(birth) == true { birth.time = birth.time.next }
    return birth
  }

  /// Notes what the transaction of another process has done to a record.
  mutating func noteForInbox(
    _ operation: InboxChange.Operation, _ id: RecordID, _ type: String, _ births: Set<Birth>,
    _ fields: () -> [InboxChange.Field]
  ) {
    guard isNotingForInbox, let time = inboxWrite?.time else { return }
    noteForInbox(
      InboxChange(
        storeUUID: source.storeUUID, id: id, operation: operation, type: type, births: births, time: time,
        fields: fields()))
  }

  /// Notes that some fields of the change that was noted last were made from another state than the store has, and have lost
  /// against that by their rule.
  mutating func noteForInbox(madeFrom origin: [String: FieldValue?], in refused: [Conflicted.Field]) {
    guard var changes = inboxWrite?.changes, var last = changes.popLast() else { return }
    for place in last.fields.indices where refused.contains(where: { $0.name.equalsUTF8(last.fields[place].name) }) {
      last.fields[place] = InboxChange.Field(
        name: last.fields[place].name, before: origin[last.fields[place].name], after: last.fields[place].after)
    }
    changes.append(last)
    inboxWrite?.changes = changes
  }

  /// Makes the changes of one transaction of another process, as part of the open one.
  ///
  /// - Throws: as `WriteTransaction.save`, `create` and `delete`: then nothing of it must be appended.
  mutating func takeIn(_ changes: [InboxChange]) throws {
    try write { transaction in
      for change in changes { try transaction.takeIn(change) }
      try transaction.join()
    }
    inboxWrite = nil
  }
}

extension WriteTransaction {
  /// Makes a change of another process.
  fileprivate mutating func takeIn(_ change: InboxChange) throws {
    core.inboxWrite = InboxWrite(
      time: change.time, birth: [.save, .create].contains(change.operation) ? change.births.first : nil)
    let id = account.canonical(change.id)
    switch change.operation {
    case .delete:
      guard let entry = try core.projections.entry(id), let view = entry.view else { return }
      // Another life of the name is not what was deleted.
      if try core.births(view, of: id).isDisjoint(with: change.births) { return }
      _ = try removeTree(id)
    case .edit:
      let (record, _) = try requireLiving(id)
      if core.declared.conflicts[change.type].deletion != .editRevives,
        record.births?.isDisjoint(with: change.births) == true
      {
        throw StrandlineError(
          .recordWasDeleted,
          "record '\(id)' was deleted since another process has read it, and created again: it is another life under the same "
            + "name")
      }
      try edit(record, by: change)
    case .save, .create:
      if change.operation == .save, let record = try find(id) { return try edit(record, by: change) }
      var fields = change.fields.map { NewField(name: $0.name, value: $0.after) }
      var parent: String?
      if let place = fields.firstIndex(where: { $0.name == Version.parentField }) {
        if case .reference(let reference)? = fields.remove(at: place).value { parent = reference.name }
      }
      try putNew(id, change.type, fields, parent: parent, creating: change.operation == .create)
    }
  }

  /// Merges an edit with what its record is by now.
  private mutating func edit(_ record: Record, by change: InboxChange) throws {
    let id = account.canonical(record.id)
    guard record.type == change.type else {
      throw StrandlineError(
        .typeMismatch,
        "record '\(id)' has the type '\(record.type)' by now, and another process has saved one of type '\(change.type)'"
      )
    }
    let (known, version) = try core.look(id)
    let stamps = version?.version.stamp.fields ?? [:]
    var current: [String: FieldValue?] = record.fields.mapValues { $0 }
    if let parent = record.parent { current[Version.parentField] = .reference(Reference(parent)) }
    var (value, origin): ([String: FieldValue?], [String: FieldValue?]) = ([:], [:])
    for field in change.fields {
      value[field.name] = .some(field.after)
      if field.isBeforeKnown { origin[field.name] = .some(field.before) }
    }
    let merge = EditMerge(
      value: value, origin: origin, current: current,
      owed: known.entry?.pending == nil ? [] : Set(version?.dirty.keys.map { $0 } ?? []),
      rules: core.declared.conflicts[record.type], keepsNulls: true,
      later: Set(value.keys.filter { (stamps[$0]?.time ?? .zero) > change.time }))
    var merged = record
    let outcome = merge.apply(to: &merged)
    if outcome.refused.isEmpty { return try put(merged, creating: false) }
    merge.put(outcome.refused.lazy.map(\.name), into: &merged)
    try put(merged, refusing: outcome.refused, rule: merge.recordRule)
  }
}

extension StrandlineError {
  /// Whether it says that one transaction of an inbox cannot be taken in. Otherwise the store cannot take in any now.
  var isOfInboxChange: Bool {
    let codes: [Code] = [
      .recordWasDeleted, .recordExists, .noSuchRecord, .typeMismatch, .missingField, .invalidName, .invalidValue,
      .tooLarge, .foreignZone, .foreignScope,
    ]
    return !isOfIndex && (codes.contains(code) || isOfOneRecord)
  }
}
