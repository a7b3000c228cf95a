// The names of deleted records, each with the births that were deleted.
//
// Another life of the same name is not deleted: a version is dead only if all its births are. No entry is removed because
// it is old; only a deletion that the server refuses removes one.

/// What is known of a deleted name.
package struct DeletionEntry: Hashable, Sendable {
  /// The lives that were deleted. Empty for a tombstone of a name that was never known here.
  package var births: Set<Birth>
  /// The server's creation time and last tag of the life that was deleted, where known.
  package var createdMilliseconds: Int64?
  package var changeTag: String?
  /// The event that deleted it.
  package var lsn: LSN
  /// A local deletion that the server has not confirmed: the lives that come back if it refuses. Nil otherwise.
  package var provisional: Set<Birth>?
  /// Whether this store's app deleted it; otherwise the server said so.
  package var isLocal: Bool

  package var isProvisional: Bool { provisional != nil }

  /// Whether a version with these births is of deleted lives only.
  package func isDead(_ births: Set<Birth>) -> Bool {
    !births.isEmpty && !self.births.isEmpty && births.isSubset(of: self.births)
  }

  /// The entry without its provisional deletion; nil if nothing else was deleted under the name.
  package var refused: DeletionEntry? {
    guard let provisional else { return self }
    var rest = self
    rest.births.subtract(provisional)
    rest.provisional = nil
    return rest.births.isEmpty ? nil : rest
  }
}

extension DeletionEntry {
  package init(_ item: Deletions.Item) {
    self.init(
      births: item.births, createdMilliseconds: item.createdMilliseconds, changeTag: item.changeTag, lsn: item.lsn,
      provisional: nil, isLocal: item.isLocal)
  }
}

/// The deleted names. Those that compaction packed are known by the hash of their ID alone, until something happens to
/// one of them.
package struct DeletionIndex: Sendable {
  package private(set) var entries: [RecordID: DeletionEntry] = [:]
  /// By the key of their hashes; a store has one.
  package private(set) var packed: [HashKey: [KeyedHash: DeletionEntry]] = [:]

  package init() {}

  package var count: Int { packed.values.reduce(entries.count) { $0 + $1.count } }

  package subscript(id: RecordID) -> DeletionEntry? {
    get {
      if let entry = entries[id] { return entry }
      for (key, table) in packed {
        if let entry = table[KeyedHash(of: id, key: key)] { return entry }
      }
      return nil
    }
    set {
      entries[id] = newValue
      for key in packed.keys { packed[key]?[KeyedHash(of: id, key: key)] = nil }
    }
  }

  /// Adds the names of a pack.
  package mutating func add(_ deletions: Deletions) {
    for item in deletions.items { packed[deletions.key, default: [:]][item.hash] = DeletionEntry(item) }
  }

  /// All entries by the hash of their ID; those that were packed under another key stand under that.
  package func hashed(_ key: HashKey) -> [KeyedHash: DeletionEntry] {
    var result = packed[key] ?? [:]
    for (id, entry) in entries { result[KeyedHash(of: id, key: key)] = entry }
    return result
  }
}
