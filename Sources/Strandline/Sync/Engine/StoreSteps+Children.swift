// What becomes of records whose parent was deleted at the server, where the app has declared it: changes of this store, made
// when a zone has been fetched to its end and before anything is uploaded. A deletion by this store's app has done it itself.
//
// A deletion says nothing of the children, so the children of a deleted record are looked for, once for each fetch that
// brought a deletion. The zone stays due until that is done: a process that ends meanwhile does it later. Two devices
// that do it write the same.

import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Children changed in one transaction, which has room for as many of the greatest records.
  private static let childrenAtOnce = 50

  /// Does what the app has declared with the children in a zone whose parent was deleted.
  ///
  /// - Returns: the children that were looked at.
  /// - Complexity: O(records of the types that are declared so).
  func settleChildren(of zone: ZoneID) async throws -> [RecordID] {
    var settled: [RecordID] = []
    for (type, parent) in core.withLock({ $0.declared.schema }).childRules {
      let orphans = try orphans(ofType: type, in: zone, parent)
      for start in stride(from: 0, to: orphans.count, by: Self.childrenAtOnce) {
        let some = orphans[start..<min(orphans.count, start + Self.childrenAtOnce)]
        try await commit { core in
          try core.write { tx in
            for id in some { try tx.settleOrphan(id, parent) }
          }
        }
      }
      settled += orphans
    }
    return settled
  }
}

extension RecordStore {
  /// The living records of a type whose parent was deleted, in order. One that cannot be read stays as it is: `status` names
  /// the damage.
  fileprivate func orphans(ofType type: String, in zone: ZoneID, _ parent: ParentSchema) throws -> [RecordID] {
    var orphans: [RecordID] = []
    var gone: [CloudName: Bool] = [:]
    try view().forEachRecord(ofType: type, in: zone) { record in
      guard let name = parent.parentName(record) else { return }
      let isGone = try gone[name] ?? projections.isGone(RecordID(name, zone: zone))
      gone[name] = isGone
      if isGone { orphans.append(record.id) }
    } unreadable: { _ in
    }
    return orphans
  }
}

extension WriteTransaction {
  /// Applies to a child whose parent was deleted the rule of its type, unless the app has moved it meanwhile.
  fileprivate mutating func settleOrphan(_ id: RecordID, _ parent: ParentSchema) throws {
    guard let record = try find(id), let name = parent.parentName(record), let deletion = try ended(name, in: id.zone)
    else { return }
    switch parent.whenDeleted {
    case .keep: return
    // The records below it follow when the server has taken this: all of it may be more than a transaction holds.
    case .delete: try remove(id, cause: deletion.lsn)
    case .setNil, .move: try settle(id, withoutParentBy: parent)
    }
  }
}
