// Answers HTTP requests to CloudKit's endpoints: paths, methods, sign-in and faults. The sockets and the in-process
// transport both call this, so they answer alike.
//
// A path is compared with the names listed here; no part of it is ever used as the name of a file.

internal import Strandline
package import StrandlineCloudKit
internal import Synchronization
internal import StrandlineJSON
internal import StrandlineSystem

/// What the transport has to do with a request.
package enum ServerAnswer: Sendable {
  case respond(HTTPResponse)
  /// Send nothing and keep the connection until the client closes it.
  case hang
  /// Send the next push of the mailbox, or nothing after a while.
  case push(HTTPHeaders, PushBox)
}

extension CloudServer {
  enum Endpoint: String, CaseIterable {
    case recordsModify = "records/modify"
    case recordsLookup = "records/lookup"
    case recordsQuery = "records/query"
    case recordsChanges = "records/changes"
    case assetsUpload = "assets/upload"
    case assetsRereference = "assets/rereference"
    case changesZone = "changes/zone"
    case changesDatabase = "changes/database"
    case zonesList = "zones/list"
    case zonesLookup = "zones/lookup"
    case zonesModify = "zones/modify"
    case zonesChanges = "zones/changes"
    case usersCaller = "users/caller"
    case usersCurrent = "users/current"
    case usersDiscover = "users/discover"
    case usersByEmail = "users/lookup/email"
    case usersByName = "users/lookup/id"
    case usersOfContacts = "users/lookup/contacts"
    case subscriptionsList = "subscriptions/list"
    case subscriptionsLookup = "subscriptions/lookup"
    case subscriptionsModify = "subscriptions/modify"
    case tokensCreate = "tokens/create"
    case tokensRegister = "tokens/register"

    /// Whether its path begins with "/device", and names no database.
    var isOfDevice: Bool {
      switch self {
      case .tokensCreate, .tokensRegister: true
      default: false
      }
    }

    /// Whether it needs no user in the public database.
    var isPublicReading: Bool {
      switch self {
      case .recordsLookup, .recordsQuery, .zonesList, .zonesLookup: true
      default: false
      }
    }

    /// CloudKit expects GET for requests without a body; the live service was seen to accept POST for zones/list too.
    var methods: [String] {
      switch self {
      case .zonesList: ["GET", "HEAD", "POST"]
      case .usersCaller, .usersCurrent, .subscriptionsList: ["GET", "HEAD"]
      case .usersDiscover: ["GET", "HEAD", "POST"]
      default: ["POST"]
      }
    }
  }

  private struct Route {
    var key: DatabaseKey
    var endpoint: Endpoint
  }

  /// How long each answer is delayed.
  package var latencyMilliseconds: Int64 { front.withLock { $0.faults.latencyMilliseconds } }

  private static let lastMilliseconds: Int64 = 253_402_300_799_999

  /// The time by the server's clock, which the fault `clockAhead` may have moved: from 1970 to the year 9999.
  var wallMilliseconds: Int64 {
    let ahead = front.withLock { $0.faults.clockAheadMilliseconds }
    let (time, isBeyond) = environment.clock.wallMilliseconds().addingReportingOverflow(ahead)
    return isBeyond ? (ahead < 0 ? 0 : Self.lastMilliseconds) : min(max(time, 0), Self.lastMilliseconds)
  }

  /// Answers a request. Blocks until the journal's sync has returned.
  package func answer(_ request: HTTPRequest) -> ServerAnswer {
    let uuid = RecordName.random(high: environment.random.next(), low: environment.random.next())
    var headers: HTTPHeaders = [
      "Content-Type": "application/json; charset=UTF-8", "X-Apple-Request-UUID": uuid,
      "X-Apple-CloudKit-Version": "1.0", "Date": HTTPDate.text(wallMilliseconds),
    ]
    do throws(ServerRefusal) {
      if request.method == "OPTIONS", let methods = try methods(at: request.path) {
        return .respond(HTTPResponse(status: 204, headers: ["Allow": methods, "X-Apple-Request-UUID": uuid]))
      }
      if request.path.hasPrefix(Self.contentPath) { return .respond(wholeContent(request)) }
      if request.path == "/signin" { return .respond(try signInPage(request, headers)) }
      if request.path == Self.courierPath, request.method == "GET" {
        return .push(headers, try courierBox(try parameter("token", request)))
      }
      guard let route = try route(request.path) else {
        throw ServerRefusal(404, WireError(.notFound, "this server has no endpoint at this path"))
      }
      front.withLock { $0.statistics.requests[route.endpoint.rawValue, default: 0] += 1 }
      guard route.endpoint.methods.contains(request.method) else {
        headers["Allow"] = try methods(at: request.path)
        throw ServerRefusal(405, WireError(.badRequest, "this endpoint does not accept \(request.method)"))
      }
      try checkAPIToken(request)
      try checkSignature(request)
      try throttle(&headers)
      var key = route.key
      let user = try user(request, route, &headers)
      if key.scope != .public { key.user = user }
      var memory = RequestMemory(large)
      memory.hold(request.body.count)
      let body = try reply(route.endpoint, request, key, user, &memory)
      if route.endpoint == .recordsModify, let number = countDownToDrop() {
        printLine("dropped answer \(number)")
        return .hang
      }
      return .respond(HTTPResponse(status: 200, headers: headers, body: body))
    } catch {
      var refusal = error.error
      refusal.uuid = uuid
      if headers["Retry-After"] == nil, let seconds = refusal.retryAfter {
        headers["Retry-After"] = Self.wholeSeconds(seconds)
      }
      return .respond(HTTPResponse(status: error.status, headers: headers, body: WireJSON.encode(refusal)))
    }
  }

  /// Counts a `records/modify`; if its answer is to be dropped, returns the number that `dropAnswer` was set to.
  private func countDownToDrop() -> Int? {
    front.withLock { front in
      guard let rest = front.untilDrop else { return nil }
      front.untilDrop = rest > 1 ? rest - 1 : nil
      guard rest == 1 else { return nil }
      front.statistics.droppedAnswers += 1
      return front.faults.dropAnswer
    }
  }

  // MARK: Paths

  private func route(_ path: String) throws(ServerRefusal) -> Route? {
    let parts = path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { Substring($0) }
    let isOfDevice = parts.count == 7 && parts[1] == "device"
    guard isOfDevice || (8...9).contains(parts.count) && parts[1] == "database", parts[0].isEmpty, parts[2] == "1",
      let container = PercentEncoding.decode(parts[3]), let environment = PercentEncoding.decode(parts[4]),
      let endpoint = Endpoint(rawValue: parts[(isOfDevice ? 5 : 6)...].joined(separator: "/")),
      endpoint.isOfDevice == isOfDevice
    else { return nil }
    let scope: DatabaseScope
    switch isOfDevice ? "private" : parts[5] {
    case "private": scope = .private
    case "shared": scope = .shared
    case "public": scope = .public
    default: return nil
    }
    guard environment == "development" || environment == "production" else {
      throw ServerRefusal(400, WireError(.badRequest, "the environment is 'development' or 'production'"))
    }
    guard !container.isEmpty, container.utf8.count <= 255 else {
      throw ServerRefusal(400, WireError(.badRequest, "the container's name has 1 to 255 characters"))
    }
    return Route(
      key: DatabaseKey(container: container, environment: environment, scope: scope, user: ""), endpoint: endpoint)
  }

  /// The methods that a path takes, as the field `Allow` lists them; nil if there is nothing at the path.
  private func methods(at path: String) throws(ServerRefusal) -> String? {
    // "*" is the server as a whole.
    let methods = path == "*" || path == "/signin" ? ["GET", "HEAD", "POST"] : try route(path)?.endpoint.methods
    return methods.map { ($0 + ["OPTIONS"]).joined(separator: ", ") }
  }

  /// The value of a query parameter.
  private func parameter(_ name: String, _ request: HTTPRequest) throws(ServerRefusal) -> String? {
    for pair in request.query.split(separator: "&") {
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, parts[0] == name else { continue }
      guard let value = PercentEncoding.decode(parts[1]) else {
        throw ServerRefusal(400, WireError(.badRequest, "the parameter \(name) is not percent-encoded UTF-8"))
      }
      return value
    }
    return nil
  }

  // MARK: Sign-in and faults

  /// Refuses every request, but that of the sign-in page, whose `ckAPIToken` is missing or is none of these; nil accepts
  /// any.
  package func setAPITokens(_ tokens: Set<String>?) { front.withLock { $0.apiTokens = tokens } }

  /// A set compares by hash and not in constant time. An API token is no secret between programs of one machine: it names
  /// an app to the service, and each copy of the app has it.
  private func checkAPIToken(_ request: HTTPRequest) throws(ServerRefusal) {
    guard let tokens = front.withLock({ $0.apiTokens }) else { return }
    guard let token = try parameter("ckAPIToken", request), tokens.contains(token) else {
      throw ServerRefusal(401, WireError(.authenticationFailed, "no auth method found"))
    }
  }

  /// Refuses a request that is signed with a server-to-server key. Such a request acts for the key's owner; answered for
  /// somebody else it would seem to work.
  private func checkSignature(_ request: HTTPRequest) throws(ServerRefusal) {
    let parts = ["keyid", "signaturev1", "iso8601date"]
    guard parts.contains(where: { request.headers["x-apple-cloudkit-request-" + $0] != nil }) else { return }
    throw ServerRefusal(
      401,
      WireError(
        .authenticationFailed, "this server has no server-to-server keys; send a ckAPIToken and a ckWebAuthToken"))
  }

  private func signInPage(_ request: HTTPRequest, _ headers: HTTPHeaders) throws(ServerRefusal) -> HTTPResponse {
    let user = try parameter("user", request) ?? CloudServer.defaultUser
    guard !user.isEmpty, user.utf8.count <= 255 else {
      throw ServerRefusal(400, WireError(.badRequest, "a user's name has 1 to 255 characters"))
    }
    var json = JSONWriter()
    json.beginObject()
    json.key("ckWebAuthToken")
    json.string(signIn(user: user))
    json.endObject()
    return HTTPResponse(status: 200, headers: headers, body: json.finish())
  }

  /// The user of a request. With `requireSession` it also sets the header with the next token, for any answer. The public
  /// database is read by anybody who has an API token.
  private func user(
    _ request: HTTPRequest, _ route: Route, _ headers: inout HTTPHeaders
  ) throws(ServerRefusal) -> String {
    let token = try parameter("ckWebAuthToken", request)
    if token == nil, route.key.scope == .public, route.endpoint.isPublicReading { return CloudServer.defaultUser }
    let used: (required: Bool, user: String?, next: String?) = front.withLock { front in
      guard front.faults.requireSession else {
        return (false, token.flatMap { front.sessions.user(of: $0, storeUUID: journal.storeUUID) }, nil)
      }
      let used = token.flatMap {
        front.sessions.use($0, isStrict: front.faults.strictRotation, storeUUID: journal.storeUUID)
      }
      return (true, used?.user, used?.next)
    }
    if let next = used.next { headers["X-Apple-CloudKit-Web-Auth-Token"] = next }
    if let user = used.user { return user }
    guard !used.required else {
      throw ServerRefusal(
        421,
        WireError(
          .authenticationRequired, "request needs authorization", redirectURL: "\(request.origin)/signin"))
    }
    return CloudServer.defaultUser
  }

  /// A wait in whole seconds for the header, limited to 1e15; 0 for NaN and infinity.
  private static func wholeSeconds(_ seconds: Double) -> String {
    seconds.isFinite ? String(Int(min(max(seconds, 0), 1e15).rounded(.up))) : "0"
  }

  /// Refuses the request if the fault `throttle` is on.
  private func throttle(_ headers: inout HTTPHeaders) throws(ServerRefusal) {
    let throttle: ServerFaults.Throttle? = front.withLock { front in
      guard let throttle = front.faults.throttle else { return nil }
      if let rest = front.throttled {
        guard rest > 0 else { return nil }
        front.throttled = rest - 1
      }
      return throttle
    }
    guard let throttle else { return }
    if let seconds = throttle.retryAfter { headers["Retry-After"] = Self.wholeSeconds(seconds) }
    throw ServerRefusal(
      throttle.status,
      throttle.status == 429
        ? WireError(.throttled, "Database throttled, retry later", retryAfter: throttle.retryAfter)
        : WireError(.tryAgainLater, "The service is busy, retry later", retryAfter: throttle.retryAfter))
  }

  // MARK: Endpoints

  func reply(
    _ endpoint: Endpoint, _ request: HTTPRequest, _ key: DatabaseKey, _ user: String, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    switch endpoint {
    case .recordsModify:
      return try modifyAnswer(body(of: request), in: key, showsToken: try asksForToken(request), &memory)
    case .recordsLookup:
      return try lookupAnswer(try message(request), in: key, showsToken: try asksForToken(request), &memory)
    case .recordsQuery:
      return try queryAnswer(try message(request), in: key, showsToken: try asksForToken(request), &memory)
    case .assetsUpload: return WireJSON.encode(try assetTokens(try message(request), in: key))
    case .assetsRereference: return WireJSON.encode(try rereference(try message(request), in: key))
    case .changesZone: return try zoneChangesAnswer(try message(request), in: key, &memory)
    case .changesDatabase: return WireJSON.encode(try databaseChanges(try message(request), in: key))
    case .zonesList: return WireJSON.encode(try listZones(in: key))
    case .zonesLookup:
      return WireJSON.encode(try lookupZones((try message(request) as ZonesLookupRequest).zones, in: key))
    case .zonesModify:
      let asked: ZonesModifyRequest = try message(request)
      return try pushing(asked.operations.map(\.zone.zoneID.name), in: key) { () throws(ServerRefusal) in
        WireJSON.encode(try modifyZones(asked, in: key))
      }
    case .subscriptionsList: return WireJSON.encode(try listSubscriptions(in: key))
    case .subscriptionsLookup: return WireJSON.encode(try lookupSubscriptions(try message(request), in: key))
    case .subscriptionsModify: return WireJSON.encode(try modifySubscriptions(try message(request), in: key))
    case .tokensCreate: return WireJSON.encode(createToken(try message(request), key, user, origin: request.origin))
    case .tokensRegister: return WireJSON.encode(try registerToken(try message(request)))
    case .recordsChanges: return try recordChangesAnswer(try message(request), in: key, &memory)
    case .zonesChanges: return try zonesChangesAnswer(try message(request), in: key)
    case .usersCaller, .usersCurrent, .usersDiscover, .usersByEmail, .usersByName, .usersOfContacts:
      guard key.scope == .public else {
        throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
      }
      return try userReply(endpoint, request, key, user)
    }
  }

  private func userReply(
    _ endpoint: Endpoint, _ request: HTTPRequest, _ key: DatabaseKey, _ user: String
  ) throws(ServerRefusal) -> [UInt8] {
    switch endpoint {
    // The reference shows a list; some clients read the bare object. Each passes over the other's key.
    case .usersCaller: return WireJSON.encode(UserReply(users: [.init(userRecordName: user)], userRecordName: user))
    case .usersDiscover where request.method != "POST": return try usersAnswer(nil, of: user, in: key)
    // Who is in a person's contacts, only that person's devices know.
    case .usersOfContacts: return try usersAnswer([], of: user, in: key)
    case .usersDiscover, .usersByEmail, .usersByName:
      return try usersAnswer((try message(request) as UsersRequest).users, of: user, in: key)
    default: return WireJSON.encode(UserReply(users: nil, userRecordName: user))
    }
  }

  /// Whether the answer is to bring the zone's change token, as Apple's own web apps ask for it.
  private func asksForToken(_ request: HTTPRequest) throws(ServerRefusal) -> Bool {
    try parameter("getCurrentSyncToken", request) == "true"
  }

  /// An empty body is read as `{}`: it is valid where every key is optional.
  private func body(of request: HTTPRequest) -> [UInt8] { request.body.isEmpty ? Array("{}".utf8) : request.body }

  private func message<Message: WireMessage>(_ request: HTTPRequest) throws(ServerRefusal) -> Message {
    do throws(JSONError) {
      return try WireJSON.decode(Message.self, body(of: request), bytesMax: limits.bodyBytesMax)
    } catch {
      throw ServerRefusal(unreadable: error)
    }
  }
}

extension ServerRefusal {
  init(unreadable error: JSONError) {
    self.init(400, WireError(.badRequest, "the body cannot be read: \(error)"))
  }
}
