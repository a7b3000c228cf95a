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
    /// The answers about changes of zones, the newest last.
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
      guard let old = page(before: back, of: request, form) else { fallthrough }
      return answered(old, way.number)
    case nil: return answered(try await keeping(request), way.number)
    }
  }

  // MARK: Old answers

  private func keeping(_ request: HTTPRequest) async throws -> HTTPResponse {
    var response = try await server.send(request)
    if response.status == 200, OldPage.isKept(request) { omit(from: &response, of: request) }
    if response.status == 200, OldPage.isKept(request) {
      state.withLock { $0.pages.append(OldPage(request: request.body, response: response)) }
    }
    return response
  }

  /// An answer of before, and the request. Few of them are asked for again, so what the request says is read then.
  private struct OldPage {
    var request: [UInt8]
    var response: HTTPResponse

    static func isKept(_ request: HTTPRequest) -> Bool { request.path.hasSuffix("/changes/zone") }

    /// The zone whose changes were asked for.
    var zone: ZoneID? { WorldLine.zone(in: request) }
    /// The token with which they were asked for.
    var since: String? { WorldLine.token(in: request) }
    /// Whether records without fields were asked for.
    var lists: Bool { WorldLine.lists(request) }
  }

  /// The zone that the body of a request for changes names.
  private static func zone(in body: [UInt8]) -> ZoneID? {
    return WorldNames.each.flatMap(\.zones).first { zone in
      let name = Array("\"\(zone.name)\"".utf8)
      return body.indices.contains { body[$0...].starts(with: name) }
    }
  }

  /// Whether a request asks for records without fields.
  private static func lists(_ body: [UInt8]) -> Bool {
    String(decoding: body, as: UTF8.self).contains("\"desiredKeys\"")
  }

  /// A zone was made again. What a lagging node would still show of the one before, with a token of that one, no device could tell
  /// from the truth.
  func forgetPages(of zone: ZoneID) { state.withLock { $0.pages.removeAll { $0.zone == zone } } }

  /// An old answer as the answer to a request. Nil if there is none of the same life of the zone, and if it was asked for with a
  /// newer token, by a device that has lost it since: no server, however far behind, leaves out what came between the two. Nor
  /// does it leave out the fields of records of which they were asked for.
  private func page(before back: Int, of request: HTTPRequest, _ form: WorldOldAnswer) -> HTTPResponse? {
    guard OldPage.isKept(request), let zone = Self.zone(in: request.body), let asked = Self.token(in: request.body)
    else { return nil }
    return state.withLock { state in
      let lists = Self.lists(request.body)
      let pages = state.pages.filter { $0.zone == zone && $0.lists == lists }
      guard pages.count >= back else { return nil }
      let old = pages[pages.count - back]
      var page = old.response
      guard let token = Self.token(in: page.body), let place = cloud.place(ofToken: asked),
        cloud.place(ofToken: token)?.life == place.life,
        old.since.flatMap({ cloud.place(ofToken: $0)?.lsn }) ?? 0 <= place.lsn
      else { return nil }
      var text = String(decoding: page.body, as: UTF8.self)
      if form != .rewound { text = text.replacing(token, with: asked) }
      page.body = Self.reduced(
        Array(text.replacing("\"moreComing\":false", with: "\"moreComing\":true").utf8), form)
      // A server that lags says what it knows, and the right time.
      page.headers["Date"] = HTTPDate.text(time.milliseconds)
      state.tally[.oldAnswer] += 1
      return page
    }
  }

  // MARK: Omissions

  /// Leaves out what is planned, if a page is the first of a feed.
  private func omit(from response: inout HTTPResponse, of request: HTTPRequest) {
    guard Self.token(in: request.body) == nil, let zone = Self.zone(in: request.body),
      var page = try? WireJSON.decode(ZoneChangesReply.self, response.body),
      page.zones.contains(where: { $0.records?.isEmpty == false })
    else { return }
    let omission = state.withLock { state -> WorldOmission? in
      guard !state.omissions.isEmpty else { return nil }
      state.omitted.insert(zone)
      state.tally[.omittedRecords] += 1
      return state.omissions.removeFirst()
    }
    guard let omission else { return }
    for place in page.zones.indices {
      let records = page.zones[place].records ?? []
      switch omission {
      case .all: page.zones[place].records = []
      case .half:
        page.zones[place].records = records.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
      case .rest: break
      }
      page.zones[place].moreComing = false
    }
    response.body = WireJSON.encode(page)
  }

  /// A page without the changes that a form leaves out.
  private static func reduced(_ body: [UInt8], _ form: WorldOldAnswer) -> [UInt8] {
    guard form == .empty || form == .tombstones, var page = try? WireJSON.decode(ZoneChangesReply.self, body) else {
      return body
    }
    for place in page.zones.indices {
      page.zones[place].records?.removeAll { form == .empty || $0.deleted != true }
    }
    return WireJSON.encode(page)
  }

  /// The first change token in a body.
  private static func token(in body: [UInt8]) -> String? {
    let parts = String(decoding: body, as: UTF8.self).split(separator: "\"syncToken\":\"", maxSplits: 1)
    guard parts.count == 2, let end = parts[1].firstIndex(of: "\"") else { return nil }
    return String(parts[1][..<end])
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
