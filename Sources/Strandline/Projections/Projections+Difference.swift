// Where two projections differ: compaction believes no plan without this, and tests compare with it what was made from
// runs with what the log says.

/// Where projections differ.
package struct ProjectionsDifference {
  package var ids: Set<RecordID> = []
  /// The engine's memory, apart from what it holds of single records.
  var isMemoryOther = false
  /// Deletions of names that are known by their hash alone.
  package var hashes = 0
  package var isEmpty: Bool { ids.isEmpty && !isMemoryOther && hashes == 0 }
  package var words: String {
    "\(ids.count) records such as \(ids.min().map { "'\($0)'" } ?? "none"), \(hashes) packed deletions, "
      + (isMemoryOther ? "the engine's memory" : "not the engine's memory")
  }
}

extension Projections {
  /// Where these differ from others in anything that can be seen. O(records), and their memory.
  package func difference(from other: Projections) throws(StrandlineError) -> ProjectionsDifference {
    var result = ProjectionsDifference()
    let entries = (try allEntries(), try other.allEntries())
    for (mine, theirs, ours, others) in [(self, other, entries.0, entries.1), (other, self, entries.1, entries.0)] {
      for (id, entry) in ours {
        let isSame =
          others[id] == entry
          && mine.outbox.attempted(of: id, entry.pending) == theirs.outbox.attempted(of: id, entry.pending)
        if !isSame { result.ids.insert(id) }
      }
      for (id, lsns) in mine.outbox.earlier where theirs.outbox.earlier[id] != lsns { result.ids.insert(id) }
      for (id, entry) in mine.deletions.entries where try theirs.deletion(id) != entry { result.ids.insert(id) }
      for (id, held) in mine.sync.held where theirs.sync.held[id] != held { result.ids.insert(id) }
      for (id, held) in mine.sync.unread where theirs.sync.unread[id] != held { result.ids.insert(id) }
      for (id, block) in mine.sync.openBlocks where theirs.sync.openBlocks[id] != block { result.ids.insert(id) }
    }
    for key in Set(deletions.keys).union(other.deletions.keys) {
      let known = Set(result.ids.map { KeyedHash(of: $0, key: key) })
      let (ours, others) = (try hashedDeletions(key), try other.hashedDeletions(key))
      for (mine, theirs) in [(ours, others), (others, ours)] {
        // What is known by its ID was compared above.
        for (hash, entry) in mine.all where mine.isNameless(hash) && theirs.all[hash] != entry && !known.contains(hash)
        {
          result.hashes += 1
        }
      }
    }
    if outbox.unsettled != other.outbox.unsettled, result.ids.isEmpty { result.isMemoryOther = true }
    let (ours, others) = (sync, other.sync)
    result.isMemoryOther =
      result.isMemoryOther || ours.bounds != others.bounds || ours.zones != others.zones
      || ours.databaseTokens != others.databaseTokens || ours.tenures != others.tenures || ours.paces != others.paces
      || ours.latest != others.latest || ours.isParked != others.isParked
    return result
  }

  /// The deleted names by the hash of their ID under a key; those that stand under another key are left out.
  private func hashedDeletions(_ key: HashKey) throws(StrandlineError) -> HashedDeletions {
    var result = HashedDeletions(all: try runs?.deletions(key) ?? [:])
    for names in [deletions.frozen, deletions.changed] {
      for (id, entry) in names {
        let hash = KeyedHash(of: id, key: key)
        result.all[hash] = entry
        result.named.insert(hash)
      }
    }
    for (hash, entry) in deletions.packed[key] ?? [:] where !result.named.contains(hash) { result.all[hash] = entry }
    return result
  }
}

private struct HashedDeletions {
  var all: [KeyedHash: DeletionEntry]
  /// Of which the ID is known.
  var named: Set<KeyedHash> = []

  func isNameless(_ hash: KeyedHash) -> Bool { !named.contains(hash) }
}
