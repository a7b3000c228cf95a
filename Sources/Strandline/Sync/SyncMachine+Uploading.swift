// What is sent: the operation of each record that is ready, and the request that carries them. `sent` is durable before
// the request leaves, and only what is still a record's newest mutation then leaves with it.

import StrandlineSystem
import Synchronization

extension SyncMachine {
  /// A mutation and the operation that carries it.
  struct Upload: Sendable {
    var item: UploadItem
    /// The version that it changes; nil: the server has none.
    var base: LSN?
    /// Whether this deletes the old life of the name, which must be gone before a new one of another type is created. Its
    /// acknowledgement settles nothing, and it is no attempt of the mutation.
    var isPreparation = false
    /// Whether this begins a life, and no earlier request can have carried it: if this one is refused, a deletion at the server
    /// is of another life.
    var isFirstOfLife = false
    var operation: CloudOperation
    var type: String

    var id: RecordID { item.id }
    /// The mutation that this is for.
    var lsn: LSN { item.lsn }
  }

  /// Part of a batch that the server refused as too much; it goes before what the queue has.
  struct Part: Sendable {
    var zone: ZoneID
    var units: [[UploadItem]]
  }

  /// Does what is next for what is owed; false if nothing is ready.
  mutating func upload() async throws -> Bool {
    guard sends else { return false }
    if let zone = zoneToErase { return try await erase(zone) }
    if !contentious.isEmpty {
      try await holdContentious()
      return true
    }
    let frozen = frozenZones
    if !queue.frozenZones.isSubset(of: frozen) { queue.lookAgain() }
    if let part = parts.popLast() {
      if !frozen.contains(part.zone) { try await send(part.units, to: part.zone) }
      if parts.isEmpty {
        try await holdRefusedAlone()
        sizeBefore = nil
        if operationsMax < policies.batch.operationsMax { try await pace.learn(operationsMax: operationsMax) }
      }
      return true
    }
    let known = takePrepared(frozen)
    let work = try known?.work ?? queue.next(reading())
    let wall = store.environment.clock.wallMilliseconds()
    for held in queue.takeHeld() where held.durationMilliseconds > 0 {
      holdEnds.set(held.id, moment(in: held.remaining(wall: wall)))
    }
    switch work {
    case .send(let zone, let units): try await send(units, to: zone, known?.batch)
    case .sendTogether(let zone, let items): try await sendTogether(items, to: zone)
    case .cancel(let deletions): try await cancel(deletions)
    case .hold(let unreadable): try await holdUnreadable(unreadable)
    case nil:
      // What they wait for is a request of another kind, which may have to wait itself.
      if takeQueuedLookups() { return true }
      if !beginsRound() {
        if try await decideLosses() { return true }
        for zone in queue.frozenZones.sorted() { noteLoss(of: zone) }
        return false
      }
    }
    return true
  }

  /// The zones to which this run sends nothing.
  var frozenZones: Set<ZoneID> {
    let zones = store.projections.withLock { $0.sync.zones }
    return Set(zones.filter { $0.value.isLost }.keys).union(refusedZones.keys)
  }

  /// What the queue may look at in this round.
  func reading(savesOnly: Bool = false) -> UploadQueue.Reading {
    UploadQueue.Reading(
      only: options.zone, frozen: frozenZones, wall: store.environment.clock.wallMilliseconds(), upTo: roundEnd,
      savesOnly: savesOnly)
  }

  /// Whether there is something to send that was written since the round began: an app that writes all the time does not keep
  /// a run from ending.
  private mutating func beginsRound() -> Bool {
    let durable = store.durableLSN
    guard roundsLeft > 0, !store.projections.owed(1, after: roundEnd, upTo: durable).isEmpty else { return false }
    (roundEnd, roundsLeft) = (durable, roundsLeft - 1)
    return true
  }

  /// Settles deletions of records whose creation was never sent: nothing is sent for them.
  private mutating func cancel(_ deletions: [(id: RecordID, lsn: LSN)]) async throws {
    try await store.commit { core in
      for (id, lsn) in deletions {
        guard let entry = try core.projections.entry(id), let pending = entry.pending, pending.newest == lsn,
          entry.base == nil, !core.projections.mayHaveBeenSent(pending)
        else { continue }
        try core.append(.settled(Settled(id: id, lsn: lsn, outcome: .cancelled)))
      }
    }
    for (id, _) in deletions {
      try changed(id)
      // One that could not be settled after all is looked at again.
      queue.wake(id)
    }
  }

  /// Whether the zone has to be created before anything is sent to it: this log never saw it at the server.
  private func isNew(_ zone: ZoneID) -> Bool { self.zone(zone)?.wasSeen != true }

  /// Creates the zone at the server.
  ///
  /// - Parameter id: what is to be sent to it, if that is why.
  mutating func createZone(_ zone: ZoneID, for id: RecordID? = nil) async throws -> Bool {
    do {
      let doing = "creating zone '\(zone)'"
      guard try await ask(.upload, doing, { [database] in try await database.createZone(zone) }) != nil else {
        return true
      }
      pace.succeeded(.upload)
      // An older list does not say that the zone is a new one.
      let wasListed = fetchesFeed && options.asksForChanges && !isListDue
      try await store.commit { core in
        // The app may have asked for its end meanwhile: that is carried out next.
        let sync = core.projections.sync
        guard sync.zones[zone]?.isErased != true else { return }
        // Apple's default zone is there without having been created, and in no list.
        let isNew = wasListed && sync.zones[zone]?.wasSeen != true && zone.name != Names.defaultZone
        let policy = isNew ? ZoneState.newPolicy : ""
        try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .created, policy: policy)))
      }
    } catch let error as CloudError {
      if ErrorPolicy.request(error) == .signIn { throw signIn(error) }
      if let id { refuseChanges(of: id, error) } else { refusedZones[zone] = error }
    }
    return true
  }

  // MARK: A batch

  /// Sends what fits into one request, and settles the answer.
  ///
  /// - Parameter prepared: the operations, if they were made ahead.
  private mutating func send(_ units: [[UploadItem]], to zone: ZoneID, _ prepared: Batch? = nil) async throws {
    if isNew(zone), let id = units.first?.first?.id {
      // First, for a halt takes them out again.
      queue.putBack(units, in: zone)
      _ = try await createZone(zone, for: id)
      return
    }
    let batch = try prepared ?? makeBatch(of: units, in: zone)
    if !batch.tooLarge.isEmpty { try await hold(circle: batch.tooLarge) }
    if !batch.unreadable.isEmpty { try await holdUnreadable(batch.unreadable) }
    try await send(batch.uploads, to: zone, atomic: false)
  }

  /// Sends records that go together, and settles the answer.
  private mutating func sendTogether(_ items: [UploadItem], to zone: ZoneID) async throws {
    func wake() { for item in items where queue.waits[item.id] == nil { queue.wake(item.id) } }
    if isNew(zone), let id = items.first?.id {
      _ = try await createZone(zone, for: id)
      return wake()
    }
    let batch = try makeBatch(of: [items], in: zone)
    if !batch.unreadable.isEmpty { try await holdUnreadable(batch.unreadable) }
    if !batch.tooLarge.isEmpty {
      // They have more bytes than a request takes.
      queue.separate(items, in: zone)
    } else if batch.uploads.count < items.count {
      wake()
    } else if batch.uploads.contains(where: \.isPreparation) {
      // No request can hold two operations of one record.
      try await send(batch.uploads.filter(\.isPreparation), to: zone, atomic: false)
      wake()
    } else if try await !send(batch.uploads, to: zone, atomic: true) {
      wake()
    }
  }

  /// Sends those of some operations that may still go, and settles the answer; false if none left.
  ///
  /// - Parameter atomic: all of them go or none does.
  @discardableResult
  private mutating func send(_ made: [Upload], to zone: ZoneID, atomic: Bool) async throws -> Bool {
    let number = store.environment.random.next()
    var leaving: [Upload] = []
    var left: [(RecordID, RecordID)] = []
    var stale: [RecordID] = []
    try await store.commit { core in
      (leaving, left, stale) = ([], [], [])
      // What the app has replaced meanwhile stays, and with it what needs it: only a newest mutation is ever attempted.
      var names: Set<CloudName> = []
      for upload in made {
        guard let entry = try core.projections.entry(upload.id), entry.pending?.newest == upload.lsn else { continue }
        // The server has said something newer of the record since its operation was made.
        guard entry.base?.version == upload.base else {
          stale.append(upload.id)
          continue
        }
        names.insert(upload.id.key)
      }
      for upload in made where names.contains(upload.id.key) {
        // The deletion of an old life refers to nothing.
        if !upload.isPreparation, let target = try core.projections.missingTarget(of: upload.item, sentWith: names) {
          left.append((upload.id, target))
          names.remove(upload.id.key)
        } else {
          var upload = upload
          if core.projections.wasAttempted(upload.lsn) { upload.isFirstOfLife = false }
          leaving.append(upload)
        }
      }
      if atomic, leaving.count < made.count { leaving = [] }
      guard !leaving.isEmpty else { return }
      let lsns = leaving.filter { !$0.isPreparation }.map(\.lsn).sorted()
      try core.append(.sent(Sent(batch: number, zone: zone, lsns: lsns)))
    }
    for (id, target) in left { queue.wait(id, for: .target(target)) }
    for id in stale { queue.wake(id) }
    if !leaving.isEmpty {
      try await store.flushBeforeLeaving()
      try await exchange(leaving, zone, atomic: atomic)
    }
    store.projections.endsSending(but: self.prepared?.batch?.uploads.map(\.id) ?? [])
    return !leaving.isEmpty
  }

  /// Sends the request and handles a refusal of it as a whole.
  private mutating func exchange(_ batch: [Upload], _ zone: ZoneID, atomic: Bool) async throws {
    let operations = batch.map(\.operation)
    let results: [CloudName: CloudResult]
    var failure: (any Error)?
    watch.sends(batch.count)
    queue.leaving(batch.map(\.item))
    defer { queue.leaving([]) }
    do {
      results = try await send(
        .upload, { [database] in try await database.modify(operations, in: zone, atomic: atomic) }
      ) { machine in
        // The answer is settled first, whatever is wrong with what comes next.
        do { try machine.prepare() } catch { failure = error }
      }
    } catch let error as CloudError {
      try await takeRefusal(of: batch, zone, atomic: atomic, error)
      if let failure { throw failure }
      return
    } catch let error as StrandlineError {
      // This device has failed, and nothing was sent. If that cannot be written either, the feed is asked first, as after a crash.
      try? await noteUnsent(batch)
      throw error
    }
    let checked = Self.checked(results, of: batch)
    for case .failed in checked.values { dropPrepared() }
    try await settle(batch, checked, zone, atomic: atomic)
    if let failure { throw failure }
  }

  /// A request was refused as a whole, or what became of it is not known.
  private mutating func takeRefusal(of batch: [Upload], _ zone: ZoneID, atomic: Bool, _ error: CloudError) async throws
  {
    dropPrepared()
    switch ErrorPolicy.request(error) {
    case .retry:
      // The server may have applied any part of the batch: wait, then fetch before anything of it is sent again.
      for upload in batch { queue.wait(upload.id, for: .fetch) }
      fetch(zone)
      try await pace.failed(.upload, error, doing: "uploading to zone '\(zone)'")
    case .zoneMissing:
      try await noteRefusal(of: batch, error)
      for upload in batch { queue.wake(upload.id) }
      try await confirmLoss(of: zone, error, kind: .upload)
    case .split where !ErrorPolicy.appliedNothing(error):
      for upload in batch {
        countRefusal(of: upload.id)
        queue.wait(upload.id, for: .fetch)
      }
      fetch(zone)
      (operationsMax, answeredFull) = (max(1, min(operationsMax, batch.count / 2)), 0)
      // What goes together does not become less.
      if atomic || UploadPlan.units(batch.map(\.item)).count == 1 {
        for upload in batch { sendAgain(upload.id) }
      }
    case .split where atomic: try await refuseTogether(batch, error)
    case .split: try await split(batch, zone, error)
    case .signIn:
      try await noteRefusal(of: batch, error)
      for upload in batch { queue.wake(upload.id) }
      throw signIn(error)
    case .stopSaves where batch.contains { $0.operation.kind != .delete }:
      try await noteRefusal(of: batch, error)
      parts.removeAll { $0.zone == zone }
      restoreSize()
      if let save = batch.first(where: { $0.operation.kind != .delete }) {
        queue.haltSaves(of: save.id, because: error, policies.overQuota)
      }
    // The other zones are sent to all the same; the run throws this error at its end.
    default:
      try await noteRefusal(of: batch, error)
      parts.removeAll { $0.zone == zone }
      restoreSize()
      refuseChanges(of: batch[0].id, error)
    }
    // Whatever the server refuses, it may say how long it does not want to be asked.
    if ErrorPolicy.request(error) != .retry, let wait = error.retryAfterMilliseconds, wait > 0 {
      try await pace.failed(.upload, error, doing: "uploading to zone '\(zone)'")
    }
  }

  /// The server has refused what was to be sent to a zone, whatever it holds. An answer that is none of CloudKit's says so of this
  /// run alone.
  private mutating func refuseChanges(of id: RecordID, _ error: CloudError) {
    if ErrorPolicy.appliedNothing(error) {
      queue.haltChanges(of: id, because: error)
    } else {
      refusedZones[id.zone] = error
    }
  }

  /// The server refused a request as a whole, and applied nothing of it.
  private func noteRefusal(of batch: [Upload], _ error: CloudError) async throws {
    if ErrorPolicy.appliedNothing(error) { try await noteUnsent(batch) }
  }

  /// No request has carried the first versions of lives that a batch holds.
  private func noteUnsent(_ batch: [Upload]) async throws {
    let first = batch.filter(\.isFirstOfLife)
    guard !first.isEmpty else { return }
    try await store.commit { core in
      for upload in first { try core.append(.refused(Refused(id: upload.id, lsn: upload.lsn))) }
    }
  }

  /// The server refused a request as too much: it goes in halves, at once. One unit alone is held.
  mutating func split(_ batch: [Upload], _ zone: ZoneID, _ error: CloudError) async throws {
    try await noteRefusal(of: batch, error)
    let units = UploadPlan.units(batch.map(\.item))
    guard units.count > 1 else {
      try await refuseAlone(batch, error)
      restoreSize()
      return
    }
    guard splitsLeft > 0 else {
      restoreSize()
      refusedZones[zone] = error
      return
    }
    splitsLeft -= 1
    let half = units.count / 2
    // The larger half of an odd number still goes in one request.
    let halfMax = units.count - half
    sizeBefore = sizeBefore ?? (error.code == .badRequest ? operationsMax : halfMax, growsAfter)
    operationsMax = min(operationsMax, halfMax)
    // Each refusal makes the next try rarer.
    (answeredFull, growsAfter) = (0, min(Self.growsAfterMax, growsAfter * 2))
    parts.append(Part(zone: zone, units: Array(units[half...])))
    parts.append(Part(zone: zone, units: Array(units[..<half])))
  }

  /// That halves were refused does not say that the server takes no more operations: one record was refused alone, or what the
  /// server refuses is something else.
  mutating func restoreSize() {
    guard let sizeBefore else { return }
    (operationsMax, growsAfter) = (max(operationsMax, sizeBefore.operations), sizeBefore.growsAfter)
  }

  /// The server refused records that go together as too much. In halves they would not be all or nothing, so they are held; what
  /// only went along because they need it may go without them.
  mutating func refuseTogether(_ batch: [Upload], _ error: CloudError) async throws {
    try await noteRefusal(of: batch, error)
    try await hold(batch.filter { store.projections.set(of: $0.id) != nil }, error)
    for upload in batch where store.projections.held(upload.id) == nil { queue.wake(upload.id) }
  }

  /// A record was refused alone. It is held when the halves of its batch have been sent, unless the server refuses whatever is of
  /// its type: at the third one in the same words, and with none taken, the type is halted, and the other halves are not
  /// tried.
  private mutating func refuseAlone(_ batch: [Upload], _ error: CloudError) async throws {
    refusedAlone.append((batch, error))
    let type = batch[0].haltedType
    let alike = refusedAlone.count { other, refusal in
      other[0].haltedType == type && (refusal.code, refusal.reason) == (error.code, error.reason)
    }
    if alike >= Self.alikeMin, !takenTypes.contains(type) {
      queue.halt(type, because: error)
      refusedAlone.removeAll { $0.batch[0].haltedType == type }
      // What else was in the batch comes again without that type.
      parts = []
      queue.lookAgain()
    }
    if parts.isEmpty { try await holdRefusedAlone() }
  }

  /// The halves of a batch have been sent.
  private mutating func holdRefusedAlone() async throws {
    for (batch, error) in refusedAlone { try await hold(batch, error) }
    refusedAlone = []
  }

  /// The results, with each that does not answer its operation (none, a version for a deletion, a deletion for a save)
  /// replaced by an error.
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

  /// What of some units fits into one request.
  struct Batch: Sendable {
    var uploads: [Upload] = []
    /// Records that refer to each other in a circle and fit into no request.
    var tooLarge: [UploadItem] = []
    var unreadable: [(id: RecordID, lsn: LSN, error: StrandlineError)] = []
    /// It was read what unsent saves leave.
    fileprivate var hasReadLeft = false
  }

  /// Makes the operations of units until a request is full; the others go back into the queue. A unit stays whole.
  mutating func makeBatch(of units: [[UploadItem]], in zone: ZoneID) throws -> Batch {
    var batch = Batch()
    // What is under way is there when this leaves, or this does not leave.
    var names = queue.leavingNames(in: zone)
    var bytes = 0
    for (place, unit) in units.enumerated() {
      let (uploads, size) = try makeUploads(of: unit, in: units, sentWith: names, &batch)
      if !batch.uploads.isEmpty,
        batch.uploads.count + uploads.count > operationsMax || bytes + size > policies.batch.bytesMax
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

  /// Makes the operations of a unit. A record that has changed since is left out, and so is what needs it.
  private mutating func makeUploads(
    of unit: [UploadItem], in units: [[UploadItem]], sentWith names: Set<CloudName>, _ batch: inout Batch
  ) throws -> (uploads: [Upload], bytes: Int) {
    let (entries, sync) = try store.core.withLock { core in
      var entries: [RecordEntry?] = []
      for item in unit {
        let entry = try core.projections.entry(item.id)
        guard entry?.pending?.newest == item.lsn else {
          entries.append(nil)
          continue
        }
        core.projections.beginsSending(item.lsn, of: item.id)
        entries.append(entry)
      }
      return (entries, core.projections.sync)
    }
    var there = names
    for (item, entry) in zip(unit, entries) where entry != nil { there.insert(item.id.key) }
    var uploads: [Upload] = []
    var bytes = 0
    for (item, entry) in zip(unit, entries) {
      guard let entry else { continue }
      if let target = try store.projections.missingTarget(of: item, sentWith: there) {
        queue.wait(item.id, for: .target(target))
        continue
      }
      do {
        guard let upload = try upload(item, entry, sync) else { continue }
        if upload.isPreparation {
          if !batch.hasReadLeft {
            try queue.readLeft(in: item.id.zone, and: units.flatMap { $0 } + (queue.lanes[item.id.zone]?.saves ?? []))
            batch.hasReadLeft = true
          }
          if let saved = queue.keeper(of: item.id) {
            queue.wait(item.id, for: .target(saved))
            continue
          }
        }
        uploads.append(upload)
        bytes += UploadPlan.jsonBytes(upload.operation)
      } catch let error as StrandlineError where error.isOfOneRecord {
        batch.unreadable.append((item.id, item.lsn, error))
      }
    }
    return (uploads, bytes)
  }

  /// The operation for a record's newest mutation.
  private func upload(_ item: UploadItem, _ entry: RecordEntry, _ sync: SyncState) throws -> Upload? {
    let name = item.id.name
    let archive = try entry.base.map { try store.source.event(at: $0.version).archive } ?? []
    if item.isDeletion {
      guard let base = entry.base else { return nil }
      return Upload(
        item: item, base: base.version,
        operation: CloudOperation(.delete, name: name, changeTag: base.changeTag, archive: archive), type: entry.type)
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
    var dirty = loaded.dirty
    if let base, let known = entry.base, !isNewLife {
      // What was acknowledged since the edit was made is the base's, and is not sent again.
      dirty = dirty.filter { $0.value > known.content }
      version = version.taking(version.names.filter { dirty[$0] == nil }, from: base.version)
    }
    if let base, let known = entry.base, isNewLife, base.version.type != version.type {
      // Another type under the same name: the old life goes first, the new one after its acknowledgement.
      return Upload(
        item: item, base: known.version, isPreparation: true,
        operation: CloudOperation(.delete, name: name, changeTag: known.changeTag, archive: archive), type: version.type
      )
    }
    // An update cannot remove the parent; a replacement without one does.
    let losesParent = dirty[Version.parentField] != nil && version.parent == nil
    let kind: CloudOperation.Kind = entry.base == nil ? .create : (isNewLife || losesParent ? .replace : .update)
    return Upload(
      item: item, base: entry.base?.version, isFirstOfLife: isNewLife,
      operation: CloudOperation(
        kind, name: name, type: version.type, changeTag: kind == .create ? nil : entry.base?.changeTag,
        archive: archive, fields: Self.fields(of: version, dirty: kind == .update ? dirty : nil),
        parent: version.parent), type: version.type)
  }

  /// The fields to write, with the stamp.
  ///
  /// - Parameter dirty: of an update, the fields that have changed here; nil: all.
  private static func fields(of version: Version, dirty: [String: LSN]?) -> [String: FieldValue?] {
    var fields: [String: FieldValue?]
    if let dirty {
      fields = [:]
      for field in version.names where dirty[field] != nil && field != Version.parentField {
        fields[field] = .some(version.fields[field])
      }
    } else {
      // With the hashes of the version's: no name is hashed again.
      fields = version.fields.mapValues { .some($0) }
      fields[Version.parentField] = nil
    }
    fields[Names.stampField] = .some(.bytes(StampCodec.encode(version)))
    return fields
  }
}
