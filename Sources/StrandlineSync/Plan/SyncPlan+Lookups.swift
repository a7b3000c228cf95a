// Looks up single records by name, one zone in a request: because their versions are in question, because an upload of them was
// refused, or because the end of a full fetch has to know whether they are gone.
//
// A refused lookup is made again for half of its records: one of them may be the cause, or the size of the answer. A record that
// is refused alone is set aside. If the server then answers for another record, the first one was the cause, and is held. If
// it refuses many, one by one with the same code, the zone is the cause, and none is held.

import StrandlineSystem

/// The answer to a lookup.
struct LookupAnswer: Sendable {
  var request: LookupRequest
  var found: [CloudName: CloudResult]
  /// The number of names in the request; `request` has the names that were refused before, too.
  var asked: Int
  /// The server's time of creation of records that this store has, for a proof of absence.
  var created: [RecordID: Int64] = [:]
}

extension SyncPlan {
  mutating func lookUp(_ id: RecordID) { self[id.zone].lookups.insert(id.key) }

  /// Whether a record is to be looked up.
  func hasLookups(_ facts: some SyncFacts) -> Bool {
    if zones.values.contains(where: { !$0.lookups.isEmpty && !$0.isInQuestion }) || zoneToGoOnWith != nil {
      return true
    }
    return queue.hasLookups || reviews && !recordsInQuestion(facts).isEmpty
  }

  /// Whether this cycle looks up the records in question, and has not yet.
  var reviews: Bool { due.isReview && cycle.options.direction != .pushOnly }

  mutating func chooseLookup(_ facts: some SyncFacts) throws -> Choice? {
    collectLookups(facts)
    let asked = zones.filter { !$0.value.isInQuestion }
    if let zone = asked.filter({ !$0.value.lookups.names.isEmpty }).keys.min() {
      let names = self[zone].lookups.names.sorted().prefix(limits.lookups.current)
      return .next(.ask(.lookUp(LookupRequest(names: Array(names), zone: zone, purpose: .question))))
    }
    if let zone = asked.filter({ !$0.value.lookups.isEmpty }).keys.min() {
      // Only refused records are left, and no other lookup will be answered.
      try take([:], to: LookupRequest(names: [], zone: zone, purpose: .question), nil, facts)
      return .again
    }
    guard let zone = zoneToGoOnWith else { return nil }
    if facts.zone(zone)?.isLost == true {
      self[zone].phase = .open
      noteLoss(of: zone, facts)
    } else {
      try endFetch(of: zone, facts)
    }
    return .again
  }

  /// Adds the records to look up once in a cycle: those in question, among them those that a page could not show.
  private mutating func collectLookups(_ facts: some SyncFacts) {
    _ = takeQueuedLookups()
    guard reviews else { return }
    due.beginReview()
    for id in recordsInQuestion(facts) { lookUp(id) }
  }

  /// Adds the records that the upload queue wants looked up; false if there is none.
  mutating func takeQueuedLookups() -> Bool {
    let ids = queue.takeLookups()
    for id in ids { lookUp(id) }
    return !ids.isEmpty
  }

  /// The records whose versions the log has in question. O(records in question).
  private func recordsInQuestion(_ facts: some SyncFacts) -> [RecordID] {
    let synced = synced
    return facts.learned { sync in
      return sync.openBlocks.compactMap { id, block in
        block.consequence == .lookup && sync.zones[id.zone]?.isLost != true && synced.takes(id.zone, sync) ? id : nil
      }
    }
  }

  /// A zone whose fetch can end, because the lookups that it needs are answered.
  private var zoneToGoOnWith: ZoneID? {
    zones.filter { _, zone in
      guard let ending = zone.ending, !ending.isPaused else { return false }
      switch ending.stage {
      case .older, .absent: return ending.cause == .feed
      case .children, .finding: return false
      }
    }.keys.min()
  }

  // MARK: Answers

  mutating func take(
    _ found: [CloudName: CloudResult], to request: LookupRequest, _ offset: Int64?, _ facts: some SyncFacts
  ) throws {
    let zone = request.zone
    // The server answers this lookup, so the records themselves caused the earlier refusals.
    let refused = self[zone].lookups.refused
    let found = found.merging(refused.answers) { found, _ in found }
    let asked = request.names.count
    var request = request
    request.names += refused.names
    let changes = request.names.compactMap { name in
      let id = RecordID(name, zone: zone)
      // A record whose upload waits for this lookup is sent again, or its change is held. Any other is held as unreadable.
      if case .failed(let error, _)? = found[name], error.meaning.item.mayBeOfOneRecord, queue.wait(of: id) != .lookup {
        return ServerChange(id, .unreadable(error))
      }
      return ServerChange(id, answer: found[name])
    }
    var answer = LookupAnswer(request: request, found: found, asked: asked)
    if self[zone].proof != nil {
      for name in request.names {
        let id = RecordID(name, zone: zone)
        guard case .record(let server)? = found[name] else { continue }
        if try facts.entry(id)?.base?.isOfLife(of: server) ?? false {
          answer.created[id] = server.system.created?.milliseconds
        }
      }
    }
    addStep(
      .answers(AnswerStep(changes: changes, source: .lookup, serverOffset: offset, cause: .lookUp(answer))))
  }

  /// The answer to a lookup was applied.
  mutating func applied(
    _ answer: LookupAnswer, _ changes: [ServerChange], _ taken: TakenChanges, _ facts: some SyncFacts
  ) throws {
    let (request, found) = (answer.request, answer.found)
    let zone = request.zone
    self[zone].lookups.refused = RefusedLookups()
    self[zone].lookups.names.subtract(request.names)
    limits.lookups.answered(request.names.count)
    // This may settle a deletion for which others wait.
    if request.names.contains(where: { found[$0]?.isNotFound == true }) {
      queue.referencesMayHaveChanged(in: zone)
    }
    let proved = try tellEnding(of: zone, answer, told: Set(changes.map(\.id.key)), facts)
    // The answer may show that the server went back to an older state.
    if facts.zone(zone)?.isLost == true { noteLoss(of: zone, facts) }
    try changed(taken.touched, facts)
    paceLookups(request, found, facts)
    for name in request.names {
      let id = RecordID(name, zone: zone)
      if let error = CloudError.withoutVersion(found[name]) {
        postponeLookup(of: id, error, facts)
      } else {
        if queue.wait(of: id) == .lookup { records.endPostponement(of: id) }
        records.shown(id)
        lookedUp(id, facts)
      }
    }
    // The end of the sweep decides about records that the list did not show.
    for id in taken.absent where !proved.contains(id) { doubt(id) }
  }

  /// Hands an answer to the end of a zone's fetch.
  ///
  /// - Returns: the records about which that end decides.
  private mutating func tellEnding(
    of zone: ZoneID, _ answer: LookupAnswer, told: Set<CloudName>, _ facts: some SyncFacts
  ) throws -> Set<RecordID> {
    let (request, found) = (answer.request, answer.found)
    guard var ending = self[zone].ending else { return [] }
    var proved: Set<RecordID> = []
    switch ending.stage {
    case .absent(var proof):
      for name in request.names {
        let id = RecordID(name, zone: zone)
        let base = try facts.entry(id)?.base?.version
        // No upload waits for the answer, only the proof.
        if proof.take(found[name], of: id, created: answer.created[id], base: base), queue.wait(of: id) != .lookup {
          proved.insert(id)
        }
      }
      ending.stage = .absent(proof)
    case .older(var names):
      for name in request.names where names.remove(name) != nil && !told.contains(name) {
        if let error = CloudError.withoutVersion(found[name]) { ending.refuseLookups(error) }
      }
      ending.stage = .older(names)
    case .children, .finding: break
    }
    self[zone].ending = ending
    return proved
  }

  /// Rests if the server names a wait and answers nothing: it is overloaded. Where it answers others, or refuses the same records again
  /// and again, these records are the cause, and wait alone; so does one for which no upload waits.
  private mutating func paceLookups(
    _ request: LookupRequest, _ found: [CloudName: CloudResult], _ facts: some SyncFacts
  ) {
    let isAnswered = request.names.contains { CloudError.withoutVersion(found[$0]) == nil }
    let news = request.names.filter { name in
      let id = RecordID(name, zone: request.zone)
      return queue.wait(of: id) == .lookup && records[id].unshown == nil
    }
    let errors = news.compactMap { CloudError.withoutVersion(found[$0]) }
    guard !isAnswered, let longest = errors.max(by: { ($0.retryAfter ?? 0) < ($1.retryAfter ?? 0) }) else { return }
    failedIfNamed(.lookup, longest, doing: SyncRequest.lookUp(request).words, facts)
  }

  /// A lookup did not bring the server's version of a record. If an upload waits for it, the record is looked up again, with a
  /// growing backoff.
  private mutating func postponeLookup(of id: RecordID, _ error: CloudError, _ facts: some SyncFacts) {
    // If no user is signed in, the next request says so; otherwise it is this record alone.
    if error.meaning.item == .signIn { due.forgetAccount() }
    guard queue.wait(of: id) == .lookup else { return }
    records.countUnshown(id, error, at: facts.now)
    sendAgain(id, facts)
  }

  // MARK: Refusals

  mutating func refuse(_ request: LookupRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    switch error.meaning.request {
    case _ where error.endsCycle: throw error
    case .zoneMissing where facts.zone(zone)?.wasSeen != true:
      // No device of this log has made the zone, so the server has none of these records.
      let absent = CloudError(.notFound, reason: error.reason)
      try take(
        Dictionary(uniqueKeysWithValues: request.names.map { ($0, .failed(absent, serverRecord: nil)) }), to: request,
        nil,
        facts)
    case .zoneMissing:
      lookUpLater(zone, error, facts)
      confirmLoss(of: zone, error, facts)
    case _ where error.meaning.item.mayBeOfOneRecord:
      if request.names.count == 1 {
        refuseLookup(of: request.names[0], in: zone, error, facts)
      } else {
        limits.lookups.refused(request.names.count)
      }
    default:
      self[zone].refuse(error)
      lookUpLater(zone, error, facts)
    }
  }

  /// A lookup of one record was refused.
  private mutating func refuseLookup(
    of name: CloudName, in zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts
  ) {
    self[zone].lookups.refused.add(name, error)
    self[zone].lookups.names.remove(name)
    guard self[zone].lookups.refused.cause == .all else { return }
    self[zone].lookups.names.formUnion(self[zone].lookups.refused.names)
    self[zone].refuse(error)
    limits.lookups.reset()
    lookUpLater(zone, error, facts)
    failed(.lookup, error, doing: "looking up records of zone '\(zone)'", facts)
  }

  /// Leaves a zone's lookups to the next cycle.
  private mutating func lookUpLater(_ zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) {
    self[zone].lookups.names.formUnion(self[zone].lookups.refused.names)
    for id in self[zone].lookups.names.map({ RecordID($0, zone: zone) }) where queue.wait(of: id) == .lookup {
      records.countUnshown(id, error, at: facts.now)
      sendAgain(id, facts)
    }
    self[zone].lookups = LookupQueue()
    self[zone].ending?.refuseLookups(error)
  }
}

extension CloudResult {
  /// Whether the server does not have the record.
  var isNotFound: Bool {
    switch self {
    case .deleted: true
    case .failed(let error, _): error.meaning.item == .missing
    case .record: false
    }
  }
}

extension CloudError {
  /// Why an answer does not say which version the server has of a record; nil if it does.
  fileprivate static func withoutVersion(_ result: CloudResult?) -> CloudError? {
    switch result {
    case .record?, .deleted?: nil
    case .failed(let error, _)?: error.meaning.item == .missing ? nil : error
    case nil: CloudError(.unexpectedServerResponse, reason: "the answer to a lookup says nothing of the record")
    }
  }
}
