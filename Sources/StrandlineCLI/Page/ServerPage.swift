// What the page of a local server shows: its databases, the requests that it answered, and the faults that are on.
//
// It comes before the cloud, takes the page's requests for itself and hands on all others, of which it keeps the newest. It
// reads the databases without the faults and without a sign-in: who looks changes nothing for the app that is watched. The tokens
// of apps are neither kept nor shown: those of a sign-in, of the API, and of pushes, each of which is a key to something.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineSystem
import Synchronization

/// A cloud with a page before it.
struct ServerPage: HTTPService {
  let page: PageService
  private let cloud: CloudServer
  private let requests: RequestList

  init(
    _ cloud: CloudServer, directory: String, needsAPIToken: Bool, _ access: PageAccess,
    _ environment: SystemEnvironment
  ) {
    self.cloud = cloud
    requests = RequestList()
    let verbs = PageVerbs(path: directory, environment: environment, reader: nil)
    page = PageService(
      ServerSource(cloud: cloud, requests: requests, verbs: verbs, needsAPIToken: needsAPIToken), access, environment)
  }

  var clock: any SystemClock { cloud.clock }
  var failure: String? { cloud.failure }

  func delayMilliseconds(of request: HTTPRequest) -> Int64 {
    PageService.owns(request.path) ? 0 : cloud.delayMilliseconds(of: request)
  }

  /// An upload of a content goes to the cloud piece by piece, and is not kept among the requests.
  func sink(for request: HTTPRequest) -> IncomingContent? {
    PageService.owns(request.path) ? nil : cloud.sink(for: request)
  }

  func serve(_ request: HTTPRequest) -> HTTPAnswer {
    if PageService.owns(request.path) { return page.serve(request) }
    let delay = cloud.latencyMilliseconds
    let begun = clock.monotonicNanoseconds()
    let answer = cloud.serve(request)
    let nanoseconds = clock.monotonicNanoseconds() &- begun &+ UInt64(max(0, delay)) &* 1_000_000
    requests.add(request, answer, at: clock.wallMilliseconds(), nanoseconds: nanoseconds)
    return answer
  }

  func wasRefused(_ refusal: RefusedRequest) {
    let (method, path) = refusal.target ?? ("–", "no request that could be read")
    if refusal.target == nil || !PageService.owns(path) {
      let request = HTTPRequest(method: method, origin: "", path: path, query: "", headers: [:], body: [])
      let answer = HTTPResponse(status: refusal.status, headers: [:], body: refusal.response)
      requests.add(request, .respond(answer), at: clock.wallMilliseconds(), nanoseconds: 0)
    }
  }
}

/// The newest requests of a server.
private final class RequestList: Sendable {
  struct Entry: Sendable {
    var number: Int
    var members: [String: JSONValue]
    var sent: [UInt8]
    var received: [UInt8]
  }

  private let state = Mutex((next: 1, entries: [Entry]()))

  private static let entriesMax = 300
  /// The most bytes of a body that are kept.
  private static let bodyBytesMax = 32 << 10

  /// Whether what is sent to a path, or what it answers, is a token: a session's, or the one with which a client waits for its
  /// pushes. A path that only resembles theirs counts too, because a client that mistypes it has sent the token all the same.
  private static func hasTokens(_ path: String) -> Bool {
    (PercentEncoding.decode(Substring(path)) ?? path).split(separator: "/").contains {
      ["signin", "tokens", "courier"].contains($0.lowercased())
    }
  }

  /// The query, which has tokens of sessions and of the API, is not kept, and no body that has a token.
  func add(_ request: HTTPRequest, _ answer: HTTPAnswer, at milliseconds: Int64, nanoseconds: UInt64) {
    var members: [String: JSONValue] = [
      "method": .string(request.method), "path": .string(request.path), "milliseconds": .integer(milliseconds),
      "microseconds": .integer(Int64(clamping: nanoseconds / 1_000)), "sentBytes": .integer(Int64(request.body.count)),
    ]
    let isSecret = Self.hasTokens(request.path)
    members["isSecret"] = .bool(isSecret)
    var received: [UInt8] = []
    if case .respond(let response) = answer {
      members["status"] = .integer(Int64(response.status))
      members["receivedBytes"] = .integer(Int64(response.body.count))
      members["retryAfter"] = response.headers["retry-after"].map { .string($0) } ?? .null
      if !isSecret { received = Array(response.body.prefix(Self.bodyBytesMax)) }
    }
    if case .stream = answer {
      // A push, of which neither the body nor the time is known before it comes.
      members["status"] = .integer(200)
      members["isStream"] = .bool(true)
    }
    let sent = isSecret ? [] : Array(request.body.prefix(Self.bodyBytesMax))
    state.withLock { state in
      members["number"] = .integer(Int64(state.next))
      state.entries.append(Entry(number: state.next, members: members, sent: sent, received: received))
      state.next += 1
      if state.entries.count > Self.entriesMax { state.entries.removeFirst() }
    }
  }

  func after(_ number: Int) -> [Entry] { state.withLock { $0.entries.filter { $0.number > number } } }

  var newest: Int { state.withLock { $0.next - 1 } }
}

/// The source of a server's page.
private struct ServerSource: PageSource {
  let cloud: CloudServer
  let requests: RequestList
  let verbs: PageVerbs
  let needsAPIToken: Bool

  private static let pollMilliseconds: Int64 = 25
  /// After so many looks without news something is sent all the same.
  private static let quietLooks = 400

  var facts: [String: JSONValue] {
    [
      "kind": .string("server"), "path": .string(verbs.path),
      "comparators": .array(CloudServer.comparators.map { .string($0) }), "needsAPIToken": .bool(needsAPIToken),
    ]
  }
  var changeRefusal: String? { nil }

  var reads: [String: (PageQuery) -> HTTPResponse] {
    [
      "run": { verbs.run($0, among: PageVerb.readingJournal) },
      "databases": { _ in said { .array(try cloud.databases().map(Self.json)) } },
      "newest": { _ in said { .integer(Int64(clamping: try cloud.newestLSN())) } },
      "faults": { _ in PageService.json(cloud.faultsAhead.json) },
      "requests": { _ in PageService.json(.array(requests.after(0).map { .object($0.members) })) },
      "request": request,
    ]
  }

  private func request(_ query: PageQuery) -> HTTPResponse {
    guard let entry = requests.after(0).first(where: { String($0.number) == query["number"] }) else {
      return PageService.refusal(404, "this request is not kept any more; only the newest are")
    }
    var members = entry.members
    members["sent"] = .string(String(decoding: entry.sent, as: UTF8.self))
    members["received"] = .string(String(decoding: entry.received, as: UTF8.self))
    return PageService.json(.object(members))
  }

  private func said(_ body: () throws -> JSONValue) -> HTTPResponse {
    do { return PageService.json(try body()) } catch {
      return PageService.refusal(503, "the server does not answer: \(cloud.failure ?? "\(error)")")
    }
  }

  var looks: [String: (PageQuery, [UInt8]) -> HTTPResponse] { ["cloud": look] }

  private func look(_ query: PageQuery, _ body: [UInt8]) -> HTTPResponse {
    guard let scope = [DatabaseScope.private, .shared, .public].first(where: { "\($0)" == query["scope"] }),
      let container = query["container"], let environment = query["environment"], let user = query["user"],
      let endpoint = query["endpoint"]
    else { return PageService.refusal(400, "a request names container, environment, scope, user and endpoint") }
    let key = DatabaseKey(container: container, environment: environment, scope: scope, user: user)
    guard let answer = cloud.look(endpoint, body, in: key) else {
      return PageService.refusal(404, "a page cannot ask '\(printable(String(endpoint.prefix(80))))'")
    }
    return PageService.json(answer.body, answer.status)
  }

  var changes: [String: (PageQuery) -> HTTPResponse] { ["faults": setFaults] }

  /// Sets the faults with the words of `serve`.
  private func setFaults(_ query: PageQuery) -> HTTPResponse {
    do throws(UsageError) {
      let arguments = try Arguments([verbs.operand] + query.all("w"), for: .serve)
      cloud.switchFaults(to: try ServeCommand.faults(arguments))
      return PageService.json(cloud.faultsAhead.json)
    } catch { return PageService.refusal(400, error.message) }
  }

  func follow(_ stream: HTTPStream) {
    var last = requests.newest
    var faults: ServerFaults?
    var quiet = 0
    repeat {
      quiet += 1
      for entry in requests.after(last) {
        last = entry.number
        guard stream.send(PageService.event("request", .object(entry.members))) else { return }
      }
      let now = cloud.faultsAhead
      guard now != faults || quiet > Self.quietLooks else { continue }
      (faults, quiet) = (now, 0)
      guard stream.send(PageService.event("faults", now.json)) else { return }
    } while stream.pause(Self.pollMilliseconds)
  }

  private static func json(_ database: (key: DatabaseKey, zones: [CloudServer.ZoneCount])) -> JSONValue {
    .object([
      "container": .string(database.key.container), "environment": .string(database.key.environment),
      "scope": .string("\(database.key.scope)"), "user": .string(database.key.user),
      "zones": .array(
        database.zones.map { zone in
          .object([
            "zoneName": .string(zone.name), "deleted": .integer(Int64(zone.deleted)),
            "lastLSN": .integer(Int64(clamping: zone.lastLSN)),
            "types": .object(zone.types.mapValues { .integer(Int64($0)) }),
          ])
        }),
    ])
  }
}

extension ServerFaults {
  /// The faults under the names of the options of `serve`.
  fileprivate var json: JSONValue {
    .object([
      "latency": .integer(latencyMilliseconds),
      "throttle": throttle.map { throttle in
        let seconds = throttle.retryAfter ?? 0
        return .string(
          "\(throttle.requests ?? .max):" + (seconds == seconds.rounded() ? "\(Int64(seconds))" : "\(seconds)"))
      } ?? .null,
      "clock": .integer(clockAheadMilliseconds / 1_000),
      "drop-answer": dropAnswer.map { .integer(Int64($0)) } ?? .null, "expired-tokens": .bool(expireTokens),
      "replay-page": .bool(replayPage), "quota-exceeded": .bool(quotaExceeded),
      "require-session": .bool(requireSession), "strict-rotation": .bool(strictRotation),
    ])
  }
}
