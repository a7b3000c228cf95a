// `syncing: .cloudKitWeb("iCloud.app", environment: .production)`: how a program says that a store syncs with CloudKit by its web
// face: one without the entitlement of an app, on a system without CloudKit's framework, or with a local server.
//
// The session file lies in the store's folder, because a session belongs to one user, as a store does. The API token
// belongs to the app: it is an argument or an environment variable, and is never written to a file.

public import Strandline
internal import StrandlineSystem

extension SyncConfiguration {
  /// The name of the session file in the store's folder.
  package static let sessionName = "session"
  /// The environment variable that may hold the API token.
  package static let apiTokenVariable = "STRANDLINE_API_TOKEN"

  /// Syncs with a CloudKit container through CloudKit Web Services. An app on a device of Apple's has an account already: it uses
  /// `cloudKit(_:environment:options:)` of StrandlineNativeCloudKit.
  ///
  /// The signed-in user's token is kept in the file `session` of the store's folder; `WebSession(path:)` and
  /// `signIn(token:)` put the first one there, after the store was opened once: it is made only in an empty folder. Until then a sync throws `.needsSignIn`, with the URL of the sign-in page.
  ///
  /// - Parameters:
  ///   - container: the container's identifier, "iCloud." first.
  ///   - environment: that in which the app's records are; the API token must be of the same one.
  ///   - scope: the database; the private one by default. The public one has no change feed and cannot be synced.
  ///   - apiToken: the container's API token. If nil, it is read from the environment variable
  ///     `STRANDLINE_API_TOKEN`. Apple's service needs one, a local server none.
  ///   - baseURL: scheme, host and port: nil for Apple's service, or what `strandline serve` prints.
  /// - Returns: a configuration. Opening a store with it throws `StrandlineError.invalidValue` if `baseURL` is Apple's
  ///   service or nil and there is no API token.
  public static func cloudKitWeb(
    _ container: String, environment: CloudEnvironment, scope: DatabaseScope = .private,
    apiToken: String? = nil, baseURL: String? = nil
  ) -> SyncConfiguration {
    var configuration = cloudKitWeb(
      CloudAddress(container: container, environment: environment, scope: scope), apiToken: apiToken,
      baseURL: baseURL ?? WebServicesDatabase.appleOrigin,
      making: { NetworkTransport() })
    configuration.listensForPushes = true
    return configuration
  }

  #if !canImport(Darwin)
    /// The same with a server whose certificate is of an authority of your own. On Apple's systems such an authority goes into the
    /// keychain.
    ///
    /// - Parameters:
    ///   - baseURL: scheme, host and port of the server.
    ///   - authorities: the path of a PEM file with the authorities whose certificates are accepted. Without it those are accepted
    ///     that the system trusts, or that the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name. A file that cannot
    ///     be read is the error `.unreachable` of each sync.
    public static func cloudKitWeb(
      _ container: String, environment: CloudEnvironment, scope: DatabaseScope = .private,
      apiToken: String? = nil, baseURL: String, authorities: String
    ) -> SyncConfiguration {
      var configuration = cloudKitWeb(
        CloudAddress(container: container, environment: environment, scope: scope), apiToken: apiToken,
        baseURL: baseURL,
        making: { NetworkTransport(authorities: authorities) })
      configuration.listensForPushes = true
      return configuration
    }
  #endif

  /// The same over any transport.
  package static func cloudKitWeb(
    _ address: CloudAddress, apiToken: String?, baseURL: String,
    making transport: @escaping @Sendable () -> any Transport
  ) -> SyncConfiguration {
    SyncConfiguration { storePath, environment in
      let token = apiToken ?? ProcessEnvironment.value(of: apiTokenVariable) ?? ""
      guard !token.isEmpty || baseURL != WebServicesDatabase.appleOrigin else {
        throw StrandlineError(
          .invalidValue,
          "no API token for '\(address.container)': CloudKit needs one; pass apiToken: or set \(apiTokenVariable)")
      }
      let session = try WebSession(path: "\(storePath)/\(sessionName)", environment: environment.system)
      return WebServicesDatabase(
        address: address, apiToken: token, session: session, baseURL: baseURL, transport: transport(),
        environment: environment.system)
    }
  }
}
