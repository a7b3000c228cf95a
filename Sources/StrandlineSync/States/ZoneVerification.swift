// The result of comparing a zone in this store with the zone at the server.

import StrandlineSystem

/// The result of `SyncEngine.verify(_:)`: the differences between this store's zone and the server's that remain after the repair.
///
/// It compares the versions that this store believes the server has. Unsent changes are not differences.
public struct ZoneVerification: Hashable, Sendable {
  /// The zone.
  public var zone: ZoneID
  /// The number of records that the server lists.
  public var records = 0
  /// How many of them are the same here, in change tag, time and content.
  public var equal = 0
  /// Records that the server has and this store does not, by name, in order.
  public var missingHere: [String] = []
  /// Records that this store has synced and that the server does not have, by name, in order.
  public var missingThere: [String] = []
  /// Records that both have and that are not the same, by name, in order.
  public var different: [String] = []
  /// Records that the server lists and that cannot be read here, by name, in order.
  public var unreadable: [String] = []
  /// Records that were repaired: fetched again, or removed here because the server does not have them. By name, in order.
  public var mended: [String] = []
  /// The number of records of the zone with unsent changes.
  public var unsent = 0
  /// A digest of all contents in this store, independent of their order: two devices with the same records have the same digest.
  package var digestHere: UInt64 = 0
  /// The digest of the server's list.
  package var digestThere: UInt64 = 0

  /// A comparison of two empty sides.
  package init(zone: ZoneID) { self.zone = zone }

  /// Whether no difference remains.
  public var isEqual: Bool { differences.isEmpty }

  /// The names of all different records, in order.
  var differences: [String] {
    (missingHere + missingThere + different + unreadable).sorted { $0.precedesByUTF8($1) }
  }
}

extension ZoneVerification: CustomStringConvertible {
  /// The counts, and the digests.
  public var description: String {
    let counts: [(Int, String)] = [
      (missingHere.count, "missing here"), (missingThere.count, "missing there"), (different.count, "different"),
      (unreadable.count, "unreadable"), (mended.count, "mended"), (unsent, "unsent"),
    ]
    let found = counts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
    return (["\(zone): \(equal) of \(String.count(records, "record")) equal"] + found).joined(separator: ", ").oneLine
  }
}
