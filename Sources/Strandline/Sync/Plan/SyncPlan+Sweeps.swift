// The end of a full fetch: what was synced and the server does not have is gone.
//
// A token that expires takes with it the deletions that lay behind it, so a full fetch alone would leave records here for
// ever that no other device has. The sweep begins in the transaction of the fetch's first page. Each page confirms the
// records that it shows unchanged; the others have a base that is newer than the sweep. When the last page is in, each
// record that neither is true of is looked up by its name (AbsenceProof.swift), and removed if the server does not have it,
// with its births in the deletion index; a change of it that is not sent stays, and what the server says to that decides.
// Until the lookups are answered the sweep is open: the zone stays due, also after a relaunch, and the next run asks again.
//
// A server that lists much less than it once acknowledged may be wrong, and a zone of which nothing is left may be another
// one. So a sweep that would remove much, or everything, stops, and the zone waits for a person.

import StrandlineSystem

/// Which side of a zone decides where this store has records that the server does not have. What both have is synced as ever.
public enum ResyncSource: String, Hashable, Sendable, CaseIterable {
  /// The server's: what it does not have is removed here, however much that is.
  case server
  /// This store's: what the server does not have is uploaded again, as if it were created now.
  case here
}

extension SyncPlan {
  /// Events in one transaction.
  static let eventsAtOnce = 1_000

  /// Ends the zone's sweep, if one is open and all that it depends on is known: the last page is in. Else the store looks for what
  /// the feed has not shown, or lookups are due, or the next cycle goes on with it.
  mutating func endSweep(of zone: ZoneID, _ facts: some SyncFacts) throws {
    guard let state = facts.zone(zone), state.sweepEpoch != 0 else { return try fetchEnded(of: zone, facts) }
    var ending = ending(of: zone)
    switch ending.stage {
    case .absent: return try goOnProving(zone, facts)
    case .children(let proof?):
      ending.stage = .absent(proof)
      self[zone].phase = .ending(ending)
      return try goOnProving(zone, facts)
    case .children, .older, .finding: break
    }
    guard state.resetPolicy == ZoneState.keepsAbsent else {
      ending.stage = .finding
      self[zone].phase = .ending(ending)
      return steps.append(.findAbsent(zone, sweep: state.sweepEpoch))
    }
    ending.stage = .absent(AbsenceProof(living: 0, knownSince: 0, absent: []))
    self[zone].phase = .ending(ending)
    try goOnProving(zone, facts)
  }

  /// Goes on with the proof that records are gone: has the next ones looked up, removes what the server does not have, or lets
  /// the zone wait for a person.
  mutating func goOnProving(_ zone: ZoneID, _ facts: some SyncFacts) throws {
    guard case .ending(var ending) = self[zone].phase, case .absent(var proof) = ending.stage else { return }
    let state = facts.zone(zone)
    // A person has decided about the zone meanwhile: its feed begins again.
    if ending.cause == .feed, state?.sweepEpoch ?? 0 == 0 { return try fetchEnded(of: zone, facts) }
    let source = ending.cause == .feed ? ResyncSource(rawValue: state?.resetPolicy ?? "") : nil
    func keep(_ proof: AbsenceProof) {
      ending.stage = .absent(proof)
      self[zone].phase = .ending(ending)
    }
    while true {
      var known = proof.knowledge
      known.decided = source
      if !known.isSameZone, known.gone > 0, known.living <= policies.losses.remadeFollowedMax {
        known.followsRemade = try facts.pendingCount(in: zone) == 0
      }
      let missing = known.unasked + known.untold + known.gone
      switch known.next() {
      case .lookUp:
        self[zone].lookups.names.formUnion(proof.names(UploadPlan.operationsMax))
        return keep(proof)
      case .wait:
        proof.isPaused = true
        keep(proof)
        // The last page is in, which is what they wait for.
        if ending.cause == .feed { sendFetched(zone, facts) }
        return
      case .ask:
        return freeze(
          zone, .missingRecords,
          "the server lists \(known.living - missing) of the \(known.living) records that it once acknowledged")
      case .lose:
        return freeze(
          zone, .deleted,
          "it was emptied, or deleted and made again: the server has nothing of what this store knows of it "
            + "(\(String.count(missing, "record")))")
      case .remove:
        let gone = try proof.gone.filter { try facts.entry($0.id)?.base?.version == $0.version }.map(\.id)
        keep(proof)
        let premise = ending.cause == .feed ? Premise.sweep(zone, state?.sweepEpoch ?? 0) : .none
        // The side was decided on, and the server was asked for each: what it would say to an edit is known. Sent all the same, a
        // hundred refused edits would put the zone in question again.
        return remove(
          gone, from: zone, source, areGone: source == .server, if: premise,
          then: .proof(count: proof.gone.count, saysFollowed: known.followsRemade))
      case .setAside:
        // They are looked up in each cycle until an answer says it. Of what was edited meanwhile, the answer to the edit says it.
        append(
          proof.takeUntold().map { id, version in
            let blocked = Blocked(
              id: id, subject: .deletion, lsn: version, births: [], consequence: .lookup,
              words: "a full fetch did not show it, and the server did not say whether it has it")
            return .event(.blocked(blocked), if: .unquestioned(id, version))
          })
      case .end:
        keep(proof)
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
    if state.resetPolicy == ResyncSource.here.rawValue { steps.append(.createAgain(zone, sweep: sweep)) }
    let (seen, removed) = (UInt64(proof.living - proof.removed), UInt64(proof.removed))
    let ended = SweepEnded(zone: zone, epoch: sweep, seen: seen, removed: removed)
    let events = [Event.sweepEnded(ended), .zoneChanged(ZoneChanged(zone: zone, change: .clean))]
    steps.append(.append(AppendStep(events: events.map(SyncEvent.append), premise: .sweep(zone, sweep))))
    try fetchEnded(of: zone, facts)
  }

  /// What was proved to be gone has been removed.
  mutating func removedAbsent(
    _ count: Int, saysFollowed: Bool, from zone: ZoneID, _ facts: some SyncFacts
  ) throws {
    guard case .ending(var ending) = self[zone].phase, case .absent(var proof) = ending.stage else { return }
    proof.removedGone()
    ending.stage = .absent(proof)
    self[zone].phase = .ending(ending)
    if saysFollowed { sayFollowed(zone, facts) }
    try goOnProving(zone, facts)
  }

  /// Removes records that the server does not have, or creates them again.
  ///
  /// - Parameters:
  ///   - areGone: the server need not, or cannot, be asked about those that were edited here.
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
      steps.append(.answers(AnswerStep(premise: premise, changes: changes, source: .fullFetch, cause: cause)))
    }
  }

  /// A person lets the server's side of a zone decide, and the server does not have the zone: what was synced is removed.
  mutating func removeAll(_ synced: [RecordID], of zone: ZoneID, _ facts: some SyncFacts) {
    // No request would ask about an edit: for what is pending after a rule the zone is made again.
    let ruled = facts.zone(zone)?.ruledMilliseconds ?? 0
    if !synced.isEmpty { remove(synced, from: zone, .server, areGone: ruled != 0, if: .removes(zone)) }
    let unread = facts.learned { $0.unread.keys.filter { $0.zone == zone }.sorted() }
    var events = unread.map { SyncEvent.event(.released(Released(id: $0, lsn: .none)), if: .unread($0)) }
    let ended = SweepEnded(zone: zone, epoch: 0, seen: 0, removed: UInt64(synced.count))
    let lost = ZoneChanged.lost(
      zone, .erased, words: "the server does not have it, and the app lets that stand", policy: "remove",
      ruledMilliseconds: ruled)
    events += [.append(.sweepEnded(ended)), .append(.zoneChanged(lost))]
    steps.append(.append(AppendStep(events: events, premise: .removes(zone), touched: unread)))
    self[zone].feed = Feed()
    sendFetched(zone, facts)
  }

  /// Nothing is removed without a question.
  private mutating func freeze(_ zone: ZoneID, _ reason: ZoneLoss, _ words: String) {
    lose(zone, reason, words: words)
  }

  /// Appends events, a thousand in a transaction.
  mutating func append(_ events: [SyncEvent], touching ids: [RecordID] = []) {
    for start in stride(from: 0, to: events.count, by: Self.eventsAtOnce) {
      let some = events[start..<min(events.count, start + Self.eventsAtOnce)]
      let isLast = some.endIndex == events.count
      steps.append(.append(AppendStep(events: Array(some), touched: isLast ? ids : [])))
    }
  }
}
