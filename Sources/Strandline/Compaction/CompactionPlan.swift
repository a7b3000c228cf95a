// Which events of a log's beginning stay, so that folding what stays gives the very same projections.
//
// Everything is judged by the state at the beginning's end, not by what stands behind it: if the fold up to there is
// the same, it is the same after every event that follows, whatever that is. Which events the state names is a set of LSNs,
// made by one walk through the records, so that most events stay or go by their kind and their LSN alone. The events are
// read twice: once to decide, where the state does not tell; and once to fold what would stay, and to compare that with
// the state. A record of which that fold differs keeps all its events, and the plan is made again: no rule below is believed
// without that proof.
//
// What stays of a record: the event of its base and the one that holds the base's content; of what is unsettled the
// newest mutation, the attempted one, every deletion, and of all others (a later one stands for them) their LSN and
// time, packed. Deleted names stay as entries of a packed event. Of the engine's memory stays, for every register, the
// last event that wrote it: each of those events writes the same registers whatever was there before.
//
// Memory: a bit for each event that a record names, one open pack, what the state and the fold keep in memory of their runs,
// and the time of each unsettled mutation that is packed, which the outbox learns.

package import StrandlineLog
import StrandlineSystem

/// A plan for the events up to one LSN.
package struct CompactionPlan {
  /// What the beginning folds to.
  private let state: Projections
  /// Of the hashes of packed deletions.
  let key: HashKey
  /// The names that the state knows as deleted and memory has, by their hashes.
  private let changedDeletions: [KeyedHash: DeletionEntry?]
  /// The events that hold what a record is, or that must stay whole besides.
  private var named = LSNSet()

  /// Records that keep all their events.
  private var whole: Set<KeyedHash> = []
  /// The engine's memory keeps all its events.
  private var keepsMemory = false

  /// The last events that wrote each register of the engine's memory.
  private var registered = LSNSet()
  /// The last `sent` that names each attempted mutation.
  private var attempts: [LSN: LSN] = [:]
  /// All mutations of records that keep all their events.
  private var mutationsOfWhole = LSNSet()
  /// The LSNs under which packs stand.
  private(set) var carriers = LSNSet()
  /// What packs say of times and their events then do not.
  private(set) var packedTimes: [(lsn: LSN, time: HybridTime)] = []
  /// The bytes of the events that stay whole, and of the others.
  private var bytesLeft: (in: UInt64, out: UInt64) = (0, 0)
  /// The last event with a time that does not stay.
  private var lastLeftOut: LSN = .none
  /// The event that says how far the clock was, if none of those that stay does.
  private(set) var latest: (carrier: LSN, time: HybridTime)?

  /// Reads transactions, in the order of the log.
  package typealias Reading = (([LogEvent]) throws -> Void) throws -> Void

  /// Makes a plan.
  ///
  /// - Parameters:
  ///   - state: what the events fold to.
  ///   - newKey: for the hashes of packed deletions, if the state has no key.
  ///   - needed: the mutations that must stay whole besides, though a later one stands for them: the engine has sent them,
  ///     or is about to.
  ///   - read: reads all events; called twice at least.
  ///   - folding: hands out an empty fold, and clears up after it.
  /// - Throws: what `read` throws; `.damaged` if no plan folds to the same, which changes nothing.
  package init(
    state: Projections, newKey: HashKey, needed: Set<LSN>, read: Reading,
    folding: ((inout SpillingFold) throws -> Void) throws -> Void
  ) throws {
    self.state = state
    key = state.deletions.keys.first ?? newKey
    changedDeletions = state.deletions.changed(hashedBy: key)
    try nameEvents(needed)
    while true {
      try decide(read)
      var difference = ProjectionsDifference()
      try withoutActuallyEscaping(read) { read in
        try folding { fold in difference = try self.difference(read, &fold) }
      }
      if difference.isEmpty { return }
      let differing = difference.hashes.union(difference.ids.map { KeyedHash(of: $0, key: key) }).subtracting(whole)
      guard !differing.isEmpty || (difference.isMemoryOther && !keepsMemory) else {
        throw StrandlineError(
          .damaged,
          "the log was not compacted: replaying what would stay gives other records than the log does now "
            + "(\(difference.words)); nothing was changed; please report this")
      }
      whole.formUnion(differing)
      if differing.isEmpty { keepsMemory = true }
    }
  }

  /// The bytes of the events that do not stay, or are packed.
  package var bytesLeftOut: UInt64 { bytesLeft.out }
  /// The part that they are of all.
  package var ratioLeftOut: Double { Double(bytesLeft.out) / max(1, Double(bytesLeft.in + bytesLeft.out)) }

  /// Records of which nothing could be left out safely.
  package var recordsKeptWhole: Int { whole.count }

  /// Goes through all records once.
  private mutating func nameEvents(_ needed: Set<LSN>) throws {
    let outbox = state.outbox
    var scan = try EntryScan(state.scanMemory(asOf: state.appliedLSN), EntryScan.Range())
    while let (id, entry) = try scan.next() {
      if let base = entry.base {
        named.insert(base.version)
        named.insert(base.content)
      }
      guard let pending = entry.pending else { continue }
      named.insert(pending.newest)
      if let attempted = outbox.attempted(of: id, pending) { named.insert(attempted) }
    }
    for lsn in needed where outbox.unsettled.contains(lsn) { named.insert(lsn) }
  }

  // MARK: What stays

  /// What becomes of an event, as far as its kind and its LSN tell.
  fileprivate enum Fate {
    case stays, goes
    /// What of it still counts is taken into a pack.
    case isPacked
    /// Some of the mutations that it names may go.
    case isCut
  }

  fileprivate func fate(_ kind: EventKind?, _ lsn: LSN) -> Fate {
    switch kind {
    case .opened, .confirmed, .listed, .assetUploaded, nil: .stays
    case .saved, .merged:
      named.contains(lsn) ? .stays : state.outbox.unsettled.contains(lsn) ? .isPacked : .goes
    case .fetchedSave, .settled: named.contains(lsn) ? .stays : .goes
    case .deleted: state.outbox.unsettled.contains(lsn) ? .stays : .isPacked
    case .fetchedDelete, .deletions, .superseded: .isPacked
    case .bound, .tokenAdvanced, .databaseTokenAdvanced, .zoneChanged, .sweepBegan, .sweepEnded, .accountChanged, .pace:
      keepsMemory || registered.contains(lsn) ? .stays : .goes
    case .held, .blocked: registered.contains(lsn) ? .stays : .goes
    case .released, .discarded: .goes
    case .sent: .isCut
    }
  }

  /// Whether an event is of a record that keeps all its events. Decodes nothing as long as there is none.
  fileprivate func isWhole(_ found: LogEvent) throws -> Bool {
    guard !whole.isEmpty, let id = try EventSource.decode(found).recordID else { return false }
    return isWhole(id)
  }

  private func isWhole(_ id: RecordID) -> Bool { !whole.isEmpty && whole.contains(KeyedHash(of: id, key: key)) }

  /// What stays of an event that says which mutations a request carried.
  fileprivate func cut(_ sent: Sent, at lsn: LSN) -> Sent {
    var sent = sent
    sent.lsns = sent.lsns.filter { attempts[$0] == lsn || mutationsOfWhole.contains($0) }
    return sent
  }

  /// Hands the unsettled saves of an event that need not stay whole to `body`.
  fileprivate func eachSave(
    _ event: Event, at lsn: LSN, _ body: (RecordID, String, LSN, HybridTime) -> Void
  ) {
    switch event {
    case .saved(let saved): body(saved.id, saved.type, lsn, saved.time)
    case .merged(let merged): body(merged.id, merged.type, lsn, merged.time)
    case .superseded(let packed):
      for mutation in packed.mutations {
        let record = packed.records[mutation.record]
        guard state.outbox.unsettled.contains(mutation.lsn) || isWhole(record.id) else { continue }
        body(record.id, record.type, mutation.lsn, mutation.time)
      }
    default: break
    }
  }

  /// Hands the facts that an event adds to the deletion index to `body`, if they are those that the index has.
  fileprivate func eachDeletion(
    _ event: Event, at lsn: LSN, _ body: (KeyedHash, DeletionEntry) -> Void
  ) throws(StrandlineError) {
    switch event {
    case .deleted(let deleted): try pack(KeyedHash(of: deleted.id, key: key), lsn, nil, body)
    case .fetchedDelete(let fetched): try pack(KeyedHash(of: fetched.id, key: key), lsn, nil, body)
    case .deletions(let packed):
      for item in packed.items { try pack(item.hash, item.lsn, DeletionEntry(item), body) }
    default: break
    }
  }

  private func pack(
    _ hash: KeyedHash, _ lsn: LSN, _ packed: DeletionEntry?, _ body: (KeyedHash, DeletionEntry) -> Void
  ) throws(StrandlineError) {
    // As it was, if all of the record stays.
    if let packed, whole.contains(hash) { return body(hash, packed) }
    guard let entry = try deletion(hash) else { return }
    if !entry.isProvisional {
      if entry.lsn == lsn { body(hash, entry) }
    } else if var earlier = entry.refused {
      // An unsettled deletion stays, and stands behind this; it adds its own lives, and says the rest of the entry.
      earlier.lsn = lsn
      body(hash, earlier)
    }
  }

  /// What the state knows of a deleted name.
  private func deletion(_ hash: KeyedHash) throws(StrandlineError) -> DeletionEntry? {
    if let entry = changedDeletions[hash] { return entry }
    return try state.runs?.deletion(hash, key)
  }

  // MARK: Deciding

  /// A part of the engine's memory that some events write without looking at what was there.
  private enum Register: Hashable {
    case account, bound(DatabaseScope), pace(DatabaseScope), databaseToken(DatabaseScope)
    case token(ZoneID), blankToken(ZoneID), zone(ZoneID, ZoneChanged.Change), sweepBegan(ZoneID), sweepEnded(ZoneID)
    case held(RecordID), unread(RecordID), block(RecordID)
  }

  private mutating func decide(_ read: Reading) throws {
    var registers: [Register: LSN] = [:]
    registered = LSNSet()
    attempts = [:]
    mutationsOfWhole = LSNSet()
    carriers = LSNSet()
    packedTimes = []
    lastLeftOut = .none
    latest = nil
    bytesLeft = (0, 0)
    var (saves, deletions) = (SupersededPacking(), DeletionPacking(key: key))
    try read { transaction in
      for found in transaction {
        try decide(found, &registers, &saves, &deletions)
      }
    }
    close(&saves)
    close(&deletions)
    for lsn in registers.values { registered.insert(lsn) }
  }

  private mutating func decide(
    _ found: LogEvent, _ registers: inout [Register: LSN], _ saves: inout SupersededPacking,
    _ deletions: inout DeletionPacking
  ) throws {
    let (kind, lsn) = (try EventSource.kind(found), LSN(found.lsn))
    let fate = fate(kind, lsn)
    if fate == .goes || fate == .isPacked {
      bytesLeft.out += UInt64(found.body.count)
    } else {
      bytesLeft.in += UInt64(found.body.count)
    }
    switch kind {
    case .bound, .tokenAdvanced, .databaseTokenAdvanced, .zoneChanged, .sweepBegan, .sweepEnded, .accountChanged, .pace,
      .held, .blocked:
      register(try EventSource.decode(found), lsn, &registers)
      return
    case .sent:
      if case .sent(let sent) = try EventSource.decode(found) {
        for mutation in sent.lsns where state.outbox.attempted.contains(mutation) { attempts[mutation] = lsn }
      }
      return
    default: break
    }
    // Most events are not looked into.
    guard fate == .isPacked || !whole.isEmpty || (fate == .stays && (saves.isOpen || deletions.isOpen)) else {
      if fate == .goes { leaveOut(kind, lsn) }
      return
    }
    let event = try EventSource.decode(found)
    let isWhole = event.recordID.map { self.isWhole($0) } ?? false
    if isWhole { noteMutations(of: event, lsn) }
    if fate == .stays || isWhole || isUnderAnotherKey(event) {
      // What was packed so far comes before this event, as it did.
      guard let id = event.recordID else { return }
      if saves.has(id) { close(&saves) }
      if kind == .deleted || isWhole, deletions.has(id) { close(&deletions) }
      return
    }
    leaveOut(kind, lsn)
    guard fate == .isPacked else { return }
    switch event {
    case .deleted, .fetchedDelete, .deletions:
      let count = if case .deletions(let packed) = event { packed.items.count } else { 1 }
      if deletions.isFull(for: count) { close(&deletions) }
      try eachDeletion(event, at: lsn) { deletions.add($0, $1, at: lsn) }
    default:
      if case .superseded(let packed) = event { noteMutations(of: packed) }
      let count = if case .superseded(let packed) = event { packed.mutations.count } else { 1 }
      if saves.isFull(for: count) { close(&saves) }
      eachSave(event, at: lsn) { id, type, mutation, time in
        saves.add(id, type, mutation, time, at: lsn)
        packedTimes.append((mutation, time))
      }
    }
  }

  /// A pack whose names stand under another key stays as it is.
  fileprivate func isUnderAnotherKey(_ event: Event) -> Bool {
    if case .deletions(let packed) = event { return packed.key != key }
    return false
  }

  private mutating func leaveOut(_ kind: EventKind?, _ lsn: LSN) {
    switch kind {
    case .saved, .merged, .deleted, .fetchedSave, .fetchedDelete, .deletions, .superseded: lastLeftOut = lsn
    default: break
    }
  }

  private mutating func close(_ saves: inout SupersededPacking) {
    if let carrier = saves.close() { carriers.insert(carrier) }
  }

  private mutating func close(_ deletions: inout DeletionPacking) {
    if let carrier = deletions.close() { carriers.insert(carrier) }
  }

  private func register(_ event: Event, _ lsn: LSN, _ registers: inout [Register: LSN]) {
    switch event {
    case .bound(let event): registers[.bound(event.scope)] = lsn
    case .accountChanged: registers[.account] = lsn
    case .pace(let event): registers[.pace(event.scope)] = lsn
    case .databaseTokenAdvanced(let event): registers[.databaseToken(event.scope)] = lsn
    case .tokenAdvanced(let event):
      registers[.token(event.zone)] = lsn
      if event.asked == nil { registers[.blankToken(event.zone)] = lsn }
    case .zoneChanged(let event): registers[.zone(event.zone, event.change)] = lsn
    case .sweepBegan(let event): registers[.sweepBegan(event.zone)] = lsn
    case .sweepEnded(let event): registers[.sweepEnded(event.zone)] = lsn
    case .held(let event):
      switch event.direction {
      case .upload: if state.sync.held[event.id] == event { registers[.held(event.id)] = lsn }
      case .download: if state.sync.unread[event.id] == event { registers[.unread(event.id)] = lsn }
      }
    case .blocked(let event): if state.sync.openBlocks[event.id] == event { registers[.block(event.id)] = lsn }
    default: break
    }
  }

  private mutating func noteMutations(of event: Event, _ lsn: LSN) {
    switch event {
    case .saved, .deleted, .merged: mutationsOfWhole.insert(lsn)
    default: break
    }
  }

  private mutating func noteMutations(of packed: Superseded) {
    guard !whole.isEmpty else { return }
    for mutation in packed.mutations where isWhole(packed.records[mutation.record].id) {
      mutationsOfWhole.insert(mutation.lsn)
    }
  }

  // MARK: The proof

  /// Folds what stays. If the clock would be behind, the last event that does not stay is to say what it was. If all stay,
  /// it is ahead for a transaction that was given up, which no event says.
  private mutating func difference(_ read: Reading, _ fold: inout SpillingFold) throws -> ProjectionsDifference {
    var survivors = Survivors(of: self)
    try read { transaction in
      for survivor in try survivors.of(transaction) { try fold.apply(survivor) }
    }
    if fold.projections.sync.latest < state.sync.latest {
      if lastLeftOut != .none { latest = (lastLeftOut, state.sync.latest) }
      fold.learn(state.sync.latest)
    }
    return try fold.projections.difference(from: state)
  }
}

/// What stays of a log's beginning, an event after the other.
package struct Survivors {
  private let plan: CompactionPlan
  private var saves = SupersededPacking()
  private var deletions: DeletionPacking

  package init(of plan: CompactionPlan) {
    self.plan = plan
    deletions = DeletionPacking(key: plan.key)
  }

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
    let (kind, lsn) = (try EventSource.kind(found), LSN(found.lsn))
    let fate = plan.fate(kind, lsn)
    if fate == .stays { return LogSurvivor(found) }
    if try plan.isWhole(found) { return LogSurvivor(found) }
    var left: Event?
    switch fate {
    case .stays, .goes: break
    case .isCut:
      guard case .sent(let sent) = try EventSource.decode(found) else { return nil }
      let rest = plan.cut(sent, at: lsn)
      if rest.lsns.isEmpty { return nil }
      if rest.lsns == sent.lsns { return LogSurvivor(found) }
      left = .sent(rest)
    case .isPacked:
      let event = try EventSource.decode(found)
      if plan.isUnderAnotherKey(event) { return LogSurvivor(found) }
      left = try pack(event, lsn)
    }
    if let latest = plan.latest, latest.carrier == lsn {
      switch left {
      case .superseded(var packed):
        packed.latest = latest.time
        left = .superseded(packed)
      case .deletions(var packed):
        packed.latest = latest.time
        left = .deletions(packed)
      default: left = .superseded(Superseded(latest: latest.time))
      }
    }
    return left.map { LogSurvivor(lsn: found.lsn, schema: EventCodec.schema, body: EventCodec.encode($0)) }
  }

  /// Takes what counts of an event into the pack; returns the pack, if this event carries it.
  private mutating func pack(_ event: Event, _ lsn: LSN) throws(StrandlineError) -> Event? {
    let isCarrier = plan.carriers.contains(lsn)
    switch event {
    case .deleted, .fetchedDelete, .deletions:
      try plan.eachDeletion(event, at: lsn) { deletions.add($0, $1, at: lsn) }
      return isCarrier ? deletions.take() : nil
    default:
      plan.eachSave(event, at: lsn) { saves.add($0, $1, $2, $3, at: lsn) }
      return isCarrier ? saves.take() : nil
    }
  }
}

extension Projections {
  /// Learns what the packed events of a compaction say and the events that they are about to replace do not: the times of
  /// mutations, and the key of hashes.
  mutating func learn(aboutToBePacked plan: CompactionPlan) {
    for (lsn, time) in plan.packedTimes { outbox.learn(time, of: lsn) }
    deletions.use(plan.key)
  }
}
