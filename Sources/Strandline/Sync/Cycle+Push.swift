// Push: what is owed, batch by batch. `sent` is durable before a request leaves; every record gets its own `settled`.

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
        core.projections.sync.zones[zone]?.isLost != true && (options.zone == nil || options.zone == zone)
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
    while place < plan.count, !isRefusing {
      let (batch, next) = try nextBatch(plan, from: place)
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
    guard let current = tenures.last?.writer, let change = tenures.last(where: { $0.writer != current }) else {
      return false
    }
    let end = tenures.first { $0.first > change.first }?.first ?? .none
    return pending.lsns.contains { $0 < end }
  }

  /// The records of a zone that can be sent now, in the order of the log, with what they point at.
  private func owed(_ zone: ZoneID) throws -> [UploadItem] {
    let durable = store.durableLSN
    let entries = store.core.withLock { core in
      Self.pending(in: zone, core).filter { id, entry in
        guard let pending = entry.pending, pending.newest <= durable else { return false }
        if core.projections.sync.held[id]?.direction == .upload { return false }
        if missing.contains(id) { return false }
        if let refused = refusedTags[id], refused == entry.base?.changeTag ?? "" { return false }
        return true
      }
    }
    return try entries.compactMap { id, entry in
      guard let pending = entry.pending else { return nil }
      let source = pending.isDeletion ? entry.base?.content : pending.newest
      let targets =
        try source.flatMap { try LoadedVersion(store.source.event(at: $0), at: $0)?.version }
        .map { Self.targets($0, in: zone) } ?? []
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
  private struct Sending: Sendable {
    var id: RecordID
    var lsn: LSN
    var operation: CloudOperation
  }

  /// The next operations of the plan that fit into one request, and where the one after begins.
  private func nextBatch(_ plan: [UploadItem], from start: Int) throws -> (batch: [Sending], next: Int) {
    var batch: [Sending] = []
    var bytes = 0
    var place = start
    while place < plan.count, batch.count < UploadPlan.operationsMax {
      let item = plan[place]
      // Deletions wait until no save is in the same request: what stopped pointing at them must be acknowledged first.
      if item.isDeletion, batch.contains(where: { $0.operation.kind != .delete }) { break }
      if item.isDeletion, try isStillPointedAt(item.id) {
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

  /// Whether the server still has a record that points at this one and that a save here, not acknowledged yet, has
  /// turned away: deleting the target now might take it along.
  private func isStillPointedAt(_ id: RecordID) throws -> Bool {
    let bases: [LSN] = store.core.withLock { core in
      Self.pending(in: id.zone, core).compactMap { $0.1.pending?.isDeletion == false ? $0.1.base?.content : nil }
    }
    for base in bases {
      guard let version = try LoadedVersion(store.source.event(at: base), at: base)?.version else { continue }
      if Self.targets(version, in: id.zone).contains(id.name) { return true }
    }
    return false
  }

  /// What to send for a record; nil if there is nothing to send any more.
  private func operation(for item: UploadItem) throws -> Sending? {
    let (entry, writer, tenures) = store.core.withLock { core in
      (core.projections.records[item.id], core.writer, core.projections.sync.tenures)
    }
    guard let entry, let pending = entry.pending, pending.newest == item.lsn else { return nil }
    let name = item.id.name
    if pending.isDeletion {
      guard let base = entry.base else { return nil }
      return Sending(
        id: item.id, lsn: item.lsn, operation: CloudOperation(.delete, name: name, changeTag: base.changeTag))
    }
    guard let loaded = try LoadedVersion(store.source.event(at: item.lsn), at: item.lsn) else { return nil }
    var base: LoadedVersion?
    if let known = entry.base, let content = try LoadedVersion(store.source.event(at: known.content), at: known.content)
    {
      base = StoreCore.base(known, content, tenures: tenures)
    }
    var version = loaded.version
    version.stamp.joinSeen(base?.version.stamp.seen ?? [:])
    let tenure = loaded.own?.tenure ?? 0
    let author = tenures.last { $0.tenure == tenure }?.writer ?? writer
    version.stamp.joinSeen([author: Seen(lsn: item.lsn, tenure: tenure, time: loaded.own?.time ?? .zero)])

    let isNewLife = base.map { $0.version.stamp.births.isDisjoint(with: version.stamp.births) } ?? true
    if let base, let known = entry.base, isNewLife, base.version.type != version.type {
      // Another type under the same name: the old life goes first, the new one after its acknowledgement.
      return Sending(
        id: item.id, lsn: .none, operation: CloudOperation(.delete, name: name, changeTag: known.changeTag))
    }
    let kind: CloudOperation.Kind = entry.base == nil ? .create : (isNewLife ? .replace : .update)
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

  /// Sends a batch and settles what the answer says; whether so much was refused that pushing should stop.
  private mutating func send(_ batch: [Sending], to zone: ZoneID) async throws -> Bool {
    let number = store.environment.random.next()
    let lsns = batch.map(\.lsn).filter { $0 != .none }.sorted()
    try await store.commit { $0.append(.sent(Sent(batch: number, zone: zone, lsns: lsns))) }
    let operations = batch.map(\.operation)
    let results: [String: CloudResult]
    do {
      results = try await lane.once { [database] in try await database.modify(operations, in: zone, atomic: false) }
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .retry:
        // Nobody knows what was applied: wait, then look before anything is sent again.
        try await lane.wait(after: error, "uploading to zone '\(zone)'")
        try await pullAfterDoubt(zone)
        hasConflicted = true
        return true
      case .zoneMissing:
        try await zoneIsMissing(zone, error)
        return true
      default: throw error
      }
    }
    return try await settle(batch, results, zone)
  }

  /// After an unknown outcome: the zone is fetched to its end, whatever was asked for.
  private mutating func pullAfterDoubt(_ zone: ZoneID) async throws {
    try await pullZone(zone)
  }

  private mutating func zoneIsMissing(_ zone: ZoneID, _ error: CloudError) async throws {
    guard sync.zones[zone]?.wasSeen == true else { throw error }
    try await lose(zone, "the server says: \(error)")
  }

  /// One transaction for the whole answer, one `settled` a record.
  private mutating func settle(_ batch: [Sending], _ results: [String: CloudResult], _ zone: ZoneID) async throws
    -> Bool
  {
    var refused: [(Sending, CloudError)] = []
    var versions: [(Sending, ServerRecord)] = []
    for sending in batch {
      if case .failed(let error, let serverRecord)? = results[sending.id.name] {
        refused.append((sending, error))
        if let serverRecord { versions.append((sending, serverRecord)) }
      }
    }
    try haltIfAllAlike(refused, of: batch)
    let wall = store.environment.clock.wallMilliseconds()
    var done = SyncReport()
    var intake = Intake(.lookup)
    try await store.commit { core in
      for sending in batch {
        switch results[sending.id.name] {
        case .record(let server):
          guard sending.lsn != .none else { continue }
          learnOffset(server, wall: wall, &core)
          core.append(
            .settled(
              Settled(
                id: sending.id, lsn: sending.lsn, outcome: .saved, changeTag: server.system.changeTag ?? "",
                created: server.system.created, modified: server.system.modified)))
          done.uploaded += 1
        case .deleted:
          Self.settleDeletion(sending, &core)
          done.uploaded += 1
        case .failed(let error, _):
          if ErrorPolicy.item(error) == .missing, sending.operation.kind == .delete {
            Self.settleDeletion(sending, &core)
            done.uploaded += 1
          } else if ErrorPolicy.item(error) == .hold {
            hold(sending, error, wall: wall, &core)
            done.held += 1
          }
        case nil: break
        }
      }
      for (sending, server) in versions { try intake.take(server, as: sending.id, &core) }
    }
    report.add(done)
    report.add(intake.report)
    return try await follow(refused, of: batch.count, zone)
  }

  private static func settleDeletion(_ sending: Sending, _ core: inout StoreCore) {
    guard sending.lsn != .none else {
      // The old life of a name whose new life has another type is gone; the new one is sent next.
      if let entry = core.projections.records[sending.id], let base = entry.base,
        let births = try? core.births(base.content)
      {
        core.append(.fetchedDelete(FetchedDelete(id: sending.id, births: births, reason: .feed)))
      }
      return
    }
    core.append(.settled(Settled(id: sending.id, lsn: sending.lsn, outcome: .deleted)))
  }

  private func hold(_ sending: Sending, _ error: CloudError, wall: Int64, _ core: inout StoreCore) {
    let attempts = (core.projections.sync.held[sending.id]?.attempts ?? 0) + 1
    core.append(
      .held(
        Held(
          id: sending.id, direction: .upload, lsn: sending.lsn, code: error.code.rawValue, words: error.reason,
          requestUUID: error.requestUUID ?? "", attempts: attempts,
          durationMilliseconds: Int64((error.retryAfter ?? 0) * 1000), wallMilliseconds: wall)))
  }

  /// What remains of an answer after its settlements: conflicts are looked up in bulk, a named wait is obeyed.
  private mutating func follow(_ refused: [(Sending, CloudError)], of count: Int, _ zone: ZoneID) async throws -> Bool {
    var conflicts: [String] = []
    var wait: CloudError?
    for (sending, error) in refused {
      switch ErrorPolicy.item(error) {
      case .resolve:
        conflicts.append(sending.id.name)
        // A create has no tag: finding nothing afterwards means creating again.
        if let tag = sending.operation.changeTag { refusedTags[sending.id] = tag }
      case .missing:
        if sending.operation.kind != .delete { missing.insert(sending.id) }
      case .retry: wait = (wait?.retryAfter ?? -1) >= (error.retryAfter ?? 0) ? wait : error
      case .zoneMissing:
        try await zoneIsMissing(zone, error)
        return true
      case .signIn, .halt: throw error
      case .hold: break
      }
    }
    if !conflicts.isEmpty {
      hasConflicted = true
      try await lookUp(conflicts.sorted(), in: zone)
    }
    if let wait {
      try await lane.wait(after: wait, "uploading to zone '\(zone)'")
      try await pullAfterDoubt(zone)
      hasConflicted = true
      return true
    }
    return refused.count * 4 > count && count > 1
  }

  /// The same words for every record are no word about a record: stop, and hold nothing.
  private func haltIfAllAlike(_ refused: [(Sending, CloudError)], of batch: [Sending]) throws {
    guard batch.count > 1, refused.count == batch.count, let first = refused.first?.1,
      ErrorPolicy.item(first) == .hold,
      refused.allSatisfy({ $0.1.code == first.code && $0.1.reason == first.reason })
    else { return }
    throw first
  }

  private func learnOffset(_ server: ServerRecord, wall: Int64, _ core: inout StoreCore) {
    if let modified = server.system.modified?.milliseconds { core.clock.serverOffset = modified &- wall }
  }

  // MARK: Not found

  /// The server does not have what we hold a base of, and the feed has not said why: fetch the zone to its end; its
  /// tombstone decides. Without one the zone's life is in doubt: fetch it from its beginning, which shows every
  /// tombstone. Without one even there, the record is held, with the server's words: nothing sweeps yet.
  private mutating func settleMissing() async throws {
    for fromStart in [false, true] {
      let zones = Set(stillMissing().map(\.zone)).sorted()
      for zone in zones where sync.zones[zone]?.isLost != true { try await pullZone(zone, fromStart: fromStart) }
    }
    guard !stillMissing().isEmpty else { return }
    let wall = store.environment.clock.wallMilliseconds()
    let doubtful = stillMissing()
    try await store.commit { core in
      for id in doubtful {
        guard let entry = core.projections.records[id], entry.base != nil, let pending = entry.pending else { continue }
        core.append(
          .held(
            Held(
              id: id, direction: .upload, lsn: pending.newest, code: CloudError.Code.notFound.rawValue,
              words: "the server does not have this record, and its feed brought no deletion of it", attempts: 1,
              wallMilliseconds: wall)))
      }
    }
    missing = []
  }

  private func stillMissing() -> [RecordID] {
    store.core.withLock { core in
      missing.filter { id in
        let entry = core.projections.records[id]
        return entry?.base != nil && entry?.pending != nil
      }.sorted()
    }
  }
}
