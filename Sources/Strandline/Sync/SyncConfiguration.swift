// What to sync with. The transports live in modules above; here is only where they plug in.

/// Which cloud a store syncs with, and how.
///
/// StrandlineCloudKit adds `.cloudKit("iCloud.app")`.
public struct SyncConfiguration: Sendable {
  /// Makes the database for a store, given the store's folder (where a session may be kept).
  package var makeDatabase: @Sendable (_ storePath: String, _ environment: StoreEnvironment) throws -> any CloudDatabase

  /// Whether the engine syncs by itself: after writes, now and then, and when a wait is over. Otherwise only `now()` does.
  public var isAutomatic = true

  /// Syncs with any cloud that answers `CloudDatabase`.
  public init(_ database: any CloudDatabase) {
    makeDatabase = { _, _ in database }
  }

  /// Syncs with a cloud that is made when the store is open.
  public init(
    making makeDatabase:
      @escaping @Sendable (_ storePath: String, _ environment: StoreEnvironment) throws ->
      any CloudDatabase
  ) {
    self.makeDatabase = makeDatabase
  }
}
