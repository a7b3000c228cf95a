// Learns from the server which zones have changed, and which are gone. A server may report a loss wrongly, so it is believed only
// when the list of all zones lacks the zone too.

import StrandlineSystem

extension SyncPlan {
  // MARK: The list of changed zones

  /// Whether the list of changed zones has to be fetched.
  var isListDue: Bool { due.isList && cycle.fetchesFeed }

  /// Creates a zone again, unless that has to wait: then the list is next.
  mutating func chooseRecreation(of zone: ZoneID, _ facts: some SyncFacts) -> Choice? {
    guard pace.wait(for: .upload, at: facts.now) == nil else { return isListDue ? chooseList(facts) : nil }
    // A person may have decided otherwise during a wait.
    guard let state = facts.zone(zone), !state.isLost, state.resetPolicy == ResyncSource.here.rawValue else {
      self[zone].phase = .open
      return .again
    }
    return .next(.ask(.createZone(zone, .again)))
  }

  func chooseList(_ facts: some SyncFacts) -> Choice {
    let (scope, fromStart) = (scope, due.isListFromStart)
    let known = facts.learned { $0.databaseTokens[scope] }
    return .next(.ask(.changedZones(ListRequest(known: known, fromStart: fromStart && known != nil))))
  }

  /// The next zone to ask about whether it exists; or the next one to create again, which may have to wait.
  var zoneInQuestion: ZoneID? {
    let all = zones.filter { $0.value.isInQuestion }
    return all.filter { !$0.value.isRecreating }.keys.min() ?? all.keys.min()
  }

  mutating func take(
    _ page: DatabasePage, to request: ListRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    due.isListFromStart = false
    let (known, scope) = (request.known, scope)
    // The clock offset is logged even without changes: a cycle may get no other answer.
    var step = AppendStep(events: [], premise: .databaseToken(scope, known), serverOffset: offset)
    defer { if offset != nil || !step.events.isEmpty { addStep(.append(step)) } }
    let defect = due.listProgress.count(
      asked: request.token, token: page.token, isEmpty: page.zones.isEmpty, moreComing: page.moreComing)
    if let defect {
      let error = CloudError(.zoneBusy, reason: "the list of changed zones says \(defect)")
      failed(
        .zoneList, error, doing: SyncRequest.changedZones(request).words, times: due.listProgress.repeats, facts)
      // The list itself is valid, unless its token did not change.
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
    // The default zone has no feed, and this store syncs nothing in it.
    for zone in page.zones where zone.id.name != Names.defaultZone {
      guard let event = try event(for: zone, sync, facts) else { continue }
      step.events.append(event)
      if case .event(.zoneChanged(let changed), _) = event, changed.change == .lost { step.losses.append(changed.zone) }
    }
    step.events.append(
      .append(.databaseTokenAdvanced(DatabaseTokenAdvanced(scope: scope, asked: request.token, token: page.token))))
  }

  /// The known zones that the app's configuration does not sync.
  func zonesLeftOut(_ facts: some SyncFacts) -> Set<ZoneID> {
    facts.zonesLeftOut(by: synced)
  }

  /// The event that follows from one zone of the list.
  private mutating func event(
    for listed: DatabasePage.Zone, _ sync: SyncState, _ facts: some SyncFacts
  ) throws -> SyncEvent? {
    var id = listed.id
    id.scope = scope
    id = Account(sync).canonical(id)
    // For a zone that is not synced, one event says that it has changed: so it is fetched if the app syncs it later.
    let isLeftOut = synced.leavesOut(id, sync)
    let dirty = SyncEvent.append(.zoneChanged(ZoneChanged(zone: id, change: .dirty)))
    let remembers = isLeftOut && sync.zones[id]?.isDirty == true
    guard var loss = listed.loss else { return remembers ? nil : dirty }
    // Only this store's log can say that the app erased a zone.
    if loss == .erasing || loss == .erased { loss = .deleted }
    // A zone that this log never saw at the server has nothing to set aside, and one that a person has decided about is
    // fetched, which finds out.
    guard let state = sync.zones[id], state.wasSeen, !state.isErased, !state.isDecided else { return nil }
    if try facts.hasNothing(of: id) {
      return .event(.zoneChanged(ZoneChanged(zone: id, change: .forgotten)), if: .nothingKnown(id))
    }
    // If the app syncs it later, its feed finds out.
    if isLeftOut { return remembers || state.isLost ? nil : .append(.zoneChanged(.listed(id, loss))) }
    if state.isLost {
      cycle.noteLoss(of: id)
      return nil
    }
    // The list of all zones has to confirm it. If the process ends before that, the zone's feed finds out.
    let error = CloudError(.zoneNotFound, reason: "the list of changed zones says that it is gone")
    if !self[id].isInQuestion {
      self[id].phase = .missing(LossQuestion(error: error, loss: loss), then: self[id].phase)
    }
    return .append(.zoneChanged(.listed(id, loss)))
  }

  // MARK: A zone that may be gone

  /// The server said that it does not have a zone.
  ///
  /// - Parameter kind: the requests that back off if the zone exists after all, for pages those of this zone only; nil for none.
  package mutating func confirmLoss(
    of zone: ZoneID, _ error: CloudError, kind: RequestKind? = .page, _ facts: some SyncFacts
  ) {
    let state = facts.zone(zone)
    guard state?.isErased != true, !self[zone].isInQuestion else { return }
    guard state?.wasSeen == true else {
      // This log never saw it there: it is created before the first save.
      if error.meaning.request != .zoneMissing { self[zone].refuse(error) }
      return
    }
    let loss = error.zoneLoss ?? state?.listedLoss ?? .notFound
    self[zone].phase = .missing(LossQuestion(error: error, loss: loss, kind: kind), then: self[zone].phase)
  }

  /// The open question whether a zone exists, and the phase to return to.
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
      // It exists: the request that failed is sent again, with a growing backoff.
      guard let kind = question.kind else { return }
      let busy = CloudError(.zoneBusy, reason: "the zone exists, but the server said: \(error)")
      if kind == .page { return restLonger(zone, because: busy, facts) }
      return failed(kind, busy, doing: SyncRequest.allZones(zone).words, facts)
    }
    if state?.resetPolicy == ResyncSource.here.rawValue {
      self[zone].phase = .recreating
    } else if state?.resetPolicy == ResyncSource.server.rawValue {
      addStep(.findSynced(zone))
    } else if try facts.hasNothing(of: zone) {
      // The zone has nothing to ask a person about.
      self[zone].feed = Feed()
      let event = Event.zoneChanged(ZoneChanged(zone: zone, change: .forgotten))
      addStep(.append(AppendStep(events: [.event(event, if: .nothingKnown(zone))])))
    } else {
      lose(zone, question.loss, words: "the server does not have it: \(error)")
    }
  }

  /// Sets a zone aside as lost, unless the app has asked meanwhile to erase it: a rule must not upload such a zone again.
  ///
  /// Its records stay as they are until a person or a rule decides. If it stays lost, the cycle ends with that error, so that the
  /// app learns of it.
  mutating func lose(_ zone: ZoneID, _ reason: ZoneLoss, words: String) {
    let event = SyncEvent.event(.zoneChanged(.lost(zone, reason, words: words)), if: .notErased(zone))
    addStep(.append(AppendStep(events: [event], losses: [zone])))
    (self[zone].feed, self[zone].phase) = (Feed(), .open)
  }

  /// A zone was found to be lost. Uploads that waited for its feed now wait for a decision, like all pending changes in it.
  mutating func noteLoss(of zone: ZoneID, _ facts: some SyncFacts) {
    cycle.noteLoss(of: zone)
    records.endDoubts(in: zone)
    sendFetched(zone, facts)
    queue.forgetFetch(of: zone)
  }

  // MARK: A zone that is created

  /// The zone was created at the server.
  mutating func created(_ zone: ZoneID, _ creation: ZoneCreation, _ facts: some SyncFacts) {
    pace.succeeded(.upload)
    if case .again = creation { self[zone].phase = .open }
    // Only a list of this cycle can show that the zone is new.
    let wasListed = cycle.fetchesFeed && cycle.options.asksForChanges && !due.isList
    // Apple's default zone always exists, and is in no list.
    let isNew = wasListed && facts.zone(zone)?.wasSeen != true && zone.name != Names.defaultZone
    let event = ZoneChanged(zone: zone, change: .created, policy: isNew ? ZoneState.newPolicy : "")
    // The app may have asked meanwhile to erase it: that comes next.
    addStep(.append(AppendStep(events: [.event(.zoneChanged(event), if: .notErased(zone))])))
  }
}
