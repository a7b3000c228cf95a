// Compares a zone with what the server lists of it, from the beginning, and mends what is wrong here. Where both agree,
// nothing is written: the pages are read beside the feed, whose token stays.
//
// A name that differs is looked up, and the answer enters as the answer to any lookup does. If it says that the server went
// back in time, nothing is removed. What was synced and is not listed is looked up next, and removed as at the end of a
// sweep, with the same limit. Then both are compared once more: what still differs is for a person to see.

import StrandlineSystem

extension CycleDriver {
  /// Catches up with the feed, compares a zone, mends what differs, and compares again if anything did.
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
    // What another device has changed since the list began is no difference.
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

  /// Compares what the server lists of a zone with what this store believes that it has.
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
    // What an answer before has asked the store for.
    try await drive { $0.steps.isEmpty }
    if let wait = plan.pace.wait(for: .page, at: StoreFacts(store).now) {
      try await sleep(wait)
      return nil
    }
    let request = SyncRequest.page(PageRequest(zone: zone, known: token, limit: feed.limit, purpose: .comparison))
    let outcome = try await ask(request)
    do {
      try plan.apply(outcome, to: request, StoreFacts(store))
      guard case .page(let page) = try outcome.result.get() else { return nil }
      let defect = feed.progress.count(
        asked: token, token: page.token, isEmpty: page.changes.isEmpty, moreComing: page.moreComing)
      guard let defect else { return page }
      let error = CloudError(.zoneBusy, reason: "the feed of zone '\(zone)' says \(defect)")
      plan.failed(.page, error, doing: request.words, times: feed.progress.repeats, StoreFacts(store))
      // An empty page leads on; a token that comes again does not.
      return page.changes.isEmpty && page.token != token ? page : nil
    } catch let error as CloudError {
      switch ErrorPolicy.request(error) {
      // The plan has it wait.
      case .retry: return nil
      case .split where ErrorPolicy.asksForLess(error) && feed.limit > 1:
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

  /// Has what differs looked up, and then what is absent, and removes what the server does not have; false if the zone is
  /// lost instead, because that is much, or everything.
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
      living: found.living, knownSince: isSameZone ? 0 : nil, absent: found.absent.values.map { $0.record })
    plan[zone].phase = .ending(Ending(stage: .absent(proof), cause: .audit))
    while case .ending(let ending) = plan[zone].phase, !ending.isPaused {
      try plan.goOnProving(zone, StoreFacts(store))
      // A loss that the proof itself has found is a result; one that an answer says is an error.
      let asks = !plan[zone].lookups.isEmpty
      try await lookUpAll(of: zone, isLossAnError: asks)
    }
    return StoreFacts(store).zone(zone)?.isLost != true
  }

  /// Looks up what is to be looked up of a zone.
  ///
  /// - Throws: what refuses that; `.zoneLost` if an answer says that the server went back in time.
  private mutating func lookUpAll(of zone: ZoneID, isLossAnError: Bool = true) async throws {
    try await drive { plan in
      plan.steps.isEmpty && plan.zones[zone]?.lookups.isEmpty != false && plan.zones[zone]?.isInQuestion != true
    }
    if isLossAnError, let state = StoreFacts(store).zone(zone), state.isLost {
      throw StrandlineError.loss(of: zone, state)
    }
    var refusal = plan[zone].refusal
    if refusal == nil, case .ending(let ending) = plan[zone].phase { refusal = ending.refusal }
    if let refusal { throw refusal.asStrandlineError("verifying zone '\(zone)'") }
  }

  /// Whether the server takes the token that this store has of a zone, as it does for no other zone of that name.
  private mutating func takesToken(of zone: ZoneID) async throws -> Bool {
    guard let token = StoreFacts(store).zone(zone)?.token else { return false }
    var feed = Feed()
    feed.limit = 1
    do {
      while true {
        if try await list(zone, since: token, &feed) != nil { return true }
      }
    } catch let error as StrandlineError
      where (error.underlying as? CloudError).map(ErrorPolicy.mayBeExpiredToken) ?? false
    {
      return false
    }
  }

  /// Writes down of each version that is older than the one here by the server's clock alone that the list shows it: if the
  /// answer to the lookup is the same, it is what the server has, and no answer that is late.
  private mutating func noteOlder(_ found: ZoneComparison) {
    let older = found.differences.compactMap { name, difference in difference.olderTag.map { (name, $0) } }
    plan.append(
      older.sorted { $0.0 < $1.0 }.map { name, tag in
        .append(
          .blocked(
            Blocked(
              id: RecordID(name, zone: found.zone), subject: .version, changeTag: tag, births: [],
              consequence: .lookup, words: "the list of the zone shows another version than the one here")))
      })
  }
}

/// A zone's records here beside those that the server lists. Memory: about 32 bytes a record, and what differs.
private struct ZoneComparison {
  enum Kind { case missingHere, different, unreadable }
  struct Difference {
    var kind: Kind
    /// The version here when the page was read.
    var base: LSN?
    var here: UInt64 = 0
    var there: UInt64 = 0
    /// The tag of a version that the server changed before the one here, by its clock.
    var olderTag: String?
  }

  let zone: ZoneID
  /// What came here later is not compared.
  let end: LSN
  /// The digest of each record that is listed, by the hash of its name. A record that two hashes hide is not missed.
  var listed: [Int: UInt64] = [:]
  /// By name.
  var differences: [CloudName: Difference] = [:]
  /// What was synced and is not listed, with the digest of each.
  var absent: [RecordID: (record: AbsenceProof.Absent, digest: UInt64)] = [:]
  /// The list shows a record that this store had when it fetched the zone last.
  var knowsZone = false
  /// How many synced records live here.
  var living = 0
  var digestHere: UInt64 = 0
  var digestThere: UInt64 = 0

  /// The event of the zone's token: what was here by then is of the zone that gave it.
  let fetched: LSN

  init(_ zone: ZoneID, fetched: LSN, upTo end: LSN) { (self.zone, self.fetched, self.end) = (zone, fetched, end) }

  var isEqual: Bool { differences.isEmpty && absent.isEmpty }
  var names: Set<CloudName> { Set(differences.keys).union(absent.keys.map(\.key)) }

  /// Takes in what the server lists of one record. It may be listed again, if it has changed meanwhile.
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

  /// The list is at its end: what is not on it is absent.
  mutating func end(_ store: RecordStore) throws {
    for (id, base) in try store.synced(in: zone) {
      living += 1
      guard base.version <= end, listed[id.key.hashValue] == nil else { continue }
      let here = try store.digest(of: base, id)
      absent[id] = (AbsenceProof.Absent(id, base), here)
      digestHere &+= here
    }
  }

  /// What has come here since is no difference any more.
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
    for lsn in store.projections.owed(.max, after: .none, upTo: store.durableLSN) {
      if try store.owner(ofPending: lsn)?.zone == zone { result.unsent += 1 }
    }
    return result
  }
}

extension ServerRecord {
  /// The digest of what the record says to a user: the same on every device.
  fileprivate var contentDigest: UInt64 {
    var fields = fields
    fields[Names.stampField] = nil
    if let parent { fields[Version.parentField] = .reference(Reference(parent)) }
    return Version(type: type, fields: fields).digest(name)
  }
}

extension Version {
  /// A digest of the name, the type and the values; that of no stamp.
  fileprivate func digest(_ name: String) -> UInt64 {
    var writer = ByteWriter(capacity: 256)
    writer.blob(Array(name.utf8))
    writer.blob(Array(type.utf8))
    for (field, value) in fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      writer.blob(Array(field.utf8))
      FieldCodec.encode(value.lasting, into: &writer)
    }
    return KeyedHash(of: writer.bytes, key: HashKey(low: 0, high: 0)).low
  }
}

extension RecordStore {
  /// The digest of what a record's base says; 0 if it cannot be read, which is a difference.
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
