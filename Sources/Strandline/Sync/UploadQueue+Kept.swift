// What must stay at the server until a save is there. The save may take away the reference by which the server would delete its
// record along with the target: to delete the target first, or what the target hangs on, would delete the record with the edit.
//
// So a record keeps what the server's version of it refers to, whatever it waits for, until its save is taken. What that is, is
// read when a deletion is about to go.

import StrandlineLog
import StrandlineSystem

extension UploadQueue {
  /// Before a deletion goes. A record whose save is not sent yet keeps what it refers to at the server: the save may take a
  /// reference away, and until the server has it, to delete the target could delete the record too.
  mutating func pinUnsent(in zone: ZoneID) throws {
    for id in lanes[zone]?.toPin ?? [] { try pin(id) }
    lanes[zone]?.toPin = []
    // What the app has changed since the round began: its newest mutation is not looked at before the next one.
    var last = cursor
    while case let lsns = store.projections.owed(Self.windowCount, after: last, upTo: store.durableLSN),
      let end = lsns.last
    {
      for lsn in lsns {
        do throws(StrandlineError) {
          if let id = try store.source.eventIfKept(at: lsn)?.recordID, id.zone == zone { try pin(id) }
        } catch {
          // The next round holds it.
          guard error.isOfOneRecord else { throw error }
        }
      }
      last = end
    }
  }

  /// A record whose save is not sent and leaves what is to be deleted to make room for another type: it goes first. Nil if there
  /// is none, or if it waits for that in turn.
  ///
  /// - Parameters:
  ///   - unit: what goes with it in any case.
  ///   - batch: what may go in the same request, and may be refused.
  mutating func keeper(of id: RecordID, but unit: [UploadItem], in batch: [[UploadItem]]) throws -> RecordID? {
    try pinUnsent(in: id.zone)
    for item in batch.joined() { try pin(item.id) }
    for item in lanes[id.zone]?.saves ?? [] { try pin(item.id) }
    let keepers = (lanes[id.zone]?.pinned[id.name] ?? []).subtracting(unit.map(\.id))
    return keepers.sorted().first { !waitsInTurn($0, for: id) }
  }

  mutating func pin(_ id: RecordID) throws(StrandlineError) {
    guard let entry = try store.projections.entry(id), entry.pending?.isDeletion == false else {
      lanes[id.zone]?.unpin(id)
      return
    }
    lanes[id.zone, default: UploadLane()].pin(try store.kept(by: id, entry), by: id)
  }
}

extension RecordStore {
  /// What must not be deleted at the server before a record's save is there: what the server's version of it refers to, and what
  /// would take that along.
  func kept(by id: RecordID, _ entry: RecordEntry) throws(StrandlineError) -> [String] {
    var names: [String] = []
    var met: Set<RecordID> = [id]
    var left: [(id: RecordID, base: Base?)] = [(id, entry.base)]
    while let (next, base) = left.popLast() {
      guard let base else { continue }
      var deleting: [String] = []
      do {
        guard let shown = try source.versionIfKept(at: base.content) else { continue }
        UploadQueue.forEachTarget(of: shown.record(next, system: nil)) { name, action in
          if next == id || action == .deleteSelf { names.append(name) }
          if action == .deleteSelf { deleting.append(name) }
        }
      } catch {
        // What it refers to cannot be read.
        guard error.isOfOneRecord else { throw error }
      }
      for name in deleting {
        let target = RecordID(name, zone: id.zone)
        if met.insert(target).inserted { left.append((target, try projections.entry(target)?.base)) }
      }
    }
    return names
  }

  /// Whether a save gives a record that the server has another type, so that the old one is deleted first.
  func makesRoom(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws(StrandlineError) -> Bool {
    guard !pending.isDeletion, let base = entry.base else { return false }
    do {
      guard let new = try source.versionIfKept(at: pending.newest), let old = try source.versionIfKept(at: base.content)
      else { return false }
      return new.type != old.type
    } catch {
      guard error.isOfOneRecord else { throw error }
      return false
    }
  }
}
