// Two names for one record. A record may be deleted and created again under its name; each such life is identified by its birth, in
// the stamp. A tool that saves without a stamp loses the birth. A store that sees the record only then makes a birth from the
// server's creation time and writer 0. Both births must count as the same life: otherwise an edit under one would end as
// an edit of a deleted record, and a deletion under one would not reach the other.
//
// The creation time alone is not enough, as the server keeps it when a new life replaces an old record. Such a life began later than
// the creation time; the life that the record was created with began before.

import StrandlineSystem

/// The life that a record was created with at the server, under both births.
package struct FirstLife {
  /// Its birth for versions without a stamp.
  let unstamped: Birth

  /// - Parameter created: the record's creation time at the server.
  package init(created: Int64) { unstamped = Birth(time: HybridTime(milliseconds: created), writer: 0) }

  /// The births, among some, that a stamp may give this life.
  private func stamped(_ births: Set<Birth>) -> Set<Birth> {
    births.filter { $0 != unstamped && $0.time.milliseconds <= unstamped.time.milliseconds }
  }

  /// The births of an arriving version, as this store names them: the stamped birth if it is known, and the unstamped one too if this
  /// store's versions have it.
  ///
  /// - Parameter known: the births that the store knows of the record with this creation time.
  func births(of version: Set<Birth>, known: Set<Birth>) -> Set<Birth> {
    // All known lives began after the creation: the record was replaced by them, and then a tool removed the stamp.
    if version == [unstamped], !known.isEmpty, known.allSatisfy({ $0.time.milliseconds > unstamped.time.milliseconds })
    {
      return known
    }
    var births = version
    if births.contains(unstamped) { births.formUnion(stamped(known)) }
    guard !stamped(births).isEmpty else { return births }
    if known.contains(unstamped) { births.insert(unstamped) } else { births.remove(unstamped) }
    return births
  }

  /// All births that are dead when those in `deleted` are.
  package func dead(_ births: Set<Birth>, with deleted: Set<Birth>) -> Set<Birth> {
    deleted.contains(unstamped) ? deleted.union(stamped(births)) : deleted
  }
}

extension Base {
  /// Whether the server's version is of the same record, by its time of creation, which edits do not change.
  package func isOfLife(of server: ServerRecord) -> Bool {
    guard let createdMilliseconds else { return false }
    return createdMilliseconds == server.system.created?.milliseconds
  }
}
