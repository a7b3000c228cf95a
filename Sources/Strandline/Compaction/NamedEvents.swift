// The events that the rows of a state name, and what each of them must say for the rows to be right.
//
// A row is *plain* if the events that it names make it by themselves, whatever else the log has: no fold has to show it. That
// is so of a record that owes nothing, or saves of which no request has carried any, and of a deleted name that the server
// has confirmed. `PlanRules` meets the events that stay, and checks that they are the ones that plain rows name: the same
// record, the same type, tag and times. All other rows are folded.

import StrandlineSystem

/// What one event has to say for a plain row.
enum RowFact: Hashable {
  /// The version that the server holds, as it was fetched. The type is that of the record if nothing is owed.
  case fetched(LSN, RecordID, tag: CloudName, created: Int64?, modified: Int64?, type: String?)
  /// The server's answer to the save `of`.
  case acknowledged(LSN, RecordID, of: LSN, tag: CloudName, created: Int64?, modified: Int64?)
  /// The values that the server has acknowledged.
  case content(LSN, RecordID, type: String?)
  /// The newest mutation that is owed; whether the record was owed before that.
  case newest(LSN, RecordID, type: String, hasEarlier: Bool)
  /// The first mutation that is owed.
  case first(LSN, RecordID)
  /// A deleted name.
  case deleted(RecordID, DeletionEntry)
  /// All that is known of a record of which the row is not plain.
  case folded(RecordID, RecordEntry?, DeletionEntry?, attempted: LSN?)
  /// An event that no row and no part of the engine's memory follows from.
  case kept(LSN)
}

/// Facts, in no order: two sums are equal if the same facts were added, each as often. Takes no memory for a fact.
struct FactSum: Equatable {
  private var count = 0
  private var sum: UInt64 = 0

  mutating func add(_ fact: RowFact) {
    var hasher = Hasher()
    hasher.combine(fact)
    count += 1
    sum &+= UInt64(bitPattern: Int64(hasher.finalize()))
  }
}

/// The events that the rows of a state name.
struct NamedEvents {
  /// Those that hold what a record is, or that must stay whole besides.
  private(set) var whole = LSNSet()
  /// The mutations that stay without their content.
  private(set) var emptied = LSNSet()
  /// The mutations whose attempts stay: those without an answer, and those that were answered when a later one was owed.
  private(set) var attempted: LSNSet
  /// The last events of all deleted names.
  private(set) var deletions = LSNSet()
  /// The mutations that plain rows have pending. No request has carried them.
  private(set) var owed = LSNSet()
  /// What the events of plain rows must say.
  private(set) var facts = FactSum()
  /// All other rows.
  private(set) var folded = FactSum()
  /// Why the rows cannot be right, whatever the events say.
  private(set) var contradiction: String?
  private var roles = Roles()

  /// What single events are for a plain row.
  struct Roles {
    /// Those that rows name that are not plain.
    var folded = LSNSet()
    /// The content of acknowledged versions.
    var contents = LSNSet()
    /// Those of which the record has its type, where nothing is owed.
    var typed = LSNSet()
    /// The newest mutations of records that were owed before.
    var later = LSNSet()
    /// The last events of deleted names.
    var deleted = LSNSet()
  }

  /// Goes through all rows once.
  ///
  /// - Parameter kept: the records that keep all their events.
  init(_ state: Projections, keeping kept: Set<RecordID>) throws(StrandlineError) {
    attempted = state.outbox.attempted
    var count = RowCount()
    var scan = try KnownRecordScan(state)
    while let (id, known) = try scan.next() {
      count.add(id, known, state)
      let isPlain = !kept.contains(id) && state.isPlain(id, known)
      if let deletion = known.deletion { deletions.insert(deletion.lsn) }
      if let deletion = known.deletion, isPlain {
        roles.deleted.insert(deletion.lsn)
        facts.add(.deleted(id, deletion))
      }
      if let entry = known.entry { add(id, entry, isPlain) }
      if !isPlain {
        let attempt = state.outbox.attempted(known.entry?.pending)
        folded.add(.folded(id, known.entry, known.deletion, attempted: attempt))
      }
    }
    contradiction = count.contradiction(of: state)
  }

  private mutating func add(_ id: RecordID, _ entry: RecordEntry, _ isPlain: Bool) {
    if let base = entry.base {
      whole.insert(base.version)
      whole.insert(base.content)
    }
    if let pending = entry.pending { add(pending, entry.base) }
    guard isPlain else { return note(entry) }
    if let base = entry.base { add(id, base, type: entry.pending == nil ? entry.type : nil) }
    if let pending = entry.pending {
      let hasEarlier = pending.first < pending.newest
      owed.insert(pending.first)
      owed.insert(pending.newest)
      if hasEarlier {
        roles.later.insert(pending.newest)
        facts.add(.first(pending.first, id))
      }
      facts.add(.newest(pending.newest, id, type: entry.type, hasEarlier: hasEarlier))
    }
  }

  private mutating func add(_ pending: Pending, _ base: Base?) {
    if let base, base.content < base.version, pending.first < base.version { attempted.insert(base.content) }
    whole.insert(pending.newest)
    emptied.insert(pending.since)
    // What takes the place of an older one is a merge, which says so.
    if pending.first == pending.since { emptied.insert(pending.first) } else { whole.insert(pending.first) }
    for attempt in pending.attempts {
      whole.insert(attempt.lsn)
      emptied.insert(attempt.next)
    }
  }

  private mutating func add(_ id: RecordID, _ base: Base, type: String?) {
    if type != nil { roles.typed.insert(base.content) }
    guard base.content < base.version else {
      facts.add(
        .fetched(
          base.version, id, tag: CloudName(base.changeTag), created: base.createdMilliseconds,
          modified: base.modifiedMilliseconds,
          type: type))
      return
    }
    roles.contents.insert(base.content)
    facts.add(.content(base.content, id, type: type))
    facts.add(
      .acknowledged(
        base.version, id, of: base.content, tag: CloudName(base.changeTag), created: base.createdMilliseconds,
        modified: base.modifiedMilliseconds))
  }

  /// Notes that what a row names has to be folded.
  private mutating func note(_ entry: RecordEntry) {
    if let base = entry.base {
      roles.folded.insert(base.version)
      roles.folded.insert(base.content)
    }
    guard let pending = entry.pending else { return }
    for lsn in pending.sendable + [pending.since] + pending.attempts.map(\.next) { roles.folded.insert(lsn) }
  }

  // MARK: What an event is

  /// Whether the deleted name that an event was the last one of has a plain row.
  func isPlainDeletion(_ lsn: LSN) -> Bool { roles.deleted.contains(lsn) }

  /// Whether an event is one that only plain rows name.
  func isPlain(_ lsn: LSN) -> Bool {
    (whole.contains(lsn) || emptied.contains(lsn)) && !roles.folded.contains(lsn)
  }

  /// What an event says for the plain row that names it; nil if no plain row can name it.
  func fact(of event: Event, at lsn: LSN) -> RowFact? {
    switch event {
    case .fetchedSave(let fetched):
      .fetched(
        lsn, fetched.id, tag: CloudName(fetched.changeTag), created: fetched.created?.milliseconds,
        modified: fetched.modified?.milliseconds, type: roles.typed.contains(lsn) ? fetched.type : nil)
    case .settled(let settled):
      if settled.outcome == .saved, let tag = settled.changeTag {
        .acknowledged(
          lsn, settled.id, of: settled.lsn, tag: CloudName(tag), created: settled.created?.milliseconds,
          modified: settled.modified?.milliseconds)
      } else {
        nil
      }
    case .saved(let saved): fact(ofMutation: lsn, saved.id, saved.type)
    // One that follows another mutation takes the place of that: the row says so by more than these facts.
    case .merged(let merged): roles.later.contains(lsn) ? nil : fact(ofMutation: lsn, merged.id, merged.type)
    case .superseded(let saved): .first(lsn, saved.id)
    default: nil
    }
  }

  private func fact(ofMutation lsn: LSN, _ id: RecordID, _ type: String) -> RowFact {
    if roles.contents.contains(lsn) {
      return .content(lsn, id, type: roles.typed.contains(lsn) ? type : nil)
    }
    return .newest(lsn, id, type: type, hasEarlier: roles.later.contains(lsn))
  }
}

extension Projections {
  /// Whether the events that a record's row names make it by themselves.
  ///
  /// The server holds nothing, or a fetched version, or a save that it has acknowledged; owed are saves of which no request
  /// has carried any, the newest after all others, and all of them after that answer; a deletion of the name is confirmed, so
  /// that no answer changes it.
  func isPlain(_ id: RecordID, _ known: KnownRecord) -> Bool {
    guard known.deletion?.isProvisional != true, sync.held[id] == nil, sync.unread[id] == nil, sync.sets[id] == nil,
      sync.openBlocks[id] == nil
    else { return false }
    guard let entry = known.entry else { return true }
    if let base = entry.base, base.content > base.version { return false }
    guard let pending = entry.pending else { return entry.base != nil }
    guard !pending.isDeletion, pending.attempts.isEmpty, pending.since == pending.first,
      !outbox.attempted.contains(pending.newest), !outbox.attempted.contains(pending.first)
    else { return false }
    guard let base = entry.base, base.content < base.version else { return true }
    return base.version < pending.first
  }
}

/// How many rows there are, against what the state counts: so a row that is missing is found, unless it is not counted either.
private struct RowCount {
  private var records = 0
  private var names = 0
  private var owed = 0
  /// A record owes what the outbox does not have.
  private var owesMore: RecordID?
  private var zone: (id: ZoneID, living: LivingCount)?
  private var zones = 0
  private var other: ZoneID?

  mutating func add(_ id: RecordID, _ known: KnownRecord, _ state: Projections) {
    if known.deletion != nil { names += 1 }
    guard let entry = known.entry else { return }
    records += 1
    if let pending = entry.pending {
      owed += 1
      if !state.outbox.newest.contains(pending.newest) || !state.outbox.since.contains(pending.since) { owesMore = id }
    }
    guard let type = entry.livingType else { return }
    if zone?.id != id.zone {
      endZone(state)
      zone = (id.zone, LivingCount())
    }
    zone?.living.add(1, type)
  }

  private mutating func endZone(_ state: Projections) {
    guard let (id, living) = zone else { return }
    zones += 1
    let counted = state.records.living[id] ?? LivingCount()
    // The types of a zone that has had too many are not counted.
    let areTypesKnown = counted.types != nil && living.types != nil
    if counted.total != living.total || (areTypesKnown && counted.types != living.types) { other = id }
    zone = nil
  }

  /// Why the number of rows is not the number that the state counts; nil if it is.
  mutating func contradiction(of state: Projections) -> String? {
    endZone(state)
    if records != state.records.count { return "\(state.records.count) records are counted, and there are \(records)" }
    if names != state.deletions.count {
      return "\(state.deletions.count) deleted names are counted, and there are \(names)"
    }
    if let owesMore { return "record '\(owesMore)' is pending, and the outbox has no such mutation" }
    if owed != state.outbox.newest.count || owed != state.outbox.since.count { return "what is owed" }
    if let other { return "the living records of zone '\(other)' are counted, and there are others" }
    let counted = state.records.living.values.reduce(0) { $0 + ($1.total != 0 ? 1 : 0) }
    return counted == zones ? nil : "living records are counted in \(counted) zones, and there are some in \(zones)"
  }
}
