// What must hold between the projections after every event. Tests call it after every step.

extension Projections {
  /// A description of the first invariant that does not hold; nil if all do. O(records).
  package func brokenInvariant() -> String? {
    var owed = 0
    for (zone, names) in records.zones {
      for (name, entry) in names {
        let id = RecordID(name, zone: zone)
        if entry.base == nil, entry.pending == nil { return "\(id) has neither base nor pending mutation" }
        if let base = entry.base {
          if base.content > base.version { return "\(id): the base's content \(base.content) is after \(base.version)" }
          if base.version > appliedLSN { return "\(id): the base \(base.version) is not applied yet" }
        }
        guard let pending = entry.pending else { continue }
        if pending.lsns.isEmpty { return "\(id): a pending state without a mutation" }
        if pending.lsns != pending.lsns.sorted() { return "\(id): mutations out of order \(pending.lsns)" }
        for lsn in pending.lsns where outbox.records[lsn] != id { return "\(id): \(lsn) is not in the outbox" }
        if let attempted = pending.attempted, attempted > pending.newest {
          return "\(id): attempted \(attempted) is after the newest mutation \(pending.newest)"
        }
        if pending.isDeletion, deletions[id] == nil {
          return "\(id): a pending deletion that is not in the deletion index"
        }
        owed += pending.lsns.count
      }
    }
    if owed != outbox.count { return "the outbox holds \(outbox.count) mutations, the records \(owed)" }
    if outbox.all.count != outbox.count { return "the outbox's order holds \(outbox.all.count) of \(outbox.count)" }
    for (id, deletion) in deletions.entries where deletion.isProvisional {
      guard let pending = records[id]?.pending else {
        return "\(id): a provisional deletion of a record with no unsettled mutation"
      }
      if pending.lsns.isEmpty { return "\(id): a provisional deletion without a mutation" }
    }
    for id in sync.held.keys where records[id]?.pending == nil { return "\(id): held, but no mutation is unsettled" }
    for (place, tenure) in sync.tenures.enumerated().dropFirst() where tenure.first <= sync.tenures[place - 1].first {
      return "tenures out of order at \(tenure.first)"
    }
    return nil
  }
}
