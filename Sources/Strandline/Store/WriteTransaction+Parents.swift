// Records below others in a transaction: what becomes of them when these are deleted, and that none is below itself.

import StrandlineSystem

/// What a deletion does to the records below the one that it deletes.
private struct Subtree {
  /// Those that are deleted, each before its children.
  var deleted: [RecordID] = []
  /// Those that stay without their parent, or below another one.
  var left: [ChildFinder.Child] = []
}

extension WriteTransaction {
  // MARK: Deleting

  /// Deletes a record, and applies to those below it the rules that their types declare.
  ///
  /// - Returns: what was deleted; empty if the record does not live.
  mutating func removeTree(_ id: RecordID) throws -> [RecordID] {
    let noted = core.inboxWrite?.changes
    var births: Set<Birth> = []
    if noted != nil, let view = try core.projections.entry(account.canonical(id))?.view {
      births = try core.births(view, of: account.canonical(id))
    }
    let removed = try removeAll(id)
    // What becomes of the records below it, the store decides when it takes the deletion in.
    if let noted, !removed.isEmpty {
      core.inboxWrite?.changes = noted
      core.noteForInbox(.delete, removed[0], "", births) { [] }
    }
    return removed
  }

  private mutating func removeAll(_ id: RecordID) throws -> [RecordID] {
    let id = account.canonical(id)
    guard core.declared.schema.hasChildRules, try core.projections.entry(id)?.view != nil else {
      return try remove(id) == nil ? [] : [id]
    }
    // All is read before anything is written.
    let below = try subtree(of: id)
    guard let cause = try remove(id) else { return [] }
    do {
      for child in below.deleted { try remove(child, cause: cause) }
      for child in below.left { try settle(child.id, withoutParentBy: child.parent) }
      try checkFits(in: id.zone)
    } catch let error as StrandlineError where error.code == .tooLarge {
      throw tooLarge(below, of: id, error)
    }
    return [id] + below.deleted
  }

  private mutating func subtree(of id: RecordID) throws -> Subtree {
    // If a table fails meanwhile, memory has other records than before.
    for _ in 0..<2 {
      do { return try findSubtree(of: id) } catch let error as StrandlineError where error.isOfIndex {
        finder = nil
        try core.projections.discardIndex(error)
      }
    }
    return try findSubtree(of: id)
  }

  private mutating func findSubtree(of id: RecordID) throws -> Subtree {
    var finder = if let finder { finder } else { try ChildFinder(&core) }
    self.finder = nil
    defer { self.finder = finder }
    var below = Subtree()
    var met: Set<RecordID> = [id]
    var level = [id]
    while !level.isEmpty {
      let children = try finder.children(of: level, core).filter { met.insert($0.id).inserted }
      level = children.filter { $0.parent.whenDeleted == .delete }.map(\.id)
      below.deleted += level
      below.left += children.filter { $0.parent.whenDeleted != .delete }
    }
    return below
  }

  /// Takes the parent of a record away, or moves it, as its type declares for a deleted parent. Another tool may have made it larger than a
  /// save may be: then the server says whether it takes it.
  mutating func settle(_ id: RecordID, withoutParentBy parent: ParentSchema) throws {
    guard var record = try find(id) else { return }
    var place: String?
    if case .move(let target) = parent.whenDeleted, try !isDeleted(RecordID(target, zone: id.zone)),
      try cycle(from: id, below: target) == nil
    {
      place = target
    }
    parent.put(&record, below: place)
    try put(record, creating: false, checksSize: false)
  }

  /// Whether a record was deleted, here or elsewhere, and no life of it is left that the app sees.
  func isDeleted(_ id: RecordID) throws -> Bool {
    let known = try core.projections.look(id)
    return known.entry?.view == nil && known.deletion != nil
  }

  private func tooLarge(_ below: Subtree, of id: RecordID, _ error: StrandlineError) -> StrandlineError {
    let count = below.deleted.count + below.left.count
    guard count > 0 else { return error }
    return StrandlineError(
      .tooLarge,
      "\(count) records below '\(id)' are changed with it, and that is more than one transaction holds: \(error.message); "
        + "delete the records below it first, the lowest first and in several transactions, and then this one")
  }

  // MARK: Cycles

  /// Refuses a parent by which a record would be below itself.
  ///
  /// - Parameters:
  ///   - changed: the fields that are written; nil: all.
  ///   - value: what the record's fields are to be.
  /// - Complexity: O(depth) reads where the parent is written.
  func checkParents(
    of id: RecordID, _ type: String, _ changed: [String]?, _ value: (String) -> FieldValue?
  ) throws {
    let declared = parentField(of: type)
    try checkParent(of: id, changed?.contains(declared) == false ? nil : value(declared))
    if declared != Version.parentField {
      try checkParent(of: id, changed?.contains(Version.parentField) == false ? nil : value(Version.parentField))
    }
  }

  private func checkParent(of id: RecordID, _ value: FieldValue?) throws {
    guard let value, let name = Self.named(value, by: id), let cycle = try cycle(from: id, below: name) else { return }
    let names = cycle.count > 12 ? cycle.prefix(6) + ["…"] + cycle.suffix(5) : cycle[...]
    throw StrandlineError(
      .invalidValue,
      "record '\(id)' would be below itself: " + names.map { "'\($0)'" }.joined(separator: " is below ")
        + "; put it below another record, or take the parent of one of these away first")
  }

  /// The records from one to itself, if it is put below another one; nil if it is not above that one.
  private func cycle(from id: RecordID, below name: String) throws -> [String]? {
    var path = [id.name]
    // Those that came from the server may be in a cycle that this record is not in.
    var met: Set<CloudName> = []
    var next = name
    while true {
      path.append(next)
      if next.equalsUTF8(id.name) { return path }
      guard met.insert(CloudName(next)).inserted, let above = try parent(of: RecordID(next, zone: id.zone)) else {
        return nil
      }
      next = above
    }
  }

  /// What a record is below; nil also if it does not live, or cannot be read.
  private func parent(of id: RecordID) throws -> String? {
    do {
      guard let record = try find(id) else { return nil }
      let field = parentField(of: record.type)
      return field == Version.parentField ? record.parent : record[field].flatMap { Self.named($0, by: id) }
    } catch let error as StrandlineError where error.isOfOneRecord {
      return nil
    }
  }

  private func parentField(of type: String) -> String {
    core.declared.schema[type].parent?.storedField ?? Version.parentField
  }

  /// The record of its own zone that a record's field names, which may be itself.
  private static func named(_ value: FieldValue, by id: RecordID) -> String? {
    switch value {
    case .reference(let reference) where reference.zone == nil || reference.zone == id.zone: reference.name
    case .string(let text) where !text.isEmpty: text
    default: nil
    }
  }
}
