// What can be sent to one zone, in the order in which it goes: saves, and behind those that were there before them deletions.
// UploadQueue says what that is; here it stands until a request takes it.

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
  /// Deletions; they go when the saves up to `end` have.
  private var deletions = LSNSet()
  private var end: LSN = .none
  /// The numbers of the sets that may be complete (UploadQueue+Sets.swift).
  var sets = LSNSet()
  /// What must not be deleted before saves are taken (UploadQueue+Kept.swift).
  var kept = KeptRecords()

  /// How many records can be sent.
  var count: Int { ready.count }

  /// The saves that are ready.
  var saves: [UploadItem] { units[taken...].flatMap { $0 } }

  /// The oldest mutation that can be sent; nil if there is none.
  ///
  /// - Parameter cursor: every older mutation has been looked at.
  func oldest(_ cursor: LSN) -> LSN? {
    areDeletionsDue(cursor) ? deletions.first : taken < units.count ? units[taken].first?.lsn : nil
  }

  /// Whether deletions go next: every save that was there before them has gone or waits.
  func areDeletionsDue(_ cursor: LSN) -> Bool {
    guard !deletions.isEmpty, cursor >= end else { return false }
    return !units[taken...].contains { $0.contains { $0.lsn <= end } }
  }

  func isReady(_ id: RecordID, _ lsn: LSN) -> Bool { ready[id] == lsn }

  mutating func append(_ more: [[UploadItem]]) {
    if taken > 0 { units.removeFirst(taken) }
    taken = 0
    units += more
    for item in more.joined() { ready[item.id] = item.lsn }
  }

  mutating func add(deletion lsn: LSN, end: LSN) {
    if deletions.isEmpty { self.end = end }
    deletions.insert(lsn)
  }

  /// Forgets what is ready, and what was read of what saves leave.
  mutating func forget() {
    (units, taken, ready, deletions, end, sets) = ([], 0, [:], LSNSet(), .none, LSNSet())
    kept = KeptRecords()
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

  /// Takes the oldest deletions that are due.
  ///
  /// - Parameter last: what the next ones wait for.
  mutating func takeDeletions(_ count: Int, _ last: LSN) -> [LSN] {
    let some = deletions.first(count, after: .none, upTo: end)
    for lsn in some { deletions.remove(lsn) }
    if let first = deletions.first, first > end { end = last }
    return some
  }

  mutating func putBack(_ units: [[UploadItem]], _ cursor: LSN) {
    guard let first = units.first?.first else { return }
    guard !first.isDeletion else {
      for item in units.joined() { add(deletion: item.lsn, end: cursor) }
      return
    }
    self.units = units + self.units[taken...]
    taken = 0
    // Of a record that has changed since, the newer mutation is sent.
    for item in units.joined() where ready[item.id] == nil { ready[item.id] = item.lsn }
  }
}
