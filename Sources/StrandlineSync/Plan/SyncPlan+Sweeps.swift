// Removes records that the server has deleted and no feed will report: the sweep at the end of a full fetch, a mark and sweep.
//
// An expired token loses the deletions after it, so a full fetch alone would leave records here that no other device has. The
// transaction of the fetch's first page opens a sweep. Each page marks the records that it shows unchanged; changed ones get a
// base that is newer than the sweep. After the last page, each synced record with neither is looked up by name
// (AbsenceProof.swift) and removed if the server does not have it. An unsent change of it stays, and the server's answer to
// that decides. Until all lookups are answered the sweep is open, also after a relaunch, and each cycle asks again.
//
// A server that lists far fewer records than it once acknowledged may be wrong, and a zone without any synced record may be a new
// one. So a sweep that would remove many records, or all, stops, and the zone waits for a person.

import StrandlineSystem

/// Which side decides about records that this store has and the server does not have. Records that both have are synced as usual.
public enum ResyncSource: String, Hashable, Sendable, CaseIterable {
  /// The server's: records that it does not have are removed here, however many they are.
  case server
  /// This store's: records that the server does not have are uploaded again, as if they were created now.
  case here
}

extension SyncPlan {
  /// Events in one transaction.
  static let eventsAtOnce = 1_000

  /// The last page is applied: takes the next step towards the end of the zone's sweep, if one is open. The store finds the records
  /// that the feed did not show, lookups ask for them, and the answers end the sweep, perhaps in a later cycle.
  mutating func endSweep(of zone: ZoneID, _ facts: some SyncFacts) throws {
    guard let state = facts.zone(zone), state.sweepEpoch != 0 else { return try fetchEnded(of: zone, facts) }
    var ending = ending(of: zone)
    switch ending.stage {
    case .absent: return try goOnProving(zone, facts)
    case .children(let proof?): ending.stage = .absent(proof)
    case .children, .older, .finding:
      ending.stage =
        state.resetPolicy == ZoneState.keepsAbsent
        ? .absent(AbsenceProof(living: 0, age: .fetched, absent: [])) : .finding
    }
    self[zone].phase = .ending(ending)
    if case .finding = ending.stage { return addStep(.findAbsent(zone, sweep: state.sweepEpoch)) }
    try goOnProving(zone, facts)
  }

  /// Takes the next steps of the proof that records are gone: looks up more of them, removes those that the server does not have, or
  /// sets the zone aside for a person.
  package mutating func goOnProving(_ zone: ZoneID, _ facts: some SyncFacts) throws {
    guard let ending = self[zone].ending, var proof = self[zone].proof else { return }
    let state = facts.zone(zone)
    // A person has decided about the zone meanwhile: its feed begins again.
    if ending.cause == .feed, state?.sweepEpoch ?? 0 == 0 { return try fetchEnded(of: zone, facts) }
    let source = ending.cause == .feed ? ResyncSource(rawValue: state?.resetPolicy ?? "") : nil
    while true {
      var known = proof.knowledge
      known.decided = source
      if !known.isSameZone, known.gone > 0, known.living <= policies.losses.remadeFollowedMax {
        known.followsRemade = try !facts.hasPending(in: zone)
      }
      let missing = known.unasked + known.untold + known.gone
      switch known.next() {
      case .lookUp:
        self[zone].lookups.names.formUnion(proof.names(UploadPlan.operationsMax))
        self[zone].proof = proof
        return
      case .wait:
        proof.isPaused = true
        self[zone].proof = proof
        // Uploads that wait for the feed need only its last page.
        if ending.cause == .feed { sendFetched(zone, facts) }
        return
      case .ask:
        return lose(
          zone, .missingRecords,
          words: "the server lists \(known.living - missing) of the \(known.living) records that it once acknowledged")
      case .lose:
        return lose(
          zone, .deleted,
          words: "it was emptied, or deleted and created again: the server has none of its synced records "
            + "(\(String.count(missing, "record")))")
      case .remove:
        let gone = try proof.gone.filter { try facts.entry($0.id)?.base?.version == $0.version }.map(\.id)
        self[zone].proof = proof
        let premise = ending.cause == .feed ? Premise.sweep(zone, state?.sweepEpoch ?? 0) : .none
        // If a person chose the server's side, edits of these records end here: the server has said that it does not have them, and
        // a hundred refused edits would put the zone in question again.
        return remove(
          gone, from: zone, source, areGone: source == .server, if: premise,
          then: .proof(count: proof.gone.count, saysFollowed: known.followsRemade))
      case .setAside:
        // Each cycle looks them up until an answer comes. For a record that was edited meanwhile, the upload's answer decides.
        append(
          proof.takeUntold().map { id, version in
            let blocked = Blocked(
              id: id, subject: .deletion, lsn: version, births: [], consequence: .lookup,
              words: "a full fetch did not show it, and the server did not say whether it has it")
            return .event(.blocked(blocked), if: .unquestioned(id, version))
          })
      case .end:
        self[zone].proof = proof
        return try endProof(proof, of: zone, ending.cause, facts)
      }
    }
  }

  /// Nothing is absent any more.
  private mutating func endProof(
    _ proof: AbsenceProof, of zone: ZoneID, _ cause: Ending.Cause, _ facts: some SyncFacts
  ) throws {
    guard cause == .feed, let state = facts.zone(zone) else {
      self[zone].phase = .open
      return
    }
    let sweep = state.sweepEpoch
    if state.resetPolicy == ResyncSource.here.rawValue { addStep(.createAgain(zone, sweep: sweep)) }
    let (seen, removed) = (UInt64(proof.living - proof.removed), UInt64(proof.removed))
    let ended = SweepEnded(zone: zone, epoch: sweep, seen: seen, removed: removed)
    let events = [Event.sweepEnded(ended), .zoneChanged(ZoneChanged(zone: zone, change: .clean))]
    addStep(.append(AppendStep(events: events.map(SyncEvent.append), premise: .sweep(zone, sweep))))
    try fetchEnded(of: zone, facts)
  }

  /// Records that were proved to be gone have been removed.
  mutating func removedAbsent(
    _ count: Int, saysFollowed: Bool, from zone: ZoneID, _ facts: some SyncFacts
  ) throws {
    guard self[zone].proof != nil else { return }
    self[zone].proof?.removedGone()
    if saysFollowed { sayFollowed(zone, facts) }
    try goOnProving(zone, facts)
  }

  /// Removes records that the server does not have, or creates them again.
  ///
  /// - Parameters:
  ///   - areGone: edits of them end here too, because the server need not, or cannot, be asked.
  ///   - then: what follows when all are removed.
  mutating func remove(
    _ absent: [RecordID], from zone: ZoneID, _ source: ResyncSource?, areGone: Bool = false, if premise: Premise,
    then: AnswerStep.Removal = .part
  ) {
    for start in stride(from: 0, to: max(1, absent.count), by: Self.eventsAtOnce) {
      let end = min(absent.count, start + Self.eventsAtOnce)
      let changes = absent[start..<end].map { id in
        let isGone = areGone || records[id].doubt == .wholeFeed
        return ServerChange(id, .unseen(source == .here ? .createdAgain : isGone ? .removed : .removedUnlessEdited))
      }
      let cause = AnswerStep.Cause.removal(zone, end == absent.count ? then : .part)
      addStep(.answers(AnswerStep(premise: premise, changes: changes, source: .fullFetch, cause: cause)))
    }
  }

  /// A person, or a rule, lets the server decide about a zone that it does not have: the synced records are removed.
  mutating func removeAll(_ synced: [RecordID], of zone: ZoneID, _ facts: some SyncFacts) {
    // After a rule, pending changes create the zone again, so edits of these records must end now.
    let ruled = facts.zone(zone)?.ruledMilliseconds ?? 0
    if !synced.isEmpty { remove(synced, from: zone, .server, areGone: ruled != 0, if: .removes(zone)) }
    let unread = facts.learned { $0.unread.keys.filter { $0.zone == zone }.sorted() }
    var events = unread.map { SyncEvent.event(.released(Released(id: $0, lsn: .zero)), if: .unread($0)) }
    let ended = SweepEnded(zone: zone, epoch: 0, seen: 0, removed: UInt64(synced.count))
    let lost = ZoneChanged.lost(
      zone, .erased, words: "the server does not have it, and the app has accepted that", policy: "remove",
      ruledMilliseconds: ruled)
    events += [.append(.sweepEnded(ended)), .append(.zoneChanged(lost))]
    addStep(.append(AppendStep(events: events, premise: .removes(zone), touched: unread)))
    self[zone].feed = Feed()
    sendFetched(zone, facts)
  }

  /// Appends events, a thousand in a transaction.
  package mutating func append(_ events: [SyncEvent], touching ids: [RecordID] = []) {
    for start in stride(from: 0, to: events.count, by: Self.eventsAtOnce) {
      let some = events[start..<min(events.count, start + Self.eventsAtOnce)]
      let isLast = some.endIndex == events.count
      addStep(.append(AppendStep(events: Array(some), touched: isLast ? ids : [])))
    }
  }
}
