// The first fetch of a zone for an app that wants the newest records first (`FirstFetch.recentFirst`). Three parts:
//
// 1. A query brings the newest records of some types.
// 2. The feed is read without fields. Deletions are applied; each page's transaction stores its token and a `listed` event with
//    the names of the records that this store lacks.
// 3. Lookups bring these records, after everything else that is due. The answer with the last name of a `listed` event appends
//    `listedEnded` for it in the same transaction.
//
// The log holds all of the state. A new process continues the feed at its token, reads open `listed` events again, and looks up the
// names that this store lacks. A refused token drops the `listed` events, and the zone is fetched again with its fields.

import StrandlineSystem

/// The queries for the newest records of one zone.
struct NewestRecords: Hashable, Sendable {
  /// The types still to be asked for, the next one first.
  private var types: ArraySlice<String>
  private let count: Int
  private var left: Int
  private(set) var marker: String?
  private var limitMax = SyncPlan.pageLimit

  init(_ types: [String], count: Int) {
    self.types = types[...]
    (self.count, left) = (count, count)
  }

  /// The type to ask for; nil at the end.
  var type: String? { count > 0 ? types.first : nil }
  /// How many to ask for.
  var limit: Int { min(left, limitMax) }

  mutating func skip() {
    types = types.dropFirst()
    (left, marker) = (count, nil)
  }
  mutating func skipAll() { types = [] }
  /// The answer does not fit into a transaction.
  mutating func halve() { limitMax = max(1, limit / 2) }

  mutating func take(_ page: NewestPage) {
    left -= page.records.count
    marker = page.marker
    // A page that brings nothing is the last one, whatever it says.
    if marker == nil || left <= 0 || page.records.isEmpty { skip() }
  }
}

/// The next of the records that a zone's feed has listed without their fields.
package struct ListedRecords: Sendable {
  struct Name: Sendable {
    var listed: LSN
    var item: Listed.Item
  }
  /// The `listed` events that were not read yet, the next one last.
  var unread: [LSN]
  /// Names to ask for, the next one first.
  var names: ArraySlice<Name> = []
  /// Events of which no name is left to ask for.
  var ended: [LSN] = []
  /// Those whose lookups were refused, each alone, since the last lookup that was answered.
  var refused = RefusedLookups()

  /// - Parameter oldestFirst: if not, the last page comes first: it has the records that were changed last.
  init(_ listed: ListedNames, oldestFirst: Bool) {
    unread = listed.events.keys.sorted { oldestFirst ? $0 > $1 : $0 < $1 }
  }

  var isEmpty: Bool { unread.isEmpty && names.isEmpty }

  /// The names of the next request. A record that changed between two pages is in both, and is asked for once.
  func names(_ count: Int) -> [CloudName] {
    var known: Set<CloudName> = []
    return names.prefix(count).map { CloudName($0.item.name) }.filter { known.insert($0).inserted }
  }

  /// Removes names that were answered.
  mutating func take(_ asked: [CloudName]) {
    let known = Set(asked)
    let taken = names.prefix { known.contains(CloudName($0.item.name)) }
    names = names.dropFirst(taken.count)
    // The names of an event follow each other.
    for lsn in Set(taken.map(\.listed)).sorted() where names.first?.listed != lsn { ended.append(lsn) }
  }
}

/// The answer to a lookup of listed records.
struct ListedAnswer: Sendable {
  var zone: ZoneID
  /// The listed records that are still to be fetched.
  var next: ListedRecords
  /// How many names were asked for.
  var count: Int
  /// Events to append when the children of deleted records are settled; nil if they need not be.
  var endsLater: [SyncEvent]?
}

extension SyncPlan {
  /// Events read for one request at most.
  private static let listedEventsAtOnce = 200

  // MARK: The newest records

  /// Whether a zone's next page is asked for without fields: this store has never fetched the zone to its end.
  func listsFirst(_ zone: ZoneID, _ facts: some SyncFacts) -> Bool {
    guard policies.firstFetch != .pageByPage, let state = facts.zone(zone) else { return false }
    return state.isFirstFetch && state.resetPolicy.isEmpty
  }

  /// The zone whose newest records are asked for: the next one to fetch, if no page of it has arrived.
  func zoneToQuery(_ facts: some SyncFacts) -> ZoneID? {
    guard case .recentFirst(let types, let count) = policies.firstFetch, let zone = nextZoneToFetch(facts),
      listsFirst(zone, facts), facts.zone(zone)?.token == nil,
      (zones[zone]?.feed.newest ?? NewestRecords(types, count: count)).type != nil
    else { return nil }
    return zone
  }

  /// The query for the next of the newest records.
  mutating func chooseNewest(of zone: ZoneID) -> NewestRequest? {
    guard case .recentFirst(let types, let count) = policies.firstFetch else { return nil }
    let next = self[zone].feed.newest ?? NewestRecords(types, count: count)
    self[zone].feed.newest = next
    return next.type.map { NewestRequest(type: $0, zone: zone, limit: next.limit, marker: next.marker) }
  }

  mutating func take(_ page: NewestPage, to request: NewestRequest, _ offset: Int64?) {
    let changes = page.records.map { ServerChange(RecordID($0.name, zone: request.zone), .version($0)) }
    addStep(
      .answers(AnswerStep(changes: changes, source: .query, serverOffset: offset, cause: .newest(request, page))))
  }

  /// The server is too busy for the query, and perhaps for nothing else: what follows the wait does without.
  mutating func postpone(_ request: NewestRequest, _ error: CloudError) {
    guard error.meaning.ends != .unreachable else { return }
    tell(.skipped(type: request.type, zone: request.zone, error))
    self[request.zone].feed.newest?.skip()
  }

  mutating func refuse(_ request: NewestRequest, _ error: CloudError) throws {
    let zone = request.zone
    switch error.meaning.request {
    case _ where error.endsCycle: throw error
    // The request for the zone's page finds out.
    case .zoneMissing: self[zone].feed.newest?.skipAll()
    case .split where error.meaning.asksForLess && request.limit > 1: self[zone].feed.newest?.halve()
    default:
      tell(.skipped(type: request.type, zone: zone, error))
      if error.meaning.isOfKind { self[zone].feed.newest?.skipAll() } else { self[zone].feed.newest?.skip() }
    }
  }

  // MARK: Listed records

  /// The next zone with listed records to fetch.
  func zoneWithListing(_ facts: some SyncFacts) -> ZoneID? {
    guard cycle.options.direction != .pushOnly else { return nil }
    let (only, zones, synced) = (cycle.options.zone, zones, synced)
    return facts.learned { sync in
      sync.listed.keys.filter { id in
        synced.takes(id, sync) && (only == nil || only == id) && zones[id]?.refusal == nil
          && !(zones[id]?.isInQuestion ?? false) && sync.zones[id]?.isLost != true
      }.min()
    }
  }

  /// Looks up the next of the listed records; the answer of one request is one transaction.
  mutating func chooseListed(of zone: ZoneID, _ facts: some SyncFacts) throws -> Choice? {
    var next = try fill(zone, facts)
    let names = next.names(limits.listed.current)
    guard !names.isEmpty else {
      // This store has all of these records already.
      try end(&next, zone, 0, [], nil, facts)
      return .again
    }
    self[zone].listing = next
    // Changes that the app writes meanwhile are sent before the next lookup, however many lookups there are.
    cycle.keepRound()
    return .next(.ask(.lookUp(LookupRequest(names: names, zone: zone, purpose: .listed))))
  }

  mutating func takeListed(
    _ found: [CloudName: CloudResult], to request: LookupRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    let zone = request.zone
    guard var next = self[zone].listing else { return }
    // If no user is signed in, the next request says so; otherwise it is these records alone, and they are looked up again.
    for case .failed(let error, _) in found.values where error.meaning.item == .signIn {
      due.forgetAccount()
    }
    next.take(request.names)
    let changes = request.names.map { ServerChange(listed: RecordID($0, zone: zone), found[$0]) }
    try end(&next, zone, request.names.count, changes, offset, facts)
  }

  mutating func refuseListed(_ request: LookupRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    switch error.meaning.request {
    case .zoneMissing: confirmLoss(of: zone, error, kind: .listed, facts)
    case _ where error.endsCycle: throw error
    case _ where error.meaning.item.mayBeOfOneRecord:
      guard request.names.count == 1 else {
        limits.listed.refused(request.names.count)
        return limits.listed.growLater()
      }
      guard var next = self[zone].listing else { return }
      next.take(request.names)
      // As with any other lookup, the record or the zone may be the cause.
      next.refused.add(request.names[0], error)
      self[zone].listing = next
      if next.refused.cause == .all {
        self[zone].listing = nil
        self[zone].refuse(error)
        limits.listed.reset()
        failed(.listed, error, doing: "fetching listed records of zone '\(zone)'", facts)
      } else if next.isEmpty {
        try end(&next, zone, 1, [], nil, facts)
      }
    // The other zones go on; the cycle throws this error at its end.
    default: self[zone].refuse(error)
    }
  }

  /// Whether a zone has no other `listed` events: a page that arrived meanwhile may have added one.
  private func isAll(_ ended: [LSN], of zone: ZoneID, _ facts: some SyncFacts) -> Bool {
    let ended = Set(ended)
    return facts.learned { $0.listed[zone]?.events.keys.allSatisfy(ended.contains) ?? true }
  }

  /// The listed records to ask for next, with enough names for one request if there are enough.
  private func fill(_ zone: ZoneID, _ facts: some SyncFacts) throws -> ListedRecords {
    let oldestFirst = facts.schema.hasParents
    let listed = facts.learned { $0.listed[zone] ?? ListedNames() }
    var next = self[zone].listing ?? ListedRecords(listed, oldestFirst: oldestFirst)
    // A reset of the zone may have dropped the events that were read.
    if next.names.first.map({ listed.events[$0.listed] == nil }) == true || (next.isEmpty && next.ended.isEmpty) {
      next = ListedRecords(listed, oldestFirst: oldestFirst)
    }
    var events = 0
    while next.names.count < limits.listed.current, events < Self.listedEventsAtOnce, let lsn = next.unread.popLast() {
      guard listed.events[lsn] != nil else { continue }
      events += 1
      try read(lsn, of: zone, into: &next, facts)
    }
    return next
  }

  /// Reads the names of one event that this store lacks.
  private func read(_ lsn: LSN, of zone: ZoneID, into next: inout ListedRecords, _ facts: some SyncFacts) throws {
    guard case .listed(let event) = try facts.event(at: lsn) else {
      throw StrandlineError(.damaged, "event \(lsn) should list names of zone '\(zone)' and does not", lsns: lsn...lsn)
    }
    let missing = try event.items.filter { try isMissing($0, listed: lsn, RecordID($0.name, zone: zone), facts) }
    next.names += missing.map { ListedRecords.Name(listed: lsn, item: $0) }
    if missing.isEmpty { next.ended.append(lsn) }
  }

  /// Whether this store has neither a listed version nor a later one.
  private func isMissing(
    _ item: Listed.Item, listed: LSN, _ id: RecordID, _ facts: some SyncFacts
  ) throws -> Bool {
    let known = try facts.look(id)
    // The app may have deleted an older record of that name; the lookup says whether it did.
    if let deletion = known.deletion, deletion.lsn > listed, !deletion.isLocal { return false }
    guard let base = known.entry?.base else { return true }
    let modified = base.modifiedMilliseconds ?? 0
    if base.changeTag.equalsUTF8(item.changeTag), modified == item.modifiedMilliseconds { return false }
    return base.version < listed || modified < item.modifiedMilliseconds
  }

  /// Applies an answer, and in the same transaction ends the `listed` events of which every record is here. Records that were refused
  /// are held: the server answers lookups, so the records themselves are the cause. The zone's last ones
  /// end after the children of deleted records were settled, as such children may have arrived only now.
  private mutating func end(
    _ next: inout ListedRecords, _ zone: ZoneID, _ count: Int, _ changes: [ServerChange], _ offset: Int64?,
    _ facts: some SyncFacts
  ) throws {
    let isLast = next.isEmpty && facts.zone(zone)?.isDirty != true && isAll(next.ended, of: zone, facts)
    let reviews = isLast && facts.schema.hasParents
    // If the feed is not at its end, the zone's last page settles the children.
    if next.isEmpty, facts.schema.hasParents { self[zone].reviewsChildren = true }
    let ended = ListedEnded(zone: zone, lsns: next.ended.sorted())
    let events = ended.lsns.isEmpty ? [] : [SyncEvent.append(.listedEnded(ended))]
    let refused = next.refused.refusals.map { name, error in
      ServerChange(RecordID(name, zone: zone), .unreadable(error))
    }
    (next.ended, next.refused) = ([], RefusedLookups())
    var step = AnswerStep(
      changes: refused + changes, source: .lookup, page: PagePlace(zone: zone, isLast: isLast), serverOffset: offset,
      cause: .listed(
        ListedAnswer(zone: zone, next: next, count: count, endsLater: reviews ? events : nil)))
    if !reviews { step.after = events }
    addStep(.answers(step))
  }

  mutating func applied(
    _ answer: ListedAnswer, _ changes: [ServerChange], _ taken: TakenChanges, _ facts: some SyncFacts
  ) throws {
    let zone = answer.zone
    if answer.count > 0 { limits.listed.answered(answer.count) }
    if facts.zone(zone)?.isLost == true { noteLoss(of: zone, facts) }
    try changed(taken.touched, facts)
    for change in changes { lookedUp(change.id, facts) }
    if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    for id in taken.absent { doubt(id) }
    if let events = answer.endsLater { addStep(.settleChildren(zone, then: .listing(events))) }
    self[zone].listing = answer.next.isEmpty ? nil : answer.next
  }
}

extension ServerChange {
  /// The change from the answer about a listed record. A record that the answer lacks, or that the server cannot show now, is held
  /// and looked up by the next cycle.
  fileprivate init(listed id: RecordID, _ answer: CloudResult?) {
    if let change = ServerChange(id, answer: answer) {
      self = change
    } else if case .failed(let error, _)? = answer {
      self.init(id, .unreadable(error))
    } else {
      let error = CloudError(.unexpectedServerResponse, reason: "the answer has no result for this record")
      self.init(id, .unreadable(error))
    }
  }
}

extension Schema {
  /// Whether the app has declared a parent for any type.
  fileprivate var hasParents: Bool { names.contains { self[$0].parent != nil } }
}
