// Projections made of events whose number has no bound, in memory that has one: what was made so far is written into runs
// that no list names.

package import StrandlineLog

extension Projections {
  /// Writes what lies in memory into a run that no list names, and reads it from there.
  ///
  /// - Throws: `StrandlineError`; then memory has what it had.
  mutating func spill(into files: IndexFiles, number: UInt64, nextIndexNumber: UInt32 = 1) throws {
    let durable = beginFlush(upTo: appliedLSN, key: HashKey(ofStore: files.storeUUID))
    do {
      let run = try files.write(durable, number: number)
      // Which chain leads up to it, a flush that lists the runs will know. Rows of indexes are not written here: values are
      // not looked up while events are folded. So indexes are built anew.
      endFlush(
        files.set(
          [run] + (runs?.runs ?? []), end: LogEnd(lsn: appliedLSN.rawValue, chain: 0), nextRunNumber: number + 1,
          indexes: [], nextIndexNumber: nextIndexNumber))
    } catch {
      cancelFlush()
      throw error
    }
  }
}

/// A fold of events, for the time of a comparison.
package struct SpillingFold {
  package private(set) var projections = Projections()
  /// The runs that it has written, whole or not: the caller removes them.
  private(set) var runNumbers: Set<UInt64> = []
  private let spill: Spill?

  /// Where to, and when.
  struct Spill {
    let files: IndexFiles
    /// So many changes in memory are written into a run.
    let count: Int
    let newRunNumber: () throws -> UInt64
  }

  /// A fold in memory.
  package init() { spill = nil }

  init(_ spill: Spill) { self.spill = spill }

  /// Applies the next event.
  ///
  /// - Throws: what decoding, looking up its record and writing a run throw. The fold is of no more use then.
  package mutating func apply(_ found: LogSurvivor) throws {
    let event = try EventSource.decode(
      LogEvent(
        lsn: found.lsn, schema: found.schema, body: found.body, indexInTransaction: 0, isFirst: true, isLast: true,
        segmentID: 0, offset: 0))
    try projections.apply(event, at: LSN(found.lsn), isDurable: true)
    guard let spill, projections.unstoredCount >= spill.count else { return }
    let number = try spill.newRunNumber()
    runNumbers.insert(number)
    try projections.spill(into: spill.files, number: number)
  }

  /// The clock was at `time` at least.
  package mutating func learn(_ time: HybridTime) { projections.sync.learn(time) }

  /// The events end at `lsn`, though the newest ones may have left them.
  package mutating func advance(to lsn: LSN) { projections.advance(to: lsn) }
}
