// Push: finds the unsettled mutations that can be sent now, orders them, and makes each record's operation.
// Cycle+Sending sends the requests.

import StrandlineSystem
import Synchronization

extension Cycle {
  /// How often one cycle sends again what it merged after a conflict; the rest is left to the next cycle.
  private static let roundsMax = 5

  mutating func push() async throws {
    for _ in 0..<Self.roundsMax {
      let conflictsBefore = hasConflicted
      hasConflicted = false
      var didSend = false
      let owed = try recordsOwed()
      for zone in zonesToSend(owed) { didSend = try await push(owed[zone] ?? [], to: zone) || didSend }
      let conflicted = hasConflicted
      hasConflicted = conflicted || conflictsBefore
      if !conflicted || !didSend { break }
    }
    try await settleMissing()
  }

  /// The records with durable unsettled mutations, zone by zone, in the order of their first ones. Which record a mutation
  /// is of stands in its event.
  private func recordsOwed() throws -> [ZoneID: [RecordID]] {
    let durable = store.durableLSN
    var found: [(id: RecordID, first: LSN)] = []
    for lsn in store.projections.owed where lsn <= durable {
      // Another mutation or an outcome may have followed, and a compaction.
      guard let id = try store.source.eventIfKept(at: lsn)?.recordID,
        let pending = try store.projections.entry(id)?.pending
      else { continue }
      found.append((id, pending.first))
    }
    found.sort { $0.first < $1.first }
    var owed: [ZoneID: [RecordID]] = [:]
    for (id, _) in found { owed[id.zone, default: []].append(id) }
    return owed
  }

  private func zonesToSend(_ owed: [ZoneID: [RecordID]]) -> [ZoneID] {
    let zones = sync.zones
    return owed.keys.filter { zone in
      zones[zone]?.isLost != true && refusedZones[zone] == nil && (options.zone == nil || options.zone == zone)
        && zone.scope == scope
    }.sorted()
  }

  /// Sends a zone's unsettled mutations. Returns whether anything was sent.
  private mutating func push(_ ids: [RecordID], to zone: ZoneID) async throws -> Bool {
    try await cancelUnsentDeletions(of: ids)
    try await lookUpDoubtfulDeletions(of: ids, in: zone)
    let plan = UploadPlan.order(try items(of: ids, in: zone))
    guard !plan.isEmpty else { return false }
    try await createZoneIfNew(zone)
    var place = 0
    var isRefusing = false
    // Computed when the first deletion is due.
    var pointedAt: Set<String>?
    while place < plan.count, !isRefusing {
      if plan[place].isDeletion, pointedAt == nil { pointedAt = try namesStillPointedAt(by: ids, in: zone) }
      let (batch, next) = try nextBatch(of: plan, from: place, keeping: pointedAt ?? [])
      place = next
      if batch.isEmpty { continue }
      isRefusing = try await send(batch, to: zone)
    }
    return true
  }

  /// Creates the zone at the server if this log never saw it there.
  private mutating func createZoneIfNew(_ zone: ZoneID) async throws {
    guard sync.zones[zone]?.wasSeen != true else { return }
    try await pacer.send("creating zone '\(zone)'") { [database] in try await database.createZone(zone) }
    try await store.commit { try $0.append(.zoneChanged(ZoneChanged(zone: zone, change: .created))) }
  }

  // MARK: What is owed

  /// Settles deletions of records whose creation was never sent: nothing is sent for them.
  private mutating func cancelUnsentDeletions(of ids: [RecordID]) async throws {
    try await store.commit { core in
      for id in ids {
        guard let entry = try core.projections.entry(id), let pending = entry.pending, pending.isDeletion,
          entry.base == nil, !Self.mayHaveBeenSent(pending, core.projections)
        else {
          continue
        }
        try core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .cancelled)))
      }
    }
  }

  /// Looks up deleted records whose creation may have reached the server. One that did gains a base, and is deleted with
  /// its tag.
  private mutating func lookUpDoubtfulDeletions(of ids: [RecordID], in zone: ZoneID) async throws {
    var names: [String] = []
    for id in ids {
      guard let entry = try store.projections.entry(id), entry.base == nil, entry.pending?.isDeletion == true else {
        continue
      }
      names.append(id.name)
    }
    if !names.isEmpty { try await lookUp(names, in: zone) }
  }

  /// Whether a creation may have reached the server: an unanswered `sent` names it, or another copy of this log (a clone,
  /// a restored backup) may have sent it.
  private static func mayHaveBeenSent(_ pending: Pending, _ projections: SharedProjections) -> Bool {
    if projections.attempted(pending) != nil { return true }
    let tenures = projections.sync.tenures
    // Mutations before this LSN were written under another writer ID, or before the first tenure that is known (in a
    // repaired store). What became of them is not known.
    var end = tenures.first?.first ?? .none
    if let current = tenures.last?.writer, let change = tenures.last(where: { $0.writer != current }) {
      end = tenures.first { $0.first > change.first }?.first ?? .none
    }
    return pending.first < end
  }

  /// Those of the records that can be sent now, with the names that they refer to.
  private func items(of ids: [RecordID], in zone: ZoneID) throws -> [UploadItem] {
    let durable = store.durableLSN
    let wall = store.environment.clock.wallMilliseconds()
    let held = sync.held
    // One entry at a time: of a first upload, the entries of all records would take as much memory as all else.
    return try ids.compactMap { id in
      guard let entry = try store.projections.entry(id), let pending = entry.pending, pending.newest <= durable else {
        return nil
      }
      if let held = held[id], held.lsn >= pending.newest, !held.hasEnded(wall: wall) { return nil }
      if missing.contains(id) { return nil }
      if let refused = conflictingTags[id], refused == entry.base?.changeTag ?? "" { return nil }
      let source = pending.isDeletion ? entry.base?.content : pending.newest
      var targets: [String] = []
      if let source {
        // A newer mutation replaced it and compaction removed it: the newer one is sent in another round.
        if let shown = try store.source.versionIfKept(at: source) {
          targets = Self.targets(shown.record(id, system: nil), in: zone)
        } else if try store.source.eventIfKept(at: source) == nil {
          return nil
        }
      }
      return UploadItem(id: id, lsn: pending.newest, isDeletion: pending.isDeletion, targets: targets)
    }
  }

  /// The names that a version refers to. Only what may hold a reference is decoded.
  private static func targets(_ record: Record, in zone: ZoneID) -> [String] {
    var names = record.parent.map { [$0] } ?? []
    _ = record.forEachFieldInPlace { field in
      guard case .other(let value) = field.value else { return }
      for reference in value.references where reference.zone == nil || reference.zone == zone {
        names.append(reference.name)
      }
    }
    if names.count > 1 { names.sort { $0.precedesByUTF8($1) } }
    return names
  }

  private static func targets(_ version: Version, in zone: ZoneID) -> [String] {
    version.fields.values.flatMap(\.references).filter { $0.zone == nil || $0.zone == zone }.map(\.name).sorted {
      $0.precedesByUTF8($1)
    }
  }

  // MARK: A batch

  /// A mutation and the operation that carries it.
  struct Upload: Sendable {
    var id: RecordID
    /// The mutation that this is for.
    var lsn: LSN
    /// Whether this deletes the old life of the name, which must be gone before a new one of another type is created. Its
    /// acknowledgement settles nothing, and it is no attempt of the mutation.
    var isPreparation = false
    var operation: CloudOperation
  }

  /// The next operations of the plan that fit into one request, and the place in the plan behind them. Deletions of names
  /// in `pointedAt` are skipped.
  private mutating func nextBatch(
    of plan: [UploadItem], from start: Int, keeping pointedAt: Set<String>
  ) throws -> (batch: [Upload], next: Int) {
    var batch: [Upload] = []
    var bytes = 0
    var place = start
    while place < plan.count, batch.count < operationsMax {
      let item = plan[place]
      // No deletion in a request with saves: a save that stops referring to the target must be acknowledged before.
      if item.isDeletion, let first = batch.first, first.operation.kind != .delete { break }
      if item.isDeletion, pointedAt.contains(item.id.name) {
        place += 1
        continue
      }
      guard let upload = try operation(for: item) else {
        place += 1
        continue
      }
      let size = UploadPlan.jsonBytes(upload.operation)
      if !batch.isEmpty, bytes + size > UploadPlan.requestBytesMax { break }
      batch.append(upload)
      bytes += size
      place += 1
    }
    return (batch, place)
  }

  /// The names that records with an unacknowledged save refer to at the server. The save may drop the reference; until
  /// it is acknowledged, deleting the target could delete the record too (DELETE_SELF).
  private func namesStillPointedAt(by ids: [RecordID], in zone: ZoneID) throws -> Set<String> {
    var names: Set<String> = []
    for id in ids {
      let entry = try store.projections.entry(id)
      guard entry?.pending?.isDeletion == false, let base = entry?.base?.content else { continue }
      guard let version = try LoadedVersion(store.source.event(at: base), at: base)?.version else { continue }
      names.formUnion(Self.targets(version, in: zone))
    }
    return names
  }

  /// The operation for a record; nil if the item's mutation is not the newest any more: the newer one is sent in another
  /// round, in which the record comes after those that have waited longer.
  private mutating func operation(for item: UploadItem) throws -> Upload? {
    let (entry, sync) = try store.core.withLock { core in
      let entry = try core.projections.entry(item.id)
      if entry?.pending?.newest == item.lsn { core.projections.beginsSending(item.lsn, of: item.id) }
      return (entry, core.projections.sync)
    }
    guard let entry, let pending = entry.pending else { return nil }
    guard pending.newest == item.lsn else {
      hasConflicted = true
      return nil
    }
    let name = item.id.name
    let archive = try entry.base.map { try store.source.event(at: $0.version).archive } ?? []
    if pending.isDeletion {
      guard let base = entry.base else { return nil }
      return Upload(
        id: item.id, lsn: item.lsn,
        operation: CloudOperation(.delete, name: name, changeTag: base.changeTag, archive: archive))
    }
    guard let loaded = try LoadedVersion(store.source.event(at: item.lsn), at: item.lsn) else { return nil }
    var base: LoadedVersion?
    if let known = entry.base, let content = try LoadedVersion(store.source.event(at: known.content), at: known.content)
    {
      base = StoreCore.base(known, content, sync)
    }
    var version = loaded.version
    version.stamp.joinSeen(base?.version.stamp.seen ?? [:])
    let tenure = loaded.own?.tenure ?? 0
    if let author = sync.author(of: item.lsn) {
      version.stamp.joinSeen([author: Seen(lsn: item.lsn, tenure: tenure, time: loaded.own?.time ?? .zero)])
    }

    let isNewLife = base.map { $0.version.stamp.births.isDisjoint(with: version.stamp.births) } ?? true
    if let base, let known = entry.base, isNewLife, base.version.type != version.type {
      // Another type under the same name: the old life goes first, the new one after its acknowledgement.
      return Upload(
        id: item.id, lsn: item.lsn, isPreparation: true,
        operation: CloudOperation(.delete, name: name, changeTag: known.changeTag, archive: archive))
    }
    // An update cannot remove the parent; a replacement without one does.
    let losesParent = loaded.dirty[Version.parentField] != nil && version.parent == nil
    let kind: CloudOperation.Kind = entry.base == nil ? .create : (isNewLife || losesParent ? .replace : .update)
    var fields: [String: FieldValue?]
    if kind == .update {
      fields = [:]
      for field in version.names where loaded.dirty[field] != nil && field != Version.parentField {
        fields[field] = .some(version.fields[field])
      }
    } else {
      // With the hashes of the version's: no name is hashed again.
      fields = version.fields.mapValues { .some($0) }
      fields[Version.parentField] = nil
    }
    fields[Names.stampField] = .some(.bytes(StampCodec.encode(version)))
    return Upload(
      id: item.id, lsn: item.lsn,
      operation: CloudOperation(
        kind, name: name, type: version.type, changeTag: kind == .create ? nil : entry.base?.changeTag,
        archive: archive, fields: fields, parent: version.parent))
  }
}

extension Held {
  /// Whether the wait that the server named is over. A hold without one lasts until the record is edited or released.
  fileprivate func hasEnded(wall: Int64) -> Bool {
    durationMilliseconds > 0 && wall &- wallMilliseconds >= durationMilliseconds
  }
}
