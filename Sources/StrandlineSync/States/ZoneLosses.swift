// What may be done about a zone that the server lost, and what was decided.

/// What the engine does about a lost zone: one that the server does not have, or not as it was.
public enum ZoneLossRule: String, Hashable, Sendable, CaseIterable {
  /// Nothing: the zone is frozen, its records stay readable, and a person decides (`SyncEngine.resync`). The default.
  case ask
  /// Synced records are removed here, as by `resync` from the server. If the zone is gone, an unsent edit ends as
  /// `MutationOutcome.deletedOnServer` and stays in the history; if it exists, the server's answer to the edit decides. Records
  /// that the server never had are uploaded. The zone is synced again when the server has it, and created again when this device
  /// has or gets changes for it.
  case removeHere
  /// Everything is uploaded again, as by `resync` from here; a zone that is gone is created again.
  case uploadAgain
}

/// A rule's decision about a lost zone.
public struct ZoneLossDecision: Hashable, Sendable {
  /// The lost zone.
  public var zone: ZoneID
  /// Why it was lost.
  public var reason: ZoneLoss
  /// The rule that was carried out.
  public var rule: ZoneLossRule
  /// When, in milliseconds since 1970 by this device's clock: `date`.
  package var milliseconds: Int64
  /// How many of its records had unsent changes.
  public var unsent: Int
}

extension StrandlineError {
  /// What a caller gets that asks for something of a zone that is frozen.
  package static func loss(of zone: ZoneID, _ state: ZoneState) -> StrandlineError {
    let kept = "its records stay readable here and nothing of it is synced until"
    let words =
      state.isErased
      ? "zone '\(zone)' is erased (\(state.lostWords)); \(kept) 'resync' creates it again from here"
      : "zone '\(zone)' is lost: \(state.lostReason?.words ?? "it is not synced") (\(state.lostWords)); "
        + "\(kept) 'resync' lets one side decide"
    return StrandlineError(.zoneLost, words)
  }
}
