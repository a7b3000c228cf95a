// The sorted runs that a store reads, as one: immutable, so that a reader sees one moment, whatever is written or
// merged meanwhile. The files live as long as a reader needs them.

package import StrandlineLog
import StrandlineSystem
import Synchronization

/// Runs that together hold the projections as of one event.
package final class RunSet: Sendable {
  /// The newest first.
  package let runs: [Run]
  /// The list that names them, in the same order.
  package let list: RunList
  /// The event as of which they hold everything.
  package let end: LogEnd
  /// The declared indexes of which they have every row.
  let indexes: [StoredIndex]
  /// A run could not be read: the whole set is of no more use.
  private let failure = OrderedMutex<RunError?>(nil)
  /// A run said what the log does not say.
  private let isLying = Atomic(false)
  /// Runs without rows of deleted names are not asked for one.
  let runsWithDeletions: [Run]
  /// The set that these are the older runs of.
  private let whole: RunSet?

  init(runs: [Run], list: RunList, end: LogEnd, indexes: [StoredIndex], partOf whole: RunSet? = nil) {
    self.indexes = indexes
    self.whole = whole
    self.runs = runs
    self.list = list
    self.end = end
    runsWithDeletions = runs.filter { RunProperties($0.properties).hasDeletions }
  }

  /// Why the runs are of no more use; nil if none has failed.
  var hasFailed: Bool { failure.withLock { $0 != nil } }

  /// Whether a run said what the log does not say: then nothing is believed either that was made of the runs since.
  var hasLied: Bool { isLying.load(ordering: .acquiring) }

  /// Notes that a run says what the log does not say, though its checksums are right.
  func lied(_ what: String) {
    isLying.store(true, ordering: .releasing)
    _ = fail(RunError(.damaged, runs.first?.path ?? "", "its rows are not what the log says: \(what)"))
    whole?.lied(what)
  }

  /// Notes that a run failed, and says so as a public error. One that a locked device does not give out has not failed.
  func fail(_ error: RunError) -> StrandlineError {
    if let cause = error.cause, cause.isDeviceLocked {
      return StrandlineError(.temporarilyUnavailable, "\(error)", file: error.file, underlying: cause)
    }
    failure.withLock { if $0 == nil { $0 = error } }
    if let whole { return whole.fail(error) }
    var failed = StrandlineError(
      error.cause == nil ? .damaged : .io, "the store's index failed: \(error)", file: error.file, offset: error.offset,
      underlying: error.cause)
    failed.isOfIndex = true
    return failed
  }

  /// - Throws: if a run has said what the log does not say.
  func checkBelieved() throws(StrandlineError) {
    guard hasLied else { return }
    throw fail(RunError(.damaged, runs.first?.path ?? "", "its rows are not what the log says"))
  }

  /// The record's row; nil if there is none.
  func entry(_ id: RecordID) throws(StrandlineError) -> PlacedEntry? { try entry(key: RowKey.record(id)) }

  /// The row of the record with this key; nil if there is none.
  func entry(key: [UInt8]) throws(StrandlineError) -> PlacedEntry? {
    try row(key, runs) { (bytes, range) throws(ByteReaderError) in
      try PlacedEntry(row: bytes, range)
    }
  }

  /// The row of a deleted name.
  func deletion(_ id: RecordID) throws(StrandlineError) -> DeletionEntry? {
    guard !runsWithDeletions.isEmpty else { return nil }
    return try row(RowKey.record(id, table: .deletions), runsWithDeletions) { (bytes, range) throws(ByteReaderError) in
      try DeletionEntry(row: bytes, range)
    }
  }

  /// Whether there is a row with a key.
  func has(_ key: [UInt8]) throws(StrandlineError) -> Bool {
    try row(key, runs) { (_, _) throws(ByteReaderError) in true } ?? false
  }

  /// The row beside the tables.
  func state() throws(StrandlineError) -> StoredState {
    let state = try row(RowKey.state, runs) { (bytes, range) throws(ByteReaderError) in
      try StoredState(row: bytes, range)
    }
    guard let state, state.lsn.rawValue == end.lsn else {
      throw fail(RunError(.damaged, runs.first?.path ?? "", "it has no state as of event \(end.lsn)"))
    }
    guard hasRows(for: state) else {
      throw fail(
        RunError(
          .damaged, runs.first?.path ?? "",
          "it counts \(state.recordCount) records and \(state.deletionCount) deleted names, and the runs have other rows"
        ))
    }
    return state
  }

  /// Whether there can be a row for all that is counted. The footers say how many there are; of one run without rows of
  /// indexes that is exact.
  private func hasRows(for state: StoredState) -> Bool {
    let rows = runs.reduce(0) { $0 + UInt64($1.entryCount - $1.tombstoneCount) }
    let (counted, isTooMuch) = state.recordCount.addingReportingOverflow(state.deletionCount)
    if isTooMuch || rows <= counted { return false }
    let isExact = runs.count == 1 && list.binding.count == RunBinding.bytes
    return !isExact || rows == counted + 1
  }

  /// Checks how many rows of each table there are, by its number, against what is counted.
  func check(_ met: [UInt8: UInt64]) throws(RunError) {
    // What cannot be read, a look-up says.
    guard let state = try? state() else { return }
    let (records, names) = (met[RunTable.records.rawValue] ?? 0, met[RunTable.deletions.rawValue] ?? 0)
    if records == state.recordCount, names == state.deletionCount { return }
    let words =
      "there are rows of \(records) records and \(names) deleted names, and \(state.recordCount) and "
      + "\(state.deletionCount) are counted"
    lied(words)
    throw RunError(.damaged, runs.first?.path ?? "", words)
  }

  /// The oldest of these runs, as many as hold the projections as of an event within `lsns`; nil if none do. Each run
  /// continues the one before it, so without the newer ones they are what they were when the last of them was written.
  ///
  /// - Complexity: O(runs).
  func earlier(within lsns: ClosedRange<LSN>) throws(StrandlineError) -> RunSet? {
    for first in runs.indices {
      // A run that has rows of indexes alone says nothing of the state: it is as of the one before it.
      let rest = Array(runs[first...])
      let state = try row(RowKey.state, rest) { (bytes, range) throws(ByteReaderError) in
        try StoredState(row: bytes, range)
      }
      guard let lsn = state?.lsn, lsn >= lsns.lowerBound else { return nil }
      if lsn <= lsns.upperBound {
        return RunSet(
          runs: rest, list: list, end: LogEnd(lsn: lsn.rawValue, chain: 0), indexes: [], partOf: self)
      }
    }
    return nil
  }

  private func row<Row>(
    _ bytes: [UInt8], _ runs: [Run], _ decode: ([UInt8], Range<Int>) throws(ByteReaderError) -> Row
  ) throws(StrandlineError) -> Row? {
    try checkBelieved()
    let key = RunKey(bytes)
    for run in runs {
      do throws(RunError) {
        switch try run.get(key) {
        case .absent: continue
        case .tombstone: return nil
        case .value(let value):
          return try Self.decoding(run.path) { () throws(ByteReaderError) in try decode(value.bytes, value.range) }
        }
      } catch {
        throw fail(error)
      }
    }
    return nil
  }

  /// A checksum was right and the row means nothing: no version of this code wrote it.
  static func decoding<Row>(
    _ path: String, _ body: () throws(ByteReaderError) -> Row
  ) throws(RunError) -> Row {
    do { return try body() } catch { throw RunError(.damaged, path, "a row cannot be decoded: \(error)") }
  }
}

/// What a run says of itself.
package struct RunProperties {
  package var hasDeletions: Bool

  package init(hasDeletions: Bool) { self.hasDeletions = hasDeletions }

  package init(_ bytes: [UInt8]) { hasDeletions = bytes.first != 0 }

  var bytes: [UInt8] { [hasDeletions ? 1 : 0] }
}

/// What binds a set of runs to the log that it was made from, and which declared indexes are complete in it.
package struct RunBinding {
  /// Those of the event and its chain; a store that ever had an index has more.
  package static let bytes = 8 + 4
  private static let endBytes = bytes
  /// The number of an index, and what tells its definition.
  package static let numberBytes = 4 + 8
  package static let fixedBytes = endBytes + 4
  /// So many indexes fit.
  static let indexCountMax = (RunFormat.bindingBytesMax - fixedBytes) / numberBytes

  /// An index of which the runs have every row. A number alone does not say which index it is: one that was declared after
  /// the folder was lost may have got it again, and old runs may come back.
  package struct Complete: Hashable, Sendable {
    package var number: UInt32
    /// `RecordIndex.digest`.
    package var definition: UInt64

    package init(_ stored: StoredIndex) { (number, definition) = (stored.number, stored.index.digest) }

    fileprivate init(number: UInt32, definition: UInt64) { (self.number, self.definition) = (number, definition) }
  }

  package var end: LogEnd
  /// Above the numbers of all indexes that the runs have rows of.
  package var nextIndexNumber: UInt32
  package var indexes: [Complete]

  var encoded: [UInt8] {
    var writer = ByteWriter(capacity: Self.fixedBytes + indexes.count * Self.numberBytes)
    writer.u64(end.lsn)
    writer.u32(end.chain)
    // Of a store that never had an index nothing follows.
    guard nextIndexNumber > 1 else { return writer.bytes }
    writer.u32(nextIndexNumber)
    for index in indexes {
      writer.u32(index.number)
      writer.u64(index.definition)
    }
    return writer.bytes
  }

  package static func decode(_ list: RunList, path: String) throws(RunError) -> RunBinding {
    let binding = list.binding
    guard binding.count == endBytes || (binding.count >= fixedBytes && (binding.count - fixedBytes) % numberBytes == 0),
      !list.entries.isEmpty, binding.u64(at: 0) > 0
    else { throw RunError(.damaged, path, "it is not bound to an event of a log") }
    let end = LogEnd(lsn: binding.u64(at: 0), chain: binding.u32(at: 8))
    guard binding.count >= fixedBytes else { return RunBinding(end: end, nextIndexNumber: 1, indexes: []) }
    return RunBinding(
      end: end, nextIndexNumber: binding.u32(at: endBytes),
      indexes: stride(from: fixedBytes, to: binding.count, by: numberBytes).map {
        Complete(number: binding.u32(at: $0), definition: binding.u64(at: $0 + 4))
      })
  }
}
