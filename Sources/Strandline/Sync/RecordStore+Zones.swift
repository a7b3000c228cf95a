// What a person decides about a zone: an event in the log, which the next sync carries out. An engine need not run for it, so
// the command can say it too.

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

  /// What `SyncEngine.resync(_:from:)` does, for the next sync. Durable when this returns.
  package func resync(_ zone: ZoneID, from source: ResyncSource) async throws {
    try requireWritable()
    try await commit { core in
      guard core.projections.sync.zones[zone]?.wasSeen == true else {
        throw StrandlineError(
          .noSuchZone, "nothing of zone '\(zone)' was ever synced, so there is nothing to fetch anew")
      }
      try core.append(
        .zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "asked for by the app", policy: source.rawValue)))
    }
  }
}
