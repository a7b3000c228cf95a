// Ends zones at the server, as the app has asked for.
//
// A zone has a name and no number, so after a deletion whose answer was lost a zone of that name may be another one: another
// device has made it since. Its change tokens tell: those of the old zone are no good for the new one. So a zone is deleted
// only if the server takes its token; if it refuses it, the token may be of a zone that is gone, or too old, and the records
// tell: a zone that has none of those that this store knows was made since. All of its feed says so, which may begin with many
// empty pages, and with records that others have made while this device was away. Such a zone is left alone, and is not synced
// until a person decides.

import StrandlineSystem

extension SyncPlan {
  /// The zones that the app wants to be erased.
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
  func zoneToErase(_ facts: some SyncFacts) -> ZoneID? {
    let only = cycle.options.zone
    return zonesToErase(facts).filter { zone in
      zones[zone]?.refusal == nil && queue.halts.refusedErasure(of: zone) == nil && (only == nil || only == zone)
    }.min()
  }

  /// The zones that the app wants to be erased, and that the server has refused to erase, each with its error.
  func haltedErasures(_ facts: some SyncFacts) -> [ZoneID: CloudError] {
    var halted: [ZoneID: CloudError] = [:]
    for zone in zonesToErase(facts) { halted[zone] = queue.halts.refusedErasure(of: zone) }
    return halted
  }

  /// What is asked next about a zone to erase.
  mutating func chooseErasure(of zone: ZoneID, _ facts: some SyncFacts) -> SyncRequest {
    let token = facts.zone(zone)?.token
    guard case .erasing(let erasure) = self[zone].phase else {
      let first = token == nil ? Erasure.readingFeed(Feed(), from: nil, tokenWasRefused: false) : .askingByToken
      self[zone].phase = .erasing(first)
      return chooseErasure(of: zone, facts)
    }
    switch erasure {
    case .askingByToken:
      return .page(PageRequest(zone: zone, known: token, limit: 1, purpose: .identity))
    case .readingFeed(let feed, let from, _):
      return .page(PageRequest(zone: zone, known: from, limit: feed.limit, purpose: .identity))
    case .deleting: return .eraseZone(zone)
    }
  }

  /// A page of a zone that is to be erased.
  mutating func takeIdentity(_ page: ZonePage, to request: PageRequest, _ facts: some SyncFacts) throws {
    let zone = request.zone
    guard case .erasing(let erasure) = self[zone].phase else { return }
    guard case .readingFeed(var feed, let from, let tokenWasRefused) = erasure else {
      // The server takes its token.
      return self[zone].phase = .erasing(.deleting)
    }
    if try !tokenWasRefused || knowsOne(of: page, in: zone, facts) {
      // The token says later which zone this was. The zone is not synced any more, and an app that takes the erasure back has it
      // fetched from its beginning.
      let event = TokenAdvanced(zone: zone, asked: nil, token: page.token, sweepEpoch: 0)
      steps.append(.append(AppendStep(events: [.event(.tokenAdvanced(event), if: .lost(zone, .erasing))])))
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
    case .askingByToken where ErrorPolicy.mayBeExpiredToken(error):
      self[zone].phase = .erasing(.readingFeed(Feed(), from: nil, tokenWasRefused: true))
    case .readingFeed(var feed, let from, let wasRefused) where ErrorPolicy.asksForLess(error) && feed.limit > 1:
      feed.limit /= 2
      self[zone].phase = .erasing(.readingFeed(feed, from: from, tokenWasRefused: wasRefused))
    case .askingByToken, .readingFeed, .deleting: try refuseErasure(of: zone, error, facts)
    }
  }

  mutating func refuseErasure(of zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) throws {
    switch ErrorPolicy.request(error) {
    // An earlier request has deleted it, or another device.
    case .zoneMissing: erased(zone, isLeft: false, facts)
    case .signIn: throw error
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
  /// - Parameter isLeft: it is another one, and was left alone.
  mutating func erased(_ zone: ZoneID, isLeft: Bool, _ facts: some SyncFacts) {
    pace.succeeded(.upload)
    let words =
      isLeft ? "the zone of that name at the server was made since, and was left alone" : "the app has erased it"
    // The app may have taken it back meanwhile.
    let event = Event.zoneChanged(.lost(zone, .erased, words: words, policy: "erase"))
    steps.append(.append(AppendStep(events: [.event(event, if: .lost(zone, .erasing))])))
    (self[zone].phase, self[zone].feed, self[zone].lookups) = (.open, Feed(), LookupQueue())
    records.endDoubts(in: zone)
  }

  /// Whether a page shows a record of a zone that this store has synced: by its name and the moment of its creation, which no
  /// change of it changes, or a name of which this store knows that it was deleted there.
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
