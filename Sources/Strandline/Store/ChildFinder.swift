// Which records hang below others, for a transaction that deletes these.
//
// No table says it. A hint names each record that may hang below another one, and the record itself says whether it does: hints
// are made of what memory has, of what the transaction writes, and of the rows of an index that the store keeps for each type
// with a rule for deleted parents. Until that is built all records of the type are read, once a transaction.

import StrandlineLog
import StrandlineSystem

/// What the records that lie in memory hang below, by the event that holds the record. So a deletion reads what was written since
/// the last one. Only durable events are in it: another one may yet get the number of one that is not.
struct ParentNames: Sendable {
  private static let countMax = 1 << 16
  private var known: [LSN: CloudName?] = [:]

  subscript(lsn: LSN) -> CloudName?? {
    get { known[lsn] }
    set {
      if known.count >= Self.countMax { known = [:] }
      known[lsn] = newValue
    }
  }
}

/// Finds children, from the moment of the transaction at which it was made.
struct ChildFinder {
  /// A child, and what its type declares.
  typealias Child = (id: RecordID, parent: ParentSchema)

  private let rules: [(type: String, parent: ParentSchema)]
  /// They have every record that neither memory had nor the transaction has written since.
  private let runs: RunSet?
  private var hints: [RecordID: Set<RecordID>] = [:]
  /// The types of which no index is built, and of which the runs were read.
  private var typesRead: Set<String> = []

  /// - Complexity: O(changes in memory).
  init(_ core: inout StoreCore) throws {
    rules = core.declared.schema.childRules
    let (memory, durable) = (
      core.projections.withLock { $0.scanMemory(asOf: $0.appliedLSN) }, core.source.durableLSN
    )
    runs = memory.runs
    for (number, part) in memory.changed.enumerated() {
      for (id, entry) in part {
        guard let entry, let lsn = entry.view, let parent = core.declared.schema.childRule(of: entry.type),
          !memory.changed[(number + 1)...].contains(where: { $0.keys.contains(id) })
        else { continue }
        if let known = core.parentNames[lsn] {
          if let known { note(id, below: known.text) }
          continue
        }
        let name = try Self.parentName(of: id, entry, parent, core)
        if lsn <= durable { core.parentNames[lsn] = .some(name.map { CloudName($0) }) }
        if let name { note(id, below: name) }
      }
    }
  }

  /// A record may hang below another one of its zone from now on.
  mutating func note(_ id: RecordID, below name: String) {
    hints[RecordID(name, zone: id.zone), default: []].insert(id)
  }

  /// The living records below some others, in order, of types with a rule.
  ///
  /// - Complexity: O(children · log(records)) where the indexes are built; else O(records of the types), once.
  mutating func children(of parents: [RecordID], _ core: borrowing StoreCore) throws -> [Child] {
    var found: Set<RecordID> = []
    for (type, parent) in rules {
      guard let runs else { break }
      let index = runs.indexes.first { $0.index == RecordIndex(parentOf: type, parent) }
      if let index {
        for id in parents { try Self.visit(index.childPrefixes(of: id), index, runs) { found.insert($0) } }
      } else if !typesRead.contains(type) {
        try read(type, parent, runs, core)
        typesRead.insert(type)
      }
    }
    for id in parents { found.formUnion(hints[id] ?? []) }
    let set = Set(parents)
    return try found.sorted().compactMap { id in
      guard let entry = try core.projections.entry(id), let parent = core.declared.schema.childRule(of: entry.type),
        let name = try Self.parentName(of: id, entry, parent, core), set.contains(RecordID(name, zone: id.zone))
      else { return nil }
      return (id, parent)
    }
  }

  private static func visit(
    _ prefixes: [[UInt8]], _ index: StoredIndex, _ runs: RunSet, _ body: (RecordID) -> Void
  ) throws(StrandlineError) {
    do throws(RunError) {
      for prefix in prefixes {
        var cursor = try MergedCursor(runs.runs, from: prefix)
        while try cursor.advance(), cursor.key.starts(with: prefix) {
          guard let key = index.recordKey(cursor.key), let id = RowKey.recordID(key) else {
            throw RunError(.damaged, runs.runs.first?.path ?? "", "a row of an index is of no record")
          }
          body(id)
        }
      }
    } catch {
      throw runs.fail(error)
    }
  }

  /// Notes what all records of a type hang below that the runs have.
  private mutating func read(
    _ type: String, _ parent: ParentSchema, _ runs: RunSet, _ core: borrowing StoreCore
  ) throws {
    var scan = try EntryScan(EntryScan.Memory(changed: [], runs: runs), EntryScan.Range())
    while let (id, found) = try scan.next() {
      guard found.entry.type == type, let entry = try core.projections.entry(id), entry.view != nil,
        let name = try Self.parentName(of: id, entry, parent, core)
      else { continue }
      note(id, below: name)
    }
  }

  /// What a record hangs below. One that cannot be read hangs below nothing: `status` names the damage.
  private static func parentName(
    of id: RecordID, _ entry: RecordEntry, _ parent: ParentSchema, _ core: borrowing StoreCore
  ) throws -> String? {
    do throws(StrandlineError) {
      return try core.shown(id, entry).flatMap { parent.parentName($0.record(id, system: nil)) }
    } catch {
      guard error.isOfOneRecord else { throw error }
      return nil
    }
  }
}

extension ParentSchema {
  /// The field that names the parent, as versions have it.
  var storedField: String { field ?? Version.parentField }
}

extension RecordIndex {
  /// The index on the field that names the parent of the records of a type.
  init(parentOf recordType: String, _ parent: ParentSchema) { self.init(recordType, parent.storedField) }
}

extension Schema {
  /// The indexes by which the children of a deleted record are found.
  var childIndexes: [RecordIndex] { childRules.map { RecordIndex(parentOf: $0.type, $0.parent) } }

  /// The rule for a type's records whose parent is deleted; nil if they stay as they are.
  func childRule(of type: String) -> ParentSchema? {
    self[type].parent.flatMap { $0.whenDeleted == .keep ? nil : $0 }
  }
}
