// Deletions of a parent delete its children with it, by the app's rule. If such a pending deletion is undone, the children are restored
// too, as long as their deletions are not at the server either. And a child that another device has moved away stays.

import StrandlineLog
import StrandlineSystem

extension StoreCore {
  /// The deletion of a parent that caused a record's pending deletion; `.none` if none did.
  func cause(of pending: Pending?) throws -> LSN {
    guard let pending, pending.isDeletion, case .deleted(let deleted) = try event(at: pending.newest) else {
      return .zero
    }
    return deleted.cause
  }

  /// Whether another device has moved a record to another parent, while this device deleted it with its old one.
  ///
  /// - Parameter known: the newest version of it that this store knows to be part of the arriving one.
  func isMovedAway(
    _ id: RecordID, _ version: Version, _ known: Version?, _ pending: Pending?
  ) throws -> Bool {
    guard let known, let parent = declared.schema.childRule(of: version.type), try cause(of: pending) > .zero else {
      return false
    }
    func name(_ version: Version) -> String? { parent.parentName(version.fields[parent.storedField], of: id) }
    guard let above = name(version) else { return name(known) != nil }
    guard !name(known).equalsUTF8(above) else { return false }
    let found = try projections.look(RecordID(above, zone: id.zone))
    return found.entry.map { $0.view != nil } ?? (found.deletion == nil)
  }

  /// The descendants of a record whose pending deletion is undone, each before its children: those deleted in the same transaction
  /// that the server has and whose deletions are still pending.
  ///
  /// - Complexity: O(the transaction).
  func pendingBelow(_ id: RecordID, deletedAt lsn: LSN) throws -> [(id: RecordID, lsn: LSN)] {
    guard declared.schema.hasChildRules, let pending = try projections.entry(id)?.pending, pending.newest == lsn,
      pending.isDeletion
    else { return [] }
    let own = try cause(of: pending)
    let cause = own > .zero ? own : lsn
    var below: [CloudName: [(id: RecordID, lsn: LSN)]] = [:]
    try source.scan(after: cause, upTo: source.durableLSN) { found in
      // Compaction may have removed the whole transaction.
      guard !found.isFirst else { return false }
      let lsn = LSN(rawValue: found.lsn)
      if case .deleted(let deleted) = try found.decoded(), deleted.cause == cause, deleted.id.zone == id.zone,
        let entry = try projections.entry(deleted.id), entry.pending?.newest == lsn, let base = entry.base
      {
        let version = try load(base.content, of: deleted.id).version
        if let parent = declared.schema.childRule(of: version.type),
          let name = parent.parentName(version.fields[parent.storedField], of: deleted.id)
        {
          below[CloudName(name), default: []].append((deleted.id, lsn))
        }
      }
      return !found.isLast
    }
    var all: [(id: RecordID, lsn: LSN)] = []
    var open = [id.key]
    while let name = open.popLast() {
      for child in below.removeValue(forKey: name) ?? [] {
        all.append(child)
        open.append(child.id.key)
      }
    }
    return all
  }
}
