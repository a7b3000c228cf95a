// The zones that the app's configuration leaves out: which of the known ones they are, and the error of a write to one.

extension Projections {
  /// The zones that this store knows, and that its configuration leaves out. O(zones) if it leaves any out.
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID> {
    guard synced.leavesOutAny else { return [] }
    return Set(sync.zones.keys).union(records.living.keys).filter { synced.leavesOut($0, sync) }
  }
}

extension StrandlineError {
  /// What was asked for concerns a zone that the configuration leaves out.
  static func leftOut(_ zone: ZoneID, _ what: String) -> StrandlineError {
    StrandlineError(
      .foreignZone,
      "\(what): 'SyncConfiguration.zones' leaves zone '\(zone)' out, so nothing of it is sent or fetched; take it in there, or "
        + "use a zone that is synced")
  }
}
