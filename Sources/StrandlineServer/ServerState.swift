// What the server holds in memory: of each record where its current version lies in the journal, never its
// values. A pure fold of the journal.
//
// A zone's feed is the list of its changes by LSN. An entry whose record has changed since is passed over, and
// when more than half of the list is such, it is written anew; so finding a place is a binary search, and a page
// costs what it shows.

internal import Strandline
import StrandlineSystem

/// A reference that binds two records: DELETE_SELF or VALIDATE.
struct RecordLink: Hashable, Sendable {
  var field: String
  var target: String
  var action: Reference.Action
}

/// Where a record stands.
struct RecordEntry: Sendable {
  /// The event of its latest change.
  var lsn: UInt64
  var isDeleted: Bool
  /// Empty for a tombstone.
  var tag: String
  var links: [RecordLink]
}

/// A zone in one life.
struct ZoneState: Sendable {
  struct Change: Sendable {
    var lsn: UInt64
    var name: String
  }

  let life: UInt64
  let key: DatabaseKey
  let name: String
  /// The event that created the zone.
  let createdLSN: UInt64
  private(set) var entries: [String: RecordEntry] = [:]
  private(set) var feed: [Change] = []
  private var passedOver = 0
  /// The latest event of this zone.
  private(set) var lastLSN: UInt64
  /// Target name → names of records with a link to it (some may have lost it: check the entry).
  private(set) var sources: [String: Set<String>] = [:]

  init(life: UInt64, key: DatabaseKey, name: String, createdLSN: UInt64) {
    self.life = life
    self.key = key
    self.name = name
    self.createdLSN = createdLSN
    self.lastLSN = createdLSN
  }

  mutating func set(_ name: String, _ entry: RecordEntry) {
    if let old = entries[name] {
      passedOver += 1
      for link in old.links {
        sources[link.target]?.remove(name)
        if sources[link.target]?.isEmpty == true { sources[link.target] = nil }
      }
    }
    entries[name] = entry
    for link in entry.links { sources[link.target, default: []].insert(name) }
    feed.append(Change(lsn: entry.lsn, name: name))
    lastLSN = entry.lsn
    if passedOver > 64 + feed.count / 2 {
      feed.removeAll { entries[$0.name]?.lsn != $0.lsn }
      passedOver = 0
    }
  }

  /// The place of the first change after an LSN.
  func index(after lsn: UInt64) -> Int {
    var low = 0
    var high = feed.count
    while low < high {
      let middle = (low + high) / 2
      if feed[middle].lsn <= lsn { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// The next change at or after a place that is a record's latest.
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
  /// Name → life of the zones that exist.
  var zones: [String: UInt64] = [:]
  /// Name → the event of its deletion, for zones that are gone.
  var deleted: [String: UInt64] = [:]
}

/// Everything.
struct ServerState: Sendable {
  struct Tenure: Sendable {
    var tenure: UInt64
    var firstLSN: UInt64
  }

  private(set) var databases: [DatabaseKey: DatabaseState] = [:]
  private(set) var zones: [UInt64: ZoneState] = [:]
  private(set) var tenures: [Tenure] = []
  private(set) var lastLSN: UInt64 = 0

  /// Takes in the next event.
  mutating func apply(_ event: JournalEvent, at lsn: UInt64) throws(JournalEventError) {
    guard lsn == lastLSN + 1 else {
      throw JournalEventError(description: "event \(lsn) follows event \(lastLSN) in the server's journal")
    }
    switch event {
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
    case .recordSaved(let record):
      try set(record.zone, record.name, lsn, isDeleted: false, tag: record.tag, links: Self.links(of: record))
    case .recordDeleted(let zone, let name, _):
      try set(zone, name, lsn, isDeleted: true, tag: "", links: [])
    }
    lastLSN = lsn
  }

  /// Takes in an event that only a newer version knows and that may be skipped.
  mutating func skip(_ lsn: UInt64) { lastLSN = lsn }

  private mutating func set(
    _ life: UInt64, _ name: String, _ lsn: UInt64, isDeleted: Bool, tag: String, links: [RecordLink]
  ) throws(JournalEventError) {
    guard zones[life] != nil else {
      throw JournalEventError(description: "event \(lsn) changes a record of a zone that does not exist")
    }
    zones[life]?.set(name, RecordEntry(lsn: lsn, isDeleted: isDeleted, tag: tag, links: links))
  }

  /// The binding references of a record.
  static func links(of record: JournalRecord) -> [RecordLink] {
    var links: [RecordLink] = []
    // In the order of the fields' names, so that a refusal names the same field each time.
    for (field, value) in record.fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      for reference in value.references where reference.action != .none && reference.zone == nil {
        links.append(RecordLink(field: field, target: reference.name, action: reference.action))
      }
    }
    return links
  }

  func zone(_ name: String, in key: DatabaseKey) -> ZoneState? {
    databases[key]?.zones[name].flatMap { zones[$0] }
  }

  /// The tenure under which an event was written; 0 for "no event".
  func tenure(of lsn: UInt64) -> UInt64 {
    tenures.last { $0.firstLSN <= lsn }?.tenure ?? 0
  }

  /// Whether an event of this number was written under this tenure.
  func knows(tenure: UInt64, lsn: UInt64) -> Bool {
    if lsn == 0 { return tenure == 0 }
    guard let index = tenures.lastIndex(where: { $0.tenure == tenure }) else { return false }
    let end = index + 1 < tenures.count ? tenures[index + 1].firstLSN - 1 : lastLSN
    return lsn >= tenures[index].firstLSN && lsn <= end
  }
}
