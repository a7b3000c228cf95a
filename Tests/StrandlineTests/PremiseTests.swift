// Goal: what the plan has decided is done only if what it had seen still holds: each premise of an event, of a step and of an
// upload. Method: a table of short logs of a real store, of which each premise holds after some and not after others; the store
// is asked, and carries out a step under the premise. Then the plan by itself, when records fall out of an upload.

import StrandlineSimulation
import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

private typealias Lines = LogLines
private let zone = LogLines.zone
private let id = RecordID("n", zone: zone)

/// The events of a log, after the first ones of every store.
///
/// - Parameter first: the LSN of the first of them.
private typealias History = @Sendable (_ first: UInt64) -> [Event]

/// A premise, and logs after which it holds or does not hold.
private struct Row: Sendable, CustomTestStringConvertible {
  var testDescription: String
  var premise: @Sendable (_ first: UInt64) -> Premise
  var holds: [String: History]
  var fails: [String: History]

  init(
    _ name: String, _ premise: @escaping @Sendable (UInt64) -> Premise, holds: [String: History],
    fails: [String: History]
  ) {
    (testDescription, self.premise, self.holds, self.fails) = (name, premise, holds, fails)
  }
}

extension LogLines {
  fileprivate static let created = Event.zoneChanged(ZoneChanged(zone: zone, change: .created))

  fileprivate static func reset(_ policy: String = "") -> Event {
    .zoneChanged(ZoneChanged(zone: zone, change: .reset, policy: policy))
  }

  fileprivate static func lost(_ reason: ZoneLoss) -> Event { .zoneChanged(.lost(zone, reason, words: "gone")) }

  fileprivate static func settled(_ lsn: UInt64) -> Event {
    .settled(Settled(id: id, lsn: LSN(lsn), outcome: .saved, changeTag: "b", created: nil, modified: nil))
  }

  fileprivate static func sent(_ lsn: UInt64) -> Event { .sent(Sent(batch: 1, zone: zone, lsns: [LSN(lsn)])) }

  fileprivate static func held(_ lsn: UInt64, _ direction: Held.Direction = .upload) -> Event {
    .held(
      Held(
        id: id, direction: direction, lsn: LSN(lsn), code: "ACCESS_DENIED", words: "no", attempts: 1,
        wallMilliseconds: 1))
  }

  fileprivate static func released(_ lsn: UInt64) -> Event { .released(Released(id: id, lsn: LSN(lsn))) }

  fileprivate static func blocked(_ subject: Blocked.Subject) -> Event {
    .blocked(Blocked(id: id, subject: subject, births: [], consequence: .lookup, words: "in doubt"))
  }

  fileprivate static func token(_ token: String) -> Event {
    .databaseTokenAdvanced(
      DatabaseTokenAdvanced(scope: .private, asked: nil, token: ChangeToken(rawValue: token)))
  }

  fileprivate static func sweep(_ epoch: UInt64) -> Event {
    .sweepBegan(SweepBegan(zone: zone, epoch: epoch, since: 1))
  }

  fileprivate static func swept(_ epoch: UInt64) -> Event {
    .sweepEnded(SweepEnded(zone: zone, epoch: epoch, seen: 0, removed: 0))
  }
}

private let ofRecords = [
  Row(
    "a change is the newest one of its record", { .newest(id, LSN($0)) },
    holds: ["it is pending": { _ in [Lines.saved("n")] }, "it was sent": { [Lines.saved("n"), Lines.sent($0)] }],
    fails: [
      "the record is not known": { _ in [] }, "the app has edited it": { _ in [Lines.saved("n"), Lines.saved("n")] },
      "the server has it": { [Lines.saved("n"), Lines.sent($0), Lines.settled($0)] },
      "another record is pending": { _ in [Lines.saved("other")] },
    ]),
  Row(
    "a deletion is of a record that no request has carried", { .neverSent(id, LSN($0 + 1)) },
    holds: ["it was saved and deleted": { _ in [Lines.saved("n"), Lines.deleted("n", base: 0)] }],
    fails: [
      "a request has carried the save": { [Lines.saved("n"), Lines.deleted("n", base: 0), Lines.sent($0 + 1)] },
      "the server has it": { [Lines.fetched("n"), Lines.deleted("n", base: $0)] },
      "the app has saved it again": { _ in [Lines.saved("n"), Lines.deleted("n", base: 0), Lines.saved("n")] },
      "the record is not known": { _ in [] },
    ]),
  Row(
    "the server's version of a record is not in question", { .unquestioned(id, LSN($0)) },
    holds: [
      "it was fetched": { _ in [Lines.fetched("n")] },
      "an older version is in question": { _ in [Lines.fetched("n"), Lines.blocked(.version)] },
    ],
    fails: [
      "the record is not known": { _ in [] },
      "the server has a newer version": { _ in
        [Lines.fetched("n"), Lines.fetched("n", tag: "b")]
      },
      "the app has edited it": { [Lines.fetched("n"), Lines.saved("n", base: $0)] },
      "its deletion is in question": { _ in [Lines.fetched("n"), Lines.blocked(.deletion)] },
    ]),
  Row(
    "a change is held", { .held(id, LSN($0)) },
    holds: ["it is": { [Lines.saved("n"), Lines.held($0)] }],
    fails: [
      "nothing is held": { _ in [Lines.saved("n")] },
      "it was released": { [Lines.saved("n"), Lines.held($0), Lines.released($0)] },
      "the server has it": { [Lines.saved("n"), Lines.held($0), Lines.settled($0)] },
      "a newer change is held": { [Lines.saved("n"), Lines.saved("n"), Lines.held($0 + 1)] },
    ]),
  Row(
    "a version that could not be read is kept", { _ in .unread(id) },
    holds: ["it is": { _ in [Lines.held(0, .download)] }],
    fails: [
      "nothing is kept": { _ in [] }, "a change is held": { [Lines.saved("n"), Lines.held($0)] },
      "a newer version could be read": { _ in [Lines.held(0, .download), Lines.fetched("n")] },
      "it was released": { _ in [Lines.held(0, .download), Lines.released(0)] },
    ]),
]

private let ofZones = [
  Row(
    "a database has the token of the request", { _ in .databaseToken(.private, ChangeToken(rawValue: "d1")) },
    holds: ["it has": { _ in [Lines.token("d1")] }],
    fails: ["it has none": { _ in [] }, "it has a newer one": { _ in [Lines.token("d1"), Lines.token("d2")] }]),
  Row(
    "a database has no token", { _ in .databaseToken(.private, nil) }, holds: ["it has none": { _ in [] }],
    fails: ["it has one": { _ in [Lines.token("d1")] }]),
  Row(
    "a zone is lost for a reason", { _ in .lost(zone, .deleted) },
    holds: ["it is": { _ in Lines.seen() + [Lines.lost(.deleted)] }],
    fails: [
      "it is not known": { _ in [] }, "it is not lost": { _ in Lines.seen() },
      "it is lost for another one": { _ in Lines.seen() + [Lines.lost(.deleted), Lines.lost(.purged)] },
      "a person has decided": { _ in Lines.seen() + [Lines.lost(.deleted), Lines.reset("server")] },
      "it is there again": { _ in Lines.seen() + [Lines.lost(.deleted), Lines.created] },
    ]),
  Row(
    "the app has neither erased a zone nor asked for that", { _ in .notErased(zone) },
    holds: [
      "it is not known": { _ in [] }, "it is not lost": { _ in Lines.seen() },
      "the server has lost it": { _ in Lines.seen() + [Lines.lost(.deleted)] },
      "the app has taken that back": { _ in Lines.seen() + [Lines.lost(.erasing), Lines.reset("here")] },
    ],
    fails: [
      "the app has asked for it": { _ in Lines.seen() + [Lines.lost(.erasing)] },
      "the app has erased it": { _ in Lines.seen() + [Lines.lost(.erased)] },
    ]),
  Row(
    "nothing of a zone is here", { _ in .nothingKnown(zone) },
    holds: [
      "it is not known": { _ in [] }, "a list has named it": { _ in [Lines.dirty()] },
      "a deletion of what the server never had": { _ in [Lines.saved("n"), Lines.deleted("n", base: 0)] },
    ],
    fails: [
      "it has a token": { _ in Lines.seen() }, "a record was fetched": { _ in [Lines.created, Lines.fetched("n")] },
      "a record was saved": { _ in [Lines.dirty(), Lines.saved("n")] },
      "a version could not be read": { _ in [Lines.created, Lines.held(0, .download)] },
    ]),
  Row(
    "a sweep of a zone is open", { .sweep(zone, $0) },
    holds: ["it is": { [Lines.sweep($0)] }],
    fails: [
      "none was": { _ in [] }, "it has ended": { [Lines.sweep($0), Lines.swept($0)] },
      "the feed has begun again": { [Lines.sweep($0), Lines.reset()] },
      "another one is": { [Lines.sweep($0), Lines.sweep($0 + 1)] },
    ]),
  Row(
    "a sweep of no number is open", { _ in .sweep(zone, 0) }, holds: [:], fails: ["none is": { _ in Lines.seen() }]),
  Row(
    "the server's side decides about a zone", { _ in .removes(zone) },
    holds: ["a person has chosen it": { _ in Lines.seen() + [Lines.reset("server")] }],
    fails: [
      "nobody has decided": { _ in Lines.seen() }, "the zone is not known": { _ in [] },
      "a token was refused": { _ in Lines.seen() + [Lines.reset()] },
      "a person has chosen this side since": { _ in Lines.seen() + [Lines.reset("server"), Lines.reset("here")] },
      "it was carried out": { _ in Lines.seen() + [Lines.reset("server"), Lines.swept(0)] },
    ]),
  Row(
    "a zone has changed, and no sweep of it is open", { _ in .unswept(zone) },
    holds: ["it has": { _ in Lines.seen() + [Lines.dirty()] }],
    fails: [
      "it is not known": { _ in [] }, "it was fetched to its end": { _ in Lines.seen() },
      "a sweep is open": { Lines.seen() + [Lines.dirty(), Lines.sweep($0 + 4)] },
      "a person has decided": { _ in Lines.seen() + [Lines.reset("here")] },
      "it has no token": { _ in Lines.seen(token: nil) + [Lines.dirty()] },
    ]),
  Row("there is none", { _ in .none }, holds: ["always": { _ in [] }], fails: [:]),
]

/// A store with the events of a history.
private func store(_ history: History) async throws -> (store: RecordStore, first: UInt64) {
  let system = SystemEnvironment(
    fileSystem: SimulatedDisk(), clock: SimulatedClock(), random: SeededRandom(seed: 1))
  let store = try await RecordStore.open(at: "/store", environment: StoreEnvironment(system))
  // The first transaction brings the opening too.
  try await store.commit { core in try core.append(.zoneChanged(ZoneChanged(zone: ZoneID("First"), change: .created))) }
  let first = store.projections.appliedLSN.rawValue + 1
  let events = history(first)
  if !events.isEmpty { try await store.commit { core in for event in events { try core.append(event) } } }
  return (store, first)
}

@Suite(.timeLimit(.minutes(30))) struct `A premise` {
  private static let mark = ZoneID("Mark")

  /// Whether the store carries a step out.
  private func carriesOut(_ store: RecordStore, _ step: (SyncEvent) -> StoreStep, _ event: Premise) async throws -> Bool
  {
    let before = store.projections.appliedLSN
    let marked = Event.zoneChanged(ZoneChanged(zone: Self.mark, change: .dirty))
    _ = try await store.perform(step(.event(marked, if: event)), UnaskedDatabase())
    return store.projections.appliedLSN > before
  }

  private func check(_ row: Row, _ name: String, _ history: History, _ holds: Bool) async throws {
    let (store, first) = try await store(history)
    let premise = row.premise(first)
    #expect(try store.projections.holds(premise) == holds, "\(name)")
    #expect(try StoreFacts(store).holds(premise) == holds, "\(name), as the plan sees it")
    let ofEvent = try await carriesOut(store, { .append(AppendStep(events: [$0])) }, premise)
    #expect(ofEvent == holds, "\(name), of an event")
    let ofStep = try await carriesOut(store, { .append(AppendStep(events: [$0], premise: premise)) }, .none)
    #expect(ofStep == holds, "\(name), of a step")
    func answers(_ event: SyncEvent) -> StoreStep {
      let cause = AnswerStep.Cause.removal(Self.mark, .part)
      return .answers(
        AnswerStep(premise: premise, changes: [], source: .fullFetch, before: [event], cause: cause))
    }
    let ofAnswer = try await carriesOut(store, answers, .none)
    #expect(ofAnswer == holds, "\(name), of an answer")
    try await store.close()
  }

  @Test(arguments: ofRecords + ofZones)
  fileprivate func `is asked of the store when a step is carried out`(_ row: Row) async throws {
    for (name, history) in row.holds { try await check(row, "holds: \(name)", history, true) }
    for (name, history) in row.fails { try await check(row, "does not hold: \(name)", history, false) }
  }

  @Test func `is in the table, whatever it is`() {
    var missing: Set = [
      "none", "databaseToken", "newest", "neverSent", "unquestioned", "held", "unread", "lost", "notErased",
      "nothingKnown", "sweep", "removes", "unswept",
    ]
    for row in ofRecords + ofZones {
      let name =
        switch row.premise(1) {
        case .none: "none"
        case .databaseToken: "databaseToken"
        case .newest: "newest"
        case .neverSent: "neverSent"
        case .unquestioned: "unquestioned"
        case .held: "held"
        case .unread: "unread"
        case .lost: "lost"
        case .notErased: "notErased"
        case .nothingKnown: "nothingKnown"
        case .sweep: "sweep"
        case .removes: "removes"
        case .unswept: "unswept"
        }
      missing.remove(name)
    }
    #expect(missing == [])
  }

  // MARK: Uploads

  private func upload(
    _ name: String, _ lsn: UInt64, base: UInt64? = nil, needs: [CloudName] = [], isPreparation: Bool = false
  ) -> Upload {
    Upload(
      item: UploadItem(
        id: RecordID(name, zone: zone), lsn: LSN(lsn), isDeletion: false, targets: needs, needs: needs),
      base: base.map { LSN($0) }, isPreparation: isPreparation, isFirstOfLife: true,
      operation: CloudOperation(.create, name: name, type: "Note"), type: "Note")
  }

  /// What of an upload leaves, and what falls out of it.
  private func prepare(
    _ history: History, isAtomic: Bool = false, _ uploads: (UInt64) -> [Upload]
  ) async throws -> (leaving: [Upload], stale: [String], lacking: [String], sent: [UInt64]?) {
    let (store, first) = try await store(history)
    let before = store.projections.appliedLSN
    let request = UploadRequest(zone: zone, uploads: uploads(first), isAtomic: isAtomic)
    let (leaving, fallenOut) = try await store.prepare(request)
    var sent: [UInt64]?
    let next = LSN(before.rawValue + 1)
    if store.projections.appliedLSN >= next, case .sent(let event) = try StoreFacts(store).event(at: next) {
      sent = event.lsns.map { $0.rawValue - first }
    }
    try await store.close()
    return (
      leaving.uploads, fallenOut.stale.map(\.name), fallenOut.lacking.map { "\($0.id.name): \($0.target.name)" }, sent
    )
  }

  @Test func `of an upload: each change is the newest one, of the version that it was made for`() async throws {
    let whole = try await prepare({ _ in [Lines.saved("n"), Lines.saved("o")] }) {
      [upload("n", $0), upload("o", $0 + 1)]
    }
    #expect(whole.leaving.map(\.id.name) == ["n", "o"] && whole.leaving.allSatisfy(\.isFirstOfLife))
    #expect(whole.stale == [] && whole.lacking == [] && whole.sent == [0, 1])
    // What the app has replaced is read at its new place: nobody has to be told.
    let replaced = try await prepare({ _ in [Lines.saved("n"), Lines.saved("n"), Lines.saved("o")] }) {
      [upload("n", $0), upload("o", $0 + 2)]
    }
    #expect(replaced.leaving.map(\.id.name) == ["o"] && replaced.stale == [] && replaced.sent == [2])
    let newer = try await prepare(
      { [Lines.fetched("n"), Lines.saved("n", base: $0), Lines.fetched("n", tag: "b"), Lines.saved("o")] }
    ) { [upload("n", $0 + 1, base: $0), upload("o", $0 + 3)] }
    #expect(newer.leaving.map(\.id.name) == ["o"] && newer.stale == ["n"] && newer.sent == [3])
    // Nothing is left, and nothing is logged.
    let none = try await prepare({ _ in [Lines.saved("n"), Lines.saved("n")] }) { [upload("n", $0)] }
    #expect(none.leaving.isEmpty && none.sent == nil)
    // A request has carried it, whose answer was lost.
    let again = try await prepare({ [Lines.saved("n"), Lines.sent($0)] }) { [upload("n", $0)] }
    #expect(again.leaving.map(\.isFirstOfLife) == [false])
  }

  @Test func `of an upload: what each record needs is at the server, or goes with it`() async throws {
    let pair: History = { _ in [Lines.saved("t"), Lines.saved("n", needs: "t")] }
    let whole = try await prepare(pair) { [upload("t", $0), upload("n", $0 + 1, needs: ["t"])] }
    #expect(whole.leaving.map(\.id.name) == ["t", "n"] && whole.lacking == [])
    let alone = try await prepare(pair) { [upload("n", $0 + 1, needs: ["t"])] }
    #expect(alone.leaving.isEmpty && alone.lacking == ["n: t"] && alone.sent == nil)
    // The target falls out, and all that needs it, one over the other.
    let edited: History = {
      _ in [Lines.saved("t"), Lines.saved("n", needs: "t"), Lines.saved("o", needs: "n"), Lines.saved("t")]
    }
    let chain = try await prepare(edited) {
      [upload("t", $0), upload("n", $0 + 1, needs: ["t"]), upload("o", $0 + 2, needs: ["n"])]
    }
    #expect(chain.leaving.isEmpty && chain.stale == [] && chain.lacking == ["n: t", "o: n"])
    let atServer = try await prepare({ [Lines.fetched("t"), Lines.saved("t", base: $0), Lines.saved("n", needs: "t")] })
    {
      [upload("n", $0 + 2, needs: ["t"])]
    }
    #expect(atServer.leaving.map(\.id.name) == ["n"] && atServer.lacking == [])
    // Nobody brings that target: the server decides.
    let unknown = try await prepare({ _ in [Lines.saved("n", needs: "t")] }) { [upload("n", $0, needs: ["t"])] }
    #expect(unknown.leaving.map(\.id.name) == ["n"] && unknown.lacking == [])
    // The deletion of the old record needs nothing, and is no attempt of the change.
    let old = try await prepare(pair) { [upload("n", $0 + 1, needs: ["t"], isPreparation: true), upload("t", $0)] }
    #expect(old.leaving.map(\.id.name) == ["n", "t"] && old.lacking == [] && old.sent == [0])
  }

  @Test func `of an atomic upload: nothing leaves if one record falls out`() async throws {
    let stale = try await prepare(
      { [Lines.fetched("n"), Lines.saved("n", base: $0), Lines.fetched("n", tag: "b"), Lines.saved("o")] },
      isAtomic: true
    ) { [upload("n", $0 + 1, base: $0), upload("o", $0 + 3)] }
    #expect(stale.leaving.isEmpty && stale.stale == ["n"] && stale.sent == nil)
    let lacking = try await prepare(
      { _ in [Lines.saved("t"), Lines.saved("n", needs: "t"), Lines.saved("o"), Lines.saved("t")] }, isAtomic: true
    ) { [upload("t", $0), upload("n", $0 + 1, needs: ["t"]), upload("o", $0 + 2)] }
    #expect(lacking.leaving.isEmpty && lacking.lacking == ["n: t"] && lacking.sent == nil)
  }
}

extension `The plan of a cycle` {
  @Test func `what falls out of an upload for a newer version of the server's goes at once, with that version`() throws
  {
    var driver = try asked(Lines.seen() + [Lines.fetched("n"), Lines.saved("n", base: 6), Lines.saved("o")])
    let first = try driver.request()
    // Another device's edit comes while the upload is made.
    try driver.facts.append([Lines.fetched("n", tag: "b")])
    let left = try driver.leave(first)
    #expect(left.uploads.map(\.id.name) == ["o"])
    try driver.answer(.modify(left), .taken(left))
    let (request, upload) = try expectUpload(&driver, ["n"])
    #expect(upload.uploads.map(\.operation.changeTag) == ["b"])
    try driver.answer(request, .taken(upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  private func expectTargetFirst(_ driver: inout PlanDriver) throws {
    for name in ["t", "n"] {
      let (request, upload) = try expectUpload(&driver, [name])
      try driver.answer(request, .taken(upload))
    }
    try expectEnd(&driver)
  }

  @Test func `what falls out of an upload with its target waits for the target, and goes after it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("t"), Lines.saved("n", needs: "t"), Lines.saved("o")])
    let first = try driver.request()
    // The app edits the target while the upload is made.
    try driver.facts.append([Lines.saved("t")])
    let left = try driver.leave(first)
    #expect(left.uploads.map(\.id.name) == ["o"])
    let id = RecordID("n", zone: zone)
    #expect(driver.plan.queue.wait(of: id) == .target(RecordID("t", zone: zone)))
    #expect(try driver.plan.brokenInvariant(of: id, driver.facts) == nil)
    try driver.answer(.modify(left), .taken(left))
    try expectTargetFirst(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `of an upload of which all falls out nothing is sent, and all of it goes later`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("t"), Lines.saved("n", needs: "t")])
    let first = try driver.request()
    try driver.facts.append([Lines.saved("t")])
    driver.appended = []
    #expect(try driver.leave(first).uploads.isEmpty && driver.appended == [])
    try expectTargetFirst(&driver)
    #expect(driver.plan.remembered == [:])
  }
}
