// What a store held as of an earlier event, from what the log still has.
//
// The events since then say which records have changed; all others are as they are now. Of those that have, the entry of
// then is made as all entries are, by applying events in their order: from the runs that are no newer than that event, or
// from the log's start, and of these records alone.
//
// Compaction decides by the state as of one event what may go. What stays gives that state and every later one, and none
// of those before. So a view is refused where the log was compacted by a later state than the one asked for: not by a gap
// that is met, because what is missing need not leave one behind the place.

import StrandlineLog
import StrandlineSystem

/// The records that have changed between an event and a view, as they were then.
struct PastEntries: Sendable {
  /// The event: the last of its transaction.
  let lsn: LSN
  let entries: [RecordID: RecordEntry?]
  /// By how many more records lived then, by zone.
  let living: [ZoneID: LivingCount]

  /// The record that an entry points at.
  ///
  /// - Throws: `.positionExpired` if a compaction has removed anything of it, which only one can have done that had begun
  ///   before the view was taken, or that another process makes.
  func load(_ id: RecordID, _ entry: RecordEntry, from source: EventSource) throws(StrandlineError) -> Record? {
    guard let place = entry.view else { return nil }
    do throws(StrandlineError) {
      guard let event = try source.eventIfKept(at: place), let shown = try ShownVersion(event, at: place) else {
        throw StrandlineError(expired: lsn, "event \(place) was compacted since the view was taken")
      }
      try event.checkIsOf(id, at: place)
      var system = shown.system
      if system == nil, let base = entry.base {
        switch try source.eventIfKept(at: base.version) {
        case .settled(let settled): system = SystemFields(settled)
        case .fetchedSave(let fetched): system = SystemFields(fetched)
        default:
          throw StrandlineError(expired: lsn, "event \(base.version) was compacted since the view was taken")
        }
      }
      return shown.record(id, system: system)
    } catch {
      var error = error
      error.message = "reading record '\(id)': \(error.message)"
      throw error
    }
  }
}

extension StrandlineError {
  fileprivate init(expired lsn: LSN, _ why: String) {
    self.init(.positionExpired, "what the store held as of event \(lsn) is not known any more: \(why)", lsns: lsn...lsn)
  }
}

/// The making of what a view shows as of an earlier event.
private struct PastReading {
  private let present: StoreView
  private let source: EventSource
  private let position: LogPosition
  /// The end of the transaction that the position is in.
  private var lsn: LSN
  private var changed: Set<RecordID> = []

  init(_ present: StoreView, asOf position: LogPosition) {
    self.present = present
    self.position = position
    source = present.store.source
    lsn = position.lsn
  }

  mutating func entries() throws -> PastEntries {
    var compacted = try compactedLSN()
    try findChanged()
    while true {
      let entries = try entries(behind: compacted)
      // What was read may have been compacted meanwhile.
      let now = try compactedLSN()
      if now == compacted { return PastEntries(lsn: lsn, entries: entries, living: try living(entries)) }
      compacted = now
    }
  }

  /// - Throws: `.positionExpired` if compaction has judged by a later state.
  private func compactedLSN() throws(StrandlineError) -> LSN {
    let compacted = try source.compactedLSN()
    guard compacted <= position.lsn else {
      throw StrandlineError(expired: position.lsn, "the log was compacted up to event \(compacted)")
    }
    return compacted
  }

  /// Finds the records that have changed since.
  private mutating func findChanged() throws {
    var run = EventRun(since: position)
    var isWithin: Bool?
    try source.scan(after: position.lsn, upTo: present.moment) { found in
      let kind = EventCodec.kind(ofBody: found.body)
      try run.take(LSN(found.lsn), kind)
      if isWithin ?? !found.isFirst {
        lsn = LSN(found.lsn)
        isWithin = !found.isLast
        return true
      }
      isWithin = false
      if kind?.changesEntry == true, let id = try found.decoded().recordID { changed.insert(id) }
      return true
    }
    try run.checkReached(present.moment)
  }

  /// The entries that the changed records had.
  ///
  /// - Parameter compacted: what the log has up to there is not to be applied to an older state.
  private func entries(behind compacted: LSN) throws -> [RecordID: RecordEntry?] {
    guard !changed.isEmpty else { return [:] }
    var state = Projections()
    if let runs = try present.memory().runs?.earlier(within: compacted...lsn) {
      state = Projections(try runs.state(), runs)
    }
    try source.scan(after: state.appliedLSN, upTo: lsn) { found in
      guard EventCodec.kind(ofBody: found.body)?.changesEntry == true else { return true }
      let event = try found.decoded()
      if let id = event.recordID, changed.contains(id) { try state.apply(event, at: LSN(found.lsn), isDurable: true) }
      return true
    }
    var entries: [RecordID: RecordEntry?] = [:]
    for id in changed { entries.updateValue(try state.entry(id), forKey: id) }
    return entries
  }

  private func living(_ entries: [RecordID: RecordEntry?]) throws -> [ZoneID: LivingCount] {
    var living: [ZoneID: LivingCount] = [:]
    let ids = Array(entries.keys)
    for (id, now) in zip(ids, try present.entries(ids)) {
      let then = entries[id] ?? nil
      living.change(id.zone, from: now?.entry.livingType, to: then?.livingType)
    }
    return living
  }
}

extension EventKind {
  /// Whether an event of this kind changes what is known of where one record lies.
  fileprivate var changesEntry: Bool {
    switch self {
    case .saved, .superseded, .deleted, .settled, .merged, .fetchedSave, .fetchedDelete, .discarded: true
    default: false
    }
  }
}

extension RecordStore {
  /// A view of what the store held at an earlier position, as long as the log has the history since then.
  ///
  /// The position may be that of a receipt, a view, a page of changes or a change, also from before a relaunch; `.start` is
  /// the place before the first event, where no record lived. One within a transaction stands for the transaction's end.
  /// Compaction shortens the history, and leaves in place what the view shows as long as it is held.
  ///
  /// - Throws: `StrandlineError`: `.positionExpired` if the store was compacted after the position, or a repair has lost what
  ///   followed it; `.noSuchRecord` if the position is not of this log: the store was restored from a backup, or is
  ///   another one; `.damaged`, `.fromTheFuture` and `.io` if the log cannot be read; `.closed`.
  /// - Complexity: O(bytes of the log after the position, and between it and the last run before it that the index has);
  ///   memory for the identities of the records that have changed since. Reading through it then costs what reading
  ///   through a view of now does.
  public func view(asOf position: LogPosition) throws -> StoreView {
    try CallSite.unnamed.run("taking a view of the store at '\(path)' as of event \(position.lsn)") {
      try requireOpen()
      let present = StoreView(self, keeping: position.lsn)
      let (sync, applied) = projections.withLock { ($0.sync, $0.appliedLSN) }
      try check(position, in: sync, upTo: min(present.moment, applied))
      guard position.lsn < present.moment else { return try view() }
      for _ in 0..<2 {
        var reading = PastReading(present, asOf: position)
        do { return StoreView(try reading.entries(), before: present) } catch let error as StrandlineError
          where error.isOfIndex
        {
          try projections.discardIndex(error)
        }
      }
      var reading = PastReading(present, asOf: position)
      return StoreView(try reading.entries(), before: present)
    }
  }
}
