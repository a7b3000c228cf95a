// Every unsettled mutation, in the order of the log. Computed from the log when a store is opened.
//
// A store may be used for a year before it syncs, so a mutation costs a bit here. Which record it is of stands in its
// event; a record's entry names its newest one.

/// The unsettled mutations.
package struct Outbox: Sendable {
  package internal(set) var unsettled = LSNSet()
  /// Those that a request may have carried and whose outcome is not known.
  package internal(set) var attempted = LSNSet()
  /// Of records with several, all but the newest, ascending.
  package internal(set) var earlier: [RecordID: [LSN]] = [:]
  /// How many those are.
  var earlierCount = 0
  /// The times of those mutations whose events compaction has packed; the others' events hold theirs.
  package internal(set) var times: [LSN: HybridTime] = [:]

  /// A mutation that was settled, to undo that.
  struct Settled: Sendable {
    var lsn: LSN
    var wasAttempted: Bool
    var time: HybridTime?
  }

  package init() {}

  package var count: Int { unsettled.count }

  /// How many records have unsettled mutations.
  package var recordCount: Int { unsettled.count - earlierCount }

  /// The oldest unsettled mutation.
  package var oldest: LSN? { unsettled.first }

  /// A record's unsettled mutations, ascending.
  package func mutations(of id: RecordID, _ pending: Pending?) -> [LSN] {
    guard let pending else { return [] }
    return (earlier[id] ?? []) + [pending.newest]
  }

  /// Whether `lsn` is an unsettled mutation of the record.
  package func contains(_ lsn: LSN, of id: RecordID, _ pending: Pending?) -> Bool {
    guard let pending, unsettled.contains(lsn) else { return false }
    return pending.newest == lsn || earlier[id]?.contains(lsn) == true
  }

  /// The newest mutation of a record that a request may have carried and whose outcome is not known.
  package func attempted(of id: RecordID, _ pending: Pending?) -> LSN? {
    guard let pending, !attempted.isEmpty else { return nil }
    if attempted.contains(pending.newest) { return pending.newest }
    return earlier[id]?.last { attempted.contains($0) }
  }

  // MARK: Changes

  /// Adds a record's next mutation.
  mutating func append(_ lsn: LSN, of id: RecordID, after newest: LSN?) {
    if let newest {
      earlier[id, default: []].append(newest)
      earlierCount += 1
    }
    unsettled.insert(lsn)
  }

  /// Undoes `append`, which came last.
  mutating func removeLast(_ lsn: LSN, of id: RecordID, after newest: LSN?) {
    unsettled.remove(lsn)
    attempted.remove(lsn)
    if newest != nil {
      earlier[id]?.removeLast()
      earlierCount -= 1
      if earlier[id]?.isEmpty == true { earlier[id] = nil }
    }
  }

  /// Adds a mutation that may be older than others of the record; returns the record's newest.
  mutating func insert(_ lsn: LSN, of id: RecordID, newest: LSN?) -> LSN {
    guard unsettled.insert(lsn), let newest else { return max(lsn, newest ?? .none) }
    var others = earlier[id] ?? []
    let (older, latest) = lsn < newest ? (lsn, newest) : (newest, lsn)
    others.insert(older, at: others.firstIndex { $0 > older } ?? others.count)
    earlier[id] = others
    earlierCount += 1
    return latest
  }

  /// Removes a record's mutations up to `lsn`; returns them.
  mutating func settle(_ id: RecordID, newest: LSN, upTo lsn: LSN) -> [Settled] {
    var done: [Settled] = []
    if let others = earlier[id] {
      let count = newest <= lsn ? others.count : others.firstIndex { $0 > lsn } ?? others.count
      done = others[..<count].map { remove($0) }
      earlierCount -= count
      if count == others.count { earlier[id] = nil } else if count > 0 { earlier[id] = Array(others[count...]) }
    }
    if newest <= lsn { done.append(remove(newest)) }
    return done
  }

  /// Undoes `settle`.
  mutating func unsettle(_ done: [Settled], of id: RecordID, newest: LSN) {
    for mutation in done {
      unsettled.insert(mutation.lsn)
      if mutation.wasAttempted { attempted.insert(mutation.lsn) }
      if let time = mutation.time { times[mutation.lsn] = time }
    }
    let others = done.lazy.map(\.lsn).filter { $0 != newest }
    guard !others.isEmpty else { return }
    earlierCount += others.count
    earlier[id] = Array(others) + (earlier[id] ?? [])
  }

  /// A request may have carried it; returns whether that is news.
  mutating func attempt(_ lsn: LSN) -> Bool { unsettled.contains(lsn) && attempted.insert(lsn) }

  /// No request carried it; returns whether one had.
  mutating func unattempt(_ lsn: LSN) -> Bool { attempted.remove(lsn) }

  /// Learns the times of packed mutations that are still unsettled.
  package mutating func learn(_ packed: Superseded) {
    for mutation in packed.mutations { learn(mutation.time, of: mutation.lsn) }
  }

  /// Learns the time of a mutation that is packed, if it is still unsettled.
  mutating func learn(_ time: HybridTime, of lsn: LSN) { if unsettled.contains(lsn) { times[lsn] = time } }

  private mutating func remove(_ lsn: LSN) -> Settled {
    unsettled.remove(lsn)
    let wasAttempted = attempted.remove(lsn)
    return Settled(lsn: lsn, wasAttempted: wasAttempted, time: times.isEmpty ? nil : times.removeValue(forKey: lsn))
  }
}
