// Since when a zone is known to exist. Each page of a full fetch says what it shows of that, in the event that confirms its records; the
// end of the fetch compares it with the records that no page has shown.

/// Since when a zone is known to exist, by the records of it that this store had before and that the server still shows, each with its
/// creation time. A zone that was deleted and created again is younger, even if this store has uploaded records to it since.
package struct ZoneAge: Hashable, Sendable {
  /// The first of the events by which this store has these records' newest versions; `.none`: it is the zone that this store has
  /// fetched; nil: there is no such record.
  package var lsn: LSN?
  /// The first time at which the server created one of them.
  package var milliseconds: Int64?

  /// The zone is the one that this store has fetched.
  package static let fetched = ZoneAge(lsn: LSN.zero)

  /// By how much the clocks of two nodes of the server may differ. Without it, a record that was uploaded to the new zone through a
  /// node whose clock is late would seem older than the records of the old zone.
  private static let clockErrorMax: Int64 = 600_000

  package init(lsn: LSN? = nil, milliseconds: Int64? = nil) { (self.lsn, self.milliseconds) = (lsn, milliseconds) }

  package mutating func add(_ other: ZoneAge) {
    if let lsn = other.lsn { self.lsn = min(self.lsn ?? lsn, lsn) }
    if let created = other.milliseconds { milliseconds = min(milliseconds ?? created, created) }
  }

  package mutating func add(_ lsn: LSN, _ created: Int64?) { add(ZoneAge(lsn: lsn, milliseconds: created)) }

  /// Whether a version of another record came from this zone.
  ///
  /// - Parameters:
  ///   - version: the event that logged it.
  ///   - modified: when the server changed it last; nil if that is not known. Records of one request have one time.
  package func includes(_ version: LSN, _ modified: Int64?) -> Bool {
    if let lsn, lsn <= version { return true }
    guard let milliseconds, let modified else { return false }
    return milliseconds == modified || milliseconds + Self.clockErrorMax <= modified
  }
}
