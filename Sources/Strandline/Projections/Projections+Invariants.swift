// What must hold between the projections after every event. Tests call it after every step.

extension Projections {
  /// A record whose content is nowhere: it shows an event that says that a later mutation replaced it. nil if there is none.
  /// O(records).
  ///
  /// - Parameter superseded: the events that say so.
  package func shownSuperseded(_ superseded: LSNSet) -> String? {
    do {
      for (id, entry) in try allEntries() {
        guard let view = entry.view, superseded.contains(view) else { continue }
        return "\(id): event \(view) is its newest mutation, and says that a later one replaced it"
      }
      return nil
    } catch { return "the records cannot be read: \(error)" }
  }

  /// A description of the first invariant that does not hold; nil if all do. O(records).
  package func brokenInvariant() -> String? {
    var (owing, attempts) = (0, 0)
    var living: [ZoneID: [String: Int]] = [:]
    let entries: [RecordID: RecordEntry]
    do { entries = try allEntries() } catch { return "the records cannot be read: \(error)" }
    for (id, entry) in entries {
      if let type = entry.livingType { living[id.zone, default: [:]][type, default: 0] += 1 }
      if entry.base == nil, entry.pending == nil { return "\(id) has neither base nor pending mutation" }
      if let base = entry.base {
        if base.content > base.version { return "\(id): the base's content \(base.content) is after \(base.version)" }
        if base.version > appliedLSN { return "\(id): the base \(base.version) is not applied yet" }
      }
      guard let pending = entry.pending else { continue }
      let mutations =
        [pending.since, pending.first] + pending.attempts.flatMap { [$0.lsn, $0.next] } + [pending.newest]
      if zip(mutations, mutations.dropFirst()).contains(where: { $0 > $1 }) {
        return "\(id): mutations out of order \(mutations)"
      }
      if !outbox.newest.contains(pending.newest) || !outbox.since.contains(pending.since) {
        return "\(id): \(pending.since) and \(pending.newest) are not in the outbox"
      }
      for attempt in pending.attempts where !outbox.attempted.contains(attempt.lsn) {
        return "\(id): \(attempt.lsn) was not attempted"
      }
      attempts += pending.attempts.count + (outbox.attempted.contains(pending.newest) ? 1 : 0)
      if pending.isDeletion, (try? deletion(id)) == nil {
        return "\(id): a pending deletion that is not in the deletion index"
      }
      owing += 1
    }
    if owing != outbox.count || owing != outbox.since.count {
      return "the outbox counts \(outbox.count) and \(outbox.since.count) records, the table \(owing)"
    }
    if attempts != outbox.attempted.count {
      return "the outbox has \(outbox.attempted.count) attempted mutations, the records \(attempts)"
    }
    if records.count != entries.count { return "the table counts \(records.count) records, there are \(entries.count)" }
    for zone in Set(living.keys).union(records.living.keys) {
      let (types, counted) = (living[zone] ?? [:], records.living[zone] ?? LivingCount())
      let total = types.values.reduce(0, +)
      if counted.total != total { return "the table counts \(counted.total) living records in \(zone), not \(total)" }
      if let known = counted.types, known != types {
        return "the table counts \(known) living records by type in \(zone), there are \(types)"
      }
    }
    for (id, deletion) in deletions.inMemory where deletion.isProvisional {
      if entries[id]?.pending == nil { return "\(id): a provisional deletion of a record with no unsettled mutation" }
    }
    if runs == nil, deletions.inMemory.count != deletions.count {
      return "the table counts \(deletions.count) deleted names, there are \(deletions.inMemory.count)"
    }
    if let broken = brokenListing() { return broken }
    for id in sync.held.keys where entries[id]?.pending == nil { return "\(id): held, but no mutation is unsettled" }
    for id in sync.sets.keys where entries[id]?.pending == nil {
      return "\(id): in a set, but no mutation is unsettled"
    }
    for (place, tenure) in sync.tenures.enumerated().dropFirst() where tenure.first <= sync.tenures[place - 1].first {
      return "tenures out of order at \(tenure.first)"
    }
    return nil
  }

  private func brokenListing() -> String? {
    for (zone, listed) in sync.listed {
      if listed.count != listed.events.values.reduce(0, +) || listed.events.values.contains(where: { $0 < 1 }) {
        return "\(zone): \(listed.count) listed names, not \(listed.events.values.sorted())"
      }
      if listed.events.isEmpty || listed.events.keys.contains(where: { $0 > appliedLSN }) {
        return "\(zone): a listing that has ended, or is not applied yet"
      }
    }
    return nil
  }
}
