// A plan without a store: the facts are a fold of a few events in memory, requests are answered by the test, and the store's steps
// append to that fold. The intake is not here: what a page or an answer says of records is appended by the test as it likes.

import StrandlineLog
import StrandlineSystem
import Synchronization

@testable import Strandline
@testable import StrandlineSync

/// The facts of a log of a few events. It counts how often it is asked for an event.
final class LogFacts: SyncFacts {
  private struct State {
    var events: [Event] = []
    var now = Moment(wall: 1_000_000, nanoseconds: 1_000_000_000)
    var reads = 0
    /// After this number of reads each one fails.
    var readsMax = Int.max
    /// Changes whose events cannot be read any more.
    var damaged: [LSN: RecordID] = [:]
  }
  private let state = Mutex(State())
  private let projections = SharedProjections(Projections())
  let schema = Schema()

  init(_ events: [Event] = []) throws { try append(events) }

  func append(_ events: [Event]) throws {
    for event in events {
      let lsn = state.withLock { state in
        state.events.append(event)
        return LSN(rawValue: UInt64(state.events.count))
      }
      try projections.withLock { (state) throws(StrandlineError) in try state.apply(event, at: lsn, isDurable: true) }
    }
  }

  var now: Moment { state.withLock { $0.now } }
  var durableLSN: LSN { LSN(rawValue: UInt64(state.withLock { $0.events.count })) }
  var reads: Int { state.withLock { $0.reads } }
  var events: [Event] { state.withLock { $0.events } }

  /// No more than `count` events can be read from now on: a plan that reads on and on fails soon.
  func limitReads(to count: Int) { state.withLock { $0.readsMax = $0.reads + count } }

  func advance(milliseconds: Int64) {
    state.withLock { state in
      state.now.wall += milliseconds
      state.now.nanoseconds += UInt64(milliseconds) * 1_000_000
    }
  }

  /// The newest change of a record cannot be read from now on.
  func damage(_ id: RecordID) throws {
    guard let lsn = try entry(id)?.pending?.newest else { return }
    state.withLock { $0.damaged[lsn] = id }
  }

  var appliedLSN: LSN { durableLSN }
  var hasAttempts: Bool { projections.withLock { !$0.outbox.attempted.isEmpty } }

  func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value { projections.learned(read) }
  func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? { try projections.entry(id) }
  func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord { try projections.look(id) }
  func attempted(_ pending: Pending?) -> LSN? { projections.attempted(pending) }
  func wasAttempted(_ lsn: LSN) -> Bool { projections.wasAttempted(lsn) }
  func pending(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] { projections.owed(count, after: lsn, upTo: end) }
  func knowsNothing(of zone: ZoneID) -> Bool { projections.knowsNothing(of: zone) }
  func hasPending(in zone: ZoneID) throws(StrandlineError) -> Bool { try projections.hasPending(in: zone) }
  func pendingCount(in zone: ZoneID) throws -> Int { try projections.pendingCount(in: zone) }
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID> {
    projections.withLock { $0.zonesLeftOut(by: synced) }
  }

  func change(at lsn: LSN) throws(StrandlineError) -> PendingFact {
    if let id = state.withLock({ $0.damaged[lsn] }) { return .damaged(id, StrandlineError(.damaged, "event \(lsn)")) }
    guard let found = try readIfKept(lsn), let id = try found.decoded().recordID else { return .replaced }
    return .change(id, found)
  }

  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent? {
    let (event, isLast): (Event?, Bool) = state.withLock { state in
      state.reads += 1
      let place = Int(lsn.rawValue) - 1
      return (state.events.indices.contains(place) ? state.events[place] : nil, state.reads > state.readsMax)
    }
    if isLast { throw StrandlineError(.noProgress, "the plan reads on and on") }
    return event.map {
      LogEvent(
        lsn: lsn.rawValue, schema: EventCodec.schema, body: EventCodec.encode($0), indexInTransaction: 0, isFirst: true,
        isLast: true, segmentID: 0, offset: 0)
    }
  }

  func event(at lsn: LSN) throws(StrandlineError) -> Event {
    guard let event = try eventIfKept(at: lsn) else { throw StrandlineError(.damaged, "event \(lsn) is missing") }
    return event
  }

  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event { try event(at: lsn) }
}

/// The facts of a log in which any number of records are pending, each with its first save. Nothing is stored: each answer is
/// computed when it is asked for, and counted.
final class ManyPending: SyncFacts {
  let count: UInt64
  private let state: SyncState
  private let knowsNothing: Bool
  private let zoneOf: @Sendable (UInt64) -> ZoneID
  private let calls = Mutex((changes: 0, names: 0, entries: 0))
  let now = Moment(wall: 1_000_000, nanoseconds: 1_000_000_000)
  let schema = Schema()

  /// - Parameters:
  ///   - state: of a log that has seen the zones.
  ///   - knowsNothing: whether the log has nothing of the zones but what is pending.
  ///   - zoneOf: the zone of each record.
  init(
    _ count: Int, _ state: SyncState, knowsNothing: Bool = false,
    zoneOf: @escaping @Sendable (UInt64) -> ZoneID = { _ in LogLines.zone }
  ) {
    (self.count, self.state) = (UInt64(count), state)
    (self.knowsNothing, self.zoneOf) = (knowsNothing, zoneOf)
  }

  /// How many changes were named, how many events read, and how many entries looked up.
  var asked: (names: Int, changes: Int, entries: Int) { calls.withLock { ($0.names, $0.changes, $0.entries) } }

  var appliedLSN: LSN { LSN(rawValue: count) }
  var durableLSN: LSN { appliedLSN }
  var hasAttempts: Bool { false }

  func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value { read(state) }
  func attempted(_ pending: Pending?) -> LSN? { nil }
  func wasAttempted(_ lsn: LSN) -> Bool { false }
  func knowsNothing(of zone: ZoneID) -> Bool { knowsNothing }
  func hasPending(in zone: ZoneID) -> Bool {
    calls.withLock { $0.entries += 1 }
    return count > 0
  }
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID> { [] }
  func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord { KnownRecord(entry: try entry(id), deletion: nil) }

  func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry? {
    calls.withLock { $0.entries += 1 }
    guard let number = UInt64(id.name.dropFirst()), (1...count).contains(number), id.zone == zoneOf(number) else {
      return nil
    }
    return RecordEntry(type: "Note", pending: Pending(isDeletion: false, newest: LSN(rawValue: number)))
  }

  func pending(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN] {
    let last = min(self.count, end.rawValue)
    guard lsn.rawValue < last else { return [] }
    let some = (lsn.rawValue + 1)...min(last, lsn.rawValue + UInt64(count))
    calls.withLock { $0.names += some.count }
    return some.map { LSN(rawValue: $0) }
  }

  func change(at lsn: LSN) throws(StrandlineError) -> PendingFact {
    guard let found = try readIfKept(lsn) else { return .replaced }
    return .change(RecordID("n\(lsn.rawValue)", zone: zoneOf(lsn.rawValue)), found)
  }

  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent? {
    calls.withLock { $0.changes += 1 }
    return LogEvent(
      lsn: lsn.rawValue, schema: EventCodec.schema, body: EventCodec.encode(saved(lsn)),
      indexInTransaction: 0, isFirst: true, isLast: true, segmentID: 0, offset: 0)
  }

  private func saved(_ lsn: LSN) -> Event { LogLines.saved("n\(lsn.rawValue)", in: zoneOf(lsn.rawValue)) }
  func event(at lsn: LSN) throws(StrandlineError) -> Event { saved(lsn) }
  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event { try event(at: lsn) }
}

/// A plan that is driven by hand.
struct PlanDriver {
  static let zone = ZoneID("Notes")
  let facts: LogFacts
  var plan: SyncPlan
  /// What the store was asked to append, as words, since this was read last.
  var appended: [String] = []

  /// - Parameter events: what the log has, behind its opening and the account.
  init(_ events: [Event] = [], random: UInt64 = 1, _ configure: (inout SyncConfiguration) -> Void = { _ in }) throws {
    var configuration = SyncConfiguration(UnaskedDatabase())
    configure(&configuration)
    let address = CloudAddress(container: "iCloud.test", environment: .development)
    let bound = Bound(
      container: address.container, environment: address.environment.rawValue, scope: address.scope,
      userHash: Bound.hash(ofUser: "user"))
    let opened = Event.opened(Opened(writer: 5, storeUUID: Array(0..<16), tenure: 1))
    facts = try LogFacts([opened, .bound(bound)] + events)
    plan = SyncPlan(
      facts, address, SyncPolicies(configuration),
      RequestPace.Policy(configuration.pace, SeededRandom(seed: random)))
  }

  mutating func begin(_ configure: (inout CycleOptions) -> Void = { _ in }) {
    var options = CycleOptions()
    configure(&options)
    plan.begin(options, facts)
  }

  /// What the plan wants next, after all steps of the store: a request in a word and its zone, a wait, or the end.
  mutating func next() throws -> SyncPlan.Next {
    while true {
      let next = try plan.next(facts, SyncPlan.Means())
      guard case .store(let step) = next else { return next }
      try carryOut(step)
    }
  }

  /// The next request; an error says what came instead.
  mutating func request() throws -> SyncRequest {
    let next = try next()
    guard case .ask(let request) = next else { throw Unexpected(words: "\(next)") }
    return request
  }

  struct Unexpected: Error { let words: String }

  mutating func answer(_ request: SyncRequest, _ answer: SyncAnswer) throws { try apply(.success(answer), request) }
  mutating func refuse(
    _ request: SyncRequest, _ code: CloudError.Code, _ configure: (inout CloudError) -> Void = { _ in }
  )
    throws
  {
    var error = CloudError(code, reason: "refused")
    configure(&error)
    try apply(.failure(error), request)
  }

  private mutating func apply(_ result: Result<SyncAnswer, CloudError>, _ request: SyncRequest) throws {
    plan.cycle.idleTurns = 0
    defer { appendPending() }
    try plan.apply(SyncOutcome(result: result), to: request, facts)
  }

  /// The events that an answer has the store append are there when a cycle ends by it.
  private mutating func appendPending() {
    while !plan.steps.isEmpty {
      do { try carryOut(plan.steps.removeFirst()) } catch { appended.append("\(error)") }
    }
  }

  /// An upload is about to leave: the log says so, unless nothing of it may leave any more.
  mutating func leave(_ request: SyncRequest) throws -> UploadRequest {
    guard case .modify(let upload) = request else { throw Unexpected(words: "\(request)") }
    let (leaving, fallenOut) = try facts.premises(of: upload)
    plan.leaves(leaving, fallenOut)
    if !leaving.uploads.isEmpty {
      let lsns = leaving.uploads.filter { !$0.isPreparation }.map(\.lsn).sorted()
      try append([.sent(Sent(batch: 1, zone: upload.zone, lsns: lsns))])
    }
    return leaving
  }

  private mutating func append(_ events: [Event]) throws {
    try facts.append(events)
    appended += events.map(\.kindName)
  }

  private mutating func carryOut(_ step: StoreStep) throws {
    var result = StoreResult.done
    switch step {
    case .append(let step): if try facts.holds(step.premise) { try append(step.events) }
    case .decideLoss(let step):
      guard try facts.holds(.lost(step.zone, step.reason)) else {
        result = .dropped
        break
      }
      result = .decided(unsent: try facts.pendingCount(in: step.zone))
      try append([.zoneChanged(step.reset)])
    case .takeKept: result = .taken(TakenChanges())
    case .page(let step) where facts.zone(step.request.zone)?.token != step.token:
      var dropped = TakenChanges()
      dropped.wasDropped = true
      result = .taken(dropped)
    case .page(let step):
      let zone = step.request.zone
      if step.isReset { try append([.zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "refused"))]) }
      try append([
        .tokenAdvanced(TokenAdvanced(zone: zone, asked: step.isReset ? nil : step.token, token: step.page.token))
      ])
      if !step.page.moreComing { try append([.zoneChanged(ZoneChanged(zone: zone, change: .clean))]) }
      result = .taken(TakenChanges())
    case .answers(let step):
      if try facts.holds(step.premise) { try append(step.before + step.after) }
      result = .taken(TakenChanges())
    case .settleChildren, .createAgain: result = .changed([])
    case .findAbsent: result = .absent(AbsenceProof(living: 0, age: .fetched, absent: []))
    case .findSynced: result = .synced([])
    }
    try plan.recorded(step, result, facts)
  }

  /// Appends the events whose premises hold, as the store does.
  private mutating func append(_ events: [SyncEvent]) throws {
    for case .event(let event, let premise) in events where try facts.holds(premise) { try append([event]) }
  }

  /// The process begins again with the same log.
  mutating func relaunch() {
    plan = SyncPlan(
      facts, plan.address, plan.policies, RequestPace.Policy(SyncPace(), SeededRandom(seed: 1)))
  }
}

/// No plan asks a database.
struct UnaskedDatabase: CloudDatabase {
  struct Asked: Error {}
  var address: CloudAddress { CloudAddress(container: "iCloud.test", environment: .development) }
  func user() async throws -> String { throw Asked() }
  func zones() async throws -> [ZoneID] { throw Asked() }
  func createZone(_ zone: ZoneID) async throws { throw Asked() }
  func deleteZone(_ zone: ZoneID) async throws { throw Asked() }
  func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] { throw Asked() }
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] { throw Asked() }
  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] { throw Asked() }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage { throw Asked() }
}

/// Events of a log of one zone.
enum LogLines {
  static let zone = PlanDriver.zone

  static func seen(_ zone: ZoneID = zone, token: String? = "t0") -> [Event] {
    var events = [Event.zoneChanged(ZoneChanged(zone: zone, change: .created))]
    if let token {
      events.append(.tokenAdvanced(TokenAdvanced(zone: zone, asked: nil, token: ChangeToken(rawValue: token))))
      events.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
    }
    return events
  }

  static func dirty(_ zone: ZoneID = zone) -> Event { .zoneChanged(ZoneChanged(zone: zone, change: .dirty)) }

  /// - Parameter contents: contents that are on this device alone, each in a field of its own.
  static func saved(
    _ name: String, in zone: ZoneID = zone, base: UInt64 = 0, type: String = "Note", needs target: String? = nil,
    contents: [UInt8] = []
  ) -> Event {
    var version = Version(type: type, fields: ["title": .string(name)])
    for number in contents {
      guard let hash = ContentHash(Array(repeating: number, count: 32)) else { continue }
      version.fields["photo\(number)"] = .asset(Asset(contentHash: hash, size: 5))
    }
    if let target { version.fields["above"] = .reference(Reference(target, action: .validate)) }
    let time = HybridTime(milliseconds: 1_000)
    version.stamp.births = [Birth(time: time, writer: 5)]
    let dirty = Dictionary(uniqueKeysWithValues: version.names.map { ($0, LSN.zero) })
    return .saved(
      Saved(
        id: RecordID(name, zone: zone), type: type, births: version.stamp.births, base: LSN(rawValue: base), time: time,
        editCount: 1, tenure: 1, isCreation: base == 0, content: EncodedContent(version, dirty: dirty)))
  }

  static func fetched(_ name: String, tag: String = "a") -> Event {
    var version = Version(type: "Note", fields: ["title": .string(name)])
    version.stamp.births = [Birth(time: HybridTime(milliseconds: 1_000), writer: 5)]
    return .fetchedSave(
      FetchedSave(
        id: RecordID(name, zone: zone), version: version,
        system: SystemFields(
          changeTag: tag, created: ServerTimestamp(milliseconds: 1), modified: ServerTimestamp(milliseconds: 2)),
        source: .feed, isStamped: true))
  }

  static func deleted(_ name: String, base: UInt64) -> Event {
    .deleted(
      Deleted(
        id: RecordID(name, zone: zone), births: [Birth(time: HybridTime(milliseconds: 1_000), writer: 5)],
        base: LSN(rawValue: base), time: HybridTime(milliseconds: 2_000), tenure: 1))
  }
}

extension SyncAnswer {
  static func changed(_ zones: [ZoneID] = [], token: String = "d1") -> SyncAnswer {
    .changedZones(
      DatabasePage(
        zones: zones.map { DatabasePage.Zone(id: $0) }, token: ChangeToken(rawValue: token), moreComing: false))
  }

  static func page(_ token: String, of zone: ZoneID = PlanDriver.zone, more: Bool = false) -> SyncAnswer {
    .pages([zone: .success(ZonePage(changes: [], token: ChangeToken(rawValue: token), moreComing: more))])
  }

  /// The last page of each zone.
  static func pages(of requests: [PageRequest], _ token: String) -> SyncAnswer {
    let page = ZonePage(changes: [], token: ChangeToken(rawValue: token), moreComing: false)
    return .pages(Dictionary(uniqueKeysWithValues: requests.map { ($0.zone, .success(page)) }))
  }

  /// A content was taken.
  static func uploaded(_ upload: ContentUpload) -> SyncAnswer {
    .content(Asset(fileChecksum: "c", size: upload.content.size, receipt: "r"))
  }

  /// All of an upload was taken.
  static func taken(_ upload: UploadRequest) -> SyncAnswer {
    var results: [CloudName: CloudResult] = [:]
    for one in upload.uploads {
      results[one.id.key] =
        one.operation.kind == .delete
        ? .deleted
        : .record(
          ServerRecord(
            name: one.id.name, type: one.type, fields: [:],
            system: SystemFields(
              changeTag: "new", created: ServerTimestamp(milliseconds: 1), modified: ServerTimestamp(milliseconds: 3))))
    }
    return .records(results)
  }

  /// The server has these records, with this tag, and none of the others that it was asked for.
  static func found(_ names: [String], tag: String, of asked: [String] = []) -> SyncAnswer {
    var results: [CloudName: CloudResult] = [:]
    for name in asked {
      results[CloudName(name)] = .failed(CloudError(.notFound, reason: "no such record"), serverRecord: nil)
    }
    let system = SystemFields(
      changeTag: tag, created: ServerTimestamp(milliseconds: 1), modified: ServerTimestamp(milliseconds: 2))
    for name in names {
      results[CloudName(name)] = .record(ServerRecord(name: name, type: "Note", fields: [:], system: system))
    }
    return .records(results)
  }

  /// Each record of an upload was refused, or those that are named.
  static func refused(
    _ upload: UploadRequest, _ code: CloudError.Code, only names: Set<String>? = nil, retryAfter: Double? = nil
  ) -> SyncAnswer {
    guard case .records(var results) = taken(upload) else { return .done }
    for one in upload.uploads where names?.contains(one.id.name) ?? true {
      results[one.id.key] = .failed(CloudError(code, reason: "refused", retryAfter: retryAfter), serverRecord: nil)
    }
    return .records(results)
  }
}
