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

/// The unsettled mutations of a record: what the server is owed.
package struct Pending: Hashable, Sendable {
  /// Whether the newest mutation is a deletion.
  package var isDeletion: Bool
  /// The unsettled mutations, ascending; the newest alone is enough to send.
  package var lsns: [LSN]
  /// The newest mutation that a request may have carried and whose outcome is not known.
  package var attempted: LSN?

  package var newest: LSN { lsns.last ?? .none }

  /// Inserts a mutation in the order of LSNs.
  mutating func insert(_ lsn: LSN) {
    var place = lsns.count
    while place > 0, lsns[place - 1] > lsn { place -= 1 }
    if place > 0, lsns[place - 1] == lsn { return }
    lsns.insert(lsn, at: place)
  }

  /// Removes every mutation up to `lsn`; returns whether any is left.
  mutating func settle(upTo lsn: LSN) -> Bool {
    lsns.removeAll { $0 <= lsn }
    if let attempted, attempted <= lsn { self.attempted = nil }
    return !lsns.isEmpty
  }
}

/// One record: its base and its unsettled mutations.
package struct RecordEntry: Hashable, Sendable {
  package var type: String
  package var base: Base?
  package var pending: Pending?

  /// The event that holds what the app reads; nil if the app sees no record.
  package var view: LSN? {
    if let pending { return pending.isDeletion ? nil : pending.newest }
    return base?.content
  }
}

/// The records, zone by zone.
package struct RecordTable: Sendable {
  package private(set) var zones: [ZoneID: [String: RecordEntry]] = [:]
  package private(set) var count = 0

  package init() {}

  package subscript(id: RecordID) -> RecordEntry? {
    get { zones[id.zone]?[id.name] }
    set {
      let old = zones[id.zone, default: [:]].updateOrRemove(newValue, forKey: id.name)
      count += (newValue == nil ? 0 : 1) - (old == nil ? 0 : 1)
    }
  }
}

extension Dictionary {
  /// Sets or removes in one look-up; returns what was there.
  fileprivate mutating func updateOrRemove(_ value: Value?, forKey key: Key) -> Value? {
    if let value { return updateValue(value, forKey: key) }
    return removeValue(forKey: key)
  }
}
