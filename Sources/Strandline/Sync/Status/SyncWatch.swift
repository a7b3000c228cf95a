// Publishes the engine's status. Once a turn the driver reports which request begins or has ended, and its waits. A status is made on
// demand, of these reports and of the pending and held changes in the log. Followers get a signal that there is a newer status and
// make it on their own tasks: a slow follower skips some, and delays nothing.

import StrandlineSystem

/// The engine's side of its status.
final class SyncWatch: Sendable {
  private struct State: Sendable {
    var isRunning = false
    var isSuspended = false
    var isStopped = false
    /// The request under way.
    var request: (kind: RequestKind, nanoseconds: UInt64)?
    /// The number of records in the upload under way.
    var inFlight = 0
    var report = SyncReport()
    var pages = 0
    var waits = UploadWait.Counts()
    var wait: SyncStatus.Wait?
    /// Types and zones that the server refuses as a whole, and zones with pending changes that are not synced.
    var unsent: (refused: [SyncStatus.Halt], leftOut: [ZoneID]) = ([], [])
    var decided: [ZoneID: ZoneLossDecision] = [:]
    var retry: SyncStatus.Retry?
    var failure: CycleFailure?
    var lastOperation: SyncStatus.Operation?
    var lastUpload: Int64?
    var lastFetch: Int64?
    /// When the oldest pending mutation was made.
    var oldest: (lsn: LSN, milliseconds: Int64?)?
    /// The last status said that nothing is pending.
    var saysNothingPending = false
    var followers: [UInt64: AsyncStream<Void>.Continuation] = [:]
    var nextFollower: UInt64 = 0
    /// Holds and halts that the engine's log has named already.
    var named = Named()
  }

  private struct Named: Sendable {
    var held: [RecordID: LSN] = [:]
    var halts: Set<SyncStatus.Halt> = []
  }

  private let state = OrderedMutex(State())
  private let store: RecordStore
  let synced: SyncedDatabase
  private let log: SyncLog?

  init(_ store: RecordStore, _ synced: SyncedDatabase, _ log: SyncLog?) {
    (self.store, self.synced, self.log) = (store, synced, log)
  }

  private var wall: Int64 { store.environment.clock.wallMilliseconds() }

  // MARK: Reports of the driver

  /// - Parameter wait: the logged wait before the next request.
  func opened(_ wait: RequestPace.Wait?) {
    let wall = wall
    state.withLock { $0.wait = wait.map { SyncStatus.Wait($0, wall: wall) } }
  }

  func cycleBegins() {
    state.withLock { state in
      state.isRunning = true
      (state.report, state.pages) = (SyncReport(), 0)
    }
  }

  func requestBegins(_ kind: RequestKind) {
    let now = store.environment.clock.monotonicNanoseconds()
    state.withLock { state in
      state.request = (kind, now)
      state.wait = nil
    }
    log?(.debug, "request: \(kind)")
    publish()
  }

  /// The next request is an upload of `count` records.
  func sends(_ count: Int) { state.withLock { $0.inFlight = count } }

  /// - Parameters:
  ///   - pages: the number of pages of zones in the answer.
  ///   - failure: the error with which the request failed as a whole; nil if it was answered.
  func requestEnded(_ kind: RequestKind, pages: Int = 0, _ failure: (any Error)? = nil) {
    let (now, wall) = (store.environment.clock.monotonicNanoseconds(), wall)
    let code = failure.map { failure in
      (failure as? CloudError)?.code.rawValue ?? (failure as? StrandlineError)?.code.rawValue ?? "cancelled"
    }
    let duration = state.withLock { state in
      let begin = state.request?.nanoseconds ?? now
      state.request = nil
      let duration = Int64(clamping: (now &- begin) / 1_000_000)
      state.lastOperation = SyncStatus.Operation(
        kind: kind.rawValue, milliseconds: wall, durationMilliseconds: duration, failure: code)
      if code == nil {
        state.pages += pages
        if kind == .page || kind == .zoneList { state.lastFetch = wall }
      }
      return duration
    }
    log?(.debug, "\(kind) \(code.map { "failed with \($0)" } ?? "answered") after \(duration) ms")
  }

  /// A step has ended.
  ///
  /// - Parameters:
  ///   - notices: notices for followers and the log.
  ///   - refusedZones: the zones that the server has refused.
  func stepEnded(_ plan: borrowing SyncPlan, _ notices: [SyncNotice], _ refusedZones: [ZoneID: CloudError]) {
    for notice in notices {
      switch notice {
      case .decided(let decision): decided(decision)
      case .skipped(let type, let zone, let error): skips(type, of: zone, error)
      case .unnamed(let count, let zone):
        log?(
          .notice,
          "passed over \(count) entries of a page of zone '\(zone)' that name no record; 'verify' finds what is missing"
        )
      }
    }
    let (report, waits, wall) = (plan.cycle.report, plan.queue.places.counts, wall)
    let retry = plan.pace.retry.map { SyncStatus.Retry(count: $0.count, code: $0.error.code.rawValue) }
    let now = store.environment.clock.monotonicNanoseconds()
    func moment(_ end: UInt64?) -> Int64? { end.map { wall + Int64($0 > now ? ($0 - now) / 1_000_000 : 0) } }
    let halts = plan.queue.halts
    var refused = halts.types.map { type, error in
      SyncStatus.Halt(
        zone: type.zone, type: type.type, code: error.code, reason: error.reason,
        nextTryMilliseconds: moment(halts.nextTry(of: type)))
    }
    refused += refusedZones.map { zone, error in
      SyncStatus.Halt(
        zone: zone, type: nil, code: error.code, reason: error.reason,
        nextTryMilliseconds: moment(halts.nextTry(of: zone)))
    }
    let leftOut = store.projections.withLock { $0.zonesLeftOut(by: synced) }
    let leftOutPending = plan.queue.frozenZones.intersection(leftOut).sorted()
    let holdsMore = state.withLock { state in
      defer {
        (state.report, state.waits, state.retry, state.unsent) = (report, waits, retry, (refused, leftOutPending))
      }
      if report.uploaded > state.report.uploaded { state.lastUpload = wall }
      return report.held > state.report.held
    }
    if log != nil { writeHeld(holdsMore) }
  }

  /// The halt of a type in a zone; nil if there is none.
  func halt(of zone: ZoneID, _ type: String) -> SyncStatus.Halt? {
    state.withLock { $0.unsent.refused.first { $0.zone == zone && ($0.type == nil || $0.type == type) } }
  }

  /// Whether any type or zone is halted.
  var hasHalts: Bool { state.withLock { !$0.unsent.refused.isEmpty } }

  /// A rule has decided about a lost zone.
  private func decided(_ decision: ZoneLossDecision) {
    state.withLock { $0.decided[decision.zone] = decision }
    log?(.notice, "\(decision)")
    publish()
  }

  func waits(_ wait: RequestPace.Wait) {
    let wall = wall
    state.withLock { $0.wait = SyncStatus.Wait(wait, wall: wall) }
    log?(
      .info,
      "waits \(wait.milliseconds) ms, \(wait.isServers ? "as the server asked" : "of its own"), because of "
        + "\(wait.error.code.rawValue) while \(wait.doing)")
    publish()
  }

  /// - Parameter wait: the wait before the next request.
  func cycleEnded(
    _ plan: borrowing SyncPlan, _ refusedZones: [ZoneID: CloudError], _ wait: RequestPace.Wait?,
    _ failure: (any Error)?
  ) {
    stepEnded(plan, plan.notices, refusedZones)
    let (wall, isOfPart) = (wall, plan.cycle.failsInPart)
    let error = failure.map { $0 as? StrandlineError }
    let report = state.withLock { state in
      (state.isRunning, state.request) = (false, nil)
      state.wait = wait.map { SyncStatus.Wait($0, wall: wall) }
      // A cancelled cycle does not change the failure.
      switch error {
      case nil: state.failure = nil
      case .some(nil): break
      case .some(let error?): state.failure = CycleFailure(error: error, isOfPart: isOfPart)
      }
      return state.report
    }
    switch error {
    case .some(let error?): log?(.error, "cycle failed: \(error); \(report)")
    case .some(nil): log?(.info, "cycle cancelled: \(report)")
    case nil: log?(.info, "cycle ended: \(report)")
    }
    publish()
  }

  /// A transaction of the app became durable. Followers are told at once if nothing was pending before; later steps update the count.
  func localWriteEnded() {
    let isNews = state.withLock { state in
      defer { state.saysNothingPending = false }
      return state.saysNothingPending
    }
    if isNews { publish() }
  }

  /// A first fetch skips the newest records of a type, because the server refuses the query.
  private func skips(_ type: String, of zone: ZoneID, _ error: CloudError) {
    log?(.notice, "goes without the newest '\(type)' of zone '\(zone)' first: \(error)")
  }

  func suspended(_ isSuspended: Bool) {
    state.withLock { $0.isSuspended = isSuspended }
    publish()
  }

  func stopped() {
    let followers = state.withLock { state in
      state.isStopped = true
      defer { state.followers = [:] }
      return Array(state.followers.values)
    }
    for follower in followers { follower.finish() }
  }

  // MARK: The log

  private func writeHeld(_ holdsMore: Bool) {
    let (held, lost) = store.projections.withLock { projections in
      (holdsMore ? projections.sync.held : [:], self.lost(projections.sync))
    }
    let (new, halts) = state.withLock { state -> ([Held], [SyncStatus.Halt]) in
      // A halt with another time of the next try is not logged again.
      let all = Set(
        (lost + state.unsent.refused).map { halt in
          var halt = halt
          halt.nextTryMilliseconds = nil
          return halt
        })
      let halts = all.subtracting(state.named.halts)
      state.named.halts = all
      guard holdsMore else { return ([], Array(halts)) }
      let new = held.values.filter { state.named.held[$0.id] != $0.lsn }
      state.named.held = held.mapValues(\.lsn)
      return (new, Array(halts))
    }
    for held in new.sorted(by: { $0.id < $1.id }) {
      let next =
        held.durationMilliseconds > 0 ? "tried again in \(held.durationMilliseconds) ms" : "until a person acts"
      log?(.notice, "holds '\(held.id)', \(next): \(held.code), \(held.words)")
    }
    for halt in halts.sorted(by: { ($0.zone, $0.type ?? "") < ($1.zone, $1.type ?? "") }) {
      if halt.code == .zoneLost {
        log?(.notice, "zone '\(halt.zone)' is lost: \(halt.reason)")
      } else {
        log?(
          .error,
          "the server refuses \(halt.type.map { "every '\($0)' of " } ?? "")zone '\(halt.zone)': \(halt.code), \(halt.reason)"
        )
      }
    }
  }

  private func lost(_ sync: SyncState) -> [SyncStatus.Halt] {
    sync.zones.compactMap { id, zone in
      // A zone that the app has erased needs no decision.
      guard zone.isLost, !zone.isErased, synced.takes(id, sync) else { return nil }
      return SyncStatus.Halt(
        zone: id, type: nil, code: .zoneLost, reason: zone.lostWords,
        lostReason: zone.lostReason)
    }
  }

  // MARK: Statuses

  var isStopped: Bool { state.withLock { $0.isStopped } }
  var isSuspended: Bool { state.withLock { $0.isSuspended } }

  /// Why the last cycle failed that was not cancelled; nil if it did not.
  var failure: CycleFailure? { state.withLock { $0.failure } }

  private func publish() {
    let followers = state.withLock { Array($0.followers.values) }
    for follower in followers { follower.yield() }
  }

  /// Signals that there is a newer status, the first at once. Signals that were not awaited are merged into one.
  func signals() -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let number: UInt64? = state.withLock { state in
      guard !state.isStopped else { return nil }
      state.nextFollower += 1
      state.followers[state.nextFollower] = continuation
      return state.nextFollower
    }
    guard let number else {
      continuation.finish()
      return stream
    }
    continuation.onTermination = { [weak self] _ in self?.state.withLock { $0.followers[number] = nil } }
    continuation.yield()
    return stream
  }

  /// The present status. O(zones + held records), and one read of the log when another mutation is the oldest one.
  func status() -> SyncStatus {
    let (now, durable, logBytes) = (wall, store.source.durableLSN, store.source.segmentBytes)
    let known = store.projections.withLock { projections in
      let sync = projections.sync
      return (
        owed: projections.owed(asOf: durable), held: Self.groups(sync, synced.scope), lost: lost(sync),
        listing: projections.listing(in: synced),
        zonesLeft: sync.zones.count { $0.value.isDirty && !$0.value.isLost && synced.takes($0.key, sync) },
        bounds: sync.bounds.values.sorted { $0.scope < $1.scope }
      )
    }
    let made = madeMilliseconds(known.owed.oldest)
    return state.withLock { state in
      let isUploading = state.isRunning && state.request?.kind == .upload
      let done = state.report.uploaded + state.report.recognized
      state.saysNothingPending = known.owed.count == 0
      var status = SyncStatus(
        milliseconds: now, phase: .idle, unsettled: known.owed.count,
        oldestUnsettledMilliseconds: made.map { max(0, now - $0) }, held: known.held, waits: state.waits,
        inFlight: isUploading ? state.inFlight : 0,
        upload: state.isRunning ? SyncStatus.Progress(done: done, total: done + known.owed.count) : nil,
        download: SyncStatus.Download(
          pages: state.pages, records: state.report.fetchedSaves + state.report.fetchedDeletes,
          zonesLeft: known.zonesLeft, listing: known.listing),
        lastUploadMilliseconds: state.lastUpload, lastFetchMilliseconds: state.lastFetch,
        wait: state.wait.flatMap { $0.untilMilliseconds > now ? $0 : nil },
        halts: (known.lost + state.unsent.refused.filter { halt in !known.lost.contains { $0.zone == halt.zone } })
          .sorted {
            ($0.zone, $0.type ?? "") < ($1.zone, $1.type ?? "")
          }, leftOut: state.unsent.leftOut, lossesDecided: state.decided.values.sorted { $0.zone < $1.zone },
        retry: state.retry, failureCode: state.failure?.error.code,
        failsInPart: state.failure?.isOfPart == true, failure: state.failure?.error.message,
        lastOperation: state.lastOperation,
        account: SyncedAccount(known.bounds), logBytes: logBytes)
      status.phase = Self.phase(state, status)
      return status
    }
  }

  private static func phase(_ state: State, _ status: SyncStatus) -> SyncStatus.Phase {
    if state.isStopped { return .stopped }
    if state.isSuspended { return .paused }
    if state.isRunning, let request = state.request { return request.kind.sends ? .uploading : .fetching }
    if status.wait != nil { return .waiting }
    if state.isRunning { return .fetching }
    if [.needsSignIn, .accountMismatch, .fromTheFuture].contains(status.failureCode) || !status.halts.isEmpty
      || status.held.contains(where: { $0.nextTryMilliseconds == nil && !$0.isDownload })
    {
      return .needsPerson
    }
    return .idle
  }

  /// When a mutation was made; nil if that is not known.
  private func madeMilliseconds(_ lsn: LSN?) -> Int64? {
    guard let lsn else { return nil }
    if let known = state.withLock({ $0.oldest }), known.lsn == lsn { return known.milliseconds }
    // A damaged event has no age; the store's status names the damage.
    let milliseconds = (try? store.mutationTime(lsn))?.milliseconds
    state.withLock { $0.oldest = (lsn, milliseconds) }
    return milliseconds
  }

  private static func groups(_ sync: SyncState, _ scope: DatabaseScope) -> [SyncStatus.HeldGroup] {
    struct Key: Hashable {
      var code: String
      var isDownload: Bool
      var isTimed: Bool
    }
    var groups: [Key: SyncStatus.HeldGroup] = [:]
    for held in [sync.held.values, sync.unread.values].joined() where held.id.zone.scope == scope {
      // A record that is held in both directions is counted once, for its change.
      if held.direction == .download, sync.held[held.id] != nil { continue }
      let next = held.durationMilliseconds > 0 ? held.wallMilliseconds &+ held.durationMilliseconds : nil
      let key = Key(code: held.code, isDownload: held.direction == .download, isTimed: next != nil)
      var group =
        groups[key]
        ?? SyncStatus.HeldGroup(
          code: CloudError.Code(rawValue: held.code), count: 0, isDownload: key.isDownload, nextTryMilliseconds: next)
      group.count += 1
      if let next, let known = group.nextTryMilliseconds { group.nextTryMilliseconds = min(next, known) }
      groups[key] = group
    }
    return groups.values.sorted { left, right in
      if left.count != right.count { return left.count > right.count }
      if left.code != right.code { return left.code.rawValue.precedesByUTF8(right.code.rawValue) }
      return (left.isDownload ? 1 : 0, left.nextTryMilliseconds ?? 0) < (
        right.isDownload ? 1 : 0, right.nextTryMilliseconds ?? 0
      )
    }
  }
}

/// The engine's status, now and whenever it changes: at most once for each request, wait and cycle. A slow reader skips to the newest
/// one. It ends when the store is closed, and at once when the task is cancelled.
package struct SyncStatuses: AsyncSequence, Sendable {
  private let watch: SyncWatch

  init(_ watch: SyncWatch) { self.watch = watch }

  /// Begins to follow the status.
  package func makeAsyncIterator() -> AsyncIterator { AsyncIterator(watch) }

  /// The statuses, one after the other.
  package struct AsyncIterator: AsyncIteratorProtocol {
    private let watch: SyncWatch
    private var signals: AsyncStream<Void>.Iterator

    fileprivate init(_ watch: SyncWatch) {
      self.watch = watch
      signals = watch.signals().makeAsyncIterator()
    }

    /// Waits for a newer status and returns it; nil at the end.
    package mutating func next() async -> SyncStatus? {
      guard await signals.next() != nil, !watch.isStopped else { return nil }
      return watch.status()
    }
  }
}

extension SyncEngine {
  /// What the engine is doing, what it waits for and what is pending.
  ///
  /// - Complexity: O(zones + held records), and at times one read of the log.
  public var status: SyncStatus { watch.status() }

  /// The status, now and whenever it changes: at most once for each request, wait and cycle. A slow reader skips to the newest one. It
  /// ends when the store is closed, and at once when the task is cancelled.
  ///
  /// - Complexity: each status as `status`; it does not slow the app's writes.
  public var statuses: some AsyncSequence<SyncStatus, Never> & Sendable { SyncStatuses(watch) }

  /// The status for a view, kept up to date on the main actor until the store is closed.
  ///
  /// ```swift
  /// Text(live.value?.sentence ?? "")
  /// ```
  @MainActor public func liveStatus() -> Live<SyncStatus> {
    Live(statuses, on: store.environment.taskExecutor)
  }
}
