// Fetches a zone's feed page by page, each with the change token of the page before. A page and its token are applied in one
// transaction. When the feed is read from its beginning, the old token stays until the first page is durable.

import StrandlineSystem

extension SyncPlan {
  /// How often a zone's token may be refused in one cycle. A server that goes on refuses tokens that it has just given.
  private static let tokenRefusalsMax = 3
  /// The most zones of which one request asks for pages, and the most records that it asks for in all.
  static let zonesTogetherMax = 50
  static let recordsTogetherMax = 1_000

  /// The zone to fetch next: one that the server has named as changed, or one whose feed an upload waits for.
  func nextZoneToFetch(_ facts: some SyncFacts) -> ZoneID? {
    zonesToFetch(facts).min { $0.precedes($1) }?.id
  }

  /// A zone to fetch.
  private struct FetchCandidate {
    var id: ZoneID
    /// How many pages in a row brought nothing new. A zone that repeats itself comes after the others.
    var repeats: Int
    var isShareable: Bool

    func precedes(_ other: FetchCandidate) -> Bool { (repeats, id) < (other.repeats, other.id) }
  }

  /// All zones to fetch, in no order.
  ///
  /// - Parameter isResting: instead those whose feed rests for a while.
  private func zonesToFetch(_ facts: some SyncFacts, isResting: Bool = false) -> [FetchCandidate] {
    let (only, zones, synced, fetchesFeed) = (cycle.options.zone, zones, synced, cycle.fetchesFeed)
    return facts.learned { sync in
      var candidates: [FetchCandidate] = []
      for (id, state) in sync.zones where !state.isLost && synced.takes(id, sync) {
        let known = zones[id]
        let isOpen = state.isDirty || state.sweepEpoch != 0
        guard known?.feed.isAwaited == true || (isOpen && fetchesFeed && (only == nil || only == id)),
          known?.takesPages ?? true, (known?.feed.rest != nil) == isResting
        else { continue }
        candidates.append(
          FetchCandidate(
            id: id, repeats: known?.feed.progress.repeats ?? 0,
            isShareable: state.isFetchedByToken && known?.sharesRequests ?? true))
      }
      return candidates
    }
  }

  /// The pages to ask for next, in one request. Zones with a token share a request, as each has mostly few changes. A zone whose feed
  /// begins, or has more than one page, gets its own.
  func nextPages(_ facts: some SyncFacts) -> [PageRequest]? {
    let candidates = zonesToFetch(facts).sorted { $0.precedes($1) }
    guard let first = candidates.first else { return nil }
    guard first.isShareable else { return [page(of: first.id, facts)] }
    let together = candidates.filter(\.isShareable).prefix(limits.zones.current)
    return together.map { page(of: $0.id, sharedBy: together.count, facts) }
  }

  /// Fetches a zone to its end; uploads that wait for its feed go on then.
  ///
  /// - Parameter startsOver: from its beginning, though the server has just accepted the zone's token.
  mutating func fetch(_ zone: ZoneID, startsOver: Bool = false) {
    self[zone].feed.isAwaited = true
    if startsOver { self[zone].feed.start = .beginning(tokenWasTaken: true) }
  }

  /// The page to ask for next, if it is asked for alone.
  func nextPage(_ facts: some SyncFacts) -> PageRequest? { nextZoneToFetch(facts).map { page(of: $0, facts) } }

  /// The next page of a zone.
  ///
  /// - Parameter count: how many zones share the request.
  private func page(of zone: ZoneID, sharedBy count: Int = 1, _ facts: some SyncFacts) -> PageRequest {
    let feed = zones[zone]?.feed ?? Feed()
    let token = facts.zone(zone)?.token
    let fromStart = feed.start != .token && token != nil
    return PageRequest(
      zone: zone, known: token, fromStart: fromStart, limit: min(feed.limit, Self.recordsTogetherMax / count),
      listsOnly: !fromStart && listsFirst(zone, facts))
  }

  /// The pages of some zones have arrived. Each is applied by itself, and a refusal of one concerns that zone only.
  mutating func take(
    _ answers: [ZoneID: Result<ZonePage, CloudError>], to requests: [PageRequest], _ offset: Int64?,
    _ facts: some SyncFacts
  ) throws {
    limits.zones.answered(requests.count)
    let isAlone = requests.count == 1
    var refused: [(request: PageRequest, error: CloudError)] = []
    for request in requests {
      switch answers[request.zone] {
      case .success(let page)
      where isAlone || !page.changes.isEmpty || !page.moreComing || page.token != request.token:
        try take(page, to: request, offset, isAlone: isAlone, facts)
      // The pages of other zones have filled the answer.
      case .success, nil: self[request.zone].feed.progress.noteUnanswered(request.token)
      case .failure(let error) where error.meaning.request == .retry:
        if request.purpose == .feed { self[request.zone].feed.progress.noteUnanswered(request.token) }
        restLonger(request.zone, because: error, facts)
      case .failure(let error): refused.append((request, error))
      }
    }
    // Last, as one of these may end the cycle: the pages that have arrived are applied even so.
    for (_, error) in refused { hear(error) }
    for (request, error) in refused { try refuse(request, error, facts) }
  }

  /// A page has arrived, whatever it was asked for.
  private mutating func take(
    _ page: ZonePage, to request: PageRequest, _ offset: Int64?, isAlone: Bool, _ facts: some SyncFacts
  ) throws {
    switch request.purpose {
    case .feed: return try take(page, to: request, offset, asksAhead: isAlone, facts)
    case .identity: try takeIdentity(page, to: request, facts)
    case .comparison: break
    }
    self[request.zone].feed.progress.noteAnswered()
  }

  /// The server refuses a zone for now: no page of it is asked for during a backoff, which grows each time.
  mutating func restLonger(_ zone: ZoneID, because error: CloudError, _ facts: some SyncFacts) {
    self[zone].feed.progress.noteBusy()
    rest(zone, because: error, facts)
  }

  /// No page of the zone is asked for during a backoff.
  private mutating func rest(_ zone: ZoneID, because error: CloudError, _ facts: some SyncFacts) {
    let own = pace.ownWait(failures: self[zone].feed.progress.repeats)
    let milliseconds = max(own, error.retryAfterMilliseconds ?? 0)
    self[zone].feed.rest = FeedRest(until: facts.now.after(milliseconds: milliseconds), error: error)
  }

  /// A page of a zone's feed has arrived.
  private mutating func take(
    _ page: ZonePage, to request: PageRequest, _ offset: Int64?, asksAhead: Bool, _ facts: some SyncFacts
  ) throws {
    let zone = request.zone
    var isSameZone = false
    if case .beginning(tokenWasTaken: true) = self[zone].feed.start, request.fromStart {
      // Only if this cycle did not see the token refused.
      if case .open = self[zone].phase { isSameZone = true }
    }
    var step = PageStep(
      request: request, page: page, token: request.known, isReset: request.fromStart, isSameZone: isSameZone,
      reviewsChildren: try reviewsChildren(of: zone, after: page, facts), serverOffset: offset)
    let leadsOn = page.token != request.known && self[zone].feed.progress.isNew(page.token)
    if asksAhead, page.moreComing, leadsOn, pace.wait(for: .page, at: facts.now) == nil {
      step.ahead = PageRequest(zone: zone, known: page.token, limit: request.limit, listsOnly: request.listsOnly)
    }
    addStep(.page(step))
  }

  /// A page was applied.
  mutating func applied(_ step: PageStep, _ taken: TakenChanges, _ facts: some SyncFacts) throws {
    let (zone, page) = (step.request.zone, step.page)
    // The zone has another token by now: the page belongs to a feed that was given up.
    if taken.wasDropped { return }
    cycle.report.add(taken.report)
    if page.unnamed > 0 { tell(.unnamed(count: page.unnamed, zone: zone)) }
    try changed(taken.touched, facts)
    // A listed record with a pending change is not sent before the server's version has arrived.
    for name in taken.listedAndPending { self[zone].lookups.insert(CloudName(name)) }
    // Records that the page could not show are looked up at once.
    for case .failed(let name, _) in page.changes { self[zone].lookups.insert(CloudName(name)) }
    if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    // Versions that the page has put in question are looked up in this cycle.
    if taken.report.blocked > 0 { due.askForReview() }

    switch self[zone].phase {
    // A page was fetched, so the app has taken the erasure back.
    case .erasing: self[zone].phase = .open
    case .open, .missing, .recreating, .ending, .refused: break
    }
    self[zone].feed.start = .token
    // A server that repeats old pages may be in a loop: this zone waits, and no other one.
    let defect = self[zone].feed.progress.count(
      asked: step.request.token, token: page.token, isEmpty: page.changes.isEmpty, moreComing: page.moreComing)
    if let defect {
      rest(zone, because: CloudError(.zoneBusy, reason: "the feed of zone '\(zone)' says \(defect)"), facts)
    } else if !page.moreComing {
      try endFetch(of: zone, facts)
    }
  }

  /// Ends the rests of feeds whose time has come.
  mutating func endRests(_ facts: some SyncFacts) {
    let now = facts.now.nanoseconds
    for (id, zone) in zones where zone.feed.rest.map({ $0.until <= now }) ?? false { self[id].feed.rest = nil }
  }

  /// The wait until the first resting feed may be read again, if nothing else is due.
  func waitForFeed(_ facts: some SyncFacts) -> RequestPace.Wait? {
    let resting = zonesToFetch(facts, isResting: true).map(\.id) + zonesToErase(facts, isResting: true)
    return resting.compactMap { rest(of: $0, facts) }.min { $0.milliseconds < $1.milliseconds }
  }

  /// How long a zone still rests; nil if it does not, or not any more.
  package func rest(of zone: ZoneID, _ facts: some SyncFacts) -> RequestPace.Wait? {
    guard let rest = zones[zone]?.feed.rest, rest.until > facts.now.nanoseconds else { return nil }
    return RequestPace.Wait(
      milliseconds: facts.now.milliseconds(until: rest.until), error: rest.error,
      doing: "asking for pages of zone '\(zone)'", isServers: rest.isServers, isOfPart: true)
  }

  /// The page does not fit into one transaction: half as many records are asked for.
  mutating func tooLarge(_ step: PageStep, _ error: StrandlineError) {
    let zone = step.request.zone
    guard step.request.limit == 1 else {
      self[zone].feed.limit = step.request.limit / 2
      return
    }
    let names = step.page.changes.prefix(3).map { "'\($0.name)'" }.joined(separator: ", ")
    let reason = "the changes of \(names), which the server shows together, fit into no transaction here"
    self[zone].refuse(CloudError(.limitExceeded, reason: "\(reason): \(error.message)"))
  }

  /// The server has refused a page.
  mutating func refuse(_ request: PageRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    switch request.purpose {
    case .feed: try refuseFeed(request, error, facts)
    case .identity: try refuseIdentity(request, error, facts)
    case .comparison: break
    }
  }

  private mutating func refuseFeed(_ request: PageRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    if request.token != nil, error.meaning.mayBeExpiredToken {
      cycle.tokenRefusals[zone, default: 0] += 1
      if cycle.tokenRefusals[zone, default: 0] <= Self.tokenRefusalsMax {
        // Asked once without the token. If that is refused too, the token was not the cause and is kept.
        self[zone].feed.start = .tokenRefused
        return
      }
    }
    if self[zone].feed.start == .tokenRefused { self[zone].feed.start = .token }
    switch error.meaning.request {
    case .zoneMissing: confirmLoss(of: zone, error, facts)
    case _ where error.endsCycle: throw error
    case .split where error.meaning.asksForLess && request.limit > 1: self[zone].feed.limit = request.limit / 2
    // The other zones are still fetched; the cycle throws this error at its end.
    default: self[zone].refuse(error)
    }
  }

  // MARK: The end of a fetch

  /// The last page of a zone has been applied, or the lookups that the end of its fetch needs have been answered.
  mutating func endFetch(of zone: ZoneID, _ facts: some SyncFacts) throws {
    if cycle.options.direction != .pushOnly, case .open = self[zone].phase {
      let names = shownOlder(in: zone, facts)
      if !names.isEmpty {
        self[zone].phase = .ending(Ending(stage: .older(names)))
        self[zone].lookups.names.formUnion(names)
        due.askForReview()
        return
      }
    }
    if self[zone].reviewsChildren {
      var ending = ending(of: zone)
      ending.stage = .children(self[zone].proof)
      self[zone].phase = .ending(ending)
      addStep(.settleChildren(zone, then: .fetch))
    } else {
      try endSweep(of: zone, facts)
    }
  }

  /// The state of the end of a zone's fetch; a new one if it has only begun.
  func ending(of zone: ZoneID) -> Ending {
    self[zone].ending ?? Ending(stage: .children(nil))
  }

  /// The fetch of a zone is over: uploads that waited for it go on.
  mutating func fetchEnded(of zone: ZoneID, _ facts: some SyncFacts) throws {
    (self[zone].phase, self[zone].feed) = (.open, Feed())
    try endDoubts(in: zone, facts)
    sendFetched(zone, facts)
  }

  /// Sends the records that wait for the feed of a zone, except those in doubt, for which the feed is read from its beginning.
  mutating func sendFetched(_ zone: ZoneID, _ facts: some SyncFacts) {
    for id in queue.fetched(zone) where records[id].doubt == nil || records[id].doubt == .shown { sendAgain(id, facts) }
  }

  /// The records of a zone with an open sweep that have to be looked up, because the feed showed older versions of them.
  private func shownOlder(in zone: ZoneID, _ facts: some SyncFacts) -> Set<CloudName> {
    facts.learned { sync in
      guard let state = sync.zones[zone], state.sweepEpoch != 0 else { return [] }
      let open = sync.openBlocks.filter {
        $0.key.zone == zone && $0.value.subject == .version && $0.value.consequence == .lookup
      }
      return Set(open.keys.map(\.key))
    }
  }

  // MARK: Children of deleted records

  /// Zones that an earlier process did not fetch to their end may have children whose parent is deleted.
  mutating func beginChildReviews(_ facts: some SyncFacts) {
    guard !facts.schema.childRules.isEmpty else { return }
    let (synced, sync) = (synced, facts.learned { $0 })
    for (id, state) in sync.zones where state.isDirty && synced.takes(id, sync) { self[id].reviewsChildren = true }
  }

  /// Whether the children in a zone have to be settled at the end of its fetch. A page with a deletion, or with a child of a deleted
  /// record, is a reason.
  private mutating func reviewsChildren(
    of zone: ZoneID, after page: ZonePage, _ facts: some SyncFacts
  ) throws -> Bool {
    let schema = facts.schema
    guard !schema.childRules.isEmpty else { return false }
    let brings = try page.changes.contains { change in
      switch change {
      case .failed: return false
      case .deleted: return true
      case .saved(let server):
        guard let parent = schema[server.type].parent, parent.whenDeleted != .keep,
          let name = parent.parentName(server, of: RecordID(server.name, zone: zone))
        else { return false }
        return try facts.isGone(RecordID(name, zone: zone))
      }
    }
    if brings { self[zone].reviewsChildren = true }
    return self[zone].reviewsChildren
  }

  mutating func childrenSettled(
    of zone: ZoneID, _ ids: [RecordID], _ then: ChildrenSettled, _ facts: some SyncFacts
  ) throws {
    for id in ids { try changed(id, facts) }
    if !ids.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    self[zone].reviewsChildren = false
    let clean = Event.zoneChanged(ZoneChanged(zone: zone, change: .clean))
    // An open sweep ends later.
    addStep(.append(AppendStep(events: [.event(clean, if: .unswept(zone))])))
    switch then {
    case .fetch: try endSweep(of: zone, facts)
    case .listing(let events): if !events.isEmpty { addStep(.append(AppendStep(events: events))) }
    }
  }

  // MARK: Not found

  /// The server did not find a record that it once had. The feed says whether it was deleted.
  mutating func doubt(_ id: RecordID) {
    if records[id].doubt == nil || records[id].doubt == .shown { records.doubt(id, .feed) }
    queue.wait(id, for: .fetch)
    fetch(id.zone)
  }

  /// A zone was fetched to its end. This decides about records in doubt that were deleted, or that a sweep did not see. For the
  /// others the zone is fetched once more, from its beginning, which shows every record: those are sent again.
  private mutating func endDoubts(in zone: ZoneID, _ facts: some SyncFacts) throws {
    for (id, doubt) in records.doubts(in: zone) {
      let entry = try facts.entry(id)
      if entry?.base == nil || entry?.pending == nil {
        records.endDoubt(of: id)
      } else if doubt == .feed {
        records.doubt(id, .wholeFeed)
        fetch(zone, startsOver: true)
      } else if doubt == .wholeFeed {
        records.doubt(id, .shown)
      }
    }
  }
}

extension ZoneChange {
  /// The record's name.
  package var name: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name): name
    case .failed(let name, _): name
    }
  }
}
