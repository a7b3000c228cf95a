// Which zones of its database a store syncs. An app shares its container with what other parts of it, or other apps, keep there:
// Core Data's zone may have more records than all the rest.

import StrandlineSystem

/// Which zones of the database a store syncs (`SyncConfiguration.zones`).
///
/// A zone that is left out is asked about by no request: nothing of it is fetched, sent, lost or erased. A record of it that is
/// here stays readable and as it is, a write to it is refused with `StrandlineError.Code.foreignZone`, and what was written before
/// and not sent waits until the zone is taken in again (`PendingChange.Obstacle.zoneLeftOut`, `SyncStatus.leftOut`).
/// A zone that is taken in later is fetched from its beginning, or from where it was when it was left out.
public enum SyncedZones: Hashable, Sendable {
  /// All that the server has.
  case all
  /// These alone. They need not exist: a zone is created by the first upload to it.
  case only(Set<ZoneID>)
  /// All but these.
  case allBut(Set<ZoneID>)
}

extension SyncedZones: CustomStringConvertible {
  /// Which zones, in order.
  public var description: String {
    func list(_ zones: Set<ZoneID>) -> String { zones.sorted().map { "\($0)" }.joined(separator: ", ").oneLine }
    return switch self {
    case .all: "all zones"
    case .only(let zones): "only \(list(zones))"
    case .allBut(let zones): "all but \(list(zones))"
    }
  }
}

/// The database that an engine syncs, and which zones of it.
package struct SyncedDatabase: Sendable {
  package let scope: DatabaseScope
  package let zones: SyncedZones
  /// Whether contents of assets go up and come down.
  package let movesContents: Bool

  package init(_ scope: DatabaseScope, _ zones: SyncedZones, movesContents: Bool = false) {
    (self.scope, self.zones, self.movesContents) = (scope, zones, movesContents)
  }

  /// Whether any zone is left out.
  package var leavesOutAny: Bool { zones != .all }

  /// Whether a zone is of this database and synced.
  package func takes(_ zone: ZoneID, _ sync: SyncState) -> Bool { zone.scope == scope && !leavesOut(zone, sync) }

  /// Whether a zone is of this database and left out.
  package func leavesOut(_ zone: ZoneID, _ sync: @autoclosure () -> SyncState) -> Bool {
    // Mostly nothing is, and each write asks.
    switch zones {
    case .all: false
    case .only(let zones): zone.scope == scope && !zones.has(zone, sync())
    case .allBut(let zones): zone.scope == scope && zones.has(zone, sync())
    }
  }
}

extension Set<ZoneID> {
  /// Whether a zone is among them, however its owner is spelled. O(zones) where it is not.
  fileprivate func has(_ zone: ZoneID, _ sync: SyncState) -> Bool {
    if contains(zone) { return true }
    let account = Account(sync)
    return contains { account.canonical($0) == zone }
  }
}
