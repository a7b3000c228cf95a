// What follows from the answer to an upload: each record gets its own `settled`; what was refused is looked up, waits, is
// sent again in halves, or is held. A record that is not sent now always has something that ends that: an event, a moment
// or a verb of a person.

import StrandlineSystem

extension SyncMachine {
  /// How often a record may be refused because of the server's version before it waits, and before it is held.
  static let contentionWaitsAt = 3
  static let contentionHoldsAt = 9
  /// What could not be looked up is looked up again after this.
  static let lookupRetryMilliseconds: Int64 = 5_000
  /// The first wait of a hold whose cause may pass; it doubles with each attempt.
  static let holdMilliseconds: Int64 = 300_000
  static let holdMillisecondsMax: Int64 = 24 * 3_600_000
  /// So many records of a zone and a type that are refused with the same words are not held one by one.
  static let alikeMin = 3

  /// Appends what the answer says, in one transaction.
  mutating func settle(
    _ batch: [Upload], _ results: [CloudName: CloudResult], _ zone: ZoneID, atomic: Bool
  ) async throws {
    var answer = Answer(batch, results)
    if let error = answer.tooMuch {
      return atomic ? try await refuseTogether(batch, error) : try await split(batch, zone, error)
    }
    let halted = answer.haltedTypes(in: zone)
    for (type, error) in halted { queue.halt(type, because: error) }
    do {
      try await append(answer, halted: Set(halted.keys))
    } catch let error as StrandlineError where error.code == .tooLarge && !answer.versions.isEmpty {
      // What the refusals brought along is looked up, in as many requests as it takes.
      answer.forgetVersions()
      try await append(answer, halted: Set(halted.keys))
    }
    try await goOn(after: answer, zone)
  }

  private mutating func append(_ answer: Answer, halted: Set<UploadHalts.HaltedType>) async throws {
    let wall = store.environment.clock.wallMilliseconds()
    var done = SyncReport()
    let (offset, policies) = (database.serverOffsetMilliseconds, policies)
    let taken = try await store.take(answer.versions, .lookup, serverOffset: offset) { core in
      done = SyncReport()
      for (upload, outcome) in answer.outcomes {
        if outcome.appliedNothing, upload.isFirstOfLife {
          try core.append(.refused(Refused(id: upload.id, lsn: upload.lsn)))
        }
        switch outcome {
        case .saved(let server):
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
        case .refused(let error, .hold, _), .refused(let error, .halt, _), .refused(let error, .split, _):
          if halted.contains(upload.haltedType) { continue }
          try Self.hold(upload.item, error, wall: wall, policies, &core)
          done.held += 1
        case .refused(let error, .target, _) where try mustShow(upload):
          try Self.hold(upload.item, error, wall: wall, policies, &core)
          done.held += 1
        case .refused: break
        }
      }
      return true
    }
    report.add(done)
    report.add(taken.report)
    for id in taken.touched.sorted() { try changed(id) }
  }

  private static func settleDeletion(_ upload: Upload, _ core: inout StoreCore) throws {
    guard !upload.isPreparation else {
      // The old life of the name is gone; the new one, of another type, is sent next.
      if let base = try core.projections.entry(upload.id)?.base {
        let births = try core.births(base.content, of: upload.id)
        try core.append(.fetchedDelete(FetchedDelete(id: upload.id, births: births, reason: .feed)))
      }
      return
    }
    try core.append(.settled(Settled(id: upload.id, lsn: upload.lsn, outcome: .deleted)))
  }

  // MARK: What each record waits for

  private mutating func goOn(after answer: Answer, _ zone: ZoneID) async throws {
    var wait: CloudError?
    var isOverloaded = false
    var missingZone: CloudError?
    for (upload, outcome) in answer.outcomes {
      let id = upload.id
      switch outcome {
      case .saved, .deleted:
        (contention[id], postponed[id]) = (nil, nil)
        takenTypes.insert(upload.haltedType)
        queue.taken(id, isDeletion: upload.operation.kind == .delete, policies.overQuota)
        try changed(id)
        if upload.isPreparation { queue.wake(id) }
      case .refused(let error, let policy, let server):
        if policy != .retry, policy != .signIn { postponed[id] = nil }
        switch policy {
        case .resolve: resolve(upload, isKnown: server != nil)
        case .missing: miss(upload, error)
        case .retry:
          queue.wait(id, for: .fetch)
          fetch(zone)
          let count = (postponed[id]?.count ?? 0) + 1
          postponed[id] = (count, error)
          // A record that is postponed again and again is not the server's load.
          if answer.isWhole, count == 1 { isOverloaded = true }
          wait = (wait?.retryAfter ?? -1) >= (error.retryAfter ?? 0) ? wait : error
        case .target: try waitForTarget(upload)
        case .zoneMissing:
          if answer.isWhole { missingZone = error }
          countRefusal(of: id, error)
          if contention[id]?.count == 1 { isOverloaded = true }
          sendAgain(id)
        case .signIn:
          // If no user is signed in, the next request says so; otherwise it is this record alone.
          isAccountKnown = false
          postponed[id] = ((postponed[id]?.count ?? 0) + 1, error)
          self.wait(id, milliseconds: Self.holdMilliseconds)
        case .together where answer.refusedCount > 0: queue.wake(id)
        case .together:
          // The server does not say which record it refuses.
          countRefusal(of: id, error)
          sendAgain(id)
        case .hold, .halt, .stopSaves, .split:
          if answer.outcomes.count == 1 { restoreSize() }
          queue.hold(id)
        }
      }
    }
    if answer.deletes { queue.referencesMayHaveChanged(in: zone) }
    if let missingZone { try await confirmLoss(of: zone, missingZone, kind: isOverloaded ? .upload : nil) }
    if let wait, isOverloaded || wait.retryAfter != nil {
      try await pace.failed(.upload, wait, doing: "uploading to zone '\(zone)'")
    } else if !answer.isWhole || (wait == nil && missingZone == nil) {
      pace.succeeded(.upload)
      try await growBack(answer.outcomes.count)
    }
    // What other devices have done may be the cause.
    let refusedCount = answer.refusedCount - answer.notFoundCount
    if options.direction == .both, refusedCount * 4 > answer.outcomes.count || answer.hasConflicts {
      (isListDue, listPages) = (true, 0)
    }
  }

  /// The server did not find what a request was about.
  private mutating func miss(_ upload: Upload, _ error: CloudError) {
    let id = upload.id
    switch upload.operation.kind {
    case .create:
      // There is nothing that it could have missed.
      countRefusal(of: id, error)
      queue.wait(id, for: .fetch)
      fetch(id.zone)
    case .delete:
      // A server that lags may not find what it has. If a lookup finds it, it is sent again, later and later.
      countRefusal(of: id, error)
      queue.wait(id, for: .lookup)
      lookups[id.zone, default: []].insert(id.key)
    default: doubt(id)
    }
  }

  /// A request of as many operations as there may be was answered: the next one may have a few more.
  private mutating func growBack(_ count: Int) async throws {
    guard parts.isEmpty, count >= operationsMax, operationsMax < policies.batch.operationsMax else { return }
    answeredFull += 1
    guard answeredFull >= growsAfter else { return }
    answeredFull = 0
    operationsMax = min(policies.batch.operationsMax, operationsMax + max(1, operationsMax / 4))
    try await pace.learn(operationsMax: operationsMax)
  }

  /// The server holds another version: it is looked up, unless the refusal brought it, and merged.
  private mutating func resolve(_ upload: Upload, isKnown: Bool) {
    // A create has no tag: if the lookup finds no record, it is sent again.
    if let tag = upload.operation.changeTag { queue.refuse(tag: tag, of: upload.id) }
    countRefusal(of: upload.id)
    queue.wait(upload.id, for: .lookup)
    if isKnown {
      looked(up: upload.id)
    } else {
      lookups[upload.id.zone, default: []].insert(upload.id.key)
    }
  }

  /// The server's version of a record has been applied, or it has none: the record is sent again, unless that would be the
  /// same request.
  mutating func looked(up id: RecordID) {
    guard queue.waits[id] == .lookup else { return }
    if let refused = queue.refusedTag(of: id), let entry = try? store.projections.entry(id),
      (entry.base?.changeTag).equalsUTF8(refused)
    {
      queue.wait(id, for: .fetch)
      fetch(id.zone)
    } else {
      sendAgain(id)
    }
  }

  /// A record that was refused although nothing is known to be wrong with it is sent again: at once, then later and later,
  /// and at last it is held.
  mutating func sendAgain(_ id: RecordID) {
    if let postponed = postponed[id] { return wait(id, milliseconds: backoff(postponed.count - 1)) }
    let count = contention[id]?.count ?? 0
    if count < Self.contentionWaitsAt { return queue.wake(id) }
    if count >= Self.contentionHoldsAt { contentious.append(id) }
    wait(id, milliseconds: backoff(count - Self.contentionWaitsAt))
  }

  /// A record was refused although nothing is known to be wrong with it: with this error, or because it had changed at the
  /// server meanwhile.
  mutating func countRefusal(of id: RecordID, _ error: CloudError? = nil) {
    contention[id] = ((contention[id]?.count ?? 0) + 1, error)
  }

  /// What the refusals of a record come to: the last of them, if it was none of those that a newer version at the server
  /// explains.
  func contentionError(of id: RecordID) -> CloudError {
    let times = "refused \(contention[id]?.count ?? 0) times"
    guard let error = contention[id]?.error else {
      return CloudError(.conflict, reason: times + ", each time after the server was asked for its newest version")
    }
    return CloudError(
      error.code, reason: "\(times), at last with \(error.code.rawValue): \(error.reason)",
      requestUUID: error.requestUUID)
  }

  /// The wait of one record after so many others: from a second it doubles up to about four minutes, and is drawn between
  /// half and all of it.
  private func backoff(_ count: Int) -> Int64 {
    let whole = Int64(1_000) << Int64(min(count, 8))
    return whole / 2 + Int64(store.environment.random.below(UInt64(whole / 2) + 1))
  }

  /// Holds the records that were refused too often.
  mutating func holdContentious() async throws {
    let ids = contentious
    contentious = []
    let wall = store.environment.clock.wallMilliseconds()
    var held: [RecordID] = []
    let errors = ids.map { ($0, contentionError(of: $0)) }
    let policies = policies
    try await store.commit { core in
      held = []
      for (id, error) in errors {
        guard let pending = try core.projections.entry(id)?.pending else { continue }
        let item = UploadItem(id: id, lsn: pending.newest, isDeletion: pending.isDeletion, targets: [])
        try Self.hold(item, error, wall: wall, policies, &core)
        held.append(id)
      }
    }
    report.held += held.count
    for id in ids {
      self.contention[id] = nil
      queue.hold(id)
    }
  }

  /// A reference forbids it: a save waits for the record that it refers to, a deletion for something to change in the zone.
  private mutating func waitForTarget(_ upload: Upload) throws {
    guard upload.operation.kind != .delete else { return queue.wait(upload.id, for: .references) }
    let set = store.projections.set(of: upload.id)
    switch try queue.lack(of: upload.item) {
    case .record(let target) where set == nil || set != store.projections.set(of: target):
      return queue.wait(upload.id, for: .target(target))
    case .record, .circle:
      // What went with it in the same request will go with it again.
      countRefusal(of: upload.id)
      return sendAgain(upload.id)
    case .nothing: break
    }
    // As far as this store knows the server has them all: the feed says which it has deleted. One that was changed here may
    // wait for this one, so that its own upload does not find out: if the feed has not said it, once all of it is fetched.
    if contention[upload.id]?.count == 1 {
      for name in upload.item.needs where name != upload.id.key {
        let target = RecordID(name, zone: upload.id.zone)
        if try store.projections.entry(target)?.pending?.isDeletion == false { doubt(target) }
      }
    }
    queue.wait(upload.id, for: .fetch)
    fetch(upload.id.zone)
    countRefusal(of: upload.id)
  }

  /// Whether what a record waits for may never come by itself, so that it stands among the held ones: others refer to what is
  /// to be deleted, or what it refers to is not owed here either.
  private func mustShow(_ upload: Upload) throws -> Bool {
    try upload.operation.kind == .delete || store.projections.lacks(of: upload.item).contains { !$0.isSaved }
  }

  // MARK: Holds

  private static func hold(
    _ item: UploadItem, _ error: CloudError, wall: Int64, _ policies: SyncPolicies, _ core: inout StoreCore
  ) throws {
    let attempts = (core.projections.held(item.id)?.attempts ?? 0) + 1
    // No time at all would mean: until it is released.
    let named = error.retryAfterMilliseconds.flatMap { $0 > 0 ? $0 : nil }
    try core.append(
      .held(
        Held(
          id: item.id, direction: .upload, lsn: item.lsn, code: error.code.rawValue, words: error.reason,
          requestUUID: error.requestUUID ?? "", attempts: attempts,
          durationMilliseconds: named ?? holdMilliseconds(error, attempts, policies.overQuota),
          wallMilliseconds: wall, isServers: named != nil, appVersion: policies.appVersion)))
  }

  /// How long a record is held before it is tried again; 0: until it is edited or released.
  private static func holdMilliseconds(
    _ error: CloudError, _ attempts: UInt64, _ overQuota: OverQuotaWait
  ) -> Int64 {
    switch error.code {
    // The record itself is wrong, and waiting does not change it.
    case .badRequest, .limitExceeded: 0
    // Not the time ends it, but a change of the other record.
    case .validatingReferenceError: 0
    case .quotaExceeded: overQuota.milliseconds(attempts: attempts)
    default: holdMilliseconds(attempts: attempts)
    }
  }

  /// How long what was refused so often in a row is not tried again, if the server names no time.
  static func holdMilliseconds(attempts: UInt64) -> Int64 {
    min(holdMillisecondsMax, holdMilliseconds << Int64(min(attempts - 1, 16)))
  }

  /// Holds the records of a request that was refused as a whole.
  mutating func hold(_ batch: [Upload], _ error: CloudError) async throws {
    let (wall, policies) = (store.environment.clock.wallMilliseconds(), policies)
    try await store.commit { core in
      for upload in batch { try Self.hold(upload.item, error, wall: wall, policies, &core) }
    }
    report.held += batch.count
    for upload in batch { queue.hold(upload.id) }
  }

  /// Holds records that refer to each other in a circle and that no request can hold.
  mutating func hold(circle items: [UploadItem]) async throws {
    let names = items.prefix(3).map { "'\($0.id.name)'" }.joined(separator: ", ")
    let error = CloudError(
      .limitExceeded,
      reason:
        "\(items.count) records refer to each other in a circle (\(names) …); they can only be sent in one request, which "
        + "holds \(UploadPlan.operationsMax) records and \(UploadPlan.requestBytesMax) bytes")
    let (wall, policies) = (store.environment.clock.wallMilliseconds(), policies)
    try await store.commit { core in for item in items { try Self.hold(item, error, wall: wall, policies, &core) } }
    report.held += items.count
    for item in items { queue.hold(item.id) }
  }

  /// Holds records whose events are damaged.
  mutating func holdUnreadable(_ records: [(id: RecordID, lsn: LSN, error: StrandlineError)]) async throws {
    let (wall, appVersion) = (store.environment.clock.wallMilliseconds(), policies.appVersion)
    try await store.commit { core in
      for (id, lsn, error) in records {
        try core.append(
          .held(
            Held(
              id: id, direction: .upload, lsn: lsn, code: Held.damaged, words: error.message, attempts: 1,
              wallMilliseconds: wall, appVersion: appVersion)))
      }
    }
    report.held += records.count
    for record in records { queue.hold(record.id) }
  }
}

/// What became of each operation of a request.
private struct Answer {
  enum Outcome {
    case saved(ServerRecord)
    case deleted
    /// With the server's version where the refusal brought it.
    case refused(CloudError, ErrorPolicy, ServerRecord?)

    /// Whether the server did nothing with the record. A busy server may have done anything.
    var appliedNothing: Bool {
      switch self {
      case .refused(_, .hold, _), .refused(_, .halt, _), .refused(_, .split, _), .refused(_, .target, _),
        .refused(_, .signIn, _), .refused(_, .zoneMissing, _), .refused(_, .together, _), .refused(_, .resolve, _):
        true
      case .saved, .deleted, .refused: false
      }
    }
  }

  var outcomes: [(upload: SyncMachine.Upload, outcome: Outcome)] = []
  /// How many were refused for a reason of their own.
  var refusedCount = 0
  var hasConflicts = false
  /// How many of the refused ones are deletions of what the server did not find: it has most likely been deleted already.
  var notFoundCount = 0
  /// Whether a record was deleted.
  var deletes = false

  init(_ batch: [SyncMachine.Upload], _ results: [CloudName: CloudResult]) {
    for upload in batch {
      switch results[upload.id.name] {
      case .record(let server): outcomes.append((upload, .saved(server)))
      case .deleted:
        deletes = true
        outcomes.append((upload, .deleted))
      case .failed(let error, let server):
        let policy = ErrorPolicy.item(error)
        if policy != .together { refusedCount += 1 }
        if policy == .missing, upload.operation.kind == .delete { notFoundCount += 1 }
        if policy == .resolve { hasConflicts = true }
        outcomes.append((upload, .refused(error, policy, server)))
      case nil: break
      }
    }
  }

  /// The refusal if the server refused each of several operations because there are too many.
  var tooMuch: CloudError? {
    guard outcomes.count > 1 else { return nil }
    for (_, outcome) in outcomes { guard case .refused(_, .split, _) = outcome else { return nil } }
    guard case .refused(let error, _, _)? = outcomes.first?.outcome else { return nil }
    return error
  }

  /// The server's versions that refusals brought along.
  var versions: [ServerChange] {
    outcomes.compactMap { upload, outcome in
      guard case .refused(_, _, let server?) = outcome else { return nil }
      return ServerChange(upload.id, .version(server))
    }
  }

  mutating func forgetVersions() {
    for place in outcomes.indices {
      guard case .refused(let error, let policy, _) = outcomes[place].outcome else { continue }
      outcomes[place].outcome = .refused(error, policy, nil)
    }
  }

  /// Whether nothing of the request was applied.
  var isWhole: Bool {
    !outcomes.contains { if case .refused = $0.outcome { false } else { true } }
  }

  /// The types of which every record, and at least `alikeMin`, was refused with the same words: the cause is not a record.
  func haltedTypes(in zone: ZoneID) -> [UploadHalts.HaltedType: CloudError] {
    var errors: [UploadHalts.HaltedType: (error: CloudError, count: Int)] = [:]
    // A record that the words name and that all of them refer to may be the cause: others of the type are not refused then.
    var named: [UploadHalts.HaltedType: Set<CloudName>] = [:]
    var others: Set<UploadHalts.HaltedType> = []
    for (upload, outcome) in outcomes {
      let type = upload.haltedType
      guard case .refused(let error, .hold, _) = outcome, error.code != .quotaExceeded else {
        others.insert(type)
        continue
      }
      if let first = errors[type], first.error.code != error.code || first.error.reason != error.reason {
        others.insert(type)
      }
      errors[type, default: (error, 0)].count += 1
      let targets = upload.item.needs.filter { error.reason.contains("'\($0)'") }
      named[type] = named[type]?.intersection(targets) ?? Set(targets)
    }
    return errors.filter {
      !others.contains($0.key) && $0.value.count >= SyncMachine.alikeMin && named[$0.key]?.isEmpty != false
    }.mapValues(\.error)
  }
}

extension SyncMachine.Upload {
  var haltedType: UploadHalts.HaltedType { UploadHalts.HaltedType(zone: id.zone, type: type) }
}
