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
  private let consumer: LogConsumer?

  init(_ store: RecordStore) {
    self.store = store
    // The log first: then nothing that the view shows can be removed before it is known there.
    if case .writer(let log) = store.source {
      consumer = log.register(consumer: "a view of the store", after: log.durableLSN)
    } else {
      consumer = nil
    }
    let now = store.environment.clock.monotonicNanoseconds()
    (number, lsn) = store.projections.withLock { state in
      let durable = store.source.durableLSN
      return (state.beginView(at: durable, nanoseconds: now), durable)
    }
  }

  deinit {
    consumer?.end()
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
      guard type == nil else { return try living(ofType: type, in: zone).count }
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
      for (id, entry) in try living(ofType: type, in: zone) {
        if let record = try store.load(id, entry, asOf: lsn), type == nil || record.type == type { try body(record) }
      }
    }
  }

  private func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    try look { (state) throws(StrandlineError) in try state.entry(id, asOf: lsn) }
  }

  /// Looks into the projections, as far as they can still answer for this view.
  private func look<Result: Sendable>(
    _ body: (inout Projections) throws(StrandlineError) -> Result
  ) throws(StrandlineError) -> Result {
    try store.projections.withLock { (state) throws(StrandlineError) in
      guard state.views[number] != nil else {
        throw StrandlineError(
          .outdated,
          "the view of event \(lsn) has expired: the writing process has compacted the store since; take a new view")
      }
      return try body(&state)
    }
  }

  /// The living records, in the order of zone and name.
  func living(ofType type: String?, in zone: ZoneID?) throws(StrandlineError) -> [(RecordID, RecordEntry)] {
    let zone = zone.map(store.canonical)
    let found: [(RecordID, RecordEntry)] = try look { state in
      let changed = state.changes(after: lsn)
      var found: [(RecordID, RecordEntry)] = []
      func add(_ id: RecordID, _ entry: RecordEntry?) {
        guard let entry, entry.view != nil, type == nil || entry.type == type else { return }
        found.append((id, entry))
      }
      for (zoneID, names) in state.records.zones where zone == nil || zone == zoneID {
        for (name, entry) in names {
          let id = RecordID(name, zone: zoneID)
          if changed.isEmpty || changed[id] == nil { add(id, entry) }
        }
      }
      for (id, entry) in changed where zone == nil || zone == id.zone { add(id, entry) }
      return found
    }
    return found.sorted { $0.0 < $1.0 }
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
