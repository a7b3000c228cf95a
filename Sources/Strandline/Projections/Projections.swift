// The four projections and how each event changes them: a pure function of the log, without clock, randomness or
// callback. Formats/events.md, "From events to records", has the same as numbered steps.
//
// Writers see what is appended, readers what is durable. So each change that is not durable yet keeps what was there
// before: a reader reads that, and a group that fails is undone with it.

/// The record table, the deletion index, the outbox and the sync state.
package struct Projections: Sendable {
  package private(set) var records = RecordTable()
  package private(set) var deletions = DeletionIndex()
  package private(set) var outbox = Outbox()
  package private(set) var sync = SyncState()
  /// The newest event that was applied.
  package private(set) var appliedLSN: LSN = .none

  /// What an event changed, as it was before. Kept from the append until the event is durable.
  private struct Undo: Sendable {
    var lsn: LSN
    var id: RecordID?
    var entry: RecordEntry?
    var deletion: DeletionEntry?
    var sync: SyncState?
  }
  private var undos: [Undo] = []
  private var undosByID: [RecordID: [Int]] = [:]
  /// How many undos were trimmed so far. `undosByID` counts from the first undo ever, so index i is `undos[i - trimmed]`.
  private var trimmed = 0
  private var keepsUndo = false

  package init() {}

  // MARK: Applying

  /// Applies the next event. One that `isDurable` is never undone.
  package mutating func apply(_ event: Event, at lsn: LSN, isDurable: Bool) {
    precondition(lsn > appliedLSN, "event \(lsn) after event \(appliedLSN)")
    keepsUndo = !isDurable
    appliedLSN = lsn
    switch event {
    case .opened(let opened):
      changeSync(lsn) { $0.tenures.append(Tenure(tenure: opened.tenure, writer: opened.writer, first: lsn)) }
    case .bound(let bound): changeSync(lsn) { $0.bound = bound }
    case .saved(let saved): apply(saved, at: lsn)
    case .deleted(let deleted): apply(deleted, at: lsn)
    case .sent(let sent): apply(sent, at: lsn)
    case .settled(let settled): apply(settled, at: lsn)
    case .merged(let merged): apply(merged, at: lsn)
    case .fetchedSave(let fetched): apply(fetched, at: lsn)
    case .fetchedDelete(let fetched): apply(fetched, at: lsn)
    case .blocked(let blocked):
      changeSync(lsn) { sync in
        guard blocked.consequence != .none else {
          sync.openBlocks[blocked.id] = nil
          return
        }
        // The answer to a doubtful deletion also settles an old version of the same record, but not the reverse.
        if sync.openBlocks[blocked.id]?.subject == .deletion, blocked.subject == .version { return }
        sync.openBlocks[blocked.id] = blocked
      }
    case .held(let held):
      // The mutation may have been lost to damage; then there is nothing to hold.
      if held.direction == .upload, records[held.id]?.pending == nil { break }
      changeSync(lsn) {
        switch held.direction {
        case .upload: $0.held[held.id] = held
        case .download: $0.unread[held.id] = held
        }
      }
    case .released(let released):
      changeSync(lsn) {
        $0.held[released.id] = nil
        $0.unread[released.id] = nil
      }
    case .discarded(let discarded):
      change(discarded.id, at: lsn) { entry, deletion, outbox in
        if entry?.pending?.isDeletion == true { deletion = deletion?.refused }
        Self.settle(&entry, upTo: discarded.lsn, outbox: &outbox)
        if entry?.pending == nil { deletion?.provisional = nil }
      }
      closeHold(discarded.id, at: lsn)
    case .tokenAdvanced(let advanced): apply(advanced, at: lsn)
    case .zoneChanged(let changed): apply(changed, at: lsn)
    case .sweepBegan(let began): changeSync(lsn) { $0.zones[began.zone, default: ZoneState()].sweepEpoch = began.epoch }
    case .sweepEnded(let ended):
      changeSync(lsn) {
        $0.zones[ended.zone, default: ZoneState()].sweepEpoch = 0
        $0.zones[ended.zone]?.hasGhosts = false
      }
    case .accountChanged(let changed): changeSync(lsn) { $0.isParked = changed.isParked }
    case .pace(let pace): changeSync(lsn) { $0.pace = pace }
    case .deletions(let packed):
      precondition(isDurable, "compaction alone writes packed events, and they are durable when they are read")
      deletions.add(packed)
      learn(packed.latest, at: lsn)
    case .superseded(let packed): apply(packed, at: lsn)
    case .confirmed, .listed, .assetUploaded, .unknown: break
    }
  }

  private mutating func apply(_ saved: Saved, at lsn: LSN) {
    change(saved.id, at: lsn) { entry, _, outbox in
      var now = entry ?? RecordEntry(type: saved.type)
      now.type = saved.type
      var pending = now.pending ?? Pending(isDeletion: false, lsns: [])
      pending.isDeletion = false
      pending.lsns.append(lsn)
      now.pending = pending
      entry = now
      outbox.insert(lsn, saved.id)
    }
    learn(saved.time, at: lsn)
    closeHold(saved.id, at: lsn)
  }

  private mutating func apply(_ deleted: Deleted, at lsn: LSN) {
    change(deleted.id, at: lsn) { entry, deletion, outbox in
      // There may be no entry if damage took every version of the record. Its name is deleted all the same.
      var now = entry ?? RecordEntry(type: "")
      var pending = now.pending ?? Pending(isDeletion: true, lsns: [])
      pending.isDeletion = true
      pending.lsns.append(lsn)
      now.pending = pending
      entry = now
      outbox.insert(lsn, deleted.id)
      deletion = DeletionEntry(
        births: (deletion?.births ?? []).union(deleted.births), createdMilliseconds: now.base?.createdMilliseconds,
        changeTag: now.base?.changeTag, lsn: lsn,
        provisional: (deletion?.provisional ?? []).union(deleted.births.subtracting(deletion?.births ?? [])),
        isLocal: true)
    }
    learn(deleted.time, at: lsn)
    closeHold(deleted.id, at: lsn)
  }

  private mutating func apply(_ sent: Sent, at lsn: LSN) {
    for mutation in sent.lsns {
      guard let id = outbox.records[mutation] else { continue }
      change(id, at: lsn) { entry, _, _ in
        let before = entry?.pending?.attempted ?? .none
        entry?.pending?.attempted = max(before, mutation)
      }
    }
  }

  private mutating func apply(_ settled: Settled, at lsn: LSN) {
    change(settled.id, at: lsn) { entry, deletion, outbox in
      switch settled.outcome {
      case .saved:
        // Without a tag, the mutation was recognized in a fetched version that is the base already. A mutation that is not
        // pending here (given up meanwhile, or lost to damage) is no base: the feed will bring the server's version.
        if let tag = settled.changeTag, entry?.pending?.lsns.contains(settled.lsn) == true {
          entry?.base = Base(
            version: lsn, content: settled.lsn, changeTag: tag,
            createdMilliseconds: settled.created?.milliseconds, modifiedMilliseconds: settled.modified?.milliseconds)
        }
      case .deleted, .deletedOnServer: entry?.base = nil
      case .rejected, .discarded:
        // A deletion that the server refused or the app gave up: the record is alive again.
        if entry?.pending?.isDeletion == true { deletion = deletion?.refused }
      case .merged, .superseded, .cancelled: break
      }
      Self.settle(&entry, upTo: settled.lsn, outbox: &outbox)
      if entry?.pending == nil { deletion?.provisional = nil }
    }
    closeHold(settled.id, at: lsn)
  }

  private mutating func apply(_ merged: Merged, at lsn: LSN) {
    change(merged.id, at: lsn) { entry, _, outbox in
      // There may be no entry: compaction removes the version that this was merged with once this is settled.
      var now = entry ?? RecordEntry(type: merged.type)
      var settling = entry
      Self.settle(&settling, upTo: merged.local, outbox: &outbox)
      now.pending = settling?.pending ?? Pending(isDeletion: false, lsns: [])
      now.type = merged.type
      now.pending?.isDeletion = false
      now.pending?.lsns.append(lsn)
      now.pending?.attempted = nil
      entry = now
      outbox.insert(lsn, merged.id)
    }
    learn(merged.time, at: lsn)
    closeHold(merged.id, at: lsn)
  }

  private mutating func apply(_ packed: Superseded, at lsn: LSN) {
    for mutation in packed.mutations {
      let record = packed.records[mutation.record]
      change(record.id, at: lsn) { entry, _, outbox in
        var now = entry ?? RecordEntry(type: record.type)
        var pending = now.pending ?? Pending(isDeletion: false, lsns: [])
        now.type = record.type
        if mutation.lsn > pending.newest { pending.isDeletion = false }
        pending.insert(mutation.lsn)
        now.pending = pending
        entry = now
        outbox.insert(mutation.lsn, record.id)
      }
    }
    outbox.learn(packed)
    learn(packed.latest, at: lsn)
  }

  /// Learns the times of mutations whose events a compaction is about to replace by `packed`.
  package mutating func learn(aboutToBePacked packed: Superseded) { outbox.learn(packed) }

  private mutating func apply(_ fetched: FetchedSave, at lsn: LSN) {
    change(fetched.id, at: lsn) { entry, _, _ in
      var now = entry ?? RecordEntry(type: fetched.type)
      if now.pending?.isDeletion ?? true { now.type = fetched.type }
      now.base = Base(
        version: lsn, content: lsn, changeTag: fetched.changeTag,
        createdMilliseconds: fetched.created?.milliseconds, modifiedMilliseconds: fetched.modified?.milliseconds)
      entry = now
    }
    learn(fetched.latest, at: lsn)
    closeBlock(fetched.id, at: lsn)
  }

  private mutating func apply(_ fetched: FetchedDelete, at lsn: LSN) {
    change(fetched.id, at: lsn) { entry, deletion, _ in
      deletion = DeletionEntry(
        births: (deletion?.births ?? []).union(fetched.births),
        createdMilliseconds: entry?.base?.createdMilliseconds ?? deletion?.createdMilliseconds,
        changeTag: entry?.base?.changeTag ?? deletion?.changeTag, lsn: lsn, provisional: nil,
        isLocal: deletion?.isLocal ?? false)
      entry?.base = nil
      if entry?.pending == nil { entry = nil }
    }
    closeBlock(fetched.id, at: lsn)
  }

  private mutating func apply(_ advanced: TokenAdvanced, at lsn: LSN) {
    changeSync(lsn) { sync in
      guard let zone = advanced.zone else {
        sync.databaseToken = advanced.token
        return
      }
      var state = sync.zones[zone] ?? ZoneState()
      state.wasSeen = true
      state.token = advanced.token
      state.tokenLSN = lsn
      if advanced.asked == nil { state.isFullFetch = true }
      sync.zones[zone] = state
    }
  }

  private mutating func apply(_ changed: ZoneChanged, at lsn: LSN) {
    changeSync(lsn) { sync in
      var state = sync.zones[changed.zone] ?? ZoneState()
      switch changed.change {
      case .created:
        state.wasSeen = true
        state.isLost = false
      case .dirty:
        state.wasSeen = true
        state.isDirty = true
      case .clean:
        state.isDirty = false
        state.isFullFetch = false
      case .lost:
        state.isLost = true
        state.isDirty = false
        state.lostReason = changed.reason
      case .reset:
        // Records that were deleted at the server before this fetch stay here: no sweep removes them yet.
        state.hasGhosts = true
        state.token = nil
        state.isDirty = true
        state.isLost = false
      }
      sync.zones[changed.zone] = state
    }
  }

  /// The log ends at `lsn`, though its newest events may have left it.
  package mutating func advance(to lsn: LSN) { appliedLSN = max(appliedLSN, lsn) }

  // MARK: Parts of an application

  /// Removes every mutation up to `lsn` from the record's unsettled ones, and the entry if nothing is left of it.
  private static func settle(_ entry: inout RecordEntry?, upTo lsn: LSN, outbox: inout Outbox) {
    guard var pending = entry?.pending else {
      if entry?.base == nil { entry = nil }
      return
    }
    for mutation in pending.lsns where mutation <= lsn { outbox.remove(mutation) }
    let isOwed = pending.settle(upTo: lsn)
    entry?.pending = isOwed ? pending : nil
    if !isOwed, entry?.base == nil { entry = nil }
  }

  private mutating func change(
    _ id: RecordID, at lsn: LSN, _ body: (inout RecordEntry?, inout DeletionEntry?, inout Outbox) -> Void
  ) {
    var entry = records[id]
    var deletion = deletions[id]
    let before = (entry, deletion)
    body(&entry, &deletion, &outbox)
    if entry != before.0 { records[id] = entry }
    if deletion != before.1 { deletions[id] = deletion }
    guard keepsUndo else { return }
    undosByID[id, default: []].append(trimmed + undos.count)
    undos.append(Undo(lsn: lsn, id: id, entry: before.0, deletion: before.1))
  }

  private mutating func changeSync(_ lsn: LSN, _ body: (inout SyncState) -> Void) {
    if keepsUndo { undos.append(Undo(lsn: lsn, sync: sync)) }
    body(&sync)
  }

  /// Needs no undo: the greatest time only grows, and one that is greater than necessary does no harm.
  private mutating func learn(_ time: HybridTime, at lsn: LSN) { sync.latest = max(sync.latest, time) }

  private mutating func closeHold(_ id: RecordID, at lsn: LSN) {
    if sync.held[id] != nil { changeSync(lsn) { $0.held[id] = nil } }
  }

  /// Ends the record's block and its download hold: the server's version or deletion of it has been applied.
  private mutating func closeBlock(_ id: RecordID, at lsn: LSN) {
    guard sync.openBlocks[id] != nil || sync.unread[id] != nil else { return }
    changeSync(lsn) {
      $0.openBlocks[id] = nil
      $0.unread[id] = nil
    }
  }

  // MARK: What is durable

  /// A record's entry as of `durable`, whatever has been appended since.
  package func entry(_ id: RecordID, asOf durable: LSN) -> RecordEntry? {
    undo(id, after: durable).map(\.entry) ?? records[id]
  }

  /// A deletion as of `durable`.
  package func deletion(_ id: RecordID, asOf durable: LSN) -> DeletionEntry? {
    undo(id, after: durable).map(\.deletion) ?? deletions[id]
  }

  private func undo(_ id: RecordID, after durable: LSN) -> Undo? {
    guard let places = undosByID[id] else { return nil }
    for place in places where place >= trimmed {
      let undo = undos[place - trimmed]
      if undo.lsn > durable { return undo }
    }
    return nil
  }

  /// The sync state as of `durable`.
  package func sync(asOf durable: LSN) -> SyncState {
    undos.first { $0.lsn > durable && $0.sync != nil }?.sync ?? sync
  }

  /// The IDs whose entries are not the same for readers and writers.
  package func idsInFlight(after durable: LSN) -> Set<RecordID> {
    Set(undos.lazy.filter { $0.lsn > durable }.compactMap(\.id))
  }

  /// Forgets how to undo what has become durable.
  package mutating func trim(upTo durable: LSN) {
    let count = undos.firstIndex { $0.lsn > durable } ?? undos.count
    guard count > 0 else { return }
    if count == undos.count {
      // Nothing is in flight: the usual case between two writes.
      undos.removeAll(keepingCapacity: true)
      undosByID.removeAll(keepingCapacity: true)
      trimmed += count
      return
    }
    for undo in undos[..<count] {
      guard let id = undo.id, let places = undosByID[id] else { continue }
      let left = places.filter { $0 >= trimmed + count }
      undosByID[id] = left.isEmpty ? nil : left
    }
    undos.removeFirst(count)
    trimmed += count
  }

  /// Undoes every event after `lsn`: they were not, and will not be, durable.
  package mutating func undo(to lsn: LSN) {
    while let undo = undos.last, undo.lsn > lsn {
      undos.removeLast()
      if let old = undo.sync { sync = old }
      guard let id = undo.id else { continue }
      undosByID[id]?.removeLast()
      if undosByID[id]?.isEmpty == true { undosByID[id] = nil }
      for mutation in records[id]?.pending?.lsns ?? [] { outbox.remove(mutation) }
      records[id] = undo.entry
      deletions[id] = undo.deletion
      for mutation in undo.entry?.pending?.lsns ?? [] { outbox.insert(mutation, id) }
    }
    appliedLSN = min(appliedLSN, lsn)
  }
}
