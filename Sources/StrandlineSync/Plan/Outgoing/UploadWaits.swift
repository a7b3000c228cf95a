// Why pending records cannot be sent now. The engine sees the end of each wait as an event:
//
// | wait | ends with |
// | --- | --- |
// | target | a change of that record: it was saved, deleted or given up |
// | fetch | the end of its zone's feed, or the loss of the zone |
// | lookup | the answer to the lookup |
// | content | the upload of its last content, the refusal of one, or a newer change |
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
  /// Until the contents that its change names are at the server.
  case content(LSN)
  /// Until it may be tried again, by the monotonic clock.
  case time(until: UInt64)
  /// Until its hold ends: the record is edited or released, or the hold's time is over.
  case hold
  /// For a deletion: until something changes in the zone. The server refuses it because records refer to it.
  case references
  /// Until all records of its set can go.
  case together

  /// How many records wait, by the kind of wait.
  package struct Counts: Hashable, Sendable {
    /// They refer to a record that the server does not have.
    package private(set) var target = 0
    package private(set) var fetch = 0
    package private(set) var lookup = 0
    package private(set) var content = 0
    package private(set) var time = 0
    package private(set) var hold = 0
    /// They are deletions, and other records refer to them.
    package private(set) var references = 0
    /// They wait for other records of a transaction that is uploaded as a whole.
    package private(set) var together = 0

    /// No record waits.
    package init() {}

    /// How many records wait.
    package var total: Int { target + fetch + lookup + content + time + hold + references + together }

    mutating func count(_ wait: UploadWait, _ change: Int) {
      switch wait {
      case .target: target += change
      case .fetch: fetch += change
      case .lookup: lookup += change
      case .content: content += change
      case .time: time += change
      case .hold: hold += change
      case .references: references += change
      case .together: together += change
      }
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
