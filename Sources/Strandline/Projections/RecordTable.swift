// Where each record stands in the log: at most two LSNs, those of its base and of its newest unsettled mutation. Values
// stay in the log.
//
// The view is the newest unsettled mutation's after-image, else the base. Projections never merge.

/// The last version of a record that the server is known to hold.
package struct Base: Hashable, Sendable {
  /// The event that says that the server holds it: a `fetchedSave`, or the `settled` of an upload.
  package var version: LSN
  /// The event that holds the values: the same `fetchedSave`, or the mutation that was acknowledged.
  package var content: LSN
  package var changeTag: String
  package var createdMilliseconds: Int64?
  package var modifiedMilliseconds: Int64?
}

/// What the server is owed of a record: its unsettled mutations, of which the newest alone is enough to send. However many
/// there are, this stays as small.
package struct Pending: Hashable, Sendable {
  /// Whether the newest mutation is a deletion.
  package var isDeletion: Bool
  /// The newest unsettled mutation.
  package var newest: LSN
  /// Most records have one unsettled mutation, and an entry in memory has no room for what else there may be.
  private var others: Others

  private enum Others: Hashable, Sendable {
    case none
    indirect case some(first: LSN, attempts: [Attempt], since: LSN)
  }

  /// A mutation that a request may have carried, whose outcome is not known, and that is not the newest any more.
  package struct Attempt: Hashable, Sendable {
    package var lsn: LSN
    /// The record's next mutation.
    package var next: LSN

    package init(lsn: LSN, next: LSN) {
      self.lsn = lsn
      self.next = next
    }
  }

  /// - Parameters:
  ///   - first: nil: the newest is the only one.
  ///   - since: nil: the first one.
  package init(isDeletion: Bool, newest: LSN, first: LSN? = nil, attempts: [Attempt] = [], since: LSN? = nil) {
    self.isDeletion = isDeletion
    self.newest = newest
    let first = first ?? newest
    let since = since ?? first
    others =
      since == newest && first == newest && attempts.isEmpty
      ? .none : .some(first: first, attempts: attempts, since: since)
  }

  /// The oldest unsettled mutation.
  package var first: LSN { if case .some(let first, _, _) = others { first } else { newest } }

  /// Ascending.
  package var attempts: [Attempt] { if case .some(_, let attempts, _) = others { attempts } else { [] } }

  /// The oldest mutation whose content the server is owed: older than the first where a merge has taken its place, which
  /// carries what it changed.
  package var since: LSN { if case .some(_, _, let since) = others { since } else { newest } }

  /// The mutations that the server may have, ascending: the first may have been sent from a copy of this log.
  package var sendable: [LSN] { [first] + attempts.map(\.lsn) + [newest] }

  /// Whether `lsn` is one of the mutations that an answer may be about.
  func mayBeAnswered(_ lsn: LSN) -> Bool { lsn == newest || attempts.contains { $0.lsn == lsn } }
}

/// One record: its base and what the server is owed.
package struct RecordEntry: Hashable, Sendable {
  package var type: String
  /// Most records of a store that does not sync have no base, and an entry in memory has no room for one.
  private var storedBase: StoredBase
  package var pending: Pending?

  private enum StoredBase: Hashable, Sendable {
    case none
    indirect case some(Base)
  }

  package init(type: String, base: Base? = nil, pending: Pending? = nil) {
    self.type = type
    storedBase = base.map { .some($0) } ?? .none
    self.pending = pending
  }

  package var base: Base? {
    get {
      guard case .some(let base) = storedBase else { return nil }
      return base
    }
    set { storedBase = newValue.map { .some($0) } ?? .none }
  }

  /// The event that holds what the app reads; nil if the app sees no record.
  package var view: LSN? {
    if let pending { return pending.isDeletion ? nil : pending.newest }
    return base?.content
  }
}

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
