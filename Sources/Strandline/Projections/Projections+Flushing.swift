// How what lies in memory becomes a run: what is durable of it is set apart, written without a lock, and dropped when the
// run is listed. Until then look-ups find it where it is.

import StrandlineSystem

extension Projections {
  /// How many entries memory has that no run has.
  package var unstoredCount: Int { records.changed.count + deletions.changed.count }

  /// Sets apart what is durable; a flush writes it into a run.
  ///
  /// - Parameter end: the last durable event. Changes after it can be undone.
  /// - Returns: the projections as of `end`.
  /// - Complexity: O(changes behind `end`).
  package mutating func beginFlush(upTo end: LSN) -> Projections {
    precondition(records.rows.frozen.isEmpty && deletions.frozen.isEmpty)
    var since: Set<RecordID> = []
    for undo in undos.reversed(after: end) {
      if let changed = undo.change.ofRecord { since.insert(changed.id) }
    }
    var durable = self
    // In this order, so that the tables change hands: undoing what came after `end` copies none of them.
    durable.undos = UndoLog()
    records.rows.handOver(keeping: since)
    deletions.handOver(keeping: since)
    for undo in undos.reversed(after: end) { durable.revert(undo) }
    durable.appliedLSN = min(appliedLSN, end)
    records.rows.freeze(durable.records.rows)
    deletions.freeze(durable.deletions)
    return durable
  }

  /// What was set apart stands in `runs`.
  mutating func endFlush(_ runs: RunSet) {
    self.runs = runs
    records.rows.thaw()
    deletions.thaw()
  }

  /// What was set apart was not written.
  package mutating func cancelFlush() {
    records.rows.refreeze()
    deletions.refreeze()
  }

  /// Other runs say the same.
  mutating func replaceRuns(_ runs: RunSet) { self.runs = runs }

  /// Others were made from the log, of the events up to `made`'s: they take the place of the runs and of nothing else.
  mutating func adopt(_ made: Projections) {
    runs = made.runs
    records.rows.adopt(made.records.rows)
    deletions.adopt(made.deletions)
  }

  /// Others were made from the log, of the events up to `made`'s, because the runs said what the log does not: they take the
  /// place of all that was made of the runs. Views that are held have expired then.
  ///
  /// What has changed after those events stays, and what is counted.
  ///
  /// - Returns: whether nothing is left of what the runs said.
  mutating func replace(with made: Projections) -> Bool {
    guard made.appliedLSN == appliedLSN else {
      var since: Set<RecordID> = []
      for undo in undos.reversed(after: made.appliedLSN) {
        if let changed = undo.change.ofRecord { since.insert(changed.id) }
      }
      records.rows.forget(but: since)
      deletions.forget(but: since)
      adopt(made)
      return false
    }
    views = [:]
    trim(upTo: appliedLSN)
    let latest = sync.latest
    (runs, records, deletions, outbox, sync) = (made.runs, made.records, made.deletions, made.outbox, made.sync)
    contents = made.contents
    sync.learn(latest)
    return true
  }

  // MARK: The state beside the tables

  /// What a run holds beside the rows of single records.
  package var storedState: StoredState {
    StoredState(
      lsn: appliedLSN, recordCount: UInt64(records.count),
      living: records.living.filter { $0.value.total != 0 }.sorted { $0.key < $1.key }
        .map { StoredState.ZoneCount(zone: $0.key, living: $0.value) },
      deletionCount: UInt64(deletions.count), newest: outbox.newest,
      since: outbox.since, attempted: outbox.attempted,
      bounds: sync.bounds.values.sorted { $0.scope < $1.scope },
      zones: sync.zones.sorted { $0.key < $1.key }.map { StoredState.KnownZone(zone: $0.key, state: $0.value) },
      databaseTokens: sync.databaseTokens.sorted { $0.key < $1.key }
        .map { DatabaseTokenAdvanced(scope: $0.key, asked: nil, token: $0.value) },
      tenures: sync.tenures, held: sync.held.values.sorted { $0.id < $1.id },
      sets: sync.sets.map { Joined(id: $0.key, set: $0.value.number) }.sorted { $0.id < $1.id },
      unread: sync.unread.values.sorted { $0.id < $1.id },
      openBlocks: sync.openBlocks.values.sorted { $0.id < $1.id },
      paces: sync.paces.values.sorted { $0.scope < $1.scope },
      listed: sync.listed.sorted { $0.key < $1.key }.flatMap { zone, listed in
        listed.events.sorted { $0.key < $1.key }
          .map { StoredState.Listing(zone: zone, lsn: $0.key, names: UInt64($0.value)) }
      },
      inboxes: sync.inbox.positions.map { InboxRead(inbox: $0.key, position: $0.value) }
        .sorted { $0.inbox.lexicographicallyPrecedes($1.inbox) }, inboxRefusals: sync.inbox.refusals.sorted(),
      latest: sync.latest, isParked: sync.isParked, considered: consideredLSN, contents: contents.stored)
  }

  /// The projections that runs hold.
  init(_ state: StoredState, _ runs: RunSet) {
    self.runs = runs
    appliedLSN = state.lsn
    records = RecordTable(
      stored: Int(state.recordCount),
      living: Dictionary(state.living.map { ($0.zone, $0.living) }) { first, _ in first })
    deletions = ChangedTable(stored: Int(state.deletionCount))
    outbox = Outbox(state)
    sync = SyncState(state)
    contents = ContentTable(state.contents)
    consideredLSN = min(state.considered, state.lsn)
  }
}

extension Outbox {
  init(_ state: StoredState) {
    newest = state.newest
    since = state.since
    attempted = state.attempted
  }
}

extension SyncState {
  init(_ state: StoredState) {
    self.init()
    for bound in state.bounds { _ = assign(.bound(bound.scope, bound)) }
    for zone in state.zones { _ = assign(.zone(zone.zone, zone.state)) }
    for token in state.databaseTokens { _ = assign(.databaseToken(token.scope, token.token)) }
    for tenure in state.tenures { _ = assign(.tenure(tenure)) }
    for held in state.held { _ = assign(.held(held.id, held)) }
    for joined in state.sets { _ = assign(.set(joined.id, joined.recordSet)) }
    for held in state.unread { _ = assign(.unread(held.id, held)) }
    for block in state.openBlocks { _ = assign(.block(block.id, block)) }
    for pace in state.paces { _ = assign(.pace(pace.scope, pace)) }
    for listing in state.listed { _ = assign(.listed(listing.zone, listing.lsn, Int(listing.names))) }
    for read in state.inboxes { _ = assign(.inbox(read.inbox, read.position)) }
    for lsn in state.inboxRefusals { _ = assign(.inboxRefusal(lsn, true)) }
    _ = assign(.parked(state.isParked))
    learn(state.latest)
  }
}
