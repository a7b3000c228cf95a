// Deletes zones at the server when the app has asked for that, and only the right ones.
//
// A zone is known only by its name. After a deletion whose answer was lost, another device may have created a new zone of that name.
// The server accepts a change token only for the zone that it is from, so a zone whose token it accepts is deleted. A refused
// token may be of a deleted zone, or expired; then the records decide. The feed is read from its beginning: a zone with one record
// that this store knows is deleted. A zone without any was created since: it is left alone, and not synced until a person
// decides.

import StrandlineSystem

extension SyncPlan {
  /// The zones that the app wants erased.
  func zonesToErase(_ facts: some SyncFacts) -> [ZoneID] {
    let synced = synced
    return facts.learned { sync in
      var zones: [ZoneID] = []
      for (id, state) in sync.zones where state.lostReason == .erasing {
        if synced.takes(id, sync) { zones.append(id) }
      }
      return zones
    }
  }

  /// The zone to delete at the server next.
  func zoneToErase(_ facts: some SyncFacts) -> ZoneID? { zonesToErase(facts, isResting: false).min() }

  /// Those of them that this cycle erases.
  ///
  /// - Parameter isResting: those that are not asked for a page now.
  func zonesToErase(_ facts: some SyncFacts, isResting: Bool) -> [ZoneID] {
    guard cycle.sends else { return [] }
    let only = cycle.options.zone
    return zonesToErase(facts).filter { zone in
      zones[zone]?.refusal == nil && queue.halts.refusedErasure(of: zone) == nil && (only == nil || only == zone)
        && (zones[zone]?.feed.rest != nil) == isResting
    }
  }

  /// Whether a zone is still to be erased, right before the request leaves: the app may have taken the erasure back since it was chosen.
  package mutating func stillErases(_ zone: ZoneID, _ facts: some SyncFacts) -> Bool {
    if facts.zone(zone)?.lostReason == .erasing { return true }
    self[zone].phase = .open
    return false
  }

  /// The zones whose erasure the server has refused, each with its error.
  func haltedErasures(_ facts: some SyncFacts) -> [ZoneID: CloudError] {
    var halted: [ZoneID: CloudError] = [:]
    for zone in zonesToErase(facts) { halted[zone] = queue.halts.refusedErasure(of: zone) }
    return halted
  }

  /// The next request about a zone to erase.
  mutating func chooseErasure(of zone: ZoneID, _ facts: some SyncFacts) -> SyncRequest {
    let token = facts.zone(zone)?.token
    guard case .erasing(let erasure) = self[zone].phase else {
      let first = token == nil ? Erasure.readingFeed(Feed(), from: nil, tokenWasRefused: false) : .askingByToken
      self[zone].phase = .erasing(first)
      return chooseErasure(of: zone, facts)
    }
    switch erasure {
    case .askingByToken:
      return .pages([PageRequest(zone: zone, known: token, limit: 1, purpose: .identity)])
    case .readingFeed(let feed, let from, _):
      return .pages([PageRequest(zone: zone, known: from, limit: feed.limit, purpose: .identity)])
    case .deleting: return .eraseZone(zone)
    }
  }

  /// A page of a zone that is to be erased.
  mutating func takeIdentity(_ page: ZonePage, to request: PageRequest, _ facts: some SyncFacts) throws {
    let zone = request.zone
    guard case .erasing(let erasure) = self[zone].phase else { return }
    guard case .readingFeed(var feed, let from, let tokenWasRefused) = erasure else {
      // The server accepts its token.
      return self[zone].phase = .erasing(.deleting)
    }
    if try !tokenWasRefused || knowsOne(of: page, in: zone, facts) {
      // This token identifies the zone later. It skips no change: if the app takes the erasure back, the zone is fetched from its
      // beginning.
      let event = TokenAdvanced(zone: zone, asked: nil, token: page.token, sweepEpoch: 0)
      addStep(.append(AppendStep(events: [.event(.tokenAdvanced(event), if: .lost(zone, .erasing))])))
      return self[zone].phase = .erasing(.deleting)
    }
    guard page.moreComing else { return erased(zone, isLeft: true, facts) }
    let defect = feed.progress.count(
      asked: from, token: page.token, isEmpty: page.changes.isEmpty, moreComing: page.moreComing)
    if let defect {
      let error = CloudError(.unexpectedServerResponse, reason: "the feed of zone '\(zone)' says \(defect)")
      return haltErasure(of: zone, error, facts)
    }
    self[zone].phase = .erasing(.readingFeed(feed, from: page.token, tokenWasRefused: true))
  }

  mutating func refuseIdentity(_ request: PageRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    guard case .erasing(let erasure) = self[zone].phase else { return }
    switch erasure {
    case .askingByToken where error.meaning.mayBeExpiredToken:
      self[zone].phase = .erasing(.readingFeed(Feed(), from: nil, tokenWasRefused: true))
    case .readingFeed(var feed, let from, let wasRefused) where error.meaning.asksForLess && feed.limit > 1:
      feed.limit /= 2
      self[zone].phase = .erasing(.readingFeed(feed, from: from, tokenWasRefused: wasRefused))
    case .askingByToken, .readingFeed, .deleting: try refuseErasure(of: zone, error, facts)
    }
  }

  mutating func refuseErasure(of zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) throws {
    switch error.meaning.request {
    // An earlier request has deleted it, or another device.
    case .zoneMissing: erased(zone, isLeft: false, facts)
    case _ where error.endsCycle: throw error
    default: haltErasure(of: zone, error, facts)
    }
  }

  private mutating func haltErasure(of zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) {
    self[zone].phase = .open
    queue.haltErasure(of: zone, because: error, at: facts.now.nanoseconds)
    failedIfNamed(.upload, error, doing: SyncRequest.eraseZone(zone).words, facts)
  }

  /// A zone is gone at the server.
  ///
  /// - Parameter isLeft: a new zone has its name, and was left alone.
  mutating func erased(_ zone: ZoneID, isLeft: Bool, _ facts: some SyncFacts) {
    pace.succeeded(.upload)
    let words =
      isLeft
      ? "the server's zone of that name was made since, by another device, and was left alone" : "the app has erased it"
    // The app may have taken the erasure back meanwhile.
    let event = Event.zoneChanged(.lost(zone, .erased, words: words, policy: "erase"))
    addStep(.append(AppendStep(events: [.event(event, if: .lost(zone, .erasing))])))
    (self[zone].phase, self[zone].feed, self[zone].lookups) = (.open, Feed(), LookupQueue())
    records.endDoubts(in: zone)
  }

  /// Whether a page shows a record that this store has synced, by its name and its time of creation, which edits do not change; or a
  /// deletion of one.
  private func knowsOne(of page: ZonePage, in zone: ZoneID, _ facts: some SyncFacts) throws -> Bool {
    try page.changes.contains { change in
      switch change {
      case .saved(let record):
        let base = try facts.entry(RecordID(record.name, zone: zone))?.base
        guard let created = base?.createdMilliseconds else { return false }
        return created == record.system.created?.milliseconds
      case .deleted(let name):
        let known = try facts.look(RecordID(name, zone: zone))
        return known.entry?.base != nil || known.deletion != nil
      case .failed: return false
      }
    }
  }
}
