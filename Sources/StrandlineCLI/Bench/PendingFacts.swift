// A log in which very many records are pending, each with its first save. Nothing is stored: each answer is computed when the plan asks.

import Strandline
import StrandlineLog
import StrandlineSystem

/// The facts of such a log.
struct PendingFacts: SyncFacts {
  private static let zone = ZoneID("Notes")
  private static let address = CloudAddress(container: "iCloud.bench", environment: .development)
  private let count: UInt64
  private let clock: any SystemClock
  private let state: SyncState

  init(_ count: Int, _ clock: any SystemClock) {
    (self.count, self.clock) = (UInt64(count), clock)
    var state = SyncState()
    var zone = ZoneState()
    zone.wasSeen = true
    _ = state.assign(.zone(Self.zone, zone))
    _ = state.assign(.tenure(Tenure(tenure: 1, writer: 5, first: LSN(1))))
    _ = state.assign(
      .bound(
        Self.address.scope,
        Bound(
          container: Self.address.container, environment: Self.address.environment.rawValue, scope: Self.address.scope,
          userHash: Bound.hash(ofUser: "user"))))
    self.state = state
  }

  /// Drives a new plan up to its first upload.
  ///
  /// - Returns: how many records it carries.
  func firstUpload(_ random: any RandomSource) throws -> Int {
    var plan = SyncPlan(
      self, Self.address,
      SyncPolicies(
        losses: ZoneLossRules(), batch: UploadBatch(), appVersion: "",
        firstFetch: .pageByPage, zones: .all), RequestPace.Policy(SyncPace(), random))
    var options = CycleOptions()
    (options.direction, options.asksForChanges) = (.pushOnly, false)
    plan.begin(options, self)
    while true {
      switch try plan.next(self, SyncPlan.Means()) {
      case .store(.takeKept(let readsAgain)):
        try plan.recorded(.takeKept(readsAgain: readsAgain), .taken(TakenChanges()), self)
      case .ask(.user): try plan.apply(SyncOutcome(result: .success(.user("user"))), to: .user, self)
      case .ask(.modify(let upload)): return upload.uploads.count
      case .ask, .store, .wait, .outOfTime, .done: return 0
      }
    }
  }

  var now: Moment { Moment(clock) }
  var appliedLSN: LSN { LSN(rawValue: count) }
  var durableLSN: LSN { appliedLSN }
  var schema: Schema { Schema() }
  var hasAttempts: Bool { false }

  func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value { read(state) }
  func attempted(_ pending: Pending?) -> LSN? { nil }
  func wasAttempted(_ lsn: LSN) -> Bool { false }
  func knowsNothing(of zone: ZoneID) -> Bool { false }
  func hasPending(in zone: ZoneID) -> Bool { zone == Self.zone && count > 0 }
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID> { [] }
  func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord { KnownRecord(entry: try entry(id), deletion: nil) }

  func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    guard let number = UInt64(id.name.dropFirst()), (1...count).contains(number) else { return nil }
    return RecordEntry(type: "Note", pending: Pending(isDeletion: false, newest: LSN(rawValue: number)))
  }

  func pending(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] {
    let last = min(self.count, end.rawValue)
    guard lsn.rawValue < last else { return [] }
    return ((lsn.rawValue + 1)...min(last, lsn.rawValue + UInt64(count))).map { LSN(rawValue: $0) }
  }

  func change(at lsn: LSN) throws(StrandlineError) -> PendingFact { .change(id(lsn), logged(lsn)) }
  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent? { logged(lsn) }
  func event(at lsn: LSN) throws(StrandlineError) -> Event { saved(lsn) }
  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event { saved(lsn) }

  private func id(_ lsn: LSN) -> RecordID { RecordID("n\(lsn.rawValue)", zone: Self.zone) }

  private func logged(_ lsn: LSN) -> LogEvent {
    LogEvent(
      lsn: lsn.rawValue, schema: EventCodec.schema, body: EventCodec.encode(saved(lsn)), indexInTransaction: 0,
      isFirst: true, isLast: true, segmentID: 0, offset: 0)
  }

  private func saved(_ lsn: LSN) -> Event {
    var version = Version(type: "Note", fields: ["title": .string("n\(lsn.rawValue)")])
    let time = HybridTime(milliseconds: Int64(lsn.rawValue))
    version.stamp.births = [Birth(time: time, writer: 5)]
    return .saved(
      Saved(
        id: id(lsn), type: "Note", births: version.stamp.births, base: .zero, time: time, editCount: 1, tenure: 1,
        isCreation: true, content: EncodedContent(version, dirty: ["title": .zero])))
  }
}
