// Whose store this is: which zones are the user's own, and which databases the store syncs.
//
// The log holds a hash of the user's record name and not the name, so an owner is compared by its hash.

/// What a store knows of its user and its databases.
package struct Account: Sendable {
  /// The hash of the user's record name; nil before the first sync.
  private let userHash: UInt64?
  /// The databases that were synced, and the one of the store's engine; none for a local store.
  package let scopes: [DatabaseScope]

  /// - Parameter engine: the database that the store's engine syncs.
  package init(_ sync: SyncState, engine: DatabaseScope? = nil) {
    userHash = sync.bounds.values.first?.userHash
    scopes = Set(sync.bounds.keys).union([engine].compactMap { $0 }).sorted()
  }

  package var isUserKnown: Bool { userHash != nil }

  /// Whether the store takes records of a database. One that was never synced takes the user's own, until its first sync
  /// says otherwise.
  package func takes(_ scope: DatabaseScope) -> Bool { scopes.isEmpty ? scope == .private : scopes.contains(scope) }

  /// The one spelling of a zone: the user's own zones have no owner. Before the first sync the user's own record name is
  /// not known, and a zone under it stays as it is.
  package func canonical(_ zone: ZoneID) -> ZoneID {
    guard !zone.owner.isEmpty, let userHash, userHash == Bound.hash(ofUser: zone.owner) else { return zone }
    return ZoneID(zone.name, scope: zone.scope)
  }

  /// The one spelling of a record's identity.
  package func canonical(_ id: RecordID) -> RecordID {
    id.zone.owner.isEmpty ? id : RecordID(id.name, zone: canonical(id.zone))
  }
}
