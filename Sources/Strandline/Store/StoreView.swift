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
  package let lsn: LSN
  package let store: RecordStore
  private let number: UInt64
  private let consumer: LogConsumer
  /// The newest event that was durable when it was taken.
  let moment: LSN
  /// What it shows of an earlier event; nil if that is the same one.
  let past: PastEntries?
  /// The view as of `moment` that keeps for this one what it shows.
  private let present: StoreView?

  /// - Parameter kept: the event whose state compaction is to leave in place; nil: the newest durable one.
  init(_ store: RecordStore, keeping kept: LSN? = nil) {
    self.store = store
    (past, present) = (nil, nil)
    // The log first: then nothing that the view shows can be removed before it is known there.
    consumer = store.consumers.register("a view of the store", after: (kept ?? store.durableLSN).rawValue)
    let now = store.environment.clock.monotonicNanoseconds()
    (number, lsn) = store.projections.withLock { state in
      let durable = store.source.durableLSN
      return (state.beginView(at: durable, nanoseconds: now), durable)
    }
    moment = lsn
  }

  /// A view as of an earlier event.
  init(_ past: PastEntries, before present: StoreView) {
    (store, number, moment, consumer) = (present.store, present.number, present.moment, present.consumer)
    (lsn, self.past, self.present) = (past.lsn, past, present)
    store.projections.withLock { $0.views[present.number]?.shown = past.lsn }
  }

  deinit {
    guard present == nil else { return }
    consumer.end()
    let durable = store.source.durableLSN
    store.projections.withLock { $0.endView(number, durable: durable) }
  }

  /// A record as the view shows it; nil if it did not live.
  ///
  /// - Throws: `StrandlineError`: `.damaged` if its bytes do not verify, `.io`, `.closed`; in a store that was opened for
  ///   reading only `.outdated`, if the writing process has compacted the log since the view was taken. A view as of an
  ///   earlier position throws `.positionExpired` if a compaction that had begun before it was taken, or that of another
  ///   process, has removed the record.
  /// - Complexity: one or two reads of the log.
  public func record(_ id: RecordID) throws -> Record? {
    try CallSite.unnamed.run("reading record '\(id)'") {
      try store.requireOpen()
      let id = store.canonical(id)
      return try load(id, entry(id))
    }
  }

  /// Those of the records that live, in the order of `ids`. One that does not is left out.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`.
  /// - Complexity: one or two reads of the log a record, in the order in which they lie there.
  public func records(_ ids: [RecordID]) throws -> [Record] {
    try CallSite.unnamed.run("reading \(ids.count) records") {
      var records: [Record] = []
      try forEachRecord(ids) {
        records.append($0)
      } unreadable: {
        throw $0.error
      }
      return records
    }
  }

  /// Reads those of the records that live, in the order of the log: what was written together is read together. Then hands
  /// them over in the order of `ids`, those that alone cannot be read to `report`.
  func forEachRecord(
    _ ids: [RecordID], _ body: (Record) throws -> Void, unreadable report: (UnreadableRecord) throws -> Void
  ) throws {
    try store.requireOpen()
    let ids = ids.map(store.canonical)
    let entries = try entries(ids)
    var found: [Record?] = Array(repeating: nil, count: ids.count)
    var unreadable: [Int: UnreadableRecord] = [:]
    let places = ids.indices.sorted { (entries[$0]?.entry.view ?? .zero) < (entries[$1]?.entry.view ?? .zero) }
    for place in places { found[place] = try load(ids[place], entries[place]) { unreadable[place] = $0 } }
    for place in ids.indices {
      if let record = found[place] { try body(record) }
      if let record = unreadable[place] { try report(record) }
    }
  }

  /// How many records live; of one zone and one type if asked.
  ///
  /// - Throws: `StrandlineError.outdated` as `record(_:)`.
  /// - Complexity: O(zones); of a type O(records) if a zone that is asked about has had more than 256 types at a time.
  public func count(
    ofType type: String? = nil, in zone: ZoneID? = nil
  ) throws -> Int {
    try CallSite.unnamed.run("counting records") {
      let zone = zone.map(store.canonical)
      if let counted = try counted(ofType: type, in: zone) { return counted }
      var count = 0
      try forEachLiving(ofType: type, in: EntryScan.Range(zone: zone)) { _, _ in
        count += 1
        return true
      }
      return count
    }
  }

  /// How many records live, if that is counted.
  private func counted(ofType type: String?, in zone: ZoneID?) throws(StrandlineError) -> Int? {
    try look { state in
      var living = state.living(asOf: moment)
      for (zone, count) in past?.living ?? [:] { living[zone, default: LivingCount()].add(count) }
      return living.total(ofType: type, in: zone)
    }
  }

  /// The types of which records live, and how many of each.
  ///
  /// - Throws: `StrandlineError.outdated` as `record(_:)`.
  /// - Complexity: O(zones · types); O(records) if a zone that is asked about has had more than 256 types at a time.
  package func types(in zone: ZoneID? = nil) throws -> [String: Int] {
    try store.requireOpen()
    let zone = zone.map(store.canonical)
    let counts = try look { $0.living(asOf: moment) }.filter { zone == nil || zone == $0.key }.map(\.value.types)
    if past == nil, !counts.contains(nil) {
      return counts.reduce(into: [:]) { $0.merge($1 ?? [:], uniquingKeysWith: +) }
    }
    var types: [String: Int] = [:]
    try forEachLiving(ofType: nil, in: EntryScan.Range(zone: zone)) { _, found in
      types[found.entry.type, default: 0] += 1
      return true
    }
    return types
  }

  /// Hands every living record to `body`, in the order of zone and name, one at a time: memory does not grow with their
  /// values.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`, at the first record that cannot be read; what `body` throws.
  public func forEachRecord(
    ofType type: String? = nil, in zone: ZoneID? = nil, _ body: (Record) throws -> Void
  ) throws {
    try CallSite.unnamed.run("reading records") {
      try forEachRecord(ofType: type, in: zone, body) { throw $0.error }
    }
  }

  /// The same; a record that alone cannot be read is handed to `report`.
  func forEachRecord(
    ofType type: String?, in zone: ZoneID?, _ body: (Record) throws -> Void,
    unreadable report: (UnreadableRecord) throws -> Void
  ) throws {
    try store.requireOpen()
    try forEachLiving(ofType: type, in: EntryScan.Range(zone: zone)) { id, entry in
      if let record = try load(id, entry, orReport: report), type == nil || record.type == type { try body(record) }
      return true
    }
  }

  private func entry(_ id: RecordID) throws(StrandlineError) -> PlacedEntry? {
    if let known = past?.entries[id] { return known.map { PlacedEntry($0) } }
    return try store.projections.entry(id, asOf: moment) { (state) throws(StrandlineError) in try check(state) }
  }

  func entries(_ ids: [RecordID]) throws(StrandlineError) -> [PlacedEntry?] {
    let entries = try store.projections.entries(ids, asOf: moment) { (state) throws(StrandlineError) in
      try check(state)
    }
    guard let past else { return entries }
    return zip(ids, entries).map { id, entry in past.entries[id].map { $0.map { PlacedEntry($0) } } ?? entry }
  }

  /// The record that an entry of the view points at.
  func load(_ id: RecordID, _ found: PlacedEntry?) throws -> Record? {
    guard let past else { return try store.load(id, found, asOf: lsn) }
    return try found.flatMap { try past.load(id, $0.entry, from: store.source) }
  }

  /// The same; if this record alone cannot be read, it is handed to `report` instead.
  func load(
    _ id: RecordID, _ found: PlacedEntry?, orReport report: (UnreadableRecord) throws -> Void
  ) throws -> Record? {
    try reading(id, orReport: report) { try load(id, found) }
  }

  /// Runs `body`, which reads a record. If that record alone cannot be read, it is handed to `report`, and nil is returned.
  func reading<Value>(
    _ id: RecordID, orReport report: (UnreadableRecord) throws -> Void, _ body: () throws -> Value?
  ) throws -> Value? {
    do { return try body() } catch let error as StrandlineError where error.isOfOneRecord {
      try report(UnreadableRecord(id: id, record: nil, error: error))
      return nil
    }
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

  /// After so many entries that a walk has passed over, it looks how many there are that it may still meet.
  private static let passedMax = 1_000

  /// Hands the living records of a range to `body`, in the order of zone and name, until that returns false.
  func forEachLiving(
    ofType type: String?, in range: EntryScan.Range, _ body: (RecordID, PlacedEntry) throws -> Bool
  ) throws {
    var range = range
    range.zone = range.zone.map(store.canonical)
    // Behind the last living record there may be a million whose deletions are not sent yet.
    var (passed, met) = (0, 0)
    var living: Int?
    while true {
      var scan = try scan(range)
      do {
        while let (id, found) = try scan.next() {
          range.after = id
          let entry = found.entry
          guard entry.view != nil, type == nil || entry.type == type else {
            passed += 1
            if passed == Self.passedMax { living = try counted(ofType: type, in: range.zone) }
            if let living, met >= living { return }
            continue
          }
          met += 1
          if range.includes(id), try !body(id, found) { return }
        }
        return
      } catch let error as StrandlineError where error.isOfIndex {
        // Behind the last record that was handed out, in runs that were made anew.
        try store.projections.discardIndex(error)
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
    var memory = try store.projections.withLockOnce { (state) throws(StrandlineError) in
      try check(state)
      return state.scanMemory(asOf: moment)
    }
    if let past { memory.changed.append(past.entries) }
    return memory
  }
}

extension RecordStore {
  /// A view of what is durable now.
  ///
  /// - Throws: `StrandlineError.closed`.
  /// - Complexity: O(1); it copies nothing, and holding it costs a writer nothing but memory for what it changes.
  public func view() throws -> StoreView {
    try CallSite.unnamed.run("taking a view of the store at '\(path)'") {
      try requireOpen()
      return StoreView(self)
    }
  }

  /// Reads several things of one moment.
  ///
  /// - Throws: `StrandlineError.closed`; what `body` throws.
  public func read<Value>(
    _ body: (StoreView) throws -> Value
  ) throws -> Value {
    try body(view())
  }
}
