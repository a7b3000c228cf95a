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
  /// Records that are not sent now. What the server's versions of them refer to is read when a deletion is about to go.
  var toPin: Set<RecordID> = []
  /// The names that records which are not sent yet refer to at the server, each with those records.
  private(set) var pinned: [String: Set<RecordID>] = [:]
  /// What each of those refers to there, if anything.
  private var pins: [RecordID: [String]] = [:]

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

  /// Forgets what is ready; what waits keeps its targets.
  mutating func forget() {
    (units, taken, ready, deletions, end, sets) = ([], 0, [:], LSNSet(), .none, LSNSet())
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

  mutating func pin(_ names: [String], by id: RecordID) {
    unpin(id)
    pins[id] = names
    for name in names { pinned[name, default: []].insert(id) }
  }

  /// A record keeps nothing any more. Returns false if it was not known to.
  @discardableResult
  mutating func unpin(_ id: RecordID) -> Bool {
    guard let names = pins.removeValue(forKey: id) else { return false }
    for name in names {
      pinned[name]?.remove(id)
      if pinned[name]?.isEmpty == true { pinned[name] = nil }
    }
    return true
  }
}
