// A table by record, as far as it lies in memory: what has changed since the sorted runs were written. The table of
// records and that of deleted names are two of them.

/// What has changed of the rows since the sorted runs were written, which have all others; all of them where there are no
/// runs. And how many there are.
package struct ChangedTable<Row: Hashable & Sendable>: Sendable {
  /// A row of nil: there is none any more, whatever the runs say.
  package private(set) var changed: [RecordID: Row?] = [:]
  /// What a flush is writing into a run: older than `changed`, newer than the runs.
  private(set) var frozen: [RecordID: Row?] = [:]
  /// Whether there are runs.
  private var hasRuns = false
  /// How many rows there are.
  package private(set) var count = 0

  package init() {}

  /// What runs hold.
  init(stored count: Int) {
    self.count = count
    hasRuns = true
  }

  /// What is known without the runs; nil if they are to be asked.
  func known(_ id: RecordID) -> Row?? {
    if let row = changed[id] { return .some(row) }
    if let row = frozen[id] { return .some(row) }
    return hasRuns ? nil : .some(nil)
  }

  /// The rows that lie in memory.
  package var inMemory: [RecordID: Row] { frozen.merging(changed) { _, newer in newer }.compactMapValues { $0 } }

  /// Sets a record's row, which was `old`.
  mutating func set(_ id: RecordID, from old: Row?, to new: Row?) {
    if new == nil, !hasRuns, frozen.isEmpty {
      changed.removeValue(forKey: id)
    } else {
      changed.updateValue(new, forKey: id)
    }
    count += (new == nil ? 0 : 1) - (old == nil ? 0 : 1)
  }

  // MARK: Flushing

  /// Hands its changes over to the copy of this table that a flush writes; those of `ids`, which have changed since, stay
  /// here too. `freeze` follows.
  mutating func handOver(keeping ids: Set<RecordID>) {
    var kept: [RecordID: Row?] = [:]
    // There will be about as many again; so the table need not grow while transactions wait for it.
    kept.reserveCapacity(min(changed.count, Self.reservedMax))
    for id in ids {
      // Without runs a row that is gone is not in the table; from here on what is handed over would show the older one.
      if let row = changed[id] ?? (hasRuns ? nil : .some(nil)) { kept.updateValue(row, forKey: id) }
    }
    changed = kept
  }

  private static var reservedMax: Int { 20_000 }

  /// What `durable` has of the changes is written into a run from now on.
  mutating func freeze(_ durable: ChangedTable) { frozen = durable.changed }

  /// What was frozen stands in runs.
  mutating func thaw() {
    frozen = [:]
    hasRuns = true
  }

  /// Forgets what has changed, but of some records.
  mutating func forget(but ids: Set<RecordID>) { changed = changed.filter { ids.contains($0.key) } }

  /// Takes another table for what the runs had: what has changed here counts.
  mutating func adopt(_ other: ChangedTable) {
    changed.merge(other.changed) { mine, _ in mine }
    hasRuns = other.hasRuns
  }

  /// What was frozen was not written.
  mutating func refreeze() {
    changed.merge(frozen) { newer, _ in newer }
    frozen = [:]
  }
}
