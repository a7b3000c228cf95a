// What can be sent to one zone, in the order in which it goes: saves, and behind those that were there before them deletions.
// OutgoingQueue says what that is; here it stands until a request takes it.

import StrandlineLog
import StrandlineSystem

/// What is ready in a zone.
struct UploadLane: Sendable {
  /// Saves in the order in which they go. A request holds each unit whole.
  private var units: [[UploadItem]] = []
  /// How many of the units have gone.
  private var taken = 0
  /// The records in the units, each with the mutation that is to be sent. A unit may hold an older one.
  private var ready: [RecordID: LSN] = [:]
  /// Deletions; they go when no save is ready.
  private var deletions = LSNSet()
  /// The numbers of the sets that may be complete (OutgoingQueue+Sets.swift).
  var sets = LSNSet()
  /// What must not be deleted before saves are taken (KeptRecords.swift).
  var kept = KeptRecords()

  /// How many records can be sent.
  var count: Int { ready.count }

  /// The oldest mutation that can be sent; nil if there is none.
  ///
  /// - Parameter isRead: whether everything that is owed has been looked at, so that deletions may go.
  func oldest(_ isRead: Bool) -> LSN? {
    taken < units.count ? units[taken].first?.lsn : isRead ? deletions.first : nil
  }

  /// Whether no save is ready.
  var hasNoSaves: Bool { taken == units.count }

  func isReady(_ id: RecordID, _ lsn: LSN) -> Bool { ready[id] == lsn }

  mutating func append(_ more: [[UploadItem]]) {
    if taken > 0 { units.removeFirst(taken) }
    taken = 0
    units += more
    for item in more.joined() { ready[item.id] = item.lsn }
  }

  mutating func add(deletion lsn: LSN) { deletions.insert(lsn) }

  /// Forgets what is ready, and what was read of what saves leave.
  mutating func forget() {
    (units, taken, ready, deletions, sets) = ([], 0, [:], LSNSet(), LSNSet())
    kept = KeptRecords()
  }

  /// The saves that come first, about `count` of them.
  func first(_ count: Int) -> [UploadItem] {
    var items: [UploadItem] = []
    for unit in units[taken...] {
      if items.count >= count { break }
      items += unit.filter { ready[$0.id] == $0.lsn }
    }
    return items
  }

  /// Takes the units of one request by the number of their records. One that is larger than a request comes alone.
  mutating func takeSaves() -> [[UploadItem]] {
    var batch: [[UploadItem]] = []
    var count = 0
    while taken < units.count {
      // What the app has changed since comes again, behind.
      let unit = units[taken].filter { ready[$0.id] == $0.lsn }
      if !batch.isEmpty, count + unit.count > UploadPlan.operationsMax { break }
      taken += 1
      for item in unit { ready[item.id] = nil }
      if unit.isEmpty { continue }
      batch.append(unit)
      count += unit.count
    }
    return batch
  }

  /// Takes the oldest deletions.
  mutating func takeDeletions(_ count: Int) -> [LSN] {
    let some = deletions.first(count, after: .none, upTo: LSN(rawValue: .max))
    for lsn in some { deletions.remove(lsn) }
    return some
  }

  mutating func putBack(_ units: [[UploadItem]]) {
    guard let first = units.first?.first else { return }
    guard !first.isDeletion else {
      for item in units.joined() { add(deletion: item.lsn) }
      return
    }
    self.units = units + self.units[taken...]
    taken = 0
    // Of a record that has changed since, the newer mutation is sent.
    for item in units.joined() where ready[item.id] == nil { ready[item.id] = item.lsn }
  }
}
