// The records that owe the server something, in the order of the log. Computed from the log when a store is opened.
//
// A store may be used for a year before it syncs, so a record costs two bits here, however often it was edited. Which record
// a mutation is of stands in its event; what else an upload needs stands in the record's entry.

/// The records with unsettled mutations.
package struct Outbox: Sendable {
  /// The newest unsettled mutation of each.
  package internal(set) var newest = LSNSet()
  /// Of each, the oldest one whose content is owed, which a merge may carry.
  package internal(set) var since = LSNSet()
  /// The mutations that a request may have carried and whose outcome is not known: newest ones, and those that the entries
  /// name.
  package internal(set) var attempted = LSNSet()

  package init() {}

  /// How many records there are.
  package var count: Int { newest.count }

  /// The oldest mutation whose content is owed.
  package var oldest: LSN? { since.first }

  /// The newest mutation of a record that a request may have carried and whose outcome is not known.
  package func attempted(_ pending: Pending?) -> LSN? {
    guard let pending else { return nil }
    return attempted.contains(pending.newest) ? pending.newest : pending.attempts.last?.lsn
  }

  // MARK: Changes

  /// What a record owes after another mutation.
  func appending(_ lsn: LSN, isDeletion: Bool, to pending: Pending?) -> Pending {
    guard let pending else { return Pending(isDeletion: isDeletion, newest: lsn) }
    var attempts = pending.attempts
    if attempted.contains(pending.newest) { attempts.append(Pending.Attempt(lsn: pending.newest, next: lsn)) }
    return Pending(isDeletion: isDeletion, newest: lsn, first: pending.first, attempts: attempts, since: pending.since)
  }

  /// Settles a record's mutations up to `limit`.
  ///
  /// - Returns: what is still owed, and the settled ones that had been attempted.
  mutating func settle(_ pending: Pending, upTo limit: LSN) -> (left: Pending?, attempted: [LSN]) {
    let carried = pending.attempts.prefix { $0.lsn <= limit }
    var left: Pending?
    var done = carried.map(\.lsn)
    if pending.newest > limit {
      // What is settled is an attempted mutation. If no request is known that carried it (the log of a copy), the oldest
      // unsettled one is not known either; it is taken for as old as before.
      left = Pending(
        isDeletion: pending.isDeletion, newest: pending.newest, first: carried.last?.next ?? pending.first,
        attempts: Array(pending.attempts[carried.endIndex...]), since: carried.last?.next ?? pending.since)
    } else if attempted.contains(pending.newest) {
      done.append(pending.newest)
    }
    unattempt(done)
    return (left, done)
  }

  /// A record owes something else than it did.
  mutating func change(from old: Owed?, to new: Owed?) {
    // What is new first: a set whose only element goes gives its memory back.
    if old?.newest != new?.newest {
      if let new { newest.insert(new.newest) }
      if let old { newest.remove(old.newest) }
    }
    if old?.since != new?.since {
      if let new { since.insert(new.since) }
      if let old { since.remove(old.since) }
    }
  }

  /// A request may have carried it; returns whether that is news.
  mutating func attempt(_ lsn: LSN) -> Bool { newest.contains(lsn) && attempted.insert(lsn) }

  /// No request carried them, or their outcome does not matter any more.
  mutating func unattempt(_ lsns: [LSN]) { for lsn in lsns { attempted.remove(lsn) } }

  /// Undoes `unattempt`.
  mutating func reattempt(_ lsns: [LSN]) { for lsn in lsns { attempted.insert(lsn) } }
}

/// What the outbox knows of a record.
struct Owed: Hashable, Sendable {
  var newest: LSN
  var since: LSN

  init(_ pending: Pending) { (newest, since) = (pending.newest, pending.since) }
}
