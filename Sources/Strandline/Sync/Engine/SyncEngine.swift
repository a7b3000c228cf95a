// The sync engine of a store: when it runs. What a cycle does is decided by the plan (Plan/SyncPlan.swift).
//
// A cycle happens when the app calls `now()`; by itself half a second after a write, when the app says that something has
// happened, when a wait is over, and a minute after the last one. Every wait uses the injected clock.

import StrandlineSystem
import Synchronization

/// Why an engine should ask the server now.
public enum SyncCause: Hashable, Sendable {
  /// A push has arrived: the server has changes.
  case push
  /// The network is back. The same waits end as with `foreground`. Many devices may hear it at the same
  /// moment, so each waits a little first (`SyncPace.spread`).
  case networkReturned
  /// The app came to the foreground. The engine's own waits end, those of held records too, and what the server refuses whole, a
  /// type, a zone or every save to a full storage, is tried again. What the server named is waited for.
  case foreground
}

/// Syncs one store with one cloud database. The store owns it and `RecordStore.close()` ends it.
public final class SyncEngine: SyncDriver {
  let store: RecordStore
  let database: any CloudDatabase
  /// The state between cycles. A cycle takes it out and puts it back.
  private let driver: Mutex<CycleDriver?>
  private let runs: Mutex<SyncRuns?> = Mutex(nil)
  private let wakeUp = AsyncSignal()
  private let causes: Mutex<Set<SyncCause>> = Mutex([])
  /// Records whose holds a person has ended, and that the queue does not know of.
  private let released: Mutex<[RecordID]> = Mutex([])
  private let isAutomatic: Bool
  private let pace: SyncPace
  /// What waits are drawn from.
  private let random: any RandomSource
  private let constrained = Atomic<Bool>(false)
  private let automaticTask: Mutex<Task<Void, Never>?> = Mutex(nil)
  private let lastRun: Mutex<LastRun> = Mutex(LastRun())
  private let deadline: CycleDeadline
  /// What this shows of itself.
  let watch: SyncWatch

  /// The last run's result.
  private struct LastRun: Sendable {
    var report: SyncReport?
    var failure: RunFailure?
    /// When something is due that waited when it ended.
    var nextDue: NextDue?
  }

  init(store: RecordStore, configuration: SyncConfiguration) throws {
    self.store = store
    self.database = try configuration.makeDatabase(store.path, StoreEnvironment(store.environment))
    self.isAutomatic = configuration.isAutomatic
    pace = configuration.pace
    random = configuration.random ?? store.environment.random
    let synced = SyncedDatabase(database.address.scope, configuration.zones)
    watch = SyncWatch(store, synced, configuration.log)
    let driver = CycleDriver(
      store: store, database: database, watch: watch, RequestPace.Policy(pace, random), SyncPolicies(configuration))
    watch.opened(driver.plan.pace.longestWait(at: Moment(store.environment.clock)))
    deadline = driver.deadline
    self.driver = Mutex(driver)
    // The store keeps the engine, and a cycle under way does.
    let runs = SyncRuns(on: store.environment.taskExecutor) { [weak self] options in
      guard let self else { throw StrandlineError(.closed, "the store is closed") }
      return try await self.run(options)
    }
    self.runs.withLock { $0 = runs }
  }

  /// Runs by itself from now on, if the app wants that. The store knows the schema and the rules by then.
  func beginAutomaticRuns() {
    guard isAutomatic else { return }
    automaticTask.withLock { task in
      let before = task
      // The task keeps the engine alive until the store is closed, which cancels the task.
      task = Task {
        // One that ends by itself, because it has met the suspension.
        before?.cancel()
        await before?.value
        await self.runAutomatically()
      }
    }
  }

  package func localWriteEnded() {
    watch.localWriteEnded()
    wakeUp.signal()
  }

  package func obstacle(to open: OpenMutations) throws -> StrandlineError? { try store.obstacle(to: open) }

  package func holdsEnded(_ ids: [RecordID]) {
    released.withLock { $0 += ids }
    wakeUp.signal()
  }

  package func pause() async {
    await stop(.suspended)
    watch.suspended(true)
  }

  package func resume() {
    watch.suspended(false)
    runs.withLock { $0 }?.resume()
    beginAutomaticRuns()
  }

  package func stop() async {
    await stop(StrandlineError(.closed, "the store at '\(store.path)' is closed"))
    watch.stopped()
  }

  private func stop(_ error: StrandlineError) async {
    let task = automaticTask.withLock { task in
      defer { task = nil }
      return task
    }
    task?.cancel()
    wakeUp.signal()
    await runs.withLock { $0 }?.stop(error)
    await task?.value
  }

  /// Fetches what has changed, sends what is pending, and fetches again if a record conflicted. The engine's own waits do not
  /// delay it, and a held record that waits for no time of the server's is sent again; what the server named is kept. Calls that
  /// come while a cycle is under way share the next one.
  ///
  /// - Returns: what the cycle did; all of it is durable.
  /// - Throws: `StrandlineError`: `.unreachable`, `.throttled` (with `retryAfter` if the server named the wait),
  ///   `.needsSignIn`, `.accountMismatch`, `.serverRefused`, `.zoneLost`, `.fromTheFuture` (a record needs a later version
  ///   of the app, `NewerVersionRule.haltForUpgrade`), `.suspended` (also if the store is suspended meanwhile), `.closed`,
  ///   `.noProgress` (a fault of this library has ended the cycle); of the store's disk `.diskFull`, `.io`, `.outcomeUnknown`
  ///   and `.damaged`. What the cycle did before stays done, and unsent changes stay in the store. Without an error, what is still
  ///   pending is held (`StoreStatus.held`), waits for a record that is (`RecordStore.pendingChanges` names it), or was written during
  ///   the cycle. `CancellationError` at once if the task is cancelled.
  /// - Complexity: a request for each 200 changes, either way, and for each 50 zones that have changed; O(changes) in time, and two
  ///   batches and two pages, or 1,000 records, in memory.
  @discardableResult
  public func now(fileID: String = #fileID, line: Int = #line) async throws -> SyncReport {
    try await CallSite(fileID, line).run("syncing '\(store.path)'") { try await cycle(CycleOptions(), isShared: true) }
  }

  /// As `now()`, for an app that the system lets run for so long: begins no request that might not be answered by then.
  ///
  /// A request is taken to last a second, or as long as the longest one so far. One that lasts longer is not cut off: cancel
  /// the task when the system says that the time is over, which costs nothing but the next fetch. A cycle that the engine began by
  /// itself ends at the deadline too; one that `now()` began is waited for.
  ///
  /// - Parameters:
  ///   - deadline: how long from now.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Returns: what the cycle did; all of it is durable. `SyncReport.isUnfinished` says whether something is left.
  /// - Throws: as `now()`. A wait that would end after the deadline throws as one that is too long.
  /// - Complexity: as `now()`.
  @discardableResult
  public func now(deadline: Duration, fileID: String = #fileID, line: Int = #line) async throws -> SyncReport {
    let seconds = min(max(0, deadline / .seconds(1)), 1e9)
    let end = store.environment.clock.monotonicNanoseconds() &+ UInt64(seconds * 1e9)
    let number = self.deadline.begin(end)
    defer {
      self.deadline.end(number)
      // What the engine does by itself goes on.
      wakeUp.signal()
    }
    return try await CallSite(fileID, line).run("syncing '\(store.path)'") {
      var options = CycleOptions()
      options.mayEndEarly = true
      return try await cycle(options, isShared: false)
    }
  }

  /// Tells the engine that something has happened, so that it asks the server soon. Returns at once. An engine that does not
  /// run by itself does nothing; call `now()`.
  public func wake(_ cause: SyncCause) {
    causes.withLock { _ = $0.insert(cause) }
    wakeUp.signal()
  }

  /// Whether the device is short of power, or its network is metered; false at first. The app says so, because only it knows
  /// its system's word for it (`ProcessInfo.isLowPowerModeEnabled`, `NWPath.isConstrained`). While it is true, automatic cycles
  /// come a tenth as often, and ten times as long after a write. What the app asks for comes as ever.
  public var isConstrained: Bool {
    get { constrained.load(ordering: .relaxed) }
    set {
      let was = constrained.exchange(newValue, ordering: .relaxed)
      if was, !newValue { wakeUp.signal() }
    }
  }

  /// Whether the configuration leaves any zone out.
  var leavesZonesOut: Bool { watch.synced.leavesOutAny }

  /// Whether the configuration leaves a zone out.
  func leavesOut(_ zone: ZoneID) -> Bool { watch.synced.leavesOut(zone, store.projections.sync) }

  private func checkIsTakenIn(_ zone: ZoneID) throws {
    if leavesOut(zone) { throw StrandlineError.leftOut(zone, "zone '\(zone)' is not synced") }
  }

  /// How much it remembers of single records, by what it is. Nil during a cycle.
  ///
  /// For the simulated worlds: nothing once nothing is pending.
  package var remembered: [String: Int]? { driver.withLock { $0?.plan.remembered } }

  /// How many callers wait for a cycle.
  ///
  /// For tests: they go on when all have asked.
  package var callerCount: Int { runs.withLock { $0?.callerCount ?? 0 } }

  /// Makes a cycle.
  package func cycle(_ options: CycleOptions) async throws -> SyncReport { try await cycle(options, isShared: false) }

  private func cycle(_ options: CycleOptions, isShared: Bool) async throws -> SyncReport {
    try store.requireWritable()
    if let zone = options.zone ?? options.verifies { try checkIsTakenIn(store.canonical(zone)) }
    guard let runs = runs.withLock({ $0 }) else { throw StrandlineError(.closed, "the store is closed") }
    return try await runs.run(options, isShared: isShared)
  }

  private func run(_ options: CycleOptions) async throws -> SyncReport {
    guard
      var driver = driver.withLock({ driver in
        defer { driver = nil }
        return driver
      })
    else { preconditionFailure("two cycles of one engine at a time") }
    defer { self.driver.withLock { [driver] in $0 = driver } }
    let released = released.withLock { ids in
      defer { ids = [] }
      return ids
    }
    for id in released { driver.plan.holdEnded(id, StoreFacts(store)) }
    watch.runBegins()
    do {
      if let zone = options.verifies {
        driver.plan.cycle.report.verification = try await driver.verify(zone, options)
      } else {
        try await driver.run(options)
      }
      ended(driver.plan, nil)
      endWaits(options)
      return driver.plan.cycle.report
    } catch {
      let error = StrandlineError.translating(error, "syncing '\(store.path)'")
      ended(driver.plan, error)
      endWaits(options, error)
      throw error
    }
  }

  private func ended(_ plan: borrowing SyncPlan, _ error: (any Error)?) {
    let now = Moment(store.environment.clock)
    let isOfPart = plan.cycle.failsInPart
    let failure = (error as? StrandlineError).map { RunFailure(error: $0, isOfPart: isOfPart) }
    let last = LastRun(report: plan.cycle.report, failure: failure, nextDue: plan.nextDue(at: now))
    lastRun.withLock { $0 = last }
    watch.runEnded(plan, plan.allRefusedZones(StoreFacts(store)), plan.pace.longestWait(at: now), error)
  }

  /// Syncs a lost zone again. The zone is fetched from its beginning; if the server still does not have it, it is marked
  /// as lost again. Does nothing for a zone that is not lost.
  ///
  /// - Throws: `StrandlineError`: `.foreignZone` if the configuration leaves it out; else as `write`. The decision is durable when
  ///   this returns.
  /// - Complexity: O(1); the next cycle fetches the whole zone.
  public func resumeZone(_ zone: ZoneID, fileID: String = #fileID, line: Int = #line) async throws {
    try await CallSite(fileID, line).run("resuming zone '\(zone)'") {
      try checkIsTakenIn(store.canonical(zone))
      _ = try await store.resumeZone(store.canonical(zone))
    }
    wakeUp.signal()
  }

  /// Compares a zone with the server: catches up with its changes, and then reads all that the server lists of it.
  ///
  /// Where both are the same, nothing is written and nothing is sent. Else what differs is mended as far as no person is
  /// needed: what is missing or different here is looked up, and then what was synced and is not listed. What the server does not
  /// have even then is removed here, unless a change of it is not sent. Nothing is removed where an answer shows that the server
  /// went back in time; or where that is more than a hundred records and more than a fifth of the zone, which is then lost with
  /// the reason `.missingRecords`; or where nothing is left of the zone and the server does not take its token, so that it was
  /// made again: then it is lost with the reason `.deleted`. Then both are compared once more, and the result names
  /// what is left. What was mended is durable when this returns.
  ///
  /// - Parameters:
  ///   - zone: the zone.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Returns: what differs, after the mending.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration leaves
  ///   it out; `.zoneLost` if it is lost, or if the server went back in time; else as `now()`.
  /// - Complexity: a request for each 200 records of the zone, twice if something differs, and one for each 200 records that
  ///   differ; O(records) in time, and about
  ///   32 bytes of memory a record.
  @discardableResult
  public func verify(_ zone: ZoneID, fileID: String = #fileID, line: Int = #line) async throws -> ZoneVerification {
    try await CallSite(fileID, line).run("verifying zone '\(zone)'") {
      try await verification(of: zone, CycleOptions())
    }
  }

  /// The same, with how long it may wait in all.
  package func verification(of zone: ZoneID, _ options: CycleOptions) async throws -> ZoneVerification {
    var options = options
    options.direction = .pullOnly
    let zone = store.canonical(zone)
    options.verifies = zone
    let report = try await cycle(options)
    guard let found = report.verification else {
      throw StrandlineError(.noSuchZone, "nothing of zone '\(zone)' was ever synced, so there is nothing to compare")
    }
    return found
  }

  /// Fetches a zone from its beginning, and lets one side decide about records that this store has synced and that the
  /// server does not have, of a lost zone too.
  ///
  /// The server is asked for each of them by name first. From the server: they are removed here, however many they are, and all
  /// of them if it does not have the zone. An edit of one that is not sent yet ends with it and is told, or goes up as a new life,
  /// as the type's rule says; a zone that the server does not have keeps such edits unsent. What was created here since goes up.
  /// From here: they are uploaded again, each as the first version of a new life, with the changes that are not sent; a zone that
  /// is gone is created. Where the server went back in time, what sweeps and comparisons removed here since is uploaded again
  /// too, as far as the log has it. What both have is
  /// synced as ever. An expired token needs no call of this: then the engine fetches the zone so by itself, and asks if too
  /// much would be removed.
  ///
  /// - Parameters:
  ///   - zone: the zone.
  ///   - source: which side's list of records counts.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration leaves
  ///   it out; else as `write`. The decision is durable when this returns; cycles carry it out.
  /// - Complexity: O(1); the cycles fetch the whole zone, and send all of it if this store's side counts.
  public func resync(
    _ zone: ZoneID, from source: ResyncSource, fileID: String = #fileID, line: Int = #line
  ) async throws {
    try await CallSite(fileID, line).run("fetching zone '\(zone)' anew") {
      try checkIsTakenIn(store.canonical(zone))
      try await store.resync(store.canonical(zone), from: source)
    }
    wakeUp.signal()
  }

  /// Ends a zone: the next cycle deletes it at the server with all its records, for every device of the user.
  ///
  /// Here its records stay readable and nothing of the zone is synced any more, as with any zone that is gone; the status
  /// asks no person for it. Until a cycle has carried it out, `resumeZone` takes it back. Afterwards `resync` from here makes it
  /// again with these records, for this device only; `resync` from the server removes them here too. What is written to the zone
  /// stays here, and a cycle throws `.zoneLost` for it. Other devices find the zone gone, and keep what they have until a person
  /// decides.
  ///
  /// What becomes of the zone at the server is carried out once more after a crash or a lost answer, until the server
  /// confirms it or does not have the zone. A zone that another device has made under the same name meanwhile is left alone:
  /// the server refuses this store's change token for it, and it has none of the records that this store knows of the old one.
  /// `resumeZone` syncs the new one.
  ///
  /// - Parameters:
  ///   - zone: the zone.
  ///   - discardingUnsent: gives up the changes of the zone that the server lacks. They stay in the history until a
  ///     compaction removes them.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration leaves
  ///   it out; `.notUploaded` if changes of it are not sent and `discardingUnsent` is false, and then nothing has changed; else as
  ///   `write`. The decision is durable when this returns; a cycle carries it out.
  /// - Complexity: O(records that owe something).
  public func eraseZone(
    _ zone: ZoneID, discardingUnsent: Bool = false, fileID: String = #fileID, line: Int = #line
  ) async throws {
    try await CallSite(fileID, line).run("erasing zone '\(zone)'") {
      try checkIsTakenIn(store.canonical(zone))
      holdsEnded(try await store.eraseZone(store.canonical(zone), discardingUnsent: discardingUnsent))
    }
  }

  /// What the last cycle did; nil before the first.
  public var lastReport: SyncReport? { lastRun.withLock { $0.report } }

  /// Why the last cycle failed; nil if it did not.
  public var lastError: StrandlineError? { lastRun.withLock { $0.failure?.error } }

  // MARK: Automatic cycles

  private func runAutomatically() async {
    let environment = store.environment
    var schedule = RunSchedule(pace)
    var causes: Set<SyncCause> = []
    while !Task.isCancelled {
      var hasFailed = false
      do {
        _ = try await cycle(RunSchedule.options(causes))
      } catch let error as StrandlineError {
        hasFailed = !failsInPart
        // The store takes no more writes: only opening it again helps, or resuming it, which begins automatic cycles again.
        if [.closed, .outcomeUnknown, .storeReplaced, .suspended].contains(error.code) { return }
      } catch {
        // Its own cancellation alone ends it. Any other error is one failed cycle.
        if Task.isCancelled { return }
        hasFailed = true
      }
      let wait = schedule.runEnded(hasFailed: hasFailed, due: nextDue, isConstrained: isConstrained, random)
      await wakeUp.wait(atMost: wait, clock: environment.clock)
      if Task.isCancelled { return }
      causes = takeCauses()
      let debounce = schedule.debounce(causes, isConstrained: isConstrained, random)
      if debounce > 0 {
        do { try await pass(debounce, &causes) } catch { return }
      }
    }
  }

  /// Waits for some milliseconds. What happens meanwhile is the same cycle's, and a person who has come to the foreground does not
  /// wait.
  private func pass(_ milliseconds: Int64, _ causes: inout Set<SyncCause>) async throws {
    let clock = store.environment.clock
    let end = clock.monotonicNanoseconds() &+ UInt64(milliseconds) &* 1_000_000
    while !causes.contains(.foreground), case let now = clock.monotonicNanoseconds(), now < end {
      await wakeUp.wait(atMost: Int64((end - now + 999_999) / 1_000_000), clock: clock)
      try Task.checkCancellation()
      causes.formUnion(takeCauses())
    }
  }

  private func takeCauses() -> Set<SyncCause> {
    causes.withLock { causes in
      defer { causes = [] }
      return causes
    }
  }

  /// Whether the last cycle failed in a zone, a type or a record alone: then the next one comes as after any other.
  package var failsInPart: Bool { lastRun.withLock { $0.failure?.isOfPart == true } }

  /// When something is due that waited when the last cycle ended; nil if nothing did.
  package var nextDue: NextDue? { lastRun.withLock { $0.nextDue } }
}
