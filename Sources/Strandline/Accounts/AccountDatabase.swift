// What a store of a folder of accounts syncs with: the cloud while its user is signed in, and nobody else's at any time.

import StrandlineSystem

/// The database of one store of a folder of accounts. While it is shut, no request reaches the server.
final class AccountDatabase: ForwardingDatabase {
  /// The database of whoever is signed in.
  private let whole: any CloudDatabase
  private let current: OrderedMutex<any CloudDatabase>

  init(_ whole: any CloudDatabase) {
    self.whole = whole
    current = OrderedMutex(NobodysDatabase(base: whole))
  }

  var base: any CloudDatabase { current.withLock { $0 } }

  /// From now on requests are made for this user alone.
  func open(for user: String) {
    let restricted = whole.restricted(to: user)
    current.withLock { $0 = restricted }
  }

  /// From now on requests are refused here. One that is under way ends as it may.
  func shut() { current.withLock { $0 = NobodysDatabase(base: whole) } }
}

/// A database that asks the server for nothing.
private struct NobodysDatabase: ForwardingDatabase {
  let base: any CloudDatabase

  private var refusal: CloudError {
    CloudError(.authenticationRequired, reason: "nobody is signed in; what is written stays in the store")
  }

  func user() async throws -> String { throw refusal }
  func zones() async throws -> [ZoneID] { throw refusal }
  func createZone(_ zone: ZoneID) async throws { throw refusal }
  func deleteZone(_ zone: ZoneID) async throws { throw refusal }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    throw refusal
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] { throw refusal }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] { throw refusal }

  func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    throw refusal
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage { throw refusal }
  func awaitPush() async throws { throw refusal }
  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset { throw refusal }
  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws { throw refusal }
}
