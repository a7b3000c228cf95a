// The engine's face: one cycle at a time, and a status that anybody may ask for.

import Synchronization

/// Syncs one store with one cloud. Owned by the store, ended by `close()`.
public final class SyncEngine: SyncDriver {
  let store: RecordStore
  let database: any CloudDatabase

  init(store: RecordStore, configuration: SyncConfiguration) throws {
    self.store = store
    self.database = try configuration.makeDatabase(store.path, StoreEnvironment(store.environment))
  }

  package func noteLocalWrite() {}

  package func stop() async {}

  /// Runs one cycle now.
  @discardableResult
  public func now() async throws -> SyncReport { try await cycle(CycleOptions()) }

  /// Runs one cycle.
  package func cycle(_ options: CycleOptions) async throws -> SyncReport { SyncReport() }
}
