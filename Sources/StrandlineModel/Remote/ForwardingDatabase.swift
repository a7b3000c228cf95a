// A wrapper around another database: to count requests, to refuse some, or to answer one of them differently. It also forwards
// protocol requirements with a default implementation, which a hand-written wrapper would miss; all but `restricted(to:)`: what that
// makes must send its requests through the wrapper.

/// A database that forwards every request that it does not answer itself to another one.
///
/// A conforming type has a `base` and implements the requests that it changes.
package protocol ForwardingDatabase: CloudDatabase {
  /// The database that answers the rest.
  var base: any CloudDatabase { get }
}

extension ForwardingDatabase {
  /// The address of `base`.
  package var address: CloudAddress { base.address }

  /// The value of `base`.
  package var minimumInterval: Duration { base.minimumInterval }

  /// The value of `base`.
  package var operationsMax: Int { base.operationsMax }

  /// Forwards to `base`.
  package func beginCycle(isUserInitiated: Bool) { base.beginCycle(isUserInitiated: isUserInitiated) }

  /// Forwards to `base`, and throws its errors.
  package func forgetCredential() throws { try base.forgetCredential() }

  /// Forwards to `base`, and throws its errors.
  package func user() async throws -> String { try await base.user() }

  /// Forwards to `base`, and throws its errors.
  package func zones() async throws -> [ZoneID] { try await base.zones() }

  /// Forwards to `base`, and throws its errors.
  package func createZone(_ zone: ZoneID) async throws { try await base.createZone(zone) }

  /// Forwards to `base`, and throws its errors.
  package func deleteZone(_ zone: ZoneID) async throws { try await base.deleteZone(zone) }

  /// Forwards to `base`, and throws its errors.
  package func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] { try await base.modify(operations, in: zone, atomic: atomic) }

  /// Forwards to `base`, and throws its errors.
  package func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await base.lookup(names, in: zone)
  }

  /// Forwards to `base`, and throws its errors.
  package func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    try await base.zoneChanges(of: queries)
  }

  /// Forwards to `base`, and throws its errors.
  package func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    try await base.newestRecords(ofType: type, in: zone, limit: limit, after: marker)
  }

  /// Forwards to `base`, and throws its errors.
  package func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await base.databaseChanges(since: token, limit: limit)
  }

  /// Forwards to `base`, and throws its errors.
  package func awaitPush() async throws { try await base.awaitPush() }

  /// The value of `base`.
  package var movesContents: Bool { base.movesContents }

  /// Forwards to `base`, and throws its errors.
  package func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    try await base.upload(content, for: place)
  }

  /// Forwards to `base`, and throws its errors.
  package func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    try await base.download(asset, of: place, into: sink)
  }

  /// The value of `base`.
  package var serverClockOffset: Duration? { base.serverClockOffset }

  /// The value of `base`.
  package func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? {
    base.record(readingAgain: raw, in: zone)
  }
}
