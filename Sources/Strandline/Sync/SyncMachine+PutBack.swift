// What a server that was put back to an earlier state has taken from this store before that was known.
//
// Such a server does not have what it acknowledged since, so a sweep or a comparison removes it here, as what was deleted
// elsewhere. Only an older version of a record shows what happened, and then the zone stops. When a person lets this store's
// side stand, what was removed since goes up again too, as far as the log still has it.

import StrandlineLog
import StrandlineSystem

extension SyncMachine {
  /// Records created again in one transaction.
  private static let createdAtOnce = 100

  /// Creates again what sweeps and comparisons have removed from a zone since its server went back in time, if that is what it
  /// was lost for. What has been learned of a name since stands.
  ///
  /// - Complexity: O(bytes of the log), and nothing unless the log says that the server went back.
  mutating func createAgainWhatWasTaken(from zone: ZoneID) async throws {
    let taken = try store.takenBeforeLoss(of: zone)
    for start in stride(from: 0, to: taken.count, by: Self.createdAtOnce) {
      let some = taken[start..<min(taken.count, start + Self.createdAtOnce)]
      try await store.commit { core in
        try core.write { tx in for one in some { try tx.create(one) } }
      }
      for one in some { try changed(one.id) }
    }
    if !taken.isEmpty { queue.referencesMayHaveChanged(in: zone) }
  }
}

extension RecordStore {
  /// The records that sweeps and comparisons have removed from a zone since the server, which went back in time, last
  /// acknowledged what it lacks now: with what they held, in the order of their names.
  fileprivate func takenBeforeLoss(of zone: ZoneID) throws -> [Record] {
    // What the server is known to lack, since the last sweep that has ended.
    var lacking: LSN?
    var removals: [RecordID: LSN] = [:]
    try source.scan(after: .none, upTo: source.durableLSN) { found in
      switch try EventSource.kind(found) {
      case .blocked:
        guard case .blocked(let event) = try EventSource.decode(found), event.id.zone == zone,
          event.subject == .version, event.lsn != .none
        else { break }
        lacking = min(lacking ?? event.lsn, event.lsn)
      case .sweepEnded:
        guard case .sweepEnded(let event) = try EventSource.decode(found), event.zone == zone else { break }
        lacking = nil
      case .fetchedDelete:
        guard case .fetchedDelete(let event) = try EventSource.decode(found), event.id.zone == zone,
          event.reason == .sweep
        else { break }
        removals[event.id] = LSN(found.lsn)
      default: break
      }
      return true
    }
    guard let lacking else { return [] }
    removals = try removals.filter { id, removal in
      let known = try projections.look(id)
      return removal > lacking && known.entry == nil && known.deletion?.lsn == removal
    }
    return try lastVersions(before: removals)
  }

  /// What the server had of some records before their removal, as far as the log still has it, in the order of their names.
  private func lastVersions(before removals: [RecordID: LSN]) throws -> [Record] {
    guard !removals.isEmpty else { return [] }
    var contents: [RecordID: LSN] = [:]
    try source.scan(after: .none, upTo: source.durableLSN) { found in
      let lsn = LSN(found.lsn)
      switch try EventSource.kind(found) {
      case .fetchedSave:
        guard let id = try EventSource.decode(found).recordID, let removal = removals[id], lsn < removal else { break }
        contents[id] = lsn
      case .settled:
        guard case .settled(let event) = try EventSource.decode(found), event.outcome == .saved,
          event.changeTag != nil, let removal = removals[event.id], lsn < removal
        else { break }
        contents[event.id] = event.lsn
      default: break
      }
      return true
    }
    var records: [Record] = []
    for (id, content) in contents.sorted(by: { $0.key < $1.key }) {
      guard let event = try source.eventIfKept(at: content), let loaded = try LoadedVersion(event, at: content) else {
        continue
      }
      let version = loaded.version
      records.append(Record(type: version.type, id: id, values: version.fields, system: nil))
    }
    return records
  }
}
