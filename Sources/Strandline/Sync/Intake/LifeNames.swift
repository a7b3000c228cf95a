// The names of one life. A life is named by its birth, which its versions carry in their stamp. A tool that saves a record without
// one takes the name with it, and a store that meets the record only then names the life by the record's creation time and writer
// 0. What is done about the record under one name counts under the other: without that, an edit under one ends as that of a record
// that was deleted, and a deletion under one does not reach the other.
//
// The creation time alone does not tell: a life that takes the place of another one keeps it. Such a life began after the device
// had seen the record, so later than the creation; the life that the creation is of began before.

import StrandlineSystem

/// The life that a record was created with at the server, under all its names.
struct FirstLife {
  /// Its name where no stamp tells.
  let unstamped: Birth

  /// - Parameter created: the record's creation time at the server.
  init(created: Int64) { unstamped = Birth(time: HybridTime(milliseconds: created), writer: 0) }

  /// Of some births those that name it in a stamp.
  private func stamped(_ births: Set<Birth>) -> Set<Birth> {
    births.filter { $0 != unstamped && $0.time.milliseconds <= unstamped.time.milliseconds }
  }

  /// The births of a version, as the store that takes it in names them: the name of a stamp where one is known, and the other one
  /// beside it where the store's own versions have that.
  ///
  /// - Parameter known: the births that the store knows of the record with this creation time.
  func births(of version: Set<Birth>, known: Set<Birth>) -> Set<Birth> {
    // All that is known under this creation time began later: a device that fetched the record without its stamp could not read it.
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

  /// The births that are dead with those that were deleted.
  func dead(_ births: Set<Birth>, with deleted: Set<Birth>) -> Set<Birth> {
    deleted.contains(unstamped) ? deleted.union(stamped(births)) : deleted
  }
}
