// Opens a store, with or without sync. In this folder because the store itself does not know the sync engine.

import Dispatch
import StrandlineSystem

extension RecordStore {
  /// Opens the store at `path` for reading and writing, creating it if nothing (or an empty folder) is there.
  ///
  /// When this returns, every acknowledged write is readable, also what other processes have left in the store's inbox
  /// (``StoreInbox``), unless `StoreStatus.inbox` says why not. A tail that a crash left incomplete is set aside; if acknowledged data
  /// is damaged, this throws with file and offset, and changes nothing.
  ///
  /// - Parameters:
  ///   - path: the store's folder.
  ///   - types: the types whose ``SyncRecord/schema`` the store is to know. If there are any, `options` may declare something of
  ///     their record types and fields alone, and nothing of a type that declares something itself.
  ///   - syncing: the cloud to sync with; nil for a local store.
  ///   - durability: whether a transaction is durable when `write` returns. Two opens of a store may differ in it.
  ///   - options: options of the log, and the app's declared types.
  ///   - environment: disk, clock and random source; the machine's own by default.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.notAStore`, `.storeHeld`, `.damaged`, `.fromTheFuture`, `.diskFull`, `.io`;
  ///   `.invalidName` for a schema with invalid names of types or fields, `.invalidValue` for a rule about what is no field, or
  ///   two about the same.
  /// - Complexity: O(events since the index was last written), at most 1,000 after a clean close. If the index is missing or
  ///   damaged, O(bytes of the log): a million events in a few seconds.
  public static func open(
    at path: String, types: [any SyncRecord.Type] = [], syncing: SyncConfiguration? = nil,
    durability: Durability = .durable, options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real,
    fileID: String = #fileID, line: Int = #line
  ) async throws -> RecordStore {
    let store = try await onThread {
      try openAlone(
        at: path, types: types, durability: durability, options: options, environment: environment,
        createIfAbsent: true, fileID: fileID, line: line)
    }
    var engine: SyncEngine?
    if let syncing {
      let made = try CallSite(fileID, line).run("cannot sync the store at '\(path)'") {
        try SyncEngine(store: store, configuration: syncing)
      }
      store.core.withLock {
        $0.synced = SyncedDatabase(
          made.database.address.scope, syncing.zones, movesContents: made.database.movesContents)
      }
      let rules = syncing.zoneLosses
      store.ruledLosses.withLock { $0 = Set(ZoneLoss.allCases.filter { rules[$0] != .ask }) }
      store.driver.withLock { $0 = made }
      engine = made
    }
    do {
      try await store.onOwnThread { try store.readInboxOfOpen() }
    } catch {
      // What this open has to say is that failure.
      _ = try? await store.close()
      throw error
    }
    engine?.beginAutomaticCycles()
    return store
  }

  /// Opens a store on a thread of its own: reading a whole log would block one of the cooperative pool for long.
  static func onThread(_ open: @escaping @Sendable () throws -> RecordStore) async throws -> RecordStore {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Result { try open() }) }
    }
  }

  /// Fetches changes, sends pending changes, and fetches again if a record conflicted. It does not keep to the engine's own waits, and
  /// sends held records again that wait for such a time; waits that the server named are kept. Calls during a cycle share the
  /// next one.
  ///
  /// - Returns: the cycle's report; its results are durable.
  /// - Throws: `StrandlineError`: `.unreachable`, `.throttled` (with `retryAfter` if the server named the wait),
  ///   `.needsSignIn`, `.accountMismatch`, `.serverRefused`, `.zoneLost`, `.fromTheFuture` (a record needs a later version
  ///   of the app, `NewerVersionRule.haltForUpgrade`), `.suspended` (also if the store is suspended meanwhile), `.closed`,
  ///   `.noProgress` (a fault of this library has ended the cycle); of the disk `.diskFull`, `.io`, `.outcomeUnknown`
  ///   and `.damaged`. The results before the error stay, and unsent changes stay in the store. Without an error, changes that are
  ///   still pending are held (`RecordStore.heldRecords()`), wait for a held record (`RecordStore.pendingChanges` names it), or were written
  ///   during the cycle. `CancellationError` at once if the task is cancelled.
  /// - Complexity: a request for each 200 changes, in each direction, and for each 50 changed zones; O(changes) in time; two batches
  ///   and two pages, or 1,000 records, in memory.
  @discardableResult
  public func sync() async throws -> SyncReport { try await engine.sync() }

  /// As `sync()`, for an app that the system lets run for a limited time: begins no request that might not be answered by then.
  ///
  /// A request is expected to take a second, or as long as the longest one so far. One that takes longer is not aborted: cancel the
  /// task when the system says that the time is over; only the next fetch gets longer by that. An automatic cycle under way ends
  /// at the deadline too; one from `sync()` is waited for.
  ///
  /// - Parameters:
  ///   - deadline: how long from now.
  /// - Returns: the cycle's report; its results are durable. `SyncReport.isUnfinished` says whether work is left.
  /// - Throws: as `sync()`. A wait that would end after the deadline throws as one that is too long.
  /// - Complexity: as `sync()`.
  @discardableResult
  public func sync(deadline: Duration) async throws -> SyncReport { try await engine.sync(deadline: deadline) }

  /// The sync engine; nil if the store was opened without `syncing:`, and after `close`.
  public var syncEngine: SyncEngine? { try? engine }

  /// The sync engine.
  ///
  /// - Throws: `StrandlineError`: `.notSyncing` if the store was opened without `syncing:`, `.closed`.
  package var engine: SyncEngine {
    get throws {
      try requireOpen()
      guard let engine = driver.withLock({ $0 }) as? SyncEngine else {
        throw StrandlineError(.notSyncing, "the store at '\(path)' was opened without 'syncing:'")
      }
      return engine
    }
  }
}
