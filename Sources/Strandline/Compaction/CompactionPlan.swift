// Which events of a log's beginning stay, so that folding what stays gives the very same projections.
//
// Everything is judged by the state at the beginning's end, not by what stands behind it: if the fold up to there is
// the same, it is the same after every event that follows, whatever that is. A plan is made in three readings: the
// first folds everything; the second decides, and packs the events that need not stay whole; the third folds what would
// stay and compares. A record of which that fold differs keeps all its events, and the plan is made again: no rule below is
// believed without that proof.
//
// What stays of a record: the event of its base and the one that holds the base's content; of what is unsettled the
// newest mutation, the attempted one, every deletion, and of all others (a later one stands for them) their LSN and
// time, packed. Deleted names stay as entries of a packed event. Of the engine's memory stays, for every register, the
// last event that wrote it: each of those events writes the same registers whatever was there before.

import StrandlineLog
import StrandlineSystem

/// A plan for the events up to one LSN.
package struct CompactionPlan {
  /// What the beginning folds to.
  private var state = Projections()
  /// The index's entry of a name before the first of its unsettled deletions.
  private var before: [RecordID: DeletionEntry] = [:]
  /// Mutations that must stay whole although a later one stands for them: the engine has sent them, or is about to.
  private let needed: Set<LSN>
  /// Of the hashes of packed deletions.
  let key: HashKey

  /// Records that keep all their events.
  private var whole: Set<RecordID> = []
  /// The engine's memory keeps all its events.
  private var keepsMemory = false

  /// The last event that wrote each register of the engine's memory.
  private var registers: [Register: LSN] = [:]
  private var registered: Set<LSN> = []
  /// The last `sent` that names each attempted mutation.
  private var attempts: [LSN: LSN] = [:]
  /// All mutations of records that keep all their events.
  private var mutationsOfWhole: Set<LSN> = []
  /// What stands under an LSN instead of the event that was there.
  private var packs: [LSN: Event] = [:]

  /// A part of the engine's memory that some events write without looking at what was there.
  private enum Register: Hashable {
    case account, bound(DatabaseScope), pace(DatabaseScope), databaseToken(DatabaseScope)
    case token(ZoneID), blankToken(ZoneID), zone(ZoneID, ZoneChanged.Change), sweepBegan(ZoneID), sweepEnded(ZoneID)
    case held(RecordID), unread(RecordID), block(RecordID)
  }

  /// Reads events and their LSNs, in the order of the log.
  package typealias Reading = ((Event, LSN) throws -> Void) throws -> Void

  /// Makes a plan.
  ///
  /// - Parameters:
  ///   - newKey: for the hashes of packed deletions, if nothing was packed yet.
  ///   - needed: given the state at the end, the mutations that must stay whole besides.
  ///   - read: reads all events; called at least three times.
  /// - Throws: what `read` throws; `.damaged` if no plan folds to the same, which changes nothing.
  /// - Complexity: four readings at least, and memory for two sets of projections.
  package init(newKey: HashKey, needed: Set<LSN>, read: Reading) throws {
    var folded = Projections()
    var before: [RecordID: DeletionEntry] = [:]
    try read { event, lsn in
      if case .deleted(let deleted) = event {
        let known = try folded.deletion(deleted.id)
        if known?.isProvisional != true { before[deleted.id] = known }
      }
      try folded.apply(event, at: lsn, isDurable: true)
    }
    state = folded
    self.before = before
    self.needed = needed
    key = folded.deletions.packed.keys.min { ($0.low, $0.high) < ($1.low, $1.high) } ?? newKey
    while true {
      try decide(read)
      let kept = try fold(read)
      let difference = try kept.difference(from: state)
      if difference.isEmpty { return }
      let differing = difference.ids.subtracting(whole)
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

  /// Records of which nothing could be left out safely.
  package var recordsKeptWhole: Int { whole.count }

  /// The packed unsettled saves.
  var superseded: [Superseded] {
    packs.values.compactMap { if case .superseded(let packed) = $0 { packed } else { nil } }
  }

  // MARK: What stays

  /// What stays under an event's LSN: the event, another one, or nothing.
  package func survivor(_ event: Event, at lsn: LSN) -> (event: Event?, isSame: Bool) {
    if let pack = packs[lsn] { return (pack, false) }
    if case .sent(var sent) = event {
      let lsns = sent.lsns.filter { attempts[$0] == lsn || mutationsOfWhole.contains($0) }
      if lsns == sent.lsns, !lsns.isEmpty { return (event, true) }
      sent.lsns = lsns
      return (lsns.isEmpty ? nil : .sent(sent), false)
    }
    return (stays(event, at: lsn) ? event : nil, true)
  }

  private func stays(_ event: Event, at lsn: LSN) -> Bool {
    if let id = event.recordID, whole.contains(id) { return true }
    switch event {
    case .opened, .confirmed, .listed, .assetUploaded, .unknown: return true
    case .saved(let event): return isWhole(event.id, lsn)
    case .merged(let event): return isWhole(event.id, lsn)
    case .deleted: return state.outbox.unsettled.contains(lsn)
    case .fetchedSave(let event): return isBase(event.id, lsn)
    case .settled(let event): return isBase(event.id, lsn)
    case .bound, .tokenAdvanced, .databaseTokenAdvanced, .zoneChanged, .sweepBegan, .sweepEnded, .accountChanged, .pace:
      return keepsMemory || registered.contains(lsn)
    case .held, .blocked: return registered.contains(lsn)
    case .deletions(let packed): return packed.key != key
    case .fetchedDelete, .released, .discarded, .sent, .superseded: return false
    }
  }

  /// A record's entry at the beginning's end. Memory has all of them.
  private func entry(_ id: RecordID) -> RecordEntry? { state.records.changed[id] ?? nil }

  private func isBase(_ id: RecordID, _ lsn: LSN) -> Bool {
    let base = entry(id)?.base
    return base?.version == lsn || base?.content == lsn
  }

  /// A save that stays as it is.
  private func isWhole(_ id: RecordID, _ lsn: LSN) -> Bool {
    guard let entry = entry(id) else { return false }
    if entry.base?.content == lsn { return true }
    guard let pending = entry.pending, state.outbox.unsettled.contains(lsn) else { return false }
    return pending.newest == lsn || state.outbox.attempted(of: id, pending) == lsn || needed.contains(lsn)
  }

  // MARK: Deciding

  private mutating func decide(_ read: Reading) throws {
    registers = [:]
    attempts = [:]
    mutationsOfWhole = []
    packs = [:]
    var saves = SupersededPacking()
    var deletions = DeletionPacking(key: key, wanted: wanted())
    var times = (kept: HybridTime.zero, left: HybridTime.zero, carrier: LSN.none)
    let hashesOfWhole = Set(whole.map { KeyedHash(of: $0, key: key) })
    try read { event, lsn in
      register(event, lsn)
      addMutationsOfWhole(event, lsn)
      if case .sent(let sent) = event { addAttempts(sent, lsn) }
      if stays(event, at: lsn) {
        times.kept = max(times.kept, event.latest)
        if let id = event.recordID {
          // What was packed so far comes before this event, as it did.
          saves.close(for: id, into: &packs)
          if case .deleted = event { deletions.close(for: id, into: &packs) }
          if whole.contains(id) { deletions.close(for: id, into: &packs) }
        }
        return
      }
      if event.latest > times.left { times = (times.kept, event.latest, lsn) }
      switch event {
      case .superseded(let packed): saves.makeRoom(for: packed.mutations.count, into: &packs)
      case .deletions(let packed): deletions.makeRoom(for: packed.items.count, into: &packs)
      default:
        saves.makeRoom(for: 1, into: &packs)
        deletions.makeRoom(for: 1, into: &packs)
      }
      switch event {
      case .saved(let saved):
        if state.outbox.unsettled.contains(lsn) { saves.add(saved.id, saved.type, lsn, saved.time, at: lsn) }
      case .merged(let merged):
        if state.outbox.unsettled.contains(lsn) { saves.add(merged.id, merged.type, lsn, merged.time, at: lsn) }
      case .superseded(let packed):
        for mutation in packed.mutations {
          let record = packed.records[mutation.record]
          guard state.outbox.unsettled.contains(mutation.lsn) || whole.contains(record.id) else { continue }
          saves.add(record.id, record.type, mutation.lsn, mutation.time, at: lsn)
        }
      case .deleted(let deleted): deletions.add(deleted.id, lsn)
      case .fetchedDelete(let fetched): deletions.add(fetched.id, lsn)
      case .deletions(let packed):
        for item in packed.items { deletions.add(item, at: lsn, isWhole: hashesOfWhole.contains(item.hash)) }
      default: break
      }
    }
    saves.close(into: &packs)
    deletions.close(into: &packs)
    registered = Set(registers.values)
    if times.left > times.kept { keep(latest: times.left, at: times.carrier) }
  }

  /// The clock never goes back, also when the event with the greatest time is gone.
  private mutating func keep(latest: HybridTime, at carrier: LSN) {
    guard let last = packs.keys.max() else {
      packs[carrier] = .superseded(Superseded(latest: latest))
      return
    }
    switch packs[last] {
    case .superseded(var packed):
      packed.latest = latest
      packs[last] = .superseded(packed)
    case .deletions(var packed):
      packed.latest = latest
      packs[last] = .deletions(packed)
    default: break
    }
  }

  /// The entries of deleted names that are to be packed, by hash.
  private func wanted() -> [KeyedHash: DeletionEntry] {
    var wanted = state.deletions.packed[key] ?? [:]
    for (id, entry) in state.deletions.entries {
      guard !whole.contains(id), let fact = entry.isProvisional ? before[id] : entry else { continue }
      wanted[KeyedHash(of: id, key: key)] = fact
    }
    return wanted
  }

  private mutating func register(_ event: Event, _ lsn: LSN) {
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

  private mutating func addMutationsOfWhole(_ event: Event, _ lsn: LSN) {
    guard !whole.isEmpty else { return }
    switch event {
    case .saved, .deleted, .merged:
      if let id = event.recordID, whole.contains(id) { mutationsOfWhole.insert(lsn) }
    case .superseded(let packed):
      for mutation in packed.mutations where whole.contains(packed.records[mutation.record].id) {
        mutationsOfWhole.insert(mutation.lsn)
      }
    default: break
    }
  }

  private mutating func addAttempts(_ sent: Sent, _ lsn: LSN) {
    for mutation in sent.lsns where state.outbox.attempted.contains(mutation) { attempts[mutation] = lsn }
  }

  // MARK: The proof

  private func fold(_ read: Reading) throws -> Projections {
    var result = Projections()
    try read { event, lsn in
      if let event = survivor(event, at: lsn).event { try result.apply(event, at: lsn, isDurable: true) }
    }
    return result
  }
}

extension Event {
  /// The hybrid time that the fold learns from it.
  fileprivate var latest: HybridTime {
    switch self {
    case .saved(let event): event.time
    case .deleted(let event): event.time
    case .merged(let event): event.time
    case .fetchedSave(let event): event.latest
    case .deletions(let event): event.latest
    case .superseded(let event): event.latest
    default: .zero
    }
  }
}

extension Projections {
  /// Learns what the packed events of a compaction say and the events that they are about to replace do not: the times of
  /// mutations, and the key of hashes.
  mutating func learn(aboutToBePacked plan: CompactionPlan) {
    for packed in plan.superseded { outbox.learn(packed) }
    deletions.use(plan.key)
  }
}
