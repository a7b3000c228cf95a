// A batch leaves, and its answer is settled: `sent` is durable before the request leaves, every record gets its own
// `settled`, and what was refused is looked up, held, waited for or sent in halves.

import StrandlineSystem
import Synchronization

extension Cycle {
  /// Sends a batch and settles what the answer says; whether so much was refused that pushing should stop. A batch that is
  /// too much at once is halved at once.
  mutating func send(_ batch: [Sending], to zone: ZoneID) async throws -> Bool {
    var parts = [batch]
    while let part = parts.popLast() {
      switch try await sendOnce(part, to: zone) {
      case .done(let isRefusing): if isRefusing { return true }
      case .tooMuch(let error):
        guard part.count > 1 else {
          try await hold(part[0], error)
          continue
        }
        splitsLeft -= 1
        guard splitsLeft >= 0 else { throw error }
        parts.append(Array(part[(part.count / 2)...]))
        parts.append(Array(part[..<(part.count / 2)]))
      }
    }
    return false
  }

  private enum Answer {
    case done(isRefusing: Bool)
    case tooMuch(CloudError)
  }

  private mutating func sendOnce(_ batch: [Sending], to zone: ZoneID) async throws -> Answer {
    let number = store.environment.random.next()
    let lsns = batch.filter { !$0.isPreparation }.map(\.lsn).sorted()
    try await store.commit { $0.append(.sent(Sent(batch: number, zone: zone, lsns: lsns))) }
    try await store.flushBeforeLeaving()
    let operations = batch.map(\.operation)
    let results: [String: CloudResult]
    do {
      results = try await lane.once { [database] in try await database.modify(operations, in: zone, atomic: false) }
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .retry:
        // Nobody knows what was applied: wait, then look before anything is sent again.
        try await lane.wait(after: error, "uploading to zone '\(zone)'")
        try await pullZone(zone)
        hasConflicted = true
        return .done(isRefusing: true)
      case .zoneMissing:
        try await zoneIsMissing(zone, error)
        return .done(isRefusing: true)
      case .split: return .tooMuch(error)
      default: throw error
      }
    }
    return .done(isRefusing: try await settle(batch, Self.expected(results, batch), zone))
  }

  /// The results, with those that do not answer what was asked made into what they are.
  private static func expected(_ results: [String: CloudResult], _ batch: [Sending]) -> [String: CloudResult] {
    var results = results
    for sending in batch {
      let isDeletion = sending.operation.kind == .delete
      switch results[sending.id.name] {
      case .record where isDeletion, .deleted where !isDeletion:
        results[sending.id.name] = .failed(
          CloudError(.unexpectedServerResponse, reason: "the answer is not to what was asked"), serverRecord: nil)
      default: break
      }
    }
    return results
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
          learnOffset(server, wall: wall, &core)
          core.append(
            .settled(
              Settled(
                id: sending.id, lsn: sending.lsn, outcome: .saved, changeTag: server.system.changeTag ?? "",
                created: server.system.created, modified: server.system.modified)))
          done.uploaded += 1
        case .deleted:
          try Self.settleDeletion(sending, &core)
          done.uploaded += 1
        case .failed(let error, _):
          if ErrorPolicy.item(error) == .missing, sending.operation.kind == .delete {
            try Self.settleDeletion(sending, &core)
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
    if batch.contains(where: \.isPreparation) { hasConflicted = true }
    return try await follow(refused, of: batch.count, known: versions.map(\.0.id), zone)
  }

  private static func settleDeletion(_ sending: Sending, _ core: inout StoreCore) throws {
    guard !sending.isPreparation else {
      // The old life of a name whose new life has another type is gone; the new one is sent next.
      if let base = core.projections.records[sending.id]?.base {
        let births = try core.births(base.content)
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
          durationMilliseconds: error.retryAfterMilliseconds ?? 0, wallMilliseconds: wall)))
  }

  /// Sets one record aside whose request was refused as a whole.
  private mutating func hold(_ sending: Sending, _ error: CloudError) async throws {
    let wall = store.environment.clock.wallMilliseconds()
    try await store.commit { hold(sending, error, wall: wall, &$0) }
    report.held += 1
  }

  /// What remains of an answer after its settlements: conflicts are looked up in bulk, a named wait is obeyed.
  private mutating func follow(
    _ refused: [(Sending, CloudError)], of count: Int, known versions: [RecordID], _ zone: ZoneID
  ) async throws -> Bool {
    var conflicts: [String] = []
    var wait: CloudError?
    let known = Set(versions)
    for (sending, error) in refused {
      switch ErrorPolicy.item(error) {
      case .resolve:
        if !known.contains(sending.id) { conflicts.append(sending.id.name) }
        hasConflicted = true
        // A create has no tag: finding nothing afterwards means creating again.
        if let tag = sending.operation.changeTag { refusedTags[sending.id] = tag }
      case .missing:
        if sending.operation.kind != .delete { missing.insert(sending.id) }
      case .retry: wait = (wait?.retryAfter ?? -1) >= (error.retryAfter ?? 0) ? wait : error
      case .zoneMissing:
        try await zoneIsMissing(zone, error)
        return true
      case .signIn, .halt: throw error
      case .hold, .split: break
      }
    }
    if !conflicts.isEmpty {
      try await lookUp(conflicts.sorted(), in: zone)
    }
    if let wait {
      try await lane.wait(after: wait, "uploading to zone '\(zone)'")
      try await pullZone(zone)
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
  mutating func settleMissing() async throws {
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
