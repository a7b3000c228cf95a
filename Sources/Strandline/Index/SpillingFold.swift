// Projections made of events whose number has no bound, in memory that has one: what was made so far is written into runs
// that no list names.

package import StrandlineLog

/// The runs that a making of projections has written and that no list names.
struct SpilledRuns {
  /// How many changes in memory are written into a run.
  let count: Int
  /// How many of the newest runs of the projections they are.
  private var ownCount = 0

  init(every count: Int) { self.count = count }

  /// Writes what is in memory into a run that no list names, reads it from there, and makes one of several where that is
  /// due: so few are open, however long the log is.
  ///
  /// - Throws: `StrandlineError`; then memory has what it had, or its runs say the same.
  mutating func spill(
    _ projections: inout Projections, into files: IndexFiles, nextIndexNumber: UInt32 = 1,
    newRunNumber: () throws -> UInt64
  ) throws {
    var number = try newRunNumber()
    let end = LogEnd(lsn: projections.appliedLSN.rawValue, chain: 0)
    // Which chain leads up to it, a flush that lists the runs will know. Rows of indexes are not written here: values are
    // not looked up while events are folded. So all indexes are built again.
    func set(_ runs: [Run]) -> RunSet {
      files.set(runs, end: end, nextRunNumber: number + 1, indexes: [], nextIndexNumber: nextIndexNumber)
    }
    let durable = projections.beginFlush(upTo: projections.appliedLSN)
    do {
      projections.endFlush(set([try files.write(durable, number: number)] + (projections.runs?.runs ?? [])))
    } catch {
      projections.cancelFlush()
      throw error
    }
    ownCount += 1
    let tiers = RunTiers(flushCount: count, width: IndexOptions().mergeWidth)
    while let runs = projections.runs?.runs {
      let due = tiers.due(runs.prefix(ownCount))
      guard due > 1 else { return }
      number = try newRunNumber()
      let inputs = Array(runs.prefix(due))
      guard
        let merged = try files.merge(
          inputs, number: number, dropsTombstones: due == runs.count, indexes: [], isCancelled: { false })
      else { return }
      projections.replaceRuns(set([merged] + runs.dropFirst(due)))
      ownCount -= due - 1
      try files.remove(inputs)
    }
  }
}

/// A fold of events, for the time of a comparison.
package struct SpillingFold {
  package private(set) var projections = Projections()
  /// The runs that it has written, whole or not: the caller removes them.
  private(set) var runNumbers: Set<UInt64> = []
  private var spill: Spill?

  /// Where to, and when.
  struct Spill {
    let files: IndexFiles
    var runs: SpilledRuns
    let newRunNumber: () throws -> UInt64
  }

  /// A fold in memory.
  package init() { spill = nil }

  init(_ spill: Spill) { self.spill = spill }

  /// Applies the next event.
  ///
  /// - Throws: what decoding, looking up its record and writing a run throw. The fold is of no more use then.
  package mutating func apply(_ found: LogSurvivor) throws {
    let event = try LogEvent(
      lsn: found.lsn, schema: found.schema, body: found.body, indexInTransaction: 0, isFirst: true, isLast: true,
      segmentID: 0, offset: 0
    ).decoded()
    try apply(event, at: LSN(found.lsn))
  }

  /// The same of an event that was decoded.
  mutating func apply(_ event: Event, at lsn: LSN) throws {
    try projections.apply(event, at: lsn, isDurable: true)
    guard var spill, projections.unstoredCount >= spill.runs.count else { return }
    defer { self.spill = spill }
    var numbers: Set<UInt64> = []
    defer { runNumbers.formUnion(numbers) }
    let newRunNumber = spill.newRunNumber
    try spill.runs.spill(&projections, into: spill.files) {
      let number = try newRunNumber()
      numbers.insert(number)
      return number
    }
  }

  /// The clock was at `time` at least.
  package mutating func learn(_ time: HybridTime) { projections.sync.learn(time) }

  /// The events end at `lsn`, though the newest ones may have left them.
  package mutating func advance(to lsn: LSN) { projections.advance(to: lsn) }
}
