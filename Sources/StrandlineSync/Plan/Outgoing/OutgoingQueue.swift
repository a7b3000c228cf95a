// Finds the pending records that can be sent now.
//
// The log knows which records are pending: the projections have the newest change of each that the server has not settled. The queue
// reads them once, in log order, a window at a time. Each record is then ready, or waits for something (UploadWaits.swift). New
// changes are at the log's end, where the queue finds them. In memory are only the waits, the refusals and one window: a million
// pending records cost nothing at start, and a turn costs as much as it sends. Only for upload sets is everything pending read
// first (OutgoingQueue+Sets.swift). OutgoingQueue+Order.swift orders records that refer to each other.
//
// Deletions are sent after the saves: a save may release a reference through which the server would delete its record together with
// the target (CascadeGuard.swift).

import StrandlineLog
import StrandlineSystem

/// Records that the queue has skipped and that no event wakes: only reading everything again finds them.
private struct PassedOver: Sendable {
  /// Zones with pending changes to which nothing is sent.
  var frozenZones: Set<ZoneID> = []
  /// The zone that the last call was for, and whether it skipped records of others.
  var only: ZoneID?
  var hasSkipped = false
}

/// The batches that were chosen, and the most operations of one.
private struct Batches: Sendable {
  let operationsMax: Int
  var count = 0
}

/// Which zones' feeds have shown what earlier requests have created.
private struct FetchedZones: Sendable {
  /// The zones whose feed has ended since this process began.
  var zones: Set<ZoneID> = []
  /// The zone of a request that has left, and whose end is not known.
  var unheard: ZoneID?
}

/// The pending records: those that are ready, and the waits of the others.
package struct OutgoingQueue: Sendable {
  /// How many mutations are read at a time.
  static let windowCount = UploadPlan.operationsMax
  /// How many are read before a partial batch is sent, if no zone has a full one. If nothing is ready then, reading goes on.
  static let lookedAtMax = 4_096
  /// Every eighth batch is for the zone whose records have waited longest, however few they are.
  private static let turnOfOldest = 8

  let scope: DatabaseScope
  /// Every record whose newest mutation is at or before this LSN has been read.
  var cursor: LSN = .zero
  var lanes: [ZoneID: UploadLane] = [:]
  /// Where each record is that was read.
  package private(set) var places = RecordPlaces()
  /// The waits of upload sets.
  private var watches = SetWatches()
  /// Records whose waits have ended, in that order. They are read before the cursor moves on.
  private var woken: [RecordID] = []
  /// The change tag with which a record met a conflict. It is not sent with that tag again before a lookup and, if that brings no
  /// other version, a fetch of its zone.
  private(set) var refusedTags: [RecordID: String] = [:]
  /// Records that have to be looked up: deleted ones whose creation a request may have carried, and those of which a lookup
  /// failed that a conflict had asked for.
  var lookups: [RecordID] = []
  private var fetched = FetchedZones()
  /// Types and zones that the server refuses as a whole (UploadHalts.swift).
  package private(set) var halts = UploadHalts()
  private var passedOver = PassedOver()
  private var batches: Batches

  /// - Parameter operationsMax: the most operations of a request.
  package init(scope: DatabaseScope, operationsMax: Int = UploadPlan.operationsMax) {
    self.scope = scope
    batches = Batches(operationsMax: operationsMax)
  }

  /// Zones with pending changes to which nothing is sent.
  package var frozenZones: Set<ZoneID> { passedOver.frozenZones }

  // MARK: Waits

  /// A record is not sent until `wait` has ended. Until then the records that its save releases are not deleted.
  mutating func wait(_ id: RecordID, for wait: UploadWait) {
    markForLoading(id)
    places[id] = .waits(wait)
    switch wait {
    case .target, .hold: halts.waits(id)
    case .fetch, .lookup, .content, .time, .references, .together: break
    }
  }

  mutating func endWait(of id: RecordID) {
    if places.wait(of: id) != nil { places[id] = nil }
  }

  /// What a record waits for; nil if for nothing.
  package func wait(of id: RecordID) -> UploadWait? { places.wait(of: id) }

  /// Ends the timed waits whose moment has come.
  mutating func wakeDue(_ now: UInt64) { for id in places.takeDue(now) { wake(id) } }

  /// The wait of a record is over: it is read again.
  mutating func wake(_ id: RecordID) {
    endWait(of: id)
    markForLoading(id)
    woken.append(id)
  }

  /// Marks a record whose released references must be read before the next deletion is sent.
  private mutating func markForLoading(_ id: RecordID) {
    lanes[id.zone, default: UploadLane()].cascades.toRead.insert(id)
  }

  /// A record has changed, at the server or here: those that wait for it are read again.
  mutating func changed(_ id: RecordID, _ facts: some SyncFacts) {
    // An event that settles an earlier mutation of the record ends the hold of a later one too.
    if wait(of: id) == .hold, facts.held(id) == nil { wake(id) }
    // It may have been settled.
    if wait(of: id) == .together { wake(id) }
    wakeAll(.record(id))
    // If it is still not sent, it may release more now, as the server has a new version.
    if lanes[id.zone]?.cascades.forget(id) == true { markForLoading(id) }
    // Deletions that waited for other saves because of this record may be safe now.
    for saved in lanes[id.zone]?.cascades.changed(id.key) ?? [] { wakeAll(.record(saved)) }
  }

  func remembers(_ id: RecordID) -> Bool {
    places[id] != nil || refusedTags[id] != nil || lanes[id.zone]?.cascades.toRead.contains(id) == true
  }

  /// The number of records whose released references are known, or are to be read.
  var cascadeCount: Int { lanes.values.reduce(0) { $0 + $1.cascades.count } }

  /// A record has no pending change any more.
  mutating func settled(_ id: RecordID) {
    places[id] = nil
    refusedTags[id] = nil
    lanes[id.zone]?.cascades.toRead.remove(id)
    lanes[id.zone]?.cascades.forget(id)
  }

  /// A zone was fetched to its end. Records that waited for that may use a refused change tag again, if it is still the newest.
  ///
  /// - Returns: the records that waited.
  mutating func fetched(_ zone: ZoneID) -> [RecordID] {
    fetched.zones.insert(zone)
    let ids = places.ids(waitingFor: .fetch(zone))
    for id in ids { refusedTags[id] = nil }
    return ids
  }

  /// What a zone has had is not known any more.
  mutating func forgetFetch(of zone: ZoneID) { fetched.zones.remove(zone) }

  /// Whether a zone was fetched to its end since this process began, and since the last request whose end it did not hear.
  func hasFetched(_ zone: ZoneID) -> Bool { fetched.zones.contains(zone) }

  /// The engine knows the end of the upload that left last: its answer is durable, or the server has applied nothing of it.
  mutating func heard() { fetched.unheard = nil }

  /// The engine will not know that end: the request was refused in a way that leaves it open, or the last cycle ended within it. What
  /// it may have created waits for the end of its zone's feed.
  mutating func forgetUnheardFetch() {
    if let zone = fetched.unheard { fetched.zones.remove(zone) }
    heard()
  }

  /// Records of a zone have changed at the server: a deletion that references prevented may be possible now.
  mutating func referencesMayHaveChanged(in zone: ZoneID) { wakeAll(.references(zone)) }

  private mutating func wakeAll(_ trigger: RecordPlaces.Trigger) {
    if case .record(let id) = trigger { wakeSets(watching: id) }
    for id in places.ids(waitingFor: trigger) { wake(id) }
  }

  private mutating func wakeSets(watching id: RecordID) {
    for set in watches.sets(watching: id) {
      watches.end(set)
      lanes[set.zone, default: UploadLane()].sets.insert(set.number)
    }
  }

  /// A set cannot be sent before one of these records has changed. Then the whole set is checked again. If a halt let it through,
  /// it lets the next one through.
  ///
  /// - Parameter keepsProbe: the set only waits for an answer, and is still the one that the halt lets through.
  mutating func watch(_ ids: Set<RecordID>, for set: RecordSet, keepsProbe: Bool = false) {
    watches.begin(set, ids)
    if halts.hasTypes, !keepsProbe { for id in ids { halts.waits(id) } }
  }

  mutating func unwatch(_ set: RecordSet) { watches.end(set) }

  /// Reads everything pending again: skipped records may be ready now.
  mutating func lookAgain() {
    (cursor, woken, passedOver.hasSkipped, passedOver.frozenZones) = (.zero, [], false, [])
    for zone in lanes.keys { lanes[zone]?.forget() }
    places.forget { if case .ready = $0 { true } else { false } }
    for id in places.waits.keys { markForLoading(id) }
  }

  /// A record met a conflict with this tag: it is sent with another one, or after its zone has been fetched.
  mutating func refuse(tag: String, of id: RecordID) { refusedTags[id] = tag }

  func refusedTag(of id: RecordID) -> String? { refusedTags[id] }

  // MARK: Halts

  /// A cycle begins. If a person wants it, halted zones and types are tried once more.
  ///
  /// - Parameter erasures: the zones that the app wants erased.
  /// - Returns: the owners to whose zones saves are sent again.
  mutating func beginCycle(isUserInitiated: Bool, erasures: [ZoneID], at now: UInt64) -> Set<CloudName> {
    // The cycle before may have ended with a request under way.
    ended()
    halts.keepErasures(of: erasures)
    let lifted = halts.liftRequests(at: now, all: isUserInitiated)
    if halts.probeTypes(at: now, all: isUserInitiated) || lifted.isAny { lookAgain() }
    return lifted.owners
  }

  /// Halts a type: from now on only its deletions are sent, and one record now and then.
  ///
  /// - Parameter items: the records that were refused.
  mutating func halt(
    _ type: UploadHalts.HaltedType, _ items: [UploadItem], because error: CloudError, at now: UInt64
  ) {
    halts.halt(type, items, because: error, at: now)
    // Records of the type may be ready: takes them out.
    lookAgain()
  }

  /// The server has accepted a save of a type.
  mutating func taken(_ type: UploadHalts.HaltedType) { if halts.taken(type) { lookAgain() } }

  /// The storage of a zone's owner is full: only deletions are sent to the owner's zones, until the halt ends.
  ///
  /// - Parameter id: one of the saves.
  mutating func haltSaves(of id: RecordID, because error: CloudError, at now: UInt64) {
    halts.haltSaves(of: id, because: error, at: now)
    lookAgain()
  }

  /// The server has refused a request because of its zone: nothing is sent to it until the halt ends.
  ///
  /// - Parameter id: one of the changes.
  mutating func haltChanges(of id: RecordID, because error: CloudError, at now: UInt64) {
    halts.haltChanges(of: id, because: error, at: now)
    lookAgain()
  }

  /// The server has refused to erase a zone: it is not asked again until the halt ends.
  mutating func haltErasure(of zone: ZoneID, because error: CloudError, at now: UInt64) {
    halts.haltErasure(of: zone, because: error, at: now)
  }

  /// The server has accepted a change of a record.
  mutating func taken(_ id: RecordID, isDeletion: Bool, at now: UInt64) {
    halts.taken(id, isDeletion: isDeletion, at: now)
  }

  /// Checks that each halt still keeps a pending change back. If one does not, everything pending is read again.
  ///
  /// - Returns: whether it is read again.
  mutating func checkHalts(_ facts: some SyncFacts) throws -> Bool {
    let isOver = try halts.forgetSent { id in try facts.entry(id)?.pending }
    let isAny = halts.probeAny()
    if isOver || isAny { lookAgain() }
    return isOver || isAny
  }

  // MARK: Requests

  /// A request with these changes leaves: from now on the server may have them.
  mutating func leaves(_ items: [UploadItem]) {
    fetched.unheard = items.first?.id.zone
    for item in items {
      lanes[item.id.zone]?.cascades.forgetTargets(of: item.id.key)
      places[item.id] = .inFlight(item.lsn)
    }
  }

  /// The request was answered, or has failed.
  mutating func ended() { places.endFlight() }

  /// These are in halves of a refused batch, or were refused alone.
  mutating func halve(_ items: some Sequence<UploadItem>) {
    // Of one that has changed since, the newer change has a place.
    for item in items where places[item.id] == nil { places[item.id] = .halved(item.lsn) }
  }

  /// Takes changes out of the halves.
  ///
  /// - Returns: those that were still there.
  @discardableResult
  mutating func takeHalved(_ units: [[UploadItem]]) -> [[UploadItem]] {
    let left = units.map { unit in unit.filter { places[$0.id] == .halved($0.lsn) } }.filter { !$0.isEmpty }
    for item in left.joined() { places[item.id] = nil }
    return left
  }

  /// Whether records have to be looked up before they can be sent.
  var hasLookups: Bool { !lookups.isEmpty }

  /// Whether the queue has yet to read a record, or to read it again. O(woken records).
  func isUnread(_ id: RecordID, _ pending: Pending) -> Bool { pending.newest > cursor || woken.contains(id) }

  /// For tests: whether a set is checked next, or when a record that it watches changes.
  func checks(_ set: RecordSet) -> Bool { lanes[set.zone]?.sets.contains(set.number) == true || watches.has(set) }

  /// Takes the records that have to be looked up before they can be sent.
  mutating func takeLookups() -> [RecordID] {
    defer { lookups = [] }
    return lookups
  }

  // MARK: Next

  /// The next step for pending changes.
  package enum Work: Sendable {
    /// Send these, of one zone.
    case send(ZoneID, [[UploadItem]])
    /// Send these, of one zone, in one atomic request.
    case sendTogether(ZoneID, [UploadItem])
    /// Settle these deletions: no request has carried the records that they delete.
    case cancel([(id: RecordID, lsn: LSN)])
    /// Hold these: their events cannot be read.
    case hold([(id: RecordID, lsn: LSN, error: StrandlineError)])
  }

  /// The state of one call of `next`.
  package struct Reading {
    let facts: any SyncFacts
    /// The zone to send to; nil for all.
    let only: ZoneID?
    /// The zones to which nothing is sent for now. When one is not frozen any more, `lookAgain` is called.
    let frozen: Set<ZoneID>
    /// Later changes are left for the next round.
    let end: LSN
    /// Ready records by zone, in the order in which they were read.
    var found: [ZoneID: [UploadItem]] = [:]
    /// The event that was read last, a cache: it is mostly the version to be sent.
    fileprivate var event: LogEvent?
    var unreadable: [(id: RecordID, lsn: LSN, error: StrandlineError)] = []

    package init(_ facts: any SyncFacts, only: ZoneID?, frozen: Set<ZoneID>, upTo end: LSN) {
      (self.facts, self.only, self.frozen, self.end) = (facts, only, frozen, end)
    }

    /// Whether something may be sent to a zone.
    func sends(to zone: ZoneID) -> Bool { (only == nil || zone == only) && !frozen.contains(zone) }
  }

  /// The next step; nil if nothing can be sent.
  package mutating func next(_ reading: Reading) throws -> Work? {
    var reading = reading
    // The last call may have skipped records of this zone.
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
        let units = lanes[zone]?.takeSaves(batches.operationsMax, &places) ?? []
        if units.isEmpty { continue }
        return .send(zone, units)
      }
      if let work = try takeDeletions(of: zone, &reading) { return work }
    }
  }

  /// Reads pending changes until a batch is ready, and takes none out.
  ///
  /// - Returns: the first `count` saves of the zone that has most.
  mutating func lookAhead(_ reading: Reading, _ count: Int) throws -> [UploadItem] {
    var reading = reading
    if passedOver.hasSkipped, reading.only != passedOver.only { return [] }
    passedOver.only = reading.only
    try fill(&reading)
    // `next` reads and reports them again.
    for (id, _, _) in reading.unreadable { wake(id) }
    let zone = lanes.keys.filter(reading.sends).max {
      (places.readyCount(in: $0), $1) < (places.readyCount(in: $1), $0)
    }
    return zone.flatMap { lanes[$0]?.first(count, places) } ?? []
  }

  /// The zone to send to.
  private mutating func chooseZone(_ reading: Reading) -> ZoneID? {
    let ready = lanes.compactMap { zone, lane -> (zone: ZoneID, lsn: LSN, count: Int)? in
      guard reading.sends(to: zone) else { return nil }
      return lane.oldest(cursor >= reading.end).map { (zone, $0, places.readyCount(in: zone)) }
    }
    // Most records first, for few requests; but a zone with few of them gets its turn.
    batches.count += 1
    if batches.count % Self.turnOfOldest > 0 { return ready.max { ($0.count, $1.zone) < ($1.count, $0.zone) }?.zone }
    return ready.min { ($0.lsn, $0.zone) < ($1.lsn, $1.zone) }?.zone
  }

  // MARK: Reading pending changes

  /// Whether a zone that is not frozen has a full batch.
  private func hasBatch(_ reading: Reading) -> Bool {
    lanes.keys.contains { places.readyCount(in: $0) >= batches.operationsMax && reading.sends(to: $0) }
  }

  /// Whether a zone that is not frozen has anything ready.
  private func hasReady(_ reading: Reading) -> Bool {
    lanes.contains { zone, lane in lane.oldest(cursor >= reading.end) != nil && reading.sends(to: zone) }
  }

  /// Reads woken records, then those after the cursor, until a batch is ready.
  private mutating func fill(_ reading: inout Reading) throws {
    var looked = 0
    // Without anything ready it reads on to the end: thousands of records may wait or be halted, or be deletions, which are sent
    // after all saves, also those that are later in the log.
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

  /// Reads the record whose newest mutation is at `lsn`.
  private mutating func look(at lsn: LSN, _ reading: inout Reading) throws {
    switch try reading.facts.change(at: lsn) {
    case .change(let id, let event):
      reading.event = event
      try look(at: id, &reading, met: lsn)
    case .replaced: break
    case .damaged(let id, let error): reading.unreadable.append((id, lsn, error))
    }
  }

  /// Decides about one record: it is ready, waits, or is skipped.
  ///
  /// - Parameter lsn: the mutation at the cursor; nil if the record woke.
  private mutating func look(at id: RecordID, _ reading: inout Reading, met lsn: LSN? = nil) throws {
    guard id.zone.scope == scope else { return }
    guard let entry = try reading.facts.entry(id), let pending = entry.pending else { return settled(id) }
    guard lsn.map({ $0 == pending.newest }) ?? (pending.newest <= cursor) else { return }
    // The answer to the upload under way decides about it, or it is in a half that goes next.
    if places[id]?.isSending(pending.newest) == true { return }
    // The new mutation may release less than the one for which deletions wait.
    if lsn != nil, lanes[id.zone]?.cascades.isKnown(id) == true { wakeAll(.record(id)) }
    switch wait(of: id) {
    // A new mutation has replaced the one that was held, or whose reference had to wait.
    case .hold, .target, .together: endWait(of: id)
    // A newer change may name other contents, or none.
    case .content(let lsn) where lsn < pending.newest: endWait(of: id)
    // A save, or another deletion than the one that the server refused.
    case .references where !pending.isDeletion || reading.facts.held(id) == nil: endWait(of: id)
    case nil: break
    default:
      // Its new mutation may release more.
      markForLoading(id)
      return
    }
    if let only = reading.only, id.zone != only {
      passedOver.hasSkipped = true
    } else if reading.frozen.contains(id.zone) {
      // When the zone is synced again, everything is read again.
      passedOver.frozenZones.insert(id.zone)
    } else if halts.contains(id, entry, pending), !letsThrough(id, entry, pending, reading) {
      // When the halt ends, everything is read again.
      halts.met(id, entry, pending)
      markForLoading(id)
    } else if let held = reading.facts.held(id), held.lsn >= pending.newest {
      try look(at: held, entry, pending, &reading)
    } else if let refused = refusedTags[id], (entry.base?.changeTag).equalsUTF8(refused) {
      // The lookup after the conflict has failed.
      wait(id, for: .lookup)
      lookups.append(id)
    } else {
      try ready(id, entry, pending, &reading)
    }
  }

  /// What a record needs goes along, if a halted type lets the record through.
  ///
  /// - Returns: whether it goes along, and did not before.
  mutating func letAlong(_ id: RecordID, with other: RecordID, _ facts: some SyncFacts) throws -> Bool {
    // One of a set goes with its set.
    guard halts.hasTypes, facts.set(of: id) == nil, let entry = try facts.entry(id), let pending = entry.pending,
      entry.base == nil
    else { return false }
    return halts.letAlong(id, with: other, pending)
  }

  /// Records that can only be sent together are gathered: a halted type that lets one of them through lets all of them through.
  ///
  /// - Parameter other: the record of the request that needs them, if one does.
  mutating func letThrough(_ ids: [RecordID], with other: RecordID? = nil, _ facts: some SyncFacts) throws {
    guard halts.hasTypes else { return }
    for id in ids {
      guard let entry = try facts.entry(id), let pending = entry.pending else { continue }
      if let other { _ = halts.letAlong(id, with: other, pending) }
      if halts.contains(id, entry, pending) { _ = halts.letsThrough(id, entry, pending, together: ids) }
    }
  }

  /// The server has refused a record for a reason of its own.
  mutating func refused(_ id: RecordID) { halts.refused(id) }

  /// Whether a halt lets a record through. A set is let through when it is gathered: only then is it known whether it can go.
  private mutating func letsThrough(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: Reading
  ) -> Bool {
    guard let set = reading.facts.set(of: id) else { return halts.letsThrough(id, entry, pending) }
    lanes[set.zone, default: UploadLane()].sets.insert(set.number)
    return false
  }

  /// A record can be sent, as far as is known: puts it into its lane, or with its upload set.
  private mutating func ready(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws {
    lanes[id.zone]?.cascades.toRead.remove(id)
    if pending.isDeletion {
      // It is not saved any more, so no deletion waits for its save.
      lanes[id.zone]?.cascades.forget(id)
      wakeAll(.record(id))
    }
    // A set may wait for it, and it may refer to a record of that set: then both are sent together.
    wakeSets(watching: id)
    if let set = reading.facts.set(of: id) {
      wait(id, for: .together)
      lanes[id.zone, default: UploadLane()].sets.insert(set.number)
    } else if pending.isDeletion {
      add(deletion: pending.newest, of: id)
    } else if places[id] != .ready(pending.newest, isDeletion: false),
      let item = try item(of: id, entry, pending, &reading)
    {
      reading.found[id.zone, default: []].append(item)
    }
  }

  /// Decides about a held record. If a reference is the cause, the hold is only shown to the app; the record waits for its target.
  private mutating func look(
    at held: Held, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws {
    let id = held.id
    guard held.isOfReference else { return wait(id, for: .hold) }
    // The references that prevented a deletion may be gone: the zone has changed, or the process is new.
    if !pending.isDeletion {
      guard let item = try item(of: id, entry, pending, &reading) else { return }
      if case .record(let target) = try lack(of: item, reading.facts) {
        wait(id, for: .target(target))
        // Its set can go if that one is in the same request, and so can a set that needs it.
        wakeSets(watching: id)
        if let set = reading.facts.set(of: id) { lanes[id.zone, default: UploadLane()].sets.insert(set.number) }
        return
      }
    }
    try ready(id, entry, pending, &reading)
  }

  /// The upload item of a record; nil if its event is gone or cannot be read.
  func item(
    of id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: inout Reading
  ) throws -> UploadItem? {
    do throws(StrandlineError) { return try reading.facts.item(of: id, entry, pending, reading.event) } catch {
      guard error.isOfOneRecord else { throw error }
      reading.unreadable.append((id, pending.newest, error))
      return nil
    }
  }

  /// Calls `body` with each name in the record's zone that it refers to, and the reference's action. Decodes only fields that may
  /// hold references.
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

  /// Puts units that were taken and not sent back to the front.
  mutating func putBack(_ units: [[UploadItem]], in zone: ZoneID) {
    lanes[zone, default: UploadLane()].putBack(units)
    // One that has changed since, or that waits, stays where it is.
    for item in units.joined() where places[item.id] == nil {
      places[item.id] = .ready(item.lsn, isDeletion: item.isDeletion)
    }
  }

  /// Saves are ready.
  mutating func add(_ units: [[UploadItem]], in zone: ZoneID) {
    lanes[zone, default: UploadLane()].add(units)
    for item in units.joined() { places[item.id] = .ready(item.lsn, isDeletion: false) }
  }

  /// A deletion is ready.
  mutating func add(deletion lsn: LSN, of id: RecordID) {
    lanes[id.zone, default: UploadLane()].add(deletion: lsn)
    places[id] = .ready(lsn, isDeletion: true)
  }

  /// Takes the next deletions of a zone; nil if none of those that were read is ready.
  private mutating func takeDeletions(of zone: ZoneID, _ reading: inout Reading) throws -> Work? {
    var items: [UploadItem] = []
    var cancelled: [(id: RecordID, lsn: LSN)] = []
    try loadReleased(in: zone, reading.facts)
    for lsn in lanes[zone]?.takeDeletions(batches.operationsMax) ?? [] {
      let id: RecordID
      switch try reading.facts.change(at: lsn) {
      case .change(let found, _): id = found
      case .replaced: continue
      case .damaged(let found, let error):
        places[found] = nil
        reading.unreadable.append((found, lsn, error))
        continue
      }
      guard places[id] == .ready(lsn, isDeletion: true) else { continue }
      places[id] = nil
      guard let entry = try reading.facts.entry(id), let pending = entry.pending, pending.isDeletion,
        pending.newest == lsn
      else { continue }
      if entry.base != nil {
        if let saved = lanes[zone]?.cascades.saveAtRisk(fromDeleting: id.key) {
          wait(id, for: .target(saved))
        } else if let item = try item(of: id, entry, pending, &reading) {
          items.append(item)
        }
      } else if try reading.facts.mayBeAtServer(id, deletedBy: pending) {
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
    putBack(Array(units.dropFirst(batches.operationsMax)), in: zone)
    return .send(zone, Array(units.prefix(batches.operationsMax)))
  }
}
