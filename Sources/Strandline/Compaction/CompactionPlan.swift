// Which events of a log's beginning stay, so that folding what stays gives the very same projections.
//
// Everything is judged by the state at the beginning's end, not by what stands behind it: if the fold up to there is
// the same, it is the same after every event that follows, whatever that is. Which events the state names is a set of LSNs,
// made by one walk through the records, so that most events stay or go by their kind and their LSN alone. The events are
// read twice: once to decide, where the state does not tell; and once to judge what would stay (PlanRules.swift). A record
// that would be another keeps all its events, and the plan is made again.
//
// What stays of a record: the event of its base and the one that holds the base's content; of what is unsettled the
// newest mutation, the attempted ones, every deletion, and without their content the first mutation and those behind an
// attempted one, which say since when the record is owed. Deleted names stay as entries of a packed event. Of the engine's
// memory stays, for every register, the last event that wrote it: each of those events writes the same registers whatever
// was there before.
//
// Memory: some bits for each event that a record names, the places of the newest conflicts of each record that had some, one
// open pack, and what the state and the fold keep in memory of their runs.

package import StrandlineLog
import StrandlineSystem

/// A plan for the events up to one LSN.
package struct CompactionPlan {
  /// What the beginning folds to.
  private let state: Projections
  /// Names that were confirmed behind it are looked at when the sweep of their zone ends.
  private let oldestSweep: UInt64
  /// The `listed` events of which something is still to be fetched.
  private let listings: Set<LSN>
  /// What its rows name.
  private(set) var names: NamedEvents

  /// Records that keep all their events.
  private var whole: Set<RecordID> = []
  /// The engine's memory keeps all its events.
  private var keepsMemory = false

  private var decided = Decided()
  /// The event that says how far the clock was, if none of those that stay does.
  private(set) var latest: (carrier: LSN, time: HybridTime)?

  /// Reads transactions, in the order of the log.
  package typealias Reading = (([LogEvent]) throws -> Void) throws -> Void

  /// What a reading of the events has decided.
  private struct Decided {
    /// The last events that wrote each register of the engine's memory.
    var registered = LSNSet()
    /// The `sent` that says so of each of the attempted mutations.
    var attempts: [LSN: LSN] = [:]
    /// All mutations of records that keep all their events.
    var mutationsOfWhole = LSNSet()
    /// The LSNs under which packs stand.
    var carriers = LSNSet()
    /// The newest conflicts of each record that lives.
    var conflicts = NewestConflicts()
    /// What stays though no record follows from it.
    var kept = FactSum()
    /// The bytes of the events that stay whole, and of the others.
    var bytesLeft: (in: UInt64, out: UInt64) = (0, 0)
    /// The last event with a time that does not stay.
    var lastLeftOut: LSN = .zero
    /// A deleted name of which the row lacks a life that its last event has.
    var contradicted: RecordID?
    /// Mutations that a request has carried, and of which the row does not know that.
    var sentUnnoticed = LSNSet()
  }

  /// Hands out an empty fold, and clears up after it.
  package typealias Folding = ((inout SpillingFold) throws -> Void) throws -> Void

  /// Makes a plan.
  ///
  /// - Parameters:
  ///   - state: what the events fold to.
  ///   - proof: who judges it.
  ///   - read: reads all events; called twice at least.
  ///   - folding: hands out an empty fold, and clears up after it.
  /// - Throws: what `read` throws; `RulesCannotTell` if the rules alone judge it and cannot; `.damaged` if no plan folds to
  ///   the same. Nothing was changed then.
  package init(
    state: Projections, proof: CompactionProof, read: Reading, folding: Folding
  ) throws {
    self.state = state
    oldestSweep = state.sync.zones.values.map(\.sweepEpoch).filter { $0 > 0 }.min() ?? .max
    listings = Set(state.sync.listed.values.flatMap(\.events.keys))
    names = try NamedEvents(state, keeping: [])
    while true {
      try decide(read)
      var judged = (difference: ProjectionsDifference(), isClockBehind: false)
      try withoutActuallyEscaping(read) { read in
        judged = try judge(proof, { try forEachSurvivor(read, $0) }, folding)
      }
      // Where no event that stays carries the latest time, the plan writes that time in the place of the last event that it
      // removes. Where all events stay, the store took the time from a transaction that failed, and the log has no event of it.
      if judged.isClockBehind, decided.lastLeftOut != .zero { latest = (decided.lastLeftOut, state.sync.latest) }
      let difference = judged.difference
      if difference.isEmpty { return }
      let differing = difference.ids.subtracting(whole)
      guard !differing.isEmpty || (difference.isMemoryOther && !keepsMemory) else {
        if proof == .rules { throw RulesCannotTell(words: difference.words) }
        throw StrandlineError(
          .damaged,
          "the log was not compacted: replaying what would stay gives other records than the log does now "
            + "(\(difference.words)); nothing was changed; please report this")
      }
      whole.formUnion(differing)
      if differing.isEmpty { keepsMemory = true } else { names = try NamedEvents(state, keeping: whole) }
    }
  }

  /// The bytes of the events that do not stay, or are packed.
  package var bytesLeftOut: UInt64 { decided.bytesLeft.out }
  /// The part that they are of all.
  package var ratioLeftOut: Double { Double(bytesLeftOut) / max(1, Double(decided.bytesLeft.in + bytesLeftOut)) }

  /// Records of which nothing could be left out safely.
  package var recordsKeptWhole: Int { whole.count }

  /// The LSNs under which packs stand.
  var carriers: LSNSet { decided.carriers }

  /// What stays though no record follows from it.
  var kept: FactSum { decided.kept }

  /// Why its rows cannot be right, as far as single ones tell.
  var contradiction: String? {
    names.contradiction ?? decided.contradicted.map { "the deleted name '\($0)' has lost a life" }
      ?? decided.sentUnnoticed.first.map { "a request has carried mutation \($0), and its record does not know that" }
  }

  /// Whether a record's row is judged by the events that it names.
  func isPlain(_ id: RecordID, _ known: KnownRecord) -> Bool { !isWhole(id) && state.isPlain(id, known) }

  // MARK: What stays

  /// What becomes of an event.
  fileprivate enum Fate {
    case stays, goes
    /// What of it still counts is taken into a pack.
    case isPacked
    /// A part of it stays.
    case isCut
  }

  /// What becomes of an event; and the event, if it had to be looked into.
  fileprivate func fate(_ found: LogEvent, _ kind: EventKind?) throws -> (fate: Fate, event: Event?) {
    let lsn = LSN(found.lsn)
    let fate = fate(kind, lsn)
    guard fate == .isPacked || !whole.isEmpty else { return (fate, nil) }
    let event = try found.decoded()
    if let id = event.recordID, isWhole(id) { return (.stays, event) }
    // As long as it is owed, the server may refuse it, and what it deleted is alive again.
    if case .deleted(let deleted) = event, let pending = try state.entry(deleted.id)?.pending, pending.since <= lsn {
      return (.stays, event)
    }
    return (fate, event)
  }

  /// The same, as far as an event's kind and its LSN tell.
  private func fate(_ kind: EventKind?, _ lsn: LSN) -> Fate {
    switch kind {
    case .opened, .assetUploaded, .inboxChange, nil: .stays
    case .conflicted: decided.conflicts.contain(lsn) ? .stays : .goes
    case .listed: keepsMemory || listings.contains(lsn) ? .stays : .goes
    case .listedEnded: keepsMemory ? .stays : .goes
    case .inboxRefused: keepsMemory || state.sync.inbox.refusals.contains(lsn) ? .stays : .goes
    case .inboxRefusalEnded: keepsMemory ? .stays : .goes
    case .confirmed: lsn.rawValue > oldestSweep ? .stays : .goes
    case .saved, .merged: names.whole.contains(lsn) ? .stays : names.emptied.contains(lsn) ? .isCut : .goes
    case .superseded: names.whole.contains(lsn) || names.emptied.contains(lsn) ? .stays : .goes
    case .fetchedSave, .settled: names.whole.contains(lsn) ? .stays : .goes
    case .deleted: names.whole.contains(lsn) ? .stays : .isPacked
    case .fetchedDelete, .deletions: .isPacked
    case .bound, .tokenAdvanced, .databaseTokenAdvanced, .zoneChanged, .sweepBegan, .sweepEnded, .accountChanged, .pace,
      .inboxRead:
      keepsMemory || decided.registered.contains(lsn) ? .stays : .goes
    case .held, .blocked, .joined: decided.registered.contains(lsn) ? .stays : .goes
    case .released, .discarded, .refused: .goes
    case .sent: .isCut
    }
  }

  private func isWhole(_ id: RecordID) -> Bool { !whole.isEmpty && whole.contains(id) }

  /// What stays of an event of which only a part does; nil if nothing.
  fileprivate func cut(_ event: Event, at lsn: LSN) -> Event? {
    switch event {
    case .saved(let saved): return .superseded(Superseded(id: saved.id, type: saved.type, time: saved.time))
    case .merged(let merged): return .superseded(Superseded(id: merged.id, type: merged.type, time: merged.time))
    case .sent(var sent):
      sent.lsns = sent.lsns.filter { decided.attempts[$0] == lsn || decided.mutationsOfWhole.contains($0) }
      return sent.lsns.isEmpty ? nil : .sent(sent)
    default: return event
    }
  }

  /// Hands the facts that an event adds to the deletion index to `body`, if they are those that the index has; beside them
  /// what the event itself says of the name, if it is a pack.
  fileprivate func eachDeletion(
    _ event: Event, at lsn: LSN, _ body: (RecordID, DeletionEntry, DeletionEntry?) -> Void
  ) throws(StrandlineError) {
    switch event {
    case .deleted(let deleted): try pack(deleted.id, lsn, nil, body)
    case .fetchedDelete(let fetched): try pack(fetched.id, lsn, nil, body)
    case .deletions(let packed):
      for item in packed.items { try pack(item.id, item.lsn, DeletionEntry(item), body) }
    default: break
    }
  }

  private func pack(
    _ id: RecordID, _ lsn: LSN, _ packed: DeletionEntry?, _ body: (RecordID, DeletionEntry, DeletionEntry?) -> Void
  ) throws(StrandlineError) {
    // As it was, if all of the record stays.
    if let packed, whole.contains(id) { return body(id, packed, packed) }
    guard let entry = try state.deletion(id) else { return }
    if !entry.isProvisional {
      if entry.lsn == lsn { body(id, entry, packed) }
    } else if var earlier = entry.refused {
      // An unsettled deletion stays, and stands behind this; it adds its own lives, and says the rest of the entry.
      earlier.lsn = lsn
      body(id, earlier, packed)
    }
  }

  // MARK: Deciding

  /// A part of the engine's memory that some events write without looking at what was there.
  private enum Register: Hashable {
    case account, bound(DatabaseScope), pace(DatabaseScope), databaseToken(DatabaseScope)
    case token(ZoneID), blankToken(ZoneID), zone(ZoneID, ZoneChanged.Change), decision(ZoneID), sweepBegan(ZoneID)
    case sweepEnded(ZoneID), ended(ZoneID, ZoneLoss)
    case held(RecordID), unread(RecordID), block(RecordID), set(RecordID), inbox([UInt8])
  }

  private mutating func decide(_ read: Reading) throws {
    var registers: [Register: LSN] = [:]
    decided = Decided()
    latest = nil
    var deletions = DeletionPacking()
    try read { transaction in
      for found in transaction {
        try decide(found, &registers, &deletions)
      }
    }
    close(&deletions)
    for lsn in registers.values { decided.registered.insert(lsn) }
    decided.conflicts.forEach { decided.kept.add(.kept($0)) }
  }

  private mutating func decide(
    _ found: LogEvent, _ registers: inout [Register: LSN], _ deletions: inout DeletionPacking
  ) throws {
    let (kind, lsn) = (try found.kind(), LSN(found.lsn))
    switch kind {
    case .bound, .tokenAdvanced, .databaseTokenAdvanced, .zoneChanged, .sweepBegan, .sweepEnded, .accountChanged, .pace,
      .held, .blocked, .joined, .inboxRead:
      register(try found.decoded(), lsn, &registers)
    case .sent:
      // The first one: later ones of the same mutation say nothing new.
      if case .sent(let sent) = try found.decoded() {
        for mutation in sent.lsns where names.attempted.contains(mutation) && decided.attempts[mutation] == nil {
          decided.attempts[mutation] = lsn
        }
        for mutation in sent.lsns where names.owed.contains(mutation) { decided.sentUnnoticed.insert(mutation) }
      }
    case .refused:
      if case .refused(let refused) = try found.decoded() { decided.sentUnnoticed.remove(refused.lsn) }
      try decide(found, kind, lsn, &deletions)
    case .conflicted:
      guard case .conflicted(let conflicted) = try found.decoded() else { break }
      // What was lost of a record is told as long as that lives.
      if !isWhole(conflicted.id), try state.entry(conflicted.id) != nil {
        let bytes = UInt64(found.body.count)
        let left = decided.conflicts.add(lsn, bytes, of: conflicted.id)
        decided.bytesLeft.in += bytes - left
        decided.bytesLeft.out += left
      } else {
        try decide(found, kind, lsn, &deletions)
      }
    default: try decide(found, kind, lsn, &deletions)
    }
  }

  private mutating func decide(
    _ found: LogEvent, _ kind: EventKind?, _ lsn: LSN, _ deletions: inout DeletionPacking
  ) throws {
    let (fate, event) = try fate(found, kind)
    switch fate {
    case .stays:
      decided.bytesLeft.in += UInt64(found.body.count)
      switch kind {
      case .conflicted, .confirmed, .assetUploaded, nil: decided.kept.add(.kept(lsn))
      default: break
      }
      guard !whole.isEmpty || deletions.isOpen else { return }
      let event = try event ?? found.decoded()
      guard let id = event.recordID else { return }
      if isWhole(id) { noteMutations(of: event, lsn) }
      // What was packed so far comes before this event, as it did.
      if kind == .deleted || isWhole(id), deletions.has(id) { close(&deletions) }
    case .isCut: decided.bytesLeft.out += UInt64(found.body.count)
    case .goes:
      decided.bytesLeft.out += UInt64(found.body.count)
      leaveOut(kind, lsn)
    case .isPacked:
      decided.bytesLeft.out += UInt64(found.body.count)
      leaveOut(kind, lsn)
      guard let event else { return }
      let count = if case .deletions(let packed) = event { packed.items.count } else { 1 }
      if deletions.isFull(for: count) { close(&deletions) }
      var births: Set<Birth> = []
      if case .fetchedDelete(let fetched) = event { births = fetched.births }
      try eachDeletion(event, at: lsn) { id, entry, packed in
        deletions.add(id, entry, at: lsn)
        // No life of a deleted name is ever forgotten.
        if !entry.births.isSuperset(of: packed?.births ?? births) { decided.contradicted = id }
      }
    }
  }

  private mutating func leaveOut(_ kind: EventKind?, _ lsn: LSN) {
    switch kind {
    case .saved, .superseded, .merged, .deleted, .fetchedSave, .fetchedDelete, .deletions: decided.lastLeftOut = lsn
    default: break
    }
  }

  private mutating func close(_ deletions: inout DeletionPacking) {
    if let carrier = deletions.close() { decided.carriers.insert(carrier) }
  }

  private func register(_ event: Event, _ lsn: LSN, _ registers: inout [Register: LSN]) {
    switch event {
    case .bound(let event): registers[.bound(event.scope)] = lsn
    case .accountChanged: registers[.account] = lsn
    case .pace(let event): registers[.pace(event.scope)] = lsn
    case .inboxRead(let event): registers[.inbox(event.inbox)] = lsn
    case .databaseTokenAdvanced(let event): registers[.databaseToken(event.scope)] = lsn
    case .tokenAdvanced(let event):
      registers[.token(event.zone)] = lsn
      if event.asked == nil { registers[.blankToken(event.zone)] = lsn }
    case .zoneChanged(let event):
      registers[.zone(event.zone, event.change)] = lsn
      if event.decides { registers[.decision(event.zone)] = lsn }
      if event.endsZone, let reason = event.reason { registers[.ended(event.zone, reason)] = lsn }
    case .sweepBegan(let event): registers[.sweepBegan(event.zone)] = lsn
    case .sweepEnded(let event): registers[.sweepEnded(event.zone)] = lsn
    case .held(let event):
      switch event.direction {
      case .upload: if state.sync.held[event.id] == event { registers[.held(event.id)] = lsn }
      case .download: if state.sync.unread[event.id] == event { registers[.unread(event.id)] = lsn }
      }
    case .blocked(let event): if state.sync.openBlocks[event.id] == event { registers[.block(event.id)] = lsn }
    case .joined(let event): if state.sync.sets[event.id] == event.recordSet { registers[.set(event.id)] = lsn }
    default: break
    }
  }

  private mutating func noteMutations(of event: Event, _ lsn: LSN) {
    switch event {
    case .saved, .superseded, .deleted, .merged: decided.mutationsOfWhole.insert(lsn)
    default: break
    }
  }

  // MARK: Judging

  private func forEachSurvivor(_ read: Reading, _ body: (LogSurvivor) throws -> Void) throws {
    var survivors = Survivors(of: self)
    try withoutActuallyEscaping(body) { body in
      try read { transaction in for survivor in try survivors.of(transaction) { try body(survivor) } }
    }
  }

  /// Judges what stays.
  ///
  /// - Parameter read: reads what stays.
  /// - Returns: where it differs from the state; and whether no event of it says how far the clock was.
  /// - Throws: what `read` throws; `RulesCannotTell`, if the rules alone judge.
  package func judge(
    _ proof: CompactionProof, _ read: ((LogSurvivor) throws -> Void) throws -> Void, _ folding: Folding
  ) throws -> (difference: ProjectionsDifference, isClockBehind: Bool) {
    var difference = ProjectionsDifference()
    var judge = PlanJudge(self, usesRules: proof == .rules)
    try withoutActuallyEscaping(read) { read in
      try withoutActuallyEscaping(folding) { folding in
        try folding { fold in
          guard proof == .both else {
            try read { try judge.take($0, &fold) }
            difference = try judge.difference(&fold, state)
            return
          }
          var rules = PlanJudge(self, usesRules: true)
          try folding { other in
            try read {
              try judge.take($0, &fold)
              try rules.take($0, &other)
            }
            difference = try judge.difference(&fold, state)
            try rules.checkTaking(no: difference, &other, state)
          }
        }
      }
    }
    return (difference, judge.isClockBehind)
  }
}

/// What stays of a log's beginning, an event after the other.
package struct Survivors {
  private let plan: CompactionPlan
  private var deletions = DeletionPacking()

  package init(of plan: CompactionPlan) { self.plan = plan }

  /// What stays of the next transaction: events as they are, or others under their LSNs.
  ///
  /// - Throws: what decoding an event and looking up a deleted name throws.
  package mutating func of(_ transaction: [LogEvent]) throws -> [LogSurvivor] {
    var result: [LogSurvivor] = []
    for found in transaction {
      if let survivor = try of(found) { result.append(survivor) }
    }
    return result
  }

  private mutating func of(_ found: LogEvent) throws -> LogSurvivor? {
    let lsn = LSN(found.lsn)
    let (fate, event) = try plan.fate(found, found.kind())
    var left: Event?
    switch fate {
    case .stays: return LogSurvivor(found)
    case .goes: break
    case .isCut: left = plan.cut(try event ?? found.decoded(), at: lsn)
    case .isPacked:
      guard let event else { break }
      try plan.eachDeletion(event, at: lsn) { id, entry, _ in deletions.add(id, entry, at: lsn) }
      if plan.carriers.contains(lsn) { left = deletions.take() }
    }
    if let latest = plan.latest, latest.carrier == lsn {
      // Nothing is left here but, perhaps, a pack.
      var pack = Deletions(items: [])
      if case .deletions(let packed) = left { pack = packed }
      pack.latest = latest.time
      left = .deletions(pack)
    }
    return left.map { LogSurvivor(lsn: found.lsn, schema: EventCodec.schema, body: EventCodec.encode($0)) }
  }
}

/// The events that tell of the newest conflicts of each record. Without a bound, a record that two devices change all day would
/// keep one for each time that they met.
private struct NewestConflicts {
  /// How many stay of a record.
  static let max = 16

  private var places: [RecordID: [(lsn: LSN, bytes: UInt64)]] = [:]
  private var all = LSNSet()

  func contain(_ lsn: LSN) -> Bool { all.contains(lsn) }

  func forEach(_ body: (LSN) -> Void) { for lsn in all.all() { body(lsn) } }

  /// Adds one that is newer than those that were added. Returns the bytes of the one that goes for it.
  mutating func add(_ lsn: LSN, _ bytes: UInt64, of record: RecordID) -> UInt64 {
    all.insert(lsn)
    places[record, default: []].append((lsn, bytes))
    guard let known = places[record], known.count > Self.max, let oldest = known.first else { return 0 }
    places[record]?.removeFirst()
    all.remove(oldest.lsn)
    return oldest.bytes
  }
}
