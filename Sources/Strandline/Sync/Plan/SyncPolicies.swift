// What an app decides once and for all about its sync, as values in `SyncConfiguration`: what becomes of a zone that is gone
// at the server, how large a request may be, and how long a record waits that is over quota. Nothing here is asked of the
// app while the engine runs, and each default destroys nothing.

import StrandlineSystem

/// What the engine does about a zone that is lost.
public enum ZoneLossRule: String, Hashable, Sendable, CaseIterable {
  /// Nothing: the zone is frozen, its records stay readable, and a person decides (`SyncEngine.resync`). The default.
  case ask
  /// What was synced is removed here, as `resync` from the server does it. If the zone is gone, an edit that is not sent ends as
  /// `MutationOutcome.deletedOnServer`, and stays in the history; if it is there, the server's answer to the edit decides. A record
  /// that the server never had is uploaded. The zone is synced again when the server has it again, and it is made again for
  /// what is pending or is written here later.
  case removeHere
  /// Everything is uploaded again, as `resync` from here does it; a zone that is gone is made again.
  case uploadAgain
}

/// What the engine does about zones that are lost, by the reason of the loss. Nothing is removed or uploaded by default.
///
/// The cycle that learns of the loss carries the rule out, if it both fetches and sends; one that was interrupted is gone on with, after a relaunch too.
/// `SyncReport.lossesDecided` and `SyncStatus.lossesDecided` say so. A rule decides about a zone once in 24 hours: one
/// that is lost again before is frozen until a person decides, or until the day is over. So two devices of which one ends
/// what the other one makes again do not go on for ever.
public struct ZoneLossRules: Hashable, Sendable {
  private var rules: [ZoneLoss: ZoneLossRule] = [:]

  /// A zone that was emptied, or deleted and made again, is followed without a question if no more of its records than this live
  /// here and nothing of it is unsent: they are removed, and it is synced as it is now. 0 by default: a person is asked.
  ///
  /// Its reason is `.deleted`, as that of a zone which the server does not have.
  public var remadeFollowedMax = 0

  /// Asks about every zone.
  public init() {}

  /// The rule for a reason. The reasons `.erasing` and `.erased` have none: the app has ended such a zone itself.
  public subscript(reason: ZoneLoss) -> ZoneLossRule {
    get { rules[reason] ?? .ask }
    set {
      guard reason != .erasing, reason != .erased else { return }
      rules[reason] = newValue == .ask ? nil : newValue
    }
  }
}

/// What a rule has decided about a zone that was lost.
public struct ZoneLossDecision: Hashable, Sendable {
  /// The zone that was lost.
  public var zone: ZoneID
  /// Why it was lost.
  public var reason: ZoneLoss
  /// What was decided.
  public var rule: ZoneLossRule
  /// When, in milliseconds since 1970 by this device's clock.
  public var milliseconds: Int64
  /// How many records of it had changes that the server lacked.
  public var unsent: Int
}

/// How large an upload may be: smaller ones for a slow network, where a request that is lost costs less.
///
/// What has to go in one request goes in one all the same: one record, records that refer to each other in a circle, and a
/// set of an atomic zone.
public struct UploadBatch: Hashable, Sendable {
  /// The most operations of a request: 200 by default, which is the most that the server takes; at least one.
  public var operations = UploadPlan.operationsMax
  /// The most bytes of a request's JSON: 2,000,000 by default, which is the most.
  public var bytes = UploadPlan.requestBytesMax

  /// As large as the server takes them.
  public init() {}

  var operationsMax: Int { min(max(1, operations), UploadPlan.operationsMax) }
  var bytesMax: Int { min(max(1, bytes), UploadPlan.requestBytesMax) }
}

/// How long a record waits that the server refuses because the user's storage is full, if the server names no time.
public struct OverQuotaWait: Hashable, Sendable {
  /// The first wait; it doubles with each refusal. Five minutes by default, a second at least.
  public var first: Duration = .seconds(300)
  /// The longest wait: a day by default.
  public var longest: Duration = .seconds(24 * 3600)

  /// Five minutes at first, and a day at last.
  public init() {}

  /// The wait after so many refusals.
  func milliseconds(attempts: UInt64) -> Int64 {
    let first = max(1_000, first.wholeMilliseconds)
    let (wait, isOver) = first.multipliedReportingOverflow(by: 1 << Int64(min(max(attempts, 1) - 1, 16)))
    return max(1_000, min(longest.wholeMilliseconds, isOver ? .max : wait))
  }
}

/// The parts of the configuration that the engine's steps follow.
struct SyncPolicies: Sendable {
  let losses: ZoneLossRules
  let batch: UploadBatch
  let overQuota: OverQuotaWait
  let appVersion: String
  let firstFetch: FirstFetch
  let zones: SyncedZones
}
