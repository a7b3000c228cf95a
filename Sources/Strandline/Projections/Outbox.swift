// Every unsettled mutation, in the order of the log. Computed from the log when a store is opened.

/// The unsettled mutations.
package struct Outbox: Sendable {
  /// Which record each unsettled mutation is of.
  package private(set) var records: [LSN: RecordID] = [:]
  /// The times of those mutations whose events compaction has packed; the others' events hold theirs.
  package private(set) var times: [LSN: HybridTime] = [:]
  /// Ascending, from `head` on. Settled ones are dropped when they come to the front, so the oldest unsettled one is found
  /// without a search.
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

  /// Learns the times of packed mutations that are still unsettled.
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
