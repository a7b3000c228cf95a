// What is durable of the projections. Writers see what is appended, readers what is durable, and a view what was durable
// when it was taken. So each change keeps what was there before, until it is durable and no view is older: a reader reads
// that, and a group that fails is undone with it.

private import StrandlineLog

extension Projections {
  /// What memory says of a record as of some event.
  package enum Lookup<Value: Sendable>: Sendable {
    case known(Value?)
    /// Memory says nothing: the runs know, whatever happens to the projections meanwhile.
    case stored(RunSet)
  }

  /// A record's entry as of `lsn`, whatever has happened since, without a look into the runs.
  mutating func lookup(_ id: RecordID, asOf lsn: LSN) -> Lookup<RecordEntry> {
    if let (entry, _) = undos.before(id, after: lsn) { return .known(entry) }
    if let known = records.rows.known(id) { return .known(known) }
    return runs.map { .stored($0) } ?? .known(nil)
  }

  /// A record's entry as of `durable`, whatever has been appended since.
  package mutating func entry(_ id: RecordID, asOf durable: LSN) throws(StrandlineError) -> RecordEntry? {
    if let (entry, _) = undos.before(id, after: durable) { return entry }
    return try entry(id)
  }

  /// A deletion as of `durable`.
  package mutating func deletion(_ id: RecordID, asOf durable: LSN) throws(StrandlineError) -> DeletionEntry? {
    if let (_, deletion) = undos.before(id, after: durable) { return deletion }
    return try deletion(id)
  }

  /// The sync state as of `durable`.
  package func sync(asOf durable: LSN) -> SyncState {
    var result = sync
    for undo in undos.reversed(after: durable) {
      if case .sync(let change) = undo.change { _ = result.assign(change) }
    }
    return result
  }

  /// The records that have changed after `lsn`, with the entries that they had.
  ///
  /// - Precondition: `lsn` is durable, or a view shows it.
  package func changes(after lsn: LSN) -> [RecordID: RecordEntry?] {
    var before: [RecordID: RecordEntry?] = [:]
    for undo in undos.reversed(after: lsn) {
      if let changed = undo.change.ofRecord { before.updateValue(changed.before, forKey: changed.id) }
    }
    return before
  }

  /// How many records live, by zone, as of `durable`. O(zones + what has changed since).
  package func living(asOf durable: LSN) -> [ZoneID: LivingCount] {
    var living = records.living
    for undo in undos.reversed(after: durable) {
      guard let changed = undo.change.ofRecord else { continue }
      living.change(changed.id.zone, from: changed.after?.livingType, to: changed.before?.livingType)
    }
    return living
  }

  /// How many records owe the server something, and the oldest mutation that one of them owes, as of `durable`.
  package func owed(asOf durable: LSN) -> (count: Int, oldest: LSN?) {
    var durableOutbox = outbox
    for undo in undos.reversed(after: durable) {
      guard let changed = undo.change.ofRecord else { continue }
      durableOutbox.change(from: undo.owed, to: changed.before?.pending.map { Owed($0) })
    }
    return (durableOutbox.count, durableOutbox.oldest)
  }

  // MARK: Views

  /// Begins a view of what is durable: as long as it is held, `entry(_:asOf:)` answers for its LSN.
  ///
  /// - Complexity: O(1); nothing is copied, now or later.
  package mutating func beginView(at durable: LSN, nanoseconds: UInt64) -> UInt64 {
    nextView += 1
    views[nextView] = View(lsn: durable, shown: durable, takenNanoseconds: nanoseconds)
    return nextView
  }

  package mutating func endView(_ number: UInt64, durable: LSN) {
    views[number] = nil
    trim(upTo: durable)
  }

  /// How many changes are kept that can be undone: those in flight, and those since the oldest view.
  package var undoCount: Int { undos.count }

  /// A view that is held.
  package struct View: Sendable {
    /// The newest event that was durable when it was taken.
    package var lsn: LSN
    /// The newest event that it shows.
    package var shown: LSN
    /// When it was taken, by the monotonic clock.
    package var takenNanoseconds: UInt64
  }

  // MARK: Publishing

  /// What has become durable since the last call.
  package mutating func takeDurableChanges(upTo durable: LSN) -> DurableChanges {
    trim(upTo: durable)
    defer { durableChanges = DurableChanges() }
    return durableChanges
  }

  private mutating func countDurableChanges(upTo durable: LSN) {
    let end = undos.end(of: durable)
    guard uncounted < end else { return }
    defer { uncounted = end }
    guard countsChanges else { return }
    for undo in undos.undos[(uncounted - undos.trimmed)..<(end - undos.trimmed)] {
      if let changed = undo.change.ofRecord {
        durableChanges.add(changed.id, types: changed.before?.type, changed.after?.type)
      } else if case .sync = undo.change {
        durableChanges.hasSyncChanged = true
      }
    }
  }

  /// Forgets how to undo what has become durable and no view is older than.
  package mutating func trim(upTo durable: LSN) {
    countDurableChanges(upTo: durable)
    let oldest = min(
      views.values.lazy.map(\.lsn).min() ?? durable, undoBounds.flush ?? durable, undoBounds.compaction ?? durable)
    undos.trim(upTo: min(durable, oldest))
  }

  // MARK: Judging

  /// From now on until the judgement: how to undo what comes after `durable` is kept.
  package mutating func beginJudgement(after durable: LSN) { undoBounds.compaction = durable }

  package mutating func endJudgement() { undoBounds.compaction = nil }

  /// The projections as of `lsn`, if that is not before the judgement began, and no run has been written of what came
  /// after it: a run cannot be undone. O(events since).
  package func judged(asOf lsn: LSN) -> Projections? {
    guard let begun = undoBounds.compaction, begun <= lsn, lsn <= appliedLSN, runs?.end.lsn ?? 0 <= lsn.rawValue else {
      return nil
    }
    var result = self
    result.undo(to: lsn)
    return result
  }

  /// A compaction was considered when `lsn` was the newest event.
  package mutating func considered(_ lsn: LSN) { consideredLSN = max(consideredLSN, lsn) }

  /// Undoes every event after `lsn`: they were not, and will not be, durable.
  package mutating func undo(to lsn: LSN) {
    while let undo = undos.removeLast(after: lsn) { revert(undo) }
    appliedLSN = min(appliedLSN, lsn)
  }

  /// Undoes one change, the newest that is not undone.
  mutating func revert(_ undo: UndoLog.Undo) {
    switch undo.change {
    case .began(let id, _):
      if case .some(let now?) = records.rows.known(id) { records.set(id, from: now, to: nil) }
      outbox.change(from: undo.owed, to: nil)
    case .record(let id, let entry, let deletion, _):
      outbox.change(from: undo.owed, to: entry?.pending.map { Owed($0) })
      // What memory does not know has not changed since the runs were written.
      if case .some(let now) = records.rows.known(id), now != entry { records.set(id, from: now, to: entry) }
      if case .some(let now) = deletions.known(id), now != deletion { deletions.set(id, from: now, to: deletion) }
    case .attempted(let mutation): outbox.unattempt([mutation])
    case .unattempted(let mutations): outbox.reattempt(mutations)
    case .sync(let change): _ = sync.assign(change)
    case .contents(let hashes): for hash in hashes { contents.remove(hash, at: undo.lsn) }
    }
  }
}
