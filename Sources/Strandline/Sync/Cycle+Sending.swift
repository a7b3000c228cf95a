// Sends a batch and settles its answer. `sent` is durable before the request leaves; each record gets its own `settled`;
// what was refused is looked up, held, waited for, or sent again in halves.

import StrandlineSystem
import Synchronization

extension Cycle {
  /// Sends a batch and settles its answer; one that is too large is sent in halves. Returns whether so much was refused
  /// that pushing to this zone should stop.
  mutating func send(_ batch: [Upload], to zone: ZoneID) async throws -> Bool {
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
        operationsMax = min(operationsMax, part.count / 2)
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

  private mutating func sendOnce(_ planned: [Upload], to zone: ZoneID) async throws -> Answer {
    let number = store.environment.random.next()
    var batch: [Upload] = []
    try await store.commit { core in
      // What the app has replaced meanwhile stays: only a record's newest mutation is ever attempted.
      batch = try planned.filter { try core.projections.entry($0.id)?.pending?.newest == $0.lsn }
      guard !batch.isEmpty else { return }
      let lsns = batch.filter { !$0.isPreparation }.map(\.lsn).sorted()
      try core.append(.sent(Sent(batch: number, zone: zone, lsns: lsns)))
    }
    if batch.count < planned.count { hasConflicted = true }
    guard !batch.isEmpty else { return .done(isRefusing: false) }
    try await store.flushBeforeLeaving()
    let operations = batch.map(\.operation)
    let results: [String: CloudResult]
    do {
      results = try await pacer.sendOnce { [database] in try await database.modify(operations, in: zone, atomic: false)
      }
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      case .retry:
        // The server may have applied any part of the batch: wait, then fetch before anything is sent again.
        try await pacer.wait(after: error, doing: "uploading to zone '\(zone)'")
        try await pullZone(zone)
        hasConflicted = true
        return .done(isRefusing: true)
      case .zoneMissing:
        try await handleMissingZone(zone, error)
        return .done(isRefusing: true)
      case .split: return .tooMuch(error)
      default: throw error
      }
    }
    return .done(isRefusing: try await settle(batch, Self.checked(results, of: batch), zone))
  }

  /// The results, with each that does not answer its operation (a version for a deletion, a deletion for a save) replaced
  /// by an error.
  private static func checked(_ results: [String: CloudResult], of batch: [Upload]) -> [String: CloudResult] {
    var results = results
    for upload in batch {
      let isDeletion = upload.operation.kind == .delete
      switch results[upload.id.name] {
      case .record where isDeletion, .deleted where !isDeletion:
        results[upload.id.name] = .failed(
          CloudError(
            .unexpectedServerResponse,
            reason: isDeletion ? "the answer to a deletion is a record" : "the answer to a save is a deletion"),
          serverRecord: nil)
      default: break
      }
    }
    return results
  }

  private mutating func handleMissingZone(_ zone: ZoneID, _ error: CloudError) async throws {
    guard sync.zones[zone]?.wasSeen == true else { throw error }
    try await markMissing(zone, error)
  }

  /// Appends what the answer says, in one transaction with one `settled` a record. Returns as `send`.
  private mutating func settle(
    _ batch: [Upload], _ results: [String: CloudResult], _ zone: ZoneID
  ) async throws -> Bool {
    var refused: [(Upload, CloudError)] = []
    var versions: [ServerChange] = []
    for upload in batch {
      if case .failed(let error, let serverRecord)? = results[upload.id.name] {
        refused.append((upload, error))
        if let serverRecord { versions.append(ServerChange(upload.id, .version(serverRecord))) }
      }
    }
    try throwIfAllRefusedAlike(refused, of: batch)
    let wall = store.environment.clock.wallMilliseconds()
    var done = SyncReport()
    let taken = try await store.take(versions, .lookup, serverOffset: database.serverOffsetMilliseconds) { core in
      done = SyncReport()
      for upload in batch {
        switch results[upload.id.name] {
        case .record(let server):
          if let modified = server.system.modified {
            core.learn(serverMilliseconds: modified.milliseconds, isNow: true)
          }
          try core.append(
            .settled(
              Settled(
                id: upload.id, lsn: upload.lsn, outcome: .saved, changeTag: server.system.changeTag ?? "",
                created: server.system.created, modified: server.system.modified, archive: server.system.archive)))
          done.uploaded += 1
        case .deleted:
          try Self.settleDeletion(upload, &core)
          done.uploaded += 1
        case .failed(let error, _):
          if ErrorPolicy.item(error) == .missing, upload.operation.kind == .delete {
            try Self.settleDeletion(upload, &core)
            done.uploaded += 1
          } else if ErrorPolicy.item(error) == .hold {
            try hold(upload, error, wall: wall, &core)
            done.held += 1
          }
        case nil: break
        }
      }
      return true
    }
    report.add(done)
    report.add(taken.report)
    if batch.contains(where: \.isPreparation) { hasConflicted = true }
    return try await handleRefusals(refused, of: batch.count, known: versions.map(\.id), zone)
  }

  private static func settleDeletion(_ upload: Upload, _ core: inout StoreCore) throws {
    guard !upload.isPreparation else {
      // The old life of the name is gone; the new one, of another type, is sent next.
      if let base = try core.projections.entry(upload.id)?.base {
        let births = try core.births(base.content)
        try core.append(.fetchedDelete(FetchedDelete(id: upload.id, births: births, reason: .feed)))
      }
      return
    }
    try core.append(.settled(Settled(id: upload.id, lsn: upload.lsn, outcome: .deleted)))
  }

  private func hold(_ upload: Upload, _ error: CloudError, wall: Int64, _ core: inout StoreCore) throws {
    let attempts = (core.projections.sync.held[upload.id]?.attempts ?? 0) + 1
    try core.append(
      .held(
        Held(
          id: upload.id, direction: .upload, lsn: upload.lsn, code: error.code.rawValue, words: error.reason,
          requestUUID: error.requestUUID ?? "", attempts: attempts,
          durationMilliseconds: error.retryAfterMilliseconds ?? 0, wallMilliseconds: wall)))
  }

  /// Holds the one record of a request that was refused as a whole.
  private mutating func hold(_ upload: Upload, _ error: CloudError) async throws {
    let wall = store.environment.clock.wallMilliseconds()
    try await store.commit { try hold(upload, error, wall: wall, &$0) }
    report.held += 1
  }

  /// Handles the refusals of an answer: looks conflicts up in bulk, and waits if the server asked for it. `versions`:
  /// the records whose version came with their refusal. Returns as `send`.
  private mutating func handleRefusals(
    _ refused: [(Upload, CloudError)], of count: Int, known versions: [RecordID], _ zone: ZoneID
  ) async throws -> Bool {
    var conflicts: [String] = []
    var wait: CloudError?
    let known = Set(versions)
    for (upload, error) in refused {
      switch ErrorPolicy.item(error) {
      case .resolve:
        if !known.contains(upload.id) { conflicts.append(upload.id.name) }
        hasConflicted = true
        // A create has no tag: if the lookup finds no record, it is sent again.
        if let tag = upload.operation.changeTag { conflictingTags[upload.id] = tag }
      case .missing:
        if upload.operation.kind != .delete { missing.insert(upload.id) }
      case .retry: wait = (wait?.retryAfter ?? -1) >= (error.retryAfter ?? 0) ? wait : error
      case .zoneMissing:
        try await handleMissingZone(zone, error)
        return true
      case .signIn, .halt: throw error
      case .hold, .split: break
      }
    }
    if !conflicts.isEmpty {
      try await lookUp(conflicts.sorted(), in: zone)
    }
    if let wait {
      try await pacer.wait(after: wait, doing: "uploading to zone '\(zone)'")
      try await pullZone(zone)
      hasConflicted = true
      return true
    }
    return refused.count * 4 > count && count > 1
  }

  /// If every record of a batch was refused with the same code and reason, the cause is not a record: throws it, so that
  /// the push stops and no record is held.
  private func throwIfAllRefusedAlike(_ refused: [(Upload, CloudError)], of batch: [Upload]) throws {
    guard batch.count > 1, refused.count == batch.count, let first = refused.first?.1,
      ErrorPolicy.item(first) == .hold,
      refused.allSatisfy({ $0.1.code == first.code && $0.1.reason == first.reason })
    else { return }
    throw first
  }

  // MARK: Not found

  /// For records with a base that the server answered NOT_FOUND for. Fetches their zones to the end, for the tombstones;
  /// then, for records without one, from the beginning, which shows every tombstone. A record without one even there is
  /// held.
  mutating func settleMissing() async throws {
    for fromStart in [false, true] {
      let zones = Set(try recordsStillMissing().map(\.zone)).sorted()
      for zone in zones where sync.zones[zone]?.isLost != true { try await pullZone(zone, fromStart: fromStart) }
    }
    let doubtful = try recordsStillMissing()
    guard !doubtful.isEmpty else { return }
    let wall = store.environment.clock.wallMilliseconds()
    try await store.commit { core in
      for id in doubtful {
        guard let entry = try core.projections.entry(id), entry.base != nil, let pending = entry.pending else {
          continue
        }
        try core.append(
          .held(
            Held(
              id: id, direction: .upload, lsn: pending.newest, code: CloudError.Code.notFound.rawValue,
              words: "the server does not have this record, and its feed brought no deletion of it", attempts: 1,
              wallMilliseconds: wall)))
      }
    }
    missing = []
  }

  private func recordsStillMissing() throws -> [RecordID] {
    try missing.filter { id in
      let entry = try store.projections.entry(id)
      return entry?.base != nil && entry?.pending != nil
    }.sorted()
  }
}
