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
    try load(id, entry(id))
  }

  private func entry(_ id: RecordID) -> RecordEntry? {
    core.withLock { $0.projections.entry(id, asOf: source.durableLSN) }
  }

  /// The identities of the records that live, in the order of zone and name; of one zone and one type if asked.
  ///
  /// - Complexity: O(n log n) for n records.
  public func recordIDs(ofType type: String? = nil, in zone: ZoneID? = nil) -> [RecordID] {
    living(ofType: type, in: zone).map(\.0)
  }

  /// Hands every living record to `body`, in the order of zone and name, one at a time: memory does not grow with
  /// the store. Records that are changed meanwhile are shown as they were when this was called; as they are, if
  /// `compact()` has removed that.
  public func forEachRecord(
    ofType type: String? = nil, in zone: ZoneID? = nil, _ body: (Record) throws -> Void
  ) throws {
    for (id, entry) in living(ofType: type, in: zone) {
      if let record = try load(id, entry), type == nil || record.type == type { try body(record) }
    }
  }

  /// The living records of a type, in the order of zone and name.
  public func records(ofType type: String, in zone: ZoneID? = nil) throws -> [Record] {
    var result: [Record] = []
    try forEachRecord(ofType: type, in: zone) { result.append($0) }
    return result
  }

  /// How many records live.
  public var recordCount: Int { living(ofType: nil, in: nil).count }

  private func living(ofType type: String?, in zone: ZoneID?) -> [(RecordID, RecordEntry)] {
    let found: [(RecordID, RecordEntry)] = core.withLock { core in
      let durable = source.durableLSN
      let inFlight = core.projections.idsInFlight(after: durable)
      var found: [(RecordID, RecordEntry)] = []
      func take(_ id: RecordID, _ entry: RecordEntry?) {
        guard let entry, entry.view != nil, type == nil || entry.type == type else { return }
        found.append((id, entry))
      }
      for (zoneID, names) in core.projections.records.zones where zone == nil || zone == zoneID {
        for (name, entry) in names {
          let id = RecordID(name, zone: zoneID)
          if inFlight.isEmpty || !inFlight.contains(id) { take(id, entry) }
        }
      }
      for id in inFlight where zone == nil || zone == id.zone {
        take(id, core.projections.entry(id, asOf: durable))
      }
      return found
    }
    return found.sorted { $0.0 < $1.0 }
  }

  /// A record as an entry says. What was superseded while this looked may have left the log since, or a pack may stand
  /// in its place: then as it is now.
  private func load(_ id: RecordID, _ entry: RecordEntry?) throws -> Record? {
    var entry = entry
    while let known = entry, let lsn = known.view {
      do {
        if let event = try source.eventIfKept(at: lsn), let loaded = try LoadedVersion(event, at: lsn) {
          return loaded.version.record(id, system: try loaded.system ?? system(of: known))
        }
      } catch { throw StrandlineError.translating(error, "reading record '\(id)'") }
      entry = self.entry(id)
      if entry != known { continue }
      if case .reader = source {
        throw StrandlineError(
          .outdated,
          "reading record '\(id)': event \(lsn) was removed by a compaction after the store was opened; "
            + "open it again to read what took its place")
      }
      throw StrandlineError(.damaged, "event \(lsn) should hold a version of '\(id)' and does not")
    }
    return nil
  }

  /// What the server said of a record when it last acknowledged or sent it.
  private func system(of entry: RecordEntry) throws -> SystemFields? {
    guard let base = entry.base else { return nil }
    switch try source.eventIfKept(at: base.version) {
    case .settled(let settled):
      return SystemFields(changeTag: settled.changeTag, created: settled.created, modified: settled.modified)
    case .fetchedSave(let fetched):
      return SystemFields(
        changeTag: fetched.changeTag, created: fetched.created, modified: fetched.modified, unknown: fetched.unknown)
    default: return nil
    }
  }
}
