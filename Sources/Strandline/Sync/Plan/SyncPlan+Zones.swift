// Which zones have changed, and which are gone. A server may say too early that a zone is gone, so that is believed when the list of
// all zones says so too.

import StrandlineSystem

extension SyncPlan {
  // MARK: The list of changed zones

  mutating func chooseList(_ facts: some SyncFacts) throws -> Choice? {
    if let zone = zoneInQuestion {
      guard self[zone].isRecreating else { return .next(.ask(.allZones(zone))) }
      if pace.wait(for: .upload, at: facts.now) == nil {
        // A person may have decided otherwise while it had to wait.
        guard let state = facts.zone(zone), !state.isLost, state.resetPolicy == ResyncSource.here.rawValue else {
          self[zone].phase = .open
          return .again
        }
        return .next(.ask(.createZone(zone, .again)))
      }
    }
    guard due.isList, cycle.fetchesFeed else { return nil }
    let (scope, fromStart) = (scope, due.isListFromStart)
    let known = facts.learned { $0.databaseTokens[scope] }
    return .next(.ask(.changedZones(ListRequest(known: known, fromStart: fromStart && known != nil))))
  }

  /// The next zone of which it is asked whether it exists, or else that is created again, which may have to wait.
  var zoneInQuestion: ZoneID? {
    let all = zones.filter { $0.value.isInQuestion }
    return all.filter { !$0.value.isRecreating }.keys.min() ?? all.keys.min()
  }

  mutating func take(
    _ page: DatabasePage, to request: ListRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    due.isListFromStart = false
    let (known, scope) = (request.known, scope)
    // Every cycle has this answer, and perhaps no other one.
    var step = AppendStep(events: [], premise: .databaseToken(scope, known), serverOffset: offset)
    defer { if offset != nil || !step.events.isEmpty { steps.append(.append(step)) } }
    let defect = due.listProgress.count(
      asked: request.token, token: page.token, isEmpty: page.zones.isEmpty, moreComing: page.moreComing)
    if let defect {
      let error = CloudError(.zoneBusy, reason: "the list of changed zones says \(defect)")
      failed(
        .zoneList, error, doing: SyncRequest.changedZones(request).words, times: due.listProgress.repeats, facts)
      // What it says is so all the same, but for a token that says nothing new.
      if page.token == known { return }
    }
    due.isList = page.moreComing
    guard page.token != known || !page.zones.isEmpty else { return }
    let sync = facts.learned { $0 }
    if request.fromStart {
      // A list from the beginning does not name zones that were deleted meanwhile: fetch each known zone.
      for (zone, state) in sync.zones.sorted(by: { $0.key < $1.key }) where zone.scope == scope {
        if state.isDirty, synced.leavesOut(zone, sync) { continue }
        step.events.append(
          .append(.zoneChanged(ZoneChanged(zone: zone, change: .dirty, words: "the database's token expired"))))
      }
    }
    // The default zone has no feed, and nothing in it is this store's.
    for zone in page.zones where zone.id.name != Names.defaultZone {
      guard let event = try event(for: zone, sync, facts) else { continue }
      step.events.append(event)
      if case .event(.zoneChanged(let changed), _) = event, changed.change == .lost { step.losses.append(changed.zone) }
    }
    step.events.append(
      .append(.databaseTokenAdvanced(DatabaseTokenAdvanced(scope: scope, asked: request.token, token: page.token))))
  }

  /// The zones that this store knows, and that the app leaves out.
  func zonesLeftOut(_ facts: some SyncFacts) -> Set<ZoneID> {
    facts.zonesLeftOut(by: synced)
  }

  /// What follows from one zone of the list.
  private mutating func event(
    for listed: DatabasePage.Zone, _ sync: SyncState, _ facts: some SyncFacts
  ) throws -> SyncEvent? {
    var id = listed.id
    id.scope = scope
    id = Account(sync).canonical(id)
    // Of a zone that is left out the log remembers that it has changed, once: so it is fetched when it is taken in.
    let isLeftOut = synced.leavesOut(id, sync)
    let dirty = SyncEvent.append(.zoneChanged(ZoneChanged(zone: id, change: .dirty)))
    let remembers = isLeftOut && sync.zones[id]?.isDirty == true
    guard var loss = listed.loss else { return remembers ? nil : dirty }
    // That the app ended it is this store's to say.
    if loss == .erasing || loss == .erased { loss = .deleted }
    // A zone that this log never saw at the server has nothing here to freeze, and of one that a person has decided about
    // the fetch finds out.
    guard let state = sync.zones[id], state.wasSeen, !state.isErased, !state.isDecided else { return nil }
    if try facts.hasNothing(of: id) {
      return .event(.zoneChanged(ZoneChanged(zone: id, change: .forgotten)), if: .nothingKnown(id))
    }
    // When it is taken in, its feed asks the same.
    if isLeftOut { return remembers || state.isLost ? nil : .append(.zoneChanged(.listed(id, loss))) }
    if state.isLost {
      self[id].isLossNoted = true
      return nil
    }
    // A server may say so too early. Should the process end before the answer, the zone's feed asks the same.
    let error = CloudError(.zoneNotFound, reason: "the list of changed zones says that it is gone")
    if !self[id].isInQuestion {
      self[id].phase = .missing(LossQuestion(error: error, loss: loss), then: self[id].phase)
    }
    return .append(.zoneChanged(.listed(id, loss)))
  }

  // MARK: A zone that may be gone

  /// The server said that it does not have a zone.
  ///
  /// - Parameter kind: the requests that wait if the zone is there; nil if they need not.
  mutating func confirmLoss(
    of zone: ZoneID, _ error: CloudError, kind: RequestKind? = .page, _ facts: some SyncFacts
  ) {
    let state = facts.zone(zone)
    guard state?.isErased != true, !self[zone].isInQuestion else { return }
    guard state?.wasSeen == true else {
      // Never seen there: it is created before the first save.
      if error.code != .zoneNotFound { self[zone].refusal = error }
      return
    }
    let loss = state?.listedLoss ?? .notFound
    self[zone].phase = .missing(LossQuestion(error: error, loss: loss, kind: kind), then: self[zone].phase)
  }

  /// The question of a zone, and the phase to which the zone goes back.
  func takeQuestion(of zone: ZoneID) -> (question: LossQuestion?, phase: ZoneSync.Phase) {
    guard case .missing(let question, let then) = self[zone].phase else { return (nil, self[zone].phase) }
    return (question, then)
  }

  /// The names of all zones.
  mutating func take(_ names: [ZoneID], of zone: ZoneID, _ facts: some SyncFacts) throws {
    guard case .missing(let question, let then) = self[zone].phase else { return }
    self[zone].phase = then
    let error = question.error
    let (state, account) = (facts.zone(zone), Account(facts.learned { $0 }))
    guard !names.contains(where: { account.canonical($0) == zone }) else {
      // It is there: whatever the server said is asked again, later and later.
      guard let kind = question.kind else { return }
      let doing = SyncRequest.allZones(zone).words
      return failed(kind, CloudError(.zoneBusy, reason: "\(error), though the zone exists"), doing: doing, facts)
    }
    if state?.resetPolicy == ResyncSource.here.rawValue {
      self[zone].phase = .recreating
    } else if state?.resetPolicy == ResyncSource.server.rawValue {
      steps.append(.findSynced(zone))
    } else if try facts.hasNothing(of: zone) {
      // There is nothing to ask a person about.
      self[zone].feed = Feed()
      let event = Event.zoneChanged(ZoneChanged(zone: zone, change: .forgotten))
      steps.append(.append(AppendStep(events: [.event(event, if: .nothingKnown(zone))])))
    } else {
      lose(zone, question.loss, words: "the server does not have it: \(error)")
    }
  }

  /// The engine has found that a zone is gone, or not what it was. What the app has asked for about it while the server was asked
  /// counts: a zone that is to be erased is not uploaded again by a rule.
  ///
  /// If it stays lost, the cycle ends with that error: what is in it stays as it is here until a person or a rule decides, and no
  /// freeze is silent.
  mutating func lose(_ zone: ZoneID, _ reason: ZoneLoss, words: String) {
    let event = SyncEvent.event(.zoneChanged(.lost(zone, reason, words: words)), if: .notErased(zone))
    steps.append(.append(AppendStep(events: [event], losses: [zone])))
    (self[zone].feed, self[zone].phase) = (Feed(), .open)
  }

  /// A zone was found to be lost. What has waited for its feed waits for the end of the loss, as all that is pending in it.
  mutating func noteLoss(of zone: ZoneID, _ facts: some SyncFacts) {
    self[zone].isLossNoted = true
    records.endDoubts(in: zone)
    sendFetched(zone, facts)
  }

  // MARK: A zone that is created

  /// The zone was created at the server.
  mutating func created(_ zone: ZoneID, _ creation: ZoneCreation, _ facts: some SyncFacts) {
    pace.succeeded(.upload)
    if case .again = creation { self[zone].phase = .open }
    // An older list does not say that the zone is a new one.
    let wasListed = cycle.fetchesFeed && cycle.options.asksForChanges && !due.isList
    // Apple's default zone is there without having been created, and in no list.
    let isNew = wasListed && facts.zone(zone)?.wasSeen != true && zone.name != Names.defaultZone
    let event = ZoneChanged(zone: zone, change: .created, policy: isNew ? ZoneState.newPolicy : "")
    // The app may have asked for its end meanwhile: that is carried out next.
    steps.append(.append(AppendStep(events: [.event(.zoneChanged(event), if: .notErased(zone))])))
  }
}
