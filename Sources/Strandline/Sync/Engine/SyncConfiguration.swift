// The app's settings for sync. The cloud clients are in other modules, and hand their database to `open` in this value.

package import StrandlineSystem

/// Which cloud a store syncs with, and how.
///
/// StrandlineNativeCloudKit adds `.cloudKit(_:environment:)` for apps on Apple's systems, StrandlineCloudKit
/// `.cloudKitWeb(_:environment:)` for any other program.
public struct SyncConfiguration: Sendable {
  /// Makes the database for a store, given the store's folder (which may hold a session file).
  package var makeDatabase: @Sendable (_ storePath: String, _ environment: StoreEnvironment) throws -> any CloudDatabase

  /// Whether the engine syncs by itself: after a write, about each minute (`SyncPace.poll`), and when a wait is over. While cycles
  /// fail, the next one comes after a second, then after twice as long each time, up to five minutes. If false, only
  /// `SyncEngine.sync()` syncs, and `wake(_:)` does nothing.
  public var isAutomatic = true

  /// Whether an automatic engine listens for pushes over the web. True for `.cloudKitWeb(_:environment:)`. A push begins a fetch within
  /// moments; without any, and while they are lost, changes are found by polling (`isAutomatic`).
  public var listensForPushes = false

  /// Which zones are synced: all by default. The store does not remember it, so each open has to say it.
  public var zones = SyncedZones.all

  /// In which order this store fetches a zone for the first time.
  public var firstFetch = FirstFetch.pageByPage

  /// Takes the lines of the engine's log; none by default.
  public var log: SyncLog?

  /// When the engine syncs by itself, and how long it waits while requests fail.
  package var pace = SyncPace()

  /// What the engine does about a lost zone: by default nothing, so that a person decides.
  public var zoneLosses = ZoneLossRules()

  /// How large an upload may be.
  package var batch = UploadBatch()

  /// The app's version (`CFBundleVersion`, for example); empty by default.
  ///
  /// A record that the server refused as invalid waits until it is edited or a person releases it. If the app names its version, the
  /// first cycle of another version sends it once more, as the update may have fixed the cause.
  public var appVersion = ""

  /// The random source for waits; nil: the store's. A simulated fleet separates it from the random numbers that logs use on
  /// their own threads, so that a seed always gives the same result.
  package var random: (any RandomSource)?

  /// Syncs with any implementation of `CloudDatabase`.
  public init(_ database: any CloudDatabase) {
    makeDatabase = { _, _ in database }
  }

  /// Syncs with a database that is made when the store has been opened.
  ///
  /// - Parameter makeDatabase: gets the store's folder and environment; `open` throws its errors.
  public init(
    making makeDatabase:
      @escaping @Sendable (_ storePath: String, _ environment: StoreEnvironment) throws ->
      any CloudDatabase
  ) {
    self.makeDatabase = makeDatabase
  }
}

extension SyncPolicies {
  init(_ configuration: SyncConfiguration) {
    self.init(
      losses: configuration.zoneLosses, batch: configuration.batch,
      appVersion: configuration.appVersion, firstFetch: configuration.firstFetch, zones: configuration.zones)
  }
}
