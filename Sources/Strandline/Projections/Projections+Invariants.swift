// What must hold between the projections after every event. Tests call it after every step.

extension Projections {
  /// A description of the first invariant that does not hold; nil if all do. O(records).
  package func brokenInvariant() -> String? {
    var (owed, owing) = (0, 0)
    var living: [ZoneID: Int] = [:]
    let entries: [RecordID: RecordEntry]
    do { entries = try allEntries() } catch { return "the records cannot be read: \(error)" }
    for (id, entry) in entries {
      if entry.view != nil { living[id.zone, default: 0] += 1 }
      if entry.base == nil, entry.pending == nil { return "\(id) has neither base nor pending mutation" }
      if let base = entry.base {
        if base.content > base.version { return "\(id): the base's content \(base.content) is after \(base.version)" }
        if base.version > appliedLSN { return "\(id): the base \(base.version) is not applied yet" }
      }
      guard let pending = entry.pending else { continue }
      let mutations = outbox.mutations(of: id, pending)
      for (place, lsn) in mutations.enumerated() {
        if place > 0, mutations[place - 1] >= lsn { return "\(id): mutations out of order \(mutations)" }
        if !outbox.unsettled.contains(lsn) { return "\(id): \(lsn) is not in the outbox" }
      }
      if pending.isDeletion, (try? deletion(id)) == nil {
        return "\(id): a pending deletion that is not in the deletion index"
      }
      owed += mutations.count
      owing += 1
    }
    if owed != outbox.count { return "the outbox holds \(outbox.count) mutations, the records \(owed)" }
    if owing != outbox.recordCount { return "the outbox counts \(outbox.recordCount) records, the table \(owing)" }
    for lsn in outbox.attempted.all() where !outbox.unsettled.contains(lsn) {
      return "\(lsn) was attempted and is not in the outbox"
    }
    for id in outbox.earlier.keys where entries[id]?.pending == nil {
      return "\(id): earlier mutations, but no newest one"
    }
    if records.count != entries.count { return "the table counts \(records.count) records, there are \(entries.count)" }
    let counted = records.living.filter { $0.value != 0 }
    if counted != living { return "the table counts \(counted) living records, there are \(living)" }
    for (id, deletion) in deletions.entries where deletion.isProvisional {
      if entries[id]?.pending == nil { return "\(id): a provisional deletion of a record with no unsettled mutation" }
    }
    for id in sync.held.keys where entries[id]?.pending == nil { return "\(id): held, but no mutation is unsettled" }
    for (place, tenure) in sync.tenures.enumerated().dropFirst() where tenure.first <= sync.tenures[place - 1].first {
      return "tenures out of order at \(tenure.first)"
    }
    return nil
  }
}
