// Loads the references that unsent saves release (CascadeGuard.swift) from the log. Only when a deletion is about to be sent: most
// edits are accepted before any deletion is, and need not be loaded.

import StrandlineLog
import StrandlineSystem

extension OutgoingQueue {
  /// Before a deletion is sent: loads the references that unsent saves of its zone release.
  mutating func loadReleased(in zone: ZoneID, _ facts: some SyncFacts) throws {
    var cascades = CascadeGuard()
    swap(&cascades, &lanes[zone, default: UploadLane()].cascades)
    defer { swap(&cascades, &lanes[zone, default: UploadLane()].cascades) }
    for id in cascades.toRead { try facts.loadReleased(of: id, into: &cascades) }
    cascades.toRead = []
    // Changes that the queue has not read yet, and those that the app has written since the round began.
    let durable = facts.durableLSN
    cascades.readUpTo = max(cascades.readUpTo, cursor)
    while case let lsns = facts.pending(Self.windowCount, after: cascades.readUpTo, upTo: durable),
      let end = lsns.last
    {
      try facts.loadReleased(at: lsns, in: zone, into: &cascades)
      cascades.readUpTo = end
    }
    // Changes that are not durable yet: they replace durable ones, and may be replaced before they are durable.
    let applied = facts.appliedLSN
    if applied > durable {
      try facts.loadReleased(
        at: facts.pending(Int.max, after: max(cursor, durable), upTo: applied), in: zone, into: &cascades)
    }
    try facts.loadTargets(of: &cascades, in: zone)
  }
}

extension SyncFacts {
  /// Loads the references that an unsent save releases.
  package func loadReleased(of id: RecordID, into cascades: inout CascadeGuard) throws(StrandlineError) {
    guard let entry = try entry(id), let pending = entry.pending, !pending.isDeletion else {
      cascades.forget(id)
      return
    }
    cascades.release(try released(by: id, entry, pending), by: id, at: pending.newest)
  }

  /// Loads the references that the saves of a zone at these LSNs release.
  fileprivate func loadReleased(at lsns: [LSN], in zone: ZoneID, into cascades: inout CascadeGuard) throws {
    for lsn in lsns {
      do throws(StrandlineError) {
        let id =
          lsn <= durableLSN ? try eventIfKept(at: lsn)?.recordID : try undurableEvent(at: lsn).recordID
        if let id, id.zone == zone { try loadReleased(of: id, into: &cascades) }
      } catch {
        // A damaged change: the queue holds it when it reads it.
        guard error.isOfOneRecord else { throw error }
      }
    }
  }

  /// Loads the records whose deletion cascades to the released ones, as far as this store knows.
  package func loadTargets(of cascades: inout CascadeGuard, in zone: ZoneID) throws {
    try cascades.loadTargets { name in
      let id = RecordID(name, zone: zone)
      guard let entry = try entry(id) else { return [] }
      return try references(of: id, at: versionsAtServer(entry)).filter { $0.action == .deleteSelf }.map(\.name)
    }
  }

  /// The targets of the server's record that the newest mutation does not refer to any more.
  private func released(by id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws(StrandlineError) -> Set<
    CloudName
  > {
    var known = try references(of: id, at: versionsAtServer(entry)).filter { $0.action == .deleteSelf }
    // VALIDATE references too: the server would refuse the deletion, which costs a request.
    if let base = entry.base { known.formUnion(try references(of: id, at: [base.content])) }
    // A save that is not durable yet cannot be read, so it is taken to release all.
    if known.isEmpty || pending.newest > durableLSN { return Set(known.map(\.name)) }
    return Set(known.subtracting(try references(of: id, at: [pending.newest])).map(\.name))
  }

  /// The versions that the server may have of a record: the acknowledged one, and those that requests without an answer carried.
  private func versionsAtServer(_ entry: RecordEntry) -> [LSN] {
    var lsns: [LSN] = []
    if let base = entry.base { lsns.append(base.content) }
    if let pending = entry.pending {
      lsns += pending.attempts.map(\.lsn)
      if !pending.isDeletion, wasAttempted(pending.newest) { lsns.append(pending.newest) }
    }
    return lsns
  }

  /// The references in versions of a record; none for a version that cannot be read.
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
