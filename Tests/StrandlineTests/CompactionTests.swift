// Goal: the fold of a compacted log is that of the whole one. Method: short histories, event by event, against what must
// stay of each kind; stores that lose power at every call; stores that are written, read and synced meanwhile.
// The strongest proof is elsewhere: fleets whose devices compact at random moments (FleetTests) fold their logs anew
// after every step.

import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import StrandlineTestSupport
import Testing

@testable import Strandline

private let zone = ZoneID.main
private let r = RecordID("r")
private let s = RecordID("s")

private func time(_ count: UInt16) -> HybridTime { HybridTime(milliseconds: 1_767_225_600_000, count: count) }
private func birth(_ count: UInt16) -> Birth { Birth(time: time(count), writer: 5) }
private let opened = Event.opened(Opened(writer: 5, storeUUID: Array(0..<16), tenure: 1))

private func saved(
  _ id: RecordID, _ count: UInt16, base: UInt64 = 0, birth: UInt16 = 1, type: String = "Note"
) -> Event {
  var version = Version(type: type, fields: ["title": .string("\(count)")])
  version.stamp.births = [Birth(time: time(birth), writer: 5)]
  return .saved(
    Saved(
      id: id, type: type, births: version.stamp.births, base: LSN(base), time: time(count), editCount: 1, tenure: 1,
      isCreation: base == 0, content: EncodedContent(version, dirty: ["title": .zero])))
}

private func merged(_ id: RecordID, _ count: UInt16, base: UInt64, local: UInt64) -> Event {
  var version = Version(type: "Note", fields: ["title": .string("\(count)")])
  version.stamp.births = [birth(1)]
  return .merged(
    Merged(
      id: id, version: version, dirty: ["title": .zero], base: LSN(base), local: LSN(local), time: time(count),
      editCount: 1, tenure: 1, rule: Merged.joinRule))
}

private func fetched(_ id: RecordID, _ count: UInt16, tag: String, birth: UInt16 = 1) -> Event {
  var version = Version(type: "Note", fields: ["title": .string("\(count)")])
  version.stamp.births = [Birth(time: time(birth), writer: 5)]
  version.stamp.fields["title"] = FieldStamp(time: time(count), writer: 6)
  return .fetchedSave(
    FetchedSave(
      id: id, version: version,
      system: SystemFields(
        changeTag: tag, created: ServerTimestamp(milliseconds: Int64(birth)),
        modified: ServerTimestamp(milliseconds: Int64(count))),
      source: .feed, isStamped: true))
}

private func deleted(_ id: RecordID, _ count: UInt16, base: UInt64 = 0, births: UInt16...) -> Event {
  .deleted(Deleted(id: id, births: Set(births.map(birth)), base: LSN(base), time: time(count), tenure: 1))
}

private func gone(_ id: RecordID, births: UInt16...) -> Event {
  .fetchedDelete(FetchedDelete(id: id, births: Set(births.map(birth)), reason: .feed))
}

private func settled(_ id: RecordID, _ lsn: UInt64, _ outcome: Outcome, tag: String? = nil) -> Event {
  .settled(
    Settled(
      id: id, lsn: LSN(lsn), outcome: outcome, changeTag: tag,
      created: tag.map { _ in ServerTimestamp(milliseconds: 1) },
      modified: tag.map { _ in ServerTimestamp(milliseconds: 2) }))
}

private func sent(_ lsns: UInt64...) -> Event { .sent(Sent(batch: 1, zone: zone, lsns: lsns.map { LSN($0) })) }

private func databaseToken(_ scope: DatabaseScope, _ asked: String?, _ token: String) -> Event {
  .databaseTokenAdvanced(
    DatabaseTokenAdvanced(
      scope: scope, asked: asked.map { ChangeToken(rawValue: $0) }, token: ChangeToken(rawValue: token)))
}

private func token(_ zone: ZoneID, _ asked: String?, _ token: String) -> Event {
  .tokenAdvanced(
    TokenAdvanced(
      zone: zone, asked: asked.map { ChangeToken(rawValue: $0) }, token: ChangeToken(rawValue: token)))
}

private func changed(_ change: ZoneChanged.Change) -> Event { .zoneChanged(ZoneChanged(zone: zone, change: change)) }

private func held(_ id: RecordID, _ lsn: UInt64, _ direction: Held.Direction = .upload) -> Event {
  .held(Held(id: id, direction: direction, lsn: LSN(lsn), code: "X", words: "no", attempts: 1, wallMilliseconds: 1))
}

private func blocked(_ id: RecordID, _ consequence: Blocked.Consequence) -> Event {
  .blocked(Blocked(id: id, subject: .version, births: [], consequence: consequence, words: "?"))
}

private func pace(_ milliseconds: Int64, _ scope: DatabaseScope = .private) -> Event {
  .pace(Pace(scope: scope, durationMilliseconds: milliseconds, wallMilliseconds: 1, isServers: true, reason: "later"))
}

private func bound(_ scope: DatabaseScope) -> Event {
  .bound(Bound(container: "c", environment: "development", scope: scope, userHash: 1))
}

/// A log in memory: events with their LSNs.
private struct History {
  var events: [(lsn: UInt64, event: Event)]

  init(_ events: [Event]) { self.events = events.enumerated().map { (UInt64($0.offset) + 1, $0.element) } }

  func folded() throws -> Projections {
    var projections = Projections()
    for (lsn, event) in events { try projections.apply(event, at: LSN(lsn), isDurable: true) }
    return projections
  }

  /// The same as a log has them.
  var found: [LogEvent] {
    events.map { lsn, event in
      LogEvent(
        lsn: lsn, schema: EventCodec.schema, body: EventCodec.encode(event), indexInTransaction: 0, isFirst: true,
        isLast: true, segmentID: 0, offset: 0)
    }
  }

  static func folding(_ body: (inout SpillingFold) throws -> Void) throws {
    var fold = SpillingFold()
    try body(&fold)
  }

  func plan(_ proof: CompactionProof) throws -> CompactionPlan {
    let found = found
    return try CompactionPlan(
      state: folded(), proof: proof, read: { body in for event in found { try body([event]) } }, folding: Self.folding)
  }

  func survivors(of plan: CompactionPlan) throws -> [LogSurvivor] {
    var survivors = Survivors(of: plan)
    return try survivors.of(found)
  }

  /// What stays; the fold must be the same, and no record may need all of its events. The rules alone make the same plan.
  func compacted(keepingWhole: Int = 0) throws -> History {
    let plan = try plan(.both)
    var result = History([])
    let survivors = try survivors(of: plan)
    for survivor in survivors { result.events.append((survivor.lsn, try EventCodec.decode(survivor.body))) }
    #expect(try self.survivors(of: self.plan(.rules)) == survivors)
    let difference = try result.folded().difference(from: folded())
    #expect(difference.isEmpty, "\(difference.words)")
    #expect(try result.folded().outbox.newest == folded().outbox.newest)
    #expect(try result.folded().outbox.since == folded().outbox.since)
    #expect(try result.folded().outbox.attempted == folded().outbox.attempted)
    #expect(plan.recordsKeptWhole == keepingWhole)
    return result
  }

  /// LSN and kind of every event.
  var kinds: [String] { events.map { "\($0.lsn) \($0.event.kindName)" } }
}

@Suite(.timeLimit(.minutes(30))) struct CompactionPlanTests {
  @Test func `a base stays with what names it, and nothing before it`() throws {
    let history = History([
      opened, saved(r, 1), sent(2), settled(r, 2, .saved, tag: "a"), saved(r, 2, base: 4), sent(5),
      settled(r, 5, .saved, tag: "b"), fetched(s, 3, tag: "x"), fetched(s, 4, tag: "y"),
    ])
    let left = try history.compacted()
    #expect(left.kinds == ["1 opened", "5 saved", "7 settled", "9 fetchedSave"])
    #expect(try left.compacted().kinds == left.kinds)
  }

  @Test func `a merge that was acknowledged is a base without the version it was merged with`() throws {
    let left = try History([
      opened, saved(r, 1), fetched(r, 2, tag: "a"), merged(r, 3, base: 3, local: 2), sent(4),
      settled(r, 4, .saved, tag: "b"),
    ]).compacted()
    #expect(left.kinds == ["1 opened", "4 merged", "6 settled"])
  }

  @Test func `of many unsettled saves stay the newest, and of the first its time`() throws {
    var events = [opened, fetched(r, 1, tag: "a")]
    for count in 2..<40 { events.append(saved(count % 3 == 0 ? s : r, UInt16(count), base: count % 3 == 0 ? 0 : 2)) }
    let history = History(events)
    let left = try history.compacted()
    #expect(
      left.kinds == ["1 opened", "2 fetchedSave", "3 superseded", "4 superseded", "39 saved", "40 saved"])
    guard case .superseded(let first) = left.events[2].event else { Issue.record("no first save"); return }
    #expect(first == Superseded(id: r, type: "Note", time: time(2)))
    // More of them, compacted again.
    var more = left
    for lsn in 41...60 as ClosedRange<UInt64> { more.events.append((lsn, saved(r, UInt16(lsn), base: 2))) }
    let again = try more.compacted()
    #expect(
      again.kinds == ["1 opened", "2 fetchedSave", "3 superseded", "4 superseded", "40 saved", "60 saved"])
    #expect(try again.folded().entry(r)?.pending?.first == LSN(3))
  }

  @Test func `what is attempted stays whole, with the first attempt alone, cut to it, and what followed it`() throws {
    let left = try History([
      opened, saved(r, 1), saved(s, 2), sent(2, 3), sent(2, 3), settled(s, 3, .saved, tag: "a"), saved(r, 3),
      saved(r, 4),
    ]).compacted()
    #expect(left.kinds == ["1 opened", "2 saved", "3 saved", "4 sent", "6 settled", "7 superseded", "8 saved"])
    guard case .sent(let attempt) = left.events[3].event else { Issue.record("no attempt"); return }
    #expect(attempt.lsns == [LSN(2)])
    #expect(try left.folded().outbox.attempted.all() == [LSN(2)])
    // The answer comes: what is owed began with the next save.
    var answered = left
    answered.events.append((9, settled(r, 2, .saved, tag: "b")))
    #expect(try answered.folded().entry(r)?.pending == Pending(isDeletion: false, newest: LSN(8), first: LSN(7)))
    #expect(try answered.folded().entry(r)?.base?.content == LSN(2))
    #expect(
      try answered.compacted().kinds == [
        "1 opened", "2 saved", "3 saved", "4 sent", "6 settled", "7 superseded", "8 saved", "9 settled",
      ])
  }

  @Test func `several attempts of a record, with saves between them, are owed as before`() throws {
    let history = History([
      opened, saved(r, 1), saved(r, 2), sent(3), saved(r, 3), saved(r, 4), sent(6), saved(r, 5), saved(r, 6),
    ])
    let pending = try history.folded().entry(r)?.pending
    #expect(
      pending
        == Pending(
          isDeletion: false, newest: LSN(9), first: LSN(2),
          attempts: [Pending.Attempt(lsn: LSN(3), next: LSN(5)), Pending.Attempt(lsn: LSN(6), next: LSN(8))]))
    #expect(
      try history.compacted().kinds == [
        "1 opened", "2 superseded", "3 saved", "4 sent", "5 superseded", "6 saved", "7 sent", "8 superseded", "9 saved",
      ])
    var answered = try history.compacted()
    answered.events.append((10, settled(r, 6, .saved, tag: "b")))
    #expect(try answered.folded().entry(r)?.pending == Pending(isDeletion: false, newest: LSN(9), first: LSN(8)))
    #expect(
      try answered.compacted().kinds == ["1 opened", "6 saved", "7 sent", "8 superseded", "9 saved", "10 settled"])
  }

  @Test func `a settled deletion becomes an entry that decides as the index did`() throws {
    let history = History([
      opened, fetched(r, 1, tag: "a"), deleted(r, 2, base: 2, births: 1), sent(3), settled(r, 3, .deleted),
      fetched(s, 3, tag: "b", birth: 2), gone(s, births: 2), gone(RecordID("never known")),
    ])
    let left = try history.compacted()
    #expect(left.kinds == ["1 opened", "8 deletions"])
    let (index, full) = (try left.folded(), try history.folded())
    for id in [r, s, RecordID("never known"), RecordID("other")] {
      #expect(try index.deletion(id) == full.deletion(id), "\(id)")
      for births in [[birth(1)], [birth(2)], [birth(1), birth(2)], []] as [Set<Birth>] {
        let (left, had) = (try index.deletion(id)?.births, try full.deletion(id)?.births)
        #expect(left?.isSuperset(of: births) == had?.isSuperset(of: births))
      }
    }
    let r1 = try index.deletion(r)
    #expect(r1?.isLocal == true && r1?.changeTag == "a" && r1?.lsn == LSN(3))
    let s1 = try index.deletion(s)
    #expect(s1?.isLocal == false && s1?.createdMilliseconds == 2)
    #expect(index.deletions.count == 3)
    // A second life ends: both are known, in one entry.
    var more = left
    more.events += [(9, fetched(s, 5, tag: "c", birth: 4)), (10, gone(s, births: 4))]
    let again = try more.compacted()
    #expect(again.kinds == ["1 opened", "10 deletions"])
    #expect(try again.folded().deletion(s)?.births == [birth(2), birth(4)])
  }

  @Test func `a packed name that this device never had is some 50 bytes, and a pack has 16,384 of them`() throws {
    let names = (0..<20_000).map { number in
      RecordID(String(repeating: "0", count: 36 - "\(number)".count) + "\(number)")
    }
    let left = try History([opened] + names.map { gone($0) }).compacted()
    var (counts, bytes) = ([Int](), 0)
    for (_, event) in left.events {
      guard case .deletions(let packed) = event else { continue }
      counts.append(packed.items.count)
      bytes += EventCodec.encode(event).count
    }
    #expect(counts == [16_384, 3_616])
    #expect(bytes / names.count == 50)
  }

  @Test func `an unsettled deletion stays, and before it what was deleted under the name earlier`() throws {
    let events = [
      opened, fetched(r, 1, tag: "a"), gone(r, births: 1), fetched(r, 2, tag: "b", birth: 2),
      deleted(r, 3, base: 4, births: 2),
    ]
    let left = try History(events).compacted()
    #expect(left.kinds == ["1 opened", "3 deletions", "4 fetchedSave", "5 deleted"])
    #expect(try left.folded().deletion(r)?.provisional == [birth(2)])
    // The server refuses it: the record lives, and its first life stays dead.
    var refused = left
    refused.events.append((6, settled(r, 5, .rejected)))
    #expect(try refused.folded().deletion(r)?.births == [birth(1)])
    #expect(try refused.compacted().kinds == ["1 opened", "4 fetchedSave", "5 deletions"])
  }

  @Test func `a deletion of the server's is packed behind an unsettled one, and is the newer`() throws {
    let history = History([
      opened, saved(r, 1), deleted(r, 2, births: 1), gone(r, births: 1, 2), saved(s, 3),
    ])
    let left = try history.compacted()
    #expect(left.kinds == ["1 opened", "2 superseded", "3 deleted", "4 deletions", "5 saved"])
    var folded = try left.folded()
    #expect(try folded.deletion(r) == history.folded().deletion(r))
    #expect(folded.deletions.count == 1)
    // In memory the name stands once, also beside a flush that fails.
    #expect(folded.brokenInvariant() == nil, "\(folded.brokenInvariant() ?? "")")
    _ = folded.beginFlush(upTo: LSN(5))
    folded.cancelFlush()
    #expect(folded.brokenInvariant() == nil, "\(folded.brokenInvariant() ?? "")")
    #expect(try folded.deletion(r)?.lsn == LSN(4))
  }

  @Test func `the first save before an unsettled deletion stays without its content`() throws {
    let left = try History([opened, saved(r, 1), saved(s, 2), saved(r, 3), deleted(r, 4, births: 1), saved(s, 5)])
      .compacted()
    #expect(left.kinds == ["1 opened", "2 superseded", "3 superseded", "5 deleted", "6 saved"])
  }

  @Test func `the engine's memory stays as the last events that wrote each part`() throws {
    let left = try History([
      opened, bound(.private), changed(.created), changed(.dirty), databaseToken(.private, nil, "d1"),
      token(zone, nil, "z1"), token(zone, "z1", "z2"), changed(.clean), changed(.dirty),
      databaseToken(.private, "d1", "d2"), token(zone, "z2", "z3"), changed(.clean), pace(1), pace(2), opened,
      .zoneChanged(.lost(zone, .purged, words: "why")), changed(.reset), bound(.private),
    ]).compacted()
    #expect(
      left.kinds == [
        "1 opened", "3 zoneChanged", "6 tokenAdvanced", "9 zoneChanged", "10 databaseTokenAdvanced", "11 tokenAdvanced",
        "12 zoneChanged", "14 pace", "15 opened", "16 zoneChanged", "17 zoneChanged", "18 bound",
      ])
    #expect(try left.folded().sync.zones[zone]?.hasGhosts == true)
    #expect(try left.folded().sync.zones[zone]?.isLost == false)
  }

  /// Account, token and wait of one database do not replace those of the other.
  @Test func `the engine's memory of two databases stays for each`() throws {
    let shared = ZoneID("Notes", owner: "_other", scope: .shared)
    let left = try History([
      opened, bound(.private), bound(.shared), databaseToken(.private, nil, "p1"), databaseToken(.shared, nil, "s1"),
      pace(1, .shared), databaseToken(.private, "p1", "p2"), pace(2), token(zone, nil, "z1"), token(shared, nil, "z2"),
      .zoneChanged(.lost(shared, .encryptedDataReset, words: "gone")),
    ]).compacted()
    #expect(
      left.kinds == [
        "1 opened", "2 bound", "3 bound", "5 databaseTokenAdvanced", "6 pace", "7 databaseTokenAdvanced", "8 pace",
        "9 tokenAdvanced", "10 tokenAdvanced", "11 zoneChanged",
      ])
    let sync = try left.folded().sync
    #expect(sync.databaseTokens.mapValues(\.rawValue) == [.private: "p2", .shared: "s1"])
    #expect(sync.paces.mapValues(\.durationMilliseconds) == [.private: 2, .shared: 1])
    #expect(Set(sync.bounds.keys) == [.private, .shared])
    #expect(sync.zones[zone]?.token?.rawValue == "z1" && sync.zones[shared]?.token?.rawValue == "z2")
    #expect(sync.zones[shared]?.lostReason == .encryptedDataReset && sync.zones[zone]?.lostReason == nil)
  }

  @Test func `holds and blocks stay while they hold`() throws {
    let left = try History([
      opened, saved(r, 3), held(r, 2), .released(Released(id: r, lsn: LSN(2))), held(r, 2), saved(s, 2), held(s, 6),
      settled(s, 6, .discarded), blocked(r, .lookup), blocked(s, .lookup), blocked(s, .none),
      held(RecordID("unread"), 0, .download),
    ]).compacted()
    #expect(left.kinds == ["1 opened", "2 saved", "5 held", "9 blocked", "12 held"])
    #expect(try left.folded().sync.unread.count == 1 && left.folded().sync.held.count == 1)
  }

  @Test func `the clock does not go back when the newest event goes`() throws {
    let cancelled = History([opened, saved(r, 9), settled(r, 2, .cancelled)])
    let left = try cancelled.compacted()
    #expect(left.kinds == ["1 opened", "2 deletions"])
    #expect(try left.folded().sync.latest == time(9))
    #expect(try left.compacted().kinds == left.kinds)
    // If there is a pack already, the pack holds the time.
    let dead = try History([opened, fetched(r, 9, tag: "a"), gone(r, births: 1)]).compacted()
    #expect(dead.kinds == ["1 opened", "3 deletions"])
    #expect(try dead.folded().sync.latest == time(9))
  }

  @Test func `a record to which no rule applies keeps all its events`() throws {
    // Deleted while its second save was under way, whose answer came later: the index says what the base was then.
    let history = History([
      opened, fetched(r, 1, tag: "a"), saved(r, 2, base: 2), sent(3), deleted(r, 3, base: 2, births: 1),
      settled(r, 3, .saved, tag: "b"), fetched(s, 4, tag: "x"), fetched(s, 5, tag: "y"),
    ])
    let left = try history.compacted(keepingWhole: 1)
    #expect(
      left.kinds == ["1 opened", "2 fetchedSave", "3 saved", "4 sent", "5 deleted", "6 settled", "8 fetchedSave"])
  }

  @Test func `events of kinds that no rule names stay`() throws {
    let asset = Event.assetUploaded(
      AssetUploaded(id: r, lsn: LSN(1), field: "f", receipt: "p", wallMilliseconds: 1))
    #expect(try History([opened, asset]).compacted().kinds.count == 2)
  }

  @Test func `names that a zone has listed stay until they are fetched`() throws {
    let name = Listed.Item(name: "n", changeTag: "a", modifiedMilliseconds: 1)
    let (listed, none) = (
      Event.listed(Listed(zone: zone, items: [name])), Event.listed(Listed(zone: zone, items: []))
    )
    func ended(_ lsn: UInt64) -> Event { .listedEnded(ListedEnded(zone: zone, lsns: [LSN(lsn)])) }
    let open = try History([opened, listed, none, listed, ended(2)]).compacted()
    #expect(open.kinds == ["1 opened", "4 listed"])
    #expect(try open.folded().sync.listed[zone]?.events == [LSN(4): 1])
    #expect(try History([opened, listed, listed, ended(2), ended(3)]).compacted().kinds == ["1 opened"])
    let reset = Event.zoneChanged(ZoneChanged(zone: zone, change: .reset))
    #expect(try History([opened, listed, reset]).compacted().kinds == ["1 opened", "3 zoneChanged"])
  }

  @Test func `of the conflicts of a record the newest sixteen stay while it lives, at each compaction`() throws {
    func met(_ id: RecordID, _ lsn: UInt64) -> Event {
      .conflicted(
        Conflicted(
          id: id, local: LSN(lsn), server: .zero, ancestor: .zero, wallMilliseconds: 5, rule: "join", words: "",
          fields: []))
    }
    var events = [opened, saved(r, 1), saved(s, 2)]
    for _ in 0..<20 { events.append(met(r, 2)) }
    events += [met(s, 3), met(s, 3)]
    let once = try History(events).compacted()
    #expect(once.kinds == ["1 opened", "2 saved", "3 saved"] + (8...25).map { "\($0) conflicted" })
    var again = once
    again.events.append((26, met(r, 2)))
    #expect(try again.compacted().kinds.suffix(18) == (9...26).map { "\($0) conflicted" })
    #expect(try again.compacted().compacted().kinds.count == 21)
    again.events += [(27, deleted(s, 4, births: 2)), (28, settled(s, 27, .deleted))]
    let left = try again.compacted().kinds.filter { $0.hasSuffix("conflicted") }
    #expect(left == ((9...23) + [26]).map { "\($0) conflicted" })
  }

  @Test func `a token that the end of its zone has dropped does not come back with a later loss`() throws {
    func lost(_ reason: ZoneLoss, ruled: Int64 = 0) -> Event {
      .zoneChanged(.lost(zone, reason, words: "", ruledMilliseconds: ruled))
    }
    let token = Event.tokenAdvanced(TokenAdvanced(zone: zone, asked: nil, token: ChangeToken(rawValue: "t")))
    let dirty = changed(.dirty)
    let compacted = try History([opened, token, dirty, lost(.erased, ruled: 7), dirty, lost(.notFound)]).compacted()
    #expect(compacted.kinds == ["1 opened", "2 tokenAdvanced", "4 zoneChanged", "5 zoneChanged", "6 zoneChanged"])
    let state = try compacted.folded().sync.zones[zone]
    #expect(state?.token == nil && state?.lostReason == .notFound && state?.ruledMilliseconds == 7)
  }
}

/// What a judge says of what stays, and of rows that are not what the events say.
@Suite(.timeLimit(.minutes(30))) struct `The judges of a compaction` {
  private static let names = ["fetched", "taken", "edited", "sent", "gone", "dying", "new", "again"].map {
    RecordID($0)
  }

  /// One record of each kind of row, a conflict, and a part of the engine's memory.
  private static let history: History = {
    let (fetchedID, taken, edited, attempted) = (names[0], names[1], names[2], names[3])
    let (dead, dying, new, again) = (names[4], names[5], names[6], names[7])
    return History([
      opened, fetched(fetchedID, 1, tag: "a"), fetched(fetchedID, 2, tag: "b"),  // 1 to 3
      saved(taken, 3), sent(4), settled(taken, 4, .saved, tag: "c"),  // 4 to 6
      saved(edited, 4), saved(edited, 5), saved(edited, 6),  // 7 to 9
      saved(attempted, 7), sent(10), saved(attempted, 8),  // 10 to 12
      fetched(dead, 9, tag: "d"), gone(dead, births: 1),  // 13, 14
      saved(dying, 10), deleted(dying, 11, births: 1),  // 15, 16
      .conflicted(
        Conflicted(
          id: fetchedID, local: LSN(2), server: LSN(3), ancestor: .zero, wallMilliseconds: 5, rule: "join", words: "",
          fields: [])),  // 17
      token(zone, nil, "t1"), token(zone, "t1", "t2"),  // 18, 19
      fetched(again, 12, tag: "e"), gone(again, births: 1), saved(again, 13, birth: 2), saved(new, 14),  // 20 to 23
    ])
  }()

  /// A mistake in what stays.
  struct Mistake: CustomTestStringConvertible, Sendable {
    var testDescription: String
    /// What stays of an event; nil: nothing does.
    var change: @Sendable (UInt64, Event) -> Event?
    /// Whether records are others by it: a replay does not ask for values.
    var isSeenByFold = true

    init(_ words: String, isSeenByFold: Bool = true, change: @escaping @Sendable (UInt64, Event) -> Event?) {
      (testDescription, self.isSeenByFold, self.change) = (words, isSeenByFold, change)
    }

    init(_ words: String, losing lsn: UInt64) { self.init(words) { $0 == lsn ? nil : $1 } }
  }

  static let mistakes: [Mistake] = [
    Mistake("a save that is owed is left out", losing: 23),
    Mistake("the version that the server holds is left out", losing: 3),
    Mistake("the content of an acknowledged save is lost", losing: 4),
    Mistake("the answer of the server is lost", losing: 6),
    Mistake("an attempt is lost", losing: 11),
    Mistake("what was attempted is lost", losing: 10),
    Mistake("since when a record is owed is lost", losing: 7),
    Mistake("the last event of a part of the engine's memory is lost", losing: 19),
    Mistake("the tenure of the writer is lost", losing: 1),
    Mistake("a deletion that is owed is lost", losing: 16),
    Mistake("a conflict is lost", losing: 17),
    Mistake("a packed deletion is lost") { lsn, event in
      guard case .deletions(var packed) = event else { return event }
      packed.items.removeAll { $0.id == names[4] }
      return .deletions(packed)
    },
    Mistake("a packed deletion has lost its life") { lsn, event in
      guard case .deletions(var packed) = event else { return event }
      for place in packed.items.indices { packed.items[place].births = [] }
      return .deletions(packed)
    },
    Mistake("a save that is owed is emptied", isSeenByFold: false) { lsn, event in
      guard lsn == 23, case .saved(let saved) = event else { return event }
      return .superseded(Superseded(id: saved.id, type: saved.type, time: saved.time))
    },
    Mistake("an event stays under another record's name") { lsn, event in
      guard lsn == 3, case .fetchedSave(var fetched) = event else { return event }
      fetched.id = names[1]
      return .fetchedSave(fetched)
    },
    Mistake("a version stays with another tag") { lsn, event in
      guard lsn == 3, case .fetchedSave(var fetched) = event else { return event }
      fetched.changeTag = "a"
      return .fetchedSave(fetched)
    },
    Mistake("a record is of another type") { lsn, event in
      guard lsn == 23, case .saved(var saved) = event else { return event }
      saved.type = "Task"
      return .saved(saved)
    },
  ]

  /// Whether a judge refuses what stays.
  private static func refuses(
    _ plan: CompactionPlan, _ survivors: [LogSurvivor], _ proof: CompactionProof
  ) throws -> Bool {
    do {
      return try !plan.judge(proof, { for one in survivors { try $0(one) } }, History.folding).difference.isEmpty
    } catch is RulesCannotTell {
      return true
    }
  }

  @Test(arguments: mistakes) func `refuse a mistake in what stays`(_ mistake: Mistake) throws {
    let plan = try Self.history.plan(.both)
    let right = try Self.history.survivors(of: plan)
    var wrong: [LogSurvivor] = []
    for survivor in right {
      guard let event = mistake.change(survivor.lsn, try EventCodec.decode(survivor.body)) else { continue }
      wrong.append(LogSurvivor(lsn: survivor.lsn, schema: survivor.schema, body: EventCodec.encode(event)))
    }
    #expect(wrong != right)
    for proof in [CompactionProof.rules, .fold] {
      #expect(try !Self.refuses(plan, right, proof), "\(proof) take what is right")
      #expect(try Self.refuses(plan, wrong, proof) == (proof == .rules || mistake.isSeenByFold), "\(proof)")
    }
    #expect(plan.recordsKeptWhole == 0)
  }
}

@Suite(.timeLimit(.minutes(30))) struct FirstFlushTests {
  /// A new life of a name that a pack says is deleted.
  @Test func `keeps what a pack says of a name that is written meanwhile`() throws {
    var projections = Projections()
    let item = Deletions.Item(
      id: r, lsn: LSN(2), isLocal: true, births: [birth(1)], createdMilliseconds: nil, changeTag: nil)
    try projections.apply(opened, at: LSN(1), isDurable: true)
    try projections.apply(.deletions(Deletions(items: [item])), at: LSN(2), isDurable: true)
    try projections.apply(saved(r, 3, birth: 3), at: LSN(3), isDurable: false)
    let known = try projections.deletion(r)
    #expect(known?.births == [birth(1)])
    for flush in 1...2 {
      let durable = projections.beginFlush(upTo: LSN(2))
      #expect(try durable.deletion(r) == known && durable.entry(r) == nil, "flush \(flush)")
      #expect(try projections.deletion(r) == known, "flush \(flush)")
      #expect(projections.brokenInvariant() == nil, "\(projections.brokenInvariant() ?? "")")
      projections.cancelFlush()
      #expect(try projections.deletion(r) == known, "flush \(flush)")
      #expect(projections.brokenInvariant() == nil, "\(projections.brokenInvariant() ?? "")")
    }
  }

  /// Where no run was ever written, what is gone leaves the table. A flush that sets apart an older moment, in which it was
  /// there, must not show it again.
  @Test func `does not bring back what went while it was in flight`() throws {
    var projections = Projections()
    for (lsn, event) in [(1, opened), (2, saved(r, 1)), (3, saved(s, 2)), (4, deleted(s, 3, births: 1))] {
      try projections.apply(event, at: LSN(UInt64(lsn)), isDurable: true)
    }
    // Not durable yet: the app gives both up, a record and a deletion.
    try projections.apply(settled(r, 2, .discarded), at: LSN(5), isDurable: false)
    try projections.apply(settled(s, 4, .discarded), at: LSN(6), isDurable: false)
    let before = (try projections.entry(r), try projections.entry(s), try projections.deletion(s))
    #expect(before.0 == nil && before.1 == nil && before.2 == nil && projections.brokenInvariant() == nil)
    let durable = projections.beginFlush(upTo: LSN(4))
    #expect(try durable.entry(r)?.pending?.newest == LSN(2) && durable.deletion(s) != nil)
    #expect(projections.brokenInvariant() == nil, "\(projections.brokenInvariant() ?? "")")
    #expect(try projections.entry(r) == nil && projections.entry(s) == nil && projections.deletion(s) == nil)
    projections.cancelFlush()
    #expect(projections.brokenInvariant() == nil, "\(projections.brokenInvariant() ?? "")")
    #expect(try projections.entry(r) == nil && projections.deletion(s) == nil)
  }
}

// MARK: Stores

private func open(_ disk: SimulatedDisk, seed: UInt64 = 1, segmentBytesMax: Int = 8 << 10) throws -> RecordStore {
  var options = Device.options
  options.segmentBytesMax = segmentBytesMax
  return try RecordStore.openBlocking(
    at: "/s", options: options, environment: .simulated(disk: disk, clock: SimulatedClock(), seed: seed))
}

private func put(_ store: RecordStore, _ name: String, _ value: String) throws {
  try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID(name), fields: ["v": .string(value)])) }
}

private func dump(_ store: RecordStore) throws -> [String] {
  var lines: [String] = []
  try store.forEachRecord { lines.append("\($0.id.name) \($0.fields)") }
  return lines
}

/// What a store says of itself, without the records.
private func words(_ store: RecordStore) throws -> String {
  let status = try store.status()
  return "\(status.records) \(status.unsettled) \(status.deleted) \(status.durableLSN) "
    + "\(status.checkpoint) \(status.oldestUnsettledMilliseconds.map { "\($0)" } ?? "-")"
}

private func fill(_ store: RecordStore, rounds: Int) throws {
  for round in 0..<rounds {
    for name in 0..<10 { try put(store, "n\(name)", "round \(round)") }
    _ = try store.writeBlocking { _ = try $0.delete(RecordID("gone")) }
    try store.writeBlocking { tx in
      let record = Record(type: "Note", id: RecordID("gone"), fields: ["v": .int64(Int64(round))])
      do { try tx.save(record) } catch let error as StrandlineError where error.code == .recordWasDeleted {
        try tx.create(record)
      }
    }
  }
}

/// A flag that one task sets for others.
private final class Flag: Sendable {
  let value = Atomic(false)
}

private final class Round: Sendable {
  let number = Atomic(0)
  /// In how many of them the store knew which mutations are being sent.
  let marked = Atomic(0)
}

@Suite(.timeLimit(.minutes(30))) struct CompactionTests {
  @Test func `a compacted store is smaller, and reads the same before and after a relaunch`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk, segmentBytesMax: 32 << 10)
    try fill(store, rounds: 40)
    let (records, status) = (try dump(store), try words(store))
    let report = try store.compactBlocking()
    #expect(report.bytesAfter * 3 < report.bytesBefore && report.eventsAfter * 3 < report.eventsBefore)
    #expect(report.recordsKeptWhole == 0)
    #expect(try dump(store) == records)
    #expect(try words(store) == status)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/s", environment: .simulated(disk: disk, seed: 2))
    #expect(throws: StrandlineError.self) { try reader.compactBlocking() }
    try store.closeBlocking()
    let again = try open(disk, seed: 2)
    #expect(try dump(again) == records)
    #expect(try words(again) == status)
    // A second compaction has nothing to do; later events are compacted with the earlier ones.
    let second = try again.compactBlocking()
    #expect(second.eventsAfter == second.eventsBefore)
    try fill(again, rounds: 5)
    let grown = (try dump(again), try words(again))
    try again.compactBlocking()
    try again.closeBlocking()
    let last = try open(disk, seed: 3)
    #expect(try (dump(last), words(last)) == grown)
    #expect(try LogVerifier.verify(at: "/s", environment: .simulated(disk, seed: 1)).isSound)
    try last.closeBlocking()
  }

  /// The fold that a compaction compares is written into runs from time to time, and so is what an open reads of the log.
  @Test func `a deletion of the server's behind an unsettled one is written into runs once`() throws {
    let disk = SimulatedDisk()
    func open() throws -> RecordStore {
      var log = LogOptions()
      log.segmentBytesMax = 4 << 10
      log.upkeep = .onDemand
      var index = IndexOptions()
      index.flushCount = 2
      return try RecordStore.openBlocking(
        at: "/s", options: StoreOptions(log: log, index: index),
        environment: .simulated(disk: disk, clock: SimulatedClock(), seed: 1))
    }
    var store = try open()
    try put(store, "r", "1")
    try store.writeBlocking { try $0.delete(r) }
    try store.commitBlocking { try $0.append(gone(r, births: 1)) }
    for number in 0..<400 { try put(store, "n\(number % 7)", "\(number)") }
    let before = (try dump(store), try words(store))
    let report = try store.compactBlocking()
    #expect(report.recordsKeptWhole == 0)
    #expect(try dump(store) == before.0)
    try store.closeBlocking()
    // The runs are lost, so they are made of what stayed.
    for path in disk.paths where path.hasPrefix("/s/runs/") { disk.pokeRemove(path) }
    store = try open()
    #expect(try dump(store) == before.0)
    #expect(try store.projections.deletion(r)?.births.contains(birth(1)) == true)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try store.closeBlocking()
  }

  /// What stays is folded into runs of its own.
  @Test func `a call on the folder of runs that fails meanwhile is told as the store's error`() throws {
    let disk = SimulatedDisk()
    let injector = FaultInjector(disk)
    let system = SystemEnvironment(fileSystem: injector, clock: SimulatedClock(), random: SeededRandom(seed: 1))
    var log = LogOptions()
    log.segmentBytesMax = 4 << 10
    log.upkeep = .onDemand
    var index = IndexOptions()
    index.flushCount = 1
    let store = try RecordStore.openBlocking(
      at: "/s", options: StoreOptions(log: log, index: index), environment: StoreEnvironment(system, isSimulated: true))
    for number in 0..<200 { try put(store, "n\(number % 20)", "\(number)") }
    let before = try dump(store)
    for call in [DiskCall.kind, .create, .write, .sync, .rename] {
      injector.plan(DiskFault([call], isSticky: true, error: .device("", "")))
      #expect("\(call)") { try store.compactBlocking() } throws: { ($0 as? StrandlineError)?.code == .io }
      #expect(injector.struckCount > 0)
      injector.clear()
      #expect(try dump(store) == before)
    }
    try store.compactBlocking()
    #expect(try dump(store) == before)
    try store.closeBlocking()
  }

  @Test func `a power cut or a failure at any call changes nothing that is read`() throws {
    let start = SimulatedDisk()
    let store = try open(start)
    try fill(store, rounds: 12)
    let (records, status) = (try dump(store), try words(store))
    try store.closeBlocking()
    let calm = start.clone()
    let calmStore = try open(calm, seed: 2)
    let before = calm.callCount
    try calmStore.compactBlocking()
    let calls = calm.callCount - before
    #expect(calls > 10)
    for call in 1...calls where Campaign.takes(call, every: 4) {
      for fails in [false, true] {
        let disk = start.clone()
        let opened = try open(disk, seed: 2)
        if fails { disk.failCall(disk.callCount + call) } else { disk.cutPower(atCall: disk.callCount + call) }
        let failure = Result { try opened.compactBlocking() }
        if fails {
          // The store goes on, unless the outcome of a call cannot be known.
          #expect(try dump(opened) == records, "call \(call)")
          if case .success = failure { continue }
          try? opened.closeBlocking()
        }
        for seed in 1...3 as ClosedRange<UInt64> {
          let found = try open(fails ? disk.clone() : disk.afterPowerCut(seed: seed), seed: seed)
          #expect(try dump(found) == records, "call \(call), seed \(seed)")
          let now = try words(found)
          #expect(now == status, "call \(call), seed \(seed)")
          // And the compaction can be repeated.
          try found.compactBlocking()
          #expect(try dump(found) == records, "call \(call), seed \(seed)")
          try found.closeBlocking()
        }
      }
    }
  }

  @Test func `is not judged by runs that were written of later events`() throws {
    let store = try open(SimulatedDisk())
    for number in 0..<5 { try put(store, "n\(number)", "1") }
    let end = store.durableLSN
    store.projections.withLock { $0.beginJudgement(after: end) }
    try put(store, "n0", "2")
    let judged = try #require(store.projections.withLock { $0.judged(asOf: end) })
    #expect(try judged.entry(RecordID("n0"))?.pending?.newest.rawValue ?? .max <= end.rawValue)
    try store.index?.flush()
    // The run has n0 as it is now.
    #expect(store.projections.withLock { $0.judged(asOf: end) } == nil)
    store.projections.withLock { $0.endJudgement() }
    try store.compactBlocking()
    try store.closeBlocking()
  }

  @Test func `writes and reads go on meanwhile`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, segmentBytesMax: 64 << 10)
    try fill(store, rounds: 10)
    let isOver = Flag()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<2 {
        group.addTask {
          for round in 0..<150 {
            try await store.write { tx in
              try tx.save(
                Record(type: "Note", id: RecordID("n\(round % 10)"), fields: ["v": .string("\(writer) \(round)")]))
            }
            await Task.yield()
          }
        }
      }
      group.addTask {
        while !isOver.value.load(ordering: .acquiring) {
          var count = 0
          try store.forEachRecord { _ in count += 1 }
          #expect(count == 11)
          _ = try store.status()
          await Task.yield()
        }
      }
      group.addTask {
        // Also if a compaction throws: the reader ends only then.
        defer { isOver.value.store(true, ordering: .releasing) }
        for _ in 0..<40 { try await store.compact(keeping: .latest) }
      }
      try await group.waitForAll()
    }
    let records = try dump(store)
    try store.closeBlocking()
    let again = try open(disk, seed: 2)
    #expect(try dump(again) == records)
    try again.closeBlocking()
  }

  @Test func `a log whose newest events were removed continues at the next LSN`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let store = try await a.open()
    try put(store, "x", "1")
    try await a.sync()
    _ = try store.writeBlocking { try $0.delete(RecordID("x")) }
    try await a.sync(.pushOnly)
    let newest = store.durableLSN
    let broken = try await a.compact().broken
    #expect(broken == nil)
    #expect(try store.source.eventIfKept(at: newest) == nil)
    a.crash()
    let again = try await a.open()
    #expect(again.durableLSN == newest)
    #expect(
      try RecordStore.openReadOnlyBlocking(at: "/store", environment: a.environment).status().durableLSN == newest)
    let receipt = try again.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("y"))) }
    #expect(receipt.lsns?.lowerBound == newest.advanced(by: 1))
    #expect(throws: StrandlineError.self) { try put(again, "x", "2") }
    try await a.close()
  }

  @Test func `a transaction that was given up hinders no compaction`() throws {
    struct GivenUp: Error {}
    let disk = SimulatedDisk()
    let store = try open(disk)
    try put(store, "a", "1")
    #expect(throws: GivenUp.self) {
      try store.writeBlocking { tx in
        try tx.save(Record(type: "Note", id: RecordID("b"), fields: ["v": 1]))
        throw GivenUp()
      }
    }
    // Nothing can be left out, and the clock has gone on.
    try store.compactBlocking()
    try put(store, "a", "2")
    #expect(throws: GivenUp.self) {
      try store.writeBlocking {
        _ = try $0.delete(RecordID("a")); throw GivenUp()
      }
    }
    try store.compactBlocking()
    #expect(try dump(store).count == 1)
    try store.closeBlocking()
  }

  @Test func `an iteration over the records shows what there was when it began`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    for name in ["a", "b", "c", "d"] { try put(store, name, "first") }
    var seen: [String] = []
    try store.forEachRecord { record in
      if seen.isEmpty {
        // A compaction would pack the event of "b", and remove those of "c" and "d".
        for name in ["b", "c"] { try put(store, name, "second") }
        _ = try store.writeBlocking { try $0.delete(RecordID("d")) }
        try store.compactBlocking()
      }
      seen.append("\(record.id.name) \(record.fields["v"] ?? 0)")
    }
    #expect(seen == ["a", "b", "c", "d"].map { "\($0) \(FieldValue.string("first"))" })
    try store.closeBlocking()
  }

  @Test func `a receipt from before is whole again, or owes nothing`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    let first = try store.writeBlocking { tx in
      for name in ["a", "b"] { try tx.save(Record(type: "Note", id: RecordID(name), fields: ["v": 1])) }
    }
    try put(store, "a", "2")
    try put(store, "b", "2")
    try store.compactBlocking()
    let again = try store.receipt(at: first.position)
    #expect(again.lsns?.contains(first.position.lsn) == true)
    #expect(try store.outcomes(of: #require(first.lsns)).isEmpty)
    await #expect(throws: StrandlineError.self) { try await again.uploaded() }
    try store.closeBlocking()
  }

  @Test func `a receipt whose event is gone does not say that the server has what is still owed`() throws {
    let store = try open(SimulatedDisk())
    func save(_ name: String, _ value: Int64) throws -> ClosedRange<LSN> {
      let record = Record(type: "Note", id: RecordID(name), fields: ["v": .int64(value)])
      return try #require(try store.writeBlocking { try $0.save(record) }.lsns)
    }
    func settle(_ name: String) throws {
      let id = RecordID(name)
      let newest = try #require(try store.projections.entry(id)?.pending?.newest)
      _ = try store.transact { core in
        try core.append(.settled(Settled(id: id, lsn: newest, outcome: .saved, changeTag: "t")))
      }
    }
    let first = try save("x", 1)
    let other = try save("y", 1)
    let middle = try save("x", 2)
    let last = try save("x", 3)
    try store.compactBlocking()
    #expect(try store.source.eventIfKept(at: middle.lowerBound) == nil)
    func settled() throws -> [Bool] {
      try [first, middle, last, other].map { lsns in
        var open = try store.openMutations(of: lsns)
        return try open.isSettled(in: store.projections)
      }
    }
    #expect(try settled() == [false, false, false, false])
    // Of which record it was is not known any more: as long as anything as old is owed, it may be that.
    try settle("x")
    #expect(try settled() == [true, false, true, false])
    try settle("y")
    #expect(try settled() == [true, true, true, true])
    try store.closeBlocking()
  }

  @Test func `a reader in another process that stayed behind throws that it is outdated`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    try fill(store, rounds: 3)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/s", environment: .simulated(disk: disk, seed: 2))
    try put(store, "n1", "newer")
    try store.compactBlocking()
    do {
      _ = try reader.record(RecordID("n1"))
      Issue.record("what is gone was read")
    } catch let error as StrandlineError {
      #expect(error.code == .outdated && error.message.contains("open it again"), "\(error)")
    }
    try store.closeBlocking()
  }

  @Test func `what was to be sent is left out, if it is written over and compacted before its request leaves`()
    async throws
  {
    // The batch is too large: its second half waits while the first is sent, and has no `sent` yet.
    var limits = ServerLimits()
    limits.operationsMax = 1
    let fleet = try Fleet(limits: limits)
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let store = try await a.open()
    try put(store, "w", "first")
    try await a.sync()
    for name in ["x", "y"] { try put(store, name, "first") }
    let failures = Mutex<[any Error]>([])
    let round = Round()
    a.whileAsking {
      do {
        let number = round.number.add(1, ordering: .relaxed).newValue
        // The first request asks who is signed in.
        guard number > 1 else { return }
        for name in ["x", "y"] { try put(store, name, "round \(number)") }
        try store.compactBlocking()
      } catch { failures.withLock { $0.append(error) } }
    }
    try await a.sync(.pushOnly)
    a.whileAsking(nil)
    #expect(failures.withLock { $0 }.isEmpty && round.number.load(ordering: .relaxed) > 3)
    #expect(try await a.brokenInvariant() == nil)
    for entry in try store.projections.withLock({ (state) throws(StrandlineError) in try state.allEntries() }).values {
      let content = try #require(entry.base?.content)
      #expect(try LoadedVersion(store.source.event(at: content), at: content) != nil)
    }
    for device in [a, b, a] { try await device.sync() }
    #expect(try await a.dump() == b.dump())
    #expect(try await a.open().status().unsettled == 0)
  }
}
