// Finds records by the rows of an index: those of the runs, and those of what lies in memory, in one order.
//
// A row is a hint. What lies in memory hides the rows that the runs have of the same record, and every record that is
// found is compared with the row: a row that an update has left behind finds nothing.

import StrandlineSystem

/// A search through the ranges of a plan.
struct IndexSearch {
  /// A row, and the record's entry as the view shows it.
  struct Found {
    var key: [UInt8]
    var id: RecordID
    var entry: PlacedEntry
    /// Whether the runs have the row, and not memory.
    var isStored: Bool
  }

  private let plan: IndexPlan
  private let runs: RunSet
  private let parts: [[RecordID: RecordEntry?]]
  /// The rows of what lies in memory, in the order of their keys, the last first.
  private var known: [Found]
  private var stored: MergedCursor?
  private var hasStored = false
  private var nextRange = 0

  /// - Parameters:
  ///   - start: the first key to look at.
  ///   - rows: the keys of the rows of a record that lies in memory.
  init(
    _ plan: IndexPlan, _ runs: RunSet, _ memory: EntryScan.Memory, from start: [UInt8],
    rows: (RecordID, RecordEntry) throws -> Set<[UInt8]>
  ) throws {
    var plan = plan
    plan.ranges.removeAll { $0.isBehind(start) }
    for place in plan.ranges.indices where plan.ranges[place].lower.precedes(start) { plan.ranges[place].lower = start }
    self.plan = plan
    self.runs = runs
    parts = memory.changed
    known = []
    for (number, part) in parts.enumerated() {
      for (id, entry) in part {
        guard let entry, entry.view != nil, entry.type == plan.index.index.recordType,
          !parts[(number + 1)...].contains(where: { $0.keys.contains(id) })
        else { continue }
        for key in try rows(id, entry) where plan.ranges.contains(where: { $0.contains(key) }) {
          known.append(Found(key: key, id: id, entry: PlacedEntry(entry), isStored: false))
        }
      }
    }
    known.sort { $1.key.precedes($0.key) }
  }

  /// The next row; nil behind the last.
  ///
  /// - Throws: if a run cannot be read; it has failed then, and the search is of no more use.
  mutating func next() throws(StrandlineError) -> Found? {
    while true {
      let found = try nextStored()
      guard let last = known.last else {
        guard let found else { return nil }
        if let found = try take(found) { return found }
        continue
      }
      if let found, found.precedes(last.key) {
        if let found = try take(found) { return found }
        continue
      }
      known.removeLast()
      return last
    }
  }

  /// The key of the next row of the runs; nil behind the last.
  private mutating func nextStored() throws(StrandlineError) -> [UInt8]? {
    do throws(RunError) {
      while nextRange < plan.ranges.count {
        let range = plan.ranges[nextRange]
        if stored == nil {
          var cursor = try MergedCursor(runs.runs, from: range.lower)
          hasStored = try cursor.advance()
          stored = cursor
        }
        if hasStored, let key = stored?.key, !range.isBehind(key) { return key }
        nextRange += 1
        stored = nil
      }
      return nil
    } catch {
      throw runs.fail(error)
    }
  }

  /// Passes a row of the runs; nil if it says nothing of what the view shows.
  private mutating func take(_ key: [UInt8]) throws(StrandlineError) -> Found? {
    do throws(RunError) { hasStored = try stored?.advance() ?? false } catch { throw runs.fail(error) }
    guard let recordKey = plan.index.recordKey(key), let id = RowKey.recordID(recordKey) else {
      throw runs.fail(RunError(.damaged, runs.runs.first?.path ?? "", "a row of an index is of no record"))
    }
    guard !parts.contains(where: { $0.keys.contains(id) }), let found = try runs.entry(key: recordKey),
      found.entry.view != nil, found.entry.type == plan.index.index.recordType
    else { return nil }
    return Found(key: key, id: id, entry: found, isStored: true)
  }
}

/// The rows of records that lie in memory, by the event that holds the record: an event never changes.
final class IndexRowCache: Sendable {
  private static let countMax = 1 << 16
  private static let indexCountMax = 32
  private let rows = OrderedMutex<[UInt32: [LSN: Set<[UInt8]>]]>([:])

  func rows(_ index: StoredIndex, _ lsn: LSN, _ make: () throws -> Set<[UInt8]>) rethrows -> Set<[UInt8]> {
    if let known = rows.withLock({ $0[index.number]?[lsn] }) { return known }
    let made = try make()
    rows.withLock { rows in
      // Few indexes are in use at a time; those that were built anew since have another number.
      if rows.count > Self.indexCountMax { rows = [:] }
      if rows[index.number, default: [:]].count >= Self.countMax { rows[index.number] = [:] }
      rows[index.number, default: [:]][lsn] = made
    }
    return made
  }

  /// Forgets all: the log is another one now, or may be.
  func removeAll() { rows.withLock { $0 = [:] } }
}
