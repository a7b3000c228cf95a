// The store's part of a sweep (Plan/SyncPlan+Sweeps.swift says why there are sweeps): the first page of a full fetch begins it, each
// page marks the records that it shows, and at the end the store finds those that no page has shown.

import StrandlineLog
import StrandlineSystem

extension StoreCore {
  /// Begins a sweep of a zone, with the first page of its full fetch, unless this store has nothing that it could remove or release.
  mutating func beginSweep(of zone: ZoneID) throws {
    let (hasGhosts, living, isUnread) = projections.withLock { state in
      (
        state.sync.zones[zone]?.hasGhosts, state.records.living[zone]?.total,
        state.sync.unread.keys.contains { $0.zone == zone }
      )
    }
    guard hasGhosts == true || living ?? 0 > 0 || isUnread else { return }
    let epoch = projections.appliedLSN.rawValue + 1
    let state = projections.sync.zones[zone] ?? ZoneState()
    let since = state.unprovedSince == 0 ? max(1, state.tokenLSN.rawValue) : state.unprovedSince
    try append(.sweepBegan(SweepBegan(zone: zone, epoch: epoch, since: since)))
  }

  /// Marks a page's records as seen by the open sweep, except those whose newer bases say so already. Returns the sweep's epoch; 0
  /// if none is open.
  ///
  /// - Parameter age: since when the zone is known to exist.
  mutating func confirm(_ changes: [ServerChange], in zone: ZoneID, age: ZoneAge) throws -> UInt64 {
    guard let epoch = projections.sync.zones[zone]?.sweepEpoch, epoch != 0 else { return 0 }
    let names = try changes.filter { change in
      switch change.kind {
      case .version, .listed, .unreadable:
        try projections.sync.unread[change.id] != nil
          || projections.entry(change.id)?.base.map { $0.version.rawValue <= epoch } ?? false
      case .deletion, .absence, .unseen: false
      }
    }.map(\.id.name)
    if age.lsn != nil || !names.isEmpty { try append(.confirmed(Confirmed(zone: zone, names: names, age: age))) }
    return epoch
  }

  /// Since when a zone is known to exist, by changes that are not applied yet: a record that this store has, with the same creation
  /// time, or one that it knows to be deleted. If this store had it before the zone was in doubt, it is the zone that was fetched.
  /// If later, it may be from another zone of that name.
  func age(of zone: ZoneID, shownBy changes: [ServerChange]) throws -> ZoneAge {
    let proved = LSN(rawValue: projections.sync.zones[zone]?.unprovedSince ?? 0)
    // If a known name has a record with another creation time, someone has filled the zone again, perhaps a new one of that name. Then
    // a tombstone may be of a record in the new zone, and proves nothing.
    let isFilledAgain = try changes.contains { change in
      switch change.kind {
      case .version(let server), .listed(let server):
        try projections.entry(change.id)?.base.map {
          $0.createdMilliseconds != nil && !$0.isOfLife(of: server)
        } ?? false
      case .deletion, .absence, .unseen, .unreadable: false
      }
    }
    var age = ZoneAge()
    for change in changes {
      let known: (lsn: LSN, created: Int64?)?
      switch change.kind {
      case .version(let server), .listed(let server):
        let base = try projections.entry(change.id)?.base
        known = base.flatMap { base in
          base.isOfLife(of: server) ? (lsn: base.version, created: base.createdMilliseconds) : nil
        }
      case .deletion:
        guard !isFilledAgain else { continue }
        let look = try projections.look(change.id)
        // A deletion that the server has not confirmed proves nothing.
        let deletion = look.deletion.flatMap { $0.isProvisional ? nil : $0 }
        known =
          look.entry?.base.map { (lsn: $0.version, created: $0.createdMilliseconds) }
          ?? deletion.map { (lsn: $0.lsn, created: $0.createdMilliseconds) }
      case .absence, .unseen, .unreadable: known = nil
      }
      guard let found = known else { continue }
      if found.lsn <= proved { return .fetched }
      age.add(found.lsn, found.created)
    }
    return age
  }
}

extension RecordStore {
  /// The living synced records of a zone, in order, each with its base.
  func synced(in zone: ZoneID) throws -> [(id: RecordID, base: Base)] {
    var found: [(id: RecordID, base: Base)] = []
    try view().forEachLiving(ofType: nil, in: EntryScan.Range(zone: zone)) { id, entry in
      if let base = entry.entry.base { found.append((id, base)) }
      return true
    }
    return found
  }

  /// The living synced records of a zone that its sweep has not seen, and the unreadable ones that it has not seen either.
  ///
  /// - Complexity: O(records of the zone + events since the sweep began).
  func absences(from zone: ZoneID, sinceSweep epoch: UInt64) throws -> AbsenceProof {
    // Hashes of names: after a collision an absent record stays until the next sweep.
    var confirmed: Set<Int> = []
    var age = ZoneAge()
    let proved = LSN(rawValue: projections.sync.zones[zone]?.unprovedSince ?? 0)
    try source.scan(after: LSN(rawValue: epoch), upTo: source.durableLSN) { found in
      switch try found.kind() {
      case .confirmed:
        guard case .confirmed(let event) = try found.decoded(), event.zone == zone else { break }
        for name in event.names { confirmed.insert(CloudName(name).hashValue) }
        age.add(event.age)
      case .held:
        // A version that could not be read was shown all the same, by a page or by a lookup.
        guard case .held(let held) = try found.decoded(), held.direction == .download, held.id.zone == zone
        else { break }
        confirmed.insert(held.id.key.hashValue)
      default: break
      }
      return true
    }
    var absent: [AbsenceProof.Absent] = []
    var living = 0
    try view().forEachLiving(ofType: nil, in: EntryScan.Range(zone: zone)) { id, found in
      guard let base = found.entry.base else { return true }
      living += 1
      if base.version.rawValue <= epoch, !confirmed.contains(id.key.hashValue) {
        absent.append(AbsenceProof.Absent(id, base))
      }
      return true
    }
    let unread = projections.withLock { state in
      state.sync.unread.values.filter { !$0.isShelved && $0.id.zone == zone }.map(\.id)
    }
    return AbsenceProof(
      living: living, age: age, provedUpTo: proved, absent: absent,
      unread: unread.filter { !confirmed.contains($0.key.hashValue) })
  }
}
