// What is pending, and what of it can be sent now.
//
// The log says which records are pending: the projections keep the newest change of each that the server has not settled. The queue
// goes through them once, in the order of the log and a window at a time; each record is then ready to be sent, or waits for
// something (UploadWaits.swift). A new change is at the log's end, where the queue comes to it. What is in memory is what waits, what
// was refused, and one window: a million pending records, or a hold at the log's beginning, cost nothing at a start, and a turn costs
// what it sends. Only sets are looked for to the end of what is pending (OutgoingQueue+Sets.swift). The order among records that
// refer to each other is in OutgoingQueue+Order.swift.
//
// Deletions go after the saves: a save may release the reference by which the server would delete its record along with the target
// (KeptRecords.swift).

import StrandlineLog
import StrandlineSystem

/// What the queue has passed over: nothing wakes these records.
private struct PassedOver: Sendable {
  /// Zones to which nothing is sent, though something of them is pending.
  var frozenZones: Set<ZoneID> = []
  /// The zone that the last call was for, and whether it passed over records of others.
  var only: ZoneID?
  var hasSkipped = false
}

/// The pending records, and what of them can be sent.
struct OutgoingQueue: Sendable {
  /// How many mutations are looked at before a batch is made of what is ready.
  static let windowCount = UploadPlan.operationsMax
  /// The same where they are of many zones, so that few of each are ready. If nothing is ready then, it goes on.
  static let lookedAtMax = 4_096
  /// Every so many batches one is made of the zone whose records have waited longest, however few they are.
  private static let turnOfOldest = 8

  let scope: DatabaseScope
  /// Every record whose newest mutation stands here or before has been looked at.
  var cursor: LSN = .none
  var lanes: [ZoneID: UploadLane] = [:]
  /// What the records wait for that are not ready.
  private(set) var waits = UploadWaits()
  /// What the sets wait for that cannot go.
  private var watches = SetWatches()
  /// Their waits have ended; they are looked at before the cursor goes on. In the order in which they woke.
  private var woken: [RecordID] = []
  /// The tag with which a record met a conflict: it is not sent with the same one before it was looked up and, if that brought no
  /// other version, its zone fetched.
  private(set) var refusedTags: [RecordID: String] = [:]
  /// Records that have to be looked up: deleted ones whose creation a request may have carried, and those of which a lookup
  /// failed that a conflict had asked for.
  var lookups: [RecordID] = []
  /// What the server refuses whatever a record says (UploadHalts.swift).
  private(set) var halts = UploadHalts()
  private var passedOver = PassedOver()
  private var batches = 0
  /// What the upload under way carries. Whatever is made ready meanwhile goes after it.
  private(set) var underWay: [RecordID: LSN] = [:]

  init(scope: DatabaseScope) { self.scope = scope }

  /// Zones to which nothing is sent, though something of them is pending.
  var frozenZones: Set<ZoneID> { passedOver.frozenZones }

  // MARK: Waits

  /// A record is not sent until `wait` has ended. Until it is, what it leaves stays at the server.
  mutating func wait(_ id: RecordID, for wait: UploadWait) {
    endWait(of: id)
    keep(id)
    waits.set(id, wait)
    switch wait {
    case .target, .hold: halts.waits(id)
    case .fetch, .lookup, .time, .references, .together: break
    }
  }

  mutating func endWait(of id: RecordID) {
    waits.end(id)
  }

  /// What a record waits for has come: it is looked at again.
  mutating func wake(_ id: RecordID) {
    endWait(of: id)
    keep(id)
    woken.append(id)
  }

  /// A record is not sent now: before a deletion goes it is read what its save leaves at the server.
  private mutating func keep(_ id: RecordID) { lanes[id.zone, default: UploadLane()].kept.toRead.insert(id) }

  /// Something has changed about a record, at the server or here: those that wait for it are looked at again.
  mutating func changed(_ id: RecordID, _ facts: some SyncFacts) {
    // What settles an earlier mutation of the record ends the hold of a later one too.
    if waits[id] == .hold, facts.held(id) == nil { wake(id) }
    // It may have been settled.
    if waits[id] == .together { wake(id) }
    wakeAll(.record(id))
    // If it is still not sent, it may leave more now that the server has a new version.
    if lanes[id.zone]?.kept.forget(id) == true { keep(id) }
    // What waited for others through this one may wait for none now.
    for keeper in lanes[id.zone]?.kept.changed(id.key) ?? [] { wakeAll(.record(keeper)) }
  }

  func remembers(_ id: RecordID) -> Bool {
    waits[id] != nil || refusedTags[id] != nil || lanes[id.zone]?.kept.toRead.contains(id) == true
  }

  /// Of how many records it is known, or is to be read, what they leave at the server.
  var keptCount: Int { lanes.values.reduce(0) { $0 + $1.kept.count } }

  /// A record owes nothing any more.
  mutating func settled(_ id: RecordID) {
    endWait(of: id)
    refusedTags[id] = nil
    lanes[id.zone]?.kept.toRead.remove(id)
    lanes[id.zone]?.kept.forget(id)
  }

  /// The records that wait for a zone's fetch, which has come to its end. What the server refused with a tag that is still
  /// the newest may be sent with it again.
  mutating func fetched(_ zone: ZoneID) -> [RecordID] {
    let ids = waits.ids(waitingFor: .fetch(zone))
    for id in ids { refusedTags[id] = nil }
    return ids
  }

  /// Records of a zone have changed at the server: a deletion that references forbade may be possible now.
  mutating func referencesMayHaveChanged(in zone: ZoneID) { wakeAll(.references(zone)) }

  private mutating func wakeAll(_ trigger: UploadWaits.Trigger) {
    if case .record(let id) = trigger { wakeSets(watching: id) }
    for id in waits.ids(waitingFor: trigger) { wake(id) }
  }

  private mutating func wakeSets(watching id: RecordID) {
    for set in watches.sets(watching: id) {
      watches.end(set)
      lanes[set.zone, default: UploadLane()].sets.insert(set.number)
    }
  }

  /// A set cannot go before one of some records has changed. What kept it back may end together with the record that needed it,
  /// so the set is looked at again, and not one of its records.
  mutating func watch(_ ids: Set<RecordID>, for set: RecordSet) { watches.begin(set, ids) }

  mutating func unwatch(_ set: RecordSet) { watches.end(set) }

  /// Looks at everything that is owed once more: what was passed over may be sent now.
  mutating func lookAgain() {
    (cursor, woken, passedOver.hasSkipped, passedOver.frozenZones) = (.none, [], false, [])
    for zone in lanes.keys { lanes[zone]?.forget() }
    for id in waits.all.keys { keep(id) }
  }

  /// A record met a conflict with this tag: it is sent with another one, or when its zone has been fetched.
  mutating func refuse(tag: String, of id: RecordID) { refusedTags[id] = tag }

  func refusedTag(of id: RecordID) -> String? { refusedTags[id] }

  // MARK: Halts

  /// A cycle begins. If a person wants it, what the server refused before is tried once more.
  ///
  /// - Parameter erasures: the zones that the app wants ended.
  /// - Returns: the owners to whose zones saves go again.
  mutating func beginCycle(isUserInitiated: Bool, erasures: [ZoneID], at now: UInt64) -> Set<CloudName> {
    underWay = [:]
    halts.keepErasures(of: erasures)
    let lifted = halts.liftRequests(at: now, all: isUserInitiated)
    if halts.probeTypes(at: now, all: isUserInitiated) || lifted.isAny { lookAgain() }
    return lifted.owners
  }

  /// Nothing of a type is sent any more but deletions, and one record now and then.
  ///
  /// - Parameter items: those that were refused.
  mutating func halt(
    _ type: UploadHalts.HaltedType, _ items: [UploadItem], because error: CloudError, at now: UInt64
  ) {
    halts.halt(type, items, because: error, at: now)
    // Some of it may be ready.
    lookAgain()
  }

  /// The server has taken a save of a type.
  mutating func taken(_ type: UploadHalts.HaltedType) { if halts.taken(type) { lookAgain() } }

  /// The storage of a zone's owner is full: nothing is sent to the owner's zones but deletions, until the halt ends.
  ///
  /// - Parameter id: one of the saves.
  mutating func haltSaves(of id: RecordID, because error: CloudError, _ wait: OverQuotaWait, at now: UInt64) {
    halts.haltSaves(of: id, because: error, wait, at: now)
    lookAgain()
  }

  /// The server has refused a request because of its zone: nothing is sent to it until the halt ends.
  ///
  /// - Parameter id: one of the changes.
  mutating func haltChanges(of id: RecordID, because error: CloudError, at now: UInt64) {
    halts.haltChanges(of: id, because: error, at: now)
    lookAgain()
  }

  /// The server has refused to end a zone: it is not asked again until the halt ends.
  mutating func haltErasure(of zone: ZoneID, because error: CloudError, at now: UInt64) {
    halts.haltErasure(of: zone, because: error, at: now)
  }

  /// The server has taken a change of a record.
  mutating func taken(_ id: RecordID, isDeletion: Bool, _ wait: OverQuotaWait, at now: UInt64) {
    halts.taken(id, isDeletion: isDeletion, wait, at: now)
  }

  /// The change by which a zone was known to be halted may not be owed any more; then what is owed is looked at again.
  ///
  /// - Returns: whether it is looked at again.
  mutating func checkHalts(_ facts: some SyncFacts) throws -> Bool {
    let isOver = try halts.forgetSent { id in try facts.entry(id)?.pending }
    let isAny = halts.probeAny()
    if isOver || isAny { lookAgain() }
    return isOver || isAny
  }

  // MARK: Requests

  /// A request leaves with these: from now on the server may have them.
  mutating func leaves(_ items: [UploadItem]) {
    for item in items {
      lanes[item.id.zone]?.kept.forgetLinks(of: item.id.key)
      underWay[item.id] = item.lsn
    }
  }

  /// The request was answered, or it is known that it will not be.
  mutating func ended() { underWay = [:] }

  /// The records that have to be looked up before anything can be said of them.
  mutating func takeLookups() -> [RecordID] {
    defer { lookups = [] }
    return lookups
  }

  // MARK: What is next

  /// What is to be done next for what is owed.
  enum Work: Sendable {
    /// Send these, of one zone.
    case send(ZoneID, [[UploadItem]])
    /// Send these, of one zone: all of them or none.
    case sendTogether(ZoneID, [UploadItem])
    /// Settle these deletions: no request has carried what they delete.
    case cancel([(id: RecordID, lsn: LSN)])
    /// Hold these: they cannot be read.
    case hold([(id: RecordID, lsn: LSN, error: StrandlineError)])
  }

  /// What one call of `next` looks at.
  struct Reading {
    let facts: any SyncFacts
    /// The zone to send to; nil for every one.
    let only: ZoneID?
    /// The zones to which nothing is sent for now. When one is sent to again, `lookAgain` is called.
    let frozen: Set<ZoneID>
    /// What the app has written since is left for later.
    let end: LSN
    /// What is ready, by zone, in the order in which it was met.
    var found: [ZoneID: [UploadItem]] = [:]
    /// The event that was read last, to learn which record it is of: mostly the version that is to be sent.
    fileprivate var event: LogEvent?
    var unreadable: [(id: RecordID, lsn: LSN, error: StrandlineError)] = []

    init(_ facts: any SyncFacts, only: ZoneID?, frozen: Set<ZoneID>, upTo end: LSN) {
      (self.facts, self.only, self.frozen, self.end) = (facts, only, frozen, end)
    }
  }

  /// What is to be done next; nil if nothing can be sent.
  mutating func next(_ reading: Reading) throws -> Work? {
    var reading = reading
    // What a call for another zone passed over may be sent by this one.
    if passedOver.hasSkipped, reading.only != passedOver.only { lookAgain() }
    passedOver.only = reading.only
    while true {
      try fill(&reading)
      if !reading.unreadable.isEmpty { return .hold(reading.unreadable) }
      guard let zone = chooseZone(reading) else {
        guard let set = try takeSet(&reading) else { return nil }
        switch set {
        case .work(let work): return work
        case .separated: continue
        }
      }
      if lanes[zone]?.hasNoSaves != true {
        let units = lanes[zone]?.takeSaves() ?? []
        if units.isEmpty { continue }
        return .send(zone, units)
      }
      if let work = try takeDeletions(of: zone, &reading) { return work }
    }
  }

  /// Reads pending changes until a batch is ready, and takes nothing.
  ///
  /// - Returns: the first `count` saves of the zone that has most.
  mutating func lookAhead(_ reading: Reading, _ count: Int) throws -> [UploadItem] {
    var reading = reading
    if passedOver.hasSkipped, reading.only != passedOver.only { return [] }
    passedOver.only = reading.only
    try fill(&reading)
    // They are met again when it is their turn.
    for (id, _, _) in reading.unreadable { wake(id) }
    let sent = lanes.filter { zone, _ in
      (reading.only.map { $0 == zone } ?? true) && !reading.frozen.contains(zone)
    }
    return sent.max { ($0.value.count, $1.key) < ($1.value.count, $0.key) }?.value.first(count) ?? []
  }

  /// The zone to send to.
  private mutating func chooseZone(_ reading: Reading) -> ZoneID? {
    let ready = lanes.compactMap { zone, lane -> (zone: ZoneID, lsn: LSN, count: Int)? in
      guard reading.only.map({ $0 == zone }) ?? true, !reading.frozen.contains(zone) else { return nil }
      return lane.oldest(cursor >= reading.end).map { (zone, $0, lane.count) }
    }
    // Most records first, for few requests; but a zone with few of them gets its turn.
    batches += 1
    if batches % Self.turnOfOldest > 0 { return ready.max { ($0.count, $1.zone) < ($1.count, $0.zone) }?.zone }
    return ready.min { ($0.lsn, $0.zone) < ($1.lsn, $1.zone) }?.zone
  }

  // MARK: Looking at what is owed

  /// Whether there is a whole batch of a zone that is sent to.
  private func hasBatch(_ reading: Reading) -> Bool {
    lanes.contains { zone, lane in
      lane.count >= UploadPlan.operationsMax && !reading.frozen.contains(zone)
        && (reading.only.map { $0 == zone } ?? true)
    }
  }

  /// Whether anything of a zone that is sent to can be sent.
  private func hasReady(_ reading: Reading) -> Bool {
    lanes.contains { zone, lane in
      !reading.frozen.contains(zone) && (reading.only.map { $0 == zone } ?? true)
        && lane.oldest(cursor >= reading.end) != nil
    }
  }

  /// Looks at what has woken, then at what the cursor has not passed, until a batch is ready.
  private mutating func fill(_ reading: inout Reading) throws {
    var looked = 0
    // As long as nothing can be sent, it goes on to the end: thousands of records may wait or be halted, or be deletions,
    // which go after the saves that stand behind them.
    while !hasBatch(reading), looked < Self.lookedAtMax || !hasReady(reading) {
      var some = 0
      if !woken.isEmpty {
        let ids = woken.prefix(Self.windowCount)
        woken.removeFirst(ids.count)
        some = ids.count
        for id in ids { try look(at: id, &reading) }
      } else {
        let lsns = reading.facts.pending(Self.windowCount, after: cursor, upTo: reading.end)
        some = lsns.count
        for lsn in lsns {
          cursor = lsn
          try look(at: lsn, &reading)
        }
        if some < Self.windowCount { cursor = max(cursor, reading.end) }
      }
      if some == 0 { return }
      looked += some
      try order(&reading)
    }
  }

  /// Puts the record where it belongs whose newest mutation stands at `lsn`.
  private mutating func look(at lsn: LSN, _ reading: inout Reading) throws {
    switch try reading.facts.change(at: lsn) {
    case .change(let id, let event):
      reading.event = event
      try look(at: id, &reading, met: lsn)
    case .replaced: break
    case .damaged(let id, let error): reading.unreadable.append((id, lsn, error))
    }
  }

  /// Puts one record where it belongs.
  ///
  /// - Parameter lsn: the mutation by which the cursor met it; nil if it woke.
  private mutating func look(at id: RecordID, _ reading: inout Reading, met lsn: LSN? = nil) throws {
    guard id.zone.scope == scope else { return }
    guard let entry = try reading.facts.entry(id), let pending = entry.pending else { return settled(id) }
    guard lsn.map({ $0 == pending.newest }) ?? (pending.newest <= cursor) else { return }
    // The new mutation may leave less than the one for which deletions wait.
    // Its answer says what becomes of it.
    if underWay[id] == pending.newest { return }
    if lsn != nil, lanes[id.zone]?.kept.isKnown(id) == true { wakeAll(.record(id)) }
    switch waits[id] {
    // A new mutation took the place of the one that was held, or that referred to what it waited for.
    case .hold, .target, .together: endWait(of: id)
    // A save, or another deletion than the one that the server refused.
    case .references where !pending.isDeletion || reading.facts.held(id) == nil: endWait(of: id)
    case nil: break
    default:
      // Its new mutation may leave more.
      keep(id)
      return
    }
    if let only = reading.only, id.zone != only {
      passedOver.hasSkipped = true
    } else if reading.frozen.contains(id.zone) {
      // When the zone is synced again, everything is looked at again.
      passedOver.frozenZones.insert(id.zone)
    } else if halts.contains(id, entry, pending), !letsThrough(id, entry, pending, reading) {
      // When the halt ends, everything is looked at again.
      halts.met(id, entry, pending)
      keep(id)
    } else if let held = reading.facts.held(id), held.lsn >= pending.newest {
      try look(at: held, entry, pending, &reading)
    } else if let refused = refusedTags[id], (entry.base?.changeTag).equalsUTF8(refused) {
      // The lookup that was to follow has failed.
      wait(id, for: .lookup)
      lookups.append(id)
    } else {
      try ready(id, entry, pending, &reading)
    }
  }

  private mutating func letsThrough(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: Reading
  ) -> Bool {
    halts.letsThrough(id, entry, pending) {
      reading.facts.set(of: id).map { reading.facts.members(of: $0) } ?? []
    }
  }

  /// Nothing is known that forbids to send the record.
  private mutating func ready(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws {
    lanes[id.zone]?.kept.toRead.remove(id)
    if pending.isDeletion {
      // What it refers to at the server, perhaps itself, does not wait for a save of it any more.
      lanes[id.zone]?.kept.forget(id)
      wakeAll(.record(id))
    }
    // It may refer to a record of a set that it was in the way of: then neither goes without the other.
    wakeSets(watching: id)
    if let set = reading.facts.set(of: id) {
      wait(id, for: .together)
      lanes[id.zone, default: UploadLane()].sets.insert(set.number)
    } else if pending.isDeletion {
      lanes[id.zone, default: UploadLane()].add(deletion: pending.newest)
    } else if lanes[id.zone]?.isReady(id, pending.newest) != true, let item = try item(of: id, entry, pending, &reading)
    {
      reading.found[id.zone, default: []].append(item)
    }
  }

  /// Puts a held record where it belongs. One that a reference forbids is held to be seen; it waits for what ends that.
  private mutating func look(
    at held: Held, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws {
    let id = held.id
    guard held.code == CloudError.Code.validatingReferenceError.rawValue, held.durationMilliseconds == 0 else {
      return wait(id, for: .hold)
    }
    // What has forbidden a deletion may be gone: something has changed, or the process has begun since.
    if !pending.isDeletion {
      guard let item = try item(of: id, entry, pending, &reading) else { return }
      if case .record(let target) = try lack(of: item, reading.facts) { return wait(id, for: .target(target)) }
    }
    try ready(id, entry, pending, &reading)
  }

  /// The record as one to send; nil if it cannot be sent as it is.
  func item(
    of id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws -> UploadItem? {
    do throws(StrandlineError) { return try reading.facts.item(of: id, entry, pending, reading.event) } catch {
      guard error.isOfOneRecord else { throw error }
      reading.unreadable.append((id, pending.newest, error))
      return nil
    }
  }

  /// Calls `body` with each name in the record's zone that it refers to, and what becomes of the record when that one is deleted. Only what may hold a
  /// reference is decoded.
  static func forEachTarget(of record: Record, _ body: (_ name: String, Reference.Action) -> Void) {
    if let parent = record.parent { body(parent, .validate) }
    _ = record.forEachFieldInPlace { field in
      guard case .other(let value) = field.value else { return }
      for reference in value.references where reference.zone == nil || reference.zone == record.id.zone {
        body(reference.name, reference.action)
      }
    }
  }

  // MARK: Deletions

  /// What was taken and did not leave comes first again.
  mutating func putBack(_ units: [[UploadItem]], in zone: ZoneID) {
    lanes[zone, default: UploadLane()].putBack(units)
  }

  /// Takes the next deletions of a zone; nil if there was nothing to do for those that were looked at.
  private mutating func takeDeletions(of zone: ZoneID, _ reading: inout Reading) throws -> Work? {
    var items: [UploadItem] = []
    var cancelled: [(id: RecordID, lsn: LSN)] = []
    try readLeft(in: zone, reading.facts)
    for lsn in lanes[zone]?.takeDeletions(Self.windowCount) ?? [] {
      let id: RecordID
      switch try reading.facts.change(at: lsn) {
      case .change(let found, _): id = found
      case .replaced: continue
      case .damaged(let found, let error):
        reading.unreadable.append((found, lsn, error))
        continue
      }
      guard let entry = try reading.facts.entry(id),
        let pending = entry.pending, pending.isDeletion, pending.newest == lsn, waits[id] == nil
      else { continue }
      if entry.base != nil {
        if let saved = lanes[zone]?.kept.keeper(of: id.key) {
          wait(id, for: .target(saved))
        } else if let item = try item(of: id, entry, pending, &reading) {
          items.append(item)
        }
      } else if reading.facts.mayHaveBeenSent(pending) {
        wait(id, for: .lookup)
        lookups.append(id)
      } else {
        cancelled.append((id, lsn))
      }
    }
    let units = UploadPlan.units(items)
    if !reading.unreadable.isEmpty || !cancelled.isEmpty {
      putBack(units, in: zone)
      return reading.unreadable.isEmpty ? .cancel(cancelled) : .hold(reading.unreadable)
    }
    guard !units.isEmpty else { return nil }
    putBack(Array(units.dropFirst(UploadPlan.operationsMax)), in: zone)
    return .send(zone, Array(units.prefix(UploadPlan.operationsMax)))
  }
}
