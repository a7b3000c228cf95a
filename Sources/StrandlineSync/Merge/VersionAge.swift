// Decides whether a version of the server is newer than the base, by their `seen` sets and not by a clock. Pure.
//
// Replicas of a server may lag by any time, so a modified time does not say which of two versions was made from the other. The stamps
// do: each device that writes a record lists in `seen` the mutations that it has included, like a version vector.

/// How a version of the server compares with the base of the same record.
package enum VersionAge: Hashable, Sendable {
  /// It has seen the base, and more.
  case newer
  /// The base has seen it, and more.
  case older
  /// Neither has seen the other; or a tool without stamps has written one of them; or a copy of this store has, whose LSNs cannot be
  /// compared with this log's.
  case unknown

  /// - Parameters:
  ///   - arrived: the stamp of the version; `isStamped` is false if it arrived without one.
  ///   - known: the stamp of the base.
  ///   - namesCopy: it names a mutation that a copy of this log wrote under this log's writer number.
  ///   - wasModifiedAfter: by the server's clock it is later than the base.
  package init(of arrived: Stamp, isStamped: Bool, beside known: Stamp, namesCopy: Bool, wasModifiedAfter: Bool) {
    guard isStamped, arrived.seen != known.seen else {
      self = .unknown
      return
    }
    if known.dominates(arrived) {
      // LSNs of two logs may have been compared: then the server's clock decides.
      self = wasModifiedAfter && (namesCopy || known.mayNameOtherLog(than: arrived)) ? .unknown : .older
    } else {
      self = arrived.dominates(known) && !namesCopy ? .newer : .unknown
    }
  }
}
