// The first fetch of a zone on a device whose app wants the newest records first (`FirstFetch.recentFirst`).
//
// Three parts follow each other. The newest records of some types are asked for by a query and enter as answers beside the
// feed. Then the zone is fetched without fields, page by page as ever: deletions are applied, and each page's transaction
// names the records that are not here (`listed`) beside its token. Then these are looked up, behind whatever else is due, and
// each answer ends in its transaction the `listed` events of which it brought the last name.
//
// Nothing of it is remembered but by the log. A process that begins with open `listed` events reads them again and asks
// for those names that are not here; one that begins between two pages goes on at its token; a token that is refused drops
// what was listed, and the zone is fetched anew with its fields.

import StrandlineSystem
import Synchronization

extension CloudDatabase {
  /// A page of a zone's changes, without fields if `lists`.
  func page(of zone: ZoneID, since token: ChangeToken?, _ limit: Int, lists: Bool) async throws -> ZonePage {
    lists
      ? try await zoneListing(in: zone, since: token, limit: limit)
      : try await zoneChanges(in: zone, since: token, limit: limit)
  }
}

/// The queries for the newest records of one zone.
struct NewestRecords: Sendable {
  /// The types that are left, the next one first.
  private var types: ArraySlice<String>
  private let count: Int
  private var left: Int
  private(set) var marker: String?
  private var limitMax = SyncMachine.pageLimit

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
  /// The answer to so many does not fit into a transaction.
  mutating func halve() { limitMax = max(1, limit / 2) }

  mutating func take(_ page: NewestPage) {
    left -= page.records.count
    marker = page.marker
    // A page that brings nothing is the last one, whatever it says.
    if marker == nil || left <= 0 || page.records.isEmpty { skip() }
  }
}

/// The next of what a zone has listed.
struct ListedRecords: Sendable {
  struct Name: Sendable {
    var listed: LSN
    var item: Listed.Item
  }
  /// The events that were not read yet, the next one last.
  var unread: [LSN]
  /// Names to ask for, the next one first.
  var names: ArraySlice<Name> = []
  /// Events of which no name is left to ask for.
  var ended: [LSN] = []

  /// - Parameter oldestFirst: else the page that came last is fetched first: it has what was changed last.
  init(_ listed: ListedNames, oldestFirst: Bool) {
    unread = listed.events.keys.sorted { oldestFirst ? $0 > $1 : $0 < $1 }
  }

  var isEmpty: Bool { unread.isEmpty && names.isEmpty }

  /// So many names were asked for, and answered.
  mutating func take(_ count: Int) {
    let taken = names.prefix(count)
    names = names.dropFirst(count)
    // The names of an event stand together.
    for lsn in Set(taken.map(\.listed)).sorted() where names.first?.listed != lsn { ended.append(lsn) }
  }
}

extension SyncMachine {
  /// So many events are read for one request at most.
  private static let listedEventsAtOnce = 200

  // MARK: The newest records

  /// Whether a zone's next page is asked for without fields: this store has never fetched it to its end, nor anew.
  func listsFirst(_ zone: ZoneID) -> Bool {
    guard firstFetch != .pageByPage, let state = self.zone(zone) else { return false }
    return (state.token == nil || state.isFullFetch) && !state.hasGhosts && state.resetPolicy.isEmpty
  }

  /// The zone whose newest records are asked for: the next one to fetch, if no page of it has come.
  var zoneToQuery: ZoneID? {
    guard case .recentFirst(let types, let count) = firstFetch, let zone = nextZoneToFetch(), listsFirst(zone),
      self.zone(zone)?.token == nil, (newest[zone] ?? NewestRecords(types, count: count)).type != nil
    else { return nil }
    return zone
  }

  /// Asks for the next of the newest records.
  mutating func queryNewest() async throws -> Bool {
    guard let zone = zoneToQuery, case .recentFirst(let types, let count) = firstFetch else { return false }
    var next = newest[zone] ?? NewestRecords(types, count: count)
    guard let type = next.type else { return false }
    let (limit, marker) = (next.limit, next.marker)
    do {
      let answer = try await ask(.query, "asking for the newest '\(type)' of zone '\(zone)'") { [database] in
        try await database.newestRecords(ofType: type, in: zone, limit: limit, after: marker)
      }
      // If it has to wait, the pages need not.
      guard let page = answer else { return true }
      let changes = page.records.map { ServerChange(RecordID($0.name, zone: zone), .version($0)) }
      let taken = try await store.take(changes, .query, serverOffset: database.serverOffsetMilliseconds)
      report.add(taken.report)
      for id in taken.touched.sorted() { try changed(id) }
      if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
      next.take(page)
    } catch let error as StrandlineError where error.code == .tooLarge && limit > 1 {
      next.halve()
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .signIn: throw signIn(error)
      // The page finds out.
      case .zoneMissing: next.skipAll()
      case .split where ErrorPolicy.asksForLess(error) && limit > 1: next.halve()
      default:
        watch.skips(type, of: zone, error)
        if error.code == .unsupported { next.skipAll() } else { next.skip() }
      }
    }
    newest[zone] = next
    return true
  }

  // MARK: What was listed

  /// The next zone of which listed records are to be fetched.
  var zoneWithListing: ZoneID? {
    guard options.direction != .pushOnly else { return nil }
    let (scope, only, refused) = (scope, options.zone, refusedZones)
    return store.projections.withLock { projections in
      projections.sync.listed.keys.filter { id in
        id.scope == scope && (only == nil || only == id) && refused[id] == nil
          && projections.sync.zones[id]?.isLost != true
      }.min()
    }
  }

  /// Looks up the next of the listed records; the answer of one request is one transaction.
  mutating func fetchListed() async throws -> Bool {
    guard let zone = zoneWithListing else { return false }
    var next = try fill(zone)
    listings[zone] = next
    let asked = next.names.prefix(listedMax)
    // Two pages have listed a record that has changed between them.
    var known: Set<CloudName> = []
    let names = asked.map(\.item.name).filter { known.insert(CloudName($0)).inserted }
    guard !names.isEmpty else {
      // All that was read is here already.
      try await end(next, zone, [])
      return true
    }
    // What the app writes meanwhile goes before the rest, however long that takes.
    roundsLeft = max(roundsLeft, 1)
    do {
      let doing = "fetching \(names.count) listed records of zone '\(zone)'"
      guard let found = try await ask(.listed, doing, { [database] in try await database.lookup(names, in: zone) })
      else { return true }
      // If no user is signed in, the next request says so; otherwise it is these records alone, and they are looked up again.
      for case .failed(let error, _) in found.values where ErrorPolicy.item(error) == .signIn { isAccountKnown = false }
      next.take(asked.count)
      // The server answers, so it was those records that were refused.
      let changes = names.map { ServerChange(listed: RecordID($0, zone: zone), found[$0]) }
      try await end(next, zone, takeRefused(of: zone) + changes)
      listedMax = min(UploadPlan.operationsMax, listedMax + max(1, listedMax / 8))
    } catch let error as StrandlineError where error.code == .tooLarge && names.count > 1 {
      listedMax = names.count / 2
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .zoneMissing: try await confirmLoss(of: zone, error, kind: .listed)
      case .signIn: throw signIn(error)
      case _ where ErrorPolicy.mayBeOfOneRecord(error):
        if names.count > 1 {
          listedMax = names.count / 2
        } else {
          next.take(asked.count)
          try await refuseListed(names[0], next, zone, error)
        }
      // The other zones go on; the run throws this error at its end.
      default: refusedZones[zone] = error
      }
    }
    return true
  }

  /// A lookup of one listed record was refused; the same as `refuseLookup`.
  private mutating func refuseListed(
    _ name: String, _ next: ListedRecords, _ zone: ZoneID, _ error: CloudError
  ) async throws {
    listedRefused[zone, default: RefusedLookups()].add(CloudName(name), error)
    listings[zone] = next
    if listedRefused[zone]?.isOfAll == true {
      (listedRefused[zone], listings[zone], refusedZones[zone]) = (nil, nil, error)
      listedMax = UploadPlan.operationsMax
      try await pace.failed(.listed, error, doing: "fetching listed records of zone '\(zone)'")
    } else if next.isEmpty {
      try await end(next, zone, takeRefused(of: zone))
    }
  }

  private mutating func takeRefused(of zone: ZoneID) -> [ServerChange] {
    defer { listedRefused[zone] = nil }
    return listedRefused[zone]?.refusals.map { name, error in
      ServerChange(RecordID(name, zone: zone), .unreadable(error))
    } ?? []
  }

  /// Whether a zone has listed nothing else: a page that came meanwhile may have.
  private func isAll(_ ended: [LSN], of zone: ZoneID) -> Bool {
    let ended = Set(ended)
    return store.projections.withLock { $0.sync.listed[zone]?.events.keys.allSatisfy(ended.contains) ?? true }
  }

  /// What is to be asked for next, with as many names as a request has, if there are so many.
  private func fill(_ zone: ZoneID) throws -> ListedRecords {
    let oldestFirst = hasParents
    let listed = store.projections.withLock { $0.sync.listed[zone] ?? ListedNames() }
    var next = listings[zone] ?? ListedRecords(listed, oldestFirst: oldestFirst)
    // A reset may have dropped what was read.
    if next.names.first.map({ listed.events[$0.listed] == nil }) == true || (next.isEmpty && next.ended.isEmpty) {
      next = ListedRecords(listed, oldestFirst: oldestFirst)
    }
    var events = 0
    while next.names.count < listedMax, events < Self.listedEventsAtOnce, let lsn = next.unread.popLast() {
      guard listed.events[lsn] != nil else { continue }
      events += 1
      try read(lsn, of: zone, into: &next)
    }
    return next
  }

  /// Reads the names of one event that are not here.
  private func read(_ lsn: LSN, of zone: ZoneID, into next: inout ListedRecords) throws {
    guard case .listed(let event) = try store.source.event(at: lsn) else {
      throw StrandlineError(.damaged, "event \(lsn) should list names of zone '\(zone)' and does not", lsns: lsn...lsn)
    }
    let missing = try event.items.filter { try isMissing($0, listed: lsn, RecordID($0.name, zone: zone)) }
    next.names += missing.map { ListedRecords.Name(listed: lsn, item: $0) }
    if missing.isEmpty { next.ended.append(lsn) }
  }

  /// Whether a listed version is not here, nor anything that came later.
  private func isMissing(_ item: Listed.Item, listed: LSN, _ id: RecordID) throws -> Bool {
    let known = try store.projections.look(id)
    // What the app has deleted may be another life; the answer tells.
    if let deletion = known.deletion, deletion.lsn > listed, !deletion.isLocal { return false }
    guard let base = known.entry?.base else { return true }
    let modified = base.modifiedMilliseconds ?? 0
    if base.changeTag.equalsUTF8(item.changeTag), modified == item.modifiedMilliseconds { return false }
    return base.version < listed || modified < item.modifiedMilliseconds
  }

  /// Whether records may have to wait for those that they hang below: then what was changed first is fetched first.
  private var hasParents: Bool { store.core.withLock { $0.schema.hasParents } }

  /// Applies an answer, and ends in its transaction what has come to its end. The last of a zone ends when the children of
  /// deleted records have been looked at: they may have come only now.
  private mutating func end(_ next: ListedRecords, _ zone: ZoneID, _ changes: [ServerChange]) async throws {
    var next = next
    let isLast = next.isEmpty && self.zone(zone)?.isDirty != true && isAll(next.ended, of: zone)
    let reviews = isLast && hasParents
    // Else the zone's last page has it done.
    if next.isEmpty, hasParents { childReviews?.insert(zone) }
    let ended = ListedEnded(zone: zone, lsns: next.ended.sorted())
    let taken = try await store.take(
      changes, .lookup, serverOffset: changes.isEmpty ? nil : database.serverOffsetMilliseconds,
      page: PagePlace(zone: zone, isLast: isLast)
    ) { _ in
      true
    } after: { core in
      if !reviews, !ended.lsns.isEmpty { try core.append(.listedEnded(ended)) }
    }
    report.add(taken.report)
    noteLoss(of: zone)
    for id in taken.touched.sorted() { try changed(id) }
    for change in changes { looked(up: change.id) }
    if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    for id in taken.absent { doubt(id) }
    if reviews {
      try await settleChildren(of: zone)
      if !ended.lsns.isEmpty { try await store.commit { try $0.append(.listedEnded(ended)) } }
    }
    next.ended = []
    listings[zone] = next.isEmpty ? nil : next
  }
}

extension ServerChange {
  /// What an answer says of a listed record. A record of which it says nothing, or which the server cannot show now, is held, and
  /// looked up by the next run.
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
  /// Whether a type is declared to hang below another record.
  fileprivate var hasParents: Bool { names.contains { self[$0].parent != nil } }
}

extension Projections {
  /// How much of what zones have listed is here; nil if nothing is left to fetch. The names of one page count as fetched when
  /// the last of them is here.
  func listing(in scope: DatabaseScope) -> SyncStatus.Progress? {
    let open = sync.listed.filter { $0.key.scope == scope && sync.zones[$0.key]?.isLost != true }
    guard !open.isEmpty else { return nil }
    let left = open.values.reduce(0) { $0 + $1.count }
    let done = open.keys.reduce(0) { $0 + (records.living[$1]?.total ?? 0) }
    return SyncStatus.Progress(done: done, total: done + left)
  }
}
