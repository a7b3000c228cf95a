// The table of records: where each of them stands in the log, as far as it has changed since the sorted runs were written.

/// What has changed of the records since the sorted runs were written, which have all others; all of them where there are
/// no runs. And how many there are.
package struct RecordTable: Sendable {
  /// An entry of nil: there is none any more, whatever the runs say.
  package private(set) var changed: [RecordID: RecordEntry?] = [:]
  /// What a flush is writing into a run: older than `changed`, newer than the runs.
  private(set) var frozen: [RecordID: RecordEntry?] = [:]
  /// Whether there are runs.
  var hasRuns = false
  /// How many records have an entry.
  package private(set) var count = 0
  /// How many live, by zone.
  package private(set) var living: [ZoneID: LivingCount] = [:]
  /// The zone whose number changed last, and its place: many changes in a row are of one zone.
  private var lastCounted: (zone: ZoneID, place: Dictionary<ZoneID, LivingCount>.Index)?

  package init() {}

  /// What runs hold.
  init(stored count: Int, living: [ZoneID: LivingCount]) {
    self.count = count
    self.living = living
    hasRuns = true
  }

  /// What is known without the runs; nil if they are to be asked.
  func known(_ id: RecordID) -> RecordEntry?? {
    if let entry = changed[id] { return .some(entry) }
    if let entry = frozen[id] { return .some(entry) }
    return hasRuns ? nil : .some(nil)
  }

  /// Sets a record's entry, which was `old`.
  mutating func set(_ id: RecordID, from old: RecordEntry?, to new: RecordEntry?) {
    if new == nil, !hasRuns, frozen.isEmpty {
      changed.removeValue(forKey: id)
    } else {
      changed.updateValue(new, forKey: id)
    }
    count += (new == nil ? 0 : 1) - (old == nil ? 0 : 1)
    let (before, after) = (old?.livingType, new?.livingType)
    if before == after { return }
    if let before { count(-1, before, in: id.zone) }
    if let after { count(1, after, in: id.zone) }
  }

  private mutating func count(_ change: Int, _ type: String, in zone: ZoneID) {
    if let lastCounted, lastCounted.zone == zone {
      living.values[lastCounted.place].add(change, type)
    } else {
      living[zone, default: LivingCount()].add(change, type)
      lastCounted = living.index(forKey: zone).map { (zone, $0) }
    }
  }

  // MARK: Flushing

  /// Hands its changes over to the copy of this table that a flush writes; those of `ids`, which have changed since, stay
  /// here too. `freeze` follows.
  mutating func handOver(keeping ids: Set<RecordID>) {
    var kept: [RecordID: RecordEntry?] = [:]
    // There will be about as many again; so the table need not grow while transactions wait for it.
    kept.reserveCapacity(min(changed.count, Self.reservedMax))
    for id in ids {
      // Without runs an entry that is gone is not in the table; from here on what is handed over would show the older one.
      if let entry = changed[id] ?? (hasRuns ? nil : .some(nil)) { kept.updateValue(entry, forKey: id) }
    }
    changed = kept
  }

  private static let reservedMax = 20_000

  /// What `durable` has of the changes is written into a run from now on.
  mutating func freeze(_ durable: RecordTable) { frozen = durable.changed }

  /// What was frozen stands in runs.
  mutating func thaw() {
    frozen = [:]
    hasRuns = true
  }

  /// Forgets what has changed, but of some records.
  mutating func forget(but ids: Set<RecordID>) { changed = changed.filter { ids.contains($0.key) } }

  /// Takes another table for what the runs had: what has changed here counts.
  mutating func adopt(_ other: RecordTable) {
    changed.merge(other.changed) { mine, _ in mine }
    hasRuns = other.hasRuns
  }

  /// What was frozen was not written.
  mutating func refreeze() {
    changed.merge(frozen) { newer, _ in newer }
    frozen = [:]
  }
}
