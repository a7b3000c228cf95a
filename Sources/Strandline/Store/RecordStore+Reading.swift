// Reading: where a record lay when the last durable event was written, then one checked read of the log.

import StrandlineLog
import StrandlineSystem
import Synchronization

extension RecordStore {
  /// A record, as far as it is durable; nil if it does not live.
  ///
  /// - Throws: `StrandlineError.damaged` if its bytes do not verify, `.io`, `.closed`.
  /// - Complexity: one or two reads of the log.
  public func record(_ id: RecordID) throws -> Record? {
    try CallSite.unnamed.run("reading record '\(id)'") {
      try requireOpen()
      let id = canonical(id)
      return try load(id, entry(id, asOf: nil), asOf: nil)
    }
  }

  /// Those of the records that live, in the order of `ids`, all as of one moment. One that does not is left out.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`.
  /// - Complexity: one or two reads of the log a record, in the order in which they lie there.
  public func records(_ ids: [RecordID]) throws -> [Record] {
    try view().records(ids)
  }

  /// The one spelling of a zone: its owner may be the own user's name.
  func canonical(_ zone: ZoneID) -> ZoneID {
    zone.owner.isEmpty ? zone : Account(projections.sync).canonical(zone)
  }

  /// The one spelling of a record's identity.
  func canonical(_ id: RecordID) -> RecordID {
    id.zone.owner.isEmpty ? id : RecordID(id.name, zone: canonical(id.zone))
  }

  /// A record's entry as of a view's LSN; nil: as of what is durable now.
  private func entry(_ id: RecordID, asOf lsn: LSN?) throws(StrandlineError) -> PlacedEntry? {
    try projections.entry(id, asOf: lsn ?? source.durableLSN)
  }

  /// The identities of the records that live, in the order of zone and name; of one zone and one type if asked, with names
  /// that begin with `prefix`, behind `after`, and `limit` of them at most: the first page, and the next one behind its last.
  ///
  /// - Throws: `StrandlineError.closed`, `.io`.
  /// - Complexity: O(records that are looked at): those of the zone with the prefix, or of all zones, behind `after`, until
  ///   there are enough. And O(changes that lie in memory, at most some ten thousand).
  package func recordIDs(
    ofType type: String? = nil, in zone: ZoneID? = nil, prefix: String = "", after: RecordID? = nil,
    limit: Int = .max
  ) throws -> [RecordID] {
    try CallSite.unnamed.run("listing records") {
      let view = try view()
      var ids: [RecordID] = []
      guard limit > 0 else { return ids }
      let range = EntryScan.Range(zone: zone, namePrefix: prefix, after: after.map(canonical))
      try view.forEachLiving(ofType: type, in: range) { id, _ in
        ids.append(id)
        return ids.count < limit
      }
      return ids
    }
  }

  /// Hands every living record to `body`, in the order of zone and name, one at a time: memory does not grow with
  /// their values. Records that are changed meanwhile are shown as they were when this was called.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`; what `body` throws.
  public func forEachRecord(
    ofType type: String? = nil, in zone: ZoneID? = nil, _ body: (Record) throws -> Void
  ) throws {
    try view().forEachRecord(ofType: type, in: zone, body)
  }

  /// The living records of a type, in the order of zone and name.
  ///
  /// - Throws: `StrandlineError` as `record(_:)`.
  public func records(
    ofType type: String, in zone: ZoneID? = nil
  ) throws -> [Record] {
    var result: [Record] = []
    try forEachRecord(ofType: type, in: zone) { result.append($0) }
    return result
  }

  /// How many records live.
  public var recordCount: Int {
    let durable = source.durableLSN
    return projections.withLock { $0.living(asOf: durable).values.reduce(0) { $0 + $1.total } }
  }

  /// The record that an entry points at. A compaction may have removed or packed the event after the entry was copied:
  /// then the record as its entry is now. What a view's entry points at is removed by no compaction of this process.
  /// An index that told another record's event, or one that is gone, is made again first.
  func load(_ id: RecordID, _ found: PlacedEntry?, asOf lsn: LSN?) throws -> Record? {
    var found = found
    var believes = true
    while let known = found?.entry, let place = known.view {
      // A suspension or a resumption may replace it meanwhile.
      let source = source
      do throws(StrandlineError) {
        if let shown = try source.versionIfKept(at: place, of: id, hint: found?.place) {
          let system = if let fetched = shown.system { fetched } else { try self.system(of: id, known) }
          return shown.record(id, system: system)
        }
      } catch {
        if error.isOfLyingIndex, believes {
          believes = false
          try projections.discardIndex(error)
          found = try entry(id, asOf: lsn)
          continue
        }
        var error = error
        error.message = "reading record '\(id)': \(error.message)"
        throw error
      }
      found = try entry(id, asOf: lsn)
      if found?.entry != known { continue }
      if source.isReader || self.source.isReader {
        if try isSupersededByNothing(id, known, at: place) {
          throw StrandlineError(
            .damaged,
            "reading record '\(id)': event \(place) says that a later one replaced it, and the log has none",
            lsns: place...place)
        }
        throw StrandlineError(
          .outdated,
          "reading record '\(id)': event \(place) was removed by another process's compaction; call 'refresh()', or open "
            + "it again, to read what took its place", lsns: place...place)
      }
      let error = StrandlineError(
        lyingIndex: "event \(place) should hold a version of '\(id)' and does not", lsns: place...place)
      guard believes else { throw error }
      believes = false
      try projections.discardIndex(error)
      found = try entry(id, asOf: lsn)
    }
    return nil
  }

  /// Whether the log contradicts itself: it says of a record's newest mutation that a later one replaced it. A reader that
  /// has not seen the later one yet meets the same, where another process has compacted the log.
  private func isSupersededByNothing(_ id: RecordID, _ known: RecordEntry, at place: LSN) throws -> Bool {
    guard try entry(id, asOf: nil)?.entry == known, case .superseded? = try source.eventIfKept(at: place) else {
      return false
    }
    let reader = try LogReader.open(in: source.folder, role: .store, environment: environment)
    try reader.poll { _ in }
    return LSN(reader.lastLSN) == source.durableLSN
  }

  /// What the server said of a record when it last acknowledged or sent it.
  private func system(of id: RecordID, _ entry: RecordEntry) throws(StrandlineError) -> SystemFields? {
    guard let base = entry.base, let event = try source.eventIfKept(at: base.version) else { return nil }
    try event.checkIsOf(id, at: base.version)
    switch event {
    case .settled(let settled):
      return SystemFields(settled)
    case .fetchedSave(let fetched):
      return SystemFields(fetched)
    default: return nil
    }
  }
}
