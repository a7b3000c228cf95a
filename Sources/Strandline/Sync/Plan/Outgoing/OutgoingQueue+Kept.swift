// What unsent saves leave at the server (KeptRecords.swift) is read from the log when a deletion is about to go: then at the latest
// it has to be known, and most edits are taken before any deletion is.

import StrandlineLog
import StrandlineSystem

extension OutgoingQueue {
  /// Before a deletion goes: reads what is left by records whose saves are not sent yet.
  mutating func readLeft(in zone: ZoneID, _ facts: some SyncFacts) throws {
    var kept = KeptRecords()
    swap(&kept, &lanes[zone, default: UploadLane()].kept)
    defer { swap(&kept, &lanes[zone, default: UploadLane()].kept) }
    for id in kept.toRead { try facts.readLeft(by: id, into: &kept) }
    kept.toRead = []
    // What the queue has not come to, and what the app has changed since the round began.
    let durable = facts.durableLSN
    kept.readUpTo = max(kept.readUpTo, cursor)
    while case let lsns = facts.pending(Self.windowCount, after: kept.readUpTo, upTo: durable),
      let end = lsns.last
    {
      try facts.readLeft(at: lsns, in: zone, into: &kept)
      kept.readUpTo = end
    }
    // What is not durable yet takes the place of what is, and may be replaced before it ever is.
    let applied = facts.appliedLSN
    if applied > durable {
      try facts.readLeft(
        at: facts.pending(Int.max, after: max(cursor, durable), upTo: applied), in: zone, into: &kept)
    }
    try facts.readLinks(of: &kept, in: zone)
  }
}

extension SyncFacts {
  /// Notes what an unsent save leaves at the server.
  func readLeft(by id: RecordID, into kept: inout KeptRecords) throws(StrandlineError) {
    guard let entry = try entry(id), let pending = entry.pending, !pending.isDeletion else {
      kept.forget(id)
      return
    }
    kept.keep(try left(by: id, entry, pending), by: id, at: pending.newest)
  }

  /// Notes what the saves of a zone leave whose newest mutations stand there.
  fileprivate func readLeft(at lsns: [LSN], in zone: ZoneID, into kept: inout KeptRecords) throws {
    for lsn in lsns {
      do throws(StrandlineError) {
        let id =
          lsn <= durableLSN ? try eventIfKept(at: lsn)?.recordID : try undurableEvent(at: lsn).recordID
        if let id, id.zone == zone { try readLeft(by: id, into: &kept) }
      } catch {
        // Compaction has removed what was replaced meanwhile; when the queue comes to what is damaged, it is held.
        guard error.isOfOneRecord else { throw error }
      }
    }
  }

  /// Reads with which records the server deletes those that are left, as far as this store knows.
  func readLinks(of kept: inout KeptRecords, in zone: ZoneID) throws {
    try kept.readLinks { name in
      let id = RecordID(name, zone: zone)
      guard let entry = try entry(id) else { return [] }
      return try references(of: id, at: versionsAtServer(entry)).filter { $0.action == .deleteSelf }.map(\.name)
    }
  }

  /// What binds the record at the server by a reference that its newest mutation takes away. Nothing if the record at the server is
  /// to be deleted anyway.
  private func left(by id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws(StrandlineError) -> Set<CloudName>
  {
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
      if !pending.isDeletion, wasAttempted(pending.newest) { lsns.append(pending.newest) }
    }
    return lsns
  }

  /// What binds versions of a record; nothing of one that cannot be read.
  private func references(of id: RecordID, at lsns: [LSN]) throws(StrandlineError) -> Set<Bond> {
    var found: Set<Bond> = []
    for lsn in lsns {
      do {
        guard let shown = try versionIfKept(at: lsn, of: id) else { continue }
        OutgoingQueue.forEachTarget(of: shown.record(id, system: nil)) { name, action in
          if action != .none { found.insert(Bond(name: CloudName(name), action: action)) }
        }
      } catch {
        guard error.isOfOneRecord else { throw error }
      }
    }
    return found
  }
}

/// How a record refers to another one.
private struct Bond: Hashable {
  var name: CloudName
  var action: Reference.Action
}
