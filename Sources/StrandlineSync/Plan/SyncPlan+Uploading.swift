// Makes uploads: the operation of each record that is ready, and the request that carries them. Before the request leaves, `sent` is
// logged, and operations that are not the record's newest change any more are taken out (Engine/StoreSteps.swift).

import StrandlineSystem

/// A change and the operation that carries it.
package struct Upload: Sendable {
  package var item: UploadItem
  /// The version that it changes; nil: the server has none.
  package var base: LSN?
  /// Whether this deletes the old record of the name, before a new one of another type is created. Its acknowledgement settles
  /// nothing, and it does not count as an attempt of the change.
  package var isPreparation = false
  /// Whether this creates a record that no earlier request can have carried: if it is refused, a deletion at the server is of
  /// another record of that name.
  package var isFirstOfLife = false
  package var operation: CloudOperation
  var type: String
  /// What it says of contents of this device.
  var contents = NamedFiles()

  package var id: RecordID { item.id }
  /// The event of the change.
  package var lsn: LSN { item.lsn }
}

/// An operation that was prepared while another request was under way. It is valid as long as the record has the same base.
struct MadeOperation: Sendable {
  var base: Base?
  var upload: Upload
  /// An upper bound of its size in JSON.
  var bytes: Int
}

extension SyncPlan {
  /// The next upload, or another step towards it; nil if nothing is ready.
  mutating func chooseUpload(_ facts: some SyncFacts) throws -> Choice? {
    // Forgets erasures that the app has taken back.
    for (zone, known) in zones where facts.zone(zone)?.lostReason != .erasing {
      if case .erasing = known.phase { self[zone].phase = .open }
    }
    if let zone = zoneToErase(facts) { return .next(.ask(chooseErasure(of: zone, facts))) }
    if !records.refusedTooOften.isEmpty {
      try holdRefusedTooOften(facts)
      return .again
    }
    let frozen = frozenZones(facts)
    if !queue.frozenZones.isSubset(of: frozen) { queue.lookAgain() }
    if let part = cycle.split.parts.popLast() {
      let units = queue.takeHalved(part.units)
      guard !frozen.contains(part.zone) else {
        queue.putBack(units, in: part.zone)
        return .again
      }
      return try send(units, to: part.zone, facts)
    }
    let work = try queue.next(reading(facts))
    switch work {
    case .send(let zone, let units): return try send(units, to: zone, facts)
    case .sendTogether(let zone, let items): return try sendTogether(items, to: zone, facts)
    case .cancel(let deletions): cancel(deletions)
    case .hold(let unreadable): holdUnreadable(unreadable, facts)
    case nil:
      // Records may wait for lookups, which have a backoff of their own.
      if takeQueuedLookups() { return .again }
      if !cycle.beginsRound(facts) {
        if try decideLoss(facts) { return .again }
        let leftOut = zonesLeftOut(facts)
        for zone in queue.frozenZones where facts.zone(zone)?.isLost == true && !leftOut.contains(zone) {
          cycle.noteLoss(of: zone)
        }
        return nil
      }
    }
    return .again
  }

  /// The zones to which this cycle sends nothing.
  func frozenZones(_ facts: some SyncFacts) -> Set<ZoneID> {
    let known = facts.learned { $0.zones }
    let refused = zones.filter { $0.value.refusal != nil || $0.value.isInQuestion }.keys
    return Set(known.filter { $0.value.isLost }.keys).union(refused).union(zonesLeftOut(facts))
  }

  /// The facts and bounds for the queue in this round.
  private func reading(_ facts: some SyncFacts) -> OutgoingQueue.Reading {
    OutgoingQueue.Reading(facts, only: cycle.options.zone, frozen: frozenZones(facts), upTo: cycle.roundEnd)
  }

  /// Settles deletions of records whose creation was never sent: nothing is sent for them.
  private mutating func cancel(_ deletions: [(id: RecordID, lsn: LSN)]) {
    let events = deletions.map { id, lsn in
      SyncEvent.event(.settled(Settled(id: id, lsn: lsn, outcome: .cancelled)), if: .neverSent(id, lsn))
    }
    addStep(.append(AppendStep(events: events, touched: deletions.map(\.id))))
    // If one could not be settled, the queue reads it again.
    for (id, _) in deletions { queue.wake(id) }
  }

  // MARK: A batch

  /// An upload of as many units as fit into one request; the zone's creation first, if it was never seen at the server.
  private mutating func send(_ units: [[UploadItem]], to zone: ZoneID, _ facts: some SyncFacts) throws -> Choice {
    if facts.zone(zone)?.wasSeen != true, let id = units.first?.first?.id {
      // Before `ask`: a halt takes them out of the queue again.
      queue.putBack(units, in: zone)
      return .next(.ask(.createZone(zone, .upload(id))))
    }
    let batch = try makeBatch(of: units, in: zone, facts)
    if !batch.tooLarge.isEmpty { hold(circle: batch.tooLarge, facts) }
    if !batch.unreadable.isEmpty { holdUnreadable(batch.unreadable, facts) }
    return ask(UploadRequest(zone: zone, uploads: batch.uploads, isAtomic: false))
  }

  /// One atomic upload of an upload set.
  private mutating func sendTogether(_ items: [UploadItem], to zone: ZoneID, _ facts: some SyncFacts) throws -> Choice {
    if facts.zone(zone)?.wasSeen != true, let id = items.first?.id {
      wakeUnlessWaiting(items.map(\.id))
      return .next(.ask(.createZone(zone, .upload(id))))
    }
    let batch = try makeBatch(of: [items], in: zone, facts)
    if !batch.unreadable.isEmpty { holdUnreadable(batch.unreadable, facts) }
    let ids = items.map(\.id)
    if !batch.tooLarge.isEmpty {
      // They are too large for one request.
      queue.separate(items, in: zone)
    } else if batch.uploads.count < items.count {
      wakeUnlessWaiting(ids)
    } else if case let old = batch.uploads.filter(\.isPreparation), !old.isEmpty {
      // No request can hold two operations of one record.
      return ask(UploadRequest(zone: zone, uploads: old, isAtomic: false, followers: ids))
    } else {
      return ask(UploadRequest(zone: zone, uploads: batch.uploads, isAtomic: true, followers: ids))
    }
    return .again
  }

  private func ask(_ request: UploadRequest) -> Choice {
    request.uploads.isEmpty ? .again : .next(.ask(.modify(request)))
  }

  mutating func wakeUnlessWaiting(_ ids: [RecordID]) {
    for id in ids where queue.wait(of: id) == nil { queue.wake(id) }
  }

  /// An upload is about to leave, perhaps without some of its records, or without any: then nothing is sent.
  package mutating func leaves(_ request: UploadRequest, _ fallenOut: FallenOut) {
    for (id, target) in fallenOut.lacking { queue.wait(id, for: .target(target)) }
    for id in fallenOut.stale { queue.wake(id) }
    if request.uploads.isEmpty {
      wakeUnlessWaiting(request.followers)
    } else {
      queue.leaves(request.uploads.map(\.item))
    }
  }

  /// An upload failed on this device, and nothing was sent.
  package mutating func unsent(_ request: UploadRequest) -> StoreStep {
    queue.ended()
    queue.heard()
    return .append(Self.refusedEvents(of: request.uploads))
  }

  /// An upload was answered, refused as a whole, or lost its answer.
  mutating func apply(
    _ result: Result<SyncAnswer, CloudError>, to request: UploadRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    queue.ended()
    switch result {
    case .success(.records(let results)):
      try settle(request, Self.checked(results, of: request.uploads), offset, facts)
    case .success: preconditionFailure("the answer to an upload of another kind")
    case .failure(let error):
      defer { if !request.isAtomic { wakeUnlessWaiting(request.followers) } }
      // Of a request whose end is not known as well, what it may have created waits for the end of its zone's feed.
      if error.meaning.appliedNothing { queue.heard() } else { queue.forgetUnheardFetch() }
      try takeRefusal(of: request, error, facts)
    }
  }

  /// An upload was refused as a whole, or lost its answer.
  private mutating func takeRefusal(of request: UploadRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let (batch, zone) = (request.uploads, request.zone)
    switch error.meaning.request {
    case .retry:
      // The server may have applied any part of the batch: wait, then fetch before anything of it is sent again.
      for upload in batch { queue.wait(upload.id, for: .fetch) }
      fetch(zone)
      return failed(.upload, error, doing: SyncRequest.modify(request).words, facts)
    case .zoneMissing:
      noteRefusal(of: batch, error)
      for upload in batch { queue.wake(upload.id) }
      confirmLoss(of: zone, error, kind: .upload, facts)
    case .split where !error.meaning.appliedNothing:
      for upload in batch {
        records.countRefusal(of: upload.id, error)
        queue.wait(upload.id, for: .fetch)
      }
      fetch(zone)
      limits.operations.shrink(to: batch.count / 2)
      // A single unit cannot be made smaller.
      if request.isAtomic || UploadPlan.units(batch.map(\.item)).count == 1 {
        for upload in batch { sendAgain(upload.id, facts) }
      }
    case .split where request.isAtomic: refuseTogether(batch, error, facts)
    case .split: split(batch, zone, error, facts)
    case _ where error.endsCycle:
      noteRefusal(of: batch, error)
      for upload in batch { queue.wake(upload.id) }
      throw error
    case .stopSaves where batch.contains { $0.operation.kind != .delete }:
      noteRefusal(of: batch, error)
      giveUpParts(of: zone)
      let saves = batch.filter { $0.operation.kind != .delete }
      hold(saves, error, facts)
      if let save = saves.first {
        queue.haltSaves(of: save.id, because: error, at: facts.now.nanoseconds)
      }
    // Uploads to the other zones go on; the cycle throws this error at its end.
    default:
      noteRefusal(of: batch, error)
      giveUpParts(of: zone)
      refuseChanges(of: batch[0].id, error, facts)
    }
    // Each refusal may name a wait.
    failedIfNamed(.upload, error, doing: SyncRequest.modify(request).words, facts)
  }

  /// The server refuses every change of a zone: a halt begins. If the answer is not CloudKit's, only this cycle gives the zone up.
  mutating func refuseChanges(of id: RecordID, _ error: CloudError, _ facts: some SyncFacts) {
    if error.meaning.appliedNothing {
      queue.haltChanges(of: id, because: error, at: facts.now.nanoseconds)
    } else {
      self[id.zone].refuse(error)
    }
  }

  /// The server refused a request as a whole, and applied nothing of it.
  private mutating func noteRefusal(of batch: [Upload], _ error: CloudError) {
    guard error.meaning.appliedNothing, case let events = Self.refusedEvents(of: batch), !events.isEmpty else {
      return
    }
    addStep(.append(events))
  }

  /// Events that say: no request has carried these new records.
  private static func refusedEvents(of batch: [Upload]) -> [Event] {
    batch.filter(\.isFirstOfLife).map { .refused(Refused(id: $0.id, lsn: $0.lsn)) }
  }

  // MARK: Halves

  /// The server refused a request as too large: it is sent in halves, at once. A single unit is held.
  mutating func split(_ batch: [Upload], _ zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) {
    noteRefusal(of: batch, error)
    let units = UploadPlan.units(batch.map(\.item))
    guard units.count > 1 else {
      refuseAlone(batch, error, facts)
      return restoreLimit()
    }
    guard cycle.split.splitsLeft > 0 else {
      restoreLimit()
      return self[zone].refuse(error)
    }
    cycle.split.splitsLeft -= 1
    let half = units.count / 2
    // The larger half of an odd number still fits into one request.
    let halfMax = units.count - half
    if cycle.split.limitBefore == nil {
      cycle.split.limitBefore = (
        error.meaning.asksForLess ? halfMax : limits.operations.current, limits.operations.growsAfter
      )
    }
    limits.operations.shrink(to: halfMax)
    limits.operations.growLater()
    cycle.split.parts.append((zone, Array(units[half...])))
    cycle.split.parts.append((zone, Array(units[..<half])))
    cycle.split.isOpen = true
    queue.halve(units.joined())
  }

  /// The halves were not refused for their number: one record was refused alone, or the refusal has another cause.
  mutating func restoreLimit() {
    if let before = cycle.split.limitBefore { limits.operations.restore(before) }
  }

  private mutating func giveUpParts(of zone: ZoneID) {
    dropParts { $0 == zone }
    restoreLimit()
  }

  /// The halves that are left are not sent as such.
  private mutating func dropParts(where isMeant: (ZoneID) -> Bool) {
    for part in cycle.split.parts where isMeant(part.zone) { queue.takeHalved(part.units) }
    cycle.split.parts.removeAll { isMeant($0.zone) }
  }

  /// The cycle before has ended amid the halves of a batch: everything is read again.
  mutating func dropSplit() {
    dropParts { _ in true }
    for (batch, _) in cycle.split.refusedAlone { queue.takeHalved([batch.map(\.item)]) }
  }

  /// The halves of a batch have been sent.
  mutating func endSplit(_ facts: some SyncFacts) {
    holdRefusedAlone(facts)
    (cycle.split.limitBefore, cycle.split.isOpen) = (nil, false)
    if limits.operations.current < limits.operations.max { learnLimit(facts) }
  }

  mutating func learnLimit(_ facts: some SyncFacts) {
    if let logged = pace.learn(operationsMax: limits.operations.current, of: limits.operations.max, at: facts.now) {
      addStep(.append([.pace(logged)]))
    }
  }

  /// The server refused an upload set as too large. Halves would not be atomic, so the set is held. Records that were only added
  /// because the set needs them are sent without it.
  mutating func refuseTogether(_ batch: [Upload], _ error: CloudError, _ facts: some SyncFacts) {
    noteRefusal(of: batch, error)
    let together = batch.filter { facts.set(of: $0.id) != nil }
    hold(together, error, facts)
    let held = Set(together.map(\.id))
    for upload in batch where !held.contains(upload.id) { queue.wake(upload.id) }
  }

  /// A record was refused alone. It is held when the halves of its batch have been sent. But at the third record of one type that is
  /// refused with the same words, and if none of the type was saved, the type is halted, and the other halves are not tried.
  private mutating func refuseAlone(_ batch: [Upload], _ error: CloudError, _ facts: some SyncFacts) {
    cycle.split.refusedAlone.append((batch, error))
    queue.halve(batch.map(\.item))
    let type = batch[0].haltedType
    func isAlike(_ other: [Upload], _ refusal: CloudError) -> Bool {
      other[0].operation.kind != .delete && other[0].haltedType == type && refusal.saysTheSame(as: error)
    }
    let alike = cycle.split.refusedAlone.filter { isAlike($0.batch, $0.error) }
    let saves = alike.map { RefusedSave(needs: $0.batch.flatMap(\.item.needs), error: $0.error) }
    if !cycle.split.takenTypes.contains(type), RefusalCause.ofSaves(saves, halted: queue.halts.types[type]) == .all {
      queue.takeHalved(alike.map { $0.batch.map(\.item) })
      cycle.split.refusedAlone.removeAll { isAlike($0.batch, $0.error) }
      // The rest of the batch is queued again, without that type.
      dropParts { _ in true }
      queue.halt(type, alike.flatMap { $0.batch.map(\.item) }, because: error, at: facts.now.nanoseconds)
    }
    if cycle.split.parts.isEmpty { holdRefusedAlone(facts) }
  }

  private mutating func holdRefusedAlone(_ facts: some SyncFacts) {
    for (batch, error) in cycle.split.refusedAlone {
      queue.takeHalved([batch.map(\.item)])
      hold(batch, error, facts)
    }
    cycle.split.refusedAlone = []
  }

  /// The results; each that does not fit its operation (none, a version for a deletion, a deletion for a save) becomes an error.
  private static func checked(_ results: [CloudName: CloudResult], of batch: [Upload]) -> [CloudName: CloudResult] {
    var results = results
    for upload in batch {
      let isDeletion = upload.operation.kind == .delete
      let defect: String
      switch results[upload.id.name] {
      case .record where isDeletion: defect = "the answer to a deletion is a record"
      case .deleted where !isDeletion: defect = "the answer to a save is a deletion"
      case nil: defect = "the answer does not name the record"
      default: continue
      }
      results[upload.id.name] = .failed(CloudError(.unexpectedServerResponse, reason: defect), serverRecord: nil)
    }
    return results
  }

  // MARK: Operations

  /// The uploads that fit into one request.
  private struct Batch {
    var uploads: [Upload] = []
    /// Records that refer to each other in a circle that is too large for a request.
    var tooLarge: [UploadItem] = []
    var unreadable: [(id: RecordID, lsn: LSN, error: StrandlineError)] = []
  }

  /// Makes the operations of units until a request is full; the other units return to the queue. A unit is never divided.
  private mutating func makeBatch(of units: [[UploadItem]], in zone: ZoneID, _ facts: some SyncFacts) throws -> Batch {
    var batch = Batch()
    var names: Set<CloudName> = []
    var bytes = 0
    for (place, unit) in units.enumerated() {
      let (uploads, size) = try makeUploads(of: unit, sentWith: names, &batch, facts)
      if !batch.uploads.isEmpty,
        batch.uploads.count + uploads.count > limits.operations.current || bytes + size > policies.batch.bytesMax
      {
        queue.putBack(Array(units[place...]), in: zone)
        break
      }
      if uploads.count > UploadPlan.operationsMax || (uploads.count > 1 && size > UploadPlan.requestBytesMax) {
        batch.tooLarge += uploads.map(\.item)
        continue
      }
      batch.uploads += uploads
      for upload in uploads { names.insert(upload.id.key) }
      bytes += size
    }
    return batch
  }

  /// Makes the operations of a unit, without records that have changed since, and without those that need them.
  private mutating func makeUploads(
    of unit: [UploadItem], sentWith names: Set<CloudName>, _ batch: inout Batch, _ facts: some SyncFacts
  ) throws -> (uploads: [Upload], bytes: Int) {
    let sync = facts.learned { $0 }
    var entries: [RecordEntry?] = []
    var there = names
    for item in unit {
      var entry = try facts.entry(item.id)
      if entry?.pending?.newest != item.lsn { entry = nil }
      if let known = entry, mayBeDeleted(item, known, facts) {
        queue.wait(item.id, for: .fetch)
        fetch(item.id.zone)
        entry = nil
      }
      entries.append(entry)
      if entry != nil { there.insert(item.id.key) }
    }
    var all: [MadeOperation] = []
    var waits = false
    for (item, entry) in zip(unit, entries) {
      guard let entry else { continue }
      if let target = try facts.missingTarget(of: item, sentWith: there) {
        queue.wait(item.id, for: .target(target))
        continue
      }
      do {
        guard let made = try cycle.take(item, entry) ?? make(item, entry, sync, facts) else { continue }
        guard !waitsForContents(made.upload, facts) else {
          there.remove(item.id.key)
          waits = true
          continue
        }
        all.append(made)
      } catch let error as StrandlineError where error.isOfOneRecord {
        batch.unreadable.append((item.id, item.lsn, error))
      }
    }
    if waits { all = try leaveOutWhatNeedsOthers(all, sentWith: there, facts) }
    return (all.map(\.upload), all.reduce(0) { $0 + $1.bytes })
  }

  /// Leaves out the records that need one which waits for its contents, and what needs those: they wait too.
  private mutating func leaveOutWhatNeedsOthers(
    _ made: [MadeOperation], sentWith names: Set<CloudName>, _ facts: some SyncFacts
  ) throws -> [MadeOperation] {
    var (left, there) = (made, names)
    while true {
      var kept: [MadeOperation] = []
      for one in left {
        if let target = try facts.missingTarget(of: one.upload.item, sentWith: there) {
          queue.wait(one.upload.id, for: .target(target))
          there.remove(one.upload.id.key)
        } else {
          kept.append(one)
        }
      }
      if kept.count == left.count { return kept }
      left = kept
    }
  }

  /// Whether a request may have created a record whose end this device did not hear, and the zone's feed has not ended since: another
  /// device may have deleted it, and its creation would bring it back.
  private func mayBeDeleted(_ item: UploadItem, _ entry: RecordEntry, _ facts: some SyncFacts) -> Bool {
    !item.isDeletion && entry.base == nil && !queue.hasFetched(item.id.zone) && facts.attempted(entry.pending) != nil
  }

  /// Prepares the operations of the next batch while an upload is under way. Nothing is taken from the queue, so later changes of
  /// these records, by the answer or by the app, are noticed when they are sent.
  package mutating func lookAhead(_ facts: some SyncFacts) throws {
    let known = cycle.made
    cycle.made = [:]
    // The halves of a refused batch go first.
    guard !cycle.split.isOpen else { return }
    let sync = facts.learned { $0 }
    var bytes = 0
    for item in try queue.lookAhead(reading(facts), limits.operations.current) {
      // One request carries no more.
      if bytes >= policies.batch.bytesMax { break }
      do {
        guard let entry = try facts.entry(item.id), entry.pending?.newest == item.lsn else { continue }
        let before = known[item.lsn].flatMap { $0.base == entry.base ? $0 : nil }
        guard let made = try before ?? make(item, entry, sync, facts) else { continue }
        // Receipts expire, and a content may be uploaded meanwhile.
        if !made.upload.contents.isAny { cycle.made[item.lsn] = made }
        bytes += made.bytes
      } catch let error as StrandlineError where error.isOfOneRecord {
        // It is held when it is to be sent.
      }
    }
  }

  private func make(
    _ item: UploadItem, _ entry: RecordEntry, _ sync: SyncState, _ facts: some SyncFacts
  ) throws -> MadeOperation? {
    try upload(item, entry, sync, facts).map {
      MadeOperation(base: entry.base, upload: $0, bytes: UploadPlan.jsonBytes($0.operation))
    }
  }

  /// The operation for a record's newest mutation.
  private func upload(
    _ item: UploadItem, _ entry: RecordEntry, _ sync: SyncState, _ facts: some SyncFacts
  ) throws -> Upload? {
    let name = item.id.name
    let archive = try entry.base.map { try facts.event(at: $0.version).archive } ?? []
    if item.isDeletion {
      guard let base = entry.base else { return nil }
      return Upload(
        item: item, base: base.version,
        operation: CloudOperation(.delete, name: name, changeTag: base.changeTag, archive: archive), type: entry.type)
    }
    // Nil: the app has replaced it meanwhile, and a compaction has removed it. The queue will find the newer one.
    guard let event = try facts.eventIfKept(at: item.lsn), let loaded = try LoadedVersion(event, at: item.lsn) else {
      return nil
    }
    var base: LoadedVersion?
    if let known = entry.base, let content = try LoadedVersion(facts.event(at: known.content), at: known.content) {
      base = content.asAcknowledged(known, sync)
    }
    var version = loaded.version
    version.stamp.joinSeen(base?.version.stamp.seen ?? [:])
    let tenure = loaded.own?.tenure ?? 0
    if let author = sync.author(of: item.lsn) {
      version.stamp.joinSeen([author: Seen(lsn: item.lsn, tenure: tenure, time: loaded.own?.time ?? .zero)])
    }

    let isNewLife = base.map { $0.version.stamp.births.isDisjoint(with: version.stamp.births) } ?? true
    var dirty = loaded.dirty
    if let base, let known = entry.base, !isNewLife {
      // Fields that the server acknowledged since the edit was made are taken from the base and not sent again.
      dirty = dirty.filter { $0.value > known.content }
      version = version.taking(version.names.filter { dirty[$0] == nil }, from: base.version)
    }
    if let base, let known = entry.base, isNewLife, base.version.type != version.type {
      // The server has an old record of another type again: another tool has restored it. It is deleted first, and the new one sent
      // after that. The app cannot cause this: a name keeps its type until its deletion is at the server.
      return Upload(
        item: item, base: known.version, isPreparation: true,
        operation: CloudOperation(.delete, name: name, changeTag: known.changeTag, archive: archive), type: version.type
      )
    }
    // An update cannot remove the parent; a replacement without one does.
    let losesParent = dirty[Version.parentField] != nil && version.parent == nil
    let kind: CloudOperation.Kind = entry.base == nil ? .create : (isNewLife || losesParent ? .replace : .update)
    let sendsAll = kind != .update
    let (named, files) = records.contents.naming(
      version, of: item, over: base?.version.fields ?? [:], at: facts.now
    ) { sendsAll || dirty[$0] != nil }
    version = named
    return Upload(
      item: item, base: entry.base?.version, isFirstOfLife: isNewLife,
      operation: CloudOperation(
        kind, name: name, type: version.type, changeTag: kind == .create ? nil : entry.base?.changeTag,
        archive: archive,
        fields: Self.fields(of: version, dirty: kind == .update ? dirty : nil, over: base?.version.fields ?? [:]),
        parent: version.parent), type: version.type, contents: files)
  }

  /// The fields to write, with the stamp.
  ///
  /// An empty list is left out where the server has no value of its field, as far as this store knows: CloudKit refuses it
  /// as a field's first value, and reads it as none. The stamp says of the field that it was written.
  ///
  /// - Parameters:
  ///   - dirty: the fields that have changed here, for an update; nil: all.
  ///   - known: what the server has.
  private static func fields(
    of version: Version, dirty: [String: LSN]?, over known: [String: FieldValue]
  ) -> [String: FieldValue?] {
    var fields: [String: FieldValue?]
    if let dirty {
      fields = [:]
      for field in version.names where dirty[field] != nil && field != Version.parentField {
        fields[field] = .some(version.fields[field])
      }
    } else {
      // `mapValues` keeps the dictionary's hashes: no name is hashed again.
      fields = version.fields.mapValues { .some($0) }
      fields[Version.parentField] = nil
    }
    for (name, value) in version.fields where value.isEmptyList && known[name].map(\.isEmptyList) ?? true {
      fields[name] = nil
    }
    fields[Names.stampField] = .some(.bytes(StampCodec.encode(version)))
    return fields
  }
}
