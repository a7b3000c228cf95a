// `syncing: .cloudKit("iCloud.app", environment: .production)`: how an app says that a store syncs with CloudKit through the account of
// the device.

#if canImport(CloudKit)
  internal import CloudKit
  public import Strandline

  extension SyncConfiguration {
    /// Syncs with the private database of a CloudKit container, through CloudKit's framework and the account of the device.
    ///
    /// The app needs the entitlement for the container: the system ends a process without it. A sync while nobody is signed in, or while
    /// the account cannot be used, throws `.needsSignIn`; nothing is lost by that. A store that was synced by the web before is synced on:
    /// it fetches its zones once from their beginnings.
    ///
    /// - Parameters:
    ///   - container: the container's identifier, "iCloud." first.
    ///   - environment: that for which the app is signed. The framework takes it from there; the store refuses to be synced with the
    ///     other one later.
    ///   - options: how requests are made.
    /// - Returns: a configuration.
    public static func cloudKit(
      _ container: String, environment: CloudEnvironment, options: NativeRequestOptions = NativeRequestOptions()
    ) -> SyncConfiguration {
      SyncConfiguration { _, _ in
        NativeCloudDatabase(CKContainer(identifier: container), environment: environment, options: options)
      }
    }
  }
#endif
