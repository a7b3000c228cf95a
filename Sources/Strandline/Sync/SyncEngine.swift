// The sync engine: runs one cycle at a time, when the app calls `now()` and automatically.
//
// An automatic cycle follows half a second after a write, a minute after the last cycle, and after a failed one when its
// wait is over. Every wait uses the injected clock.

import StrandlineSystem
import Synchronization

/// Syncs one store with one cloud database. The store owns it and `RecordStore.close()` ends it.
public final class SyncEngine: SyncDriver {
  let store: RecordStore
  let database: any CloudDatabase
  private let cycleLock = AsyncLock()
  private let wakeUp = AsyncSignal()
  private let paceMemory = PaceMemory()
  private let isAutomatic: Bool
  private let automaticTask: Mutex<Task<Void, Never>?> = Mutex(nil)
  /// The cycle under way, to be cancelled by `pause`.
  private let runningCycle: Mutex<Task<SyncReport, any Error>?> = Mutex(nil)
  /// Set by `pause`: a cycle that ends with a cancellation was given up for a suspension.
  private let isPaused = Atomic(false)
  private let lastCycle: Mutex<LastCycle> = Mutex(LastCycle())

  /// The last cycle's result.
  private struct LastCycle: Sendable {
    var report: SyncReport?
    var error: StrandlineError?
  }

  init(store: RecordStore, configuration: SyncConfiguration) throws {
    self.store = store
    self.database = try configuration.makeDatabase(store.path, StoreEnvironment(store.environment))
    self.isAutomatic = configuration.isAutomatic
    beginAutomaticCycles()
  }

  private func beginAutomaticCycles() {
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

  package func localWriteEnded() { wakeUp.signal() }

  package func pause() async {
    isPaused.store(true, ordering: .releasing)
    runningCycle.withLock { $0?.cancel() }
    await stop()
  }

  package func resume() {
    isPaused.store(false, ordering: .releasing)
    beginAutomaticCycles()
  }

  package func stop() async {
    let task = automaticTask.withLock { task in
      defer { task = nil }
      return task
    }
    task?.cancel()
    wakeUp.signal()
    await task?.value
    // Waits for the end of a cycle that a caller of `now()` runs.
    await cycleLock.acquire()
    cycleLock.release()
  }

  /// Runs one cycle now: pull, push, and pull again if a record conflicted. The backoff of an earlier cycle does not
  /// delay it; a wait that the server named does. Calls that overlap run one after the other.
  ///
  /// - Returns: what the cycle did; all of it is durable.
  /// - Throws: `StrandlineError`: `.unreachable`, `.throttled` (with `retryAfter`), `.needsSignIn`, `.accountMismatch`,
  ///   `.serverRefused`, `.suspended` (also if the store is suspended meanwhile). What the cycle did before stays done,
  ///   and unsent changes stay in the store.
  @discardableResult
  public func now(fileID: String = #fileID, line: Int = #line) async throws -> SyncReport {
    try await CallSite(fileID, line).run("syncing '\(store.path)'") { try await cycle(CycleOptions()) }
  }

  /// Runs one cycle.
  package func cycle(_ options: CycleOptions) async throws -> SyncReport {
    try store.requireWritable()
    await cycleLock.acquire()
    defer { cycleLock.release() }
    // A suspension cancels the cycle, also for callers that wait for it, so it has a task of its own.
    let task = Task { try await self.run(options) }
    runningCycle.withLock { $0 = task }
    defer { runningCycle.withLock { $0 = nil } }
    do {
      // One that was paused before it was known here is not missed.
      if isPaused.load(ordering: .acquiring) { task.cancel() }
      return try await withTaskCancellationHandler {
        try await task.value
      } onCancel: {
        task.cancel()
      }
    } catch {
      // The store may still be about to be suspended; the cycle was given up for that.
      if isPaused.load(ordering: .acquiring), !Task.isCancelled { throw StrandlineError.suspended }
      throw error
    }
  }

  private func run(_ options: CycleOptions) async throws -> SyncReport {
    try Task.checkCancellation()
    try store.requireWritable()
    var cycle = Cycle(store: store, database: database, options: options, memory: paceMemory)
    do {
      try await cycle.run()
      let report = cycle.total
      lastCycle.withLock { $0 = LastCycle(report: report) }
      return report
    } catch {
      let error = publicError(error)
      let report = cycle.total
      lastCycle.withLock { $0 = LastCycle(report: report, error: error as? StrandlineError) }
      throw error
    }
  }

  /// The public form of the error that ended a cycle.
  private func publicError(_ error: any Error) -> any Error {
    let doing = "syncing '\(store.path)'"
    let translated = StrandlineError.translating(error, doing)
    if translated is StrandlineError || translated is CancellationError { return translated }
    // `CloudDatabase` throws `CloudError` alone; another error of an app's own implementation counts as "no answer".
    return StrandlineError(.unreachable, "\(doing): the cloud database failed: \(error)", underlying: error)
  }

  /// Syncs a lost zone again. The zone is fetched from its beginning; if the server still does not have it, it is marked
  /// as lost again. Does nothing for a zone that is not lost.
  ///
  /// - Throws: `StrandlineError` as `write`; the decision is durable when this returns.
  public func resumeZone(_ zone: ZoneID, fileID: String = #fileID, line: Int = #line) async throws {
    try await CallSite(fileID, line).run("resuming zone '\(zone)'") {
      try store.requireWritable()
      try await store.commit { core in
        guard core.projections.sync.zones[zone]?.isLost == true else { return }
        try core.append(
          .zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "resumed by the app", policy: "resume")))
      }
    }
    wakeUp.signal()
  }

  /// What the last cycle did; nil before the first.
  public var lastReport: SyncReport? { lastCycle.withLock { $0.report } }

  /// Why the last cycle failed; nil if it did not.
  public var lastError: StrandlineError? { lastCycle.withLock { $0.error } }

  /// The store's state: what is unsent, held, waited for.
  ///
  /// - Throws: as `RecordStore.status()`.
  public func status(fileID: String = #fileID, line: Int = #line) throws -> StoreStatus {
    try store.status(fileID: fileID, line: line)
  }

  // MARK: Automatic cycles

  /// From a write to the automatic cycle after it, so that writes in quick succession share requests.
  private static let debounceMilliseconds: Int64 = 500
  /// Between automatic cycles if nothing is written.
  private static let pollMilliseconds: Int64 = 60_000

  private func runAutomatically() async {
    let environment = store.environment
    var failures: Int64 = 0
    while !Task.isCancelled {
      var options = CycleOptions()
      options.isUserInitiated = false
      options.waitMillisecondsMax = 0
      var wait = Self.pollMilliseconds
      do {
        _ = try await cycle(options)
        failures = 0
      } catch let error as StrandlineError {
        failures += 1
        let backoff: Int64 = min(300_000, 1000 << min(failures, 9))
        wait =
          error.retryAfter.map { Int64($0 * 1000) }
          ?? (backoff / 2 + Int64(environment.random.below(UInt64(backoff / 2))))
        // The store takes no more writes: only opening it again helps, or resuming it, which begins automatic cycles anew.
        if [.closed, .outcomeUnknown, .suspended].contains(error.code) { return }
        // A write does not shorten a wait that the server named.
        if error.retryAfter != nil {
          do { try await environment.clock.sleep(milliseconds: wait) } catch { return }
          continue
        }
      } catch { return }
      await wakeUp.wait(atMost: wait, clock: environment.clock)
      if Task.isCancelled { return }
      do { try await environment.clock.sleep(milliseconds: Self.debounceMilliseconds) } catch { return }
    }
  }
}
