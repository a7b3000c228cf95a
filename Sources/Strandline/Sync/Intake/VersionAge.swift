// Whether a version of the server is newer than the base: by what both have seen, and by no clock. Pure.
//
// Two nodes of a server may be behind each other by any time, so a modified time alone says nothing of two versions one of
// which was made from the other. A stamp does: each device that writes a record names in `seen` what it has included.

/// How a version of the server compares with the one that is known here, of the same life.
package enum VersionAge: Hashable, Sendable {
  /// It has seen what is here, and more.
  case newer
  /// What is here has seen it, and more.
  case older
  /// Neither has seen the other; or another tool, which leaves no trace in a stamp, has written one of them; or a copy of this
  /// store has, whose places in its log say nothing of those in this one.
  case unknown

  /// - Parameters:
  ///   - arrived: the stamp of the version; without one of its own, `isStamped` is false.
  ///   - known: the stamp of the base.
  ///   - namesCopy: it names a mutation that a copy of this log wrote under this log's writer number.
  ///   - wasModifiedAfter: the server's clock says that it came after the base.
  package init(of arrived: Stamp, isStamped: Bool, beside known: Stamp, namesCopy: Bool, wasModifiedAfter: Bool) {
    guard isStamped, arrived.seen != known.seen else {
      self = .unknown
      return
    }
    if known.dominates(arrived) {
      // LSNs of two logs were compared: the server says which is the later.
      self = wasModifiedAfter && (namesCopy || known.mayNameOtherLog(than: arrived)) ? .unknown : .older
    } else {
      self = arrived.dominates(known) && !namesCopy ? .newer : .unknown
    }
  }
}
