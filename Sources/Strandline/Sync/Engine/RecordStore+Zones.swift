// A person's decisions about a zone. Each is an event in the log, which the next sync carries out; so the command line can log one
// without an engine.

extension RecordStore {
  /// Syncs a lost zone again: it is fetched from its beginning. Durable when this returns.
  ///
  /// - Returns: whether it was lost; if not, nothing has changed.
  package func resumeZone(_ zone: ZoneID) async throws -> Bool {
    try requireWritable()
    var wasLost = false
    try await commit { core in
      wasLost = core.projections.sync.zones[zone]?.isLost == true
      guard wasLost else { return }
      try core.append(
        .zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "resumed by the app", policy: "resume")))
    }
    return wasLost
  }

  /// Logs the decision of `SyncEngine.eraseZone(_:discardingUnsent:)`. Durable when this returns.
  ///
  /// - Returns: the records whose unsent changes were discarded.
  package func eraseZone(_ zone: ZoneID, discardingUnsent: Bool) async throws -> [RecordID] {
    try requireWritable()
    var discarded: [RecordID] = []
    try await commit { core in
      let state = core.projections.sync.zones[zone]
      guard let state, state.wasSeen else {
        throw StrandlineError(.noSuchZone, "nothing of zone '\(zone)' was ever synced, so there is nothing to erase")
      }
      discarded = []
      for lsn in core.projections.withLock({ $0.outbox.newest.all() }) {
        guard let id = try owner(ofPending: lsn), id.zone == zone else { continue }
        guard discardingUnsent else {
          throw StrandlineError(
            .notUploaded,
            "zone '\(zone)' has changes that the server lacks, of '\(id.name)' for one; nothing was erased; sync first, or "
              + "erase with 'discardingUnsent: true'")
        }
        try core.append(.discarded(Discarded(id: id, lsn: lsn)))
        discarded.append(id)
      }
      guard !state.isErased || state.isFollowed else { return }
      // A zone that a rule has removed is gone at the server. If someone creates it again, this store has neither a token nor a
      // record to recognize it by: so it is marked as erased, and nothing is deleted at the server.
      try core.append(
        .zoneChanged(
          .lost(zone, state.isErased ? .erased : .erasing, words: "the app has asked to erase it", policy: "erase")))
    }
    return discarded
  }

  /// Logs the decision of `SyncEngine.resync(_:from:)`. Durable when this returns.
  package func resync(_ zone: ZoneID, from source: ResyncSource) async throws {
    try requireWritable()
    try await commit { core in
      guard core.projections.sync.zones[zone]?.wasSeen == true else {
        throw StrandlineError(
          .noSuchZone, "nothing of zone '\(zone)' was ever synced, so there is nothing to fetch again")
      }
      try core.append(
        .zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "asked for by the app", policy: source.rawValue)))
    }
  }
}
