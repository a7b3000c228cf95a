// Decides what follows from the answer to an upload. Each record is settled by itself; a refused one is looked up, waits, is sent
// again in halves, or is held. Each of these ends: by an event, by a timer, or when a person releases or discards the change.

import StrandlineSystem

extension SyncPlan {
  /// The first wait of a hold whose cause may be temporary; it doubles with each attempt.
  static let holdMilliseconds: Int64 = 300_000
  static let holdMillisecondsMax: Int64 = 24 * 3_600_000

  /// Appends the events that follow from the answer, in one transaction.
  mutating func settle(
    _ request: UploadRequest, _ results: [CloudName: CloudResult], _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    var answer = UploadAnswer(request.uploads, results, in: request.zone)
    if !request.isAtomic { answer.followers = request.followers }
    sendContentsAgain(of: &answer)
    if let error = answer.tooMuch {
      return request.isAtomic
        ? refuseTogether(request.uploads, error, facts) : split(request.uploads, request.zone, error, facts)
    }
    let halted = answer.haltedTypes(known: queue.halts.types).filter { !cycle.split.takenTypes.contains($0.key) }
    for (type, error) in halted {
      queue.halt(type, answer.saves(of: type), because: error, at: facts.now.nanoseconds)
    }
    var step = AnswerStep(changes: answer.versions, source: .lookup, serverOffset: offset, cause: .upload(answer))
    let holding = answer.held
    for (upload, outcome) in answer.outcomes {
      if outcome.appliedNothing, upload.isFirstOfLife {
        step.before.append(.append(.refused(Refused(id: upload.id, lsn: upload.lsn))))
      }
      switch outcome {
      case .saved(let server):
        if let modified = server.system.modified { step.heardMilliseconds.append(modified.milliseconds) }
        let settled = Settled(
          id: upload.id, lsn: upload.lsn, outcome: .saved, changeTag: server.system.changeTag ?? "",
          created: server.system.created, modified: server.system.modified, archive: server.system.archive)
        step.before.append(.append(.settled(settled)))
        answer.report.uploaded += 1
      case .deleted:
        // If this was the old record of a name, the new one, of another type, is sent next.
        step.before.append(
          upload.isPreparation
            ? .endOldLife(upload.id)
            : .append(.settled(Settled(id: upload.id, lsn: upload.lsn, outcome: .deleted))))
        answer.report.uploaded += 1
      case .refused(let error, let policy, _) where policy.holds:
        if upload.operation.kind != .delete, halted[upload.haltedType] != nil { continue }
        step.before.append(.event(heldEvent(upload.item, error, facts), if: .newest(upload.id, upload.lsn)))
        answer.report.held += 1
      case .refused(let error, .target, _) where try mustShow(upload, holding: holding, facts):
        step.before.append(.event(heldEvent(upload.item, error, facts), if: .newest(upload.id, upload.lsn)))
        answer.report.held += 1
      case .refused: break
      }
    }
    step.cause = .upload(answer)
    addStep(.answers(step))
  }

  /// The contents of a record that the server may have refused because of their receipts go up again, once: if the record is refused again,
  /// the receipts were not the reason.
  private mutating func sendContentsAgain(of answer: inout UploadAnswer) {
    for place in answer.outcomes.indices {
      let upload = answer.outcomes[place].upload
      guard case .refused(let error, .hold, let server) = answer.outcomes[place].outcome, error.meaning.mayBeOfReceipt,
        upload.contents.isAny, records[upload.id].refusals == 0, records.contents.forgetReceipts(of: upload.id)
      else { continue }
      answer.outcomes[place].outcome = .refused(error, .receipt, server)
    }
  }

  // MARK: Waits of refused records

  mutating func goOn(after answer: UploadAnswer, _ facts: some SyncFacts) throws {
    let zone = answer.zone
    var (wait, missingZone): (CloudError?, CloudError?) = (nil, nil)
    var isOverloaded = false
    for (upload, outcome) in answer.outcomes {
      let id = upload.id
      switch outcome {
      case .saved, .deleted:
        records.forgetRefusals(of: id)
        let isDeletion = upload.operation.kind == .delete
        if !isDeletion {
          cycle.split.takenTypes.insert(upload.haltedType)
          queue.taken(upload.haltedType)
        }
        queue.taken(id, isDeletion: isDeletion, at: facts.now.nanoseconds)
        try changed(id, facts)
        if upload.isPreparation { queue.wake(id) }
      case .refused(let error, let policy, let server):
        if policy != .retry, policy != .signIn { records.endPostponement(of: id) }
        switch policy {
        case .resolve: try resolve(upload, error, isKnown: server != nil, facts)
        case .missing: miss(upload, error, facts)
        case .retry:
          queue.wait(id, for: .fetch)
          fetch(zone)
          records.postpone(id, error, at: facts.now)
          // The server is overloaded; but if it postpones a record again and again, the record is the cause.
          if answer.isWhole, records[id].postponed?.count == 1 { isOverloaded = true }
          wait = (wait?.retryAfter ?? -1) >= (error.retryAfter ?? 0) ? wait : error
        case .target:
          queue.refused(id)
          try waitForTarget(upload, error, answer.victims, facts)
        case .zoneMissing:
          if answer.isWhole { missingZone = error }
          records.countRefusal(of: id, error)
          if records[id].refusals == 1 { isOverloaded = true }
          sendAgain(id, facts)
        case .signIn:
          // If no user is signed in, the next request says so; otherwise it is this record alone.
          due.forgetAccount()
          records.postpone(id, error, at: facts.now)
          self.wait(id, milliseconds: Self.holdMilliseconds, facts)
        case .together where answer.refusedCount > 0: queue.wake(id)
        case .together, .receipt:
          // The server does not say which record it refuses, or what of it.
          records.countRefusal(of: id, error)
          sendAgain(id, facts)
        case .hold, .halt, .stopSaves, .split:
          if answer.outcomes.count == 1 { restoreLimit() }
          queue.refused(id)
          queue.wake(id)
        }
      }
    }
    if answer.deletes { queue.referencesMayHaveChanged(in: zone) }
    if let missingZone { confirmLoss(of: zone, missingZone, kind: isOverloaded ? .upload : nil, facts) }
    // If others were answered, or this record was postponed before, the wait is that record's only.
    if let wait, isOverloaded {
      failed(.upload, wait, doing: "uploading to zone '\(zone)'", facts)
    } else if !answer.isWhole || (wait == nil && missingZone == nil) {
      pace.succeeded(.upload)
      if cycle.split.parts.isEmpty, limits.operations.answered(answer.outcomes.count) { learnLimit(facts) }
    }
    wakeUnlessWaiting(answer.followers)
    // Changes by other devices may be the cause.
    let refusedCount = answer.refusedCount - answer.notFoundCount
    if cycle.options.direction == .both, refusedCount * 4 > answer.outcomes.count || answer.hasConflicts {
      due.askForList()
    }
  }

  /// The server did not find a record that an operation was about.
  private mutating func miss(_ upload: Upload, _ error: CloudError, _ facts: some SyncFacts) {
    let id = upload.id
    switch upload.operation.kind {
    case .create:
      // A create needs no record, so "not found" says nothing: the feed shows what the server has.
      records.countRefusal(of: id, error)
      queue.wait(id, for: .fetch)
      fetch(id.zone)
    case .delete:
      // A replica that lags may not find the record. If a lookup finds it, it is sent again, with a growing backoff.
      records.countRefusal(of: id, error)
      queue.wait(id, for: .lookup)
      lookUp(id)
    case _ where records[id].doubt == .shown:
      // The feed from its beginning has shown the record. To fetch the zone once more would show the same.
      records.countRefusal(of: id, error)
      sendAgain(id, facts)
    default:
      records.countRefusal(of: id, error)
      doubt(id)
    }
  }

  /// The server has another version: it is looked up, unless the refusal brought it, and merged.
  private mutating func resolve(_ upload: Upload, _ error: CloudError, isKnown: Bool, _ facts: some SyncFacts) throws {
    // A create has no tag: if the lookup finds no record, it is sent again.
    if let tag = upload.operation.changeTag { queue.refuse(tag: tag, of: upload.id) }
    records.countRefusal(of: upload.id, error)
    queue.wait(upload.id, for: .lookup)
    if isKnown {
      records.shown(upload.id)
      lookedUp(upload.id, facts)
      // The version may have settled the change: then nothing of it is remembered.
      try changed(upload.id, facts)
    } else {
      lookUp(upload.id)
    }
  }

  /// The server's version of a record has been applied, or it has none. The record is sent again, unless with the change tag that
  /// was refused: then its zone is fetched first.
  mutating func lookedUp(_ id: RecordID, _ facts: some SyncFacts) {
    guard queue.wait(of: id) == .lookup else { return }
    if let refused = queue.refusedTag(of: id), let entry = try? facts.entry(id),
      (entry.base?.changeTag).equalsUTF8(refused)
    {
      queue.wait(id, for: .fetch)
      fetch(id.zone)
    } else {
      sendAgain(id, facts)
    }
  }

  /// Sends a record again that was refused though nothing is known to be wrong with it: at first at once, then with a growing
  /// backoff; at last it is held.
  mutating func sendAgain(_ id: RecordID, _ facts: some SyncFacts) {
    let memory = records[id]
    if let unshown = memory.unshown {
      if unshown.count >= RecordMemory.holdsAt { records.refusedTooOften.append(id) }
      let named = facts.now.milliseconds(until: unshown.until)
      return wait(id, milliseconds: max(named, records.backoff(unshown.count - 1)), facts)
    }
    if let postponed = memory.postponed {
      let named = facts.now.milliseconds(until: postponed.until)
      return wait(id, milliseconds: max(named, records.backoff(postponed.count - 1)), facts)
    }
    if memory.refusals < RecordMemory.waitsAt { return queue.wake(id) }
    if memory.refusals >= RecordMemory.holdsAt { records.refusedTooOften.append(id) }
    wait(id, milliseconds: records.backoff(memory.refusals - RecordMemory.waitsAt), facts)
  }

  /// A record is tried again in some milliseconds.
  mutating func wait(_ id: RecordID, milliseconds: Int64, _ facts: some SyncFacts) {
    queue.wait(id, for: .time(until: facts.now.after(milliseconds: milliseconds)))
  }

  /// Holds the records that were refused too often.
  mutating func holdRefusedTooOften(_ facts: some SyncFacts) throws {
    let ids = records.refusedTooOften
    records.refusedTooOften = []
    var events: [SyncEvent] = []
    for id in ids {
      if let pending = try facts.entry(id)?.pending {
        let item = UploadItem(id: id, lsn: pending.newest, isDeletion: pending.isDeletion, targets: [])
        events.append(
          .event(
            heldEvent(item, records.refusalsError(of: id), isTimed: true, facts), if: .newest(id, pending.newest)))
      }
      queue.wake(id)
    }
    append(events)
  }

  /// A reference forbids the change: a save waits for the record that it refers to, a deletion for any change in the zone.
  ///
  /// - Parameter victims: records that the same request lost only because another one was refused.
  private mutating func waitForTarget(
    _ upload: Upload, _ error: CloudError, _ victims: Set<RecordID>, _ facts: some SyncFacts
  ) throws {
    guard upload.operation.kind != .delete else { return queue.wait(upload.id, for: .references) }
    let set = facts.set(of: upload.id)
    switch try queue.lack(of: upload.item, facts) {
    case .record(let target)
    where !victims.contains(target) && (set == nil || set != facts.set(of: target)):
      return queue.wait(upload.id, for: .target(target))
    case .record, .circle:
      // Both were in the same request, and both will be in the next one.
      records.countRefusal(of: upload.id, error)
      return sendAgain(upload.id, facts)
    case .nothing: break
    }
    // The server has the target, but not the held edit that may allow the reference.
    if let held = try heldTarget(of: upload.item, facts) { return queue.wait(upload.id, for: .target(held)) }
    // As far as this store knows the server has all targets, so the feed must show which one was deleted. A target with a pending
    // change may itself wait for this record, and its upload cannot find out: then the feed is read from its beginning.
    if records[upload.id].refusals == 1 {
      for name in upload.item.needs where name != upload.id.key {
        let target = RecordID(name, zone: upload.id.zone)
        if try facts.entry(target)?.pending?.isDeletion == false { doubt(target) }
      }
    }
    queue.wait(upload.id, for: .fetch)
    fetch(upload.id.zone)
    records.countRefusal(of: upload.id, error)
  }

  /// A record that `item` needs and the server has, and whose edit is held; nil if there is none.
  private func heldTarget(
    of item: UploadItem, holding: Set<RecordID> = [], _ facts: some SyncFacts
  ) throws -> RecordID? {
    try item.needs.map { RecordID($0, zone: item.id.zone) }.first { target in
      guard target != item.id, let entry = try facts.entry(target), let pending = entry.pending,
        !pending.isDeletion, entry.base != nil
      else { return false }
      return holding.contains(target) || queue.halts.contains(target, entry, pending)
        || facts.held(target).map { $0.lsn >= pending.newest } ?? false
    }
  }

  /// Whether a person has to see a record as held, because its wait may never end by itself: others refer to a record to be deleted,
  /// or a target is missing at the server and is not pending here.
  ///
  /// - Parameter holding: records that the same answer holds.
  private func mustShow(_ upload: Upload, holding: Set<RecordID>, _ facts: some SyncFacts) throws -> Bool {
    try upload.operation.kind == .delete || facts.lacks(of: upload.item).contains { !$0.isSaved }
      || heldTarget(of: upload.item, holding: holding, facts) != nil
  }

  // MARK: Holds

  /// - Parameter isTimed: the hold has a timer whatever the refusal is, because the record was refused too often.
  private func heldEvent(
    _ item: UploadItem, _ error: CloudError, isTimed: Bool = false, _ facts: some SyncFacts
  ) -> Event {
    let attempts = (facts.held(item.id)?.attempts ?? records.attempts(of: item)) + 1
    // A duration of 0 would mean: until it is released.
    let named = error.retryAfterMilliseconds.flatMap { $0 > 0 ? $0 : nil }
    let own = !isTimed && error.meaning.hold == .untilEdited ? 0 : Self.holdMilliseconds(attempts: attempts)
    // Of a record that was refused too often the longer one: the server may have named a very short time, again and again.
    let duration = isTimed ? max(named ?? 0, own) : named ?? own
    return .held(
      Held(
        id: item.id, direction: .upload, lsn: item.lsn, code: error.code.rawValue, words: error.reason,
        requestUUID: error.requestUUID ?? "", attempts: attempts, durationMilliseconds: duration,
        wallMilliseconds: facts.now.wall, isServers: named == duration, appVersion: policies.appVersion))
  }

  /// How long a change that was refused `attempts` times in a row is held, if the server names no time.
  static func holdMilliseconds(attempts: UInt64) -> Int64 {
    min(holdMillisecondsMax, holdMilliseconds << Int64(min(attempts - 1, 16)))
  }

  /// Holds the records of a request that was refused as a whole.
  mutating func hold(_ batch: [Upload], _ error: CloudError, _ facts: some SyncFacts) {
    hold(batch.map(\.item), because: error, facts)
  }

  mutating func hold(_ items: [UploadItem], because error: CloudError, _ facts: some SyncFacts) {
    append(items.map { .event(heldEvent($0, error, facts), if: .newest($0.id, $0.lsn)) })
    for item in items { queue.wake(item.id) }
  }

  /// A cycle begins. Holds of an earlier process end if their time is over, or if the app has another version, which may encode the
  /// record differently. A user-initiated cycle ends all timed holds but those that the server named.
  ///
  /// - Parameter owners: owners whose storage is not treated as full any more.
  mutating func beginHolds(isFirst: Bool, notFull owners: Set<CloudName>, _ facts: some SyncFacts) {
    let isPersons = cycle.options.isUserInitiated && cycle.sends
    guard isFirst || isPersons || !owners.isEmpty else { return }
    let (scope, only, version, wall) = (scope, cycle.options.zone, policies.appVersion, facts.now.wall)
    func isOver(_ held: Held) -> Bool {
      if held.durationMilliseconds == 0 { return isFirst && !version.isEmpty && held.appVersion != version }
      if held.remaining(wall: wall) == 0 { return true }
      guard !held.isServers else { return false }
      return isPersons && (only == nil || held.id.zone == only)
        || owners.contains(CloudName(held.id.zone.owner)) && held.meaning.hold == .overQuota
    }
    // Many may be held, and few end: no more than those are copied.
    let over = facts.learned { $0.held.values.filter { $0.id.zone.scope == scope && isOver($0) } }
    release(over.sorted { $0.id < $1.id })
    guard isFirst else { return }
    // A hold with a deadline keeps it: the wall clock may have been set back since.
    for held in facts.learned({ $0.held.values.filter { $0.id.zone.scope == scope && !isOver($0) } })
    where records.holdEnds[held.id] == nil { endLater(held, facts) }
  }

  /// Sets the deadline of a timed hold, by the monotonic clock.
  mutating func endLater(_ held: Held, _ facts: some SyncFacts) {
    guard held.durationMilliseconds > 0 else { return }
    records.holdEnds.set(held.id, facts.now.after(milliseconds: held.remaining(wall: facts.now.wall)))
  }

  /// Ends holds. `released` is logged before their records are sent again; this process remembers the number of attempts.
  mutating func release(_ holds: [Held]) {
    for held in holds { records.released(held) }
    append(
      holds.map { .event(.released(Released(id: $0.id, lsn: $0.lsn)), if: .held($0.id, $0.lsn)) },
      touching: holds.map(\.id))
  }

  /// Holds records that refer to each other in a circle that is too large for one request.
  mutating func hold(circle items: [UploadItem], _ facts: some SyncFacts) {
    let names = items.prefix(3).map { "'\($0.id.name)'" }.joined(separator: ", ")
    let error = CloudError(
      .limitExceeded,
      reason:
        "\(items.count) records refer to each other in a circle (\(names) …); they can only be sent in one request, which "
        + "holds \(UploadPlan.operationsMax) records and \(UploadPlan.requestBytesMax) bytes")
    hold(items, because: error, facts)
  }

  /// Holds records whose events are damaged.
  mutating func holdUnreadable(
    _ records: [(id: RecordID, lsn: LSN, error: StrandlineError)], _ facts: some SyncFacts
  ) {
    append(
      records.map { id, lsn, error in
        .append(
          .held(
            Held(
              id: id, direction: .upload, lsn: lsn, code: Held.damaged, words: error.message, attempts: 1,
              wallMilliseconds: facts.now.wall, appVersion: policies.appVersion)))
      })
    for record in records { queue.wake(record.id) }
  }
}

/// The result of each operation of an upload.
struct UploadAnswer: Sendable {
  enum Outcome: Sendable {
    case saved(ServerRecord)
    case deleted
    /// With the server's version if the refusal brought it.
    case refused(CloudError, ErrorPolicy, ServerRecord?)

    /// Whether the server did nothing with the record.
    var appliedNothing: Bool { if case .refused(_, let policy, _) = self { policy.appliedNothing } else { false } }
  }

  let zone: ZoneID
  var outcomes: [(upload: Upload, outcome: Outcome)] = []
  /// The counts that it adds to the cycle's report.
  var report = SyncReport()
  /// Records that are sent after these.
  var followers: [RecordID] = []
  /// How many were refused for a reason of their own.
  var refusedCount = 0
  /// Records that were refused only because another one was.
  var victims: Set<RecordID> = []
  var hasConflicts = false
  /// Refused deletions whose record the server did not find: most likely it was deleted already.
  var notFoundCount = 0
  /// Whether a record was deleted.
  var deletes = false

  init(_ batch: [Upload], _ results: [CloudName: CloudResult], in zone: ZoneID) {
    self.zone = zone
    for upload in batch {
      switch results[upload.id.name] {
      case .record(let server): outcomes.append((upload, .saved(server)))
      case .deleted:
        deletes = true
        outcomes.append((upload, .deleted))
      case .failed(let error, let server):
        let policy = error.meaning.item
        if policy != .together { refusedCount += 1 }
        if policy == .together { victims.insert(upload.id) }
        if policy == .missing, upload.operation.kind == .delete { notFoundCount += 1 }
        if policy == .resolve { hasConflicts = true }
        outcomes.append((upload, .refused(error, policy, server)))
      case nil: break
      }
    }
  }

  /// The refusal, if the server refused each of several operations as too many.
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

  /// The records that are held because they themselves were refused.
  var held: Set<RecordID> {
    var held: Set<RecordID> = []
    for (upload, outcome) in outcomes {
      if case .refused(_, let policy, _) = outcome, policy.holds { held.insert(upload.id) }
    }
    return held
  }

  mutating func forgetVersions() {
    for place in outcomes.indices {
      guard case .refused(let error, let policy, _) = outcomes[place].outcome else { continue }
      outcomes[place].outcome = .refused(error, policy, nil)
    }
  }

  /// Whether no operation of the request was applied.
  var isWhole: Bool {
    !outcomes.contains { if case .refused = $0.outcome { false } else { true } }
  }

  /// The saves of a type.
  func saves(of type: UploadHalts.HaltedType) -> [UploadItem] {
    outcomes.filter { $0.upload.operation.kind != .delete && $0.upload.haltedType == type }.map(\.upload.item)
  }

  /// The types of which the server refuses every save.
  ///
  /// - Parameter known: the types that are halted already.
  func haltedTypes(known: [UploadHalts.HaltedType: CloudError]) -> [UploadHalts.HaltedType: CloudError] {
    var refused: [UploadHalts.HaltedType: [RefusedSave]] = [:]
    var others: Set<UploadHalts.HaltedType> = []
    for (upload, outcome) in outcomes where upload.operation.kind != .delete {
      if case .refused(let error, .hold, _) = outcome, error.meaning.hold != .overQuota {
        refused[upload.haltedType, default: []].append(RefusedSave(needs: upload.item.needs, error: error))
      } else {
        others.insert(upload.haltedType)
      }
    }
    return refused.filter { type, saves in
      !others.contains(type) && RefusalCause.ofSaves(saves, halted: known[type]) == .all
    }.mapValues { $0[0].error }
  }
}

extension Upload {
  var haltedType: UploadHalts.HaltedType { UploadHalts.HaltedType(zone: id.zone, type: type) }
}
