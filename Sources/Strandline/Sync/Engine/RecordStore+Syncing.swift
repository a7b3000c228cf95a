// Opens a store, with or without sync. In this folder because the store itself does not know the sync engine.

import Dispatch
import Synchronization

extension RecordStore {
  /// Opens the store at `path` for reading and writing, creating it if nothing (or an empty folder) is there.
  ///
  /// When this returns, every acknowledged write is readable. A tail that a crash left incomplete is set aside; if acknowledged data
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
    // Reading a whole log blocks its thread for long: not on the cooperative pool.
    let store = try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(
          with: Result {
            try openBlocking(
              at: path, types: types, durability: durability, options: options, environment: environment,
              fileID: fileID,
              line: line)
          })
      }
    }
    if let syncing {
      let engine = try CallSite(fileID, line).run("cannot sync the store at '\(path)'") {
        try SyncEngine(store: store, configuration: syncing)
      }
      store.core.withLock { $0.synced = SyncedDatabase(engine.database.address.scope, syncing.zones) }
      let rules = syncing.zoneLosses
      store.ruledLosses.withLock { $0 = Set(ZoneLoss.allCases.filter { rules[$0] != .ask }) }
      store.driver.withLock { $0 = engine }
      engine.beginAutomaticCycles()
    }
    return store
  }

  /// The sync engine.
  ///
  /// - Throws: `StrandlineError`: `.notSyncing` if the store was opened without `syncing:`, `.closed`.
  public var sync: SyncEngine {
    get throws {
      try requireOpen()
      guard let engine = driver.withLock({ $0 }) as? SyncEngine else {
        throw StrandlineError(.notSyncing, "the store at '\(path)' was opened without 'syncing:'")
      }
      return engine
    }
  }
}
