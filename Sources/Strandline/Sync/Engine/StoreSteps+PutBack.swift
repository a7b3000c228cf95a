// Restores records that this store lost to a server that was restored from a backup.
//
// Such a server lacks newer records that it had acknowledged, so a sweep or a comparison removes them here, as if they were deleted
// elsewhere. Only when an older version of a record arrives is the cause clear, and the zone is set aside. If a person
// then chooses this store's side, the removed records are created again too, as far as the log still has them.

import StrandlineLog
import StrandlineSystem

/// A record that a sweep or a comparison has removed.
private struct TakenRecord {
  let id: RecordID
  /// The event that removed it.
  let removal: LSN
  /// The event with its last version.
  let content: LSN
}

extension RecordStore {
  /// The bytes after which a transaction ends, which can take little more.
  private static let createdBytesMax = 8 << 20
  /// Records created again in one transaction.
  private static let createdMax = 100

  /// Creates records again that sweeps and comparisons have removed from a zone since its server went back to an older state. Creates
  /// nothing if no older version has shown that it did, and no record whose name is in use again.
  ///
  /// - Parameter epoch: the zone's sweep, which began with a person's decision for this store's side.
  /// - Returns: the records.
  /// - Complexity: O(bytes of the log).
  func createAgainWhatWasTaken(from zone: ZoneID, epoch: UInt64) async throws -> [RecordID] {
    var some: [(taken: TakenRecord, loaded: LoadedVersion)] = []
    var bytes = 0
    let all = try takenBeforeLoss(of: zone)
    for (number, taken) in all.enumerated() {
      if let event = try source.eventIfKept(at: taken.content),
        let loaded = try LoadedVersion(event, at: taken.content)
      {
        some.append((taken, loaded))
        bytes += EventCodec.encode(event).count
      }
      guard bytes >= Self.createdBytesMax || some.count >= Self.createdMax || number == all.count - 1 else { continue }
      let batch = some
      try await commit { core in
        for (taken, loaded) in batch {
          // The app may have used the name meanwhile, or a person may have decided otherwise.
          let known = try core.projections.look(taken.id)
          guard let state = core.projections.sync.zones[zone], !state.isLost, state.sweepEpoch == epoch,
            state.resetPolicy == ResyncSource.here.rawValue, known.entry == nil, known.deletion?.lsn == taken.removal
          else { continue }
          try core.create(loaded, taken.id)
        }
      }
      (some, bytes) = ([], 0)
    }
    return all.map(\.id)
  }
}

extension RecordStore {
  /// The records that sweeps and comparisons have removed after the last acknowledgement that the server is known to have lost, in
  /// the order of their names.
  fileprivate func takenBeforeLoss(of zone: ZoneID) throws -> [TakenRecord] {
    // The versions that the server is known to lack, since the end of the last sweep.
    var lacking: [RecordID: LSN] = [:]
    // The modified times, by the server's clock, of the versions that it showed since.
    var shown: [(lacked: LSN, modified: Int64)] = []
    var removals: [RecordID: LSN] = [:]
    try source.scan(after: .zero, upTo: source.durableLSN) { found in
      switch try found.kind() {
      case .blocked:
        guard case .blocked(let event) = try found.decoded(), event.id.zone == zone,
          event.subject == .version, event.lsn != .zero
        else { break }
        lacking[event.id] = event.lsn
      case .fetchedSave where !lacking.isEmpty:
        guard case .fetchedSave(let event) = try found.decoded(), let lacked = lacking[event.id],
          let modified = event.modified?.milliseconds
        else { break }
        shown.append((lacked, modified))
      case .sweepEnded:
        guard case .sweepEnded(let event) = try found.decoded(), event.zone == zone else { break }
        (lacking, shown) = ([:], [])
      case .fetchedDelete:
        guard case .fetchedDelete(let event) = try found.decoded(), event.id.zone == zone,
          event.reason == .sweep
        else { break }
        removals[event.id] = LSN(found.lsn)
      default: break
      }
      return true
    }
    guard let last = lacking.values.max() else { return [] }
    // The server's state is from after the newest of these older versions: a record that was created before that and is missing had
    // really been deleted.
    let older = try shown.filter { one in
      try modifiedMilliseconds(at: one.lacked).map { one.modified < $0 } ?? false
    }
    let newest = older.map(\.modified).max()
    removals = try removals.filter { id, removal in
      let known = try projections.look(id)
      guard removal > last, known.entry == nil, let deletion = known.deletion, deletion.lsn == removal else {
        return false
      }
      guard let newest, let created = deletion.createdMilliseconds else { return true }
      return created > newest
    }
    return try lastVersions(before: removals)
  }

  /// When the server changed the version that an event brought, by its clock.
  private func modifiedMilliseconds(at lsn: LSN) throws -> Int64? {
    switch try source.eventIfKept(at: lsn) {
    case .fetchedSave(let event)?: event.modified?.milliseconds
    case .settled(let event)?: event.modified?.milliseconds
    default: nil
    }
  }

  /// The events with the server's last versions of some records before their removal, in the order of the records' names.
  private func lastVersions(before removals: [RecordID: LSN]) throws -> [TakenRecord] {
    guard !removals.isEmpty else { return [] }
    var contents: [RecordID: LSN] = [:]
    try source.scan(after: .zero, upTo: source.durableLSN) { found in
      let lsn = LSN(found.lsn)
      switch try found.kind() {
      case .fetchedSave:
        guard let id = try found.decoded().recordID, let removal = removals[id], lsn < removal else { break }
        contents[id] = lsn
      case .settled:
        guard case .settled(let event) = try found.decoded(), event.outcome == .saved,
          event.changeTag != nil, let removal = removals[event.id], lsn < removal
        else { break }
        contents[event.id] = event.lsn
      default: break
      }
      return true
    }
    return contents.sorted { $0.key < $1.key }.compactMap { id, content in
      removals[id].map { TakenRecord(id: id, removal: $0, content: content) }
    }
  }
}
