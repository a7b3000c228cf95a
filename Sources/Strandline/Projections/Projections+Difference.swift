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
    try addRecords(other, &result) { _, _ in true }
    result.add(sync, other.sync)
    if outbox.newest != other.outbox.newest || outbox.since != other.outbox.since, result.ids.isEmpty {
      result.isMemoryOther = true
    }
    return result
  }

  /// Adds the records of which the rows are others. Of those of `other` only the included ones count.
  func addRecords(
    _ other: Projections, _ result: inout ProjectionsDifference, where isIncluded: (RecordID, KnownRecord) -> Bool
  ) throws(StrandlineError) {
    var (mine, theirs) = (try KnownRecordScan(self), try KnownRecordScan(other))
    func nextOfTheirs() throws(StrandlineError) -> (id: RecordID, known: KnownRecord)? {
      while let next = try theirs.next() {
        if isIncluded(next.id, next.known) { return next }
      }
      return nil
    }
    var (left, right) = (try mine.next(), try nextOfTheirs())
    while left != nil || right != nil {
      if let one = left, let two = right, one.id == two.id {
        if !areSame(one.known, other, two.known) { result.ids.insert(one.id) }
        (left, right) = (try mine.next(), try nextOfTheirs())
      } else if let one = left, right.map({ one.id < $0.id }) ?? true {
        result.ids.insert(one.id)
        left = try mine.next()
      } else if let two = right {
        result.ids.insert(two.id)
        right = try nextOfTheirs()
      }
    }
  }

  private func areSame(_ mine: KnownRecord, _ other: Projections, _ theirs: KnownRecord) -> Bool {
    mine.entry == theirs.entry && mine.deletion == theirs.deletion
      && outbox.attempted(mine.entry?.pending) == other.outbox.attempted(theirs.entry?.pending)
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
    return contents.missing(of: folded.contents)
  }

  /// The deleted names in the order of their keys.
  func scanDeletions() throws(StrandlineError) -> TableScan<RecordID, DeletionEntry> {
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
  /// Adds what two memories of the engine have of single records, and whether they differ in anything else.
  mutating func add(_ mine: SyncState, _ others: SyncState) {
    for (one, other) in [(mine, others), (others, mine)] {
      for (id, held) in one.held where other.held[id] != held { ids.insert(id) }
      for (id, held) in one.unread where other.unread[id] != held { ids.insert(id) }
      for (id, set) in one.sets where other.sets[id] != set { ids.insert(id) }
      for (id, block) in one.openBlocks where other.openBlocks[id] != block { ids.insert(id) }
    }
    isMemoryOther =
      isMemoryOther || mine.bounds != others.bounds || mine.zones != others.zones
      || mine.databaseTokens != others.databaseTokens || mine.tenures != others.tenures || mine.paces != others.paces
      || mine.inbox != others.inbox || mine.listed != others.listed || mine.latest != others.latest
      || mine.isParked != others.isParked
  }
}
