// The names of deleted records, each with the births that were deleted.
//
// Another life of the same name is not deleted: a version is dead only if all its births are. No entry is removed because
// it is old; only a deletion that the server refuses removes one.

/// The deleted names: as the table of records, what has changed since the sorted runs were written. Those that compaction
/// packed are known by the hash of their ID alone, until something happens to one of them.
package struct DeletionIndex: Sendable {
  /// An entry of nil: there is none any more, whatever the runs and packs say.
  package private(set) var changed: [RecordID: DeletionEntry?] = [:]
  /// By the key of their hashes; none that `changed` has under its ID.
  package private(set) var packed: [HashKey: [KeyedHash: DeletionEntry]] = [:]
  /// What a flush is writing into a run.
  private(set) var frozen: [RecordID: DeletionEntry?] = [:]
  private(set) var frozenPacked: [HashKey: [KeyedHash: DeletionEntry]] = [:]
  /// Whether there are runs.
  var hasRuns = false
  /// The keys of the hashes under which names stand. A store has one, unless the event that named it was lost.
  package private(set) var keys: [HashKey] = []
  /// How many names there are.
  package private(set) var count = 0

  package init() {}

  /// What runs hold.
  init(stored count: Int, keys: [HashKey]) {
    self.count = count
    self.keys = keys
    hasRuns = true
  }

  /// The names that are known, and that no flush has written.
  package var entries: [RecordID: DeletionEntry] { changed.compactMapValues { $0 } }

  /// What is known without the runs; nil if they are to be asked.
  func known(_ id: RecordID) -> DeletionEntry?? {
    if count == 0, changed.isEmpty { return .some(nil) }
    if let entry = changed[id] { return .some(entry) }
    if let entry = Self.entry(id, packed) { return .some(entry) }
    if let entry = frozen[id] { return .some(entry) }
    if let entry = Self.entry(id, frozenPacked) { return .some(entry) }
    return hasRuns ? nil : .some(nil)
  }

  private static func entry(_ id: RecordID, _ packed: [HashKey: [KeyedHash: DeletionEntry]]) -> DeletionEntry? {
    for (key, table) in packed {
      if let entry = table[KeyedHash(of: id, key: key)] { return entry }
    }
    return nil
  }

  /// Sets a name's entry, which was `old`.
  mutating func set(_ id: RecordID, from old: DeletionEntry?, to new: DeletionEntry?) {
    for key in packed.keys { packed[key]?[KeyedHash(of: id, key: key)] = nil }
    if new == nil, !hasRuns, frozen.isEmpty, frozenPacked.isEmpty {
      changed.removeValue(forKey: id)
    } else {
      changed.updateValue(new, forKey: id)
    }
    count += (new == nil ? 0 : 1) - (old == nil ? 0 : 1)
  }

  /// Adds the names of a pack, which says what became of each of them last: a name whose ID is known stays under its ID.
  ///
  /// - Parameter isStored: whether the runs have a hash.
  mutating func add(
    _ deletions: Deletions, isStored: (KeyedHash) throws(StrandlineError) -> Bool
  ) throws(StrandlineError) {
    let key = deletions.key
    var ids: [KeyedHash: RecordID] = [:]
    for id in changed.keys { ids[KeyedHash(of: id, key: key)] = id }
    var table = packed.removeValue(forKey: key) ?? [:]
    defer { packed[key] = table }
    use(key)
    for item in deletions.items {
      if let id = ids[item.hash] {
        if changed.updateValue(DeletionEntry(item), forKey: id) == .some(nil) { count += 1 }
        continue
      }
      let isKnown = if table[item.hash] != nil { true } else { try isStored(item.hash) }
      if !isKnown { count += 1 }
      table[item.hash] = DeletionEntry(item)
    }
  }

  /// Names stand under this key too from now on.
  mutating func use(_ key: HashKey) { if !keys.contains(key) { keys.append(key) } }

  /// Of whom memory has the ID.
  var knownNames: some Sequence<RecordID> { [frozen, changed].joined().lazy.map(\.key) }

  /// What is known without the runs, by the hashes under a key; nil where a name is not deleted any more.
  func changed(hashedBy key: HashKey) -> [KeyedHash: DeletionEntry?] {
    var result: [KeyedHash: DeletionEntry?] = [:]
    for (packs, names) in [(frozenPacked, frozen), (packed, changed)] {
      for (hash, entry) in packs[key] ?? [:] { result.updateValue(entry, forKey: hash) }
      for (id, entry) in names { result.updateValue(entry, forKey: KeyedHash(of: id, key: key)) }
    }
    return result
  }

  // MARK: Flushing

  /// How many entries no run has.
  var changedCount: Int { packed.values.reduce(changed.count) { $0 + $1.count } }

  /// As `RecordTable.handOver`.
  mutating func handOver(keeping ids: Set<RecordID>) {
    var kept: [RecordID: DeletionEntry?] = [:]
    for id in ids {
      if let entry = changed[id] {
        kept.updateValue(entry, forKey: id)
      } else if !hasRuns, Self.entry(id, packed) == nil {
        // What is handed over may have an older one. What a pack says is handed over with it, and holds still.
        kept.updateValue(nil, forKey: id)
      }
    }
    changed = kept
    packed = [:]
  }

  /// As `RecordTable.freeze`.
  mutating func freeze(_ durable: DeletionIndex) {
    frozen = durable.changed
    frozenPacked = durable.packed
  }

  /// What was frozen stands in runs.
  mutating func thaw() {
    (frozen, frozenPacked) = ([:], [:])
    hasRuns = true
  }

  /// As `RecordTable.forget`.
  mutating func forget(but ids: Set<RecordID>) {
    changed = changed.filter { ids.contains($0.key) }
    packed = [:]
  }

  /// As `RecordTable.adopt`.
  mutating func adopt(_ other: DeletionIndex) {
    addOlder(other.changed, other.packed)
    hasRuns = other.hasRuns
  }

  /// What was frozen was not written.
  mutating func refreeze() {
    addOlder(frozen, frozenPacked)
    (frozen, frozenPacked) = ([:], [:])
  }

  /// Adds entries that are older than those that are here, of which each stands once: under its ID, if that is known.
  private mutating func addOlder(
    _ names: [RecordID: DeletionEntry?], _ packs: [HashKey: [KeyedHash: DeletionEntry]]
  ) {
    let since = Array(changed.keys)
    if packed.isEmpty {
      changed.merge(names) { newer, _ in newer }
    } else {
      for (id, entry) in names where changed[id] == nil {
        changed.updateValue(takePacked(id) ?? entry, forKey: id)
      }
    }
    for (key, names) in packs {
      let since = Set(since.lazy.map { KeyedHash(of: $0, key: key) })
      packed[key, default: [:]].merge(names.filter { !since.contains($0.key) }) { newer, _ in newer }
    }
  }

  private mutating func takePacked(_ id: RecordID) -> DeletionEntry? {
    for key in packed.keys {
      if let entry = packed[key]?.removeValue(forKey: KeyedHash(of: id, key: key)) { return entry }
    }
    return nil
  }
}
