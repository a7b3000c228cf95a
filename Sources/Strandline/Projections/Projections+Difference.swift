// Where two projections differ: compaction believes no plan without this, and tests compare with it what was made from
// runs with what the log says. Records and names are compared one after the other, in their order.

import StrandlineSystem

/// Where projections differ.
package struct ProjectionsDifference {
  /// The records of which the entry, the deletion or what the engine holds is another.
  package var ids: Set<RecordID> = []
  /// The engine's memory, apart from what it holds of single records.
  var isMemoryOther = false
  package var isEmpty: Bool { ids.isEmpty && !isMemoryOther }
  package var words: String {
    "\(ids.count) records such as \(ids.min().map { "'\($0)'" } ?? "none"), "
      + (isMemoryOther ? "the engine's memory" : "not the engine's memory")
  }
}

extension Projections {
  /// Where these differ from others in anything that can be seen. O(records), one after the other; memory for what
  /// differs, and for what lies in memory.
  package func difference(from other: Projections) throws(StrandlineError) -> ProjectionsDifference {
    var result = ProjectionsDifference()
    try addEntries(other, &result)
    for (mine, theirs) in [(self, other), (other, self)] {
      for (id, held) in mine.sync.held where theirs.sync.held[id] != held { result.ids.insert(id) }
      for (id, held) in mine.sync.unread where theirs.sync.unread[id] != held { result.ids.insert(id) }
      for (id, set) in mine.sync.sets where theirs.sync.sets[id] != set { result.ids.insert(id) }
      for (id, block) in mine.sync.openBlocks where theirs.sync.openBlocks[id] != block { result.ids.insert(id) }
    }
    try addDeletions(other, &result)
    if outbox.newest != other.outbox.newest || outbox.since != other.outbox.since, result.ids.isEmpty {
      result.isMemoryOther = true
    }
    let (ours, others) = (sync, other.sync)
    result.isMemoryOther =
      result.isMemoryOther || ours.bounds != others.bounds || ours.zones != others.zones
      || ours.databaseTokens != others.databaseTokens || ours.tenures != others.tenures || ours.paces != others.paces
      || ours.listed != others.listed || ours.latest != others.latest || ours.isParked != others.isParked
    return result
  }

  /// How these differ from what the log says, with what they count; nil if they do not. Complexity as of `difference`.
  package func contradiction(of folded: Projections) throws(StrandlineError) -> String? {
    let difference = try difference(from: folded)
    if !difference.isEmpty { return difference.words }
    if outbox.newest != folded.outbox.newest || outbox.since != folded.outbox.since
      || outbox.attempted != folded.outbox.attempted
    {
      return "what is owed"
    }
    if records.count != folded.records.count {
      return "\(records.count) records are counted, and there are \(folded.records.count)"
    }
    for zone in Set(records.living.keys).union(folded.records.living.keys) {
      let (counted, there) = (records.living[zone] ?? LivingCount(), folded.records.living[zone] ?? LivingCount())
      // The types of a zone that has had too many are not counted, and which way led there may differ.
      let areTypesKnown = counted.types != nil && there.types != nil
      if counted.total != there.total || (areTypesKnown && counted.types != there.types) {
        return "\(counted.total) living records are counted in zone '\(zone)', and there are \(there.total)"
      }
    }
    if deletions.count != folded.deletions.count {
      return "\(deletions.count) deleted names are counted, and there are \(folded.deletions.count)"
    }
    return nil
  }

  private func addEntries(
    _ other: Projections, _ result: inout ProjectionsDifference
  ) throws(StrandlineError) {
    var mine = try EntryScan(scanMemory(asOf: appliedLSN), EntryScan.Range())
    var theirs = try EntryScan(other.scanMemory(asOf: other.appliedLSN), EntryScan.Range())
    try result.addTables(
      { () throws(StrandlineError) in try mine.next().map { ($0.id, $0.found.entry) } },
      { () throws(StrandlineError) in try theirs.next().map { ($0.id, $0.found.entry) } }
    ) { ours, others in ours == others && outbox.attempted(ours.pending) == other.outbox.attempted(others.pending) }
  }

  private func addDeletions(
    _ other: Projections, _ result: inout ProjectionsDifference
  ) throws(StrandlineError) {
    var (mine, theirs) = (try scanDeletions(), try other.scanDeletions())
    try result.addTables(
      { () throws(StrandlineError) in try mine.next().map { ($0.id, $0.row) } },
      { () throws(StrandlineError) in try theirs.next().map { ($0.id, $0.row) } }, areSame: ==)
  }

  /// The deleted names in the order of their keys.
  private func scanDeletions() throws(StrandlineError) -> TableScan<RecordID, DeletionEntry> {
    let changed = deletions.frozen.merging(deletions.changed) { _, newer in newer }
      .map { (key: RowKey.record($0.key, table: .deletions), id: $0.key, row: $0.value) }
      .sorted { $0.key.precedes($1.key) }
    let prefix = RunTable.deletions.key
    return try TableScan(
      .init(prefix: prefix, id: { RowKey.recordID($0, table: .deletions) }) { (bytes, place) throws(ByteReaderError) in
        try DeletionEntry(row: bytes, place)
      }, runs, runs?.runsWithDeletions ?? [], from: prefix, isBehind: false, changed: changed)
  }
}

extension ProjectionsDifference {
  /// Adds the records in which two tables differ. Each hands its rows out in the order of their keys.
  fileprivate mutating func addTables<Row>(
    _ mine: () throws(StrandlineError) -> (id: RecordID, row: Row)?,
    _ theirs: () throws(StrandlineError) -> (id: RecordID, row: Row)?, areSame: (Row, Row) -> Bool
  ) throws(StrandlineError) {
    var (left, right) = (try mine(), try theirs())
    while left != nil || right != nil {
      if let one = left, let two = right, one.id == two.id {
        if !areSame(one.row, two.row) { ids.insert(one.id) }
        (left, right) = (try mine(), try theirs())
      } else if let one = left, right.map({ one.id < $0.id }) ?? true {
        ids.insert(one.id)
        left = try mine()
      } else if let two = right {
        ids.insert(two.id)
        right = try theirs()
      }
    }
  }
}
