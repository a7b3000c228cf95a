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
        if try core.projections.holds(step.premise) { try core.append(step.events) }
      }
      return .done
    case .decideLoss(let step):
      // Before the transaction: nothing is locked meanwhile.
      let unsent = try step.decision == nil ? 0 : projections.pendingCount(in: step.zone)
      var isDecided = false
      try await commit { core in
        isDecided = try core.projections.holds(.lost(step.zone, step.reason))
        if isDecided { try core.append(.zoneChanged(step.reset)) }
      }
      return isDecided ? .decided(unsent: unsent) : .dropped
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
      guard try core.projections.holds(step.premise) else { return false }
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

  /// Logs `sent` for what may leave of an upload; durable when this returns.
  func prepare(_ request: UploadRequest) async throws -> (leaving: UploadRequest, fallenOut: FallenOut) {
    let number = environment.random.next()
    var leaving = request
    var fallenOut = FallenOut()
    try await commit { core in
      (leaving, fallenOut) = try core.projections.premises(of: request)
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
      case .event(let event, let premise): if try projections.holds(premise) { try append(event) }
      case .endOldLife(let id):
        guard let base = try projections.entry(id)?.base else { continue }
        let births = try births(base.content, of: id)
        try append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: .feed)))
      }
    }
  }
}
