// The four projections and how each event changes them: a pure function of the log, without clock, randomness or
// callback. Formats/events.md, "From events to records", has the same as numbered steps.
//
// What is kept of single records lies in sorted runs, as of the newest event that they know; what has changed since lies
// in memory. How readers see what is durable only, and how a change is undone, stands in Projections+Durable.swift; how what
// lies in memory becomes a run in Projections+Flushing.swift.

/// The record table, the deletion index, the outbox and the sync state.
package struct Projections: Sendable {
  package internal(set) var records = RecordTable()
  /// The deleted names, each with the births that were deleted. Another life of the same name is not deleted: a version is
  /// dead only if all its births are. No entry is removed because it is old; only a deletion that the server refuses removes
  /// one.
  package internal(set) var deletions = ChangedTable<DeletionEntry>()
  package internal(set) var outbox = Outbox()
  package internal(set) var sync = SyncState()
  /// The contents of files that events name.
  package internal(set) var contents = ContentTable()
  /// The newest event that was applied.
  package internal(set) var appliedLSN: LSN = .zero
  /// What memory does not have; nil: memory has everything.
  package internal(set) var runs: RunSet?

  var undos = UndoLog()
  private var keepsUndo = false
  /// What the held views show, by their numbers: how to undo what came after is kept for them.
  package internal(set) var views: [UInt64: View] = [:]
  var nextView: UInt64 = 0
  /// From where on it is kept how to undo.
  var undoBounds = UndoBounds()
  /// The newest event when a compaction was last considered. No event says it: what is made from the log has none.
  package internal(set) var consideredLSN: LSN = .zero
  /// What has changed durably since it was taken last, and the first undo that is not counted in it.
  var durableChanges = DurableChanges()
  /// Whether an observer asks what has changed.
  package var countsChanges = false
  var uncounted = 0

  package init() {}

  // MARK: Records

  /// A record's entry, with everything that was applied.
  ///
  /// - Throws: if a run cannot be read; it has failed then, and what was made of it has to be made again.
  package func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    if let known = records.rows.known(id) { return known }
    return try runs?.entry(id)?.entry
  }

  /// What is known of a deleted name, with everything that was applied.
  ///
  /// - Throws: as `entry(_:)`.
  package func deletion(_ id: RecordID) throws(StrandlineError) -> DeletionEntry? {
    if let known = deletions.known(id) { return known }
    return try runs?.deletion(id)
  }

  /// What is known of a record and of its name, with everything that was applied.
  ///
  /// - Throws: as `entry(_:)`.
  package func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord {
    KnownRecord(entry: try entry(id), deletion: try deletion(id))
  }

  // MARK: Applying

  /// Applies the next event. One that `isDurable` is never undone.
  ///
  /// - Parameter known: what is known of the record that the event is about, if the caller has looked.
  /// - Throws: what the look-ups of the records that the event is about throw; nothing has changed then.
  package mutating func apply(
    _ event: Event, at lsn: LSN, isDurable: Bool, known: KnownRecord? = nil
  ) throws(StrandlineError) {
    precondition(lsn > appliedLSN, "event \(lsn) after event \(appliedLSN)")
    keepsUndo = !isDurable
    switch event {
    case .opened(let opened):
      change(.tenure(Tenure(tenure: opened.tenure, writer: opened.writer, first: lsn)), at: lsn)
    case .bound(let bound): change(.bound(bound.scope, bound), at: lsn)
    case .saved(let saved):
      let known = if let known { known } else { try look(saved.id) }
      applySaved(saved.id, type: saved.type, time: saved.time, known: known, saved.content.namedContents, at: lsn)
    case .deleted(let deleted): try apply(deleted, at: lsn)
    case .sent(let sent):
      for mutation in sent.lsns where outbox.attempt(mutation) { keep(.attempted(mutation), lsn) }
    case .refused(let refused): try apply(refused, at: lsn)
    case .settled(let settled): try apply(settled, at: lsn)
    case .merged(let merged): try apply(merged, at: lsn)
    case .fetchedSave(let fetched): try apply(fetched, at: lsn)
    case .fetchedDelete(let fetched): try apply(fetched, at: lsn)
    case .blocked(let blocked): apply(blocked, at: lsn)
    case .held(let held):
      switch held.direction {
      // The mutation may have been lost to damage; then there is nothing to hold.
      case .upload: if try entry(held.id)?.pending != nil { change(.held(held.id, held), at: lsn) }
      case .download: change(.unread(held.id, held), at: lsn)
      }
    case .released(let released):
      if released.lsn > .zero {
        closeHold(released.id, at: lsn)
      } else if sync.unread[released.id] != nil {
        change(.unread(released.id, nil), at: lsn)
      }
    case .discarded(let discarded): try apply(discarded, at: lsn)
    case .tokenAdvanced(let advanced): apply(advanced, at: lsn)
    case .databaseTokenAdvanced(let advanced):
      change(.databaseToken(advanced.scope, advanced.token), at: lsn)
    case .zoneChanged(let changed): apply(changed, at: lsn)
    case .sweepBegan(let began):
      change(began.zone, at: lsn) { zone in
        (zone.sweepEpoch, zone.unprovedSince) = (began.epoch, began.since)
      }
    case .sweepEnded(let ended):
      change(ended.zone, at: lsn) { zone in
        (zone.sweepEpoch, zone.resetPolicy) = (0, "")
        (zone.hasGhosts, zone.unprovedSince) = (false, 0)
      }
    case .accountChanged(let changed): change(.parked(changed.isParked), at: lsn)
    case .pace(let pace): change(.pace(pace.scope, pace), at: lsn)
    case .deletions(let packed):
      precondition(isDurable, "compaction alone writes packed events, and they are durable when they are read")
      var known: [DeletionEntry?] = []
      for item in packed.items { known.append(try deletion(item.id)) }
      for (item, old) in zip(packed.items, known) { deletions.set(item.id, from: old, to: DeletionEntry(item)) }
      sync.learn(packed.latest)
    case .superseded(let saved):
      applySaved(saved.id, type: saved.type, time: saved.time, known: try look(saved.id), at: lsn)
    case .joined(let joined):
      if try entry(joined.id)?.pending != nil { change(.set(joined.id, joined.recordSet), at: lsn) }
    case .listed(let listed):
      if !listed.items.isEmpty { change(.listed(listed.zone, lsn, listed.items.count), at: lsn) }
    case .listedEnded(let ended): for listed in ended.lsns { change(.listed(ended.zone, listed, nil), at: lsn) }
    case .inboxRead(let read): change(.inbox(read.inbox, read.position), at: lsn)
    case .inboxRefused: change(.inboxRefusal(lsn, true), at: lsn)
    case .inboxRefusalEnded(let ended): change(.inboxRefusal(ended.lsn, false), at: lsn)
    case .confirmed, .assetUploaded, .conflicted, .inboxChange, .unknown: break
    }
    appliedLSN = lsn
  }

  /// Applies the next event, a `saved`: it needs no more of it than this.
  ///
  /// - Parameters:
  ///   - known: what is known of the record.
  ///   - contents: what it names of files.
  package mutating func applySaved(
    _ id: RecordID, type: String, time: HybridTime, known: KnownRecord, contents: [NamedContent], at lsn: LSN,
    isDurable: Bool
  ) {
    precondition(lsn > appliedLSN, "event \(lsn) after event \(appliedLSN)")
    keepsUndo = !isDurable
    applySaved(id, type: type, time: time, known: known, contents, at: lsn)
    appliedLSN = lsn
  }

  private mutating func applySaved(
    _ id: RecordID, type: String, time: HybridTime, known: KnownRecord, _ contents: [NamedContent] = [], at lsn: LSN
  ) {
    name(contents, at: lsn)
    var entry = known.entry ?? RecordEntry(type: type)
    entry.type = type
    entry.pending = outbox.appending(lsn, isDeletion: false, to: entry.pending)
    if known.entry == nil, known.deletion == nil {
      // The commonest change of all is kept in less.
      outbox.change(from: nil, to: entry.pending.map { Owed($0) })
      records.set(id, from: nil, to: entry)
      keep(.began(id, type: type), lsn)
    } else {
      set(id, (known.entry, known.deletion), (entry, known.deletion), at: lsn)
      closeHold(id, at: lsn)
    }
    sync.learn(time)
  }

  private mutating func apply(_ deleted: Deleted, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(deleted.id), deletion(deleted.id))
    // There may be no entry if damage took every version of the record. Its name is deleted all the same.
    var entry = old.0 ?? RecordEntry(type: "")
    entry.pending = outbox.appending(lsn, isDeletion: true, to: entry.pending)
    let deletion = DeletionEntry(
      births: (old.1?.births ?? []).union(deleted.births), createdMilliseconds: entry.base?.createdMilliseconds,
      changeTag: entry.base?.changeTag, lsn: lsn,
      provisional: (old.1?.provisional ?? []).union(deleted.births.subtracting(old.1?.births ?? [])),
      isLocal: true)
    set(deleted.id, old, (entry, deletion), at: lsn)
    sync.learn(deleted.time)
    closeHold(deleted.id, at: lsn)
  }

  /// No request has carried the mutation to an effect: what other devices do to the record at the server was not done to it.
  private mutating func apply(_ refused: Refused, at lsn: LSN) throws(StrandlineError) {
    guard outbox.attempted.contains(refused.lsn) else { return }
    let old = try (entry(refused.id), deletion(refused.id))
    guard var entry = old.0, let pending = entry.pending, pending.mayBeAnswered(refused.lsn) else { return }
    entry.pending = Pending(
      isDeletion: pending.isDeletion, newest: pending.newest, first: pending.first,
      attempts: pending.attempts.filter { $0.lsn != refused.lsn }, since: pending.since)
    outbox.unattempt([refused.lsn])
    keep(.unattempted([refused.lsn]), lsn)
    set(refused.id, old, (entry, old.1), at: lsn)
  }

  private mutating func apply(_ settled: Settled, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(settled.id), deletion(settled.id))
    var (entry, deletion) = old
    switch settled.outcome {
    case .saved:
      // Without a tag, the mutation was recognized in a fetched version that is the base already. A mutation that is not
      // pending here (given up meanwhile, or lost to damage) is no base: the feed will bring the server's version.
      if let tag = settled.changeTag, entry?.pending?.mayBeAnswered(settled.lsn) == true {
        entry?.base = Base(
          version: lsn, content: settled.lsn, changeTag: tag,
          createdMilliseconds: settled.created?.milliseconds, modifiedMilliseconds: settled.modified?.milliseconds)
      }
    case .deleted, .deletedOnServer: entry?.base = nil
    case .rejected, .discarded:
      // A deletion that the server refused or the app gave up: the record is alive again.
      if entry?.pending?.isDeletion == true { deletion = deletion?.refused }
    case .merged, .superseded, .cancelled, .lost: break
    }
    settle(&entry, upTo: settled.lsn, at: lsn)
    if entry?.pending == nil { deletion?.provisional = nil }
    set(settled.id, old, (entry, deletion), at: lsn)
    closeHold(settled.id, at: lsn)
  }

  private mutating func apply(_ discarded: Discarded, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(discarded.id), deletion(discarded.id))
    var (entry, deletion) = old
    if entry?.pending?.isDeletion == true { deletion = deletion?.refused }
    settle(&entry, upTo: discarded.lsn, at: lsn)
    if entry?.pending == nil { deletion?.provisional = nil }
    set(discarded.id, old, (entry, deletion), at: lsn)
    closeHold(discarded.id, at: lsn)
  }

  private mutating func apply(_ merged: Merged, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(merged.id), deletion(merged.id))
    name(merged.content.namedContents, at: lsn)
    // There may be no entry: compaction removes the version that this was merged with once this is settled.
    var entry = old.0 ?? RecordEntry(type: merged.type)
    // What was sent before is part of this now: whatever the outcome, this is sent next. So is what was owed before.
    let since = entry.pending?.since
    settle(&entry.pending, upTo: merged.local, at: lsn)
    if let pending = entry.pending {
      let attempted = (pending.attempts.map(\.lsn) + [pending.newest]).filter { outbox.attempted.contains($0) }
      outbox.unattempt(attempted)
      if !attempted.isEmpty { keep(.unattempted(attempted), lsn) }
      entry.pending = Pending(isDeletion: pending.isDeletion, newest: pending.newest, first: pending.first)
    }
    entry.type = merged.type
    entry.pending = Pending(isDeletion: false, newest: lsn, first: entry.pending?.first, since: since)
    set(merged.id, old, (entry, old.1), at: lsn)
    sync.learn(merged.time)
    closeHold(merged.id, at: lsn)
  }

  private mutating func apply(_ fetched: FetchedSave, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(fetched.id), deletion(fetched.id))
    name(fetched.content.namedContents, at: lsn)
    var entry = old.0 ?? RecordEntry(type: fetched.type)
    if entry.pending?.isDeletion ?? true { entry.type = fetched.type }
    entry.base = Base(
      version: lsn, content: lsn, changeTag: fetched.changeTag,
      createdMilliseconds: fetched.created?.milliseconds, modifiedMilliseconds: fetched.modified?.milliseconds)
    set(fetched.id, old, (entry, old.1), at: lsn)
    sync.learn(fetched.latest)
    // A page may be older than what the block is about: the answer to a lookup ends it.
    if fetched.source == .lookup { closeBlock(fetched.id, at: lsn) } else { closeUnread(fetched.id, at: lsn) }
  }

  private mutating func apply(_ fetched: FetchedDelete, at lsn: LSN) throws(StrandlineError) {
    let old = try (entry(fetched.id), deletion(fetched.id))
    var (entry, deletion) = old
    deletion = DeletionEntry(
      births: (deletion?.births ?? []).union(fetched.births),
      createdMilliseconds: entry?.base?.createdMilliseconds ?? deletion?.createdMilliseconds,
      changeTag: entry?.base?.changeTag ?? deletion?.changeTag, lsn: lsn, provisional: nil,
      isLocal: deletion?.isLocal ?? false)
    entry?.base = nil
    if entry?.pending == nil { entry = nil }
    set(fetched.id, old, (entry, deletion), at: lsn)
    closeUnread(fetched.id, at: lsn)
  }

  private mutating func apply(_ blocked: Blocked, at lsn: LSN) {
    guard blocked.consequence != .none else {
      change(.block(blocked.id, nil), at: lsn)
      return
    }
    // The answer to a doubtful deletion also settles an old version of the same record, but not the reverse.
    if sync.openBlocks[blocked.id]?.subject == .deletion, blocked.subject == .version { return }
    change(.block(blocked.id, blocked), at: lsn)
  }

  private mutating func apply(_ advanced: TokenAdvanced, at lsn: LSN) {
    change(advanced.zone, at: lsn) { zone in
      zone.wasSeen = true
      zone.token = advanced.token
      zone.tokenLSN = lsn
      if advanced.asked == nil { zone.isFullFetch = true }
    }
  }

  private mutating func apply(_ changed: ZoneChanged, at lsn: LSN) {
    // What was listed is fetched with all the rest, or never: the app has ended the zone.
    if [.reset, .forgotten].contains(changed.change) || changed.endsZone, let listed = sync.listed[changed.zone] {
      for event in listed.events.keys { change(.listed(changed.zone, event, nil), at: lsn) }
    }
    if changed.change == .forgotten {
      for id in sync.openBlocks.keys where id.zone == changed.zone { change(.block(id, nil), at: lsn) }
      return change(.zone(changed.zone, nil), at: lsn)
    }
    change(changed.zone, at: lsn) { state in
      // Whatever else is said of the zone is newer than the list.
      state.listedLoss = nil
      switch changed.change {
      case .forgotten: break
      case .created:
        state.isNew = changed.policy == ZoneState.newPolicy
        state.wasSeen = true
        (state.lostReason, state.lostWords) = (nil, "")
      case .dirty:
        state.wasSeen = true
        state.isDirty = true
        state.listedLoss = changed.reason
      case .clean:
        state.isDirty = false
        (state.isFullFetch, state.isNew) = (false, false)
      case .lost:
        (state.isDirty, state.isNew) = (false, false)
        (state.lostReason, state.lostWords) = (changed.reason, changed.words)
        // What the app ends itself is no matter of its rules.
        if changed.endsZone { state.ruledMilliseconds = changed.ruledMilliseconds }
        // A zone of that name is another one from now on, and this one's token is no place in it.
        if changed.reason == .erased { (state.token, state.sweepEpoch) = (nil, 0) }
      case .reset:
        // Records that were deleted at the server before the fetch that follows stay here until its sweep has ended.
        (state.hasGhosts, state.resetPolicy) = (true, changed.policy)
        if changed.decides { state.ruledMilliseconds = changed.ruledMilliseconds }
        state.isNew = false
        // A sweep that was under way begins anew with the fetch.
        state.sweepEpoch = 0
        state.token = nil
        state.isDirty = true
        (state.lostReason, state.lostWords) = (nil, "")
      }
    }
  }

  /// The log ends at `lsn`, though its newest events may have left it.
  package mutating func advance(to lsn: LSN) { appliedLSN = max(appliedLSN, lsn) }

  // MARK: Parts of an application

  /// Removes every mutation up to `limit` from the record's unsettled ones, and the entry if nothing is left of it.
  private mutating func settle(_ entry: inout RecordEntry?, upTo limit: LSN, at lsn: LSN) {
    guard var known = entry else { return }
    settle(&known.pending, upTo: limit, at: lsn)
    entry = known.base == nil && known.pending == nil ? nil : known
  }

  private mutating func settle(_ pending: inout Pending?, upTo limit: LSN, at lsn: LSN) {
    guard let owed = pending else { return }
    let (left, attempted) = outbox.settle(owed, upTo: limit)
    if !attempted.isEmpty { keep(.unattempted(attempted), lsn) }
    pending = left
  }

  private mutating func set(
    _ id: RecordID, _ old: (RecordEntry?, DeletionEntry?), _ new: (RecordEntry?, DeletionEntry?), at lsn: LSN
  ) {
    if new.0 != old.0 {
      records.set(id, from: old.0, to: new.0)
      outbox.change(from: old.0?.pending.map { Owed($0) }, to: new.0?.pending.map { Owed($0) })
    }
    if new.1 != old.1 { deletions.set(id, from: old.1, to: new.1) }
    if new.0?.pending == nil, old.0?.pending != nil, sync.sets[id] != nil { change(.set(id, nil), at: lsn) }
    keep(.record(id, old.0, old.1, after: new.0.map { AfterChange($0) }), lsn)
  }

  private mutating func change(_ id: ZoneID, at lsn: LSN, _ body: (inout ZoneState) -> Void) {
    var zone = sync.zones[id] ?? ZoneState()
    body(&zone)
    change(.zone(id, zone), at: lsn)
  }

  private mutating func name(_ named: [NamedContent], at lsn: LSN) {
    if named.isEmpty { return }
    for content in named { contents.add(content, at: lsn) }
    keep(.contents(named.map(\.hash)), lsn)
  }

  private mutating func change(_ change: SyncState.Change, at lsn: LSN) { keep(.sync(sync.assign(change)), lsn) }

  private mutating func keep(_ change: UndoLog.Change, _ lsn: LSN) {
    if keepsUndo { undos.append(change, at: lsn) }
  }

  private mutating func closeHold(_ id: RecordID, at lsn: LSN) {
    if sync.held[id] != nil { change(.held(id, nil), at: lsn) }
  }

  /// Ends the record's block and its download hold: the server has said what it holds.
  private mutating func closeBlock(_ id: RecordID, at lsn: LSN) {
    if sync.openBlocks[id] != nil { change(.block(id, nil), at: lsn) }
    closeUnread(id, at: lsn)
  }

  /// Ends the record's download hold: a version or deletion of it could be read.
  private mutating func closeUnread(_ id: RecordID, at lsn: LSN) {
    if sync.unread[id] != nil { change(.unread(id, nil), at: lsn) }
  }
}
