// Which cloud a store syncs with, and how. The clients of clouds are in other modules; this is what they hand to `open`.

package import StrandlineSystem

/// Which cloud a store syncs with, and how.
///
/// StrandlineCloudKit adds `.cloudKit("iCloud.app")`.
public struct SyncConfiguration: Sendable {
  /// Makes the database for a store, given the store's folder (which may hold a session file).
  package var makeDatabase: @Sendable (_ storePath: String, _ environment: StoreEnvironment) throws -> any CloudDatabase

  /// Whether the engine starts runs by itself: after a write, about each minute (`SyncPace.poll`), and when a wait is over. While
  /// runs fail, the next one comes after a second, and then after twice as long each time, up to five minutes. If false, only
  /// `SyncEngine.now()` syncs, and `wake(_:)` does nothing.
  public var isAutomatic = true

  /// Which zones are synced: all by default. The setting is not kept in the store: each open says it again.
  public var zones = SyncedZones.all

  /// In which order a zone comes that this store has never fetched.
  public var firstFetch = FirstFetch.pageByPage

  /// Takes lines that say what the engine does; none by default.
  public var log: SyncLog?

  /// When the engine runs by itself, and how long it waits while requests fail.
  public var pace = SyncPace()

  /// What the engine does by itself about a zone that is lost: by default nothing, so that a person decides.
  public var zoneLosses = ZoneLossRules()

  /// How large an upload may be.
  public var batch = UploadBatch()

  /// How long a record waits that is over quota.
  public var overQuota = OverQuotaWait()

  /// Which version of the app this is (`CFBundleVersion`, say); empty by default.
  ///
  /// A record that the server refused as wrong waits until it is edited or a person releases it. If the app names its versions, the first
  /// run of another version sends it once more: the update may have mended what was wrong.
  public var appVersion = ""

  /// What waits are drawn from; nil: from the store's random numbers. A fleet draws them apart from what logs draw on their
  /// own threads, so that its seed has one outcome.
  package var random: (any RandomSource)?

  /// Syncs with any implementation of `CloudDatabase`.
  public init(_ database: any CloudDatabase) {
    makeDatabase = { _, _ in database }
  }

  /// Syncs with a database that is made when the store has been opened.
  ///
  /// - Parameter makeDatabase: gets the store's folder and environment; what it throws, `open` throws.
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
    (losses, batch, overQuota) = (configuration.zoneLosses, configuration.batch, configuration.overQuota)
    (appVersion, firstFetch, zones) = (configuration.appVersion, configuration.firstFetch, configuration.zones)
  }
}
