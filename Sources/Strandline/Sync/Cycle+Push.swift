// Push: what is owed, in which order it leaves, and what each record's operation says. Cycle+Sending does the sending.

import StrandlineSystem
import Synchronization

extension Cycle {
  /// How often conflicts are merged and sent again within one cycle; the next cycle goes on.
  private static let roundsMax = 5

  mutating func push() async throws {
    for _ in 0..<Self.roundsMax {
      let conflictsBefore = hasConflicted
      hasConflicted = false
      var didSend = false
      for zone in zonesOwed() { didSend = try await push(zone) || didSend }
      let conflicted = hasConflicted
      hasConflicted = conflicted || conflictsBefore
      if !conflicted || !didSend { break }
    }
    try await settleMissing()
  }

  /// The zones with something to send.
  private func zonesOwed() -> [ZoneID] {
    store.core.withLock { core in
      let zones = Set(core.projections.outbox.records.values.map(\.zone))
      return zones.filter { zone in
        core.projections.sync.zones[zone]?.isLost != true && refusedZones[zone] == nil
          && (options.zone == nil || options.zone == zone)
          && zone.scope == database.address.scope
      }.sorted()
    }
  }

  /// Sends what one zone owes; whether anything was sent.
  private mutating func push(_ zone: ZoneID) async throws -> Bool {
    try await cancelWhatNeverLeft(zone)
    try await lookUpDoubtfulDeletions(zone)
    let plan = UploadPlan.order(try owed(zone))
    guard !plan.isEmpty else { return false }
    try await prepare(zone)
    var place = 0
    var isRefusing = false
    // Names that the server may still know as targets, found when the first deletion is due.
    var pointedAt: Set<String>?
    while place < plan.count, !isRefusing {
      if plan[place].isDeletion, pointedAt == nil { pointedAt = try stillPointedAt(in: zone) }
      let (batch, next) = try nextBatch(plan, from: place, pointedAt ?? [])
      place = next
      if batch.isEmpty { continue }
      isRefusing = try await send(batch, to: zone)
    }
    return true
  }

  /// A zone is created before its first save, if this log never saw it at the server.
  private mutating func prepare(_ zone: ZoneID) async throws {
    guard sync.zones[zone]?.wasSeen != true else { return }
    try await lane.ask("creating zone '\(zone)'") { [database] in try await database.createZone(zone) }
    try await store.commit { $0.append(.zoneChanged(ZoneChanged(zone: zone, change: .created))) }
  }

  // MARK: What is owed

  /// A record that was created and deleted before anything of it left: nothing is sent.
  private mutating func cancelWhatNeverLeft(_ zone: ZoneID) async throws {
    try await store.commit { core in
      for (id, entry) in Self.pending(in: zone, core) {
        guard let pending = entry.pending, pending.isDeletion, entry.base == nil, !Self.mayHaveLeft(pending, core)
        else {
          continue
        }
        core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: .cancelled)))
      }
    }
  }

  /// A deletion of a record whose creation may have arrived: look whether it did. If it did, it gains a base and is
  /// deleted with its tag.
  private mutating func lookUpDoubtfulDeletions(_ zone: ZoneID) async throws {
    let names = store.core.withLock { core in
      Self.pending(in: zone, core).filter { $0.1.base == nil && $0.1.pending?.isDeletion == true }.map(\.0.name)
    }
    if !names.isEmpty { try await lookUp(names, in: zone) }
  }

  private static func pending(in zone: ZoneID, _ core: borrowing StoreCore) -> [(RecordID, RecordEntry)] {
    var seen: Set<RecordID> = []
    var result: [(RecordID, RecordEntry)] = []
    for lsn in core.projections.outbox.all {
      guard let id = core.projections.outbox.records[lsn], id.zone == zone, seen.insert(id).inserted,
        let entry = core.projections.records[id], entry.pending != nil
      else { continue }
      result.append((id, entry))
    }
    return result
  }

  /// Whether a create may have reached the server: an open `sent` names it, or another hand (a clone, a restored copy)
  /// may have sent it.
  private static func mayHaveLeft(_ pending: Pending, _ core: borrowing StoreCore) -> Bool {
    if pending.attempted != nil { return true }
    let tenures = core.projections.sync.tenures
    // Before the first tenure that is known (in a repaired store) wrote somebody whose name is lost.
    var end = tenures.first?.first ?? .none
    if let current = tenures.last?.writer, let change = tenures.last(where: { $0.writer != current }) {
      end = tenures.first { $0.first > change.first }?.first ?? .none
    }
    return pending.lsns.contains { $0 < end }
  }

  /// The records of a zone that can be sent now, in the order of the log, with what they point at.
  private func owed(_ zone: ZoneID) throws -> [UploadItem] {
    let durable = store.durableLSN
    let wall = store.environment.clock.wallMilliseconds()
    let entries = store.core.withLock { core in
      Self.pending(in: zone, core).filter { id, entry in
        guard let pending = entry.pending, pending.newest <= durable else { return false }
        if let held = core.projections.sync.held[id], held.lsn >= pending.newest, !held.isOver(wall: wall) {
          return false
        }
        if missing.contains(id) { return false }
        if let refused = refusedTags[id], refused == entry.base?.changeTag ?? "" { return false }
        return true
      }
    }
    return try entries.compactMap { id, entry in
      guard let pending = entry.pending else { return nil }
      let source = pending.isDeletion ? entry.base?.content : pending.newest
      var targets: [String] = []
      if let source {
        // Written over since, and removed by a compaction: what took its place is sent in another round.
        guard let event = try store.source.eventIfKept(at: source) else { return nil }
        targets = try LoadedVersion(event, at: source).map { Self.targets($0.version, in: zone) } ?? []
      }
      return UploadItem(id: id, lsn: pending.newest, isDeletion: pending.isDeletion, targets: targets)
    }
  }

  private static func targets(_ version: Version, in zone: ZoneID) -> [String] {
    version.fields.values.flatMap(\.references).filter { $0.zone == nil || $0.zone == zone }.map(\.name).sorted {
      $0.precedesByUTF8($1)
    }
  }

  // MARK: A batch

  /// A mutation and the operation that carries it.
  struct Sending: Sendable {
    var id: RecordID
    /// The mutation that this is for.
    var lsn: LSN
    /// Whether this only clears the way: the old life of the name must be gone before one of another type can come. Its
    /// acknowledgement settles nothing, and it is no attempt of the mutation.
    var isPreparation = false
    var operation: CloudOperation
  }

  /// The next operations of the plan that fit into one request, and where the one after begins.
  private func nextBatch(
    _ plan: [UploadItem], from start: Int, _ pointedAt: Set<String>
  ) throws -> (batch: [Sending], next: Int) {
    var batch: [Sending] = []
    var bytes = 0
    var place = start
    while place < plan.count, batch.count < UploadPlan.operationsMax {
      let item = plan[place]
      // Deletions wait until no save is in the same request: what stopped pointing at them must be acknowledged first.
      if item.isDeletion, let first = batch.first, first.operation.kind != .delete { break }
      if item.isDeletion, pointedAt.contains(item.id.name) {
        place += 1
        continue
      }
      guard let sending = try operation(for: item) else {
        place += 1
        continue
      }
      let size = UploadPlan.jsonBytes(sending.operation)
      if !batch.isEmpty, bytes + size > UploadPlan.requestBytesMax { break }
      batch.append(sending)
      bytes += size
      place += 1
    }
    return (batch, place)
  }

  /// The names that the server's versions of records point at which a save here, not acknowledged yet, may have turned
  /// away: deleting such a target now might take them along.
  private func stillPointedAt(in zone: ZoneID) throws -> Set<String> {
    let bases: [LSN] = store.core.withLock { core in
      Self.pending(in: zone, core).compactMap { $0.1.pending?.isDeletion == false ? $0.1.base?.content : nil }
    }
    var names: Set<String> = []
    for base in bases {
      guard let version = try LoadedVersion(store.source.event(at: base), at: base)?.version else { continue }
      names.formUnion(Self.targets(version, in: zone))
    }
    return names
  }

  /// What to send for a record; nil if there is nothing to send any more.
  private func operation(for item: UploadItem) throws -> Sending? {
    let (entry, sync) = store.core.withLock { core in
      let entry = core.projections.records[item.id]
      if entry?.pending?.newest == item.lsn { core.sending.insert(item.lsn) }
      return (entry, core.projections.sync)
    }
    guard let entry, let pending = entry.pending, pending.newest == item.lsn else { return nil }
    let name = item.id.name
    if pending.isDeletion {
      guard let base = entry.base else { return nil }
      return Sending(
        id: item.id, lsn: item.lsn,
        operation: CloudOperation(.delete, name: name, changeTag: base.changeTag))
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
      return Sending(
        id: item.id, lsn: item.lsn, isPreparation: true,
        operation: CloudOperation(.delete, name: name, changeTag: known.changeTag))
    }
    // An update cannot say that a parent is gone; a replacement by leaving it out can.
    let losesParent = loaded.dirty[Version.parentField] != nil && version.parent == nil
    let kind: CloudOperation.Kind = entry.base == nil ? .create : (isNewLife || losesParent ? .replace : .update)
    var fields: [String: FieldValue?] = [:]
    for field in version.names where kind != .update || loaded.dirty[field] != nil {
      if field == Version.parentField { continue }
      if let value = version.fields[field] {
        fields[field] = .some(value)
      } else if kind == .update {
        fields[field] = .some(nil)
      }
    }
    fields[Names.stampField] = .some(.bytes(StampCodec.encode(version)))
    return Sending(
      id: item.id, lsn: item.lsn,
      operation: CloudOperation(
        kind, name: name, type: version.type, changeTag: kind == .create ? nil : entry.base?.changeTag, fields: fields,
        parent: version.parent))
  }
}

extension Held {
  /// Whether the wait that the server named is over; a hold without one lasts until somebody acts.
  fileprivate func isOver(wall: Int64) -> Bool {
    durationMilliseconds > 0 && wall &- wallMilliseconds >= durationMilliseconds
  }
}
