// How the server's word about one record enters: a version, or that it is gone. The one place where a deleted record
// could come back, so every way in leads through here.
//
// Runs inside a transaction, under the store's lock: what it decides is appended with the page or answer that said it.
// A version of a record with unsettled mutations enters only together with what becomes of them.

import StrandlineSystem

/// Takes in what the server says.
struct Intake {
  /// Where the word comes from: the feed after a token, the feed from its beginning, or a direct question.
  enum Source { case delta, fullFetch, lookup }

  let source: Source
  var report = SyncReport()

  init(_ source: Source) { self.source = source }

  // MARK: A version

  mutating func take(_ server: ServerRecord, as id: RecordID, _ core: inout StoreCore) throws {
    let entry = core.projections.records[id]
    if let base = entry?.base, base.changeTag == server.system.changeTag,
      base.modifiedMilliseconds == server.system.modified?.milliseconds
    {
      report.echoes += 1
      closeBlock(id, &core)
      return
    }
    let base = try entry.flatMap { try core.base(of: $0) }
    let arrival = Arrival(server, ancestor: base?.version, knownBirths: try knownBirths(server, entry, id, core))
    noticeClone(arrival.version.stamp, &core)

    let births = arrival.version.stamp.births
    if core.projections.deletions.isDead(id, births: births),
      entry?.pending.map({ $0.isDeletion }) ?? (entry?.view == nil)
    {
      try takeDead(arrival, id, entry, &core)
      return
    }
    if let base, isStale(arrival, base.version) {
      try takeStale(arrival, id, &core)
      return
    }
    let included = included(in: arrival.version.stamp, entry?.pending, core)
    if source != .lookup, included == nil, isUnknownLife(births, id, entry, base?.version, core) {
      block(id, arrival, "another life of a name whose last one has not been seen to end", .lookup, &core)
      return
    }
    guard let entry, let pending = entry.pending else {
      takeUnopposed(arrival, id, base?.version, &core)
      return
    }
    if pending.isDeletion {
      // The life that was deleted here is not (or not alone) the one that the server holds: that one lives.
      append(arrival, id, &core)
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .superseded)))
      return
    }
    try takeAgainstEdit(arrival, id, entry, pending, included, base?.version, &core)
  }

  /// Which of our unsettled mutations a version holds already, though no answer said so: its `seen` names one of ours.
  private func included(in stamp: Stamp, _ pending: Pending?, _ core: borrowing StoreCore) -> LSN? {
    let sync = core.projections.sync
    let end = core.projections.appliedLSN
    return pending?.lsns.last { mutation in
      stamp.seen.values.contains { $0.lsn >= mutation && sync.owns($0.lsn, tenure: $0.tenure, upTo: end) }
    }
  }

  /// A life that this log has not met, under a name that it has: the record was deleted and begun anew elsewhere, or an
  /// old page brings back a life that ended before this store was there. A page cannot tell; the server can, so it is
  /// asked before anything here gives way.
  private func isUnknownLife(
    _ births: Set<Birth>, _ id: RecordID, _ entry: RecordEntry?, _ base: Version?, _ core: borrowing StoreCore
  ) -> Bool {
    if let base { return births.isDisjoint(with: base.stamp.births) }
    return entry == nil && core.projections.deletions[id] != nil
  }

  /// A version that has seen less than the base that we hold: an old page, or a server that went back in time.
  private func isStale(_ arrival: Arrival, _ base: Version) -> Bool {
    arrival.isStamped && arrival.version.stamp.seen != base.stamp.seen && base.stamp.dominates(arrival.version.stamp)
      && !base.stamp.births.isDisjoint(with: arrival.version.stamp.births)
  }

  private mutating func takeStale(_ arrival: Arrival, _ id: RecordID, _ core: inout StoreCore) throws {
    guard source == .lookup else {
      block(id, arrival, "an older version than the one that is known here", .lookup, &core)
      return
    }
    // A direct question has no old pages: the server itself is behind what it once acknowledged.
    block(id, arrival, "the server answers with an older version than it once held", .none, &core)
    core.append(
      .zoneChanged(
        ZoneChanged(
          zone: id.zone, change: .lost,
          reason: "the server went back in time: it holds an older version of '\(id)' than it once acknowledged",
          policy: "freeze")))
  }

  /// A version of deleted lives only.
  private mutating func takeDead(
    _ arrival: Arrival, _ id: RecordID, _ entry: RecordEntry?, _ core: inout StoreCore
  ) throws {
    if let pending = entry?.pending, pending.isDeletion {
      // Somebody edited what was deleted here. The deletion stands, on the version that the server holds now.
      let version = append(arrival, id, &core)
      core.append(
        .deleted(
          Deleted(
            id: id, births: arrival.version.stamp.births, base: version, time: core.tick(), tenure: core.tenure)))
      return
    }
    guard source == .lookup else {
      block(id, arrival, "a version of a deleted record", .lookup, &core)
      return
    }
    // It does live at the server, with dead births alone: delete it there, with the tag that it has now.
    block(id, arrival, "the server still holds a deleted record", .deleteAgain, &core)
    let version = append(arrival, id, &core)
    core.append(
      .deleted(
        Deleted(id: id, births: arrival.version.stamp.births, base: version, time: core.tick(), tenure: core.tenure)))
  }

  /// A version of a record that nobody has touched here.
  private mutating func takeUnopposed(
    _ arrival: Arrival, _ id: RecordID, _ base: Version?, _ core: inout StoreCore
  ) {
    if let base, base.stamp.births.isDisjoint(with: arrival.version.stamp.births) {
      // Another life of the name: the one that is known here has ended without our seeing its tombstone.
      core.append(.fetchedDelete(FetchedDelete(id: id, births: base.stamp.births, reason: .feed)))
      report.fetchedDeletes += 1
    }
    append(arrival, id, &core)
    report.fetchedSaves += 1
  }

  /// A version that meets unsettled edits.
  private mutating func takeAgainstEdit(
    _ arrival: Arrival, _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ included: LSN?, _ base: Version?,
    _ core: inout StoreCore
  ) throws {
    let newest = try core.load(pending.newest)
    var owed = pending
    if let included {
      let version = append(arrival, id, &core)
      core.append(.settled(Settled(id: id, lsn: included, outcome: .saved)))
      report.recognized += 1
      owed.lsns.removeAll { $0 <= included }
      if owed.lsns.isEmpty { return }
      merge(arrival, version, newest, owed, id, rule: "join", &core)
      return
    }
    let ours = newest.version.stamp.births
    let theirs = arrival.version.stamp.births
    if ours.isDisjoint(with: theirs), let base {
      if !pending.hasCreation {
        // An edit of a life that has ended meets another life: it is settled with its own, never sent into the other.
        core.append(.fetchedDelete(FetchedDelete(id: id, births: base.stamp.births, reason: .feed)))
        core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deletedOnServer)))
        append(arrival, id, &core)
        report.fetchedDeletes += 1
        report.blocked += 1
        return
      }
      if !base.stamp.births.isDisjoint(with: theirs) {
        // The old life, edited meanwhile, is about to be replaced by the one that began here.
        let version = append(arrival, id, &core)
        core.append(
          .merged(
            Merged(
              id: id, version: newest.version, dirty: all(newest.version), base: version, local: pending.newest,
              time: core.tick(), editCount: newest.editCount, tenure: core.tenure, rule: "replace")))
        return
      }
    }
    let version = append(arrival, id, &core)
    merge(arrival, version, newest, owed, id, rule: "join", &core)
  }

  /// Joins the newest local version with the server's and appends what follows.
  private mutating func merge(
    _ arrival: Arrival, _ version: LSN, _ newest: LoadedVersion, _ pending: Pending, _ id: RecordID, rule: String,
    _ core: inout StoreCore
  ) {
    var joined = Join.join(newest.version, arrival.version)
    joined.type = arrival.version.type
    let dirty = Join.difference(joined, from: arrival.version)
    if dirty.isEmpty, joined.stamp.births == arrival.version.stamp.births {
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .merged)))
      report.merged += 1
      return
    }
    core.append(
      .merged(
        Merged(
          id: id, version: joined, dirty: Dictionary(uniqueKeysWithValues: dirty.map { ($0, LSN.none) }),
          base: version, local: pending.newest, time: core.tick(), editCount: newest.editCount, tenure: core.tenure,
          rule: rule)))
    report.merged += 1
  }

  // MARK: Gone

  mutating func takeDeletion(of id: RecordID, _ core: inout StoreCore) throws {
    let entry = core.projections.records[id]
    let base = try entry.flatMap { try core.base(of: $0) }
    let births = base?.version.stamp.births ?? []
    let reason: FetchedDelete.Reason = source == .fullFetch ? .fullFetch : .feed
    guard let entry, let pending = entry.pending else {
      if entry == nil, let known = core.projections.deletions[id], !known.isProvisional {
        closeBlock(id, &core)
        return
      }
      core.append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: reason)))
      if entry != nil { report.fetchedDeletes += 1 }
      return
    }
    if pending.isDeletion {
      core.append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: reason)))
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deleted)))
      return
    }
    if entry.base == nil {
      // A create that may have arrived, and was deleted by somebody who saw it; never on the word of a fetch without
      // token, whose tombstones may be older than the create.
      guard source == .delta, let attempted = pending.attempted else { return }
      let ours = try core.births(attempted)
      core.append(.fetchedDelete(FetchedDelete(id: id, births: ours, reason: reason)))
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deletedOnServer)))
      report.fetchedDeletes += 1
      report.blocked += 1
      return
    }
    core.append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: reason)))
    if pending.hasCreation, try core.births(pending.newest).isDisjoint(with: births) {
      // Deleted and begun anew here: the server has done the first half by itself.
      return
    }
    core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deletedOnServer)))
    report.fetchedDeletes += 1
    report.blocked += 1
  }

  // MARK: Parts

  @discardableResult
  private func append(_ arrival: Arrival, _ id: RecordID, _ core: inout StoreCore) -> LSN {
    core.append(
      .fetchedSave(
        FetchedSave(
          id: id, version: arrival.version, system: arrival.system, source: source == .lookup ? .lookup : .feed,
          isStamped: arrival.isStamped)))
  }

  private mutating func block(
    _ id: RecordID, _ arrival: Arrival, _ words: String, _ consequence: Blocked.Consequence, _ core: inout StoreCore
  ) {
    report.blocked += 1
    core.append(
      .blocked(
        Blocked(
          id: id, subject: .version, changeTag: arrival.system.changeTag ?? "", births: arrival.version.stamp.births,
          consequence: consequence, words: words)))
  }

  private func closeBlock(_ id: RecordID, _ core: inout StoreCore) {
    guard core.projections.sync.openBlocks[id] != nil, source == .lookup else { return }
    core.append(
      .blocked(
        Blocked(id: id, subject: .version, births: [], consequence: .none, words: "the server agrees with this store")))
  }

  private func all(_ version: Version) -> [String: LSN] {
    Dictionary(uniqueKeysWithValues: version.names.map { ($0, LSN.none) })
  }

  /// The lives that this log knows under the name and the version's creation time, for a version without a stamp.
  private func knownBirths(
    _ server: ServerRecord, _ entry: RecordEntry?, _ id: RecordID, _ core: borrowing StoreCore
  ) throws -> Set<Birth>? {
    guard let created = server.system.created?.milliseconds else { return nil }
    if let base = entry?.base, base.createdMilliseconds == created { return try core.births(base.content) }
    if let deletion = core.projections.deletions[id], deletion.createdMilliseconds == created { return deletion.births }
    return nil
  }

  /// A version that names a mutation of ours that this log does not have: the log was restored or cloned, and another
  /// hand goes on writing in our name. From here on we write in another.
  private func noticeClone(_ stamp: Stamp, _ core: inout StoreCore) {
    let sync = core.projections.sync
    for (writer, seen) in stamp.seen where writer == core.writer {
      if !sync.owns(seen.lsn, tenure: seen.tenure, upTo: core.projections.appliedLSN) { core.renameWriter() }
    }
  }
}
