// Ends zones at the server, as the app has asked for.
//
// A zone has a name and no number, so after a deletion whose answer was lost a zone of that name may be another one: another
// device has made it since. Its change tokens tell: those of the old zone are no good for the new one. So before a zone is
// deleted, its token is known to be good; that a request for the deletion leaves is durable before it leaves; and before another
// one leaves, the feed is asked with that token. If the server refuses it, or has no such zone, the old zone is gone and the
// erasure has been carried out. A zone that was made since is left alone, and is not synced until a person decides.

import StrandlineSystem

extension SyncMachine {
  /// What the loss of a zone says while a request for its deletion may have reached the server.
  private static let deletionLeft = "a request to delete it has left, and the answer is not known"

  /// The zone to delete at the server next.
  var zoneToErase: ZoneID? {
    let (scope, only) = (scope, options.zone)
    return store.projections.withLock { $0.sync.zones }.lazy.filter { id, state in
      id.scope == scope && state.lostReason == .erasing && refusedZones[id] == nil && (only == nil || only == id)
    }.map(\.key).min()
  }

  /// Deletes a zone at the server. One that it does not have was deleted by an earlier request, or by another device.
  mutating func erase(_ zone: ZoneID) async throws -> Bool {
    var hasLeft = false
    do {
      let mayHaveLeft = self.zone(zone)?.lostWords == Self.deletionLeft
      guard let isThere = try await isTheOneToErase(zone, mayHaveLeft: mayHaveLeft) else { return true }
      if isThere {
        guard try await note(zone, Self.deletionLeft) else { return true }
        hasLeft = true
        let doing = "erasing zone '\(zone)'"
        guard try await ask(.upload, doing, { [database] in try await database.deleteZone(zone) }) != nil else {
          return true
        }
      }
    } catch let error as CloudError {
      if hasLeft, ErrorPolicy.appliedNothing(error), ErrorPolicy.request(error) != .zoneMissing {
        _ = try await note(zone, "the app has asked for its end, and the server refused it: \(error.code.rawValue)")
      }
      switch ErrorPolicy.request(error) {
      case .zoneMissing: break
      case .signIn: throw signIn(error)
      default:
        refusedZones[zone] = error
        return true
      }
    }
    pace.succeeded(.upload)
    try await store.commit { core in
      // The app may have taken it back meanwhile.
      guard core.projections.sync.zones[zone]?.lostReason == .erasing else { return }
      try core.append(.zoneChanged(.lost(zone, .erased, words: "the app has erased it", policy: "erase")))
    }
    (fetches[zone], lookups[zone]) = (nil, nil)
    for id in doubts.keys where id.zone == zone { doubts[id] = nil }
    return true
  }

  /// Whether the server's zone of that name is the one that the app wants ended, by its token; nil if it did not answer.
  ///
  /// - Parameter mayHaveLeft: a request to delete it may have been carried out.
  private mutating func isTheOneToErase(_ zone: ZoneID, mayHaveLeft: Bool) async throws -> Bool? {
    let doing = "asking whether zone '\(zone)' is the one to erase"
    if let token = self.zone(zone)?.token {
      do {
        let page = try await ask(.upload, doing) { [database] in
          try await database.zoneChanges(in: zone, since: token, limit: 1)
        }
        return page == nil ? nil : true
      } catch let error as CloudError where ErrorPolicy.mayBeExpiredToken(error) {
        if mayHaveLeft { return false }
      }
    }
    // It was never fetched, or its token has expired: another token says later which zone this was. The zone is not synced any
    // more, and whoever takes the erasure back has it fetched from its beginning.
    let page = try await ask(.upload, doing) { [database] in
      try await database.zoneChanges(in: zone, since: nil, limit: 1)
    }
    guard let page else { return nil }
    try await store.commit { core in
      guard core.projections.sync.zones[zone]?.lostReason == .erasing else { return }
      try core.append(.tokenAdvanced(TokenAdvanced(zone: zone, asked: nil, token: page.token, sweepEpoch: 0)))
    }
    return true
  }

  /// Notes how far an erasure is; false if the app has taken it back.
  private func note(_ zone: ZoneID, _ words: String) async throws -> Bool {
    var isErasing = false
    try await store.commit { core in
      let state = core.projections.sync.zones[zone]
      isErasing = state?.lostReason == .erasing
      guard isErasing, state?.lostWords != words else { return }
      try core.append(.zoneChanged(.lost(zone, .erasing, words: words, policy: "erase")))
    }
    if isErasing { try await store.flushBeforeLeaving() }
    return isErasing
  }
}
