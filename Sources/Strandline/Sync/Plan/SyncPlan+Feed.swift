// The feed of a zone, page by page, each from the token of the page before. A page and its token are one transaction; the old token
// stays until the first page without it is durable.

import StrandlineSystem

extension SyncPlan {
  /// How often a zone's token may be refused in one cycle. A server that goes on refuses what it has just given.
  private static let tokenRefusalsMax = 3
  /// The most zones of which one request asks for pages, and the most records that it asks for in all.
  static let zonesTogetherMax = 50
  static let recordsTogetherMax = 1_000

  /// The zone to fetch next: one that the server named, or one of which something has to be known.
  func nextZoneToFetch(_ facts: some SyncFacts) -> ZoneID? {
    zonesToFetch(facts).min { $0.precedes($1) }?.id
  }

  /// A zone to fetch.
  private struct FetchCandidate {
    var id: ZoneID
    /// How often in a row it has brought nothing new. One that repeats itself keeps no other one waiting.
    var repeats: Int
    var isShareable: Bool

    func precedes(_ other: FetchCandidate) -> Bool { (repeats, id) < (other.repeats, other.id) }
  }

  /// All of them, in no order.
  ///
  /// - Parameter isResting: those that are not asked for now.
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

  /// What to ask for next of the zones' feeds, in one request. Zones of which the log has a token share one: what has changed in
  /// each is mostly little. A zone whose feed goes on, or begins, is asked for alone.
  func nextPages(_ facts: some SyncFacts) -> SyncRequest? {
    let candidates = zonesToFetch(facts).sorted { $0.precedes($1) }
    guard candidates.first?.isShareable == true else {
      return nextPage(facts).map(SyncRequest.page)
    }
    let together = candidates.filter(\.isShareable).prefix(limits.zones.current).map(\.id)
    guard together.count > 1 else { return nextPage(facts).map(SyncRequest.page) }
    let limit = min(Self.pageLimit, Self.recordsTogetherMax / together.count)
    return .pages(together.map { PageRequest(zone: $0, known: facts.zone($0)?.token, limit: limit) })
  }

  /// The zone is fetched to its end before anything that waits for it goes on.
  ///
  /// - Parameter startsOver: from its beginning. The server has just taken the token that it has.
  mutating func fetch(_ zone: ZoneID, startsOver: Bool = false) {
    self[zone].feed.isAwaited = true
    if startsOver { self[zone].feed.start = .beginning(tokenWasTaken: true) }
  }

  /// The page to ask for next.
  func nextPage(_ facts: some SyncFacts) -> PageRequest? {
    guard let zone = nextZoneToFetch(facts) else { return nil }
    let (known, feed) = (zones[zone], zones[zone]?.feed ?? Feed())
    let token = facts.zone(zone)?.token
    var fromStart = feed.start != .token
    if case .tokenRefused? = known?.phase { fromStart = true }
    if token == nil { fromStart = false }
    return PageRequest(
      zone: zone, known: token, fromStart: fromStart, limit: feed.limit,
      listsOnly: !fromStart && listsFirst(zone, facts))
  }

  /// The pages of several zones have come. Each is applied by itself, and what the server has refused of one is that zone's.
  mutating func take(
    _ answers: [ZoneID: Result<ZonePage, CloudError>], to requests: [PageRequest], _ offset: Int64?,
    _ facts: some SyncFacts
  ) throws {
    limits.zones.answered(requests.count)
    var refused: [(request: PageRequest, error: CloudError)] = []
    for request in requests {
      switch answers[request.zone] {
      case .success(let page) where !page.changes.isEmpty || !page.moreComing || page.token != request.token:
        try take(page, to: request, offset, asksAhead: false, facts)
      // Others have taken the room that the answer has.
      case .success, nil: self[request.zone].feed.progress.noteUnanswered(request.token)
      case .failure(let error) where ErrorPolicy.request(error) == .retry:
        self[request.zone].feed.progress.noteBusy(request.token)
        rest(request.zone, because: error, facts)
      case .failure(let error): refused.append((request, error))
      }
    }
    // What has come is applied, also if one of these ends the cycle.
    for (request, error) in refused { try refuse(request, error, facts) }
  }

  /// The zone is asked for no page for a while.
  private mutating func rest(_ zone: ZoneID, because error: CloudError, _ facts: some SyncFacts) {
    let own = pace.ownWait(failures: self[zone].feed.progress.repeats)
    let milliseconds = max(own, error.retryAfterMilliseconds ?? 0)
    self[zone].feed.rest = FeedRest(until: facts.now.after(milliseconds: milliseconds), error: error)
  }

  /// A page has come.
  mutating func take(
    _ page: ZonePage, to request: PageRequest, _ offset: Int64?, asksAhead: Bool = true, _ facts: some SyncFacts
  ) throws {
    let zone = request.zone
    var isSameZone = false
    if case .beginning(tokenWasTaken: true) = self[zone].feed.start, request.fromStart {
      // A token that was refused with this page says nothing.
      if case .open = self[zone].phase { isSameZone = true }
    }
    var step = PageStep(
      request: request, page: page, token: request.known, isReset: request.fromStart, isSameZone: isSameZone,
      reviewsChildren: try reviewsChildren(of: zone, after: page, facts), serverOffset: offset)
    let leadsOn = page.token != request.known && self[zone].feed.progress.isNew(page.token)
    if asksAhead, page.moreComing, leadsOn, pace.wait(for: .page, at: facts.now) == nil {
      step.ahead = PageRequest(zone: zone, known: page.token, limit: request.limit, listsOnly: request.listsOnly)
    }
    steps.append(.page(step))
  }

  /// A page was applied.
  mutating func applied(_ step: PageStep, _ taken: TakenChanges, _ facts: some SyncFacts) throws {
    let (zone, page) = (step.request.zone, step.page)
    // The zone has another token by now: the page says nothing of the feed that begins again.
    if taken.wasDropped { return }
    cycle.report.add(taken.report)
    for id in taken.touched.sorted() { try changed(id, facts) }
    // Nothing of what is pending here is sent before the server's version has come.
    for name in taken.listedAndOwed { self[zone].lookups.insert(CloudName(name)) }
    // What the page could not show is looked up at once.
    for case .failed(let name, _) in page.changes { self[zone].lookups.insert(CloudName(name)) }
    if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    // What it has put in question is looked up in this cycle.
    if taken.report.blocked > 0 { due.isReview = true }

    switch self[zone].phase {
    // An erasure that the app has taken back is over, too.
    case .tokenRefused, .erasing: self[zone].phase = .open
    case .open, .missing, .recreating, .ending: break
    }
    self[zone].feed.start = .token
    // The server may repeat an old page; one that goes on is in a loop. The zone waits, and no other one.
    let defect = self[zone].feed.progress.count(
      asked: step.request.token, token: page.token, isEmpty: page.changes.isEmpty, moreComing: page.moreComing)
    if let defect {
      rest(zone, because: CloudError(.zoneBusy, reason: "the feed of zone '\(zone)' says \(defect)"), facts)
    } else if !page.moreComing {
      try endFetch(of: zone, facts)
    }
  }

  /// The zones whose rest is over are asked again.
  mutating func endRests(_ facts: some SyncFacts) {
    let now = facts.now.nanoseconds
    for (id, zone) in zones where zone.feed.rest.map({ $0.until <= now }) ?? false { self[id].feed.rest = nil }
  }

  /// Nothing else is due, and a zone rests whose feed has to be read.
  func waitForFeed(_ facts: some SyncFacts) -> RequestPace.Wait? {
    let resting = zonesToFetch(facts, isResting: true).compactMap { candidate in
      zones[candidate.id]?.feed.rest.map { (zone: candidate.id, rest: $0) }
    }
    guard let (zone, rest) = resting.min(by: { ($0.rest.until, $0.zone) < ($1.rest.until, $1.zone) }) else {
      return nil
    }
    return RequestPace.Wait(
      milliseconds: facts.now.milliseconds(until: rest.until), error: rest.error,
      doing: "fetching changes of zone '\(zone)'", isServers: rest.isServers, isOfPart: true)
  }

  /// The page does not fit into one transaction: it is asked for in halves.
  mutating func tooLarge(_ step: PageStep, _ error: StrandlineError) {
    let zone = step.request.zone
    guard step.request.limit == 1 else {
      self[zone].feed.limit = step.request.limit / 2
      return
    }
    let names = step.page.changes.prefix(3).map { "'\($0.name)'" }.joined(separator: ", ")
    let reason = "the changes of \(names), which the server shows together, fit into no transaction here"
    self[zone].refusal = CloudError(.limitExceeded, reason: "\(reason): \(error.message)")
  }

  /// The server has refused a page.
  mutating func refuse(_ request: PageRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    if request.token != nil, ErrorPolicy.mayBeExpiredToken(error) {
      self[zone].tokenRefusals += 1
      if self[zone].tokenRefusals <= Self.tokenRefusalsMax {
        // Asked once without the token. If that is refused too, the token was not the cause and is kept.
        self[zone].phase = .tokenRefused
        return
      }
    }
    if case .tokenRefused = self[zone].phase { self[zone].phase = .open }
    switch ErrorPolicy.request(error) {
    case .zoneMissing: confirmLoss(of: zone, error, facts)
    case .signIn:
      due.isAccountKnown = false
      throw error
    case .split where ErrorPolicy.asksForLess(error) && request.limit > 1: self[zone].feed.limit = request.limit / 2
    // The other zones are fetched all the same; the cycle throws this error at its end.
    default: self[zone].refusal = error
    }
  }

  // MARK: The end of a fetch

  /// The last page of a zone is in, or what its end has waited for has come.
  mutating func endFetch(of zone: ZoneID, _ facts: some SyncFacts) throws {
    if cycle.options.direction != .pushOnly, case .open = self[zone].phase {
      let names = shownOlder(in: zone, facts)
      if !names.isEmpty {
        self[zone].phase = .ending(Ending(stage: .older(names)))
        self[zone].lookups.names.formUnion(names)
        due.isReview = true
        return
      }
    }
    if self[zone].reviewsChildren {
      var ending = ending(of: zone)
      if case .absent(let proof) = ending.stage {
        ending.stage = .children(proof)
      } else {
        ending.stage = .children(nil)
      }
      self[zone].phase = .ending(ending)
      steps.append(.settleChildren(zone, then: .fetch))
    } else {
      try endSweep(of: zone, facts)
    }
  }

  /// The end of a zone's fetch, as far as it is known.
  func ending(of zone: ZoneID) -> Ending {
    if case .ending(let ending) = self[zone].phase { return ending }
    return Ending(stage: .children(nil))
  }

  /// The fetch of a zone is over: what has waited for it goes on.
  mutating func fetchEnded(of zone: ZoneID, _ facts: some SyncFacts) throws {
    (self[zone].phase, self[zone].feed) = (.open, Feed())
    try endDoubts(in: zone, facts)
    sendFetched(zone, facts)
  }

  /// Sends what waits for the feed of a zone. What is still in doubt goes on waiting, for the feed from its beginning.
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

  /// The zones that an earlier process did not fetch to their end may have such children.
  mutating func beginChildReviews(_ facts: some SyncFacts) {
    guard !facts.schema.childRules.isEmpty else { return }
    let (synced, sync) = (synced, facts.learned { $0 })
    for (id, state) in sync.zones where state.isDirty && synced.takes(id, sync) { self[id].reviewsChildren = true }
  }

  /// Whether the children in a zone have to be looked at when it is fetched to its end; a page may bring a reason.
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
    steps.append(.append(AppendStep(events: [.event(clean, if: .unswept(zone))])))
    switch then {
    case .fetch: try endSweep(of: zone, facts)
    case .listing(let events): if !events.isEmpty { steps.append(.append(AppendStep(events: events))) }
    }
  }

  // MARK: Not found

  /// The server does not have a record that it once had. Whether it was deleted the feed says.
  mutating func doubt(_ id: RecordID) {
    if records[id].doubt == nil || records[id].doubt == .shown { records.doubt(id, .feed) }
    queue.wait(id, for: .fetch)
    fetch(id.zone)
  }

  /// A zone was fetched to its end. Of the records in doubt those that have a deletion now are decided, and the end of a sweep
  /// has decided what it did not see. For the others the zone is fetched from its beginning, which shows every record; one
  /// that is shown there is sent again.
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
  var name: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name): name
    case .failed(let name, _): name
    }
  }
}
