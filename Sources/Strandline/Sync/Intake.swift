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
    let isDead = core.projections.deletions.isDead(id, births: births)
    if isDead, entry?.pending.map({ $0.isDeletion }) ?? (entry?.view == nil) {
      try takeDead(arrival, id, entry, &core)
      return
    }
    // Created anew at the server since: what a direct question shows is then no older version of what is held here.
    let isRecreated = source == .lookup && server.system.created?.milliseconds != entry?.base?.createdMilliseconds
    if let entry, let base, !isRecreated, isStale(arrival, base.version) {
      try takeStale(arrival, id, entry, &core)
      return
    }
    if source == .lookup, let base = entry?.base?.modifiedMilliseconds,
      let modified = server.system.modified?.milliseconds,
      modified < base
    {
      // Neither has seen the other, and the answer is the older one: the feed will say which stands.
      return
    }
    let included = included(in: arrival.version.stamp, entry?.pending?.lsns ?? [], core)
    // Our own creation is no exception where the name has ended before: a tombstone that may have been older than it was
    // passed over, so an old page could show it again when it is gone.
    if source != .lookup, included == nil || base == nil, isUnknownLife(births, id, entry, base?.version, core) {
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
    try takeAgainstEdit(arrival, id, pending, included, isDead: isDead, base?.version, &core)
  }

  /// Which of some of our mutations a version holds already, though perhaps no answer said so: its `seen` names one of
  /// ours.
  private func included(in stamp: Stamp, _ lsns: [LSN], _ core: borrowing StoreCore) -> LSN? {
    let sync = core.projections.sync
    let end = core.projections.appliedLSN
    return lsns.last { mutation in
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
    return core.projections.deletions[id] != nil
  }

  /// A version that has seen less than the base that we hold: an old page, or a server that went back in time.
  private func isStale(_ arrival: Arrival, _ base: Version) -> Bool {
    arrival.isStamped && arrival.version.stamp.seen != base.stamp.seen && base.stamp.dominates(arrival.version.stamp)
      && !base.stamp.births.isDisjoint(with: arrival.version.stamp.births)
  }

  private mutating func takeStale(
    _ arrival: Arrival, _ id: RecordID, _ entry: RecordEntry, _ core: inout StoreCore
  ) throws {
    guard source == .lookup else {
      block(id, arrival, "an older version than the one that is known here", .lookup, &core)
      return
    }
    // A direct question has no old pages. An answer that lacks what the server acknowledged to this very store means
    // that the server went back in time; one that lacks what others wrote may come from a part of it that lags.
    guard let base = entry.base, try core.load(base.content).own != nil,
      included(in: arrival.version.stamp, [base.content], core) == nil
    else { return }
    block(id, arrival, "the server answers with an older version than it once acknowledged", .none, &core)
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
    _ arrival: Arrival, _ id: RecordID, _ pending: Pending, _ included: LSN?, isDead: Bool, _ base: Version?,
    _ core: inout StoreCore
  ) throws {
    let newest = try core.load(pending.newest)
    let ours = newest.version.stamp.births
    let theirs = arrival.version.stamp.births
    let isOtherLife = ours.isDisjoint(with: theirs)
    if isDead, isOtherLife, included == nil, source != .lookup {
      block(id, arrival, "a version of a deleted life under a name that lives again here", .lookup, &core)
      return
    }
    if isOtherLife, !isDead, included == nil, let base, base.stamp.births.isDisjoint(with: theirs) {
      // The life that is known here has ended without our seeing it.
      core.append(.fetchedDelete(FetchedDelete(id: id, births: base.stamp.births, reason: .feed)))
      report.fetchedDeletes += 1
      if ours.isSubset(of: base.stamp.births) {
        // An edit of it is settled with it, never sent into the other.
        core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deletedOnServer)))
        append(arrival, id, &core)
        report.blocked += 1
        return
      }
    }
    let version = append(arrival, id, &core)
    if let included {
      core.append(.settled(Settled(id: id, lsn: included, outcome: .saved)))
      report.recognized += 1
      if included == pending.newest { return }
    }
    if isOtherLife, isDead || base.map({ !$0.stamp.births.isDisjoint(with: theirs) }) ?? false {
      // The life that ended here is still there, perhaps edited: the one that began here takes its place.
      core.append(
        .merged(
          Merged(
            id: id, version: newest.version,
            dirty: Dictionary(uniqueKeysWithValues: newest.version.names.map { ($0, LSN.none) }), base: version,
            local: pending.newest, time: core.tick(), editCount: newest.editCount, tenure: core.tenure,
            rule: Merged.replaceRule)))
      return
    }
    merge(arrival, version, newest, pending, id, &core)
  }

  /// Joins the newest local version with the server's and appends what follows.
  private mutating func merge(
    _ arrival: Arrival, _ version: LSN, _ newest: LoadedVersion, _ pending: Pending, _ id: RecordID,
    _ core: inout StoreCore
  ) {
    report.merged += 1
    let joined = Join.join(newest.version, arrival.version)
    let dirty = Join.difference(joined, from: arrival.version)
    if dirty.isEmpty, joined.stamp.births == arrival.version.stamp.births {
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .merged)))
      return
    }
    core.append(
      .merged(
        Merged(
          id: id, version: joined, dirty: Dictionary(uniqueKeysWithValues: dirty.map { ($0, LSN.none) }),
          base: version, local: pending.newest, time: core.tick(), editCount: newest.editCount, tenure: core.tenure,
          rule: Merged.joinRule)))
  }

  // MARK: Gone

  /// The server says that a record is deleted. `isConfirmed`: it was asked again because the first word was doubtful.
  mutating func takeDeletion(of id: RecordID, isConfirmed: Bool = false, _ core: inout StoreCore) throws {
    let entry = core.projections.records[id]
    let births = try entry.flatMap { try core.base(of: $0) }?.version.stamp.births ?? []
    if let base = entry?.base, !isConfirmed, isDoubtful(base, id, core) {
      report.blocked += 1
      core.append(
        .blocked(
          Blocked(
            id: id, subject: .deletion, births: births, consequence: .lookup,
            words: "a deletion that may be older than the life it would end")))
      return
    }
    guard let entry, let pending = entry.pending else {
      if entry == nil, let known = core.projections.deletions[id], !known.isProvisional {
        closeBlock(id, &core)
        return
      }
      appendDeletion(of: id, births, &core)
      if entry != nil { report.fetchedDeletes += 1 }
      return
    }
    if pending.isDeletion {
      appendDeletion(of: id, births, &core)
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deleted)))
      return
    }
    try takeDeletion(of: id, births, entry, pending, &core)
  }

  /// A tombstone meets an edit or a creation. An edit goes with its life. A creation that may have arrived was deleted by
  /// somebody who saw it; one that cannot have arrived is another life and stays owed.
  private mutating func takeDeletion(
    of id: RecordID, _ births: Set<Birth>, _ entry: RecordEntry, _ pending: Pending, _ core: inout StoreCore
  ) throws {
    let ours = try core.births(pending.newest)
    // Never on the word of a fetch without token: its tombstones may be older than the creation.
    let arrived = source == .delta ? pending.attempted : nil
    let attempted = try arrived.map { try core.births($0) } ?? []
    let dead = births.union(attempted)
    if ours.isSubset(of: dead) {
      appendDeletion(of: id, dead, &core)
      core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .deletedOnServer)))
      report.fetchedDeletes += 1
      report.blocked += 1
      return
    }
    // (One that cannot have arrived stays owed; that the name has had a life that ended is remembered all the same.)
    guard entry.base != nil || arrived != nil || core.projections.deletions[id] == nil else { return }
    // Another birth remains: the record lives on in it, and begins at the server anew.
    appendDeletion(of: id, dead, &core)
    if let arrived { core.append(.settled(Settled(id: id, lsn: arrived, outcome: .deletedOnServer))) }
  }

  /// A tombstone does not say which life it ended. It is doubtful if what is here came after the token that the page was
  /// asked with, or if an earlier life of the name has ended already.
  private func isDoubtful(_ base: Base, _ id: RecordID, _ core: borrowing StoreCore) -> Bool {
    if core.projections.records[id]?.pending?.isDeletion == true { return false }
    if let token = core.projections.sync.zones[id.zone]?.tokenLSN, token != .none, base.version > token { return true }
    guard let known = core.projections.deletions[id] else { return false }
    return !known.births.isEmpty && !known.isProvisional
  }

  private func appendDeletion(of id: RecordID, _ births: Set<Birth>, _ core: inout StoreCore) {
    core.append(
      .fetchedDelete(FetchedDelete(id: id, births: births, reason: source == .fullFetch ? .fullFetch : .feed)))
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
