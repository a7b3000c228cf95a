// The engine's face: one cycle at a time, by hand or by itself.
//
// By itself it syncs shortly after a write, now and then without one, and after a failure when the wait is over. Every
// wait is on the injected clock.

import StrandlineSystem
import Synchronization

/// Syncs one store with one cloud. Owned by the store, ended by `close()`.
public final class SyncEngine: SyncDriver {
  let store: RecordStore
  let database: any CloudDatabase
  private let lock = AsyncLock()
  private let poke = AsyncSignal()
  private let memory = PaceMemory()
  private let loop: Mutex<Task<Void, Never>?> = Mutex(nil)
  private let last: Mutex<LastCycle> = Mutex(LastCycle())

  /// The last cycle's result.
  private struct LastCycle: Sendable {
    var report: SyncReport?
    var error: StrandlineError?
  }

  init(store: RecordStore, configuration: SyncConfiguration) throws {
    self.store = store
    self.database = try configuration.makeDatabase(store.path, StoreEnvironment(store.environment))
    guard configuration.isAutomatic else { return }
    loop.withLock { task in
      // The engine lives until the store is closed: that is what ends this task.
      task = Task { await self.run() }
    }
  }

  package func localWriteEnded() { poke.signal() }

  package func stop() async {
    let task = loop.withLock { task in
      defer { task = nil }
      return task
    }
    task?.cancel()
    poke.signal()
    await task?.value
    // A cycle that somebody else runs ends before the store does.
    await lock.acquire()
    lock.release()
  }

  /// Runs one cycle now, as a person asks: pull, push, and pull again if anything conflicted. Calls that overlap run
  /// one after the other.
  ///
  /// - Returns: what was done; everything of it is durable.
  /// - Throws: `StrandlineError`: `.unreachable`, `.throttled` (with `retryAfter`), `.needsSignIn`, `.accountMismatch`,
  ///   `.serverRefused`; what was done before stays done, and nothing is lost.
  @discardableResult
  public func now(fileID: String = #fileID, line: Int = #line) async throws -> SyncReport {
    try await CallSite(fileID, line).run("syncing '\(store.path)'") { try await cycle(CycleOptions()) }
  }

  /// Runs one cycle.
  package func cycle(_ options: CycleOptions) async throws -> SyncReport {
    try store.requireOpen()
    await lock.acquire()
    defer { lock.release() }
    var cycle = Cycle(store: store, database: database, options: options, memory: memory)
    do {
      try await cycle.run()
      let report = cycle.total
      last.withLock { $0 = LastCycle(report: report) }
      return report
    } catch {
      let error = publicError(error)
      let report = cycle.total
      last.withLock { $0 = LastCycle(report: report, error: error as? StrandlineError) }
      throw error
    }
  }

  /// The public form of what ended a cycle.
  private func publicError(_ error: any Error) -> any Error {
    let doing = "syncing '\(store.path)'"
    let translated = StrandlineError.translating(error, doing)
    if translated is StrandlineError || translated is CancellationError { return translated }
    // A database may throw `CloudError` alone. Another error of an app's own database says that no answer came.
    return StrandlineError(.unreachable, "\(doing): the cloud database failed: \(error)", underlying: error)
  }

  /// Takes a lost zone up again: the app has decided that it may be synced. It is fetched from its beginning; if the server
  /// still does not have it, it is lost again.
  ///
  /// - Throws: `StrandlineError` as `write`; the decision is durable when this returns.
  public func resumeZone(_ zone: ZoneID, fileID: String = #fileID, line: Int = #line) async throws {
    try await CallSite(fileID, line).run("resuming zone '\(zone)'") {
      try store.requireOpen()
      try await store.commit { core in
        guard core.projections.sync.zones[zone]?.isLost == true else { return }
        core.append(
          .zoneChanged(ZoneChanged(zone: zone, change: .reset, reason: "resumed by the app", policy: "resume")))
      }
    }
    poke.signal()
  }

  /// What the last cycle did, nil before the first.
  public var lastReport: SyncReport? { last.withLock { $0.report } }

  /// Why the last cycle failed, nil if it did not.
  public var lastError: StrandlineError? { last.withLock { $0.error } }

  /// The store's state: what is owed, held, waited for.
  ///
  /// - Throws: as `RecordStore.status()`.
  public func status(fileID: String = #fileID, line: Int = #line) throws -> StoreStatus {
    try store.status(fileID: fileID, line: line)
  }

  // MARK: By itself

  /// How long after a write an upload begins: what is written together goes together.
  private static let debounceMilliseconds: Int64 = 500
  /// How long without a write until the server is asked anyway.
  private static let pollMilliseconds: Int64 = 60_000

  private func run() async {
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
        // Nobody comes back from these without a person; the poll looks again whether one has been there.
        if [.closed, .outcomeUnknown].contains(error.code) { return }
        // What the server said is not cut short by a write.
        if error.retryAfter != nil {
          do { try await environment.clock.sleep(milliseconds: wait) } catch { return }
          continue
        }
      } catch { return }
      await poke.wait(atMost: wait, clock: environment.clock)
      if Task.isCancelled { return }
      do { try await environment.clock.sleep(milliseconds: Self.debounceMilliseconds) } catch { return }
    }
  }
}
