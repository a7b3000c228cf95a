// A database around another one: to count requests, to refuse some, or to answer one of them differently. It passes on what
// it does not answer itself, also requirements of the protocol that have a default, which a copy of the list would miss.

/// A database that passes on to another one every request that it does not answer itself.
///
/// A conforming type says what its `base` is and implements the requests that it changes.
public protocol ForwardingDatabase: CloudDatabase {
  /// The database that answers the rest.
  var base: any CloudDatabase { get }
}

extension ForwardingDatabase {
  /// The address of `base`.
  public var address: CloudAddress { base.address }

  /// As `base` has it.
  public var minimumInterval: Duration { base.minimumInterval }

  /// As `base` answers; throws what it throws.
  public func user() async throws -> String { try await base.user() }

  /// As `base` answers; throws what it throws.
  public func zones() async throws -> [ZoneID] { try await base.zones() }

  /// Done by `base`; throws what it throws.
  public func createZone(_ zone: ZoneID) async throws { try await base.createZone(zone) }

  /// Done by `base`; throws what it throws.
  public func deleteZone(_ zone: ZoneID) async throws { try await base.deleteZone(zone) }

  /// Done by `base`; throws what it throws.
  public func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] { try await base.modify(operations, in: zone, atomic: atomic) }

  /// As `base` answers; throws what it throws.
  public func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await base.lookup(names, in: zone)
  }

  /// As `base` answers; throws what it throws.
  public func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    try await base.zoneChanges(of: queries)
  }

  /// As `base` answers; throws what it throws.
  public func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    try await base.newestRecords(ofType: type, in: zone, limit: limit, after: marker)
  }

  /// As `base` answers; throws what it throws.
  public func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await base.databaseChanges(since: token, limit: limit)
  }

  /// What `base` says.
  public var serverOffsetMilliseconds: Int64? { base.serverOffsetMilliseconds }

  /// What `base` says.
  public func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? {
    base.record(readingAgain: raw, in: zone)
  }
}
