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

/// What the server is owed of a record. The outbox has all its unsettled mutations; the newest alone is enough to send.
package struct Pending: Hashable, Sendable {
  /// Whether the newest mutation is a deletion.
  package var isDeletion: Bool
  /// The newest unsettled mutation.
  package var newest: LSN
}

/// One record: its base and what the server is owed.
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
  /// How many have an entry.
  package private(set) var count = 0
  /// How many live, by zone.
  package private(set) var living: [ZoneID: Int] = [:]

  package init() {}

  package subscript(id: RecordID) -> RecordEntry? {
    get { zones[id.zone]?[id.name] }
    set {
      let old = zones[id.zone, default: [:]].assign(newValue, id.name)
      count += (newValue == nil ? 0 : 1) - (old == nil ? 0 : 1)
      let change = (newValue?.view == nil ? 0 : 1) - (old?.view == nil ? 0 : 1)
      if change != 0 { living[id.zone, default: 0] += change }
    }
  }
}
