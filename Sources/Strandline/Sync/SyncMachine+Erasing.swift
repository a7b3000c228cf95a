// Ends zones at the server, as the app has asked for.
//
// A zone has a name and no number, so after a deletion whose answer was lost a zone of that name may be another one: another
// device has made it since. Its change tokens tell: those of the old zone are no good for the new one. So a zone is deleted
// only if the server takes its token; if it refuses it, the token may be of a zone that is gone, or too old, and the records
// tell: a zone that has none of those that this store knows was made since. All of its feed says so, which may begin with many
// empty pages, and with records that others have made while this device was away. Such a zone is left alone, and is not synced until a
// person decides.

import StrandlineSystem

extension SyncMachine {
  /// The zones that the app wants to be erased.
  var zonesToErase: [ZoneID] {
    store.projections.withLock { projections in
      var zones: [ZoneID] = []
      for (id, state) in projections.sync.zones where id.scope == scope && state.lostReason == .erasing {
        zones.append(id)
      }
      return zones
    }
  }

  /// The zone to delete at the server next.
  var zoneToErase: ZoneID? {
    let only = options.zone
    return zonesToErase.filter { zone in
      refusedZones[zone] == nil && queue.halts.refusedErasure(of: zone) == nil && (only == nil || only == zone)
    }.min()
  }

  /// The zones that the app wants to be erased, and that the server has refused to erase, each with its error.
  var haltedErasures: [ZoneID: CloudError] {
    var halted: [ZoneID: CloudError] = [:]
    for zone in zonesToErase { halted[zone] = queue.halts.refusedErasure(of: zone) }
    return halted
  }

  /// Deletes a zone at the server. One that it does not have was deleted by an earlier request, or by another device.
  mutating func erase(_ zone: ZoneID) async throws -> Bool {
    var isLeft = false
    do {
      guard let isThere = try await isTheOneToErase(zone) else { return true }
      // The app may have taken it back meanwhile.
      guard self.zone(zone)?.lostReason == .erasing else { return true }
      isLeft = !isThere
      if isThere {
        let doing = "erasing zone '\(zone)'"
        guard try await ask(.upload, doing, { [database] in try await database.deleteZone(zone) }) != nil else {
          return true
        }
      }
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .zoneMissing: break
      case .signIn: throw signIn(error)
      default:
        queue.haltErasure(of: zone, because: error)
        if let wait = error.retryAfterMilliseconds, wait > 0 {
          try await pace.failed(.upload, error, doing: "erasing zone '\(zone)'")
        }
        return true
      }
    }
    pace.succeeded(.upload)
    let words =
      isLeft ? "the zone of that name at the server was made since, and was left alone" : "the app has erased it"
    try await store.commit { core in
      // The app may have taken it back meanwhile.
      guard core.projections.sync.zones[zone]?.lostReason == .erasing else { return }
      try core.append(.zoneChanged(.lost(zone, .erased, words: words, policy: "erase")))
    }
    (fetches[zone], lookups[zone]) = (nil, nil)
    for id in doubts.keys where id.zone == zone { doubts[id] = nil }
    return true
  }

  /// Whether the server's zone of that name is the one that the app wants ended; nil if it did not answer.
  private mutating func isTheOneToErase(_ zone: ZoneID) async throws -> Bool? {
    let doing = "asking whether zone '\(zone)' is the one to erase"
    var isRefused = false
    if let token = self.zone(zone)?.token {
      do {
        let page = try await ask(.upload, doing) { [database] in
          try await database.zoneChanges(in: zone, since: token, limit: 1)
        }
        return page == nil ? nil : true
      } catch let error as CloudError where ErrorPolicy.mayBeExpiredToken(error) {
        isRefused = true
      }
    }
    var fetch = ZoneFetch()
    var token: ChangeToken?
    while true {
      let page: ZonePage?
      do {
        page = try await ask(.upload, doing) { [database, token, limit = fetch.limit] in
          try await database.zoneChanges(in: zone, since: token, limit: limit)
        }
      } catch let error as CloudError where ErrorPolicy.asksForLess(error) && fetch.limit > 1 {
        fetch.limit /= 2
        continue
      }
      guard let page else { return nil }
      if try !isRefused || knowsOne(of: page, in: zone) {
        try await keep(page.token, of: zone)
        return true
      }
      guard page.moreComing else { return false }
      try fetch.count(page, of: zone)
      guard page.token != token else {
        throw CloudError(
          .unexpectedServerResponse,
          reason: "a page of changes of zone '\(zone)' said that more is to come and left the token unchanged")
      }
      token = page.token
    }
  }

  /// The token says later which zone this was. The zone is not synced any more, and an app that takes the erasure back has it
  /// fetched from its beginning.
  private func keep(_ token: ChangeToken, of zone: ZoneID) async throws {
    try await store.commit { core in
      guard core.projections.sync.zones[zone]?.lostReason == .erasing else { return }
      try core.append(.tokenAdvanced(TokenAdvanced(zone: zone, asked: nil, token: token, sweepEpoch: 0)))
    }
  }

  /// Whether a page shows a record of a zone that this store has synced: by its name and the moment of its creation, which no
  /// change of it changes, or a name of which this store knows that it was deleted there.
  private func knowsOne(of page: ZonePage, in zone: ZoneID) throws -> Bool {
    try page.changes.contains { change in
      switch change {
      case .saved(let record):
        let base = try store.projections.entry(RecordID(record.name, zone: zone))?.base
        guard let created = base?.createdMilliseconds else { return false }
        return created == record.system.created?.milliseconds
      case .deleted(let name):
        let known = try store.projections.look(RecordID(name, zone: zone))
        return known.entry?.base != nil || known.deletion != nil
      case .failed: return false
      }
    }
  }
}
