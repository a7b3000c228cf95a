// The end of a full fetch: what was synced and the server does not have is gone.
//
// A token that expires takes with it the deletions that lay behind it, so a full fetch alone would leave records here for
// ever that no other device has. The sweep begins in the transaction of the fetch's first page. Each page confirms the
// records that it shows unchanged; the others have a base that is newer than the sweep. When the last page is in, each
// record that neither is true of is looked up by its name (AbsenceProof.swift), and removed if the server does not have it,
// with its births in the deletion index; a change of it that is not sent stays, and what the server says to that decides.
// Until the lookups are answered the sweep is open: the zone stays due, also after a relaunch, and the next run asks again.
//
// A server that lists much less than it once acknowledged may be wrong, and a zone of which nothing is left may be another
// one. So a sweep that would remove much, or everything, stops, and the zone waits for a person.

import StrandlineSystem

/// Which side of a zone stands where this store has records that the server does not have. What both have is synced as ever.
public enum ResyncSource: String, Hashable, Sendable, CaseIterable {
  /// The server's: what it does not have is removed here, however much that is.
  case server
  /// This store's: what the server does not have is uploaded again, as if it were created now.
  case here
}

extension SyncMachine {
  /// A zone that was fetched to its end, and whose sweep waits for answers to lookups.
  struct OpenSweep: Sendable {
    /// The records that the feed did not show. Nil while those are looked up that it showed in older versions: a server that
    /// went back in time must remove nothing.
    var proof: AbsenceProof?
    /// The names of those that were shown in other versions, as far as the answers to their lookups have not come. Each may say that the server
    /// went back in time, so nothing is removed before.
    var asked: Set<CloudName> = []
    /// What lookups of the zone were refused with in this run, or one of those names.
    var refusal: CloudError?

    /// This run does not go on with it.
    var isPaused: Bool { refusal != nil || proof?.isPaused == true }
    /// Why it is open.
    var failure: CloudError? { refusal ?? proof?.failure }
  }

  /// Records removed in one transaction.
  private static let removedAtOnce = 1_000

  /// Ends the zone's sweep, if one is open and all that it depends on is known: the last page is in.
  ///
  /// - Returns: whether it has ended. Else lookups are due, or the next run goes on with it.
  mutating func endSweep(of zone: ZoneID) async throws -> Bool {
    guard let state = self.zone(zone), state.sweepEpoch != 0 else { return true }
    var proof: AbsenceProof
    if let begun = sweeps[zone]?.proof {
      proof = begun
    } else if state.resetPolicy == ZoneState.keepsAbsent {
      proof = AbsenceProof(living: 0, knownSince: 0, absent: [])
    } else {
      proof = try store.absences(from: zone, sinceSweep: state.sweepEpoch)
    }
    let source = ResyncSource(rawValue: state.resetPolicy)
    switch try await prove(&proof, in: zone, source) {
    case .lookUp, .wait, .remove, .setAside:
      sweeps[zone] = OpenSweep(proof: proof)
      return false
    case .ask, .lose: return true
    case .end: break
    }
    if source == .here { try await createAgainWhatWasTaken(from: zone, epoch: state.sweepEpoch) }
    let (seen, removed) = (UInt64(proof.living - proof.removed), UInt64(proof.removed))
    try await store.commit { core in
      guard core.projections.sync.zones[zone]?.sweepEpoch == state.sweepEpoch else { return }
      try core.append(.sweepEnded(SweepEnded(zone: zone, epoch: state.sweepEpoch, seen: seen, removed: removed)))
      try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
    }
    return true
  }

  /// Goes on with the proof that records are gone: has the next ones looked up, removes what the server does not have, or lets
  /// the zone wait for a person.
  ///
  /// - Returns: `.lookUp` if lookups are due; `.wait` if some answers are missing, and this run asks no more; `.ask` or
  ///   `.lose` if the zone is lost; `.end` if nothing is left to be done.
  mutating func prove(
    _ proof: inout AbsenceProof, in zone: ZoneID, _ source: ResyncSource?
  ) async throws -> AbsenceKnowledge.Step {
    while true {
      var known = proof.knowledge
      known.decided = source
      if !known.isSameZone, known.gone > 0, known.living <= policies.losses.remadeFollowedMax {
        known.followsRemade = try store.owed(in: zone) == 0
      }
      let step = known.next()
      switch step {
      case .lookUp: lookups[zone, default: []].formUnion(proof.names(UploadPlan.operationsMax))
      case .wait: proof.isPaused = true
      case .ask:
        let (absent, living) = (known.unasked + known.untold + known.gone, known.living)
        try await freeze(
          zone, .missingRecords,
          "the server lists \(living - absent) of the \(living) records that it once acknowledged")
      case .lose:
        let absent = String.count(known.unasked + known.untold + known.gone, "record")
        try await freeze(
          zone, .deleted,
          "it was emptied, or deleted and made again: the server has nothing of what this store knows of it (\(absent))"
        )
      case .remove:
        let gone = try proof.gone.filter { try store.projections.entry($0.id)?.base?.version == $0.version }
        try await remove(gone.map(\.id), from: zone, source)
        proof.removedGone()
        if known.followsRemade { sayFollowed(zone) }
        continue
      case .setAside:
        try await setAside(proof.takeUntold())
        continue
      case .end: break
      }
      return step
    }
  }

  /// Notes that records may be gone. They are looked up in each run until an answer says it.
  private mutating func setAside(_ records: [(id: RecordID, version: LSN)]) async throws {
    for start in stride(from: 0, to: records.count, by: Self.removedAtOnce) {
      let some = records[start..<min(records.count, start + Self.removedAtOnce)]
      try await store.commit { core in
        for (id, version) in some {
          // Of what was edited meanwhile, the answer to the edit says it.
          guard let entry = try core.projections.entry(id), entry.base?.version == version, entry.pending == nil,
            core.projections.sync.openBlocks[id]?.subject != .deletion
          else { continue }
          try core.append(
            .blocked(
              Blocked(
                id: id, subject: .deletion, lsn: version, births: [], consequence: .lookup,
                words: "a full fetch did not show it, and the server did not say whether it has it")))
        }
      }
    }
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

  /// Nothing is removed without a question.
  private mutating func freeze(_ zone: ZoneID, _ reason: ZoneLoss, _ words: String) async throws {
    try await store.commit { try $0.appendLoss(of: zone, reason, words: words) }
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
  fileprivate func absences(from zone: ZoneID, sinceSweep epoch: UInt64) throws -> AbsenceProof {
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
