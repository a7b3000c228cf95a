// Single records that are looked up, those of one zone in a request: because their versions are in question, because what was
// refused may have changed, or because the end of a sweep has to know whether they are gone.
//
// A request that is refused, perhaps because of one of its records, or because its answer is too large, is made again for half of
// them. One record that is refused alone is set aside: if the server answers for another one, it was that record, which is held; if
// it refuses many alike, one by one, it is the zone, and none of them is held.

import StrandlineSystem

/// The answer to a lookup.
struct LookupAnswer: Sendable {
  var request: LookupRequest
  var found: [CloudName: CloudResult]
  /// How many names were asked for in this request; those that were refused before come on top.
  var asked: Int
  /// When the server created the records that it shows and that this store has, where the end of a fetch asks for them.
  var created: [RecordID: Int64] = [:]
}

extension SyncPlan {
  mutating func lookUp(_ id: RecordID) { self[id.zone].lookups.insert(id.key) }

  /// Whether a record is to be looked up.
  func hasLookups(_ facts: some SyncFacts) -> Bool {
    if zones.values.contains(where: { !$0.lookups.isEmpty && !$0.isInQuestion }) || zoneToGoOnWith != nil {
      return true
    }
    return due.isReview && cycle.options.direction != .pushOnly && !recordsInQuestion(facts).isEmpty
  }

  mutating func chooseLookup(_ facts: some SyncFacts) throws -> Choice? {
    collectLookups(facts)
    let asked = zones.filter { !$0.value.isInQuestion }
    if let zone = asked.filter({ !$0.value.lookups.names.isEmpty }).keys.min() {
      let names = self[zone].lookups.names.sorted().prefix(limits.lookups.current)
      return .next(.ask(.lookUp(LookupRequest(names: Array(names), zone: zone, purpose: .question))))
    }
    if let zone = asked.filter({ !$0.value.lookups.isEmpty }).keys.min() {
      // There was nothing else to ask for.
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

  /// Adds what has to be looked up once in a cycle: records in question, among them those that a page could not show.
  private mutating func collectLookups(_ facts: some SyncFacts) {
    _ = takeQueuedLookups()
    guard due.isReview, cycle.options.direction != .pushOnly else { return }
    due.isReview = false
    for id in recordsInQuestion(facts) { lookUp(id) }
  }

  /// Takes what the queue wants looked up; false if that is nothing.
  mutating func takeQueuedLookups() -> Bool {
    let ids = queue.takeLookups()
    for id in ids { lookUp(id) }
    return !ids.isEmpty
  }

  /// What the log says is to be looked up. O(records in question).
  private func recordsInQuestion(_ facts: some SyncFacts) -> [RecordID] {
    let synced = synced
    return facts.learned { sync in
      return sync.openBlocks.compactMap { id, block in
        block.consequence == .lookup && sync.zones[id.zone]?.isLost != true && synced.takes(id.zone, sync) ? id : nil
      }
    }
  }

  /// A zone whose end has waited for lookups that are answered by now.
  private var zoneToGoOnWith: ZoneID? {
    zones.filter { _, zone in
      guard case .ending(let ending) = zone.phase, zone.refusal == nil, !ending.isPaused else { return false }
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
    // The server answers, so it was the records themselves that were refused before.
    let refused = self[zone].lookups.refused
    let found = found.merging(refused.answers) { found, _ in found }
    let asked = request.names.count
    var request = request
    request.names += refused.names
    let changes = request.names.compactMap { name in
      let id = RecordID(name, zone: zone)
      // What is pending of a record is sent again, or held; without that the record itself is held, and asked for no more.
      if case .failed(let error, _)? = found[name], ErrorPolicy.mayBeOfOneRecord(error), queue.waits[id] != .lookup {
        return ServerChange(id, .unreadable(error))
      }
      return ServerChange(id, answer: found[name])
    }
    var answer = LookupAnswer(request: request, found: found, asked: asked)
    if case .ending(let ending) = self[zone].phase, case .absent = ending.stage {
      for name in request.names {
        let id = RecordID(name, zone: zone)
        guard case .record(let server)? = found[name] else { continue }
        if try facts.entry(id)?.base?.isOfLife(of: server) ?? false {
          answer.created[id] = server.system.created?.milliseconds
        }
      }
    }
    steps.append(
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
    // A deletion may be settled by that, for which others wait.
    if request.names.contains(where: { found[$0]?.isNotFound == true }) {
      queue.referencesMayHaveChanged(in: zone)
    }
    let proved = try tellEnding(of: zone, answer, told: Set(changes.map(\.id.key)), facts)
    // The answer may say that the server went back in time.
    if facts.zone(zone)?.isLost == true { noteLoss(of: zone, facts) }
    for id in taken.touched.sorted() { try changed(id, facts) }
    for name in request.names {
      let id = RecordID(name, zone: zone)
      if let error = CloudError.withoutVersion(found[name]) {
        postponeLookup(of: id, error, facts)
      } else {
        if queue.waits[id] == .lookup { records.endPostponement(of: id) }
        records.shown(id)
        lookedUp(id, facts)
      }
    }
    // What the list did not show, no page will: the end of the sweep decides about it.
    for id in taken.absent where !proved.contains(id) { doubt(id) }
  }

  /// Tells the end of a zone's fetch what the server has of the records that it has asked for.
  ///
  /// - Returns: those of which that end decides.
  private mutating func tellEnding(
    of zone: ZoneID, _ answer: LookupAnswer, told: Set<CloudName>, _ facts: some SyncFacts
  ) throws -> Set<RecordID> {
    let (request, found) = (answer.request, answer.found)
    guard case .ending(var ending) = self[zone].phase else { return [] }
    var proved: Set<RecordID> = []
    switch ending.stage {
    case .absent(var proof):
      for name in request.names {
        let id = RecordID(name, zone: zone)
        let base = try facts.entry(id)?.base?.version
        // Nothing waits for the answer but the proof.
        if proof.take(found[name], of: id, created: answer.created[id], base: base), queue.waits[id] != .lookup {
          proved.insert(id)
        }
      }
      ending.stage = .absent(proof)
    case .older(var names):
      for name in request.names where names.remove(name) != nil && !told.contains(name) {
        ending.refusal = CloudError.withoutVersion(found[name])
      }
      ending.stage = .older(names)
    case .children, .finding: break
    }
    self[zone].phase = .ending(ending)
    return proved
  }

  /// The answer to a lookup does not say what the server has of a record: if that is needed to go on, it is looked up again, later
  /// and later.
  private mutating func postponeLookup(of id: RecordID, _ error: CloudError, _ facts: some SyncFacts) {
    // If no user is signed in, the next request says so; otherwise it is this record alone.
    if ErrorPolicy.item(error) == .signIn { due.isAccountKnown = false }
    guard queue.waits[id] == .lookup else { return }
    records.countUnshown(id, error)
    sendAgain(id, facts)
    failedIfNamed(.lookup, error, doing: "looking up '\(id)'", facts)
  }

  // MARK: Refusals

  mutating func refuse(_ request: LookupRequest, _ error: CloudError, _ facts: some SyncFacts) throws {
    let zone = request.zone
    switch ErrorPolicy.request(error) {
    case .signIn: throw error
    case .zoneMissing:
      lookUpLater(zone, error, facts)
      confirmLoss(of: zone, error, facts)
    case _ where ErrorPolicy.mayBeOfOneRecord(error):
      if request.names.count == 1 {
        refuseLookup(of: request.names[0], in: zone, error, facts)
      } else {
        limits.lookups.refused(request.names.count)
      }
    default:
      self[zone].refusal = error
      lookUpLater(zone, error, facts)
    }
  }

  /// A lookup of one record was refused.
  private mutating func refuseLookup(
    of name: CloudName, in zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts
  ) {
    self[zone].lookups.refused.add(name, error)
    self[zone].lookups.names.remove(name)
    guard self[zone].lookups.refused.isOfAll else { return }
    self[zone].lookups.names.formUnion(self[zone].lookups.refused.names)
    self[zone].refusal = error
    limits.lookups.reset()
    lookUpLater(zone, error, facts)
    failed(.lookup, error, doing: "looking up records of zone '\(zone)'", facts)
  }

  /// What could not be asked of a zone is asked again by the next cycle.
  private mutating func lookUpLater(_ zone: ZoneID, _ error: CloudError, _ facts: some SyncFacts) {
    self[zone].lookups.names.formUnion(self[zone].lookups.refused.names)
    for id in self[zone].lookups.names.map({ RecordID($0, zone: zone) }) where queue.waits[id] == .lookup {
      records.countUnshown(id, error)
      sendAgain(id, facts)
    }
    self[zone].lookups = LookupQueue()
    if case .ending(var ending) = self[zone].phase {
      ending.refusal = error
      self[zone].phase = .ending(ending)
    }
  }
}

extension CloudResult {
  /// Whether the server does not have the record.
  var isNotFound: Bool {
    switch self {
    case .deleted: true
    case .failed(let error, _): error.code == .notFound
    case .record: false
    }
  }
}

extension CloudError {
  /// Why an answer says nothing of what the server has of a record; nil if it does.
  fileprivate static func withoutVersion(_ result: CloudResult?) -> CloudError? {
    switch result {
    case .record?, .deleted?: nil
    case .failed(let error, _)?: error.code == .notFound ? nil : error
    case nil: CloudError(.unexpectedServerResponse, reason: "the answer to a lookup says nothing of the record")
    }
  }
}
