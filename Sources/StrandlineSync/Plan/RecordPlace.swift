// Where the plan has a pending change, and what must hold of it between two turns. Tests call it after every step.
//
//   pending in the log ──▶ looked at ──▶ ready ──▶ in flight ──▶ settled in the log
//           ▲               ▲  │  │        ▲           │
//           │               │  │  │        │           │ refused
//           └─ kept back ◀──┼──┘  │        └─ halved ◀─┤
//                           │     └──▶ waits ◀─────────┘
//                           └── its end ─┘
//
// What the log says of a record (held, put into a set, in question) is in the log alone. The plan has, beside it:
//
// | place | its collections | at the same time |
// | --- | --- | --- |
// | not read, or read again | `cursor`, `woken` | any other: a later look finds it there |
// | ready | `UploadLane` | none of the next three |
// | in flight | `underWay` | none of ready, halved, waits |
// | halved: in a half of a refused batch, or refused alone | `BatchSplit` | none of ready, in flight, waits |
// | waits | `UploadWaits`, and what ends the wait | none of ready, in flight, halved |
// | kept back with all of its zone or type | `frozenZones`, `UploadHalts` | any other |
//
// `RecordMemory` (refusals, doubts) and `refusedTags` are about the next request or wait, and may be there with every place.

import StrandlineSystem

/// A place of a pending change.
enum RecordPlace: Hashable, Sendable, CaseIterable {
  /// The queue has yet to come to it, or to look at it again.
  case unread
  case ready
  case inFlight
  case halved
  case waits
  case keptBack

  /// Those of which a change has one at most.
  static let exclusive: Set<RecordPlace> = [.ready, .inFlight, .halved, .waits]
}

extension SyncPlan {
  /// Where the plan has a record's newest pending change.
  func places(of id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Set<RecordPlace> {
    var places = queue.places(of: id, pending)
    if cycle.split.holds(id, pending.newest) { places.insert(.halved) }
    if queue.frozenZones.contains(id.zone) || zones[id.zone]?.refusal != nil
      || queue.halts.contains(id, entry, pending)
    {
      places.insert(.keptBack)
    }
    return places
  }

  /// What is wrong with a pending record; nil if nothing is.
  func brokenInvariant(of id: RecordID, _ facts: some SyncFacts) throws -> String? {
    guard id.zone.scope == scope, let entry = try facts.entry(id), let pending = entry.pending else { return nil }
    let places = places(of: id, entry, pending)
    if places.isEmpty { return "\(id) is nowhere: nothing will send it" }
    if places.intersection(RecordPlace.exclusive).count > 1 { return "\(id) is in several places: \(places)" }
    guard let wait = queue.waits[id] else { return nil }
    return hasEnd(wait, of: id, pending, places, facts) ? nil : "\(id) waits for \(wait), and nothing will end that"
  }

  /// Whether something will end a wait: see the table in UploadWaits.swift.
  private func hasEnd(
    _ wait: UploadWait, of id: RecordID, _ pending: Pending, _ places: Set<RecordPlace>, _ facts: some SyncFacts
  ) -> Bool {
    // These end also when the record is read again.
    let isUnread = places.contains(.unread)
    return switch wait {
    case .target(let other): other != id
    case .fetch: self[id.zone].feed.isAwaited || facts.zone(id.zone)?.isLost == true
    case .lookup: queue.lookups.contains(id) || self[id.zone].lookups.has(id.key)
    case .time: records.times[id] != nil
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
