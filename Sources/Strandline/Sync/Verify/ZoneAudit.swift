// Compares a zone with the server's list of all its records, and repairs this store's side. If both agree, nothing is written: the
// pages are read beside the feed, whose change token stays.
//
// Different records are looked up, and the answers are applied as usual. If one says that the server went back to an older state,
// nothing is removed. Synced records that are not listed are looked up next, and removed as at the end of a sweep, with the
// same limit. Then both are compared again, and the caller gets the remaining differences.

import StrandlineSystem

extension CycleDriver {
  /// Catches up with the feed, compares a zone, repairs the differences, and compares again if there were any.
  ///
  /// - Throws: as a cycle, and `.noSuchZone`.
  mutating func verify(_ zone: ZoneID, _ options: CycleOptions) async throws -> ZoneVerification {
    var total = SyncReport()
    plan.cycle.report = SyncReport()
    try await catchUp(options, &total)
    defer {
      total.add(plan.cycle.report)
      plan.cycle.report = total
    }
    var first = try await compare(zone)
    if first.isEqual { return try first.result(store, mended: []) }
    // Changes by other devices since the list began are not differences.
    try await catchUp(options, &total)
    try first.dropChanged(store)
    guard !first.isEqual, try await mend(first) else { return try first.result(store, mended: []) }
    try await catchUp(options, &total)
    var second = try await compare(zone)
    if !second.isEqual {
      try await catchUp(options, &total)
      try second.dropChanged(store)
    }
    return try second.result(store, mended: first.names.subtracting(second.names))
  }

  private mutating func catchUp(_ options: CycleOptions, _ total: inout SyncReport) async throws {
    total.add(plan.cycle.report)
    plan.cycle.report = SyncReport()
    try await run(options)
  }

  /// Compares the server's list of a zone with the versions that this store believes the server has.
  private mutating func compare(_ zone: ZoneID) async throws -> ZoneComparison {
    guard let state = StoreFacts(store).zone(zone), state.wasSeen else {
      throw StrandlineError(
        .noSuchZone, "nothing of zone '\(zone)' was ever synced, so there is nothing to compare")
    }
    guard !state.isLost else { throw StrandlineError.loss(of: zone, state) }
    var comparison = ZoneComparison(zone, fetched: state.tokenLSN, upTo: store.durableLSN)
    var feed = Feed()
    var token: ChangeToken?
    while true {
      guard let page = try await list(zone, since: token, &feed) else { continue }
      for change in page.changes { try comparison.take(change, store) }
      token = page.token
      if !page.moreComing { break }
    }
    try comparison.end(store)
    return comparison
  }

  /// A page of the list; nil if it is to be asked for again.
  private mutating func list(_ zone: ZoneID, since token: ChangeToken?, _ feed: inout Feed) async throws -> ZonePage? {
    try Task.checkCancellation()
    try store.requireWritable()
    // Carries out the steps that follow from an earlier answer.
    try await drive { $0.steps.isEmpty }
    let facts = StoreFacts(store)
    if let wait = plan.pace.wait(for: .page, at: facts.now) ?? plan.rest(of: zone, facts) {
      try await sleep(wait)
      return nil
    }
    let request = SyncRequest.pages([PageRequest(zone: zone, known: token, limit: feed.limit, purpose: .comparison)])
    let outcome = try await ask(request)
    do {
      try plan.apply(outcome, to: request, StoreFacts(store))
      guard case .pages(let pages) = try outcome.result.get(), let page = try pages[zone]?.get() else { return nil }
      let defect = feed.progress.count(
        asked: token, token: page.token, isEmpty: page.changes.isEmpty, moreComing: page.moreComing)
      guard let defect else { return page }
      let error = CloudError(.zoneBusy, reason: "the feed of zone '\(zone)' says \(defect)")
      plan.failed(.page, error, doing: request.words, times: feed.progress.repeats, StoreFacts(store))
      // After an empty page with a new token the list goes on; a repeated token leads nowhere.
      return page.changes.isEmpty && page.token != token ? page : nil
    } catch let error as CloudError {
      switch error.meaning.request {
      // The plan has set a wait.
      case .retry: return nil
      case .split where error.meaning.asksForLess && feed.limit > 1:
        feed.limit /= 2
        return nil
      case .zoneMissing:
        plan.confirmLoss(of: zone, error, StoreFacts(store))
        try await drive { $0.zones[zone]?.isInQuestion != true && $0.steps.isEmpty }
        if let state = StoreFacts(store).zone(zone), state.isLost { throw StrandlineError.loss(of: zone, state) }
        return nil
      default: throw error.asStrandlineError(request.words)
      }
    }
  }

  /// Looks up different records, then absent ones, and removes those that the server does not have. False if the zone is set aside as
  /// lost instead, because many records, or all, are absent.
  private mutating func mend(_ found: ZoneComparison) async throws -> Bool {
    let zone = found.zone
    let names = Set(found.differences.filter { $0.value.kind != .unreadable }.keys)
    noteOlder(found)
    plan[zone].phase = .ending(Ending(stage: .older(names), cause: .audit))
    defer { plan[zone].phase = .open }
    plan[zone].lookups.names.formUnion(names)
    try await lookUpAll(of: zone)
    guard !found.absent.isEmpty else { return true }
    let isSameZone: Bool
    if found.knowsZone { isSameZone = true } else { isSameZone = try await takesToken(of: zone) }
    let proof = AbsenceProof(
      living: found.living, age: isSameZone ? .fetched : ZoneAge(), absent: found.absent.values.map { $0.record })
    plan[zone].phase = .ending(Ending(stage: .absent(proof), cause: .audit))
    while plan[zone].ending?.isPaused == false {
      try plan.goOnProving(zone, StoreFacts(store))
      // If the proof finds that the zone is lost, that is a result; if an answer says so, it is an error.
      let asks = !plan[zone].lookups.isEmpty
      try await lookUpAll(of: zone, isLossAnError: asks)
    }
    return StoreFacts(store).zone(zone)?.isLost != true
  }

  /// Makes all queued lookups of a zone.
  ///
  /// - Throws: the server's refusal; `.zoneLost` if an answer says that the server went back to an older state.
  private mutating func lookUpAll(of zone: ZoneID, isLossAnError: Bool = true) async throws {
    try await drive { plan in
      plan.steps.isEmpty && plan.zones[zone]?.lookups.isEmpty != false && plan.zones[zone]?.isInQuestion != true
    }
    if isLossAnError, let state = StoreFacts(store).zone(zone), state.isLost {
      throw StrandlineError.loss(of: zone, state)
    }
    if let refusal = plan[zone].refusal ?? plan[zone].ending?.refusedWith {
      throw refusal.asStrandlineError("verifying zone '\(zone)'")
    }
  }

  /// Whether the server accepts this store's token of a zone. It accepts none of another zone with that name.
  private mutating func takesToken(of zone: ZoneID) async throws -> Bool {
    guard let token = StoreFacts(store).zone(zone)?.token else { return false }
    var feed = Feed()
    feed.limit = 1
    do {
      while true {
        if try await list(zone, since: token, &feed) != nil { return true }
      }
    } catch let error as StrandlineError
      where (error.underlying as? CloudError)?.meaning.mayBeExpiredToken == true
    {
      return false
    }
  }

  /// Logs the listed versions that are older than this store's by the server's clock alone. If the lookup brings the same version, it
  /// is accepted as the server's, and not taken for a late answer.
  private mutating func noteOlder(_ found: ZoneComparison) {
    let older = found.differences.compactMap { name, difference in difference.olderTag.map { (name, $0) } }
    plan.append(
      older.sorted { $0.0 < $1.0 }.map { name, tag in
        .append(
          .blocked(
            Blocked(
              id: RecordID(name, zone: found.zone), subject: .version, changeTag: tag, births: [],
              consequence: .lookup, words: "the zone's list shows another version than this store's")))
      })
  }
}

/// A zone's records in this store and in the server's list. Memory: about 32 bytes a record, and the differences.
private struct ZoneComparison {
  enum Kind { case missingHere, different, unreadable }
  struct Difference {
    var kind: Kind
    /// This store's version when the page was read.
    var base: LSN?
    var here: UInt64 = 0
    var there: UInt64 = 0
    /// The change tag of a listed version that is older than this store's, by the server's clock.
    var olderTag: String?
  }

  let zone: ZoneID
  /// Later versions are not compared.
  let end: LSN
  /// The digest of each listed record, by the hash of its name. After a collision of hashes an absent record is not noticed.
  var listed: [Int: UInt64] = [:]
  /// By name.
  var differences: [CloudName: Difference] = [:]
  /// Synced records that are not listed, with the digest of each.
  var absent: [RecordID: (record: AbsenceProof.Absent, digest: UInt64)] = [:]
  /// The list shows a record that this store had when it fetched the zone last.
  var knowsZone = false
  /// Synced records of the zone in this store.
  var living = 0
  var digestHere: UInt64 = 0
  var digestThere: UInt64 = 0

  /// The event of the zone's token: versions before it are of the zone that gave the token.
  let fetched: LSN

  init(_ zone: ZoneID, fetched: LSN, upTo end: LSN) { (self.zone, self.fetched, self.end) = (zone, fetched, end) }

  var isEqual: Bool { differences.isEmpty && absent.isEmpty }
  var names: Set<CloudName> { Set(differences.keys).union(absent.keys.map(\.key)) }

  /// Takes one entry of the list. A record is listed again if it changes meanwhile.
  mutating func take(_ change: ZoneChange, _ store: RecordStore) throws {
    forget(CloudName(change.name))
    let base = try store.projections.entry(RecordID(change.name, zone: zone))?.base
    switch change {
    case .deleted: break
    case .failed:
      listed[CloudName(change.name).hashValue] = 0
      differences[change.name] = Difference(kind: .unreadable, base: base?.version)
    case .saved(let record):
      let there = record.contentDigest
      listed[CloudName(record.name).hashValue] = there
      digestThere &+= there
      if let base, base.version <= fetched, base.isOfLife(of: record) { knowsZone = true }
      guard let base else {
        differences[record.name] = Difference(kind: .missingHere, there: there)
        return
      }
      let here = try store.digest(of: base, RecordID(record.name, zone: zone))
      digestHere &+= here
      if here != there || !record.system.changeTag.equalsUTF8(base.changeTag)
        || base.modifiedMilliseconds != record.system.modified?.milliseconds
      {
        var difference = Difference(kind: .different, base: base.version, here: here, there: there)
        if let known = base.modifiedMilliseconds, let modified = record.system.modified?.milliseconds, modified < known
        {
          difference.olderTag = record.system.changeTag
        }
        differences[record.name] = difference
      }
    }
  }

  private mutating func forget(_ name: CloudName) {
    guard let there = listed.removeValue(forKey: name.hashValue) else { return }
    let known = differences.removeValue(forKey: name)
    digestThere &-= there
    digestHere &-= known?.here ?? there
  }

  /// The list is complete: finds the absent records.
  mutating func end(_ store: RecordStore) throws {
    for (id, base) in try store.synced(in: zone) {
      living += 1
      guard base.version <= end, listed[id.key.hashValue] == nil else { continue }
      let here = try store.digest(of: base, id)
      absent[id] = (AbsenceProof.Absent(id, base), here)
      digestHere &+= here
    }
  }

  /// Drops differences that changes since then have resolved.
  mutating func dropChanged(_ store: RecordStore) throws {
    for (name, known) in differences
    where try store.projections.entry(RecordID(name, zone: zone))?.base?.version != known.base {
      differences[name] = nil
      digestHere &-= known.here
      digestThere &-= known.there
    }
    for (id, (_, here)) in absent {
      if let base = try store.projections.entry(id)?.base, base.version <= end { continue }
      absent[id] = nil
      digestHere &-= here
    }
  }

  func result(_ store: RecordStore, mended: Set<CloudName>) throws -> ZoneVerification {
    func names(_ kind: Kind) -> [String] {
      differences.filter { $0.value.kind == kind }.keys.sorted().texts
    }
    var result = ZoneVerification(zone: zone)
    (result.missingHere, result.different) = (names(.missingHere), names(.different))
    result.unreadable = names(.unreadable)
    result.missingThere = absent.keys.sorted().map(\.name)
    result.mended = mended.sorted().texts
    (result.records, result.equal) = (listed.count, listed.count - differences.count)
    (result.digestHere, result.digestThere) = (digestHere, digestThere)
    for lsn in store.projections.owed(.max, after: .zero, upTo: store.durableLSN) {
      if try store.owner(ofPending: lsn)?.zone == zone { result.unsent += 1 }
    }
    return result
  }
}

extension ServerRecord {
  /// The digest of the record's content, without the stamp: the same on every device.
  fileprivate var contentDigest: UInt64 {
    var fields = fields
    fields[Names.stampField] = nil
    if let parent { fields[Version.parentField] = .reference(Reference(parent)) }
    return Version(type: type, fields: fields).digest(name)
  }
}

extension Version {
  /// A digest of the name, the type and the values, without the stamp.
  fileprivate func digest(_ name: String) -> UInt64 {
    var writer = ByteWriter(capacity: 256)
    writer.blob(Array(name.utf8))
    writer.blob(Array(type.utf8))
    for (field, value) in fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      writer.blob(Array(field.utf8))
      FieldCodec.encode(value.lasting, into: &writer)
    }
    return XXH64.hash(writer.bytes)
  }
}

extension RecordStore {
  /// The digest of a record's base; 0 if it cannot be read, which counts as a difference.
  fileprivate func digest(of base: Base, _ id: RecordID) throws -> UInt64 {
    do throws(StrandlineError) {
      guard let loaded = try LoadedVersion(source.event(at: base.content), at: base.content) else { return 0 }
      return loaded.version.digest(id.name)
    } catch {
      guard error.isOfOneRecord else { throw error }
      return 0
    }
  }
}
