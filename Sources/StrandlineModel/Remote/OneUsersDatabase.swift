// A database for one user alone, over a transport of which only `user()` says who is signed in.

import StrandlineSystem

/// Makes requests only while one user is signed in.
///
/// What would change something at the server is sent if the user is signed in right before. An answer counts if the user is
/// signed in right after it: what went into another user's database is not sent, and stays pending.
struct OneUsersDatabase: ForwardingDatabase {
  let base: any CloudDatabase
  /// The user's record name.
  let owner: String

  private func check() async throws {
    guard try await base.user().equalsUTF8(owner) else { throw StrandlineError.anotherUser }
  }

  private func checking<Answer>(_ request: () async throws -> Answer) async throws -> Answer {
    let answer = try await request()
    try await check()
    return answer
  }

  func user() async throws -> String {
    try await check()
    return owner
  }

  func createZone(_ zone: ZoneID) async throws {
    try await check()
    try await checking { try await base.createZone(zone) }
  }

  func deleteZone(_ zone: ZoneID) async throws {
    try await check()
    try await checking { try await base.deleteZone(zone) }
  }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    try await check()
    return try await checking { try await base.modify(operations, in: zone, atomic: atomic) }
  }

  func zones() async throws -> [ZoneID] { try await checking { try await base.zones() } }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await checking { try await base.lookup(names, in: zone) }
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    try await checking { try await base.zoneChanges(of: queries) }
  }

  func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    try await checking { try await base.newestRecords(ofType: type, in: zone, limit: limit, after: marker) }
  }

  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    try await check()
    return try await checking { try await base.upload(content, for: place) }
  }

  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    try await checking { try await base.download(asset, of: place, into: sink) }
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await checking { try await base.databaseChanges(since: token, limit: limit) }
  }
}

extension StrandlineError {
  /// What a database for one user answers while another one is signed in.
  package static var anotherUser: StrandlineError {
    StrandlineError(
      .accountMismatch,
      "another user is signed in now than the one whose records these are; nothing was sent; open the store of this user"
    )
  }
}
