// The sync engine of a store: its public API, and when it makes cycles. The plan (Plan/SyncPlan.swift) decides what a cycle does.
//
// A cycle begins when the app calls `RecordStore.sync()` or `wake(_:)`; and by itself half a second after a write, when a wait is over, and a minute
// after the last one. Every wait uses the injected clock.

import StrandlineSystem
import Synchronization

/// Syncs one store with one cloud database. The store owns it and `RecordStore.close()` ends it.
public final class SyncEngine: SyncDriver {
  let store: RecordStore
  let database: any CloudDatabase
  /// The state between cycles. A cycle takes it out and puts it back.
  private let driver: OrderedMutex<CycleDriver?>
  private let queue: OrderedMutex<CycleQueue?> = OrderedMutex(nil)
  private let wakeUp = AsyncSignal()
  private let causes: OrderedMutex<Set<SyncCause>> = OrderedMutex([])
  /// Records whose holds a person has ended, which the upload queue does not know yet.
  private let released: OrderedMutex<[RecordID]> = OrderedMutex([])
  private let initiative: Initiative
  private let pace: SyncPace
  /// The random source for waits.
  private let random: any RandomSource
  private let constrained = Atomic<Bool>(false)
  private let automaticTask: OrderedMutex<Task<Void, Never>?> = OrderedMutex(nil)
  private let lastCycle: OrderedMutex<LastCycle> = OrderedMutex(LastCycle())
  private let deadline: CycleDeadline
  /// Publishes the engine's status.
  let watch: SyncWatch

  /// What the engine does without being called.
  private enum Initiative {
    case none, cycles
    /// It begins cycles, and listens for pushes beside them.
    case listens
  }

  /// Whether it begins cycles by itself.
  var isAutomatic: Bool { initiative != .none }

  /// The last cycle's result.
  private struct LastCycle: Sendable {
    var report: SyncReport?
    /// The end of the first timed wait.
    var nextDue: NextDue?
  }

  init(store: RecordStore, configuration: SyncConfiguration) throws {
    self.store = store
    self.database = try configuration.makeDatabase(store.path, StoreEnvironment(store.environment))
    initiative = configuration.isAutomatic ? configuration.listensForPushes ? .listens : .cycles : .none
    pace = configuration.pace
    random = configuration.random ?? store.environment.random
    let synced = SyncedDatabase(database.address.scope, configuration.zones)
    watch = SyncWatch(store, synced, configuration.log)
    let driver = CycleDriver(
      store: store, database: database, watch: watch, RequestPace.Policy(pace, random), SyncPolicies(configuration))
    watch.opened(driver.plan.pace.longestWait(at: Moment(store.environment.clock)))
    deadline = driver.deadline
    self.driver = OrderedMutex(driver)
    // The store keeps the engine alive, and so does a cycle under way.
    let queue = CycleQueue(on: store.environment.taskExecutor) { [weak self] options in
      guard let self else { throw StrandlineError(.closed, "the store is closed") }
      return try await self.run(options)
    }
    self.queue.withLock { $0 = queue }
  }

  /// Begins automatic cycles, if the app wants them. Called when the store knows the schema and the rules.
  func beginAutomaticCycles() {
    guard isAutomatic else { return }
    automaticTask.withLock { task in
      let before = task
      // The task keeps the engine alive until the store is closed, which cancels the task.
      task = Task {
        // The task before may be about to end, because of a suspension.
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
    queue.withLock { $0 }?.resume()
    beginAutomaticCycles()
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
    await queue.withLock { $0 }?.stop(error)
    await task?.value
  }

  /// As `RecordStore.sync()`.
  @discardableResult
  package func sync() async throws -> SyncReport {
    try await CallSite.unnamed.run("syncing '\(store.path)'") { try await cycle(CycleOptions(), isShared: true) }
  }

  /// As `RecordStore.sync(deadline:)`.
  @discardableResult
  package func sync(deadline: Duration) async throws -> SyncReport {
    let seconds = min(max(0, deadline / .seconds(1)), 1e9)
    let end = store.environment.clock.monotonicNanoseconds() &+ UInt64(seconds * 1e9)
    let number = self.deadline.begin(end)
    defer {
      self.deadline.end(number)
      // Automatic cycles may take longer again.
      wakeUp.signal()
    }
    return try await CallSite.unnamed.run("syncing '\(store.path)'") {
      var options = CycleOptions()
      options.mayEndEarly = true
      return try await cycle(options, isShared: false)
    }
  }

  /// Tells the engine that something has happened, so that it asks the server soon. Returns at once. Does nothing if the engine is not
  /// automatic: call `RecordStore.sync()` then.
  public func wake(_ cause: SyncCause) {
    causes.withLock { _ = $0.insert(cause) }
    wakeUp.signal()
  }

  /// Whether the device is short of power, or its network is metered; false at first. The app sets it, as only the app knows the
  /// system's APIs for it (`ProcessInfo.isLowPowerModeEnabled`, `NWPath.isConstrained`). While it is true, automatic cycles are ten
  /// times rarer, and come ten times later after a write. `RecordStore.sync()` and `wake(_:)` work as usual.
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

  /// How many records each table in memory holds, by the table's name; nil during a cycle. For the simulated worlds, which check that
  /// nothing is remembered when nothing is pending.
  package var remembered: [String: Int]? { driver.withLock { $0?.plan.remembered } }

  /// How many callers wait for a cycle. For tests, which continue when all have called.
  package var callerCount: Int { queue.withLock { $0 }?.callerCount ?? 0 }

  /// Makes a cycle.
  package func cycle(_ options: CycleOptions) async throws -> SyncReport { try await cycle(options, isShared: false) }

  func cycle(_ options: CycleOptions, isShared: Bool) async throws -> SyncReport {
    try store.requireWritable()
    if let zone = options.zone ?? options.verifies { try checkIsTakenIn(store.canonical(zone)) }
    guard let queue = queue.withLock({ $0 }) else { throw StrandlineError(.closed, "the store is closed") }
    return try await queue.run(options, isShared: isShared)
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
    watch.cycleBegins()
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
    let last = LastCycle(report: plan.cycle.report, nextDue: plan.nextDue(at: now))
    lastCycle.withLock { $0 = last }
    watch.cycleEnded(plan, plan.allRefusedZones(StoreFacts(store)), plan.pace.longestWait(at: now), error)
  }

  /// Syncs a lost zone again. The zone is fetched from its beginning; if the server still does not have it, it is marked as lost
  /// again. Does nothing for a zone that is not lost.
  ///
  /// - Throws: `StrandlineError`: `.foreignZone` if the configuration does not sync it; otherwise as `write`. The decision is durable
  ///   when this returns.
  /// - Complexity: O(1); the next cycle fetches the whole zone.
  public func resumeZone(_ zone: ZoneID) async throws {
    try await CallSite.unnamed.run("resuming zone '\(zone)'") {
      try checkIsTakenIn(store.canonical(zone))
      _ = try await store.resumeZone(store.canonical(zone))
    }
    wakeUp.signal()
  }

  /// Compares a zone with the server: fetches its changes, and then reads the whole list of its records.
  ///
  /// If both are the same, nothing is written or sent. If not, differences are repaired as far as no person is needed. Records that
  /// are missing or different here are looked up, then synced records that are not listed. Those that the server does not find are
  /// removed here, unless they have an unsent change. Then both are compared again, and the result names the remaining differences.
  /// Repairs are durable when this returns.
  ///
  /// Nothing is removed if an answer shows that the server went back to an older state; if more than a hundred records and a fifth
  /// of the zone are missing (then it is lost, `.missingRecords`); or if all are missing and the server refuses the change token,
  /// so that the zone was created again (then it is lost, `.deleted`).
  ///
  /// - Parameters:
  ///   - zone: the zone.
  /// - Returns: the differences that remain.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration does not
  ///   sync it; `.zoneLost` if it is lost, or if the server went back to an older state; otherwise as `RecordStore.sync()`.
  /// - Complexity: a request for each 200 records of the zone, twice if something differs, and one for each 200 records that
  ///   differ; O(records) in time, and about 32 bytes of memory a record.
  @discardableResult
  public func verify(_ zone: ZoneID) async throws -> ZoneVerification {
    try await CallSite.unnamed.run("verifying zone '\(zone)'") {
      try await verification(of: zone, CycleOptions())
    }
  }

  /// `verify`, with other options: how long it may wait, for example.
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

  /// Fetches a zone from its beginning, and lets one side decide about synced records that the server does not have. Also for a lost
  /// zone.
  ///
  /// The server is first asked for each such record by name. With `.server` they are removed here, however many they are, and all of
  /// them if it does not have the zone. An unsent edit of one ends with it and is reported, or is sent as a new record, by its type's
  /// rule; if the server does not have the zone, such edits stay unsent. Records created here since are uploaded.
  /// With `.here` they are uploaded again as new records, with their unsent changes; a zone that is gone is created. If the server
  /// went back to an older state, records that this store removed because of that are uploaded too, as far as the log has them.
  /// Records that both have are synced as usual. An expired change token needs no call: the engine fetches the zone by itself, and
  /// asks only if too many records would be removed.
  ///
  /// - Parameters:
  ///   - zone: the zone.
  ///   - source: the side that decides.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration does not
  ///   sync it; otherwise as `write`. The decision is durable when this returns; cycles carry it out.
  /// - Complexity: O(1); the cycles fetch the whole zone, and upload the missing records if this store's side decides.
  public func resync(
    _ zone: ZoneID, from source: ResyncSource
  ) async throws {
    try await CallSite.unnamed.run("fetching zone '\(zone)' again") {
      try checkIsTakenIn(store.canonical(zone))
      try await store.resync(store.canonical(zone), from: source)
    }
    wakeUp.signal()
  }

  /// Erases a zone: the next cycle deletes it at the server with all its records, for every device of the user.
  ///
  /// On this device its records stay readable, and the zone is not synced any more; the status asks for no decision. Until a
  /// cycle has carried it out, `resumeZone` takes it back. Afterwards `resync` with `.here` creates the zone again with these records;
  /// `.server` removes them here too. Later writes to the zone stay on this device, and a cycle throws `.zoneLost` for
  /// them. Other devices find the zone gone, and keep their records until a person decides.
  ///
  /// The deletion is repeated after a crash or a lost answer, until the server confirms it or does not have the zone. A zone that
  /// another device has created under the same name meanwhile is left alone: the server refuses this store's change token for
  /// it, and it has none of the records that this store knows. `resumeZone` syncs the new one.
  ///
  /// - Parameters:
  ///   - zone: the zone.
  ///   - discardingUnsent: discards the zone's unsent changes. They stay in the history until a compaction removes them.
  /// - Throws: `StrandlineError`: `.noSuchZone` if nothing of the zone was ever synced; `.foreignZone` if the configuration does not
  ///   sync it; `.notUploaded` if it has unsent changes and `discardingUnsent` is false, and then nothing has changed; otherwise as
  ///   `write`. The decision is durable when this returns; a cycle carries it out.
  /// - Complexity: O(records with pending changes).
  public func eraseZone(
    _ zone: ZoneID, discardingUnsent: Bool = false
  ) async throws {
    try await CallSite.unnamed.run("erasing zone '\(zone)'") {
      try checkIsTakenIn(store.canonical(zone))
      holdsEnded(try await store.eraseZone(store.canonical(zone), discardingUnsent: discardingUnsent))
    }
  }

  /// For tests: the report of the last cycle; nil before the first.
  package var lastReport: SyncReport? { lastCycle.withLock { $0.report } }

  /// Why the last cycle failed; nil if it did not. A cycle that was cancelled does not count: the one before it does.
  package var lastError: StrandlineError? { watch.failure?.error }

  // MARK: Automatic cycles

  /// Makes cycles, and listens for pushes beside them, until the task is cancelled or the store takes no writes any more.
  private func runAutomatically() async {
    guard initiative == .listens else { return await cycleAutomatically() }
    await withTaskGroup { group in
      group.addTask {
        await self.cycleAutomatically()
        return true
      }
      group.addTask {
        await self.listen()
        return false
      }
      // Cycles go on where the transport has no pushes; without cycles nothing is listened for.
      for await endsAll in group where endsAll { group.cancelAll() }
    }
  }

  private func cycleAutomatically() async {
    let environment = store.environment
    var schedule = CycleSchedule(pace)
    var causes: Set<SyncCause> = []
    while !Task.isCancelled {
      var hasFailed = false
      do {
        _ = try await cycle(CycleSchedule.options(causes))
      } catch let error as StrandlineError {
        hasFailed = !failsInPart
        // The store accepts no writes any more. Opening it again begins automatic cycles, and so does resuming it.
        if [.closed, .outcomeUnknown, .storeReplaced, .suspended].contains(error.code) { return }
      } catch {
        // Only the cancellation of this task ends it. Any other error is one failed cycle.
        if Task.isCancelled { return }
        hasFailed = true
      }
      let wait = schedule.cycleEnded(hasFailed: hasFailed, due: nextDue, isConstrained: isConstrained, random)
      await wakeUp.wait(atMost: wait, clock: environment.clock)
      if Task.isCancelled { return }
      causes = takeCauses()
      let debounce = schedule.debounce(causes, isConstrained: isConstrained, random)
      if debounce > 0 {
        do { try await pass(debounce, &causes) } catch { return }
      }
    }
  }

  /// Waits, and collects the causes that arrive meanwhile for the same cycle. `foreground` ends the wait.
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

  /// Whether the last cycle failed only in a zone, a type or a record: then there is no backoff before the next one.
  package var failsInPart: Bool { watch.failure?.isOfPart == true }

  /// The end of the first timed wait, as of the end of the last cycle; nil if there was none.
  package var nextDue: NextDue? { lastCycle.withLock { $0.nextDue } }
}
