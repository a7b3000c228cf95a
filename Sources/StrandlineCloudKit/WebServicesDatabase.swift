// CloudKit Web Services as a CloudDatabase: the engine's requests as HTTP and JSON, and their answers record by
// record.
//
// No answer can trap here. One that cannot be read becomes the error `unexpectedServerResponse`, of the request or, if
// the rest of the answer can be read, of the one record. Results are matched by record name, never by position. A
// credential has one request in flight.

package import Strandline
internal import StrandlineJSON
package import StrandlineSystem

/// One database of a container, reached over HTTP.
package final class WebServicesDatabase: CloudDatabase, CustomStringConvertible {
  /// Container, environment, scope.
  package let address: CloudAddress

  private let apiToken: String
  private let session: WebSession?
  let origin: String
  private let basePath: String
  private let devicePath: String
  let pushes: OrderedMutex<PushListening> = OrderedMutex(PushListening())
  let transport: any Transport
  /// To the content host.
  let contentTransport: any Transport
  let environment: SystemEnvironment
  private let queue: RequestQueue
  private let serverOffset: OrderedMutex<Int64?> = OrderedMutex(nil)
  /// The user for whom requests are made; nil until the server has said who is signed in.
  private let owner: OrderedMutex<String?>
  /// Whether the owner stays the same.
  private let isRestricted: Bool

  /// The origin of Apple's service.
  package static let appleOrigin = "https://api.apple-cloudkit.com"
  /// How many other tokens of the session's file a refused request tries.
  private static let otherTokensMax = 8
  /// The most operations, or records looked up, in one request; CloudKit's limit.
  package static let operationsMax = 200

  /// A client of a database.
  ///
  /// - Parameters:
  ///   - apiToken: the container's API token; empty for the local server.
  ///   - session: the signed-in user's session; the databases of one user share it. Nil if the server needs no sign-in.
  ///   - baseURL: scheme, host and port, without a path.
  package init(
    address: CloudAddress, apiToken: String, session: WebSession?, baseURL: String,
    transport: any Transport, environment: SystemEnvironment
  ) {
    self.address = address
    self.apiToken = apiToken
    self.session = session
    self.transport = transport
    contentTransport = transport.forContents
    self.environment = environment
    self.queue = session?.queue ?? RequestQueue()
    owner = OrderedMutex(nil)
    isRestricted = false
    var origin = baseURL
    while origin.hasSuffix("/") { origin.removeLast() }
    self.origin = origin
    let place =
      "\(PercentEncoding.encode(address.container))/\(PercentEncoding.encode(address.environment.rawValue))/"
    (basePath, devicePath) = ("/database/1/" + place, "/device/1/" + place)
  }

  /// The same client for one user alone.
  private init(_ other: WebServicesDatabase, restrictedTo user: String) {
    address = other.address
    apiToken = other.apiToken
    session = other.session
    (transport, contentTransport) = (other.transport, other.contentTransport)
    environment = other.environment
    queue = other.queue
    (origin, basePath, devicePath) = (other.origin, other.basePath, other.devicePath)
    owner = OrderedMutex(user)
    isRestricted = true
  }

  /// A client of a database.
  ///
  /// - Parameters:
  ///   - address: container, environment and scope.
  ///   - apiToken: the container's API token; empty for the local server.
  ///   - session: the signed-in user's session; the databases of one user share it. Nil if the server needs no sign-in.
  ///   - baseURL: scheme, host and port, without a path.
  ///   - transport: carries the requests.
  package convenience init(
    address: CloudAddress, apiToken: String = "", session: WebSession? = nil,
    baseURL: String = WebServicesDatabase.appleOrigin, transport: any Transport = NetworkTransport()
  ) {
    self.init(
      address: address, apiToken: apiToken, session: session, baseURL: baseURL, transport: transport,
      environment: .real)
  }

  /// The database, and where it is reached; no credential.
  package var description: String { "\(address) at \(origin)" }

  /// What the transport names for the server.
  package var minimumInterval: Duration { transport.minimumInterval(to: origin) }

  // MARK: Requests

  /// The session's token is sent once more, if the server has refused it and a person wants the cycle.
  package func beginCycle(isUserInitiated: Bool) { if isUserInitiated { session?.endOwnWaits() } }

  /// The same database for one user alone, with the same session and the same lane of requests.
  package func restricted(to user: String) -> any CloudDatabase { WebServicesDatabase(self, restrictedTo: user) }

  /// Removes the session's token, in memory and on disk.
  package func forgetCredential() throws { try session?.signOut() }

  /// Makes a token the session's, as `WebSession.signIn(token:)` does; false if this database has no session.
  package func signIn(token: String) throws -> Bool {
    try session?.signIn(token: token)
    return session != nil
  }

  /// The record name of the signed-in user.
  package func user() async throws -> String {
    let name = try callersName(try await ask(UserReply.self, "GET", Self.callerEndpoint))
    guard isRestricted else {
      owner.withLock { $0 = name }
      return name
    }
    guard owner.withLock({ $0 }).equalsUTF8(name) else { throw StrandlineError.anotherUser }
    return name
  }

  private static let callerEndpoint = "public/users/caller"

  /// The user of an answer, who is the one of the token from now on.
  private func callersName(_ answer: Answer<UserReply>) throws -> String {
    guard let name = answer.value.users?.first?.userRecordName ?? answer.value.userRecordName, !name.isEmpty else {
      // Every key of this answer is optional, so a refusal under HTTP 200 is one that names no user.
      if let refusal = refusal(answer.response) {
        throw answer.errors.item(refusal, answer.response, status: answer.response.status)
      }
      throw answer.errors.unexpected(answer.response, "the answer to users/caller names no user")
    }
    session?.isUsers(name, answer.successor)
    return name
  }

  /// Refuses a request that would be made in another user's name. A token that came from outside may be anybody's, so the server is
  /// asked whose it is before anything else is sent with it.
  ///
  /// - Returns: the token of the next request.
  private func tokenOfOwner(_ token: String?) async throws -> String? {
    guard let session, let sent = token, let owner = owner.withLock({ $0 }) else { return token }
    var token = token
    if session.user == nil {
      _ = try callersName(
        try await ask(UserReply.self, "GET", Self.callerEndpoint, encoded: [], token: sent))
      token = try session.tokenForRequest()
    }
    guard let user = session.user, user.equalsUTF8(owner) else { throw StrandlineError.anotherUser }
    return token
  }

  /// The zones that exist, without CloudKit's default zone, which always exists and cannot be synced.
  package func zones() async throws -> [ZoneID] {
    let answer = try await ask(ZonesReply.self, "GET", scoped("zones/list"))
    var result: [ZoneID] = []
    for zone in answer.value.zones {
      if let error = zone.error { throw answer.errors.item(error, answer.response) }
      guard let id = zone.zoneID, id.name != Names.defaultZone, zone.deleted != true else { continue }
      result.append(id.zone(in: address.scope))
    }
    return result
  }

  /// Creates a zone; succeeds if it exists already.
  package func createZone(_ zone: ZoneID) async throws {
    do { try await change(zone, "create") } catch let error as CloudError where error.code == .exists { return }
  }

  /// Deletes a zone with all its records; throws `.zoneNotFound` if it is not there.
  package func deleteZone(_ zone: ZoneID) async throws { try await change(zone, "delete") }

  /// Asks for one change of a zone: "create" or "delete".
  private func change(_ zone: ZoneID, _ operation: String) async throws {
    let request = ZonesModifyRequest(operations: [
      .init(operationType: operation, zone: .init(zoneID: WireZoneID(zone)))
    ])
    let answer = try await ask(ZonesReply.self, "POST", scoped("zones/modify"), request)
    guard
      let result = answer.value.zones.first(where: { ($0.zoneID?.name).equalsUTF8(zone.name) })
        ?? unnamed(answer.value.zones)
    else {
      throw answer.errors.unexpected(
        answer.response, "the answer to '\(operation)' of zone '\(zone.name)' does not name it")
    }
    if let error = result.error { throw answer.errors.item(error, answer.response) }
  }

  /// An error entry may come without the zone's name. If it is the only entry, it is the requested zone's.
  private func unnamed(_ zones: [WireZone]) -> WireZone? {
    zones.count == 1 && zones[0].zoneID == nil ? zones[0] : nil
  }

  /// Applies operations to records of one zone.
  package func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] {
    guard !operations.isEmpty else { return [:] }
    guard operations.count <= Self.operationsMax else {
      throw CloudError(
        .badRequest, reason: "\(operations.count) operations in one request; the limit is \(Self.operationsMax)")
    }
    var kinds: [CloudName: CloudOperation.Kind] = [:]
    for operation in operations {
      guard kinds.updateValue(operation.kind, forKey: CloudName(operation.name)) == nil else {
        throw CloudError(.badRequest, reason: "two operations on '\(operation.name)' in one request")
      }
      for (field, value) in operation.fields {
        if let defect = value.flatMap(Self.defect(of:)) {
          throw CloudError(.badRequest, reason: "field '\(field)' of '\(operation.name)' holds \(defect)")
        }
      }
    }
    let answer = try await ask(
      RecordsReply.self, "POST", scoped("records/modify"),
      encoded: WireJSON.encode(operations, in: zone, atomic: atomic))
    return try results(answer, names: operations.map(\.name), in: zone) { name in
      switch kinds[name] {
      case .delete, .forceDelete: .deletion
      default: .save
      }
    }
  }

  /// The current versions of records of one zone.
  package func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    guard !names.isEmpty else { return [:] }
    guard names.count <= Self.operationsMax else {
      throw CloudError(
        .badRequest, reason: "\(names.count) records looked up in one request; the limit is \(Self.operationsMax)")
    }
    let request = RecordsLookupRequest(zoneID: WireZoneID(zone), records: names.map { .init(recordName: $0) })
    let answer = try await ask(RecordsReply.self, "POST", scoped("records/lookup"), request)
    return try results(answer, names: names, in: zone) { _ in .lookup }
  }

  /// One page of changes of each of some zones. An answer that names one of several zones twice, or not at all, says nothing of it.
  package func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    var pages: [ZoneID: Result<ZonePage, CloudError>] = [:]
    for query in queries where query.token?.isNative == true { pages[query.zone] = .failure(Self.foreignToken) }
    let queries = queries.filter { pages[$0.zone] == nil }
    guard !queries.isEmpty else { return pages }
    let asked = queries.map { query in
      // The service's meaning of an empty token is ambiguous, so none is sent.
      let token = query.token?.rawValue.isEmpty == true ? nil : query.token?.rawValue
      return ZoneChangesRequest.Zone(
        zoneID: WireZoneID(query.zone), syncToken: token, resultsLimit: min(max(query.limit, 1), Self.operationsMax),
        desiredKeys: query.listsOnly ? [] : nil)
    }
    let request = ZoneChangesRequest(zones: asked, resultsLimit: asked.compactMap(\.resultsLimit).max())
    let answer = try await ask(ZoneChangesReply.self, "POST", scoped("changes/zone"), request)
    for query in queries {
      pages[query.zone] = entry(of: query.zone, in: answer.value.zones, asked: queries).map { entry in
        Result { () throws(CloudError) in try page(entry, query, answer) }
      }
    }
    if let query = queries.first, queries.count == 1, pages.isEmpty {
      throw answer.errors.unexpected(
        answer.response, "the answer to a request for changes of zone '\(query.zone.name)' does not name it")
    }
    return pages
  }

  /// A token of CloudKit's framework is as one that has expired: the feed begins anew.
  private static let foreignToken = CloudError(
    .changeTokenExpired, reason: "the change token is one of CloudKit's framework")

  /// What an answer says of a zone.
  private func entry(
    of zone: ZoneID, in entries: [ZoneChangesReply.Zone], asked: [ZoneQuery]
  ) -> ZoneChangesReply.Zone? {
    let named = entries.filter { ($0.zoneID?.name).equalsUTF8(zone.name) }
    // An owner may be spelled in another way than it was asked for, so it counts only where the name does not tell.
    if asked.count(where: { $0.zone.name.equalsUTF8(zone.name) }) > 1 {
      let own = named.filter { $0.zoneID?.zone(in: address.scope) == zone }
      return own.count == 1 ? own[0] : nil
    }
    if asked.count > 1 { return named.count == 1 ? named[0] : nil }
    return named.first ?? (entries.count == 1 && entries[0].zoneID == nil ? entries[0] : nil)
  }

  private func page(
    _ entry: ZoneChangesReply.Zone, _ query: ZoneQuery, _ answer: Answer<ZoneChangesReply>
  ) throws(CloudError) -> ZonePage {
    if let error = entry.error { throw answer.errors.item(error, answer.response) }
    guard let next = entry.syncToken, !next.isEmpty else {
      throw answer.errors.unexpected(answer.response, "a page of changes of zone '\(query.zone.name)' has no token")
    }
    let (changes, unnamed) = try changes(of: entry, query.zone, answer)
    return ZonePage(
      changes: changes, token: ChangeToken(rawValue: next), moreComing: entry.moreComing ?? false,
      hasFields: !query.listsOnly, unnamed: unnamed)
  }

  /// The changes of a page, and how many entries name no record: those must not keep the others back.
  ///
  /// - Throws: if none of the entries names one. Then this is no page.
  private func changes(
    of entry: ZoneChangesReply.Zone, _ zone: ZoneID, _ answer: Answer<ZoneChangesReply>
  ) throws(CloudError) -> ([ZoneChange], unnamed: Int) {
    var changes: [ZoneChange] = []
    var unnamed = 0
    for record in entry.records ?? [] {
      guard let name = record.recordName, !name.isEmpty else {
        unnamed += 1
        continue
      }
      if let error = record.error {
        changes.append(.failed(name: name, answer.errors.item(error, answer.response)))
      } else if record.deleted == true {
        changes.append(.deleted(name: name))
      } else if let defect = record.defect {
        changes.append(.failed(name: name, unreadable(record, defect, answer.errors, answer.response)))
      } else if let missing = missing(in: record) {
        changes.append(
          .failed(name: name, answer.errors.unexpectedItem("the record has \(missing)", answer.response)))
      } else {
        changes.append(.saved(record.serverRecord(name: name, in: zone)))
      }
    }
    if unnamed > 0, changes.isEmpty {
      throw answer.errors.unexpected(answer.response, "no change of zone '\(zone.name)' has a record name")
    }
    return (changes, unnamed)
  }

  /// Records of a type, the one that was changed last first.
  package func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    let request = QueryRequest(
      zoneID: WireZoneID(zone),
      query: .init(
        recordType: WireName.wire(type), sortBy: [.init(systemFieldName: "modifiedTimestamp", ascending: false)]),
      resultsLimit: min(max(limit, 1), Self.operationsMax), continuationMarker: marker)
    let answer = try await ask(QueryReply.self, "POST", scoped("records/query"), request)
    let records = answer.value.records.compactMap { record -> ServerRecord? in
      guard let name = record.recordName, !name.isEmpty, record.error == nil, record.defect == nil,
        record.deleted != true, missing(in: record) == nil
      else { return nil }
      return record.serverRecord(name: name, in: zone)
    }
    let next = answer.value.continuationMarker
    return NewestPage(records: records, marker: next?.isEmpty == false ? next : nil)
  }

  /// One page of the zones that changed since a token.
  package func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    if token?.isNative == true { throw Self.foreignToken }
    let sent = token?.rawValue.isEmpty == true ? nil : token?.rawValue
    let request = DatabaseChangesRequest(syncToken: sent, resultsLimit: min(max(limit, 1), Self.operationsMax))
    let answer = try await ask(DatabaseChangesReply.self, "POST", scoped("changes/database"), request)
    guard !answer.value.syncToken.isEmpty else {
      throw answer.errors.unexpected(answer.response, "a page of changed zones has no token")
    }
    var zones: [DatabasePage.Zone] = []
    for zone in answer.value.zones {
      if let error = zone.error { throw answer.errors.item(error, answer.response) }
      guard let id = zone.zoneID else {
        throw answer.errors.unexpected(answer.response, "a changed zone has no name")
      }
      zones.append(.init(id: id.zone(in: address.scope), loss: zone.deleted == true ? .deleted : nil))
    }
    return DatabasePage(
      zones: zones, token: ChangeToken(rawValue: answer.value.syncToken), moreComing: answer.value.moreComing ?? false)
  }

  // MARK: Records

  private enum Asked {
    case save, deletion, lookup
  }

  /// The results by name. An entry that names no record harms no other.
  ///
  /// - Throws: if none of the entries names one. Then this is no answer.
  private func results(
    _ answer: Answer<RecordsReply>, names: [String], in zone: ZoneID, asked: (String) -> Asked
  ) throws(CloudError) -> [CloudName: CloudResult] {
    let entries = answer.value.records
    if !entries.isEmpty, entries.allSatisfy({ $0.recordName == nil }) {
      throw answer.errors.unexpected(answer.response, "no entry of the answer names a record")
    }
    var results: [CloudName: CloudResult] = [:]
    let wanted = Set(texts: names)
    for record in answer.value.records {
      guard let name = record.recordName, wanted.contains(name) else { continue }
      guard results[name] == nil else {
        results[name] = .failed(
          answer.errors.unexpectedItem("the answer has two results for this record", answer.response),
          serverRecord: nil)
        continue
      }
      results[name] = result(of: record, name, answer, zone, asked(name))
    }
    for name in names where results[name] == nil {
      results[name] = .failed(
        answer.errors.unexpectedItem("the answer has no result for this record", answer.response), serverRecord: nil)
    }
    return results
  }

  private func result(
    of record: WireRecord, _ name: String, _ answer: Answer<RecordsReply>, _ zone: ZoneID, _ asked: Asked
  ) -> CloudResult {
    func failed(_ what: String) -> CloudResult {
      .failed(answer.errors.unexpectedItem(what, answer.response), serverRecord: nil)
    }
    if let error = record.error { return .failed(answer.errors.item(error, answer.response), serverRecord: nil) }
    if let defect = record.defect {
      return .failed(unreadable(record, defect, answer.errors, answer.response), serverRecord: nil)
    }
    switch asked {
    case .deletion:
      return record.deleted == true ? .deleted : failed("the answer to a deletion shows the record undeleted")
    case .save:
      if record.deleted == true { return failed("the answer to a save shows the record deleted") }
      guard record.recordChangeTag != nil else { return failed("the saved record has no change tag") }
    case .lookup:
      if record.deleted == true { return .deleted }
      if let missing = missing(in: record) { return failed("the record has \(missing)") }
    }
    return .record(record.serverRecord(name: name, in: zone))
  }

  /// The error for a record of an answer that cannot be read, with its bytes.
  private func unreadable(
    _ record: WireRecord, _ defect: String, _ errors: WebServicesErrors, _ response: HTTPResponse
  ) -> CloudError {
    var error = errors.unexpectedItem("the record cannot be read: \(defect)", response)
    error.raw = record.raw
    return error
  }

  /// Why a value cannot be sent; nil if it can.
  private static func defect(of value: FieldValue) -> String? {
    if let defect = value.defect(isKept: true) { return defect }
    switch value {
    case .opaque(let opaque), .encrypted(.opaque(let opaque)):
      return WireField.isJSON(opaque) ? nil : "a value of the type '\(opaque.type.prefix(40))' that is no JSON"
    default: return nil
    }
  }

  /// What an undeleted record must have and this one has not; nil if it has all of it.
  private func missing(in record: WireRecord) -> String? {
    if record.recordType?.isEmpty ?? true { return "no type" }
    if record.recordChangeTag == nil { return "no change tag" }
    return nil
  }

  /// How many milliseconds the server's clock was at least ahead (below zero: behind) in the newest answer that named its
  /// time; 0 if that answer agrees with this device's clock.
  package var serverClockOffset: Duration? { serverOffset.withLock { $0 }.map { .milliseconds($0) } }

  /// Learns the server's clock from the header `Date`: whole seconds, written at some moment between the request and now.
  ///
  /// Taken is the least offset with which that can be so. A clock that is right is then left alone: a guess at the part of
  /// the second and at the way back would set it wrong by up to a second, and the earlier of two writes, made on two devices
  /// within that second, would win.
  private func learnServerTime(_ response: HTTPResponse, sent: UInt64) {
    guard let text = response.headers["date"], let date = HTTPDate.milliseconds(text) else { return }
    let received = environment.clock.wallMilliseconds()
    let now = environment.clock.monotonicNanoseconds()
    let elapsed = Int64((max(now, sent) - sent) / 1_000_000)
    let (least, greatest) = (date - received, date + 999 - (received - elapsed))
    serverOffset.withLock { $0 = min(max(0, least), greatest) }
  }

  /// A record whose bytes an earlier version could not read; nil if this one cannot either.
  package func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? {
    guard let record = try? WireJSON.decode(WireRecord.self, raw), record.error == nil, record.defect == nil,
      record.deleted != true, missing(in: record) == nil, let name = record.recordName
    else { return nil }
    return record.serverRecord(name: name, in: zone)
  }

  // MARK: One exchange

  struct Answer<Value: Sendable>: Sendable {
    var value: Value
    var response: HTTPResponse
    var errors: WebServicesErrors
    /// The session's token after it.
    var successor: String?
  }

  func scoped(_ endpoint: String) -> String {
    switch address.scope {
    case .public: "public/" + endpoint
    case .private: "private/" + endpoint
    case .shared: "shared/" + endpoint
    }
  }

  func ask<Value: WireMessage>(
    _ type: Value.Type, _ method: String, _ endpoint: String, _ body: (any WireMessage)? = nil
  ) async throws -> Answer<Value> {
    try await ask(type, method, endpoint, encoded: body.map { WireJSON.encode($0) } ?? [])
  }

  private func ask<Value: WireMessage>(
    _ type: Value.Type, _ method: String, _ endpoint: String, encoded body: [UInt8]
  ) async throws -> Answer<Value> {
    try await queue.run { [self] in
      // A token that cannot be made durable is not sent.
      var token = try session?.tokenForRequest()
      var triesLeft = Self.otherTokensMax
      while true {
        do {
          if endpoint != Self.callerEndpoint { token = try await tokenOfOwner(token) }
          return try await ask(type, method, endpoint, encoded: body, token: token)
        } catch let error as CloudError where error.httpStatus == 421 && triesLeft > 0 {
          // Another process may have signed in meanwhile, or have brought the session further, perhaps again and again.
          guard let next = try session?.tokenForRequest(), next != token else { throw error }
          (token, triesLeft) = (next, triesLeft - 1)
        }
      }
    }
  }

  /// The same with this token.
  private func ask<Value: WireMessage>(
    _ type: Value.Type, _ method: String, _ endpoint: String, encoded body: [UInt8], token: String?
  ) async throws -> Answer<Value> {
    if let error = session?.refusal(of: token, at: environment.clock.monotonicNanoseconds()) { throw error }
    var query: [String] = []
    if !apiToken.isEmpty { query.append("ckAPIToken=" + PercentEncoding.encode(apiToken)) }
    if let token { query.append("ckWebAuthToken=" + PercentEncoding.encode(token)) }
    let request = HTTPRequest(
      method: method, origin: origin, path: (endpoint.hasPrefix("tokens/") ? devicePath : basePath) + endpoint,
      query: query.joined(separator: "&"),
      headers: ["Content-Type": "application/json; charset=utf-8", "Accept": "application/json"], body: body)
    let sent = environment.clock.monotonicNanoseconds()
    let response: HTTPResponse
    var tooLarge: AnswerTooLarge?
    do { response = try await transport.send(request) } catch let error as AnswerTooLarge {
      (response, tooLarge) = (error.head, error)
    }
    learnServerTime(response, sent: sent)
    let successor =
      response.headers["x-apple-cloudkit-web-auth-token"] ?? response.headers["x-apple-cloudkit-session"]
    // A successor counts only for a request that carried a token, as in CloudKit JS.
    var next = token
    if let token, let successor { next = session?.rotate(from: token, to: successor.trimmingSpaces()) }
    if let tooLarge, (200...299).contains(response.status) {
      throw CloudError(.answerTooLarge, reason: tooLarge.description)
    }
    let errors = WebServicesErrors(
      secrets: [token, successor, apiToken].compactMap { $0 },
      wallMilliseconds: environment.clock.wallMilliseconds())
    guard (200...299).contains(response.status) else {
      if let items: Value = atomicItems(response) {
        return Answer(value: items, response: response, errors: errors, successor: next)
      }
      let error = errors.whole(response)
      if response.status == 421 {
        session?.markRefused()
        session?.refused(token, error, at: environment.clock.monotonicNanoseconds())
      }
      throw error
    }
    session?.wasTaken()
    do {
      return Answer(
        value: try WireJSON.decode(type, response.body), response: response, errors: errors, successor: next)
    } catch {
      // The live service was seen to refuse a whole request under HTTP 200.
      if let refusal = refusal(response) { throw errors.item(refusal, response, status: response.status) }
      throw errors.unexpected(response, "the answer to \(endpoint) cannot be read: \(error)")
    }
  }

  /// The results in a whole-request ATOMIC_ERROR, which may bring them as an answer with HTTP 200 does.
  private func atomicItems<Value: WireMessage>(_ response: HTTPResponse) -> Value? {
    guard Value.self == RecordsReply.self, refusal(response)?.serverErrorCode == CloudError.Code.atomicError.rawValue
    else { return nil }
    do { return try WireJSON.decode(Value.self, response.body) } catch { return nil }
  }

  private func refusal(_ response: HTTPResponse) -> WireError? {
    // If this fails, the caller reports the answer as one that cannot be read.
    do { return try WireJSON.decode(WireError.self, response.body) } catch { return nil }
  }
}

extension WireJSON {
  /// The request for operations on records of one zone, as a `ModifyRequest` is written, without one in between: a record's
  /// fields are copied and sorted nowhere else. The answer shows no fields.
  package static func encode(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) -> [UInt8] {
    var json = JSONWriter(capacity: 512 * (operations.count + 1))
    json.beginObject()
    json.member("atomic", atomic)
    json.key("desiredKeys")
    json.beginArray()
    json.endArray()
    json.key("operations")
    json.beginArray()
    for operation in operations {
      json.beginObject()
      json.member("operationType", operation.kind.rawValue)
      json.key("record")
      write(operation, to: &json)
      json.endObject()
    }
    json.endArray()
    json.member("zoneID", WireZoneID(zone))
    json.endObject()
    return json.finish()
  }

  /// Writes the record of an operation.
  private static func write(_ operation: CloudOperation, to json: inout JSONWriter) {
    json.beginObject()
    switch operation.kind {
    case .delete, .forceDelete: break
    default:
      json.key("fields")
      json.beginObject()
      for (name, value) in operation.fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        json.key(WireName.wire(name))
        WireField.write(value, to: &json, .wire)
      }
      json.endObject()
    }
    if let parent = operation.parent {
      json.key("parent")
      json.beginObject()
      json.member("recordName", parent)
      json.endObject()
    }
    json.member("recordChangeTag", operation.changeTag)
    json.member("recordName", operation.name)
    json.member("recordType", operation.type.isEmpty ? nil : WireName.wire(operation.type))
    json.endObject()
  }
}
