// Decides what the engine asks the server next, and what follows from an answer. A value: no store, no server, no clock, no task,
// no lock.
//
//   next     ──▶ a request, a step of the store, a wait, or the end of the cycle
//   apply    ◀── how that request ended
//   recorded ◀── the result of that step
//
// The log holds what must outlive the process. The plan holds what is due, what waits and until when. The driver
// (Engine/CycleDriver.swift) calls these three in turn. While one kind of request has to wait, the others go on.
//
// A fetched page: SyncPlan+Feed asks for it; one transaction applies it record by record (Intake/) and stores its change token.
// An upload: OutgoingQueue says what is ready, SyncPlan+Uploading makes the operations, the log records `sent` before they
// leave, and SyncPlan+Settling decides what follows from the answer.

import StrandlineSystem

/// The plan of one engine: one store, one database.
package struct SyncPlan: Sendable {
  package static let pageLimit = 200
  /// The one database that this syncs. Records of the store's other databases are not touched.
  let address: CloudAddress
  let policies: SyncPolicies
  package var zones: [ZoneID: ZoneSync] = [:]
  var records: RecordMemory
  package var queue: OutgoingQueue
  package var pace: RequestPace
  var limits: RequestLimits
  /// What this cycle or a later one has to ask for.
  var due = SyncAgenda()
  package var cycle = SyncCycle()
  /// What the store does before the next request, in this order.
  package var steps: [StoreStep] = []
  /// What observers of the engine are told.
  package var notices: [SyncNotice] = []
  /// A cycle that takes this number of turns without a request makes no progress. Tests lower it.
  var idleTurnsMax = 100_000

  /// - Parameter operationsMax: the most operations of a request that the server takes.
  package init(
    _ facts: some SyncFacts, _ address: CloudAddress, _ policies: SyncPolicies, _ pacePolicy: RequestPace.Policy,
    operationsMax: Int = UploadPlan.operationsMax
  ) {
    (self.address, self.policies) = (address, policies)
    let scope = address.scope
    records = RecordMemory(random: pacePolicy.random)
    queue = OutgoingQueue(scope: scope, operationsMax: operationsMax)
    let logged = facts.learned { $0.paces[scope] }
    pace = RequestPace(logged, scope: scope, pacePolicy, at: facts.now)
    limits = RequestLimits(
      operations: policies.batch.operationsMax(ofServer: operationsMax), learned: pace.operationsMax)
  }

  /// Adds a step for the store, after those that are due already.
  mutating func addStep(_ step: StoreStep) { steps.append(step) }

  /// Takes the next step out; nil if none is due.
  package mutating func takeStep() -> StoreStep? { steps.isEmpty ? nil : steps.removeFirst() }

  var scope: DatabaseScope { address.scope }
  /// The database, and which of its zones the app syncs.
  var synced: SyncedDatabase { SyncedDatabase(scope, policies.zones) }

  /// What the driver does next.
  package enum Next: Sendable {
    case ask(SyncRequest)
    case store(StoreStep)
    case wait(RequestPace.Wait)
    /// Something is due, and there is no time for it.
    case outOfTime
    case done
  }

  /// What the plan chose when it looked at one kind of request.
  enum Choice {
    case next(Next)
    /// Something has changed in memory: the plan looks again.
    case again
  }

  /// The state of a zone; a new one if none is kept.
  package subscript(zone: ZoneID) -> ZoneSync {
    get { zones[zone] ?? ZoneSync() }
    _modify { yield &zones[zone, default: ZoneSync()] }
  }

  /// What the driver has in hand when it asks what is next.
  package struct Means: Sendable {
    /// A request that begins now will be answered before the deadline.
    var hasTime = true
    /// The page that was prefetched.
    var ahead: PageRequest?

    package init(hasTime: Bool = true, ahead: PageRequest? = nil) {
      self.hasTime = hasTime
      self.ahead = ahead
    }
  }

  // MARK: Next

  /// The next request, step or wait of the cycle, or its end.
  ///
  /// - Throws: errors of the log; at the end of a cycle, the server's refusal if something was refused.
  package mutating func next(_ facts: some SyncFacts, _ means: Means) throws -> Next {
    while true {
      cycle.idleTurns += 1
      guard cycle.idleTurns < idleTurnsMax else { throw NoProgress(turns: cycle.idleTurns) }
      if let step = takeStep() { return .store(step) }
      if !means.hasTime, due.isReview || RequestKind.allCases.contains(where: { isDue($0, facts) }) {
        // A prefetched page that has arrived is not thrown away.
        guard let ahead = means.ahead, let request = nextPage(facts), request == ahead else { return .outOfTime }
        return .ask(.pages([request]))
      }
      if due.isAccountKnown, try decideLoss(facts) { continue }
      wakeWhatIsDue(facts)
      if !steps.isEmpty { continue }
      if cycle.split.isOpen, cycle.split.parts.isEmpty {
        endSplit(facts)
        continue
      }
      switch try choose(facts) {
      case .next(let next):
        return next
      case .again: continue
      case nil: break
      }
      if try checkHalts(facts) { continue }
      if let pace = pace.end(facts.learned({ $0.paces[scope] }), at: facts.now) {
        addStep(.append([.pace(pace)]))
        continue
      }
      cycle.made = [:]
      // Nothing is left to do, unless a zone was given up on the way.
      due.wasIncomplete =
        !cycle.lost.isEmpty
        || zones.values.contains { $0.ending != nil || $0.refusal != nil }
      cycle.failsInPart = true
      try finish(facts)
      return .done
    }
  }

  private mutating func choose(_ facts: some SyncFacts) throws -> Choice? {
    // The zone's identity was checked just now, so the deletion goes first.
    if due.isAccountKnown, pace.wait(for: .upload, at: facts.now) == nil,
      let zone = zonesToErase(facts, isResting: false).filter({ zones[$0]?.isToBeDeleted == true }).min()
    {
      return .next(.ask(.eraseZone(zone)))
    }
    var blocked: RequestPace.Wait?
    for kind in [RequestKind.account, .zoneList, .query, .page, .lookup, .upload, .content, .listed] {
      if kind != .account, !due.isAccountKnown { break }
      if let wait = pace.wait(for: kind, at: facts.now) {
        if blocked.map({ wait.milliseconds < $0.milliseconds }) ?? true, isDue(kind, facts) { blocked = wait }
      } else if let choice = try choose(kind, facts) {
        return choice
      }
    }
    if let blocked { return .next(.wait(blocked)) }
    let waits = [waitForRecord(facts), waitForFeed(facts)].compactMap(\.self)
    guard let wait = waits.min(by: { $0.milliseconds < $1.milliseconds }) else { return nil }
    // One waiting record or zone does not keep a halt from ending.
    if try checkHalts(facts) { return .again }
    cycle.made = [:]
    return .next(.wait(wait))
  }

  /// The whole queue was read: ends halts with nothing pending any more, or lets a record that was refused be tried again.
  private mutating func checkHalts(_ facts: some SyncFacts) throws -> Bool {
    try cycle.sends && queue.checkHalts(facts)
  }

  /// What there is to ask for, of one kind of request.
  private enum Work {
    case user
    /// Whether the server has a zone.
    case question(ZoneID)
    /// A zone is created again.
    case recreation(ZoneID)
    case list
    case newest(ZoneID)
    case pages([PageRequest])
    case lookups
    case uploads
    case content(ContentUpload)
    /// Records whose contents are all there, and that wait for others for which nothing goes up now.
    case ready
    case listed(ZoneID)
    /// Nothing that needs a request: the plan only looks at what it remembers.
    case tidying
  }

  /// What there is to ask for, of one kind; nil if nothing is due. Both the next request and the wait for it follow from this, so that
  /// the plan never waits for what it would not ask, and asks for nothing that it would not wait for.
  private func work(of kind: RequestKind, _ facts: some SyncFacts) -> Work? {
    switch kind {
    case .account: due.isAccountKnown ? nil : .user
    case .zoneList:
      if let zone = zoneInQuestion {
        self[zone].isRecreating ? .recreation(zone) : .question(zone)
      } else {
        isListDue ? .list : nil
      }
    case .query: zoneToQuery(facts).map { .newest($0) }
    case .page: nextPages(facts).map { .pages($0) }
    case .lookup: hasLookups(facts) ? .lookups : reviews ? .tidying : nil
    case .upload:
      if let zone = zones.first(where: \.value.isRecreating)?.key {
        .recreation(zone)
      } else if cycle.sends {
        zoneToErase(facts) != nil || facts.hasPending ? .uploads : .tidying
      } else {
        nil
      }
    case .content:
      contentToUpload(facts).map { .content($0) } ?? (cycle.sends && records.contents.hasReady ? .ready : nil)
    case .listed: zoneWithListing(facts).map { .listed($0) }
    }
  }

  /// Whether something of a kind may be asked for.
  func isDue(_ kind: RequestKind, _ facts: some SyncFacts) -> Bool {
    switch work(of: kind, facts) {
    case nil, .tidying: false
    default: true
    }
  }

  private mutating func choose(_ kind: RequestKind, _ facts: some SyncFacts) throws -> Choice? {
    switch work(of: kind, facts) {
    case .user: return .next(.ask(.user))
    case .question(let zone): return .next(.ask(.allZones(zone)))
    // The turn of the list makes it, when uploads need not wait.
    case .recreation where kind == .upload: return cycle.sends ? try chooseUpload(facts) : nil
    case .recreation(let zone): return chooseRecreation(of: zone, facts)
    case .list: return chooseList(facts)
    case .newest(let zone): return chooseNewest(of: zone).map { .next(.ask(.newest($0))) }
    case .pages(let pages): return .next(.ask(.pages(pages)))
    case .lookups: return try chooseLookup(facts)
    case .uploads: return try chooseUpload(facts)
    case .content(let upload): return try choose(upload, facts)
    case .ready:
      sendReady()
      return .again
    case .listed(let zone): return try chooseListed(of: zone, facts)
    case .tidying where kind == .upload: return try chooseUpload(facts)
    // Nothing is in question: nothing is looked up before something is again.
    case .tidying: due.beginReview()
    case nil: break
    }
    return nil
  }

  // MARK: Answers

  /// A request was answered or refused.
  ///
  /// - Throws: what ends the cycle.
  package mutating func apply(_ outcome: SyncOutcome, to request: SyncRequest, _ facts: some SyncFacts) throws {
    hear(outcome, request.kind)
    switch (request, outcome.result) {
    case (.modify(let upload), let result): try apply(result, to: upload, outcome.serverOffset, facts)
    case (.uploadContent(let upload), let result): try apply(result, to: upload, facts)
    case (_, .success(let answer)): try take(answer, to: request, outcome.serverOffset, facts)
    case (_, .failure(let error)):
      // Neither the user nor the list of changed zones can be asked for in smaller parts.
      let isWhole = error.meaning.isOfAnswer && (request.kind == .account || request.kind == .zoneList)
      if isWhole || error.meaning.request == .retry {
        postpone(request, error, facts)
      } else {
        try refuse(request, error, facts)
      }
    }
  }

  /// Notes what the end of any request says of its kind and of the sign-in.
  package mutating func hear(_ outcome: SyncOutcome, _ kind: RequestKind) {
    switch outcome.result {
    // For an upload `goOn(after:)` does this, record by record.
    case .success: if kind != .upload { pace.succeeded(kind) }
    case .failure(let error): hear(error)
    }
  }

  /// The server has refused a request, or one zone of it.
  mutating func hear(_ error: CloudError) {
    if error.meaning.request == .signIn { due.isAccountKnown = false }
  }

  /// A prefetched page failed; it may be asked for again after a wait.
  package mutating func aheadFailed(_ page: PageRequest, _ error: CloudError, _ facts: some SyncFacts) {
    failed(.page, error, doing: SyncRequest.pages([page]).words, facts)
  }

  private mutating func take(
    _ answer: SyncAnswer, to request: SyncRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    switch (request, answer) {
    case (.user, .user(let user)): due.isAccountKnown = true; try bind(user, facts)
    case (.changedZones(let list), .changedZones(let page)): try take(page, to: list, offset, facts)
    case (.allZones(let zone), .allZones(let zones)): try take(zones, of: zone, facts)
    case (.pages(let requests), .pages(let answers)): try take(answers, to: requests, offset, facts)
    case (.newest(let request), .newest(let page)): take(page, to: request, offset)
    case (.lookUp(let request), .records(let found)):
      switch request.purpose {
      case .question: try take(found, to: request, offset, facts)
      case .listed: try takeListed(found, to: request, offset, facts)
      }
    case (.createZone(let zone, let creation), .done): created(zone, creation, facts)
    case (.eraseZone(let zone), .done): erased(zone, isLeft: false, facts)
    default: preconditionFailure("the answer to a request of another kind")
    }
  }

  /// A request failed and may be sent again after a wait. Only requests that change nothing, or that may be applied twice.
  private mutating func postpone(_ request: SyncRequest, _ error: CloudError, _ facts: some SyncFacts) {
    failed(request.kind, error, doing: request.words, facts)
    switch request {
    case .allZones(let zone):
      let (question, phase) = takeQuestion(of: zone)
      self[zone].phase = phase
      self[zone].refuse(question?.error ?? error)
    case .createZone(let zone, .again): self[zone].phase = .open
    // By now another zone may have the name: its identity is checked again.
    case .eraseZone(let zone): self[zone].phase = .open
    // The zones may be answered in smaller parts.
    case .pages(let pages): if pages.count > 1 { limits.zones.refused(pages.count) }
    // The rest of the fetch does not need the query.
    case .newest(let request): postpone(request, error)
    default: break
    }
  }

  private mutating func refuse(_ request: SyncRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    switch request {
    case .user: throw error
    case .changedZones(let list):
      // Asked once without the token. Only if that succeeds was the token the cause.
      guard list.token != nil, error.meaning.mayBeExpiredToken else {
        due.isListFromStart = false
        throw error
      }
      due.isListFromStart = true
    case .allZones(let zone):
      self[zone].phase = takeQuestion(of: zone).phase
      throw error
    case .pages(let pages) where pages.count == 1: try refuse(pages[0], error, facts)
    case .pages(let pages):
      if error.endsCycle { throw error }
      // One of the zones may be the cause, or the size of the answer.
      limits.zones.refused(pages.count)
      limits.zones.growLater()
    case .newest(let newest): try refuse(newest, error)
    case .lookUp(let lookup):
      switch lookup.purpose {
      case .question: try refuse(lookup, error, facts)
      case .listed: try refuseListed(lookup, error, facts)
      }
    case .createZone(let zone, let creation):
      if case .again = creation { self[zone].phase = .open }
      if error.endsCycle { throw error }
      switch creation {
      case .upload(let id): refuseChanges(of: id, error, facts)
      case .again: self[zone].refuse(error)
      }
    case .eraseZone(let zone): try refuseErasure(of: zone, error, facts)
    case .modify, .uploadContent: break
    }
  }

  /// A step of the store is done.
  package mutating func recorded(_ step: StoreStep, _ result: StoreResult, _ facts: some SyncFacts) throws {
    switch (step, result) {
    case (.append(let step), _): try appended(step, facts)
    case (.decideLoss(let step), .decided(let unsent)): decided(step, unsent: unsent)
    case (.decideLoss, .dropped): break
    case (.takeKept(let readsAgain), .taken(let taken)):
      if readsAgain { due.readsKept = false }
      cycle.report.add(taken.report)
      try changed(taken.touched, facts)
    case (.page(let step), .taken(let taken)): try applied(step, taken, facts)
    case (.page(let step), .tooLarge(let error)): tooLarge(step, error)
    case (.answers(let step), .taken(let taken)): try applied(step, taken, facts)
    case (.answers(let step), .tooLarge(let error)): try tooLarge(step, error)
    case (.settleChildren(let zone, let then), .changed(let ids)): try childrenSettled(of: zone, ids, then, facts)
    case (.findAbsent(let zone, _), .absent(let proof)):
      self[zone].ending?.stage = .absent(proof)
      try goOnProving(zone, facts)
    case (.findSynced(let zone), .synced(let ids)): removeAll(ids, of: zone, facts)
    case (.createAgain(let zone, _), .changed(let ids)):
      for id in ids { try changed(id, facts) }
      if !ids.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    default: preconditionFailure("the result of a step of another kind")
    }
  }

  /// The events whose premises held were appended.
  private mutating func appended(_ step: AppendStep, _ facts: some SyncFacts) throws {
    for case .event(.held(let held), _) in step.events where facts.held(held.id) == held {
      cycle.report.held += 1
      records.forgetCount(of: held.id)
      endLater(held, facts)
    }
    for zone in step.losses {
      guard let state = facts.zone(zone), state.isLost, !state.isErased else { continue }
      noteLoss(of: zone, facts)
    }
    for id in step.touched { try changed(id, facts) }
  }

  private mutating func applied(_ step: AnswerStep, _ taken: TakenChanges, _ facts: some SyncFacts) throws {
    cycle.report.add(taken.report)
    for case .event(.held(let held), _) in step.before + step.after where facts.held(held.id) == held {
      endLater(held, facts)
    }
    switch step.cause {
    case .lookUp(let answer): try applied(answer, step.changes, taken, facts)
    case .newest(let request, let page):
      try changed(taken.touched, facts)
      if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: request.zone) }
      self[request.zone].feed.newest?.take(page)
    case .listed(let answer): try applied(answer, step.changes, taken, facts)
    case .removal(let zone, let removal):
      try changed(taken.touched, facts)
      queue.referencesMayHaveChanged(in: zone)
      if case .proof(let count, let saysFollowed) = removal {
        try removedAbsent(count, saysFollowed: saysFollowed, from: zone, facts)
      }
    case .upload(let answer):
      cycle.report.add(answer.report)
      try changed(taken.touched, facts)
      queue.heard()
      try goOn(after: answer, facts)
    }
  }

  private mutating func tooLarge(_ step: AnswerStep, _ error: StrandlineError) throws {
    switch step.cause {
    case .lookUp(let answer) where answer.asked > 1: limits.lookups.refused(answer.asked)
    case .newest(let request, _) where request.limit > 1: self[request.zone].feed.newest?.halve()
    case .listed(let answer) where answer.count > 1:
      limits.listed.refused(answer.count)
      limits.listed.growLater()
    case .upload(var answer) where !step.changes.isEmpty:
      // The versions that the refusals brought along are looked up instead, in as many requests as it takes.
      answer.forgetVersions()
      var smaller = step
      (smaller.changes, smaller.cause) = ([], .upload(answer))
      steps.insert(.answers(smaller), at: 0)
    default: throw error
    }
  }

  // MARK: A cycle

  /// Notes what the watch of the engine tells the app.
  mutating func tell(_ notice: SyncNotice) { notices.append(notice) }

  /// A cycle begins.
  package mutating func begin(_ options: CycleOptions, _ facts: some SyncFacts) {
    let now = facts.now
    (steps, notices) = ([], [])
    let keepsOn = due.wasIncomplete
    dropSplit()
    if keepsOn, let before = cycle.split.limitBefore { limits.operations.restore(before) }
    // Only the feed says whether an upload arrived whose answer was lost.
    let fetchesFeed = options.direction != .pushOnly || facts.hasAttempts
    cycle = SyncCycle(options, fetchesFeed: fetchesFeed, upTo: facts.durableLSN)
    if options.asksForChanges { (due.isList, due.isReview) = (true, true) }
    due.isListFromStart = false
    // The event that binds the account may not have been logged.
    if facts.learned({ $0.bounds[scope] }) == nil { due.isAccountKnown = false }
    let isFirst = due.isFirstCycle
    due.isFirstCycle = false
    if isFirst { beginChildReviews(facts) }
    beginZones()
    queue.forgetUnheardFetch()
    if keepsOn { lookAgain() }
    due.wasIncomplete = true
    if options.isUserInitiated {
      pace.endOwnWaits()
      for id in queue.places.ends.ids where records.waitsOnOwn(id, at: now) { queue.wake(id) }
    }
    let owners = queue.beginCycle(
      isUserInitiated: options.isUserInitiated, erasures: zonesToErase(facts), at: now.nanoseconds)
    beginHolds(isFirst: isFirst || keepsOn, notFull: owners, facts)
    // Also in a cycle that ends before its first request: otherwise the next one would begin at once, for the same deadline.
    wakeWhatIsDue(facts)
    let logged = facts.learned { $0.paces[scope] }
    if let pace = pace.begin(logged, at: now) { addStep(.append([.pace(pace)])) }
    sendReady()
    addStep(.takeKept(readsAgain: due.readsKept))
  }

  /// Drops the refusals and the unfinished phases of the cycle before.
  private mutating func beginZones() {
    for id in zones.keys {
      var zone = self[id]
      zone.phase = .open
      zone.feed.start.beginCycle()
      // A cycle that ended early did not find out whether the records or the zone caused the refusals.
      zone.lookups.names.formUnion(zone.lookups.refused.names)
      zone.lookups.refused = RefusedLookups()
      if zone.listing?.refused.isEmpty == false { zone.listing = nil }
      if cycle.options.isUserInitiated {
        zone.feed.progress.forgetEmpty()
        if zone.feed.rest?.isServers != true { zone.feed.rest = nil }
      }
      zones[id] = zone.isAtRest ? nil : zone
    }
  }

  /// A cycle ended early: everything that it began and did not finish is asked for again.
  private mutating func lookAgain() {
    queue.lookAgain()
    for (id, wait) in queue.places.waits {
      if wait == .lookup { lookUp(id) }
      if wait == .fetch { fetch(id.zone) }
    }
  }

  /// Ends the cycle; throws if a zone or a type was refused. So a cycle without an error leaves nothing pending but what its
  /// report counts as held.
  private func finish(_ facts: some SyncFacts) throws {
    let all = zones.sorted { $0.key < $1.key }
    for zone in cycle.lost.sorted() {
      // A rule may have decided about one since.
      if let state = facts.zone(zone), state.isLost { throw StrandlineError.loss(of: zone, state) }
    }
    if let refusal = allRefusedZones(facts).min(by: { $0.key < $1.key }) { throw refusal.value }
    for (zone, known) in all {
      guard let failure = known.ending?.failure else { continue }
      throw RefusedCycle(failure, "asking for records that the list of zone '\(zone)' did not show")
    }
    if let halted = queue.halts.types.min(by: { ($0.key.zone, $0.key.type) < ($1.key.zone, $1.key.type) }) {
      throw RefusedCycle(
        halted.value,
        "the server refuses every '\(halted.key.type)' of zone '\(halted.key.zone)': \(halted.value); they stay in "
          + "the store, and the rest was sent; the next 'sync()' tries one of them, and so does the engine, less and less often",
        isWhole: true)
    }
  }

  /// Zones refused in this cycle, plus zones halted for uploads or erasure.
  package func allRefusedZones(_ facts: some SyncFacts) -> [ZoneID: CloudError] {
    var refused = zones.compactMapValues(\.refusal)
    refused.merge(queue.halts.refusedZones) { known, _ in known }
    refused.merge(haltedErasures(facts)) { known, _ in known }
    return refused
  }

  // MARK: Records and waits

  /// Records have changed, at the server or here.
  mutating func changed(_ ids: Set<RecordID>, _ facts: some SyncFacts) throws {
    for id in ids.sorted() { try changed(id, facts) }
  }

  /// A record has changed, at the server or here. If it has no pending change any more, its refusals are forgotten: a later change
  /// is counted from zero.
  mutating func changed(_ id: RecordID, _ facts: some SyncFacts) throws {
    queue.changed(id, facts)
    guard queue.remembers(id) || records.hasRefusals(of: id) || records.contents.awaitsEnd(of: id),
      try facts.entry(id)?.pending == nil
    else { return }
    queue.settled(id)
    records.contents.settled(id)
    records.forgetRefusals(of: id)
  }

  /// A request failed and is to be sent again after a wait.
  package mutating func failed(
    _ kind: RequestKind, _ error: CloudError, doing: String, times: Int = 0, _ facts: some SyncFacts
  ) {
    if let logged = pace.failed(kind, error, doing: doing, times: times, at: facts.now) {
      addStep(.append([.pace(logged)]))
    }
  }

  /// A request was refused and is not sent again; if the server named a wait, later ones of its kind keep to it.
  mutating func failedIfNamed(_ kind: RequestKind, _ error: CloudError, doing: String, _ facts: some SyncFacts) {
    if let wait = error.retryAfterMilliseconds, wait > 0 { failed(kind, error, doing: doing, facts) }
  }

  private mutating func wakeWhatIsDue(_ facts: some SyncFacts) {
    endRests(facts)
    let now = facts.now.nanoseconds
    queue.wakeDue(now)
    let held = records.holdEnds.takeDue(now).compactMap { facts.held($0) }
    release(held.filter { $0.durationMilliseconds > 0 })
  }

  /// The wait until the next record's retry, if nothing else is due.
  private mutating func waitForRecord(_ facts: some SyncFacts) -> RequestPace.Wait? {
    guard cycle.sends, !queue.places.ends.isEmpty else { return nil }
    // A record that this cycle would not send is not waited for.
    let (only, frozen) = (cycle.options.zone, frozenZones(facts))
    let next = queue.places.ends.first { (only == nil || $0.zone == only) && !frozen.contains($0.zone) }
    guard let (id, nanoseconds) = next else { return nil }
    // For the caller this is a wait, whatever the refusal was: `.conflict` becomes `.throttled`.
    let named = records.waitError(of: id)
    let error =
      named
      ?? CloudError(.conflict, reason: "'\(id)' was \(records.refusalsError(of: id).reason)")
    return RequestPace.Wait(
      milliseconds: facts.now.milliseconds(until: nanoseconds), error: error,
      doing: "uploading to zone '\(id.zone)'",
      isServers: named != nil && !records.waitsOnOwn(id, at: facts.now), isOfPart: true)
  }

  /// When the first of all timed waits ends; nil if there is none.
  package func nextDue(at now: Moment) -> NextDue? {
    var dues = RequestKind.allCases.compactMap { kind in
      pace.wait(for: kind, at: now).map { NextDue(milliseconds: $0.milliseconds, isServers: $0.isServers) }
    }
    for moment in [queue.places.ends.first?.nanoseconds, records.holdEnds.first?.nanoseconds, queue.halts.nextTry] {
      guard let moment else { continue }
      dues.append(NextDue(milliseconds: now.milliseconds(until: moment), isServers: false))
    }
    if let rest = zones.values.compactMap(\.feed.rest).min(by: { $0.until < $1.until }) {
      dues.append(NextDue(milliseconds: now.milliseconds(until: rest.until), isServers: rest.isServers))
    }
    return dues.min { $0.milliseconds < $1.milliseconds }
  }

  /// A person has released a held record, or discarded its change.
  package mutating func holdEnded(_ id: RecordID, _ facts: some SyncFacts) {
    records.forgetRefusals(of: id)
    // A newer change may be held since.
    if facts.held(id) == nil { records.holdEnds.remove(id) }
    // A newer change may have been sent since, and its answer lost.
    if queue.wait(of: id) != .fetch { queue.wake(id) }
    queue.changed(id, facts)
  }

  /// How many records each table in memory holds, by the table's name.
  package var remembered: [String: Int] {
    let lookups = zones.values.count { !$0.lookups.isEmpty || $0.listing?.refused.isEmpty == false }
    return [
      "places": queue.places.all.count, "tags": queue.refusedTags.count,
      "cascades": queue.cascadeCount, "records": records.count, "lookups": lookups, "parts": cycle.split.parts.count,
      "refusedAlone": cycle.split.refusedAlone.count, "contents": records.contents.due.count,
    ].filter { $0.value > 0 }
  }

  // MARK: The account

  /// A store belongs to one container, environment and user for its whole life, with all its databases. Its first cycle binds it.
  private mutating func bind(_ user: String, _ facts: some SyncFacts) throws {
    let bound = Bound(
      container: address.container, environment: address.environment.rawValue, scope: scope,
      userHash: Bound.hash(ofUser: user))
    let known = facts.learned { $0.bounds }
    if let other = known.values.first(where: { !$0.isSameAccount(as: bound) }) {
      due.isAccountKnown = false
      throw AnotherAccount(other, bound)
    }
    if known[scope] == nil { addStep(.append([.bound(bound)])) }
  }
}

/// What observers of the engine are told beside its counts.
package enum SyncNotice: Sendable {
  case decided(ZoneLossDecision)
  /// The first fetch of a zone skips the query for the newest records of a type, because the server refuses it.
  case skipped(type: String, zone: ZoneID, CloudError)
  /// A page had entries that name no record and were passed over.
  case unnamed(count: Int, zone: ZoneID)
}

/// The plan took 100,000 turns in a row without a request. Each such turn settles up to 200 records, so this is a fault in the plan, which
/// would otherwise keep the device busy for ever.
package struct NoProgress: Error {
  package let turns: Int
}

/// A cycle that ends with a refusal.
package struct RefusedCycle: Error {
  package let error: CloudError
  /// What was being done, or the whole message if `isWhole`.
  package let words: String
  package let isWhole: Bool

  init(_ error: CloudError, _ words: String, isWhole: Bool = false) {
    (self.error, self.words, self.isWhole) = (error, words, isWhole)
  }
}

/// The store belongs to another user, container or environment.
package struct AnotherAccount: Error {
  package let known: Bound
  package let found: Bound

  init(_ known: Bound, _ found: Bound) { (self.known, self.found) = (known, found) }
}

extension Bound {
  /// Whether both are of one container, environment and user.
  fileprivate func isSameAccount(as other: Bound) -> Bool {
    container == other.container && environment == other.environment && userHash == other.userHash
  }
}
