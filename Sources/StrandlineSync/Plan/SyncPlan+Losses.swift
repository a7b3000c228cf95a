// Carries out the app's rules for lost zones. A decision is logged as a `reset` of the zone, like a person's, and the same steps
// follow; so a relaunch after a crash goes on.
//
// The `reset` has a time, and the next decision about the zone comes a day later at the earliest: a server that loses the zone each
// time, or a device that deletes it whenever this one creates it, gets one answer a day. A zone that a rule has removed then
// follows the server without further decisions: it is synced again when the server has it, or when this store has pending changes.

import StrandlineSystem

extension SyncPlan {
  /// The shortest time between two decisions about a zone.
  static let ruleMilliseconds: Int64 = 24 * 3_600_000

  /// Carries out the rule for the next zone that is lost; false if there is nothing to decide.
  mutating func decideLoss(_ facts: some SyncFacts) throws -> Bool {
    guard cycle.options.direction == .both else { return false }
    let (only, synced, sync) = (cycle.options.zone, synced, facts.learned { $0 })
    let lost = sync.zones.filter { id, state in
      state.isLost && (only == nil || only == id) && synced.takes(id, sync)
    }
    for (zone, state) in lost.sorted(by: { $0.key < $1.key }) {
      guard let step = try state.isFollowed ? follow(zone, state) : decide(zone, state, facts) else { continue }
      addStep(.decideLoss(step))
      return true
    }
    return false
  }

  private func decide(_ zone: ZoneID, _ state: ZoneState, _ facts: some SyncFacts) throws -> LossStep? {
    guard let reason = state.lostReason else { return nil }
    let rule = policies.losses[reason]
    let source: ResyncSource
    switch rule {
    case .ask: return nil
    case .removeHere: source = .server
    case .uploadAgain: source = .here
    }
    let now = max(1, facts.now.wall)
    // A time in the future is from a clock that was corrected since.
    if state.ruledMilliseconds != 0, (0..<Self.ruleMilliseconds).contains(now &- state.ruledMilliseconds) { return nil }
    let words = "the app's rule for a zone that was lost with the reason '\(reason)'"
    // The store counts its unsent changes.
    return LossStep(
      zone: zone, reason: reason, reset: Self.reset(zone, source, words, at: now),
      decision: ZoneLossDecision(zone: zone, reason: reason, rule: rule, milliseconds: now, unsent: 0))
  }

  /// A zone that a rule has removed is synced again if the server has it again, or if it has pending changes.
  private func follow(_ zone: ZoneID, _ state: ZoneState) -> LossStep? {
    guard state.isDirty || queue.frozenZones.contains(zone) else { return nil }
    let words = state.isDirty ? "the server has the zone again" : "the app has written to the zone"
    let reset = Self.reset(zone, state.isDirty ? .server : .here, words, at: state.ruledMilliseconds)
    return LossStep(zone: zone, reason: .erased, reset: reset)
  }

  private static func reset(
    _ zone: ZoneID, _ source: ResyncSource, _ words: String, at ruled: Int64
  ) -> ZoneChanged {
    ZoneChanged(zone: zone, change: .reset, words: words, policy: source.rawValue, ruledMilliseconds: ruled)
  }

  /// A decision about a zone was logged.
  ///
  /// - Parameter unsent: how many of its records have unsent changes.
  mutating func decided(_ step: LossStep, unsent: Int) {
    cycle.forgetLoss(of: step.zone)
    // Its fetch begins again.
    (self[step.zone].phase, self[step.zone].feed) = (.open, Feed())
    if var decision = step.decision {
      decision.unsent = unsent
      say(decision)
    }
  }

  /// The app follows a zone that was emptied, or made again, without a question (`ZoneLossRules.remadeFollowedMax`).
  mutating func sayFollowed(_ zone: ZoneID, _ facts: some SyncFacts) {
    let now = max(1, facts.now.wall)
    say(ZoneLossDecision(zone: zone, reason: .deleted, rule: .removeHere, milliseconds: now, unsent: 0))
  }

  private mutating func say(_ decision: ZoneLossDecision) {
    cycle.report.lossesDecided.append(decision)
    tell(.decided(decision))
  }
}
