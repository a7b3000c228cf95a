// A query with conditions on several fields, each with an index: the records that one index names are read only if the
// others name them too. Reading a record is what costs, so once a search has read some, the rows of the other indexes are
// looked through, and what no row is of is passed over unread.
//
// Nothing is estimated beforehand: a search that is short never looks, and an index with too many rows is given up.

import StrandlineSystem

/// What other indexes say of the records that a search finds.
struct IndexNarrowing {
  /// So many records are read before the other indexes are looked at.
  static let patience = 64
  /// Of an index of which more rows are in the ranges no use is made: looking through them would cost more than it spares.
  private static let rowCountMax = 1 << 15

  private let index: StoredIndex
  private let runs: RunSet
  private let patience: Int
  /// Not looked at yet.
  private var others: [IndexPlan]
  /// The keys of the records that each of the others names.
  private var named: [Set<ArraySlice<UInt8>>] = []
  private var foundCount = 0

  init(_ plan: IndexPlan, _ runs: RunSet, patience: Int) {
    index = plan.index
    self.runs = runs
    self.patience = patience
    others = plan.others
  }

  /// Whether a record that was found cannot meet the query's other conditions.
  ///
  /// - Parameter key: of the row by which it was found, in the runs: what lies in memory has other rows there, or none.
  /// - Throws: if a run cannot be read; it has failed then.
  mutating func excludes(_ key: [UInt8]) throws(StrandlineError) -> Bool {
    foundCount += 1
    if !others.isEmpty, foundCount > patience {
      for other in others { if let records = try records(other) { named.append(records) } }
      others = []
    }
    guard !named.isEmpty, let start = index.recordStart(key) else { return false }
    let record = key[start...]
    return named.contains { !$0.contains(record) }
  }

  /// The keys of the records that the runs have in a plan's ranges; nil if there are too many.
  private func records(_ plan: IndexPlan) throws(StrandlineError) -> Set<ArraySlice<UInt8>>? {
    var result: Set<ArraySlice<UInt8>> = []
    var rowCount = 0
    do throws(RunError) {
      for range in plan.ranges {
        var cursor = try MergedCursor(runs.runs, from: range.lower)
        while try cursor.advance() {
          let key = cursor.key
          if range.isBehind(key) { break }
          rowCount += 1
          guard rowCount <= Self.rowCountMax else { return nil }
          if let start = plan.index.recordStart(key) { result.insert(key[start...]) }
        }
      }
    } catch {
      throw runs.fail(error)
    }
    return result
  }
}
