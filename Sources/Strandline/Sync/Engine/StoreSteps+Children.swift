// Applies the app's declared rule to records whose parent was deleted at the server. (For a deletion by this store's app, its own
// transaction did that.) This happens when a zone has been fetched to its end, before anything is uploaded.
//
// A deletion in the feed does not name the children, so after each fetch with deletions they are searched. The zone stays due
// until that is done, also after a relaunch. Two devices that do it write the same changes.

import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Children changed in one transaction, which has room for this many records of the greatest size.
  private static let childrenAtOnce = 50

  /// Applies the app's declared rule to the children in a zone whose parent was deleted.
  ///
  /// - Returns: the children.
  /// - Complexity: O(records of the types with such a rule).
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
  /// The living records of a type whose parent was deleted, in order. Unreadable ones are left alone: `status` shows the damage.
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
  /// Applies its type's rule to a child of a deleted record, unless the app has moved it meanwhile.
  fileprivate mutating func settleOrphan(_ id: RecordID, _ parent: ParentSchema) throws {
    guard let record = try find(id), let name = parent.parentName(record), let deletion = try ended(name, in: id.zone)
    else { return }
    switch parent.whenDeleted {
    case .keep: return
    // Its own children follow when the server has accepted this: all of them may not fit into one transaction.
    case .delete: try remove(id, cause: deletion.lsn)
    case .setNil, .move: try settle(id, withoutParentBy: parent)
    }
  }
}
