// Carries out the plan's steps (Plan/StoreStep.swift). Each is one or a few transactions, in which the premises are checked again.

import StrandlineLog
import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Carries out a step. Its events are durable when this returns.
  ///
  /// - Throws: the store's errors, but for `.tooLarge`, which is a result.
  func perform(_ step: StoreStep, _ database: any CloudDatabase) async throws -> StoreResult {
    switch step {
    case .append(let step):
      try await commit { core in
        if let offset = step.serverOffset {
          core.learn(serverOffset: offset)
          try core.appendServerOffset()
        }
        if try core.holds(step.premise) { try core.append(step.events) }
      }
      return .done
    case .decideLoss(let step):
      var isDecided = false
      try await commit { core in
        isDecided = try core.holds(.lost(step.zone, step.reason))
        if isDecided { try core.append(.zoneChanged(step.reset)) }
      }
      return isDecided ? .done : .dropped
    case .takeKept(let readsAgain):
      var taken = TakenChanges()
      if readsAgain { taken = try await readKept { database.record(readingAgain: $0, in: $1) } }
      let shown = try await showWaiting()
      taken.report.add(shown.report)
      taken.touched.formUnion(shown.touched)
      return .taken(taken)
    case .page(let step): return try await fitting { try await self.apply(step) }
    case .answers(let step): return try await fitting { try await self.apply(step) }
    case .settleChildren(let zone, _): return .changed(try await settleChildren(of: zone))
    case .findAbsent(let zone, let sweep): return .absent(try absences(from: zone, sinceSweep: sweep))
    case .findSynced(let zone): return .synced(try synced(in: zone).map(\.id))
    case .createAgain(let zone, let sweep):
      return .changed(try await createAgainWhatWasTaken(from: zone, epoch: sweep))
    }
  }

  private func fitting(_ body: () async throws -> TakenChanges) async throws -> StoreResult {
    do { return .taken(try await body()) } catch let error as StrandlineError where error.code == .tooLarge {
      return .tooLarge(error)
    }
  }

  private func apply(_ step: AnswerStep) async throws -> TakenChanges {
    try await take(step.changes, step.source, serverOffset: step.serverOffset, page: step.page) { core in
      guard try core.holds(step.premise) else { return false }
      for milliseconds in step.heardMilliseconds { core.learn(serverMilliseconds: milliseconds, isNow: true) }
      try core.append(step.before)
      return true
    } after: { core in
      try core.append(step.after)
    }
  }

  /// Applies a page and its token in one transaction. Drops the whole page if the zone has another token by now: it may be older than
  /// this store's records.
  private func apply(_ step: PageStep) async throws -> TakenChanges {
    let (zone, page) = (step.request.zone, step.page)
    let startsOver = step.isReset || step.token == nil
    let isFullFetch = startsOver || projections.withLock { $0.sync.zones[zone]?.isFullFetch } == true
    let changes = step.changes
    let place = PagePlace(
      zone: zone, isLast: !page.moreComing, waitsForListed: true, startsOver: startsOver,
      isRepeated: page.token == step.token)
    var age = ZoneAge()
    return try await take(
      changes, isFullFetch ? .fullFetch : .delta, serverOffset: step.serverOffset, page: place
    ) { core in
      guard core.projections.sync.zones[zone]?.token == step.token else { return false }
      if step.isReset {
        // The new fetch carries out an earlier decision about the zone, so the decision is kept.
        let decided = core.projections.sync.zones[zone].flatMap { $0.isDirty && !$0.isLost ? $0 : nil }
        try core.append(
          .zoneChanged(
            ZoneChanged(
              zone: zone, change: .reset, words: "the change token was refused or is in doubt",
              policy: decided?.resetPolicy ?? "", ruledMilliseconds: decided?.ruledMilliseconds ?? 0)))
      }
      if startsOver { try core.beginSweep(of: zone) }
      age = try step.isSameZone ? .fetched : core.age(of: zone, shownBy: changes)
      return true
    } after: { core in
      let sweep = try core.confirm(changes, in: zone, age: age)
      if page.token != step.token || step.isReset {
        try core.append(
          .tokenAdvanced(
            TokenAdvanced(zone: zone, asked: step.isReset ? nil : step.token, token: page.token, sweepEpoch: sweep)))
      }
      // With an open sweep the zone becomes clean at its end; with children of deleted records, when they are settled. A fetch for
      // an upload's sake ends here too.
      let isFetched = core.projections.sync.zones[zone].map { $0.isDirty || $0.isFullFetch || $0.isNew } == true
      if !page.moreComing, sweep == 0, !step.reviewsChildren, isFetched {
        try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
      }
    }
  }

  /// Logs `sent` for an upload; durable when this returns. Only newest changes are ever sent: operations that the app has replaced
  /// meanwhile are taken out, with those that need them.
  func prepare(_ request: UploadRequest) async throws -> (leaving: UploadRequest, fallenOut: FallenOut) {
    let number = environment.random.next()
    var leaving = request
    var fallenOut = FallenOut()
    try await commit { core in
      (leaving.uploads, fallenOut) = ([], FallenOut())
      var names: Set<CloudName> = []
      for upload in request.uploads {
        guard let entry = try core.projections.entry(upload.id), entry.pending?.newest == upload.lsn else { continue }
        // A newer version of the server's has arrived since the operation was made.
        guard entry.base?.version == upload.base else {
          fallenOut.stale.append(upload.id)
          continue
        }
        names.insert(upload.id.key)
      }
      for upload in request.uploads where names.contains(upload.id.key) {
        // The deletion of an old record refers to nothing.
        if !upload.isPreparation, let target = try core.projections.missingTarget(of: upload.item, sentWith: names) {
          fallenOut.lacking.append((upload.id, target))
          names.remove(upload.id.key)
        } else {
          var upload = upload
          if core.projections.wasAttempted(upload.lsn) { upload.isFirstOfLife = false }
          leaving.uploads.append(upload)
        }
      }
      if request.isAtomic, leaving.uploads.count < request.uploads.count { leaving.uploads = [] }
      guard !leaving.uploads.isEmpty else { return }
      let lsns = leaving.uploads.filter { !$0.isPreparation }.map(\.lsn).sorted()
      try core.append(.sent(Sent(batch: number, zone: request.zone, lsns: lsns)))
    }
    if !leaving.uploads.isEmpty { try await flushBeforeLeaving() }
    return (leaving, fallenOut)
  }
}

extension PageStep {
  /// The page's changes.
  var changes: [ServerChange] {
    page.changes.map { change in
      switch change {
      case .saved(let record):
        ServerChange(
          RecordID(record.name, zone: request.zone), page.hasFields ? .version(record) : .listed(record))
      case .deleted(let name): ServerChange(RecordID(name, zone: request.zone), .deletion)
      case .failed(let name, let error): ServerChange(RecordID(name, zone: request.zone), .unreadable(error))
      }
    }
  }
}

extension StoreCore {
  /// Appends the events whose premises hold.
  fileprivate mutating func append(_ events: [SyncEvent]) throws {
    for event in events {
      switch event {
      case .event(let event, let premise): if try holds(premise) { try append(event) }
      case .endOldLife(let id):
        guard let base = try projections.entry(id)?.base else { continue }
        let births = try births(base.content, of: id)
        try append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: .feed)))
      }
    }
  }

  /// Whether a premise still holds.
  fileprivate func holds(_ premise: Premise) throws -> Bool {
    func zone(_ id: ZoneID) -> ZoneState? { projections.withLock { $0.sync.zones[id] } }
    switch premise {
    case .none: return true
    case .databaseToken(let scope, let token): return projections.withLock { $0.sync.databaseTokens[scope] } == token
    case .newest(let id, let lsn): return try projections.entry(id)?.pending?.newest == lsn
    case .neverSent(let id, let lsn):
      guard let entry = try projections.entry(id), let pending = entry.pending else { return false }
      return pending.newest == lsn && entry.base == nil && !projections.mayHaveBeenSent(pending)
    case .unquestioned(let id, let version):
      guard let entry = try projections.entry(id) else { return false }
      return entry.base?.version == version && entry.pending == nil
        && projections.withLock { $0.sync.openBlocks[id] }?.subject != .deletion
    case .held(let id, let lsn): return projections.held(id)?.lsn == lsn
    case .unread(let id): return projections.withLock { $0.sync.unread[id] } != nil
    case .lost(let id, let reason): return zone(id)?.lostReason == reason
    case .notErased(let id): return zone(id)?.isErased != true
    case .notDecided(let id): return zone(id).map { $0.wasSeen && !$0.isErased && !$0.isDecided } ?? false
    case .nothingKnown(let id): return projections.withLock { $0.knowsNothing(of: id) }
    case .sweep(let id, let sweep): return sweep != 0 && zone(id)?.sweepEpoch == sweep
    case .removes(let id): return zone(id)?.resetPolicy == ResyncSource.server.rawValue
    // Without a token, a person or a rule has decided about the zone meanwhile.
    case .unswept(let id): return zone(id).map { $0.isDirty && $0.sweepEpoch == 0 && $0.token != nil } ?? false
    }
  }
}
