// The examples of the page on accounts, and the one of a push, compiled and run: HouseTests finds each of them here, letter by letter.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private struct Note: SyncRecord {
  var id = RecordName.random()
  var title: String
}

func openAccounts(at folder: String, syncing cloud: SyncConfiguration) async throws -> AccountStores {
  let accounts = try await AccountStores.open(at: folder, types: [Note.self], syncing: cloud)
  // The store of the last user is open by now, without the network. Who is signed in today?
  do { try await accounts.accountMayHaveChanged() } catch StrandlineError.Code.unreachable {}
  return accounts
}

func signedIn(with token: String, to accounts: AccountStores) async throws -> RecordStore? {
  try await accounts.signIn(token: token)  // the store of the user who has signed in, now open
}

func signedOut(of accounts: AccountStores) async throws { try await accounts.signOut() }

func unsentNotes(of account: StoredAccount) async throws -> [String] {
  let store = try await RecordStore.openReadOnly(at: account.path)
  return try store.fetch(Note.self).map(\.title)
}

func received(_ notification: [AnyHashable: Any], for store: RecordStore) -> Bool {
  store.syncEngine?.handle(remoteNotification: notification) ?? false  // it fetches by itself
}

@Suite(.timeLimit(.minutes(30))) struct `The examples of the page on accounts` {
  @Test func `open the store of a user, and read what was not sent`() async throws {
    let folder = try TemporaryFolder()
    let server = CloudServer(inMemory: .real)
    var cloud = SyncConfiguration.cloudKitWeb(
      CloudAddress(container: "iCloud.app", environment: .development), apiToken: "", baseURL: "http://127.0.0.1:1",
      making: { InProcessTransport(server) })
    cloud.isAutomatic = false
    #if !canImport(Darwin)
      // A server of one's own, whose certificate the system does not know.
      let own = SyncConfiguration.cloudKitWeb(
        "iCloud.app", environment: .development, baseURL: "https://127.0.0.1:1", authorities: "/etc/ssl/own.pem")
      #expect(own.isAutomatic)
    #endif
    let accounts = try await openAccounts(at: folder("accounts"), syncing: cloud)
    let account = try #require(accounts.account)
    #expect(account.user == CloudServer.defaultUser)
    let store = try #require(accounts.store)
    try await store.write { try $0.save(Note(title: "Low tide at six")) }
    #expect(try await unsentNotes(of: account) == ["Low tide at six"])
    #expect(received(["ck": ["cid": "iCloud.app"]], for: store))
    #expect(!received(["aps": ["badge": 1]], for: store))
    let again = try await signedIn(with: server.signIn(), to: accounts)
    #expect(again === store)
    try await signedOut(of: accounts)
    let error = await #expect(throws: StrandlineError.self) { try await store.sync() }
    #expect(error?.code == .needsSignIn)
    try await accounts.close()
  }
}
