// Answers a browser: the page's files to whoever may reach this address, and data to the page that has the cookie.
//
// `serve` has the whole table of rights, and PageAccessTests walks it with every path and every name that a page answers.

import StrandlineCloudKit
import StrandlineHost
import StrandlinePage
import StrandlineServer
import StrandlineSystem
import Synchronization

/// What a page shows.
protocol PageSource: Sendable {
  /// What the page asks for first.
  var facts: [String: JSONValue] { get }
  /// Why nothing can be changed by this page; nil if something can.
  var changeRefusal: String? { get }
  /// What gives the data under each name.
  var reads: [String: (PageQuery) -> HTTPResponse] { get }
  /// What gives data to a request that has a body.
  var looks: [String: (PageQuery, [UInt8]) -> HTTPResponse] { get }
  /// What changes something.
  var changes: [String: (PageQuery) -> HTTPResponse] { get }
  /// Sends what happens, until the stream ends.
  func follow(_ stream: HTTPStream)
}

/// A page of one source.
final class PageService: HTTPService {
  private let access: PageAccess
  let clock: any SystemClock
  private let source: any PageSource
  private let streams = Mutex(Streams())

  /// How many pages are open, and since when none is.
  private struct Streams {
    var open = 0
    var closedNanoseconds: UInt64?
    /// Until when a page that is not seen, and has left its stream, counts as open.
    var restingNanoseconds: UInt64 = 0
  }

  private static let streamsMax = 32
  /// Longer than a browser delays what a page does that is not seen.
  private static let restNanoseconds: UInt64 = 180_000_000_000

  init(_ source: any PageSource, _ access: PageAccess, _ environment: SystemEnvironment) {
    self.source = source
    self.access = access
    clock = environment.clock
  }

  var failure: String? { nil }

  func delayMilliseconds(of request: HTTPRequest) -> Int64 { 0 }
  func sink(for request: HTTPRequest) -> IncomingContent? { nil }

  /// The paths of the page's own files.
  static var files: Set<String> { Set(PageFile.all.keys) }

  /// Whether a path is the page's, where it shares a port with something else.
  static func owns(_ path: String) -> Bool {
    path == "/" || path.hasPrefix("/page/") || path.hasPrefix("/api/") || path == "/favicon.ico"
  }

  /// Since how many milliseconds the page is closed; nil if it is open, or was never opened.
  var closedMilliseconds: Int64? {
    streams.withLock { streams in
      let now = clock.monotonicNanoseconds()
      guard streams.open == 0, now >= streams.restingNanoseconds, let since = streams.closedNanoseconds else {
        return nil
      }
      return Int64(clamping: (now - max(since, streams.restingNanoseconds)) / 1_000_000)
    }
  }

  // MARK: Who may ask what

  func serve(_ request: HTTPRequest) -> HTTPAnswer {
    guard ["GET", "HEAD", "POST"].contains(request.method) else {
      return .respond(Self.refusal(405, "this address does not accept \(request.method)", ["Allow": "GET, HEAD, POST"]))
    }
    if let words = access.foreignness(of: request) { return .respond(Self.refusal(403, words)) }
    let query = PageQuery(request.query)
    if request.path.hasPrefix("/api/") { return api(String(request.path.dropFirst(5)), request, query) }
    guard request.method != "POST" else {
      return .respond(Self.refusal(405, "this address does not accept POST", ["Allow": "GET, HEAD"]))
    }
    guard let file = PageFile.all[request.path] else {
      return .respond(Self.refusal(404, "there is nothing at this address"))
    }
    // The files are the same for everyone and hold nothing of a store.
    guard request.path == "/" else { return .respond(Self.file(file)) }
    switch access.isAddressed(query) {
    case true?:
      var headers = PageAccess.headers
      headers["Location"] = "/"
      headers["Set-Cookie"] = access.setCookie(for: request)
      return .respond(HTTPResponse(status: 303, headers: headers))
    case nil where access.isSignedIn(request): return .respond(Self.file(file))
    case nil, false?: return .respond(PageFile.all["/page/closed.html"].map { Self.file($0, 401) } ?? Self.signedOut)
    }
  }

  private func api(_ name: String, _ request: HTTPRequest, _ query: PageQuery) -> HTTPAnswer {
    guard access.isSignedIn(request) else { return .respond(Self.signedOut) }
    guard request.method == "POST" else {
      return reads[name]?(query) ?? .respond(Self.refusal(404, "there is no '\(name.prefix(80))' to read"))
    }
    guard access.isOfPage(request) else {
      return .respond(Self.refusal(403, "only the page of this address may send this"))
    }
    if let look = source.looks[name] { return .respond(look(query, request.body)) }
    if let words = source.changeRefusal { return .respond(Self.refusal(403, words)) }
    let form = PageQuery(String(decoding: request.body, as: UTF8.self))
    return .respond(
      source.changes[name]?(form) ?? Self.refusal(404, "there is no '\(name.prefix(80))' to change"))
  }

  /// The answers to a GET by their names: those of the source, and those of every page.
  private var reads: [String: (PageQuery) -> HTTPAnswer] {
    var all = source.reads.mapValues { read in { (query: PageQuery) in HTTPAnswer.respond(read(query)) } }
    all["session"] = { .respond(self.session($0)) }
    all["events"] = { _ in self.events() }
    return all
  }

  /// The names of all that can be asked for, by GET and by POST.
  var names: (get: Set<String>, post: Set<String>) {
    (Set(reads.keys), Set(source.looks.keys).union(source.changes.keys))
  }

  private func session(_ query: PageQuery) -> HTTPResponse {
    if query["rest"] != nil {
      streams.withLock { $0.restingNanoseconds = clock.monotonicNanoseconds() + Self.restNanoseconds }
    }
    var members = source.facts
    members["changeToken"] = .string(access.changeToken)
    members["changeRefusal"] = source.changeRefusal.map { .string($0) } ?? .null
    return Self.json(.object(members))
  }

  // MARK: Events

  private func events() -> HTTPAnswer {
    let isAdmitted = streams.withLock { streams in
      guard streams.open < Self.streamsMax else { return false }
      streams.open += 1
      streams.restingNanoseconds = 0
      return true
    }
    guard isAdmitted else { return .respond(Self.refusal(503, "this page is open too often")) }
    let place = StreamPlace { [self] in
      let now = clock.monotonicNanoseconds()
      streams.withLock { streams in
        streams.open -= 1
        streams.closedNanoseconds = now
      }
    }
    var headers = PageAccess.headers
    headers["Content-Type"] = "text/event-stream; charset=utf-8"
    return .stream(headers) { [source] stream in withExtendedLifetime(place) { source.follow(stream) } }
  }

  /// The place of one stream, free again when it is let go: a stream whose head cannot be sent is never begun.
  private final class StreamPlace: Sendable {
    private let leave: @Sendable () -> Void
    init(leave: @escaping @Sendable () -> Void) { self.leave = leave }
    deinit { leave() }
  }

  /// An event of a stream. JSON has no line end, which would end it.
  static func event(_ name: String, _ value: JSONValue) -> [UInt8] {
    Array("event: \(name)\ndata: ".utf8) + value.canonicalBytes + Array("\n\n".utf8)
  }

  // MARK: Answers

  private static func file(_ file: PageFile, _ status: Int = 200) -> HTTPResponse {
    var headers = PageAccess.headers
    headers["Content-Type"] = file.type
    return HTTPResponse(status: status, headers: headers, body: file.bytes)
  }

  static func json(_ value: JSONValue, _ status: Int = 200) -> HTTPResponse { json(value.canonicalBytes, status) }

  static func json(_ bytes: [UInt8], _ status: Int = 200) -> HTTPResponse {
    var headers = PageAccess.headers
    headers["Content-Type"] = "application/json; charset=utf-8"
    return HTTPResponse(status: status, headers: headers, body: bytes)
  }

  static func refusal(_ status: Int, _ words: String, _ more: HTTPHeaders = [:]) -> HTTPResponse {
    var answer = json(.object(["error": .string(words)]), status)
    for field in more.fields { answer.headers.append(field.name, field.value) }
    return answer
  }

  private static var signedOut: HTTPResponse {
    refusal(401, "this browser has not opened the page by the address that the command prints")
  }
}
