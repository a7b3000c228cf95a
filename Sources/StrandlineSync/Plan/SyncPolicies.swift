// The app's decisions about sync, as values in `SyncConfiguration`, so that the engine calls no app code while it runs: what happens
// to a zone that the server lost, how large a request may be. No default destroys data.

import StrandlineSystem

/// What the engine does about lost zones, by the reason of the loss. By default nothing is removed or uploaded.
///
/// The cycle that learns of the loss carries out the rule, if it both fetches and sends. After an interruption the next cycle
/// goes on, also after a relaunch. `SyncReport.lossesDecided` and `SyncStatus.lossesDecided` say what was decided.
/// A rule decides about a zone once in 24 hours. If the zone is lost again within that time, it is frozen until a person decides
/// or the time is over. Otherwise one device's delete and another's re-create could repeat for ever.
public struct ZoneLossRules: Hashable, Sendable {
  private var rules: [ZoneLoss: ZoneLossRule] = [:]

  /// A zone that was emptied, or deleted and created again, is followed without asking if this device has at most this many of its
  /// synced records and no unsent change: they are removed, and the zone is synced as it is now. 0 by default: a person is asked.
  ///
  /// The reason of such a loss is `.deleted`, as for a zone that the server does not have.
  public var remadeFollowedMax = 0

  /// Asks about every zone.
  public init() {}

  /// The rule for a reason. The reasons `.erasing` and `.erased` have none: the app has erased such a zone itself.
  public subscript(reason: ZoneLoss) -> ZoneLossRule {
    get { rules[reason] ?? .ask }
    set {
      guard reason != .erasing, reason != .erased else { return }
      rules[reason] = newValue == .ask ? nil : newValue
    }
  }
}

/// How large an upload may be. On a slow network a smaller one costs less when it is lost.
///
/// Some changes are always sent in one request: one record, records that refer to each other in a circle, and an atomic
/// zone's transaction.
package struct UploadBatch: Hashable, Sendable {
  /// The most operations of a request, at least one; nil, the default: the server's maximum.
  package var operations: Int?
  /// The most bytes of a request's JSON: 2,000,000 by default, the maximum.
  package var bytes = UploadPlan.requestBytesMax

  /// Requests as large as the server accepts.
  package init() {}

  func operationsMax(ofServer most: Int) -> Int { min(max(1, operations ?? most), most) }
  var bytesMax: Int { min(max(1, bytes), UploadPlan.requestBytesMax) }
}

/// The parts of the configuration that the engine's steps follow.
package struct SyncPolicies: Sendable {
  package let losses: ZoneLossRules
  package let batch: UploadBatch
  package let appVersion: String
  package let firstFetch: FirstFetch
  package let zones: SyncedZones

  package init(
    losses: ZoneLossRules, batch: UploadBatch, appVersion: String, firstFetch: FirstFetch, zones: SyncedZones
  ) {
    self.losses = losses
    self.batch = batch
    self.appVersion = appVersion
    self.firstFetch = firstFetch
    self.zones = zones
  }
}
