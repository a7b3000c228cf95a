// The table of records: where each of them lies in the log. And how many live, kept with every change.

/// The records that have an entry.
package struct RecordTable: Sendable {
  /// `set` changes its entries, and nothing else does: it counts.
  var rows = ChangedTable<RecordEntry>()
  /// How many live, by zone.
  package private(set) var living: [ZoneID: LivingCount] = [:]
  /// The zone whose number changed last, and its place: many changes in a row are of one zone.
  private var lastCounted: (zone: ZoneID, place: Dictionary<ZoneID, LivingCount>.Index)?

  package init() {}

  /// What runs hold.
  init(stored count: Int, living: [ZoneID: LivingCount]) {
    rows = ChangedTable(stored: count)
    self.living = living
  }

  /// Those that have changed since the runs were written; nil: there is no entry any more.
  package var changed: [RecordID: RecordEntry?] { rows.changed }
  /// How many records have an entry.
  package var count: Int { rows.count }

  /// Sets a record's entry, which was `old`.
  mutating func set(_ id: RecordID, from old: RecordEntry?, to new: RecordEntry?) {
    rows.set(id, from: old, to: new)
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
}
