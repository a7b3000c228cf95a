// The part of a sweep that the store does: it begins with the first page of a full fetch, each page confirms what it shows, and at
// the end the store finds what no page has shown. Why there are sweeps is told in Plan/SyncPlan+Sweeps.swift.

import StrandlineLog
import StrandlineSystem

extension StoreCore {
  /// Begins a sweep of a zone, with the first page of its full fetch, unless there is nothing here that it could remove or
  /// release.
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

  /// Appends which of a page's records the open sweep has seen, as far as their bases do not say it. Returns the sweep's
  /// epoch; 0 if none is open.
  ///
  /// - Parameter knownSince: since when the zone is known to have been there; nil if nothing says it.
  mutating func confirm(_ changes: [ServerChange], in zone: ZoneID, knownSince: Int64?) throws -> UInt64 {
    guard let epoch = projections.sync.zones[zone]?.sweepEpoch, epoch != 0 else { return 0 }
    let names = try changes.filter { change in
      switch change.kind {
      case .version, .listed, .unreadable:
        try projections.sync.unread[change.id] != nil
          || projections.entry(change.id)?.base.map { $0.version.rawValue <= epoch } ?? false
      case .deletion, .absence, .unseen: false
      }
    }.map(\.id.name)
    if knownSince != nil || !names.isEmpty {
      try append(.confirmed(Confirmed(zone: zone, names: names, knownSince: knownSince)))
    }
    return epoch
  }

  /// Since when a zone is known to have been there, by what changes show that are not applied yet: a record that this store has, of
  /// the same life by its creation at the server, or one that it knows to be deleted. 0 if that came here before the zone came into
  /// doubt; else the moment of its creation, as it may have been uploaded to another zone of that name. Nil without any.
  func knownSince(_ changes: [ServerChange], in zone: ZoneID) throws -> Int64? {
    let proved = LSN(rawValue: projections.sync.zones[zone]?.unprovedSince ?? 0)
    // Where a known name has a record of another creation, the zone, or a part of it, was filled again: there a tombstone may be
    // of another zone of that name in which this name was used again.
    let isFilledAgain = try changes.contains { change in
      switch change.kind {
      case .version(let server), .listed(let server):
        try projections.entry(change.id)?.base.map {
          $0.createdMilliseconds != nil && !$0.isOfLife(of: server)
        } ?? false
      case .deletion, .absence, .unseen, .unreadable: false
      }
    }
    var since: Int64?
    for change in changes where since != 0 {
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
        // A deletion that the server has not confirmed says nothing of what it has deleted.
        let deletion = look.deletion.flatMap { $0.isProvisional ? nil : $0 }
        known =
          look.entry?.base.map { (lsn: $0.version, created: $0.createdMilliseconds) }
          ?? deletion.map { (lsn: $0.lsn, created: $0.createdMilliseconds) }
      case .absence, .unseen, .unreadable: known = nil
      }
      guard let found = known else { continue }
      if found.lsn <= proved {
        since = 0
      } else if let created = found.created {
        since = min(since ?? created, created)
      }
    }
    return since
  }
}

extension RecordStore {
  /// The living records of a zone that were synced, in order, each with its base.
  func synced(in zone: ZoneID) throws -> [(id: RecordID, base: Base)] {
    var found: [(id: RecordID, base: Base)] = []
    try view().forEachLiving(ofType: nil, in: EntryScan.Range(zone: zone)) { id, entry in
      if let base = entry.entry.base { found.append((id, base)) }
      return true
    }
    return found
  }

  /// The living records of a zone that were synced and that its sweep has not seen; and the records whose versions could not
  /// be read, and that its sweep has not seen either.
  ///
  /// - Complexity: O(records of the zone + events since the sweep began).
  func absences(from zone: ZoneID, sinceSweep epoch: UInt64) throws -> AbsenceProof {
    // A record that two names' hashes hide stays until the next sweep.
    var confirmed: Set<Int> = []
    var knownSince: Int64?
    let proved = LSN(rawValue: projections.sync.zones[zone]?.unprovedSince ?? 0)
    try source.scan(after: LSN(rawValue: epoch), upTo: source.durableLSN) { found in
      switch try EventSource.kind(found) {
      case .confirmed:
        guard case .confirmed(let event) = try EventSource.decode(found), event.zone == zone else { break }
        for name in event.names { confirmed.insert(CloudName(name).hashValue) }
        if let since = event.knownSince { knownSince = min(knownSince ?? since, since) }
      case .held:
        // What came since and could not be read was shown, by a page or by the answer to a lookup.
        guard case .held(let held) = try EventSource.decode(found), held.direction == .download, held.id.zone == zone
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
      living: living, knownSince: knownSince, provedUpTo: proved, absent: absent,
      unread: unread.filter { !confirmed.contains($0.key.hashValue) })
  }
}

extension Base {
  /// Whether the server's version is of the life of this one, by the moment of its creation there, which no change changes.
  func isOfLife(of server: ServerRecord) -> Bool {
    guard let createdMilliseconds else { return false }
    return createdMilliseconds == server.system.created?.milliseconds
  }
}
