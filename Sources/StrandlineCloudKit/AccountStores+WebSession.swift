// A sign-in on the web for a folder of accounts: whose a token is, only the server knows.

public import Strandline

extension AccountStores {
  /// Signs a user in with the web auth token of the sign-in page, asks the server whose it is, and opens that user's store.
  ///
  /// The token is durable before it is used, in the file `session` of the folder. If the server cannot be reached, the store of before
  /// stays open and syncs nothing that is not its user's; call `accountMayHaveChanged()` later.
  ///
  /// - Parameters:
  ///   - token: the web auth token that the sign-in page returned.
  /// - Returns: the store that is open then.
  /// - Throws: `StrandlineError`: `.invalidValue` if it cannot be a token, `.misuse` if the accounts sync with a cloud that has no session of the
  ///   web; as `accountMayHaveChanged()`.
  @discardableResult
  public func signIn(token: String) async throws -> RecordStore? {
    try await signIn { [database] in
      guard let web = database as? WebServicesDatabase, try web.signIn(token: token) else {
        throw StrandlineError(
          .misuse, "\(database.address) has no session of the web; on Apple's systems the user signs in in the settings"
        )
      }
    }
  }
}
