// Every unsettled mutation in the log's order. Derived from the log, never stored beside it; its low end is the
// checkpoint.

/// The unsettled mutations.
package struct Outbox: Sendable {
  /// Which record each unsettled mutation is of.
  package private(set) var records: [LSN: RecordID] = [:]
  /// When those were made whose events compaction has packed; of all others the events say it.
  package private(set) var times: [LSN: HybridTime] = [:]
  /// Ascending; settled ones are passed over and dropped from the front, so the low end costs nothing to find.
  private var order: [LSN] = []
  private var head = 0

  package init() {}

  package var count: Int { records.count }

  package mutating func insert(_ lsn: LSN, _ id: RecordID) {
    if records.updateValue(id, forKey: lsn) != nil { return }
    // Only an undo inserts out of order; then the place is found from the end.
    var place = order.count
    while place > head, order[place - 1] > lsn { place -= 1 }
    if place > head, order[place - 1] == lsn { return }
    order.insert(lsn, at: place)
  }

  /// Takes in when packed mutations were made, those that are still owed.
  package mutating func learn(_ packed: Superseded) {
    for mutation in packed.mutations where records[mutation.lsn] != nil { times[mutation.lsn] = mutation.time }
  }

  package mutating func remove(_ lsn: LSN) {
    guard records.removeValue(forKey: lsn) != nil else { return }
    if !times.isEmpty { times[lsn] = nil }
    if let last = order.last, last == lsn { order.removeLast() }
    while head < order.count, records[order[head]] == nil { head += 1 }
    if head > 1024, head * 2 > order.count {
      order.removeFirst(head)
      head = 0
    }
    if records.isEmpty {
      order.removeAll(keepingCapacity: true)
      head = 0
    }
  }

  /// The oldest unsettled mutation.
  package var oldest: LSN? { head < order.count ? order[head] : nil }

  /// The unsettled mutations, oldest first.
  package var all: [LSN] { order[head...].filter { records[$0] != nil } }
}
