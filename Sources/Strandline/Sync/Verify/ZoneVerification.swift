// What a comparison of a zone here with the same zone at the server has found.

import StrandlineSystem

/// The result of `SyncEngine.verify(_:)`: how a zone here differs from the zone at the server, after what could be mended was.
///
/// Compared are the versions that this store believes the server has. Changes that are not sent are on top of them, and no
/// difference.
public struct ZoneVerification: Hashable, Sendable {
  /// The zone.
  public var zone: ZoneID
  /// The records that the server lists.
  public var records = 0
  /// Those of them that are the same here, in tag, time and content.
  public var equal = 0
  /// Records that the server has and this store does not, by name, in order.
  public var missingHere: [String] = []
  /// Records that this store has synced and that the server does not have, by name, in order.
  public var missingThere: [String] = []
  /// Records that both have and that are not the same, by name, in order.
  public var different: [String] = []
  /// Records that the server lists and that cannot be read here, by name, in order.
  public var unreadable: [String] = []
  /// Records that were different at first and are not any more: fetched anew, or removed here because the server does not
  /// have them. By name, in order.
  public var mended: [String] = []
  /// Records of the zone with changes that are not sent.
  public var unsent = 0
  /// A digest of all contents here, whatever their order. Two devices that hold the same have the same.
  public var digestHere: UInt64 = 0
  /// The same of what the server lists.
  public var digestThere: UInt64 = 0

  /// A comparison of two empty sides.
  public init(zone: ZoneID) { self.zone = zone }

  /// Whether nothing is left that differs.
  public var isEqual: Bool { differences.isEmpty }

  /// The names of all that differ, in order.
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
