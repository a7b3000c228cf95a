// The line between a device of a simulated world and the server: it loses, repeats and delays requests as the plan says,
// lets the app and the store act before the engine gets an answer, and watches that the device is polite.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineServer
internal import StrandlineSystem
internal import Synchronization

/// A device's line to the server.
final class WorldLine: Transport {
  private struct State {
    /// Requests of the sync under way.
    var requests = 0
    var faults: [Int: WorldRequestFault] = [:]
    var meanwhile: [Int: [@Sendable () -> Void]] = [:]
    /// What the next pages of a feed from the beginning leave out.
    var omissions: [WorldOmission] = []
    /// Zones of which the device was shown such a page, and that were not compared with the server since.
    var omitted: Set<ZoneID> = []
    var offlineUntil: UInt64 = 0
    /// Before this no request may come: the server has said so.
    var politeFrom: UInt64 = 0
    /// The pages of changes of zones, the newest last.
    var pages: [OldPage] = []
    var tally = WorldTally()
    var broken: [WorldBroken] = []
  }
  private let state = Mutex(State())
  private let server: InProcessTransport
  private let cloud: CloudServer
  private let time: WorldTime
  private let clock: WorldServerClock

  init(_ server: CloudServer, _ time: WorldTime, _ clock: WorldServerClock) {
    self.clock = clock
    cloud = server
    self.server = InProcessTransport(server, waitsForDroppedAnswers: false)
    self.time = time
  }

  // MARK: What the plan says

  func plan(_ fault: WorldRequestFault, request number: Int) { state.withLock { $0.faults[number] = fault } }
  func plan(afterAnswer number: Int, _ body: @escaping @Sendable () -> Void) {
    state.withLock { $0.meanwhile[number, default: []].append(body) }
  }
  func goOffline(milliseconds: Int64) {
    let end = time.now &+ UInt64(milliseconds) &* 1_000_000
    state.withLock { $0.offlineUntil = end }
  }
  /// A sync begins, and its requests are counted from 1.
  func beginSync() { state.withLock { $0.requests = 0 } }
  /// The sync has ended: what was planned for it and has not happened does not happen later. Returns its requests.
  func endSync() -> Int {
    state.withLock { state in
      (state.faults, state.meanwhile) = ([:], [:])
      return state.requests
    }
  }
  func plan(_ omission: WorldOmission) { state.withLock { $0.omissions.append(omission) } }
  /// Zones of which the device may lack what the server has, because a page left it out.
  var omitted: Set<ZoneID> {
    get { state.withLock { $0.omitted } }
    set { state.withLock { $0.omitted = newValue } }
  }
  /// The world comes to rest.
  func heal() {
    state.withLock { state in
      (state.faults, state.meanwhile, state.offlineUntil, state.omissions) = ([:], [:], 0, [])
    }
  }
  /// The device may have lost what it knew of the wait, so that it cannot keep it.
  func forgetWait() { state.withLock { $0.politeFrom = 0 } }

  /// What has happened since this was asked last, and what was wrong with the requests.
  func takeTally() -> (tally: WorldTally, broken: [WorldBroken]) {
    state.withLock { state in
      defer { (state.tally, state.broken) = (WorldTally(), []) }
      return (state.tally, state.broken)
    }
  }

  /// A request is wrong by what it holds.
  func note(_ broken: WorldBroken) { state.withLock { $0.broken.append(broken) } }

  // MARK: A request

  private struct Way {
    var fault: WorldRequestFault?
    var isOffline: Bool
    var number: Int
  }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    try Task.checkCancellation()
    if clock.nextRequest() { state.withLock { $0.tally[.otherNode] += 1 } }
    let way = begin(request)
    let broken = CloudError(.networkError, reason: "the simulated network lost it")
    if way.isOffline { throw broken }
    switch way.fault {
    case .requestLost?: throw broken
    case .answerLost?:
      _ = try await server.send(request)
      runMeanwhile(way.number)
      // A gateway answers in the server's place: of requests of other kinds that says nothing.
      if way.number.isMultiple(of: 2) { return HTTPResponse(status: 502, body: Array("<html>".utf8)) }
      throw broken
    case .twice(let second)?:
      let answers = [try await server.send(request), try await server.send(request)]
      return answered(answers[second ? 1 : 0], way.number)
    case .late(let milliseconds)?:
      time.advance(milliseconds: milliseconds)
      return answered(try await server.send(request), way.number)
    case .oldAnswer(let back, let form)?:
      guard let old = try answer(before: back, to: request, form) else { fallthrough }
      return answered(old, way.number)
    case nil: return answered(try await keeping(request), way.number)
    }
  }

  // MARK: Old answers

  private func keeping(_ request: HTTPRequest) async throws -> HTTPResponse {
    var response = try await server.send(request)
    guard response.status == 200 else { return response }
    let queries = try Self.queries(request)
    for query in queries { try omit(from: &response, of: query) }
    state.withLock { state in
      for query in queries { state.pages.append(OldPage(query: query, response: response)) }
    }
    return response
  }

  /// What a request asks of changes of zones; nothing if it asks for something else.
  private static func queries(_ request: HTTPRequest) throws -> [ZoneChangesRequest.Zone] {
    guard request.path.hasSuffix("/changes/zone") else { return [] }
    return try WireJSON.decode(ZoneChangesRequest.self, request.body).zones
  }

  /// What was asked of a zone, and the answer of before, which may have pages of other zones too. Few of them are shown again, so
  /// an answer is read then.
  private struct OldPage {
    var query: ZoneChangesRequest.Zone
    var response: HTTPResponse

    var zone: ZoneID { query.zoneID.zone(in: .private) }
    /// Whether another question is about the same zone, and asks for the fields of records just as this one did.
    func answers(_ other: ZoneChangesRequest.Zone) -> Bool {
      zone == other.zoneID.zone(in: .private) && (query.desiredKeys == nil) == (other.desiredKeys == nil)
    }
  }

  /// A zone was made again. What a lagging node would still show of the one before, with a token of that one, no device could tell
  /// from the truth.
  func forgetPages(of zone: ZoneID) { state.withLock { $0.pages.removeAll { $0.zone == zone } } }

  /// An old answer as the answer to a request: of each zone an old page, and nothing of a zone that has none. Nil if no zone has
  /// one.
  private func answer(before back: Int, to request: HTTPRequest, _ form: WorldOldAnswer) throws -> HTTPResponse? {
    let pages = state.withLock { $0.pages }
    var answer: HTTPResponse?
    var zones: [ZoneChangesReply.Zone] = []
    for query in try Self.queries(request) {
      let own = pages.filter { $0.answers(query) }
      guard own.count >= back else { continue }
      let old = own[own.count - back]
      guard let page = try page(old, as: query, form) else { continue }
      zones.append(page)
      answer = old.response
    }
    answer?.body = WireJSON.encode(ZoneChangesReply(zones: zones))
    // A server that lags says what it knows, and the right time.
    answer?.headers["Date"] = HTTPDate.text(time.milliseconds)
    if answer != nil { state.withLock { $0.tally[.oldAnswer] += 1 } }
    return answer
  }

  /// An old page of a zone as the answer to a question about it. Nil if it is none of the same life of the zone, and if it was
  /// asked for with a newer token, by a device that has lost it since: no server, however far behind, leaves out what came between
  /// the two.
  ///
  /// Each page of an answer is held against its own question: a power cut may keep the token that one page of an answer brought,
  /// and lose that of another.
  private func page(
    _ old: OldPage, as query: ZoneChangesRequest.Zone, _ form: WorldOldAnswer
  ) throws -> ZoneChangesReply.Zone? {
    let reply = try WireJSON.decode(ZoneChangesReply.self, old.response.body)
    guard var page = reply.zones.first(where: { $0.zoneID?.zone(in: .private) == old.zone }),
      let token = page.syncToken, let asked = query.syncToken, let place = cloud.place(ofToken: asked),
      cloud.place(ofToken: token)?.life == place.life,
      old.query.syncToken.flatMap({ cloud.place(ofToken: $0)?.lsn }) ?? 0 <= place.lsn
    else { return nil }
    if form != .rewound { page.syncToken = asked }
    page.moreComing = true
    switch form {
    case .repeated, .rewound: break
    case .empty: page.records = []
    case .tombstones: page.records?.removeAll { $0.deleted != true }
    }
    return page
  }

  // MARK: Omissions

  /// Leaves out what is planned, if a page is the first of a feed.
  private func omit(from response: inout HTTPResponse, of query: ZoneChangesRequest.Zone) throws {
    guard query.syncToken == nil else { return }
    let zone = query.zoneID.zone(in: .private)
    var reply = try WireJSON.decode(ZoneChangesReply.self, response.body)
    guard
      let place = reply.zones.firstIndex(where: { page in
        page.zoneID?.zone(in: .private) == zone && page.records?.isEmpty == false
      })
    else { return }
    let omission = state.withLock { state -> WorldOmission? in
      guard !state.omissions.isEmpty else { return nil }
      state.omitted.insert(zone)
      state.tally[.omittedRecords] += 1
      return state.omissions.removeFirst()
    }
    guard let omission else { return }
    let records = reply.zones[place].records ?? []
    switch omission {
    case .all: reply.zones[place].records = []
    case .half:
      reply.zones[place].records = records.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
    case .rest: break
    }
    reply.zones[place].moreComing = false
    response.body = WireJSON.encode(reply)
  }

  private func begin(_ request: HTTPRequest) -> Way {
    let now = time.now
    return state.withLock { state in
      state.requests += 1
      state.tally.requests += 1
      if now < state.politeFrom {
        let early = (state.politeFrom - now) / 1_000_000
        state.broken.append(
          WorldBroken(.polite, "\(request.path) came \(early) ms before the time that the server named"))
      }
      let fault = state.faults.removeValue(forKey: state.requests)
      let isOffline = now < state.offlineUntil
      if isOffline { state.tally[.offline] += 1 }
      switch fault {
      case .requestLost? where !isOffline: state.tally[.lostRequest] += 1
      case .answerLost? where !isOffline: state.tally[.lostAnswer] += 1
      case .twice? where !isOffline: state.tally[.duplicate] += 1
      case .late? where !isOffline: state.tally[.delay] += 1
      default: break
      }
      return Way(fault: fault, isOffline: isOffline, number: state.requests)
    }
  }

  private func answered(_ response: HTTPResponse, _ number: Int) -> HTTPResponse {
    if response.status == 503 || response.status == 429 {
      let wait = response.headers["Retry-After"].flatMap { UInt64($0) }
      let now = time.now
      state.withLock { state in
        state.tally[.throttled] += 1
        // A second of the header may be a fraction in the body, so one second is not insisted on.
        if let wait, wait > 1 { state.politeFrom = max(state.politeFrom, now + (wait - 1) * 1_000_000_000) }
      }
    }
    runMeanwhile(number)
    return response
  }

  private func runMeanwhile(_ number: Int) {
    for body in state.withLock({ $0.meanwhile.removeValue(forKey: number) ?? [] }) { body() }
  }
}

/// The records that the server of a world refuses for now, from every device.
final class WorldRefusals: Sendable {
  /// A refusal that is planned.
  struct Refusal: Sendable {
    var code: CloudError.Code
    var times: Int
  }
  private let planned = Mutex<[RecordID: Refusal]>([:])

  /// Every code that a server may give to one record.
  static let codes: [CloudError.Code] = [
    .accessDenied, .atomicError, .authenticationFailed, .authenticationRequired, .badRequest, .conflict, .exists,
    .internalError, .notFound, .quotaExceeded, .throttled, .tryAgainLater, .validatingReferenceError, .zoneNotFound,
    .uniqueFieldError, .zoneBusy, .limitExceeded, .serviceUnavailable, CloudError.Code(rawValue: "NEVER_HEARD_OF"),
  ]

  func plan(_ id: RecordID, _ code: CloudError.Code, times: Int) {
    planned.withLock { $0[id] = Refusal(code: code, times: times) }
  }
  /// The records that are refused now, and with what.
  var all: [RecordID: CloudError.Code] { planned.withLock { $0.mapValues(\.code) } }
  func end() { planned.withLock { $0 = [:] } }

  /// The refusal of one operation, which counts as one.
  func take(_ id: RecordID) -> CloudError? {
    planned.withLock { planned in
      guard var refusal = planned[id] else { return nil }
      refusal.times -= 1
      planned[id] = refusal.times > 0 ? refusal : nil
      return CloudError(refusal.code, reason: "the simulated server does not want it", requestUUID: "simulated")
    }
  }
}

/// The zones of which the server of a world refuses every change for now, from every device.
final class WorldDenials: Sendable {
  private let state = Mutex<(now: Set<ZoneID>, ever: Set<ZoneID>, count: Int)>(([], [], 0))

  func set(_ zone: ZoneID, _ isDenied: Bool) {
    state.withLock { state in
      if isDenied {
        state.now.insert(zone)
        state.ever.insert(zone)
      } else {
        state.now.remove(zone)
      }
    }
  }
  func end() { state.withLock { $0.now = [] } }

  /// Whether the server has ever refused changes of a zone.
  func hasDenied(_ zone: ZoneID) -> Bool { state.withLock { $0.ever.contains(zone) } }
  /// How many requests were refused since this was asked last.
  func takeCount() -> Int {
    state.withLock { state in
      defer { state.count = 0 }
      return state.count
    }
  }

  func check(_ zone: ZoneID) throws {
    try state.withLock { state in
      guard state.now.contains(zone) else { return }
      state.count += 1
      throw CloudError(.accessDenied, reason: "the simulated user may not write here", requestUUID: "simulated")
    }
  }
}

/// Why the zones of a world that are gone at the server are gone, as its list of changes says it.
final class WorldLosses: Sendable {
  /// What a list of changed zones may say of a zone that is gone.
  static let reasons: [ZoneLoss] = [.deleted, .purged, .encryptedDataReset]
  private let named = Mutex<[ZoneID: ZoneLoss]>([:])

  func name(_ reason: ZoneLoss, for zone: ZoneID) { named.withLock { $0[zone] = reason } }

  func naming(_ page: DatabasePage) -> DatabasePage {
    var page = page
    named.withLock { named in
      for place in page.zones.indices where page.zones[place].loss == .deleted {
        page.zones[place].loss = named[page.zones[place].id] ?? .deleted
      }
    }
    return page
  }
}

/// The server as a device's engine sees it: with refusals of single records, and of zones.
struct WorldDatabase: ForwardingDatabase {
  let base: any CloudDatabase
  let refusals: WorldRefusals
  let denials: WorldDenials
  let losses: WorldLosses
  let together: WorldTogether
  let device: Int
  let store: @Sendable () -> RecordStore?
  let onRefusal: @Sendable () -> Void
  /// Called with what is wrong with a request that could delete more than it says.
  let onDanger: @Sendable (WorldBroken) -> Void

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    // The power may be cut: then nothing can be read any more, and nothing is sent.
    if let store = store(), let broken = (try? WorldCascades.broken(operations, in: zone, atomic: atomic, store)) ?? nil
    {
      onDanger(WorldBroken(.noLostWrite, "a request can take an edit along: \(broken)"))
    }
    try denials.check(zone)
    return try await together.judging(operations, in: zone, of: device, store()) {
      try await answer(operations, in: zone, atomic: atomic)
    }
  }

  func createZone(_ zone: ZoneID) async throws {
    try denials.check(zone)
    try await base.createZone(zone)
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    losses.naming(try await base.databaseChanges(since: token, limit: limit))
  }

  private func answer(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] {
    var refused: [CloudName: CloudResult] = [:]
    for operation in operations {
      guard let error = refusals.take(RecordID(operation.name, zone: zone)) else { continue }
      onRefusal()
      refused[operation.name] = .failed(error, serverRecord: nil)
    }
    let others = operations.filter { refused[$0.name] == nil }
    if others.isEmpty { return refused }
    guard !(atomic && !refused.isEmpty) else {
      for operation in others { refused[operation.name] = .failed(CloudError(.atomicError), serverRecord: nil) }
      return refused
    }
    return try await base.modify(others, in: zone, atomic: atomic).merging(refused) { $1 }
  }
}
