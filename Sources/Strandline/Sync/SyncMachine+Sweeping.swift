// The end of a full fetch: what was synced and was not shown is gone at the server.
//
// A token that expires takes with it the deletions that lay behind it, so a full fetch alone would leave records here for
// ever that no other device has. The sweep begins in the transaction of the fetch's first page. Each page confirms the
// records that it shows unchanged; the others have a base that is newer than the sweep. When the last page is in, each
// record that neither is true of is removed, with its births in the deletion index; a change of it that is not sent stays, and
// what the server says to that decides.
//
// A server that lists much less than it once acknowledged may be wrong, and a zone that another device has emptied or made
// anew looks the same. So a sweep that would remove much stops, and the zone waits for a person.

import StrandlineSystem

/// Which side of a zone stands where this store has records that the server does not have. What both have is synced as ever.
public enum ResyncSource: String, Hashable, Sendable, CaseIterable {
  /// The server's: what it does not have is removed here, however much that is.
  case server
  /// This store's: what the server does not have is uploaded again, as if it were created now.
  case here
}

extension SyncMachine {
  /// So many records a sweep may remove, or this part of the zone's if that is more.
  static let sweptMax = 100
  static let sweptPart = 5
  /// Records removed in one transaction.
  private static let removedAtOnce = 1_000

  /// Ends the zone's sweep, if one is open: the last page is in.
  mutating func endSweep(of zone: ZoneID) async throws {
    guard let state = self.zone(zone), state.sweepEpoch != 0 else { return }
    var (absent, living, unread) = try store.absent(from: zone, sinceSweep: state.sweepEpoch)
    if state.resetPolicy == ZoneState.keepsAbsent { (absent, unread) = ([], []) }
    let source = ResyncSource(rawValue: state.resetPolicy)
    guard source != nil || absent.count <= max(Self.sweptMax, living / Self.sweptPart) else {
      return try await freeze(zone, absent: absent.count, living: living)
    }
    try await remove(absent, from: zone, source)
    let (seen, removed) = (UInt64(living - absent.count), UInt64(absent.count))
    try await store.commit { core in
      guard core.projections.sync.zones[zone]?.sweepEpoch == state.sweepEpoch else { return }
      // What could not be read and was not shown is not there to be read any more.
      try core.release(unread)
      try core.append(.sweepEnded(SweepEnded(zone: zone, epoch: state.sweepEpoch, seen: seen, removed: removed)))
      try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
    }
    for id in unread { try changed(id) }
  }

  /// Removes records that the server does not have, or creates them again.
  ///
  /// - Parameter areGone: no request will ask the server about those that were edited here.
  mutating func remove(
    _ absent: [RecordID], from zone: ZoneID, _ source: ResyncSource?, areGone: Bool = false
  ) async throws {
    for start in stride(from: 0, to: absent.count, by: Self.removedAtOnce) {
      let some = absent[start..<min(absent.count, start + Self.removedAtOnce)]
      let changes = some.map { id in
        let isGone = areGone || doubts[id] == .wholeFeed
        return ServerChange(id, .unseen(source == .here ? .createdAgain : isGone ? .removed : .removedUnlessEdited))
      }
      let taken = try await store.take(changes, .fullFetch)
      report.add(taken.report)
      for id in taken.touched.sorted() { try changed(id) }
    }
    if !absent.isEmpty { queue.referencesMayHaveChanged(in: zone) }
  }

  /// A person lets the server's side of a zone stand, and the server does not have the zone: what was synced is removed.
  mutating func removeAll(of zone: ZoneID) async throws {
    let all = try store.synced(in: zone).map(\.id)
    // No request would ask about an edit: for what is owed after a rule the zone is made anew.
    let ruled = self.zone(zone)?.ruledMilliseconds ?? 0
    try await remove(all, from: zone, .server, areGone: ruled != 0)
    let unread = store.projections.withLock { state in state.sync.unread.keys.filter { $0.zone == zone }.sorted() }
    try await store.commit { core in
      guard core.projections.sync.zones[zone]?.resetPolicy == ResyncSource.server.rawValue else { return }
      try core.release(unread)
      try core.append(.sweepEnded(SweepEnded(zone: zone, epoch: 0, seen: 0, removed: UInt64(all.count))))
      try core.append(
        .zoneChanged(
          .lost(
            zone, .erased, words: "the server does not have it, and the app lets that stand", policy: "remove",
            ruledMilliseconds: ruled)))
    }
    fetches[zone] = nil
    for id in unread { try changed(id) }
  }

  /// The sweep would remove too much to be done without a question.
  mutating func freeze(_ zone: ZoneID, absent: Int, living: Int) async throws {
    try await store.commit { core in
      try core.appendLoss(
        of: zone, .missingRecords,
        words: "the server lists \(living - absent) of the \(living) records that it once acknowledged")
    }
    fetches[zone] = nil
    for id in doubts.keys where id.zone == zone { doubts[id] = nil }
    noteLoss(of: zone)
  }

  /// Creates the zone, if it is missing and a person has asked for this store's records to be uploaded again.
  mutating func createAgain(_ zone: ZoneID, unlessIn zones: [ZoneID]) async throws -> Bool {
    let account = Account(store.projections.withLock { $0.sync })
    guard self.zone(zone)?.resetPolicy == ResyncSource.here.rawValue,
      !zones.contains(where: { account.canonical($0) == zone })
    else { return false }
    return try await createZone(zone)
  }
}

extension StoreCore {
  /// Ends what keeps back versions that could not be read, or not applied yet.
  fileprivate mutating func release(_ ids: [RecordID]) throws {
    for id in ids where projections.sync.unread[id] != nil { try append(.released(Released(id: id, lsn: .none))) }
  }

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
    try append(.sweepBegan(SweepBegan(zone: zone, epoch: projections.appliedLSN.rawValue + 1)))
  }

  /// Appends which of a page's records the open sweep has seen, as far as their bases do not say it. Returns the sweep's
  /// epoch; 0 if none is open.
  mutating func confirm(_ changes: [ServerChange], in zone: ZoneID) throws -> UInt64 {
    guard let epoch = projections.sync.zones[zone]?.sweepEpoch, epoch != 0 else { return 0 }
    let names = try changes.filter { change in
      switch change.kind {
      case .version, .listed, .unreadable:
        try projections.sync.unread[change.id] != nil
          || projections.entry(change.id)?.base.map { $0.version.rawValue <= epoch } ?? false
      case .deletion, .absence, .unseen: false
      }
    }.map(\.id.name)
    if !names.isEmpty { try append(.confirmed(Confirmed(zone: zone, names: names))) }
    return epoch
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

  /// The living records of a zone that were synced and that its sweep has not seen, in order; how many live in it; and the records
  /// whose versions could not be read, and that its sweep has not seen either.
  ///
  /// - Complexity: O(records of the zone + events since the sweep began).
  fileprivate func absent(
    from zone: ZoneID, sinceSweep epoch: UInt64
  ) throws -> (absent: [RecordID], living: Int, unread: [RecordID]) {
    // A record that two names' hashes hide stays until the next sweep.
    var confirmed: Set<Int> = []
    try source.scan(after: LSN(rawValue: epoch), upTo: source.durableLSN) { found in
      switch try EventSource.kind(found) {
      case .confirmed:
        guard case .confirmed(let event) = try EventSource.decode(found), event.zone == zone else { break }
        for name in event.names { confirmed.insert(CloudName(name).hashValue) }
      case .held:
        // What came since and could not be read was shown, by a page or by the answer to a lookup.
        guard case .held(let held) = try EventSource.decode(found), held.direction == .download, held.id.zone == zone
        else { break }
        confirmed.insert(held.id.key.hashValue)
      default: break
      }
      return true
    }
    var absent: [RecordID] = []
    var living = 0
    try view().forEachLiving(ofType: nil, in: EntryScan.Range(zone: zone)) { id, found in
      guard let base = found.entry.base else { return true }
      living += 1
      if base.version.rawValue <= epoch, !confirmed.contains(id.key.hashValue) { absent.append(id) }
      return true
    }
    let unread = projections.withLock { state in
      state.sync.unread.values.filter { !$0.isShelved && $0.id.zone == zone }.map(\.id).sorted()
    }
    return (absent, living, unread.filter { !confirmed.contains($0.key.hashValue) })
  }
}
