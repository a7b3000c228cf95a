// What must hold of every pending record between two turns of the plan: it has a place, or will be read, and something ends its wait.

import StrandlineSystem

@testable import StrandlineSync

extension SyncPlan {
  /// What is wrong with a pending record; nil if nothing is.
  func brokenInvariant(of id: RecordID, _ facts: some SyncFacts) throws -> String? {
    guard id.zone.scope == scope, let entry = try facts.entry(id), let pending = entry.pending else { return nil }
    let isUnread = queue.isUnread(id, pending)
    switch queue.places[id] {
    case nil where isUnread || keepsBack(id, entry, pending): return nil
    case nil: return "\(id) is nowhere: nothing will send it"
    case .ready(let lsn, _)?, .inFlight(let lsn)?:
      return lsn == pending.newest || isUnread || keepsBack(id, entry, pending)
        ? nil : "\(id) has a newer change, which nothing will read"
    case .halved(let lsn)?: return cycle.split.holds(id, lsn) ? nil : "\(id) is in no half that is still to be sent"
    case .waits(let wait)?:
      return hasEnd(wait, of: id, pending, isUnread: isUnread, facts)
        ? nil : "\(id) waits for \(wait), and nothing will end that"
    }
  }

  /// Whether nothing of a zone or of a type is sent for a while.
  func keepsBack(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    queue.frozenZones.contains(id.zone) || zones[id.zone]?.refusal != nil || queue.halts.contains(id, entry, pending)
  }

  /// Whether something will end a wait: see the table in UploadWaits.swift.
  private func hasEnd(
    _ wait: UploadWait, of id: RecordID, _ pending: Pending, isUnread: Bool, _ facts: some SyncFacts
  ) -> Bool {
    // Some end also when the record is read again.
    switch wait {
    case .target(let other): other != id
    case .fetch: self[id.zone].feed.isAwaited || facts.zone(id.zone)?.isLost == true
    case .lookup: queue.lookups.contains(id) || self[id.zone].lookups.has(id.key)
    case .content: isUnread || records.contents.ends(waitOf: id)
    case .time: true
    case .hold: isUnread || facts.held(id).map { $0.lsn >= pending.newest } ?? false
    case .references: isUnread || pending.isDeletion
    case .together: isUnread || facts.set(of: id).map(queue.checks) ?? false
    }
  }
}

extension BatchSplit {
  /// Whether a change is in a half that is still to be sent, or was refused alone.
  fileprivate func holds(_ id: RecordID, _ lsn: LSN) -> Bool {
    parts.contains { $0.units.joined().contains { $0.id == id && $0.lsn == lsn } }
      || refusedAlone.contains { $0.batch.contains { $0.id == id && $0.lsn == lsn } }
  }
}
