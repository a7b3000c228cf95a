// What is asked of the server: which zones have changed, the changes of a zone page by page, and single records. A page
// and its token are one transaction.

import StrandlineSystem

extension SyncMachine {
  static let pageLimit = 200
  /// Pages in a row that may be empty and say that more is to come. The live service was seen to send dozens.
  static let emptyPagesMax = 1_000

  // MARK: The database

  /// Asks for a page of the list of changed zones, if it is due.
  mutating func fetchList() async throws -> Bool {
    guard isListDue, fetchesFeed else { return false }
    listPages += 1
    guard listPages <= Self.emptyPagesMax else {
      throw unexpected("the list of changed zones did not end after \(Self.emptyPagesMax) pages")
    }
    let scope = scope
    let asked = store.projections.withLock { $0.sync.databaseTokens[scope] }
    var token = asked
    var answer: DatabasePage?
    do {
      answer = try await requestList(since: asked)
    } catch let error as CloudError where asked != nil && ErrorPolicy.mayBeExpiredToken(error) {
      // Asked once without the token. Only if that succeeds was the token the cause.
      token = nil
      answer = try await requestList(since: nil)
    } catch let error as CloudError {
      throw error.asStrandlineError("syncing '\(store.path)'")
    }
    guard let page = answer else { return true }
    try await hearServerClock()
    if page.moreComing, page.token == asked {
      listRepeats += 1
      let error = CloudError(.zoneBusy, reason: "the list of changed zones says \(Self.repeatWords)")
      try await pace.failed(.zoneList, error, doing: "asking which zones changed", times: listRepeats)
      return true
    }
    listRepeats = 0
    isListDue = page.moreComing
    guard page.token != asked || !page.zones.isEmpty else { return true }
    var lost: [ZoneID] = []
    var unknown: Set<ZoneID> = []
    for gone in page.zones where gone.loss != nil {
      let zone = Self.zone(gone, scope, of: store.projections.sync)
      if try store.hasNothing(of: zone) { unknown.insert(zone) }
    }
    try await store.commit { core in
      lost = []
      guard core.projections.sync.databaseTokens[scope] == asked else { return }
      if token == nil, asked != nil {
        // A list from the beginning does not name zones that were deleted meanwhile: fetch each known zone.
        for zone in core.projections.sync.zones.keys.sorted() where zone.scope == scope {
          try core.append(
            .zoneChanged(ZoneChanged(zone: zone, change: .dirty, words: "the database's token expired")))
        }
      }
      lost = try Self.apply(page.zones, scope, unknown: unknown, &core)
      try core.append(.databaseTokenAdvanced(DatabaseTokenAdvanced(scope: scope, asked: token, token: page.token)))
    }
    for zone in lost { noteLoss(of: zone) }
    return true
  }

  /// Every run has this answer, and perhaps no other one. It goes into the log only if the server's clock shows something else
  /// than the log says.
  private func hearServerClock() async throws {
    guard let offset = database.serverOffsetMilliseconds else { return }
    try await store.commit { core in
      core.learn(serverOffset: offset)
      try core.appendServerOffset()
    }
  }

  private mutating func requestList(since token: ChangeToken?) async throws -> DatabasePage? {
    try await ask(.zoneList, "asking which zones changed") { [database] in
      try await database.databaseChanges(since: token, limit: Self.pageLimit)
    }
  }

  /// A zone of a list, as this store names it.
  private static func zone(_ zone: DatabasePage.Zone, _ scope: DatabaseScope, of sync: SyncState) -> ZoneID {
    var id = zone.id
    id.scope = scope
    return Account(sync).canonical(id)
  }

  /// Marks the zones that have changed, and returns those that are gone.
  ///
  /// - Parameter unknown: those of which nothing is here.
  private static func apply(
    _ zones: [DatabasePage.Zone], _ scope: DatabaseScope, unknown: Set<ZoneID>, _ core: inout StoreCore
  ) throws -> [ZoneID] {
    var lost: [ZoneID] = []
    // The default zone has no feed, and nothing in it is this store's.
    for zone in zones where zone.id.name != Names.defaultZone {
      let id = Self.zone(zone, scope, of: core.projections.sync)
      if var loss = zone.loss {
        // That the app ended it is this store's to say.
        if loss == .erasing || loss == .erased { loss = .deleted }
        // A zone that this log never saw at the server has nothing here to freeze, and of one that a person has decided about
        // the fetch finds out.
        if let state = core.projections.sync.zones[id], state.wasSeen, !state.isErased, !state.isDecided {
          guard !(unknown.contains(id) && core.projections.withLock { $0.knowsNothing(of: id) }) else {
            try core.append(.zoneChanged(ZoneChanged(zone: id, change: .forgotten)))
            continue
          }
          try core.append(.zoneChanged(.lost(id, loss, words: "the list of changed zones says that it is gone")))
          lost.append(id)
        }
      } else {
        try core.append(.zoneChanged(ZoneChanged(zone: id, change: .dirty)))
      }
    }
    return lost
  }

  static let repeatWords = "that more is to come, and its token stays the same"

  private func unexpected(_ reason: String) -> StrandlineError {
    CloudError(.unexpectedServerResponse, reason: reason).asStrandlineError("syncing '\(store.path)'")
  }

  // MARK: A zone

  /// The zone to fetch next: one that the server named, or one of which something has to be known.
  func nextZoneToFetch() -> ZoneID? {
    let only = options.zone
    // One loop, and no lazy sequence: its closures would copy the machine, at each step.
    return store.projections.withLock { projections in
      var next: (repeats: Int, id: ZoneID)?
      for (id, state) in projections.sync.zones where id.scope == scope && !state.isLost {
        guard fetches[id]?.isForced == true || (state.isDirty && fetchesFeed && (only == nil || only == id)),
          refusedZones[id] == nil, sweeps[id] == nil
        else { continue }
        // One that repeats itself keeps no other one waiting.
        let candidate = (repeats: fetches[id]?.repeats ?? 0, id: id)
        if next.map({ candidate < $0 }) ?? true { next = candidate }
      }
      return next?.id
    }
  }

  /// The zone is fetched to its end before anything that waits for it goes on.
  ///
  /// - Parameter startsOver: from its beginning. The server has just taken the token that it has.
  mutating func fetch(_ zone: ZoneID, startsOver: Bool = false) {
    fetches[zone, default: ZoneFetch()].isForced = true
    guard startsOver else { return }
    fetches[zone]?.startsOver = true
    fetches[zone]?.hadToken = true
  }

  /// Fetches a page of the next zone, from its token on. The old token stays until the first page without it is durable.
  mutating func fetchNextPage() async throws -> Bool {
    guard let zone = nextZoneToFetch() else { return false }
    var fetch = fetches[zone] ?? ZoneFetch()
    let asked = self.zone(zone)?.token
    var isReset = fetch.startsOver && asked != nil
    // A token that is refused with this page says nothing.
    let isSameZone = isReset && fetch.hadToken
    var isApplied = false
    let lists = !isReset && listsFirst(zone)
    do {
      guard let page = try await requestPage(of: zone, since: asked, isReset: &isReset, fetch.limit, lists) else {
        return true
      }
      try fetch.count(page, of: zone)
      let commit = { (machine: inout SyncMachine) async throws in
        isApplied = try await machine.apply(
          page, of: zone, asked: asked, isReset: isReset, isSameZone: isSameZone, &fetch)
      }
      if page.moreComing, page.token != asked {
        try await askAhead(of: zone, since: page.token, fetch.limit, lists && !isReset, meanwhile: commit)
      } else {
        try await commit(&self)
      }
      guard isApplied else { return true }
      (fetch.startsOver, fetch.hadToken) = (false, false)
      // The server may repeat an old page; one that goes on is in a loop.
      fetch.repeats = page.moreComing && page.token == asked ? fetch.repeats + 1 : 0
      fetches[zone] = fetch
      if fetch.repeats > 0 {
        let error = CloudError(.zoneBusy, reason: "the feed of zone '\(zone)' says \(Self.repeatWords)")
        try await pace.failed(.page, error, doing: "fetching changes of zone '\(zone)'", times: fetch.repeats)
        return true
      }
      if !page.moreComing { try await endFetch(of: zone) }
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .zoneMissing: try await confirmLoss(of: zone, error)
      case .signIn: throw signIn(error)
      case .split where ErrorPolicy.asksForLess(error) && fetch.limit > 1:
        fetch.limit /= 2
        fetches[zone] = fetch
      // The other zones are fetched all the same; the run throws this error at its end.
      default: refusedZones[zone] = error
      }
    }
    return true
  }

  /// So often a zone's token may be refused in one run. A server that goes on refuses what it has just given.
  private static let tokenRefusalsMax = 3

  /// Requests one page; `isReset`: without the token that this store has. If the server refuses the token, the page is
  /// requested once without it; if that fails too, the token was not the cause and is kept.
  private mutating func requestPage(
    of zone: ZoneID, since token: ChangeToken?, isReset: inout Bool, _ limit: Int, _ lists: Bool
  ) async throws -> ZonePage? {
    let fromStart = isReset
    do {
      if !fromStart, let page = try takePageAhead(of: zone, since: token, limit, lists) { return page }
      return try await requestPage(of: zone, since: fromStart ? nil : token, limit, lists)
    } catch let error as CloudError where token != nil && !fromStart && ErrorPolicy.mayBeExpiredToken(error) {
      tokenRefusals[zone, default: 0] += 1
      guard tokenRefusals[zone, default: 0] <= Self.tokenRefusalsMax else { throw error }
      isReset = true
      return try await requestPage(of: zone, since: nil, limit, false)
    }
  }

  private mutating func requestPage(
    of zone: ZoneID, since token: ChangeToken?, _ limit: Int, _ lists: Bool
  ) async throws -> ZonePage? {
    try await ask(.page, "fetching changes of zone '\(zone)'") { [database] in
      try await database.page(of: zone, since: token, limit, lists: lists)
    }
  }

  /// Applies a page and its token in one transaction; false if it exceeds one and is to be asked again in halves, or if the zone has
  /// another token by now.
  private mutating func apply(
    _ page: ZonePage, of zone: ZoneID, asked: ChangeToken?, isReset: Bool, isSameZone: Bool, _ fetch: inout ZoneFetch
  ) async throws -> Bool {
    let isFullFetch = isReset || asked == nil || self.zone(zone)?.isFullFetch == true
    let changes = page.changes.map { change in
      switch change {
      case .saved(let record):
        ServerChange(RecordID(record.name, zone: zone), page.hasFields ? .version(record) : .listed(record))
      case .deleted(let name): ServerChange(RecordID(name, zone: zone), .deletion)
      case .failed(let name, let error): ServerChange(RecordID(name, zone: zone), .unreadable(error))
      }
    }
    let taken: TakenChanges
    do {
      let offset = database.serverOffsetMilliseconds
      let place = PagePlace(
        zone: zone, isLast: !page.moreComing, waitsForListed: true, startsOver: isReset || asked == nil,
        isRepeated: page.token == asked)
      let settlesChildren = try reviewsChildren(of: zone, after: page)
      var knownSince: Int64?
      taken = try await store.take(
        changes, isFullFetch ? .fullFetch : .delta, serverOffset: offset, page: place
      ) { core in
        // Requested with a token that is no longer the zone's: the page may be older than what is here. Drop it whole.
        guard core.projections.sync.zones[zone]?.token == asked else { return false }
        if isReset {
          // What was decided about the zone is carried out by the fetch that begins anew.
          let decided = core.projections.sync.zones[zone].flatMap { $0.isDirty && !$0.isLost ? $0 : nil }
          try core.append(
            .zoneChanged(
              ZoneChanged(
                zone: zone, change: .reset, words: "the change token was refused or is in doubt",
                policy: decided?.resetPolicy ?? "", ruledMilliseconds: decided?.ruledMilliseconds ?? 0)))
        }
        // Without a token the page is the first one of a full fetch.
        if isReset || asked == nil { try core.beginSweep(of: zone) }
        knownSince = try isSameZone ? 0 : core.knownSince(changes, in: zone)
        return true
      } after: { core in
        let epoch = try core.confirm(changes, in: zone, knownSince: knownSince)
        if page.token != asked || isReset {
          try core.append(
            .tokenAdvanced(
              TokenAdvanced(zone: zone, asked: isReset ? nil : asked, token: page.token, sweepEpoch: epoch)))
        }
        // With an open sweep the zone is clean when that has ended, and else when the children of deleted records are settled.
        // A fetch that the server's list did not ask for has ended too.
        let isFetched = core.projections.sync.zones[zone].map { $0.isDirty || $0.isFullFetch || $0.isNew } == true
        if !page.moreComing, epoch == 0, !settlesChildren, isFetched {
          try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
        }
      }
    } catch let error as StrandlineError where error.code == .tooLarge {
      guard fetch.limit > 1 else { return refuse(page, of: zone, error) }
      fetch.limit /= 2
      fetches[zone] = fetch
      return false
    }
    // It says nothing of the feed that begins anew.
    if taken.wasDropped { return false }
    try goOn(after: page, of: zone, taken)
    return true
  }

  /// A page was applied.
  private mutating func goOn(after page: ZonePage, of zone: ZoneID, _ taken: TakenChanges) throws {
    report.add(taken.report)
    for id in taken.touched.sorted() { try changed(id) }
    // What is owed here is not sent before the server's version has come.
    for name in taken.listedAndOwed { lookups[zone, default: []].insert(CloudName(name)) }
    // What the page could not show is looked up at once.
    for case .failed(let name, _) in page.changes { lookups[zone, default: []].insert(CloudName(name)) }
    if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    // What it blocked is looked up in this run.
    if taken.report.blocked > 0 { isReviewDue = true }
  }

  /// Ends the fetch of a zone whose smallest page is still too large to be applied; false, as it is not. Nothing is thrown: the
  /// request for the page behind it may be under way.
  private mutating func refuse(_ page: ZonePage, of zone: ZoneID, _ error: StrandlineError) -> Bool {
    let names = page.changes.prefix(3).map { "'\($0.name)'" }.joined(separator: ", ")
    let reason = "the changes of \(names), which the server shows together, fit into no transaction here"
    refusedZones[zone] = CloudError(.limitExceeded, reason: "\(reason): \(error.message)")
    return false
  }

  /// The zone has been fetched to its end.
  private mutating func endFetch(of zone: ZoneID) async throws {
    if options.direction != .pushOnly, sweeps[zone] == nil {
      let names = shownOlder(in: zone)
      if !names.isEmpty {
        sweeps[zone] = OpenSweep(asked: names)
        lookups[zone, default: []].formUnion(names)
        isReviewDue = true
        return
      }
    }
    try await settleChildren(of: zone)
    guard try await endSweep(of: zone) else {
      // The last page is in, which is what they wait for.
      if sweeps[zone]?.isPaused == true { sendFetched(zone) }
      return
    }
    (sweeps[zone], fetches[zone]) = (nil, nil)
    try endDoubts(in: zone)
    sendFetched(zone)
  }

  /// Sends what waits for the feed of a zone. What is still in doubt goes on waiting, for the feed from its beginning.
  private mutating func sendFetched(_ zone: ZoneID) {
    for id in queue.fetched(zone) where doubts[id] == nil { sendAgain(id) }
  }

  /// The records of a zone with an open sweep that have to be looked up, because the feed showed older versions of them.
  private func shownOlder(in zone: ZoneID) -> Set<CloudName> {
    store.projections.withLock { projections in
      guard let state = projections.sync.zones[zone], state.sweepEpoch != 0 else { return [] }
      let open = projections.sync.openBlocks.filter {
        $0.key.zone == zone && $0.value.subject == .version && $0.value.consequence == .lookup
      }
      return Set(open.keys.map(\.key))
    }
  }

  // MARK: A zone that is gone

  /// The server said that it does not have a zone. That is believed when the list of zones says so too.
  ///
  /// - Parameter kind: the requests that wait if the zone is there; nil if they need not.
  mutating func confirmLoss(of zone: ZoneID, _ error: CloudError, kind: RequestKind? = .page) async throws {
    guard self.zone(zone)?.isErased != true else { return }
    guard self.zone(zone)?.wasSeen == true else {
      // Never seen there: it is created before the first save.
      if error.code != .zoneNotFound { refusedZones[zone] = error }
      return
    }
    let doing = "asking whether zone '\(zone)' exists"
    guard let zones = try await ask(.zoneList, doing, { [database] in try await database.zones() })
    else {
      refusedZones[zone] = error
      return
    }
    if try await createAgain(zone, unlessIn: zones) { return }
    let account = Account(store.projections.withLock { $0.sync })
    if zones.contains(where: { account.canonical($0) == zone }) {
      // It is there: whatever the server said is asked again, later and later.
      guard let kind else { return }
      try await pace.failed(kind, CloudError(.zoneBusy, reason: "\(error), though the zone exists"), doing: doing)
      return
    }
    if self.zone(zone)?.resetPolicy == ResyncSource.server.rawValue { return try await removeAll(of: zone) }
    if try store.hasNothing(of: zone) {
      // There is nothing to ask a person about.
      var isForgotten = false
      try await store.commit { core in
        isForgotten = core.projections.withLock { $0.knowsNothing(of: zone) }
        if isForgotten { try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .forgotten))) }
      }
      if isForgotten {
        fetches[zone] = nil
        return
      }
    }
    try await store.commit { core in
      try core.appendLoss(of: zone, .notFound, words: "the server does not have it: \(error)")
    }
    fetches[zone] = nil
    noteLoss(of: zone)
  }

  /// If a zone is lost and stays so, the run ends with that error: what is in it stays as it is here until a person or a rule
  /// decides, and no freeze is silent.
  mutating func noteLoss(of zone: ZoneID) {
    if self.zone(zone)?.isLost == true { lostZones.insert(zone) }
  }

  // MARK: Lookups

  /// Looks up the next records, those of one zone; the answers of one request are one transaction. A request that is refused, perhaps
  /// because of one of its records, or because its answer is too large, is made again for half of them.
  mutating func lookUpNext() async throws -> Bool {
    collectLookups()
    guard let (zone, names) = lookups.min(by: { $0.key < $1.key }) else {
      if let (zone, refused) = lookupsRefused.min(by: { $0.key < $1.key }) {
        // There was nothing else to ask for.
        lookupsRefused[zone] = nil
        try await apply(refused.answers, to: refused.names, of: zone)
        return true
      }
      guard let zone = sweepToGoOnWith else { return false }
      if self.zone(zone)?.isLost == true { sweeps[zone] = nil } else { try await endFetch(of: zone) }
      return true
    }
    let some = Array(names.sorted().prefix(lookupsMax))
    let found: [CloudName: CloudResult]
    do {
      let doing = "looking up \(some.count) records of zone '\(zone)'"
      guard
        let answer = try await ask(.lookup, doing, { [database] in try await database.lookup(some.texts, in: zone) })
      else { return true }
      found = answer
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .signIn: throw signIn(error)
      case .zoneMissing:
        try await confirmLoss(of: zone, error)
        lookUpLater(zone, error)
        return true
      case _ where ErrorPolicy.mayBeOfOneRecord(error):
        if some.count == 1 {
          try await refuseLookup(of: some[0], in: zone, error)
        } else {
          lookupsMax = some.count / 2
        }
        return true
      default:
        refusedZones[zone] = error
        lookUpLater(zone, error)
        return true
      }
    }
    do {
      // The server answers, so it was the records themselves that were refused before.
      let refused = lookupsRefused[zone] ?? RefusedLookups()
      try await apply(found.merging(refused.answers) { found, _ in found }, to: some + refused.names, of: zone)
    } catch let error as StrandlineError where error.code == .tooLarge && some.count > 1 {
      lookupsMax = some.count / 2
      return true
    }
    lookupsRefused[zone] = nil
    lookupsMax = min(UploadPlan.operationsMax, lookupsMax * 2)
    lookups[zone]?.subtract(some)
    if lookups[zone]?.isEmpty == true { lookups[zone] = nil }
    return true
  }

  /// A lookup of one record was refused. If it was the record, the server answers for another one; if it refuses so many of them
  /// alike, one by one, it is the zone, and none of them is held.
  private mutating func refuseLookup(of name: CloudName, in zone: ZoneID, _ error: CloudError) async throws {
    lookupsRefused[zone, default: RefusedLookups()].add(name, error)
    lookups[zone]?.remove(name)
    if lookups[zone]?.isEmpty == true { lookups[zone] = nil }
    guard let refused = lookupsRefused[zone], refused.isOfAll else { return }
    lookups[zone, default: []].formUnion(refused.names)
    (refusedZones[zone], lookupsMax) = (error, UploadPlan.operationsMax)
    lookUpLater(zone, error)
    try await pace.failed(.lookup, error, doing: "looking up records of zone '\(zone)'")
  }

  /// What could not be asked of a zone is asked again by the next run.
  private mutating func lookUpLater(_ zone: ZoneID, _ error: CloudError) {
    for name in lookups[zone] ?? [] where queue.waits[RecordID(name, zone: zone)] == .lookup {
      wait(RecordID(name, zone: zone), milliseconds: Self.lookupRetryMilliseconds)
    }
    (lookups[zone], lookupsRefused[zone]) = (nil, nil)
    sweeps[zone]?.refusal = error
  }

  /// A zone whose sweep has waited for lookups that are answered by now.
  private var sweepToGoOnWith: ZoneID? {
    sweeps.filter { refusedZones[$0.key] == nil && !$0.value.isPaused }.keys.min()
  }

  private mutating func apply(_ found: [CloudName: CloudResult], to names: [CloudName], of zone: ZoneID) async throws {
    let changes = names.compactMap { name in
      let id = RecordID(name, zone: zone)
      // What is owed of a record is sent again, or held; without that the record itself is held, and asked for no more.
      if case .failed(let error, _)? = found[name], ErrorPolicy.mayBeOfOneRecord(error), queue.waits[id] != .lookup {
        return ServerChange(id, .unreadable(error))
      }
      return ServerChange(id, answer: found[name])
    }
    var created: [RecordID: Int64] = [:]
    if sweeps[zone]?.proof != nil {
      for name in names {
        let id = RecordID(name, zone: zone)
        guard case .record(let server)? = found[name] else { continue }
        if try store.projections.entry(id)?.base?.isOfLife(of: server) ?? false {
          created[id] = server.system.created?.milliseconds
        }
      }
    }
    let taken = try await store.take(changes, .lookup, serverOffset: database.serverOffsetMilliseconds)
    report.add(taken.report)
    // A deletion may be settled by that, for which others wait.
    if names.contains(where: { found[$0]?.isNotFound == true }) { queue.referencesMayHaveChanged(in: zone) }
    var absent = Set(taken.absent)
    for name in names {
      let id = RecordID(name, zone: zone)
      let isProof = sweeps[zone]?.proof?.take(found[name], of: id, created: created[id]) ?? false
      // What the list did not show, no page will: the end of the sweep decides about it.
      if isProof, queue.waits[id] != .lookup { absent.remove(id) }
    }
    let told = Set(changes.map(\.id.key))
    for name in names where sweeps[zone]?.asked.remove(name) != nil && !told.contains(name) {
      sweeps[zone]?.refusal = CloudError.withoutVersion(found[name])
    }
    // The answer may say that the server went back in time.
    noteLoss(of: zone)
    for id in taken.touched.sorted() { try changed(id) }
    for name in names {
      let id = RecordID(name, zone: zone)
      if let error = CloudError.withoutVersion(found[name]) {
        try await postponeLookup(of: id, error)
      } else {
        if queue.waits[id] == .lookup { postponed[id] = nil }
        looked(up: id)
      }
    }
    for id in taken.absent where absent.contains(id) { doubt(id) }
  }

  /// The answer to a lookup does not say what the server has of a record: if that is needed to go on, it is looked up again, later
  /// and later.
  private mutating func postponeLookup(of id: RecordID, _ error: CloudError) async throws {
    // If no user is signed in, the next request says so; otherwise it is this record alone.
    if ErrorPolicy.item(error) == .signIn { isAccountKnown = false }
    guard queue.waits[id] == .lookup else { return }
    postponed[id] = ((postponed[id]?.count ?? 0) + 1, error)
    sendAgain(id)
    if let wait = error.retryAfterMilliseconds, wait > 0 {
      try await pace.failed(.lookup, error, doing: "looking up '\(id)'")
    }
  }

  /// Takes what the queue wants looked up; false if that is nothing.
  mutating func takeQueuedLookups() -> Bool {
    let ids = queue.takeLookups()
    for id in ids { lookups[id.zone, default: []].insert(id.key) }
    return !ids.isEmpty
  }

  /// Adds what has to be looked up once in a run: blocked records, among them those that a page could not show.
  private mutating func collectLookups() {
    _ = takeQueuedLookups()
    guard isReviewDue, options.direction != .pushOnly else { return }
    isReviewDue = false
    for id in blockedRecords { lookups[id.zone, default: []].insert(id.key) }
  }

  /// What the log says is to be looked up. O(blocked records).
  private var blockedRecords: [RecordID] {
    let scope = scope
    return store.projections.withLock { projections in
      let sync = projections.sync
      return sync.openBlocks.compactMap { id, block in
        block.consequence == .lookup && id.zone.scope == scope && sync.zones[id.zone]?.isLost != true ? id : nil
      }
    }
  }

  /// Whether a record is to be looked up.
  var owesLookups: Bool {
    if !lookups.isEmpty || !lookupsRefused.isEmpty || sweepToGoOnWith != nil { return true }
    return isReviewDue && options.direction != .pushOnly && !blockedRecords.isEmpty
  }

  // MARK: Not found

  /// The server does not have a record that it once had. Whether it was deleted the feed says.
  mutating func doubt(_ id: RecordID) {
    // One that was sent again before its doubt has ended waits for the same.
    if doubts[id] == nil { doubts[id] = .feed }
    queue.wait(id, for: .fetch)
    fetch(id.zone)
  }

  /// A zone was fetched to its end. Of the records in doubt those that have a deletion now are decided, and the end of a sweep
  /// has decided what it did not see. For the others the zone is fetched from its beginning, which shows every record; one
  /// that is shown there is sent again.
  private mutating func endDoubts(in zone: ZoneID) throws {
    for (id, doubt) in doubts.filter({ $0.key.zone == zone }) {
      let entry = try store.projections.entry(id)
      if entry?.base == nil || entry?.pending == nil {
        doubts[id] = nil
      } else if doubt == .feed {
        doubts[id] = .wholeFeed
        fetch(zone, startsOver: true)
      } else {
        doubts[id] = nil
        countRefusal(of: id)
      }
    }
  }

  func signIn(_ error: CloudError) -> StrandlineError { error.asStrandlineError("syncing '\(store.path)'") }
}

extension SyncMachine.ZoneFetch {
  /// Counts a page that is empty. Throws `CloudError` if the server goes on with such pages.
  mutating func count(_ page: ZonePage, of zone: ZoneID) throws {
    emptyPages = page.changes.isEmpty ? emptyPages + 1 : 0
    guard emptyPages <= SyncMachine.emptyPagesMax else {
      throw CloudError(
        .unexpectedServerResponse,
        reason: "\(emptyPages) pages of changes of zone '\(zone)' in a row were empty and said that more is to come")
    }
  }
}

extension CloudResult {
  /// Whether the server does not have the record.
  var isNotFound: Bool {
    switch self {
    case .deleted: true
    case .failed(let error, _): error.code == .notFound
    case .record: false
    }
  }
}

extension CloudError {
  /// Why an answer says nothing of what the server has of a record; nil if it does.
  fileprivate static func withoutVersion(_ result: CloudResult?) -> CloudError? {
    switch result {
    case .record?, .deleted?: nil
    case .failed(let error, _)?: error.code == .notFound ? nil : error
    case nil: CloudError(.unexpectedServerResponse, reason: "the answer to a lookup says nothing of the record")
    }
  }
}

extension ZoneChange {
  /// The record's name.
  var name: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name): name
    case .failed(let name, _): name
    }
  }
}
