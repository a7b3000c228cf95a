// How many records or zones one request may hold. The server's refusals are the only way to learn how many it takes.

import StrandlineSystem

/// The most that one request holds. A refusal halves it; after some answers to requests of that size it doubles, up to where it
/// began.
struct AdaptiveLimit: Hashable, Sendable {
  let max: Int
  private(set) var current: Int
  /// Answers to full requests before it grows.
  private(set) var growsAfter: Int
  private var answered = 0
  /// Whether each refusal doubles `growsAfter`, because a refused request, or its answer, has carried all of its bytes.
  private let isCostly: Bool

  static let growsAfterMin = 4
  static let growsAfterMax = 1_024

  init(_ max: Int, isCostly: Bool = false, current: Int? = nil) {
    (self.max, self.isCostly) = (max, isCostly)
    self.current = Swift.min(max, current ?? max)
    growsAfter = isCostly ? Self.growsAfterMin : 1
  }

  /// A request with this number was refused as too much.
  mutating func refused(_ count: Int) { shrink(to: count / 2) }

  mutating func shrink(to count: Int) {
    current = Swift.max(1, Swift.min(current, count))
    answered = 0
  }

  /// Doubles the number of answers before the next growth.
  mutating func growLater() { if isCostly { growsAfter = Swift.min(Self.growsAfterMax, growsAfter * 2) } }

  /// A request with this number was answered.
  ///
  /// - Returns: whether it has grown.
  @discardableResult
  mutating func answered(_ count: Int) -> Bool {
    guard count >= current, current < max else { return false }
    answered += 1
    guard answered >= growsAfter else { return false }
    (answered, current) = (0, Swift.min(max, current * 2))
    return true
  }

  /// The refusals had another cause than the number.
  mutating func restore(_ before: (current: Int, growsAfter: Int)) {
    (current, growsAfter) = (Swift.max(current, Swift.min(max, before.current)), before.growsAfter)
  }

  mutating func reset() { (current, answered) = (max, 0) }
}

/// The limits that outlast a request. `Feed.limit` has that of a zone's pages.
package struct RequestLimits: Sendable {
  /// Operations of an upload.
  var operations: AdaptiveLimit
  var lookups = AdaptiveLimit(UploadPlan.operationsMax)
  var listed = AdaptiveLimit(UploadPlan.operationsMax, isCostly: true)
  /// Zones of which one request asks for pages.
  var zones = AdaptiveLimit(SyncPlan.zonesTogetherMax, isCostly: true)

  /// - Parameter learned: the limit of operations that an earlier process has logged; 0: no request was refused.
  init(operations max: Int, learned: Int) {
    operations = AdaptiveLimit(max, isCostly: true, current: learned > 0 ? learned : nil)
  }
}

/// The halves of a batch that the server refused as too large. The engine sends them at once, until it has found the record that
/// the server refuses alone.
struct BatchSplit: Sendable {
  /// How often batches of one cycle are halved: about twice as often as finding one wrong record of 200 needs.
  static let splitsMax = 36

  /// The halves that were not sent yet, the next one last.
  var parts: [(zone: ZoneID, units: [[UploadItem]])] = []
  /// Halves are being sent.
  var isOpen = false
  /// The units that were refused alone.
  var refusedAlone: [(batch: [Upload], error: CloudError)] = []
  /// The limit to restore if the split finds one bad record rather than a batch that was too large.
  var limitBefore: (current: Int, growsAfter: Int)?
  /// How often batches of this cycle may still be halved.
  var splitsLeft = BatchSplit.splitsMax
  /// The types of which the server took a save in this cycle.
  var takenTypes: Set<UploadHalts.HaltedType> = []
}
