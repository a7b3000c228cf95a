// What the app's rules do about zones that are lost. A decision is a `reset` of the zone in the log, as a person's is, and the
// steps that follow it are the same; so a crash in between costs nothing, and a relaunch goes on.
//
// The `reset` has its moment. The next decision about the zone comes a day after it at the earliest: a server that loses the
// zone each time, or a device that ends it whenever this one makes it again, gets one answer a day. A zone that a rule has
// removed is not asked about any more, so it follows the server: it is synced again when the server has it again, or when
// something is owed to it.

import StrandlineSystem

extension SyncMachine {
  /// A rule decides about a zone so often.
  static let ruleMilliseconds: Int64 = 24 * 3_600_000

  /// Carries out the rules for the zones that are lost; false if there is nothing to decide.
  mutating func decideLosses() async throws -> Bool {
    guard options.direction == .both else { return false }
    let (scope, only) = (scope, options.zone)
    let lost = store.projections.withLock { $0.sync.zones }.filter { id, state in
      id.scope == scope && state.isLost && (only == nil || only == id)
    }
    var hasDecided = false
    for (zone, state) in lost.sorted(by: { $0.key < $1.key }) {
      if try await state.isFollowed ? follow(zone, state) : decide(zone, state) { hasDecided = true }
    }
    return hasDecided
  }

  /// The app follows a zone that was emptied, or made again, without a question (`ZoneLossRules.remadeFollowedMax`).
  mutating func sayFollowed(_ zone: ZoneID) {
    let now = max(1, store.environment.clock.wallMilliseconds())
    say(ZoneLossDecision(zone: zone, reason: .deleted, rule: .removeHere, milliseconds: now, unsent: 0))
  }

  private mutating func say(_ decision: ZoneLossDecision) {
    report.lossesDecided.append(decision)
    watch.decided(decision)
  }

  private mutating func decide(_ zone: ZoneID, _ state: ZoneState) async throws -> Bool {
    guard let reason = state.lostReason else { return false }
    let source: ResyncSource
    switch policies.losses[reason] {
    case .ask: return false
    case .removeHere: source = .server
    case .uploadAgain: source = .here
    }
    let now = max(1, store.environment.clock.wallMilliseconds())
    // A moment from the future is of a clock that was put right since.
    if state.ruledMilliseconds != 0, (0..<Self.ruleMilliseconds).contains(now &- state.ruledMilliseconds) {
      return false
    }
    let unsent = try store.owed(in: zone)
    let words = "the app's rule for a zone that was lost with the reason '\(reason)'"
    guard try await reset(zone, source, words, at: now, ifLost: reason) else { return false }
    say(
      ZoneLossDecision(zone: zone, reason: reason, rule: policies.losses[reason], milliseconds: now, unsent: unsent))
    return true
  }

  /// A zone that a rule has removed is synced again if the server has it again, or if something is owed to it.
  private mutating func follow(_ zone: ZoneID, _ state: ZoneState) async throws -> Bool {
    guard state.isDirty || queue.frozenZones.contains(zone) else { return false }
    let words = state.isDirty ? "the server has the zone again" : "the zone is written to"
    return try await reset(
      zone, state.isDirty ? .server : .here, words, at: state.ruledMilliseconds, ifLost: .erased)
  }

  private mutating func reset(
    _ zone: ZoneID, _ source: ResyncSource, _ words: String, at ruled: Int64, ifLost reason: ZoneLoss
  ) async throws -> Bool {
    var isReset = false
    try await store.commit { core in
      // A person may have decided meanwhile.
      isReset = core.projections.sync.zones[zone]?.lostReason == reason
      guard isReset else { return }
      try core.append(
        .zoneChanged(
          ZoneChanged(zone: zone, change: .reset, words: words, policy: source.rawValue, ruledMilliseconds: ruled)))
    }
    if isReset {
      refusedZones[zone] = nil
      lostZones.remove(zone)
    }
    return isReset
  }
}

extension StoreCore {
  /// The engine has found that a zone is gone, or not what it was. What the app has asked for about it while the server was asked
  /// counts: a zone that is to be erased is not uploaded again by a rule.
  mutating func appendLoss(of zone: ZoneID, _ reason: ZoneLoss, words: String) throws {
    guard projections.sync.zones[zone]?.isErased != true else { return }
    try append(.zoneChanged(.lost(zone, reason, words: words)))
  }
}

extension RecordStore {
  /// Whether nothing of a zone is here but its name, which a list has named: no token, no record, and nothing that is owed or held.
  func hasNothing(of zone: ZoneID) throws -> Bool {
    let knowsNothing = projections.withLock { $0.knowsNothing(of: zone) }
    return try knowsNothing && owed(in: zone) == 0
  }

  /// How many records of a zone owe something. O(all that do): asked when a zone is lost.
  func owed(in zone: ZoneID) throws -> Int {
    let lsns = projections.owed(.max, after: .none, upTo: source.durableLSN)
    return try lsns.count { lsn in
      // The upload holds by its name what cannot be read.
      do { return try owner(ofPending: lsn)?.zone == zone } catch let error as StrandlineError where error.isOfOneRecord
      {
        return false
      }
    }
  }
}

extension Projections {
  /// Whether a zone has no token, no living record, and nothing that could not be read. A deletion may be owed all the same.
  func knowsNothing(of zone: ZoneID) -> Bool {
    sync.zones[zone]?.token == nil && records.living[zone]?.total ?? 0 == 0
      && !sync.unread.keys.contains { $0.zone == zone }
  }
}
