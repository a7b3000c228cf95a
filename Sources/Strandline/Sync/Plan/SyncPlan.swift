// What the engine asks next, and what follows from an answer. A value: no store, no server, no clock, no task and no lock.
//
//   next     ──▶ a request, a step of the store, a wait, or the end of the cycle
//   apply    ◀── how that request ended
//   recorded ◀── what that step came to
//
// What must outlive the process is in the log; what is here says what is due, what waits and until when. The driver
// (Engine/CycleDriver.swift) calls these three in turn. While one kind of request has to wait, the others go on.
//
// A fetched page: SyncPlan+Feed asks for it, the intake decides record by record in the step that applies it, and its token is of
// the same transaction. An upload: Outgoing/OutgoingQueue says what is ready, SyncPlan+Uploading makes the operations, the log
// says `sent` before they leave, and SyncPlan+Settling says what follows from the answer.

import StrandlineSystem

/// The plan of one engine: one store, one database.
struct SyncPlan: Sendable {
  static let pageLimit = 200
  /// The one database that this syncs. What the store holds of the others is not touched.
  let address: CloudAddress
  let policies: SyncPolicies
  var zones: [ZoneID: ZoneSync] = [:]
  var records: RecordMemory
  var queue: OutgoingQueue
  var pace: RequestPace
  var limits: RequestLimits
  /// What is to be asked for, also by later cycles.
  var due = SyncAgenda()
  var cycle = SyncCycle()
  /// What the store does before anything is asked for, in this order.
  var steps: [StoreStep] = []
  /// What happened that is told to those who follow the engine.
  var notices: [SyncNotice] = []
  /// A cycle that takes this number of turns without a request has gone in a circle. Tests lower it.
  var idleTurnsMax = 100_000

  init(
    _ facts: some SyncFacts, _ address: CloudAddress, _ policies: SyncPolicies, _ pacePolicy: RequestPace.Policy
  ) {
    (self.address, self.policies) = (address, policies)
    let scope = address.scope
    records = RecordMemory(random: pacePolicy.random)
    queue = OutgoingQueue(scope: scope)
    let logged = facts.learned { $0.paces[scope] }
    pace = RequestPace(logged, scope: scope, pacePolicy, at: facts.now)
    limits = RequestLimits(operations: policies.batch.operationsMax, learned: pace.operationsMax)
  }

  var scope: DatabaseScope { address.scope }
  /// The same with the zones that the app has synced.
  var synced: SyncedDatabase { SyncedDatabase(scope, policies.zones) }

  /// What comes next.
  enum Next: Sendable {
    case ask(SyncRequest)
    case store(StoreStep)
    case wait(RequestPace.Wait)
    /// Something is due, and there is no time for it.
    case outOfTime
    case done
  }

  /// What was found of one kind of request.
  enum Choice {
    case next(Next)
    /// Something has changed in memory: the plan looks again.
    case again
  }

  /// What is known of a zone; made if it is not known yet.
  subscript(zone: ZoneID) -> ZoneSync {
    get { zones[zone] ?? ZoneSync() }
    _modify { yield &zones[zone, default: ZoneSync()] }
  }

  /// What the driver has in hand when it asks what is next.
  struct Means: Sendable {
    /// A request that begins now will be answered before the deadline.
    var hasTime = true
    /// The page that was asked for ahead.
    var ahead: PageRequest?
  }

  // MARK: What is next

  /// What is next.
  ///
  /// - Throws: what reading the log throws; at the end of a cycle, what the server has refused of it.
  mutating func next(_ facts: some SyncFacts, _ means: Means) throws -> Next {
    while true {
      cycle.idleTurns += 1
      guard cycle.idleTurns < idleTurnsMax else { throw NoProgress(turns: cycle.idleTurns) }
      if !steps.isEmpty { return .store(steps.removeFirst()) }
      if !means.hasTime, try due.isReview || RequestKind.allCases.contains(where: { try isDue($0, facts) }) {
        // What has come is not thrown away.
        guard let ahead = means.ahead, let request = nextPage(facts), request == ahead else { return .outOfTime }
        return .ask(.page(request))
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
        steps.append(.append([.pace(pace)]))
        continue
      }
      cycle.made = [:]
      // Nothing is left in hand, unless a zone was given up on the way.
      due.wasIncomplete = zones.values.contains {
        if case .ending = $0.phase { return true }
        return $0.refusal != nil || $0.isLossNoted
      }
      cycle.failsInPart = true
      try finish(facts)
      return .done
    }
  }

  private mutating func choose(_ facts: some SyncFacts) throws -> Choice? {
    // That a zone is still the one to erase was asked just now.
    if cycle.sends, due.isAccountKnown, pace.wait(for: .upload, at: facts.now) == nil, let zone = zoneToErase(facts),
      case .erasing(.deleting)? = zones[zone]?.phase
    {
      return .next(.ask(.eraseZone(zone)))
    }
    var blocked: RequestPace.Wait?
    for kind in [RequestKind.account, .zoneList, .query, .page, .lookup, .upload, .listed] {
      if kind != .account, !due.isAccountKnown { break }
      if let wait = pace.wait(for: kind, at: facts.now) {
        if blocked.map({ wait.milliseconds < $0.milliseconds }) ?? true, try isDue(kind, facts) { blocked = wait }
      } else if let choice = try choose(kind, facts) {
        return choice
      }
    }
    if let blocked { return .next(.wait(blocked)) }
    let waits = [waitForRecord(facts), waitForFeed(facts)].compactMap(\.self)
    guard let wait = waits.min(by: { $0.milliseconds < $1.milliseconds }) else { return nil }
    // A part that waits keeps no halt from ending.
    if try checkHalts(facts) { return .again }
    cycle.made = [:]
    return .next(.wait(wait))
  }

  /// Everything that is pending was looked at: of a halted type nothing may be left, or a record that was refused is tried.
  private mutating func checkHalts(_ facts: some SyncFacts) throws -> Bool {
    try cycle.sends && queue.checkHalts(facts)
  }

  private mutating func choose(_ kind: RequestKind, _ facts: some SyncFacts) throws -> Choice? {
    switch kind {
    case .account: due.isAccountKnown ? nil : .next(.ask(.user))
    case .zoneList: try chooseList(facts)
    case .query: chooseNewest(facts).map { .next(.ask(.newest($0))) }
    case .page: nextPages(facts).map { .next(.ask($0)) }
    case .lookup: try chooseLookup(facts)
    case .upload: try chooseUpload(facts)
    case .listed: try chooseListed(facts)
    }
  }

  /// Whether something of a kind may be asked for.
  func isDue(_ kind: RequestKind, _ facts: some SyncFacts) throws -> Bool {
    switch kind {
    case .account: !due.isAccountKnown
    case .zoneList: zoneInQuestion != nil || (due.isList && cycle.fetchesFeed)
    case .query: zoneToQuery(facts) != nil
    case .page: nextZoneToFetch(facts) != nil
    case .listed: zoneWithListing(facts) != nil
    case .lookup: hasLookups(facts)
    case .upload:
      zones.values.contains(where: \.isRecreating)
        || cycle.sends
          && (zoneToErase(facts) != nil || facts.hasPending)
    }
  }

  // MARK: Answers

  /// A request was answered or refused.
  ///
  /// - Throws: what ends the cycle.
  mutating func apply(_ outcome: SyncOutcome, to request: SyncRequest, _ facts: some SyncFacts) throws {
    hear(outcome, request.kind)
    switch (request, outcome.result) {
    case (.modify(let upload), let result): try apply(result, to: upload, outcome.serverOffset, facts)
    case (_, .success(let answer)): try take(answer, to: request, outcome.serverOffset, facts)
    case (_, .failure(let error)):
      // Neither the user nor the list of changed zones can be asked for in smaller parts.
      let isWhole = error.code == .answerTooLarge && (request.kind == .account || request.kind == .zoneList)
      if isWhole || ErrorPolicy.request(error) == .retry {
        postpone(request, error, facts)
      } else {
        try refuse(request, error, facts)
      }
    }
  }

  /// How a request ended, whatever it was for.
  mutating func hear(_ outcome: SyncOutcome, _ kind: RequestKind) {
    switch outcome.result {
    // What an upload came to is said by its answer.
    case .success: if kind != .upload { pace.succeeded(kind) }
    case .failure(let error): if ErrorPolicy.request(error) == .signIn { due.isAccountKnown = false }
    }
  }

  /// A page that was asked for ahead has failed, and may be asked for again after a wait.
  mutating func aheadFailed(_ page: PageRequest, _ error: CloudError, _ facts: some SyncFacts) {
    failed(.page, error, doing: SyncRequest.page(page).words, facts)
  }

  private mutating func take(
    _ answer: SyncAnswer, to request: SyncRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    switch (request, answer) {
    case (.user, .user(let user)): due.isAccountKnown = true; try bind(user, facts)
    case (.changedZones(let list), .changedZones(let page)): try take(page, to: list, offset, facts)
    case (.allZones(let zone), .allZones(let zones)): try take(zones, of: zone, facts)
    case (.page(let request), .page(let page)):
      switch request.purpose {
      case .feed:
        limits.zones.answered(1)
        try take(page, to: request, offset, facts)
      case .identity: try takeIdentity(page, to: request, facts)
      case .comparison: break
      }
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

  /// A request failed and may be sent again after a wait. Only those that change nothing, or that may be applied twice.
  private mutating func postpone(_ request: SyncRequest, _ error: CloudError, _ facts: some SyncFacts) {
    failed(request.kind, error, doing: request.words, facts)
    switch request {
    case .allZones(let zone):
      let (question, phase) = takeQuestion(of: zone)
      (self[zone].refusal, self[zone].phase) = (question?.error ?? error, phase)
    case .createZone(let zone, .again): self[zone].phase = .open
    // It may be another zone by now: that is asked again.
    case .eraseZone(let zone): self[zone].phase = .open
    // The zones may be answered in smaller parts.
    case .pages(let pages): limits.zones.refused(pages.count)
    default: break
    }
  }

  private mutating func refuse(_ request: SyncRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    switch request {
    case .user: throw error
    case .changedZones(let list):
      // Asked once without the token. Only if that succeeds was the token the cause.
      guard list.token != nil, ErrorPolicy.mayBeExpiredToken(error) else {
        due.isListFromStart = false
        throw error
      }
      due.isListFromStart = true
    case .allZones(let zone):
      self[zone].phase = takeQuestion(of: zone).phase
      throw error
    case .page(let page):
      switch page.purpose {
      case .feed: try refuse(page, error, facts)
      case .identity: try refuseIdentity(page, error, facts)
      case .comparison: break
      }
    case .pages(let pages):
      if ErrorPolicy.request(error) == .signIn { throw error }
      // It may be of one zone, or the answer too large.
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
      if ErrorPolicy.request(error) == .signIn { throw error }
      switch creation {
      case .upload(let id): refuseChanges(of: id, error, facts)
      case .again: self[zone].refusal = error
      }
    case .eraseZone(let zone): try refuseErasure(of: zone, error, facts)
    case .modify: break
    }
  }

  /// A step of the store is done.
  mutating func recorded(_ step: StoreStep, _ result: StoreResult, _ facts: some SyncFacts) throws {
    switch (step, result) {
    case (.append(let step), _): try appended(step, facts)
    case (.decideLoss(let step), .done): decided(step, facts)
    case (.decideLoss, _): break
    case (.takeKept(let readsAgain), .taken(let taken)):
      if readsAgain { due.readsKept = false }
      cycle.report.add(taken.report)
      for id in taken.touched.sorted() { try changed(id, facts) }
    case (.page(let step), .taken(let taken)): try applied(step, taken, facts)
    case (.page(let step), .tooLarge(let error)): tooLarge(step, error)
    case (.answers(let step), .taken(let taken)): try applied(step, taken, facts)
    case (.answers(let step), .tooLarge(let error)): try tooLarge(step, error)
    case (.settleChildren(let zone, let then), .changed(let ids)): try childrenSettled(of: zone, ids, then, facts)
    case (.findAbsent(let zone, _), .absent(let proof)):
      guard case .ending(var ending) = self[zone].phase else { return }
      ending.stage = .absent(proof)
      self[zone].phase = .ending(ending)
      try goOnProving(zone, facts)
    case (.findSynced(let zone), .synced(let ids)): removeAll(ids, of: zone, facts)
    case (.createAgain(let zone, _), .changed(let ids)):
      for id in ids { try changed(id, facts) }
      if !ids.isEmpty { queue.referencesMayHaveChanged(in: zone) }
    default: preconditionFailure("the result of a step of another kind")
    }
  }

  /// Events were appended, those whose premises held.
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
      for id in taken.touched.sorted() { try changed(id, facts) }
      if !taken.touched.isEmpty { queue.referencesMayHaveChanged(in: request.zone) }
      self[request.zone].newest?.take(page)
    case .listed(let answer): try applied(answer, step.changes, taken, facts)
    case .removal(let zone, let removal):
      for id in taken.touched.sorted() { try changed(id, facts) }
      queue.referencesMayHaveChanged(in: zone)
      if case .proof(let count, let saysFollowed) = removal {
        try removedAbsent(count, saysFollowed: saysFollowed, from: zone, facts)
      }
    case .upload(let answer):
      cycle.report.add(answer.report)
      for id in taken.touched.sorted() { try changed(id, facts) }
      try goOn(after: answer, facts)
    }
  }

  private mutating func tooLarge(_ step: AnswerStep, _ error: StrandlineError) throws {
    switch step.cause {
    case .lookUp(let answer) where answer.asked > 1: limits.lookups.refused(answer.asked)
    case .newest(let request, _) where request.limit > 1: self[request.zone].newest?.halve()
    case .listed(let answer) where answer.count > 1:
      limits.listed.refused(answer.count)
      limits.listed.growLater()
    case .upload(var answer) where !step.changes.isEmpty:
      // What the refusals brought along is looked up, in as many requests as it takes.
      answer.forgetVersions()
      var smaller = step
      (smaller.changes, smaller.cause) = ([], .upload(answer))
      steps.insert(.answers(smaller), at: 0)
    default: throw error
    }
  }

  // MARK: A cycle

  /// A cycle begins.
  mutating func begin(_ options: CycleOptions, _ facts: some SyncFacts) {
    let now = facts.now
    (steps, notices) = ([], [])
    let keepsOn = due.wasIncomplete
    if keepsOn, let before = cycle.split.limitBefore { limits.operations.restore(before) }
    // Of an upload whose answer was lost the feed says whether it arrived.
    let fetchesFeed = options.direction != .pushOnly || facts.hasAttempts
    cycle = SyncCycle(options, fetchesFeed: fetchesFeed, upTo: facts.durableLSN)
    if options.asksForChanges { (due.isList, due.isReview) = (true, true) }
    due.isListFromStart = false
    // The log may not have learned the account that was asked for.
    if facts.learned({ $0.bounds[scope] }) == nil { due.isAccountKnown = false }
    let isFirst = due.isFirstCycle
    due.isFirstCycle = false
    if isFirst { beginChildReviews(facts) }
    beginZones()
    if keepsOn { lookAgain() }
    due.wasIncomplete = true
    if options.isUserInitiated {
      pace.endOwnWaits()
      for (id, wait) in queue.waits.all where wait == .time && records.waitsOnOwn(id) { queue.wake(id) }
    }
    let owners = queue.beginCycle(
      isUserInitiated: options.isUserInitiated, erasures: zonesToErase(facts), at: now.nanoseconds)
    beginHolds(isFirst: isFirst || keepsOn, notFull: owners, facts)
    // Also in a cycle that ends before its first request: else it would be made again at once, for the same moment.
    wakeWhatIsDue(facts)
    let logged = facts.learned { $0.paces[scope] }
    if let pace = pace.begin(logged, at: now) { steps.append(.append([.pace(pace)])) }
    steps.append(.takeKept(readsAgain: due.readsKept))
  }

  /// What a cycle has refused and begun says nothing of the zone now.
  private mutating func beginZones() {
    for id in zones.keys {
      var zone = self[id]
      // What the server took in an earlier cycle says nothing of the zone now.
      if case .beginning = zone.feed.start { zone.feed.start = .beginning(tokenWasTaken: false) }
      (zone.phase, zone.refusal, zone.tokenRefusals, zone.isLossNoted) = (.open, nil, 0, false)
      // A cycle that ended early has not said whose fault it was.
      zone.lookups.names.formUnion(zone.lookups.refused.names)
      zone.lookups.refused = RefusedLookups()
      if !zone.listedRefused.refusals.isEmpty { (zone.listing, zone.listedRefused) = (nil, RefusedLookups()) }
      if cycle.options.isUserInitiated {
        zone.feed.progress.forgetEmpty()
        if zone.feed.rest?.isServers != true { zone.feed.rest = nil }
      }
      zones[id] = zone.isAtRest ? nil : zone
    }
  }

  /// A cycle ended early: whatever it had taken in hand and not brought to an end is asked for again.
  private mutating func lookAgain() {
    queue.lookAgain()
    for (id, wait) in queue.waits.all {
      if wait == .lookup { lookUp(id) }
      if wait == .fetch { fetch(id.zone) }
    }
  }

  /// Ends the cycle: throws if something that is pending was refused, so that a cycle without an error leaves nothing pending, or says
  /// what it holds.
  private func finish(_ facts: some SyncFacts) throws {
    let all = zones.sorted { $0.key < $1.key }
    for (zone, known) in all where known.isLossNoted {
      // A rule may have decided about one since.
      if let state = facts.zone(zone), state.isLost { throw StrandlineError.loss(of: zone, state) }
    }
    if let refusal = allRefusedZones(facts).min(by: { $0.key < $1.key }) { throw refusal.value }
    for (zone, known) in all {
      guard case .ending(let ending) = known.phase, let failure = ending.failure else { continue }
      throw RefusedCycle(failure, "asking for records that the list of zone '\(zone)' did not show")
    }
    if let halted = queue.halts.types.min(by: { ($0.key.zone, $0.key.type) < ($1.key.zone, $1.key.type) }) {
      throw RefusedCycle(
        halted.value,
        "the server refuses every '\(halted.key.type)' of zone '\(halted.key.zone)': \(halted.value); they stay in "
          + "the store, and the rest was sent; the next 'now()' tries one of them, as the engine does by itself, later and later",
        isWhole: true)
    }
  }

  /// The zones of which this cycle was refused something, with those to which nothing, or no save, is sent, and those that are not
  /// erased, until a halt ends.
  func allRefusedZones(_ facts: some SyncFacts) -> [ZoneID: CloudError] {
    var refused = zones.compactMapValues(\.refusal)
    refused.merge(queue.halts.refusedZones) { known, _ in known }
    refused.merge(haltedErasures(facts)) { known, _ in known }
    return refused
  }

  // MARK: Records and waits

  /// Something has changed about a record, at the server or here. If nothing of it is pending any more, what was refused of it is
  /// forgotten: a later change of it begins again.
  mutating func changed(_ id: RecordID, _ facts: some SyncFacts) throws {
    queue.changed(id, facts)
    guard queue.remembers(id) || records.hasRefusals(of: id), try facts.entry(id)?.pending == nil else {
      return
    }
    queue.settled(id)
    records.forgetRefusals(of: id)
  }

  /// A request failed and is to be sent again after a wait.
  mutating func failed(
    _ kind: RequestKind, _ error: CloudError, doing: String, times: Int = 0, _ facts: some SyncFacts
  ) {
    if let logged = pace.failed(kind, error, doing: doing, times: times, at: facts.now) {
      steps.append(.append([.pace(logged)]))
    }
  }

  /// The same, if the server named a wait.
  mutating func failedIfNamed(_ kind: RequestKind, _ error: CloudError, doing: String, _ facts: some SyncFacts) {
    if let wait = error.retryAfterMilliseconds, wait > 0 { failed(kind, error, doing: doing, facts) }
  }

  private mutating func wakeWhatIsDue(_ facts: some SyncFacts) {
    endRests(facts)
    let now = facts.now.nanoseconds
    for id in records.times.takeDue(now) where queue.waits[id] == .time { queue.wake(id) }
    let held = records.holdEnds.takeDue(now).compactMap { facts.held($0) }
    release(held.filter { $0.durationMilliseconds > 0 })
  }

  /// Nothing is due but what waits for a moment.
  private mutating func waitForRecord(_ facts: some SyncFacts) -> RequestPace.Wait? {
    guard cycle.sends else { return nil }
    while let (id, _) = records.times.first, queue.waits[id] != .time { records.times.removeFirst() }
    if records.times.isEmpty { return nil }
    // What this cycle would not send then either is not waited for.
    let (waits, only, frozen) = (queue.waits, cycle.options.zone, frozenZones(facts))
    let next = records.times.first {
      waits[$0] == .time && (only == nil || $0.zone == only) && !frozen.contains($0.zone)
    }
    guard let (id, nanoseconds) = next else { return nil }
    // Whatever it was refused with, it is only later that it is sent again.
    let memory = records[id]
    let error =
      memory.postponed?.error ?? memory.unshown?.error
      ?? CloudError(.conflict, reason: "'\(id)' was \(records.refusalsError(of: id).reason)")
    return RequestPace.Wait(
      milliseconds: facts.now.milliseconds(until: nanoseconds), error: error,
      doing: "uploading to zone '\(id.zone)'",
      isServers: memory.postponed != nil && !records.waitsOnOwn(id), isOfPart: true)
  }

  /// When something that waits now is due; nil if nothing waits for a moment.
  func nextDue(at now: Moment) -> NextDue? {
    var dues = RequestKind.allCases.compactMap { kind in
      pace.wait(for: kind, at: now).map { NextDue(milliseconds: $0.milliseconds, isServers: $0.isServers) }
    }
    let rest = zones.values.compactMap(\.feed.rest?.until).min()
    for moment in [records.times.first?.nanoseconds, records.holdEnds.first?.nanoseconds, queue.halts.nextTry, rest] {
      guard let moment else { continue }
      dues.append(NextDue(milliseconds: now.milliseconds(until: moment), isServers: false))
    }
    return dues.min { $0.milliseconds < $1.milliseconds }
  }

  /// A person has released a record, or given its change up.
  mutating func holdEnded(_ id: RecordID, _ facts: some SyncFacts) {
    records.forgetRefusals(of: id)
    queue.wake(id)
    queue.changed(id, facts)
  }

  /// How much it remembers of single records, by what it is.
  var remembered: [String: Int] {
    let lookups = zones.values.count { !$0.lookups.isEmpty || !$0.listedRefused.refusals.isEmpty }
    return [
      "waits": queue.waits.all.count, "tags": queue.refusedTags.count,
      "kept": queue.keptCount, "records": records.count, "lookups": lookups, "parts": cycle.split.parts.count,
      "refusedAlone": cycle.split.refusedAlone.count,
    ].filter { $0.value > 0 }
  }

  // MARK: The account

  /// A store belongs to one container, environment and user for life, with all its databases; its first cycle decides which.
  private mutating func bind(_ user: String, _ facts: some SyncFacts) throws {
    let bound = Bound(
      container: address.container, environment: address.environment, scope: scope,
      userHash: Bound.hash(ofUser: user))
    let known = facts.learned { $0.bounds }
    if let other = known.values.first(where: { !$0.isSameAccount(as: bound) }) {
      due.isAccountKnown = false
      throw AnotherAccount(other, bound)
    }
    if known[scope] == nil { steps.append(.append([.bound(bound)])) }
  }
}

/// What a person follows of the engine, beside its counts.
enum SyncNotice: Sendable {
  case decided(ZoneLossDecision)
  /// The first fetch of a zone goes without the newest records of a type, because the server refuses the query.
  case skipped(type: String, zone: ZoneID, CloudError)
}

/// A cycle that went in a circle. A turn without a request does its work for up to two hundred records, and then they are done with;
/// a fault in the plan that took them up again and again would keep a device busy for ever, without a word.
struct NoProgress: Error {
  let turns: Int
}

/// A cycle that ends with a refusal, and in what.
struct RefusedCycle: Error {
  let error: CloudError
  let words: String
  /// The words say everything.
  let isWhole: Bool

  init(_ error: CloudError, _ words: String, isWhole: Bool = false) {
    (self.error, self.words, self.isWhole) = (error, words, isWhole)
  }
}

/// Another user is signed in than the one whom the store belongs to, or the database is another one.
struct AnotherAccount: Error {
  let known: Bound
  let found: Bound

  init(_ known: Bound, _ found: Bound) { (self.known, self.found) = (known, found) }
}

extension Bound {
  /// Whether both are of one container, environment and user.
  fileprivate func isSameAccount(as other: Bound) -> Bool {
    container == other.container && environment == other.environment && userHash == other.userHash
  }
}
