// What becomes of records whose parent was deleted, where the app has declared it: changes of this store, made when a zone
// has been fetched to its end and before anything is uploaded.
//
// A deletion says nothing of the children, so the children of a deleted record are looked for, once for each fetch that
// brought a deletion. The zone stays due until that is done: a process that ends meanwhile does it later. Two devices
// that do it write the same.

import StrandlineSystem
import Synchronization

extension SyncMachine {
  /// Children changed in one transaction, which has room for as many of the greatest records.
  private static let childrenAtOnce = 50

  private var schema: Schema { store.core.withLock { $0.schema } }

  /// The zones that an earlier process did not fetch to their end may have such children.
  mutating func beginChildReviews() {
    guard childReviews == nil else { return }
    guard !schema.childRules.isEmpty else { return childReviews = [] }
    let (scope, zones) = (scope, store.projections.withLock { $0.sync.zones })
    childReviews = Set(zones.lazy.filter { $0.key.scope == scope && $0.value.isDirty }.map(\.key))
  }

  /// Whether the children in a zone have to be looked at when it is fetched to its end; a page may bring a reason.
  mutating func reviewsChildren(of zone: ZoneID, after page: ZonePage) throws -> Bool {
    let schema = schema
    guard !schema.childRules.isEmpty else { return false }
    let brings = try page.changes.contains { change in
      switch change {
      case .failed: return false
      case .deleted: return true
      case .saved(let server):
        guard let parent = schema[server.type].parent, parent.whenDeleted != .keep,
          let name = parent.parentName(server, of: RecordID(server.name, zone: zone))
        else { return false }
        return try store.isGone(RecordID(name, zone: zone))
      }
    }
    if brings { childReviews?.insert(zone) }
    return childReviews?.contains(zone) == true
  }

  /// Does what the app has declared with the children in a zone whose parent was deleted.
  ///
  /// - Complexity: O(records of the types that are declared so) if there is a reason, else O(1).
  mutating func settleChildren(of zone: ZoneID) async throws {
    guard childReviews?.contains(zone) == true else { return }
    for (type, parent) in schema.childRules {
      let orphans = try store.orphans(ofType: type, in: zone, parent)
      for start in stride(from: 0, to: orphans.count, by: Self.childrenAtOnce) {
        let some = orphans[start..<min(orphans.count, start + Self.childrenAtOnce)]
        try await store.commit { core in
          try core.write { tx in
            for id in some { try tx.settleOrphan(id, parent) }
          }
        }
        for id in some { try changed(id) }
        queue.referencesMayHaveChanged(in: zone)
      }
    }
    try await store.commit { core in
      // An open sweep ends later.
      guard let state = core.projections.sync.zones[zone], state.isDirty, state.sweepEpoch == 0 else { return }
      try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
    }
    childReviews?.remove(zone)
  }
}

extension RecordStore {
  /// Whether a record was deleted, and the server agrees.
  fileprivate func isGone(_ id: RecordID) throws -> Bool {
    let known = try projections.look(id)
    return known.entry == nil && known.deletion != nil
  }

  /// The living records of a type whose parent was deleted, in order. One that cannot be read stays as it is: `status` names
  /// the damage.
  fileprivate func orphans(ofType type: String, in zone: ZoneID, _ parent: ParentSchema) throws -> [RecordID] {
    var orphans: [RecordID] = []
    var gone: [CloudName: Bool] = [:]
    try view().forEachRecord(ofType: type, in: zone) { record in
      guard let name = parent.parentName(record) else { return }
      let isGone = try gone[name] ?? self.isGone(RecordID(name, zone: zone))
      gone[name] = isGone
      if isGone { orphans.append(record.id) }
    } unreadable: { _ in
    }
    return orphans
  }
}

extension WriteTransaction {
  /// Does with a child whose parent was deleted what is declared, unless the app has moved it meanwhile. Another tool may have made
  /// it larger than a save may be: then the server says whether it takes it.
  fileprivate mutating func settleOrphan(_ id: RecordID, _ parent: ParentSchema) throws {
    guard var record = try find(id), let name = parent.parentName(record), try isGone(RecordID(name, zone: id.zone))
    else { return }
    switch parent.whenDeleted {
    case .keep: return
    case .delete: try delete(id)
    case .setNil:
      parent.put(&record, below: nil)
      try put(record, creating: false, checksSize: false)
    case .move(let target):
      parent.put(
        &record, below: try target.equalsUTF8(id.name) || isGone(RecordID(target, zone: id.zone)) ? nil : target)
      try put(record, creating: false, checksSize: false)
    }
  }
}
