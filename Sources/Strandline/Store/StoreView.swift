// What a store held at one moment. A view is an LSN: a read through it undoes what came later, so taking or holding one
// copies nothing. The events that it shows stay in the log as long as it is held, because it is a consumer of the log,
// which compaction waits for.

import StrandlineLog
import StrandlineSystem

/// A store as it was when the view was taken: several reads of one moment.
///
/// It shows what was durable then, whatever is written, synced or compacted meanwhile. Reading through it waits for no
/// writer. Release it when it is no longer needed: compaction leaves in place what it shows, and each change since then
/// takes some memory.
public final class StoreView: Sendable {
  /// The newest event that the view shows.
  public let lsn: LSN
  package let store: RecordStore
  private let number: UInt64
  private let consumer: LogConsumer

  init(_ store: RecordStore) {
    self.store = store
    // The log first: then nothing that the view shows can be removed before it is known there.
    consumer = store.consumers.register("a view of the store", after: store.durableLSN.rawValue)
    let now = store.environment.clock.monotonicNanoseconds()
    (number, lsn) = store.projections.withLock { state in
      let durable = store.source.durableLSN
      return (state.beginView(at: durable, nanoseconds: now), durable)
    }
  }

  deinit {
    consumer.end()
    let durable = store.source.durableLSN
    store.projections.withLock { $0.endView(number, durable: durable) }
  }

  /// A record as the view shows it; nil if it did not live.
  ///
  /// - Throws: `StrandlineError`: `.damaged` if its bytes do not verify, `.io`, `.closed`; in a store that was opened for
  ///   reading only `.outdated`, if the writing process has compacted the log since the view was taken.
  /// - Complexity: one or two reads of the log.
  public func record(_ id: RecordID, fileID: String = #fileID, line: Int = #line) throws -> Record? {
    try CallSite(fileID, line).run("reading record '\(id)'") {
      try store.requireOpen()
      let id = store.canonical(id)
      return try store.load(id, entry(id), asOf: lsn)
    }
  }

  /// Those of the records that live, in the order of `ids`.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`.
  public func records(_ ids: [RecordID], fileID: String = #fileID, line: Int = #line) throws -> [Record] {
    try ids.compactMap { try record($0, fileID: fileID, line: line) }
  }

  /// How many records live; of one zone and one type if asked.
  ///
  /// - Throws: `StrandlineError.outdated` as `record(_:)`.
  /// - Complexity: O(zones); with a type O(records).
  public func count(
    ofType type: String? = nil, in zone: ZoneID? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try CallSite(fileID, line).run("counting records") {
      if type != nil {
        var count = 0
        try forEachLiving(ofType: type, in: EntryScan.Range(zone: zone)) { _, _ in
          count += 1
          return true
        }
        return count
      }
      let zone = zone.map(store.canonical)
      return try look { state in
        let living = state.living(asOf: lsn)
        return zone.map { living[$0] ?? 0 } ?? living.values.reduce(0, +)
      }
    }
  }

  /// Hands every living record to `body`, in the order of zone and name, one at a time: memory does not grow with their
  /// values.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; what `body` throws.
  public func forEachRecord(
    ofType type: String? = nil, in zone: ZoneID? = nil, fileID: String = #fileID, line: Int = #line,
    _ body: (Record) throws -> Void
  ) throws {
    try CallSite(fileID, line).run("reading records") {
      try store.requireOpen()
      try forEachLiving(ofType: type, in: EntryScan.Range(zone: zone)) { id, entry in
        if let record = try store.load(id, entry, asOf: lsn), type == nil || record.type == type { try body(record) }
        return true
      }
    }
  }

  private func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    try store.projections.entry(id, asOf: lsn) { (state) throws(StrandlineError) in try check(state) }
  }

  /// Looks into the projections, as far as they can still answer for this view.
  private func look<Result: Sendable>(
    _ body: (inout Projections) throws(StrandlineError) -> Result
  ) throws(StrandlineError) -> Result {
    try store.projections.withLock { (state) throws(StrandlineError) in
      try check(state)
      return try body(&state)
    }
  }

  private func check(_ state: Projections) throws(StrandlineError) {
    guard state.views[number] != nil else {
      throw StrandlineError(
        .outdated,
        "the view of event \(lsn) has expired: the writing process has compacted the store since; take a new view")
    }
  }

  /// Hands the living records of a range to `body`, in the order of zone and name, until that returns false.
  func forEachLiving(
    ofType type: String?, in range: EntryScan.Range, _ body: (RecordID, RecordEntry) throws -> Bool
  ) throws {
    var range = range
    range.zone = range.zone.map(store.canonical)
    while true {
      var scan = try scan(range)
      do {
        while let (id, entry) = try scan.next() {
          range.after = id
          guard entry.view != nil, type == nil || entry.type == type, range.includes(id) else { continue }
          guard try body(id, entry) else { return }
        }
        return
      } catch let error as StrandlineError where error.isOfIndex {
        // Behind the last record that was handed out, in runs that were made anew.
        try store.projections.rebuildIfFailed()
      }
    }
  }

  private func scan(_ range: EntryScan.Range) throws(StrandlineError) -> EntryScan {
    try store.projections.rebuilding { () throws(StrandlineError) in
      try EntryScan(try memory(), range)
    }
  }

  /// What lies in memory of what the view shows, and the runs that know the rest.
  func memory() throws(StrandlineError) -> EntryScan.Memory {
    try store.projections.withLockOnce { (state) throws(StrandlineError) in
      try check(state)
      return state.scanMemory(asOf: lsn)
    }
  }
}

extension RecordStore {
  /// A view of what is durable now.
  ///
  /// - Throws: `StrandlineError.closed`.
  /// - Complexity: O(1); it copies nothing, and holding it costs a writer nothing but memory for what it changes.
  public func view(fileID: String = #fileID, line: Int = #line) throws -> StoreView {
    try CallSite(fileID, line).run("taking a view of the store at '\(path)'") {
      try requireOpen()
      return StoreView(self)
    }
  }

  /// Reads several things of one moment.
  ///
  /// - Throws: `StrandlineError.closed`; what `body` throws.
  public func read<Value>(
    fileID: String = #fileID, line: Int = #line, _ body: (StoreView) throws -> Value
  ) throws -> Value {
    try body(view(fileID: fileID, line: line))
  }
}
