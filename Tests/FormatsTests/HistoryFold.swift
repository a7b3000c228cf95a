// What follows from the events of a store, as the projections compute it, in the JSON that events.py prints: the section
// "From events to records" of Formats/events.md against the code.

import Strandline
import StrandlineSystem

/// The events of one store, and what follows from them.
struct HistoryFold {
  private(set) var projections = Projections()
  private var versions: [LSN: LoadedVersion] = [:]
  /// The history as events.py reads it: a line for each event, and one that ends it.
  private(set) var text = ""
  private(set) var kinds: Set<String> = []

  /// Applies the event in the body of a frame.
  mutating func apply(_ body: [UInt8], at lsn: LSN) throws {
    let event = try EventCodec.decode(body)
    try projections.apply(event, at: lsn, isDurable: true)
    versions[lsn] = try LoadedVersion(event, at: lsn)
    text += "\(lsn.rawValue) \(hex(body))\n"
    kinds.insert(event.kindName)
  }

  // MARK: As JSON

  /// Everything that follows from the events.
  func json() -> JSON {
    let sync = projections.sync
    let records = projections.records.changed.compactMapValues { $0 }
    return .object([
      "records": .list(ordered(records).map { record($0, $1) }),
      "deleted": .list(
        ordered(projections.deletions.inMemory).map { id, entry in
          .object(deletion(entry).merging(["id": .group(id)]) { $1 })
        }),
      "zones": .list(
        ordered(sync.zones.map { (RecordID("", zone: $0.key), $0.value) }).map { zone($0.zone, $1) }),
      "databaseTokens": byScope(sync.databaseTokens) { .text($0.rawValue) },
      "tenures": .list(
        sync.tenures.map {
          .object(["tenure": .uint($0.tenure), "writer": .uint($0.writer), "first": .uint($0.first.rawValue)])
        }),
      "held": .list(ordered(sync.held).map { held($0, $1) }),
      "sets": .list(ordered(sync.sets).map { .object(["id": .group($0), "set": .uint($1.number.rawValue)]) }),
      "listed": .list(
        ordered(sync.listed.map { (RecordID("", zone: $0.key), $0.value) }).flatMap { id, listed in
          listed.events.sorted { $0.key < $1.key }.map { lsn, names in
            .object(["zone": .group(id.zone), "lsn": .uint(lsn.rawValue), "names": .uint(UInt64(names))])
          }
        }),
      "unread": .list(ordered(sync.unread).map { held($0, $1) }),
      "blocks": .list(
        ordered(sync.openBlocks).map { id, block in
          .object([
            "id": .group(id), "subject": .uint(UInt64(block.subject.rawValue)), "lsn": .uint(block.lsn.rawValue),
            "consequence": .uint(UInt64(block.consequence.rawValue)),
          ])
        }),
      "bounds": byScope(sync.bounds) {
        .object([
          "container": .text($0.container), "environment": .text($0.environment), "userHash": .uint($0.userHash),
        ])
      },
      "paces": byScope(sync.paces) {
        .object([
          "duration": .int($0.durationMilliseconds), "wall": .int($0.wallMilliseconds),
          "batchSize": .uint($0.batchSize),
          "isServers": .bool($0.isServers), "serverOffset": .int($0.serverOffsetMilliseconds),
          "reason": .text($0.reason),
        ])
      },
      "inboxes": .object(
        Dictionary(uniqueKeysWithValues: sync.inbox.positions.map { (hex($0.key), .uint($0.value.rawValue)) })),
      "refusals": .list(sync.inbox.refusals.sorted().map { .uint($0.rawValue) }),
      "latest": .uint(sync.latest.rawValue), "isParked": .bool(sync.isParked),
      "attempted": .list(projections.outbox.attempted.all().map { .uint($0.rawValue) }),
    ])
  }

  private func record(_ id: RecordID, _ entry: RecordEntry) -> JSON {
    .object([
      "id": .group(id), "type": .text(entry.type), "view": entry.view.map { .uint($0.rawValue) } ?? .null,
      "values": values(entry),
      "base": entry.base.map { base in
        .object([
          "version": .uint(base.version.rawValue), "content": .uint(base.content.rawValue),
          "changeTag": .text(base.changeTag), "created": number(base.createdMilliseconds),
          "modified": number(base.modifiedMilliseconds),
        ])
      } ?? .null,
      "pending": entry.pending.map { pending in
        .object([
          "isDeletion": .bool(pending.isDeletion), "since": .uint(pending.since.rawValue),
          "first": .uint(pending.first.rawValue),
          "newest": .uint(pending.newest.rawValue),
          "attempts": .list(
            pending.attempts.map { .object(["lsn": .uint($0.lsn.rawValue), "next": .uint($0.next.rawValue)]) }),
        ])
      } ?? .null,
    ])
  }

  /// The version that the app reads, as the store makes it from its event.
  private func values(_ entry: RecordEntry) -> JSON {
    guard let lsn = entry.view, var version = versions[lsn] else { return .null }
    if entry.pending == nil, let base = entry.base { version = version.asAcknowledged(base, projections.sync) }
    return .object([
      "fields": JSON.fields(version.version), "seen": JSON.seen(version.version.stamp.seen),
      "dirty": .object(version.dirty.mapValues { .uint($0.rawValue) }),
    ])
  }

  private func deletion(_ entry: DeletionEntry) -> [String: JSON] {
    [
      "births": JSON.births(entry.births), "created": number(entry.createdMilliseconds),
      "changeTag": .optional(entry.changeTag), "lsn": .uint(entry.lsn.rawValue),
      "provisional": entry.provisional.map { JSON.births($0) } ?? .null, "isLocal": .bool(entry.isLocal),
    ]
  }

  private func zone(_ zone: ZoneID, _ state: ZoneState) -> JSON {
    .object([
      "zone": .group(zone), "wasSeen": .bool(state.wasSeen), "isDirty": .bool(state.isDirty),
      "listedLoss": state.listedLoss.map { .uint(UInt64($0.rawValue)) } ?? .null,
      "lostReason": state.lostReason.map { .uint(UInt64($0.rawValue)) } ?? .null, "lostWords": .text(state.lostWords),
      "token": .optional(state.token?.rawValue),
      "tokenLSN": .uint(state.tokenLSN.rawValue), "isFullFetch": .bool(state.isFullFetch),
      "isNew": .bool(state.isNew),
      "hasGhosts": .bool(state.hasGhosts), "sweepEpoch": .uint(state.sweepEpoch),
      "unprovedSince": .uint(state.unprovedSince),
      "resetPolicy": .text(state.resetPolicy), "ruled": .int(state.ruledMilliseconds),
    ])
  }

  private func held(_ id: RecordID, _ held: Held) -> JSON {
    .object(["id": .group(id), "lsn": .uint(held.lsn.rawValue), "code": .text(held.code)])
  }

  /// What is kept for each database, by the number of its scope.
  private func byScope<Value>(_ values: [DatabaseScope: Value], _ json: (Value) -> JSON) -> JSON {
    .object(Dictionary(uniqueKeysWithValues: values.map { ("\($0.key.rawValue)", json($0.value)) }))
  }

  private func number(_ number: Int64?) -> JSON { number.map { .int($0) } ?? .null }
}

/// Items in the order of scope, owner, zone and name, as UTF-8.
private func ordered<Value>(_ items: [(RecordID, Value)]) -> [(RecordID, Value)] {
  func words(_ id: RecordID) -> [[UInt8]] {
    ["\(id.zone.scope.rawValue)", id.zone.owner, id.zone.name, id.name].map { Array($0.utf8) }
  }
  return items.sorted { left, right in
    for (one, other) in zip(words(left.0), words(right.0)) where one != other {
      return one.lexicographicallyPrecedes(other)
    }
    return false
  }
}

private func ordered<Value>(_ items: [RecordID: Value]) -> [(RecordID, Value)] {
  ordered(items.map { ($0.key, $0.value) })
}
