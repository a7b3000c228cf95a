// Which of this store's mutations a version of the server's contains. A version names, for each writer, the newest mutation that it has
// seen; but a clone or a restored backup of this log may have written under the same writer ID, and then the name alone proves
// nothing. So the log is asked: which tenure an LSN is of, and what a few events say.

import StrandlineSystem

/// The mutations of this log, to find them in the stamps of versions.
///
/// `event` is the log's event at an LSN; nil if compaction has removed it.
package struct OwnMutations {
  /// How many merges of one record are looked through: each costs two reads, and an edit that cannot be sent is merged with each
  /// version that arrives. What is older counts as not contained.
  static let mergesMax = 64

  private let sync: SyncState
  /// The last event of the log.
  private let end: LSN

  package init(_ sync: SyncState, upTo end: LSN) { (self.sync, self.end) = (sync, end) }

  /// The newest of some mutations that a version contains, also without an acknowledgement: the version's `seen` names it or a later
  /// one, or it created the version's record.
  package func newestIncluded(
    in stamp: Stamp, of lsns: [LSN], _ event: (LSN) throws -> Event?
  ) rethrows -> LSN? {
    try lsns.last { mutation in
      // A restored log has the mutation, and not the later one of the same tenure that was made from it.
      let tenure = sync.tenure(of: mutation)
      let isSeen = stamp.seen.values.contains {
        $0.lsn >= mutation && ($0.tenure == tenure || sync.owns($0.lsn, tenure: $0.tenure, upTo: end))
      }
      return try isSeen || began(stamp.births, at: mutation, event)
    }
  }

  /// Whether a mutation created a record with one of these births. `seen` has one tenure a writer, so it may not name a creation that
  /// a copy of this store has sent and edited under the same writer ID.
  private func began(_ births: Set<Birth>, at lsn: LSN, _ event: (LSN) throws -> Event?) rethrows -> Bool {
    guard case .saved(let saved)? = try event(lsn), saved.isCreation else { return false }
    // Every device's default has the same birth.
    return !saved.births.subtracting([.ofDefaults]).isDisjoint(with: births)
  }

  /// The newest mutation that a version contains and that is part of the pending edit; `.none` if the base has them all. After a restore
  /// from backup the log does not say which of the pending mutations were sent, so each that has a field in the edit, or that the
  /// version names, is checked.
  ///
  /// - Parameters:
  ///   - dirty: the fields of the pending edit, each with the mutation that wrote it; nil if no edit is pending.
  ///   - included: the newest pending mutation that the version contains and that a request may have carried.
  package func acknowledged(
    in stamp: Stamp, _ id: RecordID, _ entry: RecordEntry?, dirty: [String: LSN]?, _ included: LSN?,
    _ event: (LSN) throws -> Event?
  ) throws -> LSN {
    guard let dirty, let pending = entry?.pending else { return included ?? .zero }
    var written = Set(dirty.values).union(pending.sendable)
    for seen in stamp.seen.values
    where pending.first < seen.lsn && seen.lsn < pending.newest && sync.owns(seen.lsn, tenure: seen.tenure, upTo: end) {
      if try event(seen.lsn)?.recordID == id { written.insert(seen.lsn) }
    }
    let base = entry?.base?.content ?? .zero
    let found = try written.filter { $0 > base }.sorted().last { mutation in
      try newestIncluded(in: stamp, of: [mutation], event) != nil || containsBoth(stamp, ofMergeAt: mutation, event)
    }
    return max(included ?? .zero, found ?? .zero)
  }

  /// Whether a version contains both that a merge of this store has joined: a copy of this store has sent the mutation that was merged
  /// here, from a merge of its own. No `seen` names this one, and taken for a change of its own it would count that mutation twice.
  func containsBoth(_ stamp: Stamp, ofMergeAt lsn: LSN, _ event: (LSN) throws -> Event?) throws -> Bool {
    var lsn = lsn
    for _ in 0..<Self.mergesMax {
      guard case .merged(let merged)? = try event(lsn), merged.base != .zero,
        !merged.births.isDisjoint(with: stamp.births), let found = try event(merged.base),
        let base = try LoadedVersion(found, at: merged.base), stamp.dominates(base.version.stamp)
      else { return false }
      if try newestIncluded(in: stamp, of: [merged.local], event) != nil { return true }
      lsn = merged.local
    }
    return false
  }

  /// Whether a version contains the oldest mutation that a merge of this store carries on, and the base does not: a copy of this store
  /// has sent that, and not all that was merged here.
  package func containsPart(
    _ stamp: Stamp, of pending: Pending, _ base: Stamp?, _ event: (LSN) throws -> Event?
  ) rethrows -> Bool {
    guard pending.since < pending.first, try newestIncluded(in: stamp, of: [pending.since], event) != nil else {
      return false
    }
    return try base.map { try newestIncluded(in: $0, of: [pending.since], event) == nil } ?? true
  }

  /// Whether a version names a mutation that is later than the pending one and under its writer ID, but not of this log. A copy of
  /// this log wrote it; how much both logs have in common is not known.
  package func mayBeOfCopy(_ stamp: Stamp, _ pending: Pending) -> Bool {
    // `since`: a merged change is as old as the mutation that it was made from.
    guard let writer = sync.author(of: pending.since), let seen = stamp.seen[writer] else { return false }
    return seen.lsn >= pending.since && !sync.owns(seen.lsn, tenure: seen.tenure, upTo: end)
  }

  /// Whether a version names a mutation under a present or earlier writer ID of this log that is not of this log.
  ///
  /// - Complexity: O(tenures): asked only of a version that is older than the base by the server's clock or by what it includes.
  package func namesCopy(_ stamp: Stamp) -> Bool {
    Set(sync.tenures.map(\.writer)).contains { writer in
      guard let seen = stamp.seen[writer] else { return false }
      return !sync.owns(seen.lsn, tenure: seen.tenure, upTo: end)
    }
  }
}
