// Why pending records cannot be sent now. The engine sees the end of each wait as an event:
//
// | wait | ends with |
// | --- | --- |
// | target | a change of that record: it was saved, deleted or given up |
// | fetch | the end of its zone's feed, or the loss of the zone |
// | lookup | the answer to the lookup |
// | time | its moment |
// | hold | the hold's end: an edit, a release or discard by a person, its timer, another version of the app |
// | references | a change in the zone at the server |
// | together | a change of a record of its upload set, or of one that the set watches |

import StrandlineSystem

/// Why a pending record is not sent now.
package enum UploadWait: Hashable, Sendable {
  /// For a save: until the server has that target. For a deletion: until that record, which releases a reference to it, is saved.
  case target(RecordID)
  /// Until its zone has been fetched to its end.
  case fetch
  /// Until it has been looked up.
  case lookup
  /// Until the moment at which it may be tried again.
  case time
  /// Until its hold ends: the record is edited or released, or the hold's time is over.
  case hold
  /// For a deletion: until something changes in the zone. The server refuses it because records refer to it.
  case references
  /// Until all records of its set can go.
  case together
}

/// The waits of records.
package struct UploadWaits: Sendable {
  /// An event that may end the waits of several records.
  enum Trigger: Hashable {
    case record(RecordID)
    case fetch(ZoneID)
    case references(ZoneID)
  }

  /// How many records wait, by the kind of wait.
  package struct Counts: Hashable, Sendable {
    package private(set) var target = 0
    package private(set) var fetch = 0
    package private(set) var lookup = 0
    package private(set) var time = 0
    package private(set) var hold = 0
    package private(set) var references = 0
    package private(set) var together = 0

    mutating func count(_ wait: UploadWait, _ change: Int) {
      switch wait {
      case .target: target += change
      case .fetch: fetch += change
      case .lookup: lookup += change
      case .time: time += change
      case .hold: hold += change
      case .references: references += change
      case .together: together += change
      }
    }
  }

  private(set) var all: [RecordID: UploadWait] = [:]
  /// How many records have each kind of wait.
  package private(set) var counts = Counts()
  private var waiting: [Trigger: Set<RecordID>] = [:]

  subscript(id: RecordID) -> UploadWait? { all[id] }

  /// - Precondition: the record waits for nothing.
  mutating func set(_ id: RecordID, _ wait: UploadWait) {
    all[id] = wait
    counts.count(wait, 1)
    if let trigger = Self.trigger(of: wait, id) { waiting[trigger, default: []].insert(id) }
  }

  mutating func end(_ id: RecordID) {
    guard let wait = all.removeValue(forKey: id) else { return }
    counts.count(wait, -1)
    if let trigger = Self.trigger(of: wait, id) {
      waiting[trigger]?.remove(id)
      if waiting[trigger]?.isEmpty == true { waiting[trigger] = nil }
    }
  }

  /// The records that wait for something, in order.
  func ids(waitingFor trigger: Trigger) -> [RecordID] { (waiting[trigger] ?? []).sorted() }

  private static func trigger(of wait: UploadWait, _ id: RecordID) -> Trigger? {
    switch wait {
    case .target(let target): .record(target)
    case .fetch: .fetch(id.zone)
    case .references: .references(id.zone)
    case .lookup, .time, .hold, .together: nil
    }
  }
}

/// For each upload set that cannot be sent, the records whose change may unblock it.
struct SetWatches: Sendable {
  private var watched: [RecordSet: Set<RecordID>] = [:]
  private var watching: [RecordID: Set<RecordSet>] = [:]

  /// The sets that watch a record.
  func sets(watching id: RecordID) -> Set<RecordSet> { watching[id] ?? [] }

  func has(_ set: RecordSet) -> Bool { watched[set] != nil }

  mutating func begin(_ set: RecordSet, _ ids: Set<RecordID>) {
    end(set)
    watched[set] = ids
    for id in ids { watching[id, default: []].insert(set) }
  }

  mutating func end(_ set: RecordSet) {
    for id in watched.removeValue(forKey: set) ?? [] {
      watching[id]?.remove(set)
      if watching[id]?.isEmpty == true { watching[id] = nil }
    }
  }
}
