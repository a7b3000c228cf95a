// The server's state in memory, a fold of the journal. For each record it has the LSN of the current version, never the
// values.
//
// A zone's feed is the list of its changes by LSN. A change whose record has changed since is obsolete and skipped; when
// more than half of the list is obsolete, the list is compacted. So a token's place is found by binary search, and a page
// costs O(records shown).

internal import Strandline
import StrandlineSystem

/// What one event does to the state.
enum StateChange: Sendable {
  case opened(tenure: UInt64)
  case zoneCreated(life: UInt64, DatabaseKey, name: String)
  case zoneDeleted(life: UInt64)
  /// `kinds`: of fields that the event gives a value; those that it only keeps may be left out.
  case recordSaved(
    zone: UInt64, name: String, type: String, tag: String, modified: Int64, links: [RecordLink],
    kinds: [(field: String, kind: FieldKind)])
  case recordDeleted(zone: UInt64, name: String)

  /// Reads the body of an event; nil for a kind that only a newer version knows and that may be skipped.
  static func read(_ body: [UInt8]) throws(JournalEventError) -> StateChange? {
    if body.count > 2, UInt16(body[0]) | UInt16(body[1]) << 8 == JournalEventKind.recordSaved.rawValue,
      body[2] == JournalEvent.version
    {
      do throws(ByteReaderError) {
        let record = try RecordBytes(body)
        return .recordSaved(
          zone: record.zone, name: record.text(record.name), type: record.text(record.type),
          tag: record.text(record.tag), modified: try record.milliseconds(record.modified), links: try record.links(),
          kinds: record.fields.map { (record.text($0.name), FieldKind(body, at: $0.value.lowerBound)) })
      } catch {
        throw JournalEventError(description: "an event that cannot be read: \(error)")
      }
    }
    switch try JournalEvent.decode(body) {
    case .opened(let tenure): return .opened(tenure: tenure)
    case .zoneCreated(let life, let key, let name): return .zoneCreated(life: life, key, name: name)
    case .zoneDeleted(let life): return .zoneDeleted(life: life)
    case .recordDeleted(let zone, let name, _): return .recordDeleted(zone: zone, name: name)
    case .recordSaved, nil: return nil
    }
  }
}

/// The record types of one container and environment: the kind of each field, fixed by the first value that it had. The
/// databases and the users of a container share them, as at CloudKit. The production environment learns as the development
/// one does; CloudKit's would have to be deployed.
struct Schema: Sendable {
  struct Key: Hashable, Sendable {
    var container: CloudName
    var environment: CloudName
    init(_ key: DatabaseKey) {
      (container, environment) = (CloudName(key.container), CloudName(key.environment))
    }
  }

  private var types: [String: [String: FieldKind]] = [:]

  func knows(_ type: String) -> Bool { types[type] != nil }

  func kind(of field: String, in type: String) -> FieldKind? { types[type]?[field] }

  /// Fixes the kinds of those fields that have none.
  mutating func learn(_ kinds: [(field: String, kind: FieldKind)], in type: String) {
    for (field, kind) in kinds where kind.fixesField && types[type]?[field] == nil {
      types[type, default: [:]][field] = kind
    }
  }
}

/// A record's current version.
struct RecordEntry: Sendable {
  /// The event of its latest change.
  var lsn: UInt64
  var isDeleted: Bool
  /// Empty for a tombstone.
  var tag: String
  var links: [RecordLink]
  /// Of what a query asks for most, so that no record is read that is not shown. Empty and 0 for a tombstone.
  var type = ""
  var modified: Int64 = 0
}

/// One life of a zone: from its creation to its deletion.
struct ZoneState: Sendable {
  struct Change: Sendable {
    var lsn: UInt64
    var name: CloudName
  }

  let life: UInt64
  let key: DatabaseKey
  let name: String
  /// The event that created the zone.
  let createdLSN: UInt64
  private(set) var entries: [CloudName: RecordEntry] = [:]
  private(set) var feed: [Change] = []
  /// How many changes in `feed` are obsolete.
  private var obsoleteChanges = 0
  /// The latest event of this zone.
  private(set) var lastLSN: UInt64
  private(set) var links = LinkIndex()

  init(life: UInt64, key: DatabaseKey, name: String, createdLSN: UInt64) {
    self.life = life
    self.key = key
    self.name = name
    self.createdLSN = createdLSN
    self.lastLSN = createdLSN
  }

  mutating func set(_ name: CloudName, _ entry: RecordEntry) {
    let old = entries.updateValue(entry, forKey: name)
    if old != nil { obsoleteChanges += 1 }
    links.change(name, from: old?.links ?? [], to: entry.links)
    feed.append(Change(lsn: entry.lsn, name: name))
    lastLSN = entry.lsn
    if obsoleteChanges > 64 + feed.count / 2 {
      feed.removeAll { entries[$0.name]?.lsn != $0.lsn }
      obsoleteChanges = 0
    }
  }

  /// The index of the first change after an LSN.
  func index(after lsn: UInt64) -> Int {
    feed.partitioningIndex { $0.lsn > lsn }
  }

  /// The index of the first change at or after `index` that is not obsolete.
  func nextCurrent(from index: Int) -> Int? {
    var index = index
    while index < feed.count {
      if entries[feed[index].name]?.lsn == feed[index].lsn { return index }
      index += 1
    }
    return nil
  }
}

/// The zones of one database.
struct DatabaseState: Sendable {
  /// The lives of the zones that exist, by name.
  var zones: [CloudName: UInt64] = [:]
  /// The LSNs at which zones that do not exist were deleted, by name.
  var deleted: [CloudName: UInt64] = [:]
}

/// The state of all databases.
struct ServerState: Sendable {
  struct Tenure: Sendable {
    var tenure: UInt64
    var firstLSN: UInt64
  }

  private(set) var databases: [DatabaseKey: DatabaseState] = [:]
  private(set) var zones: [UInt64: ZoneState] = [:]
  private(set) var tenures: [Tenure] = []
  private(set) var schemas: [Schema.Key: Schema] = [:]
  private(set) var lastLSN: UInt64 = 0

  /// Applies the next event.
  mutating func apply(_ change: StateChange, at lsn: UInt64) throws(JournalEventError) {
    try checkOrder(lsn)
    switch change {
    case .opened(let tenure): tenures.append(Tenure(tenure: tenure, firstLSN: lsn))
    case .zoneCreated(let life, let key, let name):
      zones[life] = ZoneState(life: life, key: key, name: name, createdLSN: lsn)
      databases[key, default: DatabaseState()].zones[name] = life
      databases[key]?.deleted[name] = nil
    case .zoneDeleted(let life):
      guard let zone = zones.removeValue(forKey: life) else {
        throw JournalEventError(description: "event \(lsn) deletes a zone that does not exist")
      }
      databases[zone.key]?.zones[zone.name] = nil
      databases[zone.key]?.deleted[zone.name] = lsn
    case .recordSaved(let zone, let name, let type, let tag, let modified, let links, let kinds):
      let entry = RecordEntry(lsn: lsn, isDeleted: false, tag: tag, links: links, type: type, modified: modified)
      try set(zone, name, entry)
      if let key = zones[zone]?.key, !kinds.isEmpty {
        let schema = Schema.Key(key)
        schemas[schema, default: Schema()].learn(kinds, in: type)
      }
    case .recordDeleted(let zone, let name):
      try set(zone, name, RecordEntry(lsn: lsn, isDeleted: true, tag: "", links: []))
    }
    lastLSN = lsn
  }

  /// Applies the next event from its bytes; one of a kind that only a newer version knows, and that may be skipped, changes
  /// nothing.
  mutating func apply(_ body: [UInt8], at lsn: UInt64) throws(JournalEventError) {
    if let change = try StateChange.read(body) { return try apply(change, at: lsn) }
    try checkOrder(lsn)
    lastLSN = lsn
  }

  /// A journal is never compacted, so that no event is left out.
  private func checkOrder(_ lsn: UInt64) throws(JournalEventError) {
    guard lsn == lastLSN + 1 else {
      throw JournalEventError(description: "event \(lsn) follows event \(lastLSN) in the server's journal")
    }
  }

  private mutating func set(_ life: UInt64, _ name: String, _ entry: RecordEntry) throws(JournalEventError) {
    guard zones[life] != nil else {
      throw JournalEventError(description: "event \(entry.lsn) changes a record of a zone that does not exist")
    }
    zones[life]?.set(CloudName(name), entry)
  }

  /// The newest event of a database's zones.
  func lastLSN(in key: DatabaseKey) -> UInt64 {
    guard let database = databases[key] else { return 0 }
    let living = database.zones.values.lazy.compactMap { life in zones[life]?.lastLSN }.max() ?? 0
    return max(living, database.deleted.values.max() ?? 0)
  }

  func zone(_ name: String, in key: DatabaseKey) -> ZoneState? {
    databases[key]?.zones[name].flatMap { zones[$0] }
  }

  /// The tenure under which an event was written; 0 for LSN 0.
  func tenure(of lsn: UInt64) -> UInt64 { tenures.tenure(of: lsn) }

  /// Whether the event at `lsn` was written under `tenure`.
  func contains(tenure: UInt64, lsn: UInt64) -> Bool {
    if lsn == 0 { return tenure == 0 }
    guard let index = tenures.lastIndex(where: { $0.tenure == tenure }) else { return false }
    let end = index + 1 < tenures.count ? tenures[index + 1].firstLSN - 1 : lastLSN
    return lsn >= tenures[index].firstLSN && lsn <= end
  }
}

extension [ServerState.Tenure] {
  /// The tenure under which an event was written; 0 for LSN 0.
  func tenure(of lsn: UInt64) -> UInt64 { last { $0.firstLSN <= lsn }?.tenure ?? 0 }
}
