// The order in which the ready changes of one zone are sent: saves, then deletions. OutgoingQueue adds them; a request takes them out. A
// change counts only if its record's place says that it is ready (RecordPlace.swift).

import StrandlineLog
import StrandlineSystem

/// The ready changes of a zone.
struct UploadLane: Sendable {
  /// Saves in sending order. A unit must be sent in one request.
  private var units: [[UploadItem]] = []
  /// How many of the units were taken.
  private var taken = 0
  /// Deletions; they are sent when no save is ready.
  private var deletions = LSNSet()
  /// The numbers of the upload sets that may be complete (OutgoingQueue+Sets.swift).
  var sets = LSNSet()
  /// Deletions that have to wait for saves (CascadeGuard.swift).
  var cascades = CascadeGuard()

  /// The oldest mutation that can be sent; nil if there is none.
  ///
  /// - Parameter isRead: whether everything pending was read, so that deletions may be sent.
  func oldest(_ isRead: Bool) -> LSN? {
    taken < units.count ? units[taken].first?.lsn : isRead ? deletions.first : nil
  }

  /// Whether no save is ready.
  var hasNoSaves: Bool { taken == units.count }

  mutating func add(_ more: [[UploadItem]]) {
    if taken > 0 { units.removeFirst(taken) }
    taken = 0
    units += more
  }

  mutating func add(deletion lsn: LSN) { deletions.insert(lsn) }

  /// Forgets the ready changes and the released references.
  mutating func forget() {
    (units, taken, deletions, sets) = ([], 0, LSNSet(), LSNSet())
    cascades = CascadeGuard()
  }

  /// The first saves, about `count` of them.
  func first(_ count: Int, _ places: RecordPlaces) -> [UploadItem] {
    var items: [UploadItem] = []
    for unit in units[taken...] {
      if items.count >= count { break }
      items += unit.filter(places.isReady)
    }
    return items
  }

  /// Takes units up to the number of records in a request. One that is larger than a request is taken alone.
  mutating func takeSaves(_ operationsMax: Int, _ places: inout RecordPlaces) -> [[UploadItem]] {
    var batch: [[UploadItem]] = []
    var count = 0
    while taken < units.count {
      // A record that the app has changed since is in a later unit.
      let unit = units[taken].filter(places.isReady)
      if !batch.isEmpty, count + unit.count > operationsMax { break }
      taken += 1
      for item in unit { places[item.id] = nil }
      if unit.isEmpty { continue }
      batch.append(unit)
      count += unit.count
    }
    return batch
  }

  /// Takes the oldest deletions.
  mutating func takeDeletions(_ count: Int) -> [LSN] {
    let some = deletions.first(count, after: .zero, upTo: LSN(rawValue: .max))
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
  }
}
