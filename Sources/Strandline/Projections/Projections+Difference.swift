// Where two projections differ: compaction believes no plan without this, and tests compare with it what was made from
// runs with what the log says. Records and names are compared one after the other, in their order.

import StrandlineSystem

/// Where projections differ.
package struct ProjectionsDifference {
  package var ids: Set<RecordID> = []
  /// The engine's memory, apart from what it holds of single records.
  var isMemoryOther = false
  /// Deletions of names that are known by their hash alone.
  package var hashes: Set<KeyedHash> = []
  package var isEmpty: Bool { ids.isEmpty && !isMemoryOther && hashes.isEmpty }
  package var words: String {
    "\(ids.count) records such as \(ids.min().map { "'\($0)'" } ?? "none"), \(hashes.count) packed deletions, "
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
    // Names are compared by their hashes; where nothing has a hash yet, under any key.
    var keys = Set(deletions.keys).union(other.deletions.keys)
    if keys.isEmpty { keys.insert(HashKey(low: 0, high: 0)) }
    for key in keys { try addDeletions(other, key, &result) }
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
    if max(deletions.keys.count, folded.deletions.keys.count) < 2, deletions.count != folded.deletions.count {
      return "\(deletions.count) deleted names are counted, and there are \(folded.deletions.count)"
    }
    return nil
  }

  private func addEntries(
    _ other: Projections, _ result: inout ProjectionsDifference
  ) throws(StrandlineError) {
    var mine = try EntryScan(scanMemory(asOf: appliedLSN), EntryScan.Range())
    var theirs = try EntryScan(other.scanMemory(asOf: other.appliedLSN), EntryScan.Range())
    var (left, right) = (try mine.next(), try theirs.next())
    while left != nil || right != nil {
      if let one = left, let two = right, one.id == two.id {
        let (ours, others) = (one.found.entry, two.found.entry)
        let isSame = ours == others && outbox.attempted(ours.pending) == other.outbox.attempted(others.pending)
        if !isSame { result.ids.insert(one.id) }
        (left, right) = (try mine.next(), try theirs.next())
      } else if let one = left, right.map({ RowKey.record(one.id).precedes(RowKey.record($0.id)) }) ?? true {
        result.ids.insert(one.id)
        left = try mine.next()
      } else if let two = right {
        result.ids.insert(two.id)
        right = try theirs.next()
      }
    }
  }

  private func addDeletions(
    _ other: Projections, _ key: HashKey, _ result: inout ProjectionsDifference
  ) throws(StrandlineError) {
    // Which of them are known by their ID.
    var names: [KeyedHash: RecordID] = [:]
    for table in [deletions, other.deletions] {
      for id in table.knownNames { names[KeyedHash(of: id, key: key)] = id }
    }
    var known: Set<KeyedHash> = []
    for id in result.ids { known.insert(KeyedHash(of: id, key: key)) }
    func add(_ hash: KeyedHash) {
      if let id = names[hash] { result.ids.insert(id) } else if !known.contains(hash) { result.hashes.insert(hash) }
    }
    var mine = try scanDeletions(key)
    var theirs = try other.scanDeletions(key)
    var (left, right) = (try mine.next(), try theirs.next())
    while left != nil || right != nil {
      if let one = left, let two = right, one.id == two.id {
        if one.row != two.row { add(one.id) }
        (left, right) = (try mine.next(), try theirs.next())
      } else if let one = left, right.map({ one.key.precedes($0.key) }) ?? true {
        add(one.id)
        left = try mine.next()
      } else if let two = right {
        add(two.id)
        right = try theirs.next()
      }
    }
  }
}

extension Projections {
  /// The deleted names in the order of their keys.
  fileprivate func scanDeletions(_ key: HashKey) throws(StrandlineError) -> TableScan<KeyedHash, DeletionEntry> {
    let changed = deletions.changed(hashedBy: key)
      .map { (key: RowKey.deletion($0.key, key: key), id: $0.key, row: $0.value) }
      .sorted { $0.key.precedes($1.key) }
    let prefix = RowKey.deletions(key)
    return try TableScan(
      .init(prefix: prefix, id: { RowKey.deletion($0)?.hash }) { (bytes, place) throws(ByteReaderError) in
        try DeletionEntry(row: bytes, place)
      }, runs, runs?.runsWithDeletions ?? [], from: prefix, isBehind: false, changed: changed)
  }
}
