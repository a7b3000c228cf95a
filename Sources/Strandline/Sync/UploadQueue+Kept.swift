// What must stay at the server until a save is there. The save may take away the reference by which the server would delete its
// record along with the target: to delete the target first, or what the target hangs on, would delete the record with the edit.
//
// So a record keeps what its save leaves, whatever it waits for, until the save is taken. What that is, is read when a deletion is
// about to go. A reference that the save does not change keeps nothing: the deletion takes the record along afterwards as well.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// What the unsent saves of a zone leave, and what that hangs on.
struct KeptRecords: Sendable {
  /// Records that are not sent now. What they leave is read when a deletion is about to go.
  var toRead: Set<RecordID> = []
  /// What is owed behind the queue's cursor was read up to here.
  var readUpTo: LSN = .none
  /// What each record leaves, and the mutation by which it does.
  private var left: [RecordID: (lsn: LSN, names: Set<String>)] = [:]
  /// The names that are left, each with the records that leave it.
  private var leavers: [String: Set<RecordID>] = [:]
  /// Of the names that are left, and of those that they hang on: with which ones the server deletes them.
  private var links: [String: [String]] = [:]
  /// The same the other way round: what the server deletes along with each name.
  private var hanging: [String: Set<String>] = [:]
  /// Names whose links have to be read.
  private var unread: Set<String> = []

  func knows(_ id: RecordID, _ lsn: LSN) -> Bool { left[id]?.lsn == lsn }

  func isKnown(_ id: RecordID) -> Bool { left[id] != nil }

  mutating func keep(_ names: Set<String>, by id: RecordID, at lsn: LSN) {
    forget(id)
    left[id] = (lsn, names)
    for name in names {
      leavers[name, default: []].insert(id)
      if links[name] == nil { unread.insert(name) }
    }
  }

  /// A record keeps nothing any more. Returns false if it was not known to.
  @discardableResult
  mutating func forget(_ id: RecordID) -> Bool {
    guard let (_, names) = left.removeValue(forKey: id) else { return false }
    for name in names {
      leavers[name]?.remove(id)
      if leavers[name]?.isEmpty == true { leavers[name] = nil }
    }
    if leavers.isEmpty { (links, hanging, unread) = ([:], [:], []) }
    return true
  }

  /// The server has another version of a record.
  ///
  /// - Returns: the records that kept something through it.
  mutating func changed(_ name: String) -> [RecordID] {
    guard links[name] != nil || unread.contains(name) else { return [] }
    forgetLinks(of: name)
    return keepers(of: name)
  }

  /// The server may have another version of a record: what it hangs on is read again.
  mutating func forgetLinks(of name: String) {
    guard links[name] != nil else { return }
    for target in links.removeValue(forKey: name) ?? [] {
      hanging[target]?.remove(name)
      if hanging[target]?.isEmpty == true { hanging[target] = nil }
    }
    unread.insert(name)
  }

  /// Reads what is not known yet of what hangs on what.
  ///
  /// - Parameter read: with which names the server deletes a record.
  mutating func readLinks(_ read: (String) throws -> [String]) throws {
    while !unread.isEmpty {
      for name in unread {
        let targets = try read(name)
        unread.remove(name)
        links[name] = targets
        for target in targets {
          hanging[target, default: []].insert(name)
          if links[target] == nil { unread.insert(target) }
        }
      }
    }
  }

  /// A record whose unsent save the deletion of `name` could take along; the nearest one, in order. Nil if there is none.
  func keeper(of name: String, where isMeant: (RecordID) -> Bool = { _ in true }) -> RecordID? {
    var met: Set<String> = [name]
    var nearest = [name]
    while !nearest.isEmpty {
      let keepers = Set(nearest.flatMap { leavers[$0] ?? [] }).filter(isMeant)
      if let first = keepers.min() { return first }
      nearest = nearest.flatMap { hanging[$0] ?? [] }.filter { met.insert($0).inserted }
    }
    return nil
  }

  /// All of them.
  func keepers(of name: String) -> [RecordID] {
    var found: Set<RecordID> = []
    _ = keeper(of: name) { id in
      found.insert(id)
      return false
    }
    return found.sorted()
  }
}

extension UploadQueue {
  /// Before a deletion goes: reads what is left by records whose saves are not sent yet.
  ///
  /// - Parameter saves: those that are ready, and may be refused.
  mutating func readLeft(in zone: ZoneID, and saves: [UploadItem] = []) throws {
    var kept = KeptRecords()
    swap(&kept, &lanes[zone, default: UploadLane()].kept)
    defer { swap(&kept, &lanes[zone, default: UploadLane()].kept) }
    for id in kept.toRead { try store.readLeft(by: id, into: &kept) }
    kept.toRead = []
    for item in saves where !kept.knows(item.id, item.lsn) { try store.readLeft(by: item.id, into: &kept) }
    // What the queue has not come to, and what the app has changed since the round began.
    let durable = store.durableLSN
    kept.readUpTo = max(kept.readUpTo, cursor)
    while case let lsns = store.projections.owed(Self.windowCount, after: kept.readUpTo, upTo: durable),
      let end = lsns.last
    {
      try store.readLeft(at: lsns, in: zone, into: &kept)
      kept.readUpTo = end
    }
    // What is not durable yet takes the place of what is, and may be replaced before it ever is.
    let applied = store.projections.appliedLSN
    if applied > durable {
      try store.readLeft(
        at: store.projections.owed(Int.max, after: max(cursor, durable), upTo: applied), in: zone, into: &kept)
    }
    try store.readLinks(of: &kept, in: zone)
  }

  /// A record whose unsent save leaves what is to be deleted to make room for another type: it goes first, and in a request of its
  /// own. Nil if there is none, or if it waits for that in turn. `readLeft` comes before.
  func keeper(of id: RecordID) -> RecordID? {
    lanes[id.zone]?.kept.keeper(of: id.name) { $0 != id && !waitsInTurn($0, for: id) }
  }
}

extension RecordStore {
  /// Notes what an unsent save leaves at the server.
  func readLeft(by id: RecordID, into kept: inout KeptRecords) throws(StrandlineError) {
    guard let entry = try projections.entry(id), let pending = entry.pending, !pending.isDeletion else {
      kept.forget(id)
      return
    }
    kept.keep(try left(by: id, entry, pending), by: id, at: pending.newest)
  }

  /// Notes what the saves of a zone leave whose newest mutations stand there.
  fileprivate func readLeft(at lsns: [LSN], in zone: ZoneID, into kept: inout KeptRecords) throws {
    for lsn in lsns {
      do {
        let id =
          lsn <= durableLSN
          ? try source.eventIfKept(at: lsn)?.recordID : try core.withLock { core in try core.event(at: lsn).recordID }
        if let id, id.zone == zone { try readLeft(by: id, into: &kept) }
      } catch let error as StrandlineError {
        // Compaction has removed what was replaced meanwhile; when the queue comes to what is damaged, it is held.
        guard error.isOfOneRecord else { throw error }
      }
    }
  }

  /// Reads with which records the server deletes those that are left, as far as this store knows.
  func readLinks(of kept: inout KeptRecords, in zone: ZoneID) throws {
    try kept.readLinks { name in
      let id = RecordID(name, zone: zone)
      guard let entry = try projections.entry(id) else { return [] }
      return try references(of: id, at: versionsAtServer(entry)).filter { $0.action == .deleteSelf }.map(\.name)
    }
  }

  /// What binds the record at the server by a reference that its newest mutation takes away.
  private func left(by id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws(StrandlineError) -> Set<String> {
    var known = try references(of: id, at: versionsAtServer(entry)).filter { $0.action == .deleteSelf }
    // What the server would refuse to delete: it takes nothing along, but would cost a request.
    if let base = entry.base { known.formUnion(try references(of: id, at: [base.content])) }
    // Of a save that is not durable yet it cannot be read what it still refers to.
    if known.isEmpty || pending.newest > durableLSN { return Set(known.map(\.name)) }
    return Set(known.subtracting(try references(of: id, at: [pending.newest])).map(\.name))
  }

  /// The versions that the server may have of a record: the one that it is known to have, and those that requests without an answer
  /// have carried.
  private func versionsAtServer(_ entry: RecordEntry) -> [LSN] {
    var lsns: [LSN] = []
    if let base = entry.base { lsns.append(base.content) }
    if let pending = entry.pending {
      lsns += pending.attempts.map(\.lsn)
      if !pending.isDeletion, projections.wasAttempted(pending.newest) { lsns.append(pending.newest) }
    }
    return lsns
  }

  /// What binds versions of a record; nothing of one that cannot be read.
  private func references(of id: RecordID, at lsns: [LSN]) throws(StrandlineError) -> Set<Bond> {
    var found: Set<Bond> = []
    for lsn in lsns {
      do {
        guard let shown = try source.versionIfKept(at: lsn) else { continue }
        UploadQueue.forEachTarget(of: shown.record(id, system: nil)) { name, action in
          if action != .none { found.insert(Bond(name: name, action: action)) }
        }
      } catch {
        guard error.isOfOneRecord else { throw error }
      }
    }
    return found
  }

  private struct Bond: Hashable {
    var name: String
    var action: Reference.Action
  }

  /// Whether a save gives a record that the server has another type, so that the old one is deleted first.
  package func makesRoom(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws(StrandlineError) -> Bool {
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
